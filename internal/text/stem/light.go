package stem

import "unicode"

// LightVersion names the rules of Light.
const LightVersion = "light-1"

// Light returns the light stemmer of a language: it takes off the endings of inflection (plural, case, gender) and leaves
// derivation alone, so that "operation" stays and "cells" becomes "cell". The rules are the published ones of J. Savoy (Light
// stemming approaches for the French, Portuguese, German and Hungarian languages, SAC 2006, and its companions for other
// languages), the S-stemmer of D. Harman for English (How effective is suffixing?, JASIS 42, 1991) and light10 of L. Larkey for
// Arabic. For Danish, Dutch, Greek, Romanian, Tamil and Turkish there are none and Light returns nil: the words stay as they are.
func Light(code string) Func { return lightFuncs[code] }

var lightFuncs = map[string]Func{
	"ar": runes(lightArabic),
	"de": runes(lightGerman),
	"en": lightEnglish,
	"es": runes(lightSpanish),
	"fi": runes(lightFinnish),
	"fr": runes(lightFrench),
	"hu": runes(lightHungarian),
	"it": runes(lightItalian),
	"no": runes(func(w []rune) []rune { return lightNordic(w, lightNo) }),
	"pt": runes(lightPortuguese),
	"ru": runes(lightRussian),
	"sv": runes(func(w []rune) []rune { return lightNordic(w, lightSv) }),
}

// A lightRule replaces the last cut letters of a word of more than min letters that ends in one of the table's endings.
type lightRule struct {
	min     int
	endings *table
	cut     int
	put     string
	when    func(w []rune) bool // nil: always; sees the whole word
}

// light applies the first rule that fits.
func light(w []rune, rules []lightRule) []rune {
	for _, r := range rules {
		if len(w) > r.min {
			if act, _ := r.endings.find(w, 0); act != 0 && (r.when == nil || r.when(w)) {
				return put(w[:len(w)-r.cut], r.put)
			}
		}
	}
	return w
}

// foldLetters replaces the letters that m names.
func foldLetters(w []rune, m map[rune]rune) {
	for i, c := range w {
		if c >= 0x80 {
			if f, ok := m[c]; ok {
				w[i] = f
			}
		}
	}
}

// folding makes a map for foldLetters; each string is a letter and then the letters that become it.
func folding(groups ...string) map[rune]rune {
	m := make(map[rune]rune)
	for _, g := range groups {
		r := []rune(g)
		for _, c := range r[1:] {
			m[c] = r[0]
		}
	}
	return m
}

// lightEnglish takes the plural off.
func lightEnglish(b *Buf, w []byte) []byte {
	n := len(w)
	if n < 3 || w[n-1] != 's' {
		return w
	}
	switch w[n-2] {
	case 'u', 's':
		return w
	case 'e':
		switch c := w[n-3]; {
		case c == 'i' && n > 3 && w[n-4] != 'a' && w[n-4] != 'e':
			b.out = append(append(b.out[:0], w[:n-3]...), 'y')
			return b.out
		case c == 'i' || c == 'a' || c == 'o' || c == 'e':
			return w
		}
	}
	return w[:n-1]
}

var (
	lightDeFold  = folding("aäàáâ", "oöòóô", "iïìíî", "uüùúû")
	lightDeFirst = []lightRule{
		{5, suffixes("ern"), 3, "", nil},
		{4, suffixes("em en er es"), 2, "", nil},
		{3, suffixes("e"), 1, "", nil},
		{3, suffixes("s"), 1, "", func(w []rune) bool { return deST.has(w[len(w)-2]) }},
	}
	lightDeSecond = []lightRule{
		{5, suffixes("est"), 3, "", nil},
		{4, suffixes("er en"), 2, "", nil},
		{4, suffixes("st"), 2, "", func(w []rune) bool { return deST.has(w[len(w)-3]) }},
	}
)

func lightGerman(w []rune) []rune {
	foldLetters(w, lightDeFold)
	return light(light(w, lightDeFirst), lightDeSecond)
}

var (
	lightRomance = folding("aàáâä", "oòóôö", "eèéêë", "uùúûü", "iìíîï")
	lightEs      = []lightRule{
		{4, suffixes("o a e"), 1, "", nil},
		{4, suffixes("eses"), 2, "", nil},
		{4, suffixes("ces"), 3, "z", nil},
		{4, suffixes("os as es"), 2, "", nil},
	}
	lightIt = []lightRule{
		{5, suffixes("ie he hi ii ia io"), 2, "", nil},
		{5, suffixes("e i a o"), 1, "", nil},
	}
)

func lightSpanish(w []rune) []rune {
	if len(w) > 4 {
		foldLetters(w, lightRomance)
	}
	return light(w, lightEs)
}

