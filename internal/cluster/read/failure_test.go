package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
	"github.com/weft-search/weft/internal/serve/replica"
	"github.com/weft-search/weft/internal/shard/exec"
)

func search(ctx context.Context, r *Reader) (*leaf.SearchReply, error) {
	return r.Search(ctx, &leaf.SearchRequest{Index: "i", Limit: 5})
}

// calls are all calls of a Reader about an index, by name.
var calls = map[string]func(ctx context.Context, r *Reader) (*leaf.Meta, error){
	"Info": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.InfoReply, error) { return r.Info(ctx, &leaf.InfoRequest{Index: "i"}) }, func(r *leaf.InfoReply) *leaf.Meta { return &r.Meta })
	},
	"Docs": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.DocsReply, error) { return r.Docs(ctx, &leaf.DocsRequest{Index: "i"}) }, opDocs.meta)
	},
	"Search": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.SearchReply, error) { return search(ctx, r) }, opSearch.meta)
	},
	"Stats": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.StatsReply, error) { return r.Stats(ctx, &leaf.StatsRequest{Index: "i"}) }, opStats.meta)
	},
	"Aggregate": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.AggregateReply, error) {
			return r.Aggregate(ctx, &leaf.AggregateRequest{Index: "i", Values: []string{"num"}})
		}, opAggregate.meta)
	},
	"KNN": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.KNNReply, error) {
			return r.KNN(ctx, &leaf.KNNRequest{Index: "i", KNN: api.KNN{K: 3}})
		}, opKNN.meta)
	},
	"Fetch": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.FetchReply, error) {
			return r.Fetch(ctx, &leaf.FetchRequest{Index: "i", IDs: manyIDs, Show: leaf.Show{Source: true}})
		}, opFetch.meta)
	},
	"Has": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.HasReply, error) { return r.Has(ctx, &leaf.HasRequest{Index: "i", IDs: manyIDs}) }, opHas.meta)
	},
	"Sums": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.SumsReply, error) { return r.Sums(ctx, &leaf.SumsRequest{Index: "i", IDs: manyIDs}) }, opSums.meta)
	},
	"Digest": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.DigestReply, error) { return r.Digest(ctx, &leaf.DigestRequest{Index: "i", Depth: 2}) }, opDigest.meta)
	},
	"IDs": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.IDsReply, error) {
			return r.IDs(ctx, &leaf.IDsRequest{Index: "i"}, func([]string) error { return nil })
		}, func(r *leaf.IDsReply) *leaf.Meta { return &r.Meta })
	},
	"Export": func(ctx context.Context, r *Reader) (*leaf.Meta, error) {
		return metaOf(func() (*leaf.ExportReply, error) {
			return r.Export(ctx, &leaf.ExportRequest{Index: "i", IDs: manyIDs}, func(leaf.ExportedDoc) error { return nil })
		}, func(r *leaf.ExportReply) *leaf.Meta { return &r.Meta })
	},
}

// whole are the calls that a hole makes fail.
var whole = []string{"Has", "Sums", "Digest", "IDs", "Export"}

var manyIDs = func() (ids []string) {
	for _, d := range numbered(60) {
		ids = append(ids, d.id)
	}
	return ids
}()

func metaOf[R any](call func() (*R, error), meta func(*R) *leaf.Meta) (*leaf.Meta, error) {
	r, err := call()
	if err != nil {
		if r != nil {
			return nil, fmt.Errorf("an error and a reply: %w", err)
		}
		return nil, err
	}
	return meta(r), nil
}

