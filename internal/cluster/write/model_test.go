package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// fate is what becomes of one call of a model.
type fate uint8

const (
	fine    fate = iota
	refuse       // the member refuses for a reason of its own: 503, no effect
	busy         // 429, no effect
	full         // 507, no effect
	gone         // it cannot be reached, no effect
	lost         // it applies the call, and the reply does not come
	hang         // it does not answer, and has no effect
	crossed      // it does not answer, and applies the call
	failing      // 500; no effect, which nobody can tell
	numFates
)

func (f fate) String() string {
	return [...]string{"fine", "refuse", "busy", "full", "gone", "lost", "hang", "crossed", "failing"}[f]
}

// ownFences is below every fence of a model: lower ones are of somebody else.
const ownFences = 1 << 32

// held is an index of a model.
type held struct {
	schema *schema.Schema
	docs   map[string]string // id → source without white space
	loads  map[string]api.BulkReply
	// deleted says that a document was, or was to be; time does not pass in a model.
	deleted bool
	looked  map[string]bool      // those that were not there when somebody looked, or were
	aged    map[string]bool      // documents with which nothing was done for long
	fences  map[string]uint64    // the latest of each document
	synced  map[string]bool      // what a Sync changed last
	last    map[string]leaf.Mark // what was done with each document last; 0, or absent: something without a mark
}

// wrote notes what of a document's state is by a Sync, and what is not.
func (h *held) wrote(id string, bySync bool) {
	if h.synced == nil {
		h.synced = map[string]bool{}
	}
	h.synced[id] = bySync
	delete(h.aged, id)
	delete(h.last, id)
}

// model is a member that holds its documents in maps.
type model struct {
	leaf.Member // the calls that are not made panic

	addr string
	// fates, if not nil, is asked what becomes of a call.
	fates func(call string) fate
	// before, if not nil, runs before a call has its effect, after before it returns.
	before, after func(ctx context.Context, call string)
	// between, if not nil, runs behind the fence of a look and before it reads.
	between func(ctx context.Context)
	// silent leaves the errors of a load out of its reply but for the first so many.
	silent int

	mu      sync.Mutex
	epoch   uint64
	indexes map[string]*held
	deleted bool // something was, or was to be, of an index that is not there
	vague   bool // it keeps no marks
	calls   map[string]int
	puts    map[string]int // writes of each document
	fence   uint64         // the latest
	old     bool           // it knows of no fences
	stopped atomic.Bool    // it answers nothing, not even pings
}

func newModel(addr string) *model {
	return &model{addr: addr, silent: -1, indexes: map[string]*held{}, calls: map[string]int{}, puts: map[string]int{}}
}

func sumOf(source string) leaf.Sum { return xxh3.HashString128(source).Bytes() }

