package write

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

func TestFieldsComeToAllMembers(t *testing.T) {
	c := newCluster(t, 2, 2)
	w := c.writer(Options{})
	reply := put(t, w, `{"id":"a","n":1,"s":"x"}`)
	if got := fmt.Sprint(reply.Inferred); got != "[{n i64 integer} {s text<standard> string}]" {
		t.Error(got)
	}
	if reply = put(t, w, `{"id":"b","n":3}`); len(reply.Inferred) != 0 {
		t.Error(reply.Inferred)
	}
	if wrong := c.sameSchemas("x"); wrong != "" || c.models["1/1"].sdl("x") == "" {
		t.Error(wrong)
	}
	sch, err := w.Schema(t.Context(), "x", false)
	if err != nil || sch.SDL() != c.models["0/0"].sdl("x") {
		t.Errorf("%v, %v", sch, err)
	}
	_, err = w.Schema(t.Context(), "y", false)
	problemOf(t, err, api.IndexNotFound)
	_, err = w.Schema(t.Context(), "-", false)
	problemOf(t, err, api.InvalidIndexName)
	info := c.models["0/0"].called("Info")
	for range 50 {
		if _, err := w.Schema(t.Context(), "x", false); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.models["0/0"].called("Info") - info; n > 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestANewerSchemaIsLookedFor declares a field behind the back of a writer.
func TestANewerSchemaIsLookedFor(t *testing.T) {
	c := newCluster(t, 1, 1)
	one, two := c.writer(Options{}), c.writer(Options{})
	if _, err := one.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field id: text<raw> [primary, stored] field n: i64 [stored] }`}); err != nil {
		t.Fatal(err)
	}
	put(t, one, `{"id":"a","n":1}`)
	_, err := one.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","m":1}`)})
	problemOf(t, err, api.UnknownField)
	if _, err := two.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field m: i64 [stored] }`}); err != nil {
		t.Fatal(err)
	}
	put(t, one, `{"id":"a","m":1}`)
	load, err := one.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(`{"id":"b","m":1}`))
	if err != nil || !load.OK {
		t.Errorf("%+v, %v", load, err)
	}
	// The index is deleted, and another one has its name.
	if _, err := two.DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := two.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field id: text<raw> [primary, stored] field n: text<raw> [stored] }`}); err != nil {
		t.Fatal(err)
	}
	_, err = one.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"c","m":1}`)})
	problemOf(t, err, api.UnknownField)
	put(t, one, `{"id":"c","n":"word"}`)
}

// TestAMemberThatWasAwayIsGivenTheSchema lets a member miss a field whose type a later document would not show.
func TestAMemberThatWasAwayIsGivenTheSchema(t *testing.T) {
	for _, away := range []string{"0/0", "0/1", "1/0"} {
		t.Run(away, func(t *testing.T) {
			c := newCluster(t, 2, 2)
			w := c.writer(Options{})
			put(t, w, `{"id":"a"}`)
			m := c.models[away]
			m.fates = func(string) fate { return gone }
			reply, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"b","price":1.5}`)})
			if err != nil {
				t.Fatal(err)
			}
			if len(reply.Inferred) != 1 {
				t.Errorf("inferred %v", reply.Inferred)
			}
			if strings.Contains(m.sdl("x"), "price") {
				t.Fatal("it was not away")
			}
			m.fates = nil
			other := c.writer(Options{}) // one that has not seen any of it
			for _, w := range []*Writer{w, other} {
				for i := range 8 {
					// By itself the member would take it for a whole number.
					if reply := put(t, w, fmt.Sprintf(`{"id":"c%d","price":2}`, i)); !reply.OK {
						t.Fatalf("%+v", reply)
					}
				}
			}
			if wrong := c.sameSchemas("x"); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// TestTheFirstMemberLacksAField adds a field of the same name while the first member does not know of it.
