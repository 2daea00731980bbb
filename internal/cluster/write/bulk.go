package write

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/semaphore"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/serve"
)

// A chunk is what goes to a group at once. It is what a node applies at once, too.
const (
	chunkDocs  = 4096
	chunkBytes = 4 << 20
)

// LoadOptions says how a load treats its stream.
type LoadOptions struct {
	// Whole is what POST /index/bulk needs. When the stream breaks off, what was read whole of it is applied, also when the context has
	// ended with the stream, so that the reply can tell one line from which on nothing is in; and a load of which every document was
	// refused is api.NothingApplied. Else the end of the context is the end of all work, and refused documents are no error.
	Whole bool
}

// Bulk is leaf.Leaf.Bulk: the documents go to the groups in chunks, those of one group in the order of the lines.
func (w *Writer) Bulk(caller context.Context, req *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	return w.Load(caller, req, body, LoadOptions{})
}

// Load is Bulk with options. The reply is OK only if every document is in at every member of its group. Documents that were refused for
// themselves are listed in the reply and are no error, also when none was left. An error that is a problem has the members of an
// api.BulkReply in Extra.
func (w *Writer) Load(caller context.Context, req *leaf.BulkRequest, body io.Reader, o LoadOptions) (*leaf.BulkReply, error) {
	name, err := indexName(req.Index)
	if err != nil {
		return nil, err
	}
	if len(req.Key) > leaf.MaxBulkKey {
		return nil, api.NewProblem(api.InvalidParameter, fmt.Sprintf("key: it is longer than %d bytes", leaf.MaxBulkKey)).On("key").Within(leaf.MaxBulkKey)
	}
	ctx, leave, err := w.enter(caller)
	if err != nil {
		return nil, err
	}
	defer leave()
	if req.Key != "" {
		if !w.loads.begin(name, req.Key) {
			return nil, &api.Problem{Code: api.LoadUnderWay, RetryAfterMS: 1000, Detail: "a load with this key has begun and not ended yet"}
		}
		defer w.loads.end(name, req.Key)
	}
	place, err := w.charge(ctx, w.o.Limits.LoadBytes)
	if err != nil {
		return nil, err
	}
	defer place.Release()
	l := &load{
		w: w, ix: w.schemas.of(w, name), key: req.Key, watch: newStopwatch(), whole: o.Whole,
		lines:  front.NewLineReader(&boundReader{ctx, body}, int(w.o.Limits.DocumentBytes)),
		half:   w.o.Limits.LoadBytes / 2,
		flight: semaphore.NewWeighted(w.o.Limits.LoadBytes / 2),
		ids:    front.NewIDSet(w.o.Limits.BulkIDs),
		hung:   map[string]bool{}, groups: map[int]bool{},
	}
	if l.st = w.src.State(); l.st == nil {
		return nil, notReady()
	}
	ty, err := l.ix.current(ctx, l.st, time.Now(), true)
	if err != nil {
		return nil, err
	}
	if ty.absent && req.Existing {
		return nil, noIndex(name)
	}
	l.follow(ty)
	l.run(ctx)
	if l.key != "" && !l.whole && len(l.numbers) == 0 && l.broken == nil && l.stopped == nil {
		if err := l.relay(ctx); err != nil {
			return nil, err
		}
	}
	return l.finish(ctx)
}

// loads are the loads with a key that are under way.
type loads struct {
	mu   sync.Mutex
	keys map[[2]string]bool
}

func (l *loads) begin(index, key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys[[2]string{index, key}] {
		return false
	}
	if l.keys == nil {
		l.keys = map[[2]string]bool{}
	}
	l.keys[[2]string{index, key}] = true
	return true
}

func (l *loads) end(index, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, [2]string{index, key})
}

// boundReader is not read any more when its context has ended.
type boundReader struct {
	ctx context.Context
	src io.Reader
}

func (r *boundReader) Read(b []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.src.Read(b)
}

