package hostiletest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// searches are of every kind.
var searches = []url.Values{
	{"q": {"loom"}},
	{"q": {"w*"}, "limit": {"100"}},
	{"q": {"w1* w2* loom"}, "dfs": {"true"}},
	{"q": {`"warp weft" OR loom`}, "dfs": {"true"}, "highlight": {"title,body"}},
	{"q": {"w*"}, "sort": {"year:desc,id"}, "filter": {"kind:k1"}},
	{"q": {"loom warp"}, "track_total": {"none"}},
	{"q": {"w*"}, "track_total": {"100"}},
	{"q": {"w*"}, "facets": {"kind"}, "aggs": {"y:stats(year),h:histogram(year,10),p:percentiles(year,50,99),c:cardinality(id)"}, "limit": {"0"}},
	{"q": {"*"}, "aggs": {"t:terms(id,0)"}, "limit": {"5"}},
	{"knn": {"dense:0.1,0.2,0.3,1"}, "knn_exact": {"true"}},
	{"knn": {"dense:0.1,0.2,0.3,1"}, "knn_exact": {"true"}, "facets": {"kind"}, "knn_k": {"1000"}},
	{"knn": {"bin:0x0f3c"}, "filter": {"kind:k2"}, "knn_exact": {"true"}},
	{"knn": {"sp:3=0.5,9=1"}},
	{"q": {"loom weft"}, "knn": {"dense:0.1,0.2,0.3,1"}, "knn_exact": {"true"}},
	{"q": {"loom"}, "explain": {"true"}, "dfs": {"true"}},
	{"q": {"loom"}, "profile": {"true"}},
	{"q": {"*"}, "limit": {"2000"}},
	{"q": {"w*"}, "limit": {"40"}, "offset": {"3000"}},
}

// noTime asks for searches of every kind with next to no time, and with a shard that does not answer. What comes is a refusal for the time, or an
// answer that says what it lacks. One that calls itself complete is that of a search with all the time there is.
func noTime(t *testing.T, f *fleet) {
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	if full {
		rounds = 200
	}
	seen := map[string]int{}
	whole := make([]reply, len(searches)) // documents do not change meanwhile
	params := make([]url.Values, len(searches))
	for i, p := range searches {
		params[i] = url.Values{"index": {"docs"}}
		for name, v := range p {
			params[i][name] = v
		}
		whole[i] = f.broker.must(200, "GET", target("/search", params[i]), "", "")
	}
	ask := func(i, timeout int, partial, floor string) (outcome string) {
		t.Helper()
		given := url.Values{"timeout_ms": {strconv.Itoa(timeout)}}
		for name, v := range params[i] {
			given[name] = v
		}
		if partial != "" {
			given.Set("allow_partial", partial)
		}
		if floor != "" {
			given.Set("min_coverage", floor)
		}
		return f.hold(t, target("/search", given), partial, whole[i])
	}
	for round := range rounds {
		for i := range searches {
			for _, partial := range []string{"", "true", "false"} {
				seen[ask(i, 1+(round+i)%8, partial, []string{"", "", "0.5", "1"}[round%4])]++
			}
		}
	}
	t.Log(seen)
	if seen["timeout"] == 0 || seen["complete"] == 0 {
		t.Error("the times are too much alike")
	}
	// A shard of which nobody answers: no search is complete.
	lost := map[string]int{}
	f.signal(t, syscall.SIGSTOP, 4, 5)
	for i := range searches {
		for _, partial := range []string{"", "true", "false"} {
			got := ask(i, 20+20*(i%3), partial, "")
			if lost[got]++; got == "complete" {
				t.Errorf("%v is complete without a shard", params[i])
			}
		}
	}
	f.signal(t, syscall.SIGCONT, 4, 5)
	t.Log("without a shard", lost)
	if lost["partial"] == 0 {
		t.Error("no partial answer without a shard")
	}
}

// signal sends a signal to nodes. Those that are to stop have stopped when it returns.
func (f *fleet) signal(t *testing.T, sig syscall.Signal, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		p := f.nodes[i].proc.Cmd.Process
		if err := p.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if sig == syscall.SIGSTOP {
			eventually(t, "it has stopped", func() bool { return stopped(t, p.Pid) })
		}
	}
}

