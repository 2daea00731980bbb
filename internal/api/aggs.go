package api

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/query"
)

func (p *parsing) setAggs(v value) *Problem {
	var err error
	switch {
	case v.raw == nil:
		p.Aggs, err = agg.Parse(v.texts[0])
	case v.raw.Kind() == '"':
		p.Aggs, err = agg.Parse(unquote(v.raw))
	default:
		p.Aggs, err = agg.ParseJSON(bytes.Clone(v.raw))
	}
	if err == nil {
		return nil
	}
	prob := AggProblem("aggs", err)
	if prob == nil {
		return badParam("aggs", "it cannot be read")
	}
	if v.raw.Kind() == '"' {
		prob.HasPosition = false // it counts within the string, not within the body
	}
	return prob
}

// AggProblem is the problem of an *agg.SpecError in a parameter. It is nil for other errors.
func AggProblem(param string, err error) *Problem {
	e, ok := errors.AsType[*agg.SpecError](err)
	if !ok {
		return nil
	}
	p := &Problem{Code: Code(e.Code), Field: Clip(e.Field), Detail: param + ": " + ClipDetail(e.Error())}
	if _, known := Codes[p.Code]; !known {
		p.Code = InvalidAggregation
	}
	if p.Field == "" {
		p.Field = param
	}
	if e.Limit != 0 {
		p.Within(e.Limit)
	}
	if e.Position >= 0 {
		p.At(e.Position)
	}
	return p
}

// ParseFilter reads the filter of an aggregation.
func ParseFilter(param string, e *agg.Expr, op query.Op) (query.Node, *Problem) {
	p := &parsing{SearchRequest: &SearchRequest{DefaultOp: op}}
	v := value{texts: []string{e.Text}}
	if e.JSON {
		v = value{raw: jsontext.Value(e.Text)}
	}
	prob := p.setFilter(v)
	if prob == nil {
		prob = p.finishFilters()
	}
	switch {
	case prob != nil:
		prob.Field = param
		return nil, prob
	case len(p.Filters) == 0:
		return nil, badParam(param, "a filter is an empty array")
	case len(p.Filters) == 1:
		return p.Filters[0], nil
	}
	return &query.Bool{Filter: p.Filters}, nil
}
