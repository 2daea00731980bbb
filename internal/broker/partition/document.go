package partition

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
)

// GetDocument asks all partitions (section Reads of partitioned indexes). The first in order that has the document wins; else the first
// other failure is the answer; else NOT_FOUND of a node, as it came; but where partitions could not be asked, UNAVAILABLE. Of r only Partial
// counts.
func GetDocument(ctx context.Context, ix *Index, c Caller, r Reads, req []byte) (Answer, error) {
	parts, err := r.reach(ix)
	if err != nil {
		return Answer{}, err
	}
	asks, outs, ended := make([]Ask, len(parts)), make([]outcome, len(parts)), make([]bool, len(parts))
	for i, p := range parts {
		asks[i] = Ask{p, req}
	}
	cs := begin(ctx, c, summapb.SearchService_GetDocument_FullMethodName, asks, true)
	defer cs.Close()
	var absent, other error
	for at := 0; at < len(parts); {
		i, reply, err, _ := cs.Next(nil)
		outs[i], ended[i] = outcome{part: parts[i], reply: reply, err: err}, true
		for ; at < len(parts) && ended[at]; at++ {
			switch err := outs[at].err; {
			case err == nil:
				return Answer{Reply: outs[at].reply, LeftOut: ix.Missing}, nil
			case statusOf(err).Code() != codes.NotFound:
				if other == nil {
					other = ix.Fault(parts[at], err)
				}
			case absent == nil:
				absent = statusOf(err).Err()
			}
		}
	}
	switch {
	case other != nil:
		return Answer{}, other
	case len(ix.Missing) > 0:
		return Answer{}, status.Errorf(codes.Unavailable, "index '%s': document not found on the reachable partitions; partition(s) [%s] are unavailable",
			ix.Name, ix.names(ix.Missing))
	}
	return Answer{}, absent
}
