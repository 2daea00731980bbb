// Package bound holds a search request against the schema of an index and renders what is found. It knows no snapshot and no shard,
// so that whoever answers a search, over one index or over many shards of one, refuses the same requests with the same problems,
// and answers in the same words.
package bound

import (
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Stages of a search, in order. Their times add up to the whole.
const (
	StageParse      = "parse"      // reading the request and the query string
	StageQueue      = "queue"      // waiting for a place
	StageStatistics = "statistics" // only with profile=true, else part of search
	StageSearch     = "search"     // the lexical ranking
	StageKNN        = "knn"        // the vector ranking
	StageFuse       = "fuse"       // making one ranking of two
	StageAggregate  = "aggregate"  // facets and aggregations
	StageFetch      = "fetch"      // reading sources
	StageHighlight  = "highlight"
	StageExplain    = "explain"
	StageRender     = "render"
)

// Stages are all stages of a search.
func Stages() []string {
	return []string{
		StageParse, StageQueue, StageStatistics, StageSearch, StageKNN, StageFuse, StageAggregate, StageFetch, StageHighlight, StageExplain, StageRender,
	}
}

// Query is the query string of a request, parsed.
type Query struct {
	Root       query.Node
	Everything bool // Root is every document: nothing is scored

	places, filterPlaces map[query.Node]int // byte offset of parts of the query and of filters, each in its text
}

// Parse reads the query of a request. Errors are those of query.Parse; api.QueryProblem knows them.
func Parse(req *api.SearchRequest) (*Query, error) {
	q := &Query{places: map[query.Node]int{}, filterPlaces: req.FilterPlaces}
	var err error
	if q.Root, err = query.Parse(req.Q, query.ParseOptions{DefaultOp: req.DefaultOp, Positions: q.places}); err != nil {
		return nil, err
	}
	_, q.Everything = q.Root.(*query.All)
	return q, nil
}

// Placed adds to the problem of an error the place in the query or filter of the part that the index refuses, and returns it.
func (q *Query) Placed(p *api.Problem, err error) *api.Problem {
	if e, ok := errors.AsType[*exec.QueryError](err); ok && e.Node != nil {
		if pos, ok := q.places[e.Node]; ok {
			p.At(pos)
		} else if pos, ok := q.filterPlaces[e.Node]; ok {
			p.At(pos)
			p.Detail = "filter: " + p.Detail // the place is not one of q
		}
	}
	return p
}

// Options say what a search may do.
type Options struct {
	// LocalStats lets the cursor of a scored order come without statistics: the scores are those that every shard makes with its own.
	LocalStats bool
}

// Bound is what a request comes to with a schema.
type Bound struct {
	Pick   Selector
	Sort   Sort
	Marked []string // fields to highlight
	Scored bool     // the order depends on scores: see Sort.Scored
	Page   Page     // zero for a search with vectors, whose pages are cut by offset
}

// MaxExplained bounds the hits of a search with explain: a tree is much longer than a hit.
const MaxExplained = 100

// Bind holds a request against the schema. Facets and aggregations are bound by BindAggregations.
func Bind(req *api.SearchRequest, q *Query, sch *schema.Schema, o Options) (*Bound, *api.Problem) {
	if prob := CheckDefaultFields(sch, req.DefaultFields); prob != nil {
		return nil, prob
	}
	b := &Bound{}
	var prob *api.Problem
	if b.Pick, prob = SelectorOf(sch, req.Fields); prob != nil {
		return nil, prob
	}
	if b.Sort, prob = BindSort(sch, req.Sort); prob != nil {
		return nil, prob
	}
	if b.Marked, prob = bindHighlight(sch, req.Highlight); prob != nil {
		return nil, prob
	}
	if req.KNN != nil {
		if prob := CheckVector(sch, req.KNN); prob != nil {
			return nil, prob
		}
	}
	if most := MaxExplained; req.Explain && req.Limit > most {
		return nil, (&api.Problem{Code: api.InvalidParameter, Field: "limit", Detail: fmt.Sprintf("limit: it is at most %d with explain", most)}).Within(int64(most))
	}
	b.Scored = b.Sort.Scored(q)
	if b.Page, prob = BindPage(req, b.Sort, b.Scored, o.LocalStats); prob != nil {
		return nil, prob
	}
	return b, nil
}

// CheckDefaultFields checks the fields that a call wants searched by words without a field.
func CheckDefaultFields(sch *schema.Schema, fields []string) *api.Problem {
	for _, name := range fields {
		f, ok := sch.Lookup(name)
		if !ok {
			return UnknownField(name, "default_fields")
		}
		if sch.Fields[f].Type != schema.Text || !sch.Fields[f].Indexed {
			return &api.Problem{Code: api.FieldNotSearchable, Field: name, Detail: fmt.Sprintf("default_fields: field %q has no text index", name)}
		}
	}
	return nil
}

// CheckVector compares the length of a query vector with that of the field; whatever else there is to its vectors, package knn knows.
func CheckVector(sch *schema.Schema, q *api.KNN) *api.Problem {
	f, ok := sch.Lookup(q.Field)
	if !ok {
		return UnknownField(q.Field, "knn")
	}
	fd := &sch.Fields[f]
	have, what := len(q.Dense), "numbers"
	switch {
	case fd.Type == schema.DenseVector && q.Dense != nil:
	case fd.Type == schema.BinaryVector && q.Bits != nil:
		have, what = 8*len(q.Bits), "bits"
	default:
		return nil
	}
	if have == fd.Dim {
		return nil
	}
	return (&api.Problem{Code: api.InvalidVector, Field: fd.Name, Detail: fmt.Sprintf("knn: the vector has %d %s, field %q has %d", have, what, fd.Name, fd.Dim)}).Within(int64(fd.Dim))
}

// UnknownField is the problem of a field in a parameter that the index does not have.
func UnknownField(name, param string) *api.Problem {
	name = api.Clip(name)
	return &api.Problem{Code: api.UnknownField, Field: name, Detail: fmt.Sprintf("%s: the index has no field %q", param, name)}
}
