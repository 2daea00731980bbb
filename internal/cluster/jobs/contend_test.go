package jobs

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSeveralThatMakeAMemberEqualAtOnceDoNotKeepEachOtherFromIt: each looks at the documents that it is about to give, and so tells the others that
// what they have seen is old. At a low rate there is much time between a look and the next.
func TestSeveralThatMakeAMemberEqualAtOnceDoNotKeepEachOtherFromIt(t *testing.T) {
	for _, coordinators := range []int{2, 3} {
		for _, wiped := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				const rate = 200
				f, byID := pair(t, 2, 1600)
				from, to := f.at(addr(0, 0)), f.at(addr(0, 1))
				if wiped {
					to.wipe()
				} else {
					for id := range byID {
						to.put("default", doc(id, 99))
					}
				}
				began := time.Now()
				var wg sync.WaitGroup
				for range coordinators {
					co := f.coordinator(Options{DocsPerSec: rate})
					defer co.shut(t)
					wg.Go(func() {
						st := co.cluster.State()
						left, err := co.work(st).repairMember(t.Context(), nil, memberAt(st, from.addr).Member, memberAt(st, to.addr).Member, seen)
						if err != nil || len(left) > 0 {
							t.Errorf("%d documents are left, %v", len(left), err)
						}
					})
				}
				wg.Wait()
				if took, most := time.Since(began), 2*1600/rate*time.Second; took > most {
					t.Errorf("%d coordinators, wiped %t: %v, more than %v", coordinators, wiped, took, most)
				}
				f.same("default", byID)
			})
		}
	}
}
