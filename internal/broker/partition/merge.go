package partition

import (
	"bytes"
	"cmp"
	"math"
	"math/bits"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxHits bounds what is kept of one reply. A node is asked for no more.
const maxHits = maxWindow

// maxLists bounds the lists of one reply. A fusion has no more branches.
const maxLists = 16

// hit is a SearchHit of a reply.
type hit struct {
	raw     []byte // with its tag
	segment []byte
	doc     uint32
	score   float32
	cells   bool // there are scores of candidates
}

// results are what one reply says.
type results struct {
	part    int
	hits    []hit
	total   uint64
	took    uint64
	timings [6]uint64 // by field
	timed   bool
	cut     bool
	method  []byte
	lists   []nominations
	seeded  bool
	missing uint32
}

// nominations are what one branch of a fusion nominated at one node.
type nominations struct {
	branch uint32
	list   []byte // a FusionCandidateList
	bytes  int    // of its candidates
}

// candidates visits each, with its tag.
func (l *nominations) candidates(visit func(raw []byte)) error {
	for b := l.list; len(b) > 0; {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		if b = rest; f.is(2, protowire.BytesType) {
			visit(f.raw)
		}
	}
	return nil
}

// merge makes one reply of those of the partitions (section Reads of partitioned indexes, Pointwise). The lists of a branch come one after
// another, in the order of the partitions; what the contract does not name is not in it.
func (ix *Index) merge(outs []outcome, s *Shape, limit int, missing uint32) ([]byte, error) {
	all := make([]results, len(outs))
	for i, o := range outs {
		r, err := resultsOf(o.reply)
		if err != nil {
			return nil, ix.Fault(o.part, err)
		}
		r.part = o.part
		all[i] = r
	}
	want := s.Method()
	for i := range all {
		if want != "" && string(all[i].method) != want {
			return nil, ix.blame(all[i].part, status.Error(codes.FailedPrecondition,
				"a shard does not support the requested candidate scoring contract; complete the Summa rollout"))
		}
	}
	for i := range all {
		if !bytes.Equal(all[i].method, all[0].method) {
			return nil, ix.blame(all[i].part, status.Error(codes.FailedPrecondition, "shards returned incompatible ranking methods; complete the Summa rollout"))
		}
	}
	if second := sharesAddress(all); second >= 0 {
		return nil, ix.blame(all[second].part, status.Error(codes.FailedPrecondition, "duplicate candidate address across shards"))
	}
	sum := results{seeded: true, missing: missing}
	union := 0
	for i := range all {
		r := &all[i]
		union += len(r.hits)
		sum.total = add(sum.total, r.total)
		sum.took = max(sum.took, r.took)
		for k, v := range r.timings {
			sum.timings[k] = max(sum.timings[k], v)
		}
		sum.timed = sum.timed || r.timed
		sum.cut = sum.cut || r.cut
		sum.lists = append(sum.lists, r.lists...)
		sum.seeded = sum.seeded && r.seeded
		sum.missing = add32(sum.missing, r.missing)
	}
	if want != "" && (s.offset != 0 || limit < union) {
		return nil, status.Errorf(codes.InvalidArgument, "feature export needs offset=0 and limit covering the complete cross-shard union (%d candidates)", union)
	}
	for i := range all {
		if err := all[i].exports(s); err != nil {
			return nil, ix.blame(all[i].part, err)
		}
	}
	sum.method = all[0].method
	sum.hits = ranked(all, int(s.offset), limit)
	return sum.encode(), nil
}

// resultsOf reads a SearchResponse.
func resultsOf(b []byte) (results, error) {
	var r results
	n := 0
	for m := b; len(m) > 0; {
		f, rest, err := next(m)
		if err != nil {
			return r, err
		}
		if m = rest; f.is(1, protowire.BytesType) {
			n++
		}
	}
	if n > maxHits {
		return r, status.Errorf(codes.Internal, "the reply has %d hits, more than the %d that a partition is asked for at most", n, maxHits)
	}
	r.hits = make([]hit, 0, n)
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return r, err
		}
		b = rest
		switch {
		case f.is(1, protowire.BytesType):
			h, err := hitOf(f.val)
			if err != nil {
				return r, err
			}
			h.raw = f.raw
			r.hits = append(r.hits, h)
		case f.is(2, protowire.VarintType):
			r.total = f.uint()
		case f.is(3, protowire.VarintType):
			r.took = f.uint()
		case f.is(4, protowire.BytesType):
			r.timed = true
			for t := f.val; len(t) > 0; {
				f, rest, err := next(t)
				if err != nil {
					return r, err
				}
				if t = rest; f.typ == protowire.VarintType && f.num < protowire.Number(len(r.timings)) {
					r.timings[f.num] = f.uint()
				}
			}
		case f.is(5, protowire.VarintType):
			r.cut = f.uint() != 0
		case f.is(6, protowire.BytesType):
			r.method = f.val
		case f.is(7, protowire.BytesType):
			l, err := nominationsOf(f.val)
			if err != nil {
				return r, err
			}
			if r.lists = append(r.lists, l); len(r.lists) > maxLists {
				return r, status.Errorf(codes.Internal, "the reply has lists of more than %d branches", maxLists)
			}
		case f.is(9, protowire.VarintType):
			r.seeded = f.uint() != 0
		case f.is(10, protowire.VarintType):
			r.missing = uint32(f.uint())
		}
	}
	return r, nil
}

