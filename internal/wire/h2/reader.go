package h2

import (
	"encoding/binary"
	"io"
	"net"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"
)

// Sink is told of the frames of a connection, in their order. An error ends the reading, and Parse returns it.
type Sink interface {
	// DataBegins is a frame of DATA that takes n bytes of the windows. pad of them are padding, which nobody reads.
	DataBegins(id uint32, n, pad int) error
	// Data is of the next n bytes of it; what Reader.Take gives of them is the sink's.
	Data(id uint32, n int) error
	// DataEnds is its end, where the stream ends with it.
	DataEnds(id uint32) error
	// HeadersBegin is a block of headers of which nothing is decoded yet.
	HeadersBegin(id uint32, endStream bool) error
	// Field is one field of it.
	Field(f hpack.HeaderField)
	// Headers is its end.
	Headers(id uint32, endStream bool) error
	// Frame is any other frame. p is good until it returns.
	Frame(kind, flags byte, id uint32, p []byte) error
}

// leastPiece is the least of a frame that is handed out without the rest: package mem has no pool for less.
const leastPiece = 1<<10 + 1

// maxEmpty is how many frames without effect may follow one another.
const maxEmpty = 1000

// ReaderOptions say what is read. All of it has to be set.
type ReaderOptions struct {
	// Preface says that the peer is a client, which begins with that.
	Preface bool
	// MaxBlock is the most bytes of a header block on the wire, MaxString of a name or value in it.
	MaxBlock, MaxString int
	// Pinned is the part of a chunk that a piece of a message has to be to keep the chunk; a smaller piece is copied.
	Pinned int
}

// Reader takes the frames of a connection apart.
type Reader struct {
	sink Sink
	o    ReaderOptions
	nc   net.Conn
	sock *Socket // nil: only nc
	dec  *hpack.Decoder

	fill     func() []byte // space, and idle: as values they would be made for each read
	unfill   func()
	chunk    mem.Buffer // what is read into; nil between reads with nothing left over
	data     []byte     // of chunk
	shared   bool       // parts of chunk were handed out
	from, to int
	large    bool // chunks are
	preface  int  // bytes of it that are still to come
	begun    bool // with settings
	body     body
	inBlock  uint32 // stream of a header block that goes on; 0: none
	blockEnd bool   // its stream ends with it
	frags    []byte
	empty    int
}

// body is a DATA frame under way.
type body struct {
	on   bool
	id   uint32
	left int
	pad  int
	end  bool
}

// Init makes a reader of r. sock may be nil.
func (r *Reader) Init(nc net.Conn, sock *Socket, sink Sink, o ReaderOptions) {
	*r = Reader{sink: sink, o: o, nc: nc, sock: sock}
	if o.Preface {
		r.preface = len(Preface)
	}
	r.fill, r.unfill = r.space, r.idle
	r.dec = hpack.NewDecoder(4096, sink.Field)
	r.dec.SetMaxStringLength(o.MaxString)
}

// Close lets go of memory.
func (r *Reader) Close() {
	if r.chunk != nil {
		r.chunk.Free()
		r.chunk, r.data, r.shared = nil, nil, false
		r.from, r.to = 0, 0
	}
}

// space returns where the next bytes go.
func (r *Reader) space() []byte {
	if r.chunk != nil && r.from == r.to && !r.shared {
		r.from, r.to = 0, 0
	}
	if r.chunk == nil || len(r.data)-r.to < leastChunk {
		old, left := r.chunk, r.data[r.from:r.to]
		size := smallChunk
		if r.large || len(left)+leastChunk > smallChunk {
			size = largeChunk
		}
		b := pool.Get(size)
		n := copy(*b, left)
		r.chunk, r.data, r.shared = mem.NewBuffer(b, &pool), *b, false
		r.from, r.to = 0, n
		if old != nil {
			old.Free()
		}
	}
	return r.data[r.to:]
}

// idle lets go of memory while nothing comes.
func (r *Reader) idle() {
	if r.from == r.to {
		r.Close()
	}
}

