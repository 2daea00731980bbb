package stem

var (
	ruVowel   = letters("аеиоуыэюя")
	ruGerund  = suffixes("в вши вшись", "ив ивши ившись ыв ывши ывшись")
	ruAdj     = suffixes("ее ие ые ое ими ыми ей ий ый ой ем им ым ом его ого ему ому их ых ую юю ая яя ою ею")
	ruPart    = suffixes("ем нн вш ющ щ", "ивш ывш ующ")
	ruReflex  = suffixes("ся сь")
	ruVerb    = suffixes("ла на ете йте ли й л ем н ло но ет ют ны ть ешь нно", "ила ыла ена ейте уйте ите или ыли ей уй ил ыл им ым ен ило ыло ено ят ует уют ит ыт ены ить ыть ишь ую ю")
	ruNoun    = suffixes("а ев ов ие ье е иями ями ами еи ии и ией ей ой ий й иям ям ием ем ам ом о у ах иях ях ы ь ию ью ю ия ья я")
	ruDerive  = suffixes("ост ость")
	ruSuperl  = suffixes("ейш ейше", "н", "ь")
	ruBeforeA = letters("ая")
)

// russian. Every ending stands in RV, the part after the first vowel; ё is е.
func russian(w []rune) []rune {
	for i, c := range w {
		if c == 'ё' {
			w[i] = 'е'
		}
	}
	pv := ruVowel.past(w, 0, true)
	if pv < 0 {
		return w
	}
	_, p2 := ruVowel.regions(w, 0)

	// cut takes an ending off; one of the first group only after а or я.
	cut := func(t *table) bool {
		act, at := t.find(w, pv)
		if act == 0 || act == 1 && !(at-1 >= pv && ruBeforeA.has(w[at-1])) {
			return false
		}
		w = w[:at]
		return true
	}
	cutAny := func(t *table) bool {
		act, at := t.find(w, pv)
		w = w[:at]
		return act != 0
	}
	if !cut(ruGerund) {
		cutAny(ruReflex)
		if cutAny(ruAdj) {
			cut(ruPart)
		} else if !cut(ruVerb) {
			cutAny(ruNoun)
		}
	}
	if n := len(w) - 1; n >= pv && w[n] == 'и' {
		w = w[:n]
	}
	if act, at := ruDerive.find(w, pv); act != 0 && at >= p2 {
		w = w[:at]
	}
	act, at := ruSuperl.find(w, pv)
	switch act {
	case 1:
		w = w[:at]
		if n := len(w); n-2 >= pv && ends(w, "нн") {
			w = w[:n-1]
		}
	case 2:
		if at-1 >= pv && w[at-1] == 'н' {
			w = w[:at]
		}
	case 3:
		w = w[:at]
	}
	return w
}
