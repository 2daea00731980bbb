package exec

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/text"
)

// UnknownField is what a field that an index does not have is taken for by a lenient request: a text field, as one is inferred from a
// string, that no document has a value in. Everything can be asked of it, and the form of its text is the likeliest.
func UnknownField(name string) schema.Field {
	return schema.Field{
		Name: name, Type: schema.Text, Tokenizer: unknownTokenizer, Indexed: true, Stored: true, Multi: true, Fast: true, Positions: schema.TokenPositions,
		K1: schema.DefaultK1, B: schema.DefaultB, Inferred: true,
	}
}

const unknownTokenizer = "standard"

// UnknownAnalyzer is the analyzer of an UnknownField.
var UnknownAnalyzer = sync.OnceValue(func() *text.Analyzer {
	a, err := text.Lookup(unknownTokenizer)
	if err != nil {
		panic(fmt.Sprintf("exec: the tokenizer of inferred fields: %v", err)) // it is a built-in one
	}
	return a
})

// unknown returns the number of a field that the index does not have, behind all that it has. No leaf has anything there. That a
// later field of the index gets the same number does no harm to sets in a FilterCache: a segment of today has nothing of that one either.
func (s *searcher) unknown(name string) int {
	sch := *s.schema
	if len(sch.Fields) == s.known {
		sch.Fields = slices.Clip(sch.Fields) // those of the index are not ours
	}
	sch.Fields = append(sch.Fields, UnknownField(name))
	s.schema = &sch
	return len(sch.Fields) - 1
}

// declared is the schema of the index.
func (s *searcher) declared() *schema.Schema {
	if len(s.schema.Fields) == s.known {
		return s.schema
	}
	sch := *s.schema
	sch.Fields = sch.Fields[:s.known:s.known]
	return &sch
}

// analyzer returns the analyzer of a text field.
func (s *searcher) analyzer(field int) *text.Analyzer {
	if field >= s.known {
		return UnknownAnalyzer()
	}
	return s.analyzers(field)
}
