// Package highlight shows where a query matches a document: short pieces of its text fields with the matching words marked.
//
// # What is marked
//
// Tokens of the field's text that made the query match: the words of terms and matches, the words that begin with a prefix, and
// the words of a phrase where the phrase stands, with its slop, and nowhere else. A part of the query that does not match this document
// marks nothing: of (a AND b) OR c a document with a and c has only c marked, and of several words that all have to be there none is marked in a field that lacks
// one. What a query excludes is never marked. Filters inside a Bool mark like the rest; ranges, existence tests and terms on
// numbers mark nothing. A field that is searched by its column, having no inverted index, is marked as a whole where a value is equal. Of Match.MaxTerms nothing is
// known here: all words of the match count.
//
// Parts of the query about fields that are not to be highlighted are taken to match, so that those fields need not be read.
//
// # Fragments
//
// A fragment is a piece of one value, never longer than Options.Bytes before marks and escapes are added. The pieces with the most
// different words of the query are chosen first, then those with more of them, then earlier ones; they do not overlap. Around its matches a
// fragment has text on both sides, from the start of a sentence where there is one near, cut between words.
//
// Unless Options.Raw is set, the text is escaped for HTML (& < > " '), marks are not: what a document holds cannot become markup.
//
// # Limits
//
// Of each field of a document only the first Options.ScanBytes are read, and at most MaxMarks matching tokens are taken; Field.Truncated
// tells that there was more. Options.MaxFields bounds the fields of a document that are shown. The time for a document is proportional to the bytes that are scanned.
package highlight

import (
	"fmt"
	"math"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/text"
)

// Defaults and limits of Options.
const (
	DefaultFragments = 3
	MaxFragments     = 100
	DefaultBytes     = 150
	MinBytes         = 20
	MaxBytes         = 1 << 16
	DefaultScanBytes = 1 << 20
	MaxScanBytes     = 1 << 24
	MaxMarkBytes     = 256     // of Pre and of Post
	MaxMarks         = 1 << 16 // matching tokens in one field of a document
	maxTerms         = 1 << 16 // tokens of the query, times the fields that they are looked for in
)

// Options say what a reply is to show. The zero value is usable.
type Options struct {
	// Fields to highlight, in any order. Nil means every text field that the query searches.
	Fields []string
	// DefaultFields are searched by parts of the query without a field, as in the search itself: nil means the schema's, or else every
	// indexed text field but the key.
	DefaultFields []string
	Fragments     int // at most so many for each field; 0 = DefaultFragments, at most MaxFragments
	Bytes         int // longest fragment; 0 = DefaultBytes, MinBytes to MaxBytes
	// Pre and Post stand before and after each marked piece of text; both empty = <em> and </em>.
	Pre, Post string
	Raw       bool // do not escape the text for HTML
	InOrder   bool // fragments in order of the text; otherwise best first
	ScanBytes int  // 0 = DefaultScanBytes, at most MaxScanBytes
	// MaxFields bounds the fields of a document that are shown: when something was found in so many, in schema order, those behind are
	// not looked at; they are taken to match. 0 = all.
	MaxFields int
}

// OptionError says which option cannot be used and why. It is meant for clients.
type OptionError struct {
	Option string // fields, default_fields, fragments, bytes, pre, post, scan_bytes, query
	Reason string
}

// Error implements error.
func (e *OptionError) Error() string { return "highlight " + e.Option + " " + e.Reason }

// Field holds the fragments of one field of a document.
type Field struct {
	Name      string
	Fragments []Fragment
	Truncated bool // the field has more text, or more matches, than were looked at
}

// Fragment is a piece of a value.
type Fragment struct {
	Text       string // with marks, and escaped unless Options.Raw
	Value      int    // which value of the field it is of, from 0
	Start, End int    // the piece in the value, in bytes
}

// Highlighter highlights documents for one query. It keeps memory from one document to the next and is not safe for concurrent use.
type Highlighter struct {
	opts   Options
	parser *jsondoc.Parser
	fields []field // to highlight, ascending by id
	leaves []leaf
	root   *node

	scratch text.Scratch
	hits    []hit // of the field being matched
}

