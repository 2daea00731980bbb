package framed

import (
	"fmt"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
)

const opSearch = "search"

const localMember = "local_stats"

var searchMembers = viewed(
	"query", "limit", filtersMember, "sort", "order", "missing", "after", "stats", "keep_stats",
	fieldsMember, defaultOp, partialMember, "track_total", "typed", showMember, localMember,
)

// searchCall is a search as it came.
type searchCall struct {
	leaf.SearchRequest
	// typed says that sort keys go with their types.
	typed bool
	// byScore says that the request named the order that there is without one, and wants its key.
	byScore bool
	// numeric are the fields that the request says hold numbers.
	numeric []string
	// after is what the request goes on behind; its numbers are of the fields of the order.
	after *afterHit
}

// afterHit is the member after: a hit as a reply has it. values is nil where its key is null and there is no order.
type afterHit struct {
	id     string
	score  float32
	values []rawKey
}

// rawKey is a sort key whose type is not known.
type rawKey struct {
	exec.SortValue
	number []byte // of a plain key; SortValue is missing then
}

func (k *rawKey) missing() bool { return k.Kind == exec.MissingValue && k.number == nil }

// appendSearchRequest writes a search. Its sort keys are to come typed.
func appendSearchRequest(w *writer, r *leaf.SearchRequest) {
	w.view(&r.View)
	w.query(r.Query, r.Show != nil && r.Show.Explain)
	w.filters(r.Filters)
	w.defaultFields(r.DefaultFields)
	w.whole("limit", r.Limit)
	w.sort(r.Sort)
	w.after(r)
	switch r.Total {
	case exec.TotalAtLeast:
		w.name("track_total")
		w.b = strconv.AppendUint(w.b, r.TotalFloor, 10)
	case exec.TotalNone:
		w.name("track_total")
		w.b = append(w.b, `"none"`...)
	}
	w.stats(r.Stats)
	w.yes("keep_stats", r.KeepStats)
	w.yes(localMember, r.LocalStats)
	if r.Show != nil {
		w.show(r.Show)
	}
	w.yes(partialMember, r.AllowPartial)
	w.yes("typed", len(r.Sort) > 0 || r.After != nil)
}

// sort writes the member sort.
func (w *writer) sort(keys []exec.SortKey) {
	if len(keys) == 0 {
		return
	}
	if len(keys) > exec.MaxSortKeys {
		w.fail(tooMany("sort", len(keys), exec.MaxSortKeys))
		return
	}
	w.name("sort")
	w.b = append(w.b, '[')
	for i, k := range keys {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		switch k.By {
		case exec.ByScore:
			w.b = append(w.b, `{"key":"score"`...)
		case exec.ByID:
			w.b = append(w.b, `{"key":"id"`...)
		case exec.ByField:
			w.b = append(w.b, `{"field":`...)
			w.quote("sort", k.Field)
		default:
			w.fail(invalid("sort", fmt.Sprintf("key %d compares nothing", i+1)))
			return
		}
		if k.Desc {
			w.b = append(w.b, `,"order":"desc"`...)
		} else {
			w.b = append(w.b, `,"order":"asc"`...)
		}
		if k.By == exec.ByField {
			if k.MissingFirst {
				w.b = append(w.b, `,"missing":"first"`...)
			}
			switch k.Mode {
			case exec.Least:
				w.b = append(w.b, `,"mode":"min"`...)
			case exec.Greatest:
				w.b = append(w.b, `,"mode":"max"`...)
			}
		}
		w.b = append(w.b, '}')
	}
	w.b = append(w.b, ']')
}

// after writes the member after, typed. The score stands for itself only where there is no order.
func (w *writer) after(r *leaf.SearchRequest) {
	a := r.After
	if a == nil {
		return
	}
	plain := len(r.Sort) == 0 && len(a.Values) == 1 && a.Values[0].Kind == exec.ScoreValue
	w.name("after")
	w.b = append(w.b, '[')
	w.quote("after", a.Key)
	w.b = append(w.b, ',')
	if !plain {
		w.b = append(w.b, '0', ',')
		w.b = appendTyped(w.b, a.Values)
	} else {
		w.b = api.AppendScore(w.b, a.Values[0].Score)
		w.b = append(w.b, ",null"...)
	}
	w.b = append(w.b, ']')
	for _, v := range a.Values {
		if v.Kind == exec.ScoreValue && !api.Finite(v.Score) {
			w.fail(invalid("after", "its score is no number"))
		}
	}
}

