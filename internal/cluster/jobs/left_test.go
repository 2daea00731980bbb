package jobs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestWhatACoordinatorThatIsGoneKeptIsTakenOver: it never comes back, and nobody undoes what it has acknowledged at the member that has it: the one that
// missed it is compared, also if it is the primary. That takes longer where it has told which documents it keeps: nothing waits for it then.
func TestWhatACoordinatorThatIsGoneKeptIsTakenOver(t *testing.T) {
	for _, told := range []bool{false, true} {
		for _, starts := range []bool{false, true} {
			for primary := range 2 {
				t.Run(fmt.Sprintf("told=%t starts=%t primary=%d", told, starts, primary), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f, byID := pair(t, 2, 100)
						disk := memfs.New(nil)
						one, other := f.keeperOn(disk, Options{RepairEvery: time.Minute}), f.keeper(Options{})
						defer func() { one.shut(t) }()
						a, b := f.at(addr(0, primary)), f.at(addr(0, 1-primary))
						down(true, a)
						byID["pkg/7"] = doc("pkg/7", 1)
						f.writes(other, byID["pkg/7"], b)
						delete(byID, "pkg/8")
						b.remove("default", "pkg/8")
						other.missed(t, a.addr, "pkg/8")
						<-time.After(missedWait)
						if told {
							<-time.After(missedCalm + missedWait)
						}
						other.kill()
						other.shut(t)
						<-time.After(time.Minute)
						if starts { // what it has heard of it begins anew
							one.kill()
							one.shut(t)
							one = f.keeperOn(disk, Options{RepairEvery: time.Minute})
						}
						down(false, a)
						for range 6 {
							<-time.After(10 * time.Second)
							if got := b.docs("default"); got["pkg/7"] != byID["pkg/7"] || got["pkg/8"] != "" {
								t.Fatalf("it is undone: %s, %s", got["pkg/7"], got["pkg/8"])
							}
						}
						if told {
							<-time.After(missedFor - time.Minute)
						}
						<-time.After(time.Minute)
						f.same("default", byID)
						f.nothingWaits(one)
						<-time.After(missedFor)
						if book, _, err := readMissed(t.Context(), f.store); err != nil || len(book.Coordinators) > 1 {
							t.Errorf("%+v, %v", book, err)
						}
					})
				})
			}
		}
	}
}

// tells writes what another coordinator tells.
func (f *fleet) tells(by *missedBy) {
	f.t.Helper()
	book, tag, err := readMissed(f.t.Context(), f.store)
	if err != nil {
		f.t.Fatal(err)
	}
	book.put(by, func(string) bool { return false })
	cond := store.Absent
	if tag != "" {
		cond = store.Condition{IfMatch: tag}
	}
	put(f.t, f.store, book, cond)
}

// TestWhatIsKeptForAnotherMemberDoesNotWaitForWhoIsGone: each member of a group has missed something, and nobody has told what of one of them.
func TestWhatIsKeptForAnotherMemberDoesNotWaitForWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pair(t, 2, 100)
		one, other := f.keeper(Options{RepairEvery: time.Minute}), f.keeper(Options{})
		defer one.shut(t)
		a, b := f.at(addr(0, 0)), f.at(addr(0, 1))
		down(true, b)
		byID["pkg/8"] = doc("pkg/8", 2)
		f.writes(one, byID["pkg/8"], a)
		<-time.After(10 * time.Second)
		byID["pkg/7"] = doc("pkg/7", 1)
		f.writes(other, byID["pkg/7"], b)
		<-time.After(missedWait)
		other.kill()
		other.shut(t)
		down(false, b)
		<-time.After(time.Minute)
		if got := b.docs("default")["pkg/8"]; got == byID["pkg/8"] {
			t.Error("it does not wait for who may be there yet")
		}
		<-time.After(missedUntold - time.Minute + missedListen)
		<-time.After(2 * (mostUnknown + 2*replayEvery)) // a try may have been just before; the comparison may leave documents to another one
		f.same("default", byID)
		f.nothingWaits(one)
	})
}

