package stem

// LightVersion names the rules of Light.
const LightVersion = "light-1"

// Light returns the light stemmer of a language: it takes off the endings of inflection only, so that "operation" stays
// and "cells" becomes "cell". Where weft has no light rules for a language it returns nil: the words stay as they are.
func Light(code string) Func {
	return lightFuncs[code]
}

var lightFuncs = map[string]Func{
	"en": lightEnglish,
}

// lightEnglish takes the plural off (Harman's S-stemmer: How effective is suffixing?, JASIS 42, 1991).
func lightEnglish(_ *Buf, w []byte) []byte {
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
			out := make([]byte, n-2)
			copy(out, w)
			out[n-3] = 'y'
			return out
		case c == 'i' || c == 'a' || c == 'o' || c == 'e':
			return w
		}
	}
	return w[:n-1]
}
