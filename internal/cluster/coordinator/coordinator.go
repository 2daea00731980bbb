// Package coordinator serves a cluster as if it were one node: over HTTP, and over the shard protocols, so that it can stand as one
// shard of another coordinator.
//
// A coordinator owns no documents. What it keeps are connections, the shard map that all coordinators agree on (package members),
// what it knows by heart for a while (schemas, statistics), and, where it is given a folder, the writes that members missed. Any of
// several can be killed at any time; the others go on.
//
// Its life is New, Start, Close, called in that order by one goroutine. Everything else is safe for concurrent use.
package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/jobs"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/cluster/search"
	"github.com/weft-search/weft/internal/cluster/write"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/leafserve"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/serve/replica"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs"
)

// errClosing is the cause of contexts that end because the coordinator closes.
var errClosing = front.ErrClosing

// Config says where a coordinator listens, whom it asks and how much it may use. The zero value of every field means its default;
// Dial, and one of Shards and Store, are required.
type Config struct {
	// HTTPAddr, GRPCAddr and ShardAddr are the addresses of HTTP, shard gRPC and framed JSON, host:port; port 0 picks a free one. Empty:
	// not served.
	HTTPAddr, GRPCAddr, ShardAddr string
	// Dial makes the connection to a member. It does not wait for the member.
	Dial func(addr string) (leaf.Member, error)
	// Shards is the shard map to begin with. See members.Options.Initial.
	Shards *shardmap.Map
	// Store is the object store in which coordinators agree on the shard map and keep jobs. Nil: the members keep the map, and jobs are
	// kept in DataDir.
	Store store.Store
	// DataDir is the folder for writes that members missed and, without Store, for jobs. Empty: neither is kept over a restart.
	DataDir string
	// FS is the file system of DataDir. Nil: the operating system's.
	FS vfs.FS
	// ReadOrder is how the member of a group is chosen that answers a read. Default: replica.Adaptive.
	ReadOrder replica.Order
	// Pool is how many hits each shard gives to a ranking that is fused of two, where the request does not say. Default: api.DefaultPool.
	Pool int
	// MapEvery is how often the shard map is looked at. Default: 2 s.
	MapEvery time.Duration
	// RepairEvery is how often the members of groups are compared in the background. Default: 10 min. Negative: never.
	RepairEvery time.Duration
	// MoveDocsPerSec and MoveBytesPerSec bound what a rebalance or a repair copies. Zero: no limit.
	MoveDocsPerSec, MoveBytesPerSec int

	Version    string
	Log        *slog.Logger  // nil: nothing is logged
	Metrics    *obs.Metrics  // nil: a registry of its own
	SlowSearch time.Duration // from which a search is logged as slow, without its text. Zero: 1 s. Negative: never
	LameDuck   time.Duration // how long Close goes on as before, but for /readyz
	Limits     Limits
}

// Limits bound what requests may take. The zero value of each means its default.
type Limits struct {
	Searches     int           // searches that run at once; default 256: they wait for members, and not for this machine
	SearchQueue  int           // searches that wait for a place; default 256
	Writes       int           // single writes at once; default 256
	WriteQueue   int           // default 256
	Bulks        int           // bulk loads at once; default 8
	BulkQueue    int           // default 32
	Scans        int           // plans, and lists, exports and digests of the shard protocols, at once; default 8
	QueueWait    time.Duration // longest wait for a place; default 5 s
	StreamIdle   time.Duration // how long a member may give nothing of a list or an export, before another one goes on; default 30 s
	RequestBytes int64         // memory for the bodies of all requests under way; default 256 MiB
	// The others are as those of a node, with the same defaults.
	DocumentBytes, SearchBytes, SchemaBytes, ReplyBytes, AggBytes, FrameBytes int64
	ShardConns, ShardCalls, URLBytes, HeaderBytes, BulkErrors, BulkIDs, Hits  int
	SearchTimeout, BulkStall, ReplyTime, IdleTime                             time.Duration
}

