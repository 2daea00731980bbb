package framed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/wire/frame"
)

// A body is read from the frame as the decoder would, however little is read at once.
func TestUnquoter(t *testing.T) {
	piece := rapid.OneOf(rapid.StringMatching(`[a-z{}\n\t]{0,9}`), rapid.SampledFrom([]string{"é", "𝄞", "\\", "\"", "\x00", "\u2028", "日本"}))
	escapes := rapid.SampledFrom([]string{`\n`, `\/`, `\b\f\r\t`, `\u00e9`, `\ud834\udd1e`, `\u0000`, `\\u0041`, `\"`})
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte{'"'}
		for range rapid.IntRange(0, 8).Draw(t, "pieces") {
			if rapid.Bool().Draw(t, "escaped") {
				raw = append(raw, escapes.Draw(t, "escape")...)
			} else {
				quoted := api.AppendString(nil, piece.Draw(t, "piece"))
				raw = append(raw, quoted[1:len(quoted)-1]...)
			}
		}
		raw = append(raw, '"')
		want, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, reader := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader} {
			got, err := io.ReadAll(reader(&unquoter{raw: raw[1 : len(raw)-1]}))
			if err != nil || string(got) != string(want) {
				t.Fatalf("%s: %q, %v, want %q", raw, got, err, want)
			}
		}
	})
}

func TestRefuse(t *testing.T) {
	given := api.NewProblem(api.TooManySearches, "busy")
	for _, c := range []struct {
		refusal frame.Refusal
		want    string
	}{
		{frame.Refusal{Reason: frame.TooManyConnections, Limit: 8}, `{"ok":false,"code":"not_ready","error":"there are 8 connections, which is as many as may be","status":503,"limit":8,"retry_after_ms":100}`},
		{frame.Refusal{Reason: frame.FrameTooLong, Limit: 8, Length: 9}, `{"ok":false,"code":"body_too_large","error":"the frame has 9 bytes, at most 8 are allowed","status":413,"limit":8}`},
		{frame.Refusal{Reason: frame.NoMemory, Length: 9, Err: errors.New("full")}, `{"ok":false,"code":"request_memory_full","error":"no memory is left for a frame of 9 bytes","status":429,"retry_after_ms":100}`},
		{frame.Refusal{Reason: frame.NoMemory, Length: 9, Err: given}, `{"ok":false,"code":"too_many_searches","error":"busy","status":429}`},
		{frame.Refusal{Reason: frame.ReplyTooLong, Limit: 8, Length: 9}, `{"ok":false,"code":"reply_too_large","error":"the reply has 9 bytes, at most 8 are allowed; ask for less at once","status":400,"limit":8}`},
		{frame.Refusal{Reason: frame.Panicked}, `{"ok":false,"code":"internal","error":"an internal error occurred","status":500}`},
	} {
		if got := string(Refuse(nil, c.refusal)); got != c.want {
			t.Errorf("%+v\n got %s\nwant %s", c.refusal, got, c.want)
		}
	}
}

// What a leaf fails with is told with the code that fits.
func TestErrorsOfALeaf(t *testing.T) {
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want string
	}{
		{"a problem", t.Context(), fmt.Errorf("wrapped: %w", api.NewProblem(api.DiskFull, "full")), `{"ok":false,"code":"disk_full"`},
		{"anything", t.Context(), errors.New("/etc/passwd"), `{"ok":false,"code":"internal","error":"an internal error occurred"`},
		{"a leaf that is closed", t.Context(), leaf.ErrClosed, `{"ok":false,"code":"shutting_down"`},
		{"a node behind the leaf", t.Context(), &leaf.TransportError{Address: "secret:1", Cause: io.EOF}, `{"ok":false,"code":"index_unavailable","error":"the node that holds the index did not answer"`},
		{"out of time", t.Context(), context.DeadlineExceeded, `{"ok":false,"code":"timeout"`},
		{"the peer has gone", ended(frame.ErrPeerGone), frame.ErrPeerGone, `{"ok":false,"code":"caller_gone"`},
		{"the server is cut off", ended(frame.ErrServerClosed), context.Canceled, `{"ok":false,"code":"shutting_down"`},
	} {
		l := goldenLeaf()
		l.docs = func(context.Context, *leaf.DocsRequest) (*leaf.DocsReply, error) { return nil, c.err }
		r := NewHandler(l, HandlerOptions{}).Handle(c.ctx, []byte(`{"op":"docs"}`), nil)
		b := r.Body
		if !strings.HasPrefix(string(b), c.want) || r.Close || strings.Contains(string(b), "secret") || strings.Contains(string(b), "passwd") {
			t.Errorf("%s: %s", c.name, b)
		}
	}
}

