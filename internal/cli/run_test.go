package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-search/weft/internal/node"
)

// fakeServer has an index without documents, and answers bulk loads with bulk.
func fakeServer(t *testing.T, bulk http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/index/bulk":
			bulk(w, r)
		case strings.HasPrefix(r.URL.Path, "/indexes/"):
			w.WriteHeader(http.StatusNotFound)
		default:
			t.Errorf("unexpected %s %s", r.Method, r.URL)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func problem(t *testing.T, w http.ResponseWriter, status int, body string) {
	t.Helper()
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	if _, err := io.WriteString(w, body); err != nil {
		t.Error(err)
	}
}

func oneDocument(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.ndjson")
	if err := os.WriteFile(path, []byte(`{"id":"a"}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadWaitsForAFullDisk(t *testing.T) {
	var calls atomic.Int64
	url := fakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n := calls.Add(1); n {
		case 1, 2, 3:
			problem(t, w, []int{507, 503, 429}[n-1], `{"code":"later","detail":"not now","retry_after_ms":1}`)
		default:
			if _, err := io.WriteString(w, `{"ok":true,"indexed":1}`); err != nil {
				t.Error(err)
			}
		}
	})
	code, stdout, stderr := run(t, "load", "--url", url, oneDocument(t))
	if code != 0 || calls.Load() != 4 || !strings.Contains(stdout, "indexed 1 of 1 document into") || !strings.Contains(stderr, "waiting for the server: not now (later, status 507)") {
		t.Errorf("exit code %d after %d calls\n%s%s", code, calls.Load(), stdout, stderr)
	}

	calls.Store(0)
	code, _, stderr = run(t, "load", "--url", url, "--retry-for", "0s", oneDocument(t))
	if code != 1 || calls.Load() != 1 || !strings.Contains(stderr, "status 507") || strings.Contains(stderr, "Is a server running") {
		t.Errorf("without retries: exit code %d after %d calls\n%s", code, calls.Load(), stderr)
	}
}

// interrupt ends a context as a signal does.
type interrupt struct{}

func (interrupt) Error() string        { return "interrupted" }
func (interrupt) Is(target error) bool { return target == context.Canceled }

func TestInterruptIsToldInASentence(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	url := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil { // only then does the server notice that the caller is gone
			t.Error(err)
		}
		cancel(interrupt{})
		<-r.Context().Done()
	})
	var out, stderr bytes.Buffer
	dir := t.TempDir()
	code := Run(ctx, []string{"load", "--url", url, "--resume", filepath.Join(dir, "state"), oneDocument(t)}, IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &stderr})
	want := "The same command, run again, goes on behind what was acknowledged.\nweft: interrupted before it was done\n"
	if code != 1 || stderr.String() != want {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}

	plain, stop := context.WithCancel(t.Context())
	stop()
	stderr.Reset()
	code = Run(plain, []string{"get", "--url", url, "x"}, IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &stderr})
	if code != 1 || stderr.String() != "weft: stopped before it was done\n" {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}
}

// TestLimitsAreThoseOfTheNode keeps the bounds that the flags are checked against at those of the node.
func TestLimitsAreThoseOfTheNode(t *testing.T) {
	start := func(request int64, memtable float64) error {
		n, err := node.New(node.Config{
			DataDir: filepath.Join(t.TempDir(), "d"), Limits: node.Limits{RequestBytes: request << 20},
			Engine: node.Engine{MemtableBytes: int64(memtable * (1 << 20))},
		})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // nothing was started
		return n.Close(ctx)
	}
	if err := errors.Join(start(leastRequest, leastMemtable), start(mostRequest, mostMemtable)); err != nil {
		t.Errorf("what the flags allow is refused: %v", err)
	}
	if start(leastRequest-1, leastMemtable) == nil || start(leastRequest, mostMemtable+1) == nil {
		t.Error("the flags refuse what the node takes")
	}
}

func TestCheckAddress(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", ":7700", "[::1]:7700", "localhost:65535", "[fe80::1%eth0]:1"} {
		if err := checkAddress(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"", "nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:http", "::1:7700", "http://127.0.0.1:7700", "a b:1", "unix:/x:1"} {
		if err := checkAddress(addr); err == nil {
			t.Errorf("%s was taken", addr)
		}
	}
}

func TestCounted(t *testing.T) {
	got := fmt.Sprint(counted(0, "mouse", "mice"), ", ", counted(1, "mouse", "mice"), ", ", counted(1234, "mouse", "mice"))
	if got != "0 mice, 1 mouse, 1,234 mice" {
		t.Error(got)
	}
}
