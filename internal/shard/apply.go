package shard

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/wal"
)

// Op is one change of a batch.
type Op struct {
	// Delete removes the document of Key; else Doc is put, replacing the document of its key.
	Delete bool
	Key    string           // of a Delete
	Doc    *schema.Document // of a put; it must not change until Apply returns
	Create bool             // the put fails with ErrExists if the key is there
	If     *Condition       // the operation fails with ErrChanged if it does not hold; nil: none
	// Mark names a put, for OpResult.Behind of the next operation with its key; an even number, 0: it has no name.
	Mark uint64
}

// OpResult is what became of one operation.
type OpResult struct {
	Existed bool // a live document had the key before
	// Fresh says that nothing was done with the key for Undisturbed: none with it was written, deleted or asked to be, and nobody looked at it (see
	// Disturb). It may be false all the same: of deletions and looks only so much is kept as has room, what is in
	// a memtable counts as written now, and what is in a segment as when the segment was made of one.
	Fresh bool
	// Behind, of a put with a Mark, is that of the operation that was the last thing done with the key before, of all that Fresh speaks of; with the
	// lowest bit set if its writer has looked since (Disturb). 0: it had none, something else was done, or it is not known any more.
	Behind uint64
	Err    error // nil, ErrExists, ErrChanged or an *InvalidError: the operation had no effect
}

// Undisturbed is for how long a key with which something was done, and every key of a shard that was opened with what an earlier process wrote,
// is not written Fresh. It is far longer than one write is under way anywhere.
const Undisturbed = 10 * time.Minute

// candidate is a place in a segment where the key of an operation stands, looked up before writeMu is taken.
type candidate struct {
	op  int
	p   *part
	doc uint32
}

// opSize is the memory that an operation is charged with while it is under way.
func opSize(op *Op) int64 {
	n := int64(len(op.Key)) + 32
	if op.Doc == nil {
		return n
	}
	n += int64(len(op.Doc.Key) + len(op.Doc.Source))
	for i := range op.Doc.Fields {
		v := &op.Doc.Fields[i]
		n += 16
		for _, t := range v.Text {
			n += int64(len(t)) + 8
		}
		n += 8 * int64(len(v.Nums))
		for _, b := range v.Bytes {
			n += int64(len(b)) + 8
		}
	}
	return n
}

// Apply applies the operations in order as one batch: durable and visible when it returns. Documents are typed against the
// current schema or an earlier generation. The results are in the order of ops. When ctx ends before the batch is applied, nothing
// happens; after that Apply returns the outcome regardless of ctx.
//
// Errors: ErrOverloaded, ErrReadOnly, ErrClosed, ErrTooLarge and the context's, each without any effect. A ReadOnlyError
// that is Uncertain was met by the write itself (the log failed under it): it is not acknowledged and not visible and, unless the disk
// kept the record against its own word, gone after a restart.
func (s *Shard) Apply(ctx context.Context, ops []Op) ([]OpResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var size int64
	for i := range ops {
		size += opSize(&ops[i])
	}
	if size > min(s.cfg.PendingBytes, wal.MaxRecord-(1<<16)) {
		return nil, fmt.Errorf("batch of %d bytes: %w", size, ErrTooLarge)
	}
	if n := s.pending.Add(size); n > s.cfg.PendingBytes {
		s.pending.Add(-size)
		s.stats.refused.Add(1)
		return nil, &OverloadError{Limit: "pending_bytes", Used: n, Max: s.cfg.PendingBytes, RetryAfter: 50 * time.Millisecond}
	}
	defer s.pending.Add(-size)
	sch, err := s.admit(len(ops))
	if err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return nil, nil
	}

	results := make([]OpResult, len(ops))
	w, err := s.worker(sch)
	if err != nil {
		return nil, fmt.Errorf("prepare batch: %w", err)
	}
	defer s.giveBack(w)
	for i := range ops {
		if i%64 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if bad := s.prepare(w, sch, &ops[i], false); bad != nil {
			results[i].Err = bad
		}
		w.ends = append(w.ends, len(w.record))
	}
	layout := s.lookUp(w, ops, results)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	wr, err := s.apply(w, ops, results, layout)
	if err != nil {
		return nil, err
	}
	return results, s.await(wr)
}