// A write that may be in in part is never told as one that is not.
func TestAWriteThatMayBeIn(t *testing.T) {
	l := goldenLeaf()
	l.bulk = func(context.Context, *leaf.BulkRequest, io.Reader) (*leaf.BulkReply, error) {
		return nil, &leaf.TransportError{Call: "Bulk", MaybeApplied: true, Cause: context.DeadlineExceeded}
	}
	c := dial(t, &frame.Client{Addr: serveLeaf(t, l, frame.Limits{})})
	var e *leaf.TransportError
	if _, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader("{}\n")); !errors.As(err, &e) || !e.MaybeApplied || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestMemoryOfReplies(t *testing.T) {
	var held, most, asked int
	full := false
	h := NewHandler(manyLeaf(100_000, 100_000), HandlerOptions{Admit: func(_ context.Context, bytes int) (func(), error) {
		if full {
			return nil, api.NewProblem(api.RequestMemoryFull, "full")
		}
		asked++
		held += bytes
		most = max(most, held)
		return func() { held -= bytes }, nil
	}})
	ask := func(request string) string {
		held, most, asked = 0, 0, 0
		b := h.Handle(t.Context(), []byte(request), nil).Body
		if held != 0 {
			t.Errorf("%s: %d bytes are held", request, held)
		}
		if len(b) > freeRoom && (most+freeRoom < len(b) || most > 4*len(b) || asked > 8) {
			t.Errorf("%s: %d bytes in %d pieces for a reply of %d", request, most, asked, len(b))
		}
		return string(b[:min(len(b), 60)])
	}
	var some []string
	for i := range 30 {
		some = append(some, fmt.Sprintf(`"doc/%06d"`, i))
	}
	large := []string{`{"op":"ids"}`, `{"op":"export","ids":[` + strings.Join(some, ",") + `]}`}
	for _, request := range large {
		if got := ask(request); !strings.HasPrefix(got, `{"ok":true`) || asked == 0 {
			t.Errorf("%s: %s", request, got)
		}
	}
	if got := ask(`{"op":"ids","limit":10}`); !strings.HasPrefix(got, `{"ok":true`) || asked != 0 {
		t.Errorf("a small one: %s, asked %d times", got, asked)
	}
	full = true
	for _, request := range large {
		if got := ask(request); !strings.HasPrefix(got, `{"ok":false,"code":"request_memory_full"`) {
			t.Errorf("%s: %s", request, got)
		}
	}
}

