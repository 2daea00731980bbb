package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// fate is what becomes of one call of a model.
type fate uint8

const (
	fine fate = iota
	gone      // the member cannot be reached; no effect
	lost      // it applies the call, and the reply does not come
	late      // the call fails, and reaches the member later all the same
	hang      // it does not answer, and has no effect
)

// kept is a document of a model, with what is asked for so often that it is computed once.
type kept struct {
	id     string
	source string // without white space
	sum    leaf.Sum
	hash   uint32 // of the id
}

// held is an index of a model.
type held struct {
	schema *schema.Schema
	docs   map[string]*kept  // by id
	sorted []*kept           // by id; nil: to be made
	fences map[string]uint64 // the latest of each document
}

func byKey(d *kept, id string) int { return cmp.Compare(d.id, id) }

func (h *held) set(id, source string) {
	d := &kept{id, source, sumOf(source), placement.Hash(id)}
	h.docs[id] = d
	if h.sorted == nil {
		return
	}
	if i, there := slices.BinarySearchFunc(h.sorted, id, byKey); there {
		h.sorted[i] = d
	} else {
		h.sorted = slices.Insert(h.sorted, i, d)
	}
}

func (h *held) drop(id string) {
	delete(h.docs, id)
	if i, there := slices.BinarySearchFunc(h.sorted, id, byKey); there {
		h.sorted = slices.Delete(h.sorted, i, i+1)
	}
}

// window is what a call sees of an index: the documents that all of the shares own.
type window struct {
	*held
	shares []placement.Share
	rules  []*placement.Placement // of shares
}

func (w *window) owns(d *kept) bool {
	for i, p := range w.rules {
		if p.ShardOfHash(d.hash) != w.shares[i].Ordinal {
			return false
		}
	}
	return true
}

// get is the document with an id, nil where the call sees none.
func (w *window) get(id string) *kept {
	if d := w.docs[id]; d != nil && w.owns(d) {
		return d
	}
	return nil
}

// all are the documents by their ids.
func (w *window) all() []*kept {
	if w.sorted == nil {
		w.sorted = slices.SortedFunc(maps.Values(w.docs), func(a, b *kept) int { return cmp.Compare(a.id, b.id) })
	}
	if len(w.rules) == 0 {
		return w.sorted
	}
	out := make([]*kept, 0, len(w.sorted))
	for _, d := range w.sorted {
		if w.owns(d) {
			out = append(out, d)
		}
	}
	return out
}

// model is a member that holds its documents in maps, and refuses calls by older maps as a node does.
type model struct {
	addr string
	// fates, if not nil, is asked what becomes of a call.
	fates func(ctx context.Context, call string) fate
	// later waits until a late call is to reach the member.
	later func()
	// before, if not nil, runs before a call has its effect.
	before func(ctx context.Context, call string)

	mu      sync.Mutex
	down    bool
	epoch   uint64
	placed  []byte
	wiped   int
	indexes map[string]*held
	calls   map[string]int
	deepest int             // depth of a digest
	refuse  map[string]bool // ids that it does not take
	longest int             // bytes of a document in a Sync, beyond which it refuses the call; 0: no limit
	late    sync.WaitGroup
	fence   uint64 // the latest
}

func newModel(addr string) *model {
	return &model{addr: addr, indexes: map[string]*held{}, calls: map[string]int{}, refuse: map[string]bool{}}
}

func sumOf(source string) leaf.Sum { return xxh3.HashString128(source).Bytes() }

func noIndex(name string) error { return api.NewProblem(api.IndexNotFound, "there is no index "+name) }

