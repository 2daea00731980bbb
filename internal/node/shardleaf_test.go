package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/shard"
)

// wantProblem checks the code of a problem.
func wantProblem(t testing.TB, what string, err error, code api.Code) *api.Problem {
	t.Helper()
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
		return &api.Problem{}
	}
	return p
}

// TestLeafTimeIsOver lets the time of a call be over at each of its looks at the context: it ends with the cause, or says what of the
// answer is missing, and gives back what it held.
func TestLeafTimeIsOver(t *testing.T) {
	s := newServer(t, Config{})
	bigIndex(t, s)
	n := s.node
	one := &query.Term{Text: "x"}
	calls := map[string]func(c *leafCall, v *view) (partial bool, err error){
		"search": func(c *leafCall, v *view) (bool, error) {
			r, err := c.search(v, &leaf.SearchRequest{Query: one, Filters: []query.Node{&query.Term{Text: "y0"}}, Limit: 10, AllowPartial: v.allowPartial})
			if err == nil && r.Partial != slices.Contains(r.Approximate, leaf.ApproximateTime) {
				t.Errorf("partial %v, approximate %v", r.Partial, r.Approximate)
			}
			return err == nil && r.Partial, err
		},
		"aggregate": func(c *leafCall, v *view) (bool, error) {
			_, err := c.aggregate(v, &leaf.AggregateRequest{Query: one, Values: []string{"id"}})
			return false, err
		},
		"stats": func(c *leafCall, v *view) (bool, error) {
			_, err := v.termStats(c.ctx, []score.Term{{Field: "t", Text: "x"}, {Field: "t", Text: "y0"}})
			return false, err
		},
		"ids": func(c *leafCall, v *view) (bool, error) {
			scan, err := v.scanIDs(c.ctx, "", 0)
			for err == nil {
				var ids []string
				if ids, err = scan.next(c.ctx, leaf.MaxIDPage); len(ids) == 0 {
					break
				}
			}
			return false, err
		},
	}
	for name, run := range calls {
		var whole, late, partial int
		for looks := 0; looks < 10_000; looks += 1 + looks/6 {
			c := &leafCall{node: n, ctx: context.Background(), name: api.DefaultIndex, watch: &front.Stopwatch{Began: time.Now()}}
			v, err := c.read(n.searches)
			if err != nil {
				t.Fatal(err)
			}
			v.allowPartial = name == "search" && whole+late+partial != 1 // looks is 1
			c.ctx = &countdown{context.Background(), looks, context.DeadlineExceeded}
			part, err := run(c, v)
			c.release()
			switch {
			case part:
				partial++
			case err == nil:
				whole++
			case errors.Is(err, context.DeadlineExceeded):
				late++
			default:
				t.Fatalf("%s after %d looks: %v", name, looks, err)
			}
			if whole == 2 {
				break
			}
		}
		if whole == 0 || late == 0 || (partial > 0) != (name == "search") {
			t.Errorf("%s: %d whole, %d late, %d partial", name, whole, late, partial)
		}
	}
	if n.searches.Used()+n.memory.Used()+n.scans.Used() != 0 {
		t.Error("something is still held")
	}
}

