package ranktest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/service"
)

const hostileSDL = `index h {
	field id: text<raw> [primary, stored]
	field body: text<simple> [indexed<token_position>, stored]
	field chunk: text<simple> [indexed<chunked>, stored<multi>]
	field v: dense_vector<2> [indexed<flat>, stored]
}`

// besieged are three nodes behind liars, a broker before them, the indexes h, which is read, and w, which is written, over all of them, and one
// on a single shard.
type besieged struct {
	t      testing.TB
	liars  [3]*liar
	broker *broker
	docs   []*summapb.NamedDocument
	calls  map[string]call
	truth  map[string]string // what is answered as long as nobody lies
}

// call is something that a client asks.
type call func(ctx context.Context, s *server) (proto.Message, error)

// besiege starts it with one place for searches at each node and in all, so that one that is not given back is missed at once.
func besiege(t testing.TB, change func(*service.Config), rules ...string) *besieged {
	t.Helper()
	b := &besieged{t: t, truth: map[string]string{}}
	var addrs []string
	for i := range b.liars {
		b.liars[i] = lying(t, startNode(t))
		addrs = append(addrs, b.liars[i].addr)
	}
	cfg := settings(t, addrs, append(rules, "h=s0,s1,s2", "w=s0,s1,s2", "one=s1")...)
	cfg.BackendSearches, cfg.Searches = 1, 1
	if change != nil {
		change(&cfg)
	}
	b.broker = startBroker(t, cfg)
	for _, index := range []string{"h", "w", "one"} {
		if _, err := b.broker.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: index, Schema: hostileSDL}); err != nil {
			t.Fatal(err)
		}
	}
	words := strings.Fields("loom weft warp thread shuttle loom reed")
	for i := range 24 {
		text := func(n int) string { return strings.Join(words[i%4:i%4+n], " ") }
		b.docs = append(b.docs, &summapb.NamedDocument{Fields: []*summapb.FieldEntry{
			entry("id", fmt.Sprint("d", i)), entry("body", text(1+i%3)), entry("chunk", text(1)), entry("chunk", text(2+i%2)),
			{Name: "v", Value: &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: []float32{float32(i%7) / 8, float32(i%5) / 8}}}}},
		}})
	}
	b.calls = hostileCalls(b.docs)
	for _, index := range []string{"h", "w", "one"} {
		r, err := b.broker.index.BatchIndexDocuments(t.Context(), &summapb.BatchIndexDocumentsRequest{IndexName: index, Documents: b.docs})
		if err != nil || int(r.IndexedCount) != len(b.docs) {
			t.Fatal(r, err)
		}
		if _, err := b.broker.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: index}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range b.calls {
		got, err := b.ask(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b.truth[name] = got
	}
	return b
}

func entry(name, text string) *summapb.FieldEntry {
	return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: text}}}
}

func matching(field, text string) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: field, Text: text}}}
}

func near(x, y float32) *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_DenseVector{DenseVector: &summapb.DenseVectorQuery{Field: "v", Vector: []float32{x, y}, Combiner: summapb.MultiValueCombiner_COMBINER_MAX}}}
}

// branches are a fusion's of documents and of passages.
func branches(method summapb.FusionMethod, scoped bool) *summapb.Query {
	f := &summapb.FusionQuery{Method: method, Queries: []*summapb.WeightedQuery{
		{Query: matching("chunk", "loom weft"), Name: "chunks"},
		{Query: near(1, 2), Name: "v"},
	}}
	if scoped {
		f.Queries[0].Scope, f.Queries[1].Scope = summapb.ScoreScope_SCORE_SCOPE_CHUNK, summapb.ScoreScope_SCORE_SCOPE_DOCUMENT
	}
	return &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}}
}

