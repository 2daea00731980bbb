package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/cli/demo"
	"github.com/weft-search/weft/internal/topology/placement"
)

var queriesFlag = flag.Int("equivalence.queries", 0, "queries of each cluster in the test of equivalence; 0: 400, or 60 with -short or the race detector")

// schemaOfCorpus declares everything that a search can use.
const schemaOfCorpus = `index docs {
  field id: text<raw> [indexed, stored, fast, primary]
  field package: text<raw> [indexed, stored, fast]
  field kind: text<raw> [indexed, stored, fast]
  field name: text<unicode_word> [indexed<positions>, stored]
  field words: text<simple> [indexed<positions>, stored]
  field doc: text<en_stem> [indexed<positions>, stored]
  field tags: text<raw> [indexed, stored<multi>, fast]
  field size: i64 [stored, fast]
  field sizes: i64 [stored<multi>, fast]
  field rank: f64 [stored, fast]
  field day: date [stored, fast]
  field v: dense_vector<8> [indexed<metric: cosine>, stored]
  field bits: binary_dense_vector<16> [indexed, stored]
  field sp: sparse_vector [indexed, stored]
  default_fields: [name, words, doc]
}`

// document is one of the corpus.
type document struct {
	ID      string    `json:"id"`
	Package string    `json:"package"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Words   string    `json:"words,omitempty"`
	Doc     string    `json:"doc,omitempty"`
	Tags    []string  `json:"tags,omitempty"`
	Size    *int64    `json:"size,omitempty"`
	Sizes   []int64   `json:"sizes,omitempty"`
	Rank    *float64  `json:"rank,omitempty"`
	Day     string    `json:"day,omitempty"`
	V       []float32 `json:"v,omitempty"`
	Bits    []byte    `json:"bits,omitempty"`
	Sp      *sparse   `json:"sp,omitempty"`
}

type sparse struct {
	Indices []uint32  `json:"indices"`
	Values  []float32 `json:"values"`
}

// corpus is the documentation of a part of Go's standard library, with numbers, dates and vectors that follow from each document.
var corpus = sync.OnceValues(func() ([]document, error) {
	root, err := demo.FindGoRoot(context.Background())
	if err != nil {
		return nil, err
	}
	var out []document
	err = demo.StandardLibrary(root).Collect(context.Background(), func(pkg string, docs []demo.Doc) error {
		switch top, _, _ := strings.Cut(pkg, "/"); top {
		case "archive", "bufio", "bytes", "compress", "container", "context", "encoding", "errors", "io", "math", "net", "sort", "strings", "sync", "text", "time":
		default:
			return nil
		}
		for _, d := range docs {
			out = append(out, enrich(d))
		}
		return nil
	})
	slices.SortFunc(out, func(a, b document) int { return strings.Compare(a.ID, b.ID) })
	out = slices.CompactFunc(out, func(a, b document) bool { return a.ID == b.ID })
	return out, err
})

// enrich gives a document what its id decides.
func enrich(d demo.Doc) document {
	h := fnv.New64a()
	if _, err := h.Write([]byte(d.ID)); err != nil {
		panic(err)
	}
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	out := document{ID: d.ID, Package: d.Package, Kind: d.Kind, Name: d.Name, Words: d.Words, Doc: d.Doc}
	if r.IntN(8) > 0 {
		n := int64(len(d.Doc))
		out.Size = &n
	}
	for range r.IntN(4) {
		out.Sizes = append(out.Sizes, int64(r.IntN(40)-10))
	}
	if r.IntN(5) > 0 {
		f := float64(r.IntN(2000))/8 - 50
		out.Rank = &f
	}
	if r.IntN(4) > 0 {
		out.Day = fmt.Sprintf("20%02d-%02d-%02dT%02d:00:00Z", r.IntN(25), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24))
	}
	for _, w := range strings.Fields(d.Words) {
		if len(w) > 2 && r.IntN(2) == 0 && !slices.Contains(out.Tags, w) {
			out.Tags = append(out.Tags, w)
		}
	}
	if r.IntN(6) > 0 {
		for range 8 {
			out.V = append(out.V, float32(r.IntN(16)-8)/4)
		}
	}
	if r.IntN(3) > 0 {
		out.Bits = []byte{byte(r.IntN(256)), byte(r.IntN(256))}
	}
	if r.IntN(3) > 0 {
		out.Sp = &sparse{}
		for i := range 4 {
			out.Sp.Indices = append(out.Sp.Indices, uint32(10*i+r.IntN(10)))
			out.Sp.Values = append(out.Sp.Values, float32(1+r.IntN(8))/4)
		}
	}
	return out
}

// lines are documents as a bulk load takes them.
func lines(t testing.TB, docs []document) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for i := range docs {
		if err := e.Encode(&docs[i]); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// fill declares the index and loads the documents, in several loads and with changes, so that there are segments and dead documents.
func fill(f *front, docs []document) {
	t := f.t
	t.Helper()
	f.must(201, "PUT", "/indexes/docs", "text/plain", []byte(schemaOfCorpus))
	load := func(part []document) {
		t.Helper()
		r := f.must(200, "POST", "/index/bulk?index=docs", "application/x-ndjson", lines(t, part)).object(t)
		if r["ok"] != true {
			t.Fatalf("%s: %v", f.name, r)
		}
	}
	stale := slices.Clone(docs[:len(docs)/3])
	for i := range stale {
		stale[i].Doc, stale[i].Tags, stale[i].V = "stale loom "+stale[i].Name, []string{"stale"}, nil
	}
	load(stale)
	for at := 0; at < len(docs); at += 1500 {
		load(docs[at:min(at+1500, len(docs))])
	}
	for i := 0; i < len(docs); i += 97 {
		f.must(200, "DELETE", target("/index", url.Values{"index": {"docs"}, "id": {docs[i].ID}}), "", nil)
	}
}

// question is one search: parameters of a URL, or a body.
type question struct {
	params url.Values
	body   map[string]any
}

func (q question) String() string {
	if q.body != nil {
		b, err := json.Marshal(q.body)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	return q.params.Encode()
}

// generator makes questions over a corpus.
type generator struct {
	r    *rand.Rand
	docs []document
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// word is one that some document has, often a frequent one.
func (g *generator) word() string {
	if g.r.IntN(4) == 0 {
		return pick(g.r, []string{"the", "returns", "reader", "error", "bytes", "time", "is", "of", "value", "string"})
	}
	d := pick(g.r, g.docs)
	f := strings.FieldsFunc(d.Words+" "+d.Doc, func(r rune) bool { return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') })
	if len(f) == 0 {
		return "reader"
	}
	w := strings.ToLower(pick(g.r, f))
	switch w {
	case "and", "or", "not", "to":
		return "reader"
	}
	return w
}

func (g *generator) phrase() string {
	d := pick(g.r, g.docs)
	f := strings.FieldsFunc(d.Doc, func(r rune) bool { return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') })
	if len(f) < 3 {
		return `"` + g.word() + ` ` + g.word() + `"`
	}
	i := g.r.IntN(len(f) - 1)
	p := `"` + strings.Join(f[i:min(len(f), i+2+g.r.IntN(2))], " ") + `"`
	if g.r.IntN(3) == 0 {
		p += "~" + strconv.Itoa(1+g.r.IntN(3))
	}
	return p
}

func (g *generator) clause() string {
	switch g.r.IntN(12) {
	case 0:
		return g.phrase()
	case 1:
		w := g.word()
		return w[:min(len(w), 1+g.r.IntN(3))] + "*"
	case 2:
		return "doc:" + g.word()
	case 3:
		return "name:" + g.word()
	case 4:
		return "kind:" + pick(g.r, []string{"func", "method", "type", "const"})
	case 5:
		return "size:[" + strconv.Itoa(g.r.IntN(100)) + " TO " + strconv.Itoa(100+g.r.IntN(400)) + "]"
	case 6:
		return g.word() + "^" + pick(g.r, []string{"2", "0.5", "3.25"})
	}
	return g.word()
}

// text is a query string.
func (g *generator) text() string {
	n := 1 + g.r.IntN(4)
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(pick(g.r, []string{" ", " ", " AND ", " OR ", " +", " -"}))
		}
		if g.r.IntN(8) == 0 {
			b.WriteString("(" + g.clause() + " " + g.clause() + ")")
		} else {
			b.WriteString(g.clause())
		}
	}
	return b.String()
}

func (g *generator) filter() string {
	switch g.r.IntN(7) {
	case 0:
		return "package:" + strconv.Quote(pick(g.r, g.docs).Package)
	case 1:
		return "kind:" + pick(g.r, []string{"func", "method", "type", "const"})
	case 2:
		return "rank:>" + strconv.Itoa(g.r.IntN(150))
	case 3:
		return "_exists_:day"
	case 4:
		return "day:[2005-01-01 TO 2015-01-01}"
	case 5:
		return "-tags:" + g.word()
	}
	return "doc:" + g.word()
}

func (g *generator) sort() string {
	keys := []string{"score", "id", "size", "rank", "day", "package", "kind", "sizes", "num:size", "id:desc", "score:asc", "size:desc", "sizes:desc:min", "tags", "tags:desc:max"}
	n := 1 + g.r.IntN(3)
	list := make([]string, n)
	for i := range list {
		list[i] = pick(g.r, keys)
	}
	return strings.Join(list, ",")
}

func (g *generator) aggs() string {
	all := []string{
		"a:terms(package,5)", "b:terms(tags,0)", "c:stats(size)", "d:histogram(rank,25)", "e:date_histogram(day,1y)", "f:range(size,0..50,50..,..10)",
		"g:percentiles(rank,1,50,99)", "h:cardinality(tags)", "i:terms(sizes,3)", "j:stats(sizes)", "k:date_histogram(day,1M)", "l:cardinality(package)", "m:percentiles(sizes,50)",
	}
	n := 1 + g.r.IntN(3)
	g.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return strings.Join(all[:n], ",")
}

func (g *generator) vector() string {
	parts := make([]string, 8)
	for i := range parts {
		parts[i] = strconv.FormatFloat(float64(g.r.IntN(32)-16)/8, 'g', -1, 64)
	}
	return "v:" + strings.Join(parts, ",")
}

// next makes a question. Every one wants exact scores.
func (g *generator) next() question {
	p := url.Values{"index": {"docs"}, "dfs": {"true"}}
	maybe := func(n int) bool { return g.r.IntN(n) == 0 }
	kind := g.r.IntN(10)
	if kind > 0 {
		p.Set("q", g.text())
	}
	for range g.r.IntN(3) {
		if maybe(2) {
			p.Add("filter", g.filter())
		}
	}
	vectors := kind == 1 || kind == 2
	if vectors {
		p.Set("knn", g.vector())
		p.Set("knn_exact", "true")
		if kind == 2 {
			p.Set("q", "*")
			p.Set("knn_k", strconv.Itoa(1+g.r.IntN(40)))
		} else {
			if maybe(2) {
				p.Set("fusion", "weighted")
				p.Set("weights", "0.25,0.75")
			}
			p.Set("pool", strconv.Itoa(20+g.r.IntN(200)))
		}
	} else if maybe(3) {
		p.Set("sort", g.sort())
		if maybe(3) {
			p.Set("missing", "first")
		}
		if maybe(3) {
			p.Set("order", pick(g.r, []string{"asc", "desc"}))
		}
	}
	switch g.r.IntN(4) {
	case 0:
		p.Set("limit", strconv.Itoa(g.r.IntN(60)))
	case 1:
		p.Set("offset", strconv.Itoa(g.r.IntN(300)))
	}
	if maybe(4) {
		p.Set("facets", pick(g.r, []string{"package", "kind,tags", "sizes"}))
	}
	if maybe(3) {
		p.Set("aggs", g.aggs())
	}
	if maybe(6) {
		p.Set("default_op", "and")
	}
	if maybe(6) {
		p.Set("default_fields", pick(g.r, []string{"doc", "doc,name", "words"}))
	}
	if maybe(5) {
		p.Set("fields", pick(g.r, []string{"name,package", "", "tags"}))
	}
	if maybe(5) {
		p.Set("highlight", pick(g.r, []string{"doc", "*", "name,doc"}))
	}
	if maybe(8) {
		p.Set("track_total", pick(g.r, []string{"none", "exact"}))
	}
	if maybe(8) {
		p.Set("explain", "true")
	}
	if g.r.IntN(20) == 0 {
		// What a node refuses, a cluster refuses with the same words.
		k, v := "", ""
		switch g.r.IntN(8) {
		case 0:
			k, v = "q", g.word()+" AND"
		case 1:
			k, v = "sort", "nowhere"
		case 2:
			k, v = "q", "nowhere:"+g.word()
		case 3:
			k, v = "facets", "doc"
		case 4:
			k, v = "aggs", "x:stats(nowhere)"
		case 5:
			k, v = "filter", "size:[a TO b]"
		case 6:
			k, v = "fields", "nowhere"
		case 7:
			k, v = "highlight", "size"
		}
		p.Set(k, v)
	}
	return question{params: p}
}

// ask makes the search.
func (q question) ask(f *front) reply {
	f.t.Helper()
	if q.body != nil {
		b, err := json.Marshal(q.body)
		if err != nil {
			f.t.Fatal(err)
		}
		return f.do("POST", "/search", "application/json", b)
	}
	return f.do("GET", target("/search", q.params), "", nil)
}

// comparable is the part of a reply that does not speak of who answered and how long it took.
func comparable(t testing.TB, r reply) map[string]any {
	t.Helper()
	o := r.object(t)
	for _, member := range []string{"took_ms", "timings", "slowest_shard", "request_id"} {
		delete(o, member)
	}
	if s, ok := o["shards"].(map[string]any); ok {
		if fmt.Sprint(s["total"]) != fmt.Sprint(s["ok"]) {
			t.Errorf("an answer with a shard missing: %v", s)
		}
		delete(o, "shards")
	}
	if x, ok := o["explain"].(map[string]any); ok {
		delete(x, "knn") // how each shard searched
	}
	return o
}

// differences lists the paths at which two values differ.
func differences(path string, a, b any, out *[]string) {
	if len(*out) > 1000 || reflect.DeepEqual(a, b) {
		return
	}
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			keys := map[string]bool{}
			for k := range x {
				keys[k] = true
			}
			for k := range y {
				keys[k] = true
			}
			for k := range keys {
				differences(path+"/"+k, x[k], y[k], out)
			}
			return
		}
	case []any:
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				differences(path+"/"+strconv.Itoa(i), x[i], y[i], out)
			}
			return
		}
	}
	*out = append(*out, fmt.Sprintf("%s: node %s, cluster %s", path, brief(a), brief(b)))
}

func brief(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(b) > 300 {
		b = append(b[:300], "…"...)
	}
	return string(b)
}

// same compares the answers to a question, and on through the pages that follow.
func same(t *testing.T, node, cluster *front, q question, pages int) bool {
	t.Helper()
	for page := 0; ; page++ {
		want, got := q.ask(node), q.ask(cluster)
		a, b := comparable(t, want), comparable(t, got)
		// Cursors name where they go on and need not be the same text.
		nextA, okA := a["next"].(string)
		nextB, okB := b["next"].(string)
		delete(a, "next")
		delete(b, "next")
		var diff []string
		if want.status != got.status {
			diff = append(diff, fmt.Sprintf("status: node %d, cluster %d", want.status, got.status))
		}
		differences("", a, b, &diff)
		if okA != okB {
			diff = append(diff, fmt.Sprintf("next: node %v, cluster %v", okA, okB))
		}
		if len(diff) > 0 {
			t.Errorf("%s, page %d: %s\n\t%s", cluster.name, page, q, strings.Join(diff, "\n\t"))
			return false
		}
		if !okA || page == pages || q.body != nil {
			return true
		}
		q.params.Del("offset")
		// Each goes on with its own cursor; the other's has to do as well.
		if page%2 == 0 {
			nextA, nextB = nextB, nextA
		}
		qa, qb := clone(q.params), clone(q.params)
		qa.Set("after", nextA)
		qb.Set("after", nextB)
		wantNext, gotNext := question{params: qa}.ask(node), question{params: qb}.ask(cluster)
		a, b = comparable(t, wantNext), comparable(t, gotNext)
		delete(a, "next")
		delete(b, "next")
		diff = nil
		differences("", a, b, &diff)
		if len(diff) > 0 {
			t.Errorf("%s, behind page %d: %s\n\t%s", cluster.name, page, q, strings.Join(diff, "\n\t"))
			return false
		}
		q.params = qa
	}
}

func clone(v url.Values) url.Values {
	out := url.Values{}
	for k, list := range v {
		out[k] = slices.Clone(list)
	}
	return out
}

// A cluster answers as one node with all documents: the same hits in the same order with the same score bits, the same totals, facets,
// aggregations, highlights, explanations, pages and refusals, however many shards and members it has and however they are placed.
func TestAClusterAnswersLikeOneNode(t *testing.T) {
	docs, err := corpus()
	if err != nil {
		t.Skipf("no source of the standard library: %v", err)
	}
	most := 6000
	if raced {
		most = 2500
	}
	docs = docs[:min(len(docs), most)]
	one := single(t)
	fill(one, docs)
	n := *queriesFlag
	if n == 0 {
		n = 400
		if testing.Short() || raced {
			n = 60
		}
	}
	for _, c := range []struct {
		shards, replicas int
		rule             placement.Rule
	}{{1, 1, placement.Ring}, {1, 2, placement.Ring}, {2, 1, placement.Modulo}, {2, 2, placement.Ring}, {3, 1, placement.Ring}, {3, 2, placement.Rendezvous}, {5, 1, placement.Ring}, {5, 2, placement.Modulo}} {
		t.Run(fmt.Sprintf("%dx%d_%s", c.shards, c.replicas, c.rule), func(t *testing.T) {
			k := open(t, c.shards, c.replicas, c.rule)
			fill(k.front, docs)
			k.t, one.t = t, t
			seed := rand.Uint64()
			g := &generator{r: rand.New(rand.NewPCG(seed, 3)), docs: docs}
			bad := 0
			for range n {
				if !same(t, one, k.front, g.next(), 2) {
					if bad++; bad == 100 {
						break
					}
				}
			}
			t.Logf("%d questions, seed %d", n, seed)
		})
	}
}
