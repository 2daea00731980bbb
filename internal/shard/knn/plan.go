package knn

import (
	"math"

	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/vector"
)

// broad is the share of matching documents from which the graph is walked without looking at the filter. Below it a filter that
// has to do with where vectors lie, such as a category, would make such a walk long, and its recall falls first.
const broad = 0.6

// plan chooses how a leaf is searched.
func plan(l exec.Leaf, match exec.LeafMatch, p *prepared, req *Request) LeafPlan {
	lp := LeafPlan{Path: Empty, Docs: l.LiveDocs(), Matching: match.Count}
	if p.sparse != nil {
		if x := l.SparseVectors(p.field); x != nil {
			lp.Vectors = x.Len()
		}
		if lp.Vectors > 0 && lp.Matching > 0 {
			lp.Path = Lists
		}
		return lp
	}
	x := l.Vectors(p.field)
	if x == nil || x.Len() == 0 || lp.Matching == 0 {
		return lp
	}
	lp.Vectors = x.Len()
	// Documents without a vector are taken to be as frequent among the matching as among all.
	share := float64(lp.Matching) / float64(max(l.NumDocs(), 1))
	accepted := int(math.Ceil(share * float64(x.Docs())))
	c := x.Costs(vector.Options{K: req.K, Ef: req.Ef}, accepted)
	lp.Path, lp.ScanCost, lp.Estimate = Scan, c.Scan, uint64(math.Round(c.Scan))
	path, walk := Masked, c.Masked
	if share >= broad {
		path, walk = Unmasked, c.Unmasked
	}
	if !math.IsInf(walk, 1) {
		lp.GraphCost = walk
		if !req.Exact && walk < c.Scan {
			lp.Path, lp.Approximate = path, true
		}
	}
	return lp
}
