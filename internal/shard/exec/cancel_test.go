package exec

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/shard/longsort"
)

// countdown is a context that ends when it has been looked at a number of times.
type countdown struct {
	context.Context
	left, after int
	err         error
}

func (c *countdown) Err() error {
	if c.left > 0 {
		c.left--
		return nil
	}
	c.after++
	return c.err
}

// TestSearchStopsSoonAfterItsContextEnds lets the context end in the middle of each kind of search: the next look at it must be the
// last, and looks come every checkEvery units of work.
func TestSearchStopsSoonAfterItsContextEnds(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	docs := make([]tdoc, 150_000)
	for i := range docs {
		docs[i].key = fmt.Sprintf("k%07d", i)
		docs[i].toks[2] = []string{"a", "b", fmt.Sprintf("p%d", i%50), "c"}[:2+i%3]
		docs[i].num = []int64{int64(i)}
	}
	leaves := []Leaf{newMemLeaf(docs, map[int]bool{7: true}, true)}
	term := func(w string) query.Node { return &query.Term{Field: "body", Text: w} }
	for name, q := range map[string]query.Node{
		"term":    term("a"),
		"or":      &query.Bool{Should: []query.Node{term("a"), term("b")}},
		"and":     &query.Bool{Must: []query.Node{term("a"), term("b")}},
		"not":     &query.Bool{Must: []query.Node{term("a")}, MustNot: []query.Node{term("c")}},
		"phrase":  &query.Phrase{Field: "body", Text: "a b"},
		"prefix":  &query.Prefix{Field: "body", Text: "p"},
		"nested":  &query.Bool{Must: []query.Node{term("a"), &query.Bool{Should: []query.Node{term("b"), &query.All{}}}}},
		"range":   &query.Range{Field: "n", Min: &query.Bound{Value: "3"}},
		"exists":  &query.Exists{Field: "n"},
		"all":     &query.All{},
		"nothing": &query.Bool{Must: []query.Node{term("a"), &query.Phrase{Field: "body", Text: "b a"}}},
	} {
		narrow := []query.Node{&query.Range{Field: "n", Min: &query.Bound{Value: "100"}}, &query.Prefix{Field: "body", Text: "p"}}
		for _, req := range []Request{
			{Query: q, Limit: 10},
			{Query: q},
			{Query: q, Limit: 10, Total: TotalNone, Exhaustive: true},
			{Query: q, Limit: 10, Filters: narrow},
			{Query: q, Limit: 10, Sort: []SortKey{{By: ByField, Field: "n", Desc: true}}},
			{Query: q, Limit: 10, Sort: []SortKey{{By: ByScore}}},
		} {
			if name == "all" && req.Limit == 0 {
				continue // counted without a look at any document
			}
			free := &countdown{Context: context.Background(), left: 1 << 30}
			if _, err := Search(free, leaves, sch, an, req); err != nil {
				t.Fatal(err)
			}
			looks := 1<<30 - free.left
			for _, at := range []int{0, looks / 2} {
				ctx := &countdown{Context: context.Background(), left: at, err: context.Canceled}
				_, err := Search(ctx, leaves, sch, an, req)
				if err == nil || ctx.after > 3 {
					t.Errorf("%s, %+v: error %v after %d of %d looks, %d more", name, req, err, at, looks, ctx.after)
				}
			}
		}
	}
}

