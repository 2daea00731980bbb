package exec

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/query"
)

// TestOnlyTheRarestWordsMatch has a capped Match find the same documents on each way of a search: alone, under clauses that change nothing, beside
// others, and as a filter.
func TestOnlyTheRarestWordsMatch(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	var docs []tdoc
	for i := range 40 {
		toks := []string{"often"}
		if i%4 == 0 {
			toks = append(toks, "seldom")
		}
		if i%20 == 7 {
			toks = []string{"rare"}
		}
		docs = append(docs, tdoc{key: fmt.Sprintf("%02d", i), toks: [3][]string{1: toks}})
	}
	leaves := []Leaf{newSegLeaf(t, docs[:25], nil), newSegLeaf(t, docs[25:], nil)}
	for most, want := range map[int]uint64{1: 2, 2: 12, 3: 40, 0: 40} {
		capped := &query.Match{Field: "title", Text: "often seldom rare", MaxTerms: most}
		for _, q := range []query.Node{
			capped,
			&query.Bool{Should: []query.Node{capped}},
			&query.Bool{Must: []query.Node{&query.Bool{Must: []query.Node{capped}}}},
			&query.Bool{Must: []query.Node{capped}, Should: []query.Node{&query.Term{Field: "title", Text: "often"}}},
			&query.Bool{Should: []query.Node{capped, &query.Term{Field: "title", Text: "absent"}}},
			&query.Boost{Query: capped, Factor: 2},
			&query.Bool{Filter: []query.Node{capped}},
		} {
			var results []*Result
			for _, exhaustive := range []bool{false, true} {
				res, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Limit: 50, Exhaustive: exhaustive})
				if err != nil {
					t.Fatal(err)
				}
				if res.Total != want || uint64(len(res.Hits)) != want {
					t.Errorf("%s, exhaustive %t: %d documents of %d, want %d", q, exhaustive, len(res.Hits), res.Total, want)
				}
				results = append(results, res)
			}
			if d := cmp.Diff(results[0].Hits, results[1].Hits); d != "" {
				t.Errorf("%s: %s", q, d)
			}
		}
	}
}
