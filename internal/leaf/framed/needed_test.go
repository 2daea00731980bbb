package framed

import (
	"errors"
	"testing"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// A reply to another request, or to none, is no answer that says that there is nothing; and nobody makes room for what an accounting only
// claims.
func TestRepliesThatLackWhatTheyHaveToSay(t *testing.T) {
	search := func(b string) error {
		return last(readSearchReply([]byte(b), &leaf.SearchRequest{Limit: 1}))
	}
	for name, err := range map[string]error{
		"search, ok":     search(`{"ok":true}`),
		"search, total":  search(`{"ok":true,"hits":[],"docs":1}`),
		"search, docs":   search(`{"ok":true,"hits":[],"total":0,"total_relation":"eq"}`),
		"stats":          last(readStatsReply([]byte(`{"ok":true,"docs":5}`))),
		"knn":            last(readKNNReply([]byte(`{"ok":true,"docs":5}`), &leaf.KNNRequest{})),
		"agg":            last(readAggReply([]byte(`{"ok":true,"aggs":{}}`), &leaf.AggregateRequest{}, agg.Options{})),
		"docs":           last(readDocsReply([]byte(`{"ok":true}`))),
		"info":           last(readInfoReply([]byte(`{"ok":true,"node":"n"}`))),
		"ids":            last(readIDsReply([]byte(`{"ok":true,"next":null}`), 1)),
		"export":         last(readExportReply([]byte(`{"ok":true,"docs":[],"ids":[]}`), 1)),
		"has":            last(readHasReply([]byte(`{"ok":true}`), 1)),
		"delete":         last(readDeleteReply([]byte(`{"ok":true}`))),
		"indexes":        last(readIndexesReply([]byte(`{"ok":true}`))),
		"put":            last(readPutIndexReply([]byte(`{"ok":true,"made":true}`))),
		"drop":           last(readDropIndexReply([]byte(`{"ok":true}`))),
		"below, claims":  last(readDocsReply([]byte(`{"ok":true,"docs":1,"below":{"shards":{"total":30000000,"ok":30000000,"failed":0}}}`))),
		"below, outcome": last(readDocsReply([]byte(`{"ok":true,"docs":1,"below":{"shards":{"total":1,"ok":1,"failed":0,"outcomes":[{"outcome":"failed"}]}}}`))),
	} {
		if !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := search(`{"ok":true,"hits":[],"docs":1,"total":0,"total_relation":"eq"}`); err != nil {
		t.Error(err)
	}
}

func last[R any](_ R, _ *api.Problem, err error) error { return err }
