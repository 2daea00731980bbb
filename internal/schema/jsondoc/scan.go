package jsondoc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON strictly, from front to back, and copies it without white space. Every method that returns bool reports false
// after it has set err.
type scanner struct {
	in    []byte
	pos   int
	depth int // open objects and arrays
	most  int // limit of depth
	err   *DocError

	compact []byte // what stands before in[from:pos], without white space
	from    int    // where the bytes start that are not yet in compact

	names   [][]byte // names of the open objects, each object's after its parent's
	escaped []byte   // strings with escapes, decoded; only grows within a document, so that slices of it stay
}

func (s *scanner) reset(in []byte, most int) {
	s.in, s.pos, s.depth, s.most, s.err = in, 0, 0, most, nil
	s.compact, s.from = s.compact[:0], 0
	clear(s.names)
	s.names, s.escaped = s.names[:0], s.escaped[:0]
}

func (s *scanner) fail(code string, pos int, reason string) bool {
	if s.err == nil {
		s.err = &DocError{Code: code, Position: pos, Reason: reason}
	}
	return false
}

// found describes what stands at pos.
func (s *scanner) found() string {
	if s.pos >= len(s.in) {
		return "the end of the text"
	}
	rest := s.in[s.pos:]
	for _, word := range []string{"NaN", "Infinity", "-Infinity", "nan", "inf"} {
		if bytes.HasPrefix(rest, []byte(word)) {
			return word + ", which is not a JSON number"
		}
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(rest, []byte(word)) {
			return word
		}
	}
	switch c := rest[0]; {
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '-' || c >= '0' && c <= '9':
		return "a number"
	case c < ' ' || c >= utf8.RuneSelf:
		return fmt.Sprintf("byte 0x%02x", c)
	}
	return strconv.QuoteRune(rune(rest[0]))
}

// space skips white space.
func (s *scanner) space() {
	if s.pos < len(s.in) && s.in[s.pos] > ' ' {
		return
	}
	start := s.pos
	for s.pos < len(s.in) {
		switch s.in[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
			continue
		}
		break
	}
	if s.pos > start {
		s.compact = append(s.compact, s.in[s.from:start]...)
		s.from = s.pos
	}
}

// offset returns how many bytes of the compact copy stand before pos.
func (s *scanner) offset() int { return len(s.compact) + s.pos - s.from }

// source returns the document without white space, in memory of its own.
func (s *scanner) source() []byte {
	out := make([]byte, s.offset())
	copy(out[copy(out, s.compact):], s.in[s.from:s.pos])
	return out
}

// peek returns the byte at pos, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.in) {
		return s.in[s.pos]
	}
	return 0
}

// open enters an object or array.
func (s *scanner) open() bool {
	if s.depth == s.most {
		return s.fail(CodeTooDeep, s.pos, fmt.Sprintf("a document is nested at most %d deep", s.most))
	}
	s.depth++
	s.pos++
	return true
}

// object reads the members of an object; value is called at the start of each member's value.
func (s *scanner) object(value func(name []byte, at int) bool) bool {
	if !s.open() {
		return false
	}
	names := nameSet{base: len(s.names)}
	s.space()
	if s.peek() == '}' {
		s.pos++
		s.depth--
		return true
	}
	for {
		name, at, ok := s.memberName(&names)
		if !ok || !value(name, at) {
			return false
		}
		more, ok := s.next('}')
		if !ok {
			return false
		}
		if !more {
			clear(s.names[names.base:])
			s.names = s.names[:names.base]
			return true
		}
	}
}

// memberName reads `"name" :` with the white space around it.
func (s *scanner) memberName(names *nameSet) (name []byte, at int, ok bool) {
	at = s.pos
	if s.peek() != '"' {
		return nil, at, s.fail(CodeInvalidJSON, at, "expected a member name in quotes, found "+s.found())
	}
	if name, ok = s.str(); !ok {
		return nil, at, false
	}
	if !names.add(s, name) {
		return nil, at, s.failField(CodeDuplicateMember, at, string(name), fmt.Sprintf("member %s is given twice", shorten(string(name))))
	}
	s.space()
	if s.peek() != ':' {
		return nil, at, s.fail(CodeInvalidJSON, s.pos, "expected \":\" after a member name, found "+s.found())
	}
	s.pos++
	s.space()
	return name, at, true
}

