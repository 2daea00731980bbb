package obs

import (
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Summa holds the metrics of the Summa services: those of every call, and, under the names that a Summa server has, those of searches.
type Summa struct {
	reg      *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	cut      prometheus.Counter

	searchSeconds *summaries
	searches      *prometheus.CounterVec
	rejected      prometheus.Counter

	mu      sync.Mutex
	indexes map[string]bool // that searches are counted of
	sweep   int             // how many of these there are when those that are gone are looked for
	each    func(emit func(IndexSample))
}

// leastSweep is how many indexes are counted before anybody looks for those that are gone.
const leastSweep = 64

// Summa makes the metrics of the Summa services with the methods of these names. Call it once.
func (m *Metrics) Summa(methods []string) *Summa {
	s := &Summa{
		reg: m.reg, indexes: map[string]bool{}, sweep: leastSweep,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_summa_calls_total", Help: "Calls of the Summa services by call and gRPC code.",
		}, []string{"call", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weft_summa_call_seconds", Help: "Time from the arrival of a call to its answer.", Buckets: latencyBuckets,
		}, []string{"call"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weft_summa_calls_in_flight", Help: "Calls of the Summa services being served.",
		}, []string{"call"}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_summa_connections_cut_total", Help: "Connections of the Summa services that were cut off because a reply was not taken.",
		}),
		searchSeconds: newSummaries("summa_search_duration_seconds", "Time of searches over Summa.", "index", "status"),
		searches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "summa_search_requests_total", Help: "Searches over Summa by index, which is unknown until it is opened, and status.",
		}, []string{"index", "status"}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "summa_search_admission_rejected_total", Help: "Searches over Summa that found no place.", ConstLabels: prometheus.Labels{"index": "unknown"},
		}),
	}
	m.reg.MustRegister(s.calls, s.seconds, s.inFlight, s.cut, s.searchSeconds, s.searches, s.rejected)
	for _, name := range methods { // so that they are there before the first call
		s.inFlight.WithLabelValues(name)
		s.seconds.WithLabelValues(name)
		s.calls.WithLabelValues(name, "ok")
	}
	return s
}

// Watch publishes the number of connections, and the bytes of replies that are not read yet.
func (s *Summa) Watch(connections, messages func() float64) {
	s.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weft_summa_message_bytes", Help: "Buffers of replies that are not read yet."}, messages))
	s.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weft_summa_connections", Help: "Connections of the Summa services."}, connections))
}

// SummaCall is one call under way.
type SummaCall struct {
	s     *Summa
	name  string
	start time.Time
}

// Begin counts a call in; the returned SummaCall must be ended. name is that of a method.
func (s *Summa) Begin(name string) SummaCall {
	s.inFlight.WithLabelValues(name).Inc()
	return SummaCall{s, name, time.Now()}
}

// End counts the call out with its code.
func (c SummaCall) End(code string) {
	c.s.inFlight.WithLabelValues(c.name).Dec()
	c.s.seconds.WithLabelValues(c.name).Observe(time.Since(c.start).Seconds())
	c.s.calls.WithLabelValues(c.name, code).Inc()
}

// Cut counts a connection that was cut off because a reply was not taken.
func (s *Summa) Cut() { s.cut.Inc() }

// Searched counts a search of an index that exists, or of "unknown".
func (s *Summa) Searched(index string, ok bool, took time.Duration) {
	status := "ok"
	if !ok {
		status = "error"
	}
	s.mu.Lock()
	full := false
	if !s.indexes[index] {
		full = len(s.indexes) >= s.sweep && s.each != nil
		s.indexes[strings.Clone(index)] = true
	}
	s.mu.Unlock()
	if full {
		s.look()
	}
	s.searches.WithLabelValues(index, status).Inc()
	s.searchSeconds.of(index, status).observe(took)
}

// look drops what is counted of indexes that are gone. It is done at each scrape and, for where nobody scrapes, whenever twice as many are counted
// as there were.
func (s *Summa) look() {
	there := map[string]bool{}
	s.each(func(i IndexSample) { there[i.Index] = true })
	s.keep(there)
}

// keep drops what is counted of indexes that are not there any more: their names may be any number.
func (s *Summa) keep(there map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for index := range s.indexes {
		if !there[index] && index != UnknownIndex {
			delete(s.indexes, index)
			s.searches.DeletePartialMatch(prometheus.Labels{"index": index})
		}
	}
	s.searchSeconds.forget(func(index, _ string) bool { return !there[index] && index != UnknownIndex })
	s.sweep = max(leastSweep, 2*len(s.indexes))
}

