package exec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard/longsort"
	"github.com/weft-search/weft/internal/text"
)

// Analyzers gives the analyzer of a text field by field id.
type Analyzers func(field int) *text.Analyzer

// QueryError says why a well-formed query cannot run against this index. It is the caller's to mend.
type QueryError struct {
	Code string // stable, lower_snake: unknown_field, field_not_searchable, field_not_fast, no_positions, invalid_bound, too_many_tokens, prefix_too_broad,
	// field_not_sortable, too_many_sort_keys, too_many_filters, invalid_after
	Field  string
	Reason string
	Node   query.Node // the part of the query, nil when it is not one part's
	Limit  int64      // the bound that Reason speaks of, 0 for none
}

// Error implements error.
func (e *QueryError) Error() string { return fmt.Sprintf("field %q: %s", e.Field, e.Reason) }

// Limits on what one query expands to, checked before any list is read.
const (
	MaxTokens      = 1024  // tokens of the text leaves together, each leaf counted once whatever the number of fields it searches
	MaxTerms       = 16384 // tokens times fields: lists that are read at once
	MaxPrefixTerms = 1024  // terms of a prefix that score; all of them match (docs/query.md, Prefixes)
	// MaxPrefixExpansions is the number of terms that one prefix may have at all, MaxQueryExpansions those of all of a query.
	MaxPrefixExpansions = 1 << 18
	MaxQueryExpansions  = 1 << 19
	// MaxQueryPrefixTerms is the number of terms that score of all prefixes of a query, in all their fields.
	MaxQueryPrefixTerms = 1 << 15
	// MaxPrefixBytes is the memory for the scores that the prefixes of a query give to the documents of one leaf.
	MaxPrefixBytes = 256 << 20
)

// maxSlop keeps a phrase within one value: values of a field stand 2^20 positions apart.
const maxSlop = 1 << 19

type kind uint8

const (
	kindNone kind = iota
	kindAll
	kindTerm
	kindBool
	kindPhrase
	kindPrefix
	kindNumRange
	kindStrRange
	kindNumTerms
	kindStrTerms
	kindExists
	kindGiven
)

// node is a query with its text analysed and its fields resolved.
type node struct {
	kind    kind
	field   int
	boosted bool
	boost   float32 // multiplies the score when boosted
	dropped bool    // kindNone: text without a token, such as a stop word; a Bool leaves it out

	src query.Node // what it was made of, for explanations

	slot  int   // kindTerm: number of the scoring leaf in order of summation
	term  int   // kindTerm: index into searcher.terms
	given int   // kindGiven: its place in the request
	list  []int // kindPhrase: terms of the phrase in order; kindPrefix: the expansions that score, ascending
	offs  []uint32
	slop  uint32
	text  string   // kindPrefix: the normalised prefix
	rest  [][]byte // kindPrefix: expansions that match without a score

	rep float32 // kindTerm of a match: how often the token stands in the query text; 1 elsewhere

	must, should, not, filter []*node

	nums           []uint64 // kindNumTerms, ascending
	strs           [][]byte // kindStrTerms, ascending
	lo, hi         uint64   // kindNumRange, inclusive
	strLo, strHi   []byte   // kindStrRange; nil is open
	loExcl, hiExcl bool
}

// term is one token of one field, shared by every place of the query that has it.
type term struct {
	field int
	bytes []byte
	df    uint64
	idf   float32
	posts []leafPostings // one for each leaf
}

type leafPostings struct {
	ok     bool
	looked bool // the leaf was asked
	p      segment.Postings
}

// fieldParams are the BM25 constants of a field for one request.
type fieldParams struct {
	ready      bool
	k1, b, avg float32
	stats      score.FieldStats // behind avg
}

func (s *searcher) plan(q query.Node) (*node, error) {
	n, err := s.planNode(q)
	if err == nil {
		if n.src == nil {
			n.src = q
		}
		return n, nil
	}
	var bad *QueryError
	if errors.As(err, &bad) && bad.Node == nil {
		bad.Node = q
	}
	return nil, err
}