func lightItalian(w []rune) []rune {
	if len(w) > 5 {
		foldLetters(w, lightRomance)
	}
	return light(w, lightIt)
}

var (
	lightPtFold   = folding("aàáâäã", "oòóôöõ", "eèéêë", "uùúûü", "iìíîï", "cç")
	lightPtPlural = []lightRule{
		{4, suffixes("res ses les zes"), 2, "", nil},
		{3, suffixes("ns"), 2, "m", nil},
		{4, suffixes("eis éis"), 3, "el", nil},
		{4, suffixes("ais"), 2, "l", nil},
		{4, suffixes("óis"), 3, "ol", nil},
		{4, suffixes("is"), 1, "l", nil},
		{3, suffixes("ões ães"), 3, "ão", nil},
		{6, suffixes("mente"), 5, "", nil},
		{3, suffixes("s"), 1, "", nil},
	}
	lightPtFeminine = []lightRule{
		{7, suffixes("inha iaca eira"), 1, "o", nil},
		{6, suffixes("osa ica ida ada iva ama"), 1, "o", nil},
		{6, suffixes("ona"), 3, "ão", nil},
		{6, suffixes("ora"), 1, "", nil},
		{6, suffixes("esa"), 3, "ês", nil}, // portuguesa
		{6, suffixes("na"), 1, "o", nil},
	}
	lightPtLast = []lightRule{{4, suffixes("e a o"), 1, "", nil}}
)

func lightPortuguese(w []rune) []rune {
	if len(w) < 4 {
		return w
	}
	w = light(light(light(w, lightPtPlural), lightPtFeminine), lightPtLast)
	foldLetters(w, lightPtFold)
	return w
}

var (
	lightRuCase = []lightRule{
		{6, suffixes("иями оями"), 4, "", nil},
		{5, suffixes("иям иях оях ями оям оьв ами его ему ери ими ого ому ыми оев"), 3, "", nil},
		{4, suffixes("ая яя ях юю ах ею их ия ию ьв ою ую ям ых ея ам ем ей ём ев ий им ое ой ом ов ые ый ым ми"), 2, "", nil},
		{3, suffixes("а е и о у й ы я ь"), 1, "", nil},
	}
	lightRuLast = []lightRule{{3, suffixes("ь и нн"), 1, "", nil}}
)

func lightRussian(w []rune) []rune { return light(light(w, lightRuCase), lightRuLast) }

var (
	lightSv = []lightRule{
		{7, suffixes("elser heten"), 5, "", nil},
		{6, suffixes("arne erna ande else aste orna aren"), 4, "", nil},
		{5, suffixes("are ast het"), 3, "", nil},
		{4, suffixes("ar er or en at te et"), 2, "", nil},
		{3, suffixes("t a e n"), 1, "", nil},
	}
	lightNo = []lightRule{
		{7, suffixes("heter heten"), 5, "", nil},
		{5, suffixes("dom het"), 3, "", nil},
		{7, suffixes("elser elsen"), 5, "", nil},
		{6, suffixes("ende else este eren"), 4, "", nil},
		{5, suffixes("ere est ene"), 3, "", nil},
		{4, suffixes("er en et st te"), 2, "", nil},
		{3, suffixes("a e n"), 1, "", nil},
	}
	lightS = []lightRule{{4, suffixes("s"), 1, "", nil}}
)

func lightNordic(w []rune, rules []lightRule) []rune { return light(light(w, lightS), rules) }

