package exec

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/query"
)

// A prefix that stands in a query several times is looked up once, and still counts each time.
func TestRepeatedPrefixesAreLookedUpOnce(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	r := rand.New(rand.NewPCG(3, 3))
	leaves := []Leaf{newSegLeaf(t, randomDocs(r, 400), map[int]bool{7: true}), newMemLeaf(randomDocs(r, 50), nil, false)}
	search := func(q query.Node) *Result {
		t.Helper()
		res, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Limit: 500})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	one := search(&query.Prefix{Field: "body", Text: "w"})
	p := &query.Prefix{Field: "body", Text: "w"}
	three := search(&query.Bool{Should: []query.Node{p, &query.Prefix{Field: "body", Text: "w"}, p}})
	if len(one.Hits) == 0 || len(one.Hits) != len(three.Hits) {
		t.Fatalf("%d and %d hits", len(one.Hits), len(three.Hits))
	}
	single := map[[2]uint32]float32{}
	for _, h := range one.Hits {
		single[[2]uint32{uint32(h.Leaf), h.Doc}] = h.Score
	}
	for _, h := range three.Hits {
		if s := single[[2]uint32{uint32(h.Leaf), h.Doc}]; h.Score != s+s+s {
			t.Fatalf("%s scores %v, alone %v", h.Key, h.Score, s)
		}
	}
}

// What prefixes expand to is bounded over the whole query and its fields, not for each prefix alone.
func TestPrefixesOfAQueryAreBoundedTogether(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	var should []query.Node
	for i := range MaxTerms + 1 {
		should = append(should, &query.Prefix{Field: "title", Text: fmt.Sprint("p", i)})
	}
	_, err := Search(context.Background(), nil, sch, an, Request{Query: &query.Bool{Should: should}, Limit: 1})
	if bad, ok := errors.AsType[*QueryError](err); !ok || bad.Limit != MaxTerms || !strings.Contains(bad.Reason, "fields") {
		t.Fatalf("error is %v", err)
	}
}
