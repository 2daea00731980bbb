package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/cli/demo"
	"github.com/weft-search/weft/internal/client"
	"github.com/weft-search/weft/internal/corpus"
)

// run runs a command line in this process.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Run(t.Context(), args, IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err, LookupEnv: func(string) (string, bool) { return "", false }})
	return code, out.String(), err.String()
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := run(t, args...)
	if code != 0 {
		t.Fatalf("weft %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// TestDemo is the main job: index the documentation of the standard library and answer three searches.
func TestDemo(t *testing.T) {
	if _, err := demo.FindGoRoot(context.Background()); err != nil {
		t.Skip(err)
	}
	out := mustRun(t, "dev", "--http", "127.0.0.1:0", "--demo-check", "--log-level", "error")
	for _, want := range []string{"net/http.Server.Shutdown", "hits in"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// binary builds weft as it is shipped.
func binary(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "weft")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/weft-search/weft/cmd/weft").CombinedOutput(); err != nil {
		t.Fatalf("build weft: %v\n%s", err, out)
	}
	return bin
}

// startBinary starts the binary and returns its address and a function that kills it.
func startBinary(t *testing.T, bin string, args ...string) (url string, kill func()) {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := false
	kill = func() {
		if dead {
			return
		}
		dead = true
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		// The error says that it was killed.
		if err := cmd.Wait(); err == nil {
			t.Error("the server ended well although it was killed")
		}
	}
	t.Cleanup(kill)
	line := make([]byte, 0, 64)
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := stdout.Read(b); err != nil {
			t.Fatalf("the server printed %q: %v", line, err)
		}
		if b[0] == '\n' {
			break
		}
	}
	addr, ok := strings.CutPrefix(string(line), "listening http ")
	if !ok {
		t.Fatalf("the server printed %q", line)
	}
	url = "http://" + addr
	c, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	if err := waitReady(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return url, kill
}

// TestCollectionSurvivesKill loads a real collection with the real binary, searches it, kills the process with SIGKILL, starts it
// again, and gets the same answers, to the last bit of each score.
func TestCollectionSurvivesKill(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the binary")
	}
	dir := corpus.Dir(t, "cranfield")
	bin := binary(t)
	data := filepath.Join(t.TempDir(), "data")
	queries := []string{"boundary layer transition on a flat plate", `"shock wave"`, "aeroelast*", "heat AND transfer NOT laminar"}
	ask := func(url string) (out []string) {
		for _, q := range queries {
			raw := mustRun(t, "search", "--url", url, "--index", "cranfield", "--json", "--limit", "50", q)
			var res struct {
				Total uint64 `json:"total"`
				Hits  []struct {
					ID    string  `json:"id"`
					Score float32 `json:"score"`
				} `json:"hits"`
			}
			if err := json.Unmarshal([]byte(raw), &res); err != nil {
				t.Fatal(err)
			}
			if len(res.Hits) == 0 {
				t.Errorf("%s: found nothing", q)
			}
			b, err := json.Marshal(res)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(b))
		}
		return out
	}

	url, kill := startBinary(t, bin, "node", "--http", "127.0.0.1:0", "--data-dir", data, "--log-level", "error")
	loaded := mustRun(t, "load", "--url", url, "--index", "cranfield", "--id-field", "_id", filepath.Join(dir, "corpus.jsonl.gz"))
	t.Log(strings.TrimSpace(loaded))
	before := ask(url)
	kill()

	url, kill = startBinary(t, bin, "node", "--http", "127.0.0.1:0", "--data-dir", data, "--log-level", "error")
	after := ask(url)
	for i, q := range queries {
		if before[i] != after[i] {
			t.Errorf("%s: before the kill\n%s\nafter it\n%s", q, before[i], after[i])
		}
	}
	kill()
	mustRun(t, "doctor", "--data-dir", data)
}
