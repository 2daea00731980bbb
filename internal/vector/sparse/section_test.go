package sparse

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/vector"
)

var update = flag.Bool("update", false, "write the golden files of the current version anew")

// example is the worked example of FORMAT.md.
func example() *set {
	s := &set{numDocs: 3, lim: standard}
	s.add(0, pair{2, 1.5}, pair{7, 0.5})
	s.add(2, pair{7, 2})
	s.add(2, pair{2, -1}, pair{65536, 1})
	return s
}

// golden has every kind of list and block. It must never change: its files are opened for ever.
func golden(w Weights) *set {
	r := newRand(11)
	s := &set{p: Params{Weights: w}, numDocs: 120, lim: limits{vectors: 100, weights: 800, short: 12}}
	for d := range s.numDocs {
		for k := range 1 + d%3 {
			dims := []int{40, 70_000}[(d+k)%2]
			s.add(d, draw(r, 9, dims, func(uint32) float32 { return float32(int32(r.Uint32N(4001))-1000) / 1024 })...)
		}
		if d == 77 {
			for range 101 {
				s.add(d, pair{d, 1})
			}
		}
	}
	return s
}

func TestGoldenFilesOpen(t *testing.T) {
	for name, s := range map[string]*set{
		"example": example(), "v1-float32": golden(Float32), "v1-float16": golden(Float16), "v1-uint8": golden(Uint8), "v1-uint4": golden(Uint4),
	} {
		file := filepath.Join("testdata", name+".sec")
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, s.write(t), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(s.write(t), want) {
			t.Errorf("%s: the section of the same vectors has other bytes", name)
		}
		x, err := Open(want, s.numDocs)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.verify(s.lim); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, r := range s.records {
			if !bytes.Equal(x.Record(i), r) || x.Doc(i) != s.docs[i] {
				t.Fatalf("%s: record %d differs", name, i)
			}
		}
		q := query(t, Params{}, []pair{{2, 1}, {7, -0.5}, {65536, 3}, {1, 1}})
		for _, k := range []int{1, 5, 500} {
			lists, _, err := x.Search(q, Options{K: k}, nil)
			if err != nil {
				t.Fatal(err)
			}
			scan, _, err := x.Exhaustive(q, Options{K: k}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if at, same := diff(lists, scan); !same {
				t.Errorf("%s, k %d: search and scan differ at %d", name, k, at)
			}
		}
	}
}

func TestFormatPageShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []byte
	for _, line := range strings.Split(string(page), "\n") {
		// Lines of the dump: place in hexadecimal, colon, bytes, two spaces, what they are.
		place, rest, ok := strings.Cut(line, ": ")
		if !ok || len(place) != 4 || strings.Trim(place, "0123456789abcdef") != "" {
			continue
		}
		if place != fmt.Sprintf("%04x", len(shown)) {
			t.Fatalf("the dump jumps to %s at %04x", place, len(shown))
		}
		rest, _, _ = strings.Cut(rest, "  ")
		b, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		shown = append(shown, b...)
	}
	if want := example().write(t); !bytes.Equal(shown, want) {
		t.Errorf("FORMAT.md shows\n%x, the section is\n%x", shown, want)
	}
}

// copied is a source of the records of other indexes, as a merge has it.
type copied struct {
	docs []uint32
	from []*Index
	ords []int
}

func (c *copied) Len() int              { return len(c.docs) }
func (c *copied) Doc(ord int) uint32    { return c.docs[ord] }
func (c *copied) Record(ord int) []byte { return c.from[ord].Record(c.ords[ord]) }

