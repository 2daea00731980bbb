package segment

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
)

// The model is the plain meaning of a segment: documents in maps and slices. Tests write it and compare every answer.

type modelDoc struct {
	key    string
	ts     uint64
	text   map[int]map[string][]uint32 // field → term → positions
	nums   map[int][]uint64
	strs   map[int][]string
	vecs   map[int][][]byte // values as package schema has them
	source string
}

type modelField struct {
	meta      FieldMeta
	kind      byte // t text, n numbers, s strings, v dense or binary vectors, p sparse vectors
	positions bool
	decl      string // of a field of vectors, as SDL
}

type model struct {
	fields []modelField
	docs   []modelDoc // ascending by key
}

func (m *model) length(d, field int) uint16 {
	n := 0
	for _, p := range m.docs[d].text[field] {
		n += len(p)
	}
	return uint16(min(n, 65535))
}

// write gives the model to a writer as the flush of a memtable does.
func (m *model) write(w *Writer, noSources bool) (Info, error) {
	var metas []FieldMeta
	for _, f := range m.fields {
		metas = append(metas, f.meta)
	}
	w.Begin(len(m.docs), metas)
	for _, d := range m.docs {
		w.Key([]byte(d.key), d.ts)
	}
	for _, f := range m.fields {
		if f.kind != 't' {
			continue
		}
		lens := make([]uint16, len(m.docs))
		terms := map[string][]int{}
		for i := range m.docs {
			lens[i] = m.length(i, f.meta.ID)
			for t := range m.docs[i].text[f.meta.ID] {
				terms[t] = append(terms[t], i)
			}
		}
		w.BeginField(f.meta.ID, f.positions, lens)
		names := make([]string, 0, len(terms))
		for t := range terms {
			names = append(names, t)
		}
		sort.Strings(names)
		for _, t := range names {
			w.StartTerm([]byte(t))
			ids := terms[t]
			for len(ids) > 0 {
				n := min(len(ids), 100) // another size than the writer's blocks
				var docs, freqs, pos []uint32
				for _, d := range ids[:n] {
					p := m.docs[d].text[f.meta.ID][t]
					docs = append(docs, uint32(d))
					freqs = append(freqs, uint32(len(p)))
					if f.positions {
						pos = append(pos, p...)
					}
				}
				w.Add(docs, freqs, pos)
				ids = ids[n:]
			}
			w.EndTerm()
		}
		w.EndField()
	}
	for _, f := range m.fields {
		if f.kind != 'n' {
			continue
		}
		starts, one := []uint32{0}, true
		var values []uint64
		for _, d := range m.docs {
			v := d.nums[f.meta.ID]
			one = one && len(v) == 1
			values = append(values, v...)
			starts = append(starts, uint32(len(values)))
		}
		if one {
			starts = nil
		}
		w.NumColumn(f.meta.ID, starts, values)
	}
	for _, f := range m.fields {
		if f.kind != 's' {
			continue
		}
		starts := []uint32{0}
		var values [][]byte
		for _, d := range m.docs {
			for _, v := range d.strs[f.meta.ID] {
				values = append(values, []byte(v))
			}
			starts = append(starts, uint32(len(values)))
		}
		w.StrColumn(f.meta.ID, starts, values)
	}
	for _, f := range m.fields {
		var docs []uint32
		for i := range m.docs {
			if m.has(i, f) {
				docs = append(docs, uint32(i))
			}
		}
		w.Presence(f.meta.ID, docs)
	}
	for _, f := range m.fields {
		if f.kind == 'v' {
			w.Vectors(context.Background(), f.meta.ID, f.params(), m.records(f))
		}
	}
	for _, f := range m.fields {
		if f.kind == 'p' {
			w.SparseVectors(context.Background(), f.meta.ID, f.sparseParams(), m.records(f))
		}
	}
	if !noSources {
		for _, d := range m.docs {
			w.Source([]byte(d.source))
		}
	}
	return w.Finish()
}

func (m *model) has(d int, f modelField) bool {
	switch f.kind {
	case 't':
		return len(m.docs[d].text[f.meta.ID]) > 0
	case 'n':
		return len(m.docs[d].nums[f.meta.ID]) > 0
	case 'v', 'p':
		return len(m.docs[d].vecs[f.meta.ID]) > 0
	}
	return len(m.docs[d].strs[f.meta.ID]) > 0
}

