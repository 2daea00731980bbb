package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/wire/protoweight"
)

const (
	// freeRequest is how much of the message of a call is not charged, so that small calls need no memory to be free.
	freeRequest = 16 << 10
	// freeBulk is the same for a bulk load: room for a piece of 64 KiB and what is made of it. Their number has a bound of its own.
	freeBulk = 256 << 10
	// minBulkRate is the least pace, in bytes for a second, of a body that is waited for longer than StallTime.
	minBulkRate = 1 << 10
	// maxStep is the most of a message that is asked for at a time.
	maxStep = 1 << 20
	// maxGrowth is how many times the largest message a message may take when it is decoded.
	maxGrowth = 4
)

// transportStream is the stream below a grpc.ServerStream. RecvMsg takes a message of any length the caller says, and tells nothing
// before it has all of it; here the length is seen first, and memory taken as the message arrives. That the stream of this version of
// gRPC has these methods is tested.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// need sees to it that so many bytes are charged for the messages of the call.
func (c *call) need(bytes int64) error {
	want := min(bytes-c.free, c.s.o.Memory)
	if want <= c.charged {
		return nil
	}
	if err := c.s.charge(c.ctx, want-c.charged, c.s.o.MemoryWait); err != nil {
		return err
	}
	c.charged = want
	return nil
}

// unload gives back what need has taken.
func (c *call) unload() {
	c.s.memory.Release(c.charged)
	c.charged = 0
}

// receive reads a message of at most so many bytes, which has to arrive within limit. io.EOF means that the caller has closed its side.
// It returns the length of the message and how long it was waited for.
func (c *call) receive(m proto.Message, most int, limit time.Duration) (n int, waited time.Duration, err error) {
	part := func(what func() error) error {
		began := time.Now()
		err := c.wait(limit-waited, errSenderStalled, what)
		waited += time.Since(began)
		return err
	}
	var header [5]byte
	if err := part(func() error { return c.in.ReadMessageHeader(header[:]) }); err != nil {
		return 0, waited, brokenOff(err)
	}
	if header[0] != 0 {
		return 0, waited, api.NewProblem(api.InvalidBody, "the message is compressed")
	}
	size := binary.BigEndian.Uint32(header[1:])
	if int64(size) > int64(most) {
		return 0, waited, api.NewProblem(api.BodyTooLarge, fmt.Sprintf("the message has %d bytes; at most %d are taken", size, most)).Within(int64(most))
	}
	n = int(size)
	var data mem.BufferSlice
	defer func() { data.Free() }()
	for got := 0; got < n; {
		// No more than has come already, so that what is charged is never much more than what the caller has really sent.
		step := min(n-got, max(freeRequest, got), maxStep)
		if err := c.need(int64(got + step)); err != nil {
			return n, waited, err
		}
		if err := part(func() error {
			piece, err := c.in.Read(step)
			data = append(data, piece...)
			return err
		}); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return n, waited, brokenOff(err)
		}
		got += step
	}
	return n, waited, c.decode(data, n, most, m)
}

func brokenOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return api.NewProblem(api.InvalidBody, "the message breaks off")
	}
	return err
}

// decode makes the message of its bytes. It first looks at what that will take.
func (c *call) decode(data mem.BufferSlice, n, most int, m proto.Message) error {
	if err := c.need(2 * int64(n)); err != nil {
		return err
	}
	whole := takeBuffer(n)
	defer giveBuffer(whole)
	data.CopyTo(*whole)
	growth := protoweight.Of(*whole, m.ProtoReflect().Descriptor(), maxNesting, int64(maxGrowth*most))
	if growth > int64(maxGrowth*most) {
		return api.NewProblem(api.BodyTooLarge, "the message has too many parts for its length").Within(int64(most))
	}
	if err := c.need(2*int64(n) + growth); err != nil {
		return err
	}
	if err := decodeOptions.Unmarshal(*whole, m); err != nil {
		p := api.NewProblem(api.InvalidBody, "the message cannot be decoded")
		p.Cause = fmt.Errorf("decode %T: %w", m, err)
		return p
	}
	return nil
}
