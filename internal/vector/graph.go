package vector

import (
	"context"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/vector/graph"
	"github.com/weft-search/weft/internal/vector/topk"
)

// graphPart is the graph of a section. A node stands for all vectors of one code.
type graphPart struct {
	g       *graph.Graph
	c       codes
	centre  []float32 // of dense vectors
	fine    bool      // see codes
	starts  []uint32  // by node, and once more: where its vectors begin in members; nil if each node is the vector of its number
	members []uint32
	nodeOf  []uint32 // by vector, its node; nil where starts is
	edges   uint64   // links in the base
	degree  float64  // of a node, on average
}

// maxWorkers bounds the goroutines that build one graph.
const maxWorkers = 8

// buildGraph makes the graph of a source whose records are in memory or mapped.
//
// Memory while it is built: for each vector its code (Dim + 8 bytes; 2·Dim + 8 if codes are fine), 8 bytes, 8 more for dot
// products and 16 more where codes are equal, and for each node what package graph says: about 430 bytes with 128 dimensions
// and the default M. Besides, some 128 MiB at most for the samples that centre and codes are chosen by.
func buildGraph(ctx context.Context, p Params, src Source) (*graphPart, error) {
	n := src.Len()
	part := &graphPart{}
	var data []byte
	var lengths, norms []float32 // squared, of vectors and codes, where dot products need them
	var longest float32
	if p.Kind == Dense {
		v := make([]float32, p.Dim)
		part.centre = centreOf(p, src, v)
		part.fine = needsFine(p, src, part.centre)
		data = make([]byte, 0, n*p.codeSize(part.fine))
		if p.dots() {
			lengths, norms = make([]float32, n), make([]float32, n)
		}
		for i := range n {
			if i%1024 == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			var length, norm float32
			data, length, norm = appendCode(p, part.fine, data, src.Record(i), part.centre, v)
			if lengths != nil {
				lengths[i], norms[i] = length, norm
				longest = max(longest, length)
			}
		}
	} else {
		for i := range n {
			data = append(data, src.Record(i)...)
		}
	}
	size := p.codeSize(part.fine)
	if first := groups(data, size); first != nil {
		data = part.merge(first, data, size)
		if lengths != nil {
			for k := range len(part.starts) - 1 {
				ord := part.members[part.starts[k]]
				lengths[k], norms[k] = lengths[ord], norms[ord]
			}
		}
	}
	for i, l := range lengths {
		lengths[i] = sqrt32(max(longest-l, 0))
	}
	part.c = newCodes(p, part.fine, data)
	part.c.extra, part.c.norms = lengths, norms
	workers := min(max(runtime.GOMAXPROCS(0)/2, 1), maxWorkers)
	g, err := graph.Build(ctx, &part.c, p.M, p.EfConstruction, workers)
	part.g = g
	return part, err
}

// merge makes one node of the vectors with the same first one: it sets starts and members and returns the codes of the nodes.
func (part *graphPart) merge(first []uint32, data []byte, size int) []byte {
	nodes := 0
	number := make([]uint32, len(first)) // of the node of a first vector
	for i, f := range first {
		if int(f) == i {
			number[i] = uint32(nodes)
			copy(data[nodes*size:], data[i*size:(i+1)*size])
			nodes++
		}
	}
	part.starts = make([]uint32, nodes+1)
	for _, f := range first {
		part.starts[number[f]+1]++
	}
	for i := range nodes {
		part.starts[i+1] += part.starts[i]
	}
	part.members = make([]uint32, len(first))
	part.nodeOf = make([]uint32, len(first))
	next := slices.Clone(part.starts)
	for i, f := range first {
		at := &next[number[f]]
		part.members[*at] = uint32(i)
		part.nodeOf[i] = number[f]
		*at++
	}
	return data[:nodes*size]
}

// vectors returns the vectors of a node as a list, or as one vector.
func (part *graphPart) vectors(node uint32) (list []uint32, one uint32) {
	if part.starts == nil {
		return nil, node
	}
	from, to := part.starts[node], part.starts[node+1]
	if from >= to || int(to) > len(part.members) {
		return nil, math.MaxUint32 // damage
	}
	return part.members[from:to], 0
}

// docFilter accepts the nodes that have a vector of a document in a set.
type docFilter struct {
	x      *Index
	accept []uint64
}

// Accepts implements graph.Filter.
func (f *docFilter) Accepts(node uint32) bool {
	list, one := f.x.g.vectors(node)
	if list == nil {
		return f.vector(one)
	}
	for _, ord := range list {
		if f.vector(ord) {
			return true
		}
	}
	return false
}

