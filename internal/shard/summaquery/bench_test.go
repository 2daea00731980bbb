package summaquery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// BenchmarkSearch searches 20,000 documents of some thirty words, each also in three passages, and a vector of 32 dimensions.
func BenchmarkSearch(b *testing.B) {
	sch, err := summa.ParseSchema(`index t {
		field id: text<raw> [primary, stored] field plain: text [indexed<token_position>, stored] field body: text [indexed<chunked, token_position>, stored<multi>]
		field year: u64 [fast, stored] field emb: dense_vector<32> [indexed<flat>, stored] }`)
	if err != nil {
		b.Fatal(err)
	}
	s, err := shard.Open(b.Context(), shard.Config{Dir: "d", FS: memfs.New(nil), Schema: sch, NoBackground: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	r := rand.New(rand.NewPCG(1, 1))
	words := func(n int) string {
		var w []string
		for range n {
			// Frequencies fall as 1/rank.
			w = append(w, fmt.Sprint("w", int(float64(2000)*r.Float64()*r.Float64()*r.Float64())))
		}
		return strings.Join(w, " ")
	}
	for range 20 {
		var ops []shard.Op
		for range 1000 {
			v := make([]float32, 32)
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			ops = append(ops, shard.Op{Doc: &schema.Document{Key: fmt.Sprint(r.Uint64()), Source: []byte(`{"id":"x"}`), Fields: []schema.Values{
				{Field: 1, Text: []string{words(30)}},
				{Field: 2, Text: []string{words(10), words(10), words(10)}},
				{Field: 3, Nums: []uint64{uint64(r.IntN(100))}},
				{Field: 4, Bytes: [][]byte{schema.AppendDense(nil, v)}},
			}}})
		}
		if _, err := s.Apply(b.Context(), ops); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	sn := s.Snapshot()
	defer sn.Release()
	an, err := exec.NewAnalyzers(sn.Schema())
	if err != nil {
		b.Fatal(err)
	}
	ix := &summaquery.Index{Schema: sn.Schema(), Analyzers: an, Leaves: sn.Leaves(), Segments: []string{sn.SegmentID(0)}, Cache: &summaquery.Cache{}}
	vector := strings.TrimSuffix(strings.Repeat("0.5,", 32), ",")
	dense := `{"denseVector":{"field":"emb","vector":[` + vector + `]}}`
	passages := `{"match":{"field":"body","text":"w3 w20 w150"}}`
	var lim summa.Limits
	for _, c := range []struct{ name, body string }{
		{"term", `"query":{"term":{"field":"plain","term":"w20"}}`},
		{"match", `"query":{"match":{"field":"plain","text":"w3 w20 w150"}}`},
		{"phrase", `"query":{"phrase":{"field":"plain","text":"w3 w20"}}`},
		{"passages", `"query":` + passages},
		{"passages filtered", `"query":{"boolean":{"must":[{"range":{"field":"year","minU64":50}}],"should":[` + passages + `]}}`},
		{"dense", `"query":` + dense},
		{"fusion", `"query":{"fusion":{"queries":[{"query":` + passages + `},{"query":` + dense + `}]}}`},
		{"formula", `"query":{"fusion":{"queries":[{"query":` + passages + `,"name":"a","scope":"SCORE_SCOPE_CHUNK"},{"query":` + dense + `,"name":"b","scope":"SCORE_SCOPE_DOCUMENT"}]}},"l1":{"formula":"a+b"}`},
	} {
		req := &summapb.SearchRequest{}
		if err := protojson.Unmarshal([]byte(`{"indexName":"t","limit":10,"fieldsToLoad":["id"],`+c.body+`}`), req); err != nil {
			b.Fatal(err)
		}
		w, err := lim.CheckSearch(req)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := summaquery.Search(b.Context(), ix, req, w, lim); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
