package readtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sdl = `index i {
  field id: text<raw> [indexed, stored, fast, primary]
  field title: text [indexed<token_position>, stored]
  field body: text [indexed<token_position>, stored]
  field tag: text<raw> [indexed, stored<multi>, fast]
  field num: i64 [stored, fast]
  field v: dense_vector<4> [indexed<metric: cosine>, stored]
}`

type document struct {
	ID    string    `json:"id"`
	Title string    `json:"title,omitempty"`
	Body  string    `json:"body,omitempty"`
	Tag   []string  `json:"tag,omitempty"`
	Num   *int64    `json:"num,omitempty"`
	V     []float32 `json:"v,omitempty"`
}

// start starts a node with an empty index i.
func start(t testing.TB) leaf.Member {
	t.Helper()
	n, err := node.New(node.Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	<-n.Opened()
	l := n.Leaf()
	if _, err := l.PutIndex(context.Background(), &leaf.PutIndexRequest{Index: "i", Schema: sdl}); err != nil {
		t.Fatal(err)
	}
	return l
}

// cluster is some nodes that share the documents, and one that has all of them.
type cluster struct {
	t     testing.TB
	one   leaf.Member
	nodes []leaf.Member
	state *members.State
	all   *read.Reader

	local int // answers that came with the statistics of the shards
}

// State and Stale make it a read.Source.
func (c *cluster) State() *members.State { return c.state }

func (c *cluster) Stale(context.Context, *members.State) (*members.State, error) {
	return nil, errors.New("the map does not change")
}

func newCluster(t testing.TB, groups int) *cluster {
	t.Helper()
	c := &cluster{t: t, one: start(t)}
	byAddr := map[string]leaf.Member{}
	var list []shardmap.Group
	for g := range groups {
		addr := fmt.Sprint("node", g)
		c.nodes = append(c.nodes, start(t))
		byAddr[addr] = c.nodes[g]
		list = append(list, shardmap.Group{Members: []string{addr}})
	}
	m, err := shardmap.New(placement.Ring, 0, list)
	if err != nil {
		t.Fatal(err)
	}
	if c.state, err = members.NewState(m, nil, func(addr string) (leaf.Member, error) { return byAddr[addr], nil }); err != nil {
		t.Fatal(err)
	}
	if c.all, err = read.New(c, read.Options{}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) load(docs []document) {
	c.t.Helper()
	parts := make([][]document, len(c.nodes))
	for _, d := range docs {
		own := c.state.Owner(d.ID).Ordinal
		parts[own] = append(parts[own], d)
	}
	put := func(l leaf.Member, docs []document) {
		c.t.Helper()
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		for i := range docs {
			if err := enc.Encode(&docs[i]); err != nil {
				c.t.Fatal(err)
			}
		}
		if r, err := l.Bulk(context.Background(), &leaf.BulkRequest{Index: "i"}, &b); err != nil || !r.OK && len(docs) > 0 {
			c.t.Fatalf("%+v, %v", r, err)
		}
	}
	put(c.one, docs)
	for i, n := range c.nodes {
		if len(parts[i]) > 0 {
			put(n, parts[i])
		}
	}
}

func (c *cluster) remove(ids []string) {
	c.t.Helper()
	for _, l := range append(slices.Clone(c.nodes), c.one) {
		if _, err := l.DeleteMany(context.Background(), &leaf.DeleteRequest{Index: "i", IDs: ids}); err != nil {
			c.t.Fatal(err)
		}
	}
}

func parse(t testing.TB, q string) query.Node {
	t.Helper()
	n, err := query.Parse(q, query.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stats are the sums over the cluster of what a query scores.
func (c *cluster) stats(q query.Node) *score.Stats {
	c.t.Helper()
	r, err := c.all.Stats(context.Background(), &leaf.StatsRequest{Index: "i", Query: q})
	if err != nil {
		c.t.Fatal(err)
	}
	return &r.Stats
}

var exact = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
}

// search holds a search with the statistics of the whole against that of the one node. It returns the answer of the cluster.
func (c *cluster) search(what string, req leaf.SearchRequest) *leaf.SearchReply {
	c.t.Helper()
	req.Index = "i"
	want, err := c.one.Search(context.Background(), &req)
	if err != nil {
		c.t.Fatalf("%s: one node: %v", what, err)
	}
	req.Stats, req.LocalStats = c.stats(req.Query), true
	got, err := c.all.Search(context.Background(), &req)
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	if d := cmp.Diff(want.Hits, got.Hits, exact); d != "" {
		c.t.Fatalf("%s: hits: −one node +cluster\n%s", what, d)
	}
	if d := cmp.Diff(want.Shown, got.Shown, exact); d != "" {
		c.t.Fatalf("%s: shown: −one node +cluster\n%s", what, d)
	}
	switch {
	case req.Total != exec.TotalAtLeast:
		if want.Total != got.Total || want.TotalRelation != got.TotalRelation {
			c.t.Fatalf("%s: total %d %s, want %d %s", what, got.Total, got.TotalRelation, want.Total, want.TotalRelation)
		}
	default:
		whole := req
		whole.Total = exec.TotalExact
		exactly, err := c.one.Search(context.Background(), &whole)
		if err != nil {
			c.t.Fatal(err)
		}
		if got.TotalRelation == exec.Exactly && got.Total != exactly.Total ||
			got.TotalRelation == exec.AtLeast && (got.Total > exactly.Total || got.Total < req.TotalFloor) ||
			got.TotalRelation != exec.Exactly && got.TotalRelation != exec.AtLeast {
			c.t.Fatalf("%s: total %d %s of %d, floor %d", what, got.Total, got.TotalRelation, exactly.Total, req.TotalFloor)
		}
	}
	if want.Docs != got.Docs || got.Partial || !cmp.Equal(want.Notes, got.Notes, cmpopts.EquateEmpty()) {
		c.t.Fatalf("%s: −one node %d %v, +cluster %d %v", what, want.Docs, want.Notes, got.Docs, got.Notes)
	}
	// Approximation by the statistics of a shard is what the one node says of its own.
	approximate := slices.DeleteFunc(slices.Clone(want.Approximate), func(s string) bool {
		return s == leaf.ApproximateLocal || s == leaf.ApproximateTotal
	})
	have := slices.DeleteFunc(slices.Clone(got.Approximate), func(s string) bool { return s == leaf.ApproximateTotal })
	if !slices.Equal(approximate, have) {
		c.t.Fatalf("%s: approximate %v, want %v", what, have, approximate)
	}
	// What the shards have now is what the search was made with: the caller sees that the sums hold.
	if got.LocalStats != nil {
		c.local++
		if !sameStats(got.LocalStats, req.Stats) {
			c.t.Fatalf("%s: the local statistics are %+v together, not %+v", what, got.LocalStats, req.Stats)
		}
	}
	return got
}

// sameStats compares statistics; a term that no document holds may be left out.
func sameStats(a, b *score.Stats) bool {
	for _, x := range [2][2]*score.Stats{{a, b}, {b, a}} {
		for t, n := range x[0].DF {
			if x[1].DF[t] != n {
				return false
			}
		}
		for f, n := range x[0].Fields {
			if x[1].Fields[f] != n {
				return false
			}
		}
	}
	return a.Docs == b.Docs
}

var words = []string{"warp", "weft", "loom", "reed", "shed", "yarn", "wale", "woof", "wool", "silk", "hemp", "linen"}

func randomDocuments(rnd *rand.Rand, from, to int) []document {
	text := func(n int) string {
		var list []string
		for range rnd.IntN(n) {
			list = append(list, words[min(rnd.IntN(len(words)), rnd.IntN(len(words)))])
		}
		return strings.Join(list, " ")
	}
	var out []document
	for i := from; i < to; i++ {
		d := document{ID: fmt.Sprintf("d%04d", i), Title: text(5), Body: text(14)}
		for range rnd.IntN(3) {
			d.Tag = append(d.Tag, fmt.Sprint("t", rnd.IntN(5)))
		}
		if rnd.IntN(4) > 0 {
			n := int64(rnd.IntN(30) - 10)
			d.Num = &n
		}
		if rnd.IntN(4) > 0 {
			d.V = []float32{1 + rnd.Float32(), rnd.Float32() - 0.5, rnd.Float32() - 0.5, float32(rnd.IntN(2))}
		}
		out = append(out, d)
	}
	return out
}

var orders = [][]exec.SortKey{
	nil, nil,
	{{By: exec.ByScore, Desc: true}},
	{{By: exec.ByField, Field: "num", Desc: true, Mode: exec.Greatest}},
	{{By: exec.ByField, Field: "num", MissingFirst: true}, {By: exec.ByScore, Desc: true}},
	{{By: exec.ByField, Field: "tag"}, {By: exec.ByID, Desc: true}},
	{{By: exec.ByID}},
}

var queries = []string{
	"*", "warp", "weft loom", "+silk warp", `"warp weft"`, `"warp loom"~2 wool`, "w*", "title:w* -body:silk", "(warp^2 OR hemp)^0.5",
	"num:[0 TO 9]", "tag:t1 warp", "_exists_:num", "linen^3 wo*", "none", "NOT warp",
}

func TestNodesAnswerLikeOne(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 5))
			c := newCluster(t, 1+int(seed)*2)
			c.load(randomDocuments(rnd, 0, 300))
			c.load(randomDocuments(rnd, 250, 400)) // some are replaced
			var gone []string
			for i := 0; i < 400; i += 1 + rnd.IntN(12) {
				gone = append(gone, fmt.Sprintf("d%04d", i))
			}
			c.remove(gone)
			for range 35 {
				q := queries[rnd.IntN(len(queries))]
				req := leaf.SearchRequest{
					Query: parse(t, q), Limit: rnd.IntN(30), Sort: orders[rnd.IntN(len(orders))],
					Total: exec.TotalMode(rnd.IntN(3)), TotalFloor: uint64(1 + rnd.IntN(100)),
				}
				if rnd.IntN(3) == 0 {
					req.Filters = []query.Node{parse(t, queries[rnd.IntN(len(queries))])}
				}
				if rnd.IntN(3) == 0 {
					req.Show = &leaf.Show{Source: true, Highlight: &api.Highlight{Fields: []string{"title"}, Fragments: 1, FragmentSize: 40, Pre: "<", Post: ">"}}
				}
				for page := range 3 {
					got := c.search(fmt.Sprintf("%s, order %v, page %d", q, req.Sort, page), req)
					if len(got.Hits) == 0 {
						break
					}
					last := got.Hits[len(got.Hits)-1]
					req.After = exec.AfterHit(&exec.Hit{Key: last.ID, Score: last.Score, Sort: last.Sort})
				}
				c.aggregate(q, req.Query, req.Filters)
			}
			for range 10 {
				req := &leaf.KNNRequest{Index: "i", KNN: api.KNN{Field: "v", Dense: []float32{rnd.Float32(), rnd.Float32(), 0.3, 0.1}, K: rnd.IntN(40), Exact: true}}
				want, err := c.one.KNN(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.all.KNN(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want.Hits, got.Hits, exact); d != "" || want.Docs != got.Docs {
					t.Fatalf("knn: −one node +cluster\n%s", d)
				}
			}
			c.lists(rnd)
			if c.local < 20 {
				t.Errorf("only %d answers came with the statistics of the shards", c.local)
			}
		})
	}
}

