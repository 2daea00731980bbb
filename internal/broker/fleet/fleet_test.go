package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/broker/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a fleet of scripted nodes, and what was asked of them.
type world struct {
	feed chan []Node // what discovery tells next
	fail chan error  // what ends discovery

	mu     sync.Mutex
	nodes  map[string]*scripted
	asked  map[string][]time.Duration // since the start, by node
	start  time.Time
	flying int
	most   int
}

// scripted is how a node answers.
type scripted struct {
	indexes []string
	err     error
	hang    bool          // until the poll is given up
	takes   time.Duration // before it answers with what it has at the beginning
	deaf    bool          // the poll cannot be given up meanwhile
}

func newWorld() *world {
	return &world{feed: make(chan []Node), fail: make(chan error), nodes: map[string]*scripted{}, asked: map[string][]time.Duration{}, start: time.Now()}
}

// Run implements Source.
func (w *world) Run(ctx context.Context, publish func([]Node)) error {
	for {
		select {
		case nodes := <-w.feed:
			publish(nodes)
		case err := <-w.fail:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *world) list(ctx context.Context, n Node) ([]string, error) {
	w.mu.Lock()
	w.asked[n.ID] = append(w.asked[n.ID], time.Since(w.start))
	w.flying++
	w.most = max(w.most, w.flying)
	var s scripted
	if p := w.nodes[n.ID]; p != nil {
		s = *p
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.flying--
		w.mu.Unlock()
	}()
	if s.hang {
		s.takes = 24 * time.Hour
	}
	if s.deaf {
		ctx = context.Background()
	}
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.indexes, s.err
}

func (w *world) set(id string, s scripted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[id] = &s
}

// polls are the seconds at which a node was asked; the record begins anew.
func (w *world) polls(id string) []float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []float64
	for _, d := range w.asked[id] {
		out = append(out, d.Seconds())
	}
	delete(w.asked, id)
	return out
}

// up are ready nodes, each alone in the shard of its name.
func up(ids ...string) []Node {
	var out []Node
	for _, id := range ids {
		out = append(out, Node{ID: id, Address: id + ":1", Shard: id, Ready: true})
	}
	return out
}

// run runs a fleet over the world for as long as the test does.
func (w *world) run(t *testing.T, o Options) *Fleet {
	o.Source, o.List = w, w.list
	f := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ends with %v", err)
		}
	})
	return f
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func state(f *Fleet, id string) string {
	for _, n := range f.View().Nodes() {
		if n.ID == id {
			s := n.Health.String()
			if !n.Ready {
				s = "unready " + s
			}
			return s + " " + strings.Join(n.Indexes, ",")
		}
	}
	return "gone"
}

func expect(t *testing.T, f *Fleet, id, want string) {
	t.Helper()
	if got := state(f, id); got != want {
		t.Errorf("%s is %q, not %q", id, got, want)
	}
}

func expectPolls(t *testing.T, w *world, id string, want ...float64) {
	t.Helper()
	if got := w.polls(id); !slices.Equal(got, want) {
		t.Errorf("%s was polled at %v, not at %v", id, got, want)
	}
}

var errAway = status.Error(codes.Unavailable, "away")

func TestNodesArePolledByTheirHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a", scripted{indexes: []string{"x"}})
		w.set("b", scripted{err: errAway})
		f := w.run(t, Options{})
		if f.View() == nil || f.Serving() || len(f.View().Nodes()) != 0 {
			t.Error("a fleet begins with something")
		}
		w.feed <- append(up("a", "b"), Node{ID: "c", Address: "c:1", Shard: "c"})
		synctest.Wait()
		expect(t, f, "a", "healthy x")
		expect(t, f, "b", "suspect ")
		expect(t, f, "c", "unready suspect ")
		pass(61 * time.Second)
		expectPolls(t, w, "a", 0, 15, 30, 45, 60)
		expectPolls(t, w, "b", 0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60)
		expectPolls(t, w, "c")
		expect(t, f, "b", "evicted ")
		pass(5 * time.Second)
		expectPolls(t, w, "b", 65)
	})
}

