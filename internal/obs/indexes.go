package obs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// IndexSample is the state of one index at a scrape.
type IndexSample struct {
	Index    string // an index that exists
	ReadOnly bool

	Docs, DeletedDocs, Segments uint64
	SegmentBytes                uint64
	MemtableDocs, MemtableBytes uint64
	LogBytes                    uint64

	Staged                               uint64 // of the log, that wait for a commit
	LogRecords                           uint64 // the number of the last one, from 1 over the life of the index
	Flushes, FlushedBytes, FlushFailures uint64 // these and what follows count since the index was opened
	Merges, MergedBytes, MergeFailures   uint64
	WriteRefusals                        uint64
	LogAppends, LogSyncs                 uint64 // records appended, and the fsyncs that made them durable
	LogSyncTime, FlushTime, MergeTime    time.Duration
}

type indexMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*IndexSample) float64
}

type indexCollector struct {
	metrics []indexMetric
	each    func(emit func(IndexSample))
}

// WatchIndexes publishes the samples that each emits, read at every scrape, labelled by index.
func (m *Metrics) WatchIndexes(each func(emit func(IndexSample))) {
	c := &indexCollector{each: each}
	add := func(kind prometheus.ValueType, name, help string, read func(*IndexSample) float64) {
		c.metrics = append(c.metrics, indexMetric{prometheus.NewDesc(name, help, []string{"index"}, nil), kind, read})
	}
	gauge, count := prometheus.GaugeValue, prometheus.CounterValue
	add(gauge, "weft_index_docs", "Live documents.", func(s *IndexSample) float64 { return float64(s.Docs) })
	add(gauge, "weft_index_deleted_docs", "Deleted or replaced documents that segments still hold.", func(s *IndexSample) float64 { return float64(s.DeletedDocs) })
	add(gauge, "weft_index_segments", "Segments.", func(s *IndexSample) float64 { return float64(s.Segments) })
	add(gauge, "weft_index_segment_bytes", "Bytes of segment files.", func(s *IndexSample) float64 { return float64(s.SegmentBytes) })
	add(gauge, "weft_memtable_docs", "Documents in memory, not yet in a segment.", func(s *IndexSample) float64 { return float64(s.MemtableDocs) })
	add(gauge, "weft_memtable_bytes", "Memory that memtables hold.", func(s *IndexSample) float64 { return float64(s.MemtableBytes) })
	add(gauge, "weft_log_bytes", "Bytes of the write log that a restart would replay.", func(s *IndexSample) float64 { return float64(s.LogBytes) })
	add(gauge, "weft_index_staged_records", "Records of the write log that show when the index is committed.", func(s *IndexSample) float64 { return float64(s.Staged) })
	add(gauge, "weft_index_read_only", "1 when writes are refused after a failed write to disk.", func(s *IndexSample) float64 {
		if s.ReadOnly {
			return 1
		}
		return 0
	})
	add(count, "weft_log_records_total", "Number of the last record of the write log, also over restarts.", func(s *IndexSample) float64 { return float64(s.LogRecords) })
	add(count, "weft_log_appends_total", "Records appended to the write log.", func(s *IndexSample) float64 { return float64(s.LogAppends) })
	add(count, "weft_log_fsyncs_total", "Fsyncs of the write log; one makes all records of its group durable.", func(s *IndexSample) float64 { return float64(s.LogSyncs) })
	add(count, "weft_log_fsync_seconds_total", "Time spent in fsyncs of the write log.", func(s *IndexSample) float64 { return s.LogSyncTime.Seconds() })
	add(count, "weft_flush_seconds_total", "Time spent in flushes that ended well.", func(s *IndexSample) float64 { return s.FlushTime.Seconds() })
	add(count, "weft_merge_seconds_total", "Time spent in merges that ended well, waits for the rate limit included.", func(s *IndexSample) float64 { return s.MergeTime.Seconds() })
	add(count, "weft_flushes_total", "Memtables written out as segments.", func(s *IndexSample) float64 { return float64(s.Flushes) })
	add(count, "weft_flush_failures_total", "Attempts to write out a memtable that failed.", func(s *IndexSample) float64 { return float64(s.FlushFailures) })
	add(count, "weft_flush_bytes_total", "Bytes of segments that flushes wrote.", func(s *IndexSample) float64 { return float64(s.FlushedBytes) })
	add(count, "weft_merges_total", "Merges of segments.", func(s *IndexSample) float64 { return float64(s.Merges) })
	add(count, "weft_merge_failures_total", "Merges that failed.", func(s *IndexSample) float64 { return float64(s.MergeFailures) })
	add(count, "weft_merge_bytes_total", "Bytes of segments that merges wrote.", func(s *IndexSample) float64 { return float64(s.MergedBytes) })
	add(count, "weft_write_refusals_total", "Batches that an index refused before any effect for want of memory.", func(s *IndexSample) float64 { return float64(s.WriteRefusals) })
	m.reg.MustRegister(c)
}

// Describe implements prometheus.Collector.
func (c *indexCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *indexCollector) Collect(ch chan<- prometheus.Metric) {
	c.each(func(s IndexSample) {
		for _, m := range c.metrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.read(&s), s.Index)
		}
	})
}
