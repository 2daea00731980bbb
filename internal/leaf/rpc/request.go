package rpc

import (
	"fmt"
	"math"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// maxCount bounds every count that a request may ask for.
const maxCount = math.MaxInt32

// pack… turn requests into messages, unpack… read them. What both return as errors is an *api.Problem wherever the request is at
// fault. Slices are shared between a request and its message, strings of a Texts share one piece of memory.

// count checks a number that a message has no sign for.
func count(param string, v int) (uint32, error) {
	if v < 0 || v > maxCount {
		return 0, notInRange(param, maxCount)
	}
	return uint32(v), nil
}

func notInRange(param string, most int) error {
	return api.NewProblem(api.InvalidParameter, fmt.Sprintf("%s: it is a number from 0 to %d", param, most)).On(param).Within(int64(most))
}

// atMost checks a number of things against its limit.
func atMost(param string, n, limit int) error {
	if n > limit {
		return api.NewProblem(api.InvalidParameter, fmt.Sprintf("%s: there are more than %d", param, limit)).On(param).Within(int64(limit))
	}
	return nil
}

// statsLimit checks the counts of statistics that a request is to install.
func statsLimit(s *score.Stats) error {
	if s == nil {
		return nil
	}
	if err := atMost("stats", len(s.DF), leaf.MaxStatsTerms); err != nil {
		return err
	}
	return atMost("stats", len(s.Fields), leaf.MaxStatsFields)
}

// statsFit is statsLimit for a message; it checks the counts of statistics that a request installs, before anything is made of them.
func statsFit(t *pb.TermStats) error {
	if err := atMost("stats", max(len(t.GetTerms().GetField()), len(t.GetTerms().GetTexts().GetLengths()), len(t.GetDf())), leaf.MaxStatsTerms); err != nil {
		return err
	}
	return atMost("stats", max(len(t.GetFields().GetLengths()), len(t.GetTerms().GetFields().GetLengths())), leaf.MaxStatsFields)
}

func unpackIDs(t *pb.Texts) ([]string, error) {
	if err := atMost("ids", len(t.GetLengths()), leaf.MaxIDs); err != nil {
		return nil, err
	}
	ids, err := unpackTexts("ids", t)
	return ids, refuse(err)
}

// refuse makes a problem of a message whose parts do not fit.
func refuse(err error) error {
	if e, ok := err.(*malformedError); ok {
		p := api.NewProblem(api.InvalidBody, api.ClipDetail(e.Error())).On(e.part)
		p.Cause = err
		return p
	}
	return err
}

func packSearch(r *leaf.SearchRequest) (*pb.SearchRequest, error) {
	if err := checkQueries(r.Query, r.Filters, query.Limits{}); err != nil {
		return nil, err
	}
	if err := statsLimit(r.Stats); err != nil {
		return nil, err
	}
	limit, err := count("limit", r.Limit)
	if err != nil {
		return nil, err
	}
	if r.Total > exec.TotalNone {
		return nil, api.NewProblem(api.InvalidParameter, "total: it is not a mode that is known").On("total")
	}
	view, err := packView(&r.View)
	if err != nil {
		return nil, err
	}
	show, err := packShow(r.Show)
	if err != nil {
		return nil, err
	}
	return &pb.SearchRequest{
		Index: r.Index, View: view, Query: packQuery(r.Query), Filters: packQueries(r.Filters), DefaultFields: packFields(r.DefaultFields), Limit: limit,
		Sort: packSort(r.Sort), After: packAfter(r.After), Total: pb.TotalMode(r.Total), TotalFloor: r.TotalFloor, Stats: packStats(r.Stats),
		KeepStats: r.KeepStats, AllowPartial: r.AllowPartial, Show: show, LocalStats: r.LocalStats,
	}, nil
}

func unpackSearch(m *pb.SearchRequest, lim query.Limits) (*leaf.SearchRequest, error) {
	q, filters, err := unpackQueries(m.Query, m.Filters, lim)
	if err != nil {
		return nil, err
	}
	if err := atMost("sort", max(len(m.Sort), len(m.After.GetValues())), exec.MaxSortKeys); err != nil {
		return nil, err
	}
	if m.Limit > maxCount {
		return nil, api.NewProblem(api.InvalidParameter, "limit is too large").On("limit").Within(maxCount)
	}
	if m.Total < 0 || m.Total > pb.TotalMode_TOTAL_NONE {
		return nil, api.NewProblem(api.InvalidParameter, "total: it is not a mode that is known").On("total")
	}
	r := &leaf.SearchRequest{
		Index: m.Index, Query: q, Filters: filters, DefaultFields: unpackFields(m.DefaultFields), Limit: int(m.Limit),
		Total: exec.TotalMode(m.Total), TotalFloor: m.TotalFloor, KeepStats: m.KeepStats, AllowPartial: m.AllowPartial,
		LocalStats: m.LocalStats,
	}
	if r.View, err = unpackView(m.View); err != nil {
		return nil, err
	}
	if r.Show, err = unpackShow(m.Show); err != nil {
		return nil, err
	}
	if r.Sort, err = unpackSort(m.Sort); err != nil {
		return nil, refuse(err)
	}
	if r.After, err = unpackAfter(m.After); err != nil {
		return nil, refuse(err)
	}
	if err := statsFit(m.Stats); err != nil {
		return nil, err
	}
	if r.Stats, err = unpackStats("stats", m.Stats); err != nil {
		return nil, refuse(err)
	}
	return r, nil
}

func packStatsRequest(r *leaf.StatsRequest) (*pb.StatsRequest, error) {
	if err := atMost("terms", len(r.Terms), leaf.MaxTerms); err != nil {
		return nil, err
	}
	if err := checkQueries(r.Query, nil, query.Limits{}); err != nil {
		return nil, err
	}
	m := &pb.StatsRequest{Index: r.Index, Terms: packTerms(r.Terms), Query: packQuery(r.Query), DefaultFields: packFields(r.DefaultFields)}
	var err error
	m.View, err = packView(&r.View)
	return m, err
}

func unpackStatsRequest(m *pb.StatsRequest, lim query.Limits) (*leaf.StatsRequest, error) {
	if err := atMost("terms", max(len(m.Terms.GetField()), len(m.Terms.GetTexts().GetLengths()), len(m.Terms.GetFields().GetLengths())), leaf.MaxTerms); err != nil {
		return nil, err
	}
	r := &leaf.StatsRequest{Index: m.Index, DefaultFields: unpackFields(m.DefaultFields)}
	var err error
	if r.View, err = unpackView(m.View); err != nil {
		return nil, err
	}
	if r.Query, _, err = unpackQueries(m.Query, nil, lim); err != nil {
		return nil, err
	}
	if r.Terms, err = unpackTerms("terms", m.Terms); err != nil {
		return nil, refuse(err)
	}
	return r, nil
}

func packAggregate(r *leaf.AggregateRequest) (*pb.AggregateRequest, error) {
	if err := checkQueries(r.Query, r.Filters, query.Limits{}); err != nil {
		return nil, err
	}
	if err := statsLimit(r.Stats); err != nil {
		return nil, err
	}
	if err := atMost("values", len(r.Values), leaf.MaxValues); err != nil {
		return nil, err
	}
	m := &pb.AggregateRequest{
		Index: r.Index, Query: packQuery(r.Query), Filters: packQueries(r.Filters), DefaultFields: packFields(r.DefaultFields),
		DefaultOp: pb.Operator(r.DefaultOp), Stats: packStats(r.Stats), Values: r.Values,
	}
	if len(r.Specs) > 0 {
		m.Specs = agg.AppendSpecs(nil, r.Specs)
	}
	var err error
	m.View, err = packView(&r.View)
	return m, err
}

func unpackAggregate(m *pb.AggregateRequest, lim query.Limits) (*leaf.AggregateRequest, error) {
	q, filters, err := unpackQueries(m.Query, m.Filters, lim)
	if err != nil {
		return nil, err
	}
	if err := atMost("values", len(m.Values), leaf.MaxValues); err != nil {
		return nil, err
	}
	r := &leaf.AggregateRequest{Index: m.Index, Query: q, Filters: filters, DefaultFields: unpackFields(m.DefaultFields), Values: m.Values}
	if r.View, err = unpackView(m.View); err != nil {
		return nil, err
	}
	switch m.DefaultOp {
	case pb.Operator_OPERATOR_OR:
	case pb.Operator_OPERATOR_AND:
		r.DefaultOp = query.And
	default:
		return nil, api.NewProblem(api.InvalidParameter, "default_op: it is not an operator that is known").On("default_op")
	}
	if err := statsFit(m.Stats); err != nil {
		return nil, err
	}
	if r.Stats, err = unpackStats("stats", m.Stats); err != nil {
		return nil, refuse(err)
	}
	if len(m.Specs) > 0 {
		if r.Specs, err = agg.ParseJSON(m.Specs); err != nil {
			if p := api.AggProblem("aggs", err); p != nil {
				return nil, p
			}
			return nil, err
		}
	}
	return r, nil
}

func packKNN(r *leaf.KNNRequest) (*pb.KNNRequest, error) {
	if err := checkQueries(nil, r.Filters, query.Limits{}); err != nil {
		return nil, err
	}
	m, err := packVector(&r.KNN)
	if err != nil {
		return nil, err
	}
	m.Index, m.Filters, m.DefaultFields, m.AllowPartial = r.Index, packQueries(r.Filters), packFields(r.DefaultFields), r.AllowPartial
	m.View, err = packView(&r.View)
	return m, err
}

// packVector makes a request of what it searches for alone: a vector, its field and how to search.
func packVector(k *api.KNN) (*pb.KNNRequest, error) {
	m := &pb.KNNRequest{
		Field: k.Field, Exact: k.Exact,
		Combiner: &pb.Combiner{Kind: pb.Combiner_Kind(k.Combiner.Kind), Temperature: k.Combiner.Temperature, Decay: k.Combiner.Decay},
	}
	var err error
	if m.K, err = count("knn_k", k.K); err != nil {
		return nil, err
	}
	if m.Ef, err = count("knn", k.Ef); err != nil {
		return nil, err
	}
	if m.Combiner.TopK, err = count("knn", k.Combiner.TopK); err != nil {
		return nil, err
	}
	given := 0
	if k.Dense != nil {
		m.Vector = &pb.KNNRequest_Dense{Dense: &pb.DenseVector{Values: k.Dense}}
		given++
	}
	if k.Bits != nil {
		m.Vector = &pb.KNNRequest_Binary{Binary: &pb.BinaryVector{Bits: k.Bits}}
		given++
	}
	if k.Indices != nil || k.Weights != nil {
		m.Vector = &pb.KNNRequest_Sparse{Sparse: &pb.SparseVector{Indices: k.Indices, Weights: k.Weights}}
		given++
	}
	if given > 1 {
		return nil, api.NewProblem(api.InvalidParameter, "knn: it has one of vector, bits, and indices with values").On("knn")
	}
	return m, nil
}

func unpackKNN(m *pb.KNNRequest, lim query.Limits) (*leaf.KNNRequest, error) {
	_, filters, err := unpackQueries(nil, m.Filters, lim)
	if err != nil {
		return nil, err
	}
	k, err := unpackVector(m)
	if err != nil {
		return nil, err
	}
	r := &leaf.KNNRequest{Index: m.Index, KNN: *k, Filters: filters, DefaultFields: unpackFields(m.DefaultFields), AllowPartial: m.AllowPartial}
	r.View, err = unpackView(m.View)
	return r, err
}

// unpackVector reads what packVector has made.
func unpackVector(m *pb.KNNRequest) (*api.KNN, error) {
	for _, n := range []uint32{m.K, m.Ef, m.Combiner.GetTopK()} {
		if n > maxCount {
			return nil, api.NewProblem(api.InvalidParameter, "knn: a number is too large").On("knn").Within(maxCount)
		}
	}
	k := &api.KNN{Field: m.Field, K: int(m.K), Exact: m.Exact, Ef: int(m.Ef)}
	if c := m.Combiner; c != nil {
		k.Combiner = score.Combiner{Temperature: c.Temperature, TopK: int(c.TopK), Decay: c.Decay}
		// A number that is not known counts as 0, as in package score.
		if c.Kind > 0 && c.Kind <= pb.Combiner_COMBINER_WEIGHTED_TOP_K {
			k.Combiner.Kind = score.CombinerKind(c.Kind)
		}
	}
	switch v := m.Vector.(type) {
	case *pb.KNNRequest_Dense:
		k.Dense = orEmpty(v.Dense.GetValues())
	case *pb.KNNRequest_Binary:
		k.Bits = orEmpty(v.Binary.GetBits())
		if len(k.Bits) > schema.MaxBinaryBits/8 {
			return nil, api.NewProblem(api.InvalidVector, fmt.Sprintf("knn: there are more than %d bits", schema.MaxBinaryBits)).On("knn").Within(schema.MaxBinaryBits)
		}
	case *pb.KNNRequest_Sparse:
		k.Indices, k.Weights = orEmpty(v.Sparse.GetIndices()), orEmpty(v.Sparse.GetWeights())
		if len(k.Indices) != len(k.Weights) {
			return nil, api.NewProblem(api.InvalidVector, fmt.Sprintf("knn: there are %d indices and %d values", len(k.Indices), len(k.Weights))).On("knn")
		}
		if len(k.Indices) > api.MaxPairs {
			return nil, api.NewProblem(api.InvalidVector, fmt.Sprintf("knn: there are more than %d indices", api.MaxPairs)).On("knn").Within(api.MaxPairs)
		}
	}
	return k, nil
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func packIDsRequest(r *leaf.IDsRequest) (*pb.IDsRequest, error) {
	limit, err := count("limit", r.Limit)
	if err != nil {
		return nil, err
	}
	m := &pb.IDsRequest{Index: r.Index, After: []byte(r.After), Limit: uint64(limit)}
	m.View, err = packView(&r.View)
	return m, err
}

func unpackIDsRequest(m *pb.IDsRequest) (*leaf.IDsRequest, error) {
	if m.Limit > maxCount {
		return nil, notInRange("limit", maxCount)
	}
	r := &leaf.IDsRequest{Index: m.Index, After: string(m.After), Limit: int(m.Limit)}
	var err error
	r.View, err = unpackView(m.View)
	return r, err
}

func packExport(r *leaf.ExportRequest) (*pb.ExportRequest, error) {
	if err := atMost("ids", len(r.IDs), leaf.MaxIDs); err != nil {
		return nil, err
	}
	view, err := packView(&r.View)
	return &pb.ExportRequest{Index: r.Index, View: view, Ids: packTexts(r.IDs)}, err
}

func unpackExport(m *pb.ExportRequest) (*leaf.ExportRequest, error) {
	view, err := unpackView(m.View)
	if err != nil {
		return nil, err
	}
	ids, err := unpackIDs(m.Ids)
	return &leaf.ExportRequest{Index: m.Index, View: view, IDs: ids}, err
}

func packHas(r *leaf.HasRequest) (*pb.HasRequest, error) {
	if err := atMost("ids", len(r.IDs), leaf.MaxIDs); err != nil {
		return nil, err
	}
	view, err := packView(&r.View)
	return &pb.HasRequest{Index: r.Index, View: view, Ids: packTexts(r.IDs)}, err
}

func unpackHas(m *pb.HasRequest) (*leaf.HasRequest, error) {
	view, err := unpackView(m.View)
	if err != nil {
		return nil, err
	}
	ids, err := unpackIDs(m.Ids)
	return &leaf.HasRequest{Index: m.Index, View: view, IDs: ids}, err
}

func packDelete(r *leaf.DeleteRequest) (*pb.DeleteManyRequest, error) {
	if err := atMost("ids", len(r.IDs), leaf.MaxIDs); err != nil {
		return nil, err
	}
	view, err := packView(&r.View)
	return &pb.DeleteManyRequest{Index: r.Index, View: view, Ids: packTexts(r.IDs)}, err
}

func unpackDelete(m *pb.DeleteManyRequest) (*leaf.DeleteRequest, error) {
	view, err := unpackView(m.View)
	if err != nil {
		return nil, err
	}
	ids, err := unpackIDs(m.Ids)
	return &leaf.DeleteRequest{Index: m.Index, View: view, IDs: ids}, err
}

func packDocs(r *leaf.DocsRequest) (*pb.DocsRequest, error) {
	view, err := packView(&r.View)
	return &pb.DocsRequest{Index: r.Index, View: view}, err
}

func unpackDocs(m *pb.DocsRequest) (*leaf.DocsRequest, error) {
	view, err := unpackView(m.View)
	return &leaf.DocsRequest{Index: m.Index, View: view}, err
}

func packIndex(r *leaf.IndexRequest) (*pb.IndexRequest, error) {
	view, err := packView(&r.View)
	return &pb.IndexRequest{Index: r.Index, View: view, Body: r.Body, Existing: r.Existing, Mark: uint64(r.Mark)}, err
}

func unpackIndex(m *pb.IndexRequest) (*leaf.IndexRequest, error) {
	view, err := unpackView(m.View)
	return &leaf.IndexRequest{Index: m.Index, View: view, Body: m.Body, Existing: m.Existing, Mark: leaf.Mark(m.Mark)}, err
}

// packBulk makes the first message of a load.
func packBulk(r *leaf.BulkRequest) (*pb.BulkRequest, error) {
	if len(r.Key) > leaf.MaxBulkKey {
		return nil, tooLong("key", leaf.MaxBulkKey)
	}
	view, err := packView(&r.View)
	return &pb.BulkRequest{Index: r.Index, View: view, Key: []byte(r.Key), Existing: r.Existing}, err
}

func unpackBulk(m *pb.BulkRequest) (*leaf.BulkRequest, error) {
	if len(m.Key) > leaf.MaxBulkKey {
		return nil, tooLong("key", leaf.MaxBulkKey)
	}
	view, err := unpackView(m.View)
	return &leaf.BulkRequest{Index: m.Index, View: view, Key: string(m.Key), Existing: m.Existing}, err
}
