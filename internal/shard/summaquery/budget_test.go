package summaquery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestASpentBudgetIsTold searches more than a budget of a millisecond is enough for: the answer has what was found and says that it is
// not all, of text and of passages. A caller that leaves gets an error all the same.
func TestASpentBudgetIsTold(t *testing.T) {
	sch, err := summa.ParseSchema(`index t { field id: text<raw> [primary, stored] field plain: text [indexed] field body: text [indexed<chunked>, stored<multi>] }`)
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
	text := strings.Repeat("a b c d e f g h ", 60)
	for i := range 40 {
		var ops []shard.Op
		for k := range 100 {
			ops = append(ops, shard.Op{Doc: &schema.Document{Key: fmt.Sprint(i, "-", k), Fields: []schema.Values{
				{Field: 2, Text: []string{text, text}},
			}}})
		}
		for k := range 1000 {
			ops = append(ops, shard.Op{Doc: &schema.Document{Key: fmt.Sprint(i, "+", k), Fields: []schema.Values{{Field: 1, Text: []string{"a b c d e f g h"}}}}})
		}
		if _, err := s.Apply(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
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
	ix := &summaquery.Index{Schema: sn.Schema(), Analyzers: an, Leaves: sn.Leaves(), Segments: []string{"0"}, Cache: &summaquery.Cache{}}
	var lim summa.Limits
	search := func(ctx context.Context, field string, ms uint64) (*summapb.SearchResponse, error) {
		phrase := &summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: field, Text: "a b c d e f g h", ProximityWeight: 1}}}
		if field == "plain" {
			phrase = &summapb.Query{Query: &summapb.Query_Boolean{Boolean: &summapb.BooleanQuery{Should: []*summapb.Query{
				{Query: &summapb.Query_All{All: &summapb.AllQuery{}}},
				{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: field, Text: "a b c d e f g h"}}},
			}}}}
		}
		req := &summapb.SearchRequest{IndexName: "t", Limit: 5, TimeBudgetMs: ms, Query: phrase}
		w, err := lim.CheckSearch(req)
		if err != nil {
			t.Fatal(err)
		}
		return summaquery.Search(ctx, ix, req, w, lim)
	}
	for _, field := range []string{"plain", "body"} {
		whole, err := search(t.Context(), field, 0)
		if err != nil || whole.GetTruncated() || len(whole.GetHits()) != 5 {
			t.Fatalf("%s without a budget: %v, %v", field, whole, err)
		}
		// One that is over in time is whole, and one may be held up after its last look at the clock; twenty are not.
		told := false
		for range 20 {
			part, err := search(t.Context(), field, 1)
			if err != nil {
				t.Fatalf("%s with a small budget: %v", field, err)
			}
			if told = part.GetTruncated() || part.GetTimings().GetSearchUs() < 1000; told {
				break
			}
		}
		if !told {
			t.Errorf("%s: searches of more than a budget of a millisecond are not truncated by it", field)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := search(ctx, field, 1000); !errors.Is(err, context.Canceled) {
			t.Errorf("%s for a caller that left: %v", field, err)
		}
	}
}
