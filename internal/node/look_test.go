package node

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/shard"
)

// looked is an engine that counts what was looked at.
type looked struct {
	engine
	keys  []string
	shown int // snapshots since the last look
}

func (l *looked) Disturb(ctx context.Context, keys []string, mark uint64) (bool, error) {
	l.keys, l.shown = append(l.keys, keys...), 0
	return l.engine.Disturb(ctx, keys, mark)
}

func (l *looked) Snapshot() *shard.Snapshot {
	l.shown++
	return l.engine.Snapshot()
}

// TestAFenceIsALook: whoever asks for checksums with a fence copies documents by them, so the shard has to know before it shows them.
func TestAFenceIsALook(t *testing.T) {
	var eng *looked
	s := startServer(t, Config{DataDir: t.TempDir()}, func(n *Node) {
		open := n.openEngine
		n.openEngine = func(ctx context.Context, cfg shard.Config) (engine, error) {
			e, err := open(ctx, cfg)
			eng = &looked{engine: e}
			return eng, err
		}
	})
	s.do("PUT", "/indexes/x", "text/plain", fmt.Sprintf(copySDL, "x")).want(201)
	sums := func(fence bool) {
		t.Helper()
		if _, err := s.node.Leaf().Sums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: []string{"a", "b"}, Fence: fence}); err != nil {
			t.Fatal(err)
		}
	}
	if sums(false); eng.keys != nil {
		t.Errorf("checksums without a fence are a look at %q", eng.keys)
	}
	if sums(true); !slices.Equal(eng.keys, []string{"a", "b"}) || eng.shown == 0 {
		t.Errorf("a fence is a look at %q, and %d snapshots are behind it", eng.keys, eng.shown)
	}
}
