package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long asks for the long runs of the random tests.
var long = os.Getenv("WEFT_LONG") != ""

func testSchema(t testing.TB) *schema.Schema {
	t.Helper()
	s, err := schema.NewDynamic("t").AddFields([]schema.Field{
		{Name: "body", Type: schema.Text, Tokenizer: "simple", Indexed: true, Multi: true, Positions: schema.TokenPositions, K1: schema.DefaultK1, B: schema.DefaultB},
		{Name: "tag", Type: schema.Text, Tokenizer: "raw", Indexed: true, Fast: true, Multi: true, K1: schema.DefaultK1, B: schema.DefaultB},
		{Name: "n", Type: schema.I64, Fast: true},
		{Name: "vec", Type: schema.DenseVector, Dim: 3, Element: "f16", Metric: "cosine", Indexed: true, Multi: true},
		{Name: "bits", Type: schema.BinaryVector, Dim: 16, Indexed: true},
		{Name: "words", Type: schema.SparseVector, Element: "u16", Indexed: true, Multi: true},
		{Name: "kept", Type: schema.DenseVector, Dim: 2, Stored: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	fID = iota
	fBody
	fTag
	fN
	fVec
	fBits
	fWords
	fKept
	numFields
)

// randomDoc makes a document that only its key and the random source determine.
func randomDoc(r *rand.Rand, key string) *schema.Document {
	d := &schema.Document{Key: key, Fields: []schema.Values{{Field: fID, Text: []string{key}}}}
	if r.IntN(10) > 0 {
		v := schema.Values{Field: fBody}
		for range 1 + r.IntN(2) {
			var b strings.Builder
			for range r.IntN(25) {
				fmt.Fprintf(&b, "w%d ", int(200*r.Float64()*r.Float64()*r.Float64()))
			}
			v.Text = append(v.Text, b.String())
		}
		d.Fields = append(d.Fields, v)
	}
	if r.IntN(2) == 0 {
		d.Fields = append(d.Fields, schema.Values{Field: fTag, Text: []string{fmt.Sprint("t", r.IntN(30))}})
	}
	if r.IntN(2) == 0 {
		d.Fields = append(d.Fields, schema.Values{Field: fN, Nums: []uint64{schema.EncodeI64(r.Int64N(100))}})
	}
	d.Fields = append(d.Fields, randomVectors(r)...)
	d.Source = fmt.Appendf(nil, `{"id":%q,"v":%d}`, key, r.Uint32())
	return d
}

// stored is a version of a document that a shard acknowledged.
type stored struct {
	doc *schema.Document
	ts  uint64
}

// model is what a shard should hold.
type model map[string]stored

func (m model) clone() model {
	c := make(model, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (m model) keys() []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// testClock gives commit timestamps that a test chooses.
type testClock struct{ now atomic.Uint64 }

func (c *testClock) read() uint64 { return c.now.Load() }

func config(t testing.TB, fsys vfs.FS) Config {
	return Config{Dir: "d", FS: fsys, Schema: testSchema(t), NoBackground: true, MemtableBytes: 64 << 20}
}

// bubbleConfig is config for tests in virtual time. Its shards keep no sources: coders of sources are pooled and hold channels, and one
// made in a bubble ends the process when a test outside takes it from the pool.
func bubbleConfig(t testing.TB, fsys vfs.FS) Config {
	cfg := config(t, fsys)
	cfg.NoSources = true
	return cfg
}

func open(t testing.TB, cfg Config) *Shard {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeShard(t, s) })
	return s
}

func closeShard(t testing.TB, s *Shard) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func put(doc *schema.Document) Op { return Op{Doc: doc} }

// apply applies operations that must not be refused and updates the model. ts is the timestamp the clock will show.
func (m model) apply(t testing.TB, s *Shard, ts uint64, ops ...Op) {
	t.Helper()
	res, err := s.Apply(t.Context(), ops)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	m.expect(t, ts, ops, res)
}

// expect checks the results of a batch and updates the model.
func (m model) expect(t testing.TB, ts uint64, ops []Op, res []OpResult) {
	t.Helper()
	for i, op := range ops {
		_, had := m[op.key()]
		if res[i].Existed != had {
			t.Fatalf("operation %d on %q: existed %v, want %v", i, op.key(), res[i].Existed, had)
		}
		switch {
		case op.Create && had:
			if !errors.Is(res[i].Err, ErrExists) {
				t.Fatalf("create of %q: error %v", op.key(), res[i].Err)
			}
		case res[i].Err != nil:
			t.Fatalf("operation %d on %q: %v", i, op.key(), res[i].Err)
		case op.Delete:
			delete(m, op.Key)
		default:
			m[op.key()] = stored{op.Doc, ts}
		}
	}
}

// verify compares a snapshot with the model: documents, statistics, document frequencies, and the shard's own checker.
func (m model) verify(t testing.TB, sn *Snapshot) {
	t.Helper()
	if err := sn.Check(t.Context()); err != nil {
		t.Fatalf("check: %v", err)
	}
	if sn.Docs() != uint64(len(m)) {
		t.Fatalf("%d documents, want %d", sn.Docs(), len(m))
	}
	for k, v := range m {
		src, ok, err := sn.Get(k)
		if err != nil || !ok || string(src) != string(v.doc.Source) {
			t.Fatalf("get %q: %q, %v, %v; want %q", k, src, ok, err, v.doc.Source)
		}
	}
	if _, ok, err := sn.Get("never there"); ok || err != nil {
		t.Fatalf("get of an absent key: %v, %v", ok, err)
	}
	if !m.sameVectors(t, sn) {
		t.Fatal("the vectors are others")
	}
	fields, dfs := m.statistics(t, sn.Schema())
	for field := range sn.Schema().Fields {
		var got score.FieldStats
		for _, l := range sn.Leaves() {
			got.Add(l.FieldStats(field))
		}
		if got != fields[field] {
			t.Fatalf("field %d: statistics %+v, want %+v", field, got, fields[field])
		}
		seen := map[string]bool{}
		for _, l := range sn.Leaves() {
			if err := l.ScanPostings(field, nil, func(term []byte, p segment.Postings) bool {
				seen[string(term)] = true
				if q, ok := l.Postings(field, term); !ok || q.DocFreq() != p.DocFreq() {
					t.Fatalf("field %d term %q: scanned with %d postings, looked up with %d", field, term, p.DocFreq(), q.DocFreq())
				}
				return true
			}); err != nil {
				t.Fatalf("field %d: scan of postings: %v", field, err)
			}
		}
		for term := range dfs[field] {
			seen[term] = true
		}
		for term := range seen {
			var df uint64
			for _, l := range sn.Leaves() {
				n, err := l.DocFreq(field, []byte(term), noCheck)
				if err != nil {
					t.Fatal(err)
				}
				df += n
			}
			if df != dfs[field][term] {
				t.Fatalf("field %d term %q: document frequency %d, want %d", field, term, df, dfs[field][term])
			}
		}
	}
}

// statistics counts the model's documents in the plainest way.
func (m model) statistics(t testing.TB, sch *schema.Schema) ([]score.FieldStats, []map[string]uint64) {
	t.Helper()
	fields := make([]score.FieldStats, len(sch.Fields))
	dfs := make([]map[string]uint64, len(sch.Fields))
	for f := range sch.Fields {
		dfs[f] = map[string]uint64{}
	}
	var sc text.Scratch
	for _, v := range m {
		for _, val := range v.doc.Fields {
			f := &sch.Fields[val.Field]
			if f.Type != schema.Text || !f.Indexed {
				continue
			}
			a, err := text.Lookup(f.Tokenizer)
			if err != nil {
				t.Fatal(err)
			}
			n, terms := 0, map[string]bool{}
			for _, s := range val.Text {
				toks := a.Index(&sc, s)
				n += text.Length(toks)
				for _, tok := range toks {
					terms[string(tok.Text)] = true
				}
			}
			if n > 0 {
				fields[val.Field].Add(score.FieldStats{SumLen: uint64(n), Docs: 1})
			}
			for term := range terms {
				dfs[val.Field][term]++
			}
		}
	}
	return fields, dfs
}

// fresh is a new shard that holds the model's documents and nothing else, written in the order of their timestamps.
func (m model) fresh(t testing.TB) *Shard {
	t.Helper()
	var clock testClock
	cfg := config(t, memfs.New(nil))
	cfg.Clock = clock.read
	return m.freshIn(t, cfg, &clock)
}

// freshIn is fresh in a shard that the config describes; its clock is reset.
func (m model) freshIn(t testing.TB, cfg Config, clock *testClock) *Shard {
	t.Helper()
	clock.now.Store(0)
	s := open(t, cfg)
	keys := m.keys()
	slices.SortStableFunc(keys, func(a, b string) int { return int(int64(m[a].ts) - int64(m[b].ts)) })
	for i := 0; i < len(keys); {
		ts := m[keys[i]].ts
		var ops []Op
		for ; i < len(keys) && m[keys[i]].ts == ts; i++ {
			ops = append(ops, put(m[keys[i]].doc))
		}
		clock.now.Store(ts)
		model{}.apply(t, s, ts, ops...)
	}
	return s
}

func testAnalyzers(t testing.TB, sch *schema.Schema) exec.Analyzers {
	return func(field int) *text.Analyzer {
		a, err := text.Lookup(sch.Fields[field].Tokenizer)
		if err != nil {
			t.Error(err)
		}
		return a
	}
}

// answer is what a search returns, without the places.
func answer(t testing.TB, sn *Snapshot, q query.Node) string {
	t.Helper()
	res, err := exec.Search(t.Context(), sn.Leaves(), sn.Schema(), testAnalyzers(t, sn.Schema()), exec.Request{Query: q, Limit: 50})
	if err != nil {
		t.Fatalf("search %v: %v", q, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s:", res.Total, res.TotalRelation)
	for _, h := range res.Hits {
		fmt.Fprintf(&b, " %s=%x", h.Key, h.Score)
	}
	return b.String()
}

// queries are asked of two shards that should answer alike.
func queries() []query.Node {
	lo := query.Bound{Value: "20"}
	return []query.Node{
		&query.All{},
		&query.Match{Field: "body", Text: "w0 w1 w3 w17 w60"},
		&query.Match{Field: "body", Text: "w0 w2 w5", All: true},
		&query.Phrase{Field: "body", Text: "w0 w1"},
		&query.Phrase{Field: "body", Text: "w0 w0 w1", Slop: 3},
		&query.Prefix{Field: "body", Text: "w1"},
		&query.Term{Field: "tag", Text: "t7"},
		&query.Term{Field: "id", Text: "k12"},
		&query.Exists{Field: "n"},
		&query.Bool{Must: []query.Node{&query.Match{Field: "body", Text: "w1 w4"}}, Filter: []query.Node{&query.Range{Field: "n", Min: &lo}}},
		&query.Bool{Must: []query.Node{&query.All{}}, MustNot: []query.Node{&query.Match{Field: "body", Text: "w0"}}},
	}
}

// sameAnswers compares every query on two snapshots: ids, order, totals and score bits.
func sameAnswers(t testing.TB, a, b *Snapshot) {
	t.Helper()
	for _, q := range queries() {
		if x, y := answer(t, a, q), answer(t, b, q); x != y {
			t.Fatalf("query %T %+v:\n%s\n%s", q, q, x, y)
		}
	}
}

// randomOps draws a batch over a small space of keys.
func randomOps(r *rand.Rand, keys int) []Op {
	ops := make([]Op, 1+r.IntN(12))
	for i := range ops {
		key := fmt.Sprint("k", r.IntN(keys))
		switch x := r.IntN(10); {
		case x < 2:
			ops[i] = Op{Delete: true, Key: key}
		case x < 4:
			ops[i] = Op{Create: true, Doc: randomDoc(r, key)}
		default:
			ops[i] = put(randomDoc(r, key))
		}
	}
	return ops
}

// TestModel runs random histories of writes, flushes, merges, snapshots and reopenings against a map.
func TestModel(t *testing.T) {
	seeds := uint64(4)
	if long {
		seeds = 60
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runModel(t, seed) })
	}
}

func runModel(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 11))
	var clock testClock
	fsys := memfs.New(nil)
	cfg := config(t, fsys)
	cfg.Clock = clock.read
	cfg.MemtableBytes = 1 << 20
	s := open(t, cfg)
	m := model{}
	type held struct {
		sn *Snapshot
		m  model
	}
	var snaps []held
	keys := 20 + r.IntN(150)
	for step := range 150 {
		switch x := r.IntN(100); {
		case x < 80:
			clock.now.Add(1)
			m.apply(t, s, clock.now.Load(), randomOps(r, keys)...)
		case x < 87:
			if err := s.Flush(t.Context()); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		case x < 89:
			if err := s.Merge(t.Context(), 1+r.IntN(3)); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		case x < 95:
			snaps = append(snaps, held{s.Snapshot(), m.clone()})
		default:
			for _, h := range snaps {
				h.m.verify(t, h.sn)
				h.sn.Release()
			}
			snaps = nil
			cfg.NoFlushOnClose = r.IntN(2) == 0
			s.cfg.NoFlushOnClose = cfg.NoFlushOnClose
			closeShard(t, s)
			s = open(t, cfg)
		}
		if step%20 == 19 {
			if err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			sn := s.Snapshot()
			m.verify(t, sn)
			sn.Release()
		}
	}
	for _, h := range snaps {
		h.m.verify(t, h.sn)
		h.sn.Release()
	}
	sn := s.Snapshot()
	m.verify(t, sn)
	other := m.fresh(t)
	osn := other.Snapshot()
	sameAnswers(t, sn, osn)
	sn.Release()
	osn.Release()
}

// keysOf returns the keys that a query finds, sorted.
func keysOf(t testing.TB, sn *Snapshot, q query.Node) string {
	t.Helper()
	res, err := exec.Search(t.Context(), sn.Leaves(), sn.Schema(), testAnalyzers(t, sn.Schema()), exec.Request{Query: q, Limit: 100})
	if err != nil {
		t.Fatalf("search %v: %v", q, err)
	}
	var keys []string
	for _, h := range res.Hits {
		keys = append(keys, h.Key)
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// noCheck lets a leaf read on.
func noCheck(int) error { return nil }