func (f *docFilter) vector(ord uint32) bool {
	if f.x.docs != nil {
		if int(ord) >= len(f.x.docs) {
			return false
		}
		ord = f.x.docs[ord]
	}
	return has(f.accept, ord)
}

func has(set []uint64, i uint32) bool {
	return int(i>>6) < len(set) && set[i>>6]>>(i&63)&1 != 0
}

// search is the memory of one search.
type search struct {
	graph.Searcher
	t      codeTarget
	f      docFilter
	vec    floats
	scores scores
	seeds  []uint32
	docs   []uint32
}

var searchPool = sync.Pool{New: func() any { return new(search) }}

// Shares of the search plan.
const (
	minEf = 100
	// scanShare: a graph search compares so many codes for each candidate that a scan of all vectors is no slower once
	// there are less than this many vectors for a candidate.
	scanShare = 8
	// listCost is what looking through a list of neighbours for accepted ones costs, in vectors scored by a scan.
	listCost = 5
	// patience is the number of candidates above K, in the order of their codes' distances, that have to be scored without
	// one of them being among the best before the rest is dropped.
	patience = 16
	// seedCount is the number of accepted vectors that a masked search begins from.
	seedCount = 48
)

// DefaultEf is the number of candidates of a graph search for the k nearest whose Options set none.
func DefaultEf(k int) int { return max(minEf, 2*k) }

// ef is the number of candidates for a search: for vectors, of which a document may have several.
func (x *Index) ef(o Options) int {
	ef := o.Ef
	if ef <= 0 {
		ef = DefaultEf(o.K)
	}
	ef = max(ef, o.K)
	if docs := x.Docs(); docs > 0 && x.n > docs {
		ef *= min((x.n+docs-1)/docs, 8)
	}
	return ef
}

// Costs are what the ways of a search are expected to take, in comparisons of a scan. Those of a graph that would be no graph
// search in the end are infinite.
type Costs struct{ Scan, Masked, Unmasked float64 }

// Costs estimates a search for which so many documents are accepted, taking them as independent of the query.
func (x *Index) Costs(o Options, accepted int) Costs {
	docs := max(x.Docs(), 1)
	c := Costs{Scan: float64(accepted) * float64(x.n) / float64(docs), Masked: math.Inf(1), Unmasked: math.Inf(1)}
	ef := x.ef(o)
	if x.g == nil || ef*scanShare >= x.n || accepted <= 4*ef {
		return c
	}
	// A node needs M accepted ones; the lists it takes to find them have share·degree each.
	c.Masked = listCost * float64(ef) * (1 + float64(x.g.g.M*int(x.numDocs))/(float64(accepted)*x.g.degree+1))
	if wide := x.wide(o, ef, accepted); wide*scanShare < x.n {
		c.Unmasked = listCost * float64(wide)
	}
	return c
}

// wide is the number of candidates among which enough are accepted: twice K are expected, since the last are the least certain.
func (x *Index) wide(o Options, ef, accepted int) int {
	return max(ef, int(2*float64(o.K)*float64(x.numDocs)/float64(max(accepted, 1))))
}

// Masked searches the graph among the documents of o.Accept and appends the best to dst, as Exact does. Its scores are exact.
// Where so few are accepted that a scan of them costs no more, or that the graph would fall apart, it is Exact; so it is
// without a graph.
func (x *Index) Masked(q *Query, o Options, dst []Hit) ([]Hit, Work, error) {
	if o.Accept == nil {
		return x.Unmasked(q, o, dst)
	}
	if x.g == nil || o.K <= 0 {
		return x.Exact(q, o, dst)
	}
	part, ef := x.g, x.ef(o)
	accepted := x.accepted(o.Accept)
	if c := x.Costs(o, accepted); !x.always && c.Scan <= c.Masked {
		return x.Exact(q, o, dst)
	}
	s := searchPool.Get().(*search)
	defer searchPool.Put(s)
	var w Work
	s.t.aim(&part.c, part.centre, q, &s.vec)
	s.f = docFilter{x, o.Accept}
	s.seed(x, o.Accept, accepted)
	s.Visited, s.Distances = 0, 0
	err := part.g.SearchMasked(&s.Searcher, &s.t, min(ef, part.g.N), &s.f, s.seeds, o.Check)
	w.Visited, w.Distances = s.Visited, s.Distances
	if err != nil {
		return dst, w, err
	}
	s.collect(x, o.Accept)
	if len(s.docs) < min(o.K, accepted) {
		out, more, err := x.Exact(q, o, dst)
		w.Add(more)
		return out, w, err
	}
	return s.rescore(x, q, o, dst, w)
}

