package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/cluster/coordinator"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a step may take on a slow machine.
const patience = time.Minute

// front is a node or a cluster behind its HTTP surface.
type front struct {
	t       testing.TB
	name    string
	handler http.Handler
}

// reply is what came back.
type reply struct {
	status int
	body   []byte
}

// do makes one call.
func (f *front) do(method, target, ctype string, body []byte) reply {
	f.t.Helper()
	return f.doWith(method, target, ctype, body, nil)
}

// doWith makes one call with headers.
func (f *front) doWith(method, target, ctype string, body []byte, headers map[string]string) reply {
	f.t.Helper()
	r := httptest.NewRequestWithContext(f.t.Context(), method, target, bytes.NewReader(body))
	if ctype != "" {
		r.Header.Set("Content-Type", ctype)
	}
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return reply{w.Code, w.Body.Bytes()}
}

// must is do that has to end with a status.
func (f *front) must(status int, method, target, ctype string, body []byte) reply {
	f.t.Helper()
	r := f.do(method, target, ctype, body)
	if r.status != status {
		f.t.Fatalf("%s: %s %s: %d %s", f.name, method, target, r.status, r.body)
	}
	return r
}

// object decodes a reply.
func (r reply) object(t testing.TB) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return out
}

// openNode starts a node in the test's process.
func openNode(t testing.TB, dir string) *node.Node {
	t.Helper()
	n, err := node.New(node.Config{DataDir: dir, SlowSearch: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// single starts one node.
func single(t testing.TB) *front {
	n := openNode(t, t.TempDir())
	return &front{t: t, name: "node", handler: n.Handler()}
}

// cluster is a coordinator over nodes in the test's process.
type cluster struct {
	*front
	coordinator *coordinator.Coordinator
	nodes       [][]*node.Node // by group
	leaves      map[string]leaf.Member
	cut         bool // calls are cut off when coordinators end
}

func address(group, member int) string { return fmt.Sprintf("shard-%d-%d:1", group, member) }

// open starts groups of nodes and a coordinator over them.
func open(t testing.TB, shards, replicas int, rule placement.Rule) *cluster {
	t.Helper()
	c := bare(t, shards, replicas)
	c.front = &front{t: t, name: fmt.Sprintf("%d×%d %s", shards, replicas, rule)}
	c.coordinator = c.coordinate(shards, rule, coordinator.Config{})
	c.handler = c.coordinator.Handler()
	return c
}

// bare starts groups of nodes.
func bare(t testing.TB, shards, replicas int) *cluster {
	t.Helper()
	c := &cluster{front: &front{t: t}, leaves: map[string]leaf.Member{}}
	for g := range shards {
		var members []*node.Node
		for m := range replicas {
			n := openNode(t, t.TempDir())
			members = append(members, n)
			c.leaves[address(g, m)] = n.Leaf()
		}
		c.nodes = append(c.nodes, members)
	}
	return c
}

// coordinate starts a coordinator over the first groups of the cluster.
func (c *cluster) coordinate(shards int, rule placement.Rule, cfg coordinator.Config) *coordinator.Coordinator {
	t := c.t
	t.Helper()
	var groups []shardmap.Group
	for g := range shards {
		var group shardmap.Group
		for m := range c.nodes[g] {
			group.Members = append(group.Members, address(g, m))
		}
		groups = append(groups, group)
	}
	sm, err := shardmap.New(rule, 0, groups)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Shards, cfg.SlowSearch = sm, -1
	cfg.Dial = func(addr string) (leaf.Member, error) {
		l, ok := c.leaves[addr]
		if !ok {
			return nil, fmt.Errorf("there is no member %s", addr)
		}
		return borrowed{l}, nil
	}
	k, err := coordinator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := k.Close(ctx); err != nil && !c.cut {
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
	return k
}

// borrowed is a leaf of a node that several coordinators use: none of them closes it.
type borrowed struct{ leaf.Member }

func (borrowed) Close() error { return nil }

// testRand is a source of chance whose seed is in the log of the test.
func testRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 3))
}

// target is a path with parameters.
func target(path string, params url.Values) string {
	if len(params) == 0 {
		return path
	}
	return path + "?" + params.Encode()
}
