package vector

import (
	"bytes"
	"math"
	"slices"

	"github.com/weft-search/weft/internal/vector/kernel"
	"github.com/zeebo/xxh3"
)

// The graph works on codes. The code of a dense vector is
//
//	scale float32, bias float32, Dim signed bytes u
//
// padded to a multiple of 8, so that component j is about centre[j] + scale·u[j], where centre is the middle of the section's
// vectors (Cosine: of the vectors divided by their norms), component by component. scale is the largest |component −
// centre|/127, for each vector by itself: an outlier spoils its own code and no other. Nearness is
//
//	a·bias − b·scale·(u·uq)
//
// with an exact integer dot product:
//
//   - Metrics L2 and Cosine: bias is the squared length of scale·u, uq and scaleq are the code of the query minus the centre
//     (Cosine: of the query divided by its norm), and bias − 2·scale·scaleq·(u·uq) orders by distance.
//   - Metrics Dot and Unit: bias is the dot product of the vector minus the centre with the centre, uq and scaleq are the code
//     of q − α·centre, α = q·centre/centre·centre, and −α·bias − scale·scaleq·(u·uq) orders by q·v but for a constant. A
//     component that all vectors share would else leave few of the query's bits for the others.
//
// While the graph is built, distances are L2. Where dot products are wanted they are those of the vectors with one more
// component, √(longest² − ‖v‖²), which makes the nearest in L2 those of the largest dot product with a query that has 0
// there: Bachrach et al., "Speeding Up the Xbox Recommender System Using a Euclidean Transformation for Inner-Product
// Spaces" (RecSys 2014), section 3.2.
//
// The codes of bit vectors are the vectors, their distance is Hamming's.

// codeHead is the number of bytes before the components of a code.
const codeHead = 8

// codeSize is the number of bytes of a code.
func (p Params) codeSize() int {
	if p.Kind == Binary {
		return p.Dim / 8
	}
	return align8(codeHead + p.Dim)
}

// codes is the codes of the nodes of a graph.
type codes struct {
	p    Params
	size int
	data []byte
	ints []int8 // data from the components of the first code on
	// Only while a graph of dot products is built: the squared length of each node's scale·u, and the component added to it.
	norms, extra []float32
}

func newCodes(p Params, data []byte) codes {
	c := codes{p: p, size: p.codeSize(), data: data}
	if p.Kind == Dense && len(data) > 0 {
		c.ints = kernel.Int8s(data[codeHead:])
	}
	return c
}

// Len implements graph.Points.
func (c *codes) Len() int { return len(c.data) / c.size }

func (c *codes) at(node uint32) []byte { return c.data[int(node)*c.size : (int(node)+1)*c.size] }

func codeScale(code []byte) float32 { return math.Float32frombits(le.Uint32(code)) }
func codeBias(code []byte) float32  { return math.Float32frombits(le.Uint32(code[4:])) }

// batch is the number of dot products computed at once.
const batch = 64

// Between implements graph.Points. Every product is rounded by itself, so that no machine fuses it with a sum.
func (c *codes) Between(a uint32, ids []uint32, out []float32) {
	code := c.at(a)
	if c.p.Kind == Binary {
		hamming(c, code, ids, out)
		return
	}
	twice, norm, u := 2*codeScale(code), codeBias(code), kernel.Int8s(code[codeHead:][:c.p.Dim])
	var dots [batch]int32
	for len(ids) > 0 {
		n := min(len(ids), batch)
		kernel.DotI8List(u, c.ints, c.size, ids[:n], dots[:n])
		for i, id := range ids[:n] {
			v := c.data[int(id)*c.size:]
			cross := float32(twice * float32(codeScale(v)*float32(dots[i])))
			if c.extra == nil {
				out[i] = norm + codeBias(v) - cross
			} else {
				x := c.extra[a] - c.extra[id]
				out[i] = c.norms[a] + c.norms[id] - cross + float32(x*x)
			}
		}
		ids, out = ids[n:], out[n:]
	}
}

func hamming(c *codes, code []byte, ids []uint32, out []float32) {
	for i, id := range ids {
		out[i] = float32(kernel.Hamming(code, c.at(id)))
	}
}

// codeTarget is a query as a graph search compares it with codes.
type codeTarget struct {
	c    *codes
	bits []byte
	u    []int8
	a, b float32 // factors of bias and of scale·(u·uq)
}

// Distances implements graph.Target.
func (t *codeTarget) Distances(ids []uint32, out []float32) {
	c := t.c
	if t.bits != nil {
		hamming(c, t.bits, ids, out)
		return
	}
	var dots [batch]int32
	for len(ids) > 0 {
		n := min(len(ids), batch)
		kernel.DotI8List(t.u, c.ints, c.size, ids[:n], dots[:n])
		for i, id := range ids[:n] {
			v := c.data[int(id)*c.size:]
			out[i] = float32(t.a*codeBias(v)) - float32(t.b*float32(codeScale(v)*float32(dots[i])))
		}
		ids, out = ids[n:], out[n:]
	}
}

