package brokertest

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
)

// member is a node as static discovery has it.
type member struct{ id, shard, role string }

// fleet starts a server for each member, and a broker before them.
func fleet(t *testing.T, members []member, flags ...string) (*broker, map[string]*server) {
	t.Helper()
	servers := map[string]*server{}
	for _, m := range members {
		servers[m.id] = startServer(t, t.TempDir(), "127.0.0.1:0")
	}
	return over(t, members, servers, flags...), servers
}

// over starts a broker before servers that are there.
func over(t *testing.T, members []member, servers map[string]*server, flags ...string) *broker {
	t.Helper()
	args := slices.Concat([]string{"--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--discovery", "static"}, quick(flags))
	for _, m := range members {
		one := fmt.Sprintf("id=%s,addr=%s,shard=%s", m.id, servers[m.id].addr, m.shard)
		if m.role != "" {
			one += ",role=" + m.role
		}
		args = append(args, "--backend", one)
	}
	p := process(t, 2, command(t, "summa-broker", append(args, flags...)...))
	b := &broker{p, dial(t, p.Listening["summa"])}
	for _, m := range members {
		b.becomes(t, m.id, "healthy")
	}
	return b
}

// learn has the broker ask everybody, and waits until it knows of an index at nodes.
func (b *broker) learn(t *testing.T, index string, at ...string) {
	t.Helper()
	if _, err := b.admin.RefreshTopology(t.Context(), &brokerpb.RefreshTopologyRequest{}); err != nil {
		t.Fatal(err)
	}
	soon(t, index+" is known", func() bool {
		nodes := b.nodes(t)
		for _, id := range at {
			if !slices.Contains(nodes[id].GetIndexes(), index) {
				return false
			}
		}
		return true
	})
}

// reads and writes are all calls about an index but IndexDocuments and CreateIndex, by their names.
func reads(c *client, index string) map[string]func(ctx context.Context) (proto.Message, error) {
	return map[string]func(ctx context.Context) (proto.Message, error){
		"Search": func(ctx context.Context) (proto.Message, error) { return c.search.Search(ctx, all(index)) },
		"GetDocument": func(ctx context.Context) (proto.Message, error) {
			return c.search.GetDocument(ctx, &summapb.GetDocumentRequest{IndexName: index, Address: &summapb.DocAddress{SegmentId: strings.Repeat("0", 32)}})
		},
		"GetIndexInfo": func(ctx context.Context) (proto.Message, error) {
			return c.search.GetIndexInfo(ctx, &summapb.GetIndexInfoRequest{IndexName: index})
		},
		"GetTextStats": func(ctx context.Context) (proto.Message, error) {
			return c.search.GetTextStats(ctx, &summapb.GetTextStatsRequest{IndexName: index, Query: match("loom")})
		},
	}
}

func writes(c *client, index string) map[string]func(ctx context.Context) (proto.Message, error) {
	return map[string]func(ctx context.Context) (proto.Message, error){
		"BatchIndexDocuments": func(ctx context.Context) (proto.Message, error) {
			return c.index.BatchIndexDocuments(ctx, &summapb.BatchIndexDocumentsRequest{IndexName: index, Documents: []*summapb.NamedDocument{document("new")}})
		},
		"UpsertDocuments": func(ctx context.Context) (proto.Message, error) {
			return c.index.UpsertDocuments(ctx, &summapb.UpsertDocumentsRequest{IndexName: index, Documents: []*summapb.NamedDocument{document("new")}})
		},
		"DeleteDocuments": func(ctx context.Context) (proto.Message, error) {
			return c.index.DeleteDocuments(ctx, &summapb.DeleteDocumentsRequest{IndexName: index, PrimaryKeys: []string{"new"}})
		},
		"Commit": func(ctx context.Context) (proto.Message, error) {
			return c.index.Commit(ctx, &summapb.CommitRequest{IndexName: index})
		},
		"ForceMerge": func(ctx context.Context) (proto.Message, error) {
			return c.index.ForceMerge(ctx, &summapb.ForceMergeRequest{IndexName: index, Compact: true})
		},
		"Reorder": func(ctx context.Context) (proto.Message, error) {
			return c.index.Reorder(ctx, &summapb.ReorderRequest{IndexName: index})
		},
		"RetrainVectorIndex": func(ctx context.Context) (proto.Message, error) {
			return c.index.RetrainVectorIndex(ctx, &summapb.RetrainVectorIndexRequest{IndexName: index})
		},
		"AlterVectorIndex": func(ctx context.Context) (proto.Message, error) {
			return c.index.AlterVectorIndex(ctx, &summapb.AlterVectorIndexRequest{IndexName: index, FieldName: "body", FieldSchema: "text"})
		},
		"IndexDocuments": func(ctx context.Context) (proto.Message, error) {
			return c.stream(ctx, &summapb.IndexDocumentRequest{IndexName: index, Fields: document("streamed").Fields})
		},
	}
}