// aggregate holds aggregations over what a query finds against those of the one node.
func (c *cluster) aggregate(what string, q query.Node, filters []query.Node) {
	c.t.Helper()
	specs, err := agg.Parse("s:stats(num),t:terms(tag,0),p:percentiles(num,50,90),c:cardinality(id),h:histogram(num,5)")
	if err != nil {
		c.t.Fatal(err)
	}
	req := &leaf.AggregateRequest{Index: "i", Query: q, Filters: filters, Specs: specs, Values: []string{"num", "tag"}}
	want, err := c.one.Aggregate(context.Background(), req)
	if err != nil {
		c.t.Fatalf("%s: one node: %v", what, err)
	}
	with := *req
	with.Stats = c.stats(q)
	got, err := c.all.Aggregate(context.Background(), &with)
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	if want.Docs != got.Docs || want.Matched != got.Matched || !bytes.Equal(want.State.AppendBinary(nil), got.State.AppendBinary(nil)) {
		c.t.Fatalf("%s: the aggregations over %d of %d and %d of %d documents differ", what, want.Matched, want.Docs, got.Matched, got.Docs)
	}
	for i := range want.Values {
		for _, v := range []*leaf.FieldValues{&want.Values[i], &got.Values[i]} {
			slices.Sort(v.Numbers)
			slices.Sort(v.Texts)
		}
	}
	ignoreType := cmpopts.IgnoreFields(leaf.FieldValues{}, "Type")
	if d := cmp.Diff(want.Values, got.Values, cmpopts.EquateEmpty(), ignoreType); d != "" {
		c.t.Fatalf("%s: values: −one node +cluster\n%s", what, d)
	}
}

