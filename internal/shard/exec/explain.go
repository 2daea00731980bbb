package exec

import (
	"context"
	"fmt"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// MaxExplained bounds the parts of one explanation.
const MaxExplained = 1000

// Kinds of explanations.
const (
	ExplainTerm    = "term"    // BM25 of a token
	ExplainPhrase  = "phrase"  // BM25 of a phrase; its parts are the idfs that add up to its own
	ExplainIDF     = "idf"     // the idf of one token of a phrase
	ExplainPrefix  = "prefix"  // sum over the words that begin so
	ExplainRange   = "range"   // a value between bounds: 1
	ExplainTerms   = "terms"   // an exact value: 1
	ExplainExists  = "exists"  // any value: 1
	ExplainAll     = "all"     // every document: 1
	ExplainSum     = "sum"     // sum over the parts that match, in their order
	ExplainBoost   = "boost"   // Factor times the only part
	ExplainFilter  = "filter"  // has to match and adds nothing
	ExplainNot     = "not"     // must not match; Match is that of its part turned around
	ExplainNothing = "nothing" // text without a token
)

// Explanation is how one part of a query scored one document. All arithmetic is that of docs/query.md, Scores.
type Explanation struct {
	Kind   string // one of the Explain constants
	Match  bool
	Value  float32 // 0 where the document does not match
	Field  string  // of kinds that have one
	Text   string  // term, idf: the token; prefix: the beginning; other leaves: the part of the query, cut to 200 bytes
	Factor float32 // boost
	BM25   *BM25   // term, phrase and idf
	Parts  []*Explanation
	More   int // parts left out to keep the tree small; Match and Value count them
}

// BM25 holds the numbers of docs/query.md, Scores.
type BM25 struct {
	TF, Len      uint32
	Avg          float32
	Docs, DF     uint64 // N and df; df of a phrase is 0: its idf is a sum
	IDF          float32
	K1, B        float32
	SumLen       uint64 // tokens of the field in all documents, and
	DocsWithText uint64 // the documents that have one: the division behind Avg
}

// Explainer tells how a query scores documents. It plans the query once for all of them. It is for one goroutine, and holds what a
// search holds until it is closed.
type Explainer struct {
	s    *searcher
	root *node
	hits []Hit

	// Of the hit being explained.
	i       int
	l       Leaf
	li      int
	doc     uint32
	left    int // parts that may still be kept
	scored  map[termKey]prefixMatch
	matches []termMatch

	// Of all hits, made when one needs them.
	columns map[leafNode]*columnTest  // nil where the leaf has nothing that the node matches
	rest    map[leafPrefix]bitset.Set // hits of the leaf that have a term of the prefix that does not score
}

// prefixMatch is what the terms of a prefix that score make of the document: Explainer.matches[from:to] and their sum.
type prefixMatch struct {
	from, to int
	sum      float32
}

// termMatch is a term that the document has.
type termMatch struct {
	term  int
	tf    uint32
	score float32
}

type leafNode struct {
	leaf int
	n    *node
}

type leafPrefix struct {
	leaf int
	termKey
}

// NewExplainer plans the explanations of hits, with the statistics that Search would use. Of the request only Query, Stats,
// DefaultFields and Lenient are read, of a hit only the leaf and the document. Errors are those of Search, and one for a document that no leaf has. The caller closes what it gets.
func NewExplainer(ctx context.Context, leaves []Leaf, sch *schema.Schema, an Analyzers, req Request, hits []Hit) (*Explainer, error) {
	for i := range hits {
		if h := &hits[i]; h.Leaf < 0 || h.Leaf >= len(leaves) || h.Doc >= leaves[h.Leaf].NumDocs() {
			return nil, fmt.Errorf("explain: no document %d in leaf %d", h.Doc, h.Leaf)
		}
	}
	s := newSearcher(ctx, leaves, sch, an, &req)
	root, err := s.planned(req.Query)
	if err != nil {
		s.release()
		return nil, err
	}
	return &Explainer{
		s: s, root: root, hits: hits,
		scored: map[termKey]prefixMatch{}, columns: map[leafNode]*columnTest{}, rest: map[leafPrefix]bitset.Set{},
	}, nil
}

// planned plans a query up to its statistics.
func (s *searcher) planned(q query.Node) (*node, error) {
	if err := s.ended(); err != nil {
		return nil, err
	}
	root, err := s.plan(q)
	if err != nil {
		return nil, err
	}
	if err := s.statistics(); err != nil {
		return nil, err
	}
	s.startSlots()
	s.exact = true
	return s.shape(root).root, nil
}

// Close ends the use of an Explainer; its explanations stay. A second call does nothing.
func (x *Explainer) Close() {
	if x.s != nil {
		x.s.release()
		x.s = nil
	}
}

// Explain explains hit i. The value of the root has the bits of the hit's score. It fails when the context has ended and on damage.
func (x *Explainer) Explain(i int) (*Explanation, error) {
	if err := x.s.ended(); err != nil {
		return nil, err
	}
	x.i, x.li, x.doc, x.left = i, x.hits[i].Leaf, x.hits[i].Doc, MaxExplained
	x.l = x.s.leaves[x.li]
	x.matches = x.matches[:0]
	clear(x.scored)
	out, err := x.node(x.root, always)
	if err == nil {
		err = x.l.Err()
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// wanted says how much of a part will be seen. What will not be seen is not written: only Match and Value are found.
type wanted uint8

const (
	never   wanted = iota
	ifMatch        // nothing, unless it matches
	always
)

// sees tells whether a part that matches or not will be seen.
func (w wanted) sees(match bool) bool { return w == always || w == ifMatch && match }

// room takes the place of one part of a list, if there is one. It is asked before the part is made, so that what is left out is the
// end of a tree and not its root.
func (x *Explainer) room() bool {
	if x.left == 0 {
		return false
	}
	x.left--
	return true
}

// keep adds a part to its parent if it has room.
func keep(parent *Explanation, part Explanation, room bool) {
	if room {
		kept := new(Explanation)
		*kept = part
		parent.Parts = append(parent.Parts, kept)
	} else {
		parent.More++
	}
}

func (x *Explainer) name(field int) string { return x.s.schema.Fields[field].Name }

// node explains a node with its factor.
func (x *Explainer) node(n *node, want wanted) (Explanation, error) {
	if err := x.s.check(16); err != nil {
		return Explanation{}, err
	}
	out, err := x.bare(n, want)
	if err != nil {
		return Explanation{}, err
	}
	factor, boosted := n.boost, n.boosted
	if n.kind == kindTerm && n.rep != 1 && n.rep != 0 {
		if !boosted {
			factor = 1
		}
		factor, boosted = float32(factor*n.rep), true
	}
	if !boosted {
		return out, nil
	}
	up := Explanation{Kind: ExplainBoost, Match: out.Match, Factor: factor}
	if out.Match {
		up.Value = float32(factor * out.Value)
	}
	if want.sees(up.Match) {
		keep(&up, out, true)
	}
	return up, nil
}

func (x *Explainer) bare(n *node, want wanted) (Explanation, error) {
	var out Explanation
	switch n.kind {
	case kindNone:
		out.Kind = ExplainNothing
		return out, nil
	case kindAll:
		out.Kind, out.Match, out.Value = ExplainAll, true, 1
		return out, nil
	case kindBool:
		return x.sum(n, want)
	case kindTerm:
		m, ok := x.has(n.term)
		if !want.sees(ok) {
			return Explanation{Kind: ExplainTerm, Match: ok, Value: m.score}, nil
		}
		return x.term(m, ok), nil
	case kindPhrase:
		return x.phrase(n, want)
	case kindPrefix:
		return x.prefix(n, want)
	case kindExists:
		out.Kind = ExplainExists
		has := x.l.Present(n.field)
		out.Match = has != nil && has(x.doc)
	default:
		out.Kind = ExplainRange
		if n.kind == kindNumTerms || n.kind == kindStrTerms {
			out.Kind = ExplainTerms
		}
		key := leafNode{x.li, n}
		c, ok := x.columns[key]
		if !ok {
			c = newColumnTest(x.l, n)
			x.columns[key] = c
		}
		out.Match = c != nil && c.has(x.doc)
	}
	if out.Match {
		out.Value = 1
	}
	if want.sees(out.Match) {
		out.Field, out.Text = x.name(n.field), source(n)
	}
	return out, nil
}

// source prints the part of the query that a node was made of.
func source(n *node) string {
	if n.src == nil {
		return ""
	}
	return clipTo(n.src.String(), 200)
}

// numbers are the BM25 numbers of a field.
func (x *Explainer) numbers(field int, idf float32) *BM25 {
	p := &x.s.params[field]
	out := &BM25{Avg: p.avg, Docs: x.s.docs, IDF: idf, K1: p.k1, B: p.b, SumLen: p.stats.SumLen, DocsWithText: p.stats.Docs}
	if lens := x.l.Lengths(field); int(x.doc) < len(lens) {
		out.Len = uint32(lens[x.doc])
	}
	return out
}

// has looks for the document in the list of a term.
func (x *Explainer) has(ti int) (m termMatch, ok bool) {
	m.term = ti
	if _, ok := x.s.list(x.l, x.li, ti); !ok {
		return m, false
	}
	t := &x.s.terms[ti]
	c := x.s.newCursor(x.l, x.li, nil, t, t.idf)
	if c.nblk == 1 { // seek would read a short list twice: for its last document first
		c.load(0)
	}
	if ok = c.seek(x.doc) == x.doc; ok {
		m.tf, m.score = c.freq(), c.score()
	}
	x.s.freeCursors()
	return m, ok
}

func (x *Explainer) term(m termMatch, match bool) Explanation {
	t := &x.s.terms[m.term]
	out := Explanation{Kind: ExplainTerm, Match: match, Value: m.score, Field: x.name(t.field), Text: string(t.bytes), BM25: x.numbers(t.field, t.idf)}
	out.BM25.TF, out.BM25.DF = m.tf, t.df
	return out
}

func (x *Explainer) phrase(n *node, want wanted) (Explanation, error) {
	s := x.s
	out := Explanation{Kind: ExplainPhrase}
	it, err := s.bare(x.l, x.li, n)
	if err != nil {
		return out, err
	}
	var tf uint32
	if p, ok := it.(*phraseIter); ok && p.holds(x.doc) {
		out.Match, out.Value, tf = true, p.score(), p.freq
	}
	s.freeCursors()
	if s.failed != nil {
		return out, s.failed
	}
	if !want.sees(out.Match) {
		return out, nil
	}
	var idf float32
	for _, ti := range n.list {
		idf += s.terms[ti].idf
	}
	out.Field, out.Text, out.BM25 = x.name(n.field), source(n), x.numbers(n.field, idf)
	out.BM25.TF = tf
	for _, ti := range n.list {
		if !x.room() {
			out.More++
			continue
		}
		t := &s.terms[ti]
		keep(&out, Explanation{Kind: ExplainIDF, Match: true, Value: t.idf, Field: out.Field, Text: string(t.bytes), BM25: &BM25{Docs: s.docs, DF: t.df, IDF: t.idf}}, true)
	}
	return out, nil
}

// holds tells whether the phrase stands in a document, without a look at those that follow: of common words it may be far to the next.
func (p *phraseIter) holds(doc uint32) bool {
	for _, c := range p.cs {
		if c.seek(doc) != doc {
			return false
		}
	}
	p.cur, p.freq = doc, p.match()
	return p.freq > 0
}

// prefix writes only the terms that the document has. A prefix that stands in the query several times is looked up once.
func (x *Explainer) prefix(n *node, want wanted) (Explanation, error) {
	out := Explanation{Kind: ExplainPrefix, Field: x.name(n.field), Text: n.text}
	key := termKey{n.field, n.text}
	found, ok := x.scored[key]
	if !ok {
		found.from = len(x.matches)
		for _, ti := range n.list {
			if err := x.s.check(16); err != nil {
				return out, err
			}
			if m, ok := x.has(ti); ok {
				found.sum += m.score
				x.matches = append(x.matches, m)
			}
		}
		found.to = len(x.matches)
		x.scored[key] = found
	}
	out.Match, out.Value = found.from < found.to, found.sum
	if !out.Match && len(n.rest) > 0 {
		rest, err := x.unscored(n, key)
		if err != nil {
			return out, err
		}
		out.Match = rest.Has(uint32(x.i))
	}
	if !want.sees(out.Match) {
		return out, nil
	}
	for i := found.from; i < found.to; i++ {
		if !x.room() {
			out.More = found.to - i
			break
		}
		keep(&out, x.term(x.matches[i], true), true)
	}
	return out, nil
}

// unscored returns the hits of the leaf that have a term of a prefix that does not score. Those terms may be very many, so that one
// walk over their lists for all the hits costs less than to look each of them up for each hit.
func (x *Explainer) unscored(n *node, key termKey) (bitset.Set, error) {
	at := leafPrefix{x.li, key}
	if out, ok := x.rest[at]; ok {
		return out, nil
	}
	docs := x.s.emptyBits(int(x.l.NumDocs()))
	if err := x.s.addRest(docs, x.l, n); err != nil {
		return nil, err
	}
	out := bitset.New(len(x.hits))
	for i := range x.hits {
		if h := &x.hits[i]; h.Leaf == x.li && docs.Has(h.Doc) {
			out.Add(uint32(i))
		}
	}
	x.rest[at] = out
	return out, nil
}

func (x *Explainer) sum(n *node, want wanted) (Explanation, error) {
	out := Explanation{Kind: ExplainSum, Match: true}
	any := false
	var sum float32
	for _, list := range []struct {
		kind  string
		nodes []*node
	}{{"", n.must}, {"+", n.should}, {ExplainFilter, n.filter}, {ExplainNot, n.not}} {
		for _, k := range list.nodes {
			before := x.left
			room := want != never && x.room()
			see := never
			if room {
				if see = always; list.kind == "+" {
					see = ifMatch
				}
			}
			part, err := x.node(k, see)
			if err != nil {
				return out, err
			}
			switch list.kind {
			case "":
				out.Match = out.Match && part.Match
			case "+":
				any = any || part.Match
				if !part.Match { // it says nothing about the score
					x.left = before
					continue
				}
			default:
				up := Explanation{Kind: list.kind, Match: part.Match == (list.kind == ExplainFilter)}
				out.Match = out.Match && up.Match
				if room {
					keep(&up, part, true)
				}
				part = up
			}
			if part.Match {
				sum += part.Value
			}
			keep(&out, part, room)
		}
	}
	if len(n.must)+len(n.filter) == 0 && len(n.should) > 0 {
		out.Match = out.Match && any
	}
	if out.Match {
		out.Value = sum
	}
	return out, nil
}
