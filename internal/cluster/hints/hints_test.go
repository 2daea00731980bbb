package hints

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

var update = flag.Bool("update", false, "write the golden file of the current format version anew")

const dir = "data/hints"

// reports collects what a queue reports.
type reports struct {
	mu   sync.Mutex
	errs []error
}

func (r *reports) add(_ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *reports) take() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := r.errs
	r.errs = nil
	return errs
}

func open(t testing.TB, fsys vfs.FS, o Options) *Queue {
	t.Helper()
	q, err := Open(dir, fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func closeQueue(t testing.TB, q *Queue) {
	t.Helper()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

func add(t testing.TB, q *Queue, member, index string, ids ...string) {
	t.Helper()
	if full, err := q.Add(member, index, ids); full || err != nil {
		t.Fatalf("add %s %v: full %v, %v", member, ids, full, err)
	}
}

func next(t testing.TB, q *Queue, member string, limit int) Batch {
	t.Helper()
	b, err := q.Next(member, limit)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func done(t testing.TB, q *Queue, b Batch) {
	t.Helper()
	if err := q.Done(b); err != nil {
		t.Fatal(err)
	}
}

// drain takes all entries of a member out.
func drain(t testing.TB, q *Queue, member string, limit int) []Entry {
	t.Helper()
	var all []Entry
	for {
		b := next(t, q, member, limit)
		if len(b.Entries) == 0 {
			return all
		}
		if len(b.Entries) > limit {
			t.Fatalf("%d entries, the limit is %d", len(b.Entries), limit)
		}
		all = append(all, b.Entries...)
		done(t, q, b)
	}
}

func entries(index string, ids ...string) []Entry {
	var out []Entry
	for _, id := range ids {
		out = append(out, Entry{index, id})
	}
	return out
}

func files(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	infos, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, in := range infos {
		if in.Name != idName {
			names = append(names, in.Name)
		}
	}
	return names
}

// TestAQueueKeepsItsName: whoever heard of a queue knows it again after a restart, also when the disk was full at the first start.
func TestAQueueKeepsItsName(t *testing.T) {
	disk := memfs.New(nil)
	fsys := faultfs.New(disk)
	fsys.Inject(faultfs.Under(path.Join(dir, idName), faultfs.From(1, faultfs.Space, faultfs.NoSpace)))
	var said []error
	q := open(t, fsys, Options{Report: func(_ string, err error) { said = append(said, err) }})
	if !validID(q.ID()) || len(said) != 1 || !errors.Is(said[0], syscall.ENOSPC) {
		t.Errorf("on a full disk: %q, said %v", q.ID(), said)
	}
	closeQueue(t, q)
	fsys.Inject(nil)
	named := func() string {
		t.Helper()
		q := open(t, fsys, Options{})
		defer closeQueue(t, q)
		if !validID(q.ID()) {
			t.Errorf("named %q", q.ID())
		}
		return q.ID()
	}
	first := named()
	if again := named(); again != first {
		t.Errorf("named %q, and %q before", again, first)
	}
	for _, bad := range []string{"", first[:25], first + "a", strings.ToUpper(first), "1" + first[1:]} {
		if err := vfs.WriteFile(fsys, path.Join(dir, idName), []byte(bad)); err != nil {
			t.Fatal(err)
		}
		if got := named(); got == bad || got != named() {
			t.Errorf("%q was not replaced for good: %q", bad, got)
		}
	}
}

func TestEntriesComeInOrderUntilDone(t *testing.T) {
	fsys := memfs.New(nil)
	q := open(t, fsys, Options{})
	if got := q.Pending(); got != nil {
		t.Errorf("at first: %+v", got)
	}
	before := time.Now().Add(-time.Millisecond)
	add(t, q, "b:1", "x", "1", "2", "3")
	add(t, q, "a:1", "x", "9")
	add(t, q, "b:1", "y", "1", "4")
	add(t, q, "b:1", "y") // nothing
	p := q.Pending()
	if len(p) != 2 || p[0].Member != "a:1" || p[0].Count != 1 || p[1].Member != "b:1" || p[1].Count != 5 || p[1].Overflowed {
		t.Fatalf("%+v", p)
	}
	if p[1].Oldest.Before(before) || p[1].Oldest.After(time.Now()) {
		t.Errorf("oldest %v", p[1].Oldest)
	}
	if b := next(t, q, "b:1", 0); len(b.Entries) != 0 {
		t.Errorf("with limit 0: %+v", b)
	}
	b := next(t, q, "b:1", 2)
	if want := entries("x", "1", "2"); !reflect.DeepEqual(b.Entries, want) || b.Member != "b:1" {
		t.Fatalf("%+v, want %+v", b, want)
	}
	if again := next(t, q, "b:1", 2); !reflect.DeepEqual(again, b) {
		t.Errorf("again: %+v, want %+v", again, b)
	}
	done(t, q, b)
	done(t, q, b) // passed over
	b = next(t, q, "b:1", 10)
	if want := append(entries("x", "3"), entries("y", "1", "4")...); !reflect.DeepEqual(b.Entries, want) {
		t.Fatalf("%+v, want %+v", b.Entries, want)
	}
	closeQueue(t, q)
	closeQueue(t, q)
	if _, err := q.Add("b:1", "x", []string{"1"}); !errors.Is(err, ErrClosed) {
		t.Errorf("add after close: %v", err)
	}
	if _, err := q.Next("b:1", 1); !errors.Is(err, ErrClosed) {
		t.Errorf("next after close: %v", err)
	}
	if err := q.Done(b); !errors.Is(err, ErrClosed) {
		t.Errorf("done after close: %v", err)
	}
	if err := q.Forget("b:1"); !errors.Is(err, ErrClosed) {
		t.Errorf("forget after close: %v", err)
	}
	if _, err := q.Compare("b:1"); !errors.Is(err, ErrClosed) {
		t.Errorf("compare after close: %v", err)
	}
	if _, err := q.Compared(Comparison{Member: "b:1"}); !errors.Is(err, ErrClosed) {
		t.Errorf("compared after close: %v", err)
	}

	q = open(t, fsys, Options{})
	add(t, q, "b:1", "z", "5")
	// Done is not kept within a file: what it dropped comes again.
	want := slices.Concat(entries("x", "1", "2", "3"), entries("y", "1", "4"), entries("z", "5"))
	if got := drain(t, q, "b:1", 4); !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart: %+v, want %+v", got, want)
	}
	if got, want := files(t, fsys), []string{"a%3A1~00000000000000000001.hints"}; !reflect.DeepEqual(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	if err := q.Forget("a:1"); err != nil {
		t.Fatal(err)
	}
	if err := q.Forget("nobody:1"); err != nil {
		t.Fatal(err)
	}
	if got := q.Pending(); got != nil || len(files(t, fsys)) != 0 {
		t.Errorf("at the end: %+v, files %v", got, files(t, fsys))
	}
	closeQueue(t, q)
}

// A batch that was done, or was taken before its entries were dropped, says nothing about the entries that are there now.
func TestDoneOfAnOldBatchIsPassedOver(t *testing.T) {
	for name, drop := range map[string]func(t *testing.T, q *Queue, old Batch){
		"done":    func(t *testing.T, q *Queue, old Batch) { done(t, q, old) },
		"drained": func(t *testing.T, q *Queue, _ Batch) { drain(t, q, "a:1", 10) },
		"compared": func(t *testing.T, q *Queue, _ Batch) {
			c, err := q.Compare("a:1")
			if err != nil {
				t.Fatal(err)
			}
			if ok, err := q.Compared(c); !ok || err != nil {
				t.Fatalf("%v, %v", ok, err)
			}
		},
		"forgotten": func(t *testing.T, q *Queue, _ Batch) {
			if err := q.Forget("a:1"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := open(t, memfs.New(nil), Options{})
			defer closeQueue(t, q)
			add(t, q, "a:1", "x", "1", "2")
			old := next(t, q, "a:1", 2)
			if len(old.Entries) != 2 {
				t.Fatalf("%+v", old)
			}
			drop(t, q, old)
			add(t, q, "a:1", "x", "3", "4")
			add(t, q, "a:1", "x", "5")
			done(t, q, old)
			if p := q.Pending(); len(p) != 1 || p[0].Count != 3 {
				t.Errorf("%+v", p)
			}
			if got, want := drain(t, q, "a:1", 1), entries("x", "3", "4", "5"); !reflect.DeepEqual(got, want) {
				t.Errorf("%+v are left, want %+v", got, want)
			}
			done(t, q, old)
			add(t, q, "a:1", "x", "6")
			if p := q.Pending(); len(p) != 1 || p[0].Count != 1 {
				t.Errorf("with one more: %+v", p)
			}
		})
	}
}

func TestRepeatedEntriesAreStoredOnce(t *testing.T) {
	fsys := memfs.New(nil)
	q := open(t, fsys, Options{})
	for range 100 {
		add(t, q, "a:1", "x", "1", "2", "1")
		add(t, q, "a:1", "y", "1")
	}
	if p := q.Pending(); p[0].Count != 3 {
		t.Fatalf("%+v", p)
	}
	closeQueue(t, q)
	q = open(t, fsys, Options{})
	add(t, q, "a:1", "x", "2", "3")
	if p := q.Pending(); p[0].Count != 4 {
		t.Fatalf("after a restart: %+v", p)
	}
	// A document that is missed again while it is replayed has to be replayed again.
	b := next(t, q, "a:1", 2)
	add(t, q, "a:1", "x", "1", "3")
	if p := q.Pending(); p[0].Count != 5 {
		t.Fatalf("while 1 is replayed: %+v", p)
	}
	done(t, q, b)
	want := slices.Concat(entries("y", "1"), entries("x", "3", "1"))
	if got := drain(t, q, "a:1", 10); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	add(t, q, "a:1", "x", "1")
	if got := drain(t, q, "a:1", 10); !reflect.DeepEqual(got, entries("x", "1")) {
		t.Errorf("after all were done: %+v", got)
	}
	closeQueue(t, q)
}

func TestBadEntriesAreRefused(t *testing.T) {
	q := open(t, memfs.New(nil), Options{})
	for _, c := range []struct{ member, index, id string }{
		{"", "x", "1"},
		{strings.Repeat("a", maxName+1), "x", "1"},
		{"a:1", "", "1"},
		{"a:1", strings.Repeat("x", api.MaxIndexName+1), "1"},
		{"a:1", "x", ""},
		{"a:1", "x", strings.Repeat("1", api.MaxID+1)},
	} {
		if full, err := q.Add(c.member, c.index, []string{"ok", c.id}); full || !errors.Is(err, ErrEntry) {
			t.Errorf("%.20q %.20q %.20q: %v, %v", c.member, c.index, c.id, full, err)
		}
	}
	if p := q.Pending(); p != nil {
		t.Errorf("%+v", p)
	}
	for _, o := range []Options{{MaxBytes: -1}, {MaxAge: -1}} {
		if _, err := Open(dir, memfs.New(nil), o); err == nil {
			t.Errorf("opened with %+v", o)
		}
	}
	closeQueue(t, q)
}

// TestManyFiles fills several files, through records that have to be split and groups that go over the end of a file.
func TestManyFiles(t *testing.T) {
	fsys := memfs.New(nil)
	q := open(t, fsys, Options{})
	var want []Entry
	long := strings.Repeat("l", api.MaxID-6)
	for i := range 6 {
		ids := make([]string, 1000)
		for k := range ids {
			ids[k] = fmt.Sprintf("%02d%04d%s", i, k, long)
		}
		add(t, q, "a:1", "x", ids...)
		want = append(want, entries("x", ids...)...)
	}
	if n := len(files(t, fsys)); n < 3 {
		t.Fatalf("%d files", n)
	}
	closeQueue(t, q)
	q = open(t, fsys, Options{})
	add(t, q, "a:1", "x", "last")
	want = append(want, Entry{"x", "last"})
	last := len(files(t, fsys))
	var got []Entry
	for {
		b := next(t, q, "a:1", 77)
		if len(b.Entries) == 0 {
			break
		}
		got = append(got, b.Entries...)
		done(t, q, b)
		if n := len(files(t, fsys)); n > last {
			t.Fatalf("%d files after %d", n, last)
		} else if n < last {
			last = n
			// What is left after a restart has no gap.
			clone := open(t, fsys.CrashClone(rand.New(rand.NewPCG(1, uint64(n)))), Options{})
			rest := drain(t, clone, "a:1", 500)
			if len(rest) < len(want)-len(got) || !slices.Equal(rest, want[len(want)-len(rest):]) {
				t.Fatalf("after %d of %d entries a restart gives %d", len(got), len(want), len(rest))
			}
			closeQueue(t, clone)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %d entries, want %d", len(got), len(want))
	}
	if last != 0 {
		t.Errorf("%d files are left", last)
	}
	closeQueue(t, q)
}

// TestFilesGoOneByOne: a file is removed for good before the next one is, so that no crash leaves a gap.
func TestFilesGoOneByOne(t *testing.T) {
	fsys := faultfs.New(memfs.New(nil))
	for i := range 3 { // a file each
		q := open(t, fsys, Options{})
		add(t, q, "a:1", "x", fmt.Sprint(i))
		closeQueue(t, q)
	}
	q := open(t, fsys, Options{})
	b := next(t, q, "a:1", 10)
	var ops []faultfs.Kind
	fsys.Before(func(op faultfs.Op) {
		if op.Kind == faultfs.Remove || op.Kind == faultfs.SyncDir {
			ops = append(ops, op.Kind)
		}
	})
	done(t, q, b)
	want := []faultfs.Kind{faultfs.Remove, faultfs.SyncDir, faultfs.Remove, faultfs.SyncDir, faultfs.Remove, faultfs.SyncDir}
	if !reflect.DeepEqual(ops, want) {
		t.Errorf("%v, want %v", ops, want)
	}
	closeQueue(t, q)
}

func TestOverflowIsDurable(t *testing.T) {
	fsys := memfs.New(nil)
	var rep reports
	o := Options{MaxBytes: 2000, Report: rep.add}
	q := open(t, fsys, o)
	n := 0
	for {
		full, err := q.Add("a:1", "x", []string{fmt.Sprintf("document-%d", n)})
		if err != nil {
			t.Fatal(err)
		}
		if full {
			break
		}
		n++
	}
	if n < 20 || n > 60 {
		t.Errorf("full after %d entries", n)
	}
	if errs := rep.take(); len(errs) != 1 || !errors.Is(errs[0], ErrFull) {
		t.Errorf("reported %v", errs)
	}
	add(t, q, "b:1", "x", "1") // others are not touched
	check := func(q *Queue, when string) {
		t.Helper()
		p := q.Pending()
		if len(p) != 2 || !p[0].Overflowed || p[0].Count != 0 || !p[0].Oldest.IsZero() || p[1].Overflowed {
			t.Errorf("%s: %+v", when, p)
		}
		if full, err := q.Add("a:1", "x", []string{"more"}); !full || err != nil {
			t.Errorf("%s: add: %v, %v", when, full, err)
		}
		if b := next(t, q, "a:1", 10); len(b.Entries) != 0 {
			t.Errorf("%s: %+v", when, b)
		}
	}
	check(q, "at once")
	for seed := range uint64(20) {
		clone := open(t, fsys.CrashClone(rand.New(rand.NewPCG(seed, 1))), o)
		check(clone, "after a power cut")
		closeQueue(t, clone)
	}
	closeQueue(t, q)
	q = open(t, fsys, o)
	check(q, "after a restart")
	if err := q.Forget("a:1"); err != nil {
		t.Fatal(err)
	}
	add(t, q, "a:1", "x", "1")
	closeQueue(t, q)
}

func TestComparisonKeepsWhatIsMissedMeanwhile(t *testing.T) {
	fsys := memfs.New(nil)
	o := Options{MaxBytes: 1000}
	q := open(t, fsys, o)
	fill := func() {
		t.Helper()
		for i := 0; ; i++ {
			full, err := q.Add("a:1", "x", []string{fmt.Sprintf("document-%d", i)})
			if err != nil {
				t.Fatal(err)
			}
			if full {
				return
			}
		}
	}
	ended := func(c Comparison, want bool) {
		t.Helper()
		if ok, err := q.Compared(c); ok != want || err != nil {
			t.Fatalf("compared: %v, %v; want %v", ok, err, want)
		}
	}
	compare := func() Comparison {
		t.Helper()
		c, err := q.Compare("a:1")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	fill()
	c := compare()
	add(t, q, "a:1", "x", "meanwhile")
	if p := q.Pending(); len(p) != 1 || !p[0].Overflowed || !p[0].Comparing || p[0].Count != 1 {
		t.Errorf("while comparing: %+v", p)
	}
	b := next(t, q, "a:1", 5)
	done(t, q, b)
	add(t, q, "a:1", "x", "later")
	ended(c, true)
	ended(c, false)
	if p := q.Pending(); len(p) != 1 || p[0].Overflowed || p[0].Comparing || p[0].Count != 1 {
		t.Errorf("after it: %+v", p)
	}
	closeQueue(t, q)
	q = open(t, fsys, o)
	if got := drain(t, q, "a:1", 5); !reflect.DeepEqual(got, entries("x", "later")) {
		t.Errorf("after it and a restart: %+v", got)
	}

	// An overflow while comparing asks for another comparison.
	c = compare()
	fill()
	ended(c, false)
	if p := q.Pending(); !p[0].Overflowed || p[0].Comparing {
		t.Errorf("after a second overflow: %+v", p)
	}
	// Two comparisons: the later counts.
	c = compare()
	c2 := compare()
	ended(c, false)
	ended(c2, true)

	// A comparison of a member that has not overflowed replaces its entries, and a restart in between leaves an overflow.
	add(t, q, "a:1", "x", "before")
	b = next(t, q, "a:1", 5)
	c = compare()
	done(t, q, b)
	add(t, q, "a:1", "x", "meanwhile")
	clone := fsys.CrashClone(rand.New(rand.NewPCG(1, 1)))
	ended(c, true)
	if got := drain(t, q, "a:1", 5); !reflect.DeepEqual(got, entries("x", "meanwhile")) {
		t.Errorf("%+v", got)
	}
	closeQueue(t, q)
	q = open(t, clone, o)
	if p := q.Pending(); len(p) != 1 || !p[0].Overflowed || p[0].Comparing || p[0].Count != 0 {
		t.Errorf("after a power cut while comparing: %+v", p)
	}
	if got := files(t, clone); !reflect.DeepEqual(got, []string{"a%3A1.full"}) {
		t.Errorf("files %v", got)
	}
	ended(c, false)
	ended(Comparison{Member: "nobody:1"}, false)
	c = compare()
	if err := q.Forget("a:1"); err != nil {
		t.Fatal(err)
	}
	ended(c, false)
	if p := q.Pending(); p != nil {
		t.Errorf("after Forget: %+v", p)
	}
	closeQueue(t, q)
}

func TestOldEntriesOverflow(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	o := Options{MaxAge: time.Hour, Now: func() time.Time { return now }}
	for _, c := range []struct {
		name string
		do   func(q *Queue, fsys vfs.FS) *Queue
	}{
		{"add", func(q *Queue, _ vfs.FS) *Queue {
			if full, err := q.Add("a:1", "x", []string{"3"}); !full || err != nil {
				t.Errorf("add: %v, %v", full, err)
			}
			return q
		}},
		{"next", func(q *Queue, _ vfs.FS) *Queue {
			if b := next(t, q, "a:1", 5); len(b.Entries) != 0 {
				t.Errorf("next: %+v", b)
			}
			return q
		}},
		{"open", func(q *Queue, fsys vfs.FS) *Queue {
			closeQueue(t, q)
			return open(t, fsys, o)
		}},
	} {
		fsys := memfs.New(nil)
		var rep reports
		o.Report = rep.add
		q := open(t, fsys, o)
		add(t, q, "a:1", "x", "1")
		now = now.Add(40 * time.Minute)
		add(t, q, "a:1", "x", "2")
		b := next(t, q, "a:1", 1)
		done(t, q, b)
		now = now.Add(40 * time.Minute) // 1 would be too old, 2 is not
		if p := q.Pending(); !p[0].Oldest.Equal(now.Add(-40 * time.Minute)) {
			t.Errorf("%s: oldest %v", c.name, p[0].Oldest)
		}
		if b := next(t, q, "a:1", 1); len(b.Entries) != 1 {
			t.Errorf("%s: %+v", c.name, b)
		}
		now = now.Add(21 * time.Minute)
		q = c.do(q, fsys)
		if p := q.Pending(); len(p) != 1 || !p[0].Overflowed {
			t.Errorf("%s: %+v", c.name, p)
		}
		if errs := rep.take(); len(errs) != 1 || !errors.Is(errs[0], ErrExpired) {
			t.Errorf("%s reported %v", c.name, errs)
		}
		closeQueue(t, q)
	}
}

// file makes a file of a member by three Adds and returns its bytes; with the offsets where its records end.
func file(t testing.TB, inOrder bool) (name string, b []byte, ends []int) {
	t.Helper()
	fsys := memfs.New(nil)
	q := open(t, fsys, Options{Now: func() time.Time { return time.UnixMilli(1_700_000_000_123) }})
	name = path.Join(dir, segmentName(escape("a:1"), 1))
	ends = []int{headerSize}
	for i := range 3 {
		add(t, q, "a:1", "x", fmt.Sprintf("%d", i), fmt.Sprintf("document-%d", i))
		in, err := fsys.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int(in.Size))
	}
	if inOrder {
		closeQueue(t, q)
	}
	b, err := vfs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return name, b, ends
}

func withFile(t testing.TB, name string, b []byte) *memfs.FS {
	t.Helper()
	fsys := memfs.New(nil)
	if err := vfs.MkdirAll(fsys, path.Dir(name)); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fsys, name, b); err != nil {
		t.Fatal(err)
	}
	return fsys
}

var now2023 = func() time.Time { return time.UnixMilli(1_700_000_000_456) }

// TestTornTailIsCut cuts a file at every byte: what was whole is there, and what follows is written behind it.
func TestTornTailIsCut(t *testing.T) {
	name, b, ends := file(t, false)
	for cut := range len(b) + 1 {
		fsys := withFile(t, name, b[:cut])
		var rep reports
		o := Options{Now: now2023, Report: rep.add}
		q := open(t, fsys, o)
		whole, at := -1, 0
		for i, end := range ends {
			if cut >= end {
				whole, at = i, end
			}
		}
		errs := rep.take()
		var tail *TailError
		switch {
		case cut < headerSize || cut == at:
			if len(errs) != 0 {
				t.Fatalf("cut at %d: reported %v", cut, errs)
			}
		case len(errs) != 1 || !errors.As(errs[0], &tail) || tail.Offset != int64(at) || tail.Bytes != int64(cut-at) || tail.File != name:
			t.Fatalf("cut at %d: reported %v", cut, errs)
		}
		add(t, q, "a:1", "x", "new")
		closeQueue(t, q)
		q = open(t, fsys, o)
		if errs := rep.take(); len(errs) != 0 {
			t.Fatalf("cut at %d: at the second open: %v", cut, errs)
		}
		var want []Entry
		for i := range whole {
			want = append(want, entries("x", fmt.Sprintf("%d", i), fmt.Sprintf("document-%d", i))...)
		}
		want = append(want, Entry{"x", "new"})
		if got := drain(t, q, "a:1", 100); !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d: %+v, want %+v", cut, got, want)
		}
		closeQueue(t, q)
	}
}

// TestDamageIsAnOverflow flips each bit of a file that was closed in order: every one is found, with its place.
func TestDamageIsAnOverflow(t *testing.T) {
	name, b, ends := file(t, true)
	mark := ends[len(ends)-1]
	if len(b) != mark+recordSize {
		t.Fatalf("%d bytes, the records end at %d", len(b), mark)
	}
	for i := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			fsys := withFile(t, name, bad)
			var rep reports
			q := open(t, fsys, Options{Now: now2023, Report: rep.add})
			errs := rep.take()
			p := q.Pending()
			if i >= mark { // the mark itself: nothing is lost with it
				var tail *TailError
				if len(errs) != 1 || !errors.As(errs[0], &tail) || len(p) != 1 || p[0].Count != 6 {
					t.Fatalf("bit %d of byte %d: %+v, %v", bit, i, p, errs)
				}
				closeQueue(t, q)
				continue
			}
			at := 0
			for _, end := range ends {
				if i >= end {
					at = end
				}
			}
			var c *CorruptError
			if len(errs) != 1 || !errors.As(errs[0], &c) || c.Offset != int64(at) || c.File != name || !errors.Is(errs[0], ErrCorrupt) {
				t.Fatalf("bit %d of byte %d: %v; want an offset of %d", bit, i, errs, at)
			}
			if len(p) != 1 || !p[0].Overflowed || p[0].Count != 0 {
				t.Fatalf("bit %d of byte %d: %+v", bit, i, p)
			}
			if got := files(t, fsys); !reflect.DeepEqual(got, []string{"a%3A1.full"}) {
				t.Fatalf("files %v", got)
			}
			closeQueue(t, q)
		}
	}
}

// TestDamageIsFoundByNext damages a file while it is in use.
func TestDamageIsFoundByNext(t *testing.T) {
	fsys := memfs.New(nil)
	var rep reports
	q := open(t, fsys, Options{Report: rep.add})
	add(t, q, "a:1", "x", "1")
	add(t, q, "a:1", "x", "2")
	name := path.Join(dir, segmentName(escape("a:1"), 1))
	f, err := fsys.OpenRW(name)
	if err != nil {
		t.Fatal(err)
	}
	in, err := fsys.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{'9'}, in.Size-1); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if b := next(t, q, "a:1", 1); len(b.Entries) != 1 {
		t.Errorf("what comes before the damage: %+v", b)
	}
	b, err := q.Next("a:1", 10)
	var c *CorruptError
	if !errors.As(err, &c) || c.Offset != headerSize+(in.Size-headerSize)/2 || len(b.Entries) != 0 {
		t.Errorf("%+v, %v", b, err)
	}
	if p := q.Pending(); len(p) != 1 || !p[0].Overflowed {
		t.Errorf("%+v", p)
	}
	if errs := rep.take(); len(errs) != 1 || !errors.Is(errs[0], ErrCorrupt) {
		t.Errorf("reported %v", errs)
	}
	closeQueue(t, q)
}

