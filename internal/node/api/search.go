package api

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/query"
)

// DefaultIndex is the index of a call that names none.
const DefaultIndex = "default"

// TotalMode says how exactly the number of matches is wanted.
type TotalMode uint8

// Total modes.
const (
	TotalExact   TotalMode = iota // count every match
	TotalAtLeast                  // count exactly up to SearchRequest.TotalFloor, then a lower bound will do
	TotalNone                     // no total
)

// Choice is a yes, a no, or nothing said.
type Choice uint8

// Choices.
const (
	Unsaid Choice = iota
	Yes
	No
)

// SearchRequest is a search as its caller asked for it.
type SearchRequest struct {
	Index         string
	Q             string // empty: all documents
	DefaultOp     query.Op
	DefaultFields []string // nil: every indexed text field
	Limit         int
	Offset        int
	Total         TotalMode
	TotalFloor    uint64
	Fields        []string // members of the source to return; nil: all, empty: no source
	Timeout       time.Duration
	AllowPartial  Choice
	MinCoverage   float64 // least share of the documents that an answer must cover, 0 to 1
	DFS           bool
	Profile       bool
}

// DefaultLimit is the number of hits of a search that does not say.
const DefaultLimit = 10

// SearchLimits bound what a search may ask for.
type SearchLimits struct {
	Hits    int           // offset + limit
	Timeout time.Duration // timeout_ms
}

// kind is the type of a parameter.
type kind uint8

const (
	kindString kind = iota
	kindInt
	kindFloat
	kindBool
	kindList        // comma list in a URL, array of strings in JSON
	kindTotal       // exact, none or a number
	kindUnsupported // part of weft's surface, not of this server
)

// param is a parameter of search, the same in a URL and in a JSON body.
type param struct {
	name string
	kind kind
	set  func(r *SearchRequest, l SearchLimits, v value) *Problem
}

// value is a parameter's value, checked for its kind.
type value struct {
	text  string
	num   int64
	float float64
	yes   bool
	list  []string
}

