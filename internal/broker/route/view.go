package route

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Role is how a node is labelled.
type Role uint8

// The roles.
const (
	Unlabeled Role = iota
	Master
	Follower
)

// ParseRole reads a label. false: it is not that of a role, which makes the node unlabelled.
func ParseRole(label string) (Role, bool) {
	switch label {
	case "master":
		return Master, true
	case "follower":
		return Follower, true
	}
	return Unlabeled, false
}

// String returns the name that admin calls give the role.
func (r Role) String() string { return [...]string{"unlabeled", "master", "follower"}[r] }

// Health is what polls have shown of a node ("Topology and health").
type Health uint8

// The states of health. A new node is suspect.
const (
	Suspect Health = iota
	Healthy
	Evicted
)

// String returns the name that admin calls and metrics give the state.
func (h Health) String() string { return [...]string{"suspect", "healthy", "evicted"}[h] }

// Node is a Summa server as it is known at one moment. Nothing of it changes once it stands in a View.
type Node struct {
	ID, Address, Shard string
	Role               Role
	Ready              bool // as discovery says
	Health             Health
	Indexes            []string  // that it told of last, sorted, each once
	Learned            time.Time // when it told; zero: never
	Failures           uint64    // polls that failed since the last that did not
}

// Routable says whether calls may go to the node: it is ready and not evicted.
func (n *Node) Routable() bool { return n.Ready && n.Health != Evicted }

// MapAge is how long ago the node told of its indexes, in milliseconds; 2^64-1 where it never did ("Diagnostics and control").
func (n *Node) MapAge(now time.Time) uint64 {
	if n.Learned.IsZero() {
		return math.MaxUint64
	}
	return uint64(max(0, now.Sub(n.Learned).Milliseconds()))
}

// View is the fleet at one moment. It does not change; any number of callers may read it at once.
type View struct {
	placement *Placement
	nodes     []*Node // by shard, then id
	use       []use   // of nodes, at the same positions
	counts    Counts
	listed    *atomic.Pointer[[]string] // the answer of Indexes, once somebody asked; shared by views that have the same
	*tables
}

// use is what a node is good for.
type use uint8

const (
	unusable use = iota
	lastResort
	usable
)

// Counts are numbers of nodes by state. A node that is not ready counts as that, whatever its health.
type Counts struct {
	Healthy, Suspect, Evicted, Unready int
}

// tables say where indexes are. They hang on the identity of nodes, their order and their indexes, and not on what becomes of a node,
// so views share them for as long as only health and readiness change.
type tables struct {
	byShard  map[string]uint32 // position in shards
	shards   []shard           // by name
	shardOf  []uint32          // of the nodes, at the same positions
	byIndex  map[string]uint32 // position in entries
	entries  []entry
	names    []string // of the indexes, sorted
	order    []uint32 // positions in entries of these names
	position []uint32 // of nodes; entries have spans of it
}

// shard is a span of nodes.
type shard struct {
	name      string
	from, end uint32
	indexes   int // that its nodes have, each counted once
}

// entry is an index: a span of positions of nodes, which rise.
type entry struct {
	name      string
	from, end uint32
	rule      *Rule
}

// New returns the view of a fleet. The view keeps the nodes, whose ids must differ; they may not be changed any more.
func New(p *Placement, nodes []*Node) *View {
	return (&View{placement: p, listed: &atomic.Pointer[[]string]{}, tables: &tables{}}).Next(nodes)
}

// Next returns the view of the fleet as it is now, under the same placement. It costs little where nodes only changed their health,
// readiness, role or address: then the tables are the same.
func (v *View) Next(nodes []*Node) *View {
	byPlace := func(a, b *Node) int { return cmp.Or(strings.Compare(a.Shard, b.Shard), strings.Compare(a.ID, b.ID)) }
	if !slices.IsSortedFunc(nodes, byPlace) {
		nodes = slices.SortedFunc(slices.Values(nodes), byPlace)
	}
	next := &View{placement: v.placement, nodes: nodes, use: make([]use, len(nodes)), tables: v.tables}
	if !slices.EqualFunc(v.nodes, nodes, sameTables) {
		next.tables = newTables(v.placement, v.tables, nodes)
	}
	for i, n := range nodes {
		switch {
		case !n.Ready:
			next.counts.Unready++
		case n.Health == Healthy:
			next.use[i] = usable
			next.counts.Healthy++
		case n.Health == Suspect:
			next.use[i] = lastResort
			next.counts.Suspect++
		default:
			next.counts.Evicted++
		}
	}
	next.listed = v.listed
	if next.tables != v.tables || !slices.EqualFunc(v.use, next.use, func(a, b use) bool { return (a == unusable) == (b == unusable) }) {
		next.listed = &atomic.Pointer[[]string]{}
	}
	return next
}

