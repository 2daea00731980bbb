package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
)

// ranked is a document of the expected answer.
type ranked struct {
	doc   *tdoc
	score float32
}

// where is what the live documents give for a query and filters, in the order of the keys.
func (o *oracle) where(q query.Node, filters []query.Node, keys []SortKey) []ranked {
	var out []ranked
	idfs := map[string]float32{}
next:
	for i := range o.docs {
		d := &o.docs[i]
		ok, s := o.eval(q, d, idfs)
		if !ok {
			continue
		}
		for _, f := range filters {
			if ok, _ := o.eval(f, d, idfs); !ok {
				continue next
			}
		}
		out = append(out, ranked{d, s})
	}
	if len(keys) == 0 {
		keys = []SortKey{{By: ByScore, Desc: true}}
	}
	slices.SortFunc(out, func(a, b ranked) int {
		for _, k := range keys {
			if c := byKey(k, a, b); c != 0 {
				return c
			}
		}
		return strings.Compare(a.doc.key, b.doc.key)
	})
	return out
}

// byKey compares two documents by one key, from their values and not from any encoding of them.
func byKey(k SortKey, a, b ranked) int {
	sign := 1
	if k.Desc {
		sign = -1
	}
	switch k.By {
	case ByScore:
		return sign * cmp.Compare(a.score, b.score)
	case ByID:
		return sign * strings.Compare(a.doc.key, b.doc.key)
	}
	less := func(x, y string) int {
		if k.Field == "tag" {
			return strings.Compare(x, y)
		}
		return number(x).Cmp(number(y))
	}
	pick := func(d *tdoc) (string, bool) {
		v := d.strings(k.Field)
		if len(v) == 0 {
			return "", false
		}
		if k.Mode == Greatest || k.Mode == AnyMode && k.Desc {
			return slices.MaxFunc(v, less), true
		}
		return slices.MinFunc(v, less), true
	}
	x, okx := pick(a.doc)
	y, oky := pick(b.doc)
	switch {
	case !okx && !oky:
		return 0
	case okx != oky:
		if okx == k.MissingFirst {
			return 1
		}
		return -1
	}
	return sign * less(x, y)
}

func randomSort(r *rand.Rand) []SortKey {
	var keys []SortKey
	for range r.IntN(4) {
		k := SortKey{By: ByField, Field: columns[r.IntN(len(columns))], Desc: r.IntN(2) == 0, MissingFirst: r.IntN(3) == 0, Mode: Mode(r.IntN(3))}
		switch r.IntN(8) {
		case 0, 1:
			k = SortKey{By: ByScore, Desc: r.IntN(3) > 0}
		case 2:
			k = SortKey{By: ByID, Desc: r.IntN(2) == 0}
		}
		keys = append(keys, k)
	}
	return keys
}

func randomFilters(r *rand.Rand, pool []query.Node) []query.Node {
	var out []query.Node
	for range r.IntN(4) {
		if len(pool) > 0 && r.IntN(2) == 0 {
			out = append(out, pool[r.IntN(len(pool))])
		} else {
			out = append(out, randomQuery(r, r.IntN(3)))
		}
	}
	return out
}

func showAll(qs []query.Node) string {
	var out []string
	for _, q := range qs {
		out = append(out, show(q))
	}
	return strings.Join(out, " & ")
}

// checkValue compares a sort value with that of the document.
func checkValue(k SortKey, v SortValue, h Hit, want ranked) error {
	switch k.By {
	case ByScore:
		if v.Kind != ScoreValue || math.Float32bits(v.Score) != math.Float32bits(h.Score) {
			return fmt.Errorf("value %+v, score %v", v, h.Score)
		}
		return nil
	case ByID:
		if v.Kind != TextValue || v.Text != want.doc.key {
			return fmt.Errorf("value %+v, key %s", v, want.doc.key)
		}
		return nil
	}
	if values := want.doc.strings(k.Field); len(values) == 0 {
		if v.Kind != MissingValue {
			return fmt.Errorf("value %+v of a document without one", v)
		}
		return nil
	}
	sch := testSchema()
	f, _ := sch.Lookup(k.Field)
	greatest := k.Mode == Greatest || k.Mode == AnyMode && k.Desc
	if sch.Fields[f].Type == schema.Text {
		text := slices.Min(want.doc.tag)
		if greatest {
			text = slices.Max(want.doc.tag)
		}
		if v.Kind != TextValue || v.Text != text {
			return fmt.Errorf("value %+v, want the text %s", v, text)
		}
		return nil
	}
	nums := want.doc.nums(f)
	n := slices.Min(nums)
	if greatest {
		n = slices.Max(nums)
	}
	if v.Kind != NumberValue || v.Number != n {
		return fmt.Errorf("value %+v, want the number %d", v, n)
	}
	return nil
}

