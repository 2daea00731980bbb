package summaquery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
)

// Scores do not tell how documents came to lie where they do: nothing but the order of equals does, and the ranks that it gives.
func TestLayoutsScoreAlike(t *testing.T) {
	seed := oracletest.Seed(t)
	for round := range oracletest.Rounds(4, 1000) {
		if !oracletest.Only(round) {
			continue
		}
		w := oracletest.NewWorld(seed, uint64(round))
		sdl := oracletest.SDL("")
		n := 6 + w.IntN(40)
		first := newStore(t, sdl)
		first.fill(w, n)
		merged := first.copyOf(w, sdl, 5)
		merged.merge(1 + w.IntN(2))
		stores := []*store{first, first.copyOf(w, sdl, 0), first.copyOf(w, sdl, 1+w.IntN(7)), merged}
		var indexes []*summaquery.Index
		var oracles []*oracletest.Oracle
		for _, s := range stores {
			ix, o := s.index()
			indexes, oracles = append(indexes, ix), append(oracles, o)
		}
		for range 60 {
			req := w.Request(n, true)
			differ := func(req *summapb.SearchRequest) string {
				want, err := byKey(t, indexes[0], oracles[0], req)
				for i := range indexes[1:] {
					got, err2 := byKey(t, indexes[i+1], oracles[i+1], req)
					if fmt.Sprint(err) != fmt.Sprint(err2) {
						return fmt.Sprintf("layout %d: error %v, the first one's %v", i+1, err2, err)
					}
					for k := range max(len(got), len(want)) {
						if k >= len(got) || k >= len(want) || got[k] != want[k] {
							return fmt.Sprintf("layout %d (%d leaves):\n%s\nthe first one (%d leaves):\n%s", i+1, len(indexes[i+1].Leaves), at(got, k), len(indexes[0].Leaves), at(want, k))
						}
					}
				}
				return ""
			}
			if differ(req) != "" {
				req = oracletest.Shrink(req, func(r *summapb.SearchRequest) bool { return differ(r) != "" })
				t.Fatalf("round %d:\n%s\n%s", round, prototext.Format(req), differ(req))
			}
		}
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}

// byKey lists what a search finds, by the keys of the documents.
func byKey(t *testing.T, ix *summaquery.Index, o *oracletest.Oracle, req *summapb.SearchRequest) ([]string, error) {
	t.Helper()
	resp, err := search(t.Context(), ix, req)
	if err != nil {
		return nil, err
	}
	keys := map[string]string{}
	for _, d := range o.Places() {
		keys[fmt.Sprint(ix.Segments[d.Leaf], d.Doc)] = d.Key
	}
	out := []string{fmt.Sprint("total ", resp.TotalHits)}
	for _, h := range resp.Hits {
		var rows []string
		for _, x := range h.OrdinalScores {
			rows = append(rows, fmt.Sprintf("%d %s", x.Ordinal, oracletest.Score(x.Score)))
		}
		slices.Sort(rows)
		out = append(out, fmt.Sprintf("%s: %s (%s)", keys[fmt.Sprint(h.Address.SegmentId, h.Address.DocId)], oracletest.Score(h.Score), strings.Join(rows, ", ")))
	}
	slices.Sort(out)
	return out, nil
}

// leaving is a context whose caller leaves after some looks at it.
type leaving struct {
	context.Context
	looks  int
	cancel context.CancelFunc
	left   time.Time
}

func (l *leaving) Err() error {
	if l.looks--; l.looks < 0 && l.left.IsZero() {
		l.cancel()
		l.left = time.Now()
	}
	return l.Context.Err()
}

// What is done for each hit asks whether the caller is still there.
func TestEachHitLooksAtTheCaller(t *testing.T) {
	ix := small(t, `field f: text<simple> [indexed<token_position>] field c: text<simple> [indexed<chunked, token_position>] field d: dense_vector<2> [indexed<flat>]`,
		slices.Repeat([]string{`fields {name: "f" value {text: "a b"}} fields {name: "c" value {text: "a b"}} fields {name: "d" value {dense_vector {values: 1 values: 0}}}`}, 200)...)
	for name, query := range map[string]string{
		"rows":            `term {field: "f" term: "a"}`,
		"proximity":       `match {field: "f" text: "a b" proximity_weight: 1}`,
		"passages within": `boolean {must {match {field: "c" text: "a b"}} must {term {field: "f" term: "a"}}}`,
		"passages, near":  `match {field: "c" text: "a b" proximity_weight: 1}`,
		"dense":           `dense_vector {field: "d" vector: [1, 2]}`,
	} {
		req := &summapb.SearchRequest{}
		if err := prototext.Unmarshal([]byte(`index_name: "s" limit: 200 query {`+query+`}`), req); err != nil {
			t.Fatal(err)
		}
		const many = 1 << 30
		ctx, cancel := context.WithCancel(t.Context())
		l := &leaving{Context: ctx, looks: many, cancel: cancel}
		resp, err := search(l, ix, req)
		cancel()
		if err != nil || len(resp.Hits) != 200 {
			t.Fatalf("%s: %d hits, %v", name, len(resp.GetHits()), err)
		}
		if looks := many - l.looks; looks < 200 {
			t.Errorf("%s: %d looks for 200 hits", name, looks)
		}
	}
}

func TestCancelledSearchesEndSoon(t *testing.T) {
	w := oracletest.NewWorld(1, 1)
	s := newStore(t, oracletest.SDL(""))
	for b := range oracletest.Rounds(3, 30) {
		var ops []shard.Op
		for i := range 1500 {
			key := fmt.Sprintf("k%d-%d", b, i)
			ops = append(ops, s.put(key, w.Document(key)))
		}
		s.apply(ops...)
		if b%2 == 0 {
			s.flush()
		}
	}
	sn := s.s.Snapshot()
	defer sn.Release()
	ix, _ := s.index()
	words := "car run sea lamp blue"
	for name, query := range map[string]string{
		"all":              `all {}`,
		"term":             `term {field: "token" term: "car"}`,
		"match":            `match {field: "pos" text: "` + words + `"}`,
		"proximity":        `match {field: "pos" text: "` + words + `" proximity_weight: 1}`,
		"phrase":           `phrase {field: "token" text: "car run" slop: 2}`,
		"prefix":           `prefix {field: "none" prefix: "c"}`,
		"range":            `range {field: "us" min_u64: 3}`,
		"first values":     `range {field: "u" min_u64: 3}`,
		"exists":           `range {field: "tag"}`,
		"column":           `term {field: "column" term: "car"}`,
		"passages":         `match {field: "chunk" text: "` + words + `"}`,
		"passages, near":   `match {field: "chunk" text: "` + words + `" proximity_weight: 1}`,
		"passages, phrase": `phrase {field: "chunk" text: "car run" slop: 2}`,
		"passages within":  `boolean {must {match {field: "chunk" text: "` + words + `"}} must {term {field: "none" term: "car"}}}`,
		"filtered":         `boolean {must {range {field: "i" min_i64: 0}} should {match {field: "chunk" text: "` + words + `"}}}`,
		"dense":            `dense_vector {field: "dense" vector: [1, 2, 3, 4]}`,
		"zeros":            `dense_vector {field: "dense" vector: [0, 0, 0, 0]}`,
		"bits":             `binary_dense_vector {field: "bits" vector: "ab"}`,
		"sparse":           `sparse_vector {field: "sparse" indices: [1, 2, 3] values: [1, 2, 3]}`,
		"boosted":          `boost {boost: 2 query {sparse_vector {field: "sparse" indices: [1, 2, 3] values: [1, 2, 3]}}}`,
		"only without":     `boolean {must_not {dense_vector {field: "dense" vector: [1, 2, 3, 4]}}}`,
		"many":             `boolean {` + strings.Repeat(`should {match {field: "chunk" text: "`+words+`"}} `, 60) + `}`,
		"fusion":           `fusion {queries {query {match {field: "chunk" text: "` + words + `"}}} queries {query {dense_vector {field: "dense" vector: [1, 2, 3, 4]}}} filters {range {field: "u" min_u64: 1}}}`,
	} {
		req := &summapb.SearchRequest{}
		if err := prototext.Unmarshal([]byte(`limit: 5000 query {`+query+`}`), req); err != nil {
			t.Fatal(err)
		}
		req.IndexName = "o"
		for _, looks := range []int{0, 1, 2, 4, 8} {
			ctx, cancel := context.WithCancel(t.Context())
			l := &leaving{Context: ctx, looks: looks, cancel: cancel}
			_, err := search(l, ix, req)
			took := time.Since(l.left)
			cancel()
			switch {
			case l.left.IsZero():
				if err != nil {
					t.Errorf("%s, %d looks: %v", name, looks, err)
				}
				continue
			case !errors.Is(err, context.Canceled):
				t.Errorf("%s, %d looks: %v", name, looks, err)
			}
			if took > 500*time.Millisecond {
				t.Errorf("%s, %d looks: ended after %v", name, looks, took)
			}
		}
	}
}
