package fleet

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/obs"
)

// Options are what a Fleet is made of. Source and List are required; zero stands for the default otherwise.
type Options struct {
	Source Source
	// List asks a node for the names of its indexes (ListIndexes). It is called from several goroutines and has to end soon when ctx does.
	List      func(ctx context.Context, n Node) ([]string, error)
	Placement *route.Placement // nil: no rules

	PollInterval  time.Duration // between polls of a healthy node (--index-poll-interval-secs); 15 s
	ProbeInterval time.Duration // between polls of another (--probe-interval-secs); 5 s
	Grace         time.Duration // how long a node is suspect before it is evicted (--backend-unreachable-grace-secs); 60 s
	ListTimeout   time.Duration // of one poll (--list-timeout-secs); 3 s
	Polls         int           // that may be young at once; 64

	Log *slog.Logger // nil: nothing is logged

	// Published is called with every new view, in order and before the next is made, and Serving whenever what View.Serving says changed. At
	// first a fleet serves nothing. Both are called by one goroutine, and hold it up for as long as they take.
	Published func(*route.View)
	Serving   func(bool)
}

// Fleet keeps a view of a fleet up to date while Run runs.
type Fleet struct {
	o       Options
	view    atomic.Pointer[route.View]
	members atomic.Pointer[map[string]*member] // that stand in the view or are about to
	added   atomic.Uint64
	removed atomic.Uint64

	wake    chan struct{} // holds a token while the loop has something to look at
	refresh atomic.Bool   // all are to be polled
	doubt   atomic.Bool   // a member has failed calls enough for a poll
	done    chan struct{} // closed when Run returns

	mu     sync.Mutex
	found  []Node // what the source told last
	fresh  bool   // and nobody has looked at
	learns []*learn
}

// New returns a Fleet with an empty view.
func New(o Options) *Fleet {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&o.PollInterval, 15 * time.Second},
		{&o.ProbeInterval, 5 * time.Second},
		{&o.Grace, time.Minute},
		{&o.ListTimeout, 3 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	if o.Polls <= 0 {
		o.Polls = 64
	}
	if o.Log == nil {
		o.Log = obs.Discard()
	}
	f := &Fleet{o: o, wake: make(chan struct{}, 1), done: make(chan struct{})}
	f.view.Store(route.New(o.Placement, nil))
	f.members.Store(&map[string]*member{})
	return f
}

// Run keeps the view up to date until ctx ends, and returns nil then; an error of the Source ends it, too, and is returned. The view stays
// as it was last. Run may be called once.
func (f *Fleet) Run(ctx context.Context) error {
	defer close(f.done)
	return newKeeper(f).run(ctx)
}

// View returns the fleet as it is known now; never nil.
func (f *Fleet) View() *route.View { return f.view.Load() }

// Serving says whether any ready node is healthy ("Topology and health").
func (f *Fleet) Serving() bool { return f.View().Serving() }

// Events returns how many nodes discovery has found and lost since the start. A node that comes back at another address or in another
// shard is lost and found.
func (f *Fleet) Events() (added, removed uint64) { return f.added.Load(), f.removed.Load() }

// Refresh has all ready nodes polled soon, and returns how many nodes are known ("Diagnostics and control": RefreshTopology).
func (f *Fleet) Refresh() int {
	f.refresh.Store(true)
	f.poke()
	return len(f.View().Nodes())
}

// Learn is for after a call that made or deleted an index: the named nodes are polled at once, all others soon. It returns when the view
// has what the named ones answered, or that they did not; or when ctx or Run ends.
func (f *Fleet) Learn(ctx context.Context, ids ...string) {
	l := &learn{ids: ids, done: make(chan struct{})}
	f.mu.Lock()
	f.learns = append(f.learns, l)
	f.mu.Unlock()
	f.refresh.Store(true)
	f.poke()
	select {
	case <-l.done:
	case <-ctx.Done():
	case <-f.done:
	}
}

// Failed tells that a call to a node failed in transport. After two such failures the node is polled at once, though at most once a second
// (line B1 of the differences).
func (f *Fleet) Failed(id string) {
	m := (*f.members.Load())[id]
	if m != nil && m.failed.Add(1) == failuresToDoubt {
		f.doubt.Store(true)
		f.poke()
	}
}

// tell takes a list of the source.
func (f *Fleet) tell(nodes []Node) {
	f.mu.Lock()
	f.found, f.fresh = nodes, true
	f.mu.Unlock()
	f.poke()
}

func (f *Fleet) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// learn is a call of Learn. Besides done it belongs to the loop.
type learn struct {
	ids  []string
	left int // polls that have not been answered
	done chan struct{}
}