// TestMissingFileIsDamage removes each file of several but the first, which Done could have removed, and the last.
func TestMissingFileIsDamage(t *testing.T) {
	base := memfs.New(nil)
	q := open(t, base, Options{})
	for i := range 4 {
		add(t, q, "a:1", "x", fmt.Sprint(i))
		closeQueue(t, q)
		q = open(t, base, Options{})
	}
	closeQueue(t, q)
	names := files(t, base)
	if len(names) != 4 {
		t.Fatalf("files %v", names)
	}
	for i, name := range names {
		fsys := base.CrashClone(rand.New(rand.NewPCG(1, 1)))
		if err := fsys.Remove(path.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		q := open(t, fsys, Options{})
		if got, want := q.Pending()[0].Overflowed, i == 1 || i == 2; got != want {
			t.Errorf("without file %d: overflowed %v, want %v", i, got, want)
		}
		closeQueue(t, q)
	}
}

func TestNewerFormatIsLeftAlone(t *testing.T) {
	name, b, _ := file(t, true)
	binary.LittleEndian.PutUint32(b[8:], 2)
	fsys := withFile(t, name, resum(b))
	if q, err := Open(dir, fsys, Options{Now: now2023}); err != nil { // a newer writer that older readers understand
		t.Error(err)
	} else {
		closeQueue(t, q)
	}
	binary.LittleEndian.PutUint32(b[12:], 2)
	fsys = withFile(t, name, resum(b))
	if _, err := Open(dir, fsys, Options{Now: now2023}); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("%v", err)
	}
	if got, err := vfs.ReadFile(fsys, name); err != nil || !bytes.Equal(got, b) {
		t.Errorf("the file was touched: %v", err)
	}
}