// do runs a call as its fate will have it.
func do[R any](ctx context.Context, m *model, call string, epoch uint64, writes bool, fn func() (*R, error)) (*R, error) {
	if m.before != nil {
		m.before(ctx, call)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if m.stopped.Load() {
		m.mu.Lock()
		m.calls[call]++
		m.mu.Unlock()
		<-ctx.Done()
		return nil, &leaf.TransportError{Address: m.addr, Call: call, MaybeApplied: writes, Cause: context.Cause(ctx)}
	}
	f := fine
	if m.fates != nil {
		f = m.fates(call)
	}
	hung := func() (*R, error) {
		<-ctx.Done()
		return nil, &leaf.TransportError{Address: m.addr, Call: call, MaybeApplied: writes, Cause: context.Cause(ctx)}
	}
	switch f {
	case refuse:
		return nil, api.NewProblem(api.ReadOnly, "it takes no writes")
	case busy:
		return nil, &api.Problem{Code: api.TooManyWrites, RetryAfterMS: 1, Detail: "it is busy"}
	case full:
		return nil, api.NewProblem(api.DiskFull, "no room")
	case gone:
		return nil, &leaf.TransportError{Address: m.addr, Call: call, Cause: errors.New("connection refused")}
	case failing:
		return nil, api.NewProblem(api.Internal, "it failed")
	case hang:
		return hung()
	}
	m.mu.Lock()
	m.calls[call]++
	var reply *R
	var err error
	if epoch != 0 && epoch < m.epoch {
		err = api.NewProblem(api.StaleMap, "the map is out of date")
	} else {
		reply, err = fn()
	}
	m.mu.Unlock()
	if m.after != nil {
		m.after(ctx, call)
	}
	switch f {
	case lost:
		return nil, &leaf.TransportError{Address: m.addr, Call: call, MaybeApplied: writes, Cause: errors.New("connection reset"), Crashed: true}
	case crossed:
		return hung()
	}
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// typed takes a document apart and adds its fields.
func (h *held) typed(body []byte) (key, source string, inferred []api.InferredField, prob *api.Problem) {
	doc, found, derr := jsondoc.NewParser(h.schema, jsondoc.Limits{}).Parse(body)
	if derr != nil {
		return "", "", nil, api.DocProblem(derr)
	}
	sch, err := jsondoc.Merge(h.schema, found)
	if err != nil {
		return "", "", nil, api.SchemaProblem(err)
	}
	h.schema = sch
	return doc.Key, string(doc.Source), api.AddInferred(nil, found), nil
}

// written is the index for a write, which makes it unless it has to be there.
func (m *model) written(name string, existing bool) (*held, *api.Problem) {
	if m.indexes[name] == nil && existing {
		return nil, noIndex(name)
	}
	return m.made(name), nil
}

func (m *model) made(name string) *held {
	h := m.indexes[name]
	if h == nil {
		h = &held{schema: schema.NewDynamic(name), docs: map[string]string{}, loads: map[string]api.BulkReply{}, deleted: m.deleted}
		m.indexes[name] = h
	}
	return h
}

func (m *model) Ping(ctx context.Context) (*leaf.PingReply, error) {
	if m.stopped.Load() {
		<-ctx.Done()
		return nil, &leaf.TransportError{Address: m.addr, Call: "Ping", Cause: context.Cause(ctx)}
	}
	return &leaf.PingReply{}, nil
}

func (m *model) Info(ctx context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return do(ctx, m, "Info", 0, false, func() (*leaf.InfoReply, error) {
		h := m.indexes[req.Index]
		if h == nil {
			return nil, noIndex(req.Index)
		}
		return &leaf.InfoReply{Index: h.info(req.Index)}, nil
	})
}

func (h *held) info(name string) api.IndexInfo {
	return api.IndexInfo{Name: name, Docs: uint64(len(h.docs)), Segments: 1, Bytes: 10, Schema: h.schema.SDL(), Dynamic: h.schema.Dynamic, State: "open"}
}

func (m *model) PutIndex(ctx context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return do(ctx, m, "PutIndex", req.Epoch, true, func() (*leaf.PutIndexReply, error) {
		sch, prob := api.ReadSchema(req.Index, false, []byte(req.Schema), text.Check)
		if prob != nil {
			return nil, prob
		}
		h := m.indexes[req.Index]
		if h == nil {
			h = m.made(req.Index)
			h.schema = sch
			return &leaf.PutIndexReply{Made: true, Info: h.info(req.Index)}, nil
		}
		if req.Schema != "" {
			if sch.Dynamic && !h.schema.Dynamic {
				return nil, api.NewProblem(api.SchemaConflict, "dynamic").On("dynamic")
			}
			next, err := h.schema.AddFields(sch.Fields)
			if err != nil {
				return nil, api.SchemaProblem(err)
			}
			h.schema = next
		}
		return &leaf.PutIndexReply{Info: h.info(req.Index)}, nil
	})
}

func (m *model) DropIndex(ctx context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return do(ctx, m, "DropIndex", req.Epoch, true, func() (*leaf.DropIndexReply, error) {
		m.deleted = true
		h := m.indexes[req.Index]
		if h == nil {
			return nil, noIndex(req.Index)
		}
		delete(m.indexes, req.Index)
		info := h.info(req.Index)
		info.State = "deleted"
		return &leaf.DropIndexReply{Info: info}, nil
	})
}

func (m *model) Index(ctx context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return do(ctx, m, "Index", req.Epoch, true, func() (*leaf.IndexReply, error) {
		if m.old && req.Mark != 0 {
			return nil, &api.Problem{Code: api.InvalidParameter, Field: "mark", Detail: "it is not known"}
		}
		h, prob := m.written(req.Index, req.Existing)
		if prob != nil {
			return nil, prob
		}
		key, source, inferred, prob := h.typed(req.Body)
		if prob != nil {
			prob.Line = 1
			return nil, prob
		}
		_, exists := h.docs[key]
		fresh := !exists && !h.deleted && !h.looked[key] || exists && h.aged[key]
		behind := h.last[key]
		h.docs[key] = source
		h.wrote(key, false)
		if req.Mark != 0 && !m.vague {
			if h.last == nil {
				h.last = map[string]leaf.Mark{}
			}
			h.last[key] = req.Mark
		}
		m.puts[key]++
		reply := api.WriteReply{OK: true, ID: key, Members: api.Members{OK: 1, Total: 1}, Inferred: inferred}
		return &leaf.IndexReply{WriteReply: reply, Fresh: fresh, Behind: behind}, nil
	})
}

func (m *model) DeleteMany(ctx context.Context, req *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return do(ctx, m, "DeleteMany", req.Epoch, true, func() (*leaf.DeleteReply, error) {
		h := m.indexes[req.Index]
		if h == nil {
			m.deleted = true
			return nil, noIndex(req.Index)
		}
		reply := &leaf.DeleteReply{}
		for _, id := range req.IDs {
			h.deleted = true
			h.wrote(id, false)
			if _, ok := h.docs[id]; ok {
				delete(h.docs, id)
				reply.Deleted++
			}
		}
		return reply, nil
	})
}

func (m *model) Bulk(ctx context.Context, req *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	return do(ctx, m, "Bulk", req.Epoch, true, func() (*leaf.BulkReply, error) {
		h, prob := m.written(req.Index, req.Existing)
		if prob != nil {
			return nil, prob
		}
		if r, ok := h.loads[req.Key]; ok && req.Key != "" {
			return &leaf.BulkReply{BulkReply: r, Repeated: true}, nil
		}
		reply := &leaf.BulkReply{}
		seen := map[string]bool{}
		for i, line := range bytes.Split(b, []byte{'\n'}) {
			if len(line) == 0 {
				continue
			}
			key, source, inferred, prob := h.typed(line)
			reply.Inferred = append(reply.Inferred, inferred...)
			if prob != nil {
				reply.Failed++
				reply.Errors = append(reply.Errors, api.DocFailure{Line: i + 1, Code: string(prob.Code), Reason: prob.Detail})
				continue
			}
			if seen[key] {
				reply.Duplicates++
			}
			seen[key] = true
			h.docs[key] = source
			h.wrote(key, false)
			m.puts[key]++
			reply.Indexed++
		}
		reply.OK, reply.Shards, reply.Members = reply.Failed == 0, 1, api.Members{OK: 1, Total: 1}
		if m.silent >= 0 && len(reply.Errors) > m.silent {
			reply.ErrorsOmitted = uint64(len(reply.Errors) - m.silent)
			reply.Errors = reply.Errors[:m.silent]
		}
		if req.Key != "" && (reply.Indexed > 0 || reply.Failed == 0) {
			h.loads[req.Key] = reply.BulkReply
		}
		return reply, nil
	})
}

func (m *model) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return do(ctx, m, "Sums", req.Epoch, false, func() (*leaf.SumsReply, error) {
		h := m.indexes[req.Index]
		if h == nil {
			return nil, noIndex(req.Index)
		}
		reply := &leaf.SumsReply{Sums: make([]leaf.Sum, len(req.IDs))}
		if req.Fence && m.old {
			return nil, &api.Problem{Code: api.InvalidParameter, Field: "fence", Detail: "it is not known"}
		}
		if req.Fence {
			if h.fences == nil {
				h.fences, h.looked = map[string]uint64{}, map[string]bool{}
			}
			m.fence = max(m.fence, ownFences) + 1
			reply.Fence = m.fence
			reply.Last = req.Mark != 0
			for _, id := range req.IDs {
				h.fences[id], h.looked[id] = m.fence, true
				delete(h.aged, id)
				if req.Mark != 0 && h.last[id] == req.Mark {
					h.last[id] = req.Mark.Seen()
				} else {
					delete(h.last, id)
					reply.Last = false
				}
			}
			if m.between != nil { // what is shown is of a later moment
				m.mu.Unlock()
				m.between(ctx)
				m.mu.Lock()
				if m.indexes[req.Index] != h {
					return nil, noIndex(req.Index)
				}
			}
			for i, id := range req.IDs {
				if h.synced[id] {
					reply.Synced = append(reply.Synced, i)
				}
			}
		}
		for i, id := range req.IDs {
			if source, ok := h.docs[id]; ok {
				reply.Sums[i] = sumOf(source)
			}
		}
		return reply, nil
	})
}

func (m *model) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	reply := &leaf.ExportReply{}
	var docs []leaf.ExportedDoc
	_, err := do(ctx, m, "Export", req.Epoch, false, func() (*leaf.ExportReply, error) {
		h := m.indexes[req.Index]
		if h == nil {
			return nil, noIndex(req.Index)
		}
		for _, id := range req.IDs {
			if source, ok := h.docs[id]; ok {
				docs = append(docs, leaf.ExportedDoc{ID: id, Source: []byte(source)})
			} else {
				reply.Missing = append(reply.Missing, id)
			}
		}
		return reply, nil
	})
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		if err := each(d); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

func (m *model) Sync(ctx context.Context, req *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return do(ctx, m, "Sync", req.Epoch, true, func() (*leaf.SyncReply, error) {
		h := m.indexes[req.Index]
		if h == nil {
			return nil, noIndex(req.Index)
		}
		n := len(req.Items)
		reply := &leaf.SyncReply{Applied: make([]bool, n), Sums: make([]leaf.Sum, n)}
		for i, it := range req.Items {
			var have leaf.Sum
			if source, ok := h.docs[it.ID]; ok {
				have = sumOf(source)
			}
			reply.Sums[i] = have
			if have != it.Expect || req.Fence != 0 && (req.Fence < ownFences || h.fences[it.ID] > req.Fence) {
				continue
			}
			if it.Body == nil {
				h.deleted = true
				h.wrote(it.ID, true)
				delete(h.docs, it.ID)
				reply.Applied[i], reply.Sums[i] = true, leaf.Sum{}
				continue
			}
			key, source, _, prob := h.typed(it.Body)
			if prob == nil && key != it.ID {
				prob = api.NewProblem(api.InvalidID, "another id")
			}
			if prob != nil {
				if reply.Problems == nil {
					reply.Problems = make([]*api.Problem, n)
				}
				reply.Problems[i] = prob
				continue
			}
			h.docs[key] = source
			h.wrote(key, true)
			reply.Applied[i], reply.Sums[i] = true, sumOf(source)
		}
		return reply, nil
	})
}

// docs is what the model holds, nil for an index that is not there.
func (m *model) docs(index string) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.indexes[index]; h != nil {
		return maps.Clone(h.docs)
	}
	return nil
}