// Unmasked searches the graph as if every document could be returned and drops those that o.Accept lacks at the end, widening
// the search until K are found. Its scores are exact. Where the search would become so wide that a scan costs no more, it is
// Exact; so it is without a graph.
func (x *Index) Unmasked(q *Query, o Options, dst []Hit) ([]Hit, Work, error) {
	if x.g == nil || o.K <= 0 {
		return x.Exact(q, o, dst)
	}
	part, ef := x.g, x.ef(o)
	want, accepted := min(o.K, x.Docs()), x.Docs()
	if o.Accept != nil {
		accepted = x.accepted(o.Accept)
		want = min(want, accepted)
		if accepted == 0 {
			return dst, Work{}, nil
		}
		ef = x.wide(o, ef, accepted)
	}
	var w Work
	s := searchPool.Get().(*search)
	defer searchPool.Put(s)
	s.t.aim(&part.c, part.centre, q, &s.vec)
	for ; ; ef *= 4 {
		if ef >= part.g.N || !x.always && (ef*scanShare >= x.n || o.Accept != nil && accepted <= 4*ef) {
			out, more, err := x.Exact(q, o, dst)
			w.Add(more)
			return out, w, err
		}
		s.Visited, s.Distances = 0, 0
		err := part.g.Search(&s.Searcher, &s.t, ef, o.Check)
		w.Visited += s.Visited
		w.Distances += s.Distances
		if err != nil {
			return dst, w, err
		}
		s.collect(x, o.Accept)
		if len(s.docs) >= want {
			return s.rescore(x, q, o, dst, w)
		}
	}
}

// accepted is the number of documents in a set.
func (x *Index) accepted(set []uint64) int {
	n := 0
	for i, word := range set[:min(len(set), (int(x.numDocs)+63)/64)] {
		if past := (i+1)*64 - int(x.numDocs); past > 0 {
			word &= ^uint64(0) >> past
		}
		n += bits.OnesCount64(word)
	}
	return n
}

// seed picks nodes of accepted documents, spread over them.
func (s *search) seed(x *Index, accept []uint64, accepted int) {
	s.seeds = s.seeds[:0]
	step := max(accepted/seedCount, 1)
	skip := step / 2
	for i, word := range accept[:min(len(accept), (int(x.numDocs)+63)/64)] {
		if n := bits.OnesCount64(word); skip >= n {
			skip -= n
			continue
		}
		for ; word != 0; word &= word - 1 {
			if skip > 0 {
				skip--
				continue
			}
			if from, to := x.Range(uint32(i*64 + bits.TrailingZeros64(word))); from < to {
				id := uint32(from)
				if x.g.nodeOf != nil {
					id = x.g.nodeOf[from]
				}
				s.seeds = append(s.seeds, id)
				skip = step - 1
			}
		}
	}
}

// collect sets s.docs to the accepted documents of the nodes found, each once.
func (s *search) collect(x *Index, accept []uint64) {
	s.docs = s.docs[:0]
	several := x.most != 1
	add := func(ord uint32) {
		if int(ord) >= x.n {
			return
		}
		if x.docs != nil {
			ord = x.docs[ord]
		}
		if accept == nil || has(accept, ord) {
			s.docs = append(s.docs, ord)
		}
	}
	for i := range s.Len() {
		list, one := x.g.vectors(s.At(i))
		if list == nil {
			add(one)
		}
		for _, ord := range list {
			add(ord)
		}
	}
	if several {
		slices.Sort(s.docs)
		s.docs = slices.Compact(s.docs)
	}
}

// rescore scores the documents found exactly and appends the best to dst.
func (s *search) rescore(x *Index, q *Query, o Options, dst []Hit, w Work) ([]Hit, Work, error) {
	top := topk.Heap{Hits: dst[len(dst):], K: min(o.K, int(x.numDocs)), Before: o.Before}
	pending, quiet, patience := 0, 0, o.K+patience
	if x.most != 1 || x.g.starts != nil {
		// A combined score may be far from that of the best vector, and codes that are equal say nothing of an order.
		patience = len(s.docs)
	}
	for _, doc := range s.docs {
		from, to := x.Range(doc)
		if from == to {
			continue
		}
		if top.Push(Hit{Doc: doc, Score: x.combined(q, o.Combiner, from, to, &s.scores)}) {
			quiet = 0
		} else if quiet++; quiet > patience {
			break
		}
		w.Rescored += uint64(to - from)
		if pending += to - from; pending >= checkEvery && o.Check != nil {
			if err := o.Check(pending); err != nil {
				return dst, w, err
			}
			pending = 0
		}
	}
	return top.AppendTo(dst), w, nil
}
