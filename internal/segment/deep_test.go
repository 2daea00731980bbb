package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// deepModel has lists of every kind, several blocks of everything and few enough documents to be damaged often.
func deepModel() *model {
	m := &model{fields: []modelField{
		{meta: FieldMeta{ID: 0, Name: "body"}, kind: 't', positions: true},
		{meta: FieldMeta{ID: 1, Name: "size"}, kind: 'n'},
		{meta: FieldMeta{ID: 2, Name: "maybe"}, kind: 'n'},
		{meta: FieldMeta{ID: 3, Name: "many"}, kind: 'n'},
		{meta: FieldMeta{ID: 4, Name: "tag"}, kind: 's'},
	}}
	m.fields = append(m.fields, vectorFields()...)
	rng := rand.New(rand.NewPCG(21, 21))
	vecs := rand.New(rand.NewPCG(21, 22))
	for i := range 6000 {
		d := modelDoc{
			key: fmt.Sprintf("k%05d", i), ts: 100 + uint64(i%6),
			text: map[int]map[string][]uint32{0: {}}, nums: map[int][]uint64{}, strs: map[int][]string{},
			source: strings.Repeat(fmt.Sprintf("%d,", rng.IntN(1e9)), 3),
		}
		if i < 300 {
			d.text[0]["common"] = []uint32{0, 2}
			if i%3 == 0 {
				d.text[0]["common"] = []uint32{0, 1, 1 + uint32(i), 999}
			}
		}
		if i < 20 {
			d.text[0]["short"] = []uint32{5}
			if i < 2 {
				d.text[0]["wide"] = []uint32{1, 1<<32 - 16}
			}
			d.text[0][fmt.Sprintf("single%02d", i)] = []uint32{7}
		}
		d.nums[1] = []uint64{1000 + uint64(i%6)}
		if i%2 == 0 {
			d.nums[2] = []uint64{5, 9, 6, 7}[i/2%4 : i/2%4+1]
		}
		for k := range i % 4 {
			d.nums[3] = append(d.nums[3], uint64(10+(i+k)%5))
		}
		if i%2 == 1 {
			d.strs[4] = []string{fmt.Sprintf("v%02d", i%40)}
		}
		if i%3 == 0 && i < 600 {
			d.vecs = randomVectors(vecs)
		}
		m.docs = append(m.docs, d)
	}
	return m
}

// inSection returns the section's bytes within b.
func inSection(t *testing.T, b []byte, tg tag, field uint32) []byte {
	t.Helper()
	r, err := FromBytes("good", b)
	if err != nil {
		t.Fatal(err)
	}
	s := r.find(tg, field)
	return b[s.off : int(s.off)+len(s.data)]
}

// colEntryOf returns the index entry of a block of a column's section, of which there are blocks.
func colEntryOf(s []byte, b, blocks int) []byte {
	at := len(s) - colTrailer - blocks*colEntry + b*colEntry
	return s[at : at+colEntry]
}