// lists holds what goes by ids against the one node.
func (c *cluster) lists(rnd *rand.Rand) {
	c.t.Helper()
	ctx := context.Background()
	list := func(ids func(ctx context.Context, req *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error), req *leaf.IDsRequest) []string {
		var out []string
		r, err := ids(ctx, req, func(page []string) error { out = append(out, page...); return nil })
		if err != nil {
			c.t.Fatal(err)
		}
		return append(out, r.Next)
	}
	for _, limit := range []int{0, 1, 57} {
		req := &leaf.IDsRequest{Index: "i", Limit: limit, After: fmt.Sprintf("d%04d", rnd.IntN(400))}
		if want, got := list(c.one.IDs, req), list(c.all.IDs, req); !slices.Equal(want, got) {
			c.t.Fatalf("ids %+v: %q, want %q", req, got, want)
		}
	}
	var some []string
	for range 200 {
		some = append(some, fmt.Sprintf("d%04d", rnd.IntN(420)))
	}
	export := func(l interface {
		Export(ctx context.Context, req *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error)
	},
	) []string {
		var out []string
		r, err := l.Export(ctx, &leaf.ExportRequest{Index: "i", IDs: some}, func(d leaf.ExportedDoc) error {
			out = append(out, d.ID+string(d.Source))
			return nil
		})
		if err != nil {
			c.t.Fatal(err)
		}
		return append(out, r.Missing...)
	}
	if d := cmp.Diff(export(c.one), export(c.all)); d != "" {
		c.t.Fatalf("export: −one node +cluster\n%s", d)
	}
	compare(c.t, "has", c.one.Has, c.all.Has, &leaf.HasRequest{Index: "i", IDs: some})
	compare(c.t, "sums", c.one.Sums, c.all.Sums, &leaf.SumsRequest{Index: "i", IDs: some})
	compare(c.t, "sums by hash", c.one.Sums, c.all.Sums, &leaf.SumsRequest{Index: "i", Range: &leaf.HashRange{To: math.MaxUint32 / 3}, Limit: 100})
	compare(c.t, "digest", c.one.Digest, c.all.Digest, &leaf.DigestRequest{Index: "i", Depth: 5})
	compare(c.t, "docs", c.one.Docs, c.all.Docs, &leaf.DocsRequest{Index: "i"})
	q := parse(c.t, "warp w*")
	compare(c.t, "fetch", c.one.Fetch, c.all.Fetch, &leaf.FetchRequest{
		Index: "i", IDs: some[:50], Query: q, Stats: c.stats(q), Show: leaf.Show{Source: true, Explain: true},
	})
	compare(c.t, "fetch of many", c.one.Fetch, c.all.Fetch, &leaf.FetchRequest{Index: "i", IDs: some, Show: leaf.Show{Fields: []string{"title"}, Source: true}})
	info, err := c.all.Info(ctx, &leaf.InfoRequest{Index: "i"})
	if err != nil {
		c.t.Fatal(err)
	}
	want, err := c.one.Info(ctx, &leaf.InfoRequest{Index: "i"})
	if err != nil {
		c.t.Fatal(err)
	}
	if info.Index.Docs != want.Index.Docs || info.Index.Schema != want.Index.Schema || info.Index.State != want.Index.State || info.Index.Reason != "" {
		c.t.Errorf("info %+v, want %+v", info.Index, want.Index)
	}
}

