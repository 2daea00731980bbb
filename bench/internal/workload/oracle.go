package workload

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode"

	"github.com/weft-search/weft/bench/internal/peer"
)

// BM25 parameters of every engine in the comparison.
const (
	k1 = 1.2
	b  = 0.75
)

// MaxPrefixWords is the number of words of a prefix that score in weft: those with the highest document frequencies.
const MaxPrefixWords = 1024

// Oracle answers the queries of the comparison by brute force. It is slow, short and shares nothing with the engines.
// It is immutable and safe for concurrent use.
type Oracle struct {
	ids   []string
	toks  [][]string
	lens  []int
	avg   float64
	lists map[string][]entry
	words []string // ascending
}

type entry struct{ doc, freq int }

// Scored is a document with its score.
type Scored struct {
	Doc   int
	Score float64
}

// Tokens splits at everything but letters and digits and lower-cases, as all engines of the comparison do.
func Tokens(text string) []string {
	return strings.FieldsFunc(strings.Map(unicode.ToLower, text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// NewOracle reads the documents.
func NewOracle(docs []peer.Doc) *Oracle {
	o := &Oracle{lists: map[string][]entry{}}
	total := 0
	for i, d := range docs {
		toks := Tokens(d.Body)
		o.ids = append(o.ids, d.ID)
		o.toks = append(o.toks, toks)
		o.lens = append(o.lens, len(toks))
		total += len(toks)
		for _, t := range toks {
			list := o.lists[t]
			if n := len(list); n > 0 && list[n-1].doc == i {
				list[n-1].freq++
				continue
			}
			o.lists[t] = append(list, entry{i, 1})
		}
	}
	o.avg = max(float64(total)/float64(max(len(docs), 1)), 1)
	for w := range o.lists {
		o.words = append(o.words, w)
	}
	slices.Sort(o.words)
	return o
}

// ID is the id of a document number.
func (o *Oracle) ID(doc int) string { return o.ids[doc] }

// Numbers maps ids to document numbers.
func (o *Oracle) Numbers() map[string]int {
	m := make(map[string]int, len(o.ids))
	for i, id := range o.ids {
		m[id] = i
	}
	return m
}

// RoundLength is a document length as Lucene and tantivy keep it, in one byte: exact below 24, above that 24 plus the four
// leading bits of the rest.
func RoundLength(n int) int {
	if n < 24 {
		return n
	}
	rest := uint(n - 24)
	if drop := bits.Len(rest) - 4; drop > 0 {
		rest = rest >> drop << drop
	}
	return 24 + int(rest)
}

// Matches returns every match of a query with its BM25 score, by descending score, then ascending id. length maps the
// number of tokens of a document to the length that scores; nil leaves it exact.
func (o *Oracle) Matches(q peer.Query, length func(int) int) []Scored {
	norm := func(doc int) float64 {
		l := o.lens[doc]
		if length != nil {
			l = length(l)
		}
		return k1 * (1 - b + b*float64(l)/o.avg)
	}
	weigh := func(idf float64, freq, doc int) float64 {
		tf := float64(freq)
		return idf * tf * (k1 + 1) / (tf + norm(doc))
	}
	sum := make([]float64, len(o.ids))
	match := make([]bool, len(o.ids))
	addWord := func(w string) {
		idf := o.idf(w)
		for _, e := range o.lists[w] {
			sum[e.doc] += weigh(idf, e.freq, e.doc)
			match[e.doc] = true
		}
	}
	switch q.Op {
	case "phrase":
		idf := 0.0
		for _, w := range q.Words {
			idf += o.idf(w)
		}
		for doc, freq := range o.phrase(q.Words) {
			sum[doc] = weigh(idf, freq, doc)
			match[doc] = true
		}
	case "prefix":
		for i, w := range o.expand(q.Words[0]) {
			if i < MaxPrefixWords {
				addWord(w)
				continue
			}
			for _, e := range o.lists[w] { // matches without a score
				match[e.doc] = true
			}
		}
	default:
		must, should, not := q.Clauses()
		for _, w := range slices.Concat(must, should) {
			addWord(w)
		}
		for _, w := range must {
			has := make([]bool, len(o.ids))
			for _, e := range o.lists[w] {
				has[e.doc] = true
			}
			for doc := range match {
				match[doc] = match[doc] && has[doc]
			}
		}
		for _, w := range not {
			for _, e := range o.lists[w] {
				match[e.doc] = false
			}
		}
	}
	var out []Scored
	for doc, m := range match {
		if m {
			out = append(out, Scored{doc, sum[doc]})
		}
	}
	slices.SortFunc(out, func(x, y Scored) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(o.ids[x.Doc], o.ids[y.Doc]))
	})
	return out
}

// Count is the number of matches.
func (o *Oracle) Count(q peer.Query) uint64 { return uint64(len(o.Matches(q, nil))) }

func (o *Oracle) idf(w string) float64 {
	n, df := float64(len(o.ids)), float64(len(o.lists[w]))
	return math.Log((n-df+0.5)/(df+0.5) + 1)
}

// phrase returns the documents with the words side by side, with the number of places.
func (o *Oracle) phrase(words []string) map[int]int {
	out := map[int]int{}
	for _, e := range o.lists[words[0]] {
		toks := o.toks[e.doc]
		for i := 0; i+len(words) <= len(toks); i++ {
			if slices.Equal(toks[i:i+len(words)], words) {
				out[e.doc]++
			}
		}
	}
	return out
}

// expand returns the words with a prefix, those in most documents first.
func (o *Oracle) expand(prefix string) []string {
	from, _ := slices.BinarySearch(o.words, prefix)
	to := from
	for to < len(o.words) && strings.HasPrefix(o.words[to], prefix) {
		to++
	}
	out := slices.Clone(o.words[from:to])
	slices.SortStableFunc(out, func(x, y string) int { return len(o.lists[y]) - len(o.lists[x]) })
	return out
}