func (s *searcher) planNode(q query.Node) (*node, error) {
	switch q := q.(type) {
	case nil, *query.All:
		return s.node(node{kind: kindAll}), nil
	case *query.Boost:
		n, err := s.plan(q.Query)
		if err != nil {
			return nil, err
		}
		if n.boosted {
			n = s.node(node{kind: kindBool, must: []*node{n}})
		}
		n.boosted, n.boost = true, q.Factor
		return n, nil
	case *query.Bool:
		n := s.node(node{kind: kindBool})
		dropped := 0
		for _, part := range []struct {
			in  []query.Node
			out *[]*node
		}{{q.Must, &n.must}, {q.Should, &n.should}, {q.MustNot, &n.not}, {q.Filter, &n.filter}} {
			for _, c := range part.in {
				cn, err := s.plan(c)
				if err != nil {
					return nil, err
				}
				if cn.dropped {
					dropped++
					continue
				}
				*part.out = append(*part.out, cn)
			}
		}
		if len(n.must)+len(n.filter) == 0 && len(n.should) == 0 && len(n.not) == 0 {
			n.kind, n.dropped = kindNone, dropped > 0
		}
		return n, nil
	case *query.Term:
		return s.textFields(q.Field, q.Text, func(f int) (*node, error) {
			return s.tokens(f, q.Text, true, 0)
		})
	case *query.Match:
		return s.textFields(q.Field, q.Text, func(f int) (*node, error) {
			return s.tokens(f, q.Text, q.All, q.MaxTerms)
		})
	case *query.Phrase:
		return s.textFields(q.Field, q.Text, func(f int) (*node, error) { return s.phrase(f, q) })
	case *query.Prefix:
		if q.Field != "" {
			if f, ok := s.schema.Lookup(q.Field); ok && !searchable(&s.schema.Fields[f]) {
				return nil, &QueryError{Code: "field_not_searchable", Field: q.Field, Reason: describe(&s.schema.Fields[f]) + " takes no prefix"}
			}
		}
		return s.textFields(q.Field, q.Text, func(f int) (*node, error) { return s.prefix(f, q.Text) })
	case *query.Exists:
		f, err := s.lookup(q.Field)
		if err != nil {
			return nil, err
		}
		return s.node(node{kind: kindExists, field: f}), nil
	case *query.Words:
		return s.words(q)
	case *query.Given:
		if q.List < 0 || q.List >= len(s.req.Given) {
			return nil, fmt.Errorf("plan query: list %d is not among the %d that are given", q.List, len(s.req.Given))
		}
		return s.node(node{kind: kindGiven, given: q.List}), nil
	case *query.Range:
		return s.rangeNode(q)
	case *query.Terms:
		return s.termsNode(q)
	}
	return nil, fmt.Errorf("plan query: unknown node %T", q)
}

func (s *searcher) lookup(name string) (int, error) {
	f, ok := s.schema.Lookup(name)
	if !ok && s.req.Lenient {
		return s.unknown(name), nil
	}
	if !ok {
		return 0, &QueryError{Code: "unknown_field", Field: name, Reason: "the index has no such field"}
	}
	return f, nil
}

func searchable(f *schema.Field) bool { return f.Type == schema.Text && f.Indexed }

