package summaquery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestWhatAReplyHoldsIsCharged asks for everything that a reply can hold beside stored values: scores of values, lists of candidates,
// votes, exports and traces. What is charged is no less than the reply as it is sent, and one byte less of room refuses it.
func TestWhatAReplyHoldsIsCharged(t *testing.T) {
	sch, err := summa.ParseSchema(`index t { field id: text<raw> [primary, stored] field t: text [indexed<token_position>] field c: text [indexed<chunked>, stored<multi>] }`)
	if err != nil {
		t.Fatal(err)
	}
	s, err := shard.Open(t.Context(), shard.Config{Dir: "d", FS: memfs.New(nil), Schema: sch, NoBackground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	var ops []shard.Op
	for k := range 20 {
		ops = append(ops, shard.Op{Doc: &schema.Document{Key: fmt.Sprint(k), Fields: []schema.Values{
			{Field: 1, Text: []string{strings.Repeat("a ", 100)}}, {Field: 2, Text: strings.Fields(strings.Repeat("b ", 30))},
		}}})
	}
	if _, err := s.Apply(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	sn := s.Snapshot()
	defer sn.Release()
	an, err := exec.NewAnalyzers(sn.Schema())
	if err != nil {
		t.Fatal(err)
	}
	term := func(field, text string) *summapb.Query {
		return &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: field, Term: text}}}
	}
	tee, cee := strings.Repeat("t", 128), strings.Repeat("c", 128) // as long as names may be
	fusion := func(method summapb.FusionMethod) *summapb.Query {
		return &summapb.Query{Query: &summapb.Query_Fusion{Fusion: &summapb.FusionQuery{Method: method, Queries: []*summapb.WeightedQuery{
			{Query: term("t", "a"), Name: tee, Scope: summapb.ScoreScope_SCORE_SCOPE_DOCUMENT}, {Query: term("c", "b"), Name: cee, Scope: summapb.ScoreScope_SCORE_SCOPE_CHUNK},
		}}}}
	}
	many := &summapb.FusionQuery{}
	for i := range 16 {
		many.Queries = append(many.Queries, &summapb.WeightedQuery{Query: term("c", "b"), Name: fmt.Sprintf("%0128d", i), Scope: summapb.ScoreScope_SCORE_SCOPE_CHUNK})
	}
	long := &summapb.Query{Query: &summapb.Query_Fusion{Fusion: many}}
	for name, req := range map[string]*summapb.SearchRequest{
		"many cells":          {Query: long, ScoreExport: &summapb.ScoreExport{}},
		"many votes":          {Query: long, IncludeRrfScores: true},
		"scores of values":    {Query: term("t", "a")},
		"a trace":             {Query: term("t", "a"), Tracing: true},
		"lists of candidates": {Query: fusion(summapb.FusionMethod_FUSION_CANDIDATES)},
		"votes":               {Query: fusion(summapb.FusionMethod_FUSION_RRF), IncludeRrfScores: true},
		"a trace of a fusion": {Query: fusion(summapb.FusionMethod_FUSION_RRF), Tracing: true},
		"an export":           {Query: fusion(summapb.FusionMethod_FUSION_RRF), ScoreExport: &summapb.ScoreExport{}},
		"a formula": {
			Query: fusion(summapb.FusionMethod_FUSION_RRF), L1: &summapb.L1Ranking{Formula: tee + " + " + cee}, ScoreExport: &summapb.ScoreExport{}, IncludeRrfScores: true, Tracing: true,
		},
	} {
		req.IndexName, req.Limit = "t", 50
		charged := 0
		ix := &summaquery.Index{Schema: sn.Schema(), Analyzers: an, Leaves: sn.Leaves(), Segments: []string{strings.Repeat("0", 32)}, Charge: func(n int) error {
			charged += n
			return nil
		}}
		search := func(lim summa.Limits) (*summapb.SearchResponse, error) {
			w, err := lim.CheckSearch(req)
			if err != nil {
				t.Fatal(name, err)
			}
			return summaquery.Search(t.Context(), ix, req, w, lim)
		}
		got, err := search(summa.Limits{})
		if err != nil {
			t.Fatal(name, err)
		}
		if n := proto.Size(got); charged < n || len(got.Hits) != 20 {
			t.Errorf("%s: %d hits, %d bytes are charged for %d", name, len(got.Hits), charged, n)
		}
		most := charged
		if _, err := search(summa.Limits{MaxSearchResponseBytes: most}); err != nil {
			t.Errorf("%s at the bound: %v", name, err)
		}
		if _, err := search(summa.Limits{MaxSearchResponseBytes: most - 1}); err == nil || !strings.Contains(err.Error(), "hydration budget") {
			t.Errorf("%s past the bound: %v", name, err)
		}
		full := errors.New("no room")
		ix.Charge = func(n int) error {
			if most -= n; most < charged/8 {
				return full
			}
			return nil
		}
		if _, err := search(summa.Limits{}); !errors.Is(err, full) {
			t.Errorf("%s where all replies together find no room: %v", name, err)
		}
	}
}
