package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/serve/cache"
)

// Stages of a search, besides those of package bound, which a coordinator has.
const (
	StageNetwork = read.StageNetwork // between the search and its slowest shard
	StageMerge   = read.StageMerge   // making one ranking of those of all shards
)

// Stages are all stages of a search, for metrics.
func Stages() []string { return append(bound.Stages(), StageNetwork, StageMerge) }

// Options of a Searcher. Member and Schemas are required; of all others the zero value means the default.
type Options struct {
	// Member stands for the whole cluster.
	Member leaf.Member
	// Schemas gives the schema of the whole index; fresh asks for the one of this moment, whatever is remembered. Errors are as those of
	// Member.
	Schemas func(ctx context.Context, index string, fresh bool) (*schema.Schema, error)
	// Address is what Member is called where it says nothing of shards.
	Address string

	ReplyBytes int64 // of sources in one reply, of its fragments, of its explanations, of facets and aggregations. Default: 64 MiB
	AggBytes   int64 // in which a search makes its facets, and again its aggregations. Default: 64 MiB

	// Memory is charged for what replies hold. Nil: nothing is charged.
	Memory *admit.Gate
	// Aggregations is charged for facets and aggregations, and never waited for; AggBeyond lets in those that find no room there, one at a
	// time. Default: four times AggBytes, and a queue of 256 that waits for 5 s.
	Aggregations, AggBeyond *admit.Gate

	// StatsEntries and StatsBytes bound the statistics that are remembered. Default: 10,000 queries and 16 MiB.
	StatsEntries int
	StatsBytes   int64
}

// Defaults of Options.
const (
	defaultReplyBytes   = 64 << 20
	defaultAggBytes     = 64 << 20
	defaultAggRoom      = 4
	defaultAggQueue     = 256
	defaultAggWait      = 5 * time.Second
	defaultStatsEntries = 10_000
	defaultStatsBytes   = 16 << 20
)

// Searcher answers searches over a cluster. It is safe for concurrent use, and holds nothing that has to be closed: goroutines belong to
// calls and end with them.
type Searcher struct {
	o         Options
	member    leaf.Member
	stats     *cache.LRU[statsKey, *remembered]
	analyzers analyzerCache
	// shards is how many shards the last answer came from, 0 before there was one. The statistics of one are those of the whole.
	shards atomic.Int64

	counts counts
}

// counts are what has happened so far.
type counts struct {
	exact, repeated, inexact, local atomic.Uint64
}

// Counts is how searches were scored, since the start.
type Counts struct {
	Exact    uint64 // with the statistics of the whole, as was verified
	Repeated uint64 // searches that were repeated because the statistics were others by then
	Inexact  uint64 // with statistics of the whole that lacked a shard or moved too fast
	Local    uint64 // with those of each of several shards
}

// New returns a Searcher, or an error that says what is missing in the options.
func New(o Options) (*Searcher, error) {
	switch {
	case o.Member == nil:
		return nil, errors.New("cluster search: there is no member to ask")
	case o.Schemas == nil:
		return nil, errors.New("cluster search: there is no source of schemas")
	}
	o.ReplyBytes = cmp.Or(o.ReplyBytes, defaultReplyBytes)
	o.AggBytes = cmp.Or(o.AggBytes, defaultAggBytes)
	o.StatsEntries = cmp.Or(o.StatsEntries, defaultStatsEntries)
	o.StatsBytes = cmp.Or(o.StatsBytes, defaultStatsBytes)
	if o.Aggregations == nil {
		o.Aggregations = admit.New(front.GateAggs, defaultAggRoom*o.AggBytes, 0, 0)
	}
	if o.AggBeyond == nil {
		o.AggBeyond = admit.New(front.GateAggs, 1, defaultAggQueue, defaultAggWait)
	}
	return &Searcher{o: o, member: o.Member, stats: cache.NewLRU[statsKey, *remembered](o.StatsBytes, o.StatsEntries)}, nil
}

// Counts tells how searches were scored.
func (s *Searcher) Counts() Counts {
	return Counts{Exact: s.counts.exact.Load(), Repeated: s.counts.repeated.Load(), Inexact: s.counts.inexact.Load(), Local: s.counts.local.Load()}
}

// Get returns the stored members of a document; nil where its index keeps no sources. A document is missing (document_not_found) only if
// the shard that owns it says so; if that cannot be reached the problem is group_unavailable.
func (s *Searcher) Get(ctx context.Context, index, id string) (source []byte, prob *api.Problem) {
	ctx, release := s.Charged(ctx)
	defer release()
	reply, err := s.member.Fetch(ctx, &leaf.FetchRequest{
		Index: index, View: leaf.View{Lenient: true}, IDs: []string{id}, Show: leaf.Show{Source: true},
	})
	if err != nil {
		return nil, s.problem(ctx, err)
	}
	switch {
	case len(reply.Docs) != 1:
		return nil, &api.Problem{Code: api.Internal, Detail: "a document was asked for, and something else came", Cause: fmt.Errorf("fetch gave %d documents for one id", len(reply.Docs))}
	case reply.Docs[0].Missing && lost(reply.Below):
		return nil, &api.Problem{Code: api.GroupUnavailable, RetryAfterMS: retryMS, Detail: "no member of the group that owns the document can be reached"}
	case reply.Docs[0].Missing:
		return nil, api.NewProblem(api.DocumentNotFound, "the index has no document with this id").On("id")
	}
	return reply.Docs[0].Source, nil
}

// retryMS is when a caller may try again what no member of a group answered.
const retryMS = 1000

// lost tells whether a shard is missing from an answer.
func lost(b *leaf.Below) bool { return b != nil && b.Shards.Failed > 0 }

// problem is what a caller is told of an error.
func (s *Searcher) problem(ctx context.Context, err error) *api.Problem {
	p, err := front.FirstProblem(ctx, err)
	if p != nil {
		return p
	}
	if p := bound.EngineProblem(err); p != nil {
		return p
	}
	if p := api.SchemaProblem(err); p != nil {
		return p
	}
	if errors.Is(err, leaf.ErrClosed) {
		return front.ShuttingDown()
	}
	if e, ok := errors.AsType[*leaf.TransportError](err); ok && leaf.ClassOf(e) != leaf.Never && !errors.Is(err, context.DeadlineExceeded) {
		return &api.Problem{Code: api.GroupUnavailable, RetryAfterMS: retryMS, Detail: "no member of a group that has to answer can be reached", Cause: err}
	}
	return front.LastProblem(err)
}
