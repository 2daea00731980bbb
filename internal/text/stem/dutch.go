package stem

var (
	nlE     = letters("eëéèê")
	nlAIOU  = letters("aäáàâiïíìîoöóòôuüúùû")
	nlAEIOU = letters("aäáàâeëéèêiïíìîoöóòôuüúùû")
	nlV     = letters("aäáàâeëéèêiïíìîoöóòôuüúùûy")
	nlVWX   = letters("aäáàâeëéèêiïíìîoöóòôuüúùûywx")
	nlAOU   = letters("aäáàâoöóòôuüúùû")
	nlEs    = letters("eéèê")

	nlStep1  = suffixes("'s", "s", "ies", "es", "és", "aus", "en", "nde")
	nlStep2  = suffixes("je", "ge", "lijke", "ische", "de", "te", "se", "re", "le", "ene", "ieve")
	nlStep3  = suffixes("atie", "iteit", "heid sel ster", "rder", "ing isme erij", "arij", "fie", "gie", "tst", "dst")
	nlStep4  = suffixes("ioneel", "atief", "baar", "naar", "laar", "raar", "tant", "lijker lijkst", "achtig achtiger achtigst", "eriger erigst erig end")
	nlStep4b = suffixes("iger igst ig")
	nlDouble = letters("bcdfghjklmnpqrstvwxz")
)

// A dutchWord is a word between the steps of the Dutch stemmer (Kraaij and Pohlmann).
type dutchWord struct {
	w      []rune
	p1, p2 int
}

// measure sets R1 and R2: after the first, and the second, group of vowels (ij is one) that a consonant follows.
func (d *dutchWord) measure() {
	w := d.w
	d.p1, d.p2 = len(w), len(w)
	i := 0
	for _, p := range [...]*int{&d.p1, &d.p2} {
		for i < len(w) && !nlV.has(w[i]) {
			i++
		}
		n := 0
		for i < len(w) && nlV.has(w[i]) {
			if w[i] == 'i' && i+1 < len(w) && w[i+1] == 'j' {
				i++
			}
			i++
			n++
		}
		if n == 0 || i >= len(w) {
			return
		}
		i++
		*p = i
	}
}

// vowelEnd and consonantEnd look at the last sound of w.
func nlVowelEnd(w []rune) bool {
	return len(w) > 0 && nlV.has(w[len(w)-1]) || ends(w, "ij")
}

func nlConsonantEnd(w []rune) bool {
	return len(w) > 0 && !ends(w, "ij") && !nlV.has(w[len(w)-1])
}

// lengthen doubles the vowel before the last consonant where spelling asks for it in a closed syllable.
func nlLengthen(w []rune) []rune {
	n := len(w)
	if n < 2 || nlVWX.has(w[n-1]) {
		return w
	}
	c, at := w[n-1], n-2 // at: the vowel
	switch {
	case ends(w[:n-1], "eë"):
		return append(w[:n-1], 'e', c)
	case ends(w[:n-1], "ië"):
		w[n-2] = 'e'
		return append(w[:n-1], 'e', c)
	case nlAOU.has(w[at]):
		if at > 0 && nlAEIOU.has(w[at-1]) {
			return w
		}
	case nlEs.has(w[at]):
		i := at
		if i > 0 {
			if nlAEIOU.has(w[i-1]) {
				return w
			}
			i--
		}
		if i > 0 && (nlAIOU.has(w[i-1]) || nlE.has(w[i-1]) && i == 1) {
			return w
		}
		if i > 2 && nlAIOU.has(w[i-2]) && !nlAEIOU.has(w[i-3]) {
			return w
		}
	default:
		return w
	}
	return append(w[:n-1], w[at], c)
}

func dutch(w []rune) []rune {
	d := &dutchWord{w: w}
	d.measure()
	stemmed := d.step1()
	stemmed = d.step2() || stemmed
	stemmed = d.step3() || stemmed
	stemmed = d.step4() || stemmed
	if d.losePrefix() {
		d.measure()
		stemmed = true
		d.step1c()
	}
	if d.loseInfix() {
		d.measure()
		stemmed = true
		d.step1c()
	}
	if n := len(d.w); n > 1 && d.w[n-1] == 't' && (d.w[n-2] == 'k' || d.w[n-2] == 'f' || d.w[n-2] == 'p') {
		d.w = d.w[:n-1]
		stemmed = true
	}
	if stemmed {
		d.step6()
	}
	return d.w
}

