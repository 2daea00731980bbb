package partition

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reads says how Search and GetTextStats treat partitions that do not answer (section Reads of partitioned indexes). The zero value is
// strict: a partition that fails fails the call.
type Reads struct {
	// Partial leaves out partitions that cannot be asked, that answer UNAVAILABLE, or that miss their own deadline while the client's has
	// not passed (B10). GetDocument leaves out those that cannot be asked.
	Partial bool
	// Straggler, if not 0 and with Partial, is how long the others have once a partition has answered well.
	Straggler time.Duration
}

// Answer is what a read gives.
type Answer struct {
	Reply   []byte
	LeftOut []int // partitions that it is without, ascending
}

// outcome is how a call to one partition ended.
type outcome struct {
	part  int
	reply []byte
	err   error
	left  bool // err is one that a partial read goes on without
}

// together asks several partitions at once, one request each, and waits for all. The outcomes are in the order of parts.
func together(ctx context.Context, c Caller, parts []int, method string, req func(part int) []byte) []outcome {
	out := make([]outcome, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() {
			reply, err := c.Call(ctx, p, method, req(p))
			out[i] = outcome{part: p, reply: reply, err: err}
		})
	}
	wg.Wait()
	return out
}

// failed is the first failure in the order of the partitions.
func (ix *Index) failed(outs []outcome) error {
	for _, o := range outs {
		if o.err != nil && !o.left {
			return ix.Fault(o.part, o.err)
		}
	}
	return nil
}

// round asks partitions the same at once and returns those that answered, in order, and those left out. Calls whose outcome no longer
// matters are cut short: those behind a partition whose failure is the call's, and stragglers.
func (r Reads) round(ctx context.Context, ix *Index, c Caller, parts []int, method string, req []byte) (good []outcome, left []int, err error) {
	outs := r.ask(ctx, c, parts, method, req)
	if err := ix.failed(outs); err != nil {
		return nil, nil, err
	}
	var last *outcome
	for i := range outs {
		if outs[i].left {
			last = &outs[i]
			left = append(left, outs[i].part)
			continue
		}
		good = append(good, outs[i])
	}
	if len(good) == 0 && last != nil {
		return nil, nil, ix.Fault(last.part, last.err)
	}
	return good, left, nil
}

func (r Reads) ask(ctx context.Context, c Caller, parts []int, method string, req []byte) []outcome {
	type arrival struct {
		i int
		outcome
	}
	arrivals := make(chan arrival, len(parts)) // room for all: no call waits for us
	cancels := make([]context.CancelFunc, len(parts))
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, p := range parts {
		own, cancel := context.WithCancel(ctx)
		defer cancel() // before the wait
		cancels[i] = cancel
		wg.Go(func() {
			reply, err := c.Call(own, p, method, req)
			arrivals <- arrival{i, outcome{part: p, reply: reply, err: err}}
		})
	}
	outs := make([]outcome, len(parts))
	waiting := make([]bool, len(parts))
	for i, p := range parts {
		outs[i].part, waiting[i] = p, true
	}
	var budget *time.Timer
	var over <-chan time.Time
	take := func(a arrival) {
		waiting[a.i] = false
		a.left = a.err != nil && r.leavesOut(ctx, a.err)
		outs[a.i] = a.outcome
		switch {
		case a.err == nil:
			if r.Partial && r.Straggler > 0 && budget == nil {
				budget = time.NewTimer(r.Straggler)
				over = budget.C
			}
		case !a.left:
			for _, cancel := range cancels[a.i+1:] {
				cancel()
			}
		}
	}
	for n := len(parts); n > 0 && over == nil; n-- {
		take(<-arrivals)
	}
	if over == nil {
		return outs
	}
	defer budget.Stop()
	for slices.Contains(waiting, true) {
		select {
		case a := <-arrivals:
			take(a)
			continue
		case <-over:
		}
		for len(arrivals) > 0 { // what came in time counts
			take(<-arrivals)
		}
		for i := range outs {
			if waiting[i] {
				waiting[i] = false
				outs[i].left = true
				outs[i].err = status.Errorf(codes.Unavailable, "partition did not answer within %d ms of the first partition", r.Straggler.Milliseconds())
			}
		}
	}
	return outs
}

// leavesOut says whether a read goes on without a partition that failed so.
func (r Reads) leavesOut(ctx context.Context, err error) bool {
	if !r.Partial {
		return false
	}
	switch statusOf(err).Code() {
	case codes.Unavailable:
		return true
	case codes.DeadlineExceeded:
		return ctx.Err() == nil
	}
	return false
}

// reach is who a read asks. Without Partial it is everybody or an error.
func (r Reads) reach(ix *Index) ([]int, error) {
	if !r.Partial {
		if err := ix.Whole(); err != nil {
			return nil, err
		}
	}
	parts := ix.present()
	if len(parts) == 0 {
		return nil, status.Errorf(codes.Unavailable, "index '%s': none of its %d partitions has a routable replica", ix.Name, len(ix.Shards))
	}
	return parts, nil
}
