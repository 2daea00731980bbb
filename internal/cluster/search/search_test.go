package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/text"
)

const scriptSchema = `index i {
  field id: text<raw> [indexed, stored, fast, primary]
  field t: text [indexed<token_position>, stored]
  field n: u64 [stored, fast]
  field v: dense_vector<2> [indexed<metric: cosine>, stored]
}`

// script is a member that answers as it is told. Every call is noted by its name.
type script struct {
	leaf.Member // what is not told is not called

	t      testing.TB
	mu     sync.Mutex
	calls  []string
	schema string
	fresh  int // schemas that were asked for anew

	search    func(r *leaf.SearchRequest) (*leaf.SearchReply, error)
	stats     func(r *leaf.StatsRequest) (*leaf.StatsReply, error)
	aggregate func(r *leaf.AggregateRequest) (*leaf.AggregateReply, error)
	knn       func(r *leaf.KNNRequest) (*leaf.KNNReply, error)
	fetch     func(r *leaf.FetchRequest) (*leaf.FetchReply, error)
}

func (s *script) note(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

// did returns the calls since the last time, in order of their names where they may be made beside each other.
func (s *script) did() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.calls, " ")
	s.calls = nil
	return out
}

func (s *script) Search(_ context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
	s.note("search")
	return s.search(r)
}

func (s *script) Stats(_ context.Context, r *leaf.StatsRequest) (*leaf.StatsReply, error) {
	s.note("stats")
	return s.stats(r)
}

func (s *script) Aggregate(_ context.Context, r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	s.note("agg")
	return s.aggregate(r)
}

func (s *script) KNN(_ context.Context, r *leaf.KNNRequest) (*leaf.KNNReply, error) {
	s.note("knn")
	return s.knn(r)
}

func (s *script) Fetch(_ context.Context, r *leaf.FetchRequest) (*leaf.FetchReply, error) {
	s.note("fetch")
	return s.fetch(r)
}

// newScript is a cluster of three shards that answers everything with the documents d1 to d5.
func newScript(t testing.TB) *script {
	s := &script{t: t, schema: scriptSchema}
	s.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		reply := &leaf.SearchReply{Meta: leaf.Meta{Below: below(0)}, Docs: 300, Total: 5, TotalRelation: "eq"}
		for i := range min(5, r.Limit) {
			reply.Hits = append(reply.Hits, leaf.Hit{ID: "d" + strconv.Itoa(i+1), Score: float32(5 - i)})
			if r.Show != nil {
				reply.Shown = append(reply.Shown, source(i+1))
			}
		}
		if r.Stats == nil && len(reply.Hits) > 0 {
			reply.Approximate = []string{leaf.ApproximateLocal}
		}
		if r.LocalStats {
			reply.LocalStats = sum(300)
		}
		return reply, nil
	}
	s.stats = func(*leaf.StatsRequest) (*leaf.StatsReply, error) {
		return &leaf.StatsReply{Meta: leaf.Meta{Below: below(0)}, Stats: *sum(300)}, nil
	}
	s.aggregate = func(r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
		plan, err := agg.Bind(r.Specs, s.sch(), agg.Options{})
		if err != nil {
			return nil, bound.AggError("aggs", err)
		}
		return &leaf.AggregateReply{Meta: leaf.Meta{Below: below(0)}, State: plan.NewState(), Docs: 300}, nil
	}
	s.knn = func(r *leaf.KNNRequest) (*leaf.KNNReply, error) {
		reply := &leaf.KNNReply{Meta: leaf.Meta{Below: below(0)}, Docs: 300}
		for i := range min(5, r.KNN.K) {
			reply.Hits = append(reply.Hits, leaf.Neighbour{ID: "d" + strconv.Itoa(i+1), Similarity: 1 / float32(i+1)})
		}
		return reply, nil
	}
	s.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
		reply := &leaf.FetchReply{Meta: leaf.Meta{Below: below(0)}}
		for _, id := range r.IDs {
			n, err := strconv.Atoi(id[1:])
			if err != nil {
				t.Error(err)
			}
			reply.Docs = append(reply.Docs, source(n))
		}
		return reply, nil
	}
	return s
}

func (s *script) sch() *schema.Schema {
	sch, err := schema.ParseSDL(s.schema, text.Check)
	if err != nil {
		s.t.Fatal(err)
	}
	return sch
}

func source(n int) leaf.Shown { return leaf.Shown{Source: fmt.Appendf(nil, `{"n":%d}`, n)} }

// below is the accounting of three shards with 100 documents each, of which so many did not answer.
func below(failed int) *leaf.Below {
	b := &leaf.Below{DocsCovered: uint64(300 - 100*failed), DocsTotal: 300}
	for i := range 3 {
		o := api.ShardOutcome{Shard: i, Address: "s" + strconv.Itoa(i), Outcome: api.Answered, Micros: int64(100 * (i + 1) % 300)}
		if i < failed {
			o.Outcome = api.Unavailable
		}
		b.Shards.Count(o)
	}
	return b
}

