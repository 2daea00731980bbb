package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/topology/placement"
)

const copySDL = `index %s {
  field id: text<raw> [indexed, stored, fast, primary]
  field body: text [indexed<token_position>, stored]
  field tag: text<raw> [indexed, stored<multi>, fast]
  field n: i64 [stored, fast]
  field at: date [stored, fast]
  field hidden: text [indexed]
  field v: dense_vector<3> [indexed<metric: cosine>, stored]
  default_fields: [body]
}`

// copies is a node with indexes that hold the same, or parts of it.
type copies struct {
	*server
	in *shardLeaf
	r  *rand.Rand
}

func newCopies(t *testing.T, seed uint64, names ...string) *copies {
	t.Helper()
	s := newServer(t, Config{})
	s.every = 1000
	for _, name := range names {
		s.do("PUT", "/indexes/"+name, "text/plain", fmt.Sprintf(copySDL, name)).want(201)
	}
	in := s.node.Leaf().(*shardLeaf)
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	return &copies{s, in, rand.New(rand.NewPCG(seed, 3))}
}

func (c *copies) document(id string) string {
	words := []string{"warp", "weft", "loom", "reed", "shed", "yarn", "wale", "woof", "wool", "wick"}
	d := map[string]any{"id": id}
	text := func() string {
		var b strings.Builder
		for range c.r.IntN(9) {
			b.WriteString(words[min(c.r.IntN(len(words)), c.r.IntN(len(words)))] + " ")
		}
		return b.String()
	}
	d["body"] = text()
	if c.r.IntN(3) > 0 {
		d["tag"] = []string{fmt.Sprint("t", c.r.IntN(5)), fmt.Sprint("t", c.r.IntN(5))}
	}
	if c.r.IntN(3) > 0 {
		d["n"] = c.r.IntN(40) - 20
	}
	if c.r.IntN(3) > 0 {
		d["at"] = fmt.Sprintf("2024-0%d-01T00:00:00Z", 1+c.r.IntN(9))
	}
	if c.r.IntN(3) > 0 {
		d["hidden"] = text()
	}
	if c.r.IntN(3) > 0 {
		d["v"] = []float64{c.r.NormFloat64(), c.r.NormFloat64(), 1}
	}
	b, err := json.Marshal(d)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

func (c *copies) load(index, lines string) {
	c.t.Helper()
	if lines == "" {
		return
	}
	r, err := c.in.Bulk(context.Background(), &leaf.BulkRequest{Index: index}, strings.NewReader(lines))
	if err != nil || !r.OK {
		c.t.Fatal(r, err)
	}
}

func (c *copies) remove(index string, ids []string) {
	c.t.Helper()
	if _, err := c.in.DeleteMany(context.Background(), &leaf.DeleteRequest{Index: index, IDs: ids}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *copies) flush(index string, segments int) {
	c.t.Helper()
	l, err := c.node.catalog.use(context.Background(), index)
	if err != nil {
		c.t.Fatal(err)
	}
	defer l.release()
	if err := l.eng.Flush(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	if m, ok := l.eng.(interface {
		Merge(ctx context.Context, most int) error
	}); ok && segments > 0 {
		if err := m.Merge(context.Background(), segments); err != nil {
			c.t.Fatal(err)
		}
	}
}

func must[R any](t testing.TB) func(r R, err error) R {
	return func(r R, err error) R {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// answers are the replies of every kind of read, without what names the snapshot.
func (c *copies) answers(index string, v leaf.View, ids []string) map[string]any {
	c.t.Helper()
	ctx, in, out := context.Background(), c.in, map[string]any{}
	parse := func(text string) query.Node {
		q, err := query.Parse(text, query.ParseOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		return q
	}
	specs, err := agg.ParseJSON([]byte(`{"tags":{"kind":"terms","field":"tag","size":0,"aggs":{"n":{"kind":"stats","field":"n"}}},"n":{"kind":"histogram","field":"n","interval":5},"w":{"kind":"filter","filter":"warp","aggs":{"c":{"kind":"cardinality","field":"tag"}}}}`))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, text := range []string{"*", "warp", "warp weft loom", "w*", "+reed -wool", `"warp weft"`, "hidden:warp", "tag:t1", "n:[-5 TO 10]", "body:woo*", "NOT warp"} {
		q := parse(text)
		for k, req := range []leaf.SearchRequest{
			{Limit: 200, KeepStats: true},
			{Limit: 200, Sort: []exec.SortKey{{Field: "n"}}},
			{Limit: 3, Filters: []query.Node{parse("tag:t1 OR tag:t2")}},
			{Limit: 3, Total: exec.TotalNone},
		} {
			req.Index, req.View, req.Query = index, v, q
			r := must[*leaf.SearchReply](c.t)(in.Search(ctx, &req))
			out[fmt.Sprint("search ", text, k)] = r
		}
		out["stats "+text] = must[*leaf.StatsReply](c.t)(in.Stats(ctx, &leaf.StatsRequest{Index: index, View: v, Query: q, Terms: []score.Term{{Field: "body", Text: "warp"}}}))
		r := must[*leaf.AggregateReply](c.t)(in.Aggregate(ctx, &leaf.AggregateRequest{Index: index, View: v, Query: q, Specs: specs, Values: []string{"n", "tag"}}))
		b, err := r.State.Finish().AppendJSON(nil, agg.Printing{})
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range r.Values {
			slices.Sort(r.Values[i].Numbers)
			slices.Sort(r.Values[i].Texts)
		}
		out["aggs "+text], out["aggregate "+text] = string(b), r
	}
	out["knn"] = must[*leaf.KNNReply](c.t)(in.KNN(ctx, &leaf.KNNRequest{Index: index, View: v, KNN: api.KNN{Field: "v", Dense: []float32{1, 0.5, 1}, K: 30, Exact: true}}))
	out["knn of some"] = must[*leaf.KNNReply](c.t)(in.KNN(ctx, &leaf.KNNRequest{Index: index, View: v, KNN: api.KNN{Field: "v", Dense: []float32{1, 0.5, 1}, K: 30}, Filters: []query.Node{parse("warp")}}))
	var list []string
	out["ids"] = must[*leaf.IDsReply](c.t)(in.IDs(ctx, &leaf.IDsRequest{Index: index, View: v}, func(page []string) error { list = append(list, page...); return nil }))
	out["list"] = list
	out["docs"] = must[*leaf.DocsReply](c.t)(in.Docs(ctx, &leaf.DocsRequest{Index: index, View: v}))
	out["has"] = must[*leaf.HasReply](c.t)(in.Has(ctx, &leaf.HasRequest{Index: index, View: v, IDs: ids}))
	var docs []leaf.ExportedDoc
	out["export"] = must[*leaf.ExportReply](c.t)(in.Export(ctx, &leaf.ExportRequest{Index: index, View: v, IDs: ids}, func(d leaf.ExportedDoc) error { docs = append(docs, d); return nil }))
	out["exported"] = docs
	out["sums"] = must[*leaf.SumsReply](c.t)(in.Sums(ctx, &leaf.SumsRequest{Index: index, View: v, IDs: ids}))
	out["range"] = must[*leaf.SumsReply](c.t)(in.Sums(ctx, &leaf.SumsRequest{Index: index, View: v, Range: &leaf.HashRange{To: 1 << 31}, Limit: 1000}))
	out["digest"] = must[*leaf.DigestReply](c.t)(in.Digest(ctx, &leaf.DigestRequest{Index: index, View: v, Depth: 4}))
	return out
}

var sameAnswers = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreFields(leaf.Meta{}, "Timings", "Snapshot"),
	cmpopts.IgnoreFields(leaf.AggregateReply{}, "State"),
	cmp.Transformer("held", func(s score.Stats) map[score.Term]uint64 {
		held := map[score.Term]uint64{{Text: " docs"}: s.Docs}
		for t, n := range s.DF {
			if n > 0 {
				held[t] = n
			}
		}
		for f, st := range s.Fields {
			held[score.Term{Field: f, Text: " sum"}], held[score.Term{Field: f, Text: " docs"}] = st.SumLen, st.Docs
		}
		return held
	}),
}

// TestOwnedViewsHaveNoTraceOfTheRest holds what a view of an index answers against an index that holds only what the view shows, over
// replaced and deleted documents, flushes and merges.
func TestOwnedViewsHaveNoTraceOfTheRest(t *testing.T) {
	for seed := range uint64(2) {
		c := newCopies(t, seed, "all", "part", "whole")
		shares := []placement.Share{
			{Spec: placement.Spec{Rule: placement.Ring, Shards: 2}, Ordinal: 1},
			{Spec: placement.Spec{Rule: placement.Modulo, Shards: 3}, Ordinal: int(seed)},
		}
		if seed == 1 {
			shares[0].Rule = placement.Rendezvous
		}
		ring, err := placement.New(shares[0].Spec)
		if err != nil {
			t.Fatal(err)
		}
		owned := func(id string) bool {
			return ring.Shard(id) == shares[0].Ordinal && int(placement.Hash(id)%3) == shares[1].Ordinal
		}
		var ids []string
		for i := range 400 {
			ids = append(ids, fmt.Sprint("d", i))
		}
		for step := range 8 {
			var all, part strings.Builder
			for range 120 {
				id := ids[c.r.IntN(len(ids))]
				doc := c.document(id) + "\n"
				all.WriteString(doc)
				if owned(id) {
					part.WriteString(doc)
				}
			}
			c.load("all", all.String())
			c.load("part", part.String())
			gone := ids[c.r.IntN(300):][:40]
			c.remove("all", gone)
			c.remove("part", gone)
			if step%3 == 1 {
				c.flush("all", 0)
			}
			if step == 5 {
				c.flush("part", 0)
			}
			if step == 6 {
				c.flush("all", 1)
			}
			if step < 3 || step%2 == 1 {
				continue
			}
			got, want := c.answers("all", leaf.View{Owned: shares}, ids), c.answers("part", leaf.View{}, ids)
			if d := cmp.Diff(want, got, sameAnswers); d != "" {
				t.Fatalf("step %d: −of an index of its own +of the view\n%s", step, d)
			}
			if n := got["docs"].(*leaf.DocsReply).Docs; n == 0 || n > 150 {
				t.Fatalf("%d documents are owned", n)
			}
		}
	}
}

func TestOwnedViewsAreChecked(t *testing.T) {
	c := newCopies(t, 1, "all")
	good := placement.Share{Spec: placement.Spec{Rule: placement.Ring, Shards: 2}}
	for name, shares := range map[string][]placement.Share{
		"too many":        slices.Repeat([]placement.Share{good}, leaf.MaxShares+1),
		"no rule":         {{Spec: placement.Spec{Shards: 2}}},
		"no shards":       {{Spec: placement.Spec{Rule: placement.Ring}}},
		"ordinal too low": {{Spec: good.Spec, Ordinal: -1}},
		"ordinal beyond":  {{Spec: good.Spec, Ordinal: 2}},
	} {
		_, err := c.in.Docs(t.Context(), &leaf.DocsRequest{Index: "all", View: leaf.View{Owned: shares}})
		if p := wantProblem(t, name, err, api.InvalidParameter); p.Field != "owned" {
			t.Errorf("%s: field %q", name, p.Field)
		}
	}
	if _, err := c.in.Docs(t.Context(), &leaf.DocsRequest{Index: "all", View: leaf.View{Owned: slices.Repeat([]placement.Share{good}, leaf.MaxShares)}}); err != nil {
		t.Error(err)
	}
}

// sources are the documents of an index as Export gives them.
func (c *copies) sources(index string) map[string][]byte {
	c.t.Helper()
	ctx, out := context.Background(), map[string][]byte{}
	_, err := c.in.IDs(ctx, &leaf.IDsRequest{Index: index}, func(ids []string) error {
		_, err := c.in.Export(ctx, &leaf.ExportRequest{Index: index, IDs: ids}, func(d leaf.ExportedDoc) error {
			out[d.ID] = bytes.Clone(d.Source)
			return nil
		})
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func sumOf(source []byte) leaf.Sum { return xxh3.Hash128(source).Bytes() }

// TestSumsAndDigestsAgainstTheirDefinition makes them from what Export gives.
func TestSumsAndDigestsAgainstTheirDefinition(t *testing.T) {
	c := newCopies(t, 4, "x")
	ctx := t.Context()
	for step := range 6 {
		var b strings.Builder
		for range 200 {
			b.WriteString(c.document(fmt.Sprint("d", c.r.IntN(500))) + "\n")
		}
		c.load("x", b.String())
		var gone []string
		for i := range 20 {
			gone = append(gone, fmt.Sprint("d", 25*i+step))
		}
		c.remove("x", gone)
		if step%2 == 1 {
			c.flush("x", step%4)
		}
		docs := c.sources("x")
		// Sums by id, some of them not there.
		var ids []string
		for i := range 510 {
			ids = append(ids, fmt.Sprint("d", i))
		}
		r := must[*leaf.SumsReply](t)(c.in.Sums(ctx, &leaf.SumsRequest{Index: "x", IDs: ids}))
		for i, id := range ids {
			want := leaf.Sum{}
			if src, ok := docs[id]; ok {
				want = sumOf(src)
			}
			if r.Sums[i] != want {
				t.Fatalf("step %d: %s: %x, want %x", step, id, r.Sums[i], want)
			}
		}
		if r.IDs != nil || r.Next != "" {
			t.Error("sums by id name ids")
		}
		// Sums of ranges, by pages.
		for _, rng := range []leaf.HashRange{{From: 0, To: 1<<32 - 1}, {From: 1 << 30, To: 1<<31 - 1}, {From: 7, To: 7}} {
			want := map[string]leaf.Sum{}
			for id, src := range docs {
				if h := placement.Hash(id); h >= rng.From && h <= rng.To {
					want[id] = sumOf(src)
				}
			}
			limit := []int{1, 17, 10_000}[step%3]
			got, last := map[string]leaf.Sum{}, ""
			for after := ""; ; {
				r := must[*leaf.SumsReply](t)(c.in.Sums(ctx, &leaf.SumsRequest{Index: "x", Range: &rng, Limit: limit, After: after}))
				for i, id := range r.IDs {
					if id <= last {
						t.Fatalf("%s stands behind %s", id, last)
					}
					got[id], last = r.Sums[i], id
				}
				if r.Next == "" {
					break
				}
				if len(r.IDs) != limit || r.Next != last {
					t.Fatalf("a page of %d of %d ends at %s, next %s", len(r.IDs), limit, last, r.Next)
				}
				after = r.Next
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatal(d)
			}
		}
		// Digests.
		for _, depth := range []int{0, 1, 7, leaf.MaxDepth} {
			r := must[*leaf.DigestReply](t)(c.in.Digest(ctx, &leaf.DigestRequest{Index: "x", Depth: depth}))
			sums, counts := map[uint64]*big.Int{}, map[uint64]uint32{}
			for id, src := range docs {
				sum := sumOf(src)
				d := xxh3.Hash128(append(append([]byte(id), 0), sum[:]...)).Bytes()
				at := uint64(placement.Hash(id)) >> (32 - depth)
				if sums[at] == nil {
					sums[at] = new(big.Int)
				}
				sums[at].Add(sums[at], new(big.Int).SetBytes(d[:]))
				counts[at]++
			}
			if len(r.Docs) != 1<<depth || len(r.Sums) != 1<<depth {
				t.Fatalf("%d and %d ranges at depth %d", len(r.Docs), len(r.Sums), depth)
			}
			for at := range uint64(1) << depth {
				var want leaf.Sum
				if s := sums[at]; s != nil {
					s.Mod(s, new(big.Int).Lsh(big.NewInt(1), 128)).FillBytes(want[:])
				}
				if r.Sums[at] != want || r.Docs[at] != counts[at] {
					t.Fatalf("depth %d range %d: %d %x, want %d %x", depth, at, r.Docs[at], r.Sums[at], counts[at], want)
				}
			}
		}
	}
}

func TestSumsAndDigestsAreChecked(t *testing.T) {
	c := newCopies(t, 1, "x")
	ctx := t.Context()
	all := &leaf.HashRange{To: 1<<32 - 1}
	for field, reqs := range map[string][]leaf.SumsRequest{
		"ids":   {{IDs: make([]string, leaf.MaxIDs+1)}},
		"range": {{IDs: []string{"a"}, Range: all, Limit: 1}, {Range: &leaf.HashRange{From: 2, To: 1}, Limit: 1}},
		"limit": {{Range: all}, {Range: all, Limit: -1}, {Range: all, Limit: leaf.MaxIDs + 1}},
	} {
		for _, req := range reqs {
			req.Index = "x"
			_, err := c.in.Sums(ctx, &req)
			if p := wantProblem(t, field, err, api.InvalidParameter); p.Field != field {
				t.Errorf("%s: field %q", field, p.Field)
			}
		}
	}
	for _, depth := range []int{-1, leaf.MaxDepth + 1} {
		_, err := c.in.Digest(ctx, &leaf.DigestRequest{Index: "x", Depth: depth})
		wantProblem(t, "depth", err, api.InvalidParameter)
	}
	_, err := c.in.Digest(ctx, &leaf.DigestRequest{Index: "none"})
	wantProblem(t, "no index", err, api.IndexNotFound)
	_, err = c.in.Sums(ctx, &leaf.SumsRequest{Index: "none"})
	wantProblem(t, "no index", err, api.IndexNotFound)
	if r, err := c.in.Sums(ctx, &leaf.SumsRequest{Index: "x", IDs: []string{"", "\xff", strings.Repeat("x", 600)}}); err != nil || r.Sums[0] != (leaf.Sum{}) {
		t.Error(r, err)
	}
	release := sync.OnceFunc(must[interface{ Release() }](t)(c.node.scans.Enter(ctx, c.node.scans.Limit())).Release)
	defer release()
	waiting, cancel := context.WithCancel(ctx)
	done := make(chan error, 2)
	go func() { _, err := c.in.Digest(waiting, &leaf.DigestRequest{Index: "x"}); done <- err }()
	go func() { _, err := c.in.Sums(waiting, &leaf.SumsRequest{Index: "x"}); done <- err }()
	until(t, "both wait for a place among the scans", func() bool { return c.node.scans.Waiting() == 2 })
	cancel()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestExportedDocumentsAreAFixpoint takes documents over from one index to the next: the sources, and with them the checksums, stay.
func TestExportedDocumentsAreAFixpoint(t *testing.T) {
	c := newCopies(t, 1)
	for _, name := range []string{"a", "b"} {
		sdl := strings.Replace(fmt.Sprintf(copySDL, name), "default_fields", "dynamic: true\n  default_fields", 1)
		c.do("PUT", "/indexes/"+name, "text/plain", sdl).want(201)
	}
	docs := []string{
		`{ "id" : "space" ,	"body" : "a  b" , "tag" : [ "x" , "y" ] }`,
		`{"id":"unicode","body":"\u00e9\ud834\udd1e\u2028 é𝄞 \"\\\/\b\f\n\r\t"}`,
		`{"tag":"last id","n":-0,"id":"zero"}`,
		`{"id":"numbers","n":9007199254740993,"odd":1.50e+2,"more":[1.0,0.10,-0.0,1E5,12345678901234567890]}`,
		`{"id":"dates","at":"2024-02-29T23:59:59.999+02:00","when":"1969-12-31T23:59:59.123456789Z"}`,
		`{"id":"vector","v":[0.1,1e-3,3],"hidden":"not stored\u0041"}`,
		`{"id":"nested","o":{"a":{"b":[{"c":1},{"c":null}]},"empty":{},"list":[]},"nothing":null}`,
		"{\"id\":\"escapes\\u002d\\\"\",\"body\":\"\\u0000 <script>&\"}",
	}
	for _, doc := range docs {
		if _, err := c.in.Index(t.Context(), &leaf.IndexRequest{Index: "a", Body: []byte(doc)}); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
	}
	first := c.sources("a")
	if len(first) != len(docs) {
		t.Fatalf("%d documents of %d are in", len(first), len(docs))
	}
	for id, src := range first {
		if _, err := c.in.Index(t.Context(), &leaf.IndexRequest{Index: "b", Body: src}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	second := c.sources("b")
	if d := cmp.Diff(first, second); d != "" {
		t.Error(d)
	}
	c.flush("b", 0)
	if d := cmp.Diff(first, c.sources("b")); d != "" {
		t.Error(d)
	}
	a := must[*leaf.DigestReply](t)(c.in.Digest(t.Context(), &leaf.DigestRequest{Index: "a", Depth: 3}))
	b := must[*leaf.DigestReply](t)(c.in.Digest(t.Context(), &leaf.DigestRequest{Index: "b", Depth: 3}))
	if d := cmp.Diff(a, b, sameAnswers); d != "" {
		t.Error(d)
	}
	if n := binary.BigEndian.Uint64(a.Sums[0][:]) | binary.BigEndian.Uint64(a.Sums[7][:]); n == 0 {
		t.Error("the digests are empty")
	}
}

// TestSyncIsCompareAndSwap goes through what may be there and what may be expected.
func TestSyncIsCompareAndSwap(t *testing.T) {
	const old, other, want = `{"id":"k","n":1}`, `{"id":"k","n":2}`, `{ "id": "k", "n": 3 }`
	compact := []byte(`{"id":"k","n":3}`)
	sum := func(doc string) leaf.Sum {
		if doc == "" {
			return leaf.Sum{}
		}
		return sumOf([]byte(doc))
	}
	for _, flushed := range []bool{false, true} {
		for _, there := range []string{"", old, string(compact)} {
			for _, expect := range []string{"", old, other, string(compact)} {
				for _, body := range []string{"", want} {
					t.Run(fmt.Sprintf("%v/%s/%s/%s", flushed, there, expect, body), func(t *testing.T) {
						c := newCopies(t, 1, "x")
						if there != "" {
							c.put("x", there)
						}
						if flushed {
							c.flush("x", 0)
						}
						item := leaf.SyncItem{ID: "k", Expect: sum(expect)}
						if body != "" {
							item.Body = []byte(body)
						}
						r, err := c.in.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{item}})
						if err != nil {
							t.Fatal(err)
						}
						after := there
						if there == expect {
							after = ""
							if body != "" {
								after = string(compact)
							}
						}
						if r.Applied[0] != (there == expect) || r.Problems != nil || r.Sums[0] != sum(after) {
							t.Errorf("%+v, want %q to be there", r, after)
						}
						if got := string(c.sources("x")["k"]); got != after {
							t.Errorf("there is %q, want %q", got, after)
						}
						now := must[*leaf.DocsReply](t)(c.in.Docs(t.Context(), &leaf.DocsRequest{Index: "x"}))
						if now.Snapshot != r.Snapshot {
							t.Errorf("the reply is about %+v, there is %+v", r.Snapshot, now.Snapshot)
						}
					})
				}
			}
		}
	}
}

// TestSyncOfManyItems has batches of several chunks, with items that are refused for themselves among them.
func TestSyncOfManyItems(t *testing.T) {
	c := newCopies(t, 1, "x")
	c.node.chunkDocs = 7
	c.do("PUT", "/indexes/grows", "", "").want(201)
	var items []leaf.SyncItem
	for i := range 40 {
		id := fmt.Sprint("d", i)
		body := fmt.Sprintf(`{"id":%q,"n":%d}`, id, i)
		switch i {
		case 3:
			body = `{"id":"d3","n":"no number"}`
		case 11:
			body = `{"id":"another","n":1}`
		case 12:
			body = `{"id":"d12"`
		case 13:
			body = ``
		case 25:
			body = fmt.Sprintf(`{"id":"d25","new_field_%d":true}`, i)
		}
		items = append(items, leaf.SyncItem{ID: id, Body: []byte(body)})
	}
	for _, index := range []string{"x", "grows"} {
		bad := map[int]api.Code{3: api.TypeConflict, 11: api.InvalidID, 12: api.InvalidJSON, 13: api.InvalidJSON}
		if index == "x" {
			bad[25] = api.UnknownField
		}
		if index == "grows" {
			c.put(index, `{"id":"first","n":1}`)
		}
		r := must[*leaf.SyncReply](t)(c.in.Sync(t.Context(), &leaf.SyncRequest{Index: index, Items: items}))
		there := c.sources(index)
		for i := range items {
			code, refused := bad[i]
			src, ok := there[items[i].ID]
			switch {
			case r.Applied[i] == refused, ok == refused, ok && r.Sums[i] != sumOf(src), !ok && r.Sums[i] != leaf.Sum{}:
				t.Errorf("%s: item %d: applied %v, there %v", index, i, r.Applied[i], ok)
			case refused:
				if r.Problems == nil || r.Problems[i] == nil || r.Problems[i].Code != code {
					t.Errorf("%s: item %d: %v, want %s", index, i, r.Problems[i], code)
				}
			case r.Problems[i] != nil:
				t.Errorf("%s: item %d: %v", index, i, r.Problems[i])
			}
		}
		// Once more: nothing is as expected any more, so that nothing is even looked at for faults but what is not there still.
		again := must[*leaf.SyncReply](t)(c.in.Sync(t.Context(), &leaf.SyncRequest{Index: index, Items: items}))
		for i := range items {
			if again.Applied[i] || again.Sums[i] != r.Sums[i] {
				t.Errorf("%s: item %d is applied twice", index, i)
			}
		}
	}
	info := must[*leaf.InfoReply](t)(c.in.Info(t.Context(), &leaf.InfoRequest{Index: "grows"}))
	if !strings.Contains(info.Index.Schema, "new_field_25") {
		t.Errorf("the schema did not grow: %s", info.Index.Schema)
	}
	// A document that is not applied adds no fields.
	r := must[*leaf.SyncReply](t)(c.in.Sync(t.Context(), &leaf.SyncRequest{Index: "grows", Items: []leaf.SyncItem{{ID: "first", Body: []byte(`{"id":"first","never":1}`)}}}))
	info = must[*leaf.InfoReply](t)(c.in.Info(t.Context(), &leaf.InfoRequest{Index: "grows"}))
	if r.Applied[0] || strings.Contains(info.Index.Schema, "never") {
		t.Errorf("applied %v; schema %s", r.Applied[0], info.Index.Schema)
	}
}

func TestSyncIsChecked(t *testing.T) {
	c := newCopies(t, 1, "x")
	for name, items := range map[string][]leaf.SyncItem{
		"too many": make([]leaf.SyncItem, leaf.MaxSync+1),
		"twice":    {{ID: "a"}, {ID: "b"}, {ID: "a"}},
	} {
		_, err := c.in.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: items})
		if p := wantProblem(t, name, err, api.InvalidParameter); p.Field != "items" {
			t.Errorf("%s: field %q", name, p.Field)
		}
	}
	_, err := c.in.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{}}})
	wantProblem(t, "no id", err, api.InvalidID)
	_, err = c.in.Sync(t.Context(), &leaf.SyncRequest{Index: "none", Items: []leaf.SyncItem{{ID: "a", Body: []byte(`{"id":"a"}`)}}})
	wantProblem(t, "no index", err, api.IndexNotFound)
	if r, err := c.in.Sync(t.Context(), &leaf.SyncRequest{Index: "x"}); err != nil || len(r.Applied) != 0 {
		t.Error(r, err)
	}
	if c.node.writes.Used()+c.node.memory.Used() != 0 {
		t.Error("something is still held")
	}
}

// TestSyncLosesNoWrites races syncs with each other and with a plain write of the same document. Contents are never the same twice, so
// that the syncs that were applied make chains; what is there at the end has to lie on the chain that begins with the plain write.
func TestSyncLosesNoWrites(t *testing.T) {
	c := newCopies(t, 1, "x")
	ctx := t.Context()
	doc := func(n int) []byte { return fmt.Appendf(nil, `{"id":"k","n":%d}`, n) }
	next := 0
	var mu sync.Mutex
	number := func() int {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next
	}
	applied := 0
	for round := range 60 {
		left := map[leaf.Sum]leaf.Sum{}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 6 {
					have, err := c.in.Sums(ctx, &leaf.SumsRequest{Index: "x", IDs: []string{"k"}})
					if err != nil {
						t.Error(err)
						return
					}
					body := doc(number())
					r, err := c.in.Sync(ctx, &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{ID: "k", Expect: have.Sums[0], Body: body}}})
					switch {
					case err != nil || r.Problems != nil:
						t.Error(r, err)
						return
					case !r.Applied[0]:
						continue
					case r.Sums[0] != sumOf(body):
						t.Errorf("applied, and the checksum is %x", r.Sums[0])
					}
					mu.Lock()
					if _, twice := left[have.Sums[0]]; twice {
						t.Error("two syncs replaced the same document")
					}
					left[have.Sums[0]] = r.Sums[0]
					applied++
					mu.Unlock()
				}
			})
		}
		plain := doc(number())
		wg.Go(func() {
			if _, err := c.in.Index(ctx, &leaf.IndexRequest{Index: "x", Body: plain}); err != nil {
				t.Error(err)
			}
		})
		if round%10 == 5 {
			wg.Go(func() { c.flush("x", round%2) })
		}
		wg.Wait()
		now := sumOf(c.sources("x")["k"])
		at := sumOf(plain)
		for steps := 0; at != now; steps++ {
			to, ok := left[at]
			if !ok || steps > len(left) {
				t.Fatalf("round %d: what is there did not come of the plain write: it was overwritten unseen", round)
			}
			at = to
		}
	}
	if applied < 60 {
		t.Errorf("only %d syncs were applied", applied)
	}
}

