package memtable

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/text"
)

var testSchema = &schema.Schema{Fields: []schema.Field{
	{Name: "body", Type: schema.Text, Tokenizer: "simple", Indexed: true, Multi: true, Positions: schema.TokenPositions},
	{Name: "tags", Type: schema.Text, Tokenizer: "alnum", Indexed: true, Multi: true, Fast: true, KeywordMax: 8},
	{Name: "n", Type: schema.I64, Fast: true, Multi: true},
	{Name: "hidden", Type: schema.Text, Tokenizer: "alnum", Stored: true},
	{Name: "vec", Type: schema.DenseVector, Dim: 3, Element: "f16", Indexed: true, Multi: true},
	{Name: "bits", Type: schema.BinaryVector, Dim: 16, Indexed: true},
	{Name: "words", Type: schema.SparseVector, Indexed: true, Multi: true},
	{Name: "kept", Type: schema.DenseVector, Dim: 2, Stored: true, Multi: true},
}}

func inverter(t testing.TB) *Inverter {
	t.Helper()
	inv, err := NewInverter(testSchema)
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// randomDoc makes a document with a skewed vocabulary.
func randomDoc(r *rand.Rand, key string) *schema.Document {
	d := &schema.Document{Key: key, Source: []byte(`{"id":"` + key + `"}`)}
	if r.IntN(8) > 0 {
		v := schema.Values{Field: 0}
		for range 1 + r.IntN(3) {
			var b strings.Builder
			for range r.IntN(60) {
				fmt.Fprintf(&b, "w%d ", int(float64(r.IntN(1000))*r.Float64()*r.Float64()*r.Float64()))
			}
			v.Text = append(v.Text, b.String())
		}
		d.Fields = append(d.Fields, v)
	}
	if r.IntN(3) > 0 {
		v := schema.Values{Field: 1}
		for range 1 + r.IntN(3) {
			v.Text = append(v.Text, fmt.Sprintf("tag%d", r.IntN(200000)))
		}
		d.Fields = append(d.Fields, v)
	}
	if r.IntN(3) > 0 {
		v := schema.Values{Field: 2}
		for range 1 + r.IntN(2) {
			v.Nums = append(v.Nums, r.Uint64N(1000))
		}
		d.Fields = append(d.Fields, v)
	}
	if r.IntN(3) > 0 {
		d.Fields = append(d.Fields, schema.Values{Field: 3, Text: []string{"x"}})
	}
	d.Fields = append(d.Fields, randomVectors(r)...)
	return d
}

type posted struct {
	doc, freq uint32
	pos       []uint32
}

// bruteTerms inverts documents in the plainest way.
func bruteTerms(t testing.TB, docs []*schema.Document, field int) (map[string][]posted, []uint16) {
	t.Helper()
	a, err := text.Lookup(testSchema.Fields[field].Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]posted{}
	lens := make([]uint16, len(docs))
	for d, doc := range docs {
		for _, v := range doc.Fields {
			if v.Field != field {
				continue
			}
			n := 0
			for i, s := range v.Text {
				var sc text.Scratch
				toks := a.Index(&sc, s)
				n += text.Length(toks)
				for _, tok := range toks {
					l := out[string(tok.Text)]
					p := uint32(i)*ValueStride + tok.Pos
					if len(l) > 0 && l[len(l)-1].doc == uint32(d) {
						l[len(l)-1].freq++
						l[len(l)-1].pos = append(l[len(l)-1].pos, p)
					} else {
						l = append(l, posted{uint32(d), 1, []uint32{p}})
					}
					out[string(tok.Text)] = l
				}
			}
			lens[d] = uint16(min(n, MaxLength))
		}
	}
	return out, lens
}

// checkView compares a view with the documents it should hold.
func checkView(t testing.TB, v *View, docs []*schema.Document, dead map[uint32]bool) {
	t.Helper()
	if int(v.NumDocs()) != len(docs) || int(v.LiveDocs()) != len(docs)-len(dead) {
		t.Fatalf("view has %d documents, %d live; want %d, %d", v.NumDocs(), v.LiveDocs(), len(docs), len(docs)-len(dead))
	}
	for _, field := range []int{0, 1} {
		want, lens := bruteTerms(t, docs, field)
		got := map[string]int{}
		prev := ""
		if err := v.ScanTerms(field, nil, func(term []byte, df uint32) bool {
			if s := string(term); s <= prev && prev != "" {
				t.Fatalf("terms %q, %q are out of order", prev, s)
			}
			prev = string(term)
			got[prev] = int(df)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("field %d: %d terms, want %d", field, len(got), len(want))
		}
		var scanned []string
		if err := v.ScanPostings(field, []byte("t"), func(term []byte, p segment.Postings) bool {
			one, ok := v.Postings(field, term)
			if !ok || !reflect.DeepEqual(p, one) {
				t.Fatalf("term %q: the scan's list differs from the one that is looked up", term)
			}
			scanned = append(scanned, string(term))
			return len(scanned) < 50
		}); err != nil {
			t.Fatal(err)
		}
		var asked []string
		for _, term := range slices.Sorted(maps.Keys(want)) {
			if strings.HasPrefix(term, "t") && len(asked) < 50 {
				asked = append(asked, term)
			}
		}
		if !slices.Equal(scanned, asked) {
			t.Fatalf("field %d: scan of postings gives %q, want %q", field, scanned, asked)
		}
		for term, l := range want {
			if got[term] != len(l) {
				t.Fatalf("term %q: df %d, want %d", term, got[term], len(l))
			}
			d, borrowed, ok := v.list(field, []byte(term))
			d = d.own(borrowed)
			if !ok || len(d.docs) != len(l) {
				t.Fatalf("term %q: %d postings, want %d", term, len(d.docs), len(l))
			}
			at, live := 0, uint64(0)
			for i, p := range l {
				if d.docs[i] != p.doc || d.freqs[i] != p.freq {
					t.Fatalf("term %q posting %d: (%d, %d), want (%d, %d)", term, i, d.docs[i], d.freqs[i], p.doc, p.freq)
				}
				if field == 0 {
					if g := d.positions[at : at+int(p.freq)]; !slices.Equal(g, p.pos) {
						t.Fatalf("term %q posting %d: positions %v, want %v", term, i, g, p.pos)
					}
					at += int(p.freq)
				}
				if !dead[p.doc] {
					live++
				}
			}
			if field == 0 && at != len(d.positions) {
				t.Fatalf("term %q: %d positions, want %d", term, len(d.positions), at)
			}
			if df, err := v.DocFreq(field, []byte(term), func(int) error { return nil }); err != nil || df != live {
				t.Fatalf("term %q: live df %d (%v), want %d", term, df, err, live)
			}
		}
		if len(want) > 0 && !slices.Equal(v.Lengths(field), lens) {
			t.Fatalf("field %d: lengths %v, want %v", field, v.Lengths(field), lens)
		}
	}
	checkColumns(t, v, docs)
	checkVectors(t, v, docs)
	for d, doc := range docs {
		if k := string(v.Key(uint32(d), nil)); k != doc.Key {
			t.Fatalf("document %d: key %q, want %q", d, k, doc.Key)
		}
		if s, err := v.Source(uint32(d), nil); err != nil || string(s) != string(doc.Source) {
			t.Fatalf("document %d: source %q (%v), want %q", d, s, err, doc.Source)
		}
	}
}

func values(doc *schema.Document, field int) *schema.Values {
	for i := range doc.Fields {
		if doc.Fields[i].Field == field {
			return &doc.Fields[i]
		}
	}
	return &schema.Values{}
}

func checkColumns(t testing.TB, v *View, docs []*schema.Document) {
	t.Helper()
	num, str := v.NumColumn(2), v.StrColumn(1)
	for d, doc := range docs {
		for f := range testSchema.Fields {
			has := len(values(doc, f).Text)+len(values(doc, f).Nums)+len(values(doc, f).Bytes) > 0
			if p := v.Present(f); (p != nil && p(uint32(d))) != has {
				t.Fatalf("document %d field %d: present %v, want %v", d, f, !has, has)
			}
		}
		if num != nil {
			got, want := num.Values(uint32(d), nil), values(doc, 2).Nums
			if !slices.Equal(got, want) {
				t.Fatalf("document %d: numbers %v, want %v", d, got, want)
			}
			lo, hi, ok := num.BlockRange(d / columnBlock)
			for _, x := range want {
				if !ok || x < lo || x > hi {
					t.Fatalf("document %d: %d is outside its block's range [%d, %d] %v", d, x, lo, hi, ok)
				}
			}
		}
		if str != nil {
			var got, want []string
			for _, o := range str.Ords(uint32(d), nil) {
				s := str.Lookup(int(o), nil)
				if ord, exact := str.Seek(s); !exact || ord != int(o) {
					t.Fatalf("Seek(%q) = %d, %v; want %d", s, ord, exact, o)
				}
				got = append(got, string(s))
			}
			for _, s := range values(doc, 1).Text {
				if len(s) <= 8 {
					want = append(want, s)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("document %d: strings %q, want %q", d, got, want)
			}
		}
	}
	if str != nil {
		for i := 1; i < str.NumOrds(); i++ {
			if string(str.Lookup(i-1, nil)) >= string(str.Lookup(i, nil)) {
				t.Fatalf("ordinals %d and %d are out of order", i-1, i)
			}
		}
	}
}

// TestViewsAgainstBruteForce takes views at random moments, with random deaths, and compares each with the documents, also after
// the table went on.
func TestViewsAgainstBruteForce(t *testing.T) {
	for s := range uint64(2) {
		r := rand.New(rand.NewPCG(s, 1))
		inv, tab := inverter(t), New()
		var docs []*schema.Document
		dead := map[uint32]bool{}
		type taken struct {
			v    *View
			n    int
			dead map[uint32]bool
		}
		var views []taken
		for len(docs) < 700 {
			var b Batch
			for range 1 + r.IntN(40) {
				d := randomDoc(r, fmt.Sprintf("k%d-%d", r.IntN(1000), len(docs)))
				inv.Add(&b, d)
				docs = append(docs, d)
			}
			for i := range b.Len() {
				tab.Insert(&b, i, uint64(len(docs)))
			}
			visible := len(docs) - r.IntN(10) // the last may not be visible yet
			for range r.IntN(5) {
				dead[r.Uint32N(uint32(visible))] = true
			}
			if r.IntN(4) == 0 {
				live := bitset.Full(visible)
				here := map[uint32]bool{}
				for d := range dead {
					if int(d) < visible {
						live.Remove(d)
						here[d] = true
					}
				}
				v := tab.View(uint32(visible), live, slices.Collect(maps.Keys(here)))
				views = append(views, taken{v, visible, here})
				if r.IntN(3) == 0 {
					checkView(t, v, docs[:visible], here)
				}
			}
		}
		for i, v := range views {
			if i%4 == 0 || i == len(views)-1 {
				checkView(t, v.v, docs[:v.n], v.dead)
			}
		}
	}
}

// TestReadersDuringWrites lets readers work on views while the writer goes on; the race detector watches.
func TestReadersDuringWrites(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	inv, tab := inverter(t), New()
	var docs []*schema.Document
	var wg sync.WaitGroup
	for range 60 {
		var b Batch
		for range 20 {
			d := randomDoc(r, fmt.Sprintf("k%d", len(docs)))
			inv.Add(&b, d)
			docs = append(docs, d)
		}
		for i := range b.Len() {
			tab.Insert(&b, i, 1)
		}
		if r.IntN(6) == 0 {
			n := len(docs)
			v := tab.View(uint32(n), nil, nil)
			wg.Add(1)
			go func(docs []*schema.Document) {
				defer wg.Done()
				checkView(t, v, docs, nil)
			}(docs[:n:n])
		}
	}
	wg.Wait()
}

func TestFind(t *testing.T) {
	inv, tab := inverter(t), New()
	put := func(key string) {
		var b Batch
		inv.Add(&b, &schema.Document{Key: key})
		tab.Insert(&b, 0, 1)
	}
	put("a")
	put("b")
	before := tab.View(2, nil, nil)
	put("a")
	live := bitset.Full(3)
	live.Remove(0)
	after := tab.View(3, live, []uint32{0})
	for _, c := range []struct {
		about string
		v     *View
		key   string
		doc   uint32
		ok    bool
	}{
		{"only version", before, "b", 1, true},
		{"older view after an update", before, "a", 0, true},
		{"newer version", after, "a", 2, true},
		{"absent", after, "c", 0, false},
		{"empty", after, "", 0, false},
	} {
		if doc, ok := c.v.Find(c.key); ok != c.ok || ok && doc != c.doc {
			t.Errorf("%s: Find(%q) = %d, %v; want %d, %v", c.about, c.key, doc, ok, c.doc, c.ok)
		}
	}
}

func TestRollbackRestoresOlderVersions(t *testing.T) {
	inv, tab := inverter(t), New()
	put := func(key string) {
		var b Batch
		inv.Add(&b, &schema.Document{Key: key})
		tab.Insert(&b, 0, 1)
	}
	for _, k := range []string{"a", "b", "a", "a", "c"} {
		put(k)
	}
	tab.Rollback(2)
	for key, want := range map[string]int{"a": 0, "b": 1, "c": -1} {
		if d, ok := tab.Latest(key); ok != (want >= 0) || ok && int(d) != want {
			t.Errorf("Latest(%q) = %d, %v; want %d", key, d, ok, want)
		}
	}
	put("c")
	if d, ok := tab.Latest("c"); !ok || d != 5 {
		t.Errorf("Latest(c) = %d, %v after a new put; want 5", d, ok)
	}
}

func TestNextBaseKeepsValuesApart(t *testing.T) {
	last := uint64(0)
	for range 100_000 {
		b := nextBase(last)
		if b < last+minGap {
			t.Fatalf("value starts at %d after %d", b, last)
		}
		last = b + 3
		if last > 1<<32 {
			return
		}
	}
}

func TestLengthSaturates(t *testing.T) {
	inv, tab := inverter(t), New()
	var b Batch
	inv.Add(&b, &schema.Document{Key: "k", Fields: []schema.Values{{Field: 0, Text: []string{strings.Repeat("a b ", 40_000)}}}})
	tab.Insert(&b, 0, 1)
	v := tab.View(1, nil, nil)
	if l := v.Lengths(0)[0]; l != MaxLength {
		t.Fatalf("length %d", l)
	}
	if d, _, _ := v.list(0, []byte("a")); d.freqs[0] != 40_000 || len(d.positions) != 40_000 || d.positions[39_999] != 79_998 {
		t.Fatalf("frequency %d, %d positions", d.freqs[0], len(d.positions))
	}
}

func benchDocs(n int) []*schema.Document {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 4, 200_000)
	docs := make([]*schema.Document, n)
	for i := range docs {
		var b strings.Builder
		for range 200 {
			fmt.Fprintf(&b, "word%d ", z.Uint64())
		}
		docs[i] = &schema.Document{Key: fmt.Sprintf("doc-%08d", i), Fields: []schema.Values{{Field: 0, Text: []string{b.String()}}}}
	}
	return docs
}

// TestInvertDoesNotAllocatePerToken holds the steady state: chunks and growing slices are the only memory.
func TestInvertDoesNotAllocatePerToken(t *testing.T) {
	docs := benchDocs(400)
	inv, tab := inverter(t), New()
	var b Batch
	add := func(d *schema.Document) {
		b.Reset()
		inv.Add(&b, d)
		tab.Insert(&b, 0, 1)
	}
	for _, d := range docs {
		add(d)
	}
	i := 0
	if n := testing.AllocsPerRun(300, func() { add(docs[i%len(docs)]); i++ }); n > 2 {
		t.Fatalf("%v allocations for a document of 200 tokens", n)
	}
}

func BenchmarkInvert(b *testing.B) {
	docs := benchDocs(5000)
	inv := inverter(b)
	b.ReportAllocs()
	for b.Loop() {
		tab := New()
		var bt Batch
		for i := 0; i < len(docs); i += 64 {
			bt.Reset()
			for _, d := range docs[i:min(i+64, len(docs))] {
				inv.Add(&bt, d)
			}
			for j := range bt.Len() {
				tab.Insert(&bt, j, 1)
			}
		}
	}
	b.ReportMetric(float64(b.N)*5000*200/b.Elapsed().Seconds()/1e6, "Mtokens/s")
}

func BenchmarkInvertOnly(b *testing.B) {
	docs := benchDocs(5000)
	inv := inverter(b)
	var bt Batch
	for b.Loop() {
		for i := 0; i < len(docs); i += 64 {
			bt.Reset()
			for _, d := range docs[i:min(i+64, len(docs))] {
				inv.Add(&bt, d)
			}
		}
	}
	b.ReportMetric(float64(b.N)*5000*200/b.Elapsed().Seconds()/1e6, "Mtokens/s")
}

func BenchmarkDecode(b *testing.B) {
	docs := benchDocs(5000)
	inv, tab := inverter(b), New()
	for _, d := range docs {
		var bt Batch
		inv.Add(&bt, d)
		tab.Insert(&bt, 0, 1)
	}
	v := tab.View(5000, nil, nil)
	n, _ := find(v.fields[0].slots, v.fields[0].terms, v.c, hashString("word0"), []byte("word0"))
	e := &v.fields[0].terms[n]
	df, end := e.load()
	var cl cachedList
	for b.Loop() {
		cl.l.docs, cl.l.freqs, cl.l.positions = cl.l.docs[:0], cl.l.freqs[:0], cl.l.positions[:0]
		cl.advance(v.c, e, df, end, true)
	}
	b.ReportMetric(float64(b.N)*float64(df)/b.Elapsed().Seconds()/1e6, "Mpostings/s")
}
