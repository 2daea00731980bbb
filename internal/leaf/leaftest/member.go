package leaftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/topology/placement"
)

// RunMember runs the suite of leaf.Member, which Run does not hold: the calls that a coordinator needs, and how View narrows and
// loosens those of a leaf. Env.Leaf and Env.Node.Leaf have to be members; env is as for Run.
func RunMember(t *testing.T, env func(t *testing.T) Env) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, e Env)
	}{
		{"Shown", testShown},
		{"LocalStats", testLocalStats},
		{"Lenient", testLenient},
		{"Owned", testOwned},
		{"Indexes", testIndexes},
		{"Place", testPlace},
		{"Sums", testSums},
		{"Sync", testSync},
		{"Fences", testFences},
		{"Keys", testKeys},
		{"Errors", testMemberErrors},
		{"Limits", testMemberLimits},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := env(t)
			for what, l := range map[string]leaf.Leaf{"the leaf under test": e.Leaf, "the node": e.Node.Leaf()} {
				if _, ok := l.(leaf.Member); !ok {
					t.Fatalf("%s, a %T, is no member", what, l)
				}
			}
			c.test(t, e)
			idle(t, e)
		})
	}
}

func member(e Env) leaf.Member { return e.Leaf.(leaf.Member) }

// inside is the node behind the leaf, as a member.
func inside(e Env) leaf.Member { return e.Node.Leaf().(leaf.Member) }

// bothMembers is both for the calls of a member.
func bothMembers[R any](t testing.TB, e Env, what string, call func(m leaf.Member) (*R, error)) (*R, error) {
	t.Helper()
	return both(t, e, what, func(l leaf.Leaf) (*R, error) { return call(l.(leaf.Member)) })
}

// shows are all that can be wanted of documents.
func shows() []leaf.Show {
	mark := &api.Highlight{Fields: []string{"title", "body"}, Fragments: 2, FragmentSize: 40, Pre: "<b \"1\">", Post: "</b>"}
	return []leaf.Show{
		{},
		{Source: true},
		{Source: true, Fields: []string{}},
		{Source: true, Fields: []string{"title", "tag", "i"}},
		{Fields: []string{"title"}},
		{Highlight: mark},
		{Highlight: &api.Highlight{Fields: []string{api.EveryField}, Raw: true}},
		{Explain: true},
		{Source: true, Highlight: mark, Explain: true, Fields: []string{"v", "id"}},
	}
}

// vectors search every kind of vector field.
func vectors() []*api.KNN {
	return []*api.KNN{
		nil,
		{Field: "v", Dense: []float32{1, 2, -3, 0.1}, K: 10, Combiner: score.Combiner{Kind: score.Max}},
		{Field: "v", Dense: []float32{4, 3, 2, 1}, K: 7, Combiner: score.Combiner{Kind: score.LogSumExp, Temperature: 1.5}},
		{Field: "bits", Bits: []byte{0xf0, 0x0f}, K: 12, Combiner: score.Combiner{Kind: score.Max}},
		{Field: "sp", Indices: []uint32{0, 3, 5}, Weights: []float32{1, 0.25, 3}, K: 12, Combiner: score.Combiner{Kind: score.Sum}},
	}
}

func testShown(t *testing.T, e Env) {
	ids := fill(t, e, 200)
	ctx := t.Context()
	filters := []query.Node{parse(t, "i:[0 TO *]"), parse(t, "tag:t1 OR tag:t2")}
	knn := vectors()
	for i, q := range queries(t, e) {
		req := leaf.FetchRequest{Index: corpusIndex, Query: q, Show: shows()[i%len(shows())], KNN: knn[i%len(knn)]}
		req.IDs = append(slices.Clone(awkward), "both", "nosuch", "least", "both", "", strings.Repeat("x", 300), ids[i%len(ids)], ids[(7*i)%len(ids)])
		if i%3 == 0 {
			req.Filters = filters
		}
		if i%4 == 1 {
			req.DefaultFields = []string{"body"}
		}
		if i%5 == 2 {
			req.Stats = &score.Stats{
				Docs: 1 << 40, Fields: map[string]score.FieldStats{"title": {SumLen: 1 << 42, Docs: 1 << 39}},
				DF: map[score.Term]uint64{{Field: "title", Text: "warp"}: 1 << 38},
			}
		}
		what := fmt.Sprintf("fetch %d for %v", i, q)
		got, err := bothMembers(t, e, what, func(m leaf.Member) (*leaf.FetchReply, error) { return m.Fetch(ctx, &req) })
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		checkShown(t, what, &req.Show, got.Docs, len(req.IDs), (got.Plan != nil))
		for k, d := range got.Docs {
			missing := !slices.Contains(ids, req.IDs[k])
			if d.Missing != missing || missing && (d.Source != nil || d.Highlight != nil || d.Lexical != nil || d.Vector != nil) {
				t.Errorf("%s: %q: %+v", what, req.IDs[k], d)
			}
		}
	}
	// What a search shows is what a fetch shows, of one snapshot.
	for i, q := range queries(t, e) {
		show := shows()[i%len(shows())]
		req := leaf.SearchRequest{Index: corpusIndex, Query: q, Limit: 20, Show: &show, KeepStats: true}
		if i%2 == 0 {
			req.Sort = orders[i%len(orders)]
		}
		if i%3 == 0 {
			req.Filters = filters
		}
		what := fmt.Sprintf("search %d for %v", i, q)
		found, err := both(t, e, what, search(ctx, req))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		checkShown(t, what, &show, found.Shown, len(found.Hits), found.Plan != nil)
		fetch := leaf.FetchRequest{Index: corpusIndex, Query: q, Filters: req.Filters, Show: show, Stats: found.Stats}
		for _, h := range found.Hits {
			fetch.IDs = append(fetch.IDs, h.ID)
		}
		fetched, err := member(e).Fetch(ctx, &fetch)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if d := cmp.Diff(found.Shown, fetched.Docs, exact); d != "" || !bytes.Equal(found.Plan, fetched.Plan) || found.Snapshot != fetched.Snapshot {
			t.Errorf("%s: plan %s and %s; −search +fetch\n%s", what, found.Plan, fetched.Plan, d)
		}
		// Behind the first hits there may be nothing to show.
		show.First = 1 + i%7
		few, err := both(t, e, what, search(ctx, req))
		if err != nil {
			t.Errorf("%s: the first %d: %v", what, show.First, err)
			continue
		}
		first := min(show.First, len(found.Shown))
		if len(few.Shown) != len(found.Shown) {
			t.Errorf("%s: the first %d: %d shown of %d", what, show.First, len(few.Shown), len(found.Shown))
		} else if d := cmp.Diff(found.Shown[:first], few.Shown[:first], exact); d != "" {
			t.Errorf("%s: the first %d: −all +first\n%s", what, show.First, d)
		}
	}
	// Of a long text only the beginning is looked at, which is said.
	const index = "long"
	e.Node.Create(t, index, strings.Replace(corpusSDL, corpusIndex, index, 1))
	load(t, e.Node.Leaf(), index, []document{{ID: "1", Body: "warp " + strings.Repeat("weft ", 1<<18)}})
	req := leaf.FetchRequest{Index: index, IDs: []string{"1"}, Query: parse(t, "body:warp"), Show: leaf.Show{Highlight: &api.Highlight{Fields: []string{"body"}}}}
	long, err := bothMembers(t, e, "a long text", func(m leaf.Member) (*leaf.FetchReply, error) { return m.Fetch(ctx, &req) })
	if err != nil || len(long.Notes) != 1 || !bytes.Contains(long.Docs[0].Highlight, []byte("<em>warp</em>")) {
		t.Errorf("notes %q, %v", long.Notes, err)
	}
}

