package vector

import (
	"bytes"
	"math"
	"slices"

	"github.com/weft-search/weft/internal/vector/kernel"
	"github.com/weft-search/weft/internal/vector/topk"
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
// Where eight bits do not tell near vectors apart, as in clusters that are small beside their distances, codes are fine: Dim
// more signed bytes w follow, and component j is about centre[j] + scale·(u[j] + w[j]/254). u·uq is then the dot product of
// those sums. Such a section is searched more slowly, but not less well.
//
// The codes of bit vectors are the vectors, their distance is Hamming's.

// codeHead is the number of bytes before the components of a code.
const codeHead = 8

// codeSize is the number of bytes of a code.
func (p Params) codeSize(fine bool) int {
	switch {
	case p.Kind == Binary:
		return p.Dim / 8
	case fine:
		return align8(codeHead + 2*p.Dim)
	default:
		return align8(codeHead + p.Dim)
	}
}

// fineUnits is the number of units of w in one of u.
const fineUnits = 254

// codes is the codes of the nodes of a graph.
type codes struct {
	p    Params
	fine bool
	size int
	data []byte
	ints []int8 // data from the components of the first code on
	// Only while a graph of dot products is built: the squared length of what each code stands for, and the component added.
	norms, extra []float32
}

func newCodes(p Params, fine bool, data []byte) codes {
	c := codes{p: p, fine: fine, size: p.codeSize(fine), data: data}
	if p.Kind == Dense && len(data) > 0 {
		c.ints = kernel.Int8s(data[codeHead:])
	}
	return c
}

// parts is the signed bytes of a code: u, and w if codes are fine.
func (c *codes) parts(code []byte) []int8 {
	n := c.p.Dim
	if c.fine {
		n *= 2
	}
	return kernel.Int8s(code[codeHead:][:n])
}

// Len implements graph.Points.
func (c *codes) Len() int { return len(c.data) / c.size }

func (c *codes) at(node uint32) []byte { return c.data[int(node)*c.size : (int(node)+1)*c.size] }

func codeScale(code []byte) float32 { return math.Float32frombits(le.Uint32(code)) }
func codeBias(code []byte) float32  { return math.Float32frombits(le.Uint32(code[4:])) }

// batch is the number of dot products computed at once.
const batch = 64

// dots sets out to the dot products of the signed bytes of a code and those of nodes.
func (c *codes) dots(parts []int8, ids []uint32, out []float32) {
	var coarse [batch]int32
	for len(ids) > 0 {
		n := min(len(ids), batch)
		kernel.DotI8List(parts[:c.p.Dim], c.ints, c.size, ids[:n], coarse[:n])
		if c.fine {
			c.refine(parts, ids[:n], coarse[:n], out)
		} else {
			for i, d := range coarse[:n] {
				out[i] = float32(d)
			}
		}
		ids, out = ids[n:], out[n:]
	}
}

// refine adds the products with w to dot products of u.
func (c *codes) refine(parts []int8, ids []uint32, coarse []int32, out []float32) {
	u, w := parts[:c.p.Dim], parts[c.p.Dim:]
	var uw, wu, ww [batch]int32
	n := len(ids)
	kernel.DotI8List(u, c.ints[c.p.Dim:], c.size, ids, uw[:n])
	kernel.DotI8List(w, c.ints, c.size, ids, wu[:n])
	kernel.DotI8List(w, c.ints[c.p.Dim:], c.size, ids, ww[:n])
	for i, d := range coarse {
		out[i] = fineDot(d, uw[i], wu[i], ww[i])
	}
}

// fineDot is the dot product of sums u + w/fineUnits. Up to the division all is exact.
func fineDot(uu, uw, wu, ww int32) float32 {
	units := (int64(uu)*fineUnits+int64(uw)+int64(wu))*fineUnits + int64(ww)
	return float32(float64(units) / (fineUnits * fineUnits))
}

// Between implements graph.Points. Every product is rounded by itself, so that no machine fuses it with a sum.
func (c *codes) Between(a uint32, ids []uint32, out []float32) {
	code := c.at(a)
	if c.p.Kind == Binary {
		hamming(c, code, ids, out)
		return
	}
	c.dots(c.parts(code), ids, out)
	twice, norm := 2*codeScale(code), codeBias(code)
	for i, id := range ids {
		v := c.data[int(id)*c.size:]
		cross := float32(twice * float32(codeScale(v)*out[i]))
		if c.extra == nil {
			out[i] = norm + codeBias(v) - cross
		} else {
			x := c.extra[a] - c.extra[id]
			out[i] = c.norms[a] + c.norms[id] - cross + float32(x*x)
		}
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
	c.dots(t.u, ids, out)
	for i, id := range ids {
		v := c.data[int(id)*c.size:]
		out[i] = float32(t.a*codeBias(v)) - float32(t.b*float32(codeScale(v)*out[i]))
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
	n := len(v)
	if c.fine {
		n *= 2
	}
	if cap(t.u) < n {
		t.u = make([]int8, n)
	}
	t.u = t.u[:n]
	switch c.p.Metric {
	case Dot, Unit:
		along := kernel.Dot(q.vec, centre) / kernel.Dot(centre, centre)
		if along-along != 0 {
			along = 0 // no centre, or one beyond the range of float32
		}
		for i, x := range centre {
			v[i] = topk.Finite(v[i] - float32(along*x))
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
		v[i] = topk.Finite(v[i] - c)
	}
}

// quantise sets u to v/scale and, if u has twice the room, w to the rest in units of 1/254, both rounded to the nearest, ties
// to even. It returns the scale.
func quantise(parts []int8, v []float32) (scale float32) {
	var most float32
	for _, x := range v {
		most = max(most, max(x, -x))
	}
	scale = most / 127
	inverse := 1 / scale
	if scale == 0 || inverse-inverse != 0 {
		clear(parts)
		return 0
	}
	// Adding 1.5·2^23 leaves the rounded number in the low bits.
	const shift = 3 << 22
	w := parts[len(v):]
	for i, x := range v {
		y := float32(x * inverse)
		sum := y + shift
		parts[i] = int8(int32(math.Float32bits(sum)) - int32(math.Float32bits(shift)))
		if len(w) > 0 {
			rest := float32((y-(sum-shift))*fineUnits) + shift
			w[i] = int8(int32(math.Float32bits(rest)) - int32(math.Float32bits(shift)))
		}
	}
	return scale
}

// sample is the number of vectors whose middle is the centre.
const sample = 1023

// sampleFloats bounds what is looked at together: fewer vectors of very many dimensions.
const sampleFloats = 1 << 24

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
	return topk.Finite(kernel.Dot(v, v))
}

// centreOf is the median, component by component, of at most some two thousand vectors spread over the source. The mean would
// follow a few vectors far out and leave the many others nothing but their common distance from it.
func centreOf(p Params, src Source, v []float32) []float32 {
	n := src.Len()
	step := max(n/min(sample, max(sampleFloats/p.Dim, 1)), 1)
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
func appendCode(p Params, fine bool, dst, rec []byte, centre, v []float32) (out []byte, length, norm float32) {
	length = direction(p, rec, v)
	subtract(v, centre)
	from := len(dst)
	dst = slices.Grow(dst, p.codeSize(fine))[:from+p.codeSize(fine)]
	code := dst[from:]
	clear(code)
	parts := kernel.Int8s(code[codeHead:][:p.Dim])
	if fine {
		parts = kernel.Int8s(code[codeHead:][:2*p.Dim])
	}
	scale := quantise(parts, v)
	u, w := parts[:p.Dim], parts[p.Dim:]
	dot := float32(kernel.DotI8(u, u))
	if fine {
		uw := kernel.DotI8(u, w)
		dot = fineDot(kernel.DotI8(u, u), uw, uw, kernel.DotI8(w, w))
	}
	norm = float32(scale * float32(scale*dot))
	bias := norm
	if p.dots() {
		bias = topk.Finite(kernel.Dot(v, centre))
	}
	le.PutUint32(code, math.Float32bits(scale))
	le.PutUint32(code[4:], math.Float32bits(bias))
	return dst, length, norm
}

// What needsFine looks at: the nearest neighbours of a few vectors in a part of the section, and whether they are among a few
// more of the nearest by code.
const (
	probeVectors = 1 << 14
	probes       = 24
	probeNear    = 10
	probeWithin  = 15
	probeShare   = 0.95
)

// needsFine says whether codes of eight bits do not tell near vectors apart.
func needsFine(p Params, src Source, centre []float32) bool {
	n := src.Len()
	step := max(n/min(probeVectors, max(sampleFloats/p.Dim, probeWithin+1)), 1)
	rows := (n + step - 1) / step
	if rows <= probeWithin {
		return false
	}
	v := make([]float32, p.Dim)
	vecs := make([]float32, 0, probes*p.Dim)
	var data []byte
	add := func(i int) {
		data, _, _ = appendCode(p, false, data, src.Record(i*step), centre, v)
	}
	for i := range rows {
		add(i)
	}
	at := func(k int) int { return k * rows / probes }
	for k := range probes {
		direction(p, src.Record(at(k)*step), v)
		subtract(v, centre)
		vecs = append(vecs, v...)
	}
	c := newCodes(p, false, data)
	if p.dots() {
		// Distances of the vectors alone tell as much.
		c.norms, c.extra = make([]float32, rows), make([]float32, rows)
		for i := range rows {
			u := c.parts(c.at(uint32(i)))
			s := codeScale(c.at(uint32(i)))
			c.norms[i] = float32(s * float32(s*float32(kernel.DotI8(u, u))))
		}
	}
	ids := make([]uint32, rows)
	for i := range ids {
		ids[i] = uint32(i)
	}
	coarse := make([]float32, rows)
	exact := make([]float32, probes*rows)
	for i := range rows {
		direction(p, src.Record(i*step), v)
		subtract(v, centre)
		for k := range probes {
			exact[k*rows+i] = kernel.L2(vecs[k*p.Dim:(k+1)*p.Dim], v)
		}
	}
	found := 0
	for k := range probes {
		c.Between(uint32(at(k)), ids, coarse)
		near := exact[k*rows : (k+1)*rows]
		sorted := slices.Clone(near)
		slices.Sort(sorted)
		bound := sorted[probeNear-1]
		byCode := slices.Clone(coarse)
		slices.Sort(byCode)
		limit := byCode[probeWithin-1]
		// Vectors that are equally near are equally good, so all within both bounds count, and no more than asked for.
		count := 0
		for i, d := range near {
			if d <= bound && coarse[i] <= limit {
				count++
			}
		}
		// Codes that are all equal bring everything within the bound; they tell nothing if the vectors differ.
		within := 0
		for _, d := range coarse {
			if d <= limit {
				within++
			}
		}
		if within <= 2*probeWithin || bound == 0 {
			found += min(count, probeNear)
		}
	}
	return float64(found) < probeShare*probes*probeNear
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
