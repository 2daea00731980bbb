package jobs

import (
	"context"
	"sync"
	"time"
)

// paceBurst is how much of a rate may be used at once.
const paceBurst = time.Second

// pacer bounds how fast documents are copied and deleted, over all work at once.
type pacer struct {
	mu          sync.Mutex
	docs, bytes bucket
}

// bucket is a rate. What is taken moves next ahead; whoever takes waits until what was taken before is due.
type bucket struct {
	rate float64 // a second; 0: no limit
	next time.Time
}

func newPacer(docs, bytes int) *pacer {
	return &pacer{docs: bucket{rate: float64(max(docs, 0))}, bytes: bucket{rate: float64(max(bytes, 0))}}
}

func (b *bucket) take(now time.Time, n int) (due time.Time) {
	if b.rate == 0 {
		return now
	}
	if least := now.Add(-paceBurst); b.next.Before(least) {
		b.next = least
	}
	b.next = b.next.Add(time.Duration(float64(n) / b.rate * float64(time.Second)))
	return b.next
}

// take waits until so many documents of so many bytes may be given to a member.
func (p *pacer) take(ctx context.Context, docs, bytes int) error {
	p.mu.Lock()
	now := time.Now()
	due := p.docs.take(now, docs)
	if t := p.bytes.take(now, bytes); t.After(due) {
		due = t
	}
	p.mu.Unlock()
	return pause(ctx, due.Sub(now))
}
