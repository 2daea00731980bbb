package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/coordinator"
	httpfront "github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// gated is a member whose calls wait at a gate while it is shut, and whose searches panic when they are told to.
type gated struct {
	leaf.Member
	mu      sync.Mutex
	gate    chan struct{} // closed: calls pass; nil: there is none
	waiting int
	panics  bool
}

func (g *gated) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate = make(chan struct{})
}

func (g *gated) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gate != nil {
		close(g.gate)
		g.gate = nil
	}
}

func (g *gated) panic(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.panics = on
}

func (g *gated) waits() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

func (g *gated) pass(ctx context.Context) error {
	g.mu.Lock()
	gate, panics := g.gate, g.panics
	if gate != nil {
		g.waiting++
	}
	g.mu.Unlock()
	if panics {
		panic("a fault of the program")
	}
	if gate == nil {
		return nil
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waiting--
	}()
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *gated) Search(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.Member.Search(ctx, req)
}

func (g *gated) Index(ctx context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.Member.Index(ctx, req)
}

func (g *gated) Bulk(ctx context.Context, req *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.Member.Bulk(ctx, req, body)
}

// one is a coordinator over one member with a gate.
func one(t *testing.T, cfg coordinator.Config) (*front, *coordinator.Coordinator, *gated) {
	t.Helper()
	return oneOf(t, bare(t, 1, 1), cfg)
}

func oneOf(t *testing.T, c *cluster, cfg coordinator.Config) (*front, *coordinator.Coordinator, *gated) {
	t.Helper()
	g := &gated{Member: c.leaves[address(0, 0)]}
	t.Cleanup(g.open)
	c.leaves[address(0, 0)] = g
	k := c.coordinate(1, placement.Ring, cfg)
	f := &front{t: t, name: "coordinator", handler: k.Handler()}
	f.must(200, "POST", "/index/bulk", ndjson, packages(50))
	return f, k, g
}

