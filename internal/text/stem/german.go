package stem

var (
	deVowel = letters("aeiouyäöü")
	deS     = letters("bdfghklmnrt")
	deST    = letters("bdfghklmnt")
	deET    = letters("dfgklmnrstUzä")
	deStep1 = suffixes("em", "ern er erin erinnen", "e en es", "s", "ln lns")
	deStep2 = suffixes("en er est", "st", "et")
	deNoEt  = suffixes("geordn intern plan tick tr")
	deStep3 = suffixes("end ung", "ig ik isch", "lich heit", "keit")
)

// german: umlauts written as ae, oe, ue are umlauts; u and y between vowels are consonants.
func german(w []rune) []rune {
	for i := 0; i+2 < len(w); i++ {
		if deVowel.has(w[i]) && deVowel.has(w[i+2]) {
			switch w[i+1] {
			case 'u':
				w[i+1] = 'U'
			case 'y':
				w[i+1] = 'Y'
			}
		}
	}
	w = deUmlauts(w)

	p1, p2 := len(w), len(w)
	if len(w) >= 3 {
		p1, p2 = deVowel.regions(w, 0)
		p1 = max(p1, 3)
	}

	act, at := deStep1.find(w, 0)
	if at >= p1 {
		switch act {
		case 1:
			if !ends(w[:at], "syst") {
				w = w[:at]
			}
		case 2:
			w = w[:at]
		case 3:
			w = w[:at]
			if ends(w, "niss") {
				w = w[:len(w)-1]
			}
		case 4:
			if at > 0 && deS.has(w[at-1]) {
				w = w[:at]
			}
		case 5:
			w = w[:at+1]
		}
	}

	act, at = deStep2.find(w, 0)
	if at >= p1 {
		switch act {
		case 1:
			w = w[:at]
		case 2:
			if at >= 4 && deST.has(w[at-1]) {
				w = w[:at]
			}
		case 3:
			if at > 0 && deET.has(w[at-1]) {
				if no, _ := deNoEt.find(w[:at], 0); no == 0 {
					w = w[:at]
				}
			}
		}
	}

	act, at = deStep3.find(w, 0)
	if at >= p2 {
		switch act {
		case 1:
			w = w[:at]
			if n := len(w) - 2; ends(w, "ig") && n >= p2 && !ends(w[:n], "e") {
				w = w[:n]
			}
		case 2:
			if !ends(w[:at], "e") {
				w = w[:at]
			}
		case 3:
			w = w[:at]
			if n := len(w) - 2; n >= p1 && (ends(w, "er") || ends(w, "en")) {
				w = w[:n]
			}
		case 4:
			w = w[:at]
			switch n := len(w); {
			case ends(w, "lich"):
				if n-4 >= p2 {
					w = w[:n-4]
				}
			case ends(w, "ig"):
				if n-2 >= p2 {
					w = w[:n-2]
				}
			}
		}
	}

	for i, c := range w {
		switch c {
		case 'Y':
			w[i] = 'y'
		case 'U', 'ü':
			w[i] = 'u'
		case 'ä':
			w[i] = 'a'
		case 'ö':
			w[i] = 'o'
		}
	}
	return w
}

// deUmlauts writes ß as ss and ae, oe, ue as umlauts, but not the ue of que.
func deUmlauts(w []rune) []rune {
	extra := 0
	for _, c := range w {
		if c == 'ß' {
			extra++
		}
	}
	if extra > 0 { // from the end on, so that nothing is overwritten before it is read
		n := len(w)
		for range extra {
			w = append(w, 0)
		}
		j := len(w)
		for i := n - 1; i >= 0; i-- {
			if w[i] == 'ß' {
				j -= 2
				w[j], w[j+1] = 's', 's'
			} else {
				j--
				w[j] = w[i]
			}
		}
	}
	j := 0
	for i := 0; i < len(w); i++ {
		c := w[i]
		if i+1 < len(w) {
			switch next := w[i+1]; {
			case next == 'e' && c == 'a':
				c = 'ä'
				i++
			case next == 'e' && c == 'o':
				c = 'ö'
				i++
			case next == 'e' && c == 'u':
				c = 'ü'
				i++
			case next == 'u' && c == 'q':
				w[j] = c
				j++
				c = 'u'
				i++
			}
		}
		w[j] = c
		j++
	}
	return w[:j]
}
