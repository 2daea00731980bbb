package partition

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// What ends a run of IndexDocuments (section Writes).
const (
	runDocuments = 512
	runBytes     = 4 << 20 // of the encoded documents
)

// Stream regroups the messages of one IndexDocuments call into BatchIndexDocuments (section Writes): documents of one index are sent on at
// 512 documents, at 4 MiB, when another index follows, or at the end. A run that fails ends the call, earlier runs stay. Between calls it
// holds no more than a run, which is less than 4 MiB and what came with the last message. A Stream is used by one goroutine.
type Stream struct {
	// Send indexes a batch, given as an encoded BatchIndexDocumentsRequest with its index, on one shard or, by BatchIndexDocuments, on
	// several. It returns the encoded reply.
	Send func(ctx context.Context, index string, batch []byte) (reply []byte, err error)

	index     string
	batch     []byte
	before    int // bytes of the run before, which tell what the next may need
	documents int
	bytes     int
	good      uint32
	errors    []byte // of the reply
}

// Held is what the run that is gathered takes, in bytes.
func (s *Stream) Held() int { return cap(s.batch) }

// Add takes the next IndexDocumentRequest. The Stream keeps nothing of msg.
func (s *Stream) Add(ctx context.Context, msg []byte) error {
	index, size := "", 0
	for b := msg; len(b) > 0; {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		switch {
		case f.is(1, protowire.BytesType):
			index = string(f.val)
		case f.is(2, protowire.BytesType):
			size += 1 + protowire.SizeBytes(len(f.val))
		}
	}
	if s.documents > 0 && index != s.index {
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	if s.documents == 0 {
		s.index = index
		s.batch = appendBytes(make([]byte, 0, min(s.before, runBytes)), 1, []byte(index))
	}
	s.batch = protowire.AppendTag(s.batch, 2, protowire.BytesType)
	s.batch = protowire.AppendVarint(s.batch, uint64(size))
	for b := msg; len(b) > 0; {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		if b = rest; f.is(2, protowire.BytesType) { // field 2 here, field 1 of a NamedDocument
			s.batch = appendBytes(s.batch, 1, f.val)
		}
	}
	s.documents++
	s.bytes += size
	if s.documents >= runDocuments || s.bytes >= runBytes {
		return s.flush(ctx)
	}
	return nil
}

// Close sends what is left, and returns the encoded IndexDocumentsResponse: counts summed, errors one run after another with indexes that
// are relative to their run.
func (s *Stream) Close(ctx context.Context) ([]byte, error) {
	if err := s.flush(ctx); err != nil {
		return nil, err
	}
	return append(appendUint(nil, 1, uint64(s.good)), s.errors...), nil
}

func (s *Stream) flush(ctx context.Context) error {
	if s.documents == 0 {
		return nil
	}
	if spent(ctx) {
		return status.Error(codes.DeadlineExceeded, "client deadline exhausted mid-stream")
	}
	batch, index := s.batch, s.index
	s.batch, s.before, s.documents, s.bytes = nil, len(batch), 0, 0 // a call that is cut short may still look at it
	reply, err := s.Send(ctx, index, batch)
	if err != nil {
		return err
	}
	for len(reply) > 0 {
		f, rest, err := next(reply)
		if err != nil {
			return err
		}
		reply = rest
		switch {
		case f.is(1, protowire.VarintType):
			s.good = add32(s.good, uint32(f.uint()&math.MaxUint32))
		case f.is(3, protowire.BytesType):
			if len(s.errors)+len(f.val) > maxErrorBytes {
				return status.Errorf(codes.ResourceExhausted, "errors of the stream exceed %d bytes", maxErrorBytes)
			}
			s.errors = appendBytes(s.errors, 2, f.val)
		}
	}
	return nil
}

// spent says whether the client's deadline has passed.
func spent(ctx context.Context) bool {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && !deadline.After(time.Now())
}