// aim makes t the target for q. f is memory for a vector, t.u is used again.
func (t *codeTarget) aim(c *codes, centre []float32, q *Query, f *floats) {
	t.c, t.bits = c, q.bits
	if q.bits != nil {
		return
	}
	v := f.get(c.p.Dim)
	copy(v, q.vec)
	if cap(t.u) < len(v) {
		t.u = make([]int8, len(v))
	}
	t.u = t.u[:len(v)]
	switch c.p.Metric {
	case Dot, Unit:
		along := kernel.Dot(q.vec, centre) / kernel.Dot(centre, centre)
		if along-along != 0 {
			along = 0 // no centre, or one beyond the range of float32
		}
		for i, x := range centre {
			v[i] = finite(v[i] - float32(along*x))
		}
		t.a, t.b = -along, quantise(t.u, v)
	case Cosine:
		for i, x := range v {
			v[i] = x / q.norm
		}
		fallthrough
	default:
		subtract(v, centre)
		t.a, t.b = 1, 2*quantise(t.u, v)
	}
}

func subtract(v, centre []float32) {
	for i, c := range centre {
		v[i] = finite(v[i] - c)
	}
}

// quantise sets u to v/scale, rounded to the nearest, ties to even, and returns the scale.
func quantise(u []int8, v []float32) (scale float32) {
	var most float32
	for _, x := range v {
		most = max(most, max(x, -x))
	}
	scale = most / 127
	if scale == 0 {
		clear(u)
		return 0
	}
	// Adding 1.5·2^23 leaves the rounded number in the low bits.
	const shift = 3 << 22
	inverse := 1 / scale
	if inverse-inverse != 0 {
		clear(u)
		return 0
	}
	for i, x := range v {
		u[i] = int8(int32(math.Float32bits(float32(x*inverse)+shift)) - int32(math.Float32bits(shift)))
	}
	return scale
}

// sample is the number of vectors whose middle is the centre.
const sample = 1023

// direction sets v to the components of a record as the graph sees them and returns their squared length.
func direction(p Params, rec []byte, v []float32) float32 {
	decode(p, rec, v)
	if p.Metric == Cosine {
		n := recordNorm(rec)
		if n == 0 || n-n != 0 {
			clear(v)
			return 0
		}
		for i, x := range v {
			v[i] = x / n
		}
	}
	return finite(kernel.Dot(v, v))
}

// centreOf is the median, component by component, of at most some two thousand vectors spread over the source. The mean would
// follow a few vectors far out and leave the many others nothing but their common distance from it.
func centreOf(p Params, src Source, v []float32) []float32 {
	n := src.Len()
	step := max(n/sample, 1)
	rows := make([]float32, 0, (n+step-1)/step*p.Dim)
	for i := 0; i < n; i += step {
		direction(p, src.Record(i), v)
		rows = append(rows, v...)
	}
	column := make([]float32, len(rows)/p.Dim)
	centre := make([]float32, p.Dim)
	for j := range centre {
		for i := range column {
			column[i] = rows[i*p.Dim+j]
		}
		slices.Sort(column)
		centre[j] = column[len(column)/2]
	}
	return centre
}

// appendCode appends the code of a record to dst. It returns the squared lengths of the vector and of what its code stands for.
func appendCode(p Params, dst, rec []byte, centre, v []float32) (out []byte, length, norm float32) {
	length = direction(p, rec, v)
	subtract(v, centre)
	from := len(dst)
	dst = slices.Grow(dst, p.codeSize())[:from+p.codeSize()]
	code := dst[from:]
	clear(code[codeHead+p.Dim:])
	u := kernel.Int8s(code[codeHead:][:p.Dim])
	scale := quantise(u, v)
	norm = float32(float32(scale*scale) * float32(kernel.DotI8(u, u)))
	bias := norm
	if p.dots() {
		bias = finite(kernel.Dot(v, centre))
	}
	le.PutUint32(code, math.Float32bits(scale))
	le.PutUint32(code[4:], math.Float32bits(bias))
	return dst, length, norm
}

// dots says that the order of the metric is one of dot products and not one of distances.
func (p Params) dots() bool { return p.Metric == Dot || p.Metric == Unit }

// groups finds vectors of equal codes, each of size bytes. It returns nil if there are none, else for each vector the first
// one with the same code.
func groups(data []byte, size int) []uint32 {
	n := len(data) / size
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = xxh3.Hash(data[i*size:(i+1)*size])&^MaxVectors | uint64(i)
	}
	slices.Sort(keys)
	var first []uint32
	// Codes of one hash are rarely different. If many are, somebody made them so, and those beyond a few stay single.
	const most = 8
	var distinct [most]int
	for from := 0; from < n; {
		to := from + 1
		for to < n && keys[to]&^MaxVectors == keys[from]&^MaxVectors {
			to++
		}
		found := 0
		for _, key := range keys[from:to] {
			i := int(key & MaxVectors)
			at := slices.IndexFunc(distinct[:found], func(d int) bool {
				return bytes.Equal(data[d*size:(d+1)*size], data[i*size:(i+1)*size])
			})
			switch {
			case at >= 0:
				if first == nil {
					first = make([]uint32, n)
					for j := range first {
						first[j] = uint32(j)
					}
				}
				first[i] = uint32(distinct[at])
			case found < most:
				distinct[found] = i
				found++
			}
		}
		from = to
	}
	return first
}
