package coordinate_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
)

// The oracle does what the contract says in the plainest way: over maps, one passage after another, with nothing of the code that is tested
// and nothing of what that stands on.

// spot is a passage.
type spot struct {
	segment      string
	doc, ordinal uint32
}

// world is what the branches of a search find in all shards together.
type world struct {
	r        *rand.Rand
	fusion   *summapb.FusionQuery
	shards   int
	docs     []*summapb.SearchHit // with their fields
	shard    map[*summapb.SearchHit]int
	found    []map[*summapb.SearchHit]*summapb.FusionCandidate // by branch
	document []map[*summapb.SearchHit]float32                  // cells of documents, by branch
	cells    []map[*summapb.SearchHit]map[uint32]float32       // of passages
	rows     map[*summapb.SearchHit][]uint32
}

func (w *world) score() float32 {
	switch w.r.IntN(3) {
	case 0:
		return float32(w.r.IntN(4)) / 2 // ties
	case 1:
		return -float32(w.r.IntN(3))
	}
	return w.r.Float32()*8 - 2
}

// newWorld draws documents, branches, and what they find. scored says that branches have scopes.
func newWorld(r *rand.Rand, scored bool) *world {
	w := &world{r: r, shards: 1 + r.IntN(5), fusion: &summapb.FusionQuery{Combiner: summapb.MultiValueCombiner(r.IntN(5))}, shard: map[*summapb.SearchHit]int{}, rows: map[*summapb.SearchHit][]uint32{}}
	for shard := range w.shards {
		for range r.IntN(3) {
			segment := fmt.Sprintf("%032x", r.Uint64())
			for doc := range uint32(r.IntN(7)) {
				h := &summapb.SearchHit{Address: &summapb.DocAddress{SegmentId: segment, DocId: doc * uint32(1+r.IntN(3))}}
				if slices.ContainsFunc(w.docs, func(o *summapb.SearchHit) bool { return proto.Equal(o.Address, h.Address) }) {
					continue
				}
				h.Fields = map[string]*summapb.FieldValueList{"id": {Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_U64{U64: r.Uint64()}}}}}
				h.ProtoReflect().SetUnknown([]byte{0xf8, 0x3e, byte(r.IntN(100))}) // field 1007
				w.docs = append(w.docs, h)
				w.shard[h] = shard
			}
		}
	}
	for i := range 1 + r.IntN(4) {
		b := &summapb.WeightedQuery{Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}}
		if scored {
			b.Name = string(rune('a' + i))
			b.Scope = summapb.ScoreScope(1 + r.IntN(2))
			b.ScoreOnly = i > 0 && r.IntN(4) == 0
		} else if r.IntN(2) == 0 {
			b.Weight = float32(r.IntN(4)) / 3
		}
		w.fusion.Queries = append(w.fusion.Queries, b)
		w.find(b, scored)
	}
	return w
}

// find draws what a branch nominates, and its cells.
func (w *world) find(b *summapb.WeightedQuery, scored bool) {
	found := map[*summapb.SearchHit]*summapb.FusionCandidate{}
	document, cells := map[*summapb.SearchHit]float32{}, map[*summapb.SearchHit]map[uint32]float32{}
	for _, h := range w.docs {
		if w.r.IntN(3) == 0 {
			continue
		}
		c := &summapb.FusionCandidate{Address: h.Address, Score: w.score()}
		whole := scored && b.Scope == summapb.ScoreScope_SCORE_SCOPE_DOCUMENT
		rows := map[uint32]float32{}
		if !whole && (scored || w.r.IntN(3) > 0) {
			for range 1 + w.r.IntN(4) {
				o := &summapb.OrdinalScore{Ordinal: uint32(w.r.IntN(5)), Score: w.score()}
				if _, twice := rows[o.Ordinal]; twice && scored {
					continue
				}
				c.OrdinalScores = append(c.OrdinalScores, o)
				rows[o.Ordinal] = o.Score
			}
		}
		if !b.ScoreOnly {
			found[h] = c
		}
		switch {
		case whole:
			document[h] = c.Score
			for o := range w.r.IntN(3) { // which the vote does not go by
				c.OrdinalScores = append(c.OrdinalScores, &summapb.OrdinalScore{Ordinal: uint32(o), Score: w.score()})
			}
		case scored && (!b.ScoreOnly || len(w.rows[h]) > 0):
			cells[h] = rows
			for o := range rows {
				if !slices.Contains(w.rows[h], o) {
					w.rows[h] = append(w.rows[h], o)
				}
			}
		}
	}
	w.found, w.document, w.cells = append(w.found, found), append(w.document, document), append(w.cells, cells)
}

