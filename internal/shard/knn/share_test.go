package knn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
)

func TestShare(t *testing.T) {
	for _, c := range []struct {
		k, ef  int
		share  float64
		wk, we int
	}{
		{200, 0, 1, 200, 400},
		{200, 0, 1.0 / 3, 87, 174}, // 66.7 + 3·6.67
		{200, 0, 0.125, 40, 80},
		{200, 1000, 0.125, 40, 200},
		{10, 0, 1, 10, 100},
		{10, 0, 0.5, 10, 100},
		{10, 0, 0.125, 5, 50},
		{10, 0, 0.01, 2, 50}, // so few candidates that a walk may not come near
		{10, 20, 0.01, 2, 20},
		{10, 5, 0.01, 2, 10}, // fewer candidates than neighbours there cannot be
		{10, 0, 0, 1, 50},
		{1, 0, 0.1, 1, 100},
		{0, 0, 0.5, 0, 100},
	} {
		if k, ef := knn.Share(c.k, c.ef, c.share); k != c.wk || ef != c.we {
			t.Errorf("Share(%d, %d, %v) is %d and %d, not %d and %d", c.k, c.ef, c.share, k, ef, c.wk, c.we)
		}
	}
	for k := range 500 {
		for _, share := range []float64{0, 1e-9, 0.001, 0.1, 0.3, 0.5, 0.9, 0.999, 1} {
			pk, pef := knn.Share(k, 0, share)
			if float64(pk) < float64(k)*share || pk > k || pk == 0 && k > 0 || pef < pk {
				t.Fatalf("Share(%d, 0, %v) is %d and %d", k, share, pk, pef)
			}
		}
	}
}

// Segments are searched for their shares, and for all where one has more than that: the search finds no less than searches of each of them for all,
// and takes less where the nearest lie in all of them.
func TestSegmentsAreSearchedForTheirShares(t *testing.T) {
	const (
		segments = 3
		each     = 4200
		dim      = 8
	)
	ctx := context.Background()
	r := rand.New(rand.NewPCG(7, 7))
	sch := parse(t, `index t { field id: text<raw> [indexed, fast, primary]  field v: dense_vector<8> [indexed<metric: cosine, m: 8, ef_construction: 30>] }`)
	s, err := shard.Open(ctx, shard.Config{Dir: t.TempDir(), Schema: sch, NoBackground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	var everywhere, apart [][]float32
	for seg := range segments {
		var ops []shard.Op
		for i := range each {
			v := randomVector(r, dim)
			if seg == segments-1 && i%2 == 0 { // half of the last segment has a region of its own
				v[0] += 6
				apart = append(apart, v)
			} else {
				everywhere = append(everywhere, v)
			}
			key := fmt.Sprintf("k%d%06d", seg, i)
			ops = append(ops, shard.Op{Key: key, Doc: &schema.Document{Key: key, Fields: []schema.Values{
				{Field: 0, Text: []string{key}}, {Field: 1, Bytes: [][]byte{schema.AppendDense(nil, v)}},
			}}})
		}
		if _, err := s.Apply(ctx, ops); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	snap := s.Snapshot()
	defer snap.Release()
	leaves := snap.Leaves()
	if len(leaves) != segments {
		t.Fatalf("%d segments", len(leaves))
	}
	ask := func(leaves []exec.Leaf, req knn.Request) *knn.Result {
		t.Helper()
		res, err := knn.Search(ctx, leaves, snap.Schema(), nil, req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for _, c := range []struct {
		name string
		vecs [][]float32
		most float64 // comparisons, of those of searches for all
	}{{"everywhere", everywhere, 0.8}, {"in one", apart, 1.2}} {
		const queries, k = 20, 100
		found, foundAll := 0, 0
		var work, workAll uint64
		for range queries {
			req := knn.Request{Field: "v", Dense: c.vecs[r.IntN(len(c.vecs))], K: k, Combiner: score.Combiner{Kind: score.Max}}
			got := ask(leaves, req)
			if len(got.Hits) != k || !got.Plan.Approximate {
				t.Fatalf("%d hits, %+v", len(got.Hits), got.Plan)
			}
			for i := 1; i < k; i++ {
				if a, b := got.Hits[i-1], got.Hits[i]; a.Score < b.Score || a.Score == b.Score && a.Key >= b.Key {
					t.Fatalf("%v stands before %v", a, b)
				}
			}
			work += got.Plan.Work.Distances
			all := map[string]bool{}
			for i := range leaves {
				one := ask(leaves[i:i+1], req)
				workAll += one.Plan.Work.Distances
				for _, h := range one.Hits {
					all[h.Key] = true
				}
			}
			req.Exact = true
			for _, h := range ask(leaves, req).Hits {
				if slices.ContainsFunc(got.Hits, func(g exec.Hit) bool { return g.Key == h.Key }) {
					found++
				}
				if all[h.Key] {
					foundAll++
				}
			}
		}
		recall, whole := float64(found)/(queries*k), float64(foundAll)/(queries*k)
		share := float64(work) / float64(workAll)
		t.Logf("%s: recall %.4f, of searches for all %.4f; %.2f of their comparisons", c.name, recall, whole, share)
		if recall < whole-0.02 || recall < 0.95 {
			t.Errorf("%s: recall is %.4f, of searches of each segment for all %.4f", c.name, recall, whole)
		}
		if share > c.most {
			t.Errorf("%s: %d comparisons, searches of each segment for all make %d", c.name, work, workAll)
		}
	}
}
