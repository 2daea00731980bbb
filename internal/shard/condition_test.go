package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestConditionsLoseNoUpdates lets writers count up numbers by compare and swap, delete them and make them anew, while flushes and
// merges move the documents: what is there at the end is what the operations that took effect come to.
func TestConditionsLoseNoUpdates(t *testing.T) {
	const writers, keys, rounds = 4, 5, 150
	cfg := config(t, memfs.New(nil))
	cfg.NoBackground = false
	cfg.MemtableBytes = 200 << 10
	cfg.MergeBytesPerSec = -1
	s := open(t, cfg)
	pad := strings.Repeat("x y z ", 100)
	type step struct{ from, to int } // 0: not there
	var mu sync.Mutex
	steps := map[string][]step{}
	next := 0
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 9))
			for done := 0; done < rounds; {
				key := fmt.Sprint(r.IntN(keys))
				sn := s.Snapshot()
				leaf, doc, ok, cond := sn.Look(key)
				from := 0
				if ok {
					source, err := sn.leaves[leaf].Source(doc, nil)
					if err != nil {
						t.Error(err)
					}
					if from, err = strconv.Atoi(string(source)); err != nil {
						t.Error(err)
					}
				}
				sn.Release()
				if r.IntN(20) == 0 {
					if err := s.Flush(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
				if r.IntN(40) == 0 {
					if err := s.Merge(t.Context(), 1); err != nil {
						t.Error(err)
						return
					}
				}
				mu.Lock()
				next++
				to := next
				mu.Unlock()
				op := Op{Doc: &schema.Document{Key: key, Source: []byte(strconv.Itoa(to)), Fields: []schema.Values{{Field: fBody, Text: []string{pad}}}}, If: cond}
				if r.IntN(4) == 0 {
					op, to = Op{Delete: true, Key: key, If: cond}, 0
				}
				res, err := s.Apply(t.Context(), []Op{op})
				switch {
				case errors.Is(err, ErrOverloaded):
					continue
				case err != nil:
					t.Error(err)
					return
				case errors.Is(res[0].Err, ErrChanged):
					continue
				case res[0].Err != nil:
					t.Error(res[0].Err)
					return
				case res[0].Existed != ok:
					t.Errorf("a condition held although a document was there: %v, and before %v", res[0].Existed, ok)
				}
				if from != to {
					mu.Lock()
					steps[key] = append(steps[key], step{from, to})
					mu.Unlock()
				}
				done++
			}
		})
	}
	wg.Wait()
	sn := s.Snapshot()
	defer sn.Release()
	for key, all := range steps {
		// Numbers are given once, so each step that left one has the step that came to it: from nothing to what is there now the steps
		// make one walk, in which nothing is left twice.
		left := map[int]int{}
		arrived := map[int]int{}
		for _, st := range all {
			left[st.from]++
			arrived[st.to]++
		}
		now := 0
		if source, ok, err := sn.Get(key); err != nil {
			t.Error(err)
		} else if ok {
			if now, err = strconv.Atoi(string(source)); err != nil {
				t.Error(err)
			}
		}
		arrived[0]++ // the beginning
		left[now]++  // the end
		for n, k := range arrived {
			if left[n] != k {
				t.Errorf("key %s: number %d was there %d times and left %d times: an update was lost", key, n, k, left[n])
			}
		}
		for n, k := range left {
			if n != 0 && k != 1 || arrived[n] != k {
				t.Errorf("key %s: number %d was left %d times", key, n, k)
			}
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Flushes == 0 || st.Merges == 0 {
		t.Errorf("%d flushes, %d merges", st.Flushes, st.Merges)
	}
}

// TestConditions goes through what may have come between a look and an operation.
func TestConditions(t *testing.T) {
	doc := func(v string) Op { return Op{Doc: &schema.Document{Key: "a", Source: []byte(v)}} }
	del := Op{Delete: true, Key: "a"}
	other := Op{Doc: &schema.Document{Key: "b", Source: []byte("b")}}
	flush := func(t *testing.T, s *Shard) {
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	merge := func(t *testing.T, s *Shard) {
		if err := s.Merge(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	do := func(ops ...Op) func(t *testing.T, s *Shard) {
		return func(t *testing.T, s *Shard) {
			if _, err := s.Apply(t.Context(), ops); err != nil {
				t.Fatal(err)
			}
		}
	}
	type steps []func(t *testing.T, s *Shard)
	for _, c := range []struct {
		name          string
		before, after steps
		ok            bool
	}{
		{"nothing, and nothing came", nil, nil, true},
		{"nothing, and another came", nil, steps{do(other), flush}, true},
		{"nothing, and it came", nil, steps{do(doc("1"))}, false},
		{"nothing, and it came and went", nil, steps{do(doc("1")), do(del)}, true},
		{"it, and nothing came", steps{do(doc("1"))}, nil, true},
		{"it, flushed meanwhile", steps{do(doc("1"))}, steps{flush}, true},
		{"it, flushed and merged meanwhile", steps{do(doc("1"))}, steps{flush, do(other), merge}, true},
		{"it, in a segment that was merged", steps{do(doc("1")), flush}, steps{do(other), merge}, true},
		{"it, put again the same", steps{do(doc("1"))}, steps{do(doc("1"))}, false},
		{"it, flushed and put again", steps{do(doc("1"))}, steps{flush, do(doc("2"))}, false},
		{"it, put again and flushed", steps{do(doc("1"))}, steps{do(doc("2")), flush}, false},
		{"it, deleted", steps{do(doc("1")), flush}, steps{do(del)}, false},
		{"it, deleted and dropped with its segment", steps{do(doc("1")), flush}, steps{do(del), flush}, false},
		{"it, deleted and merged away", steps{do(doc("1"), other), flush}, steps{do(del), merge}, false},
		{"it, deleted and made anew", steps{do(doc("1")), flush}, steps{do(del), do(doc("1"))}, false},
	} {
		for _, op := range []Op{doc("new"), del} {
			t.Run(fmt.Sprint(c.name, op.Delete), func(t *testing.T) {
				s := open(t, config(t, memfs.New(nil)))
				for _, f := range c.before {
					f(t, s)
				}
				sn := s.Snapshot()
				_, _, found, cond := sn.Look("a")
				sn.Release()
				if found != (c.before != nil) {
					t.Fatal("the look went wrong")
				}
				for _, f := range c.after {
					f(t, s)
				}
				was := s.Snapshot()
				want, there, err := was.Get("a")
				was.Release()
				if err != nil {
					t.Fatal(err)
				}
				op.If = cond
				res, err := s.Apply(t.Context(), []Op{op})
				if err != nil {
					t.Fatal(err)
				}
				if c.ok && res[0].Err != nil || !c.ok && !errors.Is(res[0].Err, ErrChanged) {
					t.Fatalf("outcome %v", res[0].Err)
				}
				if c.ok {
					want, there = []byte("new"), !op.Delete
				}
				now := s.Snapshot()
				defer now.Release()
				if got, ok, err := now.Get("a"); err != nil || ok != there || ok && string(got) != string(want) {
					t.Fatalf("there is %q %v %v, want %q %v", got, ok, err, want, there)
				}
			})
		}
	}
}

// TestConditionsInOneBatch holds each operation against those before it.
func TestConditionsInOneBatch(t *testing.T) {
	s := open(t, config(t, memfs.New(nil)))
	sn := s.Snapshot()
	_, _, _, none := sn.Look("a")
	sn.Release()
	doc := func(v string) Op { return Op{Doc: &schema.Document{Key: "a", Source: []byte(v)}, If: none} }
	res, err := s.Apply(t.Context(), []Op{doc("1"), doc("2"), {Delete: true, Key: "a", If: none}})
	if err != nil || res[0].Err != nil || !errors.Is(res[1].Err, ErrChanged) || !errors.Is(res[2].Err, ErrChanged) {
		t.Fatal(res, err)
	}
	// A restart reads what took effect and no more.
	s2 := reopened(t, s)
	got := s2.Snapshot()
	defer got.Release()
	if source, ok, err := got.Get("a"); err != nil || !ok || string(source) != "1" {
		t.Errorf("%q %v %v", source, ok, err)
	}
}

// reopened closes a shard and opens it from its log.
func reopened(t *testing.T, s *Shard) *Shard {
	t.Helper()
	cfg := s.cfg
	cfg.NoFlushOnClose = true
	s.cfg.NoFlushOnClose = true
	closeShard(t, s)
	return open(t, cfg)
}
