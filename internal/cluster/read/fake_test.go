package read

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// document is what fakes hold.
type document struct {
	id    string
	score float32
	num   uint64
}

func (d *document) sum() (s leaf.Sum) {
	binary.BigEndian.PutUint64(s[:8], uint64(placement.Hash(d.id))<<32|d.num)
	binary.BigEndian.PutUint64(s[8:], ^d.num)
	return s
}

// noWrites are the calls of a member that do not read.
type noWrites struct{}

var errNotARead = errors.New("this is no read")

func (noWrites) DeleteMany(context.Context, *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return nil, errNotARead
}

func (noWrites) Index(context.Context, *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return nil, errNotARead
}

func (noWrites) Bulk(context.Context, *leaf.BulkRequest, io.Reader) (*leaf.BulkReply, error) {
	return nil, errNotARead
}

func (noWrites) PutIndex(context.Context, *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return nil, errNotARead
}

func (noWrites) DropIndex(context.Context, *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return nil, errNotARead
}

func (noWrites) Sync(context.Context, *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return nil, errNotARead
}

func (noWrites) Place(context.Context, *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	return nil, errNotARead
}
func (noWrites) Placed(context.Context) (*leaf.PlaceReply, error) { return nil, errNotARead }

// coordinator is a Reader as a member of another cluster.
type coordinator struct {
	*Reader
	noWrites
}

var _ leaf.Member = coordinator{}

// fake is a member that looks at every document for every call, and fails as it is told.
type fake struct {
	noWrites
	addr string

	mu     sync.Mutex
	docs   map[string]document
	epoch  uint64 // of the map that it has
	absent bool   // it does not have the index
	sdl    string
	// before is called first, with the name of the call; its error is that of the call. nil: nothing.
	before func(ctx context.Context, call string) error
	// change is called with every reply.
	change  func(reply any)
	nearest []int // K of every vector search

	calls atomic.Int64
}

var _ leaf.Member = (*fake)(nil)

func newFake(addr string, docs ...document) *fake {
	f := &fake{addr: addr, docs: map[string]document{}, sdl: "index i { field id: text<raw> [indexed, stored, fast, primary] }"}
	for _, d := range docs {
		f.docs[d.id] = d
	}
	return f
}

