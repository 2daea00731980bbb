package partition_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

// recordedIndexes are the partitioned indexes of the recordings: their weights, and who lacks a copy. Partition i is node n<i>.
var recordedIndexes = map[string]struct {
	weights []uint64
	missing []int
}{
	"parts":     {weights: []uint64{1, 1, 1}},
	"parts_new": {weights: []uint64{1, 1, 1}},
	"wparts":    {weights: []uint64{5, 5, 4}},
	"w2parts":   {weights: []uint64{10, 10, 8}},
	"hole":      {weights: []uint64{1, 1, 1}, missing: []int{2}},
}

func recordedIndex(name string) (*partition.Index, bool) {
	r, ok := recordedIndexes[name]
	if !ok {
		return nil, false
	}
	ix := &partition.Index{Name: name, Missing: r.missing, Locate: locate(r.weights...)}
	for i := range r.weights {
		ix.Shards = append(ix.Shards, fmt.Sprint(i))
	}
	return ix, true
}

// locate is the rule of the contract for where a key belongs.
func locate(weights ...uint64) func([]byte) int {
	gcd := func(a, b uint64) uint64 {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	g, total := uint64(0), uint64(0)
	for _, w := range weights {
		g, total = gcd(w, g), total+w
	}
	return func(key []byte) int {
		h := uint64(0xcbf29ce484222325)
		for _, c := range key {
			h = (h ^ uint64(c)) * 0x100000001b3
		}
		left := h % (total / g)
		for i, w := range weights {
			if left < w/g {
				return i
			}
			left -= w / g
		}
		panic("not reached")
	}
}

// script answers what was recorded and complains about what was not asked then.
type script struct {
	t     testing.TB
	name  string
	mu    sync.Mutex
	calls []summagolden.Call
	want  func(call *summagolden.Call, req proto.Message) // changes what is to be asked, where weft differs
}

func (s *script) Call(_ context.Context, part int, method string, req []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rpc := method[strings.LastIndexByte(method, '/')+1:]
	for i := range s.calls {
		c := &s.calls[i]
		if c.Node != fmt.Sprintf("n%d", part) || c.RPC != rpc {
			continue
		}
		s.compare(c, req)
		s.calls = slices.Delete(slices.Clone(s.calls), i, i+1)
		if c.Code != "OK" {
			return nil, status.Error(codeOf(c.Code), c.Message)
		}
		return c.ResponseB64, nil
	}
	s.t.Errorf("%s: partition %d was asked for %s, which was not recorded", s.name, part, rpc)
	return nil, status.Error(codes.Internal, "not recorded")
}

func (s *script) compare(c *summagolden.Call, req []byte) {
	m := summagolden.Method(c.RPC)
	want, err := summagolden.Decode(m.Input(), c.RequestB64)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.want != nil {
		s.want(c, want)
	}
	got, err := summagolden.Decode(m.Input(), req)
	if err != nil {
		s.t.Errorf("%s: what %s is asked cannot be read: %v", s.name, c.Node, err)
		return
	}
	if !proto.Equal(got, want) {
		s.t.Errorf("%s: %s of %s:\n got %v\nwant %v", s.name, c.RPC, c.Node, got, want)
	}
}

// codeOf is the code of a recorded name.
func codeOf(name string) codes.Code {
	var c codes.Code
	if err := c.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil {
		panic(err)
	}
	return c
}

// knowing is a store of primary fields that has asked already, as the recorded broker had.
func knowing(t testing.TB, field string, names ...string) *partition.Primaries {
	t.Helper()
	p := &partition.Primaries{}
	for _, name := range names {
		ix := &partition.Index{Name: name, Shards: []string{"0"}}
		_, err := p.Of(t.Context(), ix, callerFunc(func(context.Context, int, string, []byte) ([]byte, error) {
			return proto.Marshal(&summapb.GetIndexInfoResponse{Schema: "index _ {\n    field " + field + ": text<raw> [indexed, primary]\n}"})
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

type callerFunc func(ctx context.Context, part int, method string, req []byte) ([]byte, error)

func (f callerFunc) Call(ctx context.Context, part int, method string, req []byte) ([]byte, error) {
	return f(ctx, part, method, req)
}

// differing are the recorded cases that weft answers otherwise, each with its line of differences.md.
var differing = map[string]struct {
	line string
	code codes.Code
	text string
	// Changes to what was recorded: of the nodes' requests, and of the answer.
	asked  func(proto.Message)
	answer func(proto.Message, []summagolden.Call)
}{
	"broker/batch/error-index-out-of-range": {line: "B4", code: codes.DataLoss, text: "backend mutation error index is out of bounds"},
	"broker/merge/o0-l0":                    {line: "B5", asked: limitOf(10), answer: hitsFrom(0)},
	"broker/merge/o3-l0":                    {line: "B5", asked: limitOf(13), answer: hitsFrom(3)},
}

func limitOf(n uint32) func(proto.Message) {
	return func(m proto.Message) { m.(*summapb.SearchRequest).Limit = n }
}

// hitsFrom puts the nodes' hits into an answer that has none: those after offset, in the order that the recording has at limit 100.
func hitsFrom(offset int) func(proto.Message, []summagolden.Call) {
	return func(m proto.Message, calls []summagolden.Call) {
		var all []*summapb.SearchHit
		for _, c := range calls {
			r := &summapb.SearchResponse{}
			if err := proto.Unmarshal(c.ResponseB64, r); err != nil {
				panic(err)
			}
			all = append(all, r.Hits...)
		}
		slices.SortStableFunc(all, func(a, b *summapb.SearchHit) int {
			if a.Score != b.Score {
				if a.Score > b.Score {
					return -1
				}
				return 1
			}
			return strings.Compare(a.Address.SegmentId, b.Address.SegmentId)
		})
		m.(*summapb.SearchResponse).Hits = all[offset:]
	}
}

// play does what a broker does for one call about a partitioned index.
func play(ctx context.Context, ix *partition.Index, c partition.Caller, p *partition.Primaries, r partition.Reads, method string, req []byte) ([]byte, error) {
	var a partition.Answer
	var err error
	switch method {
	case summapb.SearchService_Search_FullMethodName:
		var s *partition.Shape
		if s, err = partition.ShapeOf(req); err == nil {
			a, err = partition.Search(ctx, ix, c, r, s)
		}
	case summapb.SearchService_GetTextStats_FullMethodName:
		a, err = partition.GetTextStats(ctx, ix, c, r, req)
	case summapb.SearchService_GetDocument_FullMethodName:
		a, err = partition.GetDocument(ctx, ix, c, r, req)
	case summapb.SearchService_GetIndexInfo_FullMethodName:
		a.Reply, err = partition.GetIndexInfo(ctx, ix, c, r, req)
	case summapb.IndexService_BatchIndexDocuments_FullMethodName:
		a.Reply, err = partition.BatchIndexDocuments(ctx, ix, c, p, req)
	case summapb.IndexService_UpsertDocuments_FullMethodName:
		a.Reply, err = partition.UpsertDocuments(ctx, ix, c, p, req)
	case summapb.IndexService_DeleteDocuments_FullMethodName:
		a.Reply, err = partition.DeleteDocuments(ctx, ix, c, req)
	case summapb.IndexService_CreateIndex_FullMethodName:
		a.Reply, err = partition.CreateIndex(ctx, ix, c, req)
	default:
		a.Reply, err = partition.ToMasters(ctx, ix, c, method, req)
	}
	return a.Reply, err
}

func readsOf(target string) partition.Reads {
	switch target {
	case "broker:partial":
		return partition.Reads{Partial: true}
	case "broker:straggler":
		return partition.Reads{Partial: true, Straggler: time.Minute} // nothing recorded is late
	}
	return partition.Reads{}
}

// recordedCases loads recordings, or skips.
func recordedCases(t *testing.T, file string) []summagolden.Case {
	t.Helper()
	all, err := summagolden.Load(corpus.Dir(t, "summa-golden"), file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRecordedPartitionedCalls replays every recorded call about an index on several shards that is not ranked by the broker.
func TestRecordedPartitionedCalls(t *testing.T) {
	primaries := knowing(t, "id", "parts", "wparts", "w2parts", "hole")
	kinds := map[string]int{}
	differed := map[string]bool{}
	for _, file := range []string{"broker-plain", "broker-fusion"} {
		for _, c := range recordedCases(t, file) {
			if c.RPC == "IndexDocuments" || len(c.RequestB64) != 1 || !strings.HasPrefix(string(summagolden.Method(c.RPC).Parent().FullName()), "summa.") ||
				summagolden.Method(c.RPC).Parent().Name() == "BrokerService" {
				continue
			}
			reqs, err := c.Requests()
			if err != nil {
				t.Fatal(err)
			}
			named, ok := reqs[0].(interface{ GetIndexName() string })
			if !ok {
				continue
			}
			ix, ok := recordedIndex(named.GetIndexName())
			if !ok {
				continue
			}
			if c.RPC == "Search" {
				if s, err := partition.ShapeOf(c.RequestB64[0]); err != nil || s.Coordinated() {
					continue
				}
			}
			group := strings.Join(strings.Split(c.Name, "/")[:2], "/")
			kinds[group]++
			diff, differs := differing[c.Name]
			differed[c.Name] = differs
			s := &script{t: t, name: c.Name, calls: c.Nodes}
			if diff.asked != nil {
				s.want = func(_ *summagolden.Call, m proto.Message) { diff.asked(m) }
			}
			m := summagolden.Method(c.RPC)
			method := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
			got, err := play(t.Context(), ix, s, primaries, readsOf(c.Target), method, c.RequestB64[0])
			code, text := codeOf(c.Code), c.Message
			if differs && diff.text != "" {
				code, text = diff.code, diff.text
			}
			if st := status.Convert(err); st.Code() != code || st.Message() != text {
				t.Errorf("%s:\n got %s %s\nwant %s %s", c.Name, st.Code(), st.Message(), code, text)
				continue
			}
			if len(s.calls) > 0 {
				t.Errorf("%s: not asked: %s of %s", c.Name, s.calls[0].RPC, s.calls[0].Node)
			}
			if err != nil {
				continue
			}
			want, err := c.Reply()
			if err != nil {
				t.Fatal(err)
			}
			if diff.answer != nil {
				diff.answer(want, c.Nodes)
			}
			answer, err := summagolden.Decode(m.Output(), got)
			if err != nil || !proto.Equal(answer, want) {
				t.Errorf("%s: %v\n got %v\nwant %v", c.Name, err, answer, want)
			}
		}
	}
	for name, d := range differing {
		if !differed[name] {
			t.Errorf("%s, which differs by %s, was not replayed", name, d.line)
		}
	}
	for _, kind := range []string{
		"broker/parts", "broker/route", "broker/create", "broker/batch", "broker/upsert", "broker/delete", "broker/all", "broker/merge", "broker/stats",
		"broker/document", "broker/info", "broker/partial", "broker/straggler", "broker/fuse",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no case %s was replayed", kind)
		}
	}
	t.Logf("replayed: %v", kinds)
}

// TestRecordedStreams replays IndexDocuments, on one shard and on several.
func TestRecordedStreams(t *testing.T) {
	primaries := knowing(t, "id", "parts")
	document := func(id string, size int) []byte {
		m := &summapb.IndexDocumentRequest{IndexName: "solo", Fields: []*summapb.FieldEntry{textEntry("id", id)}}
		if size > 0 {
			m.Fields = append(m.Fields, textEntry("t", strings.Repeat("x", size)))
		}
		return marshal(t, m)
	}
	replayed := 0
	for _, c := range recordedCases(t, "broker-plain") {
		if c.RPC != "IndexDocuments" {
			continue
		}
		replayed++
		msgs := [][]byte(c.RequestB64)
		switch c.RequestRule {
		case "":
		case "solo, id s0 …":
			total := 0
			for _, n := range c.NodeBatches {
				total += n
			}
			for i := range total {
				msgs = append(msgs, document(fmt.Sprintf("s%d", i), 0))
			}
		case "solo, nine documents with a text of 1 MiB":
			for i := range 9 {
				msgs = append(msgs, document(fmt.Sprintf("s%d", i), 1<<20))
			}
		default:
			t.Fatalf("%s: unknown rule %q", c.Name, c.RequestRule)
		}
		s := &script{t: t, name: c.Name, calls: c.Nodes}
		var batches []int
		stream := partition.Stream{Send: func(ctx context.Context, index string, batch []byte) ([]byte, error) {
			m := &summapb.BatchIndexDocumentsRequest{}
			if err := proto.Unmarshal(batch, m); err != nil {
				t.Error(err)
			}
			batches = append(batches, len(m.Documents))
			if ix, ok := recordedIndex(index); ok {
				return partition.BatchIndexDocuments(ctx, ix, s, primaries, batch)
			}
			if index != "solo" {
				return nil, status.Errorf(codes.NotFound, "index '%s' is not present on any healthy backend", index)
			}
			if len(c.Nodes) == 0 {
				return proto.Marshal(&summapb.BatchIndexDocumentsResponse{IndexedCount: uint32(len(m.Documents))})
			}
			return s.Call(ctx, 0, summapb.IndexService_BatchIndexDocuments_FullMethodName, batch)
		}}
		got, err := feed(t.Context(), &stream, msgs)
		if st := status.Convert(err); st.Code() != codeOf(c.Code) || st.Message() != c.Message {
			t.Errorf("%s:\n got %s %s\nwant %s %s", c.Name, st.Code(), st.Message(), c.Code, c.Message)
		}
		if len(s.calls) > 0 {
			t.Errorf("%s: not asked: %v", c.Name, s.calls)
		}
		if c.NodeBatches != nil {
			slices.Sort(batches)
			if !slices.Equal(batches, c.NodeBatches) {
				t.Errorf("%s: runs of %v, want %v", c.Name, batches, c.NodeBatches)
			}
		}
		if err != nil {
			continue
		}
		want := &summapb.IndexDocumentsResponse{}
		answer := &summapb.IndexDocumentsResponse{}
		if err := errors.Join(protojson.Unmarshal(c.Response, want), proto.Unmarshal(got, answer)); err != nil || !proto.Equal(answer, want) {
			t.Errorf("%s: %v\n got %v\nwant %v", c.Name, err, answer, want)
		}
	}
	if replayed == 0 {
		t.Error("no case was replayed")
	}
}

func feed(ctx context.Context, s *partition.Stream, msgs [][]byte) ([]byte, error) {
	for _, m := range msgs {
		if err := s.Add(ctx, m); err != nil {
			return nil, err
		}
	}
	return s.Close(ctx)
}

// TestRecordedBounds replays the bounds of deletions and upserts, which come before the index is looked up.
func TestRecordedBounds(t *testing.T) {
	replayed := 0
	for _, c := range recordedCases(t, "broker-plain") {
		if !strings.HasPrefix(c.Name, "broker/limits/") {
			continue
		}
		var req []byte
		switch {
		case len(c.RequestB64) == 1:
			req = c.RequestB64[0]
		case strings.HasPrefix(c.Name, "broker/limits/delete-bytes-"):
			var n int
			if _, err := fmt.Sscanf(c.Name, "broker/limits/delete-bytes-%d", &n); err != nil {
				t.Fatal(err)
			}
			req = marshal(t, &summapb.DeleteDocumentsRequest{IndexName: "absent", PrimaryKeys: []string{strings.Repeat("a", n)}})
		case strings.HasPrefix(c.Name, "broker/limits/upsert-bytes-"):
			var mib, more, docs int
			if _, err := fmt.Sscanf(c.Name, "broker/limits/upsert-bytes-%dMiB+%d-of-%d", &mib, &more, &docs); err != nil {
				t.Fatal(err)
			}
			req = upsertOf(t, docs, mib<<20+more)
		default:
			continue // delete-keys, made by a rule that is as simple
		}
		replayed++
		check := partition.CheckUpsert
		if c.RPC == "DeleteDocuments" {
			check = partition.CheckDelete
		}
		err := check(req)
		if err == nil {
			err = status.Error(codes.NotFound, "index 'absent' is not present on any healthy backend")
		}
		if st := status.Convert(err); st.Code() != codeOf(c.Code) || st.Message() != c.Message {
			t.Errorf("%s:\n got %s %s\nwant %s %s", c.Name, st.Code(), st.Message(), c.Code, c.Message)
		}
	}
	if replayed < 4 {
		t.Errorf("%d cases were replayed", replayed)
	}
}

// upsertOf is an encoded upsert of some documents that takes so many bytes, written in one pass: it may be large.
func upsertOf(t testing.TB, docs, size int) []byte {
	t.Helper()
	head := field(1, []byte("absent"))
	name := field(1, []byte("t"))
	for text := size; text > size-64; text-- {
		value := 1 + protowire.SizeBytes(text)
		entry := len(name) + 1 + protowire.SizeBytes(value)
		doc := 1 + protowire.SizeBytes(entry)
		if len(head)+1+protowire.SizeBytes(doc)+2*(docs-1) != size {
			continue
		}
		req := append(make([]byte, 0, size), head...)
		req = lengthOf(req, 2, doc)
		req = lengthOf(req, 1, entry)
		req = append(req, name...)
		req = lengthOf(req, 2, value)
		req = lengthOf(req, 1, text)
		req = append(req[:len(req)+text], bytes.Repeat(field(2, nil), docs-1)...)
		return req
	}
	t.Fatalf("no upsert takes %d bytes", size)
	return nil
}

// lengthOf appends what a field of bytes begins with.
func lengthOf(dst []byte, num protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.BytesType), uint64(n))
}

// TestRecordedExportsOfOneShard replays what a broker looks at when it passes an export on.
func TestRecordedExportsOfOneShard(t *testing.T) {
	replayed := 0
	for _, c := range recordedCases(t, "broker-plain") {
		if c.RPC != "Search" || !strings.HasPrefix(c.Name, "broker/single/") || len(c.Nodes) != 1 || c.Nodes[0].Code != "OK" {
			continue
		}
		s, err := partition.ShapeOf(c.RequestB64[0])
		if err != nil {
			t.Fatal(err)
		}
		if s.Coordinated() {
			continue
		}
		replayed++
		if st := status.Convert(s.CheckMethod(c.Nodes[0].ResponseB64)); st.Code() != codeOf(c.Code) || st.Message() != c.Message {
			t.Errorf("%s:\n got %s %s\nwant %s %s", c.Name, st.Code(), st.Message(), c.Code, c.Message)
		}
	}
	if replayed < 3 {
		t.Errorf("%d cases were replayed", replayed)
	}
}
