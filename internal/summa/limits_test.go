package summa_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/summa"
)

func term(field, text string) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: field, Term: text}}}
}

func should(q ...*summapb.Query) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_Boolean{Boolean: &summapb.BooleanQuery{Should: q}}}
}

func boost(q *summapb.Query) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_Boost{Boost: &summapb.BoostQuery{Query: q, Boost: 1}}}
}

func dense(n int) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_DenseVector{DenseVector: &summapb.DenseVectorQuery{Field: "v", Vector: make([]float32, n)}}}
}

func bits(n int) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_BinaryDenseVector{BinaryDenseVector: &summapb.BinaryDenseVectorQuery{Field: "b", Vector: make([]byte, n)}}}
}

func sparse(indices, values int) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_SparseVector{SparseVector: &summapb.SparseVectorQuery{
		Field: "s", Indices: make([]uint32, indices), Values: make([]float32, values),
	}}}
}

func fusion(branches ...*summapb.WeightedQuery) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_Fusion{Fusion: &summapb.FusionQuery{Queries: branches}}}
}

func branches(n int, q *summapb.Query) []*summapb.WeightedQuery {
	out := make([]*summapb.WeightedQuery, n)
	for i := range out {
		out[i] = &summapb.WeightedQuery{Query: q, Name: fmt.Sprintf("b%d", i), Scope: summapb.ScoreScope_SCORE_SCOPE_DOCUMENT}
	}
	return out
}

func nested(n int) *summapb.Query {
	q := term("f", "x")
	for range n - 1 {
		q = boost(q)
	}
	return q
}

func search(q *summapb.Query, change ...func(*summapb.SearchRequest)) *summapb.SearchRequest {
	r := &summapb.SearchRequest{IndexName: "i", Query: q}
	for _, c := range change {
		c(r)
	}
	return r
}

// nodes makes a query of the given number of nodes that breaks no other limit.
func nodes(n int) *summapb.Query {
	var lists []*summapb.Query
	for n--; n > 0; {
		take := min(n-1, 100)
		if take <= 0 {
			lists = append(lists, term("f", "x"))
			break
		}
		lists = append(lists, should(slices.Repeat([]*summapb.Query{term("f", "x")}, take)...))
		n -= take + 1
	}
	return should(lists...)
}

// limitCase makes requests by a number that a limit bounds.
type limitCase struct {
	name string
	make func(n int) *summapb.SearchRequest
	most int
	text string // of the refusal one past it
}