// sum are statistics of so many documents.
func sum(docs uint64) *score.Stats {
	return &score.Stats{Docs: docs, Fields: map[string]score.FieldStats{"t": {SumLen: 2 * docs, Docs: docs}}, DF: map[score.Term]uint64{{Field: "t", Text: "x"}: docs / 2}}
}

func (s *script) searcher(o Options) *Searcher {
	s.t.Helper()
	o.Member = s
	last := s.sch()
	o.Schemas = func(_ context.Context, index string, fresh bool) (*schema.Schema, error) {
		if index != "i" {
			return nil, api.NewProblem(api.IndexNotFound, "there is no such index")
		}
		if fresh {
			s.fresh++
			last = s.sch()
		}
		return last, nil
	}
	out, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// ask searches with a JSON body without its braces.
func ask(t testing.TB, s *Searcher, body string) (*api.SearchReply, *api.Problem) {
	t.Helper()
	return askIn(t.Context(), t, s, body)
}

func askIn(ctx context.Context, t testing.TB, s *Searcher, body string) (*api.SearchReply, *api.Problem) {
	t.Helper()
	req, prob := api.ParseSearchBody([]byte(`{"index":"i",`+body+`}`), "", api.SearchLimits{Hits: 10_000, Timeout: time.Minute})
	if prob != nil {
		t.Fatal(prob)
	}
	reply, prob := s.Search(ctx, req, nil)
	if prob == nil {
		var took int64
		for _, l := range reply.Timings {
			if took += l.Micros; l.Micros < 0 {
				t.Errorf("%s: timings %v", body, reply.Timings)
			}
		}
		if !json.Valid(reply.AppendJSON(nil)) {
			t.Errorf("%s: %s", body, reply.AppendJSON(nil))
		}
		if sh := reply.Shards; sh.Total != sh.OK+sh.Failed || sh.Total != len(sh.Outcomes) {
			t.Errorf("%s: %+v", body, sh)
		}
	}
	return reply, prob
}

// must is ask for a search that has to be answered.
func must(t testing.TB, s *Searcher, body string) *api.SearchReply {
	t.Helper()
	reply, prob := ask(t, s, body)
	if prob != nil {
		t.Fatalf("%s: %+v", body, prob)
	}
	return reply
}

func TestWhichCallsASearchMakes(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	for _, c := range []struct{ body, calls string }{
		{`"q":"x"`, "search"},
		{`"q":"x","fields":[]`, "search"},
		{`"q":"x","limit":50`, "search"},
		{`"q":"x","limit":51`, "search fetch"},
		{`"q":"x","offset":1`, "search fetch"},
		{`"q":"x","offset":1,"fields":[]`, "search"},
		{`"q":"x","offset":5`, "search"}, // nothing to be shown
		{`"q":"x","limit":0`, "search"},
		{`"q":"x","highlight":"t"`, "search fetch"},
		{`"q":"x","explain":true,"fields":[]`, "search fetch"},
		{`"q":"x","dfs":true`, "stats search"},
		{`"q":"x","dfs":true`, "search"}, // with what is remembered
		{`"q":"x","dfs":true,"fields":["n"],"limit":3,"filter":"n:>1"`, "search"},
		{`"q":"X","dfs":true`, "stats search"}, // another query string
		{`"q":"*","dfs":true`, "search"},
		{`"q":"n:>1","dfs":true`, "search"},
		{`"q":"x","dfs":true,"limit":0`, "search"},
		{`"q":"-x","dfs":true`, "search"},
		{`"q":"-x","dfs":true,"explain":true`, "stats search fetch"},       // the tree shows what does not score as well
		{`"q":"x","dfs":true,"sort":"n","default_fields":["t"]`, "search"}, // hits show their score
		{`"knn":"v:1,2"`, "knn fetch"},
		{`"knn":"v:1,2","fields":[]`, "knn"},
		{`"q":"x","profile":true`, "stats search"},
	} {
		must(t, s, c.body)
		if got := m.did(); got != c.calls {
			t.Errorf("%s: %s, want %s", c.body, got, c.calls)
		}
	}
	must(t, s, `"q":"y","knn":"v:1,2"`)
	if got := strings.Fields(m.did()); len(got) != 4 || !slices.Contains(got, "stats") || !slices.Contains(got, "knn") || got[3] != "fetch" {
		t.Errorf("a hybrid search: %v", got)
	}
}

// TestStatisticsAreVerified: a search with statistics that are not those of the moment is made again.
func TestStatisticsAreVerified(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	docs := uint64(300) // that the shards have
	first := m.search
	var used []uint64
	m.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		reply, err := first(r)
		if r.Stats != nil {
			used = append(used, r.Stats.Docs)
		}
		if r.LocalStats {
			reply.LocalStats = sum(docs)
		}
		return reply, err
	}
	m.stats = func(*leaf.StatsRequest) (*leaf.StatsReply, error) {
		return &leaf.StatsReply{Meta: leaf.Meta{Below: below(0)}, Stats: *sum(docs)}, nil
	}
	check := func(when, calls string, want []uint64, exact bool) {
		t.Helper()
		reply := must(t, s, `"q":"x","dfs":true`)
		if got := m.did(); got != calls || !slices.Equal(used, want) {
			t.Errorf("%s: %s with %v, want %s with %v", when, got, used, calls, want)
		}
		if reply.DFS != exact || slices.Contains(reply.Approximate, "statistics") == exact || slices.Contains(reply.Notes, NoteStatsMoved) == exact {
			t.Errorf("%s: dfs %t, approximate %v, notes %q", when, reply.DFS, reply.Approximate, reply.Notes)
		}
		used = nil
	}
	check("at first", "stats search", []uint64{300}, true)
	check("again", "search", []uint64{300}, true)
	docs = 400
	check("after a write", "search search", []uint64{300, 400}, true)
	check("after that", "search", []uint64{400}, true)
	still := m.search
	m.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		docs++
		return still(r)
	}
	check("under writes", "search search search", []uint64{400, 401, 402}, false)
	m.search = still
	check("when they have ended", "search", []uint64{403}, true)
	if got, want := s.Counts(), (Counts{Exact: 5, Repeated: 3, Inexact: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestStatisticsWithTooManyTermsAreAskedForTwice: what does not come with the hits is asked for before, and where other copies may have
// answered, once more behind.
func TestStatisticsWithTooManyTermsAreAskedForTwice(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	first := m.search
	at := leaf.Snapshot{Instance: 1, Version: 1}
	m.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		reply, err := first(r)
		reply.LocalStats, reply.Snapshot = nil, at
		return reply, err
	}
	var docs uint64
	many := sum(300)
	for i := range leaf.MaxLocalStats {
		many.DF[score.Term{Field: "t", Text: strconv.Itoa(i)}] = 1
	}
	m.stats = func(*leaf.StatsRequest) (*leaf.StatsReply, error) {
		own := *many
		own.Docs += docs
		return &leaf.StatsReply{Meta: leaf.Meta{Below: below(0), Snapshot: leaf.Snapshot{Instance: 1, Version: 1 + docs}}, Stats: own}, nil
	}
	for _, c := range []struct {
		when, calls string
		instance    uint64
		exact       bool
		grow        uint64
	}{
		{"at first", "stats search stats search", 1, true, 0},
		{"again", "stats search", 1, true, 0},
		{"with other copies", "stats search stats", 2, true, 0},
		{"with other copies, under writes", "stats search stats search stats search stats", 2, false, 1},
	} {
		at.Instance = c.instance
		stats := m.stats
		m.stats = func(r *leaf.StatsRequest) (*leaf.StatsReply, error) {
			docs += c.grow
			return stats(r)
		}
		reply := must(t, s, `"q":"x*","dfs":true`)
		if got := m.did(); got != c.calls || reply.DFS != c.exact {
			t.Errorf("%s: %s, dfs %t", c.when, got, reply.DFS)
		}
		m.stats = stats
	}
}

func TestOneShardNeedsNoOtherStatistics(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{Address: "alone"})
	first := m.search
	m.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		reply, err := first(r)
		reply.Below = nil
		return reply, err
	}
	reply := must(t, s, `"q":"x","dfs":true`) // it is not known yet
	if got := m.did(); got != "stats search" || !reply.DFS {
		t.Errorf("%s, dfs %t", got, reply.DFS)
	}
	reply = must(t, s, `"q":"y","dfs":true`)
	if got := m.did(); got != "search" || !reply.DFS || reply.Approximate != nil {
		t.Errorf("%s, dfs %t, approximate %v", got, reply.DFS, reply.Approximate)
	}
	if reply.Shards.Total != 1 || reply.Shards.Outcomes[0].Address != "alone" || !reply.Coverage.Complete || reply.Coverage.DocsTotal != 300 {
		t.Errorf("%+v, %+v", reply.Shards, reply.Coverage)
	}
	m.search = first // a shard is added
	reply = must(t, s, `"q":"z","dfs":true`)
	if got := m.did(); got != "search stats search" || !reply.DFS || reply.Approximate != nil {
		t.Errorf("with more: %s, dfs %t, approximate %v", got, reply.DFS, reply.Approximate)
	}
}

