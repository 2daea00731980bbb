package write

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/store"
)

var update = flag.Bool("update", false, "write the golden files of the current formats anew")

// link is the way of one coordinator to a member.
type link struct {
	*model
	cut   *atomic.Bool
	unfit *atomic.Bool // the member refuses every schema
}

func over[R any](l link, call string, fn func() (*R, error)) (*R, error) {
	if l.cut.Load() {
		return nil, &leaf.TransportError{Address: l.addr, Call: call, Cause: errors.New("there is no way")}
	}
	if call == "PutIndex" && l.unfit.Load() {
		return nil, api.NewProblem(api.InvalidSchema, "it does not suit")
	}
	return fn()
}

func (l link) Info(ctx context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return over(l, "Info", func() (*leaf.InfoReply, error) { return l.model.Info(ctx, req) })
}

func (l link) PutIndex(ctx context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return over(l, "PutIndex", func() (*leaf.PutIndexReply, error) { return l.model.PutIndex(ctx, req) })
}

func (l link) DropIndex(ctx context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return over(l, "DropIndex", func() (*leaf.DropIndexReply, error) { return l.model.DropIndex(ctx, req) })
}

func (l link) Index(ctx context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return over(l, "Index", func() (*leaf.IndexReply, error) { return l.model.Index(ctx, req) })
}

func (l link) Bulk(ctx context.Context, req *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	return over(l, "Bulk", func() (*leaf.BulkReply, error) { return l.model.Bulk(ctx, req, body) })
}

func (l link) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return over(l, "Sums", func() (*leaf.SumsReply, error) { return l.model.Sums(ctx, req) })
}

func (l link) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	return over(l, "Export", func() (*leaf.ExportReply, error) { return l.model.Export(ctx, req, each) })
}

func (l link) Sync(ctx context.Context, req *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return over(l, "Sync", func() (*leaf.SyncReply, error) { return l.model.Sync(ctx, req) })
}

// side is a coordinator with ways of its own to the members.
type side struct {
	*Writer
	st    *members.State
	unfit atomic.Bool
	cuts  map[string]*atomic.Bool
}

func (s *side) State() *members.State { return s.st }

func (s *side) Stale(context.Context, *members.State) (*members.State, error) {
	return nil, errors.New("there is no newer map")
}

// reach leaves the coordinator the ways to these members alone; none of them means all.
func (s *side) reach(addrs ...string) {
	for addr, cut := range s.cuts {
		cut.Store(len(addrs) > 0 && !strings.Contains(" "+strings.Join(addrs, " ")+" ", " "+addr+" "))
	}
}