// textFields makes a node of one field, or for an empty name the sum over the default fields in schema order. A field without
// an inverted index but with a column matches by value, with score 1.
func (s *searcher) textFields(name, value string, make func(f int) (*node, error)) (*node, error) {
	s.tokenCount, s.leafTokens = s.tokenCount+s.leafTokens, 0
	if name != "" {
		f, err := s.lookup(name)
		if err != nil {
			return nil, err
		}
		fd := &s.schema.Fields[f]
		if searchable(fd) {
			return make(f)
		}
		if fd.Fast {
			return s.rangeNode(&query.Range{Field: name, Min: &query.Bound{Value: value}, Max: &query.Bound{Value: value}})
		}
		return nil, &QueryError{Code: "field_not_searchable", Field: name, Reason: describe(fd) + " without a column cannot be searched; declare it as fast"}
	}
	fields, err := s.defaults()
	if err != nil {
		return nil, err
	}
	if len(fields) == 1 {
		return make(fields[0])
	}
	n := s.node(node{kind: kindBool})
	dropped := 0
	for _, f := range fields {
		c, err := make(f)
		if err != nil {
			return nil, err
		}
		if c.kind != kindNone {
			n.should = append(n.should, c)
		} else if c.dropped {
			dropped++
		}
	}
	switch len(n.should) {
	case 0:
		return s.node(node{kind: kindNone, dropped: dropped == len(fields) && dropped > 0}), nil
	case 1:
		return n.should[0], nil
	}
	return n, nil
}

func describe(f *schema.Field) string {
	switch f.Type {
	case schema.Text:
		return "a text field that is not indexed"
	case schema.U64, schema.I64, schema.F64:
		return "a number field"
	case schema.Date:
		return "a date field"
	}
	return "a field of this type"
}

// defaults returns the fields of a term without a field, in schema order.
func (s *searcher) defaults() ([]int, error) {
	if s.defaultFields != nil {
		return s.defaultFields, nil
	}
	if s.req.DefaultFields == nil && s.schema.DefaultFields == nil {
		s.defaultFields = indexedText(s.schema, s.known)
		return s.defaultFields, nil
	}
	names := s.req.DefaultFields
	if names == nil {
		names = s.schema.DefaultFields
	}
	out := []int{}
	for _, name := range names {
		f, err := s.lookup(name)
		if err != nil {
			return nil, err
		}
		if fd := &s.schema.Fields[f]; fd.Type != schema.Text || !fd.Indexed {
			return nil, &QueryError{Code: "field_not_searchable", Field: name, Reason: describe(fd) + " cannot be a default field"}
		}
		out = append(out, f)
	}
	sort.Ints(out)
	s.defaultFields = slices.Compact(out)
	return s.defaultFields, nil
}

// indexedText returns every indexed text field but the key among the first known fields, and the key where there is no other; never nil.
func indexedText(sch *schema.Schema, known int) []int {
	out := []int{}
	for i := range sch.Fields[:known] {
		if fd := &sch.Fields[i]; searchable(fd) && !fd.Primary {
			out = append(out, i)
		}
	}
	if len(out) == 0 { // nothing but the key
		if p := sch.PrimaryField(); p >= 0 && searchable(&sch.Fields[p]) {
			out = append(out, p)
		}
	}
	return out
}

// addTerm returns the index of a token in s.terms.
func (s *searcher) addTerm(field int, text []byte) int {
	if len(s.terms) < manyTerms {
		for i := range s.terms {
			if s.terms[i].field == field && bytes.Equal(s.terms[i].bytes, text) {
				return i
			}
		}
		return s.newTerm(field, text)
	}
	if s.termIndex == nil {
		s.termIndex = make(map[termKey]int, 4*manyTerms)
		for i := range s.terms {
			s.termIndex[termKey{s.terms[i].field, string(s.terms[i].bytes)}] = i
		}
	}
	key := termKey{field, string(text)}
	i, ok := s.termIndex[key]
	if !ok {
		i = s.newTerm(field, text)
		s.termIndex[key] = i
	}
	return i
}

// manyTerms is where looking for a term among those before one by one gives way to a map.
const manyTerms = 32

type termKey struct {
	field int
	text  string
}

func (s *searcher) newTerm(field int, text []byte) int {
	at := len(s.arena)
	s.arena = append(s.arena, text...)
	s.terms = append(s.terms, term{field: field, bytes: s.arena[at:len(s.arena):len(s.arena)]})
	return len(s.terms) - 1
}

