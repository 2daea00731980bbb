package node

import (
	"bytes"
	"context"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/query"
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

// trees renders how the score of each hit was made.
func (x *execution) trees(ctx context.Context) ([][]byte, error) {
	var lexical *exec.Explainer // nil where no hit has a text score
	if len(x.rank.hits) > 0 && (x.req.KNN == nil || !x.query.Everything) {
		var err error
		if lexical, err = x.explainer(ctx, x.query.Root, x.rank.hits); err != nil {
			return nil, err
		}
		defer lexical.Close()
	}
	room := x.treeRoom()
	trees := make([][]byte, len(x.rank.hits))
	for i := range trees {
		var err error
		if trees[i], err = room.keep(func(b []byte) ([]byte, error) { return x.appendTree(b, lexical, i) }); err != nil {
			return nil, err
		}
	}
	return trees, nil
}

// explainer plans the explanations of what a query makes of hits. The caller closes it.
func (v *view) explainer(ctx context.Context, q query.Node, hits []exec.Hit) (*exec.Explainer, error) {
	return exec.NewExplainer(ctx, v.leaves, v.sch, v.analyzers, exec.Request{Query: q, Stats: v.stats, DefaultFields: v.defaultFields, Lenient: v.lenient}, hits)
}

// treeRoom bounds the explanations of a reply, and charges what they take as they grow.
type treeRoom struct {
	v             *view
	scratch       []byte
	size, charged int64
}

func (v *view) treeRoom() *treeRoom { return &treeRoom{v: v} }

// keep renders one explanation.
func (r *treeRoom) keep(render func(b []byte) ([]byte, error)) ([]byte, error) {
	var err error
	if r.scratch, err = render(r.scratch[:0]); err != nil {
		return nil, err
	}
	if r.size += int64(len(r.scratch)); r.size > r.v.node.cfg.Limits.ReplyBytes {
		return nil, bound.LongTrees(r.v.node.cfg.Limits.ReplyBytes)
	}
	if more := front.ReplyCopies * (r.size - r.charged); more >= chargeFrom {
		if err := r.v.charge(more); err != nil {
			return nil, err
		}
		r.charged = r.size
	}
	return bytes.Clone(r.scratch), nil
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
	return x.appendVector(b, x.req.KNN, h, similarity)
}

// appendVector appends how the similarity of a hit was made.
func (v *view) appendVector(b []byte, q *api.KNN, h *exec.Hit, similarity float32) ([]byte, error) {
	values, err := knn.Values(v.leaves, v.sch, v.vectorRequest(q, 0, nil), h.Leaf, h.Doc)
	if err != nil {
		return nil, err
	}
	return bound.AppendVector(b, v.sch, q, similarity, values), nil
}