func TestASuspectNodeServesUntilItIsEvictedAndNeedsTwoAnswersToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a", scripted{indexes: []string{"x"}})
		var lines bytes.Buffer
		var serving []bool
		f := w.run(t, Options{Serving: func(s bool) { serving = append(serving, s) }, Log: slog.New(slog.NewTextHandler(&lines, nil))})
		w.feed <- up("a")
		synctest.Wait()
		w.set("a", scripted{err: errAway})
		pass(15 * time.Second)
		expect(t, f, "a", "suspect x")
		if r, err := f.View().Read("x", 0); err != nil || !r.Stale {
			t.Errorf("a read goes to %+v, %v", r.Node, err)
		}
		pass(59 * time.Second) // polls fail at 20, 25, …, 70
		expect(t, f, "a", "suspect x")
		pass(time.Second) // and at 75, which is 60 s after it became suspect
		expect(t, f, "a", "evicted x")
		if _, err := f.View().Read("x", 0); status.Code(err) != codes.NotFound {
			t.Errorf("a read of an index of an evicted node gives %v", err)
		}
		if n := f.View().Nodes()[0]; n.Failures != 13 || n.MapAge(time.Now()) != 75_000 {
			t.Errorf("%d failures, and indexes learned %d ms ago", n.Failures, n.MapAge(time.Now()))
		}
		w.set("a", scripted{indexes: []string{"y"}})
		pass(5 * time.Second)
		expect(t, f, "a", "evicted y")
		pass(5 * time.Second)
		expect(t, f, "a", "healthy y")
		if want := []bool{true, false, true}; !slices.Equal(serving, want) {
			t.Errorf("serving was told as %v, not %v", serving, want)
		}
		for _, line := range []string{
			`level=INFO msg="node found" node=a address=a:1 shard=a role=unlabeled ready=true`,
			`level=INFO msg="node is healthy" node=a shard=a was=suspect code=OK`,
			`level=WARN msg="node is suspect" node=a shard=a was=healthy code=Unavailable error=`,
			`level=WARN msg="node is evicted" node=a shard=a was=suspect code=Unavailable error=`,
			`level=INFO msg="node is healthy" node=a shard=a was=evicted code=OK`,
		} {
			if !strings.Contains(lines.String(), line) {
				t.Errorf("the log lacks %s", line)
			}
		}
		if got := strings.Count(lines.String(), "\n"); got != 5 {
			t.Errorf("the log has %d lines:\n%s", got, lines.String())
		}
	})
}

func TestAHungNodeDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("hung", scripted{hang: true})
		w.set("a", scripted{indexes: []string{"x"}})
		f := w.run(t, Options{})
		w.feed <- up("hung", "a")
		synctest.Wait()
		expect(t, f, "a", "healthy x") // though the poll of the other is under way
		expect(t, f, "hung", "suspect ")
		if got := f.View().Backends()[1].Failures; got != 0 {
			t.Errorf("%d failures before the deadline", got)
		}
		pass(3 * time.Second)
		if got := f.View().Backends()[1].Failures; got != 1 {
			t.Errorf("%d failures after the deadline", got)
		}
		pass(3 * time.Second)
		expectPolls(t, w, "hung", 0, 5)
	})
}

func TestFailedCallsBringAPollForwardAndEvictNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a", scripted{indexes: []string{"x"}})
		f := w.run(t, Options{})
		w.feed <- up("a")
		pass(2 * time.Second)
		f.Failed("a")
		f.Failed("nobody")
		synctest.Wait()
		expectPolls(t, w, "a", 0)
		f.Failed("a")
		synctest.Wait()
		expectPolls(t, w, "a", 2)
		for range 20 { // a node that answers polls stays healthy, whatever becomes of calls
			for range 1000 {
				f.Failed("a")
			}
			pass(250 * time.Millisecond)
		}
		expectPolls(t, w, "a", 3, 4, 5, 6, 7)
		expect(t, f, "a", "healthy x")

		w.set("a", scripted{err: errAway})
		f.Failed("a")
		f.Failed("a")
		pass(time.Second)
		expect(t, f, "a", "suspect x")
		for range 50 { // calls that fail do not shorten the grace
			f.Failed("a")
			f.Failed("a")
			pass(time.Second)
		}
		expect(t, f, "a", "suspect x")
		if got := len(w.polls("a")); got < 45 || got > 55 {
			t.Errorf("%d polls in 50 s", got)
		}
	})
}

func TestLearnReturnsWhenTheViewHasTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a", scripted{indexes: []string{"x"}})
		f := w.run(t, Options{})
		w.feed <- up("a", "b")
		pass(time.Second)
		w.set("a", scripted{indexes: []string{"x", "y"}, takes: 100 * time.Millisecond})
		before := time.Now()
		f.Learn(t.Context(), "a")
		expect(t, f, "a", "healthy x,y")
		if took := time.Since(before); took != 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		if got := w.polls("b"); len(got) != 2 {
			t.Errorf("the others were polled at %v", got)
		}

		// A poll that began before does not count.
		w.set("a", scripted{indexes: []string{"x", "y"}, takes: time.Second})
		pass(15 * time.Second)
		w.set("a", scripted{indexes: []string{"x", "y", "z"}})
		f.Learn(t.Context(), "a")
		expect(t, f, "a", "healthy x,y,z")

		// Nor does it wait for those that are not there, cannot be asked or fail.
		w.set("a", scripted{err: errAway})
		f.Learn(t.Context(), "a", "nobody", "b")
		expect(t, f, "a", "suspect x,y,z")
		w.feed <- []Node{{ID: "a", Address: "a:1", Shard: "a"}}
		synctest.Wait()
		f.Learn(t.Context(), "a")
		f.Learn(t.Context())
	})
}

func TestLearnEndsWithItsContextWithTheNodeAndWithTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a", scripted{hang: true})
		f := New(Options{Source: w, List: w.list, ListTimeout: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		w.feed <- up("a")
		synctest.Wait()

		short, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		f.Learn(short, "a")
		if short.Err() == nil {
			t.Error("it does not wait for the node")
		}

		var wg sync.WaitGroup
		wg.Go(func() { f.Learn(context.Background(), "a") })
		synctest.Wait()
		w.feed <- nil
		wg.Wait()

		w.feed <- up("a")
		pass(time.Second)
		wg.Go(func() { f.Learn(context.Background(), "a") })
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ends with %v", err)
		}
		wg.Wait()
		f.Learn(context.Background(), "a")
		f.Refresh()
		f.Failed("a")
	})
}

func TestRefreshPollsEverybodyOnceASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		f := w.run(t, Options{})
		w.feed <- append(up("a", "b"), Node{ID: "c", Address: "c:1", Shard: "c"})
		pass(2 * time.Second)
		if got := f.Refresh(); got != 3 {
			t.Errorf("%d nodes are known", got)
		}
		synctest.Wait()
		expectPolls(t, w, "a", 0, 2)
		for range 19 {
			pass(100 * time.Millisecond)
			f.Refresh()
		}
		pass(5 * time.Second)
		expectPolls(t, w, "a", 3, 4)
		expectPolls(t, w, "b", 0, 2, 3, 4)
		expectPolls(t, w, "c")
	})
}

func TestDiscoveryChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a", scripted{indexes: []string{"x"}})
		w.set("b", scripted{indexes: []string{"y"}})
		f := w.run(t, Options{})
		nodes := up("a", "b")
		step := func(d time.Duration, change func()) {
			t.Helper()
			nodes = slices.Clone(nodes)
			change()
			w.feed <- nodes
			pass(d)
		}
		events := func(added, removed uint64) {
			t.Helper()
			if a, r := f.Events(); a != added || r != removed {
				t.Errorf("%d were found and %d lost, not %d and %d", a, r, added, removed)
			}
		}
		step(time.Second, func() {})
		expectPolls(t, w, "a", 0)
		step(time.Second, func() {}) // nothing changed
		expectPolls(t, w, "a")
		events(2, 0)

		step(30*time.Second, func() { nodes[0].Ready = false })
		expect(t, f, "a", "unready healthy x")
		expectPolls(t, w, "a")
		if _, err := f.View().Read("x", 0); status.Code(err) != codes.NotFound {
			t.Errorf("a read of an index of a node that is not ready gives %v", err)
		}
		step(time.Second, func() { nodes[0].Ready = true })
		expect(t, f, "a", "healthy x")
		expectPolls(t, w, "a", 32)

		step(time.Second, func() { nodes[0].Role = route.Follower })
		if f.View().Nodes()[0].Role != route.Follower {
			t.Error("the role did not change")
		}
		expectPolls(t, w, "a", 33)
		events(2, 0)

		w.set("a", scripted{hang: true})
		step(time.Second, func() { nodes[0].Address = "elsewhere:1" }) // another process: nothing is known of it
		expect(t, f, "a", "suspect ")
		if f.View().Nodes()[0].Address != "elsewhere:1" {
			t.Error("the address did not change")
		}
		events(3, 1)
		step(time.Second, func() { nodes[0].Shard = "b" }) // while a poll is under way
		expect(t, f, "a", "suspect ")
		events(4, 2)
		step(time.Second, func() { nodes = nodes[1:] })
		expect(t, f, "a", "gone")
		expect(t, f, "b", "healthy y")
		events(4, 3)
		step(time.Second, func() { nodes = append(nodes, nodes[0], Node{ID: "no shard", Address: "h:1"}, Node{}) })
		if got := len(f.View().Nodes()); got != 1 {
			t.Errorf("%d nodes", got)
		}
		step(time.Second, func() { nodes = nil })
		if got := f.View(); len(got.Nodes()) != 0 || got.Serving() {
			t.Errorf("%d nodes are left", len(got.Nodes()))
		}
		events(4, 4)
	})
}

// A poll that was given up because its node was not ready for a moment says nothing, neither at once nor when it ends beside the next one.
func TestAPollThatWasGivenUpSaysNothing(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.set("a", scripted{indexes: []string{"x"}})
			f := w.run(t, Options{})
			nodes := up("a")
			w.feed <- nodes
			pass(time.Second)
			w.set("a", scripted{err: errAway, takes: 2 * time.Second, deaf: deaf})
			pass(14 * time.Second) // a poll began
			w.set("a", scripted{indexes: []string{"x"}, takes: 2 * time.Second})
			away := slices.Clone(nodes)
			away[0].Ready = false
			w.feed <- away
			pass(100 * time.Millisecond)
			expect(t, f, "a", "unready healthy x")
			w.feed <- nodes
			pass(1950 * time.Millisecond) // the first poll ended
			expect(t, f, "a", "healthy x")
			if got := f.View().Nodes()[0]; got.Failures != 0 || got.MapAge(time.Now()) < 17_000 {
				t.Errorf("%d failures, learned %d ms ago", got.Failures, got.MapAge(time.Now()))
			}
			pass(time.Second)
			if got := f.View().Nodes()[0].MapAge(time.Now()); got > 1000 {
				t.Errorf("learned %d ms ago", got)
			}
			expectPolls(t, w, "a", 0, 15, 15.1)
		})
	}
}

// The grace is for polls that fail: time before a node was ready does not count.
func TestTheGraceBeginsWhenANodeIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a", scripted{err: errAway})
		f := w.run(t, Options{})
		w.feed <- []Node{{ID: "a", Address: "a:1", Shard: "a"}}
		pass(time.Hour)
		w.feed <- up("a")
		pass(59 * time.Second)
		expect(t, f, "a", "suspect ")
		pass(2 * time.Second)
		expect(t, f, "a", "evicted ")
	})
}

func TestAFailedSourceEndsTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, err := range map[string]error{"discovery: no access": errors.New("no access"), "discovery: it ended": nil} {
			w := newWorld()
			f := New(Options{Source: w, List: w.list})
			ended := make(chan error)
			go func() { ended <- f.Run(t.Context()) }()
			w.set("a", scripted{hang: true})
			w.feed <- up("a")
			synctest.Wait()
			w.fail <- err
			if got := <-ended; got == nil || got.Error() != want || err != nil && !errors.Is(got, err) {
				t.Errorf("Run ends with %v, not %s", got, want)
			}
			expect(t, f, "a", "suspect ")
		}
	})
}

func TestAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := func(n int) []string {
			out := make([]string, n)
			for i := range out {
				out[i] = fmt.Sprintf("i%06d", i)
			}
			return out
		}
		w := newWorld()
		w.set("most", scripted{indexes: names(maxIndexes)})
		w.set("more", scripted{indexes: names(maxIndexes + 1)})
		w.set("odd", scripted{indexes: []string{"z", "lost+found", "", "a", ".tmp", "z", strings.Repeat("n", 256), "a/b", "\xff", "m"}})
		var lines bytes.Buffer
		f := w.run(t, Options{Log: slog.New(slog.NewTextHandler(&lines, nil))})
		w.feed <- up("most", "more", "odd")
		synctest.Wait()
		expect(t, f, "odd", "healthy a,m,z")
		expect(t, f, "more", "suspect ")
		if got := len(f.View().Indexes()); got != maxIndexes+3 {
			t.Errorf("%d indexes", got)
		}
		pass(16 * time.Second)
		if got := strings.Count(lines.String(), "names that no index can have"); got != 1 {
			t.Errorf("odd names are logged %d times", got)
		}
	})
}

func TestAnAnswerThatSaysNothingNewLeavesTheListInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a", scripted{indexes: []string{"y", "x"}})
		w.set("b", scripted{indexes: []string{"y"}})
		f := w.run(t, Options{})
		w.feed <- up("a", "b")
		pass(time.Second)
		before := f.View().Nodes()[0]
		w.set("a", scripted{indexes: []string{strings.Clone("x"), strings.Clone("y"), "x"}})
		pass(15 * time.Second)
		after := f.View().Nodes()[0]
		if &before.Indexes[0] != &after.Indexes[0] || !after.Learned.After(before.Learned) {
			t.Error("the list was made anew, or the moment was not")
		}
	})
}

func TestPollsAreBoundedInNumberAndSlowOnesHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		w := newWorld()
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprint("n", i))
			w.set(ids[i], scripted{indexes: []string{"x"}, takes: 200 * time.Millisecond})
		}
		f := w.run(t, Options{})
		w.feed <- up(ids...)
		pass(10 * time.Second)
		if c := f.View().Counts(); c.Healthy != n || w.most > 64 {
			t.Errorf("%+v, and %d polls at once", c, w.most)
		}
		for _, id := range ids[:n/2] {
			w.set(id, scripted{hang: true})
		}
		pass(30 * time.Second)
		if c := f.View().Counts(); c.Healthy != n/2 || c.Suspect != n/2 {
			t.Errorf("%+v", c)
		}
		for _, id := range ids[n/2:] {
			polls := w.polls(id)
			for i := 1; i < len(polls); i++ {
				if gap := polls[i] - polls[i-1]; gap > 15+4 {
					t.Fatalf("%s was polled at %v, while others hung", id, polls)
				}
			}
			if len(polls) < 2 {
				t.Fatalf("%s was polled at %v, while others hung", id, polls)
			}
		}
	})
}

// Where views are much work, the loop makes fewer of them, and loses nothing.
func TestViewsThatAreMuchWorkComeSeldom(t *testing.T) {
	for _, c := range []struct {
		work time.Duration
		most int64
	}{
		{0, 1000},
		{10 * time.Millisecond, 21}, // 10 ms of work and 40 ms of rest, each second
		{time.Second, 1},            // the rest is half a second
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			var views atomic.Int64
			f := w.run(t, Options{Published: func(*route.View) {
				views.Add(1)
				<-time.After(c.work)
			}})
			const n = 200
			var ids []string
			for i := range n {
				ids = append(ids, fmt.Sprint("n", i))
				w.set(ids[i], scripted{indexes: []string{ids[i]}, takes: time.Duration(i) * 5 * time.Millisecond})
			}
			w.feed <- up(ids...)
			synctest.Wait()
			pass(time.Second)
			if got := views.Load(); got > c.most {
				t.Errorf("%d views in a second, where each takes %v", got, c.work)
			}
			pass(12 * time.Second)
			if got := len(f.View().Indexes()); got != n {
				t.Errorf("%d indexes, where each view takes %v", got, c.work)
			}
		})
	}
}

