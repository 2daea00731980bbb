package vector

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/weft-search/weft/internal/vector/kernel"
)

var le = binary.LittleEndian

// floats is scratch memory for a vector.
type floats struct{ v []float32 }

var floatPool = sync.Pool{New: func() any { return new(floats) }}

func (f *floats) get(n int) []float32 {
	if cap(f.v) < n {
		f.v = make([]float32, n)
	}
	f.v = f.v[:n]
	return f.v
}

// Encode appends the record of a value to dst. The value is one of schema.Values.Bytes: p.Dim float32, little-endian and
// finite, or p.Dim/8 bytes; a shorter one makes Encode panic, so the caller has checked it against the schema.
//
// A record is the bits themselves, or the components as p.Element says. With the metric Cosine the norm of the decoded
// components stands before them as a float32: the square root of their dot product with themselves, correctly rounded.
func Encode(p Params, dst, value []byte) []byte {
	if p.Kind == Binary {
		return append(dst, value[:p.Dim/8]...)
	}
	value = value[:4*p.Dim]
	if p.Element == F32 && p.Metric != Cosine {
		return append(dst, value...)
	}
	f := floatPool.Get().(*floats)
	defer floatPool.Put(f)
	v := f.get(p.Dim)
	for i := range v {
		v[i] = math.Float32frombits(le.Uint32(value[4*i:]))
	}
	start := len(dst)
	if p.Metric == Cosine {
		dst = le.AppendUint32(dst, 0)
	}
	switch p.Element {
	case F16:
		const most = 65504
		for i, x := range v {
			v[i] = min(max(x, -most), most)
		}
		from := len(dst)
		dst = append(dst, value[:2*p.Dim]...)
		kernel.EncodeF16(dst[from:], v)
	case Int8:
		dst = appendInt8(dst, v)
	default:
		dst = append(dst, value...)
	}
	if p.Metric == Cosine {
		decode(p, dst[start:], v)
		le.PutUint32(dst[start:], math.Float32bits(norm(v)))
	}
	return dst
}

// appendInt8 appends lo, step and a byte for each component. Integers that lie within 255 of each other are kept exactly.
func appendInt8(dst []byte, v []float32) []byte {
	lo, hi, whole := v[0], v[0], true
	for _, x := range v {
		lo, hi = min(lo, x), max(hi, x)
		whole = whole && float64(x) == math.Trunc(float64(x))
	}
	span := float64(hi) - float64(lo)
	step := float32(1)
	if !whole || span > 255 {
		// What lo + step·u cannot express is cut off: components farther from the smallest than the range of float32.
		step = float32(min(span, math.MaxFloat32) / 255)
		for math.IsInf(float64(lo+float32(step*255)), 0) {
			step = math.Nextafter32(step, 0)
		}
	}
	dst = le.AppendUint32(dst, math.Float32bits(lo))
	dst = le.AppendUint32(dst, math.Float32bits(step))
	for _, x := range v {
		u := 0.0
		if step > 0 {
			u = min(math.RoundToEven((float64(x)-float64(lo))/float64(step)), 255)
		}
		dst = append(dst, byte(u))
	}
	return dst
}

// norm is the length of a vector.
func norm(v []float32) float32 { return sqrt32(kernel.Dot(v, v)) }

// sqrt32 is the correctly rounded root: a float64 has more than twice the digits of a float32, so rounding twice is as once.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// int8Head reads lo and step of a record of Int8 elements whose norm is cut off.
func int8Head(rec []byte) (lo, step float32) {
	return math.Float32frombits(le.Uint32(rec)), math.Float32frombits(le.Uint32(rec[4:]))
}

// decode sets v to the components of a dense record.
func decode(p Params, rec []byte, v []float32) {
	rec = rec[p.head():]
	switch p.Element {
	case F16:
		kernel.DecodeF16(v, rec)
	case Int8:
		lo, step := int8Head(rec)
		for i, u := range rec[8 : 8+len(v)] {
			v[i] = lo + float32(step*float32(u))
		}
	default:
		rec = rec[:4*len(v)]
		for i := range v {
			v[i] = math.Float32frombits(le.Uint32(rec[4*i:]))
		}
	}
}

// recordNorm is the norm that a record of the metric Cosine begins with.
func recordNorm(rec []byte) float32 { return math.Float32frombits(le.Uint32(rec)) }
