package score

import (
	"cmp"
	"fmt"
	"slices"
)

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

// Vote returns the vote of best rank that the branch gave the document; its rank is 0 if the branch lacks it.
func (f *Fused[D]) Vote(branch int) Vote {
	best := Vote{Branch: branch}
	for i := range f.Votes {
		if v := &f.Votes[i]; v.Branch == branch && (best.Rank == 0 || v.Rank < best.Rank) {
			best = *v
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

// Fuse returns every document of the branches, best first: by score descending, then by compare, which has to be a total order of the
// documents. The contributions to a passage add in order of branch, those of Whole branches after the others, and the passages' scores combine in order of ordinal, all in binary32
// and never fused, so the bits depend on nothing but the input. It allocates a fixed number of times, not for each hit. Errors are
// *FusionError and *CombinerError.
func Fuse[D comparable](f Fusion, branches []Branch[D], compare func(a, b D) int) ([]Fused[D], error) {
	if f.Combiner.Kind == LogSumExp || f.Combiner.Kind > WeightedTopK {
		f.Combiner.Kind = Max
	}
	if err := f.Combiner.Check(); err != nil {
		return nil, err
	}
	total, longest, err := measure(&f, branches)
	if err != nil {
		return nil, err
	}
	u := union[D]{docs: make([]D, 0, total), ids: make(map[D]uint32, total), votes: make([]vote, 0, total)}
	places := make([]place, 0, longest)
	for i := range branches {
		b := &branches[i]
		places = places[:0]
		for _, h := range b.Hits {
			p := place{doc: u.id(h.Doc), ordinal: h.Ordinal, score: h.Score}
			if b.Whole {
				p.ordinal = 0
			}
			places = append(places, p)
		}
		if !f.Ranked {
			places = rank(places, u.docs, compare)
		}
		if err := u.vote(&f, i, b.Weight, b.Whole, places); err != nil {
			return nil, err
		}
	}
	return u.fuse(&f, compare)
}

// measure checks what can be checked without looking at documents, and counts hits.
func measure[D comparable](f *Fusion, branches []Branch[D]) (total, longest int, err error) {
	if f.Method > WeightedSum {
		return 0, 0, &FusionError{-1, -1, fmt.Sprintf("method %d is unknown", f.Method)}
	}
	if !(f.K >= 0) || !finite(f.K) {
		return 0, 0, &FusionError{-1, -1, fmt.Sprintf("rank constant must be finite and not negative, got %v", f.K)}
	}
	if f.K == 0 {
		f.K = DefaultRankConstant
	}
	for i := range branches {
		b := &branches[i]
		if !(b.Weight >= 0) || !finite(b.Weight) {
			return 0, 0, &FusionError{i, -1, fmt.Sprintf("weight must be finite and not negative, got %v", b.Weight)}
		}
		if len(b.Hits) > MaxFusedHits-total {
			return 0, 0, &FusionError{i, -1, fmt.Sprintf("more than %d hits in all branches together", MaxFusedHits)}
		}
		total += len(b.Hits)
		longest = max(longest, len(b.Hits))
		for j := range b.Hits {
			if s := b.Hits[j].Score; !finite(s) {
				return 0, 0, &FusionError{i, j, fmt.Sprintf("score must be finite, got %v", s)}
			}
		}
	}
	return total, longest, nil
}

// place is a hit whose document has a number.
type place struct {
	doc     uint32
	ordinal uint32
	score   float32
}

// rank removes all but the best of each repeated passage and sorts by rank.
func rank[D comparable](p []place, docs []D, compare func(a, b D) int) []place {
	slices.SortFunc(p, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.doc, b.doc), cmp.Compare(a.ordinal, b.ordinal), cmp.Compare(b.score, a.score))
	})
	p = slices.CompactFunc(p, func(a, b place) bool { return a.doc == b.doc && a.ordinal == b.ordinal })
	slices.SortFunc(p, func(a, b place) int {
		if a.score != b.score {
			return cmp.Compare(b.score, a.score)
		}
		if a.doc != b.doc {
			return compare(docs[a.doc], docs[b.doc])
		}
		return cmp.Compare(a.ordinal, b.ordinal)
	})
	return p
}

// vote is a Vote whose document has a number.
type vote struct {
	doc uint32
	Vote
}

// union gathers the votes of all branches.
type union[D comparable] struct {
	docs  []D
	ids   map[D]uint32
	votes []vote // in order of branch, then rank
}

