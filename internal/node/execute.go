package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
)

// execution is one search on its way through one snapshot. Its phases run one after the other in run; what a later phase needs of
// an earlier one stands here.
type execution struct {
	view
	req *api.SearchRequest

	root       query.Node
	everything bool               // root is every document: nothing is scored
	places     map[query.Node]int // byte offset of the parts of root in q

	// Known when the request was held against the schema.
	pick      selector
	sort      []exec.SortKey
	sortTypes []schema.Type // of the fields of sort
	marked    []string      // fields to highlight
	page      page

	rank     ranking
	printing replyMemory // of facets and aggregations as they are rendered
}

// ranking is what was found, best first.
type ranking struct {
	hits    []exec.Hit
	votes   []votes // of hits, for a hybrid search only
	nearest []exec.Hit
	// more tells whether hits follow behind those.
	more     bool
	total    uint64
	relation string
	notes    []string
	plan     *knn.Plan // of the vector search; nil without one
}

// votes is what the two rankings of a hybrid search say of one document. A rank of 0 says that it is not in that ranking.
type votes struct {
	lexicalRank, vectorRank   uint32
	lexicalScore, vectorScore float32
	lexicalPart, vectorPart   float32 // of the fused score
}

// newExecution reads the query of a request. What the search is charged is the caller's to release.
func (n *Node) newExecution(req *api.SearchRequest, watch *stopwatch) (*execution, error) {
	x := &execution{
		view: view{node: n, watch: watch, defaultFields: req.DefaultFields, allowPartial: req.AllowPartial == api.Yes},
		req:  req, places: map[query.Node]int{},
	}
	root, err := query.Parse(req.Q, query.ParseOptions{DefaultOp: req.DefaultOp, Positions: x.places})
	if err != nil {
		return nil, err
	}
	x.root = root
	_, x.everything = root.(*query.All)
	return x, nil
}

// run searches a snapshot of the index and renders the hits.
func (x *execution) run(ctx context.Context, i *index, snap *shard.Snapshot) (*api.SearchReply, *api.Problem) {
	n, req := x.node, x.req
	err := x.show(i, snap)
	if prob := x.bind(); prob != nil {
		return nil, prob
	}
	if err != nil {
		return nil, n.problem(ctx, err)
	}
	if req.Profile {
		x.trace = &exec.Trace{}
		if x.stats == nil {
			if x.stats, err = exec.Statistics(ctx, x.leaves, x.sch, x.analyzers, x.root, req.DefaultFields); err != nil {
				return nil, x.placed(ctx, err)
			}
		}
		x.watch.lap(stageStatistics)
	}
	began := x.watch.last
	if err := x.chargeFilters(len(req.Filters)); err != nil {
		return nil, n.problem(ctx, err)
	}
	if err := x.find(ctx); err != nil {
		return nil, x.placed(ctx, err)
	}
	if prob := checkScores(x.rank.hits); prob != nil {
		return nil, prob
	}
	reply := &api.SearchReply{Total: x.rank.total, Relation: x.rank.relation, DFS: req.DFS}
	if req.Total == api.TotalNone {
		reply.Total, reply.Relation = 0, api.RelationNone
	}
	if prob := x.aggregate(ctx, reply); prob != nil {
		return nil, prob
	}
	shardMicros := x.watch.last - began - x.watch.queued

	sources, fetched, prob := n.fetch(ctx, x.leaves, x.rank.hits, x.pick)
	defer fetched.release()
	if prob != nil {
		return nil, prob
	}
	x.watch.lap(stageFetch)
	marks, prob := x.highlight(ctx)
	if prob != nil {
		return nil, prob
	}
	trees, prob := x.explain(ctx)
	if prob != nil {
		return nil, prob
	}

	outcome := api.ShardOutcome{Address: n.address(), Outcome: api.Answered, Micros: shardMicros}
	reply.Coverage = api.Coverage{Shards: 1, DocsCovered: x.snap.Docs(), DocsTotal: x.snap.Docs(), Complete: true}
	if x.partial {
		// How far the search came is not known by document, so none is counted as covered.
		outcome.Outcome = api.TimedOut
		reply.Coverage = api.Coverage{DocsTotal: x.snap.Docs()}
		x.note("timeout_ms passed before the whole index was searched; hits and total speak of what was reached")
	}
	reply.Shards.Count(outcome)
	if prob := floor(reply, req.MinCoverage); prob != nil {
		return nil, prob
	}
	x.next(reply)
	reply.Notes = x.rank.notes
	x.render(reply, sources, marks, trees)
	x.watch.lap(stageRender)
	reply.Timings = x.watch.laps
	return reply, nil
}

// release gives back the memory that the search was charged.
func (x *execution) release() {
	x.view.release()
	x.printing.release()
}

// checkScores refuses scores that are no numbers.
func checkScores(hits []exec.Hit) *api.Problem {
	for i := range hits {
		if !api.Finite(hits[i].Score) {
			return api.NewProblem(api.ScoreOverflow, "the boosts of the query make a score that no number can hold").On("q")
		}
	}
	return nil
}