func resum(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

func TestFileNames(t *testing.T) {
	for _, addr := range []string{"a:1", "grpc://[::1]:7702", "文:1", ".hidden", "a.b", "x~y", "%41", "a%3A1", "a.full", "b.hints", "c.tmp", "A", " "} {
		mark, ok := "", false
		if mark, _, ok = parseName(escape(addr) + markSuffix); !ok || mark != addr {
			t.Errorf("mark of %q is read as %q, %v", addr, mark, ok)
		}
		name := segmentName(escape(addr), 7)
		got, first, ok := parseName(name)
		if !ok || got != addr || first != 7 || vfs.IsTemp(name) || strings.ContainsAny(name, "/\\:") || name[0] == '.' {
			t.Errorf("%q of %q is read as %q, %d, %v", name, addr, got, first, ok)
		}
	}
	for _, name := range []string{
		"", ".full", "a", "a:1.full", "a%3a1.full", "a%3.full", "a%.full", "a%zz.full", "a.hints", "a~1.hints", "~00000000000000000001.hints",
		"a~00000000000000000000.hints", "a~0000000000000000000x.hints", "a~+0000000000000000001.hints", "a~00000000000000000001", "lock", "a~b~00000000000000000001.hints",
	} {
		if addr, first, ok := parseName(name); ok {
			t.Errorf("%q is taken for a file of %q, %d", name, addr, first)
		}
	}
	// Other files are left alone, half-made ones go.
	fsys := withFile(t, path.Join(dir, "lock"), []byte("x"))
	if err := vfs.WriteFile(fsys, path.Join(dir, "notes.txt"), nil); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Create(path.Join(dir, "a.full.0123.tmp"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), fsys.MkdirAll(path.Join(dir, "sub.full"))); err != nil {
		t.Fatal(err)
	}
	q := open(t, fsys, Options{})
	if got, p := files(t, fsys), q.Pending(); !reflect.DeepEqual(got, []string{"lock", "notes.txt", "sub.full"}) || p != nil {
		t.Errorf("files %v, pending %+v", got, p)
	}
	closeQueue(t, q)
}

// TestGolden pins version 1, and the example of FORMAT.md.
func TestGolden(t *testing.T) {
	fsys := memfs.New(nil)
	q := open(t, fsys, Options{Now: now2023})
	add(t, q, "a:1", "i", "a", "文")
	closeQueue(t, q)
	got, err := vfs.ReadFile(fsys, path.Join(dir, "a%3A1~00000000000000000001.hints"))
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "v1.hints")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", hex.Dump(got), hex.Dump(want))
	}
	q = open(t, withFile(t, path.Join(dir, "a%3A1~00000000000000000001.hints"), want), Options{Now: now2023})
	if got := drain(t, q, "a:1", 5); !reflect.DeepEqual(got, entries("i", "a", "文")) {
		t.Errorf("version 1 reads as %+v", got)
	}
	closeQueue(t, q)
	page, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	var onPage []byte
	_, example, _ := strings.Cut(string(page), "## Example")
	for line := range strings.Lines(example) {
		if len(line) > 28 && line[2:4] == "  " {
			c, err := hex.DecodeString(strings.ReplaceAll(line[4:28], " ", ""))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			onPage = append(onPage, c...)
		}
	}
	if !bytes.Equal(onPage, want) {
		t.Errorf("the example of FORMAT.md is\n%swant\n%s", hex.Dump(onPage), hex.Dump(want))
	}
}

