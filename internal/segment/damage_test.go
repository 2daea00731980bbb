package segment

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

// reseal makes the checksums of b true again as far as its frame can be read.
func reseal(b []byte) {
	if len(b) < trailerSize {
		return
	}
	at := len(b) - trailerSize
	tableOff, n := le.Uint64(b[at:]), uint64(le.Uint32(b[at+8:]))
	if tableOff > uint64(at) {
		return
	}
	for i := range n {
		e := tableOff + i*tableEntrySize
		if e+tableEntrySize > uint64(at) {
			break
		}
		off, size := le.Uint64(b[e+8:]), le.Uint64(b[e+16:])
		if off <= uint64(len(b)) && size <= uint64(len(b))-off {
			le.PutUint64(b[e+24:], xxh3.Hash(b[off:off+size]))
		}
	}
	le.PutUint64(b[at+32:], xxh3.Hash(b[tableOff:at+32]))
}

// exercise calls everything a reader has, within bounds, whatever the answers are.
func exercise(r *Reader) {
	const most = 40
	docs := min(r.NumDocs(), most)
	var buf []byte
	var nums []uint64
	var ords, pos []uint32
	var imp []Impact
	var d, f [BlockSize]uint32
	for doc := range docs {
		buf = r.Key(doc, buf[:0])
		r.FindKey(string(buf))
		r.keys.seek(append(buf, 'x'))
		r.CommitTS(doc)
		if b, err := r.Source(doc, buf[:0]); err == nil {
			buf = b
		}
	}
	enough := errors.New("enough")
	if err := r.EachKey(0, func(doc uint32, _ []byte) error {
		if doc > most {
			return enough
		}
		return nil
	}); err == nil && r.NumDocs() > most+1 {
		panic("EachKey went on after an error, or ended without one")
	}
	if err := r.EachSource(func(doc uint32, source []byte) error {
		if doc >= r.NumDocs() {
			panic("a source of no document")
		}
		if buf = append(buf[:0], source...); doc > most {
			return enough
		}
		return nil
	}); err == nil && r.HasSources() && r.NumDocs() > most+1 {
		panic("EachSource went on after an error")
	}
	r.Key(r.NumDocs()-1, buf[:0])
	r.FindKey("")
	r.FindKey("doc/5")
	r.MaxCommitTS()
	fields := r.Fields()
	for _, m := range fields[:min(len(fields), most)] {
		r.FieldStats(m.ID)
		p := r.Present(m.ID)
		p.Count()
		p.Has(5)
		doc, ok := p.NextSet(0)
		for n := 0; ok && n < most; n++ {
			doc, ok = p.NextSet(doc + 1)
		}
		if c, ok := r.NumColumn(m.ID); ok {
			var all [ColumnBlock]uint64
			for b := range min(c.NumBlocks(), 4) {
				c.BlockRange(b)
				c.ReadBlock(b, &all)
			}
			for doc := range docs {
				nums = c.Values(doc, nums[:0])
				c.First(doc)
			}
			c.Values(r.NumDocs()-1, nums[:0])
		}
		if c, ok := r.StrColumn(m.ID); ok {
			var all [ColumnBlock]uint64
			for b := range min(c.NumBlocks(), 4) {
				if n, ok := c.ReadBlock(b, &all); ok {
					for _, o := range all[:n] {
						buf = c.Lookup(int(o), buf[:0])
					}
				}
			}
			for doc := range docs {
				ords = c.Ords(doc, ords[:0])
				for _, o := range ords {
					buf = c.Lookup(int(o), buf[:0])
				}
				c.First(doc)
			}
			all = [ColumnBlock]uint64{}
			n := min(c.NumOrds(), len(all))
			for i := range n {
				all[i] = uint64(i)
			}
			buf = c.LookupAscending(all[:n], buf[:0], make([]int, n))
			c.Seek(buf)
			c.Seek(nil)
		}
		if x, ok := r.Vectors(m.ID); ok {
			exerciseVectors(x)
		}
		if x, ok := r.SparseVectors(m.ID); ok {
			exerciseVectors(x)
		}
		list := func(p *Postings) {
			imp = p.Impacts(-1, imp[:0])
			for b := range min(p.Blocks(), 6) {
				imp = p.Impacts(b, imp[:0])
				p.SeekBlock(0, p.LastDoc(b))
				n := p.Docs(b, &d)
				for i, doc := range d {
					if i < n && doc >= r.NumDocs() || i >= n && doc != noDoc || i > 0 && i < n && doc < d[i-1] {
						panic("documents of a block are out of order")
					}
				}
				if n == 0 && p.Err() == nil {
					panic("empty block without an error")
				}
				p.Freqs(b, &f)
				for i := range n {
					if i%5 == 0 {
						pos = p.Positions(b, i, &f, pos[:0])
					}
				}
				pos = p.BlockPositions(b, &f, pos[:0])
				p.DocsFreqs(b, &d, &f)
			}
		}
		terms := 0
		if err := r.ScanTerms(m.ID, nil, func(term []byte, df uint32) bool {
			if p, ok := r.Postings(m.ID, term); ok {
				list(&p)
			}
			terms++
			return terms < 4*most
		}); err != nil && !errors.Is(err, ErrCorrupt) {
			panic(err)
		}
		terms = 0
		if err := r.ScanPostings(m.ID, nil, func(_ []byte, p Postings) bool {
			list(&p)
			terms++
			return terms < most
		}); err != nil && !errors.Is(err, ErrCorrupt) {
			panic(err)
		}
		for _, t := range []string{"", "t1", "t2", "zzz"} {
			if p, ok := r.Postings(m.ID, []byte(t)); ok {
				list(&p)
			}
		}
		if err := r.ScanTerms(m.ID, []byte("t1"), func([]byte, uint32) bool { return true }); err != nil && !errors.Is(err, ErrCorrupt) {
			panic(err)
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, ErrCorrupt) {
		panic(err)
	}
}

func exerciseVectors(x interface {
	vectorIndex
	Range(doc uint32) (from, to int)
},
) {
	for i := range min(x.Len(), 40) {
		from, to := x.Range(x.Doc(i))
		for j := from; j < min(to, from+5); j++ {
			x.Record(j)
		}
		x.Record(i)
	}
}

// tryDamaged opens and uses a damaged file.
func tryDamaged(t testing.TB, b []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := FromBytes("damaged", b)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64*uint64(len(b))+8<<20 {
		t.Fatalf("opening %d bytes allocates %d", len(b), n)
	}
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerFormat) {
			t.Fatalf("untyped error: %v", err)
		}
		return
	}
	exercise(r)
	if err := r.DeepVerify(context.Background()); err != nil && !errors.Is(err, ErrCorrupt) {
		t.Fatalf("untyped error of a deep check: %v", err)
	}
	if err := Describe(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Merge(context.Background(), io.Discard, []MergeSource{{R: r}}, MergeOptions{WriterOptions: WriterOptions{NoSources: r.sources == nil}}); err != nil &&
		!errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrOrder) && !errors.Is(err, ErrTooLarge) {
		t.Fatalf("untyped error of a merge: %v", err)
	}
}

