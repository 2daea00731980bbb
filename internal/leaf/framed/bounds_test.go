package framed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/wire/frame"
	"github.com/weft-search/weft/internal/wire/jsonscan"
)

// repeat joins as many pieces as fit into size bytes with commas. %d in the piece is its number.
func repeat(size int, piece string) string {
	var b strings.Builder
	for i := 0; b.Len() < size-len(piece)-12; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		if at := strings.IndexByte(piece, '#'); at >= 0 {
			fmt.Fprintf(&b, "%s%x%s", piece[:at], i, piece[at+1:])
		} else {
			b.WriteString(piece)
		}
	}
	return b.String()
}

// hostile are requests of about size bytes that are made to take as much memory or time as they can.
var hostile = []struct {
	name string
	most int // bytes that may be taken from the heap for each of the request, those that are freed again included
	make func(size int) string
}{
	{"an unknown member of many names", 0, func(n int) string { return `{"op":"ping","x":{` + repeat(n, `"#":0`) + `}}` }},
	{"an unknown member before op", 0, func(n int) string { return `{"x":{` + repeat(n, `"#":0`) + `},"op":"ping"}` }},
	{"an unknown member with a long name", 0, func(n int) string { return `{"op":"ping","` + strings.Repeat(`a\n`, n/3) + `":1}` }},
	{"an unknown member nested deep", 0, func(n int) string {
		return `{"op":"ping","x":[` + repeat(n, strings.Repeat("[", 999)+strings.Repeat("]", 999)) + `]}`
	}},
	{"escapes in an unknown member", 0, func(n int) string { return `{"op":"ping","x":[` + repeat(n, `"\u00e9#"`) + `]}` }},
	{"an operation with a long name", 3, func(n int) string { return `{"op":"` + strings.Repeat(`a`, n) + `"}` }},
	{"an index with a long name", 3, func(n int) string { return `{"op":"docs","index":"` + strings.Repeat(`a`, n) + `"}` }},
	{"a timeout of many digits", 0, func(n int) string { return `{"op":"docs","timeout_ms":1.` + strings.Repeat(`1`, n) + `}` }},
	{"an array in place of an object", 0, func(n int) string { return `[{` + repeat(n, `"#":0`) + `}]` }},
	{"stats.terms", 10, func(n int) string {
		return `{"op":"search","stats":{"docs":1,"fields":{},"terms":[` + repeat(n, `{"term":"#","field":"t","df":1}`) + `]}}`
	}},
	{"stats.terms with escapes", 8, func(n int) string {
		return `{"op":"search","stats":{"docs":1,"fields":{},"terms":[` + repeat(n, `{"t\u0065rm":"\n#","fi\u0065ld":"\n","df":1}`) + `]}}`
	}},
	{"stats.fields", 8, func(n int) string {
		return `{"op":"search","stats":{"docs":1,"terms":[],"fields":{` + repeat(n, `"\n#":{"sum":1,"count":1}`) + `}}}`
	}},
	{"stats.timings", 0, func(n int) string {
		return `{"op":"search","stats":{"docs":1,"terms":[],"fields":{},"timings":{` + repeat(n, `"#":0`) + `}}}`
	}},
	{"stats with an unknown member", 0, func(n int) string {
		return `{"op":"search","stats":{"docs":1,"terms":[],"fields":{},"x":{` + repeat(n, `"#":0`) + `}}}`
	}},
	{"terms", 16, func(n int) string { return `{"op":"stats","terms":[` + repeat(n, `["#",""]`) + `]}` }},
	{"query", 3, func(n int) string { return `{"op":"search","query":"` + strings.Repeat("a ", n/2) + `"}` }},
	{"query in parentheses", 3, func(n int) string { return `{"op":"search","query":"` + strings.Repeat("(", n) + `"}` }},
	{"query of values", 3, func(n int) string {
		return `{"op":"search","query":"k:IN [` + strings.Repeat("a ", n/2) + `]"}`
	}},
	{"filters", 0, func(n int) string { return `{"op":"search","filters":[` + repeat(n, `{}`) + `]}` }},
	{"filters that are strings", 16, func(n int) string {
		return `{"op":"search","filters":[` + repeat(n, `"`+strings.Repeat("a ", n/128)+`"`) + `]}`
	}},
	{"a filter of many names", 0, func(n int) string { return `{"op":"search","filters":[{"bool":{` + repeat(n, `"#":0`) + `}}]}` }},
	{"a filter of many values", 40, func(n int) string {
		return `{"op":"search","filters":[{"terms":{"field":"k","values":[` + repeat(n, `""`) + `]}}]}`
	}},
	{"filters of many values", 40, func(n int) string {
		one := `{"terms":{"field":"k","values":[` + repeat(n/64, `""`) + `]}}`
		return `{"op":"search","filters":[` + repeat(n, one) + `]}`
	}},
	{"a filter of one long value", 8, func(n int) string {
		return `{"op":"search","filters":[{"term":{"field":"k","value":"` + strings.Repeat("a", n) + `"}}]}`
	}},
	{"a filter of many clauses", 8, func(n int) string {
		return `{"op":"search","filters":[{"bool":{"must":[` + repeat(n, `{"query":"a"}`) + `]}}]}`
	}},
	{"a filter nested deep", 16, func(n int) string {
		inner := `{"terms":{"field":"k","values":["` + strings.Repeat("a", n) + `"]}}`
		for range 30 {
			inner = `{"bool":{"must":[` + inner + `]}}`
		}
		return `{"op":"search","filters":[` + inner + `]}`
	}},
	{"default_fields", 8, func(n int) string { return `{"op":"search","default_fields":[` + repeat(n, `""`) + `]}` }},
	{"long default_fields", 4, func(n int) string {
		return `{"op":"search","default_fields":[` + repeat(n, `"`+strings.Repeat(`\n`, n/8)+`"`) + `]}`
	}},
	{"sort", 8, func(n int) string { return `{"op":"search","sort":[` + repeat(n, `"i"`) + `]}` }},
	{"sort with one long name", 12, func(n int) string { return `{"op":"search","sort":"` + strings.Repeat("a", n) + `"}` }},
	{"sort with many names", 8, func(n int) string { return `{"op":"search","sort":{` + repeat(n, `"#":0`) + `}}` }},
	{"order with many names", 8, func(n int) string { return `{"op":"search","order":{` + repeat(n, `"#":0`) + `}}` }},
	{"after", 0, func(n int) string { return `{"op":"search","sort":"a,b","after":["a",1,[` + repeat(n, `1`) + `]]}` }},
	{"typed after", 0, func(n int) string {
		return `{"op":"search","typed":true,"after":["a",1,[` + repeat(n, `"t:\n"`) + `]]}`
	}},
	{"track_total", 3, func(n int) string { return `{"op":"search","track_total":"` + strings.Repeat("a", n) + `"}` }},
	{"specs", 8, func(n int) string {
		return `{"op":"agg","specs":{` + repeat(n, `"#":{"kind":"terms","field":"k"}`) + `}}`
	}},
	{"specs in a string", 8, func(n int) string { return `{"op":"agg","specs":"` + repeat(n, `terms(k)`) + `"}` }},
	{"values", 0, func(n int) string { return `{"op":"agg","values":[` + repeat(n, `"#"`) + `]}` }},
	{"vector", 20, func(n int) string { return `{"op":"knn","field":"v","vector":[` + repeat(n, `1`) + `]}` }},
	{"indices", 8, func(n int) string {
		return `{"op":"knn","field":"v","indices":[` + repeat(n/2, `1`) + `],"values":[` + repeat(n/2, `1`) + `]}`
	}},
	{"bits", 12, func(n int) string { return `{"op":"knn","field":"v","bits":"` + strings.Repeat("A", n) + `"}` }},
	{"combiner", 8, func(n int) string {
		return `{"op":"knn","field":"v","vector":[1],"combiner":{` + repeat(n, `"#":0`) + `}}`
	}},
	{"ids", 8, func(n int) string { return `{"op":"has","ids":[` + repeat(n, `""`) + `]}` }},
	{"long ids", 4, func(n int) string {
		return `{"op":"export","ids":[` + repeat(n, `"`+strings.Repeat(`\n`, n/16)+`"`) + `]}`
	}},
	{"id", 3, func(n int) string { return `{"op":"delete","id":"` + strings.Repeat("a", n) + `"}` }},
	{"owned", 0, func(n int) string {
		return `{"op":"docs","owned":[` + repeat(n, `{"rule":"ring","shards":1,"shard":0}`) + `]}`
	}},
	{"owned with a long rule", 0, func(n int) string {
		return `{"op":"docs","owned":[{"rule":"` + strings.Repeat("r", n) + `","shards":1,"shard":0}]}`
	}},
	{"owned with an unknown member", 0, func(n int) string {
		return `{"op":"docs","owned":[{"rule":"ring","shards":1,"shard":0,"x":{` + repeat(n, `"#":0`) + `}}]}`
	}},
	{"epoch", 0, func(n int) string { return `{"op":"docs","epoch":1` + strings.Repeat("0", n) + `}` }},
	{"key", 0, func(n int) string { return `{"op":"bulk","body":"","key":"` + strings.Repeat("k", n) + `"}` }},
	{"show with many names", 0, func(n int) string { return `{"op":"search","show":{` + repeat(n, `"#":0`) + `}}` }},
	{"show.fields", 8, func(n int) string { return `{"op":"search","show":{"fields":[` + repeat(n, `""`) + `]}}` }},
	{"show.highlight", 0, func(n int) string {
		return `{"op":"search","show":{"highlight":{"fields":[` + repeat(n, `"#"`) + `]}}}`
	}},
	{"show.highlight with many names", 0, func(n int) string {
		return `{"op":"search","show":{"highlight":{` + repeat(n, `"#":0`) + `}}}`
	}},
	{"show.highlight with a long mark", 0, func(n int) string {
		return `{"op":"search","show":{"highlight":{"fields":["a"],"pre":"` + strings.Repeat("p", n) + `"}}}`
	}},
	{"ids to fetch", 8, func(n int) string { return `{"op":"fetch","show":{},"ids":[` + repeat(n, `""`) + `]}` }},
	{"vector to explain", 20, func(n int) string {
		return `{"op":"fetch","ids":[],"show":{},"knn":{"field":"v","vector":[` + repeat(n, `1`) + `]}}`
	}},
	{"schema", 3, func(n int) string { return `{"op":"put_index","schema":"` + strings.Repeat("s", n) + `"}` }},
	{"range", 0, func(n int) string { return `{"op":"sums","range":{"from":0,"to":1` + strings.Repeat("0", n) + `}}` }},
	{"expect", 0, func(n int) string {
		return `{"op":"sync","items":[{"id":"a","expect":"` + strings.Repeat("0", n) + `"}]}`
	}},
	{"items", 8, func(n int) string { return `{"op":"sync","items":[` + repeat(n, `{"id":"","expect":null}`) + `]}` }},
	{"a body to sync", 2, func(n int) string {
		return `{"op":"sync","items":[{"id":"a","expect":null,"body":"` + strings.Repeat(`\n`, n/2) + `"}]}`
	}},
	{"map", 4, func(n int) string { return `{"op":"place","epoch":1,"map":"` + strings.Repeat("A", n) + `"}` }},
	{"a body that is no string", 0, func(n int) string { return `{"op":"bulk","body":{` + repeat(n, `"#":0`) + `}}` }},
}