// TestDeepVerifyFindsWhatChecksumsDoNot breaks one promise of the format at a time, makes the checksums true again and expects the
// section to be named.
func TestDeepVerifyFindsWhatChecksumsDoNot(t *testing.T) {
	good := deepModel().bytes(t)
	const blocks = 6
	// list returns the bytes of a term's list in b.
	list := func(t *testing.T, b []byte, term string) (p Postings, data []byte) {
		r, err := FromBytes("good", b)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := r.Postings(0, []byte(term))
		if !ok {
			t.Fatalf("no term %q", term)
		}
		at := bytes.Index(b, p.data)
		if at < 0 || len(p.data) < 8 {
			t.Fatalf("list of %q is nowhere", term)
		}
		return p, b[at : at+len(p.data)]
	}
	replace := func(t *testing.T, b []byte, from, to string) {
		t.Helper()
		if len(from) != len(to) || bytes.Count(b, []byte(from)) != 1 {
			t.Fatalf("%q is there %d times", from, bytes.Count(b, []byte(from)))
		}
		copy(b[bytes.Index(b, []byte(from)):], to)
	}
	field := func(t *testing.T, b []byte, n int) []byte { // the counts in the record of field n
		s := inSection(t, b, tagFields, 0)[8:]
		for ; n > 0; n-- {
			s = s[fieldFixed+int(le.Uint32(s[48:])):]
		}
		return s[8:]
	}
	for _, tt := range []struct {
		name, section, reason string
		damage                func(t *testing.T, b []byte)
	}{
		{"key out of order", "keys", "does not follow", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagKeys, 0)
			s[7+2] = '0' // the last digit of the second key: tag, suffix
		}},
		{"index of keys", "keys", "index does not lead", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagKeys, 0)
			r, err := FromBytes("", bytes.Clone(b))
			if err != nil {
				t.Fatal(err)
			}
			s[(len(r.keys.blocks)+7)&^7+8*3+7]++
		}},
		{"place of a block of keys", "keys", "", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagKeys, 0)
			n := len(s) - tableTrailer - 8 // the last place, where the blocks end
			le.PutUint64(s[n:], le.Uint64(s[n:])-1)
		}},
		{"greatest commit timestamp", "commit", "its index says", func(t *testing.T, b []byte) {
			e := colEntryOf(inSection(t, b, tagCommit, 0), 1, blocks)
			le.PutUint64(e[8:], le.Uint64(e[8:])+1)
		}},
		{"least number", "numbers(1)", "above the greatest", func(t *testing.T, b []byte) {
			e := colEntryOf(inSection(t, b, tagNumbers, 1), 2, blocks)
			le.PutUint64(e, le.Uint64(e)+1)
		}},
		{"number above the greatest", "numbers(1)", "above the greatest", func(t *testing.T, b []byte) {
			inSection(t, b, tagNumbers, 1)[0] |= 7
		}},
		{"rank in a bitmap", "numbers(2)", "bitmap", func(t *testing.T, b []byte) {
			inSection(t, b, tagNumbers, 2)[ColumnBlock/8+2]++
		}},
		{"document of a bitmap", "numbers(2)", "bitmap", func(t *testing.T, b []byte) {
			inSection(t, b, tagNumbers, 2)[ColumnBlock/8-1] ^= 0x80
		}},
		{"moved document of a bitmap", "numbers(2)", "in the set", func(t *testing.T, b []byte) {
			inSection(t, b, tagNumbers, 2)[0] ^= 3
		}},
		{"starts of values", "numbers(3)", "", func(t *testing.T, b []byte) {
			inSection(t, b, tagNumbers, 3)[0] ^= 1
		}},
		{"value of a column", "strings(4)", "does not follow", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagStrings, 4)
			s[4+2] = '0'
		}},
		{"value that no document has", "ordinals(4)", "are used", func(t *testing.T, b []byte) {
			r, err := FromBytes("", bytes.Clone(b))
			if err != nil {
				t.Fatal(err)
			}
			c := r.byID[4].str.ords
			s := inSection(t, b, tagOrdinals, 4)
			for blk := range blocks { // every 7 becomes a 6
				e := c.entry(blk)
				at := e.off + colBitmap
				for i := range e.count {
					if packedAt(c.data[at:], i, e.width) == 7 {
						bit := i * e.width
						s[at+bit/8] &^= 1 << (bit % 8)
					}
				}
			}
		}},
		{"set lacks a document", "numbers(2)", "in the set", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagPresence, 2)
			le.PutUint16(s[2:], 3)
		}},
		{"set out of order", "presence(2)", "member 1", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagPresence, 2)
			le.PutUint16(s[2:], 0)
		}},
		{"set goes beyond the documents", "presence(2)", "member", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagPresence, 2)
			le.PutUint16(s[2*2999:], 6000)
		}},
		{"number of members of a bitmap", "presence(3)", "members", func(t *testing.T, b []byte) {
			inSection(t, b, tagPresence, 3)[0] ^= 1
		}},
		{"length", "lengths(0)", "sum up", func(t *testing.T, b []byte) {
			inSection(t, b, tagLengths, 0)[0]++
		}},
		{"lengths exchanged", "postings(0)", "impacts do not bound", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagLengths, 0)
			x, y := le.Uint16(s[2*298:]), le.Uint16(s[2*297:])
			le.PutUint16(s[2*297:], x)
			le.PutUint16(s[2*298:], y)
		}},
		{"lengths with the same sum", "lengths(0)", "sum up", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagLengths, 0)
			le.PutUint16(s[2*298:], le.Uint16(s[2*298:])+le.Uint16(s[2*299:]))
			le.PutUint16(s[2*299:], 0)
		}},
		{"sum of lengths", "lengths(0)", "sum up", func(t *testing.T, b []byte) { field(t, b, 0)[24]++ }},
		{"documents with a length", "lengths(0)", "sum up", func(t *testing.T, b []byte) { field(t, b, 0)[32]++ }},
		{"count of postings", "postings(0)", "the fields section says", func(t *testing.T, b []byte) { field(t, b, 0)[8]++ }},
		{"count of occurrences", "postings(0)", "the fields section says", func(t *testing.T, b []byte) { field(t, b, 0)[16]++ }},
		{"term out of order", "terms(0)", "does not follow", func(t *testing.T, b []byte) {
			replace(t, inSection(t, b, tagTerms, 0), "\x05short", "\x05ahort")
		}},
		{"first list of a block of terms", "terms(0)", "lists of block 1", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagTerms, 0)
			n := len(s) - tableTrailer - 8
			le.PutUint64(s[n:], le.Uint64(s[n:])-1)
		}},
		{"lengths of impacts", "postings(0)", "impacts do not bound", func(t *testing.T, b []byte) {
			p, data := list(t, b, "common")
			data[p.entOff+12+2]++ // the length of the first impact of block 0
			data[p.entOff+12+4+2]++
			data[p.entOff+12+8+2]++
		}},
		{"frequency of an impact", "postings(0)", "impacts do not bound", func(t *testing.T, b []byte) {
			p, data := list(t, b, "common")
			for i := range blockImpacts {
				if at := p.entOff + entrySize + 12 + 4*i; le.Uint16(data[at:]) > 0 {
					le.PutUint16(data[at:], le.Uint16(data[at:])-1)
				}
			}
		}},
		{"impacts of a list", "postings(0)", "impacts do not bound", func(t *testing.T, b []byte) {
			p, data := list(t, b, "common")
			for i := range int(p.nImp) {
				le.PutUint16(data[headerSize+4*i:], 1)
			}
		}},
		{"impact of a short list", "postings(0)", "impacts do not bound", func(t *testing.T, b []byte) {
			p, data := list(t, b, "short")
			data[p.docEnd+2] += 10 // count, frequency, length
		}},
		{"last document of a block", "postings(0)", "documents of block", func(t *testing.T, b []byte) {
			p, data := list(t, b, "common")
			data[headerSize+4*int(p.nImp)]++
		}},
		{"document of a packed block", "postings(0)", "documents of block", func(t *testing.T, b []byte) {
			p, data := list(t, b, "common")
			data[p.docOff] ^= 1
		}},
		{"frequency in a packed block", "postings(0)", "", func(t *testing.T, b []byte) {
			p, data := list(t, b, "common")
			data[p.docOff+16*int(data[p.entOff+9])+3] ^= 1
		}},
		{"place of a block", "postings(0)", "", func(t *testing.T, b []byte) {
			p, data := list(t, b, "common")
			data[p.entOff+2*entrySize]--
		}},
		{"place of positions", "postings(0)", "place of the positions", func(t *testing.T, b []byte) {
			p, data := list(t, b, "common")
			data[p.entOff+entrySize+8]++
		}},
		{"positions one short", "postings(0)", "positions", func(t *testing.T, b []byte) {
			_, data := list(t, b, "common")
			data[len(data)-2] |= 0x80
		}},
		{"positions one too many", "postings(0)", "positions do not end", func(t *testing.T, b []byte) {
			_, data := list(t, b, "common")
			if data[len(data)-6] < 0x80 {
				t.Fatal("no position of two bytes there")
			}
			data[len(data)-6] &^= 0x80
		}},
		{"position runs over", "postings(0)", "position 0 follows 1", func(t *testing.T, b []byte) {
			replace(t, inSection(t, b, tagPostings, 0), "\x01\xef\xff\xff\xff\x0f\x01\xef\xff\xff\xff\x0f", "\x01\xff\xff\xff\xff\x0f\x01\xef\xff\xff\xff\x0f")
		}},
		{"document of a vector", "vectors(310)", "", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagVectors, 310)
			at := 64 + 4*6000 // header and ends
			if le.Uint32(s[at+8:]) != 6 {
				t.Fatalf("vector 2 is not of document 6: % x", s[at:at+16])
			}
			s[at+8]++
		}},
		{"document with a vector and no value", "vectors(310)", "is not in the set", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagPresence, 310)
			if le.Uint16(s[4:]) != 6 {
				t.Fatalf("the third member is not document 6: % x", s[:8])
			}
			s[4]++
		}},
		{"document with a sparse vector and no value", "sparse(315)", "is not in the set", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagPresence, 315)
			s[0]++
		}},
		{"documents of a block of sources", "sources", "begins with document", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagSources, 0)
			n := int(le.Uint64(s[len(s)-16:]))
			e := s[len(s)-srcTrailer-(n-1)*srcEntry:]
			le.PutUint32(e[16:], le.Uint32(e[16:])+1)
		}},
		{"length of a source", "sources", "block 0", func(t *testing.T, b []byte) {
			s := inSection(t, b, tagSources, 0)
			s[12] ^= 0xff
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := bytes.Clone(good)
			tt.damage(t, b)
			if bytes.Equal(b, good) {
				t.Fatal("nothing is damaged")
			}
			reseal(b)
			r, err := FromBytes("damaged", b)
			if err != nil {
				t.Fatalf("the frame already tells: %v", err)
			}
			if err := r.Verify(); err != nil {
				t.Fatal(err)
			}
			err = r.DeepVerify(t.Context())
			var ce *CorruptError
			if !errors.As(err, &ce) || !errors.Is(err, ErrCorrupt) {
				t.Fatalf("DeepVerify = %v", err)
			}
			if ce.Section != tt.section || !strings.Contains(ce.Reason, tt.reason) || ce.File != "damaged" {
				t.Errorf("DeepVerify = %v, want section %s: %q", ce, tt.section, tt.reason)
			}
		})
	}
}

