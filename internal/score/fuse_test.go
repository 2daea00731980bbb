package score_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/score"
)

type key struct {
	doc     string
	ordinal uint32
}

// naive is the contract's arithmetic written down once more, with maps and no thought for speed.
func naive(f score.Fusion, branches []score.Branch[string]) map[string]float32 {
	passages := map[string]map[uint32]float32{}
	whole := map[string]float32{}
	docs := map[string]bool{}
	for _, last := range []bool{false, true} {
		for _, b := range branches {
			best := map[key]float32{}
			for _, h := range b.Hits {
				docs[h.Doc] = true
				k := key{h.Doc, h.Ordinal}
				if b.Whole {
					k.ordinal = 0
				}
				if s, ok := best[k]; !ok || h.Score > s {
					best[k] = h.Score
				}
			}
			var order []key
			least, most := float32(math.MaxFloat32), float32(-math.MaxFloat32)
			for k, s := range best {
				order = append(order, k)
				least, most = min(least, s), max(most, s)
			}
			slices.SortFunc(order, func(a, c key) int {
				return cmp.Or(cmp.Compare(best[c], best[a]), strings.Compare(a.doc, c.doc), cmp.Compare(a.ordinal, c.ordinal))
			})
			for i, k := range order {
				c := b.Weight * (1 / (f.K + float32(i+1)))
				if f.Method == score.WeightedSum {
					c = b.Weight
					if least < most {
						c = b.Weight * (best[k] - least)
						c *= 1 / (most - least)
					}
				}
				if b.Whole {
					if !last {
						whole[k.doc] += c
					}
				} else if !last {
					if passages[k.doc] == nil {
						passages[k.doc] = map[uint32]float32{}
					}
					passages[k.doc][k.ordinal] += c
				}
			}
		}
	}
	out := map[string]float32{}
	for d := range docs {
		out[d] = whole[d]
		if p := passages[d]; p != nil {
			var ordinals []uint32
			for o := range p {
				ordinals = append(ordinals, o)
			}
			slices.Sort(ordinals)
			var s []float32
			for _, o := range ordinals {
				s = append(s, p[o]+whole[d])
			}
			out[d] = f.Combiner.Combine(s)
		}
	}
	return out
}

func randomBranches(r *rand.Rand, whole bool) []score.Branch[string] {
	out := make([]score.Branch[string], 1+r.IntN(4))
	for i := range out {
		out[i].Weight = float32(r.IntN(5)) / 3
		out[i].Whole = whole && r.IntN(3) == 0
		for range r.IntN(40) {
			out[i].Hits = append(out[i].Hits, score.Hit[string]{
				Doc: fmt.Sprintf("d%02d", r.IntN(20)), Ordinal: uint32(r.IntN(4)), Score: float32(r.IntN(30)-10) / 7,
			})
		}
	}
	return out
}

func TestFuseEqualsTheNaiveWay(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for n := range 1000 {
		f := score.Fusion{
			Method: score.Method(r.IntN(2)), K: []float32{1, 60, 17.5}[r.IntN(3)],
			Combiner: score.Combiner{Kind: score.Max + score.CombinerKind(r.IntN(4))},
		}
		branches := randomBranches(r, true)
		want := naive(f, branches)
		got, err := score.Fuse(f, branches, strings.Compare)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("round %d: %d documents, want %d", n, len(got), len(want))
		}
		for i, g := range got {
			if w, ok := want[g.Doc]; !ok || math.Float32bits(w) != math.Float32bits(g.Score) {
				t.Fatalf("round %d: %s scores %v, want %v", n, g.Doc, g.Score, w)
			}
			if i > 0 {
				p := got[i-1]
				if p.Score < g.Score || p.Score == g.Score && p.Doc >= g.Doc {
					t.Fatalf("round %d: %s %v stands before %s %v", n, p.Doc, p.Score, g.Doc, g.Score)
				}
			}
		}
	}
}

// TestFuseDoesNotDependOnTheOrderOfHits: a branch is a set, from however many shards it came.
func TestFuseDoesNotDependOnTheOrderOfHits(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		f := score.Fusion{Method: score.Method(r.IntN(2)), Combiner: score.Combiner{Kind: score.Sum}}
		branches := randomBranches(r, true)
		a, err := score.Fuse(f, branches, strings.Compare)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range branches {
			r.Shuffle(len(b.Hits), func(i, j int) { b.Hits[i], b.Hits[j] = b.Hits[j], b.Hits[i] })
		}
		b, err := score.Fuse(f, branches, strings.Compare)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("%v\n%v", a, b)
		}
	}
}

