package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// page is a reply as the tests use it.
type page struct {
	Hits  []hit
	Tally Tally
}

func mergePages(_ context.Context, k int, g *Gathered[page]) (page, error) {
	lists := make([][]hit, len(g.Results))
	for i, p := range g.Results {
		lists[i] = p.Hits
	}
	hits, err := MergeTopK(nil, lists, k, compareHits)
	return page{hits, g.Tally()}, err
}

type pages = CoordinatorOptions[int, page]

// pageLeaf holds hits and answers with its best.
type pageLeaf struct {
	hits []hit // sorted
	stub
}

func (l *pageLeaf) Call(ctx context.Context, k int) (page, error) {
	if _, err := l.stub.Call(ctx, k); err != nil {
		return page{}, err
	}
	return page{Hits: l.hits[:min(k, len(l.hits))], Tally: TallyOf(Answered, 1)}, nil
}

func coordinator(t testing.TB, o pages) *Coordinator[int, page] {
	t.Helper()
	if o.Merge == nil {
		o.Merge = mergePages
	}
	if o.Tally == nil {
		o.Tally = func(p page) Tally { return p.Tally }
	}
	c, err := NewCoordinator(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pageLeaves(stubs ...stubOptions) []Leaf[int, page] {
	out := make([]Leaf[int, page], len(stubs))
	for i, s := range stubs {
		l := &pageLeaf{hits: []hit{{Score: float64(i), ID: i}}}
		l.after, l.err, l.panic = s.after, s.err, s.panic
		out[i] = l
	}
	return out
}

type stubOptions struct {
	after time.Duration
	err   error
	panic any
}

func ids(p page) (out []int) {
	for _, h := range p.Hits {
		out = append(out, h.ID)
	}
	return out
}

func TestCoordinatorMerges(t *testing.T) {
	c := coordinator(t, pages{Children: pageLeaves(stubOptions{}, stubOptions{}, stubOptions{})})
	p, err := c.Call(t.Context(), 2)
	if err != nil || !slices.Equal(ids(p), []int{2, 1}) || !p.Tally.Complete() || p.Tally.Total() != 3 {
		t.Fatalf("%+v, %v", p, err)
	}
}

func TestCoordinatorFloor(t *testing.T) {
	broken := stubOptions{err: errors.New("broken")}
	late := stubOptions{after: time.Hour}
	ok := stubOptions{}
	for name, c := range map[string]struct {
		floor    Floor
		children []stubOptions
		skip     func(int, int) bool
		want     []int // nil: insufficient
	}{
		"three of four pass 0.75":           {Floor{Fraction: 0.75}, []stubOptions{ok, late, ok, ok}, nil, []int{3, 2, 0}},
		"two of four do not":                {Floor{Fraction: 0.75}, []stubOptions{ok, late, ok, broken}, nil, nil},
		"one of four does not":              {Floor{Fraction: 0.75}, []stubOptions{late, late, ok, broken}, nil, nil},
		"a count that is met":               {Floor{Shards: 2}, []stubOptions{ok, late, ok, broken}, nil, []int{2, 0}},
		"a count that is not":               {Floor{Shards: 3}, []stubOptions{ok, late, ok, broken}, nil, nil},
		"a count above all there are":       {Floor{Shards: 5}, []stubOptions{ok, ok, ok, ok}, nil, nil},
		"both, the count fails":             {Floor{Fraction: 0.5, Shards: 3}, []stubOptions{ok, late, ok, broken}, nil, nil},
		"both, the fraction fails":          {Floor{Fraction: 0.9, Shards: 2}, []stubOptions{ok, ok, ok, broken}, nil, nil},
		"all of them":                       {Floor{Fraction: 1}, []stubOptions{ok, ok, ok}, nil, []int{2, 1, 0}},
		"all but one":                       {Floor{Fraction: 1}, []stubOptions{ok, ok, broken}, nil, nil},
		"no floor":                          {Floor{}, []stubOptions{broken, ok, broken}, nil, []int{1}},
		"no floor, but nothing":             {Floor{}, []stubOptions{broken, late}, nil, nil},
		"skipped with proof counts":         {Floor{Fraction: 1}, []stubOptions{ok, broken, broken}, func(_, i int) bool { return i > 0 }, []int{0}},
		"all skipped":                       {Floor{Fraction: 1}, []stubOptions{broken}, func(int, int) bool { return true }, []int{}},
		"no children":                       {Floor{Fraction: 1}, nil, nil, []int{}},
		"no children, but a count":          {Floor{Shards: 1}, nil, nil, nil},
		"seven of a hundred pass 0.07":      {Floor{Fraction: 0.07}, slices.Concat(slices.Repeat([]stubOptions{broken}, 93), slices.Repeat([]stubOptions{ok}, 7)), nil, []int{99, 98, 97, 96, 95, 94, 93}},
		"panics are missing, not the end":   {Floor{Fraction: 0.5}, []stubOptions{ok, {panic: "boom"}}, nil, []int{0}},
		"the leaf says that it cannot help": {Floor{Fraction: 1}, []stubOptions{ok, {err: outcomeError(Skipped)}}, nil, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				co := coordinator(t, pages{Children: pageLeaves(c.children...), Floor: c.floor, Skip: c.skip, Budget: Budget{Total: time.Second}})
				p, err := co.Call(t.Context(), 10)
				if c.want != nil {
					if err != nil || !slices.Equal(ids(p), c.want) || p.Tally.Total() != len(c.children) {
						t.Fatalf("%+v, %v", p, err)
					}
					return
				}
				e, ok := errors.AsType[*InsufficientError](err)
				if !ok || !errors.Is(err, ErrInsufficientShards) || e.Floor != c.floor {
					t.Fatalf("%v", err)
				}
				if len(e.Outcomes) != len(c.children) || len(e.Errs) != len(c.children) || len(e.Took) != len(c.children) || e.Tally.Total() != len(c.children) {
					t.Fatalf("%+v", e)
				}
				for i, s := range c.children {
					want := Answered
					switch {
					case s.err != nil || s.panic != nil:
						want = Failed
					case s.after > 0:
						want = TimedOut
					}
					if e.Outcomes[i] != want || (e.Errs[i] == nil) != (want == Answered) {
						t.Errorf("child %d: %v %v", i, e.Outcomes[i], e.Errs[i])
					}
				}
				if !strings.Contains(err.Error(), "covered") {
					t.Error(err)
				}
			})
		})
	}
}