// hostileCalls are one of each kind. The same call is answered the same each time.
func hostileCalls(docs []*summapb.NamedDocument) map[string]call {
	search := func(index string, req *summapb.SearchRequest) call {
		req.IndexName = index
		if req.Limit == 0 {
			req.Limit = 10
		}
		req.FieldsToLoad = []string{"id"}
		return func(ctx context.Context, s *server) (proto.Message, error) {
			r, err := s.search.Search(ctx, req)
			if r != nil {
				r.TookMs, r.Timings = 0, nil
			}
			return r, err
		}
	}
	every := &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}
	candidates := func() *summapb.SearchRequest {
		return &summapb.SearchRequest{Query: branches(summapb.FusionMethod_FUSION_CANDIDATES, false), Limit: 100}
	}
	export := func() *summapb.SearchRequest {
		return &summapb.SearchRequest{Query: branches(0, true), Limit: 100, ScoreExport: &summapb.ScoreExport{}}
	}
	formula := func(f string) *summapb.SearchRequest {
		return &summapb.SearchRequest{Query: branches(0, true), Limit: 5, L1: &summapb.L1Ranking{Formula: f}}
	}
	exported := formula("2*chunks + v")
	exported.ScoreExport = &summapb.ScoreExport{PassagesPerDocument: 1}
	seeded := formula("v")
	seeded.ScoreExport = &summapb.ScoreExport{SeedDocumentPassages: true}
	sums := formula("chunks + v")
	sums.Query.GetFusion().Combiner = summapb.MultiValueCombiner_COMBINER_SUM
	votes := formula("chunks + v")
	votes.IncludeRrfScores = true
	return map[string]call{
		"all":        search("h", &summapb.SearchRequest{Query: every, Offset: 2}),
		"text":       search("h", &summapb.SearchRequest{Query: matching("body", "loom weft")}),
		"passages":   search("h", &summapb.SearchRequest{Query: matching("chunk", "loom weft")}),
		"candidates": search("h", candidates()), "candidates of one": search("one", candidates()),
		"export": search("h", export()), "export of one": search("one", export()),
		"rrf":          search("h", &summapb.SearchRequest{Query: branches(summapb.FusionMethod_FUSION_RRF, false)}),
		"sum":          search("h", &summapb.SearchRequest{Query: branches(summapb.FusionMethod_FUSION_NORMALIZED_WEIGHTED_SUM, false)}),
		"formula":      search("h", formula("chunks * 2 + v")),
		"ranks":        search("h", formula("rrf + v")),
		"exported":     search("h", exported),
		"votes":        search("h", votes),
		"seeded":       search("h", seeded),
		"sums":         search("h", sums),
		"rrf of one":   search("one", &summapb.SearchRequest{Query: branches(summapb.FusionMethod_FUSION_RRF, false)}),
		"ranks of one": search("one", formula("rrf + v")),
		"trace":        search("h", &summapb.SearchRequest{Query: branches(summapb.FusionMethod_FUSION_RRF, false), Tracing: true}),
		"traced":       search("h", &summapb.SearchRequest{Query: every, Tracing: true}),
		"statistics": func(ctx context.Context, s *server) (proto.Message, error) {
			return s.search.GetTextStats(ctx, &summapb.GetTextStatsRequest{IndexName: "h", Query: matching("body", "loom weft")})
		},
		"info": func(ctx context.Context, s *server) (proto.Message, error) {
			r, err := s.search.GetIndexInfo(ctx, &summapb.GetIndexInfoRequest{IndexName: "h"})
			if r != nil {
				r = &summapb.GetIndexInfoResponse{NumDocs: r.NumDocs, Schema: r.Schema, UnpreparedCandidateFields: r.UnpreparedCandidateFields}
			}
			return r, err
		},
		"batch": func(ctx context.Context, s *server) (proto.Message, error) { // of documents that are there
			return s.index.BatchIndexDocuments(ctx, &summapb.BatchIndexDocumentsRequest{IndexName: "w", Documents: docs})
		},
		"stream": func(ctx context.Context, s *server) (proto.Message, error) {
			st, err := s.index.IndexDocuments(ctx)
			if err != nil {
				return nil, err
			}
			for _, d := range docs {
				if st.Send(&summapb.IndexDocumentRequest{IndexName: "w", Fields: d.Fields}) != nil {
					break // the status is what is received
				}
			}
			return st.CloseAndRecv()
		},
		"upsert": func(ctx context.Context, s *server) (proto.Message, error) {
			bad := &summapb.NamedDocument{Fields: []*summapb.FieldEntry{entry("id", "d0"), entry("nowhere", "")}}
			return s.index.UpsertDocuments(ctx, &summapb.UpsertDocumentsRequest{IndexName: "w", Documents: append([]*summapb.NamedDocument{bad, docs[1]}, docs...)})
		},
		"delete": func(ctx context.Context, s *server) (proto.Message, error) {
			var keys []string
			for i := range 30 {
				keys = append(keys, fmt.Sprint("absent", i))
			}
			return s.index.DeleteDocuments(ctx, &summapb.DeleteDocumentsRequest{IndexName: "w", PrimaryKeys: keys})
		},
		"commit": func(ctx context.Context, s *server) (proto.Message, error) {
			return s.index.Commit(ctx, &summapb.CommitRequest{IndexName: "w"})
		},
	}
}

