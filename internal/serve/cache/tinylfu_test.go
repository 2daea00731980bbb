package cache

import (
	"math/rand/v2"
	"testing"
	"time"
)

// trace makes the keys of a sequence of requests; negative keys are those of a scan, each asked for once.
type trace struct {
	name string
	next func(i int, rng *rand.Rand) int
	// least is by how much the hit ratio of TinyLFU on the keys that are not of a scan has to be better, as a factor; zero: not tested.
	least float64
}

// zipf draws from n keys, the first most often.
func zipf(rng *rand.Rand, n uint64) func() int {
	z := rand.NewZipf(rng, 1.05, 1, n-1)
	return func() int { return int(z.Uint64()) }
}

func traces(rng *rand.Rand) []trace {
	z := zipf(rng, 10_000)
	return []trace{
		{"zipf", func(int, *rand.Rand) int { return z() }, 1.05},
		{"zipf, every other a scan", func(i int, _ *rand.Rand) int {
			if i%2 == 1 {
				return -i
			}
			return z()
		}, 1.15},
		{"zipf, three of four a scan", func(i int, _ *rand.Rand) int {
			if i%4 != 0 {
				return -i
			}
			return z()
		}, 1.25},
		{"zipf, scans of 2,000 between 2,000", func(i int, _ *rand.Rand) int {
			if i/2000%2 == 1 {
				return -i
			}
			return z()
		}, 1.1},
		{"zipf, a commit every 10,000", func(i int, _ *rand.Rand) int { return z() + i/10_000*20_000 }, 1},
		{"loop over 400", func(i int, _ *rand.Rand) int { return i % 400 }, 5},
	}
}

// hitRatio runs a trace through a cache of 300 entries, and counts keys that are not of a scan.
func hitRatio(tr trace, c Cache[int, int], rng *rand.Rand) float64 {
	hits, all := 0, 0
	for i := range 40_000 {
		key := tr.next(i, rng)
		v, ok := c.Get(key)
		if ok && v != key {
			panic("the value of another key")
		}
		if key >= 0 {
			all++
			if ok {
				hits++
			}
		}
		if !ok {
			c.Set(key, key, 100, 0)
		}
	}
	return float64(hits) / float64(all)
}

func TestTinyLFUStandsScans(t *testing.T) {
	const maxBytes = 300 * (EntryOverhead + 100)
	for i := range traces(rand.New(rand.NewPCG(0, 0))) {
		var ratio [2]float64
		var tr trace
		for j, name := range []string{"lru", "tinylfu"} {
			rng := rand.New(rand.NewPCG(11, 5))
			tr = traces(rng)[i]
			c := caches[name](maxBytes)
			ratio[j] = hitRatio(tr, c, rng)
			if u := c.Usage(); u.Bytes > maxBytes || u.Entries > 300 || u.Evicted == 0 {
				t.Errorf("%s, %s: %+v", name, tr.name, u)
			}
			c.Close()
		}
		t.Logf("%-36s lru %5.1f %%  tinylfu %5.1f %%", tr.name, 100*ratio[0], 100*ratio[1])
		if ratio[1] < tr.least*ratio[0] {
			t.Errorf("%s: hit ratio %.3f, not %.2f times the %.3f of the LRU", tr.name, ratio[1], tr.least, ratio[0])
		}
	}
}

// Entries of very different sizes: the bound holds after every call, but for the batch that is not booked yet.
func TestTinyLFUIsBoundedByBytes(t *testing.T) {
	const maxBytes = 1 << 20
	c := NewTinyLFU[int, int](maxBytes)
	defer c.Close()
	rng := rand.New(rand.NewPCG(3, 6))
	for i := range 20_000 {
		cost := int64(rng.ExpFloat64() * 20_000)
		c.Set(rng.IntN(5000), i, cost, 0)
		c.Get(rng.IntN(5000))
		if i%50 == 0 {
			if u := c.Usage(); u.Bytes > maxBytes {
				t.Fatalf("step %d: %+v", i, u)
			}
		}
	}
	if u := c.Usage(); u.Bytes < maxBytes/2 || u.Entries < 20 {
		t.Errorf("it hardly keeps anything: %+v", u)
	}
}

// An entry that takes the place of one whose time is over, just when that is removed, stays.
func TestTinyLFUExpiresOnlyWhatIsOver(t *testing.T) {
	c := NewTinyLFU[int, int](1 << 20)
	defer c.Close()
	c.Set(1, 10, 0, time.Hour)
	c.Set(2, 20, 0, 0)
	for key := range 4 {
		c.expire(key)
	}
	if u := c.Usage(); u.Entries != 2 || u.Expired != 0 {
		t.Errorf("%+v", u)
	}
}