// placed is the problem of an error with the place in the query or filter of the part that the index refuses.
func (x *execution) placed(ctx context.Context, err error) *api.Problem {
	p := x.node.problem(ctx, err)
	if e, ok := errors.AsType[*exec.QueryError](err); ok && e.Node != nil {
		if pos, ok := x.places[e.Node]; ok {
			p.At(pos)
		} else if pos, ok := x.req.FilterPlaces[e.Node]; ok {
			p.At(pos)
			p.Detail = "filter: " + p.Detail // the place is not one of q
		}
	}
	return p
}

// bind holds the request against the schema.
func (x *execution) bind() *api.Problem {
	if prob := x.checkDefaultFields(); prob != nil {
		return prob
	}
	var prob *api.Problem
	if x.pick, prob = selectorOf(x.sch, x.req.Fields); prob != nil {
		return prob
	}
	if prob := x.bindSort(); prob != nil {
		return prob
	}
	if prob := x.bindHighlight(); prob != nil {
		return prob
	}
	if x.req.KNN != nil {
		if prob := x.checkVector(x.req.KNN); prob != nil {
			return prob
		}
	}
	if most := maxExplained; x.req.Explain && x.req.Limit > most {
		return (&api.Problem{Code: api.InvalidParameter, Field: "limit", Detail: fmt.Sprintf("limit: it is at most %d with explain", most)}).Within(int64(most))
	}
	return x.bindPage()
}

// bindSort resolves the keys of the order.
func (x *execution) bindSort() *api.Problem {
	for _, k := range x.req.Sort {
		out := exec.SortKey{Desc: k.Desc, MissingFirst: k.MissingFirst}
		var kind schema.Type
		switch k.By {
		case api.ByScore:
			out.By = exec.ByScore
		case api.ByID:
			out.By = exec.ByID
		case api.ByField:
			out.By, out.Field, out.Mode = exec.ByField, k.Field, exec.Least
			if k.Pick == api.Greatest {
				out.Mode = exec.Greatest
			}
			f, ok := x.sch.Lookup(k.Field)
			if !ok {
				return unknownField(k.Field, "sort")
			}
			fd := &x.sch.Fields[f]
			if reason := unsortable(fd, k.Numeric); reason != "" {
				return &api.Problem{Code: api.FieldNotSortable, Field: fd.Name, Detail: fmt.Sprintf("sort: field %q %s", fd.Name, reason)}
			}
			kind = fd.Type
		}
		x.sort, x.sortTypes = append(x.sort, out), append(x.sortTypes, kind)
	}
	return nil
}

// checkLength compares the length of a vector with that of its field.
func checkLength(fd *schema.Field, q *api.KNN) *api.Problem {
	have, what := len(q.Dense), "numbers"
	switch {
	case fd.Type == schema.DenseVector && q.Dense != nil:
	case fd.Type == schema.BinaryVector && q.Bits != nil:
		have, what = 8*len(q.Bits), "bits"
	default:
		return nil
	}
	if have == fd.Dim {
		return nil
	}
	return (&api.Problem{Code: api.InvalidVector, Field: fd.Name, Detail: fmt.Sprintf("knn: the vector has %d %s, field %q has %d", have, what, fd.Name, fd.Dim)}).Within(int64(fd.Dim))
}

// unsortable says why a field cannot be a key, or nothing.
func unsortable(f *schema.Field, numeric bool) string {
	switch f.Type {
	case schema.U64, schema.I64, schema.F64, schema.Date:
		if !f.Fast {
			return "has no column; declare it as fast"
		}
	case schema.Text:
		switch {
		case numeric:
			return "is text, not numbers"
		case !f.Fast:
			return "is text without a column; declare it as fast, or sort by a keyword field"
		}
	case schema.Bytes, schema.JSON, schema.DenseVector, schema.SparseVector, schema.BinaryVector:
		return "of type " + f.Type.String() + " has no order"
	}
	return ""
}

// scored tells whether the order of hits depends on scores that depend on statistics.
func (x *execution) scored() bool {
	if x.everything {
		return false
	}
	return len(x.sort) == 0 || slices.ContainsFunc(x.sort, func(k exec.SortKey) bool { return k.By == exec.ByScore })
}

// floor refuses an answer that covers less than its caller accepts.
func floor(reply *api.SearchReply, least float64) *api.Problem {
	if reply.Coverage.Docs() >= least {
		return nil
	}
	extra := append([]byte(nil), `"shards":`...)
	extra = reply.Shards.AppendJSON(extra)
	extra = append(extra, `,"coverage":`...)
	extra = reply.Coverage.AppendJSON(extra)
	return &api.Problem{Code: api.Incomplete, Field: "min_coverage", Extra: extra, Detail: "the answer covers less of the index than min_coverage asks for"}
}

func unknownField(name, param string) *api.Problem {
	name = api.Clip(name)
	return &api.Problem{Code: api.UnknownField, Field: name, Detail: fmt.Sprintf("%s: the index has no field %q", param, name)}
}
