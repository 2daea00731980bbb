//go:build unix

package loader

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestCancelEndsAWaitForInput has standard input that gives nothing, and a named pipe that nobody writes to.
func TestCancelEndsAWaitForInput(t *testing.T) {
	stop := errors.New("interrupted")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "pipe.ndjson")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skipf("no named pipes: %v", err)
	}
	for _, path := range []string{Stdin, fifo} {
		inputs, err := Find([]string{path}, "")
		if err != nil || !inputs[0].Stream {
			t.Fatal(inputs, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- Run(ctx, Config{Inputs: inputs, Stdin: r, Send: (&server{}).send}) }()
		cancel(stop)
		if err := <-done; !errors.Is(err, stop) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	// Let those go that were left behind.
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestNamedPipeIsReadOnce loads a table from a pipe twice with a state file: it is another one each time.
func TestNamedPipeIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "pipe.csv")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skipf("no named pipes: %v", err)
	}
	for _, id := range []string{"a", "b"} {
		wrote := make(chan error, 1)
		go func() { wrote <- os.WriteFile(fifo, []byte("id\n"+id+"\n"), 0o600) }()
		inputs, err := Find([]string{fifo}, "")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Columns(inputs); err != nil || len(got) > 0 {
			t.Errorf("columns %v, %v", got, err)
		}
		s := &server{}
		if _, err := runLoad(t, Config{StatePath: filepath.Join(dir, "state")}, s, fifo); err != nil || s.docs[id] == "" {
			t.Errorf("%s: got %v, %v", id, s.docs, err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	}
}
