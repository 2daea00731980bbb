package framed

import (
	"fmt"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/highlight"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
)

const opFetch = "fetch"

const (
	showMember  = "show"
	shownMember = "shown"
	planMember  = "plan"

	highlightMember = "highlight"
)

var (
	showMembers      = []string{"source", "fields", highlightMember, "explain", "first"}
	highlightMembers = []string{"fields", "fragment_size", "fragments", "pre", "post", "escape"}
	fetchMembers     = viewed("ids", showMember, "query", filtersMember, "stats", "knn", fieldsMember, defaultOp, "rest")
)

// longestMark is how long a mark may be in a frame, every byte of it escaped.
const longestMark = 6*highlight.MaxMarkBytes + 2

// show writes the member show.
func (w *writer) show(s *leaf.Show) {
	w.name(showMember)
	from := len(w.b)
	w.yes("source", s.Source)
	if s.Fields != nil {
		w.texts("fields", s.Fields, maxDefaultFields)
	}
	if s.Highlight != nil {
		w.highlight(s.Highlight)
	}
	w.yes("explain", s.Explain)
	if s.First != 0 {
		w.whole("first", s.First)
	}
	w.close(from)
}

// close makes an object of the members that were written since the text was so long.
func (w *writer) close(from int) {
	if len(w.b) == from {
		w.b = append(w.b, '{')
	} else {
		w.b[from] = '{' // in place of the comma
	}
	w.b = append(w.b, '}')
}

// highlight writes the member of that name. What is zero is not said.
func (w *writer) highlight(h *api.Highlight) {
	if len(h.Fields) > api.MaxHighlight {
		w.fail(tooMany(highlightMember, len(h.Fields), api.MaxHighlight))
		return
	}
	w.name(highlightMember)
	from := len(w.b)
	w.texts("fields", h.Fields, api.MaxHighlight)
	if h.FragmentSize != 0 {
		w.whole("fragment_size", h.FragmentSize)
	}
	if h.Fragments != 0 {
		w.whole("fragments", h.Fragments)
	}
	if h.Pre != "" || h.Post != "" {
		w.text("pre", h.Pre)
		w.text("post", h.Post)
	}
	if h.Raw {
		w.text("escape", "none")
	}
	w.close(from)
}

// show reads the member show; nil if it is not there.
func (m *message) show() *leaf.Show {
	o := m.object(showMember, showMembers)
	if o == nil {
		return nil
	}
	s := &leaf.Show{
		Source: o.yes("source"), Fields: o.texts("fields", "fields", maxDefaultFields), Highlight: o.highlight(), Explain: o.yes("explain"),
		First: o.whole("first", 0),
	}
	m.failed(o.prob)
	return s
}

// highlight reads the member of that name; nil if it is not there. Which sizes and marks there can be is for the leaf to say.
func (m *message) highlight() *api.Highlight {
	o := m.object(highlightMember, highlightMembers)
	if o == nil {
		return nil
	}
	o.need("fields")
	h := &api.Highlight{Fields: o.texts("fields", "fields", api.MaxHighlight), FragmentSize: o.whole("fragment_size", 0), Fragments: o.whole("fragments", 0)}
	if o.has("pre") || o.has("post") {
		h.Pre, h.Post = o.mark("pre", "<em>"), o.mark("post", "</em>")
	}
	if o.has("escape") {
		switch o.text("escape") {
		case "html":
		case "none":
			h.Raw = true
		default:
			o.fail("escape", "it is html or none")
		}
	}
	if o.prob != nil {
		o.prob.Field, o.prob.Detail = highlightMember, highlightMember+": "+o.prob.Detail
		m.failed(o.prob)
	}
	return h
}

// mark reads what stands around words that were found.
func (m *message) mark(name, absent string) string {
	switch raw := m.get(name); {
	case raw == nil:
		return absent
	case len(raw) > longestMark:
		m.failed(invalid(name, fmt.Sprintf("it is longer than %d bytes", highlight.MaxMarkBytes)).Within(highlight.MaxMarkBytes))
		return ""
	}
	return m.text(name)
}

