package knn

import (
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/vector"
)

// The choice of path compares what a scan and a graph walk would read, in bytes. Seed figures of the cost model; they were
// measured with the package's benchmark, and being off by two costs time only.
const (
	// touch is what going to a record in another place costs beside its bytes: about two cache lines.
	touch = 128
	// broad is the share of matching documents from which a walk that ignores the filter wastes less than one that minds it.
	broad = 0.6
	// widest bounds how much a narrow filter makes a masked walk longer.
	widest = 24
)

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
	// Vectors for each matching document, as over the whole leaf: documents without one are as frequent among the matching.
	share := float64(lp.Matching) / float64(max(l.NumDocs(), 1))
	lp.Estimate = uint64(share*float64(x.Len()) + 0.5)
	lp.ScanCost = float64(lp.Estimate) * float64(p.params.RecordSize()+scanTouch(share))
	lp.Path = Scan
	if req.Exact || !x.HasGraph() {
		return lp
	}
	ef := max(req.Ef, 2*req.K, 64)
	perStep := float64(2*p.params.M) * float64(codeBytes(p.params)+touch) / 2 // about half of the neighbours were seen before
	walk := float64(ef) * perStep
	rescore := float64(ef) * float64(p.params.RecordSize()+touch)
	masked := walk*min(1/share, widest) + rescore
	unmasked := (walk + rescore) / share
	lp.GraphCost = masked
	path := Masked
	if share >= broad {
		lp.GraphCost, path = min(masked, unmasked), Unmasked
	}
	if lp.GraphCost < lp.ScanCost {
		lp.Path, lp.Approximate = path, true
	}
	return lp
}

// scanTouch is the cost of finding the next record of a scan: none when nearly all are read, for the memory is then read ahead.
func scanTouch(share float64) int {
	if share > 0.25 {
		return 0
	}
	return touch
}

// codeBytes is the size of the codes that a graph is walked on.
func codeBytes(p vector.Params) int {
	if p.Kind == vector.Binary {
		return p.Dim / 8
	}
	return p.Dim
}
