package leaftest

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/shard/exec"
)

// everyCall calls every method that reads or writes an index, and returns the errors by name.
func everyCall(t testing.TB, l leaf.Leaf, index string) map[string]error {
	ctx := t.Context()
	errs := map[string]error{}
	_, errs["info"] = l.Info(ctx, &leaf.InfoRequest{Index: index})
	_, errs["docs"] = l.Docs(ctx, &leaf.DocsRequest{Index: index})
	_, errs["search"] = l.Search(ctx, &leaf.SearchRequest{Index: index})
	_, errs["stats"] = l.Stats(ctx, &leaf.StatsRequest{Index: index})
	_, errs["aggregate"] = l.Aggregate(ctx, &leaf.AggregateRequest{Index: index})
	_, errs["knn"] = l.KNN(ctx, &leaf.KNNRequest{Index: index, KNN: api.KNN{Field: "v", Dense: []float32{1, 2, 3, 4}, K: 1, Combiner: score.Combiner{Kind: score.Max}}})
	_, errs["ids"] = l.IDs(ctx, &leaf.IDsRequest{Index: index}, func([]string) error { return nil })
	_, errs["export"] = l.Export(ctx, &leaf.ExportRequest{Index: index}, func(leaf.ExportedDoc) error { return nil })
	_, errs["has"] = l.Has(ctx, &leaf.HasRequest{Index: index})
	_, errs["delete_many"] = l.DeleteMany(ctx, &leaf.DeleteRequest{Index: index, IDs: []string{"x"}})
	_, errs["index"] = l.Index(ctx, &leaf.IndexRequest{Index: index, Body: []byte(`{"id":"x"}`)})
	_, errs["bulk"] = l.Bulk(ctx, &leaf.BulkRequest{Index: index}, strings.NewReader(`{"id":"x"}`))
	return errs
}

