package memtable

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// seed keeps callers from choosing terms that collide.
var seed = rand.Uint64()

func hashOf(b []byte) uint32     { return uint32(xxh3.HashSeed(b, seed) >> 32) }
func hashString(s string) uint32 { return uint32(xxh3.HashStringSeed(s, seed) >> 32) }
func (e *entry) load() (df, end uint32) {
	v := atomic.LoadUint64(&e.state)
	return uint32(v >> 32), uint32(v)
}

// entry is one term of a dict. Readers use term, size and head, which do not change, and state.
type entry struct {
	state uint64 // atomic: document frequency<<32 | address of the end of the list; for keys and column values unused
	term  uint32 // address of the term
	size  uint16 // its bytes
	level uint8  // writer: of the last slab
	head  uint32 // address of the first slab's data
	link  uint32 // writer: address of the last slab's link
	last  uint32 // writer: last document
}

// dict maps byte strings to numbers, in order of arrival. Open addressing, linear probing: a slot is hash<<32 | number+1, and
// its place is the low bits of the hash. One writer; readers work on a captured view and load slots atomically.
type dict struct {
	slots   []uint64
	entries []entry
}

// find returns the number of b. The hash must be b's.
func find(slots []uint64, entries []entry, c chunks, hash uint32, b []byte) (uint32, bool) {
	if len(slots) == 0 {
		return 0, false
	}
	mask := uint32(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		v := atomic.LoadUint64(&slots[i])
		if v == 0 {
			return 0, false
		}
		if uint32(v>>32) != hash {
			continue
		}
		// A number beyond the capture came later than the reader's view.
		if n := uint32(v) - 1; n < uint32(len(entries)) {
			if e := &entries[n]; int(e.size) == len(b) && bytes.Equal(c.bytes(e.term, uint32(e.size)), b) {
				return n, true
			}
		}
	}
}

// add returns the number of b, new or not.
func (d *dict) add(p *pool, hash uint32, b []byte) (n uint32, fresh bool) {
	if n, ok := find(d.slots, d.entries, p.chunks, hash, b); ok {
		return n, false
	}
	if 3*(len(d.entries)+1) > 2*len(d.slots) {
		d.grow()
	}
	n = uint32(len(d.entries))
	d.entries = append(d.entries, entry{term: p.put(b), size: uint16(len(b))})
	insert(d.slots, uint64(hash)<<32|uint64(n+1))
	return n, true
}

func insert(slots []uint64, v uint64) {
	mask := uint32(len(slots) - 1)
	i := uint32(v>>32) & mask
	for slots[i] != 0 {
		i = (i + 1) & mask
	}
	atomic.StoreUint64(&slots[i], v)
}

// grow doubles the slots. Readers keep the old ones, which hold every entry of their view.
func (d *dict) grow() {
	slots := make([]uint64, max(16, 2*len(d.slots)))
	for _, v := range d.slots {
		if v != 0 {
			insert(slots, v)
		}
	}
	d.slots = slots
}

const entryBytes = 32

// bytes is the memory of the dict without its pool.
func (d *dict) bytes() int64 {
	if d == nil {
		return 0
	}
	return int64(cap(d.slots))*8 + int64(cap(d.entries))*entryBytes
}
