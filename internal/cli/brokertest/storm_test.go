package brokertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
)

// kube is as much of an API server as a broker asks for: the list and the watch of pods. It notes whatever else is asked.
type kube struct {
	*httptest.Server
	mu      sync.Mutex
	version int
	pods    map[string]*pod
	events  []event
	news    chan struct{} // closed when there are more
	other   []string      // requests that are neither
}

// pod is a node as Kubernetes tells of it.
type pod struct {
	name, ip, shard, role string
	port                  int // 0: it is not annotated with one
	ready, leaving        bool
}

type event struct {
	version int
	line    []byte
}

func newKube(t *testing.T) *kube {
	t.Helper()
	k := &kube{version: 1, pods: map[string]*pod{}, news: make(chan struct{})}
	k.Server = httptest.NewServer(http.HandlerFunc(k.serve))
	t.Cleanup(k.end)
	return k
}

// end takes the API server away. It may be called more than once.
func (k *kube) end() {
	k.Listener.Close() // or who is cut off is there again
	k.CloseClientConnections()
	k.Close()
}

func (k *kube) object(p *pod) map[string]any {
	readiness := "False"
	if p.ready {
		readiness = "True"
	}
	const names = "summa.spacefrontiers.org/"
	labels := map[string]string{names + "shard-id": p.shard}
	if p.role != "" {
		labels[names+"role"] = p.role
	}
	meta := map[string]any{"name": p.name, "namespace": "summa", "resourceVersion": strconv.Itoa(k.version), "labels": labels}
	if p.port != 0 {
		meta["annotations"] = map[string]string{names + "grpc-port": strconv.Itoa(p.port)}
	}
	if p.leaving {
		meta["deletionTimestamp"] = "2026-01-02T03:04:05Z"
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": meta,
		"status": map[string]any{"podIP": p.ip, "conditions": []any{map[string]string{"type": "Ready", "status": readiness}}},
	}
}

// put adds or changes pods, and remove deletes one.
func (k *kube) put(t testing.TB, pods ...pod) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range pods {
		kind := "MODIFIED"
		if k.pods[p.name] == nil {
			kind = "ADDED"
		}
		k.pods[p.name] = &p
		k.tellLocked(t, kind, &p)
	}
}

func (k *kube) remove(t testing.TB, name string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pods[name]
	delete(k.pods, name)
	k.tellLocked(t, "DELETED", p)
}

func (k *kube) tellLocked(t testing.TB, kind string, p *pod) {
	t.Helper()
	k.version++
	line, err := json.Marshal(map[string]any{"type": kind, "object": k.object(p)})
	if err != nil {
		t.Error(err)
	}
	k.events = append(k.events, event{k.version, append(line, '\n')})
	close(k.news)
	k.news = make(chan struct{})
}

func (k *kube) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	switch {
	case r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/summa/pods":
		k.mu.Lock()
		k.other = append(k.other, r.Method+" "+r.URL.Path)
		k.mu.Unlock()
		http.NotFound(w, r)
	case q.Get("watch") == "":
		k.mu.Lock()
		list := map[string]any{"apiVersion": "v1", "kind": "PodList", "metadata": map[string]any{"resourceVersion": strconv.Itoa(k.version)}}
		items := []any{}
		for _, p := range k.pods {
			items = append(items, k.object(p))
		}
		list["items"] = items
		b, err := json.Marshal(list)
		k.mu.Unlock()
		if err == nil {
			w.Write(b)
		}
	default:
		from, err := strconv.Atoi(q.Get("resourceVersion"))
		if err != nil {
			http.Error(w, "no version", http.StatusBadRequest)
			return
		}
		flush := w.(http.Flusher).Flush
		flush()
		for {
			k.mu.Lock()
			i, _ := slices.BinarySearchFunc(k.events, from+1, func(e event, v int) int { return e.version - v })
			events, news := k.events[i:], k.news
			k.mu.Unlock()
			for _, e := range events {
				from = e.version
				if _, err := w.Write(e.line); err != nil {
					return
				}
			}
			flush()
			select {
			case <-news:
			case <-r.Context().Done():
				return
			}
		}
	}
}