func TestCoordinatorFloorOfARequest(t *testing.T) {
	c := coordinator(t, pages{
		Children: pageLeaves(stubOptions{}, stubOptions{err: errors.New("broken")}),
		Floor:    Floor{Fraction: 1},
		FloorOf:  func(k int) Floor { return Floor{Shards: k} },
	})
	if _, err := c.Call(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), 2); !errors.Is(err, ErrInsufficientShards) {
		t.Fatal(err)
	}
}

func TestCoordinatorSplits(t *testing.T) {
	var asked [3]int
	children := make([]Leaf[int, page], 3)
	for i := range children {
		children[i] = LeafFunc[int, page](func(_ context.Context, req int) (page, error) {
			asked[i] = req
			return page{}, nil
		})
	}
	c := coordinator(t, pages{Children: children, Split: func(req, i int) int { return req + 10*i }})
	if _, err := c.Call(t.Context(), 5); err != nil || asked != [3]int{5, 15, 25} {
		t.Fatal(asked, err)
	}
}

// TestCoordinatorCancel has callers that leave: the work of every leaf stops at that instant, nothing runs on, and the error is what
// ended the caller.
func TestCoordinatorCancel(t *testing.T) {
	why := errors.New("hung up")
	for name, cause := range map[string]error{"plain": nil, "with a cause": why} {
		for _, parallel := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s, %d at once", name, parallel), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var running, left atomic.Int64
					children := make([]Leaf[int, page], 6)
					for i := range children {
						children[i] = LeafFunc[int, page](func(ctx context.Context, _ int) (page, error) {
							if i == 0 {
								return page{}, nil // one has answered: the floor alone would hold
							}
							running.Add(1)
							defer running.Add(-1)
							<-ctx.Done()
							left.Add(1)
							return page{}, context.Cause(ctx)
						})
					}
					inner := coordinator(t, pages{Children: children, Parallel: parallel, Budget: Budget{Reserve: time.Millisecond}})
					root := coordinator(t, pages{Children: []Leaf[int, page]{inner, inner}, Budget: Budget{Total: time.Hour}})
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(3*time.Second, func() { cancel(cause) })
					begin := time.Now()
					_, err := root.Call(ctx, 10)
					if time.Since(begin) != 3*time.Second || running.Load() != 0 || left.Load() == 0 {
						t.Errorf("after %v, %d still running, %d left", time.Since(begin), running.Load(), left.Load())
					}
					if !errors.Is(err, context.Canceled) || cause != nil && !errors.Is(err, cause) || errors.Is(err, ErrInsufficientShards) {
						t.Errorf("error is %v", err)
					}
					if _, err := root.Call(ctx, 10); !errors.Is(err, context.Canceled) {
						t.Errorf("of a caller that had left: %v", err)
					}
				})
			})
		}
	}
}

