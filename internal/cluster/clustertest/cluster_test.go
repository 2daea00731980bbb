package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/cluster/search"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a node.
type server struct {
	*node.Node
	t testing.TB
}

func newServer(t testing.TB) *server {
	t.Helper()
	n, err := node.New(node.Config{DataDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Errorf("close node: %v", err)
		}
	})
	<-n.Opened()
	return &server{n, t}
}

// do sends a request and returns status and body.
func (s *server) do(method, target, ctype, body string) (int, []byte) {
	s.t.Helper()
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	if ctype != "" {
		req.Header.Set("Content-Type", ctype)
	}
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, req)
	return rec.Code, rec.Body.Bytes()
}

func (s *server) must(method, target, ctype, body string) {
	s.t.Helper()
	if status, b := s.do(method, target, ctype, body); status/100 != 2 {
		s.t.Fatalf("%s %s: %d %.300s", method, target, status, b)
	}
}

// pair is one node with all documents, and a cluster with the same.
type pair struct {
	t        testing.TB
	whole    *server
	shards   []*server // one: the member is the leaf of the node itself
	place    *placement.Placement
	member   leaf.Member
	searcher *search.Searcher
	rng      *rand.Rand
	held     int // answers so far
	known    map[string]*schema.Schema
	leaves   map[string]leaf.Member // by address
}

var limits = api.SearchLimits{Hits: 10_000, Timeout: 10 * time.Minute}