// readSearchRequest reads a search.
func readSearchRequest(m *message) *searchCall {
	c := &searchCall{}
	c.Index = m.index
	m.view(&c.View)
	op := m.operator(defaultOp, query.Or)
	c.Query = m.query(op)
	c.Filters = m.filters(op)
	c.DefaultFields = m.defaultFields()
	c.Limit = m.whole("limit", api.DefaultLimit)
	c.order(m)
	c.typed = m.yes("typed")
	c.readAfter(m)
	c.total(m)
	c.Stats = m.stats()
	c.KeepStats = m.yes("keep_stats")
	c.LocalStats = m.yes(localMember)
	c.Show = m.show()
	c.AllowPartial = m.yes(partialMember)
	return c
}

// sortBytes is how long each of sort, order and missing may be: as long as the body of a search over HTTP.
const sortBytes = 1 << 20

// order reads sort, order and missing with the parser of searches over HTTP, so that there is one syntax.
func (c *searchCall) order(m *message) {
	var body []byte
	for _, name := range []string{"sort", "order", "missing"} {
		m.fits(name, sortBytes)
	}
	if m.prob != nil {
		return
	}
	for _, name := range []string{"sort", "order", "missing"} {
		if raw := m.get(name); raw != nil {
			body = append(body, `,"`...)
			body = append(body, name...)
			body = append(body, `":`...)
			body = append(body, raw...)
		}
	}
	if body == nil {
		return
	}
	body[0] = '{'
	r, prob := api.ParseSearchBody(append(body, '}'), "", api.SearchLimits{Hits: exec.MaxWindow})
	if prob != nil {
		prob.HasPosition, prob.Position, prob.Line = false, 0, 0 // of the text that was made for the parser
		m.failed(prob)
		return
	}
	for _, k := range r.Sort {
		out := exec.SortKey{Desc: k.Desc}
		switch k.By {
		case api.ByID:
			out.By = exec.ByID
		case api.ByField:
			out = exec.SortKey{By: exec.ByField, Field: k.Field, Desc: k.Desc, MissingFirst: k.MissingFirst, Mode: exec.Least}
			if k.Pick == api.Greatest {
				out.Mode = exec.Greatest
			}
			if k.Numeric {
				c.numeric = append(c.numeric, k.Field)
			}
		}
		c.Sort = append(c.Sort, out)
	}
	if raw := m.get("sort"); len(c.Sort) == 0 && raw != nil {
		c.byScore = string(raw) != `""` && string(raw) != `[]`
	}
}

// keys is the number of sort keys that a hit has.
func (c *searchCall) keys() int {
	if c.byScore {
		return 1
	}
	return len(c.Sort)
}

// readAfter reads the member after: ["id", score, key].
func (c *searchCall) readAfter(m *message) {
	raw := m.get("after")
	if raw == nil || m.prob != nil {
		return
	}
	s := scanner{b: raw}
	a := &afterHit{}
	s.expect('[')
	a.id = s.str()
	s.expect(',')
	a.score = s.float32()
	s.expect(',')
	switch {
	case c.typed:
		if s.peek() == '[' {
			a.values = []rawKey{}
			for _, v := range s.typed(nil, exec.MaxSortKeys) {
				a.values = append(a.values, rawKey{SortValue: v})
			}
		} else if !s.null() {
			s.fail("expected null or an array")
		}
	case c.keys() == 0:
		if !s.null() {
			s.fail("expected null")
		}
	case c.keys() == 1:
		a.values = append(a.values, s.rawKey())
	default:
		s.expect('[')
		for first := true; s.next(&first, ']'); {
			if a.values = append(a.values, s.rawKey()); len(a.values) > exec.MaxSortKeys {
				s.fail("there are too many keys")
			}
		}
	}
	s.expect(']')
	if s.end() != nil {
		m.fail("after", `it is a hit as the reply has it, ["id",score,key], with a key for each of sort, and null without one`)
		return
	}
	if !c.typed && len(a.values) != c.keys() { // typed keys are the leaf's to look at
		m.fail("after", fmt.Sprintf("it has %d keys, the order has %d", len(a.values), c.keys()))
		return
	}
	c.after = a
}

// rawKey reads a plain sort key.
func (s *scanner) rawKey() rawKey {
	switch s.peek() {
	case 'n':
		s.null()
		return rawKey{}
	case '"':
		return rawKey{SortValue: exec.SortValue{Kind: exec.TextValue, Text: s.str()}}
	}
	return rawKey{number: s.number()}
}

// total reads track_total.
func (c *searchCall) total(m *message) {
	raw := m.get("track_total")
	switch {
	case raw == nil:
	case raw.Kind() == '0':
		n, ok := parseU64(raw)
		if !ok {
			m.fail("track_total", `it is "exact", "none", or a whole number from 0`)
		}
		c.Total, c.TotalFloor = exec.TotalAtLeast, n
	default:
		switch m.text("track_total") {
		case "exact":
		case "none":
			c.Total = exec.TotalNone
		default:
			m.fail("track_total", `it is "exact", "none", or a whole number from 0`)
		}
	}
}

