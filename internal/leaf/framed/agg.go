package framed

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
)

const opAgg = "agg"

var aggMembers = viewed("query", "specs", "specs_op", filtersMember, "values", "stats", fieldsMember, defaultOp)

// appendAggRequest writes a request for aggregations. The query goes as it is whatever the operator of the specs, which therefore
// has a member of its own.
func appendAggRequest(w *writer, r *leaf.AggregateRequest) {
	w.view(&r.View)
	w.query(r.Query, false)
	w.filters(r.Filters)
	w.defaultFields(r.DefaultFields)
	if len(r.Specs) > 0 {
		w.name("specs")
		from := len(w.b)
		w.b = agg.AppendSpecs(w.b, r.Specs)
		if !jsontext.Value(w.b[from:]).IsValid() {
			w.fail(api.NewProblem(api.InvalidAggregation, "specs: an aggregation has a filter or a name that is no JSON").On("specs"))
		}
	}
	if r.DefaultOp == query.And {
		w.text("specs_op", "and")
	}
	if len(r.Values) > 0 {
		w.texts("values", r.Values, leaf.MaxValues)
	}
	w.stats(r.Stats)
}

// readAggRequest reads it.
func readAggRequest(m *message) *leaf.AggregateRequest {
	r := &leaf.AggregateRequest{Index: m.index}
	m.view(&r.View)
	op := m.operator(defaultOp, query.Or)
	r.DefaultOp = m.operator("specs_op", op)
	r.Query = m.query(op)
	r.Filters = m.filters(op)
	r.DefaultFields = m.defaultFields()
	r.Specs = m.specs()
	if list := m.texts("values", "fields", leaf.MaxValues); len(list) > 0 {
		r.Values = list
	}
	r.Stats = m.stats()
	return r
}

// specs reads the member specs: what aggs is in the body of a search over HTTP.
func (m *message) specs() []agg.Spec {
	m.fits("specs", 6*agg.MaxSourceBytes) // however much of a string is escaped; the parsers say the rest
	raw := m.get("specs")
	if raw == nil || m.prob != nil {
		return nil
	}
	var specs []agg.Spec
	var err error
	switch raw.Kind() {
	case '"':
		specs, err = agg.Parse(m.text("specs"))
	case '{':
		specs, err = agg.ParseJSON(raw)
	default:
		m.fail("specs", "it is an object of aggregations, or a list of them in a string")
	}
	if err != nil {
		prob := api.AggProblem("specs", err)
		if prob == nil {
			prob = invalid("specs", "it cannot be read")
		}
		m.failed(prob)
	}
	return specs
}

// appendAggReply appends the reply to a request for aggregations.
func appendAggReply(b []byte, r *leaf.AggregateReply) []byte {
	b = append(b, `{"ok":true,"aggs":`...)
	if r.State != nil {
		b = r.State.AppendPartials(b)
	} else {
		b = append(b, "{}"...)
	}
	b = append(b, `,"values":{`...)
	eachField(r.Values, func(i int, v *leaf.FieldValues) {
		if i > 0 {
			b = append(b, ',')
		}
		b = api.AppendString(b, v.Field)
		b = append(b, ':')
		if v.Type == schema.Text || v.Type == 0 {
			b = api.AppendStrings(b, v.Texts)
			return
		}
		b = append(b, '[')
		for k, n := range v.Numbers {
			if k > 0 {
				b = append(b, ',')
			}
			b = appendNumber(b, v.Type, n)
		}
		b = append(b, ']')
	})
	b = append(b, `},"types":{`...)
	eachField(r.Values, func(i int, v *leaf.FieldValues) {
		if i > 0 {
			b = append(b, ',')
		}
		b = api.AppendString(b, v.Field)
		b = append(b, ':')
		if v.Type == 0 {
			b = append(b, "null"...)
		} else {
			b = api.AppendString(b, v.Type.String())
		}
	})
	b = append(b, `},"docs":`...)
	b = strconv.AppendUint(b, r.Docs, 10)
	b = append(b, `,"matched":`...)
	b = strconv.AppendUint(b, r.Matched, 10)
	return append(appendMeta(b, &r.Meta), '}')
}

// eachField calls fn for each of some fields once, also if it was asked for twice.
func eachField(list []leaf.FieldValues, fn func(i int, v *leaf.FieldValues)) {
	n := 0
next:
	for i := range list {
		for k := range list[:i] {
			if list[k].Field == list[i].Field {
				continue next
			}
		}
		fn(n, &list[i])
		n++
	}
}

// valueTypes are the types that values can have.
var valueTypes = map[string]schema.Type{}

func init() {
	for _, t := range []schema.Type{schema.Text, schema.U64, schema.I64, schema.F64, schema.Date} {
		valueTypes[t.String()] = t
	}
}

// readAggReply reads the reply to a request that appendAggRequest wrote. limits bound the states.
func readAggReply(b []byte, r *leaf.AggregateRequest, limits agg.Options) (*leaf.AggregateReply, *api.Problem, error) {
	out := &leaf.AggregateReply{}
	s := newScanner(b, false)
	var aggs []byte
	values := map[string][]byte{}
	types := map[string]schema.Type{}
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "aggs":
			aggs = s.value()
		case "values":
			s.object(func(name []byte) { values[string(name)] = s.value() })
		case "types":
			s.object(func(name []byte) {
				if s.null() {
					return
				}
				t, ok := valueTypes[s.str()]
				if !ok {
					s.fail("a type that is not known")
				}
				types[string(name)] = t
			})
		case "docs":
			out.Docs = s.u64()
		case "matched":
			out.Matched = s.u64()
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	}, "docs", "matched")
	if prob != nil && prob.Field == "specs" {
		// As where no text is in between.
		prob.Field, prob.Detail = "aggs", "aggs: "+strings.TrimPrefix(prob.Detail, "specs: ")
		prob.HasPosition, prob.Position = false, 0
	}
	if prob != nil || err != nil {
		return nil, prob, err
	}
	if aggs == nil {
		return nil, nil, fmt.Errorf("%w: it has no aggs", errMalformed)
	}
	if out.State, err = agg.DecodePartials(r.Specs, limits, aggs); err != nil {
		return nil, api.AggProblem("specs", err), fmt.Errorf("%w: %w", errMalformed, err)
	}
	raws := 0
	for _, field := range r.Values {
		v := leaf.FieldValues{Field: field, Type: types[field]}
		raw, ok := values[field]
		if !ok {
			return nil, nil, fmt.Errorf("%w: it has no values of a field that was asked for", errMalformed)
		}
		s := scanner{b: raw}
		s.expect('[')
		for first := true; s.next(&first, ']'); {
			if raws++; raws > leaf.MaxRawCount*len(r.Values) {
				s.fail("there are too many values")
				break
			}
			switch v.Type {
			case schema.Text:
				v.Texts = append(v.Texts, s.str())
			case 0:
				s.fail("there are values of a field without a type")
			default:
				n, ok := encodeNumber(v.Type, s.number())
				if !ok {
					s.fail("a value is none of the type of its field")
				}
				v.Numbers = append(v.Numbers, n)
			}
		}
		if err := s.end(); err != nil {
			return nil, nil, err
		}
		out.Values = append(out.Values, v)
	}
	return out, nil, nil
}
