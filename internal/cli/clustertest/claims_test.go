package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/coordinator"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/wire/frame"
)

// host is a node that serves framed JSON, and can be stopped and started again at its address.
type host struct {
	t    testing.TB
	dir  string
	addr string
	n    *node.Node
}

func startHost(t testing.TB) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir(), addr: "127.0.0.1:0"}
	h.start()
	t.Cleanup(h.stop)
	return h
}

func (h *host) start() {
	h.t.Helper()
	n, err := node.New(node.Config{DataDir: h.dir, ShardAddr: h.addr, SlowSearch: -1})
	if err != nil {
		h.t.Fatal(err)
	}
	h.n = n
	if err := n.Start(context.Background()); err != nil {
		h.t.Fatal(err)
	}
	h.addr = n.Listeners()[0].Addr
}

func (h *host) stop() {
	if h.n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := h.n.Close(ctx); err != nil {
		h.t.Error(err)
	}
	h.n = nil
}

// empty starts a stopped host with nothing on its disk.
func (h *host) empty() {
	h.dir = h.t.TempDir()
	h.start()
}

// fleet is groups of hosts.
type fleet [][]*host

func startFleet(t testing.TB, shards, replicas int) fleet {
	t.Helper()
	f := make(fleet, shards)
	for g := range f {
		for range replicas {
			f[g] = append(f[g], startHost(t))
		}
	}
	return f
}

// broker starts a coordinator over the fleet that repairs nothing by itself.
func (f fleet) broker(t testing.TB, cfg coordinator.Config) (*front, *coordinator.Coordinator) {
	t.Helper()
	cfg.RepairEvery = -1
	return f.brokerThat(t, cfg)
}

// brokerThat starts a coordinator over the fleet.
func (f fleet) brokerThat(t testing.TB, cfg coordinator.Config) (*front, *coordinator.Coordinator) {
	t.Helper()
	var groups []shardmap.Group
	for _, hosts := range f {
		var g shardmap.Group
		for _, h := range hosts {
			g.Members = append(g.Members, h.addr)
		}
		groups = append(groups, g)
	}
	sm, err := shardmap.New(placement.Ring, 0, groups)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Shards, cfg.SlowSearch, cfg.MapEvery = sm, -1, 50*time.Millisecond
	cfg.Dial = func(addr string) (leaf.Member, error) { return framed.NewClient(&frame.Client{Addr: addr}), nil }
	k, err := coordinator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := k.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := k.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := k.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return &front{t: t, name: "broker", handler: k.Handler()}, k
}

