package knn

import (
	"context"
	"fmt"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/vector"
)

// MaxSamples bounds RecallRequest.Samples.
const MaxSamples = 1000

// RecallRequest asks how well the graph of a field finds what a scan finds.
type RecallRequest struct {
	Field   string
	K       int // neighbours of each sample, 1 to MaxK
	Samples int // query vectors, 1 to MaxSamples
	Ef      int // as in Request
}

// RecallResult is the answer of Recall.
type RecallResult struct {
	Recall      float64 // share of the exact K nearest that the default search returned, over all samples; 1 without samples
	K           int
	Samples     int  // vectors that were there to take, at most those asked for
	Approximate bool // some search walked a graph: without that recall is 1 by construction
}

// Recall takes stored vectors, evenly spread over the live documents, as queries and compares the default search with the exact
// one. The document that a query was taken from does not count, being found too easily; a returned document whose similarity
// equals that of the last exact one counts as found.
func Recall(ctx context.Context, leaves []exec.Leaf, sch *schema.Schema, req RecallRequest) (*RecallResult, error) {
	if req.K < 1 || req.K >= MaxK {
		return nil, &exec.QueryError{Code: CodeVector, Field: req.Field, Reason: fmt.Sprintf("the number of neighbours is from 1 to %d", MaxK-1), Limit: MaxK - 1}
	}
	if req.Samples < 1 || req.Samples > MaxSamples {
		return nil, &exec.QueryError{Code: CodeVector, Field: req.Field, Reason: fmt.Sprintf("the number of samples is from 1 to %d", MaxSamples), Limit: MaxSamples}
	}
	f, ok := sch.Lookup(req.Field)
	if !ok {
		return nil, &exec.QueryError{Code: "unknown_field", Field: req.Field, Reason: "the index has no such field"}
	}
	fd := &sch.Fields[f]
	if (fd.Type != schema.DenseVector && fd.Type != schema.BinaryVector) || !fd.Indexed {
		return nil, &exec.QueryError{Code: CodeNotVector, Field: req.Field, Reason: "recall is measured on indexed dense and binary vectors; other searches are exact"}
	}
	params, err := vector.ParamsOf(fd)
	if err != nil {
		return nil, fmt.Errorf("field %q: %w", fd.Name, err)
	}
	match, err := exec.Match(ctx, leaves, sch, nil, nil, nil, exec.MatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("recall of field %q: %w", req.Field, err)
	}
	res := &RecallResult{Recall: 1, K: req.K}
	var found, wanted int
	for _, s := range sample(leaves, match, f, req.Samples) {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("recall of field %q: %w", req.Field, err)
		}
		q := Request{Field: req.Field, K: req.K + 1, Ef: req.Ef, Combiner: score.Combiner{Kind: score.Max}}
		rec := leaves[s.leaf].Vectors(f).Record(s.ord)
		if params.Kind == vector.Binary {
			q.Bits = rec
		} else {
			q.Dense = vector.Decode(params, nil, rec)
		}
		p, err := prepare(sch, &q)
		if err != nil {
			continue // a stored zero vector is no query
		}
		got, err := search(ctx, leaves, match, p, &q)
		if err != nil {
			return nil, err
		}
		q.Exact = true
		want, err := search(ctx, leaves, match, p, &q)
		if err != nil {
			return nil, err
		}
		res.Samples++
		res.Approximate = res.Approximate || got.Plan.Approximate
		g, w := without(got.Hits, s, req.K), without(want.Hits, s, req.K)
		wanted += len(w)
		if len(w) > 0 {
			for _, h := range g {
				if h.Score >= w[len(w)-1].Score {
					found++
				}
			}
		}
	}
	if wanted > 0 {
		res.Recall = float64(found) / float64(wanted)
	}
	return res, nil
}

// place is one stored vector.
type place struct {
	leaf, ord int
	doc       uint32
}

// without returns the first k hits other than the sample's own document.
func without(hits []exec.Hit, s place, k int) []exec.Hit {
	out := make([]exec.Hit, 0, k)
	for _, h := range hits {
		if (h.Leaf != s.leaf || h.Doc != s.doc) && len(out) < k {
			out = append(out, h)
		}
	}
	return out
}

// sample picks vectors of live documents, evenly spaced over all of the field.
func sample(leaves []exec.Leaf, match *exec.MatchSet, field, n int) []place {
	total := 0
	for _, l := range leaves {
		if x := l.Vectors(field); x != nil {
			total += x.Len()
		}
	}
	if total == 0 {
		return nil
	}
	n = min(n, total)
	out := make([]place, 0, n)
	li, base := 0, 0
	last := -1
	for i := range n {
		at := int((2*uint64(i) + 1) * uint64(total) / (2 * uint64(n)))
		for at = max(at, last+1); at < total; at++ {
			for x := leaves[li].Vectors(field); x == nil || at-base >= x.Len(); x = leaves[li].Vectors(field) {
				if x != nil {
					base += x.Len()
				}
				li++
			}
			doc := leaves[li].Vectors(field).Doc(at - base)
			if set := accept(leaves[li], match.Leaves[li]); set == nil || set.Has(doc) {
				out = append(out, place{li, at - base, doc})
				break
			}
		}
		last = at
	}
	return out
}
