package ranktest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
)

// spread are the numbers of shards that indexes lie on, and the rules that say so. An index of a rule is named p with the number.
var spread = []struct {
	shards int
	nodes  string // their numbers, in the order of the partitions
	rule   string
}{
	{1, "0", "p1=s0"},
	{2, "10", "p2=s1,s0"},
	{3, "203", "p3=s2:2,s0:1,s3:1"},
	{5, "01234", "p5=s0:5,s1:5,s2:4,s3:1,s4:3"},
	{8, "01234567", "p8=s0,s1,s2,s3,s4,s5,s6,s7"},
}

// cluster is a broker before eight nodes, and a node that has what all of them have.
type cluster struct {
	t      *testing.T
	nodes  []*server
	whole  *server
	broker *broker
	done   kinds
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, whole: startNode(t), done: kinds{Kinds: oracletest.Kinds{}, other: map[string]int{}}}
	var addrs, rules []string
	for range 8 {
		c.nodes = append(c.nodes, startNode(t))
		addrs = append(addrs, c.nodes[len(c.nodes)-1].addr)
	}
	for _, s := range spread {
		rules = append(rules, s.rule)
	}
	c.broker = startBroker(t, settings(t, addrs, rules...))
	return c
}

// kinds counts what was answered, and how.
type kinds struct {
	oracletest.Kinds
	other map[string]int
}

// wanted are the kinds that have to come beside those of queries.
var wanted = []string{
	"1 shards", "2 shards", "3 shards", "5 shards", "8 shards",
	"pointwise", "page", "whole", "candidates", "export", "reranked", "given statistics", "refused",
	"rrf", "sum", "formula", "formula of ranks", "formula and export", "votes", "trace",
	"as one node", "as one node, by scores", "as one node, by ranks", "as one node, by formula of ranks",
	"document", "no document", "info", "info of vectors", "statistics",
	"batch", "batch with errors", "stream", "stream with errors", "upsert", "upsert with errors", "delete", "delete with errors",
}

// ways are the ways in which a broker ranks; each has to come with every combiner, over every number of shards, and for a later page.
var ways = []string{"rrf", "sum", "formula", "formula of ranks"}

// allWanted are wanted and what ways have to come with.
var allWanted = sync.OnceValue(func() []string {
	out := slices.Clone(wanted)
	for _, way := range ways {
		out = append(out, way+", a page")
		for _, s := range spread[1:] {
			out = append(out, fmt.Sprint(way, " over ", s.shards))
		}
		for _, c := range slices.Sorted(maps.Keys(summapb.MultiValueCombiner_name)) {
			out = append(out, fmt.Sprint(way, " by ", summapb.MultiValueCombiner(c)))
		}
	}
	return out
})

func (k kinds) missing() []string {
	out := k.Missing()
	for _, w := range allWanted() {
		if k.other[w] == 0 {
			out = append(out, w)
		}
	}
	return out
}

// TestABrokerAnswersAsOneNode writes documents by chance through a broker to 1, 2, 3, 5 and 8 shards and to one node, and asks both the same.
// What a broker answers is the oracle's answer to the bit, the order of equals and the ranks that come of it included, for the places that
// its documents have; and one node's, but for the order of equals. It goes on until every kind has come.
func TestABrokerAnswersAsOneNode(t *testing.T) {
	seed := oracletest.Seed(t)
	c := newCluster(t)
	ran := 0
	rounds := oracletest.Rounds(len(spread), 200*len(spread))
	for round := range 8 * rounds {
		if round >= rounds && len(c.done.missing()) == 0 {
			break
		}
		if oracletest.Only(round) {
			ran++
			c.round(oracletest.NewWorld(seed, uint64(round)), round)
		}
	}
	t.Logf("%d rounds: %v %v", ran, c.done.other, c.done.Kinds)
	if missing := c.done.missing(); ran > 1 && len(missing) > 0 {
		t.Errorf("never came: %v", missing)
	}
}

