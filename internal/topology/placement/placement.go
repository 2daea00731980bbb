// Package placement decides which shard owns a document. The id alone decides, and the number of shards: no address, no time, no
// state. All rules are pinned to the bit by golden files, because a document that changes its owner without being moved is lost.
//
// The hash of an id is fmix32(fnv1a32(id)) over its UTF-8 bytes: FNV-1a alone is linear in the last bytes, so that ids that count
// upwards would crowd on a ring; the finalizer of MurmurHash3 breaks that. What follows takes nothing but this hash h, so a place
// that keeps hashes can tell owners without the ids:
//
//   - ring: virtual node v of shard s stands at the point fmix32(fnv1a32("shard:" + s + "#" + v)), both numbers in decimal from 0. The
//     owner of h is the shard of the lowest point that is h or above, and of the lowest of all where there is none. Where points of
//     several shards fall together, the lowest ordinal has the point and the others are without it;
//   - modulo: h modulo the number of shards;
//   - rendezvous: the shard with the highest weight mix64(s<<32 | h), where mix64 is the finalizer of SplitMix64 (Stafford's 13th). It
//     is a bijection, so two shards never draw the same weight for a hash.
package placement

import (
	"fmt"
)

// Rule is how owners are chosen.
type Rule string

// The rules.
const (
	// Ring is a consistent hash ring: each shard has virtual nodes on it, and the first clockwise from the hash of an id, itself
	// included, is its owner. One more shard takes over about 1/N of the documents, from all others.
	Ring Rule = "ring"
	// Modulo is the hash modulo the shards: as even as the hash, but one more shard moves nearly everything.
	Modulo Rule = "modulo"
	// Rendezvous gives a document to the shard with the highest weight drawn from both (Thaler and Ravishankar, 1998): as even as
	// the hash, and one more shard takes exactly its own part and nothing else moves, at the price of one look at every shard.
	Rendezvous Rule = "rendezvous"
)

// Limits.
const (
	DefaultVNodes = 128
	MaxShards     = 1024
	MaxVNodes     = 4096
)

// Spec names a placement.
type Spec struct {
	Rule   Rule
	Shards int // 1 to MaxShards
	VNodes int // of each shard on a ring, 1 to MaxVNodes; 0: DefaultVNodes. Other rules pass over it
}

// Share is the part of an index that one shard owns.
type Share struct {
	Spec
	Ordinal int // from 0
}

// Validate complains of a spec that cannot be placed by.
func (s Spec) Validate() error {
	switch {
	case s.Rule != Ring && s.Rule != Modulo && s.Rule != Rendezvous:
		return fmt.Errorf("placement: there is no rule %q; it is ring, modulo or rendezvous", s.Rule)
	case s.Shards < 1 || s.Shards > MaxShards:
		return fmt.Errorf("placement: %d shards; there are 1 to %d", s.Shards, MaxShards)
	case s.VNodes < 0 || s.VNodes > MaxVNodes:
		return fmt.Errorf("placement: %d virtual nodes; there are 1 to %d", s.VNodes, MaxVNodes)
	}
	return nil
}

// Normal returns the spec with what it leaves open filled in: DefaultVNodes on a ring, no virtual nodes elsewhere. Specs that place
// alike have the same normal form.
func (s Spec) Normal() Spec {
	switch {
	case s.Rule != Ring:
		s.VNodes = 0
	case s.VNodes == 0:
		s.VNodes = DefaultVNodes
	}
	return s
}

// Hash is the hash of a document's id.
func Hash[T ~string | ~[]byte](id T) uint32 { return fmix32(fnv1a32(id)) }

func fnv1a32[T ~string | ~[]byte](s T) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}

// fmix32 is the finalizer of MurmurHash3.
func fmix32(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// mix64 is the finalizer of SplitMix64.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
