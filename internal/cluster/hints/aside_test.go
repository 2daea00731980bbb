package hints

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func setAside(t testing.TB, q *Queue, member, index string, ids ...string) {
	t.Helper()
	if full, err := q.SetAside(member, entries(index, ids...)); full || err != nil {
		t.Fatalf("put %v aside: full %v, %v", ids, full, err)
	}
}

// asideOf lists what is aside, and complains where the other calls do not say the same.
func asideOf(t testing.TB, q *Queue, member string) []Entry {
	t.Helper()
	var out []Entry
	for _, r := range q.Aside(member) {
		out = append(out, r.Entry)
		if !q.IsAside(member, r.Entry) {
			t.Errorf("%v is not aside", r.Entry)
		}
	}
	n := 0
	for _, p := range q.Pending() {
		if p.Member == member {
			n = p.Refused
		}
	}
	if n != len(out) {
		t.Errorf("%d are pending, of %d that are aside", n, len(out))
	}
	return out
}

// TestWhatIsRefusedIsAside: documents that a member refuses do not stand before what else is kept for it, keep it pending, and stay over restarts,
// overflows and comparisons until they are taken back.
func TestWhatIsRefusedIsAside(t *testing.T) {
	fsys := memfs.New(nil)
	q := open(t, fsys, Options{})
	add(t, q, "a:1", "x", "bad", "good")
	b := next(t, q, "a:1", 10)
	setAside(t, q, "a:1", "x", "bad")
	if err := q.Done(b); err != nil {
		t.Fatal(err)
	}
	check := func(want ...Entry) {
		t.Helper()
		if got := asideOf(t, q, "a:1"); !slices.Equal(got, want) {
			t.Errorf("aside: %v, want %v", got, want)
		}
	}
	check(Entry{"x", "bad"})
	if p := q.Pending(); len(p) != 1 || p[0].Count != 0 || p[0].Short() {
		t.Errorf("%+v", p)
	}
	if got := drain(t, q, "a:1", 5); len(got) != 0 {
		t.Errorf("it stands in the queue yet: %v", got)
	}
	if q.IsAside("a:1", Entry{"y", "bad"}) || q.IsAside("b:1", Entry{"x", "bad"}) || q.Aside("b:1") != nil {
		t.Error("others are aside")
	}
	setAside(t, q, "a:1", "y", "bad")
	setAside(t, q, "a:1", "x", "bad") // once more
	closeQueue(t, q)
	q = open(t, fsys, Options{})
	check(Entry{"x", "bad"}, Entry{"y", "bad"})
	c, err := q.Compare("a:1")
	if err != nil {
		t.Fatal(err)
	}
	check(Entry{"x", "bad"}, Entry{"y", "bad"})
	if ok, err := q.Compared(c); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	check(Entry{"x", "bad"}, Entry{"y", "bad"})
	if err := q.TakeBack("a:1", entries("x", "bad", "other")); err != nil {
		t.Fatal(err)
	}
	check(Entry{"y", "bad"})
	closeQueue(t, q)
	q = open(t, fsys, Options{})
	check(Entry{"y", "bad"})
	if err := q.TakeBack("a:1", entries("y", "bad")); err != nil {
		t.Fatal(err)
	}
	check()
	if p := q.Pending(); len(p) != 0 {
		t.Errorf("%+v", p)
	}
	setAside(t, q, "a:1", "x", "1", "2")
	if err := q.Forget("a:1"); err != nil {
		t.Fatal(err)
	}
	check()
	closeQueue(t, q)
	q = open(t, fsys, Options{})
	check()
	closeQueue(t, q)
	if _, err := q.SetAside("a:1", entries("x", "1")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := q.TakeBack("a:1", entries("x", "1")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestTooManyThatAreRefusedOverflow: they are bounded, and beyond a member is compared as a whole, which misses nothing.
func TestTooManyThatAreRefusedOverflow(t *testing.T) {
	fsys := memfs.New(nil)
	q := open(t, fsys, Options{})
	var ids []string
	for i := range MaxAside {
		ids = append(ids, strings.Repeat("x", api.MaxID-4)+fmt.Sprintf("%04d", i))
	}
	setAside(t, q, "a:1", strings.Repeat("i", api.MaxIndexName), ids...)
	add(t, q, "a:1", "x", "1")
	if full, err := q.SetAside("a:1", entries("x", "1")); !full || err != nil {
		t.Errorf("full %v, %v", full, err)
	}
	p := q.Pending()
	if len(p) != 1 || !p[0].Overflowed || p[0].Count != 0 || p[0].Refused != MaxAside {
		t.Errorf("%+v", p)
	}
	closeQueue(t, q)
	q = open(t, fsys, Options{})
	defer closeQueue(t, q)
	if again := q.Pending(); !reflect.DeepEqual(again, p) {
		t.Errorf("%+v, want %+v", again, p)
	}
}

// TestDamageOfWhatIsAsideIsAnOverflow: it is not known any more what the member lacks.
func TestDamageOfWhatIsAsideIsAnOverflow(t *testing.T) {
	name := path.Join(dir, "a%3A1.refused")
	list := []Refused{{Entry{"x", "1"}, now2023()}, {Entry{"x", "2"}, now2023()}, {Entry{"y", "1"}, now2023()}}
	whole := encodeAside(list)
	for cut := range len(whole) {
		for _, flip := range []bool{false, true} {
			b := whole[:cut]
			if flip {
				b = bytes.Clone(whole)
				b[cut] ^= 0x10
			}
			rep := &reports{}
			fsys := withFile(t, name, b)
			q := open(t, fsys, Options{Report: rep.add})
			p := q.Pending()
			if len(p) != 1 || !p[0].Overflowed || p[0].Refused != 0 || len(rep.take()) == 0 {
				t.Errorf("cut at %d, flipped %v: %+v", cut, flip, p)
			}
			closeQueue(t, q)
			q = open(t, fsys, Options{Report: rep.add})
			if again := q.Pending(); len(again) != 1 || !again[0].Overflowed {
				t.Errorf("cut at %d, flipped %v, opened again: %+v", cut, flip, again)
			}
			closeQueue(t, q)
		}
	}
}

func TestAsideGolden(t *testing.T) {
	fsys := memfs.New(nil)
	q := open(t, fsys, Options{Now: now2023})
	setAside(t, q, "a:1", "i", "a", "文")
	setAside(t, q, "a:1", "j", "a")
	closeQueue(t, q)
	name := path.Join(dir, "a%3A1.refused")
	got, err := vfs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "v1.refused")
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
	q = open(t, withFile(t, name, want), Options{})
	defer closeQueue(t, q)
	if got := q.Aside("a:1"); !reflect.DeepEqual(got, []Refused{{Entry{"i", "a"}, now2023().UTC()}, {Entry{"i", "文"}, now2023().UTC()}, {Entry{"j", "a"}, now2023().UTC()}}) {
		t.Errorf("version 1 reads as %+v", got)
	}
	newer := bytes.Clone(want)
	newer[8], newer[12] = FormatVersion+1, FormatVersion+1
	binary.LittleEndian.PutUint32(newer[28:], crc32.Checksum(newer[:28], castagnoli))
	if _, err := Open(dir, withFile(t, name, newer), Options{}); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("a newer format: %v", err)
	}
}

// TestAsideUnderFaults: whatever the disk does, what was put aside and not taken back is there after a restart, or the member has overflowed.
func TestAsideUnderFaults(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 21))
		mem := memfs.New(nil)
		if err := vfs.MkdirAll(mem, path.Dir(dir)); err != nil {
			t.Fatal(err)
		}
		fsys := faultfs.New(mem)
		q := open(t, fsys, Options{})
		fsys.Inject(faultfs.Nth(1+rng.IntN(30), faultfs.Mutating, []faultfs.Fault{faultfs.NoSpace, faultfs.IOError}[rng.IntN(2)]))
		must, may, unsure := map[Entry]bool{}, map[Entry]bool{}, map[Entry]bool{}
		for range 12 {
			e := Entry{"x", fmt.Sprint(rng.IntN(6))}
			if rng.IntN(3) > 0 {
				may[e] = true
				if full, err := q.SetAside("a:1", []Entry{e}); err == nil && !full {
					must[e] = true
				} else {
					unsure[e] = true // one too many costs a look
				}
			} else {
				delete(must, e)
				if err := q.TakeBack("a:1", []Entry{e}); err == nil {
					delete(may, e)
				}
			}
		}
		if err := q.Close(); err != nil {
			t.Logf("seed %d: %v", seed, err)
		}
		q = open(t, mem.CrashClone(rng), Options{})
		got := asideOf(t, q, "a:1")
		for e := range must {
			if !slices.Contains(got, e) {
				t.Errorf("seed %d: %v was put aside and is not there: %v", seed, e, got)
			}
		}
		for _, e := range got {
			if !may[e] && !unsure[e] {
				t.Errorf("seed %d: %v was taken back and is there", seed, e)
			}
		}
		closeQueue(t, q)
	}
}
