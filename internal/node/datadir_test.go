package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-search/weft/internal/vfs"
)

func TestIdentityStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "data")
	var ids []string
	for range 2 {
		n, err := New(Config{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, n.ID())
		if err := n.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] != ids[1] || len(ids[0]) != 36 {
		t.Fatalf("ids %v", ids)
	}
}

func TestSecondNodeOnTheSameFolder(t *testing.T) {
	dir := t.TempDir()
	n, err := New(Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{DataDir: dir})
	checkDirError(t, err, ErrDirLocked, dir)
	if err := n.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	n, err = New(Config{DataDir: dir})
	if err != nil {
		t.Fatalf("after the first has let go: %v", err)
	}
	if err := n.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func checkDirError(t *testing.T, err, reason error, path string) {
	t.Helper()
	var e *DataDirError
	if !errors.As(err, &e) || !errors.Is(err, reason) {
		t.Fatalf("got %v, want %v", err, reason)
	}
	if !strings.Contains(err.Error(), path) || e.Advice == "" {
		t.Errorf("%q names no path or no remedy", err)
	}
}

func TestDamagedFolders(t *testing.T) {
	tests := []struct {
		name   string
		file   string
		spoil  func(old string) string
		reason error
	}{
		{"newer node.json", identityFile, func(s string) string { return strings.Replace(s, `"format":1`, `"format":3`, 1) }, ErrDirNewer},
		{"newer catalog", catalogFile, func(s string) string { return strings.Replace(s, `"format":1`, `"format":99`, 1) }, ErrDirNewer},
		{"truncated node.json", identityFile, func(s string) string { return s[:len(s)/2] }, ErrDirDamaged},
		{"empty node.json", identityFile, func(string) string { return "" }, ErrDirDamaged},
		{"flipped bit in node.json", identityFile, func(s string) string { return strings.Replace(s, `"created":"2`, `"created":"3`, 1) }, ErrDirDamaged},
		{"flipped bit in the catalog", catalogFile, func(s string) string { return strings.Replace(s, "books", "cooks", 1) }, ErrDirDamaged},
		{"truncated catalog", catalogFile, func(s string) string { return s[:len(s)-10] }, ErrDirDamaged},
		{"format 0", catalogFile, func(s string) string { return strings.Replace(s, `"format":1`, `"format":0`, 1) }, ErrDirDamaged},
		{"not JSON", catalogFile, func(string) string { return "\x00\x01" }, ErrDirDamaged},
		{"unknown content", catalogFile, func(string) string {
			content := `{"indexes":[],"more":1}`
			return fmt.Sprintf(`{"format":1,"checksum":%q,"content":%s}`, checksum([]byte(content)), content)
		}, ErrDirDamaged},
		{"escaping folder", catalogFile, func(string) string {
			content := `{"indexes":[{"name":"a","dir":"../../../../../../../../etc/passwd......","schema":{},"created":"2026-01-01T00:00:00Z"}]}`
			return fmt.Sprintf(`{"format":1,"checksum":%q,"content":%s}`, checksum([]byte(content)), content)
		}, ErrDirDamaged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			n, err := New(Config{DataDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			sch, err := dynamicSchema("books")
			if err != nil {
				t.Fatal(err)
			}
			i, err := n.catalog.announce("books", sch, "")
			if err != nil {
				t.Fatal(err)
			}
			i.users.Done()
			close(i.opened)
			if err := n.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, tt.file)
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			spoilt := tt.spoil(string(old))
			if spoilt == string(old) {
				t.Fatal("nothing was spoilt")
			}
			if err := os.WriteFile(path, []byte(spoilt), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = New(Config{DataDir: dir})
			checkDirError(t, err, tt.reason, path)
			// A refusal must not keep the lock.
			if err := os.WriteFile(path, old, 0o600); err != nil {
				t.Fatal(err)
			}
			if n, err = New(Config{DataDir: dir}); err != nil {
				t.Fatal(err)
			}
			if err := n.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLostIdentity(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, catalogFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{DataDir: dir})
	checkDirError(t, err, ErrDirDamaged, filepath.Join(dir, identityFile))
}

// TestLostCatalog takes catalog.json away from indexes: the node must not begin as an empty one.
func TestLostCatalog(t *testing.T) {
	for _, lost := range [][]string{{catalogFile}, {catalogFile, identityFile}} {
		dir := t.TempDir()
		s := newServer(t, Config{DataDir: dir})
		s.put("default", `{"id":"1","t":"x"}`)
		if err := s.node.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		away := t.TempDir()
		for _, name := range lost {
			if err := os.Rename(filepath.Join(dir, name), filepath.Join(away, name)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the first refusal must not make what the second start would take for whole
			_, err := New(Config{DataDir: dir})
			checkDirError(t, err, ErrDirDamaged, filepath.Join(dir, catalogFile))
			if !strings.Contains(err.Error(), "restore the file") {
				t.Errorf("%v does not say what to do", err)
			}
		}
		for _, name := range lost {
			if err := os.Rename(filepath.Join(away, name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		again := newServer(t, Config{DataDir: dir})
		if _, total := again.ids("/search?q=x"); total != 1 {
			t.Errorf("with the catalog back: %v documents", total)
		}
	}
}

func TestUnlistedFolderIsNamed(t *testing.T) {
	dir := t.TempDir()
	s := newServer(t, Config{DataDir: dir})
	s.put("default", `{"id":"1"}`)
	if got := s.do("GET", "/readyz", "", "").want(200).json()["indexes"].(map[string]any)["unlisted"].([]any); len(got) != 0 {
		t.Errorf("unlisted %v", got)
	}
	if err := s.node.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	stray := newUUID()
	if err := os.Mkdir(filepath.Join(dir, indexesDir, stray), 0o700); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s = newServer(t, Config{DataDir: dir, Log: textLogger(&log)})
	if got := s.do("GET", "/readyz", "", "").want(200).json()["indexes"].(map[string]any)["unlisted"].([]any); len(got) != 1 || got[0] != stray {
		t.Errorf("unlisted %v", got)
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), stray) {
		t.Errorf("log %s", log.String())
	}
	if _, err := os.Stat(filepath.Join(dir, indexesDir, stray)); err != nil {
		t.Errorf("the folder was not left alone: %v", err)
	}
}

// failingFS fails every change with one error.
type failingFS struct {
	vfs.FS
	err error
}

func (f failingFS) Create(path string) (vfs.File, error) {
	return nil, &os.PathError{Op: "open", Path: path, Err: f.err}
}

func TestFoldersThatCannotBeWritten(t *testing.T) {
	for err, reason := range map[error]error{
		syscall.EROFS: ErrDirReadOnly, syscall.EACCES: ErrDirReadOnly, syscall.EPERM: ErrDirReadOnly,
		syscall.ENOSPC: ErrDirFull, syscall.EDQUOT: ErrDirFull, syscall.EIO: ErrDirUnusable,
	} {
		dir := t.TempDir()
		_, got := New(Config{DataDir: dir, FS: failingFS{vfs.OS, err}})
		checkDirError(t, got, reason, dir)
		if !errors.Is(got, err) {
			t.Errorf("%v hides its cause %v", got, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{DataDir: filepath.Join(file, "data")})
	checkDirError(t, err, ErrDirUnusable, file)
}

func TestConfigTellsEveryComplaint(t *testing.T) {
	_, err := New(Config{Limits: Limits{Searches: -1, RequestBytes: 1}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"data folder", "limit searches: -1", "limit request bytes: 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not speak of %s", err, want)
		}
	}
}
