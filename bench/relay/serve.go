package main

import (
	"bufio"
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
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/broker/relay"
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

// request asks for a reply of a length: a search in the index "x" with a limit.
func request(size int) mem.BufferSlice {
	b := []byte{1<<3 | 2, 1, 'x', 3<<3 | 0}
	return mem.BufferSlice{mem.SliceBuffer(binary.AppendUvarint(b, uint64(size)))}
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
		g := bare(answer)
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
	fmt.Println(lis.Addr())
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
	stop()
	<-ended
	return in.Err()
}

// bare is a gRPC server with nothing but one unary method.
func bare(answer func(ctx context.Context, in mem.BufferSlice) (mem.BufferSlice, error)) *grpc.Server {
	g := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.InitialWindowSize(2<<20), grpc.InitialConnWindowSize(4<<20))
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "summa.SearchService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
			MethodName: "Search", Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var in mem.BufferSlice
				if err := dec(&in); err != nil {
					return nil, err
				}
				defer in.Free()
				out, err := answer(ctx, in)
				return &out, err
			},
		}},
	}, nil)
	return g
}

var memory = make([]byte, 256<<20)

func answer(_ context.Context, in mem.BufferSlice) (mem.BufferSlice, error) {
	size, n := binary.Uvarint(in.Materialize()[4:])
	if n <= 0 || size > uint64(len(memory)) {
		return nil, status.Error(codes.InvalidArgument, "no length")
	}
	return mem.BufferSlice{mem.SliceBuffer(memory[:size])}, nil
}