// union are the documents that a branch nominates.
func (w *world) union() []*summapb.SearchHit {
	return slices.DeleteFunc(slices.Clone(w.docs), func(h *summapb.SearchHit) bool {
		return !slices.ContainsFunc(w.found, func(m map[*summapb.SearchHit]*summapb.FusionCandidate) bool { return m[h] != nil })
	})
}

func (w *world) whole(branch int, scored bool) bool {
	return scored && w.fusion.Queries[branch].Scope == summapb.ScoreScope_SCORE_SCOPE_DOCUMENT
}

func weightOf(b *summapb.WeightedQuery) float32 {
	if b.Weight == 0 {
		return 1
	}
	return b.Weight
}

// vote is what a branch gives to a passage, or to a document.
type vote struct {
	branch  int
	rank    int
	ordinal uint32
	whole   bool
	score   float32
}

// votes are the contributions of the branches to each document, in their order.
func (w *world) votes(sum, scored bool) map[string][]vote {
	out := map[string][]vote{}
	for branch, found := range w.found {
		best := map[spot]float32{}
		for h, c := range found {
			at := spot{segment: h.Address.SegmentId, doc: h.Address.DocId}
			if len(c.OrdinalScores) == 0 || w.whole(branch, scored) {
				best[at] = c.Score
				continue
			}
			for _, o := range c.OrdinalScores {
				at.ordinal = o.Ordinal
				if s, some := best[at]; !some || o.Score > s {
					best[at] = o.Score
				}
			}
		}
		order := slices.Collect(maps.Keys(best))
		sort.Slice(order, func(i, j int) bool {
			a, b := order[i], order[j]
			switch {
			case best[a] != best[b]:
				return best[a] > best[b]
			case a.segment != b.segment:
				return a.segment < b.segment
			case a.doc != b.doc:
				return a.doc < b.doc
			}
			return a.ordinal < b.ordinal
		})
		weight := weightOf(w.fusion.Queries[branch])
		for i, at := range order {
			v := vote{branch: branch, rank: i + 1, ordinal: at.ordinal, whole: w.whole(branch, scored)}
			high, low := best[order[0]], best[order[len(order)-1]]
			switch {
			case !sum:
				k := w.fusion.RrfK
				if k == 0 {
					k = 60
				}
				v.score = weight * (1 / (k + float32(i+1)))
			case high == low:
				v.score = weight
			default:
				a := weight * (best[at] - low)
				v.score = a * (1 / (high - low))
			}
			key := fmt.Sprint(at.segment, at.doc)
			out[key] = append(out[key], v)
		}
	}
	return out
}

func keyOf(a *summapb.DocAddress) string { return fmt.Sprint(a.SegmentId, a.DocId) }

// passages are the sums of votes by passage, and what the whole document has.
func passages(votes []vote) (rows map[uint32]float32, whole float32) {
	rows = map[uint32]float32{}
	for _, v := range votes {
		if v.whole {
			whole += v.score
		} else {
			rows[v.ordinal] += v.score
		}
	}
	for o := range rows {
		rows[o] += whole
	}
	return rows, whole
}

