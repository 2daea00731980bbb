package jobs

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// writes is a write through a coordinator: members that are in have it, and of all others of the fleet it is kept that they have missed it.
func (f *fleet) writes(by *keeper, d string, in ...*model) {
	f.t.Helper()
	for _, m := range in {
		m.put("default", d)
	}
	for _, m := range f.all() {
		if !slices.Contains(in, m) {
			by.missed(f.t, m.addr, idOf(d))
		}
	}
}

// down makes members unreachable, or reachable again.
func down(is bool, ms ...*model) {
	for _, m := range ms {
		m.setDown(is)
	}
}

func (f *fleet) nothingWaits(ks ...*keeper) {
	f.t.Helper()
	for _, k := range ks {
		if p := k.q.Pending(); len(p) > 0 {
			f.t.Errorf("%+v", p)
		}
	}
}

// TestTwoThatRefusedADocumentAreGivenTheLastStateOfIt: one coordinator keeps a document for one member and another coordinator for the other, and
// neither of them refuses it any more.
func TestTwoThatRefusedADocumentAreGivenTheLastStateOfIt(t *testing.T) {
	for _, last := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pair(t, 2, 100)
			one, two := f.keeper(Options{}), f.keeper(Options{})
			defer one.shut(t)
			defer two.shut(t)
			a, b := f.at(addr(0, 1-last)), f.at(addr(0, last))
			a.setRefuse("pkg/7", true)
			f.writes(one, doc("pkg/7", 1), b)
			<-time.After(10 * time.Second)
			a.setRefuse("pkg/7", false)
			b.setRefuse("pkg/7", true)
			byID["pkg/7"] = doc("pkg/7", 2)
			f.writes(two, byID["pkg/7"], a)
			<-time.After(10 * time.Second)
			if one, two := one.aside(a.addr), two.aside(b.addr); len(one) != 1 || len(two) != 1 {
				t.Fatalf("aside: %v and %v", one, two)
			}
			b.setRefuse("pkg/7", false)
			<-time.After(2 * refusedEvery)
			f.same("default", byID)
			f.nothingWaits(one, two)
		})
	}
}

// TestTwoThatRefusedDifferentDocumentsGiveEachOtherTheirs: what another coordinator keeps for a member is another document.
func TestTwoThatRefusedDifferentDocumentsGiveEachOtherTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pair(t, 2, 100)
		one, two := f.keeper(Options{}), f.keeper(Options{})
		defer one.shut(t)
		defer two.shut(t)
		a, b := f.at(addr(0, 0)), f.at(addr(0, 1))
		byID["pkg/7"], byID["pkg/8"] = doc("pkg/7", 1), doc("pkg/8", 1)
		a.setRefuse("pkg/7", true)
		b.setRefuse("pkg/8", true)
		f.writes(one, byID["pkg/7"], b)
		f.writes(two, byID["pkg/8"], a)
		<-time.After(time.Minute)
		a.setRefuse("pkg/7", false)
		b.setRefuse("pkg/8", false)
		<-time.After(2 * refusedEvery)
		f.same("default", byID)
		f.nothingWaits(one, two)
	})
}

// TestTwoThatMissedADocumentTakeItFromTheThird: each of the two is known to another coordinator, and the third lacks something else.
func TestTwoThatMissedADocumentTakeItFromTheThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pair(t, 3, 100)
		one, two := f.keeper(Options{}), f.keeper(Options{})
		defer one.shut(t)
		defer two.shut(t)
		a, b, c := f.at(addr(0, 0)), f.at(addr(0, 1)), f.at(addr(0, 2))
		c.setRefuse("pkg/20", true)
		byID["pkg/20"] = doc("pkg/20", 2)
		f.writes(two, byID["pkg/20"], a, b)
		<-time.After(time.Minute)
		down(true, a)
		f.writes(one, doc("pkg/7", 1), b, c)
		down(true, b)
		byID["pkg/7"] = doc("pkg/7", 2)
		c.put("default", byID["pkg/7"])
		two.missed(t, b.addr, "pkg/7")
		<-time.After(10 * time.Second)
		down(false, a, b)
		<-time.After(time.Minute)
		for _, m := range []*model{a, b} {
			if got := m.docs("default")["pkg/7"]; got != byID["pkg/7"] {
				t.Errorf("%s has %s", m.addr, got)
			}
		}
		f.nothingWaits(one)
	})
}

