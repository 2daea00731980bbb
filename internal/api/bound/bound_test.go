package bound

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/highlight"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

const bookSchema = `index books {
  field id: text<raw> [primary, indexed, stored]
  field title: text [indexed, stored]
  field tag: text<raw> [indexed, stored, fast]
  field year: i64 [stored, fast]
  field born: date [stored, fast]
  field price: f64 [stored, fast]
  field pages: u64 [stored]
  field note: text [indexed]
  field v: dense_vector<2> [indexed]
}`

func books(t *testing.T) *schema.Schema {
	t.Helper()
	sch, err := schema.ParseSDL(bookSchema, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sch
}

// bind binds the search of a URL.
func bind(t *testing.T, sch *schema.Schema, params string, o Options) (*Bound, *Query, *api.Problem) {
	t.Helper()
	v, err := url.ParseQuery(params)
	if err != nil {
		t.Fatal(err)
	}
	req, prob := api.ParseSearch(v, api.SearchLimits{Hits: 10_000, Timeout: time.Minute})
	if prob != nil {
		t.Fatalf("%s: %v", params, prob)
	}
	q, err := Parse(req)
	if err != nil {
		t.Fatalf("%s: %v", params, err)
	}
	b, prob := Bind(req, q, sch, o)
	return b, q, prob
}

func TestBindRefuses(t *testing.T) {
	sch := books(t)
	for _, tt := range []struct {
		params string
		code   api.Code
		field  string
	}{
		{"default_fields=zz", api.UnknownField, "zz"},
		{"default_fields=year", api.FieldNotSearchable, "year"},
		{"fields=zz", api.UnknownField, "zz"},
		{"fields=note", api.InvalidField, "note"},
		{"sort=zz", api.UnknownField, "zz"},
		{"sort=title", api.FieldNotSortable, "title"},
		{"sort=pages", api.FieldNotSortable, "pages"},
		{"sort=v", api.FieldNotSortable, "v"},
		{"highlight=zz", api.UnknownField, "zz"},
		{"highlight=year", api.InvalidField, "year"},
		{"highlight=note", api.InvalidField, "note"},
		{"knn=zz:1,2", api.UnknownField, "zz"},
		{"knn=v:1,2,3", api.InvalidVector, "v"},
		{"explain=true&limit=101", api.InvalidParameter, "limit"},
		{"after=zz", api.InvalidCursor, "after"},
		// The first one that is looked at is the one that is told.
		{"default_fields=d&fields=f&sort=s", api.UnknownField, "d"},
		{"fields=f&sort=s&highlight=h", api.UnknownField, "f"},
		{"sort=s&highlight=h", api.UnknownField, "s"},
		{"highlight=h&knn=k:1&explain=true&limit=101", api.UnknownField, "h"},
		{"knn=k:1&explain=true&limit=101", api.UnknownField, "k"},
		{"explain=true&limit=101&after=zz", api.InvalidParameter, "limit"},
	} {
		if b, _, prob := bind(t, sch, tt.params, Options{}); prob == nil || prob.Code != tt.code || prob.Field != tt.field || b != nil {
			t.Errorf("%s: %v, want %s of %q", tt.params, prob, tt.code, tt.field)
		}
	}
}

func TestBind(t *testing.T) {
	sch := books(t)
	for _, tt := range []struct {
		params string
		scored bool
		marked []string
	}{
		{"", false, nil},
		{"q=loom", true, nil},
		{"q=loom&sort=year", false, nil},
		{"q=loom&sort=year,score", true, nil},
		{"sort=score", false, nil},
		{"q=loom&highlight=title,tag", true, []string{"title", "tag"}},
		{"q=loom&highlight=*", true, []string{"id", "title", "tag"}},
	} {
		b, _, prob := bind(t, sch, tt.params, Options{})
		if prob != nil {
			t.Errorf("%s: %v", tt.params, prob)
			continue
		}
		if b.Scored != tt.scored || !slices.Equal(b.Marked, tt.marked) || len(b.Sort.Keys) != len(b.Sort.Types) || b.Page.After != nil {
			t.Errorf("%s: %+v", tt.params, b)
		}
	}
}

// TestPages gives the cursor of a page to the search of the next one.
func TestPages(t *testing.T) {
	sch := books(t)
	stats := &score.Stats{
		Docs: 9, Fields: map[string]score.FieldStats{"title": {Docs: 8, SumLen: 30}}, DF: map[score.Term]uint64{{Field: "title", Text: "loom"}: 3},
	}
	for _, tt := range []struct {
		params string
		hit    exec.Hit
		stats  *score.Stats
		local  bool
		want   api.Code
	}{
		{"q=loom", exec.Hit{Key: "7", Score: 1.5}, stats, false, ""},
		{"q=loom", exec.Hit{Key: "7", Score: 1.5}, stats, true, ""},
		{"q=loom", exec.Hit{Key: "7", Score: 1.5}, nil, true, ""},
		{"q=loom", exec.Hit{Key: "7", Score: 1.5}, nil, false, api.InvalidCursor},
		{"", exec.Hit{Key: "7", Score: 1}, nil, false, ""},
		{"q=loom&sort=tag:asc,year:desc", exec.Hit{Key: "7", Sort: []exec.SortValue{{Kind: exec.TextValue, Text: "é"}, {Kind: exec.NumberValue, Number: 1}}}, nil, false, ""},
		{"q=loom&sort=tag", exec.Hit{Key: "7", Sort: []exec.SortValue{{}}}, nil, false, ""},
		{"q=loom&sort=tag", exec.Hit{Key: "7", Sort: []exec.SortValue{{Kind: exec.NumberValue}}}, nil, false, api.InvalidCursor},
		{"q=loom&sort=tag", exec.Hit{Key: "7", Sort: []exec.SortValue{{}, {}}}, nil, false, api.InvalidCursor},
		{"q=loom&sort=score", exec.Hit{Key: "7", Sort: []exec.SortValue{{}}}, stats, false, api.InvalidCursor},
	} {
		b, _, prob := bind(t, sch, tt.params, Options{})
		if prob != nil {
			t.Fatalf("%s: %v", tt.params, prob)
		}
		last := exec.AfterHit(&tt.hit)
		text, ok := b.Page.Next(last, tt.stats)
		if !ok {
			t.Fatalf("%s: no cursor", tt.params)
		}
		next, _, prob := bind(t, sch, tt.params+"&after="+text, Options{LocalStats: tt.local})
		if tt.want != "" {
			if prob == nil || prob.Code != tt.want {
				t.Errorf("%s: %v, want %s", tt.params, prob, tt.want)
			}
			continue
		}
		if prob != nil {
			t.Errorf("%s: %v", tt.params, prob)
			continue
		}
		if d := gocmp.Diff(Page{Digest: b.Page.Digest, After: last, Stats: tt.stats}, next.Page); d != "" {
			t.Errorf("%s: %s", tt.params, d)
		}
		if _, _, prob := bind(t, sch, "q=another&"+strings.TrimPrefix(tt.params, "q=loom")+"&after="+text, Options{LocalStats: tt.local}); prob == nil || prob.Code != api.CursorMismatch {
			t.Errorf("%s: the cursor for another search: %v", tt.params, prob)
		}
	}
	b, _, prob := bind(t, sch, "sort=tag", Options{})
	if prob != nil {
		t.Fatal(prob)
	}
	if text, ok := b.Page.Next(&exec.After{Key: "1", Values: []exec.SortValue{{Kind: exec.TextValue, Text: strings.Repeat("a", 1<<20)}}}, nil); ok {
		t.Errorf("a cursor of %d characters", len(text))
	}
}

func TestAppendHit(t *testing.T) {
	sch := books(t)
	b, _, prob := bind(t, sch, "q=loom&sort=tag,year,born,price,score,id", Options{})
	if prob != nil {
		t.Fatal(prob)
	}
	number := func(n uint64) exec.SortValue { return exec.SortValue{Kind: exec.NumberValue, Number: n} }
	hits := b.AppendHit(nil, Shown{ID: "1", Score: 2, Source: []byte(`{}`), Votes: &Votes{VectorRank: 3}, Sort: []exec.SortValue{
		{Kind: exec.TextValue, Text: `"`},
		number(schema.EncodeI64(-7)), number(schema.EncodeI64(0)), number(schema.EncodeF64(0.5)),
		{Kind: exec.ScoreValue, Score: 2},
		{Kind: exec.TextValue, Text: "1"},
	}})
	hits = b.AppendHit(hits, Shown{ID: "2", Score: 1, Highlight: []byte(`{"a":[]}`), Explain: []byte(`{"b":1}`), Sort: make([]exec.SortValue, 6)})
	for _, want := range []string{
		`"sort":["\"",-7,"1970-01-01T00:00:00Z",0.5,2,"1"]`, `"sort":[null,null,null,null,null,null]`, `"vector_rank":3`, `},{`, `{"a":[]}`, `{"b":1}`,
	} {
		if !strings.Contains(string(hits), want) {
			t.Errorf("no %s in %s", want, hits)
		}
	}
}

func TestFloor(t *testing.T) {
	reply := &api.SearchReply{Coverage: api.Coverage{DocsCovered: 3, DocsTotal: 4}}
	if prob := Floor(reply, 0.75); prob != nil {
		t.Error(prob)
	}
	if prob := Floor(reply, 0.76); prob == nil || prob.Code != api.Incomplete || !strings.Contains(string(prob.Extra), `"docs_covered":3`) {
		t.Errorf("%+v", prob)
	}
}

// Where the size of what is missing is not known, it may be all but what is covered.
func TestFloorWhereTheSizeOfAShardIsNotKnown(t *testing.T) {
	for _, c := range []struct {
		cover  api.Coverage
		least  float64
		enough bool
	}{
		{api.Coverage{Shards: 0.5, DocsCovered: 4, DocsTotal: 4, AtLeast: true}, 0.5, true},
		{api.Coverage{Shards: 0.5, DocsCovered: 4, DocsTotal: 4, AtLeast: true}, 0.51, false},
		{api.Coverage{Shards: 0.75, DocsCovered: 2, DocsTotal: 4, AtLeast: true}, 0.51, false},
		{api.Coverage{Shards: 0.5, DocsCovered: 4, DocsTotal: 4}, 1, true},
		{api.Coverage{Shards: 0.5, AtLeast: true}, 0.01, false},
	} {
		if prob := Floor(&api.SearchReply{Coverage: c.cover}, c.least); (prob == nil) != c.enough {
			t.Errorf("%+v held against %v: %v", c.cover, c.least, prob)
		}
	}
}

func TestCheckScores(t *testing.T) {
	if prob := CheckScores([]exec.Hit{{Score: 1}, {Score: -1}}); prob != nil {
		t.Error(prob)
	}
	for _, s := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
		if prob := CheckScores([]exec.Hit{{Score: 1}, {Score: float32(s)}}); prob == nil || prob.Code != api.ScoreOverflow {
			t.Errorf("%v: %v", s, prob)
		}
	}
}

