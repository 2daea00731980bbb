package passage_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/passage"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const body = 1 // the chunked field

func open(t testing.TB) *shard.Shard {
	t.Helper()
	sch, err := schema.NewDynamic("t").AddFields([]schema.Field{
		{Name: "body", Type: schema.Text, Tokenizer: "simple", Indexed: true, Multi: true, Chunked: true, K1: schema.DefaultK1, B: schema.DefaultB},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := shard.Open(t.Context(), shard.Config{Dir: "d", FS: memfs.New(nil), Schema: sch, NoBackground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

type docs map[string][][]string // passages of tokens by key

func (d docs) put(t testing.TB, s *shard.Shard, key string, passages [][]string) {
	t.Helper()
	var values []string
	for _, p := range passages {
		values = append(values, strings.Join(p, " "))
	}
	doc := &schema.Document{Key: key, Source: []byte("{}")}
	if len(values) > 0 {
		doc.Fields = []schema.Values{{Field: body, Text: values}}
	}
	apply(t, s, shard.Op{Doc: doc})
	d[key] = passages
}

func (d docs) delete(t testing.TB, s *shard.Shard, key string) {
	t.Helper()
	apply(t, s, shard.Op{Delete: true, Key: key})
	delete(d, key)
}

func apply(t testing.TB, s *shard.Shard, op shard.Op) {
	t.Helper()
	res, err := s.Apply(t.Context(), []shard.Op{op})
	if err == nil {
		err = res[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// stats are the statistics by definition.
func (d docs) stats() *passage.Stats {
	st := &passage.Stats{Lengths: map[uint32]uint64{}, DF: map[string]uint64{}}
	for _, ps := range d {
		for _, p := range ps {
			if len(p) == 0 {
				continue
			}
			st.Passages++
			st.SumLen += uint64(len(p))
			st.Lengths[uint32(len(p))]++
			seen := map[string]bool{}
			for _, w := range p {
				if !seen[w] {
					seen[w] = true
					st.DF[w]++
				}
			}
		}
	}
	return st
}

// scores are the scores of a document's passages by definition; absent: it does not match.
func scores(c passage.Clause, st *passage.Stats, passages [][]string) map[uint32]float32 {
	var lens []uint32
	for l, n := range st.Lengths {
		for range n {
			lens = append(lens, l)
		}
	}
	slices.Sort(lens)
	floor := uint32(0)
	if len(lens) > 0 {
		floor = lens[(len(lens)*9+9)/10-1]
	}
	avg := float32(1)
	if st.Passages > 0 {
		avg = max(float32(float64(st.SumLen)/float64(st.Passages)), 1)
	}
	out := map[uint32]float32{}
	for o, p := range passages {
		norm := score.Norm(max(uint32(len(p)), floor), avg, c.K1, c.B)
		if !c.Phrase {
			for _, term := range c.Terms {
				tf := 0
				for _, w := range p {
					if w == term.Text {
						tf++
					}
				}
				if tf > 0 {
					out[uint32(o)] += float32(term.Boost * score.TF(score.IDF(st.Passages, st.DF[term.Text]), float32(tf), c.K1, norm))
				}
			}
			continue
		}
		var idf float32
		for _, term := range c.Terms {
			idf += score.IDF(st.Passages, st.DF[term.Text])
		}
		n := 0
	starts:
		for at, w := range p {
			if w != c.Terms[0].Text {
				continue
			}
		tokens:
			for _, term := range c.Terms[1:] {
				for i, w := range p {
					if d := i - at - int(term.Offset); w == term.Text && d <= int(c.Slop) && -d <= int(c.Slop) {
						continue tokens
					}
				}
				continue starts
			}
			n++
		}
		if n > 0 {
			out[uint32(o)] = score.TF(idf, float32(n), c.K1, norm)
		}
	}
	return out
}

type hit struct {
	key  string
	best float32
	rows []score.Passage
}

func (h hit) String() string { return fmt.Sprint(h.key, " ", h.best, " ", h.rows) }

// all are the matching documents by definition, by key.
func (d docs) all(c passage.Clause, st *passage.Stats) []hit {
	var out []hit
	for _, key := range slices.Sorted(maps.Keys(d)) {
		rows := scores(c, st, d[key])
		if len(rows) == 0 {
			continue
		}
		h := hit{key: key, best: rows[slices.Min(slices.Collect(maps.Keys(rows)))]}
		for _, o := range slices.Sorted(maps.Keys(rows)) {
			h.rows = append(h.rows, score.Passage{Ordinal: o, Score: rows[o]})
			h.best = max(h.best, rows[o])
		}
		out = append(out, h)
	}
	return out
}

func TestPassagesAgainstDefinition(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { againstDefinition(t, seed) })
	}
}

func againstDefinition(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	s, d := open(t), docs{}
	words := []string{"a", "b", "c", "d", "e", "rare"}
	word := func() string {
		if r.IntN(40) == 0 {
			return words[5]
		}
		return words[r.IntN(5)]
	}
	var cache passage.Cache
	for round := range 12 {
		for range 10 + r.IntN(60) {
			key := fmt.Sprintf("k%02d", r.IntN(80))
			if r.IntN(4) == 0 {
				d.delete(t, s, key)
				continue
			}
			passages := make([][]string, r.IntN(5))
			for i := range passages {
				for range r.IntN(14) {
					passages[i] = append(passages[i], word())
				}
			}
			d.put(t, s, key, passages)
		}
		var err error
		switch r.IntN(4) {
		case 0, 1:
			err = s.Flush(t.Context())
		case 2:
			err = s.Merge(t.Context(), 1+r.IntN(3))
		}
		if err != nil {
			t.Fatal(err)
		}
		sn := s.Snapshot()
		want := d.stats()
		st, err := passage.Statistics(t.Context(), sn.Leaves(), body, words, &cache)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(st) != fmt.Sprint(want) {
			t.Fatalf("round %d: statistics %v, want %v", round, st, want)
		}
		for range 20 {
			c := passage.Clause{Field: body, K1: schema.DefaultK1, B: schema.DefaultB, Phrase: r.IntN(3) == 0, Slop: uint32(r.IntN(3))}
			for i := range 1 + r.IntN(3) {
				term := passage.Term{Text: word(), Boost: []float32{1, 1, 2.5, -0.5}[r.IntN(4)], Offset: uint32(i)}
				if c.Phrase || !slices.ContainsFunc(c.Terms, func(o passage.Term) bool { return o.Text == term.Text }) {
					c.Terms = append(c.Terms, term)
				}
			}
			sc, all := passage.NewScorer(c, st), d.all(c, want)
			walk(t, sc, sn, c, all)
			top(t, sc, sn, c, all, 1+r.IntN(12))
		}
		sn.Release()
	}
}

// walk compares all matches.
func walk(t *testing.T, sc *passage.Scorer, sn *shard.Snapshot, c passage.Clause, want []hit) {
	t.Helper()
	var got []hit
	for _, l := range sn.Leaves() {
		m := sc.On(t.Context(), l)
		if m == nil {
			continue
		}
		for doc, ok := m.Seek(0); ok; doc, ok = m.Seek(doc + 1) {
			if live := l.Live(); live == nil || live.Has(doc) {
				got = append(got, hit{string(l.Key(doc, nil)), m.Best(), slices.Clone(m.Rows())})
			}
		}
		if err := m.Err(); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(got, func(a, b hit) int { return cmp.Compare(a.key, b.key) })
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%+v finds\n%v, want\n%v", c, got, want)
	}
}

// top compares the best documents and the passages that each of them has.
func top(t *testing.T, sc *passage.Scorer, sn *shard.Snapshot, c passage.Clause, all []hit, k int) {
	t.Helper()
	hits, err := sc.Top(t.Context(), sn.Leaves(), nil, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Take passages best first until enough documents have one, and twice as many as documents are wanted.
	type place struct {
		leaf int
		doc  uint32
	}
	places := map[string]place{}
	for li, l := range sn.Leaves() {
		for doc := range l.NumDocs() {
			if live := l.Live(); live == nil || live.Has(doc) {
				places[string(l.Key(doc, nil))] = place{li, doc}
			}
		}
	}
	type row struct {
		key string
		score.Passage
	}
	var rows []row
	for _, h := range all {
		for _, r := range h.rows {
			rows = append(rows, row{h.key, r})
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		pa, pb := places[a.key], places[b.key]
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(pa.leaf, pb.leaf), cmp.Compare(pa.doc, pb.doc), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	var want []hit
	for n, r := range rows {
		i := slices.IndexFunc(want, func(h hit) bool { return h.key == r.key })
		switch {
		case i >= 0 && (len(want) < k || n < 2*k):
			want[i].rows = append(want[i].rows, r.Passage)
		case i < 0 && len(want) < k:
			want = append(want, hit{key: r.key, best: r.Score, rows: []score.Passage{r.Passage}})
		}
	}
	var got []hit
	for _, h := range hits {
		got = append(got, hit{string(sn.Leaves()[h.Leaf].Key(h.Doc, nil)), h.Score, h.Rows})
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("the best %d of %+v are\n%v, want\n%v", k, c, got, want)
	}
}

// TestLongPassagesKeepTheirPlaces has passages of more tokens than lie between two: the ones behind them are still found under their
// own numbers.
func TestLongPassagesKeepTheirPlaces(t *testing.T) {
	s, d := open(t), docs{}
	long := slices.Repeat([]string{"x"}, 70_000)
	d.put(t, s, "k", [][]string{{"a"}, append(slices.Clone(long), "a"), {"b"}, append([]string{"b"}, long...), {"a", "b"}})
	check := func() {
		t.Helper()
		sn := s.Snapshot()
		defer sn.Release()
		st, err := passage.Statistics(t.Context(), sn.Leaves(), body, []string{"a", "b"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for term, want := range map[string]string{"a": "[0 1 4]", "b": "[2 3 4]"} {
			m := passage.NewScorer(passage.Clause{Field: body, Terms: []passage.Term{{Text: term, Boost: 1}}}, st).On(t.Context(), sn.Leaves()[0])
			if _, ok := m.Seek(0); !ok {
				t.Fatalf("%s is not found", term)
			}
			var got []uint32
			for _, r := range m.Rows() {
				got = append(got, r.Ordinal)
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s is in passages %v, want %s", term, got, want)
			}
		}
	}
	check()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
}

// TestManyPassagesOfOneDocumentLeaveRoom has more good passages in one document than Top looks at for all.
func TestManyPassagesOfOneDocumentLeaveRoom(t *testing.T) {
	s, d := open(t), docs{}
	d.put(t, s, "many", slices.Repeat([][]string{{"a", "a"}}, 50))
	for i := range 3 {
		d.put(t, s, fmt.Sprint(i), [][]string{append(slices.Repeat([]string{"x"}, 50), "a")})
	}
	sn := s.Snapshot()
	defer sn.Release()
	st, err := passage.Statistics(t.Context(), sn.Leaves(), body, []string{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	top, err := passage.NewScorer(passage.Clause{Field: body, K1: 1.2, B: 0.75, Terms: []passage.Term{{Text: "a", Boost: 1}}}, st).Top(t.Context(), sn.Leaves(), nil, 3, nil)
	if err != nil || len(top) != 3 {
		t.Errorf("the best 3 of 4 documents are %d: %v", len(top), err)
	}
}

// TestSlopStaysWithinThePassage has passages that end as close before the next one as they can.
func TestSlopStaysWithinThePassage(t *testing.T) {
	s, d := open(t), docs{}
	d.put(t, s, "k", [][]string{append(slices.Repeat([]string{"x"}, 65_400), "b"), {"a"}})
	sn := s.Snapshot()
	defer sn.Release()
	st, err := passage.Statistics(t.Context(), sn.Leaves(), body, []string{"a", "b"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range [][2]string{{"a", "b"}, {"b", "a"}} {
		c := passage.Clause{Field: body, Phrase: true, Slop: 500, Terms: []passage.Term{{Text: words[0], Boost: 1}, {Text: words[1], Boost: 1, Offset: 1}}}
		if doc, ok := passage.NewScorer(c, st).On(t.Context(), sn.Leaves()[0]).Seek(0); ok {
			t.Errorf("%v: found in document %d, though the words stand in two passages", words, doc)
		}
	}
}

// TestWalkEndsSoon walks documents with many places of a word after the caller left.
func TestWalkEndsSoon(t *testing.T) {
	s, d := open(t), docs{}
	for i := range 100 {
		d.put(t, s, fmt.Sprint(i), [][]string{slices.Repeat([]string{"a", "b"}, 2000)})
	}
	sn := s.Snapshot()
	defer sn.Release()
	st, err := passage.Statistics(t.Context(), sn.Leaves(), body, []string{"a", "b"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []passage.Clause{
		{Field: body, Terms: []passage.Term{{Text: "a", Boost: 1}, {Text: "b", Boost: 1}}},
		{Field: body, Phrase: true, Terms: []passage.Term{{Text: "a", Boost: 1}, {Text: "b", Boost: 1, Offset: 1}}},
	} {
		m := passage.NewScorer(c, st).On(ctx, sn.Leaves()[0])
		n := 0
		for doc, ok := m.Seek(0); ok; doc, ok = m.Seek(doc + 1) {
			n++
		}
		if !errors.Is(m.Err(), context.Canceled) || n > 20 {
			t.Errorf("phrase %t: %d documents, then %v", c.Phrase, n, m.Err())
		}
	}
}

// TestSearchEndsWithItsCaller leaves in the middle of a long list.
func TestSearchEndsWithItsCaller(t *testing.T) {
	s, d := open(t), docs{}
	for i := range 40 {
		d.put(t, s, fmt.Sprint(i), [][]string{slices.Repeat([]string{"a", "b"}, 2000)})
	}
	sn := s.Snapshot()
	defer sn.Release()
	st, err := passage.Statistics(t.Context(), sn.Leaves(), body, []string{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := passage.Statistics(ctx, sn.Leaves(), body, []string{"a"}, nil); !errors.Is(err, why) {
		t.Errorf("statistics: %v", err)
	}
	c := passage.Clause{Field: body, Terms: []passage.Term{{Text: "a", Boost: 1}}}
	if _, err := passage.NewScorer(c, st).Top(ctx, sn.Leaves(), nil, 3, nil); !errors.Is(err, why) {
		t.Errorf("search: %v", err)
	}
}

func TestTooManyPassagesAreRefused(t *testing.T) {
	s := open(t)
	doc := &schema.Document{Key: "k", Source: []byte("{}"), Fields: []schema.Values{{Field: body, Text: make([]string, 1<<15+1)}}}
	res, err := s.Apply(t.Context(), []shard.Op{{Doc: doc}})
	if err != nil {
		t.Fatal(err)
	}
	if bad, ok := errors.AsType[*shard.InvalidError](res[0].Err); !ok || bad.Field != "body" {
		t.Errorf("the outcome is %v", res[0].Err)
	}
}
