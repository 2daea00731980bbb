package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/shard"
)

func (n *Node) docLimits() jsondoc.Limits {
	return jsondoc.Limits{DocumentBytes: int(n.cfg.Limits.DocumentBytes)}
}

// oneMember is the accounting of a write that this node applied: it is the only member of its group.
func oneMember() api.Members { return api.Members{OK: 1, Total: 1} }

func (n *Node) putDocument(c *front.Call) *api.Problem {
	name, prob := c.Index()
	if prob != nil {
		return prob
	}
	if _, prob := c.Wants(front.TypeJSON); prob != nil {
		return prob
	}
	body, held, prob := c.Body(n.cfg.Limits.DocumentBytes)
	if prob != nil {
		if prob.Code == api.BodyTooLarge {
			prob.Code = api.DocumentTooLarge
		}
		return prob
	}
	defer held.Release()
	leave, err := n.enterWrite(c.Context(), len(body))
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer leave()
	reply, _, prob := n.writeDocument(c.Context(), name, body, false, 0)
	if prob != nil {
		return prob
	}
	return c.JSON(http.StatusOK, reply.AppendJSON(nil))
}

// enterWrite waits for a place among the writes and for the memory to take so many bytes of a document apart. leave gives both back.
func (n *Node) enterWrite(ctx context.Context, bytes int) (leave func(), err error) {
	room, err := n.enterAnalysis(ctx, bytes)
	if err != nil {
		return nil, err
	}
	place, err := n.writes.Enter(ctx, 1)
	if err != nil {
		room.leave()
		return nil, err
	}
	return func() {
		place.Release()
		room.leave()
	}, nil
}

// writeDocument writes one document to the named index, which it makes if it is not there, unless it has to be. after is the index with the document.
func (n *Node) writeDocument(ctx context.Context, name string, body []byte, existing bool, mark leaf.Mark) (reply *leaf.IndexReply, after leaf.Snapshot, prob *api.Problem) {
	w := &writer{node: n, name: name, existing: existing, mark: mark}
	defer w.release()
	if err := w.find(ctx); err != nil {
		return nil, after, n.problem(ctx, err)
	}
	b := &batch{}
	w.parse(b, 1, body)
	if it := b.items[0]; it.fail != nil {
		n.documents.rejected.Inc()
		if it.fail.HasPosition { // a document sent alone may have lines
			it.fail.Line = 1 + bytes.Count(body[:min(it.fail.Position, len(body))], []byte{'\n'})
		}
		return nil, after, it.fail
	}
	if err := n.memtables.admit(); err != nil {
		return nil, after, n.problem(ctx, err)
	}
	if err := w.commit(ctx, b); err != nil {
		return nil, after, n.problem(ctx, err)
	}
	it := b.items[0]
	if it.fail != nil {
		n.documents.rejected.Inc()
		return nil, after, it.fail
	}
	n.documents.indexed.Inc()
	reply = &leaf.IndexReply{
		WriteReply: api.WriteReply{OK: true, ID: it.key, Members: oneMember(), Inferred: w.inferred, Staged: w.lease.entry.onCommit()}, Fresh: w.fresh, Behind: w.behind,
	}
	return reply, w.lease.state(), nil
}

func (n *Node) deleteDocument(c *front.Call) *api.Problem {
	name, prob := c.Index()
	if prob != nil {
		return prob
	}
	id, prob := c.ID()
	if prob != nil {
		return prob
	}
	place, err := n.writes.Enter(c.Context(), 1)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer place.Release()
	deleted, staged, _, err := n.deleteDocuments(c.Context(), name, []string{id})
	if err != nil {
		return n.problem(c.Context(), err)
	}
	reply := api.DeleteReply{OK: true, Deleted: deleted, Members: oneMember(), Staged: staged}
	return c.JSON(http.StatusOK, reply.AppendJSON(nil))
}

// deleteDocuments deletes documents as one batch and counts those that were there; staged: they are still seen until the index is
// committed. after is the index without them.
func (n *Node) deleteDocuments(ctx context.Context, name string, ids []string) (deleted int, staged bool, after leaf.Snapshot, err error) {
	l, err := n.catalog.use(ctx, name)
	if errors.Is(err, errNoIndex) {
		// The index may be made at this moment. Either it is there now, or whoever makes it finds it disturbed.
		n.catalog.disturb()
		l, err = n.catalog.use(ctx, name)
	}
	if err != nil {
		return 0, false, after, err
	}
	defer l.release()
	within, stop := l.within(ctx)
	defer stop()
	ops := make([]shard.Op, len(ids))
	for i, id := range ids {
		ops[i] = shard.Op{Delete: true, Key: id}
	}
	written := l.fences.write(len(ops), func(i int) string { return ops[i].Key })
	res, err := l.eng.Apply(within, ops)
	written(func(i int) bool { return err != nil || res[i].Err != nil })
	if err != nil {
		return 0, false, after, n.problem(within, err)
	}
	for _, r := range res {
		if r.Err != nil {
			return 0, false, after, n.problem(within, r.Err)
		}
		if r.Existed {
			deleted++
		}
	}
	n.documents.deleted.Add(uint64(deleted))
	return deleted, l.entry.onCommit(), l.state(), nil
}

