package jobs

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

var update = flag.Bool("update", false, "write the golden files of the current formats anew")

// TestMissedGolden pins format 1, without and with members that lack only what they refuse, and with the documents that they wait for.
func TestMissedGolden(t *testing.T) {
	list := &waitsFor{list: []hints.Kept{{Hash: hints.Hash(hints.Entry{Index: "default", ID: "pkg/1"}), Last: 1_700_000_000_000_000}}}
	for file, by := range map[string]missedBy{
		"missed_v1.json":        {},
		"missed_v1_refuse.json": {Refuse: []string{"b:1"}},
		"missed_v1_docs.json":   {Docs: map[string][]byte{"a:1": list.encode()}, Last: 1_700_000_000_000_123},
	} {
		by.ID, by.Beat, by.Members = "k3xq", 4, []string{"a:1", "b:1"}
		missedGolden(t, filepath.Join("testdata", file), &by)
	}
}

func missedGolden(t *testing.T, name string, by *missedBy) {
	t.Helper()
	b := &missedBook{Format: missedFormat, Rev: 6}
	b.put(by, func(string) bool { return false })
	b.Coordinators = append(b.Coordinators, &missedBy{ID: "p7ad", Beat: 1, Members: []string{}, All: true})
	got, err := b.encode()
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
	if back, err := decodeMissed(want); err != nil || !reflect.DeepEqual(back, b) {
		t.Errorf("decoded as %+v, %v", back, err)
	}
	if _, err := decodeMissed([]byte(`{"format":2,"rev":1}`)); !errors.Is(err, errMissedFormat) {
		t.Errorf("a newer format: %v", err)
	}
}

// However many coordinators and members there are, it stays an object that is read.
func TestMissedIsBounded(t *testing.T) {
	b := &missedBook{Format: missedFormat}
	long := make([]string, maxMissedMembers)
	for i := range long {
		long[i] = strings.Repeat("x", 158) + fmt.Sprintf("%02d", i)
	}
	list := &waitsFor{}
	for i := range maxMissedDocs / len(long) {
		list.list = append(list.list, hints.Kept{Hash: uint64(i) << 56, Last: 1<<52 + uint64(i)<<40})
	}
	docs := map[string][]byte{}
	for _, addr := range long {
		docs[addr] = list.encode()
	}
	for i := range 2 * maxMissedWriters {
		b.put(&missedBy{ID: fmt.Sprintf("%026d", i), Beat: 1 << 60, Members: long, Refuse: long[:maxMissedRefuse], Docs: docs}, func(id string) bool { return strings.HasSuffix(id, "99") })
	}
	raw, err := b.encode()
	if err != nil || len(raw) > maxMissedBook || len(b.Coordinators) != maxMissedWriters {
		t.Errorf("%d bytes, %d coordinators, %v", len(raw), len(b.Coordinators), err)
	}
	if first := b.Coordinators[0].ID; first != fmt.Sprintf("%026d", maxMissedWriters-1) {
		t.Errorf("the first is %s", first)
	}
	if n := len(slices.DeleteFunc(slices.Clone(b.Coordinators), func(by *missedBy) bool { return by.Docs == nil })); n == 0 {
		t.Error("nobody tells of documents any more")
	}
	b.put(&missedBy{ID: b.Coordinators[5].ID}, func(string) bool { return false })
	if len(b.Coordinators) != maxMissedWriters-1 {
		t.Errorf("who keeps nothing is in it: %d", len(b.Coordinators))
	}
}

// keeper is a coordinator with hints.
type keeper struct {
	*coordinator
	q *hints.Queue
}

func (f *fleet) keeper(o Options) *keeper {
	f.t.Helper()
	return f.keeperOn(memfs.New(nil), o)
}

