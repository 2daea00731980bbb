package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// TestAStoreWithoutAMapIsNamed: a broker that has no --shards and finds no map says what makes the first one.
func TestAStoreWithoutAMapIsNamed(t *testing.T) {
	s := store.NewMemory(nil)
	said := func() string {
		var b bytes.Buffer
		lacksMap(t.Context(), slog.New(slog.NewTextHandler(&b, nil)), s)
		return b.String()
	}
	if got := said(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "start one broker with --shards and this --store") {
		t.Errorf("%q", got)
	}
	m, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"a:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shardmap.NewStoreSource(s).Swap(t.Context(), shardmap.Version{}, m); err != nil {
		t.Fatal(err)
	}
	if got := said(); got != "" {
		t.Errorf("%q", got)
	}
}
