package agg

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// State is what is known of some documents: the partial answer of every aggregation of a plan.
type State struct {
	plan  *Plan
	parts []part // by node
	sizes []int
	size  int
	room  func(ctx context.Context, bytes int) error
}

// NewState returns the state of no documents.
func (p *Plan) NewState() *State {
	return &State{plan: p, parts: make([]part, len(p.nodes)), sizes: make([]int, len(p.nodes))}
}

// Charge sets a function that is called before the state, with what is at work on it besides, grows to so many bytes. Its error ends
// what grows it, and comes back from there; the state is of no use then.
func (s *State) Charge(room func(ctx context.Context, bytes int) error) { s.room = room }

func (s *State) meter(ctx context.Context) *meter {
	m := newMeter(ctx)
	m.room, m.state, m.most = s.room, s.size, s.size
	return m
}

// add merges a part into that of node i and checks the whole against the limit.
func (s *State) add(m *meter, i int, p part) error {
	if p == nil {
		return nil
	}
	n := s.plan.nodes[i]
	sum, err := n.merge(m, s.parts[i], p)
	if err != nil {
		return err
	}
	s.parts[i] = sum
	s.size -= s.sizes[i]
	s.sizes[i] = sum.bytes(n)
	if s.size += s.sizes[i]; s.size > n.opts.StateBytes {
		return n.tooLarge()
	}
	m.state, m.work = s.size, 0
	return m.charge()
}

var errOtherPlan = errors.New("agg: states of different aggregations cannot be merged")

// Merge adds what o knows; o is not to be used again. Whichever way states are merged, the answer is the same to the last bit.
// Errors are *SpecError: a limit that only the whole breaks, or a field of different types; or the cause of ctx's end. The state is
// of no use then.
func (s *State) Merge(ctx context.Context, o *State) error {
	if len(s.plan.nodes) != len(o.plan.nodes) {
		return errOtherPlan
	}
	for i, n := range s.plan.nodes {
		if n.spec != o.plan.nodes[i].spec && fingerprint(n.spec) != fingerprint(o.plan.nodes[i].spec) {
			return errOtherPlan
		}
	}
	plan, err := unite(s.plan, o.plan)
	if err != nil {
		return err
	}
	s.plan = plan
	m := s.meter(ctx)
	for i := range plan.nodes {
		if err := s.add(m, i, o.parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// unite returns a plan that knows the type of every field that a or b knows.
func unite(a, b *Plan) (*Plan, error) {
	if a == b {
		return a, nil
	}
	same := true
	var check func(x, y []*node) error
	check = func(x, y []*node) error {
		for i, n := range x {
			o := y[i]
			if n.typ != 0 && o.typ != 0 && n.typ != o.typ {
				return n.fault("field", CodeMismatch, 0, fmt.Sprintf("the field is %s in one part of the index and %s in another", n.typ, o.typ))
			}
			same = same && (n.typ != 0 || o.typ == 0)
			if err := check(n.subs, o.subs); err != nil {
				return err
			}
		}
		return nil
	}
	if err := check(a.nodes, b.nodes); err != nil || same {
		return a, err
	}
	mixed := *a
	mixed.nodes = uniteNodes(a.nodes, b.nodes)
	return &mixed, nil
}

func uniteNodes(a, b []*node) []*node {
	out := make([]*node, len(a))
	for i := range a {
		n := *a[i]
		if n.typ == 0 {
			n = *b[i]
			n.opts, n.filter = a[i].opts, a[i].filter
		}
		n.subs = uniteNodes(a[i].subs, b[i].subs)
		out[i] = &n
	}
	return out
}

// Estimated tells whether an answer is an estimate: a cardinality beyond what is kept value by value.
func (s *State) Estimated() bool { return slices.ContainsFunc(s.parts, estimated) }

func estimated(p part) bool {
	switch p := p.(type) {
	case *distinct:
		return p.sketch != nil
	case *group:
		return slices.ContainsFunc(p.subs, func(subs []part) bool { return slices.ContainsFunc(subs, estimated) })
	}
	return false
}

// Bytes is what the state takes, by the reckoning of FORMAT.md.
func (s *State) Bytes() int { return s.size }

// Adopt returns what a state knows as a state of this plan, whose aggregations stand in that of the other from place from on, whatever
// they are called there: many lists travel as one, under names that any wire takes. Both share the memory. Errors are *SpecError: more than
// this plan allows, or a field of another type.
func (p *Plan) Adopt(s *State, from int) (*State, error) {
	if from < 0 || from+len(p.nodes) > len(s.plan.nodes) {
		return nil, errOtherPlan
	}
	out := p.NewState()
	for i, n := range p.nodes {
		o := s.plan.nodes[from+i]
		if err := n.sameAs(o); err != nil {
			return nil, err
		}
		out.parts[i], out.sizes[i] = s.parts[from+i], s.sizes[from+i]
		if out.size += out.sizes[i]; out.size > n.opts.StateBytes {
			return nil, n.tooLarge()
		}
	}
	return out, nil
}

// sameAs checks that a node of another plan is this one under another name.
func (n *node) sameAs(o *node) error {
	if n.spec.Kind != o.spec.Kind || n.spec.Field != o.spec.Field || len(n.subs) != len(o.subs) {
		return errOtherPlan
	}
	if n.typ != 0 && o.typ != 0 && n.typ != o.typ {
		return n.fault("field", CodeMismatch, 0, fmt.Sprintf("the field is %s in one part of the index and %s in another", n.typ, o.typ))
	}
	for i, sub := range n.subs {
		if err := sub.sameAs(o.subs[i]); err != nil {
			return err
		}
	}
	return nil
}