func (c *Config) ensureDefaults() {
	if c.Log == nil {
		c.Log = obs.Discard()
	}
	if c.FS == nil {
		c.FS = vfs.OS
	}
	if c.Metrics == nil {
		c.Metrics = obs.NewMetrics(c.Version)
	}
	setDefault(&c.SlowSearch, time.Second)
	setDefault(&c.Pool, api.DefaultPool)
	setDefault(&c.MapEvery, 2*time.Second)
	setDefault(&c.RepairEvery, 10*time.Minute)
	l := &c.Limits
	setDefault(&l.Searches, 256)
	setDefault(&l.SearchQueue, 256)
	setDefault(&l.Writes, 256)
	setDefault(&l.WriteQueue, 256)
	setDefault(&l.Bulks, 8)
	setDefault(&l.BulkQueue, 32)
	setDefault(&l.Scans, 8)
	setDefault(&l.QueueWait, 5*time.Second)
	setDefault(&l.StreamIdle, read.DefaultStreamIdle)
	setDefault(&l.RequestBytes, 256<<20)
	setDefault(&l.DocumentBytes, 16<<20)
	setDefault(&l.SearchBytes, 1<<20)
	setDefault(&l.SchemaBytes, 1<<20)
	setDefault(&l.ReplyBytes, 64<<20)
	setDefault(&l.AggBytes, 64<<20)
	setDefault(&l.FrameBytes, 64<<20)
	setDefault(&l.ShardConns, 1024)
	setDefault(&l.ShardCalls, 1024)
	setDefault(&l.URLBytes, 64<<10)
	setDefault(&l.HeaderBytes, 64<<10)
	setDefault(&l.BulkErrors, 10_000)
	setDefault(&l.BulkIDs, 8<<20)
	setDefault(&l.Hits, 10_000)
	setDefault(&l.SearchTimeout, 10*time.Minute)
	setDefault(&l.BulkStall, time.Minute)
	setDefault(&l.ReplyTime, time.Minute)
	setDefault(&l.IdleTime, 2*time.Minute)
}

// setDefault sets *p to d if it is zero.
func setDefault[T comparable](p *T, d T) {
	var zero T
	if *p == zero {
		*p = d
	}
}

// Coordinator is one coordinating process, or one of several in a process.
type Coordinator struct {
	cfg Config
	log *slog.Logger
	id  string // drawn at each start

	members  *members.Cluster
	read     *read.Reader
	write    *write.Writer
	searcher *search.Searcher
	hints    *hints.Queue // nil: none are kept
	jobs     *jobs.Runner
	above    above
	division division
	whole    *whole
	leaf     *clusterLeaf
	lock     io.Closer // of DataDir; nil without one

	// leaving ends when Close begins: whoever waits for a job does not hold it up.
	leaving context.Context
	leave   context.CancelCauseFunc

	front  *front.Server
	shards *leafserve.Servers

	searches, writes, bulks, scans *admit.Gate
	stages                         map[string]obs.Histogram
	leafRoutes                     map[string]*obs.Route // by name of the call
	slow                           *obs.SlowLog
	documents                      struct{ indexed, rejected, deleted obs.Counter }

	closeOnce sync.Once
	closeErr  error
}

// lockFile is held in the data folder while the coordinator lives.
const lockFile = "LOCK"

