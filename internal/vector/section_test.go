package vector

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/schema"
)

var update = flag.Bool("update", false, "write the golden files of the current section version anew")

// goldenSections have every part of the format. They must never change: their files are opened for ever.
func goldenSections() map[string]func() (Params, uint32, *list) {
	cloud := func(p Params, n int, spread float64) (Params, uint32, *list) {
		// Integers and sixteenths, so that the vectors do not depend on a library's random normal numbers.
		r := rand.New(rand.NewPCG(1, 1))
		s := &list{p: p, docs: []uint32{}}
		for i := range n {
			v := make([]float32, p.Dim)
			c := i % 5
			for j := range v {
				v[j] = float32((c*7+j*3)%11) + float32(spread)*float32(r.Uint32()%16)/16
			}
			s.records = Encode(p, s.records, schema.AppendDense(nil, v))
			s.docs = append(s.docs, uint32(i))
		}
		return p, uint32(n), s
	}
	graph := Params{Graph: true, GraphFrom: 1, M: 4, EfConstruction: 16}
	with := func(change func(*Params)) Params {
		p := graph
		change(&p)
		return p
	}
	return map[string]func() (Params, uint32, *list){
		// The worked example of FORMAT.md.
		"example": func() (Params, uint32, *list) {
			p := Params{Dim: 2, Metric: L2, M: 4, EfConstruction: 8, Graph: true, GraphFrom: 1}
			s := encodeAll(p, [][]float32{{1, 2}, {3, 2}, {1, 4}})
			s.docs = []uint32{0, 0, 2}
			return p, 3, s
		},
		"flat": func() (Params, uint32, *list) {
			return cloud(Params{Dim: 3, Metric: Unit, Element: F16}, 20, 1)
		},
		"cosine": func() (Params, uint32, *list) {
			return cloud(with(func(p *Params) { p.Dim, p.Metric, p.Element = 5, Cosine, F16 }), 120, 2)
		},
		"dot": func() (Params, uint32, *list) {
			return cloud(with(func(p *Params) { p.Dim, p.Metric, p.Element = 9, Dot, Int8 }), 80, 3)
		},
		"fine": func() (Params, uint32, *list) {
			return cloud(with(func(p *Params) { p.Dim, p.Metric = 6, L2 }), 150, 0.001)
		},
		"groups": func() (Params, uint32, *list) {
			p, n, s := cloud(with(func(p *Params) { p.Dim, p.Metric = 4, L2 }), 90, 1)
			for i := range 20 {
				copy(s.Record(i*4), s.Record(1))
			}
			for i, d := range s.docs {
				s.docs[i] = d / 2 * 3
			}
			return p, n*3/2 + 7, s
		},
		"bits": func() (Params, uint32, *list) {
			p := with(func(p *Params) { p.Kind, p.Dim, p.Metric = Binary, 16, Hamming })
			s := &list{p: p}
			for i := range 70 {
				s.records = append(s.records, byte(i*3), byte(i/5))
			}
			return p, 70, s
		},
		"equal-bits": func() (Params, uint32, *list) {
			p := with(func(p *Params) { p.Kind, p.Dim, p.Metric = Binary, 8, Hamming })
			s := &list{p: p}
			for i := range 70 {
				s.records = append(s.records, byte(i*i))
			}
			return p, 70, s
		},
	}
}

// Sections of every version are opened for ever, and the writer still gives the bytes of its own. New golden files, under new
// names, come with a new version.
func TestGolden(t *testing.T) {
	flags := uint16(0)
	for name, c := range goldenSections() {
		p, numDocs, src := c()
		b := write(t, p, int(numDocs), src)
		flags |= le.Uint16(b[6:])
		file := filepath.Join("testdata", "v1", name+".vec")
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, want) {
			t.Errorf("%s: the writer gives other bytes than it did", name)
		}
		x, err := Open(want, numDocs)
		if err != nil {
			t.Fatal(name, err)
		}
		if err := x.Verify(); err != nil {
			t.Error(name, err)
		}
		for i := range src.Len() {
			if x.Doc(i) != src.Doc(i) || !bytes.Equal(x.Record(i), src.Record(i)) {
				t.Fatalf("%s: vector %d has changed", name, i)
			}
		}
	}
	if flags != flagWanted|flagGraph|flagEnds|flagGroups|flagFine {
		t.Errorf("golden files have flags %b", flags)
	}
}

