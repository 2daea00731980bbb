package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/shard"
)

// These tests hold the calls of a whole node against a model that knows the documents and nothing of indexes. Scores are not the
// model's affair: it takes those of an unfiltered search and demands that nothing else changes them.

const modelSchema = `index m {
  field id: text<raw> [indexed, stored, fast, primary]
  field title: text [indexed<token_position>, stored]
  field tag: text<raw> [indexed, stored<multi>, fast]
  field n: i64 [stored<multi>, fast]
  field f: f64 [stored, fast]
  field at: date [stored, fast]
  field v: dense_vector<4> [indexed<metric: cosine>, stored<multi>]
  field bits: binary_dense_vector<16> [indexed, stored]
  field sp: sparse_vector [indexed, stored]
  default_fields: [title]
}`

// modelDoc is a document of the model.
type modelDoc struct {
	ID    string      `json:"id"`
	Title string      `json:"title,omitempty"`
	Tag   []string    `json:"tag,omitempty"`
	N     []int64     `json:"n,omitempty"`
	F     *float64    `json:"f,omitempty"`
	At    string      `json:"at,omitempty"`
	V     [][]float32 `json:"v,omitempty"`
	Bits  []byte      `json:"bits,omitempty"`
	Sp    *sparseDoc  `json:"sp,omitempty"`
}

type sparseDoc struct {
	Indices []uint32  `json:"indices"`
	Values  []float32 `json:"values"`
}

type model struct {
	*server
	rng  *rand.Rand
	docs map[string]*modelDoc
}

var modelWords = []string{"warp", "weft", "loom", "reed", "shed", "yarn"}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{server: newServer(t, Config{}), rng: rand.New(rand.NewPCG(seed, 4)), docs: map[string]*modelDoc{}}
	m.every = 13
	m.do("PUT", "/indexes/m", "text/plain", modelSchema).want(201)
	return m
}

func (m *model) random(id string) *modelDoc {
	r, d := m.rng, &modelDoc{ID: id}
	var words []string
	for range r.IntN(6) {
		words = append(words, modelWords[min(r.IntN(len(modelWords)), r.IntN(len(modelWords)))])
	}
	d.Title = strings.Join(words, " ")
	for range r.IntN(4) {
		d.Tag = append(d.Tag, "t"+strconv.Itoa(r.IntN(5)))
	}
	for range r.IntN(3) {
		d.N = append(d.N, int64(r.IntN(20)-10))
	}
	if r.IntN(4) > 0 {
		f := float64(r.IntN(40))/4 - 5
		d.F = &f
	}
	if r.IntN(4) > 0 {
		d.At = time.Date(2024, time.Month(1+r.IntN(3)), 1+r.IntN(28), r.IntN(24), 0, 0, 0, time.UTC).Format(time.RFC3339)
	}
	for range r.IntN(3) {
		d.V = append(d.V, []float32{1 + float32(r.IntN(9)), float32(r.IntN(9)) - 4, float32(r.IntN(9)) - 4, float32(r.IntN(9)) - 4})
	}
	if r.IntN(2) > 0 {
		d.Bits = []byte{byte(r.IntN(256)), byte(r.IntN(256))}
	}
	if r.IntN(2) > 0 {
		d.Sp = &sparseDoc{[]uint32{uint32(r.IntN(3)), uint32(3 + r.IntN(3))}, []float32{float32(1 + r.IntN(4)), float32(1 + r.IntN(4))}}
	}
	return d
}

