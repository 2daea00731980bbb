package vector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/weft-search/weft/internal/vector/graph"
)

// Numbers of the section's header; see FORMAT.md.
const (
	sectionMagic   = "wvec"
	sectionVersion = 1
	headerSize     = 64

	flagWanted = 1  // Params.Graph
	flagGraph  = 2  // there is a graph
	flagEnds   = 4  // some document does not have exactly one vector
	flagGroups = 8  // some nodes of the graph stand for several vectors
	flagFine   = 16 // codes have two bytes for each component
)

// ErrTooLarge means that there are more vectors than a section can hold.
var ErrTooLarge = errors.New("exceeds the vector section format")

// header is the fixed part of a section.
type header struct {
	flags                  uint16
	p                      Params
	numDocs, vectors, docs uint32
	nodes, most            uint32
	edges, length          uint64

	// Places of the parts; upper has those of the levels from 1 up.
	ends, owners, records                               int
	centre, starts, members, nodeOf, codes, base, slots int
	upper                                               []int
	sizes                                               []int // of the levels from 1 up
	end                                                 int
}

func align8(n int) int { return (n + 7) &^ 7 }

func viewU32(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func viewF32(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func bytesOfF32(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*4)
}

func bytesOfU32(v []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*4)
}

// layout computes the places of the parts.
func (h *header) layout() {
	at := headerSize
	if h.flags&flagEnds != 0 {
		h.ends = at
		at = align8(at + 4*int(h.numDocs))
		h.owners = at
		at = align8(at + 4*int(h.vectors))
	}
	part := func(size int) int {
		from := at
		at = align8(at + size)
		return from
	}
	h.records = part(int(h.vectors) * h.p.RecordSize())
	if h.flags&flagGraph != 0 {
		n, m := int(h.nodes), h.p.M
		if h.p.Kind == Dense {
			h.centre = part(4 * h.p.Dim)
		}
		if h.flags&flagGroups != 0 {
			h.starts = part(4 * (n + 1))
			h.members = part(4 * int(h.vectors))
			h.nodeOf = part(4 * int(h.vectors))
		}
		if h.codesApart() {
			h.codes = part(n * h.p.codeSize(h.flags&flagFine != 0))
		} else {
			h.codes = h.records
		}
		h.base = part(4 * n * 2 * m)
		h.sizes, h.upper = graph.Levels(n, m), nil
		if len(h.sizes) > 0 {
			h.slots = part(4 * h.sizes[0])
		}
		for _, size := range h.sizes {
			h.upper = append(h.upper, part(4*size*m))
		}
	}
	h.end = at
}

// codesApart says that codes are stored. Bit vectors that are all different are their own.
func (h *header) codesApart() bool { return h.p.Kind == Dense || h.flags&flagGroups != 0 }

func (h *header) append(b []byte) []byte {
	b = append(b, sectionMagic...)
	b = le.AppendUint16(b, sectionVersion)
	b = le.AppendUint16(b, h.flags)
	b = append(b, byte(h.p.Kind), byte(h.p.Element), byte(h.p.Metric), 0)
	for _, v := range []uint32{uint32(h.p.Dim), uint32(h.p.M), uint32(h.p.EfConstruction), h.numDocs, h.vectors, h.docs, h.nodes, h.most} {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, h.edges)
	return le.AppendUint64(b, h.length)
}

// writer counts and pads what goes out.
type writer struct {
	w   io.Writer
	n   int
	buf []byte
	err error
}

func (w *writer) write(b []byte) {
	w.n += len(b)
	if w.err != nil {
		return
	}
	if len(w.buf)+len(b) > cap(w.buf) {
		w.flush()
	}
	if len(b) >= cap(w.buf) {
		if w.err == nil {
			_, w.err = w.w.Write(b)
		}
		return
	}
	w.buf = append(w.buf, b...)
}

func (w *writer) pad() {
	var zeros [8]byte
	w.write(zeros[:align8(w.n)-w.n])
}

