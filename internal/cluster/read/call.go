package read

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/serve"
)

// op is one kind of call.
type op[Q, R any] struct {
	class class
	call  func(m leaf.Member, ctx context.Context, req *Q) (*R, error)
	index func(req *Q) string
	view  func(req *Q) *leaf.View // nil where the call has none
	meta  func(reply *R) *leaf.Meta
	// docs is the number of live documents that the reply speaks of; nil where it does not tell.
	docs func(reply *R) uint64
	// query is what the canary tells calls apart by; nil: nothing.
	query func(req *Q) (query.Node, []query.Node)
	// check tells what of a reply cannot be, whatever the shard holds; nil: nothing is looked at.
	check func(req *Q, reply *R) error
	// whole says that an answer with a hole is of no use.
	whole bool
}

// typed is a request of an op as a task.
type typed[Q, R any] struct {
	op  *op[Q, R]
	req *Q
}

func (t *typed[Q, R]) class() class { return t.op.class }

func (t *typed[Q, R]) run(ctx context.Context, m leaf.Member) (any, error) {
	reply, err := t.op.call(m, ctx, t.req)
	if err == nil && t.op.check != nil {
		if wrong := t.op.check(t.req, reply); wrong != nil {
			err = &wrongError{wrong}
		}
	}
	if err == nil {
		err = hold(ctx, reply)
	}
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// wrongError says that a member answered what cannot be. Another one may know better.
type wrongError struct{ cause error }

func (e *wrongError) Error() string { return fmt.Sprintf("the answer cannot be: %v", e.cause) }
func (e *wrongError) Unwrap() error { return e.cause }

func (t *typed[Q, R]) said(value any) (string, *leaf.Meta) {
	return t.op.index(t.req), t.op.meta(value.(*R))
}

// part is what came of one group.
type part[R any] struct {
	reply   *R // nil unless it answered, and of a group without the index
	from    *members.Member
	outcome serve.Outcome
	err     error
	took    time.Duration
	absent  bool  // it answered that it does not have the index
	silent  error // of an absent one: why another member of the group, which may have the index, did not say
}

// gathered is what came of a call.
type gathered[R any] struct {
	plan  *plan
	index string
	parts []part[R]
	began time.Time
	took  time.Duration // until the last group was done
}

// everywhere asks all groups of which something is to be seen the same.
func everywhere[Q, R any](r *Reader, c *running, p *plan, o *op[Q, R], req *Q) (*gathered[R], error) {
	rd := &round{p: p}
	if p.alike {
		rd.same = &typed[Q, R]{o, looking(o, req, p.view)}
	} else {
		rd.each = make([]task, len(p.groups))
		for i, g := range p.groups {
			if g.visible {
				rd.each[i] = &typed[Q, R]{o, looking(o, req, g.view)}
			}
		}
	}
	rd.print = fingerprint(r, o, req)
	return gather(r, c, o, o.index(req), rd)
}

// looking is the request of a call with the view of a group, and what the caller's own view hides.
func looking[Q, R any](o *op[Q, R], req *Q, view leaf.View) *Q {
	if o.view == nil {
		return req
	}
	out := *req
	v := o.view(&out)
	if own := v.Owned; len(own) > 0 {
		view.Owned = append(own[:len(own):len(own)], view.Owned...)
	}
	*v = view
	return &out
}

var printSeed = maphash.MakeSeed()

// printOf is the fingerprint of a query.
func printOf(index string, q query.Node, filters []query.Node) uint64 {
	var h maphash.Hash
	h.SetSeed(printSeed)
	write := func(s string) {
		// A hash takes what it is given.
		if _, err := h.WriteString(s); err != nil {
			panic(err)
		}
		if err := h.WriteByte(0); err != nil {
			panic(err)
		}
	}
	write(index)
	if q != nil {
		write(q.String())
	}
	for _, f := range filters {
		write(f.String())
	}
	return h.Sum64()
}

// gather makes a round and sorts out what came of it. The error is one of the whole call: a refusal of the request, or that nothing
// is there to be merged.
func gather[Q, R any](r *Reader, c *running, o *op[Q, R], index string, rd *round) (*gathered[R], error) {
	g := &gathered[R]{plan: rd.p, index: index, parts: make([]part[R], len(rd.p.groups)), began: time.Now()}
	_, err := rd.p.tree.Call(c.ctx, rd)
	g.took = time.Since(g.began)
	if err != nil {
		few, ok := errors.AsType[*serve.InsufficientError](err)
		if !ok {
			return nil, r.noAnswer(c, err)
		}
		for i := range g.parts {
			g.parts[i] = part[R]{outcome: few.Outcomes[i], err: few.Errs[i], took: few.Took[i]}
		}
	} else {
		for i := range g.parts {
			of, one := &g.parts[i], &rd.gathered.Results[i]
			of.outcome, of.err, of.took, of.from = rd.gathered.Outcomes[i], rd.gathered.Errs[i], rd.gathered.Took[i], one.from
			of.reply, _ = one.value.(*R)
		}
	}
	if err := settle(r, c, o, g, rd); err != nil {
		return nil, err
	}
	return g, nil
}

// settle tells holes from refusals of the request and of its map, and finds out who has the index.
func settle[Q, R any](r *Reader, c *running, o *op[Q, R], g *gathered[R], rd *round) error {
	refused := (*api.Problem)(nil)
	for i := range g.parts {
		p, ok := errors.AsType[*api.Problem](g.parts[i].err)
		switch {
		case !ok:
		case p.Code == api.StaleMap:
			return &staleError{p}
		case p.Code == api.IndexNotFound:
			g.parts[i].absent = true
		case refused == nil && refusal(p):
			refused = p
		}
	}
	if refused != nil {
		return refused
	}
	if err := elsewhere(r, c, o, g, rd); err != nil {
		return err
	}
	answered, absent, holes, unasked := 0, 0, 0, 0
	var none error
	for i := range g.parts {
		of := &g.parts[i]
		if o.whole && of.reply != nil && holed(o.meta(of.reply)) {
			of.fail(errHoled)
		}
		switch {
		case of.absent:
			if absent == 0 {
				none = of.err
			}
			absent++
			of.outcome, of.err = serve.Answered, nil
		case of.outcome == serve.Answered:
			answered++
		case of.outcome == serve.Skipped:
			if rd.p.groups[i].visible {
				unasked++
			}
		default:
			holes++
		}
	}
	switch {
	case holes > 0 && (answered == 0 || o.whole):
		return uncovered(r, c, o, g)
	case answered == 0 && absent > 0 && unasked == 0:
		return problemOf(none)
	case answered == 0 && unasked > 0:
		// Of those that were asked none has the index, or there were none to ask.
		if err := r.exists(c, rd.p, g.index); err != nil {
			return err
		}
	}
	// There is the index. A member without it has missed that, and what another one holds that does not answer is missing.
	missing := false
	for i := range g.parts {
		if of := &g.parts[i]; of.absent && of.silent != nil {
			missing = true
			of.absent, of.outcome, of.err = false, serve.OutcomeOf(of.silent), of.silent
		}
	}
	if missing && (answered == 0 || o.whole) {
		return uncovered(r, c, o, g)
	}
	return nil
}

// elsewhereTime is how long members are waited for that may have an index which another one of their group does not have.
const elsewhereTime = 2 * time.Second

var errHoled = errors.New("a shard below is missing from the answer")

// elsewhere asks all members of the groups of which one does not have the index: it may have missed that the index was made. They are
// asked at once and not waited for beyond elsewhereTime, so that one that is silent does not hold up the rest.
func elsewhere[Q, R any](r *Reader, c *running, o *op[Q, R], g *gathered[R], rd *round) error {
	type other struct {
		part int
		leaf memberLeaf
		ctx  context.Context
		stop context.CancelFunc
	}
	var others []other
	ctx, cancel := context.WithTimeout(c.ctx, elsewhereTime)
	defer cancel()
	for i := range g.parts {
		grp := rd.p.groups[i]
		if !g.parts[i].absent || len(grp.Members) < 2 || o.call == nil { // a stream has asked them
			continue
		}
		gctx, stop := context.WithCancel(ctx)
		defer stop()
		for _, m := range grp.Members {
			others = append(others, other{i, memberLeaf{m, r.o.Vouch, r.o.Hung}, gctx, stop})
		}
	}
	if len(others) == 0 {
		return nil
	}
	began := time.Now()
	said := serve.Fan(ctx, len(others), serve.ScatterOptions{}, func(ctx context.Context, k int) (reply, error) {
		of := &others[k]
		one, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(of.ctx, stop)()
		got, err := of.leaf.Call(one, rd.task(of.part))
		if err == nil {
			of.stop() // the others are not needed any more
		}
		return got, err
	})
	took := time.Since(began)
	for i := range g.parts {
		if g.parts[i].absent {
			g.parts[i].took += took
		}
	}
	for k := range others {
		i, err := others[k].part, said.Errs[k]
		of := &g.parts[i]
		if err == nil && of.reply == nil {
			of.from, of.outcome, of.err, of.absent, of.silent = said.Results[k].from, serve.Answered, nil, false, nil
			of.reply, _ = said.Results[k].value.(*R)
		}
		p, ok := errors.AsType[*api.Problem](err)
		switch {
		case err == nil || !of.absent: // another one has it
		case ok && p.Code == api.StaleMap:
			return &staleError{p}
		case ok && p.Code == api.IndexNotFound:
			of.from = others[k].leaf.m
		case ok && refusal(p):
			return p
		default:
			of.silent = err
		}
	}
	return nil
}

// exists is nil if any group has the index.
func (r *Reader) exists(c *running, p *plan, index string) error {
	ctx, cancel := context.WithTimeout(c.ctx, r.o.CallTimeout) // a stream has no end
	defer cancel()
	_, err := everywhere(r, &running{caller: c.caller, ctx: ctx, cancel: cancel}, p, opDocs, &leaf.DocsRequest{Index: index})
	return err
}

// fingerprint is what the canary tells a request from others by; 0 where it does not look.
func fingerprint[Q, R any](r *Reader, o *op[Q, R], req *Q) uint64 {
	if r.o.Canary == nil || o.query == nil {
		return 0
	}
	q, filters := o.query(req)
	return printOf(o.index(req), q, filters)
}
