package wordpiece

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

// Tokens appends the numbers of the tokens of a text, special ones left out, in the order of the text.
func (t *Tokenizer) Tokens(s string, dst []uint32) []uint32 {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return t.around(s, false, dst, func(s string, dst []uint32) []uint32 {
		return t.around(t.normalise(s), true, dst, t.words)
	})
}

// around gives what stands between the added tokens of one of the two sorts to rest.
func (t *Tokenizer) around(s string, normalised bool, dst []uint32, rest func(s string, dst []uint32) []uint32) []uint32 {
	from := 0
next:
	for at := 0; at < len(s); {
		if !t.first[s[at]] {
			at++
			continue
		}
		for _, a := range t.added {
			if a.normalised == normalised && strings.HasPrefix(s[at:], a.text) {
				if at > from {
					dst = rest(s[from:at], dst)
				}
				dst = t.add(dst, a.id)
				at += len(a.text)
				from = at
				continue next
			}
		}
		at++
	}
	if from < len(s) {
		dst = rest(s[from:], dst)
	}
	return dst
}

func (t *Tokenizer) add(dst []uint32, id uint32) []uint32 {
	if t.special[id] {
		return dst
	}
	return append(dst, id)
}

func (t *Tokenizer) words(s string, dst []uint32) []uint32 {
	words, next := []string{s}, []string(nil)
	for _, f := range t.split {
		next = next[:0]
		for _, w := range words {
			next = f(w, next)
		}
		words, next = next, words
	}
	for _, w := range words {
		dst = t.word(w, dst)
	}
	return dst
}

// word takes the longest token that a word begins with, and goes on behind it. A word that cannot be taken to its end is unknown as a
// whole.
func (t *Tokenizer) word(w string, dst []uint32) []uint32 {
	if utf8.RuneCountInString(w) > t.most {
		return dst
	}
	before := len(dst)
	var piece []byte
	for from := 0; from < len(w); {
		piece = piece[:0]
		if from > 0 {
			piece = append(piece, t.prefix...)
		}
		prefix := len(piece)
		to := min(len(w), from+t.longest)
		piece = append(piece, w[from:to]...)
		found := false
		for ; to > from; to-- {
			if to < len(w) && !utf8.RuneStart(w[to]) {
				continue
			}
			if id, ok := t.vocab[string(piece[:prefix+to-from])]; ok {
				dst, found = t.add(dst, id), true
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