func (u *union[D]) id(d D) uint32 {
	n, ok := u.ids[d]
	if !ok {
		n = uint32(len(u.docs))
		u.ids[d] = n
		u.docs = append(u.docs, d)
	}
	return n
}

// vote adds the votes of a branch, whose places are in order of rank.
func (u *union[D]) vote(f *Fusion, branch int, weight float32, whole bool, places []place) error {
	var least, unit float32 // of WeightedSum; unit 0 = all scores are equal
	if f.Method == WeightedSum && len(places) > 0 {
		least = places[0].score
		most := least
		for i := range places {
			least, most = min(least, places[i].score), max(most, places[i].score)
		}
		if most > least {
			if unit = 1 / float32(most-least); unit == 0 {
				return &FusionError{branch, -1, "scores are too far apart to normalise"}
			}
		}
	}
	for i, p := range places {
		v := vote{doc: p.doc, Vote: Vote{Branch: branch, Rank: uint32(i + 1), Ordinal: p.ordinal, Whole: whole}}
		switch {
		case f.Method == RRF:
			v.Score = float32(weight * (1 / float32(f.K+float32(i+1))))
		case unit == 0:
			v.Score = weight
		default:
			v.Score = float32(float32(weight*float32(p.score-least)) * unit)
		}
		if !finite(v.Score) {
			return &FusionError{branch, -1, "weight is too large"}
		}
		u.votes = append(u.votes, v)
	}
	return nil
}

// fuse adds the votes up.
func (u *union[D]) fuse(f *Fusion, compare func(a, b D) int) ([]Fused[D], error) {
	// Sort votes by document by counting; within one they stay in order of branch.
	ends := make([]int, len(u.docs)+1)
	for i := range u.votes {
		ends[u.votes[i].doc+1]++
	}
	for i := range u.docs {
		ends[i+1] += ends[i]
	}
	votes := make([]Vote, len(u.votes))
	for i := range u.votes {
		v := &u.votes[i]
		votes[ends[v.doc]] = v.Vote
		ends[v.doc]++
	}
	passages := make([]Passage, 0, len(votes))
	var scores []float32
	docs := make([]Fused[D], len(u.docs))
	order := make([]standing, len(u.docs))
	from := 0
	for d := range docs {
		mine := votes[from:ends[d]:ends[d]]
		from = ends[d]
		if len(mine) > 1 {
			slices.SortFunc(mine, byPassage)
		}
		first := len(passages)
		var whole, own float32
		for i := range mine {
			v := &mine[i]
			if i > 0 && v.Branch == mine[i-1].Branch && v.Ordinal == mine[i-1].Ordinal && v.Whole == mine[i-1].Whole {
				return nil, &FusionError{v.Branch, int(v.Rank - 1), "a ranked list names the passage twice"}
			}
			if v.Whole {
				whole += v.Score
				continue
			}
			if n := len(passages); n > first && passages[n-1].Ordinal == v.Ordinal {
				own += v.Score
			} else {
				own = v.Score
				passages = append(passages, Passage{Ordinal: v.Ordinal})
			}
			passages[len(passages)-1].Score = own + whole
		}
		o := Fused[D]{Doc: u.docs[d], Score: whole, Votes: mine}
		if len(passages) > first {
			o.Passages = passages[first:len(passages):len(passages)]
			scores = scores[:0]
			for _, p := range o.Passages {
				scores = append(scores, p.Score)
			}
			o.Score = f.Combiner.Combine(scores)
		}
		if !finite(o.Score) {
			return nil, &FusionError{-1, -1, "score is beyond binary32"}
		}
		docs[d] = o
		order[d] = standing{o.Score, uint32(d)}
	}
	slices.SortFunc(order, func(a, b standing) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return compare(u.docs[a.doc], u.docs[b.doc])
	})
	out := make([]Fused[D], len(order))
	for i, s := range order {
		out[i] = docs[s.doc]
	}
	return out, nil
}

// standing is what a document is sorted by.
type standing struct {
	score float32
	doc   uint32
}

// byPassage orders the votes of a document: for the whole document first, then by ordinal, then by branch, then by rank.
func byPassage(a, b Vote) int {
	switch {
	case a.Whole != b.Whole:
		if a.Whole {
			return -1
		}
		return 1
	case a.Ordinal != b.Ordinal:
		return cmp.Compare(a.Ordinal, b.Ordinal)
	case a.Branch != b.Branch:
		return cmp.Compare(a.Branch, b.Branch)
	}
	return cmp.Compare(a.Rank, b.Rank)
}