// WatchMemory publishes, under the names of a Summa server, the memory of the process as the system counts it, and for each index the
// memory that its new documents take. What is counted of indexes that each does not tell of is forgotten then.
func (s *Summa) WatchMemory(each func(emit func(IndexSample))) {
	s.mu.Lock()
	s.each = each
	s.mu.Unlock()
	s.reg.MustRegister(&summaMemory{
		process:   prometheus.NewDesc("summa_memory_process_bytes", "Memory of the process by kind, where the system tells.", []string{"kind"}, nil),
		allocator: prometheus.NewDesc("summa_memory_allocator_bytes", "Memory of the allocator, which is Go's, by kind.", []string{"kind"}, nil),
		index:     prometheus.NewDesc("summa_index_memory_bytes", "Memory of an index by kind.", []string{"index", "kind"}, nil),
		each:      each, keep: s.keep,
	})
}

type summaMemory struct {
	keep                      func(there map[string]bool)
	process, allocator, index *prometheus.Desc
	each                      func(emit func(IndexSample))
}

// Describe implements prometheus.Collector.
func (c *summaMemory) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.process
	ch <- c.allocator
	ch <- c.index
}

// Collect implements prometheus.Collector.
func (c *summaMemory) Collect(ch chan<- prometheus.Metric) {
	for kind, bytes := range processMemory("/proc/self/status") {
		ch <- prometheus.MustNewConstMetric(c.process, prometheus.GaugeValue, bytes, kind)
	}
	for kind, bytes := range allocatorMemory() {
		ch <- prometheus.MustNewConstMetric(c.allocator, prometheus.GaugeValue, bytes, kind)
	}
	there := map[string]bool{}
	c.each(func(s IndexSample) {
		there[s.Index] = true
		ch <- prometheus.MustNewConstMetric(c.index, prometheus.GaugeValue, float64(s.MemtableBytes), s.Index, "indexing_buffer")
	})
	c.keep(there)
}

// allocatorMemory is the memory of Go's allocator by the names that the kinds have of the allocator of a Summa server: what is allocated,
// the pages that hold it, what is mapped for the heap, what the allocator needs for itself, what is resident in all, and what was given
// back to the system and is kept as addresses only.
func allocatorMemory() map[string]float64 {
	const class = "/memory/classes/"
	names := []string{
		"heap/objects:bytes", "heap/unused:bytes", "heap/free:bytes", "heap/stacks:bytes", "heap/released:bytes", "total:bytes",
		"metadata/mcache/free:bytes", "metadata/mcache/inuse:bytes", "metadata/mspan/free:bytes", "metadata/mspan/inuse:bytes", "metadata/other:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for i, n := range names {
		samples[i].Name = class + n
	}
	metrics.Read(samples)
	at := map[string]float64{}
	meta := 0.0
	for i, s := range samples {
		if s.Value.Kind() != metrics.KindUint64 {
			return nil
		}
		v := float64(s.Value.Uint64())
		at[names[i]] = v
		if strings.HasPrefix(names[i], "metadata/") {
			meta += v
		}
	}
	active := at["heap/objects:bytes"] + at["heap/unused:bytes"]
	return map[string]float64{
		"allocated": at["heap/objects:bytes"], "active": active, "mapped": active + at["heap/free:bytes"] + at["heap/stacks:bytes"],
		"metadata": meta, "resident": at["total:bytes"] - at["heap/released:bytes"], "retained": at["heap/released:bytes"],
	}
}

// processMemory reads the kinds of memory out of the status of a process; nothing where there is none.
func processMemory(path string) map[string]float64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	out := map[string]float64{}
	for line := range strings.SplitSeq(string(b), "\n") {
		name, rest, _ := strings.Cut(line, ":")
		kind := map[string]string{"RssAnon": "rss_anon", "RssFile": "rss_file", "VmLck": "locked"}[name]
		if kind == "" {
			continue
		}
		if kb, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 53); err == nil {
			out[kind] = float64(kb) * 1024
		}
	}
	return out
}

// Rejected counts a search that found no place.
func (s *Summa) Rejected() { s.rejected.Inc() }
