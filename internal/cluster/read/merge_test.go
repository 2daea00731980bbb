package read

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

func TestSumsAreNumbers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	mod := new(big.Int).Lsh(big.NewInt(1), 128)
	for range 1000 {
		var a, b leaf.Sum
		for i := range a {
			a[i], b[i] = byte(rnd.IntN(256)), byte(255*rnd.IntN(2))
		}
		want := new(big.Int).Add(new(big.Int).SetBytes(a[:]), new(big.Int).SetBytes(b[:]))
		want.Mod(want, mod)
		got := addSums(a, b)
		if new(big.Int).SetBytes(got[:]).Cmp(want) != 0 {
			t.Fatalf("%x + %x = %x", a, b, got)
		}
	}
}

// withReplies is a cluster of one member a group, whose replies each change as they come.
func withReplies[R any](t *testing.T, groups int, change func(group int, reply *R)) *Reader {
	t.Helper()
	c := newCluster(t, numbered(60), groups, 1)
	for g, fakes := range c.groups {
		fakes[0].change = func(reply any) {
			if r, ok := reply.(*R); ok {
				change(g, r)
			}
		}
	}
	return c.reader(Options{})
}

func TestWhatOneShardSaysOfAnAnswerHoldsForAll(t *testing.T) {
	r := withReplies(t, 3, func(g int, r *leaf.SearchReply) {
		r.Partial = g == 1
		r.Notes = []string{"both", fmt.Sprint("note ", g)}
		r.Approximate = []string{leaf.ApproximatePrefix, [3]string{leaf.ApproximateLocal, leaf.ApproximateTime, leaf.ApproximateLocal}[g]}
		if g > 0 {
			r.Plan = fmt.Appendf(nil, `{"of":%d}`, g)
		}
	})
	got, err := r.Search(t.Context(), &leaf.SearchRequest{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Partial || string(got.Plan) != `{"of":1}` {
		t.Errorf("%+v", got)
	}
	if want := []string{"both", "note 0", "note 1", "note 2"}; !slices.Equal(got.Notes, want) {
		t.Errorf("notes %q", got.Notes)
	}
	if want := []string{leaf.ApproximatePrefix, leaf.ApproximateLocal, leaf.ApproximateTime}; !slices.Equal(got.Approximate, want) {
		t.Errorf("approximate %q", got.Approximate)
	}
}

func TestTotalsThatAreLowerBounds(t *testing.T) {
	c := newCluster(t, numbered(60), 3, 1)
	r := c.reader(Options{})
	for _, tt := range []struct {
		floor uint64
		want  string
	}{{60, exec.Exactly}, {1, exec.AtLeast}, {uint64(len(c.groups[0][0].docs)), ""}} {
		got, err := r.Search(t.Context(), &leaf.SearchRequest{Total: exec.TotalAtLeast, TotalFloor: tt.floor})
		if err != nil {
			t.Fatal(err)
		}
		lower := slices.Contains(got.Approximate, leaf.ApproximateTotal)
		switch got.TotalRelation {
		case exec.Exactly:
			if got.Total != 60 || lower {
				t.Errorf("floor %d: %d exactly, %v", tt.floor, got.Total, got.Approximate)
			}
		case exec.AtLeast:
			if got.Total < tt.floor || got.Total > 60 || !lower {
				t.Errorf("floor %d: %d or more, %v", tt.floor, got.Total, got.Approximate)
			}
		}
		if tt.want != "" && got.TotalRelation != tt.want {
			t.Errorf("floor %d: %s", tt.floor, got.TotalRelation)
		}
	}
}

func TestStatisticsOfASearch(t *testing.T) {
	given := &score.Stats{Docs: 1000}
	for _, tt := range []struct {
		name   string
		groups int
		given  *score.Stats
		want   uint64 // documents of the statistics; 0: none
	}{
		{"given", 2, given, 1000},
		{"of one shard", 1, nil, 60},
		{"of two shards", 2, nil, 0},
	} {
		r := newCluster(t, numbered(60), tt.groups, 1).reader(Options{})
		got, err := r.Search(t.Context(), &leaf.SearchRequest{KeepStats: true, Stats: tt.given})
		if err != nil {
			t.Fatal(err)
		}
		if got.Stats == nil && tt.want != 0 || got.Stats != nil && got.Stats.Docs != tt.want {
			t.Errorf("%s: %+v", tt.name, got.Stats)
		}
	}
	unscored := withReplies(t, 2, func(_ int, r *leaf.SearchReply) { r.Stats = nil })
	if got, err := unscored.Search(t.Context(), &leaf.SearchRequest{KeepStats: true, Stats: given}); err != nil || got.Stats != nil {
		t.Errorf("nothing was scored: %+v, %v", got, err)
	}
	one := withReplies(t, 2, func(g int, r *leaf.SearchReply) {
		if g == 1 {
			r.LocalStats = nil
		}
	})
	if got, err := one.Search(t.Context(), &leaf.SearchRequest{LocalStats: true}); err != nil || got.LocalStats != nil {
		t.Errorf("one has none: %+v, %v", got, err)
	}
	holed := withReplies(t, 2, func(g int, r *leaf.SearchReply) {
		r.Below = &leaf.Below{Shards: api.Shards{Total: 2, OK: 2 - g, Failed: g}}
	})
	if got, err := holed.Search(t.Context(), &leaf.SearchRequest{LocalStats: true}); err != nil || got.LocalStats != nil {
		t.Errorf("a hole below: %+v, %v", got, err)
	}
	many := withReplies(t, 2, func(g int, r *leaf.SearchReply) {
		for i := range leaf.MaxLocalStats/2 + 1 {
			r.LocalStats.DF[score.Term{Field: fmt.Sprint(g), Text: fmt.Sprint(i)}] = 1
		}
	})
	if got, err := many.Search(t.Context(), &leaf.SearchRequest{LocalStats: true}); err != nil || got.LocalStats != nil {
		t.Errorf("too many terms: %+v, %v", got, err)
	}
	c := newCluster(t, numbered(60), 2, 1)
	c.groups[1][0].kill()
	if got, err := c.reader(Options{}).Search(t.Context(), &leaf.SearchRequest{LocalStats: true}); err != nil || got.LocalStats != nil {
		t.Errorf("a hole: %+v, %v", got, err)
	}
}

// A group that gives less of a list than was asked for hides what others have behind it.
func TestListsOfSumsThatAreCut(t *testing.T) {
	c := newCluster(t, numbered(60), 3, 1)
	c.groups[1][0].change = func(reply any) {
		if r, ok := reply.(*leaf.SumsReply); ok && len(r.IDs) > 3 {
			r.IDs, r.Sums, r.Next = r.IDs[:3], r.Sums[:3], r.IDs[2]
		}
	}
	r := c.reader(Options{})
	var got []string
	req := &leaf.SumsRequest{Range: &leaf.HashRange{To: math.MaxUint32}, Limit: 10}
	for {
		page, err := r.Sums(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.IDs) > 10 || len(page.IDs) == 0 {
			t.Fatalf("%d ids", len(page.IDs))
		}
		got = append(got, page.IDs...)
		if page.Next == "" {
			break
		}
		req.After = page.Next
	}
	if !slices.Equal(got, manyIDs) {
		t.Errorf("%q", got)
	}
	// Of two checksums for one id that of the owner holds.
	d := numbered(60)[7]
	own := c.src.State().Owner(d.id).Ordinal
	old := d
	old.num++
	for g := range c.groups {
		if g != own {
			c.groups[g][0].docs[d.id] = old
		}
	}
	page, err := r.Sums(t.Context(), &leaf.SumsRequest{Range: &leaf.HashRange{To: math.MaxUint32}, Limit: 1, After: "d006"})
	if err != nil || page.IDs[0] != d.id || page.Sums[0] != d.sum() {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestRepliesThatDoNotFitTheRequest(t *testing.T) {
	ctx := t.Context()
	short := withReplies(t, 2, func(g int, r *leaf.FetchReply) {
		if g == 0 {
			r.Docs = r.Docs[1:]
		}
	})
	got, err := short.Fetch(ctx, &leaf.FetchRequest{IDs: manyIDs})
	if err != nil || addresses(got.Below) != "g0m0 failed, g1m0 answered" {
		t.Errorf("fetch: %+v, %v", got, err)
	}
	for name, err := range map[string]error{
		"sums": second(withReplies(t, 2, func(_ int, r *leaf.SumsReply) { r.Sums = r.Sums[1:] }).Sums(ctx, &leaf.SumsRequest{IDs: manyIDs})),
		"list of sums": second(withReplies(t, 2, func(_ int, r *leaf.SumsReply) { slices.Reverse(r.IDs) }).
			Sums(ctx, &leaf.SumsRequest{Range: &leaf.HashRange{To: math.MaxUint32}, Limit: 20})),
		"a hole below": second(withReplies(t, 2, func(g int, r *leaf.HasReply) {
			r.Below = &leaf.Below{Shards: api.Shards{Total: 2, OK: 2 - g, Failed: g}}
		}).Has(ctx, &leaf.HasRequest{IDs: manyIDs})),
		"digest": second(withReplies(t, 2, func(_ int, r *leaf.DigestReply) { r.Sums = r.Sums[1:] }).Digest(ctx, &leaf.DigestRequest{Depth: 3})),
	} {
		if !hasCode(err, api.GroupUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAggregationsThatDoNotMerge(t *testing.T) {
	ctx := t.Context()
	specs, err := agg.Parse("s:stats(num)")
	if err != nil {
		t.Fatal(err)
	}
	types := withReplies(t, 2, func(g int, r *leaf.AggregateReply) {
		if g == 1 {
			r.Values[0].Type = schema.Text
		}
	})
	_, err = types.Aggregate(ctx, &leaf.AggregateRequest{Specs: specs, Values: []string{"num"}})
	if !hasCode(err, api.InvalidField) {
		t.Errorf("two types: %v", err)
	}
	many := withReplies(t, 2, func(_ int, r *leaf.AggregateReply) { r.Values[0].Numbers = make([]uint64, leaf.MaxRawCount/2+1) })
	_, err = many.Aggregate(ctx, &leaf.AggregateRequest{Specs: specs, Values: []string{"num"}})
	if !hasCode(err, api.AggregationLimit) {
		t.Errorf("too many values: %v", err)
	}
	texts := &schema.Schema{Name: "i", Fields: []schema.Field{{Name: "num", Type: schema.F64, Fast: true}}}
	other := withReplies(t, 2, func(g int, r *leaf.AggregateReply) {
		if g == 1 {
			plan, err := agg.Bind(agg.Unplaced(specs), texts, agg.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			r.State = plan.NewState()
		}
	})
	_, err = other.Aggregate(ctx, &leaf.AggregateRequest{Specs: specs})
	if p, ok := err.(*api.Problem); !ok || p.HTTPStatus() != 400 || !strings.Contains(p.Detail, "in another") {
		t.Errorf("states of two types: %v", err)
	}
}

func TestDescriptionsOfAnIndex(t *testing.T) {
	const head = "index i { field id: text<raw> [indexed, stored, fast, primary] "
	sdl := []string{head + "field a: text [indexed, stored] }", head + "field a: text [indexed, stored] field b: i64 [fast] }", head + "field c: u64 [fast] }"}
	r := withReplies(t, 3, func(g int, r *leaf.InfoReply) {
		r.Index.Schema, r.Index.Dynamic = sdl[g], g == 2
	})
	got, err := r.Info(t.Context(), &leaf.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := schema.ParseSDL(head+"field a: text [indexed, stored] field b: i64 [fast] field c: u64 [fast] }", nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(api.IndexInfo{Name: "i", Docs: 60, Segments: 6, Bytes: 600, Schema: want.SDL(), Dynamic: true, State: "open"}, got.Index); d != "" {
		t.Errorf("−want +got\n%s", d)
	}
	conflict := withReplies(t, 2, func(g int, r *leaf.InfoReply) {
		r.Index.Schema = head + [2]string{"field a: text [indexed, stored] }", "field a: i64 [fast] }"}[g]
		if g == 1 {
			r.Index.State = "opening"
		}
	})
	if got, err = conflict.Info(t.Context(), &leaf.InfoRequest{}); err != nil {
		t.Fatal(err)
	}
	if got.Index.State != "opening" || !strings.Contains(got.Index.Reason, "schemas of the shards differ") {
		t.Errorf("%+v", got.Index)
	}
	broken := withReplies(t, 2, func(g int, r *leaf.IndexesReply) {
		if g == 1 {
			r.Indexes[0].State, r.Indexes[0].Reason, r.Indexes[0].Schema = "unavailable", "damaged", ""
			r.Indexes = append(r.Indexes, api.IndexInfo{Name: "another", Docs: 1, State: "open"})
		}
	})
	list, err := broken.Indexes(t.Context(), &leaf.IndexesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Indexes) != 2 || list.Indexes[0].Name != "another" || list.Indexes[1].State != "unavailable" || list.Indexes[1].Reason != "damaged" || list.Indexes[1].Docs != 60 {
		t.Errorf("%+v", list.Indexes)
	}
	if list.Indexes[1].Schema == "" {
		t.Error("the schema of the shard that is open is lost")
	}
}
