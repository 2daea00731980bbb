package vector

import (
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/vector/kernel"
	"github.com/weft-search/weft/internal/vector/topk"
	"pgregory.net/rapid"
)

// model is a set of documents as a plain reading of the documentation has it.
type model struct {
	p      Params
	values [][][]float32 // by document, decoded; of binary vectors one 0 or 1 for each bit
	source *list
}

// decodeModel decodes a value as its record should hold it.
func decodeModel(p Params, v []float32) []float32 {
	out := slices.Clone(v)
	switch p.Element {
	case F16:
		for i, x := range v {
			var b [2]byte
			kernel.EncodeF16(b[:], []float32{min(max(x, -65504), 65504)})
			kernel.DecodeF16(out[i:i+1], b[:])
		}
	case Int8:
		lo, hi, whole := slices.Min(v), slices.Max(v), true
		for _, x := range v {
			whole = whole && x == float32(math.Floor(float64(x)))
		}
		if whole && float64(hi)-float64(lo) <= 255 {
			return out
		}
		step := float32(min(float64(hi)-float64(lo), math.MaxFloat32) / 255)
		for lo+float32(step*255) > math.MaxFloat32 {
			step = math.Nextafter32(step, 0)
		}
		for i, x := range v {
			u := 0.0
			if step > 0 {
				u = min(math.RoundToEven((float64(x)-float64(lo))/float64(step)), 255)
			}
			out[i] = lo + float32(step*float32(u))
		}
	}
	return out
}

// scoreModel is the score of a decoded vector.
func scoreModel(p Params, q, v []float32) float32 {
	limit := func(s float32) float32 {
		switch {
		case s != s, s < -math.MaxFloat32:
			return -math.MaxFloat32
		case s > math.MaxFloat32:
			return math.MaxFloat32
		}
		return s
	}
	length := func(v []float32) float32 { return float32(math.Sqrt(float64(kernel.Dot(v, v)))) }
	switch p.Metric {
	case Unit:
		return limit(kernel.Dot(q, v) * (1 / length(q)))
	case Cosine:
		if length(v) == 0 {
			return 0
		}
		n := length(q) * length(v)
		return limit(kernel.Dot(q, v) / n)
	case Dot:
		return limit(kernel.Dot(q, v))
	case L2:
		return limit(1 / (1 + kernel.L2(q, v)))
	default:
		n := 0
		for i := range q {
			if q[i] != v[i] {
				n++
			}
		}
		return 1 - float32(n)/float32(len(q))
	}
}

// search is the oracle.
func (m *model) search(q []float32, o Options) []Hit {
	var hits []Hit
	for d, values := range m.values {
		if len(values) == 0 || o.Accept != nil && (d/64 >= len(o.Accept) || o.Accept[d/64]>>(d%64)&1 == 0) {
			continue
		}
		var s []float32
		for _, v := range values {
			s = append(s, scoreModel(m.p, q, v))
		}
		c := o.Combiner.Combine(s)
		if c-c != 0 {
			c = topk.Finite(c)
		}
		hits = append(hits, Hit{Doc: uint32(d), Score: c})
	}
	sort.SliceStable(hits, func(i, j int) bool {
		if hits[i].Score != hits[j].Score {
			return hits[i].Score > hits[j].Score
		}
		if o.Before != nil {
			return o.Before(hits[i].Doc, hits[j].Doc)
		}
		return hits[i].Doc < hits[j].Doc
	})
	return hits[:min(len(hits), max(o.K, 0))]
}

// number draws a component: mostly small, sometimes an integer, zero, huge or tiny.
func number(t *rapid.T) float32 {
	switch rapid.IntRange(0, 9).Draw(t, "how") {
	case 0:
		return 0
	case 1, 2, 3:
		return float32(rapid.IntRange(-3, 250).Draw(t, "integer"))
	case 4:
		return rapid.SampledFrom([]float32{1e5, -7e4, 3e38, -3e38, 1e-30, 1e-45, 65520}).Draw(t, "far")
	default:
		return float32(rapid.Float64Range(-2, 2).Draw(t, "float"))
	}
}

