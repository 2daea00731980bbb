package node

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/weft-search/weft/internal/node/summanode"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/vfs"
)

// Config says where a node lives, where it listens and how much it may use. The zero value of every field but DataDir means its
// default.
type Config struct {
	// DataDir is the folder that the node owns alone: identity, lock, catalog and indexes. It is made if absent.
	DataDir string
	// HTTPAddr is the address to listen on, host:port; port 0 picks a free one. Empty: the node does not listen, and its
	// calls are reached through Handler.
	HTTPAddr string
	// GRPCAddr and ShardAddr are the addresses of shard gRPC and of framed JSON, as HTTPAddr. Empty: not served.
	GRPCAddr, ShardAddr string
	// SummaAddr is the address of the services of Summa, as HTTPAddr. Empty: not served.
	SummaAddr string
	// MetricsAddr is the address of a listener for /metrics alone, as HTTPAddr. Empty: there is none.
	MetricsAddr string
	// Summa bounds what is asked over the services of Summa.
	Summa summanode.Limits
	// SummaTokenizers is the folder of the tokenizers that texts are searched for with in sparse vectors. Empty: there are none.
	SummaTokenizers string
	// FS is the file system of the data folder. Nil: the operating system's.
	FS vfs.FS
	// Version is shown by /healthz and the metrics.
	Version string
	// Log receives what happens. Nil: nothing is logged.
	Log *slog.Logger
	// Metrics is where the node counts. Nil: a registry of its own.
	Metrics *obs.Metrics
	// SlowSearch is the time from which a search is logged as slow, without its text. Negative: never.
	SlowSearch time.Duration
	// LameDuck is how long Close goes on as before, but for /readyz, which answers 503: whoever sends traffic here learns of the end
	// while nothing fails yet. Zero: not at all.
	LameDuck time.Duration

	Limits Limits
	Engine Engine
}

// Engine is what every index of the node is given.
type Engine struct {
	// MemtableBytes is the memory at which an index writes a segment.
	MemtableBytes int64
	// IdleFlush is the time without a write after which an index writes what its memtable holds to a segment. Negative: never.
	IdleFlush time.Duration
	// AllMemtableBytes is the memory of the memtables of all indexes together at which the largest is written out early; a
	// quarter above it, writes are refused.
	AllMemtableBytes int64
	// MergeBytesPerSec limits what background merging writes, for each index. Negative = no limit.
	MergeBytesPerSec int64
	// MaxSegmentDocs bounds the documents of a segment that merging makes of several, also where a caller asks for it; 0: it does not.
	MaxSegmentDocs int64
	// FilterCacheBytes bounds the sets of documents that recurring filters find, kept for all indexes together. Negative = none are
	// kept.
	FilterCacheBytes int64
	// OpenAtOnce bounds the indexes that are recovered at the same time at start.
	OpenAtOnce int
}

// Limits bound what requests may take. A request that would go over one is refused before any effect.
type Limits struct {
	Indexes int // indexes that may exist

	Searches     int           // searches that run at once
	SearchQueue  int           // searches that wait for a place
	Writes       int           // writes (single documents, deletes, index changes) at once
	WriteQueue   int           // writes that wait
	Bulks        int           // bulk loads at once, as far as RequestBytes has room for them; each holds its place until its stream ends
	BulkQueue    int           // bulk loads that wait
	Scans        int           // lists of ids and exports for other members of a cluster at once
	ScanQueue    int           // of them, those that wait
	QueueWait    time.Duration // longest wait for a place; a request's own timeout may end it earlier
	RequestBytes int64         // memory for the bodies of all requests under way; as much again for taking long documents apart

	DocumentBytes int64 // one document, as JSON
	SearchBytes   int64 // body of a search
	SchemaBytes   int64 // body of PUT /indexes
	ReplyBytes    int64 // sources in one reply to a search; and again its facets and aggregations
	AggBytes      int64 // memory in which a search makes its facets, and again its aggregations
	FrameBytes    int64 // one frame of framed JSON
	ShardConns    int   // connections of framed JSON, and again of shard gRPC
	ShardCalls    int   // calls of shard gRPC under way; of framed JSON there is one on each connection
	URLBytes      int   // request target
	HeaderBytes   int   // all headers of a request; above twice this and URLBytes the connection ends without a problem document
	BulkErrors    int   // rejected documents listed in one bulk reply
	BulkIDs       int   // distinct ids a bulk remembers to count duplicates exactly

	Hits          int           // offset + limit
	SearchTimeout time.Duration // longest timeout_ms that is accepted
	BulkStall     time.Duration // longest wait for the next bytes of a body, and for room in a full memtable
	ReplyTime     time.Duration // longest time to take a reply off the socket; a caller that takes nothing for 10 s is cut off earlier
	IdleTime      time.Duration // longest time a connection is kept between requests
}

// Format is the version of the data folder's layout that this program writes.
//
//	1: node.json, LOCK, catalog.json, indexes/
//	2: catalog.json may say when writes to an index show. It is written only where one does so on commit.
const Format = 2

