package service_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/broker/service"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

// recordedFleet are the nodes of the recordings.
func recordedFleet() []*fake {
	node := func(id, shard string, role route.Role, indexes ...string) *fake {
		return &fake{id: id, shard: shard, role: role, indexes: indexes}
	}
	return []*fake{
		node("n0", "0", route.Unlabeled, "solo", "parts", "wparts", "w2parts", "hole", "nokey", "dup", "pinned", "repparts", "first_b1"),
		node("n1", "1", route.Unlabeled, "parts", "wparts", "w2parts", "hole", "nokey", "dup", "pinned"),
		node("n2", "2", route.Unlabeled, "parts", "wparts", "w2parts", "nokey"),
		node("n3a", "3", route.Unlabeled, "nomaster"),
		node("n3b", "3", route.Unlabeled, "nomaster"),
		node("n4", "4", route.Follower, "follow"),
		node("n5a", "5", route.Master, "twom"),
		node("n5b", "5", route.Master, "twom"),
		node("n6a", "6", route.Master, "repl", "repparts"),
		node("n6b", "6", route.Follower, "repl", "repparts"),
	}
}

var recordedRules = []string{
	"parts*=0,1,2", "wparts*=0:5,1:5,2:4", "w2parts*=0:10,1:10,2:8", "hole*=0,1,2", "nokey*=0,1,2", "pinned=1", "lost=9", "lostparts=0,9", "nomaster=3",
	"follow=4", "twom=5", "repl=6", "repparts=0,6", "glob*x*y=2", "first*=0", "first_b*=1",
}

// recordedBroker is the broker of a target, such as broker:strict.
func recordedBroker(t *testing.T, target string, all []*fake) *serving {
	t.Helper()
	otherwise := "single"
	cfg := service.Config{Source: source(all)}
	switch target {
	case "broker:strict":
	case "broker:partial":
		cfg.Partial = true
	case "broker:straggler":
		cfg.Partial, cfg.Straggler = true, time.Minute // nothing recorded is late, and this machine may be
	case "broker:one":
		cfg.BackendSearches = 1
	case "broker:global":
		cfg.Searches = 1
	case "broker:small":
		cfg.Limits.SearchDecode, cfg.Transfer = 1<<20, 1<<20
	case "broker:reject":
		otherwise = "reject"
	default:
		t.Fatalf("no broker is %s", target)
	}
	cfg.Placement = placement(t, otherwise, recordedRules...)
	return start(t, cfg, len(all))
}

// difference is a case that weft treats otherwise: the line of differences.md, and what makes the case what weft does.
type difference struct {
	line, why string
	change    func(t *testing.T, c *summagolden.Case)
}

// differing are the cases that weft treats otherwise, with the line of differences.md. What every case differs in is compared apart: requests
// come to nodes in the caller's encoding (B13), and passed replies have the node's bytes (B11).
var differing = map[string]difference{
	"broker/create/globxyz": {"B2", "an index without a rule is made on a shard that has a master", func(t *testing.T, c *summagolden.Case) {
		c.Code, c.Message, c.ResponseB64 = "OK", "", encoded(t, &summapb.CreateIndexResponse{Success: true})
		c.Nodes = []summagolden.Call{{
			Node: "n6a", RPC: "CreateIndex", RequestB64: c.RequestB64[0], Deadline: true, Code: "OK", ResponseB64: c.ResponseB64,
		}}
	}},
	"broker/batch/error-index-out-of-range": {"B4", "error positions of a batch are checked", func(_ *testing.T, c *summagolden.Case) {
		c.Code, c.Message = "DATA_LOSS", "backend mutation error index is out of bounds"
	}},
	"broker/merge/o0-l0": {"B5", "limit 0 is 10", func(t *testing.T, c *summagolden.Case) { limitTen(t, c, 0) }},
	"broker/merge/o3-l0": {"B5", "limit 0 is 10", func(t *testing.T, c *summagolden.Case) { limitTen(t, c, 3) }},
}