func lossIn(reply *api.SearchReply, phase string) *api.PhaseLoss {
	for i := range reply.Lost {
		if reply.Lost[i].Phase == phase {
			return &reply.Lost[i]
		}
	}
	return nil
}

func TestStatisticsOfAShardThatIsLost(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	whole := m.search
	holed := func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		reply, err := whole(r)
		reply.Below, reply.LocalStats = below(1), nil
		return reply, err
	}
	m.stats = func(*leaf.StatsRequest) (*leaf.StatsReply, error) {
		return &leaf.StatsReply{Meta: leaf.Meta{Below: below(1)}, Stats: *sum(200)}, nil
	}
	m.search = holed
	reply := must(t, s, `"q":"x","dfs":true`)
	if got := m.did(); got != "stats search" || reply.DFS || !slices.Contains(reply.Approximate, "statistics") || !slices.Contains(reply.Notes, NoteStatsLost) {
		t.Errorf("%s: dfs %t, %v, %q", got, reply.DFS, reply.Approximate, reply.Notes)
	}
	if l := lossIn(reply, "statistics"); l == nil || l.Shards.Failed != 1 || reply.Coverage.Complete || reply.Relation != "gte" {
		t.Errorf("phases %+v, coverage %+v, total %s", reply.Lost, reply.Coverage, reply.Relation)
	}
	if text := string(reply.AppendJSON(nil)); !strings.Contains(text, `"phases":{"statistics":{"ok":2,"failed":1,"failed_addresses":["s0"]}}`) {
		t.Error(text)
	}
	// It is there again when the search is made: then nothing is missing after all.
	m.search = whole
	reply = must(t, s, `"q":"x","dfs":true`)
	if got := m.did(); got != "stats search search" || !reply.DFS || reply.Approximate != nil || len(reply.Notes) != 0 || len(reply.Lost) != 0 || !reply.Coverage.Complete {
		t.Errorf("%s: dfs %t, %v, %q, %+v, %+v", got, reply.DFS, reply.Approximate, reply.Notes, reply.Lost, reply.Coverage)
	}
	// With what was remembered, a shard that is lost only then leaves the sum unverified.
	m.search = holed
	reply = must(t, s, `"q":"x","dfs":true`)
	if got := m.did(); got != "search" || reply.DFS || !slices.Contains(reply.Notes, NoteStatsLost) {
		t.Errorf("%s: dfs %t, %q", got, reply.DFS, reply.Notes)
	}
	// Nobody answers in time for statistics, but for the search.
	m.search = whole
	m.stats = func(*leaf.StatsRequest) (*leaf.StatsReply, error) { return nil, context.DeadlineExceeded }
	reply = must(t, s, `"q":"other","dfs":true`)
	if l := lossIn(reply, "statistics"); l == nil || reply.DFS || reply.Coverage.Complete || !slices.Contains(reply.Approximate, "local") {
		t.Errorf("without statistics: dfs %t, %v, %+v", reply.DFS, reply.Approximate, reply.Lost)
	}
	if _, prob := ask(t, s, `"q":"other","dfs":true,"allow_partial":false`); prob == nil || prob.Code != api.Incomplete {
		t.Errorf("%+v", prob)
	}
}

