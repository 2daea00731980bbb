package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/broker/fleet"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/broker/service"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/obs/obstest"
)

func text(name, s string) *summapb.FieldEntry {
	return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}}
}

// metric is a line of metrics by its name and labels.
func (s *serving) metric(t testing.TB, line string) string {
	t.Helper()
	for l := range strings.Lines(s.page(t)) {
		if rest, ok := strings.CutPrefix(l, line+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func (s *serving) page(t testing.TB) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.metrics+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestMetricsAreThoseOfTheReference compares names, kinds and labels after calls of every kind with what the reference has.
func TestMetricsAreThoseOfTheReference(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join(corpus.Dir(t, "summa-golden"), "broker-metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		// The contract has these, which the recorded run had no cause for.
		"summa_broker_admission_rejected_total":    "counter {index,scope}",
		"summa_broker_stale_topology_serves_total": "counter {backend}",
		"summa_broker_partial_reads_total":         "counter {index,rpc,shard}",
	}
	for line := range strings.Lines(string(recorded)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[name] = rest
	}
	all := []*fake{
		{id: "a", shard: "0", indexes: []string{"one", "two", "parts"}},
		{id: "b", shard: "1", indexes: []string{"two", "parts"}},
		{id: "late", shard: "2", indexes: []string{"late"}},
	}
	nodes(t, func(a *asked) ([]byte, error) {
		switch {
		case a.rpc == "GetIndexInfo":
			return schemaReply("parts")
		case a.rpc == "Search" && a.node == "b":
			return nil, status.Error(codes.Unavailable, "away")
		case a.rpc == "BatchIndexDocuments":
			return encoded(t, &summapb.BatchIndexDocumentsResponse{IndexedCount: 1}), nil
		}
		return nil, nil
	}, all...)
	p := through(t, all[2])
	s := start(t, service.Config{
		Source: source(all), Placement: placement(t, "single", "parts=0,1"), Partial: true, Searches: 1, Grace: time.Hour,
		PollInterval: 20 * time.Millisecond, ProbeInterval: 20 * time.Millisecond,
	}, 3)
	p.set(cut)
	soon(t, "late is suspect", func() bool { return s.healthy(t) == 2 })
	for _, c := range []struct {
		rpc      string
		requests [][]byte
	}{
		{"Search", searchOf(t, "one")},
		{"Search", searchOf(t, "parts")},
		{"Search", searchOf(t, "made up")},
		{"Search", searchOf(t, "late")},
		{"GetDocument", searchOf(t, "two")},
		{"Commit", searchOf(t, "two")},
		{"Commit", searchOf(t, "made up as well")},
		{"IndexDocuments", [][]byte{encoded(t, &summapb.IndexDocumentRequest{IndexName: "one", Fields: []*summapb.FieldEntry{text("id", "1")}})}},
	} {
		if _, err := s.call(t.Context(), c.rpc, c.requests); status.Code(err) == codes.Internal {
			t.Errorf("%s: %v", c.rpc, err)
		}
	}
	// The one search that may run is held.
	release, held := make(chan struct{}), make(chan struct{})
	holding := []*fake{{id: "h", shard: "0", indexes: []string{"one"}}}
	nodes(t, func(*asked) ([]byte, error) {
		held <- struct{}{}
		<-release
		return nil, nil
	}, holding...)
	full := start(t, service.Config{Source: source(holding), Placement: placement(t, "single"), Searches: 1}, 1)
	var first sync.WaitGroup
	first.Go(func() {
		if _, err := full.call(t.Context(), "Search", searchOf(t, "one")); err != nil {
			t.Error(err)
		}
	})
	<-held
	if _, err := full.call(t.Context(), "Search", searchOf(t, "one")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second search: %v", err)
	}
	close(release)
	first.Wait()
	if got := full.metric(t, `summa_broker_admission_rejected_total{index="one",scope="global"}`); got != "1" {
		t.Errorf("%q searches were refused", got)
	}

	page := s.page(t)
	got := kinds(page)
	for name, kind := range kinds(full.page(t)) {
		got[name] = kind
	}
	for name, kind := range want {
		if got[name] != kind {
			t.Errorf("%s is %q, want %q", name, got[name], kind)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is not of the reference", name)
		}
	}
	for line, n := range map[string]string{
		`summa_broker_search_requests_total{index="one",status="ok"}`:                      "1",
		`summa_broker_search_requests_total{index="unknown",status="not_found"}`:           "1", // B6
		`summa_broker_write_rejected_total{index="unknown",reason="not_found"}`:            "1",
		`summa_broker_write_rejected_total{index="two",reason="failed_precondition"}`:      "1",
		`summa_broker_ambiguous_index_total{index="two"}`:                                  "1",
		`summa_broker_partial_reads_total{index="parts",rpc="search",shard="1"}`:           "1",
		`summa_broker_stale_topology_serves_total{backend="late"}`:                         "1",
		`summa_broker_stream_flushes_total{index="one"}`:                                   "1",
		`summa_broker_backend_requests_total{backend="b",code="unavailable",rpc="search"}`: "1",
		`summa_broker_backend_requests_total{backend="a",code="ok",rpc="get_document"}`:    "1",
		`summa_broker_backend_healthy{backend="late",shard="2"}`:                           "0.5",
		`summa_broker_backends{state="suspect"}`:                                           "1",
		`summa_broker_backends{state="healthy"}`:                                           "2",
		`summa_broker_discovery_events_total{type="added"}`:                                "3",
	} {
		if got := s.metric(t, line); got != n {
			t.Errorf("%s is %q, want %s", line, got, n)
		}
	}
	if strings.Contains(page, "made up") {
		t.Error("a client has made a label")
	}
	documented := metricName.FindAllString(section(t), -1)
	for line := range strings.Lines(page + full.page(t)) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok && metricName.MatchString(rest) {
			if name, _, _ := strings.Cut(rest, " "); !slices.Contains(documented, name) {
				t.Errorf("%s is served and not documented", name)
			}
		}
	}
	for _, name := range documented {
		if !strings.Contains(page+full.page(t), "# TYPE "+name+" ") {
			t.Errorf("%s is documented and not served", name)
		}
	}
}

var metricName = regexp.MustCompile(`\b(summa_broker|weft)_[a-z_]+`)

// section is what docs/operating.md has of these metrics.
func section(t *testing.T) string {
	t.Helper()
	s, _ := obstest.Cut(t, obstest.Page(t, filepath.Join("..", "..", ".."), "operating.md"), "### Metrics of a Summa broker")
	return s
}

var label = regexp.MustCompile(`([a-z_]+)="`)

// kinds are the metrics of the broker on a page, each with its kind and its labels in order.
func kinds(page string) map[string]string {
	kind, labels := map[string]string{}, map[string]map[string]bool{}
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, "# TYPE summa_broker_"); ok {
			name, k, _ := strings.Cut(strings.TrimSpace(rest), " ")
			kind["summa_broker_"+name], labels["summa_broker_"+name] = k, map[string]bool{}
			continue
		}
		name, _, _ := strings.Cut(line, "{")
		if kind[name] == "" {
			continue
		}
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			labels[name][m[1]] = true
		}
	}
	out := map[string]string{}
	for name, k := range kind {
		var all []string
		for l := range labels[name] {
			all = append(all, l)
		}
		slices.Sort(all)
		out[name] = k + " {" + strings.Join(all, ",") + "}"
	}
	return out
}

