package stem

var (
	elVowel = letters("αεηιουω")
	elV2    = letters("αεηιοω") // without υ
)

// elFold takes accents off and lower-cases. That ϊ and ΐ become η is the published algorithm (Ϊ becomes ι there).
var elFold = func() map[rune]rune {
	m := make(map[rune]rune)
	from := []rune("ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩΪΫάέήίόύώΐΰϊϋΆΈΉΊΌΎΏς")
	to := []rune("αβγδεζηθικλμνξοπρστυφχψωιυαεηιουωηυηυαεηιουωσ")
	for i := range from {
		m[from[i]] = to[i]
	}
	return m
}()

// An elRule takes an ending off and may put one back, depending on what is left.
type elRule struct {
	endings *table // what goes; nil: the rule has a part of its own in the code
	// If the rest is one of whole's words, or ends in one of suffix's, or in a letter of vowel, the string of that group is added.
	vowel    *group
	vowelAdd string
	suffix   *table
	sufAdd   [3]string
	whole    *table
	wholeAdd [3]string
	keep     bool // the ending does not count for step 6
}

// apply applies the rule and reports whether an ending went.
func (r *elRule) apply(w []rune) ([]rune, bool) {
	act, at := r.endings.find(w, 0)
	if act == 0 {
		return w, false
	}
	w = w[:at]
	if r.vowel != nil && at > 0 && r.vowel.has(w[at-1]) {
		return put(w, r.vowelAdd), true
	}
	if r.suffix != nil {
		if a, _ := r.suffix.find(w, 0); a != 0 {
			return put(w, r.sufAdd[a]), true
		}
	}
	if r.whole != nil {
		if a := r.whole.whole(w); a != 0 {
			return put(w, r.wholeAdd[a]), true
		}
	}
	return w, true
}

