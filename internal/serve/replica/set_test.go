package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// server is a replica that takes took for a call, or fails it after that.
type server struct {
	mu    sync.Mutex
	took  time.Duration
	err   error
	calls int
	live  int
	most  int
}

func (s *server) Call(ctx context.Context, req string) (string, error) {
	s.mu.Lock()
	took, err := s.took, s.err
	s.calls++
	s.live++
	s.most = max(s.most, s.live)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.live--
		s.mu.Unlock()
	}()
	serve.Begun(ctx)
	if took > 0 {
		t := time.NewTimer(took)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return req, err
}

// become changes how the server does, and counts its calls from 0.
func (s *server) become(took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took, s.err, s.calls, s.most = took, err, 0, 0
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

type refusal struct{}

func (refusal) Error() string          { return "no place" }
func (refusal) Outcome() serve.Outcome { return serve.Refused }

var errBroken = errors.New("broken")

// seeded is a source of randomness with a fixed seed.
func seeded() func() uint64 {
	rng := rand.New(rand.NewPCG(11, 12))
	var mu sync.Mutex
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return rng.Uint64()
	}
}

// never hedges, and may retry for ever.
var never = hedge.PolicyOptions{Share: -1, RetryShare: 1, RetryBurst: 1_000_000}

func fleet(n int, took time.Duration) []*server {
	out := make([]*server, n)
	for i := range out {
		out[i] = &server{took: took}
	}
	return out
}

func replicas(servers []*server) []Replica[string, string] {
	out := make([]Replica[string, string], len(servers))
	for i, s := range servers {
		out[i] = Replica[string, string]{Name: fmt.Sprint(i), Leaf: s}
	}
	return out
}

// newSet makes a set. A request that begins with "w" is a write.
func newSet(t testing.TB, servers []*server, p hedge.PolicyOptions, o Options[string]) (*Set[string, string], *hedge.Policy) {
	t.Helper()
	policy := hedge.NewPolicy(p)
	reads := policy.Calls(hedge.Class{Name: "read", Safe: true})
	writes := policy.Calls(hedge.Class{Name: "write", Retryable: func(err error) bool { return errors.Is(err, refusal{}) }})
	o.Calls = func(req string) *hedge.Calls {
		if req[0] == 'w' {
			return writes
		}
		return reads
	}
	if o.Rand == nil {
		o.Rand = seeded()
	}
	s, err := NewSet(replicas(servers), o)
	if err != nil {
		t.Fatal(err)
	}
	return s, policy
}

func read(t *testing.T, s *Set[string, string]) {
	t.Helper()
	if got, err := s.Call(t.Context(), "r"); got != "r" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
}

func counts(servers []*server) []int {
	out := make([]int, len(servers))
	for i, s := range servers {
		out[i] = s.count()
	}
	return out
}

// together makes n calls every gap, all in flight together, and waits for them.
func together(t *testing.T, s *Set[string, string], n int, gap time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := s.Call(t.Context(), "r"); err != nil {
				t.Error(err)
			}
		})
		<-time.After(gap)
	}
	wg.Wait()
}

func TestTwoChoicesSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(5, 10*ms)
		s, _ := newSet(t, servers, never, Options[string]{})
		// Some ten are in flight all the time.
		together(t, s, 2000, ms)
		for i, server := range servers {
			if server.calls < 340 || server.calls > 460 || server.most > 5 {
				t.Errorf("replica %d got %d calls, %d at once", i, server.calls, server.most)
			}
		}
		for _, st := range s.Stats() {
			if st.InFlight != 0 || st.Latency < 9*ms || st.Latency > 11*ms {
				t.Errorf("%+v", st)
			}
		}
	})
}

func TestSlowReplicaIsAvoidedAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(3, 10*ms)
		servers[1].took = 200 * ms
		s, _ := newSet(t, servers, never, Options[string]{})
		together(t, s, 500, 5*ms)
		if got := counts(servers); got[1] > 15 {
			t.Errorf("calls %v: the slow one is not avoided", got)
		}
		// It is quick again: once its latency has faded it is tried, and then gets its share.
		for _, server := range servers {
			server.become(10*ms, nil)
		}
		together(t, s, 2000, 20*ms)
		before := servers[1].count()
		if before == 0 {
			t.Error("in 40 s it was not tried")
		}
		together(t, s, 1000, 5*ms)
		if got := servers[1].count() - before; got < 200 {
			t.Errorf("%d of 1000 calls after it recovered", got)
		}
	})
}

func TestSlowReplicaIsNotTriedOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(3, 10*ms)
		servers[1].took = time.Second
		s, _ := newSet(t, servers, never, Options[string]{})
		together(t, s, 3000, 20*ms) // a minute
		if got := counts(servers); got[1] > 20 {
			t.Errorf("calls %v", got)
		}
	})
}

func TestOneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(1, 10*ms)
		s, policy := newSet(t, servers, hedge.PolicyOptions{InitialDelay: ms}, Options[string]{})
		read(t, s)
		servers[0].become(0, errBroken)
		for range 10 {
			if _, err := s.Call(t.Context(), "r"); err != errBroken {
				t.Error(err)
			}
		}
		// On probation, and still asked.
		servers[0].become(0, nil)
		read(t, s)
		if st := s.Stats()[0]; st.Probation != 0 || st.Faults != 10 || policy.Stats().Hedges != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestPreferredOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(3, 10*ms)
		s, _ := newSet(t, servers, hedge.PolicyOptions{InitialDelay: 20 * ms}, Options[string]{Order: Preferred, Name: "shard 7"})
		together(t, s, 50, ms)
		if got := counts(servers); got[0] != 50 {
			t.Errorf("calls %v", got)
		}
		// Hedges and retries go down the list.
		servers[0].become(time.Second, nil)
		servers[1].become(5*ms, errBroken)
		var report *Report
		got, err := s.Call(WithReport(t.Context(), func(r *Report) { report = r }), "r")
		if got != "r" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		want := "&{shard 7 20ms false [" +
			"{0 {0 first 0s 35ms true lost context canceled}} {1 {1 backup 20ms 5ms true failed broken}} {2 {2 retry 25ms 10ms true won <nil>}}]}"
		if fmt.Sprint(report) != want {
			t.Errorf("report %v", report)
		}
		st := s.Stats()
		if st[0].Losses != 1 || st[0].Faults != 0 || st[1].Faults != 1 || st[2].Calls != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestProbation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(2, ms)
		s, policy := newSet(t, servers, never, Options[string]{Order: Preferred})
		bad, good := servers[0], servers[1]
		bad.become(ms, errBroken)
		for range 50 {
			read(t, s)
		}
		if bad.count() != 3 || good.count() != 50 {
			t.Fatalf("calls %v: three faults are enough", counts(servers))
		}
		if p := s.Stats()[0].Probation; p < 700*ms || p > 1200*ms {
			t.Errorf("on probation for %v", p)
		}

		// A probe that fails makes the next probation twice as long, up to the most.
		for _, length := range []time.Duration{2, 4, 8, 16, 30, 30} {
			<-time.After(max(s.Stats()[0].Probation, 0))
			bad.become(ms, errBroken)
			for range 20 {
				read(t, s)
			}
			if bad.count() != 1 {
				t.Errorf("%d probes", bad.count())
			}
			if p := s.Stats()[0].Probation.Seconds() / float64(length); p < 0.75 || p > 1.2 {
				t.Errorf("on probation for %v, want about %v s", s.Stats()[0].Probation, int(length))
			}
		}

		// One probe at a time, however many come.
		bad.become(500*ms, nil)
		<-time.After(s.Stats()[0].Probation)
		together(t, s, 100, ms)
		if bad.count() != 1 {
			t.Errorf("%d calls while the probe was under way", bad.count())
		}
		// It answered: back, slowly at first.
		bad.become(ms, nil)
		if st := s.Stats()[0]; st.Probation != 0 {
			t.Errorf("%+v", st)
		}
		together(t, s, 200, ms)
		if n := bad.count(); n < 5 || n > 60 {
			t.Errorf("%d of 200 calls at the begin of the slow start", n)
		}
		<-time.After(10 * time.Second)
		bad.become(ms, nil)
		together(t, s, 100, ms)
		if n := bad.count(); n != 100 {
			t.Errorf("%d of 100 calls after the slow start", n)
		}
		if policy.Stats().RetriesDenied != 0 {
			t.Error("a retry was denied")
		}

		// Failing again after the slow start begins with a short probation.
		bad.become(ms, errBroken)
		for range 10 {
			read(t, s)
		}
		if p := s.Stats()[0].Probation; p > 1200*ms || p <= 0 {
			t.Errorf("on probation for %v", p)
		}
	})
}

func TestRelapseInTheSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(1, ms)
		s, _ := newSet(t, servers, never, Options[string]{})
		fail := func() {
			servers[0].become(ms, errBroken)
			for range 3 {
				if _, err := s.Call(t.Context(), "r"); err != errBroken {
					t.Error(err)
				}
			}
		}
		fail()
		servers[0].become(ms, nil)
		read(t, s)
		fail()
		if p := s.Stats()[0].Probation; p < 1500*ms || p > 2400*ms {
			t.Errorf("on probation for %v", p)
		}
	})
}

func TestNeverAnEmptySet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(3, ms)
		s, _ := newSet(t, servers, never, Options[string]{Order: Preferred})
		for _, server := range servers {
			server.become(ms, errBroken)
		}
		for range 5 {
			if _, err := s.Call(t.Context(), "r"); err != errBroken {
				t.Error(err)
			}
		}
		// The second is the least bad after the others have failed a probe each.
		<-time.After(1300 * ms)
		for _, i := range []int{0, 2} {
			if !s.state(i).take(s.since(time.Now())) {
				t.Fatal("no probe")
			}
			s.judge(s.state(i), time.Now(), Faulty, true)
		}
		for _, server := range servers {
			server.become(ms, nil)
		}
		read(t, s)
		if got := counts(servers); got[1] != 1 {
			t.Errorf("calls %v", got)
		}
	})
}

func (s *Set[Q, R]) state(i int) *state { return (*s.members.Load())[i].state }

func TestOnlySafeCallsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(2, ms)
		s, _ := newSet(t, servers, never, Options[string]{Order: Preferred})
		servers[0].become(ms, errBroken)
		for range 5 {
			read(t, s)
		}
		servers[0].become(ms, nil)
		write := func() {
			if _, err := s.Call(t.Context(), "w"); err != nil {
				t.Error(err)
			}
		}
		<-time.After(10 * time.Second)
		write()
		if servers[0].count() != 0 {
			t.Error("a write was the probe")
		}
		// But where there are only writes, one of them has to be.
		<-time.After(30 * time.Second)
		write()
		if servers[0].count() != 1 || s.Stats()[0].Probation != 0 {
			t.Errorf("%d calls, %+v", servers[0].count(), s.Stats()[0])
		}
	})
}

func TestRefusalIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(2, ms)
		s, policy := newSet(t, servers, hedge.PolicyOptions{RetryBurst: 4}, Options[string]{Order: Preferred})
		servers[0].become(0, refusal{})
		for range 20 {
			read(t, s)
		}
		// Asked once; then it is busy for 100 ms.
		if got := counts(servers); got[0] != 1 || got[1] != 20 {
			t.Errorf("calls %v", got)
		}
		<-time.After(100 * ms)
		read(t, s)
		st := s.Stats()[0]
		if st.Refusals != 2 || st.Faults != 0 || st.Probation != 0 || policy.Stats().Retries != 2 {
			t.Errorf("%+v", st)
		}
		// When all refuse, each call is one attempt and what the budget of retries allows.
		servers[1].become(0, refusal{})
		for range 20 {
			if _, err := s.Call(t.Context(), "r"); !errors.Is(err, refusal{}) {
				t.Error(err)
			}
		}
		p := policy.Stats()
		if p.RetriesDenied == 0 || float64(p.Retries) > 4+0.2*float64(p.Calls) {
			t.Errorf("%+v", p)
		}
	})
}

func TestWriteMovesOnOnlyWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(3, ms)
		s, policy := newSet(t, servers, hedge.PolicyOptions{InitialDelay: ms}, Options[string]{Order: Preferred})
		servers[0].become(0, refusal{})
		servers[1].become(50*ms, errBroken)
		if _, err := s.Call(t.Context(), "w"); err != errBroken {
			t.Error(err)
		}
		if got := counts(servers); fmt.Sprint(got) != "[1 1 0]" || policy.Stats().Hedges != 0 {
			t.Errorf("calls %v, %+v", got, policy.Stats())
		}
	})
}

func TestCallerThatLeavesIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(2, time.Hour)
		s, _ := newSet(t, servers, never, Options[string]{Order: Preferred})
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := s.Call(ctx, "r"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			// Nor one in a hurry.
			hurry, cancel := context.WithTimeout(t.Context(), 50*ms)
			if _, err := s.Call(hurry, "r"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		if st := s.Stats()[0]; st.Faults != 0 || st.Probation != 0 || st.Calls != 40 {
			t.Errorf("%+v", st)
		}
		// But one that waited, three times.
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := s.Call(ctx, "r"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		if st := s.Stats()[0]; st.Faults != 3 || st.Probation <= 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestRequestAtFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(2, ms)
		bad := errors.New("bad request")
		s, _ := newSet(t, servers, never, Options[string]{Order: Preferred, Judge: func(err error) Verdict {
			if err == bad {
				return Fine
			}
			return JudgeOutcome(err)
		}})
		servers[0].become(ms, bad)
		for range 20 {
			read(t, s)
		}
		if st := s.Stats()[0]; st.Faults != 0 || st.Probation != 0 || st.Calls != 20 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAlwaysOvertakenIsOnProbation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(2, ms)
		s, policy := newSet(t, servers, hedge.PolicyOptions{InitialDelay: 10 * ms, Burst: 100}, Options[string]{Order: Preferred})
		servers[0].become(time.Hour, nil)
		for range 20 {
			read(t, s)
		}
		st := s.Stats()[0]
		if st.Losses != 8 || st.Faults != 0 || st.Probation <= 0 || policy.Stats().Hedges != 8 {
			t.Errorf("%+v, %+v", st, policy.Stats())
		}
		// A probe that is overtaken fails.
		<-time.After(st.Probation)
		read(t, s)
		if st := s.Stats()[0]; st.Losses != 9 || st.Probation < 1500*ms {
			t.Errorf("%+v", st)
		}
	})
}

func TestProbeThatTellsNothingIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(2, ms)
		s, _ := newSet(t, servers, never, Options[string]{Order: Preferred})
		servers[0].become(ms, errBroken)
		for range 5 {
			read(t, s)
		}
		<-time.After(2 * time.Second)
		servers[0].become(time.Hour, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*ms, cancel)
		if _, err := s.Call(ctx, "r"); !errors.Is(err, context.Canceled) || servers[0].count() != 1 {
			t.Errorf("%v, calls %v", err, counts(servers))
		}
		// Not at once: if it hangs, the next caller would lose its time as well.
		servers[0].become(ms, nil)
		for range 50 {
			read(t, s)
		}
		if servers[0].count() != 0 {
			t.Errorf("calls %v", counts(servers))
		}
		<-time.After(50 * ms)
		read(t, s)
		if servers[0].count() != 1 || s.Stats()[0].Probation != 0 {
			t.Errorf("calls %v, %+v", counts(servers), s.Stats()[0])
		}
	})
}

