package bound

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/wire/jsonscan"
)

// Selector says which members of a source are given back. The zero value gives back all of them.
type Selector struct {
	mode  pickMode
	names map[string]bool // field paths with dots
	above map[string]bool // every proper prefix of a name, at a dot
}

type pickMode uint8

const (
	pickAll pickMode = iota
	pickNothing
	pickNamed    // only the names
	pickAllOther // all but the names
)

// SelectorOf is the selector of a search: the fields and objects it names, or with nil all that are stored. A name that is
// neither a field nor the beginning of one's name, or has nothing stored, is a problem.
func SelectorOf(sch *schema.Schema, fields []string) (Selector, *api.Problem) {
	if fields == nil {
		return StoredOnly(sch), nil
	}
	if len(fields) == 0 {
		return Selector{mode: pickNothing}, nil
	}
	// One pass over the schema, whatever a caller sends: what stands under each name.
	type found struct {
		stored []string
		hidden bool
	}
	asked := make(map[string]*found, len(fields))
	for _, name := range fields {
		asked[name] = &found{}
	}
	for i := range sch.Fields {
		f := &sch.Fields[i]
		for at := 0; at <= len(f.Name); at++ {
			if at < len(f.Name) && f.Name[at] != '.' {
				continue
			}
			if a := asked[f.Name[:at]]; a != nil && f.Stored {
				a.stored = append(a.stored, f.Name)
			} else if a != nil {
				a.hidden = true
			}
		}
	}
	var names []string
	for _, name := range fields {
		a := asked[name]
		switch {
		case a.stored == nil && !a.hidden:
			return Selector{}, UnknownField(name, "fields")
		case a.stored == nil:
			return Selector{}, &api.Problem{Code: api.InvalidField, Field: name, Detail: fmt.Sprintf("fields: field %q is not stored", name)}
		case !a.hidden:
			names = append(names, name) // whole, with the members that are no fields, such as null
		}
		names = append(names, a.stored...)
	}
	return newSelector(pickNamed, names), nil
}

// StoredOnly leaves out the fields that are declared as not stored.
func StoredOnly(sch *schema.Schema) Selector {
	var hidden []string
	for i := range sch.Fields {
		if !sch.Fields[i].Stored {
			hidden = append(hidden, sch.Fields[i].Name)
		}
	}
	if hidden == nil {
		return Selector{}
	}
	return newSelector(pickAllOther, hidden)
}

func newSelector(mode pickMode, names []string) Selector {
	s := Selector{mode: mode, names: make(map[string]bool, len(names)), above: map[string]bool{}}
	for _, name := range names {
		s.names[name] = true
		for i := range len(name) {
			if name[i] == '.' {
				s.above[name[:i]] = true
			}
		}
	}
	return s
}

// Nothing tells whether no source is given back at all.
func (s Selector) Nothing() bool { return s.mode == pickNothing }

// Apply returns the object with the picked members, in their order and as they were written. Members of nested objects, also of
// objects in arrays, are picked by their path.
func (s Selector) Apply(src []byte) ([]byte, error) {
	if s.mode == pickAll {
		return src, nil
	}
	return s.object(make([]byte, 0, len(src)), src, "")
}

// object appends the picked members of the object v.
func (s Selector) object(dst, v []byte, path string) ([]byte, error) {
	p := jsonscan.Members(v)
	dst = append(dst, '{')
	first := true
	for p.Next() {
		name, err := nameOf(&p)
		if err != nil {
			return nil, err
		}
		var named, above bool
		if path == "" { // nothing is made of the name
			named, above = s.names[string(name)], s.above[string(name)]
		} else {
			member := path + "." + string(name)
			named, above = s.names[member], s.above[member]
		}
		// A name may hold dots itself: {"a.b": 1} is the field a.b as well as {"a": {"b": 1}} is.
		above = above && (p.Value[0] == '{' || p.Value[0] == '[')
		whole := named && s.mode == pickNamed || !named && !above && s.mode == pickAllOther
		if !whole && (!above || named) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if p.Plain {
			dst = append(dst, p.Name...)
		} else {
			dst = api.AppendString(dst, string(name))
		}
		dst = append(dst, ':')
		if whole {
			dst = append(dst, p.Value...)
			continue
		}
		member := string(name)
		if path != "" {
			member = path + "." + member
		}
		if dst, err = s.nested(dst, p.Value, member); err != nil {
			return nil, err
		}
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// nameOf is the name of a member.
func nameOf(p *jsonscan.Parts) ([]byte, error) {
	if p.Plain {
		return p.Name[1 : len(p.Name)-1], nil
	}
	return jsontext.AppendUnquote(nil, p.Name)
}

// nested appends what is picked of an object, or of each object of an array.
func (s Selector) nested(dst, v []byte, path string) ([]byte, error) {
	if v[0] == '{' {
		return s.object(dst, v, path)
	}
	p := jsonscan.Elements(v)
	dst = append(dst, '[')
	first := true
	for p.Next() {
		object := p.Value[0] == '{'
		if !object && s.mode == pickNamed {
			continue // a bare value belongs to the field of the path, which was not named
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if !object {
			dst = append(dst, p.Value...)
			continue
		}
		var err error
		if dst, err = s.object(dst, p.Value, path); err != nil {
			return nil, err
		}
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return append(dst, ']'), nil
}
