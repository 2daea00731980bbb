package shard

import (
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestSegmentIDs follows an address over writes, a flush and a merge: a name never comes to mean other documents.
func TestSegmentIDs(t *testing.T) {
	cfg := config(t, memfs.New(nil))
	cfg.NoBackground = true
	s := open(t, cfg)
	m := model{}
	at := map[string]string{} // name and key of what is numbered 0
	look := func() (names []string) {
		t.Helper()
		sn := s.Snapshot()
		defer sn.Release()
		for i, l := range sn.Leaves() {
			name := sn.SegmentID(i)
			if len(name) != 32 {
				t.Fatalf("leaf %d is called %q", i, name)
			}
			key := string(l.Key(0, nil))
			if was, ok := at[name]; ok && was != key {
				t.Errorf("%s meant %q and now %q", name, was, key)
			}
			at[name] = key
			names = append(names, name)
		}
		return names
	}
	write := func(keys ...string) {
		var ops []Op
		for _, k := range keys {
			ops = append(ops, put(&schema.Document{Key: k, Fields: []schema.Values{{Field: fID, Text: []string{k}}}}))
		}
		m.apply(t, s, 0, ops...)
	}
	write("a", "b")
	first := look()
	write("c")
	if again := look(); again[0] != first[0] {
		t.Error("a write gave the memtable another name")
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	flushed := look()
	write("d")
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if two := look(); len(two) != 2 || two[0] != flushed[0] {
		t.Errorf("%v follow %v", two, flushed)
	}
	if err := s.Merge(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if one := look(); len(one) != 1 || one[0] == flushed[0] {
		t.Errorf("a merge left %v of %v", one, flushed)
	}
}
