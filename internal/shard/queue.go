package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/wal"
)

// write is an applied batch on its way to the log.
type write struct {
	payload []byte // log record; nil for a write that only takes its turn
	mem     *part  // memtable that its documents went into
	first   uint32 // its documents there
	end     uint32
	kills   []kill
	ts      uint64
	schema  *schema.Schema // new schema, or nil
	freeze  *part          // the memtable that takes over from here: a flush starts after this write

	done chan struct{} // closed when err is final
	err  error
}

type kill struct {
	p   *part
	doc uint32
}

// enqueue puts a write in line for the log. It needs writeMu, so that the order of the line is the order of application.
func (s *Shard) enqueue(wr *write) {
	s.mu.Lock()
	s.mu.queue = append(s.mu.queue, wr)
	s.mu.Unlock()
}

// freeze closes the active memtable and starts the next one; the write that it queues marks the place. It needs writeMu, and
// that there is no frozen memtable.
func (s *Shard) freeze() {
	next := newMemPart()
	wr := &write{mem: s.writeMu.active, freeze: next, done: make(chan struct{})}
	s.writeMu.active, s.writeMu.logged = next, 0
	s.mu.Lock()
	s.mu.frozen = wr.mem
	s.mu.active = next
	s.mu.queue = append(s.mu.queue, wr)
	s.mu.Unlock()
}

// await returns when the write is durable and visible, or failed. Whoever holds the lead works for all who wait.
func (s *Shard) await(wr *write) error {
	select {
	case <-wr.done:
	case s.lead <- struct{}{}:
		s.commitQueue()
		<-s.lead
		<-wr.done // it was in the queue, or an earlier leader had it
	}
	return wr.err
}

// commitAll brings whatever is queued to an end.
func (s *Shard) commitAll() {
	s.lead <- struct{}{}
	s.commitQueue()
	<-s.lead
}

// maxGroup bounds the bytes that go to the log in one call, unless a single record is larger.
const maxGroup = 16 << 20

// commitQueue writes the records that are queued now, with as few fsyncs as may be, and makes the writes visible, in order. It
// needs the lead.
func (s *Shard) commitQueue() {
	s.mu.Lock()
	queue := s.mu.queue
	s.mu.queue = nil
	s.mu.Unlock()
	for len(queue) > 0 {
		n, size := 0, 0
		for n < len(queue) && (n == 0 || size+len(queue[n].payload) <= maxGroup) {
			size += len(queue[n].payload)
			n++
		}
		s.commitGroup(queue[:n])
		queue = queue[n:]
	}
}

// commitGroup brings some writes to their end.
func (s *Shard) commitGroup(group []*write) {
	s.mu.Lock()
	failed := s.mu.readOnly
	s.mu.Unlock()
	var payloads [][]byte
	for _, wr := range group {
		if wr.payload != nil {
			payloads = append(payloads, wr.payload)
		}
	}
	var first uint64
	var err error
	uncertain := false
	if failed == nil && len(payloads) > 0 {
		// Not the caller's context: the writes of others are in it.
		first, err = s.wal.AppendBatch(context.Background(), payloads)
	}

	s.mu.Lock()
	switch {
	case failed != nil:
	case err != nil:
		uncertain = !errors.Is(err, wal.ErrNoSpace) // after that one the log is as it was
		failed = s.failLocked(fmt.Errorf("write the log: %w", err), !uncertain)
	case len(payloads) > 0 && first != s.mu.seq+1:
		uncertain = true
		failed = s.failLocked(fmt.Errorf("log gave number %d to a record after %d", first, s.mu.seq), false)
	}
	frozen := false
	for _, wr := range group {
		if failed != nil {
			wr.err = failed
			if uncertain && wr.payload != nil {
				wr.err = &ReadOnlyError{Cause: failed.Cause, Uncertain: true}
			}
			continue
		}
		s.publishLocked(wr)
		frozen = frozen || wr.freeze != nil
	}
	s.mu.Unlock()
	for _, wr := range group {
		close(wr.done)
	}
	if failed != nil {
		signal(s.healC)
	}
	if frozen {
		signal(s.flushC)
	}
}

// publishLocked makes a durable write visible. It needs mu.
func (s *Shard) publishLocked(wr *write) {
	if wr.payload != nil {
		s.pinLocked()
		s.mu.seq++
		s.mu.ts = max(s.mu.ts, wr.ts)
	}
	if wr.end > wr.first {
		wr.mem.showLocked(wr.first, wr.end)
	}
	for _, k := range wr.kills {
		if p, d, ok := current(k.p, k.doc); ok {
			p.killLocked(d)
		}
	}
	if wr.schema != nil {
		s.mu.schema = wr.schema
	}
	if wr.freeze != nil {
		s.mu.frozenReady = true
		s.mu.mark = mark{seq: s.mu.seq, ts: s.mu.ts, schema: s.mu.schema}
		for _, p := range s.mu.segments {
			p.marked = len(p.killed)
		}
		s.mu.frozenView = nil
		if wr.mem.aliveLocked() > 0 {
			s.mu.frozenView = wr.mem.leafLocked()
		}
	}
	s.changedLocked()
}