func TestTheFirstMemberLacksAField(t *testing.T) {
	c := newCluster(t, 2, 1)
	w := c.writer(Options{})
	put(t, w, `{"id":"a"}`)
	first := c.models["0/0"]
	first.fates = func(string) fate { return gone }
	if _, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"b","n":1}`)}); err != nil {
		t.Fatal(err)
	}
	first.fates = nil
	other := c.writer(Options{})
	_, err := other.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"c","n":"a word"}`)})
	problemOf(t, err, api.TypeConflict)
	put(t, other, `{"id":"c","n":3,"m":"a word"}`)
	if _, err := other.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field n: text<standard> [stored] }`}); err == nil {
		t.Error("another type was taken")
	}
	for _, m := range c.all() {
		if sdl := m.sdl("x"); !strings.Contains(sdl, "n: i64") || !strings.Contains(sdl, "m: text") {
			t.Errorf("%s has %s", m.addr, sdl)
		}
	}
}

// TestAMemberThatLostAField makes a member forget a declared field, without a failure that could be seen.
func TestAMemberThatLostAField(t *testing.T) {
	c := newCluster(t, 1, 1)
	w := c.writer(Options{})
	declare := `index x { field id: text<raw> [primary, stored] field n: i64 [stored] }`
	if _, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: declare}); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.group(1) {
		m.mu.Lock()
		old := *m.indexes["x"].schema
		m.mu.Unlock()
		for i := range 10 {
			m.mu.Lock()
			without := old
			without.Fields = old.Fields[:1]
			m.indexes["x"].schema = &without
			m.mu.Unlock()
			if reply := put(t, w, fmt.Sprintf(`{"id":"d%d","n":1}`, i)); !reply.OK {
				t.Errorf("%+v", reply.WriteReply)
			}
		}
	}
}

// TestTheFirstGroupWasReplaced makes the only member of group 0 an empty one: what others know of the index holds.
func TestTheFirstGroupWasReplaced(t *testing.T) {
	c := newCluster(t, 1, 1)
	w := c.writer(Options{})
	put(t, w, `{"id":"a","n":1}`)
	first := c.models["0/0"]
	first.mu.Lock()
	clear(first.indexes)
	first.mu.Unlock()
	other := c.writer(Options{})
	if _, err := other.Schema(t.Context(), "x", false); err != nil {
		t.Error(err)
	}
	_, err := other.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"b","n":"a word"}`)})
	problemOf(t, err, api.TypeConflict)
	for i := range 10 {
		put(t, other, fmt.Sprintf(`{"id":"c%d","n":2}`, i))
	}
	put(t, other, `{"id":"b","m":1}`)
	if wrong := c.sameSchemas("x"); wrong != "" {
		t.Error(wrong)
	}
}