// next reads the comma or the closing bracket after a value.
func (s *scanner) next(end byte) (more, ok bool) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		s.space()
		return true, true
	case end:
		s.pos++
		s.depth--
		return false, true
	}
	return false, s.fail(CodeInvalidJSON, s.pos, fmt.Sprintf("expected \",\" or %q, found %s", end, s.found()))
}

// array calls value at the start of each element.
func (s *scanner) array(value func() bool) bool {
	if !s.open() {
		return false
	}
	s.space()
	if s.peek() == ']' {
		s.pos++
		s.depth--
		return true
	}
	for {
		if !value() {
			return false
		}
		more, ok := s.next(']')
		if !ok {
			return false
		}
		if !more {
			return true
		}
	}
}

// skip reads any value.
func (s *scanner) skip() bool {
	switch s.peek() {
	case '{':
		return s.object(func([]byte, int) bool { return s.skip() })
	case '[':
		return s.array(s.skip)
	case '"':
		_, ok := s.str()
		return ok
	case 't', 'f', 'n':
		return s.literal()
	}
	number, ok := s.number()
	return ok && s.finite(number)
}

func (s *scanner) literal() bool {
	rest := s.in[s.pos:]
	for _, w := range [...]string{"true", "false", "null"} {
		if len(rest) >= len(w) && string(rest[:len(w)]) == w {
			s.pos += len(w)
			return true
		}
	}
	return s.fail(CodeInvalidJSON, s.pos, "expected a value, found "+s.found())
}

// number reads a number and returns it as written.
func (s *scanner) number() ([]byte, bool) {
	start, i, in := s.pos, s.pos, s.in
	digits := func() bool {
		first := i
		for i < len(in) && in[i]-'0' <= 9 {
			i++
		}
		return i > first
	}
	if i < len(in) && in[i] == '-' {
		i++
	}
	switch {
	case i < len(in) && in[i] == '0':
		i++
		if i < len(in) && in[i]-'0' <= 9 {
			return nil, s.fail(CodeInvalidJSON, i, "a number does not begin with a zero")
		}
	case !digits():
		if i == start || bytes.HasPrefix(in[start:], []byte("-Inf")) {
			return nil, s.fail(CodeInvalidJSON, start, "expected a value, found "+s.found())
		}
		return nil, s.fail(CodeInvalidJSON, i, "expected a digit")
	}
	if i < len(in) && in[i] == '.' {
		i++
		if !digits() {
			return nil, s.fail(CodeInvalidJSON, i, "expected a digit after the decimal point")
		}
	}
	if i < len(in) && in[i]|0x20 == 'e' {
		i++
		if i < len(in) && (in[i] == '+' || in[i] == '-') {
			i++
		}
		if !digits() {
			return nil, s.fail(CodeInvalidJSON, i, "expected a digit in the exponent")
		}
	}
	s.pos = i
	return in[start:i], true
}