// limitTen makes a case with limit 0 one with limit 10: nodes are asked for so much, and their hits are merged.
func limitTen(t *testing.T, c *summagolden.Case, offset int) {
	var all []*summapb.SearchHit
	for i := range c.Nodes {
		n := &c.Nodes[i]
		req, reply := &summapb.SearchRequest{}, &summapb.SearchResponse{}
		decode(t, n.RequestB64, req)
		decode(t, n.ResponseB64, reply)
		req.Limit = uint32(offset + 10)
		n.RequestB64 = encoded(t, req)
		all = append(all, reply.Hits...)
	}
	slices.SortStableFunc(all, func(a, b *summapb.SearchHit) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return strings.Compare(a.Address.SegmentId, b.Address.SegmentId)
	})
	reply := &summapb.SearchResponse{}
	decode(t, c.ResponseB64, reply)
	reply.Hits = all[offset:min(len(all), offset+10)]
	c.ResponseB64 = encoded(t, reply)
}

func decode(t testing.TB, b []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
}

// script is what the nodes are asked and answer in one case.
type script struct {
	mu      sync.Mutex
	rpc     string
	left    []*summagolden.Call
	waiting map[string]int // calls by rpc that did not come yet
	turn    chan struct{}  // closed and made anew when one came
	batches []int          // sizes, where the script has no calls of a stream
	open    bool           // batches are answered by their sizes
	primary map[string]int // times that an index's schema was asked for
	faults  []string
	through bool          // the request is passed as it is
	exact   bool          // the request is made, with the recorded bytes
	hold    chan struct{} // where not nil: searches wait for it, and tell held
	held    chan struct{}
	variant variant
}

func newScript(c *summagolden.Case, v variant) *script {
	s := &script{
		rpc: c.RPC, waiting: map[string]int{}, turn: make(chan struct{}), open: c.NodeBatches != nil, primary: map[string]int{}, variant: v,
	}
	for i := range c.Nodes {
		s.left = append(s.left, &c.Nodes[i])
		s.waiting[c.Nodes[i].RPC]++
	}
	return s
}

func (s *script) faultf(format string, a ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, a...))
}

// sibling says whether two nodes are of a shard whose reads go to whose turn it is.
func sibling(a, b string) bool { return len(a) == 3 && len(b) == 3 && a[:2] == b[:2] }

// take finds the recorded call that an asked one is.
func (s *script) take(a *asked) *summagolden.Call {
	best, rank := -1, 0
	for i, c := range s.left {
		if c.RPC != a.rpc {
			continue
		}
		r := 0
		switch {
		case c.Node == a.node && same(a.rpc, a.request, c.RequestB64):
			r = 4
		case sibling(c.Node, a.node) && a.rpc == "GetIndexInfo" && same(a.rpc, a.request, c.RequestB64):
			r = 3
		case c.Node == a.node:
			r = 2
		}
		if r > rank {
			best, rank = i, r
		}
	}
	if best < 0 {
		return nil
	}
	c := s.left[best]
	s.left = slices.Delete(s.left, best, best+1)
	return c
}

// same says whether two requests are equal as messages.
func same(rpc string, a, b []byte) bool {
	m := summagolden.Method(rpc).Input()
	x, err := summagolden.Decode(m, a)
	if err != nil {
		return false
	}
	y, err := summagolden.Decode(m, b)
	return err == nil && proto.Equal(x, y)
}

func show(rpc string, b []byte) string {
	m, err := summagolden.Decode(summagolden.Method(rpc).Input(), b)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(m)
}

// schemaReply is the recorded answer to GetIndexInfo.
func schemaReply(index string) ([]byte, error) {
	attributes := "indexed, stored, fast, primary"
	if index == "nokey" {
		attributes = "indexed, stored"
	}
	return proto.Marshal(&summapb.GetIndexInfoResponse{
		IndexName: index, NumDocs: 7, NumSegments: 2, Schema: "index _ {\n    max_l1_phrase_terms: 64\n    field id: text<raw> [" + attributes + "]\n}",
	})
}