// stream sends documents by IndexDocuments.
func (c *client) stream(ctx context.Context, documents ...*summapb.IndexDocumentRequest) (*summapb.IndexDocumentsResponse, error) {
	st, err := c.index.IndexDocuments(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		if err := st.Send(d); err != nil {
			break // the status is what CloseAndRecv tells
		}
	}
	return st.CloseAndRecv()
}

// noise is text of n bytes that cannot be compressed to half of it.
func noise(n int) string {
	b := make([]byte, n/2)
	rand.NewChaCha8([32]byte{}).Read(b) //nolint:errcheck // it never fails
	return hex.EncodeToString(b)
}

func match(word string) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: "body", Text: word}}}
}

// TestReadsTakeTurnsAndWritesGoToTheMaster has three copies of an index, which differ in how many documents they have, and shards whose masters
// are none, two, or a follower alone.
func TestReadsTakeTurnsAndWritesGoToTheMaster(t *testing.T) {
	b, servers := fleet(t, []member{
		{"m", "0", "master"},
		{"f1", "0", "follower"},
		{"f2", "0", "follower"},
		{"w1", "1", "master"},
		{"w2", "1", "master"},
		{"n1", "2", ""},
		{"n2", "2", ""},
		{"o", "3", "follower"},
	}, "--placement", "made=1")
	direct := map[string]*client{}
	for id, s := range servers {
		direct[id] = dial(t, s.addr)
	}
	copies := map[string]int{"m": 3, "f1": 4, "f2": 5}
	for id, n := range copies {
		direct[id].fill(t, "repl", n)
	}
	direct["w1"].fill(t, "twomasters", 1)
	direct["n1"].fill(t, "nomaster", 1)
	direct["o"].fill(t, "follower", 1)
	b.learn(t, "repl", "m", "f1", "f2")
	b.learn(t, "follower", "o")
	b.learn(t, "twomasters", "w1")
	b.learn(t, "nomaster", "n1")

	seen := map[int]int{}
	for range 12 {
		r, err := b.search.Search(t.Context(), all("repl"))
		if err != nil {
			t.Fatal(err)
		}
		seen[len(r.Hits)]++
	}
	if !maps.Equal(seen, map[int]int{3: 4, 4: 4, 5: 4}) {
		t.Errorf("copies with so many documents answered so often: %v", seen)
	}
	if r, err := b.index.BatchIndexDocuments(t.Context(), &summapb.BatchIndexDocumentsRequest{
		IndexName: "repl", Documents: []*summapb.NamedDocument{document("a"), document("b"), document("repl/1")},
	}); err != nil || r.IndexedCount != 2 || len(r.Errors) != 1 || r.Errors[0].Index != 2 || r.Errors[0].Error != "Duplicate primary key: repl/1" {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := b.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "repl"}); err != nil || r.NumDocs != 5 {
		t.Errorf("%v, %v", r, err)
	}
	for id, n := range copies {
		if id == "m" {
			n += 2
		}
		if r, err := direct[id].search.GetIndexInfo(t.Context(), &summapb.GetIndexInfoRequest{IndexName: "repl"}); err != nil || int(r.NumDocs) != n {
			t.Errorf("%s has %d documents, want %d, %v", id, r.GetNumDocs(), n, err)
		}
	}

	for index, text := range map[string]string{
		"twomasters": "shard '1' has 2 masters; writes refused until exactly one remains",
		"nomaster":   "shard '2' has no master among 2 members; label exactly one pod with role=master",
		"follower":   "shard '3' has no master: its only member is labeled follower",
	} {
		for rpc, call := range writes(b.client, index) {
			_, err := call(t.Context())
			want(t, rpc+" of "+index, err, codes.FailedPrecondition, text)
		}
		_, err := b.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: index})
		want(t, "DeleteIndex of "+index, err, codes.FailedPrecondition, text)
		if r, err := b.search.Search(t.Context(), all(index)); err != nil || len(r.Hits) != 1 {
			t.Errorf("a read of %s: %v, %v", index, r, err)
		}
		if got := b.metric(t, fmt.Sprintf(`summa_broker_write_rejected_total{index="%s",reason="failed_precondition"}`, index)); got != "10" {
			t.Errorf("%s writes of %s are counted as refused, want 10", got, index)
		}
	}
	_, err := b.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: "made", Schema: schema})
	want(t, "a new index on a shard with two masters", err, codes.FailedPrecondition, "shard '1' has 2 masters; writes refused until exactly one remains")

	// A master that is away: its copies are read from, and nobody else is written to.
	if err := servers["m"].Kill(); err != nil {
		t.Fatal(err)
	}
	b.becomes(t, "m", "suspect")
	for range 4 {
		if r, err := b.search.Search(t.Context(), all("repl")); err != nil || len(r.Hits) < 4 {
			t.Errorf("a read without the master: %v, %v", r, err)
		}
	}
	if _, err := b.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "repl"}); status.Code(err) != codes.Unavailable {
		t.Errorf("a write while the master is away: %v", err)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// TestAMasterThatIsEvictedIsNotReplaced has followers with the index and no master.
func TestAMasterThatIsEvictedIsNotReplaced(t *testing.T) {
	b, servers := fleet(t, []member{{"m", "0", "master"}, {"f", "0", "follower"}}, "--backend-unreachable-grace-secs", "1")
	dial(t, servers["f"].addr).fill(t, "repl", 2)
	dial(t, servers["m"].addr).fill(t, "repl", 2)
	b.learn(t, "repl", "m", "f")
	if err := servers["m"].Kill(); err != nil {
		t.Fatal(err)
	}
	b.becomes(t, "m", "evicted")
	for rpc, call := range writes(b.client, "repl") {
		_, err := call(t.Context())
		want(t, rpc, err, codes.Unavailable, "index 'repl': shard '0' master 'm' is unavailable")
	}
	_, err := b.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: "other", Schema: schema})
	want(t, "CreateIndex", err, codes.Unavailable, "shard '0' master 'm' is unavailable")
	if r, err := b.search.Search(t.Context(), all("repl")); err != nil || len(r.Hits) != 2 {
		t.Errorf("%v, %v", r, err)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// TestAnIndexOnSeveralShards is read from the first by name and not written to, until a rule says which one counts.
func TestAnIndexOnSeveralShards(t *testing.T) {
	members := []member{{"a", "0", ""}, {"b", "1", ""}}
	free, servers := fleet(t, members)
	for id, n := range map[string]int{"a": 2, "b": 3} {
		dial(t, servers[id].addr).fill(t, "moving", n)
	}
	free.learn(t, "moving", "a", "b")
	for range 5 {
		if r, err := free.search.Search(t.Context(), all("moving")); err != nil || len(r.Hits) != 2 {
			t.Errorf("%v, %v", r, err)
		}
	}
	if got := free.metric(t, `summa_broker_ambiguous_index_total{index="moving"}`); got != "5" {
		t.Errorf("%q reads are counted as ambiguous", got)
	}
	if r, err := free.admin.GetTopology(t.Context(), &brokerpb.GetTopologyRequest{IndexName: "moving"}); err != nil || !r.Indexes[0].Ambiguous || len(r.Indexes[0].Partitions) != 2 {
		t.Errorf("%v, %v", r, err)
	}
	for rpc, call := range writes(free.client, "moving") {
		_, err := call(t.Context())
		want(t, rpc, err, codes.FailedPrecondition, "index 'moving' exists on 2 shards with no placement rule pinning the writable one; add --placement")
	}
	pinned := over(t, members, servers, "--placement", "mov*=1")
	pinned.learn(t, "moving", "a", "b")
	if r, err := pinned.search.Search(t.Context(), all("moving")); err != nil || len(r.Hits) != 3 {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := pinned.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "moving"}); err != nil || r.NumDocs != 3 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := pinned.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: "moving"}); err != nil {
		t.Error(err)
	}
	free.learn(t, "moving", "a")
	soon(t, "it is on one shard", func() bool {
		_, err := free.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "moving"})
		return err == nil
	})
}

