package write

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// mostFences bounds the fences that a Writer has made and knows of yet. A Sync that names an older one changes nothing.
const mostFences = 1024

// deadFence is a fence that no member has made: a Sync that names it changes nothing.
const deadFence = 1

// fences are those that the Writer has made for a coordinator above: each stands for one at every member that holds the documents. The zero
// value is ready.
type fences struct {
	mu   sync.Mutex
	run  uint32 // upper half of every fence; 0 until the first
	last uint32 // lower half of the latest one
	ring []fence
}

type fence struct {
	n  uint32
	at map[string]uint64 // by the address of the member
}

// add keeps the fences of members under a number of its own.
func (f *fences) add(at map[string]uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == 0 || f.last == math.MaxUint32 {
		f.run, f.last, f.ring = 1+rand.Uint32N(math.MaxUint32), 0, make([]fence, mostFences)
	}
	f.last++
	f.ring[f.last%mostFences] = fence{f.last, at}
	return uint64(f.run)<<32 | uint64(f.last)
}

// below is what a Sync names at a member that names n here.
func (f *fences) below(n uint64, addr string) uint64 {
	if n == 0 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == 0 || uint32(n>>32) != f.run {
		return deadFence
	}
	made := f.ring[uint32(n)%mostFences]
	at, ok := made.at[addr]
	if made.n != uint32(n) || !ok {
		return deadFence
	}
	return at
}

// FencedSums is leaf.Member.Sums of ids with a fence. It makes one at every member that holds one of the documents; the checksums are those
// of the first of each group that answers. At a member that does not, a Sync that names the fence changes nothing.
func (w *Writer) FencedSums(caller context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	if len(req.IDs) > leaf.MaxIDs {
		return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
	}
	if req.Range != nil {
		return nil, api.NewProblem(api.InvalidParameter, "fence: it is made for ids, not for a range").On("fence")
	}
	name, err := indexName(req.Index)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := w.enter(caller)
	if err != nil {
		return nil, err
	}
	defer leave()
	return byState(ctx, w, func(st *members.State) (*leaf.SumsReply, error) { return w.fencedSums(ctx, st, name, req.IDs) })
}

// fencedSums makes the fences by one state of the cluster.
func (w *Writer) fencedSums(ctx context.Context, st *members.State, name string, ids []string) (*leaf.SumsReply, error) {
	watch := newStopwatch()
	parts := shares(st, len(ids), func(i int) string { return ids[i] })
	lists, errs := make([][]got[leaf.SumsReply], len(parts)), make([]error, len(parts))
	each(len(parts), func(i int) {
		own := make([]string, len(parts[i].at))
		for k, at := range parts[i].at {
			own[k] = ids[at]
		}
		lists[i], errs[i] = fan(ctx, w, targets(parts[i].groups...), func(ctx context.Context, t target) (*leaf.SumsReply, error) {
			reply, err := attended(ctx, w, t, "Sums", w.o.Limits.CallTimeout, false, func(ctx context.Context) (*leaf.SumsReply, error) {
				return leaf.FencedSums(ctx, t.Leaf, leaf.SumsRequest{Index: name, View: leaf.View{Epoch: st.Epoch()}, IDs: own})
			})
			if err == nil && len(reply.Sums) != len(own) {
				err = fmt.Errorf("%s gives %d checksums for %d documents", t.Addr, len(reply.Sums), len(own))
			}
			return reply, err
		})
	})
	watch.lap(StageSettle)
	if err := worst(errs); err != nil {
		return nil, err
	}
	reply := &leaf.SumsReply{Sums: make([]leaf.Sum, len(ids))}
	at := map[string]uint64{}
	var a account
	absent := len(parts) > 0
	for i, list := range lists {
		in := applied(list)
		for k := range list {
			at[list[k].Addr] = deadFence // also of one that lacks the index: what it is given later has fences of its own
		}
		for k := range in {
			at[in[k].Addr] = in[k].reply.Fence
		}
		if len(in) == 0 {
			if !missing(list) {
				return nil, unasked(ctx, list)
			}
			continue
		}
		absent = false
		a.note(in[0].target, nil, in[0].took)
		if i == 0 {
			reply.Snapshot = in[0].reply.Snapshot
		}
		for k, place := range parts[i].at {
			reply.Sums[place] = in[0].reply.Sums[k]
			if slices.ContainsFunc(in, func(g got[leaf.SumsReply]) bool { return slices.Contains(g.reply.Synced, k) }) {
				reply.Synced = append(reply.Synced, place)
			}
		}
	}
	if absent {
		return nil, noIndex(name)
	}
	slices.Sort(reply.Synced)
	reply.Fence = w.fences.add(at)
	reply.Timings, reply.Below = watch.laps, a.below()
	return reply, nil
}

// unasked is the error of a look that no member has answered.
func unasked[R any](ctx context.Context, list []got[R]) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	errs, addrs := make([]error, len(list)), make([]string, len(list))
	for i := range list {
		errs[i], addrs[i] = list[i].err, list[i].Addr
		if p, ok := errors.AsType[*api.Problem](list[i].err); ok && fault(p) && p.Code != api.IndexNotFound {
			return p
		}
	}
	return unavailable(addrs, errors.Join(errs...))
}

// missing tells whether all members say that they lack the index.
func missing[R any](list []got[R]) bool {
	return !slices.ContainsFunc(list, func(g got[R]) bool {
		p, ok := errors.AsType[*api.Problem](g.err)
		return !ok || p.Code != api.IndexNotFound
	})
}
