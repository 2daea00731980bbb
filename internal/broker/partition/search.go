package partition

import (
	"context"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	maxWindow    = 10_000 // hits that a partitioned index can merge
	defaultLimit = 10     // what limit 0 means
)

// Shape is what a broker has to know of a SearchRequest. The request stays encoded.
type Shape struct {
	req   []byte
	query []byte

	limit, offset            uint32
	stats, l1, export        bool
	rrf, tracing, reranker   bool
	fusion, fusionCandidates bool // the top-level query is a fusion, and its method FUSION_CANDIDATES
	branches                 uint32
}

// ShapeOf reads an encoded SearchRequest.
func ShapeOf(req []byte) (*Shape, error) {
	s := &Shape{req: req}
	var query joined
	for b := req; len(b) > 0; {
		f, rest, err := next(b)
		if err != nil {
			return nil, err
		}
		b = rest
		switch {
		case f.is(2, protowire.BytesType):
			query.add(f.val)
		case f.is(3, protowire.VarintType):
			s.limit = uint32(f.uint())
		case f.is(4, protowire.VarintType):
			s.offset = uint32(f.uint())
		case f.is(6, protowire.BytesType):
			s.reranker = true
		case f.is(9, protowire.BytesType):
			s.stats = true
		case f.is(10, protowire.BytesType):
			s.l1 = true
		case f.is(11, protowire.BytesType):
			s.export = true
		case f.is(12, protowire.VarintType):
			s.rrf = f.uint() != 0
		case f.is(13, protowire.VarintType):
			s.tracing = f.uint() != 0
		}
	}
	s.query = query.val
	num, fusion, _, err := member(s.query)
	if err != nil {
		return nil, err
	}
	s.fusion = num == queryFusion
	for b := fusion; s.fusion && len(b) > 0; {
		f, rest, err := next(b)
		if err != nil {
			return nil, err
		}
		b = rest
		switch {
		case f.is(fusionQueries, protowire.BytesType):
			s.branches++
		case f.is(fusionMethod, protowire.VarintType):
			s.fusionCandidates = int32(f.uint()) == fusionCandidates
		}
	}
	return s, nil
}

// Coordinated says whether the broker ranks the search itself, also on one shard (section When the broker coordinates). Search does not:
// Rounds asks for what is ranked, and package coordinate ranks it.
func (s *Shape) Coordinated() bool {
	return s.tracing || s.rrf || s.l1 || s.fusion && !s.fusionCandidates && !s.reranker && !s.export
}

// Method is the ranking method that a node has to answer an export with that the broker passes on or merges pointwise (section When the
// broker coordinates); "" for all other searches.
func (s *Shape) Method() string {
	switch {
	case s.Coordinated():
		return ""
	case s.export:
		return "feature_export_v2"
	case s.fusion && s.fusionCandidates:
		return "fusion_candidates_v1"
	}
	return ""
}

// CheckMethod says whether one shard's reply, which is passed on as it is, has the method that the search asks for.
func (s *Shape) CheckMethod(reply []byte) error {
	want := s.Method()
	if want == "" {
		return nil
	}
	got := ""
	for len(reply) > 0 {
		f, rest, err := next(reply)
		if err != nil {
			return err
		}
		if reply = rest; f.is(6, protowire.BytesType) {
			got = string(f.val)
		}
	}
	if got != want {
		return status.Error(codes.FailedPrecondition, "backend lacks requested candidate scoring contract")
	}
	return nil
}

// window is how many hits a merge ranks, and how many of them it gives. Limit 0 means 10 (B5).
func (s *Shape) window() (window, limit int, err error) {
	limit = int(s.limit)
	if limit == 0 {
		limit = defaultLimit
	}
	if window = int(s.offset) + limit; window > maxWindow {
		return 0, 0, status.Errorf(codes.InvalidArgument, "offset + limit = %d exceeds the %d window a partitioned index can merge",
			min(window, math.MaxUint32), maxWindow)
	}
	return window, limit, nil
}

// request is what the nodes get: the search with offset 0 and the window for a limit, and with statistics if there are any.
func (s *Shape) request(window int, stats []byte) []byte {
	if stats == nil && s.offset == 0 && int(s.limit) == window {
		return s.req
	}
	out := make([]byte, 0, len(s.req)+len(stats)+16)
	for b := s.req; len(b) > 0; {
		f, rest, err := next(b)
		if err != nil {
			break // ShapeOf has read it
		}
		if b = rest; !f.is(3, protowire.VarintType) && !f.is(4, protowire.VarintType) {
			out = append(out, f.raw...)
		}
	}
	out = appendUint(out, 3, uint64(window))
	if stats != nil {
		out = appendBytes(out, 9, stats)
	}
	return out
}

// Search asks all partitions that can be asked, and merges their hits by score (section Reads of partitioned indexes). A query with leaves
// that BM25 scores takes a round for statistics before, unless it brings some; a partition that is lost there is not searched, so that
// statistics and hits are of the same partitions. Both rounds have the deadline of ctx.
//
// It refuses with UNIMPLEMENTED what the broker has to rank itself; see Rounds.
func Search(ctx context.Context, ix *Index, c Caller, r Reads, s *Shape) (Answer, error) {
	parts, err := r.reach(ix)
	if err != nil {
		return Answer{}, err
	}
	if s.Coordinated() {
		return Answer{}, status.Errorf(codes.Unimplemented, "index '%s' lies on %d shards, over which no search with fusion, l1 or diagnostics is ranked", ix.Name, len(ix.Shards))
	}
	window, limit, err := s.window()
	if err != nil {
		return Answer{}, err
	}
	good, lost, err := r.rounds(ctx, ix, c, parts, s, func(stats []byte) ([]byte, error) { return s.request(window, stats), nil })
	if err != nil {
		return Answer{}, err
	}
	left := ix.leftOut(lost)
	reply, err := ix.merge(good, s, limit, uint32(len(left)))
	return Answer{Reply: reply, LeftOut: left}, err
}