// TestWhereAllWaitWhoHasTheDocumentIsRight: of three members that all wait for writes the two first, the primary among them, wait for this document.
func TestWhereAllWaitWhoHasTheDocumentIsRight(t *testing.T) {
	for _, both := range []bool{false, true} { // coordinators
		synctest.Test(t, func(t *testing.T) {
			f, byID := pair(t, 3, 100)
			one := f.keeper(Options{})
			defer one.shut(t)
			two := one
			if both {
				two = f.keeper(Options{})
				defer two.shut(t)
			}
			a, b, c := f.at(addr(0, 0)), f.at(addr(0, 1)), f.at(addr(0, 2))
			down(true, a, b)
			byID["pkg/7"] = doc("pkg/7", 1)
			f.writes(one, byID["pkg/7"], c)
			<-time.After(10 * time.Second)
			down(true, c)
			down(false, b)
			byID["pkg/8"] = doc("pkg/8", 1)
			f.writes(two, byID["pkg/8"], b)
			<-time.After(10 * time.Second)
			down(false, a, c)
			<-time.After(2 * time.Minute)
			f.same("default", byID)
			f.nothingWaits(one, two)
		})
	}
}

// TestOfTwoWritesThatTwoMembersMissedTheLastIsKept: each member has missed one of them. The primary is not right because it is the primary, and who
// starts again knows the order by what is on its disk.
func TestOfTwoWritesThatTwoMembersMissedTheLastIsKept(t *testing.T) {
	for last := range 2 { // who has it
		for how := range 4 {
			synctest.Test(t, func(t *testing.T) {
				f, byID := pair(t, 2, 100)
				disk := memfs.New(nil)
				one := f.keeperOn(disk, Options{})
				defer func() { one.shut(t) }()
				two := one
				if how&1 != 0 {
					two = f.keeper(Options{})
					defer two.shut(t)
				}
				a, b := f.at(addr(0, 1-last)), f.at(addr(0, last))
				down(true, b)
				f.writes(one, doc("pkg/7", 1), a)
				<-time.After(3 * time.Second)
				down(true, a)
				down(false, b)
				byID["pkg/7"] = doc("pkg/7", 2)
				f.writes(two, byID["pkg/7"], b)
				<-time.After(10 * time.Second)
				if how&2 != 0 {
					one.kill()
					one.shut(t)
					again := f.keeperOn(disk, Options{})
					if two == one {
						two = again
					}
					one = again
					<-time.After(10 * time.Second)
				}
				down(false, a)
				<-time.After(2 * time.Minute)
				f.same("default", byID)
				f.nothingWaits(one, two)
			})
		}
	}
}

// TestTwoThatMissedMoreThanIsToldAreGivenEachOthers: the lists of both are cut, and what is told comes first.
func TestTwoThatMissedMoreThanIsToldAreGivenEachOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = maxMissedDocs + 1000
		f, byID := pair(t, 2, 2*n)
		one, two := f.keeper(Options{}), f.keeper(Options{})
		defer one.shut(t)
		defer two.shut(t)
		a, b := f.at(addr(0, 0)), f.at(addr(0, 1))
		down(true, a, b)
		for i, id := range slices.Sorted(maps.Keys(byID)) {
			byID[id] = doc(id, 1)
			if i%2 == 0 {
				f.writes(one, byID[id], b)
			} else {
				f.writes(two, byID[id], a)
			}
		}
		<-time.After(10 * time.Second)
		down(false, a, b)
		<-time.After(5 * time.Minute) // and not mostElsewhere
		f.same("default", byID)
		f.nothingWaits(one, two)
	})
}