// A thousand nodes of a hundred thousand indexes come and go, two thousand times a second: few views are made and few polls, and reads go
// on. The fake clock stands still while anything runs, so what the test takes is work and nothing else.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, lists = 1000, 2000
		each := 100
		if raceEnabled {
			each = 5
		}
		w := newWorld()
		var nodes []Node
		for i := range n {
			nodes = append(nodes, Node{ID: fmt.Sprintf("n%04d", i), Address: fmt.Sprintf("n%04d:1", i), Shard: fmt.Sprint(i / 2), Ready: true})
			var indexes []string
			for j := range each {
				indexes = append(indexes, fmt.Sprintf("index-%04d-%03d", i, j))
			}
			w.set(nodes[i].ID, scripted{indexes: indexes})
		}
		heap := func() float64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc) / (1 << 20)
		}
		before := heap()
		var views atomic.Int64
		f := w.run(t, Options{Published: func(*route.View) {
			views.Add(1)
			<-time.After(time.Millisecond) // what a view costs, so that there are 200 a second at most
		}})
		w.feed <- nodes
		pass(20 * time.Second)
		if c := f.View().Counts(); c.Healthy != n {
			t.Fatalf("%+v", c)
		}
		calm := heap()
		for i := range nodes {
			w.polls(nodes[i].ID)
		}
		views.Store(0)

		r := rand.New(rand.NewPCG(1, 2))
		var reads, refused int
		for range lists {
			nodes = slices.Clone(nodes)
			for range 20 {
				m := &nodes[r.IntN(n)]
				switch r.IntN(4) {
				case 0:
					m.Address = fmt.Sprintf("h%d:1", r.IntN(1000)) // another process
				default:
					m.Ready = !m.Ready
				}
			}
			w.feed <- nodes
			f.Failed(nodes[r.IntN(n)].ID)
			f.Refresh()
			i := r.IntN(n)
			reads++
			if _, err := f.View().Read(fmt.Sprintf("index-%04d-%03d", i, r.IntN(each)), uint64(reads)); err != nil {
				refused++
			}
			<-time.After(500 * time.Microsecond)
		}
		stormy := heap()
		polls := 0
		for i := range nodes {
			polls += len(w.polls(nodes[i].ID))
		}
		t.Logf("%d lists in 1 s: %d views, %d polls; %d of %d reads were refused; %.0f MiB for the fleet in calm, %.0f in the storm",
			lists, views.Load(), polls, refused, reads, calm-before, stormy-before)
		if got := views.Load(); got > 220 {
			t.Errorf("%d views", got)
		}
		if polls > 30*n {
			t.Errorf("%d polls", polls)
		}
		if stormy-before > 128 {
			t.Errorf("%.0f MiB", stormy-before)
		}
		nodes = slices.Clone(nodes) // the fleet keeps the list that it was given
		for i := range nodes {
			nodes[i].Ready = true
		}
		w.feed <- slices.Clone(nodes)
		pass(20 * time.Second)
		if c := f.View().Counts(); c.Healthy != n || len(f.View().Indexes()) != n*each {
			t.Errorf("after the storm: %+v and %d indexes", c, len(f.View().Indexes()))
		}
	})
}

