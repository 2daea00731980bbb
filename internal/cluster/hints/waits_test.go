package hints

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/vfs/memfs"
)

func waiting(t testing.TB, q *Queue, member, id string) Waiting {
	t.Helper()
	return q.Waiting(member, Entry{"x", id})
}

// TestAQueueKnowsWhatAMemberWaitsFor: by document, until it is done with, in the queue and aside, and in which order it was missed.
func TestAQueueKnowsWhatAMemberWaitsFor(t *testing.T) {
	fsys := memfs.New(nil)
	at := time.Unix(1_700_000_000, 0)
	o := Options{Now: func() time.Time { return at }, MaxAge: 24 * time.Hour}
	q := open(t, fsys, o)
	if got := waiting(t, q, "a:1", "1"); got != (Waiting{}) {
		t.Errorf("a member that was never heard of: %+v", got)
	}
	add(t, q, "a:1", "x", "1", "2")
	add(t, q, "b:1", "x", "1")
	a, b := waiting(t, q, "a:1", "1"), waiting(t, q, "b:1", "1")
	if a.Wait != Does || b.Wait != Does || a.Last >= b.Last {
		t.Errorf("one after the other: %+v, %+v", a, b)
	}
	if got := waiting(t, q, "b:1", "2"); got != (Waiting{}) {
		t.Errorf("the document of another: %+v", got)
	}
	add(t, q, "a:1", "x", "1") // it is not stored again
	if got := waiting(t, q, "a:1", "1"); got.Last <= b.Last {
		t.Errorf("missed again: %+v, the other %+v", got, b)
	}
	for _, m := range []string{"a:1", "b:1"} { // nobody has it, and the order of what others have stays
		if _, err := q.AddUnacknowledged(m, "x", []string{"1", "3"}); err != nil {
			t.Fatal(err)
		}
	}
	a, b = waiting(t, q, "a:1", "1"), waiting(t, q, "b:1", "1")
	if a.Last <= b.Last {
		t.Errorf("what nobody has counts: %+v, %+v", a, b)
	}
	if got := waiting(t, q, "a:1", "3"); got != (Waiting{Does, Unacknowledged}) {
		t.Errorf("what nobody has: %+v", got)
	}
	// It is waited for while it is given, and where it is put behind, or aside, as it was missed.
	at = at.Add(time.Minute)
	batch := next(t, q, "a:1", 10)
	before := waiting(t, q, "a:1", "2")
	if _, err := q.Requeue("a:1", "x", []string{"2"}); err != nil {
		t.Fatal(err)
	}
	setAside(t, q, "a:1", "x", "1")
	done(t, q, batch)
	if got := waiting(t, q, "a:1", "2"); got != before {
		t.Errorf("put behind: %+v, before %+v", got, before)
	}
	if got := waiting(t, q, "a:1", "1"); got != a {
		t.Errorf("put aside: %+v, before %+v", got, a)
	}
	if got := waiting(t, q, "a:1", "3"); got != (Waiting{}) {
		t.Errorf("done with: %+v", got)
	}
	if err := q.TakeBack("a:1", entries("x", "1")); err != nil {
		t.Fatal(err)
	}
	if got := waiting(t, q, "a:1", "1"); got.Wait != Not {
		t.Errorf("taken back: %+v", got)
	}
	setAside(t, q, "a:1", "x", "9")
	// After a start it is what the disk has, in milliseconds, until one is missed again.
	nine := waiting(t, q, "a:1", "9")
	at = at.Add(time.Hour)
	closeQueue(t, q)
	q = open(t, fsys, o)
	defer closeQueue(t, q)
	for id, was := range map[string]Waiting{"2": before, "9": nine} {
		if got := waiting(t, q, "a:1", id); got != (Waiting{Does, was.Last / 1000 * 1000}) {
			t.Errorf("%s after a start: %+v, before %+v", id, got, was)
		}
	}
	add(t, q, "a:1", "x", "2")
	if got := waiting(t, q, "a:1", "2"); got.Last != uint64(at.UnixMicro()) {
		t.Errorf("missed again after a start: %+v", got)
	}
	// Where entries were dropped it may wait for any.
	c, err := q.Compare("a:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := q.Kept("a:1", 10); ok || waiting(t, q, "a:1", "7").Wait != May {
		t.Error("what was dropped is taken for nothing")
	}
	if ok, err := q.Compared(c); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if list, cut, ok := q.Kept("a:1", 10); !ok || cut || len(list) != 1 || list[0].Hash != Hash(Entry{"x", "9"}) {
		t.Errorf("after the comparison: %v, %v, %v", list, cut, ok)
	}
	setAside(t, q, "a:1", "x", "8", "7")
	for most := range 5 {
		if list, cut, ok := q.Kept("a:1", most); !ok || cut != (most < 3) || len(list) != min(most, 3) {
			t.Errorf("%d of 3: %v, %v, %v", most, list, cut, ok)
		}
	}
}