func (w *writer) flush() {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.w.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// Write writes the section of one field: the vectors of src, which belong to documents below numDocs. The same parameters
// and records give the same bytes, so a merge that copies records equals writing them afresh. Errors are those of w and ctx,
// ErrTooLarge, and parameters that cannot be.
func Write(ctx context.Context, w io.Writer, p Params, numDocs uint32, src Source) error {
	if err := p.check(); err != nil {
		return err
	}
	p = p.withDefaults()
	n := src.Len()
	if n > MaxVectors {
		return fmt.Errorf("%d vectors of one field, at most %d: %w", n, MaxVectors, ErrTooLarge)
	}
	h := header{p: p, numDocs: numDocs, vectors: uint32(n), most: 1}
	if p.Graph {
		h.flags |= flagWanted
	}
	owners := make([]uint32, n)
	run := uint32(0)
	for i := range owners {
		d := src.Doc(i)
		if d >= numDocs || i > 0 && d < owners[i-1] {
			return fmt.Errorf("vector %d belongs to document %d of %d: documents are out of order", i, d, numDocs)
		}
		owners[i] = d
		if i == 0 || d != owners[i-1] {
			h.docs, run = h.docs+1, 0
		}
		run++
		h.most = max(h.most, run)
	}
	if h.docs != numDocs || h.docs != h.vectors {
		h.flags |= flagEnds
	}
	var g *graphPart
	if p.Graph && n >= p.GraphFrom && n > 0 {
		var err error
		if g, err = buildGraph(ctx, p, src); err != nil {
			return err
		}
		h.flags |= flagGraph
		h.nodes, h.edges = uint32(g.g.N), g.g.Edges()
		if g.starts != nil {
			h.flags |= flagGroups
		}
		if g.fine {
			h.flags |= flagFine
		}
	}
	h.layout()
	h.length = uint64(h.end)
	out := &writer{w: w, buf: make([]byte, 0, 64<<10)}
	out.write(h.append(nil))
	if h.flags&flagEnds != 0 {
		ends := make([]uint32, numDocs)
		for _, d := range owners {
			ends[d]++
		}
		for d := 1; d < len(ends); d++ {
			ends[d] += ends[d-1]
		}
		out.write(bytesOfU32(ends))
		out.pad()
		out.write(bytesOfU32(owners))
		out.pad()
	}
	for i := range n {
		if i%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out.write(src.Record(i))
	}
	out.pad()
	if g != nil {
		g.write(out, &h)
	}
	out.flush()
	if out.err != nil {
		return fmt.Errorf("write vectors: %w", out.err)
	}
	return nil
}

// write writes the parts of a graph.
func (part *graphPart) write(out *writer, h *header) {
	put := func(b []byte) {
		out.write(b)
		out.pad()
	}
	if h.p.Kind == Dense {
		put(bytesOfF32(part.centre))
	}
	if h.flags&flagGroups != 0 {
		put(bytesOfU32(part.starts))
		put(bytesOfU32(part.members))
		put(bytesOfU32(part.nodeOf))
	}
	if h.codesApart() {
		put(part.c.data)
	}
	put(bytesOfU32(part.g.Base))
	if len(h.sizes) > 0 {
		put(bytesOfU32(part.g.Nodes))
	}
	for _, links := range part.g.Upper {
		put(bytesOfU32(links))
	}
}

// read sets the graph of x to the parts in b.
func (h *header) read(b []byte, x *Index) {
	u32 := func(at, n int) []uint32 { return viewU32(b[at : at+4*n : at+4*n]) }
	n, m := int(h.nodes), h.p.M
	part := &graphPart{fine: h.flags&flagFine != 0, edges: h.edges, degree: float64(h.edges) / float64(n)}
	if h.p.Kind == Dense {
		part.centre = viewF32(b[h.centre : h.centre+4*h.p.Dim])
	}
	if h.flags&flagGroups != 0 {
		part.starts = u32(h.starts, n+1)
		part.members = u32(h.members, int(h.vectors))
		part.nodeOf = u32(h.nodeOf, int(h.vectors))
	}
	part.c = newCodes(h.p, part.fine, b[h.codes:h.codes+n*h.p.codeSize(part.fine)])
	part.g = &graph.Graph{N: n, M: m, Base: u32(h.base, n*2*m)}
	for i, at := range h.upper {
		if i == 0 {
			part.g.Nodes = u32(h.slots, h.sizes[0])
		}
		part.g.Upper = append(part.g.Upper, u32(at, h.sizes[i]*m))
	}
	x.g = part
}

// Open reads a section of a segment with numDocs documents. The bytes are mapped memory, 8-byte aligned, that lives as long
// as the index. Only counts and sizes are checked; Verify reads everything. Damage gives a *CorruptError; damage that shows
// later makes wrong answers, never a panic.
func Open(b []byte, numDocs uint32) (*Index, error) {
	if len(b) < headerSize || string(b[:4]) != sectionMagic {
		return nil, corrupt("header", "not a vector section")
	}
	if v := le.Uint16(b[4:]); v != sectionVersion {
		return nil, corrupt("header", "unknown version %d", v)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
		b = slices.Clone(b)
	}
	h := header{
		flags: le.Uint16(b[6:]),
		p: Params{
			Kind: Kind(b[8]), Element: Element(b[9]), Metric: Metric(b[10]),
			Dim: int(le.Uint32(b[12:])), M: int(le.Uint32(b[16:])), EfConstruction: int(le.Uint32(b[20:])),
		},
		numDocs: le.Uint32(b[24:]), vectors: le.Uint32(b[28:]), docs: le.Uint32(b[32:]), nodes: le.Uint32(b[36:]), most: le.Uint32(b[40:]),
		edges: le.Uint64(b[48:]), length: le.Uint64(b[56:]),
	}
	h.p.Graph = h.flags&flagWanted != 0
	if err := h.p.check(); err != nil {
		return nil, corrupt("header", "%v", err)
	}
	switch {
	case h.flags > 31 || b[11] != 0 || le.Uint32(b[44:]) != 0 || h.p.M == 0 || h.p.EfConstruction == 0:
		return nil, corrupt("header", "unknown flags or empty fields that are set")
	case h.numDocs != numDocs:
		return nil, corrupt("header", "of %d documents in a segment of %d", h.numDocs, numDocs)
	case h.vectors > MaxVectors || h.docs > h.vectors || h.docs > numDocs || h.most < 1 || h.most > max(h.vectors, 1):
		return nil, corrupt("header", "%d vectors of %d documents, %d of one", h.vectors, h.docs, h.most)
	case (h.flags&flagEnds == 0) != (h.docs == numDocs && h.docs == h.vectors), h.flags&flagEnds == 0 && h.most != 1:
		return nil, corrupt("header", "ends are there or not against the counts")
	case h.flags&flagGraph == 0 && (h.nodes != 0 || h.edges != 0 || h.flags&(flagGroups|flagFine) != 0):
		return nil, corrupt("header", "%d nodes and %d links without a graph", h.nodes, h.edges)
	case h.flags&flagGraph != 0 && (h.flags&flagWanted == 0 || h.nodes == 0 || h.nodes > h.vectors ||
		h.flags&flagFine != 0 && h.p.Kind == Binary || (h.nodes == h.vectors) != (h.flags&flagGroups == 0) || h.edges > uint64(h.nodes)*2*uint64(h.p.M)):
		return nil, corrupt("header", "%d nodes and %d links of %d vectors", h.nodes, h.edges, h.vectors)
	case h.length != uint64(len(b)):
		return nil, corrupt("header", "length %d of a section of %d bytes", h.length, len(b))
	}
	h.layout()
	if h.end != len(b) {
		return nil, corrupt("header", "parts of %d bytes in a section of %d", h.end, len(b))
	}
	x := &Index{
		p: h.p, numDocs: numDocs, n: int(h.vectors), size: h.p.RecordSize(), most: int(h.most), bytes: len(b),
		records: b[h.records : h.records+int(h.vectors)*h.p.RecordSize()],
	}
	x.having.Store(int64(h.docs))
	if h.flags&flagEnds != 0 {
		x.ends = viewU32(b[h.ends:])[:numDocs:numDocs]
		x.docs = viewU32(b[h.owners:])[:h.vectors:h.vectors]
	}
	if h.flags&flagGraph != 0 {
		h.read(b, x)
	}
	return x, nil
}
