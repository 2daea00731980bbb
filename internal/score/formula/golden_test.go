package formula_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/score/formula"
)

type address struct {
	Segment string `json:"segment_id"`
	Doc     uint32 `json:"doc_id"`
}

type passage struct {
	Ordinal uint32
	Score   float32
}

type hit struct {
	Address  address
	Score    float32
	Ordinals []passage `json:"ordinal_scores"`
	Cells    *struct {
		Document map[string]float32
		Passages []struct {
			Ordinal uint32
			Scores  map[string]float32
		}
	} `json:"candidate_scores"`
}

type reply struct {
	Hits     []hit
	Method   string `json:"ranking_method"`
	Branches []struct {
		Index      int `json:"query_index"`
		Candidates []hit
	} `json:"fusion_candidates"`
}

type recorded struct {
	Name, Code, Message string
	Request             struct {
		Query struct {
			Fusion struct {
				Queries []struct {
					Name, Scope string
					ScoreOnly   bool `json:"score_only"`
				}
				Combiner string
			}
		}
		Limit, Offset int
		L1            *struct {
			Formula string
			Missing map[string]float64 `json:"missing_values"`
		}
	}
	Response reply
	Nodes    []struct {
		Response reply
	}
}

func cases(t *testing.T) []recorded {
	f, err := os.Open(filepath.Join(corpus.Dir(t, "summa-golden"), "broker-formula.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(z)
	in.Buffer(nil, 1<<26)
	var out []recorded
	for in.Scan() {
		var c recorded
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			if strings.Contains(in.Text(), `"NaN"`) || strings.Contains(in.Text(), `Infinity"`) {
				continue // a default that is not finite, refused before any formula runs: TestMissingValues has it
			}
			t.Fatal(err)
		}
		if c.Request.L1 != nil {
			out = append(out, c)
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// scores computes what a coordinator would of the cells and lists that the nodes answered with: the documents' scores and their passages'.
func (c *recorded) scores(t *testing.T, p *formula.Program) (map[address]float32, map[address][]passage, error) {
	b, err := p.NewBatch(c.Request.L1.Missing)
	if err != nil {
		return nil, nil, err
	}
	variable := map[string]int{}
	for i, n := range p.Variables() {
		variable[n] = i
	}
	rrf := c.votes(t)
	how := score.Combiner{Kind: map[string]score.CombinerKind{
		"": score.Max, "COMBINER_LOG_SUM_EXP": score.Max, "COMBINER_MAX": score.Max, "COMBINER_AVG": score.Avg, "COMBINER_SUM": score.Sum,
		"COMBINER_WEIGHTED_TOP_K": score.WeightedTopK,
	}[c.Request.Query.Fusion.Combiner]}
	docs, passages := map[address]float32{}, map[address][]passage{}
	var out [formula.BlockRows]float32
	for _, n := range c.Nodes {
		for _, h := range n.Response.Hits {
			if h.Cells == nil {
				continue
			}
			set := func(row int, cells map[string]float32) {
				for name, v := range cells {
					if i, ok := variable[name]; ok {
						b.Set(i, row, float64(v))
					}
				}
			}
			// One row for the document, then one for each passage.
			rows := b.Start(1 + len(h.Cells.Passages))
			if rows < 1+len(h.Cells.Passages) {
				t.Fatalf("%s: too many passages for the test", c.Name)
			}
			vote := rrf[h.Address]
			for row := range rows {
				set(row, h.Cells.Document)
				r := vote.whole
				if row > 0 {
					q := h.Cells.Passages[row-1]
					set(row, q.Scores)
					if s, ok := vote.passages[q.Ordinal]; ok {
						r = s
					}
				}
				if i, ok := variable[formula.RRF]; ok {
					b.Set(i, row, float64(r))
				}
			}
			if err := b.Eval(out[:]); err != nil {
				return nil, nil, err
			}
			if rows == 1 {
				docs[h.Address] = out[0]
				continue
			}
			docs[h.Address] = how.Combine(out[1:rows])
			for i, q := range h.Cells.Passages {
				passages[h.Address] = append(passages[h.Address], passage{q.Ordinal, out[1+i]})
			}
		}
	}
	return docs, passages, nil
}

type votes struct {
	whole    float32
	passages map[uint32]float32
}

// votes returns the reciprocal rank scores of all candidates.
func (c *recorded) votes(t *testing.T) map[address]votes {
	queries := c.Request.Query.Fusion.Queries
	branches := make([]score.Branch[address], len(queries))
	for i, q := range queries {
		branches[i].Weight = 1
		branches[i].Whole = q.Scope == "SCORE_SCOPE_DOCUMENT"
	}
	for _, n := range c.Nodes {
		for _, list := range n.Response.Branches {
			to := &branches[list.Index]
			for _, h := range list.Candidates {
				if len(h.Ordinals) == 0 {
					to.Hits = append(to.Hits, score.Hit[address]{Doc: h.Address, Score: h.Score})
				}
				for _, o := range h.Ordinals {
					to.Hits = append(to.Hits, score.Hit[address]{Doc: h.Address, Ordinal: o.Ordinal, Score: o.Score})
				}
			}
		}
	}
	fused, err := score.Fuse(score.Fusion{}, branches, func(a, b address) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Doc, b.Doc))
	})
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	out := map[address]votes{}
	for _, f := range fused {
		v := votes{passages: map[uint32]float32{}}
		for _, x := range f.Votes {
			if x.Whole {
				v.whole += x.Score
			}
		}
		for _, p := range f.Passages {
			v.passages[p.Ordinal] = p.Score
		}
		out[f.Doc] = v
	}
	return out
}

// TestScoresAreTheRecordedOnes evaluates every formula that the recorded broker took over the cells that it got and compares bits, order and pages.
func TestScoresAreTheRecordedOnes(t *testing.T) {
	done, hits := 0, 0
	for _, c := range cases(t) {
		if c.Code != "OK" || c.Response.Method != "formula_v1" {
			continue
		}
		p, err := formula.Compile(c.Request.L1.Formula)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		docs, passages, err := c.scores(t, p)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		done++
		var order []address
		for a := range docs {
			order = append(order, a)
		}
		slices.SortFunc(order, func(a, b address) int {
			return cmp.Or(cmp.Compare(docs[b], docs[a]), cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Doc, b.Doc))
		})
		limit := c.Request.Limit
		if limit == 0 {
			limit = 10
		}
		order = order[min(c.Request.Offset, len(order)):min(c.Request.Offset+limit, len(order))]
		if len(order) != len(c.Response.Hits) {
			t.Errorf("%s: %d hits, want %d", c.Name, len(order), len(c.Response.Hits))
			continue
		}
		for i, want := range c.Response.Hits {
			hits++
			if order[i] != want.Address || docs[order[i]] != want.Score { // −0 equals +0
				t.Errorf("%s: %s: hit %d is %v %v, want %v %v", c.Name, c.Request.L1.Formula, i, order[i], docs[order[i]], want.Address, want.Score)
				break
			}
			of := map[uint32]float32{}
			for _, q := range passages[want.Address] {
				of[q.Ordinal] = q.Score
			}
			for _, o := range want.Ordinals {
				if s, ok := of[o.Ordinal]; !ok || s != o.Score {
					t.Errorf("%s: %s: hit %d ordinal %d is %v, want %v", c.Name, c.Request.L1.Formula, i, o.Ordinal, s, o.Score)
				}
			}
		}
	}
	if done < 200 || hits < 600 {
		t.Errorf("only %d cases and %d hits", done, hits)
	}
}