// Read waits for bytes and takes them in; n is 0 at the end of the connection.
func (r *Reader) Read() (n int, err error) {
	if r.sock != nil {
		n, err = r.sock.ReadInto(r.fill, r.unfill)
	} else {
		n, err = r.nc.Read(r.space())
		if n > 0 {
			err = nil
		} else if err == io.EOF {
			return 0, nil
		}
	}
	if err == nil && n > 0 {
		r.to += n
		r.large = r.to == len(r.data) || n >= smallChunk/2
	}
	return n, err
}

// Discard lets go of what was read. Nothing may be parsed any more.
func (r *Reader) Discard() { r.from = r.to }

// Peek shows the next n bytes of the DATA frame under way. It is for Sink.Data, until that returns.
func (r *Reader) Peek(n int) []byte { return r.data[r.from : r.from+n] }

// Take gives the next n bytes of the DATA frame under way. It is for Sink.Data, once.
func (r *Reader) Take(n int) mem.Buffer {
	if n >= len(r.data)/r.o.Pinned {
		r.shared = true
		return r.chunk.Slice(r.from, r.from+n)
	}
	return mem.Copy(r.data[r.from:r.from+n], mem.DefaultBufferPool())
}

// Empty counts a frame that had no effect, of which a peer may send only so many.
func (r *Reader) Empty() error {
	if r.empty++; r.empty > maxEmpty {
		return broken(CodeEnhanceYourCalm, "frames without end and effect")
	}
	return nil
}

// Parse tells the sink of the frames that are there.
func (r *Reader) Parse() error {
	if r.preface > 0 {
		n := min(r.preface, r.to-r.from)
		if at := len(Preface) - r.preface; string(r.data[r.from:r.from+n]) != Preface[at:at+n] {
			return broken(CodeProtocol, "it does not begin with the preface of HTTP/2")
		}
		r.from += n
		if r.preface -= n; r.preface > 0 {
			return nil
		}
	}
	for {
		if r.body.on {
			if err := r.take(); err != nil || r.body.on {
				return err
			}
		}
		b := r.data[r.from:r.to]
		if len(b) < FrameHeaderBytes {
			return nil
		}
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		kind, flags := b[3], b[4]
		id := binary.BigEndian.Uint32(b[5:]) &^ (1 << 31)
		if n > MaxFrame {
			return broken(CodeFrameSize, "a frame is too long")
		}
		if !r.begun {
			if kind != Settings || flags&Ack != 0 {
				return broken(CodeProtocol, "it does not begin with settings")
			}
		}
		if r.inBlock != 0 && (kind != Continuation || id != r.inBlock) {
			return broken(CodeProtocol, "a frame within headers")
		}
		if kind == Data {
			if flags&Padded != 0 && n > 0 && len(b) < FrameHeaderBytes+1 {
				return nil
			}
			r.from += FrameHeaderBytes
			if err := r.begin(id, n, flags, b); err != nil {
				return err
			}
			continue
		}
		if len(b) < FrameHeaderBytes+n {
			return nil
		}
		r.from += FrameHeaderBytes + n
		if err := r.handle(kind, flags, id, b[FrameHeaderBytes:FrameHeaderBytes+n]); err != nil {
			return err
		}
		r.begun = true
	}
}

// begin is for the header of a DATA frame.
func (r *Reader) begin(id uint32, n int, flags byte, b []byte) error {
	if id == 0 {
		return broken(CodeProtocol, "data of no stream")
	}
	pad, length := 0, 0 // that of what says how long it is as well
	if flags&Padded != 0 {
		if n == 0 {
			return broken(CodeFrameSize, "a frame without its padding")
		}
		if pad, length = int(b[FrameHeaderBytes]), 1; pad >= n {
			return broken(CodeProtocol, "more padding than frame")
		}
	}
	if err := r.sink.DataBegins(id, n, length+pad); err != nil {
		return err
	}
	r.from += length
	r.body = body{on: true, id: id, left: n - length, pad: pad, end: flags&EndStream != 0}
	if r.body.left != r.body.pad {
		r.empty = 0
	} else if !r.body.end {
		return r.Empty()
	}
	return nil
}

