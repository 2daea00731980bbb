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
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// fromURL reads the values that a URL has for the parameter, one or for kindRepeat more.
func (p *param) fromURL(texts []string) (value, *Problem) {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return value{}, &Problem{Code: InvalidUTF8, Field: p.name, Detail: p.name + " is not valid UTF-8"}
		}
	}
	if p.kind == kindOwn || p.kind == kindRepeat {
		return value{texts: texts}, nil
	}
	return p.fromText(texts[0])
}

// fromText reads a scalar or a list.
func (p *param) fromText(s string) (value, *Problem) {
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
	case kindOwn, kindRepeat:
		return value{raw: raw}, nil
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

// eachMember calls fn for each member of an object. The value dies when fn returns.
func eachMember(name string, raw jsontext.Value, fn func(member string, v jsontext.Value) *Problem) *Problem {
	if raw.Kind() != '{' {
		return badParam(name, "it is an object")
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(raw)) // which it reads in place
	if _, err := d.ReadToken(); err != nil {
		return JSONProblem(raw, err)
	}
	for d.PeekKind() != '}' {
		tok, err := d.ReadToken()
		if err != nil {
			return JSONProblem(raw, err)
		}
		member := tok.String()
		v, err := d.ReadValue()
		if err != nil {
			return JSONProblem(raw, err)
		}
		if prob := fn(member, v); prob != nil {
			return prob
		}
	}
	return nil
}

// eachItem calls fn for each item of an array. The value dies when fn returns.
func eachItem(name string, raw jsontext.Value, fn func(i int, v jsontext.Value) *Problem) *Problem {
	if raw.Kind() != '[' {
		return badParam(name, "it is an array")
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(raw)) // which it reads in place
	if _, err := d.ReadToken(); err != nil {
		return JSONProblem(raw, err)
	}
	for i := 0; d.PeekKind() != ']'; i++ {
		v, err := d.ReadValue()
		if err != nil {
			return JSONProblem(raw, err)
		}
		if prob := fn(i, v); prob != nil {
			return prob
		}
	}
	return nil
}

// unknownMember is the problem of a member that an object of a parameter does not have.
func unknownMember(name, member, where string) *Problem {
	return &Problem{Code: UnknownParameter, Field: name, Detail: fmt.Sprintf("%s: %s has no member %q", name, where, Clip(member))}
}

// stringOf reads a string that is not empty.
func stringOf(name, what string, v jsontext.Value) (string, *Problem) {
	if v.Kind() == '"' {
		if s := unquote(v); s != "" {
			return s, nil
		}
	}
	return "", badParam(name, what+" is a string that is not empty")
}

// scalarOf reads a string, a number or a boolean as the text that stands for it in a column.
func scalarOf(name, what string, v jsontext.Value) (string, *Problem) {
	switch v.Kind() {
	case '"':
		return unquote(v), nil
	case '0', 't', 'f':
		return string(v), nil
	}
	return "", badParam(name, what+" is a string, a number, true or false")
}

// intOf reads a whole number from least to most.
func intOf(name, what string, v jsontext.Value, least, most int) (int, *Problem) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if v.Kind() != '0' || err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, badParam(name, what+" is a whole number")
	}
	if n < int64(least) || n > int64(most) {
		return 0, badParam(name, fmt.Sprintf("%s is a number from %d to %d", what, least, most)).Within(int64(most))
	}
	return int(n), nil
}

// float32Of reads a number that is finite as float32.
func float32Of(name, what, s string) (float32, *Problem) {
	f, err := strconv.ParseFloat(s, 32)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || strings.ContainsAny(s, "xX_") {
		return 0, badParam(name, what+" is a number that is finite as a 32-bit float")
	}
	return float32(f), nil
}

// boolOf reads true or false.
func boolOf(name, what string, v jsontext.Value) (bool, *Problem) {
	if k := v.Kind(); k != 't' && k != 'f' {
		return false, badParam(name, what+" is true or false")
	}
	return v.Kind() == 't', nil
}

// ParseCount reads a whole number from least to most.
func ParseCount(name, text string, least, most int) (int, *Problem) {
	v, prob := (&param{name: name, kind: kindInt}).fromText(text)
	if prob != nil {
		return 0, prob
	}
	n := 0
	prob = setCount(&n, name, least, most, v.num)
	return n, prob
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

// detailBytes bounds a detail that repeats text of a caller.
const detailBytes = 512

// ClipDetail shortens a detail that repeats text of a caller, and makes it valid UTF-8.
func ClipDetail(s string) string {
	if len(s) > detailBytes {
		s = s[:detailBytes] + "…"
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
