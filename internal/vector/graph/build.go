package graph

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Points gives distances between nodes. It is called from several goroutines at once.
type Points interface {
	// Len is the number of nodes.
	Len() int
	// Between sets out[i] to the distance from node a to node ids[i]: smaller is nearer, the same either way.
	Between(a uint32, ids []uint32, out []float32)
}

// roundSize is the most nodes that are inserted at once.
const roundSize = 64

// layer is a level under construction.
type layer struct {
	degree int
	nodes  []uint32 // by slot; nil in the base, where nodes have their own numbers
	links  []uint32
	dist   []float32 // of each link
	count  []uint16  // links of each node
}

func newLayer(rows, degree int) layer {
	l := layer{degree: degree, links: make([]uint32, rows*degree), dist: make([]float32, rows*degree), count: make([]uint16, rows)}
	for i := range l.links {
		l.links[i] = None
	}
	return l
}

type builder struct {
	pts    Points
	efc    int
	g      *Graph
	order  []uint32
	sizes  []int
	layers []layer // from the base up
}

// Build makes a graph of all points with up to m neighbours each above the base and 2m in it, chosen among efc candidates.
// The graph depends on the distances alone, not on the number of workers. The error is that of the context, or of more than
// MaxNodes points.
//
// Memory, beyond the points: for each node 16m + 11 bytes in the base, a little above 8m/(m−1) for the levels above it, and
// 12 while the order is made or the end is checked; in all about 280 bytes for m = 16. Half of that is the graph itself.
func Build(ctx context.Context, pts Points, m, efc, workers int) (*Graph, error) {
	n := pts.Len()
	if n > MaxNodes {
		return nil, fmt.Errorf("a graph of %d nodes, at most %d", n, MaxNodes)
	}
	b := &builder{pts: pts, efc: efc, order: Order(n, n), sizes: Levels(n, m)}
	b.layers = append(b.layers, newLayer(n, 2*m))
	b.g = &Graph{N: n, M: m, Base: b.layers[0].links}
	if len(b.sizes) > 0 {
		b.g.Nodes = slices.Clone(b.order[:b.sizes[0]])
	}
	for _, size := range b.sizes {
		l := newLayer(size, m)
		l.nodes = b.g.Nodes
		b.layers = append(b.layers, l)
		b.g.Upper = append(b.g.Upper, l.links)
	}
	if err := b.insertAll(ctx, max(workers, 1)); err != nil {
		return nil, err
	}
	return b.g, b.connect(ctx)
}

// edge is a link from one node, or slot, of a layer to another.
type edge struct {
	from, to uint32
	dist     float32
}

// worker is the memory of one goroutine of a build.
type worker struct {
	s      Searcher
	cand   []edge
	ids    []uint32
	nodes  []uint32
	dist   []float32
	kept   []edge
	others []edge
	self   pointTarget
	err    error
}

// pointTarget makes a node the target of a search.
type pointTarget struct {
	pts Points
	a   uint32
}

// Distances implements Target.
func (t *pointTarget) Distances(ids []uint32, out []float32) { t.pts.Between(t.a, ids, out) }

// insertAll inserts every node, round by round.
func (b *builder) insertAll(ctx context.Context, workers int) error {
	team := make([]*worker, workers)
	for i := range team {
		team[i] = &worker{self: pointTarget{pts: b.pts}}
	}
	// chosen has the links of each node of the round, by level; its memory is used again.
	chosen := make([][][]edge, roundSize)
	for i := range chosen {
		chosen[i] = make([][]edge, len(b.layers))
	}
	all := func(fn func(w *worker, part int)) {
		if workers == 1 {
			fn(team[0], 0)
			return
		}
		var wg sync.WaitGroup
		for i, w := range team {
			wg.Go(func() { fn(w, i) })
		}
		wg.Wait()
	}
	for from := 0; from < len(b.order); {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		to := min(from+min(max(from/16, 1), roundSize), len(b.order))
		all(func(w *worker, part int) {
			for i := from + part; i < to; i += workers {
				if err := b.choose(w, from, i, chosen[i-from]); err != nil {
					w.err = err
				}
			}
		})
		for _, w := range team {
			if w.err != nil {
				return w.err
			}
		}
		// A node's list is changed by one worker only, in the order of the round.
		all(func(w *worker, part int) {
			for i := from; i < to; i++ {
				for l := range b.layers {
					for _, e := range chosen[i-from][l] {
						if int(e.from)%workers == part {
							b.layers[l].append(e)
						}
						if int(e.to)%workers == part {
							b.link(w, &b.layers[l], edge{e.to, e.from, e.dist})
						}
					}
				}
			}
		})
		from = to
	}
	return nil
}

