package read

import (
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
)

// A shard that gave what it reached until its time was over answered, and yet counts as one that did not.
func TestAShardWhoseTimeRanOutIsNotOK(t *testing.T) {
	c := newCluster(t, numbered(60), 3, 1)
	c.groups[1][0].change = func(reply any) {
		if r, ok := reply.(*leaf.SearchReply); ok {
			r.Partial, r.Approximate = true, []string{leaf.ApproximateTime}
		}
	}
	got, err := search(t.Context(), c.reader(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	b := got.Below
	if addresses(b) != "g0m0 answered, g1m0 timed_out, g2m0 answered" || b.Shards.OK != 2 || b.Shards.Failed != 1 || !slices.Equal(b.Shards.FailedAddresses, []string{"g1m0"}) {
		t.Errorf("%s: %+v", addresses(b), b.Shards)
	}
	if cut := uint64(len(c.groups[1][0].docs)); b.DocsTotal != 60 || b.DocsCovered != 60-cut || !got.Partial || len(got.Hits) != 5 {
		t.Errorf("%d of %d documents are covered: %+v", b.DocsCovered, b.DocsTotal, got)
	}
}
