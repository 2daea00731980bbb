package highlight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/text"
)

// field is a field to highlight.
type field struct {
	id       int
	name     string
	analyzer *text.Analyzer
	terms    map[string]int32 // token → number
	prefixes []string         // prefix i has the number len(terms)+i once compiled
	leaves   []int            // positions in Highlighter.leaves
	whole    bool             // some leaf compares whole values
}

type leafKind uint8

const (
	anyTerm leafKind = iota
	allTerms
	phrase
	prefix
	wholeValue
)

// A leaf is a part of the query about one field that is to be highlighted.
type leaf struct {
	kind   leafKind
	field  *field
	terms  []int32             // of a phrase in order, else distinct; of a prefix its one number
	offs   []uint32            // of a phrase: position of each token after the first's
	slop   uint32              // of a phrase
	values map[string]struct{} // of wholeValue

	// About the document at hand:
	state state
	on    bool    // it marks
	marks []int32 // of a phrase and of wholeValue: the hits that belong to it
}

// state tells whether a part of the query matches the document.
type state uint8

const (
	no state = iota
	maybe
	yes
)

// A node is a part of the query.
type node struct {
	leaf                      int  // position in Highlighter.leaves, or −1
	dropped                   bool // text without a token: whatever holds it leaves it out
	must, should, not, filter []*node
	bool                      bool
	state                     state
}

// unknown is a part of the query that is not judged here.
func unknown() *node { return &node{leaf: -1} }

type compiler struct {
	h        *Highlighter
	s        *schema.Schema
	analyzer func(field int) *text.Analyzer
	wanted   map[int]*field // nil value: searched and wanted, but not met yet; all fields while only is false
	only     bool           // Options.Fields were given
	defaults []int
	terms    int
	scratch  text.Scratch
	positive map[int]bool // fields that something other than an exclusion searches
}

func (h *Highlighter) compile(s *schema.Schema, analyzer func(field int) *text.Analyzer, q query.Node) error {
	c := &compiler{h: h, s: s, analyzer: analyzer, wanted: map[int]*field{}, positive: map[int]bool{}}
	if h.opts.Fields != nil {
		c.only = true
		for _, name := range h.opts.Fields {
			id, ok := s.Lookup(name)
			if !ok {
				return &OptionError{"fields", fmt.Sprintf("names %q, which the index does not have", shorten(name))}
			}
			if s.Fields[id].Type != schema.Text {
				return &OptionError{"fields", fmt.Sprintf("names %q, which is no text field", shorten(name))}
			}
			c.wanted[id] = nil
		}
	}
	if err := c.defaultFields(); err != nil {
		return err
	}
	root, err := c.node(q, false)
	if err != nil {
		return err
	}
	h.root = root
	// Number the fields that something can be marked in, and give the leaves their final places.
	at := map[*field]bool{}
	for id, f := range c.wanted {
		if f != nil && c.positive[id] {
			at[f] = true
		}
	}
	for f := range at {
		h.fields = append(h.fields, *f)
	}
	slices.SortFunc(h.fields, func(a, b field) int { return a.id - b.id })
	byID := map[int]*field{}
	for i := range h.fields {
		byID[h.fields[i].id] = &h.fields[i]
	}
	for i := range h.leaves {
		l := &h.leaves[i]
		if f := byID[l.field.id]; f != nil {
			l.field = f
			f.leaves = append(f.leaves, i)
		}
		if l.kind == prefix {
			l.terms[0] += int32(len(l.field.terms))
		}
	}
	return nil
}