// stopped tells whether every thread of a process has stopped; where the system does not tell, it is taken for granted.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The state stands behind the name, which is in brackets.
		if rest := b[bytes.LastIndexByte(b, ')')+1:]; !bytes.HasPrefix(rest, []byte(" T")) {
			return false
		}
	}
	return true
}

// answer is what is looked at of a reply to a search.
type answer struct {
	Total    json.RawMessage `json:"total"`
	Relation string          `json:"total_relation"`
	Hits     json.RawMessage `json:"hits"`
	Facets   json.RawMessage `json:"facets"`
	Aggs     json.RawMessage `json:"aggs"`
	Shards   struct {
		Total, OK, Failed int
		FailedAddresses   []string `json:"failed_addresses"`
		Outcomes          []struct {
			Outcome string `json:"outcome"`
		} `json:"outcomes"`
	} `json:"shards"`
	Coverage struct {
		Shards   float64
		Covered  uint64 `json:"docs_covered"`
		Total    uint64 `json:"docs_total"`
		Complete bool   `json:"complete"`
	} `json:"coverage"`
	AggFailed []string                   `json:"agg_failed_addresses"`
	Phases    map[string]json.RawMessage `json:"phases"`
	Notes     []string                   `json:"notes"`
}

// hold makes a search that may not be answered whole and holds the answer against what it says of itself, and against that of one that was.
func (f *fleet) hold(t *testing.T, to, partial string, whole reply) (outcome string) {
	t.Helper()
	r := f.broker.get(to)
	switch code := r.code(); {
	case r.status == 200:
	case r.status == 504 && code == "timeout", r.status == 503 && (code == "incomplete" || code == "group_unavailable"):
		return code
	default:
		t.Errorf("%s: %d %.300s", to, r.status, r.body)
		return "wrong"
	}
	var got, want answer
	if err := json.Unmarshal(r.body, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(whole.body, &want); err != nil {
		t.Fatal(err)
	}
	wrong := func(what string) {
		t.Helper()
		t.Errorf("%s: %s: %.2000s", to, what, r.body)
	}
	s, failed := got.Shards, 0
	for _, o := range s.Outcomes {
		if o.Outcome != "answered" && o.Outcome != "skipped" {
			failed++
		}
	}
	switch {
	case s.Total != 3 || s.Total != s.OK+s.Failed || len(s.Outcomes) != s.Total || failed != s.Failed:
		wrong("the shards do not add up")
	case s.Failed > 0 != (len(s.FailedAddresses) > 0):
		wrong("the addresses are not those of shards that failed")
	case got.Coverage.Covered > got.Coverage.Total:
		wrong("it covers more than there is")
	case got.Coverage.Complete && (s.Failed > 0 || len(got.AggFailed) > 0 || len(got.Phases) > 0 || got.Coverage.Covered != got.Coverage.Total || got.Coverage.Total != count):
		wrong("it is complete and lacks something")
	case !got.Coverage.Complete && s.Failed == 0 && len(got.AggFailed) == 0 && len(got.Phases) == 0 && len(got.Notes) == 0:
		wrong("it is not complete and lacks nothing")
	case s.Failed > 0 && got.Relation == "eq":
		wrong("its total is that of all")
	case !got.Coverage.Complete && partial == "false":
		wrong("it was to be complete")
	}
	if !got.Coverage.Complete {
		return "partial"
	}
	if strings.Contains(to, "explain=") || strings.Contains(to, "profile=") {
		return "complete"
	}
	if strings.Contains(to, "track_total=100") {
		got.Total = want.Total // where counting stops depends on how a member has cut its index into segments
	}
	for _, part := range [][3]string{
		{"total", string(got.Total) + got.Relation, string(want.Total) + want.Relation},
		{"hits", string(got.Hits), string(want.Hits)},
		{"facets", string(got.Facets), string(want.Facets)},
		{"aggs", string(got.Aggs), string(want.Aggs)},
	} {
		if part[1] != part[2] {
			t.Errorf("%s is complete, and its %s are others:\n%.500s\nwant\n%.500s", to, part[0], part[1], part[2])
		}
	}
	return "complete"
}
