package summaquery_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/summa"
)

// seedOf gives the seed of a test that goes by chance: WEFT_SEED if set.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("WEFT_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("WEFT_SEED=%d", seed)
	return seed
}

// only tells whether a round is wanted: WEFT_ROUND if set.
func only(round int) bool {
	s := os.Getenv("WEFT_ROUND")
	return s == "" || s == fmt.Sprint(round)
}

// rounds is how often a test does what it does: more with WEFT_LONG.
func rounds(short, long int) int {
	if os.Getenv("WEFT_LONG") != "" {
		return long
	}
	return short
}

func search(ctx context.Context, ix *summaquery.Index, req *summapb.SearchRequest) (*summapb.SearchResponse, error) {
	var lim summa.Limits
	w, err := lim.CheckSearch(req)
	if err != nil {
		return nil, err
	}
	return summaquery.Search(ctx, ix, req, w, lim)
}

func number(f float32) string {
	if f == 0 {
		f = 0 // no sign
	}
	return fmt.Sprintf("%v/%08x", f, math.Float32bits(f))
}

func TestSearchIsTheOracles(t *testing.T) {
	seed := seedOf(t)
	for round := range rounds(16, 4000) {
		if !only(round) {
			continue
		}
		w := world{rand.New(rand.NewPCG(seed, uint64(round)))}
		sdl := fmt.Sprintf(oracleSDL, w.one([]string{"", ", query<max_terms: 3>"}))
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
		var o *oracle
		for i := range requests {
			if i%(requests/2) == 0 { // later with more documents, and what was remembered of those before
				s.fill(w, n+i/10)
				ix, o = s.index()
			}
			req := w.request(n, false)
			if diff := compare(t, ix, o, req); diff != "" {
				small := shrink(req, func(r *summapb.SearchRequest) bool { return compare(t, ix, o, r) != "" })
				t.Fatalf("round %d, request %d of %d documents in %d leaves:\n%s\n%s", round, i, len(o.docs), len(ix.Leaves), prototext.Format(small), compare(t, ix, o, small))
			}
		}
	}
}

// compare tells how an answer differs from the oracle's.
func compare(t *testing.T, ix *summaquery.Index, o *oracle, req *summapb.SearchRequest) string {
	t.Helper()
	w, err := summa.Limits{}.CheckSearch(req)
	if err != nil {
		return "" // the shrinker made nonsense
	}
	got, err := search(t.Context(), ix, req)
	if err != nil {
		bad, ok := errors.AsType[*summa.Error](err)
		if !ok || bad.Code != codes.InvalidArgument {
			return fmt.Sprintf("error %v", err)
		}
		if _, _, refused := o.search(req, w); refused == nil {
			return fmt.Sprintf("refused: %v", err)
		}
		return ""
	}
	hits, total, refused := o.search(req, w)
	if refused != nil {
		return "is not refused"
	}
	var a, b []string
	for _, h := range got.Hits {
		line := fmt.Sprintf("%s %d: %s", strings.TrimLeft(h.Address.SegmentId, "0"), h.Address.DocId, number(h.Score))
		for _, x := range h.OrdinalScores {
			line += fmt.Sprintf(" (%d %s)", x.Ordinal, number(x.Score))
		}
		a = append(a, line)
	}
	for _, h := range hits {
		line := fmt.Sprintf("%x %d: %s", h.d.leaf+1, h.d.doc, number(h.score))
		for _, x := range h.rows {
			line += fmt.Sprintf(" (%d %s)", x.ordinal, number(x.score))
		}
		b = append(b, line)
	}
	a, b = append(a, fmt.Sprint("total ", got.TotalHits)), append(b, fmt.Sprint("total ", total))
	if slices.Equal(a, b) {
		return ""
	}
	var out []string
	for i := range max(len(a), len(b)) {
		x, y := "-", "-"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y && len(out) < 12 {
			out = append(out, fmt.Sprintf("%d: got  %s\n   want %s", i, x, y))
		}
	}
	return strings.Join(out, "\n")
}