// write puts documents with these ids in one load.
func (m *model) write(ids ...string) {
	m.t.Helper()
	var b strings.Builder
	for _, id := range ids {
		d := m.random(id)
		m.docs[id] = d
		line, err := json.Marshal(d)
		if err != nil {
			m.t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	m.do("POST", "/index/bulk?index=m", "application/x-ndjson", b.String()).want(200)
}

func (m *model) remove(id string) {
	delete(m.docs, id)
	m.do("DELETE", "/index?index=m&id="+id, "", "").want(200)
}

// fill writes so many documents, flushes some of them, and changes and deletes a few.
func (m *model) fill(n int) {
	m.t.Helper()
	batch := func(from, to int) {
		var ids []string
		for i := from; i < to; i++ {
			ids = append(ids, fmt.Sprintf("d%03d", i))
		}
		m.write(ids...)
	}
	batch(0, n/3)
	m.flush()
	batch(n/3, 2*n/3)
	m.flush()
	batch(2*n/3, n)
	for range n / 10 {
		m.write(fmt.Sprintf("d%03d", m.rng.IntN(n)))
		m.remove(fmt.Sprintf("d%03d", m.rng.IntN(n)))
	}
}

func (m *model) flush() {
	m.t.Helper()
	l, err := m.node.catalog.use(m.t.Context(), "m")
	if err != nil {
		m.t.Fatal(err)
	}
	defer l.release()
	if err := l.eng.Flush(context.Background()); err != nil {
		m.t.Fatal(err)
	}
}

// found is the part of a reply that the tests look at. Scores are texts: they are compared to the bit.
type found struct {
	Total uint64
	Hits  []struct {
		ID          string
		Score       json.Number
		Sort        []any
		LexicalRank int `json:"lexical_rank"`
		VectorRank  int `json:"vector_rank"`
		Explain     *struct {
			Kind  string
			Value json.Number
			Parts []json.RawMessage
		}
	}
	Facets      map[string]json.RawMessage
	Aggs        map[string]json.RawMessage
	Next        string
	Approximate []string
}

func (f *found) ids() []string {
	ids := []string{}
	for _, h := range f.Hits {
		ids = append(ids, h.ID)
	}
	return ids
}

// find searches with the parameters of a JSON body.
func (m *model) find(body map[string]any) *found {
	m.t.Helper()
	body["index"] = "m"
	text, err := json.Marshal(body)
	if err != nil {
		m.t.Fatal(err)
	}
	a := m.do("POST", "/search", "application/json", string(text)).want(200)
	f := &found{}
	d := json.NewDecoder(strings.NewReader(string(a.body)))
	d.UseNumber()
	if err := d.Decode(f); err != nil {
		m.t.Fatal(err)
	}
	return f
}

func (m *model) where(keep func(d *modelDoc) bool) []string {
	ids := []string{}
	for id, d := range m.docs {
		if keep(d) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// condition is a filter in JSON, where it can be said so as a query string too, and what it means.
type condition struct {
	json any
	text string
	keep func(d *modelDoc) bool
}

func (m *model) condition(depth int) condition {
	r := m.rng
	kinds := 8
	if depth == 0 {
		kinds = 7
	}
	switch r.IntN(kinds) {
	case 0:
		tag := "t" + strconv.Itoa(r.IntN(6))
		return condition{map[string]any{"term": map[string]any{"field": "tag", "value": tag}}, "tag:" + tag, func(d *modelDoc) bool { return slices.Contains(d.Tag, tag) }}
	case 1:
		var values []any
		var want []int64
		for range r.IntN(4) {
			v := int64(r.IntN(20) - 10)
			values, want = append(values, v), append(want, v)
		}
		if values == nil {
			values = []any{}
		}
		return condition{map[string]any{"terms": map[string]any{"field": "n", "values": values}}, "", func(d *modelDoc) bool {
			return slices.ContainsFunc(d.N, func(n int64) bool { return slices.Contains(want, n) })
		}}
	case 2:
		lo, hi := int64(r.IntN(20)-10), int64(r.IntN(20)-10)
		return condition{map[string]any{"range": map[string]any{"field": "n", "gte": lo, "lt": hi}}, fmt.Sprintf("n:[%d TO %d}", lo, hi), func(d *modelDoc) bool {
			return slices.ContainsFunc(d.N, func(n int64) bool { return n >= lo && n < hi })
		}}
	case 3:
		lo := float64(r.IntN(40))/4 - 5
		return condition{map[string]any{"range": map[string]any{"field": "f", "gt": lo}}, fmt.Sprintf("f:>%v", lo), func(d *modelDoc) bool { return d.F != nil && *d.F > lo }}
	case 4:
		day := time.Date(2024, time.Month(1+r.IntN(3)), 1+r.IntN(28), 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
		return condition{map[string]any{"range": map[string]any{"field": "at", "lte": day}}, "at:<=" + day, func(d *modelDoc) bool { return d.At != "" && d.At <= day }}
	case 5:
		field := []string{"tag", "n", "f", "at", "title"}[r.IntN(5)]
		return condition{map[string]any{"exists": map[string]any{"field": field}}, "_exists_:" + field, func(d *modelDoc) bool {
			return map[string]bool{"tag": d.Tag != nil, "n": d.N != nil, "f": d.F != nil, "at": d.At != "", "title": d.Title != ""}[field]
		}}
	case 6:
		start := modelWords[r.IntN(len(modelWords))][:1+r.IntN(2)]
		return condition{map[string]any{"prefix": map[string]any{"field": "title", "value": start}}, "title:" + start + "*", func(d *modelDoc) bool {
			return slices.ContainsFunc(strings.Fields(d.Title), func(w string) bool { return strings.HasPrefix(w, start) })
		}}
	}
	must, not := m.condition(depth-1), m.condition(depth-1)
	a, b := m.condition(depth-1), m.condition(depth-1)
	return condition{
		map[string]any{"bool": map[string]any{"must": []any{must.json, map[string]any{"bool": map[string]any{"should": []any{a.json, b.json}}}}, "must_not": not.json}},
		"",
		func(d *modelDoc) bool { return must.keep(d) && (a.keep(d) || b.keep(d)) && !not.keep(d) },
	}
}

func TestFiltersAgainstTheModel(t *testing.T) {
	m := newModel(t, 1)
	m.fill(150)
	for round := range 120 {
		word := modelWords[m.rng.IntN(len(modelWords))]
		body := map[string]any{"limit": 1000, "fields": []string{}}
		matches := func(*modelDoc) bool { return true }
		if round%3 > 0 {
			body["q"] = word
			matches = func(d *modelDoc) bool { return slices.Contains(strings.Fields(d.Title), word) }
		}
		all := map[string]json.Number{}
		for _, h := range m.find(body).Hits {
			all[h.ID] = h.Score
		}
		var list []any
		var conds []condition
		for range 1 + m.rng.IntN(2) {
			c := m.condition(2)
			conds = append(conds, c)
			if c.text != "" && m.rng.IntN(2) == 0 {
				list = append(list, c.text)
			} else {
				list = append(list, c.json)
			}
		}
		body["filter"] = list
		got := m.find(body)
		want := m.where(func(d *modelDoc) bool {
			return matches(d) && !slices.ContainsFunc(conds, func(c condition) bool { return !c.keep(d) })
		})
		ids := got.ids()
		slices.Sort(ids)
		if d := gocmp.Diff(want, ids); d != "" || got.Total != uint64(len(want)) {
			t.Fatalf("%v with %v: total %d: %s", body["q"], list, got.Total, d)
		}
		for _, h := range got.Hits {
			if h.Score != all[h.ID] {
				t.Fatalf("%v with %v: %s scores %s, without the filter %s", body["q"], list, h.ID, h.Score, all[h.ID])
			}
		}
	}
	// The same in a URL, where filter is repeated.
	ids, total := m.ids("/search?index=m&limit=1000&filter=tag:t1&filter=" + url.QueryEscape("n:[0 TO *]"))
	want := m.where(func(d *modelDoc) bool {
		return slices.Contains(d.Tag, "t1") && slices.ContainsFunc(d.N, func(n int64) bool { return n >= 0 })
	})
	if !slices.Equal(ids, want) || int(total) != len(want) {
		t.Errorf("in a URL: %v, want %v", ids, want)
	}
}

// key is one key of an order of the model.
type key struct {
	text    string
	missing bool // first
	desc    bool
	value   func(d *modelDoc) any // nil, int64, float64 or string
}

func (m *model) key(scores map[string]json.Number) key {
	r := m.rng
	k := key{desc: r.IntN(2) > 0}
	dir := ":asc"
	if k.desc {
		dir = ":desc"
	}
	greatest, mode := k.desc, ""
	if r.IntN(3) == 0 {
		greatest = r.IntN(2) > 0
		mode = map[bool]string{false: ":min", true: ":max"}[greatest]
	}
	switch r.IntN(6) {
	case 0:
		k.text, k.value = "score"+dir, func(d *modelDoc) any {
			f, err := strconv.ParseFloat(scores[d.ID].String(), 32)
			if err != nil {
				panic(err)
			}
			return f
		}
	case 1:
		k.text, k.value = "id"+dir, func(d *modelDoc) any { return d.ID }
	case 2:
		k.text, k.value = "tag"+dir+mode, func(d *modelDoc) any {
			if d.Tag == nil {
				return nil
			}
			if greatest {
				return slices.Max(d.Tag)
			}
			return slices.Min(d.Tag)
		}
	case 3:
		k.text, k.value = "num:n"+dir+mode, func(d *modelDoc) any {
			if d.N == nil {
				return nil
			}
			if greatest {
				return slices.Max(d.N)
			}
			return slices.Min(d.N)
		}
	case 4:
		k.text, k.value = "f"+dir+mode, func(d *modelDoc) any {
			if d.F == nil {
				return nil
			}
			return *d.F
		}
	default:
		k.text, k.value = "at"+dir, func(d *modelDoc) any {
			if d.At == "" {
				return nil
			}
			return d.At
		}
	}
	return k
}

func (k *key) compare(a, b *modelDoc) int {
	x, y := k.value(a), k.value(b)
	if (x == nil) != (y == nil) {
		if (x == nil) == k.missing {
			return -1
		}
		return 1
	}
	var c int
	switch x := x.(type) {
	case int64:
		c = cmp.Compare(x, y.(int64))
	case float64:
		c = cmp.Compare(x, y.(float64))
	case string:
		c = cmp.Compare(x, y.(string))
	}
	if k.desc {
		return -c
	}
	return c
}

func TestOrdersAndPagesAgainstTheModel(t *testing.T) {
	m := newModel(t, 2)
	m.fill(120)
	for round := range 36 {
		body := map[string]any{"fields": []string{}, "limit": 1000}
		if round%2 > 0 {
			body["q"] = modelWords[m.rng.IntN(3)]
		}
		base := m.find(body)
		scores := map[string]json.Number{}
		want := []*modelDoc{}
		for _, h := range base.Hits {
			scores[h.ID] = h.Score
			want = append(want, m.docs[h.ID])
		}
		first := m.rng.IntN(2) > 0
		var keys []key
		var texts []string
		for range m.rng.IntN(4) {
			k := m.key(scores)
			k.missing = first
			keys, texts = append(keys, k), append(texts, k.text)
		}
		if len(keys) > 0 {
			body["sort"] = texts
			slices.SortFunc(want, func(a, b *modelDoc) int {
				for i := range keys {
					if c := keys[i].compare(a, b); c != 0 {
						return c
					}
				}
				return strings.Compare(a.ID, b.ID)
			})
		}
		if first {
			body["missing"] = "first"
		}
		ids := []string{}
		for _, d := range want {
			ids = append(ids, d.ID)
		}
		got := m.find(body)
		if d := gocmp.Diff(ids, got.ids()); d != "" || got.Next != "" {
			t.Fatalf("%v missing %v: next %q: %s", texts, first, got.Next, d)
		}
		for _, h := range got.Hits {
			if h.Score != scores[h.ID] || len(h.Sort) != len(keys) && len(h.Sort) != 0 {
				t.Fatalf("%v: %s scores %s with values %v, in score order %s", texts, h.ID, h.Score, h.Sort, scores[h.ID])
			}
			for i := range h.Sort {
				if v := keys[i].value(m.docs[h.ID]); (v == nil) != (h.Sort[i] == nil) {
					t.Fatalf("%v: %s has sort value %v, the model %v", texts, h.ID, h.Sort[i], v)
				}
			}
		}
		// In pages it is the same list, with the same total on each.
		var paged []string
		size := 1 + m.rng.IntN(20)
		body["limit"] = size
		for {
			page := m.find(body)
			if page.Total != uint64(len(ids)) {
				t.Fatalf("%v: a page has total %d of %d", texts, page.Total, len(ids))
			}
			paged = append(paged, page.ids()...)
			if page.Next == "" {
				break
			}
			if len(page.Hits) != size {
				t.Fatalf("%v: a page of %d with a next has %d hits", texts, size, len(page.Hits))
			}
			body["after"] = page.Next
		}
		if d := gocmp.Diff(ids, append([]string{}, paged...)); d != "" {
			t.Fatalf("%v in pages of %d: %s", texts, size, d)
		}
	}
}

// TestPagesHoldStillUnderWrites pages while documents come, change and go: those that nobody touches come once each, in the order of the
// first page.
func TestPagesHoldStillUnderWrites(t *testing.T) {
	for seed, sort := range []string{"", "score:asc,n", "n", "tag:desc,f:desc", "id:desc", "at:desc"} {
		m := newModel(t, uint64(10+seed))
		m.fill(150)
		body := map[string]any{"q": "warp OR weft^0.5 OR loom", "limit": 1000, "fields": []string{}}
		if sort != "" {
			body["sort"] = sort
		}
		before := m.find(body)
		touched := map[string]bool{}
		body["limit"] = 11
		var paged []string
		scores := map[string]json.Number{}
		for page := 0; ; page++ {
			got := m.find(body)
			paged = append(paged, got.ids()...)
			for _, h := range got.Hits {
				scores[h.ID] = h.Score
			}
			if got.Next == "" {
				break
			}
			body["after"] = got.Next
			var writes []string
			for range 4 {
				writes = append(writes, fmt.Sprintf("n%03d-%d", m.rng.IntN(1000), page), fmt.Sprintf("d%03d", m.rng.IntN(150)))
			}
			gone := fmt.Sprintf("d%03d", m.rng.IntN(150))
			touched[gone] = true
			for _, id := range writes {
				touched[id] = true
			}
			m.write(writes...)
			m.remove(gone)
			if page%5 == 2 {
				m.flush()
			}
		}
		rest := func(ids []string) []string {
			return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return touched[id] })
		}
		if d := gocmp.Diff(rest(before.ids()), rest(paged)); d != "" {
			t.Errorf("sort %q: %s", sort, d)
		}
		if sort != "" && !strings.Contains(sort, "score") {
			continue
		}
		for _, h := range before.Hits {
			if !touched[h.ID] && scores[h.ID] != h.Score {
				t.Errorf("sort %q: %s scored %s on its page, %s at first", sort, h.ID, scores[h.ID], h.Score)
			}
		}
	}
}

func TestCursorsAreOfOneSearch(t *testing.T) {
	m := newModel(t, 3)
	m.fill(40)
	next := m.find(map[string]any{"q": "warp", "filter": "tag:t1 OR n:>0", "limit": 1}).Next
	if next == "" {
		t.Fatal("no second page")
	}
	target := func(params string) string { return "/search?index=m&limit=1&after=" + next + params }
	same := "&q=warp&filter=" + url.QueryEscape("tag:t1 OR n:>0")
	m.do("GET", target(same), "", "").want(200)
	m.do("GET", target(same+"&fields=title&limit=1"), "", "").problem(400, api.RepeatedParameter)
	m.do("GET", target(same+"&fields=title"), "", "").want(200)
	for _, other := range []string{
		"", "&q=weft" + same[len("&q=warp"):], "&q=warp", same + "&filter=n:1", same + "&sort=n", same + "&sort=id", same + "&default_op=and", same + "&default_fields=title",
	} {
		p := m.do("GET", target(other), "", "").problem(400, api.CursorMismatch)
		if p["field"] != "after" {
			t.Errorf("%s: field %v", other, p["field"])
		}
	}
	m.do("PUT", "/indexes/other", "text/plain", strings.Replace(modelSchema, "index m", "index other", 1)).want(201)
	m.do("GET", strings.Replace(target(same), "index=m", "index=other", 1), "", "").problem(400, api.CursorMismatch)
	for _, bad := range []string{"x", next[1:], next[:len(next)-1], next + "A", strings.Repeat("A", 1000)} {
		if p := m.do("GET", "/search?index=m&after="+bad+same, "", "").problem(400, api.InvalidCursor); p["field"] != "after" {
			t.Errorf("%.20s: field %v", bad, p["field"])
		}
	}
}

func TestFacetsAndAggregationsAgainstTheModel(t *testing.T) {
	m := newModel(t, 5)
	m.fill(150)
	for range 40 {
		c, sub := m.condition(1), m.condition(0)
		got := m.find(map[string]any{
			"filter": []any{c.json}, "limit": 0, "facets": []string{"tag", "n"},
			"aggs": map[string]any{
				"by":    map[string]any{"kind": "terms", "field": "tag", "size": 2, "aggs": map[string]any{"f": map[string]any{"kind": "stats", "field": "f"}}},
				"some":  map[string]any{"kind": "stats", "field": "n", "filter": sub.json},
				"that":  map[string]any{"kind": "filter", "filter": sub.json},
				"steps": map[string]any{"kind": "histogram", "field": "f", "interval": 2.5},
				"many":  map[string]any{"kind": "cardinality", "field": "n"},
				"mid":   map[string]any{"kind": "percentiles", "field": "n", "percents": []any{50}},
				"parts": map[string]any{"kind": "range", "field": "n", "ranges": []any{"..0", "0..5", map[string]any{"from": 5}}},
			},
		})
		var docs []*modelDoc
		for _, id := range m.where(c.keep) {
			docs = append(docs, m.docs[id])
		}
		tags, numbers := map[any]int{}, map[any]int{}
		var ns, some []float64
		steps := map[float64]int{}
		that := 0
		ranges := [3]int{}
		for _, d := range docs {
			for _, t := range unique(d.Tag) {
				tags[t]++
			}
			for _, n := range unique(d.N) {
				numbers[n]++
			}
			var in [3]bool
			for _, n := range d.N {
				ns = append(ns, float64(n))
				in[0], in[1], in[2] = in[0] || n < 0, in[1] || n >= 0 && n < 5, in[2] || n >= 5
				if sub.keep(d) {
					some = append(some, float64(n))
				}
			}
			for i, yes := range in {
				if yes {
					ranges[i]++
				}
			}
			if sub.keep(d) {
				that++
			}
			if d.F != nil {
				steps[math.Floor(*d.F/2.5)*2.5]++
			}
		}
		same := func(what string, raw json.RawMessage, want any) {
			t.Helper()
			text, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if json.Unmarshal(raw, &a) != nil || json.Unmarshal(text, &b) != nil {
				t.Fatalf("%s: %s", what, raw)
			}
			if d := gocmp.Diff(b, a); d != "" {
				t.Fatalf("%s over %d documents of %v: %s", what, len(docs), c.json, d)
			}
		}
		same("facet of text", got.Facets["tag"], counted(tags, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) }))
		same("facet of numbers", got.Facets["n"], counted(numbers, func(a, b any) int { return cmp.Compare(a.(int64), b.(int64)) }))
		same("stats", got.Aggs["some"], stats(some))
		same("filter", got.Aggs["that"], map[string]any{"count": that})
		same("cardinality", got.Aggs["many"], map[string]any{"value": len(numbers), "exact": true, "error": 0})
		var mid any
		if len(ns) > 0 {
			slices.Sort(ns)
			at := float64(len(ns)-1) / 2
			mid = ns[int(at)] + (ns[int(math.Ceil(at))]-ns[int(at)])*(at-math.Floor(at))
		}
		same("percentiles", got.Aggs["mid"], map[string]any{"values": map[string]any{"50": mid}})
		histogram := []map[string]any{}
		for _, k := range slices.Sorted(mapKeys(steps)) {
			histogram = append(histogram, map[string]any{"key": k, "count": steps[k]})
		}
		same("histogram", got.Aggs["steps"], map[string]any{"buckets": histogram})
		same("range", got.Aggs["parts"], map[string]any{"buckets": []map[string]any{
			{"from": nil, "to": 0, "count": ranges[0]}, {"from": 0, "to": 5, "count": ranges[1]}, {"from": 5, "to": nil, "count": ranges[2]},
		}})
		buckets, other := []map[string]any{}, 0
		for i, b := range counted(tags, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) }) {
			if i >= 2 {
				other += b["count"].(int)
				continue
			}
			var fs []float64
			for _, d := range docs {
				if slices.Contains(d.Tag, b["value"].(string)) && d.F != nil {
					fs = append(fs, *d.F)
				}
			}
			b["aggs"] = map[string]any{"f": stats(fs)}
			buckets = append(buckets, b)
		}
		same("terms", got.Aggs["by"], map[string]any{"buckets": buckets, "other": other})
	}
}

