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
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Node is one serving process, or one of several in a process.
type Node struct {
	cfg  Config
	log  *slog.Logger
	dir  *dataDir
	self identity

	placed placed // the shard map that the node is part of

	catalog catalog
	// openEngine opens the shard of an index: the seam at which tests make the engine fail.
	openEngine func(ctx context.Context, cfg shard.Config) (engine, error)

	handler http.Handler
	servers servers

	searches, writes, bulks *admit.Gate // places
	scans                   *admit.Gate // places of lists of ids and of exports, which keep a snapshot as long as their caller reads
	memory                  *admit.Gate // bytes of request bodies
	analyses                *admit.Gate // bytes of memory in which long documents are taken apart
	replies                 *admit.Gate // bytes of long replies that are being sent
	aggregations            *admit.Gate // bytes of memory in which facets and aggregations are made
	aggBeyond               *admit.Gate // the search that makes them when that is full
	filters                 *exec.FilterCache
	memtables               memtables
	drain                   drain
	parsers                 sync.Pool // of *jsondoc.Parser
	chunkDocs               int       // documents in a chunk of a bulk load

	leafRoutes [leafOps]*obs.Route

	refused   map[api.Code]obs.Counter
	stages    map[string]obs.Histogram
	documents struct{ indexed, rejected, deleted obs.Counter }
	slow      *obs.SlowLog
	failures  obs.LineLimit

	ctx    context.Context // of all work; ends when Close gives up waiting
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // background work that Close waits for
	opened chan struct{}  // closed when every index was opened or has failed to

	closeOnce sync.Once
	closeErr  error
}

// Names of the gates.
const (
	gateSearches = "searches"
	gateWrites   = "writes"
	gateBulks    = "bulk loads"
	gateScans    = "scans"
	gateMemory   = "bytes of bodies"
	gateAnalyses = "bytes for long documents"
	gateReplies  = "bytes of replies"
	gateAggs     = "bytes for aggregations"
)

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
		searches:     admit.New(gateSearches, int64(l.Searches), l.SearchQueue, l.QueueWait),
		writes:       admit.New(gateWrites, int64(l.Writes), l.WriteQueue, l.QueueWait),
		bulks:        admit.New(gateBulks, bulkPlaces(l), l.BulkQueue, l.QueueWait),
		scans:        admit.New(gateScans, int64(l.Scans), l.ScanQueue, l.QueueWait),
		memory:       admit.New(gateMemory, l.RequestBytes, l.SearchQueue+l.WriteQueue+l.BulkQueue, l.QueueWait),
		analyses:     admit.New(gateAnalyses, l.RequestBytes, l.WriteQueue+l.BulkQueue, l.QueueWait),
		replies:      admit.New(gateReplies, replyRoom*l.ReplyBytes, 0, 0), // never waited for
		aggregations: admit.New(gateAggs, aggRoom*l.AggBytes, 0, 0),        // never waited for
		aggBeyond:    admit.New(gateAggs, 1, l.SearchQueue, l.QueueWait),
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
	n.memtables.node = n
	n.drain.idle = make(chan struct{})
	n.servers.done = make(chan struct{})
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
	n.handler = n.newHandler()
	return n, nil
}

func (n *Node) resolveMetrics() {
	m := n.cfg.Metrics
	n.refused = make(map[api.Code]obs.Counter)
	for code, info := range api.Codes {
		if info.Status == http.StatusTooManyRequests || info.Status == http.StatusServiceUnavailable {
			n.refused[code] = m.Refused(string(code))
		}
	}
	n.stages = make(map[string]obs.Histogram, len(bound.Stages()))
	for _, s := range bound.Stages() {
		n.stages[s] = m.Stage(s)
	}
	for op, name := range leafRoutes {
		n.leafRoutes[op] = m.ShardCall(name)
	}
	n.documents.indexed, n.documents.rejected, n.documents.deleted = m.Documents("indexed"), m.Documents("rejected"), m.Documents("deleted")
	for _, g := range []struct {
		name string
		gate *admit.Gate
	}{{"searches", n.searches}, {"writes", n.writes}, {"bulks", n.bulks}, {"scans", n.scans}, {"request_bytes", n.memory}} {
		m.GaugeFunc("weft_admitted_"+g.name, "What the gate has given out.", func() float64 { return float64(g.gate.Used()) })
		m.GaugeFunc("weft_waiting_for_"+g.name, "Requests that wait for the gate.", func() float64 { return float64(g.gate.Waiting()) })
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
		Dir: n.indexDir(e), FS: n.cfg.FS, Collection: e.Name, Schema: sch,
		MemtableBytes: n.cfg.Engine.MemtableBytes, MergeBytesPerSec: n.cfg.Engine.MergeBytesPerSec,
		Log: n.log.With("index", e.Name),
	}
}

