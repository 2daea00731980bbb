package exec_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// row is a document of the test: any number of tags, at most one number.
type row struct {
	key  string
	tags []string
	n    []int64
}

func (d *row) document() *schema.Document {
	doc := &schema.Document{Key: d.key, Fields: []schema.Values{{Field: 0, Text: []string{d.key}}, {Field: 1, Text: []string{"all"}}}}
	if len(d.tags) > 0 {
		doc.Fields = append(doc.Fields, schema.Values{Field: 2, Text: d.tags})
	}
	for _, n := range d.n {
		doc.Fields = append(doc.Fields, schema.Values{Field: 3, Nums: []uint64{schema.EncodeI64(n)}})
	}
	return doc
}

// TestFiltersAndOrdersAcrossFlushMergeAndRestart asks a shard the same things in every state it goes through, with one cache.
func TestFiltersAndOrdersAcrossFlushMergeAndRestart(t *testing.T) {
	sch, err := schema.NewDynamic("t").AddFields([]schema.Field{
		{Name: "body", Type: schema.Text, Tokenizer: "simple", Indexed: true, K1: schema.DefaultK1, B: schema.DefaultB},
		{Name: "tag", Type: schema.Text, Tokenizer: "raw", Indexed: true, Fast: true, Multi: true, K1: schema.DefaultK1, B: schema.DefaultB},
		{Name: "n", Type: schema.I64, Fast: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	an := func(f int) *text.Analyzer {
		a, err := text.Lookup(sch.Fields[f].Tokenizer)
		if err != nil {
			t.Error(err)
		}
		return a
	}
	cfg := shard.Config{Dir: "d", FS: memfs.New(nil), Schema: sch, NoBackground: true, MemtableBytes: 64 << 20}
	open := func() *shard.Shard {
		s, err := shard.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(11, 12))
	rows := map[string]*row{}
	cache := exec.NewFilterCache(1 << 20)
	s := open()
	for step := range 60 {
		var ops []shard.Op
		for range 30 {
			key := fmt.Sprintf("k%03d", r.IntN(300))
			if rows[key] != nil && r.IntN(3) == 0 {
				delete(rows, key)
				ops = append(ops, shard.Op{Delete: true, Key: key})
				continue
			}
			d := &row{key: key}
			for range r.IntN(3) {
				d.tags = append(d.tags, fmt.Sprint("t", r.IntN(6)))
			}
			if r.IntN(3) > 0 {
				d.n = []int64{int64(r.IntN(20) - 10)}
			}
			rows[key] = d
			ops = append(ops, shard.Op{Doc: d.document()})
		}
		if _, err := s.Apply(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
		switch step % 6 {
		case 1, 3:
			must(s.Flush(t.Context()))
		case 4:
			must(s.Merge(t.Context(), 1+r.IntN(2)))
		case 5:
			must(s.Close(context.Background()))
			s = open()
		}
		snap := s.Snapshot()
		for range 6 {
			ask(t, r, snap, an, rows, cache)
		}
		snap.Release()
	}
	must(s.Close(context.Background()))
	if st := cache.Stats(); st.Hits == 0 {
		t.Errorf("cache: %+v", st)
	}
}

// ask compares one filtered and sorted search with the rows.
func ask(t *testing.T, r *rand.Rand, snap *shard.Snapshot, an exec.Analyzers, rows map[string]*row, cache *exec.FilterCache) {
	t.Helper()
	tag, key, least := fmt.Sprint("t", r.IntN(6)), fmt.Sprintf("k%03d", r.IntN(300)), int64(r.IntN(20)-10)
	filters := []struct {
		q  query.Node
		ok func(d *row) bool
	}{
		{&query.Terms{Field: "tag", Values: []string{tag, "t0"}}, func(d *row) bool { return slices.Contains(d.tags, tag) || slices.Contains(d.tags, "t0") }},
		{&query.Terms{Field: "id", Values: []string{key}}, func(d *row) bool { return d.key == key }},
		{&query.Range{Field: "id", Min: &query.Bound{Value: key}}, func(d *row) bool { return d.key >= key }},
		{&query.Range{Field: "n", Min: &query.Bound{Value: fmt.Sprint(least)}}, func(d *row) bool { return len(d.n) > 0 && d.n[0] >= least }},
		{&query.Bool{MustNot: []query.Node{&query.Exists{Field: "tag"}}}, func(d *row) bool { return len(d.tags) == 0 }},
	}
	f, desc := filters[r.IntN(len(filters))], r.IntN(2) == 0
	sign := 1
	if desc {
		sign = -1
	}
	orders := []struct {
		key  exec.SortKey
		less func(a, b *row) int
	}{
		{exec.SortKey{By: exec.ByID, Desc: desc}, func(a, b *row) int { return sign * strings.Compare(a.key, b.key) }},
		{exec.SortKey{By: exec.ByField, Field: "id", Desc: desc}, func(a, b *row) int { return sign * strings.Compare(a.key, b.key) }},
		{exec.SortKey{By: exec.ByField, Field: "n", Desc: desc}, func(a, b *row) int {
			if len(a.n) == 0 || len(b.n) == 0 {
				return len(b.n) - len(a.n)
			}
			return sign * cmp.Compare(a.n[0], b.n[0])
		}},
		{exec.SortKey{By: exec.ByField, Field: "tag", Desc: desc, Mode: exec.Greatest}, func(a, b *row) int {
			if len(a.tags) == 0 || len(b.tags) == 0 {
				return min(1, len(b.tags)) - min(1, len(a.tags))
			}
			return sign * strings.Compare(slices.Max(a.tags), slices.Max(b.tags))
		}},
	}
	o := orders[r.IntN(len(orders))]
	var want []*row
	for _, d := range rows {
		if f.ok(d) {
			want = append(want, d)
		}
	}
	slices.SortFunc(want, func(a, b *row) int { return cmp.Or(o.less(a, b), strings.Compare(a.key, b.key)) })
	req := exec.Request{Query: &query.Term{Field: "body", Text: "all"}, Filters: []query.Node{f.q}, Cache: cache, Sort: []exec.SortKey{o.key}, Limit: 1000}
	res, err := exec.Search(t.Context(), snap.Leaves(), snap.Schema(), an, req)
	if err != nil {
		t.Fatal(err)
	}
	var got, expect []string
	for _, h := range res.Hits {
		got = append(got, h.Key)
	}
	for _, d := range want {
		expect = append(expect, d.key)
	}
	if res.Total != uint64(len(want)) || !slices.Equal(got, expect) {
		t.Fatalf("%s by %+v: %d %v, want %v", f.q, o.key, res.Total, got, expect)
	}
}