// TestFiltersAndOrdersEqualBruteForce compares filtered and sorted searches, page by page, with a look at every document.
func TestFiltersAndOrdersEqualBruteForce(t *testing.T) {
	seeds, queries := 6, 40
	if testing.Short() || raceEnabled {
		seeds, queries = 4, 15
	}
	if n, err := strconv.Atoi(os.Getenv("WEFT_EXEC_SEEDS")); err == nil {
		seeds, queries = n, 150
	}
	sch, an := testSchema(), testAnalyzers(t)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		live, ls := layouts(t, r, randomDocs(r, []int{3, 60, 700, 1500, 2600, 1100}[seed%6]))
		o := newOracle(live)
		cache := NewFilterCache(1 << 20)
		pool := make([]query.Node, 6)
		for i := range pool {
			pool[i] = randomQuery(r, 2)
		}
		for qi := range queries {
			q, filters, keys := randomQuery(r, qi%3), randomFilters(r, pool), randomSort(r)
			want := o.where(q, filters, keys)
			for li, leaves := range ls {
				name := fmt.Sprintf("seed %d query %d layout %d: %s where %s by %+v", seed, qi, li, show(q), showAll(filters), keys)
				size := []int{1, 7, 100, 5000}[r.IntN(4)]
				if size == 1 && len(want) > 40 {
					size = 13
				}
				req := Request{Query: q, Filters: filters, Sort: keys, Limit: size, Exhaustive: r.IntN(4) == 0, Total: []TotalMode{TotalExact, TotalNone}[r.IntN(2)], NoScores: r.IntN(4) == 0}
				if r.IntN(3) > 0 {
					req.Cache = cache
				}
				byScore := len(keys) == 0
				for _, k := range keys {
					byScore = byScore || k.By == ByScore
				}
				if r.IntN(4) == 0 {
					req.Offset = r.IntN(4)
				}
				if r.IntN(3) == 0 {
					req.Trace = &Trace{}
				}
				got := min(req.Offset, len(want))
				for {
					res, err := Search(context.Background(), leaves, sch, an, req)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if req.Total == TotalExact && (res.Total != uint64(len(want)) || res.TotalRelation != Exactly) {
						t.Fatalf("%s: total %d %s, want %d", name, res.Total, res.TotalRelation, len(want))
					}
					page := want[got:min(got+size, len(want))]
					if len(res.Hits) != len(page) {
						t.Fatalf("%s: %d hits after %d, want %d", name, len(res.Hits), got, len(page))
					}
					for i, h := range res.Hits {
						w := page[i]
						if h.Key != w.doc.key || (byScore || !req.NoScores) && math.Float32bits(h.Score) != math.Float32bits(w.score) {
							t.Fatalf("%s: hit %d is %s %v, want %s %v", name, got+i, h.Key, h.Score, w.doc.key, w.score)
						}
						if len(h.Sort) != len(keys) {
							t.Fatalf("%s: %d sort values", name, len(h.Sort))
						}
						for j, k := range keys {
							if err := checkValue(k, h.Sort[j], h, w); err != nil && !(k.By == ByScore && req.NoScores) {
								t.Fatalf("%s: hit %d, key %d: %v", name, got+i, j, err)
							}
						}
						if i > 0 && CompareHits(keys, &res.Hits[i-1], &res.Hits[i]) >= 0 {
							t.Fatalf("%s: hits %d and %d do not ascend", name, got+i-1, got+i)
						}
					}
					if got += len(page); got == len(want) {
						break
					}
					req.After, req.Offset = AfterHit(&res.Hits[len(res.Hits)-1]), 0
				}
				m, err := Match(context.Background(), leaves, sch, an, q, filters, MatchOptions{Cache: req.Cache})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				keysOf := matched(leaves, m)
				expect := make([]string, len(want))
				for i, w := range want {
					expect[i] = w.doc.key
				}
				slices.Sort(expect)
				if m.Count != uint64(len(want)) || !slices.Equal(keysOf, expect) {
					t.Fatalf("%s: match finds %d documents %v, want %v", name, m.Count, keysOf, expect)
				}
				res, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Filters: filters, Cache: req.Cache})
				if err != nil || res.Total != uint64(len(want)) {
					t.Fatalf("%s: count %d %v, want %d", name, res.Total, err, len(want))
				}
				floor := uint64(r.IntN(20))
				res, err = Search(context.Background(), leaves, sch, an, Request{Query: q, Filters: filters, Sort: keys, Limit: 3, Total: TotalAtLeast, TotalFloor: floor})
				if err != nil || res.Total > uint64(len(want)) || (res.TotalRelation == Exactly && res.Total != uint64(len(want))) ||
					(res.TotalRelation == AtLeast && res.Total < floor) {
					t.Fatalf("%s: count from %d on: %d %s %v, want %d", name, floor, res.Total, res.TotalRelation, err, len(want))
				}
			}
		}
		if st := cache.Stats(); seed > 0 && (st.Hits == 0 || st.Bytes > 1<<20 || st.Sets == 0) {
			t.Errorf("cache: %+v", st)
		}
	}
}

