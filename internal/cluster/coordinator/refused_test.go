package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestWhatAMemberRefusesIsShown: /_topology says how many documents a member refuses and names some, and so does a metric.
func TestWhatAMemberRefusesIsShown(t *testing.T) {
	sm, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"a:1", "away:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	metrics := obs.NewMetrics("test")
	c, err := New(Config{
		Shards: sm, Store: store.NewMemory(nil), RepairEvery: -1, MapEvery: time.Hour, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		FS: memfs.New(nil), DataDir: "data", Metrics: metrics,
		Dial: func(addr string) (leaf.Member, error) {
			return &keeper{addr: addr, down: strings.HasPrefix(addr, "away")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(c.Start(t.Context()), c.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	get := func(target string) string {
		rec := httptest.NewRecorder()
		c.Handler().ServeHTTP(rec, httptest.NewRequest("GET", target, nil))
		return rec.Body.String()
	}
	for i := range 12 {
		if _, err := c.hints.SetAside("away:1", []hints.Entry{{Index: "default", ID: fmt.Sprintf("d%02d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	got := get("/_topology")
	for _, want := range []string{`"behind":true`, `"refuses":{"documents":12,"first":[{"index":"default","id":"d00","since":"20`, `"id":"d09"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	if strings.Contains(got, `"id":"d10"`) || strings.Count(got, "refuses") != 1 {
		t.Errorf("%s", got)
	}
	if got := get("/metrics"); !strings.Contains(got, "weft_cluster_hints_aside 12") {
		t.Errorf("the metric is not there:\n%s", got)
	}
}
