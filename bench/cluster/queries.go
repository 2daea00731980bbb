package main

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

const (
	perClass = 40
	sampled  = 20_000 // documents that tell how frequent words are
	common   = 0.005  // share of the documents that tells common words from rare ones
)

// class is a kind of search with its queries.
type class struct {
	name    string
	queries []map[string]any
	approx  bool // its answers may differ between one graph and several
}

// bodies are the requests of a class, with dfs or without.
func (c *class) bodies(dfs bool) ([][]byte, error) {
	var out [][]byte
	for _, q := range c.queries {
		if dfs {
			q = withDFS(q)
		}
		b, err := json.Marshal(q)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func withDFS(q map[string]any) map[string]any {
	out := map[string]any{"dfs": true}
	for k, v := range q {
		out[k] = v
	}
	return out
}

// queryMaker draws queries from documents, the same for the same corpus.
type queryMaker struct {
	c    *corpus
	rng  *rand.Rand
	n    int            // documents looked at
	freq map[string]int // in how many of them a word is
	pool []string       // words by name
}

// queries makes the classes: single words from frequent to rare, a common and a rare word of one document with AND and OR, phrases and
// prefixes cut out of documents, and on top of words filters, orders, facets, aggregations and vectors. Each search asks for ten hits
// with their sources and counts its matches.
func queries(c *corpus) []class {
	m := &queryMaker{c: c, rng: rand.New(rand.NewPCG(1, 4)), n: min(c.n, sampled), freq: map[string]int{}}
	for i := range m.n {
		t := slices.Clone(c.text(i * (c.n / m.n)))
		slices.Sort(t)
		for _, w := range slices.Compact(t) {
			m.freq[w]++
		}
	}
	for w := range m.freq {
		if usable(w) {
			m.pool = append(m.pool, w)
		}
	}
	slices.Sort(m.pool)
	high, mid, low := m.between(0.05, 1), m.between(common, 0.05), m.between(0, common)
	group := func() string { return c.groups[m.rng.IntN(min(len(c.groups), 40))] }
	var out []class
	add := func(name string, make func(i int) map[string]any) {
		k := class{name: name}
		for i := range perClass {
			q := make(i)
			q["limit"] = 10
			k.queries = append(k.queries, q)
		}
		out = append(out, k)
	}
	frequent := func(i int) string { return [][]string{high, mid}[i%2][m.rng.IntN(len([][]string{high, mid}[i%2]))] }
	add("term", func(i int) map[string]any {
		from := [][]string{high, mid, low}[i%3]
		return map[string]any{"q": from[m.rng.IntN(len(from))]}
	})
	add("and", func(int) map[string]any { return map[string]any{"q": strings.Join(m.mixed(), " AND ")} })
	add("or", func(int) map[string]any { return map[string]any{"q": strings.Join(m.mixed(), " ")} })
	add("phrase", func(int) map[string]any { return map[string]any{"q": `"` + strings.Join(m.cut(2), " ") + `"`} })
	add("prefix", func(int) map[string]any { return map[string]any{"q": m.beginning() + "*"} })
	add("filter", func(i int) map[string]any {
		return map[string]any{"q": frequent(i), "filter": []string{c.group + `:="` + group() + `"`, "size:>=" + strconv.Itoa(100)}}
	})
	add("sort", func(i int) map[string]any { return map[string]any{"q": frequent(i), "sort": []string{"size:desc"}} })
	add("facets", func(i int) map[string]any {
		return map[string]any{"q": frequent(i), "facets": []string{c.facet, c.group}}
	})
	add("aggs", func(i int) map[string]any {
		return map[string]any{"q": frequent(i), "aggs": "top:terms(" + c.group + ",10),months:date_histogram(at,1M),sizes:stats(size)"}
	})
	if c.vectors {
		add("hybrid", func(i int) map[string]any {
			return map[string]any{"q": strings.Join(m.mixed(), " "), "knn": map[string]any{"field": "v", "vector": vector32(m.rng)}}
		})
		out[len(out)-1].approx = true
	}
	return out
}

// usable leaves out what some field's tokenizer could take for a stop word or for more than one.
func usable(w string) bool {
	return len(w) >= 3 && w[0] >= 'a' && w[0] <= 'z' && !slices.Contains(stops, w)
}

var stops = []string{
	"and", "are", "but", "for", "into", "not", "such", "that", "the", "their", "then", "there", "these", "they", "this", "was", "will", "with",
}

// between are the words with a share of the documents in (lo, hi].
func (m *queryMaker) between(lo, hi float64) (out []string) {
	for _, w := range m.pool {
		if s := m.share(w); s > lo && s <= hi {
			out = append(out, w)
		}
	}
	return out
}

func (m *queryMaker) share(w string) float64 { return float64(m.freq[w]) / float64(m.n) }

func (m *queryMaker) document() []string { return m.c.text(m.rng.IntN(m.n) * (m.c.n / m.n)) }

// mixed are a common and a rare word of one document.
func (m *queryMaker) mixed() []string {
	for {
		t := m.document()
		if len(t) < 2 {
			continue
		}
		a, b := t[m.rng.IntN(len(t))], t[m.rng.IntN(len(t))]
		if usable(a) && usable(b) && m.share(a) >= common && m.share(b) < common {
			return []string{a, b}
		}
	}
}

// cut are n words that stand side by side.
func (m *queryMaker) cut(n int) []string {
	for {
		t := m.document()
		if len(t) < 6+n {
			continue
		}
		// The start of a text is within one run of words also where it was generated.
		at := m.rng.IntN(6 - n + 1)
		if t = t[at : at+n]; !slices.ContainsFunc(t, func(w string) bool { return !usable(w) }) {
			return t
		}
	}
}

func (m *queryMaker) beginning() string {
	for {
		t := m.document()
		if len(t) == 0 {
			continue
		}
		if w := t[m.rng.IntN(len(t))]; usable(w) && len(w) >= 5 {
			return w[:3+m.rng.IntN(2)]
		}
	}
}
