package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestWriteRead(t *testing.T) {
	for _, n := range []int{0, 1, 2, 15, 16, 17, 127, 128, 129, 300, 1024, 1025, 3000} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		m := randomModel(rng, n)
		r, err := FromBytes("test", m.bytes(t))
		if err != nil {
			t.Fatalf("%d documents: %v", n, err)
		}
		m.check(t, r)
	}
}

// modelList makes a list of random documents below n as a model, with up to maxFreq occurrences.
func modelList(rng *rand.Rand, n int, share float64, maxFreq int) *model {
	m := &model{fields: []modelField{{meta: FieldMeta{ID: 0, Name: "f"}, kind: 't', positions: true}}}
	for i := range n {
		d := modelDoc{key: fmt.Sprintf("%08d", i), text: map[int]map[string][]uint32{0: {"other": {0}}}}
		if rng.Float64() < share {
			var pos []uint32
			p := uint32(rng.IntN(3))
			for range int(math.Pow(float64(maxFreq), rng.Float64())) {
				pos = append(pos, p)
				p += uint32(rng.IntN(5)) * uint32(rng.IntN(2+rng.IntN(1000)))
			}
			d.text[0]["term"] = pos
		}
		m.docs = append(m.docs, d)
	}
	return m
}

// plain returns the documents, frequencies and positions of a term of field 0.
func (m *model) plain(term string) (docs, freqs, pos []uint32) {
	for i := range m.docs {
		if p := m.docs[i].text[0][term]; len(p) > 0 {
			docs, freqs, pos = append(docs, uint32(i)), append(freqs, uint32(len(p))), append(pos, p...)
		}
	}
	return docs, freqs, pos
}

