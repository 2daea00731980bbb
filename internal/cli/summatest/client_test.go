package summatest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

// TestPythonClientRunsUnchanged calls every method of the client: an index is made, filled, committed, searched in every way, changed and
// deleted.
func TestPythonClientRunsUnchanged(t *testing.T) {
	py := python(t)
	p, err := proctest.Start(1, "node", "--summa", "127.0.0.1:0", "--data-dir", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(run(t, py, filepath.Join("testdata", "flow.py"), p.Listening["summa"]))
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
