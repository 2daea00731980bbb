package stem

// english is the English stemmer (Porter 2). Words of ASCII letters are stemmed in bytes, without allocation once the Buf is warm.
func english(b *Buf, word []byte) []byte {
	if len(word) < 3 || len(word) > maxWord {
		return word
	}
	for _, c := range word {
		if c >= 0x80 {
			return englishRunes(b, word)
		}
	}
	b.out = append(b.out[:0], word...)
	return englishStem(b.out)
}

var englishRunes = runes(func(w []rune) []rune { return englishStem(w) })

// char is a character of a word: a byte where all are ASCII, else a rune. The rules name ASCII letters only.
type char interface{ byte | rune }

func tail[C char](w []C, s string) bool {
	if len(w) < len(s) {
		return false
	}
	w = w[len(w)-len(s):]
	for i := range len(s) {
		if w[i] != C(s[i]) {
			return false
		}
	}
	return true
}

func is[C char](w []C, s string) bool { return len(w) == len(s) && tail(w, s) }

func add[C char](w []C, s string) []C {
	for i := range len(s) {
		w = append(w, C(s[i]))
	}
	return w
}

// Sets of letters as bits, a = bit 0. Upper-case Y, a y that acts as a consonant, is outside of all of them.
func bits(s string) (m uint32) {
	for i := range len(s) {
		m |= 1 << (s[i] - 'a')
	}
	return m
}

var (
	enVowel  = bits("aeiouy")
	enLi     = bits("cdeghkmnrt")
	enDouble = bits("bdfgmnprt")
	enAEO    = bits("aeo")
)

func in[C char](c C, m uint32) bool {
	i := uint32(c) - 'a'
	return i < 26 && m&(1<<i) != 0
}

// short reports whether w ends in a short syllable.
func short[C char](w []C) bool {
	n := len(w)
	if n >= 3 && !in(w[n-1], enVowel) && w[n-1] != 'w' && w[n-1] != 'x' && w[n-1] != 'Y' && in(w[n-2], enVowel) && !in(w[n-3], enVowel) {
		return true
	}
	if n == 2 && !in(w[1], enVowel) && in(w[0], enVowel) {
		return true
	}
	return tail(w, "past")
}

func hasVowel[C char](w []C) bool {
	for _, c := range w {
		if in(c, enVowel) {
			return true
		}
	}
	return false
}

// region returns the position after the first non-vowel that follows a vowel at or after i.
func region[C char](w []C, i int) int {
	for i < len(w) && !in(w[i], enVowel) {
		i++
	}
	for i < len(w) && in(w[i], enVowel) {
		i++
	}
	if i < len(w) {
		return i + 1
	}
	return len(w)
}

func enSpecial[C char](w []C) ([]C, bool) {
	switch len(w) {
	case 3:
		if is(w, "sky") {
			return w, true
		}
	case 4:
		switch {
		case is(w, "skis"):
			return w[:3], true
		case is(w, "idly"):
			return w[:3], true
		case is(w, "ugly"), is(w, "only"):
			w[3] = 'i'
			return w, true
		case is(w, "news"), is(w, "howe"), is(w, "bias"):
			return w, true
		}
	case 5:
		switch {
		case is(w, "skies"):
			w[2] = 'y'
			return w[:3], true
		case is(w, "early"):
			w[4] = 'i'
			return w, true
		case is(w, "atlas"), is(w, "andes"):
			return w, true
		}
	case 6:
		switch {
		case is(w, "gently"), is(w, "singly"):
			return w[:5], true
		case is(w, "cosmos"):
			return w, true
		}
	}
	return w, false
}

// enPrefix holds, by first letter, the beginnings of words whose R1 does not begin after the first syllable, so that their families
// do not fall together.
var enPrefix = func() (t [26]string) {
	for _, p := range []string{"gener", "commun", "arsen", "past", "univers", "later", "emerg", "organ", "inter"} {
		t[p[0]-'a'] = p
	}
	return t
}()