// New makes a coordinator that does not listen yet. It must be closed.
func New(cfg Config) (_ *Coordinator, err error) {
	cfg.ensureDefaults()
	l := cfg.Limits
	id := rand.Text()
	c := &Coordinator{
		cfg: cfg, id: id, log: cfg.Log.With("coordinator", id),
		searches: admit.New(front.GateSearches, int64(l.Searches), l.SearchQueue, l.QueueWait),
		writes:   admit.New(front.GateWrites, int64(l.Writes), l.WriteQueue, l.QueueWait),
		bulks:    admit.New(front.GateBulks, int64(l.Bulks), l.BulkQueue, l.QueueWait),
		scans:    admit.New(front.GateScans, int64(l.Scans), l.Scans, l.QueueWait),
		slow:     obs.NewSlowLog(cfg.Log, cfg.SlowSearch, cfg.Metrics.SlowQueries),
	}
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	c.leaving, c.leave = context.WithCancelCause(context.Background())
	if cfg.DataDir != "" {
		if err := vfs.MkdirAll(cfg.FS, cfg.DataDir); err != nil {
			return nil, fmt.Errorf("make the data folder: %w", err)
		}
		if c.lock, err = cfg.FS.Lock(path.Join(cfg.DataDir, lockFile)); err != nil {
			return nil, fmt.Errorf("take the data folder: %w", err)
		}
		undo = append(undo, c.lock.Close)
	}
	mo := members.Options{Dial: cfg.Dial, Initial: cfg.Shards, Every: cfg.MapEvery, Dir: cfg.DataDir, FS: cfg.FS, Log: c.log}
	if cfg.Store != nil {
		mo.Source = shardmap.NewStoreSource(cfg.Store)
	}
	if c.members, err = members.Open(mo); err != nil {
		return nil, err
	}
	undo = append(undo, c.members.Close)
	if cfg.DataDir != "" {
		if c.hints, err = hints.Open(path.Join(cfg.DataDir, "hints"), cfg.FS, hints.Options{Report: c.reportHints}); err != nil {
			return nil, fmt.Errorf("open missed writes: %w", err)
		}
		undo = append(undo, c.hints.Close)
	}
	if c.read, err = read.New(c.members, read.Options{
		Node: id, Version: cfg.Version, Order: cfg.ReadOrder, Standing: c.standing, Vouch: c.members.Vouch, StreamIdle: l.StreamIdle,
	}); err != nil {
		return nil, err
	}
	undo = append(undo, c.read.Close)
	c.front = front.New(front.Config{
		Routes: c.routes(), Log: c.log, Metrics: cfg.Metrics, LameDuck: cfg.LameDuck, Problem: c.problem,
		Limits: front.Limits{
			URLBytes: l.URLBytes, HeaderBytes: l.HeaderBytes,
			RequestBytes: l.RequestBytes, RequestQueue: l.SearchQueue + l.WriteQueue + l.BulkQueue, QueueWait: l.QueueWait,
			ReplyRoom: 2 * l.ReplyBytes, BodyStall: l.BulkStall, ReplyTime: l.ReplyTime, IdleTime: l.IdleTime,
		},
	})
	if err := c.openWork(&undo); err != nil {
		return nil, err
	}
	c.shards = leafserve.New(leafserve.Config{
		Leaf: c.leaf, Front: c.front, Log: c.log, Metrics: cfg.Metrics,
		Limits: leafserve.Limits{
			Conns: l.ShardConns, Calls: l.ShardCalls, RequestBytes: l.RequestBytes, QueueWait: l.QueueWait,
			DocumentBytes: l.DocumentBytes, FrameBytes: l.FrameBytes, SearchTimeout: l.SearchTimeout, BodyStall: l.BulkStall, ReplyTime: l.ReplyTime,
		},
	})
	c.resolveMetrics()
	return c, nil
}

// problem is what a caller is told of an error.
func (c *Coordinator) problem(ctx context.Context, err error) *api.Problem {
	p, err := front.FirstProblem(ctx, err)
	if p != nil {
		return p
	}
	if p := api.SchemaProblem(err); p != nil {
		return p
	}
	switch {
	case errors.Is(err, members.ErrNotReady):
		return notReady()
	case errors.Is(err, leaf.ErrClosed):
		return front.ShuttingDown()
	}
	if e, ok := errors.AsType[*leaf.TransportError](err); ok && ctx.Err() == nil {
		if e.MaybeApplied {
			return &api.Problem{Code: api.WriteUncertain, Detail: "a member went away in the middle of the write; whether it was applied there is not known", Cause: err}
		}
		return &api.Problem{Code: api.GroupUnavailable, RetryAfterMS: 1000, Detail: "no member of a group that has to answer can be reached", Cause: err}
	}
	return front.LastProblem(err)
}

