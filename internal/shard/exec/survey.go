package exec

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/text"
)

// Survey is what is known of a request before any document is looked at.
type Survey struct {
	// Scored: words give scores to what matches, so that these depend on statistics.
	Scored bool
	// Chosen: statistics decide which words of a Match with MaxTerms count, and so which documents match.
	Chosen bool
}

// Examine holds a request against a schema as Search would, without an index: for those who send it on to the parts of one. Errors are
// those of Search that depend on no document.
func Examine(ctx context.Context, sch *schema.Schema, an Analyzers, req Request) (Survey, error) {
	s := newSearcher(ctx, nil, sch, an, &req)
	defer s.release()
	if err := s.ended(); err != nil {
		return Survey{}, err
	}
	if _, err := s.readOrder(); err != nil {
		return Survey{}, err
	}
	root, err := s.plan(req.Query)
	if err != nil {
		return Survey{}, err
	}
	if err := s.planFilters(req.Filters, nil); err != nil {
		return Survey{}, err
	}
	sh := s.shape(root)
	return Survey{Scored: scores(sh.root), Chosen: len(s.capped) > 0 || s.fs != nil && len(s.fs.capped) > 0}, nil
}

// Scoring is the part of the statistics of a request that its scores are made with: what Search gives with KeepStats over an index whose
// statistics they are. Of a prefix they have the words that score. The request needs Stats; of it only Query, DefaultFields, Lenient
// and Stats are read.
func Scoring(ctx context.Context, sch *schema.Schema, an Analyzers, req Request) (*score.Stats, error) {
	s := newSearcher(ctx, nil, sch, an, &req)
	defer s.release()
	if _, err := s.plan(req.Query); err != nil {
		return nil, err
	}
	out := &score.Stats{Docs: req.Stats.Docs, Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
	for f := range s.params {
		name := s.schema.Fields[f].Name
		if st, ok := req.Stats.Fields[name]; s.params[f].ready && (ok || f < s.known) {
			out.Fields[name] = st
		}
	}
	keep := func(field int, text string) {
		t := score.Term{Field: s.schema.Fields[field].Name, Text: text}
		if df := req.Stats.DF[t]; df > 0 {
			out.DF[t] = df
		}
	}
	for i := range s.terms {
		keep(s.terms[i].field, string(s.terms[i].bytes))
	}
	for _, n := range s.prefixes {
		words, err := s.scoring(n, nil)
		if err != nil {
			return nil, err
		}
		for w := range words {
			keep(n.field, w)
		}
	}
	return out, nil
}

// DefaultFields names the fields that terms without a field search where nobody says: those of the schema, else every indexed text
// field but the key, else the key. They stand in the order in which their scores add up.
func DefaultFields(sch *schema.Schema) []string {
	fields := []int{}
	if sch.DefaultFields == nil {
		fields = indexedText(sch, len(sch.Fields))
	}
	for _, name := range sch.DefaultFields {
		if f, ok := sch.Lookup(name); ok {
			fields = append(fields, f)
		}
	}
	slices.Sort(fields)
	names := make([]string, 0, len(fields))
	for _, f := range slices.Compact(fields) {
		names = append(names, sch.Fields[f].Name)
	}
	return names
}

// NewAnalyzers returns the analyzers of the text fields of a schema.
func NewAnalyzers(sch *schema.Schema) (Analyzers, error) {
	list := make([]*text.Analyzer, len(sch.Fields))
	for k := range sch.Fields {
		if f := &sch.Fields[k]; f.Type == schema.Text {
			a, err := text.Lookup(f.Tokenizer)
			if err != nil {
				return nil, fmt.Errorf("analyzer of field %q: %w", f.Name, err)
			}
			list[k] = a
		}
	}
	return func(field int) *text.Analyzer { return list[field] }, nil
}
