package stem

var (
	frVowel   = letters("aeiouyâàëéêèïîôûù")
	frElision = letters("cdjlmnst")
	frOux     = letters("bhjlnp")
	frKeepS   = letters("aiouès")

	frStandard = suffixes(
		"ance iqUe isme able iste eux ances iqUes ismes ables istes", // 1
		"atrice ateur ation atrices ateurs ations",                   // 2
		"logie logies",              // 3
		"usion ution usions utions", // 4
		"ence ences",                // 5
		"ement ements",              // 6
		"ité ités",                  // 7
		"if ive ifs ives",           // 8
		"eaux",                      // 9
		"aux",                       // 10
		"oux",                       // 11
		"euse euses",                // 12
		"issement issements",        // 13
		"amment",                    // 14
		"emment",                    // 15
		"ment ments",                // 16
	)
	frEment = suffixes("iv", "eus", "abl iqU", "ièr Ièr")
	frIte   = suffixes("abil", "ic", "iv")
	frIVerb = suffixes("îmes ît îtes i ie ies ir ira irai iraIent irais irait iras irent irez iriez irions irons iront is issaIent " +
		"issais issait issant issante issantes issants isse issent isses issez issiez issions issons it")
	frVerb = suffixes("ions",
		"é ée ées és èrent er era erai eraIent erais erait eras erez eriez erions erons eront ez iez eais",
		"âmes ât âtes a ai aIent ait ant ante antes ants as asse assent asses assiez assions",
		"ais aise aises")
	frAis      = suffixes("al", "auv épl")
	frResidual = suffixes("ion", "ier ière Ier Ière", "e")
	frDouble   = suffixes("enn onn ett ell eill")
)

// french. U, I and Y are u, i and y that act as consonants, Hi and He are ï and ë while endings are looked at.
func french(w []rune) []rune {
	switch {
	case len(w) > 2 && frElision.has(w[0]) && w[1] == '\'':
		w = w[2:]
	case len(w) > 3 && w[0] == 'q' && w[1] == 'u' && w[2] == '\'':
		w = w[3:]
	}
	w = frPrelude(w)

	pv := len(w)
	switch {
	case len(w) >= 3 && frVowel.has(w[0]) && frVowel.has(w[1]):
		pv = 3
	case starts(w, "par") || starts(w, "col") || starts(w, "tap"):
		pv = 3
	case starts(w, "ni") && len(w) > 2 && frVowel.has(w[2]):
		pv = 3
	case len(w) > 0:
		if p := frVowel.past(w, 1, true); p >= 0 {
			pv = p
		}
	}
	p1, p2 := frVowel.regions(w, 0)

	w, ok := frStandardSuffix(w, pv, p1, p2)
	if !ok {
		w, ok = frIVerbSuffix(w, pv)
	}
	if !ok {
		w, ok = frVerbSuffix(w, pv, p2)
	}
	if ok {
		if n := len(w); n > 0 {
			switch w[n-1] {
			case 'Y':
				w[n-1] = 'i'
			case 'ç':
				w[n-1] = 'c'
			}
		}
	} else {
		w = frResidualSuffix(w, pv, p2)
	}

	if act, _ := frDouble.find(w, 0); act != 0 {
		w = w[:len(w)-1]
	}
	i := len(w)
	for i > 0 && !frVowel.has(w[i-1]) {
		i--
	}
	if i > 0 && i < len(w) && (w[i-1] == 'é' || w[i-1] == 'è') {
		w[i-1] = 'e'
	}
	return frPostlude(w)
}

func frPrelude(w []rune) []rune {
	extra := 0
	for i, c := range w {
		if frVowel.has(c) && i+1 < len(w) {
			switch next := w[i+1]; {
			case next == 'u' && i+2 < len(w) && frVowel.has(w[i+2]):
				w[i+1] = 'U'
			case next == 'i' && i+2 < len(w) && frVowel.has(w[i+2]):
				w[i+1] = 'I'
			case next == 'y':
				w[i+1] = 'Y'
			}
		}
		switch c = w[i]; {
		case c == 'ë' || c == 'ï':
			extra++
		case c == 'y' && i+1 < len(w) && frVowel.has(w[i+1]):
			w[i] = 'Y'
		case c == 'q' && i+1 < len(w) && w[i+1] == 'u':
			w[i+1] = 'U'
		}
	}
	if extra == 0 {
		return w
	}
	n := len(w)
	for range extra {
		w = append(w, 0)
	}
	j := len(w)
	for i := n - 1; i >= 0; i-- {
		switch c := w[i]; c {
		case 'ë', 'ï':
			j -= 2
			w[j] = 'H'
			if c == 'ë' {
				w[j+1] = 'e'
			} else {
				w[j+1] = 'i'
			}
		default:
			j--
			w[j] = c
		}
	}
	return w
}

