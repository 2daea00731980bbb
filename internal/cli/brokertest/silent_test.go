package brokertest

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/cli/proctest"
)

// TestANodeThatIsHalfOpenHoldsNobody has a node whose connections stay open, and are made, while nothing comes back on them: as when its machine is
// gone and nobody said so. Calls with a deadline end at it, and those without one when pings are not answered, 40 seconds later; their places come
// back. Calls of another node are answered as before all the while.
func TestANodeThatIsHalfOpenHoldsNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 40 seconds")
	}
	if _, err := proctest.Build(); err != nil {
		t.Fatal(err)
	}
	t.Parallel() // it waits for most of its time
	servers := two(t)
	mute := deaf(t, servers[1].addr)
	servers[1] = &server{addr: mute.addr}
	b := before(t, servers, "--placement", "a*=0", "--placement", "b*=1", "--backend-unreachable-grace-secs", "600", "--list-timeout-secs", "3")
	b.fill(t, "a1", 3)
	b.fill(t, "b1", 3)
	mute.hold(true)
	began := time.Now()
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			err := error(status.Error(codes.ResourceExhausted, ""))
			for status.Code(err) == codes.ResourceExhausted { // the places are taken by who looks whether there are any
				_, err = b.search.Search(context.WithoutCancel(t.Context()), all("b1"))
			}
			want(t, "a call without a deadline", err, codes.Unavailable, "the connection to the node is lost")
		})
	}
	b.full(t, "b1")
	for rpc, call := range reads(b.client, "b1") {
		if rpc == "Search" {
			continue // it is refused
		}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := call(short); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s with a deadline: %v", rpc, err)
		}
		cancel()
	}
	others := func() (took times) {
		for range 200 {
			at := time.Now()
			if got, err := b.search.Search(t.Context(), all("a1")); err != nil || len(got.Hits) != 3 {
				t.Fatalf("the other node: %v, %v", got, err)
			}
			took = append(took, time.Since(at))
		}
		return took
	}
	t.Logf("calls of the other node, with all places of this one taken: %v", others())
	b.becomes(t, "b", "suspect")
	b.fill(t, "a2", 5)
	if n := b.nodes(t)["a"]; n.Health != "healthy" {
		t.Errorf("the other node is %v", n)
	}
	calls.Wait()
	if took := time.Since(began); took < 25*time.Second {
		t.Errorf("calls without a deadline ended after %v", took)
	} else {
		t.Logf("calls without a deadline ended after %v", took.Round(time.Second))
	}
	t.Logf("calls of the other node then: %v", others())
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := b.search.Search(short, all("b1")); status.Code(err) == codes.OK || status.Code(err) == codes.ResourceExhausted {
		t.Errorf("when the places are free again: %v", err)
	}
	mute.hold(false)
	b.becomes(t, "b", "healthy")
	soon(t, "the node that is there again answers", func() bool {
		got, err := b.search.Search(t.Context(), all("b1"))
		return err == nil && len(got.Hits) == 3
	})
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// TestReadsGoRoundACopyThatStandsStill has two copies, of which one stands still, before brokers that may go round it: adaptive reads, and reads of a
// spread index that leave stragglers out.
func TestReadsGoRoundACopyThatStandsStill(t *testing.T) {
	members := []member{{"a", "0", ""}, {"b", "0", ""}, {"c", "1", ""}}
	b, servers := fleet(t, members, "--adaptive-reads", "--list-timeout-secs", "2", "--placement", "whole=0,1")
	for _, id := range []string{"a", "b"} {
		dial(t, servers[id].addr).fill(t, "copied", 3)
		dial(t, servers[id].addr).fill(t, "whole", 3)
	}
	dial(t, servers["c"].addr).fill(t, "whole", 4)
	b.learn(t, "copied", "a", "b")
	partial := over(t, members, servers, "--partial-partition-reads", "--partition-straggler-ms", "200", "--placement", "whole=0,1")
	partial.learn(t, "whole", "a", "b", "c")
	if r, err := partial.search.Search(t.Context(), all("whole")); err != nil || len(r.Hits) != 7 || r.MissingPartitions != 0 {
		t.Errorf("%v, %v", r, err)
	}
	for _, id := range []string{"a", "c"} {
		servers[id].pause(t, true)
		defer servers[id].pause(t, false)
	}
	for range 20 {
		for rpc, call := range reads(b.client, "copied") {
			if _, err := call(t.Context()); err != nil && status.Code(err) != codes.NotFound && status.Code(err) != codes.InvalidArgument {
				t.Fatalf("%s with one copy that stands still: %v", rpc, err)
			}
		}
	}
	// The other partition is read from a or b in turn, and only b goes on.
	soon(t, "a search is answered without the partition that stands still", func() bool {
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r, err := partial.search.Search(short, all("whole"))
		return err == nil && r.MissingPartitions == 1 && len(r.Hits) == 3
	})
	if got := partial.metric(t, `summa_broker_partial_reads_total{index="whole",rpc="search",shard="1"}`); got == "" {
		t.Error("partitions that are left out are not counted")
	}
}

// TestABrokerEndsByAnInterrupt as well as by SIGTERM.
func TestABrokerEndsByAnInterrupt(t *testing.T) {
	b := before(t, []*server{startServer(t, t.TempDir(), "127.0.0.1:0")})
	if _, err := b.index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{}); err != nil {
		t.Error(err)
	}
	if err := b.Cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-b.Exited
	if b.Err != nil {
		t.Errorf("it ended with %v", b.Err)
	}
}
