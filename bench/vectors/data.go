package main

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/viterin/vek/vek32"
)

// data is vectors in clusters, all of unit length. Centres are normal in every component, with deviation 1; a vector is
// a random centre plus normal noise with deviation spread, brought to unit length. Queries are drawn like vectors. With
// the spread of 0.5 a vector's neighbours are those of its cluster, which is twice as far from the next one as its
// members are from each other: a graph that links only near neighbours falls into as many parts as there are clusters.
type data struct {
	dim     int
	vectors [][]float32
	queries [][]float32
}

func generate(seed uint64, n, dim, clusters, queries int, spread float64) data {
	rng := rand.New(rand.NewPCG(seed, 1))
	centres := make([][]float64, clusters)
	for i := range centres {
		centres[i] = make([]float64, dim)
		for j := range centres[i] {
			centres[i][j] = rng.NormFloat64()
		}
	}
	draw := func() []float32 {
		c := centres[rng.IntN(clusters)]
		v, out := make([]float64, dim), make([]float32, dim)
		var sum float64
		for j := range v {
			v[j] = c[j] + spread*rng.NormFloat64()
			sum += v[j] * v[j]
		}
		for j := range v {
			out[j] = float32(v[j] / math.Sqrt(sum))
		}
		return out
	}
	d := data{dim: dim}
	for range n {
		d.vectors = append(d.vectors, draw())
	}
	for range queries {
		d.queries = append(d.queries, draw())
	}
	return d
}

// bytes are the values of the vectors as weft takes them, one after the other.
func (d *data) bytes() []byte {
	out := make([]byte, 0, 4*d.dim*len(d.vectors))
	for _, v := range d.vectors {
		for _, x := range v {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
		}
	}
	return out
}

// filter is a random set of documents, each in it with probability share, as weft takes it.
func filter(seed uint64, n int, share float64) []uint64 {
	rng := rand.New(rand.NewPCG(seed, 2))
	set := make([]uint64, (n+63)/64)
	for i := range n {
		if rng.Float64() < share {
			set[i/64] |= 1 << (i % 64)
		}
	}
	return set
}

type scored struct {
	doc   uint32
	score float64
}

func byScore(a, b scored) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.doc, b.doc))
}

// truth are the k best documents of the set (nil is all) for each query, by brute force: the best few in the arithmetic of
// another package, of these the best in float64.
func (d *data) truth(set []uint64, k int) [][]uint32 {
	out := make([][]uint32, len(d.queries))
	for i, q := range d.queries {
		out[i] = d.best(q, set, k)
	}
	return out
}

func (d *data) best(q []float32, set []uint64, k int) []uint32 {
	keep := 4 * k
	top := make([]scored, 0, 2*keep)
	floor := math.Inf(-1)
	for doc, v := range d.vectors {
		if set != nil && set[doc/64]>>(doc%64)&1 == 0 {
			continue
		}
		s := float64(vek32.Dot(q, v))
		if s <= floor {
			continue
		}
		if top = append(top, scored{uint32(doc), s}); len(top) == cap(top) {
			slices.SortFunc(top, byScore)
			top = top[:keep]
			floor = top[keep-1].score
		}
	}
	for i, t := range top {
		var s float64
		for j, x := range d.vectors[t.doc] {
			s += float64(x) * float64(q[j])
		}
		top[i].score = s
	}
	slices.SortFunc(top, byScore)
	var docs []uint32
	for _, t := range top[:min(k, len(top))] {
		docs = append(docs, t.doc)
	}
	return docs
}

// recall is the share of the true documents that were found.
func recall(truth [][]uint32, found [][]uint32) float64 {
	hit, all := 0, 0
	for i, want := range truth {
		all += len(want)
		for _, doc := range want {
			if slices.Contains(found[i], doc) {
				hit++
			}
		}
	}
	if all == 0 {
		return 1
	}
	return float64(hit) / float64(all)
}