// hostileLeaf answers with as little as it can.
func hostileLeaf() leaf.Leaf {
	return &fakeMember{
		fake:     hostileNode(),
		fetch:    func(*leaf.FetchRequest) (*leaf.FetchReply, error) { return &leaf.FetchReply{}, nil },
		putIndex: func(*leaf.PutIndexRequest) (*leaf.PutIndexReply, error) { return &leaf.PutIndexReply{}, nil },
		sync:     func(*leaf.SyncRequest) (*leaf.SyncReply, error) { return &leaf.SyncReply{}, nil },
		place:    func(*leaf.PlaceRequest) (*leaf.PlaceReply, error) { return &leaf.PlaceReply{}, nil },
	}
}

func hostileNode() *fake {
	return &fake{
		ping: func(context.Context) (*leaf.PingReply, error) { return &leaf.PingReply{}, nil },
		docs: func(context.Context, *leaf.DocsRequest) (*leaf.DocsReply, error) { return &leaf.DocsReply{}, nil },
		info: func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
			return nil, api.NewProblem(api.IndexNotFound, "there is none")
		},
		search: func(context.Context, *leaf.SearchRequest) (*leaf.SearchReply, error) { return &leaf.SearchReply{}, nil },
		stats:  func(context.Context, *leaf.StatsRequest) (*leaf.StatsReply, error) { return &leaf.StatsReply{}, nil },
		agg: func(context.Context, *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
			return &leaf.AggregateReply{State: &agg.State{}}, nil
		},
		knn: func(context.Context, *leaf.KNNRequest) (*leaf.KNNReply, error) { return &leaf.KNNReply{}, nil },
		export: func(context.Context, *leaf.ExportRequest, func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
			return &leaf.ExportReply{}, nil
		},
		has:    func(context.Context, *leaf.HasRequest) (*leaf.HasReply, error) { return &leaf.HasReply{}, nil },
		delete: func(context.Context, *leaf.DeleteRequest) (*leaf.DeleteReply, error) { return &leaf.DeleteReply{}, nil },
	}
}

