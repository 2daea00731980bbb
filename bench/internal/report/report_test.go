package report

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weft-search/weft/bench/internal/peer"
	"github.com/weft-search/weft/bench/internal/workload"
)

// answers makes the results of an engine that answers as the brute force does.
func answers(o *workload.Oracle, queries []peer.Query, engine string, length func(int) int, us float64) Run {
	s := peer.SearchResult{
		Engine: engine, Version: "1", Segments: 1, Times: map[string][]float64{},
		Counts: map[string]uint64{}, Both: map[string]uint64{}, Hits: map[string][]peer.Hit{},
	}
	for _, q := range queries {
		for _, m := range peer.Modes {
			s.Times[q.Class+"|"+m] = []float64{us, 2 * us}
		}
		list := o.Matches(q, length)
		s.Counts[q.ID], s.Both[q.ID] = uint64(len(list)), uint64(len(list))
		for _, x := range list[:min(10, len(list))] {
			s.Hits[q.ID] = append(s.Hits[q.ID], peer.Hit{ID: o.ID(x.Doc), Score: float64(float32(x.Score))})
		}
	}
	return Run{Engine: engine, Index: []peer.IndexResult{{Seconds: us, Bytes: int64(us * 1e6), Docs: 1}}, Search: []peer.SearchResult{s}}
}

func setup(t *testing.T) (Input, *workload.Oracle) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(3, 4))
	var docs []peer.Doc
	for i := range 300 {
		var b strings.Builder
		for range 5 + rnd.IntN(150) {
			fmt.Fprintf(&b, "w%d ", int(400*rnd.Float64()*rnd.Float64()*rnd.Float64()))
		}
		docs = append(docs, peer.Doc{ID: fmt.Sprint(i), Body: b.String()})
	}
	o := workload.NewOracle(docs)
	in := Input{Corpus: "made up", Docs: docs}
	for i, q := range workload.Queries(o, nil, 5) {
		if i%4 == 0 { // enough of every class
			in.Queries = append(in.Queries, q)
		}
	}
	in.Runs = []Run{
		answers(o, in.Queries, "weft", nil, 1),
		answers(o, in.Queries, "lucene", workload.RoundLength, 2),
		answers(o, in.Queries, "bleve", nil, 10),
	}
	return in, o
}

func write(t *testing.T, in Input) (string, map[string]Verdict) {
	t.Helper()
	var b bytes.Buffer
	vs, err := Write(&b, in)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Verdict{}
	for _, v := range vs {
		byName[strings.Fields(strings.NewReplacer(",", "").Replace(v.What))[0]+" "+v.Aim] = v
	}
	return b.String(), byName
}

func TestAgreeing(t *testing.T) {
	in, _ := setup(t)
	text, vs := write(t, in)
	for _, v := range vs {
		if !v.Met {
			t.Errorf("%s: aim %s, measured %s", v.What, v.Aim, v.Measured)
		}
	}
	for _, want := range []string{
		"| top10 | all | 10.0 | 5.00 | 2.00 |", // bleve/weft, bleve/lucene, lucene/weft
		"Indexing time, bleve/weft: 10.0. Size, weft/bleve: 0.10.",
		"0 differ", "0 wrong", "| lucene |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	// lengths differ enough here that rounding moves documents
	if strings.Contains(text, "| 100.00 % | 0.00 % | 0.00 % | 100.00 % |") {
		t.Error("no place differs: the test proves nothing")
	}
}

func TestDisagreeing(t *testing.T) {
	in, _ := setup(t)
	q := in.Queries[0]
	weft := &in.Runs[0].Search[0]
	weft.Counts[q.ID]++
	last := len(weft.Hits[q.ID]) - 1
	weft.Hits[q.ID][0], weft.Hits[q.ID][last] = weft.Hits[q.ID][last], weft.Hits[q.ID][0]
	weft.Hits[in.Queries[1].ID] = nil
	in.Runs[0].Search[0].Times[q.Class+"|top10"] = []float64{5}
	text, vs := write(t, in)
	for _, name := range []string{"exact 0", "places 0", "top ≥ 3"} {
		if vs[name].Met {
			t.Errorf("%s is met: %+v", name, vs[name])
		}
	}
	if vs["exact 0"].Measured != "1" {
		t.Errorf("counts that differ: %s", vs["exact 0"].Measured)
	}
	for _, want := range []string{fmt.Sprintf("expected %d, weft in mode count %d", q.Count, q.Count+1), "0 hits of"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}

func TestAlone(t *testing.T) {
	in, _ := setup(t)
	in.Runs = in.Runs[:1]
	text, vs := write(t, in)
	if len(vs) != 0 || !strings.HasPrefix(text, "# weft alone\n") {
		t.Errorf("%v, %.40s", vs, text)
	}
}

func TestMissingNumbers(t *testing.T) {
	in, _ := setup(t)
	delete(in.Runs[1].Search[0].Times, "or-2|count")
	if _, err := Write(&bytes.Buffer{}, in); err == nil || !strings.Contains(err.Error(), "or-2") {
		t.Errorf("got %v", err)
	}
}