// load is one load under way. One goroutine reads and types the lines and fills the chunks of lanes; each lane has one that sends
// them. What is above mu is of the reader alone.
type load struct {
	w     *Writer
	ix    *index
	key   string // of the caller; empty: none
	watch *stopwatch
	whole bool
	lines *front.LineReader
	half  int64 // bytes that may wait in chunks, and as many that may be on their way

	st       *members.State // by which lines are given to lanes
	ty       *typing
	parser   *jsondoc.Parser // of ty and what is pending
	pending  []jsondoc.Inference
	inferred []api.InferredField
	lanes    []*lane
	byGroups map[[2]int]*lane
	numbers  map[string]int // chunks of each lane so far, by its name
	buffered int64          // bytes in chunks that are not sent
	flight   *semaphore.Weighted
	senders  sync.WaitGroup
	stopped  *api.Problem // why nothing more is applied
	broken   *api.Problem // why the stream could not be read to its end

	claiming sync.Mutex
	claim    claim // under claiming

	mu       sync.Mutex
	hung     map[string]bool // members that did not answer in time: they are not waited for again
	ids      *front.IDSet
	applied  bool         // something was applied
	maybe    bool         // something may have been applied that no member has confirmed
	why      *api.Problem // why documents are not in that were not refused for themselves
	repeated int          // chunks that all their members had taken before
	sent     int          // chunks
	failures []api.DocFailure
	listed   uint64 // failures that were added to the list
	omitted  uint64 // failures that members did not list
	reply    api.BulkReply
	snapshot leaf.Snapshot
	account  account
	groups   map[int]bool // that were touched
}

// lane is a way to the groups that the documents of a chunk belong to: one, or two while they are moved. All documents with one id take
// one lane, so that their order stays.
type lane struct {
	name  string // the ordinals
	chunk *chunk
	queue chan *chunk
}

// chunk is documents of one lane.
type chunk struct {
	ctx    context.Context // under which it is sent
	ty     *typing         // by which its documents were typed
	number int             // of the lane, from 0
	name   string          // of the lane
	docs   []bulkDoc
	raws   []byte // their lines, each with its end
	long   bool   // there is a long line in it
	maybe  bool   // members may have applied some of it under an older shard map
	cut    string // the placement by which its documents came together, of a load that has a name
}

type bulkDoc struct {
	line     int
	key      string
	sum      leaf.Sum
	from, to int // of its line in raws
}

func (c *chunk) raw(i int) []byte { return c.raws[c.docs[i].from:c.docs[i].to] }

func (c *chunk) add(line int, key string, sum leaf.Sum, raw []byte) {
	from := len(c.raws)
	c.raws = append(append(c.raws, raw...), '\n')
	c.docs = append(c.docs, bulkDoc{line: line, key: key, sum: sum, from: from, to: from + len(raw)})
	c.long = c.long || len(raw) > front.LongLine
}

// run reads to the end of the stream and waits until all of it was sent.
func (l *load) run(caller context.Context) {
	ctx := caller
	if l.whole {
		// Chunks are sent to their end when their sender has left: there are few of them, and half a chunk helps nobody.
		var stop func()
		ctx, stop = l.w.until(context.WithoutCancel(caller))
		defer stop()
	}
	defer l.drain()
	for {
		line, err := l.lines.Next(func() error { return nil }) // the memory of a long line is part of what the load was charged
		switch {
		case errors.Is(err, io.EOF):
			l.flushAll(ctx)
			return
		case errors.Is(err, front.ErrLineTooLong):
			limit := l.w.o.Limits.DocumentBytes
			l.reject(line.Number, "", api.NewProblem(api.DocumentTooLarge, fmt.Sprintf("the line is longer than %d bytes", limit)).Within(limit))
		case err != nil:
			l.broken = l.w.o.BodyProblem(caller, err)
			l.broken.Line = line.Number
			l.flushAll(ctx)
			return
		case l.stopped != nil:
			l.reject(line.Number, l.idOf(line.Bytes), l.stopped)
		default:
			l.add(ctx, line)
		}
	}
}

// idOf is the id of a document that is refused, as far as it can be read.
func (l *load) idOf(raw []byte) string {
	if i := l.ty.schema.PrimaryField(); i >= 0 {
		return jsondoc.ID(raw, l.ty.schema.Fields[i].Name)
	}
	return ""
}

// follow makes documents be typed against a schema that has all that was pending.
func (l *load) follow(ty *typing) {
	l.ty, l.pending = ty, nil
	if l.parser == nil {
		l.parser = jsondoc.NewParser(ty.schema, l.w.o.Limits.doc())
	} else if l.parser.Schema() != ty.schema {
		l.parser.SetSchema(ty.schema)
	}
}

