package shard

import (
	"context"
	"fmt"
	"time"
)

// Disturb notes that somebody looks at documents, to decide by what he sees what copies of them elsewhere, or these, are to be. Behind it none
// of them is written Fresh for the time of Undisturbed, those that are not there among them, and all that was applied to them before is visible. So of a
// write that the look does not show it is known that something was done with its document meanwhile. With the mark of a write it is its writer who
// looks, and last tells whether that write was the last thing that was done with all of the keys when it was noted. The error is what ended ctx.
func (s *Shard) Disturb(ctx context.Context, keys []string, mark uint64) (last bool, err error) {
	wr, last := s.disturb(keys, mark)
	if wr == nil {
		return last, nil
	}
	// Whether it fails is nobody's concern: then what it waited for does not become visible either.
	select {
	case <-wr.done:
	case s.lead <- struct{}{}:
		s.commitQueue()
		<-s.lead
	case <-ctx.Done():
		return false, fmt.Errorf("wait for writes of documents that are looked at: %w", context.Cause(ctx))
	}
	return last, nil
}

// disturb returns what to wait for, nil if all is visible.
func (s *Shard) disturb(keys []string, mark uint64) (wr *write, last bool) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	now, pending := time.Now(), false
	last = mark != 0
	for _, key := range keys {
		last = s.writeMu.marks.look(key, mark) && last
		in, shown := s.inMemtable(key)
		pending = pending || in && !shown
		if !shown { // nothing that a memtable shows is Fresh, nor will it be for the time of Undisturbed; what it does not show may come to nothing
			s.writeMu.disturbed.add(key, now)
		}
	}
	if !pending {
		return nil, last
	}
	wr = &write{mem: s.writeMu.active, done: make(chan struct{})}
	s.enqueue(wr)
	return wr, last
}

// inMemtable tells whether the document that is alive after all applied operations is in a memtable, and then whether it is visible. It
// needs writeMu.
func (s *Shard) inMemtable(key string) (in, shown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range [...]*part{s.writeMu.active, s.mu.frozen} {
		if p == nil {
			continue
		}
		if d, ok := p.findApplied(key); ok {
			return true, d < p.docs && p.live.Has(d)
		}
	}
	return false, false
}