// TestNothingWaitsLongWhileWritesAreMissedAgainAndAgain: each of two coordinators keeps on seeing the other's member miss something, and callers that leave before
// anybody has confirmed their writes. Lists are told in between, and what hangs on them is given.
func TestNothingWaitsLongWhileWritesAreMissedAgainAndAgain(t *testing.T) {
	for _, every := range []time.Duration{3 * time.Second, 10 * time.Second, 25 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pair(t, 2, 200)
			one, two := f.keeper(Options{}), f.keeper(Options{})
			defer one.shut(t)
			defer two.shut(t)
			a, b := f.at(addr(0, 0)), f.at(addr(0, 1))
			ids := slices.Sorted(maps.Keys(byID))
			doubt := func(k *keeper, id string) {
				for _, m := range f.all() {
					if _, err := k.q.AddUnacknowledged(m.addr, "default", []string{id}); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i := range int(20 * time.Minute / every) {
				x, y := ids[2*i%100], ids[2*i%100+1]
				byID[x], byID[y] = doc(x, i), doc(y, i)
				f.writes(one, byID[x], a)
				f.writes(two, byID[y], b)
				doubt(one, ids[100+i%50])
				<-time.After(every / 2)
				doubt(two, ids[150+i%50])
				<-time.After(every / 2)
				for _, k := range []*keeper{one, two} {
					for _, p := range k.q.Pending() {
						if since := time.Since(p.Oldest); p.Count > 0 && since > 6*time.Minute { // mostly it is one
							t.Fatalf("one write each %v: what %s missed waits for %v", every, p.Member, since)
						}
					}
				}
			}
			<-time.After(3 * time.Minute)
			f.same("default", byID)
			f.nothingWaits(one, two)
		})
	}
}

// TestWhatIsNotToldWaitsAndIsTakenInTheEnd: a coordinator that does not tell which documents it keeps for the only other member keeps those of another
// waiting while it is heard of, ten minutes at most.
func TestWhatIsNotToldWaitsAndIsTakenInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pair(t, 2, 100)
		one := f.keeper(Options{})
		defer one.shut(t)
		a := f.at(addr(0, 1))
		beat := uint64(0)
		old := func() { // as who does not know docs writes it
			beat++
			book, tag, err := readMissed(t.Context(), f.store)
			if err != nil {
				t.Fatal(err)
			}
			book.put(&missedBy{ID: "old", Beat: beat, Members: []string{addr(0, 0)}}, func(string) bool { return false })
			for _, by := range book.Coordinators {
				by.Docs, by.Last = nil, 0
			}
			cond := store.Absent
			if tag != "" {
				cond = store.Condition{IfMatch: tag}
			}
			put(t, f.store, book, cond)
		}
		old()
		<-time.After(missedHeed + time.Second)
		old()
		down(true, a)
		byID["pkg/7"] = doc("pkg/7", 1)
		f.at(addr(0, 0)).put("default", byID["pkg/7"])
		one.missed(t, a.addr, "pkg/7")
		<-time.After(10 * time.Second)
		down(false, a)
		for range 8 {
			<-time.After(time.Minute)
			old()
			if got := a.docs("default")["pkg/7"]; got == byID["pkg/7"] || !one.short(a.addr) {
				t.Fatalf("it has %s already", got)
			}
		}
		for range 4 {
			<-time.After(time.Minute)
			old()
		}
		f.same("default", byID)
		f.nothingWaits(one)
	})
}

func put(t testing.TB, s store.Store, b *missedBook, cond store.Condition) {
	t.Helper()
	raw, err := b.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), missedKey, bytes.NewReader(raw), int64(len(raw)), cond); err != nil {
		t.Fatal(err)
	}
}

