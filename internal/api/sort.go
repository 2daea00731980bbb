package api

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// SortBy is what a key of the order reads.
type SortBy uint8

// What keys read.
const (
	ByScore SortBy = iota
	ByID
	ByField
)

// Pick says which of several values of a document counts.
type Pick uint8

// Picks.
const (
	Least Pick = iota
	Greatest
)

// SortKey is one key of the order of hits.
type SortKey struct {
	By           SortBy
	Field        string // ByField
	Numeric      bool   // the caller said that the field holds numbers
	Desc         bool
	MissingFirst bool // where documents without a value come
	Pick         Pick
}

// sortText is a key as it was given; what it leaves out comes from other parameters.
type sortText struct {
	SortKey
	desc, missingFirst, greatest Choice
}

// numPrefix marks a key whose field has to hold numbers.
const numPrefix = "num:"

// sortName reads the name of a key.
func sortName(name string) (SortKey, bool) {
	switch name {
	case "score":
		return SortKey{By: ByScore}, true
	case "id":
		return SortKey{By: ByID}, true
	}
	field, numeric := strings.CutPrefix(name, numPrefix)
	return SortKey{By: ByField, Field: field, Numeric: numeric}, field != ""
}

// sortKey reads key[:asc|:desc][:min|:max].
func sortKey(s string) (sortText, *Problem) {
	name, t := s, sortText{}
	if n, ok := strings.CutSuffix(name, ":min"); ok {
		name, t.greatest = n, No
	} else if n, ok := strings.CutSuffix(name, ":max"); ok {
		name, t.greatest = n, Yes
	}
	if n, ok := strings.CutSuffix(name, ":asc"); ok {
		name, t.desc = n, No
	} else if n, ok := strings.CutSuffix(name, ":desc"); ok {
		name, t.desc = n, Yes
	}
	var ok bool
	if t.SortKey, ok = sortName(name); !ok {
		return t, badParam("sort", "a key is empty")
	}
	return t, t.check()
}

func (t *sortText) check() *Problem {
	if t.By != ByField && (t.greatest != Unsaid || t.missingFirst != Unsaid) {
		return badParam("sort", "score and id are one value that is always there; min, max and missing are for fields")
	}
	return nil
}

// sortObject reads {"key": name, "order", "mode", "missing"}, or {"field": name, …} for a field whatever its name.
func sortObject(raw jsontext.Value) (sortText, *Problem) {
	t, named := sortText{}, false
	choice := func(member string, v jsontext.Value, into *Choice, no, yes string) *Problem {
		s, prob := stringOf("sort", member, v)
		switch {
		case prob != nil:
			return prob
		case s == no:
			*into = No
		case s == yes:
			*into = Yes
		default:
			return badParam("sort", member+" is "+no+" or "+yes)
		}
		return nil
	}
	prob := eachMember("sort", raw, func(member string, v jsontext.Value) *Problem {
		switch member {
		case "key", "field":
			name, prob := stringOf("sort", member, v)
			if prob != nil {
				return prob
			}
			if named {
				return badParam("sort", "an object has key or field, not both")
			}
			named = true
			if member == "field" {
				t.SortKey = SortKey{By: ByField, Field: name}
				return nil
			}
			var ok bool
			if t.SortKey, ok = sortName(name); !ok {
				return badParam("sort", "a key is empty")
			}
			return nil
		case "order":
			return choice(member, v, &t.desc, "asc", "desc")
		case "mode":
			return choice(member, v, &t.greatest, "min", "max")
		case "missing":
			return choice(member, v, &t.missingFirst, "last", "first")
		}
		return unknownMember("sort", member, "a key")
	})
	if prob == nil && !named {
		prob = badParam("sort", "an object names no key")
	}
	if prob == nil {
		prob = t.check()
	}
	return t, prob
}

func (p *parsing) setSort(v value) *Problem {
	add := func(t sortText, prob *Problem) *Problem {
		if prob != nil {
			return prob
		}
		if len(p.sort) == MaxSortKeys {
			return badParam("sort", fmt.Sprintf("there are more than %d keys", MaxSortKeys)).Within(MaxSortKeys)
		}
		p.sort = append(p.sort, t)
		return nil
	}
	comma := func(s string) *Problem {
		if s == "" {
			return nil
		}
		for item := range strings.SplitSeq(s, ",") {
			if prob := add(sortKey(item)); prob != nil {
				return prob
			}
		}
		return nil
	}
	switch {
	case v.raw == nil:
		return comma(v.texts[0])
	case v.raw.Kind() == '"':
		return comma(unquote(v.raw))
	case v.raw.Kind() == '{':
		return add(sortObject(v.raw))
	}
	return eachItem("sort", v.raw, func(_ int, v jsontext.Value) *Problem {
		switch v.Kind() {
		case '"':
			return add(sortKey(unquote(v)))
		case '{':
			return add(sortObject(v))
		}
		return badParam("sort", "a key is a string or an object")
	})
}

// finishSort fills in what the keys leave out.
func (p *parsing) finishSort() {
	if len(p.sort) == 0 {
		if p.desc != No {
			return
		}
		p.sort = []sortText{{SortKey: SortKey{By: ByScore}}} // order alone turns the order by score round
	}
	for _, t := range p.sort {
		k := t.SortKey
		switch {
		case t.desc != Unsaid:
			k.Desc = t.desc == Yes
		case p.desc != Unsaid:
			k.Desc = p.desc == Yes
		default:
			k.Desc = k.By == ByScore
		}
		if k.By == ByField {
			k.MissingFirst = p.missingFirst
			if t.missingFirst != Unsaid {
				k.MissingFirst = t.missingFirst == Yes
			}
			if t.greatest == Yes || t.greatest == Unsaid && k.Desc {
				k.Pick = Greatest
			}
		}
		p.Sort = append(p.Sort, k)
	}
	if len(p.Sort) == 1 && p.Sort[0] == (SortKey{By: ByScore, Desc: true}) {
		p.Sort = nil // what there is without it
	}
}