// round fills an index twice, with requests after each time.
func (c *cluster) round(w oracletest.World, round int) {
	c.t.Helper()
	at := spread[round%len(spread)]
	sdl := oracletest.SDL(w.One([]string{"", ", query<max_terms: 3>"}))
	sch, err := summa.ParseSchema(sdl)
	if err != nil {
		c.t.Fatal(err)
	}
	an, err := exec.NewAnalyzers(sch)
	if err != nil {
		c.t.Fatal(err)
	}
	x := &index{cluster: c, w: w, n: 6 + w.IntN(50), order: at.nodes, name: fmt.Sprint("p", at.shards), sch: sch, an: an, written: map[string][]*summapb.FieldEntry{}}
	for _, s := range x.both() {
		if _, err := s.index.CreateIndex(c.t.Context(), &summapb.CreateIndexRequest{IndexName: x.name, Schema: sdl}); err != nil {
			c.t.Fatal(err)
		}
	}
	for half := range 2 {
		x.fill(x.n + x.n/3*half)
		x.learn()
		x.documents()
		x.infos()
		for i := range 40 {
			if w.IntN(8) == 0 {
				x.change() // no search sees it before the next commit
			}
			req := x.request()
			x.statistics(req)
			if diff := x.differs(req); diff != "" {
				req = oracletest.Shrink(req, func(r *summapb.SearchRequest) bool { return x.differs(r) != "" })
				c.t.Fatalf("round %d, request %d of half %d, %d documents in %d segments on %d shards:\n%s\n%s",
					round, i, half, len(x.live), len(x.parts.segments), at.shards, prototext.Format(req), x.differs(req))
			}
			c.done.other[fmt.Sprint(at.shards, " shards")]++
		}
	}
	for _, s := range x.both() {
		if r, err := s.index.DeleteIndex(c.t.Context(), &summapb.DeleteIndexRequest{IndexName: x.name}); err != nil || !r.Success {
			c.t.Fatal(r, err)
		}
	}
}

// index is one that the broker and the node have.
type index struct {
	*cluster
	w     oracletest.World
	n     int    // about how many documents
	order string // its nodes
	name  string
	sch   *schema.Schema
	an    exec.Analyzers

	written, live map[string][]*summapb.FieldEntry // with what is staged; what was committed
	parts, one    *layout
}

// layout is where documents lie.
type layout struct {
	oracle   *oracletest.Oracle
	segments []string          // by name; the oracle's leaves
	keys     map[string]string // by address
}

func (l *layout) leaf(segment string) int { return slices.Index(l.segments, segment) }

func (l *layout) same(o *layout) bool {
	return slices.Equal(l.segments, o.segments) && slices.Equal(l.oracle.Places(), o.oracle.Places())
}

func addressOf(a *summapb.DocAddress) string { return fmt.Sprint(a.GetSegmentId(), "/", a.GetDocId()) }

// both are the broker and the node.
func (x *index) both() [2]*server { return [2]*server{x.broker.server, x.whole} }

// request makes one by chance.
func (x *index) request() *summapb.SearchRequest {
	w := x.w
	req := w.Request(x.n, w.IntN(3) == 0)
	switch w.IntN(8) {
	case 0:
		req = w.Nominations(x.n)
	case 1, 2:
		req = w.Scored(x.n)
	case 3:
		req = x.fused()
	}
	if w.IntN(20) == 0 && req.L1 == nil && req.ScoreExport == nil {
		req.Limit, req.CandidateLimit = 0, 0 // means 10
	}
	req.IndexName, req.FieldsToLoad = x.name, x.fieldsToLoad()
	if f := req.Query.GetFusion(); f.GetMethod() != summapb.FusionMethod_FUSION_CANDIDATES {
		req.IncludeRrfScores = f != nil && w.IntN(4) == 0
		req.Tracing = w.IntN(6) == 0
	}
	return req
}

// fused is a fusion of vectors, whose scores are seldom equal, that looks at every document.
func (x *index) fused() *summapb.SearchRequest {
	w := x.w
	f := &summapb.FusionQuery{
		Method: summapb.FusionMethod(w.IntN(2)), RrfK: []float32{0, 1, 60}[w.IntN(3)], Combiner: summapb.MultiValueCombiner(w.IntN(6)),
	}
	for len(f.Queries) < 1+w.IntN(3) {
		if q := w.Request(x.n, true).Query; q.GetDenseVector() != nil || q.GetSparseVector() != nil {
			f.Queries = append(f.Queries, &summapb.WeightedQuery{Query: q, Weight: []float32{0, 1, 0.3, 2}[w.IntN(4)], Name: w.One([]string{"", "one", "two"})})
		}
	}
	req := &summapb.SearchRequest{Limit: uint32(4*x.n + 10), Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}}}
	if w.IntN(3) == 0 {
		f.Method, f.RrfK = 0, 0
		for i, q := range f.Queries {
			q.Weight, q.Name, q.Scope = 0, fmt.Sprint("b", i), summapb.ScoreScope(1+w.IntN(2))
		}
		req.L1 = &summapb.L1Ranking{Formula: "({b0} + (rrf * 10))"}
	}
	if w.IntN(3) == 0 {
		req.Offset = uint32(1 + w.IntN(x.n))
	}
	return req
}

