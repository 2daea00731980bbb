package exec

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/query"
)

// TestGivenListsStandForWhatTheyWereMadeOf replaces parts of queries by the documents and scores that those parts find: the answer is
// the same. By place, equals stand by leaf and document.
func TestGivenListsStandForWhatTheyWereMadeOf(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	r := rand.New(rand.NewPCG(7, 7))
	docs := func(n int, suffix string) []tdoc {
		out := randomDocs(r, n)
		for i := range out {
			out[i].key += suffix // no key is in two leaves
		}
		return out
	}
	leaves := []Leaf{newSegLeaf(t, docs(400, "a"), map[int]bool{3: true, 50: true}), newMemLeaf(docs(100, "b"), nil, false), newSegLeaf(t, docs(3, "c"), nil)}
	ctx := context.Background()
	search := func(req Request) *Result {
		t.Helper()
		res, err := Search(ctx, leaves, sch, an, req)
		if err != nil {
			t.Fatalf("%s: %v", req.Query, err)
		}
		return res
	}
	found := 0
	for range 1500 {
		// Every part scores with the statistics of the index, so a part alone scores as it does within the whole.
		var lists []Given
		given := func(q query.Node) query.Node {
			if r.IntN(3) == 0 {
				return q
			}
			g := make(Given, len(leaves))
			hits := search(Request{Query: q, Limit: 1000}).Hits
			slices.SortFunc(hits, func(a, b Hit) int { return cmp.Compare(a.Doc, b.Doc) })
			for _, h := range hits {
				of := &g[h.Leaf]
				of.Docs, of.Scores = append(of.Docs, h.Doc), append(of.Scores, h.Score)
			}
			lists = append(lists, g)
			return &query.Given{List: len(lists) - 1}
		}
		plain, replaced := &query.Bool{}, &query.Bool{}
		for _, part := range []struct {
			most    int
			in, out *[]query.Node
		}{
			{2, &plain.Must, &replaced.Must},
			{3, &plain.Should, &replaced.Should},
			{1, &plain.MustNot, &replaced.MustNot},
			{1, &plain.Filter, &replaced.Filter},
		} {
			for range r.IntN(part.most + 1) {
				q := randomQuery(r, 2)
				if res, err := Search(ctx, leaves, sch, an, Request{Query: q}); err != nil || res.Total == 0 {
					continue // one without a token falls away within a query, which a list cannot
				}
				g := given(q)
				if r.IntN(4) == 0 {
					q, g = &query.Boost{Query: q, Factor: 2.5}, &query.Boost{Query: g, Factor: 2.5}
				}
				*part.in, *part.out = append(*part.in, q), append(*part.out, g)
			}
		}
		req := Request{Query: plain, Limit: 1 + r.IntN(30), Offset: r.IntN(3)}
		want := search(req)
		req.Query, req.Given = replaced, lists
		got := search(req)
		if !slices.EqualFunc(got.Hits, want.Hits, sameHit) || got.Total != want.Total {
			t.Fatalf("%s\nwith lists %d of %v\nwithout %d of %v", plain, got.Total, got.Hits, want.Total, want.Hits)
		}
		found += len(got.Hits)

		all := Request{Query: replaced, Given: lists, Limit: 1000, ByPlace: true}
		byPlace := search(all).Hits
		if !slices.IsSortedFunc(byPlace, func(a, b Hit) int {
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Leaf, b.Leaf), cmp.Compare(a.Doc, b.Doc))
		}) || uint64(len(byPlace)) != got.Total {
			t.Fatalf("%s: %d by place, of %d: %v", plain, len(byPlace), got.Total, byPlace)
		}
		all.Limit = req.Limit
		if part := search(all).Hits; !slices.EqualFunc(part, byPlace[:min(req.Limit, len(byPlace))], sameHit) {
			t.Fatalf("%s: the first by place are not the first of all", plain)
		}
	}
	if found < 5000 {
		t.Errorf("only %d hits were compared", found)
	}
}

func sameHit(a, b Hit) bool { return a.Leaf == b.Leaf && a.Doc == b.Doc && a.Score == b.Score }

func TestGivenListsAreNamed(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	for _, n := range []int{-1, 1} {
		if _, err := Search(context.Background(), nil, sch, an, Request{Query: &query.Given{List: n}, Given: make([]Given, 1), Limit: 1}); err == nil {
			t.Errorf("list %d of one is found", n)
		}
	}
}