// largeLeaf answers with much.
func largeLeaf() *fakeMember {
	const n = 12_000
	id := func(i int) string { return fmt.Sprintf("%0100d", i) }
	m := &fakeMember{fake: largeNode()}
	m.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
		return &leaf.FetchReply{Docs: []leaf.Shown{{Source: fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", 2<<20))}}}, nil
	}
	m.indexes = func() (*leaf.IndexesReply, error) {
		return &leaf.IndexesReply{Indexes: []api.IndexInfo{{Schema: strings.Repeat("s", 2<<20)}}}, nil
	}
	m.sums = func(r *leaf.SumsRequest) (*leaf.SumsReply, error) {
		out := &leaf.SumsReply{Sums: make([]leaf.Sum, n)}
		for i := range n {
			out.IDs = append(out.IDs, id(i))
		}
		return out, nil
	}
	m.digest = func(r *leaf.DigestRequest) (*leaf.DigestReply, error) {
		out := &leaf.DigestReply{Docs: make([]uint32, 1<<16), Sums: make([]leaf.Sum, 1<<16)}
		for i := range out.Sums {
			out.Sums[i] = sumOf(1)
		}
		return out, nil
	}
	return m
}

func largeNode() *fake {
	const n = 12_000
	id := func(i int) string { return fmt.Sprintf("%0100d", i) }
	l := manyLeaf(100_000, 100)
	l.search = func(_ context.Context, q *leaf.SearchRequest) (*leaf.SearchReply, error) {
		r := &leaf.SearchReply{Meta: goldenMeta, Hits: make([]leaf.Hit, n)}
		for i := range r.Hits {
			r.Hits[i] = leaf.Hit{ID: id(i), Score: 1}
		}
		if q.Show != nil {
			r.Hits, r.Shown = r.Hits[:1], []leaf.Shown{{Source: fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", 2<<20))}}
		}
		return r, nil
	}
	l.knn = func(context.Context, *leaf.KNNRequest) (*leaf.KNNReply, error) {
		r := &leaf.KNNReply{Meta: goldenMeta, Hits: make([]leaf.Neighbour, n)}
		for i := range r.Hits {
			r.Hits[i] = leaf.Neighbour{ID: id(i), Similarity: 1}
		}
		return r, nil
	}
	l.stats = func(context.Context, *leaf.StatsRequest) (*leaf.StatsReply, error) {
		r := &leaf.StatsReply{Meta: goldenMeta, Stats: score.Stats{DF: map[score.Term]uint64{}}}
		for i := range n {
			r.Stats.DF[score.Term{Field: "f", Text: id(i)}] = 1
		}
		return r, nil
	}
	l.agg = func(context.Context, *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
		v := leaf.FieldValues{Field: "f", Type: schema.Text}
		for i := range n {
			v.Texts = append(v.Texts, id(i))
		}
		return &leaf.AggregateReply{Meta: goldenMeta, Values: []leaf.FieldValues{v}}, nil
	}
	l.has = func(context.Context, *leaf.HasRequest) (*leaf.HasReply, error) {
		r := &leaf.HasReply{Meta: goldenMeta}
		for i := range n {
			r.Missing = append(r.Missing, id(i))
		}
		return r, nil
	}
	l.bulk = func(context.Context, *leaf.BulkRequest, io.Reader) (*leaf.BulkReply, error) {
		r := &leaf.BulkReply{Meta: goldenMeta, BulkReply: api.BulkReply{Indexed: 1, Failed: n}}
		for i := range n {
			r.Errors = append(r.Errors, api.DocFailure{Line: i + 1, ID: id(i), Code: "type_conflict"})
		}
		return r, nil
	}
	l.index = func(context.Context, *leaf.IndexRequest) (*leaf.IndexReply, error) {
		r := &leaf.IndexReply{Meta: goldenMeta, WriteReply: api.WriteReply{OK: true, ID: "x", Members: api.Members{OK: 1, Total: 1}}}
		for i := range n {
			r.Inferred = append(r.Inferred, api.InferredField{Name: id(i), Type: "i64"})
		}
		return r, nil
	}
	return l
}

var largeReads = []string{
	`{"op":"search","limit":10000}`, `{"op":"knn","field":"v","vector":[1]}`, `{"op":"stats","terms":[]}`, `{"op":"agg","values":["f"]}`,
	`{"op":"has","ids":["x"]}`, `{"op":"ids"}`, `{"op":"search","show":{"source":true}}`, `{"op":"fetch","ids":["x"],"show":{"source":true}}`,
	`{"op":"indexes"}`, `{"op":"digest","depth":16}`,
}

// Every long reply is charged from when it is made until it was sent; what it was made of only until it is made.
func TestEveryLongReplyIsCharged(t *testing.T) {
	var making, mostMaking, sending int
	charge := func(held, most *int) func(context.Context, int) (func(), error) {
		return func(_ context.Context, bytes int) (func(), error) {
			*held += bytes
			*most = max(*most, *held)
			return func() { *held -= bytes }, nil
		}
	}
	var mostSending int
	h := NewHandler(largeLeaf(), HandlerOptions{Admit: charge(&making, &mostMaking), Send: charge(&sending, &mostSending)})
	for _, request := range append(largeReads, `{"op":"bulk","body":"{}\n"}`, `{"op":"index","body":"{}"}`) {
		mostMaking = 0
		r := h.Handle(t.Context(), []byte(request), nil)
		if !strings.HasPrefix(string(r.Body), `{"ok":`) || strings.Contains(string(r.Body), `"error":`) || len(r.Body) < 1<<20 {
			t.Errorf("%s: %.100s", request, r.Body)
		}
		write := strings.Contains(request, `"body"`)
		if making != 0 || !write && mostMaking+freeRoom < len(r.Body) || mostMaking > 8*len(r.Body) {
			t.Errorf("%s: %d bytes at most were charged for the making of %d, %d still are", request, mostMaking, len(r.Body), making)
		}
		if sending != cap(r.Body) || r.Release == nil {
			t.Fatalf("%s: %d bytes are charged for a reply of %d", request, sending, len(r.Body))
		}
		if r.Release(); sending != 0 {
			t.Errorf("%s: %d bytes are charged after the end", request, sending)
		}
	}
	if r := h.Handle(t.Context(), []byte(`{"op":"ping"}`), nil); r.Release != nil {
		t.Error("a small reply is charged")
	}
}

// A read whose reply finds no room is refused, when it is made or when it is to be sent. A write is done: its reply is short then, also
// where a frame could not hold it.
func TestRepliesWithoutRoom(t *testing.T) {
	full := func(context.Context, int) (func(), error) { return nil, api.NewProblem(api.RequestMemoryFull, "full") }
	for name, o := range map[string]HandlerOptions{"made": {Admit: full}, "sent": {Send: full}, "too long": {MaxReply: 100 << 10}} {
		h := NewHandler(largeLeaf(), o)
		want := `{"ok":false,"code":"request_memory_full"`
		if name == "too long" {
			want = `{"ok":false,"code":"reply_too_large"`
		}
		for _, request := range largeReads {
			if r := h.Handle(t.Context(), []byte(request), nil); !strings.HasPrefix(string(r.Body), want) || r.Release != nil {
				t.Errorf("%s, %s: %.100s", name, request, r.Body)
			}
		}
		b := h.Handle(t.Context(), []byte(`{"op":"bulk","body":"{}\n"}`), nil).Body
		bulk, prob, err := readBulkReply(b, maxBulkErrors)
		if prob != nil || err != nil || bulk.Indexed != 1 || bulk.Failed != 12_000 || uint64(len(bulk.Errors))+bulk.ErrorsOmitted != 12_000 {
			t.Errorf("%s: a load: %.100s, %v, %v", name, b, prob, err)
		}
		if name != "made" && len(b) > smallReply {
			t.Errorf("%s: the reply to a load has %d bytes", name, len(b))
		}
		b = h.Handle(t.Context(), []byte(`{"op":"index","body":"{}"}`), nil).Body
		if one, prob, err := readIndexReply(b); prob != nil || err != nil || !one.OK || one.ID != "x" || name != "made" && len(b) > smallReply {
			t.Errorf("%s: a document: %.100s, %v, %v", name, b, prob, err)
		}
	}
}