func TestAMergeEqualsWritingAfresh(t *testing.T) {
	r := newRand(12)
	for range 10 {
		whole := &set{p: Params{Weights: Weights(r.IntN(4))}, numDocs: 300}
		parts := [2]*set{{p: whole.p, numDocs: 300}, {p: whole.p, numDocs: 300}}
		var m copied
		for d := range whole.numDocs {
			p := r.IntN(2)
			for range r.IntN(3) {
				pairs := draw(r, 20, 100_000, func(uint32) float32 { return float32(r.NormFloat64()) })
				whole.add(d, pairs...)
				m.docs, m.from, m.ords = append(m.docs, d), append(m.from, nil), append(m.ords, parts[p].Len()<<1|p)
				parts[p].add(d, pairs...)
			}
		}
		opened := [2]*Index{parts[0].open(t), parts[1].inMemory()}
		for i, o := range m.ords {
			m.from[i], m.ords[i] = opened[o&1], o>>1
		}
		var b bytes.Buffer
		if err := Write(context.Background(), &b, whole.p, whole.numDocs, &m); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), whole.write(t)) {
			t.Fatal("the bytes differ")
		}
		x := whole.open(t)
		if err := x.Verify(); err != nil {
			t.Fatal(err)
		}
		if got := x.Params(); got.Weights != whole.p.Weights {
			t.Errorf("parameters %+v", got)
		}
		memory := whole.inMemory()
		for d := range whole.numDocs + 2 {
			from, to := x.Range(d)
			mf, mt := memory.Range(d)
			if to-from != mt-mf || to > from && from != mf {
				t.Fatalf("document %d has the vectors %d to %d on disk, %d to %d in memory", d, from, to, mf, mt)
			}
			for i := from; i < to; i++ {
				if x.Doc(i) != d || memory.Doc(i) != d {
					t.Fatalf("vector %d is of document %d", i, d)
				}
			}
		}
	}
}

func TestEmptySections(t *testing.T) {
	q := query(t, Params{}, []pair{{1, 1}})
	for _, s := range []*set{{}, {numDocs: 5}, func() *set { s := &set{numDocs: 2}; s.add(1); return s }()} {
		for _, x := range []*Index{s.open(t), s.inMemory()} {
			if err := x.Verify(); err != nil {
				t.Error(err)
			}
			if hits, _, err := x.Search(q, Options{K: 3}, nil); err != nil || len(hits) != 0 {
				t.Errorf("hits %v, %v", hits, err)
			}
			if from, to := x.Range(0); from != to {
				t.Errorf("a document without vectors has %d to %d", from, to)
			}
		}
	}
}

