package framed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/wire/frame"
)

// HandlerOptions are the choices of a Handler. The zero value of a field is its default.
type HandlerOptions struct {
	MaxTimeout time.Duration // the longest that a request may take, whatever its timeout_ms; none by default
	MaxReply   int           // bytes of a reply: the server's Limits.MaxReply; frame.DefaultMaxFrame
	MaxRequest int           // bytes of a request other than index, bulk and sync; MaxRequest, which is also the most
	// Admit is asked before a request over 16 KiB is taken apart, for ParseFactor times its length, or for a copy of the document of an
	// index; and before what a reply is made of takes so many bytes more, beyond the first MiB. It returns what gives the memory back,
	// which is called once when the reply is made, or an error, best an *api.Problem. nil admits everything.
	Admit func(ctx context.Context, bytes int) (release func(), err error)
	// Send is asked before a reply that takes more than 64 KiB is sent. It returns what gives the memory back, which is called once when
	// the reply was sent or its connection is gone, or an error, best an *api.Problem, which is sent in its place; in place of the reply
	// to a write a short form of that, because the write is done. It should answer at once. nil lets everything be sent.
	Send func(ctx context.Context, bytes int) (release func(), err error)
}

const (
	// MaxRequest is how many bytes a request may have that carries no document, however long frames may be. Ten thousand ids of the
	// longest, or the statistics of 65,536 terms, are a third of it.
	MaxRequest = 16 << 20
	// ParseFactor is the memory that a request takes while it is answered, in lengths of it, besides the frame: a list of short values
	// takes about 6.
	ParseFactor = 8
	// smallRequest is how long a request may be that is taken apart without asking.
	smallRequest = 16 << 10
	// freeRoom is how large a reply may become without asking for memory, and the least that is asked for.
	freeRoom = 1 << 20
	// smallReply is how large a reply may be that is sent without asking.
	smallReply = 64 << 10
)

// room is the memory of a reply that grows.
type room struct {
	admit func(ctx context.Context, bytes int) (release func(), err error)
	have  int
	held  []func()
}

// grow makes sure that there is room for so many bytes. What is asked for at once doubles.
func (r *room) grow(ctx context.Context, bytes int) error {
	if r.admit == nil || bytes <= r.have {
		return nil
	}
	more := max(bytes-r.have, r.have, freeRoom)
	release, err := r.admit(ctx, more)
	if err != nil {
		return err
	}
	r.have += more
	r.held = append(r.held, release)
	return nil
}

func (r *room) release() {
	for _, f := range r.held {
		f()
	}
}

// call is a request under way.
type call struct {
	*message
	memory room // of what the reply is made of, and of the reply until it may be sent
	// written says of an operation that it has written something, so that its reply may be refused for want of room but not taken for one
	// that nothing came of.
	written bool
	// brief, which an operation sets when it has written something, makes its reply once more without what may be long.
	brief func(b []byte) []byte
}

// sized makes sure that there is room for so many bytes of an answer, here and in the reply.
func (c *call) sized(ctx context.Context, bytes int) error { return c.memory.grow(ctx, 2*bytes) }

// Handler answers the operations of framed JSON with a leaf.Leaf.
type Handler struct {
	leaf   leaf.Leaf
	member leaf.Member // the same, if it is one
	o      HandlerOptions
	types  typeCache
}

// NewHandler returns a handler that serves l, all of a leaf.Member if l is one. It does not close it.
func NewHandler(l leaf.Leaf, o HandlerOptions) *Handler {
	if o.MaxReply <= 0 {
		o.MaxReply = frame.DefaultMaxFrame
	}
	if o.MaxRequest <= 0 || o.MaxRequest > MaxRequest {
		o.MaxRequest = MaxRequest
	}
	member, _ := l.(leaf.Member)
	return &Handler{leaf: l, member: member, o: o}
}

// operation is one that a request can name.
type operation struct {
	members []string // that its requests may have besides those that all may have
	answer  func(h *Handler, ctx context.Context, c *call, b []byte) ([]byte, error)
}

var operations = map[string]operation{
	opPing:       {nil, (*Handler).ping},
	opDocs:       {docsMembers, (*Handler).docs},
	opInfo:       {nil, (*Handler).info},
	opIDs:        {idsMembers, (*Handler).ids},
	opIndex:      {indexMembers, (*Handler).index},
	opBulk:       {bulkMembers, (*Handler).bulk},
	opDelete:     {deleteMembers, (*Handler).deleteOne},
	opSearch:     {searchMembers, (*Handler).search},
	opStats:      {statsMembers, (*Handler).stats},
	opAgg:        {aggMembers, (*Handler).aggregate},
	opKNN:        {knnMembers, (*Handler).knn},
	opExport:     {exportMembers, (*Handler).export},
	opHas:        {hasMembers, (*Handler).has},
	opDeleteMany: {hasMembers, (*Handler).deleteMany},
	opFetch:      {fetchMembers, (*Handler).fetch},
	opIndexes:    {nil, (*Handler).indexes},
	opPutIndex:   {putIndexMembers, (*Handler).putIndex},
	opDropIndex:  {dropIndexMembers, (*Handler).dropIndex},
	opSums:       {sumsMembers, (*Handler).sums},
	opDigest:     {digestMembers, (*Handler).digest},
	opSync:       {syncMembers, (*Handler).sync},
	opPlace:      {placeMembers, (*Handler).place},
	opPlaced:     {nil, (*Handler).placed},
}

