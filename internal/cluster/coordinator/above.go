package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// above is the shard map of the coordinator above, where this one stands as a shard of another. It is kept in memory: a coordinator
// has no memory of its own, and the one above gives its map again within seconds of a start.
type above struct {
	mu      sync.Mutex
	epoch   uint64
	bytes   []byte
	writing map[uint64]int // writes under way by epoch, those without one left out
	ended   chan struct{}  // closed and replaced when a write ends; nil: nobody waits
}

// enter lets a call in that goes by the map of an epoch, 0 for none. done has to be called when the call has ended.
func (a *above) enter(epoch uint64, writes bool) (done func(), err error) {
	if epoch == 0 {
		return func() {}, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.takesLocked(epoch); err != nil {
		return nil, err
	}
	if !writes {
		return func() {}, nil
	}
	if a.writing == nil {
		a.writing = map[uint64]int{}
	}
	a.writing[epoch]++
	return func() { a.leave(epoch) }, nil
}

// takes tells whether calls that go by the map of an epoch, 0 for none, are taken yet. A call that reads asks when it has read: documents may
// be on their way out as soon as every member has a newer map, and the call may have waited for a place, or looked at several members one
// after the other.
func (a *above) takes(epoch uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.takesLocked(epoch)
}

func (a *above) takesLocked(epoch uint64) error {
	if epoch != 0 && epoch < a.epoch {
		return api.NewProblem(api.StaleMap, fmt.Sprintf("the shard map has epoch %d, the call goes by %d", a.epoch, epoch))
	}
	return nil
}

// leave counts a write out.
func (a *above) leave(epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writing[epoch]--; a.writing[epoch] == 0 {
		delete(a.writing, epoch)
	}
	if a.ended != nil {
		close(a.ended)
		a.ended = nil
	}
}

// place takes a map. When it returns nil, no write that goes by an older one is under way any more, as at a node. With the end of ctx the
// map is kept all the same.
func (a *above) place(ctx context.Context, req *leaf.PlaceRequest) error {
	if len(req.Map) > leaf.MaxMap {
		return api.NewProblem(api.InvalidParameter, fmt.Sprintf("map: it has %d bytes, %d are allowed", len(req.Map), leaf.MaxMap)).On("map").Within(leaf.MaxMap)
	}
	if req.Epoch == 0 {
		return api.NewProblem(api.InvalidParameter, "epoch: that of a shard map is above 0").On("epoch")
	}
	if err := a.keep(req); err != nil {
		return err
	}
	for {
		ended := a.older(req.Epoch)
		if ended == nil {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// keep makes a map the one that calls are held against, unless there is a later or another one.
func (a *above) keep(req *leaf.PlaceRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if req.Epoch < a.epoch || req.Epoch == a.epoch && !bytes.Equal(req.Map, a.bytes) {
		return api.NewProblem(api.StaleMap, fmt.Sprintf("another shard map is in force, of epoch %d", a.epoch))
	}
	a.epoch, a.bytes = req.Epoch, bytes.Clone(req.Map)
	return nil
}

// older is closed when a write ends; nil if none is under way that goes by an epoch below that.
func (a *above) older(epoch uint64) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e := range a.writing {
		if e < epoch {
			if a.ended == nil {
				a.ended = make(chan struct{})
			}
			return a.ended
		}
	}
	return nil
}

// reply names no node: a coordinator that was started again is not one that has lost its documents.
func (a *above) reply() *leaf.PlaceReply {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &leaf.PlaceReply{Epoch: a.epoch, Map: bytes.Clone(a.bytes)}
}