// TestNothingIsTakenOverFromWhoLacksWhatIsNotTold: the member that has what one missed has missed something itself, and nobody tells yet what.
func TestNothingIsTakenOverFromWhoLacksWhatIsNotTold(t *testing.T) {
	for _, told := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pair(t, 2, 100)
			one := f.keeper(Options{RepairEvery: time.Minute})
			defer one.shut(t)
			a, b := f.at(addr(0, 0)), f.at(addr(0, 1))
			byID["pkg/7"], byID["pkg/9"] = doc("pkg/7", 1), doc("pkg/9", 1)
			b.put("default", byID["pkg/7"])
			a.put("default", byID["pkg/9"])
			f.tells(&missedBy{ID: "gone", Beat: 1, Members: []string{a.addr}})
			by := &missedBy{ID: "there", Beat: 1, Members: []string{b.addr}}
			for range 10 {
				by.Beat++
				f.tells(by)
				<-time.After(30 * time.Second)
			}
			if got := a.docs("default"); got["pkg/9"] != byID["pkg/9"] || got["pkg/7"] == byID["pkg/7"] {
				t.Fatalf("the member has %s, %s", got["pkg/7"], got["pkg/9"])
			}
			if told {
				by.Docs = map[string][]byte{b.addr: (&waitsFor{list: []hints.Kept{{Hash: hints.Hash(hints.Entry{Index: "default", ID: "pkg/9"}), Last: 1_700_000_000_000_000}}}).encode()}
				by.Beat++
				f.tells(by)
				<-time.After(30 * time.Second)
				if got := a.docs("default"); got["pkg/9"] != byID["pkg/9"] || got["pkg/7"] != byID["pkg/7"] {
					t.Fatalf("the member has %s, %s", got["pkg/7"], got["pkg/9"])
				}
				b.put("default", byID["pkg/9"]) // it is given it
				by.Members, by.Docs = nil, nil
			}
			for range 30 {
				by.Beat++
				f.tells(by)
				<-time.After(30 * time.Second)
			}
			if got := a.docs("default")["pkg/7"]; got != byID["pkg/7"] {
				t.Errorf("told %t: in the end it has %s", told, got)
			}
			if told {
				f.same("default", byID)
				f.nothingWaits(one)
			}
		})
	}
}

// TestWhatMembersHaveAlikeDoesNotWait: it is not told which documents the other member waits for, but both have the same of one of them.
func TestWhatMembersHaveAlikeDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pair(t, 2, 100)
		one := f.keeper(Options{})
		defer one.shut(t)
		a, b := f.at(addr(0, 0)), f.at(addr(0, 1))
		f.tells(&missedBy{ID: "there", Beat: 1, Members: []string{a.addr}})
		<-time.After(missedHeed + missedWait)
		down(true, b)
		byID["pkg/8"] = doc("pkg/8", 2)
		a.put("default", byID["pkg/8"])
		one.missed(t, b.addr, "pkg/7", "pkg/8", "pkg/9")
		<-time.After(missedWait)
		down(false, b)
		<-time.After(mostUnknown)
		p := one.q.Pending()
		if len(p) != 1 || p[0].Count != 1 || one.waiting(b.addr, hints.Entry{Index: "default", ID: "pkg/8"}).Wait != hints.Does {
			t.Errorf("%+v", p)
		}
		if got := b.docs("default")["pkg/8"]; got == byID["pkg/8"] {
			t.Error("it is given what may not be right")
		}
		// Nothing is written anew while all of them wait.
		<-time.After(mostUnknown)
		f.tells(&missedBy{ID: "there", Beat: 2, Members: []string{a.addr}})
		_, edits := one.q.Pulse(b.addr)
		<-time.After(time.Minute)
		if _, now := one.q.Pulse(b.addr); now != edits {
			t.Errorf("what is kept was changed %d times", now-edits)
		}
	})
}

