package node

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedFiles flips a bit in, and cuts, every kind of file that an index has. Afterwards the index either has every document
// that was acknowledged, or it is named as unavailable with the reason, while another index serves.
func TestDamagedFiles(t *testing.T) {
	const docs = 40
	dir := t.TempDir()
	s := newServer(t, Config{DataDir: dir})
	s.put("good", `{"id":"1","t":"x"}`)
	for i := range docs {
		s.put("bad", fmt.Sprintf(`{"id":"%02d","t":"x y%d","n":%d}`, i, i%3, i))
		if i == docs/2 {
			l, err := s.node.catalog.use(context.Background(), "bad")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.eng.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
			l.release()
		}
	}
	// The end of a log cannot be told from a write that was cut off by a crash: nothing is asked of the last record.
	s.put("bad", `{"id":"last","t":"z"}`)
	l, err := s.node.catalog.use(context.Background(), "bad")
	if err != nil {
		t.Fatal(err)
	}
	home := s.node.indexDir(l.entry)
	l.release()
	// A copy of the running folder is what a power cut leaves.
	image := filepath.Join(t.TempDir(), "image")
	if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	rel, err := filepath.Rel(dir, home)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	err = filepath.WalkDir(filepath.Join(image, rel), func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != lockFile {
			files = append(files, p)
		}
		return err
	})
	if err != nil || len(files) < 4 {
		t.Fatalf("files %v, %v", files, err)
	}
	failed, whole := 0, 0
	for _, file := range files {
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(good) == 0 {
			continue // the lock of the engine
		}
		spoilt := map[string][]byte{"removed": nil}
		for _, at := range []int{len(good) / 7, len(good) / 2} {
			flipped := append([]byte(nil), good...)
			flipped[at] ^= 0x10
			spoilt[fmt.Sprintf("bit flipped in byte %d of %d", at, len(good))] = flipped
			spoilt[fmt.Sprintf("cut to %d of %d", at, len(good))] = good[:at]
		}
		for what, bytes := range spoilt {
			if isLog := strings.HasSuffix(file, ".log"); isLog && (bytes == nil || len(bytes) < len(good)) {
				continue // a log that ends early is a log whose rest was never acknowledged
			}
			if bytes == nil {
				err = os.Remove(file)
			} else {
				err = os.WriteFile(file, bytes, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(file) + ": " + what
			again := filepath.Join(t.TempDir(), "again")
			if err := os.CopyFS(again, os.DirFS(image)); err != nil {
				t.Fatal(err)
			}
			s := newServer(t, Config{DataDir: again})
			if _, total := s.ids("/search?index=good&q=x"); total != 1 {
				t.Errorf("%s: the other index has %v", name, total)
			}
			r := s.node.Ready()
			if len(r.Failed) == 1 && r.Failed[0].Index == "bad" {
				failed++
				if strings.Contains(r.Failed[0].Reason, "log of the server") {
					t.Errorf("%s: reason %q", name, r.Failed[0].Reason)
				}
				if a := s.do("GET", "/search?index=bad", "", ""); a.status != 503 {
					t.Errorf("%s: a damaged index answers %d", name, a.status)
				}
			} else {
				whole++
				if _, total := s.ids("/search?index=bad&q=x"); total != docs {
					t.Errorf("%s: %v of %d documents are there, and nothing says why", name, total, docs)
				}
			}
			if err := s.node.Close(context.Background()); err != nil {
				t.Errorf("%s: close: %v", name, err)
			}
			if err := os.WriteFile(file, good, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if failed == 0 {
		t.Error("no damage was noticed")
	}
	t.Logf("%d files; %d times damage was named, %d times it did not matter", len(files), failed, whole)
}
