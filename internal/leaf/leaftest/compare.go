package leaftest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// patience is how long the suite waits for what has to happen soon.
const patience = 20 * time.Second

// soon is how long a call may take to return when its context has ended, on a machine that is busy with other tests.
const soon = 5 * time.Second

// exact compares replies to the bit, but for times and what states of aggregations hold inside.
var exact = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal)), // not byte by byte: they are long
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
	cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
	cmpopts.IgnoreFields(leaf.Meta{}, "Timings"),
	cmpopts.IgnoreFields(leaf.AggregateReply{}, "State"),
	cmp.Transformer("held", func(s score.Stats) map[score.Term]uint64 {
		held := map[score.Term]uint64{{Text: " docs"}: s.Docs}
		for t, n := range s.DF {
			if n > 0 { // a term that no document holds may be left out
				held[t] = n
			}
		}
		for f, st := range s.Fields {
			held[score.Term{Field: f, Text: " sum"}], held[score.Term{Field: f, Text: " docs"}] = st.SumLen, st.Docs
		}
		return held
	}),
}

// both makes a call on the leaf under test and on the node in process, and compares replies and errors.
func both[R any](t testing.TB, e Env, what string, call func(l leaf.Leaf) (*R, error)) (*R, error) {
	t.Helper()
	want, wantErr, got, gotErr := twice(e, call)
	if !sameErrors(t, what, wantErr, gotErr) {
		return nil, gotErr
	}
	if gotErr != nil {
		if got != nil {
			t.Errorf("%s: an error and a reply %+v", what, got)
		}
		return nil, gotErr
	}
	if d := diff(want, got); d != "" {
		t.Errorf("%s: −in process +over the wire\n%s", what, d)
	}
	checkMeta(t, what, got)
	if a, ok := any(got).(*leaf.AggregateReply); ok {
		sameStates(t, what, any(want).(*leaf.AggregateReply).State, a.State)
	}
	return got, nil
}

// twice makes a call on the node in process and on the leaf under test. It does so again when an index was written out or merged between
// the two.
func twice[R any](e Env, call func(l leaf.Leaf) (R, error)) (want R, wantErr error, got R, gotErr error) {
	for range 100 {
		want, wantErr = call(e.Node.Leaf())
		got, gotErr = call(e.Leaf)
		if wantErr != nil || gotErr != nil || snapshotOf(want) == snapshotOf(got) {
			break
		}
	}
	return want, wantErr, got, gotErr
}

// snapshotOf is the snapshot of a reply, zero if it speaks of none.
func snapshotOf(reply any) leaf.Snapshot {
	v := reflect.ValueOf(reply)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return leaf.Snapshot{}
	}
	field := v.Elem().FieldByName("Meta")
	if !field.IsValid() {
		return leaf.Snapshot{}
	}
	return field.Interface().(leaf.Meta).Snapshot
}

// diff is the difference between two replies, or parts of them. Long lists of hits and documents that are equal are taken out first:
// package cmp looks at each of their bytes with every option.
func diff(want, got any) string {
	switch w := want.(type) {
	case *leaf.SearchReply:
		if g := got.(*leaf.SearchReply); sameHits(w.Hits, g.Hits) {
			x, y := *w, *g
			x.Hits, y.Hits = nil, nil
			want, got = &x, &y
		}
	case *leaf.DigestReply:
		if g := got.(*leaf.DigestReply); slices.Equal(w.Docs, g.Docs) && slices.Equal(w.Sums, g.Sums) {
			want, got = w.Meta, g.Meta
		}
	case []leaf.Hit:
		if sameHits(w, got.([]leaf.Hit)) {
			return ""
		}
	case []leaf.ExportedDoc:
		if sameDocs(w, got.([]leaf.ExportedDoc)) {
			return ""
		}
	case *exported:
		if g := got.(*exported); sameDocs(w.Docs, g.Docs) {
			want, got = w.ExportReply, g.ExportReply
		}
	}
	return cmp.Diff(want, got, exact)
}

func sameHits(a, b []leaf.Hit) bool {
	return slices.EqualFunc(a, b, func(x, y leaf.Hit) bool {
		return x.ID == y.ID && math.Float32bits(x.Score) == math.Float32bits(y.Score) && slices.EqualFunc(x.Sort, y.Sort, func(v, w exec.SortValue) bool {
			return v.Kind == w.Kind && v.Number == w.Number && v.Text == w.Text && math.Float32bits(v.Score) == math.Float32bits(w.Score)
		})
	})
}