// TestWhereIndexesAreMade has rules, the shard with the fewest, and the refusal.
func TestWhereIndexesAreMade(t *testing.T) {
	members := []member{{"a", "0", ""}, {"b", "1", ""}}
	b, servers := fleet(t, members, "--placement", "docs-*=1", "--placement", "d*=0", "--placement", "lost*=9", "--placement", "lostparts*=0,9")
	create := func(b *broker, index string) error {
		_, err := b.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: index, Schema: schema})
		return err
	}
	has := func(id string) []string { return b.nodes(t)[id].GetIndexes() }
	for _, index := range []string{"docs-1", "docs-2", "data", "x1", "x2", "x3"} {
		if err := create(b, index); err != nil {
			t.Fatalf("%s: %v", index, err)
		}
	}
	// By the rules docs-1 and docs-2 are on shard 1, data is on 0; then the fewest, ties by name.
	if a, b := has("a"), has("b"); !slices.Equal(a, []string{"data", "x1", "x2"}) || !slices.Equal(b, []string{"docs-1", "docs-2", "x3"}) {
		t.Errorf("%v and %v", a, b)
	}
	want(t, "an index that is there", create(b, "x1"), codes.AlreadyExists, "Index 'x1' already exists")
	want(t, "a rule for a shard that is not there", create(b, "lost"), codes.FailedPrecondition, "placement rule for 'lost' targets shard '9' but no backend carries that shard id")
	if err := create(b, "bad/name"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a bad name: %v", err)
	}
	strict := over(t, members, servers, "--placement", "docs*=1", "--placement-default", "reject")
	want(t, "an index without a rule", create(strict, "other"), codes.FailedPrecondition, "no placement rule matches index 'other' and --placement-default is 'reject'")
	if err := create(strict, "docs-3"); err != nil {
		t.Error(err)
	}
	for rpc, call := range maps.Collect(func(yield func(string, func(context.Context) (proto.Message, error)) bool) {
		for k, v := range reads(b.client, "nowhere") {
			yield(k, v)
		}
		for k, v := range writes(b.client, "nowhere") {
			yield(k, v)
		}
	}) {
		_, err := call(t.Context())
		want(t, rpc, err, codes.NotFound, "index 'nowhere' is not present on any healthy backend")
	}
	_, err := b.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: "nowhere"})
	want(t, "DeleteIndex", err, codes.NotFound, "index 'nowhere' is not present on any healthy backend")
}

