package schema

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ParseJSON reads a schema in JSON form:
//
//	{"name": "articles",
//	 "fields": [
//	   {"name": "title", "type": "text", "tokenizer": "en_stem"},
//	   {"name": "tags", "type": "keyword", "multi": true},
//	   {"name": "body", "type": "text", "indexed": {"positions": "none", "k1": 0.9, "b": 0.4, "options": ["common_grams: [\"a\"]"]}},
//	   {"name": "year", "type": "i64"},
//	   {"name": "emb", "type": "dense_vector", "dim": 768, "indexed": {"metric": "cosine", "options": ["flat"]}}],
//	 "default_fields": ["title"], "dynamic": false, "max_l1_phrase_terms": 64, "reorder_on_merge": true,
//	 "query_routers": [{"pattern": "^pmid:(\\d+)$", "substitution": "pubmed://{1}", "target_field": "tags", "mode": "additional"}]}
//
// Of a field only name and type are required. Types and their aliases are SDL's; keyword is text with the tokenizer raw. What is left
// out is chosen for use over HTTP, where it differs from SDL: indexed and stored are true; fast is true for numbers, dates and text
// with the tokenizer raw or raw_ci; other text keeps token positions. A member of "indexed" other than positions, chunked, k1, b and
// metric goes into "options", each as it would stand in indexed<…>. An index is dynamic if it says so; without fields it has to be.
//
// The reading is strict: unknown and repeated members, wrong types and everything that ParseSDL refuses are a *ParseError.
func ParseJSON(src string, check func(tokenizer string) error) (*Schema, error) {
	n, err := parseTree(src)
	if err != nil {
		return nil, err
	}
	d := jsonDecoder{src: src, check: check}
	return d.schema(n)
}

// UnmarshalJSON is ParseJSON without a check of tokenizers.
func (s *Schema) UnmarshalJSON(b []byte) error {
	p, err := ParseJSON(string(b), nil)
	if err != nil {
		return err
	}
	*s = *p
	return nil
}

// UnmarshalJSON reads one field as it stands in a schema's "fields". It does not check the tokenizer.
func (f *Field) UnmarshalJSON(b []byte) error {
	n, err := parseTree(string(b))
	if err != nil {
		return err
	}
	d := jsonDecoder{src: string(b)}
	out, where, err := d.field(n)
	if err != nil {
		return err
	}
	if flt := out.fault(); flt != nil {
		return errorAt(d.src, where.of(flt), "%s", flt.msg)
	}
	*f = out
	return nil
}

// node is a JSON value with its place in the text.
type node struct {
	off     int
	kind    jsontext.Kind // '{', '[', '"', '0', 't', 'f', 'n'
	str     string        // string, or number as written
	items   []*node       // array
	members []member      // object
}

type member struct {
	name  string
	off   int
	value *node
}

func (n *node) what() string {
	switch n.kind {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "the number " + n.str
	case 't':
		return "true"
	case 'f':
		return "false"
	}
	return "null"
}

const maxJSONDepth = 16

func parseTree(src string) (*node, error) {
	if len(src) > MaxSourceBytes {
		return nil, errorAt(src, MaxSourceBytes, "a schema must not exceed %d bytes (got %d)", MaxSourceBytes, len(src))
	}
	t := &treeReader{src: src, dec: jsontext.NewDecoder(strings.NewReader(src))}
	n, err := t.value(0)
	if err != nil {
		return nil, err
	}
	if off := t.offset(); off < len(src) {
		return nil, errorAt(src, off, "expected the end of the text")
	}
	return n, nil
}

type treeReader struct {
	src string
	dec *jsontext.Decoder
}

// offset returns where the next token starts.
func (t *treeReader) offset() int {
	off := int(t.dec.InputOffset())
	for off < len(t.src) && strings.IndexByte(" \t\r\n,:", t.src[off]) >= 0 {
		off++
	}
	return off
}

func (t *treeReader) fail(err error) error {
	off := t.offset()
	var se *jsontext.SyntacticError
	if errors.As(err, &se) {
		off = int(se.ByteOffset)
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return errorAt(t.src, off, "member %q is given twice", se.JSONPointer.LastToken())
		}
		if se.Err != nil {
			return errorAt(t.src, off, "not valid JSON: %s", se.Err)
		}
	}
	return errorAt(t.src, off, "not valid JSON: %s", err)
}

