package text

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/weft-search/weft/internal/text/stem"
)

// A lex is the tokenizer of a lex(…) expression, with the values that its options have.
type lex struct {
	by        string // field that names the language
	language  string // code of the default language, "" for none
	stopWords bool
	segmenter string // icu, unicode: UAX #29 with grams; simple: white space
	stem      string // light, snowball, none
	variants  bool
	fold      bool
	maxLength int // characters; 0: no limit but MaxTokenBytes

	mu   sync.Mutex
	hint map[string]*Analyzer // by list of language codes
}

// lexDefaults are the values of options that are not given (Summa's).
func lexDefaults() *lex {
	return &lex{segmenter: "icu", stem: "light", variants: true, fold: true, maxLength: 64}
}

// String returns the expression with the options that are not defaults, in the order in which Summa prints them.
func (l *lex) String() string {
	var parts []string
	add := func(differs bool, format string, arg any) {
		if differs {
			parts = append(parts, fmt.Sprintf(format, arg))
		}
	}
	d := lexDefaults()
	add(l.by != "", "by: %s", l.by)
	add(l.language != "", "default: %s", l.language)
	add(l.stopWords, "stop_words: %v", l.stopWords)
	add(l.segmenter != d.segmenter, "segmenter: %s", l.segmenter)
	add(l.stem != d.stem, "stem: %s", l.stem)
	add(!l.variants, "variants: %v", l.variants)
	add(!l.fold, "fold: %v", l.fold)
	add(l.maxLength != d.maxLength, "max_token_length: %d", l.maxLength)
	return "lex(" + strings.Join(parts, ", ") + ")"
}

// A specParser reads a lex expression: "lex" "(" [ name ":" value { "," name ":" value } [ "," ] ] ")", with white space anywhere
// between.
type specParser struct {
	src string
	i   int
}

func (p *specParser) space() {
	for p.i < len(p.src) && isSpace(p.src[p.i]) {
		p.i++
	}
}

// word reads letters, digits, underscores, hyphens and dots.
func (p *specParser) word() string {
	from := p.i
	for p.i < len(p.src) {
		b := p.src[p.i]
		if fold[b] == 0 && b != '_' && b != '-' && b != '.' {
			break
		}
		p.i++
	}
	return p.src[from:p.i]
}

// fail makes the error for what stands at offset at.
func (p *specParser) fail(at int, expected string) *SpecError {
	found := "the end"
	if at < len(p.src) {
		q := specParser{p.src, at}
		if found = q.word(); found == "" {
			_, n := utf8.DecodeRuneInString(p.src[at:])
			found = p.src[at : at+n]
		}
		if len(found) > 40 {
			found = found[:40] + "…"
		}
		found = strconv.Quote(found)
	}
	return &SpecError{Spec: p.src, Offset: at, Expected: expected, Found: found}
}

const lexOptions = "by, default, stop_words, segmenter, stem, variants, fold, max_token_length, han or cjk"

// parseLex reads spec if it is a lex expression; ok is false if it is none.
func parseLex(spec string) (l *lex, ok bool, err error) {
	p := &specParser{src: spec}
	p.space()
	if p.word() != "lex" {
		return nil, false, nil
	}
	p.space()
	if p.i == len(spec) || spec[p.i] != '(' {
		return nil, true, p.fail(p.i, `"(" after lex`)
	}
	p.i++
	l = lexDefaults()
	seen := make(map[string]bool)
	for {
		p.space()
		if p.i < len(spec) && spec[p.i] == ')' {
			break
		}
		at := p.i
		name := p.word()
		if name == "" {
			return nil, true, p.fail(at, `an option or ")"`)
		}
		if seen[name] {
			return nil, true, p.fail(at, "each option once")
		}
		seen[name] = true
		p.space()
		// The name is judged before its colon: the more helpful message of the two.
		if !strings.Contains(" by default stop_words segmenter stem variants fold max_token_length han cjk ", " "+name+" ") {
			return nil, true, p.fail(at, lexOptions)
		}
		if p.i == len(spec) || spec[p.i] != ':' {
			return nil, true, p.fail(p.i, `":" after `+name)
		}
		p.i++
		p.space()
		if err := l.option(p, name); err != nil {
			return nil, true, err
		}
		p.space()
		if p.i < len(spec) && spec[p.i] == ',' {
			p.i++
			continue
		}
		if p.i == len(spec) || spec[p.i] != ')' {
			return nil, true, p.fail(p.i, `"," or ")"`)
		}
	}
	p.i++
	p.space()
	if p.i != len(spec) {
		return nil, true, p.fail(p.i, "the end")
	}
	return l, true, nil
}