// checkShown checks that there is what was wanted, and nothing else.
func checkShown(t testing.TB, what string, show *leaf.Show, docs []leaf.Shown, n int, plan bool) {
	t.Helper()
	if len(docs) != n || plan != show.Explain {
		t.Errorf("%s: %d documents, want %d; a plan: %t", what, len(docs), n, plan)
	}
	source := show.Source && (show.Fields == nil || len(show.Fields) > 0)
	for i, d := range docs {
		if d.Missing {
			continue
		}
		if (len(d.Source) > 0) != source || (len(d.Highlight) > 0) != (show.Highlight != nil) || (len(d.Lexical)+len(d.Vector) > 0) && !show.Explain {
			t.Errorf("%s: document %d: %+v", what, i, d)
		}
	}
}

func testLocalStats(t *testing.T, e Env) {
	fill(t, e, 200)
	ctx := t.Context()
	given := &score.Stats{Docs: 1000, Fields: map[string]score.FieldStats{"title": {SumLen: 3000, Docs: 900}}, DF: map[score.Term]uint64{{Field: "title", Text: "warp"}: 500, {Field: "title", Text: "wale"}: 1}}
	for i, q := range queries(t, e) {
		own, err := inside(e).Stats(ctx, &leaf.StatsRequest{Index: corpusIndex, Query: q})
		if err != nil {
			t.Fatal(err)
		}
		for k, stats := range []*score.Stats{nil, given} {
			req := leaf.SearchRequest{Index: corpusIndex, Query: q, Limit: 5 * (i % 2), Stats: stats, KeepStats: true, LocalStats: true, Sort: orders[i%len(orders)]}
			what := fmt.Sprintf("local statistics of %v, %d", q, k)
			got, err := both(t, e, what, search(ctx, req))
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			if (got.LocalStats == nil) != (got.Stats == nil) {
				t.Errorf("%s: local statistics: %t, statistics: %t", what, got.LocalStats != nil, got.Stats != nil)
			}
			if got.LocalStats != nil {
				if d := cmp.Diff(own.Stats, *got.LocalStats, exact); d != "" {
					t.Errorf("%s: −asked for alone +with the search\n%s", what, d)
				}
			}
		}
	}
	// A prefix of more words than score, and one of more than are sent.
	for _, n := range []int{exec.MaxPrefixTerms + 100, leaf.MaxLocalStats + 1} {
		index := fmt.Sprint("prefixes", n)
		e.Node.Create(t, index, strings.Replace(corpusSDL, corpusIndex, index, 1))
		var words strings.Builder
		var docs []document
		for i := range n {
			fmt.Fprintf(&words, "p%d ", i)
			if i%50 == 0 || i == n-1 {
				docs = append(docs, document{ID: fmt.Sprint(i), Title: words.String()})
				words.Reset()
			}
		}
		load(t, e.Node.Leaf(), index, docs)
		for _, stats := range []*score.Stats{nil, {Docs: 1000, DF: map[score.Term]uint64{{Field: "title", Text: "p7"}: 4, {Field: "title", Text: "pother"}: 2}}} {
			req := leaf.SearchRequest{Index: index, Query: parse(t, "title:p* OR title:p1*"), Limit: 3, LocalStats: true, Stats: stats}
			got, err := both(t, e, "a broad prefix", search(ctx, req))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case n > leaf.MaxLocalStats && got.LocalStats != nil:
				t.Errorf("statistics of %d terms", len(got.LocalStats.DF))
			case n <= leaf.MaxLocalStats && (got.LocalStats == nil || len(got.LocalStats.DF) != n):
				t.Errorf("statistics %v of %d terms", got.LocalStats, n)
			}
		}
	}
}

// viewed calls every method that takes a View and reads, and returns the errors by name.
func viewed(t testing.TB, e Env, v leaf.View) map[string]error {
	ctx := t.Context()
	errs := map[string]error{}
	call := func(name string, f func(l leaf.Member) (any, error)) {
		t.Helper()
		want, wantErr, got, gotErr := twice(e, func(l leaf.Leaf) (any, error) { return f(l.(leaf.Member)) })
		if sameErrors(t, name, wantErr, gotErr) && gotErr == nil {
			if d := diff(want, got); d != "" {
				t.Errorf("%s, %+v: −in process +over the wire\n%s", name, v, d)
			}
		}
		errs[name] = gotErr
	}
	unknown := parse(t, "nosuch:warp OR title:warp")
	best := score.Combiner{Kind: score.Max}
	call("docs", func(l leaf.Member) (any, error) {
		return l.Docs(ctx, &leaf.DocsRequest{Index: corpusIndex, View: v})
	})
	call("search", func(l leaf.Member) (any, error) {
		return l.Search(ctx, &leaf.SearchRequest{
			Index: corpusIndex, View: v, Query: unknown, Filters: []query.Node{parse(t, "NOT _exists_:nosuch.too")}, DefaultFields: []string{"nosuch2", "title"},
			Limit: 50, Sort: []exec.SortKey{{By: exec.ByField, Field: "nosuch"}, {By: exec.ByScore, Desc: true}}, KeepStats: true, LocalStats: true,
			Show: &leaf.Show{Source: true, Fields: []string{"nosuch", "title"}, Highlight: &api.Highlight{Fields: []string{"nosuch", "title"}}, Explain: true},
		})
	})
	call("fetch", func(l leaf.Member) (any, error) {
		return l.Fetch(ctx, &leaf.FetchRequest{
			Index: corpusIndex, View: v, IDs: []string{"both", "least", "most"}, Query: unknown, DefaultFields: []string{"nosuch2", "title"},
			KNN: &api.KNN{Field: "nosuch", Dense: []float32{1, 2}, K: 1, Combiner: best}, Show: leaf.Show{Source: true, Fields: []string{"nosuch"}, Explain: true},
		})
	})
	call("stats", func(l leaf.Member) (any, error) {
		return l.Stats(ctx, &leaf.StatsRequest{Index: corpusIndex, View: v, Query: unknown, DefaultFields: []string{"nosuch2"}})
	})
	call("aggregate", func(l leaf.Member) (any, error) {
		return l.Aggregate(ctx, &leaf.AggregateRequest{
			Index: corpusIndex, View: v, Query: unknown, Specs: parseSpecs(t, `{"f":{"kind":"terms","field":"tag","filter":"nosuch:x OR i:>0"}}`), Values: []string{"nosuch", "i"},
		})
	})
	call("knn", func(l leaf.Member) (any, error) {
		return l.KNN(ctx, &leaf.KNNRequest{Index: corpusIndex, View: v, KNN: api.KNN{Field: "nosuch", Dense: []float32{1, 2}, K: 5, Combiner: best}, Filters: []query.Node{unknown}})
	})
	return errs
}

// testLenient asks for fields that the index does not have.
func testLenient(t *testing.T, e Env) {
	fill(t, e, 60)
	for name, err := range viewed(t, e, leaf.View{}) {
		p, ok := errors.AsType[*api.Problem](err)
		if name != "docs" && (!ok || p.Code != api.UnknownField) {
			t.Errorf("%s that is not lenient: %v", name, err)
		}
	}
	for name, err := range viewed(t, e, leaf.View{Lenient: true}) {
		if err != nil {
			t.Errorf("%s that is lenient: %v", name, err)
		}
	}
	got, err := member(e).Search(t.Context(), &leaf.SearchRequest{Index: corpusIndex, View: leaf.View{Lenient: true}, Query: parse(t, "NOT nosuch:x"), Limit: 1000})
	if err != nil || got.Total != got.Docs || uint64(len(got.Hits)) != got.Docs {
		t.Errorf("without what nothing has: %d of %d, %v", got.Total, got.Docs, err)
	}
}