// sharing starts coordinators over one cluster that agree on the map in one folder. every is how often each looks at it.
func sharing(t *testing.T, c *cluster, every ...time.Duration) []*front {
	t.Helper()
	dir := t.TempDir()
	var out []*front
	for i, d := range every {
		s, err := store.OpenFolder(dir, store.FolderOptions{Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		k := c.coordinate(2, placement.Ring, coordinator.Config{Store: s, MapEvery: d, RepairEvery: -1})
		out = append(out, &front{t: t, name: fmt.Sprint("coordinator ", i), handler: k.Handler()})
	}
	return out
}

// A coordinator that does not look at the map is refused by the members when another has changed it, and goes on by the new one by itself.
func TestACoordinatorThatGoesByAnOldMapLearnsOfTheNewOne(t *testing.T) {
	c := bare(t, 3, 1)
	list := sharing(t, c, 20*time.Millisecond, time.Hour)
	quick, slow := list[0], list[1]
	slow.must(200, "POST", "/index/bulk", ndjson, packages(200))
	epoch := func(f *front) int {
		t.Helper()
		return number(t, f.must(200, "GET", "/readyz", "", nil).object(t), "epoch")
	}
	steps := []struct {
		name string
		call func() reply
	}{
		{"a search", func() reply { return slow.must(200, "GET", "/search?q=*&limit=0", "", nil) }},
		{"a write", func() reply {
			return slow.must(200, "POST", "/index", "application/json", []byte(`{"id":"new","title":"loom"}`))
		}},
		{"a deletion", func() reply { return slow.must(200, "DELETE", "/index?id=new", "", nil) }},
		{"a load", func() reply { return slow.must(200, "POST", "/index/bulk", ndjson, packages(200)) }},
		{"a document", func() reply { return slow.must(200, "GET", "/doc?id="+url.QueryEscape("pkg/7"), "", nil) }},
	}
	for i, step := range steps {
		action := "action=add_group&members=" + address(2, 0)
		if i%2 == 1 {
			action = "action=remove_group"
		}
		before := epoch(slow)
		quick.must(200, "POST", "/_topology?"+action, "", nil)
		if epoch(slow) != before || epoch(quick) != before+1 {
			t.Fatalf("%s: epochs %d and %d after %d", step.name, epoch(quick), epoch(slow), before)
		}
		r := step.call()
		if epoch(slow) != before+1 {
			t.Errorf("%s: the map is not known: %s", step.name, r.body)
		}
		if body, _ := answer(t, slow, "*"); number(t, body, "total") != 200 && i != 1 {
			t.Errorf("%s: %v", step.name, body)
		}
	}
	metrics := string(slow.must(200, "GET", "/metrics", "", nil).body)
	for _, name := range []string{"weft_cluster_stale_reads_total", "weft_cluster_stale_writes_total"} {
		if !strings.Contains(metrics, name+" ") || strings.Contains(metrics, name+" 0\n") {
			t.Errorf("%s counts nothing", name)
		}
	}
}

func TestTopologyChanges(t *testing.T) {
	c := bare(t, 3, 2)
	f := sharing(t, c, 20*time.Millisecond)[0]
	f.must(200, "POST", "/index/bulk", ndjson, packages(100))
	for _, s := range []struct {
		params string
		status int
		says   string // in the reply
	}{
		{"", 400, "action is missing"},
		{"action=", 400, `"field":"action"`},
		{"action=nothing", 400, `"field":"action"`},
		{"action=add_group", 400, "members is missing"},
		{"action=add_group&members=", 400, `"field":"members"`},
		{"action=add_group&members=,|", 400, `"field":"members"`},
		{"action=add_group&members=a:1,a:1", 400, "stands twice"},
		{"action=add_group&members=" + address(0, 1), 400, "stands twice"},
		{"action=add_group&members=elsewhere:1", 400, "there is no member elsewhere:1"},
		{"action=add_group&member=a:1", 400, `"field":"member"`},
		{"action=add_group&members=a:1&group=1", 400, `"field":"group"`},
		{"action=add_member&member=a:1", 400, "group is missing"},
		{"action=add_member&group=0", 400, "member is missing"},
		{"action=add_member&group=0&member=", 400, `"field":"member"`},
		{"action=add_member&group=-1&member=a:1", 400, `"field":"group"`},
		{"action=add_member&group=x&member=a:1", 400, `"field":"group"`},
		{"action=add_member&group=2&member=" + address(2, 0), 409, "there is no group 2"},
		{"action=remove_member", 400, "member is missing"},
		{"action=remove_member&member=nobody:1", 409, "no group has a member"},
		{"action=remove_group", 409, "job_conflict"},
		{"action=remove_group&group=1", 400, `"field":"group"`},
		{"action=remove_group&epoch=0", 400, `"field":"epoch"`},
		{"action=remove_group&epoch=x", 400, `"field":"epoch"`},
		{"action=remove_group&epoch=999", 409, `"field":"epoch"`},
		{"action=remove_group&extra=1", 400, "unknown_parameter"},
		{"action=add_group&members=" + address(2, 0) + "," + address(2, 1), 200, `"visible":false`},
		{"action=remove_member&member=" + address(2, 1), 200, `"epoch"`},
		{"action=remove_member&member=" + address(2, 0), 409, "the last member"},
		{"action=remove_group", 200, `"placed":2`},
	} {
		before := number(t, f.must(200, "GET", "/_topology", "", nil).object(t), "epoch")
		r := f.do("POST", "/_topology?"+s.params, "", nil)
		if r.status != s.status || !strings.Contains(string(r.body), s.says) {
			t.Errorf("%s: %d %s", s.params, r.status, r.body)
		}
		want := before
		if s.status == 200 {
			want++
		}
		if after := number(t, f.must(200, "GET", "/_topology", "", nil).object(t), "epoch"); after != want {
			t.Errorf("%s: epoch %d after %d", s.params, after, before)
		}
	}
	if body, _ := answer(t, f, "*"); number(t, body, "total") != 100 {
		t.Errorf("after all of them: %v", body)
	}
	// Where the members keep the map, it is not changed from here.
	k := c.coordinate(2, placement.Ring, coordinator.Config{RepairEvery: -1})
	kept := &front{t: t, name: "without a store", handler: k.Handler()}
	if r := kept.do("POST", "/_topology?action=remove_group", "", nil); r.status != 409 {
		t.Errorf("without a store: %d %s", r.status, r.body)
	}
}

// What a repair has put right is known to the coordinator that was asked for it, whoever has done it.
func TestARepairEndsSuspicion(t *testing.T) {
	c := bare(t, 3, 2)
	list := sharing(t, c, 20*time.Millisecond, 20*time.Millisecond)
	list[0].must(200, "POST", "/index/bulk", ndjson, packages(100))
	added := address(2, 0)
	list[0].must(200, "POST", "/_topology?action=add_member&group=0&member="+added, "", nil)
	for _, f := range list { // all of them before it is made equal, which is seen as well
		eventually(t, "the new member is behind", func() bool { return behind(t, f)[added] })
	}
	for i, f := range list {
		f.must(200, "POST", "/_repair", "", nil)
		if left := behind(t, f); len(left) > 0 {
			t.Errorf("coordinator %d: behind after a repair: %v", i, left)
		}
	}
}

func TestBadCallsAboutTheCluster(t *testing.T) {
	c := open(t, 2, 1, placement.Ring)
	for _, s := range []struct {
		method, target string
		status         int
		says           string
	}{
		{"GET", "/_ring?x=1", 400, "unknown_parameter"},
		{"GET", "/_placement", 400, "missing_parameter"},
		{"GET", "/_placement?id=", 400, "invalid_id"},
		{"GET", "/_plan", 400, "missing_parameter"},
		{"GET", "/_plan?shards=0", 400, `"field":"shards"`},
		{"GET", "/_plan?shards=1025", 400, `"field":"shards"`},
		{"GET", "/_plan?shards=2&index=none", 404, "index_not_found"},
		{"GET", "/_plan?shards=2&index=a%2Fb", 400, "invalid_index_name"},
		{"GET", "/_plan?shards=2", 200, `"ids":0`},
		{"POST", "/_rebalance?from=0", 400, `"field":"from"`},
		{"POST", "/_rebalance?to=x", 400, `"field":"to"`},
		{"POST", "/_rebalance?wait=1", 400, `"field":"wait"`},
		{"POST", "/_repair?wait=no", 400, `"field":"wait"`},
		{"GET", "/_rebalance", 405, "method_not_allowed"},
		{"GET", "/_jobs/none", 404, "job_not_found"},
		{"POST", "/_jobs/none?action=pause", 404, "job_not_found"},
		{"POST", "/_jobs/none", 400, `"field":"action"`},
		{"GET", "/_jobs", 200, `"jobs":[]`},
		{"DELETE", "/_topology", 405, "method_not_allowed"},
	} {
		if r := c.do(s.method, s.target, "", nil); r.status != s.status || !strings.Contains(string(r.body), s.says) {
			t.Errorf("%s %s: %d %s", s.method, s.target, r.status, r.body)
		}
	}
}

// Before the map is known a coordinator lives, is not ready, and refuses calls so that they are sent again.
func TestBeforeTheMapIsKnown(t *testing.T) {
	sm, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"nobody:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := coordinator.New(coordinator.Config{Shards: sm, SlowSearch: -1, Dial: func(addr string) (leaf.Member, error) {
		return nil, fmt.Errorf("nobody is at %s", addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, name: "coordinator", handler: k.Handler()}
	f.must(200, "GET", "/healthz", "", nil)
	f.must(200, "GET", "/metrics", "", nil)
	for _, s := range []struct{ method, target, body string }{
		{"GET", "/readyz", ""},
		{"GET", "/search?q=a", ""},
		{"GET", "/doc?id=a", ""},
		{"GET", "/indexes", ""},
		{"GET", "/indexes/a", ""},
		{"PUT", "/indexes/a", ""},
		{"DELETE", "/indexes/a", ""},
		{"POST", "/index", `{"id":"a"}`},
		{"DELETE", "/index?id=a", ""},
		{"POST", "/index/bulk", `{"id":"a"}`},
		{"GET", "/knn_recall?field=v", ""},
		{"GET", "/_ring", ""},
		{"GET", "/_placement?id=a", ""},
		{"GET", "/_plan?shards=2", ""},
		{"GET", "/_topology", ""},
		{"POST", "/_rebalance", ""},
		{"POST", "/_repair", ""},
	} {
		r := f.do(s.method, s.target, "", []byte(s.body))
		if o := r.object(t); r.status != 503 || o["code"] != string(api.NotReady) || o["retry_after_ms"] == nil {
			t.Errorf("%s %s: %d %s", s.method, s.target, r.status, r.body)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := k.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ready: %v", err)
	}
	var p *api.Problem
	if _, err := k.Leaf().Docs(t.Context(), &leaf.DocsRequest{}); !errors.As(err, &p) || p.Code != api.NotReady {
		t.Errorf("a call of its leaf: %v", err)
	}
	if _, err := k.Leaf().Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	if _, err := k.Leaf().Placed(t.Context()); err != nil {
		t.Errorf("placed: %v", err)
	}
}

// Calls under way end as if nothing were, later ones are refused, and what does not end in time is cut off.
func TestCloseWaitsForCalls(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprint("patient ", patient), func(t *testing.T) {
			c := bare(t, 1, 1)
			c.cut = !patient
			f, k, g := oneOf(t, c, coordinator.Config{})
			g.shut()
			calls := []step{
				call(200, "GET", "/search?q=*&limit=1"),
				call(200, "POST", "/index").with(asJSON, `{"id":"x","title":"loom"}`),
				call(200, "POST", "/index/bulk").with(ndjson, `{"id":"y","title":"loom"}`),
			}
			replies := make([]answered, len(calls))
			var wg sync.WaitGroup
			for i := range calls {
				wg.Go(func() { replies[i] = calls[i].run(f) })
			}
			eventually(t, "the calls wait", func() bool { return g.waits() == len(calls) })
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			if !patient {
				ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
			}
			defer cancel()
			closed := make(chan error, 1)
			go func() { closed <- k.Close(ctx) }()
			eventually(t, "it is closing", func() bool { return f.do("GET", "/readyz", "", nil).status == 503 })
			if r := f.do("GET", "/search?q=*", "", nil); r.status != 503 || !strings.Contains(string(r.body), "shutting_down") {
				t.Errorf("a later call: %d %s", r.status, r.body)
			}
			f.must(200, "GET", "/healthz", "", nil)
			var p *api.Problem
			if _, err := k.Leaf().Docs(t.Context(), &leaf.DocsRequest{}); !errors.As(err, &p) || p.Code != api.ShuttingDown {
				t.Errorf("a later call of its leaf: %v", err)
			}
			if patient {
				g.open()
			}
			wg.Wait()
			err := <-closed
			var late *httpfront.DrainError
			if errors.As(err, &late) == patient {
				t.Errorf("close: %v", err)
			}
			for i, r := range replies {
				if patient && r.status != calls[i].status || !patient && !strings.Contains(string(r.body), "shutting_down") {
					t.Errorf("%s: %d %s", calls[i].target, r.status, r.body)
				}
			}
			if again := k.Close(context.Background()); fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("closed again: %v", again)
			}
		})
	}
}