func (c *Coordinator) resolveMetrics() {
	m := c.cfg.Metrics
	c.stages = make(map[string]obs.Histogram, len(search.Stages()))
	for _, s := range search.Stages() {
		c.stages[s] = m.Stage(s)
	}
	c.leafRoutes = make(map[string]*obs.Route, len(leafCalls))
	for _, name := range leafCalls {
		c.leafRoutes[name] = m.ShardCall(name)
	}
	for name, gate := range map[string]*admit.Gate{"searches": c.searches, "writes": c.writes, "bulks": c.bulks, "scans": c.scans} {
		front.WatchGate(m, name, gate)
	}
	c.documents.indexed, c.documents.rejected, c.documents.deleted = m.Documents("indexed"), m.Documents("rejected"), m.Documents("deleted")
	m.GaugeFunc("weft_cluster_epoch", "Epoch of the shard map that the coordinator goes by; 0 while it knows none.", func() float64 {
		if s := c.members.State(); s != nil {
			return float64(s.Epoch())
		}
		return 0
	})
	counter := func(name, help string, read func() uint64) {
		m.CounterFunc("weft_cluster_"+name+"_total", help, func() float64 { return float64(read()) })
	}
	counter("stale_reads", "Reads that were repeated because a member had a newer shard map.", c.read.Stale)
	counter("duplicates", "Hits that came from two shards and were given once.", c.read.Duplicates)
	counter("hedges", "Reads that were sent to a second member because the first was slow.", func() uint64 { return c.read.Hedging().Hedges })
	counter("retries", "Reads that were sent to another member because one failed.", func() uint64 { return c.read.Hedging().Retries })
	counter("stale_writes", "Writes that were repeated because a member had a newer shard map.", func() uint64 { return c.write.Stats().Stale })
	counter("retried_writes", "Calls of members that were made again for a write.", func() uint64 { return c.write.Stats().Retried })
	counter("crossed_documents", "Documents that members had in different states after all had taken a write.", func() uint64 { return c.write.Stats().Crossed })
	counter("settled_documents", "Documents that were put or deleted at a member to make it equal to the first.", func() uint64 { return c.write.Stats().Settled })
	counter("hinted_documents", "Documents that were noted as missed by a member.", func() uint64 { return c.write.Stats().Hinted })
	counter("unhinted_documents", "Documents that a member missed and that could not be noted.", func() uint64 { return c.write.Stats().Unhinted })
	counter("searches_exact", "Searches that were scored with the statistics of the whole, verified.", func() uint64 { return c.searcher.Counts().Exact })
	counter("searches_repeated", "Searches that were made again because the statistics had changed.", func() uint64 { return c.searcher.Counts().Repeated })
	counter("searches_inexact", "Searches that were to be scored with the statistics of the whole, and lacked a shard or met too many writes.", func() uint64 { return c.searcher.Counts().Inexact })
	counter("searches_local", "Searches that were scored with the statistics of each shard.", func() uint64 { return c.searcher.Counts().Local })
	m.GaugeFunc("weft_cluster_suspect_members", "Members that are not read from until they were compared.", func() float64 { return float64(len(c.members.Suspects())) })
	pending := func(read func(p *hints.MemberPending) float64) func() float64 {
		return func() (sum float64) {
			if c.hints == nil {
				return 0
			}
			list := c.hints.Pending()
			for i := range list {
				sum += read(&list[i])
			}
			return sum
		}
	}
	m.GaugeFunc("weft_cluster_hints_pending", "Writes that are kept for members that missed them.", pending(func(p *hints.MemberPending) float64 { return float64(p.Count) }))
	m.GaugeFunc("weft_cluster_hints_aside", "Documents that members refuse and that others of their group have.", pending(func(p *hints.MemberPending) float64 { return float64(p.Refused) }))
	m.GaugeFunc("weft_cluster_hints_overflowed", "Members that missed more writes than are kept, and have to be compared.", pending(func(p *hints.MemberPending) float64 {
		if p.Overflowed {
			return 1
		}
		return 0
	}))
}

