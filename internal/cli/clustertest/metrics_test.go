package clustertest

import (
	"path/filepath"
	"testing"

	"github.com/weft-search/weft/internal/cluster/coordinator"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs/obstest"
)

// TestMetricsOfACoordinatorAreDocumented compares the names in their section of docs/operating.md with those of /metrics, both ways.
func TestMetricsOfACoordinatorAreDocumented(t *testing.T) {
	f := startFleet(t, 2, 2)
	b, k := f.broker(t, coordinator.Config{GRPCAddr: "127.0.0.1:0", ShardAddr: "127.0.0.1:0", DataDir: t.TempDir()})
	b.must(200, "POST", "/index", "application/json", []byte(`{"id":"1","title":"loom"}`))
	answer(t, b, "loom")
	if _, err := k.Leaf().Docs(t.Context(), &leaf.DocsRequest{}); err != nil {
		t.Fatal(err)
	}
	section, _ := obstest.Cut(t, obstest.Page(t, filepath.Join("..", "..", ".."), "operating.md"), "### Metrics of a coordinator")
	obstest.Compare(t, obstest.Served(string(b.must(200, "GET", "/metrics", "", nil).body)), section)
}
