package agg

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/weft-search/weft/internal/schema"
)

// DefaultPercents are those of a percentiles aggregation that names none.
var DefaultPercents = []string{"50", "90", "99"}

// Parse reads the form that aggregations have in a URL: a comma list of name:kind(arguments), with space allowed around each part.
//
//	terms(field) terms(field,size) stats(field) histogram(field,interval) date_histogram(field,interval)
//	range(field,a..b,..c,d..) percentiles(field) percentiles(field,50,99.9) cardinality(field) filter(query)
//
// The query of a filter runs to the parenthesis that closes it; those in "quotes" and after a backslash do not count. Errors are
// *SpecError.
func Parse(list string) ([]Spec, error) {
	if len(list) > MaxSourceBytes {
		return nil, &SpecError{Code: CodeLimit, Limit: MaxSourceBytes, Reason: fmt.Sprintf("the list of aggregations must not exceed %d bytes (got %d)", MaxSourceBytes, len(list)), Position: MaxSourceBytes}
	}
	if !utf8.ValidString(list) {
		return nil, &SpecError{Code: CodeInvalid, Reason: "the list of aggregations is not UTF-8", Position: 0}
	}
	var specs []Spec
	p := urlParser{src: list}
	for {
		s, err := p.spec()
		if err != nil {
			return nil, err
		}
		if specs = append(specs, s); len(specs) > MaxAggregations {
			return nil, tooMany(s.pos - 1)
		}
		p.space()
		if p.at == len(list) {
			break
		}
		if list[p.at] != ',' {
			return nil, p.fail(s.Name, "expected a comma and the next aggregation")
		}
		p.at++
	}
	if err := checkAll(specs); err != nil {
		return nil, err
	}
	return specs, nil
}

func tooMany(pos int) error {
	return &SpecError{Code: CodeLimit, Limit: MaxAggregations, Reason: fmt.Sprintf("a request has at most %d aggregations", MaxAggregations), Position: pos}
}

type urlParser struct {
	src string
	at  int
}

func (p *urlParser) fail(name, reason string) error {
	return &SpecError{Code: CodeInvalid, Name: clip(name), Reason: reason, Position: p.at}
}

func (p *urlParser) space() {
	for p.at < len(p.src) && (p.src[p.at] == ' ' || p.src[p.at] == '\t') {
		p.at++
	}
}

// until returns the text before the first of stops, without the space around it; the parser stands at the stop.
func (p *urlParser) until(stops string) (string, bool) {
	n := strings.IndexAny(p.src[p.at:], stops)
	if n < 0 {
		return "", false
	}
	s := p.src[p.at : p.at+n]
	p.at += n
	return strings.TrimSpace(s), true
}

