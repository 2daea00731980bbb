package write

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-search/weft/internal/api"
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
					// What is put at the one was seen at the other, which the write has not reached.
					if _, err := late.Sums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: []string{"a"}, Fence: true}); err != nil {
						t.Fatal(err)
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
					c.forget()
					m[0].before = func(ctx context.Context, call string) {
						if ctx.Value(writers{}) != nil && call == "Sums" {
							once.Do(func() {
								m[0].copies(t, "a", old)
								m[1].copies(t, "a", old)
							})
						}
					}
				default:
					c.forget()
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
		c.forget()
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

// TestALoadThatIsSentAgainIsNotOwn: what members have of a load that they took before stays, whether it is newer or a copy that may be older. A load
// that such a copy may have undone is not acknowledged.
func TestALoadThatIsSentAgainIsNotOwn(t *testing.T) {
	const old, load, other = `{"id":"a","n":1}`, `{"id":"a","n":2}`, `{"id":"a","n":3}`
	for name, way := range map[string]struct {
		members int
		missed  []int // who is not reached when the load comes first
		since   func(t *testing.T, m []*model)
		ok      bool
		want    string
	}{
		"nothing has happened": {members: 2, missed: []int{0}, ok: true, want: load},
		"it was written since": {members: 2, missed: []int{0}, since: func(t *testing.T, m []*model) {
			if _, err := m[1].Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(other)}); err != nil {
				t.Error(err)
			}
		}, ok: true, want: other},
		"it was copied back":       {members: 2, missed: []int{0}, since: func(t *testing.T, m []*model) { m[1].copies(t, "a", old) }, want: old},
		"it was deleted by a copy": {members: 2, missed: []int{0}, since: func(t *testing.T, m []*model) { m[1].copies(t, "a", "") }},
		"it was copied back, and forth": {members: 2, missed: []int{0}, since: func(t *testing.T, m []*model) {
			m[1].copies(t, "a", old)
			m[1].copies(t, "a", load)
		}, ok: true, want: load},
		"another one has it": {members: 3, missed: []int{0}, since: func(t *testing.T, m []*model) { m[1].copies(t, "a", old) }, ok: true, want: load},
		"others have it, and the last one is newer": {members: 3, missed: []int{1}, since: func(t *testing.T, m []*model) {
			m[0].copies(t, "a", old)
			if _, err := m[2].Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(other)}); err != nil {
				t.Error(err)
			}
		}, ok: true, want: other},
		"it was whole, and all have a copy": {members: 2, since: func(t *testing.T, m []*model) {
			m[0].copies(t, "a", other)
			m[1].copies(t, "a", other)
		}, want: other},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, way.members)
			w := c.writer(Options{})
			put(t, w, old)
			m := c.group(0)
			for _, i := range way.missed {
				m[i].during("Bulk", gone, -1)
			}
			reply, err := keyed(w, "k", load)
			if way.missed == nil && (err != nil || !reply.OK) || way.missed != nil && err == nil && reply.OK {
				t.Fatalf("%+v, %v", reply, err)
			}
			for _, i := range way.missed {
				m[i].during("Bulk", fine, -1)
			}
			if way.since != nil {
				way.since(t, m)
			}
			for range 2 { // who asks once more is told the same
				reply, err := keyed(w, "k", load)
				if err != nil || reply.OK != way.ok {
					t.Fatalf("%+v, %v", reply, err)
				}
				if !way.ok && (reply.Indexed != 0 || reply.Failed != 1 || len(reply.Errors) != 1 || reply.Errors[0].Code != string(api.WriteUncertain) || reply.Errors[0].ID != "a") {
					t.Errorf("%+v", reply)
				}
				for _, m := range m {
					if got := m.docs("x")["a"]; got != way.want {
						t.Errorf("%s has %s", m.addr, got)
					}
				}
			}
		})
	}
}

// TestALoadThatMayBeUndoneBelowIsNotRefused: what a coordinator that stands as a shard does not know, the one above does not either.
func TestALoadThatMayBeUndoneBelowIsNotRefused(t *testing.T) {
	under := newCluster(t, 2)
	_, w := stack(t, 1, under)
	put(t, w, `{"id":"a","n":1}`)
	m := under.group(0)
	m[0].during("Bulk", gone, -1)
	if reply, err := keyed(w, "k", `{"id":"a","n":2}`); err == nil && reply.OK {
		t.Fatalf("%+v, %v", reply, err)
	}
	m[0].during("Bulk", fine, -1)
	m[1].copies(t, "a", `{"id":"a","n":1}`)
	reply, err := w.Load(t.Context(), &leaf.BulkRequest{Index: "x", Key: "k"}, strings.NewReader(`{"id":"a","n":2}`), LoadOptions{Whole: true})
	if err != nil || reply.OK || reply.Failed != 1 || len(reply.Errors) != 1 || reply.Errors[0].Code != string(api.WriteUncertain) {
		t.Errorf("%+v, %v", reply, err)
	}
}

