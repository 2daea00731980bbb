package jobs

import (
	"cmp"
	"context"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
)

const (
	// equalRounds bounds how often members are compared and made equal for a batch. Others may be writing the same documents.
	equalRounds = 10
	// enoughRefusals is how often a member refuses a document, for a reason that will stay, before it is not given it again for a batch. Between
	// the first two it is given the schema.
	enoughRefusals = 2
	// mostContended is the longest wait before another look where others look at the same documents.
	mostContended = 5 * time.Second
	// secondLook is the wait before something that readers may see is overwritten or deleted: a write that is on its way to all
	// members has reached them by then.
	secondLook = 50 * time.Millisecond
)

// manner says how members are made equal.
type manner uint8

const (
	// unseen: readers do not see what is changed.
	unseen manner = iota
	// seen: what is there is overwritten or deleted only if it differs at a second look, too.
	seen
)

// differing is a document that some member has in another state than the reference.
type differing struct {
	id   string
	want leaf.Sum
	have []leaf.Sum // by member
}

// equalize makes members equal to a reference for some documents: each was seen with the same checksum at all of them, or is returned.
// Every change is a compare and swap on the checksum that was seen, and is followed by a comparison: whoever writes the same document
// at the same time is never overwritten unseen.
func (w *work) equalize(ctx context.Context, index string, ref *members.Member, to []*members.Member, ids []string, how manner) (left []string, err error) {
	for len(ids) > 0 {
		n := min(len(ids), w.r.tune.batch)
		some, err := w.equalizeBatch(ctx, index, ref, to, ids[:n], how)
		if err != nil {
			return nil, err
		}
		left, ids = append(left, some...), ids[n:]
	}
	return left, nil
}