// combine is the combiner of the fusion over rows by ordinal.
func (w *world) combine(rows map[uint32]float32) float32 {
	var list []float32
	for _, o := range slices.Sorted(maps.Keys(rows)) {
		list = append(list, rows[o])
	}
	if len(list) == 1 {
		return list[0]
	}
	switch w.fusion.Combiner {
	case summapb.MultiValueCombiner_COMBINER_AVG, summapb.MultiValueCombiner_COMBINER_SUM:
		sum := list[0]
		for _, s := range list[1:] {
			sum += s
		}
		if w.fusion.Combiner == summapb.MultiValueCombiner_COMBINER_AVG {
			return sum / float32(len(list))
		}
		return sum
	case summapb.MultiValueCombiner_COMBINER_WEIGHTED_TOP_K:
		slices.SortFunc(list, func(a, b float32) int { return cmp.Compare(b, a) })
		var num, den float32
		d := float32(1)
		for _, s := range list[:min(5, len(list))] {
			x := d * s
			num += x
			den += d
			d *= 0.7
		}
		return num / den
	}
	return slices.Max(list)
}

// sorted are documents by score, then address.
func sorted(score map[string]float32, docs []*summapb.SearchHit) []*summapb.SearchHit {
	docs = slices.Clone(docs)
	sort.Slice(docs, func(i, j int) bool {
		a, b := docs[i].Address, docs[j].Address
		switch x, y := score[keyOf(a)], score[keyOf(b)]; {
		case x != y:
			return x > y
		case a.SegmentId != b.SegmentId:
			return a.SegmentId < b.SegmentId
		}
		return a.DocId < b.DocId
	})
	return docs
}

func page[T any](list []T, req *summapb.SearchRequest) []T {
	limit := int(req.Limit)
	if limit == 0 {
		limit = 10
	}
	list = list[min(int(req.Offset), len(list)):]
	return list[:min(limit, len(list))]
}

// reply is what a node answers: hits as a test has made them, in any order, and the lists of the branches.
func (w *world) reply(shard int, method string, hits []*summapb.SearchHit) *summapb.SearchResponse {
	m := &summapb.SearchResponse{RankingMethod: method, TotalHits: uint64(shard)}
	for _, h := range hits {
		h = proto.CloneOf(h)
		if w.r.IntN(2) == 0 { // ranks of the shard alone
			s := w.score()
			h.RrfScore, h.RrfContributions = &s, []*summapb.RrfContribution{{Rank: 1}}
		}
		m.Hits = append(m.Hits, h)
	}
	w.r.Shuffle(len(m.Hits), func(i, j int) { m.Hits[i], m.Hits[j] = m.Hits[j], m.Hits[i] })
	for branch, found := range w.found {
		if w.fusion.Queries[branch].ScoreOnly {
			continue
		}
		l := &summapb.FusionCandidateList{QueryIndex: uint32(branch)}
		for _, h := range w.docs {
			if c := found[h]; c != nil && w.shard[h] == shard {
				l.Candidates = append(l.Candidates, c)
			}
		}
		w.r.Shuffle(len(l.Candidates), func(i, j int) { l.Candidates[i], l.Candidates[j] = l.Candidates[j], l.Candidates[i] })
		m.FusionCandidates = append(m.FusionCandidates, l)
	}
	w.r.Shuffle(len(m.FusionCandidates), func(i, j int) {
		m.FusionCandidates[i], m.FusionCandidates[j] = m.FusionCandidates[j], m.FusionCandidates[i]
	})
	return m
}

// tell adds votes to a hit.
func (w *world) tell(h *summapb.SearchHit, votes []vote) {
	rows, whole := passages(votes)
	s := whole
	if len(rows) > 0 {
		s = w.combine(rows)
	}
	h.RrfScore = &s
	slices.SortStableFunc(votes, func(a, b vote) int {
		if a.whole != b.whole {
			if a.whole {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.ordinal, b.ordinal), cmp.Compare(a.branch, b.branch))
	})
	for _, v := range votes {
		c := &summapb.RrfContribution{QueryIndex: uint32(v.branch), QueryName: w.fusion.Queries[v.branch].Name, Rank: uint32(v.rank), Score: v.score}
		if !v.whole {
			o := v.ordinal
			c.Ordinal = &o
		}
		h.RrfContributions = append(h.RrfContributions, c)
	}
}

