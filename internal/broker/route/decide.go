package route

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/weft-search/weft/internal/summa"
)

// Target is the node of a shard that a call goes to.
type Target struct {
	Shard string
	Node  *Node // nil: the shard has no routable copy, and the caller asked for what is left
	Stale bool  // the node is suspect, and read from because no copy is healthy
}

// Route is where a call about an index goes: to one node, or to one for each part of a partitioned index.
type Route struct {
	Target           // of an index that is not partitioned
	Ambiguous   bool // several shards have the index, and no rule says which of them counts
	Partitioned bool
	Rule        *Rule    // of a partitioned index
	Parts       []Target // in the order of the rule
}

// Missing returns the positions in Parts of the shards that have no routable copy.
func (r *Route) Missing() []int {
	var out []int
	for i, t := range r.Parts {
		if t.Node == nil {
			out = append(out, i)
		}
	}
	return out
}

// Read routes a read of the whole index ("Routing": read). turn is a number that rises with every read of the broker, by which healthy
// copies take turns. It allocates only for refusals and partitioned indexes.
//
// The refusal "no routable replica on shard" of the contract cannot come up here: what makes a shard have an index is a routable copy.
func (v *View) Read(index string, turn uint64) (Route, error) { return v.read(index, turn, false) }

// ReadPartial is Read for a caller that is content with some parts of a partitioned index: those that are missing have no node. It
// refuses where none is left.
func (v *View) ReadPartial(index string, turn uint64) (Route, error) {
	return v.read(index, turn, true)
}

func (v *View) read(index string, turn uint64, partial bool) (Route, error) {
	home, err := v.find(index)
	if err != nil {
		return Route{}, err
	}
	if home.rule.Partitioned() {
		return v.readParts(index, home, turn, partial)
	}
	r := Route{Ambiguous: home.shards > 1 && !home.pinned}
	r.Target = v.choose(home.copies, turn)
	return r, nil
}

func (v *View) readParts(index string, home home, turn uint64, partial bool) (Route, error) {
	r := Route{Partitioned: true, Rule: home.rule, Parts: make([]Target, len(home.rule.Parts))}
	var missing []string
	for i, p := range home.rule.Parts {
		r.Parts[i] = v.choose(v.copiesOn(home.all, p.Shard), turn)
		r.Parts[i].Shard = p.Shard
		if r.Parts[i].Node == nil {
			missing = append(missing, p.Shard)
		}
	}
	switch {
	case len(missing) == 0:
	case !partial:
		return Route{}, refuse(codes.Unavailable, "index '%s' is partitioned over %d shards but partition(s) [%s] carry no healthy copy",
			clip(index), len(r.Parts), strings.Join(missing, ", "))
	case len(missing) == len(r.Parts):
		return Route{}, refuse(codes.Unavailable, "index '%s': none of its %d partitions has a routable replica", clip(index), len(r.Parts))
	}
	return r, nil
}

// Write routes a change of an index to the master of its shard, or of each part ("Routing": writes, and "Topology and health": master of
// a shard). A master that polls find suspect is still written to.
func (v *View) Write(index string) (Route, error) {
	home, err := v.find(index)
	if err != nil {
		return Route{}, err
	}
	if !home.rule.Partitioned() {
		if home.shards > 1 && !home.pinned {
			return Route{}, refuse(codes.FailedPrecondition,
				"index '%s' exists on %d shards with no placement rule pinning the writable one; add --placement", clip(index), home.shards)
		}
		t, err := v.masterFor(index, &v.shards[v.shardOf[home.copies[0]]])
		return Route{Target: t}, err
	}
	r, err := v.readParts(index, home, 0, false)
	if err != nil {
		return Route{}, err
	}
	for i, t := range r.Parts {
		if r.Parts[i], err = v.masterFor(index, v.shard(t.Shard)); err != nil {
			return Route{}, err
		}
	}
	return r, nil
}

