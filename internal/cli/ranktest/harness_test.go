package ranktest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/broker/fleet"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/broker/service"
	"github.com/weft-search/weft/internal/cli/proctest"
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/node/summanode"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(proctest.Leave)) }

// server is something that serves Summa, and clients of it.
type server struct {
	addr   string
	conn   *grpc.ClientConn
	index  summapb.IndexServiceClient
	search summapb.SearchServiceClient
	admin  brokerpb.BrokerServiceClient // of brokers
}

func dial(t testing.TB, addr string, o ...grpc.DialOption) *server {
	t.Helper()
	o = append(o, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(512<<20), grpc.MaxCallSendMsgSize(512<<20)))
	conn, err := grpc.NewClient(addr, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return &server{addr, conn, summapb.NewIndexServiceClient(conn), summapb.NewSearchServiceClient(conn), brokerpb.NewBrokerServiceClient(conn)}
}

// startNode starts a node that keeps its data in memory. It ends with the test.
func startNode(t testing.TB) *server {
	t.Helper()
	n, err := node.New(node.Config{
		DataDir: "data", FS: memfs.New(nil), SummaAddr: "127.0.0.1:0", SlowSearch: -1,
		// A search that the broker gives up, since another shard has refused it, may still have its place when the next one comes.
		Summa: summanode.Limits{Searches: 16},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-n.Opened()
	return dial(t, n.Listeners()[0].Addr)
}

// settings are those of a broker as the program starts it, before nodes that are named a, b, … and lie on the shards s0, s1, ….
func settings(t testing.TB, addrs []string, rules ...string) service.Config {
	t.Helper()
	var backends []string
	for i, addr := range addrs {
		backends = append(backends, fmt.Sprintf("id=%c,addr=%s,shard=s%d", 'a'+i, addr, i))
	}
	source, err := fleet.ParseStatic(backends)
	if err != nil {
		t.Fatal(err)
	}
	placement, err := route.NewPlacement(rules, "single")
	if err != nil {
		t.Fatal(err)
	}
	const mib = 1 << 20
	return service.Config{
		Addr: "127.0.0.1:0", Source: source, Placement: placement, BackendSearches: 16,
		PollInterval: 15 * time.Second, ProbeInterval: 5 * time.Second, Grace: time.Minute, ListTimeout: time.Minute, // this machine may be slow
		Limits: relay.Limits{
			SearchDecode: 4 * mib, SearchEncode: 256 * mib, IndexDecode: 256 * mib, IndexEncode: 64 * mib, BackendDecode: 256 * mib, BackendEncode: 256 * mib,
		},
	}
}

// broker is one under way.
type broker struct {
	*server
	running *service.Broker
	metrics *obs.Metrics
	nodes   int
}

// startBroker starts a broker, and waits until it has seen that all its nodes are healthy. It ends with the test.
func startBroker(t testing.TB, cfg service.Config, o ...grpc.DialOption) *broker {
	t.Helper()
	cfg.Log, cfg.Metrics = cmp.Or(cfg.Log, obs.Discard()), cmp.Or(cfg.Metrics, obs.NewMetrics("test"))
	b, err := service.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &broker{server: dial(t, b.Listeners()[0].Addr, o...), running: b, metrics: cfg.Metrics}
	soon(t, "all nodes are healthy", func() bool {
		r, err := s.admin.GetBackends(t.Context(), &brokerpb.GetBackendsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range r.Backends {
			if n.Health != "healthy" {
				return false
			}
		}
		s.nodes = len(r.Backends)
		return s.nodes > 0
	})
	return s
}

// gauge is the value of a metric without labels; "" if there is none.
func (b *broker) gauge(t testing.TB, name string) string {
	t.Helper()
	page := httptest.NewRecorder()
	b.metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	for l := range strings.Lines(page.Body.String()) {
		if rest, ok := strings.CutPrefix(l, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// soon waits for something that comes by itself.
func soon(t testing.TB, what string, is func() bool) {
	t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for !is() {
		select {
		case <-every.C:
		case <-late.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}