// finite refuses numbers beyond float64, which other readers of the document would take for an infinity.
func (s *scanner) finite(number []byte) bool {
	if len(number) <= 300 && !bytes.ContainsAny(number, "eE") {
		return true // fewer digits than the largest float64 has
	}
	if _, err := strconv.ParseFloat(string(number), 64); err != nil {
		return s.fail(CodeNumberOutOfRange, s.pos-len(number), "the number is beyond the range of a 64-bit float")
	}
	return true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plain returns how many bytes at the start of b can stand in a string as they are: ASCII without quotes, backslashes and controls.
func plain(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		// The high bit of each byte that is below 0x20, a quote, a backslash, or beyond ASCII. Borrows can set wrong bits only above the
		// first right one, and the lowest is taken.
		quote, slash := w^ones*'"', w^ones*'\\'
		if m := ((w - ones*0x20) | (quote - ones) | (slash - ones) | w) & highs; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// str reads a string and returns what it stands for: a slice of the input, or of escaped.
func (s *scanner) str() ([]byte, bool) {
	start := s.pos + 1
	i := start
	for {
		i += plain(s.in[i:])
		if i == len(s.in) {
			return nil, s.fail(CodeInvalidJSON, i, "expected the closing quote of a string, found the end of the text")
		}
		switch c := s.in[i]; {
		case c == '"':
			s.pos = i + 1
			return s.in[start:i], true
		case c == '\\':
			return s.strEscaped(start, i)
		case c < 0x20:
			return nil, s.fail(CodeInvalidJSON, i, fmt.Sprintf("a string holds the control character 0x%02x, which has to be escaped", c))
		default:
			n, ok := s.rune(i)
			if !ok {
				return nil, false
			}
			i += n
		}
	}
}

// rune checks the UTF-8 sequence at i.
func (s *scanner) rune(i int) (int, bool) {
	r, n := utf8.DecodeRune(s.in[i:])
	if r == utf8.RuneError && n <= 1 {
		return 0, s.fail(CodeInvalidUTF8, i, fmt.Sprintf("a string holds the byte 0x%02x, which is not UTF-8", s.in[i]))
	}
	return n, true
}

// strEscaped goes on with a string at its first backslash.
func (s *scanner) strEscaped(start, i int) ([]byte, bool) {
	base := len(s.escaped)
	out := append(s.escaped, s.in[start:i]...)
	for {
		n := plain(s.in[i:])
		out = append(out, s.in[i:i+n]...)
		i += n
		if i == len(s.in) {
			return nil, s.fail(CodeInvalidJSON, i, "expected the closing quote of a string, found the end of the text")
		}
		switch c := s.in[i]; {
		case c == '"':
			s.pos = i + 1
			s.escaped = out
			return out[base:len(out):len(out)], true
		case c < 0x20:
			return nil, s.fail(CodeInvalidJSON, i, fmt.Sprintf("a string holds the control character 0x%02x, which has to be escaped", c))
		case c != '\\':
			n, ok := s.rune(i)
			if !ok {
				return nil, false
			}
			out = append(out, s.in[i:i+n]...)
			i += n
			continue
		}
		var c byte
		if i+1 < len(s.in) {
			c = s.in[i+1]
		}
		if at := strings.IndexByte(`"\/bfnrt`, c); at >= 0 && c != 0 {
			out = append(out, "\"\\/\b\f\n\r\t"[at])
			i += 2
			continue
		}
		if c != 'u' {
			return nil, s.fail(CodeInvalidJSON, i, "a string holds an unknown escape")
		}
		r, ok := s.hex4(i + 2)
		if !ok {
			return nil, s.fail(CodeInvalidJSON, i, "expected four hexadecimal digits after \\u")
		}
		if !utf16.IsSurrogate(r) {
			out = utf8.AppendRune(out, r)
			i += 6
			continue
		}
		if i+8 <= len(s.in) && s.in[i+6] == '\\' && s.in[i+7] == 'u' {
			low, ok := s.hex4(i + 8)
			if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
				out = utf8.AppendRune(out, pair)
				i += 12
				continue
			}
		}
		return nil, s.fail(CodeInvalidUTF8, i, "a string holds a lone surrogate")
	}
}

// hex4 reads four hexadecimal digits at i.
func (s *scanner) hex4(i int) (rune, bool) {
	if i+4 > len(s.in) {
		return 0, false
	}
	var r rune
	for _, c := range s.in[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// nameSet finds repeated names of one object. Few names are compared one by one, many go through a map.
type nameSet struct {
	base int // where the object's names begin in scanner.names
	seen map[string]struct{}
}

const fewNames = 24

func (n *nameSet) add(s *scanner, name []byte) bool {
	own := s.names[n.base:]
	if n.seen == nil {
		for _, other := range own {
			if len(other) == len(name) && string(other) == string(name) {
				return false
			}
		}
		if len(own) < fewNames {
			s.names = append(s.names, name)
			return true
		}
		n.seen = make(map[string]struct{}, 4*fewNames)
		for _, other := range own {
			n.seen[string(other)] = struct{}{}
		}
	}
	if _, ok := n.seen[string(name)]; ok {
		return false
	}
	n.seen[string(name)] = struct{}{}
	return true
}

// failField is fail with a field's path.
func (s *scanner) failField(code string, pos int, field, reason string) bool {
	if s.err == nil {
		s.err = &DocError{Code: code, Position: pos, Field: cut(field, 255), Reason: reason}
	}
	return false
}

// shorten quotes a name for a message.
func shorten(name string) string { return strconv.Quote(cut(name, 100)) }

// cut ends a long text at a character's border, with an ellipsis.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}
