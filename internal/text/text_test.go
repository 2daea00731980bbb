package text

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"unicode/utf8"
)

func lookup(t testing.TB, spec string) *Analyzer {
	t.Helper()
	a, err := Lookup(spec)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// show prints tokens as position:text[start-end], the offsets only if they differ from the text's own.
func show(toks []Token) string {
	var b strings.Builder
	for i, t := range toks {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d:%s", t.Pos, t.Text)
	}
	return b.String()
}

func TestTokenizers(t *testing.T) {
	tests := []struct{ spec, in, want string }{
		{"simple", "Hello, World!", "0:hello 1:world"},
		{"simple", "keeper's 3.14 -- U.S.A. foo-bar", "0:keepers 1:314 2:usa 3:foobar"},
		{"simple", "  a\tb\nc\u00a0d\u3000é\u2028F ", "0:a 1:b 2:c 3:d 4:é 5:f"},
		{"simple", "x\u00a0y z\u0085w", "0:x 1:y 2:z 3:w"},
		{"simple", "na\u00efve CAF\u00c9 \u0130x \u00bd", "0:naïve 1:café 2:i\u0307x 3:½"},
		{"simple", "a\xffb \xff c", "0:ab 1:c"},
		{"simple", "\u65e5\u672c\u8a9e\u3001\u6771\u4eac", "0:\u65e5\u672c\u8a9e\u6771\u4eac"},
		{"default", "A b", "0:a 1:b"},
		{"lowercase", "A b", "0:a 1:b"},
		{"raw", " Ab 2 \n", "0:Ab 2"},
		{"raw", "  ", ""},
		{"raw_ci", " Ab Ünü ", "0:ab ünü"},
		{"alnum", "keeper's 3.14 U.S.A. foo_bar", "0:keeper 1:s 2:3 3:14 4:u 5:s 6:a 7:foo 8:bar"},
		{"alnum", "Größe(x)naïve日本 \xe9", "0:größe 1:x 2:naïve日本"},
		{"alnum", "", ""},
		{"unicode_word", "The co-op's 3.14 can't foo_bar a:b U.S.A. 1,000", "0:the 1:co 2:op's 3:3.14 4:can't 5:foo_bar 6:a:b 7:u.s.a 8:1,000"},
		{"unicode_word", "Ünü ДОМ don’t", "0:ünü 1:дом 2:don’t"},
		{"english", "Running lights", "0:run 1:light"},
		{"en_stem", "Running lights", "0:run 1:light"},
		{"en_stop", "The lamps of the harbour", "1:lamps 4:harbour"},
		{"en_stem_stop", "The lamps of the harbour", "1:lamp 4:harbour"},
		{"en_stem_stop", "running lights and the boats", "0:run 1:light 4:boat"},
		{"en_stem_stop", "a keeper was keeping the keys", "1:keeper 3:keep 5:key"},
		{"en_stem_stop", "of the", ""},
		{"de_stem", "Straßen Häuser", "0:strass 1:haus"},
		{"de_stem_stop", "die Häuser", "1:haus"},
		{"fr_stem", "l'homme continuellement", "0:lhomm 1:continuel"},
		{"ru_stem", "актёрские", "0:актерск"},
		{"tr_stem", "leri'", "0:leri"},
		{"standard", "The Café's 3.14 foo_bar Straße", "0:the 1:café's 2:3.14 3:foo_bar 4:strasse"},
		{"standard", "don’t ＦＵＬＬ ﬁne co\u00adop", "0:don't 1:full 2:fine 3:coop"},
		{"standard", "日本語", "0:日 0:日本 1:本 1:本語 2:語"},
		{"standard", "東京、京都x手", "0:東 0:東京 1:京 2:京 2:京都 3:都 4:x 5:手"},
		{"standard", "iPhone手机2台", "0:iphone 1:手 1:手机 2:机 3:2 4:台"},
		{"standard", "한글abc", "0:한 0:한글 1:글 2:abc"},
		{"standard", "ｶﾞｷﾞ", "0:ガ 0:ガギ 1:ギ"},
		{"lex()", "State-of-the-art HbA1c/HDL-c end.of.sentence.Next", "0:state 1:of 2:the 3:art 4:hba1c 5:hdl 6:c 7:end 8:of 9:sentence 10:next"},
		{
			"lex()", "don't it's we're O'Neil rock'n'roll John\u2019s cats' l'homme qu'il dell'acqua aujourd'hui 'quoted'",
			"0:don 1:it 2:we 3:neil 4:rock 5:n 6:roll 7:john 8:cats 9:homme 10:il 11:acqua 12:aujourd 13:hui 14:quoted",
		},
		{
			"lex()", "U.S.A. e.g. Ph.D. 3.14 p<0.05 1.2.3 1,000,000 word... soft\u00adhyphen zero\u200dwidth C++ #tag α-synuclein ---",
			"0:usa 1:eg 2:ph 3:d 4:3.14 5:p 6:0.05 7:1.2.3 8:1000000 9:word 10:softhyphen 11:zerowidth 12:c 13:tag 14:α 15:synuclein",
		},
		{
			"lex(default: en, stop_words: true)", "The cell membranes of résumés",
			"1:cell 2:membranes 2:membrane 4:résumés 4:résumé 4:resumes 4:resume",
		},
		{"lex(default: en, stem: snowball, variants: false)", "Running cafés", "0:run 1:cafe"},
		{"lex(default: en, stem: snowball)", "running", "0:running 0:run"},
		{"lex(default: en, stem: none)", "running", "0:running"},
		{"lex(segmenter: simple, stem: none)", "Float-zero p53", "0:floatzero 1:p53"},
		{"lex(stem: none, max_token_length: 8)", "short averyveryverylongtoken next", "0:short 2:next"},
		{"lex(stem: none, max_token_length: 8)", "исследование исследов", "1:исследов"},
		{"lex(stem: none, fold: false)", "café Ёлка", "0:café 1:елка"},
		{"lex(default: ar, stem: none)", "الْكِتَابُ", "0:الكتاب"},
		{"lex()", "量子計算", "0:量 0:量子 1:子 1:子計 2:計 2:計算 3:算"},
	}
	var s Scratch
	for _, tt := range tests {
		if got := show(lookup(t, tt.spec).Index(&s, tt.in)); got != tt.want {
			t.Errorf("%s: %q\n got %s\nwant %s", tt.spec, tt.in, got, tt.want)
		}
	}
}

func TestQuery(t *testing.T) {
	tests := []struct{ spec, in, query, exact string }{
		{"standard", "日本語 日 x", "0:日本 1:本語 3:日 4:x", "0:日本 1:本語 3:日 4:x"},
		{"lex(default: en)", "The cell membranes", "0:the 1:cell 2:membrane", "0:the 1:cell 2:membranes"},
		{"lex()", "membranes café", "0:membranes 1:café", "0:membranes 1:café"},
		{"lex(default: en, variants: false)", "Membranes café", "0:membrane 1:cafe", "0:membrane 1:cafe"},
		{"en_stem", "Membranes", "0:membran", "0:membran"},
	}
	var s Scratch
	for _, tt := range tests {
		a := lookup(t, tt.spec)
		if got := show(a.Query(&s, tt.in)); got != tt.query {
			t.Errorf("%s: %q: query %s, want %s", tt.spec, tt.in, got, tt.query)
		}
		if got := show(a.Exact(&s, tt.in)); got != tt.exact {
			t.Errorf("%s: %q: exact %s, want %s", tt.spec, tt.in, got, tt.exact)
		}
	}
}

func TestOffsets(t *testing.T) {
	tests := []struct{ spec, in, want string }{
		{"simple", " Foo, BAR!", "Foo,|BAR!"},
		{"alnum", "(Foo)·BÄR", "Foo|BÄR"},
		{"raw", "  a b ", "a b"},
		{"unicode_word", "x ’Ä’ y", "x|Ä|y"},
		{"standard", "日本 Äb. ﬁ", "日|日本|本|Äb|ﬁ"},
		{"lex()", "keeper's foo-bar l'été", "keeper|foo|bar|été|été"},
	}
	var s Scratch
	for _, tt := range tests {
		var got []string
		for _, tok := range lookup(t, tt.spec).Index(&s, tt.in) {
			got = append(got, tt.in[tok.Start:tok.End])
		}
		if g := strings.Join(got, "|"); g != tt.want {
			t.Errorf("%s: %q: %s, want %s", tt.spec, tt.in, g, tt.want)
		}
	}
}

func TestNormalize(t *testing.T) {
	tests := []struct{ spec, in, want string }{
		{"simple", "RUNNing", "running"},
		{"en_stem", "Running", "running"},
		{"raw", "AB ", "AB "},
		{"raw_ci", "AB", "ab"},
		{"standard", "Straß", "strass"},
		{"standard", "ＡＢ", "ab"},
		{"lex()", "Ёл", "ел"},
		{"lex(variants: false)", "Café", "cafe"},
		{"lex()", "Café", "café"},
	}
	for _, tt := range tests {
		if got := lookup(t, tt.spec).Normalize(tt.in); got != tt.want {
			t.Errorf("%s: %q: %q, want %q", tt.spec, tt.in, got, tt.want)
		}
	}
}

// TestSplitters compares simple and alnum with the plainest way to write them.
func TestSplitters(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	alphabet := []string{"a", "B", "z", "0", "é", "Ж", "日", "½", ".", "-", " ", "\t", "\u00a0", "\u3000", "\u0301", "\u093e", "İ", "\xff", "\xe6\x97", "€", "😀"}
	lower := func(s string, keepOther bool) []string {
		var words []string
		word := ""
		for _, r := range s {
			switch {
			case isAlnum(r):
				word += lowerString(string(r))
			case keepOther:
			default:
				if word != "" {
					words = append(words, word)
				}
				word = ""
			}
		}
		if word != "" {
			words = append(words, word)
		}
		return words
	}
	var s Scratch
	for range 20000 {
		var b strings.Builder
		for range rng.Intn(14) {
			b.WriteString(alphabet[rng.Intn(len(alphabet))])
		}
		v := b.String()
		var simpleWant []string
		for _, f := range strings.Fields(v) {
			simpleWant = append(simpleWant, lower(f, true)...)
		}
		for spec, want := range map[string][]string{"simple": simpleWant, "alnum": lower(v, false)} {
			toks := lookup(t, spec).Index(&s, v)
			ok := len(toks) == len(want)
			for i := range toks {
				ok = ok && string(toks[i].Text) == want[i] && toks[i].Pos == uint32(i)
			}
			if !ok {
				t.Fatalf("%s: %q: %s, want %q", spec, v, show(toks), want)
			}
			check(t, spec, v, toks)
		}
	}
}

func TestShrink(t *testing.T) {
	var s Scratch
	a := lookup(t, "simple")
	toks := a.Index(&s, strings.Repeat("word ", 10000))
	s.Shrink(1 << 20)
	if cap(s.toks) == 0 {
		t.Error("less than the limit was let go")
	}
	s.Shrink(1 << 10)
	if cap(s.toks) != 0 || string(toks[9999].Text) != "word" {
		t.Error("more than the limit was kept, or tokens are gone")
	}
}

func TestLength(t *testing.T) {
	var s Scratch
	for _, tt := range []struct {
		spec, in string
		want     int
	}{
		{"simple", "a b c", 3}, {"standard", "日本語", 3}, {"lex(default: en)", "cells résumés", 2}, {"en_stop", "the", 0},
	} {
		if got := Length(lookup(t, tt.spec).Index(&s, tt.in)); got != tt.want {
			t.Errorf("%s: %q: length %d, want %d", tt.spec, tt.in, got, tt.want)
		}
	}
}

func TestHint(t *testing.T) {
	var s Scratch
	a := lookup(t, "lex(by: lang, default: en, stem: snowball, variants: false, fold: false)")
	if a.HintField() != "lang" {
		t.Fatal(a.HintField())
	}
	for _, tt := range []struct{ hint, want string }{
		{"", "0:hous 1:häuser 2:дома"},
		{"de", "0:hous 1:haus 2:дома"},
		{"German, ru", "0:hous 1:haus 2:дом"},
		{"xx", "0:hous 1:häuser 2:дома"},
		{"fr,de", "0:hous 1:häus 2:дома"},
	} {
		if got := show(a.WithHint(tt.hint).Index(&s, "houses Häuser дома")); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.hint, got, tt.want)
		}
	}
	if b := a.WithHint("de"); b != a.WithHint("de") || b == a {
		t.Error("hinted analyzers are not cached")
	}
	if b := lookup(t, "lex(default: en)"); b.WithHint("de") != b {
		t.Error("a hint without by: must change nothing")
	}
}

