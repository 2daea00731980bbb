package summaquery_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
)

// Votes of reciprocal ranks and traces, of rankings of every kind: they tell what the branches did, and change nothing of the answer.
func TestVotesAndTracesAreTheOracles(t *testing.T) {
	seed := oracletest.Seed(t)
	votes, traces := 0, 0
	for round := range oracletest.Rounds(8, 2000) {
		if !oracletest.Only(round) {
			continue
		}
		w := oracletest.NewWorld(seed, uint64(round))
		s := newStore(t, oracletest.SDL(""))
		n := 6 + w.IntN(50)
		s.fill(w, n)
		ix, o := s.index()
		for i := range 80 {
			req := w.Diagnosed(n)
			diff, resp := diagnosed(t, ix, o, req)
			if diff != "" {
				fails := func(r *summapb.SearchRequest) bool { d, _ := diagnosed(t, ix, o, r); return d != "" }
				small := oracletest.Shrink(req, fails)
				diff, _ = diagnosed(t, ix, o, small)
				t.Fatalf("round %d, request %d of %d documents in %d leaves:\n%s\n%s", round, i, n, len(ix.Leaves), prototext.Format(small), diff)
			}
			for _, h := range resp.GetHits() {
				votes += len(h.RrfContributions)
			}
			traces += len(resp.GetTrace().GetShards())
		}
	}
	if os.Getenv("WEFT_ROUND") == "" && (votes < 1000 || traces < 100) {
		t.Errorf("only %d votes and %d traces", votes, traces)
	}
}

// diagnosed tells how an answer with votes or a trace differs from the oracle's.
func diagnosed(t *testing.T, ix *summaquery.Index, o *oracletest.Oracle, req *summapb.SearchRequest) (string, *summapb.SearchResponse) {
	t.Helper()
	w, err := summa.Limits{}.CheckSearch(req)
	if err != nil {
		return "", nil // the shrinker made nonsense, or there is no such trace
	}
	got, err := search(t.Context(), ix, req)
	if err != nil {
		if bad, ok := errors.AsType[*summa.Error](err); !ok || bad.Code != codes.InvalidArgument {
			return fmt.Sprintf("error %v", err), nil
		}
		got = nil
	}
	diff := o.Diagnosis(req, w, got, func(segment string) int { return slices.Index(ix.Segments, segment) })
	if diff != "" && err != nil {
		diff = fmt.Sprintf("%s: %v", diff, err)
	}
	return diff, got
}
