package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/text"
)

// Schema is the schema of an index over all members, at most Limits.SchemaAge old, or asked for now with fresh. An index that is not there
// is api.IndexNotFound. The schema is shared and not to be changed.
func (w *Writer) Schema(caller context.Context, index string, fresh bool) (*schema.Schema, error) {
	name, err := indexName(index)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := w.enter(caller)
	if err != nil {
		return nil, err
	}
	defer leave()
	st := w.src.State()
	if st == nil {
		return nil, notReady()
	}
	ix := w.schemas.of(w, name)
	since := time.Now()
	if ty := ix.known(since.Add(-w.o.Limits.SchemaAge)); ty != nil && !ty.absent && !fresh {
		return ty.schema, nil
	}
	if old := ix.known(time.Time{}); old != nil && !old.absent && !fresh {
		return ix.glance(ctx, st, since, old)
	}
	ty, err := ix.current(ctx, st, since, fresh)
	if err != nil {
		return nil, err
	}
	if ty.absent {
		return nil, noIndex(name)
	}
	return ty.schema, nil
}

// How long a reader that knows a schema waits for a newer one, of its time at most a quarter, and for how long nobody does behind one that
// waited in vain.
const (
	longGlance = 250 * time.Millisecond
	blinded    = 5 * time.Second
)

// glance is the schema for a reader who knows one from before: the time of a search is not for members that hang. One that is older than
// what shards have is noticed by their answers, and then asked for anew.
func (ix *index) glance(ctx context.Context, st *members.State, since time.Time, old *typing) (*schema.Schema, error) {
	ix.mu.Lock()
	blind := since.Before(ix.blind)
	ix.mu.Unlock()
	if blind {
		return old.schema, nil
	}
	patience := longGlance
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, end.Sub(since)/4)
	}
	look, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ty, err := ix.current(look, st, since, false)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil, ty == old && ix.known(since) == nil && look.Err() != nil:
		ix.mu.Lock()
		ix.blind = time.Now().Add(blinded)
		ix.mu.Unlock()
		return old.schema, nil
	case ty.absent:
		return nil, noIndex(ix.name)
	}
	return ty.schema, nil
}

// typing is a schema of an index to take documents apart by. It does not change.
type typing struct {
	schema  *schema.Schema
	sdl     string
	absent  bool   // no member has the index: this is what it would begin with
	version uint64 // grows with every other schema of the index
	parsers sync.Pool
}

// parser takes a parser of the schema; put gives it back.
func (t *typing) parser(l Limits) *jsondoc.Parser {
	if p, ok := t.parsers.Get().(*jsondoc.Parser); ok {
		return p
	}
	return jsondoc.NewParser(t.schema, l.doc())
}

func (t *typing) put(p *jsondoc.Parser) { t.parsers.Put(p) }

func (l Limits) doc() jsondoc.Limits { return jsondoc.Limits{DocumentBytes: int(l.DocumentBytes)} }

// maxSchemas bounds the indexes whose schemas are remembered. It is more than a member may have.
const maxSchemas = 4096

// schemas are the indexes that a Writer knows.
type schemas struct {
	mu   sync.Mutex
	list map[string]*index
}

func (s *schemas) of(w *Writer, name string) *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ix := s.list[name]; ix != nil {
		return ix
	}
	if s.list == nil {
		s.list = map[string]*index{}
	}
	for other := range s.list {
		if len(s.list) < maxSchemas {
			break
		}
		delete(s.list, other) // whoever works with it goes on; the next one asks the members
	}
	ix := &index{w: w, name: name, busy: make(chan struct{}, 1), given: map[string]given{}}
	s.list[name] = ix
	return ix
}

// index is what is known of the schema of one index.
type index struct {
	w    *Writer
	name string
	busy chan struct{} // holds a token while members are asked or told; a lock that a context can give up waiting for

	mu    sync.Mutex
	cur   *typing // nil: not known
	at    time.Time
	blind time.Time        // until then readers take what is known: members were waited for in vain
	last  uint64           // version of the newest typing
	given map[string]given // by address
}

// given says which schema a member has for certain: that of the version, unless the member has failed since.
type given struct{ version, faults uint64 }

// faults counts the failures of members after which they may not be what they were.
type faults struct {
	mu sync.Mutex
	n  map[string]uint64
}