func TestNames(t *testing.T) {
	for _, n := range strings.Fields(`simple default lowercase raw raw_ci unicode_word alnum standard
		ar_stem da_stem nl_stem en_stem fi_stem fr_stem de_stem el_stem hu_stem it_stem no_stem pt_stem ro_stem ru_stem es_stem sv_stem ta_stem tr_stem
		arabic danish dutch english finnish french german greek hungarian italian norwegian portuguese romanian russian spanish swedish tamil turkish
		en_stop de_stop fr_stop ru_stop es_stop en_stem_stop de_stem_stop fr_stem_stop ru_stem_stop es_stem_stop`) {
		a := lookup(t, n)
		if a.Name() != n || a.Version() == "" {
			t.Errorf("%s: name %q, version %q", n, a.Name(), a.Version())
		}
		if c, err := Canonical(n); c != n || err != nil {
			t.Errorf("%s: canonical %q, %v", n, c, err)
		}
	}
	if a, b := lookup(t, "simple"), lookup(t, "simple"); a != b {
		t.Error("lookup does not cache")
	}
}

func TestSpecErrors(t *testing.T) {
	tests := []struct {
		spec     string
		offset   int
		expected string
	}{
		{"", 0, "lex(…) or one of"},
		{"nope", 0, "lex(…) or one of"},
		{"en_stem(foo)", 0, "lex(…) or one of"},
		{"lex", 3, `"("`},
		{"lex(", 4, `an option or ")"`},
		{"lex(by: lang", 12, `"," or ")"`},
		{"lex(by: )", 8, "the name of a field"},
		{"lex(stem: aggressive)", 10, "one of light, snowball, none"},
		{"lex(max_token_length: many)", 22, "a number"},
		{"lex(max_token_length: 99999999999)", 22, "a number"},
		{"lex(default: klingon)", 13, "none or one of ar, da"},
		{"lex(segmenter: nope)", 15, "one of icu"},
		{"lex(han: simplified)", 9, "as_written"},
		{"lex(cjk: dictionary)", 9, "icu"},
		{"lex(colour: red)", 4, "by, default"},
		{"lex(fold true)", 9, `":" after fold`},
		{"lex(fold: true fold: false)", 15, `"," or ")"`},
		{"lex(fold: true, fold: false)", 16, "each option once"},
		{"lex(fold: true) x", 16, "the end"},
		{"lex(,)", 4, "an option"},
		{strings.Repeat("x", MaxSpecBytes+1), MaxSpecBytes, "the end"},
	}
	for _, tt := range tests {
		_, err := Lookup(tt.spec)
		var e *SpecError
		if !errors.As(err, &e) {
			t.Errorf("%q: %v", tt.spec, err)
			continue
		}
		if e.Offset != tt.offset || !strings.Contains(e.Expected, tt.expected) {
			t.Errorf("%q: %v; want byte %d, %q", tt.spec, e, tt.offset, tt.expected)
		}
		if Check(tt.spec) == nil {
			t.Errorf("%q: Check takes it", tt.spec)
		}
	}
}

