package stem

// r1 is R1 as the Scandinavian languages have it: at least three letters stand before it. It is len(w) for words of fewer than three.
func r1(v *group, w []rune) int {
	if len(w) < 3 {
		return len(w)
	}
	p1, _ := v.regions(w, 0)
	return max(p1, 3)
}

var (
	svVowel = letters("aeiouyäåö")
	svS     = letters("bcdfghjklmnoprtvy")
	svOst   = letters("iklnprtuv")
	svMain  = suffixes("a arna erna heterna orna ad e ade ande arne are aste en anden aren heten ern ar er heter or as arnas ernas "+
		"ornas es ades andes ens arens hetens erns at andet het ast", "s", "et")
	svNoEt  = suffixes("h iet uit fab cit dit alit ilit mit nit pit rit sit tit ivit kvit xit kom rak pak stak")
	svPair  = suffixes("dd gd nn dt gt kt tt")
	svOther = suffixes("lig ig els", "öst", "fullt")
)

// svEt reports whether an ending -et after w may go.
func svEt(w []rune) bool {
	n := len(w)
	if n < 3 || svVowel.has(w[n-1]) || !svVowel.has(w[n-2]) {
		return false
	}
	no, _ := svNoEt.find(w, 0)
	return no == 0
}

func swedish(w []rune) []rune {
	p1 := r1(svVowel, w)
	act, at := svMain.find(w, p1)
	switch act {
	case 1:
		w = w[:at]
	case 2:
		switch {
		case ends(w[:at], "et") && svEt(w[:at-2]):
			w = w[:at-2]
		case at > 0 && svS.has(w[at-1]):
			w = w[:at]
		}
	case 3:
		if svEt(w[:at]) {
			w = w[:at]
		}
	}
	if act, _ = svPair.find(w, p1); act != 0 {
		w = w[:len(w)-1]
	}
	act, at = svOther.find(w, p1)
	switch act {
	case 1:
		w = w[:at]
	case 2:
		if at > 0 && svOst.has(w[at-1]) {
			w = w[:len(w)-1]
		}
	case 3:
		w = w[:len(w)-1]
	}
	return w
}

var (
	noVowel = letters("aeêioòóôuyæåø")
	noS     = letters("bcdfghjlmnoptvyz")
	noMain  = suffixes("a e ede ande ende ane ene hetene en heten ar er heter as es edes endes enes hetenes ens hetens ets et het ast",
		"ers", "s", "erte ert")
	noErs   = suffixes("amm ast ind kap kk lt nk omm pp v øst", "giv hav skap")
	noOther = suffixes("leg eleg ig eig lig elig els lov elov slov hetslov")
)

func norwegian(w []rune) []rune {
	p1 := r1(noVowel, w)
	act, at := noMain.find(w, p1)
	switch act {
	case 1:
		w = w[:at]
	case 2:
		if keep, _ := noErs.find(w[:at], 0); keep != 1 {
			w = w[:at]
		}
	case 3:
		if at > 0 {
			c := w[at-1]
			if noS.has(c) || c == 'r' && !ends(w[:at-1], "e") || c == 'k' && at > 1 && !noVowel.has(w[at-2]) {
				w = w[:at]
			}
		}
	case 4:
		w = w[:at+2]
	}
	if n := len(w); n-2 >= p1 && (ends(w, "dt") || ends(w, "vt")) {
		w = w[:n-1]
	}
	if act, at = noOther.find(w, p1); act != 0 {
		w = w[:at]
	}
	return w
}
