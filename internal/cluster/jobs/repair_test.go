package jobs

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// pairs is a fleet of three groups of two with documents.
func pairs(t *testing.T, n int) (f *fleet, byID map[string]string) {
	f = newFleet(t)
	sizes := []int{2, 2, 2}
	f.begin(placement.Ring, 3, sizes...)
	docs, byID := corpus(n)
	f.load("default", f.current().Visible(), sizes, docs...)
	return f, byID
}

func TestRepairCopiesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 3000)
		f.at(addr(1, 1)).wipe() // it comes back empty
		want := uint64(len(f.at(addr(1, 0)).docs("default")))
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Repair(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if !reply.OK || reply.Copied != want || reply.Removed != 0 || reply.Deferred != 0 || len(reply.FailedAddresses) != 0 || len(reply.Groups) != 3 {
			t.Errorf("%+v, want %d copied", *reply, want)
		}
		if g := reply.Groups[1]; g.Group != 1 || g.Primary != addr(1, 0) || g.Copied != want {
			t.Errorf("group 1: %+v", g)
		}
		f.same("default", byID)
		if a, b := f.at(addr(1, 0)).sdl("default"), f.at(addr(1, 1)).sdl("default"); a != b {
			t.Errorf("schemas differ: %s and %s", a, b)
		}
		again, err := co.Repair(t.Context(), false)
		if err != nil || !again.OK || again.Copied+again.Removed != 0 {
			t.Errorf("the second repair: %+v, %v", again, err)
		}
	})
}

// A repair is about to put the primary's state of a document at another member, when a writer writes everywhere what was there before, and finds
// all members equal.
func TestRepairUndoesNothingThatAWriterFoundEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 300)
		one, two := f.at(addr(2, 0)), f.at(addr(2, 1))
		id := slices.Sorted(maps.Keys(one.docs("default")))[3]
		written := doc(id, 99)
		two.put("default", written)
		byID[id] = written
		acknowledged, undone := false, false
		two.setBefore(func(_ context.Context, call string) {
			switch {
			case call == "Sync" && !acknowledged:
				for _, m := range []*model{one, two} {
					m.put("default", written)
					m.mu.Lock()
					m.fenced("default", []string{id})
					m.mu.Unlock()
				}
				acknowledged = true
			case acknowledged:
				undone = undone || two.docs("default")[id] != written
			}
		})
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Repair(t.Context(), false)
		if err != nil || !reply.OK || reply.Copied != 0 || !acknowledged {
			t.Errorf("%+v, %v", reply, err)
		}
		if undone {
			t.Error("an acknowledged write was undone at a member")
		}
		f.same("default", byID)
	})
}

// A member has a document that its primary does not have, and another state of some.
func TestRepairRemovesGhosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 300)
		f.at(addr(0, 1)).put("default", doc("ghost", 1))
		f.at(addr(2, 1)).put("default", doc("ghost", 1))
		changed := slices.Sorted(maps.Keys(f.at(addr(2, 0)).docs("default")))[3]
		f.at(addr(2, 1)).put("default", doc(changed, 99))
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Repair(t.Context(), false)
		if err != nil || !reply.OK || reply.Removed != 2 || reply.Copied != 1 {
			t.Errorf("%+v, %v", reply, err)
		}
		f.same("default", byID)
	})
}

// A primary without any documents is still right, and a member that does not answer is a failure.
func TestEmptyIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 300)
		for id := range f.at(addr(1, 0)).docs("default") {
			f.at(addr(1, 0)).remove("default", id)
			f.at(addr(1, 1)).remove("default", id)
			delete(byID, id)
		}
		f.at(addr(1, 1)).put("default", doc("ghost", 1))
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Repair(t.Context(), false)
		if err != nil || !reply.OK || reply.Removed != 1 {
			t.Errorf("%+v, %v", reply, err)
		}
		f.same("default", byID)

		for _, silent := range []string{addr(1, 1), addr(2, 0)} {
			f.at(silent).setDown(true)
			reply, err := co.Repair(t.Context(), false)
			if err != nil || reply.OK || !slices.Equal(reply.FailedAddresses, []string{silent}) {
				t.Errorf("%s is silent: %+v, %v", silent, reply, err)
			}
			f.at(silent).setDown(false)
		}
	})
}

// Of a group of which nobody answers all members are named.
func TestRepairNamesAllThatAreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 100)
		co := f.coordinator(Options{})
		defer co.shut(t)
		for k := range 2 {
			f.at(addr(1, k)).setDown(true)
		}
		f.at(addr(2, 0)).setDown(true)
		reply, err := co.Repair(t.Context(), false)
		if err != nil || reply.OK || !slices.Equal(reply.FailedAddresses, []string{addr(1, 0), addr(1, 1), addr(2, 0)}) {
			t.Errorf("%+v, %v", reply, err)
		}
		for _, m := range f.all() {
			m.setDown(false)
		}
		f.same("default", byID)
	})
}

