package jobs

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestAMemberThatMissedMoreThanIsKeptFillsOneThatLostItsDisk: each waited for the other. What the one that has its documents missed while the other one
// had none stays as it is there; everything that both had is there again, and nothing is deleted.
func TestAMemberThatMissedMoreThanIsKeptFillsOneThatLostItsDisk(t *testing.T) {
	for lost := range 2 {
		for _, every := range []time.Duration{0, 10 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				f, byID := pairs(t, 200)
				q, err := hints.Open("hints", memfs.New(nil), hints.Options{MaxBytes: 2000})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := q.Close(); err != nil {
						t.Error(err)
					}
				}()
				other := f.keeper(Options{RepairEvery: every})
				co := f.coordinator(Options{Hints: q, RepairEvery: every})
				defer co.shut(t)
				defer other.shut(t)
				<-time.After(5 * time.Second) // they are known
				a, b := f.at(addr(0, lost)), f.at(addr(0, 1-lost))
				ids := slices.Sorted(maps.Keys(b.docs("default")))
				down(true, b)
				a.wipe()
				a.put("default", doc(ids[0], 0))
				for i := range 200 {
					if _, err := q.Add(b.addr, "default", []string{fmt.Sprintf("some/long/id/%d", i)}); err != nil {
						t.Fatal(err)
					}
				}
				if p := q.Pending(); len(p) != 1 || !p[0].Overflowed {
					t.Fatalf("%+v", p)
				}
				<-time.After(5 * time.Second)
				if !co.cluster.Suspect(a.addr) || co.cluster.Suspect(b.addr) {
					t.Fatal("it is not suspect")
				}
				down(false, b)
				<-time.After(time.Minute)
				f.same("default", byID)
				if p := q.Pending(); len(p) != 0 || co.cluster.Suspect(a.addr) {
					t.Errorf("%+v, suspect %t", p, co.cluster.Suspect(a.addr))
				}
				<-time.After(time.Minute)
				if other.cluster.Suspect(a.addr) && every > 0 {
					t.Error("the other coordinator has not heard of it")
				}
			})
		}
	}
}

// TestNothingIsTakenWhereAllMayHaveLostTheirDocuments: it is for a person to say which of them counts.
func TestNothingIsTakenWhereAllMayHaveLostTheirDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pair(t, 2, 100)
		co := f.keeper(Options{RepairEvery: 10 * time.Second})
		defer co.shut(t)
		<-time.After(5 * time.Second)
		a, b := f.at(addr(0, 0)), f.at(addr(0, 1))
		a.wipe()
		b.wipe()
		a.put("default", doc("pkg/1", 1))
		b.put("default", doc("pkg/2", 1))
		if _, err := co.q.Compare(b.addr); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Minute)
		if one, two := a.docs("default"), b.docs("default"); len(one) != 1 || len(two) != 1 || !co.cluster.Suspect(a.addr) || !co.cluster.Suspect(b.addr) || !co.short(b.addr) {
			t.Errorf("they have %d and %d documents", len(one), len(two))
		}
		if _, err := co.cluster.Accept(t.Context(), b.addr, false); err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * time.Minute) // what fails is tried again after half a minute at most
		f.same("default", map[string]string{"pkg/2": doc("pkg/2", 1)})
		f.nothingWaits(co)
	})
}
