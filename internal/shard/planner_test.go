package shard

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func sized(mib ...int64) []segmentSize {
	var out []segmentSize
	for _, m := range mib {
		out = append(out, segmentSize{bytes: m << 20, docs: 1000})
	}
	return out
}

func withDead(s []segmentSize, i int, dead uint32) []segmentSize {
	s[i].dead = dead
	return s
}

func withHeap(s []segmentSize, mib int64) []segmentSize {
	for i := range s {
		s[i].heap = mib << 20
	}
	return s
}

func TestPlanMerges(t *testing.T) {
	p := mergePolicy{maxBytes: 1 << 30, maxHeap: 256 << 20, floorBytes: 2 << 20, perTier: 4, maxAtOnce: 6, reclaim: 0.3}
	for _, c := range []struct {
		about string
		segs  []segmentSize
		want  [][]int
	}{
		{"nothing", nil, nil},
		{"too few", sized(1, 1, 1), nil},
		{"one tier full", sized(1, 1, 1, 1), [][]int{{0, 1, 2, 3}}},
		{"different tiers do not mix", sized(1, 1, 20, 20, 100, 500), nil},
		{"only the full tier", sized(100, 1, 1, 20, 1, 1), [][]int{{1, 2, 4, 5}}},
		{"at most so many at once", sized(1, 1, 1, 1, 1, 1, 1, 1), [][]int{{0, 1, 2, 3, 4, 5}}},
		{"two tasks from one tier", sized(1, 1, 1, 1, 1, 1, 1, 1, 1, 1), [][]int{{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9}}},
		{"smallest first", sized(6, 3, 6, 3, 6, 3, 6), [][]int{{0, 1, 2, 3, 4, 5}}},
		{"the result has a limit", sized(300, 310, 320, 330), [][]int{{0, 1, 2}}},
		{"too large to be merged", sized(600, 700, 800, 900), nil},
		{"dead documents count as gone", withDead(withDead(sized(1, 1, 1, 20), 3, 950), 0, 10), [][]int{{0, 1, 2, 3}}},
		{"reclaimed alone", withDead(sized(100, 1), 0, 301), [][]int{{0}}},
		{"not enough to reclaim", withDead(sized(100, 1), 0, 300), nil},
		{"a large one is reclaimed too", withDead(sized(2000), 0, 400), [][]int{{0}}},
		{"graphs have a limit", withHeap(sized(70, 70, 70, 70), 100), [][]int{{0, 1}}},
		{"graphs below the limit", withHeap(sized(70, 70, 70, 70), 10), [][]int{{0, 1, 2, 3}}},
		{"too large a graph to be merged", withHeap(sized(100, 100, 100, 100), 129), nil},
		{"dead documents leave the graph too", withDead(withHeap(sized(70, 70, 70, 70), 100), 3, 900), [][]int{{3}}},
		{"all dead", withDead(sized(5), 0, 1000), [][]int{{0}}},
	} {
		got := planMerges(c.segs, p)
		if !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%s: plan %v, want %v", c.about, got, c.want)
		}
	}
}

// TestPlanConverges merges random loads until the planner is content and checks what it promises.
func TestPlanConverges(t *testing.T) {
	for s := range uint64(200) {
		r := rand.New(rand.NewPCG(s, 3))
		p := defaultMergePolicy(1<<30, 1<<30)
		var segs []segmentSize
		var written, loaded int64
		for range 400 {
			n := segmentSize{bytes: 1<<20 + r.Int64N(8<<20), docs: 1000, dead: r.Uint32N(200)}
			segs = append(segs, n)
			loaded += n.bytes
			for round := 0; ; round++ {
				plan := planMerges(segs, p)
				if len(plan) == 0 {
					break
				}
				if round > 100 {
					t.Fatalf("seed %d: no end of merging %v", s, segs)
				}
				seen := map[int]bool{}
				for _, task := range plan {
					for _, i := range task {
						if seen[i] || !slices.IsSorted(task) {
							t.Fatalf("seed %d: bad plan %v", s, plan)
						}
						seen[i] = true
					}
				}
				task := plan[0]
				var merged segmentSize
				for _, i := range task {
					merged.bytes += segs[i].liveBytes()
					merged.docs += segs[i].docs - segs[i].dead
				}
				if len(task) > 1 && merged.bytes > p.maxBytes {
					t.Fatalf("seed %d: merge of %d bytes", s, merged.bytes)
				}
				written += merged.bytes
				for k := len(task) - 1; k >= 0; k-- {
					segs = slices.Delete(segs, task[k], task[k]+1)
				}
				segs = append(segs, merged)
			}
		}
		if len(segs) > 4*p.perTier {
			t.Fatalf("seed %d: %d segments are left", s, len(segs))
		}
		if written > 5*loaded {
			t.Fatalf("seed %d: wrote %d bytes for %d", s, written, loaded)
		}
	}
}