// What is missed again is stored again where another member has missed it in between, here or by what others tell, and only then: after a start it is
// known who missed it last.
func TestWhoMissedADocumentLastIsKnownAfterAStart(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		fsys := memfs.New(nil)
		at := time.Unix(1_700_000_000, 0)
		o := Options{Now: func() time.Time { return at }}
		q := open(t, fsys, o)
		miss := func(member string) {
			t.Helper()
			at = at.Add(time.Second)
			add(t, q, member, "x", "1")
		}
		count := func(member string) int {
			for _, p := range q.Pending() {
				if p.Member == member {
					return p.Count
				}
			}
			return 0
		}
		told := uint64(0)
		q.Rivals(func(member string, e Entry) uint64 {
			if member != "a:1" || e != (Entry{"x", "1"}) {
				t.Errorf("asked of %s and %v", member, e)
			}
			return told
		})
		for range 10 {
			miss("a:1")
		}
		if n := count("a:1"); n != 1 {
			t.Errorf("it is stored %d times", n)
		}
		if at = at.Add(time.Second); elsewhere {
			told = uint64(at.UnixMicro())
		} else {
			miss("b:1")
		}
		for range 10 {
			miss("a:1")
		}
		if n := count("a:1"); n != 2 {
			t.Errorf("missed again behind another, it is stored %d times", n)
		}
		closeQueue(t, q)
		q = open(t, fsys, o)
		if a, b := waiting(t, q, "a:1", "1").Last, max(told, waiting(t, q, "b:1", "1").Last); a <= b {
			t.Errorf("after a start %d is not behind %d", a, b)
		}
		closeQueue(t, q)
	}
}

// What is aside keeps when it was missed, however much later it was put aside, and again where another member has missed it in between.
func TestWhatIsAsideKeepsWhenItWasMissed(t *testing.T) {
	fsys := memfs.New(nil)
	at := time.Unix(1_700_000_000, 0)
	o := Options{Now: func() time.Time { return at }}
	q := open(t, fsys, o)
	refuse := func(member string) {
		t.Helper()
		at = at.Add(time.Second)
		add(t, q, member, "x", "1")
		b := next(t, q, member, 10)
		missed := at
		at = at.Add(time.Minute)
		setAside(t, q, member, "x", "1")
		done(t, q, b)
		if got := waiting(t, q, member, "1"); got != (Waiting{Does, uint64(missed.UnixMicro())}) {
			t.Errorf("missed at %v, and it is %+v", missed.UnixMicro(), got)
		}
	}
	order := func(first, then string) {
		t.Helper()
		closeQueue(t, q)
		q = open(t, fsys, o)
		if a, b := waiting(t, q, first, "1"), waiting(t, q, then, "1"); a.Wait != Does || b.Wait != Does || a.Last >= b.Last {
			t.Errorf("%s and then %s: %+v, %+v", first, then, a, b)
		}
	}
	refuse("a:1")
	since := q.Aside("a:1")[0].Since
	refuse("a:1")
	if got := q.Aside("a:1")[0].Since; !got.Equal(since) {
		t.Errorf("it is aside since %v, and was since %v", got, since)
	}
	at = at.Add(-30 * time.Second)
	refuse("b:1") // before the other one was put aside, by the clock
	order("a:1", "b:1")
	refuse("a:1")
	order("b:1", "a:1")
	closeQueue(t, q)
}

// What is missed after another's stamp was heard has a later one, whatever the calendar says.
func TestStampsFollowWhatWasHeard(t *testing.T) {
	at := time.UnixMicro(1_000_000)
	q := open(t, memfs.New(nil), Options{Now: func() time.Time { return at }})
	defer closeQueue(t, q)
	for i, heard := range []uint64{0, 5_000_000, 10, 5_000_001, 1 << 63} {
		q.Heard(heard)
		before := q.Stamp()
		id := fmt.Sprint(i)
		add(t, q, "a:1", "x", id)
		if got := waiting(t, q, "a:1", id).Last; got <= before || heard < maxStamp && got <= heard || got > 6_000_000 {
			t.Errorf("%d was heard, and what is missed then has %d after %d", heard, got, before)
		}
	}
	at = at.Add(time.Minute)
	add(t, q, "a:1", "x", "later")
	if got := waiting(t, q, "a:1", "later").Last; got != uint64(at.UnixMicro()) {
		t.Errorf("the calendar has gone on, and the stamp is %d", got)
	}
}

