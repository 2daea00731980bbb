package service

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/broker/fleet"
	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/obs"
)

// Broker serves a fleet.
type Broker struct {
	cfg     Config
	fleet   *fleet.Fleet
	front   *front.Server
	relay   *relay.Server
	metrics *obs.SummaBroker
	memory  *admit.Gate
	global  *admit.Gate // nil: searches are not bounded in all

	inflating chan struct{} // replies that are decompressed at once
	topology  *admit.Gate   // calls of GetTopology
	polls     *admit.Gate   // memory for what nodes tell of their indexes

	backends  backends
	picture   atomic.Pointer[picture]
	turn      atomic.Uint64 // reads so far
	primaries partition.Primaries
	copies    *copies // nil: reads go to copies in turn

	health struct {
		sync.Mutex
		server *health.Server // nil before the port is open
		ready  bool           // the broker says how well it serves
	}

	stop  context.CancelFunc
	run   sync.WaitGroup
	ended chan struct{} // closed when the fleet has failed, or the front has
	once  sync.Once
	err   error // before ended is closed
}

// picture is the fleet with what is needed to call its nodes, at one moment.
type picture struct {
	*route.View
	backends map[string]*backend // by address
}

// New makes a broker that does not listen yet.
func New(cfg Config) (*Broker, error) {
	cfg = cfg.withDefaults()
	b := &Broker{
		cfg: cfg, metrics: cfg.Metrics.SummaBroker(), ended: make(chan struct{}),
		memory:    admit.New("broker_memory", cfg.RequestBytes, 1024, cfg.Limits.Wait),
		inflating: make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
		topology:  admit.New("broker_topology", topologiesAtOnce, 64, cfg.Limits.Wait),
		polls:     admit.New("broker_polls", pollBytes, 1024, cfg.ListTimeout),
	}
	front.WatchGate(cfg.Metrics, "broker_bytes", b.memory)
	if cfg.Searches > 0 {
		b.global = admit.New("broker_searches", int64(cfg.Searches), 0, 0)
	}
	if cfg.Adaptive {
		b.copies = newCopies(cfg.FirstDelay)
	}
	b.backends.b = b
	b.picture.Store(&picture{View: route.New(cfg.Placement, nil), backends: map[string]*backend{}})
	b.fleet = fleet.New(fleet.Options{
		Source: cfg.Source, List: b.list, Placement: cfg.Placement,
		PollInterval: cfg.PollInterval, ProbeInterval: cfg.ProbeInterval, Grace: cfg.Grace, ListTimeout: cfg.ListTimeout,
		Log: cfg.Log, Published: b.published, Serving: func(bool) { b.tellHealth() },
	})
	b.metrics.WatchFleet(b.counts, b.samples)
	b.front = front.New(front.Config{
		Log: cfg.Log, Metrics: cfg.Metrics, Limits: front.Limits{RequestBytes: 1, ReplyRoom: 1},
	})
	b.relay = relay.New(relay.Config{
		Route: b.route, Stream: b.stream, Enter: b.front.Drain().Enter, Leave: b.front.Drain().Leave, Charge: b.charge,
		Register: func(g grpc.ServiceRegistrar) { brokerpb.RegisterBrokerServiceServer(g, &admin{b: b}) },
		Health:   b.healthServer, Limits: cfg.Limits, Log: cfg.Log, Cut: b.metrics.Cut, Panicked: cfg.Metrics.Panics.Inc,
	})
	return b, nil
}

// tcpKeepAlive is the silence after which TCP asks a client whether it is there ("Transport").
const tcpKeepAlive = time.Minute

// metricsReply and metricsIdle bound who reads metrics.
const (
	metricsReply = time.Minute
	metricsIdle  = 2 * time.Minute
)

