package summa

import (
	summapb "github.com/weft-search/weft/api/summa"
)

// budget counts what one request has of everything that is bounded.
type budget struct {
	Limits
	nodes, clauses, texts, vectors int
}

// spend adds to a count and refuses what is past its limit.
func spend(count *int, n, most int, what string) error {
	if *count += n; *count > most {
		return invalid("%s must not exceed %d (got %d)", what, most, *count)
	}
	return nil
}

func (b *budget) text(bytes ...int) error {
	for _, n := range bytes {
		if err := spend(&b.texts, n, b.MaxQueryTextBytes, "Aggregate query text bytes"); err != nil {
			return err
		}
	}
	return nil
}

func (b *budget) field(name, what string) error {
	if len(name) > b.MaxFieldNameBytes {
		return invalid("%s must not exceed %d bytes", what, b.MaxFieldNameBytes)
	}
	return b.text(len(name))
}

// vector counts a vector of n elements of the given size.
func (b *budget) vector(n, size, most int, what string) error {
	if n > most {
		return invalid("%s must not exceed %d elements (got %d)", what, most, n)
	}
	return spend(&b.vectors, n*size, b.MaxTotalQueryVectorBytes, "Aggregate query vector bytes")
}

// query counts a tree. Clauses are visited from the last to the first, which decides what is refused first.
func (b *budget) query(q *summapb.Query, depth int) error {
	if depth > b.MaxQueryDepth {
		return invalid("Query nesting depth must not exceed %d", b.MaxQueryDepth)
	}
	if err := spend(&b.nodes, 1, b.MaxQueryNodes, "Query node count"); err != nil {
		return err
	}
	switch q := q.GetQuery().(type) {
	case *summapb.Query_Term:
		return b.leaf(q.Term.GetField(), "TermQuery.field", len(q.Term.GetTerm()), len(q.Term.GetTokenizerHint()))
	case *summapb.Query_Match:
		return b.leaf(q.Match.GetField(), "MatchQuery.field", len(q.Match.GetText()), len(q.Match.GetTokenizerHint()))
	case *summapb.Query_Phrase:
		return b.leaf(q.Phrase.GetField(), "PhraseQuery.field", len(q.Phrase.GetText()), len(q.Phrase.GetTokenizerHint()))
	case *summapb.Query_Prefix:
		return b.leaf(q.Prefix.GetField(), "PrefixQuery.field", len(q.Prefix.GetPrefix()))
	case *summapb.Query_Range:
		return b.field(q.Range.GetField(), "RangeQuery.field")
	case *summapb.Query_All:
		return nil
	case *summapb.Query_DenseVector:
		if err := b.field(q.DenseVector.GetField(), "DenseVectorQuery.field"); err != nil {
			return err
		}
		return b.vector(len(q.DenseVector.GetVector()), 4, b.MaxDenseQueryDims, "DenseVectorQuery.vector")
	case *summapb.Query_BinaryDenseVector:
		if err := b.field(q.BinaryDenseVector.GetField(), "BinaryDenseVectorQuery.field"); err != nil {
			return err
		}
		return b.vector(len(q.BinaryDenseVector.GetVector()), 1, b.MaxBinaryQueryBytes, "BinaryDenseVectorQuery.vector")
	case *summapb.Query_SparseVector:
		return b.sparse(q.SparseVector)
	case *summapb.Query_Boost:
		if q.Boost.GetQuery() == nil {
			return invalid("BoostQuery requires an inner query")
		}
		if err := b.more(1); err != nil {
			return err
		}
		return b.query(q.Boost.Query, depth+1)
	case *summapb.Query_Boolean:
		return b.boolean(q.Boolean, depth)
	case *summapb.Query_Fusion:
		return b.fusion(q.Fusion, depth)
	}
	return invalid("Query type is required")
}

func (b *budget) more(clauses int) error {
	return spend(&b.clauses, clauses, b.MaxQueryClauses, "Query clause count")
}

func (b *budget) leaf(field, what string, texts ...int) error {
	if err := b.field(field, what); err != nil {
		return err
	}
	return b.text(texts...)
}

func (b *budget) sparse(q *summapb.SparseVectorQuery) error {
	if cut := q.GetSeismicCut(); q != nil && q.SeismicCut != nil && (cut == 0 || cut > 64) {
		return invalid("Seismic cut must be in 1..=64")
	}
	if q != nil && q.SeismicFactor != nil && !(*q.SeismicFactor >= 0 && *q.SeismicFactor <= 1) {
		return invalid("Seismic factor must be in [0, 1]")
	}
	if err := b.leaf(q.GetField(), "SparseVectorQuery.field", len(q.GetText())); err != nil {
		return err
	}
	if err := b.vector(len(q.GetIndices()), 4, b.MaxSparseQueryDims, "SparseVectorQuery.indices"); err != nil {
		return err
	}
	return b.vector(len(q.GetValues()), 4, b.MaxSparseQueryDims, "SparseVectorQuery.values")
}

func (b *budget) boolean(q *summapb.BooleanQuery, depth int) error {
	n := len(q.GetMust()) + len(q.GetShould()) + len(q.GetMustNot())
	if n > b.MaxBooleanClauses {
		return invalid("Each BooleanQuery supports at most %d clauses (got %d)", b.MaxBooleanClauses, n)
	}
	if err := b.more(n); err != nil {
		return err
	}
	for _, list := range [...][]*summapb.Query{q.GetMustNot(), q.GetShould(), q.GetMust()} {
		if err := b.backwards(list, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (b *budget) backwards(list []*summapb.Query, depth int) error {
	for i := len(list) - 1; i >= 0; i-- {
		if err := b.query(list[i], depth); err != nil {
			return err
		}
	}
	return nil
}

func (b *budget) fusion(f *summapb.FusionQuery, depth int) error {
	if _, ok := summapb.FusionMethod_name[int32(f.GetMethod())]; !ok {
		return invalid("unknown fusion method")
	}
	if _, ok := summapb.MultiValueCombiner_name[int32(f.GetCombiner())]; !ok {
		return invalid("unknown fusion combiner")
	}
	switch {
	case depth != 1:
		return invalid("FusionQuery is only supported at the top level")
	case len(f.GetFilters()) > maxFusionFilters:
		return invalid("common fusion filters exceed %d clauses", maxFusionFilters)
	case len(f.GetQueries()) > maxFusionBranches:
		return invalid("FusionQuery supports at most %d sub-queries (got %d)", maxFusionBranches, len(f.GetQueries()))
	}
	if err := b.more(len(f.GetQueries()) + len(f.GetFilters())); err != nil {
		return err
	}
	for _, q := range f.GetQueries() {
		if len(q.GetName()) > maxBranchName {
			return invalid("fusion branch name exceeds %d bytes", maxBranchName)
		}
		if err := b.text(len(q.GetName())); err != nil {
			return err
		}
		if q.GetQuery() == nil {
			return invalid("Fusion sub-query is missing")
		}
	}
	for i := len(f.GetQueries()) - 1; i >= 0; i-- {
		if err := b.query(f.Queries[i].Query, depth+1); err != nil {
			return err
		}
	}
	return b.backwards(f.GetFilters(), depth+1)
}

func (b *budget) reranker(r *summapb.Reranker) error {
	if r == nil {
		return nil
	}
	if err := b.field(r.Field, "Reranker.field"); err != nil {
		return err
	}
	if err := b.vector(len(r.Vector), 4, b.MaxDenseQueryDims, "Reranker.vector"); err != nil {
		return err
	}
	return b.vector(len(r.BinaryVector), 1, b.MaxBinaryQueryBytes, "Reranker.binary_vector")
}