func englishStem[C char](w []C) []C {
	if len(w) < 3 {
		return w
	}
	if s, ok := enSpecial(w); ok {
		return s
	}
	if w[0] == '\'' {
		copy(w, w[1:])
		w = w[:len(w)-1]
	}
	// A y that begins the word or follows a vowel is a consonant: Y.
	marked := false
	for i, c := range w {
		if c == 'y' && (i == 0 || in(w[i-1], enVowel)) {
			w[i] = 'Y'
			marked = true
		}
	}
	p1 := -1
	if c := uint32(w[0]) - 'a'; c < 26 {
		if p := enPrefix[c]; p != "" && len(w) >= len(p) && is(w[:len(p)], p) {
			p1 = len(p)
		}
	}
	if p1 < 0 {
		p1 = region(w, 0)
	}
	p2 := region(w, p1)

	// Step 1a: plurals and possessives.
	switch w[len(w)-1] {
	case '\'':
		if tail(w, "'s'") {
			w = w[:len(w)-3]
		} else {
			w = w[:len(w)-1]
		}
	case 's':
		if tail(w, "'s") {
			w = w[:len(w)-2]
		}
	}
	if n := len(w); n > 1 {
		switch w[n-1] {
		case 'd':
			if tail(w, "ied") {
				w = enIed(w)
			}
		case 's':
			switch {
			case tail(w, "sses"):
				w = w[:n-2]
			case tail(w, "ies"):
				w = enIed(w)
			case w[n-2] == 'u' || w[n-2] == 's':
			case hasVowel(w[:n-2]):
				w = w[:n-1]
			}
		}
	}

	w = enStep1b(w, p1)

	// Step 1c: final y after a consonant.
	if n := len(w); n > 2 && (w[n-1] == 'y' || w[n-1] == 'Y') && !in(w[n-2], enVowel) {
		w[n-1] = 'i'
	}

	w = enStep2(w, p1)
	w = enStep3(w, p1, p2)
	w = enStep4(w, p2)

	// Step 5: final e and l.
	if n := len(w); n > 0 {
		switch w[n-1] {
		case 'e':
			if n-1 >= p2 || n-1 >= p1 && !short(w[:n-1]) {
				w = w[:n-1]
			}
		case 'l':
			if n-1 >= p2 && n > 1 && w[n-2] == 'l' {
				w = w[:n-1]
			}
		}
	}
	if marked {
		for i, c := range w {
			if c == 'Y' {
				w[i] = 'y'
			}
		}
	}
	return w
}

func enIed[C char](w []C) []C {
	if len(w) > 4 {
		return w[:len(w)-2]
	}
	return w[:len(w)-1]
}

func enStep1b[C char](w []C, p1 int) []C {
	n := len(w)
	if n < 2 {
		return w
	}
	var cut int
	switch w[n-1] {
	case 'd':
		if tail(w, "eed") {
			return enEed(w, n-3, p1)
		}
		if !tail(w, "ed") {
			return w
		}
		cut = n - 2
	case 'g':
		if !tail(w, "ing") {
			return w
		}
		cut = n - 3
		s := w[:cut]
		if len(s) == 2 && s[1] == 'y' && !in(s[0], enVowel) { // dying, lying
			return add(w[:1], "ie")
		}
		if is(s, "inn") || is(s, "out") || is(s, "cann") || is(s, "herr") || is(s, "earr") || is(s, "even") {
			return w
		}
	case 'y':
		switch {
		case tail(w, "eedly"):
			return enEed(w, n-5, p1)
		case tail(w, "edly"):
			cut = n - 4
		case tail(w, "ingly"):
			cut = n - 5
		default:
			return w
		}
	default:
		return w
	}
	if !hasVowel(w[:cut]) {
		return w
	}
	w = w[:cut]
	switch n := len(w); {
	case tail(w, "at"), tail(w, "bl"), tail(w, "iz"):
		w = append(w, 'e')
	case n >= 2 && w[n-1] == w[n-2] && in(w[n-1], enDouble):
		if n != 3 || !in(w[0], enAEO) {
			w = w[:n-1]
		}
	case n == p1 && short(w):
		w = append(w, 'e')
	}
	return w
}

func enEed[C char](w []C, at, p1 int) []C {
	s := w[:at]
	if is(s, "proc") || is(s, "exc") || is(s, "succ") {
		return w
	}
	if at >= p1 {
		return w[:at+2]
	}
	return w
}

