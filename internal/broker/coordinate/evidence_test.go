package coordinate_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/coordinate"
)

// Requests of each way, with a branch for documents, one for passages, and in formulas one that only scores.
const (
	fused   = `query {fusion {queries {query {all {}} name: "d"} queries {query {all {}} name: "p"}}} `
	listed  = `query {fusion {queries {query {all {}} name: "d"} queries {query {all {}} name: "p"} method: FUSION_CANDIDATES}} include_rrf_scores: true `
	scoring = `query {fusion {queries {query {all {}} name: "d" scope: SCORE_SCOPE_DOCUMENT} queries {query {all {}} name: "p" scope: SCORE_SCOPE_CHUNK} ` +
		`queries {query {all {}} name: "s" scope: SCORE_SCOPE_CHUNK score_only: true}}} `
	plain  = scoring + `l1 {formula: "d+p"} `
	ranked = scoring + `l1 {formula: "d+p+rrf"} `
)

// The replies of two shards, of each way; those of formulas have "d+p" for their scores.
func goodReplies(t testing.TB, req string) [2]*summapb.SearchResponse {
	t.Helper()
	lists := func(segment string) string {
		return strings.ReplaceAll(`
			fusion_candidates {candidates {address {segment_id: "SEG" doc_id: 1} score: 2} candidates {address {segment_id: "SEG" doc_id: 2} score: 1}}
			fusion_candidates {query_index: 1 candidates {address {segment_id: "SEG" doc_id: 1} score: 3 ordinal_scores {ordinal: 1 score: 3} ordinal_scores {ordinal: 4 score: 2}}}`,
			"SEG", segment)
	}
	var out [2]*summapb.SearchResponse
	for i, segment := range []string{"0a", "0b"} {
		text := ""
		switch req {
		case fused, listed:
			text = `hits {address {segment_id: "SEG" doc_id: 1}} hits {address {segment_id: "SEG" doc_id: 2}} total_hits: 3 ranking_method: "fusion_candidates_v1"` + lists(segment)
		default:
			text = `hits {address {segment_id: "SEG" doc_id: 1} score: 5 candidate_scores {document {key: "d" value: 2} scored_passages: 2
					passages {ordinal: 1 scores {key: "p" value: 3} scores {key: "s" value: 1}} passages {ordinal: 4 scores {key: "p" value: 2}}}}
				hits {address {segment_id: "SEG" doc_id: 2} score: 1 candidate_scores {document {key: "d" value: 1}}}
				total_hits: 3 ranking_method: "formula_v1"` + lists(segment)
		}
		out[i] = replyOf(t, strings.ReplaceAll(text, "SEG", segment))
	}
	return out
}