// do runs a call as its fate will have it. fn runs under mu.
func do[R any](ctx context.Context, m *model, call string, epoch uint64, writes bool, fn func() (*R, error)) (*R, error) {
	m.mu.Lock()
	before, fates := m.before, m.fates
	m.mu.Unlock()
	if before != nil {
		before(ctx, call)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	fails := func(text string, maybe bool) error {
		return &leaf.TransportError{Address: m.addr, Call: call, MaybeApplied: maybe && writes, Cause: errors.New(text)}
	}
	f := fine
	if fates != nil {
		f = fates(ctx, call)
	}
	run := func() (*R, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls[call]++
		if m.down {
			return nil, fails("connection refused", false)
		}
		if epoch != 0 && epoch < m.epoch {
			return nil, api.NewProblem(api.StaleMap, fmt.Sprintf("the map has epoch %d, not %d", m.epoch, epoch))
		}
		return fn()
	}
	switch f {
	case gone:
		return nil, fails("connection refused", false)
	case hang:
		<-ctx.Done()
		return nil, &leaf.TransportError{Address: m.addr, Call: call, MaybeApplied: writes, Cause: context.Cause(ctx)}
	case lost:
		if _, err := run(); err != nil {
			return nil, err
		}
		return nil, fails("connection reset", true)
	case late:
		m.late.Go(func() {
			m.later()
			if _, err := run(); err != nil {
				return // refused, as it should be
			}
		})
		return nil, fails("connection reset", true)
	}
	return run()
}

func (m *model) setBefore(before func(ctx context.Context, call string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = before
}

func (m *model) setFates(fates func(ctx context.Context, call string) fate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fates = fates
}

func (m *model) close() { m.late.Wait() }

func (m *model) setDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// wipe loses everything.
func (m *model) wipe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.indexes, m.epoch, m.placed = map[string]*held{}, 0, nil
	m.wiped++
}

// reply is what the model says about the map that it keeps.
func (m *model) reply() *leaf.PlaceReply {
	return &leaf.PlaceReply{Node: fmt.Sprint(m.addr, " ", m.wiped), Epoch: m.epoch, Map: m.placed}
}

// put sets a document without a call.
func (m *model) put(index string, docs ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.made(index)
	for _, d := range docs {
		key, source, prob := h.typed([]byte(d))
		if prob != nil {
			panic(prob)
		}
		h.set(key, source)
	}
}

// remove deletes a document without a call.
func (m *model) remove(index, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.indexes[index].drop(id)
}

// docs is what the model holds, nil for an index that is not there.
func (m *model) docs(index string) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.indexes[index]
	if h == nil {
		return nil
	}
	docs := make(map[string]string, len(h.docs))
	for id, d := range h.docs {
		docs[id] = d.source
	}
	return docs
}

func (m *model) called(call string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[call]
}

func (m *model) made(name string) *held {
	if m.indexes[name] == nil {
		m.indexes[name] = &held{schema: schema.NewDynamic(name), docs: map[string]*kept{}}
	}
	return m.indexes[name]
}

// fenced makes a fence for documents. It runs under mu.
func (m *model) fenced(index string, ids []string) uint64 {
	h := m.indexes[index]
	if h.fences == nil {
		h.fences = map[string]uint64{}
	}
	m.fence++
	for _, id := range ids {
		h.fences[id] = m.fence
	}
	return m.fence
}

// typed takes a document apart and adds its fields.
func (h *held) typed(body []byte) (key, source string, prob *api.Problem) {
	doc, found, derr := jsondoc.NewParser(h.schema, jsondoc.Limits{}).Parse(body)
	if derr != nil {
		return "", "", api.DocProblem(derr)
	}
	sch, err := jsondoc.Merge(h.schema, found)
	if err != nil {
		return "", "", api.SchemaProblem(err)
	}
	h.schema = sch
	return doc.Key, string(doc.Source), nil
}

func (h *held) info(name string) api.IndexInfo {
	return api.IndexInfo{Name: name, Docs: uint64(len(h.docs)), Schema: h.schema.SDL(), Dynamic: h.schema.Dynamic, State: "open"}
}

var places sync.Map // spec → placement

func placed(s placement.Spec) *placement.Placement {
	p, ok := places.Load(s)
	if !ok {
		made, err := placement.New(s)
		if err != nil {
			panic(err)
		}
		p, _ = places.LoadOrStore(s, made)
	}
	return p.(*placement.Placement)
}

func shardOf(s placement.Spec, id string) int { return placed(s).Shard(id) }

// connection is how one coordinator reaches a model: it ends with the coordinator.
type connection struct {
	leaf.Member // the calls that are not made panic
	m           *model
	dead        func() bool
}

