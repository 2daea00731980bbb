package main

import (
	"fmt"
	"time"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/keyword"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/simple"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/blevesearch/bleve/v2/search/query"
)

// bleveEngine is bleve with doc values for every field that is aggregated.
type bleveEngine struct {
	ix bleve.Index
}

func newBleve(dir string) (*bleveEngine, error) {
	plain := func(f *mapping.FieldMapping) *mapping.FieldMapping {
		f.Store, f.IncludeInAll, f.IncludeTermVectors, f.DocValues = false, false, false, true
		return f
	}
	m := bleve.NewIndexMapping()
	d := bleve.NewDocumentStaticMapping()
	body := plain(bleve.NewTextFieldMapping())
	body.Analyzer, body.DocValues = simple.Name, false
	d.AddFieldMappingsAt("body", body)
	for _, name := range []string{"country", "sku"} {
		f := plain(bleve.NewTextFieldMapping())
		f.Analyzer = keyword.Name
		d.AddFieldMappingsAt(name, f)
	}
	d.AddFieldMappingsAt("price", plain(bleve.NewNumericFieldMapping()))
	d.AddFieldMappingsAt("stock", plain(bleve.NewNumericFieldMapping()))
	d.AddFieldMappingsAt("created", plain(bleve.NewDateTimeFieldMapping()))
	m.DefaultMapping = d
	ix, err := bleve.NewUsing(dir, m, scorch.Name, bleve.Config.DefaultKVStore, map[string]any{"unsafe_batch": true})
	if err != nil {
		return nil, err
	}
	return &bleveEngine{ix: ix}, nil
}

func (b *bleveEngine) add(docs []doc) error {
	batch := b.ix.NewBatch()
	for i, d := range docs {
		err := batch.Index(d.id, map[string]any{
			"body": d.body, "country": d.country, "sku": d.sku, "price": d.price, "stock": float64(d.stock), "created": d.created,
		})
		if err != nil {
			return fmt.Errorf("adding %s: %w", d.id, err)
		}
		if batch.Size() == 1000 || i == len(docs)-1 {
			if err := b.ix.Batch(batch); err != nil {
				return fmt.Errorf("applying a batch: %w", err)
			}
			batch.Reset()
		}
	}
	return nil
}

// settle waits until bleve's own persisting and merging has been at rest for a second.
func (b *bleveEngine) settle() error {
	adv, err := b.ix.Advanced()
	if err != nil {
		return err
	}
	s, ok := adv.(*scorch.Scorch)
	if !ok {
		return fmt.Errorf("the index is a %T", adv)
	}
	var last [5]uint64
	since := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		stats := s.StatsMap()
		var now [5]uint64
		for i, k := range []string{"CurRootEpoch", "LastPersistedEpoch", "LastMergedEpoch", "TotFileMergePlanTasks", "TotFileMergePlanTasksDone"} {
			now[i], _ = stats[k].(uint64)
		}
		if now != last {
			last, since = now, time.Now()
		}
		if idle := now[0] == now[1] && now[3] == now[4]; idle && time.Since(since) > time.Second || time.Since(since) > 30*time.Second {
			return nil
		}
	}
	return nil
}

func (b *bleveEngine) request(q question) *bleve.SearchRequest {
	var match query.Query = bleve.NewMatchAllQuery()
	if q.word != "" {
		t := bleve.NewTermQuery(q.word)
		t.SetField("body")
		match = t
	}
	req := bleve.NewSearchRequestOptions(match, 0, 0, false)
	f := bleve.NewFacetRequest(q.facet.field, max(q.facet.size, len(q.facet.nums), len(q.facet.dates)))
	for _, r := range q.facet.nums {
		f.AddNumericRange(r.name, r.lo, r.hi)
	}
	for _, r := range q.facet.dates {
		f.AddDateTimeRange(r.name, r.lo, r.hi)
	}
	req.AddFacet("a", f)
	req.Score = "none"
	return req
}

func (b *bleveEngine) search(q question) (*bleve.SearchResult, error) {
	return b.ix.SearchInContext(background, b.request(q))
}

func (b *bleveEngine) run(q question) error {
	_, err := b.search(q)
	return err
}

func (b *bleveEngine) counts(q question) ([]int, error) {
	res, err := b.search(q)
	if err != nil {
		return nil, err
	}
	var out []int
	f := res.Facets["a"]
	for _, t := range f.Terms.Terms() {
		out = append(out, t.Count)
	}
	for _, r := range f.NumericRanges {
		out = append(out, r.Count)
	}
	for _, r := range f.DateRanges {
		out = append(out, r.Count)
	}
	return out, nil
}

func (b *bleveEngine) close() error { return b.ix.Close() }