// changing is a source that tells what it is told.
type changing chan fleet.Static

// Run implements fleet.Source; a closed channel is a failure of discovery.
func (s changing) Run(ctx context.Context, publish func([]fleet.Node)) error {
	for {
		select {
		case list, ok := <-s:
			if !ok {
				return errors.New("nothing more can be known")
			}
			publish(list)
		case <-ctx.Done():
			return nil
		}
	}
}

// TestANodeThatMovesKeepsItsCounts has a node of one name come back at another address, as pods do. What is counted of it goes on when the old
// address is let go.
func TestANodeThatMovesKeepsItsCounts(t *testing.T) {
	first, second := &fake{id: "n", shard: "0", indexes: []string{"x"}}, &fake{id: "n", shard: "0", indexes: []string{"x"}}
	release, held := make(chan struct{}), make(chan struct{})
	nodes(t, func(*asked) ([]byte, error) {
		held <- struct{}{}
		<-release
		return nil, nil
	}, first)
	nodes(t, func(*asked) ([]byte, error) { return nil, nil }, second)
	from := make(changing, 1)
	from <- source([]*fake{first})
	s := start(t, service.Config{Source: from, Placement: placement(t, "single")}, 1)
	var old sync.WaitGroup
	old.Go(func() {
		if _, err := s.call(t.Context(), "Search", searchOf(t, "x")); err != nil {
			t.Errorf("a call that was under way when its node moved: %v", err)
		}
	})
	<-held
	from <- source([]*fake{second})
	soon(t, "the node has moved", func() bool {
		b := s.backends(t)
		return len(b) == 1 && b[0].Address == second.addr && b[0].Health == "healthy"
	})
	if _, err := s.call(t.Context(), "Search", searchOf(t, "x")); err != nil {
		t.Error(err)
	}
	close(release)
	old.Wait()
	line := `summa_broker_backend_requests_total{backend="n",code="ok",rpc="search"}`
	soon(t, "both searches are counted", func() bool { return s.metric(t, line) == "2" })
	from <- nil
	soon(t, "nothing is told of a node that is gone", func() bool { return s.metric(t, line) == "" })
	if got := s.metric(t, `summa_broker_discovery_events_total{type="removed"}`); got != "2" {
		t.Errorf("%s nodes were removed, want 2", got)
	}
}

