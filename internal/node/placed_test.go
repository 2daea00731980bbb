package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
)

func placedBy(t *testing.T, n *Node, epoch uint64, text string) error {
	t.Helper()
	_, err := n.Leaf().Place(t.Context(), &leaf.PlaceRequest{Epoch: epoch, Map: []byte(text)})
	return err
}

// TestPlacedStays gives a node maps, and looks for the last after restarts.
func TestPlacedStays(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		epoch uint64
		text  string
	}{{0, ""}, {3, "{}"}, {0, ""}, {1 << 60, "\x00 no JSON \xff"}, {math.MaxUint64, ""}, {0, ""}} {
		n, err := New(Config{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		before, err := n.Leaf().Placed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.epoch > 0 {
			if err := placedBy(t, n, c.epoch, c.text); err != nil {
				t.Fatal(err)
			}
		}
		want := []leaf.PlaceReply{{}, {}, {Epoch: 3, Map: []byte("{}")}, {Epoch: 3, Map: []byte("{}")}, {Epoch: 1 << 60, Map: []byte("\x00 no JSON \xff")}, {Epoch: math.MaxUint64}}[i]
		if before.Node != n.ID() || before.Epoch != want.Epoch || string(before.Map) != string(want.Map) {
			t.Errorf("start %d: %d %q, want %d %q", i, before.Epoch, before.Map, want.Epoch, want.Map)
		}
		// Without a map there is no file: a folder of before is one of now.
		if _, err := os.Stat(filepath.Join(dir, placedFile)); (err == nil) != (i > 0) {
			t.Errorf("start %d: the file: %v", i, err)
		}
		if err := n.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedPlaced(t *testing.T) {
	seal := func(content string) string {
		return fmt.Sprintf(`{"format":1,"checksum":%q,"content":%s}`, checksum([]byte(content)), content)
	}
	for name, c := range map[string]struct {
		text   string
		reason error
	}{
		"empty":           {"", ErrDirDamaged},
		"cut off":         {`{"format":1,"checksum":"00`, ErrDirDamaged},
		"newer":           {strings.Replace(seal(`{"epoch":"1","map":""}`), `"format":1`, `"format":3`, 1), ErrDirNewer},
		"flipped":         {strings.Replace(seal(`{"epoch":"1","map":""}`), `"epoch":"1"`, `"epoch":"2"`, 1), ErrDirDamaged},
		"without epoch":   {seal(`{"epoch":"0","map":"e30="}`), ErrDirDamaged},
		"no map":          {seal(`{"epoch":"1","map":"?"}`), ErrDirDamaged},
		"longer":          {seal(`{"epoch":"1","map":"` + strings.Repeat("AAAA", leaf.MaxMap/3+1) + `"}`), ErrDirDamaged},
		"more than known": {seal(`{"epoch":"1","map":"","more":1}`), ErrDirDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, placedFile)
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := New(Config{DataDir: dir})
			checkDirError(t, err, c.reason, path)
		})
	}
}

// TestPlaceOnFailingDisk has the map of before in force when a new one cannot be written.
func TestPlaceOnFailingDisk(t *testing.T) {
	for _, c := range []struct {
		name  string
		kinds faultfs.Kind
		fault faultfs.Fault
		code  api.Code
	}{
		{"failing fsync", faultfs.Sync, faultfs.IOError, api.ReadOnly},
		{"full disk", faultfs.Space, faultfs.NoSpace, api.DiskFull},
		{"failing fsync of the folder", faultfs.SyncDir, faultfs.IOError, api.WriteUncertain},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := faultfs.New(vfs.OS)
			s := newServer(t, Config{FS: disk})
			if err := placedBy(t, s.node, 5, "five"); err != nil {
				t.Fatal(err)
			}
			disk.Inject(faultfs.From(1, c.kinds, c.fault))
			wantProblem(t, c.name, placedBy(t, s.node, 6, "six"), c.code)
			disk.Inject(nil)
			now, err := s.node.Leaf().Placed(t.Context())
			if err != nil || now.Epoch != 5 || string(now.Map) != "five" {
				t.Errorf("%d %q, %v", now.Epoch, now.Map, err)
			}
			if err := placedBy(t, s.node, 6, "six"); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// TestPlaceWaitsForWrites takes a map while a load goes on that goes by the one of before.
func TestPlaceWaitsForWrites(t *testing.T) {
	s := newServer(t, Config{})
	m := s.node.Leaf()
	if err := placedBy(t, s.node, 1, ""); err != nil {
		t.Fatal(err)
	}
	body, feed := io.Pipe()
	loaded := make(chan error, 1)
	go func() {
		_, err := m.Bulk(t.Context(), &leaf.BulkRequest{Index: "a", View: leaf.View{Epoch: 1}}, body)
		loaded <- err
	}()
	if _, err := io.WriteString(feed, `{"id":"1"}`+"\n"); err != nil { // the load has begun
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	placing := make(chan error, 1)
	go func() {
		_, err := m.Place(ctx, &leaf.PlaceRequest{Epoch: 2})
		placing <- err
	}()
	until(t, "the new map is in force", func() bool { return s.node.placed.current().Epoch == 2 })
	select {
	case err := <-placing:
		t.Fatalf("the map was taken while a write by an older one was under way: %v", err)
	default:
	}
	if _, err := m.Index(t.Context(), &leaf.IndexRequest{Index: "a", View: leaf.View{Epoch: 1}, Body: []byte(`{"id":"2"}`)}); err == nil {
		t.Error("a write by the older map went through")
	} else {
		wantProblem(t, "a write by the older map", err, api.StaleMap)
	}
	// Writes by the new map, or by none, are not waited for; nor is a caller that leaves.
	if _, err := m.Index(t.Context(), &leaf.IndexRequest{Index: "a", View: leaf.View{Epoch: 2}, Body: []byte(`{"id":"2"}`)}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-placing; !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: %v", err)
	}
	go func() {
		_, err := m.Place(t.Context(), &leaf.PlaceRequest{Epoch: 2})
		placing <- err
	}()
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-loaded; err != nil {
		t.Errorf("the load: %v", err)
	}
	if err := <-placing; err != nil {
		t.Errorf("the map: %v", err)
	}
	if left := len(s.node.placed.mu.writing); left != 0 {
		t.Errorf("%d epochs are written by", left)
	}
}
