package read

import (
	"math"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/score"
)

// What cannot be, whatever a shard holds, is a hole, and where the group has another member that answers.
func TestAnswersThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(r *leaf.SearchReply){
		"an id twice":             func(r *leaf.SearchReply) { r.Hits[1] = r.Hits[0] },
		"no id":                   func(r *leaf.SearchReply) { r.Hits[0].ID = "" },
		"an id that is no text":   func(r *leaf.SearchReply) { r.Hits[0].ID = "\xff" },
		"fewer hits":              func(r *leaf.SearchReply) { r.Hits = r.Hits[:1] },
		"more hits":               func(r *leaf.SearchReply) { r.Hits = append(r.Hits, leaf.Hit{ID: "zz", Score: -1}) },
		"fewer matches than hits": func(r *leaf.SearchReply) { r.Total = 0 },
		"more than there are":     func(r *leaf.SearchReply) { r.Total = math.MaxUint64 },
		"no total":                func(r *leaf.SearchReply) { r.TotalRelation = "" },
		"too many documents":      func(r *leaf.SearchReply) { r.Docs = math.MaxUint64 },
		"statistics":              func(r *leaf.SearchReply) { r.LocalStats = &score.Stats{DF: map[score.Term]uint64{{Text: "a"}: 1}} },
	} {
		c := newCluster(t, numbered(60), 2, 1)
		c.groups[0][0].change = func(reply any) {
			if r, ok := reply.(*leaf.SearchReply); ok {
				change(r)
			}
		}
		got, err := search(t.Context(), c.reader(Options{}))
		if err != nil {
			t.Fatal(err)
		}
		if b := got.Below; b.Shards.Failed != 1 || b.Shards.OK != 1 || got.Total != uint64(len(c.groups[1][0].docs)) || len(got.Hits) != 5 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What is shown of documents goes into replies as it is.
func TestWhatIsShownIsAnObject(t *testing.T) {
	for text, good := range map[string]bool{`{}`: true, `{"a":1,"a":2}`: true, ``: true, `{"a":1`: false, `{"a":1},"score":9,"x":{}`: false, `5`: false} {
		err := checkFetch(&leaf.FetchRequest{IDs: []string{"a"}}, &leaf.FetchReply{Docs: []leaf.Shown{{Source: []byte(text)}}})
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := checkFetch(&leaf.FetchRequest{IDs: []string{"a"}}, &leaf.FetchReply{}); err == nil {
		t.Error("no document for an id")
	}
}
