package write

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// loses makes a member one with an empty disk. No call has failed meanwhile.
func (m *model) loses() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.indexes)
}

// TestAMemberThatLostItsDiskMakesNoIndexOfItsOwn: a member loses its disk between two calls. The next write would have it infer fields that
// were declared otherwise, and the two would never come together.
func TestAMemberThatLostItsDiskMakesNoIndexOfItsOwn(t *testing.T) {
	const declared = `index x { field id: text<raw> [primary, stored] field n: f64 [stored] field s: text<raw> [stored] }`
	ways := map[string]func(t *testing.T, w *Writer){
		"a document": func(t *testing.T, w *Writer) {
			if reply := put(t, w, `{"id":"new","n":1,"s":"a b"}`); !reply.OK || len(reply.Inferred) > 0 {
				t.Errorf("%+v", reply.WriteReply)
			}
		},
		"a load": func(t *testing.T, w *Writer) {
			if reply := bulkOf(t, w, `{"id":"new","n":1,"s":"a b"}`); !reply.OK || len(reply.Inferred) > 0 {
				t.Errorf("%+v", reply.BulkReply)
			}
		},
		"a load with a key": func(t *testing.T, w *Writer) {
			for i := range 2 {
				if reply, err := keyed(w, "k", `{"id":"new","n":1,"s":"a b"}`); err != nil || !reply.OK || reply.Repeated != (i == 1) {
					t.Errorf("%+v, %v", reply, err)
				}
			}
		},
	}
	for name, write := range ways {
		for _, sizes := range [][]int{{2}, {1, 1}, {2, 2}} {
			for victim := range sizes[0] + 1 {
				t.Run(name, func(t *testing.T) {
					c := newCluster(t, sizes...)
					w := c.writer(Options{})
					if _, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: declared}); err != nil {
						t.Fatal(err)
					}
					bulkOf(t, w, `{"id":"a"}`+"\n"+`{"id":"b"}`+"\n"+`{"id":"c"}`)
					members := c.all()
					members[victim%len(members)].loses()
					write(t, w)
					put(t, w, `{"id":"last"}`) // of a group to which nothing went
					own := c.State().Owner("new").Ordinal
					for _, m := range members {
						if sdl := m.sdl("x"); sdl != "" && !strings.Contains(sdl, "n: f64") {
							t.Errorf("%s has %s", m.addr, sdl)
						}
						if _, ok := m.docs("x")["new"]; ok != slices.Contains(c.group(own), m) {
							t.Errorf("%s has the document: %t", m.addr, ok)
						}
					}
				})
			}
		}
	}
}

// TestAWriteAfterADeletionMakesTheIndexAnew: another coordinator deleted the index. What is written after that is typed by nothing of before.
func TestAWriteAfterADeletionMakesTheIndexAnew(t *testing.T) {
	c := newCluster(t, 2, 1)
	w, other := c.writer(Options{}), c.writer(Options{})
	put(t, w, `{"id":"a","n":1}`)
	for range 3 {
		for _, value := range []string{`"a word"`, `1`} {
			if _, err := other.DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"}); err != nil {
				t.Fatal(err)
			}
			if reply := put(t, w, `{"id":"a","n":`+value+`}`); !reply.OK || len(reply.Inferred) != 1 {
				t.Errorf("%s: %+v", value, reply.WriteReply)
			}
			if wrong := c.sameSchemas("x"); wrong != "" {
				t.Error(wrong)
			}
		}
	}
}