func limitCases() []limitCase {
	x := strings.Repeat
	return []limitCase{
		{"depth", func(n int) *summapb.SearchRequest { return search(nested(n)) }, 32, "Query nesting depth must not exceed 32"},
		{"nodes", func(n int) *summapb.SearchRequest { return search(nodes(n)) }, 256, "Query node count must not exceed 256 (got 257)"},
		{"boolean", func(n int) *summapb.SearchRequest {
			return search(should(slices.Repeat([]*summapb.Query{term("f", "x")}, n)...))
		}, 128, "Each BooleanQuery supports at most 128 clauses (got 129)"},
		{"term", func(n int) *summapb.SearchRequest { return search(term("f", x("t", n-1))) }, 65_536, "Aggregate query text bytes must not exceed 65536 (got 65537)"},
		{"match", func(n int) *summapb.SearchRequest {
			return search(&summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: "f", Text: x("t", n-3), TokenizerHint: "en"}}})
		}, 65_536, "Aggregate query text bytes must not exceed 65536 (got 65537)"},
		{"phrase", func(n int) *summapb.SearchRequest {
			return search(&summapb.Query{Query: &summapb.Query_Phrase{Phrase: &summapb.PhraseQuery{Field: "f", Text: x("t", n-1)}}})
		}, 65_536, "Aggregate query text bytes must not exceed 65536 (got 65537)"},
		{"prefix", func(n int) *summapb.SearchRequest {
			return search(&summapb.Query{Query: &summapb.Query_Prefix{Prefix: &summapb.PrefixQuery{Field: "f", Prefix: x("t", n-1)}}})
		}, 65_536, "Aggregate query text bytes must not exceed 65536 (got 65537)"},
		{"names of branches", func(n int) *summapb.SearchRequest {
			return search(fusion(&summapb.WeightedQuery{Name: "abc", Query: term("f", x("t", n-4))}))
		}, 65_536, "Aggregate query text bytes must not exceed 65536 (got 65537)"},
		{"field of a range", func(n int) *summapb.SearchRequest {
			return search(&summapb.Query{Query: &summapb.Query_Range{Range: &summapb.RangeQuery{Field: x("f", n)}}})
		}, 255, "RangeQuery.field must not exceed 255 bytes"},
		{"field of a term", func(n int) *summapb.SearchRequest { return search(term(x("f", n), "x")) }, 255, "TermQuery.field must not exceed 255 bytes"},
		{"field of a reranker", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.Reranker = &summapb.Reranker{Field: x("f", n)} })
		}, 255, "Reranker.field must not exceed 255 bytes"},
		{"index name", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.IndexName = x("i", n) })
		}, 255, "index_name must contain 1..=255 bytes"},
		{"dense", func(n int) *summapb.SearchRequest { return search(dense(n)) }, 65_536, "DenseVectorQuery.vector must not exceed 65536 elements (got 65537)"},
		{"sparse indices", func(n int) *summapb.SearchRequest { return search(sparse(n, 0)) }, 4096, "SparseVectorQuery.indices must not exceed 4096 elements (got 4097)"},
		{"sparse values", func(n int) *summapb.SearchRequest { return search(sparse(0, n)) }, 4096, "SparseVectorQuery.values must not exceed 4096 elements (got 4097)"},
		{"binary", func(n int) *summapb.SearchRequest { return search(bits(n)) }, 256 << 10, "BinaryDenseVectorQuery.vector must not exceed 262144 elements (got 262145)"},
		{"reranker", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.Reranker = &summapb.Reranker{Vector: make([]float32, n)} })
		}, 65_536, "Reranker.vector must not exceed 65536 elements (got 65537)"},
		{"reranker of bits", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.Reranker = &summapb.Reranker{BinaryVector: make([]byte, n)} })
		}, 256 << 10, "Reranker.binary_vector must not exceed 262144 elements (got 262145)"},
		{"vectors together", func(n int) *summapb.SearchRequest {
			return search(should(bits(n-(1<<20)), dense(65_536), dense(65_536), dense(65_536)), func(r *summapb.SearchRequest) {
				r.Reranker = &summapb.Reranker{Vector: make([]float32, 65_536)}
			})
		}, 1 << 20, "Aggregate query vector bytes must not exceed 1048576 (got 1048577)"},
		{"fields", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.FieldsToLoad = make([]string, n) })
		}, 64, "SearchRequest.fields_to_load supports at most 64 names (got 65)"},
		{"name of a field", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.FieldsToLoad = []string{"a", x("f", n)} })
		}, 255, "SearchRequest.fields_to_load[1] must not exceed 255 bytes"},
		{"limit", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.Limit = uint32(n) })
		}, 10_000, "SearchRequest.limit must not exceed 10000 (got 10001)"},
		{"window", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.Limit, r.Offset = 7, uint32(n-7) })
		}, 50_000, "SearchRequest.offset + limit must not exceed 50000 (got 49994 + 7 = 50001)"},
		{"window with the limit left out", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.Offset = uint32(n - 10) })
		}, 50_000, "SearchRequest.offset + limit must not exceed 50000 (got 49991 + 10 = 50001)"},
		{"candidates", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.Limit, r.CandidateLimit = 8, uint32(n) })
		}, 16, "SearchRequest.candidate_limit must not exceed 16 (got 17)"},
		{"candidates of a wide window", func(n int) *summapb.SearchRequest {
			return search(term("f", "x"), func(r *summapb.SearchRequest) { r.Limit, r.Offset, r.CandidateLimit = 10_000, 20_000, uint32(n) })
		}, 50_000, "SearchRequest.candidate_limit must not exceed 50000 (got 50001)"},
		{"branches", func(n int) *summapb.SearchRequest { return search(fusion(branches(n, term("f", "x"))...)) }, 16, "FusionQuery supports at most 16 sub-queries (got 17)"},
		{"filters", func(n int) *summapb.SearchRequest {
			q := fusion(branches(1, term("f", "x"))...)
			q.GetFusion().Filters = slices.Repeat([]*summapb.Query{term("f", "x")}, n)
			return search(q)
		}, 64, "common fusion filters exceed 64 clauses"},
		{"name of a branch", func(n int) *summapb.SearchRequest {
			return search(fusion(&summapb.WeightedQuery{Name: x("n", n), Query: term("f", "x")}))
		}, 128, "fusion branch name exceeds 128 bytes"},
		{"passages of an export", func(n int) *summapb.SearchRequest {
			return search(fusion(branches(1, term("f", "x"))...), func(r *summapb.SearchRequest) {
				r.ScoreExport = &summapb.ScoreExport{PassagesPerDocument: uint32(n)}
			})
		}, 65_536, "score_export passages_per_document exceeds 65536"},
		{"depth of a fusion", func(n int) *summapb.SearchRequest {
			q := fusion(branches(1, term("f", "x"))...)
			q.GetFusion().CandidateDepth = uint32(n)
			return search(q, func(r *summapb.SearchRequest) { r.Limit, r.L1 = 8, &summapb.L1Ranking{Formula: "b0"} })
		}, 16, "fusion candidate_depth exceeds 16"},
		{"seismic cut", func(n int) *summapb.SearchRequest {
			q := sparse(1, 1)
			q.GetSparseVector().SeismicCut = proto.Uint32(uint32(n))
			return search(q)
		}, 64, "Seismic cut must be in 1..=64"},
	}
}

