package coordinator

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// above is the shard map of the coordinator above, where this one stands as a shard of another. It is kept in memory: a coordinator
// has no memory of its own, and the one above gives its map again within seconds of a start.
type above struct {
	mu    sync.Mutex
	epoch uint64
	bytes []byte
}

func (a *above) check(epoch uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch != 0 && epoch < a.epoch {
		return api.NewProblem(api.StaleMap, fmt.Sprintf("the shard map has epoch %d, the call goes by %d", a.epoch, epoch))
	}
	return nil
}

func (a *above) place(req *leaf.PlaceRequest) error {
	if len(req.Map) > leaf.MaxMap {
		return api.NewProblem(api.InvalidParameter, fmt.Sprintf("map: it has %d bytes, %d are allowed", len(req.Map), leaf.MaxMap)).On("map").Within(leaf.MaxMap)
	}
	if req.Epoch == 0 {
		return api.NewProblem(api.InvalidParameter, "epoch: that of a shard map is above 0").On("epoch")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case req.Epoch < a.epoch, req.Epoch == a.epoch && !bytes.Equal(req.Map, a.bytes):
		return api.NewProblem(api.StaleMap, fmt.Sprintf("another shard map is in force, of epoch %d", a.epoch))
	}
	a.epoch, a.bytes = req.Epoch, bytes.Clone(req.Map)
	return nil
}

// reply names no node: a coordinator that was started again is not one that has lost its documents.
func (a *above) reply() *leaf.PlaceReply {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &leaf.PlaceReply{Epoch: a.epoch, Map: bytes.Clone(a.bytes)}
}