// reportHints logs what the queue of missed writes has to tell.
func (c *Coordinator) reportHints(member string, err error) {
	if _, torn := errors.AsType[*hints.TailError](err); torn {
		c.log.Info("cut the torn end of the writes that a member missed", "member", member, "error", err)
		return
	}
	if errors.Is(err, hints.ErrRefused) {
		c.log.Warn("a member refuses more documents than can be put aside: it will be compared as a whole until it takes them", "member", member, "limit", hints.MaxAside)
		return
	}
	c.log.Warn("a member has missed more writes than are kept: it will be compared as a whole", "member", member, "error", err)
}

// behind tells whether a member may lack documents: it has missed writes that are kept for it, or it is to be compared first.
func (c *Coordinator) behind(addr string) bool { return c.members.Suspect(addr) || c.jobs.Behind(addr) }

// standing is what readers are to think of a member.
func (c *Coordinator) standing(addr string) replica.Standing {
	switch {
	case c.members.Suspect(addr):
		return replica.Out
	case c.jobs.Behind(addr):
		return replica.Last
	}
	return replica.Good
}

// Start binds the addresses and serves them. /readyz answers 503 until the shard map is known. ctx bounds the start only.
func (c *Coordinator) Start(ctx context.Context) error {
	if err := c.front.Listen(ctx, c.front.HTTP(c.cfg.HTTPAddr), c.shards.GRPC(c.cfg.GRPCAddr), c.shards.Framed(c.cfg.ShardAddr)); err != nil {
		return err
	}
	c.front.Serve()
	c.front.Ready()
	c.jobs.Start()
	return nil
}

// Ready waits until the shard map is known.
func (c *Coordinator) Ready(ctx context.Context) error { return c.members.Ready(ctx) }

// Handler answers HTTP calls, for callers in the same process.
func (c *Coordinator) Handler() http.Handler { return c.front.Handler() }

// Leaf is the cluster as one member, for callers in the same process. It is closed with the coordinator.
func (c *Coordinator) Leaf() leaf.Member { return c.leaf }

// Listeners are those that are bound.
func (c *Coordinator) Listeners() []front.Listener { return c.front.Listeners() }

// Addr is the address of HTTP, empty if it is not served.
func (c *Coordinator) Addr() string { return c.front.Addr(front.HTTP) }

// Done is closed when a listener has ended; Err tells why.
func (c *Coordinator) Done() <-chan struct{} { return c.front.Done() }

// Err is why a listener ended by itself.
func (c *Coordinator) Err() error { return c.front.Err() }

// Close goes on for Config.LameDuck, stops accepting calls, waits for those under way until ctx ends, and lets everything go. A job that
// runs is left as it stands, to be gone on with. Closing again returns the same error.
func (c *Coordinator) Close(ctx context.Context) error {
	c.closeOnce.Do(func() {
		c.leave(errClosing)
		var calls error
		down := c.front.Shutdown(ctx, func() { calls = errors.Join(c.read.Close(), c.write.Close()) })
		c.front.Wait()
		errs := []error{down, calls, c.jobs.Close()}
		if c.hints != nil {
			errs = append(errs, c.hints.Close())
		}
		errs = append(errs, c.members.Close())
		if c.lock != nil {
			errs = append(errs, c.lock.Close())
		}
		c.closeErr = errors.Join(errs...)
	})
	return c.closeErr
}