func (m *model) sdl(index string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.indexes[index]; h != nil {
		return h.schema.SDL()
	}
	return ""
}

func (m *model) called(call string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[call]
}

// hintBook is a Hints in memory.
type hintBook struct {
	mu   sync.Mutex
	ids  map[string]map[string]bool // by member; index and id
	fail error
}

func (h *hintBook) Add(member, index string, ids []string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		return false, h.fail
	}
	if h.ids == nil {
		h.ids = map[string]map[string]bool{}
	}
	if h.ids[member] == nil {
		h.ids[member] = map[string]bool{}
	}
	for _, id := range ids {
		h.ids[member][index+"/"+id] = true
	}
	return false, nil
}

// of are the hints of a member, sorted.
func (h *hintBook) of(member string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.ids[member]))
}

// cluster is models in groups, and the map that says so.
type cluster struct {
	t      testing.TB
	models map[string]*model
	dial   map[string]leaf.Member // members that are no models

	mu sync.Mutex
	st *members.State
}

// newCluster makes members named g/m for each group g.
func newCluster(t testing.TB, sizes ...int) *cluster {
	t.Helper()
	c := &cluster{t: t, models: map[string]*model{}}
	var groups []shardmap.Group
	for g, n := range sizes {
		var addrs []string
		for m := range n {
			addr := fmt.Sprintf("%d/%d", g, m)
			c.models[addr] = newModel(addr)
			addrs = append(addrs, addr)
		}
		groups = append(groups, shardmap.Group{Members: addrs})
	}
	first, err := shardmap.New(placement.Ring, 0, groups)
	if err != nil {
		t.Fatal(err)
	}
	c.setMap(first)
	return c
}