func (x *index) fieldsToLoad() (out []string) {
	switch x.w.IntN(4) {
	case 0:
		return nil
	case 1:
		return []string{"id", "nowhere"}
	}
	all := x.w.IntN(2) == 0
	for i := range x.sch.Fields {
		if all || x.w.IntN(3) == 0 {
			out = append(out, x.sch.Fields[i].Name)
		}
	}
	return out
}

// learn asks where the documents lie, which the order of equals depends on. It tells whether that is elsewhere than before.
func (x *index) learn() (moved bool) {
	x.t.Helper()
	var parts *layout
	for parts == nil { // a merge may come between
		parts = x.spreadOut()
	}
	one := x.layout(x.whole)
	moved = x.parts == nil || !parts.same(x.parts) || !one.same(x.one)
	x.parts, x.one = parts, one
	return moved
}

// spreadOut is the layout of what the broker has: a segment lies on the shard whose node knows it. Nil: it changed meanwhile.
func (x *index) spreadOut() *layout {
	x.t.Helper()
	parts := x.layout(x.broker.server)
	part := make([]int, len(parts.segments))
	for i := range part {
		part[i] = -1
	}
	var names []string
	for i, number := range x.order {
		names = append(names, "s"+string(number))
		r, err := x.nodes[number-'0'].search.Search(x.t.Context(), everything(x.name, len(x.live)))
		if err != nil {
			x.t.Fatal(err)
		}
		for _, h := range r.Hits {
			if leaf := parts.leaf(h.Address.SegmentId); leaf >= 0 {
				if part[leaf] >= 0 && part[leaf] != i {
					x.t.Fatalf("two nodes have the segment %s", h.Address.SegmentId)
				}
				part[leaf] = i
			}
		}
	}
	if slices.Contains(part, -1) {
		return nil
	}
	parts.oracle.Sharded(part, names)
	return parts
}

func everything(index string, docs int) *summapb.SearchRequest {
	return &summapb.SearchRequest{
		IndexName: index, Limit: uint32(docs) + 10, FieldsToLoad: []string{"id"}, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}},
	}
}

// layout asks a server where its documents lie. They have to be those that were committed.
func (x *index) layout(s *server) *layout {
	x.t.Helper()
	r, err := s.search.Search(x.t.Context(), everything(x.name, len(x.live)))
	if err != nil {
		x.t.Fatal(err)
	}
	l := &layout{oracle: oracletest.New(x.sch, x.an), keys: map[string]string{}}
	for _, h := range r.Hits {
		if l.leaf(h.Address.SegmentId) < 0 {
			l.segments = append(l.segments, h.Address.SegmentId)
		}
	}
	if !slices.IsSorted(l.segments) {
		x.t.Fatalf("documents that score the same are not in the order of segments: %v", l.segments)
	}
	var places []oracletest.Place
	found := map[string]bool{}
	for _, h := range r.Hits {
		key := h.Fields["id"].GetValues()[0].GetText()
		fields, ok := x.live[key]
		if !ok || found[key] {
			x.t.Fatalf("document %s is found and not in the index, or twice", key)
		}
		found[key] = true
		l.oracle.Add(key, l.leaf(h.Address.SegmentId), h.Address.DocId, fields)
		places = append(places, oracletest.Place{Key: key, Leaf: l.leaf(h.Address.SegmentId), Doc: h.Address.DocId})
		l.keys[addressOf(h.Address)] = key
	}
	l.oracle.Ready()
	if len(found) != len(x.live) || int(r.TotalHits) != len(found) {
		x.t.Fatalf("%d documents and a total of %d, want %d", len(found), r.TotalHits, len(x.live))
	}
	if !slices.Equal(places, l.oracle.Places()) {
		x.t.Fatalf("documents that score the same are not in the order of places: %v", places)
	}
	return l
}

// differs tells how an answer differs from what it should be. Merges go on behind the requests, so a difference counts only where the
// documents lie as they did before it.
func (x *index) differs(req *summapb.SearchRequest) string {
	x.t.Helper()
	for {
		diff := x.compare(req)
		if diff == "" || !x.learn() {
			return diff
		}
	}
}