// More than are known one by one may be any, until they are done with.
func TestMoreThanAreKnownMayBeAny(t *testing.T) {
	q := open(t, memfs.New(nil), Options{})
	defer closeQueue(t, q)
	ids := make([]string, maxWaits+1)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	add(t, q, "a:1", "x", ids...)
	if _, _, ok := q.Kept("a:1", 10); ok || waiting(t, q, "a:1", "else").Wait != May {
		t.Error("it is said to be all")
	}
	if n := len(drain(t, q, "a:1", 1000)); n != len(ids) {
		t.Fatalf("%d entries", n)
	}
	if list, cut, ok := q.Kept("a:1", 10); !ok || cut || len(list) > 0 || waiting(t, q, "a:1", "else").Wait != Not {
		t.Errorf("nothing is left, and it may wait: %v, %v, %v", list, cut, ok)
	}
}

// TestWaitsAreWhatIsQueued draws calls and holds what is said of each document against the entries that come.
func TestWaitsAreWhatIsQueued(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 17))
		fsys := memfs.New(nil)
		q := open(t, fsys, Options{})
		var ids []string
		for i := range 20 {
			ids = append(ids, fmt.Sprint(i))
		}
		some := func() []string {
			out := slices.Clone(ids)
			r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			return out[:1+r.IntN(4)]
		}
		last := map[string]uint64{} // of what was missed since the start
		for step := range 120 {
			switch r.IntN(8) {
			case 0, 1, 2:
				list := some()
				add(t, q, "a:1", "x", list...)
				for _, id := range list {
					last[id] = q.Stamp()
				}
			case 3:
				if _, err := q.AddUnacknowledged("a:1", "x", some()); err != nil {
					t.Fatal(err)
				}
			case 4, 5:
				b := next(t, q, "a:1", 1+r.IntN(6))
				stays := map[string]bool{}
				if r.IntN(3) == 0 && len(b.Entries) > 0 {
					id := b.Entries[0].ID
					if _, err := q.Requeue("a:1", "x", []string{id}); err != nil {
						t.Fatal(err)
					}
					stays[id] = true
				}
				if r.IntN(3) == 0 && len(b.Entries) > 0 {
					id := b.Entries[len(b.Entries)-1].ID
					setAside(t, q, "a:1", "x", id)
					stays[id] = true
				}
				for _, e := range b.Entries {
					if !stays[e.ID] {
						delete(last, e.ID) // it may be aside from before
					}
				}
				done(t, q, b)
			case 6:
				list := some()
				if err := q.TakeBack("a:1", entries("x", list...)); err != nil {
					t.Fatal(err)
				}
				for _, id := range list {
					delete(last, id) // it may be in the queue from before
				}
			case 7:
				if r.IntN(4) == 0 {
					closeQueue(t, q)
					q = open(t, fsys, Options{})
					clear(last)
				}
			}
			want := map[string]bool{}
			for _, e := range next(t, q, "a:1", 1<<20).Entries {
				want[e.ID] = true
			}
			for _, e := range q.Aside("a:1") {
				want[e.ID] = true
			}
			list, cut, ok := q.Kept("a:1", 1000)
			if !ok || cut || len(list) != len(want) || !slices.IsSortedFunc(list, func(a, b Kept) int { return min(1, max(-1, int(a.Hash>>1)-int(b.Hash>>1))) }) {
				t.Fatalf("seed %d, step %d: %d of %d are told, cut %v, known %v", seed, step, len(list), len(want), cut, ok)
			}
			for _, id := range ids {
				w := waiting(t, q, "a:1", id)
				if (w.Wait == Does) != want[id] || w.Wait == May {
					t.Fatalf("seed %d, step %d: %s is waited for: %v, and it is said %+v", seed, step, id, want[id], w)
				}
				if !want[id] {
					delete(last, id)
				} else if at := last[id]; at > 0 && w.Last != at {
					t.Fatalf("seed %d, step %d: %s was missed at %d last, and it is said %+v", seed, step, id, at, w)
				}
				if i := slices.IndexFunc(list, func(k Kept) bool { return k.Hash == Hash(Entry{"x", id}) }); (i >= 0) != want[id] || i >= 0 && list[i].Last != w.Last {
					t.Fatalf("seed %d, step %d: %s is told otherwise", seed, step, id)
				}
			}
		}
		closeQueue(t, q)
	}
}

// TestWhatNobodyHasConfirmedIsNoNews: it changes what is kept, and nothing that others have to know at once.
func TestWhatNobodyHasConfirmedIsNoNews(t *testing.T) {
	q, err := Open("hints", memfs.New(nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i, add := range []func(member, index string, ids []string) (bool, error){q.AddUnacknowledged, q.Requeue, q.Add} {
		added, edits := q.Pulse("a:1")
		if _, err := add("a:1", "default", []string{"pkg/1"}); err != nil {
			t.Fatal(err)
		}
		if now, then := q.Pulse("a:1"); (now != added) != (i == 2) || then == edits {
			t.Errorf("call %d: added %d to %d, changed %d to %d", i, added, now, edits, then)
		}
	}
}
