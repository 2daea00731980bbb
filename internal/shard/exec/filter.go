package exec

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// MaxFilters bounds the filters of one request.
const MaxFilters = 64

// FilterCache keeps the documents that recurring filters find, one set for each filter and segment. A set is made of all documents
// of the segment, so that deletes do not touch it. A filter is kept from its second use on; the sets that were not used longest
// go first. Safe for concurrent use.
type FilterCache struct {
	limit int64
	seed  maphash.Seed

	mu struct {
		sync.Mutex
		sets    map[filterKey]*list.Element // of *cachedFilter
		order   *list.List                  // the latest used first
		bytes   int64
		seen    [seenFilters]uint64 // hashes of forms that were used, each in its place
		hits    uint64
		misses  uint64
		evicted uint64
	}
}

// seenFilters is how many filters used once are remembered; a power of two. One that is forgotten is kept two uses later.
const seenFilters = 4096

type filterKey struct {
	leaf uint64
	form string
}

// cachedFilter is a set in a cache, in the smallest of its forms.
type cachedFilter struct {
	key   filterKey
	ready chan struct{} // closed when made
	ok    bool          // it was made; else those who waited make their own

	all  bool
	bits bitset.Set
	docs []uint32 // few documents, ascending
	size int64
}

// entryBytes is about what a set takes besides its members.
const entryBytes = 256

// FilterCacheStats counts what a cache did, and what it holds.
type FilterCacheStats struct {
	Hits, Misses, Evictions uint64
	Sets                    int
	Bytes                   int64
}

// NewFilterCache returns a cache of at most so many bytes.
func NewFilterCache(bytes int64) *FilterCache {
	c := &FilterCache{limit: bytes, seed: maphash.MakeSeed()}
	c.mu.sets = map[filterKey]*list.Element{}
	c.mu.order = list.New()
	return c
}

// Stats returns the counters.
func (c *FilterCache) Stats() FilterCacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return FilterCacheStats{Hits: c.mu.hits, Misses: c.mu.misses, Evictions: c.mu.evicted, Sets: c.mu.order.Len(), Bytes: c.mu.bytes}
}

// again notes a use of a filter and tells whether it was used before.
func (c *FilterCache) again(form string) bool {
	h := maphash.String(c.seed, form) | 1 // 0 is an empty place
	c.mu.Lock()
	defer c.mu.Unlock()
	at := &c.mu.seen[h>>1%seenFilters]
	if *at == h {
		return true
	}
	*at = h
	return false
}

// get returns the set of a filter on a leaf that has an identity. Without it, it calls build, and with keep keeps what that returns;
// it does so once for each key at a time. hit tells that build was not called.
func (c *FilterCache) get(s *searcher, l Leaf, form string, keep bool, build func() (docSet, error)) (d docSet, hit bool, err error) {
	key := filterKey{l.Identity(), form}
	c.mu.Lock()
	e := c.mu.sets[key]
	if e == nil {
		c.mu.misses++
		if !keep {
			c.mu.Unlock()
			d, err = build()
			return d, false, err
		}
		f := &cachedFilter{key: key, ready: make(chan struct{}), size: entryBytes + int64(len(form))}
		c.mu.sets[key] = c.mu.order.PushFront(f)
		c.mu.bytes += f.size
		c.mu.Unlock()
		d, err = c.fill(s, l, f, build)
		return d, false, err
	}
	c.mu.order.MoveToFront(e)
	f := e.Value.(*cachedFilter)
	c.mu.Unlock()
	select {
	case <-f.ready:
	case <-s.ctx.Done():
		return docSet{}, false, s.ended()
	}
	c.mu.Lock()
	if f.ok {
		c.mu.hits++
	} else {
		c.mu.misses++
	}
	c.mu.Unlock()
	if !f.ok {
		d, err = build()
		return d, false, err
	}
	d = docSet{all: f.all, bits: f.bits, shared: true}
	if f.docs != nil {
		d = docSet{bits: s.emptySet(l)}
		for _, doc := range f.docs {
			d.bits.Add(doc)
		}
	}
	return d, true, nil
}