// newPair makes a cluster of so many shards; of none it is the node itself, without anything between.
func newPair(t testing.TB, shards int, seed uint64) *pair {
	t.Helper()
	p := &pair{t: t, known: map[string]*schema.Schema{}, whole: newServer(t), rng: rand.New(rand.NewPCG(seed, 7))}
	if shards == 0 {
		p.member = p.whole.Leaf()
		t.Cleanup(func() { closed(t, p.member) })
	} else {
		m := &shardmap.Map{Epoch: 1, Rule: placement.Ring, VNodes: 128, Placed: shards}
		leaves := map[string]leaf.Member{}
		for i := range shards {
			s := newServer(t)
			addr := "shard" + strconv.Itoa(i)
			leaves[addr] = s.Leaf()
			t.Cleanup(func() { closed(t, leaves[addr]) })
			p.shards = append(p.shards, s)
			m.Groups = append(m.Groups, shardmap.Group{Members: []string{addr}})
		}
		state, err := members.NewState(m, nil, func(addr string) (leaf.Member, error) { return leaves[addr], nil })
		if err != nil {
			t.Fatal(err)
		}
		p.place, p.leaves = state.Visible(), leaves
		r, err := read.New(fixed{state}, read.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		p.member = reader{r: r}
	}
	var err error
	p.searcher, err = search.New(search.Options{Member: p.member, Schemas: p.schemas, Address: "node"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closed(t testing.TB, l leaf.Member) {
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// fixed is a cluster that does not change.
type fixed struct{ state *members.State }

func (f fixed) State() *members.State { return f.state }

func (f fixed) Stale(context.Context, *members.State) (*members.State, error) {
	return nil, fmt.Errorf("the map is stale")
}

// reader is a Reader as a member: writing is no part of it.
type reader struct {
	leaf.Member
	r *read.Reader
}

func (r reader) Close() error { return nil }

func (r reader) Info(ctx context.Context, q *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return r.r.Info(ctx, q)
}

func (r reader) Search(ctx context.Context, q *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return r.r.Search(ctx, q)
}

func (r reader) Stats(ctx context.Context, q *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return r.r.Stats(ctx, q)
}

func (r reader) Aggregate(ctx context.Context, q *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return r.r.Aggregate(ctx, q)
}

func (r reader) KNN(ctx context.Context, q *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return r.r.KNN(ctx, q)
}

func (r reader) Fetch(ctx context.Context, q *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return r.r.Fetch(ctx, q)
}

func (r reader) IDs(ctx context.Context, q *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error) {
	return r.r.IDs(ctx, q, page)
}

func (r reader) Export(ctx context.Context, q *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	return r.r.Export(ctx, q, each)
}

// schemas asks the node with all documents, and remembers what it says.
func (p *pair) schemas(ctx context.Context, index string, fresh bool) (*schema.Schema, error) {
	if sch := p.known[index]; sch != nil && !fresh {
		return sch, nil
	}
	l := p.whole.Leaf()
	defer closed(p.t, l)
	info, err := l.Info(ctx, &leaf.InfoRequest{Index: index})
	if err != nil {
		return nil, err
	}
	p.known[index], err = schema.ParseSDL(info.Index.Schema, text.Check)
	return p.known[index], err
}

// all are all nodes.
func (p *pair) all() []*server { return append([]*server{p.whole}, p.shards...) }

// declare makes an index everywhere.
func (p *pair) declare(name, sdl string) {
	p.t.Helper()
	delete(p.known, name)
	for _, s := range p.all() {
		s.must(http.MethodPut, "/indexes/"+name, "text/plain", sdl)
	}
}

// write puts documents where they belong.
func (p *pair) write(index string, docs map[string]any) {
	p.t.Helper()
	lines := make([]strings.Builder, len(p.shards)+1)
	for id, doc := range docs {
		line, err := json.Marshal(doc)
		if err != nil {
			p.t.Fatal(err)
		}
		at := []int{0}
		if p.shards != nil {
			at = append(at, 1+p.place.Shard(id))
		}
		for _, i := range at {
			lines[i].Write(line)
			lines[i].WriteByte('\n')
		}
	}
	for i, s := range p.all() {
		if lines[i].Len() > 0 {
			s.must(http.MethodPost, "/index/bulk?index="+index, "application/x-ndjson", lines[i].String())
		}
	}
}

// remove deletes a document where it is.
func (p *pair) remove(index, id string) {
	p.t.Helper()
	target := "/index?index=" + index + "&id=" + url.QueryEscape(id)
	p.whole.must(http.MethodDelete, target, "", "")
	if p.shards != nil {
		p.shards[p.place.Shard(id)].must(http.MethodDelete, target, "", "")
	}
}

// searches answers a request with the Searcher: status and body as an HTTP front would give them.
func (p *pair) searches(method, target, body string) (int, []byte) {
	p.t.Helper()
	var req *api.SearchRequest
	var prob *api.Problem
	if method == http.MethodGet {
		u, err := url.Parse(target)
		if err != nil {
			p.t.Fatal(err)
		}
		req, prob = api.ParseSearch(u.Query(), limits)
	} else {
		req, prob = api.ParseSearchBody([]byte(body), "", limits)
	}
	var reply *api.SearchReply
	if prob == nil {
		reply, prob = p.searcher.Search(context.Background(), req, nil)
	}
	if prob != nil {
		return prob.HTTPStatus(), prob.AppendJSON(nil)
	}
	return http.StatusOK, reply.AppendJSON(nil)
}

// compare holds the answers of both to one request against each other, and returns that of the cluster.
func (p *pair) compare(method, target, body string) map[string]any {
	p.t.Helper()
	ctype := ""
	if body != "" {
		ctype = "application/json"
	}
	status, want := p.whole.do(method, target, ctype, body)
	gotStatus, got := p.searches(method, target, body)
	p.hold(gotStatus, got)
	a, b := p.tidy(want), p.tidy(got)
	if d := gocmp.Diff(a, b); d != "" || status != gotStatus {
		p.t.Fatalf("%s %.300s %.1000s: status %d, node %d\n(-node +cluster) %s", method, target, body, gotStatus, status, d)
	}
	return decode(p.t, got)
}

func decode(t testing.TB, b []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // scores are compared to the bit
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%.300s: %v", b, err)
	}
	return m
}

// tidy decodes an answer without what has to differ: times, addresses and the number of shards, ids of requests, the plan of a vector
// search and the profile.
func (p *pair) tidy(b []byte) map[string]any {
	p.t.Helper()
	m := decode(p.t, b)
	for _, name := range []string{"took_ms", "timings", "shards", "request_id", "profile"} {
		delete(m, name)
	}
	if e, ok := m["explain"].(map[string]any); ok {
		delete(e, "knn")
	}
	if len(p.shards) > 1 {
		if m["total_relation"] == "gte" { // counted by each shard up to the floor
			delete(m, "total")
		}
		if m["code"] == string(api.AggregationLimit) { // how far beyond it depends on the documents of the shard
			delete(m, "detail")
		}
	}
	return m
}

// document is what replies have to fit.
var document = sync.OnceValue(func() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		panic(err)
	}
	return doc
})

// hold holds one in some answers of the cluster against the document.
func (p *pair) hold(status int, b []byte) {
	p.t.Helper()
	if p.held++; p.held%11 != 1 {
		return
	}
	name := "SearchReply"
	if status != http.StatusOK {
		name = "Problem"
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		p.t.Fatal(err)
	}
	if status != http.StatusOK {
		m["request_id"] = "1" // the front says which
	}
	if err := document().Components.Schemas[name].Value.VisitJSON(any(m), openapi3.EnableJSONSchema2020()); err != nil {
		p.t.Errorf("%.500s does not fit the document: %v", b, err)
	}
}

func (p *pair) post(body map[string]any) map[string]any {
	p.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.compare(http.MethodPost, "/search", string(b))
}

func (p *pair) get(params string) map[string]any {
	p.t.Helper()
	return p.compare(http.MethodGet, "/search?"+params, "")
}

const modelSchema = `index m {
  field id: text<raw> [indexed, stored, fast, primary]
  field title: text [indexed<token_position>, stored]
  field body: text<lex(default: en, stop_words: true, stem: snowball)> [indexed<token_position>, stored]
  field tag: text<raw> [indexed, stored<multi>, fast]
  field n: i64 [stored<multi>, fast]
  field f: f64 [stored, fast]
  field at: date [stored, fast]
  field v: dense_vector<4> [indexed<metric: cosine>, stored<multi>]
  field bits: binary_dense_vector<16> [indexed, stored]
  field sp: sparse_vector [indexed, stored]
  field hidden: i64 [fast]
  default_fields: [title, body]
}`

var words = []string{"warp", "weft", "loom", "reed", "shed", "yarn", "weaving", "weaver", "woven", "threads"}

func (p *pair) word() string { return words[min(p.rng.IntN(len(words)), p.rng.IntN(len(words)))] }

func (p *pair) sentence(n int) string {
	var out []string
	for range p.rng.IntN(n) {
		out = append(out, p.word())
	}
	return strings.Join(out, " ")
}

func (p *pair) doc(id string) map[string]any {
	r := p.rng
	d := map[string]any{"id": id, "title": p.sentence(6), "body": p.sentence(30), "hidden": r.IntN(5)}
	var tags []string
	for range r.IntN(4) {
		tags = append(tags, "t"+strconv.Itoa(r.IntN(5)))
	}
	d["tag"] = tags
	var n []int
	for range r.IntN(3) {
		n = append(n, r.IntN(20)-10)
	}
	d["n"] = n
	if r.IntN(4) > 0 {
		d["f"] = float64(r.IntN(40))/4 - 5
	}
	if r.IntN(4) > 0 {
		d["at"] = time.Date(2024, time.Month(1+r.IntN(3)), 1+r.IntN(28), r.IntN(24), 0, 0, 0, time.UTC).Format(time.RFC3339)
	}
	var v [][]float32
	for range r.IntN(3) {
		v = append(v, p.vector())
	}
	if v != nil {
		d["v"] = v
	}
	if r.IntN(2) > 0 {
		d["bits"] = []byte{byte(r.IntN(256)), byte(r.IntN(256))}
	}
	if r.IntN(2) > 0 {
		d["sp"] = map[string]any{"indices": []int{r.IntN(3), 3 + r.IntN(3)}, "values": []int{1 + r.IntN(4), 1 + r.IntN(4)}}
	}
	return d
}

func (p *pair) vector() []float32 {
	r := p.rng
	return []float32{1 + float32(r.IntN(9)), float32(r.IntN(9)) - 4, float32(r.IntN(9)) - 4, float32(r.IntN(9)) - 4}
}

// fill writes so many documents, and changes and deletes some.
func (p *pair) fill(n int) {
	p.t.Helper()
	p.declare("m", modelSchema)
	docs := map[string]any{}
	for i := range n {
		id := fmt.Sprintf("d%03d", i)
		docs[id] = p.doc(id)
	}
	p.write("m", docs)
	for range n / 10 {
		id := fmt.Sprintf("d%03d", p.rng.IntN(n))
		p.write("m", map[string]any{id: p.doc(id)})
		p.remove("m", fmt.Sprintf("d%03d", p.rng.IntN(n)))
	}
}

// pick returns one of several.
func pick[T any](p *pair, of ...T) T { return of[p.rng.IntN(len(of))] }

func (p *pair) query() string {
	r := p.rng
	return pick(p,
		p.word(), p.word()+" "+p.word(), p.word()+" "+p.word()+" "+p.word(), "*", "",
		"+"+p.word()+" -"+p.word()+" "+p.word(), `"`+p.word()+" "+p.word()+`"~2`, p.word()[:2]+"*", "w* r*", "title:"+p.word()+"^2.5 OR body:"+p.word(),
		"n:["+strconv.Itoa(r.IntN(10)-10)+" TO 5]", "tag:t1 OR "+p.word(), "_exists_:f AND "+p.word(), "nothing", "the", "("+p.word()+" OR "+p.word()+") AND "+p.word(),
		p.word()+" OR n:>0")
}

func (p *pair) filter() any {
	return pick[any](p, "tag:t1", "n:>=0", map[string]any{"exists": map[string]any{"field": "f"}}, p.word(), map[string]any{"terms": map[string]any{"field": "tag", "values": []string{"t0", "t3"}}},
		"title:w*", map[string]any{"bool": map[string]any{"must_not": "tag:t2"}})
}

func (p *pair) near() map[string]any {
	switch p.rng.IntN(4) {
	case 0:
		return map[string]any{"field": "bits", "bits": []byte{byte(p.rng.IntN(256)), 7}, "k": 1 + p.rng.IntN(20)}
	case 1:
		return map[string]any{"field": "sp", "indices": []int{0, 4}, "values": []float32{1, 2}, "k": 1 + p.rng.IntN(20)}
	case 2:
		return map[string]any{"field": "v", "vector": p.vector(), "k": 1 + p.rng.IntN(60), "combiner": pick(p, "max", "avg", "sum")}
	}
	return map[string]any{"field": "v", "vector": p.vector()}
}

// request is a search of any kind.
func (p *pair) request() map[string]any {
	r := p.rng
	body := map[string]any{"index": "m", "dfs": len(p.shards) > 1 || r.IntN(2) == 0}
	maybe := func(n int, name string, value any) {
		if r.IntN(n) == 0 {
			body[name] = value
		}
	}
	body["q"] = p.query()
	maybe(3, "filter", []any{p.filter(), p.filter()}[:1+r.IntN(2)])
	maybe(2, "limit", pick(p, 0, 1, 3, 20, 60, 200))
	maybe(3, "offset", pick(p, 0, 1, 7, 80, 500))
	maybe(3, "fields", pick(p, []string{}, []string{"title"}, []string{"tag", "n"}))
	maybe(4, "track_total", pick[any](p, "exact", "none", 5, 1000))
	maybe(4, "default_op", "and")
	maybe(5, "default_fields", pick(p, []string{"title"}, []string{"body", "title"}))
	maybe(4, "facets", pick(p, []string{"tag"}, []string{"tag", "n", "f"}))
	maybe(4, "aggs", pick[any](p, "a:stats(n),b:terms(tag,2),c:percentiles(f,50,90)", "h:histogram(f,2.5),d:date_histogram(at,1w),x:cardinality(tag)",
		map[string]any{"top": map[string]any{"kind": "terms", "field": "tag", "size": 3, "filter": "n:>0", "aggs": map[string]any{"s": map[string]any{"kind": "stats", "field": "f"}}}}))
	maybe(5, "highlight", pick[any](p, "title", map[string]any{"fields": []string{"*"}, "fragments": 2, "fragment_size": 40}))
	maybe(6, "min_coverage", 0.5)
	maybe(6, "allow_partial", pick(p, true, false))
	if r.IntN(4) == 0 {
		body["explain"] = true
		if n, ok := body["limit"].(int); ok {
			body["limit"] = min(n, 100)
		}
	}
	maybe(8, "profile", true)
	if r.IntN(3) == 0 {
		body["knn"] = p.near()
		maybe(2, "fusion", pick(p, "rrf", "weighted"))
		maybe(3, "weights", []float64{0.3, 0.7})
		maybe(3, "pool", 1+r.IntN(50))
	} else {
		maybe(3, "sort", pick(p, "n", "n:desc:min,id:desc", "tag:desc,score", "f:asc,at:desc", "score,n", "score:asc", "at:desc", "id:desc"))
		maybe(6, "knn_k", 7)
		maybe(6, "missing", "first")
		if body["sort"] == nil {
			delete(body, "missing")
		}
	}
	return body
}

func TestAnswersAreThoseOfANode(t *testing.T) {
	for _, shards := range []int{0, 1, 3} {
		t.Run(strconv.Itoa(shards)+" shards", func(t *testing.T) {
			for seed := range uint64(1) {
				p := newPair(t, shards, seed)
				p.fill(200)
				for range 150 {
					p.post(p.request())
				}
			}
		})
	}
}

func TestPagesAreThoseOfANode(t *testing.T) {
	for _, shards := range []int{0, 3} {
		t.Run(strconv.Itoa(shards)+" shards", func(t *testing.T) {
			p := newPair(t, shards, 3)
			p.fill(150)
			for _, order := range []string{"", "score:asc", "n,score", "tag:desc", "f,at"} {
				for _, q := range []string{"warp weft", "w*", "*", "tag:t1"} {
					body := map[string]any{"index": "m", "q": q, "limit": 7, "dfs": true, "fields": []string{}}
					if order != "" {
						body["sort"] = order
					}
					pages := 0
					for {
						reply := p.post(body)
						next, ok := reply["next"].(string)
						if pages++; !ok {
							break
						}
						body["after"] = next
						if pages == 2 { // what is written meanwhile does not disturb the order
							id := "new" + strconv.Itoa(p.rng.IntN(1000))
							p.write("m", map[string]any{id: p.doc(id)})
						}
					}
					if pages < 3 && q != "tag:t1" {
						t.Fatalf("%s by %q: %d pages", q, order, pages)
					}
				}
			}
		})
	}
}

func TestBadRequestsAreRefusedAsByANode(t *testing.T) {
	for _, shards := range []int{0, 3} {
		t.Run(strconv.Itoa(shards)+" shards", func(t *testing.T) {
			p := newPair(t, shards, 4)
			p.fill(40)
			for _, params := range badRequests {
				m := p.get(params)
				if m["code"] == nil {
					t.Errorf("%.200s was answered: %v", params, m["total"])
				}
			}
			for _, body := range badBodies {
				m := p.compare(http.MethodPost, "/search", body)
				if m["code"] == nil {
					t.Errorf("%.200s was answered: %v", body, m["total"])
				}
			}
		})
	}
}

var badRequests = []string{
	"index=nope&q=warp",
	"index=m&q=nope:1", "index=m&q=(", "index=m&q=n:abc", "index=m&q=hidden:x", "index=m&q=" + url.QueryEscape(`tag:"a b c"`+" AND nope:x"),
	"index=m&knn=v:1,2,3", "index=m&knn=v:1,2,3,4,5", "index=m&knn=v:0,0,0,0", "index=m&knn=bits:0xff", "index=m&knn=bits:1,2", "index=m&knn=title:1", "index=m&knn=nope:1",
	"index=m&q=warp&knn=nope:1,2", "index=m&q=nope:1&knn=v:1,2,3,4", "index=m&q=warp&knn=v:1,2,3,4&filter=nope:1",
	"index=m&sort=nope", "index=m&sort=title", "index=m&sort=v", "index=m&sort=num:tag", "index=m&sort=n:up",
	"index=m&facets=nope", "index=m&facets=title", "index=m&facets=v", "index=m&aggs=a:stats(tag)", "index=m&aggs=a:terms(title)",
	"index=m&aggs=a:histogram(n,0)", "index=m&aggs=a:histogram(n,0.00001)", "index=m&facets=tag&aggs=a:histogram(n,0.00001)", "index=m&aggs=a:percentiles(n,101)",
	"index=m&filter=nope:1", "index=m&filter=n:abc", "index=m&filter=n:[a+TO+b]", "index=m&filter=title:>a", "index=m&q=warp&filter=" + url.QueryEscape("tag:a AND nope:1"),
	"index=m&highlight=nope", "index=m&highlight=n", "index=m&after=zzz", "index=m&explain=true&limit=101", "index=m&fields=nope", "index=m&fields=hidden",
	"index=m&default_fields=nope&q=x", "index=m&default_fields=n&q=x", "index=m&q=" + strings.Repeat("a+", 1100), "index=m&q=warp^1e38^1e38&limit=3", "index=m&nope=1",
}

var badBodies = []string{
	`{"index":"m","aggs":{"a":{"kind":"terms","field":"tag","filter":"("}}}`,
	`{"index":"m","aggs":{"a":{"kind":"terms","field":"tag","filter":"nope:1"}}}`,
	`{"index":"m","aggs":{"out":{"kind":"terms","field":"tag","aggs":{"in":{"kind":"histogram","field":"f","interval":0.0000001}}}}}`,
	`{"index":"m","filter":{"range":{"field":"at","gte":"yesterday"}}}`,
	`{"index":"m","filter":{"term":{"field":"title","value":"warp"}}}`,
	`{"index":"m","aggs":{"a":{"kind":"filter","filter":{"exists":{"field":"gone"}}}}}`,
	`{"index":"m","highlight":{"fields":["title"],"pre":"\u0000"}}`,
	`{"index":"m","q":"warp","knn":{"field":"v","vector":[1,2,3,4]},"weights":[0,0]}`,
}

func TestDocumentsAreThoseOfANode(t *testing.T) {
	for _, shards := range []int{0, 3} {
		p := newPair(t, shards, 5)
		p.fill(30)
		for i := range 40 {
			id := fmt.Sprintf("d%03d", i)
			status, want := p.whole.do(http.MethodGet, "/doc?index=m&id="+id, "", "")
			source, prob := p.searcher.Get(t.Context(), "m", id)
			switch {
			case prob != nil:
				if prob.HTTPStatus() != status || gocmp.Diff(p.tidy(want), p.tidy(prob.AppendJSON(nil))) != "" {
					t.Errorf("%s: %+v, node %d %s", id, prob, status, want)
				}
			case status != http.StatusOK || string(want) != `{"id":"`+id+`","source":`+string(source)+"}":
				t.Errorf("%s: %s, node %d %s", id, source, status, want)
			}
		}
		if _, prob := p.searcher.Get(t.Context(), "nope", "x"); prob == nil || prob.Code != api.IndexNotFound {
			t.Errorf("an index that is not there: %+v", prob)
		}
	}
}

func TestRecallIsThatOfANode(t *testing.T) {
	for _, shards := range []int{0, 3} {
		p := newPair(t, shards, 6)
		p.fill(60)
		for _, req := range []search.RecallRequest{
			{Index: "m", Field: "v", K: 5, Samples: 7},
			{Index: "m", Field: "v", K: 3, Samples: 1000},
			{Index: "m", Field: "bits", K: 10, Samples: 100, Ef: 50},
			{Index: "m", Field: "nope", K: 5, Samples: 5},
			{Index: "m", Field: "title", K: 5, Samples: 5},
			{Index: "nope", Field: "v", K: 5, Samples: 5},
		} {
			target := fmt.Sprintf("/knn_recall?index=%s&field=%s&k=%d&samples=%d", req.Index, req.Field, req.K, req.Samples)
			if req.Ef > 0 {
				target += fmt.Sprintf("&ef=%d", req.Ef)
			}
			_, want := p.whole.do(http.MethodGet, target, "", "")
			reply, prob := p.searcher.Recall(t.Context(), req)
			got := reply.AppendJSON(nil)
			if prob != nil {
				got = prob.AppendJSON(nil)
			}
			if d := gocmp.Diff(p.tidy(want), p.tidy(got)); d != "" {
				t.Errorf("%s: (-node +cluster) %s", target, d)
			}
		}
	}
}

// TestABroadPrefixScoresAsOnANode: of more words than score, all shards choose the same, by how frequent they are in the whole.
func TestABroadPrefixScoresAsOnANode(t *testing.T) {
	for _, words := range []int{1500, 6000} { // with fewer than leaf.MaxLocalStats, and with more
		for _, shards := range []int{0, 3} {
			t.Run(fmt.Sprintf("%d words, %d shards", words, shards), func(t *testing.T) {
				p := newPair(t, shards, 8)
				p.declare("m", "index m { field t: text [indexed<token_position>, stored] }")
				docs := map[string]any{}
				for i := range words {
					id := fmt.Sprintf("%04d", i)
					docs[id] = map[string]any{"id": id, "t": fmt.Sprintf("w%d w%d w%d", i, i%700, i%61)}
				}
				p.write("m", docs)
				for range 2 { // the second time with what was remembered
					reply := p.post(map[string]any{"index": "m", "q": "w*", "dfs": true, "limit": 40})
					if reply["notes"] == nil || reply["next"] == nil {
						t.Fatalf("the prefix is not that broad: %v", reply["notes"])
					}
					p.post(map[string]any{"index": "m", "q": "w*", "dfs": true, "limit": 40, "after": reply["next"], "explain": true})
				}
				p.write("m", map[string]any{"more": map[string]any{"id": "more", "t": "w1 w1 w2"}})
				p.post(map[string]any{"index": "m", "q": "w*", "dfs": true, "limit": 40})
			})
		}
	}
}

// TestFieldsThatShardsLack: one shard alone has seen documents with some of the fields.
func TestFieldsThatShardsLack(t *testing.T) {
	p := newPair(t, 3, 9)
	few := "index m { field title: text [indexed<token_position>, stored] }"
	all := `index m { field title: text [indexed<token_position>, stored]
		field body: text<lex(default: en, stop_words: true, stem: snowball)> [indexed<token_position>, stored]
		field tag: text<raw> [indexed, stored<multi>, fast]
		field n: i64 [stored, fast]
		field v: dense_vector<2> [indexed<metric: cosine>, stored] }`
	p.declare("m", few)
	p.whole.must(http.MethodPut, "/indexes/m", "text/plain", all)
	p.shards[1].must(http.MethodPut, "/indexes/m", "text/plain", all)
	docs := map[string]any{}
	for i := range 60 {
		id := fmt.Sprintf("d%02d", i)
		d := map[string]any{"id": id, "title": p.sentence(6)}
		if p.place.Shard(id) == 1 {
			d["body"], d["tag"], d["n"], d["v"] = p.sentence(10), []string{"t" + strconv.Itoa(i%3)}, i, []int{1, i % 5}
		}
		docs[id] = d
	}
	p.write("m", docs)
	for _, body := range []map[string]any{
		{"q": "warp weaving"},
		{"q": "body:weaving"},
		{"q": "body:weaving OR title:warp", "explain": true},
		{"q": "the title:w*"},
		{"q": "tag:t1 weft"},
		{"q": "n:>3"},
		{"sort": "n:desc"},
		{"q": "weft", "sort": "tag,score"},
		{"facets": []string{"tag"}, "aggs": "s:stats(n),h:histogram(n,7),p:percentiles(n,50),r:range(n,..10,10..)"},
		{"q": "weft", "highlight": "*"},
		{"q": "weaver", "highlight": "body"},
		{"fields": []string{"tag", "n"}, "limit": 60},
		{"knn": "v:1,1"},
		{"q": "weft", "knn": "v:1,1", "explain": true},
		{"knn": map[string]any{"field": "v", "vector": []int{1, 0}, "k": 200}, "facets": []string{"tag"}, "aggs": "s:stats(n)"},
		{"filter": "n:<20", "q": "warp"},
		{"default_fields": []string{"body"}, "q": "weft"},
		{"filter": map[string]any{"exists": map[string]any{"field": "v"}}},
		{"q": "nope:1"},
		{"sort": "nope"},
	} {
		body["index"], body["dfs"] = "m", true
		p.post(body)
		p.post(body)
	}
}

func TestFacetsOfFieldsWithLongNames(t *testing.T) {
	p := newPair(t, 3, 10)
	name := strings.Repeat("long_", 50) + "name"
	p.declare("m", "index m { field "+name+": u64 [fast]\n field n: u64 [fast] }")
	p.write("m", map[string]any{"1": map[string]any{"id": "1", name: 7, "n": 1}, "2": map[string]any{"id": "2", name: 8, "n": 2}, "3": map[string]any{"id": "3", name: 7}})
	p.get("index=m&facets=" + name + ",n")
	p.get("index=m&facets=" + name + "&aggs=" + "x:stats(n),f0:terms(" + name + ")")
	p.get("index=m&aggs=" + name + ":stats(n)")
	// Together they are more than one list may have.
	var facets, aggs []string
	schema := "index m { field " + name + ": u64 [fast]\n field n: u64 [fast]\n"
	for i := range 60 {
		schema += fmt.Sprintf("field g%d: u64 [fast]\n", i)
		facets, aggs = append(facets, fmt.Sprintf("g%d", i)), append(aggs, fmt.Sprintf("a%d:stats(n)", i))
	}
	p.declare("m", schema+"}")
	p.get("index=m&facets=" + strings.Join(facets, ",") + "&aggs=" + strings.Join(aggs, ","))
}

// TestLocalStatistics: without dfs every shard scores with its own. The reply says so, and its pages hold together.
func TestLocalStatistics(t *testing.T) {
	p := newPair(t, 3, 11)
	p.fill(150)
	seen := map[string]int{}
	after, total := "", 0
	for page := 0; ; page++ {
		body := map[string]any{"index": "m", "q": "warp weft loom", "limit": 20, "fields": []string{}}
		if after != "" {
			body["after"] = after
		}
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		status, b := p.searches(http.MethodPost, "/search", string(text))
		m := decode(t, b)
		if status != http.StatusOK || m["dfs"] != false || len(m["approximate"].([]any)) != 1 || m["approximate"].([]any)[0] != "local" {
			t.Fatalf("page %d: %s", page, b)
		}
		for _, h := range m["hits"].([]any) {
			seen[h.(map[string]any)["id"].(string)]++
		}
		n, err := m["total"].(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		total = int(n)
		next, ok := m["next"].(string)
		if !ok {
			break
		}
		if after = next; len(next) > 100 {
			t.Errorf("a cursor of %d characters: it holds statistics", len(next))
		}
		if _, prob := p.searches(http.MethodGet, "/search?index=m&q=warp+weft+loom&dfs=true&after="+next, ""); !bytes.Contains(prob, []byte(api.InvalidCursor)) {
			t.Errorf("a cursor without statistics in an order of the whole: %.200s", prob)
		}
	}
	if len(seen) != total || total < 60 {
		t.Errorf("%d of %d documents came", len(seen), total)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
	// What no words score is exact.
	for _, params := range []string{"index=m&q=*", "index=m&q=n:>0", "index=m&sort=n&filter=tag:t1", "index=m&q=warp&limit=0&facets=tag"} {
		if m := p.get(params); m["approximate"] != nil {
			t.Errorf("%s: %v", params, m["approximate"])
		}
	}
}

// TestAShardThatIsGone: the others answer, and the reply says of how much it speaks.
func TestAShardThatIsGone(t *testing.T) {
	p := newPair(t, 3, 12)
	p.fill(120)
	const q = "/search?index=m&q=warp+weft&dfs=true&limit=100&facets=tag"
	_, b := p.searches(http.MethodGet, q, "")
	whole := decode(t, b)
	closed(t, p.leaves["shard1"])
	for range 2 {
		status, b := p.searches(http.MethodGet, q, "")
		m := decode(t, b)
		p.held = 0
		p.hold(status, b)
		cover := m["coverage"].(map[string]any)
		if status != http.StatusOK || m["dfs"] != false || cover["complete"] != false || cover["docs_total"] != whole["coverage"].(map[string]any)["docs_total"] || cover["docs_covered"] == cover["docs_total"] {
			t.Fatalf("%d %s", status, b)
		}
		if fmt.Sprint(m["shards"].(map[string]any)["failed_addresses"]) != "[shard1]" || fmt.Sprint(m["agg_failed_addresses"]) != "[shard1]" || m["total_relation"] != "gte" || fmt.Sprint(m["approximate"]) != "[statistics]" {
			t.Fatalf("%s", b)
		}
		for _, h := range m["hits"].([]any) {
			if id := h.(map[string]any)["id"].(string); p.place.Shard(id) == 1 {
				t.Errorf("%s came from a shard that is gone", id)
			}
		}
	}
	for _, more := range []string{"&allow_partial=false", "&min_coverage=0.99"} {
		status, b := p.searches(http.MethodGet, q+more, "")
		p.held = 0
		p.hold(status, b)
		if m := decode(t, b); status != http.StatusServiceUnavailable || m["code"] != string(api.Incomplete) || m["shards"] == nil || m["coverage"] == nil {
			t.Errorf("%s: %d %s", more, status, b)
		}
	}
	for i := range 120 {
		id := fmt.Sprintf("d%03d", i)
		if _, prob := p.searcher.Get(t.Context(), "m", id); p.place.Shard(id) == 1 && (prob == nil || prob.Code != api.GroupUnavailable) {
			t.Errorf("%s: %+v", id, prob)
		}
	}
}