// TestOnlyWhatWasListenedToIsSilence: while nothing could be read nobody can be heard, and nobody is taken for gone.
func TestOnlyWhatWasListenedToIsSilence(t *testing.T) {
	ws := witnesses{heir: true}
	at := time.Now()
	b := &missedBook{Coordinators: []*missedBy{{ID: "k3xq", Beat: 1, Members: []string{"a:1"}}}}
	hear := func(after time.Duration) {
		at = at.Add(after)
		ws.heard(at, b, "")
	}
	hear(0)
	hear(time.Hour)
	if !ws.keeps("a:1") || ws.left("a:1") {
		t.Error("it is gone after an hour in which nothing was read")
	}
	for range 16 {
		hear(missedListen)
	}
	if ws.keeps("a:1") || !ws.left("a:1") {
		t.Error("it is heeded")
	}
	b.Coordinators[0] = &missedBy{ID: "k3xq", Beat: 2, Members: []string{"a:1"}}
	hear(missedListen)
	if !ws.keeps("a:1") || ws.left("a:1") {
		t.Error("it is back, and not heeded")
	}
	// Who cannot take anything over waits longer.
	ws = witnesses{}
	for range int(missedFor / missedListen) {
		hear(missedListen)
	}
	if !ws.keeps("a:1") {
		t.Error("it is not heeded after less than five minutes")
	}
	hear(missedListen)
	if ws.keeps("a:1") {
		t.Error("it is heeded after five minutes")
	}
}

// TestWhoIsGoneForGoodTakesNothingAlong draws writes that one member misses, and coordinators that are gone with what they kept, told or not: whatever
// was acknowledged by the others of the group stays, and comes to that member, though nobody knows any more that it missed it.
func TestWhoIsGoneForGoodTakesNothingAlong(t *testing.T) {
	rounds := 15
	if raced {
		rounds = 4
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 78))
			size := 2 + rng.IntN(2)
			f, byID := pair(t, size, 12)
			ks := make([]*keeper, 2+rng.IntN(2))
			for i := range ks {
				ks[i] = f.keeper(Options{RepairEvery: time.Minute})
			}
			defer func() {
				for _, k := range ks {
					k.shut(t)
				}
			}()
			ids := slices.Sorted(maps.Keys(byID))
			holds := func(when string) {
				t.Helper()
				for id, d := range byID {
					if !slices.ContainsFunc(f.all(), func(m *model) bool { return m.docs("default")[id] == d }) {
						t.Fatalf("seed %d, %s: nobody has %s any more", seed, when, d)
					}
				}
			}
			for turn := range 3 {
				weak := f.all()[rng.IntN(size)]
				others := slices.DeleteFunc(f.all(), func(m *model) bool { return m == weak })
				for step := range 12 {
					away := rng.IntN(2) == 0
					weak.setDown(away)
					<-time.After(missedWait)
					for range rng.IntN(4) {
						id := ids[rng.IntN(len(ids))]
						byID[id] = doc(id, 1000*turn+step+1)
						in := f.all()
						if away {
							in = others
						}
						f.writes(ks[rng.IntN(len(ks))], byID[id], in...)
					}
					<-time.After(missedListen + missedWait)
					if i := rng.IntN(4 * len(ks)); i < len(ks) && step < 11 {
						ks[i].kill()
						ks[i].shut(t)
						ks[i] = f.keeper(Options{RepairEvery: time.Minute})
					}
					holds(fmt.Sprint("step ", step))
					if rng.IntN(3) == 0 {
						<-time.After(time.Duration(rng.IntN(400)) * time.Second)
						holds(fmt.Sprint("behind step ", step))
					}
				}
				weak.setDown(false)
				<-time.After(missedFor + 2*time.Minute)
				f.same("default", byID)
				f.nothingWaits(ks...)
			}
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}