// TestACallGoesOnAtAnAddressThatDiscoveryLost has a pod lose its label while it merges: the merge ends as the node says, however long it takes, and
// nobody else is sent there.
func TestACallGoesOnAtAnAddressThatDiscoveryLost(t *testing.T) {
	n := &fake{id: "n", shard: "0", indexes: []string{"x"}}
	release, held := make(chan struct{}), make(chan struct{}, 2)
	reply := encoded(t, &summapb.ForceMergeResponse{Success: true, NumSegments: 1})
	nodes(t, func(*asked) ([]byte, error) {
		held <- struct{}{}
		<-release
		return reply, nil
	}, n)
	from := make(changing, 1)
	from <- source([]*fake{n})
	s := start(t, service.Config{Source: from, Placement: placement(t, "single")}, 1)
	merged := make(chan error, 1)
	go func() {
		got, err := s.call(context.WithoutCancel(t.Context()), "ForceMerge", [][]byte{encoded(t, &summapb.ForceMergeRequest{IndexName: "x"})})
		if err == nil && !bytes.Equal(got, reply) {
			err = fmt.Errorf("answered with %x", got)
		}
		merged <- err
	}()
	<-held
	from <- nil
	soon(t, "the node is gone", func() bool { return len(s.backends(t)) == 0 })
	_, err := s.call(t.Context(), "Search", searchOf(t, "x"))
	want(t, "a search", err, codes.NotFound, "index 'x' is not present on any healthy backend")
	select {
	case err := <-merged:
		t.Fatalf("the merge ended with its node: %v", err)
	default:
	}
	close(release)
	if err := <-merged; err != nil {
		t.Errorf("the merge: %v", err)
	}
	line := `summa_broker_backend_requests_total{backend="n",code="ok",rpc="force_merge"}`
	soon(t, "nothing is told of a node that is gone", func() bool { return s.metric(t, line) == "" })
}

