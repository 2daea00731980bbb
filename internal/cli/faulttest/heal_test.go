//go:build linux

package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/node"
)

// eventually waits until ok says nothing any more; what it says last is why the test fails.
func eventually(t *testing.T, what string, ok func(ctx context.Context) string) {
	t.Helper()
	await(t, patience, what, ok)
}

// eventually is that for what may wait for a broker that is gone for good: for five minutes from when it was last heard, as docs/cluster.md has it.
func (c *cluster) eventually(what string, ok func(ctx context.Context) string) {
	c.t.Helper()
	most := patience
	if !c.orphans.IsZero() {
		most += max(0, 5*time.Minute-time.Since(c.orphans))
	}
	await(c.t, most, what, ok)
}

func await(t *testing.T, most time.Duration, what string, ok func(ctx context.Context) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	why := ""
	for {
		now := ok(ctx)
		if now == "" {
			return
		}
		if ctx.Err() == nil || why == "" {
			why = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %s", what, why)
		}
	}
}

// mended waits until every broker reaches every member, nothing is under way, nothing is missed, and a repair finds nothing to do.
func (c *cluster) mended() {
	c.t.Helper()
	c.quiet(true)
	clear(c.lost)
	for _, b := range c.middle {
		c.repaired(b)
	}
	c.repaired(c.brokers[0])
	c.quiet(false)
}

// repaired asks a broker for a repair, and again until one finds nothing to do.
func (c *cluster) repaired(b *broker) {
	c.t.Helper()
	c.eventually("repair by "+b.name, func(ctx context.Context) string {
		a := b.call(ctx, http.MethodPost, "/_repair", nil, "", nil, "")
		var r struct {
			OK       bool   `json:"ok"`
			Copied   uint64 `json:"copied"`
			Removed  uint64 `json:"removed"`
			Deferred uint64 `json:"deferred"`
		}
		if a.err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &r) != nil || !r.OK || r.Copied+r.Removed+r.Deferred > 0 {
			c.t.Logf("repair by %s: %v", b.name, a)
			return a.String()
		}
		return ""
	})
}

// quiet waits until every broker reaches every member and has nothing under way, and no member is behind. One that is told to refuse
// documents is looked at again after minutes, or after a repair: with refusing it may be behind for these.
func (c *cluster) quiet(refusing bool) {
	c.t.Helper()
	for _, b := range c.coordinators() {
		well := false
		defer func() {
			if !well {
				c.t.Logf("%s keeps for members: %s", b.name, b.keeps())
			}
		}()
		c.eventually(b.name+" and its members", func(ctx context.Context) string {
			c.healthy()
			var top struct {
				Epoch  uint64 `json:"epoch"`
				Groups []struct {
					Members []struct {
						Address string `json:"address"`
						Ready   bool   `json:"ready"`
						Epoch   uint64 `json:"epoch"`
						Behind  bool   `json:"behind"`
						Refuses *struct {
							Documents int `json:"documents"`
						} `json:"refuses"`
					} `json:"members"`
				} `json:"groups"`
			}
			a := b.call(ctx, http.MethodGet, "/_topology", nil, "", nil, "")
			if a.err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &top) != nil {
				return a.String()
			}
			for _, g := range top.Groups {
				for _, m := range g.Members {
					if !m.Ready || m.Behind && (!refusing || m.Refuses == nil) || m.Epoch != top.Epoch {
						return a.String()
					}
				}
			}
			return c.idle(ctx, b)
		})
		well = true
	}
}

// keeps is what the metrics of a broker say of what it keeps for members and does about it.
func (b *broker) keeps() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	a := b.call(ctx, http.MethodGet, "/metrics", nil, "", nil, "")
	if a.err != nil {
		return a.err.Error()
	}
	var out []string
	for line := range strings.Lines(string(a.body)) {
		if strings.HasPrefix(line, "weft_cluster_hints") || strings.HasPrefix(line, "weft_cluster_job") || strings.HasPrefix(line, "weft_cluster_suspect") ||
			strings.HasPrefix(line, "weft_cluster_compar") || strings.HasPrefix(line, "weft_cluster_replay") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	jobs := b.call(ctx, http.MethodGet, "/_jobs", nil, "", nil, "")
	return strings.Join(out, "; ") + "; jobs: " + jobs.String()
}