func (n *Node) indexDir(e catalogEntry) string { return path.Join(n.dir.path, indexesDir, e.Dir) }

// Start binds the address, serves it, and begins to recover the indexes in the background: until all are there, /readyz
// answers 503 and a call to an index that is not there yet waits for it. ctx bounds the start only.
func (n *Node) Start(ctx context.Context) error {
	if err := n.listen(ctx); err != nil {
		return err
	}
	n.serveAll()
	n.wg.Go(func() {
		defer close(n.opened)
		n.catalog.openAll(n.ctx)
		n.servers.ready()
	})
	return nil
}

// Handler answers the node's HTTP calls, for callers in the same process.
func (n *Node) Handler() http.Handler { return n.handler }

// Metrics is where the node counts.
func (n *Node) Metrics() *obs.Metrics { return n.cfg.Metrics }

// Opened is closed when every index was opened or has failed to open; Ready tells which.
func (n *Node) Opened() <-chan struct{} { return n.opened }

// Close tells /readyz, goes on for Config.LameDuck, stops accepting calls, waits for those under way until ctx ends, then
// interrupts them, closes the indexes and lets the data folder go. What was acknowledged is safe in any case. When calls had to be
// cut off the error has a *DrainError in it. Closing again does nothing and returns the same error.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() { n.closeErr = n.close(ctx) })
	return n.closeErr
}

func (n *Node) close(ctx context.Context) error {
	var errs []error
	n.lameDuck(ctx)
	n.drain.begin()
	n.servers.leaving()
	late := n.servers.shutdown(ctx)
	if err := n.drain.wait(ctx); err != nil {
		late = err
	}
	if late != nil {
		errs = append(errs, &DrainError{Calls: n.drain.underWay(), Cause: late})
	}
	n.cancel(errClosing)
	if late != nil {
		n.lastWords(ctx)
	}
	if err := n.servers.close(); err != nil {
		errs = append(errs, err)
	}
	<-n.drain.idle // what was interrupted ends soon
	n.wg.Wait()
	errs = append(errs, n.catalog.closeAll(ctx), n.dir.release())
	return errors.Join(errs...)
}

// lastWords lets calls that were just interrupted send their answers: a bulk load can tell what is in.
func (n *Node) lastWords(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := n.servers.shutdown(ctx); err != nil {
		n.log.Debug("connections were busy to the end", "error", err)
	}
}

// lameDuck waits while callers learn that the node is about to close.
func (n *Node) lameDuck(ctx context.Context) {
	if n.cfg.LameDuck <= 0 {
		return
	}
	n.drain.announce()
	n.servers.leaving()
	wait := time.NewTimer(n.cfg.LameDuck)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	case <-n.ctx.Done():
	}
}

// DrainError says that a closing node did not wait for everything to end. It matches the cause of the end of waiting.
type DrainError struct {
	Calls int // calls that were interrupted; if none, connections were closed that had sent a part of a request or not taken a reply
	Cause error
}

func (e *DrainError) Error() string {
	switch e.Calls {
	case 0:
		return "connections were still busy when the time to end was over, and were closed"
	case 1:
		return "1 call had not ended when the time for it was over, and was cut off"
	}
	return fmt.Sprintf("%d calls had not ended when the time for them was over, and were cut off", e.Calls)
}

// Unwrap returns the cause.
func (e *DrainError) Unwrap() error { return e.Cause }

// errClosing is the cause of contexts that end because the node closes.
var errClosing = errors.New("the node is closing")

// drain counts calls under way, and refuses new ones once it has begun.
type drain struct {
	idle chan struct{} // closed when closing and no call is left
	mu   struct {
		sync.Mutex
		calls   int
		leaving bool // closing will follow
		closing bool
	}
}

// announce says that the drain is about to begin.
func (d *drain) announce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.leaving = true
}

// underWay is the number of calls that have not ended.
func (d *drain) underWay() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.calls
}

// enter counts a call in; it returns false once the drain has begun.
func (d *drain) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closing {
		return false
	}
	d.mu.calls++
	return true
}

// leave counts a call out.
func (d *drain) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.calls--
	if d.mu.closing && d.mu.calls == 0 {
		close(d.idle)
	}
}

func (d *drain) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closing {
		return
	}
	d.mu.leaving, d.mu.closing = true, true
	if d.mu.calls == 0 {
		close(d.idle)
	}
}

func (d *drain) announced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.leaving
}

func (d *drain) wait(ctx context.Context) error {
	select {
	case <-d.idle:
		return nil
	default:
	}
	select {
	case <-d.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