// ask makes a call and prints what is answered.
func (b *besieged) ask(name string) (string, error) {
	m, err := b.calls[name](b.t.Context(), b.broker.server)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", wireOf(b.t, m)), nil
}

// siege is a lie and what has to come of it.
type siege struct {
	name string
	call string
	lies [3]lie // of the nodes
	code codes.Code
	text string // of the status
	// same says that what is answered is what is answered without the lie.
	same bool
	// then looks at what is answered, where that is another thing.
	then func(t testing.TB, m proto.Message)
}

// onlyS1 has the second node lie.
func onlyS1(l lie) [3]lie { return [3]lie{nil, l, nil} }

// everybody has all of them lie.
func everybody(l lie) [3]lie { return [3]lie{l, l, l} }

// coordinated are the calls that the broker ranks.
var coordinated = map[string]bool{"rrf": true, "sum": true, "formula": true, "ranks": true, "exported": true, "votes": true, "trace": true, "traced": true, "seeded": true, "sums": true}

const undecodable = "failed to decode Protobuf message"

// atS1 is what the refusal of the second node is told with.
func atS1(call string) string {
	switch call {
	case "batch", "stream", "upsert", "delete", "commit":
		return "index 'w' partition on shard 's1': "
	}
	return "index 'h' partition on shard 's1': "
}

// endure goes through sieges. Each is done twice: what is wrong must not be remembered; and each is followed by the truth.
func (b *besieged) endure(t *testing.T, sieges []siege) {
	for _, s := range sieges {
		t.Run(s.call+"/"+s.name, func(t *testing.T) {
			for range 2 {
				for i, l := range s.lies {
					b.liars[i].tell(l)
				}
				m, err := b.calls[s.call](t.Context(), b.broker.server)
				for _, l := range b.liars {
					l.tell(nil)
				}
				st := status.Convert(err)
				if st.Code() != s.code || st.Message() != s.text {
					t.Errorf("\n got %s %q\nwant %s %q", st.Code(), clip(st.Message()), s.code, s.text)
				}
				if s.same && err == nil {
					if got := fmt.Sprintf("%x", wireOf(t, m)); got != b.truth[s.call] {
						t.Errorf("%v is not what is answered without the lie", m)
					}
				}
				if s.then != nil && err == nil {
					s.then(t, m)
				}
				if got, err := b.ask(s.call); err != nil || got != b.truth[s.call] {
					t.Fatalf("the truth afterwards: %v, %s\nwant %s", err, clip(got), clip(b.truth[s.call]))
				}
			}
		})
	}
}

func clip(s string) string {
	if len(s) > 400 {
		return s[:400] + fmt.Sprintf("… (%d bytes)", len(s))
	}
	return s
}

