package node

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	shardv1 "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/leaf/rpc"
	"github.com/weft-search/weft/internal/wire/frame"
)

// address returns where the node listens for a protocol.
func (s *server) address(p Protocol) string {
	s.t.Helper()
	for _, l := range s.node.Listeners() {
		if l.Protocol == p {
			return l.Addr
		}
	}
	s.t.Fatalf("the node does not listen for %s", p)
	return ""
}

func (s *server) grpc() *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address(GRPC), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

func TestEveryListenerServesTheSameNode(t *testing.T) {
	s := newServer(t, Config{HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", ShardAddr: "127.0.0.1:0"})
	var order []string
	for _, l := range s.node.Listeners() {
		order = append(order, string(l.Protocol))
	}
	if got := strings.Join(order, " "); got != "http grpc shard" {
		t.Errorf("listeners %q", got)
	}
	s.put("default", `{"id":"1","t":"kept"}`)
	r, err := rpc.Dial(s.address(GRPC), rpc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := framed.NewClient(&frame.Client{Addr: s.address(Shard)})
	defer f.Close()
	for name, l := range map[string]leaf.Leaf{"grpc": r, "framed": f} {
		if reply, err := l.Docs(t.Context(), &leaf.DocsRequest{}); err != nil || reply.Docs != 1 {
			t.Errorf("%s: %v, %v", name, reply, err)
		}
	}
}

// An address that is taken leaves none of the others bound.
func TestAStartThatFailsBindsNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	n, err := New(Config{DataDir: t.TempDir(), HTTPAddr: addr, ShardAddr: taken.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(context.Background())
	if err := n.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "listen for shard on") {
		t.Fatalf("start: %v", err)
	}
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the address of HTTP is still bound: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// The health of gRPC is that of /readyz, and those who watch it learn of the end, which does not wait for them.
func TestHealthOfGRPCFollowsTheNode(t *testing.T) {
	s := newServer(t, Config{GRPCAddr: "127.0.0.1:0"})
	conn := s.grpc()
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: shardv1.Shard_ServiceDesc.ServiceName})
	if err != nil {
		t.Fatal(err)
	}
	next := func() healthpb.HealthCheckResponse_ServingStatus {
		t.Helper()
		m, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m.Status
	}
	// The node is open before the test has it, but the watch may have begun in between.
	for next() != healthpb.HealthCheckResponse_SERVING {
	}
	info, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := info.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	list, err := info.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, svc := range list.GetListServicesResponse().GetService() {
		names = append(names, svc.Name)
	}
	if got := strings.Join(names, " "); !strings.Contains(got, shardv1.Shard_ServiceDesc.ServiceName) || !strings.Contains(got, "grpc.health.v1.Health") {
		t.Errorf("services %q", got)
	}
	// Both streams are open. Close waits for calls without a bound, and they are none.
	if err := s.node.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
	if m, err := watch.Recv(); err == nil && m.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("whoever watches learned %v", m.Status)
	}
	if _, err := info.Recv(); err == nil || errors.Is(err, io.EOF) || status.Code(err) != codes.Unavailable {
		t.Errorf("the stream of reflection ended with %v", err)
	}
}

// Connections beyond the bound are closed, those within are served, and one that ends makes room.
func TestConnectionsOfShardGRPCAreBounded(t *testing.T) {
	s := newServer(t, Config{GRPCAddr: "127.0.0.1:0", Limits: Limits{ShardConns: 2}})
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", s.address(GRPC))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// A server of HTTP/2 sends its settings first, so one byte tells that a connection was taken.
	taken := func(c net.Conn) bool {
		_, err := io.ReadFull(c, make([]byte, 1))
		return err == nil
	}
	first, second := dial(), dial()
	defer second.Close()
	if !taken(first) || !taken(second) {
		t.Fatal("a connection within the bound was not taken")
	}
	third := dial()
	defer third.Close()
	if taken(third) {
		t.Error("a connection beyond the bound was taken")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		c := dial()
		ok := taken(c)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if ok {
			return
		}
	}
}

// Whoever connects and says nothing, as a check of health by TCP does, or no more than a part of what comes before calls, does not hold the
// end of the node up: no server waits for it as long as it would wait for its first words.
func TestBareConnectionsDoNotHoldTheEndUp(t *testing.T) {
	s := newServer(t, Config{HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", ShardAddr: "127.0.0.1:0"})
	var conns []net.Conn
	for _, p := range []Protocol{HTTP, GRPC, Shard} {
		for range 3 {
			c, err := net.Dial("tcp", s.address(p))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			conns = append(conns, c)
		}
	}
	if _, err := io.WriteString(conns[3], "PRI * HTTP/2.0"); err != nil {
		t.Fatal(err)
	}
	until(t, "every connection is taken", func() bool {
		http, _ := s.node.front.Connections(HTTP)
		grpc, _ := s.node.front.Connections(GRPC)
		return http+grpc == 6
	})
	began := time.Now()
	if err := s.node.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the node closed after %v", took)
	}
	for i, c := range conns {
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d ended with %v", i, err)
		}
	}
}

// A connection on which the handshake stops half-way is cut when the time to end is over, not when its own is.
func TestAHandshakeThatStopsHalfWayIsCut(t *testing.T) {
	s := newServer(t, Config{GRPCAddr: "127.0.0.1:0"})
	c, err := net.Dial("tcp", s.address(GRPC))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The preface, and the header of settings that do not follow.
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x06\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	until(t, "the connection is in use", func() bool {
		_, inUse := s.node.front.Connections(GRPC)
		return inUse == 1
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	began := time.Now()
	if err := s.node.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the node closed after %v", took)
	}
}
