package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ParseSDL reads exactly one `index NAME { … }` in the Summa schema language with weft's additions:
//
//   - type date, and indexed<metric: cosine|dot|l2> on dense vectors;
//   - the element type int8 of dense vectors, and indexed<m: N, ef_construction: N> on dense and binary ones, for their graph;
//   - names of indexes and fields may be quoted, so that they can hold any character: field "author.name": text;
//   - dynamic: true, the attributes inferred and multi, and fast<keyword_max: N>, which write down what inference makes.
//
// A text field without a tokenizer gets simple. check, if not nil, is asked whether a tokenizer expression (in canonical spacing) is
// known. The result satisfies Validate; it has a primary field only if one is declared (see WithKey). Errors are *ParseError.
func ParseSDL(src string, check func(tokenizer string) error) (*Schema, error) {
	p, err := newSDLParser(src, check)
	if err != nil {
		return nil, err
	}
	s, err := p.index()
	if err != nil {
		return nil, err
	}
	if p.tok.kind == tokWord && p.tok.text == "index" {
		return nil, p.errorf(p.tok.off, "Multiple index definitions found, expected one")
	}
	if p.tok.kind != tokEnd {
		return nil, p.expected("the end of the text")
	}
	return s, nil
}

// ParseSDLAll is ParseSDL for a text with one or more index blocks.
func ParseSDLAll(src string, check func(tokenizer string) error) ([]*Schema, error) {
	p, err := newSDLParser(src, check)
	if err != nil {
		return nil, err
	}
	var all []*Schema
	for {
		s, err := p.index()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		if p.tok.kind == tokEnd {
			return all, nil
		}
	}
}

// ParseFieldType reads what stands behind `field NAME:`, as Summa's AlterVectorIndex carries it, for a field of the given name.
func ParseFieldType(name, src string, check func(tokenizer string) error) (Field, error) {
	p, err := newSDLParser(src, check)
	if err != nil {
		return Field{}, err
	}
	f := Field{Name: name}
	var where places
	if err := p.fieldType(&f, &where); err != nil {
		return Field{}, err
	}
	if p.tok.kind != tokEnd {
		return Field{}, p.expected("the end of the text")
	}
	if flt := f.fault(); flt != nil {
		return Field{}, p.errorf(where.of(flt), "%s", flt.msg)
	}
	return f, nil
}

// places holds the byte offsets of the parts of one declaration.
type places struct {
	name, typ, params, attrs, primary int
	options                           []int
}

func (w *places) of(f *fault) int {
	switch f.part {
	case partType:
		return w.typ
	case partParams:
		return w.params
	case partAttrs:
		return w.attrs
	case partPrimary:
		return w.primary
	case partOption:
		return w.options[f.option]
	}
	return w.name
}

type sdlParser struct {
	lexer
	tok   token // the token to look at next
	check func(string) error
}

