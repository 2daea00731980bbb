package framed

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/wire/jsonscan"
)

// Members that every request may have, and some that several operations share.
const (
	opMember       = "op"
	indexMember    = "index"
	timeoutMember  = "timeout_ms"
	fieldsMember   = "default_fields"
	defaultOp      = "default_op"
	filtersMember  = "filters"
	partialMember  = "allow_partial"
	snapshotMember = "snapshot"
)

// message is a request taken apart. Its methods read one member each; the first fault of any of them sticks in prob.
type message struct {
	op      string
	index   string
	timeout time.Duration // 0: none
	members []member
	prob    *api.Problem
}

// member is a member of a request. raw is within the frame.
type member struct {
	name  string // of a long one only the beginning
	raw   jsontext.Value
	shape jsonscan.Shape
}

// parseMessage takes a request apart. broken says that the frame cannot be trusted: it is not UTF-8 or not JSON.
//
// It looks at every byte once and makes nothing of the values: an operation does not read those of members that it does not have, and
// reads the others within bounds. A name that comes twice within a value is for those to refuse who read it.
func parseMessage(frame []byte) (m *message, prob *api.Problem, broken bool) {
	m = &message{}
	s := newScanner(frame, false)
	if s.err == nil && s.peek() != '{' {
		s.value()
		if s.end() != nil {
			return nil, distrust(frame), true
		}
		return nil, api.NewProblem(api.InvalidJSON, "the request is not a JSON object"), false
	}
	s.expect('{')
	s.deep = 1
	var twice *api.Problem
	for first := true; s.next(&first, '}'); {
		quoted, plain := s.token()
		end := s.i
		s.expect(':')
		raw, is := s.shaped()
		if s.err != nil {
			break
		}
		if len(m.members) == maxMembers {
			// The rest is not read; whether it could be trusted is not known.
			return nil, api.NewProblem(api.InvalidJSON, fmt.Sprintf("the request has more than %d members", maxMembers)).Within(maxMembers), true
		}
		name := memberName(quoted, plain)
		if twice == nil && len(quoted) <= longName+2 && m.has(name) {
			twice = repeated(name)
			twice.Line = 1 + bytes.Count(frame[:end-len(quoted)], []byte{'\n'})
			twice.At(end - len(quoted))
		}
		m.members = append(m.members, member{name, raw, is})
	}
	s.peek()
	end := s.i
	switch {
	case s.err != nil:
		return nil, distrust(frame), true
	case s.end() != nil:
		return nil, api.NewProblem(api.InvalidJSON, "something stands behind the JSON object").At(end), true
	case twice != nil:
		return nil, twice, false
	case !m.has(opMember):
		return nil, api.NewProblem(api.MissingParameter, "op: the request names no operation").On(opMember), false
	}
	m.op = m.text(opMember)
	if m.has(indexMember) {
		if m.index = m.text(indexMember); m.prob == nil {
			m.prob = api.CheckIndexName(m.index)
		}
	}
	if raw := m.get(timeoutMember); raw != nil {
		micros, ok := parseMillis(raw)
		if !ok || micros == 0 || micros > math.MaxInt64/int64(time.Microsecond) {
			m.fail(timeoutMember, "it is a number of milliseconds above 0, without an exponent")
		}
		m.timeout = time.Duration(micros) * time.Microsecond
	}
	return m, m.prob, false
}

// longName is the length of a name, in the frame, above which only its beginning is looked at: no operation has such a member.
const longName = 256

// memberName is the name of a member, or its beginning.
func memberName(quoted []byte, plain bool) string {
	text := quoted[1 : len(quoted)-1]
	switch {
	case len(text) > longName && plain:
		return string(text[:longName])
	case len(text) > longName:
		var b [longName]byte
		u := unquoter{raw: text}
		n := 0
		for n < len(b) {
			k, err := u.Read(b[n:])
			if n += k; err != nil {
				break
			}
		}
		return string(b[:n])
	case plain:
		return string(text)
	}
	return string(unquote(quoted))
}