// New prepares highlighting of the documents that q found. analyzer returns the tokenizer of a text field. It trusts q to be a tree
// that query.Check takes. Errors are *OptionError.
func New(s *schema.Schema, analyzer func(field int) *text.Analyzer, q query.Node, o Options) (*Highlighter, error) {
	for _, l := range []struct {
		name           string
		v              *int
		deft, min, max int
	}{
		{"fragments", &o.Fragments, DefaultFragments, 1, MaxFragments},
		{"bytes", &o.Bytes, DefaultBytes, MinBytes, MaxBytes},
		{"scan_bytes", &o.ScanBytes, DefaultScanBytes, 1, MaxScanBytes},
	} {
		if *l.v == 0 {
			*l.v = l.deft
		}
		if *l.v < l.min || *l.v > l.max {
			return nil, &OptionError{l.name, fmt.Sprintf("must be %d to %d, got %d", l.min, l.max, *l.v)}
		}
	}
	if o.Pre == "" && o.Post == "" {
		o.Pre, o.Post = "<em>", "</em>"
	}
	for _, m := range []struct{ name, v string }{{"pre", o.Pre}, {"post", o.Post}} {
		if len(m.v) > MaxMarkBytes {
			return nil, &OptionError{m.name, fmt.Sprintf("must not exceed %d bytes, got %d", MaxMarkBytes, len(m.v))}
		}
	}
	h := &Highlighter{opts: o}
	// A source was a document within its limits when it came, so there are none here.
	h.parser = jsondoc.NewParser(s, jsondoc.Limits{
		DocumentBytes: math.MaxInt, TextBytes: math.MaxInt, KeywordBytes: math.MaxInt, IDBytes: math.MaxInt, Depth: 10_000, Values: math.MaxInt32,
		InferredFields: math.MaxInt32,
	})
	if err := h.compile(s, analyzer, q); err != nil {
		return nil, err
	}
	return h, nil
}

// Fragments returns what to show of a document, given its source: in schema order the fields that have a fragment, and those
// without one that were not read to their end. A source that is no document of the schema is an error.
func (h *Highlighter) Fragments(source []byte) ([]Field, error) {
	if len(source) == 0 || len(h.fields) == 0 {
		return nil, nil
	}
	doc, _, bad := h.parser.Parse(source)
	if bad != nil {
		return nil, fmt.Errorf("highlight: read the source: %w", bad)
	}
	return h.Document(doc), nil
}

// Document is Fragments for a document that is read already.
func (h *Highlighter) Document(doc *schema.Document) []Field {
	var found []match
	for i := range h.leaves {
		h.leaves[i].state = maybe
	}
	values := doc.Fields // both ascend
	matched := 0
	for i := range h.fields {
		f := &h.fields[i]
		for len(values) > 0 && values[0].Field < f.id {
			values = values[1:]
		}
		switch {
		case len(values) == 0 || values[0].Field > f.id:
			for _, l := range f.leaves {
				h.leaves[l].state = no
			}
		case h.opts.MaxFields == 0 || matched < h.opts.MaxFields:
			m := h.match(f, values[0].Text)
			if len(m.hits) > 0 {
				matched++
			}
			if len(m.hits) > 0 || m.truncated {
				found = append(found, m)
			}
		}
	}
	for i := range h.leaves {
		h.leaves[i].on = false
	}
	if h.root.judge(h.leaves) != no {
		h.root.enable(h.leaves)
	}
	var out []Field
	for i := range found {
		m := &found[i]
		r := Field{Name: m.field.name, Truncated: m.truncated}
		if active := h.active(m); len(active) > 0 {
			r.Fragments = h.fragments(m.values, active)
		}
		if len(r.Fragments) > 0 || r.Truncated {
			out = append(out, r)
		}
	}
	h.scratch.Shrink(1 << 20)
	if cap(h.hits) > 1<<14 {
		h.hits = nil
	}
	return out
}
