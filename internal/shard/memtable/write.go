package memtable

import (
	"context"
	"slices"

	"github.com/weft-search/weft/internal/segment"
)

// Write writes the live documents of the view as a segment, in key order, and finishes it. What dead documents held leaves no
// trace. name gives the name of a field; sources says whether sources are written. remap[d] is the number in the segment of document d, segment.NoDoc if it is dead.
func (v *View) Write(ctx context.Context, w *segment.Writer, name func(field int) string, sources bool) (info segment.Info, remap []uint32, err error) {
	order := v.keyOrder()
	remap = make([]uint32, v.n)
	for i := range remap {
		remap[i] = segment.NoDoc
	}
	for i, d := range order {
		remap[d] = uint32(i)
	}

	s := &segmentWrite{v: v, w: w, order: order, remap: remap, slot: make([]uint32, len(order))}
	s.live = make([][]uint32, len(v.fields))
	var metas []segment.FieldMeta
	for i := range v.fields {
		f := v.field(i)
		if f == nil {
			continue
		}
		for _, d := range v.presentDocs(f) {
			if r := remap[d]; r != segment.NoDoc {
				s.live[i] = append(s.live[i], r)
			}
		}
		slices.Sort(s.live[i])
		if len(s.live[i]) > 0 {
			metas = append(metas, segment.FieldMeta{ID: i, Name: name(i)})
		}
	}
	w.Begin(len(order), metas)
	for _, d := range order {
		w.Key(v.keyBytes(d), v.docTS[d])
	}
	for _, m := range metas {
		if err := s.inverted(ctx, m.ID); err != nil {
			return segment.Info{}, nil, err
		}
	}
	for _, m := range metas {
		s.numbers(m.ID)
	}
	for _, m := range metas {
		s.strings(m.ID)
	}
	for _, m := range metas {
		w.Presence(m.ID, s.live[m.ID])
	}
	for _, m := range metas {
		if f := &v.fields[m.ID]; f.vecs.dense != nil {
			w.Vectors(ctx, m.ID, *f.vecs.dense, s.records(&f.vecs))
		}
	}
	for _, m := range metas {
		if f := &v.fields[m.ID]; f.vecs.sparse != nil {
			w.SparseVectors(ctx, m.ID, *f.vecs.sparse, s.records(&f.vecs))
		}
	}
	for i, d := range order {
		if i%1024 == 0 && ctx.Err() != nil {
			return segment.Info{}, nil, ctx.Err()
		}
		if sources {
			w.Source(v.source[d])
		}
	}
	info, err = w.Finish()
	return info, remap, err
}

// keyOrder returns the live documents in the order of their keys; no two have the same.
func (v *View) keyOrder() []uint32 {
	keys := make([]uint32, 0, v.LiveDocs())
	doc := make([]uint32, len(v.keys)) // of each key
	for d := uint32(0); d < v.n; d++ {
		if len(v.killed) == 0 || v.live.Has(d) {
			keys = append(keys, v.docKey[d])
			doc[v.docKey[d]] = d
		}
	}
	sortEntries(v.c, v.keys, keys)
	for i, k := range keys {
		keys[i] = doc[k]
	}
	return keys
}

type segmentWrite struct {
	v     *View
	w     *segment.Writer
	order []uint32   // document of each number in the segment
	remap []uint32   // the inverse
	live  [][]uint32 // by field: numbers in the segment of the documents with a value, ascending

	list cachedList
	at   []uint32 // of each posting: where its positions start
	keys []uint64
	slot []uint32 // by new document: posting+1; all zero between terms

	docs, freqs, positions []uint32
}

// inverted writes the terms and postings of a field.
func (s *segmentWrite) inverted(ctx context.Context, field int) error {
	v, f := s.v, &s.v.fields[field]
	if !f.indexed {
		return nil
	}
	lens := make([]uint16, len(s.order))
	for i, d := range s.order {
		lens[i] = f.lens[d]
	}
	s.w.BeginField(field, f.positions, lens)
	terms := make([]uint32, len(f.terms))
	for i := range terms {
		terms[i] = uint32(i)
	}
	sortEntries(v.c, f.terms, terms)
	for i, n := range terms {
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e := &f.terms[n]
		s.gather(e, f.positions)
		if len(s.docs) == 0 {
			continue
		}
		s.w.StartTerm(v.c.bytes(e.term, uint32(e.size)))
		if f.positions {
			s.w.Add(s.docs, s.freqs, s.positions)
		} else {
			s.w.Add(s.docs, s.freqs, nil)
		}
		s.w.EndTerm()
	}
	s.w.EndField()
	return s.w.Err()
}

// gather leaves in docs, freqs and positions the live postings of a term under their new numbers, ascending.
func (s *segmentWrite) gather(e *entry, positions bool) {
	l := &s.list.l
	s.list.reset()
	df, end := e.load()
	s.list.advance(s.v.t.p.published(), e, df, end, positions)
	s.docs, s.freqs, s.positions, s.at, s.keys = s.docs[:0], s.freqs[:0], s.positions[:0], s.at[:0], s.keys[:0]
	at := uint32(0)
	for i, d := range l.docs {
		if d >= s.v.n {
			break
		}
		s.at = append(s.at, at)
		if positions {
			at += l.freqs[i]
		}
		if r := s.remap[d]; r != segment.NoDoc {
			s.keys = append(s.keys, uint64(r)<<32|uint64(i))
		}
	}
	if len(s.keys) > len(s.order)/16 {
		// Many: a pass over all documents is cheaper than sorting.
		for _, k := range s.keys {
			s.slot[k>>32] = uint32(k) + 1
		}
		for r, p := range s.slot {
			if p != 0 {
				s.add(uint32(r), p-1, positions)
				s.slot[r] = 0
			}
		}
		return
	}
	slices.Sort(s.keys)
	for _, k := range s.keys {
		s.add(uint32(k>>32), uint32(k), positions)
	}
}

// add appends posting i of the decoded list as that of document r.
func (s *segmentWrite) add(r, i uint32, positions bool) {
	l := &s.list.l
	s.docs = append(s.docs, r)
	s.freqs = append(s.freqs, l.freqs[i])
	if positions {
		s.positions = append(s.positions, l.positions[s.at[i]:s.at[i]+l.freqs[i]]...)
	}
}

func (s *segmentWrite) numbers(field int) {
	f := &s.v.fields[field]
	if !f.numbers {
		return
	}
	starts := make([]uint32, 1, len(s.order)+1)
	var vals []uint64
	single := true
	for _, d := range s.order {
		from, to := span(f.numEnds, d)
		vals = append(vals, f.nums[from:to]...)
		single = single && to-from == 1
		starts = append(starts, uint32(len(vals)))
	}
	if len(vals) == 0 {
		return
	}
	if single {
		starts = nil
	}
	s.w.NumColumn(field, starts, vals)
}

func (s *segmentWrite) strings(field int) {
	f := &s.v.fields[field]
	if !f.strings {
		return
	}
	starts := make([]uint32, 1, len(s.order)+1)
	var vals [][]byte
	single := true
	for _, d := range s.order {
		from, to := span(f.strEnds, d)
		for _, n := range f.ords[from:to] {
			e := &f.values[n]
			vals = append(vals, s.v.c.bytes(e.term, uint32(e.size)))
		}
		single = single && to-from == 1
		starts = append(starts, uint32(len(vals)))
	}
	if len(vals) == 0 {
		return
	}
	if single {
		starts = nil
	}
	s.w.StrColumn(field, starts, vals)
}
