package jobs

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs"
)

// Cluster gives the state of the cluster and changes its map. A *members.Cluster is one.
type Cluster interface {
	State() *members.State
	Stale(ctx context.Context, seen *members.State) (*members.State, error)
	Change(ctx context.Context, fn func(m *shardmap.Map) (*shardmap.Map, error)) (*members.State, error)
}

// Options of a Runner. The zero value keeps jobs in memory and does nothing by itself.
type Options struct {
	// Store is where the coordinators of a cluster keep their jobs together. Nil: they are in Dir.
	Store store.Store
	// Dir is the folder for the jobs of one coordinator alone, which is locked while the Runner is open. Empty: they are in memory.
	Dir string
	FS  vfs.FS // of Dir; nil: the operating system's

	Hints *hints.Queue // what members have missed; nil: nothing is kept
	// DocsPerSec and BytesPerSec bound what jobs copy. Zero: no limit.
	DocsPerSec, BytesPerSec int
	// RepairEvery is about how often the members of groups are compared in the background. Zero or below: never.
	RepairEvery time.Duration
	Log         *slog.Logger // nil: nothing is logged
	Metrics     *obs.Metrics // nil: nothing is counted
}

// Runner does the jobs of a cluster.
type Runner struct {
	c Cluster
	o Options
}

// New returns a Runner that does nothing yet. Close must be called.
func New(c Cluster, o Options) (*Runner, error) { return &Runner{c: c, o: o}, nil }

// Start begins to do what there is to do.
func (r *Runner) Start() {}

// Close leaves a running job so that it can be gone on with, and waits for what is under way.
func (r *Runner) Close() error { return nil }

// Behind tells whether a member has missed writes that are kept for it.
func (r *Runner) Behind(addr string) bool {
	if r.o.Hints == nil {
		return false
	}
	for _, p := range r.o.Hints.Pending() {
		if p.Member == addr {
			return true
		}
	}
	return false
}

func notReady() *api.Problem {
	return &api.Problem{Code: api.NotReady, RetryAfterMS: 500, Detail: "the coordinator does not take jobs yet"}
}

// Rebalance moves documents to the shards that own them, and waits for the end.
func (r *Runner) Rebalance(context.Context, int, int) (*RebalanceReply, error) { return nil, notReady() }

// StartRebalance is Rebalance without waiting.
func (r *Runner) StartRebalance(context.Context, int, int) (string, error) { return "", notReady() }

// Repair makes the members of each group equal, and waits for the end.
func (r *Runner) Repair(context.Context) (*RepairReply, error) { return nil, notReady() }

// StartRepair is Repair without waiting.
func (r *Runner) StartRepair(context.Context) (string, error) { return "", notReady() }

// Jobs lists the jobs, the latest first.
func (r *Runner) Jobs(context.Context) ([]Job, error) { return []Job{}, nil }

// Job returns one job.
func (r *Runner) Job(context.Context, string) (Job, error) { return Job{}, notReady() }

// Act changes the state of a job.
func (r *Runner) Act(context.Context, string, string) (Job, error) { return Job{}, notReady() }