// admit decides whether a write of that many operations may begin and returns the schema it is checked against.
func (s *Shard) admit(ops int) (*schema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writableLocked(); err != nil {
		return nil, err
	}
	err := s.roomLocked()
	if err != nil && ops > 0 { // an empty batch only asks
		s.stats.refused.Add(1)
	}
	return s.mu.schema, err
}

// roomLocked is the refusal of a write when the memtables are full. It needs mu.
func (s *Shard) roomLocked() error {
	used, limit := int64(0), s.cfg.MemtableBytes
	for _, p := range s.memtablesLocked() {
		used += p.mem.Size()
	}
	full := s.mu.active.mem.Size() >= limit && s.mu.frozen != nil
	if s.cfg.NoBackground {
		full = used >= 2*limit
	}
	if !full {
		return nil
	}
	if s.mu.flushErr != nil {
		// The disk is the reason, not the load: say so.
		return &ReadOnlyError{Cause: fmt.Errorf("memtables are full and cannot be flushed: %w", s.mu.flushErr)}
	}
	return &OverloadError{Limit: "memtable_bytes", Used: used, Max: 2 * limit, RetryAfter: s.retryAfter()}
}

// prepare checks, encodes and inverts one operation; logged says that it comes from the log. It needs no lock.
func (s *Shard) prepare(w *worker, sch *schema.Schema, op *Op, logged bool) error {
	if op.Delete {
		if reason := badKey(op.Key); reason != "" {
			return &InvalidError{Key: shorten(op.Key), Reason: reason}
		}
		w.record = appendDelete(w.record, op.Key)
		return nil
	}
	if op.Doc == nil {
		return &InvalidError{Key: shorten(op.Key), Reason: "there is no document to put"}
	}
	if bad := validate(sch, op.Doc, logged); bad != nil {
		return bad
	}
	doc := op.Doc
	if s.cfg.NoSources && doc.Source != nil {
		bare := *doc
		bare.Source = nil
		doc = &bare
	}
	w.record = appendPut(w.record, doc)
	w.inv.Add(&w.batch, doc)
	return nil
}

func (op *Op) key() string {
	if op.Delete {
		return op.Key
	}
	return op.Doc.Key
}

// lookUp finds where the keys of the operations stand in segments. Places in segments never change, so this holds as long as
// the layout, whose number it returns, stays.
func (s *Shard) lookUp(w *worker, ops []Op, results []OpResult) uint64 {
	s.mu.Lock()
	layout := s.layout.Load()
	segments := s.mu.segments
	for _, p := range segments {
		p.seg.retain()
	}
	s.mu.Unlock()
	w.found = w.found[:0]
	for i := range ops {
		if results[i].Err != nil {
			continue
		}
		for _, p := range segments {
			if d, ok := p.seg.find(ops[i].key()); ok {
				w.found = append(w.found, candidate{i, p, d})
			}
		}
	}
	for _, p := range segments {
		p.seg.release()
	}
	return layout
}

// apply takes the effect of a prepared batch on the applied state and queues its record.
func (s *Shard) apply(w *worker, ops []Op, results []OpResult, layout uint64) (*write, error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if layout != s.layout.Load() {
		// A flush or merge came between. It changes the layout under writeMu, so from here it stays.
		s.lookUp(w, ops, results)
	}
	s.mu.Lock()
	err := s.writableLocked()
	if err == nil {
		if err = s.roomLocked(); err != nil {
			s.stats.refused.Add(1)
		}
	}
	frozen := s.mu.frozen
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}

	wr := s.effect(w, ops, results, s.nextTS(), frozen)
	s.enqueue(wr)
	// Deletes fill the log without filling the memtable.
	full := s.writeMu.active.mem.Size() >= s.cfg.MemtableBytes || s.writeMu.logged >= logFactor*s.cfg.MemtableBytes
	if full && frozen == nil && !s.cfg.NoBackground {
		s.freeze()
	}
	return wr, nil
}

// logFactor bounds the log that an Open has to replay, in memtables.
const logFactor = 2

// headerRoom is space for the header of a batch record: two bytes and two varints.
const headerRoom = 2 + 2*binary.MaxVarintLen64

