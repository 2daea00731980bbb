package summaquery_test

import (
	"context"
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

func search(ctx context.Context, ix *summaquery.Index, req *summapb.SearchRequest) (*summapb.SearchResponse, error) {
	var lim summa.Limits
	w, err := lim.CheckSearch(req)
	if err != nil {
		return nil, err
	}
	return summaquery.Search(ctx, ix, req, w, lim)
}

func TestSearchIsTheOracles(t *testing.T) {
	seed := oracletest.Seed(t)
	for round := range oracletest.Rounds(16, 4000) {
		if !oracletest.Only(round) {
			continue
		}
		w := oracletest.NewWorld(seed, uint64(round))
		sdl := oracletest.SDL(w.One([]string{"", ", query<max_terms: 3>"}))
		n := 6 + w.IntN(50)
		if round%8 == 3 {
			n = 200 // lists of several blocks
		}
		s := newStore(t, sdl)
		requests := 120
		if n == 200 {
			requests = 30
		}
		var ix *summaquery.Index
		var o *oracletest.Oracle
		for i := range requests {
			if i%(requests/2) == 0 { // later with more documents, and what was remembered of those before
				s.fill(w, n+i/10)
				ix, o = s.index()
			}
			req := w.Request(n, false)
			if diff := compare(t, ix, o, req); diff != "" {
				small := oracletest.Shrink(req, func(r *summapb.SearchRequest) bool { return compare(t, ix, o, r) != "" })
				t.Fatalf("round %d, request %d of %d documents in %d leaves:\n%s\n%s", round, i, len(o.Places()), len(ix.Leaves), prototext.Format(small), compare(t, ix, o, small))
			}
		}
	}
}

// Nominations are what a broker fuses that asks several shards: the hits of each branch, and the documents of all by place.
func TestNominationsAreTheOracles(t *testing.T) {
	seed := oracletest.Seed(t)
	for round := range oracletest.Rounds(4, 1000) {
		if !oracletest.Only(round) {
			continue
		}
		w := oracletest.NewWorld(seed, uint64(round))
		s := newStore(t, oracletest.SDL(""))
		n := 6 + w.IntN(50)
		s.fill(w, n)
		ix, o := s.index()
		for i := range 60 {
			req := w.Nominations(n)
			if diff := compare(t, ix, o, req); diff != "" {
				small := oracletest.Shrink(req, func(r *summapb.SearchRequest) bool { return compare(t, ix, o, r) != "" })
				t.Fatalf("round %d, request %d of %d documents in %d leaves:\n%s\n%s", round, i, n, len(ix.Leaves), prototext.Format(small), compare(t, ix, o, small))
			}
		}
	}
}

// Formulas and exports: the scores of every branch for every candidate, and what is made of them.
func TestFormulasAndExportsAreTheOracles(t *testing.T) {
	seed := oracletest.Seed(t)
	answered := 0
	for round := range oracletest.Rounds(8, 2000) {
		if !oracletest.Only(round) {
			continue
		}
		w := oracletest.NewWorld(seed, uint64(round))
		s := newStore(t, oracletest.SDL(""))
		n := 6 + w.IntN(50)
		s.fill(w, n)
		ix, o := s.index()
		for i := range 60 {
			req := w.Scored(n)
			if _, err := search(t.Context(), ix, req); err == nil {
				answered++
			}
			if diff := compare(t, ix, o, req); diff != "" {
				small := oracletest.Shrink(req, func(r *summapb.SearchRequest) bool { return compare(t, ix, o, r) != "" })
				t.Fatalf("round %d, request %d of %d documents in %d leaves:\n%s\n%s", round, i, n, len(ix.Leaves), prototext.Format(small), compare(t, ix, o, small))
			}
		}
	}
	if os.Getenv("WEFT_ROUND") == "" && answered < 100 {
		t.Errorf("only %d requests were answered", answered)
	}
}

// compare tells how an answer differs from the oracle's.
func compare(t *testing.T, ix *summaquery.Index, o *oracletest.Oracle, req *summapb.SearchRequest) string {
	t.Helper()
	w, err := summa.Limits{}.CheckSearch(req)
	if err != nil {
		return "" // the shrinker made nonsense
	}
	got, err := search(t.Context(), ix, req)
	if err != nil {
		if bad, ok := errors.AsType[*summa.Error](err); !ok || bad.Code != codes.InvalidArgument {
			return fmt.Sprintf("error %v", err)
		}
		got = nil
	}
	diff := o.Differs(req, w, got, func(segment string) int { return slices.Index(ix.Segments, segment) })
	if diff != "" && err != nil {
		return fmt.Sprintf("%s: %v", diff, err)
	}
	return diff
}
