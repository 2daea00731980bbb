package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

func isStale(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == api.StaleMap
}

// TestAMapFromAboveWaitsForTheWritesOfOlderOnes gives a coordinator that stands as a shard a map while it writes.
func TestAMapFromAboveWaitsForTheWritesOfOlderOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a above
		place := func(ctx context.Context, epoch uint64) error {
			return a.place(ctx, &leaf.PlaceRequest{Epoch: epoch, Map: []byte{byte(epoch)}})
		}
		enter := func(epoch uint64, writes bool) func() {
			t.Helper()
			done, err := a.enter(epoch, writes)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		if err := place(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		old, older, reads, free := enter(1, true), enter(1, true), enter(1, false), enter(0, true)
		placed := make(chan error, 1)
		go func() { placed <- place(context.Background(), 2) }()
		synctest.Wait()
		if _, err := a.enter(1, true); !isStale(err) {
			t.Errorf("a write of the older map: %v", err)
		}
		now := enter(2, true)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := place(ctx, 2); !errors.Is(err, context.Canceled) {
			t.Errorf("nobody waits: %v", err)
		}
		old()
		synctest.Wait()
		select {
		case err := <-placed:
			t.Fatalf("it returned while a write was under way: %v", err)
		default:
		}
		older() // the read, the write without an epoch and the one of the new map are not waited for
		if err := <-placed; err != nil {
			t.Error(err)
		}
		reads()
		free()
		now()
		if err := place(t.Context(), 1); !isStale(err) {
			t.Errorf("an older map: %v", err)
		}
		if len(a.writing) != 0 {
			t.Errorf("writes are left: %v", a.writing)
		}
	})
}