func (p *urlParser) spec() (Spec, error) {
	p.space()
	s := Spec{pos: p.at + 1}
	var ok bool
	if s.Name, ok = p.until(":,()"); !ok || p.src[p.at] != ':' {
		return s, p.fail(s.Name, "expected name:kind(arguments)")
	}
	p.at++
	p.space()
	start := p.at
	kind, ok := p.until(":,()")
	if !ok || p.src[p.at] != '(' {
		return s, p.fail(s.Name, "expected name:kind(arguments)")
	}
	if s.Kind, ok = kindOf(kind); !ok {
		p.at = start
		return s, p.fail(s.Name, fmt.Sprintf("unknown kind %q; the kinds are %s", clip(kind), kindList()))
	}
	p.at++
	args, offs, err := p.args(s.Name, s.Kind == Filter)
	if err != nil {
		return s, err
	}
	bad := func(i int, param, reason string) error {
		pos := p.at - 1
		if i < len(offs) {
			pos = offs[i]
		}
		return &SpecError{Code: CodeInvalid, Name: clip(s.Name), Field: s.Field, Param: param, Reason: reason, Position: pos}
	}
	if s.Kind == Filter {
		s.Filter = &Expr{Text: args[0]}
		return s, nil
	}
	s.Field = args[0]
	args, offs = args[1:], offs[1:]
	most := 0
	switch s.Kind {
	case Terms:
		most, s.Size = 1, DefaultSize
		if len(args) > 0 {
			n, err := strconv.ParseUint(args[0], 10, 31)
			if err != nil {
				return s, bad(0, "size", fmt.Sprintf("%q is not a whole number from 0 (all) to %d", clip(args[0]), MaxSize))
			}
			s.Size = int(n)
		}
	case Histogram, DateHistogram:
		most = 1
		if len(args) > 0 {
			s.Interval = args[0]
		}
	case Range:
		most = MaxRanges + 1 // one too many is told by the check
		for i, a := range args[:min(len(args), most)] {
			from, to, ok := strings.Cut(a, "..")
			if !ok {
				return s, bad(i, "ranges", fmt.Sprintf("%q is not a range; write a..b, ..b or a..", clip(a)))
			}
			s.Ranges = append(s.Ranges, Span{From: strings.TrimSpace(from), To: strings.TrimSpace(to)})
		}
	case Percentiles:
		most = MaxPercents + 1
		if s.Percents = DefaultPercents; len(args) > 0 {
			s.Percents = make([]string, len(args[:min(len(args), most)]))
			for i := range s.Percents {
				s.Percents[i] = plainPercent(args[i])
			}
		}
	}
	if len(args) > most && s.Kind != Range && s.Kind != Percentiles {
		return s, bad(most, "", fmt.Sprintf("%s takes a field and at most %d more", s.Kind, most))
	}
	return s, nil
}

// args reads up to the closing parenthesis and cuts at the commas that are not in parentheses, unless whole is set.
func (p *urlParser) args(name string, whole bool) (args []string, offs []int, err error) {
	open := p.at - 1
	depth, start := 0, p.at
	take := func() {
		lead := len(p.src[start:p.at]) - len(strings.TrimLeft(p.src[start:p.at], " \t"))
		args = append(args, strings.TrimSpace(p.src[start:p.at]))
		offs = append(offs, start+lead)
		start = p.at + 1
	}
	for ; p.at < len(p.src); p.at++ {
		switch c := p.src[p.at]; {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == ')':
			take()
			p.at++
			return args, offs, nil
		case c == ',' && depth == 0 && !whole:
			take()
		case c == '\\' && whole:
			p.at++
		case c == '"' && whole:
			for p.at++; p.at < len(p.src) && p.src[p.at] != '"'; p.at++ {
				if p.src[p.at] == '\\' {
					p.at++
				}
			}
		}
	}
	p.at = open
	return nil, nil, p.fail(name, "this parenthesis is not closed")
}

// plainPercent writes a percentage in the shortest decimal form; what is none stays as it is, for the check to refuse.
func plainPercent(s string) string {
	v, err := schema.ParseF64(s)
	if err != nil || len(s) > 400 || math.Abs(v) > 1e6 {
		return s
	}
	return strconv.FormatFloat(v+0, 'f', -1, 64)
}

// Facets returns the aggregations that facets stand for: all values of each field, named after it.
func Facets(fields []string) ([]Spec, error) {
	if len(fields) > MaxAggregations {
		return nil, &SpecError{Code: CodeLimit, Param: "facets", Limit: MaxAggregations, Reason: fmt.Sprintf("a request has at most %d facets (got %d)", MaxAggregations, len(fields)), Position: -1}
	}
	specs := make([]Spec, len(fields))
	for i, f := range fields {
		specs[i] = Spec{Name: f, Kind: Terms, Field: f, facet: true}
	}
	if err := checkAll(specs); err != nil {
		return nil, err
	}
	return specs, nil
}