// unread are lies about the transport: what comes is no message, whatever it is asked.
func unread(limit int) map[string]struct {
	said func(truth []byte) *said
	code codes.Code
	text string
} {
	type one = struct {
		said func(truth []byte) *said
		code codes.Code
		text string
	}
	tooLong := func(n uint32) string {
		return fmt.Sprintf("Error, decoded message length too large: found %d bytes, the limit is: %d bytes", n, limit)
	}
	tooMuch := fmt.Sprintf("Error decompressing: size limit, of `%d` bytes, exceeded while decompressing compressed message", limit)
	return map[string]one{
		"cut within the message": {func(b []byte) *said { return &said{body: append(b, 0x0a, 0x7f)} }, codes.Internal, undecodable},
		"garbage":                {func([]byte) *said { return &said{body: bytes.Repeat([]byte{0xff}, 100)} }, codes.Internal, undecodable},
		"a field without end": {func([]byte) *said {
			return &said{body: protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), math.MaxUint64)}
		}, codes.Internal, undecodable},
		"a group without end":  {func([]byte) *said { return &said{body: bytes.Repeat([]byte{0x0b}, 1000)} }, codes.Internal, undecodable},
		"no message":           {func([]byte) *said { return &said{nothing: true} }, codes.Internal, "Missing response message."},
		"a message cut short":  {func(b []byte) *said { return &said{wire: framed(append(b, 0), false)[:len(b)+5]} }, codes.Internal, "Missing response message."},
		"two messages":         {func(b []byte) *said { return &said{wire: append(framed(b, false), framed(b, false)...)} }, codes.Internal, "the node answered with more than one message"},
		"an absurd length":     {func([]byte) *said { return &said{wire: []byte{0, 0xff, 0xff, 0xff, 0xff}} }, codes.ResourceExhausted, tooLong(math.MaxUint32)},
		"one byte too long":    {func([]byte) *said { return &said{wire: binary.BigEndian.AppendUint32([]byte{0}, uint32(limit+1))} }, codes.ResourceExhausted, tooLong(uint32(limit) + 1)},
		"another flag":         {func(b []byte) *said { return &said{wire: append([]byte{2}, framed(b, false)[1:]...)} }, codes.Internal, "protocol error: received message with invalid compression flag: 2 (valid flags are 0 and 1)"},
		"compressed by nobody": {func(b []byte) *said { return &said{wire: framed(b, true)} }, codes.Internal, "protocol error: received message with compressed-flag but no grpc-encoding was specified"},
		"compressed by another": {
			func(b []byte) *said { return &said{body: b, encoding: "snappy"} }, codes.Unimplemented,
			"Content is compressed with `snappy` which isn't supported",
		},
		"no gzip":          {func(b []byte) *said { return &said{body: b, encoding: "gzip"} }, codes.Internal, "Error decompressing: the message is damaged"},
		"no zstd":          {func(b []byte) *said { return &said{body: b, encoding: "zstd"} }, codes.Internal, "Error decompressing: the message is damaged"},
		"cut gzip":         {func([]byte) *said { z := gzipped(1 << 10); return &said{body: z[:len(z)-6], encoding: "gzip"} }, codes.Internal, "Error decompressing: the message is damaged"},
		"cut zstd":         {func([]byte) *said { z := zstded(1 << 10); return &said{body: z[:len(z)-3], encoding: "zstd"} }, codes.Internal, "Error decompressing: the message is damaged"},
		"a window of 2 GB": {func([]byte) *said { return &said{body: wideZstd, encoding: "zstd"} }, codes.Internal, "Error decompressing: the message is damaged"},
		"a gzip bomb":      {func([]byte) *said { return &said{body: bomb("gzip"), encoding: "gzip"} }, codes.ResourceExhausted, tooMuch},
		"a zstd bomb":      {func([]byte) *said { return &said{body: bomb("zstd"), encoding: "zstd"} }, codes.ResourceExhausted, tooMuch},
		"no status":        {func(b []byte) *said { return &said{body: b, open: true} }, codes.Internal, "the node ended the call without a status"},
		"a page":           {func([]byte) *said { return &said{wire: []byte("<html>"), kind: "text/html", open: true} }, codes.Unknown, "the node's answer is not one of gRPC"},
		"not found":        {func([]byte) *said { return &said{nothing: true, http: 404, open: true} }, codes.Unimplemented, "the node answered with an HTTP status that is not 200"},
		"too many":         {func([]byte) *said { return &said{nothing: true, http: 429, open: true} }, codes.Unavailable, "the node answered with an HTTP status that is not 200"},
		"a code that nobody knows": {
			func([]byte) *said { return refusal(77, "what") }, 77, "what",
		},
		"a refusal with a message": {func(b []byte) *said { return &said{body: b, code: int(codes.DataLoss), text: "lost"} }, codes.DataLoss, "lost"},
		"an endless text": {
			func([]byte) *said { return refusal(codes.Internal, strings.Repeat("x", 1<<20)) }, codes.Unavailable, "the node does not speak gRPC",
		},
	}
}