// level is the highest level of the node at a place in the order.
func (b *builder) level(i int) int {
	l := 0
	for l < len(b.sizes) && i < b.sizes[l] {
		l++
	}
	return l
}

// choose finds the neighbours of the node at place i of the order, in all its levels, among the nodes before from and those
// of its own round.
func (b *builder) choose(w *worker, from, i int, chosen [][]edge) error {
	for l := range chosen {
		chosen[l] = chosen[l][:0]
	}
	w.self.a = b.order[i]
	s, t := &w.s, &w.self
	s.begin(b.g.N, nil)
	defer s.forget()
	level := b.level(i)
	for l := len(b.layers) - 1; l >= 0; l-- {
		layer := &b.layers[l]
		ef := buildWidth
		if l <= level {
			ef = b.efc
		}
		var err error
		if l == len(b.layers)-1 {
			err = s.scan(t, b.places(w, layer, 0, from), layer.nodes, ef)
		} else {
			if l == 0 {
				s.descend(b.g.Nodes)
			} else {
				s.descend(nil)
			}
			err = s.explore(t, layer.links, layer.degree, len(layer.count), layer.nodes, ef)
		}
		if err != nil {
			return err
		}
		if l <= level {
			chosen[l] = b.neighbours(w, layer, i, from, chosen[l])
		}
	}
	return nil
}

// places returns the numbers, in a layer, of the nodes of the order from a up to b.
func (b *builder) places(w *worker, l *layer, from, to int) []uint32 {
	w.ids = w.ids[:0]
	for i := from; i < min(to, len(l.count)); i++ {
		w.ids = append(w.ids, b.place(l, i))
	}
	return w.ids
}

// place is the number that the node at place i of the order has in a layer.
func (b *builder) place(l *layer, i int) uint32 {
	if l.nodes == nil {
		return b.order[i]
	}
	return uint32(i)
}

// neighbours chooses the links of a node from the beam and the nodes of its round before it.
func (b *builder) neighbours(w *worker, l *layer, i, from int, out []edge) []edge {
	self := b.place(l, i)
	w.cand = w.cand[:0]
	for _, key := range w.s.beam {
		w.cand = append(w.cand, edge{self, node(key), distance(key)})
	}
	if peers := b.places(w, l, from, i); len(peers) > 0 {
		for k, d := range b.between(w, l, self, peers) {
			w.cand = append(w.cand, edge{self, peers[k], d})
		}
		slices.SortFunc(w.cand, nearer)
		w.cand = w.cand[:min(len(w.cand), b.efc)]
	}
	return b.diverse(w, l, out)
}

// nearer orders candidates of one node.
func nearer(a, b edge) int {
	ka, kb := candidate(a.dist, a.to), candidate(b.dist, b.to)
	if ka < kb {
		return -1
	}
	if ka > kb {
		return 1
	}
	return 0
}

// between computes distances within a layer.
func (b *builder) between(w *worker, l *layer, a uint32, ids []uint32) []float32 {
	if l.nodes != nil {
		a = l.nodes[a]
		w.nodes = w.nodes[:0]
		for _, id := range ids {
			w.nodes = append(w.nodes, l.nodes[id])
		}
		ids = w.nodes
	}
	if cap(w.dist) < len(ids) {
		w.dist = make([]float32, 2*len(ids))
	}
	d := w.dist[:len(ids)]
	b.pts.Between(a, ids, d)
	return d
}