// matched are the keys of the documents of a match set, sorted; each must be alive.
func matched(leaves []Leaf, m *MatchSet) []string {
	var keys []string
	for li, l := range leaves {
		n := uint32(0)
		for d := range l.NumDocs() {
			if live := l.Live(); live != nil && !live.Has(d) {
				continue
			}
			if set := m.Leaves[li].Set; set == nil || set.Has(d) {
				keys = append(keys, string(l.Key(d, nil)))
				n++
			}
		}
		if n != m.Leaves[li].Count {
			keys = append(keys, fmt.Sprintf("leaf %d counts %d of %d", li, m.Leaves[li].Count, n))
		}
		if set := m.Leaves[li].Set; set != nil && set.Count() != int(n) {
			keys = append(keys, fmt.Sprintf("leaf %d has dead members", li))
		}
	}
	slices.Sort(keys)
	return keys
}

// withDead is the same segment, by identity too, with other deletes.
func (l *segLeaf) withDead(dead map[int]bool) *segLeaf {
	out := *l
	out.m = newMemLeaf(l.m.docs, dead, true) // sorted by key as the segment is
	return &out
}

// TestCachedFiltersOutliveDeletes uses the sets of a segment while its documents die.
func TestCachedFiltersOutliveDeletes(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	r := rand.New(rand.NewPCG(4, 4))
	seg := newSegLeaf(t, randomDocs(r, 1500), nil)
	cache := NewFilterCache(1 << 20)
	dead := map[int]bool{}
	filters := make([]query.Node, 12)
	for i := range filters {
		filters[i] = randomQuery(r, 2)
	}
	for range 12 {
		leaf := seg.withDead(dead)
		var live []tdoc
		for i, d := range seg.m.docs {
			if !dead[i] {
				live = append(live, d)
			}
		}
		o := newOracle(live)
		for _, f := range filters {
			want := o.where(&query.Term{Field: "body", Text: "wa0"}, []query.Node{f}, nil)
			res, err := Search(context.Background(), []Leaf{leaf}, sch, an, Request{Query: &query.Term{Field: "body", Text: "wa0"}, Filters: []query.Node{f}, Cache: cache, Limit: 2000})
			if err != nil || res.Total != uint64(len(want)) || len(res.Hits) != len(want) {
				t.Fatalf("%s: %v, %d of %d", show(f), err, res.Total, len(want))
			}
			for i, h := range res.Hits {
				if h.Key != want[i].doc.key || h.Score != want[i].score {
					t.Fatalf("%s: hit %d is %s %v, want %s %v", show(f), i, h.Key, h.Score, want[i].doc.key, want[i].score)
				}
			}
		}
		for range 100 {
			dead[r.IntN(1500)] = true
		}
	}
	if st := cache.Stats(); st.Hits < 100 {
		t.Errorf("cache: %+v", st)
	}
}