func (w *work) equalizeBatch(ctx context.Context, index string, ref *members.Member, to []*members.Member, ids []string, how manner) ([]string, error) {
	all := append([]*members.Member{ref}, to...)
	pending := slices.Clone(ids)
	var out []string // those that are given up: the reference refuses them, or a member does
	no := map[string]int{}
	var before map[string]differing
	vain, took := 0, time.Duration(0) // rounds one after another in which others were in between, and the last one
	for round := range equalRounds {
		var wait time.Duration
		if round > 1 {
			wait = time.Millisecond << round
		}
		if vain > 0 {
			// Others who look as often and as long would come in between again and again.
			wait += rand.N(min(max(took, time.Millisecond)<<vain, mostContended))
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		if err := w.r.pace.wait(ctx); err != nil {
			return nil, err
		}
		at := time.Now()
		have, by, err := w.fenced(ctx, index, all, pending)
		if err != nil {
			return nil, err
		}
		var todo []differing
		for k, id := range pending {
			d := differing{id: id, want: have[0][k]}
			equal := true
			for _, of := range have[1:] {
				d.have = append(d.have, of[k])
				equal = equal && of[k] == d.want
			}
			if round == 0 && d.want == (leaf.Sum{}) {
				w.tally.missed()
			}
			if !equal {
				todo = append(todo, d)
			}
		}
		if len(todo) == 0 {
			return out, nil
		}
		pending = make([]string, len(todo))
		for i := range todo {
			pending[i] = todo[i].id
		}
		if round == equalRounds-1 {
			break
		}
		if !w.forced && slices.ContainsFunc(todo, func(d differing) bool { return d.want == leaf.Sum{} }) {
			// Is it that somebody has deleted them, or that the reference has lost them?
			if err := w.r.identify(ctx, ref); err != nil {
				return nil, err
			}
			if w.r.suspect(ref.Addr) {
				return nil, errSuspect
			}
		}
		if how == seen {
			last := before
			before = make(map[string]differing, len(todo))
			fresh := false
			todo = slices.DeleteFunc(todo, func(d differing) bool {
				before[d.id] = d
				if d.adds() {
					return false
				}
				old, ok := last[d.id]
				same := ok && old.want == d.want && slices.Equal(old.have, d.have)
				fresh = fresh || !same
				return !same
			})
			if fresh {
				if err := pause(ctx, secondLook); err != nil {
					return nil, err
				}
			}
		}
		if w.background && len(todo) > 0 {
			// Is it that a writer could not reach the reference? Members that have lost their documents are given them without waiting for
			// whoever may have deleted one just now.
			if w.refills(to, todo) {
				at = at.Add(-2 * missedWait)
			}
			if err := w.r.missedBy(ctx, ref.Addr, at); err != nil {
				return nil, err
			}
		}
		if w.listens && len(todo) > 0 {
			// Is it that somebody has acknowledged a write just now which the reference has missed?
			if err := w.r.listen(ctx, at); err != nil {
				return nil, err
			}
		}
		todo = slices.DeleteFunc(todo, func(d differing) bool {
			e := hints.Entry{Index: index, ID: d.id}
			if w.chosen == nil || w.chosen(e) {
				return false
			}
			w.refuse(e, errWaits)
			out = append(out, d.id)
			return true
		})
		if !w.asAsked && !w.listens {
			// What the reference refuses others may have in a later state. This comes last: what is put aside was kept for it before.
			todo = slices.DeleteFunc(todo, func(d differing) bool {
				refused := w.r.refuses(ref.Addr, hints.Entry{Index: index, ID: d.id}) || w.unsure && !d.adds()
				if !refused || w.refills(to, []differing{d}) {
					return false
				}
				out = append(out, d.id)
				return true
			})
		}
		todo, err = w.hold(ctx, index, ref, todo, by)
		if err != nil {
			return nil, err
		}
		switch inVain, err := w.give(ctx, index, ref, to, todo, by); {
		case err != nil:
			return nil, err
		case inVain:
			vain, took = vain+1, time.Since(at)
		default:
			vain = 0
		}
		for i := range todo {
			id := todo[i].id
			if n, _ := w.refusedFor(index, []string{id}); n > 0 {
				if no[id]++; no[id] == enoughRefusals {
					out = append(out, id)
				}
			}
		}
		if len(out) > 0 {
			gone := make(map[string]bool, len(out))
			for _, id := range out {
				gone[id] = true
			}
			pending = slices.DeleteFunc(pending, func(id string) bool { return gone[id] })
		}
		if len(pending) == 0 {
			return out, nil
		}
	}
	return append(out, pending...), nil
}

// refills tells whether all that is to be done is to give members what they may have lost.
func (w *work) refills(to []*members.Member, todo []differing) bool {
	return !slices.ContainsFunc(to, func(m *members.Member) bool { return !w.r.suspect(m.Addr) }) &&
		!slices.ContainsFunc(todo, func(d differing) bool { return !d.adds() })
}

// adds tells whether nothing is there yet wherever the document is wanted.
func (d *differing) adds() bool {
	return d.want != leaf.Sum{} && !slices.ContainsFunc(d.have, func(s leaf.Sum) bool { return s != leaf.Sum{} && s != d.want })
}

// missed counts a document that was listed and is not there.
func (t *tally) missed() { t.gone.Add(1) }

// give puts or deletes documents at members that have another state than the reference, if they still have what they were seen to have, and nobody
// has seen them since. inVain says that there were some, and every one of them had changed or was seen.
func (w *work) give(ctx context.Context, index string, ref *members.Member, to []*members.Member, todo []differing, by fences) (inVain bool, err error) {
	var given, heard atomic.Int64
	for first := true; len(todo) > 0; first = false {
		if !first { // they are long: the rate of bytes counts
			if err := w.r.pace.wait(ctx); err != nil {
				return false, err
			}
		}
		var wanted []string
		for i := range todo {
			if todo[i].want != (leaf.Sum{}) {
				wanted = append(wanted, todo[i].id)
			}
		}
		var docs map[string][]byte
		page := todo
		if len(wanted) > 0 {
			found, err := w.prepare(ctx, index, ref, to...)
			if err != nil {
				return false, err
			}
			if !found {
				return false, nil // the index was deleted; the next look shows it
			}
			var read int
			if docs, read, err = w.export(ctx, index, ref, wanted); err != nil {
				return false, err
			}
			if read < len(wanted) {
				next := slices.IndexFunc(todo, func(d differing) bool { return d.id == wanted[read] })
				page = todo[:next]
			}
		}
		g, gctx := errgroup.WithContext(ctx)
		for k, m := range to {
			g.Go(func() error {
				var items []leaf.SyncItem
				for i := range page {
					d := &page[i]
					body := docs[d.id]
					switch {
					case d.have[k] == d.want, d.want != leaf.Sum{} && body == nil: // it is gone: the next look shows it
						continue
					}
					items = append(items, leaf.SyncItem{ID: d.id, Expect: d.have[k], Body: body})
				}
				n, err := w.sync(gctx, index, m, items, by)
				given.Add(int64(len(items)))
				heard.Add(int64(n))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return false, err
		}
		todo = todo[len(page):]
	}
	return given.Load() > 0 && heard.Load() == 0, nil
}

// depthOf is how deep the leaves of the tree stand for an index of so many documents: so that one has about that many of them, or half.
func depthOf(docs uint64, leafDocs int) int {
	return min(bits.Len64((max(docs, 1)-1)/uint64(leafDocs)), leaf.MaxDepth)
}

// digest is the digest of an index at a member. One without the index is that of no documents.
func (w *work) digest(ctx context.Context, index string, m *members.Member, depth int, owned []placement.Share) (*leaf.DigestReply, error) {
	reply, err := ask(ctx, m, "Digest", longTime, func(r *leaf.DigestReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.DigestReply, error) {
		return m.Leaf.Digest(ctx, &leaf.DigestRequest{Index: index, View: w.view(owned...), Depth: depth})
	})
	ranges := 1 << depth
	switch {
	case hasCode(err, api.IndexNotFound):
		return &leaf.DigestReply{Docs: make([]uint32, ranges), Sums: make([]leaf.Sum, ranges)}, nil
	case err != nil:
		return nil, err
	case len(reply.Sums) != ranges || len(reply.Docs) != ranges:
		return nil, &memberError{m.Addr, "Digest", errLength}
	}
	return reply, nil
}

// comparison is what a look at all documents of an index found.
type comparison struct {
	ref     uint64   // documents at the reference
	others  []uint64 // and at the others
	differs []leaf.HashRange
	ranges  int // that differ; 0: all are equal
}

// count takes the numbers of documents from digests: of the reference and, behind it, of some of the others.
func (c *comparison) count(digests []*leaf.DigestReply, of []int) {
	sum := func(d *leaf.DigestReply) (n uint64) {
		for _, docs := range d.Docs {
			n += uint64(docs)
		}
		return n
	}
	c.ref = sum(digests[0])
	for i, k := range of {
		c.others[k] = sum(digests[i+1])
	}
}

// compare compares members with a reference, from the root of the Merkle tree over their documents to its leaves. Where the roots are equal
// there is one checksum of each member to be read, however many documents there are. Of those that differ the leaves are, which stand so
// deep that each has few documents: what is between is not asked for, since a member walks over all its documents for any level.
func (w *work) compare(ctx context.Context, index string, ref *members.Member, to []*members.Member, owned []placement.Share) (*comparison, error) {
	c := &comparison{others: make([]uint64, len(to))}
	at := make([]int, len(to)) // places in to of those that are looked at
	for i := range at {
		at[i] = i
	}
	roots, err := w.digests(ctx, index, ref, to, at, 0, owned)
	if err != nil {
		return nil, err
	}
	c.count(roots, at)
	most := c.ref
	at = slices.DeleteFunc(at, func(i int) bool {
		most = max(most, c.others[i])
		return sameAt(roots[0], roots[i+1], 0)
	})
	if len(at) == 0 {
		w.r.count.compared.Add(1)
		return c, nil
	}
	depth := depthOf(most, w.r.tune.leafDocs)
	leaves := roots
	if depth > 0 {
		if leaves, err = w.digests(ctx, index, ref, to, at, depth, owned); err != nil {
			return nil, err
		}
		c.count(leaves, at)
	}
	ranges := 1 << depth
	width := uint64(1) << (32 - depth)
	for k := range ranges {
		if !slices.ContainsFunc(leaves[1:], func(d *leaf.DigestReply) bool { return !sameAt(leaves[0], d, k) }) {
			continue
		}
		c.ranges++
		from, end := uint32(uint64(k)*width), uint32(uint64(k+1)*width-1)
		if last := len(c.differs) - 1; last >= 0 && c.differs[last].To+1 == from {
			c.differs[last].To = end
		} else {
			c.differs = append(c.differs, leaf.HashRange{From: from, To: end})
		}
	}
	c.differs = covered(c.differs, w.r.tune.looks)
	w.r.count.compared.Add(uint64(ranges))
	w.r.count.differing.Add(uint64(c.ranges))
	return c, nil
}

// sameAt tells whether two members have the same documents in a range of their digests.
func sameAt(a, b *leaf.DigestReply, k int) bool {
	return a.Docs[k] == b.Docs[k] && a.Sums[k] == b.Sums[k]
}

// digests are those of one level of the tree: of the reference and, behind it, of some of the others.
func (w *work) digests(ctx context.Context, index string, ref *members.Member, to []*members.Member, at []int, depth int, owned []placement.Share) ([]*leaf.DigestReply, error) {
	out := make([]*leaf.DigestReply, len(at)+1)
	g, gctx := errgroup.WithContext(ctx)
	for i := range out {
		m := ref
		if i > 0 {
			m = to[at[i-1]]
		}
		g.Go(func() (err error) {
			out[i], err = w.digest(gctx, index, m, depth, owned)
			return err
		})
	}
	return out, g.Wait()
}

// covered makes at most so many ranges of ranges in order, by joining those with the least between them: a look at a range costs a walk over
// all ids of the index, wherever it is. Where that would be half of everything it is everything, of which pages are read without such
// a walk.
func covered(ranges []leaf.HashRange, most int) []leaf.HashRange {
	if over := len(ranges) - max(most, 1); over > 0 {
		gaps := make([]uint32, len(ranges)-1)
		for i := range gaps {
			gaps[i] = ranges[i+1].From - ranges[i].To
		}
		sorted := slices.Sorted(slices.Values(gaps))
		widest, equals := sorted[over-1], 0 // of the gaps that go, and how many of that width do
		for i := over - 1; i >= 0 && sorted[i] == widest; i-- {
			equals++
		}
		joined := ranges[:1]
		for i, gap := range gaps {
			if gap < widest || gap == widest && equals > 0 {
				if gap == widest {
					equals--
				}
				joined[len(joined)-1].To = ranges[i+1].To
				continue
			}
			joined = append(joined, ranges[i+1])
		}
		ranges = joined
	}
	var wide uint64
	for _, r := range ranges {
		wide += uint64(r.To-r.From) + 1
	}
	if len(ranges) > 1 && wide >= 1<<31 {
		return []leaf.HashRange{{From: 0, To: math.MaxUint32}}
	}
	return ranges
}

// unequal gives the ids of a range whose documents differ, a page at a time and in order.
func (w *work) unequal(ctx context.Context, index string, ref *members.Member, to []*members.Member, of leaf.HashRange, owned []placement.Share, each func(ids []string) error) error {
	all := append([]*members.Member{ref}, to...)
	for after := ""; ; {
		pages := make([]*leaf.SumsReply, len(all))
		g, gctx := errgroup.WithContext(ctx)
		for i, m := range all {
			g.Go(func() (err error) {
				pages[i], err = w.page(gctx, index, m, of, after, owned)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		// What is known of all of them ends with the shortest page.
		horizon := ""
		for _, p := range pages {
			if p.Next != "" && (horizon == "" || p.Next < horizon) {
				horizon = p.Next
			}
		}
		states := map[string][]leaf.Sum{}
		for i, p := range pages {
			w.r.count.listed.Add(uint64(len(p.IDs)))
			for k, id := range p.IDs {
				if horizon != "" && id > horizon {
					break
				}
				if states[id] == nil {
					states[id] = make([]leaf.Sum, len(all))
				}
				states[id][i] = p.Sums[k]
			}
		}
		maps.DeleteFunc(states, func(_ string, of []leaf.Sum) bool {
			return !slices.ContainsFunc(of, func(s leaf.Sum) bool { return s != of[0] })
		})
		if len(states) > 0 {
			if err := each(slices.Sorted(maps.Keys(states))); err != nil {
				return err
			}
		}
		if horizon == "" {
			return nil
		}
		after = horizon
	}
}

// page is a page of the checksums of a range.
func (w *work) page(ctx context.Context, index string, m *members.Member, of leaf.HashRange, after string, owned []placement.Share) (*leaf.SumsReply, error) {
	reply, err := ask(ctx, m, "Sums", longTime, func(r *leaf.SumsReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.SumsReply, error) {
		return m.Leaf.Sums(ctx, &leaf.SumsRequest{Index: index, View: w.view(owned...), Range: &of, After: after, Limit: w.r.tune.page})
	})
	switch {
	case hasCode(err, api.IndexNotFound):
		return &leaf.SumsReply{}, nil
	case err != nil:
		return nil, err
	case len(reply.IDs) != len(reply.Sums), reply.Next != "" && reply.Next <= after, !slices.IsSortedFunc(reply.IDs, cmp.Compare[string]):
		return nil, &memberError{m.Addr, "Sums", errLength}
	}
	return reply, nil
}

// reconcile makes members equal to a reference for all documents of an index that the shares own. It returns how many ranges differed,
// and the documents that could not be made equal: those that others keep writing, and those that a member does not take.
func (w *work) reconcile(ctx context.Context, index string, ref *members.Member, to []*members.Member, owned []placement.Share, how manner) (c *comparison, left []string, err error) {
	if c, err = w.compare(ctx, index, ref, to, owned); err != nil {
		return nil, nil, err
	}
	if w.background {
		for i, m := range to {
			if c.others[i] > c.ref+max(100, c.ref/10) {
				return c, nil, &suspectError{primary: ref.Addr, member: m.Addr, index: index, has: c.ref, other: c.others[i]}
			}
		}
	}
	var ids []string // of several ranges together, for a look at some documents waits for writers
	some := func(most int) error {
		for len(ids) > most {
			n := min(len(ids), w.r.tune.batch)
			unequal, err := w.equalizeBatch(ctx, index, ref, to, ids[:n], how)
			if err != nil {
				return err
			}
			left, ids = append(left, unequal...), ids[n:]
		}
		return nil
	}
	for _, of := range c.differs {
		err := w.unequal(ctx, index, ref, to, of, owned, func(page []string) error {
			ids = append(ids, page...)
			return some(w.r.tune.batch - 1)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if err := some(0); err != nil {
		return nil, nil, err
	}
	return c, left, nil
}
