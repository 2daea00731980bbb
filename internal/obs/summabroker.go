package obs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SummaBroker holds the metrics of a Summa broker, under the names that one has. No label is made of what a client sends: indexes are those
// that a node told of, others count as "unknown".
type SummaBroker struct {
	reg *prometheus.Registry

	searchSeconds  *summaries
	searches       *prometheus.CounterVec
	backendSeconds *summaries
	backendCalls   *prometheus.CounterVec
	stale          *prometheus.CounterVec
	polls          *prometheus.CounterVec
	cut            prometheus.Counter

	rejected, ambiguous, writeRejected, flushes, partial indexCounters

	mu      sync.RWMutex
	indexes map[searched]SummaSearches
}

type searched struct{ index, status string }

// SummaSearches counts the searches of one index with one outcome.
type SummaSearches struct {
	seconds *summary
	count   prometheus.Counter
}

// UnknownIndex stands for the names of indexes that no node told of.
const UnknownIndex = "unknown"

// SummaBroker makes the metrics of a Summa broker. Call it once.
func (m *Metrics) SummaBroker() *SummaBroker {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "summa_broker_" + name, Help: help}, labels)
	}
	indexCounter := func(name, help string, labels ...string) indexCounters {
		return indexCounters{vec: counter(name, help, labels...), more: len(labels) - 1, by: map[string]map[[2]string]prometheus.Counter{}}
	}
	summary := func(name, help string, labels ...string) *summaries {
		return newSummaries("summa_broker_"+name, help, labels...)
	}
	b := &SummaBroker{
		reg:            m.reg,
		searchSeconds:  summary("search_duration_seconds", "Time of searches, from their arrival to their answer.", "index", "status"),
		searches:       counter("search_requests_total", "Searches by index, unknown if no node told of it, and by code.", "index", "status"),
		rejected:       indexCounter("admission_rejected_total", "Searches that found no place.", "index", "scope"),
		backendSeconds: summary("backend_request_duration_seconds", "Time of calls to nodes.", "backend", "rpc"),
		backendCalls:   counter("backend_requests_total", "Calls to nodes by code.", "backend", "rpc", "code"),
		ambiguous:      indexCounter("ambiguous_index_total", "Reads of an index that several shards have without a rule.", "index"),
		stale:          counter("stale_topology_serves_total", "Reads that went to a suspect node because none was healthy.", "backend"),
		writeRejected:  indexCounter("write_rejected_total", "Writes that were refused before a node was asked.", "index", "reason"),
		flushes:        indexCounter("stream_flushes_total", "Runs of documents of streams, also those that were refused.", "index"),
		partial:        indexCounter("partial_reads_total", "Partitions that reads were answered without.", "index", "rpc", "shard"),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_summa_broker_polls_total", Help: "Looks at nodes, which ask for their indexes, by code.",
		}, []string{"backend", "code"}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_summa_broker_connections_cut_total", Help: "Connections of clients that were cut off because a reply was not taken.",
		}),
		indexes: map[searched]SummaSearches{},
	}
	m.reg.MustRegister(b.searchSeconds, b.searches, b.rejected.vec, b.backendSeconds, b.backendCalls, b.ambiguous.vec, b.stale, b.writeRejected.vec, b.flushes.vec, b.partial.vec, b.polls, b.cut)
	return b
}

// Searched counts a search by index, which a node told of or which is UnknownIndex, and by code.
func (b *SummaBroker) Searched(index, status string, took time.Duration) {
	key := searched{index, status}
	b.mu.RLock()
	s, ok := b.indexes[key]
	b.mu.RUnlock()
	if !ok {
		s = SummaSearches{b.searchSeconds.of(index, status), b.searches.WithLabelValues(index, status)}
		b.mu.Lock()
		b.indexes[key] = s
		b.mu.Unlock()
	}
	s.count.Inc()
	s.seconds.observe(took)
}

// Rejected counts a search that found no place; scope is global or backend.
func (b *SummaBroker) Rejected(index, scope string) { b.rejected.inc(index, scope) }

// Ambiguous counts a read of an index that several shards have without a rule.
func (b *SummaBroker) Ambiguous(index string) { b.ambiguous.inc(index) }

// WriteRejected counts a write that was refused before a node was asked; reason is the code.
func (b *SummaBroker) WriteRejected(index, reason string) {
	b.writeRejected.inc(index, reason)
}

// Flushed counts a run of documents of a stream, whatever becomes of it.
func (b *SummaBroker) Flushed(index string) { b.flushes.inc(index) }

// Partial counts a partition that a read was answered without.
func (b *SummaBroker) Partial(index, rpc, shard string) {
	b.partial.inc(index, rpc, shard)
}

// Cut counts a connection that was cut off because a reply was not taken.
func (b *SummaBroker) Cut() { b.cut.Inc() }

// ForgetIndexes drops what is counted of indexes for which keep is false: they are gone, and their names may be any number. It costs a look at
// each name that is counted, and little for each that goes.
func (b *SummaBroker) ForgetIndexes(keep func(index string) bool) {
	gone := func(index string) bool { return index != UnknownIndex && !keep(index) }
	b.mu.Lock()
	for key := range b.indexes {
		if gone(key.index) {
			delete(b.indexes, key)
			b.searches.DeleteLabelValues(key.index, key.status)
		}
	}
	b.searchSeconds.forget(func(index, _ string) bool { return gone(index) })
	b.mu.Unlock()
	for _, c := range []*indexCounters{&b.rejected, &b.ambiguous, &b.writeRejected, &b.flushes, &b.partial} {
		c.forget(gone)
	}
}