func (x *index) compare(req *summapb.SearchRequest) string {
	x.t.Helper()
	w, bad := admitted(req)
	got, err := x.broker.search.Search(x.t.Context(), req)
	one, oneErr := x.whole.search.Search(x.t.Context(), req)
	switch {
	case err != nil && status.Code(err) != codes.InvalidArgument:
		return fmt.Sprint("error ", err)
	case err == nil && bad != nil:
		return fmt.Sprint("is answered, and should be refused: ", bad)
	case bad != nil:
		return ""
	case err != nil:
		if diff := x.parts.oracle.Differs(req, w, nil, x.parts.leaf); diff != "" {
			return fmt.Sprint(diff, ": ", err)
		}
		x.done.other["refused"]++
		return ""
	}
	if diff := x.parts.oracle.Differs(req, w, got, x.parts.leaf); diff != "" {
		return diff
	}
	if diff := x.loaded(req, got); diff != "" {
		return diff
	}
	if diff := x.trace(req, got.Trace); diff != "" {
		return diff
	}
	if got.MissingPartitions != 0 || got.Truncated != (one.GetTruncated() && oneErr == nil) && req.TimeBudgetMs == 0 {
		return fmt.Sprintf("%d partitions are missing, truncated: %v", got.MissingPartitions, got.Truncated)
	}
	x.count(req)
	// What one node looks at in all, each shard may look at for itself: where some candidates are left out, more are found.
	if _, bad := (summa.Limits{}).CheckSearch(req); bad != nil {
		return "" // of the depth, see admitted
	}
	if min(w.Candidates, w.Depth) < len(x.live) {
		if oneErr != nil || !alone(req.Query) || req.Reranker != nil || req.TextStats != nil {
			return ""
		}
		x.done.other["as one node, by scores"]++
		return sameScores(got, one)
	}
	if oneErr != nil {
		return fmt.Sprint("is answered, and one node refuses it: ", oneErr)
	}
	if req.Reranker.GetRrfK() > 0 || req.TextStats != nil {
		return "" // ranks of equals depend on the layout; a word that statistics lack counts with those of the shard
	}
	if by := x.ranks(req); by != "" {
		if x.tied(req, w) {
			return "" // their ranks depend on the layout
		}
		x.done.other["as one node, by "+by]++
	}
	x.done.other["as one node"]++
	return x.asOne(req, got, one)
}

// admitted is what a node says of a request, but for the depth of a fusion that the broker ranks, which need not be scored for that.
func admitted(req *summapb.SearchRequest) (w summa.Window, err error) {
	f := req.Query.GetFusion()
	if f.GetCandidateDepth() == 0 || f.Method == summapb.FusionMethod_FUSION_CANDIDATES || !oracletest.Coordinated(req) || req.L1 != nil || req.ScoreExport != nil {
		return summa.Limits{}.CheckSearch(req)
	}
	req = proto.CloneOf(req)
	req.Query.GetFusion().CandidateDepth = 0
	if w, err = (summa.Limits{}).CheckSearch(req); err == nil && int(f.CandidateDepth) > 2*w.Hits() {
		err = errors.New("combined shard nomination budget exceeded")
	}
	w.Depth = int(f.CandidateDepth)
	return w, err
}

// trace holds what the oracle does not know of traces against the request.
func (x *index) trace(req *summapb.SearchRequest, t *summapb.SearchTrace) string {
	if !req.Tracing {
		if t != nil {
			return "is traced"
		}
		return ""
	}
	x.done.other["trace"]++
	if len(t.GetShards()) != len(x.order) {
		return fmt.Sprintf("has traces of %d shards", len(t.GetShards()))
	}
	queries := []*summapb.Query{req.Query}
	if f := req.Query.GetFusion(); f != nil {
		queries = nil
		for _, q := range f.Queries {
			queries = append(queries, q.Query)
		}
	}
	for i, s := range t.Shards {
		if want := string(rune('a' + x.order[i] - '0')); s.BackendId != want {
			return fmt.Sprintf("trace %d is of %s, want %s", i, s.BackendId, want)
		}
		if s.Truncated || len(s.Queries) != len(queries) || !slices.EqualFunc(s.Filters, req.Query.GetFusion().GetFilters(), func(a, b *summapb.Query) bool { return proto.Equal(a, b) }) {
			return fmt.Sprintf("trace %d: truncated %v, %d queries, filters %v", i, s.Truncated, len(s.Queries), s.Filters)
		}
		for k, q := range s.Queries {
			if !proto.Equal(q.Query, queries[k]) {
				return fmt.Sprintf("trace %d is of the query %v, want %v", i, q.Query, queries[k])
			}
		}
	}
	return ""
}

// ranks tells whether reciprocal ranks are a part of the answer, and of which.
func (x *index) ranks(req *summapb.SearchRequest) string {
	f := req.Query.GetFusion()
	switch {
	case f == nil:
	case req.L1 != nil && strings.Contains(req.L1.Formula, "rrf"):
		return "formula of ranks"
	case req.IncludeRrfScores:
		return "votes"
	case req.L1 == nil && req.ScoreExport == nil && f.Method == summapb.FusionMethod_FUSION_RRF:
		return "ranks"
	}
	return ""
}

