package summanode

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/protoweight"
)

// emptyHost has no index.
type emptyHost struct {
	closing bool
	use     func()                     // called by Use; may be nil
	schema  *schema.Schema             // of the index a; nil: there is none
	write   func(ops []shard.Op) error // may be nil
	mu      sync.Mutex
	charged int64 // now
	most    int64 // ever
	limit   int64
	names   []string // of indexes; nil: a and b
}

func (h *emptyHost) Enter() bool { return !h.closing }
func (h *emptyHost) Leave()      {}
func (h *emptyHost) Use(_ context.Context, name string) (*Index, error) {
	if h.use != nil {
		h.use()
	}
	if name != "a" || h.schema == nil {
		return nil, summa.NoIndex(name)
	}
	return &Index{Name: name, Engine: fixedEngine{s: h.schema}, Context: context.Background(), OnCommit: true, Release: func() {}}, nil
}

// fixedEngine has a schema and nothing else.
type fixedEngine struct {
	Engine
	s *schema.Schema
}

func (e fixedEngine) Schema() *schema.Schema { return e.s }

func (h *emptyHost) Create(context.Context, string, *schema.Schema, bool) (bool, error) {
	return false, errors.New("none")
}
func (h *emptyHost) Delete(context.Context, string) error { return nil }
func (h *emptyHost) Names() []string {
	if h.names != nil {
		return slices.Clone(h.names)
	}
	return []string{"a", "b"}
}

func (h *emptyHost) Write(_ context.Context, _ *Index, ops []shard.Op, _ int) ([]shard.OpResult, error) {
	if h.write == nil {
		return nil, errors.New("none")
	}
	return make([]shard.OpResult, len(ops)), h.write(ops)
}
func (h *emptyHost) Full(error) bool { return false }
func (h *emptyHost) Refusal(_ context.Context, err error) *summa.Error {
	return &summa.Error{Code: codes.Internal, Text: err.Error()}
}

func (h *emptyHost) Charge(_ context.Context, have, more int64) (int64, func(), error) {
	given := min(more, h.limit-have)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.charged += given
	h.most = max(h.most, h.charged)
	return given, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.charged -= given
	}, nil
}
func (h *emptyHost) MemoryLimit() int64            { return h.limit }
func (h *emptyHost) Samples(func(obs.IndexSample)) {}
func (h *emptyHost) Counted(int, int, int)         {}

// serving serves a host and returns a connection to it.
func serving(t *testing.T, h *emptyHost, l Limits) *grpc.ClientConn {
	t.Helper()
	if h.limit == 0 {
		h.limit = 1 << 30
	}
	s := New(Config{Host: h, Limits: l.WithDefaults(2), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: obs.NewMetrics("test")})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l2 := s.Binding("").Server(lis)
	done := make(chan error, 1)
	go func() { done <- l2.Serve() }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(conn.Close(), l2.Shutdown(context.Background()), l2.Close())
		if serr := <-done; err != nil || serr != nil && !errors.Is(serr, l2.Closed) {
			t.Error(err, serr)
		}
		if h.charged != 0 {
			t.Errorf("%d bytes are still charged", h.charged)
		}
	})
	return conn
}

func want(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if st := status.Convert(err); st.Code() != code || st.Message() != text {
		t.Errorf("got %v %q, want %v %q", st.Code(), st.Message(), code, text)
	}
}

// A query of as many levels as are allowed is read, however many that are, and one of a level more is told so.
func TestDeepQueriesAreRead(t *testing.T) {
	deep := func(levels int, one func(inner *summapb.Query) *summapb.Query) *summapb.Query {
		q := &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}
		for range levels - 1 {
			q = one(q)
		}
		return q
	}
	for _, levels := range []int{32, 300, summa.MostQueryDepth} {
		conn := serving(t, &emptyHost{}, Limits{Query: summa.Limits{MaxQueryDepth: levels, MaxQueryNodes: 10_000, MaxQueryClauses: 10_000}})
		for name, one := range map[string]func(inner *summapb.Query) *summapb.Query{
			"boosts": func(inner *summapb.Query) *summapb.Query {
				return &summapb.Query{Query: &summapb.Query_Boost{Boost: &summapb.BoostQuery{Query: inner, Boost: 1}}}
			},
			"Booleans": func(inner *summapb.Query) *summapb.Query {
				return &summapb.Query{Query: &summapb.Query_Boolean{Boolean: &summapb.BooleanQuery{Must: []*summapb.Query{inner}}}}
			},
			"a fusion": func(inner *summapb.Query) *summapb.Query {
				return &summapb.Query{Query: &summapb.Query_Boolean{Boolean: &summapb.BooleanQuery{Must: []*summapb.Query{inner}}}}
			},
		} {
			for more, text := range []string{"Index 'x' not found", fmt.Sprintf("Query nesting depth must not exceed %d", levels)} {
				q := deep(levels+more, one)
				if name == "a fusion" {
					q = &summapb.Query{Query: &summapb.Query_Fusion{Fusion: &summapb.FusionQuery{Queries: []*summapb.WeightedQuery{{Query: deep(levels+more-1, one)}}}}}
				}
				_, err := summapb.NewSearchServiceClient(conn).Search(t.Context(), &summapb.SearchRequest{IndexName: "x", Query: q})
				want(t, err, []codes.Code{codes.NotFound, codes.InvalidArgument}[more], text)
			}
		}
	}
}