// broker starts a broker that finds its nodes by the API server.
func (k *kube) broker(t *testing.T, flags ...string) *broker {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: k, cluster: {server: '" + k.URL +
		"'}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(plain(t), append([]string{"--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"}, flags...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+config, "KUBERNETES_SERVICE_HOST=", "KUBERNETES_SERVICE_PORT=", "RUST_LOG=warn")
	p := process(t, 2, cmd)
	return &broker{p, dial(t, p.Listening["summa"])}
}

// many are nodes at addresses of their own, which one handler serves: each tells of the indexes that it is asked for by its IP.
func many(t *testing.T, ips []string, indexes func(ip string) []string) (port int) {
	t.Helper()
	first, err := net.Listen("tcp", ips[0]+":0")
	if err != nil {
		t.Skipf("no more addresses than one on this machine: %v", err)
	}
	port = first.Addr().(*net.TCPAddr).Port
	listeners := []net.Listener{first}
	for _, ip := range ips[1:] {
		lis, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, lis)
	}
	lists := map[string][]byte{}
	for _, ip := range ips {
		b, err := proto.Marshal(&summapb.ListIndexesResponse{IndexNames: indexes(ip)})
		if err != nil {
			t.Fatal(err)
		}
		lists[ip] = append(prefix(false, len(b)), b...)
	}
	found := reply(t, 100)
	found = append(prefix(false, len(found)), found...)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		answer := found
		if strings.HasSuffix(r.URL.Path, "/ListIndexes") {
			answer = lists[r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr).IP.String()]
		}
		w.Write(answer)
		w.Header().Set("Grpc-Status", "0")
	})}
	srv.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	for _, lis := range listeners {
		serving.Go(func() {
			if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		srv.Close()
		serving.Wait()
	})
	return port
}

// times are how long calls took.
type times []time.Duration

func (d times) at(share float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[min(int(float64(len(s))*share), len(s)-1)]
}

func (d times) String() string {
	return fmt.Sprintf("%d calls, p50 %v, p99 %v, longest %v", len(d), d.at(0.5).Round(time.Microsecond), d.at(0.99).Round(time.Microsecond), d.at(1).Round(time.Microsecond))
}

// resident is the memory that a process has now, in bytes; 0 where the system does not tell.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var kb int64
		if n, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 && err == nil {
			return kb << 10
		}
	}
	return 0
}

// processor is the processor time of a process so far; 0 where the system does not tell.
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, which is in brackets, may hold anything. User and system time are the 12th and 13th field behind it, in hundredths of a second.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, uerr := strconv.Atoi(fields[11])
	system, serr := strconv.Atoi(fields[12])
	if errors.Join(uerr, serr) != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// TestAStormOfDiscoveryLeavesCallsAlone has a broker as it is delivered find 1,000 nodes with 100,000 indexes by an API server, which then tells of
