package hostiletest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-search/weft/internal/cli/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// full says that the long run is wanted.
var full = os.Getenv("WEFT_HOSTILE") == "full"

// patience is how long a step may take on a slow machine.
const patience = 2 * time.Minute

const (
	asJSON = "application/json"
	asText = "text/plain"
	ndjson = "application/x-ndjson"
)

// site is a process that speaks HTTP.
type site struct {
	t    *testing.T
	name string
	addr string
	proc *proctest.Process
	http *http.Client
}

// fleet is a broker over three groups of two nodes, and a node by itself.
type fleet struct {
	broker *site
	nodes  []*site
	alone  *site
}

// run starts a process.
func run(t *testing.T, name string, listeners int, args ...string) (*site, error) {
	bin, err := proctest.BuildPlain()
	if err != nil {
		return nil, err
	}
	p, err := proctest.StartCommand(listeners, exec.Command(bin, append(args, "--log-level", "warn")...))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: patience}
	return &site{t: t, name: name, addr: p.Listening["http"], proc: p, http: client}, nil
}

// end ends processes in good order, side by side.
func end(t *testing.T, list ...*site) {
	var g errgroup.Group
	for _, s := range list {
		if s == nil {
			continue
		}
		s.http.CloseIdleConnections()
		g.Go(s.proc.Stop)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	for _, s := range list {
		if t.Failed() && s != nil {
			t.Logf("%s said:\n%s", s.name, s.proc.Stderr)
		}
	}
}

// start starts a fleet that ends with the test. The broker is ready, and keeps the map in a store, so that all calls about the cluster have an
// effect.
func start(t *testing.T) *fleet {
	t.Helper()
	dir := t.TempDir()
	nodes := make([]*site, 7)
	t.Cleanup(func() { end(t, nodes...) })
	var g errgroup.Group
	for i := range nodes {
		g.Go(func() (err error) {
			name := "node-" + strconv.Itoa(i)
			nodes[i], err = run(t, name, 2, "node", "--http", "127.0.0.1:0", "--shard-port", "127.0.0.1:0", "--data-dir", filepath.Join(dir, name))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	f := &fleet{nodes: nodes[:6], alone: nodes[6]}
	var groups []string
	for i := range 3 {
		groups = append(groups, nodes[2*i].proc.Listening["shard"]+"|"+nodes[2*i+1].proc.Listening["shard"])
	}
	var err error
	if f.broker, err = run(t, "broker", 2, "broker", "--http", "127.0.0.1:0", "--shard-port", "127.0.0.1:0", "--shards", strings.Join(groups, ","),
		"--store", filepath.Join(dir, "store"), "--data-dir", filepath.Join(dir, "broker")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, f.broker) })
	eventually(t, "the broker is ready", func() bool { return f.broker.get("/readyz").status == 200 })
	return f
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("%s: not in time", what)
		}
	}
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// code is that of a problem.
func (r reply) code() string {
	var p struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(r.body, &p); err != nil {
		return ""
	}
	return p.Code
}

// object decodes a reply.
func (r reply) object(t *testing.T) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%d %.300s: %v", r.status, r.body, err)
	}
	return out
}

// do makes a call.
func (s *site) do(method, target, ctype string, body []byte) reply {
	s.t.Helper()
	r, err := s.try(s.t.Context(), method, target, ctype, bytes.NewReader(body))
	if err != nil {
		s.t.Fatalf("%s: %s %.200s: %v", s.name, method, target, err)
	}
	return r
}

func (s *site) try(ctx context.Context, method, target, ctype string, body io.Reader) (r reply, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+target, body)
	if err != nil {
		return reply{}, err
	}
	if ctype != "" {
		req.Header.Set("Content-Type", ctype)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, b}, err
}

func (s *site) get(target string) reply {
	s.t.Helper()
	return s.do("GET", target, "", nil)
}

// must is do that has to end with a status.
func (s *site) must(status int, method, target, ctype, body string) reply {
	s.t.Helper()
	r := s.do(method, target, ctype, []byte(body))
	if r.status != status {
		s.t.Fatalf("%s: %s %.200s: %d %.300s", s.name, method, target, r.status, r.body)
	}
	return r
}