// docs are the documents of a member.
func (h *host) docs() uint64 {
	h.t.Helper()
	r, err := h.n.Leaf().Docs(context.Background(), &leaf.DocsRequest{})
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.IndexNotFound {
		return 0
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Docs
}

// holds lists the documents of a member, by id.
func (h *host) holds() map[string]string {
	h.t.Helper()
	l := h.n.Leaf()
	out := map[string]string{}
	_, err := l.IDs(context.Background(), &leaf.IDsRequest{}, func(ids []string) error {
		_, err := l.Export(context.Background(), &leaf.ExportRequest{IDs: ids}, func(d leaf.ExportedDoc) error {
			out[d.ID] = string(d.Source)
			return nil
		})
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// packages are n documents pkg/1, pkg/2 and so on.
func packages(n int) []byte {
	var b bytes.Buffer
	words := []string{"parser", "compiler", "scheduler", "allocator", "socket", "cache", "lexer", "graph", "tensor", "matrix"}
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, `{"id":"pkg/%d","title":"%s %s","body":"zero-copy %s with %s and %s","stars":%d}`+"\n",
			i, words[i%10], words[i*i%10], words[i/3%10], words[i/7%10], words[i*7%10], i%97)
	}
	return b.Bytes()
}

const ndjson = "application/x-ndjson"

func number(t testing.TB, o map[string]any, member string) int {
	t.Helper()
	n, ok := o[member].(json.Number)
	if !ok {
		t.Fatalf("no number %s in %v", member, o)
	}
	v, err := strconv.Atoi(n.String())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// answer is what a search says, but for who said it and how long it took.
func answer(t testing.TB, f *front, q string) (body map[string]any, shards map[string]any) {
	t.Helper()
	o := f.must(200, "GET", target("/search", url.Values{"q": {q}, "dfs": {"true"}, "limit": {"20"}}), "", nil).object(t)
	shards, _ = o["shards"].(map[string]any)
	for _, m := range []string{"took_ms", "timings", "slowest_shard", "shards"} {
		delete(o, m)
	}
	return o, shards
}

// Replicas hold the same documents, the primary of a group can go without a trace in the answers, and a whole group cannot go without
// being named.
func TestReplicasTakeOver(t *testing.T) {
	f := startFleet(t, 3, 2)
	b, _ := f.broker(t, coordinator.Config{})
	r := b.must(200, "POST", "/index/bulk", ndjson, packages(3000)).object(t)
	if number(t, r, "indexed") != 3000 || number(t, r, "shards") != 3 || number(t, r, "members_ok") != 6 || number(t, r, "members") != 6 {
		t.Fatalf("bulk: %v", r)
	}
	total := uint64(0)
	for g := range f {
		first, second := f[g][0].holds(), f[g][1].holds()
		if len(first) == 0 || fmt.Sprint(first) != fmt.Sprint(second) {
			t.Errorf("group %d: %d and %d documents, not the same", g, len(first), len(second))
		}
		total += uint64(len(first))
	}
	if total != 3000 {
		t.Errorf("%d documents in all", total)
	}
	questions := []string{"parser", "+compiler +cache", `"zero-copy"`, "scheduler OR allocator", "tens*", "socket cache"}
	var before []map[string]any
	for _, q := range questions {
		o, _ := answer(t, b, q)
		before = append(before, o)
	}
	f[1][0].stop()
	for i, q := range questions {
		o, shards := answer(t, b, q)
		if brief(o) != brief(before[i]) || number(t, shards, "ok") != 3 {
			t.Errorf("%s without a primary: %v\n%s\n%s", q, shards, brief(before[i]), brief(o))
		}
	}
	gone := f[1][1].docs()
	f[1][1].stop()
	o := b.must(200, "GET", "/search?q=*&limit=1", "", nil).object(t)
	shards, _ := o["shards"].(map[string]any)
	coverage, _ := o["coverage"].(map[string]any)
	if number(t, shards, "ok") != 2 || number(t, shards, "failed") != 1 || number(t, o, "total") != 3000-int(gone) || coverage["complete"] != false {
		t.Errorf("without a group: %v %v total %v", shards, coverage, o["total"])
	}
	named, _ := shards["failed_addresses"].([]any)
	for _, h := range f[1] {
		if !slices.Contains(named, any(h.addr)) {
			t.Errorf("%s is not named: %v", h.addr, named)
		}
	}
	for _, p := range []string{"allow_partial=false", "min_coverage=0.9"} {
		r := b.must(503, "GET", "/search?q=*&"+p, "", nil).object(t)
		if r["code"] != "incomplete" || r["shards"] == nil || r["coverage"] == nil {
			t.Errorf("%s: %v", p, r)
		}
	}
	b.must(200, "GET", "/search?q=*&min_coverage=0.5", "", nil)
}

// A member that starts again is asked again at once, over the connections that were open before.
func TestAShardRestartUnderAWarmPoolIsInvisible(t *testing.T) {
	f := startFleet(t, 3, 1)
	b, _ := f.broker(t, coordinator.Config{})
	b.must(200, "POST", "/index/bulk", ndjson, packages(300))
	want, _ := answer(t, b, "parser cache")
	for g := range f {
		f[g][0].stop()
		f[g][0].start()
		got, shards := answer(t, b, "parser cache")
		if brief(got) != brief(want) || number(t, shards, "failed") != 0 {
			t.Errorf("after the restart of shard %d: %v\n%s\n%s", g, shards, brief(want), brief(got))
		}
		id := "new" + strconv.Itoa(g)
		if r := b.must(200, "POST", "/index", "application/json", []byte(`{"id":"`+id+`","title":"loom"}`)).object(t); r["ok"] != true {
			t.Errorf("write: %v", r)
		}
		b.must(200, "DELETE", "/index?id="+id, "", nil)
	}
}

// A write that a member missed says so, and a repair gives the member exactly what it lacks and takes what it has too much.
func TestRepairCopiesWhatIsMissingAndRemovesGhosts(t *testing.T) {
	f := startFleet(t, 3, 2)
	b, _ := f.broker(t, coordinator.Config{})
	down := f[1][1]
	down.stop()
	r := b.must(207, "POST", "/index/bulk", ndjson, packages(3000)).object(t)
	if r["ok"] != false || number(t, r, "indexed") != 3000 || number(t, r, "members_ok") != 5 || number(t, r, "members") != 6 {
		t.Fatalf("bulk with a member down: %v", r)
	}
	if named, _ := r["failed_addresses"].([]any); !slices.Equal(named, []any{down.addr}) {
		t.Errorf("named: %v", named)
	}

	// A silent member is a failure.
	r = b.must(207, "POST", "/_repair", "", nil).object(t)
	if named, _ := r["failed_addresses"].([]any); r["ok"] != false || !slices.Contains(named, any(down.addr)) {
		t.Errorf("repair with a member down: %v", r)
	}

	down.empty()
	missing := int(f[1][0].docs())
	r = b.must(200, "POST", "/_repair", "", nil).object(t)
	if r["ok"] != true || number(t, r, "copied") != missing || number(t, r, "removed") != 0 {
		t.Errorf("repair: %v, %d were missing", r, missing)
	}
	if fmt.Sprint(f[1][0].holds()) != fmt.Sprint(down.holds()) {
		t.Error("the member is not equal to its primary")
	}
	r = b.must(200, "POST", "/_repair", "", nil).object(t)
	if number(t, r, "copied")+number(t, r, "removed") != 0 {
		t.Errorf("second repair: %v", r)
	}

	// A document that only the replica has, and one that it has otherwise.
	direct := func(h *host, doc string) {
		t.Helper()
		if _, err := h.n.Leaf().Index(t.Context(), &leaf.IndexRequest{Body: []byte(doc)}); err != nil {
			t.Fatal(err)
		}
	}
	direct(down, `{"id":"ghost","title":"ghost"}`)
	id := anyOf(t, f[1][0].holds())
	direct(down, `{"id":"`+id+`","title":"changed"}`)
	r = b.must(200, "POST", "/_repair", "", nil).object(t)
	if number(t, r, "copied") != 1 || number(t, r, "removed") != 1 {
		t.Errorf("repair: %v", r)
	}
	want, _ := answer(t, b, "*")
	f[1][0].stop()
	if got, shards := answer(t, b, "*"); brief(got) != brief(want) || number(t, shards, "ok") != 3 {
		t.Errorf("without the primary: %s, want %s", brief(got), brief(want))
	}
}

func anyOf(t testing.TB, m map[string]string) string {
	t.Helper()
	for k := range m {
		return k
	}
	t.Fatal("there is none")
	return ""
}

// A primary without documents is the authority too.
func TestAnEmptyPrimaryIsAuthoritative(t *testing.T) {
	f := startFleet(t, 1, 2)
	b, _ := f.broker(t, coordinator.Config{})
	b.must(200, "POST", "/index", "application/json", []byte(`{"id":"a","title":"loom"}`))
	b.must(200, "DELETE", "/index?id=a", "", nil)
	if _, err := f[0][1].n.Leaf().Index(t.Context(), &leaf.IndexRequest{Body: []byte(`{"id":"ghost","title":"loom"}`)}); err != nil {
		t.Fatal(err)
	}
	r := b.must(200, "POST", "/_repair", "", nil).object(t)
	if r["ok"] != true || number(t, r, "removed") != 1 || f[0][1].docs() != 0 {
		t.Errorf("repair: %v, %d documents", r, f[0][1].docs())
	}
}

// What a plan says is what a rebalance does, a second one moves nothing, and answers do not change by it.
func TestPlanEqualsExecution(t *testing.T) {
	f := startFleet(t, 4, 1)
	first, k := f[:3].broker(t, coordinator.Config{})
	first.must(200, "POST", "/index/bulk", ndjson, packages(3000))
	want, _ := answer(t, first, "parser cache")
	plan := first.must(200, "GET", "/_plan?shards=4", "", nil).object(t)
	ring, _ := plan["ring"].(map[string]any)
	moved := number(t, ring, "moved")
	if number(t, plan, "ids") != 3000 || moved < 600 || moved > 810 {
		t.Fatalf("plan: %v", plan)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := k.Close(ctx); err != nil {
		t.Fatal(err)
	}

	b, _ := f.broker(t, coordinator.Config{})
	if got, _ := answer(t, b, "parser cache"); brief(got) != brief(want) {
		t.Errorf("with a new group and before the move: %s, want %s", brief(got), brief(want))
	}
	r := b.must(200, "POST", "/_rebalance?from=3", "", nil).object(t)
	if r["ok"] != true || number(t, r, "moved") != moved || number(t, r, "deferred")+number(t, r, "missing_at_source") != 0 {
		t.Fatalf("rebalance: %v, planned %d", r, moved)
	}
	after, _ := ring["after"].([]any)
	for g := range f {
		if n := fmt.Sprint(f[g][0].docs()); n != fmt.Sprint(after[g]) {
			t.Errorf("shard %d has %s documents, planned %v", g, n, after[g])
		}
	}
	if got, _ := answer(t, b, "parser cache"); brief(got) != brief(want) {
		t.Errorf("after the move: %s, want %s", brief(got), brief(want))
	}
	plan = b.must(200, "GET", "/_plan?shards=4", "", nil).object(t)
	if ring, _ = plan["ring"].(map[string]any); number(t, ring, "moved") != 0 {
		t.Errorf("plan after the move: %v", plan)
	}
	r = b.must(200, "POST", "/_rebalance?from=4", "", nil).object(t)
	if r["ok"] != true || number(t, r, "moved") != 0 {
		t.Errorf("second rebalance: %v", r)
	}

	// And back: the last group is emptied.
	r = b.must(200, "POST", "/_rebalance?from=4&to=3", "", nil).object(t)
	if r["ok"] != true || number(t, r, "moved") != moved || f[3][0].docs() != 0 {
		t.Errorf("shrinking: %v, %d left", r, f[3][0].docs())
	}
	if got, _ := answer(t, b, "parser cache"); brief(got) != brief(want) {
		t.Errorf("after shrinking: %s, want %s", brief(got), brief(want))
	}
}

// A bulk load that is sent again with its key is not applied again, whichever coordinator gets it.
func TestARetriedBulkIsSafe(t *testing.T) {
	f := startFleet(t, 2, 2)
	a, _ := f.broker(t, coordinator.Config{})
	b, _ := f.broker(t, coordinator.Config{})
	send := func(to *front) map[string]any {
		t.Helper()
		r := to.doWith("POST", "/index/bulk", ndjson, packages(100), map[string]string{"Idempotency-Key": "load-1"})
		if r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		return r.object(t)
	}
	if r := send(a); number(t, r, "indexed") != 100 || r["repeated"] != nil {
		t.Fatalf("%v", r)
	}
	a.must(200, "POST", "/index", "application/json", []byte(`{"id":"pkg/7","title":"newer"}`))
	if r := send(b); number(t, r, "indexed") != 100 || r["ok"] != true || r["repeated"] != true {
		t.Errorf("again: %v", r)
	}
	o := b.must(200, "GET", "/doc?id=pkg/7", "", nil).object(t)
	if src, _ := o["source"].(map[string]any); src["title"] != "newer" {
		t.Errorf("the load was applied again: %v", o)
	}
}

// Two coordinators answer alike, and one goes on when the other is gone.
func TestCoordinatorsAreInterchangeable(t *testing.T) {
	f := startFleet(t, 3, 1)
	a, ka := f.broker(t, coordinator.Config{})
	b, _ := f.broker(t, coordinator.Config{})
	a.must(200, "POST", "/index/bulk", ndjson, packages(500))
	for _, q := range []string{"parser", "zero* cache", `"with cache"`} {
		x, _ := answer(t, a, q)
		y, _ := answer(t, b, q)
		if brief(x) != brief(y) {
			t.Errorf("%s: %s and %s", q, brief(x), brief(y))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := ka.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if r := b.must(200, "POST", "/index", "application/json", []byte(`{"id":"x","title":"loom"}`)).object(t); r["ok"] != true {
		t.Errorf("%v", r)
	}
}

// A coordinator over coordinators over nodes answers like one node, and counts the shards at the bottom.
func TestACoordinatorStandsAsAShardOfAnother(t *testing.T) {
	docs, err := corpus()
	if err != nil {
		t.Skipf("no source of the standard library: %v", err)
	}
	docs = docs[:min(len(docs), 1500)]
	one := single(t)
	fill(one, docs)
	middle := map[string]leaf.Member{}
	var groups []shardmap.Group
	var under []fleet
	for i := range 2 {
		f := startFleet(t, 2, 1)
		under = append(under, f)
		_, k := f.broker(t, coordinator.Config{})
		addr := fmt.Sprintf("aggregator-%d", i)
		middle[addr] = k.Leaf()
		groups = append(groups, shardmap.Group{Members: []string{addr}})
	}
	sm, err := shardmap.New(placement.Rendezvous, 0, groups)
	if err != nil {
		t.Fatal(err)
	}
	k, err := coordinator.New(coordinator.Config{Shards: sm, SlowSearch: -1, Dial: func(addr string) (leaf.Member, error) { return middle[addr], nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := k.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := k.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := k.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	root := &front{t: t, name: "root", handler: k.Handler()}
	fill(root, docs)
	g := &generator{r: testRand(t), docs: docs}
	for range 60 {
		same(t, one, root, g.next(), 1)
	}
	o := root.must(200, "GET", "/search?index=docs&q=*", "", nil).object(t)
	if shards, _ := o["shards"].(map[string]any); number(t, shards, "total") != 4 || number(t, shards, "ok") != 4 {
		t.Errorf("shards: %v", o["shards"])
	}
	under[0][1][0].stop()
	o = root.must(200, "GET", "/search?index=docs&q=*", "", nil).object(t)
	shards, _ := o["shards"].(map[string]any)
	coverage, _ := o["coverage"].(map[string]any)
	if number(t, shards, "total") != 4 || number(t, shards, "ok") != 3 || coverage["complete"] != false {
		t.Errorf("with a leaf gone: %v %v", shards, coverage)
	}
}
