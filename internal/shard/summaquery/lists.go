package summaquery

import (
	"math"
	"slices"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/passage"
)

// listBytes is what a document of a list takes: its number and its score.
const listBytes = 8

// leastGrown is how many documents a list has room for at first.
const leastGrown = 64

// list is one of documents with scores that is being made. It takes room as it grows.
type list struct {
	r     *runner
	given exec.Given
	held  int
}

func (r *runner) newList() *list { return &list{r: r, given: make(exec.Given, len(r.ix.Leaves))} }

// add adds a document of a leaf; those of one leaf ascend.
func (l *list) add(leaf int, doc uint32, score float32) error {
	g := &l.given[leaf]
	if len(g.Docs) == cap(g.Docs) {
		more := max(leastGrown, len(g.Docs))
		if err := l.r.hold(listBytes * more); err != nil {
			return err
		}
		l.held += listBytes * more
		docs, scores := make([]uint32, len(g.Docs), len(g.Docs)+more), make([]float32, len(g.Docs), len(g.Docs)+more)
		copy(docs, g.Docs)
		copy(scores, g.Scores)
		g.Docs, g.Scores = docs, scores
	}
	g.Docs, g.Scores = append(g.Docs, doc), append(g.Scores, score)
	return nil
}

// lists are those of one query of package exec.
type lists struct {
	r     *runner
	given []exec.Given
	held  int // bytes that are theirs alone
}

// put puts a list into the query.
func (ls *lists) put(g exec.Given, held int) *query.Given {
	ls.given, ls.held = append(ls.given, g), ls.held+held
	return &query.Given{List: len(ls.given) - 1}
}

// free gives back what the lists take, when the query was run.
func (ls *lists) free() {
	ls.r.release(ls.held)
	ls.given, ls.held = nil, 0
}

// everyPassage lists the documents that match over passages, each with its score: that of its best passage.
func (r *runner) everyPassage(p *part) (*list, error) {
	parts := []*part{p}
	if !p.phrase && len(p.terms) > 1 {
		// Within a larger query each word scores by its own best passage.
		parts = nil
		for _, t := range r.keptTerms(p) {
			parts = append(parts, &part{kind: kindPassages, field: p.field, terms: []token{t}})
		}
	}
	out := r.newList()
	for li, l := range r.ix.Leaves {
		var walks []*passage.Matches
		var at []uint32
		for _, one := range parts {
			m := r.scorer(one).On(r.ctx, l)
			if m == nil {
				continue
			}
			doc, _ := m.Seek(0)
			walks, at = append(walks, m), append(at, doc)
		}
		for len(walks) > 0 {
			doc := slices.Min(at)
			for _, m := range walks {
				if err := m.Err(); err != nil {
					return nil, err
				}
			}
			if doc == math.MaxUint32 {
				break
			}
			var sum float32
			for i, m := range walks { // in the order of the words, in which scores add up
				if at[i] == doc {
					sum += m.Best()
					at[i], _ = m.Seek(doc + 1)
				}
			}
			if err := out.add(li, doc, sum); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
