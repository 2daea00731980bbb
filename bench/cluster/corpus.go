package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/cli/demo"
)

// dims is the length of the vectors that hybrid searches ask for.
const dims = 32

// corpus is a collection of documents and what a query has to know of it.
type corpus struct {
	name   string
	schema string // SDL of an index named bench
	n      int
	// doc is a document as a line of JSON, and text the words in it that queries are made of.
	doc  func(i int) []byte
	text func(i int) []string
	// facet names a keyword field with few values, group one with more; group also has the values that filters ask for.
	facet, group string
	groups       []string
	vectors      bool
}

// extra are the fields that documents have for orders, aggregations and vectors.
type extra struct {
	Size int       `json:"size"`
	At   string    `json:"at"`
	V    []float32 `json:"v,omitempty"`
}

const extraFields = `
    field size: i64 [stored, fast]
    field at: date [stored, fast]
    field v: dense_vector<32> [indexed<metric: cosine>]
}
`

var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// extras of document i: the same in every run. Vectors lie around a few hundred centres.
func extras(i, size int, vector bool) extra {
	rng := rand.New(rand.NewPCG(uint64(i), 2))
	e := extra{Size: size, At: epoch.Add(time.Duration(rng.Int64N(int64(5 * 365 * 24 * time.Hour)))).Truncate(time.Second).Format(time.RFC3339)}
	if vector {
		e.V = vector32(rng)
	}
	return e
}

func vector32(rng *rand.Rand) []float32 {
	centre := rand.New(rand.NewPCG(rng.Uint64N(300), 3))
	v := make([]float32, dims)
	for i := range v {
		v[i] = float32(math.Round((centre.NormFloat64()+rng.NormFloat64()/2)*1000) / 1000)
	}
	return v
}

// goDocs is the documentation of Go's standard library, as weft dev --demo indexes it, with a vector for every symbol.
func goDocs(ctx context.Context) (*corpus, error) {
	root, err := demo.FindGoRoot(ctx)
	if err != nil {
		return nil, err
	}
	c := &corpus{name: "Go documentation", facet: "kind", group: "package", vectors: true}
	c.schema = strings.TrimSuffix(strings.TrimSpace(demo.Schema("bench")), "}") + extraFields
	var docs [][]byte
	var texts [][]string
	err = demo.StandardLibrary(root).Collect(ctx, func(pkg string, list []demo.Doc) error {
		c.groups = append(c.groups, pkg)
		for _, d := range list {
			line, err := json.Marshal(struct {
				demo.Doc
				extra
			}{d, extras(len(docs), len(d.Doc), true)})
			if err != nil {
				return fmt.Errorf("encode %s: %w", d.ID, err)
			}
			docs = append(docs, line)
			texts = append(texts, words(d.Doc))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the documentation of Go: %w", err)
	}
	c.n = len(docs)
	c.doc = func(i int) []byte { return docs[i] }
	c.text = func(i int) []string { return texts[i] }
	return c, nil
}

// words are the parts of a text that every tokenizer takes for one word.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

const generatedSchema = `index bench {
    default_fields: [title, body]
    field id: text<raw> [indexed, stored, fast, primary]
    field kind: text<raw> [indexed, stored, fast]
    field package: text<raw> [indexed, stored, fast]
    field title: text<simple> [indexed<positions>, stored]
    field body: text<simple> [indexed<positions>, stored]` + extraFields

// Values of the keyword fields of generated documents, few of them frequent.
const (
	kinds   = 8
	shelves = 400
)

// generated makes n documents of runs of words cut out of another corpus, so that words, their frequencies and their neighbours are those
// of real text. spans is how many runs a body has at most. One document in ten has a vector, if any has.
func generated(from *corpus, n, spans int, vectors bool) *corpus {
	var text []string
	for i := range from.n {
		text = append(text, from.text(i)...)
	}
	c := &corpus{name: "generated", schema: generatedSchema, n: n, facet: "kind", group: "package", vectors: vectors}
	for g := range shelves {
		c.groups = append(c.groups, "shelf-"+strconv.Itoa(g))
	}
	run := func(rng *rand.Rand, least, most int) []string {
		k := least + rng.IntN(most-least+1)
		at := rng.IntN(len(text) - k)
		return text[at : at+k]
	}
	parts := func(i int) (rng *rand.Rand, title []string, body [][]string) {
		rng = rand.New(rand.NewPCG(uint64(i), 1))
		title = run(rng, 2, 5)
		for range 1 + rng.IntN(spans) {
			body = append(body, run(rng, 6, 12))
		}
		return rng, title, body
	}
	c.text = func(i int) (out []string) {
		_, _, body := parts(i)
		for _, b := range body {
			out = append(out, b...)
		}
		return out
	}
	c.doc = func(i int) []byte {
		rng, title, body := parts(i)
		var b strings.Builder
		for k, p := range body {
			if k > 0 {
				b.WriteString(". ")
			}
			b.WriteString(strings.Join(p, " "))
		}
		kind := rand.NewZipf(rng, 1.5, 2, kinds-1).Uint64()
		shelf := rand.NewZipf(rng, 1.3, 4, shelves-1).Uint64()
		// Put together by hand: a corpus of many millions is made while it is loaded.
		line := fmt.Appendf(nil, `{"id":"g%08d","kind":"kind-%d","package":"shelf-%d","title":"%s","body":"%s"`, i, kind, shelf, strings.Join(title, " "), b.String())
		e := extras(i, b.Len()*100+rng.IntN(100), vectors && i%10 == 0)
		line = fmt.Appendf(line, `,"size":%d,"at":"%s"`, e.Size, e.At)
		for k, x := range e.V {
			if k == 0 {
				line = append(line, `,"v":[`...)
			} else {
				line = append(line, ',')
			}
			line = strconv.AppendFloat(line, float64(x), 'g', -1, 32)
		}
		if e.V != nil {
			line = append(line, ']')
		}
		return append(line, '}')
	}
	return c
}

// body is a bulk of the documents from…to.
func (c *corpus) body(from, to int) []byte {
	var out []byte
	for i := from; i < to; i++ {
		out = append(append(out, c.doc(i)...), '\n')
	}
	return out
}
