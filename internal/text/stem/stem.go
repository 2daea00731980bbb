// Package stem reduces words to stems: the Snowball algorithms, version 3, of the languages that the schema language names.
//
// Contract: words are lower-cased letters, UTF-8, of one language. The stems of the 17 languages with a published vocabulary
// are those of the vocabulary, word for word. English works on bytes without allocation; the others work on characters in a
// Buf that is reused. Danish, Hungarian, Italian, Portuguese, Romanian, Spanish, Turkish, Arabic, Tamil and Porter run on the
// snowballstem library (Snowball 2 rules, and an allocation or a few for each word) with the later rules added around it; the rest is written here from the published
// algorithm descriptions (snowballstem.org).
//
// Concurrency: functions are safe for use at once, a Buf belongs to one goroutine at a time.
package stem

import (
	"sort"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
)

// Version names the rules. It changes when any stem changes; indexes record it, because stems of two versions do not meet.
const Version = "snowball-3.0"

// Buf is the working memory of one stemming at a time. The zero value is ready.
type Buf struct {
	r   []rune // the word in characters
	out []byte // the stem in UTF-8
	env *snowballstem.Env
}

// Func returns the stem of word. The result aliases word or b and is valid until the next call with b; word is not changed.
// A stem can be empty (Turkish takes a word that is only an ending away); a caller that needs a term keeps the word then.
type Func func(b *Buf, word []byte) []byte

// maxWord is the longest word in bytes that is stemmed; a longer one is its own stem. No word of any language comes near, and the
// cost of some algorithms grows faster than the length.
const maxWord = 255

// Language is one language with a stemmer.
type Language struct {
	Code string // ISO 639-1
	Name string // English name, lower case
	Stem Func
}

var languages = []Language{
	{"ar", "arabic", arabic},
	{"da", "danish", danish},
	{"de", "german", runes(german)},
	{"el", "greek", runes(greek)},
	{"en", "english", english},
	{"es", "spanish", spanish},
	{"fi", "finnish", runes(finnish)},
	{"fr", "french", runes(french)},
	{"hu", "hungarian", hungarian},
	{"it", "italian", italian},
	{"nl", "dutch", runes(dutch)},
	{"no", "norwegian", runes(norwegian)},
	{"pt", "portuguese", portuguese},
	{"ro", "romanian", romanian},
	{"ru", "russian", runes(russian)},
	{"sv", "swedish", runes(swedish)},
	{"ta", "tamil", tamil},
	{"tr", "turkish", turkish},
}

// Languages returns every language, ascending by code.
func Languages() []Language { return append([]Language(nil), languages...) }

// Lookup returns the language with the given code or English name.
func Lookup(s string) (Language, bool) {
	for _, l := range languages {
		if l.Code == s || l.Name == s {
			return l, true
		}
	}
	return Language{}, false
}

// Porter is the original Porter stemmer for English (1980), kept for comparison runs; english is its successor.
func Porter(b *Buf, word []byte) []byte { return porter(b, word) }

// runes makes a Func of an algorithm on characters. The algorithm may change w and must return its result in it or in a
// longer slice of the same array.
func runes(f func(w []rune) []rune) Func {
	return func(b *Buf, word []byte) []byte {
		if len(word) > maxWord {
			return word
		}
		// Room for the letters that an algorithm inserts.
		if cap(b.r) < len(word)+16 {
			b.r = make([]rune, 0, len(word)+64)
		}
		w := b.r[:0]
		for i := 0; i < len(word); {
			r, n := utf8.DecodeRune(word[i:])
			if r == utf8.RuneError && n == 1 {
				return word // not text: leave it alone
			}
			w = append(w, r)
			i += n
		}
		b.r = w
		w = f(w)
		b.out = b.out[:0]
		for _, r := range w {
			b.out = utf8.AppendRune(b.out, r)
		}
		return b.out
	}
}

