package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/node/summanode"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/text/subword"
)

// summaHost is the node as the Summa services see it.
type summaHost struct{ node *Node }

var _ summanode.Host = summaHost{}

// Enter implements summanode.Host.
func (h summaHost) Enter() bool { return h.node.front.Drain().Enter() }

// Leave implements summanode.Host.
func (h summaHost) Leave() { h.node.front.Drain().Leave() }

// Use implements summanode.Host.
func (h summaHost) Use(ctx context.Context, name string) (*summanode.Index, error) {
	l, err := h.node.catalog.use(ctx, name)
	if err != nil {
		return nil, err
	}
	return &summanode.Index{
		Name: l.entry.Name, Engine: tasks{l.eng}, Context: l.ctx, OnCommit: l.entry.onCommit(), Release: l.release,
		Analyzers: func(s *schema.Schema) (exec.Analyzers, error) { return l.analyzersOf(s) },
	}, nil
}

// Create implements summanode.Host.
func (h summaHost) Create(ctx context.Context, name string, s *schema.Schema, onCommit bool) (made bool, err error) {
	place, err := h.node.writes.Enter(ctx, 1)
	if err != nil {
		return false, err
	}
	defer place.Release()
	visibility := ""
	if onCommit {
		visibility = api.OnCommit
	}
	l, made, err := h.node.catalog.create(ctx, name, s, visibility)
	if err != nil {
		if _, broken := errors.AsType[*unavailableError](err); broken {
			return false, nil // it is there, though it cannot be used
		}
		return false, err
	}
	l.release()
	return made, nil
}

// Delete implements summanode.Host.
func (h summaHost) Delete(ctx context.Context, name string) error {
	place, err := h.node.writes.Enter(ctx, 1)
	if err != nil {
		return err
	}
	defer place.Release()
	if err := h.node.catalog.remove(ctx, name); err != nil && !errors.Is(err, errNoIndex) {
		return err
	}
	return nil
}

// Names implements summanode.Host.
func (h summaHost) Names() []string {
	var out []string
	for _, i := range h.node.catalog.list() {
		out = append(out, i.entry.Name)
	}
	return out
}