// analyse makes tokens of query text: for a phrase in the written form, elsewhere in the form that finds most.
func (s *searcher) analyse(field int, value string, exact bool) ([]text.Token, error) {
	a := s.analyzer(field)
	if a == nil {
		return nil, fmt.Errorf("field %q has no analyzer", s.schema.Fields[field].Name)
	}
	var toks []text.Token
	if exact {
		toks = a.Exact(&s.scratch, value)
	} else {
		toks = a.Query(&s.scratch, value)
	}
	s.leafTokens = max(s.leafTokens, len(toks))
	if s.tokenCount+s.leafTokens > MaxTokens {
		return nil, &QueryError{
			Code: "too_many_tokens", Field: s.schema.Fields[field].Name,
			Reason: fmt.Sprintf("the query's text makes more than %d tokens", MaxTokens),
		}
	}
	if s.termCount += len(toks); s.termCount > MaxTerms {
		return nil, s.tooManyLists(field)
	}
	return toks, nil
}

func (s *searcher) tooManyLists(field int) error {
	return &QueryError{
		Code: "too_many_tokens", Field: s.schema.Fields[field].Name, Limit: MaxTerms,
		Reason: fmt.Sprintf("the query's words times the fields that they are searched in are more than %d; name the fields to search", MaxTerms),
	}
}

func (s *searcher) termNode(field, t int) *node {
	s.needField(field)
	n := s.node(node{kind: kindTerm, field: field, term: t, slot: s.slots, rep: 1})
	s.slots++
	return n
}

// tokens makes the node of analysed text: all tokens required, or any of them.
func (s *searcher) tokens(field int, value string, all bool, maxTerms int) (*node, error) {
	toks, err := s.analyse(field, value, false)
	if err != nil {
		return nil, err
	}
	switch len(toks) {
	case 0:
		return s.node(node{kind: kindNone, dropped: true}), nil
	case 1:
		return s.termNode(field, s.addTerm(field, toks[0].Text)), nil
	}
	n := s.node(node{kind: kindBool})
	var kids []*node
	seen := make(map[int]*node, len(toks))
	for _, tk := range toks {
		t := s.addTerm(field, tk.Text)
		if old := seen[t]; old != nil && !all { // a repeated token of a match weighs its count
			old.rep++
			continue
		} else if old != nil {
			continue
		}
		k := s.termNode(field, t)
		seen[t] = k
		kids = append(kids, k)
	}
	if len(kids) == 1 {
		return kids[0], nil
	}
	if all {
		n.must = kids
	} else {
		n.should = kids
		if maxTerms > 0 && len(kids) > maxTerms {
			s.capped = append(s.capped, cappedMatch{n, maxTerms})
		}
	}
	return n, nil
}

// words makes the node of text that was analysed before.
func (s *searcher) words(q *query.Words) (*node, error) {
	f, err := s.lookup(q.Field)
	if err != nil {
		return nil, err
	}
	switch {
	case !searchable(&s.schema.Fields[f]):
		return nil, &QueryError{Code: "field_not_searchable", Field: q.Field, Reason: describe(&s.schema.Fields[f]) + " has no words"}
	case len(q.Words) == 0:
		return nil, errors.New("plan query: there are no words")
	}
	if s.termCount += len(q.Words); s.termCount > MaxTerms {
		return nil, s.tooManyLists(f)
	}
	if q.Phrase {
		s.needField(f)
		n := s.node(node{kind: kindPhrase, field: f, slop: min(q.Slop, maxSlop), slot: s.slots})
		s.slots++
		for _, w := range q.Words {
			n.list = append(n.list, s.addTerm(f, []byte(w.Text)))
			n.offs = append(n.offs, w.Offset)
		}
		return n, nil
	}
	var kids []*node
	for _, w := range q.Words {
		k := s.termNode(f, s.addTerm(f, []byte(w.Text)))
		k.rep = float32(max(w.Times, 1))
		kids = append(kids, k)
	}
	if len(kids) == 1 {
		return kids[0], nil
	}
	n := s.node(node{kind: kindBool})
	if q.All {
		n.must = kids
		return n, nil
	}
	n.should = kids
	if q.MaxTerms > 0 && len(kids) > q.MaxTerms {
		s.capped = append(s.capped, cappedMatch{n, q.MaxTerms})
	}
	return n, nil
}