// keeperOn is keeper with the disk of what is kept.
func (f *fleet) keeperOn(disk vfs.FS, o Options) *keeper {
	f.t.Helper()
	q, err := hints.Open("hints", disk, hints.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	o.Hints = q
	return &keeper{f.coordinator(o), q}
}

func (k *keeper) shut(t testing.TB) {
	t.Helper()
	k.coordinator.shut(t)
	if err := k.q.Close(); err != nil {
		t.Error(err)
	}
}

func (k *keeper) missed(t testing.TB, member string, ids ...string) {
	t.Helper()
	if _, err := k.q.Add(member, "default", ids); err != nil {
		t.Fatal(err)
	}
}

// Coordinators hear from each other for which members they keep something, until these have it or nothing is heard any more.
func TestCoordinatorsTellWhatMembersHaveMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		one, two := f.keeper(Options{}), f.keeper(Options{})
		defer one.shut(t)
		defer two.shut(t)
		knows := func(of *keeper, addr string, want bool) {
			t.Helper()
			if err := of.heed(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := of.others.keeps(addr); got != want {
				t.Errorf("%s is known to lack something: %t", addr, got)
			}
		}
		a, b := addr(0, 0), addr(1, 1)
		f.at(a).setDown(true)
		f.at(b).setDown(true)
		one.missed(t, a, "pkg/1")
		<-time.After(missedWait)
		knows(two, a, true)
		knows(two, b, false)
		knows(one, a, false) // it knows that for itself
		two.missed(t, b, "pkg/2")
		<-time.After(missedWait)
		knows(one, b, true)
		<-time.After(20 * time.Minute) // it is told again and again
		knows(two, a, true)
		f.at(a).setDown(false)
		<-time.After(time.Minute)
		knows(two, a, false)
		knows(one, b, true)
		for i := range 2 * maxMissedMembers {
			one.missed(t, fmt.Sprint("elsewhere", i), "pkg/1") // they have left, and are forgotten at the next look
		}
		<-time.After(missedWait / 2)
		knows(two, "anybody", true)
		<-time.After(time.Minute)
		knows(two, "anybody", false)
		two.kill()
		<-time.After(missedFor - time.Minute)
		knows(one, b, true)
		<-time.After(3 * time.Minute)
		knows(one, b, false)
		// Whoever writes next leaves it out, and tells of what it has taken over.
		f.at(a).setDown(true)
		one.missed(t, a, "pkg/1")
		<-time.After(missedWait)
		book, _, err := readMissed(t.Context(), f.store)
		if err != nil || len(book.Coordinators) != 1 || book.Coordinators[0].ID != one.q.ID() || !slices.Equal(book.Coordinators[0].Members, []string{a, b}) {
			t.Errorf("%+v, %v", book, err)
		}
	})
}

// TestACoordinatorThatStartsAgainTakesBackWhatItTold: one that was killed and starts again with its disk is the one that it was. What it has
// given to members in between is told at once, and nobody waits until the process before is taken for gone.
func TestACoordinatorThatStartsAgainTakesBackWhatItTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		disk := memfs.New(nil)
		one, two := f.keeperOn(disk, Options{}), f.keeper(Options{})
		defer two.shut(t)
		a := addr(0, 0)
		f.at(a).setDown(true)
		one.missed(t, a, "pkg/1")
		<-time.After(missedWait)
		keeps := func(want bool) {
			t.Helper()
			if err := two.heed(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := two.others.keeps(a); got != want {
				t.Errorf("it is known to lack something: %t", got)
			}
		}
		keeps(true)
		one.kill()
		one.shut(t)
		again := f.keeperOn(disk, Options{})
		defer func() { again.shut(t) }()
		<-time.After(missedWait)
		keeps(true) // it keeps it yet
		// The process before may have ended between the last member that it gave something and telling so.
		again.kill()
		again.shut(t)
		q, err := hints.Open("hints", disk, hints.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(q.Forget(a), q.Close()); err != nil {
			t.Fatal(err)
		}
		again = f.keeperOn(disk, Options{})
		<-time.After(missedWait)
		keeps(false)
		again.missed(t, a, "pkg/2")
		<-time.After(missedWait)
		keeps(true)
		f.at(a).setDown(false)
		<-time.After(time.Minute)
		keeps(false)
		book, _, err := readMissed(t.Context(), f.store)
		if err != nil || len(book.Coordinators) != 0 {
			t.Errorf("%+v, %v", book, err)
		}
	})
}