// fill makes the set of an entry that was put in place for it.
func (c *FilterCache) fill(s *searcher, l Leaf, f *cachedFilter, build func() (docSet, error)) (d docSet, err error) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		grown := int64(0)
		if f.ok {
			grown = int64(8*len(f.bits) + 4*len(f.docs))
		}
		if e := c.mu.sets[f.key]; e != nil && e.Value == f { // it may have been evicted while it was made
			c.mu.bytes += grown
			f.size += grown
			if !f.ok || f.size > c.limit {
				c.removeLocked(e)
			}
			for c.mu.bytes > c.limit && c.mu.order.Len() > 0 {
				c.removeLocked(c.mu.order.Back())
				c.mu.evicted++
			}
		}
		close(f.ready)
	}()
	if d, err = build(); err != nil {
		return d, err
	}
	if err = l.Err(); err != nil { // what was read of a damaged leaf is nothing to keep
		return d, err
	}
	n := d.count(l)
	switch {
	case n == l.NumDocs():
		s.drop(d)
		d = docSet{all: true}
		f.all = true
	case n == 0:
		s.drop(d)
		d = docSet{}
	case n < uint32(len(d.bits)):
		f.docs = appendMembers(nil, d.bits, int(n))
	default:
		f.bits = d.bits
		if !d.shared {
			f.bits = d.bits.Clone()
		}
	}
	f.ok = true
	return d, nil
}

func appendMembers(dst []uint32, set bitset.Set, n int) []uint32 {
	dst = slices.Grow(dst, n)
	for d := nextIn(set, 0); d != noDoc; d = nextIn(set, d+1) {
		dst = append(dst, d)
	}
	return dst
}

// removeLocked needs the lock.
func (c *FilterCache) removeLocked(e *list.Element) {
	f := c.mu.order.Remove(e).(*cachedFilter)
	delete(c.mu.sets, f.key)
	c.mu.bytes -= f.size
}

// filterPart is one condition that all matches have to meet.
type filterPart struct {
	n    *node
	form string // what the cache knows it by; empty when it is not kept
	keep bool   // it recurs
}

// planFilters prepares the filters of a request. They have a searcher of their own: nothing of theirs is in the statistics.
func (s *searcher) planFilters(filters []query.Node, cache *FilterCache) error {
	if len(filters) == 0 {
		return nil
	}
	if len(filters) > MaxFilters {
		return &QueryError{Code: "too_many_filters", Field: "filter", Reason: fmt.Sprintf("a search takes at most %d filters", MaxFilters), Limit: MaxFilters}
	}
	s.fs = newSearcher(s.ctx, s.leaves, s.declared(), s.analyzers, &Request{DefaultFields: s.req.DefaultFields, Lenient: s.req.Lenient, Stats: s.req.Stats})
	fs := s.fs
	for _, q := range filters {
		n, err := fs.plan(q)
		if err != nil {
			return err
		}
		s.parts = addParts(s.parts, n)
	}
	if len(fs.capped) > 0 { // what these match depends on document frequencies, which change with every write
		if err := fs.statistics(); err != nil {
			return err
		}
		return nil
	}
	if cache == nil {
		return nil
	}
	for i := range s.parts {
		p := &s.parts[i]
		p.form = string(fs.form(nil, p.n))
		if len(p.form) > 2*sha256.Size {
			sum := sha256.Sum256([]byte(p.form))
			p.form = "sha256:" + string(sum[:])
		}
		p.keep = cache.again(p.form)
	}
	return nil
}

