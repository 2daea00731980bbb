package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/bench/internal/child"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

const method = "/summa.SearchService/Search"

// rawCodec leaves bytes as they are.
type rawCodec struct{}

// Marshal implements encoding.CodecV2. What is sent is gRPC's to free.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) { return *v.(*mem.BufferSlice), nil }

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	*v.(*mem.BufferSlice) = data
	return nil
}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "proto" }

// question is the front of a request: a search of everything in the index "x", whose limit is behind it.
var question = []byte{1<<3 | 2, 1, 'x', 2<<3 | 2, 2, 4<<3 | 2, 0, 3<<3 | 0}

// request asks for a reply of a length, by its limit.
func request(size int) mem.BufferSlice {
	return mem.BufferSlice{mem.SliceBuffer(binary.AppendUvarint(bytes.Clone(question), uint64(size)))}
}

// serve is a child.
func serve(ctx context.Context, role string, args []string) (err error) {
	if role == whole {
		return child.Broker(ctx, wholeFlags(args[0])...)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var run func() error
	var stop func()
	switch role {
	case backend:
		r := &replies{by: map[uint64][]byte{}}
		g := bare(r.answer)
		run, stop = func() error { return g.Serve(lis) }, g.Stop
	case "plain":
		c, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30)),
			grpc.WithInitialWindowSize(2<<20), grpc.WithInitialConnWindowSize(4<<20))
		if err != nil {
			return err
		}
		g := bare(func(ctx context.Context, in mem.BufferSlice) (out mem.BufferSlice, err error) {
			in.Ref()
			return out, c.Invoke(ctx, method, &in, &out)
		})
		run, stop = func() error { return g.Serve(lis) }, func() { g.Stop(); c.Close() }
	case "relay":
		n := grpcraw.NewNode(args[0], grpcraw.Options{})
		s := relay.New(relay.Config{
			Route: func(c *relay.Call) (relay.Target, error) {
				if c.Index() != "x" {
					return relay.Target{}, status.Error(codes.NotFound, c.Index())
				}
				return relay.Target{Node: n}, nil
			},
			Enter: func() bool { return true }, Leave: func() {}, Limits: relay.Limits{}.WithDefaults(), Log: slog.Default(),
		})
		l := s.Binding("").Server(lis)
		run, stop = l.Serve, func() { l.Close(); n.Close() }
	default:
		return fmt.Errorf("no role %q", role)
	}
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	err = child.Answer(lis.Addr().String())
	stop()
	<-ended
	return err
}

// wholeFlags are those of a broker before one node. Searches are counted against bounds that they do not reach.
func wholeFlags(node string) []string {
	return []string{"--discovery", "static", "--backend", "id=a,addr=" + node + ",shard=0", "--backend-max-searches", "1000", "--max-concurrent-searches", "1000"}
}

// bare is a gRPC server with nothing but searches, and the list of indexes that a broker asks for.
func bare(answer func(ctx context.Context, in mem.BufferSlice) (mem.BufferSlice, error)) *grpc.Server {
	g := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.InitialWindowSize(2<<20), grpc.InitialConnWindowSize(4<<20))
	register := func(service, name string, answer func(ctx context.Context, in mem.BufferSlice) (mem.BufferSlice, error)) {
		g.RegisterService(&grpc.ServiceDesc{
			ServiceName: service, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
				MethodName: name, Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
					var in mem.BufferSlice
					if err := dec(&in); err != nil {
						return nil, err
					}
					defer in.Free()
					// gRPC would compress as the request is, and the broker of the reference compresses those.
					if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
						return nil, err
					}
					out, err := answer(ctx, in)
					return &out, err
				},
			}},
		}, nil)
	}
	register("summa.SearchService", "Search", answer)
	register("summa.IndexService", "ListIndexes", func(context.Context, mem.BufferSlice) (mem.BufferSlice, error) {
		return mem.BufferSlice{mem.SliceBuffer{1<<3 | 2, 1, 'x'}}, nil
	})
	return g
}

// replies are searches' replies by their length, each made once.
type replies struct {
	mu sync.Mutex
	by map[uint64][]byte
}

func (r *replies) answer(_ context.Context, in mem.BufferSlice) (mem.BufferSlice, error) {
	size, n := binary.Uvarint(in.Materialize()[len(question):])
	if n <= 0 || size > 256<<20 {
		return nil, status.Error(codes.InvalidArgument, "no length")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by[size] == nil {
		b, err := reply(int(size))
		if err != nil {
			return nil, err
		}
		r.by[size] = b
	}
	return mem.BufferSlice{mem.SliceBuffer(r.by[size])}, nil
}

// reply is one of a length: hits with two short fields and one long, and padding.
func reply(size int) ([]byte, error) {
	text := func(s string) *summapb.FieldValueList {
		return &summapb.FieldValueList{Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_Text{Text: s}}}}
	}
	m := &summapb.SearchResponse{TotalHits: 1000, TookMs: 3}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	for i := 0; ; i++ {
		hit, err := proto.Marshal(&summapb.SearchResponse{Hits: []*summapb.SearchHit{{
			Address: &summapb.DocAddress{SegmentId: strings.Repeat("0123456789abcdef", 2), DocId: uint32(i)}, Score: float32(i),
			Fields: map[string]*summapb.FieldValueList{"id": text(fmt.Sprint("doc/", i)), "title": text("the title of a document"), "body": text(strings.Repeat("words of it ", 30))},
		}}})
		if err != nil {
			return nil, err
		}
		if len(b)+len(hit)+16 > size {
			break
		}
		b = append(b, hit...)
	}
	for pad := size - len(b); pad > 0; pad-- { // less what is in front of it
		if whole := protowire.AppendString(protowire.AppendTag(bytes.Clone(b), 6, protowire.BytesType), strings.Repeat("x", pad)); len(whole) == size {
			return whole, nil
		}
	}
	return nil, fmt.Errorf("no reply has %d bytes", size)
}
