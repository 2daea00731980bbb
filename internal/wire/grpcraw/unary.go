package grpcraw

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
)

// Err is the status of the call as an error, details included; nil if the code is OK.
func (e *End) Err() error {
	if e.Code == codes.OK {
		return nil
	}
	p := status.New(codes.OK, "").Proto()
	// Details that say something else than the status are nothing to go by.
	if e.Details == "" || proto.Unmarshal([]byte(e.Details), p) != nil || p.GetCode() != int32(e.Code) {
		return status.Error(e.Code, e.Message)
	}
	return status.FromProto(p).Err()
}

// Prefix is what stands in front of a message.
type Prefix struct {
	Compressed bool
	Length     int // of the message
}

// PrefixBytes is the length of a Prefix on the wire.
const PrefixBytes = 5

// ParsePrefix reads a prefix of its bytes.
func ParsePrefix(b [PrefixBytes]byte) (Prefix, error) {
	if b[0] > 1 {
		return Prefix{}, internal("protocol error: received message with invalid compression flag: %d (valid flags are 0 and 1)", b[0])
	}
	return Prefix{b[0] == 1, int(binary.BigEndian.Uint32(b[1:]))}, nil
}

// Reply is a whole one.
type Reply struct {
	Head       Head
	Compressed bool            // by Head.Encoding
	Data       mem.BufferSlice // the message, without a prefix; the caller's to free. Empty where the status is not OK
	End        *End
}

// Room is asked for more bytes before they are let come, beyond FreeWindow; what it gives is held by who asked.
type Room func(bytes int64) error

// Do makes a call and takes the whole reply, of at most most bytes as it is on the wire; a longer one is RESOURCE_EXHAUSTED. The error is an
// *Error, or of room, which may be nil; a status of the node is in the reply.
func (n *Node) Do(ctx context.Context, call *Call, most int, room Room) (*Reply, error) {
	s, err := n.Start(ctx, call)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	u := &unary{s: s, most: most, room: room}
	return u.whole()
}

// unary takes the whole reply of a call.
type unary struct {
	s      *Stream
	most   int
	room   Room
	quick  bool // nothing is waited for: the error is errWaits where it would be
	headed bool
	framed bool // the prefix was read
	want   int  // bytes of the reply with its prefix, then
	have   int
	r      *Reply
}

// errWaits is for a step that would have to wait for something else than the node.
var errWaits = errors.New("the call has to wait")

// whole waits for the reply. What is there of one that fails is freed.
func (u *unary) whole() (*Reply, error) {
	for {
		done, err := u.step()
		if err == nil && !done {
			err = u.s.wait()
		}
		if err != nil {
			u.free()
			return nil, err
		}
		if done {
			return u.r, nil
		}
	}
}

func (u *unary) free() {
	if u.r != nil {
		u.r.Data.Free()
		u.r = nil
	}
}

// step takes what has come of the reply; done says that this is all of it. It may be repeated after errWaits.
func (u *unary) step() (done bool, err error) {
	for !u.headed {
		h, ok, err := u.s.headNow()
		switch {
		case err == errUnprocessed && u.quick:
			return false, errWaits
		case err == errUnprocessed:
			if err := u.s.again(); err != nil {
				return false, err
			}
			continue
		case err != nil || !ok:
			return false, err
		}
		u.headed, u.r = true, &Reply{Head: h}
	}
	for {
		if !u.framed && u.have >= PrefixBytes {
			if err := u.prefix(); err != nil {
				return false, err
			}
		}
		if u.framed && u.have > u.want {
			return false, internal("the node answered with more than one message")
		}
		q, err := u.s.readNow()
		switch {
		case err == io.EOF:
			return true, u.end()
		case err != nil:
			return false, err
		case len(q) == 0:
			return false, nil
		}
		u.r.Data = append(u.r.Data, q...)
		u.have += q.Len()
	}
}

