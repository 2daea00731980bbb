package stem

var (
	fiVowel    = letters("aeiouyäö")
	fiV2       = letters("aeiouäö")
	fiCons     = letters("bcdfghjklmnpqrstvwxz")
	fiAEI      = letters("aäei")
	fiParticle = letters("aeiouyäönt")

	fiParticles  = suffixes("kin kaan kään ko kö han hän pa pä", "sti")
	fiPossessive = suffixes("si", "ni", "nsa nsä mme nne", "an", "än", "en")
	fiBeforeAn   = suffixes("ta ssa sta lla lta na")
	fiBeforeAen  = suffixes("tä ssä stä llä ltä nä")
	fiBeforeEn   = suffixes("lle ine")
	fiCase       = suffixes("han", "hen", "hin", "hon", "hän", "hön", // 1 to 6: illative, after the same vowel
		"siin den tten", // 7: after i and a vowel, else -n
		"seen",          // 8: after a long vowel, else -n
		"n",             // 9
		"a ä",           // 10
		"tta ttä",       // 11
		"ta tä ssa ssä sta stä lla llä lta ltä lle na nä ksi ine")
	fiLong  = suffixes("aa ee ii oo uu ää öö")
	fiOther = suffixes("mpi mpa mpä mmi mma mmä", "impi impa impä immi imma immä eja ejä")
)

func fiIsLong(w []rune) bool {
	act, _ := fiLong.find(w, 0)
	return act != 0
}

func finnish(w []rune) []rune {
	p1, p2 := fiVowel.regions(w, 0)

	act, at := fiParticles.find(w, p1)
	if act == 1 && at > 0 && fiParticle.has(w[at-1]) || act == 2 && at >= p2 {
		w = w[:at]
	}

	act, at = fiPossessive.find(w, p1)
	switch s := w[:at]; act {
	case 1:
		if !ends(s, "k") {
			w = s
		}
	case 2:
		w = s
		if ends(w, "kse") {
			w[len(w)-1] = 'i'
		}
	case 3:
		w = s
	case 4:
		if ok, _ := fiBeforeAn.find(s, 0); ok != 0 {
			w = s
		}
	case 5:
		if ok, _ := fiBeforeAen.find(s, 0); ok != 0 {
			w = s
		}
	case 6:
		if ok, _ := fiBeforeEn.find(s, 0); ok != 0 {
			w = s
		}
	}

	w, removed := fiCaseEnding(w, p1)

	act, at = fiOther.find(w, p2)
	if act == 1 && !ends(w[:at], "po") || act == 2 {
		w = w[:at]
	}

	n := len(w)
	if removed {
		if n-1 >= p1 && n > 0 && (w[n-1] == 'i' || w[n-1] == 'j') {
			w = w[:n-1]
		}
	} else if n-2 >= p1 && n > 1 && w[n-1] == 't' && fiVowel.has(w[n-2]) {
		w = w[:n-1]
		if at := len(w) - 4; at >= p2 && ends(w, "imma") {
			w = w[:at]
		} else if at := len(w) - 3; at >= p2 && ends(w, "mma") && !ends(w[:at], "po") {
			w = w[:at]
		}
	}
	return fiTidy(w, p1)
}

func fiCaseEnding(w []rune, p1 int) ([]rune, bool) {
	act, at := fiCase.find(w, p1)
	s := w[:at]
	switch act {
	case 0:
		return w, false
	case 1, 2, 3, 4, 5, 6:
		if at == 0 || w[at-1] != w[at+1] {
			return w, false
		}
		return s, true
	case 7:
		if at > 1 && w[at-1] == 'i' && fiV2.has(w[at-2]) {
			return s, true
		}
		s = w[:len(w)-1]
	case 8:
		if fiIsLong(s) {
			return s, true
		}
		s = w[:len(w)-1]
	case 10:
		if at < 2 || !fiVowel.has(w[at-1]) || !fiCons.has(w[at-2]) {
			return w, false
		}
		return s, true
	case 11:
		if at == 0 || w[at-1] != 'e' {
			return w, false
		}
		return s, true
	case 12:
		return s, true
	}
	// -n: genitive, or illative, which loses a letter of its long vowel too.
	if fiIsLong(s) || ends(s, "ie") {
		s = s[:len(s)-1]
	}
	return s, true
}

func fiTidy(w []rune, p1 int) []rune {
	if n := len(w); n-2 >= p1 && fiIsLong(w) {
		w = w[:n-1]
	}
	if n := len(w); n-2 >= p1 && n > 1 && fiAEI.has(w[n-1]) && fiCons.has(w[n-2]) {
		w = w[:n-1]
	}
	if n := len(w); n-2 >= p1 && n > 1 && w[n-1] == 'j' && (w[n-2] == 'o' || w[n-2] == 'u') {
		w = w[:n-1]
	}
	if n := len(w); n-2 >= p1 && n > 1 && w[n-1] == 'o' && w[n-2] == 'j' {
		w = w[:n-1]
	}
	i := len(w)
	for i > 0 && fiVowel.has(w[i-1]) {
		i--
	}
	if i > 1 && fiCons.has(w[i-1]) && w[i-2] == w[i-1] {
		copy(w[i-1:], w[i:])
		w = w[:len(w)-1]
	}
	return w
}
