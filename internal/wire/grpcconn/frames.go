package grpcconn

import "encoding/binary"

// What is looked at of HTTP/2 (RFC 9113, sections 3.4, 4.1 and 6).
const (
	prefaceBytes = 24
	headerBytes  = 9

	frameData    = 0
	frameHeaders = 1
	frameReset   = 3

	flagEndStream = 1
)

// frame is the header of one.
type frame struct {
	kind, flags byte
	stream      uint32
	length      int
}

// frames follows the frames of one direction of a connection through whatever pieces they come in.
type frames struct {
	skip int // bytes until the next header
	n    int // of the header that there are
	head [headerBytes]byte
}

// feed takes the next bytes, and tells of each frame whose header is whole with them.
func (f *frames) feed(b []byte, see func(frame)) {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip -= n
			b = b[n:]
			continue
		}
		n := copy(f.head[f.n:], b)
		f.n += n
		b = b[n:]
		if f.n < headerBytes {
			return
		}
		f.n = 0
		f.skip = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
		see(frame{f.head[3], f.head[4], binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31), f.skip})
	}
}