// tied tells whether two scores of one branch are equal.
func (x *index) tied(req *summapb.SearchRequest, w summa.Window) bool {
	x.t.Helper()
	f := proto.CloneOf(req.Query.GetFusion())
	f.Method, f.CandidateDepth = summapb.FusionMethod_FUSION_CANDIDATES, uint32(w.Depth)
	f.Queries = slices.DeleteFunc(f.Queries, func(q *summapb.WeightedQuery) bool { return q.ScoreOnly })
	r, err := x.whole.search.Search(x.t.Context(), &summapb.SearchRequest{
		IndexName: x.name, Limit: uint32(len(f.Queries) * w.Depth), TextStats: req.TextStats, Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}},
	})
	if err != nil {
		x.t.Fatalf("what is nominated: %v", err)
	}
	for _, l := range r.FusionCandidates {
		documents, values := map[float32]bool{}, map[float32]bool{}
		rows := 0
		for _, c := range l.Candidates {
			documents[c.Score] = true
			for _, o := range c.OrdinalScores {
				values[o.Score] = true
				rows++
			}
		}
		if len(documents) < len(l.Candidates) || len(values) < rows {
			return true
		}
	}
	return false
}

// count notes what a request was made of that was answered.
func (x *index) count(req *summapb.SearchRequest) {
	x.done.Add(req)
	o := x.done.other
	if x.name == "p1" { // passed on, most of it
		return
	}
	if !oracletest.Coordinated(req) {
		o["pointwise"]++
	}
	way := ""
	switch f := req.Query.GetFusion(); {
	case !oracletest.Coordinated(req):
	case req.L1 != nil:
		if way = "formula"; strings.Contains(req.L1.Formula, "rrf") {
			way = "formula of ranks"
		}
		if req.ScoreExport != nil {
			o["formula and export"]++
		}
	case f.GetMethod() == summapb.FusionMethod_FUSION_RRF && f != nil && req.ScoreExport == nil && req.Reranker == nil:
		way = "rrf"
	case f.GetMethod() == summapb.FusionMethod_FUSION_NORMALIZED_WEIGHTED_SUM && req.ScoreExport == nil && req.Reranker == nil:
		way = "sum"
	}
	if way != "" {
		o[way]++
		o[fmt.Sprint(way, " over ", len(x.order))]++
		o[fmt.Sprint(way, " by ", req.Query.GetFusion().GetCombiner())]++
		if req.Offset > 0 {
			o[way+", a page"]++
		}
	}
	if req.IncludeRrfScores {
		o["votes"]++
	}
	if req.Offset > 0 {
		o["page"]++
	}
	if int(req.Limit) > len(x.live) {
		o["whole"]++
	}
	if f := req.Query.GetFusion(); f.GetMethod() == summapb.FusionMethod_FUSION_CANDIDATES && f != nil {
		o["candidates"]++
	}
	if req.ScoreExport != nil {
		o["export"]++
	}
	if req.Reranker != nil {
		o["reranked"]++
	}
	if req.TextStats != nil {
		o["given statistics"]++
	}
}

// loaded holds the fields of hits against the documents.
func (x *index) loaded(req *summapb.SearchRequest, got *summapb.SearchResponse) string {
	for _, h := range got.Hits {
		key := x.parts.keys[addressOf(h.Address)]
		want := &summapb.SearchHit{Fields: fieldsOf(x.live[key], func(name string) bool { return slices.Contains(req.FieldsToLoad, name) })}
		if have := (&summapb.SearchHit{Fields: h.Fields}); !bytes.Equal(wireOf(x.t, have), wireOf(x.t, want)) {
			return fmt.Sprintf("document %s has the fields %v, want %v", key, have, want)
		}
	}
	return ""
}

// fieldsOf are the values that are stored of a document.
func fieldsOf(entries []*summapb.FieldEntry, of func(name string) bool) map[string]*summapb.FieldValueList {
	out := map[string]*summapb.FieldValueList{}
	for _, e := range entries {
		if !of(e.Name) {
			continue
		}
		if out[e.Name] == nil {
			out[e.Name] = &summapb.FieldValueList{}
		}
		out[e.Name].Values = append(out[e.Name].Values, storedValue(e.Value))
	}
	return out
}