// indexCounters are counters whose first label is an index, with those that each index has.
type indexCounters struct {
	vec  *prometheus.CounterVec
	more int // labels beside the index, at most two

	mu sync.Mutex
	by map[string]map[[2]string]prometheus.Counter // by index, then by the other labels
}

func (c *indexCounters) inc(index string, more ...string) {
	var key [2]string
	copy(key[:], more)
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.by[index]
	if of == nil {
		of = map[[2]string]prometheus.Counter{}
		c.by[index] = of
	}
	one := of[key]
	if one == nil {
		one = c.vec.WithLabelValues(append([]string{index}, more...)...)
		of[key] = one
	}
	one.Inc()
}

func (c *indexCounters) forget(gone func(index string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for index, of := range c.by {
		if !gone(index) {
			continue
		}
		delete(c.by, index)
		for key := range of {
			c.vec.DeleteLabelValues(append([]string{index}, key[:c.more]...)...)
		}
	}
}

// SummaBackend counts the calls to one node. Its counters are resolved once.
type SummaBackend struct {
	b  *SummaBroker
	id string

	mu    sync.RWMutex
	calls map[string]*backendCalls // by rpc
	gone  bool                     // nothing is counted any more
}

type backendCalls struct {
	seconds *summary
	ok      prometheus.Counter
}

// Backend returns the counters of a node.
func (b *SummaBroker) Backend(id string) *SummaBackend {
	return &SummaBackend{b: b, id: id, calls: map[string]*backendCalls{}}
}

// Called counts a call of the node with its code, as in "ok".
func (n *SummaBackend) Called(rpc, code string, took time.Duration) {
	n.mu.RLock()
	if c := n.calls[rpc]; c != nil && !n.gone {
		n.calledLocked(c, rpc, code, took)
		n.mu.RUnlock()
		return
	}
	n.mu.RUnlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone {
		return
	}
	if n.calls[rpc] == nil {
		n.calls[rpc] = &backendCalls{n.b.backendSeconds.of(n.id, rpc), n.b.backendCalls.WithLabelValues(n.id, rpc, "ok")}
	}
	n.calledLocked(n.calls[rpc], rpc, code, took)
}

func (n *SummaBackend) calledLocked(c *backendCalls, rpc, code string, took time.Duration) {
	c.seconds.observe(took)
	if code == "ok" {
		c.ok.Inc()
	} else {
		n.b.backendCalls.WithLabelValues(n.id, rpc, code).Inc()
	}
}

// Polled counts a look at the node with its code. It is none of the calls that Called counts.
func (n *SummaBackend) Polled(code string) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if !n.gone {
		n.b.polls.WithLabelValues(n.id, code).Inc()
	}
}

// Stale counts a read that went to the node while it was suspect.
func (n *SummaBackend) Stale() {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if !n.gone {
		n.b.stale.WithLabelValues(n.id).Inc()
	}
}

// Retire ends the counting. What was counted stays: the node is there again under another address.
func (n *SummaBackend) Retire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = true
}

// Forget drops what is counted of the node, which is gone, and ends the counting.
func (n *SummaBackend) Forget() {
	n.Retire()
	labels := prometheus.Labels{"backend": n.id}
	n.b.backendSeconds.forget(func(id, _ string) bool { return id == n.id })
	n.b.backendCalls.DeletePartialMatch(labels)
	n.b.stale.DeletePartialMatch(labels)
	n.b.polls.DeletePartialMatch(labels)
}

// FleetSample is what is known of one node.
type FleetSample struct {
	Backend, Shard string
	Healthy        float64 // 1, 0.5 or 0
	MapAge         float64 // seconds; below 0: it never told
}

// FleetCounts are the numbers of nodes by state, and of those that discovery found and lost.
type FleetCounts struct {
	Healthy, Suspect, Evicted, Unready int
	Added, Removed                     uint64
}

// WatchFleet publishes what is known of the nodes behind the broker.
func (b *SummaBroker) WatchFleet(counts func() FleetCounts, each func(emit func(FleetSample))) {
	b.reg.MustRegister(&fleetCollector{
		healthy:  prometheus.NewDesc("summa_broker_backend_healthy", "Health of a node: 1 healthy, 0.5 suspect, 0 evicted.", []string{"backend", "shard"}, nil),
		age:      prometheus.NewDesc("summa_broker_index_map_age_seconds", "Time since a node told of its indexes.", []string{"backend"}, nil),
		backends: prometheus.NewDesc("summa_broker_backends", "Nodes by state.", []string{"state"}, nil),
		events:   prometheus.NewDesc("summa_broker_discovery_events_total", "Nodes that discovery found and lost.", []string{"type"}, nil),
		counts:   counts, each: each,
	})
}

type fleetCollector struct {
	healthy, age, backends, events *prometheus.Desc
	counts                         func() FleetCounts
	each                           func(emit func(FleetSample))
}

// Describe implements prometheus.Collector.
func (c *fleetCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.healthy, c.age, c.backends, c.events} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *fleetCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	n := c.counts()
	gauge(c.backends, float64(n.Healthy), "healthy")
	gauge(c.backends, float64(n.Suspect), "suspect")
	gauge(c.backends, float64(n.Evicted), "evicted")
	gauge(c.backends, float64(n.Unready), "unready")
	ch <- prometheus.MustNewConstMetric(c.events, prometheus.CounterValue, float64(n.Added), "added")
	ch <- prometheus.MustNewConstMetric(c.events, prometheus.CounterValue, float64(n.Removed), "removed")
	c.each(func(s FleetSample) {
		gauge(c.healthy, s.Healthy, s.Backend, s.Shard)
		if s.MapAge >= 0 {
			gauge(c.age, s.MapAge, s.Backend)
		}
	})
}
