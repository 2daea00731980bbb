package cache

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	seen := map[Snapshot]string{}
	for _, shards := range []int{1, 2, 3, 64, 65, 300} {
		vs := make([]ShardVersion, shards)
		for i := range vs {
			vs[i] = ShardVersion{Shard: uint32(i), Instance: rng.Uint64(), Version: uint64(rng.IntN(1000))}
		}
		want, err := Fold(vs)
		if err != nil || want.IsZero() {
			t.Fatal(want, err)
		}
		for range 5 {
			other := slices.Clone(vs)
			rng.Shuffle(shards, func(i, j int) { other[i], other[j] = other[j], other[i] })
			kept := slices.Clone(other)
			if got, err := Fold(other); got != want || err != nil {
				t.Fatalf("%d shards in another order: %v, not %v (%v)", shards, got, want, err)
			}
			if !slices.Equal(kept, other) {
				t.Fatal("the list was changed")
			}
		}
		// Every other state is another snapshot.
		add := func(what string, vs []ShardVersion) {
			t.Helper()
			s, err := Fold(vs)
			if err != nil {
				t.Fatal(err)
			}
			if was, ok := seen[s]; ok {
				t.Errorf("%d shards, %s is the same as %s", shards, what, was)
			}
			seen[s] = what
		}
		add("as it was", vs)
		i := rng.IntN(shards)
		change := func(what string, f func(v *ShardVersion)) {
			other := slices.Clone(vs)
			f(&other[i])
			add(what, other)
		}
		change("with a commit", func(v *ShardVersion) { v.Version++ })
		change("with a shard opened again", func(v *ShardVersion) { v.Instance++ })
		change("with another shard", func(v *ShardVersion) { v.Shard += 1000 })
		if shards > 1 {
			add("with one shard fewer", vs[1:])
			other := slices.Clone(vs)
			other[0].Version, other[1].Version = other[1].Version+5000, other[0].Version
			other[0].Instance, other[1].Instance = other[1].Instance, other[0].Instance
			add("with the states of two shards exchanged", other)
		}
	}
}

func TestFoldRefuses(t *testing.T) {
	if _, err := Fold(nil); err == nil {
		t.Error("a snapshot of nothing")
	}
	_, err := Fold([]ShardVersion{{Shard: 7, Version: 1}, {Shard: 2}, {Shard: 7, Version: 2}})
	if err == nil || !strings.Contains(err.Error(), "shard 7") {
		t.Errorf("a shard with two states: %v", err)
	}
}

func TestKey(t *testing.T) {
	s1, err := Fold([]ShardVersion{{Version: 1}})
	if err != nil {
		t.Fatal(err)
	}
	s2, err := Fold([]ShardVersion{{Version: 2}})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRequest([]byte("search a"))
	k := NewKey("books", s1, r)
	if k.Index() != "books" || k.Snapshot() != s1 || k.Request() != r {
		t.Errorf("%+v", k)
	}
	for _, other := range []Key{NewKey("book", s1, r), NewKey("books", s2, r), NewKey("books", s1, NewRequest([]byte("search b")))} {
		if other == k {
			t.Errorf("%+v is the same key", other)
		}
	}
	if NewKey("books", s1, NewRequest([]byte("search a"))) != k {
		t.Error("the same request is another key")
	}
	if len(s1.String()) != 32 || s1.String() == s2.String() {
		t.Errorf("%s and %s", s1, s2)
	}
}
