// Package obstest compares the metrics that a process serves with those that are documented.
package obstest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var names = regexp.MustCompile(`weft_[a-z_]+`)

// Served are the names of the metrics in a page of Prometheus text.
func Served(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		if help, ok := strings.CutPrefix(line, "# TYPE "); ok && strings.HasPrefix(help, "weft_") {
			out[names.FindString(help)] = true
		}
	}
	return out
}

// Page is the text of a page of the documentation, below docs.
func Page(t testing.TB, root, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Cut divides a page at a section: its text, and that of the rest. The heading has the marks in front, such as "## Health".
func Cut(t testing.TB, page, heading string) (section, rest string) {
	t.Helper()
	before, after, ok := strings.Cut(page, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("the page has no section %q", heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	end := len(after)
	for l := level; l != ""; l = l[1:] {
		if i := strings.Index(after, "\n"+l+" "); i >= 0 {
			end = min(end, i)
		}
	}
	return after[:end], before + after[end:]
}

// Compare tells of metrics that are served and not documented, and the other way round.
func Compare(t testing.TB, served map[string]bool, documentation string) {
	t.Helper()
	documented := map[string]bool{}
	for _, name := range names.FindAllString(documentation, -1) {
		documented[name] = true
	}
	for name := range served {
		if !documented[name] {
			t.Errorf("%s is served and not documented", name)
		}
	}
	for name := range documented {
		if !served[name] {
			t.Errorf("%s is documented and not served", name)
		}
	}
	if len(served) < 30 {
		t.Errorf("only %d metrics", len(served))
	}
}