func testErrors(t *testing.T, e Env) {
	fill(t, e, 20)
	for name, err := range everyCall(t, e.Leaf, "nosuch.index") {
		p, ok := errors.AsType[*api.Problem](err)
		switch name {
		case "index", "bulk", "delete_many": // the first write makes the index; which of the three that was is not looked at
		default:
			if !ok || p.Code != api.IndexNotFound || p.HTTPStatus() != http.StatusNotFound || p.Field != "index" || leaf.OutcomeOf(err) != serve.Failed || leaf.ClassOf(err) != leaf.Never {
				t.Errorf("%s of an index that is not there: %v", name, err)
			}
		}
	}
	for name, err := range everyCall(t, e.Leaf, "no index/name") {
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.InvalidIndexName || p.Field != "index" || !p.HasPosition || p.Position != 2 {
			t.Errorf("%s of a name that is none: %v", name, err)
		}
	}

	wants := func(what string, code api.Code, call func(l leaf.Leaf) error) {
		t.Helper()
		_, err := both(t, e, what, func(l leaf.Leaf) (*struct{}, error) {
			err := call(l)
			if err == nil {
				return &struct{}{}, nil
			}
			return nil, err
		})
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != code {
			t.Errorf("%s: %v, want %s", what, err, code)
		}
	}
	ctx := t.Context()
	field := func(node query.Node) leaf.SearchRequest { return leaf.SearchRequest{Query: node, Limit: 3} }
	for _, c := range []struct {
		req  leaf.SearchRequest
		code api.Code
	}{
		{field(&query.Term{Field: "nosuch", Text: "x"}), api.UnknownField},
		{field(&query.Term{Field: "no \"such\" 𝄞", Text: "x"}), api.UnknownField},
		{field(&query.Range{Field: "i", Min: &query.Bound{Value: "x"}}), api.InvalidBound},
		{field(&query.Range{Field: "plain", Min: &query.Bound{Value: "1"}}), api.FieldNotFast},
		{field(&query.Phrase{Field: "note", Text: "warp weft"}), api.NoPositions},
		{field(&query.Term{Field: "v", Text: "x"}), api.FieldNotSearchable},
		{field(&query.Boost{Query: &query.Boost{Query: &query.Term{Field: "title", Text: "warp"}, Factor: math.MaxFloat32}, Factor: math.MaxFloat32}), api.ScoreOverflow},
		{leaf.SearchRequest{Filters: []query.Node{&query.All{}, &query.Term{Field: "nosuch", Text: "x"}}}, api.UnknownField},
		{leaf.SearchRequest{Query: &query.Term{Text: "x"}, DefaultFields: []string{"title", "nosuch"}}, api.UnknownField},
		{leaf.SearchRequest{Query: &query.Term{Text: "x"}, DefaultFields: []string{"i"}}, api.FieldNotSearchable},
		{leaf.SearchRequest{Limit: 1, Sort: []exec.SortKey{{By: exec.ByField, Field: "nosuch"}}}, api.UnknownField},
		{leaf.SearchRequest{Limit: 1, Sort: []exec.SortKey{{By: exec.ByField, Field: "v"}}}, api.FieldNotSortable},
		{leaf.SearchRequest{Limit: 1, Sort: []exec.SortKey{{By: exec.ByField, Field: "plain"}}}, api.FieldNotSortable},
		{leaf.SearchRequest{Limit: 1, Sort: []exec.SortKey{{By: exec.ByField, Field: "i"}}, After: &exec.After{Key: "x", Values: []exec.SortValue{{Kind: exec.TextValue, Text: "x"}}}}, api.InvalidCursor},
		{leaf.SearchRequest{Limit: 1, After: &exec.After{Key: "x", Values: []exec.SortValue{{Kind: exec.ScoreValue}, {Kind: exec.ScoreValue}}}}, api.InvalidCursor},
	} {
		c.req.Index = corpusIndex
		wants(fmt.Sprintf("search %v, order %v, filters %v", c.req.Query, c.req.Sort, c.req.Filters), c.code, func(l leaf.Leaf) error {
			_, err := l.Search(ctx, &c.req)
			return err
		})
	}
	for _, c := range []struct {
		what  string
		stats score.Stats
	}{
		{"a term of more documents than there are", score.Stats{Docs: 5, DF: map[score.Term]uint64{{Field: "title", Text: "warp"}: 6}}},
		{"a term of documents where there are none", score.Stats{DF: map[score.Term]uint64{{Field: "title", Text: "warp"}: 1}, Fields: map[string]score.FieldStats{"title": {}}}},
		{"a term of as many documents as can be", score.Stats{Docs: math.MaxUint64 - 1, DF: map[score.Term]uint64{{Field: "title", Text: "warp"}: math.MaxUint64}}},
		{"a field of more documents than there are", score.Stats{Docs: 5, Fields: map[string]score.FieldStats{"title": {SumLen: 10, Docs: 6}}}},
		{"a field of fewer tokens than documents", score.Stats{Docs: 5, Fields: map[string]score.FieldStats{"title": {SumLen: 3, Docs: 4}}}},
	} {
		for name, call := range map[string]func(l leaf.Leaf) error{
			"search": func(l leaf.Leaf) error {
				_, err := l.Search(ctx, &leaf.SearchRequest{Index: corpusIndex, Query: &query.Term{Field: "title", Text: "warp"}, Limit: 3, Stats: &c.stats})
				return err
			},
			"aggregate": func(l leaf.Leaf) error {
				_, err := l.Aggregate(ctx, &leaf.AggregateRequest{Index: corpusIndex, Query: &query.Term{Field: "title", Text: "warp"}, Stats: &c.stats})
				return err
			},
		} {
			wants(name+" with "+c.what, api.InvalidParameter, call)
			if err := call(e.Leaf); !badParameter(err, "stats") {
				t.Errorf("%s with %s: %v", name, c.what, err)
			}
		}
	}
	wants("statistics of a field without an index", api.FieldNotSearchable, func(l leaf.Leaf) error {
		_, err := l.Stats(ctx, &leaf.StatsRequest{Index: corpusIndex, Terms: []score.Term{{Field: "i", Text: "1"}}})
		return err
	})
	wants("statistics of a query that does not fit", api.UnknownField, func(l leaf.Leaf) error {
		_, err := l.Stats(ctx, &leaf.StatsRequest{Index: corpusIndex, Query: &query.Term{Field: "nosuch", Text: "x"}})
		return err
	})
	for _, c := range []struct {
		specs  string
		values []string
		code   api.Code
	}{
		{`{"a":{"kind":"stats","field":"tag"}}`, nil, api.InvalidField},
		{`{"a":{"kind":"terms","field":"body"}}`, nil, api.FieldNotFast},
		{`{"a":{"kind":"terms","field":"tag","aggs":{"b":{"kind":"histogram","field":"at","interval":1}}}}`, nil, api.InvalidField},
		{`{"a":{"kind":"histogram","field":"f","interval":1e-300}}`, nil, api.AggregationLimit},
		{`{"a":{"kind":"range","field":"i","ranges":["5..1"]}}`, nil, api.InvalidAggregation},
		{`{"a":{"kind":"filter","filter":"warp AND ("}}`, nil, api.InvalidQuery},
		{`{"a":{"kind":"filter","filter":{"nosuch":{}}}}`, nil, api.UnknownParameter},
		{`{"a":{"kind":"filter","filter":"nosuch:x"}}`, nil, api.UnknownField},
		{`{}`, []string{"body"}, api.FieldNotFast},
		{`{}`, []string{"tag", "v"}, api.InvalidField},
	} {
		req := &leaf.AggregateRequest{Index: corpusIndex, Specs: parseSpecs(t, c.specs), Values: c.values}
		wants(fmt.Sprintf("aggregate %s, values %v", c.specs, c.values), c.code, func(l leaf.Leaf) error {
			_, err := l.Aggregate(ctx, req)
			return err
		})
	}
	best := score.Combiner{Kind: score.Max}
	for _, c := range []struct {
		knn  api.KNN
		code api.Code
	}{
		{api.KNN{Field: "v", Dense: []float32{1, 2, 3}, K: 1, Combiner: best}, api.InvalidVector},
		{api.KNN{Field: "bits", Bits: []byte{1}, K: 1, Combiner: best}, api.InvalidVector},
		{api.KNN{Field: "v", Bits: []byte{1, 2}, K: 1, Combiner: best}, api.InvalidVector},
		{api.KNN{Field: "title", Dense: []float32{1, 2, 3}, K: 1, Combiner: best}, api.FieldNotVector},
		{api.KNN{Field: "nosuch", Dense: []float32{1, 2, 3}, K: 1, Combiner: best}, api.UnknownField},
	} {
		wants(fmt.Sprintf("neighbours %+v", c.knn), c.code, func(l leaf.Leaf) error {
			_, err := l.KNN(ctx, &leaf.KNNRequest{Index: corpusIndex, KNN: c.knn})
			return err
		})
	}
	for _, c := range []struct {
		body string
		code api.Code
	}{
		{``, api.InvalidJSON},
		{"{\n\"id\":\"x\",\n\"title\":}", api.InvalidJSON},
		{`{"title":"x"}`, api.MissingID},
		{`{"id":""}`, api.InvalidID},
		{`{"id":"x","i":"y"}`, api.TypeConflict},
		{`{"id":"x","u":-1}`, api.NumberOutOfRange},
		{`{"id":"x","nosuch":1}`, api.UnknownField},
		{`{"id":"x","id":"y"}`, api.DuplicateMember},
		{`{"id":"x","v":[1,2]}`, api.TypeConflict},
	} {
		wants("index "+c.body, c.code, func(l leaf.Leaf) error {
			_, err := l.Index(ctx, &leaf.IndexRequest{Index: corpusIndex, Body: []byte(c.body)})
			return err
		})
	}
	for _, id := range []string{"", strings.Repeat("x", api.MaxID+1)} {
		wants(fmt.Sprintf("delete an id of %d bytes", len(id)), api.InvalidID, func(l leaf.Leaf) error {
			_, err := l.DeleteMany(ctx, &leaf.DeleteRequest{Index: corpusIndex, IDs: []string{"least", id}})
			return err
		})
	}
	has, err := e.Leaf.Has(ctx, &leaf.HasRequest{Index: corpusIndex, IDs: []string{"least"}})
	if err != nil || len(has.Missing) > 0 {
		t.Errorf("a refused deletion had an effect: %+v, %v", has, err)
	}
	idle(t, e)
}

