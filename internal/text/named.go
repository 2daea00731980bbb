package text

import (
	"strings"

	"github.com/weft-search/weft/internal/text/stem"
)

// tablesVersion names the character tables: letters, case and normal forms are those of the Unicode version of Go and
// golang.org/x/text (15), word boundaries those of the segmenter (17, UAX #29).
const tablesVersion = "unicode-15.17"

// named holds the constructor of each plain tokenizer name.
var named = func() map[string]func() *Analyzer {
	plain := func(version string, f algorithm, normalize func(string) string) func() *Analyzer {
		return func() *Analyzer {
			return &Analyzer{version: version + "/" + tablesVersion, index: f, query: f, exact: f, normalize: normalize}
		}
	}
	m := map[string]func() *Analyzer{
		"simple":       plain("simple-1", simple, lowerString),
		"raw":          plain("raw-1", raw, func(s string) string { return s }),
		"raw_ci":       plain("raw_ci-1", rawCI, lowerString),
		"unicode_word": plain("unicode_word-1", unicodeWord, lowerString),
		"alnum":        plain("alnum-1", alnum, lowerString),
		"standard": func() *Analyzer {
			return &Analyzer{version: "standard-1/" + tablesVersion, index: standardIndex, query: standardQuery, exact: standardQuery, normalize: foldString}
		},
	}
	m["default"], m["lowercase"] = m["simple"], m["simple"]
	for _, l := range stem.Languages() {
		f := plain("stem-"+l.Code+"-1/"+stem.Version, stemmed(l.Stem, nil), lowerString)
		m[l.Code+"_stem"], m[l.Name] = f, f
		if stop := stopWords(l.Code); stop != nil && namedStop[l.Code] {
			m[l.Code+"_stop"] = plain("stop-"+l.Code+"-1", stemmed(nil, stop), lowerString)
			m[l.Code+"_stem_stop"] = plain("stem_stop-"+l.Code+"-1/"+stem.Version, stemmed(l.Stem, stop), lowerString)
		}
	}
	return m
}()

// namedStop holds the languages with xx_stop and xx_stem_stop tokenizers.
var namedStop = map[string]bool{"en": true, "de": true, "fr": true, "ru": true, "es": true}

func build(spec string) (*Analyzer, error) {
	if len(spec) > MaxSpecBytes {
		return nil, &SpecError{Spec: spec, Offset: MaxSpecBytes, Expected: "the end of the spec (at most 1024 bytes)", Found: "more"}
	}
	if l, ok, err := parseLex(spec); ok {
		if err != nil {
			return nil, err
		}
		return l.analyzer(spec), nil
	}
	f := named[spec]
	if f == nil {
		found := "an unknown name"
		if spec == "" {
			found = "nothing"
		}
		return nil, &SpecError{Spec: spec, Offset: 0, Expected: "lex(…) or one of " + strings.Join(Names(), ", "), Found: found}
	}
	a := f()
	a.name = spec
	return a, nil
}

// stemmed is simple followed by stop words (nil: none) and a stemmer (nil: none). A stop word is looked up as written, before stemming.
func stemmed(st stem.Func, stop *stopSet) algorithm {
	return func(s *Scratch, v string) {
		simple(s, v)
		n := 0
		for i := range s.toks {
			t := &s.toks[i]
			if stop != nil && stop.has(t.Text) {
				continue
			}
			text := t.Text
			if st != nil {
				// The text of t is this token's own memory: a stem that fits takes its place.
				switch w := st(&s.stem, text); {
				case len(w) == 0: // nothing but an ending: the word stands for itself
				case len(w) <= len(text):
					text = text[:copy(text, w)]
				default:
					text = s.keep(w)
				}
			}
			out := &s.toks[n]
			out.Text = text
			out.Pos, out.Start, out.End = t.Pos, t.Start, t.End
			n++
		}
		s.toks = s.toks[:n]
	}
}