// searchParams are all parameters that search knows.
var searchParams = []param{
	{"index", kindString, func(r *SearchRequest, _ SearchLimits, v value) *Problem {
		r.Index = v.text
		return CheckIndexName(v.text)
	}},
	{"q", kindString, func(r *SearchRequest, _ SearchLimits, v value) *Problem { r.Q = v.text; return nil }},
	{"default_op", kindString, func(r *SearchRequest, _ SearchLimits, v value) *Problem {
		switch v.text {
		case "or", "OR":
			r.DefaultOp = query.Or
		case "and", "AND":
			r.DefaultOp = query.And
		default:
			return badParam("default_op", "it is or, or and")
		}
		return nil
	}},
	{"default_fields", kindList, func(r *SearchRequest, _ SearchLimits, v value) *Problem {
		if len(v.list) == 0 {
			return badParam("default_fields", "it names no field; leave it out to search every indexed text field")
		}
		r.DefaultFields = v.list
		return nil
	}},
	{"limit", kindInt, func(r *SearchRequest, l SearchLimits, v value) *Problem {
		return setCount(&r.Limit, "limit", l.Hits, v.num)
	}},
	{"offset", kindInt, func(r *SearchRequest, l SearchLimits, v value) *Problem {
		return setCount(&r.Offset, "offset", l.Hits, v.num)
	}},
	{"track_total", kindTotal, func(r *SearchRequest, _ SearchLimits, v value) *Problem {
		switch v.text {
		case "exact":
			r.Total = TotalExact
		case "none":
			r.Total = TotalNone
		default:
			n, err := strconv.ParseUint(v.text, 10, 63)
			if err != nil {
				return badParam("track_total", "it is exact, none, or a number from 0")
			}
			r.Total, r.TotalFloor = TotalAtLeast, n
		}
		return nil
	}},
	{"fields", kindList, func(r *SearchRequest, _ SearchLimits, v value) *Problem { r.Fields = v.list; return nil }},
	{"timeout_ms", kindInt, func(r *SearchRequest, l SearchLimits, v value) *Problem {
		if most := l.Timeout.Milliseconds(); v.num < 1 || v.num > most {
			return badParam("timeout_ms", fmt.Sprintf("it is a number of milliseconds from 1 to %d", most)).Within(most)
		}
		r.Timeout = time.Duration(v.num) * time.Millisecond
		return nil
	}},
	{"allow_partial", kindBool, func(r *SearchRequest, _ SearchLimits, v value) *Problem {
		r.AllowPartial = No
		if v.yes {
			r.AllowPartial = Yes
		}
		return nil
	}},
	{"min_coverage", kindFloat, func(r *SearchRequest, _ SearchLimits, v value) *Problem {
		if !(v.float >= 0 && v.float <= 1) {
			return badParam("min_coverage", "it is a share from 0 to 1")
		}
		r.MinCoverage = v.float
		return nil
	}},
	{"dfs", kindBool, func(r *SearchRequest, _ SearchLimits, v value) *Problem { r.DFS = v.yes; return nil }},
	{"profile", kindBool, func(r *SearchRequest, _ SearchLimits, v value) *Problem { r.Profile = v.yes; return nil }},
	{"sort", kindString, func(_ *SearchRequest, _ SearchLimits, v value) *Problem {
		if v.text != "score" && v.text != "score:desc" {
			return &Problem{Code: UnsupportedParameter, Field: "sort", Detail: "this server orders by score, descending, then by id"}
		}
		return nil
	}},
	{"order", kindString, func(_ *SearchRequest, _ SearchLimits, v value) *Problem {
		switch v.text {
		case "desc":
			return nil
		case "asc":
			return &Problem{Code: UnsupportedParameter, Field: "order", Detail: "this server orders by score, descending, then by id"}
		}
		return badParam("order", "it is asc or desc")
	}},
	{"after", kindUnsupported, nil},
	{"filter", kindUnsupported, nil},
	{"missing", kindUnsupported, nil},
	{"facets", kindUnsupported, nil},
	{"aggs", kindUnsupported, nil},
	{"knn", kindUnsupported, nil},
	{"knn_k", kindUnsupported, nil},
	{"knn_exact", kindUnsupported, nil},
	{"fusion", kindUnsupported, nil},
	{"weights", kindUnsupported, nil},
	{"pool", kindUnsupported, nil},
	{"explain", kindUnsupported, nil},
	{"highlight", kindUnsupported, nil},
}

var searchParamByName = func() map[string]*param {
	m := make(map[string]*param, len(searchParams))
	for i := range searchParams {
		m[searchParams[i].name] = &searchParams[i]
	}
	return m
}()

// SearchParameters returns the names of the parameters that search takes, and of those that it knows but answers with
// UnsupportedParameter, both ascending.
func SearchParameters() (taken, unsupported []string) {
	for _, p := range searchParams {
		if p.kind == kindUnsupported {
			unsupported = append(unsupported, p.name)
		} else {
			taken = append(taken, p.name)
		}
	}
	slices.Sort(taken)
	slices.Sort(unsupported)
	return taken, unsupported
}

func setCount(p *int, name string, most int, n int64) *Problem {
	if n < 0 || n > int64(most) {
		return badParam(name, fmt.Sprintf("it is a number from 0 to %d", most)).Within(int64(most))
	}
	*p = int(n)
	return nil
}

func badParam(name, detail string) *Problem {
	return &Problem{Code: InvalidParameter, Field: name, Detail: name + ": " + detail}
}