// TestPassedDeadlineGivesWhatWasReached checks both sides of AllowPartial.
func TestPassedDeadlineGivesWhatWasReached(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	docs := make([]tdoc, 100_000)
	for i := range docs {
		docs[i].key = fmt.Sprintf("k%07d", i)
		docs[i].toks[2] = []string{"a"}
	}
	leaves := []Leaf{newMemLeaf(docs, nil, true)}
	req := Request{Query: &query.Prefix{Field: "body", Text: "a"}, Limit: 10, Exhaustive: true}
	late := func() context.Context {
		return &countdown{Context: context.Background(), left: 8, err: context.DeadlineExceeded}
	}
	if _, err := Search(late(), leaves, sch, an, req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	req.AllowPartial = true
	res, err := Search(late(), leaves, sch, an, req)
	if err != nil || !res.Partial || res.TotalRelation != AtLeast || res.Total == 0 || res.Total >= 100_000 {
		t.Fatalf("%+v %v", res, err)
	}
}

// TestPhraseLooksWithinADocument: the places of a phrase in one long document are work like many documents, also where the phrase is the
// first part of many, and an explanation does the same work.
func TestPhraseLooksWithinADocument(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	doc := tdoc{key: "k"}
	for range 140_000 {
		doc.toks[2] = append(doc.toks[2], "a", "b")
	}
	doc.toks[2] = append(doc.toks[2], "c")
	leaves := []Leaf{newMemLeaf([]tdoc{doc}, nil, true)}
	for _, text := range []string{"a b", "a b a b a c", "a b a b a b"} {
		for _, q := range []query.Node{
			&query.Phrase{Field: "body", Text: text},
			&query.Phrase{Field: "body", Text: text, Slop: 1},
			&query.Bool{Should: []query.Node{&query.Phrase{Field: "body", Text: text}, &query.Phrase{Field: "body", Text: "b a"}}},
		} {
			for name, run := range map[string]func(ctx context.Context) error{
				"search": func(ctx context.Context) error {
					_, err := Search(ctx, leaves, sch, an, Request{Query: q, Limit: 10})
					return err
				},
				"explain": func(ctx context.Context) error {
					x, err := NewExplainer(ctx, leaves, sch, an, Request{Query: q}, []Hit{{}})
					if err != nil {
						return err
					}
					defer x.Close()
					_, err = x.Explain(0)
					return err
				},
			} {
				free := &countdown{Context: context.Background(), left: 1 << 30}
				if err := run(free); err != nil {
					t.Fatal(err)
				}
				looks := 1<<30 - free.left
				if looks < 2 {
					t.Errorf("%s of %q: %d looks at the context", name, text, looks)
				}
				ctx := &countdown{Context: context.Background(), left: looks / 2, err: context.Canceled}
				if err := run(ctx); !errors.Is(err, context.Canceled) || ctx.after > 6 {
					t.Errorf("%s of %q: error %v after %d of %d looks, %d more", name, text, err, looks/2, looks, ctx.after)
				}
			}
		}
	}
}

// TestEveryCheckFailsOnceTheContextHasEnded: a query of many parts goes from one to the next, and must not work on each until the next
// look.
func TestEveryCheckFailsOnceTheContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &searcher{ctx: ctx}
	if err := s.check(checkEvery); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.check(checkEvery - 1); err != nil {
		t.Errorf("before the next look: %v", err)
	}
	for range 3 {
		if err := s.check(1); !errors.Is(err, context.Canceled) {
			t.Errorf("after it: %v", err)
		}
	}
}

// readLeaf counts the keys and values that are read.
type readLeaf struct {
	Leaf
	reads *int
}

func (l *readLeaf) Key(doc uint32, dst []byte) []byte {
	*l.reads++
	return l.Leaf.Key(doc, dst)
}

// readContext notes the most that was read between two looks.
type readContext struct {
	context.Context
	reads, most int
}

func (c *readContext) Err() error {
	c.most = max(c.most, c.reads)
	c.reads = 0
	return c.Context.Err()
}

// TestLongAnswersAreMadeWithLooksBetween: to put many hits in order, and to read their keys, is work like finding them.
func TestLongAnswersAreMadeWithLooksBetween(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	r := rand.New(rand.NewPCG(21, 22))
	var parts [2][]tdoc
	for i := range 30_000 {
		d := tdoc{key: fmt.Sprintf("k%07d", r.IntN(1<<20)<<17+i), num: []int64{int64(r.IntN(50))}, tag: []string{fmt.Sprintf("t%d", r.IntN(3))}}
		d.toks[2] = []string{"a"}
		parts[i%2] = append(parts[i%2], d)
	}
	for _, ordered := range []bool{true, false} {
		ctx := &readContext{Context: context.Background()}
		var leaves []Leaf
		for _, docs := range parts {
			if ordered {
				slices.SortFunc(docs, func(a, b tdoc) int { return strings.Compare(a.key, b.key) })
			} else {
				r.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
			}
			leaves = append(leaves, &readLeaf{newMemLeaf(docs, nil, ordered), &ctx.reads})
		}
		for _, q := range []query.Node{&query.All{}, &query.Term{Field: "body", Text: "a"}} {
			for _, order := range [][]SortKey{
				nil,
				{{By: ByScore}},
				{{By: ByID, Desc: true}},
				{{By: ByField, Field: "tag", Desc: true}, {By: ByField, Field: "n"}},
			} {
				const limit = 20_000
				req := Request{Query: q, Limit: limit, Sort: order}
				ctx.reads, ctx.most = 0, 0
				res, err := Search(ctx, leaves, sch, an, req)
				if err != nil || len(res.Hits) != limit {
					t.Fatal(err)
				}
				if most := max(ctx.most, ctx.reads); most > 40*longsort.Step {
					t.Errorf("%v by %v, in order of keys %v: %d keys read between two looks", show(q), order, ordered, most)
				}
				for i := range res.Hits[1:] {
					if CompareHits(order, &res.Hits[i], &res.Hits[i+1]) >= 0 {
						t.Fatalf("%v by %v: hits %d and %d are not in order", show(q), order, i, i+1)
					}
				}
			}
		}
	}
}