func (n *Node) getDocument(c *front.Call) *api.Problem {
	name, prob := c.Index()
	if prob != nil {
		return prob
	}
	id, prob := c.ID()
	if prob != nil {
		return prob
	}
	place, err := n.searches.Enter(c.Context(), 1)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer func() { c.Leave(place) }()
	l, err := n.catalog.use(c.Context(), name)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer l.release()
	snap := l.eng.Snapshot()
	defer snap.Release()
	source, ok, err := snap.Get(id)
	if err == nil && source != nil {
		source, err = bound.StoredOnly(snap.Schema()).Apply(source)
	}
	if err != nil {
		return n.problem(c.Context(), err)
	}
	if !ok {
		return api.NewProblem(api.DocumentNotFound, "the index has no document with this id").On("id")
	}
	b := append(make([]byte, 0, len(source)+len(id)+32), `{"id":`...)
	b = api.AppendString(b, id)
	b = append(b, `,"source":`...)
	if source == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, source...)
	}
	return c.JSON(http.StatusOK, append(b, '}'))
}

// item is one document of a batch: its place in the request, and either an operation or why there is none.
type item struct {
	line int
	key  string // as far as it can be read
	raw  []byte // the JSON, valid until the batch is committed
	doc  *schema.Document
	fail *api.Problem

	// Of a Sync only.
	del     bool             // the document of key is deleted
	cond    *shard.Condition // what has to hold; nil: nothing
	changed bool             // it did not hold, and nothing was applied
}

// batch is what is applied to an index at once.
type batch struct {
	items []item
	raws  []byte // memory of the lines
	valid int    // items without a failure
	// extends says that documents are typed against fields that the index does not have yet.
	extends bool
	ops     []shard.Op
	at      []int // ops[i] is of items[at[i]]
}

func (b *batch) reset() {
	clear(b.items)
	clear(b.ops)
	b.items, b.raws, b.ops, b.at = b.items[:0], b.raws[:0], b.ops[:0], b.at[:0]
	b.valid, b.extends = 0, false
}

// writer turns documents into operations on one index, and makes the index, and the fields that its documents bring, on the way.
//
// Documents are typed against working, which runs ahead of the index's own schema by the fields that were inferred since the last
// commit. A commit first adds those fields, then applies. When another writer added other fields meanwhile, the numbers of the
// fields differ and the documents are typed again.
type writer struct {
	node     *Node
	name     string
	existing bool // the index has to be there
	mark     leaf.Mark

	took     func(lease) // called when the index is there; may be nil
	lease    lease       // empty until then
	has      bool
	working  *schema.Schema
	parser   *jsondoc.Parser
	pending  []jsondoc.Inference // not in the index yet
	inferred []api.InferredField // all that this request brought
	fresh    bool                // see leaf.IndexReply, of the last operation
	behind   leaf.Mark           // likewise
}

// find takes the index if it is there; else documents are typed as for an index that infers its fields, unless the index has to be there.
func (w *writer) find(ctx context.Context) error {
	l, err := w.node.catalog.use(ctx, w.name)
	switch {
	case err == nil:
		w.hold(l)
		w.working = l.eng.Schema()
	case errors.Is(err, errNoIndex) && !w.existing:
		if w.working, err = dynamicSchema(w.name); err != nil {
			return err
		}
	default:
		return err
	}
	if w.parser, _ = w.node.parsers.Get().(*jsondoc.Parser); w.parser == nil {
		w.parser = jsondoc.NewParser(w.working, w.node.docLimits())
	}
	w.follow(w.working)
	return nil
}

func (w *writer) hold(l lease) {
	w.lease, w.has = l, true
	if w.took != nil {
		w.took(l)
	}
}

func (w *writer) release() {
	if w.parser != nil {
		w.node.parsers.Put(w.parser)
		w.parser = nil
	}
	if w.has {
		w.lease.release()
		w.has = false
	}
}

// follow makes documents be typed against sch.
func (w *writer) follow(sch *schema.Schema) {
	if w.working = sch; w.parser.Schema() != sch {
		w.parser.SetSchema(sch)
	}
}

// parse types one document and adds it to the batch. raw must stay as it is until the batch is committed.
func (w *writer) parse(b *batch, line int, raw []byte) {
	it := item{line: line, raw: raw}
	w.typed(b, &it)
	if it.fail == nil {
		b.valid++
	}
	b.items = append(b.items, it)
}

