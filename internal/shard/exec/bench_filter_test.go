package exec

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weft-search/weft/internal/query"
)

// BenchmarkFilter runs filters and orders over one segment of 300,000 documents.
func BenchmarkFilter(b *testing.B) {
	sch, an := testSchema(), testAnalyzers(b)
	r := rand.New(rand.NewPCG(9, 9))
	docs := make([]tdoc, 300_000)
	for i := range docs {
		docs[i].key = fmt.Sprintf("k%07d", i)
		docs[i].toks[2] = []string{"all", fmt.Sprintf("ten%d", r.IntN(10)), fmt.Sprintf("rare%d", r.IntN(10_000))}
		docs[i].num = []int64{int64(r.IntN(1_000_000))}
		docs[i].date = []int64{int64(i) * 1000}
		docs[i].tag = []string{fmt.Sprintf("tag%d", r.IntN(100))}
	}
	leaves := []Leaf{newSegLeaf(b, docs, nil)}
	term := func(w string) query.Node { return &query.Term{Field: "body", Text: w} }
	num := func(lo, hi string) query.Node {
		return &query.Range{Field: "n", Min: &query.Bound{Value: lo}, Max: &query.Bound{Value: hi}}
	}
	half := &query.Range{Field: "n", Min: &query.Bound{Value: "500000"}}
	by := func(f string, desc bool) []SortKey { return []SortKey{{By: ByField, Field: f, Desc: desc}} }
	one := func(n query.Node) []query.Node { return []query.Node{n} }
	for _, c := range []struct {
		name   string
		cached bool
		req    Request
	}{
		{"term", false, Request{Query: term("ten1"), Limit: 10}},
		{"term where half", false, Request{Query: term("ten1"), Limit: 10, Filters: one(half)}},
		{"term where half, cached", true, Request{Query: term("ten1"), Limit: 10, Filters: one(half)}},
		{"all where half, cached", true, Request{Query: term("all"), Limit: 10, Filters: one(half)}},
		{"all where rare, cached", true, Request{Query: term("all"), Limit: 10, Filters: one(term("rare7"))}},
		{"or where rare", false, Request{Query: &query.Bool{Should: []query.Node{term("all"), term("ten1")}}, Limit: 10, Filters: one(term("rare7"))}},
		{"where tag", false, Request{Limit: 10, Filters: one(&query.Terms{Field: "tag", Values: []string{"tag7", "tag9"}})}},
		{"where tag, cached", true, Request{Limit: 10, Filters: one(&query.Terms{Field: "tag", Values: []string{"tag7", "tag9"}})}},
		{"where number", false, Request{Limit: 10, Filters: one(num("10", "20000"))}},
		{"by number", false, Request{Limit: 10, Sort: by("n", true)}},
		{"by date", false, Request{Limit: 10, Sort: by("date", true)}},
		{"by tag", false, Request{Limit: 10, Sort: by("tag", false)}},
		{"by tag and number", false, Request{Limit: 10, Sort: append(by("tag", false), by("n", true)...)}},
		{"term by number", false, Request{Query: term("ten1"), Limit: 10, Sort: by("n", false)}},
		{"term by id descending", false, Request{Query: term("ten1"), Limit: 10, Sort: []SortKey{{By: ByID, Desc: true}}}},
		{"term by score up", false, Request{Query: term("ten1"), Limit: 10, Sort: []SortKey{{By: ByScore}}}},
		{"term after", false, Request{Query: term("ten1"), Limit: 10, After: &After{Values: []SortValue{{Kind: ScoreValue, Score: 2.0}}, Key: "k0200000"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			if c.cached {
				c.req.Cache = NewFilterCache(64 << 20)
			}
			for b.Loop() {
				if _, err := Search(context.Background(), leaves, sch, an, c.req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, q := range map[string]query.Node{
		"match term": term("ten1"), "match and": &query.Bool{Must: []query.Node{term("all"), term("ten1")}},
		"match number": half, "match tag": &query.Terms{Field: "tag", Values: []string{"tag7"}}, "match or": &query.Bool{Should: []query.Node{term("ten2"), term("ten1")}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Match(context.Background(), leaves, sch, an, q, nil, MatchOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLongAnswer runs searches for as many hits as there may be, over four segments of 50,000 documents.
func BenchmarkLongAnswer(b *testing.B) {
	sch, an := testSchema(), testAnalyzers(b)
	r := rand.New(rand.NewPCG(9, 9))
	var leaves []Leaf
	for li := range 4 {
		docs := make([]tdoc, 50_000)
		for i := range docs {
			docs[i].key = fmt.Sprintf("k%07d", 4*i+li)
			docs[i].toks[2] = []string{"all", fmt.Sprintf("ten%d", r.IntN(10))}
			docs[i].num = []int64{int64(r.IntN(1_000_000))}
			docs[i].tag = []string{fmt.Sprintf("tag%d", r.IntN(100_000))}
		}
		leaves = append(leaves, newSegLeaf(b, docs, nil))
	}
	term := func(w string) query.Node { return &query.Term{Field: "body", Text: w} }
	by := func(f string, desc bool) []SortKey { return []SortKey{{By: ByField, Field: f, Desc: desc}} }
	for _, c := range []struct {
		name string
		req  Request
	}{
		{"by score", Request{Query: term("ten1")}},
		{"by equal score", Request{Query: term("all")}},
		{"by number", Request{Sort: by("n", true)}},
		{"by tag", Request{Sort: by("tag", false)}},
		{"by tag and number", Request{Sort: append(by("tag", false), by("n", true)...)}},
		{"by id descending", Request{Sort: []SortKey{{By: ByID, Desc: true}}}},
		{"by score up", Request{Query: term("all"), Sort: []SortKey{{By: ByScore}}}},
		{"everything", Request{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			c.req.Limit = MaxWindow
			for b.Loop() {
				if _, err := Search(context.Background(), leaves, sch, an, c.req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