// TestIncompleteEvidenceIsRefused damages the reply of the second shard in every way that the contract names.
func TestIncompleteEvidenceIsRefused(t *testing.T) {
	const incomplete = "backend did not return the complete requested candidate contract; complete the Summa rollout"
	truncated := func(m *summapb.SearchResponse) { m.Truncated = true }
	method := func(m *summapb.SearchResponse) { m.RankingMethod = "global_rrf_v1" }
	noAddress := func(m *summapb.SearchResponse) { m.Hits[0].Address = nil }
	segment := func(s string) func(m *summapb.SearchResponse) {
		return func(m *summapb.SearchResponse) { m.Hits[0].Address.SegmentId = s }
	}
	other := func(m *summapb.SearchResponse) { m.Hits[1].Address.SegmentId = "0a" }
	twice := func(m *summapb.SearchResponse) { m.Hits = append(m.Hits, m.Hits[0]) }
	noBranch := func(m *summapb.SearchResponse) { m.FusionCandidates = m.FusionCandidates[:1] }
	noLists := func(m *summapb.SearchResponse) { m.FusionCandidates = nil }
	branchTwice := func(m *summapb.SearchResponse) { m.FusionCandidates[1].QueryIndex = 0 }
	branchMore := func(m *summapb.SearchResponse) {
		m.FusionCandidates = append(m.FusionCandidates, m.FusionCandidates[0])
	}
	branchNine := func(m *summapb.SearchResponse) { m.FusionCandidates[1].QueryIndex = 9 }
	branchScores := func(m *summapb.SearchResponse) {
		m.FusionCandidates = append(m.FusionCandidates, &summapb.FusionCandidateList{QueryIndex: 2})
	}
	first := func(m *summapb.SearchResponse) *summapb.FusionCandidate { return m.FusionCandidates[0].Candidates[0] }
	candidateTwice := func(m *summapb.SearchResponse) {
		m.FusionCandidates[0].Candidates = append(m.FusionCandidates[0].Candidates, first(m))
	}
	notThere := func(m *summapb.SearchResponse) { first(m).Address.DocId = 77 }
	elsewhere := func(m *summapb.SearchResponse) { first(m).Address = &summapb.DocAddress{SegmentId: "0a", DocId: 1} }
	nan := func(m *summapb.SearchResponse) { first(m).Score = float32(math.NaN()) }
	infinite := func(m *summapb.SearchResponse) {
		m.FusionCandidates[1].Candidates[0].OrdinalScores[1].Score = float32(math.Inf(1))
	}
	candidateNowhere := func(m *summapb.SearchResponse) { first(m).Address = nil }
	candidateSegment := func(m *summapb.SearchResponse) { first(m).Address.SegmentId = "x" }
	cells := func(m *summapb.SearchResponse) *summapb.CandidateScores { return m.Hits[0].CandidateScores }
	for _, c := range []struct {
		name, request string
		damage        func(m *summapb.SearchResponse)
		want          string
	}{
		{"nothing", fused, func(*summapb.SearchResponse) {}, ""},
		{"truncated", fused, truncated, incomplete},
		{"another method", fused, method, incomplete},
		{"no method", fused, func(m *summapb.SearchResponse) { m.RankingMethod = "" }, incomplete},
		{"a hit without address", fused, noAddress, "candidate lacks an address"},
		{"no segment", fused, segment(""), "candidate has an invalid segment address"},
		{"a segment that is no number", fused, segment("0g"), "candidate has an invalid segment address"},
		{"a long segment", fused, segment(strings.Repeat("0", 33)), "candidate has an invalid segment address"},
		{"an address of another shard", fused, func(m *summapb.SearchResponse) { m.Hits[1].Address = &summapb.DocAddress{SegmentId: "000A", DocId: 1} }, "duplicate candidate address across shards"},
		{"an address of another shard's segment", fused, other, "duplicate candidate address across shards"},
		{"a hit twice", fused, twice, "duplicate candidate address across shards"},
		{"no branch", fused, noBranch, "shard omitted a nomination branch"},
		{"no lists", fused, noLists, "shard omitted a nomination branch"},
		{"a branch twice", fused, branchTwice, "invalid exported branch identity"},
		{"a branch too many", fused, branchMore, "invalid exported branch identity"},
		{"branch 9", fused, branchNine, "invalid exported branch identity"},
		{"a candidate twice", fused, candidateTwice, "duplicate candidate address within a branch"},
		{"a candidate that is no hit", fused, notThere, "branch candidate lacks a valid hydrated union entry"},
		{"a candidate of another shard", fused, elsewhere, "branch candidate lacks a valid hydrated union entry"},
		{"a score that is no number", fused, nan, "branch candidate lacks a valid hydrated union entry"},
		{"a passage that is infinite", fused, infinite, "branch candidate lacks a valid hydrated union entry"},
		{"a candidate without address", fused, candidateNowhere, "candidate lacks an address"},
		{"a candidate in no segment", fused, candidateSegment, "candidate has an invalid segment address"},

		{"nothing", listed, func(*summapb.SearchResponse) {}, ""},
		{"truncated", listed, truncated, incomplete},
		{"another method", listed, method, incomplete},
		{"a hit without address", listed, noAddress, "candidate lacks an address"},
		{"no branch", listed, noBranch, "backend omitted RRF nomination lists; complete the Summa rollout"},
		{"no lists", listed, noLists, "backend omitted RRF nomination lists; complete the Summa rollout"},
		{"a branch twice", listed, branchTwice, "invalid RRF nomination branch identity"},
		{"branch 9", listed, branchNine, "invalid RRF nomination branch identity"},
		{"a candidate twice", listed, candidateTwice, "duplicate RRF nomination address"},
		{"a candidate that is no hit", listed, notThere, ""},
		{"a score that is no number", listed, nan, "non-finite RRF nomination score"},
		{"a passage that is infinite", listed, infinite, "non-finite RRF nomination score"},
		{"a hit that is infinite", listed, func(m *summapb.SearchResponse) { m.Hits[0].Score = float32(math.Inf(-1)) }, incomplete},

		{"nothing", plain, func(*summapb.SearchResponse) {}, ""},
		{"no lists", plain, noLists, ""},
		{"truncated", plain, truncated, incomplete},
		{"another method", plain, method, incomplete},
		{"a hit without address", plain, noAddress, "candidate lacks an address"},
		{"a hit twice", plain, twice, "duplicate candidate address across shards"},
		{"no cells", plain, func(m *summapb.SearchResponse) { m.Hits[1].CandidateScores = nil }, "shard omitted L1 candidate features"},
		{"a cell of no branch", plain, func(m *summapb.SearchResponse) { cells(m).Document["z"] = 1 }, "shard feature keys/scopes do not match the query"},
		{"a passage's cell at the document", plain, func(m *summapb.SearchResponse) { cells(m).Document["p"] = 1 }, "shard feature keys/scopes do not match the query"},
		{"a document's cell at a passage", plain, func(m *summapb.SearchResponse) { cells(m).Passages[0].Scores["d"] = 1 }, "shard feature keys/scopes do not match the query"},
		{"a passage twice", plain, func(m *summapb.SearchResponse) { cells(m).Passages[1].Ordinal = 1 }, "shard feature keys/scopes do not match the query"},
		{"no rows", plain, func(m *summapb.SearchResponse) { cells(m).Passages = nil }, "Query error: L1 document combiner needs more passage rows than were exported"},
		{"rows enough for the best", plain, func(m *summapb.SearchResponse) { cells(m).Passages = cells(m).Passages[:1] }, ""},
		{"another score", plain, func(m *summapb.SearchResponse) { m.Hits[0].Score = 5.0000005 }, "shard and broker formula inference disagree"},
		{"no number for a score", plain, func(m *summapb.SearchResponse) { m.Hits[0].Score = float32(math.NaN()) }, "shard and broker formula inference disagree"},
		{"a cell that is infinite", plain, func(m *summapb.SearchResponse) { cells(m).Passages[0].Scores["s"] = float32(math.Inf(1)) }, "IA"},
		{"a cell that is no number", plain, func(m *summapb.SearchResponse) { cells(m).Document["d"] = float32(math.NaN()) }, "IA"},

		{"nothing", ranked, func(*summapb.SearchResponse) {}, ""},
		{"truncated", ranked, truncated, incomplete},
		{"no lists", ranked, noLists, "backend omitted RRF nomination lists; complete the Summa rollout"},
		{"a list of a branch that only scores", ranked, branchScores, "invalid RRF nomination branch identity"},
		{"a candidate twice", ranked, candidateTwice, "duplicate RRF nomination address"},
		{"a score that is no number", ranked, nan, "non-finite RRF nomination score"},
		{"a hit too few", ranked, func(m *summapb.SearchResponse) { m.Hits = m.Hits[:1] }, "RRF L1 requires the complete nominated document union"},
		{"a candidate of another shard", ranked, elsewhere, "RRF L1 requires the complete nominated document union"},
		{"a row too few", ranked, func(m *summapb.SearchResponse) { cells(m).Passages = cells(m).Passages[:1] }, "Query error: L1 document combiner needs more passage rows than were exported"},
		{"any score", ranked, func(m *summapb.SearchResponse) { m.Hits[0].Score = 77 }, ""},
	} {
		replies := goodReplies(t, c.request)
		c.damage(replies[1])
		_, err := answer(t, request(t, c.request), replies[:]...)
		code := codes.FailedPrecondition
		switch c.want {
		case "":
			if err != nil {
				t.Errorf("%s: %s: %v", c.request, c.name, err)
			}
			continue
		case "IA":
			code, c.want = codes.InvalidArgument, "Query error: L1 formula produced a non-finite score (domain error or overflow)"
		}
		wantRefusal(t, c.request+": "+c.name, err, code, c.want)
	}
}