// option reads the value of one option.
func (l *lex) option(p *specParser, name string) error {
	at := p.i
	v := p.word()
	choose := func(dst *string, values ...string) error {
		for _, c := range values {
			if c == v {
				*dst = v
				return nil
			}
		}
		return p.fail(at, "one of "+strings.Join(values, ", ")+" for "+name)
	}
	var s string
	flag := func(dst *bool) error {
		if err := choose(&s, "true", "false"); err != nil {
			return err
		}
		*dst = s == "true"
		return nil
	}
	switch name {
	case "by":
		if v == "" {
			return p.fail(at, "the name of a field for by")
		}
		l.by = v
		return nil
	case "default":
		if v == "none" {
			return nil
		}
		lang, ok := stem.Lookup(strings.ToLower(v))
		if !ok {
			codes := make([]string, 0, 20)
			for _, l := range stem.Languages() {
				codes = append(codes, l.Code)
			}
			return p.fail(at, "none or one of "+strings.Join(codes, ", ")+" (or its English name) for default")
		}
		l.language = lang.Code
		return nil
	case "stop_words":
		return flag(&l.stopWords)
	case "segmenter":
		return choose(&l.segmenter, "icu", "unicode", "simple")
	case "stem":
		return choose(&l.stem, "light", "snowball", "none")
	case "variants":
		return flag(&l.variants)
	case "fold":
		return flag(&l.fold)
	case "max_token_length":
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return p.fail(at, "a number of characters (0: no limit) for max_token_length")
		}
		l.maxLength = int(n)
		return nil
	case "han": // simplified asks for a conversion table that weft does not carry
		return choose(&s, "as_written")
	default: // cjk: dictionary asks for dictionaries that weft does not carry
		return choose(&s, "icu")
	}
}

// A lexLanguage is a language that words of one script are stemmed by.
type lexLanguage struct {
	script script
	stem   func(b *stem.Buf, w []byte) []byte // nil: none
	stop   *stopSet
}

// languages prepares the languages with the given codes.
func (l *lex) languages(codes []string) []lexLanguage {
	var out []lexLanguage
	for _, c := range codes {
		lang, ok := stem.Lookup(c)
		if !ok {
			continue
		}
		ll := lexLanguage{script: languageScript(lang.Code)}
		switch l.stem {
		case "snowball":
			ll.stem = lang.Stem
		case "light":
			ll.stem = stem.Light(lang.Code)
		}
		if l.stopWords {
			ll.stop = stopWords(lang.Code)
		}
		out = append(out, ll)
	}
	return out
}

// analyzer makes the analyzer of the expression for documents without a hint.
func (l *lex) analyzer(spec string) *Analyzer {
	var codes []string
	if l.language != "" {
		codes = []string{l.language}
	}
	return l.with(spec, codes)
}

func (l *lex) with(spec string, codes []string) *Analyzer {
	langs := l.languages(codes)
	form := func(purpose int) algorithm {
		return func(s *Scratch, v string) {
			t := lexer{lex: l, s: s, langs: langs, purpose: purpose, runs: grams{s, purpose != forIndex}}
			t.run(v)
		}
	}
	return &Analyzer{
		name:      spec,
		version:   "lex-1/" + stem.Version + "/" + stem.LightVersion + "/" + tablesVersion,
		index:     form(forIndex),
		query:     form(forQuery),
		exact:     form(forExact),
		normalize: l.normalize,
		lex:       l,
	}
}