// TestFilterIsKeptFromItsSecondUse checks admission, what counts as the same filter, and the trace.
func TestFilterIsKeptFromItsSecondUse(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	leaves := []Leaf{
		newSegLeaf(t, randomDocs(rand.New(rand.NewPCG(1, 4)), 900), nil),
		newMemLeaf(randomDocs(rand.New(rand.NewPCG(2, 4)), 200), nil, false),
	}
	cache := NewFilterCache(1 << 20)
	run := func(f query.Node) []LeafTrace {
		t.Helper()
		tr := &Trace{}
		if _, err := Search(context.Background(), leaves, sch, an, Request{Query: &query.Term{Text: "wa0"}, Filters: []query.Node{f}, Cache: cache, Limit: 3, Trace: tr}); err != nil {
			t.Fatal(err)
		}
		return tr.Leaves
	}
	num := func(lo string) query.Node { return &query.Range{Field: "n", Min: &query.Bound{Value: lo}} }
	if tr := run(num("3")); tr[0].Filters[0].How != "scan" || cache.Stats().Sets != 0 {
		t.Errorf("first use: %+v %+v", tr, cache.Stats())
	}
	if tr := run(num("3.0")); tr[0].Filters[0].How != "scan" || cache.Stats().Sets != 1 { // the same bound, written in another way
		t.Errorf("second use: %+v %+v", tr, cache.Stats())
	}
	tr := run(&query.Boost{Query: &query.Bool{Must: []query.Node{num("2.5")}}, Factor: 2})
	if tr[0].Filters[0].How != "cache" || tr[1].Filters[0].How != "scan" || !tr[1].Memtable || tr[0].Memtable || cache.Stats().Hits != 1 {
		t.Errorf("third use: %+v %+v", tr, cache.Stats())
	}
	if tr[0].Filters[0].Found != tr[0].Accepted || tr[0].Docs != 900 || tr[0].Live != 900 || tr[0].Accepted == 900 {
		t.Errorf("third use: %+v", tr)
	}
	for _, other := range []query.Node{num("4"), &query.Range{Field: "n", Max: &query.Bound{Value: "3"}}, &query.Exists{Field: "n"}} {
		if tr := run(other); tr[0].Filters[0].How == "cache" {
			t.Errorf("%s is taken for another filter", other)
		}
	}
}

// TestFilterCacheStaysWithinItsBytes fills a small cache.
func TestFilterCacheStaysWithinItsBytes(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	leaves := []Leaf{newSegLeaf(t, randomDocs(rand.New(rand.NewPCG(1, 4)), 3000), nil)}
	for _, limit := range []int64{0, 300, 2000} {
		cache := NewFilterCache(limit)
		for i := range 200 {
			f := &query.Range{Field: "n", Min: &query.Bound{Value: fmt.Sprint(i/8 - 25)}}
			if _, err := Match(context.Background(), leaves, sch, an, nil, []query.Node{f}, MatchOptions{Cache: cache}); err != nil {
				t.Fatal(err)
			}
			if st := cache.Stats(); st.Bytes > limit || st.Bytes < 0 || (st.Sets == 0) != (st.Bytes == 0) {
				t.Fatalf("limit %d: %+v", limit, st)
			}
		}
		if st := cache.Stats(); limit == 2000 && (st.Hits == 0 || st.Evictions == 0 || st.Sets == 0) {
			t.Errorf("limit %d: %+v", limit, st)
		}
	}
}

// TestFilterCacheServesManyAtOnce lets searches share sets; a search whose context has ended leaves nothing behind.
func TestFilterCacheServesManyAtOnce(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	r := rand.New(rand.NewPCG(8, 8))
	live, ls := layouts(t, r, randomDocs(r, 1200))
	o := newOracle(live)
	filters := make([]query.Node, 8)
	want := make([]int, len(filters))
	for i := range filters {
		filters[i] = randomQuery(r, 2)
		want[i] = len(o.where(&query.All{}, filters[i:i+1], nil))
	}
	cache := NewFilterCache(4000)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 60 {
				i := r.IntN(len(filters))
				ctx := context.Context(context.Background())
				if r.IntN(4) == 0 {
					ctx = &countdown{Context: ctx, left: r.IntN(4), err: context.Canceled}
				}
				m, err := Match(ctx, ls[r.IntN(len(ls))], sch, an, nil, filters[i:i+1], MatchOptions{Cache: cache})
				if err != nil && !errors.Is(err, context.Canceled) || err == nil && m.Count != uint64(want[i]) {
					t.Errorf("%s: %v %v, want %d", show(filters[i]), m, err, want[i])
				}
			}
		})
	}
	wg.Wait()
}

