package leaf

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/topology/placement"
)

// Member is a leaf that stands in a cluster: what a coordinator needs of it besides the calls of a Leaf, to give out documents, to
// keep schemas the same, to move documents, and to hold copies against each other. A node is one; a coordinator over further nodes is
// one too.
type Member interface {
	Leaf

	// Fetch gives what is to be shown of chosen documents: sources, highlighted fragments, explanations.
	Fetch(ctx context.Context, req *FetchRequest) (*FetchReply, error)

	// Indexes lists the indexes, by name.
	Indexes(ctx context.Context, req *IndexesRequest) (*IndexesReply, error)
	// PutIndex makes an index, or adds the fields of a schema that it lacks to one that is there.
	PutIndex(ctx context.Context, req *PutIndexRequest) (*PutIndexReply, error)
	// DropIndex deletes an index.
	DropIndex(ctx context.Context, req *DropIndexRequest) (*DropIndexReply, error)

	// Sums gives the checksums of documents by id, or of those in a range of hashes.
	Sums(ctx context.Context, req *SumsRequest) (*SumsReply, error)
	// Digest gives one checksum for each of many equal ranges of hashes: the leaves of a Merkle tree over an index.
	Digest(ctx context.Context, req *DigestRequest) (*DigestReply, error)
	// Sync puts or deletes documents, each only if what is there has the checksum that its caller last saw. All that is applied is
	// durable and visible when it returns.
	Sync(ctx context.Context, req *SyncRequest) (*SyncReply, error)

	// Place gives the member the shard map that it is part of, to be kept over restarts. From then on calls with a lower epoch are
	// refused with api.StaleMap. A map with a lower epoch is refused likewise, and so is another map with the same epoch.
	Place(ctx context.Context, req *PlaceRequest) (*PlaceReply, error)
	// Placed returns the map that was last given; the zero reply but for Node if none was.
	Placed(ctx context.Context) (*PlaceReply, error)
}

// Limits of the calls of a Member.
const (
	MaxFetch      = 10_000  // ids of a Fetch
	MaxSync       = 1_000   // items of a Sync
	MaxDepth      = 16      // of a Digest
	MaxMap        = 1 << 20 // bytes of a shard map
	MaxBulkKey    = 128     // bytes of BulkRequest.Key
	MaxShares     = 8       // of a View
	MaxLocalStats = 4_096   // terms of SearchReply.LocalStats; with more there are none, as if they had not been asked for
)

// View says how a call looks at an index. The zero View is the index as it is.
type View struct {
	// Epoch is that of the shard map that the caller goes by; 0: it goes by none, and is not checked. A member that was given a map
	// with a higher one refuses with api.StaleMap, before any effect.
	Epoch uint64
	// Owned narrows the index to the documents that all of these shares own, as if the others had been deleted: no hit, total,
	// statistic or bucket has a trace of them. While documents are moved they stand on two shards, and one of the two is to be seen.
	Owned []placement.Share
	// Lenient lets a query, a filter, an order, a default field name fields that the index does not have: nothing has a value
	// there. A shard may have seen no document with a field that the whole index has.
	Lenient bool
}

// Below is the accounting of a leaf that stands for several: a coordinator.
type Below struct {
	Shards      api.Shards // each shard at the bottom of the tree, once; ordinals count from 0 in the tree below this leaf
	DocsCovered uint64     // live documents of the shards that answered
	DocsTotal   uint64     // and of those that did not, as far as it is known
	Unsized     bool       // of one that did not it is not known: DocsTotal is a lower bound
}

// Show says what is wanted of documents besides their place.
type Show struct {
	Source    bool
	Fields    []string       // of the source, as api.SearchRequest.Fields; nil: all that are stored
	Highlight *api.Highlight // nil: none
	Explain   bool
	// First is for a search: of hits behind so many the source, highlight and explanation may stay away, for few of them come to stand on
	// a page of several shards. 0: they come with every hit. Negative is refused.
	First int
}

