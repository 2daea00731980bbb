package clustertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/topology/placement"
)

const oddSchema = `index odd {
  field id: text<raw> [indexed, stored, fast, primary]
  field body: text<en_stem> [indexed<positions>, stored]
  field title: text<simple> [indexed<positions>, stored]
  field n: i64 [indexed, stored, fast]
  field f: f64 [indexed, stored, fast]
  field tags: text<raw> [indexed, stored, fast]
  field at: date [indexed, stored, fast]
  field v: dense_vector<4> [indexed<metric: cosine>, stored]
}`

var oddWords = strings.Fields("alpha beta gamma delta epsilon zeta Ünïcode straße 中文 日本語 émigré naïve foo-bar a1b2 ﬁ TO AND")

// odd makes requests that are often not what they should be: a few of their values are out of bounds, of another type or of no field, and some of
// their bytes are gone.
type odd struct {
	*rand.Rand
	ids []string
}

// or is one of the values that are allowed, and now and then another.
func or[T any](o *odd, valid []T, others ...T) T {
	if len(others) > 0 && o.IntN(40) == 0 {
		return pick(o.Rand, others)
	}
	return pick(o.Rand, valid)
}

func (o *odd) in(n int) bool { return o.IntN(n) == 0 }

func (o *odd) some(most int, f func()) {
	for range o.IntN(most + 1) {
		f()
	}
}