func (d *dutchWord) step1() bool {
	act, at := nlStep1.find(d.w, 0)
	w, s := d.w, d.w[:at]
	in1 := at >= d.p1
	switch act {
	case 1:
		d.w = s
		return true
	case 2:
		if in1 && !(ends(s, "t") && at-1 >= d.p1) && nlConsonantEnd(s) {
			d.w = s
			return true
		}
	case 3:
		if in1 {
			d.w = w[:len(w)-1]
			return true
		}
	case 4:
		n := at - 2
		switch {
		case ends(s, "ar") && n >= d.p1 && nlConsonantEnd(s[:n]):
			d.w = nlLengthen(s)
		case ends(s, "er") && n >= d.p1 && nlConsonantEnd(s[:n]):
			d.w = s
		case in1 && nlConsonantEnd(s):
			d.w = w[:at+1]
		default:
			return false
		}
		return true
	case 5:
		if in1 {
			d.w = w[:at+1]
			return true
		}
	case 6:
		if in1 && nlVowelEnd(s) {
			d.w = w[:at+2]
			return true
		}
	case 7:
		n := at - 1
		switch {
		case ends(s, "hed") && at-3 >= d.p1:
			d.w = put(s[:at-3], "heid")
		case ends(s, "nd"):
			d.w = s
		case ends(s, "d") && n >= d.p1 && nlConsonantEnd(s[:n]):
			d.w = s[:n]
		case n >= 0 && (s[n] == 'i' || s[n] == 'j') && nlVowelEnd(s[:n]):
			d.w = s
		case in1 && nlConsonantEnd(s):
			d.w = nlLengthen(s)
		default:
			return false
		}
		return true
	case 8:
		d.w = w[:at+2]
		return true
	}
	return false
}

func (d *dutchWord) step2() bool {
	act, at := nlStep2.find(d.w, 0)
	w, s := d.w, d.w[:at]
	in1 := at >= d.p1
	switch act {
	case 1: // diminutives
		switch n := at; {
		case ends(s, "'t"):
			d.w = s[:n-2]
		case ends(s, "et") && n-2 >= d.p1 && nlConsonantEnd(s[:n-2]):
			d.w = s[:n-2]
		case ends(s, "rnt"):
			d.w = s[:n-1]
		case ends(s, "t") && n-1 >= d.p1 && n >= 2 && nlVowelEnd(s[:n-2]):
			d.w = s[:n-1]
		case ends(s, "ink"):
			d.w = put(s[:n-1], "g")
		case ends(s, "mp"):
			d.w = s[:n-1]
		case ends(s, "'") && n-1 >= d.p1:
			d.w = s[:n-1]
		case in1 && nlConsonantEnd(s):
			d.w = s
		default:
			return false
		}
		return true
	case 2, 6, 7, 8: // ge te se re
		if in1 {
			d.w = w[:at+1]
			return true
		}
	case 3: // lijke
		if in1 {
			d.w = w[:len(w)-1]
			return true
		}
	case 4: // ische
		if in1 {
			d.w = w[:len(w)-1]
			return true
		}
	case 5: // de
		if in1 && nlConsonantEnd(s) {
			d.w = s
			return true
		}
	case 9: // le
		if in1 {
			d.w = nlLengthen(w[:at+1])
			return true
		}
	case 10: // ene
		if in1 && nlConsonantEnd(s) {
			d.w = nlLengthen(w[:at+2])
			return true
		}
	case 11: // ieve
		if in1 && nlConsonantEnd(s) {
			d.w = put(w[:at+2], "f")
			return true
		}
	}
	return false
}