// Handle is the frame.Handler: it answers one request. A frame that is not UTF-8 or not JSON ends the connection.
func (h *Handler) Handle(ctx context.Context, request, reply []byte) frame.Reply {
	begun := time.Now()
	m, prob, broken := parseMessage(request)
	if prob != nil {
		return frame.Reply{Body: appendProblem(reply, prob), Apart: true, Close: broken}
	}
	op, ok := operations[m.op]
	if !ok {
		return frame.Reply{Body: appendProblem(reply, invalid(opMember, "there is no operation "+strconv.Quote(api.Clip(m.op)))), Apart: true}
	}
	if m.check(op.members); m.prob != nil {
		return frame.Reply{Body: appendProblem(reply, m.prob), Apart: true}
	}
	if d := h.timeout(m); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, begun.Add(d))
		defer cancel()
	}
	done, err := h.mayRead(ctx, m, len(request))
	if err != nil {
		return frame.Reply{Body: appendProblem(reply, problemOf(ctx, err)), Apart: true}
	}
	defer done()
	c := &call{message: m, memory: room{admit: h.o.Admit, have: freeRoom}}
	defer c.memory.release()
	b, err := op.answer(h, ctx, c, reply)
	if err != nil {
		return frame.Reply{Body: appendProblem(reply[:0], problemOf(ctx, err)), Apart: true}
	}
	release, err := h.mayGo(ctx, b)
	switch {
	case err == nil:
	case c.brief != nil:
		b = c.brief(reply[:0])
	default:
		prob := problemOf(ctx, err)
		if c.written {
			told := *prob
			told.Extra = maybeApplied
			prob = &told
		}
		b = appendProblem(reply[:0], prob)
	}
	return frame.Reply{Body: b, Apart: true, Release: release}
}

// carries tells whether the requests of an operation carry documents, and may therefore be as long as a frame.
func carries(op string) bool { return op == opIndex || op == opBulk || op == opSync }

// mayRead says whether the members of a request may be read. done gives back what it is charged for that.
func (h *Handler) mayRead(ctx context.Context, m *message, length int) (done func(), err error) {
	charge := 0
	switch m.op {
	case opBulk: // read where it stands
	case opIndex:
		charge = len(m.get("body"))
	case opSync:
		charge = len(m.get("items"))
	default:
		if length > h.o.MaxRequest {
			return nil, api.NewProblem(api.BodyTooLarge, fmt.Sprintf("the request has %d bytes, %d are allowed for %s", length, h.o.MaxRequest, m.op)).Within(int64(h.o.MaxRequest))
		}
		charge = ParseFactor * length
	}
	if h.o.Admit == nil || length <= smallRequest || charge == 0 {
		return func() {}, nil
	}
	return h.o.Admit(ctx, charge)
}

// mayGo says whether a reply may be sent. release gives back what it is charged for that, if it is charged.
func (h *Handler) mayGo(ctx context.Context, b []byte) (release func(), err error) {
	if len(b) > h.o.MaxReply {
		return nil, replyTooLarge(fmt.Sprintf("the reply has %d bytes, at most %d are allowed; ask for less at once", len(b), h.o.MaxReply), h.o.MaxReply)
	}
	if h.o.Send == nil || cap(b) <= smallReply {
		return nil, nil
	}
	return h.o.Send(ctx, cap(b))
}

// timeout is how long a request may take; 0 is for ever.
func (h *Handler) timeout(m *message) time.Duration {
	if h.o.MaxTimeout > 0 && (m.timeout == 0 || m.timeout > h.o.MaxTimeout) {
		return h.o.MaxTimeout
	}
	return m.timeout
}

// fault is the fault of a request, if it has one. A nil *api.Problem in an error would not be nil.
func (m *message) fault() error {
	if m.prob != nil {
		return m.prob
	}
	return nil
}

func (h *Handler) ping(ctx context.Context, c *call, b []byte) ([]byte, error) {
	r, err := h.leaf.Ping(ctx)
	if err != nil {
		return nil, err
	}
	return appendPingReply(b, r), nil
}

func (h *Handler) docs(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readDocsRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := h.leaf.Docs(ctx, req)
	if err != nil {
		return nil, err
	}
	return appendDocsReply(b, r), nil
}