// nominationsOf reads a FusionCandidateList.
func nominationsOf(list []byte) (l nominations, err error) {
	l.list = list
	for b := list; len(b) > 0; {
		f, rest, err := next(b)
		if err != nil {
			return l, err
		}
		if b = rest; f.is(1, protowire.VarintType) {
			l.branch = uint32(f.uint())
		}
	}
	return l, l.candidates(func(raw []byte) { l.bytes += len(raw) })
}

func hitOf(b []byte) (h hit, err error) {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return h, err
		}
		b = rest
		switch {
		case f.is(1, protowire.BytesType):
			for a := f.val; len(a) > 0; {
				f, rest, err := next(a)
				if err != nil {
					return h, err
				}
				a = rest
				switch {
				case f.is(1, protowire.BytesType):
					h.segment = f.val
				case f.is(2, protowire.VarintType):
					h.doc = uint32(f.uint())
				}
			}
		case f.is(2, protowire.Fixed32Type):
			h.score = math.Float32frombits(f.fixed32())
		case f.is(5, protowire.BytesType):
			h.cells = true
		}
	}
	return h, nil
}

// exports says whether a reply has what an export asks for: features of each hit, or a list of each branch. A node that has the method and not
// these is of another version, and what it leaves out would look as if it were not there.
func (r *results) exports(s *Shape) error {
	switch {
	case s.export:
		for i := range r.hits {
			if !r.hits[i].cells {
				return status.Error(codes.FailedPrecondition, "shard omitted L1 candidate features")
			}
		}
	case s.fusionCandidates && len(r.hits)+len(r.lists) > 0:
		var got uint32 // a bit for each branch
		for i := range r.lists {
			if b := r.lists[i].branch; b >= s.branches || got>>b&1 == 1 {
				return status.Error(codes.FailedPrecondition, "invalid exported branch identity")
			}
			got |= 1 << r.lists[i].branch
		}
		if bits.OnesCount32(got) < int(min(s.branches, maxLists)) {
			return status.Error(codes.FailedPrecondition, "shard omitted a nomination branch")
		}
	}
	return nil
}

// sharesAddress finds the reply with a document of an address that one before it has as well (B3); -1: there is none. A segment lies on one
// shard, so that few documents have to be compared. Hits without a segment have no address.
func sharesAddress(all []results) int {
	owner := map[string]int{}
	var shared map[string]bool
	for i := range all {
		var before []byte
		for k := range all[i].hits {
			segment := all[i].hits[k].segment
			if len(segment) == 0 || bytes.Equal(segment, before) {
				continue
			}
			before = segment
			if first, ok := owner[string(segment)]; !ok {
				owner[string(segment)] = i
			} else if first != i {
				if shared == nil {
					shared = map[string]bool{}
				}
				shared[string(segment)] = true
			}
		}
	}
	if shared == nil {
		return -1
	}
	type address struct {
		segment string
		doc     uint32
	}
	seen := map[address]int{}
	for i := range all {
		for k := range all[i].hits {
			h := &all[i].hits[k]
			if !shared[string(h.segment)] {
				continue
			}
			a := address{string(h.segment), h.doc}
			if first, ok := seen[a]; ok && first != i {
				return i
			}
			seen[a] = i
		}
	}
	return -1
}