// Shown is what is to be shown of one document: rendered JSON, nil where it is not asked for or not there.
type Shown struct {
	Missing   bool   // the document is not there (any more); of a Fetch only
	Source    []byte // an object
	Highlight []byte // an object: fragments by field
	Lexical   []byte // the explanation of its score by the query
	Vector    []byte // the explanation of its similarity
}

// FetchRequest asks what is to be shown of documents. What Show does not want needs no query, vector or statistics.
type FetchRequest struct {
	Index string
	View
	IDs           []string // at most MaxFetch
	Show          Show
	Query         query.Node // to highlight and explain; nil: every document
	Filters       []query.Node
	DefaultFields []string
	Stats         *score.Stats // to explain with; nil: those of the shard
	KNN           *api.KNN     // to explain; nil: none
}

// FetchReply holds what was asked for, in the order of the ids.
type FetchReply struct {
	Meta
	Docs  []Shown
	Notes []string
	// Plan is an object that says how the query was taken, with Show.Explain, as the member explain of a search; nil if there is none.
	Plan []byte
}

// IndexesRequest asks for the indexes.
type IndexesRequest struct{}

// IndexesReply lists indexes by name.
type IndexesReply struct {
	Meta    // without a snapshot
	Indexes []api.IndexInfo
}

// PutIndexRequest declares an index.
type PutIndexRequest struct {
	Index  string
	Epoch  uint64 // as View.Epoch
	Schema string // SDL; empty: an index that infers its fields
}

// PutIndexReply describes the index as it is now.
type PutIndexReply struct {
	Meta
	Made bool // it was not there before
	Info api.IndexInfo
}

// DropIndexRequest names an index to delete.
type DropIndexRequest struct {
	Index string
	Epoch uint64 // as View.Epoch
}

// DropIndexReply describes the index as it was.
type DropIndexReply struct {
	Meta // without a snapshot
	Info api.IndexInfo
}

// Sum is a checksum of a document: the 128-bit xxh3 of its source as Export gives it, big-endian. The zero Sum is no document.
type Sum [16]byte

// SumOf is the checksum of a source.
func SumOf(source []byte) Sum { return xxh3.Hash128(source).Bytes() }

// HashRange is a range of placement.Hash, both ends included.
type HashRange struct{ From, To uint32 }

// SumsRequest asks for checksums: of IDs, at most MaxIDs, or, where Range is not nil, of the live documents with a hash in it, by id
// ascending, at most Limit of them with an id above After.
type SumsRequest struct {
	Index string
	View
	IDs   []string
	Range *HashRange
	After string
	Limit int // 1 to MaxIDs, with Range
	// Fence, with IDs, ends the right of every Sync that names an earlier fence to change one of these documents. So whoever finds members
	// equal knows that none is changed any more by what somebody saw of them before. And no write of one of them, be it there or not, is IndexReply.Fresh
	// behind it, nor one that came before it and that the sums do not show: who writes it compares the members, so that a Sync of what was seen is seen.
	Fence bool
	// Mark, with Fence, is that of the write whose writer looks: see SumsReply.Last. Where that write is the last thing that was done with a document,
	// the next one is behind its Mark.Seen, and behind nothing otherwise.
	Mark Mark
}

// Mark names one write of a document (IndexRequest.Mark): a random number that is even, see NewMark. With the lowest bit set it is the same write
// after its writer has looked at what came of it (SumsRequest.Mark).
type Mark uint64

// NewMark is one that nobody else has.
func NewMark() Mark { return Mark(max(rand.Uint64()&^1, 2)) }

// Seen is the mark when its writer has looked.
func (m Mark) Seen() Mark { return m | 1 }

// Check returns an error, which names the member or field it stands in, if it is none that NewMark gives, nor 0.
func (m Mark) Check() *api.Problem {
	if m&1 == 0 {
		return nil
	}
	return api.NewProblem(api.InvalidParameter, "mark: it is an even number").On("mark")
}