// key is key i of the order.
func (c *searchCall) key(i int) exec.SortKey {
	if c.byScore {
		return exec.SortKey{By: exec.ByScore, Desc: true}
	}
	return c.Sort[i]
}

// bindAfter sets SearchRequest.After. t has the types of the fields, if an order by one came plain.
func (c *searchCall) bindAfter(t *types) *api.Problem {
	a := c.after
	if a == nil {
		return nil
	}
	c.After = &exec.After{Key: a.id, Values: []exec.SortValue{{Kind: exec.ScoreValue, Score: a.score}}}
	if a.values == nil {
		return nil
	}
	c.After.Values = make([]exec.SortValue, len(a.values))
	for i, v := range a.values {
		c.After.Values[i] = v.SortValue
		if c.typed {
			continue // as it came
		}
		ok := false
		switch k := c.key(i); k.By {
		case exec.ByScore:
			f, err := strconv.ParseFloat(string(v.number), 32)
			c.After.Values[i] = exec.SortValue{Kind: exec.ScoreValue, Score: float32(f)}
			ok = err == nil
		case exec.ByID:
			ok = v.Kind == exec.TextValue
		case exec.ByField:
			switch {
			case v.missing():
				ok = true
			case t.fields[k.Field] == 0:
				return &api.Problem{Code: api.UnknownField, Field: api.Clip(k.Field), Detail: fmt.Sprintf("sort: there is no field %q", api.Clip(k.Field))}
			case v.number == nil:
				ok = t.fields[k.Field] == schema.Text
			default:
				c.After.Values[i].Kind = exec.NumberValue
				c.After.Values[i].Number, ok = encodeNumber(t.fields[k.Field], v.number)
			}
		}
		if !ok {
			return invalid("after", fmt.Sprintf("key %d is not a value of its sort key", i+1))
		}
	}
	return nil
}

// Typed sort keys: null for a missing value, a number for a score, and a string for the rest, which begins with what it is.
const (
	typedNumber = "n:" // then the order-preserving encoding of package schema, in decimal
	typedText   = "t:" // then the text
)

// appendTyped appends the keys of a hit with their types.
func appendTyped(b []byte, values []exec.SortValue) []byte {
	b = append(b, '[')
	for i := range values {
		if i > 0 {
			b = append(b, ',')
		}
		switch v := &values[i]; v.Kind {
		case exec.NumberValue:
			b = append(b, `"`+typedNumber...)
			b = strconv.AppendUint(b, v.Number, 10)
			b = append(b, '"')
		case exec.TextValue:
			at := len(b)
			b = api.AppendString(append(b, "xx"...), v.Text)
			copy(b[at:], `"`+typedText) // the quote of the text gives its place to the prefix
		case exec.ScoreValue:
			b = api.AppendScore(b, v.Score)
		default:
			b = append(b, "null"...)
		}
	}
	return append(b, ']')
}

// typed reads the typed keys of a hit and appends them.
func (s *scanner) typed(list []exec.SortValue, most int) []exec.SortValue {
	s.expect('[')
	n := 0
	for first := true; s.next(&first, ']'); n++ {
		if n == most {
			s.fail("there are too many sort keys")
			return list
		}
		var v exec.SortValue
		switch s.peek() {
		case 'n':
			s.null()
		case '"':
			v = s.typedString()
		default:
			v = exec.SortValue{Kind: exec.ScoreValue, Score: s.float32()}
		}
		list = append(list, v)
	}
	return list
}

func (s *scanner) typedString() exec.SortValue {
	if len(s.b)-s.i > 3 {
		switch string(s.b[s.i+1 : s.i+3]) {
		case typedNumber:
			raw, _ := s.token()
			if s.err != nil {
				break
			}
			n, ok := parseU64(raw[3 : len(raw)-1])
			if !ok {
				break
			}
			return exec.SortValue{Kind: exec.NumberValue, Number: n}
		case typedText:
			if text := s.str(); s.err == nil {
				return exec.SortValue{Kind: exec.TextValue, Text: text[len(typedText):]}
			}
		}
	}
	s.fail("a sort key is none of those that are typed")
	return exec.SortValue{}
}