// TestANodeThatDoesNotAnswerIsAskedForFewCountsOnly: of 300 copies of indexes at a node that cannot be reached, GetTopology asks for no more than it
// asks for at once, and the others are counted.
func TestANodeThatDoesNotAnswerIsAskedForFewCountsOnly(t *testing.T) {
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("i%03d", i))
	}
	all := []*fake{{id: "good", shard: "0", indexes: names}, {id: "lost", shard: "0", indexes: names}}
	var lost atomic.Int64
	nodes(t, func(a *asked) ([]byte, error) {
		if a.node == "lost" {
			lost.Add(1)
			return nil, status.Error(codes.Unavailable, "not now")
		}
		return encoded(t, &summapb.GetIndexInfoResponse{IndexName: "i", NumDocs: 7, NumSegments: 3, Schema: "s"}), nil
	}, all...)
	s := start(t, service.Config{Source: source(all), Placement: placement(t, "single")}, 2)
	r, err := s.admin.GetTopology(t.Context(), &brokerpb.GetTopologyRequest{})
	if err != nil || len(r.Indexes) != len(names) {
		t.Fatalf("%d indexes, %v", len(r.GetIndexes()), err)
	}
	for i, index := range r.Indexes {
		copies := index.Partitions[0].Replicas
		if index.IndexName != names[i] || len(copies) != 2 || copies[0].NumDocs != 7 || copies[0].NumSegments != 3 || copies[1].NumDocs != 0 {
			t.Fatalf("%v", index)
		}
	}
	if n := lost.Load(); n == 0 || n > 64 {
		t.Errorf("the node that does not answer was asked %d times", n)
	}
	soon(t, "all memory is given back", func() bool { return s.metric(t, "weft_admitted_broker_bytes") == "0" })
}

// TestAStragglerIsLeftOut has one of three partitions answer not at all.
func TestAStragglerIsLeftOut(t *testing.T) {
	var all []*fake
	for i := range 3 {
		all = append(all, &fake{id: fmt.Sprint("n", i), shard: fmt.Sprint(i), indexes: []string{"parts"}})
	}
	nodes(t, func(a *asked) ([]byte, error) {
		if a.node == "n1" {
			<-a.ctx.Done() // the broker gives it up
			return nil, status.FromContextError(a.ctx.Err()).Err()
		}
		return encoded(t, &summapb.SearchResponse{TotalHits: 5}), nil
	}, all...)
	s := start(t, service.Config{
		Source: source(all), Placement: placement(t, "single", "parts=0,1,2"), Partial: true, Straggler: 50 * time.Millisecond,
	}, 3)
	got, err := s.call(t.Context(), "Search", searchOf(t, "parts"))
	if err != nil {
		t.Fatal(err)
	}
	reply := &summapb.SearchResponse{}
	decode(t, got, reply)
	if reply.MissingPartitions != 1 || reply.TotalHits != 10 {
		t.Errorf("%v", reply)
	}
	if got := s.metric(t, `summa_broker_partial_reads_total{index="parts",rpc="search",shard="1"}`); got != "1" {
		t.Errorf("%q partitions are counted as left out", got)
	}
}

// TestRequestsAtTheirBound sends requests as long as they may be, and longer by a byte.
func TestRequestsAtTheirBound(t *testing.T) {
	n := &fake{id: "n", shard: "0", indexes: []string{"x"}}
	sizes := make(chan int, 1)
	nodes(t, func(a *asked) ([]byte, error) {
		sizes <- len(a.request)
		return nil, nil
	}, n)
	cfg := service.Config{Source: source([]*fake{n}), Placement: placement(t, "single")}
	cfg.Limits.SearchDecode, cfg.Limits.IndexDecode = 1<<20, 2<<20
	s := start(t, cfg, 1)
	for rpc, most := range map[string]int{"Search": 1 << 20, "GetDocument": 1 << 20, "Commit": 2 << 20, "BatchIndexDocuments": 2 << 20} {
		request := func(n int) []byte {
			b := []byte("\x0a\x01x\xfa\x3f\x80\x80\x80\x00") // the name, and an unknown field of a length that takes four bytes
			for i, l := 0, n-len(b); i < 4; i, l = i+1, l>>7 {
				b[5+i] = byte(l & 0x7f)
				if i < 3 {
					b[5+i] |= 0x80
				}
			}
			return append(b, make([]byte, n-len(b))...)
		}
		if _, err := s.call(t.Context(), rpc, [][]byte{request(most)}); err != nil {
			t.Errorf("%s of %d bytes: %v", rpc, most, err)
		} else if got := <-sizes; got != most {
			t.Errorf("%s: %d bytes came of %d", rpc, got, most)
		}
		_, err := s.call(t.Context(), rpc, [][]byte{request(most + 1)})
		want(t, rpc, err, codes.OutOfRange, fmt.Sprintf("Error, decoded message length too large: found %d bytes, the limit is: %d bytes", most+1, most))
	}
	if len(sizes) > 0 {
		t.Error("a node was asked for what was refused")
	}
}

