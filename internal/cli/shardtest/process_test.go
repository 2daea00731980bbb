package shardtest

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/cli/proctest"
	"github.com/weft-search/weft/internal/leaf/rpc"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// process is a running weft node.
type process struct {
	*proctest.Process
	t *testing.T
}

// start starts a node that listens for both shard protocols and nothing else, and returns once it does. It ends with the test.
func start(t *testing.T, dir, grpcAddr, shardAddr string, flags ...string) *process {
	t.Helper()
	p, err := proctest.Start(2, append([]string{"node", "--data-dir", dir, "--grpc", grpcAddr, "--shard-port", shardAddr, "--log-level", "warn"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return &process{p, t}
}

func (p *process) grpc() string  { return p.Listening["grpc"] }
func (p *process) shard() string { return p.Listening["shard"] }

// signal sends a signal.
func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// kill ends the node as a power cut would, and waits.
func (p *process) kill() {
	p.t.Helper()
	if err := p.Kill(); err != nil {
		p.t.Fatal(err)
	}
}

// stop ends the node in good order, and checks that it is one.
func (p *process) stop() {
	p.t.Helper()
	if err := p.Stop(); err != nil {
		p.t.Error(err)
	}
}

// dial returns a client of shard gRPC.
func (p *process) dial(t *testing.T) *rpc.Client {
	t.Helper()
	c, err := rpc.Dial(p.grpc(), rpc.Options{})
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