// TestModel runs random operations, restarts and power cuts beside a model of what must not be lost.
func TestModel(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 9))
		fsys := memfs.New(nil)
		o := Options{MaxBytes: 3000}
		if seed%3 == 0 {
			o.MaxBytes = 1 << 20
		}
		q := open(t, fsys, o)
		type state struct {
			must      map[Entry]int // entries that have to come, with the step that added them
			ever      map[Entry]bool
			over      bool
			comparing bool
			c         Comparison
		}
		members := map[string]*state{}
		for _, m := range []string{"a:1", "b:1"} {
			members[m] = &state{must: map[Entry]int{}, ever: map[Entry]bool{}}
		}
		names := []string{"a:1", "b:1"}
		for step := range 300 {
			name := names[r.IntN(2)]
			s := members[name]
			switch op := r.IntN(20); {
			case op < 11:
				var ids []string
				for range 1 + r.IntN(4) {
					ids = append(ids, fmt.Sprintf("id-%d", r.IntN(60)))
				}
				index := fmt.Sprintf("i%d", r.IntN(2))
				full, err := q.Add(name, index, ids)
				if err != nil {
					t.Fatal(err)
				}
				if full && !s.over && o.MaxBytes > 3000 {
					t.Fatalf("seed %d, step %d: %s overflows for no reason", seed, step, name)
				}
				if full {
					s.over, s.comparing, s.must = true, false, map[Entry]int{}
					break
				}
				if s.over && !s.comparing {
					t.Fatalf("seed %d, step %d: %s takes entries after an overflow", seed, step, name)
				}
				for _, e := range entries(index, ids...) {
					s.must[e], s.ever[e] = step, true
				}
			case op < 15:
				b := next(t, q, name, 1+r.IntN(8))
				if r.IntN(3) == 0 { // missed again while it is replayed
					for _, e := range b.Entries[:min(1, len(b.Entries))] {
						full, err := q.Add(name, e.Index, []string{e.ID})
						if err != nil {
							t.Fatal(err)
						}
						if full {
							s.over, s.comparing, s.must = true, false, map[Entry]int{}
							break
						}
						s.must[e] = step + 1
					}
				}
				for _, e := range b.Entries {
					if !s.ever[e] {
						t.Fatalf("seed %d, step %d: %+v was never added", seed, step, e)
					}
				}
				done(t, q, b)
				for _, e := range b.Entries {
					if at, ok := s.must[e]; ok && at <= step {
						delete(s.must, e)
					}
				}
			case op == 15:
				c, err := q.Compare(name)
				if err != nil {
					t.Fatal(err)
				}
				s.over, s.comparing, s.c, s.must = true, true, c, map[Entry]int{}
			case op == 16:
				ok, err := q.Compared(s.c)
				if err != nil {
					t.Fatal(err)
				}
				if ok && s.c.Member == "" || ok != s.comparing && s.c.Member != "" {
					t.Fatalf("seed %d, step %d: compared %v, want %v", seed, step, ok, s.comparing)
				}
				if ok {
					s.over, s.comparing = false, false
				}
			case op == 17 && r.IntN(4) == 0:
				if err := q.Forget(name); err != nil {
					t.Fatal(err)
				}
				*s = state{must: map[Entry]int{}, ever: s.ever, c: s.c}
			default:
				if r.IntN(3) > 0 {
					break
				}
				if r.IntN(2) == 0 {
					closeQueue(t, q)
				}
				if r.IntN(2) == 0 {
					fsys = fsys.CrashClone(r)
				}
				q = open(t, fsys, o)
				for _, s := range members {
					if s.comparing {
						s.comparing, s.must = false, map[Entry]int{}
					}
				}
			}
			for _, name := range names {
				s := members[name]
				p := MemberPending{}
				for _, x := range q.Pending() {
					if x.Member == name {
						p = x
					}
				}
				if p.Overflowed != s.over || p.Comparing != s.comparing || p.Count < len(s.must) {
					t.Fatalf("seed %d, step %d: %s is %+v, the model %+v", seed, step, name, p, s)
				}
				for e := range s.must {
					if q.Waiting(name, e).Wait == Not {
						t.Fatalf("seed %d, step %d: %s waits for %+v, and it is said that it does not", seed, step, name, e)
					}
				}
				if s.over && q.Waiting(name, Entry{"i0", "any"}).Wait != May {
					t.Fatalf("seed %d, step %d: %s has overflowed, and it is said what it waits for", seed, step, name)
				}
			}
		}
		for _, name := range names {
			got := map[Entry]bool{}
			for _, e := range drain(t, q, name, 7) {
				got[e] = true
			}
			for e := range members[name].must {
				if !got[e] {
					t.Fatalf("seed %d: %s has lost %+v", seed, name, e)
				}
			}
		}
		closeQueue(t, q)
	}
}