// TestFieldsNeedTheFirstGroup takes group 0 away.
func TestFieldsNeedTheFirstGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2)
		w := c.writer(Options{})
		put(t, w, `{"id":"a","n":1}`)
		id := ""
		for i := 0; id == ""; i++ {
			if k := fmt.Sprint("d", i); c.State().Owner(k).Ordinal == 1 {
				id = k
			}
		}
		for _, f := range []fate{gone, hang} {
			for _, m := range c.group(0) {
				m.fates = func(string) fate { return f }
			}
			<-time.After(2 * time.Second) // the schema is not the newest any more
			if reply := put(t, w, `{"id":"`+id+`","n":2}`); !reply.OK {
				t.Errorf("%+v", reply)
			}
			_, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"` + id + `","m":2}`)})
			problemOf(t, err, api.GroupUnavailable)
			other := c.writer(Options{}) // one that learns of the schema from the other group
			if reply := put(t, other, `{"id":"`+id+`","n":2}`); !reply.OK {
				t.Errorf("%+v", reply)
			}
			_, err = w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "y"})
			if err == nil {
				t.Error("an index without the first group")
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, m := range c.all() {
			m.fates = func(string) fate { return gone }
		}
		_, err := w.Schema(t.Context(), "x", true)
		problemOf(t, err, api.GroupUnavailable)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRacedTypesEndAsOne lets two coordinators bring a field of one name in different types, again and again.
// A group that was added has no index yet, and does not speak for the first one while that cannot be reached.
func TestAnAddedGroupDoesNotSayThatThereIsNoIndex(t *testing.T) {
	c := newCluster(t, 2)
	w := c.writer(Options{Limits: Limits{SchemaAge: time.Nanosecond}})
	put(t, w, `{"id":"a","n":1}`)
	c.models["1/0"] = newModel("1/0")
	next, err := c.State().Map.AddGroup("1/0")
	if err != nil {
		t.Fatal(err)
	}
	c.setMap(next, c.all()...)
	for _, m := range c.group(0) {
		m.fates = func(string) fate { return gone }
	}
	for _, fresh := range []bool{false, true} {
		if sch, err := c.writer(Options{}).Schema(t.Context(), "x", fresh); !hasCode(err, api.GroupUnavailable) {
			t.Errorf("where nothing is known yet: %v, %v", sch, err)
		}
		if sch, err := w.Schema(t.Context(), "x", fresh); fresh && !hasCode(err, api.GroupUnavailable) || !fresh && err != nil {
			t.Errorf("fresh %t: %v, %v", fresh, sch, err)
		}
	}
	_, err = w.Index(t.Context(), &leaf.IndexRequest{Index: "y", Body: []byte(`{"id":"a"}`)})
	problemOf(t, err, api.GroupUnavailable)
}

func TestRacedTypesEndAsOne(t *testing.T) {
	c := newCluster(t, 2, 2)
	writers := []*Writer{c.writer(Options{}), c.writer(Options{})}
	values := []string{`1`, `"a word"`, `1.5`, `true`}
	type outcome struct{ took, refused int }
	for round := range 40 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var out outcome
		for i := range values {
			wg.Go(func() {
				w := writers[i%2]
				body := fmt.Sprintf(`{"id":"r%d-%d","f%d":%s}`, round, i, round, values[i])
				var err error
				failed := uint64(0)
				if i < 2 {
					_, err = w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(body)})
				} else {
					var reply *leaf.BulkReply
					if reply, err = w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(body)); err == nil {
						failed = reply.Failed
					}
				}
				mu.Lock()
				defer mu.Unlock()
				p, ok := errors.AsType[*api.Problem](err)
				switch {
				case err == nil && failed == 0:
					out.took++
				case err == nil, ok && p.Code == api.TypeConflict:
					out.refused++
				default:
					t.Errorf("%s: %v", body, err)
				}
			})
		}
		wg.Wait()
		if out.took < 1 {
			t.Errorf("round %d: %+v", round, out)
		}
	}
	if wrong := c.same("x") + c.sameSchemas("x"); wrong != "" {
		t.Error(wrong)
	}
}

func TestIndexesComeToAllMembers(t *testing.T) {
	c := newCluster(t, 2, 2)
	w := c.writer(Options{})
	r, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index other { field title: text<standard> [stored] }`})
	if err != nil || !r.Made || r.Info.Name != "x" || r.Below.Shards.OK != 4 || r.Below.Shards.Failed != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if wrong := c.sameSchemas("x"); wrong != "" || !strings.Contains(c.models["1/1"].sdl("x"), "title") {
		t.Error(wrong)
	}
	if _, err = w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index {`}); err == nil {
		t.Error("a schema that cannot be read")
	}
	problemOf(t, err, api.InvalidSchema)
	_, err = w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field title: i64 }`})
	problemOf(t, err, api.SchemaConflict)
	for i := range 10 {
		put(t, w, fmt.Sprintf(`{"id":"d%d","title":"a word"}`, i))
	}
	c.models["1/0"].during("PutIndex", gone, -1)
	r, err = w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field n: i64 [stored] }`})
	if err != nil || r.Made || r.Info.Docs != 10 || fmt.Sprint(r.Below.Shards.FailedAddresses) != "[1/0]" {
		t.Fatalf("%+v, %v", r, err)
	}
	c.models["1/0"].fates = nil
	if !strings.Contains(c.models["0/1"].sdl("x"), "n: i64") {
		t.Error("a member does not have the field")
	}
	// The first member is away: the second decides.
	c.models["0/0"].fates = func(string) fate { return gone }
	r, err = w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field m: i64 [stored] }`})
	if err != nil || fmt.Sprint(r.Below.Shards.FailedAddresses) != "[0/0]" {
		t.Fatalf("%+v, %v", r, err)
	}
	c.models["0/0"].fates = nil
	if r, err = w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x"}); err != nil || r.Below.Shards.Failed != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, m := range c.all() {
		if sdl := m.sdl("x"); !strings.Contains(sdl, "n: i64") || !strings.Contains(sdl, "m: i64") {
			t.Errorf("%s has %s", m.addr, sdl)
		}
	}
	c.models["0/1"].during("DropIndex", gone, -1)
	d, err := w.DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"})
	if err != nil || d.Info.Docs != 10 || d.Info.State != "deleted" || fmt.Sprint(d.Below.Shards.FailedAddresses) != "[0/1]" {
		t.Fatalf("%+v, %v", d, err)
	}
	_, err = w.DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"})
	problemOf(t, err, api.GroupUnavailable) // 0/1 may have it
	c.models["0/1"].fates = nil
	if d, err = w.DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"}); err != nil || d.Below.Shards.Failed != 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	_, err = w.DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"})
	problemOf(t, err, api.IndexNotFound)
	_, err = w.Schema(t.Context(), "x", false)
	problemOf(t, err, api.IndexNotFound)
}