func (c *cluster) side(o Options) *side {
	c.t.Helper()
	s := &side{cuts: map[string]*atomic.Bool{}}
	st, err := members.NewState(c.State().Map, nil, func(addr string) (leaf.Member, error) {
		s.cuts[addr] = &atomic.Bool{}
		return link{c.models[addr], s.cuts[addr], &s.unfit}, nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	s.st = st
	if s.Writer, err = New(s, o); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return s
}

func one(s *side, index, body string) error {
	_, err := s.Index(context.Background(), &leaf.IndexRequest{Index: index, Body: []byte(body)})
	return err
}

// TestCoordinatorsThatReachDifferentMembersTakeAFieldForOneType cuts two coordinators off from the member that the other one reaches.
func TestCoordinatorsThatReachDifferentMembersTakeAFieldForOneType(t *testing.T) {
	for _, made := range []bool{false, true} {
		for _, order := range [][2]string{{"0/0", "0/1"}, {"0/1", "0/0"}} {
			t.Run(fmt.Sprint(made, order), func(t *testing.T) {
				c, s := newCluster(t, 2), store.NewMemory(nil)
				a, b := c.side(Options{Store: s}), c.side(Options{Store: s})
				if made {
					if err := one(a, "x", `{"id":"begin"}`); err != nil {
						t.Fatal(err)
					}
				}
				a.reach(order[0])
				b.reach(order[1])
				if err := one(a, "x", `{"id":"a","n":1}`); err != nil {
					t.Fatal(err)
				}
				problemOf(t, one(b, "x", `{"id":"b","n":"a word"}`), api.TypeConflict)
				if err := one(b, "x", `{"id":"b","n":2,"m":5}`); err != nil {
					t.Error(err)
				}
				problemOf(t, one(a, "x", `{"id":"a","m":"a word"}`), api.TypeConflict)
				a.reach()
				b.reach()
				for i := range 8 {
					if err := one(a, "x", fmt.Sprintf(`{"id":"c%d","n":3,"m":7}`, i)); err != nil {
						t.Error(err)
					}
				}
				for _, m := range c.all() {
					if sdl := m.sdl("x"); !strings.Contains(sdl, "n: i64") || !strings.Contains(sdl, "m: i64") {
						t.Errorf("%s has %s", m.addr, sdl)
					}
				}
			})
		}
	}
}

// TestDeclaredFieldsAreAgreedOn lets one coordinator declare fields that another one infers, where they reach different members.
func TestDeclaredFieldsAreAgreedOn(t *testing.T) {
	c, s := newCluster(t, 2), store.NewMemory(nil)
	a, b := c.side(Options{Store: s}), c.side(Options{Store: s})
	a.reach("0/0")
	b.reach("0/1")
	declare := func(w *side, index, fields string) error {
		_, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: index, Schema: "index x { field id: text<raw> [primary, stored] " + fields + " }"})
		return err
	}
	if err := declare(a, "x", "field n: i64 [stored]"); err != nil {
		t.Fatal(err)
	}
	// It takes no other fields from documents, which the second one learns.
	problemOf(t, one(b, "x", `{"id":"b","m":1}`), api.UnknownField)
	if err := one(b, "x", `{"id":"b","n":1}`); err != nil {
		t.Error(err)
	}
	problemOf(t, declare(b, "x", "field n: text<raw> [stored]"), api.SchemaConflict)
	if err := declare(b, "x", "field m: text<raw> [stored]"); err != nil {
		t.Error(err)
	}
	problemOf(t, declare(a, "x", "field m: i64 [stored]"), api.SchemaConflict)
	// Of a schema that is refused nothing is agreed on: the first member has another key.
	if _, err := a.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field key: text<raw> [primary, stored] field q: i64 [stored] }`}); err == nil {
		t.Error("another key")
	}
	if err := declare(b, "x", "field q: text<raw> [stored]"); err != nil {
		t.Error(err)
	}
	a.reach()
	b.reach()
	if err := declare(a, "x", "field r: i64 [stored]"); err != nil {
		t.Error(err)
	}
	for _, m := range c.all() {
		if sdl := m.sdl("x"); !strings.Contains(sdl, "n: i64") || !strings.Contains(sdl, "m: text") || !strings.Contains(sdl, "q: text") || !strings.Contains(sdl, "r: i64") {
			t.Errorf("%s has %s", m.addr, sdl)
		}
	}
}

// TestARefusedDeclarationIsTakenBack lets the member that decides refuse what was agreed on.
func TestARefusedDeclarationIsTakenBack(t *testing.T) {
	c, s := newCluster(t, 2), store.NewMemory(nil)
	w := c.side(Options{Store: s})
	for _, live := range []bool{false, true} {
		if live {
			if err := one(w, "x", `{"id":"a"}`); err != nil {
				t.Fatal(err)
			}
		}
		before, _, _ := recorded(t, s, "x")
		w.unfit.Store(true)
		_, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field n: i64 [stored] }`})
		problemOf(t, err, api.InvalidSchema)
		w.unfit.Store(false)
		if after, _, _ := recorded(t, s, "x"); after != before {
			t.Errorf("agreed on %q, before on %q", after, before)
		}
		if err := one(w, "x", fmt.Sprintf(`{"id":"a","n%t":"word"}`, live)); err != nil {
			t.Error(err)
		}
	}
}

// recorded is what is agreed on.
func recorded(t testing.TB, s store.Store, index string) (sdl string, rev uint64, there bool) {
	t.Helper()
	a, err := (&book{s: s}).read(context.Background(), index)
	if err != nil {
		t.Fatal(err)
	}
	return a.record.Schema, a.record.Rev, a.tag != ""
}