// ParseJSON reads the form that aggregations have in a JSON request, an object of
//
//	"name": {"kind": "terms", "field": "f", "size": 10, "filter": …, "aggs": {…}}
//
// with the members interval (a string or number), ranges ("a..b" or {"from": a, "to": b}), percents (numbers) for the kinds that
// take them, filter for every kind (a query string, or JSON that is kept as it is), and aggs, one level of aggregations over the
// documents of each bucket. Members that are unknown, repeated or of the wrong type are a *SpecError.
func ParseJSON(src []byte) ([]Spec, error) {
	if len(src) > MaxSourceBytes {
		return nil, &SpecError{Code: CodeLimit, Limit: MaxSourceBytes, Reason: fmt.Sprintf("the aggregations must not exceed %d bytes (got %d)", MaxSourceBytes, len(src)), Position: MaxSourceBytes}
	}
	p := jsonParser{src: src, dec: jsontext.NewDecoder(bytes.NewReader(src))}
	specs, err := p.aggs("", 1)
	if err != nil {
		return nil, err
	}
	if off := p.offset(); off < len(src) {
		return nil, p.fail("", "", "expected the end of the text")
	}
	if err := checkAll(specs); err != nil {
		return nil, err
	}
	return specs, nil
}

type jsonParser struct {
	src   []byte
	dec   *jsontext.Decoder
	count int
}

// offset returns where the next token starts.
func (p *jsonParser) offset() int {
	off := int(p.dec.InputOffset())
	for off < len(p.src) && bytes.IndexByte([]byte(" \t\r\n,:"), p.src[off]) >= 0 {
		off++
	}
	return off
}

func (p *jsonParser) fail(name, param, reason string) error {
	return &SpecError{Code: CodeInvalid, Name: clip(name), Param: param, Reason: reason, Position: p.offset()}
}

// broken turns an error of the JSON reader into one with a position.
func (p *jsonParser) broken(name string, err error) error {
	e := &SpecError{Code: CodeInvalid, Name: clip(name), Reason: "not valid JSON: " + err.Error(), Position: p.offset()}
	var se *jsontext.SyntacticError
	if errors.As(err, &se) {
		e.Position = int(se.ByteOffset)
		if errors.Is(err, jsontext.ErrDuplicateName) {
			e.Reason = fmt.Sprintf("member %q is given twice", clip(se.JSONPointer.LastToken()))
		} else if se.Err != nil {
			e.Reason = "not valid JSON: " + se.Err.Error()
		}
	}
	return e
}

func (p *jsonParser) aggs(outer string, level int) ([]Spec, error) {
	if p.dec.PeekKind() != '{' {
		return nil, p.unexpected(outer, "aggs", "an object of aggregations")
	}
	if level > MaxDepth {
		return nil, &SpecError{Code: CodeLimit, Name: clip(outer), Param: "aggs", Limit: MaxDepth, Reason: fmt.Sprintf("aggregations are nested at most %d deep", MaxDepth), Position: p.offset()}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, p.broken(outer, err)
	}
	var specs []Spec
	for p.dec.PeekKind() != '}' {
		pos := p.offset()
		tok, err := p.dec.ReadToken()
		if err != nil {
			return nil, p.broken(outer, err)
		}
		if p.count++; p.count > MaxAggregations {
			return nil, tooMany(pos)
		}
		name := tok.String()
		path := name
		if outer != "" {
			path = outer + ">" + name
		}
		s, err := p.spec(path, level)
		if err != nil {
			return nil, err
		}
		s.Name, s.pos = name, pos+1
		specs = append(specs, s)
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, p.broken(outer, err)
	}
	return specs, nil
}

// unexpected tells what stands where something else is wanted.
func (p *jsonParser) unexpected(path, param, want string) error {
	if _, err := p.dec.ReadValue(); err != nil {
		return p.broken(path, err)
	}
	e := p.fail(path, param, "expected "+want)
	return e
}