// TestLeafWhileClosing: a node that closes refuses calls, and waits for those under way.
func TestLeafWhileClosing(t *testing.T) {
	s := newServer(t, Config{})
	s.put("default", `{"id":"1"}`)
	l := s.node.Leaf()
	page, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		_, err := l.IDs(context.Background(), &leaf.IDsRequest{}, func([]string) error {
			close(page)
			<-goOn
			return nil
		})
		done <- err
	}()
	<-page
	closed := make(chan error, 1)
	go func() { closed <- s.node.Close(context.Background()) }()
	for {
		_, err := l.Ping(t.Context())
		if err == nil {
			continue
		}
		p := wantProblem(t, "a ping of a closing node", err, api.ShuttingDown)
		if p.RetryAfterMS == 0 || p.RequestID == "" || leaf.ClassOf(err) != leaf.Elsewhere || leaf.OutcomeOf(err) != serve.Unavailable {
			t.Errorf("%+v", p)
		}
		break
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Errorf("a call under way: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestLeafOfADeletedIndex: calls on an index end when it is deleted.
func TestLeafOfADeletedIndex(t *testing.T) {
	s := newServer(t, Config{})
	s.put("default", `{"id":"1"}`)
	l, deleted := s.node.Leaf(), make(chan struct{})
	i := s.node.catalog.list()[0]
	n := 0
	_, err := l.Export(t.Context(), &leaf.ExportRequest{IDs: slices.Repeat([]string{"1"}, leaf.MaxIDs)}, func(leaf.ExportedDoc) error {
		if n++; n == 1 {
			go func() {
				defer close(deleted)
				s.do("DELETE", "/indexes/default", "", "").want(200)
			}()
			<-i.ctx.Done()
		}
		return nil
	})
	<-deleted // which waits for the call
	wantProblem(t, fmt.Sprintf("an export of a deleted index, after %d documents", n), err, api.IndexDeleted)
	_, err = l.Docs(t.Context(), &leaf.DocsRequest{})
	wantProblem(t, "after it", err, api.IndexNotFound)
}

// TestLeafPanics: a panic in a call is a problem of that call alone.
func TestLeafPanics(t *testing.T) {
	s := startServer(t, Config{DataDir: t.TempDir()}, withApply(func(context.Context, []shard.Op, func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		panic("apply")
	}))
	l := s.node.Leaf()
	_, err := l.Index(t.Context(), &leaf.IndexRequest{Body: []byte(`{"id":"1"}`)})
	wantProblem(t, "a panic", err, api.Internal)
	if s.node.writes.Used()+s.node.memory.Used() != 0 || s.node.front.Drain().UnderWay() != 0 {
		t.Error("the panic kept its place")
	}
	if _, err := l.Docs(t.Context(), &leaf.DocsRequest{}); err != nil {
		t.Error(err)
	}
}

// TestLeafIsCounted: calls are counted like those over HTTP.
func TestLeafIsCounted(t *testing.T) {
	s := newServer(t, Config{})
	s.put("default", `{"id":"1","t":"x"}`)
	l := s.node.Leaf()
	for range 3 {
		if _, err := l.Search(t.Context(), &leaf.SearchRequest{Limit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := l.Search(t.Context(), &leaf.SearchRequest{Index: "nosuch"})
	wantProblem(t, "no index", err, api.IndexNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Search(ctx, &leaf.SearchRequest{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	page := string(s.do("GET", "/metrics", "", "").want(200).body)
	for _, line := range []string{
		`weft_shard_calls_total{call="search",code="200"} 3`, `weft_shard_calls_total{call="search",code="404"} 1`,
		`weft_shard_calls_total{call="search",code="499"} 1`, `weft_shard_calls_in_flight{call="search"} 0`,
		`weft_shard_call_seconds_count{call="search"} 5`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the metrics do not say %s", line)
		}
	}
}

// TestLeafValuesAreBounded: raw values and long replies have limits.
func TestLeafValuesAreBounded(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{ReplyBytes: 4000}})
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, `{"id":"%03d%s","n":%d,"k":"%s"}`+"\n", i, strings.Repeat("x", 100), i, strings.Repeat("y", 90))
	}
	s.bulk("default", b.String()).want(200)
	l := s.node.Leaf()
	if r, err := l.Aggregate(t.Context(), &leaf.AggregateRequest{Values: []string{"n"}}); err != nil || len(r.Values[0].Numbers) != 40 {
		t.Errorf("%+v, %v", r, err)
	}
	_, err := l.Aggregate(t.Context(), &leaf.AggregateRequest{Values: []string{"n", "k"}})
	if p := wantProblem(t, "values", err, api.ReplyTooLarge); p.Field != "values" || p.Limit != 4000 {
		t.Errorf("%+v", p)
	}
	_, err = l.Search(t.Context(), &leaf.SearchRequest{Limit: 40})
	if p := wantProblem(t, "hits", err, api.ReplyTooLarge); p.Field != "limit" || p.Limit != 4000 {
		t.Errorf("%+v", p)
	}
	if s.node.memory.Used() != 0 {
		t.Error("memory is still held")
	}
}

// TestLeafIDsAgainstSorting lists random ids, with random limits, out of segments and a memtable.
func TestLeafIDsAgainstSorting(t *testing.T) {
	s := newServer(t, Config{})
	l := s.node.Leaf()
	r := rand.New(rand.NewPCG(3, 9))
	there := map[string]bool{}
	for round := range 4 {
		var b strings.Builder
		for range 700 {
			raw := make([]byte, r.IntN(12))
			for i := range raw {
				raw[i] = "ab\x00\x7f"[r.IntN(4)]
			}
			id := string(raw) + string(rune('a'+r.IntN(3)))
			text, err := json.Marshal(id)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "{\"id\":%s}\n", text)
			there[id] = true
		}
		s.bulk("default", b.String()).want(200)
		var gone []string
		for id := range there {
			if r.IntN(6) == 0 {
				gone = append(gone, id)
				delete(there, id)
			}
		}
		if _, err := l.DeleteMany(t.Context(), &leaf.DeleteRequest{IDs: gone}); err != nil {
			t.Fatal(err)
		}
		want := make([]string, 0, len(there))
		for id := range there {
			want = append(want, id)
		}
		slices.Sort(want)
		for range 60 {
			req := &leaf.IDsRequest{Limit: r.IntN(2) * r.IntN(len(want)+3)}
			if r.IntN(3) > 0 {
				req.After = want[r.IntN(len(want))] + strings.Repeat("\x00", r.IntN(2))
			}
			at, found := slices.BinarySearch(want, req.After)
			if found {
				at++
			}
			rest := want[at:]
			next := ""
			if req.Limit > 0 && req.Limit < len(rest) {
				rest = rest[:req.Limit]
				next = rest[len(rest)-1]
			}
			var got []string
			reply, err := l.IDs(t.Context(), req, func(ids []string) error {
				got = append(got, ids...)
				return nil
			})
			if err != nil || !slices.Equal(got, rest) || reply.Next != next {
				t.Fatalf("round %d, %+v: %d ids, next %q; want %d, %q (%v)", round, req, len(got), reply.Next, len(rest), next, err)
			}
		}
		if round%2 == 0 {
			(&suiteNode{server: s}).Flush(t, "default")
		}
	}
}

// TestLeafMeasuresWhatItsReaderTakes: the time of the caller is told apart from that of the node.
func TestLeafMeasuresWhatItsReaderTakes(t *testing.T) {
	s := newServer(t, Config{})
	s.put("default", `{"id":"1"}`)
	const pause = 30 * time.Millisecond
	reply, err := s.node.Leaf().IDs(t.Context(), &leaf.IDsRequest{}, func([]string) error {
		timer := time.NewTimer(pause)
		<-timer.C
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string]int64{}
	for _, s := range reply.Timings {
		stages[s.Stage] += s.Micros
	}
	if len(stages) != len(reply.Timings) || stages[stageSend] < pause.Microseconds() || reply.Micros() < stages[stageSend] {
		t.Errorf("%v", reply.Timings)
	}
	if _, ok := stages[bound.StageQueue]; !ok {
		t.Errorf("no queue in %v", reply.Timings)
	}
}
