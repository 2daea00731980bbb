package shard

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestStatsTellWhereTimeGoes: every acknowledged batch is one record behind one sync here, and syncs, flushes and merges are timed.
func TestStatsTellWhereTimeGoes(t *testing.T) {
	s := open(t, config(t, memfs.New(nil)))
	r := rand.New(rand.NewPCG(31, 1))
	m := model{}
	if st := s.Stats(); st.LogRecords != 0 || st.LogSyncs != 0 || st.LogSyncTime != 0 || st.FlushTime != 0 || st.MergeTime != 0 {
		t.Errorf("before any write: %+v", st)
	}
	for i, key := range []string{"a", "b", "c"} {
		m.apply(t, s, 0, put(randomDoc(r, key)))
		if i == 1 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if st := s.Stats(); st.FlushTime <= 0 || st.MergeTime != 0 {
				t.Errorf("after one flush: %+v", st)
			}
		}
	}
	if err := s.Merge(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	st := s.Stats()
	if st.LogRecords != 3 || st.LogSyncs != 3 || st.LogSyncTime <= 0 || st.Merges != 1 || st.MergeTime <= 0 || st.Flushes != 2 {
		t.Errorf("after three writes and a merge: %+v", st)
	}
}