func TestCanonical(t *testing.T) {
	all := "lex(by: languages, default: en, stop_words: true, segmenter: unicode, stem: snowball, variants: false, fold: false, max_token_length: 32)"
	for _, tt := range []struct{ in, want string }{
		{all, all},
		{"lex()", "lex()"},
		{" lex ( default : English , ) ", "lex(default: en)"},
		{"lex(segmenter: icu, stem: light, variants: true, fold: true, max_token_length: 64, han: as_written, cjk: icu, default: none)", "lex()"},
		{"lex(by:languages,default:english,stop_words:true)", "lex(by: languages, default: en, stop_words: true)"},
	} {
		if got, err := Canonical(tt.in); got != tt.want || err != nil {
			t.Errorf("%q: %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
}

func TestLongTokens(t *testing.T) {
	var s Scratch
	for _, tt := range []struct {
		spec  string
		limit int
	}{
		{"simple", MaxTokenBytes},
		{"alnum", MaxTokenBytes},
		{"unicode_word", MaxStandardBytes},
		{"standard", MaxStandardBytes},
		{"lex(max_token_length: 0)", MaxTokenBytes},
		{"lex()", 64},
		{"english", MaxTokenBytes},
	} {
		a := lookup(t, tt.spec)
		for _, c := range []string{"q", "é"} {
			limit := tt.limit
			if c == "é" && tt.limit != 64 {
				limit /= 2
			}
			toks := a.Index(&s, "a "+strings.Repeat(c, limit)+" b "+strings.Repeat(c, limit+1)+" c")
			last := toks[len(toks)-1]
			if string(last.Text) != "c" || last.Pos != 4 {
				t.Errorf("%s: the last token is %d:%s", tt.spec, last.Pos, last.Text)
			}
			if n := Length(toks); n != 4 {
				t.Errorf("%s: %d positions, want 4", tt.spec, n)
			}
		}
	}
	a := lookup(t, "raw")
	if n := len(a.Index(&s, strings.Repeat("q", MaxTokenBytes))); n != 1 {
		t.Error("raw drops a value of the greatest length")
	}
	if n := len(a.Index(&s, strings.Repeat("q", MaxTokenBytes+1))); n != 0 {
		t.Error("raw keeps a value over the greatest length")
	}
}

// TestSubstrings looks for every substring of random strings in scripts without spaces, by brute force: the query's tokens
// must stand in the index at the same distances, where the substring is.
func TestSubstrings(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	alphabet := []rune("日本語東京都かなカナー々한국어中文、 x")
	for _, spec := range []string{"standard", "lex()", "lex(segmenter: unicode, default: en)"} {
		a := lookup(t, spec)
		var s, q Scratch
		for range 200 {
			text := make([]rune, 1+rng.Intn(12))
			for i := range text {
				text[i] = alphabet[rng.Intn(len(alphabet))]
			}
			value := string(text)
			index := a.Index(&s, value)
			type place struct {
				term string
				pos  uint32
			}
			at := make(map[place]Token)
			for _, tok := range index {
				at[place{string(tok.Text), tok.Pos}] = tok
			}
			for i := range text {
				for j := i + 1; j <= len(text); j++ {
					word := string(text[i:j])
					if strings.ContainsAny(word, "、 x") {
						continue
					}
					for _, form := range []func(*Scratch, string) []Token{a.Query, a.Exact} {
						toks := form(&q, word)
						if len(toks) == 0 {
							t.Fatalf("%s: no tokens for %q", spec, word)
						}
						found := false
						offset := uint32(len(string(text[:i])))
						for start := uint32(0); start < uint32(len(text)) && !found; start++ {
							found = true
							for k, tok := range toks {
								in, ok := at[place{string(tok.Text), start + tok.Pos}]
								if !ok || k == 0 && in.Start != offset {
									found = false
									break
								}
							}
						}
						if !found {
							t.Fatalf("%s: %q is not found in %q at %d (index %s, query %s)", spec, word, value, i, show(index), show(toks))
						}
					}
				}
			}
		}
	}
}

// check tests what holds of all tokens.
func check(t *testing.T, spec, value string, toks []Token) {
	t.Helper()
	var pos uint32
	for _, tok := range toks {
		if tok.Start > tok.End || int(tok.End) > len(value) {
			t.Fatalf("%s: %q: offsets %d-%d", spec, value, tok.Start, tok.End)
		}
		if tok.Pos < pos {
			t.Fatalf("%s: %q: position %d after %d", spec, value, tok.Pos, pos)
		}
		pos = tok.Pos
		if len(tok.Text) == 0 || len(tok.Text) > MaxTokenBytes {
			t.Fatalf("%s: %q: token of %d bytes", spec, value, len(tok.Text))
		}
		if spec != "raw" && spec != "raw_ci" && !utf8.Valid(tok.Text) {
			t.Fatalf("%s: %q: token %q is no UTF-8", spec, value, tok.Text)
		}
	}
}

var fuzzSpecs = append([]string{
	"lex()", "lex(default: en, stop_words: true)", "lex(default: ru, stem: snowball, variants: false)", "lex(default: ar)",
	"lex(segmenter: simple, default: de, stem: snowball)", "lex(default: tr, stem: snowball, fold: false, max_token_length: 3)",
}, Names()...)

func FuzzAnalyzers(f *testing.F) {
	for _, s := range []string{
		"", "Hello, World!", "日本語テキスト", "a\xff\xfe", "l'été U.S.A. 1,000.5", "ｶﾞ\u3099\u0301x", "İSTANBUL ẞ", "\u0301\u200d\ufe0f", "한글 1'2'3",
		"Ёж الْكِتَابُ", "a_b.c:d'e;f,1", "\u0640",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var s, q Scratch
		for _, spec := range fuzzSpecs {
			a := lookup(t, spec)
			first := show(a.Index(&s, value))
			toks := a.Index(&q, value)
			check(t, spec, value, toks)
			if again := show(toks); again != first {
				t.Fatalf("%s: %q: %s, then %s", spec, value, first, again)
			}
			check(t, spec, value, a.Query(&s, value))
			check(t, spec, value, a.Exact(&s, value))
			a.Normalize(value)
		}
	})
}

// A word of nothing but tatweel and vowel signs is no token, and still takes a position.
func TestLexMakesNoEmptyTokens(t *testing.T) {
	var s Scratch
	for _, value := range []string{"ـ", "ـً", "a ـ b"} {
		for _, spec := range []string{"lex()", "lex(variants: false)", "lex(variants: false, fold: false)"} {
			a := lookup(t, spec)
			for _, toks := range [][]Token{a.Index(&s, value), a.Query(&s, value), a.Exact(&s, value)} {
				check(t, spec, value, toks)
				if n := len(toks); n > 0 && toks[n-1].Pos != 2 {
					t.Errorf("%s: %q: %s", spec, value, show(toks))
				}
			}
		}
	}
}

func FuzzSpec(f *testing.F) {
	for _, s := range []string{"simple", "lex()", "lex(by: a, default: en, stop_words: true)", "lex(max_token_length: 0,", "lex(fold: x)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		l, ok, err := parseLex(spec)
		if !ok {
			return
		}
		if err != nil {
			var e *SpecError
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(spec) || e.Error() == "" {
				t.Fatalf("%q: %v", spec, err)
			}
			return
		}
		again, ok, err := parseLex(l.String())
		if !ok || err != nil || again.String() != l.String() {
			t.Fatalf("%q prints as %q, which reads as %v, %v", spec, l, again, err)
		}
	})
}

const sample = "The quick brown fox jumps over the lazy dog; its keepers were running 1,000 miles of state-of-the-art roads. "

func TestAllocations(t *testing.T) {
	value := strings.Repeat(sample, 20)
	var s Scratch
	for _, spec := range []string{"simple", "alnum", "raw_ci", "unicode_word", "standard", "en_stem", "en_stop", "en_stem_stop"} {
		a := lookup(t, spec)
		a.Index(&s, value)
		if n := testing.AllocsPerRun(50, func() { a.Index(&s, value) }); n > 0 {
			t.Errorf("%s: %v allocations", spec, n)
		}
	}
	// lex allocates a little for each value, nothing for each token.
	a := lookup(t, "lex(default: en, stem: snowball)")
	a.Index(&s, value)
	if n := testing.AllocsPerRun(50, func() { a.Index(&s, value) }); n > 4 {
		t.Errorf("lex: %v allocations", n)
	}
}

func BenchmarkIndex(b *testing.B) {
	value := strings.Repeat(sample, 20)
	mixed := strings.Repeat("Größere Häuser à l'été — naïve «café» 日本語のテキスト. ", 20)
	for _, spec := range []string{"alnum", "simple", "unicode_word", "standard", "en_stem", "en_stem_stop", "lex(default: en)", "de_stem", "fr_stem", "ru_stem"} {
		for _, v := range []struct{ name, text string }{{"ascii", value}, {"mixed", mixed}} {
			b.Run(spec+"/"+v.name, func(b *testing.B) {
				a := lookup(b, spec)
				var s Scratch
				b.SetBytes(int64(len(v.text)))
				b.ReportAllocs()
				for b.Loop() {
					a.Index(&s, v.text)
				}
			})
		}
	}
}
