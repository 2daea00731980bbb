package text

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/words"

	"github.com/weft-search/weft/internal/corpus"
)

// oldPictograph is a symbol that was Extended_Pictographic in Unicode 15 and is not in 17, the version of the segmenter's tables, where
// symbols that never became emoji lost the property. A zero width joiner no longer joins it to what is before (WB3c). No
// letter or digit is concerned, and the tokenizers drop joiners and symbols at the end of a word anyway.
const oldPictograph = "\u200d\u2701"

// TestWordBreak runs the official test cases of Unicode 15 through the segmenter that the tokenizers use.
func TestWordBreak(t *testing.T) {
	f, err := os.Open(filepath.Join(corpus.Dir(t, "unicode-15"), "WordBreakTest-half.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, older := 0, 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line, _, _ := strings.Cut(sc.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		n++
		var want []string
		var all string
		for _, part := range strings.Split(line, "÷") {
			var seg string
			for _, c := range strings.Fields(part) {
				if c == "×" {
					continue
				}
				r, err := strconv.ParseInt(c, 16, 32)
				if err != nil {
					t.Fatal(err)
				}
				seg += string(rune(r))
			}
			if seg != "" {
				want = append(want, seg)
				all += seg
			}
		}
		var got []string
		for it := words.FromString(all); it.Next(); {
			got = append(got, it.Value())
		}
		if strings.Contains(all, oldPictograph) {
			older++
			if len(got) != len(want)+1 {
				t.Errorf("%q: segments %q, want one more than %q", all, got, want)
			}
			continue
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q: segments %q, want %q", all, got, want)
		}
		compareWords(t, all, want)
	}
	if n < 900 || older > 2 {
		t.Errorf("%d cases, %d of them of a property that changed", n, older)
	}
}

// compareWords compares what segmenter finds with the segments of text that hold a letter or digit.
func compareWords(t *testing.T, text string, segments []string) {
	t.Helper()
	var want, got []string
	for _, s := range segments {
		if strings.ContainsFunc(s, isAlnum) {
			want = append(want, strings.TrimLeft(s, "\t\n\v\f\r ")) // a mark after a space is joined to it
		}
	}
	var s Scratch
	g := segmenter{v: text, s: &s}
	for {
		start, end, ascii, ok := g.next()
		if !ok {
			break
		}
		if ascii != isASCII(text[start:end]) {
			t.Fatalf("%q: ascii %v at %d", text, ascii, start)
		}
		got = append(got, text[start:end])
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("%q: words %q, want %q", text, got, want)
	}
}

func FuzzSegmenter(f *testing.F) {
	for _, s := range []string{"", "a.b 1,2 a_b 3'4 a'b a..b", "can't  x:y;z", "a\u0301 \u0301b", "日本 カナ_1", "\x00a\x01b", "a\u2028b", "x\u200d1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		raw := text
		var segments []string
		valid := []byte(text) // with a space for each byte that is no UTF-8
		for i := 0; i < len(text); {
			r, n := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && n == 1 {
				valid[i] = ' '
			}
			i += n
		}
		text = string(valid)
		for it := words.FromString(text); it.Next(); {
			segments = append(segments, it.Value())
		}
		compareWords(t, text, segments)
		var s, q Scratch
		a := lookup(t, "unicode_word")
		if got, want := show(a.Index(&s, raw)), show(a.Index(&q, text)); got != want {
			t.Fatalf("%q: %s, want %s", raw, got, want)
		}
	})
}