func (f *faults) note(addr string, err error) {
	if leaf.ClassOf(err) != leaf.Elsewhere {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil {
		f.n = map[string]uint64{}
	}
	f.n[addr]++
}

func (f *faults) of(addr string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n[addr]
}

// lock takes the turn to ask or tell the members.
func (ix *index) lock(ctx context.Context) error {
	select {
	case ix.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (ix *index) unlock() { <-ix.busy }

// known is the typing if it was asked for at since or later, else nil.
func (ix *index) known(since time.Time) *typing {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.cur == nil || ix.at.Before(since) {
		return nil
	}
	return ix.cur
}

// current is the typing as of since or later. Without must an older one does where members do not answer, or are being asked.
func (ix *index) current(ctx context.Context, st *members.State, since time.Time, must bool) (*typing, error) {
	if ty := ix.known(since); ty != nil {
		return ty, nil
	}
	old := ix.known(time.Time{})
	if old != nil && !must {
		select {
		case ix.busy <- struct{}{}:
		default:
			return old, nil
		}
	} else if err := ix.lock(ctx); err != nil {
		return nil, err
	}
	defer ix.unlock()
	if ty := ix.known(since); ty != nil {
		return ty, nil
	}
	var firstErr error
	for _, g := range st.Groups {
		ty, err := ix.survey(ctx, targets(g), graceOfAsking)
		if err == nil && ty.absent && len(st.Groups) > 1 {
			// A group whose members were all replaced does not speak for the others.
			ty, err = ix.survey(ctx, targets(st.Groups...), graceOfAsking)
		}
		if err == nil {
			return ty, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if firstErr == nil {
			firstErr = err
		}
		if old != nil && !must {
			return old, nil
		}
	}
	return nil, firstErr
}

// drop forgets the schema.
func (ix *index) drop() {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.cur = nil
	clear(ix.given)
}

// keep makes a schema the current one. An equal one stays as it is.
func (ix *index) keep(sch *schema.Schema, sdl string, absent bool, began time.Time) *typing {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.at = began
	if c := ix.cur; c != nil && c.sdl == sdl && c.absent == absent {
		return c
	}
	if absent {
		clear(ix.given)
	}
	ix.last++
	ix.cur = &typing{schema: sch, sdl: sdl, absent: absent, version: ix.last}
	return ix.cur
}

// parse is the schema that SDL of a member stands for; that of the current typing where it is the same.
func (ix *index) parse(sdl string) (*schema.Schema, error) {
	if c := ix.known(time.Time{}); c != nil && c.sdl == sdl {
		return c.schema, nil
	}
	sch, prob := api.ReadSchema(ix.name, false, []byte(sdl), text.Check)
	if prob != nil {
		return nil, fmt.Errorf("read the schema of index %q at a member: %w", ix.name, prob)
	}
	return sch, nil
}

// How long members are waited for that are asked for a schema.
const (
	askTimeout    = 2 * time.Second
	graceOfAsking = 100 * time.Millisecond // once one of them has answered what is enough
)

// answer is what a member says about an index.
type answer struct {
	target
	info   *api.IndexInfo // nil: it does not have the index, or has not answered
	absent bool
	err    error
}

// enough tells whether the answer says all that has to be known: what the index is, or that there is none, which the first group alone can say.
func (a *answer) enough() bool { return a.info != nil || a.absent && a.group == 0 }

// ask asks members for an index. With a grace, those that have not answered so long after the first whose answer is enough are not waited for.
func (ix *index) ask(ctx context.Context, to []target, grace time.Duration) []answer {
	ctx, cancel := context.WithTimeout(ctx, min(askTimeout, ix.w.o.Limits.CallTimeout))
	defer cancel()
	list := make([]answer, len(to))
	one := func(i int) {
		a := &list[i]
		a.target = to[i]
		if a.Gone(ctx, ix.w.o.Limits.Hung) {
			a.err = &leaf.TransportError{Address: a.Addr, Call: "Info", Cause: members.ErrHung}
			return
		}
		reply, err := a.Leaf.Info(ctx, &leaf.InfoRequest{Index: ix.name})
		switch {
		case err == nil:
			a.info = &reply.Index
		case hasCode(err, api.IndexNotFound):
			a.absent = true
		default:
			a.err = err
			ix.w.faults.note(a.Addr, err)
		}
	}
	if len(to) == 1 || grace <= 0 {
		each(len(to), one)
		return list
	}
	done := make(chan int, len(to))
	for i := range to {
		go func() {
			one(i)
			done <- i
		}()
	}
	var late <-chan time.Time
	for range to {
		for waiting := true; waiting; {
			select {
			case i := <-done:
				waiting = false
				if list[i].enough() && late == nil {
					t := time.NewTimer(grace)
					defer t.Stop()
					late = t.C
				}
			case <-late:
				cancel()
			}
		}
	}
	return list
}

// survey asks members for the index and keeps what they say: the schema of the first that has it, with the fields that only others have.
// Nothing is absent before one member of the first group has said so and none has said otherwise: every index is made there first, while
// a group that was added has none. It needs the turn.
func (ix *index) survey(ctx context.Context, to []target, grace time.Duration) (*typing, error) {
	began := time.Now()
	list := ix.ask(ctx, to, grace)
	var sum *schema.Schema
	sdl, absent := "", false
	var errs []error
	var unheard []string // of the first group, which says whether there is an index
	for i := range list {
		a := &list[i]
		switch {
		case a.absent:
			absent = absent || a.group == 0
		case a.err != nil:
			errs = append(errs, fmt.Errorf("ask %s: %w", a.Addr, a.err))
			if a.group == 0 {
				unheard = append(unheard, a.Addr)
			}
		case sum == nil:
			sch, err := ix.parse(a.info.Schema)
			if err != nil {
				return nil, err
			}
			sum, sdl = sch, a.info.Schema
		case a.info.Schema != sdl:
			with, err := ix.unite(sum, a)
			if err != nil {
				return nil, err
			}
			if with != sum {
				sum, sdl = with, with.SDL()
			}
		}
	}
	if sum != nil {
		ty := ix.keep(sum, sdl, false, began)
		ix.learn(ty, list)
		return ty, nil
	}
	if !absent {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, noAnswer(unheard, errs)
	}
	if old := ix.known(time.Time{}); old != nil && !old.absent && len(errs) > 0 {
		// Some do not answer, and the others may have lost their disks: what was known of the index stands, until all say that it was deleted. A member
		// that lacks it is given it, and types nothing by itself.
		ix.learn(old, list)
		return old, nil
	}
	start, prob := api.ReadSchema(ix.name, false, nil, nil)
	if prob != nil {
		return nil, prob
	}
	return ix.keep(start, start.SDL(), true, began), nil
}

// noAnswer is the error of members of which none has answered what was asked, of those at addrs not at all: what they all say, or that they cannot be
// reached.
func noAnswer(addrs []string, errs []error) error {
	for _, err := range errs {
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Code != api.CallerGone && p.Code != api.Timeout {
			own := *p
			return &own
		}
	}
	return unavailable(addrs, errors.Join(errs...))
}

// unite adds the fields that only another member has. Of a field that members have in two ways the first one stands.
func (ix *index) unite(sum *schema.Schema, a *answer) (*schema.Schema, error) {
	sch, err := ix.parse(a.info.Schema)
	if err != nil {
		return nil, err
	}
	with, err := sum.AddFields(sch.Fields)
	if err == nil {
		return with, nil
	}
	for _, f := range sch.Fields {
		next, err := sum.AddFields([]schema.Field{f})
		if err != nil {
			ix.w.log.Warn("members have a field in two ways", "index", ix.name, "member", a.Addr, "error", err)
			continue
		}
		sum = next
	}
	return sum, nil
}

// learn notes which of the members that were asked have the schema, and which lack some of it.
func (ix *index) learn(ty *typing, list []answer) {
	for i := range list {
		a := &list[i]
		switch {
		case a.absent, a.info != nil && a.info.Schema != ty.sdl && !ix.covers(a.info.Schema, ty.schema):
			ix.forget(a.Addr)
		case a.info != nil:
			ix.gave(a.Addr, ty, ix.w.faults.of(a.Addr))
		}
	}
}

// covers tells whether a schema has every field of another, or has it in a way that giving it again does not change.
func (ix *index) covers(sdl string, want *schema.Schema) bool {
	have, err := ix.parse(sdl)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(want.Fields, func(f schema.Field) bool {
		_, ok := have.Lookup(f.Name)
		return !ok
	})
}

func (ix *index) gave(addr string, ty *typing, faults uint64) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if g := ix.given[addr]; g.version <= ty.version {
		ix.given[addr] = given{ty.version, faults}
	}
}

// forget takes back that a member has the schema.
func (ix *index) forget(addr string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	delete(ix.given, addr)
}

func (ix *index) has(addr string, ty *typing) bool {
	faults := ix.w.faults.of(addr)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g, ok := ix.given[addr]
	return ok && g.version >= ty.version && g.faults == faults
}

// gone tells whether the index of a typing was found to be deleted since: no member is to be given it again.
func (ix *index) gone(ty *typing) bool {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.cur != nil && ix.cur.absent && ix.cur.version > ty.version
}

// ready gives a member the schema unless it has it for certain. An error has had no effect on documents: api.IndexNotFound if the index was
// found to be deleted.
func (ix *index) ready(ctx context.Context, st *members.State, t target, ty *typing) error {
	if ix.has(t.Addr, ty) {
		return nil
	}
	if ix.gone(ty) {
		return noIndex(ix.name)
	}
	_, err := ix.give(ctx, st, t, ty)
	if hasCode(err, api.SchemaConflict) {
		return nil // it was told of; the member says itself which documents it does not take
	}
	if e, ok := errors.AsType[*leaf.TransportError](err); ok && e.MaybeApplied {
		harmless := *e
		harmless.MaybeApplied = false
		return &harmless
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && !refusal(p) && !members.IsStale(p) {
		return &leaf.TransportError{Address: t.Addr, Call: "PutIndex", Cause: p}
	}
	return err
}

// writeAt makes a write at a member that has the schema. One that was taken for having it, and says that it has no such index, has lost its
// disk since, or the index was deleted: which of the two others say. Where any has the index it is given its schema, and written to once more.
func writeAt[R any](ctx context.Context, ix *index, st *members.State, t target, ty *typing, call func() (*R, error)) (*R, error) {
	if err := ix.ready(ctx, st, t, ty); err != nil {
		return nil, err
	}
	reply, err := call()
	if !hasCode(err, api.IndexNotFound) {
		return reply, err
	}
	ix.forget(t.Addr)
	now, failed := ix.current(ctx, st, time.Now(), true)
	if failed != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, &leaf.TransportError{Address: t.Addr, Call: "Info", Cause: failed}
	}
	if now.absent {
		return nil, err
	}
	ix.w.log.Warn("a member lost an index that it had; it is given the schema anew", "index", ix.name, "member", t.Addr)
	if err := ix.ready(ctx, st, t, now); err != nil {
		return nil, err
	}
	return call()
}

// give gives a member the schema.
func (ix *index) give(ctx context.Context, st *members.State, t target, ty *typing) (*leaf.PutIndexReply, error) {
	faults := ix.w.faults.of(t.Addr)
	reply, err := t.Leaf.PutIndex(ctx, &leaf.PutIndexRequest{Index: ix.name, Epoch: st.Epoch(), Schema: ty.sdl})
	if err == nil {
		err = partial(&reply.Meta)
	}
	switch {
	case err == nil:
		ix.gave(t.Addr, ty, faults)
	case hasCode(err, api.SchemaConflict):
		ix.w.log.Error("a member has another schema of an index than the cluster", "index", ix.name, "member", t.Addr, "error", err)
		ix.gave(t.Addr, ty, faults) // giving it again changes nothing
	}
	return reply, err
}

// agree adds fields to the schema of the cluster, which makes the index where it is not there. settled tells whether ty has them;
// where it has not, the schema has become another one than base meanwhile, and documents have to be typed against that first.
func (ix *index) agree(ctx context.Context, st *members.State, base *typing, add []schema.Field) (ty *typing, settled bool, err error) {
	if err := ix.lock(ctx); err != nil {
		return nil, false, err
	}
	defer ix.unlock()
	// A member that was away may lack fields that others have: all of them are asked before any new type is made.
	whole, err := ix.survey(ctx, targets(st.Groups...), 0)
	if err != nil {
		return nil, false, err
	}
	if whole != base {
		return whole, false, nil
	}
	want, err := whole.schema.AddFields(add)
	if err != nil {
		if p := api.SchemaProblem(err); p != nil {
			return nil, false, p
		}
		return nil, false, fmt.Errorf("add fields to index %q: %w", ix.name, err)
	}
	if want == whole.schema && !whole.absent {
		return whole, true, nil
	}
	acc, err := ix.settle(ctx, whole, want)
	if err != nil {
		return nil, false, err
	}
	began := time.Now()
	first, reply, err := ix.putFirst(ctx, st, acc.schema.SDL())
	if hasCode(err, api.SchemaConflict) {
		// Another coordinator was first, or has added fields without a store.
		if whole, err = ix.survey(ctx, targets(st.Groups...), 0); err != nil {
			return nil, false, err
		}
		return whole, false, nil
	}
	if err != nil {
		return nil, false, ix.harmless(ctx, st, err)
	}
	if ty, err = ix.adopt(reply.Info.Schema, began, first); err != nil {
		return nil, false, err
	}
	for _, g := range ix.spread(ctx, st, first, ty) {
		if members.IsStale(g.err) {
			return nil, false, &staleError{cause: g.err}
		}
		if g.err != nil {
			ix.w.log.Warn("a member could not be given new fields; it gets them before its next document", "index", ix.name, "member", g.Addr, "error", g.err)
		}
	}
	return ty, acc.ok, nil
}

// harmless is the error of a document whose fields could not be added. Whether they were is not known, but the document is nowhere.
func (ix *index) harmless(ctx context.Context, st *members.State, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if !hasCode(err, api.WriteUncertain) {
		return err
	}
	addrs := make([]string, 0)
	for _, m := range st.Groups[0].Members {
		addrs = append(addrs, m.Addr)
	}
	return unavailable(addrs, err)
}

// adopt keeps the schema that a member has come to.
func (ix *index) adopt(sdl string, began time.Time, from target) (*typing, error) {
	sch, err := ix.parse(sdl)
	if err != nil {
		return nil, err
	}
	ty := ix.keep(sch, sdl, false, began)
	ix.gave(from.Addr, ty, ix.w.faults.of(from.Addr))
	return ty, nil
}

// putFirst gives a schema to the first member of group 0 that can be reached: of two coordinators that add fields at the same time one
// is the first there. It needs the turn.
func (ix *index) putFirst(ctx context.Context, st *members.State, sdl string) (first target, reply *leaf.PutIndexReply, err error) {
	to := targets(st.Groups[0])
	list := make([]got[leaf.PutIndexReply], 0, len(to))
	for _, t := range to {
		one, err := fan(ctx, ix.w, []target{t}, func(ctx context.Context, t target) (*leaf.PutIndexReply, error) {
			reply, err := attended(ctx, ix.w, t, "PutIndex", ix.w.o.Limits.CallTimeout, true, func(ctx context.Context) (*leaf.PutIndexReply, error) {
				return t.Leaf.PutIndex(ctx, &leaf.PutIndexRequest{Index: ix.name, Epoch: st.Epoch(), Schema: sdl})
			})
			if err == nil {
				err = partial(&reply.Meta)
			}
			return reply, err
		})
		if err != nil {
			return t, nil, err
		}
		g := one[0]
		if g.err == nil {
			return t, g.reply, nil
		}
		list = append(list, g)
		// One that refuses is there, and still the one that decides.
		if p, ok := errors.AsType[*api.Problem](g.err); ok && (fault(p) || leaf.ClassOf(p) == leaf.Here) || context.Cause(ctx) != nil {
			break
		}
	}
	return target{}, nil, verdict(ctx, "PutIndex", list)
}

// spread gives a schema to all members but one.
func (ix *index) spread(ctx context.Context, st *members.State, but target, ty *typing) []got[leaf.PutIndexReply] {
	list := make([]got[leaf.PutIndexReply], 0)
	for _, t := range targets(st.Groups...) {
		if t.Addr != but.Addr {
			list = append(list, got[leaf.PutIndexReply]{target: t})
		}
	}
	each(len(list), func(i int) {
		g := &list[i]
		began := time.Now()
		g.reply, g.err = attended(ctx, ix.w, g.target, "PutIndex", ix.w.o.Limits.CallTimeout, true, func(ctx context.Context) (*leaf.PutIndexReply, error) {
			return ix.give(ctx, st, g.target, ty)
		})
		g.took = time.Since(began)
		if g.err != nil {
			ix.w.faults.note(g.Addr, g.err)
		}
	})
	return list
}

// hasCode tells whether an error is the problem with the code.
func hasCode(err error, code api.Code) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == code
}

// ofSchema tells whether a document may be refused for what the schema was, and fit a newer one.
func ofSchema(e *jsondoc.DocError) bool {
	switch e.Code {
	case jsondoc.CodeInvalidJSON, jsondoc.CodeInvalidUTF8, jsondoc.CodeDuplicateMember, jsondoc.CodeTooDeep, jsondoc.CodeDocumentTooLarge:
		return false
	}
	return true
}

// fields are those of inferences.
func fields(found []jsondoc.Inference) []schema.Field {
	out := make([]schema.Field, len(found))
	for i := range found {
		out[i] = found[i].Field
	}
	return out
}

// retypeAttempts bounds how often documents are typed again because others add fields at the same time.
const retypeAttempts = 16

// errFieldsMove is the end of that.
func errFieldsMove(name string) error {
	return &api.Problem{
		Code: api.NotReady, RetryAfterMS: 100,
		Detail: fmt.Sprintf("the fields of index %q changed %d times while documents were typed", api.Clip(name), retypeAttempts),
	}
}
