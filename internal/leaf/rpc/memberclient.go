package rpc

import (
	"context"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/leaf"
)

// Fetch implements leaf.Member. What is shown of all documents together has at most Options.MaxReply bytes.
func (c *Client) Fetch(ctx context.Context, req *leaf.FetchRequest) (*leaf.FetchReply, error) {
	m := method{name: "Fetch"}
	out, err := packFetch(req)
	if err != nil {
		return nil, err
	}
	var reply pb.FetchReply
	r := &leaf.FetchReply{}
	size := int64(0)
	err = c.list(ctx, m, out, &reply, func() (bool, error) {
		n := len(reply.Docs.GetParts())
		if err := fits("documents", len(r.Docs)+n, len(req.IDs)); err != nil {
			return false, c.unreadable(m, err)
		}
		docs, err := unpackShown(reply.Docs, n)
		if err != nil {
			return false, c.unreadable(m, err)
		}
		for i := range docs {
			size += shownBytes(&docs[i])
		}
		if size > int64(c.o.MaxReply) {
			return false, c.unreadable(m, malformed("documents", "there are more than %d bytes", c.o.MaxReply))
		}
		// Reset lets go of the bytes, so the documents of a message keep them.
		r.Docs = append(r.Docs, docs...)
		if reply.End == nil {
			return false, nil
		}
		if len(r.Docs) != len(req.IDs) {
			return false, c.unreadable(m, malformed("documents", "there are %d for %d ids", len(r.Docs), len(req.IDs)))
		}
		r.Notes, r.Plan = reply.End.Notes, reply.End.Plan
		r.Meta, err = unpackMeta(reply.End.Meta)
		return true, c.unreadable(m, err)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Indexes implements leaf.Member.
func (c *Client) Indexes(ctx context.Context, _ *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	m := method{name: "Indexes"}
	var reply pb.IndexesReply
	if err := c.unary(ctx, m, &pb.IndexesRequest{}, &reply); err != nil {
		return nil, err
	}
	r, err := unpackIndexes(&reply)
	return whole(c, m, r, err)
}

// PutIndex implements leaf.Member.
func (c *Client) PutIndex(ctx context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	m := method{"PutIndex", true}
	var reply pb.PutIndexReply
	if err := c.unary(ctx, m, &pb.PutIndexRequest{Index: req.Index, Epoch: req.Epoch, Schema: req.Schema}, &reply); err != nil {
		return nil, err
	}
	r, err := unpackPutIndexReply(&reply)
	return whole(c, m, r, err)
}

// DropIndex implements leaf.Member.
func (c *Client) DropIndex(ctx context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	m := method{"DropIndex", true}
	var reply pb.DropIndexReply
	if err := c.unary(ctx, m, &pb.DropIndexRequest{Index: req.Index, Epoch: req.Epoch}, &reply); err != nil {
		return nil, err
	}
	r, err := unpackDropIndexReply(&reply)
	return whole(c, m, r, err)
}

// Sums implements leaf.Member.
func (c *Client) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	m := method{name: "Sums"}
	out, err := packSumsRequest(req)
	if err != nil {
		return nil, err
	}
	var reply pb.SumsReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackSumsReply(&reply, req)
	return whole(c, m, r, err)
}

// Digest implements leaf.Member.
func (c *Client) Digest(ctx context.Context, req *leaf.DigestRequest) (*leaf.DigestReply, error) {
	m := method{name: "Digest"}
	out, err := packDigestRequest(req)
	if err != nil {
		return nil, err
	}
	var reply pb.DigestReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackDigestReply(&reply, req.Depth)
	return whole(c, m, r, err)
}

// Sync implements leaf.Member.
func (c *Client) Sync(ctx context.Context, req *leaf.SyncRequest) (*leaf.SyncReply, error) {
	m := method{"Sync", true}
	out, err := packSync(req)
	if err != nil {
		return nil, err
	}
	var reply pb.SyncReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackSyncReply(&reply, len(req.Items))
	return whole(c, m, r, err)
}

// Place implements leaf.Member.
func (c *Client) Place(ctx context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	m := method{"Place", true}
	out, err := packPlace(req)
	if err != nil {
		return nil, err
	}
	var reply pb.PlaceReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackPlaceReply(&reply)
	return whole(c, m, r, err)
}

// Placed implements leaf.Member.
func (c *Client) Placed(ctx context.Context) (*leaf.PlaceReply, error) {
	m := method{name: "Placed"}
	var reply pb.PlaceReply
	if err := c.unary(ctx, m, &pb.PlacedRequest{}, &reply); err != nil {
		return nil, err
	}
	r, err := unpackPlaceReply(&reply)
	return whole(c, m, r, err)
}