func (w *world) request(more func(req *summapb.SearchRequest)) *summapb.SearchRequest {
	req := &summapb.SearchRequest{
		IndexName: "i", Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: w.fusion}}, Limit: uint32(w.r.IntN(8)), Offset: uint32(w.r.IntN(6) * w.r.IntN(2)),
		IncludeRrfScores: w.r.IntN(2) == 0,
	}
	more(req)
	return req
}

func (w *world) total() (n uint64) {
	for i := range w.shards {
		n += uint64(i)
	}
	return n
}

func (w *world) replies(method string, of func(shard int) []*summapb.SearchHit) []*summapb.SearchResponse {
	var out []*summapb.SearchResponse
	for i := range w.shards {
		out = append(out, w.reply(i, method, of(i)))
	}
	return out
}

// TestFusionsAreThoseOfTheOracle over any number of shards.
func TestFusionsAreThoseOfTheOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	for round := range oracleRounds {
		w := newWorld(r, false)
		w.fusion.RrfK = float32(r.IntN(2) * r.IntN(70))
		sum := r.IntN(2) == 0
		if sum {
			w.fusion.Method = summapb.FusionMethod_FUSION_NORMALIZED_WEIGHTED_SUM
		}
		req := w.request(func(*summapb.SearchRequest) {})
		got, err := answer(t, req, w.replies("fusion_candidates_v1", func(shard int) []*summapb.SearchHit {
			return slices.DeleteFunc(w.union(), func(h *summapb.SearchHit) bool { return w.shard[h] != shard })
		})...)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		want := &summapb.SearchResponse{RankingMethod: "global_rrf_v1", TotalHits: w.total()}
		if sum {
			want.RankingMethod = "global_weighted_sum_v1"
		}
		votes, told, score := w.votes(sum, false), w.votes(false, false), map[string]float32{}
		for _, h := range w.union() {
			rows, _ := passages(votes[keyOf(h.Address)])
			score[keyOf(h.Address)] = w.combine(rows)
		}
		for _, h := range page(sorted(score, w.union()), req) {
			key := keyOf(h.Address)
			h = proto.CloneOf(h)
			h.Score = score[key]
			rows, _ := passages(votes[key])
			for _, o := range slices.Sorted(maps.Keys(rows)) {
				h.OrdinalScores = append(h.OrdinalScores, &summapb.OrdinalScore{Ordinal: o, Score: rows[o]})
			}
			if req.IncludeRrfScores {
				w.tell(h, told[key])
			}
			want.Hits = append(want.Hits, h)
		}
		same(t, round, req, got, want)
	}
}

func same(t *testing.T, round int, req *summapb.SearchRequest, got, want *summapb.SearchResponse) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Fatalf("round %d: %v\n got %v\nwant %v", round, req, got, want)
	}
}

