package coordinate_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// branches are n branches of a fusion.
func branches(n int, more string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "queries {query {all {}} name: \"b%d\" scope: SCORE_SCOPE_DOCUMENT %s} ", i, more)
	}
	return b.String()
}

func fusion(inside string) string { return "query {fusion {" + inside + "}} " }

// TestRefusals has every refusal of the contract, and of two that hold for a request the one that comes first.
func TestRefusals(t *testing.T) {
	two := fusion(branches(2, ""))
	l1 := `l1 {formula: "b0"} `
	const (
		window     = "coordinator result window exceeds 10000"
		notFusion  = "coordinator ranking requires FusionQuery"
		count      = "fusion requires 1..16 branches"
		complete   = "coordinator fusion requires complete scoring without a legacy reranker"
		weights    = "fusion weights and rank constant must be finite and nonnegative"
		candidates = "candidate_limit must cover the requested window within the engine candidate bound"
		budget     = "combined shard nomination budget exceeded"
		scoreOnly  = "score_only requires feature backfill"
		union      = "per-shard branch union exceeds the 10000-document response window"
		rrfUnion   = "RRF L1 requires a complete shard union within 10000 documents"
		rows       = "score export exceeds 65536 passages per document"
		seeding    = "seed_document_passages requires backfill and a chunk-scoped feature"
		all        = "all_passages diagnostics require backfill"
		legacy     = "l1 directly determines ranking; legacy fusion weights/method/rrf_k must be unset"
		names      = "L1 branches need unique names and explicit document/chunk scope"
		missing    = "L1 missing defaults exceed the 16-branch bound"
		long       = "diagnostic branch names exceed 128 bytes"
	)
	var defaults strings.Builder
	for i := range 17 {
		fmt.Fprintf(&defaults, `missing_values {key: "b%d" value: 1} `, i)
	}
	chunk := `queries {query {all {}} name: "p" scope: SCORE_SCOPE_CHUNK} `
	for _, c := range []struct {
		request string
		shards  int
		want    string
	}{
		{"query {fusion {" + branches(1, "") + "}} limit: 10000", 1, ""},
		{two + "limit: 10000 offset: 1", 1, window},
		{two + "limit: 4294967295 offset: 4294967295", 1, window},
		{"query {all {}} tracing: true offset: 9991", 1, window}, // limit 0 is 10
		{"query {all {}} tracing: true offset: 9990", 1, ""},
		{"tracing: true", 1, ""},
		{"query {all {}} include_rrf_scores: true", 1, notFusion},
		{"query {all {}} include_rrf_scores: true offset: 9991", 1, window},
		{"query {all {}} include_rrf_scores: true tracing: true", 1, notFusion},
		{"query {all {}} " + l1, 1, notFusion},
		{"query {all {}} score_export {} tracing: true", 1, notFusion},
		{l1, 1, notFusion},
		{"query {all {}} tracing: true candidate_limit: 9", 1, candidates},
		{"query {all {}} tracing: true candidate_limit: 21", 1, candidates},
		{"query {all {}} tracing: true candidate_limit: 20 time_budget_ms: 5", 1, ""},
		{fusion(""), 1, count},
		{fusion(branches(17, "")), 1, count},
		{fusion(branches(17, "weight: -1")) + "time_budget_ms: 1", 1, count},
		{fusion(branches(16, "")), 1, ""},
		{two + "time_budget_ms: 1", 1, complete},
		{fusion(branches(2, "weight: -1")) + "time_budget_ms: 1", 1, complete},
		{two + "reranker {} " + l1, 1, complete},
		{two + "reranker {} tracing: true " + l1, 1, complete},
		{two + "reranker {} include_rrf_scores: true", 1, ""},
		{two + "reranker {} tracing: true", 1, ""},
		{fusion(branches(1, "weight: -1")), 1, weights},
		{fusion(branches(1, "weight: nan")), 1, weights},
		{fusion(branches(1, "weight: inf")), 1, weights},
		{fusion(branches(1, "") + "rrf_k: -1"), 1, weights},
		{fusion(branches(1, "") + "rrf_k: nan"), 1, weights},
		{fusion(branches(1, "") + "rrf_k: inf"), 1, weights},
		{fusion(branches(1, "weight: -1")) + "candidate_limit: 9", 1, weights},
		{two + "candidate_limit: 9", 1, candidates},
		{two + "candidate_limit: 21", 1, candidates},
		{two + "candidate_limit: 10", 1, ""},
		{two + "candidate_limit: 20", 1, ""},
		{two + "offset: 5 candidate_limit: 14", 1, candidates},
		{fusion(branches(2, "") + "candidate_depth: 21"), 1, budget},
		{fusion(branches(2, "") + "candidate_depth: 20"), 1, ""},
		{fusion(branches(2, "") + "candidate_depth: 4294967295"), 1, budget},
		{fusion(branches(2, "score_only: true")), 1, budget},
		{fusion(branches(2, "score_only: true")) + "candidate_limit: 9", 1, candidates},
		{fusion(branches(2, "")) + "limit: 5000", 20, ""},
		{fusion(branches(2, "")) + "limit: 5000", 21, budget},
		{fusion(branches(1, "")+`queries {query {all {}} score_only: true}`) + "limit: 10", 1, scoreOnly},
		{fusion(branches(1, "")+`queries {query {all {}} score_only: true}`) + "limit: 10 tracing: true", 1, scoreOnly},
		{fusion(branches(1, "")+`queries {query {all {}} score_only: true}`) + "score_export {} tracing: true", 1, ""},
		{two + "limit: 5001", 1, union},
		{two + "limit: 5000", 1, ""},
		{fusion(branches(2, "")+"method: FUSION_CANDIDATES") + "limit: 5001 tracing: true", 1, ""},
		{two + "limit: 5001 " + `l1 {formula: "rrf"}`, 1, rrfUnion},
		{two + "limit: 5001 " + l1, 1, ""},
		{two + "score_export {passages_per_document: 65537} " + l1, 1, rows},
		{two + "score_export {passages_per_document: 65536} " + l1, 1, ""},
		{two + "score_export {passages_per_document: 65537} limit: 5001 " + `l1 {formula: "rrf"}`, 1, rrfUnion},
		{two + "score_export {passages_per_document: 65537 seed_document_passages: true} " + l1, 1, rows},
		{two + "score_export {seed_document_passages: true} " + l1, 1, seeding},
		{fusion(branches(1, "")+chunk) + "score_export {seed_document_passages: true} " + l1, 1, ""},
		{fusion(branches(1, "")+chunk) + "score_export {seed_document_passages: true} " + `l1 {formula: "b0" backfill: false}`, 1, seeding},
		{two + "score_export {all_passages: true} " + `l1 {formula: "b0" backfill: false}`, 1, all},
		{two + "score_export {all_passages: true} " + l1, 1, ""},
		{fusion(branches(1, "weight: 2")) + "score_export {all_passages: true} " + `l1 {formula: "b0" backfill: false}`, 1, all},
		{fusion(branches(1, "weight: 1")) + l1, 1, legacy},
		{fusion(branches(1, "")+"rrf_k: 60") + l1, 1, legacy},
		{fusion(branches(1, "")+"method: FUSION_CANDIDATES") + l1, 1, legacy},
		{fusion(branches(1, "")+"method: FUSION_NORMALIZED_WEIGHTED_SUM") + l1, 1, legacy},
		{fusion(`queries {query {all {}} name: "b0" weight: 1}`) + l1, 1, legacy},
		{fusion(`queries {query {all {}} name: "b0"}`) + l1, 1, names},
		{fusion(`queries {query {all {}} scope: SCORE_SCOPE_CHUNK}`) + l1, 1, names},
		{fusion(branches(1, "")+branches(1, "")) + l1, 1, names},
		{fusion(`queries {query {all {}} name: "a b" scope: SCORE_SCOPE_CHUNK}`) + `l1 {formula: "+"}`, 1, names},
		{fusion(`queries {query {all {}} name: "b0" scope: 7}`) + l1, 1, names},
		{fusion(branches(1, "")+`queries {query {all {}} name: "rrf" scope: SCORE_SCOPE_CHUNK}`) + l1, 1, names},
		{two + `l1 {formula: "+" ` + defaults.String() + "}", 1, missing},
		{two + `l1 {formula: "b0" missing_values {key: "` + strings.Repeat("n", 129) + `" value: 1}}`, 1, missing},
		{two + `l1 {formula: "b0+"}`, 1, "Query error: invalid l1.formula: at byte 3: expected a value, found the end"},
		{two + `l1 {formula: "b0+x"}`, 1, "Query error: l1.formula references unknown branch 'x'"},
		{two + `l1 {formula: "b0" missing_values {key: "b1" value: 1}}`, 1, "Query error: l1 missing value 'b1' needs a formula variable and finite raw default"},
		{two + `l1 {formula: "b0" missing_values {key: "b0" value: inf}}`, 1, "Query error: l1 missing value 'b0' needs a formula variable and finite raw default"},
		{two + `l1 {formula: "rrf" missing_values {key: "rrf" value: 1}}`, 1, "Query error: l1 missing value 'rrf' needs a formula variable and finite raw default"},
		{two + `l1 {formula: "1/0"}`, 1, "Query error: L1 formula produced a non-finite score (domain error or overflow)"},
		{two + `l1 {}`, 1, "Query error: l1.formula requires 1..4096 ASCII bytes"},
		{fusion(`queries {query {all {}} name: "`+strings.Repeat("n", 129)+`"}`) + "tracing: true", 1, long},
		{fusion(`queries {query {all {}} name: "`+strings.Repeat("n", 129)+`"}`) + "include_rrf_scores: true", 1, long},
		{fusion(`queries {query {all {}} name: "` + strings.Repeat("n", 129) + `"}`), 1, ""},
		{fusion(branches(1, "") + "method: 9"), 1, "unknown fusion method"},
	} {
		_, _, err := asked(t, request(t, c.request), c.shards)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.request, err)
			}
			continue
		}
		if st := status.Convert(err); st.Code() != codes.InvalidArgument || st.Message() != c.want {
			t.Errorf("%s:\n got %s %q\nwant %q", c.request, st.Code(), st.Message(), c.want)
		}
	}
}

