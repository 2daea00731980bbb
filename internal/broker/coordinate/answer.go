package coordinate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weft-search/weft/internal/score"
)

// Answer makes the answer, an encoded SearchResponse, of what nodes replied, in the order of the partitions. leftOut is how many partitions it is
// without, began when the search did. Faults that are one node's are told by fault. It stops soon after ctx ends, with DEADLINE_EXCEEDED where
// the time was over. It is to be called once, after Request.
func (p *Plan) Answer(ctx context.Context, replies []Reply, leftOut int, began time.Time, l Limits, fault func(part int, err error) error) ([]byte, error) {
	own := time.Now()
	e, err := p.read(ctx, replies, l, fault)
	if err != nil {
		return nil, err
	}
	var r ranking
	switch p.way {
	case byScore:
		err = e.byScore(&r)
	case byFusion:
		err = e.byFusion(&r)
	case byFormula, byRRFFormula:
		err = e.byFormula(ctx, &r)
	}
	if err == nil && p.votes && r.votes == nil {
		if p.way == byFusion { // it is the second time
			err = e.budget.take(passageBytes * e.passages)
		}
		if err == nil {
			err = e.vote(&r)
		}
	}
	if err == nil {
		err = alive(ctx)
	}
	if err != nil {
		return nil, err
	}
	out, err := e.hitsOf(&r, l.Transfer)
	if err != nil {
		return nil, err
	}
	out = e.rest(out, &r, uint32(leftOut), own, began)
	if len(out) > l.Transfer {
		return nil, e.tooLarge(l.Transfer)
	}
	if p.tracing {
		traces := 0
		for _, t := range e.traces {
			traces += len(t)
		}
		if len(out)+traces > l.Transfer {
			return nil, tooLarge("traced", l.Transfer)
		}
		if err := e.budget.take(len(out) + traces); err != nil {
			return nil, err
		}
		if out = e.appendTraces(out); len(out) > l.Transfer {
			return nil, tooLarge("traced", l.Transfer)
		}
	}
	return out, alive(ctx)
}

// ranking is what the hits of an answer are.
type ranking struct {
	method  string
	page    []placed
	formula *evaluating
	votes   []*score.Fused[uint32] // by document; nil: none are told
}

// placed is a document at its place.
type placed struct {
	doc   uint32
	score float32
	rows  []score.Passage // of a fusion
}

// pageOf cuts the page of the request out of n documents in order.
func (p *Plan) pageOf(n int) (from, to int) {
	return min(p.window-p.limit, n), min(p.window, n)
}

// byScore merges hits by the scores that they have: score descending, then segment, then the order of the nodes ("Pointwise").
func (e *evidence) byScore(r *ranking) error {
	p := e.p
	r.method = e.method
	if p.expected != "" && (p.window != p.limit || p.limit < e.hits) {
		return refuse("feature export needs offset=0 and limit covering the complete cross-shard union (%d candidates)", e.hits)
	}
	order := make([]placed, e.hits)
	for i := range order {
		order[i] = placed{doc: uint32(i), score: e.docs[i].score}
	}
	slices.SortStableFunc(order, func(a, b placed) int {
		x, y := e.docs[a.doc].at, e.docs[b.doc].at
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(x.hi, y.hi), cmp.Compare(x.lo, y.lo))
	})
	from, to := p.pageOf(len(order))
	r.page = order[from:to]
	return nil
}

// byFusion fuses the branches over the passages of all shards ("Fusion arithmetic").
func (e *evidence) byFusion(r *ranking) error {
	p := e.p
	if r.method = methodRRF; p.method == score.WeightedSum {
		r.method = methodSum
	}
	fused, err := e.fuse(p.method)
	if err != nil {
		return err
	}
	from, to := p.pageOf(len(fused))
	for i := range fused[from:to] {
		f := &fused[from+i]
		r.page = append(r.page, placed{f.Doc, f.Score, f.Passages})
	}
	if p.votes && p.method == score.RRF {
		r.votes = byDoc(fused, len(e.docs))
	}
	return nil
}