func (m *model) bytes(t testing.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	info, err := m.write(NewWriter(&buf, WriterOptions{}), false)
	if err != nil {
		t.Fatal(err)
	}
	if info.Bytes != int64(buf.Len()) || int(info.Docs) != len(m.docs) {
		t.Fatalf("info %+v, wrote %d bytes, %d documents", info, buf.Len(), len(m.docs))
	}
	return buf.Bytes()
}

// check compares every answer of r with the model.
func (m *model) check(t testing.TB, r *Reader) {
	t.Helper()
	if int(r.NumDocs()) != len(m.docs) {
		t.Fatalf("NumDocs = %d, want %d", r.NumDocs(), len(m.docs))
	}
	keys := map[string]bool{}
	maxTS := uint64(0)
	for i, d := range m.docs {
		keys[d.key] = true
		maxTS = max(maxTS, d.ts)
		if got := string(r.Key(uint32(i), []byte("x"))); got != "x"+d.key {
			t.Fatalf("Key(%d) = %q, want %q", i, got, d.key)
		}
		if got, ok := r.FindKey(d.key); !ok || got != uint32(i) {
			t.Fatalf("FindKey(%q) = %d, %v, want %d", d.key, got, ok, i)
		}
		for _, other := range []string{d.key + "\x00", d.key + "~", d.key[:len(d.key)/2]} {
			want := sort.Search(len(m.docs), func(i int) bool { return m.docs[i].key >= other })
			if got, _ := r.keys.seek([]byte(other)); got != uint64(want) {
				t.Fatalf("seek %q among the keys: %d, want %d", other, got, want)
			}
			if _, ok := r.FindKey(other); ok != (want < len(m.docs) && m.docs[want].key == other) {
				t.Fatalf("FindKey(%q) = %v", other, ok)
			}
		}
		if got := r.CommitTS(uint32(i)); got != d.ts {
			t.Fatalf("CommitTS(%d) = %d, want %d", i, got, d.ts)
		}
		if r.sources != nil {
			if got, err := r.Source(uint32(i), []byte("x")); err != nil || string(got) != "x"+d.source {
				t.Fatalf("Source(%d) = %q, %v", i, got, err)
			}
		}
	}
	for _, from := range []int{0, 1, tableBlock - 1, tableBlock, len(m.docs) / 2, len(m.docs) - 1, len(m.docs)} {
		from = max(0, min(from, len(m.docs)))
		next := from
		if err := r.EachKey(uint32(from), func(doc uint32, key []byte) error {
			if int(doc) != next || string(key) != m.docs[doc].key {
				t.Fatalf("EachKey from %d gave document %d %q, want %d", from, doc, key, next)
			}
			next++
			return nil
		}); err != nil || next != len(m.docs) {
			t.Fatalf("EachKey from %d ended at %d: %v", from, next, err)
		}
	}
	next := 0
	if err := r.EachSource(func(doc uint32, source []byte) error {
		if int(doc) != next || string(source) != m.docs[doc].source {
			t.Fatalf("EachSource gave document %d %q, want %d", doc, source, next)
		}
		next++
		return nil
	}); err != nil || next != len(m.docs) && r.HasSources() {
		t.Fatalf("EachSource ended at %d: %v", next, err)
	}
	if got := r.MaxCommitTS(); got != maxTS {
		t.Fatalf("MaxCommitTS = %d, want %d", got, maxTS)
	}
	for _, f := range m.fields {
		m.checkPresence(t, r, f)
		switch f.kind {
		case 't':
			m.checkText(t, r, f)
		case 'n':
			m.checkNums(t, r, f)
		case 's':
			m.checkStrs(t, r, f)
		case 'v', 'p':
			m.checkVectors(t, r, f)
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
}

func (m *model) checkPresence(t testing.TB, r *Reader, f modelField) {
	t.Helper()
	p := r.Present(f.meta.ID)
	count := 0
	next, ok := p.NextSet(0)
	for i := range m.docs {
		has := m.has(i, f)
		if p.Has(uint32(i)) != has {
			t.Fatalf("field %d: Has(%d) = %v", f.meta.ID, i, !has)
		}
		if has {
			count++
			if !ok || next != uint32(i) {
				t.Fatalf("field %d: NextSet = %d, %v, want %d", f.meta.ID, next, ok, i)
			}
			next, ok = p.NextSet(uint32(i) + 1)
		}
	}
	if ok || p.Count() != count || p.Has(uint32(len(m.docs))) {
		t.Fatalf("field %d: Count = %d, want %d; %v after the last", f.meta.ID, p.Count(), count, ok)
	}
}

func (m *model) checkNums(t testing.TB, r *Reader, f modelField) {
	t.Helper()
	c, ok := r.NumColumn(f.meta.ID)
	if !ok {
		for i := range m.docs {
			if m.has(i, f) {
				t.Fatalf("field %d has no column", f.meta.ID)
			}
		}
		return
	}
	for b := range c.NumBlocks() {
		var all []uint64
		one := true
		for i := b * ColumnBlock; i < min(len(m.docs), (b+1)*ColumnBlock); i++ {
			v := m.docs[i].nums[f.meta.ID]
			one = one && len(v) == 1
			all = append(all, v...)
			if got := c.Values(uint32(i), nil); !slices.Equal(got, v) {
				t.Fatalf("field %d: Values(%d) = %v, want %v", f.meta.ID, i, got, v)
			}
			first, ok := c.First(uint32(i))
			if ok != (len(v) > 0) || ok && first != v[0] {
				t.Fatalf("field %d: First(%d) = %v, %v, want %v", f.meta.ID, i, first, ok, v)
			}
		}
		lo, hi, ok := c.BlockRange(b)
		if ok != (len(all) > 0) || ok && (lo != slices.Min(all) || hi != slices.Max(all)) {
			t.Fatalf("field %d: BlockRange(%d) = %d, %d, %v", f.meta.ID, b, lo, hi, ok)
		}
		var dst [ColumnBlock]uint64
		if n, ok := c.ReadBlock(b, &dst); ok != one || ok && !slices.Equal(dst[:n], all) {
			t.Fatalf("field %d: ReadBlock(%d) = %d, %v", f.meta.ID, b, n, ok)
		}
	}
}

func (m *model) checkStrs(t testing.TB, r *Reader, f modelField) {
	t.Helper()
	set := map[string]bool{}
	for _, d := range m.docs {
		for _, v := range d.strs[f.meta.ID] {
			set[v] = true
		}
	}
	var dict []string
	for v := range set {
		dict = append(dict, v)
	}
	sort.Strings(dict)
	c, ok := r.StrColumn(f.meta.ID)
	if ok != (len(dict) > 0) {
		t.Fatalf("field %d: column is there: %v", f.meta.ID, ok)
	}
	if !ok {
		return
	}
	if c.NumOrds() != len(dict) {
		t.Fatalf("field %d: NumOrds = %d, want %d", f.meta.ID, c.NumOrds(), len(dict))
	}
	for i, v := range dict {
		if got := string(c.Lookup(i, nil)); got != v {
			t.Fatalf("field %d: Lookup(%d) = %q, want %q", f.meta.ID, i, got, v)
		}
		for _, s := range []string{v, v + "a", v[:len(v)/2]} {
			want := sort.SearchStrings(dict, s)
			exact := want < len(dict) && dict[want] == s
			if got, ex := c.Seek([]byte(s)); got != want || ex != exact {
				t.Fatalf("field %d: Seek(%q) = %d, %v, want %d, %v", f.meta.ID, s, got, ex, want, exact)
			}
		}
	}
	for step := 1; step <= len(dict) && step < 100; step = 3*step + 1 {
		var ords []uint64
		want := "kept"
		for i := step / 2; i < len(dict); i += step {
			ords = append(ords, uint64(i))
			want += dict[i]
		}
		ends := make([]int, len(ords))
		got := c.LookupAscending(ords, []byte("kept"), ends)
		if string(got) != want {
			t.Fatalf("field %d: LookupAscending = %q, want %q", f.meta.ID, got, want)
		}
		from := len("kept")
		for i, o := range ords {
			if string(got[from:ends[i]]) != dict[o] {
				t.Fatalf("field %d: value %d of LookupAscending is %q, want %q", f.meta.ID, o, got[from:ends[i]], dict[o])
			}
			from = ends[i]
		}
	}
	for i, d := range m.docs {
		var want []uint32
		for _, v := range d.strs[f.meta.ID] {
			want = append(want, uint32(sort.SearchStrings(dict, v)))
		}
		if got := c.Ords(uint32(i), nil); !slices.Equal(got, want) {
			t.Fatalf("field %d: Ords(%d) = %v, want %v", f.meta.ID, i, got, want)
		}
		first, ok := c.First(uint32(i))
		if ok != (len(want) > 0) || ok && first != want[0] {
			t.Fatalf("field %d: First(%d) = %d, %v", f.meta.ID, i, first, ok)
		}
	}
	for b := range c.NumBlocks() {
		var all []uint32
		one := true // each document of the block has exactly one value
		for i := b * ColumnBlock; i < min((b+1)*ColumnBlock, len(m.docs)); i++ {
			n := len(all)
			all = c.Ords(uint32(i), all)
			one = one && len(all) == n+1
		}
		var dst [ColumnBlock]uint64
		n, ok := c.ReadBlock(b, &dst)
		if ok != one {
			t.Fatalf("field %d: ReadBlock(%d) = %d, %v", f.meta.ID, b, n, ok)
		}
		for i := range n {
			if dst[i] != uint64(all[i]) {
				t.Fatalf("field %d: ReadBlock(%d)[%d] = %d, want %d", f.meta.ID, b, i, dst[i], all[i])
			}
		}
	}
}

func (m *model) checkText(t testing.TB, r *Reader, f modelField) {
	t.Helper()
	lists := map[string][]uint32{}
	sum, with := uint64(0), uint64(0)
	lens := r.Lengths(f.meta.ID)
	for i := range m.docs {
		l := m.length(i, f.meta.ID)
		sum += uint64(l)
		if l > 0 {
			with++
		}
		if lens != nil && lens[i] != l || lens == nil && l > 0 {
			t.Fatalf("field %d: length of %d", f.meta.ID, i)
		}
		for term := range m.docs[i].text[f.meta.ID] {
			lists[term] = append(lists[term], uint32(i))
		}
	}
	if s := r.FieldStats(f.meta.ID); s.SumLen != sum || s.Docs != with {
		t.Fatalf("field %d: FieldStats = %+v, want %d, %d", f.meta.ID, s, sum, with)
	}
	var names []string
	for term := range lists {
		names = append(names, term)
	}
	sort.Strings(names)
	for _, prefix := range []string{"", "a", "t1", "zz", "t"} {
		var got []string
		err := r.ScanTerms(f.meta.ID, []byte(prefix), func(term []byte, df uint32) bool {
			got = append(got, fmt.Sprint(string(term), df))
			return true
		})
		var want []string
		for _, n := range names {
			if len(n) >= len(prefix) && n[:len(prefix)] == prefix {
				want = append(want, fmt.Sprint(n, len(lists[n])))
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("field %d: ScanTerms(%q): %v: %d terms, want %d", f.meta.ID, prefix, err, len(got), len(want))
		}
	}
	m.checkScanPostings(t, r, f, names, lists, lens)
	for _, name := range names {
		p, ok := r.Postings(f.meta.ID, []byte(name))
		if !ok {
			t.Fatalf("field %d: term %q is missing: %v", f.meta.ID, name, r.Err())
		}
		if p.HasPositions() != f.positions {
			t.Fatalf("field %d: HasPositions = %v", f.meta.ID, p.HasPositions())
		}
		m.checkList(t, &p, f, name, lists[name], lens)
		for _, other := range []string{name + "\x00", name + "x", name[:len(name)-1], "~"} {
			if _, ok := r.Postings(f.meta.ID, []byte(other)); ok != (lists[other] != nil) {
				t.Fatalf("field %d: Postings(%q) = %v", f.meta.ID, other, ok)
			}
		}
	}
}

// checkScanPostings compares what a scan hands over with what is there to be found.
func (m *model) checkScanPostings(t testing.TB, r *Reader, f modelField, names []string, lists map[string][]uint32, lens []uint16) {
	t.Helper()
	for _, prefix := range []string{"", "a", "t1", "zz"} {
		var want []string
		for _, n := range names {
			if strings.HasPrefix(n, prefix) {
				want = append(want, n)
			}
		}
		most := len(want)
		if prefix == "t1" {
			most = (len(want) + 1) / 2 // and stop
		}
		var got []string
		var kept []Postings
		if err := r.ScanPostings(f.meta.ID, []byte(prefix), func(term []byte, p Postings) bool {
			got, kept = append(got, string(term)), append(kept, p)
			return len(got) < most
		}); err != nil || !slices.Equal(got, want[:most]) {
			t.Fatalf("field %d: ScanPostings(%q): %v: terms %q, want %q", f.meta.ID, prefix, err, got, want[:most])
		}
		for i := range kept { // lists outlive the scan
			p, ok := r.Postings(f.meta.ID, []byte(got[i]))
			if !ok || !reflect.DeepEqual(p, kept[i]) {
				t.Fatalf("field %d: ScanPostings(%q): list of %q differs from the one that is looked up", f.meta.ID, prefix, got[i])
			}
			if i%7 == 0 {
				m.checkList(t, &kept[i], f, got[i], lists[got[i]], lens)
			}
		}
	}
}

// checkList compares a list with the ascending documents that hold the term.
func (m *model) checkList(t testing.TB, p *Postings, f modelField, term string, want []uint32, lens []uint16) {
	t.Helper()
	if p.DocFreq() != len(want) || p.Blocks() != (len(want)+127)/128 {
		t.Fatalf("%q: DocFreq = %d, Blocks = %d, want %d", term, p.DocFreq(), p.Blocks(), len(want))
	}
	whole := p.Impacts(-1, nil)
	if len(whole) > 8 || len(whole) == 0 {
		t.Fatalf("%q: %d impacts of the list", term, len(whole))
	}
	for b := range p.Blocks() {
		blk := want[b*128 : min(len(want), b*128+128)]
		var docs, freqs, d2, f2 [128]uint32
		if got := p.LastDoc(b); got != blk[len(blk)-1] {
			t.Fatalf("%q: LastDoc(%d) = %d, want %d", term, b, got, blk[len(blk)-1])
		}
		n := p.Docs(b, &docs)
		if n != len(blk) || !slices.Equal(docs[:n], blk) {
			t.Fatalf("%q: Docs(%d) = %v, want %v: %v", term, b, docs[:n], blk, p.Err())
		}
		for _, d := range docs[n:] {
			if d != 0xFFFFFFFF {
				t.Fatalf("%q: block %d is filled with %d", term, b, d)
			}
		}
		p.Freqs(b, &freqs)
		if p.DocsFreqs(b, &d2, &f2) != n || d2 != docs || !slices.Equal(f2[:n], freqs[:n]) {
			t.Fatalf("%q: DocsFreqs(%d) differs", term, b)
		}
		imp := p.Impacts(b, nil)
		if len(imp) > 4 || len(imp) == 0 {
			t.Fatalf("%q: %d impacts of block %d", term, len(imp), b)
		}
		for i, d := range blk {
			pos := m.docs[d].text[f.meta.ID][term]
			if int(freqs[i]) != len(pos) {
				t.Fatalf("%q: frequency in %d is %d, want %d", term, d, freqs[i], len(pos))
			}
			l := m.length(int(d), f.meta.ID)
			for _, im := range [][]Impact{imp, whole} {
				if !slices.ContainsFunc(im, func(x Impact) bool { return x.Freq >= freqs[i] && x.Len <= l }) {
					t.Fatalf("%q: impacts %v do not bound (%d, %d)", term, im, freqs[i], l)
				}
			}
			if f.positions {
				if got := p.Positions(b, i, &freqs, []uint32{7}); !slices.Equal(got[1:], pos) || got[0] != 7 {
					t.Fatalf("%q: positions in %d are %v, want %v: %v", term, d, got, pos, p.Err())
				}
			}
		}
	}
	probe := func(doc uint32) {
		for _, from := range []int{0, 1, p.Blocks() / 2, p.Blocks()} {
			w := from
			for w < p.Blocks() && want[min(len(want), w*128+128)-1] < doc {
				w++
			}
			w = min(w, p.Blocks())
			if got := p.SeekBlock(from, doc); got != w {
				t.Fatalf("%q: SeekBlock(%d, %d) = %d, want %d", term, from, doc, got, w)
			}
		}
	}
	probe(0)
	for i := 0; i < len(want); i += 1 + len(want)/40 {
		probe(want[i])
		probe(want[i] + 1)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
}

// randomModel makes n documents with fields of every kind.
func randomModel(rng *rand.Rand, n int) *model {
	m := &model{fields: []modelField{
		{meta: FieldMeta{ID: 0, Name: "body"}, kind: 't', positions: true},
		{meta: FieldMeta{ID: 2, Name: "title"}, kind: 't'},
		{meta: FieldMeta{ID: 3, Name: "size"}, kind: 'n'},
		{meta: FieldMeta{ID: 4, Name: "maybe"}, kind: 'n'},
		{meta: FieldMeta{ID: 5, Name: "many"}, kind: 'n'},
		{meta: FieldMeta{ID: 7, Name: "wide"}, kind: 'n'},
		{meta: FieldMeta{ID: 8, Name: "tag"}, kind: 's'},
		{meta: FieldMeta{ID: 300, Name: "rare"}, kind: 's'},
		{meta: FieldMeta{ID: 301, Name: "never"}, kind: 't'},
		{meta: FieldMeta{ID: 302, Name: "odd"}, kind: 'n'},
	}}
	m.fields = append(m.fields, vectorFields()...)
	keys := map[string]bool{}
	for len(keys) < n {
		switch rng.IntN(4) {
		case 0:
			keys[fmt.Sprintf("doc/%09d", rng.IntN(1e9))] = true
		case 1:
			keys[fmt.Sprintf("doc/%d", rng.IntN(1e6))] = true
		default:
			b := make([]byte, 1+rng.IntN(30))
			for i := range b {
				b[i] = byte(rng.IntN(3) * 127)
			}
			keys[string(b)] = true
		}
	}
	for k := range keys {
		m.docs = append(m.docs, modelDoc{key: k})
	}
	slices.SortFunc(m.docs, func(a, b modelDoc) int { return bytes.Compare([]byte(a.key), []byte(b.key)) })
	for i := range m.docs {
		m.docs[i] = randomDoc(rng, m.docs[i].key)
	}
	return m
}

func randomDoc(rng *rand.Rand, key string) modelDoc {
	d := modelDoc{key: key, ts: 1e18 + uint64(rng.IntN(1e6)), text: map[int]map[string][]uint32{}, nums: map[int][]uint64{}, strs: map[int][]string{}}
	tokens := 1 + rng.IntN(60)
	if rng.IntN(200) == 0 {
		tokens = 1000
	}
	if rng.IntN(20) == 0 {
		tokens = 0
	}
	body := map[string][]uint32{}
	pos := uint32(0)
	for range tokens {
		// The greater the number, the rarer the term.
		t := fmt.Sprintf("t%d", int(1/(rng.Float64()+1e-5)))
		if rng.IntN(50) == 0 {
			t = fmt.Sprintf("a-rather-long-term-with-a-shared-beginning-%x", rng.IntN(1000))
		}
		body[t] = append(body[t], pos)
		pos += 1 + uint32(rng.IntN(2)*rng.IntN(300))
	}
	d.text[0] = body
	if rng.IntN(3) > 0 {
		d.text[2] = map[string][]uint32{fmt.Sprintf("t%d", rng.IntN(5)): {0}, "all": {1, 2, 3}}
	}
	d.nums[3] = []uint64{uint64(rng.IntN(5000)) + 1<<63}
	if rng.IntN(2) == 0 {
		d.nums[4] = []uint64{uint64(rng.IntN(100))}
	}
	for range rng.IntN(4) {
		d.nums[5] = append(d.nums[5], rng.Uint64()>>rng.IntN(64))
	}
	d.nums[7] = []uint64{rng.Uint64() >> 3}
	if rng.IntN(500) == 0 {
		d.nums[302] = []uint64{42}
	}
	for range rng.IntN(3) {
		d.strs[8] = append(d.strs[8], fmt.Sprintf("tag-%d", rng.IntN(40)))
	}
	if rng.IntN(30) == 0 {
		d.strs[300] = []string{string(make([]byte, rng.IntN(40)))}
	}
	d.vecs = randomVectors(rng)
	d.source = fmt.Sprintf(`{"id":%q,"n":%d}`, key, rng.IntN(1e9))
	if rng.IntN(100) == 0 {
		d.source += string(bytes.Repeat([]byte("x"), rng.IntN(40000)))
	}
	return d
}