// TestCallsOfOneNodeAreItsOwn compares what the broker answers with what the node does, for every call.
func TestCallsOfOneNodeAreItsOwn(t *testing.T) {
	// Two nodes with the same documents: what changes an index is done at one by the broker, at the other directly.
	b, _ := fleet(t, []member{{"a", "0", ""}})
	other := dial(t, startServer(t, t.TempDir(), "127.0.0.1:0").addr)
	b.fill(t, "x", 5)
	other.fill(t, "x", 5)
	for _, calls := range []func(*client, string) map[string]func(context.Context) (proto.Message, error){reads, writes} {
		through, direct := calls(b.client, "x"), calls(other, "x")
		for _, rpc := range slices.Sorted(maps.Keys(through)) {
			got, err := through[rpc](t.Context())
			own, ownErr := direct[rpc](t.Context())
			if st := status.Convert(ownErr); err == nil != (ownErr == nil) || status.Code(err) != st.Code() || status.Convert(err).Message() != st.Message() {
				t.Errorf("%s: %v, want %v", rpc, err, ownErr)
			}
			for _, m := range []proto.Message{got, own} {
				if r, ok := m.(*summapb.SearchResponse); ok && r != nil {
					r.TookMs, r.Timings = 0, nil
					for _, h := range r.Hits {
						h.Address.SegmentId = ""
					}
				}
				if r, ok := m.(*summapb.GetIndexInfoResponse); ok && r != nil {
					r.MemoryStats = nil
				}
			}
			if err == nil && !proto.Equal(got, own) {
				t.Errorf("%s:\n got %v\nwant %v", rpc, got, own)
			}
		}
	}
}