func (d *dutchWord) step3() bool {
	act, at := nlStep3.find(d.w, 0)
	w, s := d.w, d.w[:at]
	in1, in2 := at >= d.p1, at >= d.p2
	switch act {
	case 1:
		if in1 {
			d.w = put(s, "eer")
			return true
		}
	case 2:
		if in1 {
			d.w = nlLengthen(s)
			return true
		}
	case 3:
		if in1 {
			d.w = s
			return true
		}
	case 4:
		d.w = put(s, "r")
		return true
	case 5:
		if ends(s, "ild") { // schilderij is no schild
			d.w = put(s, "er")
			return true
		}
		if in1 {
			d.w = nlLengthen(s)
			return true
		}
	case 6:
		if in1 && nlConsonantEnd(s) {
			d.w = put(s, "aar")
			return true
		}
	case 7, 8:
		if in2 {
			d.w = nlLengthen(w[:at+1])
			return true
		}
	case 9, 10:
		if in1 && nlConsonantEnd(s) {
			d.w = w[:at+1]
			return true
		}
	}
	return false
}

func (d *dutchWord) step4() bool {
	act, at := nlStep4.find(d.w, 0)
	w, s := d.w, d.w[:at]
	if at >= d.p1 {
		switch act {
		case 1:
			d.w = put(s, "ie")
			return true
		case 2:
			d.w = put(s, "eer")
			return true
		case 3, 9:
			d.w = s
			return true
		case 4, 5, 6:
			if nlVowelEnd(s) {
				d.w = w[:at+1]
				return true
			}
		case 7:
			d.w = put(s, "teer")
			return true
		case 8:
			d.w = w[:at+4]
			return true
		case 10:
			if nlConsonantEnd(s) {
				d.w = nlLengthen(s)
				return true
			}
		}
	}
	act, at = nlStep4b.find(d.w, 0)
	s = d.w[:at]
	if act != 0 && at >= d.p1 && !(at == 3 && ends(s, "inn")) && nlConsonantEnd(s) {
		d.w = nlLengthen(s)
		return true
	}
	return false
}

// nlTail reports whether a vowel group stands in w with something after it.
func nlTail(w []rune) bool {
	i := 0
	for i < len(w) && !nlV.has(w[i]) {
		i++
	}
	if i == len(w) {
		return false
	}
	for i < len(w) && nlV.has(w[i]) {
		if w[i] == 'i' && i+1 < len(w) && w[i+1] == 'j' {
			i++
		}
		i++
	}
	return i < len(w)
}

// cut removes ge at i and the diaeresis after it.
func (d *dutchWord) cutGe(i int) {
	w := d.w
	copy(w[i:], w[i+2:])
	w = w[:len(w)-2]
	switch w[i] {
	case 'ë':
		w[i] = 'e'
	case 'ï':
		w[i] = 'i'
	}
	d.w = w
}

func (d *dutchWord) losePrefix() bool {
	w := d.w
	if !starts(w, "ge") || len(w) < 5 || !nlTail(w[2:]) {
		return false
	}
	r := w[2:]
	switch {
	case starts(r, "vali"):
	case starts(r, "eft"), starts(r, "val"), starts(r, "vaa"), starts(r, "vare"):
		return false
	}
	d.cutGe(0)
	return true
}

func (d *dutchWord) loseInfix() bool {
	w := d.w
	for i := 1; i+1 < len(w); i++ {
		if w[i] == 'g' && w[i+1] == 'e' {
			if len(w) < i+5 || !nlTail(w[i+2:]) {
				return false
			}
			d.cutGe(i)
			return true
		}
	}
	return false
}

// step1c removes the -d or -t of a participle that lost its ge.
func (d *dutchWord) step1c() {
	n := len(d.w) - 1
	if n < 0 || n < d.p1 {
		return
	}
	s := d.w[:n]
	if !nlConsonantEnd(s) {
		return
	}
	switch d.w[n] {
	case 'd':
		switch {
		case ends(s, "n") && n-1 >= d.p1:
		case n == 2 && ends(s, "in"):
			d.w[n] = 'n'
		default:
			d.w = s
		}
	case 't':
		if !(ends(s, "h") && n-1 >= d.p1) && !(n == 2 && ends(s, "en")) {
			d.w = s
		}
	}
}

func (d *dutchWord) step6() {
	n := len(d.w)
	if n == 0 {
		return
	}
	c := d.w[n-1]
	switch {
	case n > 1 && d.w[n-2] == c && nlDouble.has(c):
		if c != 'n' || !(n == 3 && d.w[0] == 'i') {
			d.w = d.w[:n-1]
		}
	case c == 'v':
		d.w[n-1] = 'f'
	case c == 'z':
		d.w[n-1] = 's'
	}
}