func frPostlude(w []rune) []rune {
	j := 0
	for i := 0; i < len(w); i++ {
		c := w[i]
		switch c {
		case 'I':
			c = 'i'
		case 'U':
			c = 'u'
		case 'Y':
			c = 'y'
		case 'H':
			if i+1 < len(w) && w[i+1] == 'e' {
				c = 'ë'
				i++
			} else if i+1 < len(w) && w[i+1] == 'i' {
				c = 'ï'
				i++
			} else {
				continue
			}
		}
		w[j] = c
		j++
	}
	return w[:j]
}

// frStandardSuffix reports whether the verb endings are not to be looked at.
func frStandardSuffix(w []rune, pv, p1, p2 int) ([]rune, bool) {
	act, at := frStandard.find(w, 0)
	switch act {
	case 1:
		if at >= p2 {
			return w[:at], true
		}
	case 2:
		if at >= p2 {
			w = w[:at]
			return frIc(w, p2), true
		}
	case 3:
		if at >= p2 {
			return put(w[:at], "log"), true
		}
	case 4:
		if at >= p2 {
			return put(w[:at], "u"), true
		}
	case 5:
		if at >= p2 {
			return put(w[:at], "ent"), true
		}
	case 6:
		if at < pv {
			break
		}
		w = w[:at]
		act, at := frEment.find(w, 0)
		switch act {
		case 1:
			if at >= p2 {
				w = w[:at]
				if n := len(w) - 2; ends(w, "at") && n >= p2 {
					w = w[:n]
				}
			}
		case 2:
			if at >= p2 {
				w = w[:at]
			} else if at >= p1 {
				w = put(w[:at], "eux")
			}
		case 3:
			if at >= p2 {
				w = w[:at]
			}
		case 4:
			if at >= pv {
				w = put(w[:at], "i")
			}
		}
		return w, true
	case 7:
		if at < p2 {
			break
		}
		w = w[:at]
		act, at := frIte.find(w, 0)
		switch {
		case act != 0 && at >= p2:
			w = w[:at]
		case act == 1:
			w = put(w[:at], "abl")
		case act == 2:
			w = put(w[:at], "iqU")
		}
		return w, true
	case 8:
		if at < p2 {
			break
		}
		w = w[:at]
		if n := len(w) - 2; ends(w, "at") && n >= p2 {
			w = frIc(w[:n], p2)
		}
		return w, true
	case 9:
		return w[:len(w)-1], true
	case 10:
		if at >= p1 {
			return put(w[:at], "al"), true
		}
	case 11:
		if at > 0 && frOux.has(w[at-1]) {
			return w[:len(w)-1], true
		}
	case 12:
		if at >= p2 {
			return w[:at], true
		}
		if at >= p1 {
			return put(w[:at], "eux"), true
		}
	case 13:
		if at >= p1 && at > 0 && !frVowel.has(w[at-1]) {
			return w[:at], true
		}
	case 14:
		if at >= pv {
			return put(w[:at], "ant"), false
		}
	case 15:
		if at >= pv {
			return put(w[:at], "ent"), false
		}
	case 16:
		if at-1 >= pv && frVowel.has(w[at-1]) {
			return w[:at], false
		}
	}
	return w, false
}

func frIc(w []rune, p2 int) []rune {
	if ends(w, "ic") {
		if n := len(w) - 2; n >= p2 {
			return w[:n]
		}
		return put(w[:len(w)-2], "iqU")
	}
	return w
}

func frIVerbSuffix(w []rune, pv int) ([]rune, bool) {
	act, at := frIVerb.find(w, pv)
	if act != 0 && at-1 >= pv && w[at-1] != 'H' && !frVowel.has(w[at-1]) {
		return w[:at], true
	}
	return w, false
}

func frVerbSuffix(w []rune, pv, p2 int) ([]rune, bool) {
	act, at := frVerb.find(w, pv)
	switch act {
	case 1:
		if at >= p2 {
			return w[:at], true
		}
	case 2:
		return w[:at], true
	case 3:
		if at-1 >= pv && w[at-1] == 'e' {
			at--
		}
		return w[:at], true
	case 4:
		no, i := frAis.find(w[:at], 0)
		if no == 2 || no == 1 && i == 1 { // mauvais, déplais; balais, palais
			return w, false
		}
		return w[:at], true
	}
	return w, false
}

func frResidualSuffix(w []rune, pv, p2 int) []rune {
	if n := len(w) - 1; n > 0 && w[n] == 's' && (ends(w[:n], "Hi") || !frKeepS.has(w[n-1])) {
		w = w[:n]
	}
	act, at := frResidual.find(w, pv)
	switch act {
	case 1:
		if at >= p2 && at-1 >= pv && (w[at-1] == 's' || w[at-1] == 't') {
			w = w[:at]
		}
	case 2:
		w = put(w[:at], "i")
	case 3:
		w = w[:at]
	}
	return w
}