func drawVector(t *rapid.T, p Params) []float32 {
	v := make([]float32, p.Dim)
	plain := rapid.Bool().Draw(t, "plain")
	for i := range v {
		switch {
		case p.Kind == Binary:
			v[i] = float32(rapid.IntRange(0, 1).Draw(t, "bit"))
		case plain:
			v[i] = float32(rapid.IntRange(-9, 9).Draw(t, "small"))
		default:
			v[i] = number(t)
		}
	}
	return v
}

// value is the form of a vector in schema.Values.
func value(p Params, v []float32) []byte {
	if p.Kind == Dense {
		return schema.AppendDense(nil, v)
	}
	b := make([]byte, len(v)/8)
	for i, x := range v {
		if x != 0 {
			b[i/8] |= 1 << (i % 8)
		}
	}
	return b
}

func drawParams(t *rapid.T) Params {
	p := Params{Graph: true, GraphFrom: 1, M: rapid.SampledFrom([]int{0, 4, 8}).Draw(t, "m"), EfConstruction: rapid.SampledFrom([]int{0, 8, 64}).Draw(t, "efc")}
	if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
		p.Kind, p.Metric, p.Dim = Binary, Hamming, 8*rapid.IntRange(1, 4).Draw(t, "bytes")
		return p
	}
	p.Element = Element(rapid.IntRange(0, 2).Draw(t, "element"))
	p.Metric = Metric(rapid.IntRange(0, 3).Draw(t, "metric"))
	p.Dim = rapid.SampledFrom([]int{1, 2, 7, 33}).Draw(t, "dim")
	return p
}

func drawModel(t *rapid.T) *model {
	p := drawParams(t)
	m := &model{p: p, source: &list{p: p, docs: []uint32{}}}
	single := rapid.Bool().Draw(t, "single")
	var before [][]float32
	for d := range rapid.IntRange(0, 70).Draw(t, "docs") {
		n := 1
		if !single {
			n = rapid.IntRange(0, 3).Draw(t, "values")
		}
		var values [][]float32
		for range n {
			var v []float32
			if len(before) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
				v = rapid.SampledFrom(before).Draw(t, "equal")
			} else {
				v = drawVector(t, p)
			}
			before = append(before, v)
			m.source.records = Encode(p, m.source.records, value(p, v))
			m.source.docs = append(m.source.docs, uint32(d))
			values = append(values, decodeModel(p, v))
		}
		m.values = append(m.values, values)
	}
	return m
}

func drawOptions(t *rapid.T, docs int) Options {
	o := Options{K: rapid.IntRange(0, 12).Draw(t, "k"), Ef: rapid.SampledFrom([]int{0, 1, 5, 30}).Draw(t, "ef")}
	o.Combiner = score.Combiner{Kind: score.CombinerKind(rapid.IntRange(0, 4).Draw(t, "combiner"))}
	if rapid.IntRange(0, 5).Draw(t, "large") == 0 {
		o.K = 1000
	}
	if share := rapid.IntRange(0, 4).Draw(t, "accept"); share > 0 {
		o.Accept = make([]uint64, rapid.IntRange(0, docs/64+2).Draw(t, "words"))
		for i := range o.Accept {
			o.Accept[i] = rapid.Uint64().Draw(t, "set")
			if share == 2 {
				o.Accept[i] &= rapid.Uint64().Draw(t, "fewer") & rapid.Uint64().Draw(t, "still fewer")
			}
		}
	}
	if rapid.Bool().Draw(t, "reversed") {
		o.Before = func(a, b uint32) bool { return a > b }
	}
	return o
}

