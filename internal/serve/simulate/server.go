package simulate

import (
	"context"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/serve"
)

// Query is a query's number, from 0.
type Query int

// server is one replica of one shard: a queue before a few workers. It is safe for concurrent use.
type server struct {
	start time.Time
	from  Query // calls of earlier queries are not counted

	mu struct {
		sync.Mutex
		draw    *drawer
		idle    int // workers
		waiting []chan struct{}
		sent    int // calls that came
		begun   int // calls that began
	}
}

func newServer(m Model, seed, stream uint64, start time.Time, from Query) *server {
	s := &server{start: start, from: from}
	s.mu.draw = newDrawer(m, seed, stream)
	s.mu.idle = m.Workers
	return s
}

// Call implements serve.Leaf. It answers 1: so many shards are covered. The end of the context takes it out of the queue or
// frees its worker.
func (s *server) Call(ctx context.Context, q Query) (int, error) {
	if err := s.enter(ctx, q); err != nil {
		return 0, err
	}
	serve.Begun(ctx)
	s.mu.Lock()
	if q >= s.from {
		s.mu.begun++
	}
	service, slow := s.mu.draw.call(time.Since(s.start))
	holds := s.mu.draw.m.Holds
	s.mu.Unlock()
	if holds {
		service += slow
	}
	err := wait(ctx, service)
	s.leave()
	if err == nil && slow > 0 && !holds {
		err = wait(ctx, slow)
	}
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// enter waits for a worker.
func (s *server) enter(ctx context.Context, q Query) error {
	s.mu.Lock()
	if q >= s.from {
		s.mu.sent++
	}
	if ctx.Err() != nil {
		s.mu.Unlock()
		return context.Cause(ctx)
	}
	if s.mu.idle > 0 {
		s.mu.idle--
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	s.mu.waiting = append(s.mu.waiting, turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for i, w := range s.mu.waiting {
		if w == turn {
			s.mu.waiting = append(s.mu.waiting[:i], s.mu.waiting[i+1:]...)
			s.mu.Unlock()
			return context.Cause(ctx)
		}
	}
	s.mu.Unlock()
	// The turn came at the same moment.
	s.leave()
	return context.Cause(ctx)
}

// leave gives a worker to the first that waits.
func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.waiting) == 0 {
		s.mu.idle++
		return
	}
	close(s.mu.waiting[0])
	s.mu.waiting = s.mu.waiting[1:]
}

// counts returns how many calls came and how many of them began.
func (s *server) counts() (sent, begun int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.sent, s.mu.begun
}

// wait waits for some time or for the end of the context.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