// TestLimits asks each limit at its bound, which passes, and one past it.
func TestLimits(t *testing.T) {
	for _, c := range limitCases() {
		var l summa.Limits
		if _, err := l.CheckSearch(c.make(c.most)); err != nil {
			t.Errorf("%s: %d is refused: %v", c.name, c.most, err)
		}
		_, err := l.CheckSearch(c.make(c.most + 1))
		want(t, fmt.Sprintf("%s: %d", c.name, c.most+1), err, codes.InvalidArgument, c.text)
	}
}

func want(t *testing.T, name string, err error, code codes.Code, text string) {
	t.Helper()
	var e *summa.Error
	if !errors.As(err, &e) || e.Code != code || e.Text != text {
		t.Errorf("%s:\n got %v\nwant %s %s", name, err, code, text)
	}
}

// Limits that others hide, or that are met by several values together.
func TestLimitsBehindOthers(t *testing.T) {
	all := &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}
	many := func(n int) *summapb.SearchRequest {
		return search(should(should(slices.Repeat([]*summapb.Query{all}, n/2-1)...), should(slices.Repeat([]*summapb.Query{all}, n-n/2-1)...)))
	}
	wide := summa.Limits{MaxQueryNodes: 10_000, MaxBooleanClauses: 10_000}
	if _, err := wide.CheckSearch(many(512)); err != nil {
		t.Error(err)
	}
	_, err := wide.CheckSearch(many(513))
	want(t, "clauses", err, codes.InvalidArgument, "Query clause count must not exceed 512 (got 513)")

	names := func(last int) *summapb.SearchRequest {
		return search(all, func(r *summapb.SearchRequest) {
			r.FieldsToLoad = append(slices.Repeat([]string{strings.Repeat("f", 255)}, 63), strings.Repeat("f", last))
		})
	}
	short := summa.Limits{MaxFieldsToLoadNameBytes: 63*255 + 100}
	if _, err := short.CheckSearch(names(100)); err != nil {
		t.Error(err)
	}
	_, err = short.CheckSearch(names(101))
	want(t, "names", err, codes.InvalidArgument, "SearchRequest.fields_to_load names must total at most 16165 bytes (got 16166)")

	slots := func(n int, candidates uint32) *summapb.SearchRequest {
		return search(fusion(branches(n, all)...), func(r *summapb.SearchRequest) { r.Limit, r.CandidateLimit = 10_000, candidates })
	}
	var l summa.Limits
	if w, err := l.CheckSearch(slots(16, 12_500)); err != nil || w.Depth != 12_500 {
		t.Error(w, err)
	}
	_, err = l.CheckSearch(slots(16, 12_501))
	want(t, "slots", err, codes.InvalidArgument, "FusionQuery candidate budget must not exceed 200000 (candidate_limit 12501 x 16 sub-queries = 200016)")

	stats := func(q *summapb.Query) error {
		return l.CheckTextStats(&summapb.GetTextStatsRequest{IndexName: "i", Query: q})
	}
	if err := stats(should(slices.Repeat([]*summapb.Query{all}, 255)...)); err != nil {
		t.Error(err)
	}
	want(t, "statistics", stats(should(slices.Repeat([]*summapb.Query{all}, 256)...)), codes.InvalidArgument, "Query node count must not exceed 256 (got 257)")
	want(t, "statistics of no index", l.CheckTextStats(&summapb.GetTextStatsRequest{}), codes.InvalidArgument, "index_name must contain 1..=255 bytes")
	want(t, "statistics of no query", stats(nil), codes.InvalidArgument, "query is required")

	for n, wantErr := range map[int]bool{256: false, 257: true} {
		if err := l.CheckTokens("MatchQuery", n); (err != nil) != wantErr {
			t.Errorf("%d tokens: %v", n, err)
		}
	}
	for n, wantErr := range map[int]bool{192 << 20: false, 192<<20 + 1: true} {
		if err := l.CheckResponse(n); (err != nil) != wantErr {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	want(t, "response", l.CheckResponse(192<<20+1), codes.InvalidArgument, "Search response exceeds the 201326592-byte hydration budget; request fewer hits or fields")
}

// What a search has to keep to beside the limits, in the texts of the contract.
func TestRefusedSearches(t *testing.T) {
	x := term("f", "x")
	two := func(change ...func(*summapb.SearchRequest, *summapb.FusionQuery)) *summapb.SearchRequest {
		r := search(fusion(branches(2, x)...))
		for _, c := range change {
			c(r, r.Query.GetFusion())
		}
		return r
	}
	type req = summapb.SearchRequest
	type fus = summapb.FusionQuery
	l1 := func(f string) func(*req, *fus) { return func(r *req, _ *fus) { r.L1 = &summapb.L1Ranking{Formula: f} } }
	export := func(r *req, _ *fus) { r.ScoreExport = &summapb.ScoreExport{} }
	for text, r := range map[string]*summapb.SearchRequest{
		"Query is required":                                                                       search(nil),
		"Query type is required":                                                                  search(&summapb.Query{}),
		"BoostQuery requires an inner query":                                                      search(boost(nil)),
		"FusionQuery is only supported at the top level":                                          search(boost(fusion(branches(1, x)...))),
		"FusionQuery requires at least one sub-query":                                             search(fusion()),
		"Fusion sub-query is missing":                                                             search(fusion(&summapb.WeightedQuery{})),
		"unknown fusion method":                                                                   two(func(_ *req, f *fus) { f.Method = 9 }),
		"unknown fusion combiner":                                                                 two(func(_ *req, f *fus) { f.Combiner = 9 }),
		"FusionQuery.rrf_k must be finite and non-negative (got inf)":                             two(func(_ *req, f *fus) { f.RrfK = float32(math.Inf(1)) }),
		"FusionQuery.queries[1].weight must be finite and non-negative (got -0.5)":                two(func(_ *req, f *fus) { f.Queries[1].Weight = -0.5 }),
		"SearchRequest.candidate_limit must be at least offset + limit (10)":                      two(func(r *req, _ *fus) { r.CandidateLimit = 9 }),
		"candidate_depth/score_only require l1 or score_export":                                   two(func(_ *req, f *fus) { f.CandidateDepth = 1 }),
		"l1/score_export require named fusion branches":                                           search(x, func(r *req) { r.ScoreExport = &summapb.ScoreExport{} }),
		"l1/score_export require unique, nonempty branch names":                                   two(export, func(_ *req, f *fus) { f.Queries[1].Name = "b0" }),
		"l1/score_export require explicit document/chunk scopes":                                  two(export, func(_ *req, f *fus) { f.Queries[1].Scope = 7 }),
		"at least one branch must nominate candidates":                                            two(export, func(_ *req, f *fus) { f.Queries[0].ScoreOnly, f.Queries[1].ScoreOnly = true, true }),
		"too many fusion branches":                                                                search(fusion(branches(17, x)...), func(r *req) { r.ScoreExport = &summapb.ScoreExport{} }),
		"l1/score_export require complete scoring; time_budget_ms must be unset":                  two(export, func(r *req, _ *fus) { r.TimeBudgetMs = 1 }),
		"export-only requests require offset=0 and no reranker":                                   two(export, func(r *req, _ *fus) { r.Reranker = &summapb.Reranker{} }),
		"seed_document_passages requires backfill and a chunk-scoped feature":                     two(export, func(r *req, _ *fus) { r.ScoreExport.SeedDocumentPassages = true }),
		"all_passages diagnostics require backfill":                                               two(export, l1("b0"), func(r *req, _ *fus) { r.L1.Backfill, r.ScoreExport.AllPassages = proto.Bool(false), true }),
		"l1 directly determines ranking; legacy fusion weights/method/rrf_k must be unset":        two(l1("b0"), func(_ *req, f *fus) { f.Queries[0].Weight = 1 }),
		"Query error: l1.formula references unknown branch 'zz'":                                  two(l1("b0+zz")),
		"Query error: l1 missing value 'zz' needs a formula variable and finite raw default":      two(l1("b0"), func(r *req, _ *fus) { r.L1.MissingValues = map[string]float64{"zz": 1} }),
		"l1 missing defaults exceed branch/name limits":                                           two(l1("b0"), func(r *req, _ *fus) { r.L1.MissingValues = map[string]float64{strings.Repeat("z", 129): 1} }),
		"Query error: L1 formula produced a non-finite score (domain error or overflow)":          two(l1("1/0")),
		"diagnostic branch names exceed 128 bytes":                                                two(func(r *req, f *fus) { r.Tracing, f.Queries[0].Name = true, strings.Repeat("n", 129) }),
		"RRF diagnostics require top-level fusion and complete nomination without time_budget_ms": search(x, func(r *req) { r.IncludeRrfScores = true }),
		"candidate export requires offset=0, complete nomination, no reranker and no score_only branches without score_export": two(func(r *req, f *fus) {
			f.Method, r.Offset = summapb.FusionMethod_FUSION_CANDIDATES, 1
		}),
	} {
		_, err := summa.Limits{}.CheckSearch(r)
		want(t, text, err, codes.InvalidArgument, text)
	}
	w, err := summa.Limits{}.CheckSearch(two(l1("b0+2*b1+rrf"), func(r *req, _ *fus) { r.Offset = 5 }))
	if err != nil || w.Limit != 10 || w.Hits() != 15 || w.Candidates != 15 || w.Depth != 15 || w.Formula == nil || !w.Formula.UsesRRF() {
		t.Errorf("%+v %v", w, err)
	}
}

func TestIndexNames(t *testing.T) {
	for _, good := range []string{"a", "A-b_c.9", "_x", strings.Repeat("i", 255)} {
		if err := summa.CheckIndexName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, text := range map[string]string{
		"": "Index name must not be empty", strings.Repeat("i", 256): "Index name must not exceed 255 characters",
		"a..b": `Index name must not contain '/', '\', or '..'`, "a/b": `Index name must not contain '/', '\', or '..'`, `a\b`: `Index name must not contain '/', '\', or '..'`,
		".a": "Index name must not start with '.' or '-'", "-a": "Index name must not start with '.' or '-'",
		"a b": "Index name must contain only alphanumeric characters, hyphens, underscores, or dots", "é": "Index name must contain only alphanumeric characters, hyphens, underscores, or dots",
	} {
		want(t, bad, summa.CheckIndexName(bad), codes.InvalidArgument, text)
	}
}

func TestMutationBounds(t *testing.T) {
	keys := func(n, size int) *summapb.DeleteDocumentsRequest {
		return &summapb.DeleteDocumentsRequest{PrimaryKeys: slices.Repeat([]string{strings.Repeat("k", size)}, n)}
	}
	for _, r := range []*summapb.DeleteDocumentsRequest{keys(0, 0), keys(100_000, 1), keys(8, 1<<20)} {
		if err := summa.CheckDelete(r); err != nil {
			t.Error(err)
		}
	}
	for _, r := range []*summapb.DeleteDocumentsRequest{keys(100_001, 0), keys(1, 8<<20+1)} {
		want(t, "delete", summa.CheckDelete(r), codes.ResourceExhausted, "deletion request exceeds 100000 keys or 8 MiB of key bytes")
	}
	docs := func(n int) *summapb.UpsertDocumentsRequest {
		return &summapb.UpsertDocumentsRequest{Documents: slices.Repeat([]*summapb.NamedDocument{{}}, n)}
	}
	if err := summa.CheckUpsert(docs(1000)); err != nil {
		t.Error(err)
	}
	want(t, "upsert", summa.CheckUpsert(docs(1001)), codes.ResourceExhausted, "upsert request exceeds 1000 documents or 32 MiB encoded bytes")
	// What counts is the request as it is encoded, and one document may be longer than several.
	sized := func(docs, bytes int) *summapb.UpsertDocumentsRequest {
		r := &summapb.UpsertDocumentsRequest{IndexName: "i", Documents: make([]*summapb.NamedDocument, docs)}
		for i := range r.Documents {
			r.Documents[i] = &summapb.NamedDocument{}
		}
		text := &summapb.FieldValue_Text{}
		r.Documents[0].Fields = []*summapb.FieldEntry{{Name: "t", Value: &summapb.FieldValue{Value: text}}}
		text.Text = strings.Repeat("t", bytes-3*docs-64)
		text.Text += strings.Repeat("t", bytes-proto.Size(r))
		if n := proto.Size(r); n != bytes {
			t.Fatalf("%d bytes, want %d", n, bytes)
		}
		return r
	}
	for _, c := range []struct{ docs, most int }{{2, 32 << 20}, {1000, 32 << 20}, {1, 200 << 20}} {
		if err := summa.CheckUpsert(sized(c.docs, c.most)); err != nil {
			t.Errorf("%d documents of %d bytes: %v", c.docs, c.most, err)
		}
		want(t, "upsert", summa.CheckUpsert(sized(c.docs, c.most+1)), codes.ResourceExhausted, "upsert request exceeds 1000 documents or 32 MiB encoded bytes")
	}
	for n, bad := range map[int]bool{0: true, 1: false, 65_536: false, 65_537: true} {
		if got := summa.DeleteKeyFault(strings.Repeat("k", n)); (got != "") != bad {
			t.Errorf("key of %d bytes: %q", n, got)
		}
	}
	want(t, "no key", summa.NoPrimaryKey(), codes.FailedPrecondition, "document mutations require a primary-key schema")
	want(t, "there", summa.IndexExists("a"), codes.AlreadyExists, "Index 'a' already exists")
	if got := summa.DuplicateKey("k"); got != "Duplicate primary key: k" {
		t.Error(got)
	}
}

func TestAddresses(t *testing.T) {
	for given, id := range map[string]string{
		"1": strings.Repeat("0", 31) + "1", "AbC": strings.Repeat("0", 29) + "abc",
		strings.Repeat("f", 32): strings.Repeat("f", 32), "00" + strings.Repeat("f", 32): strings.Repeat("f", 32),
	} {
		got, doc, err := summa.CheckAddress(&summapb.DocAddress{SegmentId: given, DocId: 7})
		if err != nil || got != id || doc != 7 {
			t.Errorf("%s: %s %d %v", given, got, doc, err)
		}
	}
	for _, bad := range []string{"", "g", "0x1", "1 ", strings.Repeat("1", 33)} {
		_, _, err := summa.CheckAddress(&summapb.DocAddress{SegmentId: bad})
		want(t, bad, err, codes.InvalidArgument, "Invalid segment_id: "+bad)
	}
	_, _, err := summa.CheckAddress(nil)
	want(t, "none", err, codes.InvalidArgument, "address is required")
}

// An Error is the status of a call, also when it is wrapped.
func TestErrorsAreStatuses(t *testing.T) {
	err := fmt.Errorf("while searching: %w", summa.NoIndex("x"))
	if s, ok := status.FromError(err); !ok || s.Code() != codes.NotFound || !strings.Contains(s.Message(), "Index 'x' not found") {
		t.Errorf("%v %v", s, ok)
	}
	if s := summa.NoIndex("x").GRPCStatus(); s.Message() != "Index 'x' not found" {
		t.Error(s)
	}
}

// past are requests past a limit, each as large as it can be.
func past() map[string]*summapb.SearchRequest {
	deep := search(nested(5_000))
	wide := search(should(slices.Repeat([]*summapb.Query{should(slices.Repeat([]*summapb.Query{term("f", "x")}, 120)...)}, 120)...))
	vectors := search(should(slices.Repeat([]*summapb.Query{dense(65_536)}, 120)...))
	fields := search(term("f", "x"), func(r *summapb.SearchRequest) { r.FieldsToLoad = make([]string, 100_000) })
	return map[string]*summapb.SearchRequest{"deep": deep, "wide": wide, "vectors": vectors, "fields": fields}
}

// A refusal allocates its text and nothing that grows with the request.
func TestRefusalsAreCheap(t *testing.T) {
	for _, c := range limitCases() {
		r := c.make(7 * c.most)
		var err error
		n := testing.AllocsPerRun(5, func() { _, err = summa.Limits{}.CheckSearch(r) })
		most := 8.0
		if r.L1 != nil {
			most = 40 // the formula, of 4,096 bytes at most, is read before
		}
		if err == nil || n > most {
			t.Errorf("%s: %v with %v allocations", c.name, err, n)
		}
	}
	for name, r := range past() {
		var err error
		if n := testing.AllocsPerRun(10, func() { _, err = summa.Limits{}.CheckSearch(r) }); err == nil || n > 8 {
			t.Errorf("%s: %v with %v allocations", name, err, n)
		}
	}
	good := search(nodes(256))
	if n := testing.AllocsPerRun(10, func() { _, _ = summa.Limits{}.CheckSearch(good) }); n > 0 {
		t.Errorf("a good search allocates %v times", n)
	}
}

func BenchmarkCheckSearch(b *testing.B) {
	all := past()
	all["good"] = search(nodes(256))
	for name, r := range all {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := summa.Limits{}.CheckSearch(r)
				if (err == nil) != (name == "good") {
					b.Fatal(err)
				}
			}
		})
	}
}
