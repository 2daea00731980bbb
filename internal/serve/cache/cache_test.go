package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dropping is a cache that is within its rights and of no use: it keeps nothing.
type dropping[K comparable, V any] struct{}

func (dropping[K, V]) Get(K) (v V, ok bool)           { return v, false }
func (dropping[K, V]) Set(K, V, int64, time.Duration) {}
func (dropping[K, V]) Delete(K)                       {}
func (dropping[K, V]) Usage() Usage                   { return Usage{} }
func (dropping[K, V]) Close()                         {}

// moody drops some of what it is given, and with it what it had under the key.
type moody[K comparable, V any] struct {
	Cache[K, V]
	mu  sync.Mutex
	rng *rand.Rand
}

func newMoody[K comparable, V any](seed uint64, c Cache[K, V]) *moody[K, V] {
	return &moody[K, V]{Cache: c, rng: rand.New(rand.NewPCG(seed, 1))}
}

func (c *moody[K, V]) Set(key K, value V, cost int64, ttl time.Duration) {
	c.mu.Lock()
	drop := c.rng.IntN(2) == 0
	c.mu.Unlock()
	if drop {
		c.Delete(key)
		return
	}
	c.Cache.Set(key, value, cost, ttl)
}

// caches are the implementations of the seam that tests run against.
var caches = map[string]func(maxBytes int64) Cache[int, int]{
	"lru":      func(n int64) Cache[int, int] { return NewLRU[int, int](n, 1<<30) },
	"tinylfu":  func(n int64) Cache[int, int] { return NewTinyLFU[int, int](n) },
	"dropping": func(int64) Cache[int, int] { return dropping[int, int]{} },
	"moody":    func(n int64) Cache[int, int] { return newMoody(7, Cache[int, int](NewLRU[int, int](n, 1<<30))) },
}

// Whatever a cache keeps, it never returns an earlier value, a deleted one or one whose time is over, and it stays within its bytes.
func TestContract(t *testing.T) {
	for name, make := range caches {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				synctest.Test(t, func(t *testing.T) {
					type entry struct {
						value int
						until time.Time
					}
					const maxBytes = 40 * (EntryOverhead + 100)
					rng := rand.New(rand.NewPCG(seed, 2))
					c := make(maxBytes)
					defer c.Close()
					latest := map[int]entry{}
					hits := 0
					for i := range 4000 {
						key := rng.IntN(80)
						switch rng.IntN(10) {
						case 0, 1, 2:
							ttl := []time.Duration{0, -1, time.Millisecond, time.Second, 90 * time.Second, 100 * time.Hour}[rng.IntN(6)]
							until := time.Now().Add(ttl)
							if ttl == 0 {
								until = time.Now().Add(1000 * time.Hour)
							}
							cost := int64(rng.IntN(200) - 10)
							if rng.IntN(50) == 0 {
								cost = []int64{maxBytes, 1 << 33, 1 << 62}[rng.IntN(3)]
								until = time.Time{}
							}
							c.Set(key, i, cost, ttl)
							latest[key] = entry{i, until}
						case 3:
							c.Delete(key)
							delete(latest, key)
						case 4:
							<-time.After([]time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute}[rng.IntN(4)])
						default:
							if v, ok := c.Get(key); ok {
								hits++
								if e, ok := latest[key]; !ok || e.value != v || !time.Now().Before(e.until) {
									t.Fatalf("seed %d, step %d: key %d holds %d, not %+v", seed, i, key, v, e)
								}
							}
						}
						if i%100 == 0 {
							if u := c.Usage(); u.Bytes > maxBytes || u.Bytes < int64(u.Entries)*EntryOverhead {
								t.Fatalf("seed %d, step %d: %+v", seed, i, u)
							}
						}
					}
					if want := name != "dropping"; hits > 100 != want {
						t.Errorf("%d hits", hits)
					}
				})
			}
		})
	}
}