// hinted returns the analyzer for the languages of a hint.
func (l *lex) hinted(plain *Analyzer, hint string) *Analyzer {
	const maxHint = 256
	if len(hint) > maxHint {
		hint = hint[:maxHint]
	}
	var codes []string
	for _, h := range strings.Split(hint, ",") {
		lang, ok := stem.Lookup(strings.ToLower(strings.TrimSpace(h)))
		if !ok {
			continue
		}
		// Only the first language of a script counts.
		first := true
		for _, c := range codes {
			first = first && languageScript(c) != languageScript(lang.Code)
		}
		if first {
			codes = append(codes, lang.Code)
		}
	}
	if len(codes) == 0 {
		return plain
	}
	key := strings.Join(codes, ",")
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.hint[key]
	if a == nil {
		a = l.with(plain.name, codes)
		if l.hint == nil || len(l.hint) >= cacheSize {
			l.hint = make(map[string]*Analyzer)
		}
		l.hint[key] = a
	}
	return a
}

// normalize folds a prefix as the words of the index are: variants keep the written form, so that is what a prefix meets.
func (l *lex) normalize(p string) string {
	b := norm.NFKC.AppendString(nil, p)
	var out []byte
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if !ignorable(r) {
			out = appendLower(out, r)
		}
		i += n
	}
	if scriptOf(out) == cyrillic {
		out = bytes.ReplaceAll(out, []byte("ё"), []byte("е"))
	}
	if !l.variants && l.fold {
		out = foldMarks(nil, out)
	}
	return string(out)
}

// What tokens are for.
const (
	forIndex = iota
	forQuery // match: the form that a word is scored by
	forExact // phrase and term: the form that was written
)

// A lexer is one run of a lex tokenizer.
type lexer struct {
	*lex
	s       *Scratch
	langs   []lexLanguage
	purpose int
	runs    grams
	pos     uint32
}

func (t *lexer) run(v string) {
	s := t.s
	if t.segmenter == "simple" {
		simple(s, v)
		// The words move out of the way of the tokens that are made of them.
		plain := append([]Token(nil), s.toks...)
		s.toks = s.toks[:0]
		for _, w := range plain {
			t.pos = w.Pos
			t.word(w.Text, int(w.Start), int(w.End))
		}
		return
	}
	g := segmenter{v: v, s: s}
	for {
		start, end, ascii, ok := g.next()
		if !ok {
			break
		}
		if ascii {
			t.runs.flush(&t.pos)
			t.split(s.lower(v, start, end), start, end, true)
			continue
		}
		raw := v[start:end]
		s.alt = norm.NFKC.AppendString(s.alt[:0], raw)
		s.norm = s.norm[:0]
		for i := 0; i < len(s.alt); {
			r, n := utf8.DecodeRune(s.alt[i:])
			if !ignorable(r) {
				s.norm = appendLower(s.norm, r)
			}
			i += n
		}
		s.pieces(t.runs, raw, start, &t.pos, func(w []byte, start, end int) { t.split(w, start, end, len(w) == end-start) })
	}
	t.runs.flush(&t.pos)
}

func apostrophe(r rune) bool { return r == '\'' || r == '’' || r == 'ʼ' || r == '＇' }

// elisions are words that lose their vowel before another: they are not looked for, the word after the apostrophe is. A
// single letter always is one.
var elisions = map[string]bool{
	"qu": true, "dell": true, "all": true, "dall": true, "nell": true, "sull": true, "coll": true, "un": true,
	"quell": true, "quest": true, "sant": true, "bell": true, "gl": true,
}

// contractions are what stands after the apostrophe of English words; the word before is looked for.
var contractions = map[string]bool{"s": true, "t": true, "d": true, "m": true, "ll": true, "re": true, "ve": true}

