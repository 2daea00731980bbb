package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs"
)

// A member may stand in the map and lack the documents of its group: because it was added to the group a moment ago, or because its disk
// was replaced. Such a member is suspect, until somebody has compared it with the others and calls Trust, or says that what it has counts
// (Accept). It is known by
//
//   - its address, which is new in a group of which others are known;
//   - its UUID, which stands on its disk and is not the one of before;
//   - the shard map that it keeps, which is older than the one that it has taken.
//
// The members of a group that is new as a whole are not suspect: there is nobody who could have more.
//
// What is known here is told to all coordinators, those that are not started yet among them, by the shard map (shardmap.Map.Nodes): it has
// the UUID of each member, as it was when the cluster began or the member was found to hold the documents of its group, and
// shardmap.NoNode for one that is known to lack some. Whoever meets another UUID knows that the disk is another one, without having seen the
// one before. A coordinator writes down what it hears of first and what it has come to trust, outside moves, which count on the
// epoch. One that has no say over the map, as another keeps it in a store, holds what it trusts for itself.

// standing is what is known of members, by address.
type standing struct {
	known map[string]*record
	nodes map[string]string // of the newest map that is known
	path  string            // where it is kept; empty: nowhere
	fs    vfs.FS
	saved []byte
}

// record is what is known of one member.
type record struct {
	node    string // UUID; empty: not known, or it keeps no documents of its own
	epoch   uint64 // of the map that it has taken
	placed  bool   // it stands in the map
	suspect bool
	why     string // why it is suspect; empty: that was before a restart

	heard   bool   // node was told by the member since the start
	against string // what the map said of node when the member was heard last
	older   bool   // it is suspect because what it has is older than what it had, and the map is not told
	trusted bool   // it was found to hold the documents of its group here, in node, and the map is not told
}

// standingContent is standing on the disk.
type standingContent struct {
	Format  int                     `json:"format"`
	Members map[string]memberOnDisk `json:"members"`
}

type memberOnDisk struct {
	Node    string `json:"node,omitempty"`
	Suspect bool   `json:"suspect,omitempty"`
	Older   bool   `json:"older,omitempty"`
	Trusted bool   `json:"trusted,omitempty"`
}

const (
	standingFormat = 1
	standingFile   = "members.json"
)

// errStandingFormat says that the file was written by a newer version.
var errStandingFormat = errors.New("the file was written by a newer version")

func newStanding(dir string, fsys vfs.FS) (*standing, error) {
	s := &standing{known: map[string]*record{}}
	if dir == "" {
		return s, nil
	}
	if s.fs = fsys; s.fs == nil {
		s.fs = vfs.OS
	}
	if err := vfs.MkdirAll(s.fs, dir); err != nil {
		return nil, fmt.Errorf("make the folder of members: %w", err)
	}
	s.path = path.Join(dir, standingFile)
	b, err := vfs.ReadFile(s.fs, s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path, err)
	}
	var c standingContent
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path, err)
	}
	if c.Format > standingFormat {
		return nil, fmt.Errorf("read %s: format %d, this program reads up to %d: %w", s.path, c.Format, standingFormat, errStandingFormat)
	}
	for addr, m := range c.Members {
		s.known[addr] = &record{node: m.Node, suspect: m.Suspect, older: m.Older, trusted: m.Trusted, placed: true}
	}
	s.saved = b
	return s, nil
}

func (s *standing) of(addr string) *record {
	r := s.known[addr]
	if r == nil {
		r = &record{}
		s.known[addr] = r
	}
	return r
}

