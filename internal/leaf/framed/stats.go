package framed

import (
	"fmt"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
)

const opStats = "stats"

var statsMembers = viewed("terms", "query", fieldsMember, defaultOp)

// appendStatsRequest writes a request for statistics.
func appendStatsRequest(w *writer, r *leaf.StatsRequest) {
	if len(r.Terms) > leaf.MaxTerms {
		w.fail(tooMany("terms", len(r.Terms), leaf.MaxTerms))
		return
	}
	w.view(&r.View)
	if len(r.Terms) > 0 || r.Query == nil {
		w.name("terms")
		w.b = append(w.b, '[')
		for i, t := range r.Terms {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.b = append(w.b, '[')
			w.quote("terms", t.Text)
			w.b = append(w.b, ',')
			w.quote("terms", t.Field)
			w.b = append(w.b, ']')
		}
		w.b = append(w.b, ']')
	}
	w.query(r.Query, false)
	w.defaultFields(r.DefaultFields)
}

// readStatsRequest reads it.
func readStatsRequest(m *message) *leaf.StatsRequest {
	r := &leaf.StatsRequest{Index: m.index}
	m.view(&r.View)
	if !m.has("query") {
		m.need("terms")
	}
	m.list("terms", `pairs ["term","field"]`, leaf.MaxTerms, func(s *scanner) {
		s.expect('[')
		text := s.str()
		s.expect(',')
		field := s.str()
		s.expect(']')
		r.Terms = append(r.Terms, score.Term{Field: field, Text: text})
	})
	r.Query = m.query(m.operator(defaultOp, query.Or))
	r.DefaultFields = m.defaultFields()
	return r
}

// tooMuch is the problem of statistics over a limit.
func tooMuch(what string, have, most int) *api.Problem {
	return invalid("stats", fmt.Sprintf("%d %s are given, %d are allowed", have, what, most)).Within(int64(most))
}

// within fails if a list of statistics is over its limit.
func (s *scanner) within(what string, have, most int) {
	if have > most && s.err == nil {
		s.over = tooMuch(what, have, most)
		s.fail("there are too many " + what)
	}
}

// statsMember reads a member of statistics, if name is one.
func (s *scanner) statsMember(name []byte, st *score.Stats) bool {
	switch string(name) {
	case "docs":
		st.Docs = s.u64()
	case "terms":
		st.DF = map[score.Term]uint64{}
		s.expect('[')
		n := 0
		for first := true; s.next(&first, ']'); {
			if n++; n > leaf.MaxStatsTerms {
				s.value() // only counted
				continue
			}
			var t score.Term
			var df uint64
			var hasTerm, hasField, hasDF bool
			s.object(func(name []byte) {
				switch string(name) {
				case "term":
					t.Text, hasTerm = s.str(), true
				case "field":
					t.Field, hasField = s.str(), true
				case "df":
					df, hasDF = s.u64(), true
				default:
					s.value()
				}
			})
			if _, twice := st.DF[t]; twice || !hasTerm || !hasField || !hasDF {
				s.fail(`each of the terms is one of its own, {"term","field","df"}`)
				return true
			}
			st.DF[t] = df
		}
		s.within("terms", n, leaf.MaxStatsTerms)
	case "fields":
		st.Fields = map[string]score.FieldStats{}
		s.expect('{')
		n := 0
		for first := true; s.next(&first, '}'); {
			if n++; n > leaf.MaxStatsFields {
				s.token() // only counted
				s.expect(':')
				s.value()
				continue
			}
			field := string(s.name())
			if _, twice := st.Fields[field]; twice {
				s.twice([]byte(field))
				return true
			}
			var f score.FieldStats
			var hasSum, hasCount bool
			s.object(func(name []byte) {
				switch string(name) {
				case "sum":
					f.SumLen, hasSum = s.u64(), true
				case "count":
					f.Docs, hasCount = s.u64(), true
				default:
					s.value()
				}
			})
			if !hasSum || !hasCount {
				s.fail(`each of the fields is {"sum","count"}`)
				return true
			}
			st.Fields[field] = f
		}
		s.within("fields", n, leaf.MaxStatsFields)
	default:
		return false
	}
	return true
}

// stats reads the member stats of a request: statistics as the operation of that name returns them, where what else there is in such
// a reply means nothing.
func (m *message) stats() *score.Stats {
	raw := m.get("stats")
	if raw == nil || m.prob != nil {
		return nil
	}
	const want = `it is an object {"docs","terms":[{"term","field","df"}],"fields":{"f":{"sum","count"}}}`
	st := &score.Stats{}
	unknown, given := "", 0
	s := scanner{b: raw}
	s.object(func(name []byte) {
		if s.statsMember(name, st) {
			given++
			return
		}
		switch string(name) {
		case "ok", snapshotMember, "timings", "approximate":
		default:
			unknown = string(name)
		}
		s.value()
	})
	switch {
	case s.over != nil:
		m.failed(s.over)
	case s.end() != nil || given < 3 && unknown == "":
		m.fail("stats", want)
	case unknown != "":
		m.failed(&api.Problem{Code: api.UnknownParameter, Field: "stats", Detail: "stats: there is no member " + strconv.Quote(api.Clip(unknown))})
	}
	return st
}

// stats writes the member stats.
func (w *writer) stats(st *score.Stats) {
	switch {
	case st == nil:
	case len(st.DF) > leaf.MaxStatsTerms:
		w.fail(tooMuch("terms", len(st.DF), leaf.MaxStatsTerms))
	case len(st.Fields) > leaf.MaxStatsFields:
		w.fail(tooMuch("fields", len(st.Fields), leaf.MaxStatsFields))
	default:
		w.name("stats")
		w.b = append(api.AppendStatistics(append(w.b, '{'), st), '}')
	}
}

// appendStatsReply appends the reply to a request for statistics.
func appendStatsReply(b []byte, r *leaf.StatsReply) []byte {
	b = api.AppendStatistics(append(b, `{"ok":true,`...), &r.Stats)
	return append(appendMeta(b, &r.Meta), '}')
}

// readStatsReply reads it.
func readStatsReply(b []byte) (*leaf.StatsReply, *api.Problem, error) {
	r := &leaf.StatsReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool { return s.statsMember(name, &r.Stats) || s.meta(name, &r.Meta) },
		"docs", "terms", "fields")
	return r, prob, err
}

// allStats reads an object of statistics.
func (s *scanner) allStats() *score.Stats {
	st := &score.Stats{}
	s.object(func(name []byte) {
		if !s.statsMember(name, st) {
			s.value()
		}
	})
	return st
}