// TestFailedDiscoveryEndsTheBroker says why, and refuses nothing before.
func TestFailedDiscoveryEndsTheBroker(t *testing.T) {
	n := &fake{id: "n", shard: "0", indexes: []string{"x"}}
	nodes(t, func(*asked) ([]byte, error) { return nil, nil }, n)
	from := make(changing, 1)
	from <- source([]*fake{n})
	s := start(t, service.Config{Source: from, Placement: placement(t, "single")}, 1)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	close(from)
	<-s.Done()
	if err := s.Err(); err == nil || err.Error() != "discovery: nothing more can be known" {
		t.Errorf("it ended with %v", err)
	}
}

// TestHealthIsThatOfTheFleet watches the health of the broker while its only node goes and comes.
func TestHealthIsThatOfTheFleet(t *testing.T) {
	n := &fake{id: "n", shard: "0"}
	nodes(t, func(*asked) ([]byte, error) { return nil, nil }, n)
	from := make(changing, 1)
	s := start(t, service.Config{Source: from, Placement: placement(t, "single")}, 0)
	health := healthpb.NewHealthClient(s.conn)
	is := func(want healthpb.HealthCheckResponse_ServingStatus) func() bool {
		return func() bool {
			for _, name := range []string{"", "summa.SearchService", "summa.IndexService", "summa.broker.BrokerService"} {
				r, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
				if err != nil {
					t.Fatalf("%q: %v", name, err)
				}
				if r.Status != want {
					return false
				}
			}
			return true
		}
	}
	soon(t, "no node, not serving", is(healthpb.HealthCheckResponse_NOT_SERVING))
	from <- source([]*fake{n})
	soon(t, "a healthy node, serving", is(healthpb.HealthCheckResponse_SERVING))
	list := source([]*fake{n})
	list[0].Ready = false
	from <- list
	soon(t, "a node that is not ready, not serving", is(healthpb.HealthCheckResponse_NOT_SERVING))
}

