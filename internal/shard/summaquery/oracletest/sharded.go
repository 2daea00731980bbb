package oracletest

import (
	"cmp"
	"fmt"
	"slices"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/summa"
)

// Sharded makes the oracle answer as a broker does: leaf i lies on partition part[i], whose shard is named parts[part[i]]. Scores and
// statistics are of all documents, but each shard finds for itself the candidates that a request asks for, so that all of them may be more than
// one index would look at. With one partition what the broker passes on is the node's answer. It is to be called behind Ready; the leaves have
// to be numbered in the order of all segments.
func (o *Oracle) Sharded(part []int, parts []string) {
	o.part, o.parts = slices.Clone(part), slices.Clone(parts)
}

// Coordinated tells whether a broker ranks a request itself (contracts/coordinated-search.md, When the broker coordinates).
func Coordinated(req *summapb.SearchRequest) bool {
	f := req.GetQuery().GetFusion()
	return req.GetTracing() || req.GetIncludeRrfScores() || req.GetL1() != nil ||
		f != nil && f.Method != summapb.FusionMethod_FUSION_CANDIDATES && req.GetReranker() == nil && req.GetScoreExport() == nil
}

// lying are the documents of each partition.
func (o *Oracle) lying() [][]*odoc {
	out := make([][]*odoc, len(o.parts))
	for _, d := range o.docs {
		out[o.part[d.leaf]] = append(out[o.part[d.leaf]], d)
	}
	return out
}

// sharded answers a request to an index over several shards.
func (o *Oracle) sharded(req *summapb.SearchRequest, w summa.Window) (out answered, bad error) {
	r := o.running(req, w, o.docs)
	if len(o.parts) == 1 && !Coordinated(req) {
		out = r.answer(req, w)
		return out, r.bad
	}
	of := w
	of.Limit, of.Offset = w.Hits(), 0
	for _, docs := range o.lying() {
		s := o.running(req, of, docs)
		if req.TextStats == nil {
			s.counted = o.docs // those of the shards are added up and sent along
		}
		r.shards = append(r.shards, s)
	}
	coordinated := req.Query.GetFusion() != nil && Coordinated(req)
	if coordinated && (req.TimeBudgetMs > 0 || req.Reranker != nil && req.L1 != nil) {
		r.refuse() // not of complete scoring, or ranked twice
		return out, r.bad
	}
	if coordinated && req.Reranker == nil {
		out = r.answer(req, w)
		for _, s := range r.shards {
			out.wrong = cmp.Or(out.wrong, s.wrong)
			r.bad = cmp.Or(r.bad, s.bad)
		}
		out.gather(req, r.shards)
		return out, r.bad
	}
	// Pointwise: by score, then segment, then each shard's own order.
	for _, s := range r.shards {
		a := s.answer(req, of)
		out.hits = append(out.hits, a.hits...)
		out.total += a.total
		if out.branches == nil {
			out.branches = make([][]ohit, len(a.branches))
		}
		for i, hits := range a.branches { // one shard's after another's, as the recorded answers to formulas have them
			out.branches[i] = append(out.branches[i], hits...)
		}
		out.wrong = cmp.Or(out.wrong, a.wrong)
		r.bad = cmp.Or(r.bad, s.bad)
		if a.exports != nil && out.exports == nil {
			out.exports = map[*odoc]exported{}
		}
		for d, e := range a.exports {
			out.exports[d] = e
		}
	}
	out.gather(req, r.shards)
	if f := req.Query.GetFusion(); (req.ScoreExport != nil || f.GetMethod() == summapb.FusionMethod_FUSION_CANDIDATES) && len(out.hits) > w.Limit {
		r.refuse() // an export has to be whole
	}
	slices.SortStableFunc(out.hits, func(a, b ohit) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.d.leaf, b.d.leaf)) })
	out.hits = out.hits[min(w.Offset, len(out.hits)):]
	out.hits = out.hits[:min(w.Limit, len(out.hits))]
	return out, r.bad
}

// nominate finds the best k documents of a branch of a fusion; of several shards those of each of them.
func (r *running) nominate(branch int, c *clause, filters []*clause, k int) (hits []ohit, total int) {
	if len(r.shards) == 0 {
		hits, total = r.run(c, filters, k)
		r.said[branch] = nomination{slices.Clone(hits), total}
		return hits, total
	}
	for _, s := range r.shards {
		s.k = k
		own, n := s.nominate(branch, c, filters, k)
		hits, total = append(hits, own...), total+n
	}
	slices.SortStableFunc(hits, comparePlain)
	return hits, total
}