// probe runs everything that reads a section, which may be damaged.
func probe(x *Index) error {
	err := x.Verify()
	x.always = true
	q := &Query{p: x.p, vec: make([]float32, x.p.Dim), bits: make([]byte, x.p.Dim/8), norm: 1, invert: 1, all: float32(x.p.Dim)}
	if x.p.Kind == Dense {
		q.bits = nil
		q.vec[0] = 1
	}
	accept := slices.Repeat([]uint64{0x5555_5555_5555_5555}, int(x.numDocs)/64+1)
	for _, o := range []Options{{K: 3}, {K: 3, Ef: 20, Accept: accept}} {
		for _, search := range []func(*Query, Options, []Hit) ([]Hit, Work, error){x.Exact, x.Masked, x.Unmasked} {
			hits, _, searchErr := search(q, o, nil)
			if searchErr != nil {
				panic(searchErr)
			}
			for _, h := range hits {
				if h.Doc >= x.numDocs || o.Accept != nil && !has(o.Accept, h.Doc) {
					panic("a document that is not there or not accepted")
				}
			}
		}
	}
	for d := range x.numDocs {
		x.Score(q, Options{}.Combiner, d)
		x.Ordinals(q, d, nil)
	}
	for i := range x.Len() {
		x.Doc(i)
		x.Record(i)
	}
	x.Docs()
	return err
}

// A changed byte of a section is refused by Open or by Verify, or changes what Verify cannot know: the choice of neighbours,
// values that are as good, and padding. Nothing panics.
func TestDamage(t *testing.T) {
	for name, c := range goldenSections() {
		p, numDocs, src := c()
		b := write(t, p, int(numDocs), src)
		free := func(i int) bool {
			// ef_construction leaves no trace; nor does the wish for a graph, or m, where there is none.
			return i >= 20 && i < 24 || le.Uint16(b[6:])&flagGraph == 0 && (i == 6 || i >= 16 && i < 20)
		}
		missed, tried := 0, 0
		for i := range b {
			if raceEnabled && i%3 != 0 && i < headerSize {
				continue
			}
			flips := []byte{1, 0x80, 0xff}
			step := 5
			if raceEnabled {
				step = 101
			}
			if i >= headerSize {
				if i%step != 0 {
					continue
				}
				flips = flips[i/step%3:][:1]
			}
			for _, flip := range flips {
				tried++
				bad := slices.Clone(b)
				bad[i] ^= flip
				x, err := Open(bad, numDocs)
				if err == nil {
					err = probe(x)
				}
				switch {
				case err == nil:
					missed++
					if i < headerSize && !free(i) {
						t.Errorf("%s: byte %d of the header can be %#x", name, i, bad[i])
					}
				case !errors.As(err, new(*CorruptError)) || !errors.Is(err, ErrCorrupt):
					t.Fatalf("%s: byte %d: %v is no *CorruptError", name, i, err)
				}
			}
		}
		for n := range len(b) {
			if _, err := Open(b[:n], numDocs); err == nil {
				t.Fatalf("%s: opened with %d of %d bytes", name, n, len(b))
			}
		}
		if _, err := Open(b, numDocs+1); err == nil {
			t.Errorf("%s: opened for another number of documents", name)
		}
		t.Logf("%s: %d of %d changes pass", name, missed, tried)
	}
}

// A section at an odd place in memory is read all the same.
func TestOpenUnaligned(t *testing.T) {
	p, numDocs, src := goldenSections()["groups"]()
	b := append([]byte{0}, write(t, p, int(numDocs), src)...)
	x, err := Open(b[1:], numDocs)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Verify(); err != nil {
		t.Error(err)
	}
}

func FuzzOpen(f *testing.F) {
	for _, c := range goldenSections() {
		p, numDocs, src := c()
		f.Add(write(f, p, int(numDocs), src), numDocs)
	}
	f.Fuzz(func(t *testing.T, b []byte, numDocs uint32) {
		x, err := Open(b, numDocs)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if numDocs > 1<<20 {
			return // documents without vectors take no bytes when there are none, and time
		}
		if err := probe(x); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
