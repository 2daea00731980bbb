package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var books = store.Name{Namespace: "acme", Collection: "books"}

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// bench is a collection on a store that a test can look into.
type bench struct {
	t   testing.TB
	s   store.Store
	c   *store.Catalog
	clk *clock
}

func newBench(t testing.TB) *bench {
	clk := newClock()
	s := store.NewMemory(clk.now)
	return &bench{t: t, s: s, clk: clk, c: store.NewCatalog(s, store.CatalogOptions{Now: clk.now})}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func schema(gen uint64) store.SchemaRef {
	return store.SchemaRef{Generation: gen, Format: "sdl", Text: "schema books { }"}
}

// object writes a segment or delete set.
func object(ctx context.Context, c *store.Catalog, kind string, b []byte) (o store.Object, id string, release func() error, err error) {
	w, err := c.NewObject(ctx, books, kind)
	if err != nil {
		return o, "", nil, err
	}
	if _, err := w.Write(b); err != nil {
		return o, "", nil, errors.Join(err, w.Release())
	}
	if o, err = w.Commit(ctx); err != nil {
		return o, "", nil, errors.Join(err, w.Release())
	}
	return o, w.ID(), w.Release, nil
}

// commit publishes a version with one more segment of 100 documents and a delete set for it; the segments of prev stay if keep.
func commit(ctx context.Context, c *store.Catalog, prev *store.Version, keep bool) (v *store.Version, err error) {
	m := &store.Manifest{Schema: schema(1)}
	if prev != nil {
		m.CommitTS, m.LogSeq = prev.Manifest.CommitTS+10, prev.Manifest.LogSeq+5
		if keep {
			m.Segments, m.Deletes = prev.Manifest.Segments, prev.Manifest.Deletes
		}
	}
	o, id, release, err := object(ctx, c, store.KindSegment, fmt.Appendf(nil, "segment after %d", m.LogSeq))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	m.Segments = append(slices.Clone(m.Segments), store.Segment{ID: id, Object: o.Key, Docs: 100, Bytes: o.Bytes, Checksum: o.Checksum, MinKey: "a", MaxKey: "z", MaxCommitTS: m.CommitTS})
	dead := bitset.New(100)
	dead.Add(7)
	dead.Add(99)
	d, _, release2, err := object(ctx, c, store.KindDeletes, store.EncodeDeletes(store.DeleteSet{Segment: id, Generation: 1, Docs: 100, Dead: dead}))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release2()) }()
	m.Deletes = append(slices.Clone(m.Deletes), store.DeleteRef{Segment: id, Generation: 1, Object: d.Key, Count: 2, Bytes: d.Bytes, Checksum: d.Checksum})
	if prev == nil {
		return c.Create(ctx, books, m)
	}
	return c.Publish(ctx, prev, m)
}

func (b *bench) commit(prev *store.Version, keep bool) *store.Version {
	b.t.Helper()
	return must[*store.Version](b.t)(commit(b.t.Context(), b.c, prev, keep))
}

