package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func collect(t testing.TB, s Source) map[string]Doc {
	t.Helper()
	out := map[string]Doc{}
	last := ""
	err := s.Collect(context.Background(), func(pkg string, docs []Doc) error {
		if pkg <= last {
			t.Errorf("package %q after %q", pkg, last)
		}
		last = pkg
		for _, d := range docs {
			if _, twice := out[d.ID]; twice {
				t.Errorf("%s is there twice", d.ID)
			}
			out[d.ID] = d
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const source = `// Package clock tells the time. It is small.
package clock

// Units of time.
const (
	Tick = 1
	// Tock is longer.
	Tock, hidden = 2, 3
)

// Clock shows hours.
type Clock struct {
	Hour int // from 0
	face string
	Alarm func() error
}

// Face is what is looked at.
type Face interface {
	// Show draws it.
	Show(hour int) error
}

// NewClock makes one.
func NewClock(hour int) (*Clock, error) { return nil, nil }

// Set changes the hour.
func (c *Clock) Set(hour int) { c.Hour = hour }

func (c *Clock) reset() {}
`

func TestCollect(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/x\n", "clock/clock.go": source, "clock/clock_test.go": "package broken(", "internal/a/a.go": "package a",
		"clock/testdata/x.go": "package (", "clock/other.go": "//go:build never\n\npackage main", "top.go": "// Package x is on top.\npackage x",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var got []Doc
	if err := Tree(dir).Collect(context.Background(), func(_ string, docs []Doc) error {
		got = append(got, docs...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	const p = "example.org/x/clock"
	want := []Doc{
		{"example.org/x", "example.org/x", "package", "x", "x", "package x", "Package x is on top.", "Package x is on top."},
		{p, p, "package", "clock", "clock", "package clock", "Package clock tells the time.", "Package clock tells the time. It is small."},
		{p + ".Tick", p, "const", "Tick", "Tick", "const Tick = 1", "Units of time.", "Units of time."},
		{p + ".Tock", p, "const", "Tock", "Tock", "const Tock, _ = 2, 3", "Tock is longer.", "Tock is longer."},
		{p + ".Clock", p, "type", "Clock", "Clock", "type Clock struct {\n\tHour int // from 0\n\n\tAlarm func() error\n\t// contains filtered or unexported fields\n}", "Clock shows hours.", "Clock shows hours."},
		{p + ".NewClock", p, "func", "NewClock", "New Clock", "func NewClock(hour int) (*Clock, error)", "NewClock makes one.", "NewClock makes one."},
		{p + ".Clock.Set", p, "method", "Clock.Set", "Clock Set", "func (c *Clock) Set(hour int)", "Set changes the hour.", "Set changes the hour."},
		{p + ".Clock.Hour", p, "field", "Clock.Hour", "Clock Hour", "Hour int", "from 0", "from 0"},
		{p + ".Clock.Alarm", p, "field", "Clock.Alarm", "Clock Alarm", "Alarm func() error", "", ""},
		{p + ".Face", p, "type", "Face", "Face", "type Face interface {\n\t// Show draws it.\n\tShow(hour int) error\n}", "Face is what is looked at.", "Face is what is looked at."},
		{p + ".Face.Show", p, "method", "Face.Show", "Face Show", "Show(hour int) error", "Show draws it.", "Show draws it."},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b string) bool {
		return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
	})); d != "" {
		t.Error(d)
	}
}

func TestBrokenSourceIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\n\nfunc (\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := Tree(dir).Collect(context.Background(), func(string, []Doc) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "a.go:3") {
		t.Errorf("got %v", err)
	}
	stop := errors.New("enough")
	root, err := FindGoRoot(context.Background())
	if err != nil {
		t.Skip(err)
	}
	if err := StandardLibrary(root).Collect(context.Background(), func(string, []Doc) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestStandardLibrary(t *testing.T) {
	root, err := FindGoRoot(context.Background())
	if err != nil {
		t.Skip(err)
	}
	if s := Tree(root); s.Dir != filepath.Join(root, "src") {
		t.Errorf("the tree of %s is %+v", root, s)
	}
	docs := collect(t, StandardLibrary(root))
	for id, kind := range map[string]string{
		"net/http": "package", "net/http.Client.Do": "method", "net/http.Server.ReadHeaderTimeout": "field", "net/http.StatusOK": "const",
		"io.Reader.Read": "method", "io.EOF": "var", "builtin.append": "func", "context.Context": "type", "os/user.Current": "func", "unsafe.Pointer": "type",
	} {
		if docs[id].Kind != kind {
			t.Errorf("%s: kind %q, want %q", id, docs[id].Kind, kind)
		}
	}
	for id := range docs {
		if strings.Contains(id, "internal/") || strings.HasPrefix(id, "cmd/") || len(id) > 512 {
			t.Errorf("unwanted %s", id)
		}
	}
	t.Logf("%d documents", len(docs))
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string]string{
		"ServeHTTPError": "Serve HTTP Error", "Client.Do": "Client Do", "O_RDONLY": "O RDONLY", "Int64Slice": "Int64 Slice", "x": "x", "TLS": "TLS", "SHA256": "SHA256",
	} {
		if got := splitName(name); got != want {
			t.Errorf("splitName(%q) = %q, want %q", name, got, want)
		}
	}
}