// TestFaults fails each operation on the disk in turn, then cuts the power: what Add acknowledged is there, or the member is known to have
// overflowed.
func TestFaults(t *testing.T) {
	for _, fault := range []faultfs.Fault{faultfs.NoSpace, faultfs.IOError} {
		for mode := range 8 {
			forGood, restart, kinds := mode&1 != 0, mode&2 != 0, faultfs.Mutating
			if mode&4 != 0 {
				kinds = faultfs.SyncDir
			}
			for n := 1; ; n++ {
				mem := memfs.New(nil)
				if err := vfs.MkdirAll(mem, path.Dir(dir)); err != nil {
					t.Fatal(err)
				}
				fsys := faultfs.New(mem)
				if forGood {
					fsys.Inject(faultfs.From(n, kinds, fault))
				} else {
					fsys.Inject(faultfs.Nth(n, kinds, fault))
				}
				must := map[Entry]bool{}
				q, err := Open(dir, fsys, Options{})
				if err == nil {
					for i := range 4 {
						ids := []string{fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)}
						full, err := q.Add("a:1", "x", ids)
						if full && err == nil {
							must = map[Entry]bool{{"over", "flow"}: true}
						} else if err == nil {
							for _, e := range entries("x", ids...) {
								must[e] = true
							}
						}
						if i == 1 {
							b, err := q.Next("a:1", 2)
							if err == nil && q.Done(b) == nil {
								for _, e := range b.Entries {
									delete(must, e)
								}
							}
						}
					}
				}
				fired := fsys.Fired()
				if !fired && len(must) != 6 {
					t.Fatalf("unharmed: %v", must)
				}
				for seed := range uint64(6) {
					after := mem.CrashClone(rand.New(rand.NewPCG(seed, uint64(n))))
					q2 := open(t, after, Options{})
					over := false
					for _, p := range q2.Pending() {
						over = over || p.Overflowed
					}
					got := map[Entry]bool{}
					for _, e := range drain(t, q2, "a:1", 3) {
						got[e] = true
					}
					for e := range must {
						if !got[e] && !over {
							t.Fatalf("operation %d fails with %v (for good: %v), seed %d: %+v is lost; there is %v", n, fault.Err, forGood, seed, e, got)
						}
					}
					if over && !fired {
						t.Fatalf("operation %d: overflow for no reason", n)
					}
					closeQueue(t, q2)
				}
				if restart {
					// Another process finds what is there, builds on it, and then the power is cut.
					q2 := open(t, mem, Options{})
					full, err := q2.Add("a:1", "x", []string{"end"})
					if err != nil {
						t.Fatalf("operation %d: after a restart: %v", n, err)
					}
					for seed := range uint64(6) {
						q3 := open(t, mem.CrashClone(rand.New(rand.NewPCG(seed, uint64(n)))), Options{})
						if p := q3.Pending(); len(p) != 1 || p[0].Overflowed != full {
							t.Fatalf("operation %d (%v, for good: %v), after a restart and a power cut: full %v, %+v", n, fault.Err, forGood, full, p)
						}
						if got := drain(t, q3, "a:1", 3); !full && !slices.Contains(got, Entry{"x", "end"}) {
							t.Fatalf("operation %d (%v, for good: %v), after a restart and a power cut: %v", n, fault.Err, forGood, got)
						}
						closeQueue(t, q3)
					}
					closeQueue(t, q2)
				} else if q != nil {
					fsys.Inject(nil)
					// When the disk is well again, so is the queue: an overflow that could not be marked is marked now.
					full, err := q.Add("a:1", "x", []string{"end"})
					if err != nil {
						t.Fatalf("operation %d: after the fault: %v", n, err)
					}
					if p := q.Pending(); len(p) != 1 || full != p[0].Overflowed {
						t.Fatalf("operation %d: full %v, %+v", n, full, p)
					}
					closeQueue(t, q)
				}
				if !fired {
					break
				}
			}
		}
	}
}