// TestTracesAndSeedingAreAsked: a node that does not know of them cannot be told from one that did nothing.
func TestTracesAndSeedingAreAsked(t *testing.T) {
	traced := func(replies [2]*summapb.SearchResponse) [2]*summapb.SearchResponse {
		for _, r := range replies {
			r.Trace = &summapb.SearchTrace{Shards: []*summapb.ShardSearchTrace{{ShardId: "own", IndexName: "i", Queries: []*summapb.QueryTrace{{TotalSeen: 3}}}}}
		}
		return replies
	}
	replies := traced(goodReplies(t, fused))
	got, err := answer(t, request(t, fused+"tracing: true"), replies[:]...)
	if err != nil {
		t.Fatal(err)
	}
	want := replyOf(t, `trace {shards {shard_id: "s0" backend_id: "n0" index_name: "i" queries {total_seen: 3}} shards {shard_id: "s1" backend_id: "n1" index_name: "i" queries {total_seen: 3}}}`)
	if !proto.Equal(got.Trace, want.Trace) {
		t.Errorf("trace %v, want %v", got.Trace, want.Trace)
	}
	replies[1].Trace.Shards = append(replies[1].Trace.Shards, replies[1].Trace.Shards[0])
	_, err = answer(t, request(t, fused+"tracing: true"), replies[:]...)
	wantRefusal(t, "two traces", err, codes.FailedPrecondition, "partition 1: backend must return exactly one local trace")
	replies[1].Trace.Shards = nil
	_, err = answer(t, request(t, fused+"tracing: true"), replies[:]...)
	wantRefusal(t, "an empty trace", err, codes.FailedPrecondition, "partition 1: backend omitted requested trace; complete the Summa rollout")
	replies[1].Truncated = true
	_, err = answer(t, request(t, fused+"tracing: true"), replies[:]...)
	wantRefusal(t, "no trace, and truncated", err, codes.FailedPrecondition, "partition 1: backend omitted requested trace; complete the Summa rollout")
	if got, err := answer(t, request(t, fused), traced(goodReplies(t, fused))[0]); err != nil || got.Trace != nil {
		t.Errorf("a trace that nobody asked for: %v, %v", err, got.GetTrace())
	}

	replies = goodReplies(t, plain)
	replies[0].SeededDocumentPassages = true
	_, err = answer(t, request(t, plain+"score_export {seed_document_passages: true}"), replies[:]...)
	wantRefusal(t, "one has not seeded", err, codes.FailedPrecondition, "backend did not acknowledge document passage seeding; complete the Summa rollout")
	replies[1].SeededDocumentPassages = true
	if got, err := answer(t, request(t, plain+"score_export {seed_document_passages: true}"), replies[:]...); err != nil || !got.SeededDocumentPassages {
		t.Errorf("all have seeded: %v, %v", err, got)
	}
}