// TestFormulasAreThoseOfTheOracle with ranks and without, over any number of shards.
func TestFormulasAreThoseOfTheOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 2))
	for round := range oracleRounds {
		w := newWorld(r, true)
		byRank := r.IntN(2) == 0
		text := "0"
		for _, b := range w.fusion.Queries {
			text += "+" + b.Name
		}
		if byRank {
			text += "+rrf"
		}
		missing := map[string]float64{}
		if b := w.fusion.Queries[r.IntN(len(w.fusion.Queries))]; r.IntN(2) == 0 {
			missing[b.Name] = float64(r.IntN(3)) - 0.5
		}
		exported := 0
		req := w.request(func(req *summapb.SearchRequest) {
			req.L1 = &summapb.L1Ranking{Formula: text, MissingValues: missing}
			if r.IntN(2) == 0 {
				exported = r.IntN(4)
				req.ScoreExport = &summapb.ScoreExport{PassagesPerDocument: uint32(exported)}
			}
		})
		shown := 8
		if req.ScoreExport != nil {
			if shown = exported; shown == 0 {
				shown = 65536
			}
		}
		votes := w.votes(false, true)
		score, rows := map[string]float32{}, map[string]map[uint32]float32{}
		for _, h := range w.union() {
			key := keyOf(h.Address)
			score[key], rows[key] = w.formula(h, missing, votes[key], byRank)
		}
		window := max(int(req.Limit), 10*bit(req.Limit == 0)) + int(req.Offset)
		got, err := answer(t, req, w.replies("formula_v1", func(shard int) []*summapb.SearchHit {
			own := slices.DeleteFunc(w.union(), func(h *summapb.SearchHit) bool { return w.shard[h] != shard })
			if !byRank { // a node returns the window that it ranks
				own = sorted(score, own)
				own = own[:min(window, len(own))]
			}
			var hits []*summapb.SearchHit
			for _, h := range own {
				out := proto.CloneOf(h)
				if !byRank {
					out.Score = score[keyOf(h.Address)]
				}
				out.CandidateScores = w.candidate(h, nil, nil, 65536)
				hits = append(hits, out)
			}
			return hits
		})...)
		if err != nil {
			t.Fatalf("round %d: %v: %v", round, req, err)
		}
		want := &summapb.SearchResponse{RankingMethod: "formula_v1", TotalHits: w.total()}
		for _, h := range page(sorted(score, w.union()), req) {
			key := keyOf(h.Address)
			out := proto.CloneOf(h)
			out.Score = score[key]
			best := slices.Sorted(maps.Keys(rows[key]))
			slices.SortStableFunc(best, func(a, b uint32) int { return cmp.Compare(rows[key][b], rows[key][a]) })
			best = best[:min(len(best), shown)]
			for _, o := range best {
				out.OrdinalScores = append(out.OrdinalScores, &summapb.OrdinalScore{Ordinal: o, Score: rows[key][o]})
			}
			if req.ScoreExport != nil {
				out.CandidateScores = w.candidate(h, best, rows[key], shown)
			}
			if req.IncludeRrfScores {
				w.tell(out, votes[key])
			}
			want.Hits = append(want.Hits, out)
		}
		if !byRank && !req.IncludeRrfScores {
			got.FusionCandidates = nil // what nodes tell unasked goes on
		}
		same(t, round, req, got, want)
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// formula is the sum of all cells of a row, from left to right in float64, rounded once; of a document its combiner over rows.
func (w *world) formula(h *summapb.SearchHit, missing map[string]float64, votes []vote, byRank bool) (float32, map[uint32]float32) {
	ranks, whole := passages(votes)
	row := func(cell func(branch int) (float32, bool), rank float32) float32 {
		sum := 0.0
		for branch, b := range w.fusion.Queries {
			if v, ok := cell(branch); ok {
				sum += float64(v)
			} else {
				sum += missing[b.Name]
			}
		}
		if byRank {
			sum += float64(rank)
		}
		return float32(sum)
	}
	document := func(branch int) (float32, bool) {
		v, ok := w.document[branch][h]
		return v, ok
	}
	if len(w.rows[h]) == 0 {
		return row(document, whole), nil
	}
	out := map[uint32]float32{}
	for _, o := range w.rows[h] {
		rank, some := ranks[o]
		if !some {
			rank = whole
		}
		out[o] = row(func(branch int) (float32, bool) {
			if w.whole(branch, true) {
				return document(branch)
			}
			v, ok := w.cells[branch][h][o]
			return v, ok
		}, rank)
	}
	return w.combine(out), out
}

// candidate are the cells of a document: of all rows, in any order, or of some with their scores.
func (w *world) candidate(h *summapb.SearchHit, some []uint32, scores map[uint32]float32, most int) *summapb.CandidateScores {
	out := &summapb.CandidateScores{Document: map[string]float32{}, ScoredPassages: uint32(len(w.rows[h]))}
	rows := some
	if scores == nil {
		rows = slices.Clone(w.rows[h])
	}
	for branch, b := range w.fusion.Queries {
		if v, ok := w.document[branch][h]; ok {
			out.Document[b.Name] = v
		}
	}
	for _, o := range rows[:min(most, len(rows))] {
		q := &summapb.PassageScores{Ordinal: o, Scores: map[string]float32{}}
		for branch, b := range w.fusion.Queries {
			if v, ok := w.cells[branch][h][o]; ok {
				q.Scores[b.Name] = v
			}
		}
		if scores != nil {
			s := scores[o]
			q.L1Score = &s
		}
		out.Passages = append(out.Passages, q)
	}
	return out
}