// split takes a word of UAX #29 apart as analyzers commonly do: at punctuation, but an abbreviation in single letters (U.S.A.) is one word
// without its points, and a number keeps its decimal point and loses its thousands separators. w is lower-cased; exact says
// that its bytes are those of the value at [start:end).
func (t *lexer) split(w []byte, start, end int, exact bool) {
	// The common case: nothing but letters and digits.
	plain := true
	for _, b := range w {
		if b < utf8.RuneSelf && fold[b] == 0 {
			plain = false
			break
		}
		if b >= utf8.RuneSelf {
			plain = plain && !bytes.ContainsFunc(w, func(r rune) bool { return !isAlnum(r) && !unicode.IsMark(r) })
			break
		}
	}
	if plain {
		t.word(w, start, end)
		return
	}
	emit := func(from, to int) {
		if from >= to {
			return
		}
		if exact {
			t.word(w[from:to], start+from, start+to)
		} else {
			t.word(w[from:to], start, end)
		}
	}

	if number(w) || initials(w) {
		// Taken out in place: a shorter word in the same memory.
		j := 0
		abbreviation := !number(w)
		for _, b := range w {
			if b == ',' || b == '.' && abbreviation {
				continue
			}
			w[j] = b
			j++
		}
		t.word(w[:j], start, end)
		return
	}

	if i := bytes.IndexFunc(w, apostrophe); i >= 0 {
		_, n := utf8.DecodeRune(w[i:])
		before, after := w[:i], w[i+n:]
		if bytes.IndexFunc(after, apostrophe) < 0 {
			switch {
			case contractions[string(after)]:
				t.pieces(before, 0, emit)
				return
			case utf8.RuneCount(before) == 1 || elisions[string(before)]:
				t.pieces(after, i+n, emit)
				return
			}
		}
	}
	t.pieces(w, 0, emit)
}

// pieces calls emit for each run of letters, digits and marks in w, at offsets from base on.
func (t *lexer) pieces(w []byte, base int, emit func(from, to int)) {
	from := -1
	for i := 0; i < len(w); {
		r, n := utf8.DecodeRune(w[i:])
		in := isAlnum(r) || from >= 0 && unicode.IsMark(r)
		switch {
		case in && from < 0:
			from = i
		case !in && from >= 0:
			// A decimal number inside a word (v1.2) stays in one piece.
			if !(r == '.' && digit(w, i-1) && digit(w, i+1)) {
				emit(base+from, base+i)
				from = -1
			}
		}
		i += n
	}
	if from >= 0 {
		emit(base+from, base+len(w))
	}
}

func digit(w []byte, i int) bool { return i >= 0 && i < len(w) && w[i]-'0' < 10 }

// number reports whether w is digits with points and commas between them.
func number(w []byte) bool {
	for i, b := range w {
		if b-'0' < 10 {
			continue
		}
		if b != '.' && b != ',' || !digit(w, i-1) || !digit(w, i+1) {
			return false
		}
	}
	return len(w) > 0
}

// initials reports whether w is single letters with points between them.
func initials(w []byte) bool {
	if len(w) < 3 {
		return false
	}
	for i := 0; i < len(w); {
		r, n := utf8.DecodeRune(w[i:])
		if !unicode.IsLetter(r) {
			return false
		}
		i += n
		if i < len(w) {
			if w[i] != '.' {
				return false
			}
			i++
		}
	}
	return true
}

