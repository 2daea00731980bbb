package summaquery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/summa/summagolden"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// recorded opens an index with the documents that the recordings were made over, in one segment.
func recorded(t *testing.T, dir, name string) *summaquery.Index {
	t.Helper()
	sdl, err := summagolden.Schema(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	sch, err := summa.ParseSchema(sdl)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := summagolden.Documents(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	conv := summa.NewDocuments(sch, jsondoc.Limits{})
	s, err := shard.Open(t.Context(), shard.Config{Dir: "d", FS: memfs.New(nil), Schema: sch, NoBackground: true, OnCommit: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, d := range docs {
		doc, _, err := conv.Convert(d.GetFields())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(t.Context(), []shard.Op{{Doc: doc, Create: true}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sn := s.Snapshot()
	t.Cleanup(sn.Release)
	an, err := exec.NewAnalyzers(sn.Schema())
	if err != nil {
		t.Fatal(err)
	}
	return &summaquery.Index{Schema: sn.Schema(), Analyzers: an, Leaves: sn.Leaves(), Segments: []string{strings.Repeat("0", 32)}}
}

// differ are the recorded cases that weft answers in another way, each with the line of the list of differences, or what is missing.
var differ = map[string]string{
	"node/query/plain-term-00": "N4: a field of raw text is searched by the text as it is, in capitals",
}

func TestRecordedSearches(t *testing.T) {
	dir := corpus.Dir(t, "summa-golden")
	cases, err := summagolden.Load(dir, "node")
	if err != nil {
		t.Fatal(err)
	}
	indexes := map[string]*summaquery.Index{"notes": recorded(t, dir, "notes"), "plain": recorded(t, dir, "plain")}
	same := 0
	for _, c := range cases {
		if c.RPC != "Search" && c.RPC != "GetTextStats" || strings.HasPrefix(c.Name, "node/before-commit") || len(c.RequestB64) == 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			msg, err := summagolden.Decode(summagolden.Method(c.RPC).Input(), c.RequestB64[0])
			if err != nil {
				t.Fatal(err)
			}
			name := msg.(interface{ GetIndexName() string }).GetIndexName()
			ix := indexes[name]
			if ix == nil {
				t.Skipf("index %q is not among those of this test", name)
			}
			diff := replay(t, ix, msg, &c)
			why, known := differ[c.Name]
			switch {
			case diff == "" && known:
				t.Errorf("is the same, though it is listed: %s", why)
			case diff == "":
				same++
			case !known:
				t.Error(diff)
			}
		})
	}
	t.Logf("%d are the same", same)
}

func replay(t *testing.T, ix *summaquery.Index, msg any, c *summagolden.Case) string {
	var lim summa.Limits
	var err error
	var got *summapb.SearchResponse
	var stats *summapb.TextStats
	switch req := msg.(type) {
	case *summapb.SearchRequest:
		var w summa.Window
		if w, err = lim.CheckSearch(req); err == nil {
			got, err = summaquery.Search(t.Context(), ix, req, w, lim)
		}
	case *summapb.GetTextStatsRequest:
		if err = lim.CheckTextStats(req); err == nil {
			stats, err = summaquery.TextStats(t.Context(), ix, req.GetQuery(), lim)
		}
	}
	code, text := "OK", ""
	if bad, ok := errors.AsType[*summa.Error](err); ok {
		code, text = codeNames[bad.Code], bad.Text
	} else if err != nil {
		t.Fatal(err)
	}
	if code != c.Code || text != c.Message {
		return fmt.Sprintf("%s %q, recorded %s %q", code, text, c.Code, c.Message)
	}
	if code != "OK" {
		return ""
	}
	if stats != nil {
		want := &summapb.GetTextStatsResponse{}
		if err := protojson.Unmarshal(c.Response, want); err != nil {
			t.Fatal(err)
		}
		for _, f := range stats.GetFields() {
			f.TotalTokens, f.DocsWithField, f.ChunkLengths, f.ChunkCounts = 0, 0, nil, nil
		}
		if a, b := fmt.Sprint(stats), fmt.Sprint(want.GetStats()); a != b {
			return fmt.Sprintf("statistics\n%s\nrecorded\n%s", a, b)
		}
		return ""
	}
	want, err := c.Reply()
	if err != nil {
		t.Fatal(err)
	}
	return summagolden.DiffSearch(got, want.(*summapb.SearchResponse), summagolden.Dense(msg.(*summapb.SearchRequest)))
}

var codeNames = map[codes.Code]string{codes.InvalidArgument: "INVALID_ARGUMENT", codes.NotFound: "NOT_FOUND", codes.ResourceExhausted: "RESOURCE_EXHAUSTED"}
