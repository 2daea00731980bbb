package clustertest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/cluster/coordinator"
	"github.com/weft-search/weft/internal/leaf"
)

// A prefix with more words than statistics that shards take is scored as on one node. Notes speak of the words that each shard sees.
func TestAPrefixWithMoreWordsThanStatisticsThatShardsTake(t *testing.T) {
	if testing.Short() {
		t.Skip("it loads many words")
	}
	one, f := single(t), startFleet(t, 3, 1)
	many, _ := f.broker(t, coordinator.Config{})
	var docs bytes.Buffer
	for i := range leaf.MaxStatsTerms + 10_000 {
		fmt.Fprintf(&docs, "{\"id\":\"%d\",\"b\":\"w%d w%d\"}\n", i, i, i%500)
	}
	for _, to := range []*front{one, many} {
		to.must(200, "POST", "/index/bulk", ndjson, docs.Bytes())
	}
	for _, q := range []string{"w*", "w* w2* w3*", "w1*", "w*&sort=id"} {
		target := "/search?dfs=true&q=" + strings.ReplaceAll(q, " ", "+")
		want, got := comparable(t, one.must(200, "GET", target, "", nil)), comparable(t, many.must(200, "GET", target, "", nil))
		for _, o := range []map[string]any{want, got} {
			delete(o, "next")
			delete(o, "notes")
		}
		var diff []string
		if differences("", want, got, &diff); len(diff) > 0 {
			t.Errorf("%s:\n\t%s", q, strings.Join(diff, "\n\t"))
		}
	}
}
