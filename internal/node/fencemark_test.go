package node

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/shard"
)

// TestARefusedWriteLeavesTheMarkOfASync: what a Sync put at a member still stands there when a write was refused, for want of room for example.
func TestARefusedWriteLeavesTheMarkOfASync(t *testing.T) {
	faults := &failingEngine{good: 100}
	s := startServer(t, Config{DataDir: t.TempDir()}, func(n *Node) {
		open := n.openEngine
		n.openEngine = func(ctx context.Context, cfg shard.Config) (engine, error) {
			e, err := open(ctx, cfg)
			return &failing{e, faults}, err
		}
	})
	s.do("PUT", "/indexes/x", "text/plain", fmt.Sprintf(copySDL, "x")).want(201)
	in := s.node.Leaf().(*shardLeaf)
	if _, err := in.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{ID: "a", Body: []byte(`{"id":"a"}`)}}}); err != nil {
		t.Fatal(err)
	}
	look := func() []int {
		r, err := in.Sums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: []string{"a"}, Fence: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.Synced
	}
	if got := look(); len(got) != 1 {
		t.Fatalf("synced before: %v", got)
	}
	faults.good = 0
	if _, err := in.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":5}`), Existing: true}); err == nil {
		t.Error("it was not refused")
	}
	if got := look(); len(got) != 1 {
		t.Errorf("synced after a refused write: %v", got)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
}
