package summaquery_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/summa"
)

func request(t testing.TB, text string) *summapb.SearchRequest {
	t.Helper()
	req := &summapb.SearchRequest{}
	if err := prototext.Unmarshal([]byte(`index_name: "s" `+text), req); err != nil {
		t.Fatal(err)
	}
	return req
}

func textDoc(field, text string) string {
	return fmt.Sprintf(`fields {name: %q value {text: %q}}`, field, text)
}

// TestManyRowsOfADocumentEndWithTheCaller leaves while the places of a word in one document are scored.
func TestManyRowsOfADocumentEndWithTheCaller(t *testing.T) {
	many := strings.Repeat("a ", 300_000)
	ix := small(t, `field f: text<simple> [indexed<positions>]`, textDoc("f", many))
	req := request(t, `limit: 1 query {boolean {should {term {field: "f" term: "a"}} should {term {field: "f" term: "A"}}}}`)
	const enough = 1 << 30
	whole := &leaving{Context: t.Context(), looks: enough}
	resp, err := search(whole, ix, req)
	if err != nil || len(resp.Hits[0].OrdinalScores) != 300_000 {
		t.Fatalf("%d hits: %v", len(resp.GetHits()), err)
	}
	if looks := enough - whole.looks; looks < 600_000>>15 {
		t.Errorf("%d looks at the caller for 600,000 places of words", looks)
	}
}

// TestManyPlacesNearEachOtherEndWithTheCaller leaves while the proximity of words in one document is computed.
func TestManyPlacesNearEachOtherEndWithTheCaller(t *testing.T) {
	many := strings.Repeat("a b ", 30_000)
	ix := small(t, `field f: text<simple> [indexed<token_position>] field c: text<simple> [indexed<chunked, token_position>]`, textDoc("f", many)+textDoc("c", many))
	for _, field := range []string{"f", "c"} {
		req := request(t, `limit: 1 query {match {field: "`+field+`" text: "a b"}}`)
		const enough = 1 << 30
		looks := func(weight float32) int {
			req.GetQuery().GetMatch().ProximityWeight = weight
			whole := &leaving{Context: t.Context(), looks: enough}
			if resp, err := search(whole, ix, req); err != nil || len(resp.Hits) != 1 {
				t.Fatalf("%d hits: %v", len(resp.GetHits()), err)
			}
			return enough - whole.looks
		}
		if with, without := looks(1), looks(0); with < without+3 {
			t.Errorf("%s: %d looks at the caller with the proximity of 60,000 places, %d without", field, with, without)
		}
	}
}

// TestRowsAreMadeForThePageOnly counts the places that are read by what the search holds for them.
func TestRowsAreMadeForThePageOnly(t *testing.T) {
	ix := small(t, `field f: text<simple> [indexed<token_position>] field v: dense_vector<2> [indexed<flat>]`,
		slices.Repeat([]string{textDoc("f", strings.Repeat("a ", 100)) + strings.Repeat(` fields {name: "v" value {dense_vector {values: 1 values: 0}}}`, 100)}, 200)...)
	for _, query := range []string{
		`term {field: "f" term: "a"}`,
		`boost {boost: 2 query {term {field: "f" term: "a"}}}`,
		`dense_vector {field: "v" vector: [1, 2]}`,
		`boost {boost: 2 query {dense_vector {field: "v" vector: [1, 2]}}}`,
	} {
		all := map[uint32]*summapb.SearchHit{} // rows where all are asked for
		for _, c := range []struct {
			how  string
			hits int // whose rows are made
		}{{`limit: 200`, 200}, {`limit: 3 offset: 150`, 3}, {`limit: 3 offset: 150 tracing: true`, 153}} {
			held, most := 0, 0
			ix.Hold = func(n int) error {
				held += n
				most = max(most, held)
				return nil
			}
			resp, err := search(t.Context(), ix, request(t, c.how+` query {`+query+`}`))
			if err != nil {
				t.Fatal(query, err)
			}
			if least := c.hits * 100 * 8; most < least || most > least+100*64 {
				t.Errorf("%s, %s: %d bytes were held at once; rows of %d hits take %d", query, c.how, most, c.hits, least)
			}
			for _, h := range resp.Hits {
				if c.hits == 200 {
					all[h.Address.DocId] = h
				}
				if want := all[h.Address.DocId]; len(h.OrdinalScores) != 100 || fmt.Sprint(h.OrdinalScores) != fmt.Sprint(want.OrdinalScores) || h.Score != want.Score {
					t.Errorf("%s, %s: document %d has other rows", query, c.how, h.Address.DocId)
				}
			}
		}
		ix.Hold = nil
	}
}

