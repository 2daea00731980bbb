package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vector"
)

// How the vectors of a field are kept is for good. How they are found, which is whether there are graphs and what those are like, is an option of
// the schema that may change: flushes and merges that begin from then on go by it, and until then a segment has what it was written with. Either
// way a search gives the vectors that it looks at the same scores.

// fieldVectors are the dense or binary vectors of a field of a segment.
type fieldVectors struct {
	field, n int
	p        vector.Params
}

// graphOf returns what says which graph the vectors of a field have by a schema. Where that says nothing, which no schema does of a field with vectors,
// it is the one that they have.
func graphOf(sch *schema.Schema) func(field int, p vector.Params) vector.Params {
	return func(field int, p vector.Params) vector.Params {
		if field >= len(sch.Fields) {
			return p
		}
		q, err := vector.ParamsOf(&sch.Fields[field])
		if err != nil || !q.SameRecords(p) {
			return p
		}
		return q
	}
}

// graphs returns the memory that building the greatest graph of the segment takes, one being built after the other, and whether it has others than
// it would get.
func (f *segmentFile) graphs(graph func(field int, p vector.Params) vector.Params) (heap int64, other bool) {
	for _, v := range f.vectors {
		q := graph(v.field, v.p)
		heap = max(heap, graphHeap(q, v.n))
		other = other || !v.p.SameGraph(q)
	}
	return heap, other
}

// AlterVectors makes the options of a dense or binary vector field those of f, durably, as a new generation of the schema. Segments keep the graphs
// that they have until they are merged or rebuilt; pending tells whether there are such. Errors are those of schema.AlterVectors, wrapped, and those
// of a write.
func (s *Shard) AlterVectors(ctx context.Context, f *schema.Field) (pending bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	wr, refused := s.alterVectors(f)
	if wr == nil {
		return false, refused
	}
	if err := s.await(wr); err != nil {
		return false, err
	}
	if refused != nil {
		return false, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	graph := graphOf(s.mu.schema)
	for _, p := range s.mu.segments {
		_, other := p.seg.graphs(graph)
		pending = pending || other
	}
	return pending, nil
}

func (s *Shard) alterVectors(f *schema.Field) (*write, error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	old := s.writeMu.schema
	// As with new fields, what decides may still be on its way to the disk.
	wr := &write{mem: s.writeMu.active, done: make(chan struct{})}
	sch, err := old.AlterVectors(f)
	if err != nil {
		s.enqueue(wr)
		return wr, fmt.Errorf("alter vectors: %w", err)
	}
	if sch != old {
		text, err := json.Marshal(sch)
		if err != nil {
			return nil, fmt.Errorf("alter vectors: encode schema: %w", err)
		}
		wr.schema = sch
		wr.payload = appendSchema(nil, sch.Generation, string(text))
		s.writeMu.schema = sch
	}
	s.enqueue(wr)
	return wr, nil
}

// Rebuild writes every segment anew whose vectors have other graphs than the schema asks for, one after the other. Segments that are not committed
// stay as they are.
func (s *Shard) Rebuild(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.mergeMu.lock(ctx); err != nil {
		return err
	}
	defer s.mergeMu.unlock()
	parts, sizes := s.sizes()
	for i, p := range parts {
		if !sizes[i].other {
			continue
		}
		if _, err := s.mergeParts(ctx, []*part{p}, nil); err != nil && !errors.Is(err, errReplan) {
			return fmt.Errorf("rebuild: %w", err)
		}
	}
	return nil
}
