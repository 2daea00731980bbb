package api

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/highlight"
)

// Highlight says which parts of the hits' texts to show with the words marked that the query found.
type Highlight struct {
	Fields       []string // "*" stands for every stored text field that the query searches, of each hit the first MaxHighlight where words were found
	FragmentSize int      // bytes of a fragment at most
	Fragments    int      // of each field, the best ones
	Pre, Post    string   // around what was found
	Raw          bool     // the text is not escaped for HTML
}

// Defaults and limits of highlighting.
const (
	DefaultFragmentSize = highlight.DefaultBytes
	DefaultFragments    = highlight.DefaultFragments
	MaxFragmentSize     = 10_000
)

// EveryField is the name in Highlight.Fields that stands for every field.
const EveryField = "*"

func (p *parsing) setHighlight(v value) *Problem {
	h := &Highlight{FragmentSize: DefaultFragmentSize, Fragments: DefaultFragments, Pre: "<em>", Post: "</em>"}
	p.Highlight = h
	list := func(v jsontext.Value) *Problem {
		list, prob := (&param{name: "highlight", kind: kindList}).fromJSON(v)
		h.Fields = list.list
		return prob
	}
	text := func(s string) *Problem {
		list, prob := (&param{name: "highlight", kind: kindList}).fromText(s)
		h.Fields = list.list
		return prob
	}
	var prob *Problem
	switch {
	case v.raw == nil:
		prob = text(v.texts[0])
	case v.raw.Kind() == '"':
		prob = text(unquote(v.raw))
	case v.raw.Kind() == '[':
		prob = list(v.raw)
	case v.raw.Kind() == '{':
		prob = eachMember("highlight", v.raw, func(member string, v jsontext.Value) *Problem {
			var prob *Problem
			switch member {
			case "fields":
				prob = list(v)
			case "fragment_size":
				h.FragmentSize, prob = intOf("highlight", member, v, highlight.MinBytes, MaxFragmentSize)
			case "fragments":
				h.Fragments, prob = intOf("highlight", member, v, 1, highlight.MaxFragments)
			case "pre":
				h.Pre, prob = tagOf(member, v)
			case "post":
				h.Post, prob = tagOf(member, v)
			case "escape":
				var s string
				if s, prob = stringOf("highlight", member, v); prob == nil && s != "html" && s != "none" {
					return badParam("highlight", "escape is html or none")
				}
				h.Raw = s == "none"
			default:
				return unknownMember("highlight", member, "the object")
			}
			return prob
		})
	default:
		return badParam("highlight", "it is a list of fields or an object")
	}
	if prob != nil {
		return prob
	}
	return h.Check()
}

// Check refuses what a request could not ask for. A FragmentSize or Fragments of 0 stands for the default.
func (h *Highlight) Check() *Problem {
	switch {
	case len(h.Fields) == 0:
		return badParam("highlight", "it names no field; * stands for every text field that the query searches")
	case len(h.Fields) > MaxHighlight:
		return badParam("highlight", fmt.Sprintf("it names %d fields, at most %d are allowed", len(h.Fields), MaxHighlight)).Within(MaxHighlight)
	}
	for _, n := range []struct {
		member            string
		have, least, most int
	}{{"fragment_size", h.FragmentSize, highlight.MinBytes, MaxFragmentSize}, {"fragments", h.Fragments, 1, highlight.MaxFragments}} {
		if n.have != 0 && (n.have < n.least || n.have > n.most) {
			return badParam("highlight", fmt.Sprintf("%s is a number from %d to %d", n.member, n.least, n.most)).Within(int64(n.most))
		}
	}
	for _, m := range []struct{ member, text string }{{"pre", h.Pre}, {"post", h.Post}} {
		if !mark(m.text) {
			return badMark(m.member)
		}
	}
	return nil
}

// tagOf reads a mark, which may be empty.
func tagOf(member string, v jsontext.Value) (string, *Problem) {
	if v.Kind() != '"' {
		return "", badParam("highlight", member+" is a string")
	}
	s := unquote(v)
	if !mark(s) {
		return "", badMark(member)
	}
	return s, nil
}

// mark tells whether a text can stand around what was found.
func mark(s string) bool {
	return len(s) <= highlight.MaxMarkBytes && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

func badMark(member string) *Problem {
	return badParam("highlight", fmt.Sprintf("%s is a text of at most %d bytes", member, highlight.MaxMarkBytes)).Within(highlight.MaxMarkBytes)
}
