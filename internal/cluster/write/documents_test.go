package write

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

func put(t testing.TB, w *Writer, body string) *leaf.IndexReply {
	t.Helper()
	reply, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(body)})
	if err != nil {
		t.Fatalf("index %s: %v", body, err)
	}
	return reply
}

// during makes a model meet a fate in calls of one name, the first n of them; n below 0: all.
func (m *model) during(call string, f fate, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fates = func(c string) fate {
		m.mu.Lock()
		defer m.mu.Unlock()
		if c != call || n == 0 {
			return fine
		}
		n--
		return f
	}
}

func TestAWriteGoesToEveryMemberOfItsGroup(t *testing.T) {
	c := newCluster(t, 2, 2, 2)
	w := c.writer(Options{})
	for i := range 60 {
		id := fmt.Sprintf("doc%d", i)
		reply := put(t, w, `{"id": "`+id+`", "n": 1}`)
		if !reply.OK || reply.ID != id || reply.Members.OK != 2 || reply.Members.Total != 2 || len(reply.Members.FailedAddresses) != 0 {
			t.Fatalf("%+v", reply.WriteReply)
		}
		if i == 0 != (len(reply.Inferred) == 1) {
			t.Fatalf("document %d brings %v", i, reply.Inferred)
		}
		own := c.State().Owner(id).Ordinal
		for g := range 3 {
			for _, m := range c.group(g) {
				if _, ok := m.docs("x")[id]; ok != (g == own) {
					t.Errorf("%s at %s: %t", id, m.addr, ok)
				}
			}
		}
	}
	if wrong := c.same("x") + c.sameSchemas("x"); wrong != "" {
		t.Error(wrong)
	}
	if s := w.Stats(); s != (Stats{}) {
		t.Errorf("out of the ordinary: %+v", s)
	}
	reply, err := w.Delete(t.Context(), "x", "doc7")
	if err != nil || !reply.OK || reply.Deleted != 1 || reply.Members.OK != 2 {
		t.Fatalf("%+v, %v", reply, err)
	}
	if reply, err = w.Delete(t.Context(), "x", "doc7"); err != nil || !reply.OK || reply.Deleted != 0 {
		t.Fatalf("%+v, %v", reply, err)
	}
	_, err = w.Delete(t.Context(), "y", "doc7")
	problemOf(t, err, api.IndexNotFound)
}

