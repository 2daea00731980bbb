package cache

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
)

// Request is the fingerprint of a request: equal requests have equal fingerprints, and nobody can make two different ones that do.
type Request [16]byte

// NewRequest is the fingerprint of a request's canonical form, which must hold everything that the answer depends on beside the
// index and its snapshot: what is asked, by which method, and on whose behalf where that matters. It is the first half of SHA-256:
// callers choose the bytes, so a weaker hash would let one of them prepare the answer of another.
func NewRequest(canonical []byte) Request {
	sum := sha256.Sum256(canonical)
	return Request(sum[:16])
}

// ShardVersion is the state of one shard. Versions of two instances of a shard have nothing to do with each other: an instance is a
// number that is drawn at random whenever the shard is opened or made, so a shard that was dropped and made again is another one.
type ShardVersion struct {
	Shard    uint32
	Instance uint64
	Version  uint64
}

// Snapshot is the fingerprint of the states of all the shards that an answer is read from. The zero value is no snapshot; only Fold
// makes one. Snapshots are compared with ==.
type Snapshot struct{ hi, lo uint64 }

// Fold makes the snapshot of several shards. The order in which they are listed does not matter, which shard has which state does.
// A set with one shard fewer is another snapshot. The error says that there is no shard, or one twice. versions is not changed.
func Fold(versions []ShardVersion) (Snapshot, error) {
	if len(versions) == 0 {
		return Snapshot{}, errors.New("a snapshot has at least one shard")
	}
	byShard := func(a, b ShardVersion) int { return cmp.Compare(a.Shard, b.Shard) }
	if !slices.IsSortedFunc(versions, byShard) {
		versions = slices.Clone(versions)
		slices.SortFunc(versions, byShard)
	}
	var room [64 * 20]byte // enough for 64 shards without an allocation
	b := slices.Grow(room[:0], 20*len(versions))
	for i, v := range versions {
		if i > 0 && versions[i-1].Shard == v.Shard {
			return Snapshot{}, fmt.Errorf("shard %d is in the snapshot twice", v.Shard)
		}
		b = binary.LittleEndian.AppendUint32(b, v.Shard)
		b = binary.LittleEndian.AppendUint64(b, v.Instance)
		b = binary.LittleEndian.AppendUint64(b, v.Version)
	}
	// Servers choose these bytes, not callers, so a fast hash will do.
	h := xxh3.Hash128(b)
	s := Snapshot{hi: h.Hi, lo: h.Lo}
	if s.IsZero() {
		s.lo = 1
	}
	return s, nil
}

// IsZero says that this is no snapshot.
func (s Snapshot) IsZero() bool { return s == Snapshot{} }

// String is the fingerprint in hexadecimal.
func (s Snapshot) String() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], s.hi)
	binary.BigEndian.PutUint64(b[8:], s.lo)
	return hex.EncodeToString(b[:])
}

// Key names an answer: the request, the index, and the snapshot that it is read from. A new snapshot makes new keys, so no entry
// has to be removed when an index changes; those of the old snapshot are never asked for again and make room by and by.
type Key struct {
	index    string
	snapshot Snapshot
	request  Request
}

// NewKey makes a key. A Loader refuses one whose snapshot is zero.
func NewKey(index string, snapshot Snapshot, request Request) Key {
	return Key{index: index, snapshot: snapshot, request: request}
}

// Index is the name of the index.
func (k Key) Index() string { return k.index }

// Snapshot is the snapshot that the answer must be read from.
func (k Key) Snapshot() Snapshot { return k.snapshot }

// Request is the fingerprint of the request.
func (k Key) Request() Request { return k.request }
