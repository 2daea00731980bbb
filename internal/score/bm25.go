// Package score holds every formula that ranks: one implementation for shards and for every coordinator.
//
// All BM25 arithmetic is IEEE 754 binary32 in a fixed order, never fused, so that the same statistics give the same bits on
// every machine and in every layout of the same documents (docs/query.md, Scores).
//
// Functions are pure; values are safe to share.
package score

import "math"

// IDF returns ln((N − df + 0.5)/(df + 0.5) + 1) in binary32.
func IDF(docs, df uint64) float32 {
	n, d := float32(docs), float32(df)
	q := float32(float32(n-d)+0.5) / float32(d+0.5)
	return Ln(q + 1)
}

// AvgLen returns the average length of a field, at least 1. It is 1 for a field without documents.
func AvgLen(f FieldStats) float32 {
	if f.Docs == 0 {
		return 1
	}
	return max(float32(float64(f.SumLen)/float64(f.Docs)), 1)
}

// Norm returns k1·(1 − b + b·(len/avg)), the part of the denominator that depends on the document only. avg is AvgLen's.
func Norm(length uint32, avg, k1, b float32) float32 {
	r := float32(length) / avg
	return float32(k1 * float32(float32(1-b)+float32(b*r)))
}

// TF returns idf · ((tf·(k1+1)) / (tf + norm)).
func TF(idf, tf, k1, norm float32) float32 {
	return float32(idf * float32(float32(tf*float32(k1+1))/float32(tf+norm)))
}

// Ln returns the natural logarithm of a positive finite x, rounded to binary32. It uses only operations that IEEE 754 rounds
// correctly, so the result does not depend on the machine.
func Ln(x float32) float32 {
	frac, exp := math.Frexp(float64(x)) // exact
	if frac < math.Sqrt2/2 {
		frac *= 2
		exp--
	}
	// ln m = 2·artanh((m−1)/(m+1)); |s| ≤ 0.1716, so twelve terms leave less than 1e-19.
	s := (frac - 1) / (frac + 1)
	s2 := float64(s * s)
	var p float64
	for k := 23; k >= 1; k -= 2 {
		p = float64(p*s2) + 1/float64(k)
	}
	return float32(float64(float64(2*s)*p) + float64(float64(exp)*math.Ln2))
}

// Weight scores one term of one field: IDF, Norm and TF with what does not depend on the document taken out of the loop. Its scores
// have the bits of TF(idf, tf, k1, Norm(length, avg, k1, b)).
type Weight struct {
	idf, k1, k1p1, kb0, b, avg float32
}

// NewWeight returns the weight of a term with the given idf in a field with the given average length and parameters.
func NewWeight(idf, avg, k1, b float32) Weight {
	return Weight{idf: idf, k1: k1, k1p1: float32(k1 + 1), kb0: float32(1 - b), b: b, avg: avg}
}

// Score is the score of a document that holds the term tf times in length tokens.
func (w *Weight) Score(tf uint32, length uint16) float32 {
	f := float32(tf)
	norm := float32(w.k1 * float32(w.kb0+float32(w.b*float32(float32(length)/w.avg))))
	return float32(w.idf * float32(float32(f*w.k1p1)/float32(f+norm)))
}

// Limit is what Score tends to as tf grows, and its bound but for rounding.
func (w *Weight) Limit() float32 { return float32(w.idf * w.k1p1) }