func TestNotes(t *testing.T) {
	var n Notes
	n.AddIdle(nil)
	n.AddIdle([]string{"pool"})
	n.AddIdle([]string{"knn_k", "pool"})
	n.Add("a")
	n.Add("a")
	if want := (Notes{"pool has no effect without knn", "knn_k, pool have no effect without knn", "a"}); !slices.Equal(n, want) {
		t.Errorf("%q", n)
	}
}

func TestFragments(t *testing.T) {
	var n Notes
	got := AppendFragments(nil, []highlight.Field{
		{Name: "none", Truncated: true}, {Name: "a", Truncated: true, Fragments: []highlight.Fragment{{Text: "<em>x</em>"}, {Text: `"`}}}, {Name: "b", Fragments: []highlight.Fragment{{Text: "y"}}},
	}, &n)
	if want := `{"a":["<em>x</em>","\""],"b":["y"]}`; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !slices.Equal(n, Notes{NoteTruncated}) {
		t.Errorf("%q", n)
	}
}

func TestAggregations(t *testing.T) {
	sch := books(t)
	req := &api.SearchRequest{Facets: []string{"tag"}}
	var err error
	if req.Aggs, err = agg.Parse("n:stats(year)"); err != nil {
		t.Fatal(err)
	}
	facets, aggs, err := BindAggregations(req, sch, agg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := 0
	for _, a := range []*Aggregations{facets, aggs} {
		asked := false
		out, err := a.Print(a.Plan.NewState().Finish(), Printing{Most: 1 << 20, Before: before, Room: func(answers, besides int64) error {
			asked = true
			if answers < int64(before) || besides < 0 {
				t.Errorf("%s: room for %d and %d", a.Param, answers, besides)
			}
			return nil
		}})
		if err != nil || !asked || !strings.HasPrefix(string(out), "{") {
			t.Errorf("%s: %s, %v, asked: %v", a.Param, out, err, asked)
		}
		_, err = a.Print(a.Plan.NewState().Finish(), Printing{Most: 1, Before: before, Room: func(int64, int64) error { return nil }})
		if prob, ok := errors.AsType[*api.Problem](err); !ok || prob.Code != api.ReplyTooLarge || prob.Field != a.Param {
			t.Errorf("%s in 1 byte: %v", a.Param, err)
		}
		before += len(out)
	}
	for _, req := range []*api.SearchRequest{{Facets: []string{"zz"}, Aggs: req.Aggs}, {Facets: []string{"title"}}} {
		_, _, err := BindAggregations(req, sch, agg.Options{})
		if prob, ok := errors.AsType[*api.Problem](err); !ok || prob.Field != req.Facets[0] || !strings.HasPrefix(prob.Detail, "facets: ") {
			t.Errorf("%v: %v", req.Facets, err)
		}
	}
}

// TestFuseEqualsTheNaiveWay compares with the arithmetic written down once more, for documents of few scores, so that ties are many.
func TestFuseEqualsTheNaiveWay(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 500 {
		fusion := api.Fusion(r.IntN(2))
		weights := [2]float32{float32(r.IntN(4)) / 3, float32(r.IntN(4)) / 3}
		var lists [2][]Ranked[int]
		for b := range lists {
			for _, d := range r.Perm(20)[:r.IntN(20)] {
				lists[b] = append(lists[b], Ranked[int]{Doc: d, ID: fmt.Sprintf("d%02d", 19-d), Score: float32(r.IntN(6)) / 2})
			}
			slices.SortFunc(lists[b], func(x, y Ranked[int]) int { return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(x.ID, y.ID)) })
		}
		got, err := Fuse(fusion, weights, lists[0], lists[1])
		if err != nil {
			t.Fatal(err)
		}
		want := map[int]*Fused[int]{}
		for b, list := range lists {
			for i, h := range list {
				part := float32(weights[b] * (1 / float32(RankConstant+i+1)))
				if fusion == api.Weighted {
					part = weights[b]
					if most, least := list[0].Score, list[len(list)-1].Score; most > least {
						part = weights[b] * (h.Score - least)
						part *= 1 / (most - least)
					}
				}
				f := want[h.Doc]
				if f == nil {
					f = &Fused[int]{Ranked: Ranked[int]{Doc: h.Doc, ID: h.ID}}
					want[h.Doc] = f
				}
				f.Score += part
				if b == LexicalBranch {
					f.LexicalRank, f.LexicalScore, f.LexicalPart = uint32(i+1), h.Score, part
				} else {
					f.VectorRank, f.VectorScore, f.VectorPart = uint32(i+1), h.Score, part
				}
			}
		}
		if len(got) != len(want) {
			t.Fatalf("round %d: %d documents, want %d", round, len(got), len(want))
		}
		for i, g := range got {
			if w := want[g.Doc]; w == nil || *w != g {
				t.Fatalf("round %d: %+v, want %+v", round, g, w)
			}
			if i > 0 && (got[i-1].Score < g.Score || got[i-1].Score == g.Score && got[i-1].ID >= g.ID) {
				t.Fatalf("round %d: %+v stands before %+v", round, got[i-1], g)
			}
		}
		offset, limit := r.IntN(25), r.IntN(25)
		page := Window(got, offset, limit)
		for i := range page {
			if page[i] != got[offset+i] {
				t.Fatalf("round %d: %d of the window at %d", round, i, offset)
			}
		}
		if len(page) != max(0, min(limit, len(got)-offset)) {
			t.Fatalf("round %d: a window of %d at %d of %d has %d", round, limit, offset, len(got), len(page))
		}
	}
}

func TestFuseRefuses(t *testing.T) {
	list := func(scores ...float32) (out []Ranked[string]) {
		for i, s := range scores {
			out = append(out, Ranked[string]{Doc: fmt.Sprint(i), ID: fmt.Sprint(i), Score: s})
		}
		return out
	}
	for _, tt := range []struct {
		weights         [2]float32
		lexical, vector []Ranked[string]
		code            api.Code
		field           string
	}{
		{[2]float32{1, 1}, list(float32(math.Inf(1))), nil, api.ScoreOverflow, "q"},
		{[2]float32{1, 1}, list(1), list(float32(math.NaN())), api.ScoreOverflow, "q"},
		{[2]float32{-1, 1}, list(1), list(1), api.InvalidParameter, "weights"},
		{[2]float32{math.MaxFloat32, math.MaxFloat32}, list(1), list(1), api.InvalidParameter, "weights"},
	} {
		_, err := Fuse(api.Weighted, tt.weights, tt.lexical, tt.vector)
		if prob, ok := errors.AsType[*api.Problem](err); !ok || prob.Code != tt.code || prob.Field != tt.field {
			t.Errorf("%v: %v, want %s", tt.weights, err, tt.code)
		}
	}
}
