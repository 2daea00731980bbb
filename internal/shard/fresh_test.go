package shard

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func TestFreshOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := bubbleConfig(t, memfs.New(nil))
		open := func(cfg Config) *Shard {
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := open(cfg)
		fresh := func(what string, want bool, ops ...Op) {
			t.Helper()
			res, err := s.Apply(t.Context(), ops)
			if err != nil {
				t.Fatal(err)
			}
			if last := res[len(res)-1]; last.Fresh != want || last.Err != nil {
				t.Errorf("%s: %+v", what, last)
			}
		}
		put := func(key string) Op {
			return put(&schema.Document{Key: key, Fields: []schema.Values{{Field: fID, Text: []string{key}}}})
		}
		fresh("the first", true, put("a"))
		fresh("another", true, put("b"))
		fresh("one that is there", false, put("a"))
		fresh("one that is there since the operation before", false, put("c"), put("c"))
		fresh("a delete of nothing", false, Op{Delete: true, Key: "d"})
		fresh("behind a delete of another", true, put("e"))
		fresh("behind its own", false, put("d"))
		fresh("a delete of what is there", false, Op{Delete: true, Key: "e"})
		fresh("a delete of what is there", false, Op{Delete: true, Key: "f"})
		<-time.After(Undisturbed - time.Second)
		fresh("some time behind it", false, put("e"))
		<-time.After(3 * time.Second)
		fresh("long behind it", true, put("f"))
		fresh("behind a delete of the same batch", false, Op{Delete: true, Key: "g"}, put("g"))
		closeShard(t, s)
		s = open(cfg)
		fresh("of a shard that was there", false, put("h"))
		<-time.After(Undisturbed + time.Second)
		fresh("long behind its opening", true, put("i"))
		closeShard(t, s)
		cfg = bubbleConfig(t, memfs.New(nil))
		cfg.Disturbed = true
		s = open(cfg)
		fresh("where another was", false, put("a"))
		closeShard(t, s)
	})
}

// TestDepartedKeys holds what is kept of deletions against all of them.
func TestDepartedKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	var d departed
	now := time.Now()
	if d.lately("a", now) {
		t.Error("nothing was deleted")
	}
	at := map[string]time.Time{}
	asked, wrong := 0, 0
	for range 20_000 {
		now = now.Add(time.Duration(r.Int64N(int64(time.Second))))
		key := strconv.Itoa(r.IntN(3000))
		if r.IntN(3) == 0 {
			d.add(key, now)
			at[key] = now
			continue
		}
		gone, ok := at[key]
		is := ok && now.Sub(gone) <= Undisturbed
		switch got := d.lately(key, now); {
		case is && !got:
			t.Fatalf("%s was deleted %v ago", key, now.Sub(gone))
		case !is:
			asked++
			if got {
				wrong++
			}
		}
	}
	if asked < 1000 || wrong*10 > asked {
		t.Errorf("of %d keys that were not deleted lately %d seem so", asked, wrong)
	}
	d.all(now)
	if !d.lately("never", now.Add(Undisturbed-time.Second)) || d.lately("never", now.Add(Undisturbed)) {
		t.Error("all keys may have been deleted, for Undisturbed")
	}
}
