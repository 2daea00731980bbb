package oracletest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/summa"
)

// Diagnosed makes a request that asks for votes of reciprocal ranks, a trace, or both, which neither Request, Nominations nor Scored do.
func (w World) Diagnosed(docs int) *summapb.SearchRequest {
	var req *summapb.SearchRequest
	switch w.IntN(4) {
	case 0:
		req = w.Scored(docs)
	case 1:
		req = w.Nominations(docs)
	default:
		req = w.Request(docs, false)
	}
	req.Tracing = w.IntN(2) == 0
	if f := req.Query.GetFusion(); f != nil {
		req.TimeBudgetMs = 0
		req.IncludeRrfScores = w.IntN(4) > 0 || !req.Tracing
		for _, q := range f.Queries {
			if q.Name == "" && w.IntN(2) == 0 {
				q.Name = w.One([]string{"a", "a", "bé", strings.Repeat("n", 128)})
			}
			if q.Scope == 0 {
				q.Scope = summapb.ScoreScope(w.IntN(3))
			}
		}
	} else {
		req.Tracing = true
	}
	return req
}

// nomination is what a branch finds before anything is ranked.
type nomination struct {
	hits []ohit
	seen int
}

// lists are those of the branches of a fusion, or that of a query that is none.
func (r *running) lists(req *summapb.SearchRequest, w summa.Window) (out []nomination) {
	f := req.Query.GetFusion()
	if f == nil {
		n := nomination{}
		if c := r.clause(req.Query); c.kind != oNothing && c.kind != oStops {
			n.hits, n.seen = r.run(c, nil, w.Candidates)
		}
		return []nomination{n}
	}
	r.k = w.Depth
	var filters []*clause
	for _, q := range f.Filters {
		filters = append(filters, r.clause(q))
	}
	for i, q := range f.Queries {
		n := nomination{}
		if c := r.clause(q.Query); !q.ScoreOnly && c.kind != oNothing && c.kind != oStops {
			n.hits, n.seen = r.nominate(i, c, filters, w.Depth)
		}
		out = append(out, n)
	}
	return out
}

// Diagnosis is Differs for requests with votes of reciprocal ranks and traces, which are checked besides.
func (o *Oracle) Diagnosis(req *summapb.SearchRequest, w summa.Window, got *summapb.SearchResponse, leaf func(segment string) int) string {
	f := req.Query.GetFusion()
	plain := proto.CloneOf(got)
	if plain != nil && f.GetMethod() != summapb.FusionMethod_FUSION_CANDIDATES || plain != nil && (req.L1 != nil || req.ScoreExport != nil) {
		plain.FusionCandidates = nil
	}
	if diff := o.Differs(req, w, plain, leaf); diff != "" || got == nil {
		return diff
	}
	r := o.running(req, w, o.docs)
	lists := r.lists(req, w)
	at := map[Place]*odoc{}
	for _, d := range o.docs {
		at[Place{"", d.leaf, d.doc}] = d
	}
	var have, want []string
	candidate := func(c *summapb.FusionCandidate) string {
		s := fmt.Sprintf("%d %d %s", leaf(c.GetAddress().GetSegmentId()), c.GetAddress().GetDocId(), Score(c.GetScore()))
		for _, x := range c.GetOrdinalScores() {
			s += fmt.Sprintf(" (%d %s)", x.Ordinal, Score(x.Score))
		}
		return s
	}
	ours := func(h ohit) string {
		s := fmt.Sprintf("%d %d %s", h.d.leaf, h.d.doc, Score(h.score))
		for _, x := range h.rows {
			s += fmt.Sprintf(" (%d %s)", x.ordinal, Score(x.score))
		}
		return s
	}
	// The lists that votes are made of.
	if req.IncludeRrfScores {
		for _, l := range got.FusionCandidates {
			have = append(have, fmt.Sprint("nominated by ", l.QueryIndex))
			for _, c := range l.Candidates {
				have = append(have, candidate(c))
			}
		}
		for i, n := range lists {
			if f.Queries[i].ScoreOnly {
				continue
			}
			want = append(want, fmt.Sprint("nominated by ", i))
			for _, h := range n.hits {
				want = append(want, ours(h))
			}
		}
	}
	scored := req.L1 != nil || req.ScoreExport != nil
	votes := rrfVotes(f, lists, scored)
	for _, h := range got.Hits {
		d := at[Place{"", leaf(h.Address.GetSegmentId()), h.Address.GetDocId()}]
		line := fmt.Sprint("votes for ", d.key)
		have, want = append(have, line), append(want, line)
		if h.RrfScore != nil {
			have = append(have, "sum "+Score(*h.RrfScore))
		}
		for _, v := range h.RrfContributions {
			line := fmt.Sprintf("branch %d %q rank %d %s", v.QueryIndex, v.QueryName, v.Rank, Score(v.Score))
			if v.Ordinal != nil {
				line += fmt.Sprint(" for ", *v.Ordinal)
			}
			have = append(have, line)
		}
		if mine := votes[d]; req.IncludeRrfScores && len(mine) > 0 {
			want = append(want, "sum "+Score(rrfSum(f, mine)))
			for _, v := range mine {
				line := fmt.Sprintf("branch %d %q rank %d %s", v.branch, f.Queries[v.branch].Name, v.rank, Score(v.score))
				if !v.whole {
					line += fmt.Sprint(" for ", v.ordinal)
				}
				want = append(want, line)
			}
		}
	}
	if req.Tracing {
		want = append(want, fmt.Sprintf("trace of %q, %q, %t", req.IndexName, got.RankingMethod, got.Truncated))
		for i, n := range lists {
			q := &summapb.QueryTrace{QueryIndex: uint32(i), Query: req.Query, CandidateDepth: uint32(w.Candidates), TotalSeen: uint32(n.seen)}
			if f != nil {
				b := f.Queries[i]
				q.Query, q.QueryName, q.Scope, q.ScoreOnly, q.CandidateDepth = b.Query, b.Name, b.Scope, b.ScoreOnly, uint32(w.Depth)
			}
			want = append(want, wire(q))
			for _, h := range n.hits {
				want = append(want, ours(h))
			}
		}
		want = append(want, "selected")
		for _, h := range got.Hits {
			want = append(want, candidate(&summapb.FusionCandidate{Address: h.Address, Score: h.Score, OrdinalScores: h.OrdinalScores}))
		}
		for _, q := range f.GetFilters() {
			want = append(want, "filter "+wire(q))
		}
	}
	for _, s := range got.GetTrace().GetShards() {
		have = append(have, fmt.Sprintf("trace of %q%s%s, %q, %t", s.IndexName, s.ShardId, s.BackendId, s.RankingMethod, s.Truncated))
		for _, q := range s.Queries {
			list := q.Candidates
			bare := proto.CloneOf(q)
			bare.Candidates = nil
			have = append(have, wire(bare))
			for _, c := range list {
				have = append(have, candidate(c))
			}
		}
		have = append(have, "selected")
		for _, c := range s.Selected {
			have = append(have, candidate(c))
		}
		for _, q := range s.Filters {
			have = append(have, "filter "+wire(q))
		}
	}
	for i := range max(len(have), len(want)) {
		x, y := "-", "-"
		if i < len(have) {
			x = have[i]
		}
		if i < len(want) {
			y = want[i]
		}
		if x != y {
			return fmt.Sprintf("%d: got  %s\n   want %s", i, x, y)
		}
	}
	return ""
}

