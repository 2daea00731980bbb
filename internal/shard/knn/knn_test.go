package knn_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/text"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sdl = `index t {
  field id: text<raw> [indexed, stored, fast, primary]
  field tag: text<raw> [indexed, stored, fast]
  field n: i64 [fast]
  field unit: dense_vector<12> [indexed, stored<multi>]
  field cosine: dense_vector<12, f16> [indexed<metric: cosine>, stored<multi>]
  field dot: dense_vector<12, int8> [indexed<metric: dot>, stored<multi>]
  field l2: dense_vector<12> [indexed<flat, metric: l2>, stored<multi>]
  field bits: binary_dense_vector<64> [indexed, stored<multi>]
  field sparse: sparse_vector<u32> [indexed, stored<multi>]
  field kept: dense_vector<12> [stored]
}`

var dense = []string{"unit", "cosine", "dot", "l2"}

func parse(t testing.TB, src string) *schema.Schema {
	t.Helper()
	s, err := schema.ParseSDL(src, func(spec string) error {
		_, err := text.Lookup(spec)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func analyzers(sch *schema.Schema) exec.Analyzers {
	return func(field int) *text.Analyzer {
		a, err := text.Lookup(sch.Fields[field].Tokenizer)
		if err != nil {
			return nil
		}
		return a
	}
}

// model is what the shard should hold.
type model struct {
	docs map[string]*modelDoc
}

type modelDoc struct {
	tag    string
	n      int64
	dense  map[string][][]float32
	bits   [][]byte
	sparse []map[uint32]float32
}

func randomVector(r *rand.Rand, dim int) []float32 {
	v := make([]float32, dim)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	if r.IntN(4) == 0 { // few values, so that scores tie
		for i := range v {
			v[i] = float32(r.IntN(2))
		}
		v[0] = 1
	}
	return v
}

func randomModelDoc(r *rand.Rand) *modelDoc {
	d := &modelDoc{tag: fmt.Sprint("t", r.IntN(20)), n: r.Int64N(1000), dense: map[string][][]float32{}}
	values := func(add func()) {
		for range [...]int{0, 1, 1, 1, 1, 2, 3}[r.IntN(7)] {
			add()
		}
	}
	for _, f := range dense {
		values(func() { d.dense[f] = append(d.dense[f], randomVector(r, 12)) })
	}
	values(func() {
		b := make([]byte, 8)
		for i := range b {
			b[i] = byte(r.IntN(4))
		}
		d.bits = append(d.bits, b)
	})
	values(func() {
		m := map[uint32]float32{}
		for range 1 + r.IntN(6) {
			m[uint32(r.IntN(30))] = float32(r.NormFloat64())
		}
		d.sparse = append(d.sparse, m)
	})
	return d
}

func (d *modelDoc) document(sch *schema.Schema, key string) *schema.Document {
	doc := &schema.Document{Key: key}
	add := func(name string, v schema.Values) {
		f, _ := sch.Lookup(name)
		v.Field = f
		if len(v.Text)+len(v.Nums)+len(v.Bytes) > 0 {
			doc.Fields = append(doc.Fields, v)
		}
	}
	add("id", schema.Values{Text: []string{key}})
	add("tag", schema.Values{Text: []string{d.tag}})
	add("n", schema.Values{Nums: []uint64{schema.EncodeI64(d.n)}})
	for _, name := range dense {
		var v schema.Values
		for _, x := range d.dense[name] {
			v.Bytes = append(v.Bytes, schema.AppendDense(nil, x))
		}
		add(name, v)
	}
	add("bits", schema.Values{Bytes: d.bits})
	var v schema.Values
	for _, m := range d.sparse {
		var b []byte
		var dims []uint32
		for i := range m {
			dims = append(dims, i)
		}
		slices.Sort(dims)
		for _, i := range dims {
			b = schema.AppendSparse(b, i, m[i])
		}
		v.Bytes = append(v.Bytes, b)
	}
	add("sparse", v)
	return doc
}

// rounded is what an element type makes of a component.
func rounded(field string, v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	if field == "dot" { // 8 bits between the least and the greatest
		lo, hi := slices.Min(out), slices.Max(out)
		whole := hi-lo <= 255
		for _, x := range out {
			whole = whole && x == math.Trunc(x)
		}
		if step := (hi - lo) / 255; !whole && step > 0 {
			for i := range out {
				out[i] = lo + step*math.Round((out[i]-lo)/step)
			}
		}
	}
	return out
}

// truth is the similarity of one value in float64; ok is false when it is not a match at all.
func truth(field string, req *knn.Request, d *modelDoc, i int) (float64, bool) {
	switch field {
	case "bits":
		diff := 0
		for k, b := range d.bits[i] {
			diff += bits.OnesCount8(b ^ req.Bits[k])
		}
		return 1 - float64(diff)/64, true
	case "sparse":
		sum, ok := 0.0, false
		for k, dim := range req.Indices {
			if w, has := d.sparse[i][dim]; has {
				sum += float64(req.Weights[k]) * float64(w)
				ok = true
			}
		}
		return sum, ok
	}
	v := rounded(field, d.dense[field][i])
	var dot, qq, vv, dist float64
	for k, x := range v {
		q := float64(req.Dense[k])
		dot += q * x
		qq += q * q
		vv += x * x
		dist += (q - x) * (q - x)
	}
	switch field {
	case "unit":
		return dot / math.Sqrt(qq), true
	case "cosine":
		if vv == 0 {
			return 0, true
		}
		return dot / math.Sqrt(qq*vv), true
	case "l2":
		return 1 / (1 + dist), true
	}
	return dot, true
}

func values(field string, d *modelDoc) int {
	switch field {
	case "bits":
		return len(d.bits)
	case "sparse":
		return len(d.sparse)
	}
	return len(d.dense[field])
}

func combined(c score.Combiner, s []float64) float64 {
	switch c.Kind {
	case score.Max:
		return slices.Max(s)
	case score.Avg, score.Sum:
		sum := 0.0
		for _, x := range s {
			sum += x
		}
		if c.Kind == score.Avg {
			sum /= float64(len(s))
		}
		return sum
	case score.WeightedTopK:
		s = slices.Clone(s)
		slices.SortFunc(s, func(a, b float64) int { return cmp.Compare(b, a) })
		num, den, w := 0.0, 0.0, 1.0
		for _, x := range s[:min(len(s), 5)] {
			num, den, w = num+w*x, den+w, w*0.7
		}
		return num / den
	}
	top := slices.Max(s)
	num, den := 0.0, 0.0
	for _, x := range s {
		e := math.Exp(1.5 * (x - top))
		num, den = num+e*x, den+e
	}
	return num / den
}

// filter is one of a few filters with its meaning.
type filter struct {
	node query.Node
	has  func(d *modelDoc) bool
}

var filters = []filter{
	{nil, func(*modelDoc) bool { return true }},
	{&query.Term{Field: "tag", Text: "t3"}, func(d *modelDoc) bool { return d.tag == "t3" }},
	{&query.Range{Field: "n", Min: &query.Bound{Value: "500"}}, func(d *modelDoc) bool { return d.n >= 500 }},
	{&query.Term{Field: "tag", Text: "none"}, func(*modelDoc) bool { return false }},
}

func check(t *testing.T, m *model, req *knn.Request, f filter, res *knn.Result) {
	t.Helper()
	want := map[string]float64{}
	for key, d := range m.docs {
		if !f.has(d) {
			continue
		}
		var s []float64
		for i := range values(req.Field, d) {
			if v, ok := truth(req.Field, req, d, i); ok {
				s = append(s, v)
			}
		}
		if len(s) > 0 {
			want[key] = combined(req.Combiner, s)
		}
	}
	const eps = 2e-3 // the roundings of half floats and of 8 bits
	if len(res.Hits) != min(req.K, len(want)) {
		t.Fatalf("%s: %d hits of %d documents, k %d", req.Field, len(res.Hits), len(want), req.K)
	}
	seen := map[string]bool{}
	for i, h := range res.Hits {
		w, ok := want[h.Key]
		if !ok || seen[h.Key] {
			t.Fatalf("%s: hit %q is not eligible or is there twice", req.Field, h.Key)
		}
		seen[h.Key] = true
		if math.Abs(float64(h.Score)-w) > eps*(1+math.Abs(w)) {
			t.Fatalf("%s, combiner %d: %q scores %v, by float64 %v", req.Field, req.Combiner.Kind, h.Key, h.Score, w)
		}
		if i > 0 {
			p := res.Hits[i-1]
			if p.Score < h.Score || p.Score == h.Score && p.Key >= h.Key {
				t.Fatalf("%s: %v before %v", req.Field, p, h)
			}
		}
	}
	if len(res.Hits) == 0 {
		return
	}
	last := float64(res.Hits[len(res.Hits)-1].Score)
	for key, w := range want {
		if !seen[key] && w > last+eps*(1+math.Abs(w)) {
			t.Fatalf("%s: %q with %v is missing, the last hit has %v", req.Field, key, w, last)
		}
	}
}

func randomRequest(r *rand.Rand, field string) knn.Request {
	req := knn.Request{
		Field: field, K: []int{1, 3, 10, 50, 2000}[r.IntN(5)], Exact: true,
		Combiner: score.Combiner{Kind: score.CombinerKind(r.IntN(5))},
	}
	switch field {
	case "bits":
		req.Bits = make([]byte, 8)
		for i := range req.Bits {
			req.Bits[i] = byte(r.IntN(4))
		}
	case "sparse":
		for _, i := range r.Perm(30)[:1+r.IntN(8)] {
			req.Indices = append(req.Indices, uint32(i))
			req.Weights = append(req.Weights, float32(r.NormFloat64()))
		}
	default:
		req.Dense = randomVector(r, 12)
	}
	return req
}

// Exact searches are those of brute force, and neither flush nor merge nor restart changes a bit of them.
func TestExactSearchEqualsBruteForceInEveryLayout(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(4, 2))
	sch := parse(t, sdl)
	cfg := shard.Config{Dir: t.TempDir(), Schema: sch, NoBackground: true}
	s, err := shard.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	m := &model{docs: map[string]*modelDoc{}}
	cache := exec.NewFilterCache(1 << 20)
	fields := append(slices.Clone(dense), "bits", "sparse")
	ask := func(req knn.Request) *knn.Result {
		t.Helper()
		snap := s.Snapshot()
		defer snap.Release()
		res, err := knn.Search(ctx, snap.Leaves(), snap.Schema(), analyzers(snap.Schema()), req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for round := range 8 {
		for range 60 {
			key := fmt.Sprint("k", r.IntN(200))
			op := shard.Op{Key: key, Delete: r.IntN(4) == 0}
			if op.Delete {
				delete(m.docs, key)
			} else {
				m.docs[key] = randomModelDoc(r)
				op.Doc = m.docs[key].document(sch, key)
			}
			if _, err := s.Apply(ctx, []shard.Op{op}); err != nil {
				t.Fatal(err)
			}
		}
		type asked struct {
			req knn.Request
			res *knn.Result
		}
		var all []asked
		for _, field := range fields {
			for _, f := range filters {
				req := randomRequest(r, field)
				req.Cache = cache
				if f.node != nil {
					req.Filters = []query.Node{f.node}
				}
				res := ask(req)
				check(t, m, &req, f, res)
				if len(res.Hits) > 0 {
					snap := s.Snapshot()
					h := res.Hits[len(res.Hits)-1]
					vals, err := knn.Values(snap.Leaves(), snap.Schema(), req, h.Leaf, h.Doc)
					snap.Release()
					var sims []float32
					for _, v := range vals {
						sims = append(sims, v.Similarity)
					}
					if got := req.Combiner.Combine(sims); err != nil || math.Float32bits(got) != math.Float32bits(h.Score) {
						t.Fatalf("%s: %v of %v is %v, the hit has %v (%v)", field, req.Combiner, vals, got, h.Score, err)
					}
				}
				all = append(all, asked{req, res})
			}
		}
		switch round % 4 {
		case 0, 1:
			err = s.Flush(ctx)
		case 2:
			err = s.Merge(ctx, 1)
		case 3:
			if err = s.Close(ctx); err == nil {
				s, err = shard.Open(ctx, cfg)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			again := ask(a.req)
			if !slices.EqualFunc(again.Hits, a.res.Hits, func(x, y exec.Hit) bool {
				return x.Key == y.Key && math.Float32bits(x.Score) == math.Float32bits(y.Score)
			}) {
				t.Fatalf("round %d, %s: %v became %v", round, a.req.Field, a.res.Hits, again.Hits)
			}
		}
	}
}

// load fills a shard with n vectors in clusters and flushes it, so that its segment has a graph.
func load(t *testing.T, r *rand.Rand, n int) (*shard.Shard, func(i int) []float32) {
	t.Helper()
	ctx := context.Background()
	sch := parse(t, `index t { field id: text<raw> [indexed, fast, primary]  field n: i64 [fast]  field v: dense_vector<16> [indexed<metric: cosine, m: 8, ef_construction: 40>] }`)
	s, err := shard.Open(ctx, shard.Config{Dir: t.TempDir(), Schema: sch, NoBackground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	centres := make([][]float32, 40)
	for i := range centres {
		centres[i] = randomVector(r, 16)
	}
	vecs := make([][]float32, n)
	var ops []shard.Op
	for i := range vecs {
		v := slices.Clone(centres[r.IntN(len(centres))])
		for k := range v {
			v[k] += float32(0.3 * r.NormFloat64())
		}
		vecs[i] = v
		key := fmt.Sprintf("k%06d", i)
		ops = append(ops, shard.Op{Key: key, Doc: &schema.Document{Key: key, Fields: []schema.Values{
			{Field: 0, Text: []string{key}}, {Field: 1, Nums: []uint64{schema.EncodeI64(int64(i))}}, {Field: 2, Bytes: [][]byte{schema.AppendDense(nil, v)}},
		}}})
	}
	if _, err := s.Apply(ctx, ops); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return s, func(i int) []float32 { return vecs[i] }
}

func TestPlannerChoosesByMeasuredSelectivityAndNeverReturnsWhatTheFilterExcludes(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(9, 9))
	const n = 8_000
	s, vec := load(t, r, n)
	var dead []shard.Op
	for i := 0; i < n; i += 50 {
		dead = append(dead, shard.Op{Key: fmt.Sprintf("k%06d", i), Delete: true})
	}
	if _, err := s.Apply(ctx, dead); err != nil {
		t.Fatal(err)
	}
	snap := s.Snapshot()
	defer snap.Release()
	for _, c := range []struct {
		from int64
		path knn.Path
	}{{0, knn.Unmasked}, {1000, knn.Unmasked}, {n / 2, knn.Masked}, {n - 200, knn.Scan}, {2 * n, knn.Empty}} {
		found, wanted := 0, 0
		for range 30 {
			req := knn.Request{Field: "v", Dense: vec(r.IntN(n)), K: 10, Combiner: score.Combiner{Kind: score.Max}}
			if c.from > 0 {
				req.Filters = []query.Node{&query.Range{Field: "n", Min: &query.Bound{Value: fmt.Sprint(c.from)}}}
			}
			res, err := knn.Search(ctx, snap.Leaves(), snap.Schema(), analyzers(snap.Schema()), req)
			if err != nil {
				t.Fatal(err)
			}
			if res.Plan.Path != c.path {
				t.Fatalf("from %d: path %s, want %s (%+v)", c.from, res.Plan.Path, c.path, res.Plan)
			}
			live := max(0, n-c.from)
			live -= (live + 49) / 50
			if res.Plan.Matching != uint64(live) || res.Plan.Docs != n-n/50 {
				t.Fatalf("from %d: plan says %d of %d match, want %d of %d", c.from, res.Plan.Matching, res.Plan.Docs, live, n-n/50)
			}
			if res.Plan.Approximate != (c.path == knn.Masked || c.path == knn.Unmasked) {
				t.Fatalf("from %d: approximate is %v", c.from, res.Plan.Approximate)
			}
			req.Exact = true
			exact, err := knn.Search(ctx, snap.Leaves(), snap.Schema(), analyzers(snap.Schema()), req)
			if err != nil {
				t.Fatal(err)
			}
			scores := map[string]float32{}
			for _, h := range exact.Hits {
				scores[h.Key] = h.Score
			}
			for _, h := range res.Hits {
				var i int64
				if _, err := fmt.Sscanf(h.Key, "k%d", &i); err != nil || i < c.from || i%50 == 0 {
					t.Fatalf("from %d: hit %s is not eligible", c.from, h.Key)
				}
				if sc, ok := scores[h.Key]; ok {
					found++
					if sc != h.Score {
						t.Fatalf("from %d: %s scores %v by the graph, %v exactly", c.from, h.Key, h.Score, sc)
					}
				}
			}
			wanted += len(exact.Hits)
		}
		if wanted > 0 && float64(found) < 0.95*float64(wanted) {
			t.Errorf("from %d: recall %v", c.from, float64(found)/float64(wanted))
		}
	}
}

// A plan tells what ran: a walk that gave way to a scan is a scan and exact, whatever the size of K and of the filter.
func TestPlanSaysWhatRan(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(6, 6))
	const n = 4500
	s, vec := load(t, r, n)
	snap := s.Snapshot()
	defer snap.Release()
	ways := map[knn.Path]int{}
	for _, k := range []int{1, 10, 50, 200, 400, 1000} {
		for _, from := range []int{0, n / 8, n / 4, n / 2, n * 2 / 3, n * 8 / 10, n * 95 / 100} {
			for range 3 {
				req := knn.Request{
					Field: "v", Dense: vec(r.IntN(n)), K: k, Combiner: score.Combiner{Kind: score.Max},
					Filters: []query.Node{&query.Range{Field: "n", Min: &query.Bound{Value: fmt.Sprint(from)}}},
				}
				res, err := knn.Search(ctx, snap.Leaves(), snap.Schema(), analyzers(snap.Schema()), req)
				if err != nil {
					t.Fatal(err)
				}
				ways[res.Plan.Path]++
				walked := res.Plan.Work.Rescored > 0
				if named := res.Plan.Path == knn.Masked || res.Plan.Path == knn.Unmasked; named != walked || res.Plan.Approximate != walked {
					t.Errorf("k %d, %d documents match: %+v", k, n-from, res.Plan)
				}
				if len(res.Hits) != min(k, n-from) {
					t.Errorf("k %d, %d documents match: %d hits", k, n-from, len(res.Hits))
				}
			}
		}
	}
	if ways[knn.Scan] == 0 || ways[knn.Masked] == 0 || ways[knn.Unmasked] == 0 {
		t.Errorf("not every way was taken: %v", ways)
	}
}

func TestRecallIsMeasuredOnLiveDocuments(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(5, 5))
	s, _ := load(t, r, 4500)
	measure := func(k, samples int) *knn.RecallResult {
		t.Helper()
		snap := s.Snapshot()
		defer snap.Release()
		res, err := knn.Recall(ctx, snap.Leaves(), snap.Schema(), knn.RecallRequest{Field: "v", K: k, Samples: samples})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := measure(10, 50); res.Recall < 0.95 || res.Recall > 1 || res.Samples != 50 || !res.Approximate {
		t.Errorf("recall is %+v", res)
	}
	var dead []shard.Op
	for i := range 4500 {
		if i != 17 && i != 4000 && i != 4499 {
			dead = append(dead, shard.Op{Key: fmt.Sprintf("k%06d", i), Delete: true})
		}
	}
	if _, err := s.Apply(ctx, dead); err != nil {
		t.Fatal(err)
	}
	if res := measure(10, 50); res.Recall != 1 || res.Samples < 1 || res.Samples > 3 {
		t.Errorf("recall over three live documents is %+v", res)
	}
}

func TestBadVectorsAreRefusedWithTheFieldAndTheReason(t *testing.T) {
	ctx := context.Background()
	sch := parse(t, sdl)
	ok := make([]float32, 12)
	ok[3] = 1
	nan := slices.Clone(ok)
	nan[1] = float32(math.NaN())
	for name, req := range map[string]knn.Request{
		"short":          {Field: "unit", Dense: ok[:11]},
		"long":           {Field: "unit", Dense: append(slices.Clone(ok), 0)},
		"nan":            {Field: "l2", Dense: nan},
		"zero cosine":    {Field: "cosine", Dense: make([]float32, 12)},
		"zero unit":      {Field: "unit", Dense: make([]float32, 12)},
		"bits for dense": {Field: "unit", Bits: make([]byte, 8)},
		"dense for bits": {Field: "bits", Dense: ok},
		"short bits":     {Field: "bits", Bits: make([]byte, 7)},
		"pairs":          {Field: "sparse", Indices: []uint32{1, 2}, Weights: []float32{1}},
		"empty sparse":   {Field: "sparse", Indices: []uint32{}, Weights: []float32{}},
		"not indexed":    {Field: "kept", Dense: ok},
		"text":           {Field: "tag", Dense: ok},
		"number":         {Field: "n", Dense: ok},
		"unknown":        {Field: "nope", Dense: ok},
		"k":              {Field: "unit", Dense: ok, K: knn.MaxK + 1},
		"ef":             {Field: "unit", Dense: ok, Ef: knn.MaxEf + 1},
		"decay":          {Field: "unit", Dense: ok, Combiner: score.Combiner{Kind: score.WeightedTopK, Decay: 2}},
	} {
		_, err := knn.Search(ctx, nil, sch, analyzers(sch), req)
		bad, isBad := errors.AsType[*exec.QueryError](err)
		if !isBad || bad.Field != req.Field || bad.Code == "" || bad.Reason == "" {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	for k, most := range map[int]int{knn.MaxK: 0, knn.MaxK + 1: knn.MaxK + 1, 3: 3} {
		for over := range 2 {
			_, err := knn.Search(ctx, nil, sch, analyzers(sch), knn.Request{Field: "unit", Dense: ok, K: k + over, Most: most})
			if bad, refused := errors.AsType[*exec.QueryError](err); refused != (over > 0) || refused && bad.Limit != int64(k) || !refused && err != nil {
				t.Errorf("%d neighbours, of at most %d: %v", k+over, most, err)
			}
		}
	}
	for _, req := range []knn.RecallRequest{
		{Field: "unit", K: 0, Samples: 1},
		{Field: "unit", K: 1, Samples: knn.MaxSamples + 1},
		{Field: "nope", K: 1, Samples: 1},
		{Field: "tag", K: 1, Samples: 1},
		{Field: "sparse", K: 1, Samples: 1},
		{Field: "kept", K: 1, Samples: 1},
	} {
		if _, err := knn.Recall(ctx, nil, sch, req); err == nil {
			t.Errorf("recall takes %+v", req)
		} else if bad, ok := errors.AsType[*exec.QueryError](err); !ok || bad.Field != req.Field {
			t.Errorf("recall of %+v: error is %v", req, err)
		}
	}
}

func TestSearchEndsWithItsContext(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s, vec := load(t, r, 4200)
	snap := s.Snapshot()
	defer snap.Release()
	why := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	_, err := knn.Search(ctx, snap.Leaves(), snap.Schema(), analyzers(snap.Schema()), knn.Request{Field: "v", Dense: vec(0), K: 5, Exact: true})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("error is %v", err)
	}
}
