// Package loadgen sends an open-loop load: calls begin at a fixed rate whether or not earlier ones have come back.
//
// Latency is counted from the instant a call was due, not from the instant it was sent. A server that stalls for a second is
// thus charged for every call that fell due in that second, where a closed loop would politely wait and count one (the error
// known as coordinated omission: https://www.youtube.com/watch?v=lJ8ydIuPFeU).
package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Config says what load to send.
type Config struct {
	Rate        float64       // calls begun per second, above 0
	Duration    time.Duration // time in which calls fall due, above 0
	Concurrency int           // bound of calls under way; later ones wait, and the wait counts
	// Drain is how long after Duration calls that are overdue may still be sent. What is left then is reported as Unsent.
	Drain time.Duration
	// Progress is called about once a second from a goroutine of its own, with counts so far; may be nil.
	Progress func(done, failed uint64)
}

// longest bounds a load, so that no sum of times overflows and a slip of the unit is told.
const longest = 24 * time.Hour

// Validate reports the first setting that cannot work.
func (c *Config) Validate() error {
	switch {
	case !(c.Rate > 0) || c.Rate > 1e6:
		return fmt.Errorf("rate %v is not between 0 and 1000000 calls a second", c.Rate)
	case c.Duration <= 0 || c.Duration > longest:
		return fmt.Errorf("duration %v is not between 0 and %v", c.Duration, longest)
	case c.Concurrency < 1 || c.Concurrency > 65536:
		return fmt.Errorf("concurrency %d is not between 1 and 65536", c.Concurrency)
	case c.Drain < 0 || c.Drain > longest:
		return fmt.Errorf("drain %v is not between 0 and %v", c.Drain, longest)
	}
	return nil
}

// Report is what came of a load.
type Report struct {
	Due    uint64 // calls that fell due
	Done   uint64 // calls that came back well
	Failed uint64 // calls that came back with an error
	Unsent uint64 // calls that were due and never sent: Due = Done + Failed + Unsent
	// Elapsed runs from the first call due to the last one back.
	Elapsed time.Duration
	// Latency counts calls that came back well from when they were due, Service from when they were sent.
	Latency, Service Histogram
	// Errors counts failures by the name that the call gave them.
	Errors map[string]uint64
}

// Run sends the load and waits until every call is back. call number i does the work of call i; its error is counted under its
// text. When ctx ends nothing more is sent, and the report of what was sent is returned with the cause.
func Run(ctx context.Context, cfg Config, call func(ctx context.Context, i uint64) error) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var (
		next, done, failed atomic.Uint64
		interval           = float64(time.Second) / cfg.Rate
		due                = max(uint64(float64(cfg.Duration)/interval), 1)
		start              = time.Now()
		last               = start.Add(cfg.Duration + cfg.Drain)
		parts              = make([]Report, cfg.Concurrency)
		wg                 sync.WaitGroup
	)
	for w := range parts {
		r := &parts[w]
		r.Errors = map[string]uint64{}
		wg.Go(func() {
			timer := time.NewTimer(0)
			defer timer.Stop()
			for {
				// A worker takes its number only once it is free, so numbers are sent in order and the backlog is never held.
				i := next.Add(1) - 1
				if i >= due {
					return
				}
				at := start.Add(time.Duration(float64(i) * interval))
				if !sleepUntil(ctx, timer, at) {
					return
				}
				sent := time.Now()
				if sent.After(last) {
					return
				}
				err := call(ctx, i)
				back := time.Now()
				if err != nil {
					if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
						return
					}
					r.Failed++
					r.Errors[err.Error()]++
					failed.Add(1)
					continue
				}
				r.Done++
				r.Latency.Record(back.Sub(at))
				r.Service.Record(back.Sub(sent))
				done.Add(1)
			}
		})
	}
	stop := make(chan struct{})
	var watch sync.WaitGroup
	if cfg.Progress != nil {
		watch.Go(func() {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					cfg.Progress(done.Load(), failed.Load())
				case <-stop:
					return
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	watch.Wait()

	out := &Report{Due: due, Elapsed: time.Since(start), Errors: map[string]uint64{}}
	for w := range parts {
		r := &parts[w]
		out.Done += r.Done
		out.Failed += r.Failed
		out.Latency.Add(&r.Latency)
		out.Service.Add(&r.Service)
		for name, n := range r.Errors {
			out.Errors[name] += n
		}
	}
	out.Unsent = due - out.Done - out.Failed
	return out, context.Cause(ctx)
}

// sleepUntil waits for the instant; false when ctx ended first.
func sleepUntil(ctx context.Context, timer *time.Timer, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer.Reset(d)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