func compare[Q, R any](t testing.TB, what string, one, all func(context.Context, *Q) (*R, error), req *Q) {
	t.Helper()
	want, err := one(context.Background(), req)
	if err != nil {
		t.Fatalf("%s: one node: %v", what, err)
	}
	got, err := all(context.Background(), req)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if d := cmp.Diff(want, got, exact, cmpopts.IgnoreTypes(leaf.Meta{})); d != "" {
		t.Fatalf("%s: −one node +cluster\n%s", what, d)
	}
}

// Of a prefix with more words than score, every shard scores those that are most frequent in the whole, and finds the documents of
// all of them.
func TestBroadPrefixesScoreLikeOnOneNode(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 6))
	c := newCluster(t, 3)
	var docs []document
	for i := range 1500 {
		d := document{ID: fmt.Sprintf("d%04d", i), Tag: []string{fmt.Sprint("t", i%5)}}
		for range 1 + rnd.IntN(6) {
			d.Title += fmt.Sprintf("p%04d ", int(3000*rnd.Float64()*rnd.Float64()))
			d.Body += fmt.Sprintf("q%04d p%04d ", rnd.IntN(2000), rnd.IntN(1500))
		}
		docs = append(docs, d)
	}
	c.load(docs)
	c.remove([]string{"d0003", "d0100", "d0777", "d1001"})
	capped := 0
	for _, q := range []string{"p*", "title:p* body:q*", "+p0* q*", "title:p1*", "p* -q00*", "(p*)^2 p0001", "p* p* q*"} {
		n := parse(t, q)
		for _, filter := range []string{"", "tag:t1", "p2*"} {
			req := leaf.SearchRequest{Query: n, Limit: 40}
			if filter != "" {
				req.Filters = []query.Node{parse(t, filter)}
			}
			got := c.search(q+" filtered by "+filter, req)
			if slices.Contains(got.Approximate, leaf.ApproximatePrefix) {
				capped++
			}
			req.Sort = []exec.SortKey{{By: exec.ByField, Field: "tag"}, {By: exec.ByScore, Desc: true}}
			c.search(q+" in order of tags, filtered by "+filter, req)
			c.aggregate(q, n, req.Filters)
		}
	}
	if capped < 9 {
		t.Errorf("only %d searches had more words than score", capped)
	}
	// The words of a match with the fewest documents in the whole are chosen on every shard.
	for range 20 {
		var text []string
		for range 12 {
			text = append(text, fmt.Sprintf("p%04d", rnd.IntN(400)))
		}
		n := &query.Match{Text: strings.Join(text, " "), MaxTerms: 1 + rnd.IntN(6)}
		c.search(n.String(), leaf.SearchRequest{Query: n, Limit: 30})
		c.aggregate(n.String(), n, nil)
	}
}
