package summaquery_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// store is a shard with the documents that should be in it.
type store struct {
	t    testing.TB
	s    *shard.Shard
	sch  *schema.Schema
	conv *summa.Documents
	memo *summaquery.Cache
	live map[string][]*summapb.FieldEntry
}

func newStore(t testing.TB, sdl string) *store {
	t.Helper()
	sch, err := summa.ParseSchema(sdl)
	if err != nil {
		t.Fatal(err)
	}
	s, err := shard.Open(t.Context(), shard.Config{Dir: "d", FS: memfs.New(nil), Schema: sch, NoBackground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &store{t, s, sch, summa.NewDocuments(sch, jsondoc.Limits{}), &summaquery.Cache{}, map[string][]*summapb.FieldEntry{}}
}

func (s *store) apply(ops ...shard.Op) {
	s.t.Helper()
	if len(ops) == 0 {
		return
	}
	if _, err := s.s.Apply(s.t.Context(), ops); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) put(key string, fields []*summapb.FieldEntry) shard.Op {
	s.t.Helper()
	doc, _, err := s.conv.Convert(fields)
	if err != nil {
		s.t.Fatal(err)
	}
	s.live[key] = fields
	return shard.Op{Doc: doc}
}

func (s *store) drop(key string) shard.Op {
	delete(s.live, key)
	return shard.Op{Delete: true, Key: key}
}

func (s *store) flush() {
	s.t.Helper()
	if err := s.s.Flush(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) merge(n int) {
	s.t.Helper()
	if err := s.s.Merge(s.t.Context(), n); err != nil {
		s.t.Fatal(err)
	}
}

// index is what a search of the store sees, with an oracle for it.
func (s *store) index() (*summaquery.Index, *oracletest.Oracle) {
	s.t.Helper()
	sn := s.s.Snapshot()
	s.t.Cleanup(sn.Release)
	an, err := exec.NewAnalyzers(sn.Schema())
	if err != nil {
		s.t.Fatal(err)
	}
	ix := &summaquery.Index{Schema: sn.Schema(), Analyzers: an, Leaves: sn.Leaves(), Cache: s.memo}
	for i := range ix.Leaves {
		ix.Segments = append(ix.Segments, fmt.Sprintf("%032x", i+1))
	}
	o := oracletest.New(sn.Schema(), an)
	for key, fields := range s.live {
		leaf, doc, ok := sn.Find(key)
		if !ok {
			s.t.Fatalf("document %s is lost", key)
		}
		o.Add(key, leaf, doc, fields)
	}
	if sn.Docs() != uint64(len(s.live)) {
		s.t.Fatalf("%d documents, want %d", sn.Docs(), len(s.live))
	}
	o.Ready()
	return ix, o
}

// fill makes n documents by chance, spread over leaves by flushes, merges, deletes and replacements.
func (s *store) fill(w oracletest.World, n int) {
	s.t.Helper()
	keys := slices.Sorted(maps.Keys(s.live))
	for len(s.live) < n {
		var ops []shard.Op
		for range 1 + w.IntN(1+n/4) {
			key := fmt.Sprintf("k%03d", w.IntN(3*n))
			if len(keys) > 0 && w.IntN(5) == 0 {
				key = keys[w.IntN(len(keys))]
				if w.IntN(2) == 0 {
					ops = append(ops, s.drop(key))
					continue
				}
			}
			keys = append(keys, key)
			ops = append(ops, s.put(key, w.Document(key)))
		}
		s.apply(ops...)
		switch w.IntN(5) {
		case 0, 1:
			s.flush()
		case 2:
			if w.IntN(3) == 0 {
				s.merge(1 + w.IntN(3))
			}
		}
	}
	for range 1 + n/10 { // dead documents in segments
		s.apply(s.drop(keys[w.IntN(len(keys))]))
	}
}

// copyOf makes another store with the same live documents, in another layout: all in memory, or each few of them a segment.
func (s *store) copyOf(w oracletest.World, sdl string, each int) *store {
	s.t.Helper()
	c := newStore(s.t, sdl)
	keys := make([]string, 0, len(s.live))
	for k := range s.live {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	w.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for i, k := range keys {
		if w.IntN(8) == 0 {
			c.apply(c.put(k, w.Document(k))) // to be replaced
		}
		c.apply(c.put(k, s.live[k]))
		if each > 0 && i%each == each-1 {
			c.flush()
		}
	}
	return c
}
