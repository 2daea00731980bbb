//go:build unix

package subword

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe in the place of a file is not opened, which would wait for whoever writes to it.
func TestPipesAreNoModels(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "m"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "m", tokenizerFile), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := NewStore(dir).Tokenizer("m")
	if _, ok := errors.AsType[*NotFoundError](err); !ok {
		t.Error(err)
	}
}