// sameTables says whether a node in the place of another leaves the tables as they are.
func sameTables(a, b *Node) bool {
	if a == b {
		return true
	}
	if a.ID != b.ID || a.Shard != b.Shard || len(a.Indexes) != len(b.Indexes) {
		return false
	}
	return len(a.Indexes) == 0 || &a.Indexes[0] == &b.Indexes[0] || slices.Equal(a.Indexes, b.Indexes)
}

// newTables makes tables for nodes in order. prev are those before, out of which comes what was worked out for names that stay.
func newTables(p *Placement, prev *tables, nodes []*Node) *tables {
	t := &tables{byShard: map[string]uint32{}, shardOf: make([]uint32, len(nodes))}
	pairs := 0
	for i, n := range nodes {
		if len(t.shards) == 0 || t.shards[len(t.shards)-1].name != n.Shard {
			t.byShard[n.Shard] = uint32(len(t.shards))
			t.shards = append(t.shards, shard{name: n.Shard, from: uint32(i)})
		}
		t.shards[len(t.shards)-1].end = uint32(i) + 1
		t.shardOf[i] = uint32(len(t.shards) - 1)
		pairs += len(n.Indexes)
	}

	// Each index gets a number as it is met; found has the numbers of all nodes' indexes, one after another, so that names are looked up
	// once only.
	t.byIndex = make(map[string]uint32, min(pairs, len(prev.names)))
	found := make([]uint32, 0, pairs)
	var fresh []string
	for _, n := range nodes {
		for _, name := range n.Indexes {
			number, ok := t.byIndex[name]
			if !ok {
				number = uint32(len(t.entries))
				t.byIndex[name] = number
				e := entry{name: name}
				if old, ok := prev.byIndex[name]; ok {
					e.rule = prev.entries[old].rule
				} else {
					e.rule = p.For(name)
					fresh = append(fresh, name)
				}
				t.entries = append(t.entries, e)
			}
			t.entries[number].end++ // a count for now
			found = append(found, number)
		}
	}
	t.entries = slices.Clip(t.entries)

	var from uint32
	for i := range t.entries {
		e := &t.entries[i]
		count := e.end
		e.from, e.end = from, from
		from += count
	}
	t.position = make([]uint32, pairs)
	for i, n := range nodes {
		for _, number := range found[:len(n.Indexes)] {
			e := &t.entries[number]
			switch {
			case e.end == e.from || t.shardOf[t.position[e.end-1]] != t.shardOf[i]:
				t.shards[t.shardOf[i]].indexes++
			case t.position[e.end-1] == uint32(i):
				continue // the node told of it twice
			}
			t.position[e.end] = uint32(i)
			e.end++
		}
		found = found[len(n.Indexes):]
	}

	slices.Sort(fresh)
	t.names = t.mergeNames(prev.names, fresh)
	t.order = make([]uint32, len(t.names))
	for i, name := range t.names {
		t.order[i] = t.byIndex[name]
	}
	return t
}

// mergeNames returns those of two sorted lists without a common name that the tables have, sorted.
func (t *tables) mergeNames(old, fresh []string) []string {
	out := make([]string, 0, len(t.entries))
	for _, name := range old {
		if _, ok := t.byIndex[name]; !ok {
			continue
		}
		for len(fresh) > 0 && fresh[0] < name {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		out = append(out, name)
	}
	return append(out, fresh...)
}

// Nodes returns all nodes, by shard and id. The slice is the view's own.
func (v *View) Nodes() []*Node { return v.nodes }

// Placement returns the rules that the view goes by.
func (v *View) Placement() *Placement { return v.placement }

// Counts returns how many nodes are in which state.
func (v *View) Counts() Counts { return v.counts }

// Serving says whether any ready node is healthy, which is what the broker's own health tells ("Topology and health").
func (v *View) Serving() bool { return v.counts.Healthy > 0 }

// Known returns the name of an index as the view has it, which may be kept and used as a label. false: no node told of it.
func (v *View) Known(index string) (string, bool) {
	number, ok := v.byIndex[index]
	if !ok {
		return "", false
	}
	return v.entries[number].name, true
}