// word emits the forms of one word. Every way through it takes one position.
func (t *lexer) word(w []byte, start, end int) {
	s := t.s
	pos := t.pos
	t.pos++
	sc := scriptOf(w)
	switch sc {
	case arabic:
		w = s.keep(w)
		w = normalizeArabic(w)
	case cyrillic:
		if bytes.Contains(w, []byte("ё")) {
			w = bytes.ReplaceAll(w, []byte("ё"), []byte("е"))
		}
	}
	var lang *lexLanguage
	for i := range t.langs {
		if t.langs[i].script == sc {
			lang = &t.langs[i]
			break
		}
	}
	if len(w) == 0 { // nothing but tatweel and vowel signs
		return
	}
	if lang != nil && lang.stop != nil && lang.stop.has(w) {
		return
	}
	if len(w) > MaxTokenBytes || t.maxLength > 0 && len(w) > t.maxLength && utf8.RuneCount(w) > t.maxLength {
		return
	}
	var stemmed []byte // nil: none, or the word itself
	if lang != nil && lang.stem != nil && !(t.purpose == forExact && t.variants) {
		if st := lang.stem(&s.stem, w); len(st) > 0 && !bytes.Equal(st, w) {
			stemmed = st
		}
	}
	switch {
	case t.purpose == forIndex && t.variants:
		first := len(s.toks)
		s.emit(s.keep(w), pos, start, end)
		variant := func(b []byte) {
			if len(b) == 0 {
				return
			}
			for _, o := range s.toks[first:] {
				if bytes.Equal(o.Text, b) {
					return
				}
			}
			s.emit(s.keep(b), pos, start, end)
		}
		if stemmed != nil {
			stemmed = s.keep(stemmed)
			variant(stemmed)
		}
		if t.fold && sc != other {
			s.alt = foldMarks(s.alt[:0], w)
			variant(s.alt)
			if stemmed != nil {
				s.alt = foldMarks(s.alt[:0], stemmed)
				variant(s.alt)
			}
		}
	default:
		if stemmed != nil {
			w = stemmed
		}
		if t.fold && !t.variants && sc != other {
			if s.alt = foldMarks(s.alt[:0], w); len(s.alt) > 0 {
				w = s.alt
			}
		}
		s.emit(s.keep(w), pos, start, end)
	}
}

// foldMarks appends w without diacritics if it is Latin, Cyrillic or Greek; marks are letters of their own in other scripts.
func foldMarks(dst, w []byte) []byte {
	for _, b := range w {
		if b >= utf8.RuneSelf {
			if sc := scriptOf(w); sc != latin && sc != cyrillic && sc != greek {
				break
			}
			for i := 0; i < len(w); {
				p := norm.NFKD.Properties(w[i:])
				n := p.Size()
				if n == 0 { // no UTF-8
					return append(dst, w[i:]...)
				}
				d := p.Decomposition()
				if d == nil {
					d = w[i : i+n]
				}
				for len(d) > 0 {
					r, m := utf8.DecodeRune(d)
					if !unicode.IsMark(r) {
						dst = append(dst, d[:m]...)
					}
					d = d[m:]
				}
				i += n
			}
			return dst
		}
	}
	return append(dst, w...)
}

// A script is a writing system that has languages with stemmers.
type script uint8

const (
	other script = iota
	latin
	cyrillic
	greek
	arabic
	tamil
)

// scriptOf returns the script of the first letter of w.
func scriptOf(w []byte) script {
	for i := 0; i < len(w); {
		r, n := utf8.DecodeRune(w[i:])
		if unicode.IsLetter(r) {
			switch {
			case r < 0x250, r >= 0x1e00 && r < 0x1f00:
				return latin
			case r >= 0x370 && r < 0x400, r >= 0x1f00 && r < 0x2000:
				return greek
			case r >= 0x400 && r < 0x530:
				return cyrillic
			case r >= 0x600 && r < 0x700, r >= 0x750 && r < 0x780, r >= 0x8a0 && r < 0x900:
				return arabic
			case r >= 0xb80 && r < 0xc00:
				return tamil
			}
			return other
		}
		i += n
	}
	return other
}

func languageScript(code string) script {
	switch code {
	case "ru":
		return cyrillic
	case "el":
		return greek
	case "ar":
		return arabic
	case "ta":
		return tamil
	}
	return latin
}

// normalizeArabic writes the forms of alef as bare alef, dotless yeh as yeh, teh marbuta as heh, and drops tatweel and vowel
// signs (the customary orthographic normalisation for search). It works in place.
func normalizeArabic(w []byte) []byte {
	j := 0
	for i := 0; i < len(w); {
		r, n := utf8.DecodeRune(w[i:])
		switch {
		case r == 'آ' || r == 'أ' || r == 'إ':
			r = 'ا'
		case r == 'ى':
			r = 'ي'
		case r == 'ة':
			r = 'ه'
		case r == 0x640, r >= 0x64b && r <= 0x652:
			i += n
			continue
		}
		if r == utf8.RuneError && n == 1 {
			w[j] = w[i]
			j++
		} else {
			j += utf8.EncodeRune(w[j:], r)
		}
		i += n
	}
	return w[:j]
}
