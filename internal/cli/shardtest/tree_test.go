package shardtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
	"github.com/weft-search/weft/internal/serve/replica"
	"github.com/weft-search/weft/internal/wire/frame"
)

// tree is a root over groups of nodes that hold the same documents.
type tree struct {
	policy *hedge.Policy
	search *serve.Coordinator[*leaf.SearchRequest, *leaf.SearchReply]
	stats  *serve.Coordinator[*leaf.StatsRequest, *leaf.StatsReply]
}

// newTree makes the tree of groups; the floor is that every group answers.
func newTree(t *testing.T, groups [][]leaf.Leaf) *tree {
	t.Helper()
	tr := &tree{policy: hedge.NewPolicy(hedge.PolicyOptions{InitialDelay: 100 * time.Millisecond, Burst: 1000})}
	tr.search = coordinator(t, tr.policy, "search", groups, leaf.Leaf.Search,
		func(_ context.Context, req *leaf.SearchRequest, g *serve.Gathered[*leaf.SearchReply]) (*leaf.SearchReply, error) {
			out := &leaf.SearchReply{}
			lists := make([][]leaf.Hit, len(g.Results))
			for i, r := range g.Results {
				lists[i] = r.Hits
				out.Docs += r.Docs
				out.Total += r.Total
			}
			var err error
			out.Hits, err = serve.MergeTopK(nil, lists, req.Limit, func(a, b *leaf.Hit) int { return leaf.CompareHits(req.Sort, a, b) })
			return out, err
		})
	tr.stats = coordinator(t, tr.policy, "stats", groups, leaf.Leaf.Stats,
		func(_ context.Context, _ *leaf.StatsRequest, g *serve.Gathered[*leaf.StatsReply]) (*leaf.StatsReply, error) {
			out := &leaf.StatsReply{Stats: score.Stats{}}
			for _, r := range g.Results {
				out.Stats.Add(&r.Stats)
			}
			return out, nil
		})
	return tr
}

func coordinator[Q, R any](t *testing.T, policy *hedge.Policy, name string, groups [][]leaf.Leaf, call func(leaf.Leaf, context.Context, Q) (R, error),
	merge func(context.Context, Q, *serve.Gathered[R]) (R, error),
) *serve.Coordinator[Q, R] {
	t.Helper()
	calls := policy.Calls(hedge.Class{Name: name, Safe: true, Retryable: leaf.RetryRead})
	o := serve.CoordinatorOptions[Q, R]{Merge: merge, Floor: serve.Floor{Fraction: 1}}
	for g, members := range groups {
		replicas := make([]replica.Replica[Q, R], len(members))
		for m, l := range members {
			replicas[m] = replica.Replica[Q, R]{
				Name: fmt.Sprintf("%d/%d", g, m),
				Leaf: serve.LeafFunc[Q, R](func(ctx context.Context, req Q) (R, error) { return call(l, ctx, req) }),
			}
		}
		// The first member is asked first, so that the one that will stop is asked at all.
		set, err := replica.NewSet(replicas, replica.Options[Q]{
			Name: fmt.Sprint(g), Calls: func(Q) *hedge.Calls { return calls }, Order: replica.Preferred, Judge: leaf.Judge,
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

// ask searches with the statistics of the whole.
func (tr *tree) ask(ctx context.Context, q query.Node, limit int) (*leaf.SearchReply, error) {
	stats, err := tr.stats.Call(ctx, &leaf.StatsRequest{Query: q})
	if err != nil {
		return nil, err
	}
	return tr.search.Call(ctx, &leaf.SearchRequest{Query: q, Limit: limit, Stats: &stats.Stats})
}

// Two groups of two processes, over both protocols, give the hits of one node that has everything, score bits included. They go on
// doing so, without an error and without waiting for anyone, when a member of a group stops answering and when one is killed; when a
// whole group is gone, there is no answer that looks whole.
func TestATreeOverNodesAnswersLikeOne(t *testing.T) {
	var groups [][]*process
	for range 2 {
		groups = append(groups, []*process{start(t, t.TempDir(), "127.0.0.1:0", "127.0.0.1:0"), start(t, t.TempDir(), "127.0.0.1:0", "127.0.0.1:0")})
	}
	one := start(t, t.TempDir(), "127.0.0.1:0", "127.0.0.1:0")
	ctx := within(t, 3*patience)
	load := func(l leaf.Leaf, docs string) {
		t.Helper()
		if r, err := l.Bulk(ctx, &leaf.BulkRequest{}, strings.NewReader(docs)); err != nil || !r.OK {
			t.Fatal(r, err)
		}
	}
	whole := one.dial(t)
	leaves := make([][]leaf.Leaf, len(groups))
	for g, members := range groups {
		fc := framed.NewClient(&frame.Client{Addr: members[1].shard()})
		t.Cleanup(func() {
			if err := fc.Close(); err != nil {
				t.Error(err)
			}
		})
		leaves[g] = []leaf.Leaf{members[0].dial(t), fc}
	}
	words := []string{"wool", "silk", "hemp", "linen", "jute"}
	var all string
	parts := make([]string, len(leaves))
	for i := range 120 {
		doc := fmt.Sprintf(`{"id":"d%03d","title":"%s and %s and %s"}`+"\n", i, words[i%5], words[i*i%5], words[i/7%5])
		all += doc
		parts[min(1, i%3)] += doc // not evenly, so that the statistics of the two groups differ
	}
	load(whole, all)
	for g, members := range leaves {
		for _, l := range members {
			load(l, parts[g])
		}
	}
	tr := newTree(t, leaves)
	var queries []query.Node
	for _, q := range []string{"wool", "silk hemp", "+linen jute", `"wool and silk"`, "w*", "silk^3 -jute", "*"} {
		n, err := query.Parse(q, query.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		queries = append(queries, n)
	}
	same := func(when string) {
		t.Helper()
		for _, q := range queries {
			want, err := whole.Search(ctx, &leaf.SearchRequest{Query: q, Limit: 30})
			if err != nil {
				t.Fatal(err)
			}
			got, err := tr.ask(ctx, q, 30)
			if err != nil {
				t.Fatalf("%s: %v: %v", when, q, err)
			}
			if got.Total != want.Total || got.Docs != want.Docs {
				t.Errorf("%s: %v: total %d of %d, want %d of %d", when, q, got.Total, got.Docs, want.Total, want.Docs)
			}
			if diff := cmp.Diff(want.Hits, got.Hits); diff != "" {
				t.Errorf("%s: %v (-one +tree):\n%s", when, q, diff)
			}
		}
	}
	same("all live")

	// A process that is stopped holds its connections open and says nothing: only the clock tells.
	groups[0][0].signal(syscall.SIGSTOP)
	for range 5 {
		same("one stopped")
	}
	if tr.policy.Stats().Hedges == 0 {
		t.Error("a member that does not answer was never hedged")
	}
	groups[0][0].signal(syscall.SIGCONT)
	groups[1][1].kill()
	for range 5 {
		same("one killed")
	}

	groups[1][0].kill()
	_, err := tr.ask(ctx, queries[0], 30)
	if e, ok := errors.AsType[*serve.InsufficientError](err); !ok || e.Tally.Covered() != 1 || e.Tally.Count(serve.Unavailable) != 1 {
		t.Errorf("with a group gone: %v", err)
	}
	groups[0][0].stop()
	groups[0][1].stop()
	one.stop()
}
