package summaquery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// spent is a time budget that is over when it was looked at so many times.
type spent struct {
	context.Context
	mu    sync.Mutex
	looks int
	done  chan struct{}
}

func (s *spent) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks > 0 {
		s.looks--
		return nil
	}
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	return context.DeadlineExceeded
}

func (s *spent) Done() <-chan struct{} { return s.done }

// TestSpentBudgetsTellNothingWrong ends the time of searches at every look at the clock: what is found until then is a part of what the
// whole search finds, each with its whole score, and the answer says that it is not all, if it is not.
func TestSpentBudgetsTellNothingWrong(t *testing.T) {
	sch, err := summa.ParseSchema(`index t {
		field id: text<raw> [primary, stored]
		field plain: text<simple> [indexed<token_position>]
		field tag: text<raw> [indexed, fast]
		field chunk: text<simple> [indexed<chunked, token_position>, stored<multi>]
		field n: u64 [indexed, fast]
		field v: dense_vector<4> [indexed<flat>]
		field s: sparse_vector [indexed<format: maxscore>]
	}`)
	if err != nil {
		t.Fatal(err)
	}
	sh, err := shard.Open(t.Context(), shard.Config{Dir: "d", FS: memfs.New(nil), Schema: sch, NoBackground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sh.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	rng := rand.New(rand.NewPCG(7, 7))
	words := func(n int) string {
		w := make([]string, n)
		for i := range w {
			w[i] = string(rune('a' + rng.IntN(9)))
		}
		return strings.Join(w, " ")
	}
	conv := summa.NewDocuments(sch, jsondoc.Limits{})
	text := func(name, s string) *summapb.FieldEntry {
		return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}}
	}
	const docs, leaves = 6_000, 3
	var ops []shard.Op
	for i := range docs {
		fields := []*summapb.FieldEntry{
			text("id", fmt.Sprintf("k%05d", i)), text("plain", words(8)), text("tag", "x"), text("chunk", words(8)), text("chunk", words(6)),
			{Name: "n", Value: &summapb.FieldValue{Value: &summapb.FieldValue_U64{U64: uint64(rng.IntN(10))}}},
			{Name: "v", Value: &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: []float32{rng.Float32(), rng.Float32(), rng.Float32(), 1}}}}},
			{Name: "s", Value: &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: &summapb.SparseVector{Indices: []uint32{1, uint32(2 + rng.IntN(3))}, Values: []float32{rng.Float32(), 1}}}}},
		}
		d, _, err := conv.Convert(fields)
		if err != nil {
			t.Fatal(err)
		}
		if ops = append(ops, shard.Op{Doc: d}); len(ops) == docs/leaves {
			if _, err := sh.Apply(t.Context(), ops); err != nil {
				t.Fatal(err)
			}
			if err := sh.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
	sn := sh.Snapshot()
	defer sn.Release()
	an, err := exec.NewAnalyzers(sn.Schema())
	if err != nil {
		t.Fatal(err)
	}
	ix := &Index{Schema: sn.Schema(), Analyzers: an, Leaves: sn.Leaves(), Cache: &Cache{}}
	for i := range ix.Leaves {
		ix.Segments = append(ix.Segments, fmt.Sprintf("%032x", i+1))
	}
	ask := func(req *summapb.SearchRequest, looks int) (*summapb.SearchResponse, *spent) {
		t.Helper()
		var lim summa.Limits
		w, err := lim.CheckSearch(req)
		if err != nil {
			t.Fatal(err)
		}
		ctx := &spent{Context: t.Context(), looks: looks, done: make(chan struct{})}
		s := &search{ix: ix, req: req, w: w, room: lim.Room(), out: &summapb.SearchResponse{Timings: &summapb.SearchTimings{}}}
		s.r = newRunner(t.Context(), ix, nil)
		s.r.ctx, s.r.budget = ctx, true
		if err := s.r.inBudget(s.one(&compiler{ctx: t.Context(), ix: ix})); err != nil {
			t.Fatal(err)
		}
		s.out.Truncated = s.r.truncated
		return s.out, ctx
	}
	request := func(query string) *summapb.SearchRequest {
		req := &summapb.SearchRequest{}
		if err := prototext.Unmarshal([]byte(`index_name: "t" limit: 10000 candidate_limit: 20000 query {`+query+`}`), req); err != nil {
			t.Fatal(err)
		}
		return req
	}
	scoresOf := func(r *summapb.SearchResponse) map[string]float32 {
		out := map[string]float32{}
		for _, h := range r.Hits {
			out[h.Address.String()] = h.Score
		}
		return out
	}
	const few = `must {range {field: "n" min_u64: 9}} `
	truncated := 0
	for _, c := range []struct {
		query string
		parts []string // of a Boolean whose clauses rank each for itself: what there was no time for is not in a score
	}{
		{`match {field: "plain" text: "a b c d"}`, nil},
		{`match {field: "plain" text: "a b c" proximity_weight: 1}`, nil},
		{`phrase {field: "plain" text: "a b" slop: 3}`, nil},
		{`match {field: "chunk" text: "a b c d"}`, nil},
		{`match {field: "chunk" text: "a b c" proximity_weight: 1}`, nil},
		{`phrase {field: "chunk" text: "a b"}`, nil},
		{`boost {boost: -1 query {match {field: "chunk" text: "a b c"}}}`, nil},
		{`boolean {should {match {field: "plain" text: "a b"}} should {match {field: "chunk" text: "c d"}}}`, nil},
		{`boolean {must {match {field: "chunk" text: "a b"}} should {match {field: "plain" text: "c d"}} must_not {range {field: "n" max_u64: 1}}}`, nil},
		{`dense_vector {field: "v" vector: 1 vector: 2 vector: 3 vector: 1}`, nil},
		{`sparse_vector {field: "s" indices: 1 indices: 2 values: 1 values: 3}`, nil},
		{`boolean {should {dense_vector {field: "v" vector: 1 vector: 2 vector: 3 vector: 1}} should {match {field: "plain" text: "a b"}}}`, nil},
		{`prefix {field: "plain" prefix: "a"}`, nil},
		{`all {}`, nil},
		{
			`boolean {` + few + `should {match {field: "plain" text: "a b c"}} should {match {field: "chunk" text: "c d"}}}`,
			[]string{`boolean {` + few + `should {match {field: "plain" text: "a b c"}}}`, `boolean {` + few + `should {match {field: "chunk" text: "c d"}}}`},
		},
		{
			`boolean {` + few + `should {dense_vector {field: "v" vector: 1 vector: 2 vector: 3 vector: 1}} should {match {field: "plain" text: "a b"}}}`,
			[]string{`boolean {` + few + `should {dense_vector {field: "v" vector: 1 vector: 2 vector: 3 vector: 1}}}`, `boolean {` + few + `should {match {field: "plain" text: "a b"}}}`},
		},
	} {
		req := request(c.query)
		whole, ctx := ask(req, 1<<30)
		if whole.Truncated {
			t.Fatalf("%s: truncated without need", c.query)
		}
		total := 1<<30 - ctx.looks
		scores := scoresOf(whole)
		last := float32(math.Inf(-1))
		if n := len(whole.Hits); n == 10000 {
			last = whole.Hits[n-1].Score
		}
		var parts []map[string]float32
		for _, q := range c.parts {
			r, _ := ask(request(q), 1<<30)
			parts = append(parts, scoresOf(r))
		}
		may := func(at string, got float32) bool {
			if want, ok := scores[at]; ok && want == got || !ok && got <= last {
				return true
			}
			for _, p := range parts {
				if p[at] == got {
					return true
				}
			}
			return false
		}
		for looks := 0; looks < total; looks += max(1, total/10) {
			got, _ := ask(req, looks)
			if !got.Truncated {
				if len(got.Hits) != len(whole.Hits) || got.TotalHits != whole.TotalHits {
					t.Errorf("%s, %d looks of %d: %d hits of %d, and not truncated", c.query, looks, total, len(got.Hits), len(whole.Hits))
				}
				continue
			}
			truncated++
			for i, h := range got.Hits {
				if at := h.Address.String(); !may(at, h.Score) {
					t.Errorf("%s, %d looks of %d: hit %d scores %v, in the whole answer %v", c.query, looks, total, i, h.Score, scores[at])
					break
				}
			}
		}
	}
	if truncated < 40 {
		t.Errorf("only %d answers were truncated", truncated)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	req := &summapb.SearchRequest{IndexName: "t", TimeBudgetMs: 1000, Query: &summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: "plain", Text: "a b c d e f g h"}}}}
	w, err := summa.Limits{}.CheckSearch(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Search(gone, ix, req, w, summa.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("for a caller that left: %v", err)
	}
}
