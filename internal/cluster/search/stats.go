package search

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// maxRounds is how often a search is made until the statistics that it used are those that the shards have.
const maxRounds = 3

// Notes about statistics.
const (
	NoteStatsMoved = "the statistics of the index changed faster than they could be asked for; scores are made with those of a moment before"
	NoteStatsLost  = "the statistics of shards that did not answer are not known; scores are made without them, or with those of a moment before"
)

// statsKey names a query as far as its statistics depend on it.
type statsKey [16]byte

// remembered is what is known of the statistics of a query.
type remembered struct {
	sum *score.Stats // the last that was seen; nil: it has more terms than shards give beside a search
}

// key is what the statistics of the query are remembered by.
func (x *execution) key() statsKey {
	var b []byte
	for _, text := range append([]string{x.req.Index, x.query.Root.String()}, x.prepared.fields...) {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return xxh3.Hash128(b).Bytes()
}

// remember keeps a sum for the searches to come.
func (x *execution) remember(key statsKey, sum *score.Stats) {
	var size int64
	if sum != nil {
		const word, field = 64, 64
		for t := range sum.DF {
			size += word + int64(len(t.Field)+len(t.Text))
		}
		for f := range sum.Fields {
			size += field + int64(len(f))
		}
	}
	x.s.stats.Set(key, &remembered{sum}, size, 0)
}

// same tells whether two sums are one. What is 0 may be left out.
func same(a, b *score.Stats) bool {
	return a.Docs == b.Docs && within(a.DF, b.DF) && within(b.DF, a.DF) && within(a.Fields, b.Fields) && within(b.Fields, a.Fields)
}

// within tells whether b has all that a has.
func within[K, V comparable](a, b map[K]V) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// know asks for the statistics that are needed before anything is searched.
func (x *execution) know(ctx context.Context) error {
	chosen, shown := x.prepared.survey.Chosen, x.showsUnscored()
	if x.stats != nil || !chosen && !shown && !x.req.Profile {
		return nil
	}
	root := x.query.Root
	if chosen && len(x.req.Filters) > 0 {
		root = &query.Bool{Should: append([]query.Node{root}, x.req.Filters...)}
	}
	reply, err := x.statistics(ctx, root)
	if err != nil {
		return err
	}
	if reply == nil {
		return nil
	}
	x.whole = &reply.Stats
	if chosen || shown || !x.req.DFS && oneShard(reply.Below) {
		x.stats, err = x.installed(ctx, x.whole)
	}
	return err
}

// installed is what shards are given to score with. Of more than they take it is what the scores are made with: of a prefix the words that
// score decide.
func (x *execution) installed(ctx context.Context, whole *score.Stats) (*score.Stats, error) {
	if len(whole.DF) <= leaf.MaxStatsTerms {
		return whole, nil
	}
	r := exec.Request{Query: x.query.Root, DefaultFields: x.prepared.fields, Stats: whole}
	return exec.Scoring(ctx, x.prepared.sch, x.prepared.analyzers, r)
}

// showsUnscored tells whether statistics of the whole are shown though no score is made with them: an explanation has them for what stands
// under a NOT as well.
func (x *execution) showsUnscored() bool {
	vectors := x.req.KNN != nil
	return x.req.Explain && !x.prepared.survey.Scored && (x.req.DFS || vectors) && !(vectors && x.query.Everything)
}

// statistics asks for the sum over all shards; nil where the time was over and the caller takes what was reached.
func (x *execution) statistics(ctx context.Context, root query.Node) (*leaf.StatsReply, error) {
	// A shard that says nothing must not take the time of the search as well.
	caller := ctx
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-time.Until(end)/2))
		defer cancel()
	}
	reply, err := x.s.member.Stats(ctx, &leaf.StatsRequest{Index: x.req.Index, View: lenient, Query: root, DefaultFields: x.prepared.fields})
	if err != nil {
		x.lap(bound.StageStatistics, nil)
		if isTimeout(err) && caller.Err() == nil || x.tolerate(err) {
			x.phases.lose(bound.StageStatistics, x.belowOf(err))
			x.doubt(NoteStatsLost)
			return nil, nil
		}
		return nil, err
	}
	x.lap(bound.StageStatistics, &reply.Meta)
	if lost(reply.Below) {
		x.phases.lose(bound.StageStatistics, reply.Below)
		x.doubt(NoteStatsLost)
	}
	return reply, nil
}

// doubt says that the statistics are not those of the whole.
func (x *execution) doubt(note string) {
	x.inexact = true
	x.rank.notes.Add(note)
}

// sure says that they are, whatever was feared before.
func (x *execution) sure() {
	if x.inexact {
		x.inexact = false
		x.phases.regain(bound.StageStatistics)
		x.rank.notes = slices.DeleteFunc(x.rank.notes, func(n string) bool { return n == NoteStatsLost || n == NoteStatsMoved })
	}
}

// lexical runs a ranking by the query. whole asks for scores with the statistics of the whole.
func (x *execution) lexical(ctx context.Context, r *leaf.SearchRequest, whole bool) (*leaf.SearchReply, error) {
	reply, err := x.scored(ctx, r, whole && x.prepared.survey.Scored && r.Limit > 0)
	if err != nil {
		if !x.tolerate(err) {
			return nil, err
		}
		x.phases.missed(x, err)
		return &leaf.SearchReply{TotalRelation: exec.AtLeast}, nil
	}
	x.rank.notes = append(x.rank.notes, reply.Notes...)
	x.rank.local = x.stats == nil && !oneShard(reply.Below) && slices.Contains(reply.Approximate, leaf.ApproximateLocal)
	x.phases.searched(x, &reply.Meta, reply.Docs, reply.Partial)
	return reply, nil
}