// idle waits for calls of a broker that go on although their callers have left.
func (c *cluster) idle(ctx context.Context, b *broker) string {
	a := b.call(ctx, http.MethodGet, "/metrics", nil, "", nil, "")
	if a.err != nil || a.status != http.StatusOK {
		return a.String()
	}
	seen := 0
	for line := range strings.Lines(string(a.body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "weft_admitted_writes" || name == "weft_admitted_bulks" {
			if seen++; value != "0" {
				return line
			}
		}
	}
	if seen != 2 {
		return "the metrics do not tell what is under way"
	}
	return ""
}

// contents are the documents that a member holds.
func (m *member) contents(ctx context.Context) (docs map[string]string, err error) {
	l := m.dial()
	defer func() {
		if cerr := l.Close(); err == nil {
			err = cerr
		}
	}()
	docs = map[string]string{}
	var ids []string
	if _, err := l.IDs(ctx, &leaf.IDsRequest{Index: index}, func(page []string) error {
		ids = append(ids, page...)
		return nil
	}); err != nil {
		return nil, err
	}
	for part := range slices.Chunk(ids, leaf.MaxIDs) {
		if _, err := l.Export(ctx, &leaf.ExportRequest{Index: index, IDs: part}, func(d leaf.ExportedDoc) error {
			if _, twice := docs[d.ID]; twice {
				return fmt.Errorf("%s holds %s twice", m.name, d.ID)
			}
			docs[d.ID] = string(d.Source)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if len(docs) != len(ids) {
		return nil, fmt.Errorf("%s lists %d documents and gives %d", m.name, len(ids), len(docs))
	}
	return docs, nil
}

// verify checks everything that has to hold once a cluster is mended, and returns its documents.
func (l *load) verify() {
	t := l.c.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, group := map[string]string{}, map[string]int{}
	var first map[string]string
	for i, m := range l.c.members {
		docs, err := m.contents(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && l.c.members[i-1].group == m.group {
			if !maps.Equal(first, docs) {
				t.Errorf("%s differs from %s: %s", m.name, l.c.members[i-1].name, difference(first, docs))
			}
			continue
		}
		first = docs
		for id, d := range docs {
			if g, twice := group[id]; twice {
				t.Errorf("%s is in groups %d and %d", id, g, m.group)
			}
			all[id], group[id] = d, m.group
		}
	}
	live := map[string]string{}
	counts := map[string]int{}
	for id, raw := range all {
		var d doc
		if err := json.Unmarshal([]byte(raw), &d); err != nil {
			t.Fatal(err)
		}
		kind := "live"
		if strings.HasPrefix(id, "s-") {
			kind = "stable"
		}
		if d != newDoc(kind, id, d.Value) {
			t.Errorf("%s is not as it was written: %s", id, raw)
		}
		counts[d.Bucket]++
		if kind == "live" {
			live[id] = d.Value
		}
	}
	if n := len(all) - len(live); n != stableDocs {
		t.Errorf("%d of the stable documents are there, %d were loaded", n, stableDocs)
	}
	for _, why := range append(l.h.check(), l.h.settle(live)...) {
		t.Error(why)
	}
	schema := l.schema(ctx)
	for _, b := range l.c.brokers {
		l.listed(ctx, b, all, counts)
		l.extras(ctx, b, all)
	}
	l.equal(ctx, schema, all)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, why := range clip(l.wrong) {
		t.Error(why)
	}
	l.wrong = nil
}

// schema is that of the index, by all brokers and all members. Where brokers have no store, two that reached other members can have given them fields in
// another order (docs/cluster.md).
func (l *load) schema(ctx context.Context) string {
	t := l.c.t
	t.Helper()
	first := ""
	for _, b := range l.c.brokers {
		var in struct {
			Schema string `json:"schema"`
		}
		a := b.call(ctx, http.MethodGet, "/indexes/"+index, nil, "", nil, "")
		if a.err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &in) != nil || in.Schema == "" {
			t.Fatalf("%s does not tell the schema: %v", b.name, a)
		}
		if first == "" {
			first = in.Schema
		}
		if in.Schema != first && (l.c.shape.keeping != byMembers || !slices.Equal(sorted(in.Schema), sorted(first))) {
			t.Errorf("%s has the schema\n%s\nand %s\n%s", l.c.brokers[0].name, first, b.name, in.Schema)
		}
	}
	return first
}

// sorted are the lines of a schema without their order.
func sorted(sdl string) []string { return slices.Sorted(strings.Lines(sdl)) }

// extras checks that a broker finds the documents that have a field that was inferred.
func (l *load) extras(ctx context.Context, b *broker, all map[string]string) {
	t := l.c.t
	t.Helper()
	want := map[string]int{}
	for _, raw := range all {
		var d doc
		if err := json.Unmarshal([]byte(raw), &d); err != nil {
			t.Fatal(err)
		}
		if d.name != "" {
			want[d.name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		f := l.search(ctx, b, url.Values{"q": {"_exists_:" + name}, "limit": {"0"}})
		if f == nil || !f.whole() || f.Total != want[name] {
			t.Errorf("%s does not find the %d documents with %s: %+v", b.name, want[name], name, f)
		}
	}
}

func difference(a, b map[string]string) string {
	var out []string
	for id, d := range a {
		if b[id] != d {
			out = append(out, fmt.Sprintf("%s: %q and %q", id, d, b[id]))
		}
	}
	for id, d := range b {
		if _, ok := a[id]; !ok {
			out = append(out, fmt.Sprintf("%s: \"\" and %q", id, d))
		}
	}
	slices.Sort(out)
	return strings.Join(clip(out), "\n\t\t")
}

// listed checks that a broker lists and counts each document once.
func (l *load) listed(ctx context.Context, b *broker, all map[string]string, counts map[string]int) {
	t := l.c.t
	t.Helper()
	p := url.Values{"sort": {"id"}, "limit": {"700"}, "fields": {""}, "aggs": {"b:terms(bucket,0)"}}
	var ids []string
	for {
		f := l.search(ctx, b, p)
		if f == nil || !f.whole() {
			t.Fatalf("%s does not list everything: %+v", b.name, f)
		}
		for _, h := range f.Hits {
			ids = append(ids, h.ID)
		}
		if len(f.Aggs) > 0 {
			got := map[string]int{}
			for _, x := range f.Aggs["b"].Buckets {
				got[x.Value] = x.Count
			}
			if f.Total != len(all) || !maps.Equal(got, counts) {
				t.Errorf("%s counts %d documents in %v, there are %d in %v", b.name, f.Total, got, len(all), counts)
			}
		}
		if f.Next == "" {
			break
		}
		p.Set("after", f.Next)
		p.Del("aggs")
	}
	if want := slices.Sorted(maps.Keys(all)); !slices.Equal(ids, want) {
		t.Errorf("%s lists %d documents, there are %d", b.name, len(ids), len(want))
	}
}

// equal compares searches with those of one fresh node that has the same documents.
func (l *load) equal(ctx context.Context, schema string, all map[string]string) {
	t := l.c.t
	t.Helper()
	n, err := node.New(node.Config{DataDir: t.TempDir(), SlowSearch: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	do := func(method, path string, ctype string, body []byte) *answer {
		r := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", ctype)
		w := httptest.NewRecorder()
		n.Handler().ServeHTTP(w, r)
		return &answer{status: w.Code, body: w.Body.Bytes()}
	}
	if a := do(http.MethodPut, "/indexes/"+index, "text/plain", []byte(schema)); a.status != http.StatusCreated {
		t.Fatal(a)
	}
	var body []byte
	for _, id := range slices.Sorted(maps.Keys(all)) {
		body = append(append(body, all[id]...), '\n')
	}
	if a := do(http.MethodPost, "/index/bulk?index="+index, "application/x-ndjson", body); a.status != http.StatusOK {
		t.Fatal(a)
	}
	r := rand.New(rand.NewPCG(l.seed, 77))
	names := inferred(schema)
	for range 40 {
		p := url.Values{"index": {index}, "dfs": {"true"}, "limit": {strconv.Itoa(r.IntN(40))}, "q": {query(r, names)}}
		switch r.IntN(4) {
		case 0:
			p.Set("sort", []string{"n", "bucket,score", "value:desc", "n:desc,id:desc"}[r.IntN(4)])
		case 1:
			p.Set("aggs", "b:terms(bucket,3),s:stats(n),p:percentiles(n,50,90),c:cardinality(value)")
		case 2:
			p.Set("filter", "kind:live")
		}
		b := l.broker(r)
		want := do(http.MethodGet, "/search?"+p.Encode(), "", nil)
		got := b.call(ctx, http.MethodGet, "/search", p, "", nil, "")
		if x, y := essence(want), essence(got); got.err != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("%s answers %v with\n\t%v\nand a node with\n\t%v", b.name, p, got, want)
		}
	}
}

// inferred are the fields of a schema that came from documents.
func inferred(schema string) []string {
	var out []string
	for line := range strings.Lines(schema) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "field "+extraPrefix); ok {
			name, _, _ = strings.Cut(name, ":")
			out = append(out, extraPrefix+name)
		}
	}
	return out
}

func query(r *rand.Rand, names []string) string {
	parts := make([]string, 1+r.IntN(3))
	for i := range parts {
		switch r.IntN(8) {
		case 6, 7:
			if len(names) == 0 {
				parts[i] = "w1"
				continue
			}
			name := names[r.IntN(len(names))]
			switch strings.Split(name, "_")[1] {
			case "int", "num":
				parts[i] = fmt.Sprintf("%s:[%d TO %d]", name, r.IntN(50), 50+r.IntN(900))
			case "text":
				parts[i] = fmt.Sprintf("%s:w%d", name, r.IntN(20))
			default:
				parts[i] = "_exists_:" + name
			}
		case 0:
			parts[i] = fmt.Sprintf(`"w%d w%d"~3`, r.IntN(60), r.IntN(60))
		case 1:
			parts[i] = fmt.Sprintf("w%d*", r.IntN(30))
		case 2:
			parts[i] = fmt.Sprintf("n:[%d TO %d]", r.IntN(500), 500+r.IntN(500))
		default:
			parts[i] = fmt.Sprintf("w%d", r.IntN(200))
		}
	}
	return strings.Join(parts, " ")
}

// essence is a reply without what speaks of who answered and how fast.
func essence(a *answer) map[string]any {
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.UseNumber() // scores are compared as they are printed, which is by their bits
	var out map[string]any
	if a.err != nil || d.Decode(&out) != nil {
		return map[string]any{"unreadable": a.String()}
	}
	for _, member := range []string{"took_ms", "timings", "slowest_shard", "request_id", "shards", "next"} {
		delete(out, member)
	}
	out["status"] = a.status
	return out
}

// doctor ends the members in good order and checks their folders.
func (c *cluster) doctor() {
	c.t.Helper()
	for _, m := range c.members {
		m.mu.Lock()
		m.gone = true
		err := m.proc.Stop()
		m.mu.Unlock()
		if err != nil {
			c.t.Errorf("%s: %v", m.name, err)
		}
		args := []string{c.bin, "doctor", "--data-dir", m.dir}
		if m.disk != nil {
			args = append(m.disk.enter(), args...)
		}
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			c.t.Errorf("%s: doctor: %v\n%s", m.name, err, out)
		}
	}
}
