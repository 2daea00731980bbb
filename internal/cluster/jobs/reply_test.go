package jobs

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/vfs/memfs"
)

func TestARebalanceThatWaitsForAMemberNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		f.at(addr(1, 1)).setDown(true)
		co := f.coordinator(Options{Dir: "data/jobs", FS: memfs.New(nil), Patience: 10 * time.Second})
		defer co.shut(t)
		reply, err := co.Rebalance(t.Context(), 3, 2)
		if err != nil || reply.OK || !strings.Contains(reply.Error, addr(1, 1)) {
			t.Errorf("%+v, %v", reply, err)
		}
		f.at(addr(1, 1)).setDown(false)
		rec, err := co.await(t.Context(), reply.Job)
		if err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		if again, err := co.Rebalance(t.Context(), 3, 2); err != nil || !again.OK || again.Error != "" {
			t.Errorf("%+v, %v", again, err)
		}
	})
}