// search makes a call of the member. Sources that are too long to come with the hits may be short enough for the page alone.
func (x *execution) search(ctx context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
	x.memory.chosen() // an earlier round is not used any more
	reply, err := x.s.member.Search(ctx, r)
	if r.Show != nil && isTooLarge(err) {
		r.Show = nil
		reply, err = x.s.member.Search(ctx, r)
	}
	x.rounds++
	if err != nil {
		x.lap(bound.StageSearch, nil)
		return nil, err
	}
	x.lap(bound.StageSearch, &reply.Meta)
	x.s.shards.Store(shardsOf(reply.Below))
	return reply, nil
}

// shardsOf is how many shards an answer is about.
func shardsOf(b *leaf.Below) int64 {
	if b == nil {
		return 1
	}
	return int64(b.Shards.Total)
}

// oneShard tells whether an answer came from one shard, whose statistics are those of the whole.
func oneShard(b *leaf.Below) bool { return b == nil || b.Shards.Total == 1 && b.Shards.Failed == 0 }

// scored runs a ranking, with the statistics of the whole where whole asks for it.
func (x *execution) scored(ctx context.Context, r *leaf.SearchRequest, whole bool) (*leaf.SearchReply, error) {
	if x.stats != nil { // those of the page before, so that all pages are cut from one ranking
		r.Stats, r.KeepStats = x.stats, false
		return x.search(ctx, r)
	}
	if !whole || x.s.shards.Load() == 1 && x.whole == nil {
		reply, err := x.search(ctx, r)
		if err != nil {
			return nil, err
		}
		if !whole || oneShard(reply.Below) {
			x.stats = reply.Stats
			return reply, nil
		}
	}
	return x.exact(ctx, r)
}

// exact runs a ranking with the statistics of the whole, and sees to it that they are.
func (x *execution) exact(ctx context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
	r.KeepStats = false
	key := x.key()
	sum := x.whole
	known, remembered := x.s.stats.Get(key)
	switch {
	case remembered && known.sum == nil:
		return x.twice(ctx, r, key)
	case sum == nil && remembered:
		sum = known.sum
	case sum == nil:
		reply, err := x.statistics(ctx, x.query.Root)
		if err != nil {
			return nil, err
		}
		if reply == nil { // there is no time left for them
			return x.search(ctx, r)
		}
		sum = &reply.Stats
	}
	for round := 1; ; round++ {
		var err error
		if r.Stats, err = x.installed(ctx, sum); err != nil {
			return nil, err
		}
		r.LocalStats = true
		reply, err := x.search(ctx, r)
		if err != nil {
			return nil, err
		}
		x.stats = r.Stats
		now := reply.LocalStats
		switch {
		case now != nil && same(now, sum):
			x.sure()
			if known == nil || known.sum != sum {
				x.remember(key, sum)
			}
			return reply, nil
		case now == nil && (lost(reply.Below) || reply.Partial):
			x.doubt(NoteStatsLost)
			return reply, nil
		case now == nil:
			x.remember(key, nil)
			return x.twice(ctx, r, key)
		}
		x.remember(key, now)
		if round == maxRounds {
			x.doubt(NoteStatsMoved)
			return reply, nil
		}
		x.s.counts.repeated.Add(1)
		sum = now
	}
}

// twice runs a ranking with statistics that are asked for each time, for they have too many terms to come with the hits.
func (x *execution) twice(ctx context.Context, r *leaf.SearchRequest, key statsKey) (*leaf.SearchReply, error) {
	stats, err := x.statistics(ctx, x.query.Root)
	if err != nil {
		return nil, err
	}
	for round := 1; ; round++ {
		if stats == nil {
			return x.search(ctx, r)
		}
		if r.Stats, err = x.installed(ctx, &stats.Stats); err != nil {
			return nil, err
		}
		r.LocalStats = false
		reply, err := x.search(ctx, r)
		if err != nil {
			return nil, err
		}
		x.stats = r.Stats
		if len(stats.Stats.DF) <= leaf.MaxLocalStats/2 { // by now there are few enough
			x.s.stats.Delete(key)
		}
		if x.inexact || stats.Snapshot.Instance != 0 && stats.Snapshot == reply.Snapshot {
			return reply, nil
		}
		if lost(reply.Below) || reply.Partial {
			x.doubt(NoteStatsLost)
			return reply, nil
		}
		// Other copies of the shards may have answered, which hold the same. Where what holds now held before, it did between.
		after, err := x.statistics(ctx, x.query.Root)
		if err != nil {
			return nil, err
		}
		switch {
		case after == nil || x.inexact || same(&after.Stats, &stats.Stats):
			return reply, nil
		case round == maxRounds:
			x.doubt(NoteStatsMoved)
			return reply, nil
		}
		x.s.counts.repeated.Add(1)
		stats = after
	}
}

// isTooLarge tells whether a reply would have been too large.
func isTooLarge(err error) bool { return hasCode(err, api.ReplyTooLarge) }
