package shard

import (
	"math/bits"
	"slices"
)

// segmentSize is what the merge planner knows of a segment.
type segmentSize struct {
	bytes int64
	docs  uint32
	dead  uint32
}

// liveBytes estimates what is left of the segment after a merge.
func (s segmentSize) liveBytes() int64 {
	if s.docs == 0 {
		return 0
	}
	return int64(float64(s.bytes) * float64(s.docs-s.dead) / float64(s.docs))
}

// mergePolicy has the limits of the planner. Merging is tiered as in Lucene's TieredMergePolicy and LSM trees: segments of
// similar size wait until there are enough of them, so a byte is rewritten about log(total/floor)/log(perTier) times.
type mergePolicy struct {
	maxBytes   int64   // largest segment a merge makes
	floorBytes int64   // smaller segments count as this large
	perTier    int     // segments of one tier that trigger a merge
	maxAtOnce  int     // segments merged at once
	reclaim    float64 // a segment with a larger share of dead documents is rewritten
}

func defaultMergePolicy(maxBytes int64) mergePolicy {
	return mergePolicy{maxBytes: maxBytes, floorBytes: 2 << 20, perTier: 8, maxAtOnce: 16, reclaim: 1.0 / 3}
}

// planMerges returns the sets of segments to merge, as ascending indexes; no segment is in two. It is a pure function: the same
// segments give the same plan.
//
// A tier holds the segments whose live size is within a factor of perTier. A tier that has perTier segments or more is
// merged, smallest first, as far as the result stays within maxBytes. Then segments with too many dead documents that no
// merge took are rewritten alone.
func planMerges(segs []segmentSize, p mergePolicy) [][]int {
	tiers := map[int][]int{}
	for i, s := range segs {
		if s.liveBytes() <= p.maxBytes/2 {
			t := p.tier(s.liveBytes())
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
			switch x, y := segs[a].liveBytes(), segs[b].liveBytes(); {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return a - b
		})
		for len(tier) >= p.perTier {
			var sum int64
			n := 0
			for n < len(tier) && n < p.maxAtOnce && sum+segs[tier[n]].liveBytes() <= p.maxBytes {
				sum += segs[tier[n]].liveBytes()
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

// planForced returns one set that brings the number of segments to at most maxSegments with no dead documents left, as far as
// one merge can, or nil when nothing is to be done. Calling it again after each merge ends.
func planForced(segs []segmentSize, maxSegments int) []int {
	maxSegments = max(maxSegments, 1)
	if len(segs) > maxSegments {
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
		if s.dead > 0 {
			return []int{i}
		}
	}
	return nil
}
