package oracletest

import (
	"fmt"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/summa"
)

// Found is for an answer that may lack some of what there is: of a graph of vectors, or when its time was over. It counts the hits that
// a whole answer has, of how many, and says what is wrong with one: a document that does not match or is there twice, a score that is not its own, an
// order that is not that of scores. A vector within the query nominates every document here. leaf is that of Differs.
func (o *Oracle) Found(req *summapb.SearchRequest, w summa.Window, got *summapb.SearchResponse, leaf func(segment string) int) (best, of int, wrong string) {
	want, _ := o.search(req, w)
	whole := map[Place]bool{}
	for _, h := range want.hits {
		whole[Place{"", h.d.leaf, h.d.doc}] = true
	}
	w.Limit, w.Offset, w.Candidates, w.Depth = len(o.docs), 0, len(o.docs), len(o.docs)
	all, bad := o.search(req, w)
	if bad != nil || all.wrong != "" {
		return 0, 0, fmt.Sprint(bad, all.wrong)
	}
	scores := map[Place]float32{}
	for _, h := range all.hits {
		scores[Place{"", h.d.leaf, h.d.doc}] = h.score
	}
	seen := map[Place]bool{}
	for i, h := range got.Hits {
		p := Place{"", leaf(h.Address.GetSegmentId()), h.Address.GetDocId()}
		want, ok := scores[p]
		switch {
		case !ok:
			return 0, 0, fmt.Sprintf("hit %d, %v, does not match", i, p)
		case seen[p]:
			return 0, 0, fmt.Sprintf("hit %d, %v, was there", i, p)
		case Score(h.Score) != Score(want):
			return 0, 0, fmt.Sprintf("hit %d, %v, scores %s, want %s", i, p, Score(h.Score), Score(want))
		case i > 0 && h.Score > got.Hits[i-1].Score:
			return 0, 0, fmt.Sprintf("hit %d, %v, is better than the one before", i, p)
		}
		if seen[p] = true; whole[p] {
			best++
		}
	}
	return best, len(whole), ""
}
