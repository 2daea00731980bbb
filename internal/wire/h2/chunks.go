package h2

import "sync"

// Sizes of what is read into at a time.
const (
	smallChunk = 16 << 10
	largeChunk = 128 << 10
	// leastChunk is the room with which a chunk is read into.
	leastChunk = 4 << 10
)

type chunks struct{ small, large sync.Pool }

var pool chunks

// Get implements mem.BufferPool.
func (p *chunks) Get(n int) *[]byte {
	from := &p.small
	size := smallChunk
	if n > smallChunk {
		from, size = &p.large, largeChunk
	}
	if b, ok := from.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, size)
	return &b
}

// Put implements mem.BufferPool.
func (p *chunks) Put(b *[]byte) {
	*b = (*b)[:cap(*b)]
	if len(*b) == largeChunk {
		p.large.Put(b)
		return
	}
	p.small.Put(b)
}