// TestRepliesThatAreNoneAreRefused has a node of three answer what cannot be read to each call that goes to all of them. The refusal says
// which shard it was, and the next call is answered.
func TestRepliesThatAreNoneAreRefused(t *testing.T) {
	const most = 64 << 20                                              // of a reply
	bombed := map[string]bool{"all": true, "batch": true, "rrf": true} // one of each bound: it takes a second until one is
	b := besiege(t, func(cfg *service.Config) { cfg.Limits.BackendDecode = most })
	var sieges []siege
	for _, of := range []struct{ call, rpc string }{
		{"all", "Search"},
		{"text", "GetTextStats"},
		{"statistics", "GetTextStats"},
		{"info", "GetIndexInfo"},
		{"batch", "BatchIndexDocuments"},
		{"stream", "BatchIndexDocuments"},
		{"upsert", "UpsertDocuments"},
		{"delete", "DeleteDocuments"},
		{"commit", "Commit"},
		{"rrf", "Search"},
		{"formula", "Search"},
		{"ranks", "Search"},
		{"trace", "Search"},
	} {
		limit := most
		if coordinated[of.call] {
			limit = most / 3 // of all nodes together
		}
		for name, l := range unread(limit) {
			if strings.HasSuffix(name, "bomb") && !bombed[of.call] {
				continue
			}
			sieges = append(sieges, siege{name: name, call: of.call, lies: onlyS1(bytesOf(of.rpc, l.said)), code: l.code, text: atS1(of.call) + l.text})
		}
	}
	before := stand()
	b.endure(t, sieges)
	before.settle(t, b)
}

// standing is what a process had at some time.
type standing struct{ goroutines int }

func stand() standing { return standing{runtime.NumGoroutine()} }

// settle waits until everything that calls hold is given back: goroutines, but for those of connections that were made meanwhile, and memory.
func (s standing) settle(t testing.TB, b *besieged) {
	t.Helper()
	const conns = 32
	soon(t, fmt.Sprintf("there are about %d goroutines again", s.goroutines), func() bool { return runtime.NumGoroutine() <= s.goroutines+conns })
	soon(t, "no call holds memory", func() bool { return b.broker.gauge(t, "weft_admitted_broker_bytes") == "0" })
}

func gzipped(n int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(make([]byte, n)); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func zstded(n int) []byte { return zstdOf(make([]byte, n)) }

func zstdOf(b []byte) []byte {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer z.Close()
	return z.EncodeAll(b, nil)
}

// bombs are a gibibyte of zeros, of parts that are compressed alike.
var bombs = map[string][]byte{
	"gzip": bytes.Repeat(gzipped(16<<20), 64),
	"zstd": bytes.Repeat(zstded(16<<20), 64),
}

func bomb(encoding string) []byte { return bombs[encoding] }

// wideZstd is a frame that wants a window of 2 GiB: magic, no flags, the window, and a raw block of one byte.
var wideZstd = []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x09, 0x00, 0x00, 'x'}
