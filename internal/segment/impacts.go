package segment

// Impact is a pair of term frequency and document length. The impacts of a block bound it: for every posting there is one with
// at least its frequency and at most its length.
type Impact struct {
	Freq uint32
	Len  uint16
}

// front is a Pareto front of impacts, ascending in both parts: more frequent and longer.
type front []Impact

// add takes in a posting.
func (f *front) add(freq uint32, length uint16) {
	s := *f
	i := len(s)
	for i > 0 && s[i-1].Freq >= freq {
		i--
	}
	// s[i] is the first with at least this frequency; its length is the least of those that can cover the posting.
	if i < len(s) && s[i].Len <= length {
		return
	}
	hi := i
	if i < len(s) && s[i].Freq == freq {
		hi = i + 1
	}
	lo := i
	for lo > 0 && s[lo-1].Len >= length {
		lo--
	}
	if lo == hi {
		s = append(s, Impact{})
		copy(s[i+1:], s[i:])
		s[i] = Impact{freq, length}
		*f = s
		return
	}
	s[lo] = Impact{freq, length}
	*f = append(s[:lo+1], s[hi:]...)
}

// reduce merges neighbours until at most n are left. A merged pair has the greater frequency and the lesser length, so the
// front still bounds what it did; each step takes the merge that raises a BM25 bound least.
func (f *front) reduce(n int, avg float64) {
	s := *f
	for len(s) > n {
		best, at := 2.0, 0
		for i := 0; i+1 < len(s); i++ {
			loss := weight(s[i+1].Freq, s[i].Len, avg) - max(weight(s[i].Freq, s[i].Len, avg), weight(s[i+1].Freq, s[i+1].Len, avg))
			if loss < best {
				best, at = loss, i
			}
		}
		s[at].Freq = s[at+1].Freq
		s = append(s[:at+1], s[at+2:]...)
	}
	*f = s
}

// weight is BM25's tf part with its default parameters. The conversions keep the compiler from fusing operations, so that
// every machine writes the same file.
func weight(freq uint32, length uint16, avg float64) float64 {
	tf := float64(freq)
	norm := float64(1.2 * float64(0.25+float64(0.75*float64(float64(length)/avg))))
	return tf / float64(tf+norm)
}