// What was read of the object before does not take the place of what was read since, however late it comes.
func TestAnOlderLookDoesNotTakeThePlaceOfALaterOne(t *testing.T) {
	var ws witnesses
	first := time.Now()
	second := first.Add(time.Millisecond)
	ws.heard(second, &missedBook{Coordinators: []*missedBy{{ID: "k3xq", Beat: 1, Members: []string{"a:1"}}}}, "p7ad")
	ws.heard(first, &missedBook{}, "p7ad")
	if !ws.keeps("a:1") || !ws.heardSince(second) {
		t.Error("what was heard last is forgotten")
	}
	ws.heard(second.Add(time.Millisecond), &missedBook{}, "p7ad")
	if ws.keeps("a:1") {
		t.Error("what is not there any more is heeded")
	}
}

// What was given to a member a moment ago it had missed before that: who has taken it for right has to know.
func TestWhatWasGivenIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		one, two := f.keeper(Options{}), f.keeper(Options{})
		defer one.shut(t)
		defer two.shut(t)
		a := addr(0, 0)
		<-time.After(2 * missedTick) // between two looks at what is kept
		before := time.Now()
		one.missed(t, a, "pkg/1")
		if err := one.replay(t.Context(), one.cluster.State(), a); err != nil {
			t.Fatal(err)
		}
		if p := one.q.Pending(); len(p) != 0 {
			t.Fatalf("%+v", p)
		}
		<-time.After(missedWait)
		after := time.Now()
		if !one.missedSince(a, before) || one.missedSince(a, after) || one.missedSince(addr(0, 1), before) || one.doubts(a) != lately {
			t.Errorf("here: %t, %t, doubts %d", one.missedSince(a, before), one.missedSince(a, after), one.doubts(a))
		}
		if err := two.heed(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !two.missedSince(a, before) || two.missedSince(a, time.Now().Add(1)) {
			t.Error("the other one does not know")
		}
		<-time.After(missedHeed + missedSettle)
		if two.others.keeps(a) || two.doubts(a) != lately {
			t.Errorf("the other one has doubts %d", two.doubts(a))
		}
		<-time.After(missedLately)
		if one.doubts(a) != none || two.doubts(a) != none {
			t.Errorf("doubts: %d, %d", one.doubts(a), two.doubts(a))
		}
	})
}

// halfWritten is a fleet of pairs in which the primary of group 0 has missed a write of id, which another coordinator keeps for it that is gone
// for the moment.
func halfWritten(t *testing.T, n int, pick func(id string) bool, missed ...string) (f *fleet, byID map[string]string, id string) {
	f, byID = pairs(t, n)
	other := f.keeper(Options{})
	for _, id = range slices.Sorted(maps.Keys(f.at(addr(0, 0)).docs("default"))) {
		if pick(id) {
			break
		}
	}
	byID[id] = doc(id, 7)
	f.at(addr(0, 1)).put("default", byID[id])
	for _, addr := range missed {
		f.at(addr).setDown(true)
		other.missed(t, addr, id)
	}
	<-time.After(missedWait)
	other.kill()
	for _, addr := range missed {
		f.at(addr).setDown(false)
	}
	t.Cleanup(func() { other.shut(t) })
	return f, byID, id
}

func goes(from, to int) func(id string) bool {
	spec := func(n int) placement.Spec { return placement.Spec{Rule: placement.Ring, Shards: n, VNodes: 16} }
	return func(id string) bool { return shardOf(spec(3), id) == from && shardOf(spec(2), id) == to }
}

