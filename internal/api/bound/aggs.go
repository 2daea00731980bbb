package bound

import (
	"errors"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/schema"
)

// Parameters of a search that ask for aggregations.
const (
	facetsParam = "facets"
	aggsParam   = "aggs"
)

// Aggregations is one list of aggregations of a search, held against a schema.
type Aggregations struct {
	Param string // of the search that asks for them: facets or aggs
	Specs []agg.Spec
	Plan  *agg.Plan
}

// BindAggregations holds the facets and the aggregations of a request against a schema; nil for a list that is not asked for. Errors
// are *api.Problem of the parameter, or others of package agg.
func BindAggregations(req *api.SearchRequest, sch *schema.Schema, o agg.Options) (facets, aggs *Aggregations, err error) {
	if len(req.Facets) > 0 {
		specs, err := agg.Facets(req.Facets)
		if err != nil {
			return nil, nil, AggError(facetsParam, err)
		}
		if facets, err = bindAggs(facetsParam, specs, sch, o); err != nil {
			return nil, nil, err
		}
	}
	if len(req.Aggs) > 0 {
		if aggs, err = BindAggs(req.Aggs, sch, o); err != nil {
			return nil, nil, err
		}
	}
	return facets, aggs, nil
}

// BindAggs holds the aggregations of the parameter aggs against a schema. Errors are as those of BindAggregations.
func BindAggs(specs []agg.Spec, sch *schema.Schema, o agg.Options) (*Aggregations, error) {
	return bindAggs(aggsParam, specs, sch, o)
}

func bindAggs(param string, specs []agg.Spec, sch *schema.Schema, o agg.Options) (*Aggregations, error) {
	plan, err := agg.Bind(specs, sch, o)
	if err != nil {
		return nil, AggError(param, err)
	}
	return &Aggregations{Param: param, Specs: specs, Plan: plan}, nil
}

// Facets tells whether these are the facets of a search.
func (a *Aggregations) Facets() bool { return a.Param == facetsParam }

// AggError is an error of package agg as a problem with a parameter, if it is one.
func AggError(param string, err error) error {
	if prob := api.AggProblem(param, err); prob != nil {
		return prob
	}
	return err
}

// Printing bounds the rendering of aggregations.
type Printing struct {
	Most   int64 // bytes that facets and aggregations may have in the reply
	Before int   // bytes of them that were rendered already
	// Room is called as memory is needed, with the bytes of all answers so far, Before among them, and of what is held besides. Its
	// errors end the rendering.
	Room func(answers, besides int64) error
}

// Print renders the answers. An error is *api.Problem when they are too long, or one of Room.
func (a *Aggregations) Print(r agg.Results, o Printing) ([]byte, error) {
	printed := agg.Results.AppendJSON
	if a.Facets() {
		printed = agg.Results.AppendFacets
	}
	out, err := printed(r, nil, agg.Printing{
		Limit: max(1, int(o.Most)-o.Before), // 0 would be no limit
		Check: func(answers, besides int) error { return o.Room(int64(o.Before+answers), int64(besides)) },
	})
	if errors.Is(err, agg.ErrTooLong) {
		return nil, api.NewProblem(api.ReplyTooLarge, a.Param+": facets and aggregations are longer than the reply may be; ask for fewer buckets").On(a.Param).Within(o.Most)
	}
	return out, err
}
