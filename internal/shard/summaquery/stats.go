package summaquery

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/passage"
	"github.com/weft-search/weft/internal/summa"
)

// exactAvg is a number of documents with which any average comes out of a division with its own bits: a power of two that makes a whole
// number of every binary32 from 1 on.
const exactAvg = 1 << 24

// installPlain makes the statistics that came with the request ready for package exec.
func (r *runner) installPlain() {
	if r.given == nil {
		return
	}
	docs := uint64(0)
	for _, l := range r.ix.Leaves {
		docs += uint64(l.LiveDocs())
	}
	st := &score.Stats{Docs: docs, Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}, Corpus: map[string]uint64{}}
	for _, f := range r.given.GetFields() {
		name := f.GetField()
		st.Corpus[name] = f.GetCorpusSize()
		if n := f.GetDocsWithField(); n > 0 {
			st.Fields[name] = score.FieldStats{SumLen: f.GetTotalTokens(), Docs: n}
		} else {
			st.Fields[name] = score.FieldStats{SumLen: uint64(float64(avgOf(f)) * exactAvg), Docs: exactAvg}
		}
		for _, t := range f.GetTerms() {
			st.DF[score.Term{Field: name, Text: string(t.GetTerm())}] = t.GetDocFreq()
		}
	}
	r.plain = st
}

// avgOf is the average length of a field, from 1 to a bound that no field reaches.
func avgOf(f *summapb.TextFieldStats) float32 {
	avg := f.GetAvgLen()
	if math.IsNaN(float64(avg)) {
		return 1
	}
	return min(max(avg, 1), 1<<20)
}

// installPassages puts the statistics that came with the request in the place of the index's own. The floor stays that of the index where
// they do not have lengths.
func (r *runner) installPassages(name string, st *passage.Stats) {
	for _, f := range r.given.GetFields() {
		if f.GetField() != name {
			continue
		}
		st.FloorOf, st.Passages = st.Passages, f.GetCorpusSize()
		st.DF = map[string]uint64{}
		for _, t := range f.GetTerms() {
			st.DF[string(t.GetTerm())] = t.GetDocFreq()
		}
		st.Avg = avgOf(f)
		if n := f.GetDocsWithField(); n > 0 {
			st.Avg = score.AvgLen(score.FieldStats{SumLen: f.GetTotalTokens(), Docs: n})
		}
		if n := len(f.GetChunkLengths()); n > 0 && n == len(f.GetChunkCounts()) {
			st.Lengths = map[uint32]uint64{}
			for i, l := range f.GetChunkLengths() {
				st.Lengths[l] += f.GetChunkCounts()[i]
			}
			st.FloorOf = 0
			for _, c := range f.GetChunkCounts() {
				st.FloorOf += c
			}
		}
	}
}

// fieldStats are those of a plain text field with every live document that has a value, also one without a token; changed says that
// there are such.
func fieldStats(ctx context.Context, ix *Index, field int) (st score.FieldStats, changed bool, err error) {
	for _, l := range ix.Leaves {
		own := l.FieldStats(field)
		st.SumLen += own.SumLen
		if own.Docs == uint64(l.LiveDocs()) {
			st.Docs += own.Docs
			continue
		}
		has := l.Present(field)
		if has == nil {
			continue
		}
		count := func(of func(doc uint32) bool) (n uint64, err error) {
			for doc := range l.NumDocs() {
				if doc%(1<<15) == 0 && ctx.Err() != nil {
					return 0, fmt.Errorf("count documents: %w", context.Cause(ctx))
				}
				if of(doc) && has(doc) {
					n++
				}
			}
			return n, nil
		}
		n, err := ix.Cache.counted(l, field, func() (uint64, error) { return count(func(uint32) bool { return true }) })
		if err != nil {
			return st, false, err
		}
		if live := l.Live(); live != nil {
			dead, err := count(func(doc uint32) bool { return !live.Has(doc) })
			if err != nil {
				return st, false, err
			}
			n -= dead
		}
		changed = changed || n != own.Docs
		st.Docs += n
	}
	return st, changed, nil
}

// TextStats returns the statistics of the text leaves of a query: of each field that one of them names, with all their terms. Terms that
// stand nowhere are left out. The request was checked (summa.Limits.CheckTextStats).
func TextStats(ctx context.Context, ix *Index, q *summapb.Query, limits summa.Limits) (*summapb.TextStats, error) {
	c := &compiler{ctx: ctx, ix: ix, limits: limits}
	p, err := c.query(q)
	if err != nil {
		return nil, err
	}
	terms := map[int]map[string]bool{}
	var walk func(p *part)
	walk = func(p *part) {
		if p.kind == kindText || p.kind == kindPassages {
			if terms[p.field] == nil {
				terms[p.field] = map[string]bool{}
			}
			for _, t := range p.terms {
				terms[p.field][t.text] = true
			}
		}
		if p.of != nil {
			walk(p.of)
		}
		for _, list := range [][]*part{p.must, p.should, p.not} {
			for _, k := range list {
				walk(k)
			}
		}
	}
	walk(p)
	out := &summapb.TextStats{}
	for _, l := range ix.Leaves {
		out.TotalDocs += uint64(l.LiveDocs())
	}
	fields := slices.SortedFunc(maps.Keys(terms), func(a, b int) int {
		return cmpName(ix, a, b)
	})
	for _, field := range fields {
		list := slices.Sorted(maps.Keys(terms[field]))
		f := &ix.Schema.Fields[field]
		st := &summapb.TextFieldStats{Field: f.Name}
		df := map[string]uint64{}
		if f.Chunked {
			ps, err := passage.Statistics(ctx, ix.Leaves, field, list, ix.Cache.ofPassages())
			if err != nil {
				return nil, err
			}
			st.CorpusSize, st.AvgLen, df = ps.Passages, ps.AvgLen(), ps.DF
			st.TotalTokens, st.DocsWithField = ps.SumLen, ps.Passages
			for _, l := range slices.Sorted(maps.Keys(ps.Lengths)) {
				st.ChunkLengths, st.ChunkCounts = append(st.ChunkLengths, l), append(st.ChunkCounts, ps.Lengths[l])
			}
		} else {
			words := &query.Words{Field: f.Name}
			for _, t := range list {
				words.Words = append(words.Words, query.Word{Text: t})
			}
			own, err := exec.Statistics(ctx, ix.Leaves, ix.Schema, ix.Analyzers, exec.Request{Query: words})
			if err != nil {
				return nil, queryFault(err)
			}
			fs, _, err := fieldStats(ctx, ix, field)
			if err != nil {
				return nil, err
			}
			st.CorpusSize, st.AvgLen = own.Docs, score.AvgLen(fs)
			st.TotalTokens, st.DocsWithField = fs.SumLen, fs.Docs
			for t, n := range own.DF {
				df[t.Text] = n
			}
		}
		for _, t := range list {
			if df[t] > 0 {
				st.Terms = append(st.Terms, &summapb.TermDocFreq{Term: []byte(t), DocFreq: df[t]})
			}
		}
		out.Fields = append(out.Fields, st)
	}
	return out, nil
}

func cmpName(ix *Index, a, b int) int {
	switch x, y := ix.Schema.Fields[a].Name, ix.Schema.Fields[b].Name; {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}