func TestAHoleIsAccountedFor(t *testing.T) {
	docs := numbered(60)
	c := newCluster(t, docs, 3, 2)
	r := c.reader(Options{Order: replica.Preferred})
	all := "g0m0 answered, g1m0 answered, g2m0 answered"
	if _, err := calls["Docs"](t.Context(), r); err != nil { // calls by id learn no numbers
		t.Fatal(err)
	}
	for name, call := range calls {
		m, err := call(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := addresses(m.Below); got != all || m.Below.DocsCovered != 60 || m.Below.DocsTotal != 60 || m.Below.Shards.OK != 3 {
			t.Errorf("%s: all live: %s, %+v", name, got, m.Below)
		}
		var sum int64
		for _, s := range m.Timings {
			sum += s.Micros
		}
		if len(m.Timings) < 3 || sum != m.Micros() || m.Snapshot.Version != 9 && name != "Indexes" {
			t.Errorf("%s: timings %v, snapshot %+v", name, m.Timings, m.Snapshot)
		}
	}
	lost := uint64(len(c.groups[1][0].docs))
	for _, f := range c.groups[1] {
		f.kill()
	}
	for name, call := range calls {
		m, err := call(t.Context(), r)
		if slices.Contains(whole, name) {
			p, ok := errors.AsType[*api.Problem](err)
			if !ok || p.Code != api.GroupUnavailable || p.HTTPStatus() != 503 {
				t.Errorf("%s: with a hole: %v", name, err)
				continue
			}
			u, ok := errors.AsType[*UncoveredError](err)
			if !ok || !slices.Equal(u.Below.Shards.FailedAddresses, []string{"g1m0", "g1m1"}) || u.Errs[1] == nil || u.Errs[0] != nil {
				t.Errorf("%s: with a hole: %v", name, err)
			}
			if text := string(p.AppendJSON(nil)); !strings.Contains(text, `"failed_addresses":["g1m0","g1m1"]`) || !strings.Contains(text, `"complete":false`) {
				t.Errorf("%s: the problem says %s", name, text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: with a hole: %v", name, err)
			continue
		}
		b := m.Below
		if got := addresses(b); got != "g0m0 answered, g1m0|g1m1 unavailable, g2m0 answered" || b.Shards.Total != 3 || b.Shards.OK != 2 || b.Shards.Failed != 1 {
			t.Errorf("%s: with a hole: %s, %+v", name, got, b.Shards)
		}
		if !slices.Equal(b.Shards.FailedAddresses, []string{"g1m0", "g1m1"}) || b.DocsTotal != 60 || b.DocsCovered != 60-lost {
			t.Errorf("%s: with a hole: %+v", name, b)
		}
	}
	got, err := r.Fetch(t.Context(), &leaf.FetchRequest{Index: "i", IDs: manyIDs, Show: leaf.Show{Source: true}})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range got.Docs {
		if own := c.src.State().Owner(manyIDs[i]).Ordinal == 1; d.Missing != own || (d.Source == nil) != own {
			t.Errorf("%s is %+v, of the lost group: %t", manyIDs[i], d, own)
		}
	}
	for _, fakes := range c.groups {
		for _, f := range fakes {
			f.kill()
		}
	}
	for name, call := range calls {
		_, err := call(t.Context(), r)
		if !hasCode(err, api.GroupUnavailable) {
			t.Errorf("%s: with nobody: %v", name, err)
		}
	}
	if _, err := r.Ping(t.Context()); !hasCode(err, api.GroupUnavailable) {
		t.Errorf("ping: %v", err)
	}
}

func TestOtherMembersAnswerForOneThatFails(t *testing.T) {
	for name, call := range calls {
		c := newCluster(t, numbered(60), 2, 3)
		r := c.reader(Options{Order: replica.Preferred})
		c.groups[0][0].kill()
		c.groups[0][1].fail(func(context.Context, string) error { return api.NewProblem(api.ShuttingDown, "") })
		m, err := call(t.Context(), r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := addresses(m.Below); got != "g0m2 answered, g1m0 answered" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestWhichProblemIsReturned(t *testing.T) {
	unreachable := &leaf.TransportError{Cause: errors.New("refused")}
	problem := func(code api.Code) error { return api.NewProblem(code, string(code)) }
	for _, c := range []struct {
		name string
		errs [3]error // of the groups; nil answers
		want api.Code
	}{
		{"a bad request", [3]error{problem(api.InvalidQuery), problem(api.InvalidQuery), problem(api.InvalidQuery)}, api.InvalidQuery},
		{"a request that one refuses", [3]error{nil, problem(api.InvalidQuery), nil}, api.InvalidQuery},
		{"a request that one refuses, with a hole", [3]error{unreachable, nil, problem(api.UnknownField)}, api.UnknownField},
		{"no index", [3]error{problem(api.IndexNotFound), problem(api.IndexNotFound), problem(api.IndexNotFound)}, api.IndexNotFound},
		{"no index as far as is known", [3]error{problem(api.IndexNotFound), unreachable, problem(api.IndexNotFound)}, api.GroupUnavailable},
		{"an index on one", [3]error{problem(api.IndexNotFound), nil, problem(api.IndexNotFound)}, ""},
		{"full", [3]error{problem(api.TooManySearches), problem(api.TooManySearches), problem(api.TooManySearches)}, api.TooManySearches},
		{"full for two reasons", [3]error{problem(api.RequestMemoryFull), problem(api.TooManySearches), problem(api.TooManySearches)}, api.RequestMemoryFull},
		{"an index that cannot be opened", [3]error{problem(api.IndexUnavailable), problem(api.IndexUnavailable), problem(api.IndexUnavailable)}, api.IndexUnavailable},
		{"several reasons", [3]error{problem(api.IndexUnavailable), unreachable, problem(api.TooManySearches)}, api.GroupUnavailable},
		{"some full", [3]error{nil, problem(api.TooManySearches), nil}, ""},
		{"a caller that left a member", [3]error{nil, context.Canceled, nil}, ""},
		{"a member whose caller has gone", [3]error{nil, problem(api.CallerGone), nil}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := newCluster(t, numbered(30), 3, 1)
			for i, err := range c.errs {
				if err != nil {
					cl.groups[i][0].fail(func(context.Context, string) error { return err })
				}
			}
			_, err := search(t.Context(), cl.reader(Options{}))
			if c.want == "" {
				if err != nil {
					t.Errorf("%v", err)
				}
				return
			}
			if p, ok := err.(*api.Problem); !ok || p.Code != c.want { // as it is, for callers that do not look for a cause
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestAMemberThatMissedAnIndex(t *testing.T) {
	for name, call := range calls {
		c := newCluster(t, numbered(60), 2, 2)
		r := c.reader(Options{Order: replica.Preferred})
		c.groups[0][0].absent = true
		m, err := call(t.Context(), r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := addresses(m.Below); got != "g0m1 answered, g1m0 answered" {
			t.Errorf("%s: one member: %s", name, got)
		}
		// When no member of the group has it, the group holds nothing.
		c.groups[0][1].absent = true
		own := uint64(len(c.groups[1][0].docs))
		if m, err = call(t.Context(), r); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Below.Shards.OK != 2 || name != "Indexes" && m.Below.DocsTotal > 60 || name == "Search" && m.Below.DocsTotal != own {
			t.Errorf("%s: no member: %+v", name, m.Below)
		}
		c.groups[1][0].absent, c.groups[1][1].absent = true, true
		if _, err = call(t.Context(), r); !hasCode(err, api.IndexNotFound) {
			t.Errorf("%s: no group: %v", name, err)
		}
	}
	// Of a call for few ids only their owners are asked: whether there is such an index the others know.
	c := newCluster(t, numbered(60), 3, 1)
	r := c.reader(Options{})
	own := c.src.State().Owner("d001").Ordinal
	c.groups[own][0].absent = true
	got, err := r.Has(t.Context(), &leaf.HasRequest{Index: "i", IDs: []string{"d001"}})
	if err != nil || !slices.Equal(got.Missing, []string{"d001"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Has(t.Context(), &leaf.HasRequest{Index: "i"}); err != nil || len(got.Missing) != 0 {
		t.Errorf("no ids: %+v, %v", got, err)
	}
	for _, fakes := range c.groups {
		fakes[0].absent = true
	}
	if _, err := r.Has(t.Context(), &leaf.HasRequest{Index: "i"}); !hasCode(err, api.IndexNotFound) {
		t.Errorf("no ids of no index: %v", err)
	}
}

// hangs makes a member one that does not answer before its caller gives up.
func hangs(ctx context.Context, _ string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestSlowMembersAreHedged(t *testing.T) {
	for name, call := range calls {
		if name == "IDs" || name == "Export" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, numbered(60), 3, 2)
			policy := hedge.NewPolicy(hedge.PolicyOptions{InitialDelay: 20 * time.Millisecond, Burst: 100})
			r := c.reader(Options{Order: replica.Preferred, Policy: policy})
			c.groups[1][0].fail(hangs)
			began := time.Now()
			m, err := call(t.Context(), r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if took := time.Since(began); took != 20*time.Millisecond {
				t.Errorf("%s: it took %v", name, took)
			}
			if got := addresses(m.Below); got != "g0m0 answered, g1m1 answered, g2m0 answered" {
				t.Errorf("%s: %s", name, got)
			}
			if r.Hedging().HedgesWon != 1 {
				t.Errorf("%s: %+v", name, r.Hedging())
			}
		})
	}
}

func TestPartOfAnAnswerComesInTime(t *testing.T) {
	for name, call := range calls {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, numbered(60), 3, 1)
			r := c.reader(Options{})
			c.groups[2][0].fail(hangs)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			m, err := call(ctx, r)
			if took := time.Since(began); took != time.Second-DefaultReserve {
				t.Errorf("%s: it took %v", name, took)
			}
			if slices.Contains(whole, name) {
				if _, ok := errors.AsType[*UncoveredError](err); !ok || !errors.Is(err, context.DeadlineExceeded) || leaf.OutcomeOf(err) != serve.TimedOut {
					t.Errorf("%s: %v", name, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := addresses(m.Below); got != "g0m0 answered, g1m0 answered, g2m0 timed_out" {
				t.Errorf("%s: %s", name, got)
			}
			if m.Micros() != (time.Second - DefaultReserve).Microseconds() {
				t.Errorf("%s: the stages %v add up to %d µs", name, m.Timings, m.Micros())
			}
		})
	}
}

func TestNobodyInTime(t *testing.T) {
	for name, call := range calls {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, numbered(60), 2, 2)
			r := c.reader(Options{})
			for _, fakes := range c.groups {
				for _, f := range fakes {
					f.fail(hangs)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 80*time.Millisecond)
			defer cancel()
			_, err := call(ctx, r)
			if _, ok := errors.AsType[*UncoveredError](err); !ok || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestCallersThatLeaveAndCallsThatAreClosed(t *testing.T) {
	why := errors.New("gone")
	for name, call := range calls {
		for _, close := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, numbered(60), 2, 2)
				r := c.reader(Options{})
				for _, fakes := range c.groups {
					fakes[0].fail(hangs)
					fakes[1].fail(hangs)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				ended := make(chan error)
				go func() {
					_, err := call(ctx, r)
					ended <- err
				}()
				synctest.Wait()
				want := why
				if close {
					want = leaf.ErrClosed
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				} else {
					cancel(why)
				}
				if err := <-ended; err != want {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
				if _, err := call(ctx, r); err != want {
					t.Errorf("%s: afterwards: %v, want %v", name, err, want)
				}
			})
		}
	}
}

// A shard map that members refuse is read again, and the call made again by it: that of a cluster that has become larger.
func TestMapsThatAreRefused(t *testing.T) {
	for name, call := range calls {
		if name == "Info" {
			continue // it does not say what map it goes by
		}
		docs := numbered(60)
		c := newCluster(t, docs, 3, 1)
		now := c.m.Clone()
		now.Epoch = 5
		old := c.m.Clone()
		old.Groups, old.Placed, old.Epoch = old.Groups[:2], 2, 1
		c.use(old)
		stale := c.src.State()
		for _, fakes := range c.groups {
			fakes[0].epoch = 5
		}
		c.src.stale = func(_ context.Context, seen *members.State) (*members.State, error) {
			if seen != stale {
				t.Errorf("%s: not the state of the call", name)
			}
			return c.stateOf(now), nil
		}
		r := c.reader(Options{})
		m, err := call(t.Context(), r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := addresses(m.Below); got != "g0m0 answered, g1m0 answered, g2m0 answered" || r.Stale() != 1 || c.src.asked.Load() != 1 {
			t.Errorf("%s: %s after %d", name, got, r.Stale())
		}

		// Maps that are refused again and again are not read for ever, and the refusal is not passed on: it is not of the caller's map.
		c.src.stale = func(_ context.Context, seen *members.State) (*members.State, error) {
			older := now.Clone()
			older.Epoch = seen.Epoch() + 1
			for _, fakes := range c.groups {
				fakes[0].epoch = older.Epoch + 1
			}
			return c.stateOf(older), nil
		}
		if _, err := call(t.Context(), r); !hasCode(err, api.NotReady) || r.Stale() != 1+maxStale {
			t.Errorf("%s: %v after %d", name, err, r.Stale())
		}
		c.src.stale = nil
		if _, err := call(t.Context(), r); !hasCode(err, api.NotReady) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none source
	r, err := New(&none, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := search(t.Context(), r); !hasCode(err, api.NotReady) {
		t.Errorf("no map: %v", err)
	}
}

func TestWhatIsKnownOfMembersOutlivesAMap(t *testing.T) {
	c := newCluster(t, numbered(60), 2, 2)
	r := c.reader(Options{Order: replica.Preferred})
	if r.Replicas() != nil || r.Hedging() != (hedge.Stats{}) {
		t.Error("something is known before the first call")
	}
	c.groups[0][0].kill()
	for range 5 {
		if _, err := search(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	faults := r.Replicas()[0][0].Faults
	if faults == 0 || r.Replicas()[0][0].Probation == 0 {
		t.Errorf("%+v", r.Replicas()[0])
	}
	m, err := c.m.RemoveMember("g0m1")
	if err != nil {
		t.Fatal(err)
	}
	c.use(m)
	if m, err = m.AddMember(0, "g0m1"); err != nil {
		t.Fatal(err)
	}
	c.use(m)
	if _, err := search(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := r.Replicas()[0]; got[0].Faults != faults || got[0].Calls != faults || got[1].Name != "g0m1" {
		t.Errorf("%+v", got)
	}
}

func TestAccountsOfATreeAddUp(t *testing.T) {
	docs := numbered(90)
	bottom := newCluster(t, nil, 3, 2)
	middle := newCluster(t, nil, 2, 1)
	top := newCluster(t, nil, 2, 1)
	readers := map[*cluster]*Reader{}
	under := func(above *cluster, below *cluster) {
		r := below.reader(Options{Order: replica.Preferred})
		readers[below] = r
		above.others["below"] = coordinator{Reader: r}
		above.m.Groups[0].Members[0] = "below"
		above.use(above.m)
	}
	under(middle, bottom)
	under(top, middle)
	r := top.reader(Options{})
	owner := func(id string) []*fake {
		if top.src.State().Owner(id).Ordinal == 1 {
			return top.groups[1]
		}
		if middle.src.State().Owner(id).Ordinal == 1 {
			return middle.groups[1]
		}
		return bottom.groups[bottom.src.State().Owner(id).Ordinal]
	}
	for _, d := range docs {
		for _, f := range owner(d.id) {
			f.docs[d.id] = d
		}
	}
	check := func(when, want string, failed []string, covered uint64) {
		t.Helper()
		got, err := search(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		b := got.Below
		if addresses(b) != want || !slices.Equal(b.Shards.FailedAddresses, failed) {
			t.Errorf("%s: %s, failed %v", when, addresses(b), b.Shards.FailedAddresses)
		}
		if b.Shards.Total != 5 || b.Shards.OK+b.Shards.Failed != 5 || b.DocsTotal != 90 || b.DocsCovered != covered {
			t.Errorf("%s: %+v", when, b)
		}
	}
	check("all live", "g0m0 answered, g1m0 answered, g2m0 answered, g1m0 answered, g1m0 answered", nil, 90)
	lost := uint64(len(bottom.groups[1][0].docs))
	bottom.groups[1][0].kill()
	bottom.groups[1][1].kill()
	check("a group at the bottom", "g0m0 answered, g1m0|g1m1 unavailable, g2m0 answered, g1m0 answered, g1m0 answered", []string{"g1m0", "g1m1"}, 90-lost)
	// A coordinator that is gone is missing with all that stands below it.
	if err := readers[bottom].Close(); err != nil {
		t.Fatal(err)
	}
	for _, g := range bottom.groups {
		lost += uint64(len(g[0].docs))
	}
	lost -= uint64(len(bottom.groups[1][0].docs))
	check("a coordinator", "below failed, below failed, below failed, g1m0 answered, g1m0 answered", []string{"below"}, 90-lost)
}

func TestCopiesOutOfPlaceAreGivenOnce(t *testing.T) {
	for _, limit := range []int{3, 20, 60} { // few and many are told apart in two ways
		c := newCluster(t, numbered(80), 3, 1)
		want := newFake("one", numbered(80)...)
		// A stale copy of the best document stands above, below and beside it.
		best, err := search(t.Context(), c.reader(Options{}))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			id := best.Hits[i].ID
			own := c.src.State().Owner(id).Ordinal
			d := c.groups[own][0].docs[id]
			d.score -= float32(i)
			c.groups[(own+1)%3][0].docs[id] = d
		}
		r := c.reader(Options{})
		got, err := r.Search(t.Context(), &leaf.SearchRequest{Index: "i", Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		one, err := want.Search(t.Context(), &leaf.SearchRequest{Index: "i", Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(one.Hits, got.Hits); d != "" {
			t.Errorf("limit %d: −want +got\n%s", limit, d)
		}
		if got.Total != 83-r.Duplicates() || r.Duplicates() == 0 {
			t.Errorf("limit %d: total %d, %d duplicates", limit, got.Total, r.Duplicates())
		}
		a, err := listIDs(t.Context(), want, &leaf.IDsRequest{Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		b, err := listIDs(t.Context(), coordinator{Reader: r}, &leaf.IDsRequest{Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(a, b); d != "" {
			t.Errorf("limit %d: ids: −want +got\n%s", limit, d)
		}
	}
}

func TestAListThatIsNotInOrderIsAHole(t *testing.T) {
	c := newCluster(t, numbered(60), 2, 1)
	c.groups[0][0].change = func(reply any) {
		if r, ok := reply.(*leaf.SearchReply); ok {
			slices.Reverse(r.Hits)
		}
	}
	r := c.reader(Options{})
	got, err := search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if addresses(got.Below) != "g0m0 failed, g1m0 answered" || got.Total != uint64(len(c.groups[1][0].docs)) || len(got.Hits) != 5 {
		t.Errorf("%s: %+v", addresses(got.Below), got)
	}
	c.groups[1][0].change = c.groups[0][0].change
	if _, err := search(t.Context(), r); !hasCode(err, api.GroupUnavailable) {
		t.Errorf("%v", err)
	}
}

// A stream that breaks goes on at another member, where it was; what has been given is not given again.
func TestStreamsGoOnElsewhere(t *testing.T) {
	for _, stale := range []bool{false, true} {
		docs := numbered(100)
		c := newCluster(t, docs, 3, 2)
		one := newFake("one", docs...)
		r := c.reader(Options{Order: replica.Preferred, Policy: hedge.NewPolicy(hedge.PolicyOptions{RetryBurst: 1000})})
		var mu sync.Mutex
		broken := map[string]int{}
		breaks := func(addr string) func(ctx context.Context, call string) error {
			return func(_ context.Context, call string) error {
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(call, " of ") {
					if broken[addr+call]++; broken[addr+call] == 2 {
						if stale {
							return api.NewProblem(api.StaleMap, "")
						}
						return errors.New("the connection broke")
					}
				}
				return nil
			}
		}
		c.groups[0][0].fail(breaks("g0m0"))
		c.groups[2][0].fail(breaks("g2m0"))
		c.src.stale = func(_ context.Context, seen *members.State) (*members.State, error) {
			m := c.m.Clone()
			m.Epoch = seen.Epoch() + 1
			return c.stateOf(m), nil
		}
		var all coordinator
		all.Reader = r
		for _, limit := range []int{0, 50} {
			clear(broken)
			same(t, fmt.Sprintf("ids, limit %d", limit), one, all, func(m leaf.Member) (*[]string, error) {
				return listIDs(t.Context(), m, &leaf.IDsRequest{Limit: limit})
			})
		}
		ids := append(slices.Clone(manyIDs), "none", "d001", "d001")
		same(t, "export", one, all, func(m leaf.Member) (*[]string, error) {
			var out []string
			rep, err := m.Export(t.Context(), &leaf.ExportRequest{IDs: ids}, func(d leaf.ExportedDoc) error {
				out = append(out, d.ID)
				return nil
			})
			if err != nil {
				return nil, err
			}
			out = append(out, rep.Missing...)
			return &out, nil
		})
		for _, what := range []string{"g0m0page of IDs", "g0m0document of Export", "g2m0document of Export"} {
			if broken[what] < 2 {
				t.Errorf("%s did not break", what)
			}
		}
	}
}

func TestErrorsOfPageAndEachComeBack(t *testing.T) {
	c := newCluster(t, numbered(100), 3, 1)
	r := c.reader(Options{})
	full := errors.New("full")
	given := 0
	_, err := r.IDs(t.Context(), &leaf.IDsRequest{}, func(ids []string) error { given += len(ids); return full })
	if err != full || given == 0 {
		t.Errorf("%v after %d", err, given)
	}
	given = 0
	_, err = r.Export(t.Context(), &leaf.ExportRequest{IDs: manyIDs}, func(leaf.ExportedDoc) error {
		if given++; given == 3 {
			return full
		}
		return nil
	})
	if err != full || given != 3 {
		t.Errorf("%v after %d", err, given)
	}
	// Also when the caller has left meanwhile.
	ctx, cancel := context.WithCancel(t.Context())
	_, err = r.IDs(ctx, &leaf.IDsRequest{}, func([]string) error { cancel(); return full })
	if err != full {
		t.Errorf("%v", err)
	}
}

func TestRequestsBeyondLimits(t *testing.T) {
	c := newCluster(t, nil, 1, 1)
	r := c.reader(Options{})
	long := make([]string, leaf.MaxIDs+1)
	ctx := t.Context()
	for name, err := range map[string]error{
		"has":         second(r.Has(ctx, &leaf.HasRequest{IDs: long})),
		"fetch":       second(r.Fetch(ctx, &leaf.FetchRequest{IDs: long})),
		"sums":        second(r.Sums(ctx, &leaf.SumsRequest{IDs: long})),
		"export":      second(r.Export(ctx, &leaf.ExportRequest{IDs: long}, nil)),
		"ids":         second(r.IDs(ctx, &leaf.IDsRequest{Limit: -1}, nil)),
		"digest":      second(r.Digest(ctx, &leaf.DigestRequest{Depth: leaf.MaxDepth + 1})),
		"no sums":     second(r.Sums(ctx, &leaf.SumsRequest{Range: &leaf.HashRange{}})),
		"many sums":   second(r.Sums(ctx, &leaf.SumsRequest{Range: &leaf.HashRange{}, Limit: leaf.MaxIDs + 1})),
		"less than 0": second(r.Digest(ctx, &leaf.DigestRequest{Depth: -1})),
	} {
		if !hasCode(err, api.InvalidParameter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := c.groups[0][0].calls.Load(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
	for _, o := range []Options{{Order: 9}, {Budget: serve.Budget{Share: 2}}} {
		if _, err := New(c.src, o); err == nil {
			t.Errorf("%+v is fine", o)
		}
	}
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no source is fine")
	}
}

func second[R any](_ *R, err error) error { return err }

// A query that brought a member down is not sent to all of them again.
func TestACanaryGoesFirst(t *testing.T) {
	c := newCluster(t, numbered(30), 3, 1)
	r := c.reader(Options{Canary: serve.NewCanary(serve.CanaryOptions{})})
	for _, fakes := range c.groups {
		fakes[0].fail(func(_ context.Context, call string) error {
			return &leaf.TransportError{Call: call, Crashed: true, Cause: errors.New("connection lost")}
		})
	}
	if _, err := search(t.Context(), r); !hasCode(err, api.GroupUnavailable) {
		t.Errorf("%v", err)
	}
	before := int64(0)
	for _, fakes := range c.groups {
		before += fakes[0].calls.Load()
	}
	if _, err := search(t.Context(), r); !hasCode(err, api.Internal) {
		t.Errorf("%v", err)
	}
	after := int64(0)
	for _, fakes := range c.groups {
		after += fakes[0].calls.Load()
	}
	if after != before+1 {
		t.Errorf("%d members were asked again", after-before)
	}
	c.groups[0][0].fail(nil)
	if _, err := r.Search(t.Context(), &leaf.SearchRequest{Index: "other", Limit: 1, Sort: []exec.SortKey{{By: exec.ByID}}}); err != nil {
		t.Errorf("another query: %v", err)
	}
}

func TestHealth(t *testing.T) {
	c := newCluster(t, numbered(30), 2, 2)
	r := c.reader(Options{Node: "self"})
	c.groups[1][0].kill()
	if p, err := r.Ping(t.Context()); err != nil || p.Node != "self" {
		t.Errorf("%+v, %v", p, err)
	}
	got, err := r.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range got {
		out = append(out, fmt.Sprint(m.Address, " ", m.Group, " ", m.Node, " ", m.Err == nil))
	}
	want := []string{"g0m0 0 node of g0m0 true", "g0m1 0 node of g0m1 true", "g1m0 1  false", "g1m1 1 node of g1m1 true"}
	if !slices.Equal(out, want) {
		t.Errorf("%q", out)
	}
}

// A member that is there and says nothing does not hold up the answer that there is no such index.
func TestASilentMemberDoesNotHoldUpAnIndexThatIsNotThere(t *testing.T) {
	for name, call := range calls {
		if name == "IDs" || name == "Export" {
			continue // a stream asks one member after the other
		}
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, numbered(60), 3, 3)
			r := c.reader(Options{Order: replica.Preferred})
			for _, fakes := range c.groups {
				for _, f := range fakes {
					f.absent = true
				}
				fakes[1].fail(hangs)
			}
			began := time.Now()
			if _, err := call(t.Context(), r); !hasCode(err, api.IndexNotFound) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took > elsewhereTime {
				t.Errorf("%s: it took %v", name, took)
			}
		})
	}
}

// Where an index is there, a group of which one member lacks it and the other says nothing is missing, and not empty.
func TestAGroupWhoseOtherMemberIsSilentIsAHole(t *testing.T) {
	for name, call := range calls {
		if name == "IDs" || name == "Export" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, numbered(60), 2, 2)
			r := c.reader(Options{Order: replica.Preferred})
			c.groups[1][0].absent = true
			c.groups[1][1].fail(hangs)
			began := time.Now()
			m, err := call(t.Context(), r)
			if took := time.Since(began); took > elsewhereTime {
				t.Errorf("%s: it took %v", name, took)
			}
			if slices.Contains(whole, name) {
				if u, ok := errors.AsType[*UncoveredError](err); !ok || u.Below.Shards.Failed != 1 {
					t.Errorf("%s: %v", name, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m.Below.Shards.OK != 1 || m.Below.Shards.Failed != 1 || !slices.Equal(m.Below.Shards.FailedAddresses, []string{"g1m0", "g1m1"}) {
				t.Errorf("%s: %+v", name, m.Below.Shards)
			}
		})
	}
	// Of a call for few ids the others were not asked, and are before it is said that there is nothing.
	c := newCluster(t, numbered(60), 2, 2)
	r := c.reader(Options{Order: replica.Preferred})
	own := c.src.State().Owner("d001").Ordinal
	c.groups[own][0].absent = true
	c.groups[own][1].kill()
	if got, err := r.Fetch(t.Context(), &leaf.FetchRequest{Index: "i", IDs: []string{"d001"}}); !hasCode(err, api.GroupUnavailable) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A caller that sets no deadline gets what there is, or an error, in the end.
func TestCallsWithoutADeadlineEnd(t *testing.T) {
	for name, call := range calls {
		if name == "IDs" || name == "Export" {
			continue // they take as long as they are read
		}
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, numbered(60), 3, 1)
			r := c.reader(Options{})
			c.groups[2][0].fail(func(ctx context.Context, call string) error {
				if call == "Ping" { // it is there, and takes its time
					return nil
				}
				return hangs(ctx, call)
			})
			began := time.Now()
			m, err := call(t.Context(), r)
			if took := time.Since(began); took != DefaultCallTimeout {
				t.Errorf("%s: it took %v", name, took)
			}
			if slices.Contains(whole, name) {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := addresses(m.Below); got != "g0m0 answered, g1m0 answered, g2m0 timed_out" {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
}

// A group all of whose members may have lost their documents is a hole, however readily they answer: what they say is not whole, and nobody
// could tell what is missing. One whose other member has not is read from that one, and is a hole while that is away.
func TestAGroupThatMayHaveLostItsDocumentsIsAHole(t *testing.T) {
	for _, size := range []int{1, 2} {
		c := newCluster(t, numbered(60), 3, size)
		var mu sync.Mutex
		out := map[string]bool{}
		set := func(addrs ...string) {
			mu.Lock()
			defer mu.Unlock()
			clear(out)
			for _, a := range addrs {
				out[a] = true
			}
		}
		r := c.reader(Options{Order: replica.Preferred, Standing: func(addr string) replica.Standing {
			mu.Lock()
			defer mu.Unlock()
			if out[addr] {
				return replica.Out
			}
			return replica.Good
		}})
		if _, err := calls["Docs"](t.Context(), r); err != nil {
			t.Fatal(err)
		}
		all := c.groups[1]
		holed := func(what string) {
			t.Helper()
			for name, call := range calls {
				m, err := call(t.Context(), r)
				if slices.Contains(whole, name) {
					if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.GroupUnavailable {
						t.Errorf("%d members, %s: %s: %v", size, what, name, err)
					}
					continue
				}
				if err != nil {
					t.Errorf("%d members, %s: %s: %v", size, what, name, err)
					continue
				}
				if b := m.Below; b.Shards.OK != 2 || b.Shards.Failed != 1 || len(b.Shards.FailedAddresses) != size || b.DocsCovered >= b.DocsTotal && name != "Indexes" {
					t.Errorf("%d members, %s: %s: %+v", size, what, name, b)
				}
			}
		}
		if size > 1 {
			set(all[0].addr)
			for name, call := range calls {
				if m, err := call(t.Context(), r); err != nil || m.Below.Shards.Failed > 0 {
					t.Errorf("one of two: %s: %+v, %v", name, m, err)
				}
			}
			all[1].fail(func(context.Context, string) error {
				return &leaf.TransportError{Address: all[1].addr, Cause: errors.New("away")}
			})
			holed("one of two, and the other is away")
			all[1].fail(nil)
		}
		var addrs []string
		for _, f := range all {
			addrs = append(addrs, f.addr)
		}
		set(addrs...)
		holed("all")
		if _, err := r.Ping(t.Context()); err != nil {
			t.Errorf("%d members: ping: %v", size, err)
		}
		set()
		for name, call := range calls {
			if m, err := call(t.Context(), r); err != nil || m.Below.Shards.Failed > 0 {
				t.Errorf("%d members, accepted: %s: %+v, %v", size, name, m, err)
			}
		}
	}
}

// A member whose disk was replaced a moment ago says of every index that it does not have it. So whoever says that is asked who it is, before it
// is taken for a shard without documents; calls and streams alike, and also where it is the only member of its group.
func TestWhoSaysThatThereIsNoIndexIsAskedWhoItIs(t *testing.T) {
	for _, size := range []int{1, 2} {
		c := newCluster(t, numbered(60), 3, size)
		var known atomic.Bool
		r := c.reader(Options{Order: replica.Preferred, Vouch: func(_ context.Context, m *members.Member, _ string, instance uint64) error {
			if strings.HasPrefix(m.Addr, "g1") && instance == 0 && !known.Load() {
				return &leaf.TransportError{Address: m.Addr, Call: "Placed", Cause: errors.New("it is another one")}
			}
			return nil
		}})
		for _, f := range c.groups[1] {
			f.fail(func(context.Context, string) error { return api.NewProblem(api.IndexNotFound, "there is none") })
		}
		for _, is := range []bool{false, true} {
			known.Store(is)
			for name, call := range calls {
				m, err := call(t.Context(), r)
				switch {
				case is:
					if err != nil || m.Below.Shards.Failed > 0 {
						t.Errorf("%d members, it is the one of before: %s: %+v, %v", size, name, m, err)
					}
				case slices.Contains(whole, name):
					if !hasCode(err, api.GroupUnavailable) {
						t.Errorf("%d members: %s: %v", size, name, err)
					}
				case err != nil || m.Below.Shards.Failed != 1:
					t.Errorf("%d members: %s: %+v, %v", size, name, m, err)
				}
			}
		}
	}
}

// A member whose disk was replaced a moment ago may have been given some documents since. What it streams is not taken for all that there is: it is asked
// who it is before, and another one gives everything from the beginning.
func TestNothingIsStreamedFromWhoHasLostItsDisk(t *testing.T) {
	for _, size := range []int{1, 2} {
		c := newCluster(t, numbered(60), 3, size)
		var lost atomic.Bool
		r := c.reader(Options{Order: replica.Preferred, Vouch: func(_ context.Context, m *members.Member, _ string, instance uint64) error {
			if m.Addr == c.groups[1][0].addr && instance == 0 && lost.Load() {
				return &leaf.TransportError{Address: m.Addr, Call: "Placed", Cause: errors.New("it is another one")}
			}
			return nil
		}})
		for _, name := range []string{"IDs", "Export"} {
			for _, is := range []bool{false, true} {
				lost.Store(is)
				m, err := calls[name](t.Context(), r)
				switch {
				case is && size == 1:
					if !hasCode(err, api.GroupUnavailable) {
						t.Errorf("%s of a shard that has lost its disk: %+v, %v", name, m, err)
					}
				case err != nil || m.Below.Shards.Failed > 0:
					t.Errorf("%d members, lost: %t, %s: %+v, %v", size, is, name, m, err)
				}
			}
		}
	}
}
