package exec

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/weft-search/weft/internal/query"
)

// BenchmarkSearch runs common shapes over one segment of 100,000 documents.
func BenchmarkSearch(b *testing.B) {
	sch, an := testSchema(), testAnalyzers(b)
	leaves := []Leaf{newSegLeaf(b, randomDocs(rand.New(rand.NewPCG(9, 9)), 100_000), nil)}
	term := func(w string) query.Node { return &query.Term{Field: "body", Text: w} }
	for _, c := range []struct {
		name string
		req  Request
	}{
		{"term", Request{Query: term("wa0"), Limit: 10}},
		{"or", Request{Query: &query.Bool{Should: []query.Node{term("wa0"), term("wb1"), term("wc2")}}, Limit: 10}},
		{"and", Request{Query: &query.Bool{Must: []query.Node{term("wa0"), term("wb1")}}, Limit: 10}},
		{"and-count", Request{Query: &query.Bool{Must: []query.Node{term("wa0"), term("wb1")}}}},
		{"phrase", Request{Query: &query.Phrase{Field: "body", Text: "wa0 wb1"}, Limit: 10, Total: TotalNone}},
		{"range", Request{Query: &query.Range{Field: "n", Min: &query.Bound{Value: "3"}}, Limit: 10}},
		{"all", Request{Query: &query.All{}, Limit: 10}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Search(context.Background(), leaves, sch, an, c.req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
