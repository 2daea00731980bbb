package read

import (
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
)

// The calls that go to every group or to the owners of ids.
var (
	opInfo = &op[leaf.InfoRequest, leaf.InfoReply]{
		class: classBrief, call: leaf.Member.Info,
		index: func(q *leaf.InfoRequest) string { return q.Index },
		meta:  func(r *leaf.InfoReply) *leaf.Meta { return &r.Meta },
		docs:  func(r *leaf.InfoReply) uint64 { return r.Index.Docs },
	}
	opDocs = &op[leaf.DocsRequest, leaf.DocsReply]{
		class: classBrief, call: leaf.Member.Docs,
		index: func(q *leaf.DocsRequest) string { return q.Index },
		view:  func(q *leaf.DocsRequest) *leaf.View { return &q.View },
		meta:  func(r *leaf.DocsReply) *leaf.Meta { return &r.Meta },
		docs:  func(r *leaf.DocsReply) uint64 { return r.Docs },
		check: func(_ *leaf.DocsRequest, r *leaf.DocsReply) error { return checkDocs(r.Docs, 0) },
	}
	opSearch = &op[leaf.SearchRequest, leaf.SearchReply]{
		class: classSearch, call: leaf.Member.Search,
		index: func(q *leaf.SearchRequest) string { return q.Index },
		view:  func(q *leaf.SearchRequest) *leaf.View { return &q.View },
		meta:  func(r *leaf.SearchReply) *leaf.Meta { return &r.Meta },
		docs:  func(r *leaf.SearchReply) uint64 { return r.Docs },
		check: checkSearch,
		query: func(q *leaf.SearchRequest) (query.Node, []query.Node) { return q.Query, q.Filters },
	}
	opStats = &op[leaf.StatsRequest, leaf.StatsReply]{
		class: classStats, call: leaf.Member.Stats,
		index: func(q *leaf.StatsRequest) string { return q.Index },
		view:  func(q *leaf.StatsRequest) *leaf.View { return &q.View },
		meta:  func(r *leaf.StatsReply) *leaf.Meta { return &r.Meta },
		docs:  func(r *leaf.StatsReply) uint64 { return r.Stats.Docs },
		check: func(_ *leaf.StatsRequest, r *leaf.StatsReply) error { return checkStats(&r.Stats) },
		query: func(q *leaf.StatsRequest) (query.Node, []query.Node) { return q.Query, nil },
	}
	opAggregate = &op[leaf.AggregateRequest, leaf.AggregateReply]{
		class: classAggregate, call: leaf.Member.Aggregate,
		index: func(q *leaf.AggregateRequest) string { return q.Index },
		view:  func(q *leaf.AggregateRequest) *leaf.View { return &q.View },
		meta:  func(r *leaf.AggregateReply) *leaf.Meta { return &r.Meta },
		docs:  func(r *leaf.AggregateReply) uint64 { return r.Docs },
		check: func(_ *leaf.AggregateRequest, r *leaf.AggregateReply) error { return checkDocs(r.Docs, r.Matched) },
		query: func(q *leaf.AggregateRequest) (query.Node, []query.Node) { return q.Query, q.Filters },
	}
	opKNN = &op[leaf.KNNRequest, leaf.KNNReply]{
		class: classKNN, call: leaf.Member.KNN,
		index: func(q *leaf.KNNRequest) string { return q.Index },
		view:  func(q *leaf.KNNRequest) *leaf.View { return &q.View },
		meta:  func(r *leaf.KNNReply) *leaf.Meta { return &r.Meta },
		docs:  func(r *leaf.KNNReply) uint64 { return r.Docs },
		check: checkKNN,
		query: func(q *leaf.KNNRequest) (query.Node, []query.Node) { return nil, q.Filters },
	}
	opHas = &op[leaf.HasRequest, leaf.HasReply]{
		class: classBrief, call: leaf.Member.Has, whole: true,
		index: func(q *leaf.HasRequest) string { return q.Index },
		view:  func(q *leaf.HasRequest) *leaf.View { return &q.View },
		meta:  func(r *leaf.HasReply) *leaf.Meta { return &r.Meta },
	}
	opFetch = &op[leaf.FetchRequest, leaf.FetchReply]{
		class: classFetch, call: leaf.Member.Fetch,
		index: func(q *leaf.FetchRequest) string { return q.Index },
		view:  func(q *leaf.FetchRequest) *leaf.View { return &q.View },
		meta:  func(r *leaf.FetchReply) *leaf.Meta { return &r.Meta },
		check: checkFetch,
		query: func(q *leaf.FetchRequest) (query.Node, []query.Node) { return q.Query, q.Filters },
	}
	opIndexes = &op[leaf.IndexesRequest, leaf.IndexesReply]{
		class: classBrief, call: leaf.Member.Indexes,
		index: func(*leaf.IndexesRequest) string { return "*" }, // all: no index has this name
		meta:  func(r *leaf.IndexesReply) *leaf.Meta { return &r.Meta },
		docs: func(r *leaf.IndexesReply) uint64 {
			var sum uint64
			for i := range r.Indexes {
				sum += r.Indexes[i].Docs
			}
			return sum
		},
	}
	opSums = &op[leaf.SumsRequest, leaf.SumsReply]{
		class: classSums, call: leaf.Member.Sums, whole: true,
		index: func(q *leaf.SumsRequest) string { return q.Index },
		view:  func(q *leaf.SumsRequest) *leaf.View { return &q.View },
		meta:  func(r *leaf.SumsReply) *leaf.Meta { return &r.Meta },
	}
	opDigest = &op[leaf.DigestRequest, leaf.DigestReply]{
		class: classSums, call: leaf.Member.Digest, whole: true,
		index: func(q *leaf.DigestRequest) string { return q.Index },
		view:  func(q *leaf.DigestRequest) *leaf.View { return &q.View },
		meta:  func(r *leaf.DigestReply) *leaf.Meta { return &r.Meta },
		docs: func(r *leaf.DigestReply) uint64 {
			var sum uint64
			for _, n := range r.Docs {
				sum += uint64(n)
			}
			return sum
		},
	}
	// Those below are not called like the others; see stream.go.
	opIDs    = &op[leaf.IDsRequest, leaf.IDsReply]{view: func(q *leaf.IDsRequest) *leaf.View { return &q.View }}
	opExport = &op[leaf.ExportRequest, leaf.ExportReply]{view: func(q *leaf.ExportRequest) *leaf.View { return &q.View }}
	opStream = &op[struct{}, leaf.Meta]{class: classStream, whole: true, meta: func(m *leaf.Meta) *leaf.Meta { return m }}
)