// disturb lets no write be taken for one that cannot have crossed.
func (c *cluster) disturb() {
	for _, m := range c.models {
		m.mu.Lock()
		m.deleted, m.vague = true, true
		m.mu.Unlock()
	}
}

// forget lets members not know any more which writes were the last.
func (c *cluster) forget(members ...*model) {
	if len(members) == 0 {
		members = c.all()
	}
	for _, m := range members {
		m.mu.Lock()
		for _, h := range m.indexes {
			h.last = nil
		}
		m.mu.Unlock()
	}
}

// age lets a member have documents since long ago. No document is the same as none.
func (m *model) age(index string, docs map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.indexes[index]
	h.aged, h.deleted = map[string]bool{}, false
	clear(h.looked)
	for id, source := range docs {
		if source == "" {
			delete(h.docs, id)
			continue
		}
		h.docs[id], h.aged[id] = source, true
	}
}

// setMap puts a map in force here, and at members it is given to.
func (c *cluster) setMap(m *shardmap.Map, to ...*model) {
	c.t.Helper()
	st, err := members.NewState(m, c.State(), func(addr string) (leaf.Member, error) {
		if m := c.models[addr]; m != nil {
			return m, nil
		}
		if m := c.dial[addr]; m != nil {
			return m, nil
		}
		return nil, errors.New("there is no such member")
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.st = st
	c.mu.Unlock()
	for _, m := range to {
		m.mu.Lock()
		m.epoch = st.Epoch()
		m.mu.Unlock()
	}
}

func (c *cluster) State() *members.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st
}

func (c *cluster) Stale(_ context.Context, seen *members.State) (*members.State, error) {
	if st := c.State(); st.Epoch() > seen.Epoch() {
		return st, nil
	}
	return nil, errors.New("there is no newer map")
}

// frozen is a source that learns of a new map only when it is told that its own is refused.
type frozen struct {
	c  *cluster
	mu sync.Mutex
	st *members.State
}

func (f *frozen) State() *members.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.st == nil {
		f.st = f.c.State()
	}
	return f.st
}