func (p *jsonParser) spec(path string, level int) (Spec, error) {
	var s Spec
	if p.dec.PeekKind() != '{' {
		return s, p.unexpected(path, "", `an object with the member "kind"`)
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return s, p.broken(path, err)
	}
	size := false
	for p.dec.PeekKind() != '}' {
		tok, err := p.dec.ReadToken()
		if err != nil {
			return s, p.broken(path, err)
		}
		switch member := tok.String(); member {
		case "kind":
			at := p.offset()
			name, err := p.text(path, member)
			if err != nil {
				return s, err
			}
			var ok bool
			if s.Kind, ok = kindOf(name); !ok {
				return s, &SpecError{Code: CodeInvalid, Name: clip(path), Param: member, Reason: fmt.Sprintf("unknown kind %q; the kinds are %s", clip(name), kindList()), Position: at}
			}
		case "field":
			if s.Field, err = p.text(path, member); err != nil {
				return s, err
			}
		case "size":
			at := p.offset()
			text, err := p.scalar(path, member, false)
			if err != nil {
				return s, err
			}
			n, err := schema.ParseU64(text)
			if err != nil || n > math.MaxInt32 {
				return s, &SpecError{Code: CodeInvalid, Name: clip(path), Param: member, Limit: MaxSize, Reason: fmt.Sprintf("%q is not a whole number from 0 (all) to %d", clip(text), MaxSize), Position: at}
			}
			s.Size, size = int(n), true
		case "interval":
			if s.Interval, err = p.scalar(path, member, true); err != nil {
				return s, err
			}
		case "percents":
			err = p.list(path, member, MaxPercents, func() error {
				text, err := p.scalar(path, member, true)
				s.Percents = append(s.Percents, plainPercent(text))
				return err
			})
			if err != nil {
				return s, err
			}
		case "ranges":
			err = p.list(path, member, MaxRanges, func() error {
				r, err := p.span(path)
				s.Ranges = append(s.Ranges, r)
				return err
			})
			if err != nil {
				return s, err
			}
		case "filter":
			if p.dec.PeekKind() == '"' {
				text, err := p.text(path, member)
				if err != nil {
					return s, err
				}
				s.Filter = &Expr{Text: text}
				break
			}
			raw, err := p.dec.ReadValue()
			if err != nil {
				return s, p.broken(path, err)
			}
			s.Filter = &Expr{Text: string(raw), JSON: true}
		case "aggs":
			if s.Aggs, err = p.aggs(path, level+1); err != nil {
				return s, err
			}
		default:
			reason := fmt.Sprintf("unknown member %q", clip(member))
			if kind, ok := kindOf(member); ok && s.Kind == 0 { // as other search engines write it
				reason += fmt.Sprintf(`; an aggregation is {"kind":%q,"field":…}`, kind)
			}
			return s, p.fail(path, clip(member), reason)
		}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return s, p.broken(path, err)
	}
	if s.Kind == 0 {
		return s, p.fail(path, "kind", `the member "kind" is missing`)
	}
	if s.Kind == Terms && !size {
		s.Size = DefaultSize
	}
	if size && s.Kind != Terms {
		return s, p.fail(path, "size", fmt.Sprintf("%s takes no size", s.Kind))
	}
	if s.Kind == Percentiles && s.Percents == nil {
		s.Percents = DefaultPercents
	}
	return s, nil
}

func (p *jsonParser) text(path, member string) (string, error) {
	if p.dec.PeekKind() != '"' {
		return "", p.unexpected(path, member, "a string")
	}
	tok, err := p.dec.ReadToken()
	if err != nil {
		return "", p.broken(path, err)
	}
	return tok.String(), nil
}

// scalar reads a number, as written, or a string where one is allowed.
func (p *jsonParser) scalar(path, member string, text bool) (string, error) {
	switch k := p.dec.PeekKind(); {
	case k == '0', k == '"' && text:
	case text:
		return "", p.unexpected(path, member, "a number or a string")
	default:
		return "", p.unexpected(path, member, "a number")
	}
	tok, err := p.dec.ReadToken()
	if err != nil {
		return "", p.broken(path, err)
	}
	return tok.String(), nil
}

func (p *jsonParser) list(path, member string, most int, each func() error) error {
	if p.dec.PeekKind() != '[' {
		return p.unexpected(path, member, "an array")
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.broken(path, err)
	}
	for n := 0; p.dec.PeekKind() != ']'; n++ {
		if n == most {
			return &SpecError{Code: CodeLimit, Name: clip(path), Param: member, Limit: int64(most), Reason: fmt.Sprintf("at most %d are allowed", most), Position: p.offset()}
		}
		if err := each(); err != nil {
			return err
		}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.broken(path, err)
	}
	return nil
}