var (
	lightFrPlural = []lightRule{
		{5, suffixes("aux"), 2, "l", func(w []rune) bool { return w[len(w)-4] != 'e' }},
		{5, suffixes("x"), 1, "", nil},
	}
	lightFrX = []lightRule{{3, suffixes("x"), 1, "", nil}}
	lightFrS = []lightRule{{3, suffixes("s"), 1, "", nil}}

	// The rules are looked at in order; more says whether those after a fitting one are looked at too.
	lightFr = []struct {
		lightRule
		more bool
	}{
		{lightRule{9, suffixes("issement"), 6, "", nil}, false},
		{lightRule{8, suffixes("issant"), 4, "", nil}, false},
		{lightRule{6, suffixes("ement"), 4, "", nil}, false},
		{lightRule{11, suffixes("ficatrice"), 8, "ier", nil}, false},
		{lightRule{10, suffixes("ficateur"), 7, "ier", nil}, false},
		{lightRule{9, suffixes("catrice"), 7, "quer", nil}, false},
		{lightRule{8, suffixes("cateur"), 6, "quer", nil}, false},
		{lightRule{8, suffixes("atrice"), 6, "er", nil}, false},
		{lightRule{7, suffixes("ateur"), 5, "er", nil}, false},
		{lightRule{6, suffixes("trice"), 4, "eur", nil}, true},
		{lightRule{5, suffixes("ième"), 4, "", nil}, false},
		{lightRule{7, suffixes("teuse"), 3, "r", nil}, false},
		{lightRule{6, suffixes("teur"), 2, "r", nil}, false},
		{lightRule{5, suffixes("euse"), 2, "", nil}, false},
		{lightRule{8, suffixes("ère"), 3, "er", nil}, false},
		{lightRule{7, suffixes("ive"), 2, "f", nil}, false},
		{lightRule{4, suffixes("folle molle"), 3, "u", nil}, false},
		{lightRule{9, suffixes("nnelle"), 5, "", nil}, false},
		{lightRule{9, suffixes("nnel"), 3, "", nil}, false},
		{lightRule{4, suffixes("ète"), 3, "et", nil}, true},
		{lightRule{8, suffixes("ique"), 4, "", nil}, true},
		{lightRule{8, suffixes("esse"), 3, "", nil}, false},
		{lightRule{7, suffixes("inage"), 3, "", nil}, false},
		{lightRule{9, suffixes("isation"), 7, "", nil}, false},
		{lightRule{9, suffixes("isateur"), 7, "", nil}, false},
		{lightRule{8, suffixes("ation ition"), 5, "", nil}, false},
	}
	lightFrFold = folding("aàáâ", "oô", "eèéê", "uùû", "iî", "cç")
)

func lightFrench(w []rune) []rune {
	w = light(light(light(w, lightFrPlural), lightFrX), lightFrS)
	for i := range lightFr {
		r := &lightFr[i]
		if len(w) <= r.min {
			continue
		}
		if act, _ := r.endings.find(w, 0); act == 0 {
			continue
		}
		w = put(w[:len(w)-r.cut], r.put)
		switch i {
		case 0, 1: // -issement, -issant: the verb in -ir
			w[len(w)-1] = 'r'
		case 2: // -ivement
			if len(w) > 3 && ends(w, "ive") {
				w = put(w[:len(w)-2], "f")
			}
		case 23: // -ualisation
			if len(w) > 5 && ends(w, "ual") {
				w[len(w)-2] = 'e'
			}
		}
		if !r.more {
			break
		}
	}
	if len(w) > 4 {
		foldLetters(w, lightFrFold)
		w = undouble(w, unicode.IsLetter)
	}
	if len(w) > 4 && ends(w, "ie") {
		w = w[:len(w)-2]
	}
	if len(w) > 4 {
		if ends(w, "r") {
			w = w[:len(w)-1]
		}
		if ends(w, "e") {
			w = w[:len(w)-1]
		}
		if ends(w, "e") {
			w = w[:len(w)-1]
		}
		if n := len(w); w[n-1] == w[n-2] && unicode.IsLetter(w[n-1]) {
			w = w[:n-1]
		}
	}
	return w
}

// undouble writes runs of the same letter as one, for the letters that which reports.
func undouble(w []rune, which func(rune) bool) []rune {
	j := 0
	for i, c := range w {
		if i > 0 && c == w[j-1] && which(c) {
			continue
		}
		w[j] = c
		j++
	}
	return w[:j]
}

var (
	lightFiFold   = folding("aäå", "oö")
	lightFiVowel  = letters("aeiouy")
	lightFiSecond = []lightRule{
		{5, suffixes("lla tse sti"), 3, "", nil},
		{5, suffixes("ni"), 2, "", nil},
		{5, suffixes("aa"), 1, "", nil},
	}
	lightFiThird = []lightRule{
		{8, suffixes("nnen"), 4, "s", nil},
		{8, suffixes("ntena"), 5, "s", nil},
		{8, suffixes("tten"), 4, "", nil},
		{8, suffixes("eiden"), 5, "", nil},
		{6, suffixes("neen niin seen teen inen"), 4, "", nil},
		{6, suffixes("han hen hin hon hun hyn"), 3, "", nil},
		{6, suffixes("den"), 3, "s", nil},
		{6, suffixes("ksen"), 4, "s", nil},
		{6, suffixes("ssa sta lla lta tta ksi lle"), 3, "", nil},
		{5, suffixes("na ne"), 2, "", nil},
		{5, suffixes("nei"), 3, "", nil},
		{4, suffixes("ja ta"), 2, "", nil},
		{4, suffixes("a"), 1, "", nil},
		{4, suffixes("n"), 2, "", func(w []rune) bool { return lightFiVowel.has(w[len(w)-2]) }},
		{4, suffixes("n"), 1, "", nil},
	}
	lightFiHde  = []lightRule{{5, suffixes("hde"), 3, "ksi", nil}}
	lightFiLast = []lightRule{
		{4, suffixes("ei at"), 2, "", nil},
		{3, suffixes("t s j e a i"), 1, "", nil},
	}
	lightFiEou = []lightRule{{8, suffixes("e o u"), 1, "", nil}}
	lightFiI   = []lightRule{{4, suffixes("i"), 1, "", nil}}
	lightFiKPT = letters("kpt")
)