func (f *frozen) Stale(ctx context.Context, seen *members.State) (*members.State, error) {
	st, err := f.c.Stale(ctx, seen)
	if err == nil {
		f.mu.Lock()
		f.st = st
		f.mu.Unlock()
	}
	return st, err
}

func (c *cluster) group(g int) []*model {
	var out []*model
	for m := range c.State().Groups[g].Members {
		out = append(out, c.models[fmt.Sprintf("%d/%d", g, m)])
	}
	return out
}

// all are the models in order.
func (c *cluster) all() []*model {
	var out []*model
	for _, addr := range slices.Sorted(maps.Keys(c.models)) {
		out = append(out, c.models[addr])
	}
	return out
}

func (c *cluster) writer(o Options) *Writer {
	c.t.Helper()
	w, err := New(c, o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := w.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return w
}

// same tells how the members of each group differ, and how documents stand where they do not belong; empty if nothing is wrong.
func (c *cluster) same(index string) string {
	var wrong strings.Builder
	st := c.State()
	for g := range st.Groups {
		ms := c.group(g)
		first := ms[0].docs(index)
		for _, m := range ms[1:] {
			if other := m.docs(index); !maps.Equal(first, other) {
				fmt.Fprintf(&wrong, "%s has %v\n%s has %v\n", ms[0].addr, first, m.addr, other)
			}
		}
		for id := range first {
			if !slices.ContainsFunc(st.Writers(id), func(w *members.Group) bool { return w.Ordinal == g }) {
				fmt.Fprintf(&wrong, "%s stands in group %d\n", id, g)
			}
		}
	}
	return wrong.String()
}

// sameSchemas tells how the schemas of the members differ.
func (c *cluster) sameSchemas(index string) string {
	var wrong strings.Builder
	all := c.all()
	for _, m := range all[1:] {
		if a, b := all[0].sdl(index), m.sdl(index); a != b {
			fmt.Fprintf(&wrong, "%s has %s\n%s has %s\n", all[0].addr, a, m.addr, b)
		}
	}
	return wrong.String()
}

func problemOf(t testing.TB, err error, code api.Code) *api.Problem {
	t.Helper()
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.Code != code {
		t.Fatalf("%v, want %s", err, code)
	}
	return p
}