// a thousand changes a second: pods that become ready and unready, go, and come back at another address. Calls of an index whose nodes stay are
// answered as before, and calls of all others are answered or told that nobody is there.
func TestAStormOfDiscoveryLeavesCallsAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a quarter of a minute")
	}
	if runtime.GOOS != "linux" {
		t.Skip("it takes a thousand addresses of the loopback network")
	}
	const nodes, shards, each = 1000, 500, 200
	var ips []string
	shardOf := map[string]int{}
	for i := range 2 * nodes { // each node has a second address to come back at
		ip := fmt.Sprintf("127.77.%d.%d", i/250, i%250+1)
		ips = append(ips, ip)
		shardOf[ip] = i % nodes % shards
	}
	ips = append(ips, "127.78.0.1", "127.78.0.2")
	index := func(shard, i int) string { return fmt.Sprintf("family-%03d-index-%03d", shard, i) }
	port := many(t, ips, func(ip string) (names []string) {
		shard, ok := shardOf[ip]
		if !ok {
			return []string{"steady"}
		}
		for i := range each {
			names = append(names, index(shard, i))
		}
		return names
	})
	api := newKube(t)
	of := func(i, address int) pod {
		return pod{name: fmt.Sprintf("node-%04d", i), ip: ips[address*nodes+i], shard: fmt.Sprintf("%03d", i%shards), port: port, ready: true}
	}
	for i := range nodes {
		api.put(t, of(i, 0))
	}
	for i := range 2 {
		api.put(t, pod{name: fmt.Sprint("steady-", i), ip: fmt.Sprint("127.78.0.", i+1), shard: "steady", port: port, ready: true})
	}
	other, _ := plainBroker(t, net.JoinHostPort("127.78.0.1", strconv.Itoa(port)))
	b := api.broker(t)
	pid := b.Cmd.Process.Pid
	empty := resident(t, pid)
	soon(t, "all nodes are healthy", func() bool { return b.metric(t, `summa_broker_backends{state="healthy"}`) == strconv.Itoa(nodes+2) })
	if r, err := b.index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{}); err != nil || len(r.IndexNames) != shards*each+1 {
		t.Fatalf("%d indexes, %v", len(r.GetIndexNames()), err)
	}

	r, err := b.admin.GetBackends(t.Context(), &brokerpb.GetBackendsRequest{}, grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil || len(r.Backends) != nodes+2 || len(r.Backends[0].Indexes) != each {
		t.Fatalf("%d nodes, %v", len(r.GetBackends()), err)
	}
	told, err := b.admin.GetTopology(t.Context(), &brokerpb.GetTopologyRequest{IndexName: index(7, 7)})
	if err != nil || len(told.Indexes) != 1 || len(told.Indexes[0].Partitions) != 1 || len(told.Indexes[0].Partitions[0].Replicas) != nodes/shards {
		t.Fatalf("%v, %v", told, err)
	}

	// calls makes calls one after the other until something has ended.
	calls := func(c *client, until <-chan struct{}, name func() string, fine func(error) bool) (took times) {
		for {
			select {
			case <-until:
				return took
			default:
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			_, err := c.search.Search(ctx, all(name()))
			cancel()
			took = append(took, time.Since(began))
			if !fine(err) {
				t.Errorf("a call failed: %v", err)
				return took
			}
		}
	}
	steady := func() string { return "steady" }
	good := func(err error) bool { return err == nil }
	after := func(d time.Duration) <-chan struct{} {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		t.Cleanup(cancel)
		return ctx.Done()
	}
	calls(b.client, after(200*time.Millisecond), steady, good)
	calm := calls(b.client, after(time.Second), steady, good)
	quiet := resident(t, pid)

	random := rand.New(rand.NewPCG(1, 2))
	at := make([]int, nodes)
	var most int64
	// storm makes changes for a while, with calls beside them. It tells how long those took, and the same calls through a broker that knows of these
	// two nodes only: all that happens here shares the processors. It tells too whether these had time for most of the changes.
	storm := func(length time.Duration) (stormy, control times, idle bool) {
		used := processor(t, pid)
		over := after(length)
		var beside sync.WaitGroup
		changes, told := 0, 0
		beside.Go(func() {
			every := time.NewTicker(10 * time.Millisecond)
			defer every.Stop()
			for {
				select {
				case <-over:
					return
				case <-every.C:
				}
				for range 10 {
					i := random.IntN(nodes)
					p := of(i, at[i])
					switch random.IntN(10) {
					case 0:
						api.remove(t, p.name)
						at[i] = 1 - at[i]
						p = of(i, at[i])
						changes++
					case 1, 2, 3, 4:
						p.ready = false
					}
					api.put(t, p)
					changes++
				}
				most = max(most, resident(t, pid))
			}
		})
		beside.Go(func() {
			r := rand.New(rand.NewPCG(3, 4))
			calls(b.client, over, func() string { return index(r.IntN(shards), r.IntN(each)) }, func(err error) bool {
				if err != nil {
					told++
				}
				return err == nil || status.Code(err) == codes.NotFound || status.Code(err) == codes.Unavailable
			})
		})
		beside.Go(func() { control = calls(other.client, over, steady, good) })
		stormy = calls(b.client, over, steady, good)
		beside.Wait()
		t.Logf("%d changes in %v, which took the broker %v of processor time: %v; of the other calls %d were told that nobody is there",
			changes, length, processor(t, pid)-used, stormy, told)
		t.Logf("through a broker that has no storm, meanwhile: %v", control)
		return stormy, control, float64(changes) > 700*length.Seconds()
	}
	// Whatever else runs on this machine delays one broker or the other: calls that took longer have to do so each time, and processors that have
	// no time for the test itself tell nothing.
	const tries = 3
	slow := 0
	for range tries {
		stormy, control, idle := storm(3 * time.Second)
		if t.Failed() || stormy.at(0.5) <= 5*control.at(0.5)+5*time.Millisecond && stormy.at(0.99) <= 5*control.at(0.99)+200*time.Millisecond {
			break
		}
		if idle {
			slow++
		}
	}
	if slow == tries {
		t.Errorf("calls took longer in the storm than what happens beside them tells")
	}
	for i := range nodes {
		api.put(t, of(i, 0))
	}
	soon(t, "all nodes are healthy again", func() bool { return b.metric(t, `summa_broker_backends{state="healthy"}`) == strconv.Itoa(nodes+2) })
	later := calls(b.client, after(time.Second), steady, good)
	end := resident(t, pid)
	t.Logf("before the storm: %v", calm)
	t.Logf("behind it: %v", later)
	t.Logf("resident: %d MiB at the start, %d with all nodes, %d in the storm at most, %d behind it", empty>>20, quiet>>20, most>>20, end>>20)
	if most > 320<<20 {
		t.Errorf("the broker took %d MiB", most>>20)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if len(api.other) > 0 {
		t.Errorf("the API server was asked for more than pods: %q", api.other)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}