// TestWhatNoMemberHasYetIsCompleted begins with what a coordinator that died has left.
func TestWhatNoMemberHasYetIsCompleted(t *testing.T) {
	for _, made := range []bool{false, true} {
		c, s := newCluster(t, 2), store.NewMemory(nil)
		a := c.side(Options{Store: s})
		if made {
			if err := one(a, "x", `{"id":"begin"}`); err != nil {
				t.Fatal(err)
			}
		}
		// The members go away between the two.
		for _, m := range c.all() {
			m.fates = func(call string) fate {
				if call == "PutIndex" {
					return gone
				}
				return fine
			}
		}
		problemOf(t, one(a, "x", `{"id":"a","n":1}`), api.GroupUnavailable)
		for _, m := range c.all() {
			m.fates = nil
		}
		if sdl, _, _ := recorded(t, s, "x"); !strings.Contains(sdl, "n: i64") {
			t.Fatal(sdl)
		}
		b := c.side(Options{Store: s})
		if made {
			// It stands in the way of nothing.
			if err := one(b, "x", `{"id":"begin"}`); err != nil {
				t.Error(err)
			}
		}
		problemOf(t, one(b, "x", `{"id":"b","n":"a word"}`), api.TypeConflict)
		if err := one(b, "x", `{"id":"b","m":true}`); err != nil {
			t.Error(err)
		}
		if err := one(a, "x", `{"id":"a","n":1}`); err != nil {
			t.Error(err)
		}
		if wrong := c.same("x") + c.sameSchemas("x"); wrong != "" || !strings.Contains(c.models["0/0"].sdl("x"), "n: i64") {
			t.Error(wrong, c.models["0/0"].sdl("x"))
		}
	}
}

// TestAnIndexThatIsMadeAnewBeginsAnew deletes an index, and one that only a dead coordinator has agreed on.
func TestAnIndexThatIsMadeAnewBeginsAnew(t *testing.T) {
	c, s := newCluster(t, 2), store.NewMemory(nil)
	w := c.side(Options{Store: s})
	if err := one(w, "x", `{"id":"a","n":1}`); err != nil {
		t.Fatal(err)
	}
	drop := func() error {
		_, err := w.DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"})
		return err
	}
	if err := drop(); err != nil {
		t.Fatal(err)
	}
	if _, _, there := recorded(t, s, "x"); there {
		t.Error("it is there still")
	}
	reply, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: `index x { field n: text<standard> [stored] }`})
	if err != nil || !reply.Made {
		t.Fatalf("%+v, %v", reply, err)
	}
	if err := drop(); err != nil {
		t.Fatal(err)
	}
	left := &agreed{record: agreedRecord{Format: agreedFormat}}
	ty, err := w.schemas.of(w.Writer, "x").parse(`index x { field n: i64 [stored] }`)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.book.swap(t.Context(), "x", left, ty); err != nil {
		t.Fatal(err)
	}
	problemOf(t, one(w, "x", `{"id":"a","n":"word"}`), api.TypeConflict)
	if err := drop(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.book.swap(t.Context(), "x", left, ty); err != nil {
		t.Fatal(err)
	}
	problemOf(t, drop(), api.IndexNotFound)
	if err := one(w, "x", `{"id":"a","n":"word"}`); err != nil {
		t.Error(err)
	}
}

// failingStore can be taken away.
type failingStore struct {
	store.Store
	away  atomic.Bool
	calls atomic.Int64
}

func (s *failingStore) err() error {
	s.calls.Add(1)
	if s.away.Load() {
		return errors.New("the store is away")
	}
	return nil
}

