package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

var rules = []placement.Rule{placement.Ring, placement.Modulo, placement.Rendezvous}

// corpus makes documents named pkg/1 and so on.
func corpus(n int) (docs []string, byID map[string]string) {
	byID = map[string]string{}
	for i := range n {
		d := doc(fmt.Sprintf("pkg/%d", i+1), 0)
		docs = append(docs, d)
		byID[idOf(d)] = d
	}
	return docs, byID
}

// A plan says what a rebalance moves, for all rules, to more groups and to fewer, and a second run moves nothing.
func TestPlanIsWhatIsMoved(t *testing.T) {
	for _, rule := range rules {
		for _, c := range []struct{ from, to int }{{3, 4}, {4, 3}, {1, 3}, {3, 1}} {
			t.Run(fmt.Sprintf("%s %d to %d", rule, c.from, c.to), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sizes := []int{2, 1, 2, 1}[:max(c.from, c.to)]
					f := newFleet(t)
					f.begin(rule, c.from, sizes...)
					docs, byID := corpus(400)
					spec := f.current().Visible()
					f.load("default", spec, sizes, docs...)
					plan, err := placement.NewPlan(spec, c.to)
					if err != nil {
						t.Fatal(err)
					}
					for id := range byID {
						plan.Add(id)
					}
					want := map[placement.Rule]uint64{
						placement.Ring: plan.Report().Ring.Moved, placement.Modulo: plan.Report().Modulo.Moved, placement.Rendezvous: plan.Report().Rendezvous.Moved,
					}[rule]
					co := f.coordinator(Options{})
					defer co.shut(t)
					reply, err := co.Rebalance(t.Context(), c.from, c.to)
					if err != nil {
						t.Fatal(err)
					}
					if !reply.OK || reply.Moved != want || reply.Deferred != 0 || reply.MissingAtSource != 0 {
						t.Errorf("moved %+v, the plan says %d", *reply, want)
					}
					f.same("default", byID)
					if m := f.current(); m.Placed != c.to {
						t.Errorf("documents are placed over %d groups, want %d", m.Placed, c.to)
					}
					j, err := co.Job(t.Context(), reply.Job)
					if err != nil || j.State != Done || j.Total != 400 || j.Done != j.Total || j.Error != "" || j.Kind != Rebalance {
						t.Errorf("job %+v, %v", j, err)
					}
					again, err := co.Rebalance(t.Context(), c.from, c.to)
					if err != nil || !again.OK || again.Moved != 0 {
						t.Errorf("the second run: %+v, %v", again, err)
					}
					f.same("default", byID)
				})
			})
		}
	}
}

// Documents that stand where they do not belong come to their owner, if that does not have them, before they are deleted.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 2, 2}
		f.begin(placement.Ring, 3, sizes...)
		docs, byID := corpus(60)
		f.load("default", f.current().Visible(), sizes, docs...)
		wrong := 0
		for i, d := range docs {
			id := idOf(d)
			o := shardOf(f.current().Visible(), id)
			other := (o + 1) % 3
			switch i % 4 {
			case 0: // only where it does not belong
				for k := range sizes[o] {
					f.at(addr(o, k)).remove("default", id)
				}
				f.at(addr(other, 0)).put("default", d)
				wrong++
			case 1: // on both, an older one where it does not belong
				for k := range sizes[other] {
					f.at(addr(other, k)).put("default", doc(id, 7))
				}
				wrong++
			case 2: // on both, but not at every member of its owner
				if sizes[o] == 1 {
					continue
				}
				f.at(addr(o, 1)).remove("default", id)
				f.at(addr(other, 0)).put("default", d)
				wrong++
			}
		}
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil || !reply.OK || reply.Moved != uint64(wrong) {
			t.Fatalf("%+v, %v, want %d moved", reply, err, wrong)
		}
		f.same("default", byID)
		again, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil || !again.OK || again.Moved != 0 {
			t.Errorf("the second run: %+v, %v", again, err)
		}
	})
}

