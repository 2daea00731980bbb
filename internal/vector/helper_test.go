package vector

import (
	"bytes"
	"context"
	"math/rand/v2"

	"github.com/weft-search/weft/internal/schema"
)

// tester is what helpers need of a testing.TB and of a rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
}

// list is a source of records in memory; without docs each is of the document of its number.
type list struct {
	p       Params
	records []byte
	docs    []uint32
}

func (s *list) Len() int { return len(s.records) / s.p.RecordSize() }

func (s *list) Doc(ord int) uint32 {
	if s.docs == nil {
		return uint32(ord)
	}
	return s.docs[ord]
}

func (s *list) Record(ord int) []byte {
	return s.records[ord*s.p.RecordSize() : (ord+1)*s.p.RecordSize()]
}

// ends is the running number of vectors by document.
func (s *list) ends(numDocs uint32) []uint32 {
	ends := make([]uint32, numDocs)
	for i := range s.Len() {
		ends[s.Doc(i)]++
	}
	for d := 1; d < len(ends); d++ {
		ends[d] += ends[d-1]
	}
	return ends
}

func encodeAll(p Params, vecs [][]float32) *list {
	s := &list{p: p}
	var b []byte
	for _, v := range vecs {
		b = schema.AppendDense(b[:0], v)
		s.records = Encode(p, s.records, b)
	}
	return s
}

func write(t tester, p Params, numDocs int, src Source) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(context.Background(), &b, p, uint32(numDocs), src); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// section writes and opens a section.
func section(t tester, p Params, numDocs int, src Source) *Index {
	t.Helper()
	x, err := Open(write(t, p, numDocs, src), uint32(numDocs))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func query(t tester, p Params, dense []float32, bits []byte) *Query {
	t.Helper()
	q, err := NewQuery(p, dense, bits)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// clustered makes n vectors around centres whose components are normal with deviation 1; members deviate by spread.
func clustered(r *rand.Rand, n, dim, clusters int, spread float64) (vecs [][]float32, of []int) {
	centres := make([][]float64, clusters)
	for i := range centres {
		centres[i] = make([]float64, dim)
		for j := range centres[i] {
			centres[i][j] = r.NormFloat64()
		}
	}
	for range n {
		c := r.IntN(clusters)
		v := make([]float32, dim)
		for j := range v {
			v[j] = float32(centres[c][j] + spread*r.NormFloat64())
		}
		vecs, of = append(vecs, v), append(of, c)
	}
	return vecs, of
}

// recall is the share of want that is in got.
func recall(want, got []Hit) float64 {
	if len(want) == 0 {
		return 1
	}
	in := map[uint32]bool{}
	for _, h := range got {
		in[h.Doc] = true
	}
	n := 0
	for _, h := range want {
		if in[h.Doc] {
			n++
		}
	}
	return float64(n) / float64(len(want))
}

func setOf(numDocs int, member func(d int) bool) []uint64 {
	set := make([]uint64, (numDocs+63)/64)
	for d := range numDocs {
		if member(d) {
			set[d/64] |= 1 << (d % 64)
		}
	}
	return set
}
