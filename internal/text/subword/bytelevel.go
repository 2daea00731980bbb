package subword

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// byteChars are the characters that stand for bytes: those that can be seen for themselves, for the others those from U+0100 on, in order.
var byteChars = func() (out [256]rune) {
	next := rune(256)
	for b := range out {
		switch {
		case b >= '!' && b <= '~', b >= 0xa1 && b <= 0xac, b >= 0xae:
			out[b] = rune(b)
		default:
			out[b] = next
			next++
		}
	}
	return out
}()

// inByteChars writes each byte of a text as a character.
func inByteChars(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(byteChars[s[i]])
	}
	return b.String()
}

// byteLevel cuts as the pre-tokenizer of that name does, and writes the words in characters for their bytes.
func byteLevel(prefix, words bool) func(s string, dst []string) []string {
	return func(s string, dst []string) []string {
		if prefix && !strings.HasPrefix(s, " ") {
			s = " " + s
		}
		if !words {
			return append(dst, inByteChars(s))
		}
		for s != "" {
			n := firstWord(s)
			dst = append(dst, inByteChars(s[:n]))
			s = s[n:]
		}
		return dst
	}
}

// firstWord is the length of the first word of a text by the expression of that pre-tokenizer: what may stand behind an apostrophe; or letters, numbers, or others
// that are no white space, with a space before them or without; or white space, of which what stands before a word leaves its last character.
func firstWord(s string) int {
	for _, end := range [...]string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"} {
		if strings.HasPrefix(s, end) {
			return len(end)
		}
	}
	kind := func(r rune) int {
		switch {
		case unicode.IsLetter(r):
			return 1
		case unicode.IsNumber(r):
			return 2
		case space(r):
			return 3
		}
		return 4
	}
	from := 0
	if s[0] == ' ' {
		from = 1
	}
	if r, n := utf8.DecodeRuneInString(s[from:]); n > 0 {
		if k := kind(r); k != 3 {
			to := from
			for to < len(s) {
				r, n := utf8.DecodeRuneInString(s[to:])
				if kind(r) != k {
					break
				}
				to += n
			}
			return to
		}
	}
	to, last := 0, 0
	for to < len(s) {
		r, n := utf8.DecodeRuneInString(s[to:])
		if !space(r) {
			break
		}
		last = to
		to += n
	}
	if to < len(s) && last > 0 {
		return last
	}
	return to
}

// metaspace writes white space as a character that is none, and cuts before it.
func metaspace(p *part) (cut, error) {
	mark := p.Replacement
	if mark == "" {
		mark = "\u2581"
	}
	if utf8.RuneCountInString(mark) != 1 {
		return cut{}, refuse("its pre-tokenizer Metaspace replaces by %q, which is not one character", mark)
	}
	scheme := strings.ToLower(p.Scheme)
	if scheme == "" {
		scheme = "always"
		if !is(p.AddPrefix, true) {
			scheme = "never"
		}
	} else if p.AddPrefix != nil && !*p.AddPrefix && scheme != "never" {
		return cut{}, refuse("its pre-tokenizer Metaspace contradicts itself")
	}
	switch scheme {
	case "always", "never", "first":
	default:
		return cut{}, refuse("its pre-tokenizer Metaspace prepends %q, which is not known", p.Scheme)
	}
	split := is(p.Split, true)
	return cut{first: scheme == "first", f: func(s string, first bool, dst []string) []string {
		s = strings.ReplaceAll(s, " ", mark)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(s, mark) {
			s = mark + s
		}
		if !split {
			return append(dst, s)
		}
		for s != "" {
			n := strings.Index(s[min(len(mark), len(s)):], mark)
			if !strings.HasPrefix(s, mark) {
				n = strings.Index(s, mark)
			} else if n >= 0 {
				n += len(mark)
			}
			if n < 0 {
				n = len(s)
			}
			dst = append(dst, s[:n])
			s = s[n:]
		}
		return dst
	}}, nil
}

// digits cuts numbers out of a text, each digit or those that stand together.
func digits(each bool) func(s string, dst []string) []string {
	return func(s string, dst []string) []string {
		return runs(s, dst, func(r rune) int {
			switch {
			case !unicode.IsNumber(r):
				return 1
			case each:
				return alone
			}
			return 2
		})
	}
}