// SumsReply holds checksums.
type SumsReply struct {
	Meta
	IDs  []string // with Range; else nil: those of the request
	Sums []Sum    // for each id; zero: not there
	Next string   // the After of what follows; empty at the end
	// Fence names the one that the call made, for a Sync of what the reply says. 0: it made none, as members do that know of no fences, and
	// clients that asked in several calls.
	Fence uint64
	// Synced, with Fence, are the places of the ids whose last change here was made by a Sync, or may have been, ascending. What a Sync puts
	// may be older than what it replaces: whoever copies members to each other cannot see what is on its way to them. Of an id that is not
	// among them whatever was written here last is still there.
	Synced []int
	// Last, with a Mark, says that the write with it was the last thing that was done with every one of the documents, at one moment behind the
	// fence. Whoever hears that of all members knows that what he wrote had come to all of them, in the same place, and that what is done with it
	// from then on comes behind it everywhere; what the checksums say, which are of a later moment, is of no concern then.
	Last bool
}

// FencedSums asks a member for the checksums of documents by id with a fence, and one that knows of no fences without.
func FencedSums(ctx context.Context, m Member, req SumsRequest) (*SumsReply, error) {
	req.Fence = true
	reply, err := m.Sums(ctx, &req)
	if unknown(err, "mark") {
		req.Mark = 0
		reply, err = m.Sums(ctx, &req)
	}
	if unknown(err, "fence") {
		req.Fence = false
		return m.Sums(ctx, &req)
	}
	return reply, err
}

// MarkedIndex writes one document with a mark, and without at a member that knows of none.
func MarkedIndex(ctx context.Context, m Leaf, req IndexRequest) (*IndexReply, error) {
	reply, err := m.Index(ctx, &req)
	if unknown(err, "mark") {
		req.Mark = 0
		return m.Index(ctx, &req)
	}
	return reply, err
}

// unknown tells whether a member refuses a request for a field that it does not know.
func unknown(err error, field string) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Field == field
}

// DigestRequest asks for checksums over 2^Depth equal ranges of placement.Hash, Depth 0 to MaxDepth.
type DigestRequest struct {
	Index string
	View
	Depth int
}

// DigestReply holds one digest for each range, in order of hashes.
type DigestReply struct {
	Meta
	Docs []uint32 // live documents in the range
	// Sums are sums, byte by byte carried as 128-bit big-endian numbers modulo 2^128, of xxh3-128(id, 0x00, Sum) over the documents of
	// the range: the same whatever the order and the layout.
	Sums []Sum
}

// SyncItem is one document to be put or deleted.
type SyncItem struct {
	ID string
	// Expect is what has to be there: the zero Sum for nothing. With that and no Body the item changes nothing, and is applied where nothing is
	// there: no write that comes behind it is IndexReply.Fresh, also where the index is made by that.
	Expect Sum
	Body   []byte // the document as Index takes it; nil: it is deleted
}

// SyncRequest is at most MaxSync items with different ids.
type SyncRequest struct {
	Index string
	View  // of it only the Epoch counts
	Items []SyncItem
	// Fence is that of the reply which the checksums to expect are from: an item is not applied if a later fence was made for its document,
	// or may have been. 0: none.
	Fence uint64
}

// SyncReply says for each item what became of it.
type SyncReply struct {
	Meta
	Applied []bool
	Sums    []Sum // of what is there now
	// Problems holds why an item was refused for itself, such as a document that does not fit the schema; nil entries else. It is nil
	// if there are none.
	Problems []*api.Problem
}

// PlaceRequest is a shard map for a member to keep.
type PlaceRequest struct {
	Epoch uint64 // above 0
	Map   []byte // at most MaxMap; members do not look into it
}

// PlaceReply says which map a member has.
type PlaceReply struct {
	Node  string // UUID of the member
	Epoch uint64 // 0: it was given none
	Map   []byte
}