// TestALoadEndsWhenItsIndexIsDeleted: as on one node, nothing is made anew half way.
func TestALoadEndsWhenItsIndexIsDeleted(t *testing.T) {
	c := newCluster(t, 2)
	w, other := c.writer(Options{}), c.writer(Options{})
	w.chunkDocs = 4
	put(t, w, `{"id":"a","n":1}`)
	var once sync.Once
	for _, m := range c.all() {
		m.before = func(_ context.Context, call string) {
			if call == "Bulk" {
				once.Do(func() {
					if _, err := other.DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"}); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	reply, err := w.Load(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(numbered(0, 4)), LoadOptions{Whole: true})
	if p := problemOf(t, err, api.IndexDeleted); reply != nil || p.Field != "index" {
		t.Errorf("%+v, %+v", reply, p)
	}
	for _, m := range c.all() {
		if m.sdl("x") != "" {
			t.Errorf("%s has the index again", m.addr)
		}
	}
}

// TestACoordinatorBelowMakesNoIndexThatHasToBeThere: the cluster below a coordinator lost everything, and is given the declared index again.
func TestACoordinatorBelowMakesNoIndexThatHasToBeThere(t *testing.T) {
	under := newCluster(t, 1, 1)
	_, w := stack(t, 1, under)
	if _, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field id: text<raw> [primary, stored] field n: f64 [stored] }`}); err != nil {
		t.Fatal(err)
	}
	put(t, w, `{"id":"a","n":1}`)
	below := under.writer(Options{})
	for _, m := range under.all() {
		m.loses()
	}
	_, err := below.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"b","n":1}`), Existing: true})
	problemOf(t, err, api.IndexNotFound)
	_, err = below.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Existing: true}, strings.NewReader(`{"id":"b","n":1}`))
	problemOf(t, err, api.IndexNotFound)
	_, err = below.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "k", Existing: true}, strings.NewReader(""))
	problemOf(t, err, api.IndexNotFound)
	if len(contents(under)) > 0 || under.models["0/0"].sdl("x") != "" {
		t.Error("the index was made")
	}
}

// TestAMemberThatLosesItsDiskAfterAWriteIsNoExample: the first member has taken a write, and lost its disk before the members are compared. The
// others must not be made equal to that.
func TestAMemberThatLosesItsDiskAfterAWriteIsNoExample(t *testing.T) {
	c := newCluster(t, 2)
	hints := &hintBook{}
	w := c.writer(Options{Hints: hints})
	put(t, w, `{"id":"a","n":1}`)
	c.forget()
	first, second := c.models["0/0"], c.models["0/1"]
	first.after = func(_ context.Context, call string) {
		if call == "Index" {
			first.loses()
		}
	}
	reply := put(t, w, `{"id":"a","n":2}`)
	if reply.OK || !slices.Equal(reply.Members.FailedAddresses, []string{"0/0"}) || !slices.Equal(hints.of("0/0"), []string{"x/a"}) {
		t.Errorf("%+v, hints %v", reply.WriteReply, hints.of("0/0"))
	}
	if got := second.docs("x"); !maps.Equal(got, map[string]string{"a": `{"id":"a","n":2}`}) {
		t.Errorf("the other has %v", got)
	}
}

// TestAMemberThatLostItsDiskWhileOthersAreAwayMakesNoIndexOfItsOwn: the member that is there lacks the index, and those that have it do not answer.
// That is no deletion.
func TestAMemberThatLostItsDiskWhileOthersAreAwayMakesNoIndexOfItsOwn(t *testing.T) {
	c := newCluster(t, 2)
	w := c.writer(Options{})
	if _, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field id: text<raw> [primary, stored] field n: f64 [stored] }`}); err != nil {
		t.Fatal(err)
	}
	put(t, w, `{"id":"a","n":1}`)
	lost, away := c.models["0/0"], c.models["0/1"]
	lost.loses()
	away.fates = func(string) fate { return gone }
	reply, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"b","n":2}`)})
	if err != nil || reply.OK || !slices.Equal(reply.Members.FailedAddresses, []string{"0/1"}) || len(reply.Inferred) > 0 {
		t.Errorf("%+v, %v", reply, err)
	}
	if sdl := lost.sdl("x"); !strings.Contains(sdl, "n: f64") {
		t.Errorf("it has %s", sdl)
	}
	away.fates = nil
	if reply := put(t, w, `{"id":"c","n":3}`); !reply.OK {
		t.Errorf("%+v", reply.WriteReply)
	}
	if wrong := c.sameSchemas("x"); wrong != "" {
		t.Error(wrong)
	}
	// When all say that it was deleted it was.
	if _, err := c.writer(Options{}).DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"}); err != nil {
		t.Fatal(err)
	}
	if reply := put(t, w, `{"id":"b","n":2}`); !reply.OK || len(reply.Inferred) != 1 {
		t.Errorf("%+v", reply.WriteReply)
	}
}
