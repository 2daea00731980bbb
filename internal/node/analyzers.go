package node

import (
	"fmt"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/text"
)

// analyzerSet is the analyzers of one schema, by field.
type analyzerSet struct {
	schema *schema.Schema
	list   []*text.Analyzer
}

func (a *analyzerSet) of(field int) *text.Analyzer { return a.list[field] }

// analyzersOf returns the analyzers of a schema of the index. The set of the schema that was used last is kept: a schema is
// immutable, and a new generation takes the place of the old one.
func (i *index) analyzersOf(sch *schema.Schema) (exec.Analyzers, error) {
	if set := i.analyzers.Load(); set != nil && set.schema == sch {
		return set.of, nil
	}
	set := &analyzerSet{schema: sch, list: make([]*text.Analyzer, len(sch.Fields))}
	for k := range sch.Fields {
		if f := &sch.Fields[k]; f.Type == schema.Text {
			a, err := text.Lookup(f.Tokenizer)
			if err != nil {
				return nil, fmt.Errorf("analyzer of field %q: %w", f.Name, err)
			}
			set.list[k] = a
		}
	}
	i.analyzers.Store(set)
	return set.of, nil
}
