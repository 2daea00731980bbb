package shardtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf/rpc"
)

// builtIn is the folder that build made; empty before.
var builtIn string

// build makes the binary once, with the race detector.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "weft-shardtest-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	bin := filepath.Join(dir, "weft")
	out, err := exec.Command("go", "build", "-race", "-o", bin, "github.com/weft-search/weft/cmd/weft").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build weft: %w\n%s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		if err := os.RemoveAll(builtIn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// process is a running weft node.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	grpc   string // addresses; empty where the node does not listen
	shard  string
	log    *os.File
	exited chan struct{} // closed when the process has ended; err is set before
	err    error
}

// start starts a node that listens for the shard protocols, and returns once it does and its indexes are open.
func start(t *testing.T, dir, grpcAddr, shardAddr string, flags ...string) *process {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"node", "--data-dir", dir, "--grpc", grpcAddr, "--shard-port", shardAddr, "--log-level", "warn"}, flags...)
	p := &process{t: t, cmd: exec.Command(bin, args...), exited: make(chan struct{})}
	if p.log, err = os.CreateTemp(t.TempDir(), "stderr"); err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.log
	// A race ends the process at once, and with an exit code of its own.
	p.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan map[string]string, 1)
	go func() {
		defer close(p.exited)
		at := map[string]string{}
		sc := bufio.NewScanner(stdout)
		for len(at) < 2 && sc.Scan() {
			if what, addr, ok := strings.Cut(strings.TrimPrefix(sc.Text(), "listening "), " "); ok {
				at[what] = addr
			}
		}
		listening <- at
		_, err := io.Copy(io.Discard, stdout)
		p.err = errors.Join(p.cmd.Wait(), err)
	}()
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	at := <-listening
	if p.grpc, p.shard = at["grpc"], at["shard"]; p.grpc == "" || p.shard == "" {
		<-p.exited
		t.Fatalf("the node listens on %v: %v\n%s", at, p.err, p.said())
	}
	return p
}

// said is what the node wrote on its standard error.
func (p *process) said() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// end sends a signal and waits.
func (p *process) end(sig syscall.Signal) {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	<-p.exited
}

// stop ends the node in good order, and checks that it is one.
func (p *process) stop() {
	p.t.Helper()
	p.end(syscall.SIGTERM)
	if p.err != nil {
		p.t.Errorf("the node ended: %v\n%s", p.err, p.said())
	}
	if said := p.said(); strings.Contains(said, "panic") || strings.Contains(said, "DATA RACE") {
		p.t.Errorf("the node said\n%s", said)
	}
}

// dial returns a client of shard gRPC.
func (p *process) dial(t *testing.T) *rpc.Client {
	t.Helper()
	c, err := rpc.Dial(p.grpc, rpc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
