package framed

import (
	"fmt"
	"math"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/shard/exec"
)

// queryLimits are those of a query string on the wire: the exact values of a tree count as text in it, and every byte may be
// escaped. What the tree may hold is checked when it is read.
var queryLimits = query.Limits{TextBytes: 16 << 20}

// parseQuery reads a query string of a member. item is its place in a list, or negative.
func parseQuery(name string, item int, text string, op query.Op) (query.Node, *api.Problem) {
	n, err := query.Parse(text, query.ParseOptions{DefaultOp: op, Limits: queryLimits})
	if err == nil {
		err = query.Check(n, query.Limits{})
	}
	if err == nil {
		return n, nil
	}
	if prob := api.QueryProblem(name, item, err); prob != nil {
		return nil, prob
	}
	return nil, invalid(name, "it cannot be read")
}

// query reads the member query; nil if it is not there.
func (m *message) query(op query.Op) query.Node {
	if !m.has("query") || m.prob != nil {
		return nil
	}
	text := m.text("query")
	if m.prob != nil {
		return nil
	}
	n, prob := parseQuery("query", -1, text, op)
	m.failed(prob)
	return n
}

// filterWork bounds the bytes of all filter objects, each times its depth: the parser looks at what is in an object once for each that
// it stands in. A list of 4 MiB, which is as long as lists may be, may stand 16 deep.
const filterWork = 64 << 20

// filters reads the member filters: each is a query string, or an object as filter of a search over HTTP has it.
func (m *message) filters(op query.Op) []query.Node {
	m.fits(filtersMember, math.MaxInt)
	var list []query.Node
	work := 0
	m.list(filtersMember, "query strings and objects", exec.MaxFilters, func(s *scanner) {
		value, is := s.shaped()
		raw := jsontext.Value(value)
		switch raw.Kind() {
		case '"':
			n, prob := parseQuery(filtersMember, len(list), string(unquote(raw)), op)
			m.failed(prob)
			list = append(list, n)
		case '{':
			if work += len(raw) * is.Depth; work > filterWork {
				m.failed(api.NewProblem(api.QueryLimit, fmt.Sprintf("filters: they are too long for how deep they are nested: bytes times levels are more than %d", filterWork)).On(filtersMember).Within(filterWork))
				return
			}
			n, prob := api.ParseFilter(filtersMember, &agg.Expr{Text: string(raw), JSON: true}, op)
			m.failed(prob)
			list = append(list, n)
		default:
			m.fail(filtersMember, "each is a query string or an object")
		}
	})
	return list
}

// query writes the member query. explained says that the tree is to be told apart from others with the same meaning.
func (w *writer) query(n query.Node, explained bool) {
	if n == nil {
		return
	}
	text, prob := queryText("q", -1, n, explained)
	if prob != nil {
		w.fail(prob)
		return
	}
	w.text("query", text)
}

// filters writes the member filters.
func (w *writer) filters(list []query.Node) {
	if len(list) == 0 {
		return
	}
	if len(list) > exec.MaxFilters {
		w.fail(api.NewProblem(api.QueryLimit, fmt.Sprintf("filter: a search takes at most %d filters", exec.MaxFilters)).On("filter").Within(exec.MaxFilters))
		return
	}
	w.name(filtersMember)
	w.b = append(w.b, '[')
	for i, n := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		text, prob := queryText("filter", i, n, false)
		if prob != nil {
			prob = w.filterObject(i, n, prob)
		} else {
			w.quote(filtersMember, text)
		}
		if prob != nil {
			w.fail(prob)
			return
		}
	}
	w.b = append(w.b, ']')
}

// queryText is the text of a tree, which reads back as a tree with the same meaning; as the same tree, if that is wanted. A tree that
// has none is a problem. name is that of the parameter in problems: the same as where no text is in between.
func queryText(name string, item int, n query.Node, identical bool) (string, *api.Problem) {
	if err := query.Check(n, query.Limits{}); err != nil {
		if prob := api.QueryProblem(name, item, err); prob != nil {
			return "", prob
		}
		return "", invalid(name, "it cannot be written")
	}
	text := n.String()
	back, err := query.Parse(text, query.ParseOptions{Limits: queryLimits})
	if err != nil || !alike(n, back, identical) {
		where := name
		if item >= 0 {
			where = fmt.Sprintf("%s %d", name, item+1)
		}
		return "", api.NewProblem(api.InvalidQuery, where+": the query has parts that query strings cannot express, so that it cannot travel as framed JSON").On(name)
	}
	return text, nil
}

