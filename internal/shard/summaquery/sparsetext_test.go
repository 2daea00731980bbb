package summaquery_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/text/subword"
)

// models makes a folder with two models: both has weights, plain has none.
func models(t *testing.T) *subword.Store {
	t.Helper()
	dir := t.TempDir()
	put := func(name, data string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const tokenizer = `{"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
		"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "sea": 1, "##s": 2, "lamp": 3, "blue": 4, "far": 70000}}}`
	put("both/tokenizer.json", tokenizer)
	put("both/idf.json", `{"sea": 0.5, "lamp": 3}`)
	put("org/plain/tokenizer.json", tokenizer)
	put("bad/tokenizer.json", `{"model": {"type": "WordLevel", "vocab": {"a": 1}}}`)
	return subword.NewStore(dir)
}

func sparseDoc(pairs ...float32) string {
	var b strings.Builder
	b.WriteString(`fields {name: "s" value {sparse_vector {`)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "indices: %v values: %v ", pairs[i], pairs[i+1])
	}
	return b.String() + "}}} "
}

// TestTextsInSparseVectors searches for texts whose tokens are dimensions: each of them once, weighed as the field says.
func TestTextsInSparseVectors(t *testing.T) {
	docs := []string{sparseDoc(1, 1, 3, 2), sparseDoc(1, 4), sparseDoc(2, 1) + sparseDoc(1, 1), sparseDoc(4, 1)}
	ln := func(n, df float64) float64 { return float64(float32(math.Log(n / df))) }
	for _, c := range []struct {
		name, query, request string
		want                 map[uint32]float64 // scores by document
		bad                  string
	}{
		{"one", `tokenizer: "both"`, `text: "Sea lamp SEA"`, map[uint32]float64{0: 3, 1: 4, 2: 1}, ""},
		{"one by its name", `tokenizer: "org/plain", weighting: one`, `text: "seas"`, map[uint32]float64{0: 1, 1: 4, 2: 2}, ""},
		{"idf", `tokenizer: "both", weighting: idf`, `text: "sea lamp blue"`, map[uint32]float64{0: ln(5, 3) + 2*ln(5, 1), 1: 4 * ln(5, 3), 2: ln(5, 3), 3: ln(5, 1)}, ""},
		{"idf of a file", `tokenizer: "both", weighting: idf_file`, `text: "sea lamp blue"`, map[uint32]float64{0: 6.5, 1: 2, 2: 0.5, 3: 1}, ""},
		{"heaviest of the field", `tokenizer: "both", weighting: idf_file, max_dims: 1`, `text: "sea lamp blue"`, map[uint32]float64{0: 6}, ""},
		{"heaviest of the query", `tokenizer: "both", weighting: idf_file, max_dims: 1`, `text: "sea lamp blue" max_query_dims: 2`, map[uint32]float64{0: 6, 3: 1}, ""},
		{"threshold of the field", `tokenizer: "both", weighting: idf_file, weight_threshold: 0.7`, `text: "sea lamp blue"`, map[uint32]float64{0: 6, 3: 1}, ""},
		{"share of the field", `tokenizer: "both", weighting: idf_file, pruning: 0.3`, `text: "sea lamp blue"`, map[uint32]float64{0: 6}, ""},
		{"share of the field, of a vector", `pruning: 0.5`, `indices: 1 indices: 4 values: 1 values: 2`, map[uint32]float64{3: 2}, ""},
		{"words that nobody knows", `tokenizer: "both"`, `text: "nothing [UNK]"`, map[uint32]float64{}, ""},
		{"no config", ``, `text: "sea"`, nil, "Invalid query: Field 's' has no query config"},
		{"no tokenizer", `weighting: idf`, `text: "sea"`, nil, "Invalid query: Field 's' has no tokenizer in its query config"},
		{"a tokenizer that is not here", `tokenizer: "org/other"`, `text: "sea"`, nil, "Invalid query: Field 's': the tokenizer of 'org/other' is not in the folder of tokenizers"},
		{"a place outside", `tokenizer: "../both"`, `text: "sea"`, nil, "Invalid query: Field 's': the tokenizer of '../both' is not in the folder of tokenizers"},
		{"another kind", `tokenizer: "bad"`, `text: "sea"`, nil, `Invalid query: Field 's': the tokenizer of 'bad' cannot be used: its model is "WordLevel"; only WordPiece, BPE and Unigram are known`},
		{"no weights", `tokenizer: "org/plain", weighting: idf_file`, `text: "sea"`, nil, "Invalid query: Field 's': the idf.json of 'org/plain' is not in the folder of tokenizers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sdl := `field s: sparse_vector [indexed<format: maxscore>, stored<multi>]`
			if c.query != "" {
				sdl = strings.Replace(sdl, "maxscore", "maxscore, query<"+c.query+">", 1)
			}
			ix := small(t, sdl, docs...)
			ix.Models = models(t)
			req := &summapb.SearchRequest{}
			if err := prototext.Unmarshal([]byte(`index_name: "t" limit: 10 query {sparse_vector {field: "s" combiner: COMBINER_SUM `+c.request+`}}`), req); err != nil {
				t.Fatal(err)
			}
			resp, err := search(t.Context(), ix, req)
			if c.bad != "" {
				if bad, ok := errors.AsType[*summa.Error](err); !ok || bad.Text != c.bad {
					t.Errorf("got %v, want %q", err, c.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[uint32]float64{}
			for _, h := range resp.Hits {
				got[h.Address.DocId] = float64(h.Score)
			}
			for doc, want := range c.want {
				if s, ok := got[doc]; !ok || math.Abs(s-want) > 1e-6 {
					t.Errorf("document %d scores %v, want %v", doc, s, want)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("found %v, want %v", got, c.want)
			}
		})
	}
	narrow := small(t, `field s: sparse_vector<u16> [indexed<query<tokenizer: "both">>]`, docs...)
	narrow.Models = models(t)
	if got, _ := ask(t, narrow, `query {sparse_vector {field: "s" text: "far lamp"}}`); got != "0:0" {
		t.Errorf("found %q by a token that the field cannot have and one that it has", got)
	}
	ix := small(t, `field s: sparse_vector [indexed<query<tokenizer: "both">>]`, docs...)
	req := &summapb.SearchRequest{IndexName: "t", Limit: 10, Query: &summapb.Query{Query: &summapb.Query_SparseVector{SparseVector: &summapb.SparseVectorQuery{Field: "s", Text: "sea"}}}}
	if _, err := search(t.Context(), ix, req); err == nil || !strings.Contains(err.Error(), "no folder of tokenizers") {
		t.Error(err)
	}
}

// The weights of a text count live values, however they are spread over segments, in memory or dead.
func TestFrequenciesOfTextsAreOfLiveValues(t *testing.T) {
	s := newStore(t, `index t { field id: text<raw> [primary, stored] field s: sparse_vector [indexed<format: maxscore, query<tokenizer: "both", weighting: idf>>, stored<multi>] }`)
	put := func(key, doc string) {
		m := &summapb.NamedDocument{}
		if err := prototext.Unmarshal([]byte(`fields {name: "id" value {text: "`+key+`"}} `+doc), m); err != nil {
			t.Fatal(err)
		}
		s.apply(s.put(key, m.Fields))
	}
	for i := range 10 {
		put(fmt.Sprint("k", i), sparseDoc(1, 1)+sparseDoc(4, 1))
		if i == 4 {
			s.flush()
		}
	}
	put("k0", sparseDoc(1, 1)+sparseDoc(3, 1)) // in place of one in a segment
	s.apply(s.drop("k1"), s.drop("k9"))
	ask := func() float32 {
		ix, _ := s.index()
		ix.Models = models(t)
		req := &summapb.SearchRequest{IndexName: "t", Limit: 1, Query: &summapb.Query{Query: &summapb.Query_SparseVector{SparseVector: &summapb.SparseVectorQuery{Field: "s", Text: "blue"}}}}
		resp, err := search(context.Background(), ix, req)
		if err != nil || len(resp.Hits) != 1 {
			t.Fatal(resp, err)
		}
		return resp.Hits[0].Score
	}
	want := float32(math.Log(16.0 / 7))
	if got := ask(); got != want {
		t.Errorf("scores %v, want %v", got, want)
	}
	s.flush()
	s.merge(1)
	if got := ask(); got != want {
		t.Errorf("merged, it scores %v, want %v", got, want)
	}
}