func (h *Handler) info(ctx context.Context, c *call, b []byte) ([]byte, error) {
	r, err := h.leaf.Info(ctx, &leaf.InfoRequest{Index: c.index})
	if err != nil {
		return nil, err
	}
	if err := c.sized(ctx, len(r.Index.Schema)); err != nil {
		return nil, err
	}
	return appendInfoReply(b, r), nil
}

// errFull ends a stream of ids or documents that has filled the reply.
var errFull = errors.New("the reply is full")

// replyRoom is what a reply needs besides its ids and documents, generously.
const replyRoom = 8 << 10

func (h *Handler) ids(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readIDsRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	b = beginIDsReply(b)
	from := len(b)
	full := false
	r, err := h.leaf.IDs(ctx, req, func(ids []string) error {
		for _, id := range ids {
			if len(b) > from {
				b = append(b, ',')
			}
			if b = api.AppendString(b, id); len(b) > h.o.MaxReply-replyRoom {
				full = true
				return errFull
			}
		}
		return c.memory.grow(ctx, len(b))
	})
	switch {
	case full:
		return nil, replyTooLarge(fmt.Sprintf("the ids take more than the %d bytes that a reply may have; ask for them in parts with limit and after", h.o.MaxReply), h.o.MaxReply)
	case err != nil:
		return nil, err
	}
	return endIDsReply(b, r), nil
}

// exportBytes is how many bytes of documents a reply has that may leave a rest.
const exportBytes = 8 << 20

func (h *Handler) export(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readExportRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	// Every id stands in the reply once, whatever becomes of it.
	room := h.o.MaxReply - replyRoom
	var scratch []byte
	for _, id := range req.IDs {
		scratch = api.AppendString(scratch[:0], id)
		room -= len(scratch) + 1
	}
	if req.rest {
		room = min(room, max(exportBytes, room/8))
	}
	page := &exportPage{}
	full := false
	size := 0
	r, err := h.leaf.Export(ctx, &req.ExportRequest, func(doc leaf.ExportedDoc) error {
		if room -= len(doc.Source) + 1; room < 0 && (!req.rest || len(page.docs) > 0 || len(doc.Source) > h.o.MaxReply/2) {
			full = true
			return errFull
		}
		page.docs = append(page.docs, doc)
		size += len(doc.Source)
		return c.sized(ctx, size)
	})
	switch {
	case full && (!req.rest || len(page.docs) == 0):
		return nil, replyTooLarge(fmt.Sprintf("the documents take more than the %d bytes that a reply may have; ask for fewer at once, or with rest", h.o.MaxReply), h.o.MaxReply)
	case full:
		page.cut(req.IDs)
	case err != nil:
		return nil, err
	default:
		page.ExportReply = *r
	}
	return appendExportReply(slices.Grow(b, size+textBytes(req.IDs)+replyRoom), page), nil
}

// cut sets what is missing and what is left of a page that ended early. The documents came in the order of ids: what stands before
// the last of them and did not come is missing.
func (p *exportPage) cut(ids []string) {
	at := 0
	for i := range p.docs {
		for ; at < len(ids) && ids[at] != p.docs[i].ID; at++ {
			p.Missing = append(p.Missing, ids[at])
		}
		at = min(at+1, len(ids))
	}
	p.rest = ids[at:]
}

