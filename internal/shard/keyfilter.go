package shard

import "github.com/zeebo/xxh3"

// keyFilter tells for most keys that a segment does not have, without looking: a split-block Bloom filter (Putze, Sanders and
// Singler, "Cache-, Hash- and Space-Efficient Bloom Filters"), one cache line for each key, about 10 bits and 1 % error. It
// lives in memory only. Immutable once filled.
type keyFilter struct{ blocks [][8]uint64 }

// keysPerBlock keeps 512/48, about ten bits for each key.
const keysPerBlock = 48

func newKeyFilter(keys int) *keyFilter {
	return &keyFilter{blocks: make([][8]uint64, keys/keysPerBlock+1)}
}

// place returns the block of a hash and the bit in each of its words.
func (f *keyFilter) place(h uint64) (*[8]uint64, uint64) {
	b := &f.blocks[(h>>32)*uint64(len(f.blocks))>>32]
	return b, uint64(uint32(h)) * 0x9E3779B97F4A7C15
}

func (f *keyFilter) add(key []byte) {
	b, x := f.place(xxh3.Hash(key))
	for i := range b {
		b[i] |= 1 << (x >> (6 * i) & 63)
	}
}

func (f *keyFilter) has(key string) bool {
	b, x := f.place(xxh3.HashString(key))
	for i := range b {
		if b[i]>>(x>>(6*i)&63)&1 == 0 {
			return false
		}
	}
	return true
}
