package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/leaftest"
)

// endingContext is cancelled when it has been looked at a number of times.
type endingContext struct {
	context.Context
	left int
}

func (c *endingContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// The ids of documents in memory are sorted before the first is listed, and a caller that leaves meanwhile is seen at each step.
func TestIDsInMemoryAreSortedWithLooksBetween(t *testing.T) {
	const docs = 5000
	s := newServer(t, Config{})
	in := s.node.Leaf()
	defer in.Close()
	var body strings.Builder
	for i := range docs {
		fmt.Fprintf(&body, "{\"id\":\"%d\"}\n", i*7919%docs)
	}
	if r, err := in.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(body.String())); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	_, r, err := s.node.read(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	defer r.release()
	scan := func(ctx context.Context) (*idScan, error) {
		v := &view{node: s.node, watch: &front.Stopwatch{Began: time.Now()}}
		defer v.release()
		if err := v.show(r.lease.index, r.snap); err != nil {
			t.Fatal(err)
		}
		return v.scanIDs(ctx, "", 0)
	}
	const enough = 1 << 30
	free := &endingContext{t.Context(), enough}
	list, err := scan(free)
	if err != nil {
		t.Fatal(err)
	}
	last, n := "", 0
	for list.more() {
		ids, err := list.next(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if id <= last {
				t.Fatalf("%s stands behind %s", id, last)
			}
			last, n = id, n+1
		}
	}
	if n != docs {
		t.Errorf("%d ids", n)
	}
	looks := enough - free.left
	visits := 2 * (docs/lookEveryDocs + 1) // the keys are measured, and then copied
	if looks < visits+docs/1024 {
		t.Errorf("%d looks at the context, %d of them where keys are read", looks, visits)
	}
	for at := range looks {
		if _, err := scan(&endingContext{t.Context(), at}); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled at look %d of %d: %v", at, looks, err)
		}
	}
}

// A call that got its place when its caller had left does not begin.
func TestACallWhoseCallerLeftWhileItWaitedDoesNotBegin(t *testing.T) {
	s := newSuiteNode(t)
	release := s.Occupy(t, leaftest.Searches)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c := &leafCall{node: s.node, ctx: ctx, watch: &front.Stopwatch{Began: time.Now()}}
	go func() {
		_, err := c.read(s.node.searches)
		done <- err
	}()
	until(t, "it waits", func() bool { return s.Waiting(leaftest.Searches) == 1 })
	cancel()
	release()
	if err := <-done; !errors.Is(err, context.Canceled) || c.reading != nil {
		t.Errorf("%v", err)
	}
	c.release()
	if used := s.node.searches.Used(); used != 0 {
		t.Errorf("%d places are taken", used)
	}
}
