package service_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/service"
)

// copiesOf are n nodes of one shard with an index.
func copiesOf(n int) []*fake {
	var all []*fake
	for i := range n {
		all = append(all, &fake{id: fmt.Sprint("n", i), shard: "0", indexes: []string{"a"}})
	}
	return all
}

// TestAdaptiveReadsDoNotWaitForACopyThatHangs: once it is known how long reads take, a copy that answers nothing is overtaken by another one, and
// its call ends.
func TestAdaptiveReadsDoNotWaitForACopyThatHangs(t *testing.T) {
	for _, rpc := range []string{"Search", "GetDocument", "GetIndexInfo", "GetTextStats"} {
		t.Run(rpc, func(t *testing.T) {
			var hangs atomic.Bool
			var held atomic.Int64
			var asks [3]atomic.Int64
			all := copiesOf(3)
			reply := []byte("\x0a\x03n/a")
			nodes(t, func(a *asked) ([]byte, error) {
				asks[a.node[1]-'0'].Add(1)
				if hangs.Load() && a.node == "n1" {
					held.Add(1)
					<-a.ctx.Done()
					held.Add(-1)
					return nil, status.FromContextError(a.ctx.Err()).Err()
				}
				return reply, nil
			}, all...)
			s := start(t, service.Config{Source: source(all), Placement: placement(t, "single"), Adaptive: true, BackendSearches: 256}, 3)
			req := encoded(t, &summapb.GetIndexInfoRequest{IndexName: "a"})
			read := func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				got, err := s.call(ctx, rpc, [][]byte{req})
				if err != nil || !bytes.Equal(got, reply) {
					t.Errorf("%q, %v", got, err)
				}
			}
			// What reads take is looked at ten times a second; before that nobody knows what is slow.
			for n, began := 0, time.Now(); n < 300 || time.Since(began) < 400*time.Millisecond; n++ {
				read()
			}
			for i := range asks {
				if asks[i].Load() == 0 {
					t.Errorf("n%d was never asked", i)
				}
			}
			hangs.Store(true)
			for range 100 {
				read()
			}
			soon(t, "those that were overtaken have ended at the node", func() bool { return held.Load() == 0 })
		})
	}
}

// TestFirstAdaptiveReadsDoNotWaitForACopyThatHangs: while nothing is known of how long reads take, they are answered without a copy that hangs,
// however long their callers would wait.
func TestFirstAdaptiveReadsDoNotWaitForACopyThatHangs(t *testing.T) {
	all := copiesOf(2)
	var hung atomic.Int64
	reply := []byte("\x0a\x03n/a")
	nodes(t, func(a *asked) ([]byte, error) {
		if a.node == "n1" {
			hung.Add(1)
			<-a.ctx.Done()
			return nil, status.FromContextError(a.ctx.Err()).Err()
		}
		return reply, nil
	}, all...)
	s := start(t, service.Config{Source: source(all), Placement: placement(t, "single"), Adaptive: true}, 2)
	for i := range 40 {
		got, err := s.call(t.Context(), "GetIndexInfo", [][]byte{encoded(t, &summapb.GetIndexInfoRequest{IndexName: "a"})})
		if err != nil || !bytes.Equal(got, reply) {
			t.Fatalf("read %d: %q, %v", i, got, err)
		}
	}
	if hung.Load() == 0 {
		t.Error("the copy that hangs was never asked")
	}
}

// TestAdaptiveReadsTellWhatANodeSays: refusals and details of a node are the answer, and are asked nowhere else.
func TestAdaptiveReadsTellWhatANodeSays(t *testing.T) {
	all := copiesOf(2)
	var asks atomic.Int64
	nodes(t, func(*asked) ([]byte, error) {
		asks.Add(1)
		return nil, status.Error(codes.NotFound, "Document not found")
	}, all...)
	s := start(t, service.Config{Source: source(all), Placement: placement(t, "single"), Adaptive: true}, 2)
	_, err := s.call(t.Context(), "GetDocument", [][]byte{encoded(t, &summapb.GetDocumentRequest{IndexName: "a"})})
	want(t, "a document", err, codes.NotFound, "Document not found")
	if n := asks.Load(); n != 1 {
		t.Errorf("%d nodes were asked", n)
	}
}

// TestAdaptiveSearchesHaveTheirPlaces: a copy whose places are taken is passed over, and where all are the search is refused.
func TestAdaptiveSearchesHaveTheirPlaces(t *testing.T) {
	all := copiesOf(2)
	begun, let := make(chan string, 4), make(chan struct{})
	nodes(t, func(a *asked) ([]byte, error) {
		begun <- a.node
		select {
		case <-let:
		case <-a.ctx.Done():
		}
		return []byte{}, nil
	}, all...)
	s := start(t, service.Config{
		Source: source(all), Placement: placement(t, "single"), Adaptive: true, FirstDelay: time.Hour, BackendSearches: 1, // no search goes to both
	}, 2)
	req := encoded(t, &summapb.SearchRequest{IndexName: "a", Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}})
	var calls sync.WaitGroup
	at := map[string]bool{}
	for range 2 {
		calls.Go(func() {
			if _, err := s.call(t.Context(), "Search", [][]byte{req}); err != nil {
				t.Error(err)
			}
		})
		at[<-begun] = true
	}
	if len(at) != 2 {
		t.Errorf("asked were %v", at)
	}
	_, err := s.call(t.Context(), "Search", [][]byte{req})
	want(t, "a third search", err, codes.ResourceExhausted, "Search capacity is full; retry with backoff")
	if got := s.metric(t, `summa_broker_admission_rejected_total{index="a",scope="backend"}`); got != "1" {
		t.Errorf("%q refusals are counted", got)
	}
	close(let)
	calls.Wait()
	if _, err := s.call(t.Context(), "Search", [][]byte{req}); err != nil {
		t.Errorf("when they have ended: %v", err)
	}
}

// TestAdaptiveReadsEndWithTheirCaller: who leaves ends the calls at all nodes.
func TestAdaptiveReadsEndWithTheirCaller(t *testing.T) {
	all := copiesOf(2)
	begun, ended := make(chan struct{}, 2), make(chan struct{}, 2)
	nodes(t, func(a *asked) ([]byte, error) {
		begun <- struct{}{}
		<-a.ctx.Done()
		ended <- struct{}{}
		return nil, status.FromContextError(a.ctx.Err()).Err()
	}, all...)
	s := start(t, service.Config{Source: source(all), Placement: placement(t, "single"), Adaptive: true}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.call(ctx, "GetIndexInfo", [][]byte{encoded(t, &summapb.GetIndexInfoRequest{IndexName: "a"})})
		done <- err
	}()
	<-begun
	cancel()
	<-ended
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}
