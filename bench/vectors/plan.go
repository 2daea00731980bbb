package main

import (
	"context"
	"strconv"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/vector"
)

// leaf is documents with a vector each and nothing else, of which those in accept are live: to a search the same as a filter that
// has been resolved. Methods that a vector search without a filter does not call are not there.
type leaf struct {
	exec.Leaf
	x      *vector.Index
	accept bitset.Set
	live   uint32
}

func (l *leaf) NumDocs() uint32                   { return uint32(l.x.Docs()) }
func (l *leaf) Live() bitset.Set                  { return l.accept }
func (l *leaf) LiveDocs() uint32                  { return l.live }
func (l *leaf) KeyOrdered() bool                  { return true }
func (l *leaf) Vectors(int) *vector.Index         { return l.x }
func (l *leaf) Key(doc uint32, dst []byte) []byte { return strconv.AppendUint(dst, uint64(doc), 10) }
func (l *leaf) Err() error                        { return nil }

var planSchema = &schema.Schema{Name: "vectors", Fields: []schema.Field{{Name: "v", Type: schema.DenseVector, Indexed: true, Metric: "cosine"}}}

// planned searches as a shard does, which chooses how. It also returns the path that the search of the first query takes.
func planned(x *vector.Index, d *data, set []uint64, k int) (search func(i int, dst []uint32) ([]uint32, error), path knn.Path, err error) {
	sch := *planSchema
	sch.Fields = []schema.Field{planSchema.Fields[0]}
	sch.Fields[0].Dim = d.dim
	l := &leaf{x: x, accept: set, live: uint32(bitset.Set(set).Count())}
	leaves := []exec.Leaf{l}
	ctx := context.Background()
	ask := func(i int) (*knn.Result, error) {
		return knn.Search(ctx, leaves, &sch, nil, knn.Request{Field: "v", Dense: d.queries[i], K: k})
	}
	first, err := ask(0)
	if err != nil {
		return nil, "", err
	}
	return func(i int, dst []uint32) ([]uint32, error) {
		r, err := ask(i)
		if err != nil {
			return nil, err
		}
		for _, h := range r.Hits {
			dst = append(dst, h.Doc)
		}
		return dst, nil
	}, first.Plan.Path, nil
}