func (c *connection) Close() error { return nil }

// through makes a call, unless the coordinator is dead.
func through[R any](ctx context.Context, c *connection, call string, epoch uint64, writes bool, fn func(m *model) (*R, error)) (*R, error) {
	if c.dead != nil && c.dead() {
		return nil, &leaf.TransportError{Address: c.m.addr, Call: call, MaybeApplied: writes, Cause: errors.New("the coordinator is dead")}
	}
	return do(ctx, c.m, call, epoch, writes, func() (*R, error) { return fn(c.m) })
}

func (c *connection) Ping(ctx context.Context) (*leaf.PingReply, error) {
	return through(ctx, c, "Ping", 0, false, func(m *model) (*leaf.PingReply, error) { return &leaf.PingReply{}, nil })
}

func (c *connection) Place(ctx context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	return through(ctx, c, "Place", 0, false, func(m *model) (*leaf.PlaceReply, error) {
		if req.Epoch < m.epoch || req.Epoch == m.epoch && !bytes.Equal(m.placed, req.Map) {
			return nil, api.NewProblem(api.StaleMap, "it has another map")
		}
		m.epoch, m.placed = req.Epoch, bytes.Clone(req.Map)
		return m.reply(), nil
	})
}

func (c *connection) Placed(ctx context.Context) (*leaf.PlaceReply, error) {
	return through(ctx, c, "Placed", 0, false, func(m *model) (*leaf.PlaceReply, error) {
		return m.reply(), nil
	})
}

func (c *connection) Indexes(ctx context.Context, _ *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return through(ctx, c, "Indexes", 0, false, func(m *model) (*leaf.IndexesReply, error) {
		reply := &leaf.IndexesReply{}
		for _, name := range slices.Sorted(maps.Keys(m.indexes)) {
			reply.Indexes = append(reply.Indexes, m.indexes[name].info(name))
		}
		return reply, nil
	})
}

func (c *connection) Info(ctx context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return through(ctx, c, "Info", 0, false, func(m *model) (*leaf.InfoReply, error) {
		h := m.indexes[req.Index]
		if h == nil {
			return nil, noIndex(req.Index)
		}
		return &leaf.InfoReply{Index: h.info(req.Index)}, nil
	})
}

func (c *connection) PutIndex(ctx context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return through(ctx, c, "PutIndex", req.Epoch, true, func(m *model) (*leaf.PutIndexReply, error) {
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
			next, err := h.schema.AddFields(sch.Fields)
			if err != nil {
				return nil, api.SchemaProblem(err)
			}
			h.schema = next
		}
		return &leaf.PutIndexReply{Info: h.info(req.Index)}, nil
	})
}

func (c *connection) DropIndex(ctx context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return through(ctx, c, "DropIndex", req.Epoch, true, func(m *model) (*leaf.DropIndexReply, error) {
		if m.indexes[req.Index] == nil {
			return nil, noIndex(req.Index)
		}
		delete(m.indexes, req.Index)
		return &leaf.DropIndexReply{}, nil
	})
}

func (c *connection) Index(ctx context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return through(ctx, c, "Index", req.Epoch, true, func(m *model) (*leaf.IndexReply, error) {
		h := m.made(req.Index)
		key, source, prob := h.typed(req.Body)
		if prob != nil {
			return nil, prob
		}
		h.set(key, source)
		return &leaf.IndexReply{WriteReply: api.WriteReply{OK: true, ID: key, Members: api.Members{OK: 1, Total: 1}}}, nil
	})
}

func (c *connection) DeleteMany(ctx context.Context, req *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return through(ctx, c, "DeleteMany", req.Epoch, true, func(m *model) (*leaf.DeleteReply, error) {
		h := m.indexes[req.Index]
		if h == nil {
			return nil, noIndex(req.Index)
		}
		reply := &leaf.DeleteReply{}
		for _, id := range req.IDs {
			if _, ok := h.docs[id]; ok {
				h.drop(id)
				reply.Deleted++
			}
		}
		return reply, nil
	})
}

