package oracletest

import (
	"cmp"
	"slices"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/summa"
)

// Sharded makes the oracle answer as a broker before several shards does: leaf i lies on shard[i]. Scores and statistics are of all
// documents, but each shard finds for itself the candidates that a request asks for, so that all of them may be more than one index would
// look at. With one shard what the broker passes on is the node's answer. It is to be called behind Ready; the leaves have to be numbered in
// the order of all segments.
func (o *Oracle) Sharded(shard []int, shards int) { o.shard, o.shards = slices.Clone(shard), shards }

// Coordinated tells whether a broker ranks a request itself (contracts/coordinated-search.md, When the broker coordinates).
func Coordinated(req *summapb.SearchRequest) bool {
	f := req.GetQuery().GetFusion()
	return req.GetTracing() || req.GetIncludeRrfScores() || req.GetL1() != nil ||
		f != nil && f.Method != summapb.FusionMethod_FUSION_CANDIDATES && req.GetReranker() == nil && req.GetScoreExport() == nil
}

// parts are the documents of each shard.
func (o *Oracle) parts() (out [][]*odoc) {
	for i := range o.shards {
		var docs []*odoc
		for _, d := range o.docs {
			if o.shard[d.leaf] == i {
				docs = append(docs, d)
			}
		}
		out = append(out, docs)
	}
	return out
}

// sharded answers a request to an index over several shards.
func (o *Oracle) sharded(req *summapb.SearchRequest, w summa.Window) (out answered, bad error) {
	r := o.running(req, w, o.docs)
	if o.shards == 1 && !Coordinated(req) {
		out = r.answer(req, w)
		return out, r.bad
	}
	of := w
	of.Limit, of.Offset = w.Hits(), 0
	for _, docs := range o.parts() {
		s := o.running(req, of, docs)
		if req.TextStats == nil {
			s.counted = o.docs // those of the shards are added up and sent along
		}
		r.shards = append(r.shards, s)
	}
	if f := req.Query.GetFusion(); f != nil && Coordinated(req) && req.Reranker == nil {
		if req.TimeBudgetMs > 0 {
			r.refuse() // not of complete scoring
			return out, r.bad
		}
		out = r.answer(req, w)
		for _, s := range r.shards {
			out.wrong = cmp.Or(out.wrong, s.wrong)
			r.bad = cmp.Or(r.bad, s.bad)
		}
		return out, r.bad
	}
	if req.Reranker != nil && req.L1 != nil {
		r.refuse()
		return out, r.bad
	}
	// Pointwise: by score, then segment, then each shard's own order.
	for _, s := range r.shards {
		a := s.answer(req, of)
		out.hits = append(out.hits, a.hits...)
		out.total += a.total
		out.wrong = cmp.Or(out.wrong, a.wrong)
		r.bad = cmp.Or(r.bad, s.bad)
		if a.exports != nil && out.exports == nil {
			out.exports = map[*odoc]exported{}
		}
		for d, e := range a.exports {
			out.exports[d] = e
		}
	}
	if f := req.Query.GetFusion(); (req.ScoreExport != nil || f.GetMethod() == summapb.FusionMethod_FUSION_CANDIDATES) && len(out.hits) > w.Limit {
		r.refuse() // an export has to be whole
	}
	slices.SortStableFunc(out.hits, func(a, b ohit) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.d.leaf, b.d.leaf)) })
	out.hits = out.hits[min(w.Offset, len(out.hits)):]
	out.hits = out.hits[:min(w.Limit, len(out.hits))]
	return out, r.bad
}

// nominate finds the best k documents of a branch of a fusion; of several shards those of each of them.
func (r *running) nominate(c *clause, filters []*clause, k int) (hits []ohit, total int) {
	if len(r.shards) == 0 {
		return r.run(c, filters, k)
	}
	for _, s := range r.shards {
		s.k = k
		own, n := s.run(c, filters, k)
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
	return r.shards[r.shard[d.leaf]]
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
			if r.shard[h.d.leaf] == i {
				own = append(own, h)
			}
		}
		out = append(out, own[:give(own)]...)
	}
	slices.SortStableFunc(out, comparePlain)
	return out
}