// A document that its owner does not take stays where it is, and the others do not.
func TestSweepOfARefusedDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1}
		f.begin(placement.Ring, 2, sizes...)
		docs, _ := corpus(60)
		wrong := uint64(0)
		for _, d := range docs {
			f.at(addr(0, 0)).put("default", d)
			if shardOf(f.current().Visible(), idOf(d)) == 1 {
				wrong++
				f.at(addr(1, 0)).refuse[idOf(d)] = wrong == 1
			}
		}
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Rebalance(t.Context(), 1, 2)
		if err != nil || reply.OK || reply.Deferred != 1 || reply.Moved != wrong-1 {
			t.Fatalf("%+v, %v, want %d moved", reply, err, wrong-1)
		}
		if n := len(f.at(addr(0, 0)).docs("default")) + len(f.at(addr(1, 0)).docs("default")); n != 60 {
			t.Errorf("%d documents", n)
		}
		f.at(addr(1, 0)).mu.Lock()
		clear(f.at(addr(1, 0)).refuse)
		f.at(addr(1, 0)).mu.Unlock()
		reply, err = co.Rebalance(t.Context(), 1, 2)
		if err != nil || !reply.OK || reply.Deferred != 0 || reply.Moved != 1 {
			t.Fatalf("%+v, %v", reply, err)
		}
	})
}

// What changed at the new owners alone while documents were copied is put right before the cutover.
func TestComparedBeforeCutover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 2}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(200)
		from, to := f.current().Visible(), placement.Spec{Rule: placement.Ring, Shards: 3, VNodes: 16}
		f.load("default", from, sizes, docs...)
		var moved []string
		ghost := ""
		for i := range 1000 {
			id := fmt.Sprintf("pkg/%d", i+1)
			switch _, there := byID[id]; {
			case shardOf(to, id) != 2:
			case there:
				moved = append(moved, id)
			case ghost == "":
				ghost = id
			}
		}
		var met atomic.Bool
		f.at(addr(0, 0)).setBefore(func(_ context.Context, call string) {
			if call != "Indexes" || f.at(addr(2, 0)).called("Sync") == 0 || !met.CompareAndSwap(false, true) {
				return // all are asked for their indexes before they are compared
			}
			f.at(addr(2, 0)).put("default", doc(ghost, 1))
			f.at(addr(2, 1)).remove("default", moved[0])
			f.at(addr(2, 0)).put("default", doc(moved[1], 9))
			o := shardOf(from, moved[2])
			f.at(addr(o, 0)).remove("default", moved[2])
			delete(byID, moved[2])
		})
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil || !reply.OK || reply.Moved != uint64(len(moved)) || !met.Load() {
			t.Fatalf("%+v, %v", reply, err)
		}
		f.same("default", byID)
	})
}

// A move hides nothing that was to be seen before it, wherever it stood.
func TestMoveTakesStraysAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 1, 1}
		f.begin(placement.Ring, 3, sizes...)
		docs, byID := corpus(60)
		f.load("default", f.current().Visible(), sizes, docs...)
		f.at(addr(3, 0)).put("other", doc("alone", 1)) // on a group that is new
		for _, d := range docs[:10] {
			o := shardOf(f.current().Visible(), idOf(d))
			f.at(addr(o, 0)).remove("default", idOf(d))
			f.at(addr((o+1)%3, 0)).put("default", d)
		}
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Rebalance(t.Context(), 3, 4)
		if err != nil || !reply.OK {
			t.Fatalf("%+v, %v", reply, err)
		}
		f.same("default", byID)
		f.same("other", map[string]string{"alone": doc("alone", 1)})
	})
}

func wantProblem(t testing.TB, err error, code api.Code) {
	t.Helper()
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != code {
		t.Errorf("%v, want %s", err, code)
	}
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 1}
		f.begin(placement.Ring, 2, sizes...)
		docs, _ := corpus(20)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.coordinator(Options{})
		defer co.shut(t)
		ctx := t.Context()
		_, err := co.StartRebalance(ctx, 1, 3)
		wantProblem(t, err, api.InvalidParameter)
		_, err = co.StartRebalance(ctx, 2, 4)
		wantProblem(t, err, api.InvalidParameter)
		_, err = co.Job(ctx, "none")
		wantProblem(t, err, api.JobNotFound)
		_, err = co.Act(ctx, "none", "pause")
		wantProblem(t, err, api.JobNotFound)
		_, err = co.Act(ctx, "none", "stop")
		wantProblem(t, err, api.InvalidParameter)

		f.at(addr(2, 0)).setDown(true) // so that it waits
		id, err := co.StartRebalance(ctx, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		_, err = co.StartRebalance(ctx, 2, 3)
		wantProblem(t, err, api.JobConflict)
		_, err = co.StartRepair(ctx, false)
		wantProblem(t, err, api.JobConflict)
		f.at(addr(2, 0)).setDown(false)
		if rec, err := co.await(ctx, id); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		_, err = co.Act(ctx, id, "cancel")
		wantProblem(t, err, api.JobConflict)
	})
}

