package partition

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
)

// GetIndexInfo asks all partitions and adds up what they say (section Reads of partitioned indexes). It is never partial: of r, Partial only
// words the refusal where a partition cannot be asked.
func GetIndexInfo(ctx context.Context, ix *Index, c Caller, r Reads, req []byte) ([]byte, error) {
	if r.Partial && len(ix.Missing) > 0 {
		return nil, ix.Fault(ix.Missing[0], status.Error(codes.Unavailable, "no routable replica"))
	}
	if err := ix.Whole(); err != nil {
		return nil, err
	}
	outs, _, err := Reads{}.round(ctx, ix, c, ix.present(), summapb.SearchService_GetIndexInfo_FullMethodName, req)
	if err != nil {
		return nil, err
	}
	infos := make([]*summapb.GetIndexInfoResponse, len(outs))
	for i, o := range outs {
		infos[i] = &summapb.GetIndexInfoResponse{}
		if err := decode(o.reply, infos[i]); err != nil {
			return nil, ix.Fault(o.part, err)
		}
	}
	return encode(mergeInfos(infos))
}

// mergeInfos adds infos to the first: counts and bytes are summed, versions the lowest, unprepared fields united, the ratio of deleted rows
// made anew; schema and text fields are the first one's.
func mergeInfos(infos []*summapb.GetIndexInfoResponse) *summapb.GetIndexInfoResponse {
	sum := infos[0]
	unprepared := map[string]bool{}
	for i, m := range infos {
		for _, f := range m.UnpreparedCandidateFields {
			unprepared[f] = true
		}
		if i == 0 {
			continue
		}
		sum.NumDocs = add32(sum.NumDocs, m.NumDocs)
		sum.NumSegments = add32(sum.NumSegments, m.NumSegments)
		sum.PhysicalNumDocs = add(sum.PhysicalNumDocs, m.PhysicalNumDocs)
		sum.NumDeletedDocs = add(sum.NumDeletedDocs, m.NumDeletedDocs)
		sum.CandidateScoringVersion = min(sum.CandidateScoringVersion, m.CandidateScoringVersion)
		sum.BinaryRetrievalVersion = min(sum.BinaryRetrievalVersion, m.BinaryRetrievalVersion)
		sum.MemoryStats = addMemory(sum.MemoryStats, m.MemoryStats)
	}
	sum.UnpreparedCandidateFields = slices.Sorted(maps.Keys(unprepared))
	sum.VectorStats = mergeVectors(infos)
	sum.DeletedRatio = 0
	if sum.PhysicalNumDocs > 0 {
		sum.DeletedRatio = float64(sum.NumDeletedDocs) / float64(sum.PhysicalNumDocs)
	}
	return sum
}

// mergeVectors adds up by field and type, sorted by them. Averages are weighted by vectors; the dimension, which of a sparse field is what was
// seen, is the largest.
func mergeVectors(infos []*summapb.GetIndexInfoResponse) []*summapb.VectorFieldStats {
	type name struct{ field, kind string }
	sums := map[name]*summapb.VectorFieldStats{}
	terms := map[name]float64{}
	for _, m := range infos {
		for _, v := range m.VectorStats {
			n := name{v.FieldName, v.VectorType}
			terms[n] += float64(v.AvgTermsPerVector) * float64(v.TotalVectors)
			s := sums[n]
			if s == nil {
				sums[n] = v
				continue
			}
			s.TotalVectors = add(s.TotalVectors, v.TotalVectors)
			s.Dimension = max(s.Dimension, v.Dimension)
		}
	}
	out := slices.SortedFunc(maps.Values(sums), func(a, b *summapb.VectorFieldStats) int {
		return cmp.Or(cmp.Compare(a.FieldName, b.FieldName), cmp.Compare(a.VectorType, b.VectorType))
	})
	for _, s := range out {
		s.AvgTermsPerVector = 0
		if s.TotalVectors > 0 {
			s.AvgTermsPerVector = float32(terms[name{s.FieldName, s.VectorType}] / float64(s.TotalVectors))
		}
	}
	return out
}

func addMemory(sum, m *summapb.MemoryStats) *summapb.MemoryStats {
	if sum == nil || m == nil {
		return cmp.Or(sum, m)
	}
	sum.TotalBytes = add(sum.TotalBytes, m.TotalBytes)
	if a, b := sum.IndexingBuffer, m.IndexingBuffer; a == nil || b == nil {
		sum.IndexingBuffer = cmp.Or(a, b)
	} else {
		for _, n := range [][2]*uint64{
			{&a.TotalBytes, &b.TotalBytes},
			{&a.PostingsBytes, &b.PostingsBytes},
			{&a.SparseVectorsBytes, &b.SparseVectorsBytes},
			{&a.DenseVectorsBytes, &b.DenseVectorsBytes},
			{&a.InternerBytes, &b.InternerBytes},
			{&a.PositionIndexBytes, &b.PositionIndexBytes},
		} {
			*n[0] = add(*n[0], *n[1])
		}
		a.PendingDocs = add32(a.PendingDocs, b.PendingDocs)
		a.UniqueTerms = add32(a.UniqueTerms, b.UniqueTerms)
	}
	if a, b := sum.SegmentReader, m.SegmentReader; a == nil || b == nil {
		sum.SegmentReader = cmp.Or(a, b)
	} else {
		for _, n := range [][2]*uint64{
			{&a.TotalBytes, &b.TotalBytes},
			{&a.TermDictCacheBytes, &b.TermDictCacheBytes},
			{&a.StoreCacheBytes, &b.StoreCacheBytes},
			{&a.SparseIndexBytes, &b.SparseIndexBytes},
			{&a.DenseIndexBytes, &b.DenseIndexBytes},
		} {
			*n[0] = add(*n[0], *n[1])
		}
		a.NumSegmentsLoaded = add32(a.NumSegmentsLoaded, b.NumSegmentsLoaded)
	}
	return sum
}