// reading is read for a call of an index.
func reading[R any](ctx context.Context, c *connection, call, index string, v leaf.View, fn func(w *window) (*R, error)) (*R, error) {
	return through(ctx, c, call, v.Epoch, false, func(m *model) (*R, error) {
		h := m.indexes[index]
		if h == nil {
			return nil, noIndex(index)
		}
		w := &window{held: h, shares: v.Owned}
		for _, s := range v.Owned {
			w.rules = append(w.rules, placed(s.Spec))
		}
		return fn(w)
	})
}

func (c *connection) Docs(ctx context.Context, req *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return reading(ctx, c, "Docs", req.Index, req.View, func(w *window) (*leaf.DocsReply, error) {
		return &leaf.DocsReply{Docs: uint64(len(w.all()))}, nil
	})
}

func (c *connection) IDs(ctx context.Context, req *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	var ids []string
	reply, err := reading(ctx, c, "IDs", req.Index, req.View, func(w *window) (*leaf.IDsReply, error) {
		for _, d := range w.all() {
			ids = append(ids, d.id)
		}
		return &leaf.IDsReply{}, nil
	})
	if err != nil {
		return nil, err
	}
	at, exact := slices.BinarySearch(ids, req.After)
	if exact {
		at++
	}
	for part := range slices.Chunk(ids[at:], 7) {
		if err := page(part); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

func (c *connection) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return reading(ctx, c, "Sums", req.Index, req.View, func(w *window) (*leaf.SumsReply, error) {
		reply := &leaf.SumsReply{}
		if req.Range == nil {
			reply.Sums = make([]leaf.Sum, len(req.IDs))
			if req.Fence {
				reply.Fence = c.m.fenced(req.Index, req.IDs)
			}
			for i, id := range req.IDs {
				if d := w.get(id); d != nil {
					reply.Sums[i] = d.sum
				}
			}
			return reply, nil
		}
		all := w.all()
		reply.IDs, reply.Sums = make([]string, 0, len(all)), make([]leaf.Sum, 0, len(all))
		for _, d := range all {
			if d.hash < req.Range.From || d.hash > req.Range.To || d.id <= req.After {
				continue
			}
			if len(reply.IDs) == req.Limit {
				reply.Next = reply.IDs[req.Limit-1]
				break
			}
			reply.IDs, reply.Sums = append(reply.IDs, d.id), append(reply.Sums, d.sum)
		}
		return reply, nil
	})
}

func (c *connection) Digest(ctx context.Context, req *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return reading(ctx, c, "Digest", req.Index, req.View, func(w *window) (*leaf.DigestReply, error) {
		n := 1 << req.Depth
		c.m.deepest = max(c.m.deepest, req.Depth)
		reply := &leaf.DigestReply{Docs: make([]uint32, n), Sums: make([]leaf.Sum, n)}
		for _, d := range w.docs {
			if !w.owns(d) {
				continue
			}
			at := d.hash >> (32 - req.Depth)
			sum := xxh3.Hash128(append([]byte(d.id+"\x00"), d.sum[:]...))
			s := &reply.Sums[at]
			lo, carry := bits.Add64(binary.BigEndian.Uint64(s[8:]), sum.Lo, 0)
			hi, _ := bits.Add64(binary.BigEndian.Uint64(s[:8]), sum.Hi, carry)
			binary.BigEndian.PutUint64(s[:8], hi)
			binary.BigEndian.PutUint64(s[8:], lo)
			reply.Docs[at]++
		}
		return reply, nil
	})
}

func (c *connection) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	var list []leaf.ExportedDoc
	reply, err := reading(ctx, c, "Export", req.Index, req.View, func(w *window) (*leaf.ExportReply, error) {
		reply := &leaf.ExportReply{}
		for _, id := range req.IDs {
			if d := w.get(id); d != nil {
				list = append(list, leaf.ExportedDoc{ID: id, Source: []byte(d.source)})
			} else {
				reply.Missing = append(reply.Missing, id)
			}
		}
		return reply, nil
	})
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		if err := each(d); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

func (c *connection) Sync(ctx context.Context, req *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return through(ctx, c, "Sync", req.Epoch, true, func(m *model) (*leaf.SyncReply, error) {
		h := m.indexes[req.Index]
		if h == nil {
			return nil, noIndex(req.Index)
		}
		n := len(req.Items)
		if m.longest > 0 && slices.ContainsFunc(req.Items, func(it leaf.SyncItem) bool { return len(it.Body) > m.longest }) {
			return nil, api.NewProblem(api.BodyTooLarge, "it is too long")
		}
		reply := &leaf.SyncReply{Applied: make([]bool, n), Sums: make([]leaf.Sum, n)}
		for i, it := range req.Items {
			var have leaf.Sum
			if d := h.docs[it.ID]; d != nil {
				have = d.sum
			}
			reply.Sums[i] = have
			switch {
			case have != it.Expect, req.Fence != 0 && h.fences[it.ID] > req.Fence:
			case it.Body == nil:
				h.drop(it.ID)
				reply.Applied[i], reply.Sums[i] = true, leaf.Sum{}
			default:
				key, source, prob := h.typed(it.Body)
				if prob == nil && (key != it.ID || m.refuse[key]) {
					prob = api.NewProblem(api.InvalidDocument, "it does not take the document")
				}
				if prob != nil {
					if reply.Problems == nil {
						reply.Problems = make([]*api.Problem, n)
					}
					reply.Problems[i] = prob
					continue
				}
				h.set(key, source)
				reply.Applied[i], reply.Sums[i] = true, h.docs[key].sum
			}
		}
		return reply, nil
	})
}

// fleet is the models of a cluster, and what coordinators share.
type fleet struct {
	t     testing.TB
	store store.Store
	now   func() *shardmap.Map // nil: the map is in the store
	tune  *tuning              // of coordinators; nil: the default
	every time.Duration        // how often coordinators look at the map; 0: each second

	mu     sync.Mutex
	models map[string]*model
	names  map[string]string // other names of members
}

func newFleet(t testing.TB) *fleet {
	f := &fleet{t: t, store: store.NewMemory(nil), models: map[string]*model{}}
	t.Cleanup(func() {
		for _, m := range f.all() {
			m.close()
		}
	})
	return f
}

func (f *fleet) at(addr string) *model {
	f.mu.Lock()
	defer f.mu.Unlock()
	addr = cmp.Or(f.names[addr], addr)
	if f.models[addr] == nil {
		f.models[addr] = newModel(addr)
	}
	return f.models[addr]
}

// all are the models in the order of their addresses.
func (f *fleet) all() []*model {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.models), func(a, b *model) int { return cmp.Compare(a.addr, b.addr) })
}

