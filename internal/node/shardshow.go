package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/highlight"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/text"
)

// mostExplained bounds the hits that are explained: those of a page, and the one that tells whether another page follows.
const mostExplained = bound.MaxExplained + 1

// showing is what is to be shown of documents, held against the schema.
type showing struct {
	*leaf.Show
	query   *bound.Query
	filters []query.Node
	knn     *api.KNN // nil: none
	pick    bound.Selector
	marker  *highlight.Highlighter // nil: nothing is highlighted
}

// bindShow holds what is to be shown against the schema, with the problems that a search over HTTP has. The default fields of the view
// are set.
func (v *view) bindShow(show *leaf.Show, q query.Node, filters []query.Node, near *api.KNN) (*showing, error) {
	if show.Highlight != nil {
		if prob := show.Highlight.Check(); prob != nil {
			return nil, prob
		}
	}
	s := &showing{Show: show, query: &bound.Query{Root: everythingIf(q)}, filters: filters, knn: near}
	_, s.query.Everything = s.query.Root.(*query.All)
	req := &api.SearchRequest{DefaultFields: v.defaultFields, Fields: show.Fields, Highlight: show.Highlight, KNN: near}
	if !show.Source {
		req.Fields = []string{}
	}
	sch, analyzers := v.withUnknown(req, s.query.Root)
	b, prob := bound.Bind(req, s.query, sch, bound.Options{})
	if prob != nil {
		return nil, prob
	}
	s.pick = b.Pick
	if show.Highlight != nil {
		var err error
		if s.marker, err = b.Highlighter(req, s.query, sch, analyzers); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// withUnknown is the schema, for a lenient call with the fields that it names and the index lacks; no document has a value in them.
func (v *view) withUnknown(req *api.SearchRequest, q query.Node) (*schema.Schema, exec.Analyzers) {
	if !v.lenient {
		return v.sch, v.analyzers
	}
	names := slices.Concat(req.DefaultFields, req.Fields, query.Fields(q))
	if req.Highlight != nil {
		for _, name := range req.Highlight.Fields {
			if name != api.EveryField {
				names = append(names, name)
			}
		}
	}
	if req.KNN != nil {
		names = append(names, req.KNN.Field)
	}
	sch := v.lenientSchema(names)
	return sch, func(field int) *text.Analyzer {
		if field >= len(v.sch.Fields) {
			return exec.UnknownAnalyzer()
		}
		return v.analyzers(field)
	}
}

// lenientSchema is the schema of the index with those of the named fields that it lacks behind the others. A name that stands for an
// object is no field that is lacking.
func (v *view) lenientSchema(names []string) *schema.Schema {
	known := make(map[string]bool, len(v.sch.Fields))
	for i := range v.sch.Fields {
		name := v.sch.Fields[i].Name
		known[name] = true
		for at := range len(name) {
			if name[at] == '.' {
				known[name[:at]] = true
			}
		}
	}
	more := *v.sch
	more.Fields = slices.Clip(more.Fields)
	for _, name := range names {
		if name != "" && !known[name] {
			known[name] = true
			more.Fields = append(more.Fields, exec.UnknownField(name))
		}
	}
	return &more
}

// render renders what is to be shown of documents, and says how the query was taken. What of it is missing because the time was over is
// partial; see view.tolerate.
func (s *showing) render(ctx context.Context, v *view, hits []exec.Hit, notes *bound.Notes) ([]leaf.Shown, error) {
	out := make([]leaf.Shown, len(hits))
	sources, held, prob := v.node.fetch(ctx, v.leaves, hits, s.pick)
	v.held = append(v.held, held.Places()...)
	v.watch.UpTo(bound.StageFetch)
	if prob != nil {
		return nil, prob
	}
	for i := range sources {
		out[i].Source = sources[i]
	}
	if s.marker != nil {
		marks, err := v.fragments(ctx, s.marker, hits, notes)
		v.watch.UpTo(bound.StageHighlight)
		if err != nil {
			return nil, err
		}
		for i := range marks {
			out[i].Highlight = marks[i]
		}
	}
	if s.Explain {
		err := s.explain(ctx, v, hits, out)
		v.watch.UpTo(bound.StageExplain)
		if err != nil && !v.tolerate(err) {
			return nil, err
		}
	}
	return out, nil
}

// explain renders how the scores of documents are made: by the query, unless there is only a vector, and by the vector.
func (s *showing) explain(ctx context.Context, v *view, hits []exec.Hit, out []leaf.Shown) error {
	if len(hits) == 0 {
		return nil
	}
	room := v.treeRoom()
	if s.knn == nil || !s.query.Everything {
		x, err := v.explainer(ctx, s.query.Root, hits)
		if err != nil {
			return err
		}
		defer x.Close()
		for i := range hits {
			if out[i].Lexical, err = room.keep(func(b []byte) ([]byte, error) { return appendLexical(b, x, i) }); err != nil {
				return err
			}
		}
	}
	if s.knn == nil {
		return nil
	}
	near := v.vectorRequest(s.knn, 0, nil)
	for i := range hits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h := &hits[i]
		similarity, ok, err := knn.Similarity(v.leaves, v.sch, near, h.Leaf, h.Doc)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if out[i].Vector, err = room.keep(func(b []byte) ([]byte, error) { return v.appendVector(b, s.knn, h, similarity) }); err != nil {
			return err
		}
	}
	return nil
}

// plan says how the query was taken; nil without explanations.
func (s *showing) plan() []byte {
	if !s.Explain {
		return nil
	}
	return bound.AppendSearch(nil, s.query, s.filters, nil)
}

// Fetch implements leaf.Member.
func (l *shardLeaf) Fetch(ctx context.Context, req *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return callLeaf(ctx, l, opFetch, req.Index, req.View, func(c *leafCall) (*leaf.FetchReply, error) {
		if len(req.IDs) > leaf.MaxFetch {
			return nil, tooMany("ids", len(req.IDs), leaf.MaxFetch)
		}
		if req.Show.Explain && len(req.IDs) > mostExplained {
			return nil, tooMany("ids", len(req.IDs), mostExplained)
		}
		if prob := checkTrees(req.Query, req.Filters); prob != nil {
			return nil, prob
		}
		if prob := checkStats(req.Stats); prob != nil {
			return nil, prob
		}
		v, err := c.read(c.node.searches)
		if err != nil {
			return nil, err
		}
		v.defaultFields, v.stats = req.DefaultFields, req.Stats
		reply, err := c.fetch(v, req)
		c.searched(opFetch, err, slog.Int("limit", len(req.IDs)))
		return reply, err
	})
}

func (c *leafCall) fetch(v *view, req *leaf.FetchRequest) (*leaf.FetchReply, error) {
	s, err := v.bindShow(&req.Show, req.Query, req.Filters, req.KNN)
	if err != nil {
		return nil, err
	}
	hits := make([]exec.Hit, 0, len(req.IDs))
	place := make([]int, 0, len(req.IDs)) // of each hit in the request
	reply := &leaf.FetchReply{Docs: make([]leaf.Shown, len(req.IDs)), Plan: s.plan()}
	for i, id := range req.IDs {
		if i%lookEveryDocs == 0 && c.ctx.Err() != nil {
			return nil, context.Cause(c.ctx)
		}
		li, doc, ok := v.snap.Find(id)
		if !ok {
			reply.Docs[i].Missing = true
			continue
		}
		hits, place = append(hits, exec.Hit{Leaf: li, Doc: doc, Key: id}), append(place, i)
	}
	for _, l := range v.leaves {
		if err := l.Err(); err != nil {
			return nil, fmt.Errorf("find documents: %w", err)
		}
	}
	var notes bound.Notes
	shown, err := s.render(c.ctx, v, hits, &notes)
	if err != nil {
		return nil, err
	}
	if err := c.ended(); err != nil {
		return nil, err // sources are read on behind a deadline, for callers that take a part of an answer
	}
	for i := range shown {
		reply.Docs[place[i]] = shown[i]
	}
	reply.Notes = notes
	reply.Meta = c.meta(bound.StageFetch)
	return reply, nil
}