// Where documents are placed as they are to be, from says over how many groups they were: as many as there are, or as an earlier job moved them from.
// So whoever asks once more for what has shrunk the cluster finds it done, also when the groups are gone, and who mistypes is told.
func TestFromIsHeldAgainstTheGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 1}
		f.begin(placement.Ring, 3, sizes...)
		docs, _ := corpus(50)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.coordinator(Options{})
		defer co.shut(t)
		ctx := t.Context()
		_, err := co.StartRebalance(ctx, 9, 3)
		wantProblem(t, err, api.InvalidParameter)
		id, err := co.StartRebalance(ctx, 3, 2)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := co.await(ctx, id)
		if err != nil || rec.State != Done || rec.Moved == 0 {
			t.Fatalf("%+v, %v", rec, err)
		}
		if j, err := co.Job(ctx, id); err != nil || j.Moved != rec.Moved {
			t.Errorf("%+v, %v: %d documents were moved", j, err, rec.Moved)
		}
		nothing := func(from int) {
			t.Helper()
			if reply, err := co.Rebalance(ctx, from, 2); err != nil || !reply.OK || reply.Moved != 0 {
				t.Errorf("from %d: %+v, %v", from, reply, err)
			}
		}
		nothing(3)
		if _, err := co.cluster.Change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) { return m.RemoveGroup() }); err != nil {
			t.Fatal(err)
		}
		for _, from := range []int{1, 2, 3} {
			nothing(from)
		}
		_, err = co.StartRebalance(ctx, 4, 2)
		wantProblem(t, err, api.InvalidParameter)
	})
}

// A job waits for members that are away. Who waits for it is told after a while; it goes on by itself.
func TestJobWaitsForMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 2}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(100)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.coordinator(Options{})
		defer co.shut(t)
		var back atomic.Bool
		dead := f.at(addr(2, 1))
		dead.setBefore(func(_ context.Context, call string) {
			if call == "Sync" && !back.Load() {
				dead.setDown(true)
			}
		})
		reply, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		moved := uint64(0)
		for id := range byID {
			if shardOf(placement.Spec{Rule: placement.Ring, Shards: 3, VNodes: 16}, id) == 2 {
				moved++
			}
		}
		if reply.OK || reply.Deferred != moved || reply.Moved != 0 {
			t.Errorf("%+v, want %d deferred", *reply, moved)
		}
		j, err := co.Job(t.Context(), reply.Job)
		if err != nil || j.State != Running || j.Error == "" {
			t.Errorf("job %+v, %v", j, err)
		}
		if m := f.current(); m.Move == nil || m.Move.Phase != shardmap.Copying {
			t.Errorf("the move is %+v", m.Move)
		}
		<-time.After(time.Minute) // however long it was away
		back.Store(true)
		dead.setDown(false)
		began := time.Now()
		rec, err := co.await(t.Context(), reply.Job)
		if err != nil || rec.State != Done || rec.Moved != moved {
			t.Fatalf("%+v, %v", rec, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it went on after %v", took)
		}
		f.same("default", byID)
	})
}

// A document that its new owner does not take stays where it is, and with it all others.
func TestRefusedDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 1}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(100)
		f.load("default", f.current().Visible(), sizes, docs...)
		for id := range byID {
			if shardOf(placement.Spec{Rule: placement.Ring, Shards: 3, VNodes: 16}, id) == 2 {
				f.at(addr(2, 0)).refuse[id] = true
				break
			}
		}
		co := f.coordinator(Options{})
		defer co.shut(t)
		reply, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil || reply.OK || reply.Deferred != 1 {
			t.Fatalf("%+v, %v", reply, err)
		}
		j, err := co.Job(t.Context(), reply.Job)
		if err != nil || j.State != Failed || j.Error == "" {
			t.Errorf("job %+v, %v", j, err)
		}
		f.same("default", byID)
		if m := f.current(); m.Placed != 2 {
			t.Errorf("placed over %d", m.Placed)
		}
	})
}