func addr(group, member int) string { return fmt.Sprintf("g%d-m%d", group, member) }

// groups are the members of groups of some sizes.
func groups(sizes ...int) []shardmap.Group {
	out := make([]shardmap.Group, len(sizes))
	for g, n := range sizes {
		for k := range n {
			out[g].Members = append(out[g].Members, addr(g, k))
		}
	}
	return out
}

// begin puts the first map into the store: documents are placed over the first groups.
func (f *fleet) begin(rule placement.Rule, placed int, sizes ...int) {
	f.t.Helper()
	m, err := shardmap.New(rule, 16, groups(sizes...))
	if err != nil {
		f.t.Fatal(err)
	}
	m.Placed = placed
	if _, err := shardmap.NewStoreSource(f.store).Swap(context.Background(), shardmap.Version{}, m); err != nil {
		f.t.Fatal(err)
	}
	for g, n := range sizes {
		for k := range n {
			f.at(addr(g, k))
		}
	}
}

// load places documents on the members of their owners.
func (f *fleet) load(index string, m placement.Spec, sizes []int, docs ...string) {
	f.t.Helper()
	for _, d := range docs {
		g := shardOf(m, idOf(d))
		for k := range sizes[g] {
			f.at(addr(g, k)).put(index, d)
		}
	}
}

func doc(id string, version int) string { return fmt.Sprintf(`{"id":%q,"v":%d}`, id, version) }