func (v *View) masterFor(index string, s *shard) (Target, error) {
	m, err := v.master(s)
	if err != nil {
		return Target{}, err
	}
	if !m.Routable() {
		return Target{}, refuse(codes.Unavailable, "index '%s': shard '%s' master '%s' is unavailable", clip(index), s.name, m.ID)
	}
	return Target{Shard: s.name, Node: m}, nil
}

// Master returns the node of a shard that is written to, routable or not ("Topology and health": master of a shard). All known nodes
// count as members.
func (v *View) Master(name string) (*Node, error) {
	s := v.shard(name)
	if s == nil {
		return nil, refuse(codes.FailedPrecondition, "unknown shard '%s'", name)
	}
	return v.master(s)
}

func (v *View) master(s *shard) (*Node, error) {
	members := v.nodes[s.from:s.end]
	var labelled *Node
	masters := 0
	for _, n := range members {
		if n.Role == Master {
			labelled = n
			masters++
		}
	}
	switch {
	case masters == 1:
		return labelled, nil
	case masters > 1:
		return nil, refuse(codes.FailedPrecondition, "shard '%s' has %d masters; writes refused until exactly one remains", s.name, masters)
	case len(members) > 1:
		return nil, refuse(codes.FailedPrecondition, "shard '%s' has no master among %d members; label exactly one pod with role=master", s.name, len(members))
	case members[0].Role == Follower:
		return nil, refuse(codes.FailedPrecondition, "shard '%s' has no master: its only member is labeled follower", s.name)
	}
	return members[0], nil
}

// Create routes the creation of an index to the masters of the shards that it is placed on, in their order ("Routing": CreateIndex).
//
// Without a rule the shard with the fewest indexes gets it, of equals the first by name, among those with a routable master (line B2 of
// the differences); the refusal where there is none is that of the shard which would have it otherwise.
func (v *View) Create(index string) ([]Target, error) {
	rule := v.placement.For(index)
	switch {
	case rule != nil:
		return v.createRuled(index, rule)
	case v.placement.rejects():
		return nil, refuse(codes.FailedPrecondition, "no placement rule matches index '%s' and --placement-default is 'reject'", clip(index))
	case len(v.nodes) == 0:
		return nil, refuse(codes.Unavailable, "no backends discovered; cannot place index")
	}
	var best, reserve *shard
	for i := range v.shards {
		s := &v.shards[i]
		if reserve == nil || s.indexes < reserve.indexes {
			reserve = s
		}
		if best != nil && s.indexes >= best.indexes {
			continue
		}
		if m, err := v.master(s); err == nil && m.Routable() {
			best = s
		}
	}
	if best == nil {
		best = reserve
	}
	t, err := v.masterToCreate(best)
	if err != nil {
		return nil, err
	}
	return []Target{t}, nil
}