// TestStreamsAreSentInRuns has a stream of two indexes with documents that are there already.
func TestStreamsAreSentInRuns(t *testing.T) {
	b, servers := fleet(t, []member{{"a", "0", ""}, {"b", "1", ""}}, "--placement", "x=0", "--placement", "y=1")
	for _, index := range []string{"x", "y"} {
		b.fill(t, index, 1) // x/0 and y/0
	}
	var docs []*summapb.IndexDocumentRequest
	add := func(index, key string) {
		docs = append(docs, &summapb.IndexDocumentRequest{IndexName: index, Fields: document(key).Fields})
	}
	for i := range 600 { // runs of 512 and 88
		add("x", fmt.Sprint("x-", i))
	}
	docs[511].Fields = document("x/0").Fields
	docs[515].Fields = document("x/0").Fields
	add("y", "y-0")
	add("y", "y/0")
	add("x", "x-last")
	got, err := b.stream(t.Context(), docs...)
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, e := range got.Errors {
		at = append(at, fmt.Sprint(e.Index, " ", e.Error))
	}
	if wrong := []string{"511 Duplicate primary key: x/0", "3 Duplicate primary key: x/0", "1 Duplicate primary key: y/0"}; got.IndexedCount != 600 || !slices.Equal(at, wrong) {
		t.Errorf("%d documents, errors %q, want %q", got.IndexedCount, at, wrong)
	}
	for index, runs := range map[string]string{"x": "3", "y": "1"} {
		if n := b.metric(t, `summa_broker_stream_flushes_total{index="`+index+`"}`); n != runs {
			t.Errorf("%s runs of %s, want %s", n, index, runs)
		}
	}
	for id, n := range map[string]uint32{"a": 600, "b": 2} {
		index := map[string]string{"a": "x", "b": "y"}[id]
		if r, err := dial(t, servers[id].addr).index.Commit(t.Context(), &summapb.CommitRequest{IndexName: index}); err != nil || r.NumDocs != n {
			t.Errorf("%s has %v, %v", id, r, err)
		}
	}
}