// ParseSearch reads the parameters of GET /search.
func ParseSearch(v url.Values, l SearchLimits) (*SearchRequest, *Problem) {
	r := &SearchRequest{Index: DefaultIndex, Limit: DefaultLimit}
	for _, name := range sortedKeys(v) {
		p, prob := lookupParam(name)
		if prob != nil {
			return nil, prob
		}
		if len(v[name]) > 1 {
			return nil, repeated(name)
		}
		val, prob := p.fromText(v[name][0])
		if prob != nil {
			return nil, prob
		}
		if prob := p.set(r, l, val); prob != nil {
			return nil, prob
		}
	}
	return r, r.check(l)
}

// ParseSearchBody reads the JSON body of POST /search. index is the index that the URL names, empty if it names none.
func ParseSearchBody(body []byte, index string, l SearchLimits) (*SearchRequest, *Problem) {
	r := &SearchRequest{Index: DefaultIndex, Limit: DefaultLimit}
	if index != "" {
		r.Index = index
	}
	d := jsontext.NewDecoder(bytes.NewReader(body))
	tok, err := d.ReadToken()
	if err != nil {
		return nil, JSONProblem(body, err)
	}
	if tok.Kind() != '{' {
		return nil, atByte(body, NewProblem(InvalidJSON, "the body is not a JSON object"), len(body)-len(bytes.TrimLeft(body, " \t\r\n")))
	}
	for {
		tok, err := d.ReadToken()
		if err != nil {
			return nil, JSONProblem(body, err)
		}
		if tok.Kind() == '}' {
			break
		}
		name := tok.String()
		p, prob := lookupParam(name)
		if prob != nil {
			return nil, prob.At(int(d.InputOffset()))
		}
		raw, err := d.ReadValue()
		if err != nil {
			return nil, JSONProblem(body, err)
		}
		at := int(d.InputOffset()) - len(raw)
		val, prob := p.fromJSON(raw)
		if prob == nil {
			prob = p.set(r, l, val)
		}
		if prob != nil {
			return nil, prob.At(at)
		}
	}
	if tok, err := d.ReadToken(); err == nil {
		return nil, atByte(body, NewProblem(InvalidJSON, "more follows after the JSON object"), int(d.InputOffset())-len(tok.String()))
	} else if d.InputOffset() != int64(len(body)) && strings.TrimSpace(string(body[d.InputOffset():])) != "" {
		return nil, JSONProblem(body, err)
	}
	if index != "" && r.Index != index {
		return nil, &Problem{Code: RepeatedParameter, Field: "index", Detail: "the URL and the body name different indexes"}
	}
	return r, r.check(l)
}

func (r *SearchRequest) check(l SearchLimits) *Problem {
	if r.Offset+r.Limit > l.Hits {
		return badParam("offset", fmt.Sprintf("offset + limit is more than %d", l.Hits)).Within(int64(l.Hits))
	}
	return nil
}

func lookupParam(name string) (*param, *Problem) {
	p, ok := searchParamByName[name]
	if !ok {
		return nil, UnknownParam(name)
	}
	if p.kind == kindUnsupported {
		return nil, &Problem{Code: UnsupportedParameter, Field: name, Detail: "this server does not support " + name}
	}
	return p, nil
}

// UnknownParam is the problem of a parameter or JSON member that a call does not know.
func UnknownParam(name string) *Problem {
	return &Problem{Code: UnknownParameter, Field: Clip(name), Detail: "there is no parameter " + strconv.Quote(Clip(name))}
}

func repeated(name string) *Problem {
	return &Problem{Code: RepeatedParameter, Field: name, Detail: name + " is given more than once"}
}