// add types a line and gives it to its lane.
func (l *load) add(ctx context.Context, line front.Line) {
	key, sum, prob := l.typed(line.Bytes)
	if prob != nil && l.renew(ctx, prob) {
		key, sum, prob = l.typed(line.Bytes)
	}
	if prob != nil {
		l.reject(line.Number, l.idOf(line.Bytes), prob)
		return
	}
	if now := l.w.src.State(); now != l.st && now != nil && placementOf(now) == placementOf(l.st) {
		l.st = now // the chunks stay what they would be without the change
	} else if now != l.st && now != nil {
		// Documents may belong elsewhere now: what is on its way has to be in before anything overtakes it.
		l.flushAll(ctx)
		l.drain()
		l.st = now
		if l.stopped != nil {
			l.reject(line.Number, key, l.stopped)
			return
		}
	}
	ln := l.lane(l.st.Writers(key))
	ln.chunk.add(line.Number, key, sum, line.Bytes)
	l.buffered += int64(len(line.Bytes))
	if len(ln.chunk.raws)-len(ln.chunk.docs) >= chunkBytes || len(ln.chunk.docs) >= l.w.chunkDocs || ln.chunk.long {
		l.flush(ctx, ln)
	}
	for l.buffered > l.half {
		// Which one is sent depends on nothing but the lines, so that a load that is sent again has the same chunks.
		l.flush(ctx, slices.MaxFunc(l.lanes, func(a, b *lane) int { return len(a.chunk.raws) - len(b.chunk.raws) }))
	}
}

// typed takes a document apart; fields that it brings are pending from then on.
func (l *load) typed(raw []byte) (key string, sum leaf.Sum, prob *api.Problem) {
	doc, found, derr := l.parser.Parse(raw)
	if derr != nil {
		return "", sum, api.DocProblem(derr)
	}
	if len(found) > 0 {
		sch, err := jsondoc.Merge(l.parser.Schema(), found)
		if err != nil {
			if prob = api.SchemaProblem(err); prob == nil {
				prob = &api.Problem{Code: api.Internal, Detail: "the fields of the document could not be added", Cause: err}
			}
			return doc.Key, sum, prob
		}
		l.parser.SetSchema(sch)
		l.pending = append(l.pending, found...)
	}
	return doc.Key, leaf.SumOf(doc.Source), nil
}

// renew asks for the schema again where a document is refused by one that may be out of date, and tells whether it is another one.
func (l *load) renew(ctx context.Context, prob *api.Problem) bool {
	switch prob.Code {
	case api.InvalidJSON, api.InvalidUTF8, api.DuplicateMember, api.TooDeep, api.DocumentTooLarge, api.Internal:
		return false
	}
	ty, err := l.ix.current(ctx, l.st, time.Now().Add(-l.w.o.Limits.SchemaAge), false)
	if err != nil || ty == l.ty {
		return false
	}
	l.retype(ty)
	return true
}

// retype takes all documents that are not sent yet apart by another schema, in the order of their lines.
func (l *load) retype(ty *typing) {
	l.follow(ty)
	type place struct {
		c *chunk
		i int
	}
	var all []place
	for _, ln := range l.lanes {
		for i := range ln.chunk.docs {
			all = append(all, place{ln.chunk, i})
		}
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.c.docs[a.i].line, b.c.docs[b.i].line) })
	refused := map[*chunk]map[int]bool{}
	for _, p := range all {
		if _, _, prob := l.typed(p.c.raw(p.i)); prob != nil {
			l.reject(p.c.docs[p.i].line, p.c.docs[p.i].key, prob)
			if refused[p.c] == nil {
				refused[p.c] = map[int]bool{}
			}
			refused[p.c][p.i] = true
		}
	}
	for _, ln := range l.lanes {
		if out := refused[ln.chunk]; out != nil {
			old := ln.chunk
			ln.chunk = &chunk{}
			for i, d := range old.docs {
				if out[i] {
					l.buffered -= int64(d.to - d.from)
				} else {
					ln.chunk.add(d.line, d.key, d.sum, old.raw(i))
				}
			}
		}
	}
}

// lane is the way to groups.
func (l *load) lane(groups []*members.Group) *lane {
	d := destination(groups)
	if ln := l.byGroups[d]; ln != nil {
		return ln
	}
	if l.byGroups == nil {
		l.byGroups = map[[2]int]*lane{}
	}
	ln := &lane{name: laneName(d), chunk: &chunk{}, queue: make(chan *chunk, 1)}
	l.byGroups[d] = ln
	l.lanes = append(l.lanes, ln)
	l.senders.Go(func() {
		for c := range ln.queue {
			l.deliver(c.ctx, c)
			l.flight.Release(l.weight(c))
		}
	})
	return ln
}

func laneName(d [2]int) string {
	if d[1] < 0 {
		return strconv.Itoa(d[0])
	}
	return strconv.Itoa(d[0]) + "+" + strconv.Itoa(d[1])
}

// weight is what a chunk counts among those on their way.
func (l *load) weight(c *chunk) int64 { return min(int64(len(c.raws)), l.half) }