// TestShutdownDrains closes a broker while a call is under way: the call ends as it will, and one that still comes is told.
func TestShutdownDrains(t *testing.T) {
	n := &fake{id: "n", shard: "0", role: route.Master, indexes: []string{"x"}}
	release, held := make(chan struct{}), make(chan struct{}, 1)
	reply := encoded(t, &summapb.CommitResponse{Success: true, NumDocs: 3})
	nodes(t, func(*asked) ([]byte, error) {
		held <- struct{}{}
		<-release
		return reply, nil
	}, n)
	s := start(t, service.Config{Source: source([]*fake{n}), Placement: placement(t, "single")}, 1)
	c := dialRaw(t, s.addr)
	c.ask(t, 1, "/summa.IndexService/Commit", searchOf(t, "x")[0])
	<-held
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	// The broker says that it goes away, and waits for an answer to its ping. Calls that come until then are told why they are refused.
	c.until(t, func(f http2.Frame) bool { _, is := f.(*http2.GoAwayFrame); return is })
	c.ask(t, 3, "/summa.SearchService/Search", searchOf(t, "x")[0])
	c.ask(t, 5, "/summa.broker.BrokerService/GetBackends", nil)
	for range 2 {
		c.end(t)
	}
	for _, id := range []uint32{3, 5} {
		if got := c.status[id]; got != "14 Summa broker is shutting down" {
			t.Errorf("call %d was told %q", id, got)
		}
	}
	if _, err := net.DialTimeout("tcp", s.addr, time.Minute); err == nil {
		t.Error("the port is still open")
	}
	select {
	case err := <-closed:
		t.Fatalf("it closed with a call under way: %v", err)
	default:
	}
	close(release)
	c.end(t)
	if c.status[1] != "0 " || !bytes.HasSuffix(c.data[1], reply) {
		t.Errorf("the call that was under way: %q, %x", c.status[1], c.data[1])
	}
	c.conn.Close()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestShutdownTellsWhatItCutsOff closes a broker with less time than its calls take: they are told why they end: one that passes, one that
// is divided and one for operators.
func TestShutdownTellsWhatItCutsOff(t *testing.T) {
	a := &fake{id: "a", shard: "0", role: route.Master, indexes: []string{"x", "parts"}}
	b := &fake{id: "b", shard: "1", role: route.Master, indexes: []string{"parts"}}
	held := make(chan struct{}, 8)
	nodes(t, func(q *asked) ([]byte, error) {
		held <- struct{}{}
		<-q.ctx.Done()
		return nil, q.ctx.Err()
	}, a, b)
	s := start(t, service.Config{Source: source([]*fake{a, b}), Placement: placement(t, "single", "parts=0,1")}, 2)
	c := dialRaw(t, s.addr)
	defer c.conn.Close()
	c.ask(t, 1, "/summa.IndexService/Commit", searchOf(t, "x")[0])
	c.ask(t, 3, "/summa.IndexService/Commit", searchOf(t, "parts")[0])
	c.ask(t, 5, "/summa.broker.BrokerService/GetTopology", nil)
	for range 1 + 2 + 3 {
		<-held
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	err := s.Close(over)
	if late, ok := errors.AsType[*front.DrainError](err); !ok || late.Calls != 3 {
		t.Errorf("it closed with %v", err)
	}
	for range 3 {
		c.end(t)
	}
	for _, id := range []uint32{1, 3, 5} {
		if got := c.status[id]; got != "14 Summa broker is shutting down" {
			t.Errorf("call %d was told %q", id, got)
		}
	}
}

// rawConn is a connection of a client that answers no ping, so that it goes on when a server goes away.
type rawConn struct {
	conn   net.Conn
	f      *http2.Framer
	h      *hpack.Decoder
	status map[uint32]string
	data   map[uint32][]byte
}

func dialRaw(t *testing.T, addr string) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := &rawConn{conn: conn, f: http2.NewFramer(conn, conn), h: hpack.NewDecoder(4096, nil), status: map[uint32]string{}, data: map[uint32][]byte{}}
	if err := c.f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *rawConn) ask(t *testing.T, id uint32, path string, message []byte) {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", path},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		c.f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}),
		c.f.WriteData(id, true, append([]byte{0, 0, 0, 0, byte(len(message))}, message...)))
	if err != nil {
		t.Fatal(err)
	}
}

// until reads frames up to one that is meant.
func (c *rawConn) until(t *testing.T, is func(http2.Frame) bool) {
	t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := c.f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			fields, err := c.h.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				t.Fatal(err)
			}
			code, message := "", ""
			for _, h := range fields {
				switch h.Name {
				case "grpc-status":
					code = h.Value
				case "grpc-message":
					message = h.Value
				}
			}
			if code != "" {
				c.status[f.StreamID] = code + " " + message
			}
		case *http2.DataFrame:
			c.data[f.StreamID] = append(c.data[f.StreamID], f.Data()...)
		}
		if is(f) {
			return
		}
	}
}

// end reads until a call has ended.
func (c *rawConn) end(t *testing.T) {
	t.Helper()
	c.until(t, func(f http2.Frame) bool { h, is := f.(*http2.HeadersFrame); return is && h.StreamEnded() })
}

// TestRefreshAsksAllNodesAgain has a node tell of another index, which a refresh finds.
func TestRefreshAsksAllNodesAgain(t *testing.T) {
	n := &fake{id: "n", shard: "0", indexes: []string{"x"}}
	nodes(t, func(*asked) ([]byte, error) { return nil, nil }, n)
	s := start(t, service.Config{Source: source([]*fake{n}), Placement: placement(t, "single")}, 1)
	n.tell("x", "y")
	r, err := s.admin.RefreshTopology(t.Context(), &brokerpb.RefreshTopologyRequest{})
	if err != nil || r.BackendsPolled != 1 {
		t.Errorf("%v, %v", r, err)
	}
	soon(t, "the index is there", func() bool {
		got, err := s.call(t.Context(), "ListIndexes", [][]byte{nil})
		return err == nil && bytes.Equal(got, encoded(t, &summapb.ListIndexesResponse{IndexNames: []string{"x", "y"}}))
	})
}