// testOwned looks at shares of the index.
func testOwned(t *testing.T, e Env) {
	all := fill(t, e, 200)
	ctx := t.Context()
	for _, spec := range []placement.Spec{{Rule: placement.Ring, Shards: 3, VNodes: 16}, {Rule: placement.Ring, Shards: 2}, {Rule: placement.Modulo, Shards: 4}, {Rule: placement.Rendezvous, Shards: 3}} {
		var seen []string
		for ordinal := range spec.Shards {
			v := leaf.View{Owned: []placement.Share{{Spec: spec, Ordinal: ordinal}}, Lenient: true}
			what := fmt.Sprintf("%s %d of %d", spec.Rule, ordinal, spec.Shards)
			for name, err := range viewed(t, e, v) {
				if err != nil {
					t.Errorf("%s: %s: %v", what, name, err)
				}
			}
			var mine []string
			if _, err := both(t, e, what, func(l leaf.Leaf) (*leaf.IDsReply, error) {
				mine = nil
				return l.IDs(ctx, &leaf.IDsRequest{Index: corpusIndex, View: v}, func(ids []string) error {
					mine = append(mine, ids...)
					return nil
				})
			}); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, mine...)
			var there []string
			if _, err := both(t, e, what, func(l leaf.Leaf) (*leaf.ExportReply, error) {
				there = nil
				return l.Export(ctx, &leaf.ExportRequest{Index: corpusIndex, View: v, IDs: all}, func(doc leaf.ExportedDoc) error {
					there = append(there, doc.ID)
					return nil
				})
			}); err != nil {
				t.Fatal(err)
			}
			has, err := both(t, e, what, func(l leaf.Leaf) (*leaf.HasReply, error) {
				return l.Has(ctx, &leaf.HasRequest{Index: corpusIndex, View: v, IDs: all})
			})
			if err != nil {
				t.Fatal(err)
			}
			found, err := member(e).Search(ctx, &leaf.SearchRequest{Index: corpusIndex, View: v, Limit: 10_000})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(there, mine) || len(has.Missing) != len(all)-len(mine) || found.Total != uint64(len(mine)) || found.Docs != uint64(len(mine)) {
				t.Errorf("%s: %d ids, %d exported, %d missing, %d found of %d", what, len(mine), len(there), len(has.Missing), found.Total, found.Docs)
			}
		}
		slices.Sort(seen)
		if !slices.Equal(seen, all) {
			t.Errorf("%s over %d: the shares have %d documents, the index %d", spec.Rule, spec.Shards, len(seen), len(all))
		}
	}
	for _, owned := range [][]placement.Share{
		{{Spec: placement.Spec{Rule: "nosuch", Shards: 2}}},
		{{Spec: placement.Spec{Rule: placement.Ring, Shards: 2}, Ordinal: 2}},
		{{Spec: placement.Spec{Rule: placement.Modulo, Shards: 2}, Ordinal: -1}},
		make([]placement.Share, leaf.MaxShares+1),
	} {
		for _, l := range []leaf.Leaf{e.Node.Leaf(), e.Leaf} {
			if _, err := l.Docs(ctx, &leaf.DocsRequest{Index: corpusIndex, View: leaf.View{Owned: owned}}); !badParameter(err, "owned") {
				t.Errorf("%+v: %v", owned, err)
			}
		}
	}
}

// described compares descriptions of indexes that were made twice, under two names.
var described = cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(leaf.Meta{}, "Timings", "Snapshot"), cmpopts.IgnoreFields(api.IndexInfo{}, "Name", "Bytes"), cmp.FilterPath(func(p cmp.Path) bool {
	return p.Last().String() == ".Schema"
}, cmp.Comparer(func(a, b string) bool {
	_, a, _ = strings.Cut(a, "{")
	_, b, _ = strings.Cut(b, "{")
	return a == b
}))}

func testIndexes(t *testing.T, e Env) {
	ctx := t.Context()
	none, err := bothMembers(t, e, "no indexes", func(m leaf.Member) (*leaf.IndexesReply, error) { return m.Indexes(ctx, &leaf.IndexesRequest{}) })
	if err != nil || len(none.Indexes) != 0 {
		t.Errorf("%+v, %v", none, err)
	}
	wired, direct := member(e), inside(e)
	for i, c := range []struct {
		schema string
		made   bool
		code   api.Code // "": it goes well
	}{
		{"", true, ""},
		{"", false, ""},
		{"index x { field title: text [indexed, stored] }", false, ""}, // it infers fields, and gets one
		{"index x { field title: text [indexed, stored] field \"n 𝄞\\\"\": i64 [fast] }", false, ""},
		{"index x { field title: i64 [fast] }", false, api.SchemaConflict},
		{"index x { field }", false, api.InvalidSchema},
		{"index x { field a: nosuch [indexed] }", false, api.InvalidSchema},
		{"\xff", false, api.InvalidUTF8},
	} {
		want, wantErr := direct.PutIndex(ctx, &leaf.PutIndexRequest{Index: "direct", Schema: c.schema})
		got, gotErr := wired.PutIndex(ctx, &leaf.PutIndexRequest{Index: "wired", Schema: c.schema})
		what := fmt.Sprintf("declaration %d", i)
		if c.code == api.InvalidUTF8 && gotErr != nil && wantErr != nil {
			continue // a wire of texts may refuse it in its own words
		}
		if !sameErrors(t, what, wantErr, gotErr) || gotErr != nil {
			if p, ok := errors.AsType[*api.Problem](gotErr); !ok || p.Code != c.code {
				t.Errorf("%s: %v, want %s", what, gotErr, c.code)
			}
			continue
		}
		if d := cmp.Diff(want, got, described); d != "" || c.code != "" || got.Made != c.made || got.Info.Name != "wired" || got.Info.State != "open" {
			t.Errorf("%s: %+v; −in process +over the wire\n%s", what, got, d)
		}
		checkMeta(t, what, got)
	}
	// The schema of an index makes another alike.
	e.Node.Create(t, corpusIndex, corpusSDL)
	if _, err := direct.Index(ctx, &leaf.IndexRequest{Index: "grown", Body: []byte(`{"id":"1","a b":"x","n":{"é\"":[1,2.5],"yes":true},"at":"2024-05-06T07:08:09Z"}`)}); err != nil {
		t.Fatal(err)
	}
	for _, index := range []string{corpusIndex, "grown", "wired"} {
		info, err := wired.Info(ctx, &leaf.InfoRequest{Index: index})
		if err != nil {
			t.Fatal(err)
		}
		again, err := wired.PutIndex(ctx, &leaf.PutIndexRequest{Index: "copy." + index, Schema: info.Index.Schema})
		if err != nil || !again.Made {
			t.Errorf("%s: %+v, %v", index, again, err)
			continue
		}
		a, err := schema.ParseSDL(info.Index.Schema, text.Check)
		if err != nil {
			t.Fatal(err)
		}
		b, err := schema.ParseSDL(again.Info.Schema, text.Check)
		if err != nil {
			t.Fatal(err)
		}
		b.Name = a.Name
		if d := cmp.Diff(a, b); d != "" || again.Info.Dynamic != info.Index.Dynamic {
			t.Errorf("%s: −first +copy\n%s", index, d)
		}
	}
	list, err := bothMembers(t, e, "indexes", func(m leaf.Member) (*leaf.IndexesReply, error) { return m.Indexes(ctx, &leaf.IndexesRequest{}) })
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list.Indexes {
		names = append(names, i.Name)
	}
	if want := []string{"copy." + corpusIndex, "copy.grown", "copy.wired", corpusIndex, "direct", "grown", "wired"}; !slices.Equal(names, want) {
		t.Errorf("indexes %q, want %q", names, want)
	}
	dropped, err := wired.DropIndex(ctx, &leaf.DropIndexRequest{Index: "wired"})
	if err != nil || dropped.Info.Name != "wired" || dropped.Info.State != "deleted" || !strings.Contains(dropped.Info.Schema, "title") {
		t.Errorf("%+v, %v", dropped, err)
	} else {
		checkMeta(t, "drop", dropped)
	}
	if _, err := direct.Docs(ctx, &leaf.DocsRequest{Index: "wired"}); !hasCode(err, api.IndexNotFound) {
		t.Errorf("after the end of an index: %v", err)
	}
	for index, code := range map[string]api.Code{"wired": api.IndexNotFound, "no index/name": api.InvalidIndexName} {
		if _, err := bothMembers(t, e, "drop "+index, func(m leaf.Member) (*leaf.DropIndexReply, error) {
			return m.DropIndex(ctx, &leaf.DropIndexRequest{Index: index})
		}); !hasCode(err, code) {
			t.Errorf("drop %q: %v", index, err)
		}
	}
}