// Whatever is in a request, taking it apart takes no more memory than its operation has a use for: nothing for what it does not have.
func TestRequestsTakeLittleMemory(t *testing.T) {
	h := NewHandler(hostileLeaf(), HandlerOptions{})
	for _, c := range hostile {
		sizes := []int{128 << 10}
		if c.most == 0 {
			sizes = append(sizes, 1<<20)
		}
		for _, size := range sizes {
			request := []byte(c.make(size))
			var r frame.Reply
			used := allocated(func() { r = h.Handle(t.Context(), request, nil) })
			if most := int64(64<<10 + c.most*len(request)); used > most {
				t.Errorf("%s: %d bytes for a request of %d: %s", c.name, used, len(request), api.Clip(string(r.Body)))
			}
			if r.Close || !strings.HasPrefix(string(r.Body), `{"ok":`) {
				t.Errorf("%s: %s", c.name, api.Clip(string(r.Body)))
			}
		}
	}
}

// What a request has become stays within what it is charged.
func TestRequestsStayWithinTheirCharge(t *testing.T) {
	for _, c := range []struct{ name, request string }{
		{"terms", `{"op":"search","stats":{"docs":1,"fields":{},"terms":[` + repeat(60_000*30, `{"term":"#","field":"","df":1}`) + `]}}`},
		{"filters", `{"op":"search","filters":[` + repeat(1<<20, `{"terms":{"field":"k","values":[`+repeat(180_000, `""`)+`]}}`) + `]}`},
		{"fields", `{"op":"search","default_fields":[` + repeat(29_000, `""`) + `]}`},
	} {
		request := []byte(c.request)
		before := reachable()
		m, prob, _ := parseMessage(request)
		if prob != nil {
			t.Fatalf("%s: %v", c.name, prob)
		}
		q := readSearchRequest(m)
		if m.prob != nil {
			t.Fatalf("%s: %v", c.name, m.prob)
		}
		if more := reachable() - before; more > int64(ParseFactor*len(request)) {
			t.Errorf("%s: %d bytes are held of a request of %d", c.name, more, len(request))
		}
		runtime.KeepAlive(q)
		runtime.KeepAlive(request)
	}
}