// distrust is the problem of a frame that is not UTF-8 or not JSON.
func distrust(frame []byte) *api.Problem {
	d := jsontext.NewDecoder(bytes.NewBuffer(frame), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadValue(); err != nil {
		return api.JSONProblem(frame, err)
	}
	if !utf8.Valid(frame) { // behind the value
		return api.NewProblem(api.InvalidUTF8, "the frame is not valid UTF-8")
	}
	return api.NewProblem(api.InvalidJSON, "something stands behind the JSON value").At(int(d.InputOffset()))
}

// repeated is the problem of a member that is given twice.
func repeated(name string) *api.Problem {
	return &api.Problem{Code: api.RepeatedParameter, Field: api.Clip(name), Detail: "member " + strconv.Quote(api.Clip(name)) + " is given more than once"}
}

// fits refuses a value that is larger than its parser is to be given, or has a member twice: what that parser makes of it is bounded.
// A member that is not there fits.
func (m *message) fits(name string, most int) {
	for i := range m.members {
		v := &m.members[i]
		switch {
		case v.name != name || m.prob != nil:
		case len(v.raw) > most:
			m.failed(invalid(name, fmt.Sprintf("it has %d bytes, %d are allowed", len(v.raw), most)).Within(int64(most)))
		case v.shape.Members > maxMembers:
			m.failed(invalid(name, fmt.Sprintf("an object in it has more than %d members", maxMembers)).Within(maxMembers))
		case v.shape.Members > 1:
			d := jsontext.NewDecoder(bytes.NewBuffer(v.raw))
			_, err := d.ReadValue()
			if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
				m.failed(repeated(syn.JSONPointer.LastToken()))
			}
		}
	}
}

// check refuses members that the operation does not have.
func (m *message) check(known []string) {
	for i := range m.members {
		switch name := m.members[i].name; name {
		case opMember, indexMember, timeoutMember:
		default:
			if m.prob == nil && !slices.Contains(known, name) {
				m.prob = api.UnknownParam(name)
				m.prob.Detail = fmt.Sprintf("%s has no member %s", m.op, strconv.Quote(api.Clip(name)))
			}
		}
	}
}

// object takes the object of a member apart, as a request is taken apart; nil if the member is not there or is none. A member that is
// not among the known ones is refused.
func (m *message) object(name string, known []string) *message {
	raw := m.get(name)
	if raw == nil || m.prob != nil {
		return nil
	}
	if raw.Kind() != '{' {
		m.fail(name, "it is an object")
		return nil
	}
	out := &message{op: name}
	s := scanner{b: raw}
	s.expect('{')
	for first := true; s.next(&first, '}'); {
		quoted, plain := s.token()
		s.expect(':')
		value, is := s.shaped()
		if s.err != nil {
			break
		}
		inner := memberName(quoted, plain)
		switch {
		case !slices.Contains(known, inner):
			m.failed(unknownInside(name, inner))
			return nil
		case out.has(inner):
			m.failed(repeated(inner))
			return nil
		}
		out.members = append(out.members, member{inner, value, is})
	}
	if s.end() != nil {
		m.fail(name, "it is an object")
		return nil
	}
	return out
}

// get returns the value of a member, nil if it is not there.
func (m *message) get(name string) jsontext.Value {
	for i := range m.members {
		if m.members[i].name == name {
			return m.members[i].raw
		}
	}
	return nil
}

func (m *message) has(name string) bool { return m.get(name) != nil }

// need refuses a request without a member.
func (m *message) need(name string) jsontext.Value {
	raw := m.get(name)
	if raw == nil && m.prob == nil {
		m.prob = api.NewProblem(api.MissingParameter, fmt.Sprintf("%s: %s needs it", name, m.op)).On(name)
	}
	return raw
}

func (m *message) fail(name, detail string) {
	if m.prob == nil {
		m.prob = invalid(name, detail)
	}
}

// failed keeps a problem, if it is the first.
func (m *message) failed(prob *api.Problem) {
	if m.prob == nil {
		m.prob = prob
	}
}

func invalid(name, detail string) *api.Problem {
	return &api.Problem{Code: api.InvalidParameter, Field: name, Detail: name + ": " + detail}
}

// tooMany is the problem of a list over a limit.
func tooMany(name string, have, most int) *api.Problem {
	return invalid(name, fmt.Sprintf("%d are given, %d are allowed", have, most)).Within(int64(most))
}

// text reads a string; "" if the member is not there.
func (m *message) text(name string) string {
	raw := m.get(name)
	if len(raw) > 0 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	return string(m.bytes(name))
}

// bytes is text without the last copy. The slice is new.
func (m *message) bytes(name string) []byte {
	raw := m.get(name)
	switch {
	case raw == nil:
		return nil
	case raw.Kind() != '"':
		m.fail(name, "it is a string")
		return nil
	}
	return unquote(raw)
}

