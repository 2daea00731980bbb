package shard

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs"
)

// TestOnDisk does it all on the real file system, where segments are mapped: a snapshot survives the merge and the collection
// of the files under it, opening again finds everything, and no half-made file stays.
func TestOnDisk(t *testing.T) {
	cfg := config(t, vfs.OS)
	cfg.Dir = filepath.ToSlash(t.TempDir())
	cfg.Keep = store.GCOptions{KeepVersions: -1, KeepAge: -1, Delay: -1}
	s := open(t, cfg)
	r := rand.New(rand.NewPCG(1, 1))
	m := model{}
	for range 6 {
		for range 5 {
			m.apply(t, s, 0, randomOps(r, 100)...)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sn, then := s.Snapshot(), m.clone()
	if sn.Segments() < 3 {
		t.Fatalf("%d segments", sn.Segments())
	}
	m.apply(t, s, 0, randomOps(r, 100)...)
	if err := s.Merge(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.collect(t.Context())
	files := 0
	if err := filepath.WalkDir(cfg.Dir, func(p string, d os.DirEntry, err error) error {
		if strings.Contains(p, store.KindSegment) && !d.IsDir() {
			files++
		}
		if vfs.IsTemp(p) {
			t.Errorf("%s is left", p)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if files != 1 {
		t.Errorf("%d segment files after a merge to one and a collection", files)
	}
	then.verify(t, sn)
	sn.Release()
	for range 2 {
		closeShard(t, s)
		cfg.Schema = nil
		s = open(t, cfg)
		sn := s.Snapshot()
		m.verify(t, sn)
		sn.Release()
	}
}
