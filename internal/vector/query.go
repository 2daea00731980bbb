package vector

import (
	"fmt"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vector/kernel"
	"github.com/weft-search/weft/internal/vector/topk"
)

// QueryError says why a query vector cannot be used.
type QueryError struct {
	Reason string // what is wrong, to follow the name of the field
	Limit  int    // the length that is needed, in components or bytes; 0 if the fault is another
}

// Error implements error.
func (e *QueryError) Error() string { return e.Reason }

// Query is a prepared query vector. It is immutable and safe at once.
type Query struct {
	p      Params
	vec    []float32 // of a dense query
	bits   []byte    // of a binary query
	norm   float32   // length of vec, for Cosine
	invert float32   // 1/length of vec, for Unit
	all    float32   // number of bits
}

// NewQuery prepares a query: dense of a dense field, bits of a binary one; the other is not looked at. It keeps copies. The
// error is a *QueryError: a wrong length, a component that is not finite, or a vector without a direction where the metric
// needs one.
func NewQuery(p Params, dense []float32, bits []byte) (*Query, error) {
	q := &Query{p: p}
	if p.Kind == Binary {
		if n := p.Dim / 8; len(bits) != n {
			return nil, &QueryError{Reason: fmt.Sprintf("takes a query of %d bytes (%d bits), got %d", n, p.Dim, len(bits)), Limit: n}
		}
		q.bits, q.all = append([]byte(nil), bits...), float32(p.Dim)
		return q, nil
	}
	if len(dense) != p.Dim {
		return nil, &QueryError{Reason: fmt.Sprintf("takes a query vector of %d dimensions, got %d", p.Dim, len(dense)), Limit: p.Dim}
	}
	for i, x := range dense {
		if x-x != 0 {
			return nil, &QueryError{Reason: fmt.Sprintf("takes a query vector of finite numbers, component %d is %v", i, x)}
		}
	}
	q.vec = append([]float32(nil), dense...)
	q.norm = norm(q.vec)
	if !(q.norm < schema.MaxVectorLength) { // the bound of stored vectors, so that products stay numbers
		return nil, &QueryError{Reason: fmt.Sprintf("takes a query vector of a length below %.0e", schema.MaxVectorLength)}
	}
	if p.Metric == Cosine || p.Metric == Unit {
		q.invert = 1 / q.norm
		if q.norm == 0 || q.invert-q.invert != 0 {
			return nil, &QueryError{Reason: "takes a query vector of a length above 0: this one has no direction, or too short a length to have one"}
		}
	}
	return q, nil
}

// Dim is the number of components, or bits, of the query.
func (q *Query) Dim() int { return q.p.Dim }

// score is the similarity of a record.
func (q *Query) score(rec []byte) float32 {
	switch q.p.Metric {
	case Hamming:
		return 1 - float32(kernel.Hamming(q.bits, rec))/q.all
	case L2:
		return topk.Finite(1 / (1 + q.l2(rec)))
	case Cosine:
		n := recordNorm(rec)
		if n == 0 {
			return 0
		}
		return topk.Finite(q.dot(rec[4:]) / float32(q.norm*n))
	case Unit:
		return topk.Finite(float32(q.dot(rec) * q.invert))
	default:
		return topk.Finite(q.dot(rec))
	}
}

func (q *Query) dot(rec []byte) float32 {
	switch q.p.Element {
	case F16:
		return kernel.DotF16(q.vec, rec)
	case Int8:
		lo, step := int8Head(rec)
		return kernel.DotU8(q.vec, rec[8:], lo, step)
	default:
		return kernel.DotF32(q.vec, rec)
	}
}

func (q *Query) l2(rec []byte) float32 {
	switch q.p.Element {
	case F16:
		return kernel.L2F16(q.vec, rec)
	case Int8:
		lo, step := int8Head(rec)
		return kernel.L2U8(q.vec, rec[8:], lo, step)
	default:
		return kernel.L2F32(q.vec, rec)
	}
}
