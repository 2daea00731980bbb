package exec

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
)

// TestASurveyKnowsWhatASearchWillSay: without any document, the same requests are refused, the same are scored, and of the statistics the
// same part scores.
func TestASurveyKnowsWhatASearchWillSay(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	r := rand.New(rand.NewPCG(5, 5))
	leaves := []Leaf{newSegLeaf(t, randomDocs(r, 300), map[int]bool{3: true}), newMemLeaf(randomDocs(r, 100), nil, false)}
	ctx := context.Background()
	scored, refused := 0, 0
	for range 2000 {
		req := Request{Query: randomQuery(r, 3), Limit: 5, KeepStats: true}
		if r.IntN(10) == 0 {
			req.Query = &query.Bool{Must: []query.Node{req.Query, &query.Term{Field: "nope", Text: "x"}}}
		}
		if r.IntN(3) == 0 {
			req.Filters = []query.Node{randomQuery(r, 2)}
		}
		res, err := Search(ctx, leaves, sch, an, req)
		survey, surveyErr := Examine(ctx, sch, an, req)
		if fmt.Sprint(err) != fmt.Sprint(surveyErr) {
			t.Fatalf("%s: %v, of the survey %v", req.Query, err, surveyErr)
		}
		if err != nil {
			refused++
			continue
		}
		if res.Scored != survey.Scored {
			t.Fatalf("%s: scored %t, by the survey %t", req.Query, res.Scored, survey.Scored)
		}
		if res.Stats == nil {
			continue
		}
		scored++
		if req.Stats, err = Statistics(ctx, leaves, sch, an, req); err != nil {
			t.Fatal(err)
		}
		kept, err := Scoring(ctx, sch, an, req)
		if d := cmp.Diff(res.Stats, kept); err != nil || d != "" {
			t.Fatalf("%s: %v: (-kept by the search +of the sum) %s", req.Query, err, d)
		}
	}
	if scored < 500 || refused < 50 {
		t.Errorf("%d were scored, %d refused", scored, refused)
	}
}

func TestOfABroadPrefixTheWordsThatScoreAreKept(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	var docs []tdoc
	for i := range 3 * MaxPrefixTerms {
		docs = append(docs, tdoc{key: fmt.Sprintf("%05d", i), toks: [3][]string{1: {fmt.Sprintf("w%d", i), fmt.Sprintf("w%d", i%700)}}})
	}
	leaves := []Leaf{newSegLeaf(t, docs, nil)}
	req := Request{Query: &query.Prefix{Field: "title", Text: "w"}, Limit: 5, KeepStats: true}
	res, err := Search(context.Background(), leaves, sch, an, req)
	if err != nil {
		t.Fatal(err)
	}
	if req.Stats, err = Statistics(context.Background(), leaves, sch, an, req); err != nil {
		t.Fatal(err)
	}
	kept, err := Scoring(context.Background(), sch, an, req)
	if d := cmp.Diff(res.Stats, kept); err != nil || d != "" || len(kept.DF) != MaxPrefixTerms || len(req.Stats.DF) <= MaxPrefixTerms {
		t.Errorf("%d of %d words: %v %s", len(kept.DF), len(req.Stats.DF), err, d)
	}
}

func TestASurveySeesWhatStatisticsChoose(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	capped := &query.Match{Field: "title", Text: "a b c", MaxTerms: 2}
	for _, c := range []struct {
		req  Request
		want Survey
	}{
		{Request{Query: capped}, Survey{Scored: true, Chosen: true}},
		{Request{Query: &query.All{}, Filters: []query.Node{capped}}, Survey{Chosen: true}},
		{Request{Query: &query.Bool{Filter: []query.Node{&query.Term{Field: "title", Text: "a"}}}}, Survey{}},
		{Request{Query: &query.Term{Field: "title", Text: "a"}}, Survey{Scored: true}},
	} {
		got, err := Examine(context.Background(), sch, an, c.req)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.req.Query, got, err)
		}
	}
	_, err := Examine(context.Background(), sch, an, Request{Query: &query.All{}, Sort: []SortKey{{By: ByField, Field: "vec"}}})
	if bad, ok := errors.AsType[*QueryError](err); !ok || bad.Code != "field_not_sortable" {
		t.Error(err)
	}
}

func TestDefaultFields(t *testing.T) {
	sch := testSchema()
	if got := DefaultFields(sch); !slices.Equal(got, []string{"title", "body"}) {
		t.Errorf("%q", got)
	}
	sch.DefaultFields = []string{"body", "id", "body"}
	if got := DefaultFields(sch); !slices.Equal(got, []string{"id", "body"}) {
		t.Errorf("of the schema: %q", got)
	}
	only := &schema.Schema{Fields: sch.Fields[:1]}
	if got := DefaultFields(only); !slices.Equal(got, []string{"id"}) {
		t.Errorf("with nothing but the key: %q", got)
	}
	if got := DefaultFields(&schema.Schema{Fields: sch.Fields[3:4]}); got == nil || len(got) != 0 {
		t.Errorf("without text: %q", got)
	}
}