func (b *bench) keys() []string {
	var out []string
	if err := b.s.List(b.t.Context(), "", func(in store.Info) error { out = append(out, in.Key); return nil }); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) put(key string, content []byte) {
	b.t.Helper()
	if _, err := b.s.Put(b.t.Context(), key, bytes.NewReader(content), int64(len(content)), store.Condition{}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) get(key string) []byte {
	b.t.Helper()
	out, _, err := store.ReadAll(b.t.Context(), b.s, key, 1<<20)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func TestPublishChain(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	if _, err := b.c.Open(ctx, books); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("%v", err)
	}
	v := b.commit(nil, true)
	if _, err := b.c.Create(ctx, books, &store.Manifest{Schema: schema(1)}); !errors.Is(err, store.ErrPrecondition) {
		t.Fatalf("created twice: %v", err)
	}
	first := v.Pointer
	for i := range 4 {
		v = b.commit(v, true)
		got := must[*store.Version](t)(b.c.Open(ctx, books))
		if !cmp.Equal(got, v) || got.Pointer.Version != uint64(i+2) || len(got.Manifest.Segments) != i+2 {
			t.Fatal(cmp.Diff(v, got))
		}
		for _, d := range got.Manifest.Deletes {
			i := slices.IndexFunc(got.Manifest.Segments, func(s store.Segment) bool { return s.ID == d.Segment })
			set := must[store.DeleteSet](t)(b.c.LoadDeletes(ctx, got.Manifest.Segments[i], d))
			if !set.Dead.Has(7) || !set.Dead.Has(99) || set.Dead.Count() != 2 {
				t.Fatalf("%+v", set)
			}
			other := got.Manifest.Segments[i]
			other.Docs = 99
			if _, err := b.c.LoadDeletes(ctx, other, d); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("delete set of another segment: %v", err)
			}
		}
	}
	old := must[*store.Version](t)(b.c.OpenAt(ctx, books, first))
	if old.Manifest.Version != 1 || old.HeadETag != "" {
		t.Fatalf("%+v", old)
	}
	if _, err := b.c.Publish(ctx, old, v.Manifest); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("published after a version opened by pointer: %v", err)
	}
	back := *v.Manifest
	back.LogSeq--
	if _, err := b.c.Publish(ctx, v, &back); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("published with a log record before: %v", err)
	}
	if got := must[[]store.Name](t)(b.c.List(ctx)); !slices.Equal(got, []store.Name{books}) {
		t.Fatalf("%v", got)
	}
}