// storedValue is what is kept of a value: equal dimensions of a sparse vector add up.
func storedValue(v *summapb.FieldValue) *summapb.FieldValue {
	sum := map[uint32]float32{}
	given := v.GetSparseVector()
	for k, i := range given.GetIndices() {
		sum[i] += given.Values[k]
	}
	if len(sum) == len(given.GetIndices()) {
		return v
	}
	out := &summapb.SparseVector{Indices: slices.Sorted(maps.Keys(sum))}
	for _, i := range out.Indices {
		out.Values = append(out.Values, sum[i])
	}
	return &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: out}}
}

// wireOf tells apart what proto.Equal does not: the two zeros.
func wireOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// alone says whether a query has no clauses, which nominate for themselves.
func alone(q *summapb.Query) bool {
	return q.GetBoolean() == nil && q.GetBoost() == nil && q.GetFusion() == nil && q.GetMatch().GetProximityWeight() == 0
}

// sameScores compares scores rank by rank.
func sameScores(got, one *summapb.SearchResponse) string {
	scores := func(m *summapb.SearchResponse) (out []string) {
		for _, h := range m.Hits {
			out = append(out, oracletest.Score(h.Score))
		}
		return out
	}
	if a, b := scores(got), scores(one); !slices.Equal(a, b) {
		return fmt.Sprintf("scores %v, of one node %v", a, b)
	}
	return ""
}

// asOne compares with the answer of one node: scores rank by rank, and the documents of each score, but where a page cuts through them.
func (x *index) asOne(req *summapb.SearchRequest, got, one *summapb.SearchResponse) string {
	if diff := sameScores(got, one); diff != "" {
		return diff
	}
	if got.RankingMethod != one.RankingMethod && one.RankingMethod != "" || got.SeededDocumentPassages != one.SeededDocumentPassages {
		return fmt.Sprintf("ranked by %q, seeded %v; by one node %q, %v", got.RankingMethod, got.SeededDocumentPassages, one.RankingMethod, one.SeededDocumentPassages)
	}
	groups := func(m *summapb.SearchResponse, l *layout) (out []string) {
		for i := 0; i < len(m.Hits); {
			var group []string
			k := i
			for ; k < len(m.Hits) && m.Hits[k].Score == m.Hits[i].Score; k++ {
				h := m.Hits[k]
				line := l.keys[addressOf(h.Address)]
				rows := slices.Clone(h.OrdinalScores)
				slices.SortFunc(rows, func(a, b *summapb.OrdinalScore) int {
					return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Score, b.Score))
				})
				if req.L1 != nil {
					rows = nil // a node tells those that the score needs, a broker a number of them
				}
				for _, r := range rows {
					line += fmt.Sprintf(" %d:%s", r.Ordinal, oracletest.Score(r.Score))
				}
				if h.CandidateScores != nil {
					line += fmt.Sprintf(" %x", wireOf(x.t, h.CandidateScores))
				}
				group = append(group, line)
			}
			slices.Sort(group)
			if i > 0 && k < len(m.Hits) || len(m.Hits) == len(x.live) { // else others of the score may be outside of the page
				out = append(out, strings.Join(group, "\n"))
			}
			i = k
		}
		return out
	}
	a, b := groups(got, x.parts), groups(one, x.one)
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("the %d. score:\n%s\nof one node:\n%s", i+1, strings.Join(a[min(i, len(a)):min(i+1, len(a))], ""), strings.Join(b[min(i, len(b)):min(i+1, len(b))], ""))
		}
	}
	return ""
}

// documents asks for each document by its address.
func (x *index) documents() {
	x.t.Helper()
	get := func(s *server, a string) (*summapb.GetDocumentResponse, error) {
		segment, doc, _ := strings.Cut(a, "/")
		req := &summapb.GetDocumentRequest{IndexName: x.name, Address: &summapb.DocAddress{SegmentId: segment}}
		if _, err := fmt.Sscan(doc, &req.Address.DocId); err != nil {
			x.t.Fatal(err)
		}
		return s.search.GetDocument(x.t.Context(), req)
	}
	for tries := 0; ; tries++ {
		moved := false
		for a, key := range x.parts.keys {
			r, err := get(x.broker.server, a)
			if err != nil && x.learn() {
				moved = true // a merge came between
				break
			}
			if err != nil {
				x.t.Fatalf("document %s at %s: %v", key, a, err)
			}
			want := &summapb.GetDocumentResponse{Fields: fieldsOf(x.live[key], func(string) bool { return true })}
			if !bytes.Equal(wireOf(x.t, r), wireOf(x.t, want)) {
				x.t.Fatalf("document %s:\n got %v\nwant %v", key, r, want)
			}
			x.done.other["document"]++
		}
		if !moved {
			break
		}
	}
	for _, a := range []string{strings.Repeat("0", 32) + "/0", x.parts.segments[0] + "/100000", "nonsense/0"} {
		_, err := get(x.broker.server, a)
		_, oneErr := get(x.whole, a)
		if got, want := status.Convert(err), status.Convert(oneErr); got.Code() != want.Code() || !strings.HasSuffix(got.Message(), want.Message()) {
			x.t.Errorf("document %s: %v, of one node %v", a, err, oneErr)
		}
		x.done.other["no document"]++
	}
}