func TestNoRoom(t *testing.T) {
	for name, c := range map[string]Cache[int, int]{
		"lru of no bytes":         NewLRU[int, int](0, 10),
		"lru of no entries":       NewLRU[int, int](1<<20, 0),
		"lru of less than none":   NewLRU[int, int](-1, -1),
		"lru of half an entry":    NewLRU[int, int](EntryOverhead/2, 1),
		"tinylfu of no bytes":     NewTinyLFU[int, int](0),
		"tinylfu of less":         NewTinyLFU[int, int](-5),
		"tinylfu of half of that": NewTinyLFU[int, int](EntryOverhead / 2),
	} {
		c.Set(1, 1, 0, 0)
		if _, ok := c.Get(1); ok {
			t.Errorf("%s: a hit", name)
		}
		c.Delete(1)
		if u := c.Usage(); u != (Usage{Dropped: 1}) {
			t.Errorf("%s: %+v", name, u)
		}
		c.Close()
	}
}

func TestTimeToLiveIsExact(t *testing.T) {
	for _, name := range []string{"lru", "tinylfu"} {
		synctest.Test(t, func(t *testing.T) {
			c := caches[name](1 << 20)
			defer c.Close()
			c.Set(1, 10, 0, time.Minute)
			c.Set(2, 20, 0, 0)
			c.Set(3, 30, 0, time.Minute)
			c.Set(4, 40, 0, time.Hour)
			<-time.After(time.Minute - 1)
			c.Set(3, 31, 0, time.Minute) // a new time for a new value
			c.Set(4, 41, 0, -1)          // replaced by nothing
			if v, ok := c.Get(1); !ok || v != 10 {
				t.Errorf("%s: gone a nanosecond early", name)
			}
			<-time.After(1)
			if _, ok := c.Get(1); ok {
				t.Errorf("%s: there when its time is over", name)
			}
			if v, ok := c.Get(3); !ok || v != 31 {
				t.Errorf("%s: a value with a new time is %d, %v", name, v, ok)
			}
			if _, ok := c.Get(4); ok {
				t.Errorf("%s: a value outlives the Set of one with no time to live", name)
			}
			<-time.After(2 * time.Hour)
			if v, ok := c.Get(2); !ok || v != 20 {
				t.Errorf("%s: an entry without a time to live is gone", name)
			}
			if _, ok := c.Get(3); ok {
				t.Errorf("%s: there when its new time is over", name)
			}
			if u := c.Usage(); u.Entries != 1 || u.Bytes != EntryOverhead || u.Expired != 2 || u.Evicted != 0 || u.Dropped != 1 {
				t.Errorf("%s: %+v", name, u)
			}
		})
	}
}

// Many goroutines at once get the value of their key or nothing.
func TestConcurrentUse(t *testing.T) {
	for name, make := range caches {
		t.Run(name, func(t *testing.T) {
			c := make(50 * EntryOverhead)
			defer c.Close()
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(g), 3))
					for range 2000 {
						key := rng.IntN(200)
						switch rng.IntN(4) {
						case 0:
							c.Set(key, key*1000+rng.IntN(1000), int64(rng.IntN(50)), time.Duration(rng.IntN(2))*time.Hour)
						case 1:
							c.Delete(key)
						default:
							if v, ok := c.Get(key); ok && v/1000 != key {
								t.Errorf("key %d holds %d", key, v)
							}
						}
					}
				})
			}
			wg.Wait()
			if u := c.Usage(); u.Bytes > 50*EntryOverhead {
				t.Errorf("%+v", u)
			}
		})
	}
}

// TestAllocationsOfHit counts those of both caches and of the loader over them.
func TestAllocationsOfHit(t *testing.T) {
	for name, c := range hitCaches() {
		v := new(int)
		c.Set(keyOf(1), v, 8, time.Hour)
		l := NewLoader(c, func(_ context.Context, _ Key, _ int) (Loaded[*int], error) {
			return Loaded[*int]{}, fmt.Errorf("a load")
		}, LoaderOptions{})
		if n := testing.AllocsPerRun(1000, func() { c.Get(keyOf(1)) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if n := testing.AllocsPerRun(1000, func() {
			if _, _, err := l.Get(t.Context(), keyOf(1), 1); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("loader over %s: %v allocations", name, n)
		}
		l.Close()
		c.Close()
	}
}
