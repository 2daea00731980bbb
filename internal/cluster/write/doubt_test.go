package write

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weft-search/weft/internal/leaf"
)

// doubtBook keeps apart what nobody has confirmed.
type doubtBook struct {
	hintBook
	doubts hintBook
}

func (b *doubtBook) AddUnacknowledged(member, index string, ids []string) (bool, error) {
	return b.doubts.Add(member, index, ids)
}

// A member that lacks what another has confirmed is one thing, and members of which none has confirmed a write are another: none of them is known to
// have what the others lack.
func TestWhatNobodyConfirmsIsNotMissed(t *testing.T) {
	for call, write := range map[string]func(ctx context.Context, w *Writer) error{
		"Index": func(ctx context.Context, w *Writer) error {
			_, err := w.Index(ctx, &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":2}`)})
			return err
		},
		"DeleteMany": func(ctx context.Context, w *Writer) error {
			_, err := w.DeleteMany(ctx, &leaf.DeleteRequest{Index: "x", IDs: []string{"a"}})
			return err
		},
		"Bulk": func(ctx context.Context, w *Writer) error {
			_, err := w.Bulk(ctx, &leaf.BulkRequest{Index: "x"}, strings.NewReader("{\"id\":\"a\",\"n\":2}\n"))
			return err
		},
		"Sync": func(ctx context.Context, w *Writer) error {
			_, err := w.Sync(ctx, &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{ID: "a", Body: []byte(`{"id":"a","n":2}`)}}})
			return err
		},
	} {
		for _, confirmed := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				c, hints := newCluster(t, 2), &doubtBook{}
				w := c.writer(Options{Hints: hints})
				put(t, w, `{"id": "a", "n": 1}`)
				ms := c.group(0)
				ms[1].during(call, lost, -1)
				if !confirmed {
					ms[0].during(call, lost, -1)
				}
				err := write(t.Context(), w)
				if confirmed && err != nil {
					t.Errorf("%s: %v", call, err)
				}
				for k, m := range ms {
					missed, doubted := hints.of(m.addr), hints.doubts.of(m.addr)
					want := []string{"x/a"}
					if confirmed && k == 0 {
						want = nil
					}
					if confirmed && (!slices.Equal(missed, want) || len(doubted) > 0) || !confirmed && (!slices.Equal(doubted, want) || len(missed) > 0) {
						t.Errorf("%s, confirmed %v: %s has missed %v, and of %v it is not known", call, confirmed, m.addr, missed, doubted)
					}
				}
			})
		}
	}
}
