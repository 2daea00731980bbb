package framed

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// The calls of a leaf.Member.

var _ leaf.Member = (*Client)(nil)

// fetchAtOnce is for how many documents one request asks at most.
const fetchAtOnce = 1_000

// Fetch implements leaf.Member.
func (c *Client) Fetch(ctx context.Context, req *leaf.FetchRequest) (*leaf.FetchReply, error) {
	if len(req.IDs) > leaf.MaxFetch {
		return nil, tooMany("ids", len(req.IDs), leaf.MaxFetch)
	}
	out := &leaf.FetchReply{}
	left, atOnce := req.IDs, fetchAtOnce
	for first := true; ; first = false {
		part := *req
		part.IDs = left[:min(len(left), atOnce)]
		a := asking{call: "Fetch", op: opFetch, index: req.Index}
		got, err := ask(c, ctx, a, func(w *writer) { appendFetchRequest(w, &part) },
			func(b []byte) (*fetchPage, *api.Problem, error) { return readFetchReply(b, len(part.IDs)) })
		if err != nil {
			if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.ReplyTooLarge && len(part.IDs) > 1 {
				atOnce = len(part.IDs) / 2
				continue
			}
			return nil, err
		}
		done := len(got.Docs)
		if done == 0 && len(part.IDs) > 0 || !slices.Equal(part.IDs[done:], got.rest) {
			return nil, c.malformed(a, "the rest of the ids is not their end")
		}
		addMeta(&out.Meta, &got.Meta)
		out.Docs = append(out.Docs, got.Docs...)
		for _, n := range got.Notes {
			out.Notes = addString(out.Notes, n)
		}
		if first {
			out.Plan = got.Plan
		}
		if left = left[done:]; len(left) == 0 {
			return out, nil
		}
		if len(got.rest) > 0 {
			atOnce = done // the others are about as long
		}
	}
}

// Indexes implements leaf.Member.
func (c *Client) Indexes(ctx context.Context, _ *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return ask(c, ctx, asking{call: "Indexes", op: opIndexes}, nil, readIndexesReply)
}

// PutIndex implements leaf.Member.
func (c *Client) PutIndex(ctx context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return ask(c, ctx, asking{call: "PutIndex", op: opPutIndex, index: req.Index, write: true},
		func(w *writer) { appendPutIndexRequest(w, req) }, readPutIndexReply)
}

// DropIndex implements leaf.Member.
func (c *Client) DropIndex(ctx context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return ask(c, ctx, asking{call: "DropIndex", op: opDropIndex, index: req.Index, write: true},
		func(w *writer) { appendDropIndexRequest(w, req) }, readDropIndexReply)
}

// Sums implements leaf.Member. Those of a range come in one reply, which has fewer than were asked for where a frame has no room.
func (c *Client) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	a := asking{call: "Sums", op: opSums, index: req.Index}
	if req.Range != nil {
		return ask(c, ctx, a, func(w *writer) { appendSumsRequest(w, req) },
			func(b []byte) (*leaf.SumsReply, *api.Problem, error) {
				return readSumsReply(b, max(0, min(req.Limit, leaf.MaxIDs)), true)
			})
	}
	if len(req.IDs) > leaf.MaxIDs {
		return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
	}
	out := &leaf.SumsReply{}
	for left := req.IDs; ; {
		part := *req
		part.IDs = left[:c.many(len(left), func(i int) int { return len(left[i]) })]
		got, err := ask(c, ctx, a, func(w *writer) { appendSumsRequest(w, &part) },
			func(b []byte) (*leaf.SumsReply, *api.Problem, error) { return readSumsReply(b, len(part.IDs), false) })
		if err != nil {
			return nil, err
		}
		addMeta(&out.Meta, &got.Meta)
		out.Sums = append(out.Sums, got.Sums...)
		if left = left[len(part.IDs):]; len(left) == 0 {
			if len(part.IDs) == len(req.IDs) {
				out.Fence, out.Synced, out.Last = got.Fence, got.Synced, got.Last
			}
			return out, nil
		}
	}
}

// partBytes is how many bytes of ids or documents one request has, unless one alone is longer; never more than an eighth of a frame, so
// that they fit however much of them is escaped.
const partBytes = MaxRequest / 8

// many is how many of n texts go into one request.
func (c *Client) many(n int, size func(i int) int) int {
	room := min(partBytes, c.most/8)
	for i := range n {
		if room -= size(i) + textHead; room < 0 {
			return max(i, 1)
		}
	}
	return n
}

// Digest implements leaf.Member.
func (c *Client) Digest(ctx context.Context, req *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return ask(c, ctx, asking{call: "Digest", op: opDigest, index: req.Index}, func(w *writer) { appendDigestRequest(w, req) },
		func(b []byte) (*leaf.DigestReply, *api.Problem, error) { return readDigestReply(b, req.Depth) })
}

// Sync implements leaf.Member.
func (c *Client) Sync(ctx context.Context, req *leaf.SyncRequest) (*leaf.SyncReply, error) {
	if len(req.Items) > leaf.MaxSync {
		return nil, tooMany("items", len(req.Items), leaf.MaxSync)
	}
	out := &leaf.SyncReply{}
	a := asking{call: "Sync", op: opSync, index: req.Index, write: true}
	for left := req.Items; ; {
		part := *req
		part.Items = left[:c.many(len(left), func(i int) int { return len(left[i].ID) + len(left[i].Body) + sumBytes })]
		got, err := ask(c, ctx, a, func(w *writer) { appendSyncRequest(w, &part) },
			func(b []byte) (*leaf.SyncReply, *api.Problem, error) { return readSyncReply(b, len(part.Items)) })
		if err != nil {
			if slices.Contains(out.Applied, true) {
				err = c.inPart(a.call, err)
			}
			return nil, err
		}
		addMeta(&out.Meta, &got.Meta)
		if out.Problems != nil || got.Problems != nil {
			out.Problems = append(out.Problems, make([]*api.Problem, len(out.Applied)-len(out.Problems))...)
			out.Problems = append(out.Problems, got.Problems...)
			out.Problems = append(out.Problems, make([]*api.Problem, len(out.Applied)+len(part.Items)-len(out.Problems))...)
		}
		out.Applied = append(out.Applied, got.Applied...)
		out.Sums = append(out.Sums, got.Sums...)
		if left = left[len(part.Items):]; len(left) == 0 {
			return out, nil
		}
	}
}

// inPart is the error of a write of which a part is in.
func (c *Client) inPart(call string, err error) error {
	t := &leaf.TransportError{Address: c.addr, Call: call, Cause: err}
	if e, ok := errors.AsType[*leaf.TransportError](err); ok {
		copied := *e
		t = &copied
	}
	t.MaybeApplied = true
	return t
}

// Place implements leaf.Member.
func (c *Client) Place(ctx context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	return ask(c, ctx, asking{call: "Place", op: opPlace, write: true}, func(w *writer) { appendPlaceRequest(w, req) }, readPlaceReply)
}

// Placed implements leaf.Member.
func (c *Client) Placed(ctx context.Context) (*leaf.PlaceReply, error) {
	return ask(c, ctx, asking{call: "Placed", op: opPlaced}, nil, readPlaceReply)
}