// TestPassedDeadlineKeepsALongAnswer: what was found before it is put in order behind it.
func TestPassedDeadlineKeepsALongAnswer(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	docs := make([]tdoc, 15_000)
	for i := range docs {
		docs[i].key, docs[i].num = fmt.Sprintf("k%07d", i), []int64{int64(i * 7919 % 15_013)}
		docs[i].toks[2] = []string{"a"}
	}
	leaves := []Leaf{newMemLeaf(docs, nil, true)}
	for _, order := range [][]SortKey{nil, {{By: ByField, Field: "n"}}, {{By: ByScore}}} {
		req := Request{Query: &query.Term{Field: "body", Text: "a"}, Limit: 10_000, Sort: order, AllowPartial: true, NoScores: true}
		free := &countdown{Context: context.Background(), left: 1 << 30}
		whole, err := Search(free, leaves, sch, an, req)
		if err != nil || whole.Partial {
			t.Fatal(whole, err)
		}
		looks := 1<<30 - free.left
		some := false
		for at := 1; at < looks; at += 1 + looks/9 {
			for _, why := range []error{context.DeadlineExceeded, context.Canceled} {
				res, err := Search(&countdown{Context: context.Background(), left: at, err: why}, leaves, sch, an, req)
				if why == context.Canceled {
					if !errors.Is(err, why) {
						t.Fatalf("order %v, look %d of %d: %v", order, at, looks, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("order %v, look %d of %d: %v", order, at, looks, err)
				}
				some = some || len(res.Hits) > 0
				for i := range res.Hits[min(1, len(res.Hits)):] {
					if CompareHits(order, &res.Hits[i], &res.Hits[i+1]) >= 0 {
						t.Fatalf("order %v, look %d: hits %d and %d are not in order", order, at, i, i+1)
					}
				}
			}
		}
		if !some {
			t.Errorf("order %v: no passed deadline left hits", order)
		}
	}
}

// lookContext counts the looks at it.
type lookContext struct {
	context.Context
	looks int
}

func (c *lookContext) Err() error {
	c.looks++
	return c.Context.Err()
}

// TestLongSearchesLetOthersRun: where a search looks at its context it gives the processor away for once, so that short work beside long
// searches does not wait until the scheduler interrupts each of them.
func TestLongSearchesLetOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	sch, an := testSchema(), testAnalyzers(t)
	docs := make([]tdoc, 100_000)
	for i := range docs {
		docs[i].key, docs[i].num = fmt.Sprintf("k%07d", i), []int64{int64(i * 7919 % 100_003)}
	}
	leaves := []Leaf{newMemLeaf(docs, nil, true)}
	var turns atomic.Int64
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				turns.Add(1)
				runtime.Gosched()
			}
		}
	}()
	ctx := &lookContext{Context: context.Background()}
	before := turns.Load()
	_, err := Search(ctx, leaves, sch, an, Request{Query: &query.All{}, Limit: MaxWindow, Sort: []SortKey{{By: ByField, Field: "n"}}})
	had := turns.Load() - before
	close(stop)
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	if ctx.looks < 100 || had < int64(ctx.looks/2) {
		t.Errorf("another goroutine had %d turns in a search with %d looks", had, ctx.looks)
	}
}
