package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/topology/placement"
)

// narrow makes the reading one of the documents that all shares own.
func (r *reading) narrow(ctx context.Context, n *Node, shares []placement.Share) error {
	if len(shares) == 0 {
		return nil
	}
	key, keep, err := n.owned(shares)
	if err != nil {
		return err
	}
	masked, err := r.snap.Masked(ctx, key, keep)
	if err != nil {
		return err
	}
	r.snap.Release()
	r.snap = masked
	return nil
}

// owned is the test for documents that all shares own, and its name.
func (n *Node) owned(shares []placement.Share) (key string, keep func(id []byte) bool, err error) {
	if len(shares) > leaf.MaxShares {
		return "", nil, tooMany("owned", len(shares), leaf.MaxShares)
	}
	type share struct {
		*placement.Placement
		ordinal int
	}
	all, names := make([]share, len(shares)), make([]string, len(shares))
	for i, s := range shares {
		p, err := n.placements.Get(s.Spec)
		if err != nil {
			return "", nil, api.NewProblem(api.InvalidParameter, "owned: "+err.Error()).On("owned")
		}
		if s.Ordinal < 0 || s.Ordinal >= s.Shards {
			return "", nil, outside("owned", s.Ordinal, s.Shards-1)
		}
		all[i] = share{p, s.Ordinal}
		spec := p.Spec().Normal()
		names[i] = string(spec.Rule) + " " + strconv.Itoa(spec.Shards) + " " + strconv.Itoa(spec.VNodes) + " " + strconv.Itoa(s.Ordinal)
	}
	slices.Sort(names)
	return fmt.Sprint(slices.Compact(names)), func(id []byte) bool {
		h := placement.Hash(id)
		for i := range all {
			if !all[i].Owns(all[i].ordinal, h) {
				return false
			}
		}
		return true
	}, nil
}

// noSources is the refusal of what needs the sources of documents.
func noSources() *api.Problem {
	return api.NewProblem(api.InvalidParameter, "index: it keeps no sources, so that its documents have no checksums").On(indexParam)
}

// Sums implements leaf.Member. The call holds a place among the scans. A checksum is that of the whole document as it was sent, without
// white space: fields that are indexed and not stored are in it, since an index keeps them for Export. So copies with equal checksums
// answer every search alike once their schemas are equal.
func (l *shardLeaf) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return callLeaf(ctx, l, opSums, req.Index, req.View, func(c *leafCall) (*leaf.SumsReply, error) {
		if len(req.IDs) > leaf.MaxIDs {
			return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
		}
		if r := req.Range; r != nil {
			switch {
			case len(req.IDs) > 0:
				return nil, api.NewProblem(api.InvalidParameter, "range: ids are given too; checksums are of the one or the other").On("range")
			case r.From > r.To:
				return nil, api.NewProblem(api.InvalidParameter, fmt.Sprintf("range: it begins at %d, above its end at %d", r.From, r.To)).On("range")
			case req.Limit < 1 || req.Limit > leaf.MaxIDs:
				return nil, api.NewProblem(api.InvalidParameter, fmt.Sprintf("limit: it is a number from 1 to %d (got %d)", leaf.MaxIDs, req.Limit)).On("limit").Within(leaf.MaxIDs)
			}
		}
		reply := &leaf.SumsReply{}
		if req.Fence {
			if req.Range != nil {
				return nil, api.NewProblem(api.InvalidParameter, "fence: it is made for ids, not for a range").On("fence")
			}
			if prob := req.Mark.Check(); prob != nil {
				return nil, prob
			}
			var err error
			if reply.Fence, reply.Last, err = c.fence(req.IDs, req.Mark); err != nil {
				return nil, err
			}
		}
		v, err := c.read(c.node.scans) // after the fence, so that it shows whatever was changed before
		if err != nil {
			return nil, err
		}
		if req.Range != nil {
			err = c.rangeSums(v, req, reply)
		} else {
			reply.Sums, err = c.sums(v.snap, req.IDs)
		}
		if err != nil {
			return nil, err
		}
		if req.Fence {
			// Behind the look: what it has shown and a Sync put there is among them, unless something was written over it since.
			reply.Synced = c.reading.lease.fences.among(req.IDs)
		}
		reply.Meta = c.meta(stageRead)
		return reply, nil
	})
}

