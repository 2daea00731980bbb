package hostiletest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// vectors asks the broker and a node with the same documents for neighbours of vectors that fit and that do not: both accept and refuse alike,
// and what is exact has the same neighbours.
func vectors(t *testing.T, f *fleet) {
	n := 400
	if testing.Short() {
		n = 150
	}
	if full {
		n = 40_000
	}
	g := &asker{testRand(t)}
	seen := map[string]int{}
	for range n {
		method, target, body := g.next()
		ctype := ""
		if body != "" {
			ctype = asJSON
		}
		want, got := f.alone.do(method, target, ctype, []byte(body)), f.broker.do(method, target, ctype, []byte(body))
		seen[strconv.Itoa(want.status)+" "+want.code()]++
		if want.status != got.status || want.code() != got.code() {
			t.Errorf("%s %s %s:\na node: %d %.300s\na broker: %d %.300s", method, target, body, want.status, want.body, got.status, got.body)
			continue
		}
		if want.status == 200 && strings.Contains(target+body, "exact") {
			if a, b := neighbours(t, want), neighbours(t, got); a != b {
				t.Errorf("%s %s %s:\na node: %s\na broker: %s", method, target, body, a, b)
			}
		}
		if t.Failed() && !full {
			return
		}
	}
	t.Log(seen)
	if seen["200 "] < n/20 || seen["400 invalid_vector"] < n/50 || seen["400 invalid_parameter"] < n/40 {
		t.Error("the searches are too much alike")
	}
}

// neighbours are the ids and scores of a reply, with its total.
func neighbours(t *testing.T, r reply) string {
	t.Helper()
	var o struct {
		Total json.Number `json:"total"`
		Hits  []struct {
			ID    string      `json:"id"`
			Score json.Number `json:"score"`
		} `json:"hits"`
	}
	if err := json.Unmarshal(r.body, &o); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(o)
}

// asker makes searches by vectors.
type asker struct{ r *rand.Rand }

func (g *asker) of(list ...string) string { return list[g.r.IntN(len(list))] }

// few is what most searches do not have.
func (g *asker) few() bool { return g.r.IntN(6) == 0 }

// numbersOf are so many numbers, of which few are odd.
func (g *asker) numbersOf(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.FormatFloat(float64(g.r.Float32())*2-1, 'g', 4, 32)
	}
	if n > 0 && g.few() {
		list[g.r.IntN(n)] = g.of("NaN", "Inf", "-Inf", "1e400", "1e39", "3.4e38", "-3.4e38", "1e-50", "1e-45", "-0", "0", "x", "", "null", "1e", "0x1p-2", "1_0")
	}
	if g.few() {
		for i := range list {
			list[i] = g.of("0", "-0", "1e38", "1e-44")
		}
	}
	return strings.Join(list, ",")
}

// dims are mostly right.
func (g *asker) dims(right int) int {
	if g.r.IntN(3) > 0 {
		return right
	}
	return []int{0, 1, right - 1, right + 1, 2 * right, 300}[g.r.IntN(6)]
}

func (g *asker) pairs() string {
	var list []string
	for range g.r.IntN(5) {
		list = append(list, g.of("1", "3", "7", "9", "15", "16", "4294967295")+"="+g.of("0.5", "1", "0.25", "2"))
	}
	if g.few() {
		list = append(list, g.of("7=NaN", "4294967296=1", "-1=1", "1.5=1", "7=", "=1", "7", "7=1=2", "7=-1", "7=0", "7=1e39", "1=1,1=2", "7=1e38,8=3e38,9=3e38"))
	}
	if g.r.IntN(40) == 0 {
		for i := range 3000 {
			list = append(list, strconv.Itoa(100+i)+"=1")
		}
	}
	return strings.Join(list, ",")
}

// vector is one for a URL.
func (g *asker) vector() string {
	field := g.of("dense", "flat", "bin", "sp")
	as := field
	if g.few() {
		field = g.of("dense", "flat", "bin", "sp", "title", "year", "id", "none", "", "%", "*", "_")
	}
	switch as {
	case "dense":
		return field + ":" + g.numbersOf(g.dims(4))
	case "flat":
		return field + ":" + g.numbersOf(g.dims(3))
	case "bin":
		return field + ":" + g.of("0x0f3c", "0xffff", "0x0000", "0X0f3c", "0x0F3C", "0x0f3", "0x0f", "0x0f3c00", "0x", "0xzzzz", "0f3c", "", "Dzw=")
	}
	return field + ":" + g.pairs()
}

