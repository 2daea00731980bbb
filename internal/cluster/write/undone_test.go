package write

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
)

// copies puts what a repair has seen of another member in the place of what a member has of a document: it cannot know what is on its way.
func (m *model) copies(t testing.TB, id, body string) {
	t.Helper()
	sums, err := m.Sums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: []string{id}, Fence: true})
	if err != nil {
		t.Error(err)
		return
	}
	item := leaf.SyncItem{ID: id, Expect: sums.Sums[0]}
	if body != "" {
		item.Body = []byte(body)
	}
	reply, err := m.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{item}, Fence: sums.Fence})
	if err != nil || !reply.Applied[0] {
		t.Errorf("%+v, %v", reply, err)
	}
}

// TestAWriteThatCopiesUndoIsNotLost: while a write is on its way to one member, a repair makes another, which has it, equal to one that has not.
// The write must not be acknowledged as it stands there then.
func TestAWriteThatCopiesUndoIsNotLost(t *testing.T) {
	const old = `{"id":"a","n":1}`
	ways := map[string]struct {
		write func(t *testing.T, w *Writer, ctx context.Context) bool
		want  map[string]string
	}{
		"a document": {func(t *testing.T, w *Writer, ctx context.Context) bool {
			reply, err := w.Index(ctx, &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a", "n":2}`)})
			return err == nil && reply.OK
		}, map[string]string{"a": `{"id":"a","n":2}`}},
		"a load": {func(t *testing.T, w *Writer, ctx context.Context) bool {
			reply, err := w.Bulk(ctx, &leaf.BulkRequest{Index: "x"}, strings.NewReader(`{"id":"a","n":9}`+"\n"+`{"id":"a", "n":2}`))
			return err == nil && reply.OK
		}, map[string]string{"a": `{"id":"a","n":2}`}},
		"a load with a key": {func(t *testing.T, w *Writer, ctx context.Context) bool {
			reply, err := w.Bulk(ctx, &leaf.BulkRequest{Index: "x", Key: "k"}, strings.NewReader(`{"id":"a", "n":2}`))
			return err == nil && reply.OK
		}, map[string]string{"a": `{"id":"a","n":2}`}},
		"a deletion": {func(t *testing.T, w *Writer, ctx context.Context) bool {
			reply, err := w.Delete(ctx, "x", "a")
			return err == nil && reply.OK
		}, map[string]string{}},
	}
	type writers struct{}
	for name, way := range ways {
		for _, undone := range []string{"the first", "the second", "both", "both after they were compared"} {
			t.Run(name+", at "+undone, func(t *testing.T) {
				c := newCluster(t, 2)
				w := c.writer(Options{})
				put(t, w, old)
				m := c.group(0)
				writes := func(ctx context.Context, call string) bool {
					return ctx.Value(writers{}) != nil && (call == "Index" || call == "Bulk" || call == "DeleteMany")
				}
				var once, twice sync.Once
				taken := make(chan struct{})
				switch undone {
				case "the first", "the second":
					early, late := m[0], m[1]
					if undone == "the second" {
						early, late = late, early
					}
					early.after = func(ctx context.Context, call string) {
						if writes(ctx, call) && !maps.Equal(early.docs("x"), map[string]string{"a": old}) {
							once.Do(func() { early.copies(t, "a", old); close(taken) })
						}
					}
					late.before = func(ctx context.Context, call string) {
						if writes(ctx, call) {
							select {
							case <-taken:
							default: // a mark of a load is not what is waited for
								if call != "Bulk" || name != "a load with a key" {
									<-taken
								}
							}
						}
					}
				case "both":
					m[0].before = func(ctx context.Context, call string) {
						if ctx.Value(writers{}) != nil && call == "Sums" {
							once.Do(func() {
								m[0].copies(t, "a", old)
								m[1].copies(t, "a", old)
							})
						}
					}
				default:
					// The first is undone before it says what it has, and so the second is to be given that.
					m[0].before = func(ctx context.Context, call string) {
						if ctx.Value(writers{}) != nil && call == "Sums" {
							once.Do(func() { m[0].copies(t, "a", old) })
						}
					}
					m[1].before = func(ctx context.Context, call string) {
						if ctx.Value(writers{}) != nil && call == "Sums" {
							twice.Do(func() { m[1].copies(t, "a", old) })
						}
					}
				}
				if !way.write(t, w, context.WithValue(t.Context(), writers{}, true)) {
					t.Error("it is not whole")
				}
				for _, m := range m {
					if got := m.docs("x"); !maps.Equal(got, way.want) {
						t.Errorf("%s has %v", m.addr, got)
					}
				}
				if undone := strings.HasPrefix(undone, "both"); undone != (w.Stats().Undone == 1) {
					t.Errorf("%+v", w.Stats())
				}
			})
		}
	}
}

// TestAWriteThatAnotherReplacedIsNotPutAgain: what came behind it at every member stays, whether members had to be made equal for that or not.
func TestAWriteThatAnotherReplacedIsNotPutAgain(t *testing.T) {
	for _, at := range []int{1, 2} {
		c := newCluster(t, 2)
		w, other := c.writer(Options{}), c.writer(Options{})
		put(t, w, `{"id":"a","n":1}`)
		var looked atomic.Bool
		c.models["0/0"].before = func(_ context.Context, call string) {
			if call != "Sums" || looked.Swap(true) {
				return
			}
			if at == 2 {
				put(t, other, `{"id":"a","n":3}`)
			} else if _, err := c.models["0/0"].Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":3}`)}); err != nil {
				t.Error(err)
			}
		}
		if reply := put(t, w, `{"id":"a","n":2}`); !reply.OK {
			t.Errorf("%+v", reply.WriteReply)
		}
		for _, m := range c.group(0) {
			if got := m.docs("x")["a"]; got != `{"id":"a","n":3}` {
				t.Errorf("%s has %s", m.addr, got)
			}
		}
		if s := w.Stats(); s.Undone != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestALoadThatIsSentAgainIsNotOwn: what a member took before, and a repair gave it later, is newer than the load.
func TestALoadThatIsSentAgainIsNotOwn(t *testing.T) {
	c := newCluster(t, 2)
	w := c.writer(Options{})
	put(t, w, `{"id":"a","n":1}`)
	if reply, err := keyed(w, "k", `{"id":"a","n":2}`); err != nil || !reply.OK {
		t.Fatalf("%+v, %v", reply, err)
	}
	for _, m := range c.group(0) {
		m.copies(t, "a", `{"id":"a","n":3}`)
	}
	if reply, err := keyed(w, "k", `{"id":"a","n":2}`); err != nil || !reply.Repeated {
		t.Fatalf("%+v, %v", reply, err)
	}
	for _, m := range c.group(0) {
		if got := m.docs("x")["a"]; got != `{"id":"a","n":3}` {
			t.Errorf("%s has %s", m.addr, got)
		}
	}
}
