package partition

import (
	"context"

	summapb "github.com/weft-search/weft/api/summa"
)

// Reply is what one partition answered to a search.
type Reply struct {
	Part    int
	Message []byte // a SearchResponse
}

// Rounds asks all partitions that can be asked, and returns what they answered and which partitions are left out, both ascending. A query
// with leaves that BM25 scores takes a round for statistics before, unless the search brings some; a partition that is lost there is not
// searched, so that statistics and hits are of the same partitions. Both rounds have the deadline of ctx.
//
// plan is called before any partition is asked, with how many are going to be; its error is that of the search. The request that it returns
// makes what the nodes get, of statistics that are nil where there are none.
func Rounds(ctx context.Context, ix *Index, c Caller, r Reads, s *Shape,
	plan func(partitions int) (request func(stats []byte) ([]byte, error), err error),
) (replies []Reply, leftOut []int, err error) {
	parts, err := r.reach(ix)
	if err != nil {
		return nil, nil, err
	}
	request, err := plan(len(parts))
	if err != nil {
		return nil, nil, err
	}
	good, lost, err := r.rounds(ctx, ix, c, parts, s, request)
	if err != nil {
		return nil, nil, err
	}
	replies = make([]Reply, len(good))
	for i, o := range good {
		replies[i] = Reply{o.part, o.reply}
	}
	return replies, ix.leftOut(lost), nil
}

// rounds is Rounds over partitions that can be asked. lost are those of them that did not answer.
func (r Reads) rounds(ctx context.Context, ix *Index, c Caller, parts []int, s *Shape, request func(stats []byte) ([]byte, error)) (good []outcome, lost []int, err error) {
	var given []byte
	if !s.stats {
		var l leaves
		if err := l.query(s.query, 1); err != nil {
			return nil, nil, err
		}
		if len(l.found) > 0 {
			good, left, err := r.round(ctx, ix, c, parts, summapb.SearchService_GetTextStats_FullMethodName, l.statsRequest(ix.Name))
			if err != nil {
				return nil, nil, err
			}
			sum, _, err := ix.sumStats(good, true)
			if err != nil {
				return nil, nil, err
			}
			if given, err = encode(sum); err != nil { // not nil, though it may be empty
				return nil, nil, err
			}
			parts, lost = parts[:0], left
			for _, o := range good {
				parts = append(parts, o.part)
			}
		}
	}
	req, err := request(given)
	if err != nil {
		return nil, nil, err
	}
	good, left, err := r.round(ctx, ix, c, parts, summapb.SearchService_Search_FullMethodName, req)
	if err != nil {
		return nil, nil, err
	}
	return good, append(lost, left...), nil
}