// appendShown appends what is to be shown of documents. What is rendered goes as it is, byte for byte: checksums are over sources.
func appendShown(b []byte, list []leaf.Shown) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		d := &list[i]
		from := len(b)
		if d.Missing {
			b = append(b, `,"missing":true`...)
		}
		b = appendObject(b, "source", d.Source)
		b = appendObject(b, highlightMember, d.Highlight)
		b = appendObject(b, "lexical", d.Lexical)
		b = appendObject(b, "vector", d.Vector)
		if len(b) == from {
			b = append(b, '{')
		} else {
			b[from] = '{' // in place of the comma
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendObject appends a member that is rendered already, nothing if it is not there.
func appendObject(b []byte, name string, raw []byte) []byte {
	if len(raw) == 0 {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return append(b, raw...)
}

// shownBytes is about what the list takes.
func shownBytes(list []leaf.Shown) int {
	n := hitHead * len(list)
	for i := range list {
		n += shownSize(&list[i])
	}
	return n
}

func shownSize(d *leaf.Shown) int {
	return len(d.Source) + len(d.Highlight) + len(d.Lexical) + len(d.Vector)
}

// raw reads an object and returns a copy of its text.
func (s *scanner) raw() []byte {
	if s.peek() != '{' {
		s.fail("expected an object")
		return nil
	}
	return append([]byte(nil), s.value()...)
}

// shown reads what is to be shown of at most most documents.
func (s *scanner) shown(most int) []leaf.Shown {
	const shownBytes = 3 // {},
	var list []leaf.Shown
	s.expect('[')
	for first := true; s.next(&first, ']'); {
		if len(list) == most {
			s.fail("there are more documents than were asked for")
			return nil
		}
		if list == nil {
			list = make([]leaf.Shown, 0, min(most, (len(s.b)-s.i)/shownBytes+1))
		}
		var d leaf.Shown
		s.object(func(name []byte) {
			switch string(name) {
			case "missing":
				d.Missing = s.bool()
			case "source":
				d.Source = s.raw()
			case highlightMember:
				d.Highlight = s.raw()
			case "lexical":
				d.Lexical = s.raw()
			case "vector":
				d.Vector = s.raw()
			default:
				s.value()
			}
		})
		list = append(list, d)
	}
	return list
}

// fetchCall is a request for what is to be shown of documents as it came.
type fetchCall struct {
	leaf.FetchRequest
	rest bool // answer what fits, and list what does not
}

// appendFetchRequest writes a request for what is to be shown of documents; it takes those that fit into a frame. A query that Show
// has no use for does not travel: it need not be one that can.
func appendFetchRequest(w *writer, r *leaf.FetchRequest) {
	w.view(&r.View)
	w.texts("ids", r.IDs, leaf.MaxFetch)
	w.show(&r.Show)
	if r.Show.Explain || r.Show.Highlight != nil {
		w.query(r.Query, r.Show.Explain)
		w.filters(r.Filters)
		w.defaultFields(r.DefaultFields)
	}
	w.stats(r.Stats)
	if r.KNN != nil {
		w.name("knn")
		from := len(w.b)
		w.knn(r.KNN)
		w.close(from)
	}
	w.yes("rest", true)
}

// readFetchRequest reads it.
func readFetchRequest(m *message) *fetchCall {
	c := &fetchCall{rest: m.yes("rest")}
	c.Index = m.index
	m.view(&c.View)
	c.IDs = m.ids(leaf.MaxFetch)
	m.need(showMember)
	if show := m.show(); show != nil {
		c.Show = *show
	}
	op := m.operator(defaultOp, query.Or)
	c.Query = m.query(op)
	c.Filters = m.filters(op)
	c.DefaultFields = m.defaultFields()
	c.Stats = m.stats()
	if o := m.object("knn", fetchVector); o != nil {
		k := o.knn()
		c.KNN = &k
		m.failed(o.prob)
	}
	return c
}

// fetchPage is the reply to it.
type fetchPage struct {
	leaf.FetchReply
	rest []string // ids that there was no room for
}

// appendFetchReply appends the reply.
func appendFetchReply(b []byte, p *fetchPage) []byte {
	b = append(b, `{"ok":true,"shown":`...)
	b = appendShown(b, p.Docs)
	if len(p.rest) > 0 {
		b = append(b, `,"rest":`...)
		b = api.AppendStrings(b, p.rest)
	}
	if len(p.Notes) > 0 {
		b = append(b, `,"notes":`...)
		b = api.AppendStrings(b, p.Notes)
	}
	b = appendObject(b, planMember, p.Plan)
	return append(appendMeta(b, &p.Meta), '}')
}

// readFetchReply reads the reply to a request for so many ids.
func readFetchReply(b []byte, asked int) (*fetchPage, *api.Problem, error) {
	out := &fetchPage{}
	s := newScanner(b, false)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case shownMember:
			out.Docs = s.shown(asked)
		case "rest":
			out.rest = s.ids(asked)
		case "notes":
			out.Notes = s.strings(maxNotes)
		case planMember:
			out.Plan = s.raw()
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	})
	if prob == nil && err == nil && len(out.Docs)+len(out.rest) != asked {
		err = fmt.Errorf("%w: it has %d documents and %d further ids", errMalformed, len(out.Docs), len(out.rest))
	}
	return out, prob, err
}
