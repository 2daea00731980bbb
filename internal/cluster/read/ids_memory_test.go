package read

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
)

// many is a member with very many documents, which it does not hold.
type many struct {
	*fake
	first, step, n int
}

func (m many) IDs(_ context.Context, req *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	var ids []string
	for i := m.first; i < m.n; i += m.step {
		id := fmt.Sprintf("d%09d", i)
		if id <= req.After {
			continue
		}
		if ids = append(ids, id); len(ids) == leaf.MaxIDPage {
			if err := page(ids); err != nil {
				return nil, err
			}
			ids = nil
		}
	}
	if len(ids) > 0 {
		if err := page(ids); err != nil {
			return nil, err
		}
	}
	return &leaf.IDsReply{Meta: m.meta()}, nil
}

// Whoever lists all ids, as a plan of a rebalance does, holds a few pages of each group and no more, however many there are.
func TestIDsOfVeryManyDocumentsTakeMemoryOfAConstant(t *testing.T) {
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	most := func(n int) uint64 {
		const groups = 3
		c := newCluster(t, nil, groups, 1)
		for g := range groups {
			addr := fmt.Sprintf("many%d", g)
			c.m.Groups[g].Members[0] = addr
			c.others[addr] = many{newFake(addr), g, groups, n}
		}
		c.use(c.m)
		r := c.reader(Options{})
		before, peak, seen := live(), uint64(0), 0
		_, err := r.IDs(t.Context(), &leaf.IDsRequest{Index: "i"}, func(ids []string) error {
			if seen/(n/8) != (seen+len(ids))/(n/8) { // eight looks
				peak = max(peak, live())
			}
			seen += len(ids)
			return nil
		})
		if err != nil || seen != n {
			t.Fatalf("%d of %d ids, %v", seen, n, err)
		}
		return peak - min(before, peak)
	}
	few, lots := most(100_000), most(1_000_000)
	t.Logf("%d KiB for 100,000 ids, %d KiB for a million", few>>10, lots>>10)
	if lots > few+1<<20 || lots > 8<<20 {
		t.Errorf("%d bytes are held for a million ids, %d for a tenth of them", lots, few)
	}
}
