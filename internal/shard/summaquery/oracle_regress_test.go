package summaquery_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
)

// small makes an index of documents given as fields in text form, in one memtable in their order. Their keys go down.
func small(t testing.TB, sdl string, docs ...string) *summaquery.Index {
	t.Helper()
	s := newStore(t, "index s { field id: text<raw> [primary, stored] "+sdl+" }")
	for i, d := range docs {
		doc := &summapb.NamedDocument{}
		if err := prototext.Unmarshal([]byte(d), doc); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint(1000 - i)
		s.apply(s.put(key, append(doc.Fields, &summapb.FieldEntry{Name: "id", Value: oracletest.Text(key)})))
	}
	ix, _ := s.index()
	return ix
}

// texts are documents with one value of a field f each; a bar parts several.
func texts(values ...string) (docs []string) {
	for _, v := range values {
		doc := ""
		for part := range strings.SplitSeq(v, "|") {
			doc += fmt.Sprintf("fields {name: 'f' value {text: %q}} ", part)
		}
		docs = append(docs, doc)
	}
	return docs
}

// ask answers a request in text form: the numbers of documents, each with the ordinals of its rows.
func ask(t *testing.T, ix *summaquery.Index, request string) (string, *summapb.SearchResponse) {
	t.Helper()
	req := &summapb.SearchRequest{}
	if err := prototext.Unmarshal([]byte(request), req); err != nil {
		t.Fatal(err)
	}
	req.IndexName = "s"
	resp, err := search(t.Context(), ix, req)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, h := range resp.Hits {
		one := fmt.Sprint(h.Address.DocId)
		for _, x := range h.OrdinalScores {
			one += fmt.Sprintf(":%d", x.Ordinal)
		}
		out = append(out, one)
	}
	return strings.Join(out, " "), resp
}

