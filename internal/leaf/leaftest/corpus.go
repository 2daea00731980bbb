package leaftest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf"
)

// corpusIndex is the index that most tests read, with a field of every kind.
const (
	corpusIndex = "corpus"
	corpusSDL   = `index corpus {
  field id: text<raw> [indexed, stored, fast, primary]
  field title: text [indexed<token_position>, stored]
  field body: text [indexed<token_position>, stored]
  field note: text [indexed, stored]
  field pad: text [stored]
  field tag: text<raw> [indexed, stored<multi>, fast]
  field i: i64 [stored<multi>, fast]
  field u: u64 [stored, fast]
  field f: f64 [stored, fast]
  field at: date [stored, fast]
  field plain: i64 [stored]
  field v: dense_vector<4> [indexed<metric: cosine>, stored<multi>]
  field bits: binary_dense_vector<16> [indexed, stored]
  field sp: sparse_vector [indexed, stored]
  default_fields: [title, body]
}`
)

type document struct {
	ID    string      `json:"id"`
	Title string      `json:"title,omitempty"`
	Body  string      `json:"body,omitempty"`
	Tag   []string    `json:"tag,omitempty"`
	I     []int64     `json:"i,omitempty"`
	U     *uint64     `json:"u,omitempty"`
	F     *float64    `json:"f,omitempty"`
	At    string      `json:"at,omitempty"`
	V     [][]float32 `json:"v,omitempty"`
	Bits  []byte      `json:"bits,omitempty"`
	Sp    *pairs      `json:"sp,omitempty"`
}

type pairs struct {
	Indices []uint32  `json:"indices"`
	Values  []float32 `json:"values"`
}

var words = []string{"warp", "weft", "loom", "reed", "shed", "yarn", "wale", "woof", "écru", "織物"}

// awkward are texts that a wire may break: quotes, controls, separators, runes of one to four bytes, and what looks like JSON.
var awkward = []string{
	`say "when"`, `back\slash`, "tab\tline\nend\r", "\x00\x01\x1f\x7f", "\u2028\u2029", "é", "日本", "𝄞𝄢", "\ufeffmark", `{"a":[1]}`, "<&>", " lead and trail ", "a+b:c*d^2~1",
}

// extremes are the documents whose values lie at the ends of their types.
func extremes() []document {
	u := func(n uint64) *uint64 { return &n }
	f := func(x float64) *float64 { return &x }
	docs := []document{
		{ID: "least", Title: "warp", I: []int64{math.MinInt64}, U: u(0), F: f(-math.MaxFloat64), At: "0001-01-01T00:00:00Z"},
		{ID: "most", Title: "warp warp", I: []int64{math.MaxInt64}, U: u(math.MaxUint64), F: f(math.MaxFloat64), At: "9999-12-31T23:59:59.999Z"},
		{ID: "both", Title: "warp weft", I: []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}, F: f(math.SmallestNonzeroFloat64), At: "1970-01-01T00:00:00Z"},
		{ID: "beyond", I: []int64{1<<53 + 1}, U: u(1<<63 + 1), F: f(0.1 + 0.2)},
		{ID: "nothing"},
	}
	for i, text := range awkward {
		docs = append(docs, document{ID: text, Title: "reed " + text, Tag: []string{text, "t1"}, I: []int64{int64(i)}})
	}
	return docs
}

func randomDocument(r *rand.Rand, id string) document {
	d := document{ID: id}
	text := func(n int) string {
		var list []string
		for range r.IntN(n) {
			list = append(list, words[min(r.IntN(len(words)), r.IntN(len(words)))])
		}
		return strings.Join(list, " ")
	}
	d.Title, d.Body = text(5), text(12)
	for range r.IntN(4) {
		d.Tag = append(d.Tag, fmt.Sprint("t", r.IntN(6)))
	}
	for range r.IntN(3) {
		d.I = append(d.I, int64(r.IntN(20)-10))
	}
	if r.IntN(3) > 0 {
		u := uint64(r.IntN(1000))
		d.U = &u
	}
	if r.IntN(4) > 0 {
		f := float64(r.IntN(80))/8 - 5
		d.F = &f
	}
	if r.IntN(4) > 0 {
		d.At = time.Date(2024, time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), 0, 0, 0, time.UTC).Format(time.RFC3339)
	}
	for range r.IntN(3) {
		d.V = append(d.V, []float32{1 + float32(r.IntN(9)), float32(r.IntN(9)) - 4, float32(r.IntN(9)) - 4, float32(r.IntN(9)) - 4})
	}
	if r.IntN(2) > 0 {
		d.Bits = []byte{byte(r.IntN(256)), byte(r.IntN(256))}
	}
	if r.IntN(2) > 0 {
		d.Sp = &pairs{[]uint32{uint32(r.IntN(3)), uint32(3 + r.IntN(3))}, []float32{float32(1 + r.IntN(4)), float32(1+r.IntN(4)) / 3}}
	}
	return d
}

// fill makes the corpus on the node: two segments and a memtable, with documents that were replaced or deleted. It returns the ids that
// are there, ascending.
func fill(t testing.TB, e Env, random int) []string {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 11))
	e.Node.Create(t, corpusIndex, corpusSDL)
	there := map[string]bool{}
	put := func(docs []document) {
		t.Helper()
		load(t, e.Node.Leaf(), corpusIndex, docs)
		for _, d := range docs {
			there[d.ID] = true
		}
	}
	some := func(from, to int) (docs []document) {
		for i := from; i < to; i++ {
			docs = append(docs, randomDocument(r, fmt.Sprintf("d%05d", i)))
		}
		return docs
	}
	put(some(0, random/2))
	e.Node.Flush(t, corpusIndex)
	put(append(some(random/3, random*3/4), extremes()[:8]...))
	e.Node.Flush(t, corpusIndex)
	put(append(some(random*2/3, random), extremes()[8:]...))
	var gone []string
	for i := 0; i < random; i += 9 {
		gone = append(gone, fmt.Sprintf("d%05d", i))
	}
	if _, err := e.Node.Leaf().DeleteMany(context.Background(), &leaf.DeleteRequest{Index: corpusIndex, IDs: gone}); err != nil {
		t.Fatal(err)
	}
	for _, id := range gone {
		delete(there, id)
	}
	ids := make([]string, 0, len(there))
	for id := range there {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// load writes documents that have to go in.
func load(t testing.TB, l leaf.Leaf, index string, docs []document) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for i := range docs {
		if err := enc.Encode(&docs[i]); err != nil {
			t.Fatal(err)
		}
	}
	reply, err := l.Bulk(context.Background(), &leaf.BulkRequest{Index: index}, &b)
	if err != nil {
		t.Fatal(err)
	}
	if !reply.OK || reply.Indexed != uint64(len(docs)) {
		t.Fatalf("load: %+v", reply)
	}
}
