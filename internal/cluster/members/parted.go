package members

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// A member that has left the map still answers whoever goes by an older one, and has missed all writes since. So it is told, too: from then
// on it refuses them. It is told once: every later map is one without it. It may come to serve another cluster, whose map is none of
// this one's business; with another data folder it is taken for that.

// parted is a member that has left the map and does not know it.
type parted struct {
	*Member
	node string // UUID that it had; empty: it is not known
}

// before is the map that was in force until now, here or where it was kept; nil if there was none.
func (c *Cluster) before() *shardmap.Map {
	if s := c.State(); s != nil {
		return s.Map
	}
	return c.kept
}

// leaving notes which members leave with a state that follows a map, and returns them.
func (c *Cluster) leaving(before *shardmap.Map, s *State) []*parted {
	in := map[string]bool{}
	for _, g := range s.Map.Groups {
		for _, addr := range g.Members {
			in[addr] = true
		}
	}
	var left []*Member
	if before != nil {
		for _, g := range before.Groups {
			for _, addr := range g.Members {
				if in[addr] {
					continue
				}
				if m, err := c.member(addr); err == nil { // else it was never asked anything
					left = append(left, m)
				}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr := range in {
		delete(c.parted, addr)
	}
	list := make([]*parted, len(left))
	for i, m := range left {
		list[i] = &parted{Member: m}
		if r := c.stand.known[m.Addr]; r != nil {
			list[i].node = r.node
		}
		c.parted[m.Addr] = list[i]
	}
	return list
}

// untold are the members that have left and do not know it.
func (c *Cluster) untold() []*parted {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.parted))
}

// dismiss gives the map of a state to members that it does not have any more, as far as they can be reached.
func (c *Cluster) dismiss(ctx context.Context, s *State, list []*parted) {
	if len(list) == 0 {
		return
	}
	b, err := s.Map.Encode()
	if err != nil {
		c.o.Log.Error("write the shard map", "error", err)
		return
	}
	var wg sync.WaitGroup
	for _, p := range list {
		wg.Go(func() {
			if !c.dismissed(ctx, p, s.Epoch(), b) {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.parted[p.Addr] == p {
				delete(c.parted, p.Addr)
			}
		})
	}
	wg.Wait()
}

// dismissed gives a map to a member that has left, and tells whether that is done with.
func (c *Cluster) dismissed(ctx context.Context, p *parted, epoch uint64, b []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	has, err := p.Leaf.Placed(ctx)
	switch {
	case unsupported(err):
		return true // it keeps no map
	case err != nil:
		return false
	case p.node != "" && has.Node != p.node, has.Epoch >= epoch, has.Epoch == 0: // in the last case it has lost everything
		return true
	}
	if _, err = p.Leaf.Place(ctx, &leaf.PlaceRequest{Epoch: epoch, Map: b}); err != nil && !IsStale(err) {
		c.o.Log.Debug("give the shard map to a member that has left", "member", p.Addr, "error", err)
		return false
	}
	return true
}
