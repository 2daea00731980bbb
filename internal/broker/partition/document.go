package partition

import (
	"context"
	"sync"

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
	outs := make([]outcome, len(parts))
	done := make([]chan struct{}, len(parts))
	own, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i, p := range parts {
		done[i] = make(chan struct{})
		wg.Go(func() {
			reply, err := c.Call(own, p, summapb.SearchService_GetDocument_FullMethodName, req)
			outs[i] = outcome{part: p, reply: reply, err: err}
			close(done[i])
		})
	}
	var absent, other error
	for i, p := range parts {
		<-done[i]
		switch err := outs[i].err; {
		case err == nil:
			return Answer{Reply: outs[i].reply, LeftOut: ix.Missing}, nil
		case statusOf(err).Code() != codes.NotFound:
			if other == nil {
				other = ix.Fault(p, err)
			}
		case absent == nil:
			absent = statusOf(err).Err()
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