func hasCode(err error, code api.Code) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == code
}

// everyEpoch calls every method that has an epoch, and returns the errors by name. Each would have an effect, or an answer.
func everyEpoch(t testing.TB, e Env, epoch uint64) map[string]error {
	ctx := t.Context()
	l := member(e)
	v := leaf.View{Epoch: epoch}
	errs := map[string]error{}
	_, errs["docs"] = l.Docs(ctx, &leaf.DocsRequest{Index: corpusIndex, View: v})
	_, errs["search"] = l.Search(ctx, &leaf.SearchRequest{Index: corpusIndex, View: v})
	_, errs["stats"] = l.Stats(ctx, &leaf.StatsRequest{Index: corpusIndex, View: v})
	_, errs["aggregate"] = l.Aggregate(ctx, &leaf.AggregateRequest{Index: corpusIndex, View: v})
	_, errs["knn"] = l.KNN(ctx, &leaf.KNNRequest{Index: corpusIndex, View: v, KNN: api.KNN{Field: "v", Dense: []float32{1, 2, 3, 4}, K: 1, Combiner: score.Combiner{Kind: score.Max}}})
	_, errs["ids"] = l.IDs(ctx, &leaf.IDsRequest{Index: corpusIndex, View: v}, func([]string) error { return nil })
	_, errs["export"] = l.Export(ctx, &leaf.ExportRequest{Index: corpusIndex, View: v, IDs: []string{"both"}}, func(leaf.ExportedDoc) error { return nil })
	_, errs["has"] = l.Has(ctx, &leaf.HasRequest{Index: corpusIndex, View: v, IDs: []string{"both"}})
	_, errs["fetch"] = l.Fetch(ctx, &leaf.FetchRequest{Index: corpusIndex, View: v, IDs: []string{"both"}})
	_, errs["sums"] = l.Sums(ctx, &leaf.SumsRequest{Index: corpusIndex, View: v, IDs: []string{"both"}})
	_, errs["digest"] = l.Digest(ctx, &leaf.DigestRequest{Index: corpusIndex, View: v})
	_, errs["delete_many"] = l.DeleteMany(ctx, &leaf.DeleteRequest{Index: corpusIndex, View: v, IDs: []string{"both"}})
	_, errs["index"] = l.Index(ctx, &leaf.IndexRequest{Index: corpusIndex, View: v, Body: []byte(`{"id":"new1"}`)})
	_, errs["bulk"] = l.Bulk(ctx, &leaf.BulkRequest{Index: corpusIndex, View: v}, strings.NewReader(`{"id":"new2"}`))
	_, errs["sync"] = l.Sync(ctx, &leaf.SyncRequest{Index: corpusIndex, View: v, Items: []leaf.SyncItem{{ID: "new3", Body: []byte(`{"id":"new3"}`)}}})
	_, errs["put_index"] = l.PutIndex(ctx, &leaf.PutIndexRequest{Index: "other", Epoch: epoch})
	_, errs["drop_index"] = l.DropIndex(ctx, &leaf.DropIndexRequest{Index: "doomed", Epoch: epoch})
	return errs
}

