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
	settleRounds = 64
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
	// own is what every member of to has just taken; nil if some have not. A copy that somebody else made of a member that had not taken it yet
	// may have undone it at another: see leaf.SumsReply.Synced. What was written is not older than it, so members are made equal to
	// one with that; and where no member has that, what is own is put there once more, for it is not acknowledged yet.
	own *own
	put map[string]bool // of own, what was put once more
	// again is what some of to took before; nil if none did, and then own may be something.
	again *repetition
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

// own is what a write has put at members.
type own struct {
	sums   map[string]leaf.Sum    // of the documents; zero: deleted
	source func(id string) []byte // of a document that is not deleted
	mark   leaf.Mark              // of the write; 0: it has none
}

// repetition is a part of a load that some members took when it was sent before. What they have of it may have been written since, and stays. But
// where it was copied to them it may also be older than the load: another coordinator that did not know who missed it has made them equal to who
// did. Then nobody can tell whether the load still stands.
type repetition struct {
	took   map[string]bool     // who took it before, by address
	sums   map[string]leaf.Sum // of the documents, as the load has them
	unsure map[string]bool     // of which it cannot be told
}

// deletedOwn is the deletion of documents.
func deletedOwn(ids []string) *own {
	o := &own{sums: make(map[string]leaf.Sum, len(ids))}
	for _, id := range ids {
		o.sums[id] = leaf.Sum{}
	}
	return o
}

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
func (w *Writer) settle(ctx context.Context, st *members.State, ix *index, ty *typing, ids []string, own *own, again *repetition, to []target) (map[string]*oddity, error) {
	if len(to) < 2 || len(ids) == 0 {
		return nil, nil
	}
	s := &settling{w: w, st: st, ix: ix, ty: ty, to: slices.Clone(to), pending: ids, own: own, again: again, odd: map[string]*oddity{}}
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
		s.own = nil // whoever wrote it has left: what others have written since stays
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
		mark := leaf.Mark(0)
		if round == 0 && s.own != nil {
			mark = s.own.mark
		}
		sums, synced, whole, last, err := s.compare(ctx, missed, mark)
		if err != nil {
			return err
		}
		if len(s.to) < 2 || last {
			s.pending = nil
			return nil
		}
		differ := s.differing(sums, synced, whole)
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
	sums, _, _, _, err := s.compare(ctx, missed, 0)
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
// fails twice, which is noted. whole tells whether all that are left have answered; sums has no entry for others. synced are
// the documents of each that a Sync may have changed last. last, with the mark of a write, tells that it is the last thing that was done with them at
// all members.
func (s *settling) compare(ctx context.Context, missed map[string]int, mark leaf.Mark) (sums [][]leaf.Sum, synced []map[string]bool, whole, last bool, err error) {
	sums, synced = make([][]leaf.Sum, len(s.to)), make([]map[string]bool, len(s.to))
	errs, fences, none := make([]error, len(s.to)), make([]uint64, len(s.to)), make([]bool, len(s.to))
	lasts := make([]bool, len(s.to))
	each(len(s.to), func(i int) {
		reply, err := attended(ctx, s.w, s.to[i], "Sums", s.w.o.Limits.CallTimeout, false, func(ctx context.Context) (*leaf.SumsReply, error) {
			return leaf.FencedSums(ctx, s.to[i].Leaf, leaf.SumsRequest{Index: s.ix.name, View: leaf.View{Epoch: s.st.Epoch()}, IDs: s.pending, Mark: mark})
		})
		if err == nil {
			fences[i], lasts[i] = reply.Fence, reply.Last
			synced[i] = s.syncedAt(reply)
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
		return nil, nil, false, false, cause
	}
	for i := range none {
		switch {
		case !none[i]:
		case i == 0 && slices.Contains(none, false):
			// The index is being deleted, or the member has lost it. The others are not made equal to that.
			errs[i] = errNoIndexHere
		default:
			sums[i] = make([]leaf.Sum, len(s.pending)) // it was deleted with its documents, or was not there yet
			synced[i] = s.all()                        // others are not made equal to that
		}
	}
	whole = true
	s.fences = map[string]uint64{}
	left, kept, by := s.to[:0], sums[:0], synced[:0]
	for i, t := range s.to {
		s.fences[t.Addr] = fences[i]
		err := errs[i]
		p, isProblem := errors.AsType[*api.Problem](err)
		switch {
		case err == nil:
			missed[t.Addr] = 0
			left, kept, by = append(left, t), append(kept, sums[i]), append(by, synced[i])
		case members.IsStale(err):
			return nil, nil, false, false, &staleError{cause: err, applied: true}
		case isProblem && fault(p):
			// It keeps no checksums: what it has confirmed has to do.
		default:
			s.w.faults.note(t.Addr, err)
			if missed[t.Addr]++; missed[t.Addr] > 1 {
				s.strange(t, s.pending, err)
				continue
			}
			whole = false
			left, kept, by = append(left, t), append(kept, nil), append(by, nil)
		}
	}
	s.to = left
	return kept, by, whole, mark != 0 && !slices.Contains(lasts, false), nil
}

// all are the documents that are pending.
func (s *settling) all() map[string]bool {
	out := make(map[string]bool, len(s.pending))
	for _, id := range s.pending {
		out[id] = true
	}
	return out
}

// syncedAt are the documents of which a member says that a Sync may have changed them last.
func (s *settling) syncedAt(reply *leaf.SumsReply) map[string]bool {
	if s.own == nil && s.again == nil || len(reply.Synced) == 0 {
		return nil
	}
	out := make(map[string]bool, len(reply.Synced))
	for _, at := range reply.Synced {
		if at < len(s.pending) {
			out[s.pending[at]] = true
		}
	}
	return out
}

// difference is a document that is not in the state at all members that it is to have.
type difference struct {
	id   string
	from int         // the member whose state it is to have; -1: it is to be what is own
	have []*leaf.Sum // by member; nil: it is not known, or what it is to be
}

// differing are the pending documents that some member has in another state than the one that is the example, and those that all have in
// a state which may be older than what is own.
func (s *settling) differing(sums [][]leaf.Sum, synced []map[string]bool, whole bool) []difference {
	var out []difference
	for k, id := range s.pending {
		from, copied := s.example(k, sums, synced)
		if from < 0 {
			continue
		}
		want := sums[from][k]
		var have []*leaf.Sum
		for i, of := range sums {
			if of == nil || of[k] == want {
				continue
			}
			if have == nil {
				have = make([]*leaf.Sum, len(sums))
			}
			have[i] = &of[k]
		}
		if have == nil && copied && whole {
			have = s.undone(k, id, sums)
			from = -1
		}
		if have != nil {
			out = append(out, difference{id, from, have})
		}
	}
	return out
}

// example is the member that others are made equal to for a document, -1 if that is not known: the first that has what was written there
// last, or, if no member has, the first. copied says that none has.
func (s *settling) example(k int, sums [][]leaf.Sum, synced []map[string]bool) (from int, copied bool) {
	id := s.pending[k]
	if s.again != nil {
		if from, known := s.taken(k, sums, synced); known {
			return from, false
		}
	}
	if s.own != nil {
		for i := range sums {
			if sums[i] != nil && !synced[i][id] {
				return i, false
			}
		}
	}
	if sums[0] == nil {
		return -1, false
	}
	return 0, s.own != nil
}

// taken is example among those who took the load before: the first that has what was written there last or, if none has, the first, of which
// it is noted whether that may be older than the load. known is false if none of them is left.
func (s *settling) taken(k int, sums [][]leaf.Sum, synced []map[string]bool) (from int, known bool) {
	id := s.pending[k]
	from = -1
	for i, t := range s.to {
		switch {
		case !s.again.took[t.Addr]:
		case sums[i] == nil:
			return -1, true // it may be the one
		case !synced[i][id]:
			delete(s.again.unsure, id)
			return i, true
		case from < 0:
			from = i
		}
	}
	if from < 0 {
		return -1, false
	}
	delete(s.again.unsure, id)
	if sums[from][k] != s.again.sums[id] {
		s.again.unsure[id] = true
	}
	return from, true
}

// undone is what members have of a document of which all have a copy that may be older than what is own, nil if it is that, or was put once
// more already.
func (s *settling) undone(k int, id string, sums [][]leaf.Sum) []*leaf.Sum {
	want, ok := s.own.sums[id]
	if !ok || sums[0][k] == want || s.put[id] {
		return nil
	}
	if s.put == nil {
		s.put = map[string]bool{}
	}
	s.put[id] = true
	have := make([]*leaf.Sum, len(sums))
	for i := range sums {
		have[i] = &sums[i][k]
	}
	return have
}

// repair puts or deletes documents so that members have what the example has now, or what is own, if they still have what they were seen to
// have. It does not look at what came of that: the next round does.
func (s *settling) repair(ctx context.Context, todo []difference) error {
	slices.SortStableFunc(todo, func(a, b difference) int { return a.from - b.from })
	for len(todo) > 0 {
		page := todo[:min(leaf.MaxSync, len(todo))]
		if end := slices.IndexFunc(page, func(d difference) bool { return d.from != page[0].from }); end > 0 {
			page = page[:end]
		}
		docs, read, err := s.sources(ctx, page)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			if members.IsStale(err) {
				return &staleError{cause: err, applied: true}
			}
			s.w.faults.note(s.to[page[0].from].Addr, err)
			return nil // the next round asks again
		}
		page = page[:read]
		errs := make([]error, len(s.to))
		s.began = true
		each(len(s.to), func(i int) {
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

// sources are the documents of a page of which all have the same example, as far as they fit: read of them. Those that are deleted are not in
// docs.
func (s *settling) sources(ctx context.Context, page []difference) (docs map[string][]byte, read int, err error) {
	if page[0].from >= 0 {
		ids := make([]string, len(page))
		for i := range page {
			ids[i] = page[i].id
		}
		return s.export(ctx, s.to[page[0].from], ids)
	}
	docs = make(map[string][]byte, len(page))
	for _, d := range page {
		if s.own.sums[d.id] != (leaf.Sum{}) {
			docs[d.id] = s.own.source(d.id)
		}
	}
	s.w.count.undone.Add(uint64(len(page)))
	return docs, len(page), nil
}

// errEnough ends an Export that has filled the memory it may.
var errEnough = errors.New("enough documents")

// export reads documents from a member, as far as they fit: read of the ids. Those that are not there are not in docs.
func (s *settling) export(ctx context.Context, from target, ids []string) (docs map[string][]byte, read int, err error) {
	docs = make(map[string][]byte, len(ids))
	size, last := 0, ""
	_, err = attended(ctx, s.w, from, "Export", s.w.o.Limits.CallTimeout, false, func(ctx context.Context) (*leaf.ExportReply, error) {
		return from.Leaf.Export(ctx, &leaf.ExportRequest{Index: s.ix.name, View: leaf.View{Epoch: s.st.Epoch()}, IDs: ids}, func(doc leaf.ExportedDoc) error {
			docs[doc.ID], last = slices.Clone(doc.Source), doc.ID
			if size += len(doc.Source); size >= settleBytes {
				return errEnough
			}
			return nil
		})
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
	reply, err := attended(ctx, s.w, t, "Sync", s.w.o.Limits.CallTimeout, true, func(ctx context.Context) (*leaf.SyncReply, error) {
		if s.ty != nil && !s.ty.absent {
			if err := s.ix.ready(ctx, s.st, t, s.ty); err != nil {
				return nil, err
			}
		}
		return t.Leaf.Sync(ctx, &leaf.SyncRequest{Index: s.ix.name, View: leaf.View{Epoch: s.st.Epoch()}, Items: items, Fence: s.fences[t.Addr]})
	})
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