// TestWhatNodesAreAsked has each way to a ranking, and what of the request nodes get as it is.
func TestWhatNodesAreAsked(t *testing.T) {
	two := branches(2, "")
	for _, c := range []struct{ request, want string }{
		{"query {all {}} offset: 3 limit: 4 tracing: true candidate_limit: 9", "query {all {}} limit: 7 tracing: true candidate_limit: 9"},
		{
			fusion(two+"method: FUSION_CANDIDATES") + "include_rrf_scores: true",
			fusion(two+"method: FUSION_CANDIDATES") + "include_rrf_scores: true limit: 10",
		},
		{
			fusion(two+"rrf_k: 3 combiner: COMBINER_SUM") + "offset: 2 limit: 3 include_rrf_scores: true tracing: true fields_to_load: 'id'",
			fusion(two+"rrf_k: 3 combiner: COMBINER_SUM method: FUSION_CANDIDATES candidate_depth: 5") + "limit: 10 candidate_limit: 10 tracing: true fields_to_load: 'id'",
		},
		{
			fusion(two+"candidate_depth: 2 method: FUSION_NORMALIZED_WEIGHTED_SUM") + "candidate_limit: 12",
			fusion(two+"candidate_depth: 2 method: FUSION_CANDIDATES") + "limit: 4 candidate_limit: 4",
		},
		{
			fusion(two+"candidate_depth: 7 combiner: COMBINER_MAX") + `offset: 1 limit: 2 candidate_limit: 4 l1 {formula: "b0" missing_values {key: "b0" value: 2} backfill: false}`,
			"",
		},
		{
			fusion(two+"candidate_depth: 6 combiner: COMBINER_MAX") + `offset: 1 limit: 2 candidate_limit: 4 l1 {formula: "b0" missing_values {key: "b0" value: 2} backfill: false}`,
			fusion(two+"candidate_depth: 6 combiner: COMBINER_MAX") + `limit: 3 candidate_limit: 4 l1 {formula: "b0" missing_values {key: "b0" value: 2} backfill: false} score_export {passages_per_document: 8}`,
		},
		{
			fusion(two+"combiner: COMBINER_MAX") + `l1 {formula: "b0"} score_export {passages_per_document: 1}`,
			fusion(two+"combiner: COMBINER_MAX") + `limit: 10 l1 {formula: "b0"} score_export {passages_per_document: 1}`,
		},
		{
			fusion(two+"combiner: COMBINER_WEIGHTED_TOP_K") + `l1 {formula: "b0"} score_export {passages_per_document: 1 all_passages: true}`,
			fusion(two+"combiner: COMBINER_WEIGHTED_TOP_K") + `limit: 10 l1 {formula: "b0"} score_export {passages_per_document: 5 all_passages: true}`,
		},
		{
			fusion(two+"combiner: COMBINER_AVG") + `l1 {formula: "b0"} score_export {passages_per_document: 1}`,
			fusion(two+"combiner: COMBINER_AVG") + `limit: 10 l1 {formula: "b0"} score_export {passages_per_document: 65536}`,
		},
		{
			fusion(two) + `l1 {formula: "b0*rrf" missing_values {key: "b0" value: 2} backfill: false} score_export {passages_per_document: 1}`,
			fusion(two+"candidate_depth: 10") + `limit: 20 candidate_limit: 20 l1 {formula: "0" backfill: false} score_export {passages_per_document: 65536} include_rrf_scores: true`,
		},
	} {
		_, got, err := asked(t, request(t, c.request), 3)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s is taken", c.request)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.request, err)
			continue
		}
		if want := request(t, c.want); !proto.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", c.request, got, want)
		}
	}
}

// TestUnknownFieldsOfARequestGoOn: a client may know of what the broker does not.
func TestUnknownFieldsOfARequestGoOn(t *testing.T) {
	req := request(t, fusion(branches(2, "")))
	req.ProtoReflect().SetUnknown([]byte{0xf8, 0x3e, 7}) // field 1007
	_, got, err := asked(t, req, 2)
	if err != nil || string(got.ProtoReflect().GetUnknown()) != "\xf8\x3e\x07" {
		t.Errorf("%v, unknown fields %x", err, got.ProtoReflect().GetUnknown())
	}
}