// addParts cuts a filter into those that all have to match.
func addParts(parts []filterPart, n *node) []filterPart {
	if n.kind == kindBool && len(n.must)+len(n.filter) > 0 && len(n.not) == 0 {
		for _, list := range [][]*node{n.must, n.filter} {
			for _, k := range list {
				parts = addParts(parts, k)
			}
		}
		return parts
	}
	return append(parts, filterPart{n: n})
}

// form appends a description of what a node matches: equal descriptions, equal documents on every leaf of the process, since fields
// keep their numbers. Scores, the order of parts and how a value was written do not show in it.
func (s *searcher) form(b []byte, n *node) []byte {
	text := func(t []byte) {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = append(b, t...)
	}
	set := func(nodes ...*node) {
		forms := make([]string, len(nodes))
		for i, k := range nodes {
			forms[i] = string(s.form(nil, k))
		}
		slices.Sort(forms)
		forms = slices.Compact(forms)
		b = binary.AppendUvarint(b, uint64(len(forms)))
		for _, f := range forms {
			text([]byte(f))
		}
	}
	if n.kind == kindBool && len(n.not) == 0 {
		if req := slices.Concat(n.must, n.filter); len(req) == 1 {
			return s.form(b, req[0])
		} else if len(req) == 0 && len(n.should) == 1 {
			return s.form(b, n.should[0])
		}
	}
	b = append(b, 'a'+byte(n.kind))
	if n.kind == kindBool {
		req := slices.Concat(n.must, n.filter)
		set(req...)
		if len(req) > 0 {
			set()
		} else {
			set(n.should...)
		}
		set(n.not...)
		return b
	}
	b = binary.AppendUvarint(b, uint64(n.field))
	switch n.kind {
	case kindTerm:
		text(s.terms[n.term].bytes)
	case kindPhrase:
		b = binary.AppendUvarint(b, uint64(n.slop))
		b = binary.AppendUvarint(b, uint64(len(n.list)))
		for i, ti := range n.list {
			text(s.terms[ti].bytes)
			b = binary.AppendUvarint(b, uint64(n.offs[i]))
		}
	case kindPrefix:
		text([]byte(n.text))
	case kindNumRange:
		b = binary.BigEndian.AppendUint64(b, n.lo)
		b = binary.BigEndian.AppendUint64(b, n.hi)
	case kindStrRange:
		for _, end := range []struct {
			v    []byte
			excl bool
		}{{n.strLo, n.loExcl}, {n.strHi, n.hiExcl}} {
			switch {
			case end.v == nil:
				b = append(b, '*')
				continue
			case end.excl:
				b = append(b, '(')
			default:
				b = append(b, '[')
			}
			text(end.v)
		}
	case kindNumTerms:
		b = binary.AppendUvarint(b, uint64(len(n.nums)))
		for _, v := range n.nums {
			b = binary.BigEndian.AppendUint64(b, v)
		}
	case kindStrTerms:
		b = binary.AppendUvarint(b, uint64(len(n.strs)))
		for _, v := range n.strs {
			text(v)
		}
	}
	return b
}

