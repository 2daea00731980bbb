package proctest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// SummaServer is the path of a real Summa server for tests that are asked for by WEFT_E2E_SUMMA: what SUMMA_SERVER names, or summa-server of the
// path. Without it the test is skipped and says why.
func SummaServer(t testing.TB) string {
	t.Helper()
	if os.Getenv("WEFT_E2E_SUMMA") == "" {
		t.Skip("WEFT_E2E_SUMMA is not set: it takes a real Summa server (make e2e-summa)")
	}
	program := os.Getenv("SUMMA_SERVER")
	if program == "" {
		program = "summa-server"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("there is no Summa server: %v; set SUMMA_SERVER, or make one with cargo install summa-server, which needs Rust 1.98 and protoc", err)
	}
	return path
}

// StartSumma runs a Summa server over a folder and returns it and its address once the port is open. The process is the caller's to end.
func StartSumma(program, dir string) (*Process, string, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	addr := lis.Addr().String()
	if err := lis.Close(); err != nil {
		return nil, "", err
	}
	p, err := StartCommand(0, exec.Command(program, "--addr", addr, "--data-dir", dir, "--metrics-addr", "off"))
	if err != nil {
		return nil, "", err
	}
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	late := time.NewTimer(startTime)
	defer late.Stop()
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return p, addr, conn.Close()
		}
		select {
		case <-every.C:
		case <-p.Exited:
			return nil, "", fmt.Errorf("%s ended: %w\n%s", program, p.Err, p.Stderr)
		case <-late.C:
			kerr := p.Kill()
			return nil, "", errors.Join(fmt.Errorf("%s does not listen: %w\n%s", program, err, p.Stderr), kerr)
		}
	}
}