func mapKeys[K comparable, V any](m map[K]V) func(yield func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func unique[T cmp.Ordered](list []T) []T {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// counted is the buckets of values: by count descending, then by value.
func counted(counts map[any]int, compare func(a, b any) int) []map[string]any {
	values := slices.SortedFunc(mapKeys(counts), func(a, b any) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), compare(a, b)) })
	out := []map[string]any{}
	for _, v := range values {
		out = append(out, map[string]any{"value": v, "count": counts[v]})
	}
	return out
}

func stats(values []float64) map[string]any {
	if len(values) == 0 {
		return map[string]any{"count": 0, "sum": nil, "min": nil, "max": nil, "avg": nil}
	}
	var sum float64
	for _, v := range values {
		sum += v
	}
	return map[string]any{"count": len(values), "sum": sum, "min": slices.Min(values), "max": slices.Max(values), "avg": sum / float64(len(values))}
}

func cosine(a, b []float32) float64 {
	var dot, x, y float64
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
		x += float64(a[i]) * float64(a[i])
		y += float64(b[i]) * float64(b[i])
	}
	return dot / math.Sqrt(x*y)
}

// similarities are those of the documents that have a vector, by the model.
func (m *model) similarities(kind string, q []float32, keep func(d *modelDoc) bool) map[string]float64 {
	out := map[string]float64{}
	for id, d := range m.docs {
		if !keep(d) {
			continue
		}
		switch kind {
		case "v":
			for _, v := range d.V {
				s := cosine(q, v)
				if old, ok := out[id]; !ok || s > old {
					out[id] = s
				}
			}
		case "bits":
			if d.Bits == nil {
				continue
			}
			same := 0
			for i := range 16 {
				bit := d.Bits[i/8] >> (i % 8) & 1
				if bit == byte(int(q[0])>>i&1) {
					same++
				}
			}
			out[id] = float64(same) / 16
		case "sp":
			if d.Sp == nil {
				continue
			}
			sum, hit := 0.0, false
			for i, at := range d.Sp.Indices {
				if q[at] != 0 {
					sum, hit = sum+float64(q[at])*float64(d.Sp.Values[i]), true
				}
			}
			if hit {
				out[id] = sum
			}
		}
	}
	return out
}

