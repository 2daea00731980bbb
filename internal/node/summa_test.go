package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

// summaNode is a node that serves Summa, and a client of it.
type summaNode struct {
	*server
	conn   *grpc.ClientConn
	index  summapb.IndexServiceClient
	search summapb.SearchServiceClient
}

// plaintext is for clients without TLS.
var plaintext = grpc.WithTransportCredentials(insecure.NewCredentials())

func newSummaNode(t testing.TB, cfg Config) *summaNode { return newSummaNodeWith(t, cfg, nil) }

// newSummaNodeWith lets before change the node between New and Start.
func newSummaNodeWith(t testing.TB, cfg Config, before func(*Node)) *summaNode {
	t.Helper()
	cfg.SummaAddr = "127.0.0.1:0"
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	s := startServer(t, cfg, before)
	conn, err := grpc.NewClient(s.node.front.Addr(Summa), plaintext,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20), grpc.MaxCallSendMsgSize(512<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return &summaNode{s, conn, summapb.NewIndexServiceClient(conn), summapb.NewSearchServiceClient(conn)}
}

func (s *summaNode) create(name, sdl string) {
	s.t.Helper()
	if _, err := s.index.CreateIndex(context.Background(), &summapb.CreateIndexRequest{IndexName: name, Schema: sdl}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *summaNode) commit(name string) uint32 {
	s.t.Helper()
	r, err := s.index.Commit(context.Background(), &summapb.CommitRequest{IndexName: name})
	if err != nil || !r.Success {
		s.t.Fatal(r, err)
	}
	return r.NumDocs
}

// summaText is a document of text fields: name, value, name, value.
func summaText(pairs ...string) *summapb.NamedDocument {
	d := &summapb.NamedDocument{}
	for i := 0; i < len(pairs); i += 2 {
		d.Fields = append(d.Fields, &summapb.FieldEntry{Name: pairs[i], Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: pairs[i+1]}}})
	}
	return d
}

func wantStatus(t testing.TB, err error, code codes.Code, text string) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != code || st.Message() != text {
		t.Errorf("got %v %q, want %v %q", st.Code(), st.Message(), code, text)
	}
}

// statusOf is an error with a code.
func statusOf(c codes.Code) error { return status.Error(c, "") }