// TestFiltersChangeNoStatistics: with and without a filter a document has the same score, and a filter that finds everything
// changes nothing.
func TestFiltersChangeNoStatistics(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	r := rand.New(rand.NewPCG(3, 9))
	_, ls := layouts(t, r, randomDocs(r, 1000))
	for range 60 {
		q, f := randomQuery(r, 2), randomQuery(r, 2)
		for _, leaves := range ls {
			whole, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Limit: 2000})
			if err != nil {
				t.Fatal(err)
			}
			scores := map[string]float32{}
			for _, h := range whole.Hits {
				scores[h.Key] = h.Score
			}
			part, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Filters: []query.Node{f}, Limit: 2000})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range part.Hits {
				if math.Float32bits(scores[h.Key]) != math.Float32bits(h.Score) {
					t.Fatalf("%s where %s: %s scores %v, without the filter %v", show(q), show(f), h.Key, h.Score, scores[h.Key])
				}
			}
		}
	}
}

// TestPagesAreCutFromOneRanking pages through a ranking while other documents come and go: those that stay appear once, in order.
func TestPagesAreCutFromOneRanking(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	seeds := 40
	if raceEnabled {
		seeds = 8
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		docs := randomDocs(r, 400)
		steady, fleeting := docs[:250], docs[250:]
		q, keys := randomQuery(r, 2), randomSort(r)
		filters := randomFilters(r, nil)
		state := func() []Leaf {
			all := slices.Clone(steady)
			for _, d := range fleeting {
				if r.IntN(2) == 0 {
					all = append(all, d)
				}
			}
			_, ls := layoutsOf(t, r, all)
			return ls
		}
		leaves := state()
		stats, err := Statistics(context.Background(), leaves, sch, an, Request{Query: q})
		if err != nil {
			t.Fatal(err)
		}
		search := func(leaves []Leaf, limit int, after *After) []Hit {
			res, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Filters: filters, Sort: keys, Limit: limit, After: after, Stats: stats})
			if err != nil {
				t.Fatal(err)
			}
			return res.Hits
		}
		isSteady := map[string]bool{}
		for _, d := range steady {
			isSteady[d.key] = true
		}
		pick := func(hits []Hit) (out []string) {
			for _, h := range hits {
				if isSteady[h.Key] {
					out = append(out, fmt.Sprint(h.Key, math.Float32bits(h.Score)))
				}
			}
			return out
		}
		want := pick(search(leaves, 5000, nil))
		var got []Hit
		var after *After
		for {
			page := search(leaves, 1+r.IntN(40), after)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			after = AfterHit(&page[len(page)-1])
			leaves = state()
		}
		if !slices.Equal(pick(got), want) {
			t.Fatalf("seed %d: %s by %+v: pages give %v, want %v", seed, show(q), keys, pick(got), want)
		}
		for i := 1; i < len(got); i++ {
			if CompareHits(keys, &got[i-1], &got[i]) >= 0 {
				t.Fatalf("seed %d: hits %d and %d do not ascend", seed, i-1, i)
			}
		}
	}
}

// layoutsOf makes documents, all alive, into the leaves of one snapshot.
func layoutsOf(t testing.TB, r *rand.Rand, docs []tdoc) ([]tdoc, []Leaf) {
	cut := r.IntN(len(docs))
	return docs, []Leaf{newSegLeaf(t, docs[:cut], nil), newMemLeaf(docs[cut:], nil, false)}
}