// TestAdmissionAndCaps has the two bounds of searches with their exact text, and messages past the caps of flags.
func TestAdmissionAndCaps(t *testing.T) {
	members := []member{{"a", "0", ""}, {"b", "1", ""}}
	each, servers := fleet(t, members, "--backend-max-searches", "2", "--placement", "x=0", "--placement", "y=1")
	each.fill(t, "x", 1)
	each.fill(t, "y", 1)
	all2 := over(t, members, servers, "--max-concurrent-searches", "2", "--search-max-decode-mb", "1", "--index-max-decode-mb", "2",
		"--backend-max-decode-mb", "1", "--coordinator-max-transfer-mb", "1")
	all2.learn(t, "x", "a")
	all2.learn(t, "y", "b")

	// Messages past their caps.
	long := all("x")
	long.FieldsToLoad = []string{strings.Repeat("x", 1<<20)}
	_, err := all2.search.Search(t.Context(), long)
	want(t, "a long search", err, codes.OutOfRange,
		fmt.Sprintf("Error, decoded message length too large: found %d bytes, the limit is: 1048576 bytes", proto.Size(long)))
	big := document("big")
	big.Fields[1].Value = &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: noise(1200 << 10)}}
	batch := &summapb.BatchIndexDocumentsRequest{IndexName: "x", Documents: []*summapb.NamedDocument{big}}
	if _, err := all2.index.BatchIndexDocuments(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	batch.Documents = []*summapb.NamedDocument{big, big}
	_, err = all2.index.BatchIndexDocuments(t.Context(), batch)
	want(t, "a long batch", err, codes.OutOfRange,
		fmt.Sprintf("Error, decoded message length too large: found %d bytes, the limit is: 2097152 bytes", proto.Size(batch)))
	if _, err := all2.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "x"}); err != nil {
		t.Fatal(err)
	}
	wide := all("x")
	wide.FieldsToLoad = []string{"body"}
	if _, err := all2.search.Search(t.Context(), wide); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "the limit is: 1048576 bytes") {
		t.Errorf("a long reply of a node: %v", err)
	}
	if r, err := each.search.Search(t.Context(), wide); err != nil || len(r.Hits) != 2 {
		t.Errorf("where it may be so long: %v", err)
	}

	for _, s := range servers {
		s.pause(t, true)
		defer s.pause(t, false)
	}
	// The broker's own answers need no node.
	if r, err := each.index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{}); err != nil || !slices.Equal(r.IndexNames, []string{"x", "y"}) {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := healthpb.NewHealthClient(each.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		b      *broker
		beside codes.Code // of a search of the other node
		scope  string
	}{"backend": {each, codes.DeadlineExceeded, "backend"}, "global": {all2, codes.ResourceExhausted, "global"}} {
		ctx, leave := context.WithCancel(t.Context())
		var held sync.WaitGroup
		for range 2 {
			held.Go(func() {
				err := error(status.Error(codes.ResourceExhausted, ""))
				for status.Code(err) == codes.ResourceExhausted { // the places are taken by who looks whether there are any
					_, err = c.b.search.Search(ctx, all("x"))
				}
			})
		}
		c.b.full(t, "x")
		soon(t, name+": a search of the other node ends with "+c.beside.String(), func() bool {
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := c.b.search.Search(short, all("y"))
			return status.Code(err) == c.beside
		})
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		// What is no search takes no place.
		if _, err := c.b.search.GetIndexInfo(short, &summapb.GetIndexInfoRequest{IndexName: "x"}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s: a call that is no search: %v", name, err)
		}
		cancel()
		if got := c.b.metric(t, `summa_broker_admission_rejected_total{index="x",scope="`+c.scope+`"}`); got == "" {
			t.Errorf("%s: refusals are not counted", name)
		}
		leave()
		held.Wait()
	}
}