func (f *fake) fail(before func(ctx context.Context, call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

// kill makes the member one that cannot be reached.
func (f *fake) kill() {
	f.fail(func(_ context.Context, call string) error {
		return &leaf.TransportError{Address: f.addr, Call: call, Cause: errors.New("connection refused")}
	})
}

// look begins a call: it returns the documents that are seen, by id.
func (f *fake) look(ctx context.Context, call string, v leaf.View) ([]document, error) {
	f.calls.Add(1)
	f.mu.Lock()
	before, epoch, absent, docs := f.before, f.epoch, f.absent, f.docs
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, call); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	serve.Begun(ctx)
	if v.Epoch != 0 && v.Epoch < epoch {
		return nil, api.NewProblem(api.StaleMap, "")
	}
	if absent {
		return nil, api.NewProblem(api.IndexNotFound, "there is no such index")
	}
	var out []document
	for _, id := range slices.Sorted(maps.Keys(docs)) {
		if seen(v, id) {
			out = append(out, docs[id])
		}
	}
	return out, nil
}

func seen(v leaf.View, id string) bool {
	for _, s := range v.Owned {
		if placed(s.Spec).Shard(id) != s.Ordinal {
			return false
		}
	}
	return true
}

var placements sync.Map // *placement.Placement by spec

func placed(s placement.Spec) *placement.Placement {
	if p, ok := placements.Load(s); ok {
		return p.(*placement.Placement)
	}
	p, err := placement.New(s)
	if err != nil {
		panic(err)
	}
	placements.Store(s, p)
	return p
}

func (f *fake) meta() leaf.Meta {
	return leaf.Meta{Snapshot: leaf.Snapshot{Instance: 7, Version: 3}, Timings: []api.Timing{{Stage: "queue"}, {Stage: "search"}}}
}

// done ends a call.
func done[R any](f *fake, r *R) (*R, error) {
	if f.change != nil {
		f.change(r)
	}
	return r, nil
}

func (f *fake) Close() error { return nil }

func (f *fake) Ping(ctx context.Context) (*leaf.PingReply, error) {
	if _, err := f.look(ctx, "Ping", leaf.View{}); err != nil && !hasCode(err, api.IndexNotFound) {
		return nil, err
	}
	return &leaf.PingReply{Node: "node of " + f.addr}, nil
}

func (f *fake) info(docs []document) api.IndexInfo {
	return api.IndexInfo{Name: "i", Docs: uint64(len(docs)), Segments: 2, Bytes: int64(10 * len(docs)), Schema: f.sdl, State: "open"}
}

func (f *fake) Info(ctx context.Context, _ *leaf.InfoRequest) (*leaf.InfoReply, error) {
	docs, err := f.look(ctx, "Info", leaf.View{})
	if err != nil {
		return nil, err
	}
	return done(f, &leaf.InfoReply{Meta: f.meta(), Node: "node of " + f.addr, Version: "v1", Index: f.info(docs)})
}

func (f *fake) Indexes(ctx context.Context, _ *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	docs, err := f.look(ctx, "Indexes", leaf.View{})
	if hasCode(err, api.IndexNotFound) {
		return &leaf.IndexesReply{Meta: f.meta()}, nil
	}
	if err != nil {
		return nil, err
	}
	return done(f, &leaf.IndexesReply{Meta: f.meta(), Indexes: []api.IndexInfo{f.info(docs)}})
}

func (f *fake) Docs(ctx context.Context, req *leaf.DocsRequest) (*leaf.DocsReply, error) {
	docs, err := f.look(ctx, "Docs", req.View)
	if err != nil {
		return nil, err
	}
	return done(f, &leaf.DocsReply{Meta: f.meta(), Docs: uint64(len(docs))})
}

func (f *fake) Search(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	docs, err := f.look(ctx, "Search", req.View)
	if err != nil {
		return nil, err
	}
	out := &leaf.SearchReply{Meta: f.meta(), Docs: uint64(len(docs))}
	if req.Total != exec.TotalNone {
		out.Total, out.TotalRelation = uint64(len(docs)), exec.Exactly
	}
	if req.Total == exec.TotalAtLeast && out.Total > req.TotalFloor {
		out.Total, out.TotalRelation, out.Approximate = req.TotalFloor, exec.AtLeast, []string{leaf.ApproximateTotal}
	}
	for _, d := range docs {
		h := leaf.Hit{ID: d.id, Score: d.score}
		for _, k := range req.Sort {
			if k.By == exec.ByScore {
				h.Sort = append(h.Sort, exec.SortValue{Kind: exec.ScoreValue, Score: d.score})
			} else {
				h.Sort = append(h.Sort, exec.SortValue{Kind: exec.NumberValue, Number: d.num})
			}
		}
		if a := req.After; a != nil {
			at := leaf.Hit{ID: a.Key, Sort: a.Values}
			if len(req.Sort) == 0 {
				at.Score = a.Values[0].Score
			}
			if leaf.CompareHits(req.Sort, &h, &at) <= 0 {
				continue
			}
		}
		out.Hits = append(out.Hits, h)
	}
	slices.SortFunc(out.Hits, func(a, b leaf.Hit) int { return leaf.CompareHits(req.Sort, &a, &b) })
	out.Hits = out.Hits[:min(len(out.Hits), req.Limit)]
	if req.Show != nil {
		for _, h := range out.Hits {
			out.Shown = append(out.Shown, f.shown(h.ID))
		}
	}
	if req.KeepStats {
		out.Stats = &score.Stats{Docs: uint64(len(docs))}
	}
	if req.LocalStats {
		out.LocalStats = statsOf(docs)
	}
	return done(f, out)
}

func (f *fake) shown(id string) leaf.Shown {
	d, ok := f.docs[id]
	if !ok {
		return leaf.Shown{Missing: true}
	}
	return leaf.Shown{Source: fmt.Appendf(nil, `{"id":%q,"num":%d}`, d.id, d.num)}
}

// statsOf counts numbers as if they were words.
func statsOf(docs []document) *score.Stats {
	s := &score.Stats{Docs: uint64(len(docs)), Fields: map[string]score.FieldStats{"num": {SumLen: uint64(2 * len(docs)), Docs: uint64(len(docs))}}, DF: map[score.Term]uint64{}}
	for _, d := range docs {
		s.DF[score.Term{Field: "num", Text: fmt.Sprint(d.num)}]++
	}
	return s
}

func (f *fake) Stats(ctx context.Context, req *leaf.StatsRequest) (*leaf.StatsReply, error) {
	docs, err := f.look(ctx, "Stats", req.View)
	if err != nil {
		return nil, err
	}
	return done(f, &leaf.StatsReply{Meta: f.meta(), Stats: *statsOf(docs)})
}

func (f *fake) Aggregate(ctx context.Context, req *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	docs, err := f.look(ctx, "Aggregate", req.View)
	if err != nil {
		return nil, err
	}
	plan, err := agg.Bind(agg.Unplaced(req.Specs), numbers, agg.Options{})
	if err != nil {
		return nil, err
	}
	out := &leaf.AggregateReply{Meta: f.meta(), State: plan.NewState(), Docs: uint64(len(docs)), Matched: uint64(len(docs))}
	column := make(numColumn, len(docs))
	for i, d := range docs {
		column[i] = d.num
	}
	if err := out.State.Collect(ctx, numLeaf{column}, nil, true); err != nil {
		return nil, err
	}
	for _, name := range req.Values {
		v := leaf.FieldValues{Field: name}
		if len(docs) > 0 {
			v.Type, v.Numbers = schema.U64, column
		}
		out.Values = append(out.Values, v)
	}
	return done(f, out)
}

func (f *fake) KNN(ctx context.Context, req *leaf.KNNRequest) (*leaf.KNNReply, error) {
	f.mu.Lock()
	f.nearest = append(f.nearest, req.KNN.K)
	f.mu.Unlock()
	docs, err := f.look(ctx, "KNN", req.View)
	if err != nil {
		return nil, err
	}
	out := &leaf.KNNReply{Meta: f.meta(), Docs: uint64(len(docs))}
	for _, d := range docs {
		out.Hits = append(out.Hits, leaf.Neighbour{ID: d.id, Similarity: d.score})
	}
	slices.SortFunc(out.Hits, func(a, b leaf.Neighbour) int { return compareNeighbours(&a, &b) })
	out.Hits = out.Hits[:min(len(out.Hits), req.KNN.K)]
	return done(f, out)
}

// pageSize is small, so that lists have pages.
const pageSize = 7

func (f *fake) IDs(ctx context.Context, req *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	docs, err := f.look(ctx, "IDs", req.View)
	if err != nil {
		return nil, err
	}
	out := &leaf.IDsReply{Meta: f.meta()}
	var ids []string
	given := 0
	give := func() error {
		if len(ids) == 0 {
			return nil
		}
		given += len(ids)
		list := ids
		ids = nil
		if err := page(list); err != nil {
			return err
		}
		f.mu.Lock()
		before := f.before
		f.mu.Unlock()
		if before != nil {
			return before(ctx, "page of IDs")
		}
		return nil
	}
	for _, d := range docs {
		if d.id <= req.After {
			continue
		}
		if req.Limit > 0 && given+len(ids) == req.Limit {
			if err := give(); err != nil {
				return nil, err
			}
			out.Next = prev(docs, d.id)
			return done(f, out)
		}
		if ids = append(ids, d.id); len(ids) == pageSize {
			if err := give(); err != nil {
				return nil, err
			}
		}
	}
	if err := give(); err != nil {
		return nil, err
	}
	return done(f, out)
}

func prev(docs []document, id string) string {
	for i := range docs {
		if docs[i].id == id {
			return docs[i-1].id
		}
	}
	return ""
}

func (f *fake) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	docs, err := f.look(ctx, "Export", req.View)
	if err != nil {
		return nil, err
	}
	out := &leaf.ExportReply{Meta: f.meta()}
	for _, id := range req.IDs {
		if !holds(docs, id) {
			out.Missing = append(out.Missing, id)
			continue
		}
		if err := each(leaf.ExportedDoc{ID: id, Source: f.shown(id).Source}); err != nil {
			return nil, err
		}
		f.mu.Lock()
		before := f.before
		f.mu.Unlock()
		if before != nil {
			if err := before(ctx, "document of Export"); err != nil {
				return nil, err
			}
		}
	}
	return done(f, out)
}