// A move takes documents from a member that has missed nothing, also where it is another coordinator that knows.
func TestAMoveUndoesNoWriteThatAnotherKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{2, 2, 1}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(200)
		f.load("default", f.current().Visible(), sizes, docs...)
		to := placement.Spec{Rule: placement.Ring, Shards: 3, VNodes: 16}
		id := ""
		for _, d := range docs {
			if shardOf(f.current().Visible(), idOf(d)) == 0 && shardOf(to, idOf(d)) == 2 {
				id = idOf(d)
			}
		}
		other := f.keeper(Options{})
		defer other.shut(t)
		f.at(addr(0, 0)).setDown(true)
		other.missed(t, addr(0, 0), id)
		byID[id] = doc(id, 7)
		f.at(addr(0, 1)).put("default", byID[id])
		<-time.After(missedWait)
		other.kill()
		f.at(addr(0, 0)).setDown(false)
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil || !reply.OK {
			t.Fatalf("%+v, %v", reply, err)
		}
		f.same("default", byID)
	})
}

// A write that the primary misses while documents are compared is told of before the cutover.
func TestAMoveHearsOfAWriteThatIsMissedMeanwhile(t *testing.T) {
	for _, c := range []struct {
		elsewhere bool
		delay     time.Duration // of the comparison, after it has seen the primary
	}{{false, 0}, {false, 20 * time.Second}, {true, 0}, {true, 20 * time.Second}} {
		elsewhere, delay := c.elsewhere, c.delay
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			sizes := []int{2, 1}
			f.begin(placement.Ring, 1, sizes...)
			docs, byID := corpus(100)
			f.load("default", f.current().Visible(), sizes, docs...)
			id := ""
			for _, d := range docs {
				if shardOf(placement.Spec{Rule: placement.Ring, Shards: 2, VNodes: 16}, idOf(d)) == 1 {
					id = idOf(d)
				}
			}
			other := f.keeper(Options{})
			defer other.shut(t)
			by := other
			var met atomic.Bool
			f.at(addr(1, 0)).setBefore(func(_ context.Context, call string) {
				if call == "Digest" && met.CompareAndSwap(false, true) {
					byID[id] = doc(id, 7)
					f.at(addr(0, 1)).put("default", byID[id])
					f.at(addr(1, 0)).put("default", byID[id])
					by.missed(t, addr(0, 0), id) // which gives it to it at once
					<-time.After(delay)
				}
			})
			co := f.keeper(Options{})
			defer co.shut(t)
			if !elsewhere {
				by = co
			}
			reply, err := co.Rebalance(t.Context(), 1, 2)
			if err != nil || !reply.OK || !met.Load() {
				t.Fatalf("%+v, %v", reply, err)
			}
			f.same("default", byID)
		})
	}
}

// Where every member of a group has missed something, a move waits until they have it, or nothing is heard any more of who keeps it.
func TestAMoveWaitsForWhoKeepsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID, _ := halfWritten(t, 100, goes(0, 0), addr(0, 0), addr(0, 1))
		co := f.coordinator(Options{})
		defer co.shut(t)
		job, err := co.StartRebalance(t.Context(), 3, 2)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(missedFor - time.Minute)
		if j, err := co.Job(t.Context(), job); err != nil || j.State != Running || !strings.Contains(j.Error, errElsewhere.Error()) {
			t.Errorf("%+v, %v", j, err)
		}
		rec, err := co.ended(t, job)
		if err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		if len(byID) != 100 {
			t.Error("documents were lost")
		}
	})
}

// In the background a group is left alone while another coordinator keeps something for a member of it, also if that is told in between.
func TestBackgroundUndoesNoWriteThatAnotherKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID, id := halfWritten(t, 100, goes(0, 0), addr(0, 0))
		co := f.coordinator(Options{RepairEvery: time.Minute})
		defer co.shut(t)
		<-time.After(missedFor - 2*time.Minute)
		if got := f.at(addr(0, 1)).docs("default")[id]; got != byID[id] {
			t.Errorf("the other member has %s", got)
		}
		if n, others := f.at(addr(0, 1)).called("Digest"), f.at(addr(1, 1)).called("Digest"); n != 0 || others == 0 {
			t.Errorf("its group was compared %d times, another one %d times", n, others)
		}
		<-time.After(5 * time.Minute)
		if got := f.at(addr(0, 1)).docs("default")[id]; got != doc(id, 0) {
			t.Errorf("when nothing is heard any more of who kept it, the other member has %s", got)
		}
	})
}