// object is one in JSON.
func (g *asker) object() string {
	field := g.of("dense", "flat", "bin", "sp")
	members := []string{`"field":` + strconv.Quote(field)}
	switch g.of("vector", "bits", "pairs", field, field, field, field) {
	case "vector", "dense":
		members = append(members, `"vector":[`+g.numbersOf(g.dims(4))+`]`)
	case "flat":
		members = append(members, `"vector":[`+g.numbersOf(g.dims(3))+`]`)
	case "bits", "bin":
		members = append(members, `"bits":`+g.of(`"Dzw="`, `"//8="`, `"AAA="`, `"Dw=="`, `"Dzw"`, `""`, `"DzwA"`, `"*"`, `null`, `[15,60]`))
	default:
		n := g.r.IntN(4)
		values := n
		if g.few() {
			values++
		}
		list := make([]string, n)
		for i := range list {
			list[i] = g.of("1", "3", "7", "9", "15")
		}
		if g.few() && n > 0 {
			list[0] = g.of("4294967296", "-1", "1.5", `"7"`, "null", "1e3")
		}
		members = append(members, `"indices":[`+strings.Join(list, ",")+`],"values":[`+g.numbersOf(values)+`]`)
	}
	if g.few() {
		members = append(members, `"vector":[1,2,3]`)
	}
	if g.few() {
		members = append(members, `"k":`+g.of("0", "1", "5", "10000", "10001", "-1", "1.5", `"5"`, "null", "1e9", "99999999999999999999"))
	}
	if g.few() {
		members = append(members, `"ef":`+g.of("0", "1", "20000", "20001", "-1", "null"))
	}
	if g.few() {
		members = append(members, `"exact":`+g.of("true", "false", `"true"`, "1", "null"))
	}
	if g.few() {
		members = append(members, `"combiner":`+g.of(`"max"`, `"avg"`, `"sum"`, `"log_sum_exp"`, `"weighted_top_k"`, `"none"`, `null`, `1`))
		if g.few() {
			members = append(members, g.of(`"temperature":0`, `"temperature":-1`, `"temperature":1e39`, `"temperature":0.5`, `"top_k":0`, `"top_k":2`, `"top_k":-1`, `"decay":0.5`, `"decay":2`, `"decay":-1`))
		}
	}
	if g.few() {
		members = append(members, `"more":1`)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// next is a search: its method, target and body.
func (g *asker) next() (method, to, body string) {
	p := url.Values{}
	if g.r.IntN(2) == 0 {
		p.Set("knn_exact", g.of("true", "true", "true", "false", "1"))
	}
	if g.few() {
		p.Set("knn_k", g.of("0", "1", "3", "10000", "10001", "-1", "1000000000", "99999999999999999999", "x", "", "1.5"))
	}
	if g.r.IntN(3) == 0 {
		p.Set("q", g.of("loom", "warp weft", "*", "w*", "-loom", "", "kind:k1", "loom OR", "none:x"))
		if g.few() {
			p.Set("fusion", g.of("rrf", "weighted", "none", ""))
		}
		if g.few() {
			p.Set("weights", g.of("0.3,0.7", "0,0", "1", "1,2,3", "-1,2", "NaN,1", "1e39,1", "3e38,3e38", "x,y", ""))
		}
		if g.few() {
			p.Set("pool", g.of("1", "10", "10000", "10001", "0", "-1", "x"))
		}
	}
	if g.few() {
		p.Set("filter", g.of("kind:k1", "year:[1950 TO 1960]", "kind:none", "none:x", "("))
	}
	if g.few() {
		p.Set("limit", g.of("0", "1", "100", "10000", "10001", "-1"))
	}
	if g.few() {
		p.Set("offset", g.of("0", "1", "9990", "10000", "10001", "-1"))
	}
	if g.r.IntN(12) == 0 {
		p.Set("sort", g.of("year", "score", "none"))
	}
	if g.r.IntN(12) == 0 {
		p.Set("explain", "true")
	}
	if g.r.IntN(12) == 0 {
		p.Set("facets", "kind")
	}
	p.Set("fields", "")
	if g.r.IntN(2) == 0 {
		p.Set("index", "docs")
		p.Set("knn", g.vector())
		return "GET", "/search?" + p.Encode(), ""
	}
	var members []string
	for name, v := range p {
		text := v[0]
		switch name {
		case "fields", "facets", "weights":
			text = "[" + text + "]"
			if name == "facets" {
				text = `["kind"]`
			}
		case "q", "fusion", "filter", "sort":
			text = strconv.Quote(text)
		default:
			if !json.Valid([]byte(text)) {
				text = strconv.Quote(text)
			}
		}
		members = append(members, strconv.Quote(name)+":"+text)
	}
	return "POST", "/search?index=docs", "{" + strings.Join(append(members, `"knn":`+g.object()), ",") + "}"
}