func (h *Handler) has(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readHasRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := h.leaf.Has(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := c.sized(ctx, textBytes(r.Missing)); err != nil {
		return nil, err
	}
	return appendHasReply(b, r), nil
}

func (h *Handler) deleteMany(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readDeleteRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := h.leaf.DeleteMany(ctx, req)
	if err != nil {
		return nil, err
	}
	return appendDeleteReply(b, r), nil
}

func (h *Handler) deleteOne(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readDeleteOne(c.message)
	if c.prob == nil {
		c.prob = api.CheckID(req.IDs[0])
	}
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := h.leaf.DeleteMany(ctx, req)
	if err != nil {
		return nil, err
	}
	return appendDeleteOne(b, r), nil
}

func (h *Handler) index(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readIndexRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := h.leaf.Index(ctx, req)
	if err != nil {
		return nil, err
	}
	c.brief = func(b []byte) []byte {
		short := *r
		short.Inferred = nil
		return appendIndexReply(b, &short)
	}
	return appendIndexReply(b, r), nil
}

// briefErrors is how many refused documents are listed in a reply for which there is no memory.
const briefErrors = 16

func (h *Handler) bulk(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req, body := readBulkRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := h.leaf.Bulk(ctx, req, body)
	if err != nil {
		return nil, err
	}
	c.brief = func(b []byte) []byte {
		short := *r
		short.Errors, short.Inferred = r.Errors[:min(len(r.Errors), briefErrors)], nil
		short.ErrorsOmitted += uint64(len(r.Errors) - len(short.Errors))
		return appendBulkReply(b, &short)
	}
	return appendBulkReply(b, r), nil
}

func (h *Handler) stats(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readStatsRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := h.leaf.Stats(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := c.sized(ctx, statsBytes(&r.Stats)); err != nil {
		return nil, err
	}
	return appendStatsReply(b, r), nil
}

func (h *Handler) aggregate(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readAggRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := h.leaf.Aggregate(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := c.sized(ctx, valuesBytes(r.Values)); err != nil {
		return nil, err
	}
	return appendAggReply(b, r), nil
}

func (h *Handler) knn(ctx context.Context, c *call, b []byte) ([]byte, error) {
	req := readKNNRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	r, err := h.leaf.KNN(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := c.sized(ctx, neighbourBytes(r.Hits)); err != nil {
		return nil, err
	}
	b, prob := appendKNNReply(b, r)
	if prob != nil {
		return nil, prob
	}
	return b, nil
}

func (h *Handler) search(ctx context.Context, c *call, b []byte) ([]byte, error) {
	q := readSearchRequest(c.message)
	if err := c.fault(); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		t, err := h.searchTypes(ctx, q)
		if err != nil {
			return nil, err
		}
		if prob := q.bindAfter(t); prob != nil {
			return nil, prob
		}
		r, err := h.leaf.Search(ctx, &q.SearchRequest)
		if err != nil {
			return nil, err
		}
		if t != nil && t.instance != r.Snapshot.Instance {
			// The index is another than the one that the types are of.
			h.types.drop(q.Index)
			if try < 2 {
				continue
			}
			return nil, api.NewProblem(api.IndexDeleted, "the index is being replaced")
		}
		if q.Show != nil && len(r.Shown) != len(r.Hits) {
			return nil, short(opSearch, len(r.Shown), len(r.Hits))
		}
		if err := c.sized(ctx, searchBytes(r)); err != nil {
			return nil, err
		}
		out, prob := appendSearchReply(b, q, r, t)
		if prob != nil {
			return nil, prob
		}
		return out, nil
	}
}

// searchTypes returns the types of the fields of an order whose keys go or came as plain JSON, and checks those that are said to hold
// numbers. It is nil where no type is needed.
func (h *Handler) searchTypes(ctx context.Context, c *searchCall) (*types, error) {
	if len(c.numeric) == 0 && (c.typed || !c.byField()) {
		return nil, nil
	}
	t, err := h.typesOf(ctx, c.Index, func(t *types) bool {
		for _, k := range c.Sort {
			if k.By == exec.ByField && t.fields[k.Field] == 0 {
				return false
			}
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	for _, f := range c.numeric {
		if !t.numeric(f) {
			return nil, &api.Problem{Code: api.FieldNotSortable, Field: f, Detail: fmt.Sprintf("sort: field %q holds no numbers", f)}
		}
	}
	return t, nil
}

// byField tells whether the order compares values of fields.
func (c *searchCall) byField() bool {
	for i := range c.Sort {
		if c.Sort[i].By == exec.ByField {
			return true
		}
	}
	return false
}

// What values take besides the bytes of their texts, about, and about as much in a reply.
const (
	textHead = 16
	hitHead  = 64
)

// textBytes is about what a list of texts takes.
func textBytes(list []string) int {
	n := textHead * len(list)
	for _, s := range list {
		n += len(s)
	}
	return n
}

// statsBytes is about what statistics take.
func statsBytes(st *score.Stats) int {
	n := hitHead * (len(st.DF) + len(st.Fields))
	for t := range st.DF {
		n += len(t.Text) + len(t.Field)
	}
	return n
}

// valuesBytes is about what the values of fields take.
func valuesBytes(list []leaf.FieldValues) int {
	n := 0
	for i := range list {
		n += textBytes(list[i].Texts) + textHead*len(list[i].Numbers)
	}
	return n
}

// neighbourBytes is about what the hits of a vector search take.
func neighbourBytes(hits []leaf.Neighbour) int {
	n := hitHead * len(hits)
	for i := range hits {
		n += len(hits[i].ID)
	}
	return n
}

// searchBytes is about what the hits of a search and its statistics take.
func searchBytes(r *leaf.SearchReply) int {
	n := hitHead * len(r.Hits)
	for i := range r.Hits {
		h := &r.Hits[i]
		n += len(h.ID) + hitHead*len(h.Sort)
		for k := range h.Sort {
			n += len(h.Sort[k].Text)
		}
	}
	for _, st := range [...]*score.Stats{r.Stats, r.LocalStats} {
		if st != nil {
			n += statsBytes(st)
		}
	}
	return n + shownBytes(r.Shown) + len(r.Plan)
}
