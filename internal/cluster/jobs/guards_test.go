package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// What a member of the new owners lacks it gets from another of them before the old owner loses it.
func TestCleaningMakesNewOwnersEqualFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 2}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(200)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.coordinator(Options{})
		defer co.shut(t)
		var met atomic.Bool
		f.at(addr(0, 0)).setBefore(func(_ context.Context, call string) {
			if m := f.current(); call == "IDs" && m.Move != nil && m.Move.Phase == shardmap.Cleaning && met.CompareAndSwap(false, true) {
				ids := slices.Sorted(maps.Keys(f.at(addr(2, 1)).docs("default")))
				f.at(addr(2, 1)).remove("default", ids[0])
				f.at(addr(2, 1)).put("default", doc(ids[1], 9))
			}
		})
		reply, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil || !reply.OK || !met.Load() {
			t.Fatalf("%+v, %v", reply, err)
		}
		f.same("default", byID)
	})
}

// Pages of members end at different ids: what differs is found once, and nothing else is.
func TestUnequalFindsWhatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.begin(placement.Ring, 1, 3)
		want := map[string]bool{}
		for i := range 90 {
			id := fmt.Sprintf("d%03d", i)
			for k := range 3 {
				if k == 1 && i%5 > 0 || k == 2 && i > 80 { // one has few, one ends early
					continue
				}
				d := doc(id, 0)
				if i == 85 && k == 0 {
					d = doc(id, 1)
				}
				f.at(addr(0, k)).put("default", d)
			}
			want[id] = i%5 > 0 || i > 80
		}
		f.at(addr(0, 1)).put("default", doc("zz", 0))
		want["zz"] = true
		maps.DeleteFunc(want, func(_ string, differs bool) bool { return !differs })
		for _, page := range []int{1, 7, 1000} {
			f.tune = &tuning{batch: 4, list: 23, page: page, leafDocs: 3, looks: 4, look: time.Second, beat: time.Second, lease: time.Minute, adopt: time.Minute}
			co := f.coordinator(Options{})
			st := co.cluster.State()
			ms := st.Groups[0].Members
			var got []string
			err := co.work(st).unequal(t.Context(), "default", ms[0], ms[1:], leaf.HashRange{To: 1<<32 - 1}, nil, func(ids []string) error {
				if len(ids) == 0 || len(ids) > len(ms)*page {
					t.Errorf("%d at once", len(ids))
				}
				got = append(got, ids...)
				return nil
			})
			if err != nil || !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Errorf("pages of %d: %v, want %v (%v)", page, got, slices.Sorted(maps.Keys(want)), err)
			}
			co.shut(t)
		}
	})
}

// A member is given an index, and its reference does not answer then: whether the index was deleted meanwhile is looked at later, and what
// writers have put there by then stays.
func TestAnIndexThatWasMadeIsKeptWhileNothingIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		writes, deleted bool
	}{"with documents": {writes: true}, "without": {}, "deleted": {deleted: true}, "made anew": {writes: true, deleted: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _ := pairs(t, 30)
				from, to := f.at(addr(0, 0)), f.at(addr(0, 1))
				to.wipe()
				co := f.coordinator(Options{})
				defer co.shut(t)
				st := co.cluster.State()
				ms := st.Groups[0].Members
				w := co.work(st)
				before := from.called("Info")
				from.setFates(func(_ context.Context, call string) fate {
					if call != "Info" || from.called("Info") <= before {
						return fine
					}
					if c.writes {
						to.put("default", doc("new", 1))
					}
					return lost
				})
				if _, err := w.prepare(t.Context(), "default", ms[0], ms[1]); err == nil {
					t.Fatal("the reference did not answer, and nothing is wrong")
				}
				from.setFates(nil)
				if c.deleted {
					from.mu.Lock()
					delete(from.indexes, "default")
					from.mu.Unlock()
				}
				found, err := co.work(st).prepare(t.Context(), "default", ms[0], ms[1])
				if err != nil || found == c.deleted {
					t.Fatalf("%t, %v", found, err)
				}
				_, there, err := w.info(t.Context(), "default", ms[1])
				if want := c.writes || !c.deleted; err != nil || there != want {
					t.Errorf("the index is there: %t, want %t (%v)", there, want, err)
				}
				if got := len(to.docs("default")); c.writes && got != 1 {
					t.Errorf("it has %d documents", got)
				}
			})
		})
	}
}