// TestRightIsWhoHasTheLastWrite holds the choice against brute force: writes of one document that some members take and others miss, each behind the
// one before, and what is known of them.
func TestRightIsWhoHasTheLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pair(t, 4, 1)
		co := f.coordinator(Options{})
		defer co.shut(t)
		ms := co.cluster.State().Groups[0].Members
		e := hints.Entry{Index: "default", ID: "pkg/1"}
		for seed := range uint64(3000) {
			rng := rand.New(rand.NewPCG(seed, 5))
			of := ms[:1+rng.IntN(4)]
			has := make([]int, len(of))     // the last write that a member has
			last := make([]uint64, len(of)) // stamp of its last miss; 0: none
			by := make([]int, len(of))      // who keeps that
			write := 0
			for range 1 + rng.IntN(5) {
				write++
				took := false
				for k := range of {
					if rng.IntN(2) == 0 || k == len(of)-1 && !took {
						has[k], took = write, true
					} else {
						last[k], by[k] = uint64(10*write), rng.IntN(3)
					}
				}
				if rng.IntN(4) == 0 { // nobody has it
					for k := range of {
						last[k] = max(last[k], hints.Unacknowledged)
					}
				}
			}
			hidden := rng.IntN(3) == 0 // of one it is not told what is kept
			book := &missedBook{Format: missedFormat}
			for c := range 3 {
				w := &missedBy{ID: fmt.Sprint(c), Beat: seed, Members: []string{}, Docs: map[string][]byte{}}
				for k, m := range of {
					if last[k] == 0 || by[k] != c {
						continue
					}
					w.Members = append(w.Members, m.Addr)
					if !hidden || c > 0 {
						w.Docs[m.Addr] = (&waitsFor{list: []hints.Kept{{Hash: hints.Hash(e), Last: last[k]}}}).encode()
					}
				}
				book.Coordinators = append(book.Coordinators, w)
			}
			co.others.heard(time.Now(), book, "")
			<-time.After(time.Millisecond)
			got, how := co.right(of, e, false)
			why := fmt.Sprintf("seed %d: have %v, missed %v by %v, hidden %v", seed, has, last, by, hidden)
			if how == isUnknown {
				if !slices.ContainsFunc(of, func(m *members.Member) bool { return co.others.unlisted(m.Addr) }) {
					t.Fatalf("%s: it is not known", why)
				}
				if m, _ := co.right(of, e, true); m == nil {
					t.Fatalf("%s: there is none", why)
				}
				continue
			}
			if k := slices.IndexFunc(of, func(m *members.Member) bool { return m == got }); has[k] != write {
				t.Fatalf("%s: %d is right (%v)", why, k, how)
			}
		}
	})
}

// TestMissesLoseNothing draws writes that members miss through several coordinators with clocks of their own, in any order, also where all members have
// missed some: the last one that was acknowledged of each document is at some member at any time, and at all in the end.
func TestMissesLoseNothing(t *testing.T) {
	rounds := 40
	if raced {
		rounds = 8
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 77))
			size := 2 + rng.IntN(2)
			f, byID := pair(t, size, 12)
			disks := make([]*memfs.FS, 2+rng.IntN(2))
			ks := make([]*keeper, len(disks))
			begin := func(i int) {
				q, err := hints.Open("hints", disks[i], hints.Options{Now: func() time.Time { return time.Now().Add(time.Duration(i) * time.Second) }})
				if err != nil {
					t.Fatal(err)
				}
				o := Options{Hints: q}
				if i == 0 {
					o.RepairEvery = time.Minute
				}
				ks[i] = &keeper{f.coordinator(o), q}
			}
			for i := range disks {
				disks[i] = memfs.New(nil)
				begin(i)
			}
			defer func() {
				for _, k := range ks {
					k.shut(t)
				}
			}()
			ids := slices.Sorted(maps.Keys(byID))
			holds := func(when string) {
				for id, d := range byID {
					if !slices.ContainsFunc(f.all(), func(m *model) bool { return m.docs("default")[id] == d }) {
						t.Fatalf("seed %d, %s: nobody has %s any more", seed, when, d)
					}
				}
			}
			for step := range 40 {
				// Some members are away, one at least is not.
				away := f.all()
				rng.Shuffle(len(away), func(i, j int) { away[i], away[j] = away[j], away[i] })
				away = away[:rng.IntN(size)]
				for _, m := range f.all() {
					m.setDown(slices.Contains(away, m))
				}
				<-time.After(missedWait)
				for range rng.IntN(4) {
					id := ids[rng.IntN(len(ids))]
					byID[id] = doc(id, 100+step)
					f.writes(ks[rng.IntN(len(ks))], byID[id], slices.DeleteFunc(f.all(), func(m *model) bool { return slices.Contains(away, m) })...)
				}
				// Nothing is to be given just now by who has not heard.
				<-time.After(missedListen + missedWait)
				holds(fmt.Sprint("step ", step))
				if rng.IntN(3) == 0 {
					<-time.After(time.Duration(rng.IntN(90)) * time.Second)
				}
				if i := rng.IntN(3 * len(ks)); i < len(ks) {
					ks[i].kill()
					ks[i].shut(t)
					begin(i)
				}
			}
			down(false, f.all()...)
			<-time.After(5 * time.Minute)
			f.same("default", byID)
			f.nothingWaits(ks...)
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}