// TestFatesOfAWrite holds what a write comes to against what becomes of it at two members.
func TestFatesOfAWrite(t *testing.T) {
	type want struct {
		ok     int      // members
		code   api.Code // of the error; empty: a reply
		failed string   // members of the reply that failed
		hints  string   // members with hints
	}
	for _, tc := range []struct {
		a, b  fate
		times int // of each fate
		want  want
	}{
		{fine, fine, -1, want{2, "", "", ""}},
		{fine, gone, 1, want{2, "", "", ""}}, // once more
		{fine, busy, 1, want{2, "", "", ""}},
		{fine, refuse, 1, want{2, "", "", ""}},
		{fine, gone, -1, want{1, "", "0/1", "0/1"}},
		{gone, fine, -1, want{1, "", "0/0", "0/0"}},
		{fine, busy, -1, want{1, "", "0/1", "0/1"}},
		{fine, refuse, -1, want{1, "", "0/1", "0/1"}},
		{fine, full, -1, want{1, "", "0/1", "0/1"}},
		{fine, lost, 1, want{1, "", "0/1", "0/1"}}, // a second try could be the later one of two
		{fine, failing, 1, want{1, "", "0/1", "0/1"}},
		{fine, hang, 1, want{1, "", "0/1", "0/1"}},
		{fine, crossed, 1, want{1, "", "0/1", "0/1"}},
		{gone, gone, -1, want{0, api.GroupUnavailable, "", ""}},
		{busy, busy, 1, want{0, api.TooManyWrites, "", ""}}, // all of them agree
		{refuse, refuse, -1, want{0, api.ReadOnly, "", ""}},
		{full, full, -1, want{0, api.DiskFull, "", ""}},
		{gone, busy, -1, want{0, api.TooManyWrites, "", ""}},
		{gone, refuse, -1, want{0, api.ReadOnly, "", ""}},
		{full, busy, -1, want{0, api.TooManyWrites, "", ""}},
		{lost, lost, -1, want{0, api.WriteUncertain, "", "0/0 0/1"}},
		{gone, lost, -1, want{0, api.WriteUncertain, "", "0/0 0/1"}},
		{busy, failing, -1, want{0, api.WriteUncertain, "", "0/0 0/1"}},
		{hang, hang, -1, want{0, api.WriteUncertain, "", "0/0 0/1"}},
	} {
		t.Run(fmt.Sprintf("%s and %s, %d times", tc.a, tc.b, tc.times), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, hints := newCluster(t, 2), &hintBook{}
				w := c.writer(Options{Hints: hints})
				put(t, w, `{"id": "a", "n": 1}`)
				m := c.group(0)
				m[0].during("Index", tc.a, tc.times)
				m[1].during("Index", tc.b, tc.times)
				reply, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"b","n":2}`)})
				if tc.want.code != "" {
					p := problemOf(t, err, tc.want.code)
					if strings.Contains(p.Detail, "127.") {
						t.Error(p.Detail)
					}
				} else if err != nil {
					t.Fatal(err)
				} else if reply.Members.OK != tc.want.ok || reply.Members.Total != 2 || reply.OK != (tc.want.ok == 2) || strings.Join(reply.Members.FailedAddresses, " ") != tc.want.failed {
					t.Errorf("%+v", reply.WriteReply)
				}
				var hinted []string
				for _, m := range m {
					if h := hints.of(m.addr); len(h) > 0 {
						hinted = append(hinted, m.addr)
						if !slices.Equal(h, []string{"x/b"}) {
							t.Errorf("%s has hints %v", m.addr, h)
						}
					}
				}
				if got := strings.Join(hinted, " "); got != tc.want.hints {
					t.Errorf("hints for %q, want %q", got, tc.want.hints)
				}
			})
		})
	}
}

func TestWhatIsWrongWithADocumentIsSaidHere(t *testing.T) {
	c := newCluster(t, 2, 2)
	w := c.writer(Options{Limits: Limits{DocumentBytes: 100}})
	put(t, w, `{"id": "a", "n": 1}`)
	before := c.models["0/0"].called("Index") + c.models["1/0"].called("Index")
	for _, tc := range []struct {
		body     string
		code     api.Code
		line     int
		position int
	}{
		{`{"id": "b", "n": "x"}`, api.TypeConflict, 1, 17},
		{"{\"id\": \"b\",\n\"n\": \"x\"}", api.TypeConflict, 2, 17},
		{`{"n": 1}`, api.MissingID, 1, 0},
		{`{"id": ""}`, api.InvalidID, 1, 7},
		{`{"id": "b"`, api.InvalidJSON, 1, 10},
		{`{"id": "b", "id": "b"}`, api.DuplicateMember, 1, 12},
		{``, api.InvalidJSON, 1, 0},
		{`{"id": "` + strings.Repeat("b", 200) + `"}`, api.DocumentTooLarge, 0, 0},
	} {
		_, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(tc.body)})
		p := problemOf(t, err, tc.code)
		if p.Line != tc.line || p.Position != tc.position {
			t.Errorf("%s: line %d, position %d; want %d, %d", tc.body, p.Line, p.Position, tc.line, tc.position)
		}
	}
	if after := c.models["0/0"].called("Index") + c.models["1/0"].called("Index"); after != before {
		t.Error("members were asked")
	}
	_, err := w.Index(t.Context(), &leaf.IndexRequest{Index: ".x", Body: []byte(`{"id":"a"}`)})
	problemOf(t, err, api.InvalidIndexName)
	_, err = w.Index(t.Context(), &leaf.IndexRequest{Index: "new", Body: []byte(`{"id":1}`)})
	problemOf(t, err, api.InvalidID)
	if c.models["0/0"].sdl("new") != "" {
		t.Error("a document that is refused has made an index")
	}
	_, err = w.DeleteMany(t.Context(), &leaf.DeleteRequest{Index: "x", IDs: []string{"a", ""}})
	problemOf(t, err, api.InvalidID)
	_, err = w.DeleteMany(t.Context(), &leaf.DeleteRequest{Index: "x", IDs: make([]string, leaf.MaxIDs+1)})
	problemOf(t, err, api.InvalidParameter)
}

// TestCrossingWritersAreSettled makes two writers cross: each is the last at one of two members.
func TestCrossingWritersAreSettled(t *testing.T) {
	for i, second := range []string{`{"id":"a","n":2}`, "", `{"id":"a","n":2}`, ""} {
		isNew := i > 1
		t.Run(fmt.Sprintf("with %s, new: %t", second, isNew), func(t *testing.T) {
			c := newCluster(t, 2)
			one, two := c.writer(Options{}), c.writer(Options{})
			if !isNew {
				put(t, one, `{"id":"a","n":0}`)
			}
			put(t, two, `{"id":"other","n":0}`)
			// The first writer waits at 0/1 until the second one has written there, the second at 0/0 for the first.
			atFirst, atSecond := make(chan struct{}), make(chan struct{})
			type who struct{}
			m := c.group(0)
			is := func(ctx context.Context, call, who1 string) bool {
				return (call == "Index" || call == "DeleteMany") && ctx.Value(who{}) == who1
			}
			m[0].before = func(ctx context.Context, call string) {
				if is(ctx, call, "two") {
					<-atFirst
				}
			}
			m[0].after = func(ctx context.Context, call string) {
				if is(ctx, call, "one") {
					close(atFirst)
				}
			}
			m[1].before = func(ctx context.Context, call string) {
				if is(ctx, call, "one") {
					<-atSecond
				}
			}
			m[1].after = func(ctx context.Context, call string) {
				if is(ctx, call, "two") {
					close(atSecond)
				}
			}
			done := make(chan error)
			go func() {
				ctx := context.WithValue(t.Context(), who{}, "two")
				if second == "" {
					_, err := two.Delete(ctx, "x", "a")
					done <- err
					return
				}
				_, err := two.Index(ctx, &leaf.IndexRequest{Index: "x", Body: []byte(second)})
				done <- err
			}()
			reply, err := one.Index(context.WithValue(t.Context(), who{}, "one"), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":1}`)})
			if err != nil || !reply.OK {
				t.Errorf("%+v, %v", reply, err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			want := map[string]string{"other": `{"id":"other","n":0}`}
			if second != "" {
				want["a"] = second
			}
			for _, m := range c.group(0) {
				if got := m.docs("x"); !maps.Equal(got, want) {
					t.Errorf("%s has %v", m.addr, got)
				}
			}
			if s := one.Stats(); s.Crossed+two.Stats().Crossed == 0 || s.Settled+two.Stats().Settled == 0 {
				t.Error("nothing was settled")
			}
		})
	}
}

