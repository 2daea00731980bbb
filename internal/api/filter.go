package api

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/query"
)

// filterText is a filter as it was given: a query string, or a tree made of an object.
type filterText struct {
	text  string
	node  query.Node
	texts []*queryText // query strings within node

	// The parts and the exact values within node so far, which are counted before they are made: a query with more is refused anyway,
	// and a few bytes of JSON make many of them.
	parts, values int
	item          int // the place of the filter in the list
}

// The most of them that a query may have, as package query has it.
const (
	maxFilterParts  = 256
	maxFilterValues = 65_536
)

// more counts another part, or value; it is a problem if that is one too many.
func (f *filterText) more(n *int, what string, most int) *Problem {
	if *n++; *n > most {
		return QueryProblem("filter", f.item, &query.LimitError{What: what, Got: *n, Limit: most, Position: -1})
	}
	return nil
}

// queryText is a query string within a filter object. It can be read only when the default operator is known.
type queryText struct {
	text string
	into *query.Bool // its Filter is the query
}

// maxFilterDepth bounds the nesting of filter objects; it is the depth that a query may have.
const maxFilterDepth = 32

func (p *parsing) setFilter(v value) *Problem {
	tooMany := func(n int) *Problem {
		if n <= MaxFilters {
			return nil
		}
		return badParam("filter", fmt.Sprintf("there are more than %d", MaxFilters)).Within(MaxFilters)
	}
	if v.raw == nil {
		for _, s := range v.texts {
			p.filters = append(p.filters, filterText{text: s})
		}
		return tooMany(len(p.filters))
	}
	one := func(raw jsontext.Value) *Problem {
		if raw.Kind() == '"' {
			p.filters = append(p.filters, filterText{text: unquote(raw)})
		} else {
			f := filterText{item: len(p.filters)}
			var prob *Problem
			if f.node, prob = f.object(raw, 1); prob != nil {
				return prob
			}
			p.filters = append(p.filters, f)
		}
		return tooMany(len(p.filters))
	}
	if v.raw.Kind() != '[' {
		return one(v.raw)
	}
	return eachItem("filter", v.raw, func(_ int, raw jsontext.Value) *Problem { return one(raw) })
}

// object reads one filter object: an object with one member, whose name says the kind.
func (f *filterText) object(raw jsontext.Value, depth int) (query.Node, *Problem) {
	if depth > maxFilterDepth {
		return nil, &Problem{Code: QueryLimit, Field: "filter", Detail: fmt.Sprintf("filter: it is nested more than %d levels deep", maxFilterDepth), Limit: maxFilterDepth, HasLimit: true}
	}
	if prob := f.more(&f.parts, query.LimitNodes, maxFilterParts); prob != nil {
		return nil, prob
	}
	if raw.Kind() == '"' {
		return f.query(unquote(raw)), nil
	}
	if raw.Kind() != '{' {
		return nil, badParam("filter", "a filter is a query string or an object")
	}
	var node query.Node
	prob := eachMember("filter", raw, func(kind string, v jsontext.Value) *Problem {
		if node != nil {
			return badParam("filter", "a filter object has one member, which names its kind; several filters go into an array")
		}
		var prob *Problem
		switch kind {
		case "term":
			node, prob = filterTerm(v)
		case "terms":
			node, prob = f.terms(v)
		case "range":
			node, prob = filterRange(v)
		case "exists":
			var field string
			field, _, prob = fieldAnd(v, "exists", "")
			node = &query.Exists{Field: field}
		case "prefix":
			node, prob = filterPrefix(v)
		case "bool":
			node, prob = f.boolean(v, depth)
		case "query":
			var text string
			if text, prob = stringOf("filter", "query", v); prob == nil {
				node = f.query(text)
			}
		default:
			return &Problem{Code: UnknownParameter, Field: "filter", Detail: fmt.Sprintf("filter: there is no kind %q; it is term, terms, range, exists, prefix, bool or query", Clip(kind))}
		}
		return prob
	})
	if prob == nil && node == nil {
		prob = badParam("filter", "the object is empty; it has one member, which names the kind")
	}
	return node, prob
}

func (f *filterText) query(text string) query.Node {
	into := &query.Bool{}
	f.texts = append(f.texts, &queryText{text, into})
	return into
}

// fieldAnd reads an object with a field and, if named, one member more.
func fieldAnd(raw jsontext.Value, kind, other string) (field string, more jsontext.Value, prob *Problem) {
	prob = eachMember("filter", raw, func(member string, v jsontext.Value) *Problem {
		var prob *Problem
		switch {
		case member == "field":
			field, prob = stringOf("filter", kind+".field", v)
		case member == other && other != "":
			more = v.Clone()
		default:
			return unknownMember("filter", member, kind)
		}
		return prob
	})
	switch {
	case prob != nil:
	case field == "":
		prob = badParam("filter", kind+" names no field")
	case other != "" && more == nil:
		prob = badParam("filter", kind+" has no "+other)
	}
	return field, more, prob
}

func filterTerm(raw jsontext.Value) (query.Node, *Problem) {
	field, v, prob := fieldAnd(raw, "term", "value")
	if prob != nil {
		return nil, prob
	}
	text, prob := scalarOf("filter", "term.value", v)
	return &query.Terms{Field: field, Values: []string{text}}, prob
}

func (f *filterText) terms(raw jsontext.Value) (query.Node, *Problem) {
	field, list, prob := fieldAnd(raw, "terms", "values")
	if prob != nil {
		return nil, prob
	}
	n := &query.Terms{Field: field, Values: []string{}}
	prob = eachItem("filter", list, func(_ int, v jsontext.Value) *Problem {
		if prob := f.more(&f.values, query.LimitValues, maxFilterValues); prob != nil {
			return prob
		}
		text, prob := scalarOf("filter", "each of terms.values", v)
		n.Values = append(n.Values, text)
		return prob
	})
	return n, prob
}

