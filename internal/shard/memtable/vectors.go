package memtable

import (
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// recordTab holds the encoded vectors of one field: the records of a segment, in order of arrival. Slices grow at the end only, so that
// a view that captured them reads on while more arrive.
type recordTab struct {
	dense   *vector.Params // one of the two is set once there are vectors
	sparse  *sparse.Params
	ends    []uint32 // by document: vectors up to it
	offs    []uint64 // sparse: where each record ends
	records []byte
	n       uint32 // vectors
}

func (t *recordTab) used() bool { return t.dense != nil || t.sparse != nil }

func (t *recordTab) bytes() int64 {
	return int64(cap(t.records)) + 4*int64(cap(t.ends)) + 8*int64(cap(t.offs))
}

// add appends the vectors of a document, which follows all that have any.
func (t *recordTab) add(doc uint32, dense *vector.Params, spr *sparse.Params, buf []byte, recs []record) {
	if !t.used() {
		t.dense, t.sparse = dense, spr
	}
	t.ends = padEnds(t.ends, int(doc), int(t.n))
	for _, r := range recs {
		t.records = append(t.records, buf[r.off:r.off+r.len]...)
		if spr != nil {
			t.offs = append(t.offs, uint64(len(t.records)))
		}
	}
	t.n += uint32(len(recs))
	t.ends = append(t.ends, t.n)
}

// upTo returns the vectors of the documents below n.
func (t *recordTab) upTo(n uint32) recordTab {
	t.ends = padEnds(t.ends, int(n), int(t.n))
	v := recordTab{dense: t.dense, sparse: t.sparse, ends: t.ends[:n:n]}
	if n > 0 {
		v.n = v.ends[n-1]
	}
	if t.dense != nil {
		end := int(v.n) * t.dense.RecordSize()
		v.records = t.records[:end:end]
		return v
	}
	v.offs = t.offs[:v.n:v.n]
	if v.n > 0 {
		end := v.offs[v.n-1]
		v.records = t.records[:end:end]
	}
	return v
}

// ManyVectors calls each for the fields with so many dense or binary vectors that a segment of them may have a graph, which takes long to build. p is
// how they are kept.
func (t *Table) ManyVectors(each func(field int, p vector.Params)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.fields {
		if v := &t.fields[i].vecs; v.dense != nil && v.n >= vector.GraphFrom {
			each(i, *v.dense)
		}
	}
}

// record returns the bytes of a vector.
func (t *recordTab) record(i uint32) []byte {
	if t.dense != nil {
		size := t.dense.RecordSize()
		return t.records[int(i)*size : int(i+1)*size]
	}
	from := uint64(0)
	if i > 0 {
		from = t.offs[i-1]
	}
	return t.records[from:t.offs[i]]
}

// index makes the index of the field's vectors once for the view.
func (v *View) index(field int) *fieldView {
	f := v.field(field)
	if f == nil || f.vecs.n == 0 {
		return nil
	}
	f.vecOnce.Do(func() {
		t := &f.vecs
		if t.dense != nil {
			f.vec = vector.InMemory(*t.dense, v.n, t.ends, t.records)
		} else {
			f.spr = sparse.InMemory(*t.sparse, v.n, t.ends, t.offs, t.records)
		}
	})
	return f
}

// Vectors returns the field's dense or binary vectors, nil when there are none.
func (v *View) Vectors(field int) *vector.Index {
	if f := v.index(field); f != nil {
		return f.vec
	}
	return nil
}

// SparseVectors returns the field's sparse vectors, nil when there are none.
func (v *View) SparseVectors(field int) *sparse.Index {
	if f := v.index(field); f != nil {
		return f.spr
	}
	return nil
}

// records are the vectors of the live documents in the order of the segment.
func (s *segmentWrite) records(t *recordTab) *liveRecords {
	out := &liveRecords{t: t}
	for r, d := range s.order {
		from, to := span(t.ends, d)
		for i := from; i < to; i++ {
			out.docs = append(out.docs, uint32(r))
			out.at = append(out.at, i)
		}
	}
	return out
}

// liveRecords implements vector.Source and sparse.Source.
type liveRecords struct {
	t        *recordTab
	docs, at []uint32 // document in the segment, and place in t, of each record
}

var (
	_ vector.Source = (*liveRecords)(nil)
	_ sparse.Source = (*liveRecords)(nil)
)

func (l *liveRecords) Len() int              { return len(l.docs) }
func (l *liveRecords) Doc(ord int) uint32    { return l.docs[ord] }
func (l *liveRecords) Record(ord int) []byte { return l.t.record(l.at[ord]) }
