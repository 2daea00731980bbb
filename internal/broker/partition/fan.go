package partition

import (
	"context"
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
	asks, outs := make([]Ask, len(parts)), make([]outcome, len(parts))
	for i, p := range parts {
		asks[i] = Ask{p, req(p)}
	}
	cs := begin(ctx, c, method, asks, false)
	defer cs.Close()
	for range parts {
		i, reply, err, _ := cs.Next(nil)
		outs[i] = outcome{part: parts[i], reply: reply, err: err}
	}
	return outs
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
	asks, outs, waiting := make([]Ask, len(parts)), make([]outcome, len(parts)), make([]bool, len(parts))
	for i, p := range parts {
		asks[i], outs[i].part, waiting[i] = Ask{p, req}, p, true
	}
	budgeted := r.Partial && r.Straggler > 0
	cs := begin(ctx, c, method, asks, budgeted)
	defer cs.Close()
	var over <-chan time.Time
	for n := len(parts); n > 0; n-- {
		i, reply, err, ok := cs.Next(over)
		if !ok {
			break
		}
		o := &outs[i]
		waiting[i] = false
		o.reply, o.err, o.left = reply, err, err != nil && r.leavesOut(ctx, err)
		switch {
		case err == nil && budgeted && over == nil:
			budget := time.NewTimer(r.Straggler)
			defer budget.Stop()
			over = budget.C
		case err != nil && !o.left:
			for j := i + 1; j < len(parts); j++ {
				cs.Cancel(j)
			}
		}
	}
	for i := range outs {
		if waiting[i] {
			outs[i].left = true
			outs[i].err = status.Errorf(codes.Unavailable, "partition did not answer within %d ms of the first partition", r.Straggler.Milliseconds())
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
