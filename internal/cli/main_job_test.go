package cli

import (
	"bytes"
	"context"
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

// TestDemo is the main job: index the documentation of the standard library and answer three searches.
func TestDemo(t *testing.T) {
	if _, err := demo.FindGoRoot(context.Background()); err != nil {
		t.Skip(err)
	}
	out := mustRun(t, "dev", "--http", "127.0.0.1:0", "--demo-check", "--log-level", "error")
	for _, want := range []string{"  context.Context\n", "  regexp", "  net/http.ParseTime\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}