// TestMethodsHaveToBeEqual where none is asked for.
func TestMethodsHaveToBeEqual(t *testing.T) {
	a, b := replyOf(t, `ranking_method: "x" trace {shards {}} truncated: true`), replyOf(t, `trace {shards {}}`)
	_, err := answer(t, request(t, "query {all {}} tracing: true"), a, b)
	wantRefusal(t, "two methods", err, codes.FailedPrecondition, "shards returned incompatible ranking methods; complete the Summa rollout")
	got, err := answer(t, request(t, "query {all {}} tracing: true"), a, a)
	if err != nil || got.RankingMethod != "x" || !got.Truncated {
		t.Errorf("one method: %v, %v", err, got)
	}
}

// TestExportsHaveToFit whole, where they are only told of.
func TestExportsHaveToFit(t *testing.T) {
	const text = "feature export needs offset=0 and limit covering the complete cross-shard union (4 candidates)"
	replies := goodReplies(t, listed)
	_, err := answer(t, request(t, listed+"limit: 3"), replies[:]...)
	wantRefusal(t, "limit 3", err, codes.InvalidArgument, text)
	_, err = answer(t, request(t, listed+"limit: 4 offset: 1"), replies[:]...)
	wantRefusal(t, "offset 1", err, codes.InvalidArgument, text)
	if got, err := answer(t, request(t, listed+"limit: 4"), replies[:]...); err != nil || len(got.Hits) != 4 || got.FusionCandidates != nil {
		t.Errorf("limit 4: %v, %v", err, got)
	}
}