// TestAddsShareASync holds the first sync back until many Adds wait: one more sync is enough for them.
func TestAddsShareASync(t *testing.T) {
	fsys := faultfs.New(memfs.New(nil))
	q := open(t, fsys, Options{})
	add(t, q, "a:1", "x", "first")
	release := make(chan struct{})
	held := make(chan struct{})
	var once sync.Once
	fsys.Inject(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Sync {
			once.Do(func() { close(held); <-release })
		}
		return nil
	})
	before := fsys.Count(faultfs.Sync)
	var wg sync.WaitGroup
	var failed atomic.Int32
	put := func(id string) {
		wg.Go(func() {
			if full, err := q.Add("a:1", "x", []string{id}); full || err != nil {
				failed.Add(1)
			}
		})
	}
	put("0")
	<-held
	for i := range 50 {
		put(fmt.Sprint(i))
	}
	m, err := q.member("a:1", false)
	if err != nil {
		t.Fatal(err)
	}
	for joined := 0; joined < 49; runtime.Gosched() {
		m.mu.Lock()
		if joined = 0; m.fill != nil {
			joined = len(m.fill.records) // "0" waits already
		}
		m.mu.Unlock()
	}
	close(release)
	wg.Wait()
	if failed.Load() != 0 {
		t.Errorf("%d adds failed", failed.Load())
	}
	if got := fsys.Count(faultfs.Sync) - before; got != 2 {
		t.Errorf("%d syncs for 51 adds, want 2", got)
	}
	if got := len(drain(t, q, "a:1", 1000)); got != 51 {
		t.Errorf("%d entries", got)
	}
	closeQueue(t, q)
}

