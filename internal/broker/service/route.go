package service

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/serve/replica"
)

// rpcs are the methods as metrics have them.
var rpcs = map[string]string{
	"Search": "search", "GetDocument": "get_document", "GetIndexInfo": "get_index_info", "GetTextStats": "get_text_stats",
	"CreateIndex": "create_index", "BatchIndexDocuments": "batch_index_documents", "DeleteDocuments": "delete_documents",
	"UpsertDocuments": "upsert_documents", "Commit": "commit", "ForceMerge": "force_merge", "Reorder": "reorder", "DeleteIndex": "delete_index",
	"ListIndexes": "list_indexes", "RetrainVectorIndex": "retrain_vector_index", "AlterVectorIndex": "alter_vector_index",
}

// route says who answers a call.
func (b *Broker) route(c *relay.Call) (relay.Target, error) {
	switch name := c.Method().Name; name {
	case "ListIndexes":
		return relay.Target{Serve: func(c *relay.Call) error {
			return c.Reply(&summapb.ListIndexesResponse{IndexNames: b.picture.Load().Indexes()})
		}}, nil
	case "Search":
		return b.search(c)
	case "GetDocument", "GetIndexInfo", "GetTextStats":
		return b.read(c)
	case "CreateIndex":
		return b.create(c)
	default:
		return b.write(c)
	}
}

// labelOf is the name of an index in metrics, which no client can choose (B6).
func (p *picture) labelOf(index string) string {
	if name, ok := p.Known(index); ok {
		return name
	}
	return obs.UnknownIndex
}

// passed is a call that goes to one node as it is.
type passed struct {
	b     *Broker
	k     *backend
	node  *route.Node
	rpc   string
	began time.Time
	then  func(o relay.Outcome, err error) // may be nil
}

// pass hands a call to a node as it is.
func (b *Broker) pass(p *picture, n *route.Node, method string, began time.Time, then func(o relay.Outcome, err error)) (relay.Target, error) {
	k := p.backends[n.Address]
	if k == nil || !k.enter() {
		return relay.Target{}, errGone
	}
	one := &passed{b, k, n, rpcs[method], began, then}
	return relay.Target{Node: k.node, Done: one.done}, nil
}

func (d *passed) done(o relay.Outcome, err error) {
	defer d.k.leave() // after it is counted: who leaves last lets the node go
	d.k.calls.Called(d.rpc, codeName(status.Error(o.Code, "")), time.Since(d.began))
	if o.Transport {
		d.b.fleet.Failed(d.node.ID)
	}
	if d.then != nil {
		d.then(o, err)
	}
}

// reads says how reads of partitioned indexes treat those that do not answer.
func (b *Broker) reads() partition.Reads {
	return partition.Reads{Partial: b.cfg.Partial, Straggler: b.cfg.Straggler}
}

// readRoute routes a read, and counts what is odd about it.
func (b *Broker) readRoute(p *picture, index string, partial bool) (r route.Route, err error) {
	turn := b.turn.Add(1) - 1
	if partial {
		r, err = p.ReadPartial(index, turn)
	} else {
		r, err = p.Read(index, turn)
	}
	if err != nil {
		return r, err
	}
	if r.Ambiguous {
		b.metrics.Ambiguous(p.labelOf(index))
	}
	if r.Stale {
		p.stale(r.Node)
	}
	for i := range r.Parts {
		if r.Parts[i].Stale {
			p.stale(r.Parts[i].Node)
		}
	}
	return r, nil
}

// stale counts a read of a suspect node.
func (p *picture) stale(n *route.Node) {
	if k := p.backends[n.Address]; k != nil {
		k.calls.Stale()
	}
}

// read routes GetDocument, GetIndexInfo and GetTextStats.
func (b *Broker) read(c *relay.Call) (relay.Target, error) {
	began, p, method := time.Now(), b.picture.Load(), c.Method().Name
	r, err := b.readRoute(p, c.Index(), b.cfg.Partial)
	if err != nil {
		return relay.Target{}, err
	}
	if !r.Partitioned {
		if set := b.among(p, c.Index(), &r); set != nil {
			return relay.Target{Serve: b.readAmong(set, p, r.Node, method)}, nil
		}
		return b.pass(p, r.Node, method, began, nil)
	}
	return relay.Target{Serve: func(c *relay.Call) error {
		g := b.gather(c, p, c.Index(), &r)
		defer g.end()
		req, err := c.Plain()
		if err != nil {
			return err
		}
		var a partition.Answer
		switch method {
		case "GetDocument":
			a, err = partition.GetDocument(c.Context(), g.ix, g, b.reads(), req)
		case "GetIndexInfo":
			a.Reply, err = partition.GetIndexInfo(c.Context(), g.ix, g, b.reads(), req)
		default:
			a, err = partition.GetTextStats(c.Context(), g.ix, g, b.reads(), req)
		}
		if err != nil {
			return err
		}
		b.leftOut(p, g.ix, rpcs[method], a.LeftOut)
		return c.Reply(bytesOf(a.Reply))
	}}, nil
}