// TestWhatAWriterFoundEqualStays lets one writer decide, while another one's document is at one member only, to put its own there in that
// one's place, and holds it until the other has written everywhere, has found the members equal and is acknowledged: then it must not be
// put there any more.
func TestWhatAWriterFoundEqualStays(t *testing.T) {
	for i, second := range []string{`{"id":"a","n":2}`, "", `{"id":"a","n":2}`, ""} {
		tree := i > 1 // the members are coordinators, with one node each
		t.Run(fmt.Sprintf("with %s, tree: %t", second, tree), func(t *testing.T) {
			c := newCluster(t, 2)
			m := c.group(0)
			if tree {
				left, right := newCluster(t, 1), newCluster(t, 1)
				c, _ = pile(t, 1, true, left, right)
				m = []*model{left.group(0)[0], right.group(0)[0]}
			}
			one, two := c.writer(Options{}), c.writer(Options{})
			put(t, one, `{"id":"a","n":0}`)
			c.forget(m...)
			type who struct{}
			written, half, decided, acknowledged := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
			by := func(ctx context.Context, who1 string) bool { return ctx.Value(who{}) == who1 }
			var looked, held sync.Once
			m[0].before = func(ctx context.Context, call string) {
				if by(ctx, "two") && (call == "Index" || call == "DeleteMany") {
					<-decided
				}
			}
			var wrong atomic.Bool
			m[1].after = func(ctx context.Context, call string) {
				switch {
				case by(ctx, "two") && (call == "Index" || call == "DeleteMany"):
					close(half)
				case by(ctx, "one") && call == "Sync" && m[1].docs("x")["a"] != second:
					wrong.Store(true)
				}
			}
			m[1].before = func(ctx context.Context, call string) {
				switch {
				case by(ctx, "one") && call == "Sums":
					looked.Do(func() {
						close(written)
						<-half
					})
				case by(ctx, "one") && call == "Sync":
					held.Do(func() {
						close(decided)
						<-acknowledged
					})
				}
			}
			put0 := make(chan error, 1)
			go func() {
				_, err := one.Index(context.WithValue(t.Context(), who{}, "one"), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":1}`)})
				put0 <- err
			}()
			<-written
			ctx := context.WithValue(t.Context(), who{}, "two")
			var err error
			if second == "" {
				_, err = two.Delete(ctx, "x", "a")
			} else {
				_, err = two.Index(ctx, &leaf.IndexRequest{Index: "x", Body: []byte(second)})
			}
			if err != nil {
				t.Error(err)
			}
			close(acknowledged)
			if err := <-put0; err != nil {
				t.Error(err)
			}
			if wrong.Load() {
				t.Error("an acknowledged write was undone at a member")
			}
			for _, m := range m {
				if got := m.docs("x")["a"]; got != second {
					t.Errorf("%s has %s", m.addr, got)
				}
			}
		})
	}
}

// TestMembersWithoutFencesAreSettled has members of before there were fences.
func TestMembersWithoutFencesAreSettled(t *testing.T) {
	c := newCluster(t, 2)
	w := c.writer(Options{})
	for _, m := range c.all() {
		m.old = true
	}
	put(t, w, `{"id":"a","n":0}`)
	put(t, w, `{"id":"a","n":1}`)
	if wrong := c.same("x"); wrong != "" {
		t.Error(wrong)
	}
}

// TestWhenMembersAreCompared counts the comparisons behind writes that cross with nothing.
func TestWhenMembersAreCompared(t *testing.T) {
	c := newCluster(t, 3)
	w := c.writer(Options{})
	m := c.models["0/1"]
	step := func(what string, compared bool, run func()) {
		t.Helper()
		before := m.called("Sums")
		run()
		if got := m.called("Sums") > before; got != compared {
			t.Errorf("%s: compared: %t", what, got)
		}
	}
	step("a new document", false, func() { put(t, w, `{"id":"a"}`) })
	step("another", false, func() { put(t, w, `{"id":"b"}`) })
	write := func(id string, by *Writer) func() {
		return func() { put(t, by, fmt.Sprintf(`{"id":%q,"n":%d}`, id, m.called("Index"))) }
	}
	step("one that was written a moment ago", false, write("a", w))
	step("one that another coordinator has written", false, write("a", c.writer(Options{})))
	for name, fn := range map[string]func() error{
		"a delete": func() error { _, err := w.Delete(t.Context(), "x", "a"); return err },
		"a load": func() error {
			_, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(`{"id":"a","n":1}`))
			return err
		},
		"somebody's look at one member": func() error {
			_, err := m.Sums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: []string{"a"}, Fence: true})
			return err
		},
		"a write at one member": func() error {
			_, err := m.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":1}`), Mark: leaf.NewMark()})
			return err
		},
	} {
		if err := fn(); err != nil {
			t.Fatal(err)
		}
		step("behind "+name, true, write("a", w))
		step("behind a write that was compared", false, write("a", w))
	}
	c.forget(m)
	step("where one member does not know", true, write("a", w))
	m.mu.Lock()
	m.indexes["x"].docs["c"] = `{"id":"c"}`
	m.mu.Unlock()
	step("one that one member has", true, func() { put(t, w, `{"id":"c","n":1}`) })
	step("a delete of nothing", true, func() {
		if _, err := w.Delete(t.Context(), "x", "nosuch"); err != nil {
			t.Error(err)
		}
	})
	step("a new document behind a delete", true, func() { put(t, w, `{"id":"d"}`) })
}