func lightFinnish(w []rune) []rune {
	if len(w) < 4 {
		return w
	}
	foldLetters(w, lightFiFold)
	for len(w) > 8 && (ends(w, "kin") || ends(w, "ko")) {
		if ends(w, "kin") {
			w = w[:len(w)-3]
		} else {
			w = w[:len(w)-2]
		}
	}
	if len(w) > 11 {
		if ends(w, "dellinen") {
			w = w[:len(w)-8]
		} else if ends(w, "dellisuus") {
			w = w[:len(w)-9]
		}
	}
	for _, rules := range [...][]lightRule{lightFiSecond, lightFiThird, lightFiHde, lightFiLast, lightFiEou, lightFiI} {
		w = light(w, rules)
	}
	if len(w) > 4 {
		w = undouble(w, lightFiKPT.has)
	}
	return w
}

var (
	lightHuFold  = folding("aá", "eëé", "ií", "oóőõö", "uúűũûü")
	lightHuVowel = letters("aeiouy")

	lightHuCase = []lightRule{
		{6, suffixes("kent"), 4, "", nil},
		{5, suffixes("nak nek val vel ert rol ban ben bol nal nel hoz hez tol"), 3, "", nil},
		{5, suffixes("al el"), 3, "", huDouble(3)},
		{4, suffixes("at et ot va ve ra re ba be ul ig"), 2, "", nil},
		{4, suffixes("on en"), 2, "", huBefore(3, false)},
		{4, suffixes("t n"), 1, "", nil},
		{4, suffixes("a e"), 2, "", huDouble(2)},
	}
	lightHuPossessive = []lightRule{
		{6, suffixes("atok otok etek"), 4, "", huBefore(5, false)},
		{6, suffixes("itek itok"), 4, "", nil},
		{5, suffixes("unk tok tek"), 3, "", huBefore(4, false)},
		{5, suffixes("juk"), 3, "", huBefore(4, true)},
		{5, suffixes("ink"), 3, "", nil},
		{4, suffixes("am em om ad ed od uk"), 2, "", huBefore(3, false)},
		{4, suffixes("nk ja je"), 2, "", huBefore(3, true)},
		{4, suffixes("im id ik"), 2, "", nil},
		{3, suffixes("a e"), 1, "", huBefore(2, false)},
		{3, suffixes("m d"), 1, "", huBefore(2, true)},
		{3, suffixes("i"), 1, "", nil},
	}
	lightHuPlural = []lightRule{
		{4, suffixes("ak ok ek"), 2, "", nil},
		{3, suffixes("k"), 1, "", nil},
	}
	lightHuLast = []lightRule{{3, suffixes("a e i o"), 1, "", nil}}
)

// huBefore reports whether the n-th letter from the end is a vowel (or is none).
func huBefore(n int, vowel bool) func([]rune) bool {
	return func(w []rune) bool { return lightHuVowel.has(w[len(w)-n]) == vowel }
}

// huDouble reports whether the n-th letter from the end is a consonant that is doubled.
func huDouble(n int) func([]rune) bool {
	return func(w []rune) bool {
		c := w[len(w)-n]
		return c == w[len(w)-n-1] && !lightHuVowel.has(c)
	}
}

func lightHungarian(w []rune) []rune {
	foldLetters(w, lightHuFold)
	for _, rules := range [...][]lightRule{lightHuCase, lightHuPossessive, lightHuPlural, lightHuLast} {
		w = light(w, rules)
	}
	return w
}

var lightArEndings = [...]string{"ها", "ان", "ات", "ون", "ين", "يه", "ية", "ه", "ة", "ي"}

// lightArabic takes off the article with its particles, and each of the endings once, in their order.
func lightArabic(w []rune) []rune {
	for _, p := range [...]string{"ال", "وال", "بال", "كال", "فال", "لل", "و"} {
		n := len([]rune(p))
		if starts(w, p) && (n > 1 && len(w) >= n+2 || n == 1 && len(w) >= 4) {
			w = w[n:]
			break
		}
	}
	for _, e := range lightArEndings {
		if n := len([]rune(e)); len(w) >= n+2 && ends(w, e) {
			w = w[:len(w)-n]
		}
	}
	return w
}