// TestTimeIsOver: what the broker does itself has the search's deadline.
func TestTimeIsOver(t *testing.T) {
	for _, req := range []string{fused, listed, plain, ranked} {
		replies := goodReplies(t, req)
		p, _, err := asked(t, request(t, req), 2)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		_, err = answerOf(t, ctx, p, coordinate.Limits{Transfer: mib}, replies[:]...)
		cancel()
		wantRefusal(t, req, err, codes.DeadlineExceeded, "coordinator search deadline expired")
		if p, _, err = asked(t, request(t, req), 2); err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		_, err = answerOf(t, ctx, p, coordinate.Limits{Transfer: mib}, replies[:]...)
		if status.Code(err) != codes.Canceled {
			t.Errorf("%s: the caller is gone: %v", req, err)
		}
	}
}

// TestSizesAreBounded: replies together, and each kind of answer.
func TestSizesAreBounded(t *testing.T) {
	size := func(replies [2]*summapb.SearchResponse) int { return proto.Size(replies[0]) + proto.Size(replies[1]) }
	within := func(req string, most int, replies [2]*summapb.SearchResponse) error {
		p, _, err := asked(t, request(t, req), 2)
		if err != nil {
			t.Fatal(err)
		}
		_, err = answerOf(t, t.Context(), p, coordinate.Limits{Transfer: most}, replies[:]...)
		return err
	}
	replies := goodReplies(t, fused)
	if err := within(fused, size(replies), replies); err != nil {
		t.Errorf("replies that fit: %v", err)
	}
	wantRefusal(t, "replies that do not", within(fused, size(replies)-1, replies), codes.ResourceExhausted,
		"combined coordinator response size exceeds "+strconv.Itoa(size(replies)-1)+" bytes")
	// Names of branches are told with each vote, so that an answer can be longer than all replies.
	long := strings.ReplaceAll(listed, `"d"`, `"`+strings.Repeat("n", 128)+`"`)
	replies = goodReplies(t, listed)
	wantRefusal(t, "votes", within(long, size(replies), replies), codes.ResourceExhausted,
		"RRF diagnostic response size exceeds "+strconv.Itoa(size(replies))+" bytes")
	m := replyOf(t, `trace {shards {}}`)
	p, _, err := asked(t, request(t, "tracing: true"), 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Answer(t.Context(), []coordinate.Reply{{Backend: strings.Repeat("n", 99), Message: marshal(t, m)}}, 0, time.Now(), coordinate.Limits{Transfer: 99}, fault)
	wantRefusal(t, "traces", err, codes.ResourceExhausted, "traced response size exceeds 99 bytes")
}

// TestMemoryIsChargedBeforeItIsTaken: what is charged is enough, and a refusal is the answer.
func TestMemoryIsChargedBeforeItIsTaken(t *testing.T) {
	full := status.Error(codes.ResourceExhausted, "full")
	for _, req := range []string{fused, listed, plain, ranked} {
		replies := goodReplies(t, req)
		p, _, err := asked(t, request(t, req), 2)
		if err != nil {
			t.Fatal(err)
		}
		_, err = answerOf(t, t.Context(), p, coordinate.Limits{Transfer: mib, Hold: func(int64) error { return full }}, replies[:]...)
		if !errors.Is(err, full) {
			t.Errorf("%s: %v", req, err)
		}
	}
}

// TestWhatIsTakenIsCharged compares all that is allocated for an answer with what was charged for it.
func TestWhatIsTakenIsCharged(t *testing.T) {
	for _, c := range []struct {
		name, request string
		replies       []coordinate.Reply
	}{
		{"fusion", fusion(branches(2, "")) + "limit: 1000", nominated(t, 8, 1000)},
		{"a page", fusion(branches(2, "")) + "limit: 10 offset: 990", nominated(t, 8, 1000)},
		{"two fusions", fusion(branches(2, "")+"method: FUSION_NORMALIZED_WEIGHTED_SUM") + "include_rrf_scores: true limit: 1000", nominated(t, 8, 1000)},
		{"formula", passageFormula, scoredPassages(t, 8, 1000)},
	} {
		p, _, err := asked(t, request(t, c.request), len(c.replies))
		if err != nil {
			t.Fatal(err)
		}
		var held int64
		limits := coordinate.Limits{Transfer: 64 * mib, Hold: func(n int64) error {
			held += n
			return nil
		}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := p.Answer(t.Context(), c.replies, 0, time.Now(), limits, fault); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := int64(after.TotalAlloc - before.TotalAlloc); took > held {
			t.Errorf("%s: %d bytes were allocated, %d charged", c.name, took, held)
		} else {
			t.Logf("%s: %d bytes were allocated, %d charged", c.name, took, held)
		}
	}
}

// TestManySmallPartsAreRefused: a reply whose parts take much more memory than bytes cannot take more than is stated.
func TestManySmallPartsAreRefused(t *testing.T) {
	m := goodReplies(t, fused)[0]
	candidate := append(marshal(t, m.FusionCandidates[0].Candidates[0]), bytes.Repeat([]byte{3<<3 | 2, 0}, 3_000_000)...) // an ordinal 0 with score 0 each
	list := protowire.AppendBytes([]byte{2<<3 | 2}, candidate)
	m.FusionCandidates = m.FusionCandidates[1:]
	wire := append(marshal(t, m), protowire.AppendBytes([]byte{7<<3 | 2}, list)...)
	var held int64
	p, _, err := asked(t, request(t, fused), 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Answer(t.Context(), []coordinate.Reply{{Message: wire}}, 0, time.Now(), coordinate.Limits{Transfer: 64 * mib, Hold: func(n int64) error {
		held += n
		return nil
	}}, fault)
	wantRefusal(t, "three million passages in 6 MB", err, codes.ResourceExhausted, "coordinator search takes more than 335544320 bytes of memory")
	if held > 64*mib+coordinate.MostHeld {
		t.Errorf("%d bytes were charged", held)
	}
}

// TestBrokenRepliesAreTheirNodes: bytes that are no message are told of the partition.
func TestBrokenRepliesAreTheirNodes(t *testing.T) {
	for _, req := range []string{fused, listed, plain, ranked} {
		replies := goodReplies(t, req)
		good, bad := marshal(t, replies[0]), marshal(t, replies[1])
		for cut := range len(bad) {
			p, _, err := asked(t, request(t, req), 2)
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.Answer(t.Context(), []coordinate.Reply{{Part: 3, Message: good}, {Part: 5, Message: bad[:cut]}}, 0, time.Now(), coordinate.Limits{Transfer: mib}, fault)
			switch st := status.Convert(err); st.Code() {
			case codes.FailedPrecondition: // the cut was between two fields
			case codes.Internal:
				if st.Message() != "partition 5: failed to decode Protobuf message" {
					t.Errorf("%s: cut at %d: %v", req, cut, err)
				}
			case codes.OK:
				if cut < len(bad)-len(marshal(t, &summapb.SearchResponse{FusionCandidates: replies[1].FusionCandidates})) {
					t.Errorf("%s: cut at %d is taken", req, cut)
				}
			default:
				t.Errorf("%s: cut at %d: %v", req, cut, err)
			}
		}
	}
}

// TestExportsThatAreTracedAreWhole: a search that is only told of besides is merged by score, and what a node leaves out of it is not silently
// merged either.
func TestExportsThatAreTracedAreWhole(t *testing.T) {
	const (
		candidates = `query {fusion {queries {query {all {}} name: "d"} queries {query {all {}} name: "p"} method: FUSION_CANDIDATES}} limit: 9 tracing: true`
		features   = scoring + `score_export {} limit: 9 tracing: true`
	)
	for _, c := range []struct {
		name, request string
		change        func(m *summapb.SearchResponse)
		want          string
	}{
		{"lists", candidates, func(*summapb.SearchResponse) {}, ""},
		{"nothing found", candidates, func(m *summapb.SearchResponse) { m.Hits, m.FusionCandidates = nil, nil }, ""},
		{"no lists", candidates, func(m *summapb.SearchResponse) { m.FusionCandidates = nil }, "shard omitted a nomination branch"},
		{"a list less", candidates, func(m *summapb.SearchResponse) { m.FusionCandidates = m.FusionCandidates[1:] }, "shard omitted a nomination branch"},
		{"a branch twice", candidates, func(m *summapb.SearchResponse) { m.FusionCandidates[1].QueryIndex = 0 }, "invalid exported branch identity"},
		{"no such branch", candidates, func(m *summapb.SearchResponse) { m.FusionCandidates[1].QueryIndex = 2 }, "invalid exported branch identity"},
		{"features", features, func(*summapb.SearchResponse) {}, ""},
		{"features and no lists", features, func(m *summapb.SearchResponse) { m.FusionCandidates = nil }, ""},
		{"a hit without features", features, func(m *summapb.SearchResponse) { m.Hits[1].CandidateScores = nil }, "shard omitted L1 candidate features"},
	} {
		replies := goodReplies(t, map[string]string{candidates: fused, features: plain}[c.request])
		c.change(replies[1])
		for _, m := range replies {
			if m.RankingMethod = "fusion_candidates_v1"; c.request == features {
				m.RankingMethod = "feature_export_v2"
			}
			m.Trace = &summapb.SearchTrace{Shards: []*summapb.ShardSearchTrace{{}}}
		}
		var blamed []int
		p, _, err := asked(t, request(t, c.request), 2)
		if err != nil {
			t.Fatal(err)
		}
		limits := coordinate.Limits{Transfer: mib, Blame: func(part int, _ error) { blamed = append(blamed, part) }}
		_, err = answerOf(t, t.Context(), p, limits, replies[:]...)
		if c.want == "" {
			if err != nil || len(blamed) > 0 {
				t.Errorf("%s: %v, blamed: %v", c.name, err, blamed)
			}
			continue
		}
		wantRefusal(t, c.name, err, codes.FailedPrecondition, c.want)
		if len(blamed) != 1 || blamed[0] != 1 {
			t.Errorf("%s: blamed are %v", c.name, blamed)
		}
	}
}