func enStep2[C char](w []C, p1 int) []C {
	n := len(w)
	if n < 3 {
		return w
	}
	// cut is the length of the suffix, with replaces it.
	rep := func(cut int, with string) []C {
		if n-cut < p1 {
			return w
		}
		return add(w[:n-cut], with)
	}
	switch w[n-1] {
	case 'l':
		switch {
		case tail(w, "ational"):
			return rep(7, "ate")
		case tail(w, "tional"):
			return rep(6, "tion")
		}
	case 'n':
		switch {
		case tail(w, "ization"):
			return rep(7, "ize")
		case tail(w, "ation"):
			return rep(5, "ate")
		}
	case 'r':
		switch {
		case tail(w, "izer"):
			return rep(4, "ize")
		case tail(w, "ator"):
			return rep(4, "ate")
		}
	case 'm':
		if tail(w, "alism") {
			return rep(5, "al")
		}
	case 's':
		switch {
		case tail(w, "fulness"):
			return rep(7, "ful")
		case tail(w, "ousness"):
			return rep(7, "ous")
		case tail(w, "iveness"):
			return rep(7, "ive")
		}
	case 't':
		if tail(w, "ogist") {
			return rep(5, "og")
		}
	case 'i':
		switch w[n-2] {
		case 'c':
			switch {
			case tail(w, "enci"):
				return rep(4, "ence")
			case tail(w, "anci"):
				return rep(4, "ance")
			}
		case 't':
			switch {
			case tail(w, "biliti"):
				return rep(6, "ble")
			case tail(w, "aliti"):
				return rep(5, "al")
			case tail(w, "iviti"):
				return rep(5, "ive")
			}
		case 'g':
			if tail(w, "ogi") && n > 3 && w[n-4] == 'l' {
				return rep(3, "og")
			}
		case 'l':
			switch {
			case tail(w, "lessli"):
				return rep(6, "less")
			case tail(w, "entli"):
				return rep(5, "ent")
			case tail(w, "ousli"):
				return rep(5, "ous")
			case tail(w, "fulli"):
				return rep(5, "ful")
			case tail(w, "abli"):
				return rep(4, "able")
			case tail(w, "alli"):
				return rep(4, "al")
			case tail(w, "bli"):
				return rep(3, "ble")
			case n > 2 && in(w[n-3], enLi):
				return rep(2, "")
			}
		}
	}
	return w
}

func enStep3[C char](w []C, p1, p2 int) []C {
	n := len(w)
	if n < 3 {
		return w
	}
	switch {
	case tail(w, "ational"):
		if n-7 >= p1 {
			return add(w[:n-7], "ate")
		}
	case tail(w, "tional"), tail(w, "alize"):
		if tail(w, "tional") {
			if n-6 >= p1 {
				return w[:n-2]
			}
		} else if n-5 >= p1 {
			return w[:n-3]
		}
	case tail(w, "icate"), tail(w, "iciti"):
		if n-5 >= p1 {
			return w[:n-3]
		}
	case tail(w, "ical"):
		if n-4 >= p1 {
			return w[:n-2]
		}
	case tail(w, "ful"):
		if n-3 >= p1 {
			return w[:n-3]
		}
	case tail(w, "ness"):
		if n-4 >= p1 {
			return w[:n-4]
		}
	case tail(w, "ative"):
		if n-5 >= p1 && n-5 >= p2 {
			return w[:n-5]
		}
	}
	return w
}

func enStep4[C char](w []C, p2 int) []C {
	n := len(w)
	if n < 2 {
		return w
	}
	cut := 0
	switch w[n-1] {
	case 'l':
		if tail(w, "al") {
			cut = 2
		}
	case 'e':
		switch {
		case tail(w, "ance"), tail(w, "ence"), tail(w, "able"), tail(w, "ible"):
			cut = 4
		case tail(w, "ate"), tail(w, "ive"), tail(w, "ize"):
			cut = 3
		}
	case 'r':
		if tail(w, "er") {
			cut = 2
		}
	case 'c':
		if tail(w, "ic") {
			cut = 2
		}
	case 't':
		switch {
		case tail(w, "ement"):
			cut = 5
		case tail(w, "ment"):
			cut = 4
		case tail(w, "ent"), tail(w, "ant"):
			cut = 3
		}
	case 'm':
		if tail(w, "ism") {
			cut = 3
		}
	case 'i':
		if tail(w, "iti") {
			cut = 3
		}
	case 's':
		if tail(w, "ous") {
			cut = 3
		}
	case 'n':
		if tail(w, "ion") && n > 3 && (w[n-4] == 's' || w[n-4] == 't') {
			cut = 3
		}
	}
	if cut > 0 && n-cut >= p2 {
		return w[:n-cut]
	}
	return w
}
