package summaquery_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	summapb "github.com/weft-search/weft/api/summa"
)

// TestScoresThatAreNotFiniteAreRefused asks for scores past what a float32 holds, of every kind of query that can make such.
func TestScoresThatAreNotFiniteAreRefused(t *testing.T) {
	doc := func(x string) string { // no vector is so long that its own similarity is infinite
		return textDoc("f", "a b") + textDoc("c", "a b") + ` fields {name: "v" value {dense_vector {values: ` + x + ` values: ` + x + `}}} fields {name: "v" value {dense_vector {values: ` + x + ` values: 0}}}` +
			` fields {name: "s" value {sparse_vector {indices: 1 indices: 2 values: ` + x + ` values: ` + x + `}}}`
	}
	ix := small(t, `field f: text<simple> [indexed<token_position>] field c: text<simple> [indexed<chunked, token_position>]
		field v: dense_vector<2> [indexed<flat>, stored<multi>] field s: sparse_vector [indexed<format: maxscore>]`, doc("1e18"), doc("1"), doc("-1e18"))
	const (
		all   = `all {}`
		term  = `term {field: "f" term: "a"}`
		dense = `dense_vector {field: "v" vector: [1, 1] combiner: COMBINER_SUM}`
	)
	boost := func(of string, by ...string) string {
		for _, b := range by {
			of = `boost {boost: ` + b + ` query {` + of + `}}`
		}
		return of
	}
	should := func(of ...string) string {
		return `boolean {should {` + strings.Join(of, `} should {`) + `}}`
	}
	branch := func(name, scope, query string) string {
		return ` queries {name: "` + name + `" scope: SCORE_SCOPE_` + scope + ` weight: 3e38 query {` + query + `}}`
	}
	formula := func(branches string) string {
		return `query {fusion {` + strings.ReplaceAll(branches, "weight: 3e38", "") + ` combiner: COMBINER_SUM}} l1 {formula: "a + b"}`
	}
	for name, text := range map[string]string{
		"a sum that is infinite less infinity": `query {` + should(boost(all, "3e38"), boost(all, "3e38"), boost(all, "-3e38", "3e38")) + `}`,
		"a boost of a boost":                   `query {` + boost(all, "3e38", "10") + `}`,
		"a boost that brings it back":          `query {` + boost(all, "3e38", "10", "1e-30") + `}`,
		"a sum within a sum":                   `query {` + should(boost(should(boost(term, "3e37"), boost(all, "3e38")), "5"), term) + `}`,
		"a required one":                       `query {boolean {must {` + boost(term, "3e38") + `} must {` + boost(term, "-3e38") + `} }}`,
		"a dense vector in a Boolean":          `query {` + should(term, boost(dense, "1e21")) + `}`,
		"a boosted vector":                     `query {` + boost(`dense_vector {field: "v" vector: [1, 0]}`, "3e38") + `}`,
		"a boosted sparse vector":              `query {` + boost(`sparse_vector {field: "s" indices: [1, 2] values: [1e10, 1e10]}`, "3e38") + `}`,
		"proximity":                            `query {match {field: "f" text: "a b" proximity_weight: 3e38}}`,
		"proximity in passages":                `query {` + boost(`match {field: "c" text: "a b" proximity_weight: 3e38}`, "100") + `}`,
		"a boost of passages":                  `query {` + boost(`match {field: "c" text: "a b"}`, "3e38", "3e38") + `}`,
		"clauses that nominate each":           `query {boolean {must {` + all + `} should {` + boost(`match {field: "c" text: "a"}`, "3e38") + `} should {` + boost(dense, "3e38") + `}}}`,
		"weights of a fusion":                  `query {fusion {method: FUSION_NORMALIZED_WEIGHTED_SUM ` + branch("a", "DOCUMENT", term) + branch("b", "DOCUMENT", all) + `}}`,
		"a branch of a formula":                formula(branch("a", "DOCUMENT", boost(dense, "3e38")) + branch("b", "DOCUMENT", term)),
		"the combiner of a formula":            formula(branch("a", "CHUNK", boost(`dense_vector {field: "v" vector: [1, 0]}`, "3e20")) + branch("b", "DOCUMENT", term)),
	} {
		_, err := search(t.Context(), ix, request(t, text))
		if err == nil || !strings.Contains(err.Error(), "InvalidArgument: Query error: ") || !strings.Contains(err.Error(), "non-finite score") && !strings.Contains(err.Error(), "beyond binary32") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, query := range map[string]string{
		"a large boost":    boost(term, "1e34"),
		"a negative one":   boost(all, "-3e37"),
		"one after a lack": boost(all, "3e37", "1e-37"),
		"large ones":       should(boost(all, "1e36"), boost(term, "-1e36")),
		"a dense vector":   `dense_vector {field: "v" vector: [1, 0]}`,
	} {
		resp, err := search(t.Context(), ix, request(t, `query {`+query+`}`))
		if err != nil || len(resp.Hits) != 3 {
			t.Errorf("%s: %d hits, %v", name, len(resp.GetHits()), err)
			continue
		}
		if !slices.IsSortedFunc(resp.Hits, func(a, b *summapb.SearchHit) int { return cmp.Compare(b.Score, a.Score) }) {
			t.Errorf("%s: hits do not stand by score", name)
		}
	}
}