// TestSyncSaysWhatWasNotApplied: when the index stops taking writes in the middle, what was applied is in, and the rest has the reason.
func TestSyncSaysWhatWasNotApplied(t *testing.T) {
	for _, good := range []int{0, 1, 2} {
		faults := &failingEngine{good: good}
		s := startServer(t, Config{DataDir: t.TempDir()}, func(n *Node) {
			open := n.openEngine
			n.openEngine = func(ctx context.Context, cfg shard.Config) (engine, error) {
				e, err := open(ctx, cfg)
				return &failing{e, faults}, err
			}
			n.chunkDocs = 2
		})
		s.do("PUT", "/indexes/x", "text/plain", fmt.Sprintf(copySDL, "x")).want(201)
		in := s.node.Leaf().(*shardLeaf)
		var items []leaf.SyncItem
		for i := range 6 {
			items = append(items, leaf.SyncItem{ID: fmt.Sprint(i), Body: fmt.Appendf(nil, `{"id":"%d"}`, i)})
		}
		r, err := in.Sync(t.Context(), &leaf.SyncRequest{Index: "x", Items: items})
		if good == 0 {
			wantProblem(t, "nothing applied", err, api.MemtableFull)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range items {
			in := i < 2*good
			if r.Applied[i] != in || (r.Problems[i] == nil) != in || !in && (r.Problems[i].Code != api.MemtableFull || r.Sums[i] != leaf.Sum{}) {
				t.Errorf("%d batches: item %d: %v %v %x", good, i, r.Applied[i], r.Problems[i], r.Sums[i])
			}
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}

// failing is an engine that refuses writes for want of room after a number of them.
type failing struct {
	engine
	faults *failingEngine
}

type failingEngine struct{ good int }

func (f *failing) Apply(ctx context.Context, ops []shard.Op) ([]shard.OpResult, error) {
	if f.faults.good == 0 {
		return nil, &shard.OverloadError{Limit: "memtable_bytes", Used: 2, Max: 1}
	}
	f.faults.good--
	return f.engine.Apply(ctx, ops)
}

// BenchmarkSums is the comparison of 1,000 documents that were just written, and of one.
func BenchmarkSums(b *testing.B) {
	s := newServer(b, Config{})
	in := s.node.Leaf()
	defer in.Close()
	ids := benchCopies(b, in, 1000)
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := in.(*shardLeaf).Sums(b.Context(), &leaf.SumsRequest{Index: "x", IDs: ids[:n]}); err != nil || len(r.Sums) != n {
					b.Fatal(r, err)
				}
			}
		})
	}
}