// codeOf is the name of a code as recorded.
func codeOf(err error) string {
	var b strings.Builder
	for i, r := range status.Code(err).String() {
		if i > 0 && r >= 'A' && r <= 'Z' && err != nil {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// differs are the cases whose answer is another one on purpose: the line of contracts/differences.md, and the answer instead, which is a
// code with its text, a reply in JSON, or what changes in the recorded reply.
var differs = map[string]differing{
	"node/sdl/02":                 {line: "N3", refused: parseFault(1, 10, "index a {}", `expected at least one field, found "}"`)},
	"node/sdl/02-info":            {line: "N3", refused: "NOT_FOUND Index 'sdl02' not found"},
	"node/sdl/19":                 {line: "N3", refused: parseFault(1, 33, "index a { field x: dense_vector<0> }", "dense_vector dimension must be between 1 and 65536, got 0")},
	"node/sdl/19-info":            {line: "N3", refused: "NOT_FOUND Index 'sdl19' not found"},
	"node/sdl/23":                 {line: "N3", refused: parseFault(1, 31, "index a { field x: text field x: u64 }", "field 'x' is declared twice, first as field number 1")},
	"node/sdl/23-info":            {line: "N3", refused: "NOT_FOUND Index 'sdl23' not found"},
	"node/stream/mixed":           {line: "N2", reply: `{"indexedCount":2,"errors":[{"index":1,"error":"Field 'nofield' not found in schema"},{"index":2,"error":"Duplicate primary key: s1"}]}`},
	"node/mutate/poison-0":        {line: "N1", reply: poisoned("text")},
	"node/mutate/poison-0-commit": {line: "N1", reply: `{"success":true,"numDocs":1}`},
	"node/mutate/poison-1":        {line: "N1", reply: poisoned("bytes")},
	"node/mutate/poison-1-commit": {line: "N1", reply: `{"success":true,"numDocs":2}`},
	"node/mutate/poison-2":        {line: "N1", reply: poisoned("json")},
	"node/mutate/poison-2-commit": {line: "N1", reply: `{"success":true,"numDocs":3}`},
	// What the reference lost is there.
	"node/mutate/poison-3-commit":     {line: "N1", reply: `{"success":true,"numDocs":5}`},
	"node/mutate/poison-again":        {line: "N1", reply: `{"errorCount":1,"errors":[{"error":"Duplicate primary key: good-0"}]}`},
	"node/mutate/poison-again-commit": {line: "N1", reply: `{"success":true,"numDocs":5}`},
	// The number 5 as a key is the text "5", so the document is in.
	"node/mutate/batch-bad": {line: "N1, N2", reply: `{"indexedCount":7,"errorCount":14,"errors":[
		{"index":1,"error":"Field 'nofield' not found in schema"},
		{"index":2,"error":"Duplicate primary key: a"},
		{"index":3,"error":"Document error: Missing primary key field"},
		{"index":4,"error":"Document error: Primary key must not be empty"},
		{"index":5,"error":"Document error: primary key requires exactly one text value"},
		{"index":7,"error":"Field 't' has no value"},
		{"index":8,"error":"Field 'v': dense vector dimension 1 does not match schema dimension 2"},
		{"index":9,"error":"Field 'v': dense vector contains non-finite value NaN at index 1"},
		{"index":14,"error":"Field 't': expected string in JSON array, got 1"},
		{"index":15,"error":"Invalid JSON in field 'j': unexpected end of the text"},
		{"index":17,"error":"Field 'b': binary vector byte length 2 does not match schema byte length 1"},
		{"index":18,"error":"Field 's': sparse vector has 1 indices but 0 values"},
		{"index":19,"error":"Field 't': vector value does not match schema type Text"},
		{"index":20,"error":"Document error: Missing primary key field"}]}`},
	// The reference lower-cases the text of a query on raw text once more.
	"node/query/plain-term-00": {line: "N4", change: func(m proto.Message) {
		r := m.(*summapb.SearchResponse)
		r.Hits, r.TotalHits = nil, 7
		for doc := uint32(0); doc < 100; doc += 15 { // those with AB-0 in capitals, ln((100 − 7 + ½)/(7 + ½) + 1)·2.2/2.2
			r.Hits = append(r.Hits, summaHit(2.6002176, fmt.Sprintf("id=p%02d", doc)))
			r.Hits[len(r.Hits)-1].Address = &summapb.DocAddress{DocId: doc}
		}
	}},
	"node/mutate/poison-0-all": {line: "N1", change: more("id=good-0")},
	"node/mutate/poison-1-all": {line: "N1", change: more("id=good-0", "id=good-1")},
	"node/mutate/poison-2-all": {line: "N1", change: more("id=good-0", "id=good-1", "id=good-2")},
	"node/mutate/poison-3-all": {line: "N1", change: more("id=good-0", "id=good-1", "id=good-2")},
	"node/mutate/all-1":        {line: "N1", change: more("id=5", "id=j t=5")},
	"node/mutate/not-yet":      {line: "N1", change: func(m proto.Message) { m.(*summapb.SearchResponse).TotalHits = 7 }},
	"node/mutate/all-2":        {line: "N1", change: more("id=5", "id=j t=5")},
	"node/mutate/stats-deleted": {line: "N1, N6", change: func(m proto.Message) {
		st := m.(*summapb.GetTextStatsResponse).Stats
		st.TotalDocs, st.Fields[0].CorpusSize, st.Fields[0].AvgLen = 8, 8, 1.2
		st.Fields[0].Terms = st.Fields[0].Terms[:2] // no live document has the third
	}},
	"node/mutate/stats-compact": {line: "N1", change: func(m proto.Message) {
		st := m.(*summapb.GetTextStatsResponse).Stats
		st.TotalDocs, st.Fields[0].CorpusSize, st.Fields[0].AvgLen = 8, 8, 1.2
	}},
	"node/mutate/commit-1":       {line: "N1", reply: `{"success":true,"numDocs":7}`},
	"node/mutate/commit-2":       {line: "N1", reply: `{"success":true,"numDocs":8}`},
	"node/mutate/commit-nothing": {line: "N1", reply: `{"success":true,"numDocs":8}`},
	// One document more; and dead documents depend on the layout: of two upserts of one key before a commit only the last is ever in a segment.
	"node/mutate/info": {line: "N1, N6", change: func(m proto.Message) {
		r := m.(*summapb.GetIndexInfoResponse)
		r.NumDocs, r.NumDeletedDocs, r.DeletedRatio = 8, 2, 0.2
	}},
	"node/mutate/info-compact": {line: "N1", change: func(m proto.Message) {
		r := m.(*summapb.GetIndexInfoResponse)
		r.NumDocs, r.PhysicalNumDocs = 8, 8
	}},
}

type differing struct {
	line           string
	refused, reply string
	change         func(recorded proto.Message)
}

// more gives the recorded reply of a search for everything fields and hits that it has not: "id=a t=text" is one.
func more(hits ...string) func(proto.Message) {
	return func(m proto.Message) {
		r := m.(*summapb.SearchResponse)
		for _, one := range hits {
			add := summaHit(1, one)
			k := slices.IndexFunc(r.Hits, func(h *summapb.SearchHit) bool { return proto.Equal(h.Fields["id"], add.Fields["id"]) })
			if k < 0 {
				r.Hits = append(r.Hits, add)
				continue
			}
			maps.Copy(r.Hits[k].Fields, add.Fields)
		}
		r.TotalHits = uint64(len(r.Hits))
	}
}

// summaHit is a hit with fields of text: "id=a t=text".
func summaHit(score float32, fields string) *summapb.SearchHit {
	h := &summapb.SearchHit{Score: score, Fields: map[string]*summapb.FieldValueList{}}
	for f := range strings.FieldsSeq(fields) {
		name, text, _ := strings.Cut(f, "=")
		h.Fields[name] = &summapb.FieldValueList{Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_Text{Text: text}}}}
	}
	return h
}

func poisoned(kind string) string {
	return fmt.Sprintf(`{"indexedCount":1,"errorCount":1,"errors":[{"index":1,"error":"Schema error: type mismatch for field 'n': schema expects a u64 value, got %s"}]}`, kind)
}

func parseFault(line, col int, text, why string) string {
	return fmt.Sprintf("INVALID_ARGUMENT Invalid schema: Schema error: Failed to parse SDL: Schema error: Parse error:  --> %d:%d\n  |\n1 | %s\n  | %s^---\n  |\n  = %s",
		line, col, text, strings.Repeat(" ", col-1), why)
}

// TestRecordedSummaCalls replays what a Summa node answered, call by call: everything is the same but what varies from run to run, and what is in
// the table of what differs.
func TestRecordedSummaCalls(t *testing.T) {
	dir := corpus.Dir(t, "summa-golden")
	cases, err := summagolden.Load(dir, "node")
	if err != nil {
		t.Fatal(err)
	}
	s := newSummaNode(t, Config{})
	replayed := map[string]int{}
	for _, c := range cases {
		if c.RequestRule != "" {
			t.Errorf("%s is not kept", c.Name)
			continue
		}
		reqs, err := c.Requests()
		if err != nil {
			t.Fatal(err)
		}
		got, callErr := s.call(c.RPC, reqs)
		replayed[strings.Split(c.Name, "/")[1]]++
		checkRecorded(t, &c, reqs, got, callErr)
	}
	t.Log(replayed)
	for name := range differs {
		if !slices.ContainsFunc(cases, func(c summagolden.Case) bool { return c.Name == name }) {
			t.Errorf("%s is listed and not recorded", name)
		}
	}
	for _, group := range []string{"create", "load", "list", "info", "mutate", "stream", "sdl", "unknown", "document", "query", "limit", "stats"} {
		if replayed[group] == 0 {
			t.Errorf("no case of %s", group)
		}
	}
}

func (s *summaNode) call(rpc string, reqs []proto.Message) (proto.Message, error) {
	m := summagolden.Method(rpc)
	full := fmt.Sprintf("/%s/%s", m.Parent().FullName(), rpc)
	out, err := summagolden.Decode(m.Output(), nil)
	if err != nil {
		return nil, err
	}
	if !m.IsStreamingClient() {
		return out, s.conn.Invoke(context.Background(), full, reqs[0], out)
	}
	st, err := s.conn.NewStream(context.Background(), &grpc.StreamDesc{ClientStreams: true}, full)
	if err != nil {
		return nil, err
	}
	for _, r := range reqs {
		if err := st.SendMsg(r); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return nil, err
		}
	}
	if err := st.CloseSend(); err != nil {
		return nil, err
	}
	return out, st.RecvMsg(out)
}