// infos asks for what the index is.
func (x *index) infos() {
	x.t.Helper()
	ask := func(s *server) *summapb.GetIndexInfoResponse {
		r, err := s.search.GetIndexInfo(x.t.Context(), &summapb.GetIndexInfoRequest{IndexName: x.name})
		if err != nil {
			x.t.Fatal(err)
		}
		return r
	}
	got, one := ask(x.broker.server), ask(x.whole)
	deleted := got.NumDeletedDocs+one.NumDeletedDocs > 0
	// What depends on segments is for the merges to say.
	for _, m := range []*summapb.GetIndexInfoResponse{got, one} {
		if m.PhysicalNumDocs != uint64(m.NumDocs)+m.NumDeletedDocs || m.NumSegments == 0 ||
			m.DeletedRatio != float64(m.NumDeletedDocs)/float64(max(m.PhysicalNumDocs, 1)) {
			x.t.Errorf("counts do not add up: %v", m)
		}
		m.NumSegments, m.PhysicalNumDocs, m.NumDeletedDocs, m.DeletedRatio, m.MemoryStats = 0, 0, 0, 0, nil
		for _, v := range m.VectorStats {
			v.AvgTermsPerVector = float32(math.Round(float64(v.AvgTermsPerVector)*1e4) / 1e4) // a sum of averages
		}
		if deleted { // whose vectors count until they are merged away
			m.VectorStats = nil
		}
	}
	if int(got.NumDocs) != len(x.live) || !proto.Equal(got, one) {
		if got.Schema == one.Schema {
			got.Schema, one.Schema = "", ""
		}
		x.t.Errorf("of %d documents:\n got %v\nwant %v", len(x.live), got, one)
	}
	if !deleted {
		x.done.other["info of vectors"]++
	}
	x.done.other["info"]++
}

// statistics asks for those of a request's query.
func (x *index) statistics(req *summapb.SearchRequest) {
	x.t.Helper()
	if x.w.IntN(4) > 0 {
		return
	}
	ask := &summapb.GetTextStatsRequest{IndexName: x.name, Query: req.Query}
	got, err := x.broker.search.GetTextStats(x.t.Context(), ask)
	one, oneErr := x.whole.search.GetTextStats(x.t.Context(), ask)
	if status.Code(err) != status.Code(oneErr) || !strings.HasSuffix(status.Convert(err).Message(), status.Convert(oneErr).Message()) {
		x.t.Errorf("statistics: %v, of one node %v: %v", err, oneErr, ask)
	}
	if err == nil && oneErr == nil {
		if !proto.Equal(got, one) {
			x.t.Errorf("statistics of %v:\n got %v\nwant %v", ask, got, one)
		}
		x.done.other["statistics"]++
	}
}

// fill writes until there are n documents, and commits them.
func (x *index) fill(n int) {
	x.t.Helper()
	for len(x.written) < n {
		x.change()
		if x.w.IntN(3) == 0 {
			x.put()
		}
	}
	x.put()
}

// put commits, and merges by chance.
func (x *index) put() {
	x.t.Helper()
	for _, s := range x.both() {
		r, err := s.index.Commit(x.t.Context(), &summapb.CommitRequest{IndexName: x.name})
		if err != nil || !r.Success || int(r.NumDocs) != len(x.written) {
			x.t.Fatalf("%v, %v: want %d documents", r, err, len(x.written))
		}
	}
	x.live = maps.Clone(x.written)
	for _, s := range x.both() {
		if x.w.IntN(4) == 0 {
			r, err := s.index.ForceMerge(x.t.Context(), &summapb.ForceMergeRequest{IndexName: x.name, Compact: x.w.IntN(2) == 0})
			if err != nil || !r.Success {
				x.t.Fatal(r, err)
			}
		}
	}
}

