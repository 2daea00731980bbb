package node

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/rpc"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/serve/hedge"
)

// TestTiedRequestsOfTwoNodes: a search that waits on two nodes at once leaves the queue of the second when the first begins it.
func TestTiedRequestsOfTwoNodes(t *testing.T) {
	var nodes [2]*Node
	var clients [2]*rpc.Client
	var release [2]func()
	for i := range nodes {
		s := newServer(t, Config{GRPCAddr: "127.0.0.1:0"})
		s.put("default", `{"id":"1","t":"kept"}`)
		c, err := rpc.Dial(s.address(GRPC), rpc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		place, err := s.node.searches.Enter(t.Context(), s.node.searches.Limit())
		if err != nil {
			t.Fatal(err)
		}
		nodes[i], clients[i], release[i] = s.node, c, sync.OnceFunc(place.Release)
		defer release[i]()
	}
	var report hedge.Report
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	go func() {
		_, err := hedge.Hedge(ctx, 2, hedge.Options{Tied: true, Report: &report}, func(ctx context.Context, i int) (*leaf.SearchReply, error) {
			return clients[i].Search(ctx, &leaf.SearchRequest{Query: &query.All{}, Limit: 1})
		})
		done <- err
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	waiting := func(first, second int64) {
		t.Helper()
		for nodes[0].searches.Waiting() != first || nodes[1].searches.Waiting() != second {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%d and %d searches wait", nodes[0].searches.Waiting(), nodes[1].searches.Waiting())
			}
		}
	}
	waiting(1, 1)
	release[1]()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// All places of the first node are still taken: the search has left its queue without having run.
	waiting(0, 0)
	if len(report.Attempts) != 2 || report.Attempts[1].Index != 1 || report.Attempts[1].End != hedge.Won {
		t.Errorf("%+v", report)
	}
}