// reachable is what the heap holds, in bytes.
func reachable() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// gate is memory that is given out. Its zero value has none.
type gate struct{ room, held, asked, times int }

func (g *gate) admit(_ context.Context, n int) (func(), error) {
	g.times++
	if g.asked += n; g.held+n > g.room {
		return nil, api.NewProblem(api.RequestMemoryFull, "the gate is full")
	}
	g.held += n
	return func() { g.held -= n }, nil
}

// A long request is charged before it is taken apart, and refused when there is no memory for it; one with documents only for a copy
// of them, if one is made.
func TestLongRequestsAreCharged(t *testing.T) {
	l := hostileNode()
	g := &gate{room: 1 << 30}
	held := 0
	l.has = func(context.Context, *leaf.HasRequest) (*leaf.HasReply, error) {
		held = g.held
		return &leaf.HasReply{}, nil
	}
	l.index = func(context.Context, *leaf.IndexRequest) (*leaf.IndexReply, error) {
		held = g.held
		return &leaf.IndexReply{}, nil
	}
	l.bulk = func(_ context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
		held = g.held
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Error(err)
		}
		return &leaf.BulkReply{}, nil
	}
	h := NewHandler(l, HandlerOptions{Admit: g.admit})
	body := `"` + strings.Repeat("a", 100_000) + `"`
	for _, c := range []struct {
		request string
		charge  int
	}{
		{`{"op":"has","ids":["a"]}`, 0},
		{`{"op":"has","ids":[` + body + `]}`, ParseFactor * (len(body) + len(`{"op":"has","ids":[]}`))},
		{`{"op":"index","body":` + body + `}`, len(body)},
		{`{"op":"bulk","body":` + body + `}`, 0},
	} {
		g.asked, g.times, held = 0, 0, 0
		if r := h.Handle(t.Context(), []byte(c.request), nil); !strings.HasPrefix(string(r.Body), `{"ok":`) || strings.Contains(string(r.Body), "request_memory_full") {
			t.Errorf("%.40s: %s", c.request, r.Body)
		}
		if g.asked != c.charge || held != c.charge || g.held != 0 {
			t.Errorf("%.40s: %d bytes were asked for, %d held, %d not given back; want %d", c.request, g.asked, held, g.held, c.charge)
		}
		if c.charge == 0 {
			continue
		}
		g.room = c.charge - 1
		if r := h.Handle(t.Context(), []byte(c.request), nil); r.Close || !strings.Contains(string(r.Body), `"code":"request_memory_full"`) || g.held != 0 {
			t.Errorf("%.40s without memory: %+v %s", c.request, g, r.Body)
		}
		g.room = 1 << 30
	}
	// An unknown member is refused before anything is charged.
	g.times = 0
	if r := h.Handle(t.Context(), []byte(`{"op":"has","ids":[],"x":`+body+`}`), nil); g.times != 0 || !strings.Contains(string(r.Body), "unknown_parameter") {
		t.Errorf("%+v %s", g, r.Body)
	}
}