// appendSearchReply appends the reply to a search. t has the types of the fields of the order; it is not used if the keys go typed.
func appendSearchReply(b []byte, c *searchCall, r *leaf.SearchReply, t *types) ([]byte, *api.Problem) {
	b = append(b, `{"ok":true,"hits":[`...)
	for i := range r.Hits {
		h := &r.Hits[i]
		if !api.Finite(h.Score) {
			return nil, api.NewProblem(api.ScoreOverflow, "the boosts of the query make a score that no number can hold").On("query")
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = api.AppendString(b, h.ID)
		b = append(b, ',')
		b = api.AppendScore(b, h.Score)
		b = append(b, ',')
		values := h.Sort
		if c.byScore {
			values = []exec.SortValue{{Kind: exec.ScoreValue, Score: h.Score}}
		}
		switch {
		case c.keys() == 0:
			b = append(b, "null"...)
		case c.typed:
			b = appendTyped(b, values)
		default:
			b = t.appendKeys(b, c, values)
		}
		b = append(b, ']')
	}
	b = append(b, ']')
	if c.Show != nil {
		b = append(b, `,"shown":`...)
		b = appendShown(b, r.Shown)
		b = appendObject(b, planMember, r.Plan)
	}
	b = append(b, `,"docs":`...)
	b = strconv.AppendUint(b, r.Docs, 10)
	if r.TotalRelation == "" {
		b = append(b, `,"total":null,"total_relation":"none"`...)
	} else {
		b = append(b, `,"total":`...)
		b = strconv.AppendUint(b, r.Total, 10)
		b = append(b, `,"total_relation":`...)
		b = api.AppendString(b, r.TotalRelation)
	}
	if r.Partial {
		b = append(b, `,"partial":true`...)
	}
	if len(r.Notes) > 0 {
		b = append(b, `,"notes":`...)
		b = api.AppendStrings(b, r.Notes)
	}
	if r.Stats != nil {
		b = append(api.AppendStatistics(append(b, `,"stats":{`...), r.Stats), '}')
	}
	if r.LocalStats != nil {
		b = append(api.AppendStatistics(append(b, `,"local_stats":{`...), r.LocalStats), '}')
	}
	return append(appendMeta(b, &r.Meta), '}'), nil
}

// readSearchReply reads the reply to a search that appendSearchRequest wrote.
func readSearchReply(b []byte, r *leaf.SearchRequest) (*leaf.SearchReply, *api.Problem, error) {
	out := &leaf.SearchReply{}
	s := newScanner(b, r.Show == nil) // ids are not to keep the text of sources
	keys := len(r.Sort)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "hits":
			s.hits(out, r.Limit, keys)
		case "docs":
			out.Docs = s.u64()
		case "total":
			if !s.null() {
				out.Total = s.u64()
			}
		case "total_relation":
			switch rel := s.str(); rel {
			case exec.Exactly, exec.AtLeast:
				out.TotalRelation = rel
			case api.RelationNone:
			default:
				s.fail("a relation that is not known")
			}
		case "partial":
			out.Partial = s.bool()
		case "notes":
			out.Notes = s.strings(maxNotes)
		case "stats":
			out.Stats = s.allStats()
		case localMember:
			out.LocalStats = s.allStats()
		case shownMember:
			if r.Show == nil {
				return false
			}
			out.Shown = s.shown(max(0, r.Limit))
		case planMember:
			if r.Show == nil {
				return false
			}
			out.Plan = s.raw()
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	}, "hits", "docs", "total_relation")
	if prob == nil && err == nil && r.Show != nil && len(out.Shown) != len(out.Hits) {
		err = fmt.Errorf("%w: it shows %d documents of %d hits", errMalformed, len(out.Shown), len(out.Hits))
	}
	return out, prob, err
}

// hitBytes is the least length of a hit: ["",0,null], with its comma.
const hitBytes = 12

// hits reads the hits of a search with so many sort keys.
func (s *scanner) hits(out *leaf.SearchReply, limit, keys int) {
	s.expect('[')
	room := min(limit, (len(s.b)-s.i)/hitBytes+1)
	if room > 0 {
		out.Hits = make([]leaf.Hit, 0, room)
	}
	var slab []exec.SortValue
	for first := true; s.next(&first, ']'); {
		if len(out.Hits) == limit {
			s.fail("there are more hits than were asked for")
			return
		}
		var h leaf.Hit
		s.expect('[')
		h.ID = s.str()
		s.expect(',')
		h.Score = s.float32()
		s.expect(',')
		if keys == 0 {
			s.value()
		} else {
			if cap(slab)-len(slab) < keys {
				slab = make([]exec.SortValue, 0, keys*min(256, limit-len(out.Hits), (len(s.b)-s.i)/hitBytes+1))
			}
			from := len(slab)
			slab = s.typed(slab, keys)
			if h.Sort = slab[from:len(slab):len(slab)]; len(h.Sort) != keys {
				s.fail("a hit does not have one value for each sort key")
				return
			}
		}
		s.expect(']')
		if s.err != nil {
			return
		}
		out.Hits = append(out.Hits, h)
	}
}
