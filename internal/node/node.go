// Package node serves the shards of one data folder over HTTP/JSON.
//
// A Node owns its data folder: identity (node.json), a lock against a second process, the catalog of indexes and one shard for
// each index. Its life is New (takes the folder), Start (listens, recovers the indexes in the background), Close (stops
// accepting, drains, closes the shards, lets the folder go); these three are called in that order by one goroutine. Everything
// else is safe for concurrent use at any time between New and Close.
//
// Every request is admitted before its first effect: a place among those that run at once, and memory for its body. What
// cannot be admitted is refused with a problem document that says which limit was hit and when to retry.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"path/filepath"
	"sync"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/leafserve"
	"github.com/weft-search/weft/internal/node/summanode"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/topology/placement"
)

// Node is one serving process, or one of several in a process.
type Node struct {
	cfg  Config
	log  *slog.Logger
	dir  *dataDir
	self identity

	placed   placed // the shard map that the node is part of
	underWay loadsUnderWay
	// placements are those by which callers narrow what they see.
	placements placement.Cache

	catalog catalog
	// openEngine opens the shard of an index: the seam at which tests make the engine fail.
	openEngine func(ctx context.Context, cfg shard.Config) (engine, error)

	front  *front.Server
	shards *leafserve.Servers
	leaf   leaf.Leaf // what shards serves
	summa  *summanode.Server
	// summaSearches answers the searches of summa.
	summaSearches *summaSearcher

	searches, writes, bulks *admit.Gate // places
	scans                   *admit.Gate // places of lists of ids and of exports, which keep a snapshot as long as their caller reads
	memory                  *admit.Gate // bytes of request bodies; of front
	summaMemory             *admit.Gate // bytes of messages of the Summa services and what they become
	analyses                *admit.Gate // bytes of memory in which long documents are taken apart
	aggregations            *admit.Gate // bytes of memory in which facets and aggregations are made
	aggBeyond               *admit.Gate // the search that makes them when that is full
	filters                 *exec.FilterCache
	memtables               memtables
	parsers                 sync.Pool // of *jsondoc.Parser
	chunkDocs               int       // documents in a chunk of a bulk load

	leafRoutes [leafOps]*obs.Route

	stages    map[string]obs.Histogram
	documents struct{ indexed, rejected, deleted obs.Counter }
	slow      *obs.SlowLog

	ctx    context.Context // of all work; ends when Close gives up waiting
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // background work that Close waits for
	opened chan struct{}  // closed when every index was opened or has failed to

	closeOnce sync.Once
	closeErr  error
}

// New checks the config, takes the data folder and reads the catalog. Errors about the folder are *DataDirError. Nothing
// listens and no index is open yet; a node that was made must be closed.
func New(cfg Config) (*Node, error) {
	cfg = cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("node config: %w", err)
	}
	dir, self, err := openDataDir(cfg.FS, filepath.ToSlash(cfg.DataDir))
	if err != nil {
		return nil, err
	}
	l := cfg.Limits
	n := &Node{
		cfg: cfg, log: cfg.Log.With("node", self.ID), dir: dir, self: self,
		searches:     admit.New(front.GateSearches, int64(l.Searches), l.SearchQueue, l.QueueWait),
		writes:       admit.New(front.GateWrites, int64(l.Writes), l.WriteQueue, l.QueueWait),
		bulks:        admit.New(front.GateBulks, bulkPlaces(l), l.BulkQueue, l.QueueWait),
		scans:        admit.New(front.GateScans, int64(l.Scans), l.ScanQueue, l.QueueWait),
		analyses:     admit.New(front.GateAnalyses, l.RequestBytes, l.WriteQueue+l.BulkQueue, l.QueueWait),
		aggregations: admit.New(front.GateAggs, aggRoom*l.AggBytes, 0, 0), // never waited for
		aggBeyond:    admit.New(front.GateAggs, 1, l.SearchQueue, l.QueueWait),
		slow:         obs.NewSlowLog(cfg.Log, cfg.SlowSearch, cfg.Metrics.SlowQueries),
		opened:       make(chan struct{}), chunkDocs: bulkChunkDocs,
	}
	if b := cfg.Engine.FilterCacheBytes; b > 0 {
		n.filters = exec.NewFilterCache(b)
	}
	n.openEngine = func(ctx context.Context, cfg shard.Config) (engine, error) {
		s, err := shard.Open(ctx, cfg)
		if err != nil {
			return nil, err // not s: a nil *Shard in an interface is not nil
		}
		return s, nil
	}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	n.catalog.node = n
	if !dir.made {
		n.catalog.disturb() // what an earlier process did is not known
	}
	n.memtables.node = n
	n.front = front.New(front.Config{
		Routes: n.routes(), Log: n.log, Metrics: cfg.Metrics, LameDuck: cfg.LameDuck, Problem: n.problem,
		Limits: front.Limits{
			URLBytes: l.URLBytes, HeaderBytes: l.HeaderBytes,
			RequestBytes: l.RequestBytes, RequestQueue: l.SearchQueue + l.WriteQueue + l.BulkQueue, QueueWait: l.QueueWait,
			ReplyRoom: replyRoom * l.ReplyBytes, BodyStall: l.BulkStall, ReplyTime: l.ReplyTime, IdleTime: l.IdleTime,
		},
	})
	n.memory = n.front.Memory()
	n.leaf = n.Leaf()
	n.shards = leafserve.New(leafserve.Config{
		Leaf: n.leaf, Front: n.front, Log: n.log, Metrics: cfg.Metrics,
		Limits: leafserve.Limits{
			Conns: l.ShardConns, Calls: l.ShardCalls, RequestBytes: l.RequestBytes, QueueWait: l.QueueWait,
			DocumentBytes: l.DocumentBytes, FrameBytes: l.FrameBytes, SearchTimeout: l.SearchTimeout, BodyStall: l.BulkStall, ReplyTime: l.ReplyTime,
		},
	})
	n.summaMemory = admit.New(front.GateMemory, l.RequestBytes, l.SearchQueue+l.BulkQueue, l.QueueWait)
	if cfg.SummaAddr != "" {
		n.summaSearches = newSummaSearcher(cfg.SummaTokenizers, cfg.Summa.Query)
		n.summa = summanode.New(summanode.Config{Host: summaHost{n}, Searcher: n.summaSearches, Limits: cfg.Summa, Log: n.log, Metrics: cfg.Metrics})
		cfg.Metrics.GaugeFunc("weft_summa_search_held_bytes", "What searches over Summa hold beside their replies.", func() float64 { return float64(n.summaSearches.held.Load()) })
	}
	n.resolveMetrics()
	n.placed.dir = dir
	err = n.placed.load()
	if err == nil {
		err = n.catalog.load()
	}
	if err != nil {
		n.cancel(err)
		return nil, errors.Join(err, dir.release())
	}
	return n, nil
}

