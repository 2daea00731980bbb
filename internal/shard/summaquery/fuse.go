package summaquery

import (
	"cmp"
	"slices"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/summa"
)

// fusion is the state of one fusion: its branches and what each of them found.
type fusion struct {
	r      *runner
	req    *summapb.FusionQuery
	w      summa.Window
	parts  []*part
	fields []int   // that each branch scores, where L1 asks; −1: none
	hits   [][]hit // of each branch, in the order of rank
	seen   []uint64
}

// place is a document of a leaf.
type place struct {
	leaf int32
	doc  uint32
}

// newFusion compiles and runs the branches; scored says that they will be scored by L1 or exported.
func (r *runner) newFusion(c *compiler, q *summapb.FusionQuery, w summa.Window, scored bool) (*fusion, error) {
	f := &fusion{r: r, req: q, w: w, fields: make([]int, len(q.GetQueries()))}
	what := "Invalid fusion sub-query: "
	if scored {
		what = "Invalid scoring branch: "
	}
	for _, b := range q.GetQueries() {
		if b.GetQuery() == nil {
			return nil, refuse("Fusion sub-query is missing")
		}
		p, err := c.query(b.GetQuery())
		if err != nil {
			return nil, within(what, err)
		}
		f.parts = append(f.parts, p)
	}
	var filters []*part
	for _, b := range q.GetFilters() {
		p, err := c.query(b)
		if err != nil {
			return nil, within("Invalid fusion filter: ", err)
		}
		filters = append(filters, p)
	}
	if scored {
		for i := range f.parts {
			if err := f.scoringBranch(i); err != nil {
				return nil, err
			}
		}
	}
	if err := r.prepare(append(slices.Clone(f.parts), filters...)...); err != nil {
		return nil, err
	}
	f.hits, f.seen = make([][]hit, len(f.parts)), make([]uint64, len(f.parts))
	for i, p := range f.parts {
		if q.GetQueries()[i].GetScoreOnly() {
			continue
		}
		var err error
		if f.hits[i], f.seen[i], err = r.run(p, filters, w.Depth); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// total is the sum of what the branches saw.
func (f *fusion) total() (n uint64) {
	for _, s := range f.seen {
		n += s
	}
	return n
}

// fusedBytes is what a passage of a branch takes while it is fused, and afterwards.
const fusedBytes = 192

// fused ranks the union of the branches; of the documents that it returns, the votes too.
func (f *fusion) fused(method score.Method, whole bool) ([]score.Fused[place], error) {
	total := 0
	for _, hits := range f.hits {
		for _, h := range hits {
			total += max(len(h.rows), 1)
		}
	}
	if err := cmp.Or(f.r.pressed(), f.r.hold(fusedBytes*total)); err != nil {
		return nil, err
	}
	lists := make([]score.Branch[place], len(f.hits))
	for i, hits := range f.hits {
		lists[i].Weight = cmp.Or(f.req.GetQueries()[i].GetWeight(), 1)
		lists[i].Whole = whole && !f.chunk(i) && f.req.GetQueries()[i].GetScope() == summapb.ScoreScope_SCORE_SCOPE_DOCUMENT
		for _, h := range hits {
			at := place{int32(h.leaf), h.doc}
			if len(h.rows) == 0 || lists[i].Whole {
				lists[i].Hits = append(lists[i].Hits, score.Hit[place]{Doc: at, Score: h.score})
				continue
			}
			for _, row := range h.rows {
				lists[i].Hits = append(lists[i].Hits, score.Hit[place]{Doc: at, Ordinal: row.Ordinal, Score: row.Score})
			}
		}
	}
	how := score.Fusion{Method: method, K: f.req.GetRrfK(), Combiner: score.Combiner{Kind: score.CombinerKind(f.req.GetCombiner())}}
	out, err := score.Fuse(how, lists, func(a, b place) int { return cmp.Or(cmp.Compare(a.leaf, b.leaf), cmp.Compare(a.doc, b.doc)) })
	if err != nil {
		return nil, failed("%v", err)
	}
	return out, nil
}

// ranked is the fusion without L1.
func (f *fusion) ranked() ([]hit, error) {
	method := score.RRF
	if f.req.GetMethod() == summapb.FusionMethod_FUSION_NORMALIZED_WEIGHTED_SUM {
		method = score.WeightedSum
	}
	fused, err := f.fused(method, false)
	if err != nil {
		return nil, err
	}
	hits := make([]hit, 0, min(len(fused), f.w.Candidates))
	for _, d := range fused[:min(len(fused), f.w.Candidates)] {
		hits = append(hits, hit{int(d.Doc.leaf), d.Doc.doc, d.Score, d.Passages})
	}
	return hits, nil
}

// union are the documents of all branches, by segment and document, with score 0.
func (f *fusion) union() []hit {
	seen := map[place]bool{}
	var out []hit
	for _, hits := range f.hits {
		for _, h := range hits {
			if at := (place{int32(h.leaf), h.doc}); !seen[at] {
				seen[at] = true
				out = append(out, hit{leaf: h.leaf, doc: h.doc})
			}
		}
	}
	slices.SortFunc(out, order)
	return out
}

// candidateLists are what the branches nominated, as it is sent.
func (f *fusion) candidateLists(room *summa.Room) ([]*summapb.FusionCandidateList, error) {
	var out []*summapb.FusionCandidateList
	for i, hits := range f.hits {
		if f.req.GetQueries()[i].GetScoreOnly() {
			continue
		}
		list, err := candidatesOf(f.r.ix, room, hits)
		if err != nil {
			return nil, err
		}
		out = append(out, &summapb.FusionCandidateList{QueryIndex: uint32(i), Candidates: list})
	}
	return out, nil
}

// candidatesOf are hits as candidates of a reply, charged before they are made.
func candidatesOf(ix *Index, room *summa.Room, hits []hit) ([]*summapb.FusionCandidate, error) {
	if err := room.Take(summa.CandidateCost*len(hits) + rowsCost(hits)); err != nil {
		return nil, err
	}
	out := make([]*summapb.FusionCandidate, len(hits))
	for i, h := range hits {
		out[i] = &summapb.FusionCandidate{Address: address(ix, h), Score: h.score, OrdinalScores: ordinals(h.rows)}
	}
	return out, nil
}

// rowsCost is what the scores of the values of hits take in a reply.
func rowsCost(hits []hit) int {
	n := 0
	for _, h := range hits {
		n += len(h.rows)
	}
	return summa.OrdinalCost * n
}

func address(ix *Index, h hit) *summapb.DocAddress {
	return &summapb.DocAddress{SegmentId: ix.Segments[h.leaf], DocId: h.doc}
}

func ordinals(rows []score.Passage) []*summapb.OrdinalScore {
	if len(rows) == 0 {
		return nil
	}
	out := make([]*summapb.OrdinalScore, len(rows))
	for i, row := range rows {
		out[i] = &summapb.OrdinalScore{Ordinal: row.Ordinal, Score: row.Score}
	}
	return out
}

// diagnose fills the votes of reciprocal ranks for the hits of a reply. scored says that L1 or an export was asked for: then the votes of
// branches of documents are for no passage.
func (f *fusion) diagnose(hits []hit, out []*summapb.SearchHit, scored bool, room *summa.Room) error {
	fused, err := f.fused(score.RRF, scored)
	if err != nil {
		return err
	}
	at := make(map[place]*score.Fused[place], len(fused))
	for i := range fused {
		at[fused[i].Doc] = &fused[i]
	}
	for i, h := range hits {
		d := at[place{int32(h.leaf), h.doc}]
		if d == nil {
			continue
		}
		if !finiteScore(d.Score) {
			return errNotFinite()
		}
		cost := summa.ContributionCost
		for _, v := range d.Votes {
			cost += summa.ContributionCost + len(f.req.GetQueries()[v.Branch].GetName())
		}
		if err := room.Take(cost); err != nil {
			return err
		}
		sum := d.Score
		out[i].RrfScore = &sum
		for _, v := range d.Votes {
			c := &summapb.RrfContribution{QueryIndex: uint32(v.Branch), QueryName: f.req.GetQueries()[v.Branch].GetName(), Rank: v.Rank, Score: v.Score}
			if !v.Whole {
				o := v.Ordinal
				c.Ordinal = &o
			}
			out[i].RrfContributions = append(out[i].RrfContributions, c)
		}
	}
	return nil
}

// trace tells what the branches did.
func (f *fusion) trace(room *summa.Room) ([]*summapb.QueryTrace, error) {
	var out []*summapb.QueryTrace
	for i, q := range f.req.GetQueries() {
		list, err := candidatesOf(f.r.ix, room, f.hits[i])
		if err != nil {
			return nil, err
		}
		out = append(out, &summapb.QueryTrace{
			QueryIndex: uint32(i), QueryName: q.GetName(), Query: q.GetQuery(), Scope: q.GetScope(), ScoreOnly: q.GetScoreOnly(),
			CandidateDepth: uint32(f.w.Depth), TotalSeen: uint32(min(f.seen[i], 1<<32-1)), Candidates: list,
		})
	}
	return out, nil
}
