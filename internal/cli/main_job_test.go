package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/cli/demo"
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

// TestDemo is the main job: index the documentation of the standard library and answer three searches. With the race detector it
// takes the packages that the searches are about, and a few more.
func TestDemo(t *testing.T) {
	root, err := demo.FindGoRoot(context.Background())
	if err != nil {
		t.Skip(err)
	}
	args := []string{"dev", "--http", "127.0.0.1:0", "--demo-check", "--log-level", "error"}
	if raceEnabled {
		part := t.TempDir()
		for _, pkg := range []string{"fmt", "context", "regexp", "net/http", "time", "strconv", "os/exec", "encoding/csv"} {
			copyPackage(t, filepath.Join(root, "src", pkg), filepath.Join(part, "src", pkg))
		}
		args = append(args, "--demo-path", part)
	}
	out := mustRun(t, args...)
	for _, want := range []string{"  context.Context\n", "  regexp", "  net/http.ParseTime\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

func copyPackage(t *testing.T, from, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", from, len(files), err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
