package subword

import (
	"strings"
	"unicode/utf8"
)

// Token returns the number of a token by its text, special or not.
func (t *Tokenizer) Token(text string) (id uint32, ok bool) {
	if id, ok = t.vocab[text]; ok {
		return id, true
	}
	for _, a := range t.added {
		if a.text == text {
			return a.id, true
		}
	}
	return 0, false
}

// Tokens appends the numbers of the tokens of a text, special ones left out, in the order of the text. The error is a *FormatError: the file
// makes the text far longer than it is.
func (t *Tokenizer) Tokens(s string, dst []uint32) ([]uint32, error) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	// What may still come of the text, of all pieces together, before it is cut and after.
	normal, cut := mostOf(s), mostOf(s)
	var fault error
	dst = t.around(s, true, false, dst, func(s string, first bool, dst []uint32) []uint32 {
		if fault == nil {
			s, fault = t.normalise(s, normal)
			normal -= len(s)
		}
		if fault != nil {
			return dst
		}
		return t.around(s, first, true, dst, func(s string, first bool, dst []uint32) []uint32 {
			if fault == nil {
				dst, fault = t.words(s, first, &cut, dst)
			}
			return dst
		})
	})
	return dst, fault
}

// around gives what stands between the added tokens of one of the two sorts to rest. first says that s begins the text.
func (t *Tokenizer) around(s string, first, normalised bool, dst []uint32, rest func(s string, first bool, dst []uint32) []uint32) []uint32 {
	from := 0
next:
	for at := 0; at < len(s); {
		if !t.first[s[at]] {
			at++
			continue
		}
		for _, a := range t.added {
			if a.normalised == normalised && strings.HasPrefix(s[at:], a.text) {
				start := at
				if at += len(a.text); a.alone && (endsWithWord(s[:start]) || beginsWithWord(s[at:])) {
					continue next
				}
				if a.left {
					start = max(from, len(strings.TrimRightFunc(s[:start], space)))
				}
				if a.right {
					at = len(s) - len(strings.TrimLeftFunc(s[at:], space))
				}
				if start > from {
					dst = rest(s[from:start], first && from == 0, dst)
				}
				dst = t.add(dst, a.id)
				from = at
				continue next
			}
		}
		at++
	}
	if from < len(s) {
		dst = rest(s[from:], first && from == 0, dst)
	}
	return dst
}

func endsWithWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && wordChar(r)
}

func beginsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && wordChar(r)
}

func (t *Tokenizer) add(dst []uint32, id uint32) []uint32 {
	if t.special[id] {
		return dst
	}
	return append(dst, id)
}

// words appends the tokens of a piece. most is what its words may have together; they are taken off.
func (t *Tokenizer) words(s string, first bool, most *int, dst []uint32) ([]uint32, error) {
	words, next := []string{s}, []string(nil)
	bytes := len(s)
	for _, c := range t.split {
		next = next[:0]
		bytes = 0
		for _, w := range words {
			n := len(next)
			next = c.f(w, first, next)
			for _, w := range next[n:] {
				bytes += len(w)
			}
			if bytes > *most {
				return dst, errTooLong
			}
		}
		words, next = next, words
	}
	*most -= bytes
	var ids []uint32
	for _, w := range words {
		ids = t.model.word(w, ids[:0])
		for _, id := range ids {
			dst = t.add(dst, id)
		}
	}
	return dst, nil
}

// wordPieces is the model of that name.
type wordPieces struct {
	vocab   map[string]uint32
	prefix  string // of a piece that does not begin its word
	most    int    // characters of a word; one that has more is unknown
	longest int    // bytes of the longest token
}

// word takes the longest token that a word begins with, and goes on behind it. A word that cannot be taken to its end is unknown as a
// whole, and has no token.
func (m *wordPieces) word(w string, dst []uint32) []uint32 {
	if utf8.RuneCountInString(w) > m.most {
		return dst
	}
	before := len(dst)
	var piece []byte
	for from := 0; from < len(w); {
		piece = piece[:0]
		if from > 0 {
			piece = append(piece, m.prefix...)
		}
		prefix := len(piece)
		to := min(len(w), from+m.longest)
		piece = append(piece, w[from:to]...)
		found := false
		for ; to > from; to-- {
			if to < len(w) && !utf8.RuneStart(w[to]) {
				continue
			}
			if id, ok := m.vocab[string(piece[:prefix+to-from])]; ok {
				dst, found = append(dst, id), true
				break
			}
		}
		if !found {
			return dst[:before]
		}
		from = to
	}
	return dst
}
