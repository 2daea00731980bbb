package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// joining tells what is wrong with members that are to come into the map: those that do not answer. Jobs need every member, and would wait
// for them. A change that is refused anyway is left to whoever refuses it.
func (c *Coordinator) joining(ctx context.Context, s *members.State, change mapChange, addrs []string) *api.Problem {
	if _, err := change(s.Map); err != nil {
		return nil
	}
	silent := make([]string, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			if why, is := leaf.Silent(c.members.Probe(ctx, addr)); is {
				silent[i] = fmt.Sprintf("%s does not answer: %s", addr, why)
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
	return api.NewProblem(api.JobConflict, api.ClipDetail(strings.Join(words, "; ")+". Start it first, or add it all the same with force=true (--force): then repairs and rebalances wait for it"))
}