// A probe that is refused costs a retry: not every call is one.
func TestProbeThatIsRefusedIsNotMadeAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(2, ms)
		s, _ := newSet(t, servers, never, Options[string]{Order: Preferred})
		servers[0].become(ms, errBroken)
		for range 5 {
			read(t, s)
		}
		<-time.After(2 * time.Second)
		servers[0].become(0, refusal{})
		for range 150 { // 1 ms each
			read(t, s)
		}
		if n := servers[0].count(); n != 2 || s.Stats()[0].Probation >= 0 {
			t.Errorf("%d probes in 150 ms, %+v", n, s.Stats()[0])
		}
	})
}

// The goroutine of a later attempt may come first.
func TestEachAttemptHasAReplicaOfItsOwnInWhateverOrderTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(3, 0)
		s, _ := newSet(t, servers, never, Options[string]{Order: Preferred})
		now := time.Now()
		c := &call[string, string]{set: s, members: *s.members.Load(), ctx: t.Context(), req: "r", began: now, safe: true}
		tiers := c.tiers(s.since(now))
		c.choose(0, now, &tiers)
		<-time.After(time.Second)
		for _, i := range []int{2, 0, 1, 0} {
			if _, err := c.attempt(t.Context(), i); err != nil {
				t.Error(err)
			}
		}
		if got := counts(servers); fmt.Sprint(got) != "[2 1 1]" {
			t.Errorf("calls %v", got)
		}
		// The first attempt began with the call, and no other did.
		if st := s.Stats(); st[0].Latency < 800*ms || st[1].Latency > ms || st[2].Latency > ms {
			t.Errorf("%+v", st)
		}
	})
}

// lingers is a leaf that returns long after its context has ended.
type lingers time.Duration

func (l lingers) Call(ctx context.Context, _ string) (string, error) {
	serve.Begun(ctx)
	<-ctx.Done()
	<-time.After(time.Duration(l))
	return "", context.Cause(ctx)
}

func TestLossIsNoFaultThoughTheTimeIsOverToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := fleet(1, ms)[0]
		calls := hedge.NewPolicy(hedge.PolicyOptions{InitialDelay: 10 * ms}).Calls(hedge.Class{Name: "read", Safe: true})
		s, err := NewSet([]Replica[string, string]{{"0", lingers(time.Second)}, {"1", quick}},
			Options[string]{Order: Preferred, Calls: func(string) *hedge.Calls { return calls }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		if got, err := s.Call(ctx, "r"); got != "r" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if st := s.Stats()[0]; st.Losses != 1 || st.Faults != 0 {
			t.Errorf("%+v", st)
		}
		// A hedge above, which ended the caller, says nothing of the replicas below.
		above, overtake := context.WithCancelCause(t.Context())
		time.AfterFunc(5*ms, func() { overtake(hedge.ErrOvertaken) })
		if _, err := s.Call(above, "r"); err != hedge.ErrOvertaken {
			t.Error(err)
		}
		if st := s.Stats()[0]; st.Losses != 1 || st.Faults != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestHedgesGoOnlyToFitReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(2, ms)
		s, policy := newSet(t, servers, hedge.PolicyOptions{InitialDelay: 10 * ms}, Options[string]{Order: Preferred})
		servers[1].become(ms, errBroken)
		for range 3 {
			s.judge(s.state(1), time.Now(), Faulty, false)
		}
		servers[0].become(100*ms, nil)
		read(t, s)
		if n := policy.Stats().Hedges; n != 0 {
			t.Errorf("%d hedges to a replica on probation", n)
		}
	})
}