// span reads "a..b" or {"from": a, "to": b}.
func (p *jsonParser) span(path string) (Span, error) {
	var r Span
	switch p.dec.PeekKind() {
	case '"':
		at := p.offset()
		text, err := p.text(path, "ranges")
		if err != nil {
			return r, err
		}
		from, to, ok := strings.Cut(text, "..")
		if !ok {
			return r, &SpecError{Code: CodeInvalid, Name: clip(path), Param: "ranges", Reason: fmt.Sprintf("%q is not a range; write a..b, ..b or a..", clip(text)), Position: at}
		}
		return Span{From: strings.TrimSpace(from), To: strings.TrimSpace(to)}, nil
	case '{':
		if _, err := p.dec.ReadToken(); err != nil {
			return r, p.broken(path, err)
		}
		for p.dec.PeekKind() != '}' {
			tok, err := p.dec.ReadToken()
			if err != nil {
				return r, p.broken(path, err)
			}
			end := &r.From
			switch member := tok.String(); member {
			case "from":
			case "to":
				end = &r.To
			default:
				return r, p.fail(path, "ranges", fmt.Sprintf("unknown member %q of a range", clip(member)))
			}
			if p.dec.PeekKind() == 'n' {
				if _, err := p.dec.ReadToken(); err != nil {
					return r, p.broken(path, err)
				}
				continue
			}
			if *end, err = p.scalar(path, "ranges", true); err != nil {
				return r, err
			}
		}
		if _, err := p.dec.ReadToken(); err != nil {
			return r, p.broken(path, err)
		}
		return r, nil
	}
	return r, p.unexpected(path, "ranges", `"a..b" or an object with "from" and "to"`)
}

// checkAll checks what can be checked without a schema.
func checkAll(specs []Spec) error {
	c := checker{}
	return c.level(specs, "", 1)
}

type checker struct{ count int }