// Start binds the addresses and serves, and begins to learn the fleet. ctx bounds the start only.
func (b *Broker) Start(ctx context.Context) error {
	clients := b.relay.Binding(b.cfg.Addr)
	clients.KeepAlive = tcpKeepAlive
	bindings := []front.Binding{clients}
	if b.cfg.MetricsAddr != "" {
		bindings = append(bindings, front.MetricsPort(b.cfg.MetricsAddr, b.cfg.Metrics.Handler(), metricsReply, metricsIdle, b.cfg.Log))
	}
	if err := b.front.Listen(ctx, bindings...); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.front.Serve()
	// Not front.Ready, which says SERVING before a node is healthy.
	b.health.Lock()
	b.health.ready = true
	b.health.Unlock()
	b.tellHealth()
	b.run.Go(func() {
		if err := b.fleet.Run(run); err != nil {
			b.end(err)
		}
	})
	b.run.Go(func() {
		select {
		case <-b.front.Done():
			b.end(b.front.Err())
		case <-run.Done():
		}
	})
	return nil
}

// end makes Done say that the broker has failed.
func (b *Broker) end(err error) {
	b.once.Do(func() {
		b.err = err
		close(b.ended)
	})
}

// Done is closed when the broker cannot go on; Err says why.
func (b *Broker) Done() <-chan struct{} { return b.ended }

// Err is why Done is closed.
func (b *Broker) Err() error {
	select {
	case <-b.ended:
		return b.err
	default:
		return nil
	}
}

// Listeners are those that Start opened.
func (b *Broker) Listeners() []front.Listener { return b.front.Listeners() }

// Close ends the broker in good order: health says NOT_SERVING, the port closes, calls under way end as they will, until ctx ends. What is left
// then is told that the broker shuts down, and cut off where it does not end by that.
func (b *Broker) Close(ctx context.Context) error {
	b.health.Lock()
	b.health.ready = false
	b.health.Unlock()
	err := b.front.Shutdown(ctx, b.relay.Interrupt)
	if b.stop != nil {
		b.stop()
	}
	b.run.Wait()
	b.backends.close()
	b.front.Wait()
	return err
}

// healthServer takes the health service of the port when it is made.
func (b *Broker) healthServer(h *health.Server) {
	b.health.Lock()
	defer b.health.Unlock()
	b.health.server = h
}

// tellHealth makes the health of the broker that of its fleet ("Topology and health").
func (b *Broker) tellHealth() {
	b.health.Lock()
	defer b.health.Unlock()
	if b.health.server == nil || !b.health.ready {
		return
	}
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if b.fleet.Serving() {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, service := range []string{"", "summa.SearchService", "summa.IndexService", brokerpb.BrokerService_ServiceDesc.ServiceName} {
		b.health.server.SetServingStatus(service, status)
	}
}

// charge takes memory for a call.
func (b *Broker) charge(ctx context.Context, have, more int64) (given int64, release func(), err error) {
	return charge(ctx, b.memory, have, more)
}

// published takes a new view of the fleet.
func (b *Broker) published(v *route.View) {
	old := b.picture.Load()
	b.picture.Store(&picture{View: v, backends: b.backends.keep(v.Nodes())})
	if v.SameIndexes(old.View) {
		return
	}
	// A call that was routed by an older view may count once more for an index that is gone: there are as many of these as calls under way, and
	// they go with the next change.
	known := func(index string) bool {
		_, ok := v.Known(index)
		return ok
	}
	b.metrics.ForgetIndexes(known)
	b.primaries.Keep(known)
}

func (b *Broker) counts() obs.FleetCounts {
	c := b.picture.Load().Counts()
	added, removed := b.fleet.Events()
	return obs.FleetCounts{Healthy: c.Healthy, Suspect: c.Suspect, Evicted: c.Evicted, Unready: c.Unready, Added: added, Removed: removed}
}

func (b *Broker) samples(emit func(obs.FleetSample)) {
	for _, n := range b.picture.Load().Nodes() {
		s := obs.FleetSample{Backend: n.ID, Shard: n.Shard, MapAge: -1}
		switch n.Health {
		case route.Healthy:
			s.Healthy = 1
		case route.Suspect:
			s.Healthy = 0.5
		}
		if !n.Learned.IsZero() {
			s.MapAge = time.Since(n.Learned).Seconds()
		}
		emit(s)
	}
}

var errClosed = errors.New("the broker is closed")
