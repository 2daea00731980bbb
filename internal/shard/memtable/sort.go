package memtable

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// sortItem is an entry under sorting: its bytes from the current depth on, as far as they fit a word, zeros after the end.
type sortItem struct {
	word uint64
	n    uint32 // number of the entry
}

// sortEntries sorts numbers of entries by their bytes. It is a radix sort by words (McIlroy, Bostic and McIlroy, "Engineering
// Radix Sort", with a comparison sort for each digit): the bytes of an entry, a cache miss away, are read once for each word and not once for each
// comparison; prefixes that all share, as keys have, are skipped.
func sortEntries(c chunks, entries []entry, nums []uint32) {
	items := make([]sortItem, len(nums))
	for i, n := range nums {
		items[i].n = n
	}
	s := sorter{c, entries}
	s.sort(items, 0)
	for i := range items {
		nums[i] = items[i].n
	}
}

type sorter struct {
	c       chunks
	entries []entry
}

func (s sorter) bytes(n uint32) []byte {
	e := &s.entries[n]
	return s.c.bytes(e.term, uint32(e.size))
}

// fewItems are compared directly.
const fewItems = 8

// sort sorts items that agree in their first depth bytes.
func (s sorter) sort(items []sortItem, depth int) {
	for len(items) > 1 {
		if len(items) <= fewItems {
			slices.SortFunc(items, func(a, b sortItem) int { return bytes.Compare(s.bytes(a.n)[depth:], s.bytes(b.n)[depth:]) })
			return
		}
		depth += s.common(items, depth)
		for i := range items {
			items[i].word = word(s.bytes(items[i].n)[depth:])
		}
		slices.SortFunc(items, func(a, b sortItem) int {
			switch {
			case a.word < b.word:
				return -1
			case a.word > b.word:
				return 1
			}
			return 0
		})
		if items[0].word == items[len(items)-1].word {
			items = s.ended(items, depth+8) // a run of one: go on in the loop, so that long equal entries do not nest
			depth += 8
			continue
		}
		for from := 0; from < len(items); {
			to := from + 1
			for to < len(items) && items[to].word == items[from].word {
				to++
			}
			if to-from > 1 {
				s.sort(s.ended(items[from:to], depth+8), depth+8)
			}
			from = to
		}
		return
	}
}

// ended moves the items that end before depth to the front, shorter ones first, for what they lack is zeros in the others; it
// returns the rest.
func (s sorter) ended(items []sortItem, depth int) []sortItem {
	k := 0
	for i := range items {
		if int(s.entries[items[i].n].size) <= depth {
			items[k], items[i] = items[i], items[k]
			k++
		}
	}
	slices.SortFunc(items[:k], func(a, b sortItem) int { return int(s.entries[a.n].size) - int(s.entries[b.n].size) })
	return items[k:]
}

// common is the number of bytes from depth on that all items share.
func (s sorter) common(items []sortItem, depth int) int {
	first := s.bytes(items[0].n)[depth:]
	for i := 1; i < len(items) && len(first) > 0; i++ {
		b := s.bytes(items[i].n)[depth:]
		n := min(len(first), len(b))
		k := 0
		for k < n && first[k] == b[k] {
			k++
		}
		first = first[:k]
	}
	return len(first)
}

// word is the first eight bytes of b as a number that compares as they do.
func word(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var k [8]byte
	copy(k[:], b)
	return binary.BigEndian.Uint64(k[:])
}