// Gates answer with 429 when there is no place, and those that wait get theirs.
func TestLimitsOfACoordinator(t *testing.T) {
	l := coordinator.Limits{Searches: 1, SearchQueue: 1, Writes: 1, WriteQueue: 1, Bulks: 1, BulkQueue: 1, QueueWait: patience}
	for _, c := range []struct {
		code api.Code
		s    step
	}{
		{api.TooManySearches, call(200, "GET", "/search?q=*&limit=1")},
		{api.TooManyWrites, call(200, "POST", "/index").with(asJSON, `{"id":"x","title":"loom"}`)},
		{api.TooManyBulks, call(200, "POST", "/index/bulk").with(ndjson, `{"id":"y","title":"loom"}`)},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			f, _, g := one(t, coordinator.Config{Limits: l})
			g.shut()
			replies := make([]answered, 2)
			var wg sync.WaitGroup
			wg.Go(func() { replies[0] = c.s.run(f) })
			eventually(t, "one runs", func() bool { return g.waits() == 1 })
			wg.Go(func() { replies[1] = c.s.run(f) })
			// One waits. The next finds no room in the queue.
			var refused answered
			eventually(t, "a third is refused", func() bool {
				text := string(f.must(200, "GET", "/metrics", "", nil).body)
				return strings.Contains(text, "weft_waiting_for_"+strings.TrimPrefix(string(c.code), "too_many_")+" 1\n")
			})
			refused = c.s.run(f)
			if refused.status != 429 || !strings.Contains(string(refused.body), string(c.code)) || refused.header.Get("Retry-After") == "" {
				t.Errorf("%d %s", refused.status, refused.body)
			}
			g.open()
			wg.Wait()
			for _, r := range replies {
				if r.status != c.s.status {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
		})
	}
}