func (o *odd) term() string {
	word, number := or(o, []string{"body", "title", "tags"}, "n", "nope", "v", ""), or(o, []string{"n", "f"}, "tags", "body", "nope", "at")
	w := pick(o.Rand, oddWords)
	if o.in(2) {
		word += ":"
	} else {
		word = ""
	}
	switch o.IntN(14) {
	case 0:
		return word + string([]rune(w)[:1]) + "*"
	case 1:
		return fmt.Sprintf("%s%q", or(o, []string{"body:", "title:", ""}, "n:", "tags:"), w+" "+pick(o.Rand, oddWords))
	case 2:
		return fmt.Sprintf("body:%q~%s", w+" "+pick(o.Rand, oddWords), or(o, []string{"0", "2", "9"}, "99999999", "-1", "x"))
	case 3:
		return word + w + "^" + or(o, []string{"2", "0.5"}, "0", "-1", "1e39", "NaN")
	case 4:
		return fmt.Sprintf("%s:[%s TO %s]", number, or(o, []string{"*", "-5", "1"}, "a"), or(o, []string{"*", "9", "100"}, "z", ""))
	case 5:
		return number + ":>=" + or(o, []string{"1", "-3"}, "x", "NaN", "1e400")
	case 6:
		return "_exists_:" + or(o, []string{"n", "f", "tags"}, "body", "v", "nope")
	case 7:
		return "(" + o.term() + " " + o.term() + ")"
	case 8:
		return or(o, []string{"*", "at:>=2020-01-01T00:00:00Z", "id:[d1 TO d3]", "id:d1"}, `""`, ":", "~", "(", `\`, "at:>=x")
	}
	return word + w
}

func (o *odd) query() string {
	var parts []string
	for i := range 1 + o.IntN(3) {
		sign := pick(o.Rand, []string{"", "", "", "+", "-"})
		if i > 0 && o.in(3) {
			sign = pick(o.Rand, []string{"AND ", "OR ", "NOT "})
		}
		parts = append(parts, sign+o.term())
	}
	return strings.Join(parts, " ")
}

// vector has as many dimensions as the field, nearly always.
func (o *odd) vector() []float32 {
	v := make([]float32, or(o, []int{4}, 0, 3, 5))
	for i := range v {
		v[i] = float32(o.IntN(33)-16) / 16
	}
	return v
}

// search is the body of a search of one of two indexes.
func (o *odd) search() (index string, body map[string]any) {
	index = or(o, []string{"odd", "odd", "guessed"}, "none", "", "Not a name")
	b := map[string]any{"dfs": true}
	set := func(n int, name string, value func() any) {
		if o.in(n) {
			b[name] = value()
		}
	}
	if !o.in(6) {
		b["q"] = o.query()
	}
	set(6, "default_op", func() any { return or(o, []any{"and", "or"}, "AND", "", 1) })
	set(7, "default_fields", func() any { return []any{or(o, []any{"body", "title", "tags"}, "n", "nope", 3)} })
	set(2, "limit", func() any { return or(o, []any{0, 1, 3, 50}, 10000, 10001, -1, 1.5, "3", nil) })
	set(4, "offset", func() any { return or(o, []any{0, 1, 20}, 9990, 10001, -1) })
	set(3, "filter", func() any { return []string{o.query()} })
	set(8, "missing", func() any { return or(o, []any{"first", "last"}, "middle") })
	set(5, "fields", func() any { return []any{or(o, []any{"body", "n", "id"}, "nope", "")} })
	set(4, "facets", func() any { return []any{or(o, []any{"tags", "n", "id"}, "body", "nope", "v")} })
	set(6, "track_total", func() any { return or(o, []any{"exact", "none"}, -1, "x", true) })
	set(9, "min_coverage", func() any { return or(o, []any{0, 0.5, 1}, 1.1, -1, "x") })
	set(9, "allow_partial", func() any { return or(o, []any{true, false}, "x") })
	set(20, "timeout_ms", func() any { return or(o, []any{60000}, 0, -1, 1e12) })
	set(7, "explain", func() any { return true })
	set(7, "highlight", func() any {
		return or(o, []any{[]string{"body"}, []string{"title", "body"}}, any([]string{"n"}), any([]string{"nope"}), any(7))
	})
	set(90, "nope", func() any { return 1 })
	if o.in(5) {
		index = "odd"
		b["knn"], b["knn_exact"] = map[string]any{"field": or(o, []string{"v"}, "n", "nope"), "vector": o.vector()}, true
		set(4, "fusion", func() any { return or(o, []any{"rrf", "weighted"}, "x") })
		set(4, "pool", func() any { return or(o, []any{5, 50}, 0, 100000, -1) })
	} else {
		set(3, "sort", func() any {
			var keys []any
			o.some(3, func() {
				keys = append(keys, or(o, []any{"score", "id:desc", "num:n", "n:desc", "n:asc:max", "f:desc:min", "tags", "tags:desc", "at:desc"}, "body", "nope", "v", "n:up", ""))
			})
			return keys
		})
	}
	set(3, "aggs", func() any {
		aggs := map[string]any{}
		o.some(2, func() {
			kind := or(o, []string{"terms", "stats", "percentiles", "cardinality", "date_histogram", "range"}, "nope", "histogram")
			a := map[string]any{"kind": kind, "field": or(o, []string{"n", "f"}, "body", "nope", "at")}
			switch kind {
			case "terms", "cardinality":
				a["field"] = or(o, []string{"tags", "n", "id"}, "body", "nope")
			case "date_histogram":
				a["field"], a["interval"] = or(o, []string{"at"}, "n"), or(o, []string{"1M", "1y"}, "2d", "x")
			case "range":
				a["ranges"] = or(o, [][]string{{"..0", "0..10", "10.."}}, []string{"5..1"}, []string{"a..b"}, nil)
			case "percentiles":
				a["percents"] = or(o, [][]float64{{50, 99}, {0, 100}}, []float64{101}, nil)
			case "histogram":
				a["interval"] = 0
			}
			if o.in(3) {
				a["filter"] = o.query()
			}
			aggs[fmt.Sprintf("a%d", len(aggs))] = a
		})
		return aggs
	})
	return index, b
}

// document is one for an index; wrong ones have a value of another type.
func (o *odd) document(index string, wrong bool) map[string]any {
	words := func(n int) string {
		var w []string
		o.some(n, func() { w = append(w, pick(o.Rand, oddWords)) })
		return strings.Join(w, " ")
	}
	d := map[string]any{"id": pick(o.Rand, o.ids), "body": words(20)}
	for name, value := range map[string]any{
		"title": words(3), "n": pick(o.Rand, []int64{0, -1, 7, 1 << 53, -1 << 62, 42}), "f": pick(o.Rand, []float64{0, 1.5, 1e300, -1e-300}),
		"tags": []string{pick(o.Rand, oddWords), pick(o.Rand, oddWords)}, "at": fmt.Sprintf("20%02d-0%d-11T07:00:00Z", o.IntN(40), 1+o.IntN(9)),
	} {
		if !o.in(4) {
			d[name] = value
		}
	}
	if index == "odd" && !o.in(4) {
		d["v"] = o.vector()
	}
	if wrong && o.in(2) {
		name := pick(o.Rand, []string{"id", "n", "f", "at", "tags", "v", "body"})
		d[name] = pick(o.Rand, []any{1, "x", nil, []any{}, map[string]any{}, []any{1, "a"}, 1.5, true, json.Number("1180591620717411303424"), "", [][]int{{1}}, strings.Repeat("i", 513)})
	}
	return d
}

// marshal is the text of a value; with spoiled, a few of its bytes are others now and then.
func (o *odd) marshal(t *testing.T, v any, spoiled bool) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if spoiled && o.in(12) {
		for range 1 + o.IntN(2) {
			i := o.IntN(len(b))
			if o.in(2) {
				b = slices.Delete(b, i, i+1)
			} else {
				b[i] = pick(o.Rand, []byte("{}[]\":,019tfn\\\x00\xff"))
			}
		}
	}
	return b
}

// A cluster refuses what a node refuses, with the same words, and takes what it takes, also where requests are odd: values out of bounds or of
// another type, fields that are not there, text that is no JSON, cursors that are cut, ids of any characters; and documents of which some are wrong
// are counted and refused line by line as a node does it, whether the fields are declared or guessed.
func TestOddRequestsAreAnsweredAsByOneNode(t *testing.T) {
	n := 1500
	if testing.Short() || raced {
		n = 250
	}
	o := &odd{testRand(t), []string{"a", "A", "ä", "日本", "x/y", "x y", "x%20y", strings.Repeat("a", 512), "\x01", `"q"`, `\`, "..", "-1", "00", "null", "🙂", "e\u0301", "é"}}
	for i := range 150 {
		o.ids = append(o.ids, fmt.Sprintf("d%d", i))
	}
	one, k := single(t), open(t, 3, 2, placement.Ring)
	var statuses [6]int
	both := func(method, target, ctype string, body []byte) (node, cluster map[string]any) {
		t.Helper()
		want, got := one.do(method, target, ctype, body), k.do(method, target, ctype, body)
		statuses[want.status/100]++
		a, b := comparable(t, want), comparable(t, got)
		node, cluster = map[string]any{"next": a["next"]}, map[string]any{"next": b["next"]}
		for _, r := range []map[string]any{a, b} {
			for _, name := range []string{"members", "members_ok", "failed_addresses", "segments", "bytes", "instance", "next", "coverage", "shards"} {
				delete(r, name)
			}
			if r["code"] == "aggregation_limit" {
				delete(r, "detail") // has numbers of a shard
			}
		}
		var diff []string
		if want.status != got.status {
			diff = append(diff, fmt.Sprintf("status: node %d, cluster %d", want.status, got.status))
		}
		if differences("", a, b, &diff); len(diff) > 0 {
			t.Fatalf("%s %s %s:\n\t%s", method, target, body, strings.Join(diff, "\n\t"))
		}
		return node, cluster
	}
	write := func(index string, wrong bool) {
		at := func(path string, params url.Values) string { params.Set("index", index); return target(path, params) }
		switch o.IntN(4) {
		case 0:
			both("POST", at("/index", url.Values{}), "application/json", o.marshal(t, o.document(index, wrong), wrong))
		case 1:
			both("DELETE", at("/index", url.Values{"id": {pick(o.Rand, o.ids)}}), "", nil)
		case 2:
			both("GET", at("/doc", url.Values{"id": {pick(o.Rand, o.ids)}}), "", nil)
		default:
			var lines []byte
			o.some(9, func() { lines = append(append(lines, o.marshal(t, o.document(index, wrong), wrong)...), '\n') })
			both("POST", at("/index/bulk", url.Values{}), "application/x-ndjson", lines)
		}
	}
	both("PUT", "/indexes/odd", "text/plain", []byte(oddSchema))
	both("PUT", "/indexes/odd2", "text/plain", []byte(strings.Replace(oddSchema, "f64", "bool", 1)))
	for range 150 {
		write(pick(o.Rand, []string{"odd", "guessed"}), false)
	}
	for i := range n {
		index, body := o.search()
		path := target("/search", url.Values{"index": {index}})
		node, cluster := both("POST", path, "application/json", o.marshal(t, body, true))
		for range 2 {
			after, other := node["next"], cluster["next"]
			if (after == nil) != (other == nil) {
				t.Fatalf("%s %v: a page follows at the node: %v, at the cluster: %v", path, body, after, other)
			}
			if after == nil {
				break
			}
			delete(body, "offset")
			// Each takes the cursor of the other.
			if o.in(2) {
				after = other
			}
			body["after"] = after
			if o.in(10) {
				body["after"] = after.(string)[:len(after.(string))-3]
			}
			if o.in(20) {
				body["q"] = "another"
			}
			node, cluster = both("POST", path, "application/json", o.marshal(t, body, false))
		}
		if i%3 == 0 {
			write(pick(o.Rand, []string{"odd", "guessed"}), true)
		}
		if i%50 == 0 {
			both("GET", "/indexes/odd", "", nil)
			both("GET", "/indexes/guessed", "", nil)
		}
	}
	t.Logf("answers by hundreds of their status: %v", statuses)
	if statuses[2] < n/2 || statuses[4] < n/10 {
		t.Errorf("too few were taken, or too few refused: %v", statuses)
	}
}
