package search

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/topology/placement"
)

// RecallRequest asks how well vector searches of a field find what exact ones find.
type RecallRequest struct {
	Index   string
	Field   string
	K       int // neighbours of each sample, 1 to knn.MaxK−1
	Samples int // query vectors, 1 to knn.MaxSamples
	Ef      int // candidates of a graph; 0: chosen from K
}

// Recall takes stored vectors as queries and compares the nearest that a search over all shards finds with those of an exact one. The
// documents are those whose ids have the least placement.Hash, so that the sample does not depend on how documents are spread, and all of
// their vectors are taken. The document that a query was taken from does not count. The vectors are read from sources: an index that keeps
// none cannot be measured over a cluster. Errors are those of a node.
func (s *Searcher) Recall(ctx context.Context, req RecallRequest) (api.RecallReply, *api.Problem) {
	reply, prob := s.recall(ctx, req, false)
	if prob != nil && ofSchema(prob.Code) {
		reply, prob = s.recall(ctx, req, true)
	}
	return reply, prob
}

func (s *Searcher) recall(ctx context.Context, req RecallRequest, fresh bool) (api.RecallReply, *api.Problem) {
	none := api.RecallReply{}
	sch, err := s.o.Schemas(ctx, req.Index, fresh)
	if err != nil {
		return none, s.problem(ctx, err)
	}
	if _, err := knn.Recall(ctx, nil, sch, knn.RecallRequest{Field: req.Field, K: req.K, Samples: req.Samples, Ef: req.Ef}); err != nil {
		return none, s.problem(ctx, fmt.Errorf("measure recall: %w", err))
	}
	m := &measurement{s: s, req: req, sch: sch}
	if err := m.run(ctx); err != nil {
		return none, s.problem(ctx, err)
	}
	reply := api.RecallReply{Recall: 1, K: req.K, Samples: m.samples, Approximate: m.approximate}
	if m.wanted > 0 {
		reply.Recall = float64(m.found) / float64(m.wanted)
	}
	return reply, nil
}

// measurement is a measurement of recall under way.
type measurement struct {
	s   *Searcher
	req RecallRequest
	sch *schema.Schema

	samples, found, wanted int
	approximate            bool
}

// exportIDs is how many documents are read at once for their vectors.
const exportIDs = 100

func (m *measurement) run(ctx context.Context) error {
	ids, err := m.candidates(ctx)
	if err != nil {
		return err
	}
	for len(ids) > 0 && m.samples < m.req.Samples {
		n := min(exportIDs, len(ids), m.req.Samples-m.samples)
		vectors, err := m.vectors(ctx, ids[:n])
		if err != nil {
			return err
		}
		for _, id := range ids[:n] {
			for _, v := range vectors[id] {
				if m.samples == m.req.Samples {
					return nil
				}
				if err := m.measure(ctx, id, v); err != nil {
					return err
				}
			}
		}
		ids = ids[n:]
	}
	return nil
}

// mostListed is up to how many documents with a vector are listed by a search; of more the sample is drawn from the list of all ids.
const mostListed = 10_000

