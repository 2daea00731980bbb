package read

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// IDs is leaf.Leaf.IDs. It fails where a shard is missing. No more than two pages of each shard are held at once.
func (r *Reader) IDs(ctx context.Context, req *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	if req.Limit < 0 {
		return nil, api.NewProblem(api.InvalidParameter, fmt.Sprintf("limit: it is a number from 0, which means all, on (got %d)", req.Limit)).On("limit")
	}
	// What was given goes on counting when the rest is read by another map.
	m := &idMerge{limit: req.Limit, last: req.After}
	var taken error // what page failed with
	reply, err := answerWithin(ctx, r, 0, func(c *running, p *plan) (*leaf.IDsReply, error) {
		m.page = func(ids []string) error {
			if c.ctx.Err() != nil {
				return context.Cause(c.ctx)
			}
			taken = page(ids)
			return taken
		}
		return r.ids(c, p, req, m)
	})
	if taken != nil {
		return nil, taken
	}
	return reply, err
}

// idMerge makes pages of many streams of ids.
type idMerge struct {
	page  func(ids []string) error
	limit int    // 0: none
	given int    // ids in pages that were given
	last  string // the last of them, or that after which the list begins
	twice int    // ids that came from a second group

	heap []*idHead // by id
}

// idHead is what was read of the ids of one group.
type idHead struct {
	*stream[[]string]
	ids []string // not empty in the heap
}

// next moves to the next id; false at the end.
func (h *idHead) next() bool {
	if len(h.ids) > 1 {
		h.ids = h.ids[1:]
		return true
	}
	var ok bool
	h.ids, ok = h.stream.next()
	return ok
}