func (t *treeReader) value(depth int) (*node, error) {
	n := &node{off: t.offset()}
	tok, err := t.dec.ReadToken()
	if err != nil {
		return nil, t.fail(err)
	}
	n.kind = tok.Kind()
	switch n.kind {
	case '"', '0':
		n.str = tok.String()
	case '[', '{':
		if depth == maxJSONDepth {
			return nil, errorAt(t.src, n.off, "a schema is nested at most %d deep", maxJSONDepth)
		}
		for {
			k := t.dec.PeekKind()
			if k == ']' || k == '}' {
				break
			}
			var m member
			if n.kind == '{' {
				m.off = t.offset()
				tok, err := t.dec.ReadToken()
				if err != nil {
					return nil, t.fail(err)
				}
				m.name = tok.String()
			}
			v, err := t.value(depth + 1)
			if err != nil {
				return nil, err
			}
			if n.kind == '{' {
				m.value = v
				n.members = append(n.members, m)
			} else {
				n.items = append(n.items, v)
			}
		}
		if _, err := t.dec.ReadToken(); err != nil {
			return nil, t.fail(err)
		}
	}
	return n, nil
}

type jsonDecoder struct {
	src   string
	check func(string) error
}

func (d *jsonDecoder) errorf(n *node, format string, args ...any) error {
	return errorAt(d.src, n.off, format, args...)
}

// object calls read for every member; read reports false for a name that it does not know.
func (d *jsonDecoder) object(n *node, what string, known string, read func(name string, v *node) (bool, error)) error {
	if n.kind != '{' {
		return d.errorf(n, "expected %s as an object, found %s", what, n.what())
	}
	for _, m := range n.members {
		ok, err := read(m.name, m.value)
		if err != nil {
			return err
		}
		if !ok {
			return errorAt(d.src, m.off, "unknown member %q of %s: expected %s", m.name, what, known)
		}
	}
	return nil
}

func (d *jsonDecoder) text(n *node, what string) (string, error) {
	if n.kind != '"' {
		return "", d.errorf(n, "expected %s as a string, found %s", what, n.what())
	}
	return n.str, nil
}

func (d *jsonDecoder) flag(n *node, what string) (bool, error) {
	if n.kind != 't' && n.kind != 'f' {
		return false, d.errorf(n, "expected %s as true or false, found %s", what, n.what())
	}
	return n.kind == 't', nil
}

func (d *jsonDecoder) whole(n *node, what string, least, most uint64) (uint64, error) {
	if n.kind == '0' {
		if v, err := ParseU64(n.str); err == nil && v >= least && v <= most {
			return v, nil
		}
	}
	return 0, d.errorf(n, "expected %s as a whole number between %d and %d, found %s", what, least, most, n.what())
}

func (d *jsonDecoder) number32(n *node, what string) (float32, error) {
	if n.kind == '0' {
		if v, err := strconv.ParseFloat(n.str, 32); err == nil {
			return float32(v), nil
		}
	}
	return 0, d.errorf(n, "expected %s as a number, found %s", what, n.what())
}

func (d *jsonDecoder) array(n *node, what string, most int) ([]*node, error) {
	if n.kind != '[' {
		return nil, d.errorf(n, "expected %s as an array, found %s", what, n.what())
	}
	if len(n.items) > most {
		return nil, d.errorf(n, "%s has at most %d items (got %d)", what, most, len(n.items))
	}
	return n.items, nil
}

func (d *jsonDecoder) schema(n *node) (*Schema, error) {
	s := &Schema{Name: "_", Generation: 1}
	var fields []places
	var defaults []*node
	at := n.off
	err := d.object(n, "the schema", "name, fields, default_fields, dynamic, max_l1_phrase_terms, reorder_on_merge, query_routers or generation",
		func(name string, v *node) (known bool, err error) {
			switch name {
			case "name":
				if s.Name, err = d.text(v, "name"); err != nil {
					return true, err
				}
				if err := CheckFieldName(s.Name); err != nil {
					return true, d.errorf(v, "expected an index name: %s", strings.Replace(err.Error(), "a field name", "it", 1))
				}
			case "fields":
				at = v.off
				items, err := d.array(v, "fields", MaxFields)
				if err != nil {
					return true, err
				}
				s.Fields = make([]Field, 0, len(items))
				for _, item := range items {
					f, where, err := d.field(item)
					if err != nil {
						return true, err
					}
					s.Fields = append(s.Fields, f)
					fields = append(fields, where)
				}
			case "default_fields":
				if defaults, err = d.array(v, "default_fields", MaxFields); err != nil {
					return true, err
				}
				for _, item := range defaults {
					t, err := d.text(item, "a default field")
					if err != nil {
						return true, err
					}
					s.DefaultFields = append(s.DefaultFields, t)
				}
			case "dynamic":
				s.Dynamic, err = d.flag(v, name)
			case "max_l1_phrase_terms":
				var w uint64
				w, err = d.whole(v, name, 1, 1<<32-1)
				s.MaxL1PhraseTerms = int(w)
			case "reorder_on_merge":
				var on bool
				on, err = d.flag(v, name)
				s.ReorderOnMerge = &on
			case "generation":
				s.Generation, err = d.whole(v, name, 1, 1<<63)
			case "query_routers":
				items, err := d.array(v, name, maxListItems)
				if err != nil {
					return true, err
				}
				for _, item := range items {
					r, err := d.router(item)
					if err != nil {
						return true, err
					}
					s.Routers = append(s.Routers, r)
				}
			default:
				return false, nil
			}
			return true, err
		})
	if err != nil {
		return nil, err
	}
	if flt := s.fault(); flt != nil {
		if flt.field >= 0 {
			at = fields[flt.field].of(flt)
		}
		return nil, errorAt(d.src, at, "%s", flt.msg)
	}
	for i, name := range s.DefaultFields {
		if _, ok := s.Lookup(name); !ok && !s.Dynamic {
			return nil, d.errorf(defaults[i], "default field %q is not declared", name)
		}
	}
	return s, nil
}