// TestCoordinatorDeadline: the end of the caller's time is the end of the slow shards; what the others said is used if it is enough.
func TestCoordinatorDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		children := pageLeaves(stubOptions{}, stubOptions{after: time.Hour})
		for _, c := range []struct {
			floor Floor
			ok    bool
		}{{Floor{}, true}, {Floor{Fraction: 1}, false}} {
			co := coordinator(t, pages{Children: children, Floor: c.floor})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			p, err := co.Call(ctx, 10)
			cancel()
			if (err == nil) != c.ok || c.ok && (p.Tally.Count(TimedOut) != 1 || p.Tally.Covered() != 1) {
				t.Errorf("%+v: %+v, %v", c.floor, p, err)
			}
			if !c.ok && (!errors.Is(err, ErrInsufficientShards) || OutcomeOf(err) != TimedOut) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestCoordinatorMergeSeesWhatIsMissing(t *testing.T) {
	broken, bad := errors.New("broken"), errors.New("bad merge")
	c := coordinator(t, pages{
		Children: pageLeaves(stubOptions{}, stubOptions{err: broken}),
		Merge: func(_ context.Context, req int, g *Gathered[page]) (page, error) {
			if req != 3 || !slices.Equal(g.Outcomes, []Outcome{Answered, Failed}) || g.Errs[1] != broken || g.Complete() || g.Fraction() != 0.5 {
				t.Errorf("%d, %+v", req, g)
			}
			return page{}, bad
		},
	})
	if _, err := c.Call(t.Context(), 3); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	unsorted := LeafFunc[int, page](func(context.Context, int) (page, error) {
		return page{Hits: []hit{{Score: 1}, {Score: 2}}}, nil
	})
	c = coordinator(t, pages{Children: []Leaf[int, page]{unsorted}})
	if _, err := c.Call(t.Context(), 3); err == nil || OutcomeOf(err) != Failed {
		t.Fatal(err)
	}
}

func TestNewCoordinatorValidates(t *testing.T) {
	merge := mergePages
	good := pages{Merge: merge, Children: pageLeaves(stubOptions{})}
	for name, change := range map[string]func(*pages){
		"no merge":             func(o *pages) { o.Merge = nil },
		"no child":             func(o *pages) { o.Children = []Leaf[int, page]{nil} },
		"canary without class": func(o *pages) { o.Canary = NewCanary(CanaryOptions{}) },
		"share":                func(o *pages) { o.Budget.Share = 2 },
		"floor above one":      func(o *pages) { o.Floor.Fraction = 1.5 },
		"floor below zero":     func(o *pages) { o.Floor.Shards = -1 },
		"size below zero":      func(o *pages) { o.Children = []Leaf[int, page]{sizedLeaf(-1)} },
		"size beyond counting": func(o *pages) { o.Children = []Leaf[int, page]{sizedLeaf(maxTally + 1)} },
	} {
		o := good
		change(&o)
		if c, err := NewCoordinator(o); err == nil || c != nil {
			t.Errorf("%s: passes", name)
		}
	}
	if _, err := NewCoordinator(good); err != nil {
		t.Error(err)
	}
}

// sizedLeaf is a leaf that stands for several and is out of reach.
type sizedLeaf int

func (n sizedLeaf) Leaves() int { return int(n) }
func (n sizedLeaf) Call(context.Context, int) (page, error) {
	return page{}, outcomeError(Unavailable)
}

// TestAccountingOfLevels: the floor at the root and the tally of the page speak of leaves.
func TestAccountingOfLevels(t *testing.T) {
	ok, broken, late := stubOptions{}, stubOptions{err: errors.New("broken")}, stubOptions{after: time.Hour}
	budget := Budget{Reserve: time.Second}
	inner := func(floor Floor, s ...stubOptions) Leaf[int, page] {
		return coordinator(t, pages{Children: pageLeaves(s...), Floor: floor, Budget: budget})
	}
	half := Floor{Fraction: 0.5}
	for name, c := range map[string]struct {
		children []Leaf[int, page]
		want     Tally
	}{
		"a leaf beside trees": {
			[]Leaf[int, page]{inner(half, ok, ok, broken), pageLeaves(ok)[0], inner(half, ok, late)},
			TallyOf(Answered, 4).Plus(TallyOf(Failed, 1)).Plus(TallyOf(TimedOut, 1)),
		},
		"a tree below its floor is lost with what it had": {
			[]Leaf[int, page]{inner(half, ok, ok), inner(half, ok, late, late, broken)},
			TallyOf(Answered, 2).Plus(TallyOf(TimedOut, 3)).Plus(TallyOf(Failed, 1)),
		},
		"a tree out of reach is lost whole": {
			[]Leaf[int, page]{inner(half, ok, ok), sizedLeaf(5)},
			TallyOf(Answered, 2).Plus(TallyOf(Unavailable, 5)),
		},
		"a tree that is empty weighs nothing": {
			[]Leaf[int, page]{inner(half, ok), inner(half)},
			TallyOf(Answered, 1),
		},
		"a reply that cannot count": {
			[]Leaf[int, page]{inner(half, ok), LeafFunc[int, page](func(context.Context, int) (page, error) {
				return page{Tally: TallyOf(Answered, -3)}, nil
			})},
			TallyOf(Answered, 1).Plus(TallyOf(Failed, 1)),
		},
		"a reply that does not count": {
			[]Leaf[int, page]{inner(half, ok), LeafFunc[int, page](func(context.Context, int) (page, error) { return page{}, nil })},
			TallyOf(Answered, 2),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				root := coordinator(t, pages{Children: c.children, Budget: budget})
				if root.Leaves() != c.want.Total() {
					t.Errorf("%d leaves", root.Leaves())
				}
				p, err := root.Call(ctx, 10)
				if err != nil || p.Tally != c.want {
					t.Fatalf("%v, %v; want %v", p.Tally, err, c.want)
				}
				// The floor of the root: just met, and just missed.
				for _, shards := range []int{c.want.Covered(), c.want.Covered() + 1} {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					root := coordinator(t, pages{Children: c.children, Budget: budget, Floor: Floor{Shards: shards}})
					_, err := root.Call(ctx, 10)
					if (err == nil) != (shards == c.want.Covered()) {
						t.Errorf("floor of %d: %v", shards, err)
					}
					if e, ok := errors.AsType[*InsufficientError](err); ok && e.Tally != c.want {
						t.Errorf("floor of %d: %v", shards, e.Tally)
					}
				}
			})
		})
	}
}

