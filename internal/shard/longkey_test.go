package shard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestLongKeys keeps documents whose keys are as long as may be through a log, memtables, segments and a merge.
func TestLongKeys(t *testing.T) {
	cfg := config(t, memfs.New(nil))
	cfg.NoFlushOnClose = true
	s := open(t, cfg)
	r := rand.New(rand.NewPCG(1, 47))
	m := model{}
	long := func(i int) string { return strings.Repeat("k", MaxKeyBytes-3) + fmt.Sprintf("%03d", i) }
	for i := range 60 {
		m.apply(t, s, 0, put(randomDoc(r, long(i))), put(randomDoc(r, fmt.Sprint("short", i))))
		if i%3 == 0 {
			m.apply(t, s, 0, Op{Delete: true, Key: long(i / 2)})
		}
		if i%20 == 10 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func() {
		t.Helper()
		sn := s.Snapshot()
		defer sn.Release()
		m.verify(t, sn)
	}
	check()
	closeShard(t, s)
	s = open(t, cfg)
	check()
	if err := s.Merge(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	check()
}
