package hedge

import (
	"sync/atomic"
	"time"
)

// bucket is a budget in tokens: what n deposits, the first fill and the time put in is all that can be taken. Safe for concurrent use.
type bucket struct {
	tokens atomic.Int64 // in millionths
	each   int64        // of a deposit
	full   int64

	rate    float64      // tokens that a second puts in
	dripped atomic.Int64 // up to when it did, on the clock of drip
}

// token is what one take costs.
const token = 1_000_000

// init fills the bucket. A negative share is a bucket that stays empty.
func (b *bucket) init(share float64, burst int) {
	if share < 0 {
		return
	}
	b.each = int64(share * token)
	// One token at least, else none could ever be taken.
	b.full = int64(max(burst, 1)) * token
	b.tokens.Store(b.full)
}

// deposit puts in the share of one call.
func (b *bucket) deposit() {
	for {
		t := b.tokens.Load()
		if t >= b.full || b.tokens.CompareAndSwap(t, min(t+b.each, b.full)) {
			return
		}
	}
}

// drip puts in what the time since the last call did, until now, which counts from any beginning.
func (b *bucket) drip(now time.Duration) {
	if b.rate <= 0 || b.full == 0 {
		return
	}
	last := b.dripped.Load()
	if int64(now) <= last || !b.dripped.CompareAndSwap(last, int64(now)) {
		return // another one does it
	}
	more := min(int64(b.rate*token*(now-time.Duration(last)).Seconds()), b.full)
	for {
		t := b.tokens.Load()
		if t >= b.full || b.tokens.CompareAndSwap(t, min(t+more, b.full)) {
			return
		}
	}
}

// take takes one token if there is one.
func (b *bucket) take() bool {
	for {
		t := b.tokens.Load()
		if t < token {
			return false
		}
		if b.tokens.CompareAndSwap(t, t-token) {
			return true
		}
	}
}

// fill is how full the bucket is, from 0 to 1.
func (b *bucket) fill() float64 {
	if b.full == 0 {
		return 0
	}
	return float64(b.tokens.Load()) / float64(b.full)
}