// metric is a number of /metrics, of all labels that begin so together.
func (s *site) metric(name string) float64 {
	s.t.Helper()
	sum := 0.0
	for line := range strings.Lines(string(s.must(200, "GET", "/metrics", "", "").body)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(line)[at+1:], 64)
		if err != nil {
			s.t.Fatalf("%s: %q: %v", s.name, line, err)
		}
		sum += v
	}
	return sum
}

// gates are the metrics of what has to be given back.
var gates = []string{
	"weft_admitted_searches", "weft_admitted_writes", "weft_admitted_bulks", "weft_admitted_scans", "weft_admitted_request_bytes",
	"weft_waiting_for_searches", "weft_waiting_for_writes", "weft_waiting_for_bulks", "weft_waiting_for_scans", "weft_waiting_for_request_bytes",
	"weft_shard_calls_in_flight",
}

// held tells what of the gates of a process is not given back, and which calls are under way besides the one that asks.
func (s *site) held() string {
	s.t.Helper()
	page := string(s.must(200, "GET", "/metrics", "", "").body)
	var out []string
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		name, value, _ := strings.Cut(line, " ")
		base, labels, _ := strings.Cut(name, "{")
		for _, g := range gates {
			if base == g && value != "0" {
				out = append(out, line)
			}
		}
		if base == "weft_http_requests_in_flight" && !strings.Contains(labels, `"metrics"`) && value != "0" && !(labels == "" && value == "1") {
			out = append(out, line)
		}
	}
	return strings.Join(out, ", ")
}

// memory is the resident memory of a process, now and at most so far, in MiB; 0 where the system does not tell.
func (s *site) memory() (now, most int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.proc.Cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.Atoi(f[1])
		switch {
		case err != nil:
		case f[0] == "VmRSS:":
			now = n >> 10
		case f[0] == "VmHWM:":
			most = n >> 10
		}
	}
	return now, most
}

// idle waits until nothing is held in any process, and tells how long that took.
func (f *fleet) idle(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	for _, s := range append([]*site{f.broker}, f.nodes...) {
		last := ""
		tell := time.Now().Add(10 * time.Second)
		eventually(t, s.name+" is idle", func() bool {
			if now := s.held(); now != last {
				if last = now; now != "" && time.Now().After(tell) {
					t.Logf("%s holds %s", s.name, now)
				}
			}
			return last == ""
		})
	}
	return time.Since(began)
}

// raw is a connection that requests are written to by hand.
type raw struct {
	t *testing.T
	*net.TCPConn
}

func connect(t *testing.T, s *site) raw {
	t.Helper()
	return connectTo(t, s.addr)
}

func connectTo(t *testing.T, addr string) raw {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return raw{t, c.(*net.TCPConn)}
}

// leave ends a connection at once, as a process that is killed may.
func (c raw) leave() {
	c.t.Helper()
	if err := errors.Join(c.SetLinger(0), c.Close()); err != nil {
		c.t.Error(err)
	}
}

// request is one as it is sent.
func request(method, target, ctype, body string) string {
	head := method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
	if ctype != "" {
		head += "Content-Type: " + ctype + "\r\n"
	}
	if body != "" {
		head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	return head + "\r\n" + body
}

// testRand is a source of chance whose seed is in the log of the test.
func testRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("WEFT_HOSTILE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (WEFT_HOSTILE_SEED)", seed)
	return rand.New(rand.NewPCG(seed, 9))
}

// target is a path with parameters.
func target(path string, params url.Values) string {
	if len(params) == 0 {
		return path
	}
	return path + "?" + params.Encode()
}

// number is a member of a reply that is a whole number.
func number(t *testing.T, o map[string]any, path ...string) int {
	t.Helper()
	var v any = o
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("%v: there is no %v", o, path)
		}
		v = m[name]
	}
	n, ok := v.(json.Number)
	if !ok {
		t.Fatalf("%v is %v", path, v)
	}
	i, err := n.Int64()
	if err != nil {
		t.Fatal(err)
	}
	return int(i)
}