// save writes the file where something has changed.
func (s *standing) save() error {
	if s.path == "" {
		return nil
	}
	c := standingContent{Format: standingFormat, Members: map[string]memberOnDisk{}}
	for addr, r := range s.known {
		if r.placed {
			c.Members[addr] = memberOnDisk{Node: r.node, Suspect: r.suspect, Older: r.older, Trusted: r.trusted}
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	if string(b) == string(s.saved) {
		return nil
	}
	if err := vfs.WriteFile(s.fs, s.path, b); err != nil {
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	s.saved = b
	return nil
}

// Suspect tells whether a member may lack documents of its group.
func (c *Cluster) Suspect(addr string) bool {
	if _, twin := c.twinAt(addr); twin {
		return true
	}
	set := c.suspects.Load()
	return set != nil && (*set)[addr]
}

// Suspects lists the members that may lack documents of their group, in order.
func (c *Cluster) Suspects() []string {
	out := c.secondNames()
	if set := c.suspects.Load(); set != nil {
		out = slices.AppendSeq(out, maps.Keys(*set))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Why says why a member is suspect; empty where it is not.
func (c *Cluster) Why(addr string) string {
	if t, twin := c.twinAt(addr); twin {
		return t.say()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.stand.known[addr]
	switch {
	case r == nil || !r.suspect:
		return ""
	case r.why == "":
		return "it was seen before the coordinator was started that it may lack documents"
	}
	return r.why
}

// Trust says that a member was compared with the others of its group and lacks nothing, or is to be taken as it is.
func (c *Cluster) Trust(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.stand.known[addr]; r != nil && r.suspect {
		r.suspect, r.why, r.older, r.trusted = false, "", false, true
		c.o.Log.Info("a member holds the documents of its group", "member", addr)
		c.standLocked()
		c.look() // others are to be told
	}
}

// suspectLocked makes a member suspect. It needs mu.
func (c *Cluster) suspectLocked(addr string, r *record, why string) {
	if !r.suspect {
		c.o.Log.Warn("a member may lack documents: it is not read from until it was compared; a group all of whose members are like that counts as failed until weft topology accept says that what is there counts",
			"member", addr, "reason", why)
	}
	r.suspect, r.trusted, r.why = true, false, why
}

// Why a member is suspect.
const (
	whyFolder  = "another data folder is at its address"
	whyOlder   = "it has lost its shard map: its data folder is in an older state"
	whyNew     = "it is new in its group"
	whyGivenUp = "another member of its group was accepted in its stead"
	whyNone    = "nobody has found it to hold the documents of its group yet"
)

// judgeLocked holds what is known of a member against the map. It needs mu.
func (c *Cluster) judgeLocked(addr string, r *record) {
	want := c.stand.nodes[addr]
	if want == "" {
		return
	}
	if want == shardmap.NoNode {
		if r.older = false; !r.trusted && !r.suspect {
			c.suspectLocked(addr, r, whyNone)
		}
		return
	}
	if r.node == "" {
		r.node = want
	}
	switch {
	case r.node == want:
		if !r.older {
			r.suspect, r.why = false, ""
		}
		r.trusted = false
	case r.trusted, r.suspect:
	case r.heard && r.against == "":
		c.suspectLocked(addr, r, whyFolder)
	default:
		r.node, r.heard = want, false // somebody knows better, until the member says who it is
	}
}

// standLocked publishes and keeps what has changed. It needs mu.
func (c *Cluster) standLocked() {
	set := map[string]bool{}
	for addr, r := range c.stand.known {
		if r.placed && r.suspect {
			set[addr] = true
		}
	}
	c.suspects.Store(&set)
	if err := c.stand.save(); err != nil {
		c.o.Log.Error("keep what is known of members", "error", err)
	}
}

// enlist notes which members stand in a map that is put in force.
func (c *Cluster) enlist(m *shardmap.Map) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := map[string]bool{}
	for _, g := range m.Groups {
		old := slices.ContainsFunc(g.Members, func(addr string) bool { return c.stand.of(addr).placed })
		for _, addr := range g.Members {
			in[addr] = true
			if r := c.stand.of(addr); old && !r.placed {
				c.suspectLocked(addr, r, whyNew)
			}
		}
	}
	before := c.stand.nodes
	c.stand.nodes = m.Nodes
	for addr, r := range c.stand.known {
		if r.placed = in[addr]; !r.placed {
			delete(c.stand.known, addr)
			continue
		}
		if before[addr] == shardmap.NoNode && m.Nodes[addr] == "" && r.node == "" {
			r.suspect, r.trusted, r.why = false, false, "" // it was found equal, and has no name to be known by
		}
		c.judgeLocked(addr, r)
	}
	c.standLocked()
}

// knew notes the members of a map that others have gone by before.
func (c *Cluster) knew(m *shardmap.Map) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range m.Groups {
		for _, addr := range g.Members {
			c.stand.of(addr).placed = true
		}
	}
	c.stand.nodes = m.Nodes
	for addr, r := range c.stand.known {
		c.judgeLocked(addr, r)
	}
}

// heard takes what a member says about the map that it keeps. before is the epoch that it was known to have when it was asked.
func (c *Cluster) heard(addr string, reply *leaf.PlaceReply, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.stand.of(addr)
	node, suspect := r.node, r.suspect
	want := c.stand.nodes[addr]
	known := r.node // in which it held its documents
	if known == "" && want != shardmap.NoNode {
		known = want
	}
	switch {
	case reply.Node == "":
	case known != "" && known != reply.Node && reply.Node != want:
		c.suspectLocked(addr, r, whyFolder)
	case r.node == reply.Node && reply.Epoch < before && !r.suspect: // else before may be that of the folder before
		c.suspectLocked(addr, r, whyOlder)
		r.older = want != shardmap.NoNode
	}
	if reply.Node != "" {
		if reply.Node != r.node {
			r.older, r.trusted = false, false
		}
		r.node, r.heard, r.against = reply.Node, true, want
		c.judgeLocked(addr, r)
	}
	switch {
	case reply.Epoch < before:
		r.epoch = reply.Epoch
	case reply.Epoch > r.epoch:
		r.epoch = reply.Epoch
	}
	if r.node != node || r.suspect != suspect {
		c.standLocked()
	}
	if r.node != node {
		c.goLocked(nil)
	}
}

// taken is the epoch that a member is known to have.
func (c *Cluster) taken(addr string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.stand.known[addr]; r != nil {
		return r.epoch
	}
	return 0
}

// placed asks a member for the map that it keeps.
func (c *Cluster) placed(ctx context.Context, m *Member) (*leaf.PlaceReply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	before := c.taken(m.Addr)
	reply, err := m.Leaf.Placed(ctx)
	if unsupported(err) || err == nil && reply.Node == "" {
		c.drew(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	c.heard(m.Addr, reply, before)
	return reply, nil
}

// named are the data folders for a first map: of all members of some groups, where each has told it and is trusted; else nil.
func (c *Cluster) named(groups []shardmap.Group) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	for _, g := range groups {
		for _, addr := range g.Members {
			r := c.stand.known[addr]
			if r == nil || !r.heard || r.suspect {
				return nil
			}
			out[addr] = r.node
		}
	}
	return out
}

// tidings are the data folders that a map is to be told, and what it says of the same members now.
func (c *Cluster) tidings(m *shardmap.Map) (news, was map[string]string) {
	news, was = map[string]string{}, map[string]string{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range m.Groups[:m.Placed] {
		for _, addr := range g.Members {
			r := c.stand.known[addr]
			if r == nil {
				continue
			}
			want := m.Nodes[addr]
			say := want
			switch {
			case r.suspect && (want == "" && r.node != "" || r.older && want == r.node):
				say = shardmap.NoNode
			case r.suspect:
			case r.trusted, r.heard && want == "":
				say = r.node
			}
			if say != want {
				news[addr], was[addr] = say, want
			}
		}
	}
	return news, was
}

// errNoNews ends a change that has nothing to tell.
var errNoNews = errors.New("the map has it already")

// tell writes down in the map which data folders count. all says that all members have answered a moment ago: where they keep the map, no other
// change of it passes this one by.
func (c *Cluster) tell(ctx context.Context, all bool) {
	m := c.State().Map
	if m.Move != nil || c.o.Source == nil && (m.Stored || !all) {
		return
	}
	news, was := c.tidings(m)
	if len(news) == 0 {
		return
	}
	_, err := c.Change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		now := map[string]string{}
		for addr, node := range news {
			if m.Nodes[addr] == was[addr] { // else somebody has told something since
				now[addr] = node
			}
		}
		if len(now) == 0 || m.Move != nil {
			return nil, errNoNews
		}
		return m.WithNodes(now)
	})
	if err != nil && !errors.Is(err, errNoNews) && ctx.Err() == nil {
		c.o.Log.Debug("tell the shard map which data folders count", "error", err)
	}
}

// Accept says that the documents that a member has now are those of its group, though it may have lost some, and tells all coordinators. It is for
// groups all of whose members are suspect: a member of another group is made equal to those that are not, and accepting it is refused
// (shardmap.ErrRefused), as is one that does not answer. With force, those that are not suspect are given up if none of them answers: they are
// suspect from now on. A member that is not suspect stays as it is.
func (c *Cluster) Accept(ctx context.Context, addr string, force bool) (*State, error) {
	s, err := c.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	group, m := s.find(addr)
	if m == nil {
		return nil, fmt.Errorf("%w: %s stands in no group", shardmap.ErrRefused, addr)
	}
	if t, twin := c.twinAt(addr); twin {
		return nil, fmt.Errorf("%w: %s has no documents of its own, for %s", shardmap.ErrRefused, addr, t.say())
	}
	reply, err := c.placed(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("%w: %s does not answer, so what it has is not known", shardmap.ErrRefused, addr)
	}
	if !c.Suspect(addr) {
		return s, nil
	}
	nodes := map[string]string{addr: reply.Node}
	for _, o := range group.Members {
		switch {
		case c.Suspect(o.Addr):
		case !force:
			return nil, fmt.Errorf("%w: %s holds the documents of group %d, and %s is made equal to it by a repair, or in the background; only where no member of a group holds them it can be said that what one has counts. If that one is gone for good, force says so (weft topology accept --force)",
				shardmap.ErrRefused, o.Addr, group.Ordinal, addr)
		default:
			if _, err := c.placed(ctx, o); (err == nil || unsupported(err)) && !c.Suspect(o.Addr) {
				return nil, fmt.Errorf("%w: %s holds the documents of group %d, and answers: a repair gives them to %s",
					shardmap.ErrRefused, o.Addr, group.Ordinal, addr)
			}
			nodes[o.Addr] = shardmap.NoNode
		}
	}
	s, err = c.Change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		return m.WithNodes(nodes)
	})
	if err != nil {
		return nil, err
	}
	for o, node := range nodes {
		if node == shardmap.NoNode {
			c.giveUp(o)
		}
	}
	c.Trust(addr) // where the map says nothing of it, or has said so before
	return s, nil
}

// giveUp makes a member suspect in whose stead another was accepted.
func (c *Cluster) giveUp(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.stand.known[addr]; r != nil {
		c.suspectLocked(addr, r, whyGivenUp)
		c.standLocked()
	}
}

// errUnvouched is why an answer of a member is not taken.
var errUnvouched = errors.New("the member may lack documents of its group, and is to be compared first")

// mostInstances bounds the instances of indexes that are remembered of one member.
const mostInstances = 4096

// instances remembers which instances of indexes members were known by when they answered.
type instances struct {
	mu sync.Mutex
	of map[string]map[string]uint64 // by member and index
}

func (i *instances) has(addr, index string, instance uint64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	have, ok := i.of[addr][index]
	return ok && have == instance
}

func (i *instances) note(addr, index string, instance uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.of == nil {
		i.of = map[string]map[string]uint64{}
	}
	if i.of[addr] == nil || len(i.of[addr]) >= mostInstances {
		i.of[addr] = map[string]uint64{}
	}
	i.of[addr][index] = instance
}

// Vouch tells whether an answer of a member can be taken that speaks of an instance of an index. One that the member has not answered
// from before was opened since, and the member may be another one by now: then it is asked who it is, as it is each time for instance 0. An error, which allows the call to be
// made elsewhere, says that the member is suspect or cannot be asked.
func (c *Cluster) Vouch(ctx context.Context, m *Member, index string, instance uint64) error {
	if instance != 0 && c.seen.has(m.Addr, index, instance) && !c.Suspect(m.Addr) {
		return nil
	}
	if _, err := c.placed(ctx, m); err != nil && !unsupported(err) {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &leaf.TransportError{Address: m.Addr, Call: "Placed", Cause: err}
	}
	if c.Suspect(m.Addr) { // whoever chose it did not know yet
		c.look()
		return &leaf.TransportError{Address: m.Addr, Call: "Placed", Cause: errUnvouched}
	}
	if instance != 0 {
		c.seen.note(m.Addr, index, instance)
	}
	return nil
}
