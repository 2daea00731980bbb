package node

import (
	"bytes"
	"context"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
)

// explain renders how the score of each hit was made; nil without explain.
func (x *execution) explain(ctx context.Context) ([][]byte, *api.Problem) {
	if !x.req.Explain {
		return nil, nil
	}
	defer x.watch.Lap(bound.StageExplain)
	trees, err := x.trees(ctx)
	switch {
	case err == nil:
		return trees, nil
	case x.tolerate(err):
		return nil, nil
	}
	return nil, x.placed(ctx, err)
}

// trees renders how the score of each hit was made. What they take is charged as they grow.
func (x *execution) trees(ctx context.Context) ([][]byte, error) {
	trees := make([][]byte, len(x.rank.hits))
	var lexical *exec.Explainer // nil where no hit has a text score
	if len(trees) > 0 && (x.req.KNN == nil || !x.query.Everything) {
		var err error
		lexical, err = exec.NewExplainer(ctx, x.leaves, x.sch, x.analyzers, exec.Request{Query: x.query.Root, Stats: x.stats, DefaultFields: x.req.DefaultFields}, x.rank.hits)
		if err != nil {
			return nil, err
		}
		defer lexical.Close()
	}
	var scratch []byte
	var size, charged int64
	for i := range trees {
		var err error
		if scratch, err = x.appendTree(scratch[:0], lexical, i); err != nil {
			return nil, err
		}
		trees[i] = bytes.Clone(scratch)
		if size += int64(len(scratch)); size > x.node.cfg.Limits.ReplyBytes {
			return nil, bound.LongTrees(x.node.cfg.Limits.ReplyBytes)
		}
		if more := front.ReplyCopies * (size - charged); more >= chargeFrom {
			if err := x.charge(more); err != nil {
				return nil, err
			}
			charged = size
		}
	}
	return trees, nil
}

// appendTree appends how the score of hit i was made.
func (x *execution) appendTree(b []byte, lexical *exec.Explainer, i int) ([]byte, error) {
	h := &x.rank.hits[i]
	if x.req.KNN == nil {
		return appendLexical(b, lexical, i)
	}
	if x.query.Everything {
		return x.vectorTree(b, h, h.Score)
	}
	v := &x.rank.votes[i]
	return bound.AppendFused(b, x.req, h.Score, v,
		func(b []byte) ([]byte, error) { return appendLexical(b, lexical, i) },
		func(b []byte) ([]byte, error) { return x.vectorTree(b, h, v.VectorScore) })
}

func appendLexical(b []byte, lexical *exec.Explainer, i int) ([]byte, error) {
	e, err := lexical.Explain(i)
	if err != nil {
		return nil, err
	}
	return bound.AppendExplanation(b, e), nil
}

func (x *execution) vectorTree(b []byte, h *exec.Hit, similarity float32) ([]byte, error) {
	values, err := knn.Values(x.leaves, x.sch, x.vectorRequest(x.req.KNN, 0, x.req.Filters), h.Leaf, h.Doc)
	if err != nil {
		return nil, err
	}
	return bound.AppendVector(b, x.sch, x.req.KNN, similarity, values), nil
}
