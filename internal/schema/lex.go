package schema

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEnd tokenKind = iota
	tokWord
	tokNumber // digits, optionally a point and digits
	tokString // "…" or r"…"; val is what it stands for
	tokPunct  // one character
	tokBad    // val says what is wrong
)

type token struct {
	kind tokenKind
	off  int    // where it starts
	end  int    // just behind it
	text string // as written
	val  string // tokString: without quotes and escapes
}

// found says what a token is, for messages.
func (t token) found() string {
	switch t.kind {
	case tokEnd:
		return "the end of the text"
	case tokBad:
		return t.val
	}
	if len(t.text) > 40 {
		cut := 40
		for !utf8.RuneStart(t.text[cut]) {
			cut--
		}
		return fmt.Sprintf("%q…", t.text[:cut])
	}
	return fmt.Sprintf("%q", t.text)
}

// lexer cuts SDL into tokens. Comments run from # to the end of the line.
type lexer struct {
	src string
	pos int
}

func (l *lexer) next() token {
	for l.pos < len(l.src) {
		switch c := l.src[l.pos]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			l.pos++
			continue
		case c == '#':
			nl := strings.IndexByte(l.src[l.pos:], '\n')
			if nl < 0 {
				l.pos = len(l.src)
			} else {
				l.pos += nl + 1
			}
			continue
		}
		break
	}
	start := l.pos
	if start == len(l.src) {
		return token{kind: tokEnd, off: start, end: start}
	}
	c := l.src[start]
	switch {
	case c == '"':
		return l.quoted()
	case c == 'r' && start+1 < len(l.src) && l.src[start+1] == '"':
		q := strings.IndexByte(l.src[start+2:], '"')
		if q < 0 {
			l.pos = len(l.src)
			return token{kind: tokBad, off: start, end: l.pos, val: "a string without its closing quote"}
		}
		l.pos = start + 2 + q + 1
		return token{kind: tokString, off: start, end: l.pos, text: l.src[start:l.pos], val: l.src[start+2 : start+2+q]}
	case isWordStart(c):
		l.pos++
		for l.pos < len(l.src) && isWordPart(l.src[l.pos]) {
			l.pos++
		}
		return token{kind: tokWord, off: start, end: l.pos, text: l.src[start:l.pos]}
	case isDigit(c):
		l.digits()
		if l.pos+1 < len(l.src) && l.src[l.pos] == '.' && isDigit(l.src[l.pos+1]) {
			l.pos++
			l.digits()
		}
		return token{kind: tokNumber, off: start, end: l.pos, text: l.src[start:l.pos]}
	}
	_, n := utf8.DecodeRuneInString(l.src[start:])
	l.pos += n
	return token{kind: tokPunct, off: start, end: l.pos, text: l.src[start:l.pos]}
}

func (l *lexer) digits() {
	for l.pos < len(l.src) && isDigit(l.src[l.pos]) {
		l.pos++
	}
}

// quoted reads "…" with the escapes \n, \t, \" and \\; a backslash before anything else stands for itself.
func (l *lexer) quoted() token {
	start := l.pos
	var b strings.Builder
	for i := start + 1; i < len(l.src); i++ {
		switch c := l.src[i]; c {
		case '"':
			l.pos = i + 1
			return token{kind: tokString, off: start, end: l.pos, text: l.src[start:l.pos], val: b.String()}
		case '\\':
			if i+1 == len(l.src) {
				break
			}
			i++
			switch e := l.src[i]; e {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case '"', '\\':
				b.WriteByte(e)
			default:
				b.WriteByte('\\')
				b.WriteByte(e)
			}
		default:
			b.WriteByte(c)
		}
	}
	l.pos = len(l.src)
	return token{kind: tokBad, off: start, end: l.pos, val: "a string without its closing quote"}
}

// quote is the inverse of quoted.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\n':
			b.WriteString(`\n`)
		case '\t':
			b.WriteString(`\t`)
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func isDigit(c byte) bool     { return c >= '0' && c <= '9' }
func isWordStart(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func isWordPart(c byte) bool  { return isWordStart(c) || isDigit(c) }

// isWord says whether s can stand in SDL without quotes.
func isWord(s string) bool {
	if s == "" || !isWordStart(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if !isWordPart(s[i]) {
			return false
		}
	}
	return true
}
