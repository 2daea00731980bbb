package write

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

const (
	// settleRounds bounds how often members are compared. Others may be writing the same documents.
	settleRounds = 16
	// settleBytes bounds the documents that are in memory to be put at other members.
	settleBytes = 4 << 20
	// maxFinishing bounds the settling that goes on in the background.
	maxFinishing = 64
)

// settling makes members equal, for some documents of an index.
type settling struct {
	w  *Writer
	st *members.State
	ix *index
	ty *typing // what a member is given that does not have the index; nil: the schema is not known

	to      []target // to be compared; the first is the one that others are made equal to
	pending []string // ids that were not seen to be equal yet
	// odd are the ids for which a member could not be made equal, by address. A member that does not answer is left out of to.
	odd map[string]*oddity
	// fences are those that the last comparison made, by address: what it saw must not be put in the place of what others have seen to be
	// equal since.
	fences map[string]uint64
	// began says that something was put or deleted: from then on it must not end half way.
	began bool
}

// errNoIndexHere is the failure of a member that lacks the index while others have it.
var errNoIndexHere = errors.New("the member does not have the index any more")

// oddity is a member that is not equal to the first, or is not known to be.
type oddity struct {
	target
	ids []string
	err error
}

// settle compares the states of documents at members that have all taken a write, and makes those that differ equal to the first of
// them. Being equal at some moment is enough: whoever writes after that compares after that. It returns the members that are not
// known to be equal to the first, nil if there are none, with hints kept for them. The error is a *staleError, or what ended the
// context.
func (w *Writer) settle(ctx context.Context, st *members.State, ix *index, ty *typing, ids []string, to []target) (map[string]*oddity, error) {
	if len(to) < 2 || len(ids) == 0 {
		return nil, nil
	}
	s := &settling{w: w, st: st, ix: ix, ty: ty, to: slices.Clone(to), pending: ids, odd: map[string]*oddity{}}
	err := s.run(ctx)
	for _, o := range s.odd {
		w.hint(o.Addr, ix.name, o.ids)
	}
	if _, again := errors.AsType[*staleError](err); err == nil || again {
		return s.odd, err // the whole write is repeated
	}
	for _, t := range to[1:] {
		w.hint(t.Addr, ix.name, s.pending)
	}
	if s.began {
		w.finish(s)
	}
	return s.odd, err
}

// finish goes on with a settling whose caller has left, in the background: what was put at one member may have been the answer to
// something that has changed since. Its own caller is a call under way.
func (w *Writer) finish(s *settling) {
	select {
	case w.finisher <- struct{}{}:
	default:
		return // the hints are what is left
	}
	w.calls.Go(func() {
		defer func() { <-w.finisher }()
		ctx, cancel := context.WithTimeout(w.closed, w.o.Limits.SettleTimeout)
		defer cancel()
		if err := s.run(ctx); err != nil {
			w.log.Warn("documents that writers have crossed at are not settled; hints are kept", "index", s.ix.name, "ids", len(s.pending), "error", err)
		}
	})
}

func (s *settling) run(ctx context.Context) error {
	missed := map[string]int{} // calls that failed in a row
	for round := range settleRounds {
		if round > 0 {
			// Whoever crosses here should not cross again in step.
			if err := pause(ctx, time.Duration(rand.Int64N(int64(time.Millisecond)<<min(round, 5)))); err != nil {
				return err
			}
		}
		sums, whole, err := s.compare(ctx, missed)
		if err != nil {
			return err
		}
		if len(s.to) < 2 {
			s.pending = nil
			return nil
		}
		differ := s.differing(sums)
		if whole {
			s.pending = s.pending[:0:0]
			for i := range differ {
				s.pending = append(s.pending, differ[i].id)
			}
			if len(differ) == 0 {
				return nil
			}
		}
		if len(differ) == 0 {
			continue // some members have not said what they have
		}
		if round == 0 {
			s.w.count.crossed.Add(uint64(len(differ)))
		}
		if err := s.repair(ctx, differ); err != nil {
			return err
		}
	}
	sums, _, err := s.compare(ctx, missed)
	if err != nil {
		return err
	}
	for i, t := range s.to {
		if i == 0 {
			continue
		}
		for k, id := range s.pending {
			if sums[i] == nil || sums[0] == nil || sums[i][k] != sums[0][k] {
				s.strange(t, []string{id}, errUnequal)
			}
		}
	}
	s.pending = nil
	return nil
}

// strange notes that a member is not known to be equal.
func (s *settling) strange(t target, ids []string, err error) {
	o := s.odd[t.Addr]
	if o == nil {
		o = &oddity{target: t, err: err}
		s.odd[t.Addr] = o
	}
	o.ids = append(o.ids, ids...)
}

