package cache

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestLRU(t *testing.T) {
	c := NewLRU[string, int](1<<20, 3)
	c.Set("a", 1, 10, 0)
	c.Set("b", 2, 10, 0)
	c.Set("c", 3, 10, 0)
	if v, ok := c.Get("a"); !ok || v != 1 {
		t.Fatalf("a is %d, %v", v, ok)
	}
	c.Set("b", 20, 70, 0) // an update is a use
	c.Set("d", 4, 10, 0)
	for key, want := range map[string]int{"a": 1, "b": 20, "c": 0, "d": 4} {
		if v, ok := c.Get(key); v != want || ok != (want > 0) {
			t.Errorf("%s is %d, %v", key, v, ok)
		}
	}
	if u := c.Usage(); u != (Usage{Entries: 3, Bytes: 3*EntryOverhead + 90, Evicted: 1}) {
		t.Errorf("%+v", u)
	}
	c.Delete("a")
	c.Delete("a")
	if _, ok := c.Get("a"); ok {
		t.Error("a was deleted")
	}
	// Too large for the cache: the old value goes too, and nothing else.
	c.Set("d", 5, 1<<40, 0)
	if _, ok := c.Get("d"); ok {
		t.Error("d outlives a Set that was dropped")
	}
	if u := c.Usage(); u != (Usage{Entries: 1, Bytes: EntryOverhead + 70, Evicted: 1, Dropped: 1}) {
		t.Errorf("%+v", u)
	}
}

// naive is an LRU as a list, newest first.
type naive struct {
	maxBytes   int64
	maxEntries int
	list       []naiveEntry
	usage      Usage
}

type naiveEntry struct {
	key, value int
	bytes      int64
	until      time.Time
}

func (c *naive) take(key int) (naiveEntry, bool) {
	i := slices.IndexFunc(c.list, func(e naiveEntry) bool { return e.key == key })
	if i < 0 {
		return naiveEntry{}, false
	}
	e := c.list[i]
	c.list = slices.Delete(c.list, i, i+1)
	return e, true
}

func (c *naive) get(key int) (int, bool) {
	e, ok := c.take(key)
	if !ok {
		return 0, false
	}
	if !e.until.IsZero() && !time.Now().Before(e.until) {
		c.usage.Expired++
		return 0, false
	}
	c.list = slices.Insert(c.list, 0, e)
	return e.value, true
}

func (c *naive) bytes() (n int64) {
	for _, e := range c.list {
		n += e.bytes
	}
	return n
}

func (c *naive) set(key, value int, cost int64, ttl time.Duration) {
	c.take(key)
	e := naiveEntry{key: key, value: value, bytes: max(cost, 0) + EntryOverhead}
	if e.bytes > c.maxBytes || ttl < 0 {
		c.usage.Dropped++
		return
	}
	if ttl > 0 {
		e.until = time.Now().Add(ttl)
	}
	c.list = slices.Insert(c.list, 0, e)
	for len(c.list) > c.maxEntries || c.bytes() > c.maxBytes {
		c.list = c.list[:len(c.list)-1]
		c.usage.Evicted++
	}
}

func TestLRUIsTheNaiveOne(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 4))
			model := &naive{maxBytes: int64(1+rng.IntN(30)) * 300, maxEntries: 1 + rng.IntN(30)}
			c := NewLRU[int, int](model.maxBytes, model.maxEntries)
			keys := 2 + rng.IntN(60)
			for i := range 1000 {
				key := rng.IntN(keys)
				switch rng.IntN(8) {
				case 0, 1, 2:
					cost, ttl := rng.Int64N(600)-10, time.Duration(max(rng.IntN(200)-100, -1))*time.Millisecond
					c.Set(key, i, cost, ttl)
					model.set(key, i, cost, ttl)
				case 3:
					c.Delete(key)
					model.take(key)
				case 4:
					<-time.After(time.Duration(rng.IntN(10)) * time.Millisecond)
				default:
					v, ok := c.Get(key)
					if mv, mok := model.get(key); v != mv || ok != mok {
						t.Fatalf("seed %d, step %d: key %d is %d %v, want %d %v", seed, i, key, v, ok, mv, mok)
					}
				}
				want := model.usage
				want.Entries, want.Bytes = len(model.list), model.bytes()
				if got := c.Usage(); got != want {
					t.Fatalf("seed %d, step %d: %+v, want %+v", seed, i, got, want)
				}
			}
		})
	}
}
