package layering

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// habits are rules that a reader would otherwise have to remember: a pattern, the files it is forbidden in, and what to do instead.
var habits = []struct {
	pattern *regexp.Regexp
	in      func(path string) bool
	instead string
}{
	{
		regexp.MustCompile(`\btime\.Sleep\(`), func(p string) bool { return strings.HasSuffix(p, "_test.go") },
		"wait for a channel or condition, or use testing/synctest",
	},
	{
		regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|HA` + `CK|X` + `XX)\b`), func(string) bool { return true },
		"finish it, or write it down in docs/status.md",
	},
	{
		regexp.MustCompile(`_ = err\b`), func(string) bool { return true },
		"return the error, or say in a comment why it does not matter and use errors.Join",
	},
	{regexp.MustCompile(`\bos\.Rename\(`), func(p string) bool {
		return !strings.HasPrefix(p, "internal/vfs/") && !strings.HasSuffix(p, "_test.go") && !strings.HasPrefix(p, "bench/")
	}, "publish through vfs.WriteFile or vfs.NewTemp, which sync the file and its folder"},
	{regexp.MustCompile(`\bfmt\.Print(ln|f)?\(`), func(p string) bool {
		return strings.HasPrefix(p, "internal/") && !strings.HasPrefix(p, "internal/cli") && !strings.HasSuffix(p, "_test.go") && !strings.Contains(p, "/gen/")
	}, "servers print nothing: log with slog, or return it"},
}

func TestHabits(t *testing.T) {
	root := filepath.Join("..", "..")
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
			if d.Name() == "testdata" || (strings.HasPrefix(d.Name(), ".") && rel != ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || rel == "internal/layering/habits_test.go" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// Real waiting hides in time.After too. In a synctest bubble it costs nothing; the crash test waits between kills, which is its point.
		if strings.HasSuffix(rel, "_test.go") && !strings.Contains(string(b), "synctest.") && !strings.HasPrefix(rel, "internal/cli/crashtest/") &&
			strings.Contains(string(b), "<-time."+"After(") {
			t.Errorf("%s: waits for real time; use a channel, a condition or testing/synctest", rel)
		}
		for i, line := range strings.Split(string(b), "\n") {
			for _, h := range habits {
				if h.in(rel) && h.pattern.MatchString(line) {
					t.Errorf("%s:%d: %s\n\t%s", rel, i+1, h.instead, strings.TrimSpace(line))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