// candidates are ids of documents that may have a vector, by hash.
func (m *measurement) candidates(ctx context.Context) ([]string, error) {
	ctx, release := m.s.Charged(ctx)
	defer release()
	reply, err := m.s.member.Search(ctx, &leaf.SearchRequest{
		Index: m.req.Index, View: lenient, Filters: []query.Node{&query.Exists{Field: m.req.Field}}, Limit: mostListed, Sort: []exec.SortKey{{By: exec.ByID}},
	})
	if err != nil {
		return nil, fmt.Errorf("list documents with a vector: %w", err)
	}
	least := &leastHashes{most: leaf.MaxIDs}
	if reply.Total <= uint64(len(reply.Hits)) {
		for i := range reply.Hits {
			least.add(reply.Hits[i].ID)
		}
		return least.sorted(), nil
	}
	// As many ids as hold that many documents with a vector, and some more.
	need := float64(m.req.Samples) * float64(max(reply.Docs, reply.Total)) / float64(reply.Total)
	least.most = min(leaf.MaxIDs, int(1.3*need)+100)
	_, err = m.s.member.IDs(ctx, &leaf.IDsRequest{Index: m.req.Index}, func(ids []string) error {
		for _, id := range ids {
			least.add(id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list documents: %w", err)
	}
	return least.sorted(), nil
}

// vectors reads the vectors of documents.
func (m *measurement) vectors(ctx context.Context, ids []string) (map[string][][]byte, error) {
	field, ok := m.sch.Lookup(m.req.Field)
	if !ok {
		return nil, nil
	}
	parser := jsondoc.NewParser(m.sch, jsondoc.Limits{})
	out := make(map[string][][]byte, len(ids))
	_, err := m.s.member.Export(ctx, &leaf.ExportRequest{Index: m.req.Index, IDs: ids}, func(doc leaf.ExportedDoc) error {
		d, _, bad := parser.Parse(doc.Source)
		if bad != nil {
			return nil // of a newer schema
		}
		for _, v := range d.Fields {
			if v.Field == field {
				for _, b := range v.Bytes {
					out[doc.ID] = append(out[doc.ID], bytes.Clone(b))
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read vectors: %w", err)
	}
	return out, nil
}

// measure compares the two searches for one stored vector.
func (m *measurement) measure(ctx context.Context, id string, stored []byte) error {
	q := api.KNN{Field: m.req.Field, K: m.req.K + 1, Ef: m.req.Ef, Combiner: score.Combiner{Kind: score.Max}}
	field, _ := m.sch.Lookup(m.req.Field)
	if m.sch.Fields[field].Type == schema.BinaryVector {
		q.Bits = stored
	} else {
		q.Dense = schema.Dense(nil, stored)
	}
	if m.sch.Fields[field].VectorFault(stored) != "" {
		return nil // it is no query
	}
	exact := q
	exact.Exact = true
	type answer struct {
		reply *leaf.KNNReply
		err   error
	}
	ctx, release := m.s.Charged(ctx)
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	other := make(chan answer, 1)
	go func() {
		reply, err := m.s.member.KNN(ctx, &leaf.KNNRequest{Index: m.req.Index, View: lenient, KNN: exact})
		other <- answer{reply, err}
	}()
	got, err := m.s.member.KNN(ctx, &leaf.KNNRequest{Index: m.req.Index, View: lenient, KNN: q})
	if err != nil {
		cancel()
	}
	want := <-other
	if err = cmp.Or(err, want.err); err != nil {
		return fmt.Errorf("search for a stored vector: %w", err)
	}
	for _, r := range []*leaf.KNNReply{got, want.reply} {
		if lost(r.Below) {
			return &api.Problem{Code: api.Incomplete, Detail: "a shard did not answer; recall is that of all of them", Extra: r.Below.Shards.AppendJSON([]byte(`"shards":`))}
		}
	}
	m.samples++
	m.approximate = m.approximate || slices.Contains(got.Approximate, leaf.ApproximateGraph)
	g, w := m.without(got.Hits, id), m.without(want.reply.Hits, id)
	m.wanted += len(w)
	if len(w) > 0 {
		for _, h := range g {
			if h.Similarity >= w[len(w)-1].Similarity {
				m.found++
			}
		}
	}
	return nil
}

// without returns the first K hits other than the sample's own document.
func (m *measurement) without(hits []leaf.Neighbour, id string) []leaf.Neighbour {
	out := make([]leaf.Neighbour, 0, m.req.K)
	for _, h := range hits {
		if h.ID != id && len(out) < m.req.K {
			out = append(out, h)
		}
	}
	return out
}

// leastHashes keeps the ids with the least hashes, as a heap with the greatest in front.
type leastHashes struct {
	most int
	ids  []hashed
}

type hashed struct {
	hash uint32
	id   string
}

func compareHashed(a, b hashed) int {
	return cmp.Or(cmp.Compare(a.hash, b.hash), strings.Compare(a.id, b.id))
}

func (l *leastHashes) Len() int           { return len(l.ids) }
func (l *leastHashes) Less(i, j int) bool { return compareHashed(l.ids[i], l.ids[j]) > 0 }
func (l *leastHashes) Swap(i, j int)      { l.ids[i], l.ids[j] = l.ids[j], l.ids[i] }
func (l *leastHashes) Push(x any)         { l.ids = append(l.ids, x.(hashed)) }

// Pop is for package heap, which the ids never leave by.
func (l *leastHashes) Pop() any {
	last := l.ids[len(l.ids)-1]
	l.ids = l.ids[:len(l.ids)-1]
	return last
}

func (l *leastHashes) add(id string) {
	h := hashed{placement.Hash(id), id}
	switch {
	case len(l.ids) < l.most:
		heap.Push(l, h)
	case l.most > 0 && compareHashed(h, l.ids[0]) < 0:
		l.ids[0] = h
		heap.Fix(l, 0)
	}
}

// sorted returns the ids by hash.
func (l *leastHashes) sorted() []string {
	slices.SortFunc(l.ids, compareHashed)
	out := make([]string, len(l.ids))
	for i := range l.ids {
		out[i] = l.ids[i].id
	}
	return out
}