// A primary that may have lost its documents gives nothing to a member that has missed some.
func TestASuspectPrimaryGivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 100)
		co := f.keeper(Options{})
		defer co.shut(t)
		<-time.After(5 * time.Second) // they are known
		kept := slices.Sorted(maps.Keys(f.at(addr(0, 0)).docs("default")))[0]
		f.at(addr(0, 0)).wipe()
		f.at(addr(0, 0)).put("default", doc(kept, 0)) // the index is there
		<-time.After(5 * time.Second)
		if !co.cluster.Suspect(addr(0, 0)) {
			t.Fatal("it is not suspect")
		}
		have := f.at(addr(0, 1)).docs("default")
		co.missed(t, addr(0, 1), slices.Collect(maps.Keys(have))...)
		<-time.After(5 * time.Second)
		if !maps.Equal(have, f.at(addr(0, 1)).docs("default")) {
			t.Error("documents were lost")
		}
		if p := co.q.Pending(); len(p) != 0 {
			t.Errorf("it is tried again and again: %+v", p)
		}
	})
}

// A repair that cannot reach all of a group whose primary may have lost its documents vouches for nobody: who is made equal to the primary has as little
// as that, and the one that did not answer may have everything.
func TestARepairVouchesForNobodyBesideASuspectPrimary(t *testing.T) {
	for _, force := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.begin(placement.Ring, 1, 3)
			docs, byID := corpus(100)
			f.load("default", f.current().Visible(), []int{3}, docs...)
			co := f.keeper(Options{RepairEvery: time.Minute})
			defer co.shut(t)
			<-time.After(5 * time.Second) // they are known
			primary, empty, whole := f.at(addr(0, 0)), f.at(addr(0, 1)), f.at(addr(0, 2))
			whole.setDown(true)
			primary.wipe()
			empty.wipe()
			<-time.After(5 * time.Second)
			if !co.cluster.Suspect(primary.addr) || !co.cluster.Suspect(empty.addr) {
				t.Fatal("they are not suspect")
			}
			if reply, err := co.Repair(t.Context(), force); err != nil || reply.OK || !slices.Contains(reply.FailedAddresses, whole.addr) {
				t.Errorf("force %t: %+v, %v", force, reply, err)
			}
			if !co.cluster.Suspect(primary.addr) || !co.cluster.Suspect(empty.addr) {
				t.Errorf("force %t: one of the empty members counts as one that has everything", force)
			}
			whole.setDown(false)
			<-time.After(30 * time.Minute)
			f.same("default", byID)
			if co.cluster.Suspect(primary.addr) || co.cluster.Suspect(empty.addr) {
				t.Errorf("force %t: they are suspect although they are equal to the one that has everything", force)
			}
		})
	}
}

// A primary that comes back with an empty disk is given the documents of its group by a repair, and nobody loses any to it. With force it is
// what it has that counts.
func TestARepairBesideAPrimaryThatHasLostItsDocuments(t *testing.T) {
	for _, c := range []struct {
		name           string
		force, all     bool   // all members have lost them
		says           string // the error; empty: the repair is OK
		copied         int
		removed        int
		left           int  // documents at the replica behind it
		primary, stays bool // the primary has them; it stays suspect
	}{
		{name: "it is filled", copied: 100, left: 100, primary: true},
		{name: "it is forced", force: true, removed: 100},
		{name: "all have lost them", all: true, says: "weft topology accept", left: 1, stays: true},
		{name: "all have lost them and it is forced", all: true, force: true, removed: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.begin(placement.Ring, 1, 2)
			docs, byID := corpus(100)
			f.load("default", f.current().Visible(), []int{2}, docs...)
			co := f.keeper(Options{})
			defer co.shut(t)
			<-time.After(5 * time.Second) // they are known
			primary, replica := f.at(addr(0, 0)), f.at(addr(0, 1))
			primary.wipe()
			if c.all {
				replica.wipe()
				replica.put("default", doc("later", 0))
				<-time.After(5 * time.Second)
			} // else the job finds it out for itself
			reply, err := co.Repair(t.Context(), c.force)
			if err != nil {
				t.Fatal(err)
			}
			if reply.OK != (c.says == "") || !strings.Contains(reply.Error, c.says) || reply.OK && reply.Error != "" || reply.Copied != uint64(c.copied) || reply.Removed != uint64(c.removed) {
				t.Errorf("%s: %+v", c.name, reply)
			}
			if c.says != "" && !slices.Equal(reply.FailedAddresses, []string{primary.addr}) {
				t.Errorf("%s: %+v", c.name, reply)
			}
			if got := co.cluster.Suspect(primary.addr); got != c.stays {
				t.Errorf("%s: the primary is suspect: %t", c.name, got)
			}
			if c.primary {
				f.same("default", byID)
			}
			if got := len(replica.docs("default")); got != c.left {
				t.Errorf("%s: the replica has %d documents", c.name, got)
			}
			jobs, err := co.Jobs(t.Context())
			if err != nil || len(jobs) != 1 || jobs[0].Copied != reply.Copied || jobs[0].Removed != reply.Removed || jobs[0].Error != reply.Error {
				t.Errorf("%s: %+v, %v", c.name, jobs, err)
			}
		})
	}
}