// smallModel has every kind of list and column in few bytes.
func smallModel(seed uint64) *model {
	rng := rand.New(rand.NewPCG(13, seed))
	m := randomModel(rng, 20)
	big := modelList(rng, 300, .9, 4)
	for i, d := range big.docs {
		if i < len(m.docs) {
			for t, p := range d.text[0] {
				m.docs[i].text[0][t] = p
			}
		} else {
			d.nums, d.strs = map[int][]uint64{4: {uint64(i)}}, map[int][]string{}
			m.docs = append(m.docs, d)
		}
	}
	for i := range m.docs {
		m.docs[i].key = big.docs[i].key
		if len(m.docs[i].source) > 300 {
			m.docs[i].source = m.docs[i].source[:300]
		}
	}
	return m
}

// mutate damages b in place or returns another slice.
func mutate(rng *rand.Rand, b []byte) []byte {
	for range 1 + rng.IntN(4) {
		at := rng.IntN(len(b))
		if rng.IntN(4) == 0 {
			at = max(0, len(b)-1-rng.IntN(700)) // the frame and the fields section
		}
		switch rng.IntN(6) {
		case 0:
			b[at] ^= 1 << rng.IntN(8)
		case 1:
			b[at] = byte(rng.Uint32())
		case 2:
			b[at] = []byte{0, 1, 0x7f, 0x80, 0xff}[rng.IntN(5)]
		case 3:
			for i := at; i < min(len(b), at+1+rng.IntN(9)); i++ {
				b[i] = 0xff
			}
		case 4:
			if at+8 <= len(b) {
				le.PutUint64(b[at:], rng.Uint64()>>rng.IntN(64))
			}
		case 5:
			if rng.IntN(20) == 0 {
				b = b[:at]
				if len(b) == 0 {
					return b
				}
			}
		}
	}
	return b
}

// Damage under true checksums, as a fault in memory before writing would leave, never panics.
func TestDamageUnderChecksums(t *testing.T) {
	n := 250
	if testing.Short() {
		n = 100
	}
	files := [][]byte{smallModel(1).bytes(t), smallModel(2).bytes(t), modelList(rand.New(rand.NewPCG(14, 0)), 3000, .7, 3).bytes(t)}
	rng := rand.New(rand.NewPCG(15, 15))
	for i := range n {
		b := mutate(rng, bytes.Clone(files[i%len(files)]))
		reseal(b)
		tryDamaged(t, b)
	}
}