func holds(docs []document, id string) bool {
	return slices.ContainsFunc(docs, func(d document) bool { return d.id == id })
}

func (f *fake) Has(ctx context.Context, req *leaf.HasRequest) (*leaf.HasReply, error) {
	docs, err := f.look(ctx, "Has", req.View)
	if err != nil {
		return nil, err
	}
	out := &leaf.HasReply{Meta: f.meta()}
	for _, id := range req.IDs {
		if !holds(docs, id) {
			out.Missing = append(out.Missing, id)
		}
	}
	return done(f, out)
}

func (f *fake) Fetch(ctx context.Context, req *leaf.FetchRequest) (*leaf.FetchReply, error) {
	docs, err := f.look(ctx, "Fetch", req.View)
	if err != nil {
		return nil, err
	}
	out := &leaf.FetchReply{Meta: f.meta()}
	for _, id := range req.IDs {
		shown := leaf.Shown{Missing: true}
		if holds(docs, id) {
			shown = f.shown(id)
		}
		out.Docs = append(out.Docs, shown)
	}
	return done(f, out)
}

func (f *fake) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	docs, err := f.look(ctx, "Sums", req.View)
	if err != nil {
		return nil, err
	}
	out := &leaf.SumsReply{Meta: f.meta()}
	if req.Range == nil {
		for _, id := range req.IDs {
			var sum leaf.Sum
			for i := range docs {
				if docs[i].id == id {
					sum = docs[i].sum()
				}
			}
			out.Sums = append(out.Sums, sum)
		}
		return done(f, out)
	}
	for i := range docs {
		d := &docs[i]
		if h := placement.Hash(d.id); h < req.Range.From || h > req.Range.To || d.id <= req.After {
			continue
		}
		if len(out.IDs) == req.Limit {
			out.Next = out.IDs[req.Limit-1]
			break
		}
		out.IDs, out.Sums = append(out.IDs, d.id), append(out.Sums, d.sum())
	}
	return done(f, out)
}

