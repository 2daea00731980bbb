package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
)

// Bounds of calls.
const (
	briefTime  = 30 * time.Second // of a call about a bounded number of documents
	longTime   = 10 * time.Minute // of one that looks at a whole index
	busyTries  = 20               // of a call that is refused for want of room
	mostBusy   = 2 * time.Second  // between two of them
	batchBytes = 4 << 20          // of them in memory, for each batch under way
)

// partialError says that a member is a coordinator, and not all of its own members did what they were to do.
type partialError struct{ failed []string }

func (e *partialError) Error() string {
	return fmt.Sprintf("not all members below answered: %v", e.failed)
}

// hasCode tells whether an error is the problem with a code.
func hasCode(err error, code api.Code) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == code
}

// work is some work on documents that goes by one shard map.
type work struct {
	r  *Runner
	st *members.State
	// background says that nobody has asked for the work: it keeps its hands off what looks wrong as a whole.
	background bool
	// asAsked says that the reference is right about each document that it has: somebody has said so.
	asAsked bool
	// forced says that it is right also where it may have lost its documents.
	forced bool
	// unsure says that the reference refuses documents of which only another coordinator knows which they are: members are given what they
	// lack, and what differs stays.
	unsure bool
	// chosen, unless nil, tells whether the reference is right about a document. What it is not right about stays as it is, for errWaits.
	chosen func(e hints.Entry) bool
	// listens says that others are heard once more before chosen is asked, and that it alone says what is taken from the reference.
	listens bool

	mu        sync.Mutex
	uncertain bool              // a write may be under way yet at a member that has not confirmed it
	schemas   map[schemaAt]bool // who has been given whose schema
	// refused are documents that a member does not take for a reason of their own.
	refused map[hints.Entry]error
	tally   tally
}

// tally counts what was done.
type tally struct {
	copied, removed uint64        // documents, at each member
	gone            atomic.Uint64 // documents that were listed and were not at the reference when it was asked for them
}

// add adds the documents of another one, but for those that were gone.
func (t *tally) add(of *tally) { t.copied, t.removed = t.copied+of.copied, t.removed+of.removed }

type schemaAt struct{ index, from, to string }

func (r *Runner) work(st *members.State) *work {
	return &work{r: r, st: st, schemas: map[schemaAt]bool{}, refused: map[hints.Entry]error{}}
}

func (w *work) view(owned ...placement.Share) leaf.View {
	return leaf.View{Epoch: w.st.Epoch(), Owned: owned, Lenient: true}
}

// doubtful tells whether a write that failed may be applied yet.
func doubtful(err error) bool {
	if leaf.RetryWrite(err) || members.IsStale(err) {
		return false
	}
	p, ok := errors.AsType[*api.Problem](err)
	return !ok || p.HTTPStatus() >= api.StatusCallerGone
}

// ask makes one call of a member. A refusal for want of room is tried again; what is not known of all members below is an error.
func ask[R any](ctx context.Context, m *members.Member, call string, limit time.Duration, meta func(*R) *leaf.Meta, fn func(ctx context.Context) (*R, error)) (*R, error) {
	for try := 1; ; try++ {
		reply, err := func() (*R, error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return fn(ctx)
		}()
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if err == nil && meta != nil {
			if b := meta(reply).Below; b != nil && b.Shards.Failed > 0 {
				err = &partialError{b.Shards.FailedAddresses}
			}
		}
		if err == nil {
			return reply, nil
		}
		if leaf.ClassOf(err) != leaf.Here || try == busyTries {
			return nil, &memberError{m.Addr, call, err}
		}
		var wait time.Duration
		if p, ok := errors.AsType[*api.Problem](err); ok {
			wait = time.Duration(p.RetryAfterMS) * time.Millisecond
		}
		if err := pause(ctx, min(max(wait, backoff(try, 10*time.Millisecond, mostBusy)), mostBusy)); err != nil {
			return nil, err
		}
	}
}

// answers tells whether a member answers.
func answers(ctx context.Context, m *members.Member) error {
	_, err := ask(ctx, m, "Ping", briefTime, nil, m.Leaf.Ping)
	return err
}

// fences are those that members made for documents when their checksums were read, by address.
type fences map[string]uint64