func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(3, ms)
		s, _ := newSet(t, servers[:2], never, Options[string]{})
		together(t, s, 100, ms)
		all := replicas(servers)
		if err := s.Update(all[1:]); err != nil {
			t.Fatal(err)
		}
		st := s.Stats()
		if len(st) != 2 || st[0].Name != "1" || st[0].Calls == 0 || st[1].Name != "2" || st[1].Calls != 0 {
			t.Fatalf("%+v", st)
		}
		// The new one begins with a tenth of its share and has all of it after 10 s.
		for _, c := range []struct {
			wait      time.Duration
			low, high int
		}{{0, 20, 160}, {4 * time.Second, 190, 420}, {4 * time.Second, 400, 600}} {
			<-time.After(c.wait)
			servers[2].become(ms, nil)
			for range 1000 {
				read(t, s)
			}
			if n := servers[2].count(); n < c.low || n > c.high {
				t.Errorf("%d of 1000 calls went to the new replica, want %d to %d", n, c.low, c.high)
			}
		}
	})
}

func TestSettingsAreChecked(t *testing.T) {
	calls := func(string) *hedge.Calls { return nil }
	one := replicas(fleet(1, 0))
	for _, c := range []struct {
		replicas []Replica[string, string]
		o        Options[string]
	}{
		{one, Options[string]{}},
		{one, Options[string]{Calls: calls, Hang: -1}},
		{nil, Options[string]{Calls: calls}},
		{replicas(fleet(MaxReplicas+1, 0)), Options[string]{Calls: calls}},
		{append(one, one...), Options[string]{Calls: calls}},
		{[]Replica[string, string]{{Name: "a"}}, Options[string]{Calls: calls}},
	} {
		if _, err := NewSet(c.replicas, c.o); err == nil {
			t.Errorf("%d replicas, %+v: no error", len(c.replicas), c.o)
		}
	}
	s, err := NewSet(replicas(fleet(MaxReplicas, 0)), Options[string]{Calls: calls})
	if err != nil || s.Update(nil) == nil || len(s.Stats()) != MaxReplicas {
		t.Errorf("%v", err)
	}
}

func TestPanicLeavesNothingInFlight(t *testing.T) {
	policy := hedge.NewPolicy(hedge.PolicyOptions{})
	calls := policy.Calls(hedge.Class{Name: "read", Safe: true})
	s, err := NewSet([]Replica[int, int]{{Name: "a", Leaf: serve.LeafFunc[int, int](func(context.Context, int) (int, error) { panic("no") })}},
		Options[int]{Calls: func(int) *hedge.Calls { return calls }})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() != "no" {
				t.Error("the panic did not reach the caller")
			}
		}()
		_, err = s.Call(t.Context(), 1)
	}()
	if st := s.Stats()[0]; st.InFlight != 0 || st.Faults != 1 {
		t.Errorf("%+v", st)
	}
}

// TestStorm has many callers, real goroutines and replicas that fail, refuse, hang and come back.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := fleet(5, ms)
		s, policy := newSet(t, servers, hedge.PolicyOptions{InitialDelay: 5 * ms}, Options[string]{})
		stop := time.AfterFunc(time.Hour, func() {})
		defer stop.Stop()
		var wg sync.WaitGroup
		const callers, each = 20, 120
		for g := range callers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 9))
				for range each {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.IntN(300))*ms)
					if rng.IntN(10) == 0 {
						time.AfterFunc(time.Duration(rng.IntN(50))*ms, cancel)
					}
					switch rng.IntN(40) {
					case 0:
						servers[rng.IntN(5)].become(ms, errBroken)
					case 1:
						servers[rng.IntN(5)].become(0, refusal{})
					case 2:
						servers[rng.IntN(5)].become(time.Hour, nil)
					case 3, 4, 5, 6, 7, 8:
						servers[rng.IntN(5)].become(time.Duration(rng.IntN(20))*ms, nil)
					case 9:
						if err := s.Update(replicas(servers)[rng.IntN(3):]); err != nil {
							t.Error(err)
						}
					}
					req := "r"
					if rng.IntN(4) == 0 {
						req = "w"
					}
					got, err := s.Call(ctx, req)
					if err == nil && got != req {
						t.Errorf("%q", got)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		for i, server := range servers {
			server.become(ms, nil)
			if server.live != 0 {
				t.Errorf("%d calls of replica %d still run", server.live, i)
			}
		}
		p := policy.Stats()
		if p.Calls != callers*each || float64(p.Hedges) > 16+0.05*callers*each || float64(p.Retries) > 32+0.2*callers*each {
			t.Errorf("%+v", p)
		}
		// When all is well again all of them come back.
		if err := s.Update(replicas(servers)); err != nil {
			t.Fatal(err)
		}
		together(t, s, 600, 100*ms) // a minute
		for _, st := range s.Stats() {
			if st.InFlight != 0 || st.Probation != 0 {
				t.Errorf("%+v", st)
			}
		}
	})
}

