package sparse

import (
	"errors"
	"math"
	"slices"
	"sort"
	"unsafe"

	"github.com/weft-search/weft/internal/vector"
)

// Vectors are listed in blocks, so that the accumulators of a search stay in the cache and the memory of a writer is bounded; see
// FORMAT.md.
const (
	blockVectors = 1 << 16 // an entry of a list has 16 bits
	blockWeights = 1 << 22
	shortList    = 512
	maxTiers     = 64
)

// limits are what a writer goes by; a reader takes what it finds. Tests have smaller ones.
type limits struct {
	vectors int // most vectors of a block with lists
	weights int // most weights of one
	short   int // lists below this keep their weights
}

var standard = limits{vectors: blockVectors, weights: blockWeights, short: shortList}

// block is a run of vectors with their lists.
type block struct {
	first, n int      // vectors
	dims     []uint32 // ascending; nil if the block is not listed
	places   []uint32 // where the list of each dimension begins in lists, and the end of the last
	lists    []byte
	listed   bool
}

// tier is a run of a list's entries whose weights are between two bounds, both taken on.
type tier struct {
	greatest, least float32
	n               uint32
}

const tierSize = 12

// list is the entries of one dimension by weight descending. A short one has the weight of each entry, others have tiers, in which
// entries ascend.
type list struct {
	weights []float32
	tiers   []tier
	ords    []uint16 // entries: numbers of vectors within the block
}

func damaged(part, reason string) error { return &vector.CorruptError{Part: part, Reason: reason} }

// list reads list i of the block.
func (b *block) list(i int) (l list, err error) {
	from, to := b.places[i], b.places[i+1]
	p := b.lists[from:to] // places were checked
	if len(p) < 8 {
		return l, damaged("list", "it is shorter than its head")
	}
	df, n := int(le.Uint32(p)), int(le.Uint32(p[4:]))
	p = p[8:]
	switch {
	case df == 0 || df > b.n:
		return l, damaged("list", "it has no entries, or more than there are vectors")
	case n == 0:
		if len(p) != align4(6*df) {
			return l, damaged("list", "its entries do not fill it")
		}
		l.weights = viewF32(p[:4*df])
		p = p[4*df:]
		// The ends bound what is between, in a list that is whole.
		if a, z := l.weights[0], l.weights[df-1]; a-a != 0 || z-z != 0 || a < z {
			return list{}, damaged("list", "its weights do not descend")
		}
	default:
		if n > maxTiers || len(p) != align4(tierSize*n+2*df) {
			return l, damaged("list", "its tiers and entries do not fill it")
		}
		l.tiers = unsafe.Slice((*tier)(unsafe.Pointer(unsafe.SliceData(p))), n)
		p = p[tierSize*n:]
		sum, last := 0, float32(math.MaxFloat32)
		for _, t := range l.tiers {
			if !(last >= t.greatest && t.greatest >= t.least && t.least >= -math.MaxFloat32) || t.n == 0 || int(t.n) > df-sum {
				return list{}, damaged("list", "its tiers are out of order")
			}
			sum, last = sum+int(t.n), t.least
		}
		if sum != df {
			return list{}, damaged("list", "its tiers do not sum up to its entries")
		}
	}
	l.ords = unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(p))), df)
	return l, nil
}

func (l *list) greatest() float32 {
	if l.weights != nil {
		return l.weights[0]
	}
	return l.tiers[0].greatest
}

func (l *list) least() float32 {
	if l.weights != nil {
		return l.weights[len(l.weights)-1]
	}
	return l.tiers[len(l.tiers)-1].least
}

