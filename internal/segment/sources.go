package segment

import (
	"encoding/binary"
	"fmt"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Sources stand in blocks of about 4 KiB, compressed one by one. A block begins with the lengths of its sources.

const (
	srcEntry   = 24
	srcTrailer = 24
)

var encoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd refuses constant options: %v", err))
	}
	return e
}}

var decoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(maxSourceRaw))
	if err != nil {
		panic(fmt.Sprintf("zstd refuses constant options: %v", err))
	}
	return d
}}

// maxSourceRaw is the greatest size of a decompressed block: one source with its length and what stood before it.
const maxSourceRaw = MaxSourceLen + 2*mostSourceBlock

// sourceBuilder collects sources block by block.
type sourceBuilder struct {
	lens  []byte
	body  []byte
	raw   []byte
	out   []byte
	taken uint64
	index []byte
	first uint32 // document that starts the block
	docs  uint32
}

func (s *sourceBuilder) add(b []byte) {
	s.lens = binary.AppendUvarint(s.lens, uint64(len(b)))
	s.body = append(s.body, b...)
	s.docs++
	if len(s.body)+len(s.lens) >= sourceBlock {
		s.endBlock()
	}
}

func (s *sourceBuilder) endBlock() {
	if s.first == s.docs {
		return
	}
	s.raw = append(append(s.raw[:0], s.lens...), s.body...)
	off := s.taken + uint64(len(s.out))
	from := len(s.out)
	e := encoders.Get().(*zstd.Encoder)
	s.out = e.EncodeAll(s.raw, s.out)
	encoders.Put(e)
	// Stored as they are: blocks that do not shrink, and those that would shrink beyond what a reader accepts.
	if n := len(s.out) - from; n >= len(s.raw) || len(s.raw) > sourceRatioBase+maxSourceRatio*n {
		s.out = append(s.out[:from], s.raw...)
	}
	s.index = le.AppendUint64(s.index, off)
	s.index = le.AppendUint64(s.index, uint64(len(s.raw)))
	s.index = le.AppendUint32(s.index, s.first)
	s.index = le.AppendUint32(s.index, s.docs-s.first)
	s.lens, s.body, s.first = s.lens[:0], s.body[:0], s.docs
}

func (s *sourceBuilder) drain() []byte {
	b := s.out
	s.taken += uint64(len(b))
	s.out = s.out[:0]
	return b
}

func (s *sourceBuilder) finish() []byte {
	s.endBlock()
	end := s.taken + uint64(len(s.out))
	b := s.out
	for n := end; n%8 != 0; n++ {
		b = append(b, 0)
	}
	b = append(b, s.index...)
	b = le.AppendUint64(b, uint64(s.docs))
	b = le.AppendUint64(b, uint64(len(s.index)/srcEntry))
	return le.AppendUint64(b, end)
}

// sourceReader reads what sourceBuilder built.
type sourceReader struct {
	sec    *section
	data   []byte
	index  []byte
	blocks int
}

func openSources(s *section, docs uint32) (*sourceReader, error) {
	b := s.data
	if len(b) < srcTrailer || len(b)%8 != 0 {
		return nil, s.corrupt("sources are shorter than their frame")
	}
	tr := b[len(b)-srcTrailer:]
	n, blocks, end := le.Uint64(tr), le.Uint64(tr[8:]), le.Uint64(tr[16:])
	room := uint64(len(b) - srcTrailer)
	if n != uint64(docs) || blocks > room/srcEntry || end > room || (end+7)&^7+blocks*srcEntry != room || (blocks == 0) != (docs == 0) {
		return nil, s.corrupt("sources' blocks and index do not fill them")
	}
	r := &sourceReader{sec: s, data: b[:end], index: b[room-blocks*srcEntry : room], blocks: int(blocks)}
	return r, nil
}

// entry returns the place of a block, its decompressed size and its documents.
func (r *sourceReader) entry(b int) (off, end, raw uint64, first, n uint32) {
	e := r.index[b*srcEntry:]
	off, raw, first, n = le.Uint64(e), le.Uint64(e[8:]), le.Uint32(e[16:]), le.Uint32(e[20:])
	end = uint64(len(r.data))
	if b+1 < r.blocks {
		end = le.Uint64(e[srcEntry:])
	}
	return off, end, raw, first, n
}