// TestADeleteCrossesTheFirstWriteOfAnIndex deletes a document at the first member behind the write, and at the second before the index is
// there.
func TestADeleteCrossesTheFirstWriteOfAnIndex(t *testing.T) {
	c := newCluster(t, 2)
	one, two := c.writer(Options{}), c.writer(Options{})
	m := c.group(0)
	written, deleted, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	hook := func(name string, fn func()) func(context.Context, string) {
		return func(_ context.Context, call string) {
			if call == name {
				fn()
			}
		}
	}
	m[0].after = hook("Index", func() { close(written) })
	m[0].before = hook("DeleteMany", func() { <-written })
	m[1].after = hook("DeleteMany", func() { close(deleted) })
	m[1].before = func(_ context.Context, call string) {
		switch call {
		case "PutIndex":
			<-deleted
		case "Index":
			<-over
		}
	}
	done := make(chan error)
	go func() {
		_, err := two.Delete(t.Context(), "x", "a")
		close(over)
		done <- err
	}()
	reply, err := one.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a"}`)})
	if err != nil || !reply.OK {
		t.Errorf("%+v, %v", reply, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if wrong := c.same("x"); wrong != "" {
		t.Error(wrong)
	}
}

// TestMembersThatCannotBeComparedAreNamed lets the comparison fail after the write.
func TestMembersThatCannotBeComparedAreNamed(t *testing.T) {
	c, hints := newCluster(t, 3), &hintBook{}
	c.disturb()
	w := c.writer(Options{Hints: hints})
	put(t, w, `{"id":"a"}`)
	c.models["0/1"].during("Sums", gone, 1)
	if reply := put(t, w, `{"id":"b"}`); !reply.OK {
		t.Errorf("one failure of a comparison: %+v", reply.WriteReply)
	}
	c.models["0/1"].during("Sums", gone, -1)
	reply := put(t, w, `{"id":"c"}`)
	if reply.OK || reply.Members.OK != 2 || !slices.Equal(reply.Members.FailedAddresses, []string{"0/1"}) || !slices.Equal(hints.of("0/1"), []string{"x/c"}) {
		t.Errorf("%+v, hints %v", reply.WriteReply, hints.of("0/1"))
	}
	// A member that does not take what the first has.
	c.models["0/1"].fates = nil
	m := c.models["0/1"]
	m.after = func(_ context.Context, call string) {
		if call == "Index" || call == "Sync" {
			m.mu.Lock()
			m.indexes["x"].docs["d"] = `{"id":"d","strange":1}`
			m.mu.Unlock()
		}
	}
	reply = put(t, w, `{"id":"d"}`)
	if reply.OK || !slices.Equal(reply.Members.FailedAddresses, []string{"0/1"}) || !slices.Contains(hints.of("0/1"), "x/d") {
		t.Errorf("%+v, hints %v", reply.WriteReply, hints.of("0/1"))
	}
	if got := c.models["0/2"].docs("x")["d"]; got != `{"id":"d"}` {
		t.Errorf("another member has %s", got)
	}
}

// A write that one member has taken under an older map, and that nobody takes under the newer one, is not one without effect.
func TestAWriteThatIsRefusedUnderANewerMapMayBeIn(t *testing.T) {
	for call, write := range map[string]func(w *Writer) error{
		"Index": func(w *Writer) error {
			_, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"b"}`)})
			return err
		},
		"DeleteMany": func(w *Writer) error {
			_, err := w.DeleteMany(t.Context(), &leaf.DeleteRequest{Index: "x", IDs: []string{"a"}})
			return err
		},
		"Bulk": func(w *Writer) error {
			reply, err := w.Load(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(`{"id":"b"}`), LoadOptions{Whole: true})
			if err == nil && len(reply.Errors) == 1 && reply.Indexed == 0 {
				err = &api.Problem{Code: api.Code(reply.Errors[0].Code)}
			}
			return err
		},
	} {
		for _, then := range []fate{refuse, busy, full, gone} {
			t.Run(call+" "+then.String(), func(t *testing.T) {
				c := newCluster(t, 2)
				w, err := New(&frozen{c: c}, Options{Limits: Limits{BulkStall: time.Millisecond}})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				put(t, w, `{"id":"a"}`)
				for _, m := range c.all() {
					calls := 0
					m.fates = func(name string) fate {
						if name != call {
							return fine
						}
						if calls++; calls == 1 {
							return fine
						}
						return then
					}
				}
				next := c.State().Map.Clone()
				next.Epoch++
				c.setMap(next, c.models["0/1"])
				err = write(w)
				if e, ok := errors.AsType[*leaf.TransportError](err); ok && e.MaybeApplied {
					return
				}
				if !hasCode(err, api.WriteUncertain) {
					t.Errorf("the write ends with %v", err)
				}
				if got := c.models["0/0"].docs("x"); len(got) == 1 && call != "DeleteMany" {
					t.Errorf("it is not in: %v", got)
				}
			})
		}
	}
}

func TestAStaleMapRepeatsTheWrite(t *testing.T) {
	c := newCluster(t, 2, 1)
	w, err := New(&frozen{c: c}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	put(t, w, `{"id":"a"}`)
	// A third group; the documents move there, and one member of the first group knows it already.
	c.models["2/0"], c.models["2/1"] = newModel("2/0"), newModel("2/1")
	next, err := c.State().Map.AddGroup("2/0", "2/1")
	if err == nil {
		next, err = begun(next, 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.setMap(next, c.all()...)
	moving := ""
	for i := 0; moving == ""; i++ {
		id := fmt.Sprint("doc", i)
		if gs := c.State().Writers(id); len(gs) == 2 && gs[1].Ordinal == 2 && gs[0].Ordinal == 0 {
			moving = id
		}
	}
	reply := put(t, w, `{"id":"`+moving+`","n":1}`)
	if !reply.OK || reply.Members.Total != 4 || reply.Members.OK != 4 {
		t.Errorf("%+v", reply.WriteReply)
	}
	for _, addr := range []string{"0/0", "0/1", "2/0", "2/1"} {
		if c.models[addr].docs("x")[moving] == "" {
			t.Errorf("%s does not have it", addr)
		}
	}
	if s := w.Stats(); s.Stale != 1 {
		t.Errorf("%+v", s)
	}
	c.forget()
	// What stands differently in the two groups is made as it is where readers see it.
	c.models["2/1"].after = func(_ context.Context, call string) {
		if call == "Index" {
			m := c.models["2/1"]
			m.mu.Lock()
			m.indexes["x"].docs[moving] = `{"id":"` + moving + `","n":7}`
			m.indexes["x"].wrote(moving, false)
			m.mu.Unlock()
		}
	}
	if reply := put(t, w, `{"id":"`+moving+`","n":2}`); !reply.OK {
		t.Errorf("%+v", reply.WriteReply)
	}
	if got := c.models["2/1"].docs("x")[moving]; got != `{"id":"`+moving+`","n":2}` {
		t.Error(got)
	}
	del, err := w.Delete(t.Context(), "x", moving)
	if err != nil || !del.OK || del.Deleted != 1 || del.Members.Total != 4 {
		t.Errorf("%+v, %v", del, err)
	}
	// A map that nobody can find.
	c.models["0/0"].epoch = 99
	_, err = w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"` + moving + `"}`)})
	problemOf(t, err, api.WriteUncertain) // others have applied it
	for _, m := range c.all() {
		m.epoch = 99
	}
	_, err = w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"` + moving + `"}`)})
	problemOf(t, err, api.NotReady)
}

func TestDeleteManyOverGroups(t *testing.T) {
	c, hints := newCluster(t, 2, 2, 1), &hintBook{}
	w := c.writer(Options{Hints: hints})
	var ids []string
	for i := range 40 {
		ids = append(ids, fmt.Sprint("d", i))
		put(t, w, `{"id":"`+ids[i]+`"}`)
	}
	reply, err := w.DeleteMany(t.Context(), &leaf.DeleteRequest{Index: "x", IDs: append(slices.Clone(ids[:10]), "d0", "none")})
	if err != nil || reply.Deleted != 10 || reply.Below.Shards.Failed != 0 || reply.Below.Shards.Total != 5 {
		t.Fatalf("%+v, %v", reply, err)
	}
	c.models["1/1"].during("DeleteMany", gone, -1)
	c.models["2/0"].during("DeleteMany", gone, -1)
	reply, err = w.DeleteMany(t.Context(), &leaf.DeleteRequest{Index: "x", IDs: ids})
	if err != nil || !slices.Equal(reply.Below.Shards.FailedAddresses, []string{"1/1", "2/0"}) {
		t.Fatalf("%+v, %v", reply, err)
	}
	left := 0
	for _, id := range ids[10:] {
		if c.State().Owner(id).Ordinal == 2 {
			left++
		}
	}
	if reply.Deleted != uint64(30-left) || len(c.models["2/0"].docs("x")) != left || left == 0 {
		t.Errorf("%d deleted, %d left", reply.Deleted, left)
	}
	if len(hints.of("1/1")) == 0 || len(hints.of("2/0")) != 0 {
		t.Errorf("hints %v and %v", hints.of("1/1"), hints.of("2/0"))
	}
	if reply, err = w.DeleteMany(t.Context(), &leaf.DeleteRequest{Index: "x"}); err != nil || reply.Deleted != 0 {
		t.Errorf("nothing to delete: %+v, %v", reply, err)
	}
	_, err = w.DeleteMany(t.Context(), &leaf.DeleteRequest{Index: "y"})
	problemOf(t, err, api.IndexNotFound)
	for _, m := range c.all() {
		m.during("DeleteMany", gone, -1)
	}
	_, err = w.DeleteMany(t.Context(), &leaf.DeleteRequest{Index: "x", IDs: ids})
	problemOf(t, err, api.GroupUnavailable)
}

func TestSync(t *testing.T) {
	c, hints := newCluster(t, 2, 2), &hintBook{}
	w := c.writer(Options{Hints: hints})
	_, err := w.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{ID: "a", Body: []byte(`{"id":"a"}`)}}})
	problemOf(t, err, api.IndexNotFound)
	bodies := map[string]string{}
	for i := range 20 {
		id := fmt.Sprint("d", i)
		bodies[id] = `{"id":"` + id + `","n":1}`
		put(t, w, bodies[id])
	}
	items := []leaf.SyncItem{
		{ID: "d0", Expect: sumOf(bodies["d0"]), Body: []byte(`{"id": "d0", "n": 2}`)},
		{ID: "d1", Expect: sumOf("another"), Body: []byte(`{"id":"d1","n":2}`)},
		{ID: "d2", Expect: sumOf(bodies["d2"])},
		{ID: "new", Body: []byte(`{"id":"new","m":2.5}`)},
		{ID: "d3", Expect: sumOf(bodies["d3"]), Body: []byte(`{"id":"d3","n":"x"}`)},
		{ID: "d4", Expect: sumOf(bodies["d4"]), Body: []byte(`{"id":"d5"}`)},
	}
	reply, err := w.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: items})
	if err != nil {
		t.Fatal(err)
	}
	if want := []bool{true, false, true, true, false, false}; !slices.Equal(reply.Applied, want) {
		t.Errorf("applied %v", reply.Applied)
	}
	if reply.Sums[0] != sumOf(`{"id":"d0","n":2}`) || reply.Sums[1] != sumOf(bodies["d1"]) || reply.Sums[2] != (leaf.Sum{}) {
		t.Error("other checksums")
	}
	for i, code := range []api.Code{"", "", "", "", api.TypeConflict, api.InvalidID} {
		if p := reply.Problems[i]; (p == nil) != (code == "") || p != nil && p.Code != code {
			t.Errorf("item %d: %v", i, p)
		}
	}
	if wrong := c.same("x") + c.sameSchemas("x"); wrong != "" {
		t.Error(wrong)
	}
	// Members that differ: what the first has decides.
	own := c.group(c.State().Owner("d6").Ordinal)
	own[1].indexes["x"].docs["d6"] = `{"id":"d6","n":9}`
	reply, err = w.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{ID: "d6", Expect: sumOf(bodies["d6"]), Body: []byte(`{"id":"d6","n":3}`)}}})
	if err != nil || !reply.Applied[0] || own[1].docs("x")["d6"] != `{"id":"d6","n":3}` {
		t.Errorf("%+v, %v, %s", reply, err, own[1].docs("x")["d6"])
	}
	// A member that is away.
	own[1].during("Sync", gone, -1)
	reply, err = w.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{ID: "d6", Expect: reply.Sums[0]}}})
	if err != nil || reply.Applied[0] || !slices.Equal(reply.Below.Shards.FailedAddresses, []string{own[1].addr}) || len(hints.of(own[1].addr)) != 1 {
		t.Errorf("%+v, %v, %v", reply, err, hints.of(own[1].addr))
	}
	own[0].during("Sync", gone, -1)
	_, err = w.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{ID: "d6"}}})
	problemOf(t, err, api.GroupUnavailable)
	_, err = w.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{ID: "d6"}, {ID: "d6"}}})
	problemOf(t, err, api.InvalidParameter)
}

// TestSyncWhileDocumentsMove puts a document that stands in one of its two groups so far.
func TestSyncWhileDocumentsMove(t *testing.T) {
	c := newCluster(t, 2)
	w := c.writer(Options{})
	before := map[string]string{}
	for i := range 20 {
		id := fmt.Sprint("d", i)
		before[id] = `{"id":"` + id + `","n":1}`
		put(t, w, before[id])
	}
	c.models["1/0"], c.models["1/1"] = newModel("1/0"), newModel("1/1")
	next, err := c.State().Map.AddGroup("1/0", "1/1")
	if err != nil {
		t.Fatal(err)
	}
	c.setMap(next)
	c.moveTo(t, 2)
	var items []leaf.SyncItem
	for id := range before {
		items = append(items, leaf.SyncItem{ID: id, Expect: sumOf(before[id]), Body: []byte(`{"id":"` + id + `","n":2}`)})
	}
	reply, err := w.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: items})
	if err != nil || reply.Below.Shards.Total != 4 || reply.Below.Shards.Failed != 0 {
		t.Fatalf("%+v, %v", reply, err)
	}
	moving := 0
	for i, it := range items {
		if !reply.Applied[i] {
			t.Errorf("%s was not applied", it.ID)
		}
		for _, g := range c.State().Writers(it.ID) {
			moving += g.Ordinal
			for _, m := range c.group(g.Ordinal) {
				if got := m.docs("x")[it.ID]; got != string(it.Body) {
					t.Errorf("%s has %q", m.addr, got)
				}
			}
		}
	}
	if moving == 0 {
		t.Error("nothing moves")
	}
}

func TestTheEndOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, hints := newCluster(t, 2), &hintBook{}
		w, err := New(c, Options{Hints: hints})
		if err != nil {
			t.Fatal(err)
		}
		put(t, w, `{"id":"a"}`)
		c.models["0/1"].during("Index", crossed, -1)
		// The time of the caller ends a little after that of the members: the reply says who is missing.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		reply, err := w.Index(ctx, &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"b"}`)})
		if err != nil || reply.OK || !slices.Equal(reply.Members.FailedAddresses, []string{"0/1"}) || ctx.Err() != nil {
			t.Errorf("%+v, %v", reply, err)
		}
		cancel()
		// The caller leaves.
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		_, err = w.Index(ctx, &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"c"}`)})
		if e, ok := errors.AsType[*leaf.TransportError](err); !ok || !e.MaybeApplied || !errors.Is(err, context.Canceled) || time.Since(began) > time.Second+time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if !slices.Contains(hints.of("0/1"), "x/c") {
			t.Errorf("hints %v", hints.of("0/1"))
		}
		// The writer is closed.
		time.AfterFunc(time.Second, func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		_, err = w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"d"}`)})
		if !errors.Is(err, leaf.ErrClosed) {
			t.Error(err)
		}
		synctest.Wait()
		if _, err = w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"d"}`)}); !errors.Is(err, leaf.ErrClosed) {
			t.Error(err)
		}
		if _, err = w.Schema(t.Context(), "x", true); !errors.Is(err, leaf.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestSettlingGoesOnWithoutItsCaller ends the caller between the repair of a member and the look at what came of it.
func TestSettlingGoesOnWithoutItsCaller(t *testing.T) {
	c, hints := newCluster(t, 2), &hintBook{}
	c.disturb()
	w, err := New(c, Options{Hints: hints})
	if err != nil {
		t.Fatal(err)
	}
	put(t, w, `{"id":"a"}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := c.models["0/1"]
	first := true
	m.after = func(_ context.Context, call string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case call == "Index":
			m.indexes["x"].docs["b"] = `{"id":"b","n":5}`
		case call == "Sync" && first:
			// Another write comes to the second member only, and the caller leaves.
			first = false
			m.indexes["x"].docs["b"] = `{"id":"b","n":6}`
			cancel()
		}
	}
	_, err = w.Index(ctx, &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"b","n":4}`)})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for {
		if len(w.finisher) == 0 {
			break
		}
		w.calls.Wait()
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if wrong := c.same("x"); wrong != "" {
		t.Error(wrong)
	}
	if !slices.Equal(hints.of("0/1"), []string{"x/b"}) {
		t.Errorf("hints %v", hints.of("0/1"))
	}
}

func TestOptions(t *testing.T) {
	if _, err := New(nil, Options{}); err == nil {
		t.Error("a writer without a source")
	}
	w, err := New(&none{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, err = w.Index(t.Context(), &leaf.IndexRequest{Body: []byte(`{"id":"a"}`)})
	problemOf(t, err, api.NotReady)
	_, err = w.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(`{"id":"a"}`))
	problemOf(t, err, api.NotReady)
	_, err = w.Schema(t.Context(), "", false)
	problemOf(t, err, api.NotReady)
	if m := Members(&leaf.Meta{}); m.OK != 1 || m.Total != 1 {
		t.Errorf("a node: %+v", m)
	}
}

// none is a source that knows no map.
type none struct{ cluster }

// begun is the map under which documents are copied to so many groups.
func begun(m *shardmap.Map, to int) (*shardmap.Map, error) {
	next, err := m.BeginMove(to, "job")
	if err != nil {
		return nil, err
	}
	return next.BeginCopying()
}

// moveTo puts a map in force under which documents are moved to so many groups.
func (c *cluster) moveTo(t testing.TB, n int) *shardmap.Map {
	t.Helper()
	next, err := begun(c.State().Map, n)
	if err != nil {
		t.Fatal(err)
	}
	c.setMap(next, c.all()...)
	return next
}
