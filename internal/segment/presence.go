package segment

import (
	"math/bits"
	"slices"
)

// A set of documents is cut into chunks of 65,536 documents: empty, full, a sorted array of 16-bit numbers, or a bitmap.

const (
	chunkDocs    = 1 << 16
	chunkArray   = 4096 // members up to which a chunk is an array
	chunkEntry   = 16
	presenceTail = 24
)

// encodePresence makes the section of a set of ascending docs in a segment of numDocs documents, in the memory of dst.
func encodePresence(dst []byte, numDocs uint32, docs []uint32) []byte {
	dst = dst[:0]
	chunks := (int(numDocs) + chunkDocs - 1) / chunkDocs
	var index []byte
	count := len(docs)
	for c := range chunks {
		end := uint64(c+1) * chunkDocs
		n, _ := slices.BinarySearchFunc(docs, end, func(d uint32, end uint64) int {
			if uint64(d) < end {
				return -1
			}
			return 1
		})
		index = le.AppendUint64(index, uint64(len(dst)))
		index = le.AppendUint64(index, uint64(n))
		size := min(chunkDocs, int(numDocs)-c*chunkDocs)
		switch {
		case n == 0 || n == size:
		case n <= chunkArray:
			for _, d := range docs[:n] {
				dst = le.AppendUint16(dst, uint16(d))
			}
		default:
			bm := make([]uint64, (size+63)/64)
			for _, d := range docs[:n] {
				bm[d%chunkDocs/64] |= 1 << (d % 64)
			}
			for _, w := range bm {
				dst = le.AppendUint64(dst, w)
			}
		}
		dst = pad(dst, 8)
		docs = docs[n:]
	}
	end := len(dst)
	dst = append(dst, index...)
	dst = le.AppendUint64(dst, uint64(count))
	dst = le.AppendUint64(dst, uint64(chunks))
	return le.AppendUint64(dst, uint64(end))
}

// Presence is the set of documents that have a value for a field. The zero value is empty. It is safe to use at once.
type Presence struct {
	data    []byte
	index   []uint64 // two for each chunk: place, members
	numDocs uint32
	count   int
}

func openPresence(s *section, numDocs uint32) (Presence, error) {
	b := s.data
	if len(b) < presenceTail || len(b)%8 != 0 {
		return Presence{}, s.corrupt("set is shorter than its frame")
	}
	tr := b[len(b)-presenceTail:]
	count, chunks, end := le.Uint64(tr), le.Uint64(tr[8:]), le.Uint64(tr[16:])
	want := (uint64(numDocs) + chunkDocs - 1) / chunkDocs
	room := uint64(len(b) - presenceTail)
	if chunks != want || end > room || end%8 != 0 || end+chunks*chunkEntry != room || count > uint64(numDocs) {
		return Presence{}, s.corrupt("set's chunks and index do not fill it")
	}
	p := Presence{data: b[:end], index: viewU64(b[end:room]), numDocs: numDocs, count: int(count)}
	sum := uint64(0)
	for c := range int(chunks) {
		off, n, size := p.index[2*c], p.index[2*c+1], uint64(p.chunkSize(c))
		need := uint64(0)
		switch {
		case n > size:
			return Presence{}, s.corrupt("chunk of a set has too many members")
		case n == 0 || n == size:
		case n <= chunkArray:
			need = 2 * n
		default:
			need = (size + 63) / 64 * 8
		}
		if off%8 != 0 || off > end || need > end-off {
			return Presence{}, s.corrupt("chunk of a set ends behind its data")
		}
		sum += n
	}
	if sum != count {
		return Presence{}, s.corrupt("chunks of a set do not sum up to its members")
	}
	return p, nil
}

func (p *Presence) chunkSize(c int) int { return min(chunkDocs, int(p.numDocs)-c*chunkDocs) }

// Count is the number of members.
func (p *Presence) Count() int { return p.count }

// Has tells whether doc is a member.
func (p *Presence) Has(doc uint32) bool {
	if doc >= p.numDocs {
		return false
	}
	c := int(doc / chunkDocs)
	off, n := p.index[2*c], int(p.index[2*c+1])
	switch {
	case n == 0:
		return false
	case n == p.chunkSize(c):
		return true
	case n <= chunkArray:
		a := viewU16(p.data[off : off+2*uint64(n)])
		i := searchU16(a, uint16(doc))
		return i < n && a[i] == uint16(doc)
	}
	d := doc % chunkDocs
	return p.data[off+uint64(d/8)]>>(d%8)&1 != 0
}

// searchU16 returns the index of the first element of the ascending a that is not below v.
func searchU16(a []uint16, v uint16) int {
	lo, n := 0, len(a)
	for n > 0 {
		half := n >> 1
		if a[lo+half] < v {
			lo += half + 1
			n -= half + 1
		} else {
			n = half
		}
	}
	return lo
}

// NextSet returns the first member that is not below doc.
func (p *Presence) NextSet(doc uint32) (next uint32, ok bool) {
	for doc < p.numDocs {
		c := int(doc / chunkDocs)
		off, n := p.index[2*c], int(p.index[2*c+1])
		base, size := uint32(c)*chunkDocs, p.chunkSize(c)
		d := int(doc - base)
		switch {
		case n == 0:
		case n == size:
			return doc, true
		case n <= chunkArray:
			a := viewU16(p.data[off : off+2*uint64(n)])
			if i := searchU16(a, uint16(d)); i < n && int(a[i]) >= d && int(a[i]) < size {
				return base + uint32(a[i]), true
			}
		default:
			bm := viewU64(p.data[off : off+uint64((size+63)/64*8)])
			w := d / 64
			for v := bm[w] >> (d % 64) << (d % 64); ; v = bm[w] {
				if v != 0 {
					if m := w*64 + bits.TrailingZeros64(v); m < size {
						return base + uint32(m), true
					}
					break
				}
				if w++; w == len(bm) {
					break
				}
			}
		}
		if uint64(base)+uint64(size) >= uint64(p.numDocs) {
			break
		}
		doc = base + uint32(size)
	}
	return 0, false
}