// A document that a member does not take is counted, and the job says which and why; the others are made equal.
func TestRepairSaysWhatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 300)
		co := f.coordinator(Options{})
		defer co.shut(t)
		ids := slices.Sorted(maps.Keys(f.at(addr(1, 0)).docs("default")))
		for _, id := range ids[:3] {
			f.at(addr(1, 0)).put("default", doc(id, 3))
		}
		f.at(addr(1, 1)).setRefuse(ids[1], true)
		reply, err := co.Repair(t.Context(), false)
		if err != nil || reply.OK || reply.Deferred != 1 || reply.Copied != 2 || len(reply.FailedAddresses) != 0 {
			t.Errorf("%+v, %v", reply, err)
		}
		list, err := co.Jobs(t.Context())
		if want := fmt.Sprintf("1 documents of group 1 could not be made equal, among them %q: %s answers with the error invalid_document", ids[1], addr(1, 1)); err != nil ||
			len(list) != 1 || !strings.HasPrefix(list[0].Error, want) {
			t.Errorf("%+v, %v, want %s", list, err, want)
		}
	})
}

// A write that is on its way to all members is none of a repair's business.
func TestRepairLooksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 300)
		f.at(addr(0, 1)).put("default", doc("new", 1)) // the primary gets it a little later
		old := slices.Sorted(maps.Keys(f.at(addr(2, 0)).docs("default")))[3]
		f.at(addr(2, 1)).put("default", doc(old, 2))
		co := f.coordinator(Options{})
		defer co.shut(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			<-time.After(20 * time.Millisecond)
			f.at(addr(0, 0)).put("default", doc("new", 1))
			<-time.After(50 * time.Millisecond)
			f.at(addr(2, 0)).put("default", doc(old, 2))
		}()
		reply, err := co.Repair(t.Context(), false)
		<-done
		if err != nil || !reply.OK || reply.Removed+reply.Copied != 0 {
			t.Errorf("%+v, %v", reply, err)
		}
		byID[old] = doc(old, 2)
		for g := range 3 {
			if !maps.Equal(f.at(addr(g, 0)).docs("default"), f.at(addr(g, 1)).docs("default")) {
				t.Errorf("the members of group %d differ", g)
			}
		}
		if f.at(addr(0, 1)).called("Sync") != 0 {
			t.Error("a document was touched")
		}
	})
}

func (m *model) sdl(index string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.indexes[index]; h != nil {
		return h.schema.SDL()
	}
	return ""
}

// An index that a primary lacks and others have is made there; one that no primary has is deleted.
func TestRepairOfIndexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		for _, a := range []string{addr(0, 0), addr(0, 1), addr(1, 1)} {
			f.at(a).put("half", `{"id":"x","name":"some text"}`)
			f.at(a).remove("half", "x")
		}
		f.at(addr(2, 1)).put("old", doc("x", 1))
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Repair(t.Context(), false)
		if err != nil || !reply.OK {
			t.Fatalf("%+v, %v", reply, err)
		}
		want := f.at(addr(0, 0)).sdl("half")
		for _, m := range f.all() {
			if got := m.sdl("half"); got != want {
				t.Errorf("%s has %q", m.addr, got)
			}
			if m.docs("old") != nil {
				t.Errorf("%s has the old index", m.addr)
			}
		}
	})
}

// A repair that was left half way is gone on with by another coordinator, and what was done is not done again.
func TestRepairGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 300)
		for g := range 3 {
			f.at(addr(g, 1)).wipe()
		}
		one := f.coordinator(Options{})
		reached := make(chan struct{})
		var met atomic.Bool
		f.at(addr(1, 1)).setBefore(func(ctx context.Context, call string) {
			if call == "Sync" && met.CompareAndSwap(false, true) {
				close(reached)
				<-ctx.Done()
			}
		})
		id, err := one.StartRepair(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		<-reached
		one.shut(t)
		two := f.coordinator(Options{})
		defer two.shut(t)
		rec, err := two.await(t.Context(), id)
		if err != nil || rec.State != Done || rec.Failed || len(rec.Groups) != 3 {
			t.Fatalf("%+v, %v", rec, err)
		}
		if got, want := rec.Groups[0].Copied, uint64(len(f.at(addr(0, 0)).docs("default"))); got != want {
			t.Errorf("%d copied in group 0, want %d", got, want)
		}
		f.same("default", byID)
	})
}

