package shard

import (
	"math/bits"
	"slices"

	"github.com/weft-search/weft/internal/vector"
)

// segmentSize is what the merge planner knows of a segment.
type segmentSize struct {
	bytes int64
	docs  uint32
	dead  uint32
	heap  int64 // memory that building its graph of vectors takes
	other bool  // its vectors have other graphs than the schema asks for now
}

// liveBytes estimates what is left of the segment after a merge.
func (s segmentSize) liveBytes() int64 {
	if s.docs == 0 {
		return 0
	}
	return int64(float64(s.bytes) * float64(s.docs-s.dead) / float64(s.docs))
}

// graphHeap estimates the memory that building the graph of the vectors takes, by what packages vector and graph say of it: two codes,
// links with their distances, and a few numbers for each vector.
func graphHeap(p vector.Params, vectors int) int64 {
	if !p.Graph {
		return 0
	}
	code := p.Dim
	if p.Kind == vector.Binary {
		code /= 8
	}
	return int64(vectors) * int64(2*code+17*p.M+54)
}

// mergePolicy has the limits of the planner. Merging is tiered as in Lucene's TieredMergePolicy and LSM trees: segments of
// similar size wait until there are enough of them, so a byte is rewritten about log(total/floor)/log(perTier) times.
type mergePolicy struct {
	maxBytes   int64   // largest segment a merge makes
	maxDocs    int64   // most live documents of it; 0 = no limit
	maxHeap    int64   // most memory that building the graph of that segment may take; 0 = no limit
	floorBytes int64   // smaller segments count as this large
	perTier    int     // segments of one tier that trigger a merge
	maxAtOnce  int     // segments merged at once
	reclaim    float64 // a segment with a larger share of dead documents is rewritten
}

func defaultMergePolicy(maxBytes, maxHeap int64) mergePolicy {
	return mergePolicy{maxBytes: maxBytes, maxHeap: maxHeap, floorBytes: 2 << 20, perTier: 8, maxAtOnce: 16, reclaim: 1.0 / 3}
}

// size is what a segment counts for: its live bytes, or more where its graph is the nearer limit, in the same measure.
func (p mergePolicy) size(s segmentSize) int64 {
	bytes := s.liveBytes()
	if p.maxHeap <= 0 || s.bytes == 0 {
		return bytes
	}
	return max(bytes, int64(float64(bytes)/float64(s.bytes)*float64(s.heap)*float64(p.maxBytes)/float64(p.maxHeap)))
}

// live is how many documents a merge keeps of a segment.
func (s segmentSize) live() int64 { return int64(s.docs) - int64(s.dead) }

// planMerges returns the sets of segments to merge, as ascending indexes; no segment is in two. It is a pure function: the same
// segments give the same plan.
//
// A tier holds the segments whose size is within a factor of perTier. A tier that has perTier segments or more is
// merged, smallest first, as far as the result stays within maxBytes and maxDocs. Then segments with too many dead documents that no
// merge took are rewritten alone.
func planMerges(segs []segmentSize, p mergePolicy) [][]int {
	tiers := map[int][]int{}
	for i, s := range segs {
		if p.size(s) <= p.maxBytes/2 && (p.maxDocs == 0 || s.live() <= p.maxDocs/2) {
			t := p.tier(p.size(s))
			tiers[t] = append(tiers[t], i)
		}
	}
	var order []int
	for t := range tiers {
		order = append(order, t)
	}
	slices.Sort(order)

	var plan [][]int
	taken := make([]bool, len(segs))
	for _, t := range order {
		tier := tiers[t]
		slices.SortStableFunc(tier, func(a, b int) int {
			switch x, y := p.size(segs[a]), p.size(segs[b]); {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return a - b
		})
		for len(tier) >= p.perTier {
			var sum, docs int64
			n := 0
			for n < len(tier) && n < p.maxAtOnce && sum+p.size(segs[tier[n]]) <= p.maxBytes {
				if docs += segs[tier[n]].live(); p.maxDocs > 0 && docs > p.maxDocs {
					break
				}
				sum += p.size(segs[tier[n]])
				n++
			}
			if n < 2 {
				break
			}
			task := slices.Clone(tier[:n])
			slices.Sort(task)
			for _, i := range task {
				taken[i] = true
			}
			plan = append(plan, task)
			tier = tier[n:]
		}
	}
	for i, s := range segs {
		if !taken[i] && float64(s.dead) > p.reclaim*float64(s.docs) {
			plan = append(plan, []int{i})
		}
	}
	return plan
}

// tier is the number of factors of perTier between the floor and the size.
func (p mergePolicy) tier(size int64) int {
	t := 0
	for q := uint64(max(size, p.floorBytes)) / uint64(p.floorBytes); q >= uint64(p.perTier); q /= uint64(p.perTier) {
		t++
	}
	return t
}

// planForced returns one set that brings the number of segments to at most maxSegments with no dead documents and no graphs of other options
// left, as far as one merge can, or nil when nothing is to be done. Calling it again after each merge ends. Where maxDocs is not 0, no set of several
// segments has more live documents, and more segments than asked for may be left.
func planForced(segs []segmentSize, maxSegments int, maxDocs int64) []int {
	maxSegments = max(maxSegments, 1)
	if len(segs) > maxSegments && maxDocs > 0 {
		if task := planPacked(segs, len(segs)-maxSegments+1, maxDocs); task != nil {
			return task
		}
	} else if len(segs) > maxSegments {
		order := make([]int, len(segs))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			return bits.Len64(uint64(segs[a].liveBytes())) - bits.Len64(uint64(segs[b].liveBytes()))
		})
		task := order[:len(segs)-maxSegments+1]
		slices.Sort(task)
		return task
	}
	for i, s := range segs {
		if s.dead > 0 || s.other {
			return []int{i}
		}
	}
	return nil
}

// planPacked returns up to so many segments that have no more live documents together than maxDocs: the one with the most that another fits beside,
// and those that fill it best, the largest first. nil: no two do.
func planPacked(segs []segmentSize, most int, maxDocs int64) []int {
	order := make([]int, len(segs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(max(segs[b].live()-segs[a].live(), -1), 1)) })
	for k, first := range order {
		task, docs := []int{first}, segs[first].live()
		for _, i := range order[k+1:] {
			if n := segs[i].live(); len(task) < most && docs+n <= maxDocs {
				task, docs = append(task, i), docs+n
			}
		}
		if len(task) > 1 {
			slices.Sort(task)
			return task
		}
	}
	return nil
}
