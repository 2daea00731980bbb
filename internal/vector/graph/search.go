package graph

// Target gives distances from what is searched for to nodes.
type Target interface {
	// Distances sets out[i] to the distance to ids[i]; smaller is nearer, negative ones are allowed.
	Distances(ids []uint32, out []float32)
}

// Filter tells which nodes may be found.
type Filter interface{ Accepts(node uint32) bool }

// buildWidth is the number of candidates that a build keeps in the levels above those of a node. More than one, since
// clusters make the nearest node of a sparse level a bad guide.
const buildWidth = 4

// width is the number of candidates that a search for ef nodes keeps in the levels above the base: the more are looked for,
// the more clusters they lie in.
func width(ef int) int { return min(max(ef/16, buildWidth), 64) }

// What a masked search looks through for each node: so many lists of rejected nodes at most, and none beyond its own
// neighbours once it has so many accepted ones.
const (
	maxBridges = 256
	enough     = 8
)

// checkEvery is the number of distances between two calls of a search's check.
const checkEvery = 256

// Searcher is the memory of a search, to be used again.
type Searcher struct {
	n       int      // nodes of the graph
	seen    []uint64 // nodes, or slots, of the level that were looked at
	touched []uint32 // the members of seen
	beam    []uint64 // candidates, nearest first
	ids     []uint32
	mapped  []uint32
	bridges []uint32
	dist    []float32

	// Visited counts nodes whose neighbours were looked at, Distances the distances computed. A search adds to them.
	Visited, Distances uint64
	pending            int
	check              func(n int) error
}

func (s *Searcher) begin(n int, check func(n int) error) {
	if words := (n + 63) / 64; cap(s.seen) < words {
		s.seen = make([]uint64, words)
	} else {
		s.seen = s.seen[:words]
	}
	s.n, s.beam, s.pending, s.check = n, s.beam[:0], 0, check
}

// limit makes a number that a damaged graph gives for a node one.
func (s *Searcher) limit(id uint32) uint32 { return min(id, uint32(s.n)-1) }

// forget empties the set of nodes that were looked at.
func (s *Searcher) forget() {
	for _, id := range s.touched {
		s.seen[id>>6] = 0
	}
	s.touched = s.touched[:0]
}

func (s *Searcher) mark(id uint32) {
	s.seen[id>>6] |= 1 << (id & 63)
	s.touched = append(s.touched, id)
}

func (s *Searcher) has(id uint32) bool { return s.seen[id>>6]>>(id&63)&1 != 0 }

// insert puts a candidate in its place among at most ef and returns that place, or ef if it is too far.
func (s *Searcher) insert(key uint64, ef int) int {
	n := len(s.beam)
	if n >= ef {
		if key >= s.beam[n-1] {
			return ef
		}
		n--
	} else {
		s.beam = append(s.beam, 0)
	}
	b := s.beam
	lo, hi := 0, n
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); b[mid] < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	copy(b[lo+1:n+1], b[lo:n])
	b[lo] = key
	return lo
}

// measure computes the distances to s.ids, which are slots of nodes if that is not nil.
func (s *Searcher) measure(t Target, nodes []uint32) ([]float32, error) {
	ids := s.ids
	if nodes != nil {
		s.mapped = s.mapped[:0]
		for _, id := range ids {
			s.mapped = append(s.mapped, s.limit(nodes[id]))
		}
		ids = s.mapped
	}
	for cap(s.dist) < len(ids) {
		s.dist = append(s.dist[:cap(s.dist)], 0)
	}
	d := s.dist[:len(ids)]
	t.Distances(ids, d)
	s.Distances += uint64(len(ids))
	if s.check != nil {
		if s.pending += len(ids); s.pending >= checkEvery {
			n := s.pending
			s.pending = 0
			return d, s.check(n)
		}
	}
	return d, nil
}

// explore expands the candidates of the beam until the ef nearest that can be reached have been expanded. links has degree
// entries for each of n nodes, or slots of nodes.
func (s *Searcher) explore(t Target, links []uint32, degree, n int, nodes []uint32, ef int) error {
	for next := 0; next < len(s.beam); {
		key := s.beam[next]
		if key&expanded != 0 {
			next++
			continue
		}
		s.beam[next] |= expanded
		next++
		s.Visited++
		s.ids = s.ids[:0]
		at := int(node(key)) * degree
		for _, u := range links[at : at+degree] {
			if int(u) >= n {
				break // None; in a damaged graph anything
			}
			if !s.has(u) {
				s.mark(u)
				s.ids = append(s.ids, u)
			}
		}
		if len(s.ids) == 0 {
			continue
		}
		dist, err := s.measure(t, nodes)
		if err != nil {
			return err
		}
		for i, u := range s.ids {
			if place := s.insert(candidate(dist[i], u), ef); place < ef {
				next = min(next, place)
				// The list of a candidate is most likely read later on.
				at := int(u) * degree
				fetch(&links[at], &links[at+degree-1])
			}
		}
	}
	return nil
}

// scan makes the ef nearest of some nodes, or slots of nodes, the beam.
func (s *Searcher) scan(t Target, ids, nodes []uint32, ef int) error {
	s.ids = append(s.ids[:0], ids...)
	dist, err := s.measure(t, nodes)
	if err != nil {
		return err
	}
	for i, id := range s.ids {
		s.insert(candidate(dist[i], id), ef)
	}
	return nil
}

