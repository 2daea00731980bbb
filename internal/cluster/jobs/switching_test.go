package jobs

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/cluster/write"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// cutover is a fleet whose documents are moved from two groups to three, and of which one old owner does not hear of the cutover.
type cutover struct {
	*fleet
	byID  map[string]string
	moved []string // ids that go from group 0 to group 2
	deaf  *model
	hears atomic.Bool
	old   atomic.Pointer[members.State] // the state of the moment at which documents were compared last
}

func newCutover(t *testing.T) *cutover {
	f := &cutover{fleet: newFleet(t)}
	sizes := []int{2, 1, 1}
	f.begin(placement.Ring, 2, sizes...)
	var docs []string
	docs, f.byID = corpus(200)
	from, to := f.current().Visible(), placement.Spec{Rule: placement.Ring, Shards: 3, VNodes: 16}
	f.load("default", from, sizes, docs...)
	for _, d := range docs {
		if id := idOf(d); shardOf(from, id) == 0 && shardOf(to, id) == 2 {
			f.moved = append(f.moved, id)
		}
	}
	f.deaf = f.at(addr(0, 1))
	f.deaf.setFates(func(_ context.Context, call string) fate {
		if (call == "Place" || call == "Placed") && f.current().CutOver() && !f.hears.Load() {
			return gone
		}
		return fine
	})
	f.at(addr(2, 0)).setBefore(func(_ context.Context, call string) {
		if call != "Digest" {
			return
		}
		st, err := members.NewState(f.current(), nil, func(addr string) (leaf.Member, error) { return &connection{m: f.at(addr)}, nil })
		if err != nil {
			t.Error(err)
			return
		}
		f.old.Store(st)
	})
	return f
}

// begun begins to move and returns when the map of the cutover is in force.
func (f *cutover) begun(co *coordinator) (job string) {
	f.t.Helper()
	id, err := co.StartRebalance(context.Background(), 2, 3)
	if err != nil {
		f.t.Fatal(err)
	}
	for !co.cluster.State().Map.CutOver() {
		<-time.After(10 * time.Millisecond)
	}
	if st := f.old.Load(); st == nil || st.Map.CutOver() || len(f.moved) < 4 {
		f.t.Fatalf("compared by %+v, %d documents are moved", st, len(f.moved))
	}
	return id
}

// A member that has not heard of the cutover answers those who have not either. Whatever is acknowledged meanwhile is there.
func TestWhoHasNotHeardOfACutoverMissesNoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCutover(t)
		co := f.coordinator(Options{})
		defer co.shut(t)
		job := f.begun(co)
		w, err := write.New(co.cluster, write.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range f.moved[:2] {
			f.byID[id] = doc(id, 5)
			reply, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "default", Body: []byte(f.byID[id])})
			if err != nil || !reply.OK {
				t.Errorf("%+v, %v", reply, err)
			}
		}
		delete(f.byID, f.moved[2])
		if reply, err := w.Delete(t.Context(), "default", f.moved[2]); err != nil || !reply.OK {
			t.Errorf("%+v, %v", reply, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		old := f.old.Load()
		v, _ := old.View(0)
		ask := func(member int) ([]leaf.Sum, error) {
			reply, err := old.Groups[0].Members[member].Leaf.Sums(t.Context(), &leaf.SumsRequest{Index: "default", View: v, IDs: f.moved[:4]})
			if err != nil {
				return nil, err
			}
			return reply.Sums, nil
		}
		if _, err := ask(0); !members.IsStale(err) {
			t.Errorf("a member that has heard of it: %v", err)
		}
		want := []leaf.Sum{sumOf(f.byID[f.moved[0]]), sumOf(f.byID[f.moved[1]]), {}, sumOf(f.byID[f.moved[3]])}
		if sums, err := ask(1); err != nil || !slices.Equal(sums, want) {
			t.Errorf("a member that has not heard of it: %x, want %x (%v)", sums, want, err)
		}
		<-time.After(30 * time.Second)
		if m := f.current(); m.Move == nil || m.Move.Phase != shardmap.Switching {
			t.Errorf("before all have heard of it the move is %+v", m.Move)
		}
		f.hears.Store(true)
		if rec, err := co.await(t.Context(), job); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		if _, err := ask(1); !members.IsStale(err) {
			t.Errorf("after the move: %v", err)
		}
		f.same("default", f.byID)
	})
}

