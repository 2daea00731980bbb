// Package jsonscan walks JSON text that is held as a whole, strictly by RFC 8259, and makes nothing of it: it tells where values end. It is for
// text that is passed on as it is, which must be JSON but need not be understood.
//
// Names that come twice in an object are for those to find who read it. Whether the text is UTF-8 is not looked at but by Valid; a string may hold
// any bytes from 0x20 on. Nothing here allocates, but for what nests more than 32 levels deep.
package jsonscan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest, which is what package jsontext allows too.
const MaxDepth = 10_000

// Shape is what can be told of a value that was passed over.
type Shape struct {
	Depth   int // arrays and objects within each other; 0 of a scalar
	Members int // of the object in it that has the most
}

// What is wrong with a text.
const (
	noString   = "expected a string"
	noEnd      = "a string does not end"
	noEscape   = "a string has an escape that is none"
	noControl  = "a control character stands in a string"
	noColon    = "expected ':'"
	noNumber   = "expected a number"
	tooDeep    = "it is nested too deep"
	noArrayEnd = "expected a comma or ']'"
	noEnding   = "expected a comma or '}'"
	noMore     = "something stands behind the value"
	noObject   = "expected an object"
	noArray    = "expected an array"
)

// Space returns the place of the first byte from i on that is no white space; the length of b if there is none.
func Space(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\r', '\n':
			i++
		default:
			return i
		}
	}
	return i
}

// String passes over the string that begins at b[i], with a quote, and returns the place behind its closing quote. plain says that nothing in
// it is escaped. Where there is no string, reason says why, and end is where.
func String(b []byte, i int) (end int, plain bool, reason string) {
	if i >= len(b) || b[i] != '"' {
		return i, false, noString
	}
	from := i
	plain = true
	for i++; ; {
		i += unescaped(b[i:])
		if i == len(b) {
			return from, false, noEnd
		}
		switch b[i] {
		case '"':
			return i + 1, plain, ""
		case '\\':
			plain = false
			n := escapeLen(b[i:])
			if n == 0 {
				return from, false, noEscape
			}
			i += n
		default:
			return from, false, noControl
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

// NumberLen is the length of the number at the start of b; 0 if there is none.
func NumberLen(b []byte) int {
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

// Value passes over the value that begins at b[i], which is no white space, and returns the place behind it and its shape. Arrays and objects
// nest at most most levels deep. Where there is no value, reason says why, and end is where.
func Value(b []byte, i, most int) (end int, is Shape, reason string) {
	if i < len(b) && (b[i] == '{' || b[i] == '[') {
		return nested(b, i, most)
	}
	end, reason = scalar(b, i)
	return end, is, reason
}

// scalar passes over a value that does not nest.
func scalar(b []byte, i int) (end int, reason string) {
	c := byte(0)
	if i < len(b) {
		c = b[i]
	}
	switch c {
	case '"':
		end, _, reason = String(b, i)
		return end, reason
	case 't':
		return literal(b, i, "true")
	case 'f':
		return literal(b, i, "false")
	case 'n':
		return literal(b, i, "null")
	}
	n := NumberLen(b[min(i, len(b)):])
	if n == 0 {
		return i, noNumber
	}
	return i + n, ""
}

func literal(b []byte, i int, word string) (end int, reason string) {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return i, "expected " + word
	}
	return i + len(word), ""
}

// nested passes over an array or an object.
func nested(b []byte, i, most int) (end int, is Shape, reason string) {
	// What is open: the members of an object so far, -1 for an array. The first ones need no memory.
	var room [32]int32
	open := room[:0]
	for {
		// Before a value.
		i = Space(b, i)
		if i < len(b) && (b[i] == '{' || b[i] == '[') {
			if len(open) >= most {
				return i, Shape{}, tooDeep
			}
			count, closing := int32(-1), byte(']')
			if b[i] == '{' {
				count, closing = 0, '}'
			}
			open = append(open, count)
			is.Depth = max(is.Depth, len(open))
			i = Space(b, i+1)
			if i >= len(b) || b[i] != closing {
				if closing == '}' {
					if i, reason = name(b, i, open, &is); reason != "" {
						return i, Shape{}, reason
					}
				}
				continue
			}
		} else if i, reason = scalar(b, i); reason != "" {
			return i, Shape{}, reason
		}
		// Behind a value, or at the end of an empty one.
		for {
			last := len(open) - 1
			closing := byte(']')
			if open[last] >= 0 {
				closing = '}'
			}
			i = Space(b, i)
			if i < len(b) && b[i] == ',' {
				i++
				if closing == '}' {
					if i, reason = name(b, Space(b, i), open, &is); reason != "" {
						return i, Shape{}, reason
					}
				}
				break
			}
			if i >= len(b) || b[i] != closing {
				if closing == '}' {
					return i, Shape{}, noEnding
				}
				return i, Shape{}, noArrayEnd
			}
			i++
			if open = open[:last]; last == 0 {
				return i, is, ""
			}
		}
	}
}

// name passes over the name of a member of the object that was opened last, and counts it.
func name(b []byte, i int, open []int32, is *Shape) (end int, reason string) {
	if end, _, reason = String(b, i); reason != "" {
		return end, reason
	}
	if end = Space(b, end); end >= len(b) || b[end] != ':' {
		return end, noColon
	}
	last := &open[len(open)-1]
	*last++
	is.Members = max(is.Members, int(*last))
	return end + 1, ""
}

// Valid tells whether b is one JSON value of valid UTF-8, with nothing but white space around it.
func Valid(b []byte) bool {
	end, _, reason := Value(b, Space(b, 0), MaxDepth)
	return reason == "" && Space(b, end) == len(b) && utf8.Valid(b)
}