// A search without timeout_ms ends when the longest time is over that one may take.
func TestSearchesEnd(t *testing.T) {
	f, _, g := one(t, coordinator.Config{Limits: coordinator.Limits{SearchTimeout: 200 * time.Millisecond}})
	g.shut()
	for _, target := range []string{"/search?q=*", "/search?q=*&timeout_ms=50"} {
		r := f.do("GET", target, "", nil)
		if r.status != http.StatusGatewayTimeout {
			t.Errorf("%s: %d %s", target, r.status, r.body)
		}
	}
	if r := f.do("GET", "/search?q=*&timeout_ms=201", "", nil); r.status != 400 {
		t.Errorf("beyond the longest time: %d %s", r.status, r.body)
	}
	g.open()
	f.must(200, "GET", "/search?q=*", "", nil)
}

// A fault of the program ends a call and nothing else.
func TestPanics(t *testing.T) {
	f, k, g := one(t, coordinator.Config{})
	g.panic(true)
	if r := f.do("GET", "/search?q=*&limit=1", "", nil); r.status < 500 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if _, err := k.Leaf().Search(t.Context(), &leaf.SearchRequest{Limit: 1}); err == nil {
		t.Error("a call of its leaf: no error")
	}
	g.panic(false)
	eventually(t, "it answers again", func() bool { return f.do("GET", "/search?q=*&limit=1", "", nil).status == 200 })
}