// TestWhatASearchHoldsIsBounded asks for more candidates and scores of values than there is room for.
func TestWhatASearchHoldsIsBounded(t *testing.T) {
	ix := small(t, `field f: text<simple> [indexed<token_position>] field c: text<simple> [indexed<chunked>] field n: i64 [fast] field v: dense_vector<2> [indexed<flat>]`,
		slices.Repeat([]string{textDoc("f", strings.Repeat("a ", 100)) + strings.Repeat(textDoc("c", "b"), 50) + strings.Repeat(`fields {name: "n" value {i64: 7}} `, 2) +
			`fields {name: "v" value {dense_vector {values: [1, 0]}}}`}, 200)...)
	branches := `queries {name: "f" scope: SCORE_SCOPE_DOCUMENT query {term {field: "f" term: "a"}}} queries {name: "c" scope: SCORE_SCOPE_CHUNK query {term {field: "c" term: "b"}}}`
	for name, c := range map[string]struct {
		text  string
		least int // bytes
	}{
		"rows":              {`limit: 200 query {term {field: "f" term: "a"}}`, 200 * 100 * 8},
		"passages":          {`limit: 200 query {term {field: "c" term: "b"}}`, 200 * 50 * 8},
		"fusion":            {`limit: 200 query {fusion {` + branches + `}}`, 200 * 150 * 100},
		"votes":             {`limit: 200 query {fusion {` + branches + `}} include_rrf_scores: true`, 200 * 150 * 200},
		"formula":           {`limit: 200 query {fusion {` + branches + `}} l1 {formula: "f + c"}`, 200 * 50 * 40},
		"rrf":               {`limit: 200 query {fusion {` + branches + `}} l1 {formula: "rrf"}`, 200 * 50 * 80},
		"lists of passages": {`limit: 1 query {boolean {must {match {field: "c" text: "b z"}} should {term {field: "f" term: "a"}}}}`, 200 * 8},
		"lists of filters":  {`limit: 1 query {boolean {must {range {field: "n" min_i64: 7}} should {dense_vector {field: "v" vector: [1, 0]}}}}`, 200 * 8},
		"lists of vectors":  {`limit: 100 query {boolean {must {dense_vector {field: "v" vector: [1, 0]}} should {term {field: "f" term: "z"}}}}`, 100*8 + 100*8},
		"found":             {`limit: 1 query {boolean {must {boolean {should {term {field: "f" term: "a"}} should {term {field: "f" term: "z"}}}} should {term {field: "f" term: "z"}}}}`, 100*8 + 200/8},
		"export":            {`limit: 200 query {fusion {` + branches + `}} score_export {all_passages: true}`, 200 * 50 * 40},
	} {
		held, most := 0, 0
		ix.Hold = func(n int) error {
			held += n
			most = max(most, held)
			return nil
		}
		ask := func(lim summa.Limits) error {
			req := request(t, c.text)
			w, err := lim.CheckSearch(req)
			if err != nil {
				t.Fatal(name, err)
			}
			_, err = summaquery.Search(t.Context(), ix, req, w, lim)
			return err
		}
		if err := ask(summa.Limits{}); err != nil {
			t.Fatal(name, err)
		}
		if most < c.least || held < 0 {
			t.Errorf("%s: %d bytes were held, %d at the end; it has to be %d", name, most, held, c.least)
		}
		ix.Hold = nil
		if err := ask(summa.Limits{MaxSearchHeldBytes: most}); err != nil {
			t.Errorf("%s at the bound: %v", name, err)
		}
		if err := ask(summa.Limits{MaxSearchHeldBytes: most - 1}); err == nil || !strings.Contains(err.Error(), "InvalidArgument: Query error: the search would hold more than") {
			t.Errorf("%s past the bound: %v", name, err)
		}
		full := fmt.Errorf("full")
		left := most / 2
		ix.Hold = func(n int) error {
			if left -= n; left < 0 {
				return full
			}
			return nil
		}
		if err := ask(summa.Limits{}); err != full {
			t.Errorf("%s where all searches together find no room: %v", name, err)
		}
	}
}

