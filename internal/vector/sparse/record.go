package sparse

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vector/kernel"
)

var le = binary.LittleEndian

// MaxWeights is the number of weights that a vector can have.
const MaxWeights = 1<<28 - 1

const recordHead = 4

// Encode appends the record of a value: pairs of schema.AppendSparse, indices ascending, weights finite, at most MaxWeights of them;
// what is beyond is dropped. Weights of 0 are dropped, and what p crops.
func Encode(p Params, dst, value []byte) []byte {
	n := min(schema.SparseLen(value), MaxWeights)
	var few [256]pair
	pairs := few[:0]
	for i := range n {
		if dim, w := schema.SparseAt(value, i); w != 0 {
			pairs = append(pairs, pair{dim, w})
		}
	}
	pairs = p.crop(pairs)
	if p.Weights == Float16 {
		pairs = toHalf(pairs)
	}

	n = len(pairs)
	wide := n > 0 && pairs[n-1].dim > math.MaxUint16
	head := uint32(n)<<4 | uint32(p.Weights)<<1
	if wide {
		head |= 1
	}
	dst = le.AppendUint32(dst, head)
	var lo, step float32
	if p.Weights >= Uint8 {
		lo, step = scaleOf(pairs, p.Weights)
		dst = le.AppendUint32(dst, math.Float32bits(lo))
		dst = le.AppendUint32(dst, math.Float32bits(step))
	}
	for _, x := range pairs {
		if wide {
			dst = le.AppendUint32(dst, x.dim)
		} else {
			dst = le.AppendUint16(dst, uint16(x.dim))
		}
	}
	switch p.Weights {
	case Float32:
		for _, x := range pairs {
			dst = le.AppendUint32(dst, math.Float32bits(x.w))
		}
	case Float16:
		for _, x := range pairs {
			dst = append(dst, 0, 0)
			kernel.EncodeF16(dst[len(dst)-2:], []float32{x.w})
		}
	case Uint8:
		for _, x := range pairs {
			dst = append(dst, code(x.w, lo, step, 255))
		}
	case Uint4:
		for i, x := range pairs {
			c := code(x.w, lo, step, 15)
			if i%2 == 0 {
				dst = append(dst, c)
			} else {
				dst[len(dst)-1] |= c << 4
			}
		}
	}
	return dst
}

// pair is one weight of a vector.
type pair struct {
	dim uint32
	w   float32
}

func abs(w float32) float32 { return math.Float32frombits(math.Float32bits(w) &^ (1 << 31)) }

// crop drops what Threshold and Mass say, the threshold first.
func (p Params) crop(pairs []pair) []pair {
	if len(pairs) <= p.MinTerms {
		return pairs
	}
	if p.Threshold > 0 {
		pairs = slices.DeleteFunc(pairs, func(x pair) bool { return abs(x.w) < p.Threshold })
	}
	if p.Mass <= 0 || len(pairs) <= p.MinTerms {
		return pairs
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		switch x, y := abs(a.w), abs(b.w); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return compareDims(a, b)
	})
	sum := 0.0
	for _, x := range pairs {
		sum += float64(abs(x.w))
	}
	want, have, keep := float64(sum*p.Mass), 0.0, 0
	for keep < len(pairs) && have < want {
		have += float64(abs(pairs[keep].w))
		keep++
	}
	pairs = pairs[:keep]
	slices.SortFunc(pairs, compareDims)
	return pairs
}

func compareDims(a, b pair) int {
	switch {
	case a.dim < b.dim:
		return -1
	case a.dim > b.dim:
		return 1
	}
	return 0
}

// maxHalf is the greatest finite half float.
const maxHalf = 65504

// toHalf makes the weights those of half floats and drops what becomes 0.
func toHalf(pairs []pair) []pair {
	keep := pairs[:0]
	for _, x := range pairs {
		in, out, half := [1]float32{max(-maxHalf, min(maxHalf, x.w))}, [1]float32{}, [2]byte{}
		kernel.EncodeF16(half[:], in[:])
		kernel.DecodeF16(out[:], half[:])
		if x.w = out[0]; x.w != 0 {
			keep = append(keep, x)
		}
	}
	return keep
}

// scaleOf gives lo and step of a vector's codes; see Weights.
func scaleOf(pairs []pair, k Weights) (lo, step float32) {
	if len(pairs) == 0 {
		return 0, 0
	}
	top := float32(255)
	if k == Uint4 {
		top = 15
	}
	lo, hi, whole := pairs[0].w, pairs[0].w, true
	for _, x := range pairs {
		lo, hi = min(lo, x.w), max(hi, x.w)
		whole = whole && x.w == float32(math.Trunc(float64(x.w)))
	}
	// The difference in float64, since that of two float32 may leave their range.
	d := float64(hi) - float64(lo)
	if whole && d <= float64(top) {
		return lo, 1
	}
	return lo, float32(d / float64(top))
}

// code is the number of steps from lo nearest to w, at most top.
func code(w, lo, step float32, top float64) byte {
	if step == 0 {
		return 0
	}
	return byte(min(top, math.Round((float64(w)-float64(lo))/float64(step))))
}

// view is a record ready to be read.
type view struct {
	n        int
	wide     bool
	kind     Weights
	lo, step float32
	dims     []byte
	weights  []byte
}

// parse reads the head of a record. ok is false when its parts do not fill it; dims and weights are not looked at.
func parse(b []byte) (v view, ok bool) {
	if len(b) < recordHead {
		return v, false
	}
	head := le.Uint32(b)
	v.n, v.kind, v.wide = int(head>>4), Weights(head>>1&7), head&1 != 0
	b = b[recordHead:]
	width, size := 2, 0
	if v.wide {
		width = 4
	}
	switch v.kind {
	case Float32:
		size = 4 * v.n
	case Float16:
		size = 2 * v.n
	case Uint8, Uint4:
		if len(b) < 8 {
			return view{}, false
		}
		v.lo, v.step = math.Float32frombits(le.Uint32(b)), math.Float32frombits(le.Uint32(b[4:]))
		b = b[8:]
		if size = v.n; v.kind == Uint4 {
			size = (v.n + 1) / 2
		}
	default:
		return view{}, false
	}
	if len(b) != width*v.n+size {
		return view{}, false
	}
	v.dims, v.weights = b[:width*v.n], b[width*v.n:]
	return v, true
}

// dim returns dimension i.
func (v *view) dim(i int) uint32 {
	if v.wide {
		return le.Uint32(v.dims[4*i:])
	}
	return uint32(le.Uint16(v.dims[2*i:]))
}

// weight returns weight i.
func (v *view) weight(i int) float32 {
	switch v.kind {
	case Float32:
		return math.Float32frombits(le.Uint32(v.weights[4*i:]))
	case Float16:
		var out [1]float32
		kernel.DecodeF16(out[:], v.weights[2*i:2*i+2])
		return out[0]
	case Uint8:
		return v.lo + float32(v.step*float32(v.weights[i]))
	case Uint4:
		return v.lo + float32(v.step*float32(v.weights[i/2]>>(4*(i%2))&15))
	}
	return 0
}

// fault says why a record is none that Encode makes, "" if it is one.
func fault(b []byte) string {
	v, ok := parse(b)
	if !ok {
		return "its parts do not fill it"
	}
	last := int64(-1)
	for i := range v.n {
		d := int64(v.dim(i))
		if d <= last {
			return "its dimensions do not ascend"
		}
		last = d
		if w := v.weight(i); w-w != 0 {
			return "it has a weight that is not finite"
		}
	}
	if v.wide && last <= math.MaxUint16 {
		return "its dimensions are wider than they need"
	}
	return ""
}