// before orders hits: score descending, then segment id. A score that is no number is equal to every other, as it is to the reference.
func before(a, b *hit) int {
	switch {
	case a.score > b.score:
		return -1
	case a.score < b.score:
		return 1
	}
	return bytes.Compare(a.segment, b.segment)
}

// ranked returns the hits after offset, at most limit. Equals stay in the order of the partitions, and in each node's own. Lists in order,
// which is what nodes give, are merged as far as is needed; others are sorted, which comes to the same.
func ranked(all []results, offset, limit int) []hit {
	sorted, n := true, 0
	for i := range all {
		n += len(all[i].hits)
		for k := range all[i].hits {
			h := &all[i].hits[k]
			sorted = sorted && h.score == h.score && (k == 0 || before(&all[i].hits[k-1], h) <= 0)
		}
	}
	end := min(offset+limit, n)
	if offset >= end {
		return nil
	}
	if !sorted {
		list := make([]hit, 0, n)
		for i := range all {
			list = append(list, all[i].hits...)
		}
		slices.SortStableFunc(list, func(a, b hit) int { return before(&a, &b) })
		return list[offset:end]
	}
	h := heads{all: all}
	for i := range all {
		if len(all[i].hits) > 0 {
			h.order = append(h.order, i)
		}
	}
	h.at = make([]int, len(all))
	for i := len(h.order)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	out := make([]hit, 0, end-offset)
	for k := range end {
		first := h.order[0]
		if k >= offset {
			out = append(out, all[first].hits[h.at[first]])
		}
		if h.at[first]++; h.at[first] == len(all[first].hits) {
			last := len(h.order) - 1
			h.order[0] = h.order[last]
			h.order = h.order[:last]
		}
		h.down(0)
	}
	return out
}

// heads is a heap of lists by their next hits.
type heads struct {
	all   []results
	at    []int // of each list, its next hit
	order []int // the lists that have one
}

func (h *heads) less(a, b int) bool {
	c := before(&h.all[a].hits[h.at[a]], &h.all[b].hits[h.at[b]])
	return cmp.Or(c, cmp.Compare(a, b)) < 0
}

func (h *heads) down(i int) {
	for {
		least := i
		for _, k := range [2]int{2*i + 1, 2*i + 2} {
			if k < len(h.order) && h.less(h.order[k], h.order[least]) {
				least = k
			}
		}
		if least == i {
			return
		}
		h.order[i], h.order[least] = h.order[least], h.order[i]
		i = least
	}
}

// encode writes a SearchResponse.
func (r *results) encode() []byte {
	size := 128 + len(r.method)
	for i := range r.hits {
		size += len(r.hits[i].raw)
	}
	for i := range r.lists {
		size += r.lists[i].bytes + 16
	}
	out := make([]byte, 0, size)
	for i := range r.hits {
		out = append(out, r.hits[i].raw...)
	}
	out = appendUint(out, 2, r.total)
	out = appendUint(out, 3, r.took)
	if r.timed {
		var t []byte
		for k, v := range r.timings[1:] {
			t = appendUint(t, protowire.Number(k+1), v)
		}
		out = appendBytes(out, 4, t)
	}
	out = appendBool(out, 5, r.cut)
	if len(r.method) > 0 {
		out = appendBytes(out, 6, r.method)
	}
	slices.SortStableFunc(r.lists, func(a, b nominations) int { return cmp.Compare(a.branch, b.branch) })
	for lists := r.lists; len(lists) > 0; {
		n := 1
		for n < len(lists) && lists[n].branch == lists[0].branch {
			n++
		}
		index := appendUint(nil, 1, uint64(lists[0].branch))
		bytes := len(index)
		for i := range lists[:n] {
			bytes += lists[i].bytes
		}
		out = protowire.AppendVarint(protowire.AppendTag(out, 7, protowire.BytesType), uint64(bytes))
		out = append(out, index...)
		for i := range lists[:n] {
			if lists[i].candidates(func(raw []byte) { out = append(out, raw...) }) != nil {
				break // resultsOf has read it
			}
		}
		lists = lists[n:]
	}
	out = appendBool(out, 9, r.seeded)
	return appendUint(out, 10, uint64(r.missing))
}
