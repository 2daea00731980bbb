package workload

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-search/weft/bench/internal/peer"
)

const (
	perClass = 40
	attempts = 3_000 // tries to fill a class before it stays short
	common   = 0.005 // share of the documents that tells common words from rare ones
)

// Queries makes seeded queries of every class for the documents, with their exact counts: single words by frequency,
// conjunctions and disjunctions of words of one document with a common and a rare one among them, phrases cut from the
// text, prefixes. Each matches something. extra are further queries, taken if they match and are not there yet.
func Queries(o *Oracle, extra []peer.Query, seed uint64) []peer.Query {
	m := &maker{o: o, rnd: rand.New(rand.NewPCG(seed, 1)), seen: map[string]bool{}}
	m.words("term-high", 0.05, 1)
	m.words("term-mid", common, 0.05)
	m.words("term-low", 0, 0.001)
	for _, n := range []int{2, 3} {
		m.fill("and-"+strconv.Itoa(n), "and", m.mixed(n))
	}
	for _, n := range []int{2, 3, 6} {
		m.fill("or-"+strconv.Itoa(n), "or", m.mixed(n))
	}
	for _, n := range []int{2, 3} {
		m.fill("phrase-"+strconv.Itoa(n), "phrase", m.cut(n))
	}
	m.fill("prefix", "prefix", m.beginning)
	for _, q := range extra {
		m.put(q.Class, q.Op, q.Words)
	}
	return m.out
}

type maker struct {
	o    *Oracle
	rnd  *rand.Rand
	seen map[string]bool
	out  []peer.Query
}

// put takes a query that matches and is new, and says whether it did.
func (m *maker) put(class, op string, words []string) bool {
	if len(words) == 0 {
		return false
	}
	key := slices.Clone(words)
	if op != "phrase" {
		slices.Sort(key)
	}
	k := op + " " + strings.Join(key, " ")
	q := peer.Query{ID: strconv.Itoa(len(m.out)), Class: class, Op: op, Words: words}
	if m.seen[k] {
		return false
	}
	if q.Count = m.o.Count(q); q.Count == 0 {
		return false
	}
	m.seen[k] = true
	m.out = append(m.out, q)
	return true
}

func (m *maker) fill(class, op string, next func() []string) {
	for got, tries := 0, 0; got < perClass && tries < attempts; tries++ {
		if m.put(class, op, next()) {
			got++
		}
	}
}

func (m *maker) share(w string) float64 { return float64(len(m.o.lists[w])) / float64(len(m.o.ids)) }

func usable(w string) bool { return len(w) >= 2 }

// words takes single words with a share of the documents in (lo, hi].
func (m *maker) words(class string, lo, hi float64) {
	var pool []string
	for _, w := range m.o.words {
		if s := m.share(w); usable(w) && s > lo && s <= hi {
			pool = append(pool, w)
		}
	}
	m.rnd.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	for _, w := range pool[:min(perClass, len(pool))] {
		m.put(class, "term", []string{w})
	}
}

func (m *maker) text() []string { return m.o.toks[m.rnd.IntN(len(m.o.toks))] }

func (m *maker) mixed(n int) func() []string {
	return func() []string {
		var pool []string
		for _, t := range m.text() {
			if usable(t) {
				pool = append(pool, t)
			}
		}
		slices.Sort(pool)
		pool = slices.Compact(pool)
		if len(pool) < n {
			return nil
		}
		m.rnd.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
		pool = pool[:n]
		rare := slices.ContainsFunc(pool, func(w string) bool { return m.share(w) < common })
		often := slices.ContainsFunc(pool, func(w string) bool { return m.share(w) >= common })
		if !rare || !often {
			return nil
		}
		return pool
	}
}

func (m *maker) cut(n int) func() []string {
	return func() []string {
		t := m.text()
		if len(t) < n {
			return nil
		}
		at := m.rnd.IntN(len(t) - n + 1)
		return slices.Clone(t[at : at+n])
	}
}

func (m *maker) beginning() []string {
	var pool []string
	for _, t := range m.text() {
		letters := !strings.ContainsFunc(t, func(r rune) bool { return r < 'a' || r > 'z' })
		if len(t) >= 5 && letters {
			pool = append(pool, t)
		}
	}
	if len(pool) == 0 {
		return nil
	}
	return []string{pool[m.rnd.IntN(len(pool))][:3+m.rnd.IntN(2)]}
}
