package framed

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/wire/jsonscan"
)

// errMalformed is wrapped by the errors of replies that cannot be read.
var errMalformed = errors.New("malformed reply")

// maxDepth is how deep values may nest: what the scanner passes over and what the parsers of members read is the same.
const maxDepth = jsonscan.MaxDepth

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
	from := jsonscan.Space(s.b, s.i)
	end, plain, reason := jsonscan.String(s.b, from)
	if s.i = end; reason != "" {
		s.fail(reason)
		return nil, false
	}
	return s.b[from:end], plain
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
	n := jsonscan.NumberLen(s.b[s.i:])
	if n == 0 {
		s.fail("expected a number")
		return nil
	}
	s.i += n
	return s.b[s.i-n : s.i]
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

// shaped reads any value and returns its text and its shape. It makes nothing, whatever is in the value: names that come twice in an
// object are for those to find who read it.
func (s *scanner) shaped() (raw []byte, is jsonscan.Shape) {
	s.peek()
	from := s.i
	end, is, reason := jsonscan.Value(s.b, from, maxDepth-s.deep)
	if s.i = end; reason != "" {
		s.fail(reason)
		return nil, jsonscan.Shape{}
	}
	return s.b[from:end:end], is
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