// TestWithoutTallyAReplyStandsForItsLeaves: a coordinator that is not told how to read a reply trusts it, but not a missing one.
func TestWithoutTallyAReplyStandsForItsLeaves(t *testing.T) {
	inner := coordinator(t, pages{Children: pageLeaves(stubOptions{}, stubOptions{})})
	root, err := NewCoordinator(pages{Children: []Leaf[int, page]{inner, sizedLeaf(3)}, Merge: mergePages})
	if err != nil {
		t.Fatal(err)
	}
	p, err := root.Call(t.Context(), 1)
	if err != nil || p.Tally != TallyOf(Answered, 2).Plus(TallyOf(Unavailable, 3)) {
		t.Fatal(p.Tally, err)
	}
}

// TestCoordinatorOfLeavesNeedsNoTally: one level needs no more than the outcomes.
func TestCoordinatorOfLeavesNeedsNoTally(t *testing.T) {
	c, err := NewCoordinator(pages{Children: pageLeaves(stubOptions{}, stubOptions{err: outcomeError(Refused)}), Merge: mergePages})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := c.Call(t.Context(), 1); err != nil || p.Tally != TallyOf(Answered, 1).Plus(TallyOf(Refused, 1)) || c.Leaves() != 2 {
		t.Fatal(p.Tally, err)
	}
}