// yes reads a boolean; false if the member is not there.
func (m *message) yes(name string) bool {
	raw := m.get(name)
	if raw == nil {
		return false
	}
	if k := raw.Kind(); k != 't' && k != 'f' {
		m.fail(name, "it is true or false")
	}
	return raw.Kind() == 't'
}

// mostWhole bounds the numbers that whole reads.
const mostWhole = 1 << 53

// whole reads a whole number. Which numbers make sense is for the leaf to say.
func (m *message) whole(name string, absent int) int {
	raw := m.get(name)
	if raw == nil {
		return absent
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n > mostWhole || n < -mostWhole {
		m.fail(name, "it is a whole number")
		return 0
	}
	return int(n)
}

// list calls item for each element of an array of at most most. The scanner stands before the element.
func (m *message) list(name, what string, most int, item func(s *scanner)) {
	raw := m.get(name)
	if raw == nil || m.prob != nil {
		return
	}
	if raw.Kind() != '[' {
		m.fail(name, "it is an array of "+what)
		return
	}
	s := scanner{b: raw}
	s.expect('[')
	n := 0
	for first := true; s.next(&first, ']'); n++ {
		if n >= most {
			s.value() // only counted
		} else if item(&s); m.prob != nil {
			return
		}
	}
	if s.err != nil {
		m.fail(name, "it is an array of "+what)
	} else if n > most {
		m.failed(tooMany(name, n, most))
	}
}

// texts reads an array of strings: nil if the member is not there, not nil if it is.
func (m *message) texts(name, what string, most int) []string {
	if !m.has(name) {
		return nil
	}
	list := []string{}
	m.list(name, what, most, func(s *scanner) { list = append(list, s.str()) })
	return list
}

// ids reads the member ids, which has to be there.
func (m *message) ids(most int) []string {
	m.need("ids")
	return m.texts("ids", "ids", most)
}

// operator reads default_op and the like.
func (m *message) operator(name string, absent query.Op) query.Op {
	if !m.has(name) {
		return absent
	}
	switch m.text(name) {
	case "or":
		return query.Or
	case "and":
		return query.And
	}
	m.fail(name, "it is or, or and")
	return query.Or
}

// writer writes a request. The first fault of what is to be written sticks in prob.
type writer struct {
	b    []byte
	prob *api.Problem
}

// begin begins a request. A timeout of 0 is none.
func begin(b []byte, op, index string, timeout time.Duration) *writer {
	w := &writer{b: append(b, `{"op":"`...)}
	w.b = append(w.b, op...)
	w.b = append(w.b, '"')
	if index != "" {
		w.text(indexMember, index)
	}
	if timeout > 0 {
		w.name(timeoutMember)
		w.b = api.AppendMillis(w.b, max(1, api.Micros(timeout)))
	}
	return w
}

// end ends the request.
func (w *writer) end() ([]byte, *api.Problem) { return append(w.b, '}'), w.prob }

// name begins a member.
func (w *writer) name(name string) {
	w.b = append(w.b, ',', '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

// quote appends a string of a member.
func (w *writer) quote(name, s string) {
	b, err := jsontext.AppendQuote(w.b, s)
	if err != nil && w.prob == nil {
		w.prob = &api.Problem{Code: api.InvalidUTF8, Field: name, Detail: name + ": it is not valid UTF-8"}
	}
	w.b = b
}

func (w *writer) text(name, s string) {
	w.name(name)
	w.quote(name, s)
}

// yes writes a boolean that is true, nothing for one that is false.
func (w *writer) yes(name string, v bool) {
	if v {
		w.name(name)
		w.b = append(w.b, "true"...)
	}
}

func (w *writer) whole(name string, n int) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, int64(n), 10)
}

func (w *writer) fail(prob *api.Problem) {
	if w.prob == nil {
		w.prob = prob
	}
}

// texts writes an array of at most most strings.
func (w *writer) texts(name string, list []string, most int) {
	if len(list) > most {
		w.fail(tooMany(name, len(list), most))
		return
	}
	w.name(name)
	w.b = append(w.b, '[')
	for i, s := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.quote(name, s)
	}
	w.b = append(w.b, ']')
}

// defaultFields writes default_fields. nil, the fields of the schema, is not an empty list.
func (w *writer) defaultFields(list []string) {
	if list != nil {
		w.texts(fieldsMember, list, maxDefaultFields)
	}
}

// maxDefaultFields is how many fields default_fields may name.
const maxDefaultFields = 10_000

func (m *message) defaultFields() []string { return m.texts(fieldsMember, "fields", maxDefaultFields) }