func TestWriteRefusesWhatEncodeDoesNotMake(t *testing.T) {
	good := Encode(Params{}, nil, valueOf([]pair{{1, 1}}))
	for _, c := range []struct {
		name string
		s    set
		says string
	}{
		{"order", set{numDocs: 9, docs: []uint32{3, 2}, records: [][]byte{good, good}}, "is of document 2"},
		{"document", set{numDocs: 3, docs: []uint32{3}, records: [][]byte{good}}, "document 3 of 3"},
		{"record", set{numDocs: 3, docs: []uint32{1}, records: [][]byte{good[:5]}}, "do not fill it"},
		{"no finite weight", set{numDocs: 3, docs: []uint32{1}, records: [][]byte{{16, 0, 0, 0, 1, 0, 0, 0, 0x80, 0x7f}}}, "not finite"},
		{"unsorted", set{numDocs: 3, docs: []uint32{1}, records: [][]byte{{32, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}, "do not ascend"},
	} {
		if err := Write(context.Background(), new(bytes.Buffer), Params{}, c.s.numDocs, &c.s); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Write(ctx, new(bytes.Buffer), Params{}, 3, example()); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	full := errors.New("disk full")
	if err := Write(context.Background(), failing{full}, Params{}, 3, example()); !errors.Is(err, full) {
		t.Errorf("a failing writer: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// use does everything with a section that a reader does.
func use(b []byte, numDocs uint32, lim limits, qs []*Query) error {
	x, err := Open(b, numDocs)
	if err != nil {
		return err
	}
	for i, q := range qs {
		for _, o := range []Options{{K: 2}, {K: 1000, Accept: []uint64{0xfffffffffffffff8}}} {
			if _, _, serr := x.Search(q, o, nil); serr != nil && !errors.Is(serr, vector.ErrCorrupt) {
				return fmt.Errorf("query %d: %w", i, serr)
			}
			if _, _, serr := x.Exhaustive(q, o, nil); serr != nil {
				return fmt.Errorf("query %d: %w", i, serr)
			}
		}
		for d := range min(numDocs, 1000) {
			x.Score(q, Options{}.Combiner, d)
			x.Ordinals(q, d, nil)
		}
	}
	return x.verify(lim)
}

func TestEveryDamagedByteIsFound(t *testing.T) {
	s := golden(Float32)
	s.values, s.docs, s.records = nil, nil, nil
	r := newRand(13)
	for d := uint32(0); d < 60; d += 1 + d%2 {
		s.add(d, draw(r, 5, 30, func(uint32) float32 { return float32(r.NormFloat64()) })...)
	}
	s.lim = limits{vectors: 25, weights: 4000, short: 6}
	good := s.write(t)
	qs := []*Query{query(t, s.p, []pair{{0, 1}, {1, 1}, {2, 0.5}, {3, -1}, {4, 1}, {5, 1}})}
	if err := use(good, s.numDocs, s.lim, qs); err != nil {
		t.Fatal(err)
	}
	u16 := len(good) - trailerSize + 36 // bit 0 there says how a record came to be, which no record shows
	// Which document a vector belongs to is told nowhere else.
	docs := len(good) - trailerSize - blockEntry*len(s.open(t).blocks) - 8*s.Len() - align8(4*s.Len())
	flips := []byte{1, 0x80}
	if raceEnabled {
		flips = flips[:1]
	}
	for i := range good {
		for _, bit := range flips {
			if i == u16 && bit == 1 || i >= docs && i < docs+4*s.Len() {
				continue
			}
			b := slices.Clone(good)
			b[i] ^= bit
			err := use(b, s.numDocs, s.lim, qs)
			if !errors.Is(err, vector.ErrCorrupt) {
				t.Fatalf("bit %#x of byte %d of %d: %v", bit, i, len(good), err)
			}
		}
	}
	step := 4
	if raceEnabled {
		step = 20
	}
	for i := 0; i < len(good); i += step {
		for _, v := range []uint32{0, 1, 0x7fffffff, 0xffffffff, 0x7fc00000} {
			b := slices.Clone(good)
			le.PutUint32(b[i:], v)
			if err := use(b, s.numDocs, s.lim, qs); err != nil && !errors.Is(err, vector.ErrCorrupt) {
				t.Fatalf("%#x in place of bytes %d to %d of %d: %v", v, i, i+4, len(good), err)
			}
		}
	}
	for n := range len(good) {
		if _, err := Open(good[:n], s.numDocs); !errors.Is(err, vector.ErrCorrupt) {
			t.Fatalf("%d bytes of %d: %v", n, len(good), err)
		}
	}
	if _, err := Open(good, s.numDocs+1); !errors.Is(err, vector.ErrCorrupt) {
		t.Errorf("a section of other documents: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	e := example()
	f.Add(e.write(f), uint32(3))
	e.lim.short = 1
	f.Add(e.write(f), uint32(3))
	f.Add((&set{}).write(f), uint32(0))
	e.lim = limits{vectors: 1, weights: 10, short: 1}
	f.Add(e.write(f), uint32(3))
	qs := []*Query{query(f, Params{}, []pair{{2, 1}, {7, -1}, {65536, 3}}), query(f, Params{}, []pair{{2, 1}, {7, 1}})}
	f.Fuzz(func(t *testing.T, b []byte, numDocs uint32) {
		if err := use(b, numDocs, standard, qs); err != nil && !errors.Is(err, vector.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