func TestCallsOfAClosingNode(t *testing.T) {
	conn := serving(t, &emptyHost{closing: true}, Limits{})
	_, err := summapb.NewIndexServiceClient(conn).ListIndexes(t.Context(), &summapb.ListIndexesRequest{})
	want(t, err, codes.Unavailable, "Summa server is shutting down")
	st, err := summapb.NewIndexServiceClient(conn).IndexDocuments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.CloseAndRecv()
	want(t, err, codes.Unavailable, "Summa server is shutting down")
}

// TestCallsOfOneConnection has more calls than one connection may: the last ones run when the first end.
func TestCallsOfOneConnection(t *testing.T) {
	inside, release := make(chan struct{}, 2*grpcmsg.PerConn), make(chan struct{})
	conn := serving(t, &emptyHost{use: func() {
		inside <- struct{}{}
		<-release
	}}, Limits{})
	c := summapb.NewIndexServiceClient(conn)
	var calls sync.WaitGroup
	for range grpcmsg.PerConn + 10 {
		calls.Go(func() {
			_, err := c.Commit(context.Background(), &summapb.CommitRequest{IndexName: "a"})
			want(t, err, codes.NotFound, "Index 'a' not found")
		})
	}
	for range grpcmsg.PerConn {
		<-inside
	}
	// A call that waits can be left.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Commit(ctx, &summapb.CommitRequest{IndexName: "a"})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	if n := len(inside); n != 0 {
		t.Errorf("%d calls run beyond %d", n, grpcmsg.PerConn)
	}
	close(release)
	calls.Wait()
}

func TestSlowSenders(t *testing.T) {
	conn := serving(t, &emptyHost{}, Limits{Stall: 20 * time.Millisecond})
	st, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, "/summa.IndexService/Commit")
	if err != nil {
		t.Fatal(err)
	}
	want(t, st.RecvMsg(&summapb.CommitResponse{}), codes.DeadlineExceeded, "the request did not arrive in time")
}