// Without a parameter pool fused rankings have the depth of the coordinator.
func TestPoolOfACoordinator(t *testing.T) {
	c := open(t, 2, 1, placement.Ring)
	small := c.coordinate(2, placement.Ring, coordinator.Config{Pool: 3})
	f := &front{t: t, name: "small", handler: small.Handler()}
	f.must(201, "PUT", "/indexes/v", asText, []byte("index v {\n  field id: text<raw> [indexed, stored, primary]\n  field v: dense_vector<2> [indexed<metric: l2>, stored]\n  field t: text<standard> [indexed, stored]\n}"))
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, `{"id":"%02d","v":[%d,0],"t":"loom"}`+"\n", i, i)
	}
	f.must(200, "POST", "/index/bulk?index=v", ndjson, []byte(b.String()))
	total := func(f *front, more string) int {
		t.Helper()
		return number(t, f.must(200, "GET", "/search?index=v&q=loom&knn=v:39,0&limit=1"+more, "", nil).object(t), "total")
	}
	// Both rankings have three, none of them the same.
	if n := total(f, ""); n != 6 {
		t.Errorf("pool of the coordinator: %d", n)
	}
	if n := total(f, "&pool=5"); n != 10 {
		t.Errorf("pool of the request: %d", n)
	}
	if n := total(c.front, ""); n != 40 {
		t.Errorf("pool of another coordinator: %d", n)
	}
}

// Two coordinators do not share a data folder.
func TestADataFolderIsLocked(t *testing.T) {
	c := bare(t, 1, 1)
	dir := t.TempDir()
	c.coordinate(1, placement.Ring, coordinator.Config{DataDir: dir})
	sm, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{address(0, 0)}}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := coordinator.New(coordinator.Config{Shards: sm, DataDir: dir, Dial: func(string) (leaf.Member, error) { return borrowed{c.leaves[address(0, 0)]}, nil }})
	if err == nil {
		if cerr := k.Close(context.Background()); cerr != nil {
			t.Error(cerr)
		}
		t.Error("two coordinators have one data folder")
	}
}

// The map of a coordinator above fences calls as that of a cluster does.
func TestMapOfTheCoordinatorAbove(t *testing.T) {
	c := open(t, 2, 1, placement.Ring)
	l := c.coordinator.Leaf()
	search := func(epoch uint64) error {
		_, err := l.Docs(t.Context(), &leaf.DocsRequest{View: leaf.View{Epoch: epoch}})
		return err
	}
	c.must(201, "PUT", "/indexes/default", "", nil)
	for _, s := range []struct {
		epoch uint64
		b     string
		code  api.Code
	}{
		{0, "m", api.InvalidParameter},
		{2, "m", ""},
		{2, "m", ""},
		{2, "n", api.StaleMap},
		{1, "m", api.StaleMap},
		{3, "n", ""},
		{4, strings.Repeat("x", leaf.MaxMap+1), api.InvalidParameter},
	} {
		reply, err := l.Place(t.Context(), &leaf.PlaceRequest{Epoch: s.epoch, Map: []byte(s.b)})
		var p *api.Problem
		switch {
		case s.code == "" && (err != nil || reply.Epoch != s.epoch || string(reply.Map) != s.b):
			t.Errorf("epoch %d: %v %v", s.epoch, reply, err)
		case s.code != "" && (!errors.As(err, &p) || p.Code != s.code):
			t.Errorf("epoch %d: %v, want %s", s.epoch, err, s.code)
		}
	}
	for epoch, stale := range map[uint64]bool{0: false, 1: true, 2: true, 3: false, 4: false} {
		var p *api.Problem
		if err := search(epoch); (errors.As(err, &p) && p.Code == api.StaleMap) != stale || !stale && err != nil {
			t.Errorf("a call by epoch %d: %v", epoch, err)
		}
	}
	if reply, err := l.Placed(t.Context()); err != nil || reply.Epoch != 3 || string(reply.Map) != "n" {
		t.Errorf("placed: %v %v", reply, err)
	}
}