// vote finds the votes of reciprocal ranks for all documents.
func (e *evidence) vote(r *ranking) error {
	fused, err := e.fuse(score.RRF)
	if err == nil {
		r.votes = byDoc(fused, len(e.docs))
	}
	return err
}

func byDoc(fused []score.Fused[uint32], docs int) []*score.Fused[uint32] {
	out := make([]*score.Fused[uint32], docs)
	for i := range fused {
		out[fused[i].Doc] = &fused[i]
	}
	return out
}

// fuse fuses the branches.
func (e *evidence) fuse(method score.Method) ([]score.Fused[uint32], error) {
	qs := e.p.fusion.GetQueries()
	for i := range e.branches {
		e.branches[i].Weight, e.branches[i].Whole = cmp.Or(qs[i].GetWeight(), 1), e.wholly(i)
	}
	how := score.Fusion{Method: method, K: e.p.fusion.GetRrfK(), Combiner: e.p.combiner}
	out, err := score.Fuse(how, e.branches, func(a, b uint32) int { return e.docs[a].at.compare(e.docs[b].at) })
	if err == nil {
		return out, nil
	}
	if bad, ok := errors.AsType[*score.FusionError](err); ok {
		return nil, refuse("%s", bad.Error())
	}
	return nil, status.Errorf(codes.Internal, "%s", err)
}

// hitsOf encodes the hits of an answer.
func (e *evidence) hitsOf(r *ranking, most int) ([]byte, error) {
	size, longest := 0, 0
	for _, at := range r.page {
		n := len(e.docs[at.doc].hit) + 24 + 16*min(len(at.rows), e.p.window)
		size, longest = size+n, max(longest, n)
	}
	size = min(size, most) + 1024
	if err := e.budget.take(size + longest); err != nil {
		return nil, err
	}
	out, one := make([]byte, 0, size), make([]byte, 0, longest)
	for i := range r.page {
		var err error
		if one, err = e.hit(one[:0], r, &r.page[i]); err != nil {
			return nil, err
		}
		if out = appendBytes(out, 1, one); len(out) > most {
			return nil, e.tooLarge(most)
		}
		if len(out) > size { // it has grown
			if err := e.budget.take(len(out)); err != nil {
				return nil, err
			}
			size += len(out)
		}
	}
	return out, nil
}

// tooLarge refuses an answer without traces.
func (e *evidence) tooLarge(most int) error {
	if e.p.votes {
		return tooLarge("RRF diagnostic", most)
	}
	return tooLarge("combined coordinator", most)
}

// hit encodes a hit: what the node said of it but for what is ranked here.
func (e *evidence) hit(out []byte, r *ranking, at *placed) ([]byte, error) {
	ranked := e.p.way != byScore
	own := func(num protowire.Number) bool { // what is told otherwise
		switch num {
		case 2, 4, 5:
			return ranked
		case 6, 7:
			return ranked || r.votes != nil
		}
		return false
	}
	d := &e.docs[at.doc]
	if !ranked {
		c := cursor{rest: d.hit}
		for f := (field{}); c.next(&f); {
			if !own(f.num) {
				out = append(out, f.raw...)
			}
		}
		return e.appendVotes(out, r, at.doc), c.err()
	}
	for _, first := range [2]bool{true, false} {
		c := cursor{rest: d.hit}
		for f := (field{}); c.next(&f); {
			if (f.num == 1) == first && !own(f.num) {
				out = append(out, f.raw...)
			}
		}
		if c.bad {
			return nil, errWire
		}
		if first {
			out = appendFloat(out, 2, at.score)
		}
	}
	rows := at.rows
	var scored []row
	if r.formula != nil {
		var err error
		if _, scored, err = r.formula.score(at.doc); err != nil {
			return nil, err
		}
		rows = r.formula.best(scored)
	}
	var small [32]byte
	for _, q := range rows {
		out = appendBytes(out, 4, appendFloat(appendUint(small[:0], 1, uint64(q.Ordinal)), 2, q.Score))
	}
	if r.formula != nil && e.p.export {
		var err error
		if out, err = e.appendCells(out, d, scored); err != nil {
			return nil, err
		}
	}
	return e.appendVotes(out, r, at.doc), nil
}

