package bound

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/score"
)

// Branches of a hybrid search, in the order in which their contributions add up and their weights stand in a request.
const (
	LexicalBranch = iota
	VectorBranch
	branches
)

// RankConstant is k of reciprocal rank fusion.
const RankConstant = score.DefaultRankConstant

// Ranked is a document of one ranking. Doc tells documents apart.
type Ranked[K comparable] struct {
	Doc   K
	ID    string
	Score float32
}

// Votes is what the two rankings of a hybrid search say of one document. A rank of 0 says that it is not in that ranking.
type Votes struct {
	LexicalRank, VectorRank   uint32
	LexicalScore, VectorScore float32
	LexicalPart, VectorPart   float32 // of the fused score
}

// Fused is a document of the ranking that two have become. Its score is the fused one.
type Fused[K comparable] struct {
	Ranked[K]
	Votes
}

// Fuse makes one ranking of two, each best first: by fused score descending, then by id ascending. Errors are *api.Problem, of a
// score that is no number or of weights that make none, or those of score.Fuse.
func Fuse[K comparable](fusion api.Fusion, weights [2]float32, lexical, vector []Ranked[K]) ([]Fused[K], error) {
	known := make(map[K]*Fused[K], len(lexical)+len(vector))
	lists := make([]score.Branch[K], branches)
	for b, hits := range [branches][]Ranked[K]{LexicalBranch: lexical, VectorBranch: vector} {
		lists[b] = score.Branch[K]{Weight: weights[b], Hits: make([]score.Hit[K], len(hits))}
		for i, h := range hits {
			if prob := CheckScore(h.Score); prob != nil {
				return nil, prob
			}
			lists[b].Hits[i] = score.Hit[K]{Doc: h.Doc, Score: h.Score}
			f := known[h.Doc]
			if f == nil {
				f = &Fused[K]{Ranked: h}
				known[h.Doc] = f
			}
			if b == LexicalBranch {
				f.LexicalScore = h.Score
			} else {
				f.VectorScore = h.Score
			}
		}
	}
	how := score.Fusion{Method: score.RRF, K: RankConstant, Ranked: true, Combiner: score.Combiner{Kind: score.Max}}
	if fusion == api.Weighted {
		how.Method = score.WeightedSum
	}
	fused, err := score.Fuse(how, lists, func(a, b K) int { return strings.Compare(known[a].ID, known[b].ID) })
	if err != nil {
		if f, ok := errors.AsType[*score.FusionError](err); ok {
			return nil, &api.Problem{Code: api.InvalidParameter, Field: "weights", Detail: "weights: " + api.ClipDetail(f.Reason), Cause: err}
		}
		return nil, fmt.Errorf("fuse rankings: %w", err)
	}
	out := make([]Fused[K], len(fused))
	for i := range fused {
		f := known[fused[i].Doc]
		f.Score = fused[i].Score
		l, v := fused[i].Vote(LexicalBranch), fused[i].Vote(VectorBranch)
		f.LexicalRank, f.LexicalPart = l.Rank, l.Score
		f.VectorRank, f.VectorPart = v.Rank, v.Score
		out[i] = *f
	}
	return out, nil
}

// Window is the part of a list that a page shows.
func Window[T any](list []T, offset, limit int) []T {
	list = list[min(offset, len(list)):]
	return list[:min(limit, len(list))]
}
