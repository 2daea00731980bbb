package brokertest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/cli/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// command is weft called by another name, as a link to it is.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := proctest.Build()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(bin, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, args...)
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	return cmd
}

// process starts a command that listens on so many addresses. It is killed with the test if it is still there.
func process(t *testing.T, listeners int, cmd *exec.Cmd) *proctest.Process {
	t.Helper()
	p, err := proctest.StartCommand(listeners, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), p.Stderr)
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// client is a connection to a Summa port.
type client struct {
	conn   *grpc.ClientConn
	search summapb.SearchServiceClient
	index  summapb.IndexServiceClient
	admin  brokerpb.BrokerServiceClient
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return &client{conn, summapb.NewSearchServiceClient(conn), summapb.NewIndexServiceClient(conn), brokerpb.NewBrokerServiceClient(conn)}
}

// server is a Summa server of weft with its data.
type server struct {
	*proctest.Process
	dir, addr string
}

func startServer(t *testing.T, dir, addr string) *server {
	t.Helper()
	p := process(t, 1, command(t, "summa-server", "--addr", addr, "--metrics-addr", "off", "--data-dir", dir))
	return &server{p, dir, p.Listening["summa"]}
}

// pause stops a process as a debugger does, or lets it go on. It has stopped when pause returns.
func (s *server) pause(t *testing.T, on bool) {
	t.Helper()
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	if err := s.Cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	if on {
		soon(t, "it has stopped", func() bool { return stopped(t, s.Cmd.Process.Pid) })
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
		if !bytes.HasPrefix(b[bytes.LastIndexByte(b, ')')+1:], []byte(" T")) {
			return false
		}
	}
	return true
}

// broker is a Summa broker with a connection to it.
type broker struct {
	*proctest.Process
	*client
}

// quick are the flags with which a broker finds soon what has become of its nodes. A look is not given up soon by them: on a machine that has
// more to do it takes longer than it does otherwise, and a node that is well is to be found so.
func quick(flags []string) []string {
	q := []string{"--index-poll-interval-secs", "1", "--probe-interval-secs", "1"}
	if !slices.Contains(flags, "--list-timeout-secs") {
		q = append(q, "--list-timeout-secs", "20")
	}
	return q
}

// before starts a broker before servers, which are the nodes a, b, … on shards 0, 1, …, and waits until it has found all of them well. It may
// listen before it knows of any.
func before(t *testing.T, servers []*server, flags ...string) *broker {
	t.Helper()
	args := append([]string{"--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--discovery", "static"}, quick(flags)...)
	for i, s := range servers {
		args = append(args, "--backend", fmt.Sprintf("id=%c,addr=%s,shard=%d", 'a'+i, s.addr, i))
	}
	p := process(t, 2, command(t, "summa-broker", append(args, flags...)...))
	b := &broker{p, dial(t, p.Listening["summa"])}
	for i := range servers {
		b.becomes(t, string(rune('a'+i)), "healthy")
	}
	return b
}

// nodes are the broker's, by id.
func (b *broker) nodes(t *testing.T) map[string]*brokerpb.BackendState {
	t.Helper()
	r, err := b.admin.GetBackends(t.Context(), &brokerpb.GetBackendsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*brokerpb.BackendState{}
	for _, n := range r.Backends {
		out[n.BackendId] = n
	}
	return out
}

// becomes waits for a node's health.
func (b *broker) becomes(t *testing.T, id, health string) {
	t.Helper()
	soon(t, id+" is "+health, func() bool { return b.nodes(t)[id].GetHealth() == health })
}

// metric is the value of a line of the broker's metrics; "" if there is none.
func (b *broker) metric(t *testing.T, line string) string {
	t.Helper()
	for l := range strings.Lines(page(t, b.Listening["metrics"])) {
		if rest, ok := strings.CutPrefix(l, line+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// page is what is at an address of metrics.
func page(t *testing.T, addr string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const schema = `index x { field id: text<raw> [indexed, stored, primary] field body: text [indexed, stored] }`

// fill makes an index with some documents and commits them.
func (c *client) fill(t *testing.T, index string, documents int) {
	t.Helper()
	if _, err := c.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: index, Schema: schema}); err != nil {
		t.Fatal(err)
	}
	req := &summapb.BatchIndexDocumentsRequest{IndexName: index}
	for i := range documents {
		req.Documents = append(req.Documents, document(fmt.Sprint(index, "/", i)))
	}
	if r, err := c.index.BatchIndexDocuments(t.Context(), req); err != nil || int(r.IndexedCount) != documents {
		t.Fatalf("%v, %v", r, err)
	}
	if r, err := c.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: index}); err != nil || int(r.NumDocs) != documents {
		t.Fatalf("%v, %v", r, err)
	}
}

func document(id string) *summapb.NamedDocument {
	text := func(name, s string) *summapb.FieldEntry {
		return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}}
	}
	return &summapb.NamedDocument{Fields: []*summapb.FieldEntry{text("id", id), text("body", "a loom of "+id)}}
}

func all(index string) *summapb.SearchRequest {
	return &summapb.SearchRequest{IndexName: index, Limit: 100, FieldsToLoad: []string{"id"}, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}}
}

// soon waits for something that comes by itself.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for !is() {
		select {
		case <-every.C:
		case <-late.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}
