package faulttest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ordering are the folders that decide which write is the last, who owns a document and who does a job.
var ordering = []string{
	"internal/cluster", "internal/topology", "internal/leaf", "internal/node", "internal/serve", "internal/store", "internal/shard", "internal/front",
}

// Calls that make a point on the calendar of a time, or a time of one. All else that is done with times (Since, Sub, Before, deadlines,
// tickers) goes by the monotonic clock, which does not jump.
var (
	wallMethods   = []string{"Unix", "UnixNano", "UnixMilli", "UnixMicro", "AppendFormat", "UTC", "Local", "GobEncode", "Weekday", "Clock"}
	wallFunctions = []string{"Unix", "UnixMilli", "UnixMicro", "Date", "Parse", "ParseInLocation"} // of package time
	wallFormats   = []string{"Format", "Round", "In"}                                              // with an argument of package time, or 0
)

// allowed are the functions that may look at the calendar, and why no jump of a clock changes what is decided.
var allowed = map[string]string{
	"internal/cluster/hints/aside.go SetAside":     "a report",
	"internal/cluster/hints/aside.go holdAside":    "as next of waits.go, after a start",
	"internal/cluster/hints/aside.go encodeAside":  "a report",
	"internal/cluster/hints/aside.go decodeAside":  "a report",
	"internal/cluster/hints/member.go join":        "the age of what is kept for a member: too old means that it is repaired as a whole",
	"internal/cluster/hints/member.go expired":     "likewise",
	"internal/cluster/hints/member.go pending":     "a report",
	"internal/cluster/hints/member.go writeMark":   "a report",
	"internal/cluster/hints/waits.go next":         "stamps of what members missed: each is above the last and above those that were heard of; the calendar orders two misses of one document only where neither coordinator had heard of the other, and both writes were told to be missed",
	"internal/cluster/jobs/ledger.go job":          "a report",
	"internal/cluster/jobs/repair.go inBackground": "when members were compared last: an age that is off makes for one comparison more",
	"internal/cluster/jobs/runner.go look":         "likewise",
	"internal/cluster/jobs/runner.go newRecord":    "a report",
	"internal/node/catalog.go announce":            "a report",
	"internal/node/datadir.go identity":            "a report",
	"internal/node/shardkeys.go remember":          "the age of a key when it is read after a start, by which it is forgotten after a day",
	"internal/node/shardkeys.go readLocked":        "likewise",
	"internal/node/summanode/documents.go next":    "the beginning of keys that are made, each above the last whatever the clock says; the rest of them is random",
	"internal/serve/latency/average.go stamp":      "the age of an estimate of how fast a member is; a jump makes it a worse one",
	"internal/serve/latency/average.go epoch":      "a constant",
	"internal/shard/config.go stamp":               "timestamps of commits: each is at least one above the last, whatever the clock says",
	"internal/shard/apply.go nextTS":               "likewise",
	"internal/shard/open.go sweep":                 "a time that never comes",
	"internal/store/catalog.go publish":            "a report",
}

// No clock decides the order of writes, who owns what or who does a job. The tests that turn the clocks of processes (wall_test.go) show it for
// what they meet; this one shows it by what is not in the code.
func TestNoClockDecidesAnOrder(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	found := map[string]bool{}
	for _, dir := range ordering {
		err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(dir)), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := d.Name()
			if d.IsDir() {
				if name == "testdata" || strings.HasSuffix(name, "test") {
					return filepath.SkipDir
				}
				return nil
			}
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			if !imports(f, "time") {
				return nil
			}
			for _, decl := range f.Decls {
				if reads(decl) {
					found[filepath.ToSlash(rel)+" "+nameOf(decl)] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(found)) {
		if allowed[at] == "" {
			t.Errorf("%s looks at the wall clock: see that nothing is decided by it, and say so here", at)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(allowed)) {
		if !found[at] {
			t.Errorf("%s does not look at the wall clock any more", at)
		}
	}
}

func imports(f *ast.File, path string) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"`+path+`"` })
}

// reads tells whether a declaration has a call that looks at the calendar.
func reads(decl ast.Decl) (yes bool) {
	ast.Inspect(decl, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := sel.Sel.Name
		switch {
		case ofTime(sel):
			yes = yes || slices.Contains(wallFunctions, name)
		case slices.Contains(wallMethods, name):
			yes = true
		case slices.Contains(wallFormats, name) && len(call.Args) == 1:
			lit, isLit := call.Args[0].(*ast.BasicLit)
			arg, isSel := call.Args[0].(*ast.SelectorExpr)
			yes = yes || isLit && (lit.Value == "0" || lit.Kind == token.STRING) || isSel && ofTime(arg) && name != "Round"
		}
		return true
	})
	return yes
}

// ofTime tells whether a name is one of package time.
func ofTime(sel *ast.SelectorExpr) bool {
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "time"
}

func nameOf(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return d.Name.Name
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				return v.Names[0].Name
			}
		}
	}
	return "?"
}