// A request without documents has a limit of its own, however long frames may be. The connection goes on.
func TestRequestsWithoutDocumentsAreBounded(t *testing.T) {
	l := hostileNode()
	loads := 0
	l.bulk = func(_ context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
		loads++
		_, err := io.Copy(io.Discard, body)
		return &leaf.BulkReply{}, err
	}
	h := NewHandler(l, HandlerOptions{MaxRequest: 1000})
	long := strings.Repeat("a", 1000)
	r := h.Handle(t.Context(), []byte(`{"op":"search","query":"`+long+`"}`), nil)
	if want := `{"ok":false,"code":"body_too_large","error":"the request has 1026 bytes, 1000 are allowed for search","status":413,"limit":1000}`; r.Close || string(r.Body) != want {
		t.Errorf("got %v %s", r.Close, r.Body)
	}
	if r := h.Handle(t.Context(), []byte(`{"op":"bulk","body":"`+long+`"}`), nil); loads != 1 {
		t.Errorf("a load: %s", r.Body)
	}

	// The client does not send what would be refused.
	c := dial(t, &frame.Client{Addr: "127.0.0.1:1"})
	_, err := c.Has(t.Context(), &leaf.HasRequest{IDs: []string{strings.Repeat("a", MaxRequest)}})
	if prob, ok := errors.AsType[*api.Problem](err); !ok || prob.Code != api.BodyTooLarge || prob.Limit != MaxRequest {
		t.Errorf("client: %v", err)
	}
}

// What the scanner passes over is what package jsontext takes for JSON, down to the depth.
func TestScannerPassesOverJSON(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	for _, text := range []string{
		nested(maxDepth), nested(maxDepth + 1), strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1),
		`"\ud834\udd1e"`, `"\ud834"`, `"\udd1e"`, `"\ud834\ud834"`, `"\ud834\n"`, `"\uD834\uDD1E\u00e9"`, `"\u00g0"`, `"\u00e"`, `"\x"`, `"\`, "\"\x1f\"", "\"\x7f\"",
		`-`, `-0`, `01`, `1.`, `1.0e`, `1e+`, `1E-7`, `.5`, `+1`, `truex`, `nul`, `[1 2]`, `[1,]`, `{,}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`, `[}`, `{]`, `1]`, "", "1\x00", "{}\x00",
	} {
		checkScan(t, []byte(text))
	}
	pieces := rapid.SampledFrom([]string{
		"{", "}", "[", "]", ",", ":", `"a"`, `"\n"`, `"é"`, `"`, "\\", "0", "-1.5e3", "true", "false", "null", " ", "\n", "\x00", "\xff", "é", "12345678", `"a":`, `[1,2]`, `{"a":{}}`,
	})
	rapid.Check(t, func(t *rapid.T) {
		checkScan(t, []byte(strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(t, "pieces"), "")))
	})
}

func checkScan(t interface{ Errorf(string, ...any) }, b []byte) {
	s := newScanner(b, false)
	raw, is := s.shaped()
	got := s.end() == nil
	want := jsontext.Value(b).IsValid(jsontext.AllowDuplicateNames(true))
	if got != want {
		t.Errorf("%.80q: read %v, JSON %v: %v", b, got, want, s.err)
		return
	}
	if !got {
		return
	}
	depth, members := 0, 0
	d := jsontext.NewDecoder(strings.NewReader(string(raw)), jsontext.AllowDuplicateNames(true))
	for {
		_, err := d.ReadToken()
		if err != nil {
			break
		}
		depth = max(depth, d.StackDepth())
		if kind, n := d.StackIndex(d.StackDepth()); kind == '{' {
			members = max(members, int(n+1)/2)
		}
	}
	if is != (jsonscan.Shape{Depth: depth, Members: members}) {
		t.Errorf("%.80q: %+v, it is %d deep with %d members", b, is, depth, members)
	}
}
