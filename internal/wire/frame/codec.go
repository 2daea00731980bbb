package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
)

const (
	// HeaderSize is the number of bytes in front of a frame's body: its length as a little-endian unsigned integer.
	HeaderSize = 4
	// DefaultMaxFrame is how long the body of a frame may be where nothing else is said: 64 MiB.
	DefaultMaxFrame = 64 << 20

	// smallFrame is what is allocated for a body before its bytes have come, and the longest buffer that is kept for the next frame.
	smallFrame = 64 << 10
)

// TooLongError says that the body of a frame is longer than allowed. Nothing of the body has been read, or written.
type TooLongError struct {
	Length int64 // what the header says, or the length of what was to be sent; bytes
	Limit  int64 // bytes
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("frame of %d bytes is over the limit of %d", e.Length, e.Limit)
}

// Read reads one frame and returns its body, which may be empty. The body is in buf's memory where that is large enough and in new
// memory otherwise; new memory grows with the bytes that arrive and is never more than twice of them and 64 KiB, whatever the header
// promises. buf may be nil.
//
// A limit of 0 or less is DefaultMaxFrame. The error is io.EOF if r ends before the first byte of a frame, io.ErrUnexpectedEOF if it
// ends inside one, a *TooLongError for a body over the limit, which is left unread, or r's own.
func Read(r io.Reader, limit int, buf []byte) ([]byte, error) {
	// The header is read into the caller's buffer: an array of ours would be on the heap, since r is an interface.
	if cap(buf) < HeaderSize {
		buf = make([]byte, HeaderSize, 512)
	}
	h := buf[:HeaderSize]
	if _, err := io.ReadFull(r, h); err != nil {
		return nil, err
	}
	n, err := bodyLength(h, limit)
	if err != nil {
		return nil, err
	}
	return readBody(r, buf, n, nil)
}

// bodyLength reads a header.
func bodyLength(h []byte, limit int) (int, error) {
	if limit <= 0 {
		limit = DefaultMaxFrame
	}
	n := int64(binary.LittleEndian.Uint32(h))
	if n > int64(limit) {
		return 0, &TooLongError{Length: n, Limit: int64(limit)}
	}
	return int(n), nil
}

// readBody reads n bytes into buf, or into memory that grows as they come. room, if there is one, is asked before the body gets room for
// so many bytes in all; its error ends the reading.
func readBody(r io.Reader, buf []byte, n int, room func(bytes int) error) ([]byte, error) {
	buf = buf[:0]
	idle := 0
	if room != nil {
		if err := room(min(n, max(cap(buf), smallFrame))); err != nil {
			return nil, err
		}
	}
	for len(buf) < n {
		if len(buf) == cap(buf) {
			size := min(n, max(2*cap(buf), smallFrame))
			if room != nil {
				if err := room(size); err != nil {
					return nil, err
				}
			}
			grown := make([]byte, len(buf), size)
			copy(grown, buf)
			buf = grown
		}
		m, err := r.Read(buf[len(buf):min(n, cap(buf))])
		buf = buf[:len(buf)+m]
		if len(buf) == n {
			break
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if m > 0 {
			idle = 0
		} else if idle++; idle == 100 {
			return nil, io.ErrNoProgress
		}
	}
	return buf, nil
}

// Append appends a frame with the given body to dst. The body must be shorter than 4 GiB.
func Append(dst, body []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	return append(dst, body...)
}

// Write writes one frame. The error is a *TooLongError for a body whose length no header can say, or w's own.
func Write(w io.Writer, body []byte) error {
	if int64(len(body)) > math.MaxUint32 {
		return &TooLongError{Length: int64(len(body)), Limit: math.MaxUint32}
	}
	var h [HeaderSize]byte
	binary.LittleEndian.PutUint32(h[:], uint32(len(body)))
	both := net.Buffers{h[:], body}
	_, err := both.WriteTo(w)
	return err
}
