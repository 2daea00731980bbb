package text

import (
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/words"
)

// A segmenter walks over the words of a text: the segments of UAX #29 that hold a letter or digit.
//
// Text is cut at ASCII white space first, which no word crosses: what follows a cut never depends on what was before it, except that
// a mark after a space belongs to the space, which it does not here. Chunks of ASCII alone are segmented here; a chunk with other
// characters goes to the uax29 package. A test compares both. Bytes that are no UTF-8 separate words like spaces.
type segmenter struct {
	v     string
	i     int // where to go on
	end   int // end of the chunk being read
	ascii bool
	s     *Scratch
	base  int // offset of the text that the library's iterator has
}

// next returns the next word, [start:end) of the text, and whether it is ASCII.
func (g *segmenter) next() (start, end int, ascii, ok bool) {
	for {
		if g.i >= g.end {
			if !g.chunk() {
				return 0, 0, false, false
			}
		}
		if g.ascii {
			if start, end, ok := g.nextASCII(); ok {
				return start, end, true, true
			}
			continue
		}
		it := g.s.seg
		for it.Next() {
			start, end := g.base+it.Start(), g.base+it.End()
			ascii := true
			word := false
			for i := start; i < end; {
				if b := g.v[i]; b < utf8.RuneSelf {
					word = word || fold[b] != 0
					i++
					continue
				}
				ascii = false
				r, n := utf8.DecodeRuneInString(g.v[i:end])
				word = word || isAlnum(r)
				i += n
			}
			if word {
				return start, end, ascii, true
			}
		}
		g.i = g.end
	}
}

// chunk finds the next run of characters without ASCII white space and without bytes that are no UTF-8.
func (g *segmenter) chunk() bool {
	v, i := g.v, g.i
	g.ascii = true
	for ; i < len(v); i++ {
		if isSpace(v[i]) {
			continue
		}
		if v[i] < utf8.RuneSelf {
			break
		}
		if r, n := utf8.DecodeRuneInString(v[i:]); r != utf8.RuneError || n > 1 {
			break
		}
	}
	g.i = i
	for i < len(v) && !isSpace(v[i]) {
		if v[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(v[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		g.ascii = false
		i += n
	}
	g.end = i
	if g.i == i {
		return false
	}
	if !g.ascii {
		g.base = g.i
		if g.s.seg == nil {
			g.s.seg = words.FromString("")
		}
		g.s.seg.SetText(v[g.i:i])
	}
	return true
}

// Word break properties of ASCII characters (WordBreakProperty.txt).
const (
	wbLetter = 1 << iota
	wbDigit
	wbExtend // ExtendNumLet: the underscore
	wbMidLetter
	wbMidNum
)

var wb = func() (t [256]byte) {
	for b := range t {
		switch {
		case b >= '0' && b <= '9':
			t[b] = wbDigit
		case b < utf8.RuneSelf && fold[b] != 0:
			t[b] = wbLetter
		}
	}
	t['_'] = wbExtend
	t[':'] = wbMidLetter
	t['.'], t['\''] = wbMidLetter|wbMidNum, wbMidLetter|wbMidNum
	t[','], t[';'] = wbMidNum, wbMidNum
	return t
}()

// nextASCII returns the next word of an ASCII chunk.
func (g *segmenter) nextASCII() (start, end int, ok bool) {
	v, i, stop := g.v, g.i, g.end
	for i < stop {
		for i < stop && wb[v[i]]&(wbLetter|wbDigit|wbExtend) == 0 {
			i++
		}
		if i == stop {
			break
		}
		start := i
		var all byte
		for i < stop {
			c := wb[v[i]]
			if c&(wbLetter|wbDigit|wbExtend) != 0 {
				all |= c
				i++
				continue
			}
			// A letter or digit on both sides of some punctuation holds together (WB6, WB7, WB11, WB12).
			if c != 0 && i+1 < stop {
				before, after := wb[v[i-1]], wb[v[i+1]]
				if c&wbMidLetter != 0 && before&after&wbLetter != 0 || c&wbMidNum != 0 && before&after&wbDigit != 0 {
					i += 2
					continue
				}
			}
			break
		}
		if all&(wbLetter|wbDigit) != 0 {
			g.i = i
			return start, i, true
		}
	}
	g.i = stop
	return 0, 0, false
}

// unicodeWord is the words of UAX #29, lower-cased.
func unicodeWord(s *Scratch, v string) {
	g := segmenter{v: v, s: s}
	for pos := uint32(0); ; pos++ {
		start, end, ascii, ok := g.next()
		if !ok {
			return
		}
		var text []byte
		if ascii {
			text = s.lower(v, start, end)
		} else {
			from := len(s.buf)
			for _, r := range v[start:end] {
				s.buf = appendLower(s.buf, r)
			}
			text = s.buf[from:len(s.buf):len(s.buf)]
		}
		if len(text) <= MaxStandardBytes {
			s.emit(text, pos, start, end)
		}
	}
}

// lower returns v[start:end], which is ASCII, in lower case.
func (s *Scratch) lower(v string, start, end int) []byte {
	dst := s.low[start:end:end]
	for i := range dst {
		b := v[start+i]
		if b-'A' < 26 {
			b |= 0x20
		}
		dst[i] = b
	}
	return dst
}
