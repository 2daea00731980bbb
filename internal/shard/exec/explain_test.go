package exec

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weft-search/weft/internal/query"
)

// explainAll explains documents of leaves.
func explainAll(t testing.TB, leaves []Leaf, q query.Node, hits []Hit) []*Explanation {
	t.Helper()
	x, err := NewExplainer(context.Background(), leaves, testSchema(), testAnalyzers(t), Request{Query: q}, hits)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	out := make([]*Explanation, len(hits))
	for i := range hits {
		if out[i], err = x.Explain(i); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// manyPrefixes is a query of one word and prefixes that recur, over documents of 20 of some words.
func manyPrefixes(t testing.TB, docs, words, prefixes int) ([]Leaf, query.Node) {
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]tdoc, docs)
	for i := range list {
		list[i].key = fmt.Sprintf("k%06d", i)
		list[i].toks[2] = append(list[i].toks[2], "common")
		for range 20 {
			list[i].toks[2] = append(list[i].toks[2], fmt.Sprintf("y%d", r.IntN(words)))
		}
	}
	q := &query.Bool{Should: []query.Node{&query.Term{Field: "body", Text: "common"}}}
	for i := range prefixes {
		q.Should = append(q.Should, &query.Prefix{Field: "body", Text: fmt.Sprintf("y%d", i%10)})
	}
	return []Leaf{newSegLeaf(t, list[:docs/2], nil), newSegLeaf(t, list[docs/2:], nil)}, q
}

func hitsOf(t testing.TB, leaves []Leaf, q query.Node, limit int) []Hit {
	t.Helper()
	res, err := Search(context.Background(), leaves, testSchema(), testAnalyzers(t), Request{Query: q, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return res.Hits
}

// parts counts the explanations of a tree.
func parts(x *Explanation) int {
	n := 1
	for _, p := range x.Parts {
		n += parts(p)
	}
	return n
}

// TestExplanationsOfManyPrefixes: every hit has its score, no tree is longer than it may be, and words that a document lacks cost
// no memory.
func TestExplanationsOfManyPrefixes(t *testing.T) {
	leaves, q := manyPrefixes(t, 400, 3000, 250)
	hits := hitsOf(t, leaves, q, 20)
	for i, x := range explainAll(t, leaves, q, hits) {
		if math.Float32bits(x.Value) != math.Float32bits(hits[i].Score) {
			t.Errorf("hit %d scores %v, explained as %v", i, hits[i].Score, x.Value)
		}
		if n := parts(x); n > MaxExplained+1 {
			t.Errorf("hit %d: %d parts", i, n)
		}
	}
	if raceEnabled {
		return // its pools forget
	}
	x, err := NewExplainer(context.Background(), leaves, testSchema(), testAnalyzers(t), Request{Query: q}, hits[:1])
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if n := testing.AllocsPerRun(5, func() {
		if _, err := x.Explain(0); err != nil {
			t.Fatal(err)
		}
	}); n > 4*MaxExplained {
		t.Errorf("%v allocations for a tree of at most %d parts", n, MaxExplained)
	}
}

// TestExplanationOfWordsThatDoNotScore: a document matches a broad prefix by a word that is not among those that score, alone and
// besides documents that lack it.
func TestExplanationOfWordsThatDoNotScore(t *testing.T) {
	docs := make([]tdoc, 2000)
	for i := range docs {
		docs[i].key = fmt.Sprintf("k%06d", i)
		docs[i].toks[2] = []string{fmt.Sprintf("w%04d", i)}
	}
	docs[1500].toks[2] = []string{"other"}
	leaves := []Leaf{newSegLeaf(t, docs, nil), newMemLeaf(docs, nil, true)}
	hits := []Hit{{Doc: 1999}, {Leaf: 1, Doc: 1999}, {Doc: 3}, {Doc: 1500}, {Leaf: 1, Doc: 1500}, {Doc: 1998}}
	for i, x := range explainAll(t, leaves, &query.Prefix{Field: "body", Text: "w"}, hits) {
		other, scores := hits[i].Doc == 1500, hits[i].Doc == 3
		if x.Match == other || (x.Value > 0) != scores || len(x.Parts) > 0 != scores {
			t.Errorf("document %d of leaf %d: %+v", hits[i].Doc, hits[i].Leaf, x)
		}
	}
}

// TestExplainEndsWithItsContext: at the start, between hits and within one.
func TestExplainEndsWithItsContext(t *testing.T) {
	leaves, q := manyPrefixes(t, 2000, 3000, 10)
	hits := hitsOf(t, leaves, q, 5)
	sch, an := testSchema(), testAnalyzers(t)
	ctx := &countdown{Context: context.Background(), left: 0, err: context.Canceled}
	if _, err := NewExplainer(ctx, leaves, sch, an, Request{Query: q}, hits); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v at the start", err)
	}
	ctx.left = 1 << 30
	x, err := NewExplainer(ctx, leaves, sch, an, Request{Query: q}, hits)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for _, left := range []int{0, 1} { // the second look comes within the hit
		ctx.left = left
		if _, err := x.Explain(1); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v after %d looks", err, left)
		}
	}
}

// BenchmarkExplain explains 100 hits of 250 prefixes.
func BenchmarkExplain(b *testing.B) {
	leaves, q := manyPrefixes(b, 20_000, 3000, 250)
	hits := hitsOf(b, leaves, q, 100)
	b.ReportAllocs()
	for b.Loop() {
		explainAll(b, leaves, q, hits)
	}
}