// Lists of every size and shape, in a segment and in arrays, give the same answers in any order of reading.
func TestLists(t *testing.T) {
	for i, c := range []struct {
		n       int
		share   float64
		maxFreq int
	}{
		{1, 1, 1},
		{1, 1, 8},
		{1, 1, 9},
		{1, 1, 127},
		{3, 1, 128},
		{1, 1, 300},
		{10, 1, 1},
		{127, 1, 1},
		{128, 1, 1},
		{129, 1, 1},
		{127, 1, 50},
		{16, 1, 40},
		{1500, .5, 2},
		{2000, .1, 300},
		{3000, .01, 10},
		{256, 1, 200},
		{1000, 1, 1},
	} {
		rng := rand.New(rand.NewPCG(7, uint64(i)))
		m := modelList(rng, c.n, c.share, c.maxFreq)
		r, err := FromBytes("list", m.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		m.check(t, r)
		docs, freqs, pos := m.plain("term")
		a := ArrayPostings(docs, freqs, pos)
		m.checkList(t, &a, m.fields[0], "term", docs, r.Lengths(0))
		p, ok := r.Postings(0, []byte("term"))
		if !ok {
			t.Fatalf("case %d: no list", i)
		}
		starts := []int{0}
		for _, f := range freqs {
			starts = append(starts, starts[len(starts)-1]+int(f))
		}
		for range 300 {
			j := rng.IntN(len(docs))
			b := j / BlockSize
			for _, l := range []*Postings{&a, &p} {
				var f [BlockSize]uint32
				l.Freqs(b, &f)
				if got := l.Positions(b, j%BlockSize, &f, nil); !slices.Equal(got, pos[starts[j]:starts[j+1]]) {
					t.Fatalf("case %d: positions of %d are %v, want %v", i, j, got, pos[starts[j]:starts[j+1]])
				}
				end := min(len(docs), (b+1)*BlockSize)
				if got := l.BlockPositions(b, &f, nil); !slices.Equal(got, pos[starts[b*BlockSize]:starts[end]]) {
					t.Fatalf("case %d: positions of block %d differ", i, b)
				}
			}
		}
	}
}

// The zero value and a memtable's list without positions are fit for use.
func TestPlainPostings(t *testing.T) {
	var zero Postings
	if zero.DocFreq() != 0 || zero.Blocks() != 0 || zero.SeekBlock(0, 5) != 0 || zero.HasPositions() || zero.Err() != nil || len(zero.Impacts(-1, nil)) != 0 {
		t.Error("zero value is not an empty list")
	}
	p := ArrayPostings([]uint32{3, 9}, []uint32{2, 70000}, nil)
	if got := p.Impacts(-1, nil); !slices.Equal(got, []Impact{{70000, 2}}) {
		t.Errorf("Impacts = %v", got)
	}
	if p.HasPositions() {
		t.Error("positions out of nothing")
	}
}

// Frequencies that do not fit the impacts of a block still bound it.
func TestHugeFrequencies(t *testing.T) {
	const n = 300
	docs, freqs, lens := make([]uint32, n), make([]uint32, n), make([]uint16, n)
	var buf bytes.Buffer
	w := NewWriter(&buf, WriterOptions{NoSources: true})
	w.Begin(n, []FieldMeta{{ID: 9, Name: "f"}})
	for i := range docs {
		docs[i], freqs[i], lens[i] = uint32(i), uint32(1+i*1000), 65535
		w.Key(fmt.Appendf(nil, "%03d", i), 0)
	}
	freqs[7] = math.MaxUint32
	w.BeginField(9, false, lens)
	w.StartTerm([]byte("t"))
	w.Add(docs, freqs, nil)
	w.EndTerm()
	w.StartTerm([]byte("u"))
	w.Add(docs[7:9], freqs[7:9], nil)
	w.EndTerm()
	w.StartTerm([]byte("v"))
	w.Add(docs[7:8], freqs[7:8], nil)
	w.EndTerm()
	w.EndField()
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	r, err := FromBytes("huge", buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, term := range []string{"t", "u", "v"} {
		p, _ := r.Postings(9, []byte(term))
		var d, f [BlockSize]uint32
		for b := range p.Blocks() {
			n := p.DocsFreqs(b, &d, &f)
			for i := range n {
				if f[i] != freqs[d[i]] {
					t.Fatalf("frequency in %d is %d", d[i], f[i])
				}
				for _, im := range [][]Impact{p.Impacts(b, nil), p.Impacts(-1, nil)} {
					if !slices.ContainsFunc(im, func(x Impact) bool { return x.Freq >= f[i] }) {
						t.Fatalf("impacts %v do not bound %d", im, f[i])
					}
				}
			}
		}
	}
}

// A front holds exactly the pairs that no other covers, and reducing it keeps every posting covered.
func TestFront(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 2000 {
		var f front
		var all []Impact
		for range 1 + rng.IntN(60) {
			im := Impact{1 + uint32(rng.IntN(1+rng.IntN(30))), uint16(rng.IntN(1 + rng.IntN(50)))}
			all = append(all, im)
			f.add(im.Freq, im.Len)
		}
		for _, im := range all {
			covered := slices.ContainsFunc(all, func(x Impact) bool { return x != im && x.Freq >= im.Freq && x.Len <= im.Len })
			if slices.Contains(f, im) == covered {
				t.Fatalf("%v of %v in %v", im, all, f)
			}
		}
		n := 1 + rng.IntN(5)
		f.reduce(n, 20)
		if len(f) > n {
			t.Fatalf("%d pairs are left of %d", len(f), n)
		}
		for _, im := range all {
			if !slices.ContainsFunc(f, func(x Impact) bool { return x.Freq >= im.Freq && x.Len <= im.Len }) {
				t.Fatalf("%v does not cover %v", f, im)
			}
		}
	}
}

func TestSkipVarints(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 300 {
		b := []byte{0xFF}
		ends := []int{1}
		for range rng.IntN(60) {
			for v := rng.Uint64() >> rng.IntN(64); ; v >>= 7 {
				if v < 0x80 {
					b = append(b, byte(v))
					break
				}
				b = append(b, byte(v)|0x80)
			}
			ends = append(ends, len(b))
		}
		for i := range ends {
			for j := i; j < len(ends); j++ {
				if got := skipVarints(b, ends[i], j-i); got != ends[j] {
					t.Fatalf("skipping %d from %d in % x: %d, want %d", j-i, ends[i], b, got, ends[j])
				}
			}
			if got := skipVarints(b, ends[i], len(ends)-i); got >= 0 {
				t.Fatalf("skipping past the end gives %d", got)
			}
		}
	}
}

// Reading allocates nothing.
func TestNoAllocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 10))
	m := randomModel(rng, 3000)
	r, err := FromBytes("test", m.bytes(t))
	if err != nil {
		t.Fatal(err)
	}
	adocs, afreqs, apos := m.plain("t1")
	var docs, freqs [BlockSize]uint32
	pos := make([]uint32, 0, 1<<20)
	imp := make([]Impact, 0, 8)
	vals := make([]uint64, 0, 64)
	ords := make([]uint32, 0, 64)
	buf := make([]byte, 0, 1024)
	num, _ := r.NumColumn(5)
	str, _ := r.StrColumn(8)
	terms := [][]byte{[]byte("t1"), []byte("t2"), []byte("t40"), []byte("t300"), []byte("absent")}
	key := m.docs[77].key
	for name, fn := range map[string]func(){
		"postings": func() {
			for i := range len(terms) + 1 {
				p := ArrayPostings(adocs, afreqs, apos)
				if i < len(terms) {
					p, _ = r.Postings(0, terms[i])
				}
				p.Impacts(-1, imp[:0])
				for b := range p.Blocks() {
					n := p.Docs(b, &docs)
					p.Freqs(b, &freqs)
					p.DocsFreqs(b, &docs, &freqs)
					p.Impacts(b, imp[:0])
					p.SeekBlock(0, p.LastDoc(b))
					for i := range n {
						pos = p.Positions(b, i, &freqs, pos[:0])
					}
					pos = p.BlockPositions(b, &freqs, pos[:0])
				}
			}
		},
		"keys": func() {
			d, _ := r.FindKey(key)
			buf = r.Key(d, buf[:0])
			r.CommitTS(d)
			r.Lengths(0)
			r.FieldStats(0)
		},
		"columns": func() {
			for d := range uint32(300) {
				vals = num.Values(d, vals[:0])
				num.First(d)
				ords = str.Ords(d, ords[:0])
				r.Present(0).Has(d)
			}
			buf = str.Lookup(3, buf[:0])
			str.Seek(buf)
		},
	} {
		if n := testing.AllocsPerRun(20, fn); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Whatever is out of order or does not fit is refused, and the error stays.
func TestWriterRefuses(t *testing.T) {
	text := []FieldMeta{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}
	two := func(w *Writer) {
		w.Begin(2, text)
		w.Key([]byte("a"), 1)
		w.Key([]byte("b"), 1)
	}
	list := func(docs, freqs, pos []uint32) func(w *Writer) {
		return func(w *Writer) {
			two(w)
			w.BeginField(1, pos != nil, []uint16{1, 1})
			w.StartTerm([]byte("x"))
			w.Add(docs, freqs, pos)
			w.EndTerm()
			w.EndField()
		}
	}
	long := bytes.Repeat([]byte("k"), MaxStringLen+1)
	for name, c := range map[string]struct {
		want  error
		write func(w *Writer)
	}{
		"no begin":                {ErrOrder, func(w *Writer) { w.Key([]byte("a"), 1) }},
		"second begin":            {ErrOrder, func(w *Writer) { w.Begin(0, nil); w.Begin(0, nil) }},
		"fields out of order":     {ErrOrder, func(w *Writer) { w.Begin(0, []FieldMeta{{ID: 2}, {ID: 1}}) }},
		"field id":                {ErrOrder, func(w *Writer) { w.Begin(0, []FieldMeta{{ID: MaxField + 1}}) }},
		"negative documents":      {ErrTooLarge, func(w *Writer) { w.Begin(-1, nil) }},
		"keys out of order":       {ErrOrder, func(w *Writer) { w.Begin(2, nil); w.Key([]byte("b"), 1); w.Key([]byte("a"), 1) }},
		"equal keys":              {ErrOrder, func(w *Writer) { w.Begin(2, nil); w.Key([]byte("b"), 1); w.Key([]byte("b"), 1) }},
		"long key":                {ErrTooLarge, func(w *Writer) { w.Begin(1, nil); w.Key(long, 1) }},
		"too few keys":            {ErrOrder, func(w *Writer) { w.Begin(2, text); w.Key([]byte("b"), 1); w.NumColumn(1, nil, nil) }},
		"too many keys":           {ErrOrder, func(w *Writer) { two(w); w.Key([]byte("c"), 1) }},
		"unknown field":           {ErrOrder, func(w *Writer) { two(w); w.NumColumn(3, nil, []uint64{1, 2}) }},
		"parts out of order":      {ErrOrder, func(w *Writer) { two(w); w.Presence(1, []uint32{1}); w.NumColumn(1, nil, []uint64{1, 2}) }},
		"columns out of order":    {ErrOrder, func(w *Writer) { two(w); w.NumColumn(2, nil, []uint64{1, 2}); w.NumColumn(1, nil, []uint64{1, 2}) }},
		"column twice":            {ErrOrder, func(w *Writer) { two(w); w.NumColumn(2, nil, []uint64{1, 2}); w.NumColumn(2, nil, []uint64{1, 2}) }},
		"column too short":        {ErrOrder, func(w *Writer) { two(w); w.NumColumn(2, nil, []uint64{1}) }},
		"column's starts":         {ErrOrder, func(w *Writer) { two(w); w.NumColumn(2, []uint32{0, 2, 1}, []uint64{1}) }},
		"long value":              {ErrTooLarge, func(w *Writer) { two(w); w.StrColumn(2, nil, [][]byte{long, nil}) }},
		"presence out of order":   {ErrOrder, func(w *Writer) { two(w); w.Presence(1, []uint32{1, 0}) }},
		"presence above":          {ErrOrder, func(w *Writer) { two(w); w.Presence(1, []uint32{2}) }},
		"lengths":                 {ErrOrder, func(w *Writer) { two(w); w.BeginField(1, false, []uint16{1}) }},
		"term outside a field":    {ErrOrder, func(w *Writer) { two(w); w.StartTerm([]byte("x")) }},
		"postings outside a term": {ErrOrder, func(w *Writer) { two(w); w.Add([]uint32{1}, []uint32{1}, nil) }},
		"end of no term":          {ErrOrder, func(w *Writer) { two(w); w.EndTerm() }},
		"end of no field":         {ErrOrder, func(w *Writer) { two(w); w.EndField() }},
		"column inside a field":   {ErrOrder, func(w *Writer) { two(w); w.BeginField(1, false, []uint16{1, 1}); w.NumColumn(1, nil, nil) }},
		"field without end":       {ErrOrder, func(w *Writer) { two(w); w.BeginField(1, false, []uint16{1, 1}) }},
		"documents out of order":  {ErrOrder, list([]uint32{1, 0}, []uint32{1, 1}, nil)},
		"document twice":          {ErrOrder, list([]uint32{1, 1}, []uint32{1, 1}, nil)},
		"document above":          {ErrOrder, list([]uint32{2}, []uint32{1}, nil)},
		"no frequency":            {ErrOrder, list([]uint32{1}, []uint32{0}, nil)},
		"too few frequencies":     {ErrOrder, list([]uint32{1}, nil, nil)},
		"too few positions":       {ErrOrder, list([]uint32{1}, []uint32{2}, []uint32{1})},
		"too many positions":      {ErrOrder, list([]uint32{1}, []uint32{1}, []uint32{1, 2})},
		"positions out of order":  {ErrOrder, list([]uint32{1}, []uint32{2}, []uint32{2, 1})},
		"too few sources":         {ErrOrder, func(w *Writer) { two(w); w.Source(nil) }},
		"too many sources":        {ErrOrder, func(w *Writer) { two(w); w.Source(nil); w.Source(nil); w.Source(nil) }},
		"huge source":             {ErrTooLarge, func(w *Writer) { two(w); w.Source(make([]byte, MaxSourceLen+1)) }},
		"terms out of order": {ErrOrder, func(w *Writer) {
			two(w)
			w.BeginField(1, false, []uint16{1, 1})
			for _, term := range []string{"b", "a"} {
				w.StartTerm([]byte(term))
				w.Add([]uint32{0}, []uint32{1}, nil)
				w.EndTerm()
			}
		}},
	} {
		w := NewWriter(io.Discard, WriterOptions{})
		c.write(w)
		_, err := w.Finish()
		if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "write segment: ") {
			t.Errorf("%s: %v", name, err)
		}
		// Nothing after it changes the error.
		w.Begin(1, nil)
		w.Key(nil, 0)
		w.BeginField(1, true, nil)
		w.StartTerm(nil)
		w.Add(nil, nil, nil)
		w.EndTerm()
		w.EndField()
		w.NumColumn(1, nil, nil)
		w.StrColumn(1, nil, nil)
		w.Presence(1, nil)
		w.Source(nil)
		if _, err2 := w.Finish(); err2 != err || w.Err() != err {
			t.Errorf("%s: error became %v", name, err2)
		}
	}
	w := NewWriter(io.Discard, WriterOptions{NoSources: true})
	two(w)
	w.Source(nil)
	if _, err := w.Finish(); err == nil {
		t.Error("a source is accepted where none are kept")
	}
}

