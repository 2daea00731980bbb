package node

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/node/api"
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
