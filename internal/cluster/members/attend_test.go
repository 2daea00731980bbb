package members

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// hanging is a member that answers pings as it is told.
type hanging struct {
	leaf.Member
	hangs atomic.Bool
	bare  bool // what ends a call is its error as it is
	fail  error
	pings atomic.Int64
}

func (p *hanging) Ping(ctx context.Context) (*leaf.PingReply, error) {
	p.pings.Add(1)
	if p.hangs.Load() {
		<-ctx.Done()
		if p.bare {
			return nil, context.Cause(ctx)
		}
		return nil, &leaf.TransportError{Call: "Ping", Cause: context.Cause(ctx)}
	}
	return &leaf.PingReply{}, p.fail
}

// A caller who leaves while a member is pinged has heard nothing of it: it stays as gone as it was.
func TestALeavingCallerBringsNoMemberBack(t *testing.T) {
	for _, bare := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &hanging{bare: bare}
			m := &Member{Addr: "a:1", Leaf: p}
			p.hangs.Store(true)
			m.Silent.Store(true)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			if !m.Gone(ctx, DefaultHung) || !m.Silent.Load() || p.pings.Load() != 1 {
				t.Errorf("with an error that is bare %t: it is back after %d pings", bare, p.pings.Load())
			}
			if !m.Gone(ctx, DefaultHung) || !m.Silent.Load() || p.pings.Load() != 1 {
				t.Errorf("with an error that is bare %t: asked again at once it is back after %d pings", bare, p.pings.Load())
			}
			<-time.After(DefaultHung / 8)
			p.hangs.Store(false)
			if m.Gone(t.Context(), DefaultHung) || m.Silent.Load() {
				t.Error("it answers, and is not back")
			}
			a := m.Attend(t.Context(), DefaultHung)
			p.hangs.Store(true)
			<-a.Context().Done()
			if err := errors.New("cut"); !a.End(err) || !m.Silent.Load() {
				t.Error("it leaves pings unanswered, and is not gone")
			}
		})
	}
}

// One of many callers pings a member that is gone, and the others do not wait for that.
func TestOneCallerPingsAMemberThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &hanging{}
		m := &Member{Addr: "a:1", Leaf: p}
		p.hangs.Store(true)
		m.Silent.Store(true)
		began := time.Now()
		var waited atomic.Int64
		done := make(chan bool, 50)
		for range cap(done) {
			go func() {
				gone := m.Gone(t.Context(), DefaultHung)
				if time.Since(began) > 0 {
					waited.Add(1)
				}
				done <- gone
			}()
		}
		for range cap(done) {
			if !<-done {
				t.Error("it is not gone")
			}
		}
		if p.pings.Load() != 1 || waited.Load() != 1 || time.Since(began) != DefaultHung/8 {
			t.Errorf("%d pings, %d callers waited, %v", p.pings.Load(), waited.Load(), time.Since(began))
		}
		// Whoever refuses is there.
		p.hangs.Store(false)
		p.fail = api.NewProblem(api.TooManySearches, "it is busy")
		<-time.After(DefaultHung)
		if m.Gone(t.Context(), DefaultHung) {
			t.Error("it refuses, and is gone")
		}
	})
}