func BenchmarkSet(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, _ := newSet(b, fleet(n, 0), hedge.PolicyOptions{InitialDelay: time.Second}, Options[string]{Rand: rand.Uint64})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Call(ctx, "r"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAllocationsOfACallInTime(t *testing.T) {
	for n, most := range map[int]float64{1: 2, 3: 10} {
		s, _ := newSet(t, fleet(n, 0), hedge.PolicyOptions{InitialDelay: time.Hour}, Options[string]{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if got := testing.AllocsPerRun(200, func() {
			if _, err := s.Call(ctx, "r"); err != nil {
				t.Error(err)
			}
		}); got > most {
			t.Errorf("%v allocations with %d replicas, want at most %v", got, n, most)
		}
	}
}

// A replica that is Out is asked only where all are, and one that is Last only where no other is left; neither gets a hedge.
func TestStanding(t *testing.T) {
	for _, o := range []struct {
		name     string
		standing []Standing
		broken   []bool
		want     []int // calls of each replica, by 100 calls; -1: any number above 0
		fails    bool
	}{
		{"all good", []Standing{Good, Good}, []bool{false, false}, []int{-1, -1}, false},
		{"one is last", []Standing{Good, Last}, []bool{false, false}, []int{100, 0}, false},
		{"one is out", []Standing{Out, Good}, []bool{false, false}, []int{0, 100}, false},
		{"the good one fails", []Standing{Good, Last}, []bool{true, false}, []int{-1, 100}, false},
		{"the good one fails, the other is out", []Standing{Good, Out}, []bool{true, false}, []int{100, 0}, true},
		{"last before out", []Standing{Out, Last, Good}, []bool{false, false, true}, []int{0, 100, -1}, false},
		{"all are out", []Standing{Out, Out}, []bool{false, false}, []int{-1, -1}, false},
		{"all are last", []Standing{Last, Last}, []bool{false, false}, []int{-1, -1}, false},
	} {
		t.Run(o.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers := fleet(len(o.standing), ms)
				for i, broken := range o.broken {
					if broken {
						servers[i].become(ms, errBroken)
					}
				}
				s, _ := newSet(t, servers, never, Options[string]{Standing: func(name string) Standing { return o.standing[name[0]-'0'] }})
				for range 100 {
					if _, err := s.Call(t.Context(), "r"); (err != nil) != o.fails {
						t.Fatal(err)
					}
				}
				for i, n := range counts(servers) {
					if n != o.want[i] && (o.want[i] >= 0 || n == 0) {
						t.Errorf("replica %d got %d calls, want %d", i, n, o.want[i])
					}
				}
			})
		})
	}
}

// A hedge never goes to a replica that may lack something, however slow the other is.
func TestNoHedgeToTheLast(t *testing.T) {
	for _, other := range []Standing{Good, Last, Out} {
		synctest.Test(t, func(t *testing.T) {
			servers := fleet(2, ms)
			s, policy := newSet(t, servers, hedge.PolicyOptions{Share: 1, Burst: 1000}, Options[string]{
				Order: Preferred, Standing: func(name string) Standing {
					if name == "1" {
						return other
					}
					return Good
				},
			})
			for range 200 {
				read(t, s)
			}
			servers[0].become(50*ms, nil)
			for range 5 {
				read(t, s)
			}
			if hedges := policy.Stats().Hedges; (hedges > 0) != (other == Good) {
				t.Errorf("%v: %d hedges", other, hedges)
			}
		})
	}
}