func TestShardsThatAreLost(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	whole, near := m.search, m.knn
	m.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		reply, err := whole(r)
		reply.Below = below(1)
		return reply, err
	}
	reply := must(t, s, `"q":"x"`)
	want := api.Coverage{Shards: 2.0 / 3, DocsCovered: 200, DocsTotal: 300}
	if reply.Coverage != want || reply.Relation != "gte" || !slices.Equal(reply.Shards.FailedAddresses, []string{"s0"}) || reply.Slowest != 1 {
		t.Errorf("%+v, total %s, %+v, slowest %d", reply.Coverage, reply.Relation, reply.Shards, reply.Slowest)
	}
	if reply := must(t, s, `"q":"x","track_total":"none"`); reply.Relation != "none" {
		t.Errorf("no total: %s", reply.Relation)
	}
	for _, c := range []struct{ body, field string }{
		{`"q":"x","allow_partial":false`, "allow_partial"},
		{`"q":"x","min_coverage":0.7`, "min_coverage"},
		{`"q":"x","allow_partial":true,"min_coverage":0.7`, "min_coverage"},
	} {
		_, prob := ask(t, s, c.body)
		if prob == nil || prob.Code != api.Incomplete || prob.Field != c.field || !strings.Contains(string(prob.Extra), `"failed_addresses":["s0"]`) || !strings.Contains(string(prob.Extra), `"docs_covered":200`) {
			t.Errorf("%s: %+v", c.body, prob)
		}
	}
	must(t, s, `"q":"x","min_coverage":0.6`)
	// Of a hybrid search a shard took part only if it did in both rankings.
	m.knn = func(r *leaf.KNNRequest) (*leaf.KNNReply, error) {
		reply, err := near(r)
		reply.Below = below(2)
		return reply, err
	}
	reply = must(t, s, `"q":"x","knn":"v:1,2"`)
	if reply.Shards.Failed != 2 || reply.Coverage.DocsCovered != 100 || !slices.Equal(reply.Shards.FailedAddresses, []string{"s0", "s1"}) || reply.Relation != "gte" {
		t.Errorf("hybrid: %+v, %+v", reply.Shards, reply.Coverage)
	}
	m.search = func(*leaf.SearchRequest) (*leaf.SearchReply, error) { return nil, errors.New("broken") }
	if _, prob := ask(t, s, `"q":"x","knn":"v:1,2"`); prob == nil || prob.Code != api.Internal {
		t.Errorf("%+v", prob)
	}
	m.search = func(*leaf.SearchRequest) (*leaf.SearchReply, error) {
		return nil, &leaf.TransportError{Cause: errors.New("refused")}
	}
	if _, prob := ask(t, s, `"q":"x"`); prob == nil || prob.Code != api.GroupUnavailable {
		t.Errorf("%+v", prob)
	}
}