// Merges make no segment of more documents than they may, and leave as few as that allows, or nearly.
func TestPlansOfBoundedDocuments(t *testing.T) {
	counts := func(docs ...uint32) (out []segmentSize) {
		for _, n := range docs {
			out = append(out, segmentSize{bytes: 1 << 20, docs: n})
		}
		return out
	}
	p := mergePolicy{maxBytes: 1 << 30, maxDocs: 25, floorBytes: 2 << 20, perTier: 4, maxAtOnce: 6, reclaim: 0.3}
	for _, c := range []struct {
		segs []segmentSize
		want [][]int
	}{
		{counts(10, 10, 10, 10), [][]int{{0, 1}}},
		{counts(13, 13, 13, 13), nil},
		{counts(5, 5, 5, 5, 13), [][]int{{0, 1, 2, 3}}},
		{withDead(counts(40, 5, 5, 5), 0, 35), [][]int{{0, 1, 2, 3}}},
	} {
		if got := planMerges(c.segs, p); !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%v: plan %v, want %v", c.segs, got, c.want)
		}
	}
	for _, c := range []struct {
		segs []segmentSize
		max  int
		want []int
	}{
		{counts(10, 10, 10, 10), 1, []int{0, 1}},
		{counts(10, 20, 5, 12), 1, []int{1, 2}},
		{counts(10, 25, 5, 12), 1, []int{0, 3}},
		{counts(13, 13, 25, 40), 1, nil},
		{counts(1, 1, 1, 1), 3, []int{0, 1}},
		{counts(1, 1, 1, 1), 4, nil},
		{withDead(counts(40, 30), 0, 1), 1, []int{0}},
	} {
		if got := planForced(c.segs, c.max, 25); !slices.Equal(got, c.want) {
			t.Errorf("%v to %d: %v, want %v", c.segs, c.max, got, c.want)
		}
	}
	// Whatever there is, forced merges end, and no two of what is left fit into one.
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 9))
		var segs []segmentSize
		for range 1 + r.IntN(30) {
			segs = append(segs, segmentSize{bytes: 1 << 20, docs: 1 + uint32(r.IntN(30))})
		}
		merges := 0
		for task := planForced(segs, 1, 25); task != nil; task = planForced(segs, 1, 25) {
			one := segmentSize{}
			for k := len(task) - 1; k >= 0; k-- {
				one.bytes += segs[task[k]].bytes
				one.docs += segs[task[k]].docs
				segs = slices.Delete(segs, task[k], task[k]+1)
			}
			if merges++; one.docs > 25 || merges > 30 {
				t.Fatalf("seed %d: merge %d makes one of %d documents", seed, merges, one.docs)
			}
			segs = append(segs, one)
		}
		slices.SortFunc(segs, func(a, b segmentSize) int { return int(a.docs) - int(b.docs) })
		if len(segs) > 1 && segs[0].docs+segs[1].docs <= 25 {
			t.Errorf("seed %d: %v are left", seed, segs)
		}
	}
}

func TestPlanForced(t *testing.T) {
	for _, c := range []struct {
		about string
		segs  []segmentSize
		max   int
		want  []int
	}{
		{"nothing", nil, 1, nil},
		{"one clean", sized(5), 1, nil},
		{"one with dead", withDead(sized(5), 0, 1), 1, []int{0}},
		{"to one", sized(5, 900, 1), 1, []int{0, 1, 2}},
		{"to two takes the smallest", sized(5, 900, 1), 2, []int{0, 2}},
		{"few enough", sized(5, 900), 3, nil},
		{"few enough but dead", withDead(sized(5, 900), 1, 3), 3, []int{1}},
		{"zero means one", sized(1, 2), 0, []int{0, 1}},
	} {
		if got := planForced(c.segs, c.max, 0); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.about, got, c.want)
		}
	}
}

func TestKeyFilter(t *testing.T) {
	for _, n := range []int{0, 1, 47, 48, 1000, 50_000} {
		f := newKeyFilter(n)
		key := func(i int) string {
			return "key/" + string(rune('a'+i%26)) + "/" + string(rune(0x100+i%5000)) + string(rune(0x100+i/5000))
		}
		for i := range n {
			f.add([]byte(key(i)))
		}
		wrong := 0
		for i := range n {
			if !f.has(key(i)) {
				t.Fatalf("%d keys: key %d is missing", n, i)
			}
			if f.has("other/" + key(i)) {
				wrong++
			}
		}
		if wrong > n/40+3 {
			t.Errorf("%d keys: %d false positives", n, wrong)
		}
	}
}
