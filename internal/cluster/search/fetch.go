package search

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/leaf"
)

// mostInline is up to how many hits of a page the search brings sources with it.
const mostInline = 50

// Notes about what is shown of hits.
const (
	NoteNotFetched = "what is to be shown of hits could not be read from shards that did not answer"
	noteVanished   = " of the hits were deleted while the search was under way and are left out"
	noteVanished1  = " of the hits was deleted while the search was under way and is left out"
)

// wants tells what is to be shown of hits besides their place, and whether that is anything.
func (x *execution) wants() (show leaf.Show, any bool) {
	show.Source = !x.prepared.bound.Pick.Nothing()
	if show.Source {
		show.Fields = x.req.Fields
	}
	show.Highlight, show.Explain = x.req.Highlight, x.req.Explain
	return show, show.Source || show.Highlight != nil || show.Explain
}

// brought is of how many hits each of so many shards is to give the sources with a page of the given length: what it has on the page as a
// rule, and a standard deviation more where documents lie on shards at random. To read a source takes longer than to find a hit, so that all
// of them from every shard would cost more than to ask once more for what is still lacking. 0 is of all.
func brought(limit, shards int) int {
	if shards < 2 {
		return 0
	}
	mean := float64(limit) / float64(shards)
	return min(int(math.Ceil(mean+math.Sqrt(mean*(1-1/float64(shards))))), limit)
}

// inline tells whether the search is to bring sources with it.
func (x *execution) inline() bool {
	show, _ := x.wants()
	return show.Source && show.Highlight == nil && !show.Explain && x.req.KNN == nil && x.req.Offset == 0 && x.req.Limit > 0 && x.req.Limit <= mostInline
}

// fetch reads what is to be shown of the hits and puts it to them.
func (x *execution) fetch(ctx context.Context) ([]bound.Shown, *api.Problem) {
	defer x.watch.UpTo(bound.StageFetch)
	docs := x.rank.shown
	if show, any := x.wants(); any {
		var err error
		if docs, err = x.complete(ctx, docs, show); err != nil {
			return nil, x.placed(ctx, err)
		}
	}
	if prob := x.charge(ctx, docs); prob != nil {
		return nil, prob
	}
	out := make([]bound.Shown, 0, len(x.rank.hits))
	gone := 0
	for i := range x.rank.hits {
		h := &x.rank.hits[i]
		one := bound.Shown{ID: h.ID, Score: h.Score, Sort: h.Sort}
		if x.rank.votes != nil {
			one.Votes = &x.rank.votes[i]
		}
		if docs != nil {
			d := &docs[i]
			if d.Missing && !x.phases.lostIn(bound.StageFetch) {
				gone++
				continue
			}
			one.Source, one.Highlight = d.Source, d.Highlight
			var prob *api.Problem
			if one.Explain, prob = x.tree(h, one.Votes, d); prob != nil {
				return nil, prob
			}
		}
		out = append(out, one)
	}
	switch {
	case gone == 1:
		x.rank.notes.Add("1" + noteVanished1)
	case gone > 1:
		x.rank.notes.Add(strconv.Itoa(gone) + noteVanished)
	}
	return out, nil
}

// complete asks for what did not come with the search. Without any source there is none to ask for: the index keeps none.
func (x *execution) complete(ctx context.Context, docs []leaf.Shown, show leaf.Show) ([]leaf.Shown, error) {
	var lacking []int
	for i := range x.rank.hits {
		if docs == nil || docs[i].Source == nil {
			lacking = append(lacking, i)
		}
	}
	if len(lacking) == 0 || docs != nil && len(lacking) == len(docs) {
		return docs, nil
	}
	got, err := x.ask(ctx, show, lacking)
	if err != nil || docs == nil {
		return got, err
	}
	for k := range got {
		docs[lacking[k]] = got[k]
	}
	return docs, nil
}

// ask fetches what is to be shown of the hits at the given places. Where the time was over and the caller takes what was reached, it is
// nothing.
func (x *execution) ask(ctx context.Context, show leaf.Show, places []int) ([]leaf.Shown, error) {
	req := &leaf.FetchRequest{Index: x.req.Index, View: lenient, Show: show, DefaultFields: x.prepared.fields}
	if show.Highlight != nil || show.Explain {
		req.Query, req.Filters = x.root(), x.req.Filters
	}
	if show.Explain {
		req.Stats, req.KNN = x.stats, x.req.KNN
	}
	docs := make([]leaf.Shown, 0, len(places))
	for part := range slices.Chunk(places, leaf.MaxFetch) {
		req.IDs = make([]string, len(part))
		for i, at := range part {
			req.IDs[i] = x.rank.hits[at].ID
		}
		reply, err := x.s.member.Fetch(ctx, req)
		if err != nil {
			if !x.tolerate(err) && !x.unreachable(err) {
				return nil, err
			}
			x.phases.lose(bound.StageFetch, x.belowOf(err))
			x.rank.notes.Add(NoteNotFetched)
			return nil, nil
		}
		x.lap(bound.StageFetch, &reply.Meta)
		if lost(reply.Below) {
			x.phases.lose(bound.StageFetch, reply.Below)
			x.rank.notes.Add(NoteNotFetched)
		}
		for _, n := range reply.Notes {
			x.rank.notes.Add(n)
		}
		docs = append(docs, reply.Docs...)
	}
	return docs, nil
}

// unreachable tells whether an error means that shards are missing from a phase behind the search, and the caller takes the rest. That there
// is no memory for their answers is not their doing.
func (x *execution) unreachable(err error) bool {
	if _, ok := errors.AsType[*admit.Refusal](err); ok {
		return false
	}
	return x.req.AllowPartial != api.No && leaf.ClassOf(err) == leaf.Elsewhere && !isTimeout(err)
}

// lostIn tells whether a phase lost shards.
func (a *accounting) lostIn(phase string) bool {
	for i := range a.lost {
		if a.lost[i].Phase == phase {
			return true
		}
	}
	return false
}

// charge holds what is shown of documents against the limits of a reply, and charges it.
func (x *execution) charge(ctx context.Context, docs []leaf.Shown) *api.Problem {
	most := x.s.o.ReplyBytes
	var sources, fragments, trees int64
	for i := range docs {
		d := &docs[i]
		sources, fragments, trees = sources+int64(len(d.Source)), fragments+int64(len(d.Highlight)), trees+int64(len(d.Lexical)+len(d.Vector))
		switch {
		case sources > most:
			return bound.LongSources(most)
		case fragments > most:
			return bound.LongFragments(most)
		case trees > most:
			return bound.LongTrees(most)
		}
	}
	x.memory.chosen()
	if err := x.s.shows(&x.memory, sources+fragments+trees); err != nil {
		return x.s.problem(ctx, err)
	}
	return nil
}

// tree is how the score of a hit was made; nil without explain.
func (x *execution) tree(h *leaf.Hit, votes *bound.Votes, d *leaf.Shown) ([]byte, *api.Problem) {
	switch {
	case !x.req.Explain:
		return nil, nil
	case x.req.KNN == nil:
		return d.Lexical, nil
	case x.query.Everything:
		return d.Vector, nil
	case d.Missing:
		return nil, nil
	}
	b, err := bound.AppendFused(nil, x.req, h.Score, votes,
		func(b []byte) ([]byte, error) { return append(b, d.Lexical...), nil },
		func(b []byte) ([]byte, error) { return append(b, d.Vector...), nil })
	if err != nil {
		return nil, x.s.problem(context.Background(), err)
	}
	return b, nil
}