type cappedMatch struct {
	n   *node
	max int
}

func (s *searcher) phrase(field int, q *query.Phrase) (*node, error) {
	fd := &s.schema.Fields[field]
	toks, err := s.analyse(field, q.Text, true)
	if err != nil {
		return nil, err
	}
	switch len(toks) {
	case 0:
		return s.node(node{kind: kindNone, dropped: true}), nil
	case 1:
		return s.termNode(field, s.addTerm(field, toks[0].Text)), nil
	}
	if fd.Positions != schema.TokenPositions && fd.Positions != schema.FullPositions {
		return nil, &QueryError{
			Code: "no_positions", Field: fd.Name,
			Reason: "a phrase needs token positions; declare the field with indexed<token_position> or indexed<positions>",
		}
	}
	s.needField(field)
	slop := min(q.Slop, maxSlop)
	if fd.Chunked {
		slop = min(slop, segment.ChunkStride/2) // passages stand closer
	}
	n := s.node(node{kind: kindPhrase, field: field, slop: slop, slot: s.slots})
	s.slots++
	base := toks[0].Pos
	for _, tk := range toks {
		n.list = append(n.list, s.addTerm(field, tk.Text))
		n.offs = append(n.offs, tk.Pos-base)
	}
	return n, nil
}

func (s *searcher) prefix(field int, prefix string) (*node, error) {
	a := s.analyzer(field)
	if a == nil {
		return nil, fmt.Errorf("field %q has no analyzer", s.schema.Fields[field].Name)
	}
	p := a.Normalize(prefix)
	if p == "" {
		return s.node(node{kind: kindNone, dropped: true}), nil
	}
	if s.termCount++; s.termCount > MaxTerms {
		return nil, s.tooManyLists(field)
	}
	s.needField(field)
	n := s.node(node{kind: kindPrefix, field: field, text: p, slot: s.slots})
	s.slots++
	s.prefixes = append(s.prefixes, n)
	return n, nil
}

func (s *searcher) needField(field int) {
	for len(s.params) <= field {
		s.params = append(s.params, fieldParams{})
	}
	s.params[field].ready = true
}

// statistics resolves every term on every leaf and fills the integer statistics: the request's where it has them, else sums over
// the live documents of the leaves.
func (s *searcher) statistics() error {
	if err := s.expandAll(); err != nil {
		return err
	}
	ext := s.req.Stats
	s.docs = 0
	for _, l := range s.leaves {
		s.docs += uint64(l.LiveDocs())
	}
	if ext != nil {
		s.docs = ext.Docs
	}
	for f := range s.params {
		if !s.params[f].ready {
			continue
		}
		fd := &s.schema.Fields[f]
		var st score.FieldStats
		known := false
		if ext != nil {
			st, known = ext.Fields[fd.Name]
		}
		if !known {
			st = s.fieldStats(f)
		}
		if s.collect != nil && (known || f < s.known) {
			s.collect.Fields[fd.Name] = st
		}
		s.params[f].k1, s.params[f].b, s.params[f].avg, s.params[f].stats = fd.K1, fd.B, score.AvgLen(st), st
	}
	for i := range s.terms {
		if err := s.check(16); err != nil {
			return err
		}
		t := &s.terms[i]
		t.df = 0
		if t.posts == nil {
			t.posts = s.leafLists()
			for li, l := range s.leaves {
				t.posts[li].p, t.posts[li].ok = l.Postings(t.field, t.bytes)
				t.posts[li].looked = true
			}
		}
		known := false
		if ext != nil {
			t.df = ext.DF[score.Term{Field: s.schema.Fields[t.field].Name, Text: string(t.bytes)}]
			known = t.df > 0
		}
		if !known {
			var err error
			if t.df, err = s.ownDF(t); err != nil {
				return err
			}
		}
		if s.collect != nil && t.df > 0 {
			s.collect.DF[score.Term{Field: s.schema.Fields[t.field].Name, Text: string(t.bytes)}] = t.df
		}
		docs := s.docs
		if ext != nil {
			if n, ok := ext.Corpus[s.schema.Fields[t.field].Name]; ok {
				docs = n
			}
		}
		// With the statistics of before, a term that they lack may have more documents by now than they speak of.
		t.df = min(t.df, docs)
		t.idf = score.IDF(docs, t.df)
	}
	for _, c := range s.capped {
		c.apply(s)
	}
	if most := s.req.LocalStats; most > 0 {
		return s.localStats(most)
	}
	return nil
}

