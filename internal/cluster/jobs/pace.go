package jobs

import (
	"context"
	"sync"
	"time"
)

// paceBurst is how much of a rate may be used at once. A batch may be more than that: it is waited for afterwards.
const paceBurst = time.Second

// pacer bounds how fast documents are copied and deleted, over all work at once.
type pacer struct {
	mu          sync.Mutex
	docs, bytes bucket
}

// bucket is a rate. What is used moves next ahead, and nothing more is to be used before that.
type bucket struct {
	rate float64 // a second; 0: no limit
	next time.Time
}

func newPacer(docs, bytes int) *pacer {
	return &pacer{docs: bucket{rate: float64(max(docs, 0))}, bytes: bucket{rate: float64(max(bytes, 0))}}
}

func (b *bucket) use(now time.Time, n int) {
	if b.rate == 0 {
		return
	}
	if least := now.Add(-paceBurst); b.next.Before(least) {
		b.next = least
	}
	b.next = b.next.Add(time.Duration(float64(n) / b.rate * float64(time.Second)))
}

// used notes that so many documents of so many bytes are given to a member.
func (p *pacer) used(docs, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.docs.use(now, docs)
	p.bytes.use(now, bytes)
}

// wait waits until documents may be given again. That is before they are looked at: between a look and what is done for it others may look, too, and
// then it has to be repeated.
func (p *pacer) wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		due := p.docs.next
		if p.bytes.next.After(due) {
			due = p.bytes.next
		}
		p.mu.Unlock()
		left := time.Until(due)
		if left <= 0 {
			return nil
		}
		if err := pause(ctx, left); err != nil {
			return err
		}
	}
}
