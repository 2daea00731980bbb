// Package corpus finds the collections of real documents and reference answers that tests measure against. Nothing in the
// product uses it.
package corpus

import (
	"os"
	"path/filepath"
	"testing"
)

// Dir returns the folder of the named data set. The sets lie in the folder that WEFT_SHARED names, or in a folder
// shared/data beside the checkout. Without either a test is skipped with that reason; a set that is missing from the folder that
// WEFT_SHARED names fails it.
func Dir(t testing.TB, name string) string {
	t.Helper()
	if root := os.Getenv("WEFT_SHARED"); root != "" {
		dir := filepath.Join(root, name)
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("WEFT_SHARED names a folder without the data set %s: %v", name, err)
		}
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("find the data sets: %v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return present(t, filepath.Join(filepath.Dir(dir), "shared", "data", name))
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skipf("data set %s: no go.mod above the test", name)
		}
		dir = up
	}
}

func present(t testing.TB, dir string) string {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("data set is absent: set WEFT_SHARED to the folder that holds %s", filepath.Base(dir))
	}
	return dir
}
