package read

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/wire/jsonscan"
)

// A member may answer what cannot be: one with a fault in its memory or program, or whatever listens at its address. What can be seen of
// that without the documents is looked for here, so that such an answer is a hole and no part of one that calls itself complete, and that
// sums over the shards do not overflow.

// maxDocs is more documents than a shard can hold, whose sums over all shards still fit into a number.
const maxDocs = 1 << 48

// maxLengths is the like for the lengths of a field.
const maxLengths = 1 << 56

// checkDocs looks at the number of live documents, and at how many of them match.
func checkDocs(docs, matching uint64) error {
	switch {
	case docs > maxDocs:
		return fmt.Errorf("it has %d documents", docs)
	case matching > docs:
		return fmt.Errorf("%d of %d documents match", matching, docs)
	}
	return nil
}

// checkID looks at the id of a hit.
func checkID(id string) error {
	if id == "" || !utf8.ValidString(id) {
		return fmt.Errorf("a document has the id %q", id)
	}
	return nil
}

// checkSearch is the check of a search.
func checkSearch(req *leaf.SearchRequest, r *leaf.SearchReply) error {
	hits := uint64(len(r.Hits))
	if len(r.Hits) > max(req.Limit, 0) {
		return fmt.Errorf("there are %d hits, %d were asked for", hits, req.Limit)
	}
	if req.Show != nil {
		if err := checkShown(r.Shown, len(r.Hits)); err != nil {
			return err
		}
	}
	for i := range r.Hits {
		if err := checkID(r.Hits[i].ID); err != nil {
			return err
		}
		if len(r.Hits[i].Sort) != len(req.Sort) {
			return fmt.Errorf("a hit has %d values for %d sort keys", len(r.Hits[i].Sort), len(req.Sort))
		}
	}
	for _, st := range []*score.Stats{r.Stats, r.LocalStats} {
		if st != nil && st != req.Stats {
			if err := checkStats(st); err != nil {
				return err
			}
		}
	}
	if b := r.Below; b != nil && b.DocsTotal > maxDocs {
		return checkDocs(b.DocsTotal, 0)
	}
	if r.Partial || holed(&r.Meta) { // its parts speak of different numbers of documents
		return checkDocs(r.Docs, 0)
	}
	if err := checkDocs(r.Docs, max(hits, r.Total)); err != nil || req.Total == exec.TotalNone {
		return err
	}
	switch {
	case r.TotalRelation == "":
		return errors.New("it has no total")
	case r.TotalRelation != exec.Exactly:
	case req.After == nil && hits != min(uint64(max(req.Limit, 0)), r.Total), hits > r.Total:
		return fmt.Errorf("there are %d hits of %d that match, %d were asked for", hits, r.Total, req.Limit)
	}
	return nil
}

// checkFetch is the check of a call for documents.
func checkFetch(req *leaf.FetchRequest, r *leaf.FetchReply) error {
	return checkShown(r.Docs, len(req.IDs))
}

// checkShown looks at what is shown of n documents, which goes into replies as it is.
func checkShown(docs []leaf.Shown, n int) error {
	if len(docs) != n {
		return fmt.Errorf("it shows %d documents of %d", len(docs), n)
	}
	for i := range docs {
		for _, part := range [][]byte{docs[i].Source, docs[i].Highlight, docs[i].Lexical, docs[i].Vector} {
			// Members that stand twice are the business of the reader.
			if len(part) > 0 && (part[0] != '{' || !jsonscan.Valid(part)) {
				return fmt.Errorf("what it shows of document %d is no JSON object", i)
			}
		}
	}
	return nil
}

// checkKNN is the check of a vector search.
func checkKNN(req *leaf.KNNRequest, r *leaf.KNNReply) error {
	if len(r.Hits) > req.KNN.K {
		return fmt.Errorf("there are %d neighbours, %d were asked for", len(r.Hits), req.KNN.K)
	}
	for i := range r.Hits {
		if err := checkID(r.Hits[i].ID); err != nil {
			return err
		}
	}
	if r.Partial || holed(&r.Meta) {
		return checkDocs(r.Docs, 0)
	}
	return checkDocs(r.Docs, uint64(len(r.Hits)))
}

// checkStats looks at statistics as the shards do that are to score with them: of a sum with others that no documents have, every shard
// would say that its caller is at fault.
func checkStats(st *score.Stats) error {
	if err := checkDocs(st.Docs, 0); err != nil {
		return err
	}
	for t, df := range st.DF {
		if df > st.Docs {
			return fmt.Errorf("%d of %d documents have %q in field %q", df, st.Docs, t.Text, t.Field)
		}
	}
	for name, f := range st.Fields {
		if f.Docs > st.Docs || f.SumLen < f.Docs || f.SumLen > maxLengths {
			return fmt.Errorf("%d of %d documents have %d words in field %q", f.Docs, st.Docs, f.SumLen, name)
		}
	}
	return nil
}
