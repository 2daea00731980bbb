package grpcraw

import (
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // registers gzip
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weft-search/weft/internal/wire/h2"
)

// TestPool lets a node go with a call under way.
func TestPool(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	at := serve(t, func(p *peer) {
		p.hello()
		id, ok := p.call()
		if !ok {
			return
		}
		begun <- struct{}{}
		<-release
		p.answer(id, "good")
		p.answering("good")
	})
	p := NewPool(Options{})
	n := p.Node(at)
	if p.Node(at) != n || p.Node("other:1") == n {
		t.Error("not one node for an address")
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if got, err := do(t, n, 0); got != "good" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
	<-begun
	p.Keep(map[string]struct{}{"other:1": {}})
	_, err := do(t, n, 0)
	want(t, "of a node that was let go", err, codes.Unavailable, "the node has left")
	close(release)
	wg.Wait()
	if p.Node(at) == n {
		t.Error("the node is still there")
	}
	p.Close()
	_, err = do(t, p.Node(at), 0)
	want(t, "of a pool that is closed", err, codes.Unavailable, "the node has left")
	if conns, calls := n.Counts(); conns != 0 || calls != 0 {
		t.Errorf("%d connections, %d calls", conns, calls)
	}
}

// TestPoolCloseEndsCalls also of nodes that were let go.
func TestPoolCloseEndsCalls(t *testing.T) {
	begun := make(chan struct{}, 1)
	at := serve(t, func(p *peer) {
		p.hello()
		if _, ok := p.call(); ok {
			begun <- struct{}{}
		}
		p.call()
	})
	p := NewPool(Options{})
	n := p.Node(at)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := do(t, n, 0)
		want(t, "a call under way", err, codes.Unavailable, "the node has left")
	})
	<-begun
	p.Keep(nil)
	p.Close()
	wg.Wait()
}

// grpcServer is a server of gRPC's own.
func grpcServer(t *testing.T, intercept grpc.UnaryServerInterceptor) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.UnaryInterceptor(intercept))
	healthpb.RegisterHealthServer(g, health.NewServer())
	var wg sync.WaitGroup
	wg.Go(func() { g.Serve(lis) })
	t.Cleanup(func() {
		g.Stop()
		wg.Wait()
	})
	return lis.Addr().String()
}

// TestTypedCalls are of a server of gRPC's own: replies, compressed ones, statuses with details, and deadlines.
func TestTypedCalls(t *testing.T) {
	n := newNode(t, grpcServer(t, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		switch req.(*healthpb.HealthCheckRequest).GetService() {
		case "details":
			st, err := status.New(codes.Aborted, "again").WithDetails(durationpb.New(time.Second))
			if err != nil {
				return nil, err
			}
			return nil, st.Err()
		case "slow":
			<-ctx.Done()
			return nil, ctx.Err()
		case "gzip":
			if err := grpc.SetSendCompressor(ctx, "gzip"); err != nil {
				return nil, err
			}
			return &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{strings.Repeat("x", 5000): {}}}, nil
		}
		return handler(ctx, req)
	}), Options{})
	check := func(service string, timeout time.Duration) (*healthpb.HealthCheckResponse, error) {
		var reply healthpb.HealthCheckResponse
		err := n.Invoke(t.Context(), healthpb.Health_Check_FullMethodName, timeout, &healthpb.HealthCheckRequest{Service: service}, &reply, 1<<20)
		return &reply, err
	}
	if r, err := check("", time.Minute); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	_, err := check("absent", 0)
	want(t, "unknown", err, codes.NotFound, "unknown service")
	_, err = check("details", 0)
	want(t, "details", err, codes.Aborted, "again")
	if d := status.Convert(err).Details(); len(d) != 1 {
		t.Errorf("details %v", d)
	}
	if _, err = check("slow", 100*time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("slow: %v", err)
	}
	var list healthpb.HealthListResponse
	invoke := func(most int) error {
		return n.Invoke(t.Context(), healthpb.Health_Check_FullMethodName, 0, &healthpb.HealthCheckRequest{Service: "gzip"}, &list, most)
	}
	if err := invoke(6000); err != nil || len(list.GetStatuses()) != 1 {
		t.Errorf("%v, %v", &list, err)
	}
	want(t, "longer inside", invoke(4000), codes.ResourceExhausted, "Error decompressing: size limit, of `4000` bytes, exceeded while decompressing compressed message")
	want(t, "too long", invoke(20), codes.ResourceExhausted, status.Convert(invoke(20)).Message())
}

