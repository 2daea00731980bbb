package framed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/wire/frame"
)

// Every method gives over a socket what the leaf gives.
func TestClientGivesWhatTheLeafGives(t *testing.T) {
	here := goldenLeaf()
	prob := &api.Problem{Code: api.InvalidParameter, Field: "ids", Detail: "ids: 10001 are given, 10000 are allowed", Limit: 10_000, HasLimit: true}
	docs := here.docs
	here.docs = func(ctx context.Context, r *leaf.DocsRequest) (*leaf.DocsReply, error) {
		if r.Index == "other" {
			return nil, prob
		}
		return docs(ctx, r)
	}
	there := dial(t, &frame.Client{Addr: serveLeaf(t, here, frame.Limits{})})
	specs, err := agg.Parse("a:terms(kind),b:stats(price)")
	if err != nil {
		t.Fatal(err)
	}
	sorts := []exec.SortKey{{By: exec.ByField, Field: "price"}, {By: exec.ByField, Field: "kind"}, {By: exec.ByScore, Desc: true}, {By: exec.ByID}}
	calls := map[string]func(ctx context.Context, l leaf.Leaf) (any, error){
		"Ping": func(ctx context.Context, l leaf.Leaf) (any, error) { return l.Ping(ctx) },
		"Info": func(ctx context.Context, l leaf.Leaf) (any, error) {
			return l.Info(ctx, &leaf.InfoRequest{Index: "books"})
		},
		"Docs": func(ctx context.Context, l leaf.Leaf) (any, error) { return l.Docs(ctx, &leaf.DocsRequest{}) },
		"Search": func(ctx context.Context, l leaf.Leaf) (any, error) {
			return l.Search(ctx, &leaf.SearchRequest{Limit: 10, Query: &query.Term{Text: "wind"}})
		},
		"Search, sorted": func(ctx context.Context, l leaf.Leaf) (any, error) {
			return l.Search(ctx, &leaf.SearchRequest{Limit: 10, Sort: sorts, KeepStats: true, AllowPartial: true})
		},
		"Search, by score": func(ctx context.Context, l leaf.Leaf) (any, error) {
			return l.Search(ctx, &leaf.SearchRequest{Limit: 10, Sort: []exec.SortKey{{By: exec.ByScore, Desc: true}}, Total: exec.TotalNone})
		},
		"Stats": func(ctx context.Context, l leaf.Leaf) (any, error) {
			return l.Stats(ctx, &leaf.StatsRequest{Terms: []score.Term{{Field: "title", Text: "wind"}}})
		},
		"Aggregate": func(ctx context.Context, l leaf.Leaf) (any, error) {
			r, err := l.Aggregate(ctx, &leaf.AggregateRequest{Specs: specs, Values: []string{"stock", "kind", "stock", "none"}})
			if err == nil {
				r.Approximate = append(r.Approximate, string(r.State.AppendBinary(nil)))
				r.State = nil
			}
			return r, err
		},
		"KNN": func(ctx context.Context, l leaf.Leaf) (any, error) {
			return l.KNN(ctx, &leaf.KNNRequest{KNN: api.KNN{Field: "v", Dense: []float32{1}, K: 2, Combiner: score.Combiner{Kind: score.Max}}})
		},
		"IDs": func(ctx context.Context, l leaf.Leaf) (any, error) {
			var all []string
			r, err := l.IDs(ctx, &leaf.IDsRequest{Limit: 2}, func(ids []string) error { all = append(all, ids...); return nil })
			return []any{all, r}, err
		},
		"Export": func(ctx context.Context, l leaf.Leaf) (any, error) {
			var all []leaf.ExportedDoc
			r, err := l.Export(ctx, &leaf.ExportRequest{IDs: []string{"b/1", "x", "b/2", "y", "b/1"}}, func(d leaf.ExportedDoc) error { all = append(all, d); return nil })
			return []any{all, r}, err
		},
		"Has": func(ctx context.Context, l leaf.Leaf) (any, error) {
			return l.Has(ctx, &leaf.HasRequest{IDs: []string{"b/1", "x"}})
		},
		"DeleteMany": func(ctx context.Context, l leaf.Leaf) (any, error) {
			return l.DeleteMany(ctx, &leaf.DeleteRequest{IDs: []string{"b/1", "x"}})
		},
		"Index": func(ctx context.Context, l leaf.Leaf) (any, error) {
			return l.Index(ctx, &leaf.IndexRequest{Body: []byte(`{"id":"b/1"}`)})
		},
		"Bulk": func(ctx context.Context, l leaf.Leaf) (any, error) {
			r, err := l.Bulk(ctx, &leaf.BulkRequest{}, strings.NewReader("{\"id\":\"a\"}\n{\"id\":\"bad\"}\n"))
			if err == nil {
				r.TookMicros = 0
			}
			return r, err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			want, err := call(t.Context(), here)
			if err != nil {
				t.Fatal(err)
			}
			got, err := call(t.Context(), there)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got, exact); d != "" {
				t.Errorf("−here +there\n%s", d)
			}
		})
	}
	// What is wrong with a request is the same over there; what cannot travel is told here.
	for name, call := range map[string]func(l leaf.Leaf) error{
		"a problem of the leaf": func(l leaf.Leaf) error {
			_, err := l.Docs(t.Context(), &leaf.DocsRequest{Index: "other"})
			return err
		},
		"too many ids": func(l leaf.Leaf) error {
			_, err := l.Has(t.Context(), &leaf.HasRequest{IDs: make([]string, leaf.MaxIDs+1)})
			return err
		},
	} {
		if err := call(there); cmp.Diff(error(prob), err) != "" {
			t.Errorf("%s: %v, want %v", name, err, prob)
		}
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"a match": func(ctx context.Context) error {
			_, err := there.Search(ctx, &leaf.SearchRequest{Query: &query.Match{Field: "f", Text: "a b"}})
			return err
		},
		"a filter in a query": func(ctx context.Context) error {
			_, err := there.Stats(ctx, &leaf.StatsRequest{Query: &query.Bool{Filter: []query.Node{&query.All{}}}})
			return err
		},
		"a match in a filter": func(ctx context.Context) error {
			_, err := there.KNN(ctx, &leaf.KNNRequest{Filters: []query.Node{&query.Bool{Must: []query.Node{&query.Match{Field: "f", Text: "a"}}}}})
			return err
		},
		"an empty list": func(ctx context.Context) error {
			_, err := there.Search(ctx, &leaf.SearchRequest{Query: &query.Bool{}})
			return err
		},
	} {
		var p *api.Problem
		if err := call(t.Context()); !errors.As(err, &p) || p.Code != api.InvalidQuery || !strings.Contains(p.Detail, "query strings cannot express") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFiltersOfAnyForm(t *testing.T) {
	filters := make(chan []query.Node, 1)
	l := goldenLeaf()
	l.knn = func(_ context.Context, r *leaf.KNNRequest) (*leaf.KNNReply, error) {
		filters <- r.Filters
		return &leaf.KNNReply{}, nil
	}
	c := dial(t, &frame.Client{Addr: serveLeaf(t, l, frame.Limits{})})
	a, b := &query.Term{Field: "f", Text: "a"}, &query.Phrase{Field: "f", Text: "b c"}
	_, err := c.KNN(t.Context(), &leaf.KNNRequest{KNN: api.KNN{Field: "v", Dense: []float32{1}}, Filters: []query.Node{
		a, &query.Terms{Field: "f"}, &query.Boost{Factor: 2, Query: &query.Bool{Filter: []query.Node{a, &query.Bool{Should: []query.Node{a, b}, Filter: []query.Node{b}}}, MustNot: []query.Node{b}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	text := func(n query.Node) query.Node { return &query.Bool{Filter: []query.Node{n}} }
	want := []query.Node{
		a, &query.Terms{Field: "f", Values: []string{}},
		&query.Bool{Must: []query.Node{text(a), &query.Bool{Must: []query.Node{text(b)}, Should: []query.Node{text(a), text(b)}}}, MustNot: []query.Node{text(b)}},
	}
	if d := cmp.Diff(want, <-filters); d != "" {
		t.Errorf("−want +got\n%s", d)
	}
}

// manyLeaf holds n documents of so many bytes each.
func manyLeaf(n, size int) *fake {
	id := func(i int) string { return fmt.Sprintf("doc/%06d", i) }
	l := goldenLeaf()
	l.ids = func(_ context.Context, r *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error) {
		from := 0
		for from < n && id(from) <= r.After {
			from++
		}
		to := n
		out := &leaf.IDsReply{Meta: goldenMeta}
		if r.Limit > 0 && from+r.Limit < n {
			to = from + r.Limit
			out.Next = id(to - 1)
		}
		var all []string
		for i := from; i < to; i++ {
			all = append(all, id(i))
		}
		for p := range slices.Chunk(all, leaf.MaxIDPage) {
			if err := page(p); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	l.export = func(_ context.Context, r *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
		out := &leaf.ExportReply{Meta: goldenMeta}
		for _, want := range r.IDs {
			if !strings.HasPrefix(want, "doc/") {
				out.Missing = append(out.Missing, want)
				continue
			}
			if err := each(leaf.ExportedDoc{ID: want, Source: fmt.Appendf(nil, `{"id":%q,"text":%q}`, want, strings.Repeat("x", size))}); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return l
}

func TestIDsInParts(t *testing.T) {
	const n = 25_001
	c := dial(t, &frame.Client{Addr: serveLeaf(t, manyLeaf(n, 0), frame.Limits{})})
	for _, limit := range []int{0, 1, 10_000, 10_001, 20_000, n - 1, n, n + 1} {
		got, longest := 0, 0
		last := ""
		r, err := c.IDs(t.Context(), &leaf.IDsRequest{Limit: limit}, func(ids []string) error {
			for _, id := range ids {
				if id <= last {
					t.Fatalf("%s after %s", id, last)
				}
				last = id
			}
			got, longest = got+len(ids), max(longest, len(ids))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := n
		if limit > 0 {
			want = min(limit, n)
		}
		if got != want || longest > leaf.MaxIDPage || (r.Next != "") != (want < n) || r.Next != "" && r.Next != last {
			t.Errorf("limit %d: %d ids in pages of %d, next %q", limit, got, longest, r.Next)
		}
	}
	stop := errors.New("enough")
	if _, err := c.IDs(t.Context(), &leaf.IDsRequest{}, func([]string) error { return stop }); err != stop {
		t.Errorf("the error of page: %v", err)
	}
	small := dial(t, &frame.Client{Addr: serveLeaf(t, manyLeaf(n, 0), frame.Limits{MaxReply: 64 << 10})})
	var p *api.Problem
	if _, err := small.IDs(t.Context(), &leaf.IDsRequest{}, func([]string) error { return nil }); !errors.As(err, &p) || p.Code != api.ReplyTooLarge || p.Limit != 64<<10 {
		t.Errorf("a reply that does not fit: %v", err)
	}
}

func TestExportInParts(t *testing.T) {
	const most = 64 << 10
	addr := serveLeaf(t, manyLeaf(0, 5_000), frame.Limits{MaxReply: most})
	c := dial(t, &frame.Client{Addr: addr, MaxReply: most})
	var ask, want, missing []string
	for i := range 2_500 {
		id := fmt.Sprintf("doc/%06d", i)
		if i%5 == 0 {
			id = fmt.Sprint("none", i)
			missing = append(missing, id)
		} else {
			want = append(want, id)
		}
		ask = append(ask, id)
	}
	ask, want, missing = append(ask, "doc/000001", "doc/000001", "none"), append(want, "doc/000001", "doc/000001"), append(missing, "none")
	var got []string
	r, err := c.Export(t.Context(), &leaf.ExportRequest{IDs: ask}, func(d leaf.ExportedDoc) error {
		if len(d.Source) < 5_000 || !strings.Contains(string(d.Source), d.ID) {
			t.Errorf("document %s: %d bytes", d.ID, len(d.Source))
		}
		got = append(got, d.ID)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) || !slices.Equal(r.Missing, missing) {
		t.Errorf("%d documents, want %d; %d missing, want %d", len(got), len(want), len(r.Missing), len(missing))
	}
	stop := errors.New("enough")
	if _, err := c.Export(t.Context(), &leaf.ExportRequest{IDs: ask}, func(leaf.ExportedDoc) error { return stop }); err != stop {
		t.Errorf("the error of each: %v", err)
	}
	// Without rest a reply is whole or refused.
	s := connect(t, addr)
	s.send(`{"op":"export","ids":["` + strings.Join(ask[:200], `","`) + `"]}`)
	if got := s.receive(); !strings.HasPrefix(got, `{"ok":false,"code":"reply_too_large"`) || !strings.Contains(got, `"limit":65536`) {
		t.Errorf("200 documents: %s", got)
	}
	// A document that no reply can hold is told as that.
	large := dial(t, &frame.Client{Addr: serveLeaf(t, manyLeaf(0, most), frame.Limits{MaxReply: most})})
	var p *api.Problem
	if _, err := large.Export(t.Context(), &leaf.ExportRequest{IDs: []string{"doc/000001"}}, func(leaf.ExportedDoc) error { return nil }); !errors.As(err, &p) || p.Code != api.ReplyTooLarge {
		t.Errorf("a large document: %v", err)
	}
}

// bulkLeaf applies bulk loads as a node does, but for what is in documents. A line with "refuse" is refused, and "stop" ends the
// index; a frame with "fail" is refused as a whole.
type bulkLeaf struct {
	*fake
	mu     sync.Mutex
	frames [][]string
	ids    map[string]int
}

func newBulkLeaf() *bulkLeaf {
	b := &bulkLeaf{fake: goldenLeaf(), ids: map[string]int{}}
	b.bulk = func(_ context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
		text, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(text), "fail") {
			return nil, &api.Problem{Code: api.MemtableFull, Detail: "no room", RetryAfterMS: 5}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		lines := strings.Split(strings.TrimPrefix(string(text), "\uFEFF"), "\n")
		b.frames = append(b.frames, lines)
		out := &leaf.BulkReply{Meta: goldenMeta}
		seen, stopped := map[string]bool{}, false
		for i, line := range lines {
			if strings.TrimSpace(line) == "" {
				continue
			}
			stopped = stopped || strings.Contains(line, "stop")
			id := jsondoc.ID([]byte(line), "id")
			switch {
			case stopped:
				out.Errors = append(out.Errors, api.DocFailure{Line: i + 1, Code: string(api.ReadOnly), Reason: "no more writes"})
			case strings.Contains(line, "refuse"):
				out.Errors = append(out.Errors, api.DocFailure{Line: i + 1, ID: id, Code: string(api.TypeConflict), Reason: "refused"})
			default:
				out.Indexed++
				b.ids[id]++
				if seen[id] {
					out.Duplicates++
				}
				seen[id] = true
			}
		}
		out.Failed = uint64(len(out.Errors))
		if out.OK = out.Failed == 0; out.Indexed > 0 {
			out.Shards, out.Members = 1, api.Members{OK: 1, Total: 1}
		}
		return out, nil
	}
	return b
}

func TestBulkInFrames(t *testing.T) {
	const most = 64 << 10
	pad := strings.Repeat("é\\\"", 100)
	doc := func(id string) string {
		return fmt.Sprintf(`{"id":"%s","t":"%s"}`, id, strings.ReplaceAll(pad, `"`, `\"`))
	}
	var lines []string
	distinct := map[string]bool{}
	var refused []int
	for i := range 400 {
		switch {
		case i%50 == 7:
			lines = append(lines, "")
		case i%50 == 8:
			lines = append(lines, fmt.Sprintf(`{"id":"r%d","refuse":1}`, i))
			refused = append(refused, i+1)
		case i%50 == 9:
			lines = append(lines, "{\"id\":\"\xff\"}")
			refused = append(refused, i+1)
		case i == 110:
			lines = append(lines, `{"id":"long","t":"`+strings.Repeat("y", most)+`"}`)
			refused = append(refused, i+1)
		case i == 111:
			lines = append(lines, `{"id":"longer","t":"`+strings.Repeat("\\\"", most/3)+`"}`)
			refused = append(refused, i+1)
		case i == 112:
			lines = append(lines, `{"id":"fits","t":"`+strings.Repeat("y", most/2)+`"}`)
			distinct["fits"] = true
		default:
			id := fmt.Sprint("d", i%130)
			lines, distinct[id] = append(lines, doc(id)), true
		}
	}
	body := "\uFEFF" + strings.Join(lines, "\n")
	l := newBulkLeaf()
	c := dial(t, &frame.Client{Addr: serveLeaf(t, l, frame.Limits{MaxFrame: most}), MaxRequest: most})
	r, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, iotest.HalfReader(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	indexed := uint64(400 - 8 - len(refused))
	if len(l.frames) < 10 || len(l.ids) != len(distinct) {
		t.Errorf("%d frames, %d ids, want %d", len(l.frames), len(l.ids), len(distinct))
	}
	if r.OK || r.Indexed != indexed || r.Failed != uint64(len(refused)) || r.Duplicates != indexed-uint64(len(distinct)) || r.DuplicatesAtLeast ||
		r.Shards != 1 || r.Members.OK != 1 || r.Members.Total != 1 || len(r.Approximate) > 0 {
		t.Errorf("%+v; want %d in, %d failed, %d duplicates", r, indexed, len(refused), indexed-uint64(len(distinct)))
	}
	var got []int
	for _, e := range r.Errors {
		got = append(got, e.Line)
	}
	if !slices.Equal(got, refused) {
		t.Errorf("refused %v, want %v", got, refused)
	}
	if r.Snapshot != goldenMeta.Snapshot || r.Micros() != int64(len(l.frames))*goldenMeta.Micros() {
		t.Errorf("snapshot %+v, %d µs in %d frames", r.Snapshot, r.Micros(), len(l.frames))
	}
}

func TestBulkThatBreaksOff(t *testing.T) {
	const most = 8 << 10
	line := func(what string) string { return `{"id":"1","t":"` + what + strings.Repeat("x", 900) + "\"}\n" }
	good := strings.Repeat(line(""), 3)
	addr := serveLeaf(t, newBulkLeaf(), frame.Limits{MaxFrame: most})
	c := dial(t, &frame.Client{Addr: addr, MaxRequest: most})

	t.Run("refused after some went in", func(t *testing.T) {
		r, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(good+line("fail")+good))
		if err != nil {
			t.Fatal(err)
		}
		if r.OK || r.Indexed != 3 || r.Failed != 4 || len(r.Errors) != 4 || r.Errors[0].Line != 4 || r.Errors[3].Line != 7 || r.Errors[3].Code != string(api.MemtableFull) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("stopped in a frame", func(t *testing.T) {
		r, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(good+line("stop")+good))
		if err != nil {
			t.Fatal(err)
		}
		if r.OK || r.Indexed != 3 || r.Failed != 4 || r.Errors[3].Line != 7 || r.Errors[3].Code != string(api.ReadOnly) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("refused at once", func(t *testing.T) {
		var p *api.Problem
		if _, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(line("fail")+good)); !errors.As(err, &p) || p.Code != api.MemtableFull || p.RetryAfterMS != 5 {
			t.Errorf("%v", err)
		}
	})
	t.Run("all refused", func(t *testing.T) {
		r, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(line("refuse")+line("refuse")))
		if err != nil || r.OK || r.Failed != 2 || r.Indexed != 0 || r.Shards != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		r, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(""))
		if err != nil || !r.OK || r.Indexed != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("the stream breaks", func(t *testing.T) {
		broken := io.MultiReader(strings.NewReader(good+"{\"id\":"), iotest.ErrReader(errors.New("gone")))
		r, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, broken)
		if err != nil || r.OK || r.Indexed != 3 || r.Failed != 0 || len(r.Errors) != 1 || r.Errors[0].Line != 4 || r.Errors[0].Code != string(api.InvalidBody) {
			t.Errorf("%+v, %v", r, err)
		}
		var p *api.Problem
		if _, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, iotest.ErrReader(errors.New("gone"))); !errors.As(err, &p) || p.Code != api.InvalidBody || p.Line != 1 {
			t.Errorf("%v", err)
		}
	})
	t.Run("the node dies", func(t *testing.T) {
		reply := `{"ok":true,"indexed":3,"failed":0,"duplicates":0,"shards":1,"members_ok":1,"members":1,"failed_addresses":[],"took_ms":1,"errors":[]}`
		for _, answers := range [][]string{{""}, {reply, `{"ok":false,"code":"internal","error":""}`, ""}} {
			c := dial(t, &frame.Client{Addr: answering(t, answers...), MaxRequest: most, MaxIdle: -1})
			var e *leaf.TransportError
			if _, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(good+good)); !errors.As(err, &e) || !e.MaybeApplied || !e.Crashed {
				t.Errorf("after %d answers: %v", len(answers)-1, err)
			}
		}
		c := dial(t, &frame.Client{Addr: answering(t, reply, `{"ok":false,"code":"internal","error":""}`, reply), MaxRequest: most, MaxIdle: -1})
		r, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(line("")+line("")))
		if err != nil || r.Indexed != 6 || !r.DuplicatesAtLeast || !slices.Equal(r.Approximate, []string{leaf.ApproximateRepeats}) {
			t.Errorf("without the name of the primary field: %+v, %v", r, err)
		}
	})
	t.Run("the caller leaves", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("had enough")
		leave := iotest.ErrReader(io.EOF)
		body := io.MultiReader(strings.NewReader(good+line("")), readerFunc(func(b []byte) (int, error) { cancel(cause); return leave.Read(b) }))
		_, err := c.Bulk(ctx, &leaf.BulkRequest{}, body)
		if !errors.Is(err, cause) {
			t.Errorf("%v", err)
		}
	})
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// answering returns the address of a server that answers the first request of each connection with the next of answers, an empty one
// not at all, and hangs up.
func answering(t *testing.T, answers ...string) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			if _, err := frame.Read(conn, 0, nil); err == nil && len(answers) > 0 {
				if answers[0] != "" {
					if err := frame.Write(conn, []byte(answers[0])); err != nil {
						t.Error(err)
					}
				}
				answers = answers[1:]
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		if err := lis.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return lis.Addr().String()
}

func TestTransportErrors(t *testing.T) {
	read := func(c *Client) error { _, err := c.Docs(t.Context(), &leaf.DocsRequest{}); return err }
	write := func(c *Client) error {
		_, err := c.Index(t.Context(), &leaf.IndexRequest{Body: []byte("{}")})
		return err
	}
	for _, w := range []struct {
		name           string
		answer         string
		call           func(c *Client) error
		maybe, crashed bool
	}{
		{"a read is cut off", "", read, false, true},
		{"a write is cut off", "", write, true, true},
		{"a reply is no JSON", "hello", read, false, false},
		{"a reply to a write is no JSON", "hello", write, true, false},
		{"a reply has no ok", `{"docs":1}`, read, false, false},
		{"a reply is not ok and says nothing", `{"ok":false}`, read, false, false},
		{"a number is too large", `{"ok":true,"docs":18446744073709551616}`, read, false, false},
		{"a repeated member", `{"ok":true,"docs":1,"docs":1}`, read, false, false},
	} {
		c := dial(t, &frame.Client{Addr: answering(t, w.answer)})
		var e *leaf.TransportError
		if err := w.call(c); !errors.As(err, &e) || e.MaybeApplied != w.maybe || e.Crashed != w.crashed || e.Address != c.addr || serve.OutcomeOf(err) != serve.Unavailable {
			t.Errorf("%s: %T %v", w.name, err, err)
		}
	}
	gone := dial(t, &frame.Client{Addr: "127.0.0.1:1"})
	var e *leaf.TransportError
	if _, err := gone.Index(t.Context(), &leaf.IndexRequest{Body: []byte("{}")}); !errors.As(err, &e) || e.MaybeApplied || e.Crashed {
		t.Errorf("nobody there: %v", err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Docs(t.Context(), &leaf.DocsRequest{}); !errors.Is(err, leaf.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// waitingLeaf has a search that goes on until its context ends, whose cause it tells.
func waitingLeaf() (l *fake, entered chan struct{}, left chan error) {
	entered, left = make(chan struct{}, 16), make(chan error, 16)
	l = goldenLeaf()
	l.search = func(ctx context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		entered <- struct{}{}
		<-ctx.Done()
		left <- context.Cause(ctx)
		if r.AllowPartial && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &leaf.SearchReply{Meta: goldenMeta, Partial: true}, nil
		}
		return nil, context.Cause(ctx)
	}
	return l, entered, left
}

func TestACallerThatLeaves(t *testing.T) {
	l, entered, left := waitingLeaf()
	c := dial(t, &frame.Client{Addr: serveLeaf(t, l, frame.Limits{})})
	for _, partial := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("had enough")
		go func() {
			<-entered
			cancel(cause)
		}()
		if _, err := c.Search(ctx, &leaf.SearchRequest{AllowPartial: partial}); err != cause {
			t.Errorf("%v", err)
		}
		if err := <-left; !errors.Is(err, frame.ErrPeerGone) {
			t.Errorf("the leaf was left with %v", err)
		}
		if _, err := c.Docs(ctx, &leaf.DocsRequest{}); err != cause {
			t.Errorf("ended before: %v", err)
		}
	}
}

// pipes is a listener of connections within the process, which virtual time can wait for.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(context.Context, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.conns <- there
	return here, nil
}

func TestTheTimeOfTheCaller(t *testing.T) {
	for _, c := range []struct {
		name    string
		timeout time.Duration
		partial bool
		least   time.Duration // until the leaf is told, at least
	}{
		{"a whole answer", 500 * time.Millisecond, false, 500 * time.Millisecond},
		{"a part will do", 500 * time.Millisecond, true, 475 * time.Millisecond},
		{"a part will do, soon", 20 * time.Millisecond, true, 18 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _, left := waitingLeaf()
				h := NewHandler(l, HandlerOptions{})
				s := &frame.Server{Handler: h.Handle, Refuse: Refuse}
				lis := &pipes{make(chan net.Conn), make(chan struct{})}
				done := make(chan error, 1)
				go func() { done <- s.Serve(lis) }()
				client := NewClient(&frame.Client{Addr: "pipe", Dial: lis.dial})

				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				r, err := client.Search(ctx, &leaf.SearchRequest{AllowPartial: c.partial})
				took := time.Since(start)
				switch {
				case c.partial && (err != nil || !r.Partial):
					t.Errorf("%+v, %v", r, err)
				case !c.partial && (!errors.Is(err, context.DeadlineExceeded) || leaf.OutcomeOf(err) != serve.TimedOut):
					t.Errorf("%v", err)
				}
				if took < c.least || took > c.timeout {
					t.Errorf("it took %v of %v, want %v at least", took, c.timeout, c.least)
				}
				if err := client.Close(); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				<-done
				if err := <-left; err == nil {
					t.Error("the leaf was not told")
				}
			})
		})
	}
}

func TestTheLongestOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := waitingLeaf()
		h := NewHandler(l, HandlerOptions{MaxTimeout: time.Second})
		for _, c := range []struct {
			timeout string
			want    time.Duration
		}{{"", time.Second}, {`,"timeout_ms":0.5`, 500 * time.Microsecond}, {`,"timeout_ms":3600000`, time.Second}} {
			start := time.Now()
			b := h.Handle(t.Context(), []byte(`{"op":"search"`+c.timeout+`}`), nil).Body
			if took := time.Since(start); !strings.HasPrefix(string(b), `{"ok":false,"code":"timeout"`) || took != c.want {
				t.Errorf("%s: %s after %v", c.timeout, b, took)
			}
		}
	})
}

func TestPlainKeysOfAnIndexThatIsReplaced(t *testing.T) {
	l := goldenLeaf()
	instance := uint64(1)
	infos := 0
	info := l.info
	l.info = func(ctx context.Context, r *leaf.InfoRequest) (*leaf.InfoReply, error) {
		infos++
		out, err := info(ctx, r)
		out.Snapshot.Instance = instance
		return out, err
	}
	search := l.search
	next := func() uint64 { return instance }
	l.search = func(ctx context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		out, err := search(ctx, r)
		out.Snapshot.Instance = next()
		return out, err
	}
	h := NewHandler(l, HandlerOptions{})
	ask := func() string {
		b := h.Handle(t.Context(), []byte(`{"op":"search","sort":"price"}`), nil).Body
		return string(b)[:20]
	}
	for range 3 {
		if got := ask(); got != `{"ok":true,"hits":[[` || infos != 1 {
			t.Errorf("%s, info was asked %d times", got, infos)
		}
	}
	instance = 2
	if got := ask(); got != `{"ok":true,"hits":[[` || infos != 2 {
		t.Errorf("replaced: %s, info was asked %d times", got, infos)
	}
	next = func() uint64 { instance++; return instance }
	if got := ask(); got != `{"ok":false,"code":"` {
		t.Errorf("replaced all the time: %s", got)
	}
}

// TestAReplyAsksForMemoryAsItArrives: before a long one is there, no more often than it doubles, and all is given back when the call ends; a
// refusal ends the call with its cause, and the request is not sent again.
func TestAReplyAsksForMemoryAsItArrives(t *testing.T) {
	var calls atomic.Int64
	l := &fake{search: func(context.Context, *leaf.SearchRequest) (*leaf.SearchReply, error) {
		calls.Add(1)
		return &leaf.SearchReply{Hits: []leaf.Hit{{ID: strings.Repeat("x", 1<<20), Score: 1}}, Total: 1, TotalRelation: "eq"}, nil
	}, docs: func(context.Context, *leaf.DocsRequest) (*leaf.DocsReply, error) { return &leaf.DocsReply{}, nil }}
	c := dial(t, &frame.Client{Addr: serveLeaf(t, l, frame.Limits{})})
	refused := errors.New("there is no room")
	for _, tt := range []struct {
		name string
		most int64
		err  error
	}{
		{"room for it", 1 << 20, nil},
		{"too little", 1 << 19, refused},
	} {
		var mu sync.Mutex
		var have, asked int64
		ctx, cancel := context.WithCancelCause(t.Context())
		ctx = leaf.WithArrival(ctx, func(bytes int64) (func(), error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			if have+bytes > tt.most {
				cancel(refused)
				return nil, refused
			}
			have += bytes
			return func() {
				mu.Lock()
				defer mu.Unlock()
				have -= bytes
			}, nil
		})
		if _, err := c.Docs(ctx, &leaf.DocsRequest{}); err != nil || asked != 0 { // a socket that was used before
			t.Errorf("%s: a short reply: %v, asked %d times", tt.name, err, asked)
		}
		calls.Store(0)
		_, err := c.Search(ctx, &leaf.SearchRequest{Limit: 1})
		if !errors.Is(err, tt.err) || calls.Load() != 1 {
			t.Errorf("%s: %v, sent %d times", tt.name, err, calls.Load())
		}
		mu.Lock()
		if have != 0 || asked < 1 || asked > 6 {
			t.Errorf("%s: %d bytes are kept, asked %d times", tt.name, have, asked)
		}
		mu.Unlock()
		cancel(nil)
	}
}
