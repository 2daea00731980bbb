package node

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/longsort"
)

// IDs implements leaf.Leaf. The call holds a place among the scans and its snapshot until page has taken everything: how long page
// may take is bounded by who calls.
func (l *shardLeaf) IDs(ctx context.Context, req *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	return callLeaf(ctx, l, opIDs, req.Index, req.View, func(c *leafCall) (*leaf.IDsReply, error) {
		if req.Limit < 0 {
			return nil, api.NewProblem(api.InvalidParameter, fmt.Sprintf("limit: it is a number from 0, which means all, on (got %d)", req.Limit)).On("limit")
		}
		v, err := c.read(c.node.scans)
		if err != nil {
			return nil, err
		}
		s, err := v.scanIDs(c.ctx, req.After, req.Limit)
		if err != nil {
			return nil, err
		}
		last, given := "", 0
		for {
			want := leaf.MaxIDPage
			if req.Limit > 0 {
				want = min(want, req.Limit-given)
			}
			ids, err := s.next(c.ctx, want)
			if err != nil {
				return nil, err
			}
			c.watch.UpTo(stageRead)
			if len(ids) == 0 {
				break
			}
			last, given = ids[len(ids)-1], given+len(ids)
			err = page(ids)
			c.watch.UpTo(stageSend)
			if err != nil {
				return nil, pageError{err}
			}
		}
		reply := &leaf.IDsReply{}
		if given > 0 && given == req.Limit && s.more() {
			reply.Next = last
		}
		reply.Meta = c.meta(stageRead)
		return reply, nil
	})
}

// pageError is an error of a function of the caller, which is returned to it as it is.
type pageError struct{ error }

// idScan lists the ids of the live documents of a snapshot in ascending order.
type idScan struct {
	sources []idSource // a heap by head
	steps   int        // documents looked at
}

// idSource is one part of the snapshot: a leaf in the order of its keys, or the sorted keys of one that has none.
type idSource struct {
	head []byte // the next id

	leaf exec.Leaf // nil: keys
	live bitset.Set
	next uint32 // document behind that of head

	keys [][]byte // behind head
}

// scanIDs starts a list of the ids above after. Of a leaf that is not ordered by key no more ids are kept than limit asks for, where
// it is above 0; what they take is charged.
func (v *view) scanIDs(ctx context.Context, after string, limit int) (*idScan, error) {
	s := &idScan{}
	for _, l := range v.leaves {
		var src idSource
		if l.KeyOrdered() {
			src = idSource{leaf: l, live: l.Live(), next: firstAbove(l, after)}
		} else {
			keys, err := v.sortedKeys(ctx, l, after, limit)
			if err != nil {
				return nil, err
			}
			src.keys = keys
		}
		ok, err := s.advance(ctx, &src)
		if err != nil {
			return nil, err
		}
		if ok {
			s.sources = append(s.sources, src)
		}
	}
	for i := len(s.sources)/2 - 1; i >= 0; i-- {
		s.down(i)
	}
	return s, nil
}

// firstAbove is the first document of a leaf in the order of its keys whose key is above after.
func firstAbove(l exec.Leaf, after string) uint32 {
	if after == "" {
		return 0
	}
	var buf []byte
	return uint32(sort.Search(int(l.NumDocs()), func(d int) bool {
		buf = l.Key(uint32(d), buf[:0])
		return string(buf) > after
	}))
}

// keyHead is what a key takes besides its bytes, and once more while it is sorted.
const keyHead = 24

// mostLeast is the limit up to which the keys of a limited list are chosen without keeping all of them.
const mostLeast = 10 * leaf.MaxIDPage

