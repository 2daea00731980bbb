package crashtest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/cli/proctest"
	"github.com/weft-search/weft/internal/corpus"
)

// weft runs a command of the real binary and returns what it prints.
func weft(t *testing.T, args ...string) string {
	t.Helper()
	bin, err := proctest.Build()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("weft %s: %v\n%s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

// TestCollectionSurvivesKill loads a real collection with the real binary, searches it, kills the process with SIGKILL, starts it
// again, and gets the same answers, to the last bit of each score.
func TestCollectionSurvivesKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	dir := corpus.Dir(t, "cranfield")
	data := filepath.Join(t.TempDir(), "data")
	queries := []string{"boundary layer transition on a flat plate", `"shock wave"`, "aeroelast*", "heat AND transfer NOT laminar"}
	ask := func(p *process) (out []string) {
		for _, q := range queries {
			raw := weft(t, "search", "--url", p.client.URL(), "--index", "cranfield", "--json", "--limit", "50", q)
			var res struct {
				Total uint64 `json:"total"`
				Hits  []struct {
					ID    string  `json:"id"`
					Score float32 `json:"score"`
				} `json:"hits"`
			}
			if err := json.Unmarshal([]byte(raw), &res); err != nil {
				t.Fatal(err)
			}
			if len(res.Hits) == 0 {
				t.Errorf("%s: found nothing", q)
			}
			b, err := json.Marshal(res)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(b))
		}
		return out
	}
	launch := func() *process {
		p, err := start(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ready(); err != nil {
			t.Fatal(err)
		}
		return p
	}

	p := launch()
	t.Log(strings.TrimSpace(weft(t, "load", "--url", p.client.URL(), "--index", "cranfield", "--id-field", "_id", filepath.Join(dir, "corpus.jsonl.gz"))))
	before := ask(p)
	p.kill()

	p = launch()
	after := ask(p)
	for i, q := range queries {
		if before[i] != after[i] {
			t.Errorf("%s: before the kill\n%s\nafter it\n%s", q, before[i], after[i])
		}
	}
	p.kill()
	weft(t, "doctor", "--data-dir", data)
}
