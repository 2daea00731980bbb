package serve_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-search/weft/internal/serve"
)

// Page is the reply of every level: hits, best first, and what they were gathered from.
type Page struct {
	Hits  []Hit
	Tally serve.Tally
}

// Hit is one result.
type Hit struct {
	Score float64
	ID    string
}

// better is the order of pages: score descending, then id, so that no two hits are equal.
func better(a, b *Hit) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
}

// shard is a leaf in this process that has two hits for everything.
func shard(name string, scores ...float64) serve.Leaf[string, Page] {
	return serve.LeafFunc[string, Page](func(context.Context, string) (Page, error) {
		p := Page{Tally: serve.TallyOf(serve.Answered, 1)}
		for i, s := range scores { // sorted, as the contract of Leaf demands
			p.Hits = append(p.Hits, Hit{Score: s, ID: fmt.Sprint(name, i)})
		}
		return p, nil
	})
}

// node is a coordinator, be it the root or an aggregator.
func node(floor serve.Floor, children ...serve.Leaf[string, Page]) serve.Leaf[string, Page] {
	c, err := serve.NewCoordinator(serve.CoordinatorOptions[string, Page]{
		Children: children,
		Budget:   serve.Budget{Total: time.Second, Reserve: 10 * time.Millisecond},
		Floor:    floor,
		Merge: func(_ context.Context, _ string, g *serve.Gathered[Page]) (Page, error) {
			lists := make([][]Hit, len(g.Results))
			for i, p := range g.Results {
				lists[i] = p.Hits
			}
			hits, err := serve.MergeTopK(nil, lists, 3, better)
			return Page{Hits: hits, Tally: g.Tally()}, err
		},
		Tally: func(p Page) serve.Tally { return p.Tally },
	})
	if err != nil {
		panic(err)
	}
	return c
}

// A root over an aggregator and two shards, one of which is broken: three of four leaves are enough for one caller and too few for
// another.
func Example() {
	broken := serve.LeafFunc[string, Page](func(context.Context, string) (Page, error) {
		return Page{}, errors.New("disk on fire")
	})
	aggregator := node(serve.Floor{}, shard("a", 9, 4), shard("b", 7, 6))

	for _, fraction := range []float64{0.75, 1} {
		root := node(serve.Floor{Fraction: fraction}, aggregator, shard("c", 8, 2), broken)
		page, err := root.Call(context.Background(), "query")
		if err != nil {
			fmt.Println(err, errors.Is(err, serve.ErrInsufficientShards))
			continue
		}
		fmt.Println(page.Hits, page.Tally)
	}
	// Output:
	// [{9 a0} {8 c0} {7 b0}] 3 of 4 covered: 3 answered, 1 failed
	// too few shards answered: 3 of 4 covered: 3 answered, 1 failed true
}