func TestWhatIsFound(t *testing.T) {
	numbers := []string{
		`fields {name: "u" value {u64: 9223372036854775808}} fields {name: "f" value {f64: 9007199254740992}}`,
		`fields {name: "u" value {u64: 3}} fields {name: "u" value {u64: 8}} fields {name: "f" value {f64: 9007199254740994}}`,
	}
	numbersSDL := `field u: u64 [indexed, fast] field f: f64 [indexed, fast]`
	bits := `fields {name: "b" value {binary_dense_vector: "a"}} `
	dense := `fields {name: "d" value {dense_vector {values: 1 values: 0}}} `
	two := `fields {name: "d" value {dense_vector {values: 0 values: 1}}} fields {name: "d" value {dense_vector {values: 0.6 values: 0.8}}} `
	vectorsSDL := `field b: binary_dense_vector<8> [indexed<flat>] field d: dense_vector<2> [indexed<flat>] field f: text<simple> [indexed]`
	for _, c := range []struct {
		name, sdl     string
		docs          []string
		request, want string
	}{
		{"a range looks at the first value also where the schema has one", numbersSDL, numbers, `query {range {field: "u" min_u64: 5}}`, "0"},
		{"a range whose first value lies in it", numbersSDL, numbers, `query {range {field: "u" max_u64: 5}}`, "1"},
		{"a bound beyond 2^53 keeps all its digits", numbersSDL, numbers, `query {range {field: "u" min_f64: 9223372036854775808}}`, "0"},
		{"a whole bound that floats do not have is rounded inward, from below", numbersSDL, numbers, `query {range {field: "f" min_u64: 9007199254740993}}`, "1"},
		{"a whole bound that floats do not have is rounded inward, from above", numbersSDL, numbers, `query {range {field: "f" max_i64: 9007199254740993}}`, "0"},
		{"equals nearest to bits stand by place", vectorsSDL, []string{bits, bits, bits}, `query {binary_dense_vector {field: "b" vector: "a"}} limit: 2`, "0:0 1:0"},
		{"equals nearest to a vector stand by place", vectorsSDL, []string{dense, dense, dense}, `query {dense_vector {field: "d" vector: 1 vector: 0}} limit: 1`, "0:0"},
		{
			"the rarest words of a match are looked for alone", `field f: text<simple> [indexed]`, texts("a b", "a", "a c", "b"),
			`query {match {field: "f" text: "a b c" max_terms: 2}}`, "2 3 0",
		},
		{
			"a vector of zeros beside words", vectorsSDL, append(texts("a", "b"), two+texts("a")[0]),
			`query {boolean {must {dense_vector {field: "d" vector: 0 vector: 0}} should {term {field: "f" term: "a"}}}}`, "2:0:1",
		},
		{
			"a vector of zeros orders candidates again", vectorsSDL, append(texts("a", "b"), two+texts("a")[0]),
			`query {all {}} reranker {field: "d" vector: 0 vector: 0}`, "2:0:1",
		},
		{
			"an optional clause that does not match has no rows", `field f: text<simple> [indexed<chunked>]`, texts("a|b", "a|c"),
			`query {boolean {must {term {field: "f" term: "a"}} should {boolean {must {term {field: "f" term: "b"}} must {term {field: "f" term: "c"}}}}}}`, "0:0 1:0",
		},
		{
			"a vector beside words has rows of what it nominated", vectorsSDL,
			[]string{dense + texts("a")[0], two + texts("a b")[0]},
			`query {boolean {should {term {field: "f" term: "a"}} should {boost {boost: 0.01 query {dense_vector {field: "d" vector: 1 vector: 0}}}}}} limit: 1`, "0:0",
		},
		{
			"a window of proximity may be as large as it likes", `field f: text<simple> [indexed<chunked, token_position>]`, texts("a x x x x x b", "a b a b x x x"),
			fmt.Sprintf(`query {match {field: "f" text: "a b" proximity_weight: 1 proximity_window: %d}}`, uint32(math.MaxUint32)), "1:0 0:0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _ := ask(t, small(t, c.sdl, c.docs...), c.request); got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// A boost, or several, multiply all of the score of a match: its proximity too, and passages as they score without one.
func TestBoostsMultiplyTheWholeScore(t *testing.T) {
	for _, sdl := range []string{`field f: text<simple> [indexed<chunked, token_position>]`, `field f: text<simple> [indexed<token_position>]`} {
		ix := small(t, sdl, texts("a b x", "a x b|b", "x a")...)
		match := `query {match {field: "f" text: "a b" proximity_weight: 1}}`
		_, once := ask(t, ix, match)
		_, boosted := ask(t, ix, `query {boost {boost: 2 query {boost {boost: 4 `+match+`}}}}`)
		if len(once.Hits) != 3 || len(boosted.Hits) != 3 {
			t.Fatalf("%s: %d and %d hits", sdl, len(once.Hits), len(boosted.Hits))
		}
		for i, h := range boosted.Hits {
			if h.Score != 8*once.Hits[i].Score {
				t.Errorf("%s: hit %d scores %v, without boosts %v", sdl, i, h.Score, once.Hits[i].Score)
			}
		}
	}
}

// Of more optional clauses than take part, a phrase of one word is as rare as its word.
func TestPhraseOfOneWordIsAsRareAsTheWord(t *testing.T) {
	ix := small(t, `field f: text<simple> [indexed<token_position>]`, texts("b a", "b a", "rare a")...)
	clauses := `should {phrase {field: "f" text: "rare"}} ` + strings.Repeat(`should {term {field: "f" term: "a"}} `, 70)
	if got, _ := ask(t, ix, `query {boolean {`+clauses+`}} limit: 1`); !strings.HasPrefix(got, "2:") {
		t.Errorf("found %q", got)
	}
}

// A window wider than any distance counts every pair, as one of 100 does here.
func TestWideWindowCountsEveryPair(t *testing.T) {
	for _, sdl := range []string{`field f: text<simple> [indexed<chunked, token_position>]`, `field f: text<simple> [indexed<token_position>]`} {
		ix := small(t, sdl, texts("a x x b x", "b x x x x a a|a b")...)
		request := `query {match {field: "f" text: "a b" proximity_weight: 1 proximity_window: %d}}`
		_, near := ask(t, ix, fmt.Sprintf(request, 100))
		_, wide := ask(t, ix, fmt.Sprintf(request, uint32(math.MaxUint32)))
		for i := range near.Hits {
			if near.Hits[i].Score != wide.Hits[i].Score {
				t.Errorf("%s: document %d scores %v, with the wide window %v", sdl, i, near.Hits[i].Score, wide.Hits[i].Score)
			}
		}
	}
}

// The words of a match that score are chosen, and their occurrences scored, by the statistics that came with the request.
func TestGivenStatisticsChooseTheWords(t *testing.T) {
	ix := small(t, `field f: text<simple> [indexed<positions>]`, texts("a b", "a", "a")...)
	stats := `text_stats {fields {field: "f" corpus_size: 100 avg_len: 2 terms {term: "a" doc_freq: 3} terms {term: "b" doc_freq: 90}}}`
	got, resp := ask(t, ix, `query {match {field: "f" text: "a b" max_terms: 1}} `+stats)
	if got != "1:0 2:0 0:0" {
		t.Errorf("found %q", got)
	}
	for _, h := range resp.Hits {
		if h.Score != h.OrdinalScores[0].Score {
			t.Errorf("document %d scores %v, its only occurrence %v", h.Address.DocId, h.Score, h.OrdinalScores[0].Score)
		}
	}
}

// The exact average of the extension is total_tokens by docs_with_field, also for passages.
func TestGivenAverageOfPassages(t *testing.T) {
	ix := small(t, `field f: text<simple> [indexed<chunked>]`, texts("a b c", "a")...)
	stats := func(s string) float32 {
		_, resp := ask(t, ix, `query {term {field: "f" term: "a"}} text_stats {fields {field: "f" corpus_size: 90 terms {term: "a" doc_freq: 3} `+s+`}}`)
		return resp.Hits[0].Score
	}
	if a, b := stats("avg_len: 5"), stats("total_tokens: 50 docs_with_field: 10"); a != b {
		t.Errorf("scores %v by an average of 5, %v by 50 tokens in 10", a, b)
	}
}

// The scores that a formula or an export needs of documents that a branch did not nominate are those that it would nominate them with.
func TestScoresThatAreFilledIn(t *testing.T) {
	chunks := `field f: text<simple> [indexed<chunked, token_position>, stored<multi>] field g: text<simple> [indexed] field s: sparse_vector [indexed<format: maxscore>, stored<multi>]`
	doc := func(g string, f ...string) (d string) {
		for _, v := range f {
			d += fmt.Sprintf(`fields {name: "f" value {text: %q}} `, v)
		}
		return d + fmt.Sprintf(`fields {name: "g" value {text: %q}} `, g)
	}
	for _, c := range []struct{ name, branch string }{
		{"words of one passage", `query {match {field: "f" text: "a b"}}`},
		{"words that stand near each other", `query {match {field: "f" text: "a b" proximity_weight: 1}}`},
		{"boosted", `query {boost {boost: -2 query {match {field: "f" text: "a b" proximity_weight: 1}}}}`},
		{"words in a list", `query {boolean {should {term {field: "f" term: "a"}} should {term {field: "f" term: "b"}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ix := small(t, chunks, doc("x", "a b", "a x b"), doc("x", "a", "b b a"), doc("x", "x"))
			ask1 := func(scope, only, name string) *summapb.SearchResponse {
				_, resp := ask(t, ix, `query {fusion {queries {name: "x" scope: SCORE_SCOPE_DOCUMENT query {term {field: "g" term: "x"}}} queries {name: "`+name+`" scope: `+scope+` score_only: `+only+" "+c.branch+`}}} limit: 9 score_export {}`)
				return resp
			}
			for _, scope := range []string{"SCORE_SCOPE_DOCUMENT", "SCORE_SCOPE_CHUNK"} {
				nominated, filled := ask1(scope, "false", "y"), ask1(scope, "true", "y")
				for i, h := range nominated.Hits {
					a, b := h.CandidateScores, filled.Hits[i].CandidateScores
					for _, p := range b.Passages { // rows that nobody nominates are not there
						for _, q := range a.Passages {
							if q.Ordinal == p.Ordinal && q.Scores["y"] != p.Scores["y"] {
								t.Errorf("%s: document %d, passage %d: %v filled in, %v nominated", scope, i, p.Ordinal, p.Scores, q.Scores)
							}
						}
					}
					if a.Document["y"] != b.Document["y"] {
						t.Errorf("%s: document %d: %v filled in, %v nominated", scope, i, b.Document, a.Document)
					}
				}
			}
		})
	}
	sparse := func(pairs ...float32) string { return strings.ReplaceAll(sparseDoc(pairs...), "\n", "") }
	ix := small(t, chunks, doc("x", "a", "a")+sparse(1, 1)+sparse(2, 3)+sparse(3, 1))
	_, resp := ask(t, ix, `query {fusion {queries {name: "a" scope: SCORE_SCOPE_CHUNK query {term {field: "f" term: "a"}}} queries {name: "s" score_only: true scope: SCORE_SCOPE_CHUNK query {sparse_vector {field: "s" indices: 2 values: 2}}}}} limit: 9 score_export {all_passages: true}`)
	var got []string
	for _, p := range resp.Hits[0].CandidateScores.Passages {
		s, ok := p.Scores["s"]
		got = append(got, fmt.Sprint(p.Ordinal, " ", s, " ", ok))
	}
	if want := "0 0 true, 1 6 true, 2 0 true"; strings.Join(got, ", ") != want {
		t.Errorf("values of a sparse field score %q, want %q", strings.Join(got, ", "), want)
	}
}

// A slop reaches as far as it says within a passage, and into no other.
func TestSlopOfALongPassage(t *testing.T) {
	far := strings.Repeat("x ", 40_000)
	ix := small(t, `field c: text<simple> [indexed<chunked, token_position>]`,
		textDoc("c", "a "+far+"b")+textDoc("c", "c"), textDoc("c", "a "+far)+textDoc("c", "b"))
	for slop, want := range map[uint32]string{100: "", 39_999: "", 40_000: "0:0", 1 << 20: "0:0", 1<<32 - 1: "0:0"} {
		if got, _ := ask(t, ix, fmt.Sprintf(`limit: 5 query {phrase {field: "c" text: "a b" slop: %d}}`, slop)); got != want {
			t.Errorf("slop %d: %q, want %q", slop, got, want)
		}
	}
}
