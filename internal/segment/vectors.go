package segment

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// The sections of vectors are written and read by packages vector and vector/sparse, whose FORMAT.md describe them. Here they are
// streamed into the file and, in a merge, gathered from the sources.

// Vectors writes the dense or binary vectors of a field. src numbers the documents as the segment does; a field without vectors leaves
// no trace. Building a graph takes long: when ctx ends, the writer fails with its error.
func (w *Writer) Vectors(ctx context.Context, field int, p vector.Params, src vector.Source) {
	if !w.advance(stageVectors, field) || src.Len() == 0 {
		return
	}
	w.cur.Vectors = true
	if w.o.Graph != nil {
		q := w.o.Graph(field, p)
		p.Graph, p.M, p.EfConstruction = q.Graph, q.M, q.EfConstruction
	}
	w.stream(tagVectors, field, func(sw io.Writer) error { return vector.Write(ctx, sw, p, uint32(w.docs), src) })
}

// SparseVectors writes the sparse vectors of a field; see Vectors.
func (w *Writer) SparseVectors(ctx context.Context, field int, p sparse.Params, src sparse.Source) {
	if !w.advance(stageSparse, field) || src.Len() == 0 {
		return
	}
	w.cur.Sparse = true
	w.stream(tagSparse, field, func(sw io.Writer) error { return sparse.Write(ctx, sw, p, uint32(w.docs), src) })
}

// stream writes a section with write.
func (w *Writer) stream(t tag, field int, write func(io.Writer) error) {
	w.out.begin(t, field)
	if err := write(sectionStream{&w.out}); err != nil {
		w.fail(fmt.Errorf("%v of field %d: %w", t, field, err))
		return
	}
	w.out.end()
}

// sectionStream is the open section of an output.
type sectionStream struct{ o *output }

func (s sectionStream) Write(b []byte) (int, error) {
	s.o.write(b)
	if s.o.err != nil {
		return 0, s.o.err
	}
	return len(b), nil
}

// vectorError is the error for what package vector or vector/sparse found in the section.
func (s *section) vectorError(err error) error { return s.corrupt(err.Error()) }

// records is what an index of vectors and a source of them have in common.
type records interface {
	Len() int
	Doc(ord int) uint32
	Record(ord int) []byte
}

// mergedRecords are the records of the live documents of several indexes, in the order of the new documents.
type mergedRecords struct {
	idx  []records // by source; nil for one without
	from []uint16  // source of each new document
	docs []uint32  // new document of each record
	ords []uint32  // place in its source of each
}

func (m *mergedRecords) Len() int           { return len(m.docs) }
func (m *mergedRecords) Doc(ord int) uint32 { return m.docs[ord] }
func (m *mergedRecords) Record(ord int) []byte {
	return m.idx[m.from[m.docs[ord]]].Record(int(m.ords[ord]))
}

// gather finds the records of the new documents.
func (m *merger) gather(t tag, field int, idx []records) (*mergedRecords, error) {
	out := &mergedRecords{idx: idx, from: m.from}
	total := 0
	for _, x := range idx {
		if x != nil {
			total += x.Len()
		}
	}
	out.docs = make([]uint32, 0, total)
	out.ords = make([]uint32, 0, total)
	next := make([]int, len(idx)) // first record of each source that is not before its current document
	n := uint32(0)
	err := m.each(func(src int, doc uint32) error {
		x := idx[src]
		if x == nil {
			n++
			return nil
		}
		i := next[src]
		for ; i < x.Len(); i++ {
			d := x.Doc(i)
			if i > 0 && d < x.Doc(i-1) {
				return m.sources[src].R.find(t, uint32(field)).damaged("record %d is of document %d, the one before of a later one", i, d)
			}
			if d > doc {
				break
			}
			if d == doc {
				out.docs = append(out.docs, n)
				out.ords = append(out.ords, uint32(i))
			}
		}
		next[src] = i
		n++
		return nil
	})
	return out, err
}