// flush gives the chunk of a lane to its sender, after the fields of its documents were added to the schema. It waits while others are
// on their way.
func (l *load) flush(ctx context.Context, ln *lane) {
	if len(ln.chunk.docs) == 0 {
		return
	}
	if l.ty.absent || len(l.pending) > 0 {
		if err := l.agree(ctx); err != nil {
			l.stop(asProblem(ctx, err))
			return
		}
		if len(ln.chunk.docs) == 0 {
			return // all of it was refused
		}
	}
	c := ln.chunk
	ln.chunk = &chunk{}
	for i := range c.docs {
		l.buffered -= int64(c.docs[i].to - c.docs[i].from)
	}
	if l.numbers == nil {
		l.numbers = map[string]int{}
	}
	c.ctx, c.ty, c.name, c.number = ctx, l.ty, ln.name, l.numbers[ln.name]
	if l.key != "" {
		c.cut = placementOf(l.st)
	}
	l.numbers[ln.name]++
	err := l.flight.Acquire(ctx, l.weight(c))
	if err == nil {
		select {
		case ln.queue <- c:
			return
		case <-ctx.Done():
			l.flight.Release(l.weight(c))
		}
	}
	prob := asProblem(ctx, cmp.Or(context.Cause(ctx), err))
	for _, d := range c.docs {
		l.reject(d.line, d.key, prob)
	}
	l.stop(prob)
}

func (l *load) flushAll(ctx context.Context) {
	for _, ln := range l.lanes {
		l.flush(ctx, ln)
	}
}

// drain ends the lanes and waits for what is on its way. Lines after that make new lanes.
func (l *load) drain() {
	for _, ln := range l.lanes {
		close(ln.queue)
	}
	l.senders.Wait()
	l.lanes, l.byGroups = nil, nil
}

// stop ends all writing: what is not sent is refused, and so is every line that follows.
func (l *load) stop(why *api.Problem) {
	if l.stopped == nil {
		l.stopped = why
	}
	for _, ln := range l.lanes {
		for _, d := range ln.chunk.docs {
			l.reject(d.line, d.key, l.stopped)
			l.buffered -= int64(d.to - d.from)
		}
		ln.chunk = &chunk{}
	}
}