// appendVotes tells the votes for a document.
func (e *evidence) appendVotes(out []byte, r *ranking, n uint32) []byte {
	if r.votes == nil || r.votes[n] == nil {
		return out
	}
	f := r.votes[n]
	out = protowire.AppendFixed32(protowire.AppendTag(out, 6, protowire.Fixed32Type), math.Float32bits(f.Score))
	var one []byte
	for i := range f.Votes {
		v := &f.Votes[i]
		one = appendUint(one[:0], 1, uint64(v.Branch))
		if name := e.p.fusion.GetQueries()[v.Branch].GetName(); name != "" {
			one = appendText(one, 2, name)
		}
		one = appendFloat(appendUint(one, 3, uint64(v.Rank)), 4, v.Score)
		if !v.Whole {
			one = protowire.AppendVarint(protowire.AppendTag(one, 5, protowire.VarintType), uint64(v.Ordinal))
		}
		out = appendBytes(out, 7, one)
	}
	return out
}

// rest encodes what an answer has besides hits and traces.
func (e *evidence) rest(out []byte, r *ranking, leftOut uint32, own, began time.Time) []byte {
	out = appendUint(out, 2, e.total)
	now := time.Now()
	took := now.Sub(began)
	out = appendUint(out, 3, uint64(took.Milliseconds()))
	var t []byte
	for k := 1; k <= 3; k++ {
		t = appendUint(t, protowire.Number(k), e.timings[k])
	}
	t = appendUint(t, 4, uint64(took.Microseconds()))
	t = appendUint(t, 5, add(e.timings[5], uint64(now.Sub(own).Microseconds())))
	out = appendBytes(out, 4, t)
	if e.cut {
		out = appendUint(out, 5, 1)
	}
	if r.method != "" {
		out = appendText(out, 6, r.method)
	}
	for _, branch := range slices.Sorted(maps.Keys(e.lists)) {
		out = e.appendList(out, branch)
	}
	if e.seeded {
		out = appendUint(out, 9, 1)
	}
	return appendUint(out, 10, uint64(add32(e.missing, leftOut)))
}

// appendList passes on what a branch nominated at all nodes.
func (e *evidence) appendList(out []byte, branch uint32) []byte {
	index := appendUint(nil, 1, uint64(branch))
	candidates := func(take func(raw []byte)) {
		for _, list := range e.lists[branch] {
			c := cursor{rest: list}
			for f := (field{}); c.next(&f); {
				if f.num == 2 {
					take(f.raw)
				}
			}
		}
	}
	size := len(index)
	candidates(func(raw []byte) { size += len(raw) })
	out = protowire.AppendVarint(protowire.AppendTag(out, 7, protowire.BytesType), uint64(size))
	out = append(out, index...)
	candidates(func(raw []byte) { out = append(out, raw...) })
	return out
}

// appendTraces tells what each node did, with its shard and name.
func (e *evidence) appendTraces(out []byte) []byte {
	own := func(reply int) []byte {
		return appendText(appendText(nil, 1, e.replies[reply].Shard), 2, e.replies[reply].Backend)
	}
	rest := func(reply int, take func(raw []byte)) {
		c := cursor{rest: e.traces[reply]}
		for f := (field{}); c.next(&f); {
			if f.num > 2 {
				take(f.raw)
			}
		}
	}
	sizes, all := make([]int, len(e.traces)), 0
	for i := range e.traces {
		sizes[i] = len(own(i))
		rest(i, func(raw []byte) { sizes[i] += len(raw) })
		all += protowire.SizeTag(1) + protowire.SizeBytes(sizes[i])
	}
	out = protowire.AppendVarint(protowire.AppendTag(slices.Grow(out, all+16), 8, protowire.BytesType), uint64(all))
	for i := range e.traces {
		out = protowire.AppendVarint(protowire.AppendTag(out, 1, protowire.BytesType), uint64(sizes[i]))
		out = append(out, own(i)...)
		rest(i, func(raw []byte) { out = append(out, raw...) })
	}
	return out
}
