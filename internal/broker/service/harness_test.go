package service_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/broker/fleet"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/broker/service"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// raw is a codec whose messages are their bytes.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = bytes.Clone(data.Materialize())
	return nil
}

var _ encoding.CodecV2 = raw{}

// asked is a call that a node was made.
type asked struct {
	node, rpc string
	request   []byte
	encoding  string // of the request as it came
	deadline  bool
	ctx       context.Context
}

// fake is a node that answers what a test says.
type fake struct {
	id, shard string
	role      route.Role
	indexes   []string // that ListIndexes tells; see tell
	addr      string
	mu        sync.Mutex
}

// tell changes the indexes of a node under way.
func (n *fake) tell(indexes ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.indexes = indexes
}

// answers is how nodes answer all but ListIndexes; the error is a status.
type answers func(a *asked) ([]byte, error)

// nodes starts nodes, which end with the test.
func nodes(t testing.TB, answer answers, all ...*fake) {
	t.Helper()
	for _, n := range all {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n.addr = lis.Addr().String()
		g := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.StatsHandler(headers{}), grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30),
			grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error { return n.serve(ss, answer) }))
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := g.Serve(lis); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() {
			g.Stop()
			serving.Wait()
		})
	}
}

func (n *fake) serve(ss grpc.ServerStream, answer answers) error {
	method, _ := grpc.MethodFromServerStream(ss)
	a := &asked{node: n.id, rpc: method[strings.LastIndexByte(method, '/')+1:], ctx: ss.Context()}
	if err := ss.RecvMsg(&a.request); err != nil {
		return err
	}
	if e, ok := ss.Context().Value(encodingKey{}).(*string); ok {
		a.encoding = *e
	}
	_, a.deadline = ss.Context().Deadline()
	var reply []byte
	var err error
	if a.rpc == "ListIndexes" {
		n.mu.Lock()
		reply, err = proto.Marshal(&summapb.ListIndexesResponse{IndexNames: n.indexes})
		n.mu.Unlock()
	} else {
		reply, err = answer(a)
	}
	if err != nil {
		return err
	}
	return ss.SendMsg(&reply)
}

// headers notes how a request is compressed.
type headers struct{}

type encodingKey struct{}

func (headers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, encodingKey{}, new(string))
}

func (headers) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InHeader); ok {
		*ctx.Value(encodingKey{}).(*string) = in.Compression
	}
}

func (headers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (headers) HandleConn(context.Context, stats.ConnStats)                       {}

// source tells of the nodes and of no change.
func source(all []*fake) fleet.Static {
	var s fleet.Static
	for _, n := range all {
		s = append(s, fleet.Node{ID: n.id, Address: n.addr, Shard: n.shard, Role: n.role, Ready: true})
	}
	return s
}

// placement reads rules.
func placement(t testing.TB, otherwise string, rules ...string) *route.Placement {
	t.Helper()
	p, err := route.NewPlacement(rules, otherwise)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serving is a broker under way with a connection to it.
type serving struct {
	*service.Broker
	addr, metrics string
	conn          *grpc.ClientConn
	admin         brokerpb.BrokerServiceClient
}

// start starts a broker that looks at its nodes once, unless cfg says otherwise, and waits until all of them are healthy. It ends with the
// test.
func start(t testing.TB, cfg service.Config, healthy int) *serving {
	t.Helper()
	cfg.Addr, cfg.MetricsAddr = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Log, cfg.Metrics = obs.Discard(), obs.NewMetrics("test")
	if cfg.PollInterval == 0 {
		cfg.PollInterval = time.Hour
	}
	if cfg.ListTimeout == 0 {
		cfg.ListTimeout = time.Minute // this machine may be slow
	}
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
	s := &serving{Broker: b}
	for _, l := range b.Listeners() {
		if l.Protocol == relay.Protocol {
			s.addr = l.Addr
		} else {
			s.metrics = l.Addr
		}
	}
	s.conn, err = grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.conn.Close(); err != nil {
			t.Error(err)
		}
	})
	s.admin = brokerpb.NewBrokerServiceClient(s.conn)
	soon(t, fmt.Sprint(healthy, " healthy nodes"), func() bool { return s.healthy(t) == healthy })
	return s
}

func (s *serving) backends(t testing.TB) []*brokerpb.BackendState {
	t.Helper()
	r, err := s.admin.GetBackends(t.Context(), &brokerpb.GetBackendsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Backends
}

func (s *serving) healthy(t testing.TB) int {
	t.Helper()
	n := 0
	for _, b := range s.backends(t) {
		if b.Health == "healthy" {
			n++
		}
	}
	return n
}

// method is the path of a call by its name.
func method(rpc string) string {
	m := summagolden.Method(rpc)
	return fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
}

// call makes a call of bytes, with one message or, of a stream, several.
func (s *serving) call(ctx context.Context, rpc string, requests [][]byte, o ...grpc.CallOption) ([]byte, error) {
	st, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method(rpc), append([]grpc.CallOption{grpc.ForceCodecV2(raw{})}, o...)...)
	if err != nil {
		return nil, err
	}
	for _, r := range requests {
		if err := st.SendMsg(&r); err != nil {
			break // the status is what RecvMsg tells
		}
	}
	var reply []byte
	if err := st.CloseSend(); err != nil {
		return nil, err
	}
	if err := st.RecvMsg(&reply); err != nil {
		return nil, err
	}
	return reply, nil
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

func want(t testing.TB, what string, err error, code codes.Code, text string) bool {
	t.Helper()
	if st := status.Convert(err); st.Code() != code || st.Message() != text {
		t.Errorf("%s:\n got %s %q\nwant %s %q", what, st.Code(), st.Message(), code, text)
		return false
	}
	return true
}

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