// effect applies the operations that have no error to the memtable and the applied sets, and returns the write with its record.
// It needs writeMu.
func (s *Shard) effect(w *worker, ops []Op, results []OpResult, ts uint64, frozen *part) *write {
	active := s.writeMu.active
	wr := &write{mem: active, first: active.mem.Len(), ts: ts, done: make(chan struct{})}
	body := make([]byte, headerRoom, headerRoom+len(w.record))
	logged, batched, from, found := 0, 0, 0, w.found
	now := time.Now()
	for i := range ops {
		op, r := &ops[i], &results[i]
		record := w.record[from:w.ends[i]]
		from = w.ends[i]
		if r.Err != nil {
			continue
		}
		n := 0
		for n < len(found) && found[n].op == i {
			n++
		}
		old, doc, exists := s.findApplied(op.key(), frozen, found[:n])
		found = found[n:]
		r.Existed = exists
		r.Fresh = !op.Delete && (!exists || old.rested(now)) && !s.writeMu.disturbed.lately(op.Doc.Key, now)
		if !op.Delete {
			batched++
		}
		if op.Delete {
			s.writeMu.disturbed.add(op.Key, now)
			s.writeMu.marks.note(op.Key, 0)
		}
		switch {
		case !op.If.holds(old, doc, exists):
			r.Err = ErrChanged
			continue
		case op.Create && exists && !op.Delete:
			r.Err = ErrExists
			continue
		case op.Delete && !exists:
			continue
		}
		if exists {
			old.applied.Remove(doc)
			wr.kills = append(wr.kills, kill{old, doc})
		}
		if !op.Delete {
			if behind := s.writeMu.marks.note(op.Doc.Key, op.Mark); op.Mark != 0 {
				r.Behind = behind
			}
			d := active.mem.Insert(&w.batch, batched-1, ts)
			active.applied = grow(active.applied, int(d)+1)
			active.applied.Add(d)
		}
		body = append(body, record...)
		logged++
	}
	active.mem.Charge()
	wr.end = active.mem.Len()
	if logged > 0 {
		var h [headerRoom]byte
		b := appendHeader(h[:0], recordBatch)
		b = binary.AppendUvarint(b, ts)
		b = binary.AppendUvarint(b, uint64(logged))
		wr.payload = body[headerRoom-len(b):]
		copy(wr.payload, b)
		s.writeMu.logged += int64(len(wr.payload))
	}
	return wr
}

// nextTS returns a commit timestamp above all before. It needs writeMu.
func (s *Shard) nextTS() uint64 {
	s.writeMu.lastTS = max(s.writeMu.lastTS+1, s.cfg.Clock())
	return s.writeMu.lastTS
}

// findApplied returns the document with the key that is alive after all applied operations: at most one is. in are its places
// in segments. It needs writeMu.
func (s *Shard) findApplied(key string, frozen *part, in []candidate) (*part, uint32, bool) {
	if d, ok := s.writeMu.active.findApplied(key); ok {
		return s.writeMu.active, d, true
	}
	if frozen != nil && frozen != s.writeMu.active {
		if d, ok := frozen.findApplied(key); ok {
			return frozen, d, true
		}
	}
	for _, c := range in {
		if p, d, ok := current(c.p, c.doc); ok && p.applied.Has(d) {
			return p, d, true
		}
	}
	return nil, 0, false
}

// AddFields makes the fields part of the schema, durably, as a new generation. Fields that are there already with the same
// definition are left out; if nothing remains it does nothing. A field that is there with another definition is refused with the
// schema's error. However it ends, Schema then shows at least the schema that the answer was given by.
func (s *Shard) AddFields(ctx context.Context, fields []schema.Field) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	wr, refused := s.addFields(fields)
	if wr == nil {
		return refused
	}
	if err := s.await(wr); err != nil {
		return err
	}
	return refused
}

func (s *Shard) addFields(fields []schema.Field) (*write, error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	old := s.writeMu.schema
	// Whether nothing is new or a field conflicts, the schema that says so may still be on its way to the disk, by another
	// caller: take a turn behind it.
	wr := &write{mem: s.writeMu.active, done: make(chan struct{})}
	sch, err := old.AddFields(fields)
	if err != nil {
		s.enqueue(wr)
		return wr, fmt.Errorf("add fields: %w", err)
	}
	if len(sch.Fields) != len(old.Fields) {
		if sch.Generation <= old.Generation {
			grown := *sch
			grown.Generation = old.Generation + 1
			sch = &grown
		}
		text, err := json.Marshal(sch)
		if err != nil {
			return nil, fmt.Errorf("add fields: encode schema: %w", err)
		}
		wr.schema = sch
		wr.payload = appendSchema(nil, sch.Generation, string(text))
		s.writeMu.schema = sch
	}
	s.enqueue(wr)
	return wr, nil
}