// sourceBlockData is one decompressed block.
type sourceBlockData struct {
	b    int // which; negative: none
	raw  []byte
	body int // where the sources begin
	n    uint32
	lens []uint32
}

var sourceScratch = sync.Pool{New: func() any { return &sourceBlockData{b: -1} }}

// load decompresses a block into d.
func (r *sourceReader) load(b int, d *sourceBlockData) error {
	d.b = -1
	off, end, raw, _, n := r.entry(b)
	if off > end || end > uint64(len(r.data)) {
		return r.sec.damaged("place of block %d", b)
	}
	src := r.data[off:end]
	// The declared size is checked before anything is allocated.
	if raw > maxSourceRaw || raw > sourceRatioBase+maxSourceRatio*uint64(len(src)) || uint64(n) > raw {
		return r.sec.damaged("size of block %d", b)
	}
	if uint64(len(src)) == raw {
		d.raw = append(d.raw[:0], src...)
	} else {
		if uint64(cap(d.raw)) < raw {
			d.raw = make([]byte, 0, raw)
		}
		dec := decoders.Get().(*zstd.Decoder)
		out, err := dec.DecodeAll(src, d.raw[:0:raw])
		decoders.Put(dec)
		if err != nil {
			return r.sec.damaged("block %d: %v", b, err)
		}
		d.raw = out
		if uint64(len(out)) != raw {
			return r.sec.damaged("size of block %d", b)
		}
	}
	d.lens = d.lens[:0]
	at, sum := 0, uint64(0)
	for range n {
		var l uint64
		l, at = uvarint(d.raw, at)
		if at < 0 || l > MaxSourceLen {
			return r.sec.damaged("lengths of block %d", b)
		}
		d.lens = append(d.lens, uint32(l))
		sum += l
	}
	if sum != raw-uint64(at) {
		return r.sec.damaged("lengths of block %d", b)
	}
	d.b, d.body, d.n = b, at, n
	return nil
}

// find returns the block that holds a document.
func (r *sourceReader) find(doc uint32) int {
	return sort.Search(r.blocks, func(i int) bool { return le.Uint32(r.index[i*srcEntry+16:]) > doc }) - 1
}

// each calls fn with the sources of all documents, taking the blocks apart in d.
func (r *sourceReader) each(docs uint32, d *sourceBlockData, fn func(doc uint32, source []byte) error) error {
	doc := uint32(0)
	for b := range r.blocks {
		if first := le.Uint32(r.index[b*srcEntry+16:]); first != doc {
			return r.sec.damaged("block %d lacks document %d", b, doc)
		}
		if err := r.load(b, d); err != nil {
			return err
		}
		if uint32(len(d.lens)) > docs-doc {
			return r.sec.damaged("block %d holds documents beyond the last", b)
		}
		at := d.body
		for _, l := range d.lens {
			if err := fn(doc, d.raw[at:at+int(l):at+int(l)]); err != nil {
				return err
			}
			at += int(l)
			doc++
		}
	}
	if doc != docs {
		return r.sec.damaged("no block holds document %d", doc)
	}
	return nil
}

// get appends the source of a document, decompressing its block into d unless it is there.
func (r *sourceReader) get(doc uint32, dst []byte, d *sourceBlockData) ([]byte, error) {
	b := r.find(doc)
	if b < 0 {
		return dst, r.sec.damaged("no block holds document %d", doc)
	}
	if d.b != b {
		if err := r.load(b, d); err != nil {
			return dst, err
		}
	}
	i := doc - le.Uint32(r.index[b*srcEntry+16:])
	if i >= d.n {
		return dst, r.sec.damaged("block %d lacks document %d", b, doc)
	}
	at := d.body
	for _, l := range d.lens[:i] {
		at += int(l)
	}
	return append(dst, d.raw[at:at+int(d.lens[i])]...), nil
}