// enter makes a leaf the one that is searched: live and liveN are its documents that may be returned. tr receives how its filters
// were answered, where it is not nil.
func (s *searcher) enter(li int, tr *LeafTrace) error {
	l := s.leaves[li]
	s.live, s.liveN, s.filtered = l.Live(), l.LiveDocs(), false
	if tr != nil {
		*tr = LeafTrace{Memtable: l.Identity() == 0, Docs: l.NumDocs(), Live: s.liveN, Accepted: s.liveN, Path: "none"}
	}
	if len(s.parts) == 0 || s.liveN == 0 {
		return nil
	}
	fs := s.fs
	have := docSet{all: true}
	type late struct{ part, cost int }
	var room [8]late
	rest := room[:0]
	traced := func(i int, how string, d docSet) {
		if tr != nil {
			tr.Filters[i] = FilterTrace{How: how, Found: d.count(l)}
		}
	}
	if tr != nil {
		tr.Filters = make([]FilterTrace, len(s.parts))
	}
	// Sets that are kept are needed whole; the others only as far as the rest leaves documents.
	for i := range s.parts {
		p := &s.parts[i]
		if p.form == "" || l.Identity() == 0 {
			rest = append(rest, late{i, fs.findCost(l, li, p.n)})
			continue
		}
		made := false
		d, hit, err := s.req.Cache.get(fs, l, p.form, p.keep, func() (docSet, error) {
			if !p.keep {
				return docSet{}, nil
			}
			made = true
			return fs.find(l, li, p.n)
		})
		switch {
		case err != nil:
			return err
		case !hit && !made:
			rest = append(rest, late{i, fs.findCost(l, li, p.n)})
			continue
		case hit:
			traced(i, "cache", d)
		default:
			traced(i, howFound(p.n), d)
		}
		have = fs.combine(l, have, d, true)
	}
	slices.SortStableFunc(rest, func(a, b late) int { return cmp.Compare(a.cost, b.cost) })
	for _, r := range rest {
		var err error
		if have, err = fs.intersect(l, li, have, s.parts[r.part].n, r.cost, true); err != nil {
			return err
		}
		traced(r.part, howFound(s.parts[r.part].n), have)
	}
	fs.freeCursors()
	if have.all {
		return nil
	}
	s.filtered = true
	if have.empty() {
		have.bits, have.shared = fs.emptySet(l), false
	} else if s.live != nil {
		have = fs.own(l, have)
		for i := range have.bits {
			have.bits[i] &= s.live[i]
		}
	}
	s.accepted = have
	s.live, s.liveN = have.bits, uint32(have.bits.Count())
	if tr != nil {
		tr.Accepted = s.liveN
	}
	return nil
}

// leave gives back what enter took.
func (s *searcher) leave() {
	if s.fs != nil {
		s.fs.drop(s.accepted)
	}
	s.accepted = docSet{}
	s.live = nil
	s.freeCursors()
}

// howFound tells whether a node is answered by lists of postings alone.
func howFound(n *node) string {
	for _, list := range [][]*node{n.must, n.filter, n.should, n.not} {
		for _, k := range list {
			if howFound(k) == "scan" {
				return "scan"
			}
		}
	}
	switch n.kind {
	case kindExists, kindNumRange, kindStrRange, kindNumTerms, kindStrTerms:
		return "scan"
	}
	return "index"
}

// filterLeads tells whether looking up the accepted documents one by one costs less than walking the lists of a flat query.
func (s *searcher) filterLeads(l Leaf, li int, sh *shape) bool {
	if !s.filtered {
		return false
	}
	walk, lists := math.MaxInt, 0
	for _, list := range [][]*node{sh.req, sh.fil} {
		for _, n := range list {
			p, ok := s.list(l, li, n.term)
			if !ok {
				return false // nothing matches, which the walk sees at once
			}
			walk = min(walk, p.DocFreq())
			lists++
		}
	}
	if lists == 0 {
		walk = 0
		for _, n := range sh.opt {
			if p, ok := s.list(l, li, n.term); ok {
				walk += p.DocFreq()
				lists++
			}
		}
	}
	return int(s.liveN)*lists*fewTimes < walk
}

// countList is the number of accepted documents that hold a term.
func (s *searcher) countList(l Leaf, li, ti int) (uint64, error) {
	if !s.filtered {
		return s.liveDF(l, &s.terms[ti], li)
	}
	p, ok := s.list(l, li, ti)
	if !ok {
		return 0, nil
	}
	post := *p
	var n uint64
	for b, nb := 0, post.Blocks(); b < nb; b++ {
		if err := s.check(segment.BlockSize); err != nil {
			return 0, err
		}
		for _, d := range s.docsScr[:post.Docs(b, &s.docsScr)] {
			n += s.live[d>>6] >> (d & 63) & 1
		}
	}
	return n, post.Err()
}
