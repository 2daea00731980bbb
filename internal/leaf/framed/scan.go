package framed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/api"
)

// errMalformed is wrapped by the errors of replies that cannot be read.
var errMalformed = errors.New("malformed reply")

// maxDepth is how deep values may nest, which is what package jsontext allows too: what the scanner passes over and what the parsers
// of members read is the same.
const maxDepth = 10_000

// maxMembers is how many members an object of the protocol may have, those that are not known included.
const maxMembers = 64

// scanner reads JSON text from left to right, strictly, without making anything but what is asked of it. After a failure every
// method returns at once with nothing, so that callers look at err only at the end.
type scanner struct {
	b    []byte
	i    int
	text string // of b, if texts are to be parts of it instead of copies
	err  error
	deep int          // arrays and objects that a value which is passed over stands in, as far as that counts
	over *api.Problem // what there is too much of or twice, if that is why it failed
}

// newScanner reads b, which it also checks to be UTF-8. share says that all texts are kept in one copy of b: one allocation for
// many short texts that live and die together.
func newScanner(b []byte, share bool) *scanner {
	s := &scanner{b: b}
	if !utf8.Valid(b) {
		s.fail("it is not UTF-8")
	} else if share {
		s.text = string(b)
	}
	return s
}

func (s *scanner) fail(reason string) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: byte %d: %s", errMalformed, s.i, reason)
		s.i = len(s.b)
	}
}

// peek returns the next byte that is no white space; 0 at the end and after a failure.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// expect reads one byte of structure.
func (s *scanner) expect(c byte) {
	if s.peek() != c {
		s.fail("expected " + strconv.QuoteRune(rune(c)))
		return
	}
	s.i++
}

// next tells whether another element stands before the closing byte, which it reads, with the comma before the element. first is
// true before the first call for an array or object.
func (s *scanner) next(first *bool, closing byte) bool {
	c := s.peek()
	switch {
	case s.err != nil:
	case c == closing:
		s.i++
	case *first:
		*first = false
		return true
	case c == ',':
		s.i++
		return true
	default:
		s.fail("expected a comma or " + strconv.QuoteRune(rune(closing)))
	}
	return false
}