func (s *failingStore) Get(ctx context.Context, key string) (io.ReadCloser, store.Info, error) {
	if err := s.err(); err != nil {
		return nil, store.Info{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s *failingStore) Put(ctx context.Context, key string, r io.Reader, size int64, c store.Condition) (string, error) {
	if err := s.err(); err != nil {
		return "", err
	}
	return s.Store.Put(ctx, key, r, size, c)
}

func (s *failingStore) Delete(ctx context.Context, key string) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.Store.Delete(ctx, key)
}

// TestWithoutTheStoreOnlyNewFieldsAreRefused takes the store away.
func TestWithoutTheStoreOnlyNewFieldsAreRefused(t *testing.T) {
	c, s := newCluster(t, 2), &failingStore{Store: store.NewMemory(nil)}
	w := c.side(Options{Store: s})
	if err := one(w, "x", `{"id":"a","n":1}`); err != nil {
		t.Fatal(err)
	}
	s.away.Store(true)
	before := s.calls.Load()
	for i := range 5 {
		if err := one(w, "x", fmt.Sprintf(`{"id":"b%d","n":2}`, i)); err != nil {
			t.Error(err)
		}
		if _, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x"}); err != nil {
			t.Error(err)
		}
	}
	if n := s.calls.Load() - before; n != 0 {
		t.Errorf("the store was called %d times", n)
	}
	for range 5 {
		p := problemOf(t, one(w, "x", `{"id":"c","m":2}`), api.NotReady)
		if p.RetryAfterMS == 0 {
			t.Error("nobody is told to try again")
		}
	}
	if n := s.calls.Load() - before; n > 3 {
		t.Errorf("a store that is away was called %d times", n)
	}
	_, err := w.DropIndex(t.Context(), &leaf.DropIndexRequest{Index: "x"})
	problemOf(t, err, api.NotReady)
	_, err = w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "y"})
	problemOf(t, err, api.NotReady)
	for _, m := range c.all() {
		if m.sdl("x") == "" || strings.Contains(m.sdl("x"), "m:") || m.sdl("y") != "" {
			t.Errorf("%s was changed", m.addr)
		}
	}
	s.away.Store(false)
	other := c.side(Options{Store: s})
	if err := one(other, "x", `{"id":"c","m":2}`); err != nil {
		t.Error(err)
	}
}

// TestFieldsThatAreOlderThanTheStoreAreTakenOver gives a cluster a store.
func TestFieldsThatAreOlderThanTheStoreAreTakenOver(t *testing.T) {
	c, s := newCluster(t, 2), store.NewMemory(nil)
	if err := one(c.side(Options{}), "x", `{"id":"a","n":1}`); err != nil {
		t.Fatal(err)
	}
	a := c.side(Options{Store: s})
	if err := one(a, "x", `{"id":"a","m":1}`); err != nil {
		t.Fatal(err)
	}
	if sdl, rev, _ := recorded(t, s, "x"); rev != 1 || !strings.Contains(sdl, "n: i64") || !strings.Contains(sdl, "m: i64") {
		t.Errorf("%d, %s", rev, sdl)
	}
	// One without a store goes on beside it: its field is taken over with the next one.
	if err := one(c.side(Options{}), "x", `{"id":"a","o":"word"}`); err != nil {
		t.Fatal(err)
	}
	if err := one(c.side(Options{Store: s}), "x", `{"id":"a","p":1}`); err != nil {
		t.Fatal(err)
	}
	if sdl, rev, _ := recorded(t, s, "x"); rev != 2 || !strings.Contains(sdl, "o: text") {
		t.Errorf("%d, %s", rev, sdl)
	}
}

// TestWhatMembersHaveIsRight lets the object have a stored field in another way.
func TestWhatMembersHaveIsRight(t *testing.T) {
	c, s := newCluster(t, 2), store.NewMemory(nil)
	w := c.side(Options{Store: s})
	other, err := w.schemas.of(w.Writer, "x").parse(`index x { field n: text<standard> [stored] field o: i64 [stored] }`)
	if err != nil {
		t.Fatal(err)
	}
	if err := one(c.side(Options{}), "x", `{"id":"a","n":1}`); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.book.swap(t.Context(), "x", &agreed{}, other); err != nil {
		t.Fatal(err)
	}
	if err := one(w, "x", `{"id":"b","n":2,"m":1}`); err != nil {
		t.Error(err)
	}
	problemOf(t, one(w, "x", `{"id":"c","o":"word"}`), api.TypeConflict)
	if wrong := c.same("x") + c.sameSchemas("x"); wrong != "" {
		t.Error(wrong)
	}
}

