package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
)

// joining tells what is wrong with members that are to come into the map: those that the map has by another name already and, unless it is
// forced, those that do not answer. Jobs need every member, and would wait for them. A change that is refused anyway is left to whoever
// refuses it.
func (c *Coordinator) joining(call *front.Call, s *members.State, change mapChange, addrs []string, force bool) *api.Problem {
	if _, err := change(s.Map); err != nil || len(addrs) == 0 {
		return nil
	}
	ctx := call.Context()
	if err := c.members.Names(ctx, addrs); err != nil {
		return c.topologyProblem(call, err)
	}
	if force {
		return nil
	}
	silent := make([]string, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			if why, is := leaf.Silent(c.members.Probe(ctx, addr)); is {
				silent[i] = c.silent(ctx, addr, why)
			}
		})
	}
	wg.Wait()
	var words []string
	for _, text := range silent {
		if text != "" {
			words = append(words, text)
		}
	}
	if len(words) == 0 {
		return nil
	}
	return api.NewProblem(api.JobConflict, api.ClipDetail(strings.Join(words, "; ")+". It can be added all the same with force=true (--force): then repairs and rebalances wait for it"))
}

// otherProtocol is the address of a member at which the same port is asked by the other one of the two protocols.
func otherProtocol(addr string) (other, name string) {
	if host, ok := strings.CutPrefix(addr, "grpc://"); ok {
		return host, "framed JSON"
	}
	return "grpc://" + strings.TrimPrefix(addr, "frame://"), "shard gRPC"
}

// silent says what is wrong with an address at which no member answers, and what is to be done: nobody listens there, or not by that protocol.
func (c *Coordinator) silent(ctx context.Context, addr, why string) string {
	other, name := otherProtocol(addr)
	err := c.members.Probe(ctx, other)
	again, _ := leaf.Silent(err)
	switch {
	case err == nil:
		return fmt.Sprintf("%s does not answer, but as %s it does: the port speaks %s", addr, other, name)
	case again != why:
		// Somebody listens: a port where nobody does says the same to both.
		return fmt.Sprintf("%s does not answer: %s. Start it first; if it is started, that is another of its ports: the address is that of --shard-port, or grpc:// and that of --grpc", addr, why)
	}
	return fmt.Sprintf("%s does not answer: %s. Start it first", addr, why)
}