// TestLongReplies come through every window that one may ask for.
func TestLongReplies(t *testing.T) {
	for _, size := range []int{FreeWindow - 6, FreeWindow - 5, FreeWindow - 4, FreeWindow, 70_000, 130_000, 300_000, 3 << 20} {
		at := serve(t, func(p *peer) {
			p.hello()
			id, ok := p.call()
			if !ok {
				return
			}
			p.head(id)
			body, window := message(strings.Repeat("x", size)), int64(FreeWindow)
			for len(body) > 0 {
				for window == 0 {
					_, of, b, ok := p.next(h2.Window)
					if !ok {
						return
					}
					if of == id {
						window += int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3])
					}
				}
				k := int(min(window, int64(len(body)), 10_000))
				p.frame(h2.Data, 0, id, body[:k])
				body, window = body[k:], window-int64(k)
			}
			p.tail(id, "0")
			p.call()
		})
		for _, most := range []int64{1, 70_000, 200_000, 10 << 20} {
			n := NewNode(at, Options{})
			s, err := n.Start(t.Context(), &Call{Method: "/s/m", Timeout: 20 * time.Second, Message: mem.BufferSlice{mem.SliceBuffer(message("ask"))}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Head(); err != nil {
				t.Fatal(err)
			}
			got := 0
			for {
				q, err := s.Read()
				if err != nil {
					if got != size+PrefixBytes || s.End() == nil || s.End().Code != codes.OK {
						t.Errorf("%d bytes, window of %d: %d came, %v", size, most, got, err)
					}
					break
				}
				if got == 0 && size+PrefixBytes > FreeWindow {
					s.Expect(int64(size+PrefixBytes), most)
				}
				got += q.Len()
				q.Free()
			}
			s.Close()
			n.Close()
		}
	}
}

// TestPaddedReplies come to their end: padding takes of the windows, and is given back.
func TestPaddedReplies(t *testing.T) {
	const size = 300_000
	at := serve(t, func(p *peer) {
		p.hello()
		id, ok := p.call()
		if !ok {
			return
		}
		p.head(id)
		body, window := message(strings.Repeat("x", size)), FreeWindow
		for len(body) > 0 {
			for window == 0 {
				_, of, b, ok := p.next(h2.Window)
				if !ok {
					return
				}
				if of == id {
					window += int(binary.BigEndian.Uint32(b))
				}
			}
			if window == 1 {
				p.frame(h2.Data, 0, id, body[:1])
				body, window = body[1:], 0
				continue
			}
			k := min((window+1)/2, len(body), 1000)
			pad := min(255, window-k-1)
			p.frame(h2.Data, h2.Padded, id, append(append([]byte{byte(pad)}, body[:k]...), make([]byte, pad)...))
			body, window = body[k:], window-k-1-pad
		}
		p.tail(id, "0")
		p.answering("short")
	})
	n := newNode(t, at, Options{})
	r, err := n.Do(t.Context(), &Call{Method: "/s/m", Timeout: 20 * time.Second, Message: mem.BufferSlice{mem.SliceBuffer(message("ask"))}}, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Data.Len() != size || r.End.Err() != nil {
		t.Errorf("%d bytes, %v", r.Data.Len(), r.End.Err())
	}
	r.Data.Free()
}

// TestIdleConnectionsHoldLittle has a thousand of them: what a reply was read into is not kept.
func TestIdleConnectionsHoldLittle(t *testing.T) {
	const nodes = 1000
	text := strings.Repeat("x", 16_000)
	at := serve(t, func(p *peer) {
		p.hello()
		p.answering(text)
	})
	heap := func() int64 {
		var m runtime.MemStats
		for range 2 { // what is in a sync.Pool goes with the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	p := NewPool(Options{Dial: (&memoryDialer{at: at}).dial})
	defer p.Close()
	before := heap()
	for i := range nodes {
		if got, err := do(t, p.Node(strconv.Itoa(i)), 0); got != text || err != nil {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	// The peers of the test are in the figure as well.
	each := (heap() - before) / nodes
	t.Logf("%d bytes for a connection with both of its ends", each)
	if most := int64(64 << 10); each > most {
		t.Errorf("%d bytes for a connection, and %d are as many as there should be", each, most)
	}
}

// memoryDialer makes all connections to one address.
type memoryDialer struct{ at string }

func (d *memoryDialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", d.at)
}