func (f *fake) Digest(ctx context.Context, req *leaf.DigestRequest) (*leaf.DigestReply, error) {
	docs, err := f.look(ctx, "Digest", req.View)
	if err != nil {
		return nil, err
	}
	n := 1 << req.Depth
	out := &leaf.DigestReply{Meta: f.meta(), Docs: make([]uint32, n), Sums: make([]leaf.Sum, n)}
	for i := range docs {
		at := uint64(placement.Hash(docs[i].id)) >> (32 - req.Depth)
		out.Docs[at]++
		sum := docs[i].sum()
		var carry uint
		for k := len(sum) - 1; k >= 0; k-- {
			carry += uint(out.Sums[at][k]) + uint(sum[k])
			out.Sums[at][k] = byte(carry)
			carry >>= 8
		}
	}
	return done(f, out)
}

// numbers is the schema of the documents for aggregations.
var numbers = &schema.Schema{Name: "i", Fields: []schema.Field{{Name: "num", Type: schema.U64, Fast: true}}}

// numColumn is one number for each document.
type numColumn []uint64

func (c numColumn) Values(doc uint32, dst []uint64) []uint64 { return append(dst, c[doc]) }
func (c numColumn) NumBlocks() int                           { return (len(c) + agg.ColumnBlock - 1) / agg.ColumnBlock }

