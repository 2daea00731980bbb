package leaf

import (
	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// An empty Index in a request is api.DefaultIndex.

// PingReply is the answer to a ping.
type PingReply struct {
	// Node is the node's UUID; empty where the wire does not carry it.
	Node string
}

// InfoRequest asks what an index is.
type InfoRequest struct{ Index string }

// InfoReply describes an index as a node holds it.
type InfoReply struct {
	Meta
	Node    string // UUID
	Version string // of the program
	Index   api.IndexInfo
}

// DocsRequest asks for the number of documents.
type DocsRequest struct {
	Index string
	View
}

// DocsReply is the number of live documents.
type DocsReply struct {
	Meta
	Docs uint64
}

// SearchRequest is a search of one shard.
type SearchRequest struct {
	Index string
	View
	// Query is scored; nil: every document, with score 1.
	Query query.Node
	// Filters narrow hits and total, each of them; they change no score.
	Filters []query.Node
	// DefaultFields are searched by terms without a field; nil: every indexed text field in schema order.
	DefaultFields []string
	// Limit is the number of hits wanted, up to exec.MaxWindow.
	Limit int
	// Sort is the order; empty: by score descending. Equals stand by id ascending.
	Sort []exec.SortKey
	// After leaves out every document up to and including the one it describes; nil: none.
	After *exec.After
	// Total says how exactly the number of matches is wanted; TotalFloor is where counting may stop with exec.TotalAtLeast.
	Total      exec.TotalMode
	TotalFloor uint64
	// Stats are the statistics to score with; nil: those of the shard.
	Stats *score.Stats
	// KeepStats wants the statistics that the scores were made with.
	KeepStats bool
	// AllowPartial takes what was reached when the deadline passes, instead of an error.
	AllowPartial bool
	// Show is what is wanted of the hits, so that a page needs no second call; nil: nothing but their place.
	Show *Show
	// LocalStats wants the statistics of this shard alone for everything that the query scores, whatever it was scored with: a caller
	// that gave sums which it remembered sees by them whether they still hold.
	LocalStats bool
}

// Hit is one document of an answer.
type Hit struct {
	ID    string
	Score float32
	// Sort holds the value for each key of the order, nil where the request has no Sort.
	Sort []exec.SortValue
}

// CompareHits is exec.CompareHits for hits of a leaf: negative when a stands before b.
func CompareHits(keys []exec.SortKey, a, b *Hit) int {
	x := exec.Hit{Score: a.Score, Key: a.ID, Sort: a.Sort}
	y := exec.Hit{Score: b.Score, Key: b.ID, Sort: b.Sort}
	return exec.CompareHits(keys, &x, &y)
}

// SearchReply is the answer of one shard.
type SearchReply struct {
	Meta
	Hits []Hit  // best first
	Docs uint64 // live documents of the shard
	// Total is the number of matches, exec.Exactly or exec.AtLeast by TotalRelation, which is empty when no total was asked for.
	Total         uint64
	TotalRelation string
	Partial       bool // the deadline passed before everything was searched
	Notes         []string
	Stats         *score.Stats // with KeepStats; nil where nothing was scored
	LocalStats    *score.Stats // with LocalStats; nil where nothing was scored, or there were more than MaxLocalStats terms
	Shown         []Shown      // for each hit, with Show; else nil
	Plan          []byte       // as FetchReply.Plan, with Show.Explain
}

// StatsRequest asks for statistics. Terms and Query may both be given: the reply has the union.
type StatsRequest struct {
	Index string
	View
	// Terms are tokens of fields as the index holds them, at most MaxTerms.
	Terms []score.Term
	// Query stands for all terms that a search for it scores, words of prefixes included. nil: none.
	Query         query.Node
	DefaultFields []string
}

// StatsReply holds integer statistics over live documents. A term of the request that no live document holds has a document
// frequency of 0 or is left out.
type StatsReply struct {
	Meta
	Stats score.Stats
}

// AggregateRequest asks for partial states of aggregations over the documents that match.
type AggregateRequest struct {
	Index string
	View
	Query         query.Node // nil: every document
	Filters       []query.Node
	DefaultFields []string
	DefaultOp     query.Op // of the query strings inside of Specs
	Stats         *score.Stats
	Specs         []agg.Spec
	// Values are fields with a column whose values are wanted one by one: those of every matching document, at most MaxRawCount in all.
	Values []string
}

// AggregateReply is what one shard adds.
type AggregateReply struct {
	Meta
	// State is the partial state of Specs, to be merged with those of other shards and finished.
	State *agg.State
	// Values are those of the fields of the request, in its order; a document gives each of its values.
	Values  []FieldValues
	Docs    uint64 // live documents of the shard
	Matched uint64 // documents that the aggregations are over
}

// FieldValues are the values of one field of the matching documents: Numbers in the order-preserving encoding of package schema, or
// Texts; both are empty where the shard does not have the field.
type FieldValues struct {
	Field   string
	Type    schema.Type
	Numbers []uint64
	Texts   []string
}

// KNNRequest asks for the nearest documents.
type KNNRequest struct {
	Index string
	View
	// KNN is the vector, its field and how to search. KNN.GivenK does not matter.
	KNN           api.KNN
	Filters       []query.Node
	DefaultFields []string
	AllowPartial  bool
}

// Neighbour is a document and its similarity.
type Neighbour struct {
	ID         string
	Similarity float32
}

// KNNReply is the answer of one shard.
type KNNReply struct {
	Meta
	Hits    []Neighbour // similarity descending, then id ascending
	Docs    uint64      // live documents of the shard
	Partial bool        // the deadline passed; Hits may be none
}

// IDsRequest asks for ids in ascending order.
type IDsRequest struct {
	Index string
	View
	After string // only ids above; empty: all
	Limit int    // at most so many; 0: all
}

// IDsReply ends a list of ids.
type IDsReply struct {
	Meta
	// Next is the After of the next request when Limit ended the list before its end, else empty.
	Next string
}

// ExportRequest asks for documents by id, at most MaxIDs.
type ExportRequest struct {
	Index string
	View
	IDs []string
}

// ExportedDoc is a document as Index takes it.
type ExportedDoc struct {
	ID     string
	Source []byte // a JSON object with the id in the primary field
}

// ExportReply ends the documents of an Export.
type ExportReply struct {
	Meta
	Missing []string // ids that the index does not hold, in the order asked
}

// HasRequest asks about ids, at most MaxIDs.
type HasRequest struct {
	Index string
	View
	IDs []string
}

// HasReply lists those that are not there.
type HasReply struct {
	Meta
	Missing []string // in the order asked
}

// DeleteRequest names documents to delete, at most MaxIDs. A repeated id counts once.
type DeleteRequest struct {
	Index string
	View
	IDs []string
}

// DeleteReply tells how many were there.
type DeleteReply struct {
	Meta
	Deleted uint64
}

// IndexRequest is one document to write.
type IndexRequest struct {
	Index string
	View
	Body []byte // a JSON object
	// Existing says that the index has to be there: no write makes it, and where it is not there the error is api.IndexNotFound, before any
	// effect. A coordinator sets it: a member that lost its disk must not make a declared index anew, with fields of its own.
	Existing bool
	// Mark names the write, for IndexReply.Behind of the next; 0: it has no name.
	Mark Mark
}

// IndexReply is what POST /index returns.
type IndexReply struct {
	Meta
	api.WriteReply
	// Fresh says that nothing was done with the id for longer than a write is under way: no document with it was written or deleted, and nobody
	// looked at one with a fence (SumsRequest.Fence). So nothing that was written to the id at the same time came before: writers of whom one
	// finds all members of a group so did not cross there. False says nothing.
	Fresh bool
	// Behind, of a write with a Mark, is that of the write that was the last thing done with the id before: nothing else of what Fresh speaks of was
	// done in between. 0: it had none, something else was done, or it is not known any more. Where all members of a group have the same, the write
	// came directly behind the same one at all of them, and did not cross another there that has the same at all of them.
	Behind Mark
}

// BulkRequest begins a bulk load.
type BulkRequest struct {
	Index string
	View  // of it only the Epoch counts
	// Key, if not empty, names this load, at most MaxBulkKey bytes: a load with a key that the index has taken before is not applied
	// again, and the reply is that of the first, with Repeated. One whose key is under way is refused with api.LoadUnderWay.
	//
	// A load is remembered, on disk, when it was read to its end and each of its documents was applied or refused for itself: the last
	// 10,000 of an index, for 24 hours. One that broke off, gave up for want of room, or of which nothing was applied is loaded anew. So is
	// one whose node ended between making its last documents durable and writing down the key: its documents are then put once more.
	// A load without any line is remembered, too, where the index is there.
	Key string
	// Existing is that of IndexRequest. It is checked before anything is read, and also for a load without any line.
	Existing bool
}

// BulkReply is what POST /index/bulk returns.
type BulkReply struct {
	Meta
	api.BulkReply
	Repeated bool // the load was taken before, by its key: this is what came of it then
}
