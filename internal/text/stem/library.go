package stem

import (
	"bytes"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	arabiclib "github.com/blevesearch/snowballstem/arabic"
	danishlib "github.com/blevesearch/snowballstem/danish"
	hungarianlib "github.com/blevesearch/snowballstem/hungarian"
	italianlib "github.com/blevesearch/snowballstem/italian"
	porterlib "github.com/blevesearch/snowballstem/porter"
	portugueselib "github.com/blevesearch/snowballstem/portuguese"
	romanianlib "github.com/blevesearch/snowballstem/romanian"
	spanishlib "github.com/blevesearch/snowballstem/spanish"
	tamillib "github.com/blevesearch/snowballstem/tamil"
	turkishlib "github.com/blevesearch/snowballstem/turkish"
)

// lib stems word with a function of the library.
func (b *Buf) lib(f func(*snowballstem.Env) bool, word []byte) []byte {
	// The library slices between characters and does not check: it must never see bytes that are no characters.
	if len(word) == 0 || len(word) > maxWord || !utf8.Valid(word) {
		return word
	}
	if b.env == nil {
		b.env = snowballstem.NewEnv("")
	}
	b.env.SetCurrent(string(word))
	f(b.env)
	b.out = append(b.out[:0], b.env.Current()...)
	return b.out
}

func arabic(b *Buf, w []byte) []byte     { return b.lib(arabiclib.Stem, w) }
func danish(b *Buf, w []byte) []byte     { return b.lib(danishlib.Stem, w) }
func hungarian(b *Buf, w []byte) []byte  { return b.lib(hungarianlib.Stem, w) }
func porter(b *Buf, w []byte) []byte     { return b.lib(porterlib.Stem, w) }
func portuguese(b *Buf, w []byte) []byte { return b.lib(portugueselib.Stem, w) }
func tamil(b *Buf, w []byte) []byte      { return b.lib(tamillib.Stem, w) }

// replace replaces each old by new in place; both are of two bytes.
func replace(w []byte, old, new string) {
	for i := 0; i+1 < len(w); i++ {
		if w[i] == old[0] && w[i+1] == old[1] {
			w[i], w[i+1] = new[0], new[1]
			i++
		}
	}
}

// own returns a copy of w in memory that the library does not use, so that rules can be applied before it.
func own(w []byte) []byte { return append(make([]byte, 0, 64), w...) }

// italian: since version 3 divano (sofa) is kept apart from diva. The region in which endings are removed begins after divan
// there, which makes a difference for these two words alone.
func italian(b *Buf, w []byte) []byte {
	switch string(w) {
	case "divano":
		return w[:5]
	case "divando":
		return w[:6]
	}
	return b.lib(italianlib.Stem, w)
}

// romanian: version 3 takes both the letters with cedilla, which the library knows, and those with comma, to which it stems.
func romanian(b *Buf, w []byte) []byte {
	if bytes.Contains(w, []byte("ș")) || bytes.Contains(w, []byte("ț")) {
		w = own(w)
		replace(w, "ș", "ş")
		replace(w, "ț", "ţ")
	}
	w = b.lib(romanianlib.Stem, w)
	if bytes.Contains(w, []byte("ş")) || bytes.Contains(w, []byte("ţ")) {
		w = own(w)
		replace(w, "ş", "ș")
		replace(w, "ţ", "ț")
	}
	return w
}

// spanish: since version 3 the endings -ación and -ución are known without their accent too.
func spanish(b *Buf, w []byte) []byte {
	if bytes.HasSuffix(w, []byte("acion")) || bytes.HasSuffix(w, []byte("ucion")) {
		w = append(own(w[:len(w)-2]), "ón"...)
	}
	return b.lib(spanishlib.Stem, w)
}

// turkish: an apostrophe divides a proper noun from its endings. Version 3 drops apostrophes before the word and cuts the word at the first
// one after its second letter.
func turkish(b *Buf, w []byte) []byte {
	if bytes.IndexByte(w, '\'') >= 0 {
		t := bytes.TrimLeft(w, "'")
		_, n := utf8.DecodeRune(t)
		_, m := utf8.DecodeRune(t[n:])
		if i := bytes.IndexByte(t[n+m:], '\''); i >= 0 {
			t = t[:n+m+i]
		}
		w = t
	}
	return b.lib(turkishlib.Stem, w)
}