func (v *View) createRuled(index string, rule *Rule) ([]Target, error) {
	verb := "targets"
	if rule.Partitioned() {
		verb = "partitions over"
	}
	out := make([]Target, 0, len(rule.Parts))
	for _, p := range rule.Parts {
		s := v.shard(p.Shard)
		if s == nil {
			return nil, refuse(codes.FailedPrecondition, "placement rule for '%s' %s shard '%s' but no backend carries that shard id", clip(index), verb, p.Shard)
		}
		t, err := v.masterToCreate(s)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func (v *View) masterToCreate(s *shard) (Target, error) {
	m, err := v.master(s)
	if err != nil {
		return Target{}, err
	}
	if !m.Routable() {
		return Target{}, refuse(codes.Unavailable, "shard '%s' master '%s' is unavailable", s.name, m.ID)
	}
	return Target{Shard: s.name, Node: m}, nil
}

// Indexes returns the names of all indexes that a routable node has, sorted ("Topology and health": ListIndexes). The slice is
// not to be changed. It is made once for all views that have the same.
func (v *View) Indexes() []string {
	if v.counts.Evicted+v.counts.Unready == 0 {
		return v.names
	}
	if known := v.listed.Load(); known != nil {
		return *known
	}
	var out []string
	for i, number := range v.order {
		e := v.entries[number]
		if slices.ContainsFunc(v.position[e.from:e.end], v.routable) {
			out = append(out, v.names[i])
		}
	}
	v.listed.Store(&out) // others may do the same meanwhile
	return out
}

// Replicas appends the copies of an index on a shard that a read may choose from, by id: the healthy ones, else all suspect ones. Read
// answers with one of them; this is for callers that choose by themselves or ask a second one.
func (v *View) Replicas(dst []*Node, index, shard string) []*Node {
	number, ok := v.byIndex[index]
	if !ok {
		return dst
	}
	e := v.entries[number]
	copies := v.copiesOn(v.position[e.from:e.end], shard)
	for _, want := range []use{usable, lastResort} {
		n := len(dst)
		for _, at := range copies {
			if v.use[at] == want {
				dst = append(dst, v.nodes[at])
			}
		}
		if len(dst) > n {
			break
		}
	}
	return dst
}

// home is where an index is.
type home struct {
	rule   *Rule
	all    []uint32 // positions of all nodes that have it
	copies []uint32 // those on the shard that counts, where it is not partitioned
	shards int      // with a routable copy
	pinned bool     // the shard that counts is the rule's
}

// find looks an index up. It refuses one that no routable node has.
func (v *View) find(index string) (home, error) {
	number, ok := v.byIndex[index]
	if !ok {
		return home{}, absent(index)
	}
	e := &v.entries[number]
	h := home{rule: e.rule, all: v.position[e.from:e.end]}
	pin := e.rule.pinned()
	for rest := h.all; len(rest) > 0; {
		n := 1
		on := v.shardOf[rest[0]]
		good := v.routable(rest[0])
		for n < len(rest) && v.shardOf[rest[n]] == on {
			good = good || v.routable(rest[n])
			n++
		}
		if good {
			pinned := pin != "" && v.shards[on].name == pin
			if h.shards == 0 || pinned {
				h.copies, h.pinned = rest[:n], pinned
			}
			h.shards++
		}
		rest = rest[n:]
	}
	if h.shards == 0 {
		return home{}, absent(index)
	}
	return h, nil
}

// choose takes a copy: of the healthy ones that whose turn it is, else the first suspect one, else none.
func (v *View) choose(copies []uint32, turn uint64) Target {
	var healthy uint64
	var reserve *Node
	for _, at := range copies {
		switch v.use[at] {
		case usable:
			healthy++
		case lastResort:
			if reserve == nil {
				reserve = v.nodes[at]
			}
		}
	}
	skip := turn % max(healthy, 1)
	for _, at := range copies {
		if v.use[at] != usable {
			continue
		}
		if skip == 0 {
			return Target{Shard: v.nodes[at].Shard, Node: v.nodes[at]}
		}
		skip--
	}
	if reserve == nil {
		return Target{}
	}
	return Target{Shard: reserve.Shard, Node: reserve, Stale: true}
}

// copiesOn returns those of rising positions that are on a shard.
func (v *View) copiesOn(positions []uint32, name string) []uint32 {
	s := v.shard(name)
	if s == nil {
		return nil
	}
	from, _ := slices.BinarySearch(positions, s.from)
	end, _ := slices.BinarySearch(positions, s.end)
	return positions[from:end]
}

// shard returns a shard by its name; nil where no node is in it.
func (v *View) shard(name string) *shard {
	at, ok := v.byShard[name]
	if !ok {
		return nil
	}
	return &v.shards[at]
}

func (v *View) routable(at uint32) bool { return v.use[at] != unusable }

func absent(index string) error {
	return refuse(codes.NotFound, "index '%s' is not present on any healthy backend", clip(index))
}

func refuse(code codes.Code, format string, args ...any) error {
	return &summa.Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// clip shortens a name that a client sent to what is worth repeating in a status, which travels in a header.
func clip(index string) string {
	const most = 1024
	if len(index) <= most {
		return index
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(index[end]) {
		end--
	}
	return index[:end] + "…"
}
