// Package leaf is the shard protocol as Go types: what a coordinator asks of a node that holds shards, and what it gets back. It
// knows no wire. The node itself implements Leaf in process; packages rpc (shard gRPC) and framed (framed JSON) carry the same
// calls over a network, each with a client that is a Leaf and a server that serves one. Package leaftest holds the one suite that
// all of them pass.
//
// A Leaf is safe for concurrent use. Every call honours its context: when that ends, the work behind the call stops within
// milliseconds, on whatever machine it is, and the call returns the cause. A call that has to wait for a place calls serve.Begun
// when it has got it.
//
// Requests and replies are plain values; neither side changes one that it has handed over. What a reply says holds for one
// snapshot of the index, which the reply names.
package leaf

import (
	"context"
	"io"

	"github.com/weft-search/weft/internal/api"
)

// Leaf is one node with the shards that it holds: one shard of each of its indexes.
//
// Errors are *api.Problem where the node answered with one, *TransportError where it could not be reached or its reply could not be
// read, and otherwise the cause of the context's end. The end of the context of a write that may have been applied is a *TransportError
// too, with MaybeApplied and that cause, so that errors.Is finds it. OutcomeOf and ClassOf tell what to make of them.
type Leaf interface {
	// Ping tells whether the node answers.
	Ping(ctx context.Context) (*PingReply, error)
	// Info describes an index.
	Info(ctx context.Context, req *InfoRequest) (*InfoReply, error)
	// Docs counts the live documents of an index.
	Docs(ctx context.Context, req *DocsRequest) (*DocsReply, error)

	// Search returns the best documents in the order of exec.CompareHits, so that the answers of several shards merge into that of one.
	Search(ctx context.Context, req *SearchRequest) (*SearchReply, error)
	// Stats returns the integer statistics of terms, or of all terms that a query scores, to be summed over shards.
	Stats(ctx context.Context, req *StatsRequest) (*StatsReply, error)
	// Aggregate returns partial states of aggregations, to be merged.
	Aggregate(ctx context.Context, req *AggregateRequest) (*AggregateReply, error)
	// KNN returns the nearest documents, similarity descending, then id ascending.
	KNN(ctx context.Context, req *KNNRequest) (*KNNReply, error)

	// IDs gives the ids of the live documents in ascending order to page, in slices of at most MaxIDPage ids. The slice is page's to
	// keep. An error of page ends the call and is returned. The sender is slowed down to the pace of page.
	IDs(ctx context.Context, req *IDsRequest, page func(ids []string) error) (*IDsReply, error)
	// Export gives documents, in the shape that Index takes, to each in the order of req.IDs. An error of each ends the call and is
	// returned. The sender is slowed down to the pace of each.
	Export(ctx context.Context, req *ExportRequest, each func(doc ExportedDoc) error) (*ExportReply, error)
	// Has tells which of some ids the index does not hold.
	Has(ctx context.Context, req *HasRequest) (*HasReply, error)

	// DeleteMany deletes documents, as one batch. It is durable and visible when it returns.
	DeleteMany(ctx context.Context, req *DeleteRequest) (*DeleteReply, error)
	// Index writes one document. It is durable and visible when it returns.
	Index(ctx context.Context, req *IndexRequest) (*IndexReply, error)
	// Bulk writes the documents of a stream, one JSON object on each line, in order. The stream is read at the pace at which the
	// documents can be applied; it is not closed, and not read any more when Bulk has returned. A document that is refused is listed in
	// the reply and is no error; an error means that nothing was applied, or, of a *TransportError with MaybeApplied, that some
	// documents may have been.
	Bulk(ctx context.Context, req *BulkRequest, body io.Reader) (*BulkReply, error)

	// Close lets go of what the leaf holds; calls under way and later ones fail with an error that matches ErrClosed. It does not end
	// the node.
	Close() error
}

// Limits of requests, the same on every wire.
const (
	MaxIDPage   = 1_000   // ids in one page of IDs
	MaxIDs      = 10_000  // ids of an Export, Has or DeleteMany
	MaxTerms    = 10_000  // terms of a Stats
	MaxValues   = 16      // fields of AggregateRequest.Values
	MaxRawCount = 1 << 20 // raw values of one AggregateReply

	// Statistics that a Search or an Aggregate installs. What a query scores on one shard always fits: exec.MaxTerms of its text and
	// exec.MaxQueryPrefixTerms of its prefixes. So does the sum over shards where those hold much the same words; a query of many
	// prefixes over shards with little in common may be refused.
	MaxStatsTerms  = 1 << 16 // terms, over all fields
	MaxStatsFields = 1 << 12 // fields
)

// Snapshot names the state of an index that a reply speaks of. Equal snapshots hold the same documents in the same places.
type Snapshot struct {
	// Instance is drawn at random whenever the index is opened: versions of two instances cannot be compared.
	Instance uint64
	// Version grows with every change of what the index holds, flushes and merges included.
	Version uint64
	// CommitTS is the highest commit timestamp that is visible.
	CommitTS uint64
}

// Meta is what every reply about an index says besides its answer.
type Meta struct {
	Snapshot Snapshot
	// Timings are the stages of the call on the node, in order: queue, statistics, search and the like. They add up to the time from
	// the arrival of the request to the start of the reply; the difference to what the caller measures is network.
	Timings []api.Timing
	// Approximate names what of the answer is not exact, empty when all is: ApproximateGraph and the like.
	Approximate []string
	// Below is the accounting of what stands below a coordinator; nil of a node. An answer with a Below in which a shard failed is
	// partial, whatever else the reply says.
	Below *Below
}

// What Meta.Approximate says.
const (
	ApproximateGraph    = "graph"    // neighbours were found by walking a graph: some may be missing
	ApproximateTime     = "time"     // the deadline passed before everything was searched
	ApproximatePrefix   = "prefix"   // a prefix has more words than are scored
	ApproximateTotal    = "total"    // counting stopped at the floor that was asked for: the total is a lower bound
	ApproximateDistinct = "distinct" // a number of distinct values is estimated
	ApproximateRepeats  = "repeats"  // a bulk load had more ids than are remembered: duplicates is a lower bound
	ApproximateLocal    = "local"    // scores were made with the statistics of this shard alone
)

// Micros is the sum of the timings, in microseconds.
func (m *Meta) Micros() int64 {
	var sum int64
	for _, t := range m.Timings {
		sum += t.Micros
	}
	return sum
}
