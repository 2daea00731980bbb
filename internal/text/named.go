package text

import "strings"

// tablesVersion names the character tables: letters, case and white space are those of the Unicode version of Go's unicode package.
const tablesVersion = "unicode-15"

// named holds the constructor of each plain tokenizer name.
var named = map[string]func() *Analyzer{
	"simple":    newSimple,
	"default":   newSimple,
	"lowercase": newSimple,
	"alnum": func() *Analyzer {
		return &Analyzer{version: "alnum-1/" + tablesVersion, index: alnum, query: alnum, normalize: strings.ToLower}
	},
}

func newSimple() *Analyzer {
	return &Analyzer{version: "simple-1/" + tablesVersion, index: simple, query: simple, normalize: strings.ToLower}
}

func build(spec string) (*Analyzer, error) {
	if len(spec) > MaxSpecBytes {
		return nil, &SpecError{Spec: spec, Offset: MaxSpecBytes, Expected: "at most 1024 bytes", Found: "a longer spec"}
	}
	f := named[spec]
	if f == nil {
		return nil, &SpecError{Spec: spec, Offset: 0, Expected: "one of " + strings.Join(Names(), ", "), Found: "an unknown name"}
	}
	a := f()
	a.name = spec
	return a, nil
}
