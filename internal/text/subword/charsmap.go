package subword

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// charsmap is the table of SentencePiece of what characters become: a trie in a double array over their bytes, and texts that end with a zero byte.
type charsmap struct {
	units []uint32
	texts []byte
}

// parseCharsmap reads a table in base64: the bytes of the trie, it, and the texts.
func parseCharsmap(s string) (*charsmap, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) < 4 {
		return nil, refuse("the table of its normalizer Precompiled cannot be read")
	}
	n := int(binary.LittleEndian.Uint32(b))
	if b = b[4:]; n <= 0 || n%4 != 0 || n > len(b) {
		return nil, refuse("the table of its normalizer Precompiled is cut off")
	}
	m := &charsmap{texts: b[n:]}
	for i := 0; i < n; i += 4 {
		m.units = append(m.units, binary.LittleEndian.Uint32(b[i:]))
	}
	return m, nil
}

// The parts of a unit of the trie, as the library of double arrays has them.
func hasLeaf(u uint32) bool   { return u>>8&1 == 1 }
func leafOf(u uint32) int     { return int(u & (1<<31 - 1)) }
func labelOf(u uint32) uint32 { return u & (1<<31 | 0xff) }
func offsetOf(u uint32) int   { return int(u >> 10 << (u & (1 << 9) >> 6)) }

// of is what a text becomes, by the shortest beginning of it that the table has; false if it has none.
func (m *charsmap) of(s string) (string, bool) {
	at := 0
	if m.units[0] != 0 {
		at = offsetOf(m.units[0])
	}
	for i := range len(s) {
		if s[i] == 0 {
			return "", false
		}
		at ^= int(s[i])
		if at < 0 || at >= len(m.units) {
			return "", false
		}
		u := m.units[at]
		if labelOf(u) != uint32(s[i]) {
			return "", false
		}
		at ^= offsetOf(u)
		if !hasLeaf(u) {
			continue
		}
		if at < 0 || at >= len(m.units) {
			return "", false
		}
		from := leafOf(m.units[at])
		if from >= len(m.texts) {
			return "", false
		}
		text := m.texts[from:]
		if end := bytes.IndexByte(text, 0); end >= 0 {
			text = text[:end]
		}
		return string(text), true
	}
	return "", false
}

// longestCluster is the bytes that characters which are one to a reader have at most where the table is asked for all of them.
const longestCluster = 5

// apply is the normalizer.
func (m *charsmap) apply(s string, most int) (string, bool) {
	var b strings.Builder
	write := func(text string) bool {
		if b.Len()+len(text) > most {
			return false
		}
		b.WriteString(text)
		return true
	}
	for s != "" {
		n := cluster(s)
		if n <= longestCluster {
			if text, ok := m.of(s[:n]); ok {
				if !write(text) {
					return "", false
				}
				s = s[n:]
				continue
			}
		}
		for end := len(s) - n; len(s) > end; {
			_, char := utf8.DecodeRuneInString(s)
			text, ok := m.of(s[:char])
			if !ok {
				text = s[:char]
			}
			if !write(text) {
				return "", false
			}
			s = s[char:]
		}
	}
	return b.String(), true
}

// cluster is the length of what is one character to a reader at the beginning of a text (UAX #29, extended grapheme clusters), as far as those are
// told that have no more bytes than longestCluster; what it says of others is that they have more.
func cluster(s string) int {
	r, n := utf8.DecodeRuneInString(s)
	if r == '\r' && len(s) > 1 && s[1] == '\n' {
		return 2
	}
	if breaks(r) {
		return n
	}
	for unicode.Is(unicode.Prepended_Concatenation_Mark, r) && n < len(s) { // it belongs to what follows
		next, k := utf8.DecodeRuneInString(s[n:])
		if breaks(next) {
			return n
		}
		r, n = next, n+k
	}
	for n < len(s) {
		next, k := utf8.DecodeRuneInString(s[n:])
		if !extends(next) {
			break
		}
		n += k
	}
	return n
}

// breaks tells characters that stand for themselves whatever is beside them.
func breaks(r rune) bool {
	switch {
	case r == '\u200c', r == '\u200d':
		return false
	case unicode.Is(unicode.Prepended_Concatenation_Mark, r), r >= 0xe0020 && r <= 0xe007f:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// extends tells characters that belong to the one before.
func extends(r rune) bool {
	switch {
	case r == '\u200d', r == 0xe33, r == 0xeb3, r >= 0x1f3fb && r <= 0x1f3ff, r >= 0xe0020 && r <= 0xe007f:
		return true
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Other_Grapheme_Extend):
		return true
	}
	return unicode.Is(unicode.Mc, r) && !unicode.Is(notSpacing, r)
}

// notSpacing are the marks that take room of their own and begin a cluster.
var notSpacing = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x102b, 0x102c, 1},
		{0x1038, 0x1038, 1},
		{0x1062, 0x1064, 1},
		{0x1067, 0x106d, 1},
		{0x1083, 0x1083, 1},
		{0x1087, 0x108c, 1},
		{0x108f, 0x108f, 1},
		{0x109a, 0x109c, 1},
		{0x1a61, 0x1a61, 1},
		{0x1a63, 0x1a64, 1},
		{0xaa7b, 0xaa7b, 1},
		{0xaa7d, 0xaa7d, 1},
	},
	R32: []unicode.Range32{{0x11720, 0x11721, 1}},
}

// plainPattern has nothing but characters that stand for themselves, and how often they do: what every kind of expression means alike.
var plainPattern = regexp.MustCompile(`^(?:[^\\\[\](){}.^$|*+?](?:\{[0-9]+(?:,[0-9]*)?\}|[*+?])?)+$`)

// replace is the normalizer Replace.
func replace(pattern jsontext.Value, content string) (step, error) {
	var p struct {
		String *string `json:"String"`
		Regex  *string `json:"Regex"`
	}
	if len(pattern) == 0 {
		return nil, refuse("its normalizer Replace has no pattern")
	}
	if err := json.Unmarshal(pattern, &p); err != nil {
		return nil, broken(err)
	}
	switch {
	case p.String != nil && *p.String != "":
		return func(s string, most int) (string, bool) {
			if n := strings.Count(s, *p.String); len(s)+n*(len(content)-len(*p.String)) > most {
				return "", false
			}
			return strings.ReplaceAll(s, *p.String, content), true
		}, nil
	case p.Regex == nil || !plainPattern.MatchString(*p.Regex):
		return nil, refuse("the pattern of its normalizer Replace is not known")
	}
	re, err := regexp.Compile(*p.Regex)
	if err != nil {
		return nil, refuse("the pattern of its normalizer Replace is not known")
	}
	return func(s string, most int) (string, bool) {
		n := len(s)
		for _, at := range re.FindAllStringIndex(s, -1) {
			n += len(content) - (at[1] - at[0])
		}
		if n > most {
			return "", false
		}
		return re.ReplaceAllLiteralString(s, content), true
	}, nil
}
