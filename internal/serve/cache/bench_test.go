package cache

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
)

var benchSnapshot = Snapshot{hi: 1, lo: 2}

// keyOf is a key like any other, made without a hash.
func keyOf(i uint64) Key {
	var r Request
	binary.LittleEndian.PutUint64(r[:], i)
	return NewKey("books", benchSnapshot, r)
}

func hitCaches() map[string]Cache[Key, *int] {
	return map[string]Cache[Key, *int]{
		"lru":     NewLRU[Key, *int](1<<30, 1<<30),
		"tinylfu": NewTinyLFU[Key, *int](1 << 30),
	}
}

func BenchmarkHit(b *testing.B) {
	for name, c := range hitCaches() {
		for i := range uint64(1024) {
			c.Set(keyOf(i), new(int), 1000, 0)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if _, ok := c.Get(keyOf(i % 1024)); !ok {
					b.Fatal("a miss")
				}
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := uint64(0); pb.Next(); i++ {
					c.Get(keyOf(i % 1024))
				}
			})
		})
		l := NewLoader(c, func(context.Context, Key, int) (Loaded[*int], error) {
			return Loaded[*int]{}, fmt.Errorf("a load")
		}, LoaderOptions{})
		ctx := context.Background()
		b.Run(name+"/loader", func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if _, _, err := l.Get(ctx, keyOf(i%1024), 1); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/loader/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := uint64(0); pb.Next(); i++ {
					if _, _, err := l.Get(ctx, keyOf(i%1024), 1); err != nil {
						b.Error(err)
					}
				}
			})
		})
		l.Close()
		c.Close()
	}
}

// BenchmarkSet evicts all the time.
func BenchmarkSet(b *testing.B) {
	for name, c := range map[string]Cache[Key, *int]{
		"lru":     NewLRU[Key, *int](1<<20, 1<<30),
		"tinylfu": NewTinyLFU[Key, *int](1 << 20),
	} {
		v := new(int)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				c.Set(keyOf(i), v, 1000, 0)
			}
		})
		c.Close()
	}
}

// BenchmarkMiss is a load of nothing: what a miss costs on top of the load.
func BenchmarkMiss(b *testing.B) {
	l := NewLoader(dropping[Key, *int]{}, func(_ context.Context, key Key, _ int) (Loaded[*int], error) {
		return Loaded[*int]{Snapshot: key.Snapshot()}, nil
	}, LoaderOptions{})
	defer l.Close()
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		if _, _, err := l.Get(context.Background(), keyOf(i), 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFold(b *testing.B) {
	for _, shards := range []int{1, 10, 64, 1000} {
		vs := make([]ShardVersion, shards)
		for i := range vs {
			vs[i] = ShardVersion{Shard: uint32(i), Instance: uint64(i) * 7, Version: 9}
		}
		b.Run(fmt.Sprint(shards), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Fold(vs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNewRequest(b *testing.B) {
	body := make([]byte, 500)
	b.ReportAllocs()
	for b.Loop() {
		NewRequest(body)
	}
}

// BenchmarkEntry measures what EntryOverhead stands for.
func BenchmarkEntry(b *testing.B) {
	const n = 100_000
	for name, make := range map[string]func() Cache[Key, *int]{
		"lru":     func() Cache[Key, *int] { return NewLRU[Key, *int](1<<40, 1<<40) },
		"tinylfu": func() Cache[Key, *int] { return NewTinyLFU[Key, *int](1 << 40) },
	} {
		b.Run(name, func(b *testing.B) {
			v := new(int)
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				c := make()
				for i := range uint64(n) {
					c.Set(keyOf(i), v, 0, 0)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/entry")
				c.Close()
			}
		})
	}
}
