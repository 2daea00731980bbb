package jobs

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// What is deleted at one name of a node is gone at the other: no job runs while two members of the map are one.
func TestNoJobRunsWhileTwoMembersAreOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.names = map[string]string{addr(3, 0): addr(1, 0)}
		sizes := []int{1, 1, 2, 1}
		f.begin(placement.Ring, 3, sizes...)
		docs, byID := corpus(200)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.coordinator(Options{RepairEvery: time.Minute})
		defer co.shut(t)
		_, err := co.Rebalance(t.Context(), 3, 4)
		if !hasCode(err, api.JobConflict) || !strings.Contains(err.Error(), "g1-m0 and g3-m0 are the node") {
			t.Errorf("a rebalance: %v", err)
		}
		if _, err := co.Repair(t.Context(), false); !hasCode(err, api.JobConflict) {
			t.Errorf("a repair: %v", err)
		}
		if _, err := co.cluster.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.RemoveGroup() }); err != nil {
			t.Fatal(err)
		}
		f.same("default", byID)
		if reply, err := co.Rebalance(t.Context(), 3, 3); err != nil || !reply.OK || reply.Moved != 0 {
			t.Errorf("without it: %+v, %v", reply, err)
		}
		f.same("default", byID)
	})
}

// A member that is away when a move is asked for may turn out to be another one of the map: nothing is copied or deleted then.
func TestAJobThatWaitsForASecondNameChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 1, 2, 1}
		f.begin(placement.Ring, 3, sizes...)
		f.at(addr(3, 0)).setDown(true)
		docs, byID := corpus(200)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.coordinator(Options{Patience: time.Second})
		defer co.shut(t)
		id, err := co.StartRebalance(t.Context(), 3, 4)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		one := f.at(addr(1, 0))
		f.mu.Lock()
		away := f.models[addr(3, 0)]
		f.mu.Unlock()
		away.mu.Lock()
		away.addr, away.down, away.indexes = one.addr, false, one.indexes
		away.mu.Unlock()
		<-time.After(time.Minute)
		j, err := co.Job(t.Context(), id)
		if err != nil || j.State != Running || !strings.Contains(j.Error, "g1-m0 and g3-m0 are the node") {
			t.Errorf("%+v, %v", j, err)
		}
		if _, err := co.Act(t.Context(), id, "cancel"); err != nil {
			t.Fatal(err)
		}
		if rec, err := co.ended(t, id); err != nil || rec.State != Cancelled {
			t.Fatalf("%+v, %v", rec, err)
		}
		if _, err := co.cluster.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.RemoveGroup() }); err != nil {
			t.Fatal(err)
		}
		f.same("default", byID)
	})
}

// The comparison in the background makes members equal to their primary. One that is a member of another group under a second name would lose
// the documents of that.
func TestNothingIsComparedWithASecondName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.names = map[string]string{addr(1, 1): addr(0, 0)}
		sizes := []int{1, 2}
		f.begin(placement.Ring, 2, sizes...)
		docs, _ := corpus(100)
		spec := f.current().Visible()
		for _, d := range docs {
			f.at(addr(shardOf(spec, idOf(d)), 0)).put("default", d)
		}
		had := len(f.at(addr(0, 0)).docs("default"))
		co := f.coordinator(Options{RepairEvery: time.Minute})
		defer co.shut(t)
		<-time.After(5 * time.Minute)
		if n := len(f.at(addr(0, 0)).docs("default")); n != had {
			t.Errorf("it has %d documents, and had %d", n, had)
		}
	})
}