// While it waits for a member to hear of the cutover, a job can be paused and not cancelled, and another coordinator goes on with it.
func TestACutoverThatNotAllHaveHeardOfGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCutover(t)
		one := f.coordinator(Options{})
		defer one.shut(t)
		job := f.begun(one)
		_, err := one.Act(t.Context(), job, actionCancel)
		wantProblem(t, err, api.JobConflict)
		for _, action := range []string{actionPause, actionResume} {
			if _, err := one.Act(t.Context(), job, action); err != nil {
				t.Fatal(err)
			}
			<-time.After(10 * time.Second)
		}
		if n := one.unmoved(t.Context(), &record{Kind: Rebalance, progress: progress{From: 2, To: 3}}); n != 0 {
			t.Errorf("%d documents are to be moved yet", n)
		}
		one.kill()
		two := f.coordinator(Options{})
		defer two.shut(t)
		<-time.After(time.Minute)
		if m := f.current(); m.Move == nil || m.Move.Phase != shardmap.Switching {
			t.Errorf("the move is %+v", m.Move)
		}
		f.hears.Store(true)
		if rec, err := two.await(t.Context(), job); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		f.same("default", f.byID)
	})
}

// What the only new owner has missed since the cutover comes from the old one.
func TestANewOwnerGetsWhatItMissedFromTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCutover(t)
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
		job := f.begun(co)
		id := f.moved[0]
		f.byID[id] = doc(id, 5)
		for k := range 2 {
			f.at(addr(0, k)).put("default", f.byID[id])
		}
		if _, err := q.Add(addr(2, 0), "default", []string{id}); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		if got := f.at(addr(2, 0)).docs("default")[id]; got != f.byID[id] {
			t.Errorf("the new owner has %s", got)
		}
		f.hears.Store(true)
		if rec, err := co.await(t.Context(), job); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		f.same("default", f.byID)
	})
}

// A member that has not heard of a move answers those who have not either, who look at it as a whole. Nothing is written there meanwhile that
// they see elsewhere.
func TestWhoHasNotHeardOfAMoveSeesNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 1}
		f.begin(placement.Ring, 3, sizes...)
		docs, byID := corpus(100)
		f.load("default", f.current().Visible(), sizes, docs...)
		var hears atomic.Bool
		for _, m := range f.all() {
			m.setFates(func(_ context.Context, call string) fate {
				if (call == "Place" || call == "Placed") && f.current().Move != nil && !hears.Load() {
					return gone
				}
				return fine
			})
		}
		co := f.coordinator(Options{})
		defer co.shut(t)
		old := co.cluster.State()
		job, err := co.StartRebalance(t.Context(), 3, 2)
		if err != nil {
			t.Fatal(err)
		}
		for !co.cluster.State().Moving() {
			<-time.After(10 * time.Millisecond)
		}
		w, err := write.New(co.cluster, write.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for id := range byID {
			if old.Owner(id).Ordinal != 2 {
				continue
			}
			byID[id] = doc(id, 5)
			if reply, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "default", Body: []byte(byID[id])}); err != nil || !reply.OK {
				t.Errorf("%+v, %v", reply, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		seen := map[string]int{}
		for g := range 3 {
			v, _ := old.View(g)
			reply, err := old.Groups[g].Members[0].Leaf.Sums(t.Context(), &leaf.SumsRequest{Index: "default", View: v, Range: &leaf.HashRange{To: 1<<32 - 1}, Limit: leaf.MaxIDs})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range reply.IDs {
				seen[id]++
			}
		}
		for id := range byID {
			if seen[id] != 1 {
				t.Errorf("%s is seen %d times", id, seen[id])
			}
		}
		<-time.After(30 * time.Second)
		if m := f.current(); m.Move == nil || m.Move.Phase != shardmap.Preparing {
			t.Errorf("before all have heard of it the move is %+v", m.Move)
		}
		hears.Store(true)
		if rec, err := co.await(t.Context(), job); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		f.same("default", byID)
	})
}
