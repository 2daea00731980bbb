package agg

import (
	"context"
	"runtime"
)

// meter watches work on a state: its time, and the memory that it takes.
type meter struct {
	ctx   context.Context
	room  func(ctx context.Context, bytes int) error // nil: not charged
	state int                                        // the state's reckoned size
	work  int                                        // bytes that the work takes besides
	most  int                                        // that room was asked for
	steps int                                        // until the next look at the time
}

// meterSteps is how many steps of some 100 ns at most are made between two looks at the time.
const meterSteps = 1 << 15

func newMeter(ctx context.Context) *meter { return &meter{ctx: ctx, steps: meterSteps} }

// tick counts steps. Its error is the cause of the end of the time.
func (m *meter) tick(n int) error {
	if m.steps -= n; m.steps > 0 {
		return nil
	}
	runtime.Gosched() // see exec: what takes long lets others have the processor
	return m.look()
}

func (m *meter) look() error {
	m.steps = meterSteps
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	return nil
}

// take counts memory, or gives it back where bytes is negative.
func (m *meter) take(bytes int) error {
	m.work += bytes
	return m.charge()
}

func (m *meter) charge() error {
	all := m.state + m.work
	if all <= m.most || m.room == nil {
		return nil
	}
	m.most = all
	return m.room(m.ctx, all)
}
