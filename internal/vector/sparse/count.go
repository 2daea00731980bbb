package sparse

import (
	"slices"
	"sort"
)

// Terms is the number of dimensions of a vector, 0 where its record is damaged.
func (x *Index) Terms(ord int) int {
	v, ok := parse(x.Record(ord))
	if !ok {
		return 0
	}
	return v.n
}

// Count adds the vectors of documents that accept has, nil for all, to all, and to counts[i] those of them that have dims[i]. The
// dimensions ascend. check, where not nil, is told of vectors and entries of lists as they are looked at. The error is its own, or a
// *CorruptError.
func (x *Index) Count(dims []uint32, accept []uint64, check func(n int) error, counts []uint64) (all uint64, err error) {
	pending := 0
	looked := func(n int) error {
		if pending += n; pending < checkEvery || check == nil {
			return nil
		}
		n, pending = pending, 0
		return check(n)
	}
	each := func(ord int) error {
		v, ok := parse(x.Record(ord))
		if !ok {
			return damaged("record", "its parts do not fill it")
		}
		for d, dim := range dims {
			if i := sort.Search(v.n, func(i int) bool { return v.dim(i) >= dim }); i < v.n && v.dim(i) == dim {
				counts[d]++
			}
		}
		return looked(1)
	}
	if x.ends != nil {
		for doc := range x.numDocs {
			if !accepts(accept, doc) {
				continue
			}
			for ord, to := x.Range(doc); ord < to; ord++ {
				all++
				if err := each(ord); err != nil {
					return 0, err
				}
			}
		}
		return all, nil
	}
	for i := range x.blocks {
		b := &x.blocks[i]
		for ord := b.first; ord < b.first+b.n; ord++ {
			if !accepts(accept, x.Doc(ord)) {
				continue
			}
			all++
			if !b.listed {
				if err := each(ord); err != nil {
					return 0, err
				}
			}
		}
		if !b.listed {
			continue
		}
		for d, dim := range dims {
			at, ok := slices.BinarySearch(b.dims, dim)
			if !ok {
				continue
			}
			l, err := b.list(at)
			if err != nil {
				return 0, err
			}
			if accept == nil {
				counts[d] += uint64(len(l.ords))
				continue
			}
			for _, o := range l.ords {
				if int(o) < b.n && accepts(accept, x.Doc(b.first+int(o))) {
					counts[d]++
				}
			}
			if err := looked(len(l.ords)); err != nil {
				return 0, err
			}
		}
	}
	return all, nil
}