func TestFuseRankedLists(t *testing.T) {
	hits := func(ids ...string) []score.Hit[string] {
		var h []score.Hit[string]
		for i, id := range ids {
			h = append(h, score.Hit[string]{Doc: id, Score: float32(-i / 2)}) // equal scores keep the place they came with
		}
		return h
	}
	got, err := score.Fuse(score.Fusion{Ranked: true}, []score.Branch[string]{
		{Weight: 1, Hits: hits("c", "b", "a")}, {Weight: 1, Hits: hits("b", "d", "c")},
	}, strings.Compare)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, g := range got {
		fmt.Fprintf(&b, "%s %d %d %v\n", g.Doc, g.Vote(0).Rank, g.Vote(1).Rank, g.Score)
	}
	one := func(r float32) float32 { return 1 / (60 + r) }
	want := fmt.Sprintf("b 2 1 %v\nc 1 3 %v\nd 0 2 %v\na 3 0 %v\n", one(2)+one(1), one(1)+one(3), one(2), one(3))
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// TestFuseKnowsZeroFromMissing: a document that a branch gave its lowest score is in the branch, one that it did not name is not.
func TestFuseKnowsZeroFromMissing(t *testing.T) {
	got, err := score.Fuse(score.Fusion{Method: score.WeightedSum}, []score.Branch[string]{
		{Weight: 1, Hits: []score.Hit[string]{{Doc: "a", Score: 2}, {Doc: "b"}}},
		{Weight: 0, Hits: []score.Hit[string]{{Doc: "c", Score: 5}}},
	}, strings.Compare)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[1].Doc != "b" || got[1].Score != 0 || got[1].Vote(0).Rank != 2 || got[1].Vote(1).Rank != 0 || got[2].Vote(1).Rank != 1 {
		t.Errorf("%+v", got)
	}
}

func TestFuseRefuses(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	one := func(s float32) []score.Branch[string] {
		return []score.Branch[string]{{Weight: 1, Hits: []score.Hit[string]{{Doc: "a", Score: s}}}}
	}
	for _, c := range []struct {
		f    score.Fusion
		b    []score.Branch[string]
		want string
	}{
		{score.Fusion{}, one(nan), "fusion branch 0, hit 0: score must be finite"},
		{score.Fusion{}, one(inf), "fusion branch 0, hit 0: score must be finite"},
		{score.Fusion{K: -1}, one(1), "fusion rank constant must be finite and not negative"},
		{score.Fusion{K: nan}, one(1), "fusion rank constant must be finite and not negative"},
		{score.Fusion{Method: 2}, one(1), "fusion method 2 is unknown"},
		{score.Fusion{}, []score.Branch[string]{{Weight: -1}}, "fusion branch 0: weight must be finite and not negative"},
		{score.Fusion{}, []score.Branch[string]{{Weight: inf}}, "fusion branch 0: weight must be finite and not negative"},
		{score.Fusion{Ranked: true}, []score.Branch[string]{{Hits: []score.Hit[string]{{Doc: "a"}, {Doc: "a"}}}}, "fusion branch 0, hit 1: a ranked list names the passage twice"},
		{score.Fusion{Method: score.WeightedSum}, []score.Branch[string]{{Weight: 1, Hits: []score.Hit[string]{{Doc: "a", Score: 3e38}, {Doc: "b", Score: -3e38}}}}, "fusion branch 0: scores are too far apart"},
	} {
		_, err := score.Fuse(c.f, c.b, strings.Compare)
		var e *score.FusionError
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.f, err, c.want)
		}
	}
	_, err := score.Fuse(score.Fusion{Combiner: score.Combiner{Kind: score.WeightedTopK, Decay: 2}}, one(1), strings.Compare)
	var e *score.CombinerError
	if !errors.As(err, &e) {
		t.Errorf("decay 2: %v", err)
	}
}

func bigBranches(n int) []score.Branch[uint64] {
	r := rand.New(rand.NewPCG(4, 4))
	out := make([]score.Branch[uint64], 2)
	for i := range out {
		out[i].Weight = 1
		for j, d := range r.Perm(2 * n)[:n] {
			out[i].Hits = append(out[i].Hits, score.Hit[uint64]{Doc: uint64(d), Score: float32(n - j)})
		}
	}
	return out
}

func TestFuseAllocatesAFixedNumberOfTimes(t *testing.T) {
	count := func(n int) float64 {
		b := bigBranches(n)
		return testing.AllocsPerRun(5, func() {
			if _, err := score.Fuse(score.Fusion{Ranked: true}, b, cmp.Compare); err != nil {
				t.Fatal(err)
			}
		})
	}
	if a := count(2000); a > 40 {
		t.Errorf("%v allocations for 2 lists of 2000", a)
	}
}

func BenchmarkFuse(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		in := bigBranches(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := score.Fuse(score.Fusion{Ranked: true}, in, cmp.Compare); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
