// Package layering holds the test that keeps the arrows between packages pointing downward.
package layering

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/weft-search/weft/"

// layers lists the rooms from the ground up. A package may import packages of its own room and of rooms in lower rows, never of its own row or above.
// The engine takes two rows: a shard keeps its segments in a store.
var layers = [][]string{
	{"internal/obs", "internal/vfs", "internal/corpus", "internal/invariant", "internal/serve", "internal/wire", "internal/admit", "api"},
	{"internal/text", "internal/schema", "internal/score", "internal/query"},
	{"internal/vector", "internal/agg", "internal/highlight", "internal/summa"},
	{"internal/segment"},
	{"internal/store"},
	{"internal/shard", "internal/topology"},
	{"internal/api"},
	{"internal/front"},
	{"internal/leaf"},
	{"internal/cluster", "internal/broker"},
	{"internal/node"},
	{"internal/cluster/clustertest"},
	{"internal/client"},
	{"internal/cli"},
	{"cmd/weft", "internal/layering"},
}

// room is the one that a package stands in, and its row: of a room in another the inner one.
func room(pkg string) (row int, name string) {
	row = -1
	for i, rooms := range layers {
		for _, r := range rooms {
			if (pkg == r || strings.HasPrefix(pkg, r+"/")) && len(r) > len(name) {
				row, name = i, r
			}
		}
	}
	return row, name
}

func TestPackagesImportOnlyDownward(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == "bench" || rel == "tools" || d.Name() == "testdata" || (strings.HasPrefix(d.Name(), ".") && rel != ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		row, own := room(pkg)
		if row < 0 {
			t.Errorf("%s: package %s is in no room; give it one in layers", rel, pkg)
			return nil
		}
		seen[own] = true
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, im := range f.Imports {
			p, err := strconv.Unquote(im.Path.Value)
			if err != nil {
				return err
			}
			if !strings.HasPrefix(p, module) {
				continue
			}
			to, other := room(strings.TrimPrefix(p, module))
			switch {
			case to < 0:
				t.Errorf("%s imports %s, which is in no room", rel, p)
			case other == own:
			case other == "internal/corpus" && !strings.HasSuffix(rel, "_test.go"):
				t.Errorf("%s imports %s, which is for tests only", rel, p)
			case to >= row:
				t.Errorf("%s: %s (row %d) may not import %s (row %d): move the shared part down or pass it in", rel, own, row, other, to)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range layers {
		for _, r := range row {
			if !seen[r] {
				t.Errorf("room %s holds no package; take it out of layers", r)
			}
		}
	}
}