// An error of the stream comes out of Finish wherever it happens.
func TestWriterStreamFails(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	m := randomModel(rng, 1000)
	full := errors.New("disk is full")
	size := len(m.bytes(t))
	for left := 0; left < size; left += 1 + size/11 {
		if _, err := m.write(NewWriter(&failingWriter{left: left, err: full}, WriterOptions{}), false); !errors.Is(err, full) {
			t.Fatalf("after %d bytes: %v", left, err)
		}
	}
}

type failingWriter struct {
	left int
	err  error
}

func (f *failingWriter) Write(b []byte) (int, error) {
	if len(b) > f.left {
		n := f.left
		f.left = 0
		return n, f.err
	}
	f.left -= len(b)
	return len(b), nil
}

// Fields without content leave no trace.
func TestEmptyFields(t *testing.T) {
	write := func(fields []FieldMeta, empty bool) []byte {
		var buf bytes.Buffer
		w := NewWriter(&buf, WriterOptions{})
		w.Begin(2, fields)
		w.Key([]byte("a"), 1)
		w.Key([]byte("b"), 1)
		if empty {
			w.BeginField(1, true, []uint16{0, 0})
			w.StartTerm([]byte("never"))
			w.EndTerm()
			w.EndField()
			w.NumColumn(1, []uint32{0, 0, 0}, nil)
		}
		w.NumColumn(2, nil, []uint64{5, 6})
		if empty {
			w.StrColumn(1, []uint32{0, 0, 0}, nil)
			w.Presence(1, nil)
		}
		w.Source([]byte("x"))
		w.Source([]byte("y"))
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	a, b := write([]FieldMeta{{ID: 2, Name: "n"}}, false), write([]FieldMeta{{ID: 1, Name: "gone"}, {ID: 2, Name: "n"}}, true)
	if !bytes.Equal(a, b) {
		t.Error("an empty field leaves a trace")
	}
	r, err := FromBytes("empty", a)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []int{-1, 1, 3, 1 << 40} {
		if _, ok := r.NumColumn(field); ok || r.Lengths(field) != nil || r.Present(field).Count() != 0 {
			t.Errorf("field %d is there", field)
		}
		if _, ok := r.Postings(field, []byte("x")); ok {
			t.Errorf("field %d has a term", field)
		}
		if err := r.ScanTerms(field, nil, func([]byte, uint32) bool { return true }); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenFile(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 12))
	m := randomModel(rng, 200)
	b := m.bytes(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "a.seg")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, v := range []VerifyMode{VerifyAll, VerifySmall} {
		r, err := Open(path, OpenOptions{Verify: v})
		if err != nil {
			t.Fatal(err)
		}
		m.check(t, r)
		if err := r.Verify(); err != nil {
			t.Error(err)
		}
		if r.Size() != int64(len(b)) || r.Name() != path {
			t.Errorf("Size = %d, Name = %q", r.Size(), r.Name())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none"), OpenOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	for _, n := range []int{0, 1, 55, len(b) / 2, len(b) - 1} {
		if err := os.WriteFile(path, b[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path, OpenOptions{})
		var ce *CorruptError
		if !errors.Is(err, ErrCorrupt) || !errors.As(err, &ce) || ce.File != path || !strings.Contains(err.Error(), path) {
			t.Errorf("file cut to %d bytes: %v", n, err)
		}
	}
	// A place that is not aligned is copied.
	shifted := append([]byte{0}, b...)[1:]
	r, err := FromBytes("shifted", shifted)
	if err != nil {
		t.Fatal(err)
	}
	m.check(t, r)
}

// Sets of every density, over several chunks.
func TestPresenceChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 19))
	for _, n := range []uint32{1, 63, 64, 65535, 65536, 65537, 150_000, 3*65536 + 5} {
		for _, share := range []float64{0.00003, .01, .0624, .5, .9999, 1} {
			var docs []uint32
			for d := range n {
				if d/65536 != 1 && rng.Float64() < share {
					docs = append(docs, d)
				}
			}
			b := encodePresence([]byte("before"), n, docs)
			s := &section{r: &Reader{}, tag: tagPresence, data: append(alignedBytes(len(b))[:0], b...)}
			p, err := openPresence(s, n)
			if err != nil {
				t.Fatalf("%d documents, share %v: %v", n, share, err)
			}
			if p.Count() != len(docs) {
				t.Fatalf("Count = %d, want %d", p.Count(), len(docs))
			}
			from := uint32(0)
			for _, d := range docs {
				if got, ok := p.NextSet(from); !ok || got != d {
					t.Fatalf("%d documents, share %v: NextSet(%d) = %d, %v, want %d", n, share, from, got, ok, d)
				}
				from = d + 1
			}
			if got, ok := p.NextSet(from); ok {
				t.Fatalf("%d documents, share %v: NextSet(%d) = %d", n, share, from, got)
			}
			for range 1000 {
				d := uint32(rng.IntN(int(n)))
				i, want := slices.BinarySearch(docs, d)
				if p.Has(d) != want {
					t.Fatalf("Has(%d) = %v", d, !want)
				}
				next, ok := p.NextSet(d)
				if ok != (i < len(docs)) || ok && next != docs[i] {
					t.Fatalf("NextSet(%d) = %d, %v", d, next, ok)
				}
			}
		}
	}
}

