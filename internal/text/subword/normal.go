package subword

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// step changes a text before it is cut. It gives up where more than most bytes would come of it, before it makes them.
type step func(s string, most int) (out string, ok bool)

// small is a step whose text is longer by a small factor only.
func small(f func(s string) string) step {
	return func(s string, most int) (string, bool) {
		s = f(s)
		return s, len(s) <= most
	}
}

var namedSteps = map[string]step{
	"Lowercase": small(lowercase), "StripAccents": small(stripMarks),
	"ByteLevel": small(inByteChars), "NFC": small(norm.NFC.String), "NFD": small(norm.NFD.String), "NFKC": small(norm.NFKC.String), "NFKD": small(norm.NFKD.String),
}

// A text becomes no longer than this many times what it was, and some room: a table of what characters become and steps that follow one another
// can make any length of a few bytes. The normal forms make 11 bytes of one, and ByteLevel two of each.
const (
	maxLonger = 32
	longerBy  = 4 << 10
)

func mostOf(s string) int { return maxLonger*len(s) + longerBy }

var errTooLong = refuse("it makes a text more than %d times as long", maxLonger)

func (t *Tokenizer) normalise(s string, most int) (string, error) {
	for _, f := range t.normal {
		var ok bool
		if s, ok = f(s, most); !ok {
			return "", errTooLong
		}
	}
	return s, nil
}

// clean leaves out what is nothing to read, and makes every space the same.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case r == 0 || r == utf8.RuneError || other(r):
			return -1
		case space(r):
			return ' '
		}
		return r
	}, s)
}

// other is what has no kind of its own: control, format, private and unassigned characters.
func other(r rune) bool {
	return !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z)
}

func space(r rune) bool { return unicode.IsSpace(r) }

// spaceHan puts spaces around Chinese characters, so that each is a word.
func spaceHan(s string) string {
	var b strings.Builder
	for _, r := range s {
		if han(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// han are the blocks of Chinese characters that BERT knows of.
func han(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df || r >= 0x2a700 && r <= 0x2b73f ||
		r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b920 && r <= 0x2ceaf || r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}

func decompose(s string) string { return norm.NFD.String(s) }

// stripAccents is that of BERT, stripMarks the one that has a name of its own.
func stripAccents(s string) string { return without(unicode.Mn, s) }
func stripMarks(s string) string   { return without(unicode.M, s) }

func without(set *unicode.RangeTable, s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(set, r) {
			return -1
		}
		return r
	}, s)
}

// lowercase makes each character a small one, without a look at those beside it.
func lowercase(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(unicode.ToLower(r))
		if r == 'İ' { // the only one whose small form has two characters
			b.WriteRune('\u0307')
		}
	}
	return b.String()
}

func strip(s string, left, right bool) string {
	if left {
		s = strings.TrimLeftFunc(s, space)
	}
	if right {
		s = strings.TrimRightFunc(s, space)
	}
	return s
}

// cut cuts a piece of a text into words. first tells a cut that asks whether the piece begins the text; it is the only one, or the first.
type cut struct {
	first bool
	f     func(s string, first bool, dst []string) []string
}

// plain are cuts that do not ask.
func plain(fs ...func(s string, dst []string) []string) (out []cut) {
	for _, f := range fs {
		out = append(out, cut{f: func(s string, _ bool, dst []string) []string { return f(s, dst) }})
	}
	return out
}

// atSpace cuts at white space, which is left out.
func atSpace(s string, dst []string) []string { return append(dst, strings.FieldsFunc(s, space)...) }

// atPunctuation makes each mark a word of its own.
func atPunctuation(s string, dst []string) []string {
	return runs(s, dst, func(r rune) int {
		if punctuation(r) {
			return alone
		}
		return 1
	})
}

func punctuation(r rune) bool {
	return r < utf8.RuneSelf && (unicode.IsPunct(r) || unicode.IsSymbol(r)) || unicode.IsPunct(r)
}

// wordsAndRest makes words of what stands together of letters, marks and digits, and of what does of the rest. White space is left out.
func wordsAndRest(s string, dst []string) []string {
	return runs(s, dst, func(r rune) int {
		switch {
		case wordChar(r):
			return 1
		case space(r):
			return nothing
		}
		return 2
	})
}

// wordChar tells letters, marks, digits and what joins them.
func wordChar(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Other_Alphabetic, unicode.Pc, unicode.Join_Control)
}

const (
	nothing = 0
	alone   = -1
)

// runs cuts a text where the kind of its characters changes.
func runs(s string, dst []string, kind func(r rune) int) []string {
	from, last := 0, nothing
	for i, r := range s {
		k := kind(r)
		if k == last && k != alone {
			continue
		}
		if last != nothing {
			dst = append(dst, s[from:i])
		}
		from, last = i, k
	}
	if last != nothing && from < len(s) {
		dst = append(dst, s[from:])
	}
	return dst
}