// testPlace gives out maps of the cluster.
func testPlace(t *testing.T, e Env) {
	ids := fill(t, e, 30)
	e.Node.Create(t, "doomed", strings.Replace(corpusSDL, corpusIndex, "doomed", 1))
	ctx := t.Context()
	m := member(e)
	first, err := bothMembers(t, e, "no map", func(m leaf.Member) (*leaf.PlaceReply, error) { return m.Placed(ctx) })
	if err != nil || first.Epoch != 0 || len(first.Map) != 0 || first.Node == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	whole := bytes.Repeat([]byte("\x00\xff{}"), leaf.MaxMap/4)
	for _, c := range []struct {
		epoch uint64
		text  []byte
		stale bool
	}{
		{7, []byte(`{"a":1}`), false},
		{7, []byte(`{"a":1}`), false}, // once more
		{7, []byte(`{"a":2}`), true},
		{6, []byte(`{"a":1}`), true},
		{1, nil, true},
		{8, nil, false},
		{1 << 63, []byte("\x00\xff 𝄞 no JSON"), false},
		{math.MaxUint64 - 1, whole, false},
		{math.MaxUint64, []byte("{}"), false},
		{math.MaxUint64 - 1, whole, true},
	} {
		got, err := m.Place(ctx, &leaf.PlaceRequest{Epoch: c.epoch, Map: c.text})
		if c.stale != hasCode(err, api.StaleMap) || !c.stale && err != nil {
			t.Fatalf("epoch %d, map %.10q: %v", c.epoch, c.text, err)
		}
		if c.stale {
			continue
		}
		now, err := bothMembers(t, e, "the map", func(m leaf.Member) (*leaf.PlaceReply, error) { return m.Placed(ctx) })
		if err != nil || got.Epoch != c.epoch || !bytes.Equal(got.Map, c.text) || got.Node != first.Node || now.Epoch != c.epoch || !bytes.Equal(now.Map, c.text) {
			t.Fatalf("epoch %d: %d with %.10q, and then %d with %.10q: %v", c.epoch, got.Epoch, got.Map, now.Epoch, now.Map, err)
		}
	}
	for _, l := range []leaf.Member{inside(e), m} {
		if _, err := l.Place(ctx, &leaf.PlaceRequest{Map: []byte("{}")}); !badParameter(err, "epoch") {
			t.Errorf("a map without an epoch: %v", err)
		}
		_, err := l.Place(ctx, &leaf.PlaceRequest{Epoch: math.MaxUint64, Map: make([]byte, leaf.MaxMap+1)})
		refusedWith(t, "a long map", err, "map", leaf.MaxMap)
	}

	// Who goes by an older map is refused before any effect.
	for _, epoch := range []uint64{1, 1 << 63, math.MaxUint64 - 1} {
		for name, err := range everyEpoch(t, e, epoch) {
			if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.StaleMap || p.Field != "" || p.Detail == "" {
				t.Errorf("%s by the map of epoch %d: %v", name, epoch, err)
			}
		}
	}
	var now []string
	if _, err := inside(e).IDs(ctx, &leaf.IDsRequest{Index: corpusIndex}, func(page []string) error {
		now = append(now, page...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	list, err := inside(e).Indexes(ctx, &leaf.IndexesRequest{})
	if err != nil || !slices.Equal(now, ids) || len(list.Indexes) != 2 {
		t.Errorf("what was refused had an effect: %d documents of %d, %d indexes, %v", len(now), len(ids), len(list.Indexes), err)
	}
	for _, epoch := range []uint64{math.MaxUint64, 0} {
		for name, err := range everyEpoch(t, e, epoch) {
			if err != nil && (name != "drop_index" || epoch > 0) { // the second time there is none
				t.Errorf("%s by the map of epoch %d: %v", name, epoch, err)
			}
		}
	}
}

func sumOf(source []byte) leaf.Sum { return xxh3.Hash128(source).Bytes() }

func testSums(t *testing.T, e Env) {
	ids := fill(t, e, 120)
	ctx := t.Context()
	want := map[string]leaf.Sum{}
	if _, err := inside(e).Export(ctx, &leaf.ExportRequest{Index: corpusIndex, IDs: ids}, func(doc leaf.ExportedDoc) error {
		want[doc.ID] = sumOf(doc.Source)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	sums := func(what string, req leaf.SumsRequest) *leaf.SumsReply {
		t.Helper()
		req.Index = corpusIndex
		got, err := bothMembers(t, e, what, func(m leaf.Member) (*leaf.SumsReply, error) { return m.Sums(ctx, &req) })
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return got
	}
	asked := append([]string{"nosuch", ids[0], "", ids[0]}, ids...)
	got := sums("by id", leaf.SumsRequest{IDs: asked})
	if len(got.Sums) != len(asked) || len(got.IDs) > 0 {
		t.Fatalf("%d sums of %d, %d ids", len(got.Sums), len(asked), len(got.IDs))
	}
	for i, id := range asked {
		if got.Sums[i] != want[id] {
			t.Errorf("%q: %x, want %x", id, got.Sums[i], want[id])
		}
	}
	for _, r := range []leaf.HashRange{{To: math.MaxUint32}, {To: math.MaxUint32 / 3}, {From: math.MaxUint32/3 + 1, To: math.MaxUint32}, {From: 5, To: 5}} {
		var in []string
		for _, id := range ids {
			if h := placement.Hash(id); r.From <= h && h <= r.To {
				in = append(in, id)
			}
		}
		for _, limit := range []int{1, 17, leaf.MaxIDs} {
			if limit == 1 && len(in) > 60 {
				continue
			}
			var paged []string
			after := ""
			for len(paged) <= len(in) {
				page := sums(fmt.Sprintf("range %v by %d after %q", r, limit, after), leaf.SumsRequest{Range: &r, Limit: limit, After: after})
				if len(page.IDs) != len(page.Sums) || len(page.IDs) > limit {
					t.Fatalf("%d ids and %d sums", len(page.IDs), len(page.Sums))
				}
				for i, id := range page.IDs {
					if page.Sums[i] != want[id] {
						t.Errorf("%q: %x, want %x", id, page.Sums[i], want[id])
					}
				}
				paged = append(paged, page.IDs...)
				if after = page.Next; after == "" {
					break
				}
			}
			if !slices.Equal(paged, in) {
				t.Errorf("range %v by %d: %q, want %q", r, limit, paged, in)
			}
		}
	}
	for _, depth := range []int{0, 3, leaf.MaxDepth} {
		got, err := bothMembers(t, e, fmt.Sprint("digest of depth ", depth), func(m leaf.Member) (*leaf.DigestReply, error) {
			return m.Digest(ctx, &leaf.DigestRequest{Index: corpusIndex, Depth: depth})
		})
		if err != nil {
			t.Fatal(err)
		}
		docs := 0
		for _, n := range got.Docs {
			docs += int(n)
		}
		if len(got.Docs) != 1<<depth || len(got.Sums) != 1<<depth || docs != len(ids) {
			t.Errorf("depth %d: %d and %d ranges, %d documents of %d", depth, len(got.Docs), len(got.Sums), docs, len(ids))
		}
	}
	// Owned narrows these too.
	share := leaf.View{Owned: []placement.Share{{Spec: placement.Spec{Rule: placement.Ring, Shards: 2}, Ordinal: 1}}}
	part := sums("of a share", leaf.SumsRequest{View: share, Range: &leaf.HashRange{To: math.MaxUint32}, Limit: leaf.MaxIDs})
	digest, err := bothMembers(t, e, "digest of a share", func(m leaf.Member) (*leaf.DigestReply, error) {
		return m.Digest(ctx, &leaf.DigestRequest{Index: corpusIndex, View: share})
	})
	if err != nil || int(digest.Docs[0]) != len(part.IDs) || len(part.IDs) == 0 || len(part.IDs) == len(ids) {
		t.Errorf("a share has %d of %d documents, %v by its digest, %v", len(part.IDs), len(ids), digest.Docs, err)
	}
}

func testSync(t *testing.T, e Env) {
	ctx := t.Context()
	body := func(id, title string) []byte { return fmt.Appendf(nil, `{"id":%q,"title":%q}`, id, title) }
	run := func(m leaf.Member, index string) (replies []*leaf.SyncReply) {
		t.Helper()
		old := sumOf(body("1", "warp"))
		for i, items := range [][]leaf.SyncItem{
			{},
			{{ID: "1", Body: body("1", "warp")}, {ID: "é \"𝄞\"", Body: body("é \"𝄞\"", "weft")}, {ID: "none"}},
			{{ID: "1", Body: body("1", "loom")}}, // something is there
			{{ID: "1", Expect: old, Body: body("1", "reed")}, {ID: "2", Expect: old, Body: body("2", "reed")}},
			{{ID: "1", Expect: old}, {ID: "é \"𝄞\"", Expect: sumOf(body("é \"𝄞\"", "weft"))}},
			{{ID: "3", Body: []byte(`{"id":"3","title":"shed"}`)}, {ID: "4", Body: []byte(`not json`)}, {ID: "5", Body: []byte(`{"id":"3"}`)}, {ID: "6", Body: body("6", "yarn")}},
		} {
			reply, err := m.Sync(ctx, &leaf.SyncRequest{Index: index, Items: items})
			if err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			if len(reply.Applied) != len(items) || len(reply.Sums) != len(items) || reply.Problems != nil && len(reply.Problems) != len(items) {
				t.Fatalf("step %d: %+v", i, reply)
			}
			replies = append(replies, reply)
		}
		return replies
	}
	for _, m := range []leaf.Member{inside(e), member(e)} {
		index := "wired"
		if m == inside(e) {
			index = "direct"
		}
		if _, err := m.PutIndex(ctx, &leaf.PutIndexRequest{Index: index, Schema: strings.Replace(corpusSDL, corpusIndex, index, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	want, got := run(inside(e), "direct"), run(member(e), "wired")
	codes := cmp.Comparer(func(a, b *api.Problem) bool {
		return (a == nil) == (b == nil) && (a == nil || a.Code == b.Code && a.Detail == b.Detail && a.Field == b.Field)
	})
	for i := range want {
		if d := cmp.Diff(want[i], got[i], written, codes); d != "" {
			t.Errorf("step %d: −in process +over the wire\n%s", i, d)
		}
		checkMeta(t, "sync", got[i])
	}
	for i, applied := range [][]bool{{}, {true, true, true}, {false}, {true, false}, {false, true}, {true, false, false, true}} {
		if !slices.Equal(got[i].Applied, applied) {
			t.Errorf("step %d: applied %v, want %v", i, got[i].Applied, applied)
		}
	}
	if got[2].Sums[0] != sumOf(body("1", "warp")) || got[3].Sums[0] != sumOf(body("1", "reed")) || got[4].Sums[1] != (leaf.Sum{}) || got[5].Sums[0] == (leaf.Sum{}) {
		t.Errorf("sums %+v", got[2:])
	}
	if p := got[5].Problems; len(p) != 4 || p[0] != nil || p[1] == nil || p[2] == nil || p[3] != nil {
		t.Errorf("problems %+v", p)
	}
	if docs, err := inside(e).Docs(ctx, &leaf.DocsRequest{Index: "wired"}); err != nil || docs.Docs != 3 {
		t.Errorf("then %+v, %v", docs, err)
	}
	for _, items := range [][]leaf.SyncItem{{{ID: ""}}, {{ID: "1"}, {ID: "1"}}} {
		if _, err := bothMembers(t, e, "items", func(m leaf.Member) (*leaf.SyncReply, error) {
			return m.Sync(ctx, &leaf.SyncRequest{Index: "wired", Items: items})
		}); !badParameter(err, "items") {
			t.Errorf("%+v: %v", items, err)
		}
	}
}

// testFences changes documents by what somebody saw of them before others looked.
func testFences(t *testing.T, e Env) {
	ctx := t.Context()
	body := func(title string) []byte { return fmt.Appendf(nil, `{"id":"f1","title":%q}`, title) }
	for _, m := range []leaf.Member{inside(e), member(e)} {
		index := "fenced"
		if m == inside(e) {
			index = "fencedhere"
		}
		if _, err := m.PutIndex(ctx, &leaf.PutIndexRequest{Index: index, Schema: strings.Replace(corpusSDL, corpusIndex, index, 1)}); err != nil {
			t.Fatal(err)
		}
		look := func(fence bool) *leaf.SumsReply {
			t.Helper()
			r, err := m.Sums(ctx, &leaf.SumsRequest{Index: index, IDs: []string{"f1", "other"}, Fence: fence})
			if err != nil {
				t.Fatal(err)
			}
			if (r.Fence != 0) != fence {
				t.Fatalf("a fence was wanted: %t, it is %d", fence, r.Fence)
			}
			return r
		}
		sync := func(fence uint64, expect leaf.Sum, b []byte) bool {
			t.Helper()
			r, err := m.Sync(ctx, &leaf.SyncRequest{Index: index, Items: []leaf.SyncItem{{ID: "f1", Expect: expect, Body: b}}, Fence: fence})
			if err != nil {
				t.Fatal(err)
			}
			if want := sumOf(b); r.Applied[0] && b != nil && r.Sums[0] != want || !r.Applied[0] && r.Sums[0] != expect {
				t.Fatalf("applied %t, and the sum is %x", r.Applied[0], r.Sums[0])
			}
			return r.Applied[0]
		}
		one := look(true)
		two := look(true)
		if two.Fence <= one.Fence {
			t.Errorf("fence %d follows %d", two.Fence, one.Fence)
		}
		if sync(one.Fence, leaf.Sum{}, body("a")) {
			t.Error("what was seen before a later fence was applied")
		}
		if sync(two.Fence^1<<63, leaf.Sum{}, body("a")) {
			t.Error("a fence of another process counts")
		}
		if !sync(two.Fence, leaf.Sum{}, body("a")) {
			t.Error("what was seen at the latest fence was not applied")
		}
		look(false) // makes none
		if !sync(two.Fence, sumOf(body("a")), body("b")) || !sync(0, sumOf(body("b")), body("c")) {
			t.Error("a look without a fence, or a call that names none, is held up")
		}
		three := look(true)
		if sync(two.Fence, sumOf(body("c")), nil) || !sync(three.Fence, sumOf(body("c")), nil) {
			t.Error("deletes are not fenced as puts are")
		}
		if _, err := m.Sums(ctx, &leaf.SumsRequest{Index: index, Range: &leaf.HashRange{To: math.MaxUint32}, Limit: 1}); err != nil {
			t.Error(err)
		}
		testMarks(t, m, index, body, sync)
		testSynced(t, m, index, look, sync, body)
		if _, err := m.Sums(ctx, &leaf.SumsRequest{Index: "not-there", IDs: []string{"f1"}, Fence: true}); !hasCode(err, api.IndexNotFound) {
			t.Errorf("an index that is not there: %v", err)
		}
	}
}

// testMarks writes a document, which is not there at first and not at the end, again and again, and looks at what the member says of the order.
func testMarks(t *testing.T, m leaf.Member, index string, body func(title string) []byte, sync func(fence uint64, expect leaf.Sum, b []byte) bool) {
	ctx := t.Context()
	write := func(what string, mark, behind leaf.Mark) {
		t.Helper()
		r, err := m.Index(ctx, &leaf.IndexRequest{Index: index, Body: body("marked"), Mark: mark})
		if err != nil || r.Behind != behind {
			t.Errorf("%s: behind %d, not %d (%v)", what, r.Behind, behind, err)
		}
	}
	look := func(what string, mark leaf.Mark, last bool) {
		t.Helper()
		r, err := m.Sums(ctx, &leaf.SumsRequest{Index: index, IDs: []string{"f1"}, Fence: true, Mark: mark})
		if err != nil || r.Last != last || r.Fence == 0 || r.Sums[0] != sumOf(body("marked")) {
			t.Errorf("%s: last %t, not %t (%+v, %v)", what, r.Last, last, r, err)
		}
	}
	one, two, three := leaf.NewMark(), leaf.NewMark(), leaf.NewMark()
	write("the first", one, 0)
	write("behind it", two, one)
	look("another's", one, false)
	write("behind a look", one, 0)
	look("its own", one, true)
	look("its own again", one, false)
	write("behind that", two, 0)
	look("its own", two, true)
	write("behind a look that has seen it", three, two.Seen())
	look("somebody's", 0, false)
	write("behind that", one, 0)
	write("without a mark", 0, 0)
	write("behind that", two, 0)
	if _, err := m.Bulk(ctx, &leaf.BulkRequest{Index: index}, bytes.NewReader(body("marked"))); err != nil {
		t.Fatal(err)
	}
	write("behind a load", one, 0)
	if !sync(0, sumOf(body("marked")), body("copied")) {
		t.Error("a Sync is not applied")
	}
	write("behind a Sync", two, 0)
	not, err := m.Sync(ctx, &leaf.SyncRequest{Index: index, Items: []leaf.SyncItem{{ID: "f1", Expect: sumOf(body("copied")), Body: nil}}})
	if err != nil || not.Applied[0] {
		t.Errorf("a Sync of what is not there: %+v, %v", not, err)
	}
	write("behind a Sync that was not applied", three, two)
	if _, err := m.Index(ctx, &leaf.IndexRequest{Index: index, Body: body("marked"), Mark: one.Seen()}); !hasField(err, "mark") {
		t.Errorf("a write with a mark that was seen: %v", err)
	}
	if _, err := m.Sums(ctx, &leaf.SumsRequest{Index: index, IDs: []string{"f1"}, Fence: true, Mark: one.Seen()}); !hasField(err, "mark") {
		t.Errorf("a look with a mark that was seen: %v", err)
	}
	if r, err := m.DeleteMany(ctx, &leaf.DeleteRequest{Index: index, IDs: []string{"f1"}}); err != nil || r.Deleted != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	write("behind its deletion", one, 0)
	if !sync(0, sumOf(body("marked")), nil) {
		t.Error("a Sync that deletes is not applied")
	}
}

// hasField tells whether an error is that of a field that is not valid.
func hasField(err error, field string) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == api.InvalidParameter && p.Field == field
}

// testSynced changes a document, which is not there at first, by a Sync and by other writes in turn, and looks at what the member says of
// that. Then it keeps one that is not there from being written fresh.
func testSynced(t *testing.T, m leaf.Member, index string, look func(fence bool) *leaf.SumsReply, sync func(fence uint64, expect leaf.Sum, b []byte) bool, body func(title string) []byte) {
	ctx := t.Context()
	says := func(what string, want ...int) {
		t.Helper()
		if r := look(true); !slices.Equal(r.Synced, want) {
			t.Errorf("%s: synced are %v, not %v", what, r.Synced, want)
		}
		if r := look(false); r.Synced != nil {
			t.Errorf("%s: without a fence synced are %v", what, r.Synced)
		}
	}
	says("a document that a Sync deleted", 0)
	writes := map[string]func() error{
		"index": func() error {
			_, err := m.Index(ctx, &leaf.IndexRequest{Index: index, Body: body("w")})
			return err
		},
		"bulk": func() error {
			_, err := m.Bulk(ctx, &leaf.BulkRequest{Index: index}, bytes.NewReader(body("w")))
			return err
		},
		"delete": func() error {
			_, err := m.DeleteMany(ctx, &leaf.DeleteRequest{Index: index, IDs: []string{"f1"}})
			return err
		},
	}
	for name, write := range writes {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		says("behind " + name)
		have := look(false).Sums[0]
		not, err := m.Sync(ctx, &leaf.SyncRequest{Index: index, Items: []leaf.SyncItem{{ID: "f1", Expect: sumOf(body("something else")), Body: body("s")}}})
		if err != nil || not.Applied[0] {
			t.Errorf("a Sync of something else: %+v, %v", not, err)
		}
		says("behind " + name + " and a Sync that was not applied")
		if !sync(0, have, body("s")) {
			t.Fatal("not applied")
		}
		says("a Sync behind "+name, 0)
	}
	if !sync(0, sumOf(body("s")), nil) {
		t.Fatal("not applied")
	}
	// Nothing is written fresh behind its deletion: of another index.
	other := index + "2"
	fresh := func(id string) bool {
		t.Helper()
		r, err := m.Index(ctx, &leaf.IndexRequest{Index: other, Body: fmt.Appendf(nil, `{"id":%q}`, id)})
		if err != nil {
			t.Fatal(err)
		}
		return r.Fresh
	}
	if !fresh("a") {
		t.Error("the first document is not fresh")
	}
	r, err := m.Sync(ctx, &leaf.SyncRequest{Index: other, Items: []leaf.SyncItem{{ID: "a"}}})
	if err != nil || r.Applied[0] {
		t.Errorf("nothing is kept where something is: %+v, %v", r, err)
	}
	if !fresh("b") {
		t.Error("a Sync that was not applied keeps documents from being fresh")
	}
	r, err = m.Sync(ctx, &leaf.SyncRequest{Index: other, Items: []leaf.SyncItem{{ID: "c"}}})
	if err != nil || !r.Applied[0] || r.Sums[0] != (leaf.Sum{}) {
		t.Errorf("nothing is not kept: %+v, %v", r, err)
	}
	if fresh("c") {
		t.Error("a document is fresh behind a Sync that kept it from being so")
	}
	for id, fence := range map[string]bool{"looked at": true, "asked for": false} {
		if _, err := m.Sums(ctx, &leaf.SumsRequest{Index: other, IDs: []string{id}, Fence: fence}); err != nil {
			t.Fatal(err)
		}
		if fresh(id) == fence {
			t.Errorf("a document that was %s before it was there is fresh: %t", id, fence)
		}
	}
	if _, err := m.DeleteMany(ctx, &leaf.DeleteRequest{Index: other, IDs: []string{"b", "never"}}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"b": false, "never": false, "d": true} {
		if fresh(id) != want {
			t.Errorf("behind the deletion of others %s is fresh: %t", id, !want)
		}
	}
}

// testKeys sends loads again.
func testKeys(t *testing.T, e Env) {
	ctx := t.Context()
	body := "{\"id\":\"1\",\"t\":\"warp\"}\nnot json\n{\"id\":\"1\",\"t\":\"weft 𝄞\"}\n{\"id\":\"2\",\"n\":1}\n"
	for i, key := range []string{"k", "k2 𝄞/\"\\", strings.Repeat("x", leaf.MaxBulkKey)} {
		bulk := func(m leaf.Member, index, key string) *leaf.BulkReply {
			t.Helper()
			reply, err := m.Bulk(ctx, &leaf.BulkRequest{Index: index, Key: key}, strings.NewReader(body))
			if err != nil {
				t.Fatalf("key %q: %v", key, err)
			}
			return reply
		}
		index := fmt.Sprint("wired", i)
		first := bulk(member(e), index, key)
		if first.Repeated || first.Indexed != 3 || first.Failed != 1 {
			t.Errorf("key %q: %+v", key, first)
		}
		for _, m := range []leaf.Member{member(e), inside(e)} {
			again := bulk(m, index, key)
			if !again.Repeated {
				t.Errorf("key %q is not known: %+v", key, again)
			}
			again.Repeated = false
			if d := cmp.Diff(first, again, written); d != "" {
				t.Errorf("key %q: −first +again\n%s", key, d)
			}
		}
		if other := bulk(member(e), index, key[1:]+"y"); other.Repeated {
			t.Errorf("key %q is another: %+v", key, other)
		}
		if other := bulk(member(e), index+".other", key); other.Repeated {
			t.Errorf("key %q is of another index: %+v", key, other)
		}
		if without := bulk(member(e), index, ""); without.Repeated {
			t.Errorf("without a key: %+v", without)
		}
	}
	// While a load is under way, no other with its key begins.
	in, out := io.Pipe()
	load := inBackground(func() error {
		_, err := inside(e).Bulk(ctx, &leaf.BulkRequest{Index: "wired0", Key: "slow"}, in)
		return err
	})
	if _, err := io.WriteString(out, "{\"id\":\"3\"}\n"); err != nil { // it is read: the load has its key
		t.Fatal(err)
	}
	if _, err := bothMembers(t, e, "a key under way", func(m leaf.Member) (*leaf.BulkReply, error) {
		return m.Bulk(ctx, &leaf.BulkRequest{Index: "wired0", Key: "slow"}, strings.NewReader(body))
	}); !hasCode(err, api.LoadUnderWay) {
		t.Errorf("a key under way: %v", err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := returned(t, "the load", load); err != nil {
		t.Error(err)
	}
}

func testMemberErrors(t *testing.T, e Env) {
	fill(t, e, 20)
	ctx := t.Context()
	for index, code := range map[string]api.Code{"nosuch.index": api.IndexNotFound, "no index/name": api.InvalidIndexName} {
		for name, call := range map[string]func(m leaf.Member) error{
			"fetch":  func(m leaf.Member) error { _, err := m.Fetch(ctx, &leaf.FetchRequest{Index: index}); return err },
			"sums":   func(m leaf.Member) error { _, err := m.Sums(ctx, &leaf.SumsRequest{Index: index}); return err },
			"digest": func(m leaf.Member) error { _, err := m.Digest(ctx, &leaf.DigestRequest{Index: index}); return err },
		} {
			if _, err := bothMembers(t, e, name, func(m leaf.Member) (*struct{}, error) { return nil, call(m) }); !hasCode(err, code) {
				t.Errorf("%s of %q: %v", name, index, err)
			}
		}
	}
	show := func(s leaf.Show) leaf.FetchRequest { return leaf.FetchRequest{Show: s} }
	for i, c := range []struct {
		req  leaf.FetchRequest
		code api.Code
	}{
		{show(leaf.Show{Source: true, Fields: []string{"nosuch"}}), api.UnknownField},
		{show(leaf.Show{Highlight: &api.Highlight{Fields: []string{"nosuch"}}}), api.UnknownField},
		{show(leaf.Show{Highlight: &api.Highlight{Fields: []string{"i"}}}), api.InvalidField},
		{show(leaf.Show{Highlight: &api.Highlight{Fields: []string{"title"}, FragmentSize: 1}}), api.InvalidParameter},
		{show(leaf.Show{Highlight: &api.Highlight{Fields: []string{"title"}, Fragments: 101}}), api.InvalidParameter},
		{show(leaf.Show{Highlight: &api.Highlight{Fields: []string{"title"}, Pre: strings.Repeat("x", 257)}}), api.InvalidParameter},
		{leaf.FetchRequest{Show: leaf.Show{Explain: true}, Query: parse(t, "nosuch:x")}, api.UnknownField},
		{leaf.FetchRequest{Show: leaf.Show{Explain: true}, DefaultFields: []string{"i"}}, api.FieldNotSearchable},
		{leaf.FetchRequest{Show: leaf.Show{Explain: true}, KNN: &api.KNN{Field: "v", Dense: []float32{1}}}, api.InvalidVector},
		{leaf.FetchRequest{Show: leaf.Show{Explain: true}, KNN: &api.KNN{Field: "title", Dense: []float32{1}}}, api.FieldNotVector},
		{leaf.FetchRequest{Show: leaf.Show{Explain: true}, Stats: &score.Stats{DF: map[score.Term]uint64{{Field: "title", Text: "x"}: 1}}}, api.InvalidParameter},
	} {
		c.req.Index, c.req.IDs = corpusIndex, []string{"both"}
		if _, err := bothMembers(t, e, fmt.Sprint("fetch ", i), func(m leaf.Member) (*leaf.FetchReply, error) { return m.Fetch(ctx, &c.req) }); !hasCode(err, c.code) {
			t.Errorf("fetch %d: %v, want %s", i, err, c.code)
		}
		if c.req.KNN == nil && c.req.Stats == nil {
			if _, err := both(t, e, fmt.Sprint("search ", i), search(ctx, leaf.SearchRequest{
				Index: corpusIndex, Limit: 1, Show: &c.req.Show, Query: c.req.Query, DefaultFields: c.req.DefaultFields,
			})); !hasCode(err, c.code) {
				t.Errorf("search %d: %v, want %s", i, err, c.code)
			}
		}
	}
	for i, req := range []leaf.SumsRequest{
		{Range: &leaf.HashRange{From: 2, To: 1}, Limit: 1},
		{Range: &leaf.HashRange{To: 1}},
	} {
		req.Index = corpusIndex
		if _, err := bothMembers(t, e, fmt.Sprint("sums ", i), func(m leaf.Member) (*leaf.SumsReply, error) { return m.Sums(ctx, &req) }); !hasCode(err, api.InvalidParameter) {
			t.Errorf("sums %d: %v", i, err)
		}
	}
	// A call whose context has ended has no effect.
	gone, cancel := context.WithCancel(ctx)
	cancel()
	m := member(e)
	for name, call := range map[string]func() error{
		"fetch":      func() error { _, err := m.Fetch(gone, &leaf.FetchRequest{Index: corpusIndex}); return err },
		"indexes":    func() error { _, err := m.Indexes(gone, &leaf.IndexesRequest{}); return err },
		"put_index":  func() error { _, err := m.PutIndex(gone, &leaf.PutIndexRequest{Index: "late"}); return err },
		"drop_index": func() error { _, err := m.DropIndex(gone, &leaf.DropIndexRequest{Index: corpusIndex}); return err },
		"sums":       func() error { _, err := m.Sums(gone, &leaf.SumsRequest{Index: corpusIndex}); return err },
		"digest":     func() error { _, err := m.Digest(gone, &leaf.DigestRequest{Index: corpusIndex}); return err },
		"sync": func() error {
			_, err := m.Sync(gone, &leaf.SyncRequest{Index: corpusIndex, Items: []leaf.SyncItem{{ID: "late", Body: []byte(`{"id":"late"}`)}}})
			return err
		},
		"place":  func() error { _, err := m.Place(gone, &leaf.PlaceRequest{Epoch: 1, Map: []byte("{}")}); return err },
		"placed": func() error { _, err := m.Placed(gone); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s in an ended context: %v", name, err)
		}
	}
	list, err := inside(e).Indexes(ctx, &leaf.IndexesRequest{})
	now, nowErr := inside(e).Placed(ctx)
	has, hasErr := inside(e).Has(ctx, &leaf.HasRequest{Index: corpusIndex, IDs: []string{"late"}})
	if errors.Join(err, nowErr, hasErr) != nil || len(list.Indexes) != 1 || now.Epoch != 0 || len(has.Missing) != 1 {
		t.Errorf("calls in an ended context had an effect: %+v, %+v, %+v", list, now, has)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Fetch(ctx, &leaf.FetchRequest{Index: corpusIndex}); !errors.Is(err, leaf.ErrClosed) {
		t.Errorf("fetch of a closed leaf: %v", err)
	}
	if _, err := m.Placed(ctx); !errors.Is(err, leaf.ErrClosed) {
		t.Errorf("placed of a closed leaf: %v", err)
	}
}

func testMemberLimits(t *testing.T, e Env) {
	fill(t, e, 20)
	ctx := t.Context()
	ids := many(leaf.MaxIDs, strings.Repeat("i", api.MaxID))
	items := make([]leaf.SyncItem, leaf.MaxSync, leaf.MaxSync+1)
	for i := range items {
		items[i].ID = fmt.Sprint("item", i)
	}
	for _, c := range []struct {
		what  string
		field string
		limit int64
		at    func(m leaf.Member, over int) error
	}{
		{"ids of a fetch", "ids", leaf.MaxFetch, func(m leaf.Member, over int) error {
			_, err := m.Fetch(ctx, &leaf.FetchRequest{Index: corpusIndex, IDs: append(ids, ids[:over]...), Show: leaf.Show{Source: true}})
			return err
		}},
		{"fields to highlight", "highlight", api.MaxHighlight, func(m leaf.Member, over int) error {
			_, err := m.Fetch(ctx, &leaf.FetchRequest{Index: corpusIndex, Show: leaf.Show{Highlight: &api.Highlight{Fields: many(api.MaxHighlight+over, "title")}}})
			return err
		}},
		{"ids of sums", "ids", leaf.MaxIDs, func(m leaf.Member, over int) error {
			_, err := m.Sums(ctx, &leaf.SumsRequest{Index: corpusIndex, IDs: append(ids, ids[:over]...)})
			return err
		}},
		{"limit of sums", "limit", leaf.MaxIDs, func(m leaf.Member, over int) error {
			_, err := m.Sums(ctx, &leaf.SumsRequest{Index: corpusIndex, Range: &leaf.HashRange{To: math.MaxUint32}, Limit: leaf.MaxIDs + over})
			return err
		}},
		{"depth of a digest", "depth", leaf.MaxDepth, func(m leaf.Member, over int) error {
			_, err := m.Digest(ctx, &leaf.DigestRequest{Index: corpusIndex, Depth: leaf.MaxDepth + over})
			return err
		}},
		{"items of a sync", "items", leaf.MaxSync, func(m leaf.Member, over int) error {
			_, err := m.Sync(ctx, &leaf.SyncRequest{Index: corpusIndex, Items: append(items, leaf.SyncItem{ID: "more"})[:leaf.MaxSync+over]})
			return err
		}},
		{"bytes of a key of a load", "key", leaf.MaxBulkKey, func(m leaf.Member, over int) error {
			_, err := m.Bulk(ctx, &leaf.BulkRequest{Index: corpusIndex, Key: strings.Repeat("k", leaf.MaxBulkKey+over)}, strings.NewReader(""))
			return err
		}},
	} {
		if err := c.at(member(e), 0); err != nil {
			t.Errorf("%s: at the limit: %v", c.what, err)
		}
		for _, m := range []leaf.Member{inside(e), member(e)} {
			refusedWith(t, c.what, c.at(m, 1), c.field, c.limit)
		}
	}
}