// TestCreatedAndDeletedIndexesShowAtOnce makes and deletes indexes, and uses them at once.
func TestCreatedAndDeletedIndexesShowAtOnce(t *testing.T) {
	all := []*fake{{id: "a", shard: "0"}, {id: "b", shard: "1"}}
	nodes(t, func(a *asked) ([]byte, error) {
		n := all[slices.IndexFunc(all, func(n *fake) bool { return n.id == a.node })]
		switch a.rpc {
		case "CreateIndex":
			m := &summapb.CreateIndexRequest{}
			decode(t, a.request, m)
			n.tell(m.IndexName)
			return encoded(t, &summapb.CreateIndexResponse{Success: true}), nil
		case "DeleteIndex":
			n.tell()
			return encoded(t, &summapb.DeleteIndexResponse{Success: true}), nil
		}
		return nil, nil
	}, all...)
	s := start(t, service.Config{Source: source(all), Placement: placement(t, "single", "parts=0,1")}, 2)
	for _, index := range []string{"solo", "parts"} {
		for range 3 {
			for _, rpc := range []string{"CreateIndex", "Search", "Commit", "DeleteIndex"} {
				if _, err := s.call(t.Context(), rpc, searchOf(t, index)); err != nil {
					t.Fatalf("%s of %s: %v", rpc, index, err)
				}
			}
			_, err := s.call(t.Context(), "Search", searchOf(t, index))
			want(t, index, err, codes.NotFound, "index '"+index+"' is not present on any healthy backend")
		}
	}
}