// TestExplanationHasTheScoresBits explains hits of every kind of query.
func TestExplanationHasTheScoresBits(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	r := rand.New(rand.NewPCG(6, 6))
	_, ls := layouts(t, r, randomDocs(r, 500))
	for range 150 {
		q := randomQuery(r, 3)
		for _, leaves := range ls {
			res, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			hits := map[[2]int]float32{}
			for _, h := range res.Hits {
				hits[[2]int{h.Leaf, int(h.Doc)}] = h.Score
			}
			var some []Hit
			for range 12 {
				li := r.IntN(len(leaves))
				if leaves[li].NumDocs() == 0 {
					continue
				}
				doc := uint32(r.IntN(int(leaves[li].NumDocs())))
				if live := leaves[li].Live(); live != nil && !live.Has(doc) {
					continue
				}
				some = append(some, Hit{Leaf: li, Doc: doc})
			}
			for i, x := range explainAll(t, leaves, q, some) {
				s, hit := hits[[2]int{some[i].Leaf, int(some[i].Doc)}]
				if x.Match != hit || math.Float32bits(x.Value) != math.Float32bits(s) {
					t.Fatalf("%s: explained as %v %v, found %v with %v", show(q), x.Match, x.Value, hit, s)
				}
				checkExplanation(t, x)
			}
		}
	}
}

// checkExplanation recomputes an explanation from its parts.
func checkExplanation(t *testing.T, x *Explanation) {
	t.Helper()
	if !x.Match {
		if x.Value != 0 {
			t.Errorf("%+v has a value without a match", x)
		}
		return
	}
	var want float32
	switch x.Kind {
	case ExplainTerm, ExplainPhrase:
		want = score.TF(x.BM25.IDF, float32(x.BM25.TF), x.BM25.K1, score.Norm(x.BM25.Len, x.BM25.Avg, x.BM25.K1, x.BM25.B))
		if avg := score.AvgLen(score.FieldStats{SumLen: x.BM25.SumLen, Docs: x.BM25.DocsWithText}); avg != x.BM25.Avg {
			t.Errorf("%+v: average %v", x.BM25, avg)
		}
		if x.Kind == ExplainPhrase {
			var sum float32
			for _, p := range x.Parts {
				sum += p.Value
			}
			if sum != x.BM25.IDF {
				t.Errorf("idf %v of a phrase of %v", x.BM25.IDF, sum)
			}
		}
	case ExplainIDF:
		want = score.IDF(x.BM25.Docs, x.BM25.DF)
	case ExplainBoost:
		want = float32(x.Factor * x.Parts[0].Value)
	case ExplainSum, ExplainPrefix:
		for _, p := range x.Parts {
			want += p.Value
		}
	case ExplainFilter, ExplainNot, ExplainNothing:
	default:
		want = 1
	}
	if math.Float32bits(want) != math.Float32bits(x.Value) {
		t.Errorf("%s %q: %v, its parts give %v", x.Kind, x.Text, x.Value, want)
	}
	for _, p := range x.Parts {
		checkExplanation(t, p)
	}
}

// TestExplanationIsBounded explains a prefix of very many words.
func TestExplanationIsBounded(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	d := tdoc{key: "a"}
	for i := range 3000 {
		d.toks[2] = append(d.toks[2], fmt.Sprintf("w%04d", i))
	}
	q := &query.Boost{Query: &query.Prefix{Field: "body", Text: "w"}, Factor: 2}
	x := explainAll(t, []Leaf{newMemLeaf([]tdoc{d}, nil, true)}, q, []Hit{{}})[0]
	if len(x.Parts) != 1 || len(x.Parts[0].Parts) != MaxExplained || x.Parts[0].More != MaxPrefixTerms-MaxExplained {
		t.Fatalf("%d parts, %d more", len(x.Parts[0].Parts), x.Parts[0].More)
	}
	if _, err := NewExplainer(context.Background(), nil, sch, an, Request{}, []Hit{{}}); err == nil {
		t.Error("a leaf that is not there is explained")
	}
}