// TestASlowMemberIsNotWaitedForToLearnASchema asks for a schema while the first member hangs.
func TestASlowMemberIsNotWaitedForToLearnASchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		w := c.writer(Options{})
		put(t, w, `{"id":"a","n":1}`)
		c.models["0/0"].fates = func(string) fate { return hang }
		began := time.Now()
		if _, err := w.Schema(context.WithoutCancel(t.Context()), "x", true); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > graceOfAsking+time.Millisecond {
			t.Errorf("after %v", took)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A search that knows a schema from before has its time for the search, though the first group hangs, and those after it do not wait at all.
func TestSearchesDoNotSpendTheirTimeOnAFirstGroupThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 1)
		w := c.writer(Options{})
		put(t, w, `{"id":"a","n":1}`)
		if _, err := w.Schema(t.Context(), "x", false); err != nil {
			t.Fatal(err)
		}
		ask := func(timeout time.Duration) time.Duration {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			began := time.Now()
			if sch, err := w.Schema(ctx, "x", false); err != nil || sch == nil {
				t.Errorf("with %v: %v", timeout, err)
			}
			return time.Since(began)
		}
		for _, m := range []string{"0/0", "0/1"} {
			c.models[m].fates = func(string) fate { return hang }
		}
		<-time.After(2 * time.Second)
		for i, timeout := range []time.Duration{400 * time.Millisecond, 100 * time.Millisecond, time.Hour} {
			most := time.Duration(0)
			if i == 0 {
				most = timeout / 4
			}
			if took := ask(timeout); took > most {
				t.Errorf("with %v: after %v", timeout, took)
			}
		}
		<-time.After(blinded)
		if took := ask(time.Hour); took > longGlance {
			t.Errorf("after %v", took)
		}
		// A change is seen once the members are back.
		for _, m := range []string{"0/0", "0/1"} {
			c.models[m].fates = nil
		}
		put(t, c.writer(Options{}), `{"id":"b","n":1,"title":"new"}`)
		<-time.After(blinded)
		sch, err := w.Schema(t.Context(), "x", false)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := sch.Lookup("title"); !ok {
			t.Errorf("it has not the new field: %s", sch.SDL())
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestTheFirstGroupIsWaitedForWhereOthersKnowNothing: that another group does not have an index says nothing, and however quickly it says so, the
// first group is asked to the end.
func TestTheFirstGroupIsWaitedForWhereOthersKnowNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		w := c.writer(Options{})
		c.models["0/0"].before = func(ctx context.Context, call string) {
			if call != "Info" {
				return
			}
			busy := time.NewTimer(5 * graceOfAsking)
			defer busy.Stop()
			select {
			case <-busy.C:
			case <-ctx.Done():
			}
		}
		reply, err := w.Index(context.WithoutCancel(t.Context()), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":1}`)})
		if err != nil || !reply.OK {
			t.Errorf("%+v, %v", reply, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}
