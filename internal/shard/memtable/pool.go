package memtable

import (
	"encoding/binary"
	"sync/atomic"
)

// pool is memory for terms, keys and posting slabs, in chunks that never move. An address is chunk<<chunkBits + offset.
type pool struct {
	chunks [][]byte
	free   uint32 // offset of the first free byte of the last chunk
	bytes  int64  // of all chunks
	shared atomic.Pointer[chunks]
}

// published returns the chunks there are. Whoever learnt an address from an atomic load finds it in chunks published after.
func (p *pool) published() chunks {
	c := p.shared.Load()
	if c == nil {
		return nil
	}
	return *c
}

// The first chunks are small, so that a shard with few documents takes little; each still has the address range of a full one.
const (
	chunkBits  = 18
	chunkSize  = 1 << chunkBits
	chunkMask  = chunkSize - 1
	firstChunk = 16 << 10
)

// alloc returns the address of n contiguous bytes; n <= chunkSize.
func (p *pool) alloc(n uint32) uint32 {
	if len(p.chunks) == 0 || int(p.free+n) > len(p.chunks[len(p.chunks)-1]) {
		size := grown(firstChunk, len(p.chunks), int(n), chunkSize)
		p.chunks = append(p.chunks, make([]byte, size))
		p.bytes += int64(size)
		c := chunks(p.chunks)
		p.shared.Store(&c)
		p.free = 0
	}
	a := uint32(len(p.chunks)-1)<<chunkBits + p.free
	p.free += n
	return a
}

// grown is the size of the i-th of a series of blocks that doubles from first to last, and holds need in any case.
func grown(first, i, need, last int) int {
	size := min(first<<min(i, 20), last)
	for size < need && size < last {
		size *= 2
	}
	return max(size, need)
}

// put copies b into the pool.
func (p *pool) put(b []byte) uint32 {
	a := p.alloc(uint32(len(b)))
	copy(p.chunks[a>>chunkBits][a&chunkMask:], b)
	return a
}

// chunks is the part of a pool that a reader captured.
type chunks [][]byte

func (c chunks) bytes(a, n uint32) []byte {
	o := a & chunkMask
	return c[a>>chunkBits][o : o+n : o+n]
}

// A posting list is a chain of slabs: a level byte, data, and four bytes for the address of the next slab. The link has its
// place from the start, so data bytes never move once written.
const linkSize = 4

var slabSizes = [...]uint32{12, 20, 36, 68, 132, 260, 516, 1028, 2052, 4100}

// newSlab allocates a slab of at least the given level, larger if need bytes do not fit, and returns the level, the address
// of its first data byte and the address of its link.
func (p *pool) newSlab(level uint8, need int) (lv uint8, data, link uint32) {
	for int(level) < len(slabSizes)-1 && int(slabSizes[level])-1-linkSize < need {
		level++
	}
	size := slabSizes[level]
	a := p.alloc(size)
	p.chunks[a>>chunkBits][a&chunkMask] = level
	return level, a + 1, a + size - linkSize
}

func (p *pool) setLink(link, next uint32) {
	binary.LittleEndian.PutUint32(p.chunks[link>>chunkBits][link&chunkMask:], next)
}

// slabAt returns the data range of the slab that starts at a.
func (c chunks) slabAt(a uint32) (data, link uint32) {
	level := c[a>>chunkBits][a&chunkMask]
	return a + 1, a + slabSizes[level] - linkSize
}

func (c chunks) link(link uint32) uint32 {
	return binary.LittleEndian.Uint32(c[link>>chunkBits][link&chunkMask:])
}

// gather appends the list bytes from address from, in the slab whose link is at link, up to address end. It returns the link of
// the slab that end lies in.
func (c chunks) gather(dst []byte, from, link, end uint32) ([]byte, uint32) {
	for {
		// end lies in this slab if it is within [from, link]: slabs do not overlap and no data address equals another's link.
		if from <= end && end <= link {
			return append(dst, c.bytes(from, end-from)...), link
		}
		dst = append(dst, c.bytes(from, link-from)...)
		from, link = c.slabAt(c.link(link))
	}
}