// sums are the checksums that members have of documents, by member. A member without the index has none of them.
func (w *work) sums(ctx context.Context, index string, of []*members.Member, ids []string) ([][]leaf.Sum, error) {
	out, _, err := w.sumsBy(ctx, index, of, ids, func(ctx context.Context, m leaf.Member, req leaf.SumsRequest) (*leaf.SumsReply, error) {
		return m.Sums(ctx, &req)
	})
	return out, err
}

// fenced are the checksums that members have of documents which are to be changed by them, and the fences for that.
func (w *work) fenced(ctx context.Context, index string, of []*members.Member, ids []string) ([][]leaf.Sum, fences, error) {
	return w.sumsBy(ctx, index, of, ids, leaf.FencedSums)
}

func (w *work) sumsBy(ctx context.Context, index string, of []*members.Member, ids []string,
	call func(context.Context, leaf.Member, leaf.SumsRequest) (*leaf.SumsReply, error),
) ([][]leaf.Sum, fences, error) {
	out, made := make([][]leaf.Sum, len(of)), make([]uint64, len(of))
	g, ctx := errgroup.WithContext(ctx)
	for i, m := range of {
		g.Go(func() error {
			reply, err := ask(ctx, m, "Sums", briefTime, func(r *leaf.SumsReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.SumsReply, error) {
				return call(ctx, m.Leaf, leaf.SumsRequest{Index: index, View: w.view(), IDs: ids})
			})
			switch {
			case hasCode(err, api.IndexNotFound):
				out[i] = make([]leaf.Sum, len(ids))
			case err != nil:
				return err
			case len(reply.Sums) != len(ids):
				return &memberError{m.Addr, "Sums", errLength}
			default:
				out[i], made[i] = reply.Sums, reply.Fence
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	by := make(fences, len(of))
	for i, m := range of {
		by[m.Addr] = made[i]
	}
	return out, by, nil
}

// errLength is the failure of a reply that is not what was asked for.
var errLength = errors.New("the reply does not fit the request")

// errEnough ends a stream that has given what there is room for.
var errEnough = errors.New("enough")

// export reads documents, as far as they fit into a batch: the first read of the ids. Those that are not there are not in docs.
func (w *work) export(ctx context.Context, index string, m *members.Member, ids []string) (docs map[string][]byte, read int, err error) {
	enough := false
	_, err = ask(ctx, m, "Export", briefTime, func(r *leaf.ExportReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.ExportReply, error) {
		docs, read, enough = make(map[string][]byte, len(ids)), 0, false
		size := 0
		reply, err := m.Leaf.Export(ctx, &leaf.ExportRequest{Index: index, View: w.view(), IDs: ids}, func(doc leaf.ExportedDoc) error {
			docs[doc.ID] = slices.Clone(doc.Source)
			read = slices.Index(ids, doc.ID) + 1
			if size += len(doc.Source); size >= batchBytes {
				enough = true
				return errEnough
			}
			return nil
		})
		if enough && errors.Is(err, errEnough) {
			return &leaf.ExportReply{}, nil
		}
		return reply, err
	})
	switch {
	case hasCode(err, api.IndexNotFound):
		return nil, len(ids), nil
	case err != nil:
		return nil, 0, err
	case !enough:
		read = len(ids)
	}
	return docs, read, nil
}

// tooLarge tells whether a member does not even look into a call, for what it carries is too long for it.
func tooLarge(err error) bool {
	return hasCode(err, api.BodyTooLarge) || hasCode(err, api.DocumentTooLarge)
}

// sync gives a member items, for which by are the fences of the checksums that they expect. Which of them were applied is for who compares
// afterwards; heard is how many the member applied or gave a reason for. Items that are too much for one call are given in parts, so that a document
// that is too long by itself keeps nothing from the others.
func (w *work) sync(ctx context.Context, index string, m *members.Member, items []leaf.SyncItem, by fences) (heard int, err error) {
	if len(items) == 0 {
		return 0, nil
	}
	bytes := 0
	for i := range items {
		bytes += len(items[i].Body)
	}
	w.r.pace.used(len(items), bytes)
	reply, err := ask(ctx, m, "Sync", briefTime, func(r *leaf.SyncReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.SyncReply, error) {
		return m.Leaf.Sync(ctx, &leaf.SyncRequest{Index: index, View: w.view(), Items: items, Fence: by[m.Addr]})
	})
	if tooLarge(err) && len(items) > 1 {
		half := len(items) / 2
		first, err := w.sync(ctx, index, m, items[:half], by)
		if err != nil {
			return first, err
		}
		second, err := w.sync(ctx, index, m, items[half:], by)
		return first + second, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case tooLarge(err):
		w.refused[hints.Entry{Index: index, ID: items[0].ID}] = err
		return 1, nil
	case hasCode(err, api.IndexNotFound):
		w.forgetLocked(index, m.Addr)
		return 1, nil
	case err != nil:
		w.uncertain = w.uncertain || doubtful(err)
		return 0, err
	}
	for i := range items {
		heard++
		switch {
		case i < len(reply.Problems) && reply.Problems[i] != nil:
			// It may lack fields: it is given the schema again before the next try.
			w.forgetLocked(index, m.Addr)
			w.refused[hints.Entry{Index: index, ID: items[i].ID}] = &memberError{m.Addr, "Sync", reply.Problems[i]}
		case i >= len(reply.Applied) || !reply.Applied[i]:
			heard--
		case items[i].Body == nil:
			w.tally.removed++
			w.r.count.removed.Add(1)
		default:
			delete(w.refused, hints.Entry{Index: index, ID: items[i].ID})
			w.tally.copied++
			w.r.count.copied.Add(1)
		}
	}
	return heard, nil
}

// refuse notes why a document is not given.
func (w *work) refuse(e hints.Entry, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused[e] = err
}

// forgetLocked forgets that a member was given schemas of an index. It needs mu.
func (w *work) forgetLocked(index, addr string) {
	maps.DeleteFunc(w.schemas, func(at schemaAt, _ bool) bool { return at.index == index && at.to == addr })
}

// indexes lists the indexes of a member with their schemas.
func (w *work) indexes(ctx context.Context, m *members.Member) (map[string]string, error) {
	reply, err := ask(ctx, m, "Indexes", briefTime, func(r *leaf.IndexesReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.IndexesReply, error) {
		return m.Leaf.Indexes(ctx, &leaf.IndexesRequest{})
	})
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(reply.Indexes))
	for i := range reply.Indexes {
		out[reply.Indexes[i].Name] = reply.Indexes[i].Schema
	}
	return out, nil
}

// info is the schema of an index at a member; found is false where it does not have it.
func (w *work) info(ctx context.Context, index string, m *members.Member) (sdl string, found bool, err error) {
	reply, err := ask(ctx, m, "Info", briefTime, func(r *leaf.InfoReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.InfoReply, error) {
		return m.Leaf.Info(ctx, &leaf.InfoRequest{Index: index})
	})
	if hasCode(err, api.IndexNotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return reply.Index.Schema, true, nil
}

// prepare gives members the schema that another has, so that they never guess the type of a field by themselves. found is false where
// that one does not have the index. Who has it is remembered, until a member does not take a document.
func (w *work) prepare(ctx context.Context, index string, from *members.Member, to ...*members.Member) (found bool, err error) {
	w.mu.Lock()
	todo := slices.DeleteFunc(slices.Clone(to), func(m *members.Member) bool { return w.schemas[schemaAt{index, from.Addr, m.Addr}] })
	w.mu.Unlock()
	if len(todo) == 0 {
		return true, nil
	}
	sdl, found, err := w.info(ctx, index, from)
	if err != nil {
		return false, err
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, m := range todo {
		g.Go(func() error {
			if !found {
				return w.unmake(gctx, index, m)
			}
			return w.putIndex(gctx, index, sdl, from, m)
		})
	}
	if !found {
		return false, g.Wait()
	}
	return true, g.Wait()
}

// putIndex gives a member a schema, unless it has it.
func (w *work) putIndex(ctx context.Context, index, sdl string, from, m *members.Member) error {
	have, found, err := w.info(ctx, index, m)
	if err != nil {
		return err
	}
	made := madeAt{index, m.Addr}
	if !found || have != sdl {
		reply, err := ask(ctx, m, "PutIndex", briefTime, func(r *leaf.PutIndexReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.PutIndexReply, error) {
			return m.Leaf.PutIndex(ctx, &leaf.PutIndexRequest{Index: index, Epoch: w.st.Epoch(), Schema: sdl})
		})
		if err != nil {
			return err
		}
		if reply.Made {
			w.r.made.add(made)
		}
	}
	if w.r.made.has(made) {
		// Somebody may have deleted the index meanwhile, everywhere but where it was not yet. That has to be known for certain, if only by a later
		// look: writers give their documents to the member as soon as it has the index.
		_, still, err := w.info(ctx, index, from)
		if err != nil {
			return err
		}
		if !still {
			return w.unmake(ctx, index, m)
		}
		w.r.made.remove(made)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.schemas[schemaAt{index, from.Addr, m.Addr}] = true
	return nil
}

// unmake deletes an index that was made at a member and has been deleted elsewhere meanwhile. One that has documents was made anew by who wrote
// them.
func (w *work) unmake(ctx context.Context, index string, m *members.Member) error {
	made := madeAt{index, m.Addr}
	if !w.r.made.has(made) {
		return nil
	}
	n, err := w.docs(ctx, index, m)
	if err == nil && n == 0 {
		err = w.dropIndex(ctx, index, m)
	}
	if err == nil {
		w.r.made.remove(made)
	}
	return err
}

// madeAt is an index at a member.
type madeAt struct{ index, addr string }

// madeIndexes are those that this coordinator has made at members, as another member has them, and has not seen there since.
type madeIndexes struct {
	mu sync.Mutex
	of map[madeAt]bool
}

func (m *madeIndexes) add(at madeAt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[madeAt]bool{}
	}
	m.of[at] = true
}

func (m *madeIndexes) has(at madeAt) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[at]
}

func (m *madeIndexes) remove(at madeAt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, at)
}

// dropIndex deletes an index at a member.
func (w *work) dropIndex(ctx context.Context, index string, m *members.Member) error {
	_, err := ask(ctx, m, "DropIndex", briefTime, func(r *leaf.DropIndexReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.DropIndexReply, error) {
		return m.Leaf.DropIndex(ctx, &leaf.DropIndexRequest{Index: index, Epoch: w.st.Epoch()})
	})
	if hasCode(err, api.IndexNotFound) {
		return nil
	}
	return err
}

// docs counts the documents of an index at a member, those that all shares own.
func (w *work) docs(ctx context.Context, index string, m *members.Member, owned ...placement.Share) (uint64, error) {
	reply, err := ask(ctx, m, "Docs", longTime, func(r *leaf.DocsReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.DocsReply, error) {
		return m.Leaf.Docs(ctx, &leaf.DocsRequest{Index: index, View: w.view(owned...)})
	})
	if hasCode(err, api.IndexNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return reply.Docs, nil
}

// listing is a part of the ids of an index.
type listing struct {
	ids  []string
	seen []uint64 // of each id: how many were looked at up to it, itself included
	all  uint64   // looked at
	end  bool     // there are none behind
}

// list gives those of the ids above after that keep wants, up to most of them.
func (w *work) list(ctx context.Context, index string, m *members.Member, after string, most int, keep func(id string) bool) (*listing, error) {
	var l *listing
	_, err := ask(ctx, m, "IDs", longTime, func(r *leaf.IDsReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.IDsReply, error) {
		l = &listing{end: true}
		last := after
		reply, err := m.Leaf.IDs(ctx, &leaf.IDsRequest{Index: index, View: w.view(), After: after}, func(ids []string) error {
			for _, id := range ids {
				if id <= last {
					return fmt.Errorf("the id %q stands behind %q", api.Clip(id), api.Clip(last))
				}
				last = id
				l.all++
				if !keep(id) {
					continue
				}
				l.ids, l.seen = append(l.ids, id), append(l.seen, l.all)
				if len(l.ids) == most {
					l.end = false
					return errEnough
				}
			}
			return nil
		})
		if !l.end && errors.Is(err, errEnough) {
			return &leaf.IDsReply{}, nil
		}
		return reply, err
	})
	if hasCode(err, api.IndexNotFound) {
		return &listing{end: true}, nil
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}
