package grpcmsg

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

const (
	// FreeBytes is how much of a message is read without asking for room, so that small calls need no memory to be free.
	FreeBytes = 16 << 10
	// MaxStep is the most of a message that is asked for at a time.
	MaxStep = 1 << 20
	// leastRate is the least pace of a message in bytes a second, beyond one Stall, so that nobody keeps memory by trickling.
	leastRate = 64 << 10
)

// ErrStalled is the status of a call whose message did not arrive in time.
var ErrStalled = status.Error(codes.DeadlineExceeded, "the request did not arrive in time")

// Incoming takes the messages of a call.
type Incoming struct {
	Stream Stream
	Cancel context.CancelCauseFunc // ends the call from outside
	Stall  time.Duration           // the longest wait for the next part of a message
	Most   int                     // bytes of the longest message, as it is on the wire
	// Need is asked before so many bytes of the message under way are held in all.
	Need func(bytes int64) error
	// Expect, where it is not nil, is told of the length of a message on the wire, and whether it is compressed, before Need is asked.
	Expect func(bytes int, compressed bool) error
	// Patient is for streams, whose callers send the next message when they have one: a header may come as late as it likes.
	Patient bool
}

// wait runs something that waits for the other side, for at most Stall and until the end.
func (in *Incoming) wait(end time.Time, what func() error) error {
	limit := in.Stall
	if !end.IsZero() {
		limit = min(limit, time.Until(end))
	}
	watch := time.AfterFunc(limit, func() { in.Cancel(ErrStalled) })
	err := what()
	if !watch.Stop() {
		return ErrStalled
	}
	return err
}

// Receive reads a message as it is on the wire. io.EOF means that the caller has closed its side; the errors of the message have a status.
func (in *Incoming) Receive() (header [5]byte, data mem.BufferSlice, err error) {
	n := 0
	begin := func() error {
		if err := in.Stream.ReadMessageHeader(header[:]); err != nil {
			if err != io.EOF {
				err = cutShort(err)
			}
			return err
		}
		size := binary.BigEndian.Uint32(header[1:])
		if int64(size) > int64(in.Most) {
			return TooLong("decoded", int64(size), in.Most)
		}
		if header[0] > 1 {
			return status.Errorf(codes.Internal, "protocol error: received message with invalid compression flag: %d (valid flags are 0 and 1)", header[0])
		}
		n = int(size)
		if in.Expect != nil {
			return in.Expect(n, header[0] == 1)
		}
		return nil
	}
	short := func() error {
		if n == 0 || n > FreeBytes {
			return nil
		}
		if err := in.Need(int64(n)); err != nil {
			return err
		}
		piece, err := in.Stream.Read(n)
		data = piece
		return cutShort(err)
	}
	if in.Patient {
		if err = begin(); err == nil {
			err = in.wait(time.Time{}, short)
		}
	} else {
		// One wait for a header and all of a small message.
		err = in.wait(time.Time{}, func() error {
			if err := begin(); err != nil {
				return err
			}
			return short()
		})
	}
	if err != nil {
		data.Free()
		return header, nil, err
	}
	end := time.Now().Add(in.Stall + time.Duration(n)*time.Second/leastRate)
	for got := data.Len(); got < n; {
		// No more than has come already, so that what is charged is never much more than what the caller has really sent.
		step := min(n-got, max(FreeBytes, got), MaxStep)
		err := in.Need(int64(got + step))
		if err == nil {
			err = in.wait(end, func() error {
				piece, err := in.Stream.Read(step)
				data = append(data, piece...)
				return cutShort(err)
			})
		}
		if err != nil {
			data.Free()
			return header, nil, err
		}
		got += step
	}
	return header, data, nil
}

// cutShort makes a status of the end of a message that is not whole.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.Internal, "Unexpected EOF decoding stream.")
	}
	return err
}

// TooLong is the status of a message past its limit.
func TooLong(what string, have int64, most int) error {
	return status.Errorf(codes.OutOfRange, "Error, %s message length too large: found %d bytes, the limit is: %d bytes", what, have, most)
}

// TooLongInside is the status of a compressed message that is past its limit when it is decompressed.
func TooLongInside(most int) error {
	return status.Errorf(codes.ResourceExhausted, "Error decompressing: size limit, of `%d` bytes, exceeded while decompressing compressed message", most)
}
