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
// was replaced. Such a member is suspect, until somebody has compared it with the others and calls Trust. It is known by
//
//   - its address, which is new in a group of which others are known;
//   - its UUID, which stands on its disk and is not the one of before;
//   - the shard map that it keeps, which is older than the one that it has taken.
//
// The members of a group that is new as a whole are not suspect: there is nobody who could have more.

// standing is what is known of members, by address.
type standing struct {
	known map[string]*record
	path  string // where it is kept; empty: nowhere
	fs    vfs.FS
	saved []byte
}

// record is what is known of one member.
type record struct {
	node    string // UUID; empty: not known, or it keeps no documents of its own
	epoch   uint64 // of the map that it has taken
	placed  bool   // it stands in the map
	suspect bool
}

// standingContent is standing on the disk.
type standingContent struct {
	Format  int                     `json:"format"`
	Members map[string]memberOnDisk `json:"members"`
}

type memberOnDisk struct {
	Node    string `json:"node,omitempty"`
	Suspect bool   `json:"suspect,omitempty"`
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
		s.known[addr] = &record{node: m.Node, suspect: m.Suspect, placed: true}
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
			c.Members[addr] = memberOnDisk{Node: r.node, Suspect: r.suspect}
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
	set := c.suspects.Load()
	return set != nil && (*set)[addr]
}

// Suspects lists the members that may lack documents of their group, in order.
func (c *Cluster) Suspects() []string {
	set := c.suspects.Load()
	if set == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(*set))
}

// Trust says that a member was compared with the others of its group and lacks nothing, or is to be taken as it is.
func (c *Cluster) Trust(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.stand.known[addr]; r != nil && r.suspect {
		r.suspect = false
		c.o.Log.Info("a member holds the documents of its group", "member", addr)
		c.standLocked()
	}
}

// suspectLocked makes a member suspect. It needs mu.
func (c *Cluster) suspectLocked(addr string, r *record, why string) {
	if !r.suspect {
		c.o.Log.Warn("a member may lack documents: it is read from only where there is no other, until it was compared", "member", addr, "reason", why)
	}
	r.suspect = true
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
				c.suspectLocked(addr, r, "it is new in its group")
			}
		}
	}
	for addr, r := range c.stand.known {
		if r.placed = in[addr]; !r.placed {
			delete(c.stand.known, addr)
		}
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
}

// heard takes what a member says about the map that it keeps. before is the epoch that it was known to have when it was asked.
func (c *Cluster) heard(addr string, reply *leaf.PlaceReply, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.stand.of(addr)
	node, suspect := r.node, r.suspect
	switch {
	case reply.Node == "":
	case r.node != "" && r.node != reply.Node:
		c.suspectLocked(addr, r, "another data folder is at its address")
	case r.node == reply.Node && reply.Epoch < before:
		c.suspectLocked(addr, r, "it has lost its shard map")
	}
	if reply.Node != "" {
		r.node = reply.Node
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
	if err != nil {
		return nil, err
	}
	c.heard(m.Addr, reply, before)
	return reply, nil
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
// from before was opened since, and the member may be another one by now: then it is asked who it is. An error, which allows the call to be
// made elsewhere, says that the member is suspect or cannot be asked.
func (c *Cluster) Vouch(ctx context.Context, m *Member, index string, instance uint64) error {
	if c.seen.has(m.Addr, index, instance) {
		return nil
	}
	was := c.Suspect(m.Addr)
	if _, err := c.placed(ctx, m); err != nil && !unsupported(err) {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &leaf.TransportError{Address: m.Addr, Call: "Placed", Cause: err}
	}
	if !was && c.Suspect(m.Addr) {
		c.look()
		return &leaf.TransportError{Address: m.Addr, Call: "Placed", Cause: errUnvouched}
	}
	c.seen.note(m.Addr, index, instance)
	return nil
}
