package node

import (
	"fmt"
	"sync"
	"testing"
)

// TestFencesOfANodeAreBounded: where all tables together know of too many documents, the one that was used least recently is emptied; its fences
// count no more, and what a Sync put there is not known any more.
func TestFencesOfANodeAreBounded(t *testing.T) {
	room := &fenceRoom{most: 100}
	ids := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprint("d", i)
		}
		return out
	}
	var a, b, c fences
	a.room, b.room, c.room = room, room, room
	fence := func(f *fences, n int) uint64 {
		t.Helper()
		got, err := f.make(t.Context(), ids(n))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	ofA, ofB := fence(&a, 30), fence(&b, 40)
	a.changed(ids(10))
	may := func(f *fences, fence uint64) bool {
		got := f.begin(ids(1), fence)
		f.end(ids(1), got)
		return got[0]
	}
	if ofC := fence(&c, 20); room.docs.Load() != 100 || !may(&a, ofA) || !may(&b, ofB) || !may(&c, ofC) {
		t.Fatalf("at the bound, with %d documents, all count", room.docs.Load())
	}
	fence(&c, 21) // one past it; the least recently used is b
	if may(&b, ofB) || !may(&a, ofA) {
		t.Error("past the bound it is not the fences of b that count no more")
	}
	if n := len(a.among(ids(20))); n != 10 {
		t.Errorf("%d documents of a are known to be of a Sync", n)
	}
	fence(&b, 60) // now a
	if may(&a, ofA) {
		t.Error("the fences of a count yet")
	}
	if n := len(a.among(ids(20))); n != 20 {
		t.Errorf("of %d documents of a it is said that a Sync may have put them", n)
	}
	if n := room.docs.Load(); n != 81 {
		t.Errorf("%d documents are counted", n)
	}
	room.leave(&b)
	room.leave(&c)
	if n := room.docs.Load(); n != 0 || len(room.tables) != 1 {
		t.Errorf("%d documents in %d tables are counted after all have left", n, len(room.tables))
	}
	fence(&a, 200) // more than there is room for at all, by one call, which has a bound of its own
	if n := room.docs.Load(); n != 200 {
		t.Errorf("%d documents are counted", n)
	}
}

// TestFencesOfANodeAtOnce: tables that make room at each other's cost do not wait for each other.
func TestFencesOfANodeAtOnce(t *testing.T) {
	room := &fenceRoom{most: 50}
	tables := make([]fences, 4)
	var all sync.WaitGroup
	for i := range tables {
		tables[i].room = room
		all.Go(func() {
			for k := range 200 {
				ids := []string{fmt.Sprint(k), fmt.Sprint(k + 1), fmt.Sprint(k + 2)}
				fence, err := tables[i].make(t.Context(), ids)
				if err != nil {
					t.Error(err)
				}
				may := tables[i].begin(ids, fence)
				tables[i].changed(ids)
				tables[i].end(ids, may)
				tables[i].write(1, func(int) string { return ids[0] })(func(int) bool { return false })
			}
		})
	}
	all.Wait()
	var n int64
	for i := range tables {
		n += int64(len(tables[i].of) + len(tables[i].synced))
	}
	if got := room.docs.Load(); got != n || got > 50+6*int64(len(tables)) {
		t.Errorf("%d documents are counted, %d are there", got, n)
	}
}