// fromText reads a value of a URL.
func (p *param) fromText(s string) (value, *Problem) {
	if !utf8.ValidString(s) {
		return value{}, &Problem{Code: InvalidUTF8, Field: p.name, Detail: p.name + " is not valid UTF-8"}
	}
	switch p.kind {
	case kindInt:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // then n is the nearest there is, and set names the limit
			return value{}, badParam(p.name, "it is a whole number")
		}
		return value{num: n}, nil
	case kindFloat:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || strings.ContainsAny(s, "xX_") {
			return value{}, badParam(p.name, "it is a finite number")
		}
		return value{float: f}, nil
	case kindBool:
		if s != "true" && s != "false" {
			return value{}, badParam(p.name, "it is true or false")
		}
		return value{yes: s == "true"}, nil
	case kindList:
		v := value{list: []string{}}
		if s == "" {
			return v, nil
		}
		for item := range strings.SplitSeq(s, ",") {
			if item == "" {
				return value{}, badParam(p.name, "an item of the list is empty")
			}
			v.list = append(v.list, item)
		}
		v.list = unique(v.list)
		return v, nil
	}
	return value{text: s}, nil
}

// fromJSON reads a value of a JSON body.
func (p *param) fromJSON(raw jsontext.Value) (value, *Problem) {
	k := raw.Kind()
	switch p.kind {
	case kindString:
		if k == '"' {
			return value{text: unquote(raw)}, nil
		}
		return value{}, badParam(p.name, "it is a string")
	case kindTotal:
		switch k {
		case '"':
			return value{text: unquote(raw)}, nil
		case '0':
			return value{text: string(raw)}, nil
		}
		return value{}, badParam(p.name, "it is a string or a number")
	case kindInt, kindFloat:
		if k != '0' {
			return value{}, badParam(p.name, "it is a number")
		}
		return p.fromText(string(raw))
	case kindBool:
		if k != 't' && k != 'f' {
			return value{}, badParam(p.name, "it is true or false")
		}
		return value{yes: k == 't'}, nil
	}
	if k != '[' {
		return value{}, badParam(p.name, "it is an array of strings")
	}
	v := value{list: []string{}}
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	for {
		tok, err := d.ReadToken()
		if err != nil {
			// The value was read as a whole before, and its closing bracket ends the loop.
			return value{}, badParam(p.name, "it is an array of strings")
		}
		switch tok.Kind() {
		case '"':
			if tok.String() == "" {
				return value{}, badParam(p.name, "an item of the list is empty")
			}
			v.list = append(v.list, tok.String())
		case '[':
			if d.StackDepth() > 1 {
				return value{}, badParam(p.name, "it is an array of strings")
			}
		case ']':
			v.list = unique(v.list)
			return v, nil
		default:
			return value{}, badParam(p.name, "it is an array of strings")
		}
	}
}

// unique drops what came before.
func unique(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}

func unquote(raw jsontext.Value) string {
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		// The decoder accepted the string, so that it is one.
		return ""
	}
	return string(b)
}

// JSONProblem is the problem of a body that is not valid JSON, with line and position.
func JSONProblem(body []byte, err error) *Problem {
	at := len(body)
	code, detail := InvalidJSON, "the JSON text ends too early"
	if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok && syn.ByteOffset <= int64(len(body)) {
		at = int(syn.ByteOffset)
		if syn.Err != nil && !isUnexpectedEnd(syn.Err) {
			detail = Clip(syn.Err.Error())
			if strings.Contains(detail, "invalid UTF-8") || strings.Contains(detail, "invalid surrogate") {
				code = InvalidUTF8
			}
			if errors.Is(syn.Err, jsontext.ErrDuplicateName) {
				detail = "member " + strconv.Quote(Clip(syn.JSONPointer.LastToken())) + " is given more than once"
			}
		}
	}
	return atByte(body, NewProblem(code, detail), at)
}

// atByte sets position and line of a fault in a body.
func atByte(body []byte, p *Problem, at int) *Problem {
	p.Line = 1 + bytes.Count(body[:at], []byte{'\n'})
	return p.At(at)
}

// clipBytes is the most of a caller's text that a problem repeats.
const clipBytes = 128

// Clip shortens text of a caller for a message, and makes it valid UTF-8.
func Clip(s string) string {
	if len(s) > clipBytes {
		s = s[:clipBytes] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func sortedKeys(v url.Values) []string {
	keys := make([]string, 0, len(v))
	for k := range v {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