func TestNearestAgainstTheModel(t *testing.T) {
	m := newModel(t, 6)
	m.fill(150)
	for round := range 60 {
		c := m.condition(1)
		k := 1 + m.rng.IntN(40)
		var q []float32
		knn := map[string]any{"k": k}
		kind := []string{"v", "bits", "sp"}[round%3]
		knn["field"] = kind
		switch kind {
		case "v":
			q = []float32{1, float32(m.rng.IntN(9)) - 4, float32(m.rng.IntN(9)) - 4, float32(m.rng.IntN(9)) - 4}
			knn["vector"], knn["exact"] = q, true
		case "bits":
			bits := m.rng.IntN(1 << 16)
			q = []float32{float32(bits)}
			knn["bits"] = []byte{byte(bits), byte(bits >> 8)}
		case "sp":
			q = []float32{float32(1 + m.rng.IntN(3)), 0, 0, float32(1 + m.rng.IntN(3)), 0, 1}
			knn["indices"], knn["values"] = []int{0, 3, 5}, []float32{q[0], q[3], q[5]}
		}
		body := map[string]any{"knn": knn, "filter": c.json, "limit": 1000, "fields": []string{}, "explain": round%2 == 0}
		if round%2 == 0 {
			body["limit"] = 100
		}
		got := m.find(body)
		want := m.similarities(kind, q, c.keep)
		if int(got.Total) != min(k, len(want)) || len(got.Hits) != int(got.Total) || got.Approximate != nil {
			t.Fatalf("%s: %d of %d hits, %d have a vector, k %d", kind, len(got.Hits), got.Total, len(want), k)
		}
		least := math.Inf(1)
		for i, h := range got.Hits {
			s, err := h.Score.Float64()
			if err != nil {
				t.Fatal(err)
			}
			w, ok := want[h.ID]
			if !ok || math.Abs(s-w) > 1e-5 {
				t.Fatalf("%s: hit %d, %s, has similarity %v, the model %v %v", kind, i, h.ID, s, w, ok)
			}
			if s > least {
				t.Fatalf("%s: hit %d is better than the one before", kind, i)
			}
			least = s
			delete(want, h.ID)
			if h.Explain != nil && (h.Explain.Value != h.Score || h.Explain.Kind != "vector") {
				t.Fatalf("%s scores %s, explained as %s", h.ID, h.Score, h.Explain.Value)
			}
		}
		for id, w := range want {
			if len(got.Hits) > 0 && w > least+1e-5 {
				t.Fatalf("%s: %s with %v was left out, the last hit has %v", kind, id, w, least)
			}
		}
	}
	// Facets and the window are of the hits of the vector ranking.
	body := map[string]any{"knn": map[string]any{"field": "v", "vector": []int{1, 0, 0, 0}, "k": 20}, "limit": 5, "offset": 3, "facets": []string{"tag"}}
	page := m.find(body)
	body["limit"], body["offset"] = 100, 0
	all := m.find(body)
	if page.Total != 20 || !slices.Equal(page.ids(), all.ids()[3:8]) || string(page.Facets["tag"]) != string(all.Facets["tag"]) {
		t.Errorf("a window of the nearest: %v of %v", page.ids(), all.ids())
	}
	tags := map[any]int{}
	for _, id := range all.ids() {
		for _, tag := range unique(m.docs[id].Tag) {
			tags[tag]++
		}
	}
	if want, err := json.Marshal(counted(tags, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) })); err != nil || !sameJSON(want, all.Facets["tag"]) {
		t.Errorf("facets of the nearest %s, want %s", all.Facets["tag"], want)
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && gocmp.Equal(x, y)
}