// vectors merges the dense or binary vectors of a field.
func (m *merger) vectors(meta FieldMeta) error {
	idx := make([]records, len(m.sources))
	var p vector.Params
	found := false
	for i, s := range m.sources {
		x, ok := s.R.Vectors(meta.ID)
		if !ok {
			continue
		}
		if found && x.Params() != p && (m.w.o.Graph == nil || !x.Params().SameRecords(p)) {
			return fmt.Errorf("vectors are %+v in one segment and %+v in another: %w", p, x.Params(), ErrOrder)
		}
		idx[i], p, found = x, x.Params(), true
	}
	if !found {
		return nil
	}
	src, err := m.gather(tagVectors, meta.ID, idx)
	if err != nil {
		return err
	}
	m.w.Vectors(m.ctx, meta.ID, p, src)
	return m.blame(tagVectors, meta.ID, idx)
}

// sparse merges the sparse vectors of a field.
func (m *merger) sparse(meta FieldMeta) error {
	idx := make([]records, len(m.sources))
	var p sparse.Params
	found := false
	for i, s := range m.sources {
		x, ok := s.R.SparseVectors(meta.ID)
		if !ok {
			continue
		}
		if found && x.Params() != p {
			return fmt.Errorf("sparse vectors are %+v in one segment and %+v in another: %w", p, x.Params(), ErrOrder)
		}
		idx[i], p, found = x, x.Params(), true
	}
	if !found {
		return nil
	}
	src, err := m.gather(tagSparse, meta.ID, idx)
	if err != nil {
		return err
	}
	m.w.SparseVectors(m.ctx, meta.ID, p, src)
	return m.blame(tagSparse, meta.ID, idx)
}

// blame looks for the damaged source of records that could not be written.
func (m *merger) blame(t tag, field int, idx []records) error {
	if m.w.Err() == nil || m.w.out.err != nil || m.ctx.Err() != nil {
		return nil
	}
	for i, x := range idx {
		if v, ok := x.(vectorIndex); ok {
			if err := v.Verify(); err != nil {
				return m.sources[i].R.find(t, uint32(field)).damaged("%v", err)
			}
		}
	}
	return nil
}

// vectorIndex is what both kinds of indexes offer to a check.
type vectorIndex interface {
	records
	Verify() error
}

// vectors checks an index of vectors.
func (v *verifier) vectors(s *section, x vectorIndex, set *Presence) error {
	if err := v.work(len(s.data)); err != nil {
		return err
	}
	if err := x.Verify(); err != nil {
		return s.damaged("%v", err)
	}
	if x.Len() == 0 {
		return s.damaged("there are no vectors")
	}
	last := uint32(0)
	for i := range x.Len() {
		d := x.Doc(i)
		if d < last || d >= v.r.docs {
			return s.damaged("vector %d is of document %d, the one before of %d", i, d, last)
		}
		if set != nil && !set.Has(d) {
			return s.damaged("document %d has a vector and is not in the set of documents with a value", d)
		}
		last = d
		if err := v.work(4); err != nil {
			return err
		}
	}
	return nil
}

func (d *describer) vectors(x *vector.Index) {
	p := x.Params()
	d.f(1, "%d vectors in %d documents, %d bytes each, %+v, graph %v", x.Len(), x.Docs(), p.RecordSize(), p, x.HasGraph())
	d.records(x)
}

func (d *describer) sparse(x *sparse.Index) {
	d.f(1, "%d vectors in %d documents, %+v", x.Len(), x.Docs(), x.Params())
	d.records(x)
}

// describeRecord bounds the bytes of a record that are printed.
const describeRecord = 32

func (d *describer) records(x records) {
	for i := range min(x.Len(), describeDocs) {
		b := slices.Clone(x.Record(i))
		d.f(2, "document %d % x%s", x.Doc(i), b[:min(len(b), describeRecord)], more(len(b), describeRecord))
	}
}
