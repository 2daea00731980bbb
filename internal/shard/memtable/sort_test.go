package memtable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestSortEntries compares with a plain sort: shared prefixes, zeros, entries that are prefixes of others, long equal stretches.
func TestSortEntries(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 6))
		var p pool
		var d dict
		prefix := strings.Repeat("p", r.IntN(30))
		letters := []string{"\x00", "\x00a", "ab", "\xff", "abcdefghijklmnopq"}[:1+r.IntN(5)]
		for range 1 + r.IntN(3000) {
			b := []byte(prefix)
			for range r.IntN(12) {
				b = append(b, letters[r.IntN(len(letters))]...)
			}
			if r.IntN(20) == 0 {
				b = append(b, bytes.Repeat([]byte("long"), r.IntN(400))...)
			}
			d.add(&p, hashOf(b), b)
		}
		var nums []uint32
		for i := range d.entries {
			if r.IntN(10) > 0 {
				nums = append(nums, uint32(i))
			}
		}
		get := func(n uint32) []byte { return p.published().bytes(d.entries[n].term, uint32(d.entries[n].size)) }
		want := slices.Clone(nums)
		slices.SortFunc(want, func(a, b uint32) int { return bytes.Compare(get(a), get(b)) })
		sortEntries(p.chunks, d.entries, nums)
		if !slices.Equal(nums, want) {
			t.Fatalf("seed %d: %d entries are in another order", seed, len(nums))
		}
	}
}

func BenchmarkSortEntries(b *testing.B) {
	var p pool
	var d dict
	for i := range 200_000 {
		k := fmt.Appendf(nil, "document/%08d", i*7919%1000003)
		d.add(&p, hashOf(k), k)
	}
	nums := make([]uint32, len(d.entries))
	for b.Loop() {
		for i := range nums {
			nums[i] = uint32(i)
		}
		sortEntries(p.chunks, d.entries, nums)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(nums)), "ns/entry")
}
