package grpcmsg

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

type noStream struct{}

func (noStream) Method() string               { return "" }
func (noStream) SetHeader(metadata.MD) error  { return nil }
func (noStream) SendHeader(metadata.MD) error { return nil }
func (noStream) SetTrailer(metadata.MD) error { return nil }

type options struct{}

// goodStream has the method as gRPC's has it.
type goodStream struct {
	noStream
	header, data string
	err          error
}

func (s *goodStream) Write(header []byte, data mem.BufferSlice, o *options) error {
	if o != nil {
		return errors.New("options")
	}
	s.header, s.data = string(header), string(data.Materialize())
	return s.err
}

type shortStream struct{ noStream }

func (*shortStream) Write([]byte) error { return nil }

type valueStream struct{ noStream }

func (valueStream) Write([]byte, mem.BufferSlice, *options) error { return nil }

type otherStream struct{ noStream }

func (*otherStream) Write([]byte, mem.BufferSlice, options) error { return nil }

// TestWriteFindsItsMethod calls it on streams that have it and refuses those that do not.
func TestWriteFindsItsMethod(t *testing.T) {
	data := mem.BufferSlice{mem.SliceBuffer("da"), mem.SliceBuffer("ta")}
	bad := errors.New("bad")
	for range 2 {
		s := &goodStream{err: bad}
		if err := Write(grpc.NewContextWithServerTransportStream(t.Context(), s), []byte("head"), data); err != bad || s.header != "head" || s.data != "data" {
			t.Errorf("%q, %q, %v", s.header, s.data, err)
		}
		for _, s := range []grpc.ServerTransportStream{&shortStream{}, valueStream{}, &otherStream{}, noStream{}} {
			if err := Write(grpc.NewContextWithServerTransportStream(t.Context(), s), nil, data); err != ErrNotBound {
				t.Errorf("%T: %v", s, err)
			}
		}
	}
	if err := Write(context.Background(), nil, data); err != ErrNotBound {
		t.Errorf("without a stream: %v", err)
	}
}
