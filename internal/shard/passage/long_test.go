package passage_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/passage"
)

// long has one document: a passage of many a, and many of a b.
func long(t testing.TB, many, short int) *shard.Snapshot {
	s := open(t)
	passages := append([][]string{slices.Repeat([]string{"a"}, many)}, slices.Repeat([][]string{{"a", "b"}}, short)...)
	docs{}.put(t, s, "k", passages)
	sn := s.Snapshot()
	t.Cleanup(sn.Release)
	return sn
}

func phraseOf(word string, n int) passage.Clause {
	c := passage.Clause{Field: body, K1: schema.DefaultK1, B: schema.DefaultB, Phrase: true}
	for i := range n {
		c.Terms = append(c.Terms, passage.Term{Text: word, Boost: 1, Offset: uint32(i)})
	}
	return c
}

// leaving is a context whose caller leaves after some looks at it.
type leaving struct {
	context.Context
	looks  int
	cancel context.CancelFunc
}

func (l *leaving) Err() error {
	if l.looks--; l.looks < 0 {
		l.cancel()
	}
	return l.Context.Err()
}

// TestPhraseEndsWithinADocument leaves while one document is compared: nothing more is found, and nothing of what was half compared.
func TestPhraseEndsWithinADocument(t *testing.T) {
	sn := long(t, 100_000, 1000)
	st, err := passage.Statistics(t.Context(), sn.Leaves(), body, []string{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, slop := range []uint32{0, 3} {
		c := phraseOf("a", 64)
		c.Slop = slop
		sc := passage.NewScorer(c, st)
		const enough = 1 << 20
		whole := &leaving{Context: t.Context(), looks: enough}
		if doc, ok := sc.On(whole, sn.Leaves()[0]).Seek(0); !ok || doc != 0 {
			t.Fatalf("slop %d: found %t", slop, ok)
		}
		if looks := enough - whole.looks; looks < 100 {
			t.Errorf("slop %d: %d looks at the caller while 6,300,000 places were compared", slop, looks)
		}
		ctx, cancel := context.WithCancel(t.Context())
		m := sc.On(&leaving{Context: ctx, looks: 5, cancel: cancel}, sn.Leaves()[0])
		if _, ok := m.Seek(0); ok || !errors.Is(m.Err(), context.Canceled) {
			t.Errorf("slop %d: the caller left within the document: found %t, %v", slop, ok, m.Err())
		}
		cancel()
	}
}

// TestWordsEndWithinADocument leaves while the words of one document are scored: no sum of only some of them is told.
func TestWordsEndWithinADocument(t *testing.T) {
	s, d := open(t), docs{}
	d.put(t, s, "k", slices.Repeat([][]string{slices.Repeat([]string{"a", "b", "c"}, 20_000)}, 2))
	sn := s.Snapshot()
	defer sn.Release()
	st, err := passage.Statistics(t.Context(), sn.Leaves(), body, []string{"a", "b", "c"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := passage.Clause{Field: body, K1: schema.DefaultK1, B: schema.DefaultB, Terms: []passage.Term{{Text: "a", Boost: 1}, {Text: "b", Boost: 1}, {Text: "c", Boost: 1}}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := passage.NewScorer(c, st).On(&leaving{Context: ctx, looks: 1, cancel: cancel}, sn.Leaves()[0])
	if _, ok := m.Seek(0); ok || !errors.Is(m.Err(), context.Canceled) {
		t.Errorf("the caller left within the document: found %t, %v", ok, m.Err())
	}
}

// TestPassagesThatCannotCountAreNotKept has documents of many passages, of which all but the first few are worse than the best of others.
func TestPassagesThatCannotCountAreNotKept(t *testing.T) {
	s := open(t)
	for i := range 60 {
		passages := [][]string{slices.Repeat([]string{"a"}, 20)}
		for range 100 {
			passages = append(passages, append(slices.Repeat([]string{"x"}, 20), "a"))
		}
		docs{}.put(t, s, string(rune('A'+i)), passages)
	}
	sn := s.Snapshot()
	defer sn.Release()
	st, err := passage.Statistics(t.Context(), sn.Leaves(), body, []string{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := passage.Clause{Field: body, K1: schema.DefaultK1, B: schema.DefaultB, Terms: []passage.Term{{Text: "a", Boost: 1}}}
	sc := passage.NewScorer(c, st)
	kept, most := 0, 0
	top, err := sc.Top(t.Context(), sn.Leaves(), nil, 5, func(n int) error {
		kept += n
		most = max(most, kept)
		return nil
	})
	if err != nil || len(top) != 5 {
		t.Fatalf("%d documents: %v", len(top), err)
	}
	if rows := 101 * (2*5 + 16); most > rows || kept < 5 || kept > rows {
		t.Errorf("%d passages were kept at once, %d at the end; the documents until the first cut have %d", most, kept, rows)
	}
	full := errors.New("full")
	if _, err := sc.Top(t.Context(), sn.Leaves(), nil, 5, func(int) error { return full }); !errors.Is(err, full) {
		t.Errorf("without room: %v", err)
	}
	var none []score.Passage
	for _, h := range top {
		if slices.Equal(h.Rows, none) {
			t.Errorf("document %d has no passages", h.Doc)
		}
	}
}

// BenchmarkPhraseOfOneDocument searches a document of many places for a phrase of the same word many times.
func BenchmarkPhraseOfOneDocument(b *testing.B) {
	sn := long(b, 500_000, 20_000)
	st, err := passage.Statistics(b.Context(), sn.Leaves(), body, []string{"a"}, nil)
	if err != nil {
		b.Fatal(err)
	}
	sc := passage.NewScorer(phraseOf("a", 256), st)
	for b.Loop() {
		if _, ok := sc.On(b.Context(), sn.Leaves()[0]).Seek(0); !ok {
			b.Fatal("not found")
		}
	}
}