// among is the set of copies that a read of an index on one shard chooses from; nil: it goes to the one that it was routed to.
func (b *Broker) among(p *picture, index string, r *route.Route) *replica.Set[*asking, *relay.Begun] {
	if b.copies == nil {
		return nil
	}
	return b.copies.of(p, index, r.Shard)
}

// leftOut counts the partitions that a read was answered without.
func (b *Broker) leftOut(p *picture, ix *partition.Index, rpc string, parts []int) {
	for _, i := range parts {
		b.metrics.Partial(p.labelOf(ix.Name), rpc, ix.Shards[i])
	}
}

// permits takes a place in all and one at each node; what is full refuses at once ("Routing": search order).
func (b *Broker) permits(label string, at []*backend) (release func(), err error) {
	var held [4]*admit.Place
	places := held[:0]
	release = func() {
		for _, p := range places {
			p.Release()
		}
	}
	if b.global != nil {
		place, err := b.global.TryEnter(1)
		if err != nil {
			b.metrics.Rejected(label, "global")
			return nil, errSearch
		}
		places = append(places, place)
	}
	for _, k := range at {
		place, err := k.searches.TryEnter(1)
		if err != nil {
			release()
			b.metrics.Rejected(label, "backend")
			return nil, errSearch
		}
		places = append(places, place)
	}
	return release, nil
}

// search routes a search.
func (b *Broker) search(c *relay.Call) (t relay.Target, err error) {
	began, p := time.Now(), b.picture.Load()
	label := p.labelOf(c.Index())
	defer func() {
		if err != nil {
			b.metrics.Searched(label, codeName(err), time.Since(began))
		}
	}()
	r, err := b.readRoute(p, c.Index(), b.cfg.Partial)
	if err != nil {
		return t, err
	}
	set := b.among(p, c.Index(), &r)
	var shape *partition.Shape
	if set != nil {
		if shape, err = shapeOf(c); err != nil {
			return t, err
		}
		if shape.Coordinated() || shape.Method() != "" {
			set = nil // what is looked at comes from one copy, and whole
		}
	}
	var at []*backend
	if !r.Partitioned && set == nil {
		k := p.backends[r.Node.Address]
		if k == nil {
			return t, errGone
		}
		at = append(at, k)
	}
	for i := range r.Parts {
		if n := r.Parts[i].Node; n != nil {
			k := p.backends[n.Address]
			if k == nil {
				return t, errGone
			}
			at = append(at, k)
		}
	}
	release, err := b.permits(label, at)
	if err != nil {
		return t, err
	}
	ended := func(err error) {
		release()
		b.metrics.Searched(label, codeName(err), time.Since(began))
	}
	if shape == nil {
		if shape, err = shapeOf(c); err != nil {
			release()
			return t, err
		}
	}
	switch {
	case shape.Coordinated():
		return relay.Target{Serve: b.coordinated(p, r, shape, began), Done: func(_ relay.Outcome, err error) { ended(err) }}, nil
	case r.Partitioned:
		return relay.Target{
			Serve: func(c *relay.Call) error {
				g := b.gather(c, p, c.Index(), &r)
				defer g.end()
				a, err := partition.Search(c.Context(), g.ix, g, b.reads(), shape)
				if err != nil {
					return err
				}
				b.leftOut(p, g.ix, "search", a.LeftOut)
				return c.Reply(bytesOf(a.Reply))
			},
			Done: func(_ relay.Outcome, err error) { ended(err) },
		}, nil
	case shape.Method() != "":
		// The node has to answer by the method that was asked for: its reply is looked at.
		return relay.Target{
			Serve: func(c *relay.Call) error {
				r := route.Route{Parts: []route.Target{r.Target}}
				g := b.gather(c, p, c.Index(), &r)
				defer g.end()
				req, err := c.Plain()
				if err != nil {
					return err
				}
				reply, whole, err := g.ask(c.Context(), 0, c.Method().Path, req)
				if whole != nil {
					c.Beside(whole.Head.Meta, whole.End.Meta)
				}
				if err != nil {
					return err
				}
				if err := shape.CheckMethod(reply); err != nil {
					g.blame(0, err)
					return err
				}
				return c.Reply(bytesOf(reply))
			},
			Done: func(_ relay.Outcome, err error) { ended(err) },
		}, nil
	}
	if set != nil {
		return relay.Target{Serve: b.readAmong(set, p, r.Node, "Search"), Done: func(_ relay.Outcome, err error) { ended(err) }}, nil
	}
	t, err = b.pass(p, r.Node, "Search", began, func(_ relay.Outcome, err error) { ended(err) })
	if err != nil {
		release()
	}
	return t, err
}

