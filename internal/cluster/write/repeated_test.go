package write

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// A load that is sent again while the shard map changes, whichever call of a member is the first to meet the new map, is a repetition as before: who
// answered by the older map had taken the load then, and applied nothing now.
func TestALoadIsKnownWhereTheMapChangesUnderWay(t *testing.T) {
	for _, at := range []int{0, 1} {
		for k := range int64(14) { // questions about the load, its parts, and checksums behind them
			t.Run(fmt.Sprintf("member %d, call %d", at, k), func(t *testing.T) {
				c := newCluster(t, 2)
				w, err := New(&frozen{c: c}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				body := numbered(0, 8)
				if r, err := keyed(w, "k", body); err != nil || !r.OK || r.Repeated {
					t.Fatalf("%+v, %v", r, err)
				}
				next := c.State().Map.Clone()
				next.Epoch++
				m := c.all()[at]
				var calls atomic.Int64
				m.before = func(context.Context, string) {
					if calls.Add(1) == k+1 {
						c.setMap(next, m)
					}
				}
				if r, err := keyed(w, "k", body); err != nil || !r.OK || !r.Repeated || r.Indexed != 8 {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
	}
}