func sameDocs(a, b []leaf.ExportedDoc) bool {
	return slices.EqualFunc(a, b, func(x, y leaf.ExportedDoc) bool { return x.ID == y.ID && bytes.Equal(x.Source, y.Source) })
}

// checkMeta checks the times of a reply.
func checkMeta(t testing.TB, what string, reply any) {
	t.Helper()
	field := reflect.ValueOf(reply).Elem().FieldByName("Meta")
	if !field.IsValid() {
		return // of a ping
	}
	m := field.Interface().(leaf.Meta)
	if len(m.Timings) == 0 {
		t.Errorf("%s: no timings", what)
	}
	for _, s := range m.Timings {
		if s.Stage == "" || s.Micros < 0 || s.Micros > patience.Microseconds() {
			t.Errorf("%s: timing %+v", what, s)
		}
	}
}

// sameStates compares what states come to, and that they merge.
func sameStates(t testing.TB, what string, want, got *agg.State) {
	t.Helper()
	finished := func(s *agg.State) string {
		b, err := s.Finish().AppendJSON(nil, agg.Printing{})
		if err != nil {
			t.Errorf("%s: finish: %v", what, err)
		}
		return string(b)
	}
	if w, g := finished(want), finished(got); w != g {
		t.Errorf("%s: in process %s, over the wire %s", what, w, g)
	}
	if w, g := string(want.AppendBinary(nil)), string(got.AppendBinary(nil)); w != g {
		t.Errorf("%s: the states are %d and %d bytes and differ", what, len(w), len(g))
	}
	if err := got.Merge(context.Background(), want); err != nil {
		t.Errorf("%s: merge: %v", what, err)
	}
}

// sameErrors tells whether both calls went well. Problems have to be the same, but for the request id, and for when to try again, which
// is an estimate.
func sameErrors(t testing.TB, what string, want, got error) bool {
	t.Helper()
	if want == nil && got == nil {
		return true
	}
	if want == nil || got == nil {
		t.Errorf("%s: in process %v, over the wire %v", what, want, got)
		return false
	}
	w, _ := errors.AsType[*api.Problem](want)
	g, ok := errors.AsType[*api.Problem](got)
	if w == nil || !ok {
		t.Errorf("%s: in process %T %v, over the wire %T %v", what, want, want, got, got)
		return false
	}
	type shown struct {
		Code         api.Code
		Status       int
		Detail       string
		Field        string
		Line, Column int
		At           int
		HasAt        bool
		Expected     string
		Limit        int64
		HasLimit     bool
		Retry        bool
		Extra        string
	}
	show := func(p *api.Problem) shown {
		return shown{
			p.Code, p.HTTPStatus(), p.Detail, p.Field, p.Line, p.Column, p.Position, p.HasPosition, p.Expected, p.Limit, p.HasLimit,
			p.RetryAfterMS > 0, string(p.Extra),
		}
	}
	if d := cmp.Diff(show(w), show(g)); d != "" {
		t.Errorf("%s: −in process +over the wire\n%s", what, d)
	}
	if a, b := leaf.OutcomeOf(want), leaf.OutcomeOf(got); a != b {
		t.Errorf("%s: outcome in process %v, over the wire %v", what, a, b)
	}
	return true
}

// refusedWith checks that an error is a problem about a field and a limit.
func refusedWith(t testing.TB, what string, err error, field string, limit int64) {
	t.Helper()
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		t.Errorf("%s: %T %v", what, err, err)
		return
	}
	if p.HTTPStatus() < 400 || p.HTTPStatus() >= 500 || !p.HasLimit || p.Limit != limit || !strings.Contains(p.Field, field) {
		t.Errorf("%s: %d %s on %q, limit %d (%v): %s; want one on %q with limit %d", what, p.HTTPStatus(), p.Code, p.Field, p.Limit, p.HasLimit, p.Detail, field, limit)
	}
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// returned waits for the error of a call that has to return soon.
func returned(t testing.TB, what string, done <-chan error) error {
	t.Helper()
	end := time.NewTimer(soon)
	defer end.Stop()
	select {
	case err := <-done:
		return err
	case <-end.C:
		t.Fatalf("%s: the call did not return within %v", what, soon)
		return nil
	}
}

// inBackground makes a call whose error comes on the channel.
func inBackground(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

// idle waits until the node works on nothing.
func idle(t testing.TB, e Env) {
	t.Helper()
	eventually(t, "the node has no call any more", func() bool { return e.Node.Running() == 0 })
}