// enter fills the beam with nodes of the base that are near the target.
func (s *Searcher) enter(g *Graph, t Target, width int) error {
	top := len(g.Upper)
	if top == 0 {
		// So few that all are compared, and none has to be expanded; but links lead nowhere new either.
		s.bridges = s.bridges[:0]
		for i := range g.N {
			s.bridges = append(s.bridges, uint32(i))
			s.mark(uint32(i))
		}
		return s.scan(t, s.bridges, nil, g.N)
	}
	s.bridges = s.bridges[:0]
	for i := range len(g.Upper[top-1]) / g.M {
		s.bridges = append(s.bridges, uint32(i))
	}
	if err := s.scan(t, s.bridges, g.Nodes, width); err != nil {
		return err
	}
	for l := top - 2; l >= 0; l-- {
		s.descend(nil)
		if err := s.explore(t, g.Upper[l], g.M, len(g.Upper[l])/g.M, g.Nodes, width); err != nil {
			return err
		}
	}
	s.descend(g.Nodes)
	return nil
}

// descend makes the beam of a level the entries of the level below it, where they are as new. With nodes, slots become nodes.
func (s *Searcher) descend(nodes []uint32) {
	s.forget()
	for i, key := range s.beam {
		id := node(key)
		if nodes != nil {
			id = s.limit(nodes[id])
		}
		s.beam[i] = key>>32<<32 | uint64(id)<<idShift
		// Equal distances sort by number, and numbers have changed.
		for j := i; j > 0 && s.beam[j] < s.beam[j-1]; j-- {
			s.beam[j], s.beam[j-1] = s.beam[j-1], s.beam[j]
		}
		s.mark(id)
	}
}

// Search looks for the ef nodes nearest to the target. check, if not nil, is called now and then with the number of
// distances computed since; its error ends the search. The nodes found are given by Len and At.
func (g *Graph) Search(s *Searcher, t Target, ef int, check func(n int) error) error {
	s.begin(g.N, check)
	err := s.enter(g, t, width(ef))
	if err == nil {
		err = s.explore(t, g.Base, 2*g.M, g.N, nil, max(ef, 1))
	}
	s.forget()
	s.check = nil
	return err
}

// SearchMasked looks for the ef nodes nearest to the target among those that the filter accepts. Seeds are some accepted
// nodes, to begin from besides the nodes near the target, which may all be rejected.
//
// Only accepted nodes are candidates. Where a neighbour is rejected, the search looks through it at its own neighbours, as
// does ACORN (Patel et al., "ACORN: Performant and Predicate-Agnostic Search Over Vector Embeddings and Structured Data",
// https://arxiv.org/abs/2403.04871), until it has M; and farther where that gives hardly any, so that
// accepted nodes stay connected where they are rare.
func (g *Graph) SearchMasked(s *Searcher, t Target, ef int, f Filter, seeds []uint32, check func(n int) error) error {
	s.begin(g.N, check)
	ef = max(ef, 1)
	entries := width(2 * ef)
	err := s.enter(g, t, entries)
	if err == nil {
		err = s.exploreMasked(g, t, ef+entries, f, seeds)
	}
	s.forget()
	s.check = nil
	n := 0
	for _, key := range s.beam {
		if key&rejected == 0 {
			s.beam[n] = key
			n++
		}
	}
	s.beam = s.beam[:min(n, ef)]
	return err
}

func (s *Searcher) exploreMasked(g *Graph, t Target, ef int, f Filter, seeds []uint32) error {
	for i, key := range s.beam {
		if !f.Accepts(node(key)) {
			s.beam[i] |= rejected
		}
	}
	s.ids = s.ids[:0]
	for _, id := range seeds {
		if int(id) < g.N && !s.has(id) {
			s.mark(id)
			s.ids = append(s.ids, id)
		}
	}
	next, degree := 0, 2*g.M
	for {
		if len(s.ids) > 0 {
			dist, err := s.measure(t, nil)
			if err != nil {
				return err
			}
			for i, u := range s.ids {
				next = min(next, s.insert(candidate(dist[i], u), ef))
			}
		}
		for next < len(s.beam) && s.beam[next]&expanded != 0 {
			next++
		}
		if next >= len(s.beam) {
			return nil
		}
		at := int(node(s.beam[next])) * degree
		s.beam[next] |= expanded
		next++
		s.Visited++
		s.ids, s.bridges = s.ids[:0], s.bridges[:0]
		for _, u := range g.Base[at : at+degree] {
			if int(u) >= g.N {
				break
			}
			if s.has(u) {
				continue
			}
			if f.Accepts(u) {
				s.mark(u)
				s.ids = append(s.ids, u)
			} else {
				s.bridges = append(s.bridges, u)
				fetch(&g.Base[int(u)*degree], &g.Base[int(u)*degree+degree-1])
			}
		}
		near := len(s.bridges)
		for i := 0; i < min(len(s.bridges), maxBridges) && len(s.ids) < g.M && (i < near || len(s.ids) < enough); i++ {
			b := s.bridges[i]
			if i >= near && s.has(b) {
				continue
			}
			s.mark(b)
			s.Visited++
			for _, u := range g.Base[int(b)*degree : (int(b)+1)*degree] {
				if int(u) >= g.N {
					break
				}
				switch {
				case s.has(u):
				case f.Accepts(u):
					s.mark(u)
					s.ids = append(s.ids, u)
				case len(s.bridges) < maxBridges:
					s.bridges = append(s.bridges, u)
					if len(s.bridges) > near+enough {
						continue // most are not needed
					}
					fetch(&g.Base[int(u)*degree], &g.Base[int(u)*degree+degree-1])
				}
			}
		}
	}
}

// Len is the number of nodes found by the last search.
func (s *Searcher) Len() int { return len(s.beam) }

// At is node i of those found, nearest first.
func (s *Searcher) At(i int) uint32 { return node(s.beam[i]) }