// In the background members are made equal; but a primary that looks as if it had lost its documents is left alone.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 3000)
		f.at(addr(0, 1)).put("default", doc("ghost", 1))
		some := slices.Sorted(maps.Keys(f.at(addr(1, 0)).docs("default")))[:20]
		for _, id := range some {
			f.at(addr(1, 1)).remove("default", id)
		}
		one := f.coordinator(Options{RepairEvery: time.Minute, Metrics: obs.NewMetrics("test")})
		defer one.shut(t)
		two := f.coordinator(Options{RepairEvery: time.Minute})
		defer two.shut(t)
		<-time.After(3 * time.Minute)
		f.same("default", byID)
		if n := one.count.copied.Load() + two.count.copied.Load(); n != 20 {
			t.Errorf("%d copied", n)
		}
		if n := one.count.removed.Load() + two.count.removed.Load(); n != 1 {
			t.Errorf("%d removed", n)
		}
		f.at(addr(2, 0)).wipe()
		<-time.After(5 * time.Minute)
		f.same("default", byID)
		// A comparison just before the loss was seen has held back too; the next one knows better.
		held := one.count.held.Load() + two.count.held.Load()
		kept := f.at(addr(2, 1)).docs("default")
		for id := range kept { // it lost them, and does not know
			f.at(addr(2, 0)).remove("default", id)
		}
		<-time.After(5 * time.Minute)
		if !maps.Equal(kept, f.at(addr(2, 1)).docs("default")) {
			t.Error("documents were deleted because a primary lost them")
		}
		if one.count.held.Load()+two.count.held.Load() == held {
			t.Error("nothing was held back")
		}
	})
}

// A comparison in the background makes room for a job.
func TestBackgroundYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 300)
		f.at(addr(0, 1)).wipe()
		one := f.coordinator(Options{RepairEvery: time.Minute, DocsPerSec: 1})
		defer one.shut(t)
		<-time.After(80 * time.Second)
		b, _, err := one.ledger.read(t.Context())
		if err != nil || b.Lease == nil {
			t.Fatalf("no comparison is under way: %+v, %v", b, err)
		}
		two := f.coordinator(Options{})
		defer two.shut(t)
		id, err := two.StartRebalance(t.Context(), 3, 3)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(20 * time.Second) // until it has heard of it, and the lease is free
		if j, err := two.Job(t.Context(), id); err != nil || j.State != Done {
			t.Errorf("%+v, %v", j, err)
		}
	})
}

// It does so at once for a job of the same coordinator.
func TestBackgroundYieldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 300)
		f.at(addr(0, 1)).wipe()
		co := f.coordinator(Options{RepairEvery: time.Minute, DocsPerSec: 1})
		defer co.shut(t)
		<-time.After(80 * time.Second)
		b, _, err := co.ledger.read(t.Context())
		if err != nil || b.Lease == nil {
			t.Fatalf("no comparison is under way: %+v, %v", b, err)
		}
		began := time.Now()
		if _, err := co.Rebalance(t.Context(), 3, 3); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > beatOf(co)/2 {
			t.Errorf("it took %v", took)
		}
	})
}

func beatOf(c *coordinator) time.Duration { return c.tune.beat }

// What members missed comes to them as soon as they are there again.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 200)
		q, err := hints.Open("hints", memfs.New(nil), hints.Options{})
		if err != nil {
			t.Fatal(err)
		}
		co := f.coordinator(Options{Hints: q})
		defer func() {
			co.shut(t)
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}()
		for _, away := range []string{addr(0, 1), addr(1, 0)} { // a primary, too
			m := f.at(away)
			m.setDown(true)
			other := addr(0, 0)
			if away == addr(1, 0) {
				other = addr(1, 1)
			}
			var ids []string
			for i, id := range slices.Sorted(maps.Keys(f.at(other).docs("default"))) {
				switch i {
				case 0:
					f.at(other).remove("default", id)
					delete(byID, id)
				case 1, 2, 3:
					byID[id] = doc(id, 5)
					f.at(other).put("default", byID[id])
				default:
					continue
				}
				ids = append(ids, id)
			}
			if _, err := q.Add(away, "default", ids); err != nil {
				t.Fatal(err)
			}
			<-time.After(5 * time.Second)
			if !co.Behind(away) || co.Behind(other) {
				t.Errorf("behind: %s %v, %s %v", away, co.Behind(away), other, co.Behind(other))
			}
			m.setDown(false)
			<-time.After(40 * time.Second)
			if co.Behind(away) {
				t.Errorf("%s is behind yet", away)
			}
		}
		f.same("default", byID)
		if _, err := q.Add("elsewhere", "default", []string{"x"}); err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * time.Second)
		if p := q.Pending(); len(p) != 0 {
			t.Errorf("what a member that left has missed is kept: %+v", p)
		}
	})
}