// at is the request at the shard that a document lies on.
func (r *running) at(d *odoc) *running {
	if len(r.shards) == 0 {
		return r
	}
	return r.shards[r.part[d.leaf]]
}

// ranked puts what was ranked in order. Of several shards each gives so many of its best, and among those the two zeros are equal.
func (r *running) ranked(hits []ohit, give func(of []ohit) int) (out []ohit) {
	slices.SortFunc(hits, compareOhits)
	if len(r.shards) == 0 {
		return hits
	}
	for i := range r.shards {
		var own []ohit
		for _, h := range hits {
			if r.part[h.d.leaf] == i {
				own = append(own, h)
			}
		}
		out = append(out, own[:give(own)]...)
	}
	slices.SortStableFunc(out, comparePlain)
	return out
}

// gather takes what each partition nominated.
func (a *answered) gather(req *summapb.SearchRequest, shards []*running) {
	a.organic = make([]nomination, max(1, len(req.Query.GetFusion().GetQueries())))
	for _, s := range shards {
		a.traces = append(a.traces, s.said)
		for branch, n := range s.said {
			o := &a.organic[branch]
			o.hits, o.seen = append(o.hits, n.hits...), o.seen+n.seen
		}
	}
}

// voted prints the votes of reciprocal ranks for the hits of an answer of several partitions.
func (a *answered) voted(req *summapb.SearchRequest) (out []string) {
	f := req.Query.GetFusion()
	votes := rrfVotes(f, a.organic, req.L1 != nil || req.ScoreExport != nil)
	for i, h := range a.hits {
		if mine := votes[h.d]; len(mine) > 0 {
			out = append(out, fmt.Sprintf("hit %d: votes %s", i, Score(rrfSum(f, mine))))
			for _, v := range mine {
				line := fmt.Sprintf("branch %d %q rank %d %s", v.branch, f.Queries[v.branch].Name, v.rank, Score(v.score))
				if !v.whole {
					line += fmt.Sprint(" for ", v.ordinal)
				}
				out = append(out, line)
			}
		}
	}
	return out
}

// votesOf prints votes as they came.
func votesOf(m *summapb.SearchResponse) (out []string) {
	for i, h := range m.Hits {
		if h.RrfScore != nil {
			out = append(out, fmt.Sprintf("hit %d: votes %s", i, Score(*h.RrfScore)))
		}
		for _, v := range h.RrfContributions {
			line := fmt.Sprintf("branch %d %q rank %d %s", v.QueryIndex, v.QueryName, v.Rank, Score(v.Score))
			if v.Ordinal != nil {
				line += fmt.Sprint(" for ", *v.Ordinal)
			}
			out = append(out, line)
		}
	}
	return out
}

// traced says what each partition tells of a request: what its branches nominated.
func (o *Oracle) traced(req *summapb.SearchRequest, depth int, traces []map[int]nomination, line func(h ohit) string) (out []string) {
	queries := []*summapb.WeightedQuery{{Query: req.Query}}
	if f := req.Query.GetFusion(); f != nil {
		queries = f.Queries
	}
	for i, said := range traces {
		out = append(out, fmt.Sprintf("trace of %s, %s", o.parts[i], req.IndexName))
		for k, q := range queries {
			out = append(out, fmt.Sprintf("query %d %q %v %v %d %d", k, q.Name, q.Scope, q.ScoreOnly, depth, said[k].seen))
			for _, h := range said[k].hits {
				out = append(out, line(h))
			}
		}
	}
	return out
}

// tracesOf prints traces as they came.
func tracesOf(t *summapb.SearchTrace, line func(c *summapb.FusionCandidate) string) (out []string) {
	for _, s := range t.GetShards() {
		out = append(out, fmt.Sprintf("trace of %s, %s", s.ShardId, s.IndexName))
		for _, q := range s.Queries {
			out = append(out, fmt.Sprintf("query %d %q %v %v %d %d", q.QueryIndex, q.QueryName, q.Scope, q.ScoreOnly, q.CandidateDepth, q.TotalSeen))
			for _, c := range q.Candidates {
				out = append(out, line(c))
			}
		}
	}
	return out
}