// TestAPartitionedIndexOverProcesses has the calls of an index over three shards, and what becomes of them when one is away.
func TestAPartitionedIndexOverProcesses(t *testing.T) {
	members := []member{{"a", "0", ""}, {"b", "1", ""}, {"c", "2", ""}}
	rules := []string{"--placement", "whole*=0,1:2,2", "--placement", "one=0", "--backend-unreachable-grace-secs", "4"}
	b, servers := fleet(t, members, rules...)
	direct := []*client{dial(t, servers["a"].addr), dial(t, servers["b"].addr), dial(t, servers["c"].addr)}

	// An index that one partition has already is made on none.
	if _, err := direct[1].index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: "whole2", Schema: schema}); err != nil {
		t.Fatal(err)
	}
	_, err := b.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: "whole2", Schema: schema})
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("an index that a partition has: %v", err)
	}
	if r, err := direct[0].index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{}); err != nil || len(r.IndexNames) > 0 {
		t.Errorf("it was left at %v, %v", r, err)
	}

	const docs = 60
	b.fill(t, "whole", docs)
	b.fill(t, "one", docs)
	schemas := map[string]bool{}
	parts := make([]int, 3)
	for i, c := range direct {
		r, err := c.search.GetIndexInfo(t.Context(), &summapb.GetIndexInfoRequest{IndexName: "whole"})
		if err != nil {
			t.Fatal(err)
		}
		parts[i] = int(r.NumDocs)
		schemas[r.Schema] = true
	}
	if len(schemas) != 1 || parts[0]+parts[1]+parts[2] != docs || parts[1] <= parts[0] || parts[1] <= parts[2] {
		t.Errorf("partitions have %v documents and %d schemas", parts, len(schemas))
	}
	info, err := b.search.GetIndexInfo(t.Context(), &summapb.GetIndexInfoRequest{IndexName: "whole"})
	if err != nil || info.NumDocs != docs || info.NumSegments < 3 {
		t.Errorf("%v, %v", info, err)
	}
	// Scores are those of one index with the same documents.
	for _, word := range []string{"loom", "whole7", "a whole12 loom"} {
		req := func(index string) *summapb.SearchRequest {
			return &summapb.SearchRequest{IndexName: index, Limit: 15, Query: match(strings.ReplaceAll(word, "whole", index)), FieldsToLoad: []string{"id"}}
		}
		got, err := b.search.Search(t.Context(), req("whole"))
		if err != nil {
			t.Fatal(err)
		}
		own, err := b.search.Search(t.Context(), req("one"))
		if err != nil {
			t.Fatal(err)
		}
		scores := func(r *summapb.SearchResponse) (out []float32) {
			for _, h := range r.Hits {
				out = append(out, h.Score)
			}
			return out
		}
		if !slices.Equal(scores(got), scores(own)) || len(got.Hits) == 0 {
			t.Errorf("%q: %v, want %v", word, scores(got), scores(own))
		}
		for _, h := range got.Hits {
			d, err := b.search.GetDocument(t.Context(), &summapb.GetDocumentRequest{IndexName: "whole", Address: h.Address})
			if err != nil || !proto.Equal(d.Fields["id"], h.Fields["id"]) {
				t.Errorf("the document of %v: %v, %v", h, d, err)
			}
		}
		stats := func(index string) *summapb.GetTextStatsResponse {
			r, err := b.search.GetTextStats(t.Context(), &summapb.GetTextStatsRequest{IndexName: index, Query: req(index).Query})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if w, o := stats("whole"), stats("one"); w.Stats.TotalDocs != o.Stats.TotalDocs || len(w.Stats.Fields) != len(o.Stats.Fields) ||
			w.Stats.Fields[0].CorpusSize != o.Stats.Fields[0].CorpusSize || len(w.Stats.Fields[0].Terms) != len(o.Stats.Fields[0].Terms) {
			t.Errorf("%q: %v, want %v", word, w, o)
		}
	}

	// Writes by key, with positions of the request.
	nokey := &summapb.NamedDocument{Fields: document("x").Fields[1:]}
	r, err := b.index.BatchIndexDocuments(t.Context(), &summapb.BatchIndexDocumentsRequest{
		IndexName: "whole", Documents: []*summapb.NamedDocument{document("n1"), nokey, document("whole/3"), document("n2"), document("whole/4")},
	})
	if err != nil || r.IndexedCount != 2 || r.ErrorCount != 3 || len(r.Errors) != 3 || r.Errors[0].Index != 1 || r.Errors[1].Index != 2 || r.Errors[2].Index != 4 ||
		r.Errors[0].Error != "document has no 'id' primary key value; a partitioned index cannot route it" || r.Errors[2].Error != "Duplicate primary key: whole/4" {
		t.Errorf("%v, %v", r, err)
	}
	up, err := b.index.UpsertDocuments(t.Context(), &summapb.UpsertDocumentsRequest{IndexName: "whole", Documents: []*summapb.NamedDocument{document("whole/5"), nokey, document("n3")}})
	if err != nil || up.AcceptedCount != 2 || len(up.Errors) != 1 || up.Errors[0].Index != 1 {
		t.Errorf("%v, %v", up, err)
	}
	var keys []string
	for i := range 10 {
		keys = append(keys, fmt.Sprint("whole/", 50+i))
	}
	if r, err := b.index.DeleteDocuments(t.Context(), &summapb.DeleteDocumentsRequest{IndexName: "whole", PrimaryKeys: append(keys, "")}); err != nil ||
		r.AcceptedCount != 10 || len(r.Errors) != 1 || r.Errors[0].Index != 10 {
		t.Errorf("%v, %v", r, err)
	}
	st, err := b.stream(t.Context(), &summapb.IndexDocumentRequest{IndexName: "whole", Fields: document("s1").Fields},
		&summapb.IndexDocumentRequest{IndexName: "whole", Fields: document("whole/1").Fields}, &summapb.IndexDocumentRequest{IndexName: "whole", Fields: document("s2").Fields})
	if err != nil || st.IndexedCount != 2 || len(st.Errors) != 1 || st.Errors[0].Index != 1 {
		t.Errorf("%v, %v", st, err)
	}
	const now = docs + 2 + 1 - 10 + 2
	if r, err := b.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "whole"}); err != nil || !r.Success || r.NumDocs != now {
		t.Errorf("%v, %v, want %d documents", r, err, now)
	}
	if r, err := b.index.ForceMerge(t.Context(), &summapb.ForceMergeRequest{IndexName: "whole", Compact: true}); err != nil || !r.Success || r.NumSegments != 3 {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := b.index.Reorder(t.Context(), &summapb.ReorderRequest{IndexName: "whole"}); err != nil || !r.Success || r.NumSegments != 3 {
		t.Errorf("%v, %v", r, err)
	}
	top, err := b.admin.GetTopology(t.Context(), &brokerpb.GetTopologyRequest{IndexName: "whole"})
	if err != nil || top.Indexes[0].MergePolicy != "score" || top.Indexes[0].PrimaryKeyField != "id" || top.Indexes[0].Partitions[1].Weight != 2 {
		t.Errorf("%v, %v", top, err)
	}
	live := 0
	for _, p := range top.Indexes[0].Partitions {
		live += int(p.Replicas[0].NumDocs)
	}
	if live != now {
		t.Errorf("%d documents are live, want %d", live, now)
	}

	// One partition away: strict refuses, partial leaves it out.
	partial := over(t, members, servers, append(rules, "--partial-partition-reads")...)
	partial.learn(t, "whole", "a", "b", "c")
	hit, err := direct[2].search.Search(t.Context(), all("whole"))
	if err != nil || len(hit.Hits) == 0 {
		t.Fatalf("%v, %v", hit, err)
	}
	if err := servers["c"].Kill(); err != nil {
		t.Fatal(err)
	}
	b.becomes(t, "c", "suspect")
	if _, err := b.search.Search(t.Context(), all("whole")); status.Code(err) != codes.Unavailable || !strings.HasPrefix(status.Convert(err).Message(), "index 'whole' partition on shard '2': ") {
		t.Errorf("a partition that fails: %v", err)
	}
	b.becomes(t, "c", "evicted")
	partial.becomes(t, "c", "evicted")
	lost := "index 'whole' is partitioned over 3 shards but partition(s) [2] carry no healthy copy"
	for rpc, call := range reads(b.client, "whole") {
		_, err := call(t.Context())
		want(t, rpc, err, codes.Unavailable, lost)
	}
	for rpc, call := range writes(b.client, "whole") {
		_, err := call(t.Context())
		want(t, rpc, err, codes.Unavailable, lost)
	}
	rest := parts[0] + parts[1]
	got, err := partial.search.Search(t.Context(), all("whole"))
	if err != nil || got.MissingPartitions != 1 || len(got.Hits) == 0 || len(got.Hits) >= now {
		t.Errorf("%d hits of about %d, %v", len(got.GetHits()), rest, err)
	}
	if n := partial.metric(t, `summa_broker_partial_reads_total{index="whole",rpc="search",shard="2"}`); n != "1" {
		t.Errorf("%q partial reads are counted", n)
	}
	_, err = partial.search.GetDocument(t.Context(), &summapb.GetDocumentRequest{IndexName: "whole", Address: hit.Hits[0].Address})
	want(t, "a document of a partition that is away", err, codes.Unavailable,
		"index 'whole': document not found on the reachable partitions; partition(s) [2] are unavailable")
	if _, err := partial.search.GetIndexInfo(t.Context(), &summapb.GetIndexInfoRequest{IndexName: "whole"}); status.Code(err) != codes.Unavailable {
		t.Errorf("GetIndexInfo is never partial: %v", err)
	}
	if _, err := partial.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "whole"}); status.Code(err) != codes.Unavailable {
		t.Errorf("a write is never partial: %v", err)
	}
}
