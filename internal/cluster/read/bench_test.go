package read

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
)

// instant is a member that answers every search with the same.
type instant struct {
	*fake
	reply *leaf.SearchReply
}

func (m *instant) Search(context.Context, *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return m.reply, nil
}

// newInstant is a Reader over groups of two members that answer at once.
func newInstant(t testing.TB, groups int) *Reader {
	t.Helper()
	c := newCluster(t, numbered(100), groups, 2)
	c.src.state.Store(nil)
	for _, fakes := range c.groups {
		for i, f := range fakes {
			reply, err := f.Search(t.Context(), &leaf.SearchRequest{Limit: 10, Show: &leaf.Show{Source: true}})
			if err != nil {
				t.Fatal(err)
			}
			c.others[f.addr] = &instant{f, reply}
			fakes[i] = newFake("moved away")
		}
	}
	c.use(c.m)
	return c.reader(Options{})
}

// BenchmarkSearch is what a coordinator adds to a search of members that cost nothing.
func BenchmarkSearch(b *testing.B) {
	for _, groups := range []int{1, 3, 16} {
		for _, show := range []bool{false, true} {
			b.Run(fmt.Sprintf("groups=%d/show=%t", groups, show), func(b *testing.B) {
				r := newInstant(b, groups)
				req := &leaf.SearchRequest{Index: "i", Limit: 10}
				if show {
					req.Show = &leaf.Show{Source: true}
				}
				ctx := b.Context()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := r.Search(ctx, req); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// The allocations of a search must not grow unseen: they are what a coordinator costs besides its members.
func TestSearchAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations cannot be counted under the race detector")
	}
	r := newInstant(t, 3)
	req := &leaf.SearchRequest{Index: "i", Limit: 10}
	got := testing.AllocsPerRun(200, func() {
		if _, err := r.Search(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	})
	if got > 110 { // with a hedge and a ping in waiting for each group; less than half of it without
		t.Errorf("%v allocations", got)
	}
}
