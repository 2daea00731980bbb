package crashtest

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/cli/proctest"
	"github.com/weft-search/weft/internal/client"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// process is a running weft node.
type process struct {
	*proctest.Process
	client *client.Client
}

// start starts a node and returns once it listens.
func start(dir string, flags ...string) (*process, error) {
	p, err := proctest.Start(1, append([]string{"node", "--http", "127.0.0.1:0", "--data-dir", dir, "--log-level", "warn"}, flags...)...)
	if err != nil {
		return nil, err
	}
	c, err := client.New("http://"+p.Listening["http"], client.Options{})
	return &process{p, c}, err
}

// ready waits until the node serves its indexes.
func (p *process) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.client.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.Exited:
			return fmt.Errorf("node ended: %w\n%s", p.Err, p.Stderr)
		case <-ctx.Done():
			return fmt.Errorf("node is not ready: %w\n%s", err, p.Stderr)
		}
	}
}

// kill ends the process as a power cut would end it, and waits.
func (p *process) kill() {
	if err := p.Kill(); err != nil {
		panic(err)
	}
	p.client.CloseIdle()
}

// stop ends the process in good order.
func (p *process) stop() error {
	defer p.client.CloseIdle()
	return p.Stop()
}

// doctor runs weft doctor on the folder.
func doctor(dir string) error {
	bin, err := proctest.Build()
	if err != nil {
		return err
	}
	out, err := exec.Command(bin, "doctor", "--data-dir", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("doctor: %w\n%s", err, out)
	}
	return nil
}
