package vector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
)

func TestParamsOf(t *testing.T) {
	sdl := func(field string) (Params, error) {
		s, err := schema.ParseSDL("index a { field v: "+field+" }", func(string) error { return nil })
		if err != nil {
			t.Fatal(field, err)
		}
		id, _ := s.Lookup("v")
		return ParamsOf(&s.Fields[id])
	}
	graph := Params{Graph: true, M: DefaultM, EfConstruction: DefaultEfConstruction}
	for field, change := range map[string]func(*Params){
		"dense_vector<3> [indexed]":                                   func(p *Params) { p.Dim = 3 },
		"dense_vector<4, f16> [indexed<metric: cosine>]":              func(p *Params) { p.Dim, p.Element, p.Metric = 4, F16, Cosine },
		"dense_vector<4, uint8> [indexed<metric: l2, flat>]":          func(p *Params) { p.Dim, p.Element, p.Metric, p.Graph = 4, Int8, L2, false },
		"dense_vector<4, int8> [indexed<index: ivf_tq, metric: dot>]": func(p *Params) { p.Dim, p.Element, p.Metric = 4, Int8, Dot },
		"dense_vector<4> [indexed<m: 24, ef_construction: 300>]":      func(p *Params) { p.Dim, p.M, p.EfConstruction = 4, 24, 300 },
		"binary_dense_vector<16> [indexed<ivf>]":                      func(p *Params) { p.Kind, p.Dim, p.Metric = Binary, 16, Hamming },
		"binary_dense_vector<16> [indexed<flat>]":                     func(p *Params) { p.Kind, p.Dim, p.Metric, p.Graph = Binary, 16, Hamming, false },
	} {
		want := graph
		change(&want)
		if got, err := sdl(field); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", field, got, err, want)
		}
	}
	if _, err := ParamsOf(&schema.Field{Name: "x", Type: schema.Text}); err == nil || !strings.Contains(err.Error(), "field x") {
		t.Error("a text field has parameters", err)
	}
}

