package stem

import "testing"

func TestLight(t *testing.T) {
	tests := []struct{ code, in, want string }{
		{"en", "cells", "cell"},
		{"en", "flies", "fly"},
		{"en", "boss", "boss"},
		{"en", "bus", "bus"},
		{"en", "membranes", "membrane"},
		{"en", "series", "sery"},
		{"en", "operation", "operation"},
		{"en", "is", "is"},
		{"en", "keepers", "keeper"},
		{"en", "aes", "aes"},
		{"fr", "chevaux", "cheval"},
		{"fr", "maisons", "maison"},
		{"fr", "recherches", "recherch"},
		{"fr", "études", "etud"},
		{"fr", "activement", "actif"},
		{"fr", "nourrissement", "nouri"},
		{"fr", "classificateur", "clasifi"},
		{"fr", "rédactrice", "redact"},
		{"de", "häuser", "haus"},
		{"de", "kinder", "kind"},
		{"de", "buches", "buch"},
		{"de", "stadt", "stadt"},
		{"de", "kindern", "kind"},
		{"es", "libros", "libr"},
		{"es", "luces", "luz"},
		{"es", "meses", "mes"},
		{"es", "sol", "sol"},
		{"it", "notizie", "notiz"},
		{"it", "amiche", "amic"},
		{"it", "casa", "casa"},
		{"pt", "animais", "animal"},
		{"pt", "corações", "coraca"},
		{"pt", "rapidamente", "rapid"},
		{"pt", "portuguesa", "portugues"},
		{"ru", "книгами", "книг"},
		{"ru", "домов", "дом"},
		{"ru", "длинный", "длин"},
		{"fi", "talossakin", "talo"},
		{"fi", "autot", "auto"},
		{"hu", "házakban", "haz"},
		{"hu", "könyvek", "konyv"},
		{"sv", "flickorna", "flick"},
		{"sv", "husets", "hus"},
		{"no", "bilene", "bil"},
		{"no", "frihetens", "fri"},
		{"ar", "الكتاب", "كتاب"},
		{"ar", "والكتابات", "كتاب"},
		{"ar", "و", "و"},
	}
	var b Buf
	for _, tt := range tests {
		if got := string(Light(tt.code)(&b, []byte(tt.in))); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.code, tt.in, got, tt.want)
		}
	}
	for _, code := range []string{"da", "nl", "el", "ro", "ta", "tr", "xx"} {
		if Light(code) != nil {
			t.Errorf("%s has a light stemmer", code)
		}
	}
}

func FuzzLight(f *testing.F) {
	for _, s := range []string{"", "s", "xx", "aux", "nnnnnn", "kkkkkk", "ооооо", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, word []byte) {
		var b Buf
		in := string(word)
		for code, fn := range lightFuncs {
			one := string(fn(&b, word))
			if string(word) != in {
				t.Fatalf("%s changed its input", code)
			}
			if len(one) > len(word)+4 {
				t.Fatalf("%s: %q is too long for %q", code, one, word)
			}
		}
	})
}