// Where all members of a group have missed something, the primary is right; a member that missed more than was kept is compared.
func TestReplayOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 200)
		q, err := hints.Open("hints", memfs.New(nil), hints.Options{MaxBytes: 2000})
		if err != nil {
			t.Fatal(err)
		}
		id := slices.Sorted(maps.Keys(f.at(addr(0, 0)).docs("default")))[0]
		byID[id] = doc(id, 8)
		f.at(addr(0, 0)).put("default", byID[id])
		f.at(addr(0, 1)).put("default", doc(id, 7))
		for k := range 2 {
			if _, err := q.Add(addr(0, k), "default", []string{id}); err != nil {
				t.Fatal(err)
			}
		}
		f.at(addr(2, 1)).wipe()
		for i := range 200 {
			if _, err := q.Add(addr(2, 1), "default", []string{fmt.Sprintf("some/long/id/%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if p := q.Pending(); len(p) != 3 || !p[2].Overflowed {
			t.Fatalf("%+v", p)
		}
		co := f.coordinator(Options{Hints: q})
		defer func() {
			co.shut(t)
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}()
		<-time.After(time.Minute)
		if p := q.Pending(); len(p) != 0 {
			t.Errorf("%+v", p)
		}
		f.same("default", byID)
	})
}

// What one member does not take, for a reason that stays, is put aside and keeps nothing from those behind it: what only the old owner has yet is
// given to the new one before writers leave the old one out.
func TestReplayOfAllGoesOnBehindARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		co := f.keeper(Options{})
		defer co.shut(t)
		missed := func(member, has string) (id, source string) {
			t.Helper()
			id = slices.Sorted(maps.Keys(f.at(has).docs("default")))[0]
			f.at(has).put("default", doc(id, 7))
			co.missed(t, member, id)
			return id, doc(id, 7)
		}
		refused, _ := missed(addr(0, 0), addr(0, 1))
		f.at(addr(0, 0)).refuse[refused] = true
		id, source := missed(addr(2, 1), addr(2, 0))
		if p := co.q.Pending(); len(p) != 2 || p[0].Member != addr(0, 0) {
			t.Fatalf("%+v", p)
		}
		if err := co.replayAll(t.Context(), co.cluster.State()); err != nil {
			t.Error(err)
		}
		if p := co.q.Pending(); len(p) != 1 || p[0].Member != addr(0, 0) || p[0].Short() || p[0].Refused != 1 {
			t.Errorf("%+v", p)
		}
		if got := f.at(addr(2, 1)).docs("default")[id]; got != source {
			t.Errorf("the other member has %s", got)
		}
	})
}

// Rates are kept to.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(100, 10_000)
		began := time.Now()
		for range 50 {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.used(20, 100)
		}
		if took := time.Since(began); took < 8500*time.Millisecond || took > 10*time.Second {
			t.Errorf("1000 documents at 100 a second took %v", took)
		}
		began = time.Now()
		for range 10 {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.used(1, 10_000)
		}
		if took := time.Since(began); took < 7500*time.Millisecond || took > 11*time.Second {
			t.Errorf("100,000 bytes at 10,000 a second took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p.used(10_000, 0)
		if err := p.wait(ctx); err == nil {
			t.Error("it does not end with its context")
		}
	})
}

// TestAMoveAndARepairKeepToTheirRate: documents that are copied count at each member, and so do those that are deleted where they stood.
func TestAMoveAndARepairKeepToTheirRate(t *testing.T) {
	const rate = 20
	for _, repair := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pairs(t, 600)
			co := f.coordinator(Options{DocsPerSec: rate})
			defer co.shut(t)
			if repair {
				f.at(addr(0, 1)).wipe()
			}
			began := time.Now()
			var least int
			if repair {
				reply, err := co.Repair(t.Context(), false)
				if err != nil || !reply.OK {
					t.Fatalf("%+v, %v", reply, err)
				}
				least = int(reply.Copied)
			} else {
				reply, err := co.Rebalance(t.Context(), 3, 2)
				if err != nil || !reply.OK {
					t.Fatalf("%+v, %v", reply, err)
				}
				least = 2 * int(reply.Moved) // at two members each
			}
			if took, most := time.Since(began), time.Duration(least)*time.Second/rate-paceBurst-time.Second; least < 100 || took < most {
				t.Errorf("repair %t: %d copies took %v, less than %v", repair, least, took, most)
			} else if took > 5*most {
				t.Errorf("repair %t: %d copies took %v", repair, least, took)
			}
			f.same("default", byID)
		})
	}
}

// Repair while documents are written: nothing that was acknowledged is lost, and members are equal in the end.
func TestRepairUnderWrites(t *testing.T) {
	for seed := range 6 {
		synctest.Test(t, func(t *testing.T) {
			tr := &trial{fleet: newFleet(t), seed: uint64(seed), rng: rand.New(rand.NewPCG(uint64(seed), 3)), known: map[string]*fact{}}
			tr.repairs()
		})
	}
}
