package bound

import (
	"fmt"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Shown is a hit with what is shown of it. The rendered parts are raw JSON; nil leaves a part out.
type Shown struct {
	ID        string
	Score     float32
	Sort      []exec.SortValue // one for each key of the order
	Votes     *Votes           // nil: one ranking only
	Source    []byte
	Highlight []byte
	Explain   []byte
}

// AppendHit appends a hit to the hits of a reply, behind a comma where it is not the first.
func (b *Bound) AppendHit(hits []byte, h Shown) []byte {
	out := api.Hit{ID: h.ID, Score: h.Score, Source: h.Source, Highlight: h.Highlight, Explain: h.Explain}
	if len(b.Sort.Keys) > 0 {
		out.Sort = b.Sort.AppendValues(nil, h.Sort)
	}
	if h.Votes != nil {
		out.LexicalRank, out.VectorRank = h.Votes.LexicalRank, h.Votes.VectorRank
	}
	if len(hits) > 0 {
		hits = append(hits, ',')
	}
	return out.AppendJSON(hits)
}

// CheckScore refuses a score that is no number.
func CheckScore(s float32) *api.Problem {
	if api.Finite(s) {
		return nil
	}
	return api.NewProblem(api.ScoreOverflow, "the boosts of the query make a score that no number can hold").On("q")
}

// CheckScores refuses scores that are no numbers.
func CheckScores(hits []exec.Hit) *api.Problem {
	for i := range hits {
		if prob := CheckScore(hits[i].Score); prob != nil {
			return prob
		}
	}
	return nil
}

// Floor refuses an answer that covers less of the documents than its caller accepts, a share from 0 to 1.
func Floor(reply *api.SearchReply, least float64) *api.Problem {
	if reply.Coverage.Docs() >= least {
		return nil
	}
	return Incomplete(reply, "min_coverage", "the answer covers less of the index than min_coverage asks for")
}

// Whole refuses an answer that is not complete, for a caller that accepts no other.
func Whole(reply *api.SearchReply) *api.Problem {
	if reply.Coverage.Complete {
		return nil
	}
	return Incomplete(reply, "allow_partial", "not every shard answered, and allow_partial is false")
}

// Incomplete is the refusal of an answer that covers too little, with its accounting. field is the parameter that forbids it.
func Incomplete(reply *api.SearchReply, field, detail string) *api.Problem {
	extra := append([]byte(nil), `"shards":`...)
	extra = reply.Shards.AppendJSON(extra)
	extra = reply.AppendLost(extra)
	extra = append(extra, `,"coverage":`...)
	extra = reply.Coverage.AppendJSON(extra)
	return &api.Problem{Code: api.Incomplete, Field: field, Extra: extra, Detail: detail}
}

// LongSources is the problem of sources that are longer than a reply may be.
func LongSources(most int64) *api.Problem {
	return api.NewProblem(api.ReplyTooLarge, fmt.Sprintf("the sources of the hits are longer than %d bytes; ask for fewer hits, or for no more than you need with fields", most)).
		On("limit").Within(most)
}