// wire prints a message as it is sent, which tells apart whatever differs.
func wire(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", b)
}

// rrfVote is what a branch gives a passage of a document, or, with whole, all of it.
type rrfVote struct {
	branch, rank int
	ordinal      uint32
	whole        bool
	score        float32
}

// rrfVotes ranks what each branch nominated. scored says that a formula or an export was asked for: then branches of documents vote for those,
// and else everything is a passage, of ordinal 0 where there is none.
func rrfVotes(f *summapb.FusionQuery, lists []nomination, scored bool) map[*odoc][]rrfVote {
	out := map[*odoc][]rrfVote{}
	for i, n := range lists {
		if f == nil || f.Queries[i].ScoreOnly {
			continue
		}
		whole := scored && f.Queries[i].Scope == summapb.ScoreScope_SCORE_SCOPE_DOCUMENT
		best := map[*odoc]map[uint32]float32{}
		var list []ohit
		put := func(d *odoc, ordinal uint32, score float32) {
			if best[d] == nil {
				best[d] = map[uint32]float32{}
			}
			if s, ok := best[d][ordinal]; ok && s >= score {
				return
			}
			best[d][ordinal] = score
		}
		for _, h := range n.hits {
			if whole || len(h.rows) == 0 {
				put(h.d, 0, h.score)
				continue
			}
			for _, x := range h.rows {
				put(h.d, x.ordinal, x.score)
			}
		}
		for d, rows := range best {
			for o, s := range rows {
				list = append(list, ohit{d, s, []orow{{0, o, s}}})
			}
		}
		slices.SortFunc(list, func(a, b ohit) int {
			return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.d.leaf, b.d.leaf), cmp.Compare(a.d.doc, b.d.doc), cmp.Compare(a.rows[0].ordinal, b.rows[0].ordinal))
		})
		for k, h := range list {
			s := float32(cmp.Or(f.Queries[i].Weight, 1) * (1 / float32(cmp.Or(f.RrfK, 60)+float32(k+1))))
			out[h.d] = append(out[h.d], rrfVote{i, k + 1, h.rows[0].ordinal, whole, s})
		}
	}
	for _, votes := range out {
		slices.SortStableFunc(votes, func(a, b rrfVote) int {
			switch {
			case a.whole != b.whole && a.whole:
				return -1
			case a.whole != b.whole:
				return 1
			}
			return cmp.Or(cmp.Compare(a.ordinal, b.ordinal), cmp.Compare(a.branch, b.branch))
		})
	}
	return out
}

// rrfSum adds the votes for a document up: those for a passage in order of branch, and then those for all of it.
func rrfSum(f *summapb.FusionQuery, votes []rrfVote) float32 {
	var rows []orow
	for _, v := range votes {
		if v.whole {
			continue
		}
		if n := len(rows); n == 0 || rows[n-1].ordinal != v.ordinal {
			rows = append(rows, orow{0, v.ordinal, v.score})
		} else {
			rows[n-1].score += v.score
		}
	}
	var whole float32
	for _, v := range votes {
		if v.whole {
			whole += v.score
		}
	}
	for i := range rows {
		rows[i].score += whole
	}
	if len(rows) == 0 {
		return whole
	}
	c := ocombiner{kind: f.Combiner}
	if c.kind == 0 || c.kind > summapb.MultiValueCombiner_COMBINER_WEIGHTED_TOP_K {
		c.kind = summapb.MultiValueCombiner_COMBINER_MAX
	}
	return c.of(rows)
}
