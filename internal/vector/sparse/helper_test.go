package sparse

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
)

// set is the vectors of some documents as a test made them.
type set struct {
	p       Params
	numDocs uint32
	lim     limits
	docs    []uint32 // by vector
	values  [][]pair // by vector
	records [][]byte
}

func (s *set) Len() int              { return len(s.docs) }
func (s *set) Doc(ord int) uint32    { return s.docs[ord] }
func (s *set) Record(ord int) []byte { return s.records[ord] }

// add gives document doc one more vector.
func (s *set) add(doc uint32, pairs ...pair) {
	s.docs = append(s.docs, doc)
	s.values = append(s.values, pairs)
	s.records = append(s.records, Encode(s.p, nil, valueOf(pairs)))
}

func valueOf(pairs []pair) (value []byte) {
	for _, x := range pairs {
		value = schema.AppendSparse(value, x.dim, x.w)
	}
	return value
}

func (s *set) write(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	lim := s.lim
	if lim.vectors == 0 {
		lim = standard
	}
	if err := write(context.Background(), &b, s.p, s.numDocs, s, lim); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (s *set) open(t testing.TB) *Index {
	t.Helper()
	x, err := Open(s.write(t), s.numDocs)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// inMemory is the index that a memtable makes of the set.
func (s *set) inMemory() *Index {
	ends := make([]uint32, s.numDocs)
	for _, d := range s.docs {
		ends[d]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	var offs []uint64
	var records []byte
	for _, r := range s.records {
		records = append(records, r...)
		offs = append(offs, uint64(len(records)))
	}
	return InMemory(s.p, s.numDocs, ends, offs, records)
}

// oracle scores every document from the pairs of its values, which must be kept as float32.
func (s *set) oracle(q []pair, c score.Combiner, accept []uint64, before func(a, b uint32) bool, k int) []Hit {
	weights := map[uint32]float32{}
	for _, x := range q {
		weights[x.dim] += x.w
	}
	var hits []Hit
	for i := 0; i < len(s.docs); {
		doc := s.docs[i]
		var scores []float32
		for ; i < len(s.docs) && s.docs[i] == doc; i++ {
			sum, ok := float32(0), false
			for _, x := range s.values[i] {
				if w := weights[x.dim]; w != 0 && x.w != 0 {
					product := w * x.w
					sum += float32(product)
					ok = true
				}
			}
			if ok {
				scores = append(scores, sum)
			}
		}
		if len(scores) > 0 && (accept == nil || int(doc/64) < len(accept) && accept[doc/64]>>(doc%64)&1 != 0) {
			hits = append(hits, Hit{Doc: doc, Score: c.Combine(scores)})
		}
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		switch {
		case a.Score != b.Score:
			return cmp.Compare(b.Score, a.Score)
		case before == nil:
			return cmp.Compare(a.Doc, b.Doc)
		case before(a.Doc, b.Doc):
			return -1
		}
		return 1
	})
	return hits[:min(k, len(hits))]
}

func query(t testing.TB, p Params, pairs []pair) *Query {
	t.Helper()
	var dims []uint32
	var ws []float32
	for _, x := range pairs {
		dims, ws = append(dims, x.dim), append(ws, x.w)
	}
	q, err := NewQuery(p, dims, ws)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// diff says how hits differ from those wanted, in any bit.
func diff(got, want []Hit) (at int, same bool) {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i].Doc != want[i].Doc || math.Float32bits(got[i].Score) != math.Float32bits(want[i].Score) {
			return i, false
		}
	}
	return 0, true
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x5ba6)) }

// zipf draws a number below n, small ones more often.
func zipf(r *rand.Rand, n int) uint32 {
	return uint32(min(float64(n-1), math.Pow(float64(n), r.Float64())-1))
}

// draw makes a vector of up to n weights.
func draw(r *rand.Rand, n, dims int, weight func(dim uint32) float32) []pair {
	seen := map[uint32]bool{}
	var out []pair
	for range n {
		if d := zipf(r, dims); !seen[d] {
			seen[d] = true
			out = append(out, pair{d, weight(d)})
		}
	}
	slices.SortFunc(out, compareDims)
	return out
}