// take hands out what there is of the DATA frame under way.
func (r *Reader) take() error {
	b := &r.body
	n := min(b.left, r.to-r.from)
	if n < b.left {
		// Neither part of a frame that is cut here shall be so short that it has to have memory of its own.
		if n = min(n, b.left-leastPiece); n < leastPiece {
			return nil
		}
	}
	if use := max(min(n, b.left-b.pad), 0); use > 0 {
		if err := r.sink.Data(b.id, use); err != nil {
			return err
		}
	}
	r.from += n
	if b.left -= n; b.left > 0 {
		return nil
	}
	b.on = false
	if b.end {
		return r.sink.DataEnds(b.id)
	}
	return nil
}

// handle is for any frame but DATA.
func (r *Reader) handle(kind, flags byte, id uint32, p []byte) error {
	switch kind {
	case Headers:
		return r.headers(flags, id, p)
	case Continuation:
		if r.inBlock == 0 {
			return broken(CodeProtocol, "a continuation of nothing")
		}
		if len(p) == 0 && flags&EndHeaders == 0 {
			if err := r.Empty(); err != nil {
				return err
			}
		}
		return r.fragment(p, flags&EndHeaders != 0)
	case Priority:
		if id == 0 {
			return broken(CodeProtocol, "a priority of no stream")
		}
		if len(p) != 5 {
			return broken(CodeFrameSize, "a priority of the wrong length")
		}
		return r.Empty()
	case Reset:
		if len(p) != 4 {
			return broken(CodeFrameSize, "a reset of the wrong length")
		}
		if id == 0 {
			return broken(CodeProtocol, "a reset of no stream")
		}
	case Settings:
		if id != 0 {
			return broken(CodeProtocol, "settings of a stream")
		}
		if len(p)%6 != 0 || flags&Ack != 0 && len(p) > 0 {
			return broken(CodeFrameSize, "settings of the wrong length")
		}
	case Ping:
		if id != 0 {
			return broken(CodeProtocol, "a ping of a stream")
		}
		if len(p) != 8 {
			return broken(CodeFrameSize, "a ping of the wrong length")
		}
	case GoAway:
		if id != 0 {
			return broken(CodeProtocol, "a farewell of a stream")
		}
		if len(p) < 8 {
			return broken(CodeFrameSize, "a farewell of the wrong length")
		}
	case Window:
		if len(p) != 4 {
			return broken(CodeFrameSize, "a window of the wrong length")
		}
	case Push:
		return broken(CodeProtocol, "a push")
	default:
		return r.Empty() // kinds that nobody knows
	}
	return r.sink.Frame(kind, flags, id, p)
}

func (r *Reader) headers(flags byte, id uint32, p []byte) error {
	if id == 0 {
		return broken(CodeProtocol, "headers of no stream")
	}
	pad := 0
	if flags&Padded != 0 {
		if len(p) < 1 {
			return broken(CodeFrameSize, "headers without their padding")
		}
		pad, p = int(p[0]), p[1:]
	}
	if flags&WithPriority != 0 {
		if len(p) < 5 {
			return broken(CodeFrameSize, "headers without their priority")
		}
		p = p[5:]
	}
	if pad > len(p) {
		return broken(CodeProtocol, "more padding than frame")
	}
	p = p[:len(p)-pad]
	if err := r.sink.HeadersBegin(id, flags&EndStream != 0); err != nil {
		return err
	}
	r.inBlock, r.blockEnd, r.frags = id, flags&EndStream != 0, r.frags[:0]
	return r.fragment(p, flags&EndHeaders != 0)
}

// fragment takes a part of a header block.
func (r *Reader) fragment(p []byte, last bool) error {
	if len(r.frags)+len(p) > r.o.MaxBlock {
		return broken(CodeEnhanceYourCalm, "a header block is too long")
	}
	if !last || len(r.frags) > 0 {
		r.frags = append(r.frags, p...)
		if !last {
			return nil
		}
		p = r.frags
	}
	id := r.inBlock
	r.inBlock = 0
	// A block is decoded whoever it is for, for the table that both sides keep.
	if _, err := r.dec.Write(p); err != nil {
		return broken(CodeCompression, "%v", err)
	}
	if err := r.dec.Close(); err != nil {
		return broken(CodeCompression, "%v", err)
	}
	if cap(r.frags) > MaxFrame {
		r.frags = nil
	}
	return r.sink.Headers(id, r.blockEnd)
}

// Settled resets the count of frames without effect: a frame had one.
func (r *Reader) Settled() { r.empty = 0 }
