package h2

import (
	"encoding/binary"
	"fmt"
)

// Preface is what a client begins with.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Kinds of frames.
const (
	Data         = 0x0
	Headers      = 0x1
	Priority     = 0x2
	Reset        = 0x3
	Settings     = 0x4
	Push         = 0x5
	Ping         = 0x6
	GoAway       = 0x7
	Window       = 0x8
	Continuation = 0x9
)

// Flags of frames.
const (
	EndStream    = 0x1
	Ack          = 0x1
	EndHeaders   = 0x4
	Padded       = 0x8
	WithPriority = 0x20
)

// Names of settings.
const (
	SettingTable      = 0x1
	SettingPush       = 0x2
	SettingStreams    = 0x3
	SettingWindow     = 0x4
	SettingFrame      = 0x5
	SettingHeaderList = 0x6
)

// Lengths and numbers.
const (
	FrameHeaderBytes = 9
	MaxFrame         = 16 << 10  // that we take, and the least that a peer takes
	DefaultWindow    = 1<<16 - 1 // of a stream and a connection
	MaxWindow        = 1<<31 - 1
	MaxStreamID      = 1<<31 - 1
	// HeaderOverhead is what a field of headers counts beside its name and value.
	HeaderOverhead = 32
)

// Codes of errors.
const (
	CodeNone               = 0x0
	CodeProtocol           = 0x1
	CodeInternal           = 0x2
	CodeFlowControl        = 0x3
	CodeStreamClosed       = 0x5
	CodeFrameSize          = 0x6
	CodeRefused            = 0x7
	CodeCancel             = 0x8
	CodeCompression        = 0x9
	CodeEnhanceYourCalm    = 0xb
	CodeInadequateSecurity = 0xc
)

// Broken is what a peer did against the protocol.
type Broken struct {
	Code uint32
	What string
}

func (b *Broken) Error() string { return "the peer breaks HTTP/2: " + b.What }

func broken(code uint32, format string, a ...any) error {
	return &Broken{code, fmt.Sprintf(format, a...)}
}

// AppendFrame appends the header of a frame with n bytes.
func AppendFrame(b []byte, kind, flags byte, id uint32, n int) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return binary.BigEndian.AppendUint32(b, id)
}

// AppendReset appends a frame that ends a stream.
func AppendReset(b []byte, id, code uint32) []byte {
	return binary.BigEndian.AppendUint32(AppendFrame(b, Reset, 0, id, 4), code)
}

// AppendWindow appends a frame that lets n bytes more come.
func AppendWindow(b []byte, id uint32, n int64) []byte {
	return binary.BigEndian.AppendUint32(AppendFrame(b, Window, 0, id, 4), uint32(n))
}

// AppendGoAway appends a farewell: last is the last stream that was taken.
func AppendGoAway(b []byte, last, code uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(AppendFrame(b, GoAway, 0, 0, 8), last), code)
}

// AppendHeaders appends a header block, cut into frames of at most most bytes.
func AppendHeaders(b []byte, id uint32, block []byte, endStream bool, most int) []byte {
	for first := true; first || len(block) > 0; first = false {
		n := min(len(block), most)
		kind, flags := byte(Continuation), byte(0)
		if first {
			kind = Headers
			if endStream {
				flags = EndStream
			}
		}
		if n == len(block) {
			flags |= EndHeaders
		}
		b = append(AppendFrame(b, kind, flags, id, n), block[:n]...)
		block = block[n:]
	}
	return b
}