// Write implements summanode.Host.
func (h summaHost) Write(ctx context.Context, i *summanode.Index, ops []shard.Op, bytes int) ([]shard.OpResult, error) {
	giveUp := time.Now().Add(h.node.cfg.Limits.QueueWait)
	for {
		res, err := h.write(ctx, i, ops, bytes)
		wait, full := roomIn(err)
		if !full || time.Now().Add(wait).After(giveUp) {
			return res, err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

func (h summaHost) write(ctx context.Context, i *summanode.Index, ops []shard.Op, bytes int) ([]shard.OpResult, error) {
	n := h.node
	room, err := n.enterAnalysis(ctx, bytes)
	if err != nil {
		return nil, err
	}
	defer room.leave()
	if err := n.memtables.admit(); err != nil {
		return nil, err
	}
	place, err := n.writes.Enter(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer place.Release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unhook := context.AfterFunc(i.Context, func() { cancel(context.Cause(i.Context)) })
	defer unhook()
	eng, ok := i.Engine.(engine)
	if !ok {
		return nil, errors.New("the index is not one of this node")
	}
	res, err := eng.Apply(ctx, ops)
	if cause := context.Cause(ctx); err != nil && cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, shard.ErrClosed)) {
		return nil, cause
	}
	return res, err
}

// Full implements summanode.Host.
func (summaHost) Full(err error) bool {
	_, full := roomIn(err)
	return full
}

// Charge implements summanode.Host.
func (h summaHost) Charge(ctx context.Context, have, more int64) (given int64, release func(), err error) {
	gate := h.node.summaMemory
	given = min(more, gate.Limit()-have)
	if given <= 0 {
		return 0, func() {}, nil
	}
	place, err := gate.Enter(ctx, given)
	if err != nil {
		return 0, nil, err
	}
	return given, place.Release, nil
}

// MemoryLimit implements summanode.Host.
func (h summaHost) MemoryLimit() int64 { return h.node.summaMemory.Limit() }

// Samples implements summanode.Host.
func (h summaHost) Samples(emit func(obs.IndexSample)) { h.node.samples(emit) }

// Counted implements summanode.Host.
func (h summaHost) Counted(indexed, rejected, deleted int) {
	d := &h.node.documents
	d.indexed.Add(uint64(indexed))
	d.rejected.Add(uint64(rejected))
	d.deleted.Add(uint64(deleted))
}

// summaSearcher answers the searches of Summa.
type summaSearcher struct {
	cache  summaquery.Cache
	models *subword.Store
	// held is what all searches hold beside their replies, in bytes, and most is what they may. A search that waits for room for its reply
	// has no place among those that run, but it holds what it has found.
	held atomic.Int64
	most int64
}

var _ summanode.Searcher = (*summaSearcher)(nil)

const (
	// heldRoom is what all searches may hold beside their replies, in multiples of what one may.
	heldRoom = 2
	// leastHeld is what a search may hold in any case.
	leastHeld = 1 << 20
)

// errHeld is what a search is told that finds no room: other searches will give it back.
var errHeld = &summa.Error{Code: codes.ResourceExhausted, Text: "Search capacity is full; retry with backoff"}

// newSummaSearcher returns a searcher within limits, with the tokenizers of a folder, or without any.
func newSummaSearcher(tokenizers string, l summa.Limits) *summaSearcher {
	s := &summaSearcher{most: heldRoom * int64(l.WithDefaults().MaxSearchHeldBytes)}
	if tokenizers != "" {
		s.models = subword.NewStore(tokenizers)
	}
	return s
}

func (s *summaSearcher) index(v *summanode.View) *summaquery.Index {
	return &summaquery.Index{Schema: v.Schema, Analyzers: v.Analyzers, Leaves: v.Leaves, Segments: v.Segments, Cache: &s.cache, Models: s.models, Charge: v.Charge}
}

// Search implements summanode.Searcher.
func (s *summaSearcher) Search(ctx context.Context, v *summanode.View, req *summapb.SearchRequest, w summa.Window, l summa.Limits) (*summapb.SearchResponse, error) {
	ix, mine := s.index(v), int64(0)
	ix.Hold = func(bytes int) error {
		n := int64(bytes)
		mine += n
		if s.held.Add(n) > s.most && n > 0 && mine > leastHeld {
			return errHeld
		}
		return nil
	}
	defer func() { s.held.Add(-mine) }()
	return summaquery.Search(ctx, ix, req, w, l)
}

// TextStats implements summanode.Searcher.
func (s *summaSearcher) TextStats(ctx context.Context, v *summanode.View, q *summapb.Query, l summa.Limits) (*summapb.TextStats, error) {
	return summaquery.TextStats(ctx, s.index(v), q, l)
}

// summaCodes are the gRPC codes of problems; of those that are not there it is that of the class of the status.
var summaCodes = map[api.Code]codes.Code{
	api.IndexNotFound: codes.NotFound, api.IndexDeleted: codes.NotFound, api.DocumentNotFound: codes.NotFound,
	api.TooManySearches: codes.ResourceExhausted, api.TooManyWrites: codes.ResourceExhausted, api.TooManyBulks: codes.ResourceExhausted,
	api.RequestMemoryFull: codes.ResourceExhausted, api.MemtableFull: codes.ResourceExhausted, api.IndexLimit: codes.ResourceExhausted, api.DiskFull: codes.ResourceExhausted,
	api.CallerGone: codes.Canceled, api.Timeout: codes.DeadlineExceeded,
	api.NotReady: codes.Unavailable, api.IndexUnavailable: codes.Unavailable, api.ReadOnly: codes.Unavailable, api.ShuttingDown: codes.Unavailable,
	api.SchemaConflict: codes.FailedPrecondition,
}

// Refusal implements summanode.Host.
func (h summaHost) Refusal(ctx context.Context, err error) *summa.Error {
	if e, ok := errors.AsType[*noIndexError](err); ok {
		return summa.NoIndex(e.name)
	}
	p := h.node.problem(ctx, err)
	h.node.front.CountFailure(p)
	code, ok := summaCodes[p.Code]
	switch {
	case ok:
	case p.HTTPStatus() >= 500:
		code = codes.Internal
	default:
		code = codes.InvalidArgument
	}
	text := p.Detail
	switch {
	case p.Code == api.ShuttingDown:
		text = "Summa server is shutting down"
	case code == codes.Internal:
		text = "Internal error: " + text
	}
	return &summa.Error{Code: code, Text: text}
}
