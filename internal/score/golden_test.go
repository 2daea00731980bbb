package score_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/score"
)

type address struct {
	Segment string `json:"segment_id"`
	Doc     uint32 `json:"doc_id"`
}

func byAddress(a, b address) int {
	return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Doc, b.Doc))
}

type passage struct {
	Ordinal uint32
	Score   float32
}

type candidate struct {
	Address  address
	Score    float32
	Ordinals []passage `json:"ordinal_scores"`
	RRF      *float32  `json:"rrf_score"`
	Votes    []struct {
		Branch  int `json:"query_index"`
		Rank    uint32
		Score   float32
		Ordinal *uint32
	} `json:"rrf_contributions"`
}

type branch struct {
	Index      int `json:"query_index"`
	Candidates []candidate
}

type reply struct {
	Hits     []candidate
	Method   string   `json:"ranking_method"`
	Branches []branch `json:"fusion_candidates"`
}

type goldenCase struct {
	Name    string
	Code    string
	Request struct {
		Query struct {
			Fusion struct {
				Queries []struct {
					Weight *float32
					Scope  string
				}
				Method   string
				K        float32 `json:"rrf_k"`
				Combiner string
			}
		}
		Limit, Offset int
		L1            *struct{ Formula string }
		Export        *struct{} `json:"score_export"`
	}
	Response reply
	Nodes    []struct {
		Code     string
		RPC      string
		Response reply
	}
}

// golden calls f for every case of a file of recorded answers.
func golden(t *testing.T, file string, f func(c *goldenCase)) {
	r, err := os.Open(filepath.Join(corpus.Dir(t, "summa-golden"), file))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(z)
	in.Buffer(nil, 1<<26)
	for in.Scan() {
		if !strings.Contains(in.Text(), `"fusion"`) {
			continue
		}
		var c goldenCase
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			var of *json.UnmarshalTypeError
			if errors.As(err, &of) {
				continue // a stream, or bytes where others have text
			}
			t.Fatal(err)
		}
		f(&c)
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
}

var combiners = map[string]score.CombinerKind{
	"": score.LogSumExp, "COMBINER_LOG_SUM_EXP": score.LogSumExp, "COMBINER_MAX": score.Max, "COMBINER_AVG": score.Avg, "COMBINER_SUM": score.Sum,
	"COMBINER_WEIGHTED_TOP_K": score.WeightedTopK,
}

// branches gathers the lists that the nodes answered with.
func (c *goldenCase) branches() []score.Branch[address] {
	out := make([]score.Branch[address], len(c.Request.Query.Fusion.Queries))
	for i, q := range c.Request.Query.Fusion.Queries {
		out[i].Weight = 1
		if q.Weight != nil && *q.Weight != 0 {
			out[i].Weight = *q.Weight
		}
		out[i].Whole = (c.Request.L1 != nil || c.Request.Export != nil) && q.Scope == "SCORE_SCOPE_DOCUMENT"
	}
	for _, n := range c.Nodes {
		for _, b := range n.Response.Branches {
			for _, h := range b.Candidates {
				to := &out[b.Index]
				if len(h.Ordinals) == 0 {
					to.Hits = append(to.Hits, score.Hit[address]{Doc: h.Address, Score: h.Score})
				}
				for _, o := range h.Ordinals {
					to.Hits = append(to.Hits, score.Hit[address]{Doc: h.Address, Ordinal: o.Ordinal, Score: o.Score})
				}
			}
		}
	}
	return out
}

