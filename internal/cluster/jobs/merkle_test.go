package jobs

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
)

// plainTuning has small batches and leaves, so that few documents make a tree.
func plainTuning(page, leafDocs, looks int) *tuning {
	return &tuning{batch: 4, list: 23, page: page, leafDocs: leafDocs, looks: looks, look: time.Second, beat: time.Second, lease: time.Minute, adopt: time.Minute}
}

// TestEqualMembersCostOneRoot: however many documents there are, what equal members are asked for is one digest of one range, and no count,
// list or checksum.
func TestEqualMembersCostOneRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.begin(placement.Ring, 1, 3)
		docs, _ := corpus(5000)
		f.load("default", f.current().Visible(), []int{3}, docs...)
		co := f.coordinator(Options{})
		defer co.shut(t)
		st := co.cluster.State()
		ms := st.Groups[0].Members
		c, left, err := co.work(st).reconcile(t.Context(), "default", ms[0], ms[1:], nil, seen)
		if err != nil || c.ranges != 0 || len(left) != 0 || c.ref != 5000 || !slices.Equal(c.others, []uint64{5000, 5000}) {
			t.Errorf("%+v, %d left, %v", c, len(left), err)
		}
		for k := range 3 {
			m := f.at(addr(0, k))
			if m.called("Digest") != 1 || m.called("Docs")+m.called("Sums")+m.called("IDs")+m.called("Export") != 0 || m.deepest != 0 {
				t.Errorf("%s: %d digests, to depth %d, and %v", m.addr, m.called("Digest"), m.deepest, m.calls)
			}
		}
		if got := co.count.compared.Load(); got != 1 {
			t.Errorf("%d ranges", got)
		}
	})
}

// TestOneDifferenceListsOneLeaf: of many documents of which one differs, about as many are listed as a leaf has, and a member that is equal is
// not asked for its leaves.
func TestOneDifferenceListsOneLeaf(t *testing.T) {
	for _, how := range []string{"lacks", "has one more", "has another"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.begin(placement.Ring, 1, 3)
			docs, byID := corpus(20_000)
			f.load("default", f.current().Visible(), []int{3}, docs...)
			bad := f.at(addr(0, 2))
			switch how {
			case "lacks":
				bad.remove("default", "pkg/77")
			case "has one more":
				bad.put("default", doc("ghost", 1))
			default:
				bad.put("default", doc("pkg/77", 9))
			}
			co := f.coordinator(Options{})
			defer co.shut(t)
			st := co.cluster.State()
			ms := st.Groups[0].Members
			for pass := range 2 {
				c, left, err := co.work(st).reconcile(t.Context(), "default", ms[0], ms[1:], nil, seen)
				if err != nil || c.ranges != 1-pass || len(left) != 0 {
					t.Errorf("%s, pass %d: %+v, %d left, %v", how, pass, c, len(left), err)
				}
			}
			f.same("default", byID)
			if got := co.count.listed.Load(); got < 3 || got > 3*200 {
				t.Errorf("%s: %d checksums of three members were read, of leaves of about %d documents", how, got, co.tune.leafDocs)
			}
			if a, b := f.at(addr(0, 1)).deepest, bad.deepest; a != 0 || b != 8 {
				t.Errorf("%s: the leaves of the equal one were asked for at depth %d, of the other at %d", how, a, b)
			}
		})
	}
}

func TestDepthOfLeaves(t *testing.T) {
	for docs, want := range map[uint64]int{0: 0, 1: 0, 100: 0, 101: 1, 200: 1, 201: 2, 100_000: 10, 1_000_000: 14, 5_000_000: 16, 1 << 40: 16, math.MaxUint64: 16} {
		if got := depthOf(docs, 100); got != want {
			t.Errorf("%d documents: depth %d, want %d", docs, got, want)
		}
	}
}

