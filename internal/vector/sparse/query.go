package sparse

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/topk"
)

// MaxQueryDims is the number of weights that a query can have; it is Summa's default limit.
const MaxQueryDims = 4096

// QueryError says why a query cannot be used; Limit is the limit that it broke, if it broke one.
type QueryError = vector.QueryError

// filterDims is the number of bits of a query's filter: dimensions are told apart by their low 16 bits.
const filterDims = 1 << 16

// Query is a prepared query. It is immutable and safe to use at once.
type Query struct {
	dims    []uint32 // ascending
	weights []float32
	// filter has the bit of dim mod 2^16 for each dimension, so that most dimensions of a record need one look. If no dimension of
	// the query is above that, rank has the number of bits before each word, so that a hit is found without a search.
	filter [filterDims / 64]uint64
	rank   [filterDims / 64]uint16
	wide   bool // has dimensions from 2^16 on
}

// NewQuery prepares a query of weights for dimensions, in any order; those of equal dimensions are added up in the order given, and
// dimensions whose weight is 0 are left out. It keeps no reference. The error is a *QueryError: lengths that differ, more than
// MaxQueryDims weights, a weight or a sum that is not finite, a dimension above 65,535 for a field that has u16, weights that are all 0 or
// none, a length from schema.MaxVectorLength on.
func NewQuery(p Params, indices []uint32, weights []float32) (*Query, error) {
	switch {
	case len(indices) != len(weights):
		return nil, &QueryError{Reason: fmt.Sprintf("takes as many weights as indices, got %d and %d", len(weights), len(indices))}
	case len(indices) > MaxQueryDims:
		return nil, &QueryError{Reason: fmt.Sprintf("takes a query of at most %d weights, got %d", MaxQueryDims, len(indices)), Limit: MaxQueryDims}
	}
	pairs := make([]pair, len(indices))
	for i, dim := range indices {
		w := weights[i]
		switch {
		case w-w != 0:
			return nil, &QueryError{Reason: fmt.Sprintf("takes a query of finite weights, weight %d is %v", i, w)}
		case p.U16 && dim > math.MaxUint16:
			return nil, &QueryError{Reason: fmt.Sprintf("has indices up to %d, index %d of the query is %d", math.MaxUint16, i, dim), Limit: math.MaxUint16}
		}
		pairs[i] = pair{dim, w}
	}
	slices.SortStableFunc(pairs, compareDims)
	q := &Query{dims: make([]uint32, 0, len(pairs)), weights: make([]float32, 0, len(pairs))}
	length := 0.0
	for i := 0; i < len(pairs); {
		dim, sum := pairs[i].dim, pairs[i].w
		for i++; i < len(pairs) && pairs[i].dim == dim; i++ {
			sum += pairs[i].w
		}
		switch {
		case sum-sum != 0:
			return nil, &QueryError{Reason: fmt.Sprintf("takes a query of finite weights, those of index %d add up to %v", dim, sum)}
		case sum == 0:
			continue
		}
		q.dims, q.weights = append(q.dims, dim), append(q.weights, sum)
		length += float64(sum) * float64(sum)
	}
	switch {
	case len(q.dims) == 0:
		return nil, &QueryError{Reason: "takes a query with at least one weight that is not 0"}
	case length >= schema.MaxVectorLength*schema.MaxVectorLength:
		return nil, &QueryError{Reason: fmt.Sprintf("takes a query of a length below %.0e", schema.MaxVectorLength)}
	}
	for _, dim := range q.dims {
		q.filter[uint16(dim)>>6] |= 1 << (dim & 63)
		q.wide = q.wide || dim > math.MaxUint16
	}
	n := uint16(0)
	for i, w := range q.filter {
		q.rank[i] = n
		n += uint16(bits.OnesCount64(w))
	}
	return q, nil
}

// at returns the place of a dimension in the query whose filter bit is set; ok is false if the query has another of the same bit.
func (q *Query) at(dim uint32) (i int, ok bool) {
	if q.wide {
		return slices.BinarySearch(q.dims, dim)
	}
	if dim > math.MaxUint16 {
		return 0, false
	}
	return int(q.rank[dim>>6]) + bits.OnesCount64(q.filter[dim>>6]&(1<<(dim&63)-1)), true
}

// score is the score of a record and whether it shares a dimension with the query. A damaged record shares none.
func (q *Query) score(rec []byte) (s float32, matches bool) {
	v, ok := parse(rec)
	if !ok {
		return 0, false
	}
	i, d := 0, v.dims
	if !v.wide {
		// Four dimensions in one load.
		for ; i+4 <= v.n; i += 4 {
			x := le.Uint64(d[2*i:])
			a, b, c, e := uint16(x), uint16(x>>16), uint16(x>>32), uint16(x>>48)
			hits := q.filter[a>>6]>>(a&63)&1 | q.filter[b>>6]>>(b&63)&1<<1 | q.filter[c>>6]>>(c&63)&1<<2 | q.filter[e>>6]>>(e&63)&1<<3
			for ; hits != 0; hits &= hits - 1 {
				k := bits.TrailingZeros64(hits)
				if j, ok := q.at(uint32(uint16(x >> (16 * k)))); ok {
					s += float32(q.weights[j] * v.weight(i+k))
					matches = true
				}
			}
		}
	}
	for ; i < v.n; i++ {
		dim := v.dim(i)
		if q.filter[uint16(dim)>>6]>>(dim&63)&1 == 0 {
			continue
		}
		if j, ok := q.at(dim); ok {
			s += float32(q.weights[j] * v.weight(i))
			matches = true
		}
	}
	return topk.Finite(s), matches
}
