package score

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weft-search/weft/internal/score/elem"
)

// CombinerKind says how the scores of a document's values become one score. The numbers are those of Summa's MultiValueCombiner.
type CombinerKind uint8

// The combiners. A number that is not among them counts as LogSumExp, as in Summa's vector queries; in a fusion it counts as Max.
const (
	LogSumExp    CombinerKind = iota // Σ e^{t(s−max)}·s / Σ e^{t(s−max)}: in spite of its name a mean, weighted by softmax
	Max                              // the largest
	Avg                              // the arithmetic mean
	Sum                              // the sum
	WeightedTopK                     // Σ d^i·s_i / Σ d^i over the best k, best first
)

// Defaults of a Combiner, used where a member is 0.
const (
	DefaultTemperature = 1.5
	DefaultTopK        = 5
	DefaultDecay       = 0.7
)

// Combiner makes one score of many. The zero value is LogSumExp at temperature 1.5. It is a value, safe to share.
type Combiner struct {
	Kind        CombinerKind
	Temperature float32 // of LogSumExp; 0 or less = DefaultTemperature
	TopK        int     // of WeightedTopK; 0 = DefaultTopK
	Decay       float32 // of WeightedTopK, 0 to 1; 0 = DefaultDecay
}

// CombinerError says which member of a Combiner cannot be used and why.
type CombinerError struct {
	Member string // "temperature", "top_k" or "decay"
	Reason string // what it has to be and what it was
}

// Error implements error.
func (e *CombinerError) Error() string { return "combiner " + e.Member + " " + e.Reason }

// Check returns a *CombinerError if Combine could not keep its promise: a decay outside 0–1 (of WeightedTopK), a temperature that is not
// finite (of LogSumExp) or a negative TopK. Members that the kind does not use are not looked at.
func (c Combiner) Check() error {
	switch c.kind() {
	case LogSumExp:
		if !finite(c.Temperature) {
			return &CombinerError{"temperature", fmt.Sprintf("must be finite, got %v", c.Temperature)}
		}
	case WeightedTopK:
		if !(c.Decay >= 0 && c.Decay <= 1) {
			return &CombinerError{"decay", fmt.Sprintf("must be finite and in [0, 1], got %v", c.Decay)}
		}
		if c.TopK < 0 {
			return &CombinerError{"top_k", fmt.Sprintf("must not be negative, got %d", c.TopK)}
		}
	case Max, Avg, Sum:
	}
	return nil
}

func (c Combiner) kind() CombinerKind {
	if c.Kind > WeightedTopK {
		return LogSumExp
	}
	return c.Kind
}

func finite(x float32) bool { return x-x == 0 }

// Combine returns the combined score of scores, which are in order of ordinal; of none it is 0. All arithmetic is binary32 in that order,
// never fused, so the bits depend on nothing else. scores is not changed. It allocates only for WeightedTopK with more than 64 scores and
// TopK above 64. scores must be finite and c checked; else the result may be NaN.
func (c Combiner) Combine(scores []float32) float32 {
	switch len(scores) {
	case 0:
		return 0
	case 1:
		// Every kind gives the score itself, but for rounding in e·s/e: a document with one value scores like that value. Only of a negative
		// zero, which ranks below zero, WeightedTopK makes zero, as it does of several.
		if scores[0] == 0 && c.kind() == WeightedTopK {
			return 0
		}
		return scores[0]
	}
	switch c.kind() {
	case Max:
		return slices.Max(scores)
	case Avg:
		return sum(scores) / float32(len(scores))
	case Sum:
		return sum(scores)
	case WeightedTopK:
		return c.weightedTopK(scores)
	case LogSumExp:
	}
	t := c.Temperature
	if t <= 0 {
		t = DefaultTemperature
	}
	top := slices.Max(scores)
	var num, den float32
	for _, s := range scores {
		e := float32(elem.Exp(float64(float32(t * float32(s-top)))))
		num += float32(e * s)
		den += e
	}
	return num / den
}

func sum(scores []float32) float32 {
	s := scores[0] // not 0: of negative zeros the sum is one
	for _, x := range scores[1:] {
		s += x
	}
	return s
}

func (c Combiner) weightedTopK(scores []float32) float32 {
	k, d := c.TopK, c.Decay
	if k == 0 {
		k = DefaultTopK
	}
	if d == 0 {
		d = DefaultDecay
	}
	k = min(k, len(scores))
	var few [64]float32
	best := few[:0]
	if k <= len(few) {
		// best stays sorted, largest first, and never holds more than k.
		for _, s := range scores {
			if len(best) == k {
				if s <= best[k-1] {
					continue
				}
				best = best[:k-1]
			}
			at := len(best)
			best = append(best, s)
			for ; at > 0 && best[at-1] < s; at-- {
				best[at] = best[at-1]
			}
			best[at] = s
		}
	} else {
		best = slices.Clone(scores)
		slices.SortFunc(best, func(a, b float32) int { return cmp.Compare(b, a) })
		best = best[:k]
	}
	var num, den float32
	w := float32(1)
	for _, s := range best {
		num += float32(w * s)
		den += w
		w = float32(w * d)
	}
	return num / den
}
