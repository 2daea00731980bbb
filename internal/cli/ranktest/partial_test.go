package ranktest

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/service"
)

// searchCalls are the calls of hostileCalls that search h and are answered without a trace.
var searchCalls = []string{"all", "text", "passages", "candidates", "export", "rrf", "sum", "formula", "ranks", "exported", "votes", "seeded", "sums"}

// without is what a broker answers that knows the nodes of s0 and s2 only: to the bit what is left of h without s1.
func (b *besieged) without(t *testing.T) func(call string) string {
	t.Helper()
	cfg := settings(t, []string{b.liars[0].addr, b.liars[2].addr}, "h=s0,s1")
	two := startBroker(t, cfg)
	return func(call string) string {
		m, err := b.calls[call](t.Context(), two.server)
		if err != nil {
			t.Fatalf("%s over two shards: %v", call, err)
		}
		return fmt.Sprintf("%x", wireOf(t, m))
	}
}

// partial asks, and takes the count of partitions that are missing off the answer.
func (b *besieged) partial(t *testing.T, call string) (missing uint32, answer string) {
	t.Helper()
	m, err := b.calls[call](t.Context(), b.broker.server)
	if err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	r := m.(*summapb.SearchResponse)
	missing, r.MissingPartitions = r.MissingPartitions, 0
	return missing, fmt.Sprintf("%x", wireOf(t, r))
}

// TestPartialAnswersAreThoseOfWhatIsLeft: with --partial-partition-reads a search without one of three partitions is answered, to the bit, as if
// there were only the others: statistics and hits are of the same partitions, and the count says what is missing.
func TestPartialAnswersAreThoseOfWhatIsLeft(t *testing.T) {
	b := besiege(t, func(cfg *service.Config) { cfg.Partial = true })
	left := b.without(t)
	b.liars[1].tell(func(rpc string, _, _ []byte) *said {
		if rpc == "ListIndexes" {
			return nil
		}
		return refusal(codes.Unavailable, "away")
	})
	for _, call := range searchCalls {
		missing, got := b.partial(t, call)
		if want := left(call); missing != 1 || got != want {
			t.Errorf("%s: %d missing, %s\nwant 1, %s", call, missing, clip(got), clip(want))
		}
		if got == b.truth[call] {
			t.Errorf("%s: nothing is missing", call)
		}
	}
}

// TestStragglersAreLeftOutOfRankings: a node that says nothing is given up --partition-straggler-ms after the first of the others has answered,
// in the round for statistics and in that of searches.
func TestStragglersAreLeftOutOfRankings(t *testing.T) {
	const late = 3 * time.Second // the others have to be there meanwhile
	b := besiege(t, func(cfg *service.Config) { cfg.Partial, cfg.Straggler = true, late })
	left := b.without(t)
	b.liars[1].tell(func(rpc string, _, _ []byte) *said {
		if rpc == "ListIndexes" {
			return nil
		}
		return &said{nothing: true, hang: true}
	})
	for _, call := range []string{"all", "rrf", "ranks"} {
		began := time.Now()
		missing, got := b.partial(t, call)
		if want := left(call); missing != 1 || got != want {
			t.Errorf("%s: %d missing, %s\nwant 1, %s", call, missing, clip(got), clip(want))
		}
		if took := time.Since(began); took < late {
			t.Errorf("%s: given up after %v", call, took)
		}
	}
	// Lost in the second round: its words count in the statistics, its documents are not there.
	b.liars[1].tell(bytesOf("Search", func([]byte) *said { return &said{nothing: true, hang: true} }))
	if missing, _ := b.partial(t, "rrf"); missing != 1 {
		t.Errorf("lost in the second round: %d missing", missing)
	}
}