// sortedKeys returns the keys above after of the live documents of a leaf, ascending; of them, with a limit, at least the least
// limit+1.
func (v *view) sortedKeys(ctx context.Context, l exec.Leaf, after string, limit int) ([][]byte, error) {
	live := l.Live()
	each := func(fn func(key []byte) error) error {
		var buf []byte
		for d := range l.NumDocs() {
			if d%lookEveryDocs == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if live != nil && !live.Has(d) {
				continue
			}
			if buf = l.Key(d, buf[:0]); string(buf) > after {
				if err := fn(buf); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if limit > 0 && limit <= mostLeast && limit < int(l.LiveDocs())/2 {
		if err := v.charge(2 * int64(limit+1) * (keyHead + api.MaxID)); err != nil {
			return nil, err
		}
		return leastKeys(each, limit+1)
	}
	var size, count int
	if err := each(func(key []byte) error { size, count = size+len(key), count+1; return nil }); err != nil {
		return nil, err
	}
	if err := v.charge(int64(size) + 2*keyHead*int64(count)); err != nil {
		return nil, err
	}
	all, keys := make([]byte, 0, size), make([][]byte, 0, count)
	err := each(func(key []byte) error {
		from := len(all)
		all = append(all, key...)
		keys = append(keys, all[from:len(all):len(all)])
		return nil
	})
	if err != nil {
		return nil, err
	}
	sorted, _, err := longsort.Sort(keys, nil, bytes.Compare, func() error { return context.Cause(ctx) })
	return sorted, err
}

// leastKeys returns the least n keys, ascending, holding no more than twice as many.
func leastKeys(each func(fn func(key []byte) error) error, n int) ([][]byte, error) {
	keys := make([][]byte, 0, 2*n)
	full := false // keys[n-1] bounds what can still get in
	cut := func() {
		slices.SortFunc(keys, bytes.Compare)
		if len(keys) >= n {
			clear(keys[n:])
			keys, full = keys[:n], true
		}
	}
	err := each(func(key []byte) error {
		if full && bytes.Compare(key, keys[n-1]) > 0 {
			return nil
		}
		if keys = append(keys, bytes.Clone(key)); len(keys) == cap(keys) {
			cut()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	cut()
	return keys, nil
}

// advance moves a source to its next id; ok is false at its end.
func (s *idScan) advance(ctx context.Context, src *idSource) (ok bool, err error) {
	if src.leaf == nil {
		if len(src.keys) == 0 {
			return false, nil
		}
		src.head, src.keys = src.keys[0], src.keys[1:]
		return true, s.step(ctx)
	}
	for n := src.leaf.NumDocs(); src.next < n; {
		if err := s.step(ctx); err != nil {
			return false, err
		}
		d := src.next
		src.next++
		if src.live == nil || src.live.Has(d) {
			src.head = src.leaf.Key(d, src.head[:0])
			return true, nil
		}
	}
	return false, src.leaf.Err()
}

// step counts a document, and looks at the context now and then.
func (s *idScan) step(ctx context.Context) error {
	if s.steps++; s.steps%lookEveryDocs == 0 && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// next returns up to n ids; none at the end.
func (s *idScan) next(ctx context.Context, n int) ([]string, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	var ids []string
	for len(ids) < n && len(s.sources) > 0 {
		src := &s.sources[0]
		ids = append(ids, string(src.head))
		ok, err := s.advance(ctx, src)
		if err != nil {
			return nil, err
		}
		if !ok {
			last := len(s.sources) - 1
			s.sources[0] = s.sources[last]
			s.sources[last] = idSource{}
			s.sources = s.sources[:last]
		}
		s.down(0)
	}
	return ids, nil
}

// more tells whether ids are left.
func (s *idScan) more() bool { return len(s.sources) > 0 }

// down moves source i down the heap to its place.
func (s *idScan) down(i int) {
	for {
		least := i
		for _, k := range [2]int{2*i + 1, 2*i + 2} {
			if k < len(s.sources) && bytes.Compare(s.sources[k].head, s.sources[least].head) < 0 {
				least = k
			}
		}
		if least == i {
			return
		}
		s.sources[i], s.sources[least] = s.sources[least], s.sources[i]
		i = least
	}
}

// Export implements leaf.Leaf. A document that takes more than chargeFrom is charged while each has it.
func (l *shardLeaf) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	return callLeaf(ctx, l, opExport, req.Index, req.View, func(c *leafCall) (*leaf.ExportReply, error) {
		if len(req.IDs) > leaf.MaxIDs {
			return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
		}
		v, err := c.read(c.node.scans)
		if err != nil {
			return nil, err
		}
		reply := &leaf.ExportReply{}
		for _, id := range req.IDs {
			if err := c.ended(); err != nil {
				return nil, err
			}
			there, err := c.export(v, id, each)
			if err != nil {
				return nil, err
			}
			if !there {
				reply.Missing = append(reply.Missing, id)
			}
		}
		reply.Meta = c.meta(stageRead)
		return reply, nil
	})
}

// export gives one document away; it returns false if there is none with the id.
func (c *leafCall) export(v *view, id string, each func(doc leaf.ExportedDoc) error) (bool, error) {
	source, ok, err := v.snap.Get(id)
	switch {
	case err != nil:
		return false, err
	case !ok:
		return false, nil
	case source == nil:
		return false, api.NewProblem(api.InvalidParameter, "index: it keeps no sources, so that its documents cannot be exported").On(indexParam)
	}
	if size := int64(len(source)); size >= chargeFrom {
		place, err := c.node.memory.Enter(c.ctx, size)
		if err != nil {
			return false, err
		}
		defer place.Release()
	}
	c.watch.UpTo(stageRead)
	err = each(leaf.ExportedDoc{ID: id, Source: source})
	c.watch.UpTo(stageSend)
	if err != nil {
		return false, pageError{err}
	}
	return true, nil
}

// Has implements leaf.Leaf.
func (l *shardLeaf) Has(ctx context.Context, req *leaf.HasRequest) (*leaf.HasReply, error) {
	return callLeaf(ctx, l, opHas, req.Index, req.View, func(c *leafCall) (*leaf.HasReply, error) {
		if len(req.IDs) > leaf.MaxIDs {
			return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
		}
		v, err := c.read(c.node.searches)
		if err != nil {
			return nil, err
		}
		reply := &leaf.HasReply{}
		for i, id := range req.IDs {
			if i%lookEveryDocs == 0 && c.ctx.Err() != nil {
				return nil, context.Cause(c.ctx)
			}
			if _, _, ok := v.snap.Find(id); !ok {
				reply.Missing = append(reply.Missing, id)
			}
		}
		for _, l := range v.leaves {
			if err := l.Err(); err != nil {
				return nil, err
			}
		}
		reply.Meta = c.meta(stageRead)
		return reply, nil
	})
}