func TestShardsThatAreLostWhileAggregating(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	whole := m.aggregate
	m.aggregate = func(r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
		reply, err := whole(r)
		if err == nil {
			reply.Below = below(1)
		}
		return reply, err
	}
	reply := must(t, s, `"q":"x","facets":["n"],"aggs":"s:stats(n)"`)
	if !slices.Equal(reply.AggFailedAddresses, []string{"s0"}) || reply.Shards.Failed != 0 || reply.Coverage.Complete || reply.Facets == nil || reply.Aggs == nil {
		t.Errorf("%v, %+v, %+v", reply.AggFailedAddresses, reply.Shards, reply.Coverage)
	}
	if reply.Relation != "eq" || reply.Coverage.DocsCovered != 300 {
		t.Errorf("the search itself is whole: %+v", reply)
	}
	for _, body := range []string{`"facets":["n"],"allow_partial":false`, `"facets":["n"],"min_coverage":0.9`} {
		if _, prob := ask(t, s, body); prob == nil || prob.Code != api.Incomplete || !strings.Contains(string(prob.Extra), `"agg_failed_addresses":["s0"]`) {
			t.Errorf("%s: %+v", body, prob)
		}
	}
	m.aggregate = func(*leaf.AggregateRequest) (*leaf.AggregateReply, error) {
		return nil, api.NewProblem(api.GroupUnavailable, "nobody")
	}
	reply = must(t, s, `"q":"x","facets":["n"]`)
	if len(reply.AggFailedAddresses) != 3 || reply.Coverage.Complete || reply.Facets != nil || !slices.Contains(reply.Notes, NoteAggsLost) {
		t.Errorf("%v, %+v, %q", reply.AggFailedAddresses, reply.Coverage, reply.Notes)
	}
	if _, prob := ask(t, s, `"facets":["n"],"allow_partial":false`); prob == nil || prob.Code != api.GroupUnavailable {
		t.Errorf("%+v", prob)
	}
	m.aggregate = func(*leaf.AggregateRequest) (*leaf.AggregateReply, error) { return nil, context.DeadlineExceeded }
	if _, prob := ask(t, s, `"facets":["n"]`); prob == nil || prob.Code != api.Timeout {
		t.Errorf("%+v", prob)
	}
	reply = must(t, s, `"facets":["n"],"allow_partial":true`)
	if reply.Facets != nil || reply.Coverage.Complete || !slices.Contains(reply.Notes, bound.NoteNoAggs) {
		t.Errorf("%s, %+v, %q", reply.Facets, reply.Coverage, reply.Notes)
	}
}

func TestAggregationsOfNeighboursAreOverTheirIDs(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	whole := m.aggregate
	var ids []string
	var queries []query.Node
	m.aggregate = func(r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
		if len(r.Filters) != 1 {
			t.Errorf("filters %v", r.Filters)
		}
		terms := r.Filters[0].(*query.Terms)
		if terms.Field != "id" || query.Check(terms, query.Limits{}) != nil {
			t.Errorf("filter of %d values of %s", len(terms.Values), terms.Field)
		}
		ids, queries = append(ids, terms.Values...), append(queries, r.Query)
		return whole(r)
	}
	must(t, s, `"knn":"v:1,2","facets":["n"],"filter":"n:>1"`)
	if !slices.Equal(ids, []string{"d1", "d2", "d3", "d4", "d5"}) || queries[0] != nil {
		t.Errorf("%v", ids)
	}
	ids, queries = nil, nil
	var want []string
	long := strings.Repeat("x", 500)
	m.knn = func(r *leaf.KNNRequest) (*leaf.KNNReply, error) {
		reply := &leaf.KNNReply{Meta: leaf.Meta{Below: below(0)}, Docs: 300}
		for i := range r.KNN.K {
			reply.Hits = append(reply.Hits, leaf.Neighbour{ID: long + strconv.Itoa(i), Similarity: 1 / float32(i+1)})
			want = append(want, long+strconv.Itoa(i))
		}
		return reply, nil
	}
	must(t, s, `"knn":"v:1,2","knn_k":9000,"limit":0,"aggs":"s:stats(n)"`)
	if !slices.Equal(ids, want) || len(queries) < 3 {
		t.Errorf("%d ids in %d calls", len(ids), len(queries))
	}
	m.knn = func(*leaf.KNNRequest) (*leaf.KNNReply, error) {
		return &leaf.KNNReply{Meta: leaf.Meta{Below: below(0)}}, nil
	}
	m.did()
	reply := must(t, s, `"knn":"v:1,2","facets":["n"],"aggs":"s:stats(n)"`)
	if got := m.did(); got != "knn" || string(reply.Facets) != `{"n":[]}` || string(reply.Aggs) != `{"s":{"count":0,"sum":null,"min":null,"max":null,"avg":null}}` {
		t.Errorf("of nothing: %s: %s %s", got, reply.Facets, reply.Aggs)
	}
}