// nested is a query so many levels deep.
func nested(depth int) query.Node {
	var q query.Node = &query.Term{Field: "title", Text: "warp"}
	for range depth - 1 {
		q = &query.Bool{Must: []query.Node{q}}
	}
	return q
}

// many is a list of n times the same.
func many[T any](n int, v T) []T { return slices.Repeat([]T{v}, n) }

func testLimits(t *testing.T, e Env) {
	fill(t, e, 20)
	ctx := t.Context()
	best := score.Combiner{Kind: score.Max}
	vector := []float32{1, 2, 3, 4}
	ids := many(leaf.MaxIDs, strings.Repeat("i", api.MaxID))
	var terms []score.Term
	for i := range leaf.MaxTerms {
		terms = append(terms, score.Term{Field: "title", Text: fmt.Sprint("t", i)})
	}
	for _, c := range []struct {
		what  string
		field string
		limit int64
		at    func(l leaf.Leaf, over int) error // over is 0 at the limit and 1 past it
	}{
		{"limit of a search", "limit", exec.MaxWindow, func(l leaf.Leaf, over int) error {
			_, err := l.Search(ctx, &leaf.SearchRequest{Index: corpusIndex, Limit: exec.MaxWindow + over})
			return err
		}},
		{"sort keys", "sort", exec.MaxSortKeys, func(l leaf.Leaf, over int) error {
			_, err := l.Search(ctx, &leaf.SearchRequest{Index: corpusIndex, Limit: 1, Sort: many(exec.MaxSortKeys+over, exec.SortKey{By: exec.ByField, Field: "i"})})
			return err
		}},
		{"filters", "filter", exec.MaxFilters, func(l leaf.Leaf, over int) error {
			_, err := l.Search(ctx, &leaf.SearchRequest{Index: corpusIndex, Limit: 1, Filters: many[query.Node](exec.MaxFilters+over, &query.Exists{Field: "i"})})
			return err
		}},
		{"filters of neighbours", "filter", exec.MaxFilters, func(l leaf.Leaf, over int) error {
			_, err := l.KNN(ctx, &leaf.KNNRequest{Index: corpusIndex, KNN: api.KNN{Field: "v", Dense: vector, K: 1, Combiner: best}, Filters: many[query.Node](exec.MaxFilters+over, &query.Exists{Field: "i"})})
			return err
		}},
		{"depth of a query", "q", 32, func(l leaf.Leaf, over int) error {
			_, err := l.Search(ctx, &leaf.SearchRequest{Index: corpusIndex, Limit: 1, Query: nested(32 + over)})
			return err
		}},
		{"depth of a filter", "filter", 32, func(l leaf.Leaf, over int) error {
			_, err := l.Aggregate(ctx, &leaf.AggregateRequest{Index: corpusIndex, Filters: []query.Node{nested(32 + over)}})
			return err
		}},
		{"parts of a query", "q", 256, func(l leaf.Leaf, over int) error {
			_, err := l.Stats(ctx, &leaf.StatsRequest{Index: corpusIndex, Query: &query.Bool{Should: many[query.Node](255+over, &query.Term{Field: "title", Text: "warp"})}})
			return err
		}},
		{"exact values of a query", "q", 65536, func(l leaf.Leaf, over int) error {
			if e.Wire.QueryStrings { // where the length of the text is what they run into
				return nil
			}
			_, err := l.Search(ctx, &leaf.SearchRequest{Index: corpusIndex, Limit: 1, Query: &query.Terms{Field: "tag", Values: many(65536+over, "t")}})
			return err
		}},
		{"terms", "terms", leaf.MaxTerms, func(l leaf.Leaf, over int) error {
			_, err := l.Stats(ctx, &leaf.StatsRequest{Index: corpusIndex, Terms: append(terms, terms[:over]...)})
			return err
		}},
		{"values", "values", leaf.MaxValues, func(l leaf.Leaf, over int) error {
			_, err := l.Aggregate(ctx, &leaf.AggregateRequest{Index: corpusIndex, Values: many(leaf.MaxValues+over, "i")})
			return err
		}},
		{"aggregations", "aggs", agg.MaxAggregations, func(l leaf.Leaf, over int) error {
			list := make([]agg.Spec, agg.MaxAggregations+over)
			for i := range list {
				list[i] = agg.Spec{Name: fmt.Sprint(i), Kind: agg.Stats, Field: "i"}
			}
			_, err := l.Aggregate(ctx, &leaf.AggregateRequest{Index: corpusIndex, Specs: list})
			return err
		}},
		{"neighbours", "k", 10_000, func(l leaf.Leaf, over int) error {
			_, err := l.KNN(ctx, &leaf.KNNRequest{Index: corpusIndex, KNN: api.KNN{Field: "v", Dense: vector, K: 10_000 + over, Combiner: best}})
			return err
		}},
		{"ef", "ef", api.MaxEf, func(l leaf.Leaf, over int) error {
			_, err := l.KNN(ctx, &leaf.KNNRequest{Index: corpusIndex, KNN: api.KNN{Field: "v", Dense: vector, K: 1, Ef: api.MaxEf + over, Combiner: best}})
			return err
		}},
		{"ids of an export", "ids", leaf.MaxIDs, func(l leaf.Leaf, over int) error {
			_, err := l.Export(ctx, &leaf.ExportRequest{Index: corpusIndex, IDs: append(ids, ids[:over]...)}, func(leaf.ExportedDoc) error { return nil })
			return err
		}},
		{"ids of has", "ids", leaf.MaxIDs, func(l leaf.Leaf, over int) error {
			_, err := l.Has(ctx, &leaf.HasRequest{Index: corpusIndex, IDs: append(ids, ids[:over]...)})
			return err
		}},
		{"ids of delete_many", "ids", leaf.MaxIDs, func(l leaf.Leaf, over int) error {
			_, err := l.DeleteMany(ctx, &leaf.DeleteRequest{Index: corpusIndex, IDs: append(ids, ids[:over]...)})
			return err
		}},
		{"a document", "", 16 << 20, func(l leaf.Leaf, over int) error {
			body := `{"id":"long","plain":1` + strings.Repeat(" ", 16<<20-23+over) + `}`
			_, err := l.Index(ctx, &leaf.IndexRequest{Index: corpusIndex, Body: []byte(body)})
			return err
		}},
	} {
		if c.what == "exact values of a query" && e.Wire.QueryStrings {
			continue
		}
		if err := c.at(e.Leaf, 0); err != nil {
			t.Errorf("%s: at the limit: %v", c.what, err)
		}
		for _, l := range []leaf.Leaf{e.Node.Leaf(), e.Leaf} {
			refusedWith(t, c.what, c.at(l, 1), c.field, c.limit)
		}
	}
	for _, l := range []leaf.Leaf{e.Node.Leaf(), e.Leaf} {
		if _, err := l.Search(ctx, &leaf.SearchRequest{Index: corpusIndex, Limit: -1}); !badParameter(err, "limit") {
			t.Errorf("a limit below 0: %v", err)
		}
		if _, err := l.IDs(ctx, &leaf.IDsRequest{Index: corpusIndex, Limit: -1}, func([]string) error { return nil }); !badParameter(err, "limit") {
			t.Errorf("a limit of ids below 0: %v", err)
		}
	}
	idle(t, e)
}

// badParameter tells whether an error is a problem of the caller's about a parameter.
func badParameter(err error, field string) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.HTTPStatus() >= 400 && p.HTTPStatus() < 500 && strings.Contains(p.Field, field)
}
