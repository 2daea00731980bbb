package members

import (
	"fmt"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// NewState returns the state of a map that nobody keeps up to date: a Cluster does that. member gives the leaf at an address; members
// that known has are taken from there, so that they stay the same from state to state. known may be nil.
func NewState(m *shardmap.Map, known *State, member func(addr string) (leaf.Member, error)) (*State, error) {
	had := map[string]*Member{}
	if known != nil {
		for _, g := range known.Groups {
			for _, mem := range g.Members {
				had[mem.Addr] = mem
			}
		}
	}
	return newState(m, func(addr string) (*Member, error) {
		if mem := had[addr]; mem != nil {
			return mem, nil
		}
		l, err := member(addr)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", addr, err)
		}
		return &Member{Addr: addr, Leaf: l}, nil
	})
}