var (
	elStep1 = suffixes("φαγια φαγιου φαγιων", "σκαγια σκαγιου σκαγιων", "ολογιου ολογια ολογιων", "σογιου σογια σογιων",
		"τατογια τατογιου τατογιων", "κρεασ κρεατοσ κρεατα κρεατων", "περασ περατοσ περατη περατα περατων",
		"τερασ τερατοσ τερατα τερατων", "φωσ φωτοσ φωτα φωτων", "καθεστωσ καθεστωτοσ καθεστωτα καθεστωτων",
		"γεγονοσ γεγονοτοσ γεγονοτα γεγονοτων")
	elStep1Put = [...]string{"", "φα", "σκα", "ολο", "σο", "τατο", "κρε", "περ", "τερ", "φω", "καθεστ", "γεγον"}

	elS1 = elRule{
		endings: suffixes("ιζα ιζεσ ιζε ιζαμε ιζατε ιζαν ιζανε ιζω ιζεισ ιζει ιζουμε ιζετε ιζουν ιζουνε"),
		whole: suffixes("αναμπα εμπα επα ξαναπα πα περιπα αθρο συναθρο δανε",
			"μαρκ κορν αμπαρ αρρ βαθυρι βαρκ β βολβορ γκρ γλυκορ γλυκυρ ιμπ λ λου μαρ μ πρ μπρ πολυρ π ρ πιπερορ"),
		wholeAdd: [3]string{"", "ι", "ιζ"},
	}
	elS2 = elRule{
		endings:  suffixes("ωθηκα ωθηκεσ ωθηκε ωθηκαμε ωθηκατε ωθηκαν ωθηκανε"),
		whole:    suffixes("αλ βι εν υψ λι ζω σ χ"),
		wholeAdd: [3]string{"", "ων"},
	}
	elS3 = elRule{
		endings: suffixes("ισα ισεσ ισε ισαμε ισατε ισαν ισανε"),
		whole: suffixes("αναμπα αθρο εμπα εσε εσωκλε επα ξαναπα επε περιπα συναθρο δανε κλε χαρτοπα εξαρχα μετεπε αποκλε απεκλε εκλε πε",
			"αν αφ γε γιγαντοαφ γκε δημοκρατ κομ γκ μ π πουκαμ ολο λαρ"),
		wholeAdd: [3]string{"", "ι", "ισ"},
	}
	elS4 = elRule{
		endings: suffixes("ισω ισεισ ισει ισουμε ισετε ισουν ισουνε"),
		whole: suffixes("αναμπα εμπα εσε εσωκλε επα ξαναπα επε περιπα αθρο συναθρο δανε κλε χαρτοπα εξαρχα μετεπε αποκλε απεκλε " +
			"εκλε πε"),
		wholeAdd: [3]string{"", "ι"},
	}
	elS5 = elRule{
		endings: suffixes("ιστοσ ιστου ιστο ιστε ιστοι ιστων ιστουσ ιστη ιστησ ιστα ιστεσ"),
		whole: suffixes("δανε συναθρο κλε σε εσωκλε ασε πλε",
			"μ π απ αρ ηδ κτ σκ σχ υψ φα χρ χτ ακτ αορ ασχ ατα αχν αχτ γεμ γυρ εμπ ευπ εχθ ηφα καθ κακ κυλ λυγ μακ μεγ ταχ φιλ χωρ"),
		wholeAdd: [3]string{"", "ι", "ιστ"},
	}
	elS6 = elRule{
		endings:  suffixes("ισμο ισμοι ισμοσ ισμου ισμουσ ισμων"),
		whole:    suffixes("σε μετασε μικροσε εγκλε αποκλε", "δανε αντιδανε"),
		wholeAdd: [3]string{"", "ισμ", "ι"},
	}
	elS6Tail = suffixes("αγνωστικ ατομικ γνωστικ εθνικ εκλεκτικ σκεπτικ τοπικ αλεξανδριν βυζαντιν θεατριν")
	elS7     = elRule{
		endings:  suffixes("αρακι αρακια ουδακι ουδακια"),
		whole:    suffixes("σ χ"),
		wholeAdd: [3]string{"", "αρακ"},
	}
	elS8 = elRule{
		endings: suffixes("ακι ακια ιτσα ιτσασ ιτσεσ ιτσων αρακι αρακια"),
		whole: suffixes("βαμβ βρ καιμ κον κορ λαβρ λουλ μερ μουστ ναγκασ πλ ρ ρυ σ σκ σοκ σπαν τζ φαρμ χ καπακ αλισφ αμβρ ανθρ κ φυλ "+
			"κατραπ κλιμ μαλ σλοβ φ σφ τσεχοσλοβ",
			"β βαλ γιαν γλ ζ ηγουμεν καρδ μακρυν νυφ πατερ π τοσ τριπολ"),
		wholeAdd: [3]string{"", "ακ", "ιτσ"},
	}
	elS9 = elRule{
		endings:  suffixes("ιδιο ιδια ιδιων"),
		suffix:   suffixes("ε παιχν"),
		sufAdd:   [3]string{"", "ιδ"},
		whole:    suffixes("αιφν ιρ ολο ψαλ"),
		wholeAdd: [3]string{"", "ιδ"},
	}
	elS10 = elRule{
		endings:  suffixes("ισκοσ ισκου ισκο ισκε"),
		whole:    suffixes("δ ιβ μην ρ φραγκ λυκ οβελ"),
		wholeAdd: [3]string{"", "ισκ"},
	}
	el2aEndings = suffixes("αδεσ αδων")
	el2aKeep    = suffixes("οκ μαμ μαν μπαμπ πατερ γιαγι νταντ κυρ θει πεθερ")
	el2b        = elRule{
		endings: suffixes("εδεσ εδων"),
		suffix:  suffixes("οπ ιπ εμπ υπ γηπ δαπ κρασπ μιλ"),
		sufAdd:  [3]string{"", "εδ"},
		keep:    true,
	}
	el2c = elRule{
		endings: suffixes("ουδεσ ουδων"),
		suffix:  suffixes("αρκ καλιακ πεταλ λιχ πλεξ σκ σ φλ φρ βελ λουλ χν σπ τραγ φε"),
		sufAdd:  [3]string{"", "ουδ"},
		keep:    true,
	}
	el2d = elRule{
		endings:  suffixes("εωσ εων"),
		whole:    suffixes("θ δ ελ γαλ ν π ιδ παρ"),
		wholeAdd: [3]string{"", "ε"},
	}
	el3 = elRule{endings: suffixes("ια ιου ιων"), vowel: elVowel, vowelAdd: "ι"}
	el4 = elRule{
		endings: suffixes("ικα ικο ικου ικων"),
		vowel:   elVowel, vowelAdd: "ικ",
		whole: suffixes("αλ αδ ενδ αμαν αμμοχαλ ηθ ανηθ αντιδ φυσ βρωμ γερ εξωδ καλπ καλλιν καταδ μουλ μπαν μπαγιατ μπολ μποσ νιτ ξικ " +
			"συνομηλ πετσ πιτσ πικαντ πλιατσ ποστελν πρωτοδ σερτ συναδ τσαμ υποδ φιλον φυλοδ χασ"),
		wholeAdd: [3]string{"", "ικ"},
	}
	el5aFirst = elRule{endings: suffixes("αγαμε ησαμε ουσαμε ηκαμε ηθηκαμε")}
	el5a      = elRule{
		endings:  suffixes("αμε"),
		whole:    suffixes("αναπ αποθ αποκ αποστ βουβ ξεθ ουλ πεθ πικρ ποτ σιχ χ"),
		wholeAdd: [3]string{"", "αμ"},
	}
	el5bFirst = elRule{
		endings:  suffixes("αγανε ησανε ουσανε ιοντανε ιοτανε ιουντανε οντανε οτανε ουντανε ηκανε ηθηκανε"),
		whole:    suffixes("τρ τσ"),
		wholeAdd: [3]string{"", "αγαν"},
	}
	el5b = elRule{
		endings: suffixes("ανε"),
		vowel:   elV2, vowelAdd: "αν",
		whole: suffixes("βετερ βουλκ βραχμ γ δραδουμ θ καλπουζ καστελ κορμορ λαοπλ μωαμεθ μ μουσουλμ ν ουλ π πελεκ πλ πολισ πορτολ " +
			"σαρακατσ σουλτ τσαρλατ ορφ τσιγγ τσοπ φωτοστεφ χ ψυχοπλ αγ γαλ γερ δεκ διπλ αμερικαν ουρ πιθ πουριτ σ ζωντ ικ καστ κοπ λιχ " +
			"λουθηρ μαιντ μελ σιγ σπ στεγ τραγ τσαγ φ ερ αδαπ αθιγγ αμηχ ανικ ανοργ απηγ απιθ ατσιγγ βασ βασκ βαθυγαλ βιομηχ βραχυκ διατ " +
			"διαφ ενοργ θυσ καπνοβιομηχ καταγαλ κλιβ κοιλαρφ λιβ μεγλοβιομηχ μικροβιομηχ νταβ ξηροκλιβ ολιγοδαμ ολογαλ πενταρφ περηφ " +
			"περιτρ πλατ πολυδαπ πολυμηχ στεφ ταβ τετ υπερηφ υποκοπ χαμηλοδαπ ψηλοταβ"),
		wholeAdd: [3]string{"", "αν"},
	}
	el5cFirst = elRule{endings: suffixes("ησετε")}
	el5c      = elRule{
		endings: suffixes("ετε"),
		vowel:   elV2, vowelAdd: "ετ",
		suffix: suffixes("οδ αιρ φορ ταθ διαθ σχ ενδ ευρ τιθ υπερθ ραθ ενθ ροθ σθ πυρ αιν συνδ συν συνθ χωρ πον βρ καθ ευθ εκθ νετ ρον αρκ " +
			"βαρ βολ ωφελ"),
		sufAdd:   [3]string{"", "ετ"},
		whole:    suffixes("αβαρ βεν εναρ αβρ αδ αθ αν απλ βαρον ντρ σκ κοπ μπορ νιφ παγ παρακαλ σερπ σκελ συρφ τοκ υ δ εμ θαρρ θ"),
		wholeAdd: [3]string{"", "ετ"},
	}
	el5d = elRule{
		endings:  suffixes("οντασ ωντασ"),
		suffix:   suffixes("κρε"),
		sufAdd:   [3]string{"", "ωντ"},
		whole:    suffixes("αρχ"),
		wholeAdd: [3]string{"", "οντ"},
	}
	el5e      = elRule{endings: suffixes("ομαστε ιομαστε"), whole: suffixes("ον"), wholeAdd: [3]string{"", "ομαστ"}}
	el5fFirst = elRule{
		endings:  suffixes("ιεστε"),
		whole:    suffixes("π απ συμπ ασυμπ ακαταπ αμεταμφ"),
		wholeAdd: [3]string{"", "ιεστ"},
	}
	el5f = elRule{
		endings:  suffixes("εστε"),
		whole:    suffixes("αλ αρ εκτελ ζ μ ξ παρακαλ προ νισ"),
		wholeAdd: [3]string{"", "ιεστ"},
	}
	el5gFirst = elRule{endings: suffixes("ηθηκα ηθηκεσ ηθηκε")}
	el5g      = elRule{
		endings:  suffixes("ηκα ηκεσ ηκε"),
		suffix:   suffixes("σκωλ σκουλ ναρθ σφ οθ πιθ"),
		sufAdd:   [3]string{"", "ηκ"},
		whole:    suffixes("διαθ θ παρακαταθ προσθ συνθ"),
		wholeAdd: [3]string{"", "ηκ"},
	}
	el5h = elRule{
		endings: suffixes("ουσα ουσεσ ουσε"),
		suffix:  suffixes("ποδαρ βλεπ πανταχ φρυδ μαντιλ μαλλ κυματ λαχ ληγ φαγ ομ πρωτ"),
		sufAdd:  [3]string{"", "ουσ"},
		whole: suffixes("φαρμακ χαδ αγκ αναρρ βρομ εκλιπ λαμπιδ λεχ μ πατ ρ λ μεδ μεσαζ υποτειν αμ αιθ ανηκ δεσποζ ενδιαφερ δε δευτερευ " +
			"καθαρευ πλε τσα"),
		wholeAdd: [3]string{"", "ουσ"},
	}
	el5i = elRule{
		endings: suffixes("αγα αγεσ αγε"),
		suffix:  suffixes("ψοφ ναυλοχ", "κολλ οφ πελ χορτ λλ σφ ρπ φρ πρ λοχ σμην"),
		sufAdd:  [3]string{"", "", "αγ"},
		whole: suffixes("αβαστ πολυφ αδηφ παμφ ρ ασπ αφ αμαλ αμαλλι ανυστ απερ ασπαρ αχαρ δερβεν δροσοπ ξεφ νεοπ νομοτ ολοπ ομοτ προστ " +
			"προσωποπ συμπ συντ τ υποτ χαρ αειπ αιμοστ ανυπ αποτ αρτιπ διατ εν επιτ κροκαλοπ σιδηροπ λ ναυ ουλαμ ουρ π τρ μ"),
		wholeAdd: [3]string{"", "αγ"},
	}
	el5j = elRule{
		endings:  suffixes("ησε ησου ησα"),
		whole:    suffixes("ν χερσον δωδεκαν ερημον μεγαλον επταν"),
		wholeAdd: [3]string{"", "ησ"},
	}
	el5k = elRule{
		endings:  suffixes("ηστε"),
		whole:    suffixes("ασβ σβ αχρ χρ απλ αειμν δυσχρ ευχρ κοινοχρ παλιμψ"),
		wholeAdd: [3]string{"", "ηστ"},
	}
	el5l = elRule{
		endings:  suffixes("ουνε ησουνε ηθουνε"),
		whole:    suffixes("ν ρ σπι στραβομουτσ κακομουτσ εξων"),
		wholeAdd: [3]string{"", "ουν"},
	}
	el5m = elRule{
		endings:  suffixes("ουμε ησουμε ηθουμε"),
		whole:    suffixes("παρασουσ φ χ ωριοπλ αζ αλλοσουσ ασουσ"),
		wholeAdd: [3]string{"", "ουμ"},
	}
	el6Ma = suffixes("ματα ματων ματοσ")
	el6   = suffixes("α αγατε αγαν αει αμαι αν ασ ασαι αται αω ε ει εισ ειτε εσαι εσ εται ι ιεμαι ιεμαστε ιεται ιεσαι ιεσαστε ιομασταν " +
		"ιομουν ιομουνα ιονταν ιοντουσαν ιοσασταν ιοσαστε ιοσουν ιοσουνα ιοταν ιουμα ιουμαστε ιουνται ιουνταν η ηδεσ ηδων ηθει ηθεισ " +
		"ηθειτε ηθηκατε ηθηκαν ηθουν ηθω ηκατε ηκαν ησ ησαν ησατε ησει ησεσ ησουν ησω ο οι ομαι ομασταν ομουν ομουνα ονται ονταν " +
		"οντουσαν οσ οσασταν οσαστε οσουν οσουνα οταν ου ουμαι ουμαστε ουν ουνται ουνταν ουσ ουσαν ουσατε υ υσ ω ων")
	el7 = suffixes("εστερ εστατ οτερ οτατ υτερ υτατ ωτερ ωτατ")
)