func viewU32(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func viewU64(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

func viewF32(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func align4(n int) int { return (n + 3) &^ 3 }

func align8(n int) int { return (n + 7) &^ 7 }

// blockWriter makes the lists of blocks. It keeps 8 bytes for each weight of a block.
type blockWriter struct {
	limits
	small []uint32          // by dimension, up to smallDims of them: weights, then where the next key goes
	large map[uint32]uint32 // the same of other dimensions
	dims  []uint32
	keys  []uint64
	b     []byte
}

const smallDims = 1 << 18

// lists returns the lists of the block of n vectors whose records record gives, and the number of its dimensions. The bytes are valid
// until the next call. It calls check now and then and ends with its error.
func (w *blockWriter) lists(n int, record func(i int) []byte, check func() error) (b []byte, dims int, err error) {
	top := uint32(0)
	for i := range n {
		if v, ok := parse(record(i)); ok && v.n > 0 {
			top = max(top, v.dim(v.n-1))
		}
	}
	small := int(min(top, smallDims-1)) + 1
	w.small = slices.Grow(w.small[:0], small)[:small]
	clear(w.small)
	if w.large == nil {
		w.large = map[uint32]uint32{}
	}
	clear(w.large)
	w.dims = w.dims[:0]
	total := 0
	for i := range n {
		if i%4096 == 0 {
			if err := check(); err != nil {
				return nil, 0, err
			}
		}
		v, ok := parse(record(i))
		if !ok {
			return nil, 0, errChanged
		}
		for j := range v.n {
			if d := v.dim(j); int(d) < small {
				w.small[d]++
			} else {
				w.large[d]++
			}
		}
		total += v.n
	}
	for d, c := range w.small {
		if c > 0 {
			w.dims = append(w.dims, uint32(d))
		}
	}
	from := len(w.dims)
	for d := range w.large {
		w.dims = append(w.dims, d)
	}
	slices.Sort(w.dims[from:])
	at := uint32(0)
	for _, d := range w.dims {
		if int(d) < small {
			w.small[d], at = at, at+w.small[d]
		} else {
			w.large[d], at = at, at+w.large[d]
		}
	}
	w.keys = slices.Grow(w.keys[:0], total)[:total]
	for i := range n {
		if i%4096 == 0 {
			if err := check(); err != nil {
				return nil, 0, err
			}
		}
		v, ok := parse(record(i))
		if !ok || v.n > total {
			return nil, 0, errChanged
		}
		total -= v.n
		for j := range v.n {
			d, at := v.dim(j), uint32(0)
			if int(d) < small {
				at = w.small[d]
				w.small[d]++
			} else {
				at = w.large[d]
				w.large[d]++
			}
			if int(at) >= len(w.keys) {
				return nil, 0, errChanged
			}
			w.keys[at] = keyOf(v.weight(j), i)
		}
	}

	dims = len(w.dims)
	head := align8(4*dims) + align8(4*dims+4)
	b = slices.Grow(w.b[:0], head)[:head]
	clear(b)
	last := uint32(0)
	for i, d := range w.dims {
		if i%4096 == 0 {
			if err := check(); err != nil {
				return nil, 0, err
			}
		}
		// Every key of the dimension has been placed, so the place of the next is their end.
		end := w.large[d]
		if int(d) < small {
			end = w.small[d]
		}
		if end <= last || int(end) > len(w.keys) {
			return nil, 0, errChanged
		}
		le.PutUint32(b[4*i:], d)
		b = appendList(b, w.keys[last:end], w.short)
		le.PutUint32(b[align8(4*dims)+4*i+4:], uint32(len(b)-head))
		last = end
	}
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	w.b = b
	return b, dims, nil
}

var errChanged = errors.New("the records changed while they were written")

// keyOf orders entries by weight descending, then by vector.
func keyOf(w float32, ord int) uint64 {
	u := math.Float32bits(w)
	if u>>31 != 0 {
		u = ^u
	} else {
		u |= 1 << 31
	}
	return uint64(^u)<<16 | uint64(ord)
}

// weightOf is the weight of a key.
func weightOf(key uint64) float32 {
	u := ^uint32(key >> 16)
	if u>>31 != 0 {
		return math.Float32frombits(u &^ (1 << 31))
	}
	return math.Float32frombits(^u)
}

// appendList appends the list of the entries with the given keys, which it sorts and overwrites.
func appendList(b []byte, keys []uint64, short int) []byte {
	slices.Sort(keys)
	df := len(keys)
	b = le.AppendUint32(b, uint32(df))
	b = le.AppendUint32(b, 0)
	if df < short {
		for _, k := range keys {
			b = le.AppendUint32(b, math.Float32bits(weightOf(k)))
		}
	} else {
		count := len(b)
		width, n := tierWidth(keys), uint32(0)
		for i := 0; i < df; n++ {
			to := tierEnd(keys, i, width)
			b = le.AppendUint32(b, math.Float32bits(weightOf(keys[i])))
			b = le.AppendUint32(b, math.Float32bits(weightOf(keys[to-1])))
			b = le.AppendUint32(b, uint32(to-i))
			// Within a tier by vector alone.
			for j := i; j < to; j++ {
				keys[j] &= 1<<16 - 1
			}
			slices.Sort(keys[i:to])
			i = to
		}
		le.PutUint32(b[count-4:], n)
	}
	for _, k := range keys {
		b = le.AppendUint16(b, uint16(k))
	}
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// tierEnd returns the end of the tier of sorted keys that begins with key i and holds weights of one sign that lie within width of each
// other.
func tierEnd(keys []uint64, i int, width float64) int {
	w := weightOf(keys[i])
	least := float64(w) - width
	if w >= 0 {
		least = max(least, 0)
	}
	// Tiers are short more often than not.
	step := 1
	for i+step < len(keys) && float64(weightOf(keys[i+step])) >= least {
		step *= 2
	}
	from, to := i+step/2+1, min(i+step, len(keys))
	return from + sort.Search(to-from, func(k int) bool { return float64(weightOf(keys[from+k])) < least })
}

// tierWidth returns a width with which a list has at most maxTiers tiers, close to the least one. It does not cut the range of the weights
// into equal parts, because a few outliers would then make the tiers of all others wide.
func tierWidth(keys []uint64) float64 {
	fits := func(width float64) bool {
		n := 0
		for i := 0; i < len(keys); n++ {
			if n == maxTiers {
				return false
			}
			i = tierEnd(keys, i, width)
		}
		return true
	}
	if fits(0) {
		return 0
	}
	least, enough := 0.0, float64(weightOf(keys[0]))-float64(weightOf(keys[len(keys)-1]))
	for range 16 {
		if mid := (least + enough) / 2; fits(mid) {
			enough = mid
		} else {
			least = mid
		}
	}
	return enough
}