// fence makes one for documents of the index. What is written to one of them behind it, and what was before and is not shown yet when it returns, is
// not Fresh. With a mark it tells whether the write with that is the last thing that was done with all of them.
func (c *leafCall) fence(ids []string, mark leaf.Mark) (fence uint64, last bool, err error) {
	if prob := c.index(); prob != nil {
		return 0, false, prob
	}
	l, err := c.node.catalog.use(c.ctx, c.name)
	if err != nil {
		return 0, false, err
	}
	defer l.release()
	ctx, stop := l.within(c.ctx)
	defer stop()
	if fence, err = l.fences.make(ctx, ids); err == nil {
		last, err = l.eng.Disturb(ctx, ids, uint64(mark))
	}
	return fence, last, err
}

// lookEverySums is how many sources are read between two looks at the context.
const lookEverySums = 32

// sums are the checksums of documents by id, zero where there is none.
func (c *leafCall) sums(snap *shard.Snapshot, ids []string) ([]leaf.Sum, error) {
	out := make([]leaf.Sum, len(ids))
	var buf []byte
	for i, id := range ids {
		if i%lookEverySums == 0 {
			if err := c.ended(); err != nil {
				return nil, err
			}
		}
		li, doc, ok := snap.Find(id)
		if !ok {
			continue
		}
		var err error
		if out[i], err = snap.Sum(li, doc, &buf); err != nil {
			return nil, sumError(err)
		}
	}
	for _, l := range snap.Leaves() {
		if err := l.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func sumError(err error) error {
	if errors.Is(err, shard.ErrNoSources) {
		return noSources()
	}
	return err
}

// ranged is a document in a range of hashes.
type ranged struct {
	id   []byte
	leaf int
	doc  uint32
}

func byID(a, b ranged) int { return bytes.Compare(a.id, b.id) }

// rangeSums adds a page of the checksums of a range to the reply.
func (c *leafCall) rangeSums(v *view, req *leaf.SumsRequest, reply *leaf.SumsReply) error {
	want := req.Limit + 1 // one more tells whether there is more
	var found []ranged
	for li, l := range v.leaves {
		// What one leaf can add to the page is no more than the page; twice that is kept while it is chosen.
		if err := v.charge(int64(min(2*want, int(l.LiveDocs()))) * (keyHead + api.MaxID)); err != nil {
			return err
		}
		var err error
		if found, err = c.ranged(l, li, req, want, found); err != nil {
			return err
		}
	}
	slices.SortFunc(found, byID)
	more := len(found) > req.Limit
	if more {
		found = found[:req.Limit]
	}
	reply.IDs, reply.Sums = make([]string, len(found)), make([]leaf.Sum, len(found))
	var buf []byte
	for i, f := range found {
		if i%lookEverySums == 0 {
			if err := c.ended(); err != nil {
				return err
			}
		}
		reply.IDs[i] = string(f.id)
		var err error
		if reply.Sums[i], err = v.snap.Sum(f.leaf, f.doc, &buf); err != nil {
			return sumError(err)
		}
	}
	if more {
		reply.Next = reply.IDs[len(found)-1]
	}
	return nil
}

// ranged adds the live documents of a leaf that are in the range, of them at least the first most.
func (c *leafCall) ranged(l exec.Leaf, li int, req *leaf.SumsRequest, most int, dst []ranged) ([]ranged, error) {
	live, from, first := l.Live(), len(dst), uint32(0)
	if l.KeyOrdered() {
		first = firstAbove(l, req.After)
	}
	var buf []byte
	for d := first; d < l.NumDocs(); d++ {
		if (d-first)%lookEveryDocs == 0 {
			if err := c.ended(); err != nil {
				return nil, err
			}
		}
		if live != nil && !live.Has(d) {
			continue
		}
		buf = l.Key(d, buf[:0])
		if h := placement.Hash(buf); h < req.Range.From || h > req.Range.To || string(buf) <= req.After {
			continue
		}
		dst = append(dst, ranged{bytes.Clone(buf), li, d})
		if len(dst)-from < most {
			continue
		}
		if l.KeyOrdered() {
			break
		}
		if len(dst)-from == 2*most {
			slices.SortFunc(dst[from:], byID)
			clear(dst[from+most:])
			dst = dst[:from+most]
		}
	}
	return dst, l.Err()
}

// Digest implements leaf.Member. The call holds a place among the scans. The first for a segment reads all sources of it; then their
// checksums are remembered, see shard.MaxSumBytes, and only those of documents in memory are made anew.
func (l *shardLeaf) Digest(ctx context.Context, req *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return callLeaf(ctx, l, opDigest, req.Index, req.View, func(c *leafCall) (*leaf.DigestReply, error) {
		if req.Depth < 0 || req.Depth > leaf.MaxDepth {
			return nil, outside("depth", req.Depth, leaf.MaxDepth)
		}
		v, err := c.read(c.node.scans)
		if err != nil {
			return nil, err
		}
		ranges := 1 << req.Depth
		if err := v.charge(int64(ranges) * (4 + 2*int64(len(leaf.Sum{})))); err != nil {
			return nil, err
		}
		reply := &leaf.DigestReply{Docs: make([]uint32, ranges), Sums: make([]leaf.Sum, ranges)}
		sums := make([]xxh3.Uint128, ranges)
		var buf []byte
		err = v.snap.EachSum(c.ctx, func(key []byte, sum shard.Sum) error {
			buf = append(append(append(buf[:0], key...), 0), sum[:]...)
			at := placement.Hash(key) >> (32 - req.Depth)
			s, d := &sums[at], xxh3.Hash128(buf)
			var carry uint64
			s.Lo, carry = bits.Add64(s.Lo, d.Lo, 0)
			s.Hi, _ = bits.Add64(s.Hi, d.Hi, carry)
			reply.Docs[at]++
			return nil
		})
		if err != nil {
			return nil, sumError(err)
		}
		for i := range sums {
			binary.BigEndian.PutUint64(reply.Sums[i][:8], sums[i].Hi)
			binary.BigEndian.PutUint64(reply.Sums[i][8:], sums[i].Lo)
		}
		reply.Meta = c.meta(stageRead)
		return reply, nil
	})
}

// syncTries bounds how often an item whose document others keep writing is looked at.
const syncTries = 8

// Sync implements leaf.Member. Items are applied in batches; each is held against the checksum of the document that is there, and takes
// effect only if that document is still there when the batch is applied. An item that asks for what is there already is applied by that.
//
// When the index stops taking writes in the middle, the items that were not applied have the reason among Problems. Where nothing was
// applied it is the error of the call.
func (l *shardLeaf) Sync(ctx context.Context, req *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return callLeaf(ctx, l, opSync, req.Index, req.View, func(c *leafCall) (*leaf.SyncReply, error) {
		most, size, longest := c.node.cfg.Limits.DocumentBytes, 0, 0
		if len(req.Items) > leaf.MaxSync {
			return nil, tooMany("items", len(req.Items), leaf.MaxSync)
		}
		seen := make(map[string]bool, len(req.Items))
		for i := range req.Items {
			it := &req.Items[i]
			if prob := api.CheckID(it.ID); prob != nil {
				prob.Field, prob.Detail = "items", fmt.Sprintf("items: %d: %s", i+1, prob.Detail)
				return nil, prob
			}
			if seen[it.ID] {
				return nil, api.NewProblem(api.InvalidParameter, fmt.Sprintf("items: %d: the id %q is given twice", i+1, api.Clip(it.ID))).On("items")
			}
			seen[it.ID] = true
			size, longest = size+len(it.Body), max(longest, len(it.Body))
		}
		if prob := c.index(); prob != nil {
			return nil, prob
		}
		if longest > int(most) {
			longest = int(most) // what is longer is refused before it is taken apart
		}
		if size > 0 {
			held, err := c.node.memory.Enter(c.ctx, int64(size))
			if err != nil {
				return nil, err
			}
			defer held.Release()
		}
		leave, err := c.node.enterWrite(c.ctx, longest)
		if err != nil {
			return nil, err
		}
		defer leave()
		serve.Begun(c.ctx)
		c.watch.Lap(bound.StageQueue)
		s := &syncing{c: c, w: &writer{node: c.node, name: c.name}, items: req.Items, fence: req.Fence, reply: &leaf.SyncReply{
			Applied: make([]bool, len(req.Items)), Sums: make([]leaf.Sum, len(req.Items)),
		}}
		defer s.w.release()
		if err := s.run(); err != nil {
			if caller := context.Cause(c.ctx); caller != nil && s.wrote {
				return nil, &leaf.TransportError{Address: c.node.address(), Call: "Sync", MaybeApplied: true, Cause: caller}
			}
			return nil, err
		}
		s.reply.Meta = c.metaAfter(s.w.lease.state())
		return s.reply, nil
	})
}

// syncing is a Sync under way.
type syncing struct {
	c     *leafCall
	w     *writer
	items []leaf.SyncItem
	fence uint64
	reply *leaf.SyncReply
	may   []bool // which items no later fence keeps from being applied
	wrote bool   // something was written
	batch batch
	typed []item // of the batch in hand, by place in it
	buf   []byte
}

// refuse notes why an item is not applied.
func (s *syncing) refuse(i int, why *api.Problem) {
	if s.reply.Problems == nil {
		s.reply.Problems = make([]*api.Problem, len(s.items))
	}
	s.reply.Problems[i] = why
}

func (s *syncing) run() error {
	n := s.c.node
	if err := s.w.find(s.c.ctx); err != nil {
		return err
	}
	if !s.w.has {
		// The index may be made at this moment. Either it is there now, or whoever makes it finds it disturbed.
		n.catalog.disturb()
		s.w.release()
		if err := s.w.find(s.c.ctx); err != nil {
			return err
		}
	}
	if !s.w.has {
		return &noIndexError{s.c.name} // it is not for a copy to make an index
	}
	ctx, stop := s.w.lease.within(s.c.ctx)
	defer stop()
	ids := make([]string, len(s.items))
	for i := range s.items {
		ids[i] = s.items[i].ID
	}
	s.may = s.w.lease.fences.begin(ids, s.fence)
	defer s.w.lease.fences.end(ids, s.may)
	for from := 0; from < len(s.items); {
		to, size := from, 0
		for to < len(s.items) && to-from < n.chunkDocs && (to == from || size+len(s.items[to].Body) <= bulkChunkBytes) {
			size += len(s.items[to].Body)
			to++
		}
		err := s.apply(ctx, from, to)
		uncertain, ok := errors.AsType[*shard.ReadOnlyError](err)
		switch {
		case err == nil:
			from = to
			continue
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case !s.wrote || ok && uncertain.Uncertain:
			return err
		}
		// What was applied stays, so that the call has not failed.
		why := n.problem(ctx, err)
		return s.giveUp(ctx, from, why)
	}
	return nil
}

// giveUp gives the items from from on that were not applied the reason, and the checksums of what is there.
func (s *syncing) giveUp(ctx context.Context, from int, why *api.Problem) error {
	snap := s.w.lease.eng.Snapshot()
	defer snap.Release()
	for i := from; i < len(s.items); i++ {
		if s.reply.Applied[i] || s.reply.Problems != nil && s.reply.Problems[i] != nil {
			continue
		}
		if _, err := s.look(ctx, snap, i); err != nil {
			return err
		}
		s.refuse(i, why)
	}
	return nil
}

// apply applies the items from..to-1 as one batch, and again those whose documents changed between the look at them and the batch.
func (s *syncing) apply(ctx context.Context, from, to int) error {
	todo := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		todo = append(todo, i)
	}
	s.typed = make([]item, to-from)
	for try := 0; len(todo) > 0; try++ {
		waiting, err := s.prepare(ctx, from, todo, try == syncTries)
		if err != nil {
			return err
		}
		if len(waiting) == 0 {
			return nil
		}
		if err := s.c.node.memtables.admit(); err != nil {
			return err
		}
		if err := s.w.commit(ctx, &s.batch); err != nil {
			return err
		}
		var changed []string
		todo = todo[:0]
		for k, i := range waiting {
			switch it := &s.batch.items[k]; {
			case it.changed:
				it.changed = false
				s.typed[i-from] = *it
				todo = append(todo, i)
			case it.fail != nil:
				s.c.node.documents.rejected.Inc()
				s.refuse(i, it.fail)
			default:
				s.settle(i, it)
				changed = append(changed, it.key)
			}
		}
		s.w.lease.fences.changed(changed)
	}
	return nil
}

// settle notes that an item was applied.
func (s *syncing) settle(i int, it *item) {
	s.wrote, s.reply.Applied[i] = true, true
	if it.del {
		if s.reply.Sums[i] != (leaf.Sum{}) {
			s.c.node.documents.deleted.Inc()
		}
		s.reply.Sums[i] = leaf.Sum{}
		return
	}
	s.c.node.documents.indexed.Inc()
	s.reply.Sums[i] = shard.SumOf(it.doc.Source)
}

// look notes the checksum of what is there of an item, with the condition that it still is.
func (s *syncing) look(ctx context.Context, snap *shard.Snapshot, i int) (cond *shard.Condition, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	li, doc, ok, cond := snap.Look(s.items[i].ID)
	sum := leaf.Sum{}
	if ok {
		if sum, err = snap.Sum(li, doc, &s.buf); err != nil {
			return nil, sumError(err)
		}
	}
	s.reply.Sums[i] = sum
	return cond, nil
}

// prepare makes a batch of those items whose documents are as they are expected to be and not as they shall be, and returns them. The
// others are settled; with last all are.
func (s *syncing) prepare(ctx context.Context, from int, todo []int, last bool) (waiting []int, err error) {
	snap := s.w.lease.eng.Snapshot()
	defer snap.Release()
	b := &s.batch
	b.reset()
	for _, i := range todo {
		it := &s.items[i]
		cond, err := s.look(ctx, snap, i)
		if err != nil {
			return nil, err
		}
		have := s.reply.Sums[i]
		if have != it.Expect || last || !s.may[i] {
			continue
		}
		// Only now: a document that is not applied adds no fields.
		typed := s.typed[i-from]
		if typed.key == "" {
			typed = s.parse(it)
		}
		typed.cond = cond
		s.typed[i-from] = typed
		switch {
		case typed.fail != nil:
			s.c.node.documents.rejected.Inc()
			s.refuse(i, typed.fail)
		case !typed.del && have == shard.SumOf(typed.doc.Source):
			s.reply.Applied[i] = true
		default:
			b.items = append(b.items, typed)
			b.valid++
			waiting = append(waiting, i)
		}
	}
	for _, l := range snap.Leaves() {
		if err := l.Err(); err != nil {
			return nil, err
		}
	}
	return waiting, nil
}

// parse types the document of an item.
func (s *syncing) parse(it *leaf.SyncItem) item {
	if it.Body == nil {
		return item{key: it.ID, del: true}
	}
	typed := item{raw: it.Body}
	s.w.typed(&s.batch, &typed)
	if typed.fail == nil && typed.key != it.ID {
		typed.fail = api.NewProblem(api.InvalidID, fmt.Sprintf("the document has the id %q, the item %q", api.Clip(typed.key), api.Clip(it.ID))).On("id")
	}
	typed.key = it.ID
	return typed
}
