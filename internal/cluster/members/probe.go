package members

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// Probe asks whoever listens at an address, which need not be that of a member, whether it is there, within Options.CallTimeout. A refusal is
// an answer. An address that cannot be dialled is an error, too.
func (c *Cluster) Probe(ctx context.Context, addr string) error {
	m, err := c.member(addr)
	if err != nil {
		return err
	}
	c.unlessPlaced(addr)
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	_, err = m.Leaf.Ping(ctx)
	if _, refused := errors.AsType[*api.Problem](err); refused {
		return nil
	}
	return err
}

// unlessPlaced lets the connection to an address go later, if no group has it by then.
func (c *Cluster) unlessPlaced(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Under mu: whoever puts a state in force that has the address takes it off the list under mu after that.
	if s := c.State(); s != nil && slices.ContainsFunc(s.Map.Groups, func(g shardmap.Group) bool { return slices.Contains(g.Members, addr) }) {
		return
	}
	if _, known := c.gone[addr]; !known {
		c.gone[addr] = time.Now()
	}
}
