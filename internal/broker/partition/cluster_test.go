package partition_test

import (
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

// TestRecordedClusterAnswers asks three engines what was recorded of a broker before three nodes of the reference, up to the first change of
// the documents: the same documents go to each shard by the hash of their keys, and scores come out with the same bits. Segment ids, and
// with them which of several equals a page has, are each program's own.
func TestRecordedClusterAnswers(t *testing.T) {
	dir := corpus.Dir(t, "summa-golden")
	sdl, err := summagolden.Schema(dir, "parts")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := summagolden.Documents(dir, "parts")
	if err != nil {
		t.Fatal(err)
	}
	ix, _ := recordedIndex("parts")
	parts := engines{newEngine(t, sdl, 1), newEngine(t, sdl, 2), newEngine(t, sdl, 3)}
	batch := &summapb.BatchIndexDocumentsRequest{IndexName: "parts", Documents: docs}
	var primaries partition.Primaries
	if _, err := partition.BatchIndexDocuments(t.Context(), ix, parts, &primaries, marshal(t, batch)); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, d := range docs {
		for _, f := range d.Fields {
			if f.Name == "id" {
				keys = append(keys, f.Value.GetText())
			}
		}
	}
	id := map[string]string{} // by address
	for _, e := range parts {
		e.open(keys)
		for a, k := range e.keys {
			id[a] = k
		}
	}
	replayed := map[string]int{}
	for _, c := range recordedCases(t, "cluster") {
		if c.RPC == "DeleteDocuments" || c.RPC == "UpsertDocuments" {
			break
		}
		if c.Code != "OK" {
			continue
		}
		switch c.RPC {
		case "Search":
			s, err := partition.ShapeOf(c.RequestB64[0])
			if err != nil {
				t.Fatal(err)
			}
			if s.Coordinated() {
				continue
			}
			got, err := partition.Search(t.Context(), ix, parts, partition.Reads{}, s)
			if err != nil {
				t.Errorf("%s: %v", c.Name, err)
				continue
			}
			sameHits(t, c.Name, id, unmarshal[summapb.SearchResponse](t, got.Reply), unmarshal[summapb.SearchResponse](t, c.ResponseB64))
		case "GetTextStats":
			got, err := partition.GetTextStats(t.Context(), ix, parts, partition.Reads{}, c.RequestB64[0])
			m, want := unmarshal[summapb.GetTextStatsResponse](t, got.Reply), unmarshal[summapb.GetTextStatsResponse](t, c.ResponseB64)
			for _, f := range m.Stats.GetFields() { // what the reference does not tell
				f.TotalTokens, f.DocsWithField, f.ChunkLengths, f.ChunkCounts = 0, 0, nil, nil
			}
			if err != nil || !proto.Equal(m, want) {
				t.Errorf("%s: %v\n got %v\nwant %v", c.Name, err, m, want)
			}
		default:
			continue
		}
		replayed[c.RPC]++
	}
	if replayed["Search"] == 0 || replayed["GetTextStats"] == 0 {
		t.Errorf("replayed: %v", replayed)
	}
	t.Logf("replayed: %v", replayed)
}

// sameHits compares totals, methods, scores rank by rank, and documents where their score tells which they are.
func sameHits(t *testing.T, name string, id map[string]string, got, want *summapb.SearchResponse) {
	t.Helper()
	if got.TotalHits != want.TotalHits || got.RankingMethod != want.RankingMethod || len(got.Hits) != len(want.Hits) {
		t.Errorf("%s: %d hits of %d by %q, want %d of %d by %q", name, len(got.Hits), got.TotalHits, got.RankingMethod, len(want.Hits), want.TotalHits, want.RankingMethod)
		return
	}
	times := map[uint32]int{}
	for _, h := range want.Hits {
		times[math.Float32bits(h.Score)]++
	}
	var gotIDs, wantIDs []string
	for i, h := range want.Hits {
		g := got.Hits[i]
		if math.Float32bits(g.Score) != math.Float32bits(h.Score) {
			t.Errorf("%s: score %d is %v, want %v", name, i, g.Score, h.Score)
		}
		wantID := h.Fields["id"].GetValues()[0].GetText()
		gotID := id[addressOf(g)]
		gotIDs, wantIDs = append(gotIDs, gotID), append(wantIDs, wantID)
		if times[math.Float32bits(h.Score)] == 1 && gotID != wantID {
			t.Errorf("%s: hit %d is %s, want %s", name, i, gotID, wantID)
		}
	}
	slices.Sort(gotIDs)
	slices.Sort(wantIDs)
	if want.RankingMethod != "" && !slices.Equal(gotIDs, wantIDs) { // an export is whole
		t.Errorf("%s: documents %v, want %v", name, gotIDs, wantIDs)
	}
}