// compare asks every member for the checksums of the documents that are pending. A member that has none is left out of to, and so is one that
// fails twice, which is noted. whole tells whether all that are left have answered; sums has no entry for others.
func (s *settling) compare(ctx context.Context, missed map[string]int) (sums [][]leaf.Sum, whole bool, err error) {
	sums = make([][]leaf.Sum, len(s.to))
	errs, fences, none := make([]error, len(s.to)), make([]uint64, len(s.to)), make([]bool, len(s.to))
	each(len(s.to), func(i int) {
		cctx, cancel := within(ctx, s.w.o.Limits.CallTimeout)
		defer cancel()
		reply, err := leaf.FencedSums(cctx, s.to[i].Leaf, leaf.SumsRequest{Index: s.ix.name, View: leaf.View{Epoch: s.st.Epoch()}, IDs: s.pending})
		if err == nil {
			fences[i] = reply.Fence
		}
		switch {
		case err == nil && len(reply.Sums) != len(s.pending):
			errs[i] = fmt.Errorf("%s gives %d checksums for %d documents", s.to[i].Addr, len(reply.Sums), len(s.pending))
		case err == nil:
			sums[i] = reply.Sums
		case hasCode(err, api.IndexNotFound):
			none[i] = true
		default:
			errs[i] = err
		}
	})
	if cause := context.Cause(ctx); cause != nil {
		return nil, false, cause
	}
	for i := range none {
		switch {
		case !none[i]:
		case i == 0 && slices.Contains(none, false):
			// The index is being deleted, or the member has lost it. The others are not made equal to that.
			errs[i] = errNoIndexHere
		default:
			sums[i] = make([]leaf.Sum, len(s.pending)) // it was deleted with its documents, or was not there yet
		}
	}
	whole = true
	s.fences = map[string]uint64{}
	left, kept := s.to[:0], sums[:0]
	for i, t := range s.to {
		s.fences[t.Addr] = fences[i]
		err := errs[i]
		p, isProblem := errors.AsType[*api.Problem](err)
		switch {
		case err == nil:
			missed[t.Addr] = 0
			left, kept = append(left, t), append(kept, sums[i])
		case members.IsStale(err):
			return nil, false, &staleError{cause: err, applied: true}
		case isProblem && fault(p):
			// It keeps no checksums: what it has confirmed has to do.
		default:
			s.w.faults.note(t.Addr, err)
			if missed[t.Addr]++; missed[t.Addr] > 1 {
				s.strange(t, s.pending, err)
				continue
			}
			whole = false
			left, kept = append(left, t), append(kept, nil)
		}
	}
	s.to = left
	return kept, whole, nil
}

// difference is a document that members have in different states.
type difference struct {
	id   string
	have []*leaf.Sum // by member; nil: it is not known, or what the first one has
}

// differing are the pending documents that some member has in another state than the first.
func (s *settling) differing(sums [][]leaf.Sum) []difference {
	if sums[0] == nil {
		return nil
	}
	var out []difference
	for k, id := range s.pending {
		var have []*leaf.Sum
		for i, of := range sums {
			if of == nil || of[k] == sums[0][k] {
				continue
			}
			if have == nil {
				have = make([]*leaf.Sum, len(sums))
			}
			have[i] = &of[k]
		}
		if have != nil {
			out = append(out, difference{id, have})
		}
	}
	return out
}

// repair puts or deletes documents so that others have what the first has now, if they still have what they were seen to have. It does not
// look at what came of that: the next round does.
func (s *settling) repair(ctx context.Context, todo []difference) error {
	for len(todo) > 0 {
		page := todo[:min(leaf.MaxSync, len(todo))]
		ids := make([]string, len(page))
		for i := range page {
			ids[i] = page[i].id
		}
		docs, read, err := s.export(ctx, ids)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			if members.IsStale(err) {
				return &staleError{cause: err, applied: true}
			}
			s.w.faults.note(s.to[0].Addr, err)
			return nil // the next round asks again
		}
		page = page[:read]
		errs := make([]error, len(s.to))
		s.began = true
		each(len(s.to)-1, func(i int) {
			i++
			var items []leaf.SyncItem
			for _, d := range page {
				if d.have[i] != nil {
					items = append(items, leaf.SyncItem{ID: d.id, Expect: *d.have[i], Body: docs[d.id]})
				}
			}
			errs[i] = s.sync(ctx, s.to[i], items)
		})
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		for i, err := range errs {
			if members.IsStale(err) {
				return &staleError{cause: err, applied: true}
			}
			if err != nil {
				s.w.faults.note(s.to[i].Addr, err)
			}
		}
		todo = todo[read:]
	}
	return nil
}

// errEnough ends an Export that has filled the memory it may.
var errEnough = errors.New("enough documents")

// export reads documents from the first member, as far as they fit: read of the ids. Those that are not there are not in docs.
func (s *settling) export(ctx context.Context, ids []string) (docs map[string][]byte, read int, err error) {
	ctx, cancel := within(ctx, s.w.o.Limits.CallTimeout)
	defer cancel()
	docs = make(map[string][]byte, len(ids))
	size, last := 0, ""
	_, err = s.to[0].Leaf.Export(ctx, &leaf.ExportRequest{Index: s.ix.name, View: leaf.View{Epoch: s.st.Epoch()}, IDs: ids}, func(doc leaf.ExportedDoc) error {
		docs[doc.ID], last = slices.Clone(doc.Source), doc.ID
		if size += len(doc.Source); size >= settleBytes {
			return errEnough
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		return docs, slices.Index(ids, last) + 1, nil
	case err == nil, hasCode(err, api.IndexNotFound):
		return docs, len(ids), nil
	}
	return nil, 0, err
}

// sync gives a member the items.
func (s *settling) sync(ctx context.Context, t target, items []leaf.SyncItem) error {
	if len(items) == 0 {
		return nil
	}
	ctx, cancel := within(ctx, s.w.o.Limits.CallTimeout)
	defer cancel()
	if s.ty != nil && !s.ty.absent {
		if err := s.ix.ready(ctx, s.st, t, s.ty); err != nil {
			return err
		}
	}
	reply, err := t.Leaf.Sync(ctx, &leaf.SyncRequest{Index: s.ix.name, View: leaf.View{Epoch: s.st.Epoch()}, Items: items, Fence: s.fences[t.Addr]})
	if hasCode(err, api.IndexNotFound) {
		s.ix.forget(t.Addr) // so that it is given the schema in the next round
		return nil
	}
	if err != nil {
		return err
	}
	n := 0
	for _, ok := range reply.Applied {
		if ok {
			n++
		}
	}
	s.w.count.settled.Add(uint64(n))
	return nil
}
