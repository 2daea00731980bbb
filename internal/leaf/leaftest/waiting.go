package leaftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/serve"
)

// waiter is a method with what it waits for.
type waiter struct {
	name string
	kind Place
	call func(ctx context.Context, l leaf.Leaf) error
}

// waiters are all methods that wait for a place.
func waiters(index string) []waiter {
	return []waiter{
		{"search", Searches, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.Search(ctx, &leaf.SearchRequest{Index: index, Limit: 1})
			return err
		}},
		{"stats", Searches, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.Stats(ctx, &leaf.StatsRequest{Index: index, Terms: []score.Term{{Field: "title", Text: "warp"}}})
			return err
		}},
		{"aggregate", Searches, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.Aggregate(ctx, &leaf.AggregateRequest{Index: index})
			return err
		}},
		{"knn", Searches, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.KNN(ctx, &leaf.KNNRequest{Index: index, KNN: api.KNN{Field: "v", Dense: []float32{1, 2, 3, 4}, K: 1, Combiner: score.Combiner{Kind: score.Max}}})
			return err
		}},
		{"has", Searches, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.Has(ctx, &leaf.HasRequest{Index: index, IDs: []string{"x"}})
			return err
		}},
		{"ids", Scans, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.IDs(ctx, &leaf.IDsRequest{Index: index}, func([]string) error { return nil })
			return err
		}},
		{"export", Scans, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.Export(ctx, &leaf.ExportRequest{Index: index, IDs: []string{"least"}}, func(leaf.ExportedDoc) error { return nil })
			return err
		}},
		{"delete_many", Writes, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.DeleteMany(ctx, &leaf.DeleteRequest{Index: index, IDs: []string{"x"}})
			return err
		}},
		{"index", Writes, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.Index(ctx, &leaf.IndexRequest{Index: index, Body: []byte(`{"id":"waited"}`)})
			return err
		}},
		{"bulk", Bulks, func(ctx context.Context, l leaf.Leaf) error {
			_, err := l.Bulk(ctx, &leaf.BulkRequest{Index: index}, strings.NewReader(`{"id":"waited"}`))
			return err
		}},
	}
}

var errLeft = errors.New("the caller left")