// TestARepeatedLoadBesideTheWriteOfWhatWasDeleted: a load put a document that was deleted since, long ago. It is sent again while somebody writes the
// document anew, and one member has that already. Who has the load takes the document for deleted, and that is made so at the other; so the write
// is compared, and is there in the end.
func TestARepeatedLoadBesideTheWriteOfWhatWasDeleted(t *testing.T) {
	for _, missed := range []bool{false, true} {
		c := newCluster(t, 2)
		w, other := c.writer(Options{}), c.writer(Options{})
		put(t, w, `{"id":"s","n":0}`)
		m := c.group(0)
		load := func() {
			t.Helper()
			if _, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "k"}, strings.NewReader(`{"id":"a","n":1}`+"\n")); err != nil {
				t.Fatal(err)
			}
		}
		late, early := m[0], m[1] // where the write comes late and early
		if missed {               // the first member has missed the load
			late, early = early, late
			early.during("Bulk", gone, -1)
		}
		load()
		early.during("Bulk", fine, 0)
		if _, err := w.Delete(t.Context(), "x", "a"); err != nil {
			t.Fatal(err)
		}
		for _, m := range m {
			m.age("x", nil)
		}
		written, loaded := make(chan struct{}), make(chan struct{})
		late.before = func(_ context.Context, call string) {
			if call == "Index" {
				<-loaded
			}
		}
		early.after = func(_ context.Context, call string) {
			if call == "Index" {
				close(written)
			}
		}
		done := make(chan *leaf.IndexReply)
		go func() {
			reply, err := other.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":2}`)})
			if err != nil {
				t.Error(err)
			}
			done <- reply
		}()
		<-written
		load()
		if early.docs("x")["a"] != "" {
			t.Error("what the load is taken for was not made so")
		}
		close(loaded)
		if reply := <-done; reply == nil || !reply.OK {
			t.Errorf("%+v", reply)
		}
		for _, m := range m {
			if got := m.docs("x")["a"]; got != `{"id":"a","n":2}` {
				t.Errorf("missed %t: %s has %q", missed, m.addr, got)
			}
		}
	}
}

// TestASyncThatNobodyTakesBesideAWrite: a coordinator above looks at a document that is not there, and gives it to this one when a write of it has come
// to one member. No member takes what is given; the members are made equal to the one that the write has not reached, and so the write is compared.
func TestASyncThatNobodyTakesBesideAWrite(t *testing.T) {
	for _, away := range []bool{false, true} {
		c := newCluster(t, 2)
		w := c.writer(Options{})
		put(t, w, `{"id":"s","n":0}`)
		m := c.group(0)
		for _, m := range m {
			m.age("x", nil)
		}
		look := func() *leaf.SumsReply {
			t.Helper()
			reply, err := w.FencedSums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: []string{"a"}, Fence: true})
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		if away {
			m[0].during("Sums", gone, -1)
		}
		seen := look()
		m[0].during("Sums", fine, 0)
		if !away {
			look() // by somebody else
		}
		written, given := make(chan struct{}), make(chan struct{})
		m[0].before = func(_ context.Context, call string) {
			if call == "Index" {
				<-given
			}
		}
		m[1].after = func(_ context.Context, call string) {
			if call == "Index" {
				close(written)
			}
		}
		done := make(chan *leaf.IndexReply)
		go func() {
			reply, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":1}`)})
			if err != nil {
				t.Error(err)
			}
			done <- reply
		}()
		<-written
		reply, err := w.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Fence: seen.Fence, Items: []leaf.SyncItem{{ID: "a", Expect: seen.Sums[0], Body: []byte(`{"id":"a","n":7}`)}}})
		if err != nil || reply.Applied[0] {
			t.Errorf("%+v, %v", reply, err)
		}
		close(given)
		if reply := <-done; reply == nil || !reply.OK {
			t.Errorf("%+v", reply)
		}
		for _, m := range m {
			if got := m.docs("x")["a"]; got != `{"id":"a","n":1}` {
				t.Errorf("away %t: %s has %q", away, m.addr, got)
			}
		}
	}
}