// A job that was cancelled and waits for members shows that it was, and for whom it waits, until it has ended.
func TestACancelThatWaitsIsToBeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 2}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(100)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.coordinator(Options{})
		defer co.shut(t)
		dead := f.at(addr(2, 1))
		var back atomic.Bool
		dead.setBefore(func(_ context.Context, call string) {
			if call == "Sync" && !back.Load() {
				dead.setDown(true)
			}
		})
		reply, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil || reply.OK {
			t.Fatalf("%+v, %v", reply, err)
		}
		if j, err := co.Job(t.Context(), reply.Job); err != nil || j.Cancelling || j.Error == "" {
			t.Errorf("%+v, %v", j, err)
		}
		if j, err := co.Act(t.Context(), reply.Job, "cancel"); err != nil || !j.Cancelling || j.State != Running {
			t.Errorf("%+v, %v", j, err)
		}
		<-time.After(time.Minute)
		list, err := co.Jobs(t.Context())
		if err != nil || len(list) != 1 || !list[0].Cancelling || list[0].State != Running || list[0].Error == "" || len(list[0].FailedAddresses) != 1 || list[0].FailedAddresses[0] != addr(2, 1) {
			t.Errorf("%+v, %v", list, err)
		}
		back.Store(true)
		dead.setDown(false)
		if rec, err := co.ended(t, reply.Job); err != nil || rec.State != Cancelled || rec.job().Cancelling {
			t.Errorf("%+v, %v", rec, err)
		}
		f.same("default", byID)
	})
}

// Pausing holds a job, cancelling undoes it, in every part of it until the cutover.
func TestPauseAndCancel(t *testing.T) {
	for _, stop := range []string{"IDs", "Sync", "Digest"} {
		t.Run(stop, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				sizes := []int{1, 1, 1}
				f.begin(placement.Modulo, 2, sizes...)
				docs, byID := corpus(100)
				f.load("default", f.current().Visible(), sizes, docs...)
				co := f.coordinator(Options{})
				defer co.shut(t)
				reached, release := make(chan struct{}), make(chan struct{})
				var met atomic.Bool
				m := f.at(addr(0, 0))
				if stop == "Sync" {
					m = f.at(addr(2, 0))
				}
				m.setBefore(func(ctx context.Context, call string) {
					if call == stop && met.CompareAndSwap(false, true) {
						close(reached)
						select {
						case <-release:
						case <-ctx.Done():
						}
					}
				})
				ctx := t.Context()
				id, err := co.StartRebalance(ctx, 2, 3)
				if err != nil {
					t.Fatal(err)
				}
				<-reached
				if j, err := co.Act(ctx, id, "pause"); err != nil || j.State != Paused {
					t.Fatalf("%+v, %v", j, err)
				}
				close(release)
				<-time.After(time.Minute)
				if j, err := co.Job(ctx, id); err != nil || j.State != Paused {
					t.Fatalf("%+v, %v", j, err)
				}
				_, err = co.StartRepair(ctx, false)
				wantProblem(t, err, api.JobConflict)
				if j, err := co.Act(ctx, id, "cancel"); err != nil || j.State != Running {
					t.Fatalf("%+v, %v", j, err)
				}
				rec, err := co.await(ctx, id)
				if err != nil || rec.State != Cancelled {
					t.Fatalf("%+v, %v", rec, err)
				}
				if j := rec.job(); j.Moved != 0 || stop == "Digest" && rec.Moved == 0 {
					t.Errorf("it says that %d documents moved; %d were copied", j.Moved, rec.Moved)
				}
				f.same("default", byID)
				if m := f.current(); m.Placed != 2 || m.Move != nil {
					t.Errorf("map %+v", m)
				}
				reply, err := co.Rebalance(ctx, 2, 3)
				if err != nil || !reply.OK {
					t.Fatalf("%+v, %v", reply, err)
				}
				f.same("default", byID)
			})
		})
	}
}

// After the cutover a job can be paused and not cancelled.
func TestNoCancelAfterCutover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 1}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(100)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.coordinator(Options{})
		defer co.shut(t)
		reached := make(chan struct{})
		var met atomic.Bool
		m := f.at(addr(0, 0))
		m.setBefore(func(ctx context.Context, call string) {
			if call == "Sync" && met.CompareAndSwap(false, true) { // group 0 gets none but deletions
				close(reached)
				<-ctx.Done()
			}
		})
		ctx := t.Context()
		id, err := co.StartRebalance(ctx, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		<-reached
		_, err = co.Act(ctx, id, "cancel")
		wantProblem(t, err, api.JobConflict)
		if _, err := co.Act(ctx, id, "pause"); err != nil {
			t.Fatal(err)
		}
		if _, err := co.Act(ctx, id, "resume"); err != nil {
			t.Fatal(err)
		}
		if rec, err := co.await(ctx, id); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		f.same("default", byID)
	})
}