// TestWhatDiffersIsFoundAsByBruteForce draws documents of several members, and differences from one to nearly all: what is found is what a look at
// each document finds, and what is listed is bounded by the leaves that differ, or is everything once.
func TestWhatDiffersIsFoundAsByBruteForce(t *testing.T) {
	rounds := 60
	if raced {
		rounds = 12
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 11))
			f := newFleet(t)
			size := 2 + rng.IntN(2)
			f.begin(placement.Ring, 1, size)
			n := rng.IntN(2000)
			docs, _ := corpus(n)
			if n > 0 {
				f.load("default", f.current().Visible(), []int{size}, docs...)
			}
			for range rng.IntN(1 + 1<<rng.IntN(8)) {
				m := f.at(addr(0, rng.IntN(size)))
				id := fmt.Sprintf("pkg/%d", 1+rng.IntN(n+20))
				if m.docs("default") != nil && rng.IntN(3) == 0 {
					m.remove("default", id)
				} else {
					m.put("default", doc(id, rng.IntN(3)))
				}
			}
			if rng.IntN(10) == 0 {
				f.at(addr(0, size-1)).wipe()
			}
			f.tune = plainTuning(1+rng.IntN(50), 1+rng.IntN(40), 1+rng.IntN(20))
			co := f.coordinator(Options{})
			defer co.shut(t)
			<-time.After(5 * time.Second) // a member that was found empty has an epoch of its own
			st := co.cluster.State()
			ms := st.Groups[0].Members
			want := map[string]bool{}
			all := map[string]bool{}
			have := make([]map[string]string, size)
			for k := range size {
				have[k] = f.at(addr(0, k)).docs("default")
				for id := range have[k] {
					all[id] = true
				}
			}
			for id := range all {
				for k := range size {
					a, has := have[0][id]
					b, other := have[k][id]
					if has != other || a != b {
						want[id] = true
					}
				}
			}
			w := co.work(st)
			c, err := w.compare(t.Context(), "default", ms[0], ms[1:], nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.differs) > co.tune.looks || (c.ranges == 0) != (len(want) == 0) || c.ranges > max(1, 2*len(all)) {
				t.Errorf("seed %d: %d ranges to look at of %d that differ, for %d documents", seed, len(c.differs), c.ranges, len(want))
			}
			if c.ref != uint64(len(f.at(addr(0, 0)).docs("default"))) {
				t.Errorf("seed %d: %d documents at the reference", seed, c.ref)
			}
			var got []string
			covers := uint64(0)
			for i, of := range c.differs {
				if i > 0 && of.From <= c.differs[i-1].To {
					t.Errorf("seed %d: ranges overlap: %v", seed, c.differs)
				}
				covers += uint64(of.To-of.From) + 1
				err := w.unequal(t.Context(), "default", ms[0], ms[1:], of, nil, func(ids []string) error {
					got = append(got, ids...)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Errorf("seed %d: found %v, want %v", seed, got, slices.Sorted(maps.Keys(want)))
			}
			if few := uint64(c.ranges) << (32 - depthOf(uint64(len(all)), co.tune.leafDocs)); c.ranges <= co.tune.looks && covers > 2*few && covers > 1 {
				t.Errorf("seed %d: %d hashes are looked at, of leaves with %d", seed, covers, few)
			}
			if _, left, err := w.reconcile(t.Context(), "default", ms[0], ms[1:], nil, unseen); err != nil || len(left) != 0 {
				t.Errorf("seed %d: %v left, %v", seed, left, err)
			}
			for k := range size {
				if !maps.Equal(f.at(addr(0, k)).docs("default"), f.at(addr(0, 0)).docs("default")) && len(all) > 0 {
					t.Errorf("seed %d: %s is not equal", seed, addr(0, k))
				}
			}
		})
	}
}

// TestRangesAreCovered: joined ranges hold all that was in those before, are in order, and are no more than asked for.
func TestRangesAreCovered(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		depth := 1 + rng.IntN(8)
		width := uint64(1) << (32 - depth)
		var in []leaf.HashRange
		for k := range 1 << depth {
			if rng.IntN(1+bits.Len(uint(rng.IntN(200)))) > 0 {
				continue
			}
			from := uint64(k) * width
			if last := len(in) - 1; last >= 0 && uint64(in[last].To)+1 == from {
				in[last].To = uint32(from + width - 1)
				continue
			}
			in = append(in, leaf.HashRange{From: uint32(from), To: uint32(from + width - 1)})
		}
		most := 1 + rng.IntN(10)
		out := covered(slices.Clone(in), most)
		if len(in) > 0 && len(out) == 0 || len(out) > most {
			t.Fatalf("%d of %d ranges, at most %d", len(out), len(in), most)
		}
		for i, r := range out {
			if r.From > r.To || i > 0 && r.From <= out[i-1].To {
				t.Fatalf("%v", out)
			}
		}
		for _, r := range in {
			if !slices.ContainsFunc(out, func(o leaf.HashRange) bool { return o.From <= r.From && r.To <= o.To }) {
				t.Fatalf("%v is not in %v", r, out)
			}
		}
		if len(in) <= most && len(in) > 0 && len(out) == len(in) && !slices.Equal(in, out) {
			t.Fatalf("%v became %v", in, out)
		}
	}
}