// answer is what a node says. One that fails, or that has a document, waits until all that are asked the same in this case are: a broker need not
// ask others any more then.
func (s *script) answer(a *asked) ([]byte, error) {
	s.mu.Lock()
	if s.open && a.rpc == "BatchIndexDocuments" {
		defer s.mu.Unlock()
		m := &summapb.BatchIndexDocumentsRequest{}
		if err := proto.Unmarshal(a.request, m); err != nil || a.node != "n0" || m.IndexName != "solo" {
			s.faultf("%s was asked to index into %s: %v", a.node, m.IndexName, err)
		}
		s.batches = append(s.batches, len(m.Documents))
		return proto.Marshal(&summapb.BatchIndexDocumentsResponse{IndexedCount: uint32(len(m.Documents))})
	}
	if s.hold != nil && a.rpc == "Search" {
		s.mu.Unlock()
		s.held <- struct{}{}
		select {
		case <-s.hold:
		case <-a.ctx.Done():
		}
		return nil, nil
	}
	c := s.take(a)
	if c == nil {
		defer s.mu.Unlock()
		m := &summapb.GetIndexInfoRequest{}
		if a.rpc == "GetIndexInfo" && proto.Unmarshal(a.request, m) == nil {
			// The primary field, which the recorded broker had asked for before.
			if s.primary[m.IndexName]++; s.primary[m.IndexName] > 1 || a.deadline || a.node != "n0" {
				s.faultf("%s was asked for the schema of %s, deadline %v", a.node, m.IndexName, a.deadline)
			}
			return schemaReply(m.IndexName)
		}
		s.faultf("%s was asked for %s, which was not recorded: %s", a.node, a.rpc, show(a.rpc, a.request))
		return nil, status.Error(codes.Internal, "not recorded")
	}
	if !same(a.rpc, a.request, c.RequestB64) {
		s.faultf("%s of %s:\n got %s\nwant %s", a.rpc, a.node, show(a.rpc, a.request), show(a.rpc, c.RequestB64))
	}
	if s.through && !bytes.Equal(a.request, c.RequestB64) {
		s.faultf("%s of %s: the request's bytes are not the caller's", a.rpc, a.node)
	}
	if s.exact && !bytes.Equal(a.request, c.RequestB64) {
		s.faultf("%s of %s: the request's bytes are not the recorded ones", a.rpc, a.node)
	}
	// GetTopology asks with a deadline of its own.
	if want := c.Deadline && (s.variant.deadline || s.rpc == "GetTopology"); a.deadline != want {
		s.faultf("%s of %s came with a deadline: %v, want %v", a.rpc, a.node, a.deadline, want)
	}
	s.waiting[c.RPC]--
	close(s.turn)
	s.turn = make(chan struct{})
	for (c.Code != "OK" || c.RPC == "GetDocument") && s.waiting[c.RPC] > 0 {
		turn := s.turn
		s.mu.Unlock()
		select {
		case <-turn:
		case <-a.ctx.Done():
		}
		s.mu.Lock()
		if a.ctx.Err() != nil {
			break
		}
	}
	s.mu.Unlock()
	if c.Code != "OK" {
		return nil, status.Error(codeOf(c.Code), c.Message)
	}
	return c.ResponseB64, nil
}

func codeOf(name string) codes.Code {
	var c codes.Code
	if err := c.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil {
		panic(err)
	}
	return c
}

// variant is how the client asks.
type variant struct {
	encoding string
	deadline bool
}

func (v variant) String() string {
	return fmt.Sprintf("encoding=%s,deadline=%v", v.encoding, v.deadline)
}

// passedThrough says whether a case is one request to one node, whose answer is the answer.
func passedThrough(c *summagolden.Case) bool {
	return len(c.Nodes) == 1 && c.Nodes[0].RPC == c.RPC && len(c.RequestB64) == 1 && bytes.Equal(c.Nodes[0].RequestB64, c.RequestB64[0]) &&
		bytes.Equal(c.Nodes[0].ResponseB64, c.ResponseB64)
}

// TestRecordedCases replays every recorded case that needs no coordination by ranks against a broker with scripted nodes: what each node is
// asked, and what the client is answered.
func TestRecordedCases(t *testing.T) {
	cases, err := summagolden.Load(corpus.Dir(t, "summa-golden"), "broker-plain")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []variant{{"", true}, {"zstd", false}} {
		t.Run(v.String(), func(t *testing.T) {
			if replay(t, cases, v, differing) == 0 {
				t.Error("no reply was passed through")
			}
		})
	}
}

