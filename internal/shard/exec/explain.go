package exec

import (
	"context"
	"fmt"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
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

// Explain tells how the query scores a document of a leaf, with the statistics that Search would use. The value of the root has the
// bits of the hit's score. Errors are those of Search, and one for a document that the leaf does not have.
func Explain(ctx context.Context, leaves []Leaf, sch *schema.Schema, an Analyzers, q query.Node, stats *score.Stats, defaultFields []string, leaf int, doc uint32) (*Explanation, error) {
	if leaf < 0 || leaf >= len(leaves) || doc >= leaves[leaf].NumDocs() {
		return nil, fmt.Errorf("explain: no document %d in leaf %d", doc, leaf)
	}
	req := Request{Query: q, Stats: stats, DefaultFields: defaultFields}
	s := newSearcher(ctx, leaves, sch, an, &req)
	defer s.release()
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
	x := explainer{s: s, l: leaves[leaf], li: leaf, doc: doc, left: MaxExplained}
	out, err := x.node(s.shape(root).root)
	if err == nil {
		err = x.l.Err()
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

type explainer struct {
	s    *searcher
	l    Leaf
	li   int
	doc  uint32
	left int // parts that may still be kept
}

// room takes the place of one part of a list, if there is one. It is asked before the part is made, so that what is left out is the
// end of a tree and not its root.
func (x *explainer) room() bool {
	if x.left == 0 {
		return false
	}
	x.left--
	return true
}

// keep adds a part to its parent if it has room.
func (x *explainer) keep(parent, part *Explanation, room bool) {
	if room {
		parent.Parts = append(parent.Parts, part)
	} else {
		parent.More++
	}
}

func (x *explainer) name(field int) string { return x.s.schema.Fields[field].Name }

// node explains a node with its factor.
func (x *explainer) node(n *node) (*Explanation, error) {
	if err := x.s.check(16); err != nil {
		return nil, err
	}
	out, err := x.bare(n)
	if err != nil {
		return nil, err
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
	up := &Explanation{Kind: ExplainBoost, Match: out.Match, Factor: factor}
	if out.Match {
		up.Value = float32(factor * out.Value)
	}
	up.Parts = []*Explanation{out}
	return up, nil
}

func (x *explainer) bare(n *node) (*Explanation, error) {
	out := &Explanation{}
	switch n.kind {
	case kindNone:
		out.Kind = ExplainNothing
		return out, nil
	case kindAll:
		out.Kind, out.Match, out.Value = ExplainAll, true, 1
		return out, nil
	case kindBool:
		return x.sum(n)
	case kindTerm:
		x.term(out, n.term)
		return out, nil
	case kindPhrase:
		return x.phrase(n)
	case kindPrefix:
		return x.prefix(n)
	case kindExists:
		out.Kind = ExplainExists
		has := x.l.Present(n.field)
		out.Match = has != nil && has(x.doc)
	default:
		out.Kind = ExplainRange
		if n.kind == kindNumTerms || n.kind == kindStrTerms {
			out.Kind = ExplainTerms
		}
		c := newColumnTest(x.l, n)
		out.Match = c != nil && c.has(x.doc)
	}
	out.Field, out.Text = x.name(n.field), source(n)
	if out.Match {
		out.Value = 1
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
func (x *explainer) numbers(field int, idf float32) *BM25 {
	p := &x.s.params[field]
	out := &BM25{Avg: p.avg, Docs: x.s.docs, IDF: idf, K1: p.k1, B: p.b, SumLen: p.stats.SumLen, DocsWithText: p.stats.Docs}
	if lens := x.l.Lengths(field); int(x.doc) < len(lens) {
		out.Len = uint32(lens[x.doc])
	}
	return out
}

func (x *explainer) term(out *Explanation, ti int) {
	t := &x.s.terms[ti]
	out.Kind, out.Field, out.Text = ExplainTerm, x.name(t.field), string(t.bytes)
	out.BM25 = x.numbers(t.field, t.idf)
	out.BM25.DF = t.df
	if _, ok := x.s.list(x.l, x.li, ti); !ok {
		return
	}
	c := x.s.newCursor(x.l, x.li, nil, t, t.idf)
	if c.seek(x.doc) == x.doc {
		out.Match, out.Value, out.BM25.TF = true, c.score(), c.freq()
	}
	x.s.freeCursors()
}

func (x *explainer) phrase(n *node) (*Explanation, error) {
	s := x.s
	var idf float32
	for _, ti := range n.list {
		idf += s.terms[ti].idf
	}
	out := &Explanation{Kind: ExplainPhrase, Field: x.name(n.field), Text: source(n), BM25: x.numbers(n.field, idf)}
	for _, ti := range n.list {
		t := &s.terms[ti]
		x.keep(out, &Explanation{Kind: ExplainIDF, Match: true, Value: t.idf, Field: out.Field, Text: string(t.bytes), BM25: &BM25{Docs: s.docs, DF: t.df, IDF: t.idf}}, x.room())
	}
	it, err := s.bare(x.l, x.li, n)
	if err != nil {
		return nil, err
	}
	if p, ok := it.(*phraseIter); ok && p.seek(x.doc) == x.doc {
		out.Match, out.Value, out.BM25.TF = true, p.score(), p.freq
	}
	s.freeCursors()
	return out, s.failed
}

func (x *explainer) prefix(n *node) (*Explanation, error) {
	s := x.s
	out := &Explanation{Kind: ExplainPrefix, Field: x.name(n.field), Text: n.text}
	for _, ti := range n.list {
		if err := s.check(16); err != nil {
			return nil, err
		}
		part := &Explanation{}
		if x.term(part, ti); part.Match {
			out.Match = true
			out.Value += part.Value
			x.keep(out, part, x.room())
		}
	}
	for _, w := range n.rest {
		if out.Match {
			break
		}
		if err := s.check(segment.BlockSize); err != nil {
			return nil, err
		}
		if p, ok := x.l.Postings(n.field, w); ok {
			b := p.SeekBlock(0, x.doc)
			if b < p.Blocks() {
				for _, d := range s.docsScr[:p.Docs(b, &s.docsScr)] {
					out.Match = out.Match || d == x.doc
				}
			}
			if err := p.Err(); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (x *explainer) sum(n *node) (*Explanation, error) {
	out := &Explanation{Kind: ExplainSum, Match: true}
	any := false
	var sum float32
	for _, list := range []struct {
		kind  string
		nodes []*node
	}{{"", n.must}, {"+", n.should}, {ExplainFilter, n.filter}, {ExplainNot, n.not}} {
		for _, k := range list.nodes {
			room := x.room()
			part, err := x.node(k)
			if err != nil {
				return nil, err
			}
			switch list.kind {
			case "":
				out.Match = out.Match && part.Match
			case "+":
				any = any || part.Match
				if !part.Match { // it says nothing about the score
					if room {
						x.left++
					}
					continue
				}
			default:
				up := &Explanation{Kind: list.kind, Match: part.Match == (list.kind == ExplainFilter)}
				out.Match = out.Match && up.Match
				up.Parts = []*Explanation{part}
				part = up
			}
			if part.Match {
				sum += part.Value
			}
			x.keep(out, part, room)
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
