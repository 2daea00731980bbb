package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// holding is memory that is held for replies, out of one gate, until it is freed.
type holding struct {
	gate *admit.Gate

	mu   sync.Mutex
	have int64
	held []func()
}

// room takes memory for what comes of a reply. Several replies may share a holding.
func (h *holding) room(ctx context.Context) grpcraw.Room {
	return func(bytes int64) error {
		h.mu.Lock()
		have := h.have
		h.have += bytes
		h.mu.Unlock()
		_, release, err := charge(ctx, h.gate, have, bytes)
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held = append(h.held, release)
		return nil
	}
}

// free gives all of it back.
func (h *holding) free() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, release := range h.held {
		release()
	}
	h.held, h.have = nil, 0
}

// charge takes memory out of a gate for a call that has some of it. More than there is in all is as much as there is.
func charge(ctx context.Context, gate *admit.Gate, have, more int64) (given int64, release func(), err error) {
	given = min(more, gate.Limit()-have)
	if given <= 0 {
		return 0, func() {}, nil
	}
	place, err := gate.Enter(ctx, given)
	if err != nil {
		if context.Cause(ctx) != nil {
			return 0, nil, context.Cause(ctx)
		}
		return 0, nil, errMemory
	}
	return given, place.Release, nil
}

// ask asks a node something for the broker itself and hands the message of its reply, of at most most bytes, to read. Memory for a long one comes
// out of gate. It is not counted among the calls of the node.
func (b *Broker) ask(ctx context.Context, k *backend, method string, timeout time.Duration, req proto.Message, most int, gate *admit.Gate, read func([]byte) error) error {
	data, err := grpcraw.Encode(req)
	if err != nil {
		return err
	}
	h := &holding{gate: gate}
	defer h.free()
	r, err := k.node.Do(ctx, &grpcraw.Call{Method: method, Accept: grpcraw.Accepted, Timeout: timeout, Message: data}, most, h.room(ctx))
	if err != nil {
		return err
	}
	if err := r.End.Err(); err != nil {
		return err
	}
	message, err := r.Message(most, h.room(ctx))
	if err != nil {
		return err
	}
	return read(message)
}

var errDecode = status.Error(codes.Internal, "failed to decode Protobuf message")

// fields calls each with the fields of a message and their values, which is as much of them as a length is of their bytes.
func fields(b []byte, each func(number protowire.Number, kind protowire.Type, value []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errDecode
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return errDecode
		}
		if err := each(number, kind, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// errEnough ends the reading of a message before its end.
var errEnough = errors.New("enough")

// indexNames reads the reply to ListIndexes, of whose names no more than most are taken. In memory, a message of very short names is many times as
// long as on the wire.
func indexNames(b []byte, most int) (names []string, err error) {
	number := (*summapb.ListIndexesResponse)(nil).ProtoReflect().Descriptor().Fields().ByName("index_names").Number()
	err = fields(b, func(n protowire.Number, kind protowire.Type, value []byte) error {
		if n != number || kind != protowire.BytesType {
			return nil
		}
		if len(names) == most {
			return errEnough
		}
		name, _ := protowire.ConsumeBytes(value)
		names = append(names, string(name))
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return names, nil
}

// counts reads how many documents and segments a reply to GetIndexInfo tells of. The rest of it may be anything.
func counts(b []byte) (docs, segments uint32, err error) {
	of := (*summapb.GetIndexInfoResponse)(nil).ProtoReflect().Descriptor().Fields()
	numDocs, numSegments := of.ByName("num_docs").Number(), of.ByName("num_segments").Number()
	err = fields(b, func(n protowire.Number, kind protowire.Type, value []byte) error {
		if kind != protowire.VarintType {
			return nil
		}
		v, _ := protowire.ConsumeVarint(value)
		switch n {
		case numDocs:
			docs = uint32(v)
		case numSegments:
			segments = uint32(v)
		}
		return nil
	})
	return docs, segments, err
}
