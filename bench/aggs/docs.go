package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// doc is one generated document: what shops, logs and catalogs have.
type doc struct {
	id      string
	body    string
	country string // 200 values, few of them frequent
	sku     string // 20,000 values
	price   float64
	stock   int64
	created time.Time
}

// The words of body are on the given share of the documents, drawn independently.
var words = []struct {
	word  string
	share float64
}{{"half", 0.5}, {"tenth", 0.1}, {"hundredth", 0.01}}

var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// generator makes the same documents for the same seed.
type generator struct {
	rng  *rand.Rand
	zipf *rand.Zipf
	skus *rand.Zipf
	n    int
}

func newGenerator(seed uint64) *generator {
	rng := rand.New(rand.NewPCG(seed, 1))
	return &generator{rng: rng, zipf: rand.NewZipf(rng, 1.3, 4, 199), skus: rand.NewZipf(rng, 1.1, 50, 19_999)}
}

func (g *generator) next() doc {
	g.n++
	d := doc{
		id:      fmt.Sprintf("d%08d", g.n),
		body:    "any",
		country: "c" + strconv.FormatUint(g.zipf.Uint64(), 10),
		sku:     "sku-" + strconv.FormatUint(g.skus.Uint64(), 10),
		price:   math.Round(math.Exp(g.rng.NormFloat64()+3)*100) / 100,
		stock:   int64(g.rng.IntN(1000)),
		created: epoch.Add(time.Duration(g.rng.Int64N(int64(5*365*24*time.Hour))) / time.Second * time.Second),
	}
	for _, w := range words {
		if g.rng.Float64() < w.share {
			d.body += " " + w.word
		}
	}
	return d
}
