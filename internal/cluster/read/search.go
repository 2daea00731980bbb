package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Search is leaf.Leaf.Search. Total is the sum of what the shards counted, exact if each of them is: with exec.TotalAtLeast every shard
// counts up to the floor, so that a sum which is no lower bound is no less exact than that of one node. Stats are those of the
// request; without any, those of the only shard, or none. LocalStats are the sum over the shards, nil if one is missing or gave none.
func (r *Reader) Search(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return answer(ctx, r, func(c *running, p *plan) (*leaf.SearchReply, error) {
		g, err := everywhere(r, c, p, opSearch, req)
		if err != nil {
			return nil, err
		}
		return r.mergeSearch(c, g, req)
	})
}

func (r *Reader) mergeSearch(c *running, g *gathered[leaf.SearchReply], req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	compare := func(a, b *leaf.Hit) int { return leaf.CompareHits(req.Sort, a, b) }
	hits := func(r *leaf.SearchReply) []leaf.Hit { return r.Hits }
	best, twice, err := mergeTop(r, c, opSearch, g, req.Limit, hits, compare, func(h *leaf.Hit) string { return h.ID })
	if err != nil {
		return nil, err
	}
	r.duplicates.Add(uint64(twice))
	out := &leaf.SearchReply{Hits: make([]leaf.Hit, len(best))}
	if req.Show != nil {
		out.Shown = make([]leaf.Shown, len(best))
	}
	for i, b := range best {
		of := g.parts[b.part].reply
		out.Hits[i] = of.Hits[b.at]
		if req.Show != nil && int(b.at) < len(of.Shown) {
			out.Shown[i] = of.Shown[b.at]
		}
	}
	for i := range g.parts {
		of := g.parts[i].reply
		if of == nil {
			continue
		}
		out.Docs += of.Docs
		out.Total += of.Total
		if out.TotalRelation != exec.AtLeast {
			out.TotalRelation = cmp.Or(of.TotalRelation, out.TotalRelation)
		}
		out.Partial = out.Partial || of.Partial
		out.Notes = unite(out.Notes, of.Notes)
		if out.Plan == nil {
			out.Plan = of.Plan
		}
	}
	if req.Total != exec.TotalNone {
		out.Total -= min(uint64(twice), out.Total)
		out.TotalRelation = cmp.Or(out.TotalRelation, exec.Exactly) // no shard has the index any more
	}
	if req.KeepStats {
		out.Stats = usedStats(g, req.Stats)
	}
	if req.LocalStats {
		out.LocalStats = localStats(g)
	}
	out.Meta = describe(r, opSearch, g)
	return out, nil
}

// usedStats are the statistics that the scores of an answer were made with: those given, or those of the only shard.
func usedStats(g *gathered[leaf.SearchReply], given *score.Stats) *score.Stats {
	var own *score.Stats
	scored := 0
	for i := range g.parts {
		if of := g.parts[i].reply; of != nil && of.Stats != nil {
			own = of.Stats
			scored++
		}
	}
	switch {
	case scored == 0:
		return nil
	case given != nil:
		return given
	case scored > 1:
		return nil
	}
	return own
}

// localStats is the sum of the statistics of the shards; nil if it is not known.
func localStats(g *gathered[leaf.SearchReply]) *score.Stats {
	var sum *score.Stats
	for i := range g.parts {
		of := &g.parts[i]
		switch {
		case !of.outcome.Covered():
			return nil
		case of.reply == nil: // it holds nothing
		case of.reply.LocalStats == nil || holed(&of.reply.Meta):
			return nil
		default:
			if sum == nil {
				sum = &score.Stats{}
			}
			sum.Add(of.reply.LocalStats)
		}
	}
	if sum != nil && len(sum.DF) > leaf.MaxLocalStats {
		return nil
	}
	return sum
}

// holed tells whether a shard below a coordinator is missing from its answer.
func holed(m *leaf.Meta) bool { return m.Below != nil && m.Below.Shards.Failed > 0 }