// testWaiting: a call that waits for a place says when it has got it, stops waiting when its context ends, and then has no effect.
func testWaiting(t *testing.T, e Env) {
	fill(t, e, 20)
	for _, w := range waiters(corpusIndex) {
		release := e.Node.Occupy(t, w.kind)
		start := func(ctx context.Context) <-chan error {
			done := inBackground(func() error { return w.call(ctx, e.Leaf) })
			eventually(t, w.name+" waits", func() bool { return e.Node.Waiting(w.kind) == 1 })
			return done
		}
		gone := func(what string) {
			t.Helper()
			eventually(t, w.name+" waits no more: "+what, func() bool { return e.Node.Waiting(w.kind) == 0 })
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := start(ctx)
		cancel(errLeft)
		if err := returned(t, w.name, done); !errors.Is(err, errLeft) {
			t.Errorf("%s, cancelled while it waited: %v", w.name, err)
		}
		gone("its caller left")

		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		err := returned(t, w.name, inBackground(func() error { return w.call(ctx, e.Leaf) }))
		if leaf.OutcomeOf(err) != serve.TimedOut || time.Since(began) < 60*time.Millisecond {
			t.Errorf("%s, out of time after %v: %v", w.name, time.Since(began), err)
		}
		stop()
		gone("its time was over")

		var begun atomic.Int32
		done = start(serve.WithBegun(t.Context(), func() { begun.Add(1) }))
		if begun.Load() != 0 {
			t.Errorf("%s has begun before it had its place", w.name)
		}
		release()
		if err := returned(t, w.name, done); err != nil {
			t.Errorf("%s, when there was a place: %v", w.name, err)
		}
		if n := begun.Load(); n != 1 && !e.Wire.NoBegun {
			t.Errorf("%s has begun %d times", w.name, n)
		}
		idle(t, e)
	}
}

// testRefused: when too many wait already, a call is refused at once, with the limit and when to try again.
func testRefused(t *testing.T, e Env) {
	fill(t, e, 20)
	release := e.Node.Occupy(t, Scans)
	const queue = 32
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for range queue {
		wg.Go(func() {
			if _, err := e.Leaf.IDs(ctx, &leaf.IDsRequest{Index: corpusIndex}, func([]string) error { return nil }); err != nil && ctx.Err() == nil {
				t.Errorf("a call that waited: %v", err)
			}
		})
	}
	eventually(t, "the queue is full", func() bool { return e.Node.Waiting(Scans) == queue })
	_, err := both(t, e, "one too many", export(t.Context(), corpusIndex, []string{"least"}))
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.HTTPStatus() != 429 || p.RetryAfterMS <= 0 || !p.HasLimit || p.Limit <= 0 || leaf.OutcomeOf(err) != serve.Refused || leaf.ClassOf(err) != leaf.Here {
		t.Errorf("%v: %+v", err, p)
	}
	release()
	wg.Wait()
	idle(t, e)
}

// testCancelled: a context that has ended is the end of a call, before it and in its middle.
func testCancelled(t *testing.T, e Env) {
	fill(t, e, 20)
	for _, w := range waiters(corpusIndex) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errLeft)
		if err := returned(t, w.name, inBackground(func() error { return w.call(ctx, e.Leaf) })); !errors.Is(err, errLeft) {
			t.Errorf("%s with a context that had ended: %v", w.name, err)
		}
	}
	has, err := e.Leaf.Has(t.Context(), &leaf.HasRequest{Index: corpusIndex, IDs: []string{"waited"}})
	if err != nil || len(has.Missing) != 1 {
		t.Errorf("a write with a context that had ended has had an effect: %+v, %v", has, err)
	}

	// The sender of a load leaves in the middle of a line.
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	body := &halting{ctx: ctx, first: strings.NewReader("{\"id\":\"half\"}\n{\"id\":\"ha"), reached: make(chan struct{})}
	done := inBackground(func() error {
		_, err := e.Leaf.Bulk(ctx, &leaf.BulkRequest{Index: corpusIndex}, body)
		return err
	})
	<-body.reached
	cancel(errLeft)
	if err := returned(t, "a load", done); !errors.Is(err, errLeft) {
		t.Errorf("a load whose sender left: %v", err)
	}
	idle(t, e)
}

// halting is a stream that waits behind its first part until its context ends.
type halting struct {
	ctx     context.Context
	first   io.Reader
	reached chan struct{}
	once    sync.Once
}

func (h *halting) Read(b []byte) (int, error) {
	if n, err := h.first.Read(b); n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	h.once.Do(func() { close(h.reached) })
	<-h.ctx.Done()
	return 0, context.Cause(h.ctx)
}

// testClose: a leaf that is closed fails, also for calls that wait; the node goes on.
func testClose(t *testing.T, e Env) {
	fill(t, e, 20)
	release := e.Node.Occupy(t, Searches)
	done := inBackground(func() error {
		_, err := e.Leaf.Search(t.Context(), &leaf.SearchRequest{Index: corpusIndex, Limit: 1})
		return err
	})
	eventually(t, "the call waits", func() bool { return e.Node.Waiting(Searches) == 1 })
	if err := e.Leaf.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := returned(t, "a call under way", done); !errors.Is(err, leaf.ErrClosed) {
		t.Errorf("a call under way when the leaf was closed: %v", err)
	}
	eventually(t, "the call waits no more", func() bool { return e.Node.Waiting(Searches) == 0 })
	release()
	for name, err := range everyCall(t, e.Leaf, corpusIndex) {
		if !errors.Is(err, leaf.ErrClosed) {
			t.Errorf("%s of a closed leaf: %v", name, err)
		}
	}
	if _, err := e.Leaf.Ping(t.Context()); !errors.Is(err, leaf.ErrClosed) {
		t.Errorf("a ping of a closed leaf: %v", err)
	}
	if err := e.Leaf.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
	if docs, err := e.Node.Leaf().Docs(t.Context(), &leaf.DocsRequest{Index: corpusIndex}); err != nil || docs.Docs == 0 {
		t.Errorf("the node behind a closed leaf: %+v, %v", docs, err)
	}
	idle(t, e)
}

// String is the name of a place.
func (p Place) String() string {
	if names := []string{"searches", "writes", "bulks", "scans"}; int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("place %d", uint8(p))
}
