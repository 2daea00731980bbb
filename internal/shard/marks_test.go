package shard

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"unsafe"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestMarksOfKeys holds what is kept of marks against all of them: what is said is right, and of few keys all is said.
func TestMarksOfKeys(t *testing.T) {
	for _, keys := range []int{1, 10, 2000, 40_000} {
		r := rand.New(rand.NewPCG(1, uint64(keys)))
		m, all := &marks{}, map[string]uint64{}
		lost, asked := 0, 0
		for range 300_000 {
			key := strconv.Itoa(r.IntN(keys))
			mark := max(r.Uint64()&^1, 2)
			switch r.IntN(10) {
			case 0:
				mark = 0
				fallthrough
			default:
				behind := m.note(key, mark)
				if behind != 0 && behind != all[key] {
					t.Fatalf("%d keys: %s is behind %d, not %d", keys, key, behind, all[key])
				}
				if all[key] != 0 {
					if asked++; behind == 0 {
						lost++
					}
				}
				all[key] = mark
			case 1:
				own := all[key]
				if r.IntN(3) == 0 {
					own = mark &^ uint64(r.IntN(2)) // of another writer
				}
				if r.IntN(3) == 0 {
					own = 0
				}
				last := m.look(key, own)
				if last && (own == 0 || own != all[key]) {
					t.Fatalf("%d keys: %s was said to be last at %s, which is %d", keys, strconv.FormatUint(own, 10), key, all[key])
				}
				if all[key] = 0; last {
					all[key] = own | 1
				}
			}
		}
		if keys <= 10 && lost > 0 || keys == 2000 && lost > asked/20 || lost == asked {
			t.Errorf("%d keys: of %d times nothing was known %d times", keys, asked, lost)
		}
		if n := len(m.buckets) * int(unsafe.Sizeof(bucket{})); n > 256<<10 || keys == 1 && n > 1<<10 {
			t.Errorf("%d keys: %d bytes", keys, n)
		}
	}
}

// TestBehindWhatAWriteIs follows what a shard says of writes that have marks.
func TestBehindWhatAWriteIs(t *testing.T) {
	cfg := config(t, memfs.New(nil))
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { closeShard(t, s) }()
	doc := func(key string, mark uint64) Op {
		op := put(&schema.Document{Key: key, Fields: []schema.Values{{Field: fID, Text: []string{key}}}})
		op.Mark = mark
		return op
	}
	apply := func(want uint64, ops ...Op) {
		t.Helper()
		res, err := s.Apply(t.Context(), ops)
		if err != nil {
			t.Fatal(err)
		}
		if got := res[len(res)-1].Behind; got != want {
			t.Errorf("it is behind %d, not %d", got, want)
		}
	}
	look := func(mark uint64, want bool, keys ...string) {
		t.Helper()
		if last, err := s.Disturb(t.Context(), keys, mark); err != nil || last != want {
			t.Errorf("last: %t, %v", last, err)
		}
	}
	apply(0, doc("a", 10))
	apply(10, doc("a", 20))
	apply(0, doc("b", 30))
	look(20, true, "a")
	apply(21, doc("a", 40))
	look(40, false, "a", "b") // b is another's
	apply(41, doc("a", 50))
	apply(0, doc("b", 60))
	look(20, false, "a")
	apply(0, doc("a", 70))
	look(0, false, "a")
	apply(0, doc("a", 80))
	apply(0, doc("a", 0)) // a write of somebody who names none
	apply(0, doc("a", 90))
	apply(110, doc("a", 100), doc("b", 110), Op{Delete: true, Key: "a"}, doc("b", 120))
	apply(0, doc("a", 130))
	apply(0, Op{Delete: true, Key: "c"})
	apply(0, doc("c", 140))
	unmet := doc("a", 150)
	unmet.If = &Condition{} // that there is none
	if res, err := s.Apply(t.Context(), []Op{unmet}); err != nil || res[0].Err == nil || res[0].Behind != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(130, doc("a", 160)) // what had no effect is nothing, and where it stands does not count
	closeShard(t, s)
	if s, err = Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	apply(0, doc("a", 170))
	if s.writeMu.marks.note("a", 0) != 170 {
		t.Error("it is not the last")
	}
}
