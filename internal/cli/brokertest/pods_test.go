package brokertest

import (
	"maps"
	"net"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	summapb "github.com/weft-search/weft/api/summa"
)

// TestNodesAreFoundAsPods has a broker find servers by the list and the watch of an API server, and follows a fleet through what happens to pods.
func TestNodesAreFoundAsPods(t *testing.T) {
	servers, direct, ports := map[string]*server{}, map[string]*client{}, map[string]int{}
	for _, id := range []string{"m", "f", "u"} {
		s := startServer(t, t.TempDir(), "127.0.0.1:0")
		_, port, err := net.SplitHostPort(s.addr)
		if err != nil {
			t.Fatal(err)
		}
		servers[id], direct[id] = s, dial(t, s.addr)
		if ports[id], err = strconv.Atoi(port); err != nil {
			t.Fatal(err)
		}
	}
	direct["m"].fill(t, "repl", 3)
	direct["f"].fill(t, "repl", 4)
	direct["u"].fill(t, "hidden", 2)
	api := newKube(t)
	m := pod{name: "m", ip: "127.0.0.1", shard: "0", role: "master", port: ports["m"], ready: true}
	f := pod{name: "f", ip: "127.0.0.1", shard: "0", role: "follower", port: ports["f"], ready: true}
	u := pod{name: "u", ip: "127.0.0.1", shard: "1"} // its port is what the flag says
	api.put(t, m, f, u, pod{name: "new", shard: "2", ready: true})
	b := api.broker(t, append(quick(nil), "--backend-port", strconv.Itoa(ports["u"]))...)
	b.becomes(t, "m", "healthy")
	b.becomes(t, "f", "healthy")

	seen := func() map[int]int {
		t.Helper()
		out := map[int]int{}
		for range 4 {
			r, err := b.search.Search(t.Context(), all("repl"))
			if err != nil {
				t.Fatal(err)
			}
			out[len(r.Hits)]++
		}
		return out
	}
	commit := func() uint32 {
		t.Helper()
		r, err := b.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "repl"})
		if err != nil {
			t.Fatal(err)
		}
		return r.NumDocs
	}
	if got := seen(); !maps.Equal(got, map[int]int{3: 2, 4: 2}) {
		t.Errorf("copies with so many documents answered so often: %v", got)
	}
	if n := commit(); n != 3 {
		t.Errorf("the master has %d documents", n)
	}
	// A pod that is not ready is shown, and neither polled nor used; one without an IP is not there.
	nodes := b.nodes(t)
	if n := nodes["u"]; len(nodes) != 3 || n.Ready || n.Health != "suspect" || n.IndexMapAgeMs != 1<<64-1 || n.Address != servers["u"].addr {
		t.Errorf("nodes are %v", nodes)
	}
	_, err := b.search.Search(t.Context(), all("hidden"))
	want(t, "an index of a pod that is not ready", err, codes.NotFound, "index 'hidden' is not present on any healthy backend")
	for state, n := range map[string]string{"healthy": "2", "suspect": "0", "evicted": "0", "unready": "1"} {
		if got := b.metric(t, `summa_broker_backends{state="`+state+`"}`); got != n {
			t.Errorf("%q nodes are %s, want %s", got, state, n)
		}
	}

	// It becomes ready, and is being deleted.
	u.ready = true
	api.put(t, u)
	b.becomes(t, "u", "healthy")
	if r, err := b.search.Search(t.Context(), all("hidden")); err != nil || len(r.Hits) != 2 {
		t.Errorf("%v, %v", r, err)
	}
	u.leaving = true
	api.put(t, u)
	soon(t, "the pod that leaves is not used", func() bool { return !b.nodes(t)["u"].GetReady() })
	_, err = b.search.Search(t.Context(), all("hidden"))
	want(t, "an index of a pod that leaves", err, codes.NotFound, "index 'hidden' is not present on any healthy backend")

	// Labels change places.
	m.role, f.role = f.role, m.role
	api.put(t, m)
	soon(t, "there is no master", func() bool { return b.nodes(t)["m"].GetRole() == "follower" })
	_, err = b.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "repl"})
	want(t, "a write without a master", err, codes.FailedPrecondition, "shard '0' has no master among 2 members; label exactly one pod with role=master")
	api.put(t, f)
	soon(t, "there is another master", func() bool { return b.nodes(t)["f"].GetRole() == "master" })
	if n := commit(); n != 4 {
		t.Errorf("the other master has %d documents", n)
	}

	// A pod goes, and comes back at the address of another one.
	api.remove(t, "m")
	soon(t, "the pod is gone", func() bool { return b.nodes(t)["m"] == nil })
	if got := seen(); !maps.Equal(got, map[int]int{4: 4}) {
		t.Errorf("copies with so many documents answered so often: %v", got)
	}
	m.shard, m.port = "3", ports["u"]
	api.put(t, m)
	b.becomes(t, "m", "healthy")
	if r, err := b.search.Search(t.Context(), all("hidden")); err != nil || len(r.Hits) != 2 {
		t.Errorf("%v, %v", r, err)
	}
	for kind, n := range map[string]string{"added": "4", "removed": "1"} {
		if got := b.metric(t, `summa_broker_discovery_events_total{type="`+kind+`"}`); got != n {
			t.Errorf("%q nodes are counted as %s, want %s", got, kind, n)
		}
	}

	// Without the API server all goes on as it is.
	api.end()
	if got := seen(); !maps.Equal(got, map[int]int{4: 4}) {
		t.Errorf("copies with so many documents answered so often: %v", got)
	}
	if r, err := healthpb.NewHealthClient(b.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if len(api.other) > 0 {
		t.Errorf("the API server was asked for more than pods: %q", api.other)
	}
}
