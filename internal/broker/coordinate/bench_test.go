package coordinate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/coordinate"
)

// nominated are the replies of shards whose two branches nominate the same documents each in an order of its own.
func nominated(b testing.TB, shards, candidates int) []coordinate.Reply {
	b.Helper()
	r := rand.New(rand.NewPCG(9, 3))
	var out []coordinate.Reply
	for shard := range shards {
		m := &summapb.SearchResponse{RankingMethod: "fusion_candidates_v1", TotalHits: uint64(2 * candidates)}
		segment := fmt.Sprintf("%032x", r.Uint64())
		for doc := range candidates {
			m.Hits = append(m.Hits, &summapb.SearchHit{
				Address: &summapb.DocAddress{SegmentId: segment, DocId: uint32(doc)},
				Fields:  map[string]*summapb.FieldValueList{"id": {Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_Text{Text: fmt.Sprintf("document-%d-%d", shard, doc)}}}}},
			})
		}
		for branch := range 2 {
			l := &summapb.FusionCandidateList{QueryIndex: uint32(branch)}
			for rank, doc := range r.Perm(candidates) {
				l.Candidates = append(l.Candidates, &summapb.FusionCandidate{
					Address: &summapb.DocAddress{SegmentId: segment, DocId: uint32(doc)}, Score: float32(candidates-rank) + r.Float32(),
				})
			}
			m.FusionCandidates = append(m.FusionCandidates, l)
		}
		out = append(out, coordinate.Reply{Part: shard, Message: marshal(b, m)})
	}
	return out
}

// BenchmarkRRF is coordinated RRF over 8 shards × 1,000 candidates: what a broker does of it between replies and answer.
func BenchmarkRRF(b *testing.B) {
	for _, size := range [][2]int{{1, 1000}, {8, 100}, {8, 1000}} {
		b.Run(fmt.Sprintf("shards=%d,candidates=%d", size[0], size[1]), func(b *testing.B) {
			run(b, fusion(branches(2, ""))+"limit: 1000", nominated(b, size[0], size[1]))
		})
	}
}

// passageFormula is a formula over ranks, for scoredPassages.
var passageFormula = fusion(`queries {query {all {}} name: "d" scope: SCORE_SCOPE_DOCUMENT} queries {query {all {}} name: "p" scope: SCORE_SCOPE_CHUNK}`) +
	`limit: 1000 l1 {formula: "0.3*d+0.7*p+5*rrf"}`

// scoredPassages are the replies of shards with documents of four passages, all of them scored.
func scoredPassages(b testing.TB, shards, documents int) []coordinate.Reply {
	b.Helper()
	const rows = 4
	r := rand.New(rand.NewPCG(9, 4))
	var replies []coordinate.Reply
	for shard := range shards {
		m := &summapb.SearchResponse{RankingMethod: "formula_v1"}
		segment := fmt.Sprintf("%032x", r.Uint64())
		lists := []*summapb.FusionCandidateList{{}, {QueryIndex: 1}}
		for doc := range documents {
			at := &summapb.DocAddress{SegmentId: segment, DocId: uint32(doc)}
			c := &summapb.CandidateScores{Document: map[string]float32{"d": r.Float32()}, ScoredPassages: rows}
			p := &summapb.FusionCandidate{Address: at}
			for o := range uint32(rows) {
				s := r.Float32()
				c.Passages = append(c.Passages, &summapb.PassageScores{Ordinal: o, Scores: map[string]float32{"p": s}})
				p.OrdinalScores = append(p.OrdinalScores, &summapb.OrdinalScore{Ordinal: o, Score: s})
			}
			m.Hits = append(m.Hits, &summapb.SearchHit{Address: at, CandidateScores: c})
			lists[0].Candidates = append(lists[0].Candidates, &summapb.FusionCandidate{Address: at, Score: c.Document["d"]})
			lists[1].Candidates = append(lists[1].Candidates, p)
		}
		m.FusionCandidates = lists
		replies = append(replies, coordinate.Reply{Part: shard, Message: marshal(b, m)})
	}
	return replies
}

// BenchmarkFormula ranks 8 × 1,000 documents of four passages by a formula over ranks.
func BenchmarkFormula(b *testing.B) {
	run(b, passageFormula, scoredPassages(b, 8, 1000))
}

func run(b *testing.B, text string, replies []coordinate.Reply) {
	b.Helper()
	req := request(b, text)
	bytes := 0
	for i := range replies {
		bytes += len(replies[i].Message)
	}
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	for b.Loop() {
		p, err := coordinate.Admit(proto.CloneOf(req), len(replies))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Request(nil); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Answer(b.Context(), replies, 0, time.Now(), coordinate.Limits{Transfer: 64 * mib}, fault); err != nil {
			b.Fatal(err)
		}
	}
}