// BenchmarkDigest is a digest of 200,000 documents in segments whose checksums are remembered, of all and of one half, and the first page
// of a narrow range.
func BenchmarkDigest(b *testing.B) {
	s := newServer(b, Config{})
	in := s.node.Leaf()
	defer in.Close()
	benchCopies(b, in, 200_000)
	l, err := s.node.catalog.use(b.Context(), "x")
	if err != nil {
		b.Fatal(err)
	}
	if err := l.eng.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	l.release()
	half := leaf.View{Owned: []placement.Share{{Spec: placement.Spec{Rule: placement.Ring, Shards: 2}}}}
	for _, c := range []struct {
		name string
		view leaf.View
	}{{"all", leaf.View{}}, {"half", half}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := in.(*shardLeaf).Digest(b.Context(), &leaf.DigestRequest{Index: "x", View: c.view, Depth: 12}); err != nil || len(r.Sums) != 1<<12 {
					b.Fatal(r, err)
				}
			}
		})
	}
	b.Run("range", func(b *testing.B) {
		for b.Loop() {
			req := &leaf.SumsRequest{Index: "x", Range: &leaf.HashRange{From: 1 << 20, To: 2<<20 - 1}, Limit: 1000}
			if r, err := in.(*shardLeaf).Sums(b.Context(), req); err != nil || len(r.Sums) == 0 {
				b.Fatal(r, err)
			}
		}
	})
}

// benchCopies loads n documents into index x and returns their ids.
func benchCopies(b *testing.B, in leaf.Leaf, n int) []string {
	b.Helper()
	ids := make([]string, n)
	var docs bytes.Buffer
	for i := range ids {
		ids[i] = fmt.Sprintf("document-%07d", i)
		fmt.Fprintf(&docs, `{"id":%q,"title":"a title of some words","body":"%s","n":%d}`+"\n", ids[i], strings.Repeat("words of a body ", 10), i)
	}
	if r, err := in.Bulk(b.Context(), &leaf.BulkRequest{Index: "x"}, &docs); err != nil || !r.OK {
		b.Fatal(r, err)
	}
	return ids
}
