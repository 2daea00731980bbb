package framed

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// The operations of a leaf.Member.

// membersOnly returns the leaf as a member of a cluster.
func (h *Handler) membersOnly(c *call) (leaf.Member, error) {
	if h.member == nil {
		return nil, api.NewProblem(api.MethodNotAllowed, fmt.Sprintf("op: %s is for members of a cluster, and this is none", c.op)).On(opMember)
	}
	return h.member, nil
}

// short is the error of a leaf that answers with less than it was asked for.
func short(op string, have, want int) error {
	return fmt.Errorf("%s: the leaf answers for %d of %d", op, have, want)
}

func (h *Handler) fetch(ctx context.Context, c *call, b []byte) ([]byte, error) {
	member, err := h.membersOnly(c)
	if err != nil {
		return nil, err
	}
	req := readFetchRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := member.Fetch(ctx, &req.FetchRequest)
	switch {
	case err != nil:
		return nil, err
	case len(r.Docs) != len(req.IDs):
		return nil, short(opFetch, len(r.Docs), len(req.IDs))
	}
	page := &fetchPage{FetchReply: *r}
	if req.rest {
		n := h.fitting(req.IDs, r)
		if page.Docs, page.rest = r.Docs[:n], req.IDs[n:]; n == 0 && len(req.IDs) > 0 {
			return nil, replyTooLarge(fmt.Sprintf("what is to be shown of one document takes more than half of the %d bytes that a reply may have", h.o.MaxReply), h.o.MaxReply)
		}
	}
	if err := c.sized(ctx, shownBytes(r.Docs)+textBytes(page.rest)+len(r.Plan)); err != nil {
		return nil, err
	}
	return appendFetchReply(b, page), nil
}

// fitting is how many documents a reply has that may leave a rest.
func (h *Handler) fitting(ids []string, r *leaf.FetchReply) int {
	most := h.o.MaxReply - replyRoom - len(r.Plan)
	room := most
	var scratch []byte
	for _, id := range ids {
		scratch = api.AppendString(scratch[:0], id)
		room -= len(scratch) + 1
	}
	room = min(room, max(exportBytes, room/8))
	for i := range r.Docs {
		size := shownSize(&r.Docs[i])
		if room -= size + shownHead; room < 0 && (i > 0 || size > most/2) {
			return i
		}
	}
	return len(r.Docs)
}

// shownHead is what a document takes in a reply besides what is rendered of it.
const shownHead = hitHead

func (h *Handler) indexes(ctx context.Context, c *call, b []byte) ([]byte, error) {
	member, err := h.membersOnly(c)
	if err != nil {
		return nil, err
	}
	r, err := member.Indexes(ctx, &leaf.IndexesRequest{})
	if err != nil {
		return nil, err
	}
	if err := c.sized(ctx, indexesBytes(r.Indexes)); err != nil {
		return nil, err
	}
	return appendIndexesReply(b, r), nil
}

func (h *Handler) putIndex(ctx context.Context, c *call, b []byte) ([]byte, error) {
	member, err := h.membersOnly(c)
	if err != nil {
		return nil, err
	}
	req := readPutIndexRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := member.PutIndex(ctx, req)
	if err != nil {
		return nil, err
	}
	c.written = true // without its schema the reply would say another thing; the call can be repeated
	return appendPutIndexReply(b, r), nil
}

func (h *Handler) dropIndex(ctx context.Context, c *call, b []byte) ([]byte, error) {
	member, err := h.membersOnly(c)
	if err != nil {
		return nil, err
	}
	req := readDropIndexRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := member.DropIndex(ctx, req)
	if err != nil {
		return nil, err
	}
	c.brief = func(b []byte) []byte {
		short := *r
		short.Info.Schema = ""
		return appendDropIndexReply(b, &short)
	}
	return appendDropIndexReply(b, r), nil
}

func (h *Handler) sums(ctx context.Context, c *call, b []byte) ([]byte, error) {
	member, err := h.membersOnly(c)
	if err != nil {
		return nil, err
	}
	req := readSumsRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := member.Sums(ctx, req)
	if err != nil {
		return nil, err
	}
	ranged := req.Range != nil
	want := len(req.IDs)
	if ranged {
		want = len(r.IDs)
	}
	if len(r.Sums) != want {
		return nil, short(opSums, len(r.Sums), want)
	}
	if err := c.sized(ctx, textBytes(r.IDs)+sumBytes*len(r.Sums)); err != nil {
		return nil, err
	}
	if !ranged {
		return appendSumsReply(b, r, false), nil
	}
	// What does not fit is left for the next request.
	room := h.o.MaxReply - replyRoom
	var scratch []byte
	for i, id := range r.IDs {
		scratch = api.AppendString(scratch[:0], id)
		if room -= len(scratch) + 1 + sumBytes; room < 0 && i > 0 {
			cut := *r
			cut.IDs, cut.Sums, cut.Next = r.IDs[:i], r.Sums[:i], r.IDs[i-1]
			r = &cut
			break
		}
	}
	return appendSumsReply(b, r, true), nil
}

func (h *Handler) digest(ctx context.Context, c *call, b []byte) ([]byte, error) {
	member, err := h.membersOnly(c)
	if err != nil {
		return nil, err
	}
	req := readDigestRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := member.Digest(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := c.sized(ctx, textHead*len(r.Docs)+sumBytes*len(r.Sums)); err != nil {
		return nil, err
	}
	return appendDigestReply(b, r), nil
}

func (h *Handler) sync(ctx context.Context, c *call, b []byte) ([]byte, error) {
	member, err := h.membersOnly(c)
	if err != nil {
		return nil, err
	}
	req := readSyncRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := member.Sync(ctx, req)
	if err != nil {
		return nil, err
	}
	c.brief = func(b []byte) []byte {
		short := *r
		short.Problems = slices.Clone(r.Problems)
		for i, p := range short.Problems {
			if p != nil {
				short.Problems[i] = &api.Problem{Code: p.Code, Status: p.Status}
			}
		}
		return appendSyncReply(b, &short)
	}
	return appendSyncReply(b, r), nil
}

func (h *Handler) place(ctx context.Context, c *call, b []byte) ([]byte, error) {
	member, err := h.membersOnly(c)
	if err != nil {
		return nil, err
	}
	req := readPlaceRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := member.Place(ctx, req)
	if err != nil {
		return nil, err
	}
	c.written = true // as of put_index
	return appendPlaceReply(b, r), nil
}

func (h *Handler) placed(ctx context.Context, c *call, b []byte) ([]byte, error) {
	member, err := h.membersOnly(c)
	if err != nil {
		return nil, err
	}
	r, err := member.Placed(ctx)
	if err != nil {
		return nil, err
	}
	return appendPlaceReply(b, r), nil
}