// A suffix is one entry of a table: the letters, and which group of the table it belongs to (from 1).
type suffix struct {
	s   []rune
	act int
}

// A table finds the longest of its suffixes (or, for prefixes, of its entries) that a word has.
type table struct {
	by [64][]suffix // by a hash of the last letter, longest first
}

// suffixes makes a table. Each argument is one group: words separated by spaces. Their action is the group's number, from 1.
func suffixes(groups ...string) *table {
	t := new(table)
	for i, g := range groups {
		for start := 0; start < len(g); {
			for start < len(g) && g[start] == ' ' {
				start++
			}
			end := start
			for end < len(g) && g[end] != ' ' {
				end++
			}
			if end > start {
				s := []rune(g[start:end])
				h := s[len(s)-1] & 63
				t.by[h] = append(t.by[h], suffix{s, i + 1})
			}
			start = end
		}
	}
	for h := range t.by {
		sort.SliceStable(t.by[h], func(i, j int) bool { return len(t.by[h][i].s) > len(t.by[h][j].s) })
	}
	return t
}

// find returns the action of the longest suffix of w that does not begin before lo, and the position where it begins; 0 and
// len(w) if there is none.
func (t *table) find(w []rune, lo int) (act, at int) {
	if len(w) <= lo || len(w) == 0 {
		return 0, len(w)
	}
	for _, e := range t.by[w[len(w)-1]&63] {
		at := len(w) - len(e.s)
		if at >= lo && equal(w[at:], e.s) {
			return e.act, at
		}
	}
	return 0, len(w)
}

// whole returns the action of the entry that is all of w, or 0.
func (t *table) whole(w []rune) int {
	if len(w) == 0 {
		return 0
	}
	for _, e := range t.by[w[len(w)-1]&63] {
		if len(e.s) == len(w) && equal(w, e.s) {
			return e.act
		}
	}
	return 0
}

func equal(a, b []rune) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range b {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// ends reports whether w ends in s.
func ends(w []rune, s string) bool {
	i := len(w)
	for len(s) > 0 {
		r, n := utf8.DecodeLastRuneInString(s)
		if i == 0 || w[i-1] != r {
			return false
		}
		i--
		s = s[:len(s)-n]
	}
	return true
}

// starts reports whether w starts with s.
func starts(w []rune, s string) bool {
	i := 0
	for _, r := range s {
		if i >= len(w) || w[i] != r {
			return false
		}
		i++
	}
	return true
}

// put appends the letters of s.
func put(w []rune, s string) []rune {
	for _, r := range s {
		w = append(w, r)
	}
	return w
}

// A group is a set of letters below U+0180 and a few above.
type group struct {
	low  [6]uint64
	more []rune
}

func letters(s string) *group {
	g := new(group)
	for _, r := range s {
		if r < 0x180 {
			g.low[r>>6] |= 1 << (r & 63)
		} else {
			g.more = append(g.more, r)
		}
	}
	return g
}

func (g *group) has(r rune) bool {
	if r < 0x180 {
		return r >= 0 && g.low[r>>6]&(1<<(r&63)) != 0
	}
	for _, m := range g.more {
		if m == r {
			return true
		}
	}
	return false
}

// past returns the position after the first letter at or after i that is in g (in) or is not (!in); -1 if there is none.
func (g *group) past(w []rune, i int, in bool) int {
	if i < 0 {
		return -1
	}
	for ; i < len(w); i++ {
		if g.has(w[i]) == in {
			return i + 1
		}
	}
	return -1
}

// regions returns R1 and R2 from start on: R1 begins after the first non-vowel that follows a vowel, R2 is R1 of R1.
func (g *group) regions(w []rune, start int) (p1, p2 int) {
	p1 = g.past(w, g.past(w, start, true), false)
	if p1 < 0 {
		return len(w), len(w)
	}
	p2 = g.past(w, g.past(w, p1, true), false)
	if p2 < 0 {
		p2 = len(w)
	}
	return p1, p2
}
