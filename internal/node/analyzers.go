package node

import (
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
)

// analyzerSet is the analyzers of one schema, by field.
type analyzerSet struct {
	schema *schema.Schema
	of     exec.Analyzers
}

// analyzersOf returns the analyzers of a schema of the index. The set of the schema that was used last is kept: a schema is
// immutable, and a new generation takes the place of the old one.
func (i *index) analyzersOf(sch *schema.Schema) (exec.Analyzers, error) {
	if set := i.analyzers.Load(); set != nil && set.schema == sch {
		return set.of, nil
	}
	of, err := exec.NewAnalyzers(sch)
	if err != nil {
		return nil, err
	}
	i.analyzers.Store(&analyzerSet{schema: sch, of: of})
	return of, nil
}