// change writes or deletes some documents in one call, of which some are refused, and checks what is said of each of them: by the broker and
// by the node.
func (x *index) change() {
	x.t.Helper()
	key := func() string { return fmt.Sprintf("k%03d", x.w.IntN(3*x.n)) }
	kind := []string{"delete", "upsert", "batch", "stream"}[x.w.IntN(4)]
	var accepted [2]uint32
	var errs [2][]*summapb.DocumentError
	inputs := 0
	if kind == "delete" {
		var keys []string
		for range 1 + x.w.IntN(6) {
			k := key()
			if x.w.IntN(12) == 0 {
				k = ""
			}
			keys = append(keys, k)
			delete(x.written, k)
		}
		inputs = len(keys)
		for i, s := range x.both() {
			r, err := s.index.DeleteDocuments(x.t.Context(), &summapb.DeleteDocumentsRequest{IndexName: x.name, PrimaryKeys: keys})
			if err != nil {
				x.t.Fatal(err)
			}
			accepted[i], errs[i] = r.AcceptedCount, r.Errors
		}
	} else {
		var docs []*summapb.NamedDocument
		for range 1 + x.w.IntN(1+x.n/4) {
			k := key()
			d := &summapb.NamedDocument{Fields: x.w.Document(k)}
			whole := x.spoil(d)
			docs = append(docs, d)
			if _, there := x.written[k]; whole && (!there || kind == "upsert") {
				x.written[k] = d.Fields
			}
		}
		inputs = len(docs)
		for i, s := range x.both() {
			accepted[i], errs[i] = x.write(s, kind, docs)
		}
	}
	for i := range errs[0] {
		errs[0][i].Error = oneNodes(errs[0][i].Error)
	}
	if accepted[0] != accepted[1] || !slices.EqualFunc(errs[0], errs[1], func(a, b *summapb.DocumentError) bool { return proto.Equal(a, b) }) {
		x.t.Fatalf("%s: %d accepted, errors %v\nof one node: %d, errors %v", kind, accepted[0], errs[0], accepted[1], errs[1])
	}
	if int(accepted[0])+len(errs[0]) != inputs {
		x.t.Fatalf("%s: of %d, %d are accepted and %d refused", kind, inputs, accepted[0], len(errs[0]))
	}
	if x.name == "p1" {
		return
	}
	x.done.other[kind]++
	if len(errs[0]) > 0 {
		x.done.other[kind+" with errors"]++
	}
}

// oneNodes is the text of one node where the broker has its own.
func oneNodes(text string) string {
	if text == "document has no 'id' primary key value; a partitioned index cannot route it" {
		return "Document error: Missing primary key field"
	}
	return text
}

// spoil makes some documents such that they are refused. It tells whether it did not.
func (x *index) spoil(d *summapb.NamedDocument) bool {
	isKey := func(e *summapb.FieldEntry) bool { return e.Name == "id" }
	switch x.w.IntN(16) {
	case 0: // no key
		d.Fields = slices.DeleteFunc(d.Fields, isKey)
	case 1: // two
		d.Fields = append(d.Fields, &summapb.FieldEntry{Name: "id", Value: oracletest.Text("another")})
	case 2:
		d.Fields = append(d.Fields, &summapb.FieldEntry{Name: "nowhere", Value: oracletest.Text("x")})
	case 3:
		d.Fields = append(d.Fields, &summapb.FieldEntry{Name: "u", Value: oracletest.Text("no number")})
	default:
		return true
	}
	return false
}

func (x *index) write(s *server, kind string, docs []*summapb.NamedDocument) (accepted uint32, errs []*summapb.DocumentError) {
	x.t.Helper()
	switch kind {
	case "upsert":
		r, err := s.index.UpsertDocuments(x.t.Context(), &summapb.UpsertDocumentsRequest{IndexName: x.name, Documents: docs})
		if err != nil {
			x.t.Fatal(err)
		}
		return r.AcceptedCount, r.Errors
	case "batch":
		r, err := s.index.BatchIndexDocuments(x.t.Context(), &summapb.BatchIndexDocumentsRequest{IndexName: x.name, Documents: docs})
		if err != nil {
			x.t.Fatal(err)
		}
		if int(r.ErrorCount) != len(r.Errors) {
			x.t.Fatalf("%d errors, counted as %d", len(r.Errors), r.ErrorCount)
		}
		return r.IndexedCount, r.Errors
	}
	st, err := s.index.IndexDocuments(context.WithoutCancel(x.t.Context()))
	if err != nil {
		x.t.Fatal(err)
	}
	for _, d := range docs {
		if err := st.Send(&summapb.IndexDocumentRequest{IndexName: x.name, Fields: d.Fields}); err != nil {
			x.t.Fatal(err)
		}
	}
	r, err := st.CloseAndRecv()
	if err != nil {
		x.t.Fatal(err)
	}
	return r.IndexedCount, r.Errors
}