// A move whose job nobody knows goes on, in every phase, by itself or when it is asked for.
func TestUnknownMove(t *testing.T) {
	phases := map[string][]func(*shardmap.Map) (*shardmap.Map, error){
		"preparing": nil,
		"copying":   {(*shardmap.Map).BeginCopying},
		"switching": {(*shardmap.Map).BeginCopying, (*shardmap.Map).Cutover},
		"aborted":   {(*shardmap.Map).BeginCopying, (*shardmap.Map).AbortMove},
	}
	for name, then := range phases {
		for _, asked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", name, asked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t)
					sizes := []int{1, 2, 1}
					f.begin(placement.Ring, 2, sizes...)
					docs, byID := corpus(100)
					spec := f.current().Visible()
					f.load("default", spec, sizes, docs...)
					to := spec
					to.Shards = 3
					for i, d := range docs {
						if (i%2 == 0 || name == "switching") && shardOf(to, idOf(d)) == 2 {
							f.at(addr(2, 0)).put("default", d)
						}
					}
					src := shardmap.NewStoreSource(f.store)
					m, v, err := src.Load(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if m, err = m.BeginMove(3, "lost"); err != nil {
						t.Fatal(err)
					}
					for _, step := range then {
						if m, err = step(m); err != nil {
							t.Fatal(err)
						}
					}
					if _, err = src.Swap(t.Context(), v, m); err != nil {
						t.Fatal(err)
					}
					o := Options{}
					if asked {
						o.Dir, o.FS = "jobs", memfs.New(nil) // a ledger of its own
					}
					co := f.coordinator(o)
					defer co.shut(t)
					id := "lost"
					if asked {
						if id, err = co.StartRebalance(t.Context(), 2, m.Move.To); err != nil {
							t.Fatal(err)
						}
					}
					<-time.After(time.Minute / 2)
					rec, err := co.await(t.Context(), id)
					if err != nil || !rec.ended() || rec.State == Failed {
						t.Fatalf("%+v, %v", rec, err)
					}
					f.same("default", byID)
					if now := f.current(); now.Placed != m.Move.To {
						t.Errorf("placed over %d groups, want %d", now.Placed, m.Move.To)
					}
				})
			})
		}
	}
}

// Between two numbers of groups, moves is true for all pairs of groups that any document goes between.
func TestMoves(t *testing.T) {
	for _, rule := range rules {
		for from := 1; from <= 6; from++ {
			for to := 1; to <= 6; to++ {
				a, b := placement.Spec{Rule: rule, Shards: from, VNodes: 8}, placement.Spec{Rule: rule, Shards: to, VNodes: 8}
				for i := range 5000 {
					id := fmt.Sprint("doc", i)
					s, d := shardOf(a, id), shardOf(b, id)
					if s != d && !moves(rule, from, to, s, d) {
						t.Fatalf("%s, %d to %d: %s goes from group %d to group %d", rule, from, to, id, s, d)
					}
				}
			}
		}
	}
}

// A copy that arrives late, when its document was deleted and everything was compared again, is refused: whether the job was killed while it
// was on its way, or only never heard of it.
func TestLateCopy(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				sizes := []int{1, 1, 1}
				f.begin(placement.Ring, 2, sizes...)
				docs, byID := corpus(100)
				f.load("default", f.current().Visible(), sizes, docs...)
				released := make(chan struct{})
				var cut, met atomic.Bool
				dest := f.at(addr(2, 0))
				f.store = &hookedStore{Store: f.store, before: func(key string, b []byte) {
					if key == shardmap.Key && strings.Contains(string(b), "switching") && cut.CompareAndSwap(false, true) {
						close(released)
						dest.late.Wait()
					}
				}}
				one := f.coordinator(Options{})
				defer one.shut(t)
				dest.later = func() { <-released }
				dest.setFates(func(_ context.Context, call string) fate {
					if call != "Sync" || !met.CompareAndSwap(false, true) {
						return fine
					}
					if killed {
						one.kill()
					}
					// Somebody deletes all documents that are on their way.
					to := placement.Spec{Rule: placement.Ring, Shards: 3, VNodes: 16}
					for id := range byID {
						if shardOf(to, id) == 2 {
							for g := range 2 {
								f.at(addr(g, 0)).remove("default", id)
							}
							delete(byID, id)
						}
					}
					return late
				})
				ctx := t.Context()
				id, err := one.StartRebalance(ctx, 2, 3)
				if err != nil {
					t.Fatal(err)
				}
				waits := one
				if killed {
					two := f.coordinator(Options{})
					defer two.shut(t)
					waits = two
				}
				if rec, err := waits.await(ctx, id); err != nil || rec.State != Done {
					t.Fatalf("%+v, %v", rec, err)
				}
				if !met.Load() || !cut.Load() {
					t.Fatal("no copy was late")
				}
				f.same("default", byID)
			})
		})
	}
}