// TestAMoveTakesNothingFromWhoLostItsDiskWhileTheOtherMissesWrites: the one with the documents is right, however much it misses, and none of them is
// cleaned away because the empty one did not have it.
func TestAMoveTakesNothingFromWhoLostItsDiskWhileTheOtherMissesWrites(t *testing.T) {
	for lost := range 2 {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pairs(t, 200)
			co := f.keeper(Options{})
			defer co.shut(t)
			<-time.After(5 * time.Second) // they are known
			a, b := f.at(addr(2, lost)), f.at(addr(2, 1-lost))
			id := slices.Sorted(maps.Keys(b.docs("default")))[0]
			a.wipe()
			<-time.After(5 * time.Second)
			misses := func(context.Context, string) { co.missed(t, b.addr, id) }
			b.setBefore(misses)
			co.missed(t, b.addr, id)
			if !co.cluster.Suspect(a.addr) {
				t.Fatal("it is not suspect")
			}
			if m := co.mostTrusted(co.cluster.State().Groups[2].Members); m.Addr != b.addr {
				t.Errorf("%s is taken for right", m.Addr)
			}
			job, err := co.StartRebalance(t.Context(), 3, 2)
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(20 * time.Minute) // it goes on in the end though the member keeps missing writes
			b.setBefore(nil)
			rec, err := co.ended(t, job)
			if err != nil || rec.State != Done {
				t.Fatalf("%+v, %v", rec, err)
			}
			f.same("default", byID)
		})
	}
}

// What a member has missed of documents that its group does not own any more is forgotten.
func TestNothingIsGivenToWhoDoesNotOwnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 100)
		co := f.keeper(Options{})
		defer co.shut(t)
		co.missed(t, addr(0, 0), slices.Collect(maps.Keys(byID))...)
		<-time.After(10 * time.Second)
		if p := co.q.Pending(); len(p) != 0 {
			t.Errorf("%+v", p)
		}
		f.same("default", byID)
	})
}

// Whoever has lost the lease writes nothing down any more, and stops.
func TestALostLeaseEndsAJob(t *testing.T) {
	const id = "rebalance-x"
	for _, c := range []struct {
		name  string
		owner string // of the lease; empty: there is none
		rec   *record
		lost  bool
	}{
		{"it is held", "self", &record{ID: id, State: Running}, false},
		{"another has it", "other", &record{ID: id, State: Running}, true},
		{"nobody has it", "", &record{ID: id, State: Running}, true},
		{"the job has ended", "self", &record{ID: id, State: Done}, true},
		{"the job is gone", "self", &record{ID: "another", State: Running}, true},
	} {
		r, err := New(told{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.ledger.update(t.Context(), func(b *book) error {
			if c.owner != "" {
				b.Lease = &lease{Owner: c.owner, Beat: 5}
			}
			if c.owner == "self" {
				b.Lease.Owner = r.id
			}
			b.Jobs = []*record{c.rec}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		j := &running{r: r, id: id, kind: Rebalance, p: progress{Done: 77}}
		if err := j.save(t.Context()); errors.Is(err, errLeaseLost) != c.lost || !c.lost && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		b, _, err := r.ledger.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if wrote := b.Jobs[0].Done == 77; wrote == c.lost || b.Lease != nil && (b.Lease.Beat == 6) == c.lost {
			t.Errorf("%s: %+v, %+v", c.name, b.Jobs[0], b.Lease)
		}
		if err := r.Close(); err != nil && !errors.Is(err, leaf.ErrClosed) {
			t.Error(err)
		}
	}
}