// diverse appends to out those of w.cand, sorted by distance, that are nearer to their node than to every one taken before,
// at most as many as a list of the layer holds. If they are few, the nearest of the others follow: where a few nodes lie
// between all others, these would be the only way. It uses up w.cand.
func (b *builder) diverse(w *worker, l *layer, out []edge) []edge {
	taken := 0
	w.others = w.others[:0]
	for rest := w.cand; len(rest) > 0; {
		c := rest[0]
		rest = rest[1:]
		out = append(out, c)
		if taken++; taken == l.degree || len(rest) == 0 {
			break
		}
		w.ids = w.ids[:0]
		for _, e := range rest {
			w.ids = append(w.ids, e.to)
		}
		n := 0
		for k, d := range b.between(w, l, c.to, w.ids) {
			if !(d < rest[k].dist) {
				rest[n] = rest[k]
				n++
			} else {
				w.others = append(w.others, rest[k])
			}
		}
		rest = rest[:n]
	}
	if few := b.g.M / 2; taken < few {
		slices.SortFunc(w.others, nearer)
		out = append(out, w.others[:min(few-taken, len(w.others))]...)
	}
	return out
}

// append adds a link to a list that has room.
func (l *layer) append(e edge) {
	at := int(e.from)*l.degree + int(l.count[e.from])
	l.links[at], l.dist[at] = e.to, e.dist
	l.count[e.from]++
}

// link adds a link, choosing anew among all if the list is full.
func (b *builder) link(w *worker, l *layer, e edge) {
	if int(l.count[e.from]) < l.degree {
		l.append(e)
		return
	}
	at := int(e.from) * l.degree
	w.cand = append(w.cand[:0], e)
	for k := at; k < at+l.degree; k++ {
		w.cand = append(w.cand, edge{e.from, l.links[k], l.dist[k]})
	}
	slices.SortFunc(w.cand, nearer)
	w.kept = b.diverse(w, l, w.kept[:0])
	for k := range l.degree {
		l.links[at+k] = None
	}
	l.count[e.from] = 0
	for _, k := range w.kept {
		l.append(k)
	}
}

// connect makes every node of the base reachable from that of slot 0, or from node 0 in a graph without levels above. A node
// that is not gets a link from one near it, in place of a link that no node needs to be reached if the list is full.
func (b *builder) connect(ctx context.Context) error {
	n := b.g.N
	if n == 0 {
		return nil
	}
	base, root := &b.layers[0], uint32(0)
	if len(b.g.Nodes) > 0 {
		root = b.g.Nodes[0]
	}
	parent := make([]uint32, n)
	for i := range parent {
		parent[i] = None
	}
	parent[root] = root
	queue := make([]uint32, 0, n)
	spread := func(from uint32) {
		queue = append(queue[:0], from)
		for len(queue) > 0 {
			u := queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			at := int(u) * base.degree
			for _, v := range base.links[at : at+int(base.count[u])] {
				if parent[v] == None {
					parent[v] = u
					queue = append(queue, v)
				}
			}
		}
	}
	spread(root)
	var s Searcher
	self := pointTarget{pts: b.pts}
	for u := range uint32(n) {
		if parent[u] != None {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		self.a = u
		// All that a search from the root finds is reachable.
		s.begin(n, nil)
		s.mark(root)
		err := s.scan(&self, []uint32{root}, nil, 1)
		if err == nil {
			err = s.explore(&self, base.links, base.degree, n, nil, b.efc)
		}
		s.forget()
		if err != nil {
			return err
		}
		p, at, ok := uint32(0), 0, false
		for i := 0; i < s.Len() && !ok; i++ {
			p = s.At(i)
			at, ok = b.spare(base, p, parent)
		}
		// With no data seen so far all the nearest lists were full of links that are needed. Some reachable node has none of
		// those, for they form a tree.
		for i := uint32(0); !ok; i++ {
			if p = i; parent[p] != None {
				at, ok = b.spare(base, p, parent)
			}
		}
		base.links[at] = u
		parent[u] = p
		spread(u)
	}
	return nil
}

// spare finds a place in the list of a node for one more link: a free one, or that of the farthest node that is reached
// another way.
func (b *builder) spare(l *layer, p uint32, parent []uint32) (at int, ok bool) {
	first := int(p) * l.degree
	if n := int(l.count[p]); n < l.degree {
		l.count[p]++
		return first + n, true
	}
	for k := first; k < first+l.degree; k++ {
		if parent[l.links[k]] != p && (!ok || l.dist[k] > l.dist[at]) {
			at, ok = k, true
		}
	}
	return at, ok
}