// Columns that are written in pieces, in every width.
func TestColumns(t *testing.T) {
	const n = 9_000
	rng := rand.New(rand.NewPCG(20, 20))
	fields := []FieldMeta{{ID: 64, Name: "text"}}
	cols := make([][]uint64, 64)
	for w := range cols {
		fields = append(fields, FieldMeta{ID: 100 + w, Name: fmt.Sprint("w", w)})
		for range n {
			cols[w] = append(cols[w], 7+rng.Uint64()>>(63-w))
		}
	}
	var buf bytes.Buffer
	w := NewWriter(&buf, WriterOptions{NoSources: true})
	w.Begin(n, fields)
	for i := range n {
		w.Key(fmt.Appendf(nil, "%08d", i), uint64(i)<<20)
	}
	for i, c := range cols {
		w.NumColumn(100+i, nil, c)
	}
	var values [][]byte
	for i := range n {
		values = append(values, fmt.Appendf(nil, "value %d of a text column with many of them", i*7919%n))
	}
	w.StrColumn(64, nil, values)
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	r, err := FromBytes("columns", buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range cols {
		c, _ := r.NumColumn(100 + i)
		if !c.dense || c.values != n {
			t.Fatalf("column %d: dense %v, %d values", i, c.dense, c.values)
		}
		for d, v := range want {
			if got, ok := c.First(uint32(d)); !ok || got != v {
				t.Fatalf("width %d: First(%d) = %d, want %d", i, d, got, v)
			}
		}
		if _, ok := c.First(n); ok || len(c.Values(n, nil)) != 0 {
			t.Error("a value above the last document")
		}
	}
	s, _ := r.StrColumn(64)
	if s.NumOrds() != n || s.ords.values != n || s.NumBlocks() != (n+1023)/1024 {
		t.Fatalf("text column has %d ordinals, %d values, %d blocks", s.NumOrds(), s.ords.values, s.NumBlocks())
	}
	for b := range s.NumBlocks() {
		lo, hi, ok := s.BlockRange(b)
		for d := b * 1024; d < min(n, b*1024+1024); d++ {
			o, _ := s.First(uint32(d))
			if got := s.Lookup(int(o), nil); !bytes.Equal(got, values[d]) {
				t.Fatalf("value of %d is %q, want %q", d, got, values[d])
			}
			if !ok || o < lo || o > hi {
				t.Fatalf("ordinal %d of block %d outside [%d, %d]", o, b, lo, hi)
			}
		}
	}
	if got := s.Ords(n, nil); got != nil {
		t.Errorf("Ords above the last document: %v", got)
	}
}

// Sources of every size come back, those that compress too well or not at all among them.
func TestSources(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 21))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	var sources [][]byte
	for i := range 400 {
		switch i % 5 {
		case 0:
			sources = append(sources, noise[i*100:][:rng.IntN(2000)])
		case 1:
			sources = append(sources, nil)
		default:
			sources = append(sources, bytes.Repeat([]byte("a lot of the same "), rng.IntN(60)))
		}
	}
	sources[100], sources[101], sources[200] = noise, make([]byte, 1<<20), make([]byte, 5<<20)
	m := &model{}
	for i, s := range sources {
		m.docs = append(m.docs, modelDoc{key: fmt.Sprintf("%04d", i), source: string(s)})
	}
	b := m.bytes(t)
	if len(b) > 11<<20 {
		t.Errorf("segment has %d bytes", len(b))
	}
	r, err := FromBytes("sources", b)
	if err != nil {
		t.Fatal(err)
	}
	m.check(t, r)
	if got, err := r.Source(uint32(len(sources)), nil); got != nil || err != nil {
		t.Errorf("source above the last document: %q, %v", got, err)
	}
}

// A reader answers many at once.
func TestConcurrentReaders(t *testing.T) {
	m := smallModel(7)
	r, err := FromBytes("shared", m.bytes(t))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				exercise(r)
			}
		})
	}
	wg.Wait()
	m.check(t, r)
}

// Describe passes on the errors of its writer, and arrays without enough positions say so.
func TestSmallErrors(t *testing.T) {
	r, err := FromBytes("example", exampleModel().bytes(t))
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk is full")
	if err := Describe(&failingWriter{left: 10, err: full}, r); !errors.Is(err, full) {
		t.Errorf("Describe: %v", err)
	}
	for _, read := range []func(p *Postings, f *[BlockSize]uint32) []uint32{
		func(p *Postings, f *[BlockSize]uint32) []uint32 { return p.Positions(0, 1, f, nil) },
		func(p *Postings, f *[BlockSize]uint32) []uint32 { return p.BlockPositions(0, f, nil) },
	} {
		p := ArrayPostings([]uint32{1, 2}, []uint32{1, 2}, []uint32{0})
		var f [BlockSize]uint32
		p.Freqs(0, &f)
		if got := read(&p, &f); len(got) != 0 || p.Err() == nil {
			t.Errorf("positions %v, error %v", got, p.Err())
		}
	}
}