// TestPartitionedCoordinatorsAgree cuts links at random while coordinators bring fields of any type; at the end all members have
// one schema and the same documents type by it.
func TestPartitionedCoordinatorsAgree(t *testing.T) {
	values := []string{`1`, `"a word"`, `1.5`, `true`}
	for seed := range uint64(rounds(t, 4, 12)) {
		c, s := newCluster(t, 2, 2), store.NewMemory(nil)
		sides := []*side{c.side(Options{Store: s}), c.side(Options{Store: s}), c.side(Options{Store: s})}
		var wg sync.WaitGroup
		for k, w := range sides {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(k)))
				for n := range 60 {
					switch r.IntN(4) {
					case 0:
						w.reach(fmt.Sprint("0/", r.IntN(2)), fmt.Sprint("1/", r.IntN(2)))
					case 1:
						w.reach()
					}
					body := fmt.Sprintf(`{"id":"%d-%d","f%d":%s}`, k, n, r.IntN(20), values[r.IntN(len(values))])
					err := one(w, "x", body)
					p, ok := errors.AsType[*api.Problem](err)
					if err != nil && (!ok || p.Code != api.TypeConflict && p.Code != api.SchemaConflict) {
						t.Errorf("%s: %v", body, err)
					}
				}
				w.reach()
			})
		}
		wg.Wait()
		last := sides[0]
		for i := range 40 {
			if err := one(last, "x", fmt.Sprintf(`{"id":"end%d","g%d":1}`, i, i)); err != nil {
				t.Fatal(err)
			}
		}
		agreed, _, _ := recorded(t, s, "x")
		for _, m := range c.all() {
			for line := range strings.Lines(m.sdl("x")) {
				if !strings.Contains(agreed, line) {
					t.Errorf("seed %d: %s has %s, agreed is\n%s", seed, m.addr, line, agreed)
				}
			}
		}
	}
}

// TestAgreedGolden pins format 1.
func TestAgreedGolden(t *testing.T) {
	name := filepath.Join("testdata", "fields_v1.json")
	s := store.NewMemory(nil)
	b := &book{s: s}
	c := newCluster(t, 1)
	w := c.side(Options{})
	sch, err := w.schemas.of(w.Writer, "logs").parse(`index logs { field id: text<raw> [primary, stored] field size: i64 [stored] }`)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.swap(t.Context(), "logs", &agreed{record: agreedRecord{Rev: 2}}, sch); err != nil {
		t.Fatal(err)
	}
	if key := agreedKey("logs"); key != "topology/fields/logs.json" {
		t.Error(key)
	}
	got, _, err := store.ReadAll(t.Context(), s, agreedKey("logs"), maxAgreed)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("encoded as\n%s, want\n%s", got, want)
	}
	if r, err := decodeAgreed(want); err != nil || r.Rev != 3 || r.Schema != sch.SDL() {
		t.Errorf("decoded as %+v, %v", r, err)
	}
	if _, err := decodeAgreed([]byte(`{"format":2}`)); !errors.Is(err, errAgreedFormat) {
		t.Error(err)
	}
}

// TestASchemaThatIsTooLongToAgreeOn: the members decide, as without a store.
func TestASchemaThatIsTooLongToAgreeOn(t *testing.T) {
	c, s := newCluster(t, 2), store.NewMemory(nil)
	w := c.side(Options{Store: s})
	var sdl strings.Builder
	sdl.WriteString("index x {")
	for i := range 6000 {
		fmt.Fprintf(&sdl, " field f%0200d: i64 [stored]", i)
	}
	sdl.WriteString(" }")
	if _, err := w.PutIndex(t.Context(), &leaf.PutIndexRequest{Index: "x", Schema: sdl.String()}); err != nil {
		t.Fatal(err)
	}
	if _, _, there := recorded(t, s, "x"); there {
		t.Error("it was written")
	}
	if wrong := c.sameSchemas("x"); wrong != "" || c.models["0/0"].sdl("x") == "" {
		t.Error(wrong)
	}
}