// TestDeepVerifyAcceptsGoodSegments, from golden files too.
func TestDeepVerifyAcceptsGoodSegments(t *testing.T) {
	models := []*model{deepModel(), {}}
	for i, n := range []int{1, 16, 129, 1025, 3000} {
		models = append(models, randomModel(rand.New(rand.NewPCG(22, uint64(i))), n), modelList(rand.New(rand.NewPCG(23, uint64(i))), n, .8, 300))
	}
	for i, m := range models {
		r, err := FromBytes("good", m.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.DeepVerify(t.Context()); err != nil {
			t.Errorf("model %d: %v", i, err)
		}
	}
	files, err := filepath.Glob("testdata/*.seg")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := FromBytes(name, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.DeepVerify(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// lateContext is done after its error was asked for some times.
type lateContext struct {
	context.Context
	left int
}

func (c *lateContext) Err() error {
	if c.left == 0 {
		return context.Canceled
	}
	c.left--
	return nil
}

// TestDeepVerifyStopsWithItsContext wherever it is, and that is not damage.
func TestDeepVerifyStopsWithItsContext(t *testing.T) {
	b := deepModel().bytes(t)
	r, err := FromBytes("good", b)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		err := r.DeepVerify(&lateContext{t.Context(), n})
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		if err == nil {
			if n < len(b)/verifyStep {
				t.Errorf("%d bytes were read with %d looks at the context", len(b), n)
			}
			return
		}
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	}
}

// BenchmarkDeepVerify beside BenchmarkMerge, which reads and writes as much.
func BenchmarkDeepVerify(b *testing.B) {
	r := getDebian(b).open(b, true)
	b.SetBytes(r.Size())
	b.ReportAllocs()
	for b.Loop() {
		if err := r.DeepVerify(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