// TestRequestsThatCannotBeAnswered names the field of each fault.
func TestRequestsThatCannotBeAnswered(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	byField := func(f string) []SortKey { return []SortKey{{By: ByField, Field: f}} }
	many := make([]query.Node, MaxFilters+1)
	for i := range many {
		many[i] = &query.All{}
	}
	number := func(v SortValue) *After { return &After{Values: []SortValue{v}, Key: "k"} }
	for _, c := range []struct {
		name, code, field string
		req               Request
	}{
		{"text", "field_not_sortable", "body", Request{Sort: byField("body")}},
		{"vector", "field_not_sortable", "vec", Request{Sort: byField("vec"), Limit: 3}},
		{"no column", "field_not_sortable", "slow", Request{Sort: byField("slow"), Limit: 3}},
		{"unknown", "unknown_field", "nope", Request{Sort: byField("nope"), Limit: 3}},
		{"keys", "too_many_sort_keys", "sort", Request{Sort: make([]SortKey, MaxSortKeys+1), Limit: 3}},
		{"filters", "too_many_filters", "filter", Request{Filters: many}},
		{"filter field", "unknown_field", "nope", Request{Filters: []query.Node{&query.Exists{Field: "nope"}}}},
		{"terms on text", "field_not_fast", "body", Request{Query: &query.Terms{Field: "body", Values: []string{"a"}}}},
		{"terms on vector", "field_not_fast", "vec", Request{Query: &query.Terms{Field: "vec", Values: []string{"a"}}}},
		{"terms of no number", "invalid_bound", "n", Request{Query: &query.Terms{Field: "n", Values: []string{"1", "a"}}}},
		{"after nothing", "invalid_after", "after", Request{Sort: byField("n"), Limit: 3, After: &After{}}},
		{"after text", "invalid_after", "after", Request{Sort: byField("n"), Limit: 3, After: number(SortValue{Kind: TextValue})}},
		{"after a number", "invalid_after", "after", Request{Sort: byField("tag"), Limit: 3, After: number(SortValue{Kind: NumberValue})}},
		{"after no score", "invalid_after", "after", Request{Limit: 3, After: number(SortValue{Kind: ScoreValue, Score: float32(math.NaN())})}},
		{"after missing score", "invalid_after", "after", Request{Limit: 3, After: number(SortValue{})}},
	} {
		_, err := Search(context.Background(), nil, sch, an, c.req)
		var bad *QueryError
		if !errors.As(err, &bad) || bad.Code != c.code || bad.Field != c.field {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestTermsConvertValuesAsRangesDo looks at values that no document can have, and at several ways to write one.
func TestTermsConvertValuesAsRangesDo(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	docs := []tdoc{{key: "a", num: []int64{5}, u: []uint64{math.MaxUint64}, x: []float64{math.Copysign(0, -1)}, date: []int64{day}, tag: []string{"A b", ""}}}
	for _, leaves := range [][]Leaf{{newSegLeaf(t, docs, nil)}, {newMemLeaf(docs, nil, false)}} {
		for _, c := range []struct {
			field, value string
			want         uint64
		}{
			{"n", "5", 1},
			{"n", "5.0", 1},
			{"n", "0.5e1", 1},
			{"n", "5.5", 0},
			{"n", "1e300", 0},
			{"n", "-1e300", 0},
			{"u", "18446744073709551615", 1},
			{"u", "18446744073709551616", 0},
			{"u", "-1", 0},
			{"x", "0", 1},
			{"x", "-0.0", 1},
			{"x", "1e400", 0},
			{"x", "5e-324", 0},
			{"date", "1970-01-02", 1},
			{"date", "86400000", 1},
			{"date", "1970-01-02T00:00:00.001Z", 0},
			{"tag", "A b", 1},
			{"tag", "a b", 0},
			{"tag", "", 1},
			{"tag", "A", 0},
		} {
			m, err := Match(context.Background(), leaves, sch, an, &query.Terms{Field: c.field, Values: []string{c.value}}, nil, MatchOptions{})
			if err != nil || m.Count != c.want {
				t.Errorf("%s = %q: %v %v", c.field, c.value, m, err)
			}
		}
	}
}

// TestFilterOfTheRarestWords: what a capped Match finds depends on document frequencies, so that it is chosen anew after deletes,
// and with given statistics by those alone.
func TestFilterOfTheRarestWords(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	var docs []tdoc
	for i := range 40 {
		d := tdoc{key: fmt.Sprintf("k%02d", i)}
		d.toks[2] = []string{"common"}
		if i%4 == 0 {
			d.toks[2] = append(d.toks[2], "fourth")
		}
		if i%5 == 0 {
			d.toks[2] = append(d.toks[2], "fifth")
		}
		docs = append(docs, d)
	}
	seg := newSegLeaf(t, docs, nil)
	q := &query.Match{Field: "body", Text: "common fourth fifth", MaxTerms: 1}
	cache := NewFilterCache(1 << 20)
	count := func(dead map[int]bool, stats *score.Stats) uint64 {
		t.Helper()
		leaves := []Leaf{seg.withDead(dead)}
		res, err := Search(context.Background(), leaves, sch, an, Request{Filters: []query.Node{q}, Cache: cache, Stats: stats})
		if err != nil {
			t.Fatal(err)
		}
		m, err := Match(context.Background(), leaves, sch, an, q, nil, MatchOptions{Stats: stats})
		if err != nil || m.Count != res.Total {
			t.Fatalf("as a query %v %v, as a filter %d", m, err, res.Total)
		}
		return res.Total
	}
	dead := map[int]bool{4: true, 8: true, 12: true, 16: true}
	stats := &score.Stats{Docs: 40, Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{{Field: "body", Text: "common"}: 7}}
	for range 3 {
		if n := count(nil, nil); n != 8 {
			t.Errorf("%d documents, want the 8 of \"fifth\"", n)
		}
		if n := count(dead, nil); n != 6 {
			t.Errorf("%d documents, want the 6 that are left of \"fourth\"", n)
		}
		if n := count(nil, stats); n != 40 {
			t.Errorf("%d documents, want the 40 of the only word with statistics", n)
		}
	}
	if st := cache.Stats(); st.Sets != 0 {
		t.Errorf("cache: %+v", st)
	}
}

// TestSelectiveFiltersLead: few accepted documents are looked up one by one, with the same answer.
func TestSelectiveFiltersLead(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	docs := make([]tdoc, 6000)
	for i := range docs {
		docs[i] = tdoc{key: fmt.Sprintf("k%05d", i), num: []int64{int64(i)}}
		docs[i].toks[2] = []string{"all", fmt.Sprint("odd", i%2), fmt.Sprint("m", i%7)}
	}
	o := newOracle(docs)
	term := func(w string) query.Node { return &query.Term{Field: "body", Text: w} }
	leaves := []Leaf{newSegLeaf(t, docs, nil)}
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprint(i*3))
	}
	filters := []query.Node{
		&query.Range{Field: "n", Min: &query.Bound{Value: "4000"}, Max: &query.Bound{Value: "4020"}},
		&query.Terms{Field: "n", Values: []string{"3", "1017", "1018", "5999", "6001"}},
		&query.Terms{Field: "n", Values: many},
		&query.Bool{Must: []query.Node{&query.Phrase{Field: "body", Text: "all odd1 m3"}, &query.Range{Field: "n", Max: &query.Bound{Value: "60"}}}, MustNot: []query.Node{term("m4"), &query.Terms{Field: "n", Values: many}}},
	}
	cache := NewFilterCache(1 << 20)
	for _, q := range []query.Node{
		term("all"), term("odd1"), term("nowhere"),
		&query.Bool{Must: []query.Node{term("all"), term("odd1")}},
		&query.Bool{Should: []query.Node{term("all"), term("m3")}},
		&query.Bool{Should: []query.Node{term("m3"), term("m4")}, MustNot: []query.Node{term("odd0")}},
		&query.Bool{Must: []query.Node{term("all")}, Should: []query.Node{term("m2")}},
	} {
		for _, f := range filters {
			want := o.where(q, []query.Node{f}, nil)
			for _, limit := range []int{0, 5, 5000} {
				tr := &Trace{}
				res, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Filters: []query.Node{f}, Cache: cache, Limit: limit, Trace: tr})
				if err != nil || res.Total != uint64(len(want)) || len(res.Hits) != min(limit, len(want)) {
					t.Fatalf("%s where %s: %v, %+v, want %d", show(q), f, err, res, len(want))
				}
				for i, h := range res.Hits {
					if h.Key != want[i].doc.key || h.Score != want[i].score {
						t.Fatalf("%s where %s: hit %d is %s %v, want %s %v", show(q), f, i, h.Key, h.Score, want[i].doc.key, want[i].score)
					}
				}
				if few := f == filters[0] || f == filters[1]; few && show(q) == show(term("all")) && tr.Leaves[0].Path != "filter" {
					t.Errorf("%s where %s: %+v", show(q), f, tr.Leaves[0])
				}
			}
		}
	}
}