func filterPrefix(raw jsontext.Value) (query.Node, *Problem) {
	field, v, prob := fieldAnd(raw, "prefix", "value")
	if prob != nil {
		return nil, prob
	}
	text, prob := stringOf("filter", "prefix.value", v)
	return &query.Prefix{Field: field, Text: text}, prob
}

func filterRange(raw jsontext.Value) (query.Node, *Problem) {
	n := &query.Range{}
	bound := func(at **query.Bound, member string, exclusive bool, v jsontext.Value) *Problem {
		if *at != nil {
			return badParam("filter", "range has two bounds on the same side")
		}
		text, prob := scalarOf("filter", "range."+member, v)
		*at = &query.Bound{Value: text, Exclusive: exclusive}
		return prob
	}
	prob := eachMember("filter", raw, func(member string, v jsontext.Value) *Problem {
		var prob *Problem
		switch member {
		case "field":
			n.Field, prob = stringOf("filter", "range.field", v)
		case "gte", "gt":
			prob = bound(&n.Min, member, member == "gt", v)
		case "lte", "lt":
			prob = bound(&n.Max, member, member == "lt", v)
		default:
			return unknownMember("filter", member, "range")
		}
		return prob
	})
	switch {
	case prob != nil:
	case n.Field == "":
		prob = badParam("filter", "range names no field")
	case n.Min == nil && n.Max == nil:
		prob = badParam("filter", "range has none of gte, gt, lte, lt")
	}
	return n, prob
}

func (f *filterText) boolean(raw jsontext.Value, depth int) (query.Node, *Problem) {
	n := &query.Bool{}
	prob := eachMember("filter", raw, func(member string, v jsontext.Value) *Problem {
		var into *[]query.Node
		switch member {
		case "must":
			into = &n.Must
		case "should":
			into = &n.Should
		case "must_not":
			into = &n.MustNot
		default:
			return unknownMember("filter", member, "bool")
		}
		add := func(_ int, v jsontext.Value) *Problem {
			child, prob := f.object(v, depth+1)
			*into = append(*into, child)
			return prob
		}
		if v.Kind() != '[' {
			return add(0, v)
		}
		return eachItem("filter", v, add)
	})
	if prob == nil && len(n.Must)+len(n.Should)+len(n.MustNot) == 0 {
		prob = badParam("filter", "bool has no clause in must, should or must_not")
	}
	return n, prob
}

// finishFilters reads the query strings of the filters and checks the size of each.
func (p *parsing) finishFilters() *Problem {
	if len(p.filters) == 0 {
		return nil
	}
	p.FilterPlaces = map[query.Node]int{}
	for i, f := range p.filters {
		read := func(text string) (query.Node, *Problem) {
			root, err := query.Parse(text, query.ParseOptions{DefaultOp: p.DefaultOp, Positions: p.FilterPlaces})
			if err != nil {
				return nil, QueryProblem("filter", i, err)
			}
			return root, nil
		}
		if f.node == nil {
			var prob *Problem
			if f.node, prob = read(f.text); prob != nil {
				return prob
			}
		}
		for _, t := range f.texts {
			root, prob := read(t.text)
			if prob != nil {
				return prob
			}
			t.into.Filter = []query.Node{root}
		}
		if err := query.Check(f.node, query.Limits{}); err != nil {
			return QueryProblem("filter", i, err)
		}
		p.Filters = append(p.Filters, f.node)
	}
	return nil
}

// QueryProblem is the problem of a query that cannot be read or is too large: a *query.SyntaxError, *query.LimitError or an error that
// wraps query.ErrMalformed. item is the place in the parameter's list from 0, or negative if it has none. It is nil for other errors.
func QueryProblem(param string, item int, err error) *Problem {
	where := ""
	if item >= 0 {
		where = param + " " + strconv.Itoa(item+1) + ": "
	}
	if e, ok := errors.AsType[*query.SyntaxError](err); ok {
		p := NewProblem(InvalidQuery, fmt.Sprintf("%sat byte %d: expected %s, found %s", where, e.Position, e.Expected, Clip(e.Found))).On(param).At(e.Position)
		p.Expected = e.Expected
		return p
	}
	if e, ok := errors.AsType[*query.LimitError](err); ok {
		p := NewProblem(QueryLimit, where+queryLimit(e)).On(param).Within(int64(e.Limit))
		if e.Position >= 0 {
			p.At(e.Position)
		}
		return p
	}
	if errors.Is(err, query.ErrMalformed) {
		return NewProblem(InvalidQuery, where+"a part of the query is missing").On(param)
	}
	return nil
}

// queryLimit says in words which limit a query breaks.
func queryLimit(e *query.LimitError) string {
	has := "has %d " + e.What
	switch e.What {
	case query.LimitDepth:
		has = "is nested %d levels deep"
	case query.LimitNodes:
		has = "has %d parts"
	case query.LimitClauses:
		has = "has %d clauses"
	case query.LimitText:
		has = "has %d bytes of text"
	case query.LimitValues:
		has = "has %d exact values"
	case query.LimitBytes:
		has = "has %d bytes of exact values"
	}
	least := "" // counting stops at the limit, but for a text, whose length is known
	if e.What != query.LimitText && e.What != query.LimitBytes {
		least = " or more"
	}
	return fmt.Sprintf("the query "+has+"%s; at most %d are allowed", e.Got, least, e.Limit)
}
