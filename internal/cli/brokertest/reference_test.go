package brokertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
)

// referenceBroker is the path of a broker of the reference for tests that are asked for by WEFT_E2E_SUMMA: what SUMMA_BROKER names, or summa-broker of
// the path.
func referenceBroker(t *testing.T) string {
	t.Helper()
	if os.Getenv("WEFT_E2E_SUMMA") == "" {
		t.Skip("WEFT_E2E_SUMMA is not set: it takes a real Summa broker (make e2e-summa)")
	}
	path, err := exec.LookPath(cmp.Or(os.Getenv("SUMMA_BROKER"), "summa-broker"))
	if err != nil {
		t.Skipf("there is no Summa broker: %v; set SUMMA_BROKER, or make one with cargo install summa-broker, which needs Rust 1.98 and protoc", err)
	}
	return path
}

// compared is a broker with nodes of its own.
type compared struct {
	*client
	metrics string
	servers map[string]*server
	names   *strings.Replacer // of addresses
}

// newCompared starts servers with indexes, and a program before them.
func newCompared(t *testing.T, program string, members []member, fill func(id string, c *client), flags ...string) *compared {
	t.Helper()
	x := &compared{servers: map[string]*server{}}
	args := slices.Concat([]string{"--discovery", "static"}, quick(flags), flags)
	var names []string
	for _, m := range members {
		s := startServer(t, t.TempDir(), "127.0.0.1:0")
		x.servers[m.id] = s
		names = append(names, s.addr, "at-"+m.id)
		fill(m.id, dial(t, s.addr))
		one := fmt.Sprintf("id=%s,addr=%s,shard=%s", m.id, s.addr, m.shard)
		if m.role != "" {
			one += ",role=" + m.role
		}
		args = append(args, "--backend", one)
	}
	x.names = strings.NewReplacer(names...)
	addr := free(t)
	x.metrics = free(t)
	process(t, 0, exec.Command(program, append(args, "--addr", addr, "--metrics-addr", x.metrics)...))
	x.client = dial(t, addr)
	x.health(t, "healthy", len(members))
	return x
}

// health waits until so many nodes have a health.
func (x *compared) health(t *testing.T, health string, want int) {
	t.Helper()
	soon(t, fmt.Sprint(want, " nodes are ", health), func() bool {
		r, err := x.admin.GetBackends(t.Context(), &brokerpb.GetBackendsRequest{})
		n := 0
		for _, b := range r.GetBackends() {
			if b.Health == health {
				n++
			}
		}
		return err == nil && n == want
	})
}

// free is an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

// told is an answer without what differs from one run to the next: times, addresses, segments.
func (x *compared) told(m proto.Message, err error) string {
	if err != nil {
		return fmt.Sprintf("%s %q", status.Code(err), x.names.Replace(status.Convert(err).Message()))
	}
	age := func(ms *uint64) {
		if *ms < 1<<40 {
			*ms = 0
		}
	}
	switch r := m.(type) {
	case *summapb.SearchResponse:
		r.TookMs, r.Timings = 0, nil
		for _, h := range r.Hits {
			h.Address.SegmentId = ""
		}
		for _, s := range r.Trace.GetShards() {
			for _, q := range s.Queries {
				q.Candidates = nil
			}
			s.Selected = nil
		}
		slices.SortStableFunc(r.Hits, func(a, b *summapb.SearchHit) int { // equals come by segment
			return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(fmt.Sprint(a.Fields["id"].GetValues()), fmt.Sprint(b.Fields["id"].GetValues())))
		})
		for _, h := range r.Hits {
			h.Address.DocId = 0
		}
	case *summapb.GetIndexInfoResponse:
		r.MemoryStats = nil
	case *summapb.GetTextStatsResponse:
		for _, f := range r.Stats.GetFields() { // what weft's nodes tell besides
			f.TotalTokens, f.DocsWithField, f.ChunkLengths, f.ChunkCounts = 0, 0, nil, nil
		}
	case *brokerpb.GetBackendsResponse:
		for _, b := range r.Backends {
			age(&b.IndexMapAgeMs)
			b.ConsecutiveFailures = min(b.ConsecutiveFailures, 1)
		}
	case *brokerpb.GetTopologyResponse:
		for _, i := range r.Indexes {
			for _, p := range i.Partitions {
				for _, n := range p.Replicas {
					age(&n.IndexMapAgeMs)
				}
			}
		}
	}
	b, err := prototext.MarshalOptions{}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return x.names.Replace(strings.Join(strings.Fields(string(b)), " "))
}

