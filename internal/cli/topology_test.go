package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
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