// greek is the stemmer of Ntais, with the rules of Saroukos. Σ is σ everywhere, accents are gone.
func greek(w []rune) []rune {
	for i, c := range w {
		if f, ok := elFold[c]; ok {
			w[i] = f
		}
	}
	if len(w) < 3 {
		return w
	}
	plain := true // no rule but those of step 6 has taken an ending
	do := func(r *elRule) bool {
		var ok bool
		w, ok = r.apply(w)
		if ok && !r.keep {
			plain = false
		}
		return ok
	}

	if act, at := elStep1.find(w, 0); act != 0 {
		w = put(w[:at], elStep1Put[act])
		plain = false
	}
	do(&elS1)
	do(&elS2)
	if equal(w, []rune("ισα")) {
		w = w[:2]
	} else {
		do(&elS3)
	}
	do(&elS4)
	do(&elS5)
	if n := len(w); do(&elS6) && elS6.whole.whole(w[:min(n, len(w))]) == 0 {
		if act, _ := elS6Tail.find(w, 0); act != 0 {
			w = w[:len(w)-2]
		}
	}
	do(&elS7)
	if act, at := elS8.endings.find(w, 0); act != 0 {
		kor := at > 3 && ends(w[:at], "κορ")
		do(&elS8)
		if kor {
			w = put(w, "ιτσ")
		}
	}
	do(&elS9)
	do(&elS10)
	if act, at := el2aEndings.find(w, 0); act != 0 {
		w = w[:at]
		if k, _ := el2aKeep.find(w, 0); k == 0 {
			w = put(w, "αδ")
		}
	}
	do(&el2b)
	do(&el2c)
	do(&el2d)
	do(&el3)
	do(&el4)
	if equal(w, []rune("αγαμε")) {
		w = w[:4]
	}
	do(&el5aFirst)
	do(&el5a)
	do(&el5bFirst)
	do(&el5b)
	do(&el5cFirst)
	do(&el5c)
	do(&el5d)
	do(&el5e)
	do(&el5fFirst)
	do(&el5f)
	do(&el5gFirst)
	do(&el5g)
	do(&el5h)
	do(&el5j)
	do(&el5i)
	do(&el5k)
	do(&el5l)
	do(&el5m)

	if act, at := el6Ma.find(w, 0); act != 0 {
		w = w[:at+2]
	}
	if plain {
		if act, at := el6.find(w, 0); act != 0 {
			w = w[:at]
		}
	}
	if act, at := el7.find(w, 0); act != 0 {
		w = w[:at]
	}
	return w
}
