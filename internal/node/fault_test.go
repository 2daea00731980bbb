package node

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
)

// TestFailingDisk lets the disk fail under a node: writes are refused with a clear error, searches go on, and what was
// acknowledged is there, before and after a restart.
func TestFailingDisk(t *testing.T) {
	tests := []struct {
		name   string
		kinds  faultfs.Kind
		fault  faultfs.Fault
		status int
		code   api.Code
	}{
		{"failing fsync", faultfs.Sync, faultfs.IOError, 503, api.ReadOnly},
		{"failing write", faultfs.Write | faultfs.WriteAt, faultfs.IOError, 503, api.ReadOnly},
		{"full disk", faultfs.Space, faultfs.NoSpace, 507, api.DiskFull},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, disk := t.TempDir(), faultfs.New(vfs.OS)
			s := newServer(t, Config{DataDir: dir, FS: disk})
			s.put("default", `{"id":"1","t":"kept"}`)
			disk.Inject(faultfs.From(1, tt.kinds, tt.fault))
			if tt.code == api.ReadOnly {
				// The first write meets the failure: nobody knows what the disk has of it, so this is no refusal before any effect.
				s.do("POST", "/index", "application/json", `{"id":"0","t":"lost"}`).problem(500, api.WriteUncertain)
			}
			for _, call := range []func() *answer{
				func() *answer { return s.do("POST", "/index", "application/json", `{"id":"2","t":"lost"}`) },
				func() *answer { return s.do("DELETE", "/index?id=1", "", "") },
				func() *answer { return s.bulk("default", "{\"id\":\"3\",\"t\":\"lost\"}\n") },
				func() *answer { return s.do("POST", "/index", "application/json", `{"id":"4","new":"field"}`) },
			} {
				p := call().problem(tt.status, tt.code)
				if text, _ := p["detail"].(string); text == "" || strings.Contains(text, dir) {
					t.Errorf("detail %q", text)
				}
			}
			// A new index cannot be made, and does not half exist.
			if a := s.do("PUT", "/indexes/more", "", ""); a.status < 500 {
				t.Errorf("a new index on a failing disk: %d %s", a.status, a.body)
			}
			s.do("GET", "/indexes/more", "", "").problem(404, api.IndexNotFound)
			check := func(s *server) {
				t.Helper()
				if ids, total := s.ids("/search?q=kept"); total != 1 || ids[0] != "1" {
					t.Errorf("what was acknowledged: %v", ids)
				}
				if _, total := s.ids("/search?q=lost"); total != 0 {
					t.Errorf("%v documents that were refused are there", total)
				}
				s.do("GET", "/doc?id=1", "", "").want(http.StatusOK)
			}
			check(s)
			if got := string(s.do("GET", "/readyz", "", "").want(200).body); !strings.Contains(got, `"read_only":["default"]`) {
				t.Errorf("%s", got)
			}
			ends := map[api.Code]string{api.ReadOnly: "after the restart", api.DiskFull: "by themselves"}[tt.code]
			if got := s.do("GET", "/indexes/default", "", "").want(200).json(); got["state"] != "read_only" || !strings.Contains(got["reason"].(string), ends) {
				t.Errorf("state %v, reason %v", got["state"], got["reason"])
			}
			if got := string(s.do("GET", "/metrics", "", "").want(200).body); !strings.Contains(got, `weft_index_read_only{index="default"} 1`) {
				t.Error("the metrics do not tell")
			}
			disk.Inject(nil)
			if err := s.node.Close(t.Context()); err != nil {
				t.Logf("close after the failure: %v", err)
			}
			again := newServer(t, Config{DataDir: dir})
			check(again)
			again.put("default", `{"id":"2","t":"later"}`)
		})
	}
}

// TestUnknownOutcomeOfADeletion lets the last step of a deletion fail: what is written under the name afterwards must not be thrown
// away by a restart.
func TestUnknownOutcomeOfADeletion(t *testing.T) {
	dir, disk := t.TempDir(), faultfs.New(vfs.OS)
	s := newServer(t, Config{DataDir: dir, FS: disk})
	s.put("default", `{"id":"1","t":"old"}`)
	once := faultfs.Nth(1, faultfs.SyncDir, faultfs.IOError)
	disk.Inject(func(op faultfs.Op) *faultfs.Fault {
		if op.Path != dir {
			return nil // the index syncs folders of its own in the background
		}
		return once(op)
	})
	if p := s.do("DELETE", "/indexes/default", "", "").problem(500, api.WriteUncertain); !strings.Contains(p["detail"].(string), "not known") {
		t.Errorf("%v", p["detail"])
	}
	disk.Inject(nil)
	s.do("GET", "/search", "", "").problem(404, api.IndexNotFound)
	s.put("default", `{"id":"2","t":"new"}`)
	if err := s.node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := newServer(t, Config{DataDir: dir})
	if ids, total := again.ids("/search"); total != 1 || ids[0] != "2" {
		t.Errorf("after a restart: %v", ids)
	}
}