func TestCASRace(t *testing.T) {
	b := newBench(t)
	v := b.commit(nil, true)
	b.commit(v, true)
	before := b.keys()
	lost := *v.Manifest
	if _, err := b.c.Publish(t.Context(), v, &lost); !errors.Is(err, store.ErrPrecondition) {
		t.Fatalf("%v", err)
	}
	if after := b.keys(); !slices.Equal(before, after) {
		t.Fatalf("a lost race left %s", cmp.Diff(before, after))
	}
	// Many writers: each version is published by exactly one of them.
	const writers, each = 5, 4
	var mu sync.Mutex
	won := map[uint64]int{}
	var wg sync.WaitGroup
	for range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; n < each; {
				prev, err := b.c.Open(context.Background(), books)
				if err != nil {
					t.Error(err)
					return
				}
				next := *prev.Manifest
				next.LogSeq++
				v, err := b.c.Publish(context.Background(), prev, &next)
				if err == nil {
					n++
					mu.Lock()
					won[v.Pointer.Version]++
					mu.Unlock()
				} else if !errors.Is(err, store.ErrPrecondition) {
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	v = must[*store.Version](t)(b.c.Open(t.Context(), books))
	if v.Pointer.Version != 2+writers*each || len(won) != writers*each {
		t.Fatalf("version %d, won %v", v.Pointer.Version, won)
	}
}

func TestInvalidManifests(t *testing.T) {
	b := newBench(t)
	v := b.commit(nil, true)
	for place, spoil := range map[string]func(m *store.Manifest){
		"/segments/0/id":            func(m *store.Manifest) { m.Segments[0].ID = "7" },
		"/segments/0/object":        func(m *store.Manifest) { m.Segments[0].Object = "elsewhere" },
		"/segments/0/bytes":         func(m *store.Manifest) { m.Segments[0].Bytes = 0 },
		"/segments/0/checksum":      func(m *store.Manifest) { m.Segments[0].Checksum = "xxh3:1" },
		"/segments/0/docs":          func(m *store.Manifest) { m.Segments[0].Docs = 0 },
		"/segments/0/tier":          func(m *store.Manifest) { m.Segments[0].Tier = "tepid" },
		"/segments/0/min_key":       func(m *store.Manifest) { m.Segments[0].MinKey = "zz" },
		"/segments/0/max_commit_ts": func(m *store.Manifest) { m.Segments[0].MaxCommitTS = 1 << 60 },
		"/segments/1":               func(m *store.Manifest) { m.Segments = append(m.Segments, m.Segments[0]) },
		"/deletes/0/count":          func(m *store.Manifest) { m.Deletes[0].Count = 101 },
		"/deletes/0/segment":        func(m *store.Manifest) { m.Deletes[0].Segment = "x" },
		"/deletes/1/segment":        func(m *store.Manifest) { m.Deletes = append(m.Deletes, m.Deletes[0]) },
		"/schema/format":            func(m *store.Manifest) { m.Schema.Format = "xml" },
	} {
		m := *v.Manifest
		m.Segments, m.Deletes = slices.Clone(m.Segments), slices.Clone(m.Deletes)
		spoil(&m)
		if _, err := b.c.Publish(t.Context(), v, &m); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), place+":") {
			t.Errorf("%s: %v", place, err)
		}
	}
	for _, n := range []store.Name{{}, {Namespace: "a"}, {Namespace: "a", Collection: strings.Repeat("x", 65)}, {Namespace: "\xff", Collection: "a"}} {
		if _, err := b.c.Create(t.Context(), n, &store.Manifest{Schema: schema(1)}); !errors.Is(err, store.ErrKey) {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

func TestNames(t *testing.T) {
	b := newBench(t)
	var want []store.Name
	for _, s := range []string{"a", "A", ".", "..", "a/b", "a.tmp", ".tmp", "%41", "ä 東京", "a b", strings.Repeat("é", 32), "...", "-_."} {
		n := store.Name{Namespace: s, Collection: s}
		if err := store.ValidKey(n.HeadKey()); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if _, err := b.c.Create(t.Context(), n, &store.Manifest{Schema: schema(1)}); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		want = append(want, n)
	}
	b.put("catalog/00/a/a/manifest_committed_head.json", []byte("not under its hash"))
	got := must[[]store.Name](t)(b.c.List(t.Context()))
	less := func(x, y store.Name) int { return strings.Compare(x.Namespace, y.Namespace) }
	slices.SortFunc(got, less)
	slices.SortFunc(want, less)
	if !slices.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

// The power goes at every operation of a run of commits: afterwards there is a head, old or new, with all its objects, and never older than what was acknowledged.
func TestPublishSurvivesPowerCuts(t *testing.T) {
	for n := 1; ; n++ {
		clk := newClock()
		disk := memfs.New(clk.now)
		fsys := faultfs.New(disk)
		rng := rand.New(rand.NewPCG(uint64(n), 3))
		var clones []*memfs.FS
		at := n
		fsys.Before(func(faultfs.Op) {
			if at--; at == 0 {
				for range 6 {
					clones = append(clones, disk.CrashClone(rng))
				}
			}
		})
		var acked uint64
		run(t, fsys, clk, func(v *store.Version) {
			if clones == nil {
				acked = v.Pointer.Version
			}
		})
		if clones == nil {
			if n < 50 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
		for i, after := range clones {
			f, err := store.OpenFolder("s", store.FolderOptions{FS: after})
			if err != nil {
				t.Fatal(err)
			}
			c := store.NewCatalog(f, store.CatalogOptions{Now: clk.now})
			v, err := c.Open(t.Context(), books)
			if errors.Is(err, store.ErrNotFound) && acked == 0 {
				v, err = commit(t.Context(), c, nil, true)
			}
			if err != nil {
				t.Fatalf("operation %d, copy %d: acknowledged %d: %v", n, i, acked, err)
			}
			if v.Pointer.Version < acked || v.Pointer.Version > acked+1 && acked > 0 {
				t.Fatalf("operation %d, copy %d: acknowledged %d, found %d", n, i, acked, v.Pointer.Version)
			}
			rep, err := c.Verify(t.Context(), books, store.VerifyOptions{Deep: true})
			if err != nil || len(rep.Problems) > 0 {
				t.Fatalf("operation %d, copy %d: %v, %v", n, i, rep.Problems, err)
			}
			if _, err := commit(t.Context(), c, v, true); err != nil {
				t.Fatalf("operation %d, copy %d: going on: %v", n, i, err)
			}
			clk.add(24 * time.Hour)
			if _, err := c.Collect(t.Context(), books, store.GCOptions{KeepVersions: -1, KeepAge: -1}); err != nil {
				t.Fatal(err)
			}
			rep, err = c.Verify(t.Context(), books, store.VerifyOptions{Deep: true})
			if err != nil || len(rep.Problems)+len(rep.Unreferenced) > 0 {
				t.Fatalf("operation %d, copy %d, after collection: %v, %v, %v", n, i, rep.Problems, rep.Unreferenced, err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// run makes three commits, one of which replaces all segments, and a collection.
func run(t *testing.T, fsys vfs.FS, clk *clock, acked func(*store.Version)) {
	t.Helper()
	f := must[*store.Folder](t)(store.OpenFolder("s", store.FolderOptions{FS: fsys}))
	c := store.NewCatalog(f, store.CatalogOptions{Now: clk.now})
	var v *store.Version
	for i := range 3 {
		v = must[*store.Version](t)(commit(t.Context(), c, v, i != 2))
		acked(v)
	}
	clk.add(24 * time.Hour)
	must[store.GCReport](t)(c.Collect(t.Context(), books, store.GCOptions{KeepVersions: -1, KeepAge: -1}))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Every operation fails once: the head stays whole, and an error that is not uncertain means that the version is not the head's.
func TestPublishFailsAtEveryOperation(t *testing.T) {
	for _, fault := range []faultfs.Fault{faultfs.NoSpace, faultfs.IOError} {
		for n := 1; ; n++ {
			clk := newClock()
			fsys := faultfs.New(memfs.New(clk.now))
			f := openFolder(t, "s", store.FolderOptions{FS: fsys})
			c := store.NewCatalog(f, store.CatalogOptions{Now: clk.now})
			first := must[*store.Version](t)(commit(t.Context(), c, nil, true))
			fsys.Inject(faultfs.Nth(n, faultfs.Any, fault))
			v, err := commit(t.Context(), c, first, true)
			fired := fsys.Fired()
			fsys.Inject(nil)
			got := must[*store.Version](t)(c.Open(t.Context(), books))
			switch {
			case err == nil && !cmp.Equal(got, v), err != nil && !errors.Is(err, store.ErrUncertain) && v == nil && !cmp.Equal(got, first), err != nil && !fired:
				t.Fatalf("operation %d: %v, head at %d", n, err, got.Pointer.Version)
			}
			rep, verr := c.Verify(t.Context(), books, store.VerifyOptions{Deep: true})
			if verr != nil || len(rep.Problems) > 0 {
				t.Fatalf("operation %d: %v, %v", n, rep.Problems, verr)
			}
			if !fired {
				break
			}
		}
	}
}

func TestCollect(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	var versions []*store.Version
	var v *store.Version
	for range 6 {
		v = b.commit(v, false) // each version replaces all of the one before
		versions = append(versions, v)
		b.clk.add(10 * time.Minute)
	}
	collect := func(o store.GCOptions) store.GCReport { return must[store.GCReport](t)(b.c.Collect(ctx, books, o)) }
	opens := func(v *store.Version) bool {
		rep, err := b.c.OpenAt(ctx, books, v.Pointer)
		if err != nil {
			var missing *store.MissingError
			if !errors.As(err, &missing) || errors.Is(err, store.ErrNotFound) || !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("a missing version must fail as such: %v", err)
			}
			return false
		}
		for _, s := range rep.Manifest.Segments {
			if _, err := b.s.Stat(ctx, s.Object); err != nil {
				t.Fatalf("version %d lost %v", v.Pointer.Version, err)
			}
		}
		return true
	}
	// Version 3 was followed 40 minutes ago... by age, with a delay that spares nothing.
	before := b.keys()
	rep := collect(store.GCOptions{KeepVersions: -1, KeepAge: 35 * time.Minute, Delay: -1, DryRun: true})
	if rep.Versions != 4 || len(rep.Deleted) != 6 || !slices.Equal(before, b.keys()) {
		t.Fatalf("dry run: %+v", rep)
	}
	release := must[func()](t)(b.c.Pin(versions[0]))
	again := must[func()](t)(b.c.Pin(versions[0]))
	rep = collect(store.GCOptions{KeepVersions: -1, KeepAge: 35 * time.Minute, Delay: -1})
	if rep.Versions != 4 || len(rep.Deleted) != 3 || len(rep.Waiting) != 3 {
		t.Fatalf("%+v", rep)
	}
	for i, want := range []bool{true, false, true, true, true, true} {
		if opens(versions[i]) != want {
			t.Fatalf("version %d is there: %v", i+1, !want)
		}
	}
	release()
	release() // no more than once
	if rep = collect(store.GCOptions{KeepVersions: 1, KeepAge: -1, Delay: -1}); !opens(versions[0]) || rep.Versions != 2 {
		t.Fatalf("%+v", rep)
	}
	again()
	collect(store.GCOptions{KeepVersions: 1, KeepAge: -1, Delay: -1})
	for i, want := range []bool{false, false, false, false, true, true} {
		if opens(versions[i]) != want {
			t.Fatalf("version %d is there: %v", i+1, !want)
		}
	}
	collect(store.GCOptions{KeepVersions: -1, KeepAge: -1, Delay: -1})
	if len(b.keys()) != 4 || !opens(v) {
		t.Fatalf("%q", b.keys())
	}
}

func TestCollectSparesWhatIsBeingWritten(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.commit(nil, true)
	stray := books.Prefix() + "segments/stray.seg"
	b.put(stray, []byte("of another process"))
	o, _, release, err := object(ctx, b.c, store.KindSegment, []byte("mine"))
	if err != nil {
		t.Fatal(err)
	}
	b.clk.add(14 * time.Minute)
	if rep := must[store.GCReport](t)(b.c.Collect(ctx, books, store.GCOptions{})); len(rep.Waiting) != 2 || len(rep.Deleted) != 0 {
		t.Fatalf("%+v", rep)
	}
	b.clk.add(time.Minute)
	rep := must[store.GCReport](t)(b.c.Collect(ctx, books, store.GCOptions{}))
	if len(rep.Deleted) != 1 || rep.Deleted[0].Key != stray || len(rep.Waiting) != 1 || rep.Waiting[0].Key != o.Key {
		t.Fatalf("%+v", rep)
	}
	if err := errors.Join(release(), release()); err != nil {
		t.Fatal(err)
	}
	if rep := must[store.GCReport](t)(b.c.Collect(ctx, books, store.GCOptions{})); len(rep.Deleted) != 1 || rep.Deleted[0].Key != o.Key {
		t.Fatalf("%+v", rep)
	}
}

// Collection without a readable head must not take the head's absence for permission.
func TestCollectFailsClosed(t *testing.T) {
	for name, harm := range map[string]func(b *bench, v, prev *store.Version){
		"head missing":  func(b *bench, _, _ *store.Version) { must[any](b.t)(nil, b.s.Delete(b.t.Context(), books.HeadKey())) },
		"head damaged":  func(b *bench, _, _ *store.Version) { b.put(books.HeadKey(), []byte("{}")) },
		"manifest gone": func(b *bench, v, _ *store.Version) { must[any](b.t)(nil, b.s.Delete(b.t.Context(), v.Pointer.Object)) },
		"previous damaged": func(b *bench, _, prev *store.Version) {
			b.put(prev.Pointer.Object, []byte("{}"))
		},
	} {
		b := newBench(t)
		prev := b.commit(nil, true)
		v := b.commit(prev, true)
		harm(b, v, prev)
		before := b.keys()
		b.clk.add(time.Hour * 100)
		if _, err := b.c.Collect(t.Context(), books, store.GCOptions{}); err == nil || !slices.Equal(before, b.keys()) {
			t.Errorf("%s: %v, %s", name, err, cmp.Diff(before, b.keys()))
		}
	}
}

func TestDrop(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	if err := b.c.Drop(ctx, books); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("%v", err)
	}
	b.commit(nil, true)
	v, release, err := b.c.OpenPinned(ctx, books)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.c.Drop(ctx, books); err != nil {
		t.Fatal(err)
	}
	if _, err := b.c.Open(ctx, books); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("%v", err)
	}
	if _, err := b.c.OpenAt(ctx, books, v.Pointer); err != nil || len(b.keys()) != 3 {
		t.Fatalf("pinned: %v, %q", err, b.keys())
	}
	if _, err := b.c.Publish(ctx, v, v.Manifest); !errors.Is(err, store.ErrPrecondition) {
		t.Fatalf("published into a dropped collection: %v", err)
	}
	release()
	if err := b.c.Drop(ctx, books); err != nil || len(b.keys()) != 0 {
		t.Fatalf("%v, %q", err, b.keys())
	}
	b.commit(nil, true)
}

func TestVerifyAndRepoint(t *testing.T) {
	type harm func(b *bench, v *store.Version)
	remove := func(key func(v *store.Version) string) harm {
		return func(b *bench, v *store.Version) { must[any](b.t)(nil, b.s.Delete(b.t.Context(), key(v))) }
	}
	flip := func(key func(v *store.Version) string) harm {
		return func(b *bench, v *store.Version) {
			c := b.get(key(v))
			c[len(c)/2] ^= 4
			b.put(key(v), c)
		}
	}
	headKey := func(*store.Version) string { return books.HeadKey() }
	manifest := func(v *store.Version) string { return v.Pointer.Object }
	segment := func(v *store.Version) string { return v.Manifest.Segments[len(v.Manifest.Segments)-1].Object }
	dels := func(v *store.Version) string { return v.Manifest.Deletes[len(v.Manifest.Deletes)-1].Object }
	for name, tc := range map[string]struct {
		harm   harm
		object func(v *store.Version) string
		whole  uint64 // version of the repair
		deep   bool
	}{
		"head missing":     {remove(headKey), headKey, 3, false},
		"head flipped":     {flip(headKey), headKey, 3, false},
		"manifest missing": {remove(manifest), headKey, 2, false},
		"manifest flipped": {flip(manifest), headKey, 2, false},
		"segment missing":  {remove(segment), segment, 2, false},
		"segment cut":      {func(b *bench, v *store.Version) { b.put(segment(v), []byte("s")) }, segment, 2, false},
		"deletes flipped":  {flip(dels), dels, 2, false},
		"segment flipped":  {flip(segment), segment, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			v := b.commit(b.commit(b.commit(nil, true), true), true)
			b.put(books.Prefix()+"segments/stray.seg", []byte("x"))
			o := store.VerifyOptions{Deep: tc.deep}
			rep := must[store.VerifyReport](t)(b.c.Verify(t.Context(), books, o))
			if len(rep.Problems) != 0 || rep.Objects != 8 || rep.Whole != rep.Version || len(rep.Unreferenced) != 1 {
				t.Fatalf("before: %+v", rep)
			}
			tc.harm(b, v)
			rep = must[store.VerifyReport](t)(b.c.Verify(t.Context(), books, o))
			if len(rep.Problems) != 1 || rep.Problems[0].Object != tc.object(v) {
				t.Fatalf("after: %v", rep.Problems)
			}
			p := rep.Problems[0]
			if strings.Contains(name, "head missing") != errors.Is(p.Err, store.ErrNotFound) || !strings.Contains(name, "head missing") && !errors.Is(p.Err, store.ErrCorrupt) {
				t.Fatalf("%v", p)
			}
			if rep.Whole == nil || rep.Whole.Pointer.Version != tc.whole {
				t.Fatalf("whole: %+v", rep.Whole)
			}
			if name == "segment flipped" {
				return // no other version is without it as far as sizes tell
			}
			if p.Repair != store.RepairRepoint {
				t.Fatalf("%v", p)
			}
			v = must[*store.Version](t)(b.c.Repoint(t.Context(), rep.Whole))
			rep = must[store.VerifyReport](t)(b.c.Verify(t.Context(), books, o))
			if len(rep.Problems) != 0 || rep.Version.Pointer.Version != tc.whole {
				t.Fatalf("repaired: %v", rep)
			}
			b.commit(v, true)
		})
	}
}

func TestVerifySegmentHook(t *testing.T) {
	b := newBench(t)
	b.commit(b.commit(nil, true), true)
	bad := errors.New("section 3 is damaged")
	n := 0
	rep := must[store.VerifyReport](t)(b.c.Verify(t.Context(), books, store.VerifyOptions{Segment: func(context.Context, store.Segment) error {
		if n++; n == 2 {
			return bad
		}
		return nil
	}}))
	if n != 2 || len(rep.Problems) != 1 || !errors.Is(rep.Problems[0].Err, bad) {
		t.Fatalf("%d, %v", n, rep.Problems)
	}
}

func goldenManifest() *store.Manifest {
	n := books
	id, id2 := "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
	return &store.Manifest{
		Namespace: n.Namespace, Collection: n.Collection, Version: 2,
		Previous: &store.Pointer{Version: 1, Object: n.Prefix() + "manifests/00000000000000000001-01020304.json", Bytes: 300, Checksum: "xxh3:00000000000000ff"},
		Created:  time.Date(2026, 1, 2, 3, 4, 5, 600e6, time.UTC),
		Schema:   schema(3),
		Segments: []store.Segment{
			{ID: id, Object: n.Prefix() + "segments/" + id + ".seg", Docs: 1000, Bytes: 4096, Checksum: "xxh3:0123456789abcdef", Tier: store.TierHot, MinKey: "a", MaxKey: "ü\"", MaxCommitTS: 1<<63 + 1},
			{ID: id2, Object: n.Prefix() + "segments/" + id2 + ".seg", Docs: 1, Bytes: 99, Checksum: "xxh3:fedcba9876543210", Tier: store.TierCold, MinKey: "k", MaxKey: "k", MaxCommitTS: 7},
		},
		Deletes:  []store.DeleteRef{{Segment: id, Generation: 4, Object: n.Prefix() + "deletes/" + id2 + ".del", Count: 3, Bytes: 91, Checksum: "xxh3:1111111111111111"}},
		CommitTS: 1<<63 + 1, LogSeq: 12345,
	}
}

func goldenDeletes() store.DeleteSet {
	dead := bitset.New(1000)
	for _, doc := range []uint32{0, 300, 999} {
		dead.Add(doc)
	}
	return store.DeleteSet{Segment: "0f8fad5b-d9cb-469f-a165-70867728950e", Generation: 4, Docs: 1000, Dead: dead}
}

// golden compares b with a file that must stay readable for ever.
func golden(t *testing.T, name string, b []byte) []byte {
	t.Helper()
	p := filepath.Join("testdata", name)
	if os.Getenv("WEFT_REWRITE") != "" {
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("%s: written\n%q\ngolden\n%q", name, b, want)
	}
	return want
}

func TestGolden(t *testing.T) {
	m := goldenManifest()
	b := golden(t, "manifest-v1.json", must[[]byte](t)(store.EncodeManifest(m)))
	if got := must[*store.Manifest](t)(store.DecodeManifest("m", b)); !cmp.Equal(got, m) {
		t.Error(cmp.Diff(m, got))
	}
	d := goldenDeletes()
	b = golden(t, "deletes-v1.del", store.EncodeDeletes(d))
	if got := must[store.DeleteSet](t)(store.DecodeDeletes("d", b)); !cmp.Equal(got, d) {
		t.Error(cmp.Diff(d, got))
	}
	dense := d
	dense.Generation, dense.Dead = 5, bitset.Full(1000)
	b = golden(t, "deletes-dense-v1.del", store.EncodeDeletes(dense))
	if got := must[store.DeleteSet](t)(store.DecodeDeletes("d", b)); !cmp.Equal(got, dense) {
		t.Error(cmp.Diff(dense, got))
	}
	bench := newBench(t)
	p := store.Pointer{Version: 2, Object: books.Prefix() + "manifests/00000000000000000002-0a0b0c0d.json"}
	mb := must[[]byte](t)(os.ReadFile(filepath.Join("testdata", "manifest-v1.json")))
	p.Bytes, p.Checksum = int64(len(mb)), store.Checksum(mb)
	bench.put(p.Object, mb)
	must[*store.Version](t)(bench.c.Repoint(t.Context(), &store.Version{Manifest: m, Pointer: p}))
	bench.put(books.HeadKey(), golden(t, "head-v1.json", bench.get(books.HeadKey())))
	v := must[*store.Version](t)(bench.c.Open(t.Context(), books))
	if !cmp.Equal(v.Manifest, m) || v.Pointer != p {
		t.Errorf("%+v", v)
	}
}

// Any flipped bit of a sealed object is a clear error.
func TestBitFlips(t *testing.T) {
	b := newBench(t)
	v := b.commit(nil, true)
	for _, key := range []string{books.HeadKey(), v.Pointer.Object, v.Manifest.Deletes[0].Object} {
		whole := b.get(key)
		for i := range whole {
			for bit := range 8 {
				c := bytes.Clone(whole)
				c[i] ^= 1 << bit
				b.put(key, c)
				got, err := b.c.Open(t.Context(), books)
				if err == nil {
					_, err = b.c.LoadDeletes(t.Context(), got.Manifest.Segments[0], got.Manifest.Deletes[0])
				}
				if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNewerFormat) || !strings.Contains(err.Error(), key) {
					t.Fatalf("%s, byte %d, bit %d: %v", key, i, bit, err)
				}
			}
		}
		b.put(key, whole)
	}
}

func TestNewerFormat(t *testing.T) {
	b := newBench(t)
	v := b.commit(nil, true)
	for _, key := range []string{v.Pointer.Object, books.HeadKey()} {
		b.put(key, []byte(`{"format":2,"kind":"manifest","more":{"x":1},"body":[]}`))
		_, err := store.DecodeManifest(key, b.get(key))
		if !errors.Is(err, store.ErrNewerFormat) || !strings.Contains(err.Error(), key) {
			t.Errorf("%v", err)
		}
	}
	if _, err := b.c.Open(t.Context(), books); !errors.Is(err, store.ErrNewerFormat) {
		t.Errorf("%v", err)
	}
	rep := must[store.VerifyReport](t)(b.c.Verify(t.Context(), books, store.VerifyOptions{}))
	if len(rep.Problems) != 1 || rep.Problems[0].Repair != store.RepairNone {
		t.Errorf("a newer format must not be repaired away: %v", rep.Problems)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	b, err := store.EncodeManifest(goldenManifest())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1,"kind":"manifest","checksum":"","body":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := store.DecodeManifest("m", b)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNewerFormat) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if _, err := store.EncodeManifest(m); err != nil {
			t.Fatal(err)
		}
	})
}