func (w *writer) typed(b *batch, it *item) {
	doc, inferred, derr := w.parser.Parse(it.raw)
	if derr != nil {
		it.doc, it.fail = nil, api.DocProblem(derr)
		it.fail.Line = it.line
		it.key = jsondoc.ID(it.raw, w.keyField())
		return
	}
	if len(inferred) > 0 {
		sch, err := jsondoc.Merge(w.working, inferred)
		if err != nil {
			it.doc, it.fail = nil, w.node.problem(context.Background(), err)
			it.key = doc.Key
			return
		}
		w.follow(sch)
		w.pending = append(w.pending, inferred...)
		b.extends = true
	}
	it.doc, it.key, it.fail = doc, doc.Key, nil
}

func (w *writer) keyField() string {
	if i := w.working.PrimaryField(); i >= 0 {
		return w.working.Fields[i].Name
	}
	return "id"
}

var errFieldsMove = errors.New("other writers keep adding fields")

// retypeAttempts bounds how often a batch is typed again because others add fields at the same time.
const retypeAttempts = 16

// commit applies the batch; what became of each document is in its item. An error means that nothing of it was applied.
func (w *writer) commit(ctx context.Context, b *batch) error {
	if b.valid == 0 {
		return nil
	}
	if !w.has {
		start, err := dynamicSchema(w.name)
		if err != nil {
			return err
		}
		l, _, err := w.node.catalog.create(ctx, w.name, start, "")
		if err != nil {
			return err
		}
		w.hold(l)
	}
	ctx, stop := w.lease.within(ctx)
	defer stop()
	err := w.apply(ctx, b)
	if err != nil && context.Cause(ctx) != nil && (errors.Is(err, context.Canceled) || errors.Is(err, shard.ErrClosed)) {
		return context.Cause(ctx)
	}
	return err
}

func (w *writer) apply(ctx context.Context, b *batch) error {
	var conflict error
	for range retypeAttempts {
		if len(w.pending) > 0 {
			fields := make([]schema.Field, len(w.pending))
			for i, inf := range w.pending {
				fields[i] = inf.Field
			}
			if err := w.lease.eng.AddFields(ctx, fields); err == nil {
				w.inferred = api.AddInferred(w.inferred, w.pending)
			} else if conflict = err; !isFieldConflict(err) {
				return err
			}
			w.pending = w.pending[:0]
		}
		now := w.lease.eng.Schema()
		if !extends(now, w.working) {
			// Others added fields first: type everything again, against what there is now.
			w.follow(now)
			w.retype(b)
			continue
		}
		w.follow(now)
		return w.applyTyped(ctx, b)
	}
	return fmt.Errorf("type a batch of index %q: fields changed %d times meanwhile: %w", w.name, retypeAttempts, cmp.Or(conflict, errFieldsMove))
}

func (w *writer) retype(b *batch) {
	b.valid = 0
	for i := range b.items {
		if it := &b.items[i]; it.doc != nil {
			if w.typed(b, it); it.fail == nil {
				b.valid++
			}
		}
	}
}

func (w *writer) applyTyped(ctx context.Context, b *batch) error {
	b.ops, b.at = b.ops[:0], b.at[:0]
	for i := range b.items {
		if it := &b.items[i]; it.fail == nil {
			b.ops, b.at = append(b.ops, shard.Op{Delete: it.del, Key: it.key, Doc: it.doc, If: it.cond, Mark: uint64(w.mark)}), append(b.at, i)
		}
	}
	if len(b.ops) == 0 {
		return nil
	}
	written := func(func(i int) bool) {}
	if b.ops[0].If == nil { // a Sync, of which all have a condition, tells of what it has changed itself
		written = w.lease.fences.write(len(b.ops), func(i int) string { return b.ops[i].Key })
	}
	res, err := w.lease.eng.Apply(ctx, b.ops)
	written(func(i int) bool { return err != nil || res[i].Err != nil })
	if err != nil {
		return err
	}
	for k, r := range res {
		w.fresh, w.behind = r.Fresh, leaf.Mark(r.Behind)
		if r.Err != nil {
			it := &b.items[b.at[k]]
			if errors.Is(r.Err, shard.ErrChanged) {
				it.changed = true
				continue
			}
			it.fail = w.node.problem(ctx, r.Err)
			it.fail.Line = it.line
			b.valid--
		}
	}
	return nil
}

func isFieldConflict(err error) bool {
	if _, ok := errors.AsType[*schema.ConflictError](err); ok {
		return true
	}
	return errors.Is(err, shard.ErrInvalid)
}

// extends tells whether documents typed against old mean the same against now: every field has its number.
func extends(now, old *schema.Schema) bool {
	if now == old {
		return true
	}
	if len(now.Fields) < len(old.Fields) {
		return false
	}
	for i := range old.Fields {
		a, b := &now.Fields[i], &old.Fields[i]
		if a.Name != b.Name || a.Type != b.Type || a.Multi != b.Multi || a.Tokenizer != b.Tokenizer {
			return false
		}
	}
	return true
}
