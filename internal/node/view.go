package node

import (
	"context"
	"errors"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
)

// reading is an index in use by one call, with the snapshot that the call reads.
type reading struct {
	lease lease
	snap  *shard.Snapshot
	stop  func()
}

// read takes the named index and a snapshot of it. The context that comes back ends with the index too. The reading must be released
// once.
func (n *Node) read(ctx context.Context, name string) (context.Context, *reading, error) {
	l, err := n.catalog.use(ctx, name)
	if err != nil {
		return ctx, nil, err
	}
	ctx, stop := l.within(ctx)
	return ctx, &reading{lease: l, snap: l.eng.Snapshot(), stop: stop}, nil
}

func (r *reading) release() {
	r.snap.Release()
	r.stop()
	r.lease.release()
}

// view is a snapshot on which one call searches, with the memory that the call is charged. Its fields up to trace are set before
// anything is searched.
type view struct {
	node      *Node
	watch     *front.Stopwatch
	snap      *shard.Snapshot
	sch       *schema.Schema
	leaves    []exec.Leaf
	analyzers exec.Analyzers

	defaultFields []string     // searched by words without a field; nil: those of the index
	lenient       bool         // fields that the index does not have are such that nothing has a value in
	allowPartial  bool         // what was reached when the time is over is an answer
	stats         *score.Stats // to score with; nil: those of the leaves
	trace         *exec.Trace  // nil: not wanted

	partial bool // the deadline passed before everything was done
	held    []*admit.Place

	aggUsed    int64 // bytes that the states have asked for
	aggCharged int64 // of node.aggregations
	aggBeyond  bool  // the place of node.aggBeyond is held
}

// show makes the view one of a snapshot of the index.
func (v *view) show(i *index, snap *shard.Snapshot) (err error) {
	v.snap, v.sch, v.leaves = snap, snap.Schema(), snap.Leaves()
	v.analyzers, err = i.analyzersOf(v.sch)
	return err
}

// release gives back the memory that was charged.
func (v *view) release() {
	for _, p := range v.held {
		p.Release()
	}
}

// chargeFrom is the memory from which a search is charged for what it holds; less belongs to its place.
const chargeFrom = 1 << 20

// charge takes memory until the call ends.
func (v *view) charge(bytes int64) error {
	if bytes < chargeFrom {
		return nil
	}
	p, err := v.node.memory.TryEnter(bytes)
	if err != nil {
		return err
	}
	v.held = append(v.held, p)
	return nil
}

// setBytes is the size of one set of documents of the snapshot.
func (v *view) setBytes() int64 {
	var n int64
	for _, l := range v.leaves {
		n += int64(l.NumDocs()+63) / 64 * 8
	}
	return n
}

// chargeFilters charges the sets that so many filters make, and the one that they come to.
func (v *view) chargeFilters(filters int) error {
	if filters == 0 {
		return nil
	}
	return v.charge(int64(filters+1) * v.setBytes())
}

// tolerate tells whether an error only means that the time was over and the caller takes what was reached.
func (v *view) tolerate(err error) bool {
	if !v.allowPartial || !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	v.partial = true
	return true
}

// checkDefaultFields checks the fields that the call wants searched.
func (v *view) checkDefaultFields() *api.Problem {
	sch := v.sch
	if v.lenient {
		sch = v.lenientSchema(v.defaultFields)
	}
	return bound.CheckDefaultFields(sch, v.defaultFields)
}

// search ranks by a query. Query, filters and what is wanted are the caller's to set in r.
func (v *view) search(ctx context.Context, r exec.Request) (*exec.Result, error) {
	r.Stats, r.DefaultFields, r.Lenient, r.Cache, r.Trace, r.AllowPartial = v.stats, v.defaultFields, v.lenient, v.node.filters, v.trace, v.allowPartial
	res, err := exec.Search(ctx, v.leaves, v.sch, v.analyzers, r)
	v.watch.Lap(bound.StageSearch)
	if err != nil {
		if !v.tolerate(err) {
			return nil, err
		}
		res = &exec.Result{TotalRelation: exec.AtLeast} // nothing was reached
	}
	v.partial = v.partial || res.Partial
	return res, nil
}

// vectorRequest is a vector search for k neighbours.
func (v *view) vectorRequest(q *api.KNN, k int, filters []query.Node) knn.Request {
	return knn.Request{
		Field: q.Field, Dense: q.Dense, Bits: q.Bits, Indices: q.Indices, Weights: q.Weights,
		K: k, Exact: q.Exact, Ef: q.Ef, Combiner: q.Combiner,
		Filters: filters, DefaultFields: v.defaultFields, Lenient: v.lenient, Cache: v.node.filters,
	}
}

// nearest runs a vector search. The plan is nil when the time was over before there was one.
func (v *view) nearest(ctx context.Context, r knn.Request) ([]exec.Hit, *knn.Plan, error) {
	res, err := knn.Search(ctx, v.leaves, v.sch, v.analyzers, r)
	v.watch.Lap(bound.StageKNN)
	if err != nil {
		if !v.tolerate(err) {
			return nil, nil, err
		}
		return nil, nil, nil
	}
	return res.Hits, &res.Plan, nil
}

// match finds the documents of a query and filters.
func (v *view) match(ctx context.Context, q query.Node, filters []query.Node) (*documents, error) {
	if err := v.charge(v.setBytes()); err != nil {
		return nil, err
	}
	m, err := exec.Match(ctx, v.leaves, v.sch, v.analyzers, q, filters, exec.MatchOptions{DefaultFields: v.defaultFields, Lenient: v.lenient, Cache: v.node.filters, Stats: v.stats})
	if err != nil {
		return nil, err
	}
	d := newDocuments(v.leaves)
	d.every, d.count = true, m.Count
	for li := range m.Leaves {
		d.sets[li] = m.Leaves[li].Set
	}
	return d, nil
}

// aggStep is the memory that facets and aggregations are charged at once. The first step belongs to the place of the search, so that
// those of few values and buckets never wait.
const aggStep = 1 << 20

// aggRoom charges the facets and aggregations of the search for bytes in all. Searches that find no room go beyond it one at a
// time, so that none waits for memory that is held by another that waits.
func (v *view) aggRoom(ctx context.Context, bytes int64) error {
	if bytes <= v.aggCharged+aggStep || v.aggBeyond {
		return nil
	}
	more := (bytes - v.aggCharged - 1) / aggStep * aggStep
	p, err := v.node.aggregations.TryEnter(more)
	if err == nil {
		v.held = append(v.held, p)
		v.aggCharged += more
		return nil
	}
	began := time.Now()
	p, err = v.node.aggBeyond.Enter(ctx, 1)
	v.watch.Waited(time.Since(began))
	if err != nil {
		if r, ok := errors.AsType[*admit.Refusal](err); ok {
			r.Limit = v.node.aggregations.Limit()
		}
		return err
	}
	v.held = append(v.held, p)
	v.aggBeyond = true
	return nil
}
