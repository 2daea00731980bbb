package shard

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// The figures that Lucene's EnglishAnalyzer with BM25 (k1 1.2, b 0.75) reaches on this copy of Cranfield; see docs/quality.md.
const (
	cranfieldNDCG10 = 0.5167
	cranfieldMAP    = 0.4204
)

// TestRankingQuality holds BM25 over English stems to the published figures: nDCG@10 and mean average precision over the first
// 1,000. It prints the figures of the other tokenizers that an English collection may use.
func TestRankingQuality(t *testing.T) {
	dir := corpus.Dir(t, "cranfield")
	ndcg, ap := cranfield(t, dir, "lex(default: en, stop_words: true, stem: snowball)")
	if ndcg < cranfieldNDCG10 || ap < cranfieldMAP {
		t.Errorf("nDCG@10 %.4f and MAP %.4f, want at least %.4f and %.4f", ndcg, ap, cranfieldNDCG10, cranfieldMAP)
	}
	if testing.Short() {
		return
	}
	for _, analyzer := range []string{"en_stem_stop", "en_stem", "lex(default: en)", "standard"} {
		cranfield(t, dir, analyzer)
	}
}

func cranfield(t *testing.T, dir, analyzer string) (ndcg, ap float64) {
	t.Helper()
	cfg := config(t, memfs.New(nil))
	cfg.Schema = &schema.Schema{Name: "cranfield", Generation: 1, Fields: []schema.Field{
		{Name: "id", Type: schema.Text, Tokenizer: "raw", Indexed: true, Stored: true, Fast: true, Primary: true, K1: schema.DefaultK1, B: schema.DefaultB},
		{Name: "body", Type: schema.Text, Tokenizer: analyzer, Indexed: true, Stored: true, K1: schema.DefaultK1, B: schema.DefaultB},
	}}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeShard(t, s)
	var ops []Op
	lines(t, filepath.Join(dir, "corpus.jsonl.gz"), func(line []byte) {
		var d struct {
			ID    string `json:"_id"`
			Title string `json:"title"`
			Text  string `json:"text"`
		}
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatal(err)
		}
		ops = append(ops, Op{Doc: &schema.Document{Key: d.ID, Fields: []schema.Values{{Field: 1, Text: []string{d.Title + " " + d.Text}}}}})
	})
	// Half of it in a segment, half in the memtable: an answer may not depend on where a document stands.
	for _, half := range [][]Op{ops[:len(ops)/2], ops[len(ops)/2:]} {
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(t.Context(), half); err != nil {
			t.Fatal(err)
		}
	}
	sn := s.Snapshot()
	defer sn.Release()
	rel := map[string]map[string]bool{}
	lines(t, filepath.Join(dir, "qrels.tsv"), func(line []byte) {
		p := strings.Split(string(line), "\t")
		if len(p) != 3 || p[2] != "1" {
			return
		}
		if rel[p[0]] == nil {
			rel[p[0]] = map[string]bool{}
		}
		rel[p[0]][p[1]] = true
	})
	n := 0
	lines(t, filepath.Join(dir, "queries.jsonl"), func(line []byte) {
		var q struct {
			ID   string `json:"_id"`
			Text string `json:"text"`
		}
		if err := json.Unmarshal(line, &q); err != nil {
			t.Fatal(err)
		}
		res, err := exec.Search(t.Context(), sn.Leaves(), sn.Schema(), testAnalyzers(t, sn.Schema()),
			exec.Request{Query: &query.Match{Field: "body", Text: q.Text}, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		good := rel[q.ID]
		if len(good) == 0 {
			return
		}
		n++
		var dcg, ideal, sum float64
		found := 0
		for i, h := range res.Hits {
			if i < 10 && i < len(good) {
				ideal += 1 / math.Log2(float64(i+2))
			}
			if !good[h.Key] {
				continue
			}
			if i < 10 {
				dcg += 1 / math.Log2(float64(i+2))
			}
			found++
			sum += float64(found) / float64(i+1)
		}
		ndcg += dcg / ideal
		ap += sum / float64(len(good))
	})
	ndcg, ap = ndcg/float64(n), ap/float64(n)
	t.Logf("cranfield, %s, BM25 1.2/0.75, %d queries: nDCG@10 %.4f, MAP %.4f", analyzer, n, ndcg, ap)
	return ndcg, ap
}

func lines(t *testing.T, path string, fn func([]byte)) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		sc = bufio.NewScanner(z)
	}
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		fn(sc.Bytes())
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
}
