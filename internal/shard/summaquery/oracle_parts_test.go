package summaquery_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
)

// Statistics that are gathered from parts of an index, summed and sent along score the documents of each part as one index with all of
// them does, to the bit; of a single part too.
func TestStatisticsOfPartsScoreAsTheWhole(t *testing.T) {
	seed := oracletest.Seed(t)
	for round := range oracletest.Rounds(4, 1000) {
		if !oracletest.Only(round) {
			continue
		}
		w := oracletest.NewWorld(seed, uint64(round))
		sdl := oracletest.SDL(w.One([]string{"", ", query<max_terms: 3>"}))
		n := 6 + w.IntN(40)
		whole := newStore(t, sdl)
		whole.fill(w, n)
		ix, o := whole.index()
		parts := []*store{newStore(t, sdl), newStore(t, sdl), newStore(t, sdl)}[:1+w.IntN(3)]
		for i, d := range o.Places() {
			p := parts[w.IntN(len(parts))]
			p.apply(p.put(d.Key, whole.live[d.Key]))
			if i%7 == 3 {
				p.flush()
			}
		}
		var indexes []*summaquery.Index
		var oracles []*oracletest.Oracle
		for _, p := range parts {
			x, y := p.index()
			indexes, oracles = append(indexes, x), append(oracles, y)
		}
		for range 60 {
			req := w.Request(n, true)
			req.TextStats, req.Reranker = nil, nil
			if req.Query.GetFusion() != nil {
				continue
			}
			differ := func(req *summapb.SearchRequest) string {
				want, err := byKey(t, ix, o, req)
				if err != nil {
					return ""
				}
				sum := &summapb.TextStats{}
				for _, x := range indexes {
					st, err := summaquery.TextStats(t.Context(), x, req.Query, summa.Limits{})
					if err != nil {
						return fmt.Sprint("statistics: ", err)
					}
					addStats(sum, st)
				}
				var got []string
				for i, x := range indexes {
					given := proto.CloneOf(req)
					given.TextStats = sum
					list, err := byKey(t, x, oracles[i], given)
					if err != nil {
						return fmt.Sprintf("part %d: %v", i, err)
					}
					got = append(got, list...)
				}
				total := func(s string) bool { return strings.HasPrefix(s, "total ") } // of phrases it tells how they were found
				got, want = slices.DeleteFunc(got, total), slices.DeleteFunc(want, total)
				slices.Sort(got)
				for k := range max(len(got), len(want)) {
					if at(got, k) != at(want, k) {
						return fmt.Sprintf("of %d parts:\n%s\nof the whole:\n%s", len(indexes), at(got, k), at(want, k))
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

// addStats adds statistics as a coordinator does that knows the extension of weft.
func addStats(sum, st *summapb.TextStats) {
	sum.TotalDocs += st.TotalDocs
	for _, f := range st.Fields {
		i := slices.IndexFunc(sum.Fields, func(g *summapb.TextFieldStats) bool { return g.Field == f.Field })
		if i < 0 {
			i = len(sum.Fields)
			sum.Fields = append(sum.Fields, &summapb.TextFieldStats{Field: f.Field})
		}
		g := sum.Fields[i]
		g.CorpusSize += f.CorpusSize
		g.TotalTokens += f.TotalTokens
		g.DocsWithField += f.DocsWithField
		g.ChunkLengths, g.ChunkCounts = append(g.ChunkLengths, f.ChunkLengths...), append(g.ChunkCounts, f.ChunkCounts...)
		for _, x := range f.Terms {
			k := slices.IndexFunc(g.Terms, func(y *summapb.TermDocFreq) bool { return string(x.Term) == string(y.Term) })
			if k < 0 {
				k = len(g.Terms)
				g.Terms = append(g.Terms, &summapb.TermDocFreq{Term: x.Term})
			}
			g.Terms[k].DocFreq += x.DocFreq
		}
	}
}
