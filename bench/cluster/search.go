package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// arm is a way to ask: a system, and whether the scores are to be those of the whole index.
type arm struct {
	*system
	title  string
	dfs    bool
	bodies [][][]byte // by class

	// times by clients, class and round.
	times map[int][][][]time.Duration
	spent map[int]int64 // hundredths of a second of processor time of all processes
	calls map[int]int
}

// settled are flags of all nodes: what is in memtables is searched otherwise than segments are, so searches begin when all has been written.
var settled = []string{"--idle-flush", "500ms"}

// warmRounds go before the measured ones.
const warmRounds = 2

// searches measures all classes over a corpus.
func (b *bench) searches(ctx context.Context, c *corpus) (err error) {
	b.say("%s: %d documents", c.name, c.n)
	systems, stop, err := b.beside(3, 1, settled, settled)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	b.print("\n### %s: searches over %d documents\n\n", capital(c.name), c.n)
	for _, s := range systems {
		took, err := s.load(ctx, index, c, b.bulkLines)
		if err != nil {
			return err
		}
		b.say("%s: loaded in %.1f s", s.name, took.Seconds())
	}
	if err := rest(ctx, systems...); err != nil {
		return err
	}
	var facts []string
	for _, s := range systems {
		n, err := s.segments(ctx)
		if err != nil {
			return err
		}
		now, _ := s.memory()
		facts = append(facts, fmt.Sprintf("%s %d segments, %d MiB", s.name, n, now))
	}
	classes := queries(c)
	if b.classes != nil {
		classes = slices.DeleteFunc(classes, func(k class) bool { return !slices.Contains(b.classes, k.name) })
	}
	arms, err := makeArms(systems, classes)
	if err != nil {
		return err
	}
	if err := b.agree(ctx, arms, classes); err != nil {
		return err
	}
	b.print("After the load: %s.\n", strings.Join(facts, "; "))
	for range warmRounds {
		if err := b.round(ctx, arms, classes, 1, false); err != nil {
			return err
		}
	}
	for _, n := range b.clients {
		b.say("%s: %d clients at once", c.name, n)
		if err := b.flip(systems); err != nil {
			return err
		}
		for range b.rounds {
			if err := b.round(ctx, arms, classes, n, true); err != nil {
				return err
			}
		}
		if err := b.flip(systems); err != nil {
			return err
		}
		b.table(c, arms, classes, n)
	}
	return nil
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// beside starts a node, and brokers over so many shards.
func (b *bench) beside(shards, members int, ofNode, ofShards []string) (list []*system, stop func() error, err error) {
	stop = func() error {
		var errs []error
		for _, s := range list {
			errs = append(errs, s.stop())
		}
		return errors.Join(errs...)
	}
	s, err := b.node(ofNode...)
	if err != nil {
		return nil, nil, err
	}
	list = append(list, s)
	for _, name := range b.arms {
		if name != framed && name != overGRPC {
			return nil, nil, errors.Join(fmt.Errorf("-arms: there is no %q; there are %s and %s", name, framed, overGRPC), stop())
		}
		if s, err = b.cluster(name, shards, members, ofShards...); err != nil {
			return nil, nil, errors.Join(err, stop())
		}
		list = append(list, s)
	}
	return list, stop, nil
}

// flip begins or ends the profiles of all processes, if there are any.
func (b *bench) flip(systems []*system) error {
	if b.profile == "" {
		return nil
	}
	var errs []error
	for _, s := range systems {
		for _, p := range s.parts {
			errs = append(errs, p.flip())
		}
	}
	return errors.Join(errs...)
}

// makeArms has each broker twice, the second time with dfs.
func makeArms(systems []*system, classes []class) (out []*arm, err error) {
	for i, s := range systems {
		for _, dfs := range []bool{false, true}[:1+min(i, 1)] {
			a := &arm{system: s, title: s.name, dfs: dfs, times: map[int][][][]time.Duration{}, spent: map[int]int64{}, calls: map[int]int{}}
			if dfs {
				a.title += ", dfs"
			}
			for k := range classes {
				bodies, err := classes[k].bodies(dfs)
				if err != nil {
					return nil, fmt.Errorf("encode queries: %w", err)
				}
				a.bodies = append(a.bodies, bodies)
			}
			out = append(out, a)
		}
	}
	return out, nil
}

// round sends every query to every arm, class by class. The arms begin in another order each time.
func (b *bench) round(ctx context.Context, arms []*arm, classes []class, clients int, count bool) error {
	for k := range classes {
		b.seen++
		for i := range arms {
			a := arms[(i+b.seen)%len(arms)]
			before := a.ticks()
			times, err := a.pass(ctx, a.bodies[k], clients)
			if err != nil {
				return err
			}
			if !count {
				continue
			}
			a.spent[clients] += a.ticks() - before
			a.calls[clients] += len(times)
			if a.times[clients] == nil {
				a.times[clients] = make([][][]time.Duration, len(classes))
			}
			a.times[clients][k] = append(a.times[clients][k], times)
		}
	}
	return nil
}

// pass sends queries by several clients at once, each of which takes the next one that nobody has sent.
func (a *arm) pass(ctx context.Context, bodies [][]byte, clients int) ([]time.Duration, error) {
	times := make([]time.Duration, len(bodies))
	errs := make([]error, clients)
	var next atomic.Int64
	var wg sync.WaitGroup
	work := func(client int) {
		c := caller{s: a.system}
		for {
			i := int(next.Add(1)) - 1
			if i >= len(bodies) || errs[client] != nil {
				return
			}
			times[i], errs[client] = c.search(ctx, bodies[i])
		}
	}
	for i := 1; i < clients; i++ {
		wg.Go(func() { work(i) })
	}
	work(0)
	wg.Wait()
	return times, errors.Join(errs...)
}

// answer is what has to be the same in the replies of all arms.
type answer struct {
	Total    json.Number `json:"total"`
	Coverage struct {
		Complete bool `json:"complete"`
	} `json:"coverage"`
	Hits []struct {
		ID     string          `json:"id"`
		Score  json.Number     `json:"score"`
		Source json.RawMessage `json:"source"`
	} `json:"hits"`
	Facets json.RawMessage `json:"facets"`
	Aggs   json.RawMessage `json:"aggs"`
}

// agree holds the answers of brokers against those of the node: all of it with dfs, else all but scores and what depends on them.
func (b *bench) agree(ctx context.Context, arms []*arm, classes []class) error {
	n, differ := 0, 0
	ask := func(a *arm, body []byte) (answer, error) {
		c := caller{s: a.system}
		var out answer
		if _, err := c.search(ctx, body); err != nil {
			return out, err
		}
		if err := json.Unmarshal(c.buf.Bytes(), &out); err != nil {
			return out, fmt.Errorf("%s: read the reply: %w", a.title, err)
		}
		if !out.Coverage.Complete {
			return out, fmt.Errorf("%s: the reply is not complete: %s", a.title, body)
		}
		return out, nil
	}
	for k := range classes {
		for i := range classes[k].queries {
			want, err := ask(arms[0], arms[0].bodies[k][i])
			if err != nil {
				return err
			}
			for _, a := range arms[1:] {
				got, err := ask(a, a.bodies[k][i])
				if err != nil {
					return err
				}
				if classes[k].approx {
					continue
				}
				n++
				if !same(&want, &got, a.dfs) {
					differ++
					b.say("%s: %s: another answer than the node's", a.title, a.bodies[k][i])
				}
			}
		}
	}
	b.print("Answers of brokers held against the node's, ids and scores too where dfs is asked for: %d, of which %d differ. ", n, differ)
	if differ > 0 {
		return errors.New("brokers answer otherwise than the node")
	}
	return nil
}

func same(x, y *answer, scores bool) bool {
	if x.Total != y.Total || !bytes.Equal(x.Facets, y.Facets) || !bytes.Equal(x.Aggs, y.Aggs) || len(x.Hits) != len(y.Hits) {
		return false
	}
	if !scores {
		return true
	}
	for i := range x.Hits {
		if x.Hits[i].ID != y.Hits[i].ID || x.Hits[i].Score != y.Hits[i].Score || !bytes.Equal(x.Hits[i].Source, y.Hits[i].Source) {
			return false
		}
	}
	return true
}

// figures of one arm and class.
type figures struct{ p50, p90, p99 time.Duration }

func figuresOf(rounds [][]time.Duration) figures {
	all := slices.Concat(rounds...)
	slices.Sort(all)
	return figures{quantile(all, 0.5), quantile(all, 0.9), quantile(all, 0.99)}
}

// table prints the times of all arms, their ratios to the node, and takes note of the marks.
func (b *bench) table(c *corpus, arms []*arm, classes []class, clients int) {
	b.print("\n#### %s\n\nMicroseconds, p50 / p90 / p99 of %d searches each, and the p50 and p99 over those of the node.\n\n", atATime(clients), b.rounds*perClass)
	b.print("| class |")
	for i, a := range arms {
		b.print(" %s |", a.title)
		if i > 0 {
			b.print(" p50 | p99 |")
		}
	}
	b.print("\n|---|")
	for i := range arms {
		b.print("--:|")
		if i > 0 {
			b.print("--:|--:|")
		}
	}
	b.print("\n")
	ratios := make([][2][]float64, len(arms))
	for k := range classes {
		base := figuresOf(arms[0].times[clients][k])
		b.print("| %s |", classes[k].name)
		for i, a := range arms {
			f := figuresOf(a.times[clients][k])
			b.print(" %s / %s / %s |", micros(f.p50), micros(f.p90), micros(f.p99))
			if i > 0 {
				p50, p99 := over(f.p50, base.p50), over(f.p99, base.p99)
				b.print(" %.2f | %.2f |", p50, p99)
				ratios[i][0], ratios[i][1] = append(ratios[i][0], p50), append(ratios[i][1], p99)
			}
		}
		b.print("\n")
	}
	b.print("| **geometric mean** |")
	for i := range arms {
		b.print(" |")
		if i > 0 {
			b.print(" **%.2f** | **%.2f** |", geomean(ratios[i][0]), geomean(ratios[i][1]))
		}
	}
	b.print("\n| **CPU of all processes, a search** |")
	for i, a := range arms {
		b.print(" %.0f |", cpu(a, clients))
		if i > 0 {
			b.print(" **%.2f** | |", cpu(a, clients)/cpu(arms[0], clients))
		}
	}
	b.print("\n")
	for i, a := range arms[1:] {
		what := fmt.Sprintf("%s, %s, %s: ", c.name, a.title, atATime(clients))
		r := ratios[i+1]
		perRound := spread(b.perRound(arms[0], a, clients))
		if a.dfs {
			b.marks = append(b.marks, mark{what + "p50 over the node's", 1.5, geomean(r[0]), perRound})
			continue
		}
		b.marks = append(b.marks, mark{what + "p50 over the node's", 1, geomean(r[0]), perRound}, mark{what + "p99 over the node's", 1.2, geomean(r[1]), ""})
	}
}

func atATime(clients int) string {
	if clients == 1 {
		return "one at a time"
	}
	return fmt.Sprintf("%d at a time", clients)
}

// cpu is the processor time of a search in microseconds.
func cpu(a *arm, clients int) float64 {
	return float64(a.spent[clients]) * 10_000 / float64(max(a.calls[clients], 1))
}

func over(x, y time.Duration) float64 { return float64(x) / float64(y) }

func micros(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d.Nanoseconds())/1000) }

// perRound are the geometric means over the classes of p50 over the node's p50, by round.
func (b *bench) perRound(base, a *arm, clients int) (out []float64) {
	for r := range b.rounds {
		var list []float64
		for k := range base.times[clients] {
			list = append(list, over(figuresOf(a.times[clients][k][r:r+1]).p50, figuresOf(base.times[clients][k][r:r+1]).p50))
		}
		out = append(out, geomean(list))
	}
	return out
}