func TestDocumentsThatAreGoneWhenTheyAreToBeShown(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	whole := m.fetch
	lostShards := 0
	m.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
		reply, err := whole(r)
		reply.Docs[1] = leaf.Shown{Missing: true}
		reply.Below = below(lostShards)
		return reply, err
	}
	reply := must(t, s, `"q":"x","offset":1,"limit":2`)
	if got := string(reply.Hits); got != `{"id":"d2","score":4,"source":{"n":2}}` || len(reply.Notes) != 1 || !strings.Contains(reply.Notes[0], "1 of the hits was deleted") || reply.Next == "" {
		t.Errorf("%s, %q", got, reply.Notes)
	}
	if !reply.Coverage.Complete {
		t.Errorf("%+v", reply.Coverage)
	}
	lostShards = 1
	reply = must(t, s, `"q":"x","offset":1,"limit":2`)
	if got := string(reply.Hits); got != `{"id":"d2","score":4,"source":{"n":2}},{"id":"d3","score":3}` || lossIn(reply, "fetch") == nil || reply.Coverage.Complete || !slices.Contains(reply.Notes, NoteNotFetched) {
		t.Errorf("%s, %+v, %q", got, reply.Lost, reply.Notes)
	}
	if _, prob := ask(t, s, `"q":"x","offset":1,"allow_partial":false`); prob == nil || prob.Code != api.Incomplete || !strings.Contains(string(prob.Extra), `"phases":{"fetch"`) {
		t.Errorf("%+v", prob)
	}
	m.fetch = func(*leaf.FetchRequest) (*leaf.FetchReply, error) {
		return nil, api.NewProblem(api.GroupUnavailable, "")
	}
	reply = must(t, s, `"q":"x","offset":1,"limit":1`)
	if got := string(reply.Hits); got != `{"id":"d2","score":4}` || lossIn(reply, "fetch") == nil {
		t.Errorf("%s, %+v", got, reply.Lost)
	}
	m.fetch = func(*leaf.FetchRequest) (*leaf.FetchReply, error) { return nil, context.DeadlineExceeded }
	if _, prob := ask(t, s, `"q":"x","offset":1`); prob == nil || prob.Code != api.Timeout {
		t.Errorf("%+v", prob)
	}
	reply = must(t, s, `"q":"x","offset":1,"allow_partial":true`)
	if loss := lossIn(reply, "fetch"); reply.Coverage.Complete || loss == nil || loss.Shards.Failed != 3 || !slices.Equal(loss.Shards.FailedAddresses, []string{"s0", "s1", "s2"}) {
		t.Errorf("%+v, %+v", reply.Coverage, loss)
	}
}

// Where it is not known whom a call would have gone to, no address is named rather than an empty one.
func TestNoEmptyAddressIsNamed(t *testing.T) {
	m := newScript(t)
	m.search = func(*leaf.SearchRequest) (*leaf.SearchReply, error) { return nil, front.ErrTimeout }
	reply := must(t, m.searcher(Options{}), `"q":"x","allow_partial":true`)
	if reply.Shards.Failed != 1 || len(reply.Shards.FailedAddresses) != 0 {
		t.Errorf("%+v", reply.Shards)
	}
}

func TestTimeThatRunsOut(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{Address: "a"})
	m.search = func(*leaf.SearchRequest) (*leaf.SearchReply, error) { return nil, front.ErrTimeout }
	m.knn = func(*leaf.KNNRequest) (*leaf.KNNReply, error) { return nil, api.NewProblem(api.Timeout, "") }
	for _, body := range []string{`"q":"x"`, `"knn":"v:1,2"`, `"q":"x","knn":"v:1,2"`} {
		if _, prob := ask(t, s, body); prob == nil || prob.Code != api.Timeout {
			t.Errorf("%s: %+v", body, prob)
		}
		reply := must(t, s, body+`,"allow_partial":true`)
		if reply.Relation != "gte" || reply.Total != 0 || len(reply.Hits) != 0 || reply.Coverage.Complete || reply.Shards.OK != 0 || reply.Shards.Outcomes[0].Outcome != api.TimedOut || !slices.Contains(reply.Notes, bound.NotePartial) {
			t.Errorf("%s: %s", body, reply.AppendJSON(nil))
		}
		if _, prob := ask(t, s, body+`,"allow_partial":true,"min_coverage":0.1`); prob == nil || prob.Code != api.Incomplete {
			t.Errorf("%s: %+v", body, prob)
		}
	}
	m = newScript(t)
	s = m.searcher(Options{Address: "a"})
	whole := m.search
	m.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		if !r.AllowPartial {
			t.Error("shards are not told that a part will do")
		}
		reply, err := whole(r)
		reply.Partial, reply.TotalRelation, reply.Below = true, "gte", nil
		return reply, err
	}
	reply := must(t, s, `"q":"x","limit":2,"allow_partial":true`)
	want := api.Coverage{DocsTotal: 300}
	if reply.Coverage != want || reply.Next != "" || !slices.Equal(reply.Shards.FailedAddresses, []string{"a"}) || !slices.Equal(reply.Notes, []string{bound.NotePartial}) {
		t.Errorf("%+v, %+v, %q", reply.Coverage, reply.Shards, reply.Notes)
	}
}

