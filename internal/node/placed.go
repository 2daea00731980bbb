package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/vfs"
)

// placedContent is the shard map in placed.json. There is no such file as long as the node was given none.
type placedContent struct {
	Epoch uint64 `json:"epoch,string"` // above 0
	Map   []byte `json:"map"`          // as it was given, in base64
}

// placed keeps the shard map that the node was given last, and counts the writes of callers by the epoch that they go by. Lock order:
// change before mu.
type placed struct {
	dir *dataDir

	// change is held while placed.json is replaced: one map at a time.
	change sync.Mutex

	mu struct {
		sync.Mutex
		placedContent
		writing map[uint64]int // writes under way by epoch, those without one left out
		ended   chan struct{}  // closed and replaced when a write ends; nil: nobody waits
	}
}

// load reads the map of the folder, if there is one.
func (p *placed) load() error {
	var content placedContent
	found, err := p.dir.readSealed(placedFile, &content)
	if err != nil || !found {
		return err
	}
	if content.Epoch == 0 || len(content.Map) > leaf.MaxMap {
		return damaged(p.dir.file(placedFile), "the content is no shard map with an epoch")
	}
	p.mu.placedContent = content
	return nil
}

// current is the map that was given last.
func (p *placed) current() placedContent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.placedContent
}

// enter lets a call in that goes by the map of an epoch, 0 for none. done has to be called when the call has ended.
func (p *placed) enter(epoch uint64, writes bool) (done func(), err error) {
	if epoch == 0 {
		return func() {}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch < p.mu.Epoch {
		return nil, olderEpoch(p.mu.Epoch, epoch)
	}
	if !writes {
		return func() {}, nil
	}
	if p.mu.writing == nil {
		p.mu.writing = map[uint64]int{}
	}
	p.mu.writing[epoch]++
	return func() { p.leave(epoch) }, nil
}

// leave counts a write out.
func (p *placed) leave(epoch uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.writing[epoch]--; p.mu.writing[epoch] == 0 {
		delete(p.mu.writing, epoch)
	}
	if p.mu.ended != nil {
		close(p.mu.ended)
		p.mu.ended = nil
	}
}

// olderEpoch is the refusal of a caller that goes by a map of before.
func olderEpoch(have, got uint64) *api.Problem {
	return api.NewProblem(api.StaleMap, fmt.Sprintf("the shard map of this member has epoch %d, the call goes by epoch %d; read the map anew", have, got))
}

// place keeps a map, durably. When it returns nil, no write that goes by an older one is under way any more. With the end of ctx the
// map is kept all the same, if it was no later.
func (p *placed) place(ctx context.Context, next placedContent) error {
	if err := p.keep(next); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		older := false
		for epoch := range p.mu.writing {
			older = older || epoch < next.Epoch
		}
		if !older {
			p.mu.Unlock()
			return nil
		}
		if p.mu.ended == nil {
			p.mu.ended = make(chan struct{})
		}
		ended := p.mu.ended
		p.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// keep makes a map the one that calls are held against, unless there is a later or another one.
func (p *placed) keep(next placedContent) error {
	p.change.Lock()
	defer p.change.Unlock()
	switch have := p.current(); {
	case next.Epoch < have.Epoch:
		return olderEpoch(have.Epoch, next.Epoch)
	case next.Epoch == have.Epoch && bytes.Equal(next.Map, have.Map):
		return nil
	case next.Epoch == have.Epoch:
		return api.NewProblem(api.StaleMap, fmt.Sprintf("this member was given another shard map with epoch %d; read the map anew", have.Epoch))
	}
	if err := p.dir.writeSealed(placedFile, 1, next); err != nil {
		return unplaced(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.placedContent = next
	return nil
}

// unplaced is the problem of a map that could not be written.
func unplaced(err error) *api.Problem {
	p := &api.Problem{Code: api.ReadOnly, Detail: "the shard map could not be written; the one of before stays in force", Cause: err}
	switch {
	case isDiskFull(err):
		p.Code, p.RetryAfterMS, p.Detail = api.DiskFull, 5000, "the disk is full, so that the shard map could not be written; the one of before stays in force"
	case errors.Is(err, vfs.ErrUncertain):
		p.Code, p.Detail = api.WriteUncertain, "the shard map could not be made durable; the one of before stays in force, and which of the two a restart finds is not known"
	}
	return p
}

// Place implements leaf.Member. It returns when no write of an older epoch is under way any more.
func (l *shardLeaf) Place(ctx context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	return callLeaf(ctx, l, opPlace, "", leaf.View{}, func(c *leafCall) (*leaf.PlaceReply, error) {
		if req.Epoch == 0 {
			return nil, api.NewProblem(api.InvalidParameter, "epoch: that of a shard map is above 0").On("epoch")
		}
		if len(req.Map) > leaf.MaxMap {
			return nil, api.NewProblem(api.InvalidParameter, fmt.Sprintf("map: it has %d bytes, %d are allowed", len(req.Map), leaf.MaxMap)).On("map").Within(leaf.MaxMap)
		}
		if err := c.enter(nil); err != nil {
			return nil, err
		}
		if err := c.node.placed.place(c.ctx, placedContent{req.Epoch, bytes.Clone(req.Map)}); err != nil {
			return nil, err
		}
		return c.node.placedReply(), nil
	})
}

// Placed implements leaf.Member.
func (l *shardLeaf) Placed(ctx context.Context) (*leaf.PlaceReply, error) {
	return callLeaf(ctx, l, opPlaced, "", leaf.View{}, func(c *leafCall) (*leaf.PlaceReply, error) {
		if err := c.enter(nil); err != nil {
			return nil, err
		}
		return c.node.placedReply(), nil
	})
}

func (n *Node) placedReply() *leaf.PlaceReply {
	have := n.placed.current()
	return &leaf.PlaceReply{Node: n.self.ID, Epoch: have.Epoch, Map: have.Map}
}
