package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/leaf/rpc"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
	"github.com/weft-search/weft/internal/serve/replica"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/wire/frame"
)

// promptly is how soon after its caller has left a search must have stopped. It takes milliseconds, and some more until the word of it
// gets a processor that searches keep busy; the rest is for a busy machine. Unstopped, the searches of this test take several times as
// long on two processors.
const promptly = 2 * time.Second

// seldom is until for a condition that depends on goroutines which wait for a processor: it takes none from them.
func seldom(t *testing.T, what string, done func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	until(t, what, func() bool {
		<-look.C
		return done()
	})
}

// longQuery is a query that keeps a node busy for seconds with the documents of longDocs: it looks at every place of two words that
// alternate, in each document, for each of its phrases, and finds nothing.
func longQuery(t *testing.T) query.Node {
	t.Helper()
	var b strings.Builder
	for i := range longPhrases {
		fmt.Fprintf(&b, `"a b a b a c%d" `, i)
	}
	q, err := query.Parse(b.String(), query.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

const longPhrases = 150

func longDocs(first, n int) string {
	text := strings.Repeat("a b ", 2000)
	for i := range longPhrases {
		text += fmt.Sprintf("c%d ", i)
	}
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"%d\",\"t\":%q}\n", first+i, text)
	}
	return b.String()
}

// runningTree is a root over shards of which each is a set of two members, so that a hedge runs beside each first attempt.
func runningTree[Q, R any](
	t *testing.T, name string, members [][]leaf.Leaf, begun *atomic.Int32, call func(leaf.Leaf, context.Context, Q) (R, error),
) *serve.Coordinator[Q, R] {
	t.Helper()
	policy := hedge.NewPolicy(hedge.PolicyOptions{InitialDelay: time.Millisecond, MaxAttempts: 2})
	calls := policy.Calls(hedge.Class{Name: name, Safe: true, Retryable: leaf.RetryRead})
	o := serve.CoordinatorOptions[Q, R]{
		Merge: func(context.Context, Q, *serve.Gathered[R]) (R, error) {
			var none R
			return none, errors.New("there is something to merge")
		},
		Budget: serve.Budget{Total: time.Hour, Reserve: time.Second},
	}
	for shard, leaves := range members {
		replicas := make([]replica.Replica[Q, R], len(leaves))
		for m, l := range leaves {
			replicas[m] = replica.Replica[Q, R]{Name: fmt.Sprint(m), Leaf: serve.LeafFunc[Q, R](func(ctx context.Context, req Q) (R, error) {
				return call(l, serve.WithBegun(ctx, func() { begun.Add(1) }), req)
			})}
		}
		set, err := replica.NewSet(replicas, replica.Options[Q]{
			Name: fmt.Sprint(shard), Calls: func(Q) *hedge.Calls { return calls }, Judge: leaf.Judge,
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Children = append(o.Children, set)
	}
	c, err := serve.NewCoordinator(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The caller of a tree leaves while its search runs on every shard, twice on each, as hedges do. The loops over the segments stop, in
// this process and behind both protocols, and nothing is left of the search anywhere.
func TestACallerThatLeavesStopsTheSearchOnEveryShard(t *testing.T) {
	const shards, docs = 3, 400
	nodes := make([]*server, shards)
	for i := range nodes {
		nodes[i] = newServer(t, Config{GRPCAddr: "127.0.0.1:0", ShardAddr: "127.0.0.1:0"})
		in := nodes[i].node.Leaf()
		if r, err := in.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(longDocs(i*docs, docs))); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		(&suiteNode{server: nodes[i]}).Flush(t, "default")
	}
	q := longQuery(t)
	specs, err := agg.Parse("a:terms(id)")
	if err != nil {
		t.Fatal(err)
	}
	for _, wire := range []struct {
		name string
		open func(t *testing.T, s *server) leaf.Leaf
		mute bool // it has no word for a call that has begun
	}{
		{"process", func(_ *testing.T, s *server) leaf.Leaf { return s.node.Leaf() }, false},
		{"grpc", func(t *testing.T, s *server) leaf.Leaf {
			c, err := rpc.Dial(s.address(GRPC), rpc.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}, false},
		{"framed", func(_ *testing.T, s *server) leaf.Leaf {
			return framed.NewClient(&frame.Client{Addr: s.address(Shard)})
		}, true},
	} {
		t.Run(wire.name, func(t *testing.T) {
			leaves := make([][]leaf.Leaf, shards)
			for i, s := range nodes {
				l := wire.open(t, s)
				defer l.Close()
				leaves[i] = []leaf.Leaf{l, l}
				if _, err := l.Ping(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var begun atomic.Int32
			search := runningTree(t, "search", leaves, &begun, leaf.Leaf.Search)
			aggregate := runningTree(t, "aggregate", leaves, &begun, leaf.Leaf.Aggregate)
			for name, call := range map[string]func(ctx context.Context) error{
				"search": func(ctx context.Context) error {
					_, err := search.Call(ctx, &leaf.SearchRequest{Query: q, Limit: 10, Total: exec.TotalExact})
					return err
				},
				"aggregate": func(ctx context.Context) error {
					_, err := aggregate.Call(ctx, &leaf.AggregateRequest{Query: q, Specs: specs})
					return err
				},
			} {
				before := goleak.IgnoreCurrent()
				begun.Store(0)
				left := errors.New("the caller left")
				ctx, cancel := context.WithCancelCause(t.Context())
				done := make(chan error, 1)
				go func() { done <- call(ctx) }()
				most := make([]int, shards) // calls seen under way
				seldom(t, name+" runs twice on every shard", func() bool {
					if len(done) > 0 {
						t.Fatalf("%s has ended: %v; at most %v ran, %d have begun", name, <-done, most, begun.Load())
					}
					twice := true
					for i, s := range nodes {
						n := s.node.front.Drain().UnderWay()
						most[i] = max(most[i], n)
						twice = twice && n == 2
					}
					// One that was skipped for a tie may have said so as well.
					return twice && (wire.mute || begun.Load() >= 2*shards)
				})
				// Into the loop.
				working := time.NewTimer(30 * time.Millisecond)
				<-working.C
				began := time.Now()
				cancel(left)
				err := <-done
				returned := time.Since(began)
				if !errors.Is(err, left) || !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
				seldom(t, name+" runs nowhere", func() bool {
					for _, s := range nodes {
						if s.node.front.Drain().UnderWay() != 0 {
							return false
						}
					}
					return true
				})
				stopped := time.Since(began)
				t.Logf("%s: the call returned after %v, no shard was searched after %v", name, returned, stopped)
				if stopped > promptly {
					t.Errorf("%s: stopped after %v", name, stopped)
				}
				if err := goleak.Find(before); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}