// TestTricklingSenders sends a byte now and then: the time of the whole message counts.
func TestTricklingSenders(t *testing.T) {
	h := &emptyHost{limit: 1 << 30}
	s := New(Config{Host: h, Limits: Limits{Stall: time.Minute}.WithDefaults(2), Log: slog.New(slog.DiscardHandler), Metrics: obs.NewMetrics("test")})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		c := &call{s: s, ctx: ctx, cancel: cancel, decode: 64 << 20, in: &trickle{ctx: ctx, size: 8 << 20}}
		defer c.unload()
		began := time.Now()
		err := c.receive(&summapb.CommitRequest{})
		want(t, err, codes.DeadlineExceeded, "the request did not arrive in time")
		if took := time.Since(began); took != time.Minute+128*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// trickle is a message of which a piece comes every 50 seconds.
type trickle struct {
	ctx  context.Context
	size int
}

func (s *trickle) RecvCompress() string { return "" }
func (s *trickle) ReadMessageHeader(b []byte) error {
	binary.BigEndian.PutUint32(b[1:], uint32(s.size))
	return nil
}

func (s *trickle) Read(n int) (mem.BufferSlice, error) {
	select {
	case <-time.After(50 * time.Second):
		return mem.BufferSlice{mem.SliceBuffer(make([]byte, n))}, nil
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

// TestMessagesAreChargedBeforeTheyAreDecoded sends many small parts, and much in few bytes.
func TestMessagesAreChargedBeforeTheyAreDecoded(t *testing.T) {
	h := &emptyHost{}
	conn := serving(t, h, Limits{IndexDecode: 32 << 20})
	c := summapb.NewIndexServiceClient(conn)
	parts := func(n int) *summapb.BatchIndexDocumentsRequest {
		m := &summapb.BatchIndexDocumentsRequest{IndexName: "a", Documents: make([]*summapb.NamedDocument, n)}
		one := &summapb.NamedDocument{}
		for i := range m.Documents {
			m.Documents[i] = one
		}
		return m
	}
	_, err := c.BatchIndexDocuments(t.Context(), parts(100_000))
	want(t, err, codes.NotFound, "Index 'a' not found")
	if h.most < 100_000*protoweight.Message {
		t.Errorf("%d bytes were charged for 100,000 parts", h.most)
	}
	h.most = 0
	_, err = c.BatchIndexDocuments(t.Context(), parts(800_000))
	want(t, err, codes.ResourceExhausted, "the message has too many parts for its length")
	if size := int64(proto.Size(parts(800_000))); h.most > 3*size {
		t.Errorf("%d bytes were charged for a message of %d that was not decoded", h.most, size)
	}
	h.most = 0
	long := &summapb.CommitRequest{IndexName: string(bytes.Repeat([]byte("x"), 24<<20))}
	for _, name := range []string{"gzip", "zstd"} {
		_, err = c.Commit(t.Context(), long, grpc.UseCompressor(name))
		want(t, err, codes.InvalidArgument, "Index name must not exceed 255 characters")
		if h.most < 24<<20-freeBytes {
			t.Errorf("%s: %d bytes were charged for 24 MiB", name, h.most)
		}
		h.most = 0
	}
}

// TestABombTakesNoMemory sends few bytes that become too many, and short ones that are just long enough: what is charged is what the message
// is, and of one that is too long nothing but its bytes on the wire.
func TestABombTakesNoMemory(t *testing.T) {
	h := &emptyHost{}
	conn := serving(t, h, Limits{IndexDecode: 4 << 20})
	c := summapb.NewIndexServiceClient(conn)
	for _, name := range []string{"gzip", "zstd"} {
		h.most = 0
		bomb := &summapb.CommitRequest{IndexName: string(bytes.Repeat([]byte("x"), 16<<20))}
		_, err := c.Commit(t.Context(), bomb, grpc.UseCompressor(name))
		want(t, err, codes.ResourceExhausted, "Error decompressing: size limit, of `4194304` bytes, exceeded while decompressing compressed message")
		if h.most > 1<<20 {
			t.Errorf("%s: %d bytes were charged for a message that was refused", name, h.most)
		}
		for _, n := range []int{10, freeBytes - 10, freeBytes, freeBytes + 1, 1 << 20, 4<<20 - 10} {
			_, err := c.Commit(t.Context(), &summapb.CommitRequest{IndexName: string(bytes.Repeat([]byte("x"), n))}, grpc.UseCompressor(name))
			if n == 10 {
				want(t, err, codes.NotFound, "Index 'xxxxxxxxxx' not found")
				continue
			}
			want(t, err, codes.InvalidArgument, "Index name must not exceed 255 characters")
		}
	}
}

// TestMemoryIsNotWaitedForTwice sends a message that takes more than there is in all: it has all of it, and goes on.
func TestMemoryIsNotWaitedForTwice(t *testing.T) {
	h := &emptyHost{limit: 1 << 20}
	conn := serving(t, h, Limits{})
	_, err := summapb.NewIndexServiceClient(conn).Commit(t.Context(), &summapb.CommitRequest{IndexName: string(bytes.Repeat([]byte("x"), 8<<20))})
	want(t, err, codes.InvalidArgument, "Index name must not exceed 255 characters")
	if h.most != h.limit {
		t.Errorf("%d bytes were charged of %d", h.most, h.limit)
	}
}

func TestKeysAscend(t *testing.T) {
	var k keyMaker
	last := ""
	for range 100_000 {
		next := k.next()
		if next <= last || len(next) != 26 {
			t.Fatalf("%s follows %s", next, last)
		}
		last = next
	}
	// A clock that is set back changes nothing.
	k.last[0] = 0xff
	before := k.next()
	if after := k.next(); after <= before {
		t.Errorf("%s follows %s", after, before)
	}
}

// TestClientFaultsAreNotLogged has errors that callers have made: they are told, and nobody else is.
func TestClientFaultsAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	s := New(Config{Host: &emptyHost{}, Limits: Limits{}.WithDefaults(2), Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: obs.NewMetrics("test")})
	for _, err := range []error{errNoMessage, errUndecoded, grpcmsg.ErrDamaged, grpcmsg.ErrStalled} {
		if got := s.status(t.Context(), "Commit", err); !errors.Is(got, err) {
			t.Errorf("%v becomes %v", err, got)
		}
	}
	if log.Len() > 0 {
		t.Error(log.String())
	}
	if err := s.status(t.Context(), "Commit", errors.New("broken")); status.Code(err) != codes.Internal || log.Len() == 0 {
		t.Errorf("a failure of the node: %v, logged as %q", err, log.String())
	}
}

func TestNamesThatNoCallCanSayAreNotListed(t *testing.T) {
	conn := serving(t, &emptyHost{names: []string{"a", "a..b", "b"}}, Limits{})
	r, err := summapb.NewIndexServiceClient(conn).ListIndexes(t.Context(), &summapb.ListIndexesRequest{})
	if err != nil || !slices.Equal(r.IndexNames, []string{"a", "b"}) {
		t.Errorf("%v, %v", r, err)
	}
}