// counted are counters of the broker by name and labels; indexes that nobody has are unknown (B6).
func (x *compared) counted(t *testing.T, indexes []string, names ...string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for line := range strings.Lines(page(t, x.metrics)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, labels, _ := strings.Cut(strings.TrimSuffix(key, "}"), "{")
		if !slices.Contains(names, strings.TrimPrefix(name, "summa_broker_")) {
			continue
		}
		list := strings.Split(labels, ",")
		for i, l := range list {
			if index, ok := strings.CutPrefix(l, "index="); ok && !slices.Contains(indexes, strings.Trim(index, `"`)) {
				list[i] = `index="unknown"`
			}
		}
		slices.Sort(list)
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if n > 0 {
			out[name+"{"+strings.Join(list, ",")+"}"] += n
		}
	}
	return out
}

// TestRealSummaBrokerAnswersTheSame asks two brokers the same, one of weft's and one of the reference's, each before weft's nodes with the same indexes:
// replicas, shards without a usable master, an index on two shards with and without a rule, partitions, nodes that are gone. Codes, texts, messages
// and counts have to be equal, but for the lines of the differences that are named.
func TestRealSummaBrokerAnswersTheSame(t *testing.T) {
	program := referenceBroker(t)
	members := []member{{"m", "0", "master"}, {"f", "0", "follower"}, {"n", "1", ""}, {"o", "2", "follower"}, {"p", "3", "master"}, {"q", "3", "master"}, {"gone", "4", ""}}
	at := map[string][]string{
		"m": {"repl", "amb", "amb2", "pin", "whole", "wholehole"}, "f": {"repl"}, "n": {"solo", "amb", "pin", "whole"}, "o": {"follow"}, "p": {"two"}, "gone": {"lost", "amb2"},
	}
	indexes := []string{"repl", "solo", "follow", "two", "amb", "amb2", "pin", "whole", "wholehole", "lost"}
	asked := append(slices.Clone(indexes), "nowhere", "", strings.Repeat("x", 300), "a/b")
	fill := func(id string, c *client) {
		for i, index := range at[id] {
			c.fill(t, index, 2+i)
		}
	}
	flags := []string{
		"--placement", "pin*=1", "--placement", "whole*=0,1", "--placement", "far*=9", "--placement", "farparts*=0,9", "--placement-default", "reject",
		"--backend-unreachable-grace-secs", "2",
	}
	reference := newCompared(t, program, members, fill, flags...)
	weft := newCompared(t, command(t, "summa-broker").Path, members, fill, flags...)

	n := 0
	same := func(what string, call func(ctx context.Context, c *client) (proto.Message, error)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n++
		if want, got := reference.told(call(ctx, reference.client)), weft.told(call(ctx, weft.client)); got != want {
			t.Errorf("%s:\n got %.2000s\nwant %.2000s", what, got, want)
		}
	}
	everything := func(when string) {
		for _, index := range asked {
			for _, list := range []func(*client, string) map[string]func(context.Context) (proto.Message, error){reads, writes} {
				for _, rpc := range slices.Sorted(maps.Keys(list(weft.client, index))) {
					same(when+rpc+" "+index, func(ctx context.Context, c *client) (proto.Message, error) { return list(c, index)[rpc](ctx) })
				}
			}
			if index != "" {
				same(when+"GetTopology "+index, func(ctx context.Context, c *client) (proto.Message, error) {
					return c.admin.GetTopology(ctx, &brokerpb.GetTopologyRequest{IndexName: index})
				})
			}
		}
		same(when+"GetTopology", func(ctx context.Context, c *client) (proto.Message, error) {
			return c.admin.GetTopology(ctx, &brokerpb.GetTopologyRequest{})
		})
		same(when+"GetBackends", func(ctx context.Context, c *client) (proto.Message, error) {
			return c.admin.GetBackends(ctx, &brokerpb.GetBackendsRequest{})
		})
		same(when+"ListIndexes", func(ctx context.Context, c *client) (proto.Message, error) {
			return c.index.ListIndexes(ctx, &summapb.ListIndexesRequest{})
		})
		same(when+"RefreshTopology", func(ctx context.Context, c *client) (proto.Message, error) {
			return c.admin.RefreshTopology(ctx, &brokerpb.RefreshTopologyRequest{})
		})
		same(when+"health", func(ctx context.Context, c *client) (proto.Message, error) {
			return healthpb.NewHealthClient(c.conn).Check(ctx, &healthpb.HealthCheckRequest{})
		})
	}
	for _, index := range []string{"far", "farparts", "repl", "", "bad/name", "pin2", "whole", "new"} {
		for _, text := range []string{"", "index x {"} {
			same("CreateIndex "+index, func(ctx context.Context, c *client) (proto.Message, error) {
				return c.index.CreateIndex(ctx, &summapb.CreateIndexRequest{IndexName: index, Schema: text})
			})
		}
	}
	everything("")
	same("a stream of several indexes", func(ctx context.Context, c *client) (proto.Message, error) {
		return c.stream(ctx, &summapb.IndexDocumentRequest{IndexName: "solo", Fields: document("solo/0").Fields},
			&summapb.IndexDocumentRequest{IndexName: "repl", Fields: document("repl/0").Fields}, &summapb.IndexDocumentRequest{IndexName: "nowhere", Fields: document("z").Fields})
	})
	same("an empty stream", func(ctx context.Context, c *client) (proto.Message, error) { return c.stream(ctx) })
	for _, index := range []string{"solo", "whole"} {
		for what, r := range map[string]*summapb.SearchRequest{
			"a window":          {Limit: 9000, Offset: 999, Query: all(index).Query},
			"too large a limit": {Limit: 10_001, Query: all(index).Query},
			"no query":          {Limit: 1},
			"a trace":           {Limit: 3, Tracing: true, Query: match("loom"), FieldsToLoad: []string{"id"}},
		} {
			r.IndexName = index
			same(what+" of "+index, func(ctx context.Context, c *client) (proto.Message, error) {
				return c.search.Search(ctx, proto.Clone(r).(*summapb.SearchRequest))
			})
		}
	}
	for _, x := range []*compared{reference, weft} {
		if err := errors.Join(x.servers["gone"].Kill(), x.servers["f"].Kill()); err != nil {
			t.Fatal(err)
		}
		x.health(t, "evicted", 2)
	}
	everything("with two nodes gone, ")
	counts := []string{"search_requests_total", "write_rejected_total", "stream_flushes_total", "ambiguous_index_total", "admission_rejected_total", "partial_reads_total", "backends"}
	want, got := reference.counted(t, indexes, counts...), weft.counted(t, indexes, counts...)
	for _, key := range slices.Sorted(maps.Keys(maps.Collect(func(yield func(string, bool) bool) {
		for _, m := range []map[string]float64{want, got} {
			for k := range m {
				if !yield(k, true) {
					return
				}
			}
		}
	}))) {
		if got[key] != want[key] {
			t.Errorf("%s is %v, want %v", key, got[key], want[key])
		}
	}
	if n < 300 || len(want) < 20 {
		t.Errorf("%d calls and %d counts were compared", n, len(want))
	}
	t.Logf("%d calls and %d counts were compared", n, len(want))
}