func TestRecords(t *testing.T) {
	dense := Params{Dim: 3, Metric: L2}
	for _, c := range []struct {
		name   string
		change func(*Params)
		value  []float32
		want   []float32 // decoded
		size   int
	}{
		{"f32", func(*Params) {}, []float32{1.5, -2, 3e38}, []float32{1.5, -2, 3e38}, 12},
		{"f16", func(p *Params) { p.Element = F16 }, []float32{1.0004883, 70000, -1e9}, []float32{1, 65504, -65504}, 6},
		{"int8 of integers is exact", func(p *Params) { p.Element = Int8 }, []float32{-100, 155, 3}, []float32{-100, 155, 3}, 11},
		{"int8 of others is scaled", func(p *Params) { p.Element = Int8 }, []float32{0, 510, 3}, []float32{0, 510, 4}, 11},
		{"int8 of equal components", func(p *Params) { p.Element = Int8 }, []float32{0.1, 0.1, 0.1}, []float32{0.1, 0.1, 0.1}, 11},
		{"int8 of the whole range", func(p *Params) { p.Element = Int8 }, []float32{math.MaxFloat32, 0, math.MaxFloat32}, []float32{float32(math.MaxFloat32/255) * 255, 0, float32(math.MaxFloat32/255) * 255}, 11},
	} {
		p := dense
		c.change(&p)
		rec := Encode(p, nil, schema.AppendDense(nil, c.value))
		got := make([]float32, 3)
		decode(p, rec, got)
		if len(rec) != c.size || p.RecordSize() != c.size {
			t.Errorf("%s: %d bytes, want %d", c.name, len(rec), c.size)
		}
		for i := range got {
			if d := math.Abs(float64(got[i]-c.want[i])) / max(1, math.Abs(float64(c.want[i]))); !(d < 1e-6) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
		p.Metric = Cosine
		withNorm := Encode(p, []byte{9}, schema.AppendDense(nil, c.value))
		if withNorm[0] != 9 || !bytes.Equal(withNorm[5:], rec) || len(withNorm) != 1+p.RecordSize() || recordNorm(withNorm[1:]) != norm(got) {
			t.Errorf("%s: with its norm the record is %x", c.name, withNorm)
		}
	}
}

func TestQueriesThatCannotBe(t *testing.T) {
	p := Params{Dim: 3, Metric: Cosine}
	for _, c := range []struct {
		p     Params
		v     []float32
		bits  []byte
		want  string
		limit int
	}{
		{p, []float32{1, 2}, nil, "3 dimensions, got 2", 3},
		{p, nil, nil, "3 dimensions, got 0", 3},
		{p, []float32{1, float32(math.NaN()), 2}, nil, "component 1 is NaN", 0},
		{p, []float32{1, 2, float32(math.Inf(-1))}, nil, "component 2 is -Inf", 0},
		{p, []float32{0, 0, 0}, nil, "length above 0", 0},
		{Params{Dim: 3}, []float32{0, 0, 0}, nil, "length above 0", 0},
		{Params{Dim: 3}, []float32{1e-40, 0, 0}, nil, "length above 0", 0},
		{p, []float32{3e38, 0, 0}, nil, "length below 1e+19", 0},
		{Params{Dim: 3, Metric: Dot}, []float32{3e38, 0, 0}, nil, "length below 1e+19", 0},
		{Params{Dim: 3, Metric: L2}, []float32{1e19, 1e19, 0}, nil, "length below 1e+19", 0},
		{Params{Kind: Binary, Dim: 16, Metric: Hamming}, nil, []byte{1}, "2 bytes (16 bits), got 1", 2},
	} {
		_, err := NewQuery(c.p, c.v, c.bits)
		var qe *QueryError
		if !errors.As(err, &qe) || !strings.Contains(err.Error(), c.want) || qe.Limit != c.limit {
			t.Errorf("%v: %v, want %q and limit %d", c.v, err, c.want, c.limit)
		}
	}
	for _, m := range []Metric{Dot, L2} {
		if _, err := NewQuery(Params{Dim: 3, Metric: m}, []float32{0, 0, 0}, nil); err != nil {
			t.Errorf("metric %d refuses the zero vector: %v", m, err)
		}
	}
}

// A graph does not depend on the number of processors, and copying the records of a section gives the section.
func TestSectionsAreCanonical(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	vecs, _ := clustered(r, 700, 12, 30, 0.3)
	for i := range 90 {
		vecs[i*7] = vecs[3]
	}
	for metric := Unit; metric <= L2; metric++ {
		p := Params{Dim: 12, Metric: metric, Graph: true, GraphFrom: 1, M: 6, EfConstruction: 40}
		src := encodeAll(p, vecs)
		before := runtime.GOMAXPROCS(1)
		one := write(t, p, len(vecs), src)
		runtime.GOMAXPROCS(6)
		three := write(t, p, len(vecs), src)
		runtime.GOMAXPROCS(before)
		if !bytes.Equal(one, three) {
			t.Fatalf("metric %d: one worker and three build different sections", metric)
		}
		x, err := Open(one, uint32(len(vecs)))
		if err != nil {
			t.Fatal(err)
		}
		again := x.Params()
		again.GraphFrom = 1
		if !bytes.Equal(one, write(t, again, len(vecs), x)) {
			t.Fatalf("metric %d: the copy of a section differs", metric)
		}
	}
}

// nothing but equal vectors, one vector, none: K above their number, no accepted document, K of 0.
func TestSmallAndEqual(t *testing.T) {
	sizes := []int{0, 1, 2, 40, 3000}
	if raceEnabled {
		sizes[4] = 200
	}
	for _, n := range sizes {
		for _, dim := range []int{1, 5} {
			for metric := Unit; metric <= L2; metric++ {
				t.Run(fmt.Sprint(n, dim, metric), func(t *testing.T) {
					p := Params{Dim: dim, Metric: metric, Graph: true, GraphFrom: 1}
					v := make([]float32, dim)
					v[0] = 2
					x := section(t, p, n, encodeAll(p, slices.Repeat([][]float32{v}, n)))
					x.always = true
					if err := x.Verify(); err != nil || x.HasGraph() != (n > 0) {
						t.Fatal(err, x.HasGraph())
					}
					q := query(t, p, v, nil)
					for name, search := range map[string]func(*Query, Options, []Hit) ([]Hit, Work, error){"exact": x.Exact, "masked": x.Masked, "unmasked": x.Unmasked} {
						for _, k := range []int{-1, 0, 1, 10, n + 5} {
							for _, accept := range [][]uint64{nil, {}, setOf(n, func(int) bool { return false }), setOf(n, func(d int) bool { return d%3 == 1 })} {
								got, _, err := search(q, Options{K: k, Accept: accept}, nil)
								if err != nil {
									t.Fatal(err)
								}
								var want []uint32
								for d := range uint32(n) {
									if len(want) < k && (accept == nil || has(accept, d)) {
										want = append(want, d)
									}
								}
								var docs []uint32
								for _, h := range got {
									docs = append(docs, h.Doc)
								}
								if !slices.Equal(docs, want) {
									t.Fatalf("%s, K %d: %v, want %v", name, k, docs, want)
								}
							}
						}
					}
				})
			}
		}
	}
}

func TestNoGraphBelowTheBound(t *testing.T) {
	p := Params{Dim: 2, Metric: L2, Graph: true, GraphFrom: 10}
	vecs, _ := clustered(rand.New(rand.NewPCG(1, 1)), 10, 2, 3, 1)
	flat := p
	flat.Graph = false
	for _, c := range []struct {
		p    Params
		n    int
		want bool
	}{{p, 9, false}, {p, 10, true}, {flat, 10, false}} {
		x := section(t, c.p, c.n, encodeAll(c.p, vecs[:c.n]))
		if x.HasGraph() != c.want || x.Params().Graph != c.p.Graph {
			t.Errorf("%d vectors: graph %v, want %v", c.n, x.HasGraph(), c.want)
		}
	}
}

// Documents with several vectors: the graph proposes them by their best one, and they are scored whole.
func TestSeveralVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	const docs = 500
	p := Params{Dim: 16, Metric: Cosine, Element: F16, Graph: true, GraphFrom: 1}
	src := &list{p: p, docs: []uint32{}}
	vecs, _ := clustered(r, docs*4, p.Dim, 60, 0.5)
	for d := range docs {
		for range r.IntN(5) {
			src.records = Encode(p, src.records, schema.AppendDense(nil, vecs[r.IntN(len(vecs))]))
			src.docs = append(src.docs, uint32(d))
		}
	}
	x := section(t, p, docs, src)
	x.always = true
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	sum, n := 0.0, 0
	for range 40 {
		q := query(t, p, vecs[r.IntN(len(vecs))], nil)
		for _, accept := range [][]uint64{nil, setOf(docs, func(d int) bool { return d%4 == 0 })} {
			o := Options{K: 10, Accept: accept, Combiner: score.Combiner{Kind: score.Max}}
			want, _, err := x.Exact(q, o, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, search := range []func(*Query, Options, []Hit) ([]Hit, Work, error){x.Masked, x.Unmasked} {
				got, w, err := search(q, o, nil)
				if err != nil || w.Rescored == 0 || w.Visited == 0 || w.Distances == 0 {
					t.Fatal(err, w)
				}
				sum += recall(want, got)
				n++
			}
		}
	}
	if sum/float64(n) < 0.95 {
		t.Errorf("recall %.4f", sum/float64(n))
	}
}

func TestBitVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 9))
	const n = 800
	p := Params{Kind: Binary, Dim: 128, Metric: Hamming, Graph: true, GraphFrom: 1}
	src := &list{p: p}
	var centres [30][16]byte
	for i := range centres {
		for j := range centres[i] {
			centres[i][j] = byte(r.Uint32())
		}
	}
	draw := func() []byte {
		b := slices.Clone(centres[r.IntN(len(centres))][:])
		for range r.IntN(30) {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
		return b
	}
	for range n {
		src.records = Encode(p, src.records, draw())
	}
	x := section(t, p, n, src)
	x.always = true
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	good, all := 0, 0
	for range 60 {
		q := query(t, p, nil, draw())
		want, _, err := x.Exact(q, Options{K: 10}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := x.Unmasked(q, Options{K: 10}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range got {
			if h.Score >= want[9].Score {
				good++
			}
		}
		all += 10
	}
	if float64(good)/float64(all) < 0.95 {
		t.Errorf("recall %d of %d", good, all)
	}
}

// The check of the options is called in every kind of search, and its error ends it.
func TestCheckEndsASearch(t *testing.T) {
	l := hills()
	x := l.index(t)
	x.always = true
	defer func() { x.always = false }()
	stop := errors.New("stop")
	q := query(t, l.p, l.queries[0], nil)
	accept := setOf(l.n, func(d int) bool { return d%3 == 0 })
	for name, search := range map[string]func(*Query, Options, []Hit) ([]Hit, Work, error){"exact": x.Exact, "masked": x.Masked, "unmasked": x.Unmasked} {
		calls, told := 0, 0
		_, w, err := search(q, Options{K: 10, Ef: 1500, Accept: accept, Check: func(n int) error { calls, told = calls+1, told+n; return nil }}, nil)
		if err != nil || calls == 0 || told == 0 || uint64(told) > w.Distances+w.Rescored {
			t.Errorf("%s: %d calls told of %d of %+v: %v", name, calls, told, w, err)
		}
		got, _, err := search(q, Options{K: 10, Ef: 1500, Accept: accept, Check: func(int) error { return stop }}, nil)
		if !errors.Is(err, stop) || len(got) != 0 {
			t.Errorf("%s: %v, %d hits", name, err, len(got))
		}
		if got, _, err = search(q, Options{K: 10, Accept: accept}, nil); err != nil || len(got) != 10 {
			t.Errorf("%s after an end: %v, %d hits", name, err, len(got))
		}
	}
}

type brokenWriter struct{ left int }

var errFull = errors.New("disk full")

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// outOfOrder is a source whose documents descend.
type outOfOrder struct{ *list }

func (s outOfOrder) Doc(ord int) uint32 { return uint32(s.Len() - ord - 1) }

func TestWriteFails(t *testing.T) {
	vecs, _ := clustered(rand.New(rand.NewPCG(1, 1)), 300, 4, 3, 1)
	p := Params{Dim: 4, Metric: L2, Graph: true, GraphFrom: 1}
	src := encodeAll(p, vecs)
	size := len(write(t, p, 300, src))
	for _, room := range []int{0, 70, size / 2, size - 1} {
		if err := Write(context.Background(), &brokenWriter{room}, p, 300, src); !errors.Is(err, errFull) {
			t.Errorf("room for %d of %d bytes: %v", room, size, err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("why")
	cancel(why)
	for _, graph := range []bool{true, false} {
		p.Graph = graph
		if err := Write(ctx, &bytes.Buffer{}, p, 300, src); !errors.Is(err, why) {
			t.Errorf("graph %v: %v", graph, err)
		}
	}
	for name, err := range map[string]error{
		"document out of range": Write(context.Background(), &bytes.Buffer{}, p, 299, src),
		"documents descend":     Write(context.Background(), &bytes.Buffer{}, p, 300, outOfOrder{src}),
		"no dimensions":         Write(context.Background(), &bytes.Buffer{}, Params{Metric: L2}, 300, src),
		"m out of range":        Write(context.Background(), &bytes.Buffer{}, Params{Dim: 4, Metric: L2, M: 1000}, 300, src),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A warm search allocates nothing.
func TestSearchAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := hills()
	x := l.index(t)
	x.always = true
	defer func() { x.always = false }()
	q := query(t, l.p, l.queries[0], nil)
	buf := make([]Hit, 0, 16)
	accept := setOf(l.n, func(d int) bool { return d%3 == 0 })
	for name, search := range map[string]func(*Query, Options, []Hit) ([]Hit, Work, error){"exact": x.Exact, "masked": x.Masked, "unmasked": x.Unmasked} {
		for _, set := range [][]uint64{nil, accept} {
			run := func() {
				if _, _, err := search(q, Options{K: 10, Accept: set}, buf); err != nil {
					t.Fatal(err)
				}
			}
			run()
			if n := testing.AllocsPerRun(50, run); n >= 1 {
				t.Errorf("%s allocates %v times", name, n)
			}
		}
	}
}
