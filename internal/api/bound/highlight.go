package bound

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/highlight"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/text"
)

// bindHighlight resolves the fields to highlight; nil without highlighting. Every field may be more than api.MaxHighlight; of each hit no
// more are shown. What a search may not return is not shown in fragments either.
func bindHighlight(sch *schema.Schema, h *api.Highlight) ([]string, *api.Problem) {
	if h == nil {
		return nil, nil
	}
	marked := []string{}
	if slices.Contains(h.Fields, api.EveryField) {
		for i := range sch.Fields {
			if fd := &sch.Fields[i]; fd.Type == schema.Text && fd.Stored {
				marked = append(marked, fd.Name)
			}
		}
	}
	for _, name := range h.Fields {
		if name == api.EveryField {
			continue
		}
		f, ok := sch.Lookup(name)
		if !ok {
			return nil, UnknownField(name, "highlight")
		}
		switch fd := &sch.Fields[f]; {
		case fd.Type != schema.Text:
			return nil, &api.Problem{Code: api.InvalidField, Field: name, Detail: fmt.Sprintf("highlight: field %q is no text field", name)}
		case !fd.Stored:
			return nil, &api.Problem{Code: api.InvalidField, Field: name, Detail: fmt.Sprintf("highlight: field %q is not stored", name)}
		}
		marked = append(marked, name)
	}
	return marked, nil
}

// Highlighter prepares the highlighting that a request asks for; the request must ask for it. analyzer returns the tokenizer of a text
// field. Errors are *api.Problem, or others of package highlight.
func (b *Bound) Highlighter(req *api.SearchRequest, q *Query, sch *schema.Schema, analyzer func(field int) *text.Analyzer) (*highlight.Highlighter, error) {
	o := req.Highlight
	h, err := highlight.New(sch, analyzer, q.Root, highlight.Options{
		Fields: b.Marked, DefaultFields: req.DefaultFields, Fragments: o.Fragments, Bytes: o.FragmentSize, Pre: o.Pre, Post: o.Post, Raw: o.Raw, MaxFields: api.MaxHighlight,
	})
	if bad, ok := errors.AsType[*highlight.OptionError](err); ok {
		return nil, &api.Problem{Code: api.InvalidParameter, Field: "highlight", Detail: api.ClipDetail("highlight: " + bad.Option + " " + bad.Reason)}
	}
	return h, err
}

// AppendFragments appends the fragments of one hit as a JSON object. What there is to say of them goes to notes.
func AppendFragments(b []byte, fields []highlight.Field, notes *Notes) []byte {
	b = append(b, '{')
	first := true
	for _, f := range fields {
		if f.Truncated {
			notes.Add(NoteTruncated)
		}
		if len(f.Fragments) == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = api.AppendString(b, f.Name)
		b = append(b, ':', '[')
		for i, frag := range f.Fragments {
			if i > 0 {
				b = append(b, ',')
			}
			b = api.AppendString(b, frag.Text)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// LongFragments is the problem of fragments that are longer than a reply may be.
func LongFragments(most int64) *api.Problem {
	return api.NewProblem(api.ReplyTooLarge, "the highlighted fragments are longer than the reply may be; ask for fewer hits, or for fewer or shorter fragments").On("highlight").Within(most)
}