// A write that the primary misses while members are compared in the background is not undone.
func TestBackgroundHearsOfAWriteThatIsMissedMeanwhile(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pairs(t, 100)
			id := slices.Sorted(maps.Keys(f.at(addr(0, 0)).docs("default")))[0]
			co, other := f.keeper(Options{RepairEvery: time.Minute}), f.keeper(Options{})
			defer co.shut(t)
			defer other.shut(t)
			var met atomic.Bool
			var reached atomic.Bool
			f.at(addr(0, 0)).setFates(func(_ context.Context, call string) fate {
				if call == "Ping" && met.Load() && !reached.Load() {
					return gone // it cannot be given it yet
				}
				return fine
			})
			f.at(addr(0, 1)).setBefore(func(_ context.Context, call string) {
				if call != "Digest" || !met.CompareAndSwap(false, true) {
					return
				}
				byID[id] = doc(id, 7)
				f.at(addr(0, 1)).put("default", byID[id])
				by := co
				if elsewhere {
					by = other
				}
				by.missed(t, addr(0, 0), id)
				<-time.After(missedWait)
			})
			<-time.After(3 * time.Minute)
			if !met.Load() {
				t.Fatal("nothing was compared")
			}
			if got := f.at(addr(0, 1)).docs("default")[id]; got != byID[id] {
				t.Errorf("the other member has %s", got)
			}
			reached.Store(true)
			<-time.After(time.Minute)
			f.same("default", byID)
		})
	}
}

// What differs may have been acknowledged just now by somebody who has not told yet what the primary has missed: a write, and a deletion.
func TestBackgroundWaitsForWhoHasNotToldYet(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		for _, delay := range []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				f, _ := pairs(t, 100)
				id := slices.Sorted(maps.Keys(f.at(addr(0, 0)).docs("default")))[0]
				co, other := f.keeper(Options{RepairEvery: time.Minute}), f.keeper(Options{})
				defer co.shut(t)
				defer other.shut(t)
				var met atomic.Bool
				f.at(addr(0, 0)).setFates(func(_ context.Context, call string) fate {
					if call == "Ping" && met.Load() {
						return gone // it cannot be given it yet
					}
					return fine
				})
				want := ""
				f.at(addr(0, 1)).setBefore(func(_ context.Context, call string) {
					if call != "Digest" || !met.CompareAndSwap(false, true) {
						return
					}
					if deleted {
						f.at(addr(0, 1)).remove("default", id)
					} else {
						want = doc(id, 7)
						f.at(addr(0, 1)).put("default", want)
					}
					go func() {
						<-time.After(delay)
						other.missed(t, addr(0, 0), id)
					}()
				})
				<-time.After(3 * time.Minute)
				if got := f.at(addr(0, 1)).docs("default")[id]; got != want || !met.Load() {
					t.Errorf("deleted %t, told after %v: the other member has %s", deleted, delay, got)
				}
			})
		}
	}
}

// A store that does not answer is not taken for one in which nobody has said anything.
func TestNothingIsTakenForRightWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID, id := halfWritten(t, 100, goes(0, 0), addr(0, 0))
		s := &deafStore{Store: f.store}
		co := f.coordinator(Options{RepairEvery: time.Minute, Store: s})
		defer co.shut(t)
		<-time.After(missedFor - 2*time.Minute)
		if got := f.at(addr(0, 1)).docs("default")[id]; got != byID[id] || s.asked.Load() == 0 {
			t.Errorf("the other member has %s", got)
		}
	})
}

// deafStore does not give what members have missed.
type deafStore struct {
	store.Store
	asked atomic.Int64
}

func (s *deafStore) Get(ctx context.Context, key string) (io.ReadCloser, store.Info, error) {
	if key == missedKey {
		s.asked.Add(1)
		return nil, store.Info{}, errDead
	}
	return s.Store.Get(ctx, key)
}