func (c *checker) level(specs []Spec, outer string, level int) error {
	seen := make(map[string]bool, min(len(specs), MaxAggregations))
	for i := range specs {
		s := &specs[i]
		if c.count++; c.count > MaxAggregations {
			return tooMany(s.pos - 1)
		}
		path := s.Name
		if outer != "" {
			path = outer + ">" + s.Name
		}
		if err := s.check(path); err != nil {
			return err
		}
		if seen[s.Name] {
			return s.fault(path, "", CodeInvalid, 0, "the name is given twice")
		}
		seen[s.Name] = true
		if len(s.Aggs) == 0 {
			continue
		}
		if level == MaxDepth {
			return s.fault(path, "aggs", CodeLimit, MaxDepth, fmt.Sprintf("aggregations are nested at most %d deep", MaxDepth))
		}
		if err := c.level(s.Aggs, path, level+1); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) fault(path, param string, code Code, limit int64, reason string) error {
	if s.facet {
		path = "" // the field says which one
	}
	return &SpecError{Code: code, Name: clip(path), Field: clip(s.Field), Param: param, Limit: limit, Reason: reason, Position: s.pos - 1}
}

func (s *Spec) check(path string) error {
	bad := func(param, format string, args ...any) error {
		return s.fault(path, param, CodeInvalid, 0, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Name == "":
		return bad("", "an aggregation needs a name")
	case len(s.Name) > MaxNameBytes && !s.facet: // that of a facet is its field, which has a limit of its own
		return s.fault(path, "", CodeLimit, MaxNameBytes, fmt.Sprintf("a name must not exceed %d bytes (got %d)", MaxNameBytes, len(s.Name)))
	case !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return bad("", "a name must be UTF-8 without control characters")
	case s.Kind < Terms || s.Kind > Filter:
		return bad("kind", "unknown kind; the kinds are %s", kindList())
	case s.Kind == Filter && s.Field != "":
		return bad("field", "filter takes no field")
	case s.Kind == Filter && s.Filter == nil:
		return bad("filter", "the filter is missing")
	case s.Kind != Filter && s.Field == "":
		return bad("field", "the field is missing")
	case len(s.Field) > MaxFieldBytes:
		return s.fault(path, "field", CodeLimit, MaxFieldBytes, fmt.Sprintf("the name of a field must not exceed %d bytes (got %d)", MaxFieldBytes, len(s.Field)))
	case s.Filter != nil && strings.TrimSpace(s.Filter.Text) == "":
		return bad("filter", "the filter is empty")
	case s.Kind != Terms && s.Size != 0:
		return bad("size", "%s takes no size", s.Kind)
	case s.Size < 0 || s.Size > MaxSize:
		return s.fault(path, "size", CodeLimit, MaxSize, fmt.Sprintf("the size runs from 0 (all) to %d (got %d)", MaxSize, s.Size))
	case s.Kind != Histogram && s.Kind != DateHistogram && s.Interval != "":
		return bad("interval", "%s takes no interval", s.Kind)
	case s.Kind != Range && s.Ranges != nil:
		return bad("ranges", "%s takes no ranges", s.Kind)
	case s.Kind != Percentiles && s.Percents != nil:
		return bad("percents", "%s takes no percents", s.Kind)
	case len(s.Aggs) > 0 && !s.Kind.buckets():
		return bad("aggs", "%s has no buckets to aggregate in", s.Kind)
	}
	switch s.Kind {
	case Histogram:
		v, err := schema.ParseF64(s.Interval)
		switch {
		case s.Interval == "":
			return bad("interval", "the interval is missing")
		case len(s.Interval) > 400 || err != nil:
			return bad("interval", "%q is not a number above 0", clip(s.Interval))
		case v <= 0:
			return bad("interval", "the interval must be above 0 (got %s)", clip(s.Interval))
		}
	case DateHistogram:
		if _, ok := units[s.Interval]; !ok {
			return bad("interval", "%q is none of 1m (minute), 1h, 1d, 1w, 1M (month), 1q, 1y", clip(s.Interval))
		}
	case Range:
		if len(s.Ranges) == 0 {
			return bad("ranges", "the ranges are missing")
		}
		if len(s.Ranges) > MaxRanges {
			return s.fault(path, "ranges", CodeLimit, MaxRanges, fmt.Sprintf("at most %d ranges are allowed", MaxRanges))
		}
	case Percentiles:
		if len(s.Percents) == 0 {
			return bad("percents", "the percents are missing")
		}
		if len(s.Percents) > MaxPercents {
			return s.fault(path, "percents", CodeLimit, MaxPercents, fmt.Sprintf("at most %d percents are allowed", MaxPercents))
		}
		seen := map[string]bool{}
		for _, text := range s.Percents {
			if _, err := parsePercent(text); err != nil {
				return s.fault(path, "percents", CodeInvalid, 100, err.Error())
			}
			if seen[text] {
				return bad("percents", "%s is given twice", text)
			}
			seen[text] = true
		}
	}
	return nil
}

// percentScale is the unit of a percent: 12 digits behind the point.
const percentScale = 1_000_000_000_000

// parsePercent reads a decimal from 0 to 100 in units of 1/percentScale.
func parsePercent(text string) (uint64, error) {
	whole, frac, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole, "0") + frac
	if len(frac) > 12 || len(digits) > 15 || whole == "" || strings.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' }) {
		return 0, fmt.Errorf("%q is not a percentage from 0 to 100 with at most 12 digits behind the point", clip(text))
	}
	v := uint64(0)
	for _, c := range digits + strings.Repeat("0", 12-len(frac)) {
		v = v*10 + uint64(c-'0')
		if v > 100*percentScale {
			return 0, fmt.Errorf("a percentage is from 0 to 100 (got %s)", clip(text))
		}
	}
	return v, nil
}

func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > most-4 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
