package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/bench/internal/peer"
	"github.com/weft-search/weft/bench/internal/workload"
)

// weft's counts and top ten are those of brute force.
func TestAgainstBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	var docs []peer.Doc
	for i := range 2500 { // more than two batches, and the last one short
		var b strings.Builder
		for range 5 + rnd.IntN(60) {
			fmt.Fprintf(&b, "Word%d, ", int(900*rnd.Float64()*rnd.Float64()*rnd.Float64()))
		}
		docs = append(docs, peer.Doc{ID: fmt.Sprint("id-", i), Body: b.String()})
	}
	o := workload.NewOracle(docs)
	queries := workload.Queries(o, []peer.Query{
		{Class: "bool", Op: "bool", Words: []string{"+word1", "-word2"}},
		{Class: "bool", Op: "bool", Words: []string{"+word1", "word400"}},
		{Class: "bool", Op: "bool", Words: []string{"word300", "word301", "-word0"}},
	}, 2)
	dir := filepath.Join(t.TempDir(), "ix")
	r, err := engine{}.Index(docs, dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Segments != 1 {
		t.Errorf("%d segments", r.Segments)
	}
	s, err := engine{}.Open(dir, queries)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	number := o.Numbers()
	for i, q := range queries {
		want := o.Matches(q, nil)
		for _, m := range []peer.Mode{peer.Count, peer.Top10Count} {
			if n, err := s.Search(i, m); err != nil || n != q.Count {
				t.Errorf("%v: mode %s gives %d, %v; want %d", q, peer.Modes[m], n, err, q.Count)
			}
		}
		hits, err := s.Hits(i)
		if err != nil || len(hits) != min(10, len(want)) {
			t.Fatalf("%v: %d hits of %d, %v", q, len(hits), len(want), err)
		}
		score := map[int]float64{}
		for _, w := range want {
			score[w.Doc] = w.Score
		}
		for at, h := range hits {
			real, ok := score[number[h.ID]]
			if !ok || math.Abs(h.Score-want[at].Score) > 1e-5*h.Score || math.Abs(h.Score-real) > 1e-5*h.Score {
				t.Errorf("%v: place %d: %s scores %g, by brute force %g, the place %g", q, at+1, h.ID, h.Score, real, want[at].Score)
			}
		}
	}
}
