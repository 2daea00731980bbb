package hostiletest

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

const docsSchema = `index docs {
  field id: text<raw> [indexed, stored, fast, primary]
  field title: text<standard> [indexed<token_position>, stored]
  field body: text<standard> [indexed<token_position>, stored]
  field kind: text<raw> [indexed, stored, fast]
  field year: i64 [stored, fast]
  field dense: dense_vector<4> [indexed<metric: cosine>, stored]
  field flat: dense_vector<3> [indexed<metric: l2>, stored<multi>]
  field bin: binary_dense_vector<16> [indexed, stored]
  field sp: sparse_vector [indexed, stored]
  default_fields: [title, body]
}`

// words of documents. Many begin alike, so that prefixes are broad.
var words = func() []string {
	out := []string{"loom", "warp", "weft", "spindle", "heddle"}
	for i := range 2000 {
		out = append(out, "w"+strconv.FormatInt(int64(i*7919%100_003), 36))
	}
	return out
}()

// docs are lines of documents, the same for the same seed.
func docs(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	some := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = words[min(r.IntN(len(words)), r.IntN(len(words)))]
		}
		return strings.Join(list, " ")
	}
	for i := range n {
		fmt.Fprintf(&b, `{"id":"d%05d","title":%q,"body":%q,"kind":"k%d","year":%d`, i, some(4), some(30), r.IntN(7), 1900+r.IntN(120))
		if r.IntN(10) > 0 {
			fmt.Fprintf(&b, `,"dense":[%.3f,%.3f,%.3f,1]`, r.Float32(), r.Float32(), r.Float32())
		}
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, `,"flat":[[%.2f,%.2f,0],[1,%.2f,2]]`, r.Float32(), r.Float32(), r.Float32())
		}
		if r.IntN(2) == 0 {
			fmt.Fprintf(&b, `,"bin":%q`, base64.StdEncoding.EncodeToString([]byte{byte(r.Uint32()), byte(r.Uint32())}))
		}
		if r.IntN(2) == 0 {
			fmt.Fprintf(&b, `,"sp":{"indices":[%d,%d],"values":[%.2f,%.2f]}`, r.IntN(8), 8+r.IntN(8), 0.1+r.Float32(), 0.1+r.Float32())
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// count is how many documents of the corpus there are.
const count = 6000

// fill gives the corpus to the broker and to the node by itself.
func (f *fleet) fill(t *testing.T) {
	t.Helper()
	lines := docs(1, count)
	for _, s := range []*site{f.broker, f.alone} {
		s.must(201, "PUT", "/indexes/docs", asText, docsSchema)
		if r := s.must(200, "POST", "/index/bulk?index=docs", ndjson, lines).object(t); number(t, r, "indexed") != count {
			t.Fatalf("%s: %v", s.name, r)
		}
	}
}
