package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// fold holds for each ASCII letter and digit its lower case, 0 for every other byte.
var fold = func() (t [256]byte) {
	for b := byte('0'); b <= '9'; b++ {
		t[b] = b
	}
	for b := byte('a'); b <= 'z'; b++ {
		t[b] = b
		t[b-'a'+'A'] = b
	}
	return t
}()

// isSpace reports ASCII white space.
func isSpace(b byte) bool { return b == ' ' || b-'\t' < 5 }

// isAlnum reports whether r is a letter or digit: the Unicode property Alphabetic, or a number (Nd, Nl, No).
func isAlnum(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 0 && fold[r] != 0
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Other_Alphabetic, r))
}

// appendLower appends the full lower case of r, without regard to its neighbours.
func appendLower(dst []byte, r rune) []byte {
	if r == 'İ' { // the only letter whose unconditional lower case is two characters (SpecialCasing.txt)
		return append(dst, "i\u0307"...)
	}
	return utf8.AppendRune(dst, unicode.ToLower(r))
}

// lowerString is s in lower case, letter by letter, as tokens are.
func lowerString(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	b := make([]byte, 0, len(s)+8)
	for _, r := range s {
		b = appendLower(b, r)
	}
	return string(b)
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// alnum splits at everything but letters and digits and lower-cases.
func alnum(s *Scratch, v string) {
	dst, pos := s.low[:len(v)], uint32(0)
	for i := 0; i < len(v); {
		c := fold[v[i]]
		if c == 0 {
			if v[i] < utf8.RuneSelf {
				i++
				continue
			}
			r, n := utf8.DecodeRuneInString(v[i:])
			if !isAlnum(r) {
				i += n
				continue
			}
		}
		start := i
		for c != 0 {
			dst[i] = c
			i++
			if i == len(v) {
				break
			}
			c = fold[v[i]]
		}
		text := dst[start:i:i]
		if i < len(v) && v[i] >= utf8.RuneSelf {
			text, i = alnumRest(s, v, text, i)
		}
		if len(text) <= MaxTokenBytes {
			s.emit(text, pos, start, i)
		}
		pos++
	}
}

// alnumRest reads on in a token of which text has been read, at a byte that is not ASCII.
func alnumRest(s *Scratch, v string, text []byte, i int) ([]byte, int) {
	from := len(s.buf)
	s.buf = append(s.buf, text...)
	for i < len(v) {
		if c := fold[v[i]]; c != 0 {
			s.buf = append(s.buf, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(v[i:])
		if !isAlnum(r) {
			break
		}
		s.buf = appendLower(s.buf, r)
		i += n
	}
	return s.buf[from:len(s.buf):len(s.buf)], i
}

// simple splits at white space, deletes all but letters and digits inside each piece and lower-cases what is left. A piece of
// which nothing is left takes no position.
func simple(s *Scratch, v string) {
	dst, pos := s.low[:len(v)], uint32(0)
	for i := 0; i < len(v); {
		b := v[i]
		if isSpace(b) {
			i++
			continue
		}
		start, j := i, i
		for {
			if c := fold[b]; c != 0 {
				dst[j] = c
				j++
			} else if isSpace(b) || b >= utf8.RuneSelf {
				break
			}
			i++
			if i == len(v) {
				break
			}
			b = v[i]
		}
		text, end := dst[start:j:j], i
		if i < len(v) && b >= utf8.RuneSelf {
			text, end, i = simpleRest(s, v, text, i)
			if end == start { // the piece begins with white space that is not ASCII
				continue
			}
		}
		if len(text) == 0 {
			continue
		}
		if len(text) <= MaxTokenBytes {
			s.emit(text, pos, start, end)
		}
		pos++
	}
}

// simpleRest reads on in a piece of which text has been read, at a byte that is not ASCII. It returns the token, where the piece ends, and
// where to go on.
func simpleRest(s *Scratch, v string, text []byte, i int) (token []byte, end, next int) {
	from := len(s.buf)
	s.buf = append(s.buf, text...)
	for i < len(v) {
		b := v[i]
		if b < utf8.RuneSelf {
			if c := fold[b]; c != 0 {
				s.buf = append(s.buf, c)
			} else if isSpace(b) {
				break
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(v[i:])
		if unicode.IsSpace(r) {
			return s.buf[from:len(s.buf):len(s.buf)], i, i + n
		}
		if isAlnum(r) {
			s.buf = appendLower(s.buf, r)
		}
		i += n
	}
	return s.buf[from:len(s.buf):len(s.buf)], i, i
}

// raw is the whole value without white space at its ends.
func raw(s *Scratch, v string) { whole(s, v, false) }

// rawCI is raw in lower case.
func rawCI(s *Scratch, v string) { whole(s, v, true) }

func whole(s *Scratch, v string, lower bool) {
	t := strings.TrimSpace(v)
	if t == "" {
		return
	}
	start := strings.Index(v, t)
	from := len(s.buf)
	if !lower {
		s.buf = append(s.buf, t...)
	} else {
		for i := 0; i < len(t); {
			if b := t[i]; b < utf8.RuneSelf {
				if b-'A' < 26 {
					b |= 0x20
				}
				s.buf = append(s.buf, b)
				i++
				continue
			}
			r, n := utf8.DecodeRuneInString(t[i:])
			if r == utf8.RuneError && n == 1 {
				s.buf = append(s.buf, t[i])
			} else {
				s.buf = appendLower(s.buf, r)
			}
			i += n
		}
	}
	if text := s.buf[from:]; len(text) <= MaxTokenBytes {
		s.emit(text, 0, start, start+len(t))
	}
}