// Every flipped bit and every cut is noticed at Open.
func TestEveryFlipIsNoticed(t *testing.T) {
	m := smallModel(3)
	m.docs = m.docs[:12]
	good := m.bytes(t)
	check := func(b []byte, what string, at int) {
		_, err := FromBytes("damaged", b)
		var ce *CorruptError
		if !errors.Is(err, ErrCorrupt) || !errors.As(err, &ce) || ce.Section == "" || ce.Reason == "" {
			t.Fatalf("%s at byte %d of %d: %v", what, at, len(b), err)
		}
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 1 << (i % 8)
		check(b, "flip", i)
		check(good[:i], "cut", i)
	}
	check(append(bytes.Clone(good), make([]byte, 8)...), "zeros after the end", len(good))
	check(append(bytes.Clone(good), good...), "file twice", len(good))
}

func TestVersions(t *testing.T) {
	good := smallModel(4).bytes(t)
	at := len(good) - trailerSize
	b := bytes.Clone(good)
	le.PutUint16(b[at+16:], FormatVersion+7)
	reseal(b)
	if _, err := FromBytes("later", b); err != nil {
		t.Errorf("newer format that older readers may read: %v", err)
	}
	le.PutUint16(b[at+18:], FormatVersion+1)
	reseal(b)
	_, err := FromBytes("newer", b)
	if !errors.Is(err, ErrNewerFormat) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "newer") {
		t.Errorf("newer format: %v", err)
	}
}

// Sections of a kind that this version does not know are skipped.
func TestUnknownSection(t *testing.T) {
	m := smallModel(5)
	var buf bytes.Buffer
	w := NewWriter(&buf, WriterOptions{})
	w.Begin(0, nil)
	if !w.endKeys() {
		t.Fatal(w.Err())
	}
	w.stage = stageInverted
	w.section(999, 7, []byte("later"))
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	r, err := FromBytes("unknown", buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m.docs, m.fields = nil, nil
	m.check(t, r)
	if err := Describe(io.Discard, r); err != nil {
		t.Fatal(err)
	}
}

// With the checksums of big sections unread, damage there is found by Verify and met without harm.
func TestVerifySmall(t *testing.T) {
	rng := rand.New(rand.NewPCG(16, 16))
	m := randomModel(rng, 3000)
	b := m.bytes(t)
	r, err := FromBytes("good", b)
	if err != nil {
		t.Fatal(err)
	}
	post := r.parts(0).inv.post
	if len(post.data) <= smallSection {
		t.Fatalf("postings have only %d bytes", len(post.data))
	}
	for i := 0; i < len(post.data); i += 13 {
		b[int(post.off)+i] ^= 0xff
	}
	if _, err := fromBytes("damaged", b, OpenOptions{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("all checksums: %v", err)
	}
	r, err = fromBytes("damaged", b, OpenOptions{Verify: VerifySmall})
	if err != nil {
		t.Fatal(err)
	}
	exercise(r)
	if err := r.Err(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Err = %v", err)
	}
	var ce *CorruptError
	if err := r.Verify(); !errors.As(err, &ce) || ce.Section != "postings(0)" || ce.Offset != post.off {
		t.Errorf("Verify = %v", err)
	}
}

func FuzzReader(f *testing.F) {
	for seed := range uint64(2) {
		m := smallModel(seed)
		if seed == 1 {
			m.docs = m.docs[:30]
		}
		f.Add(m.bytes(f), false)
		f.Add(m.bytes(f), true)
	}
	f.Add([]byte(magicHead), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = bytes.Clone(b)
			reseal(b)
		}
		tryDamaged(t, b)
	})
}

func FuzzWriteRead(f *testing.F) {
	f.Add(uint64(1), uint16(10))
	f.Add(uint64(2), uint16(200))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16) {
		rng := rand.New(rand.NewPCG(seed, 17))
		m := randomModel(rng, int(n%600))
		if rng.IntN(2) == 0 {
			m = modelList(rng, int(n%600)+1, rng.Float64(), 1+rng.IntN(400))
		}
		fresh := m.bytes(t)
		r, err := FromBytes("fresh", fresh)
		if err != nil {
			t.Fatal(err)
		}
		m.check(t, r)
		sources, _ := split(t, rng, m, 1+rng.IntN(4), len(m.fields) > 1)
		var buf bytes.Buffer
		if _, _, err := Merge(context.Background(), &buf, sources, MergeOptions{}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buf.Bytes(), fresh) {
			t.Fatal("merged segment differs from the fresh one")
		}
	})
}
