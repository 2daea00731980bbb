package score

import "fmt"

// Method says how a fusion turns the place of a passage in a list into a contribution. The numbers are those of Summa's FusionMethod.
type Method uint8

// The methods of fusion.
const (
	RRF         Method = iota // reciprocal rank fusion: w·(1/(k + rank)), rank from 1 (Cormack, Clarke and Büttcher, SIGIR 2009)
	WeightedSum               // min–max normalised scores: (w·(s − min))·(1/(max − min)) over the list; w if all its scores are equal
)

// DefaultRankConstant is k of RRF where Fusion.K is 0.
const DefaultRankConstant = 60

// MaxFusedHits bounds the hits of all branches of one fusion together.
const MaxFusedHits = 1 << 24

// Fusion says how lists are fused.
type Fusion struct {
	Method Method
	K      float32 // of RRF, finite and not negative; 0 = DefaultRankConstant
	// Combiner makes the score of a document of the scores of its passages. LogSumExp, the zero value, counts as Max here.
	Combiner Combiner
	// Ranked says that the hits of every branch are in order of rank already and name no passage twice. Otherwise a branch is a set of
	// hits: the best score of a repeated passage counts, and rank is by score descending, then document, then ordinal.
	Ranked bool
}

// Hit is one place in a branch: a passage of a document with its score there. What has no passages, or a hit without ordinals, is ordinal 0.
type Hit[D comparable] struct {
	Doc     D
	Ordinal uint32
	Score   float32 // finite
}

// Branch is one list to fuse.
type Branch[D comparable] struct {
	Weight float32 // finite and not negative; 0 is 0
	Hits   []Hit[D]
	// Whole says that the hits vote for whole documents: their contribution is added to each passage that other branches found of the
	// document, and is the document's own where there is none. Ordinals are not looked at.
	Whole bool
}

// Passage is a fused passage.
type Passage struct {
	Ordinal uint32
	Score   float32
}

// Vote is what one branch added to a document.
type Vote struct {
	Branch  int     // its position among the branches
	Rank    uint32  // from 1
	Ordinal uint32  // of the passage that it is for; 0 with Whole
	Whole   bool    // it is for every passage of the document
	Score   float32 // the contribution
}

// Fused is a document of the union of the branches. Votes tell a branch that lacks it (no vote) from one that gave it 0.
type Fused[D comparable] struct {
	Doc      D
	Score    float32
	Passages []Passage // by ordinal; empty if only whole-document branches found it
	Votes    []Vote    // whole-document votes first, then by ordinal, then by branch
}

// Rank returns the best rank that the branch gave the document, from 1, or 0 if the branch lacks it.
func (f *Fused[D]) Rank(branch int) uint32 {
	var best uint32
	for i := range f.Votes {
		if v := &f.Votes[i]; v.Branch == branch && (best == 0 || v.Rank < best) {
			best = v.Rank
		}
	}
	return best
}

// FusionError says which part of the input of a fusion cannot be used.
type FusionError struct {
	Branch int // -1 where it is not about a branch
	Hit    int // -1 where it is not about a hit
	Reason string
}

// Error implements error.
func (e *FusionError) Error() string {
	switch {
	case e.Branch < 0:
		return "fusion " + e.Reason
	case e.Hit < 0:
		return fmt.Sprintf("fusion branch %d: %s", e.Branch, e.Reason)
	}
	return fmt.Sprintf("fusion branch %d, hit %d: %s", e.Branch, e.Hit, e.Reason)
}

// Fuse returns every document of the branches, best first: score descending, then compare, a total order of the documents ascending.
// Contributions to a passage add in order of branch, in binary32, never fused. Errors are *FusionError and *CombinerError.
func Fuse[D comparable](f Fusion, branches []Branch[D], compare func(a, b D) int) ([]Fused[D], error) {
	return nil, &FusionError{Branch: -1, Hit: -1, Reason: "is being built"}
}
