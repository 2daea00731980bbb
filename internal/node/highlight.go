package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/highlight"
	"github.com/weft-search/weft/internal/schema"
)

// bindHighlight resolves the fields to highlight. Every field may be more than api.MaxHighlight; of each hit no more are shown. What a search may not return is not shown in fragments either.
func (x *execution) bindHighlight() *api.Problem {
	h := x.req.Highlight
	if h == nil {
		return nil
	}
	x.marked = []string{}
	if slices.Contains(h.Fields, api.EveryField) {
		for i := range x.sch.Fields {
			if fd := &x.sch.Fields[i]; fd.Type == schema.Text && fd.Stored {
				x.marked = append(x.marked, fd.Name)
			}
		}
	}
	for _, name := range h.Fields {
		if name == api.EveryField {
			continue
		}
		f, ok := x.sch.Lookup(name)
		if !ok {
			return unknownField(name, "highlight")
		}
		switch fd := &x.sch.Fields[f]; {
		case fd.Type != schema.Text:
			return &api.Problem{Code: api.InvalidField, Field: name, Detail: fmt.Sprintf("highlight: field %q is no text field", name)}
		case !fd.Stored:
			return &api.Problem{Code: api.InvalidField, Field: name, Detail: fmt.Sprintf("highlight: field %q is not stored", name)}
		}
		x.marked = append(x.marked, name)
	}
	return nil
}

// highlight renders the marked fragments of each hit; nil without highlighting.
func (x *execution) highlight(ctx context.Context) ([][]byte, *api.Problem) {
	o := x.req.Highlight
	if o == nil {
		return nil, nil
	}
	defer x.watch.lap(stageHighlight)
	h, err := highlight.New(x.sch, x.analyzers, x.root, highlight.Options{
		Fields: x.marked, DefaultFields: x.req.DefaultFields, Fragments: o.Fragments, Bytes: o.FragmentSize, Pre: o.Pre, Post: o.Post, Raw: o.Raw, MaxFields: api.MaxHighlight,
	})
	if err != nil {
		if bad, ok := errors.AsType[*highlight.OptionError](err); ok {
			return nil, &api.Problem{Code: api.InvalidParameter, Field: "highlight", Detail: api.ClipDetail("highlight: " + bad.Option + " " + bad.Reason)}
		}
		return nil, x.node.problem(ctx, err)
	}
	out := make([][]byte, len(x.rank.hits))
	var source []byte
	var size int64
	for i := range x.rank.hits {
		hit := &x.rank.hits[i]
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			if x.tolerate(cause) {
				return nil, nil
			}
			return nil, x.node.problem(ctx, cause)
		}
		if source, err = x.leaves[hit.Leaf].Source(hit.Doc, source[:0]); err != nil {
			return nil, x.node.problem(ctx, fmt.Errorf("read source of a hit: %w", err))
		}
		fields, err := h.Fragments(source)
		if err != nil {
			return nil, x.node.problem(ctx, err)
		}
		out[i] = x.fragments(fields)
		if size += int64(len(out[i])); size > x.node.cfg.Limits.ReplyBytes {
			most := x.node.cfg.Limits.ReplyBytes
			return nil, api.NewProblem(api.ReplyTooLarge, "the highlighted fragments are longer than the reply may be; ask for fewer hits, or for fewer or shorter fragments").On("highlight").Within(most)
		}
	}
	if err := x.charge(replyCopies * size); err != nil {
		return nil, x.node.problem(ctx, err)
	}
	return out, nil
}

// fragments renders the fields of one hit.
func (x *execution) fragments(fields []highlight.Field) []byte {
	b := []byte{'{'}
	for _, f := range fields {
		if f.Truncated {
			x.note("highlight: of a long text only the beginning was looked at")
		}
		if len(f.Fragments) == 0 {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
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

// note adds a note to the reply, once.
func (x *execution) note(text string) {
	if !slices.Contains(x.rank.notes, text) {
		x.rank.notes = append(x.rank.notes, text)
	}
}