func sameHits(t *rapid.T, what string, want, got []Hit) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: %d hits, want %d\n%v\n%v", what, len(got), len(want), got, want)
	}
	for i := range want {
		if want[i].Doc != got[i].Doc || math.Float32bits(want[i].Score) != math.Float32bits(got[i].Score) && want[i].Score != got[i].Score {
			t.Fatalf("%s: hit %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// Every search over random documents is compared with the plain reading of the documentation: exact scans bit for bit, graph
// searches for what they promise: exact scores, in order, of accepted documents, and all of them if there are no more than K.
func TestSearchEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		docs := len(m.values)
		sec := section(t, m.p, docs, m.source)
		sec.always = rapid.Bool().Draw(t, "always")
		mem := InMemory(m.p, uint32(docs), m.source.ends(uint32(docs)), m.source.records)
		for _, x := range []*Index{sec, mem} {
			if err := x.Verify(); err != nil {
				t.Fatal(err)
			}
			m.checkShape(t, x)
		}
		if sec.HasGraph() != (m.source.Len() > 0) || mem.HasGraph() {
			t.Fatal("graph is there or not against the parameters")
		}
		for range 3 {
			v := drawVector(t, m.p)
			q, err := NewQuery(m.p, v, value(m.p, v))
			if err != nil {
				continue // without a direction; see TestQueriesThatCannotBe
			}
			o := drawOptions(t, docs)
			want := m.search(v, o)
			all := o
			all.K, all.Accept = docs, nil
			scores := map[uint32]float32{}
			for _, h := range m.search(v, all) {
				scores[h.Doc] = h.Score
			}
			for _, x := range []*Index{sec, mem} {
				got, _, err := x.Exact(q, o, nil)
				if err != nil {
					t.Fatal(err)
				}
				sameHits(t, "exact", want, got)
				for d := range uint32(docs) + 2 {
					s, ok := x.Score(q, o.Combiner, d)
					if w, has := scores[d]; ok != has || s != w {
						t.Fatalf("document %d scores %v %v, want %v %v", d, s, ok, w, has)
					}
					var values []float32
					if int(d) < docs {
						for _, dec := range m.values[d] {
							values = append(values, scoreModel(m.p, v, dec))
						}
					}
					if got := x.Ordinals(q, d, nil); !slices.Equal(got, values) {
						t.Fatalf("values of document %d score %v, want %v", d, got, values)
					}
				}
			}
			for name, search := range map[string]func(*Query, Options, []Hit) ([]Hit, Work, error){
				"masked": sec.Masked, "unmasked": sec.Unmasked, "masked in memory": mem.Masked, "unmasked in memory": mem.Unmasked,
			} {
				prefix := []Hit{{Doc: 77}}
				got, _, err := search(q, o, prefix)
				if err != nil || got[0] != prefix[0] {
					t.Fatal(name, err, got)
				}
				got = got[1:]
				if len(got) != len(want) {
					t.Fatalf("%s found %d of %d", name, len(got), len(want))
				}
				rank := topk.Heap{Before: o.Before}
				for i, h := range got {
					if s, ok := scores[h.Doc]; !ok || s != h.Score {
						t.Fatalf("%s: document %d scores %v, want %v", name, h.Doc, h.Score, s)
					}
					if o.Accept != nil && !has(o.Accept, h.Doc) {
						t.Fatalf("%s: document %d is not accepted", name, h.Doc)
					}
					if i > 0 && !rank.Better(got[i-1], h) {
						t.Fatalf("%s: hits are out of order: %v", name, got)
					}
				}
				if len(want) < o.K || !sec.HasGraph() {
					sameHits(t, name, want, got)
				}
			}
		}
	})
}

// checkShape compares what an index says about its documents.
func (m *model) checkShape(t *rapid.T, x *Index) {
	if x.Len() != m.source.Len() {
		t.Fatalf("%d vectors, want %d", x.Len(), m.source.Len())
	}
	ord, having := 0, 0
	for d, values := range m.values {
		from, to := x.Range(uint32(d))
		if to-from != len(values) || len(values) > 0 && from != ord {
			t.Fatalf("document %d has vectors %d to %d, want %d from %d", d, from, to, len(values), ord)
		}
		for range values {
			if x.Doc(ord) != uint32(d) || string(x.Record(ord)) != string(m.source.Record(ord)) {
				t.Fatalf("vector %d is of document %d or another record", ord, x.Doc(ord))
			}
			ord++
		}
		having += min(len(values), 1)
	}
	if x.Docs() != having {
		t.Fatalf("%d documents, want %d", x.Docs(), having)
	}
}
