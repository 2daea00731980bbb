package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/cli"
)

const (
	// roleFlag is the first argument of a process that serves, profileEnv names the file for its profile.
	roleFlag   = "-serve"
	profileEnv = "WEFT_BENCH_CPUPROFILE"

	// Names of indexes: an index that is called d and a number is answered after so many microseconds.
	nominating = "nominating"
	bulky      = "bulky"
	hits       = 10 // of a search
)

func delayed(wait time.Duration) string { return fmt.Sprint("d", wait.Microseconds()) }

// process is one under way: it takes questions by lines.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	first string // what it said first
}

func start(profile, role string, args ...string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(exe, append([]string{roleFlag, role}, args...)...)}
	p.cmd.Stderr = os.Stderr
	if profile != "" {
		p.cmd.Env = append(os.Environ(), profileEnv+"="+filepath.Join(profile, role+".pprof"))
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	if !p.out.Scan() {
		return nil, fmt.Errorf("%s did not start: %w", role, errors.Join(p.out.Err(), p.stop(), io.ErrUnexpectedEOF))
	}
	p.first = p.out.Text()
	return p, nil
}

// stop ends the process: it ends with its input.
func (p *process) stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// stat is what a process has used since it began.
type stat struct {
	cpu            time.Duration
	mallocs, bytes uint64
}

func (p *process) stat() (s stat, err error) {
	if _, err := fmt.Fprintln(p.in, "stat"); err != nil {
		return s, err
	}
	if !p.out.Scan() {
		return s, fmt.Errorf("a process ended: %w", errors.Join(p.out.Err(), io.ErrUnexpectedEOF))
	}
	var nanos int64
	_, err = fmt.Sscan(p.out.Text(), &nanos, &s.mallocs, &s.bytes)
	s.cpu = time.Duration(nanos)
	return s, err
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
		fmt.Println(use.Utime.Nano()+use.Stime.Nano(), m.Mallocs, m.TotalAlloc)
	}
	return in.Err()
}

// serve is a process that serves. It prints where, and answers each line with what it has used.
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
	switch role {
	case "nodes":
		return serveNodes(ctx)
	case "broker":
		return serveBroker(ctx, args)
	}
	return fmt.Errorf("no role %q", role)
}

// serveBroker is the program of the broker, with all that it does.
func serveBroker(ctx context.Context, nodes []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var names []string
	args := []string{"--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--discovery", "static"}
	for i, addr := range nodes {
		names = append(names, fmt.Sprint(i))
		args = append(args, "--backend", fmt.Sprintf("id=n%d,addr=%s,shard=%d", i, addr, i))
	}
	args = append(args, "--placement", bulky+"=0", "--placement", "*="+strings.Join(names, ","))
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := cli.Run(ctx, args, cli.IO{Stdout: in, Stderr: os.Stderr, LookupEnv: func(name string) (string, bool) {
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

// serveNodes are all nodes, each with an address of its own.
func serveNodes(context.Context) error {
	var addrs []string
	ended := make(chan error, shards)
	var servers []*grpc.Server
	for shard := range shards {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s, err := newNode(shard)
		if err != nil {
			return err
		}
		addrs, servers = append(addrs, lis.Addr().String()), append(servers, s)
		go func() { ended <- s.Serve(lis) }()
	}
	fmt.Println(strings.Join(addrs, " "))
	err := stats()
	for _, s := range servers {
		s.Stop()
		err = errors.Join(err, <-ended)
	}
	return err
}

// node answers searches from memory.
type node struct {
	summapb.UnimplementedSearchServiceServer
	summapb.UnimplementedIndexServiceServer
	found, nominated, bulk *summapb.SearchResponse
	stats                  *summapb.GetTextStatsResponse
}

func newNode(shard int) (*grpc.Server, error) {
	n := &node{nominated: &summapb.SearchResponse{}, bulk: &summapb.SearchResponse{TotalHits: 1}}
	n.found = &summapb.SearchResponse{TotalHits: 1000, TookMs: 3, Timings: &summapb.SearchTimings{SearchUs: 3000}}
	for i := range hits {
		h := hit(shard, i)
		h.Score = float32(hits-i) + float32(shard)/shards
		n.found.Hits = append(n.found.Hits, h)
	}
	b := nomination(shard)
	if err := proto.Unmarshal(b, n.nominated); err != nil {
		return nil, err
	}
	pad := &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: strings.Repeat("x", shards*len(b))}}
	n.bulk.Hits = []*summapb.SearchHit{{Fields: map[string]*summapb.FieldValueList{"body": {Values: []*summapb.FieldValue{pad}}}}}
	n.stats = &summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: 1000, Fields: []*summapb.TextFieldStats{{
		Field: "body", CorpusSize: 1000, AvgLen: 12, TotalTokens: 12_000, DocsWithField: 1000,
		Terms: []*summapb.TermDocFreq{{Term: []byte("loom"), DocFreq: 20}, {Term: []byte("weft"), DocFreq: 30}},
	}}}}
	g := grpc.NewServer(grpc.InitialWindowSize(2<<20), grpc.InitialConnWindowSize(4<<20), grpc.MaxRecvMsgSize(256<<20))
	summapb.RegisterSearchServiceServer(g, n)
	summapb.RegisterIndexServiceServer(g, n)
	return g, nil
}