// TestMergedRepliesAreChargedForWhatIsInThem has a partition answer with little on the wire and much in it, and looks at what is charged while the
// other one is waited for. A reply that is longer inside than it may be is refused.
func TestMergedRepliesAreChargedForWhatIsInThem(t *testing.T) {
	all := []*fake{{id: "a", shard: "0", indexes: []string{"parts"}}, {id: "b", shard: "1", indexes: []string{"parts"}}}
	const size = 4 << 20
	long := encoded(t, &summapb.GetTextStatsResponse{Stats: &summapb.TextStats{Fields: []*summapb.TextFieldStats{{Field: strings.Repeat("x", size)}}}})
	var compression string
	release := make(chan struct{})
	nodes(t, func(a *asked) ([]byte, error) {
		if a.node == "b" {
			select {
			case <-release:
			case <-a.ctx.Done():
			}
			return nil, nil
		}
		return long, grpc.SetSendCompressor(a.ctx, compression)
	}, all...)
	for _, most := range []int{64 << 20, size} {
		cfg := service.Config{Source: source(all), Placement: placement(t, "single", "parts=0,1")}
		cfg.Limits.BackendDecode = most
		s := start(t, cfg, 2)
		held := func() float64 {
			var n float64
			if _, err := fmt.Sscan(s.metric(t, "weft_admitted_broker_bytes"), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, compression = range []string{"gzip", "zstd"} {
			ended := make(chan error, 1)
			go func() {
				_, err := s.call(t.Context(), "GetTextStats", [][]byte{encoded(t, &summapb.GetTextStatsRequest{IndexName: "parts"})})
				ended <- err
			}()
			if most > size {
				soon(t, "what is in the reply is charged", func() bool { return held() >= size })
				release <- struct{}{}
				if err := <-ended; err != nil {
					t.Errorf("%s: %v", compression, err)
				}
			} else if err := <-ended; status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "exceeded while decompressing") {
				t.Errorf("%s, longer than it may be: %v", compression, err)
			}
			soon(t, "all memory is given back", func() bool { return held() == 0 })
		}
	}
}

// TestRunsOfAStreamAreCharged has documents gathered that are each too small to be charged.
func TestRunsOfAStreamAreCharged(t *testing.T) {
	n := &fake{id: "n", shard: "0", indexes: []string{"x"}}
	nodes(t, func(*asked) ([]byte, error) { return nil, nil }, n)
	s := start(t, service.Config{Source: source([]*fake{n}), Placement: placement(t, "single")}, 1)
	st, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, method("IndexDocuments"), grpc.ForceCodecV2(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	held := func() (n float64) {
		if _, err := fmt.Sscan(s.metric(t, "weft_admitted_broker_bytes"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	doc := encoded(t, &summapb.IndexDocumentRequest{IndexName: "x", Fields: []*summapb.FieldEntry{text("body", strings.Repeat("x", 8<<10))}})
	for range 400 {
		if err := st.SendMsg(&doc); err != nil {
			t.Fatal(err)
		}
	}
	soon(t, "what is gathered is charged", func() bool { return held() >= 400*8<<10 })
	var reply []byte
	if err := errors.Join(st.CloseSend(), st.RecvMsg(&reply)); err != nil {
		t.Fatal(err)
	}
	soon(t, "all memory is given back", func() bool { return held() == 0 })
}

// TestNothingIsCountedOfIndexesThatAreGone has an index go while another one comes, so that there are as many as before.
func TestNothingIsCountedOfIndexesThatAreGone(t *testing.T) {
	n := &fake{id: "n", shard: "0", indexes: []string{"x0"}}
	nodes(t, func(*asked) ([]byte, error) { return nil, nil }, n)
	s := start(t, service.Config{Source: source([]*fake{n}), Placement: placement(t, "single"), PollInterval: 5 * time.Millisecond}, 1)
	for i := range 5 {
		line := fmt.Sprintf(`summa_broker_search_requests_total{index="x%d",status="ok"}`, i)
		if _, err := s.call(t.Context(), "Search", searchOf(t, fmt.Sprint("x", i))); err != nil {
			t.Fatal(err)
		}
		if got := s.metric(t, line); got != "1" {
			t.Fatalf("%q searches", got)
		}
		n.tell(fmt.Sprint("x", i+1))
		soon(t, "the index that is gone is forgotten", func() bool { return s.metric(t, line) == "" })
	}
}

// TestHeadersOfACheckedReplyPass has a search whose reply the broker looks at before it passes it on, with an answer that is good and one that
// is not what was asked for, and a refusal.
func TestHeadersOfACheckedReplyPass(t *testing.T) {
	n := &fake{id: "n", shard: "0", indexes: []string{"x"}}
	var refusal error
	found := &summapb.SearchResponse{RankingMethod: "feature_export_v2"}
	nodes(t, func(a *asked) ([]byte, error) {
		err := errors.Join(grpc.SetHeader(a.ctx, metadata.Pairs("x-head", "1")), grpc.SetTrailer(a.ctx, metadata.Pairs("x-tail-bin", "\x00\x01")))
		if err != nil {
			t.Error(err)
		}
		return encoded(t, found), refusal
	}, n)
	s := start(t, service.Config{Source: source([]*fake{n}), Placement: placement(t, "single")}, 1)
	req := encoded(t, &summapb.SearchRequest{IndexName: "x", ScoreExport: &summapb.ScoreExport{}, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}})
	detailed, err := status.New(codes.FailedPrecondition, "not now").WithDetails(&summapb.AllQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method  string
		refusal error
		code    codes.Code
		text    string
	}{
		{"feature_export_v2", nil, codes.OK, ""},
		{"other", nil, codes.FailedPrecondition, "backend lacks requested candidate scoring contract"},
		{"", detailed.Err(), codes.FailedPrecondition, "not now"},
	} {
		found.RankingMethod, refusal = c.method, c.refusal
		var head, tail metadata.MD
		_, err := s.call(t.Context(), "Search", [][]byte{req}, grpc.Header(&head), grpc.Trailer(&tail))
		want(t, c.method, err, c.code, c.text)
		if c.code == codes.OK && len(head.Get("x-head")) == 0 || !slices.Equal(tail.Get("x-tail-bin"), []string{"\x00\x01"}) {
			t.Errorf("%q: headers %v, trailers %v", c.method, head, tail)
		}
		if c.refusal != nil && len(status.Convert(err).Details()) != 1 {
			t.Errorf("%v has no details", err)
		}
	}
}