// TestNestedTreeEqualsFlatOne builds trees of random shape over the same leaves, some of which fail or are late: the page and the
// accounting are those of a flat fan-out, byte for byte.
func TestNestedTreeEqualsFlatOne(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 19))
			lists := randomLists(r, 1+r.IntN(25), 12, 4, 1<<30)
			leaves := make([]Leaf[int, page], len(lists))
			for i, l := range lists {
				leaf := &pageLeaf{hits: l}
				switch r.IntN(6) {
				case 0:
					leaf.err = outcomeError(TimedOut + Outcome(r.IntN(4)))
				case 1:
					leaf.after = time.Hour
				case 2:
					leaf.after = time.Duration(r.IntN(1000)) * time.Millisecond
				}
				leaves[i] = leaf
			}
			budget := Budget{Reserve: 100 * time.Millisecond}
			var build func(leaves []Leaf[int, page], depth int) Leaf[int, page]
			build = func(leaves []Leaf[int, page], depth int) Leaf[int, page] {
				children := leaves
				if depth > 0 {
					children = nil
					for len(leaves) > 0 {
						n := 1 + r.IntN(len(leaves))
						if r.IntN(4) == 0 {
							children = append(children, leaves[:n]...) // leaves and coordinators side by side
						} else {
							children = append(children, build(leaves[:n], r.IntN(depth)))
						}
						leaves = leaves[n:]
					}
				}
				return coordinator(t, pages{Children: children, Budget: budget})
			}
			call := func(l Leaf[int, page], k int) []byte {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				p, err := l.Call(ctx, k)
				if e, ok := errors.AsType[*InsufficientError](err); ok {
					return fmt.Appendf(nil, "insufficient: %v", e.Tally)
				}
				return fmt.Appendf(nil, "%+v %v %v", p.Hits, p.Tally, err)
			}
			tree := build(leaves, 3)
			for _, k := range []int{0, 1, 10, 1000} {
				flat := call(coordinator(t, pages{Children: leaves, Budget: budget}), k)
				if nested := call(tree, k); !bytes.Equal(nested, flat) {
					t.Fatalf("seed %d, k %d:\nnested %s\nflat   %s", seed, k, nested, flat)
				}
			}
		})
	}
}