// replay makes the calls of cases; it returns how many replies were passed through.
func replay(t *testing.T, cases []summagolden.Case, v variant, differing map[string]difference) (passed int) {
	var mu sync.Mutex
	var now *script
	late := 0
	all := recordedFleet()
	nodes(t, func(a *asked) ([]byte, error) {
		mu.Lock()
		s := now
		if s == nil {
			late++
		} else if a.rpc != "ListIndexes" {
			s.mu.Lock()
			s.compareEncoding(a)
			s.mu.Unlock()
		}
		mu.Unlock()
		if s == nil {
			return nil, status.Error(codes.Internal, "nothing is replayed")
		}
		return s.answer(a)
	}, all...)
	brokers := map[string]*serving{}
	replayed, differed := 0, map[string]bool{}
	for _, c := range cases {
		b := brokers[c.Target]
		if b == nil {
			b = recordedBroker(t, c.Target, all)
			brokers[c.Target] = b
		}
		if d, ok := differing[c.Name]; ok {
			differed[c.Name] = true
			d.change(t, &c)
		}
		requests := [][]byte(c.RequestB64)
		var before func(ctx context.Context, s *script) func()
		if c.RequestRule != "" {
			if v.encoding != "" && strings.Contains(c.RequestRule, "200 MiB") {
				replayed++ // once is enough for this much
				continue
			}
			if requests, before = made(t, b, &c); requests == nil {
				t.Errorf("%s: nobody knows the rule %q", c.Name, c.RequestRule)
				continue
			}
		}
		s := newScript(&c, v)
		s.exact = ranked(&c)
		s.through = !s.exact && passedThrough(&c)
		mu.Lock()
		now = s
		mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		if v.deadline {
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		}
		after := func() {}
		if before != nil {
			after = before(ctx, s)
		}
		var o []grpc.CallOption
		if v.encoding != "" {
			o = append(o, grpc.UseCompressor(v.encoding))
		}
		got, err := b.call(ctx, c.RPC, requests, o...)
		after()
		cancel()
		mu.Lock()
		now = nil
		mu.Unlock()
		replayed++
		s.mu.Lock()
		for _, f := range s.faults {
			t.Errorf("%s: %s", c.Name, f)
		}
		for _, n := range s.left {
			t.Errorf("%s: %s was not asked for %s: %s", c.Name, n.Node, n.RPC, show(n.RPC, n.RequestB64))
		}
		if c.NodeBatches != nil {
			slices.Sort(s.batches)
			if !slices.Equal(s.batches, c.NodeBatches) {
				t.Errorf("%s: batches of %v, want %v", c.Name, s.batches, c.NodeBatches)
			}
		}
		s.mu.Unlock()
		if !want(t, c.Name, err, codeOf(c.Code), c.Message) || err != nil {
			continue
		}
		if s.through {
			passed++
			if !bytes.Equal(got, c.Nodes[0].ResponseB64) {
				t.Errorf("%s: the reply's bytes are not the node's:\n got %x\nwant %x", c.Name, got, c.Nodes[0].ResponseB64)
			}
		}
		if ranked(&c) {
			compareRanked(t, &c, got)
			continue
		}
		compareReply(t, &c, got, all)
	}
	if replayed != len(cases) {
		t.Errorf("%d of %d cases were replayed", replayed, len(cases))
	}
	for name, d := range differing {
		if !differed[name] {
			t.Errorf("%s, which differs by %s, was not replayed", name, d.line)
		}
	}
	if late > 0 {
		t.Errorf("nodes were asked %d times when no case was under way", late)
	}
	t.Logf("%d cases, %d of them with replies passed through, %d differ by a line", replayed, passed, len(differed))
	return passed
}

// compareEncoding sees to it that a request comes to a node in the caller's encoding where it is passed through (B13).
func (s *script) compareEncoding(a *asked) {
	if a.encoding != "" && a.encoding != s.variant.encoding {
		s.faultf("%s of %s came as %q, where the caller sent %q", a.rpc, a.node, a.encoding, s.variant.encoding)
	}
}

// compareReply compares a reply with what was recorded, but for addresses and ages.
func compareReply(t *testing.T, c *summagolden.Case, got []byte, all []*fake) {
	t.Helper()
	m := summagolden.Method(c.RPC)
	answer, err := summagolden.Decode(m.Output(), got)
	if err != nil {
		t.Errorf("%s: %v", c.Name, err)
		return
	}
	var want proto.Message
	if c.ResponseB64 == nil && len(c.Response) > 0 {
		want = answer.ProtoReflect().New().Interface()
		err = protojson.Unmarshal(c.Response, want)
	} else {
		want, err = summagolden.Decode(m.Output(), c.ResponseB64)
	}
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	for _, n := range []proto.Message{answer, want} {
		switch n := n.(type) {
		case *brokerpb.GetTopologyResponse:
			for _, ix := range n.Indexes {
				for _, p := range ix.Partitions {
					for _, r := range p.Replicas {
						checkAddress(t, all, r.BackendId, r.Address, n == answer)
						r.Address, r.IndexMapAgeMs = "", 0
					}
				}
			}
		case *brokerpb.GetBackendsResponse:
			for _, b := range n.Backends {
				checkAddress(t, all, b.BackendId, b.Address, n == answer)
				b.Address, b.IndexMapAgeMs = "", 0
			}
		}
	}
	if !proto.Equal(answer, want) {
		t.Errorf("%s:\n got %v\nwant %v", c.Name, answer, want)
	}
}