// different has the recorded refusals that are not ours: the grammar is the proper one.
var different = map[string]string{
	"x+\ty": "", "(x+\ty)+0*rrf": "", // a tab separates
	"max_score": "", "(max_score)+0*rrf": "", // a name may begin with a function's name
	"{": "the brace is not closed",
}

// TestRefusalsAreTheRecordedOnes: what the recorded broker refused as a formula is refused, but for the table above.
func TestRefusalsAreTheRecordedOnes(t *testing.T) {
	done := 0
	for _, c := range cases(t) {
		src := c.Request.L1.Formula
		p, err := formula.Compile(src)
		var bad *formula.Error
		var infinite *formula.NonFiniteError
		want := strings.TrimPrefix(c.Message, "Query error: ")
		if reason, ok := different[src]; ok {
			if (err != nil) != (reason != "") || err != nil && !strings.Contains(err.Error(), reason) {
				t.Errorf("%s: %q: %v, want %q", c.Name, src, err, reason)
			}
			done++
			continue
		}
		switch {
		case strings.HasPrefix(want, "invalid l1.formula"):
			if !errors.As(err, &bad) || !strings.HasPrefix(bad.Msg, "invalid l1.formula: at byte ") {
				t.Errorf("%s: %q: %v, want a refusal as for %s", c.Name, src, err, want)
			}
		case strings.HasPrefix(want, "l1.formula references"):
			if err != nil {
				t.Errorf("%s: %q: %v", c.Name, src, err)
				break
			}
			var names []string
			for _, q := range c.Request.Query.Fusion.Queries {
				names = append(names, q.Name)
			}
			if _, err = p.Bind(names); err == nil || err.Error() != want {
				t.Errorf("%s: %q: %v, want %s", c.Name, src, err, want)
			}
		case strings.HasPrefix(want, "l1.formula"):
			if !errors.As(err, &bad) || bad.Msg != want {
				t.Errorf("%s: %q: %v, want %s", c.Name, src, err, want)
			}
		case strings.HasPrefix(want, "l1 missing"):
			if err == nil {
				_, err = p.NewBatch(c.Request.L1.Missing)
			}
			if err == nil || err.Error() != want {
				t.Errorf("%s: %q: %v, want %s", c.Name, src, err, want)
			}
		case strings.HasPrefix(want, "L1 formula produced"):
			if err == nil {
				_, _, err = c.scores(t, p)
			}
			if !errors.As(err, &infinite) || infinite.Error() != want {
				t.Errorf("%s: %q: %v, want %s", c.Name, src, err, want)
			}
		default:
			continue
		}
		done++
	}
	if done < 50 {
		t.Errorf("only %d cases", done)
	}
}

// TestInferenceThatDisagreed: the recorded broker compared bits with a node; with us an infinity is an error and the sign of zero is none.
func TestInferenceThatDisagreed(t *testing.T) {
	for _, c := range cases(t) {
		if c.Message != "shard and broker formula inference disagree" {
			continue
		}
		p, err := formula.Compile(c.Request.L1.Formula)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		docs, _, err := c.scores(t, p)
		var infinite *formula.NonFiniteError
		if err != nil && !errors.As(err, &infinite) {
			t.Errorf("%s: %v", c.Name, err)
		}
		for _, n := range c.Nodes {
			for _, h := range n.Response.Hits {
				if s, ok := docs[h.Address]; ok && s != h.Score && !math.IsInf(float64(h.Score), 0) && !strings.HasPrefix(c.Request.L1.Formula, "x ") {
					t.Errorf("%s: %s: %v, node has %v", c.Name, c.Request.L1.Formula, s, h.Score)
				}
			}
		}
	}
}
