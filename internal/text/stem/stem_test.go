package stem

import (
	"bufio"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/corpus"
)

// pairs reads the vocabulary of a language.
func pairs(t testing.TB, name string, fn func(word, stem string)) {
	f, err := os.Open(filepath.Join(corpus.Dir(t, "snowball"), name+".tsv.gz"))
	if err != nil {
		t.Fatal(err)
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
