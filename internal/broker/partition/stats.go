package partition

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/score"
)

// GetTextStats asks all partitions that can be asked for the statistics of a query's terms and adds them up (section Reads of partitioned
// indexes). missing_partitions counts those that are not in it.
func GetTextStats(ctx context.Context, ix *Index, c Caller, r Reads, req []byte) (Answer, error) {
	parts, err := r.reach(ix)
	if err != nil {
		return Answer{}, err
	}
	good, left, err := r.round(ctx, ix, c, parts, summapb.SearchService_GetTextStats_FullMethodName, req)
	if err != nil {
		return Answer{}, err
	}
	sum, missing, err := ix.sumStats(good, false)
	if err != nil {
		return Answer{}, err
	}
	left = ix.leftOut(left)
	reply, err := encode(&summapb.GetTextStatsResponse{Stats: sum, MissingPartitions: add32(missing, uint32(len(left)))})
	return Answer{Reply: reply, LeftOut: left}, err
}

// leftOut are the partitions that an answer is without: those that could not be asked, and those that were lost.
func (ix *Index) leftOut(lost []int) []int {
	if len(lost) == 0 {
		return ix.Missing
	}
	out := slices.Concat(ix.Missing, lost)
	slices.Sort(out)
	return out
}

// sumStats adds up statistics. With needed, a reply without any is refused: it is of a program that does not know them. missing is what the
// replies say that they are without themselves.
func (ix *Index) sumStats(outs []outcome, needed bool) (sum *summapb.TextStats, missing uint32, err error) {
	a := adding{fields: map[string]*fieldSum{}}
	for _, o := range outs {
		m := &summapb.GetTextStatsResponse{}
		if err := decode(o.reply, m); err != nil {
			return nil, 0, ix.Fault(o.part, err)
		}
		if needed && m.Stats == nil {
			return nil, 0, ix.blame(o.part, status.Error(codes.FailedPrecondition, "a shard omitted requested BM25 statistics"))
		}
		missing = add32(missing, m.MissingPartitions)
		a.add(m.Stats)
	}
	return a.sum(), missing, nil
}

// adding is a sum of statistics on its way.
type adding struct {
	docs   uint64
	fields map[string]*fieldSum
}

type fieldSum struct {
	corpus  uint64
	lengths float64 // average lengths times corpus
	terms   map[string]uint64
	// Exact statistics (differences.md, Extensions on the wire). They are sent on only if every partition has them: of some they would stand
	// for all.
	tokens, docs  uint64
	chunks        map[uint32]uint64
	exact, floors bool
}

func (a *adding) add(st *summapb.TextStats) {
	a.docs = add(a.docs, st.GetTotalDocs())
	for _, f := range st.GetFields() {
		s := a.fields[f.Field]
		if s == nil {
			s = &fieldSum{terms: map[string]uint64{}, chunks: map[uint32]uint64{}, exact: true, floors: true}
			a.fields[f.Field] = s
		}
		s.corpus = add(s.corpus, f.CorpusSize)
		if f.CorpusSize > 0 {
			s.lengths += float64(f.AvgLen) * float64(f.CorpusSize)
		}
		for _, t := range f.Terms {
			s.terms[string(t.Term)] = add(s.terms[string(t.Term)], t.DocFreq)
		}
		s.tokens, s.docs = add(s.tokens, f.TotalTokens), add(s.docs, f.DocsWithField)
		// A partition whose documents all lack the field counts none, which looks like one that does not count.
		lacks := f.CorpusSize == 0 || len(f.Terms) == 0 && f.AvgLen <= 1
		s.exact = s.exact && (f.DocsWithField > 0 || lacks)
		if len(f.ChunkLengths) != len(f.ChunkCounts) || len(f.ChunkLengths) == 0 && f.CorpusSize > 0 {
			s.floors = false
			continue
		}
		for i, l := range f.ChunkLengths {
			s.chunks[l] = add(s.chunks[l], f.ChunkCounts[i])
		}
	}
}

// sum is what was added, fields and terms sorted. The average length is Σ avg·corpus / Σ corpus, in f64; where all partitions count exactly,
// it is that of their counts.
func (a *adding) sum() *summapb.TextStats {
	out := &summapb.TextStats{TotalDocs: a.docs}
	for _, name := range slices.Sorted(maps.Keys(a.fields)) {
		s := a.fields[name]
		f := &summapb.TextFieldStats{Field: name, CorpusSize: s.corpus}
		if s.corpus > 0 {
			f.AvgLen = float32(s.lengths / float64(s.corpus))
		}
		for _, t := range slices.Sorted(maps.Keys(s.terms)) {
			f.Terms = append(f.Terms, &summapb.TermDocFreq{Term: []byte(t), DocFreq: s.terms[t]})
		}
		if s.exact && s.docs > 0 {
			f.TotalTokens, f.DocsWithField = s.tokens, s.docs
			f.AvgLen = score.AvgLen(score.FieldStats{SumLen: s.tokens, Docs: s.docs})
		}
		if s.floors {
			for _, l := range slices.Sorted(maps.Keys(s.chunks)) {
				f.ChunkLengths, f.ChunkCounts = append(f.ChunkLengths, l), append(f.ChunkCounts, s.chunks[l])
			}
		}
		out.Fields = append(out.Fields, f)
	}
	return out
}