func (r *Reader) ids(c *running, p *plan, req *leaf.IDsRequest, m *idMerge) (*leaf.IDsReply, error) {
	s := newStreams[[]string](c.ctx, len(p.groups))
	defer s.stop()
	beyond := make([]bool, len(p.groups)) // of each group: it has ids behind those that it was asked for
	for i, g := range p.groups {
		if !g.visible {
			continue
		}
		q := *looking(opIDs, req, g.view)
		q.After = m.last
		if m.limit > 0 {
			q.Limit = m.limit - m.given
		}
		s.start(r, i, g, idsOf(&q, &beyond[i]))
	}
	m.heap = m.heap[:0]
	whole := true
	for _, st := range s.all {
		if st == nil {
			continue
		}
		if h := (&idHead{stream: st}); h.next() {
			m.heap = append(m.heap, h)
		}
		whole = whole && !st.failed()
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	for whole {
		var ids []string
		if ids, whole = m.fill(); len(ids) == 0 || !whole {
			break
		}
		if err := m.page(ids); err != nil {
			return nil, err
		}
		m.given, m.last = m.given+len(ids), ids[len(ids)-1]
	}
	g, err := s.settle(r, c, p, req.Index)
	if err != nil {
		return nil, err
	}
	r.duplicates.Add(uint64(m.twice))
	out := &leaf.IDsReply{}
	if m.limit > 0 && m.given == m.limit && (len(m.heap) > 0 || slices.Contains(beyond, true)) {
		out.Next = m.last
	}
	out.Meta = describe(r, opStream, g)
	return out, nil
}

// idsOf lists the ids of one group. beyond is set if there are more than were asked for.
func idsOf(req *leaf.IDsRequest, beyond *bool) giver[[]string] {
	after, left := req.After, req.Limit
	return func(ctx context.Context, m leaf.Member, heard func(func() error) error, send func([]string) error) (leaf.Meta, error) {
		q := *req
		q.After = after
		// Where all had come before the end was lost, one more tells whether there are more.
		over := req.Limit > 0 && left <= 0
		if req.Limit > 0 {
			q.Limit = max(left, 1)
		}
		take := func(ids []string) error {
			switch {
			case len(ids) == 0:
				return nil
			case over:
				*beyond = true
				return nil
			case ids[0] <= after || !slices.IsSorted(ids):
				return fmt.Errorf("the ids after %q are not in order", after)
			}
			if err := send(ids); err != nil {
				return err
			}
			after, left = ids[len(ids)-1], left-len(ids)
			return nil
		}
		reply, err := m.IDs(ctx, &q, func(ids []string) error { return heard(func() error { return take(ids) }) })
		if err != nil {
			return leaf.Meta{}, err
		}
		*beyond = *beyond || reply.Next != ""
		return reply.Meta, nil
	}
}

// fill makes the next page; none at the end. It is false if a stream failed on the way.
func (m *idMerge) fill() (ids []string, whole bool) {
	want := leaf.MaxIDPage
	if m.limit > 0 {
		want = min(want, m.limit-m.given)
	}
	last := m.last
	for len(m.heap) > 0 {
		h := m.heap[0]
		// Of an id that stands in two groups one is a copy that is out of place.
		if id := h.ids[0]; id == last {
			m.twice++
		} else {
			if len(ids) == want {
				return ids, true
			}
			if ids == nil {
				ids = make([]string, 0, want)
			}
			ids, last = append(ids, id), id
		}
		if !h.next() {
			end := len(m.heap) - 1
			m.heap[0] = m.heap[end]
			m.heap = m.heap[:end]
			if h.failed() {
				return nil, false
			}
		}
		m.down(0)
	}
	return ids, true
}

// down moves element i down the heap to its place.
func (m *idMerge) down(i int) {
	for {
		least := i
		for _, k := range [2]int{2*i + 1, 2*i + 2} {
			if k < len(m.heap) && m.heap[k].ids[0] < m.heap[least].ids[0] {
				least = k
			}
		}
		if least == i {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}

// Export is leaf.Leaf.Export. It fails where a shard that owns one of the documents is missing. No more than one document of each shard
// is held at once.
func (r *Reader) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	if len(req.IDs) > leaf.MaxIDs {
		return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
	}
	// What was given, or known to be missing, stays so when the rest is read by another map.
	e := &exporting{ids: req.IDs}
	var taken error // what each failed with
	reply, err := answerWithin(ctx, r, 0, func(c *running, p *plan) (*leaf.ExportReply, error) {
		e.each = func(doc leaf.ExportedDoc) error {
			if c.ctx.Err() != nil {
				return context.Cause(c.ctx)
			}
			taken = each(doc)
			return taken
		}
		return r.export(c, p, req, e)
	})
	if taken != nil {
		return nil, taken
	}
	return reply, err
}

// exporting is an export under way.
type exporting struct {
	each    func(doc leaf.ExportedDoc) error
	ids     []string // what is left
	missing []string
}

// exported is a document on its way from a group.
type exported struct {
	doc   leaf.ExportedDoc
	at    int             // its place in the list of the group
	taken chan<- struct{} // is told when the document is not used any more
}

var errNotAsked = errors.New("a document came that was not asked for")

func (r *Reader) export(c *running, p *plan, req *leaf.ExportRequest, e *exporting) (*leaf.ExportReply, error) {
	s := newStreams[exported](c.ctx, len(p.groups))
	defer s.stop()
	owners := splitIDs(p, e.ids)
	for i, g := range p.groups {
		if len(owners.ids[i]) == 0 {
			continue
		}
		q := *looking(opExport, req, g.view)
		q.IDs = owners.ids[i]
		s.start(r, i, g, exportOf(&q))
	}
	heads := make([]*exported, len(p.groups))
	for i, id := range e.ids {
		own := owners.owner[i]
		st := s.all[own]
		if heads[own] == nil {
			if h, ok := st.next(); ok {
				heads[own] = &h
			} else if st.failed() {
				break
			}
		}
		if h := heads[own]; h != nil && h.at == owners.at[i] {
			if err := e.each(h.doc); err != nil {
				return nil, err
			}
			heads[own] = nil
			h.taken <- struct{}{}
		} else {
			e.missing = append(e.missing, id)
		}
		e.ids = e.ids[1:]
	}
	// Those that have nothing more to give have still to say so.
	for i, st := range s.all {
		if st != nil && heads[i] == nil && len(e.ids) == 0 {
			st.next()
		}
	}
	g, err := s.settle(r, c, p, req.Index)
	if err != nil {
		return nil, err
	}
	return &leaf.ExportReply{Meta: describe(r, opStream, g), Missing: e.missing}, nil
}

// exportOf gives the documents of one group.
func exportOf(req *leaf.ExportRequest) giver[exported] {
	next := 0 // place of the first id of which nothing is known
	return func(ctx context.Context, m leaf.Member, heard func(func() error) error, send func(exported) error) (leaf.Meta, error) {
		q := *req
		q.IDs = req.IDs[next:]
		taken := make(chan struct{}, 1)
		take := func(doc leaf.ExportedDoc) error {
			at := slices.Index(req.IDs[next:], doc.ID)
			if at < 0 {
				return errNotAsked
			}
			at += next
			if err := send(exported{doc, at, taken}); err != nil {
				return err
			}
			next = at + 1
			select {
			case <-taken:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		reply, err := m.Export(ctx, &q, func(doc leaf.ExportedDoc) error { return heard(func() error { return take(doc) }) })
		if err != nil {
			return leaf.Meta{}, err
		}
		return reply.Meta, nil
	}
}