// token reads a string with its quotes, and checks what is escaped in it. plain says that nothing is.
func (s *scanner) token() (raw []byte, plain bool) {
	if s.peek() != '"' {
		s.fail("expected a string")
		return nil, false
	}
	from := s.i
	plain = true
	for i := from + 1; ; {
		i += unescaped(s.b[i:])
		if i == len(s.b) {
			s.fail("a string does not end")
			return nil, false
		}
		switch s.b[i] {
		case '"':
			s.i = i + 1
			return s.b[from:s.i], plain
		case '\\':
			plain = false
			n := escapeLen(s.b[i:])
			if n == 0 {
				s.fail("a string has an escape that is none")
				return nil, false
			}
			i += n
		default:
			s.fail("a control character stands in a string")
			return nil, false
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// unescaped returns how many bytes at the start of b stand for themselves in a string: up to a quote, a backslash, a control character
// or the end.
func unescaped(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		// The high bit of each byte that is below 0x20, a quote or a backslash. A borrow can set wrong bits only above the first right one,
		// and the lowest is taken; bytes beyond ASCII stand for themselves.
		quote, slash := w^ones*'"', w^ones*'\\'
		if m := ((w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// escapeLen is the length of the escape at the start of b, that of both halves of a surrogate pair; 0 if it is none. Half a pair is
// none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r, ok := hex4(b[2:])
		switch {
		case !ok:
			return 0
		case !utf16.IsSurrogate(r):
			return 6
		}
		if len(b) >= 8 && b[6] == '\\' && b[7] == 'u' {
			if low, ok := hex4(b[8:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
				return 12
			}
		}
	}
	return 0
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// str reads a string.
func (s *scanner) str() string {
	raw, plain := s.token()
	switch {
	case s.err != nil:
		return ""
	case plain && s.text != "":
		return s.text[s.i-len(raw)+1 : s.i-1]
	case plain:
		return string(raw[1 : len(raw)-1])
	}
	return string(unquote(raw))
}

// unquote is what a string says. raw has its quotes; token has accepted it. The slice is new.
func unquote(raw []byte) []byte {
	// An escape is longer than what it stands for, so that there is room. The error is nil: token has seen every escape.
	b, err := jsontext.AppendUnquote(make([]byte, 0, len(raw)), raw)
	if err != nil {
		return nil
	}
	return b
}

// name reads the name of a member and the colon. It is valid until the next call of a method.
func (s *scanner) name() []byte {
	raw, plain := s.token()
	if s.err != nil {
		return nil
	}
	s.expect(':')
	if plain {
		return raw[1 : len(raw)-1]
	}
	return unquote(raw)
}

// object calls member for each member; member reads the value. A name that comes twice is a failure.
func (s *scanner) object(member func(name []byte)) {
	s.expect('{')
	var room [32][]byte
	seen := room[:0]
	for first := true; s.next(&first, '}'); {
		name := s.name()
		if s.err != nil {
			return
		}
		for _, n := range seen {
			if string(n) == string(name) {
				s.twice(name)
				return
			}
		}
		if len(seen) == maxMembers {
			s.fail("an object has too many members")
			return
		}
		seen = append(seen, name)
		member(name)
	}
}

// twice fails for a member that is given twice.
func (s *scanner) twice(name []byte) {
	if s.err == nil {
		s.over = repeated(string(name))
		s.fail("a member is given twice")
	}
}

// number reads a number and returns its text.
func (s *scanner) number() []byte {
	s.peek()
	n := numberLen(s.b[s.i:])
	if n == 0 {
		s.fail("expected a number")
		return nil
	}
	s.i += n
	return s.b[s.i-n : s.i]
}

// numberLen is the length of the number at the start of b; 0 if there is none.
func numberLen(b []byte) int {
	i := 0
	if i < len(b) && b[i] == '-' {
		i++
	}
	from := i
	if i < len(b) && b[i] == '0' {
		i++
	} else {
		i += digits(b[i:])
	}
	if i == from {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		n := digits(b[i+1:])
		if n == 0 {
			return 0
		}
		i += 1 + n
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := digits(b[i:])
		if n == 0 {
			return 0
		}
		i += n
	}
	return i
}

// digits is how many digits stand at the start of b.
func digits(b []byte) int {
	i := 0
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// u64 reads a whole number from 0.
func (s *scanner) u64() uint64 {
	raw := s.number()
	if s.err != nil {
		return 0
	}
	n, ok := parseU64(raw)
	if !ok {
		s.fail("expected a whole number of 64 bits")
	}
	return n
}

// decimal reads a whole number in a string: one that a reader of JSON with 64-bit floats must not touch.
func (s *scanner) decimal() uint64 {
	raw, _ := s.token()
	if s.err != nil {
		return 0
	}
	n, ok := parseU64(raw[1 : len(raw)-1])
	if !ok {
		s.fail("expected a whole number of 64 bits in a string")
	}
	return n
}

// parseU64 reads digits without a sign or leading zeros.
func parseU64(raw []byte) (uint64, bool) {
	if len(raw) == 0 || len(raw) > 20 || raw[0] == '0' && len(raw) > 1 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		hi, lo := bits.Mul64(n, 10)
		sum, carry := bits.Add64(lo, uint64(c-'0'), 0)
		if hi != 0 || carry != 0 {
			return 0, false
		}
		n = sum
	}
	return n, true
}

// count reads a whole number that fits an int.
func (s *scanner) count() int {
	n := s.u64()
	if n > 1<<53 {
		s.fail("a count is too large")
		return 0
	}
	return int(n)
}

// float32 reads a score.
func (s *scanner) float32() float32 {
	raw := s.number()
	if s.err != nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(raw), 32)
	if err != nil {
		s.fail("a score is no 32-bit float")
	}
	return float32(f)
}

// bool reads true or false.
func (s *scanner) bool() bool {
	if s.peek() == 't' {
		s.literal("true")
		return s.err == nil
	}
	s.literal("false")
	return false
}

// null reads null, if that is next.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.literal("null")
	return s.err == nil
}

func (s *scanner) literal(word string) {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		s.fail("expected " + word)
		return
	}
	s.i += len(word)
}

// strings reads an array of strings, at most as many as most; nil if it is empty.
func (s *scanner) strings(most int) []string {
	var list []string
	s.expect('[')
	for first := true; s.next(&first, ']'); {
		if len(list) == most {
			s.fail("a list has too many entries")
			return nil
		}
		list = append(list, s.str())
	}
	return list
}

// value reads any value and returns its text.
func (s *scanner) value() []byte {
	raw, _ := s.shaped()
	return raw
}

// shape is what can be told of a value that was passed over.
type shape struct {
	depth   int // arrays and objects within each other; 0 of a scalar
	members int // of the object in it that has the most
}

// shaped reads any value and returns its text and its shape. It makes nothing, whatever is in the value: names that come twice in an
// object are for those to find who read it.
func (s *scanner) shaped() (raw []byte, is shape) {
	c := s.peek()
	from := s.i
	if c == '{' || c == '[' {
		is = s.nested()
	} else {
		s.scalar(c)
	}
	if s.err != nil {
		return nil, shape{}
	}
	return s.b[from:s.i:s.i], is
}

// scalar reads a value that begins with c and is none that nests.
func (s *scanner) scalar(c byte) {
	switch c {
	case '"':
		s.token()
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		s.number()
	}
}

// nested reads an array or an object.
func (s *scanner) nested() (is shape) {
	// What is open: the members of an object so far, -1 for an array. The first ones need no memory.
	var room [32]int32
	open := room[:0]
	for {
		// Before a value.
		switch c := s.peek(); c {
		case '{', '[':
			if s.deep+len(open) >= maxDepth {
				s.fail("it is nested too deep")
				return shape{}
			}
			s.i++
			count, closing := int32(-1), byte(']')
			if c == '{' {
				count, closing = 0, '}'
			}
			open = append(open, count)
			is.depth = max(is.depth, len(open))
			if s.peek() != closing {
				if c == '{' {
					s.memberName(open, &is)
				}
				continue
			}
		default:
			s.scalar(c)
		}
		// Behind a value, or at the end of an empty one.
		for {
			if s.err != nil {
				return shape{}
			}
			last := len(open) - 1
			closing := byte(']')
			if open[last] >= 0 {
				closing = '}'
			}
			c := s.peek()
			if c == ',' {
				s.i++
				if closing == '}' {
					s.memberName(open, &is)
				}
				break
			}
			if c != closing {
				s.fail("expected a comma or " + strconv.QuoteRune(rune(closing)))
				return shape{}
			}
			s.i++
			if open = open[:last]; last == 0 {
				return is
			}
		}
	}
}

// memberName reads the name of a member of the object that was opened last, and counts it.
func (s *scanner) memberName(open []int32, is *shape) {
	s.token()
	s.expect(':')
	last := &open[len(open)-1]
	*last++
	is.members = max(is.members, int(*last))
}

// end checks that nothing follows.
func (s *scanner) end() error {
	s.peek()
	if s.err == nil && s.i < len(s.b) {
		s.fail("something stands behind the value")
	}
	return s.err
}

// micros reads milliseconds with up to three decimals.
func (s *scanner) micros() int64 {
	raw := s.number()
	if s.err != nil {
		return 0
	}
	n, ok := parseMillis(raw)
	if !ok {
		s.fail("expected milliseconds")
	}
	return n
}

// parseMillis reads milliseconds as microseconds; what is finer is cut off. Exponents and negative times are refused.
func parseMillis(raw []byte) (int64, bool) {
	whole, frac := raw, []byte(nil)
	for i, c := range raw {
		if c == '.' {
			whole, frac = raw[:i], raw[i+1:]
			break
		}
	}
	n, ok := parseU64(whole)
	if !ok || n > 1<<53 {
		return 0, false
	}
	micros := int64(n)
	for i := range max(3, len(frac)) {
		d := int64(0)
		if i < len(frac) {
			if frac[i] < '0' || frac[i] > '9' {
				return 0, false
			}
			d = int64(frac[i] - '0')
		}
		if i < 3 {
			micros = micros*10 + d
		}
	}
	return micros, true
}