func checkAddress(t *testing.T, all []*fake, id, addr string, ours bool) {
	t.Helper()
	if i := slices.IndexFunc(all, func(n *fake) bool { return n.id == id }); ours && (i < 0 || all[i].addr != addr) {
		t.Errorf("node %s is told to be at %s", id, addr)
	}
}

// made makes the requests that a rule tells, and what is to happen before them.
func made(t *testing.T, b *serving, c *summagolden.Case) (requests [][]byte, before func(context.Context, *script) func()) {
	t.Helper()
	text := func(name, s string) *summapb.FieldEntry {
		return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}}
	}
	search := func(index string) []byte {
		return encoded(t, &summapb.SearchRequest{IndexName: index, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}})
	}
	var docs, mib, more, keyBytes int
	var index string
	switch {
	case c.RequestRule == "solo, id s0 …":
		total := 0
		for _, n := range c.NodeBatches {
			total += n
		}
		for i := range total {
			requests = append(requests, encoded(t, &summapb.IndexDocumentRequest{IndexName: "solo", Fields: []*summapb.FieldEntry{text("id", fmt.Sprint("s", i))}}))
		}
	case c.RequestRule == "solo, nine documents with a text of 1 MiB":
		for i := range 9 {
			requests = append(requests, encoded(t, &summapb.IndexDocumentRequest{
				IndexName: "solo", Fields: []*summapb.FieldEntry{text("id", fmt.Sprint("s", i)), text("t", strings.Repeat("x", 1<<20))},
			}))
		}
	case scan(c.RequestRule, "index absent, one key of %d times 'a'", &keyBytes):
		requests = [][]byte{encoded(t, &summapb.DeleteDocumentsRequest{IndexName: "absent", PrimaryKeys: []string{strings.Repeat("a", keyBytes)}})}
	case scan(c.RequestRule, "index absent, %d documents, the first with field t of x so that the whole request encodes to %d MiB + %d", &docs, &mib, &more):
		size := mib<<20 + more
		m := &summapb.UpsertDocumentsRequest{IndexName: "absent", Documents: []*summapb.NamedDocument{{Fields: []*summapb.FieldEntry{text("t", "")}}}}
		for range docs - 1 {
			m.Documents = append(m.Documents, &summapb.NamedDocument{})
		}
		long := strings.Repeat("x", size)
		for n := size - 64; ; n++ {
			m.Documents[0].Fields[0] = text("t", long[:n])
			if have := proto.Size(m); have == size {
				break
			} else if have > size {
				t.Fatalf("%s: no text makes it %d bytes", c.Name, size)
			} else {
				n += max(0, size-have-8)
			}
		}
		requests = [][]byte{encoded(t, m)}
	case scan(c.RequestRule, "a Search of solo is held by its node; then a Search of %s", &index):
		requests = [][]byte{search(index)}
		before = func(ctx context.Context, s *script) func() {
			s.mu.Lock()
			s.hold, s.held = make(chan struct{}), make(chan struct{}, 8)
			s.mu.Unlock()
			first := make(chan error, 1)
			go func() {
				_, err := b.call(ctx, "Search", [][]byte{search("solo")})
				first <- err
			}()
			<-s.held
			return func() {
				close(s.hold)
				if err := <-first; err != nil {
					t.Errorf("%s: the search that was held: %v", c.Name, err)
				}
				if len(s.held) > 0 {
					t.Errorf("%s: a node was asked for what was refused", c.Name)
				}
			}
		}
	}
	return requests, before
}

func scan(text, format string, into ...any) bool {
	n, err := fmt.Sscanf(text, format, into...)
	return err == nil && n == len(into)
}