// prefix reads that of the message, and lets a long one come.
func (u *unary) prefix() error {
	var b [PrefixBytes]byte
	for n, data := 0, u.r.Data; n < len(b); data = data[1:] {
		n += copy(b[n:], data[0].ReadOnlyData())
	}
	p, err := ParsePrefix(b)
	if err != nil {
		return err
	}
	if p.Length > u.most {
		return TooLong("decoded", p.Length, u.most)
	}
	want := PrefixBytes + p.Length
	if want > FreeWindow {
		if u.quick {
			return errWaits
		}
		if u.room != nil {
			if err := u.room(int64(want)); err != nil {
				return err
			}
		}
		u.s.Expect(int64(want), int64(want))
	}
	u.framed, u.want, u.r.Compressed = true, want, p.Compressed
	return nil
}

// end is after the last bytes of the reply.
func (u *unary) end() error {
	r := u.r
	r.End = u.s.End()
	switch {
	case r.End.Code != codes.OK:
		r.Data.Free()
		r.Data = nil
	case !u.framed || u.have != u.want:
		return internal("Missing response message.")
	default:
		r.Data = Cut(r.Data, PrefixBytes)
	}
	return nil
}

// Cut takes the first n bytes off data, and frees what holds nothing else.
func Cut(data mem.BufferSlice, n int) mem.BufferSlice {
	for len(data) > 0 {
		if l := data[0].Len(); l > n {
			first := data[0].Slice(n, l)
			data[0].Free()
			data[0] = first
			return data
		}
		n -= data[0].Len()
		data[0].Free()
		data = data[1:]
	}
	return nil
}

// TooLong is the error of a message past its limit, in either direction of the node.
func TooLong(what string, have, most int) *Error {
	return &Error{Code: codes.ResourceExhausted, Text: fmt.Sprintf("Error, %s message length too large: found %d bytes, the limit is: %d bytes", what, have, most)}
}

// TooLongInside is the error of a compressed message that is past its limit when it is decompressed.
func TooLongInside(most int) *Error {
	return &Error{
		Code: codes.ResourceExhausted,
		Text: fmt.Sprintf("Error decompressing: size limit, of `%d` bytes, exceeded while decompressing compressed message", most),
	}
}

// Encode makes the message of a Call, uncompressed, with its prefix.
func Encode(m proto.Message) (mem.BufferSlice, error) {
	n := proto.Size(m)
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(append(make([]byte, 0, PrefixBytes+n), grpcmsg.Header(false, n)...), m)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Accepted are the compressions that Message undoes.
const Accepted = grpcmsg.Zstd + "," + grpcmsg.Gzip

// Message is the message of a reply as plain bytes, of at most most; it frees Data. room, which may be nil, is asked for what that takes beyond
// FreeWindow before it is taken. The error is a status, an *Error, or of room.
func (r *Reply) Message(most int, room Room) ([]byte, error) {
	data := r.Data
	r.Data = nil
	defer data.Free()
	asked := int64(FreeWindow)
	need := func(bytes int64) error {
		more := bytes - asked
		if more <= 0 || room == nil {
			return nil
		}
		asked += more
		return room(more)
	}
	if !r.Compressed {
		if err := need(int64(data.Len())); err != nil {
			return nil, err
		}
		return data.Materialize(), nil
	}
	in := data.Reader()
	defer in.Close()
	return grpcmsg.Inflate(r.Head.Encoding, in, most, need)
}

// Invoke makes a typed call. A reply of more than most bytes is RESOURCE_EXHAUSTED; a status of the node is the error, as package status
// has them. timeout 0 means none.
func (n *Node) Invoke(ctx context.Context, method string, timeout time.Duration, req, reply proto.Message, most int) error {
	data, err := Encode(req)
	if err != nil {
		return err
	}
	r, err := n.Do(ctx, &Call{Method: method, Accept: Accepted, Timeout: timeout, Message: data}, most, nil)
	if err != nil {
		return err
	}
	if err := r.End.Err(); err != nil {
		return err
	}
	b, err := r.Message(most, nil)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(b, reply); err != nil {
		return internal("failed to decode Protobuf message")
	}
	return nil
}