// ranked is an element of the list of one part.
type ranked[T any] struct {
	item *T
	part int32
	at   int32
}

// mergeTop returns the best k of the lists of all parts, an id that stands in several of them once, where it is best; twice counts the
// others. A part whose list is not in order, or has an id twice, has failed: it is left out.
func mergeTop[Q, R, T any](
	r *Reader, c *running, o *op[Q, R], g *gathered[R], k int, list func(*R) []T, compare func(a, b *T) int, id func(*T) string,
) (best []ranked[T], twice int, err error) {
	size := 0
	for i := range g.parts {
		if of := g.parts[i].reply; of != nil {
			size += len(list(of))
		}
	}
	all := make([]ranked[T], 0, size)
	lists := make([][]ranked[T], len(g.parts))
	for i := range g.parts {
		of := &g.parts[i]
		if of.reply == nil {
			continue
		}
		from, items := len(all), list(of.reply)
		for at := range items {
			// The merge would see it only as far as it reads.
			if at > 0 && compare(&items[at-1], &items[at]) > 0 {
				of.fail(&serve.UnsortedError{List: i, Position: at})
				if err := anyAnswer(r, c, o, g); err != nil {
					return nil, 0, err
				}
				all = all[:from]
				break
			}
			all = append(all, ranked[T]{&items[at], int32(i), int32(at)})
		}
		lists[i] = all[from:]
	}
	for {
		best, twice, err = mergeOnce(lists, k, compare, id)
		repeats, ok := errors.AsType[*repeatError](err)
		if !ok {
			break
		}
		g.parts[repeats.part].fail(repeats)
		if err := anyAnswer(r, c, o, g); err != nil {
			return nil, 0, err
		}
		lists[repeats.part] = nil
	}
	return best, twice, err
}

// repeatError says that the list of a part has an id twice.
type repeatError struct {
	part int32
	id   string
}

func (e *repeatError) Error() string { return fmt.Sprintf("the list has %q twice", e.id) }

// anyAnswer is nil as long as a group has answered.
func anyAnswer[Q, R any](r *Reader, c *running, o *op[Q, R], g *gathered[R]) error {
	for i := range g.parts {
		if g.parts[i].outcome == serve.Answered {
			return nil
		}
	}
	return uncovered(r, c, o, g)
}

func mergeOnce[T any](lists [][]ranked[T], k int, compare func(a, b *T) int, id func(*T) string) (best []ranked[T], twice int, err error) {
	for want := k; ; {
		best, err = serve.MergeTopK(best[:0], lists, want, func(a, b *ranked[T]) int { return compare(a.item, b.item) })
		if err != nil {
			return nil, 0, err
		}
		taken := len(best)
		if best, err = once(best, id); err != nil {
			return nil, 0, err
		}
		twice = taken - len(best)
		// Those that were taken out leave room for as many.
		if len(best) >= k || taken < want {
			return best[:min(len(best), max(k, 0))], twice, nil
		}
		want = k + twice
	}
}

// fewHits is up to how many hits each is held against all before it, which for more takes longer than a table.
const fewHits = 24

// once takes out those whose id an earlier one of another part has. An earlier one of the same part is an error.
func once[T any](list []ranked[T], id func(*T) string) ([]ranked[T], error) {
	if len(list) <= fewHits {
		out := list[:0]
	next:
		for _, e := range list {
			for _, had := range out {
				if id(had.item) != id(e.item) {
					continue
				}
				if had.part == e.part {
					return nil, &repeatError{e.part, id(e.item)}
				}
				continue next
			}
			out = append(out, e)
		}
		return out, nil
	}
	seen := make(map[string]int32, len(list))
	out := list[:0]
	for _, e := range list {
		key := id(e.item)
		part, had := seen[key]
		switch {
		case !had:
			seen[key] = e.part
			out = append(out, e)
		case part == e.part:
			return nil, &repeatError{e.part, key}
		}
	}
	return out, nil
}