func shorten(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

func (c *compiler) defaultFields() error {
	names := c.h.opts.DefaultFields
	if names == nil {
		names = c.s.DefaultFields
	}
	if names == nil {
		for i := range c.s.Fields {
			if f := &c.s.Fields[i]; f.Type == schema.Text && f.Indexed && !f.Primary {
				c.defaults = append(c.defaults, i)
			}
		}
		if p := c.s.PrimaryField(); c.defaults == nil && p >= 0 && c.s.Fields[p].Indexed && c.s.Fields[p].Type == schema.Text {
			c.defaults = append(c.defaults, p)
		}
	}
	for _, name := range names {
		id, ok := c.s.Lookup(name)
		if !ok {
			return &OptionError{"default_fields", fmt.Sprintf("names %q, which the index does not have", shorten(name))}
		}
		c.defaults = append(c.defaults, id)
	}
	slices.Sort(c.defaults)
	c.defaults = slices.Compact(c.defaults)
	return nil
}

// take returns the field of a leaf if it is to be highlighted.
func (c *compiler) take(id int, excluded bool) *field {
	f, ok := c.wanted[id]
	if c.only && !ok {
		return nil
	}
	if f == nil {
		f = &field{id: id, name: c.s.Fields[id].Name, analyzer: c.analyzer(id), terms: map[string]int32{}}
		c.wanted[id] = f
	}
	if !excluded {
		c.positive[id] = true
	}
	return f
}

// node compiles a part of the query. excluded tells that it is below an odd number of exclusions.
func (c *compiler) node(q query.Node, excluded bool) (*node, error) {
	switch q := q.(type) {
	case *query.Boost:
		return c.node(q.Query, excluded)
	case *query.Bool:
		n := &node{leaf: -1, bool: true}
		dropped := 0
		for _, p := range []struct {
			in       []query.Node
			out      *[]*node
			excluded bool
		}{{q.Must, &n.must, excluded}, {q.Should, &n.should, excluded}, {q.MustNot, &n.not, true}, {q.Filter, &n.filter, excluded}} {
			for _, in := range p.in {
				k, err := c.node(in, p.excluded)
				if err != nil {
					return nil, err
				}
				if k.dropped {
					dropped++
					continue
				}
				*p.out = append(*p.out, k)
			}
		}
		n.dropped = dropped > 0 && len(n.must)+len(n.should)+len(n.not)+len(n.filter) == 0
		return n, nil
	case *query.Term:
		return c.text(q.Field, q.Text, excluded, func(f *field) (*leaf, error) { return c.words(f, q.Text, allTerms) })
	case *query.Match:
		kind := anyTerm
		if q.All {
			kind = allTerms
		}
		return c.text(q.Field, q.Text, excluded, func(f *field) (*leaf, error) { return c.words(f, q.Text, kind) })
	case *query.Phrase:
		return c.text(q.Field, q.Text, excluded, func(f *field) (*leaf, error) { return c.phrase(f, q) })
	case *query.Prefix:
		return c.text(q.Field, q.Text, excluded, func(f *field) (*leaf, error) {
			p := f.analyzer.Normalize(q.Text)
			if p == "" {
				return nil, nil
			}
			f.prefixes = append(f.prefixes, p)
			return &leaf{kind: prefix, terms: []int32{int32(len(f.prefixes) - 1)}}, c.count(1)
		})
	case *query.Terms:
		id, ok := c.s.Lookup(q.Field)
		if !ok || c.s.Fields[id].Type != schema.Text {
			return unknown(), nil
		}
		return c.whole(id, q.Values, excluded), nil
	}
	return unknown(), nil
}

// text makes the node of text in one field or in the default fields; made returns nil for text without a token.
func (c *compiler) text(name, value string, excluded bool, made func(f *field) (*leaf, error)) (*node, error) {
	ids := c.defaults
	if name != "" {
		id, ok := c.s.Lookup(name)
		if !ok || c.s.Fields[id].Type != schema.Text {
			return unknown(), nil
		}
		if !c.s.Fields[id].Indexed {
			return c.whole(id, []string{value}, excluded), nil
		}
		ids = []int{id}
	}
	n := &node{leaf: -1, bool: true}
	dropped := 0
	for _, id := range ids {
		fd := &c.s.Fields[id]
		if fd.Type != schema.Text || !fd.Indexed || c.analyzer(id) == nil {
			continue
		}
		f := c.take(id, excluded)
		if f == nil {
			n.should = append(n.should, unknown())
			continue
		}
		l, err := made(f)
		if err != nil {
			return nil, err
		}
		if l == nil {
			dropped++
			continue
		}
		n.should = append(n.should, c.leaf(f, l))
	}
	n.dropped = len(n.should) == 0 && dropped > 0
	return n, nil
}

func (c *compiler) leaf(f *field, l *leaf) *node {
	l.field = f
	c.h.leaves = append(c.h.leaves, *l)
	return &node{leaf: len(c.h.leaves) - 1}
}

// whole makes the node of values that a field's column is compared with.
func (c *compiler) whole(id int, values []string, excluded bool) *node {
	f := c.take(id, excluded)
	if f == nil {
		return unknown()
	}
	f.whole = true
	set := make(map[string]struct{}, len(values))
	for _, v := range values {
		set[v] = struct{}{}
	}
	return c.leaf(f, &leaf{kind: wholeValue, values: set})
}

func (c *compiler) count(n int) error {
	if c.terms += n; c.terms > maxTerms {
		return &OptionError{"query", fmt.Sprintf("has more than %d words to look for", maxTerms)}
	}
	return nil
}

// term returns the number of a token.
func (f *field) term(t []byte) int32 {
	n, ok := f.terms[string(t)]
	if !ok {
		n = int32(len(f.terms))
		f.terms[string(t)] = n
	}
	return n
}

func (c *compiler) words(f *field, value string, kind leafKind) (*leaf, error) {
	toks := f.analyzer.Query(&c.scratch, value)
	if len(toks) == 0 {
		return nil, nil
	}
	l := &leaf{kind: kind}
	for i := range toks {
		l.terms = append(l.terms, f.term(toks[i].Text))
	}
	slices.Sort(l.terms)
	l.terms = slices.Compact(l.terms)
	return l, c.count(len(toks))
}

func (c *compiler) phrase(f *field, q *query.Phrase) (*leaf, error) {
	toks := f.analyzer.Exact(&c.scratch, q.Text)
	if len(toks) == 0 {
		return nil, nil
	}
	l := &leaf{kind: phrase, slop: q.Slop}
	for i := range toks {
		l.terms = append(l.terms, f.term(toks[i].Text))
		l.offs = append(l.offs, toks[i].Pos-toks[0].Pos)
	}
	if len(toks) == 1 {
		l.kind = allTerms
	}
	return l, c.count(len(toks))
}

// judge sets the states of n and everything below it and returns that of n.
func (n *node) judge(leaves []leaf) state {
	switch {
	case n.leaf >= 0:
		n.state = leaves[n.leaf].state
	case !n.bool:
		n.state = maybe
	default:
		n.state = yes
		for _, list := range [][]*node{n.must, n.filter} {
			for _, k := range list {
				n.state = min(n.state, k.judge(leaves))
			}
		}
		best := no
		for _, k := range n.should {
			best = max(best, k.judge(leaves))
		}
		if len(n.must)+len(n.filter) == 0 && (len(n.should) > 0 || len(n.not) == 0) {
			n.state = min(n.state, best)
		}
		for _, k := range n.not {
			switch k.judge(leaves) {
			case yes:
				n.state = no
			case maybe:
				n.state = min(n.state, maybe)
			case no:
			}
		}
	}
	return n.state
}

// enable turns on the leaves of the parts that match.
func (n *node) enable(leaves []leaf) {
	if n.leaf >= 0 {
		leaves[n.leaf].on = true
	}
	for _, list := range [][]*node{n.must, n.filter, n.should} {
		for _, k := range list {
			if k.state != no {
				k.enable(leaves)
			}
		}
	}
}
