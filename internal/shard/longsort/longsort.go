// Package longsort sorts lists so long that a caller may leave meanwhile.
//
// Nothing in it is kept between calls; what is safe to call at once is up to compare and look.
package longsort

import "slices"

// Step is how many elements are put in order between two looks: well below a millisecond where they compare as numbers, a few where
// comparing means to read keys.
const Step = 1 << 10

// Sort sorts a list ascending, with a look before each step: pieces of it first, which are then merged, pair by pair. It needs room for
// as many elements again, and takes spare for it as far as that goes. The sorted list comes back with the other one, either of which may
// be the one given; what the other holds is of no use. The order of equals is not kept. An error of look ends it and comes back as it is,
// with the elements in some order.
func Sort[T any](list, spare []T, compare func(a, b T) int, look func() error) (sorted, other []T, err error) {
	n := len(list)
	for lo := 0; lo < n; lo += Step {
		if lo > 0 {
			if err := look(); err != nil {
				return list, spare, err
			}
		}
		slices.SortFunc(list[lo:min(lo+Step, n)], compare)
	}
	if n <= Step {
		return list, spare, nil
	}
	spare = slices.Grow(spare[:0], n)[:n]
	for width := Step; width < n; width *= 2 {
		for lo := 0; lo < n; lo += 2 * width {
			i, j := lo, min(lo+width, n)
			mid, hi := j, min(lo+2*width, n)
			for at := lo; at < hi; at++ {
				if at%Step == 0 {
					if err := look(); err != nil {
						return list, spare, err
					}
				}
				if i < mid && (j == hi || compare(list[i], list[j]) <= 0) {
					spare[at] = list[i]
					i++
				} else {
					spare[at] = list[j]
					j++
				}
			}
		}
		list, spare = spare, list
	}
	return list, spare, nil
}