func idOf(d string) string {
	var id string
	if _, err := fmt.Sscanf(d, `{"id":%q,`, &id); err != nil {
		panic(err)
	}
	return id
}

// current is the map in the store.
func (f *fleet) current() *shardmap.Map {
	f.t.Helper()
	if f.now != nil {
		return f.now()
	}
	m, _, err := shardmap.NewStoreSource(f.store).Load(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// errDead is what a store says to a coordinator that was killed.
var errDead = errors.New("the coordinator is dead")

// hookedStore is a store that tells before it is written to.
type hookedStore struct {
	store.Store
	before func(key string, content []byte)
}

func (s *hookedStore) Put(ctx context.Context, key string, r io.Reader, size int64, c store.Condition) (string, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	s.before(key, b)
	return s.Store.Put(ctx, key, bytes.NewReader(b), size, c)
}

// mortalStore is a store that ends with its coordinator.
type mortalStore struct {
	store.Store
	dead func() bool
}

func (s *mortalStore) Put(ctx context.Context, key string, r io.Reader, size int64, c store.Condition) (string, error) {
	if s.dead() {
		return "", errDead
	}
	return s.Store.Put(ctx, key, r, size, c)
}

func (s *mortalStore) Get(ctx context.Context, key string) (io.ReadCloser, store.Info, error) {
	if s.dead() {
		return nil, store.Info{}, errDead
	}
	return s.Store.Get(ctx, key)
}

// coordinator is a Runner with a cluster of its own.
type coordinator struct {
	*Runner
	cluster *members.Cluster
	mu      sync.Mutex
	dead    bool
}

func (c *coordinator) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// kill ends the coordinator as the end of its process does: nothing that it does afterwards has an effect.
func (c *coordinator) kill() {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
}

// coordinator starts a coordinator. o.Store nil: it has the store of the fleet.
func (f *fleet) coordinator(o Options) *coordinator {
	f.t.Helper()
	c := &coordinator{}
	s := &mortalStore{Store: f.store, dead: c.isDead}
	cl, err := members.Open(members.Options{
		Dial:   func(addr string) (leaf.Member, error) { return &connection{m: f.at(addr), dead: c.isDead}, nil },
		Source: shardmap.NewStoreSource(s), Every: cmp.Or(f.every, time.Second), Log: obs.Discard(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	c.cluster = cl
	if o.Store == nil && o.Dir == "" {
		o.Store = s
	}
	if c.Runner, err = New(cl, o); err != nil {
		f.t.Fatal(err)
	}
	if f.tune != nil {
		c.Runner.tune = *f.tune
	}
	if err := cl.Ready(context.Background()); err != nil {
		f.t.Fatal(err)
	}
	c.Start()
	return c
}

// ended waits until a job has ended, however long it waits for members.
func (c *coordinator) ended(t testing.TB, job string) (*record, error) {
	for {
		rec, err := c.await(t.Context(), job)
		if err != nil || rec.ended() {
			return rec, err
		}
	}
}

func (c *coordinator) shut(t testing.TB) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.cluster.Close(); err != nil {
		t.Error(err)
	}
}

// same complains of groups whose members differ from what they are to hold.
func (f *fleet) same(index string, want map[string]string) {
	f.t.Helper()
	m := f.current()
	if m.Move != nil {
		f.t.Errorf("the move is not at its end: %+v", *m.Move)
	}
	for g, group := range m.Groups {
		own := map[string]string{}
		for id, d := range want {
			if shardOf(m.Visible(), id) == g {
				own[id] = d
			}
		}
		if g >= m.Placed {
			clear(own)
		}
		for _, addr := range group.Members {
			have := f.at(addr).docs(index)
			if have == nil {
				have = map[string]string{}
			}
			for id, d := range own {
				if have[id] != d {
					f.t.Errorf("%s has %q for %s, want %s", addr, have[id], id, d)
				}
			}
			for id, d := range have {
				if _, ok := own[id]; !ok {
					f.t.Errorf("%s has %s, which belongs to group %d (wanted: %q)", addr, d, shardOf(m.Visible(), id), want[id])
				}
			}
		}
	}
}