// fieldStats are those of the leaves.
func (s *searcher) fieldStats(field int) (st score.FieldStats) {
	for _, l := range s.leaves {
		st.Add(l.FieldStats(field))
	}
	return st
}

// ownDF is the live document frequency of a term over the leaves. Its lists have to be looked up.
func (s *searcher) ownDF(t *term) (df uint64, err error) {
	for li, l := range s.leaves {
		if !t.posts[li].ok {
			continue
		}
		n, err := s.liveDF(l, t, li)
		if err != nil {
			return 0, err
		}
		df += n
	}
	return df, nil
}

// localStats sets local to what Statistics gives, unless there are more than most terms. It goes by the lists and the words of prefixes
// that statistics has found.
func (s *searcher) localStats(most int) error {
	st := &score.Stats{Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
	for _, l := range s.leaves {
		st.Docs += uint64(l.LiveDocs())
	}
	for f := range s.params[:min(len(s.params), s.known)] {
		if s.params[f].ready {
			st.Fields[s.schema.Fields[f].Name] = s.fieldStats(f)
		}
	}
	add := func(field int, text []byte, df uint64) (room bool) {
		if df > 0 {
			st.DF[score.Term{Field: s.schema.Fields[field].Name, Text: string(text)}] = df
		}
		return len(st.DF) <= most
	}
	for i := range s.terms {
		if err := s.check(16); err != nil {
			return err
		}
		t := &s.terms[i]
		df, err := s.ownDF(t)
		if err != nil {
			return err
		}
		if !add(t.field, t.bytes, df) {
			return nil
		}
	}
	seen := make(map[termKey]bool, len(s.prefixes))
	for _, n := range s.prefixes {
		key := termKey{n.field, n.text}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, word := range n.rest { // matched without a score, but another shard's may make it score
			if err := s.check(16); err != nil {
				return err
			}
			var df uint64
			for _, l := range s.leaves {
				d, err := l.DocFreq(n.field, word, s.checker)
				if err != nil {
					return err
				}
				df += d
			}
			if !add(n.field, word, df) {
				return nil
			}
		}
	}
	s.local = st
	return nil
}

// list returns a term's list on a leaf, looking it up once.
func (s *searcher) list(l Leaf, li, ti int) (*segment.Postings, bool) {
	t := &s.terms[ti]
	if t.posts == nil {
		t.posts = s.leafLists()
	}
	lp := &t.posts[li]
	if !lp.ok && !lp.looked {
		lp.p, lp.ok = l.Postings(t.field, t.bytes)
		lp.looked = true
	}
	return &lp.p, lp.ok
}

// liveDF is the live document frequency of a term on one leaf.
func (s *searcher) liveDF(l Leaf, t *term, li int) (uint64, error) {
	if l.Live() == nil {
		return uint64(t.posts[li].p.DocFreq()), nil
	}
	return l.DocFreq(t.field, t.bytes, s.checker)
}

// expansion is one term of a prefix.
type expansion struct {
	text  []byte
	df    uint64         // physical, over the leaves
	posts []leafPostings // one for each leaf, nil: not kept
}

type leafExpansion struct {
	text []byte
	df   uint64
	kept int32 // place in searcher.keptLists, −1 when the list is not kept
}

// keepLists is how many terms of a prefix keep their lists from the scan; those of others are looked up when they score.
const keepLists = 2 * MaxPrefixTerms

// expandAll finds the terms of every prefix; one that stands in the query several times is looked up once.
func (s *searcher) expandAll() error {
	if len(s.prefixes) == 0 {
		return nil
	}
	seen := make(map[termKey]*node, len(s.prefixes))
	scoring := 0
	for _, n := range s.prefixes {
		key := termKey{n.field, n.text}
		if old := seen[key]; old != nil {
			n.list, n.rest = old.list, old.rest
			continue
		}
		if err := s.expand(n); err != nil {
			return err
		}
		seen[key] = n
		if scoring += len(n.list); scoring > MaxQueryPrefixTerms && !s.uncapped {
			return &QueryError{
				Code: "prefix_too_broad", Field: s.schema.Fields[n.field].Name, Limit: MaxQueryPrefixTerms,
				Reason: fmt.Sprintf("the prefixes of the query have more than %d words in the fields that they are searched in; name the fields to search, or filter by them", MaxQueryPrefixTerms),
			}
		}
	}
	return nil
}

// expand finds every term of a prefix on any leaf and chooses those that score: the MaxPrefixTerms of highest global document
// frequency, of equals the first in byte order. With external statistics the choice is made among all the terms that those
// list, so that every shard makes the same. The other terms match and add nothing.
func (s *searcher) expand(n *node) error {
	all, err := s.scan(n)
	if err != nil {
		return err
	}
	keep, err := s.scoring(n, all)
	if err != nil {
		return err
	}
	n.list, n.rest = nil, nil
	for i := range all {
		if err := s.check(8); err != nil {
			return err
		}
		e := &all[i]
		if keep != nil && !keep[string(e.text)] {
			n.rest = append(n.rest, e.text)
			continue
		}
		s.terms = append(s.terms, term{field: n.field, bytes: e.text, posts: e.posts})
		n.list = append(n.list, len(s.terms)-1)
	}
	return nil
}

// scan lists the terms of a prefix over all leaves, ascending.
func (s *searcher) scan(n *node) ([]expansion, error) {
	field := s.schema.Fields[n.field].Name
	for len(s.found) < len(s.leaves) {
		s.found = append(s.found, nil)
	}
	lists := s.found[:len(s.leaves)]
	for li := range lists {
		lists[li] = lists[li][:0]
	}
	total := 0
	clear(s.keptLists)
	s.keptLists = s.keptLists[:0]
	var failed error
	for li, l := range s.leaves {
		err := l.ScanPostings(n.field, []byte(n.text), func(t []byte, p segment.Postings) bool {
			if failed = s.check(16); failed != nil {
				return false
			}
			if s.expansions++; s.expansions > MaxQueryExpansions {
				failed = &QueryError{
					Code: "prefix_too_broad", Field: field, Limit: MaxQueryExpansions,
					Reason: fmt.Sprintf("the prefixes of the query have more than %d words together; write more of the words, or filter by them", MaxQueryExpansions),
				}
				return false
			}
			if total++; total > MaxPrefixExpansions {
				failed = &QueryError{
					Code: "prefix_too_broad", Field: field, Limit: MaxPrefixExpansions,
					Reason: fmt.Sprintf("prefix %q has more than %d terms; write more of the word", n.text, MaxPrefixExpansions),
				}
				return false
			}
			at := len(s.arena)
			s.arena = append(s.arena, t...)
			e := leafExpansion{text: s.arena[at:len(s.arena):len(s.arena)], df: uint64(p.DocFreq()), kept: -1}
			if len(lists[li]) < keepLists {
				e.kept = int32(len(s.keptLists))
				s.keptLists = append(s.keptLists, p)
			}
			lists[li] = append(lists[li], e)
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("expand prefix of field %q: %w", field, err)
		}
		if failed != nil {
			return nil, failed
		}
	}
	out := s.union[:0]
	defer func() { s.union = out }()
	at := make([]int, len(lists))
	for {
		var least []byte
		for li, list := range lists {
			if at[li] < len(list) && (least == nil || bytes.Compare(list[at[li]].text, least) < 0) {
				least = list[at[li]].text
			}
		}
		if least == nil {
			return out, nil
		}
		if err := s.check(8 * len(lists)); err != nil {
			return nil, err
		}
		e := expansion{text: least}
		whole := len(out) < keepLists
		if whole {
			e.posts = s.leafLists()
		}
		for li, list := range lists {
			if at[li] == len(list) || !bytes.Equal(list[at[li]].text, least) {
				continue
			}
			le := &list[at[li]]
			at[li]++
			e.df += le.df
			if whole = whole && le.kept >= 0; whole {
				e.posts[li] = leafPostings{ok: true, looked: true, p: s.keptLists[le.kept]}
			}
		}
		if !whole {
			e.posts = nil
		}
		out = append(out, e)
	}
}

// leafLists returns room for the lists of a term on every leaf.
func (s *searcher) leafLists() []leafPostings {
	nl := len(s.leaves)
	s.postArena = slices.Grow(s.postArena, nl)
	at := len(s.postArena)
	s.postArena = s.postArena[:at+nl]
	out := s.postArena[at : at+nl : at+nl]
	clear(out)
	return out
}

// scoring returns the terms of a prefix that score; nil means all.
func (s *searcher) scoring(n *node, terms []expansion) (map[string]bool, error) {
	type cand struct {
		text string
		df   uint64
	}
	var all []cand
	if ext := s.req.Stats; ext != nil {
		name := s.schema.Fields[n.field].Name
		for t, df := range ext.DF {
			if err := s.check(8); err != nil {
				return nil, err
			}
			if df > 0 && t.Field == name && strings.HasPrefix(t.Text, n.text) {
				all = append(all, cand{t.Text, df})
			}
		}
	} else {
		if len(terms) <= MaxPrefixTerms || s.uncapped {
			return nil, nil // a coordinator chooses when it has everybody's
		}
		dead := false
		for _, l := range s.leaves {
			dead = dead || l.Live() != nil
		}
		for i := range terms {
			if err := s.check(8); err != nil {
				return nil, err
			}
			df := terms[i].df
			if dead {
				df = 0
				for _, l := range s.leaves {
					d, err := l.DocFreq(n.field, terms[i].text, s.checker)
					if err != nil {
						return nil, err
					}
					df += d
				}
				if err := s.check(64); err != nil {
					return nil, err
				}
				if df == 0 {
					continue // only the deleted have it: it is no word of the index any more, as it is none of statistics that are given
				}
			}
			all = append(all, cand{string(terms[i].text), df})
		}
	}
	if len(all) > MaxPrefixTerms {
		var err error
		all, _, err = longsort.Sort(all, nil, func(a, b cand) int {
			return cmp.Or(cmp.Compare(b.df, a.df), strings.Compare(a.text, b.text))
		}, s.ended)
		if err != nil {
			return nil, err
		}
		s.note(fmt.Sprintf("prefix %q has %d terms; the %d most frequent score", n.text, len(all), MaxPrefixTerms))
		s.cappedPrefix = true
		all = all[:MaxPrefixTerms]
	}
	keep := make(map[string]bool, len(all))
	for _, c := range all {
		keep[c.text] = true
	}
	return keep, nil
}

// apply keeps the rarest terms of a match; absent ones go last, equals stay in the order of the text.
func (c cappedMatch) apply(s *searcher) {
	order := slices.Clone(c.n.should)
	rank := func(n *node) uint64 {
		t := &s.terms[n.term]
		df := t.df
		if ext := s.req.Stats; ext != nil { // a term that they lack came after them; it must not change what every shard and page chooses
			df = ext.DF[score.Term{Field: s.schema.Fields[t.field].Name, Text: string(t.bytes)}]
		}
		if df > 0 {
			return df
		}
		return ^uint64(0)
	}
	sort.SliceStable(order, func(i, j int) bool { return rank(order[i]) < rank(order[j]) })
	order = order[:c.max]
	sort.Slice(order, func(i, j int) bool { return order[i].slot < order[j].slot })
	c.n.should = order
}