func newSDLParser(src string, check func(string) error) (*sdlParser, error) {
	if len(src) > MaxSourceBytes {
		return nil, errorAt(src, MaxSourceBytes, "a schema must not exceed %d bytes (got %d)", MaxSourceBytes, len(src))
	}
	if !utf8.ValidString(src) {
		off := 0
		for off < len(src) {
			r, n := utf8.DecodeRuneInString(src[off:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			off += n
		}
		return nil, errorAt(src, off, "expected UTF-8, found the byte 0x%02x", src[off])
	}
	p := &sdlParser{lexer: lexer{src: src}, check: check}
	p.advance()
	return p, nil
}

func (p *sdlParser) advance() { p.tok = p.next() }

func (p *sdlParser) errorf(off int, format string, args ...any) error {
	return errorAt(p.src, off, format, args...)
}

func (p *sdlParser) expected(what string) error {
	if p.tok.kind == tokBad {
		return p.errorf(p.tok.off, "found %s", p.tok.val)
	}
	return p.errorf(p.tok.off, "expected %s, found %s", what, p.tok.found())
}

func (p *sdlParser) is(punct string) bool { return p.tok.kind == tokPunct && p.tok.text == punct }

func (p *sdlParser) accept(punct string) bool {
	if p.is(punct) {
		p.advance()
		return true
	}
	return false
}

func (p *sdlParser) expect(punct string) error {
	if !p.accept(punct) {
		return p.expected(strconv.Quote(punct))
	}
	return nil
}

// word reads one of the given words.
func (p *sdlParser) word(words ...string) (string, error) {
	if p.tok.kind == tokWord && slices.Contains(words, p.tok.text) {
		w := p.tok.text
		p.advance()
		return w, nil
	}
	return "", p.expected(oneOf(words))
}

func oneOf(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = strconv.Quote(w)
	}
	if len(q) == 1 {
		return q[0]
	}
	return strings.Join(q[:len(q)-1], ", ") + " or " + q[len(q)-1]
}

// name reads a plain or quoted name.
func (p *sdlParser) name(what string) (string, error) {
	switch p.tok.kind {
	case tokWord:
		n := p.tok.text
		p.advance()
		return n, nil
	case tokString:
		n := p.tok.val
		if err := CheckFieldName(n); err != nil {
			return "", p.errorf(p.tok.off, "expected %s, found %s: %s", what, p.tok.found(), err)
		}
		p.advance()
		return n, nil
	}
	return "", p.expected(what)
}

// index reads one index block and checks it.
func (p *sdlParser) index() (*Schema, error) {
	if _, err := p.word("index"); err != nil {
		return nil, err
	}
	start := p.tok.off
	name, err := p.name("an index name")
	if err != nil {
		return nil, err
	}
	s := &Schema{Name: name, Generation: 1}
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	var fields []places
	seen := map[string]bool{}
	routers := -1 // where the last router stands
	for !p.is("}") {
		at := p.tok.off
		if p.tok.kind != tokWord {
			return nil, p.expected("a field, an index option or \"}\"")
		}
		item := p.tok.text
		switch item {
		case "field":
			p.advance()
			if len(s.Fields) == MaxFields {
				return nil, p.errorf(at, "an index has at most %d fields", MaxFields)
			}
			var f Field
			var where places
			where.name = p.tok.off
			if f.Name, err = p.name("a field name"); err != nil {
				return nil, err
			}
			if err := p.expect(":"); err != nil {
				return nil, err
			}
			if err := p.fieldType(&f, &where); err != nil {
				return nil, err
			}
			s.Fields = append(s.Fields, f)
			fields = append(fields, where)
			continue
		case "query_router":
			p.advance()
			if len(s.Routers) == maxListItems {
				return nil, p.errorf(at, "an index has at most %d query routers", maxListItems)
			}
			r, err := p.router(at)
			if err != nil {
				return nil, err
			}
			s.Routers = append(s.Routers, r)
			routers = at
			continue
		case "max_l1_phrase_terms", "reorder_on_merge", "default_fields", "dynamic":
		default:
			return nil, p.expected("\"field\", \"default_fields\", \"query_router\", \"max_l1_phrase_terms\", \"reorder_on_merge\", \"dynamic\" or \"}\"")
		}
		if seen[item] {
			return nil, p.errorf(at, "%s may only be specified once", item)
		}
		seen[item] = true
		p.advance()
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		switch item {
		case "max_l1_phrase_terms":
			if p.tok.kind != tokNumber {
				return nil, p.expected("a positive 32-bit integer")
			}
			n, err := strconv.ParseUint(p.tok.text, 10, 32)
			if err != nil || n == 0 {
				return nil, p.errorf(p.tok.off, "max_l1_phrase_terms must be a positive 32-bit integer")
			}
			s.MaxL1PhraseTerms = int(n)
			p.advance()
		case "default_fields":
			if s.DefaultFields, err = p.nameList(); err != nil {
				return nil, err
			}
		default:
			w, err := p.word("true", "false")
			if err != nil {
				return nil, err
			}
			on := w == "true"
			if item == "dynamic" {
				s.Dynamic = on
			} else {
				s.ReorderOnMerge = &on
			}
		}
	}
	end := p.tok.off
	if flt := s.fault(); flt != nil {
		off := start
		switch {
		case flt.field >= 0:
			off = fields[flt.field].of(flt)
		case len(s.Fields) == 0:
			return nil, p.errorf(end, "%s, found \"}\"", flt.msg)
		case routers >= 0:
			off = routers
		}
		return nil, p.errorf(off, "%s", flt.msg)
	}
	p.advance()
	return s, nil
}

func (p *sdlParser) nameList() ([]string, error) {
	if err := p.expect("["); err != nil {
		return nil, err
	}
	var names []string
	for {
		if len(names) == MaxFields {
			return nil, p.errorf(p.tok.off, "a list has at most %d names", MaxFields)
		}
		n, err := p.name("a field name")
		if err != nil {
			return nil, err
		}
		names = append(names, n)
		if p.accept("]") {
			return names, nil
		}
		if !p.accept(",") {
			return nil, p.expected("\",\" or \"]\"")
		}
	}
}

func (p *sdlParser) router(at int) (Router, error) {
	r := Router{Mode: "additional"}
	if err := p.expect("{"); err != nil {
		return r, err
	}
	for !p.is("}") {
		prop, err := p.word("pattern", "substitution", "target_field", "mode")
		if err != nil {
			return r, err
		}
		if err := p.expect(":"); err != nil {
			return r, err
		}
		switch prop {
		case "pattern", "substitution":
			if p.tok.kind != tokString {
				return r, p.expected("a quoted string")
			}
			if prop == "pattern" {
				r.Pattern = p.tok.val
			} else {
				r.Substitution = p.tok.val
			}
			p.advance()
		case "target_field":
			if r.TargetField, err = p.name("a field name"); err != nil {
				return r, err
			}
		case "mode":
			if r.Mode, err = p.word("exclusive", "additional"); err != nil {
				return r, err
			}
		}
	}
	for _, need := range []struct{ value, name string }{{r.Pattern, "pattern"}, {r.Substitution, "substitution"}, {r.TargetField, "target_field"}} {
		if need.value == "" {
			return r, p.errorf(at, "query_router missing '%s'", need.name)
		}
	}
	p.advance()
	return r, nil
}

// fieldType reads TYPE<PARAMS> [ATTRS].
func (p *sdlParser) fieldType(f *Field, where *places) error {
	where.typ, where.params, where.attrs, where.primary = p.tok.off, p.tok.off, p.tok.off, p.tok.off
	if p.tok.kind != tokWord {
		return p.expected("a field type")
	}
	t, ok := typeAliases[p.tok.text]
	if !ok {
		return p.expected("a field type (text, u64, i64, f64, date, bytes, json, dense_vector, sparse_vector or binary_dense_vector)")
	}
	f.Type = t
	p.advance()
	if t == Text {
		f.Tokenizer, f.K1, f.B = "simple", DefaultK1, DefaultB
	}
	if p.is("<") {
		p.advance()
		where.params = p.tok.off
		if err := p.params(f); err != nil {
			return err
		}
		if err := p.expect(">"); err != nil {
			return err
		}
	} else if t == DenseVector || t == BinaryVector {
		return p.expected(fmt.Sprintf("\"<\" and the dimension of %s", t))
	}
	if !p.is("[") {
		f.Indexed, f.Stored = true, true
		return nil
	}
	where.attrs = p.tok.off
	p.advance()
	return p.attributes(f, where)
}

func (p *sdlParser) params(f *Field) error {
	switch f.Type {
	case Text:
		at := p.tok.off
		spec, err := p.tokenizer()
		if err != nil {
			return err
		}
		f.Tokenizer = spec
		if p.check != nil {
			if err := p.check(spec); err != nil {
				return p.errorf(at, "field '%s': %s", f.Name, err)
			}
		}
	case DenseVector, BinaryVector:
		if p.tok.kind == tokWord && p.tok.text == "dims" {
			p.advance()
			if err := p.expect(":"); err != nil {
				return err
			}
		}
		if p.tok.kind != tokNumber || strings.Contains(p.tok.text, ".") {
			return p.expected("a dimension")
		}
		n, err := strconv.ParseInt(p.tok.text, 10, 31)
		if err != nil {
			return p.errorf(p.tok.off, "%s dimension is out of range, got %s", f.Type, p.tok.text)
		}
		f.Dim = int(n)
		if flt := f.fault(); flt != nil && flt.part == partParams {
			return p.errorf(p.tok.off, "%s", flt.msg)
		}
		p.advance()
		if f.Type == DenseVector && p.accept(",") {
			if f.Element, err = p.word("f32", "f16", "int8", "uint8", "u8"); err != nil {
				return err
			}
		}
	case SparseVector:
		var err error
		if f.Element, err = p.word("u16", "u32"); err != nil {
			return err
		}
	default:
		return p.expected(fmt.Sprintf("no parameter of %s", f.Type))
	}
	return nil
}

// tokenizer reads a name or name(key: value, …) and returns it in canonical spacing.
func (p *sdlParser) tokenizer() (string, error) {
	if p.tok.kind != tokWord {
		return "", p.expected("a tokenizer")
	}
	at := p.tok.off
	var b strings.Builder
	b.WriteString(p.tok.text)
	p.advance()
	if p.accept("(") {
		b.WriteByte('(')
		for first := true; !p.is(")"); first = false {
			if !first {
				if !p.accept(",") {
					return "", p.expected("\",\" or \")\"")
				}
				b.WriteString(", ")
			}
			if p.tok.kind != tokWord {
				return "", p.expected("a tokenizer parameter")
			}
			b.WriteString(p.tok.text)
			p.advance()
			if err := p.expect(":"); err != nil {
				return "", err
			}
			b.WriteString(": ")
			switch p.tok.kind {
			case tokWord, tokNumber, tokString:
				b.WriteString(p.tok.text)
			default:
				return "", p.expected("a parameter's value")
			}
			p.advance()
		}
		p.advance()
		b.WriteByte(')')
	}
	if b.Len() > maxTokenizerBytes {
		return "", p.errorf(at, "a tokenizer expression must not exceed %d bytes", maxTokenizerBytes)
	}
	return b.String(), nil
}

var attributeNames = []string{"indexed", "stored", "fast", "primary", "content_hash", "reorder", "multi", "inferred"}

// attributes reads the list behind "[".
func (p *sdlParser) attributes(f *Field, where *places) error {
	seen := map[string]bool{}
	for {
		at := p.tok.off
		attr, err := p.word(attributeNames...)
		if err != nil {
			return err
		}
		if seen[attr] {
			return p.errorf(at, "attribute %s is given twice", attr)
		}
		seen[attr] = true
		switch attr {
		case "indexed":
			f.Indexed = true
			if p.accept("<") {
				if err := p.indexOptions(f, where); err != nil {
					return err
				}
			}
		case "stored":
			f.Stored = true
			if p.accept("<") {
				if _, err := p.word("multi"); err != nil {
					return err
				}
				f.Multi = true
				if err := p.expect(">"); err != nil {
					return err
				}
			}
		case "fast":
			f.Fast = true
			if p.accept("<") {
				if err := p.keywordMax(f); err != nil {
					return err
				}
			}
		case "primary":
			f.Primary = true
			where.primary = at
		case "content_hash":
			f.ContentHash = true
		case "reorder":
			f.Reorder = true
		case "multi":
			f.Multi = true
		case "inferred":
			f.Inferred = true
		}
		if p.accept("]") {
			break
		}
		if !p.accept(",") {
			return p.expected("\",\" or \"]\"")
		}
	}
	if f.Primary {
		f.Indexed, f.Fast = true, true
	}
	if f.Chunked {
		f.Multi = true
	}
	return nil
}

func (p *sdlParser) keywordMax(f *Field) error {
	if _, err := p.word("keyword_max"); err != nil {
		return err
	}
	if err := p.expect(":"); err != nil {
		return err
	}
	n, err := strconv.ParseInt(p.tok.text, 10, 32)
	if p.tok.kind != tokNumber || err != nil || n == 0 {
		return p.expected("a positive number of bytes")
	}
	f.KeywordMax = int(n)
	p.advance()
	return p.expect(">")
}

// indexOptions reads what stands in indexed<…>, with its closing bracket.
func (p *sdlParser) indexOptions(f *Field, where *places) error {
	seen := map[string]bool{}
	for {
		at := p.tok.off
		if p.tok.kind != tokWord {
			return p.expected("an index option")
		}
		name := p.tok.text
		own := name
		if _, ok := positionModes[name]; ok {
			own = "positions"
		}
		rule, known := optionSyntax[name]
		switch own {
		case "positions", "chunked", "k1", "b", "metric":
			known = true
		}
		if !known && !indexKinds[name] {
			return p.errorf(at, "expected an index option, found unknown option %q", name)
		}
		if seen[own] {
			return p.errorf(at, "index option %s is given twice", own)
		}
		seen[own] = true
		p.advance()
		if err := p.indexOption(f, name, rule); err != nil {
			return err
		}
		if len(f.Options) > len(where.options) {
			where.options = append(where.options, at)
		}
		if flt := f.ownOptionFault(own); flt != "" {
			return p.errorf(at, "%s", flt)
		}
		if p.accept(">") {
			return nil
		}
		if !p.accept(",") {
			return p.expected("\",\" or \">\"")
		}
	}
}

// ownOptionFault checks an option that has a field of its own as soon as it is read, so that the error points at it.
func (f *Field) ownOptionFault(name string) string {
	switch name {
	case "chunked", "positions":
		if !f.Chunked {
			return ""
		}
		if f.Type != Text {
			return fmt.Sprintf("field '%s': `chunked` requires a text field, got %s", f.Name, f.Type)
		}
		if f.Positions == Ordinals || f.Positions == FullPositions {
			return fmt.Sprintf("field '%s': a chunked text field may only declare `token_position`; `%s` is not allowed", f.Name, positionNames[f.Positions])
		}
	case "k1", "b":
		if f.Type != Text {
			return fmt.Sprintf("field '%s': BM25 `k1`/`b` require a text field, got %s", f.Name, f.Type)
		}
		if !(f.K1 >= 0 && f.K1 <= 1e6) {
			return "`k1` must be between 0 and 1000000"
		}
		if !(f.B >= 0 && f.B <= 1) {
			return "`b` must be between 0 and 1"
		}
	case "metric":
		if f.Type != DenseVector {
			return fmt.Sprintf("field '%s': `metric` requires a dense_vector field, got %s", f.Name, f.Type)
		}
	}
	return ""
}

func (p *sdlParser) indexOption(f *Field, name string, rule optionRule) error {
	if mode, ok := positionModes[name]; ok {
		f.Positions = mode
		return nil
	}
	switch name {
	case "chunked":
		f.Chunked = true
		return nil
	case "k1", "b":
		if err := p.expect(":"); err != nil {
			return err
		}
		if p.tok.kind != tokNumber {
			return p.expected("a number")
		}
		v, err := strconv.ParseFloat(p.tok.text, 32)
		if err != nil {
			return p.errorf(p.tok.off, "%s is out of range", name)
		}
		if name == "k1" {
			f.K1 = float32(v)
		} else {
			f.B = float32(v)
		}
		p.advance()
		return nil
	case "metric":
		if err := p.expect(":"); err != nil {
			return err
		}
		m, err := p.word("cosine", "dot", "l2")
		f.Metric = m
		return err
	}
	if indexKinds[name] {
		f.Options = append(f.Options, Option{Name: name})
		return nil
	}
	v, err := p.optionValue(name, rule, f)
	if err != nil {
		return err
	}
	f.Options = append(f.Options, Option{Name: name, Value: v})
	return nil
}

// optionValue reads the value of an option, with its colon, and returns it in canonical spacing.
func (p *sdlParser) optionValue(name string, rule optionRule, f *Field) (string, error) {
	if rule.kind == valueBlock {
		return p.queryBlock(f)
	}
	if err := p.expect(":"); err != nil {
		return "", err
	}
	t := p.tok
	switch rule.kind {
	case valueUint:
		if t.kind != tokNumber || strings.Contains(t.text, ".") {
			return "", p.expected("a whole number for " + name)
		}
		if _, err := strconv.ParseUint(t.text, 10, 64); err != nil {
			return "", p.errorf(t.off, "%s is out of range", name)
		}
	case valueDecimal:
		if t.kind != tokNumber {
			return "", p.expected("a number for " + name)
		}
		if _, err := strconv.ParseFloat(t.text, 32); err != nil {
			return "", p.errorf(t.off, "%s is out of range", name)
		}
	case valueBool:
		return p.word("true", "false")
	case valueWord:
		return p.word(rule.words...)
	case valueQuote:
		if t.kind != tokString {
			return "", p.expected("a quoted string for " + name)
		}
		p.advance()
		return quote(t.val), nil
	case valueList:
		return p.stringList(name)
	}
	p.advance()
	return t.text, nil
}

func (p *sdlParser) stringList(name string) (string, error) {
	if err := p.expect("["); err != nil {
		return "", err
	}
	var items []string
	for !p.is("]") {
		if len(items) == maxListItems {
			return "", p.errorf(p.tok.off, "%s has at most %d items", name, maxListItems)
		}
		if len(items) > 0 {
			if err := p.expect(","); err != nil {
				return "", err
			}
		}
		if p.tok.kind != tokString {
			return "", p.expected("a quoted string")
		}
		items = append(items, quote(p.tok.val))
		p.advance()
	}
	p.advance()
	return "[" + strings.Join(items, ", ") + "]", nil
}

// queryBlock reads query<…>, which holds no further block.
func (p *sdlParser) queryBlock(f *Field) (string, error) {
	if err := p.expect("<"); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteByte('<')
	seen := map[string]bool{}
	for {
		at := p.tok.off
		if p.tok.kind != tokWord {
			return "", p.expected("a query option")
		}
		name := p.tok.text
		rule, ok := querySyntax[name]
		if !ok {
			return "", p.errorf(at, "expected a query option, found unknown option %q", name)
		}
		if seen[name] {
			return "", p.errorf(at, "query option %s is given twice", name)
		}
		seen[name] = true
		p.advance()
		v, err := p.optionValue(name, rule, f)
		if err != nil {
			return "", err
		}
		if name == "max_terms" {
			if n, err := strconv.ParseUint(v, 10, 64); err != nil || n < 1 || n > 64 {
				return "", p.errorf(at, "field '%s': `query<max_terms>` must be between 1 and 64, got %s", f.Name, v)
			}
		}
		if b.Len() > 1 {
			b.WriteString(", ")
		}
		b.WriteString(name + ": " + v)
		if p.accept(">") {
			b.WriteByte('>')
			return b.String(), nil
		}
		if !p.accept(",") {
			return "", p.expected("\",\" or \">\"")
		}
	}
}