func (n *Node) resolveMetrics() {
	m := n.cfg.Metrics
	n.stages = make(map[string]obs.Histogram, len(bound.Stages()))
	for _, s := range bound.Stages() {
		n.stages[s] = m.Stage(s)
	}
	for op, name := range leafRoutes {
		n.leafRoutes[op] = m.ShardCall(name)
	}
	n.documents.indexed, n.documents.rejected, n.documents.deleted = m.Documents("indexed"), m.Documents("rejected"), m.Documents("deleted")
	for name, gate := range map[string]*admit.Gate{"searches": n.searches, "writes": n.writes, "bulks": n.bulks, "scans": n.scans} {
		front.WatchGate(m, name, gate)
	}
	m.GaugeFunc("weft_filter_cache_bytes", "What the sets of documents of recurring filters take.", func() float64 {
		if n.filters == nil {
			return 0
		}
		return float64(n.filters.Stats().Bytes)
	})
	m.WatchIndexes(n.samples)
}

// ID is the node's UUID.
func (n *Node) ID() string { return n.self.ID }

// shardConfig is what the shard of an index is opened with.
func (n *Node) shardConfig(e catalogEntry, sch *schema.Schema) shard.Config {
	return shard.Config{
		Dir: n.indexDir(e), FS: n.cfg.FS, Collection: e.collection(), Schema: sch,
		MemtableBytes: n.cfg.Engine.MemtableBytes, IdleFlush: max(n.cfg.Engine.IdleFlush, 0), MergeBytesPerSec: n.cfg.Engine.MergeBytesPerSec, MaxSegmentDocs: n.cfg.Engine.MaxSegmentDocs,
		OnCommit: e.onCommit(), Log: n.log.With("index", e.Name),
	}
}

func (n *Node) indexDir(e catalogEntry) string { return path.Join(n.dir.path, indexesDir, e.Dir) }

// Start binds the address, serves it, and begins to recover the indexes in the background: until all are there, /readyz
// answers 503 and a call to an index that is not there yet waits for it. ctx bounds the start only.
func (n *Node) Start(ctx context.Context) error {
	bindings := []front.Binding{n.front.HTTP(n.cfg.HTTPAddr), n.shards.GRPC(n.cfg.GRPCAddr), n.shards.Framed(n.cfg.ShardAddr)}
	if n.summa != nil {
		bindings = append(bindings, n.summa.Binding(n.cfg.SummaAddr))
	}
	bindings = append(bindings, front.MetricsPort(n.cfg.MetricsAddr, n.cfg.Metrics.Handler(), n.cfg.Limits.ReplyTime, n.cfg.Limits.IdleTime, n.log))
	if err := n.front.Listen(ctx, bindings...); err != nil {
		return err
	}
	n.front.Serve()
	n.wg.Go(func() {
		defer close(n.opened)
		n.catalog.openAll(n.ctx)
		n.front.Ready()
	})
	return nil
}

// Handler answers the node's HTTP calls, for callers in the same process.
func (n *Node) Handler() http.Handler { return n.front.Handler() }

// Metrics is where the node counts.
func (n *Node) Metrics() *obs.Metrics { return n.cfg.Metrics }

// Opened is closed when every index was opened or has failed to open; Ready tells which.
func (n *Node) Opened() <-chan struct{} { return n.opened }

// Close tells /readyz, goes on for Config.LameDuck, stops accepting calls, waits for those under way until ctx ends, then
// interrupts them, closes the indexes and lets the data folder go. What was acknowledged is safe in any case; what is staged in indexes that
// show writes on commit is committed, for which there is a minute more. When calls had to be cut off the error has a *DrainError in it.
// Closing again does nothing and returns the same error.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() { n.closeErr = n.close(ctx) })
	return n.closeErr
}

func (n *Node) close(ctx context.Context) error {
	errs := []error{n.front.Shutdown(ctx, func() { n.cancel(front.ErrClosing) }), n.leaf.Close()}
	n.front.Wait()
	n.wg.Wait()
	errs = append(errs, n.catalog.closeAll(ctx), n.dir.release())
	return errors.Join(errs...)
}

// DrainError says that a closing node did not wait for everything to end. It matches the cause of the end of waiting.
type DrainError = front.DrainError
