package knn

import (
	"math"

	"github.com/weft-search/weft/internal/vector"
)

// leastShareEf is the least number of candidates that a part of an index is searched with whose share would be fewer: with very few a walk
// may end before it has come near the query.
const leastShareEf = 50

// Share is how a part of an index, such as a segment or a shard, is first searched for its share of the k nearest of the whole. share is the
// part's share of the documents, from 0 to 1; ef is that of the search for k, 0 for the default.
//
// Where documents lie in parts at random, the number of the k nearest that lie in one part is binomial. partK is its mean and three standard
// deviations more, which is too few once in some seven hundred times; partEf has the proportion to partK that ef has to k, so that every
// part is searched as carefully as the whole would be. When all that the part gave stands among the k nearest that all parts gave,
// it may have more of them, and has to be searched again for k; with that, nothing is missed that searches of all parts for k would find
// exactly. Apache Lucene searches its segments so (pull request 14226).
func Share(k, ef int, share float64) (partK, partEf int) {
	if ef <= 0 {
		ef = vector.DefaultEf(k)
	}
	ef = max(ef, k)
	mean := float64(k) * share
	partK = min(int(math.Ceil(mean+3*math.Sqrt(mean*max(1-share, 0)))), k)
	partK = max(partK, min(k, 1))
	if partK == k {
		return k, ef
	}
	partEf = int(math.Ceil(float64(ef) * float64(partK) / float64(k)))
	return partK, max(partEf, min(ef, leastShareEf))
}
