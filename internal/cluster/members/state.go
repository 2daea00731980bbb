// Package members knows who stands in a cluster: it keeps the shard map that all coordinators agree on, the connections to the
// members that the map names, and says for a document or a search which of them to ask.
package members

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// Member is one member of a group.
type Member struct {
	Addr string // as the map has it; unique
	Leaf leaf.Member
	// Silent says that the member answered no ping when it was last pinged, and nothing since: see Attend.
	Silent atomic.Bool
	pinged atomic.Pointer[time.Time] // when a caller of Gone did so last
}

// Group is one shard: members that hold the same documents, in order of preference. The first is the primary.
type Group struct {
	Ordinal int
	Members []*Member
}

// State is a shard map with the members that it names. It is immutable: a call takes one and goes by it to its end.
type State struct {
	Map    *shardmap.Map
	Groups []*Group

	visible *placement.Placement
	writes  []*placement.Placement // first that of visible or, where documents are being cleaned, the only one
	moving  bool
}

// newState makes the state of a map; member gives the connection to an address.
func newState(m *shardmap.Map, member func(addr string) (*Member, error)) (*State, error) {
	s := &State{Map: m, moving: m.Move != nil}
	var err error
	if s.visible, err = placement.New(m.Visible()); err != nil {
		return nil, fmt.Errorf("read shard map of epoch %d: %w", m.Epoch, err)
	}
	for _, spec := range m.Writes() {
		p, err := placement.New(spec)
		if err != nil {
			return nil, fmt.Errorf("read shard map of epoch %d: %w", m.Epoch, err)
		}
		s.writes = append(s.writes, p)
	}
	for i, g := range m.Groups {
		group := &Group{Ordinal: i}
		for _, addr := range g.Members {
			mem, err := member(addr)
			if err != nil {
				return nil, err
			}
			group.Members = append(group.Members, mem)
		}
		s.Groups = append(s.Groups, group)
	}
	return s, nil
}

// Epoch is that of the map.
func (s *State) Epoch() uint64 { return s.Map.Epoch }

// Visible is the placement by which readers see documents.
func (s *State) Visible() *placement.Placement { return s.visible }

// Moving tells whether documents are being moved, so that some may stand on two shards.
func (s *State) Moving() bool { return s.moving }

// View is how readers look at a group. visible is false for a group of which nothing is to be seen: no document that readers see
// can be there.
func (s *State) View(group int) (v leaf.View, visible bool) {
	v = leaf.View{Epoch: s.Map.Epoch, Lenient: true}
	spec := s.visible.Spec()
	if group >= spec.Shards {
		return v, false
	}
	if s.moving {
		v.Owned = []placement.Share{{Spec: spec, Ordinal: group}}
	}
	return v, true
}

// Owner is the group in which readers see the document with the id.
func (s *State) Owner(id string) *Group { return s.Groups[s.visible.Shard(id)] }

// Writers are the groups that take writes of the document with the id: one, or two while it is moved.
func (s *State) Writers(id string) []*Group {
	out := make([]*Group, 0, 2)
	for _, p := range s.writes {
		if g := s.Groups[p.Shard(id)]; !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}

// find is the member at an address with its group; nil where there is none.
func (s *State) find(addr string) (*Group, *Member) {
	for _, g := range s.Groups {
		for _, m := range g.Members {
			if m.Addr == addr {
				return g, m
			}
		}
	}
	return nil, nil
}