// TestRace lets writers, replays, comparisons and a watcher run at once; at the end nothing is lost.
func TestRace(t *testing.T) {
	fsys := memfs.New(nil)
	q := open(t, fsys, Options{MaxBytes: 20_000})
	const writers, each = 6, 300
	var version [writers * 20]atomic.Int64 // of each document: how often it was missed
	var replayed [writers * 20]int64       // what the replay last saw; under seen
	var seen sync.Mutex
	var writing, others sync.WaitGroup
	var stop atomic.Bool
	for w := range writers {
		writing.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 5))
			for range each {
				doc := w*20 + r.IntN(20)
				version[doc].Add(1)
				if _, err := q.Add("a:1", "x", []string{fmt.Sprint(doc)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	replay := func(limit int) int {
		b, err := q.Next("a:1", limit)
		if err != nil {
			t.Error(err)
			return 0
		}
		seen.Lock()
		for _, e := range b.Entries {
			var doc int
			if _, err := fmt.Sscan(e.ID, &doc); err != nil {
				t.Error(err)
			}
			replayed[doc] = version[doc].Load()
		}
		seen.Unlock()
		if err := q.Done(b); err != nil {
			t.Error(err)
		}
		return len(b.Entries)
	}
	compare := func() {
		c, err := q.Compare("a:1")
		if err != nil {
			t.Error(err)
			return
		}
		seen.Lock()
		for doc := range replayed {
			replayed[doc] = version[doc].Load()
		}
		seen.Unlock()
		if _, err := q.Compared(c); err != nil {
			t.Error(err)
		}
	}
	others.Go(func() {
		for !stop.Load() {
			replay(5)
			runtime.Gosched()
		}
	})
	others.Go(func() {
		for !stop.Load() {
			for _, p := range q.Pending() {
				if p.Overflowed && !p.Comparing {
					compare()
				}
			}
			runtime.Gosched()
		}
	})
	writing.Wait()
	stop.Store(true)
	others.Wait()
	for _, p := range q.Pending() {
		if p.Overflowed {
			compare()
		}
	}
	for replay(100) > 0 {
	}
	for doc := range replayed {
		if got, want := replayed[doc], version[doc].Load(); got != want {
			t.Errorf("document %d was replayed as of %d, it was missed %d times", doc, got, want)
		}
	}
	closeQueue(t, q)
}

// FuzzFile opens a queue over a file with any bytes: nothing but a newer format stops it, and it works afterwards.
func FuzzFile(f *testing.F) {
	for _, inOrder := range []bool{false, true} {
		_, b, ends := file(f, inOrder)
		f.Add(b, false)
		f.Add(b[:ends[2]+5], false)
		f.Add(b[headerSize:], true)
	}
	f.Add([]byte(magic), false)
	f.Fuzz(func(t *testing.T, b []byte, header bool) {
		if header { // random bytes rarely make a good one
			b = append(appendHeader(nil, 1), b...)
		}
		const name = dir + "/a~00000000000000000001.hints"
		fsys := withFile(t, name, b)
		o := Options{MaxAge: 1<<63 - 1, Now: now2023}
		q, err := Open(dir, fsys, o)
		if err != nil {
			if !errors.Is(err, ErrNewerFormat) {
				t.Fatal(err)
			}
			return
		}
		before := q.Pending()
		full, err := q.Add("a", "x", []string{"new"})
		if err != nil {
			t.Fatal(err)
		}
		if over := len(before) > 0 && before[0].Overflowed; full != over {
			t.Fatalf("full %v, overflowed %v", full, over)
		}
		closeQueue(t, q)
		q = open(t, fsys, o)
		after := q.Pending()
		if full != (len(after) > 0 && after[0].Overflowed) {
			t.Fatalf("before %+v, after %+v", before, after)
		}
		got := drain(t, q, "a", 10)
		if !full && !slices.Contains(got, Entry{"x", "new"}) {
			t.Fatalf("the new entry is not among %+v", got)
		}
		closeQueue(t, q)
	})
}

func BenchmarkAdd(b *testing.B) {
	q, err := Open(b.TempDir(), vfs.OS, Options{MaxBytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := q.Add("a:1", "x", []string{fmt.Sprintf("document-%d", n.Add(1))}); err != nil {
				b.Error(err)
			}
		}
	})
	if err := q.Close(); err != nil {
		b.Fatal(err)
	}
}