// As long as a member has not taken the map, somebody may go by an older one there: nothing is copied, and nothing is deleted.
func TestEveryMemberTakesTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{2, 2, 2}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(100)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.coordinator(Options{})
		defer co.shut(t)
		deaf := f.at(addr(1, 1))
		var mu sync.Mutex
		until := time.Now().Add(time.Minute)
		deaf.setFates(func(_ context.Context, call string) fate {
			mu.Lock()
			defer mu.Unlock()
			if call == "Place" && time.Now().Before(until) {
				return gone
			}
			return fine
		})
		writes := func(wrong string) func(context.Context, string) {
			return func(_ context.Context, call string) {
				deaf.mu.Lock()
				epoch := deaf.epoch
				deaf.mu.Unlock()
				if m := f.current(); call == "Sync" && epoch < m.Epoch {
					t.Errorf("%s while a member has the map of epoch %d, not %d", wrong, epoch, m.Epoch)
				}
			}
		}
		for k := range 2 {
			f.at(addr(2, k)).setBefore(writes("copied"))
			f.at(addr(0, k)).setBefore(writes("deleted"))
			f.at(addr(1, k)).setBefore(writes("deleted"))
		}
		id, err := co.StartRebalance(t.Context(), 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(30 * time.Second)
		if m := f.current(); m.Move != nil {
			t.Errorf("the move is %+v", *m.Move)
		}
		if rec, err := co.await(t.Context(), id); err != nil || rec.ended() {
			t.Fatalf("%+v, %v", rec, err)
		}
		<-time.After(2 * time.Minute)
		if rec, err := co.await(t.Context(), id); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		f.same("default", byID)
	})
}

// A new owner that loses its disk after the cutover gets the documents back from where they stand yet.
func TestOwnerIsLostAfterCutover(t *testing.T) {
	for _, size := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			sizes := []int{1, 1, size}
			f.begin(placement.Ring, 2, sizes...)
			docs, byID := corpus(200)
			f.load("default", f.current().Visible(), sizes, docs...)
			co := f.coordinator(Options{})
			defer co.shut(t)
			var wiped atomic.Bool
			f.at(addr(0, 0)).setBefore(func(_ context.Context, call string) {
				if m := f.current(); call == "IDs" && m.Move != nil && m.Move.Phase == shardmap.Cleaning && wiped.CompareAndSwap(false, true) {
					f.at(addr(2, 0)).wipe()
				}
			})
			reply, err := co.Rebalance(t.Context(), 2, 3)
			if err != nil || !reply.OK || !wiped.Load() {
				t.Fatalf("%+v, %v", reply, err)
			}
			f.same("default", byID)
		})
	}
}

// A source that loses its disk while it is copied from is not taken for one that was emptied. When the move is cancelled, it gets back
// what was copied of it.
func TestSourceIsLostWhileCopying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 1}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(200)
		f.load("default", f.current().Visible(), sizes, docs...)
		to := placement.Spec{Rule: placement.Ring, Shards: 3, VNodes: 16}
		for id := range byID {
			if shardOf(f.current().Visible(), id) == 0 && shardOf(to, id) != 2 {
				delete(byID, id) // nobody else ever had them
			}
		}
		co := f.coordinator(Options{})
		defer co.shut(t)
		var wiped atomic.Bool
		source := f.at(addr(0, 0))
		source.setBefore(func(_ context.Context, call string) {
			if call == "Digest" && f.at(addr(2, 0)).called("Sync") > 0 && wiped.CompareAndSwap(false, true) {
				source.wipe()
			}
		})
		reply, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil || reply.OK || !wiped.Load() {
			t.Fatalf("%+v, %v", reply, err)
		}
		if m := f.current(); m.Move == nil || m.Move.Phase != shardmap.Copying {
			t.Fatalf("the move is %+v", m.Move)
		}
		if _, err := co.Act(t.Context(), reply.Job, "cancel"); err != nil {
			t.Fatal(err)
		}
		if rec, err := co.await(t.Context(), reply.Job); err != nil || rec.State != Cancelled {
			t.Fatalf("%+v, %v", rec, err)
		}
		f.same("default", byID)
	})
}