func TestASchemaThatIsOlderThanTheIndex(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	if _, prob := ask(t, s, `"q":"new:x"`); prob == nil || prob.Code != api.UnknownField || prob.Position != 0 || !prob.HasPosition && prob.Field != "new" || m.fresh != 1 {
		t.Errorf("%+v after %d", prob, m.fresh)
	}
	m.schema = strings.Replace(scriptSchema, "field n", "field new: text [indexed, stored]\n field n", 1)
	must(t, s, `"q":"new:x"`)
	must(t, s, `"q":"new:x"`)
	if m.fresh != 2 {
		t.Errorf("the schema was asked for %d times", m.fresh)
	}
	// The index was made anew, with another type of a field: only the shards know.
	m.schema = strings.Replace(scriptSchema, "field n: u64", "field n: date", 1)
	whole := m.search
	m.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		if strings.HasPrefix(r.Query.String(), "n:") {
			return nil, api.NewProblem(api.InvalidBound, "no date").On("n")
		}
		return whole(r)
	}
	if _, prob := ask(t, s, `"q":"n:>5"`); prob == nil || prob.Code != api.InvalidBound || m.fresh != 3 {
		t.Errorf("%+v after %d", prob, m.fresh)
	}
	if _, prob := ask(t, s, `"q":"t:>5"`); prob == nil || prob.Code != api.FieldNotFast {
		t.Errorf("%+v", prob)
	}
	if _, prob := s.Search(t.Context(), &api.SearchRequest{Index: "nope"}, nil); prob == nil || prob.Code != api.IndexNotFound {
		t.Errorf("%+v", prob)
	}
}

func TestSourcesThatAreTooLongToComeWithTheHits(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{ReplyBytes: 30, Memory: admit.New(front.GateReplies, 1<<30, 0, 0)})
	whole := m.search
	m.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		if r.Show != nil {
			return nil, bound.LongSources(30)
		}
		return whole(r)
	}
	reply := must(t, s, `"q":"x","limit":4`)
	if got := m.did(); got != "search search fetch" || strings.Count(string(reply.Hits), "source") != 4 {
		t.Errorf("%s: %s", got, reply.Hits)
	}
	if _, prob := ask(t, s, `"q":"x","limit":5`); prob == nil || cmp.Diff(prob, bound.LongSources(30)) != "" {
		t.Errorf("%+v", prob)
	}
}

func TestProblemsOfShardsWithAggregations(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	m.aggregate = func(r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
		for i := range r.Specs {
			if r.Specs[i].Kind == agg.Histogram {
				return nil, bound.AggError("aggs", &agg.SpecError{Code: agg.CodeLimit, Name: r.Specs[i].Name, Field: "n", Limit: 9, Reason: "too many", Position: -1})
			}
			for k := range r.Specs[i].Aggs {
				return nil, bound.AggError("aggs", &agg.SpecError{Code: agg.CodeLimit, Name: r.Specs[i].Name + ">" + r.Specs[i].Aggs[k].Name, Limit: 9, Reason: "too many", Position: -1})
			}
		}
		if strings.HasPrefix(r.Specs[0].Name, facetPrefix) {
			return nil, bound.AggError("aggs", &agg.SpecError{Code: agg.CodeLimit, Name: r.Specs[0].Name, Field: "n", Limit: 9, Reason: "too many", Position: -1})
		}
		return nil, api.NewProblem(api.AggregationLimit, "aggs: too many").On("aggs")
	}
	for _, c := range []struct{ body, field, detail string }{
		{`"facets":["n"]`, "n", `facets: field "n": too many`},
		{`"aggs":"x:stats(n),deep:histogram(n,1)"`, "n", `aggs: aggregation "deep": field "n": too many`},
		{`"facets":["n"],"aggs":"x:stats(n)"`, "n", `facets: field "n": too many`},
		{`"aggs":{"o\"":{"kind":"terms","field":"n","aggs":{"i":{"kind":"stats","field":"n"}}}}`, "aggs", `aggs: aggregation "o\">i": too many`},
		{`"aggs":"x:stats(n)"`, "aggs", "aggs: too many"},
	} {
		_, prob := ask(t, s, c.body)
		if prob == nil || prob.Code != api.AggregationLimit || prob.Field != c.field || prob.Detail != c.detail {
			t.Errorf("%s: %+v", c.body, prob)
		}
	}
}