// Whatever happens, once it is quiet the view is what the nodes say.
func TestTheViewComesToWhatIsTrue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var steps []func(context.Context, *world, *Fleet)
		ids := []string{"a", "b", "c", "d", "e"}
		var present []Node
		behave := map[string]scripted{}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			id := rapid.SampledFrom(ids).Draw(rt, "id")
			var act func(context.Context, *world, *Fleet)
			switch rapid.IntRange(0, 6).Draw(rt, "what") {
			case 0, 1:
				present = nil
				for _, id := range ids {
					if rapid.IntRange(0, 3).Draw(rt, "there") > 0 {
						present = append(present, Node{
							ID: id, Address: fmt.Sprint("h:", rapid.IntRange(1, 2).Draw(rt, "port")), Shard: rapid.SampledFrom([]string{"0", "1"}).Draw(rt, "shard"),
							Ready: rapid.IntRange(0, 3).Draw(rt, "ready") > 0,
						})
					}
				}
				nodes := present
				act = func(_ context.Context, w *world, _ *Fleet) { w.feed <- nodes }
			case 2, 3:
				s := scripted{hang: rapid.IntRange(0, 5).Draw(rt, "hang") == 0, takes: time.Duration(rapid.IntRange(0, 4000).Draw(rt, "takes")) * time.Millisecond}
				if rapid.IntRange(0, 2).Draw(rt, "fails") == 0 {
					s.err = errAway
				}
				s.indexes = rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 3).Draw(rt, "indexes")
				behave[id] = s
				act = func(_ context.Context, w *world, _ *Fleet) { w.set(id, s) }
			case 4:
				act = func(_ context.Context, _ *world, f *Fleet) {
					f.Failed(id)
					f.Failed(id)
				}
			case 5:
				act = func(_ context.Context, _ *world, f *Fleet) { f.Refresh() }
			case 6:
				other := rapid.SampledFrom(ids).Draw(rt, "other")
				patience := time.Duration(rapid.IntRange(0, 5000).Draw(rt, "patience")) * time.Millisecond
				act = func(ctx context.Context, _ *world, f *Fleet) {
					short, stop := context.WithTimeout(ctx, patience)
					defer stop()
					f.Learn(short, id, other)
				}
			}
			wait := time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "wait")) * time.Millisecond
			steps = append(steps, act, func(context.Context, *world, *Fleet) { pass(wait) })
		}

		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			f := w.run(t, Options{Polls: 2})
			for _, step := range steps {
				step(t.Context(), w, f)
			}
			pass(3 * time.Minute)
			wrong = compare(f.View(), present, behave)
		})
		if len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
}

// compare tells where a view that had time is not what discovery and the nodes say.
func compare(v *route.View, present []Node, behave map[string]scripted) (wrong []string) {
	var got, want []string
	for _, n := range v.Backends() {
		got = append(got, fmt.Sprint(n.ID, " ", n.Address, " ", n.Shard, " ", n.Ready))
		if !n.Ready {
			continue
		}
		s := behave[n.ID]
		bad := s.err != nil || s.hang || s.takes >= 3*time.Second
		if bad && n.Health != route.Evicted || !bad && n.Health != route.Healthy {
			wrong = append(wrong, fmt.Sprintf("%s is %s", n.ID, n.Health))
		}
		if told := slices.Compact(slices.Sorted(slices.Values(s.indexes))); !bad && !slices.Equal(n.Indexes, told) {
			wrong = append(wrong, fmt.Sprintf("%s has %q, not %q", n.ID, n.Indexes, told))
		}
	}
	for _, n := range present {
		want = append(want, fmt.Sprint(n.ID, " ", n.Address, " ", n.Shard, " ", n.Ready))
	}
	if !slices.Equal(got, want) {
		wrong = append(wrong, fmt.Sprintf("the view has %q, not %q", got, want))
	}
	return wrong
}

// Many requests read the view and tell of failures while it changes. For the race detector.
func TestRequestsRunBesideTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a", scripted{indexes: []string{"x"}})
		w.set("b", scripted{indexes: []string{"x"}})
		f := w.run(t, Options{})
		w.feed <- up("a", "b")
		synctest.Wait()
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 200 {
					v := f.View()
					if r, err := v.Read("x", uint64(i)); err == nil {
						f.Failed(r.Node.ID)
					}
					v.Indexes()
					if i%50 == g {
						f.Refresh()
					}
					<-time.After(time.Millisecond)
				}
			})
		}
		for i := range 100 {
			nodes := up("a", "b")
			nodes[0].Ready = i%2 == 0
			w.feed <- nodes
			<-time.After(2 * time.Millisecond)
		}
		wg.Wait()
	})
}
