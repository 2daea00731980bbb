package summatest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/cli/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// clientVersion is that of the package summa-client-python.
const clientVersion = "2.1.1"

// python makes a virtual environment with the client and returns its interpreter.
func python(t *testing.T) string {
	t.Helper()
	if os.Getenv("WEFT_SUMMA_CLIENT") == "" {
		t.Skip("WEFT_SUMMA_CLIENT is not set: it takes Python 3 and the package registry")
	}
	base, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("there is no Python: %v", err)
	}
	dir := t.TempDir()
	run(t, base, "-m", "venv", dir)
	venv := filepath.Join(dir, "bin", "python")
	run(t, venv, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "summa-client-python=="+clientVersion)
	return venv
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestPythonClientRunsUnchanged calls every method of the client against a node and against a broker before two nodes: an index is made,
// filled, committed, searched in every way, changed and deleted.
func TestPythonClientRunsUnchanged(t *testing.T) {
	py := python(t)
	flow := func(t *testing.T, p *proctest.Process) {
		t.Log(run(t, py, filepath.Join("testdata", "flow.py"), p.Listening["summa"]))
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	t.Run("node", func(t *testing.T) { flow(t, start(t, t.TempDir()).Process) })
	t.Run("broker", func(t *testing.T) {
		a, b := start(t, t.TempDir()), start(t, t.TempDir())
		// Each node has to have its turn: the index is on one of them.
		for _, rule := range []string{"shop=0", "shop=1"} {
			flow(t, startBroker(t, rule, a.Listening["summa"], b.Listening["summa"]))
		}
	})
}

// TestRealSummaServersTakeThePythonClient is the flow through a broker before two servers of the reference.
func TestRealSummaServersTakeThePythonClient(t *testing.T) {
	program := proctest.SummaServer(t)
	py := python(t)
	var nodes []string
	for range 2 {
		p, addr, err := proctest.StartSumma(program, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, addr)
	}
	for _, rule := range []string{"shop=0", "shop=1"} {
		b := startBroker(t, rule, nodes...)
		t.Log(run(t, py, filepath.Join("testdata", "flow.py"), b.Listening["summa"]))
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// startBroker starts a broker under the name of the reference's before nodes, each on a shard of its own.
func startBroker(t *testing.T, rule string, nodes ...string) *proctest.Process {
	t.Helper()
	bin, err := proctest.Build()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "summa-broker")
	if err := os.Symlink(bin, link); err != nil {
		t.Fatal(err)
	}
	args := []string{"--addr", "127.0.0.1:0", "--metrics-addr", "off", "--discovery", "static", "--placement", rule}
	for i, n := range nodes {
		args = append(args, "--backend", fmt.Sprintf("id=n%d,addr=%s,shard=%d", i, n, i))
	}
	cmd := exec.Command(link, args...)
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	p, err := proctest.StartCommand(1, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(p.Listening["summa"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for late := time.Now().Add(time.Minute); ; <-every.C {
		r, err := brokerpb.NewBrokerServiceClient(conn).GetBackends(t.Context(), &brokerpb.GetBackendsRequest{}, grpc.WaitForReady(true))
		if err == nil && !slices.ContainsFunc(r.Backends, func(n *brokerpb.BackendState) bool { return n.Health != "healthy" }) && len(r.Backends) == len(nodes) {
			return p
		}
		if time.Now().After(late) {
			t.Fatalf("not all nodes are healthy: %v, %v", r, err)
		}
	}
}
