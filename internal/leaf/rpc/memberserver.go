package rpc

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// clusterCall is a unary call of a leaf.Member, which the server's leaf may not be.
func clusterCall[M any, P message[M]](name string, k kind, serve func(context.Context, leaf.Member, P) (proto.Message, error)) grpc.StreamDesc {
	return unary(name, k, func(s *Server, ctx context.Context, m P) (proto.Message, error) {
		member, err := s.member()
		if err != nil {
			return nil, err
		}
		return serve(ctx, member, m)
	})
}

func (s *Server) member() (leaf.Member, error) {
	if m, ok := s.leaf.(leaf.Member); ok {
		return m, nil
	}
	return nil, api.NewProblem(api.MethodNotAllowed, "this node does not take part in a cluster")
}

// hold sees to it that so many bytes of a reply that the leaf has made are charged, no more and no less, but that a message of a size
// always has room beside them. It does not wait for room, because the reply would stand there meanwhile.
func (c *call) hold(bytes int64, message int) error {
	want := max(0, min(bytes-c.free, c.s.o.Memory-bufferSize(message)))
	if want < c.charged {
		c.s.memory.Release(c.charged - want)
	} else if err := c.s.charge(c.ctx, want-c.charged, 0); err != nil {
		return err
	}
	c.charged = want
	return nil
}

// shownFits tells how much is shown of documents, and refuses more than one reply may have, before anything is made of it.
func (s *Server) shownFits(docs []leaf.Shown) (int64, error) {
	sum := int64(0)
	for i := range docs {
		sum += shownBytes(&docs[i])
	}
	if limit := int64(s.o.MaxReply); sum > limit {
		detail := fmt.Sprintf("what is shown of the documents has %d bytes; at most %d are sent", sum, limit)
		return 0, api.NewProblem(api.ReplyTooLarge, detail).Within(limit)
	}
	return sum, nil
}

func (s *Server) fetch(c *call, m *pb.FetchRequest) error {
	member, err := s.member()
	if err != nil {
		return err
	}
	req, err := unpackFetch(m, s.o.Query)
	if err != nil {
		return err
	}
	r, err := member.Fetch(c.ctx, req)
	if err != nil {
		return err
	}
	// The leaf has done its part. What it shows is charged until it is in a message, and let go of then.
	c.rest()
	docs := slices.Clone(r.Docs)
	end := &pb.FetchReply{End: &pb.FetchEnd{Meta: packMeta(&r.Meta), Notes: r.Notes, Plan: r.Plan}}
	rest, err := s.shownFits(docs)
	if err != nil {
		return err
	}
	if err := c.hold(rest, 0); err != nil {
		return err
	}
	for len(docs) > 0 {
		n, size := page(docs)
		message := &pb.FetchReply{Docs: packShown(docs[:n])}
		clear(docs[:n])
		docs, rest = docs[n:], rest-size
		if err := c.hold(rest, proto.Size(message)); err != nil {
			return err
		}
		if err := c.send(message); err != nil {
			return err
		}
	}
	return c.send(end)
}

func serveIndexes(ctx context.Context, l leaf.Member, _ *pb.IndexesRequest) (proto.Message, error) {
	r, err := l.Indexes(ctx, &leaf.IndexesRequest{})
	if err != nil {
		return nil, err
	}
	return packIndexes(r), nil
}

func servePutIndex(ctx context.Context, l leaf.Member, m *pb.PutIndexRequest) (proto.Message, error) {
	r, err := l.PutIndex(ctx, &leaf.PutIndexRequest{Index: m.Index, Epoch: m.Epoch, Schema: m.Schema})
	if err != nil {
		return nil, err
	}
	return packPutIndexReply(r), nil
}

func serveDropIndex(ctx context.Context, l leaf.Member, m *pb.DropIndexRequest) (proto.Message, error) {
	r, err := l.DropIndex(ctx, &leaf.DropIndexRequest{Index: m.Index, Epoch: m.Epoch})
	if err != nil {
		return nil, err
	}
	return packDropIndexReply(r), nil
}

func serveSums(ctx context.Context, l leaf.Member, m *pb.SumsRequest) (proto.Message, error) {
	req, err := unpackSumsRequest(m)
	if err != nil {
		return nil, err
	}
	r, err := l.Sums(ctx, req)
	if err != nil {
		return nil, err
	}
	return packSumsReply(r), nil
}

func serveDigest(ctx context.Context, l leaf.Member, m *pb.DigestRequest) (proto.Message, error) {
	req, err := unpackDigestRequest(m)
	if err != nil {
		return nil, err
	}
	r, err := l.Digest(ctx, req)
	if err != nil {
		return nil, err
	}
	return packDigestReply(r), nil
}

func serveSync(ctx context.Context, l leaf.Member, m *pb.SyncRequest) (proto.Message, error) {
	req, err := unpackSync(m)
	if err != nil {
		return nil, err
	}
	r, err := l.Sync(ctx, req)
	if err != nil {
		return nil, err
	}
	return packSyncReply(r), nil
}

func servePlace(ctx context.Context, l leaf.Member, m *pb.PlaceRequest) (proto.Message, error) {
	req, err := unpackPlace(m)
	if err != nil {
		return nil, err
	}
	r, err := l.Place(ctx, req)
	if err != nil {
		return nil, err
	}
	return packPlaceReply(r), nil
}

func servePlaced(ctx context.Context, l leaf.Member, _ *pb.PlacedRequest) (proto.Message, error) {
	r, err := l.Placed(ctx)
	if err != nil {
		return nil, err
	}
	return packPlaceReply(r), nil
}