const fieldMembers = "name, type, tokenizer, dim, element, indexed, stored, multi, fast, primary, content_hash, reorder, keyword_max or inferred"

func (d *jsonDecoder) field(n *node) (Field, places, error) {
	var f Field
	where := places{name: n.off, typ: n.off, params: n.off, attrs: n.off, primary: n.off}
	const unset, no, yes = 0, 1, 2
	stored, fast := unset, unset
	tri := func(on bool) int {
		if on {
			return yes
		}
		return no
	}
	var index *node
	keyword := false
	var tokenizer *node
	err := d.object(n, "a field", fieldMembers, func(name string, v *node) (known bool, err error) {
		switch name {
		case "name":
			where.name = v.off
			f.Name, err = d.text(v, "name")
		case "type":
			where.typ = v.off
			t, err := d.text(v, "type")
			if err != nil {
				return true, err
			}
			keyword = t == "keyword"
			var ok bool
			if f.Type, ok = typeAliases[t]; !ok && !keyword {
				return true, d.errorf(v, "expected a field type (text, keyword, u64, i64, f64, date, bytes, json, dense_vector, sparse_vector or binary_dense_vector), found %q", t)
			}
			if keyword {
				f.Type = Text
			}
		case "tokenizer":
			where.params = v.off
			tokenizer = v
			_, err = d.text(v, name)
		case "dim":
			where.params = v.off
			w, werr := d.whole(v, name, 0, 1<<31-1)
			f.Dim, err = int(w), werr
		case "element":
			f.Element, err = d.text(v, name)
			if f.Dim == 0 {
				where.params = v.off
			}
		case "indexed":
			where.attrs = v.off
			index = v
		case "stored":
			var on bool
			on, err = d.flag(v, name)
			stored = tri(on)
		case "fast":
			var on bool
			on, err = d.flag(v, name)
			fast = tri(on)
		case "multi":
			f.Multi, err = d.flag(v, name)
		case "primary":
			where.primary = v.off
			f.Primary, err = d.flag(v, name)
		case "content_hash":
			f.ContentHash, err = d.flag(v, name)
		case "reorder":
			f.Reorder, err = d.flag(v, name)
		case "inferred":
			f.Inferred, err = d.flag(v, name)
		case "keyword_max":
			w, werr := d.whole(v, name, 0, 1<<31-1)
			f.KeywordMax, err = int(w), werr
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return f, where, err
	}
	if f.Name == "" && where.name == n.off {
		return f, where, d.errorf(n, "expected a name in the field")
	}
	if f.Type == 0 {
		return f, where, d.errorf(n, "expected a type in the field %q", f.Name)
	}
	if f.Type == Text {
		f.K1, f.B, f.Tokenizer = DefaultK1, DefaultB, "simple"
		if keyword {
			f.Tokenizer = "raw"
		}
	}
	if tokenizer != nil {
		if f.Type != Text || keyword && tokenizer.str != "raw" {
			return f, where, d.errorf(tokenizer, "a tokenizer requires a field of type text")
		}
		if f.Tokenizer, err = d.tokenizer(tokenizer); err != nil {
			return f, where, err
		}
	}
	raw := f.Type == Text && (f.Tokenizer == "raw" || f.Tokenizer == "raw_ci")
	f.Indexed = index == nil || index.kind != 'f'
	if f.Indexed && f.Type == Text && !raw {
		f.Positions = TokenPositions
	}
	if index != nil && index.kind != 't' && index.kind != 'f' {
		if err := d.indexed(index, &f, &where); err != nil {
			return f, where, err
		}
	}
	f.Stored = stored != no
	switch f.Type {
	case U64, I64, F64, Date:
		f.Fast = fast != no
	default:
		f.Fast = fast == yes || fast == unset && raw
	}
	if f.Primary {
		f.Indexed, f.Fast = true, true
	}
	return f, where, nil
}

// tokenizer brings an expression into canonical spacing with the SDL parser.
func (d *jsonDecoder) tokenizer(n *node) (string, error) {
	p, err := newSDLParser(n.str, nil)
	if err != nil {
		return "", d.inner(n, err)
	}
	spec, err := p.tokenizer()
	if err == nil && p.tok.kind != tokEnd {
		err = p.expected("the end of the tokenizer")
	}
	if err != nil {
		return "", d.inner(n, err)
	}
	if d.check != nil {
		if err := d.check(spec); err != nil {
			return "", d.errorf(n, "%s", err)
		}
	}
	return spec, nil
}

// inner turns an error inside a string into one at the string.
func (d *jsonDecoder) inner(n *node, err error) error {
	var pe *ParseError
	if errors.As(err, &pe) {
		return d.errorf(n, "in %q: %s", n.str, pe.Msg)
	}
	return err
}

func (d *jsonDecoder) indexed(n *node, f *Field, where *places) error {
	return d.object(n, "indexed", "positions, chunked, k1, b, metric or options", func(name string, v *node) (known bool, err error) {
		switch name {
		case "positions":
			t, err := d.text(v, name)
			if err != nil {
				return true, err
			}
			mode, ok := positionModes[t]
			if !ok && t != "none" {
				return true, d.errorf(v, "expected none, ordinal, token_position or positions, found %q", t)
			}
			f.Positions = mode
		case "chunked":
			if f.Chunked, err = d.flag(v, name); f.Chunked {
				f.Multi = true
			}
		case "k1":
			f.K1, err = d.number32(v, name)
		case "b":
			f.B, err = d.number32(v, name)
		case "metric":
			f.Metric, err = d.text(v, name)
		case "options":
			items, err := d.array(v, name, maxListItems)
			if err != nil {
				return true, err
			}
			for _, item := range items {
				if err := d.option(item, f); err != nil {
					return true, err
				}
				where.options = append(where.options, item.off)
			}
			return true, nil
		default:
			return false, nil
		}
		if err == nil {
			if msg := f.ownOptionFault(name); msg != "" {
				return true, d.errorf(v, "%s", msg)
			}
		}
		return true, err
	})
}

func (d *jsonDecoder) option(n *node, f *Field) error {
	t, err := d.text(n, "an index option")
	if err != nil {
		return err
	}
	p, err := newSDLParser(t, nil)
	if err != nil {
		return d.inner(n, err)
	}
	name := p.tok.text
	rule, ok := optionSyntax[name]
	if p.tok.kind != tokWord || !ok && !indexKinds[name] {
		return d.errorf(n, "expected an index option, found %q", t)
	}
	p.advance()
	if err := p.indexOption(f, name, rule); err != nil {
		return d.inner(n, err)
	}
	if p.tok.kind != tokEnd {
		return d.inner(n, p.expected("the end of the option"))
	}
	return nil
}

func (d *jsonDecoder) router(n *node) (Router, error) {
	r := Router{Mode: "additional"}
	err := d.object(n, "a query router", "pattern, substitution, target_field or mode", func(name string, v *node) (known bool, err error) {
		switch name {
		case "pattern":
			r.Pattern, err = d.text(v, name)
		case "substitution":
			r.Substitution, err = d.text(v, name)
		case "target_field":
			if r.TargetField, err = d.text(v, name); err == nil {
				if cerr := CheckFieldName(r.TargetField); cerr != nil {
					err = d.errorf(v, "%s", cerr)
				}
			}
		case "mode":
			if r.Mode, err = d.text(v, name); err == nil && r.Mode != "additional" && r.Mode != "exclusive" {
				err = d.errorf(v, "expected exclusive or additional, found %q", r.Mode)
			}
		default:
			return false, nil
		}
		return true, err
	})
	return r, err
}

// MarshalJSON prints the JSON form with every attribute said; ParseJSON reads it back to an equal value, Generation included.
func (s *Schema) MarshalJSON() ([]byte, error) {
	w := jsonWriter{b: []byte{'{'}}
	if s.Name != "" {
		w.text("name", s.Name)
	}
	if s.Generation != 0 {
		w.raw("generation", strconv.FormatUint(s.Generation, 10))
	}
	if s.Dynamic {
		w.flag("dynamic", true)
	}
	w.key("fields")
	w.b = append(w.b, '[')
	for i := range s.Fields {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		s.Fields[i].appendJSON(&w)
	}
	w.b = append(w.b, ']')
	if len(s.DefaultFields) > 0 {
		w.texts("default_fields", s.DefaultFields)
	}
	if s.MaxL1PhraseTerms != 0 {
		w.raw("max_l1_phrase_terms", strconv.Itoa(s.MaxL1PhraseTerms))
	}
	if s.ReorderOnMerge != nil {
		w.flag("reorder_on_merge", *s.ReorderOnMerge)
	}
	if len(s.Routers) > 0 {
		w.key("query_routers")
		w.b = append(w.b, '[')
		for i, r := range s.Routers {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.b = append(w.b, '{')
			w.text("pattern", r.Pattern)
			w.text("substitution", r.Substitution)
			w.text("target_field", r.TargetField)
			w.text("mode", r.Mode)
			w.b = append(w.b, '}')
		}
		w.b = append(w.b, ']')
	}
	w.b = append(w.b, '}')
	return w.b, w.err
}

// MarshalJSON prints the field as it stands in a schema's "fields".
func (f Field) MarshalJSON() ([]byte, error) {
	var w jsonWriter
	f.appendJSON(&w)
	return w.b, w.err
}

func (f *Field) appendJSON(w *jsonWriter) {
	w.b = append(w.b, '{')
	w.text("name", f.Name)
	w.text("type", f.Type.String())
	if f.Type == Text {
		w.text("tokenizer", f.Tokenizer)
	}
	if f.Dim != 0 {
		w.raw("dim", strconv.Itoa(f.Dim))
	}
	if f.Element != "" {
		w.text("element", f.Element)
	}
	f.appendIndexed(w)
	w.flag("stored", f.Stored)
	w.flag("fast", f.Fast)
	for _, o := range []struct {
		name string
		on   bool
	}{{"multi", f.Multi}, {"primary", f.Primary}, {"content_hash", f.ContentHash}, {"reorder", f.Reorder}, {"inferred", f.Inferred}} {
		if o.on {
			w.flag(o.name, true)
		}
	}
	if f.KeywordMax != 0 {
		w.raw("keyword_max", strconv.Itoa(f.KeywordMax))
	}
	w.b = append(w.b, '}')
}

func (f *Field) appendIndexed(w *jsonWriter) {
	tuned := f.Type == Text && (f.K1 != DefaultK1 || f.B != DefaultB)
	if !f.Indexed || f.Type != Text && f.Positions == NoPositions && f.Metric == "" && len(f.Options) == 0 {
		w.flag("indexed", f.Indexed)
		return
	}
	w.key("indexed")
	w.b = append(w.b, '{')
	if int(f.Positions) < len(positionNames) && (f.Type == Text || f.Positions != NoPositions) {
		w.text("positions", positionNames[f.Positions])
	}
	if f.Chunked {
		w.flag("chunked", true)
	}
	if tuned {
		w.raw("k1", decimal(f.K1))
		w.raw("b", decimal(f.B))
	}
	if f.Metric != "" {
		w.text("metric", f.Metric)
	}
	if len(f.Options) > 0 {
		var opts []string
		for _, o := range f.Options {
			opts = append(opts, o.String())
		}
		w.texts("options", opts)
	}
	w.b = append(w.b, '}')
}

// jsonWriter appends members to an object.
type jsonWriter struct {
	b   []byte
	err error
}

func (w *jsonWriter) quoted(s string) {
	b, err := jsontext.AppendQuote(w.b, s)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("print schema: %w", err)
	}
	w.b = b
}

func (w *jsonWriter) key(name string) {
	if n := len(w.b); n > 0 && w.b[n-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

func (w *jsonWriter) raw(name, v string)       { w.key(name); w.b = append(w.b, v...) }
func (w *jsonWriter) text(name, v string)      { w.key(name); w.quoted(v) }
func (w *jsonWriter) flag(name string, v bool) { w.raw(name, strconv.FormatBool(v)) }

func (w *jsonWriter) texts(name string, v []string) {
	w.key(name)
	w.b = append(w.b, '[')
	for i, t := range v {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.quoted(t)
	}
	w.b = append(w.b, ']')
}
