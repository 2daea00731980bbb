package shard

import (
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
		fresh("a delete of nothing", false, Op{Delete: true, Key: "nosuch"})
		fresh("behind a delete", false, put("d"))
		<-time.After(Undisturbed - time.Second)
		fresh("some time behind it", false, put("e"))
		<-time.After(2 * time.Second)
		fresh("long behind it", true, put("f"))
		fresh("behind a delete of the same batch", false, Op{Delete: true, Key: "f"}, put("g"))
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
