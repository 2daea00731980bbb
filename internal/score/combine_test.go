package score_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/score"
)

// TestCombinedScoresAreTheRecordedOnes takes the vector answers of one real node: every combiner and option, bit for bit.
func TestCombinedScoresAreTheRecordedOnes(t *testing.T) {
	r, err := os.Open(filepath.Join(corpus.Dir(t, "summa-golden"), "node.jsonl.gz"))
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
	several := 0
	for in.Scan() {
		if !strings.Contains(in.Text(), `"name": "node/query/dense-`) && !strings.Contains(in.Text(), `"name":"node/query/dense-`) {
			continue
		}
		var c struct {
			Name, Code string
			Request    struct {
				Query struct {
					Dense struct {
						Combiner    any
						Temperature float32 `json:"combiner_temperature"`
						TopK        int     `json:"combiner_top_k"`
						Decay       float32 `json:"combiner_decay"`
					} `json:"dense_vector"`
				}
				Reranker *struct{}
			}
			Response struct{ Hits []candidate }
		}
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if c.Code != "OK" || c.Request.Reranker != nil {
			continue
		}
		d := &c.Request.Query.Dense
		how := score.Combiner{Temperature: d.Temperature, TopK: d.TopK, Decay: d.Decay}
		switch v := d.Combiner.(type) {
		case string:
			how.Kind = combiners[v]
		case float64:
			how.Kind = score.CombinerKind(v)
		}
		if err := how.Check(); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		for _, h := range c.Response.Hits {
			slices.SortFunc(h.Ordinals, func(a, b passage) int { return int(a.Ordinal) - int(b.Ordinal) })
			var s []float32
			for _, o := range h.Ordinals {
				s = append(s, o.Score)
			}
			if got := how.Combine(s); math.Float32bits(got) != math.Float32bits(h.Score) {
				t.Errorf("%s: %v of %v = %v, want %v", c.Name, how, s, got, h.Score)
			}
			if len(s) > 1 {
				several++
			}
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	if several < 20 {
		t.Errorf("only %d documents with several values", several)
	}
}

func TestCombineByHand(t *testing.T) {
	s := []float32{1, 4, -2, 2}
	for _, c := range []struct {
		c    score.Combiner
		want float32
	}{
		{score.Combiner{Kind: score.Max}, 4},
		{score.Combiner{Kind: score.Avg}, 1.25},
		{score.Combiner{Kind: score.Sum}, 5},
		{score.Combiner{Kind: score.WeightedTopK, TopK: 2, Decay: 0.5}, (4 + 1) / 1.5},
		{score.Combiner{Kind: score.WeightedTopK, TopK: 3, Decay: 1}, 7.0 / 3},
		{score.Combiner{Kind: score.WeightedTopK, TopK: 1}, 4},
	} {
		if got := c.c.Combine(s); got != c.want {
			t.Errorf("%+v: %v, want %v", c.c, got, c.want)
		}
	}
	if got := (score.Combiner{}).Combine(nil); got != 0 {
		t.Errorf("nothing combines to %v", got)
	}
	// The softmax mean of equal scores is the score; at a high temperature it is the largest.
	if got := (score.Combiner{}).Combine([]float32{3, 3, 3}); got != 3 {
		t.Errorf("equal scores combine to %v", got)
	}
	if got := (score.Combiner{Temperature: 1000}).Combine([]float32{1, -5, 3}); got != 3 {
		t.Errorf("at temperature 1000: %v", got)
	}
}

func TestUnknownCombinerIsLogSumExp(t *testing.T) {
	s := []float32{1, 2, 0.5}
	if a, b := (score.Combiner{Kind: 9}).Combine(s), (score.Combiner{}).Combine(s); a != b {
		t.Errorf("%v, want %v", a, b)
	}
}

func TestTopKIsTheSameByBothWays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		s := make([]float32, 1+r.IntN(200))
		for i := range s {
			s[i] = float32(r.IntN(20)) / 3
		}
		before := slices.Clone(s)
		k := 1 + r.IntN(120)
		got := score.Combiner{Kind: score.WeightedTopK, TopK: k, Decay: 0.9}.Combine(s)
		if !slices.Equal(s, before) {
			t.Fatal("scores were changed")
		}
		slices.Sort(before)
		slices.Reverse(before)
		var num, den float32
		w := float32(1)
		for _, x := range before[:min(k, len(before))] {
			num += float32(w * x)
			den += w
			w *= 0.9
		}
		if want := num / den; len(s) > 1 && got != want {
			t.Fatalf("k %d of %d: %v, want %v", k, len(s), got, want)
		}
	}
}

func TestCombinerCheck(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		c      score.Combiner
		member string
	}{
		{score.Combiner{Kind: score.WeightedTopK, Decay: 1.5}, "decay"},
		{score.Combiner{Kind: score.WeightedTopK, Decay: -0.1}, "decay"},
		{score.Combiner{Kind: score.WeightedTopK, Decay: nan}, "decay"},
		{score.Combiner{Kind: score.WeightedTopK, TopK: -1}, "top_k"},
		{score.Combiner{Temperature: nan}, "temperature"},
		{score.Combiner{Temperature: float32(math.Inf(1))}, "temperature"},
		{score.Combiner{Kind: score.Max, Decay: 7}, ""},
		{score.Combiner{Kind: score.WeightedTopK, Decay: 1}, ""},
		{score.Combiner{Temperature: -3}, ""},
	} {
		err := c.c.Check()
		var e *score.CombinerError
		if errors.As(err, &e) != (c.member != "") || e != nil && e.Member != c.member {
			t.Errorf("%+v: %v, want an error about %q", c.c, err, c.member)
		}
	}
}

func TestCombineDoesNotAllocate(t *testing.T) {
	s := make([]float32, 300)
	for i := range s {
		s[i] = float32(i%17) / 7
	}
	for k := score.LogSumExp; k <= score.WeightedTopK; k++ {
		c := score.Combiner{Kind: k}
		if n := testing.AllocsPerRun(100, func() { c.Combine(s) }); n != 0 {
			t.Errorf("kind %d allocates %v times", k, n)
		}
	}
}