func (c numColumn) BlockRange(b int) (lo, hi uint64, ok bool) {
	block := c[b*agg.ColumnBlock : min((b+1)*agg.ColumnBlock, len(c))]
	return slices.Min(block), slices.Max(block), true
}

// numLeaf is the documents of a fake for aggregations.
type numLeaf struct{ nums numColumn }

func (l numLeaf) NumDocs() uint32             { return uint32(len(l.nums)) }
func (l numLeaf) NumColumn(int) agg.NumColumn { return l.nums }
func (l numLeaf) StrColumn(int) agg.StrColumn { return nil }
func (l numLeaf) Filter(int) ([]uint64, bool) { return nil, true }

// source is a Source whose states the test makes.
type source struct {
	state atomic.Pointer[members.State]
	stale func(ctx context.Context, seen *members.State) (*members.State, error)
	asked atomic.Int64
}

func (s *source) State() *members.State { return s.state.Load() }

func (s *source) Stale(ctx context.Context, seen *members.State) (*members.State, error) {
	s.asked.Add(1)
	if s.stale == nil {
		return nil, errors.New("there is no newer map")
	}
	return s.stale(ctx, seen)
}

// cluster is groups of fakes.
type cluster struct {
	t      testing.TB
	groups [][]*fake
	others map[string]leaf.Member // by address, besides the fakes
	m      *shardmap.Map
	src    *source
}

// newCluster places documents over groups of members, addressed g0m0 and so on.
func newCluster(t testing.TB, docs []document, groups, size int) *cluster {
	t.Helper()
	c := &cluster{t: t, src: &source{}, others: map[string]leaf.Member{}}
	var list []shardmap.Group
	for g := range groups {
		var grp shardmap.Group
		var fakes []*fake
		for m := range size {
			addr := fmt.Sprintf("g%dm%d", g, m)
			grp.Members = append(grp.Members, addr)
			fakes = append(fakes, newFake(addr))
		}
		list = append(list, grp)
		c.groups = append(c.groups, fakes)
	}
	m, err := shardmap.New(placement.Ring, 0, list)
	if err != nil {
		t.Fatal(err)
	}
	c.use(m)
	for _, d := range docs {
		for _, f := range c.groups[c.src.State().Owner(d.id).Ordinal] {
			f.docs[d.id] = d
		}
	}
	return c
}

// stateOf makes the state of a map.
func (c *cluster) stateOf(m *shardmap.Map) *members.State {
	c.t.Helper()
	st, err := members.NewState(m, c.src.State(), func(addr string) (leaf.Member, error) {
		for _, fakes := range c.groups {
			for _, f := range fakes {
				if f.addr == addr {
					return f, nil
				}
			}
		}
		if l := c.others[addr]; l != nil {
			return l, nil
		}
		return nil, fmt.Errorf("nobody is at %s", addr)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return st
}

func (c *cluster) use(m *shardmap.Map) {
	c.t.Helper()
	c.m = m
	c.src.state.Store(c.stateOf(m))
}

func (c *cluster) reader(o Options) *Reader {
	c.t.Helper()
	r, err := New(c.src, o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return r
}

// numbered makes documents d000 and so on, with scores and numbers that repeat.
func numbered(n int) []document {
	var out []document
	for i := range n {
		out = append(out, document{id: fmt.Sprintf("d%03d", i), score: float32(i*7%13) / 3, num: uint64(i * 5 % 11)})
	}
	return out
}

func addresses(b *leaf.Below) string {
	var all []string
	for i, o := range b.Shards.Outcomes {
		if o.Shard != i {
			return fmt.Sprintf("outcome %d is of shard %d", i, o.Shard)
		}
		all = append(all, o.Address+" "+string(o.Outcome))
	}
	return strings.Join(all, ", ")
}
