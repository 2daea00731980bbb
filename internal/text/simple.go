package text

import (
	"unicode"
	"unicode/utf8"
)

// Classes of ASCII bytes.
const (
	cOther byte = iota
	cSpace
	cAlnum
	cHigh // not ASCII
)

// class and lower say for each byte what it is and its lower case.
var (
	class [256]byte
	lower [256]byte
)

func init() {
	for i := range class {
		b := byte(i)
		lower[i] = b
		switch {
		case b >= utf8.RuneSelf:
			class[i] = cHigh
		case b == ' ' || b >= '\t' && b <= '\r':
			class[i] = cSpace
		case b >= '0' && b <= '9' || b >= 'a' && b <= 'z':
			class[i] = cAlnum
		case b >= 'A' && b <= 'Z':
			class[i] = cAlnum
			lower[i] = b | 0x20
		}
	}
}

// isAlnum reports whether r has the Unicode property Alphabetic or is a number (Nd, Nl, No).
func isAlnum(r rune) bool {
	if r < utf8.RuneSelf {
		return class[r] == cAlnum
	}
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Other_Alphabetic, r)
}

// appendLower appends the full lower case of r, without regard to its neighbours.
func appendLower(dst []byte, r rune) []byte {
	if r == 'İ' { // the only letter whose unconditional lower case is two characters (SpecialCasing.txt)
		return append(dst, "i\u0307"...)
	}
	return utf8.AppendRune(dst, unicode.ToLower(r))
}

// simple splits at white space, deletes all but letters and digits inside each piece and lower-cases what is left. A piece of
// which nothing is left takes no position.
func simple(s *Scratch, v string) {
	buf, pos := s.buf, uint32(0)
	for i := 0; i < len(v); {
		c := class[v[i]]
		if c == cSpace {
			i++
			continue
		}
		if c == cHigh {
			r, n := utf8.DecodeRuneInString(v[i:])
			if unicode.IsSpace(r) {
				i += n
				continue
			}
		}
		start, from := i, len(buf)
	piece:
		for i < len(v) {
			b := v[i]
			switch class[b] {
			case cAlnum:
				buf = append(buf, lower[b])
				i++
			case cOther:
				i++
			case cSpace:
				break piece
			default:
				r, n := utf8.DecodeRuneInString(v[i:])
				if unicode.IsSpace(r) {
					break piece
				}
				if isAlnum(r) {
					buf = appendLower(buf, r)
				}
				i += n
			}
		}
		if len(buf) == from {
			continue
		}
		if len(buf)-from <= MaxTokenBytes {
			s.toks = append(s.toks, Token{Text: buf[from:len(buf):len(buf)], Pos: pos, Start: uint32(start), End: uint32(i)})
		}
		pos++
	}
	s.buf = buf
}

// alnum splits at everything but letters and digits and lower-cases.
func alnum(s *Scratch, v string) {
	buf, pos := s.buf, uint32(0)
	for i := 0; i < len(v); {
		start, from := i, len(buf)
		for i < len(v) {
			b := v[i]
			if class[b] == cAlnum {
				buf = append(buf, lower[b])
				i++
				continue
			}
			if b < utf8.RuneSelf {
				break
			}
			r, n := utf8.DecodeRuneInString(v[i:])
			if !isAlnum(r) {
				break
			}
			buf = appendLower(buf, r)
			i += n
		}
		if i == start {
			_, n := utf8.DecodeRuneInString(v[i:])
			i += n
			continue
		}
		if len(buf)-from <= MaxTokenBytes {
			s.toks = append(s.toks, Token{Text: buf[from:len(buf):len(buf)], Pos: pos, Start: uint32(start), End: uint32(i)})
		}
		pos++
	}
	s.buf = buf
}