// ensureDefaults returns a copy with every zero value replaced.
func (c Config) ensureDefaults() Config {
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
	cpus := runtime.GOMAXPROCS(0)
	setDefault(&c.Engine.IdleFlush, 30*time.Second)
	setDefault(&c.Engine.AllMemtableBytes, 1<<30)
	setDefault(&c.Engine.FilterCacheBytes, 64<<20)
	setDefault(&c.Engine.OpenAtOnce, max(2, cpus))

	l := &c.Limits
	setDefault(&l.Indexes, 1024)
	// A search keeps one CPU busy; a few more than there are CPUs fill the gaps of those that wait for the disk.
	setDefault(&l.Searches, 4*cpus)
	setDefault(&l.SearchQueue, 256)
	// Writers wait for an fsync, not for a CPU, and share it: more of them at once cost less each.
	setDefault(&l.Writes, 64)
	setDefault(&l.WriteQueue, 256)
	setDefault(&l.Bulks, 8)
	setDefault(&l.BulkQueue, 32)
	setDefault(&l.Scans, 8)
	setDefault(&l.ScanQueue, 32)
	setDefault(&l.QueueWait, 5*time.Second)
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
	c.Summa = c.Summa.WithDefaults(cpus)
	c.Summa.Documents.DocumentBytes = int(l.DocumentBytes)
	return c
}

// setDefault sets *p to d if it is zero.
func setDefault[T comparable](p *T, d T) {
	var zero T
	if *p == zero {
		*p = d
	}
}

// validate returns every complaint about a config with its defaults set, joined.
func (c Config) validate() error {
	var errs []error
	if c.DataDir == "" {
		errs = append(errs, errors.New("data folder: empty path"))
	}
	l := c.Limits
	for _, v := range []struct {
		name string
		n    int64
	}{
		{"indexes", int64(l.Indexes)},
		{"searches", int64(l.Searches)},
		{"search queue", int64(l.SearchQueue)},
		{"writes", int64(l.Writes)},
		{"write queue", int64(l.WriteQueue)},
		{"bulks", int64(l.Bulks)},
		{"bulk queue", int64(l.BulkQueue)},
		{"scans", int64(l.Scans)},
		{"scan queue", int64(l.ScanQueue)},
		{"queue wait", int64(l.QueueWait)},
		{"document bytes", l.DocumentBytes},
		{"search bytes", l.SearchBytes},
		{"schema bytes", l.SchemaBytes},
		{"reply bytes", l.ReplyBytes},
		{"aggregation bytes", l.AggBytes},
		{"frame bytes", l.FrameBytes},
		{"shard connections", int64(l.ShardConns)},
		{"shard calls", int64(l.ShardCalls)},
		{"url bytes", int64(l.URLBytes)},
		{"header bytes", int64(l.HeaderBytes)},
		{"bulk errors", int64(l.BulkErrors)},
		{"bulk ids", int64(l.BulkIDs)},
		{"hits", int64(l.Hits)},
		{"search timeout", int64(l.SearchTimeout)},
		{"bulk stall", int64(l.BulkStall)},
		{"reply time", int64(l.ReplyTime)},
		{"idle time", int64(l.IdleTime)},
		{"lame duck", int64(c.LameDuck)},
		{"memtable bytes", c.Engine.MemtableBytes},
		{"all memtable bytes", c.Engine.AllMemtableBytes},
		{"open at once", int64(c.Engine.OpenAtOnce)},
		{"segment documents", c.Engine.MaxSegmentDocs},
	} {
		if v.n < 0 {
			errs = append(errs, fmt.Errorf("limit %s: %d is negative", v.name, v.n))
		}
	}
	if c.Engine.MemtableBytes > shard.MaxMemtableBytes {
		errs = append(errs, fmt.Errorf("memtable bytes: %d is above %d", c.Engine.MemtableBytes, int64(shard.MaxMemtableBytes)))
	}
	if least := bulkCharge + longLineCharge(l); l.RequestBytes < least {
		errs = append(errs, fmt.Errorf("limit request bytes: %d is below the %d that one bulk load needs", l.RequestBytes, least))
	}
	return errors.Join(errs...)
}

// A bulk load is read and applied in chunks.
const (
	bulkChunkBytes = 4 << 20 // raw documents in a chunk
	bulkChunkDocs  = 4096
	// bulkCharge is the memory that one bulk load is charged from its beginning: the chunk, the typed documents made of it,
	// which are about as large again, the record they become in the log, and the reader with its ids. Lines of up to front.LongLine bytes
	// fit in; a longer one is charged for itself.
	bulkCharge = 4 * bulkChunkBytes
)

// replyRoom is how much memory the replies that are being sent take together, in Limits.ReplyBytes.
const replyRoom = 2

// aggRoom is how much memory facets and aggregations of all searches take together, in Limits.AggBytes. When it is full, one search
// at a time goes on beyond it.
const aggRoom = 4

// bulkPlaces is how many bulk loads run at once: the configured number, or as many as leave room for the long line of one of
// them. Without that room loads could wait for each other.
func bulkPlaces(l Limits) int64 {
	return min(int64(l.Bulks), (l.RequestBytes-longLineCharge(l))/bulkCharge)
}

const (
	// analysisFactor is the memory that a long document takes while it is typed, analysed, logged and inserted, in lengths of its
	// JSON. Measured as the growth of the process: 20 for common words, 25 for words of one letter, 55 when each word is another
	// and the process had nothing to collect before.
	analysisFactor = 48
	// longDocument is the length above which a document is charged for that.
	longDocument = 64 << 10
)

// longLineCharge is what a bulk load is charged for a line whose length is not known yet.
func longLineCharge(l Limits) int64 { return 2 * l.DocumentBytes }
