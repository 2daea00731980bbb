package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/cli"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

const (
	// roleFlag is the first argument of a process that serves, profileEnv names the file for its profile.
	roleFlag   = "-serve"
	profileEnv = "WEFT_BENCH_CPUPROFILE"
	method     = "/summa.SearchService/Search"
)

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

// process is one under way: it takes questions by lines.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startSelf(profile, name string, args ...string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(exe, append([]string{roleFlag}, args...)...)}
	p.cmd.Stderr = os.Stderr
	if profile != "" {
		p.cmd.Env = append(os.Environ(), profileEnv+"="+filepath.Join(profile, name+".pprof"))
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	return p, p.cmd.Start()
}

// stop ends the process: it ends with its input.
func (p *process) stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// serve is a process that serves. It prints its address, and answers each line with what it has used.
func serve(ctx context.Context, role string, args []string) (err error) {
	if file := os.Getenv(profileEnv); file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer func() {
			pprof.StopCPUProfile()
			f.Close()
		}()
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
	case whole:
		if err := lis.Close(); err != nil {
			return err
		}
		return serveWhole(ctx, args[0])
	default:
		return fmt.Errorf("no role %q", role)
	}
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	fmt.Println(lis.Addr())
	err = stats()
	stop()
	<-ended
	return err
}

// serveWhole is the program of the broker, with all that it does: the command line, discovery, admission and metrics.
func serveWhole(ctx context.Context, node string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := cli.Run(ctx, append([]string{"--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"}, wholeFlags(node)...),
			cli.IO{Stdout: in, Stderr: os.Stderr, LookupEnv: func(name string) (string, bool) {
				return map[string]string{"RUST_LOG": "warn"}[name], name == "RUST_LOG"
			}, Program: "summa-broker"})
		in.Close()
		ended <- code
	}()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "listening summa "); ok {
			fmt.Println(addr)
			break
		}
	}
	go io.Copy(io.Discard, out) // to the end of the program
	err := stats()
	cancel()
	if code := <-ended; code != 0 {
		err = errors.Join(err, fmt.Errorf("the broker ended with code %d", code))
	}
	return err
}

// wholeFlags are those of a broker before one node. Searches are counted against bounds that they do not reach.
func wholeFlags(node string) []string {
	return []string{"--discovery", "static", "--backend", "id=a,addr=" + node + ",shard=0", "--backend-max-searches", "1000", "--max-concurrent-searches", "1000"}
}

// stats answers each line with what the process has used, to the end of the input.
func stats() error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var use syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
			return err
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(int64(time.Duration(use.Utime.Nano()+use.Stime.Nano())), m.Mallocs)
	}
	return in.Err()
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
