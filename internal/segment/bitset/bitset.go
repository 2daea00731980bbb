// Package bitset is a dense set of document numbers.
//
// A Set is a plain slice: reads are safe at once, writes need an owner. Published sets are never written again; take a Clone.
package bitset

import "math/bits"

// Set has bit i of word i/64 set for each member. Its capacity is fixed at New.
type Set []uint64

// New returns an empty set for members below n.
func New(n int) Set { return make(Set, (n+63)/64) }

// Full returns the set of all numbers below n.
func Full(n int) Set {
	s := New(n)
	for i := range s {
		s[i] = ^uint64(0)
	}
	if r := n % 64; r != 0 {
		s[len(s)-1] = 1<<r - 1
	}
	return s
}

// Has tells whether i is a member; i must be below the capacity.
func (s Set) Has(i uint32) bool { return s[i>>6]>>(i&63)&1 != 0 }

// Add makes i a member.
func (s Set) Add(i uint32) { s[i>>6] |= 1 << (i & 63) }

// Remove takes i out.
func (s Set) Remove(i uint32) { s[i>>6] &^= 1 << (i & 63) }

// Count returns the number of members.
func (s Set) Count() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Clone returns a copy that shares nothing.
func (s Set) Clone() Set { return append(Set(nil), s...) }
