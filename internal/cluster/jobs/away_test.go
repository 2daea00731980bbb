package jobs

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func TestWhatAMemberFailedWithIsOneSentence(t *testing.T) {
	const at = "127.0.0.1:1"
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&leaf.TransportError{Address: at, Call: "IDs", Cause: refused}, at + " does not answer: connection refused"},
		{context.DeadlineExceeded, at + " does not answer: it took too long"},
		{api.NewProblem(api.ReadOnly, "the disk failed"), at + " answers with the error read_only: the disk failed"},
		{errLength, at + ": " + errLength.Error()},
	} {
		if got := (&memberError{at, "IDs", tt.err}).Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestARebalanceNamesAllMembersThatAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		f.at(addr(0, 1)).setDown(true)
		stopped := f.at(addr(2, 0))
		stopped.setFates(func(context.Context, string) fate { return hang })
		co := f.coordinator(Options{Dir: "data/jobs", FS: memfs.New(nil), Patience: 10 * time.Second})
		defer co.shut(t)
		began := time.Now()
		reply, err := co.Rebalance(t.Context(), 3, 2)
		if err != nil {
			t.Fatal(err)
		}
		away := []string{addr(0, 1), addr(2, 0)}
		if want := "waiting: 2 members do not answer: " + strings.Join(away, ", "); reply.OK || reply.Error != want || !slices.Equal(reply.FailedAddresses, away) {
			t.Errorf("%+v, want %q", reply, want)
		}
		// A member that is stopped costs none of its calls its whole time.
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the reply took %v", took)
		}
		if j, err := co.Job(t.Context(), reply.Job); err != nil || !slices.Equal(j.FailedAddresses, away) || j.Error != reply.Error {
			t.Errorf("%+v, %v", j, err)
		}
		f.at(addr(0, 1)).setDown(false)
		stopped.setFates(nil)
		if rec, err := co.ended(t, reply.Job); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		if j, err := co.Job(t.Context(), reply.Job); err != nil || len(j.FailedAddresses) > 0 || j.Error != "" {
			t.Errorf("%+v, %v", j, err)
		}
	})
}

func TestAMemberThatFailsACallIsNamedThoughItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		sick := f.at(addr(1, 0))
		sick.setFates(func(_ context.Context, call string) fate {
			if call == "IDs" {
				return gone
			}
			return fine
		})
		co := f.coordinator(Options{Dir: "data/jobs", FS: memfs.New(nil), Patience: 10 * time.Second})
		defer co.shut(t)
		reply, err := co.Rebalance(t.Context(), 3, 2)
		if err != nil || reply.OK || !slices.Equal(reply.FailedAddresses, []string{addr(1, 0)}) || strings.Count(reply.Error, addr(1, 0)) != 1 {
			t.Errorf("%+v, %v", reply, err)
		}
		sick.setFates(nil)
		if rec, err := co.await(t.Context(), reply.Job); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
	})
}

func TestARepairNamesMembersInItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		f.at(addr(1, 1)).setDown(true)
		co := f.coordinator(Options{Dir: "data/jobs", FS: memfs.New(nil)})
		defer co.shut(t)
		if reply, err := co.Repair(t.Context(), false); err != nil || reply.OK || !slices.Equal(reply.FailedAddresses, []string{addr(1, 1)}) {
			t.Fatalf("%+v, %v", reply, err)
		}
		list, err := co.Jobs(t.Context())
		if err != nil || len(list) != 1 || !slices.Equal(list[0].FailedAddresses, []string{addr(1, 1)}) || !strings.Contains(list[0].Error, addr(1, 1)+" does not answer") {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
