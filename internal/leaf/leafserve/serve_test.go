package leafserve

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	shardv1 "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/leaf/rpc"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/wire/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting is a leaf of which only Docs is called.
type counting struct{ leaf.Member }

func (counting) Docs(ctx context.Context, req *leaf.DocsRequest) (*leaf.DocsReply, error) {
	serve.Begun(ctx)
	return &leaf.DocsReply{Docs: uint64(len(req.Index))}, nil
}

// TestAnyLeafIsServed: over both protocols, with the health of gRPC that of the server, within the memory of the server.
func TestAnyLeafIsServed(t *testing.T) {
	log, m := slog.New(slog.NewTextHandler(t.Output(), nil)), obs.NewMetrics("test")
	f := front.New(front.Config{Log: log, Metrics: m, Limits: front.Limits{
		URLBytes: 1 << 10, HeaderBytes: 1 << 10, RequestBytes: 16 << 20, RequestQueue: 1, QueueWait: time.Minute, ReplyRoom: 1 << 20,
		BodyStall: time.Minute, ReplyTime: time.Minute, IdleTime: time.Minute,
	}})
	s := New(Config{Leaf: counting{}, Front: f, Log: log, Metrics: m, Limits: Limits{
		Conns: 8, Calls: 8, RequestBytes: 16 << 20, QueueWait: time.Minute, DocumentBytes: 1 << 20, FrameBytes: 1 << 20,
		SearchTimeout: time.Minute, BodyStall: time.Minute, ReplyTime: time.Minute,
	}})
	const free = "127.0.0.1:0"
	if err := f.Listen(t.Context(), s.GRPC(free), s.Framed(free)); err != nil {
		t.Fatal(err)
	}
	f.Serve()
	conn, err := grpc.NewClient(f.Addr(GRPC), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	healthy := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, name := range []string{"", shardv1.Shard_ServiceDesc.ServiceName} {
			r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
			if err != nil || r.Status != want {
				t.Errorf("health of %q: %v, %v; want %v", name, r, err, want)
			}
		}
	}
	healthy(healthpb.HealthCheckResponse_NOT_SERVING)
	f.Ready()
	healthy(healthpb.HealthCheckResponse_SERVING)

	over, err := rpc.Dial(f.Addr(GRPC), rpc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	frames := framed.NewClient(&frame.Client{Addr: f.Addr(Shard)})
	for name, l := range map[string]leaf.Leaf{"grpc": over, "framed": frames} {
		if r, err := l.Docs(t.Context(), &leaf.DocsRequest{Index: "five5"}); err != nil || r.Docs != 5 {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	if open, inUse := f.Connections(GRPC); open != 2 || inUse != 2 {
		t.Errorf("%d connections of gRPC, %d in use", open, inUse)
	}
	// What a long frame takes is charged to the server, whose refusal it is.
	full, err := f.Memory().TryEnter(f.Memory().Limit())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := frames.Docs(t.Context(), &leaf.DocsRequest{Index: strings.Repeat("x", 100<<10)}); err == nil || !strings.Contains(err.Error(), string(api.RequestMemoryFull)) {
		t.Errorf("without memory: %v", err)
	}
	full.Release()

	if err := over.Close(); err != nil {
		t.Error(err)
	}
	if err := frames.Close(); err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Shutdown(context.Background(), func() {}); err != nil {
		t.Errorf("end: %v", err)
	}
	f.Wait()
}