// agree adds the pending fields to the schema of the cluster. Documents that do not fit what others have added meanwhile are refused.
func (l *load) agree(ctx context.Context) error {
	giveUp := time.Now().Add(l.w.o.Limits.BulkStall)
	stale := 0
	for tries := 0; tries < retypeAttempts; {
		st := l.w.src.State()
		ty, settled, err := l.ix.agree(ctx, st, l.ty, fields(l.pending))
		if members.IsStale(err) && stale < maxStale {
			stale++
			l.w.count.stale.Add(1)
			if _, err = l.w.src.Stale(ctx, st); err == nil {
				continue
			}
			return staleProblem("the shard map is out of date, and the newer one cannot be read", false, err)
		}
		if wait, full := roomIn(err); full && time.Now().Add(wait).Before(giveUp) {
			if err := pause(ctx, wait); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		tries++
		if settled {
			l.inferred = api.AddInferred(l.inferred, l.pending)
			l.follow(ty)
			return nil
		}
		l.retype(ty)
		if !l.ty.absent && len(l.pending) == 0 {
			return nil
		}
	}
	return errFieldsMove(l.ix.name)
}

// roomIn tells whether an error is want of room that will pass, and how long to wait before the next try.
func roomIn(err error) (wait time.Duration, full bool) {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || leaf.ClassOf(p) != leaf.Here && p.Code != api.LoadUnderWay {
		return 0, false
	}
	return min(max(time.Duration(p.RetryAfterMS)*time.Millisecond, leastWait), time.Second), true
}

// reject lists a document as failed.
func (l *load) reject(line int, key string, why *api.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reply.Failed++
	l.listLocked(api.DocFailure{Line: line, ID: api.Clip(key), Code: string(why.Code), Reason: why.Detail})
}

// listLocked adds to the list of failures, of which those of the first lines are kept.
func (l *load) listLocked(f api.DocFailure) {
	l.failures = append(l.failures, f)
	l.listed++
	if len(l.failures) >= 2*l.w.o.Limits.BulkErrors {
		l.cutLocked()
	}
}

func (l *load) cutLocked() {
	slices.SortStableFunc(l.failures, func(a, b api.DocFailure) int { return cmp.Compare(a.Line, b.Line) })
	if most := l.w.o.Limits.BulkErrors; len(l.failures) > most {
		l.failures = l.failures[:most]
	}
}

// deliver sends a chunk to wherever its documents belong now, which is one place but right after a change of the shard map.
func (l *load) deliver(ctx context.Context, c *chunk) {
	st := l.w.src.State()
	for try := 0; ; try++ {
		var left []*chunk
		var refused *staleError
		for _, part := range c.split(st) {
			err := l.send(ctx, st, part)
			if again, ok := errors.AsType[*staleError](err); ok {
				refused = again
				part.maybe = part.maybe || again.applied
				left = append(left, part)
			}
		}
		if len(left) == 0 {
			return
		}
		next, err := st, error(refused)
		if try < maxStale {
			l.w.count.stale.Add(1)
			next, err = l.w.src.Stale(ctx, st)
		}
		if err != nil {
			for _, part := range left {
				l.mu.Lock()
				l.maybe = l.maybe || part.maybe
				l.mu.Unlock()
				l.lose(part, staleProblem("the shard map is out of date, and the newer one cannot be read", part.maybe, err))
			}
			return
		}
		st = next
		c = join(c, left)
	}
}

// lose lists all documents of a chunk as failed.
func (l *load) lose(c *chunk, why *api.Problem) {
	for _, d := range c.docs {
		l.reject(d.line, d.key, why)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		l.why = why
	}
}

// split divides a chunk by the groups of its documents, in order.
func (c *chunk) split(st *members.State) []*chunk {
	parts := shares(st, len(c.docs), func(i int) string { return c.docs[i].key })
	if len(parts) == 1 {
		c.name = laneName(destination(parts[0].groups))
		return []*chunk{c}
	}
	out := make([]*chunk, len(parts))
	for k, p := range parts {
		out[k] = &chunk{ctx: c.ctx, ty: c.ty, number: c.number, name: laneName(destination(p.groups)), maybe: c.maybe, cut: c.cut}
		for _, i := range p.at {
			out[k].add(c.docs[i].line, c.docs[i].key, c.docs[i].sum, c.raw(i))
		}
	}
	return out
}

// join makes one chunk of parts of c, in the order of the lines.
func join(c *chunk, parts []*chunk) *chunk {
	if len(parts) == 1 {
		return parts[0]
	}
	out := &chunk{ctx: c.ctx, ty: c.ty, number: c.number, cut: c.cut}
	for _, p := range parts {
		out.maybe = out.maybe || p.maybe
	}
	at := make([]int, len(parts))
	for {
		next := -1
		for k, p := range parts {
			if at[k] < len(p.docs) && (next < 0 || p.docs[at[k]].line < parts[next].docs[at[next]].line) {
				next = k
			}
		}
		if next < 0 {
			return out
		}
		p, i := parts[next], at[next]
		out.add(p.docs[i].line, p.docs[i].key, p.docs[i].sum, p.raw(i))
		at[next]++
	}
}

// keyOf names a chunk of a load that has a name. The same chunk of the same load has the same name while documents are placed alike. What
// is in it is part of the name: a chunk that has come to hold other documents is another one.
func (l *load) keyOf(st *members.State, c *chunk) string {
	if l.key == "" {
		return ""
	}
	spec := st.Visible().Spec().Normal()
	h := xxh3.New()
	for _, part := range []string{l.key, string(spec.Rule), strconv.Itoa(spec.Shards), strconv.Itoa(spec.VNodes), c.name, strconv.Itoa(c.number)} {
		h.WriteString(part)   //nolint:errcheck // it never fails
		h.WriteString("\x00") //nolint:errcheck // it never fails
	}
	h.Write(c.raws) //nolint:errcheck // it never fails
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}

// send writes a chunk whose documents belong to the same groups, and accounts for it. Its error is a *staleError: nothing was accounted.
func (l *load) send(ctx context.Context, st *members.State, c *chunk) error {
	if err := l.claimed(ctx, st, c); err != nil {
		if refused, ok := errors.AsType[*staleError](err); ok {
			return &staleError{cause: refused.cause} // of the documents nothing is in
		}
		if c.maybe {
			err = uncertain(err)
			l.mu.Lock()
			l.maybe = true
			l.mu.Unlock()
		}
		l.lose(c, asProblem(ctx, err))
		return nil
	}
	groups := st.Writers(c.docs[0].key)
	to := targets(groups...)
	list := make([]got[leaf.BulkReply], len(to))
	key := l.keyOf(st, c)
	before := l.sentBefore(ctx, st, to, c, key)
	each(len(to), func(i int) {
		g := &list[i]
		g.target = to[i]
		if before != nil && (before[i].err != nil || !before[i].reply.Repeated) {
			return
		}
		began := time.Now()
		g.reply, g.err = l.sendTo(ctx, to[i], func() (*leaf.BulkReply, error) { return l.sendOnce(ctx, st, to[i], c, key) })
		g.took = time.Since(began)
	})
	if before != nil {
		adopt(list, before)
	}
	if err := stale(list); err != nil {
		if refused, ok := errors.AsType[*staleError](err); ok && refused.applied {
			refused.applied = tookNow(list)
		}
		return err
	}
	in := applied(list)
	if len(in) == 0 {
		l.nobody(ctx, groups, list, c)
		return nil
	}
	r := l.tally(list, c)
	var a account
	noteAll(&a, list)
	for i, t := range to {
		l.w.hint(t.Addr, l.ix.name, r.missing[i])
		if list[i].err == nil && len(r.missing[i]) > 0 {
			a.note(t, errMissed, 0)
		}
	}
	// Others are made equal to one that had taken it before: what it has may have been written since.
	slices.SortStableFunc(in, func(a, b got[leaf.BulkReply]) int { return cmp.Compare(fresh(a), fresh(b)) })
	own, again := c.own(list, r.order)
	if err := l.w.settleAt(ctx, st, l.ix, c.ty, r.ids, own, again, where(in), &a); err != nil {
		if refused, ok := errors.AsType[*staleError](err); ok {
			return &staleError{cause: refused.cause, applied: tookNow(list)}
		}
		for _, t := range where(in)[1:] {
			a.note(t, err, 0)
		}
	}
	r.doubt(c, again)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touchLocked(groups, &a)
	l.maybe = l.maybe || r.maybe
	l.sent++
	// What an earlier try has put in is no repetition.
	if !c.maybe && !slices.ContainsFunc(in, func(g got[leaf.BulkReply]) bool { return !g.reply.Repeated }) {
		l.repeated++
	}
	l.snapshot = in[0].reply.Snapshot
	l.applied = l.applied || r.indexed > 0
	l.reply.Indexed += r.indexed
	l.reply.Failed += r.failed
	l.omitted += r.omitted
	for _, k := range r.order {
		if l.ids.Add(c.docs[k].key) {
			l.reply.Duplicates++
		}
	}
	for _, f := range r.failures {
		l.listLocked(f)
	}
	return nil
}

// tookNow tells whether a member may have applied a chunk by this map. Who had taken it before has not.
func tookNow(list []got[leaf.BulkReply]) bool {
	return slices.ContainsFunc(list, func(g got[leaf.BulkReply]) bool {
		return !refusal(g.err) && !members.IsStale(g.err) && (g.reply == nil || !g.reply.Repeated)
	})
}

// fresh is 1 for a member that has taken a chunk for the first time, else 0.
func fresh(g got[leaf.BulkReply]) int {
	if g.reply.Repeated {
		return 0
	}
	return 1
}

// errMissed is the failure of a member that refused documents which others took.
var errMissed = errors.New("the member refused documents that others of its group took")

// touchLocked adds what became of a chunk at its members to the account of the load.
func (l *load) touchLocked(groups []*members.Group, a *account) {
	for _, g := range groups {
		l.groups[g.Ordinal] = true
	}
	for i, t := range a.list {
		l.account.note(t, a.errs[i], a.took[i])
	}
}

// nobody accounts for a chunk that no member has confirmed.
func (l *load) nobody(ctx context.Context, groups []*members.Group, list []got[leaf.BulkReply], c *chunk) {
	unknown := maybe(list) || c.maybe
	if unknown && len(list) > 1 {
		ids := c.keys(nil)
		for i := range list {
			l.w.doubt(list[i].Addr, l.ix.name, ids)
		}
	}
	err := verdict(ctx, "Bulk", list)
	switch {
	case c.maybe:
		err = uncertain(err)
	case hasCode(err, api.IndexNotFound):
		err = api.NewProblem(api.IndexDeleted, fmt.Sprintf("index %q was deleted while documents were loaded into it", api.Clip(l.ix.name))).On(front.IndexParam)
	}
	l.lose(c, asProblem(ctx, err))
	var a account
	noteAll(&a, list)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maybe = l.maybe || unknown
	l.touchLocked(groups, &a)
}

// own is what members have just taken of a chunk: the documents at places in it, of which the last of an id stands. Where a member took it
// before it is nil, and again says who did.
func (c *chunk) own(list []got[leaf.BulkReply], order []int) (*own, *repetition) {
	at := make(map[string]int, len(order))
	sums := make(map[string]leaf.Sum, len(order))
	for _, i := range order {
		at[c.docs[i].key], sums[c.docs[i].key] = i, c.docs[i].sum
	}
	again := &repetition{took: map[string]bool{}, sums: sums, unsure: map[string]bool{}}
	for i := range list {
		if list[i].err == nil && list[i].reply.Repeated {
			again.took[list[i].Addr] = true
		}
	}
	if len(again.took) > 0 {
		return nil, again
	}
	return &own{sums: sums, source: func(id string) []byte { return c.raw(at[id]) }}, nil
}

// doubt takes documents for failed of which it cannot be told whether they stand.
func (r *tallied) doubt(c *chunk, again *repetition) {
	if again == nil || len(again.unsure) == 0 {
		return
	}
	r.maybe = true
	r.order = slices.DeleteFunc(r.order, func(i int) bool {
		d := &c.docs[i]
		if !again.unsure[d.key] {
			return false
		}
		r.failures = append(r.failures, api.DocFailure{
			Line: d.line, ID: api.Clip(d.key), Code: string(api.WriteUncertain),
			Reason: "the load was taken before, and what members have of the document was copied to them since: it may be older or newer; send it again under another key if it is to stand",
		})
		if r.indexed > 0 {
			r.indexed--
		}
		r.failed++
		return true
	})
}

// keys are the different ids of the documents of a chunk for which in is not false; nil: all.
func (c *chunk) keys(in []bool) []string {
	out := make([]string, 0, len(c.docs))
	seen := make(map[string]bool, len(c.docs))
	for i := range c.docs {
		if k := c.docs[i].key; (in == nil || in[i]) && !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

// sendTo makes a call of a chunk at one member with once. It waits for room there: a load that has begun is slowed down, not refused.
func (l *load) sendTo(ctx context.Context, t target, once func() (*leaf.BulkReply, error)) (*leaf.BulkReply, error) {
	if l.isHung(t.Addr) {
		return nil, &leaf.TransportError{Address: t.Addr, Call: "Bulk", Cause: errHung}
	}
	giveUp := time.Now().Add(l.w.o.Limits.BulkStall)
	for again := false; ; {
		reply, err := once()
		if err == nil {
			return reply, nil
		}
		wait, full := roomIn(err)
		switch {
		case context.Cause(ctx) != nil, members.IsStale(err):
			return nil, err
		case full && time.Now().Add(wait).Before(giveUp):
		case !full && !again && leaf.RetryWrite(err) && !errors.Is(err, members.ErrHung):
			again, wait = true, leastWait
		default:
			l.w.faults.note(t.Addr, err)
			return nil, err
		}
		l.w.count.retried.Add(1)
		if cause := pause(ctx, wait); cause != nil {
			return nil, err
		}
	}
}

// errHung is the failure of a member that is not waited for again.
var errHung = errors.New("the member has not answered an earlier chunk of the load in time")

func (l *load) isHung(addr string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hung[addr]
}

func (l *load) sendOnce(ctx context.Context, st *members.State, t target, c *chunk, key string) (*leaf.BulkReply, error) {
	reply, err := l.bulkAt(ctx, st, t, c.ty, key, c.raws)
	if err != nil {
		if late := leaf.OutcomeOf(err) == serve.TimedOut || errors.Is(err, members.ErrHung); late && ctx.Err() == nil {
			l.mu.Lock()
			l.hung[t.Addr] = true
			l.mu.Unlock()
		}
		return nil, err
	}
	if n := reply.Indexed + reply.Failed; n != uint64(len(c.docs)) {
		return nil, fmt.Errorf("%s accounts for %d of %d documents", t.Addr, n, len(c.docs))
	}
	if err := partial(&reply.Meta); err != nil {
		return nil, err
	}
	if len(reply.Inferred) > 0 && !reply.Repeated {
		l.ix.forget(t.Addr)
	}
	return reply, nil
}

// bulkAt gives a member lines, within the time of a chunk.
func (l *load) bulkAt(ctx context.Context, st *members.State, t target, ty *typing, key string, lines []byte) (*leaf.BulkReply, error) {
	return attended(ctx, l.w, t, "Bulk", l.w.o.Limits.ChunkTimeout, true, func(ctx context.Context) (*leaf.BulkReply, error) {
		return writeAt(ctx, l.ix, st, t, ty, func() (*leaf.BulkReply, error) {
			return t.Leaf.Bulk(ctx, &leaf.BulkRequest{Index: l.ix.name, View: leaf.View{Epoch: st.Epoch()}, Key: key, Existing: true}, bytes.NewReader(lines))
		})
	})
}

// tallied is what became of the documents of a chunk, by the replies of the members that have answered.
type tallied struct {
	indexed, failed, omitted uint64
	order                    []int    // places of the documents that are in
	ids                      []string // their different ids
	failures                 []api.DocFailure
	missing                  [][]string // by member: ids of documents that others took and it did not
	maybe                    bool       // some that failed may be in
}

// tally adds up the replies. A document is in if any member took it.
func (l *load) tally(list []got[leaf.BulkReply], c *chunk) *tallied {
	n := len(c.docs)
	r := &tallied{missing: make([][]string, len(list))}
	in := make([]bool, n)
	known := false
	refusals := make([]map[int]*api.DocFailure, len(list))
	for m := range list {
		reply := list[m].reply
		if reply == nil {
			continue
		}
		refusals[m] = make(map[int]*api.DocFailure, len(reply.Errors))
		for k := range reply.Errors {
			if i := reply.Errors[k].Line - 1; i >= 0 && i < n {
				refusals[m][i] = &reply.Errors[k]
			}
		}
		if uint64(len(refusals[m])) != reply.Failed {
			continue // it does not list all: which documents it has taken is not known
		}
		known = true
		for i := range in {
			in[i] = in[i] || refusals[m][i] == nil
		}
	}
	if !known {
		l.guess(list, c, refusals, in, r)
	}
	for i := range in {
		if in[i] {
			r.order = append(r.order, i)
		}
	}
	if known {
		r.indexed, r.failed = uint64(len(r.order)), uint64(n-len(r.order))
	}
	for i := range in {
		for m := range list {
			if f := refusals[m][i]; f != nil {
				own := *f
				own.Line, own.ID = c.docs[i].line, api.Clip(c.docs[i].key)
				r.failures = append(r.failures, own)
				r.maybe = r.maybe || f.Code == string(api.WriteUncertain) // of a coordinator that stands as a shard
				break
			}
		}
	}
	r.ids = c.keys(in)
	for m := range list {
		switch {
		case list[m].reply == nil, known && uint64(len(refusals[m])) != list[m].reply.Failed:
			r.missing[m] = r.ids
		default:
			for i := range in {
				if in[i] && refusals[m][i] != nil {
					r.missing[m] = append(r.missing[m], c.docs[i].key)
				}
			}
		}
	}
	return r
}

// guess fills in what is known where no member lists all that it has refused: the numbers of the first. Every document that it does not
// list may be in.
func (l *load) guess(list []got[leaf.BulkReply], c *chunk, refusals []map[int]*api.DocFailure, in []bool, r *tallied) {
	for m := range list {
		reply := list[m].reply
		if reply == nil {
			continue
		}
		for i := range in {
			in[i] = refusals[m][i] == nil
		}
		r.indexed, r.failed, r.omitted = reply.Indexed, reply.Failed, reply.Failed-uint64(len(refusals[m]))
		return
	}
}

// finish makes the reply.
func (l *load) finish(ctx context.Context) (*leaf.BulkReply, error) {
	r := &l.reply
	l.cutLocked()
	r.Errors = l.failures
	r.ErrorsOmitted = l.omitted + l.listed - uint64(len(l.failures))
	below := l.account.below()
	r.Shards, r.Members = len(l.groups), membersOf(below)
	r.DuplicatesAtLeast = l.ids.Forgot()
	r.Inferred = l.inferred
	r.OK = r.Failed == 0 && l.broken == nil && !l.account.failed()
	l.watch.lap(StageWrite)
	r.TookMicros = l.watch.last
	if l.broken != nil && l.applied {
		r.Errors = append(r.Errors, api.DocFailure{Line: l.broken.Line, Code: string(l.broken.Code), Reason: l.broken.Detail})
	}
	if cause := context.Cause(ctx); cause != nil && !l.whole && !r.OK {
		// Whoever reads the reply has to be there still: else the error says what is known.
		return nil, ended("Bulk", cause, l.applied || l.maybe)
	}
	if p := l.refused(); p != nil {
		return nil, p
	}
	reply := &leaf.BulkReply{Meta: leaf.Meta{Snapshot: l.snapshot, Timings: l.watch.laps, Below: below}, BulkReply: *r}
	reply.Repeated = l.sent > 0 && l.repeated == l.sent
	if r.DuplicatesAtLeast {
		reply.Approximate = []string{leaf.ApproximateRepeats}
	}
	return reply, nil
}

// refused is the problem of a load of which nothing was applied, nil for one whose reply is the answer.
func (l *load) refused() *api.Problem {
	r := &l.reply
	if l.applied || l.maybe || r.OK {
		return nil
	}
	p := &api.Problem{Code: api.NothingApplied, Detail: fmt.Sprintf("none of the %d documents was applied; see errors", r.Failed)}
	switch why := cmp.Or(l.stopped, l.why); {
	case why != nil:
		own := *why
		p = &own
		p.Line = 0
	case l.broken != nil && (r.Failed == 0 || !l.whole):
		return l.broken
	case !l.whole:
		return nil
	}
	p.Extra = r.AppendMembers(nil)
	return p
}
