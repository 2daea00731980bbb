package framed

import (
	"fmt"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/shard/exec"
)

// searchOf is a search with an answer of n hits.
func searchOf(n int, sort []exec.SortKey) (*searchCall, *leaf.SearchReply) {
	q := &query.Bool{Must: []query.Node{&query.Term{Text: "wind"}, &query.Term{Field: "title", Text: "night"}}}
	c := &searchCall{SearchRequest: leaf.SearchRequest{Index: "books", Query: q, Limit: n, Sort: sort}, typed: true}
	r := &leaf.SearchReply{Meta: goldenMeta, Docs: 1_000_000, Total: 12_345, TotalRelation: exec.Exactly}
	for i := range n {
		h := leaf.Hit{ID: fmt.Sprintf("pkg/%07d", i*7919), Score: 12.5 / float32(i+1)}
		for range sort {
			h.Sort = append(h.Sort, exec.SortValue{Kind: exec.NumberValue, Number: uint64(i) << 40})
		}
		r.Hits = append(r.Hits, h)
	}
	return c, r
}

var benchOrders = []struct {
	name string
	sort []exec.SortKey
}{{"score", nil}, {"field", []exec.SortKey{{By: exec.ByField, Field: "price"}}}}

func BenchmarkWriteSearchReply(b *testing.B) {
	for _, o := range benchOrders {
		b.Run("200/"+o.name, func(b *testing.B) {
			c, r := searchOf(200, o.sort)
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if out, prob := appendSearchReply(buf[:0], c, r, nil); prob != nil {
					err = prob
				} else {
					buf = out
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}

func BenchmarkReadSearchReply(b *testing.B) {
	for _, o := range benchOrders {
		b.Run("200/"+o.name, func(b *testing.B) {
			c, r := searchOf(200, o.sort)
			buf, prob := appendSearchReply(nil, c, r, nil)
			if prob != nil {
				b.Fatal(prob)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				if _, prob, err := readSearchReply(buf, &c.SearchRequest); prob != nil || err != nil {
					b.Fatal(prob, err)
				}
			}
		})
	}
}

func BenchmarkWriteSearchRequest(b *testing.B) {
	c, _ := searchOf(10, nil)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		w := begin(buf[:0], opSearch, c.Index, 0)
		appendSearchRequest(w, &c.SearchRequest)
		out, prob := w.end()
		if prob != nil {
			b.Fatal(prob)
		}
		buf = out
	}
}

func BenchmarkReadSearchRequest(b *testing.B) {
	c, _ := searchOf(10, nil)
	w := begin(nil, opSearch, c.Index, 0)
	appendSearchRequest(w, &c.SearchRequest)
	request, prob := w.end()
	if prob != nil {
		b.Fatal(prob)
	}
	b.ReportAllocs()
	for b.Loop() {
		m, prob, _ := parseMessage(request)
		if prob != nil {
			b.Fatal(prob)
		}
		if readSearchRequest(m); m.prob != nil {
			b.Fatal(m.prob)
		}
	}
}

// A hit costs no allocation of its own, written or read.
func TestAllocationsOfHits(t *testing.T) {
	for _, o := range benchOrders {
		c, r := searchOf(200, o.sort)
		buf, prob := appendSearchReply(nil, c, r, nil)
		if prob != nil {
			t.Fatal(prob)
		}
		if n := testing.AllocsPerRun(20, func() {
			if _, prob := appendSearchReply(buf[:0], c, r, nil); prob != nil {
				t.Fatal(prob)
			}
		}); n > 4 {
			t.Errorf("%s: writing takes %v allocations", o.name, n)
		}
		if n := testing.AllocsPerRun(20, func() {
			if _, prob, err := readSearchReply(buf, &c.SearchRequest); prob != nil || err != nil {
				t.Fatal(prob, err)
			}
		}); n > 16 {
			t.Errorf("%s: reading takes %v allocations", o.name, n)
		}
	}
}
