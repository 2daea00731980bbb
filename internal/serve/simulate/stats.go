package simulate

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/serve/hedge"
)

// Result is what a simulation measured.
type Result struct {
	Setup Setup
	// Latencies of the measured queries, sorted.
	Latencies []time.Duration
	// Sent and Executed are the calls that came to replicas, and those of them that left the queue, beyond one for each shard of
	// each measured query, as shares of these.
	Sent, Executed float64
	// Policy counts what the hedging policy did, warm-up included.
	Policy hedge.Stats
}

// Quantile is the latency that the fraction q of the queries does not exceed: the ⌈q·n⌉-th smallest.
func (r *Result) Quantile(q float64) time.Duration {
	n := len(r.Latencies)
	// The small number keeps 0.999·1000 from being above 999.
	return r.Latencies[min(max(int(math.Ceil(q*float64(n)-1e-9)), 1), n)-1]
}

// beyond is how much more n is than the calls that are needed, as a share of these.
func beyond(n, needed int) float64 { return float64(n)/float64(needed) - 1 }

// WriteTable writes results as a table in Markdown: a block for each model, number of shards and of replicas, in which each
// p99.9 is compared with that of the first row.
func WriteTable(w io.Writer, results []*Result) error {
	var b strings.Builder
	b.WriteString("| slow | leaves | replicas | queries | | p50 | p99 | p99.9 | p99.9 lower by | extra sent | extra executed |\n")
	b.WriteString("|---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|\n")
	var first *Result
	for _, r := range results {
		s := &r.Setup
		block := fmt.Sprintf("| %s | %d | %d | %d ", s.Model.Name, s.Shards, s.Replicas, s.Queries)
		if first == nil || !sameBlock(&first.Setup, s) {
			first = r
		} else {
			block = "| | | | "
		}
		lower := float64(first.Quantile(0.999)) / float64(r.Quantile(0.999))
		fmt.Fprintf(&b, "%s| %s | %s | %s | %s | %.1f | %s | %s |\n", block, s.Variant.Name,
			millis(r.Quantile(0.5)), millis(r.Quantile(0.99)), millis(r.Quantile(0.999)), lower, percent(r.Sent), percent(r.Executed))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func sameBlock(a, b *Setup) bool {
	return a.Model.Name == b.Model.Name && a.Shards == b.Shards && a.Replicas == b.Replicas
}

func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 100 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

func sorted(ds []time.Duration) []time.Duration {
	slices.Sort(ds)
	return ds
}
