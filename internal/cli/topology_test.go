package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/client"
)

// jobServer answers for a job: the states that it is in, one look after the other, from when it is cancelled on. The last stays.
func jobServer(t *testing.T, states ...string) string {
	t.Helper()
	var mu sync.Mutex
	cancelled := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		state := "running"
		switch {
		case r.URL.Path != "/_jobs/move-1":
			t.Errorf("%s %s", r.Method, r.URL)
		case r.Method == http.MethodPost:
			if a := r.URL.Query().Get("action"); a != "cancel" {
				t.Errorf("the action is %q", a)
			}
			cancelled = true
		case cancelled:
			if state = states[0]; len(states) > 1 {
				states = states[1:]
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(map[string]any{"id": "move-1", "kind": "rebalance", "state": state, "done": 3, "total": 9}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestJobsArePrinted(t *testing.T) {
	for _, tt := range []struct {
		job  client.Job
		want string
	}{
		{client.Job{ID: "a", Kind: "rebalance", State: "done", Done: 9, Total: 9, Moved: 4, Started: "then"}, "job a  rebalance  done  9 of 9  4 moved  started then\n"},
		{client.Job{ID: "a", Kind: "rebalance", State: "running", Cancelling: true, Started: "then"}, "job a  rebalance  running, is cancelled  0 of 0  0 moved  started then\n"},
		{client.Job{ID: "b", Kind: "repair", State: "failed", Done: 1, Total: 2, Copied: 3, Removed: 5, Started: "then", Error: "it is away"}, "job b  repair  failed  1 of 2  3 copied, 5 removed  started then  it is away\n"},
	} {
		var out bytes.Buffer
		if err := printJob(&IO{Stdout: &out}, &tt.job); err != nil || out.String() != tt.want {
			t.Errorf("%q, want %q (%v)", out.String(), tt.want, err)
		}
	}
}

func TestCancelWaitsForTheEndOfTheJob(t *testing.T) {
	for _, tt := range []struct {
		name   string
		states []string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{"it is cancelled", []string{"running", "running", "cancelled"}, nil, 0, "rebalance  cancelled", ""},
		{"it was done before", []string{"running", "done"}, nil, 1, "rebalance  done", "the job is done"},
		{"it fails", []string{"failed"}, nil, 1, "rebalance  failed", "the job is failed"},
		{"it takes too long", []string{"running"}, []string{"--wait-for", "1ms"}, 1, "", "job move-1 goes on: it has not ended in 1ms"},
		{"it is not waited for", []string{"running"}, []string{"--no-wait"}, 0, "rebalance  running", ""},
		{"no time is given", []string{"running"}, []string{"--wait-for", "0s"}, 2, "", "--wait-for: 0s is not above 0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"topology", "cancel", "move-1", "--url", jobServer(t, tt.states...)}, tt.args...)
			code, stdout, stderr := run(t, args...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) || tt.stdout == "" && stdout != "" {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}