func checkRecorded(t *testing.T, c *summagolden.Case, reqs []proto.Message, got proto.Message, err error) {
	t.Helper()
	wantCode, wantText := c.Code, c.Message
	want, derr := c.Reply()
	if derr != nil {
		t.Fatal(derr)
	}
	d := differs[c.Name]
	line := d.line
	switch {
	case d.refused != "":
		wantCode, wantText, _ = strings.Cut(d.refused, " ")
		want = nil
	case d.reply != "":
		wantCode, wantText = "OK", ""
		want = got.ProtoReflect().New().Interface()
		if err := protojson.Unmarshal([]byte(d.reply), want); err != nil {
			t.Fatal(err)
		}
	case d.change != nil:
		d.change(want)
	}
	if codeOf(err) != wantCode || status.Convert(err).Message() != wantText {
		t.Errorf("%s %s:\n got %s %s\nwant %s %s", c.Name, line, codeOf(err), status.Convert(err).Message(), wantCode, wantText)
		return
	}
	if want == nil {
		return
	}
	if a, ok := got.(*summapb.SearchResponse); ok {
		b := want.(*summapb.SearchResponse)
		if strings.HasPrefix(c.Name, "node/mutate/") {
			// Equal scores stand by segment, and which of several comes first is chance.
			for _, r := range []*summapb.SearchResponse{a, b} {
				slices.SortFunc(r.Hits, func(a, b *summapb.SearchHit) int {
					return cmp.Compare(fmt.Sprint(a.Fields["id"]), fmt.Sprint(b.Fields["id"]))
				})
				for _, h := range r.Hits {
					h.Address = nil
				}
			}
		}
		if diff := summagolden.DiffSearch(a, b, summagolden.Dense(reqs[0].(*summapb.SearchRequest))); diff != "" {
			t.Errorf("%s %s:%s", c.Name, line, diff)
		}
		return
	}
	forget(got)
	forget(want)
	if !proto.Equal(got, want) {
		t.Errorf("%s %s:\n got %s\nwant %s", c.Name, line, protojson.Format(got), protojson.Format(want))
	}
}

// forget takes out of a reply what varies from run to run, and what only weft has.
func forget(m proto.Message) {
	if r, ok := m.(*summapb.GetTextStatsResponse); ok {
		for _, f := range r.Stats.GetFields() {
			f.TotalTokens, f.DocsWithField, f.ChunkLengths, f.ChunkCounts = 0, 0, nil, nil
		}
	}
	if r, ok := m.(*summapb.GetIndexInfoResponse); ok {
		r.MemoryStats = nil
	}
	if r, ok := m.(*summapb.AlterVectorIndexResponse); ok {
		r.PublicationGeneration = 0
	}
}