// TestFusedScoresAreTheRecordedOnes compares bits.
func TestFusedScoresAreTheRecordedOnes(t *testing.T) {
	cases := 0
	golden(t, "broker-fusion.jsonl.gz", func(c *goldenCase) {
		if c.Code != "OK" || !strings.HasPrefix(c.Response.Method, "global_") {
			return
		}
		cases++
		f := score.Fusion{K: c.Request.Query.Fusion.K, Combiner: score.Combiner{Kind: combiners[c.Request.Query.Fusion.Combiner]}}
		if c.Request.Query.Fusion.Method == "FUSION_NORMALIZED_WEIGHTED_SUM" {
			f.Method = score.WeightedSum
		}
		got, err := score.Fuse(f, c.branches(), byAddress)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			return
		}
		limit := c.Request.Limit
		if limit == 0 {
			limit = 10
		}
		got = got[min(c.Request.Offset, len(got)):min(c.Request.Offset+limit, len(got))]
		if len(got) != len(c.Response.Hits) {
			t.Errorf("%s: %d hits, want %d", c.Name, len(got), len(c.Response.Hits))
			return
		}
		for i, want := range c.Response.Hits {
			if got[i].Doc != want.Address || math.Float32bits(got[i].Score) != math.Float32bits(want.Score) {
				t.Errorf("%s: hit %d is %v %v, want %v %v", c.Name, i, got[i].Doc, got[i].Score, want.Address, want.Score)
				return
			}
			for j, o := range want.Ordinals {
				if j >= len(got[i].Passages) || got[i].Passages[j] != score.Passage(o) {
					t.Errorf("%s: hit %d has passages %v, want %v", c.Name, i, got[i].Passages, want.Ordinals)
					return
				}
			}
		}
	})
	if cases < 20 {
		t.Errorf("only %d cases", cases)
	}
}

// TestVotesAreTheRecordedOnes compares the RRF diagnostics: votes, and their sum for a document.
func TestVotesAreTheRecordedOnes(t *testing.T) {
	cases := 0
	for _, file := range []string{"broker-fusion.jsonl.gz", "broker-formula.jsonl.gz"} {
		golden(t, file, func(c *goldenCase) {
			if c.Code != "OK" || len(c.Response.Hits) == 0 || c.Response.Hits[0].RRF == nil {
				return
			}
			cases++
			f := score.Fusion{K: c.Request.Query.Fusion.K, Combiner: score.Combiner{Kind: combiners[c.Request.Query.Fusion.Combiner]}}
			got, err := score.Fuse(f, c.branches(), byAddress)
			if err != nil {
				t.Errorf("%s: %v", c.Name, err)
				return
			}
			of := map[address]score.Fused[address]{}
			for _, g := range got {
				of[g.Doc] = g
			}
			for i, want := range c.Response.Hits {
				g, ok := of[want.Address]
				if !ok || g.Score != *want.RRF || len(g.Votes) != len(want.Votes) {
					t.Errorf("%s: hit %d: %+v, want %+v %v", c.Name, i, g, want, *want.RRF)
					return
				}
				for j, v := range want.Votes {
					w := score.Vote{Branch: v.Branch, Rank: v.Rank, Score: v.Score, Whole: v.Ordinal == nil}
					if v.Ordinal != nil {
						w.Ordinal = *v.Ordinal
					}
					if g.Votes[j] != w {
						t.Errorf("%s: hit %d: vote %d is %+v, want %+v", c.Name, i, j, g.Votes[j], w)
					}
				}
			}
		})
	}
	if cases < 3 {
		t.Errorf("only %d cases", cases)
	}
}

// TestFormulaRRFIsTheRecordedOne takes the cases whose formula is rrf alone: its value for each passage is the document's fused score there.
func TestFormulaRRFIsTheRecordedOne(t *testing.T) {
	cases := 0
	golden(t, "broker-formula.jsonl.gz", func(c *goldenCase) {
		if c.Code != "OK" || c.Request.L1 == nil || c.Request.L1.Formula != "rrf" {
			return
		}
		cases++
		got, err := score.Fuse(score.Fusion{}, c.branches(), byAddress)
		if err != nil {
			t.Fatal(err)
		}
		of := map[address]map[uint32]float32{}
		for _, g := range got {
			of[g.Doc] = map[uint32]float32{}
			for _, p := range g.Passages {
				of[g.Doc][p.Ordinal] = p.Score
			}
		}
		for _, h := range c.Response.Hits {
			for _, o := range h.Ordinals {
				if g, ok := of[h.Address][o.Ordinal]; ok && g != o.Score {
					t.Errorf("%s: %v ordinal %d: %v, want %v", c.Name, h.Address, o.Ordinal, g, o.Score)
				}
			}
		}
	})
	if cases == 0 {
		t.Error("no case")
	}
}
