package exec

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/weft-search/weft/internal/query"
)

// TestSearchDoesNotAllocatePerDocument compares the allocations of a search over few and over many documents.
func TestSearchDoesNotAllocatePerDocument(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	sch, an := testSchema(), testAnalyzers(t)
	term := func(w string) query.Node { return &query.Term{Field: "body", Text: w} }
	queries := map[string]query.Node{
		"term":    term("wa0"),
		"or":      &query.Bool{Should: []query.Node{term("wa0"), term("wb1"), term("wc2")}},
		"and":     &query.Bool{Must: []query.Node{term("wa0"), term("wb1")}},
		"not":     &query.Bool{Must: []query.Node{term("wa0")}, MustNot: []query.Node{term("wb1")}},
		"phrase":  &query.Phrase{Field: "body", Text: "wa0 wb1"},
		"nested":  &query.Bool{Must: []query.Node{term("wa0"), &query.Bool{Should: []query.Node{term("wb1"), term("wc2")}}}},
		"range":   &query.Bool{Must: []query.Node{term("wa0")}, Filter: []query.Node{&query.Range{Field: "n", Min: &query.Bound{Value: "3"}}}},
		"exists":  &query.Exists{Field: "n"},
		"all":     &query.All{},
		"fields":  &query.Term{Text: "wa0"},
		"boosted": &query.Boost{Query: term("wa0"), Factor: 2},
	}
	allocs := func(n int) map[string]float64 {
		r := rand.New(rand.NewPCG(9, 9))
		leaves := []Leaf{newSegLeaf(t, randomDocs(r, n), map[int]bool{1: true})}
		out := map[string]float64{}
		for name, q := range queries {
			req := Request{Query: q, Limit: 10}
			run := func() {
				if _, err := Search(context.Background(), leaves, sch, an, req); err != nil {
					t.Fatal(err)
				}
			}
			run()
			out[name] = leastAllocs(run)
			cache := NewFilterCache(1 << 20)
			for variant, change := range map[string]func(*Request){
				"filtered": func(r *Request) { r.Filters = []query.Node{&query.Range{Field: "n", Min: &query.Bound{Value: "2"}}} },
				"cached": func(r *Request) {
					r.Filters, r.Cache = []query.Node{&query.Range{Field: "n", Min: &query.Bound{Value: "2"}}}, cache
				},
				"sorted": func(r *Request) { r.Sort = []SortKey{{By: ByField, Field: "n"}, {By: ByScore}} },
			} {
				req = Request{Query: q, Limit: 10}
				change(&req)
				run()
				run()
				out[name+", "+variant] = leastAllocs(run)
			}
		}
		return out
	}
	few, many := allocs(300), allocs(12_000)
	for name := range many {
		if many[name] > few[name]+1 {
			t.Errorf("%s: %v allocations over 300 documents, %v over 12,000", name, few[name], many[name])
		}
		t.Logf("%s: %v allocations a search", name, many[name])
	}
}

// leastAllocs is the least of a few counts: a collection of garbage between two runs empties the pools, which is not the search's doing.
func leastAllocs(run func()) float64 {
	least := testing.AllocsPerRun(10, run)
	for range 4 {
		least = min(least, testing.AllocsPerRun(10, run))
	}
	return least
}
