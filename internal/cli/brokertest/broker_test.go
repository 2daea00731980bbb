package brokertest

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/cli/proctest"
)

func two(t *testing.T) []*server {
	t.Helper()
	return []*server{startServer(t, t.TempDir(), "127.0.0.1:0"), startServer(t, t.TempDir(), "127.0.0.1:0")}
}

func want(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	if st := status.Convert(err); st.Code() != code || st.Message() != text {
		t.Errorf("%s:\n got %s %q\nwant %s %q", what, st.Code(), st.Message(), code, text)
	}
}

func TestAFleetAnswersLikeItsNodes(t *testing.T) { answersLikeItsNodes(t, two(t)) }

// TestRealSummaServersBehindABroker is the same with servers of the reference.
func TestRealSummaServersBehindABroker(t *testing.T) {
	program := proctest.SummaServer(t)
	var servers []*server
	for range 2 {
		dir := t.TempDir()
		p, addr, err := proctest.StartSumma(program, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
		})
		servers = append(servers, &server{p, dir, addr})
	}
	answersLikeItsNodes(t, servers)
}

// answersLikeItsNodes makes indexes on two servers through a broker, and compares what it answers with what they do.
func answersLikeItsNodes(t *testing.T, servers []*server) {
	t.Helper()
	b := before(t, servers, "--placement", "a*=0", "--placement", "b*=1", "--placement", "whole=0,1")
	direct := []*client{dial(t, servers[0].addr), dial(t, servers[1].addr)}
	b.fill(t, "apples", 3)
	b.fill(t, "beets", 4)
	b.fill(t, "whole", 20)
	for i, names := range [][]string{{"apples", "whole"}, {"beets", "whole"}} {
		r, err := direct[i].index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{})
		if err != nil || !slices.Equal(r.IndexNames, names) {
			t.Errorf("node %d has %v, %v", i, r, err)
		}
	}
	if r, err := b.index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{}); err != nil || !slices.Equal(r.IndexNames, []string{"apples", "beets", "whole"}) {
		t.Errorf("the broker has %v, %v", r, err)
	}
	for i, index := range []string{"apples", "beets"} {
		got, err := b.search.Search(t.Context(), all(index))
		if err != nil {
			t.Fatal(err)
		}
		own, err := direct[i].search.Search(t.Context(), all(index))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*summapb.SearchResponse{got, own} {
			r.TookMs, r.Timings = 0, nil
		}
		if !proto.Equal(got, own) || len(own.Hits) != 3+i {
			t.Errorf("%s:\n got %v\nwant %v", index, got, own)
		}
		req := &summapb.GetDocumentRequest{IndexName: index, Address: own.Hits[0].Address}
		found, err := b.search.GetDocument(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := direct[i].search.GetDocument(t.Context(), req); err != nil || !proto.Equal(found, same) {
			t.Errorf("%s: %v, want %v, %v", index, found, same, err)
		}
		// Errors are the node's, to the letter.
		bad := &summapb.SearchRequest{IndexName: index, Limit: 10_001, Query: all(index).Query}
		_, gotErr := b.search.Search(t.Context(), bad)
		_, ownErr := direct[i].search.Search(t.Context(), bad)
		if st := status.Convert(ownErr); st.Code() == codes.OK {
			t.Error("a limit of 10001 is taken")
		} else {
			want(t, index, gotErr, st.Code(), st.Message())
		}
		dup, err := b.index.BatchIndexDocuments(t.Context(), &summapb.BatchIndexDocumentsRequest{
			IndexName: index, Documents: []*summapb.NamedDocument{document(index + "/0")},
		})
		if err != nil || len(dup.Errors) != 1 || !strings.Contains(dup.Errors[0].Error, "Duplicate primary key") {
			t.Errorf("%s twice: %v, %v", index, dup, err)
		}
	}
	parts := 0
	for i := range direct {
		own, err := direct[i].search.Search(t.Context(), all("whole"))
		if err != nil {
			t.Fatal(err)
		}
		if len(own.Hits) == 0 {
			t.Errorf("node %d has no documents of an index on both", i)
		}
		parts += len(own.Hits)
	}
	if got, err := b.search.Search(t.Context(), all("whole")); err != nil || len(got.Hits) != 20 || parts != 20 {
		t.Errorf("%d hits, %d of the nodes, %v", len(got.GetHits()), parts, err)
	}
	topology, err := b.admin.GetTopology(t.Context(), &brokerpb.GetTopologyRequest{IndexName: "whole"})
	if err != nil || len(topology.Indexes) != 1 || topology.Indexes[0].PrimaryKeyField != "id" || len(topology.Indexes[0].Partitions) != 2 {
		t.Errorf("%v, %v", topology, err)
	}
	for _, index := range []string{"apples", "whole"} {
		if _, err := b.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: index}); err != nil {
			t.Error(err)
		}
		_, err := b.search.Search(t.Context(), all(index))
		want(t, index, err, codes.NotFound, "index '"+index+"' is not present on any healthy backend")
	}
	if r, err := healthpb.NewHealthClient(b.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	services := reflected(t, b.client)
	for _, s := range []string{"summa.SearchService", "summa.IndexService", "summa.broker.BrokerService", "grpc.health.v1.Health"} {
		if !slices.Contains(services, s) {
			t.Errorf("reflection tells of %v", services)
		}
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// reflected are the services that reflection tells of.
func reflected(t *testing.T, c *client) []string {
	t.Helper()
	st, err := reflectionpb.NewServerReflectionClient(c.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = st.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	r, rerr := st.Recv()
	if err := errors.Join(err, rerr, st.CloseSend()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range r.GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	return names
}

// TestANodeIsKilledAndComesBack follows a node from its death to its return: suspect, evicted, and healthy after two probes.
func TestANodeIsKilledAndComesBack(t *testing.T) {
	servers := two(t)
	b := before(t, servers, "--placement", "a*=0", "--placement", "b*=1", "--backend-unreachable-grace-secs", "4")
	b.fill(t, "a1", 3)
	b.fill(t, "b1", 3)
	if err := servers[1].Kill(); err != nil {
		t.Fatal(err)
	}
	b.becomes(t, "b", "suspect")
	if _, err := b.search.Search(t.Context(), all("b1")); status.Code(err) != codes.Unavailable {
		t.Errorf("a suspect node that is dead: %v", err)
	}
	if got := b.metric(t, `summa_broker_stale_topology_serves_total{backend="b"}`); got == "" {
		t.Error("a read of a suspect node is not counted")
	}
	b.becomes(t, "b", "evicted")
	_, err := b.search.Search(t.Context(), all("b1"))
	want(t, "an evicted node", err, codes.NotFound, "index 'b1' is not present on any healthy backend")
	if r, err := b.index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{}); err != nil || !slices.Equal(r.IndexNames, []string{"a1"}) {
		t.Errorf("%v, %v", r, err)
	}
	if got, err := b.search.Search(t.Context(), all("a1")); err != nil || len(got.Hits) != 3 {
		t.Errorf("the other node: %v, %v", got, err)
	}
	polls := `weft_summa_broker_polls_total{backend="b",code="ok"}`
	was := number(t, b.metric(t, polls))
	servers[1] = startServer(t, servers[1].dir, servers[1].addr)
	b.becomes(t, "b", "healthy")
	if now := number(t, b.metric(t, polls)); now < was+2 {
		t.Errorf("it is healthy after %d answers", now-was)
	}
	if got, err := b.search.Search(t.Context(), all("b1")); err != nil || len(got.Hits) != 3 {
		t.Errorf("the node that came back: %v, %v", got, err)
	}
	said := b.Stderr.String()
	for _, change := range []string{"node is suspect", "node is evicted", "node is healthy"} {
		if !strings.Contains(said, change) {
			t.Errorf("the log has no %q", change)
		}
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			t.Fatalf("%q is no count", s)
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// TestANodeThatStandsStillDelaysNobody stops a node without ending it: it is suspect after a poll, its calls end at their deadlines, the other
// node is polled and answers as before, and it is healthy again when it goes on.
func TestANodeThatStandsStillDelaysNobody(t *testing.T) {
	servers := two(t)
	b := before(t, servers, "--placement", "a*=0", "--placement", "b*=1", "--backend-unreachable-grace-secs", "600", "--list-timeout-secs", "3")
	b.fill(t, "a1", 3)
	b.fill(t, "b1", 3)
	servers[1].pause(t, true)
	defer servers[1].pause(t, false)
	waiting, leave := context.WithCancel(t.Context())
	defer leave()
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if _, err := b.search.Search(waiting, all("b1")); status.Code(err) != codes.Canceled {
				t.Errorf("a call that its client gave up: %v", err)
			}
		})
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := b.search.Search(short, all("b1")); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a call with a deadline: %v", err)
	}
	polls := `weft_summa_broker_polls_total{backend="a",code="ok"}`
	was := number(t, b.metric(t, polls))
	b.becomes(t, "b", "suspect")
	soon(t, "the other node is polled", func() bool { return number(t, b.metric(t, polls)) >= was+2 })
	for range 50 {
		if got, err := b.search.Search(t.Context(), all("a1")); err != nil || len(got.Hits) != 3 {
			t.Fatalf("the other node: %v, %v", got, err)
		}
	}
	if n := b.nodes(t)["a"]; n.Health != "healthy" || n.ConsecutiveFailures != 0 {
		t.Errorf("the other node is %v", n)
	}
	leave()
	calls.Wait()
	servers[1].pause(t, false)
	b.becomes(t, "b", "healthy")
	if got, err := b.search.Search(t.Context(), all("b1")); err != nil || len(got.Hits) != 3 {
		t.Errorf("the node that went on: %v, %v", got, err)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// TestABrokerThatIsAskedToEndDrains sends SIGTERM while a call is under way: the port closes, a call that still comes on an open connection
// is told so, the first ends as its node answers, and the broker then ends well.
func TestABrokerThatIsAskedToEndDrains(t *testing.T) {
	servers := []*server{startServer(t, t.TempDir(), "127.0.0.1:0")}
	b := before(t, servers, "--backend-max-searches", "1")
	b.fill(t, "a1", 3)
	w := deaf(t, b.Listening["summa"])
	c := dial(t, w.addr)
	if _, err := c.search.Search(t.Context(), all("a1")); err != nil {
		t.Fatal(err)
	}
	servers[0].pause(t, true)
	resume := sync.OnceFunc(func() { servers[0].pause(t, false) })
	defer resume()
	running := make(chan error, 1)
	go func() {
		r, err := (*summapb.SearchResponse)(nil), status.Error(codes.ResourceExhausted, "")
		for status.Code(err) == codes.ResourceExhausted { // the one place is taken by who looks whether it is
			r, err = b.search.Search(context.WithoutCancel(t.Context()), all("a1"))
		}
		if err == nil && len(r.Hits) != 3 {
			err = errors.New("not all hits")
		}
		running <- err
	}()
	c.full(t, "a1")
	watch, err := healthpb.NewHealthClient(b.conn).Watch(context.WithoutCancel(t.Context()), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	w.hold(true) // what the broker says does not come
	if err := b.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	soon(t, "the port is closed", func() bool {
		conn, err := net.Dial("tcp", b.Listening["summa"])
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if r, err := watch.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	late := make(chan error, 1)
	go func() {
		_, err := c.search.Search(context.WithoutCancel(t.Context()), all("a1"))
		late <- err
	}()
	w.wrote(t) // the call has gone out
	w.hold(false)
	want(t, "a call that still came", <-late, codes.Unavailable, "Summa broker is shutting down")
	select {
	case <-b.Exited:
		t.Fatalf("it has ended with a call under way: %v", b.Err)
	case err := <-running:
		t.Fatalf("the call ended: %v", err)
	default:
	}
	resume()
	if err := <-running; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
	<-b.Exited
	if b.Err != nil {
		t.Errorf("it ended with %v\n%s", b.Err, b.Stderr)
	}
	if said := b.Stderr.String(); !strings.Contains(said, "draining") || !strings.Contains(said, "stopped") {
		t.Errorf("the log has no steps of the shutdown:\n%s", said)
	}
}

// full waits until searches of an index are refused because others have all places, and will have them until they are answered. A look that found
// a place may have it for a moment longer than it waits, so one refusal does not tell.
func (c *client) full(t *testing.T, index string) {
	t.Helper()
	const text = "Search capacity is full; retry with backoff"
	refused := 0
	soon(t, "all places are taken", func() bool {
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.search.Search(short, all(index))
		if st := status.Convert(err); st.Code() != codes.ResourceExhausted || st.Message() != text {
			refused = 0
			return false
		}
		refused++
		return refused == 10
	})
}

// deafened is a way to an address on which what comes back can be held.
type deafened struct {
	addr string
	mu   sync.Mutex
	free *sync.Cond
	held bool
	out  chan struct{} // a token when something was written while held
}

func deaf(t *testing.T, to string) *deafened {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &deafened{addr: lis.Addr().String(), out: make(chan struct{}, 1)}
	w.free = sync.NewCond(&w.mu)
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			down, err := lis.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				down.Close()
				continue
			}
			carrying.Go(func() { w.carry(down, up, false) })
			carrying.Go(func() { w.carry(up, down, true) })
		}
	})
	t.Cleanup(func() {
		lis.Close()
		w.hold(false)
		carrying.Wait()
	})
	return w
}

func (w *deafened) hold(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = on
	w.free.Broadcast()
}

func (w *deafened) carry(from, to net.Conn, back bool) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		w.mu.Lock()
		for back && w.held {
			w.free.Wait()
		}
		held := w.held
		w.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
			if !back && held {
				select {
				case w.out <- struct{}{}:
				default:
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// wrote waits until a client has written something while what comes back is held.
func (w *deafened) wrote(t *testing.T) {
	t.Helper()
	select {
	case <-w.out:
	case <-t.Context().Done():
		t.Fatal("nothing was written")
	}
}