// TestRowsKeepTheBudget has a page whose rows take longer than the time budget: the answer says that it is not all.
func TestRowsKeepTheBudget(t *testing.T) {
	ix := small(t, `field f: text<simple> [indexed<token_position>]`, slices.Repeat([]string{textDoc("f", strings.Repeat("a ", 50_000))}, 20)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := search(ctx, ix, request(t, `limit: 20 time_budget_ms: 1 query {term {field: "f" term: "a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	some := 0
	for _, h := range resp.Hits {
		if len(h.OrdinalScores) > 0 {
			some++
		}
	}
	if !resp.Truncated && some < 20 || resp.TookMs > uint64(time.Minute/time.Millisecond) {
		t.Errorf("%d of %d hits have scores of their values, truncated %t, after %d ms", some, len(resp.Hits), resp.Truncated, resp.TookMs)
	}
}

// TestRowsOfSeveralValuesAddUp has the same places in several values, and words that stand at the same place, of several clauses.
func TestRowsOfSeveralValuesAddUp(t *testing.T) {
	ix := small(t, `field f: text<simple> [indexed<token_position>, stored<multi>] field g: text<simple> [indexed<token_position>]`,
		textDoc("f", "b a c a")+textDoc("f", "a b")+textDoc("f", "c a")+textDoc("g", "x a"))
	rows := func(query string) map[uint32][]float32 {
		resp, err := search(t.Context(), ix, request(t, `query {`+query+`}`))
		if err != nil || len(resp.Hits) != 1 {
			t.Fatal(query, err)
		}
		out := map[uint32][]float32{}
		last := uint32(0)
		for _, r := range resp.Hits[0].OrdinalScores {
			if r.Ordinal < last {
				t.Errorf("%s: ordinal %d after %d", query, r.Ordinal, last)
			}
			last = r.Ordinal
			out[r.Ordinal] = append(out[r.Ordinal], r.Score)
		}
		return out
	}
	a, b, g := rows(`term {field: "f" term: "a"}`), rows(`term {field: "f" term: "b"}`), rows(`term {field: "g" term: "a"}`)
	share := a[0][0]
	if len(a) != 3 || a[1][0] != share+share || a[3][0] != share {
		t.Errorf("places of a: %v", a)
	}
	all := rows(`boolean {should {term {field: "g" term: "a"}} should {term {field: "f" term: "a"}} should {term {field: "f" term: "b"}}}`)
	for o, want := range map[uint32][]float32{0: {a[0][0] + b[0][0]}, 1: {g[1][0], a[1][0] + b[1][0]}, 3: {a[3][0]}} {
		if !slices.Equal(all[o], want) {
			t.Errorf("ordinal %d has %v, want %v", o, all[o], want)
		}
	}
}

// BenchmarkTermWithManyPlaces searches documents that have a word very often, with its places.
func BenchmarkTermWithManyPlaces(b *testing.B) {
	ix := small(b, `field f: text<simple> [indexed<positions>]`, slices.Repeat([]string{textDoc("f", strings.Repeat("a ", 32_768))}, 10)...)
	req := request(b, `query {term {field: "f" term: "a"}}`)
	for b.Loop() {
		if _, err := search(b.Context(), ix, req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProximityOfManyPlaces adds the proximity of two words that stand next to each other very often in a document.
func BenchmarkProximityOfManyPlaces(b *testing.B) {
	ix := small(b, `field f: text<simple> [indexed<token_position>]`, textDoc("f", strings.Repeat("a b ", 200_000)))
	req := request(b, `query {match {field: "f" text: "a b" proximity_weight: 1 proximity_window: 64}}`)
	for b.Loop() {
		if _, err := search(b.Context(), ix, req); err != nil {
			b.Fatal(err)
		}
	}
}