func TestGet(t *testing.T) {
	m := newScript(t)
	s := m.searcher(Options{})
	if source, prob := s.Get(t.Context(), "i", "d7"); prob != nil || string(source) != `{"n":7}` {
		t.Errorf("%s, %+v", source, prob)
	}
	failed := 0
	m.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
		if !r.Show.Source || r.Show.Fields != nil {
			t.Errorf("%+v", r.Show)
		}
		return &leaf.FetchReply{Meta: leaf.Meta{Below: below(failed)}, Docs: []leaf.Shown{{Missing: true}}}, nil
	}
	if _, prob := s.Get(t.Context(), "i", "d7"); prob == nil || prob.Code != api.DocumentNotFound || prob.Field != "id" {
		t.Errorf("%+v", prob)
	}
	failed = 1
	if _, prob := s.Get(t.Context(), "i", "d7"); prob == nil || prob.Code != api.GroupUnavailable {
		t.Errorf("%+v", prob)
	}
	m.fetch = func(*leaf.FetchRequest) (*leaf.FetchReply, error) { return &leaf.FetchReply{}, nil }
	if _, prob := s.Get(t.Context(), "i", "d7"); prob == nil || prob.Code != api.Internal {
		t.Errorf("%+v", prob)
	}
	m.fetch = func(*leaf.FetchRequest) (*leaf.FetchReply, error) { return nil, leaf.ErrClosed }
	if _, prob := s.Get(t.Context(), "i", "d7"); prob == nil || prob.Code != api.ShuttingDown {
		t.Errorf("%+v", prob)
	}
}

func TestTheLeastHashesAreKept(t *testing.T) {
	var ids []string
	for i := range 500 {
		ids = append(ids, strconv.Itoa(i))
	}
	all := &leastHashes{most: 1000}
	for _, id := range ids {
		all.add(id)
	}
	want := all.sorted()
	for _, most := range []int{0, 1, 7, 100, 499, 500} {
		some := &leastHashes{most: most}
		for i := range ids {
			some.add(ids[(i*7)%500])
		}
		if got := some.sorted(); !slices.Equal(got, want[:most]) {
			t.Errorf("%d: %v, want %v", most, got, want[:most])
		}
	}
}

func TestNewNeedsAMemberAndSchemas(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("made without a member")
	}
	if _, err := New(Options{Member: newScript(t)}); err == nil {
		t.Error("made without schemas")
	}
}

func TestSourcesThatDidNotComeWithTheSearch(t *testing.T) {
	m := newScript(t)
	all, lacking := m.search, []int(nil)
	var asked []int // Show.First of each search
	m.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		reply, err := all(r)
		asked = append(asked, r.Show.First)
		for _, i := range lacking {
			reply.Shown[i].Source = nil
		}
		return reply, err
	}
	var ids []string
	fetch := m.fetch
	m.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
		ids = r.IDs
		return fetch(r)
	}
	s := m.searcher(Options{})
	const whole = `{"id":"d1","score":5,"source":{"n":1}},{"id":"d2","score":4,"source":{"n":2}},{"id":"d3","score":3,"source":{"n":3}}`
	for _, c := range []struct {
		lacking []int
		calls   string
		ids     []string
	}{
		{nil, "search", nil},
		{[]int{1}, "search fetch", []string{"d2"}},
		{[]int{0, 2, 3}, "search fetch", []string{"d1", "d3"}}, // the fourth is not on the page
		{[]int{3}, "search", nil},
	} {
		lacking, ids = c.lacking, nil
		reply := must(t, s, `"q":"x","limit":3`)
		if calls := m.did(); string(reply.Hits) != whole || calls != c.calls || !slices.Equal(ids, c.ids) {
			t.Errorf("without %v: calls %s for %v: %s", c.lacking, calls, ids, reply.Hits)
		}
	}
	if want := []int{0, 2, 2, 2}; !slices.Equal(asked, want) {
		t.Errorf("sources of the first %v, want %v", asked, want)
	}
	// An index that keeps no sources is not asked for them again.
	lacking = []int{0, 1, 2, 3, 4}
	if reply := must(t, s, `"q":"x","limit":5`); m.did() != "search" || strings.Contains(string(reply.Hits), "source") {
		t.Errorf("without sources: %s", reply.Hits)
	}
	// Where what is lacking cannot be read, the rest is shown.
	lacking = []int{1}
	m.fetch = func(*leaf.FetchRequest) (*leaf.FetchReply, error) {
		return nil, &leaf.TransportError{Address: "s1", Call: "Fetch", Cause: errors.New("refused")}
	}
	reply := must(t, s, `"q":"x","limit":3`)
	const part = `{"id":"d1","score":5,"source":{"n":1}},{"id":"d2","score":4},{"id":"d3","score":3,"source":{"n":3}}`
	if string(reply.Hits) != part || reply.Coverage.Complete || !slices.Contains(reply.Notes, NoteNotFetched) {
		t.Errorf("without a shard: %s, %v", reply.Hits, reply.Notes)
	}
}

func TestHowManySourcesAShardBrings(t *testing.T) {
	for _, c := range []struct{ limit, shards, want int }{
		{10, 0, 0},
		{10, 1, 0},
		{10, 2, 7},
		{10, 3, 5},
		{10, 8, 3},
		{10, 1000, 1},
		{1, 3, 1},
		{2, 2, 2},
		{50, 3, 20},
	} {
		if got := brought(c.limit, c.shards); got != c.want {
			t.Errorf("%d hits of %d shards: %d, want %d", c.limit, c.shards, got, c.want)
		}
	}
}