// TestNameUsedAgainBesideItsDeletion: the folders that are being removed and the live one come in any order.
func TestNameUsedAgainBesideItsDeletion(t *testing.T) {
	for range 8 { // the order of the entries is that of random folder names
		dir := t.TempDir()
		s := newServer(t, Config{DataDir: dir})
		s.put("default", `{"id":"2","t":"new"}`)
		s.node.catalog.change.Lock()
		for range 2 {
			err := s.node.catalog.write(func(map[string]catalogEntry) {}, &catalogEntry{Name: "default", Dir: newUUID(), Deleting: true})
			if err != nil {
				t.Fatal(err)
			}
		}
		s.node.catalog.change.Unlock()
		if err := s.node.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := newServer(t, Config{DataDir: dir})
		if _, total := again.ids("/search?q=new"); total != 1 {
			t.Errorf("%v documents", total)
		}
		if err := again.node.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCatalogFailsAtEveryStep fails each operation on the disk in turn while indexes are made and deleted. Whatever a call said, a
// restart finds a catalog that it can read, and in it everything that was acknowledged.
func TestCatalogFailsAtEveryStep(t *testing.T) {
	for step := 1; ; step++ {
		dir, disk := t.TempDir(), faultfs.New(vfs.OS)
		s := newServer(t, Config{DataDir: dir, FS: disk})
		s.put("kept", `{"id":"1","t":"x"}`)
		disk.Inject(faultfs.Under(catalogFile, faultfs.Nth(step, faultfs.Mutating, faultfs.NoSpace)))
		made := s.do("PUT", "/indexes/made", "", "").status
		gone := s.do("DELETE", "/indexes/kept", "", "").status
		fired := disk.Fired()
		disk.Inject(nil)
		if err := s.node.Close(t.Context()); err != nil {
			t.Fatalf("step %d: close: %v", step, err)
		}
		again := newServer(t, Config{DataDir: dir})
		if got := again.do("GET", "/indexes/made", "", "").status; made == 201 && got != 200 {
			t.Errorf("step %d: an index that was made is not there: %d", step, got)
		}
		a := again.do("GET", "/search?index=kept&q=x", "", "")
		if gone == 200 && a.status != 404 {
			t.Errorf("step %d: an index that was deleted is there: %d", step, a.status)
		}
		if a.status == 200 && a.json()["total"] != 1.0 {
			t.Errorf("step %d: an index was not deleted and lost its documents", step)
		}
		if err := again.node.Close(t.Context()); err != nil {
			t.Fatalf("step %d: close: %v", step, err)
		}
		if !fired {
			if made != 201 || gone != 200 {
				t.Errorf("nothing failed, but %d and %d", made, gone)
			}
			break
		}
	}
}

// TestFullMemtablesThatCannotBeFlushedAreTold lets every segment fail to reach its place: when memory is full writes are refused,
// and readiness, the state of the index and the metrics say so, until the disk is well.
func TestFullMemtablesThatCannotBeFlushedAreTold(t *testing.T) {
	disk := faultfs.New(vfs.OS)
	s := newServer(t, Config{FS: disk, Engine: Engine{MemtableBytes: 64 << 10}})
	s.put("default", `{"id":"first","t":"x"}`)
	disk.Inject(faultfs.Under("/segments/", faultfs.From(1, faultfs.Rename|faultfs.Create, faultfs.IOError)))
	told := func() (ready, metrics bool, state string) {
		ready = !strings.Contains(string(s.do("GET", "/readyz", "", "").want(200).body), `"read_only":["default"]`)
		metrics = strings.Contains(string(s.do("GET", "/metrics", "", "").want(200).body), `weft_index_read_only{index="default"} 0`)
		state, _ = s.do("GET", "/indexes/default", "", "").want(200).json()["state"].(string)
		return ready, metrics, state
	}
	n := 0
	until(t, "a write is refused for the disk", func() bool {
		n++
		a := s.do("POST", "/index", "application/json", fmt.Sprintf(`{"id":"%d","t":"%s"}`, n, strings.Repeat("word ", 500)))
		if a.status == 503 {
			a.problem(503, api.ReadOnly)
		}
		return a.status == 503
	})
	if ready, metrics, state := told(); ready || metrics || state != "read_only" {
		t.Errorf("while writes are refused: readiness well %v, metrics well %v, state %s", ready, metrics, state)
	}
	disk.Inject(nil)
	until(t, "writes go on", func() bool {
		ready, metrics, state := told()
		return ready && metrics && state == "open"
	})
	s.put("default", `{"id":"last"}`)
}