// Search implements summapb.SearchServiceServer.
func (n *node) Search(ctx context.Context, req *summapb.SearchRequest) (*summapb.SearchResponse, error) {
	switch req.IndexName {
	case nominating:
		return n.nominated, nil
	case bulky:
		return n.bulk, nil
	}
	var wait int64
	if _, err := fmt.Sscanf(req.IndexName, "d%d", &wait); err != nil {
		return nil, status.Error(codes.NotFound, req.IndexName)
	}
	if wait > 0 {
		after := time.NewTimer(time.Duration(wait) * time.Microsecond)
		defer after.Stop()
		select {
		case <-after.C:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return n.found, nil
}

// GetTextStats implements summapb.SearchServiceServer.
func (n *node) GetTextStats(context.Context, *summapb.GetTextStatsRequest) (*summapb.GetTextStatsResponse, error) {
	return n.stats, nil
}

// ListIndexes implements summapb.IndexServiceServer.
func (n *node) ListIndexes(context.Context, *summapb.ListIndexesRequest) (*summapb.ListIndexesResponse, error) {
	names := []string{nominating, bulky}
	for ms := range 101 { // the waits that may be asked for
		names = append(names, delayed(time.Duration(ms)*time.Millisecond))
	}
	return &summapb.ListIndexesResponse{IndexNames: names}, nil
}

func hit(shard, doc int) *summapb.SearchHit {
	text := func(s string) *summapb.FieldValueList {
		return &summapb.FieldValueList{Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_Text{Text: s}}}}
	}
	return &summapb.SearchHit{
		Address: &summapb.DocAddress{SegmentId: fmt.Sprintf("%032x", shard+1), DocId: uint32(doc)},
		Fields:  map[string]*summapb.FieldValueList{"id": text(fmt.Sprint("doc/", shard, "/", doc)), "title": text("the title of a document")},
	}
}

// nomination is what a shard nominates: the same documents for both branches, each in an order of its own.
func nomination(shard int) []byte {
	r := rand.New(rand.NewPCG(9, uint64(shard)))
	m := &summapb.SearchResponse{RankingMethod: "fusion_candidates_v1", TotalHits: 2 * candidates}
	for doc := range candidates {
		m.Hits = append(m.Hits, hit(shard, doc))
	}
	for branch := range 2 {
		l := &summapb.FusionCandidateList{QueryIndex: uint32(branch)}
		for rank, doc := range r.Perm(candidates) {
			l.Candidates = append(l.Candidates, &summapb.FusionCandidate{Address: m.Hits[doc].Address, Score: float32(candidates-rank) + r.Float32()})
		}
		m.FusionCandidates = append(m.FusionCandidates, l)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // of our own making
	}
	return b
}
