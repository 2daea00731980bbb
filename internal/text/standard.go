package text

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A char is one character of a run without spaces.
type char struct {
	from, to   uint32 // its text in Scratch.buf
	start, end uint32 // the part of the value that it stands for
}

// runScript reports whether r belongs to a script that is written without spaces between words: Han, Hiragana, Katakana,
// Hangul (which has spaces, but words joined by particles), Bopomofo, Yi, Thai, Lao, Burmese, Khmer.
func runScript(r rune) bool {
	switch {
	case r < 0x0e00:
		return false
	case r <= 0x0eff: // Thai, Lao
		return true
	case r < 0x1000:
		return false
	case r <= 0x109f, r >= 0x1100 && r <= 0x11ff, r >= 0x1780 && r <= 0x17ff: // Burmese, Jamo, Khmer
		return true
	case r < 0x2e80:
		return false
	case r <= 0x2fdf, r >= 0x3005 && r <= 0x3007, r >= 0x3021 && r <= 0x303c, r >= 0x3041 && r <= 0x31ff: // radicals, marks, kana, Jamo, Bopomofo
		return true
	case r >= 0x3400 && r <= 0x4dbf, r >= 0x4e00 && r <= 0x9fff, r >= 0xa000 && r <= 0xa48f, r >= 0xa960 && r <= 0xa97f,
		r >= 0xac00 && r <= 0xd7ff, r >= 0xf900 && r <= 0xfaff, r >= 0xff66 && r <= 0xffdc:
		return true
	}
	return r >= 0x1aff0 && r <= 0x1b16f || r >= 0x20000 && r <= 0x3ffff
}

// ignorable reports characters that change how a word looks, not what it is: soft hyphen, joiners, direction marks, variation selectors.
func ignorable(r rune) bool {
	switch {
	case r < 0xad:
		return false
	case r == 0xad, r == 0x34f, r == 0x61c, r >= 0x180b && r <= 0x180f, r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e,
		r >= 0x2060 && r <= 0x206f, r >= 0xfe00 && r <= 0xfe0f, r == 0xfeff, r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return false
}

// appendFold appends r with case folded: lower case, ß as ss, ς as σ, ’ as '.
func appendFold(dst []byte, r rune) []byte {
	switch r {
	case 'ß', 'ẞ':
		return append(dst, "ss"...)
	case 'ς':
		r = 'σ'
	case '’':
		r = '\''
	}
	return appendLower(dst, r)
}

// appendFolded appends a word in NFKC with case folded and without ignorable characters.
func (s *Scratch) appendFolded(dst []byte, word string) []byte {
	s.alt = norm.NFKC.AppendString(s.alt[:0], word)
	for i := 0; i < len(s.alt); {
		r, n := utf8.DecodeRune(s.alt[i:])
		if !ignorable(r) {
			dst = appendFold(dst, r)
		}
		i += n
	}
	return dst
}

// foldString folds a prefix as standard folds words.
func foldString(p string) string {
	var s Scratch
	return string(s.appendFolded(nil, p))
}

// grams builds the tokens of runs without spaces: in the index each character is a token, and so is each pair of
// neighbours, at the position of its first character. So any substring of a run is found as a phrase: by its pairs, which are
// much rarer than its characters, or by the one character that it is. In a query a run of one character is that character, a
// longer one its pairs. Each character takes one position, in the index and in a query.
type grams struct {
	s     *Scratch
	query bool
}

// put adds a character that stands at [start:end) of the value.
func (g grams) put(r rune, start, end int, pos *uint32) {
	s := g.s
	if n := len(s.run); n > 0 && int(s.run[n-1].end) != start && int(s.run[n-1].start) != start {
		g.flush(pos)
	}
	from := len(s.buf)
	s.buf = utf8.AppendRune(s.buf, r)
	s.run = append(s.run, char{uint32(from), uint32(len(s.buf)), uint32(start), uint32(end)})
}

// flush ends the run.
func (g grams) flush(pos *uint32) {
	s := g.s
	n := len(s.run)
	if n == 0 {
		return
	}
	for i := range s.run {
		c := &s.run[i]
		if !g.query || n == 1 {
			s.emit(s.buf[c.from:c.to:c.to], *pos, int(c.start), int(c.end))
		}
		if i+1 < n {
			d := &s.run[i+1]
			s.emit(s.buf[c.from:d.to:d.to], *pos, int(c.start), int(d.end))
		}
		*pos++
	}
	s.run = s.run[:0]
}

func standardIndex(s *Scratch, v string) { standard(s, v, false) }
func standardQuery(s *Scratch, v string) { standard(s, v, true) }

// standard is weft's default: words of UAX #29 in NFKC with case folded, runs without spaces as grams.
func standard(s *Scratch, v string, query bool) {
	g := segmenter{v: v, s: s}
	runs := grams{s, query}
	pos := uint32(0)
	for {
		start, end, ascii, ok := g.next()
		if !ok {
			break
		}
		if ascii {
			runs.flush(&pos)
			if end-start <= MaxStandardBytes {
				s.emit(s.lower(v, start, end), pos, start, end)
			}
			pos++
			continue
		}
		s.norm = s.appendFolded(s.norm[:0], v[start:end])
		s.pieces(runs, v[start:end], start, &pos, func(word []byte, start, end int) {
			if len(word) <= MaxStandardBytes {
				s.emit(s.keep(word), pos, start, end)
			}
			pos++
		})
	}
	runs.flush(&pos)
}

// pieces goes through the folded word in s.norm, made of word, which stands at base of the value: characters of run scripts go
// to runs, what is between them to fn, without punctuation at its ends. Where folding kept the number of characters the
// offsets are those of the characters, else those of the whole word.
func (s *Scratch) pieces(runs grams, word string, base int, pos *uint32, fn func(word []byte, start, end int)) {
	w := s.norm
	same := utf8.RuneCount(w) == utf8.RuneCountInString(word)
	from, fromAt, at := 0, base, base // the piece being read, its offset in the value, the current offset
	piece := func(to, toAt int) {
		b := w[from:to]
		if len(b) > 0 {
			runs.flush(pos)
		}
		if !same {
			fromAt, toAt = base, base+len(word)
		}
		for len(b) > 0 {
			r, n := utf8.DecodeRune(b)
			if isAlnum(r) {
				break
			}
			b = b[n:]
			if same {
				_, m := utf8.DecodeRuneInString(word[fromAt-base:])
				fromAt += m
			}
		}
		for len(b) > 0 {
			r, n := utf8.DecodeLastRune(b)
			if isAlnum(r) || unicode.IsMark(r) {
				break
			}
			b = b[:len(b)-n]
			if same {
				_, m := utf8.DecodeLastRuneInString(word[:toAt-base])
				toAt -= m
			}
		}
		if len(b) > 0 {
			fn(b, fromAt, toAt)
		}
	}
	for i := 0; i < len(w); {
		r, n := utf8.DecodeRune(w[i:])
		next := at
		if same {
			_, m := utf8.DecodeRuneInString(word[at-base:])
			next += m
		}
		if runScript(r) && (isAlnum(r) || unicode.IsMark(r)) {
			piece(i, at)
			if same {
				runs.put(r, at, next, pos)
			} else {
				runs.put(r, base, base+len(word), pos)
			}
			from, fromAt = i+n, next
		}
		i += n
		at = next
	}
	if !same {
		at = base + len(word)
	}
	piece(len(w), at)
}