// shapeOf reads what the broker has to know of a search.
func shapeOf(c *relay.Call) (*partition.Shape, error) {
	req, err := c.Plain()
	if err != nil {
		return nil, err
	}
	return partition.ShapeOf(req)
}

// write routes what changes an index.
func (b *Broker) write(c *relay.Call) (t relay.Target, err error) {
	began, p, method := time.Now(), b.picture.Load(), c.Method().Name
	index := c.Index()
	defer func() {
		if err != nil {
			b.metrics.WriteRejected(p.labelOf(index), codeName(err))
		}
	}()
	if err := checkBounds(c, method); err != nil {
		return t, err
	}
	r, err := p.Write(index)
	if err != nil {
		return t, err
	}
	var learn func(err error)
	if method == "DeleteIndex" {
		learn = func(error) { b.learn(c.Context(), &r) }
	}
	if !r.Partitioned {
		return b.pass(p, r.Node, method, began, func(o relay.Outcome, err error) {
			if learn != nil && o.Code == codes.OK {
				learn(err)
			}
		})
	}
	return relay.Target{Serve: func(c *relay.Call) error {
		g := b.gather(c, p, index, &r)
		defer g.end()
		req, err := c.Plain()
		if err != nil {
			return err
		}
		var reply []byte
		switch method {
		case "BatchIndexDocuments":
			reply, err = partition.BatchIndexDocuments(c.Context(), g.ix, g, &b.primaries, req)
		case "UpsertDocuments":
			reply, err = partition.UpsertDocuments(c.Context(), g.ix, g, &b.primaries, req)
		case "DeleteDocuments":
			reply, err = partition.DeleteDocuments(c.Context(), g.ix, g, req)
		default:
			reply, err = partition.ToMasters(c.Context(), g.ix, g, c.Method().Path, req)
		}
		if learn != nil {
			b.primaries.Forget(index)
			learn(err)
		}
		if err != nil {
			return err
		}
		return c.Reply(bytesOf(reply))
	}}, nil
}

// checkBounds refuses deletions and upserts that are too large before they are routed ("Writes").
func checkBounds(c *relay.Call, method string) error {
	var check func(req []byte) error
	switch method {
	case "DeleteDocuments":
		check = partition.CheckDelete
	case "UpsertDocuments":
		check = partition.CheckUpsert
	default:
		return nil
	}
	req, err := c.Plain()
	if err != nil {
		return err
	}
	return check(req)
}

// create routes the creation of an index.
func (b *Broker) create(c *relay.Call) (t relay.Target, err error) {
	began, p, index := time.Now(), b.picture.Load(), c.Index()
	to, err := p.Create(index)
	if err != nil {
		b.metrics.WriteRejected(p.labelOf(index), codeName(err))
		return t, err
	}
	r := route.Route{Parts: to}
	created := func() {
		b.cfg.Log.Info("index created", "index", index, "shards", len(to))
		b.learn(c.Context(), &r)
	}
	if len(to) == 1 {
		return b.pass(p, to[0].Node, "CreateIndex", began, func(o relay.Outcome, _ error) {
			if o.Code == codes.OK {
				created()
			}
		})
	}
	return relay.Target{Serve: func(c *relay.Call) error {
		g := b.gather(c, p, index, &r)
		defer g.end()
		req, err := c.Plain()
		if err != nil {
			return err
		}
		reply, err := partition.CreateIndex(c.Context(), g.ix, g, req)
		b.primaries.Forget(index)
		if err != nil {
			b.learn(c.Context(), &r)
			return err
		}
		created()
		return c.Reply(bytesOf(reply))
	}}, nil
}

// learn has the nodes that were asked tell of their indexes again, so that whoever made or deleted one finds it so.
func (b *Broker) learn(ctx context.Context, r *route.Route) {
	var ids []string
	if r.Node != nil {
		ids = append(ids, r.Node.ID)
	}
	for i := range r.Parts {
		if n := r.Parts[i].Node; n != nil {
			ids = append(ids, n.ID)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ListTimeout)
	defer cancel()
	b.fleet.Learn(ctx, ids...)
}