func float32Of(t *testing.T, n json.Number) float32 {
	t.Helper()
	f, err := strconv.ParseFloat(n.String(), 32)
	if err != nil {
		t.Fatal(err)
	}
	return float32(f)
}

func TestHybridAgainstTheModel(t *testing.T) {
	m := newModel(t, 7)
	m.fill(150)
	for round := range 40 {
		pool := 1 + m.rng.IntN(60)
		q := strings.Join([]string{modelWords[m.rng.IntN(6)], modelWords[m.rng.IntN(6)]}, " ")
		vec := []int{1, m.rng.IntN(9) - 4, m.rng.IntN(9) - 4, 0}
		filter := []any{}
		if round%2 > 0 {
			filter = append(filter, m.condition(0).json)
		}
		lexical := m.find(map[string]any{"q": q, "filter": filter, "limit": pool, "fields": []string{}})
		vectors := m.find(map[string]any{"knn": map[string]any{"field": "v", "vector": vec, "k": pool}, "filter": filter, "limit": pool, "fields": []string{}})
		w := [2]float32{float32(m.rng.IntN(5)) / 4, 0.75}
		method := []string{"rrf", "weighted"}[m.rng.IntN(2)]
		type fused struct {
			score     float32
			lex, near int
		}
		want := map[string]*fused{}
		add := func(list *found, w float32, branch int) {
			var lo, hi float32
			for i, h := range list.Hits {
				s := float32Of(t, h.Score)
				if i == 0 {
					lo, hi = s, s
				}
				lo, hi = min(lo, s), max(hi, s)
			}
			for i, h := range list.Hits {
				f := want[h.ID]
				if f == nil {
					f = &fused{}
					want[h.ID] = f
				}
				var part float32
				switch {
				case method == "rrf":
					part = float32(w * float32(1/float32(60+float32(i+1))))
				case hi == lo:
					part = w
				default:
					part = float32(float32(w*float32(float32Of(t, h.Score)-lo)) * float32(1/float32(hi-lo)))
				}
				f.score += part
				if branch == 0 {
					f.lex = i + 1
				} else {
					f.near = i + 1
				}
			}
		}
		add(lexical, w[0], 0)
		add(vectors, w[1], 1)
		order := slices.SortedFunc(mapKeys(want), func(a, b string) int { return cmp.Or(cmp.Compare(want[b].score, want[a].score), cmp.Compare(a, b)) })
		limit := min(pool, 100)
		got := m.find(map[string]any{
			"q": q, "knn": map[string]any{"field": "v", "vector": vec}, "filter": filter, "pool": pool, "fusion": method, "weights": w, "limit": limit,
			"fields": []string{}, "explain": true, "facets": []string{"tag"},
		})
		if int(got.Total) != len(want) {
			t.Fatalf("%s %q: total %d, want %d", method, q, got.Total, len(want))
		}
		if d := gocmp.Diff(order[:min(limit, len(order))], got.ids()); d != "" && len(order) > 0 {
			t.Fatalf("%s %q: %s", method, q, d)
		}
		for _, h := range got.Hits {
			f := want[h.ID]
			if math.Float32bits(f.score) != math.Float32bits(float32Of(t, h.Score)) || h.LexicalRank != f.lex || h.VectorRank != f.near {
				t.Fatalf("%s %q: %s has score %s, ranks %d and %d, want %v, %d and %d", method, q, h.ID, h.Score, h.LexicalRank, h.VectorRank, f.score, f.lex, f.near)
			}
			if h.Explain.Kind != method || h.Explain.Value != h.Score || len(h.Explain.Parts) != btoi(f.lex > 0)+btoi(f.near > 0) {
				t.Fatalf("%s scores %s, explained as %+v", h.ID, h.Score, h.Explain)
			}
		}
		if plain := m.find(map[string]any{"q": q, "filter": filter, "facets": []string{"tag"}, "limit": 0}); string(plain.Facets["tag"]) != string(got.Facets["tag"]) {
			t.Fatalf("facets of a hybrid search are those of its query: %s and %s", got.Facets["tag"], plain.Facets["tag"])
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestExplanationsHaveTheScore explains hits of many queries: the value at the root is the score, to the bit.
func TestExplanationsHaveTheScore(t *testing.T) {
	m := newModel(t, 8)
	m.fill(100)
	for _, q := range []string{
		"", "warp", "warp weft", "+warp -loom reed^2.5", `"warp weft"`, `"warp weft"~3 OR loom`, "w*", "(warp AND (weft OR loom))^0.3 OR tag:t1", "n:[0 TO 5] OR warp", "NOT warp", "_exists_:f",
	} {
		for _, sort := range []string{"", "n", "score:asc"} {
			body := map[string]any{"q": q, "explain": true, "profile": true, "limit": 100, "fields": []string{}, "filter": "n:>-5"}
			if sort != "" {
				body["sort"] = sort
			}
			for _, h := range m.find(body).Hits {
				if h.Explain == nil || float32Of(t, h.Explain.Value) != float32Of(t, h.Score) {
					t.Fatalf("%q: %s scores %s, explained as %+v", q, h.ID, h.Score, h.Explain)
				}
			}
		}
	}
	m.do("GET", "/search?index=m&explain=true&limit=101", "", "").problem(400, api.InvalidParameter)
}

// merge makes one segment of all.
func (m *model) merge() {
	m.t.Helper()
	l, err := m.node.catalog.use(m.t.Context(), "m")
	if err != nil {
		m.t.Fatal(err)
	}
	defer l.release()
	if err := l.eng.(*shard.Shard).Merge(context.Background(), 1); err != nil {
		m.t.Fatal(err)
	}
	if n := l.eng.Stats().Segments; n != 1 {
		m.t.Fatalf("%d segments after a merge", n)
	}
}

// everyKind asks for aggregations of every kind, over numbers, floats, dates and texts, with filters, and in the buckets of every kind that
// has some.
func everyKind() map[string]any {
	inner := map[string]any{
		"t": map[string]any{"kind": "terms", "field": "tag", "size": 2},
		"s": map[string]any{"kind": "stats", "field": "f", "filter": "n:>0"},
		"h": map[string]any{"kind": "histogram", "field": "n", "interval": 3},
		"d": map[string]any{"kind": "date_histogram", "field": "at", "interval": "1w"},
		"r": map[string]any{"kind": "range", "field": "f", "ranges": []any{"..0", "-1..3", "3.."}},
		"p": map[string]any{"kind": "percentiles", "field": "n", "percents": []any{10, 50, 99.5}},
		"c": map[string]any{"kind": "cardinality", "field": "tag"},
		"f": map[string]any{"kind": "filter", "filter": "tag:t1"},
	}
	all := maps.Clone(inner)
	all["of_nothing"] = map[string]any{"kind": "terms", "field": "tag", "filter": "tag:nowhere"}
	for name, outer := range map[string]map[string]any{
		"in_terms":  {"kind": "terms", "field": "n", "size": 0},
		"in_tags":   {"kind": "terms", "field": "tag", "filter": "NOT tag:t3"},
		"in_steps":  {"kind": "histogram", "field": "f", "interval": 2.5},
		"in_months": {"kind": "date_histogram", "field": "at", "interval": "1M"},
		"in_ranges": {"kind": "range", "field": "n", "ranges": []any{"..0", "0..5", map[string]any{"from": 5}}},
		"in_filter": {"kind": "filter", "filter": map[string]any{"range": map[string]any{"field": "f", "gte": 0}}},
	} {
		outer["aggs"] = inner
		all[name] = outer
	}
	return all
}

// answerKind is what everyKind has to be answered with over documents: the model of aggregations, with no index.
func answerKinds(specs map[string]any, docs []*modelDoc) map[string]any {
	out := map[string]any{}
	for name, spec := range specs {
		out[name] = answerKind(spec.(map[string]any), docs)
	}
	return out
}

func answerKind(spec map[string]any, docs []*modelDoc) map[string]any {
	filters := map[string]func(d *modelDoc) bool{
		"n:>0":        func(d *modelDoc) bool { return slices.ContainsFunc(d.N, func(n int64) bool { return n > 0 }) },
		"tag:t1":      func(d *modelDoc) bool { return slices.Contains(d.Tag, "t1") },
		"NOT tag:t3":  func(d *modelDoc) bool { return !slices.Contains(d.Tag, "t3") },
		"tag:nowhere": func(d *modelDoc) bool { return false },
	}
	switch f := spec["filter"].(type) {
	case string:
		docs = slices.DeleteFunc(slices.Clone(docs), func(d *modelDoc) bool { return !filters[f](d) })
	case map[string]any:
		docs = slices.DeleteFunc(slices.Clone(docs), func(d *modelDoc) bool { return d.F == nil || *d.F < 0 })
	}
	numbers := func(d *modelDoc) (list []float64) {
		switch spec["field"] {
		case "n":
			for _, n := range d.N {
				list = append(list, float64(n))
			}
		case "f":
			if d.F != nil {
				list = append(list, *d.F)
			}
		case "at":
			if at, err := time.Parse(time.RFC3339, d.At); err == nil {
				list = append(list, float64(at.UnixMilli()))
			}
		}
		return list
	}
	var all []float64
	for _, d := range docs {
		all = append(all, numbers(d)...)
	}
	slices.Sort(all)
	// in is the bucket of the documents that keep takes.
	in := func(b map[string]any, keep func(d *modelDoc) bool) map[string]any {
		mine := slices.DeleteFunc(slices.Clone(docs), func(d *modelDoc) bool { return !keep(d) })
		b["count"] = len(mine)
		if sub, ok := spec["aggs"].(map[string]any); ok {
			b["aggs"] = answerKinds(sub, mine)
		}
		return b
	}
	// by is the buckets of the documents by what of makes of their numbers.
	by := func(member string, of func(v float64) float64, show func(k float64) any) []any {
		keys := make([]float64, len(all))
		for i, v := range all {
			keys[i] = of(v)
		}
		list := []any{}
		for _, k := range unique(keys) {
			list = append(list, in(map[string]any{member: show(k)}, func(d *modelDoc) bool {
				return slices.ContainsFunc(numbers(d), func(v float64) bool { return of(v) == k })
			}))
		}
		return list
	}
	plain := func(k float64) any { return k }
	switch spec["kind"] {
	case "stats":
		return stats(all)
	case "filter":
		return in(map[string]any{}, func(*modelDoc) bool { return true })
	case "cardinality":
		var tags []string
		for _, d := range docs {
			tags = append(tags, d.Tag...)
		}
		return map[string]any{"value": len(unique(tags)), "exact": true, "error": 0}
	case "percentiles":
		values := map[string]any{}
		for _, p := range spec["percents"].([]any) {
			text := fmt.Sprint(p)
			values[text] = nil
			if len(all) > 0 {
				percent, err := strconv.ParseFloat(text, 64)
				if err != nil {
					panic(err)
				}
				at := percent / 100 * float64(len(all)-1)
				low, high := all[int(at)], all[min(int(at)+1, len(all)-1)]
				values[text] = low + (high-low)*(at-math.Floor(at))
			}
		}
		return map[string]any{"values": values}
	case "histogram":
		step, err := strconv.ParseFloat(fmt.Sprint(spec["interval"]), 64)
		if err != nil {
			panic(err)
		}
		return map[string]any{"buckets": by("key", func(v float64) float64 { return math.Floor(v/step) * step }, plain)}
	case "date_histogram":
		begin := func(v float64) float64 {
			day := time.UnixMilli(int64(v)).UTC().Truncate(24 * time.Hour)
			if spec["interval"] == "1w" {
				return float64(day.AddDate(0, 0, -(int(day.Weekday())+6)%7).UnixMilli())
			}
			return float64(day.AddDate(0, 0, 1-day.Day()).UnixMilli())
		}
		return map[string]any{"buckets": by("key", begin, func(k float64) any { return time.UnixMilli(int64(k)).UTC().Format(time.RFC3339) })}
	case "range":
		list := []any{}
		for _, r := range spec["ranges"].([]any) {
			from, to := math.Inf(-1), math.Inf(1)
			if m, ok := r.(map[string]any); ok {
				from = float64(m["from"].(int))
			} else {
				a, b, _ := strings.Cut(r.(string), "..")
				for end, text := range map[*float64]string{&from: a, &to: b} {
					if v, err := strconv.ParseFloat(text, 64); err == nil {
						*end = v
					}
				}
			}
			show := func(v float64) any {
				if math.IsInf(v, 0) {
					return nil
				}
				return v
			}
			list = append(list, in(map[string]any{"from": show(from), "to": show(to)}, func(d *modelDoc) bool {
				return slices.ContainsFunc(numbers(d), func(v float64) bool { return v >= from && v < to })
			}))
		}
		return map[string]any{"buckets": list}
	}
	// terms
	var list []any
	if spec["field"] == "tag" {
		var tags []string
		for _, d := range docs {
			tags = append(tags, d.Tag...)
		}
		for _, t := range unique(tags) {
			list = append(list, in(map[string]any{"value": t}, func(d *modelDoc) bool { return slices.Contains(d.Tag, t) }))
		}
	} else {
		list = by("value", func(v float64) float64 { return v }, plain)
	}
	count := func(b any) int { return b.(map[string]any)["count"].(int) }
	slices.SortStableFunc(list, func(a, b any) int { return cmp.Compare(count(b), count(a)) })
	size, ok := spec["size"].(int)
	if !ok {
		size = 10
	}
	cut, other := []any{}, 0
	for i, b := range list {
		if size == 0 || i < size {
			cut = append(cut, b)
		} else {
			other += count(b)
		}
	}
	return map[string]any{"buckets": cut, "other": other}
}

// nearly lets an interpolated value differ by what the model rounds more often.
var nearly = cmpopts.EquateApprox(1e-12, 0)

// TestAnswersOutliveFlushMergeAndRestart asks the same before and after memtables are written out, segments are merged, and after a
// restart, also with filters that are remembered while documents go.
func TestAnswersOutliveFlushMergeAndRestart(t *testing.T) {
	m := newModel(t, 13)
	m.fill(120)
	bodies := []string{
		`{"q":"warp weft","filter":["tag:t1 OR n:>0"],"sort":["tag:desc","score"],"facets":["tag","n"],"limit":40}`,
		`{"q":"loom","knn":{"field":"v","vector":[1,2,-1,0]},"limit":40,"explain":true,"highlight":["title"]}`,
		`{"knn":{"field":"v","vector":[1,-2,3,0],"k":30},"filter":{"range":{"field":"n","gte":-3}},"limit":40}`,
		`{"knn":{"field":"bits","bits":"AP8=","k":30},"limit":40}`,
		`{"knn":{"field":"sp","indices":[0,4],"values":[1,2],"k":30},"filter":"n:<5","limit":40}`,
		`{"filter":{"exists":{"field":"f"}},"sort":"f:desc","aggs":"a:stats(f),b:percentiles(n,10,50),c:date_histogram(at,1w),d:cardinality(tag)","limit":40}`,
		`{"q":"warp OR loom","filter":"NOT tag:t4","limit":0,"aggs":` + string(marshal(t, everyKind())) + `}`,
	}
	// Aggregations of every kind are held against the model besides, whatever became of the documents.
	kinds := everyKind()
	aggregate := func(m *model) {
		t.Helper()
		for _, c := range []condition{m.condition(1), {json: map[string]any{"exists": map[string]any{"field": "id"}}, keep: func(*modelDoc) bool { return true }}} {
			got := m.do("POST", "/search?index=m", "application/json", string(marshal(t, map[string]any{"filter": []any{c.json}, "limit": 0, "aggs": kinds}))).want(200).json()["aggs"]
			var docs []*modelDoc
			for _, id := range m.where(c.keep) {
				docs = append(docs, m.docs[id])
			}
			var want any
			if err := json.Unmarshal(marshal(t, answerKinds(kinds, docs)), &want); err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(want, got, nearly); d != "" {
				t.Errorf("over %d documents of %v: %.3000s", len(docs), c.json, d)
			}
		}
	}
	ask := func(m *model) []string {
		t.Helper()
		aggregate(m)
		var out []string
		for _, b := range bodies {
			a := m.do("POST", "/search?index=m", "application/json", b).want(200)
			var r struct{ Total, Hits, Facets, Aggs, Next json.RawMessage }
			if err := json.Unmarshal(a.body, &r); err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s %s %s %s %s", r.Total, r.Hits, r.Facets, r.Aggs, r.Next))
		}
		return out
	}
	same := func(when string, want, got []string) {
		t.Helper()
		for i := range want {
			if want[i] != got[i] {
				t.Errorf("%s, %s:\n%.900s\nwas\n%.900s", when, bodies[i], got[i], want[i])
			}
		}
	}
	before := ask(m)
	same("asked again", before, ask(m))
	m.flush()
	same("after a flush", before, ask(m))
	m.merge()
	same("after a merge", before, ask(m))
	m.write("e001", "e002", "e003")
	m.flush()
	m.remove("e001")
	m.remove("e002")
	m.remove("e003")
	same("after documents came and went", before, ask(m))
	// The sets that filters found are remembered by now; deleted documents are in none of them.
	for i := range 10 {
		m.remove(fmt.Sprintf("d%03d", 7*i))
	}
	fewer := ask(m)
	changed := 0
	for i := range fewer {
		if fewer[i] != before[i] {
			changed++
		}
	}
	if changed < 4 {
		t.Errorf("only %d answers changed when documents were deleted", changed)
	}
	dir := m.node.cfg.DataDir
	if err := m.node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.server = newServer(t, Config{DataDir: dir})
	same("after a restart", fewer, ask(m))
	m.merge()
	same("after a merge", fewer, ask(m))
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