// same tells whether two trees mean the same: they are equal but for lists of one, which mean their only element.
func same(a, b query.Node) bool { return alike(a, b, false) }

// alike is same, or tells whether two trees are equal in everything.
func alike(a, b query.Node, identical bool) bool {
	if !identical {
		a, b = only(a), only(b)
	}
	switch a := a.(type) {
	case *query.Term:
		b, ok := b.(*query.Term)
		return ok && *a == *b
	case *query.Phrase:
		b, ok := b.(*query.Phrase)
		return ok && *a == *b
	case *query.Prefix:
		b, ok := b.(*query.Prefix)
		return ok && *a == *b
	case *query.Range:
		b, ok := b.(*query.Range)
		return ok && a.Field == b.Field && sameBound(a.Min, b.Min) && sameBound(a.Max, b.Max)
	case *query.Terms:
		b, ok := b.(*query.Terms)
		return ok && a.Field == b.Field && slices.Equal(a.Values, b.Values)
	case *query.Exists:
		b, ok := b.(*query.Exists)
		return ok && *a == *b
	case *query.All:
		_, ok := b.(*query.All)
		return ok
	case *query.Boost:
		b, ok := b.(*query.Boost)
		return ok && a.Factor == b.Factor && alike(a.Query, b.Query, identical)
	case *query.Bool:
		b, ok := b.(*query.Bool)
		return ok && allAlike(a.Must, b.Must, identical) && allAlike(a.Should, b.Should, identical) &&
			allAlike(a.MustNot, b.MustNot, identical) && len(a.Filter) == 0 && len(b.Filter) == 0
	}
	return false // Match
}

func allAlike(a, b []query.Node, identical bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !alike(a[i], b[i], identical) {
			return false
		}
	}
	return true
}

func sameBound(a, b *query.Bound) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// only is what a list of one means.
func only(n query.Node) query.Node {
	for {
		b, ok := n.(*query.Bool)
		if !ok || len(b.MustNot)+len(b.Filter) > 0 || len(b.Must)+len(b.Should) != 1 {
			return n
		}
		if len(b.Must) == 1 {
			n = b.Must[0]
		} else {
			n = b.Should[0]
		}
	}
}

// filterObject writes a filter that has no text as an object. A filter scores nothing, so that filters inside of it are clauses
// that have to match, and boosts are nothing. unable is the problem of parts that have no form at all.
func (w *writer) filterObject(item int, n query.Node, unable *api.Problem) *api.Problem {
	switch n := n.(type) {
	case *query.Boost:
		return w.filterObject(item, n.Query, unable)
	case *query.Terms:
		w.b = append(w.b, `{"terms":{"field":`...)
		w.quote(filtersMember, n.Field)
		w.b = append(w.b, `,"values":[`...)
		for i, v := range n.Values {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.quote(filtersMember, v)
		}
		w.b = append(w.b, "]}}"...)
		return nil
	case *query.Bool:
		must := slices.Concat(n.Must, n.Filter)
		if len(must)+len(n.Should)+len(n.MustNot) == 0 {
			return unable
		}
		w.b = append(w.b, `{"bool":{`...)
		sep := ""
		for _, l := range []struct {
			name string
			list []query.Node
		}{{"must", must}, {"should", n.Should}, {"must_not", n.MustNot}} {
			if len(l.list) == 0 {
				continue
			}
			w.b = append(w.b, sep...)
			sep = ","
			w.b = append(w.b, '"')
			w.b = append(w.b, l.name...)
			w.b = append(w.b, `":[`...)
			for i, c := range l.list {
				if i > 0 {
					w.b = append(w.b, ',')
				}
				if prob := w.filterObject(item, c, unable); prob != nil {
					return prob
				}
			}
			w.b = append(w.b, ']')
		}
		w.b = append(w.b, "}}"...)
		return nil
	}
	text, prob := queryText("filter", item, n, false)
	if prob != nil {
		return unable
	}
	w.b = append(w.b, `{"query":`...)
	w.quote(filtersMember, text)
	w.b = append(w.b, '}')
	return nil
}
