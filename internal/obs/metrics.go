package obs

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// latencyBuckets are in seconds: a search takes from tens of microseconds to its deadline.
var latencyBuckets = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Metrics is the registry of one role with the metrics of its requests.
type Metrics struct {
	reg      *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec

	shardCalls    *prometheus.CounterVec
	shardSeconds  *prometheus.HistogramVec
	shardInFlight *prometheus.GaugeVec

	refused *prometheus.CounterVec
	stages  *prometheus.HistogramVec
	docs    *prometheus.CounterVec

	// Panics counts requests that ended in a recovered panic.
	Panics Counter
	// SlowQueries counts searches over the slow-query threshold, logged or not.
	SlowQueries Counter
	// Partial counts searches answered in part.
	Partial Counter
}

// Counter only grows.
type Counter struct{ c prometheus.Counter }

// Inc adds one.
func (c Counter) Inc() { c.c.Inc() }

// Add adds n.
func (c Counter) Add(n uint64) { c.c.Add(float64(n)) }

// Histogram counts durations.
type Histogram struct{ h prometheus.Observer }

// Observe counts one duration.
func (h Histogram) Observe(d time.Duration) { h.h.Observe(d.Seconds()) }

// NewMetrics returns a registry with the metrics of the Go runtime, the process and a role's requests.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		reg: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_http_requests_total", Help: "HTTP requests by route and status code.",
		}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weft_http_request_seconds", Help: "Time from the first byte of a request to the last of its reply.", Buckets: latencyBuckets,
		}, []string{"route"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weft_http_requests_in_flight", Help: "HTTP requests being served.",
		}, []string{"route"}),
		shardCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_shard_calls_total", Help: "Calls of the shard protocols by call and status code.",
		}, []string{"call", "code"}),
		shardSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weft_shard_call_seconds", Help: "Time from the arrival of a call to its answer.", Buckets: latencyBuckets,
		}, []string{"call"}),
		shardInFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weft_shard_calls_in_flight", Help: "Calls of the shard protocols being served.",
		}, []string{"call"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_refused_total", Help: "Requests refused before any effect, by cause.",
		}, []string{"cause"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weft_search_stage_seconds", Help: "Time that searches spent in each stage.", Buckets: latencyBuckets,
		}, []string{"stage"}),
		docs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_documents_total", Help: "Documents of write requests by result.",
		}, []string{"result"}),
	}
	m.Panics = m.counter("weft_panics_total", "Requests that ended in a recovered panic.")
	m.SlowQueries = m.counter("weft_slow_queries_total", "Searches slower than the slow-query threshold.")
	m.Partial = m.counter("weft_partial_answers_total", "Searches answered in part.")
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weft_build_info", Help: "1, with the version of the program.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.reg.MustRegister(m.requests, m.seconds, m.inFlight, m.shardCalls, m.shardSeconds, m.shardInFlight, m.refused, m.stages,
		m.docs, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) counter(name, help string) Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.reg.MustRegister(c)
	return Counter{c}
}

// Handler serves the metrics in the Prometheus text formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Refused returns the counter of refusals for a cause. Call it once for each cause, at start.
func (m *Metrics) Refused(cause string) Counter { return Counter{m.refused.WithLabelValues(cause)} }

// Stage returns the histogram of a stage of search. Call it once for each stage, at start.
func (m *Metrics) Stage(name string) Histogram { return Histogram{m.stages.WithLabelValues(name)} }

// Documents returns the counter of written documents for a result (indexed, rejected, deleted). Call it once for each, at start.
func (m *Metrics) Documents(result string) Counter { return Counter{m.docs.WithLabelValues(result)} }

// GaugeFunc publishes a value that is read at each scrape. It panics when the name was published before, which is a bug.
func (m *Metrics) GaugeFunc(name, help string, read func() float64) {
	m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// CounterFunc publishes a count that only grows and is read at each scrape. It panics when the name was published before, which is a bug.
func (m *Metrics) CounterFunc(name, help string, read func() float64) {
	m.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

// Route holds the metrics of one route, resolved once.
type Route struct {
	name     string
	requests *prometheus.CounterVec
	seconds  prometheus.Observer
	inFlight prometheus.Gauge
	codes    [600]atomic.Pointer[prometheus.Counter] // by status code, filled at first use
}

// Route resolves the metrics of a route. Call it once for each route, at start.
func (m *Metrics) Route(name string) *Route {
	return &Route{name: name, requests: m.requests, seconds: m.seconds.WithLabelValues(name), inFlight: m.inFlight.WithLabelValues(name)}
}

// ShardCall returns the metrics of a call of the shard protocols. Call it once for each, at start.
func (m *Metrics) ShardCall(name string) *Route {
	return &Route{name: name, requests: m.shardCalls, seconds: m.shardSeconds.WithLabelValues(name), inFlight: m.shardInFlight.WithLabelValues(name)}
}

// Begin counts a request in; the returned Observation must be ended.
func (r *Route) Begin() Observation {
	r.inFlight.Inc()
	return Observation{r, time.Now()}
}

// Observation is one request under way.
type Observation struct {
	route *Route
	start time.Time
}

// Start is when the request came in.
func (o Observation) Start() time.Time { return o.start }

// End counts the request out with its status code (499 for a caller that left) and returns how long it took.
func (o Observation) End(code int) time.Duration {
	d := time.Since(o.start)
	o.route.inFlight.Dec()
	o.route.seconds.Observe(d.Seconds())
	if code < 100 || code >= len(o.route.codes) {
		code = http.StatusInternalServerError
	}
	slot := &o.route.codes[code]
	c := slot.Load()
	if c == nil {
		made := o.route.requests.WithLabelValues(o.route.name, strconv.Itoa(code))
		c = &made
		slot.Store(c)
	}
	(*c).Inc()
	return d
}
