package node

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/node/api"
	"github.com/weft-search/weft/internal/schema"
)

// selector says which members of a source are given back.
type selector struct {
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

// selectorOf is the selector of a search: the fields it names, or with nil all that are stored.
func selectorOf(sch *schema.Schema, fields []string) selector {
	if fields == nil {
		return storedOnly(sch)
	}
	if len(fields) == 0 {
		return selector{mode: pickNothing}
	}
	var names []string
	for _, name := range fields {
		below, hidden := fieldsBelow(sch, name)
		if !hidden {
			names = append(names, name) // whole, with the members that are no fields, such as null
		}
		names = append(names, below...)
	}
	return newSelector(pickNamed, names)
}

// fieldsBelow returns the stored fields whose names go on from name at a dot, and whether there are others that are not stored.
func fieldsBelow(sch *schema.Schema, name string) (stored []string, hidden bool) {
	for i := range sch.Fields {
		f := &sch.Fields[i]
		if rest, ok := strings.CutPrefix(f.Name, name); !ok || !strings.HasPrefix(rest, ".") {
			continue
		}
		if f.Stored {
			stored = append(stored, f.Name)
		} else {
			hidden = true
		}
	}
	return stored, hidden
}

// storedOnly leaves out the fields that are declared as not stored.
func storedOnly(sch *schema.Schema) selector {
	var hidden []string
	for i := range sch.Fields {
		if !sch.Fields[i].Stored {
			hidden = append(hidden, sch.Fields[i].Name)
		}
	}
	if hidden == nil {
		return selector{}
	}
	return newSelector(pickAllOther, hidden)
}

func newSelector(mode pickMode, names []string) selector {
	s := selector{mode: mode, names: make(map[string]bool, len(names)), above: map[string]bool{}}
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

// apply returns the object with the picked members, in their order and as they were written. Members of nested objects, also of
// objects in arrays, are picked by their path.
func (s selector) apply(src []byte) ([]byte, error) {
	if s.mode == pickAll {
		return src, nil
	}
	return s.object(make([]byte, 0, len(src)), src, "")
}

// object appends the picked members of the object v.
func (s selector) object(dst []byte, v jsontext.Value, path string) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	dst = append(dst, '{')
	first := true
	for d.PeekKind() != '}' {
		tok, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := tok.String()
		member := name
		if path != "" {
			member = path + "." + name
		}
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		// A name may hold dots itself: {"a.b": 1} is the field a.b as well as {"a": {"b": 1}} is.
		named, above := s.names[member], s.above[member] && (value.Kind() == '{' || value.Kind() == '[')
		whole := named && s.mode == pickNamed || !named && !above && s.mode == pickAllOther
		if !whole && (!above || named) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = api.AppendString(dst, name)
		dst = append(dst, ':')
		if whole {
			dst = append(dst, value...)
		} else if dst, err = s.nested(dst, value, member); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// nested appends what is picked of an object, or of each object of an array.
func (s selector) nested(dst []byte, v jsontext.Value, path string) ([]byte, error) {
	if v.Kind() == '{' {
		return s.object(dst, v, path)
	}
	d := jsontext.NewDecoder(bytes.NewReader(v))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	dst = append(dst, '[')
	first := true
	for d.PeekKind() != ']' {
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		if value.Kind() != '{' && s.mode == pickNamed {
			continue // a bare value belongs to the field of the path, which was not named
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if value.Kind() != '{' {
			dst = append(dst, value...)
			continue
		}
		if dst, err = s.object(dst, value, path); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}
