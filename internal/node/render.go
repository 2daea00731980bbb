package node

import (
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
)

// render writes the hits and what was asked for besides.
func (x *execution) render(reply *api.SearchReply, sources, marks, trees [][]byte) {
	for i := range x.rank.hits {
		h := &x.rank.hits[i]
		out := api.Hit{ID: h.Key, Score: h.Score, Source: sources[i]}
		if len(x.sort) > 0 {
			out.Sort = x.sortValues(h)
		}
		if x.rank.votes != nil {
			out.LexicalRank, out.VectorRank = x.rank.votes[i].lexicalRank, x.rank.votes[i].vectorRank
		}
		if marks != nil {
			out.Highlight = marks[i]
		}
		if trees != nil {
			out.Explain = trees[i]
		}
		if i > 0 {
			reply.Hits = append(reply.Hits, ',')
		}
		reply.Hits = out.AppendJSON(reply.Hits)
	}
	if x.rank.plan != nil && x.rank.plan.Approximate {
		reply.Approximate = append(reply.Approximate, "knn")
	}
	if x.req.Explain {
		reply.Explain = x.searchPlan()
	}
	if x.req.Profile {
		reply.Profile = x.profile()
	}
}

// sortValues renders what the hit has for each key of the order.
func (x *execution) sortValues(h *exec.Hit) []byte {
	b := []byte{'['}
	for i, v := range h.Sort {
		if i > 0 {
			b = append(b, ',')
		}
		switch v.Kind {
		case exec.MissingValue:
			b = append(b, "null"...)
		case exec.TextValue:
			b = api.AppendString(b, v.Text)
		case exec.ScoreValue:
			b = api.AppendScore(b, v.Score)
		case exec.NumberValue:
			b = appendNumber(b, x.sortTypes[i], v.Number)
		}
	}
	return append(b, ']')
}

// appendNumber appends a number of a column as documents have it.
func appendNumber(b []byte, t schema.Type, n uint64) []byte {
	switch t {
	case schema.I64:
		return strconv.AppendInt(b, schema.DecodeI64(n), 10)
	case schema.F64:
		return strconv.AppendFloat(b, schema.DecodeF64(n), 'g', -1, 64)
	case schema.Date:
		return api.AppendString(b, schema.FormatDate(schema.DecodeI64(n)))
	}
	return strconv.AppendUint(b, n, 10)
}
