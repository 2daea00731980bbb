package stem

import (
	"bufio"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shared returns the folder of data shared by the tests, or skips.
func shared(t testing.TB) string {
	if s := os.Getenv("WEFT_SHARED"); s != "" {
		return filepath.Join(s, "data")
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			d := filepath.Join(filepath.Dir(dir), "shared", "data")
			if _, err := os.Stat(d); err == nil {
				return d
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("no shared/data beside the repository and WEFT_SHARED is not set")
		}
		dir = up
	}
}

// pairs reads the vocabulary of a language.
func pairs(t testing.TB, name string, fn func(word, stem string)) {
	f, err := os.Open(filepath.Join(shared(t), "snowball", name+".tsv.gz"))
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for sc := bufio.NewScanner(z); sc.Scan(); {
		a, b, ok := strings.Cut(sc.Text(), "\t")
		if ok {
			fn(a, b)
		}
	}
}

func TestVocabularies(t *testing.T) {
	for _, l := range append(Languages(), Language{Name: "porter", Stem: Porter}) {
		if l.Code == "ar" || l.Code == "ta" {
			continue // no vocabulary is published with the data
		}
		t.Run(l.Name, func(t *testing.T) {
			var b Buf
			n, bad := 0, 0
			pairs(t, l.Name, func(word, want string) {
				n++
				if got := string(l.Stem(&b, []byte(word))); got != want {
					bad++
					if bad <= 25 {
						t.Errorf("%s: got %s, want %s", word, got, want)
					}
				}
			})
			if bad > 0 || n < 10000 {
				t.Errorf("%d of %d pairs differ", bad, n)
			}
		})
	}
}

func FuzzStem(f *testing.F) {
	for _, s := range []string{"", "a", "'", "running", "ge", "gegeven", "qu'", "ïï", "ß", "ααα", "ισα", "ki", "\xff", "e\u0301", "geïnd"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, word []byte) {
		var b Buf
		in := string(word)
		for _, l := range append(languages, Language{Stem: Porter}) {
			one := string(l.Stem(&b, word))
			if string(word) != in {
				t.Fatalf("%s changed its input", l.Name)
			}
			if two := string(l.Stem(new(Buf), word)); one != two {
				t.Fatalf("%s: %q, then %q", l.Name, one, two)
			}
			if len(one) > 2*len(word)+8 {
				t.Fatalf("%s: %q is too long for %q", l.Name, one, word)
			}
		}
	})
}
