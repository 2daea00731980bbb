package rpc

import (
	"fmt"
	"math"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
)

// fits checks a count of a reply against what the request allows, before anything is made of it.
func fits(part string, n, most int) error {
	if n > most {
		return malformed(part, "there are %d, and at most %d were asked for", n, most)
	}
	return nil
}

func packMeta(m *leaf.Meta) *pb.Meta {
	out := &pb.Meta{
		Snapshot:    &pb.Snapshot{Instance: m.Snapshot.Instance, Version: m.Snapshot.Version, CommitTs: m.Snapshot.CommitTS},
		Approximate: m.Approximate, Below: packBelow(m.Below),
	}
	if len(m.Timings) > 0 {
		all := make([]pb.Timing, len(m.Timings))
		out.Timings = make([]*pb.Timing, len(m.Timings))
		for i, t := range m.Timings {
			all[i].Stage, all[i].Micros = t.Stage, t.Micros
			out.Timings[i] = &all[i]
		}
	}
	return out
}

func unpackMeta(m *pb.Meta) (leaf.Meta, error) {
	s := m.GetSnapshot()
	out := leaf.Meta{
		Snapshot:    leaf.Snapshot{Instance: s.GetInstance(), Version: s.GetVersion(), CommitTS: s.GetCommitTs()},
		Approximate: m.GetApproximate(),
	}
	if list := m.GetTimings(); len(list) > 0 {
		out.Timings = make([]api.Timing, len(list))
		for i, t := range list {
			out.Timings[i] = api.Timing{Stage: t.GetStage(), Micros: t.GetMicros()}
		}
	}
	var err error
	out.Below, err = unpackBelow(m.GetBelow())
	return out, err
}

func packIndexInfo(i *api.IndexInfo) *pb.IndexInfo {
	return &pb.IndexInfo{
		Name: i.Name, Docs: i.Docs, Segments: int64(i.Segments), Bytes: i.Bytes, Schema: i.Schema, Dynamic: i.Dynamic, State: i.State, Reason: i.Reason,
	}
}

func unpackIndexInfo(i *pb.IndexInfo) api.IndexInfo {
	return api.IndexInfo{
		Name: i.GetName(), Docs: i.GetDocs(), Segments: int(i.GetSegments()), Bytes: i.GetBytes(), Schema: i.GetSchema(), Dynamic: i.GetDynamic(),
		State: i.GetState(), Reason: i.GetReason(),
	}
}

func packInfo(r *leaf.InfoReply) *pb.InfoReply {
	return &pb.InfoReply{Meta: packMeta(&r.Meta), Node: r.Node, Version: r.Version, Index: packIndexInfo(&r.Index)}
}

func unpackInfo(m *pb.InfoReply) (*leaf.InfoReply, error) {
	r := &leaf.InfoReply{Node: m.Node, Version: m.Version, Index: unpackIndexInfo(m.Index)}
	var err error
	r.Meta, err = unpackMeta(m.Meta)
	return r, err
}

func unpackDocsReply(m *pb.DocsReply) (*leaf.DocsReply, error) {
	meta, err := unpackMeta(m.Meta)
	return &leaf.DocsReply{Meta: meta, Docs: m.Docs}, err
}

func unpackHasReply(m *pb.HasReply, most int) (*leaf.HasReply, error) {
	r := &leaf.HasReply{}
	var err error
	if r.Meta, err = unpackMeta(m.Meta); err != nil {
		return nil, err
	}
	r.Missing, err = unpackMissing(m.Missing, most)
	return r, err
}

func unpackMissing(t *pb.Texts, most int) ([]string, error) {
	if err := fits("missing", len(t.GetLengths()), most); err != nil {
		return nil, err
	}
	return unpackTexts("missing", t)
}

func unpackDeleteReply(m *pb.DeleteManyReply) (*leaf.DeleteReply, error) {
	meta, err := unpackMeta(m.Meta)
	return &leaf.DeleteReply{Meta: meta, Deleted: m.Deleted}, err
}

// packSearchReply makes columns of the hits. keys is the number of keys of the order.
func packSearchReply(r *leaf.SearchReply, keys int) *pb.SearchReply {
	m := &pb.SearchReply{
		Meta: packMeta(&r.Meta), Docs: r.Docs, Total: r.Total, Partial: r.Partial, Notes: r.Notes, Stats: packStats(r.Stats),
		LocalStats: packStats(r.LocalStats), Shown: packShown(r.Shown), Plan: r.Plan,
	}
	switch r.TotalRelation {
	case exec.Exactly:
		m.TotalRelation = pb.Relation_RELATION_EXACTLY
	case exec.AtLeast:
		m.TotalRelation = pb.Relation_RELATION_AT_LEAST
	}
	n := len(r.Hits)
	if n == 0 {
		return m
	}
	size := 0
	for i := range r.Hits {
		size += len(r.Hits[i].ID)
	}
	m.Ids = &pb.Texts{Data: make([]byte, 0, size), Lengths: make([]uint32, 0, n)}
	m.Scores = make([]float32, n)
	for i := range r.Hits {
		appendText(m.Ids, r.Hits[i].ID)
		m.Scores[i] = r.Hits[i].Score
	}
	for k := range keys {
		c := &pb.SortColumn{Kinds: make([]byte, n)}
		for i := range r.Hits {
			if k >= len(r.Hits[i].Sort) {
				continue // VALUE_MISSING
			}
			v := &r.Hits[i].Sort[k]
			c.Kinds[i] = byte(v.Kind)
			switch v.Kind {
			case exec.NumberValue:
				c.Numbers = append(c.Numbers, v.Number)
			case exec.TextValue:
				if c.Texts == nil {
					c.Texts = &pb.Texts{}
				}
				appendText(c.Texts, v.Text)
			case exec.ScoreValue:
				c.Scores = append(c.Scores, v.Score)
			}
		}
		m.Sort = append(m.Sort, c)
	}
	return m
}

// unpackSearchReply reads the reply to a request with so many keys and such a limit. All ids are parts of one string, all sort values of
// one array: it allocates nothing for each hit.
func unpackSearchReply(m *pb.SearchReply, keys, limit int) (*leaf.SearchReply, error) {
	r := &leaf.SearchReply{Docs: m.Docs, Total: m.Total, Partial: m.Partial, Notes: m.Notes, Plan: m.Plan}
	switch m.TotalRelation {
	case pb.Relation_RELATION_NONE:
	case pb.Relation_RELATION_EXACTLY:
		r.TotalRelation = exec.Exactly
	case pb.Relation_RELATION_AT_LEAST:
		r.TotalRelation = exec.AtLeast
	default:
		return nil, malformed("total_relation", "%d is not known", m.TotalRelation)
	}
	var err error
	if r.Meta, err = unpackMeta(m.Meta); err != nil {
		return nil, err
	}
	if r.Stats, err = unpackStats("stats", m.Stats); err != nil {
		return nil, err
	}
	if n := len(m.LocalStats.GetDf()); n > leaf.MaxLocalStats {
		return nil, malformed("local_stats", "there are %d terms, and at most %d are given", n, leaf.MaxLocalStats)
	}
	if r.LocalStats, err = unpackStats("local_stats", m.LocalStats); err != nil {
		return nil, err
	}
	n := len(m.Ids.GetLengths())
	if err := fits("hits", n, limit); err != nil {
		return nil, err
	}
	ids, err := openTexts("ids", m.Ids)
	if err != nil {
		return nil, err
	}
	if len(m.Scores) != n {
		return nil, malformed("scores", "there are %d for %d hits", len(m.Scores), n)
	}
	if m.Shown != nil {
		if r.Shown, err = unpackShown(m.Shown, n); err != nil {
			return nil, err
		}
	}
	if n == 0 {
		return r, nil
	}
	if len(m.Sort) != keys {
		return nil, malformed("sort", "there are %d columns for %d keys", len(m.Sort), keys)
	}
	r.Hits = make([]leaf.Hit, n)
	for i := range r.Hits {
		r.Hits[i] = leaf.Hit{ID: ids.next(), Score: m.Scores[i]}
	}
	if keys == 0 {
		return r, nil
	}
	values := make([]exec.SortValue, n*keys)
	for i := range r.Hits {
		r.Hits[i].Sort = values[i*keys : (i+1)*keys : (i+1)*keys]
	}
	for k, c := range m.Sort {
		if err := unpackColumn(c, r.Hits, k); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func unpackColumn(c *pb.SortColumn, hits []leaf.Hit, k int) error {
	kinds, numbers, scores := c.GetKinds(), c.GetNumbers(), c.GetScores()
	if len(kinds) != len(hits) {
		return malformed("sort", "there are %d values for %d hits", len(kinds), len(hits))
	}
	texts, err := openTexts("sort", c.GetTexts())
	if err != nil {
		return err
	}
	short := func() error { return malformed("sort", "the values do not fit their kinds") }
	for i, kind := range kinds {
		v := &hits[i].Sort[k]
		v.Kind = exec.ValueKind(kind)
		switch v.Kind {
		case exec.MissingValue:
		case exec.NumberValue:
			if len(numbers) == 0 {
				return short()
			}
			v.Number, numbers = numbers[0], numbers[1:]
		case exec.TextValue:
			if texts.len() == 0 {
				return short()
			}
			v.Text = texts.next()
		case exec.ScoreValue:
			if len(scores) == 0 {
				return short()
			}
			v.Score, scores = scores[0], scores[1:]
		default:
			return malformed("sort", "kind %d is not known", kind)
		}
	}
	if len(numbers)+texts.len()+len(scores) > 0 {
		return short()
	}
	return nil
}

func packStatsReply(r *leaf.StatsReply) *pb.StatsReply {
	return &pb.StatsReply{Meta: packMeta(&r.Meta), Stats: packStats(&r.Stats)}
}

func unpackStatsReply(m *pb.StatsReply) (*leaf.StatsReply, error) {
	r := &leaf.StatsReply{}
	var err error
	if r.Meta, err = unpackMeta(m.Meta); err != nil {
		return nil, err
	}
	t := m.Stats
	if t == nil {
		t = &pb.TermStats{}
	}
	s, err := unpackStats("stats", t)
	if err != nil {
		return nil, err
	}
	r.Stats = *s
	return r, nil
}

func packAggregateReply(r *leaf.AggregateReply) *pb.AggregateReply {
	m := &pb.AggregateReply{Meta: packMeta(&r.Meta), Docs: r.Docs, Matched: r.Matched}
	if r.State != nil {
		m.State = r.State.AppendBinary(nil)
	}
	for i := range r.Values {
		v := &r.Values[i]
		m.Values = append(m.Values, &pb.FieldValues{Field: v.Field, Type: uint32(v.Type), Numbers: v.Numbers, Texts: packTexts(v.Texts)})
	}
	return m
}

func unpackAggregateReply(m *pb.AggregateReply, req *leaf.AggregateRequest, o agg.Options) (*leaf.AggregateReply, error) {
	r := &leaf.AggregateReply{Docs: m.Docs, Matched: m.Matched}
	var err error
	if r.Meta, err = unpackMeta(m.Meta); err != nil {
		return nil, err
	}
	if len(req.Specs) > 0 || len(m.State) > 0 {
		if r.State, err = agg.Decode(req.Specs, o, m.State); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
	}
	if len(m.Values) != len(req.Values) {
		return nil, malformed("values", "there are %d fields, and %d were asked for", len(m.Values), len(req.Values))
	}
	total := 0
	for i, v := range m.Values {
		if v.GetField() != req.Values[i] {
			return nil, malformed("values", "field %d is another than asked for", i+1)
		}
		if v.GetType() > math.MaxUint8 {
			return nil, malformed("values", "type %d is not known", v.GetType())
		}
		total += len(v.GetNumbers()) + len(v.GetTexts().GetLengths())
		if err := fits("values", total, leaf.MaxRawCount); err != nil {
			return nil, err
		}
		texts, err := unpackTexts("values", v.GetTexts())
		if err != nil {
			return nil, err
		}
		r.Values = append(r.Values, leaf.FieldValues{Field: v.GetField(), Type: schema.Type(v.GetType()), Numbers: v.GetNumbers(), Texts: texts})
	}
	return r, nil
}

func packKNNReply(r *leaf.KNNReply) *pb.KNNReply {
	m := &pb.KNNReply{Meta: packMeta(&r.Meta), Docs: r.Docs, Partial: r.Partial}
	if len(r.Hits) == 0 {
		return m
	}
	m.Ids, m.Similarities = &pb.Texts{Lengths: make([]uint32, 0, len(r.Hits))}, make([]float32, len(r.Hits))
	for i := range r.Hits {
		appendText(m.Ids, r.Hits[i].ID)
		m.Similarities[i] = r.Hits[i].Similarity
	}
	return m
}

func unpackKNNReply(m *pb.KNNReply, k int) (*leaf.KNNReply, error) {
	r := &leaf.KNNReply{Docs: m.Docs, Partial: m.Partial}
	var err error
	if r.Meta, err = unpackMeta(m.Meta); err != nil {
		return nil, err
	}
	n := len(m.Ids.GetLengths())
	if err := fits("neighbours", n, k); err != nil {
		return nil, err
	}
	ids, err := openTexts("ids", m.Ids)
	if err != nil {
		return nil, err
	}
	if len(m.Similarities) != n {
		return nil, malformed("similarities", "there are %d for %d neighbours", len(m.Similarities), n)
	}
	if n > 0 {
		r.Hits = make([]leaf.Neighbour, n)
		for i := range r.Hits {
			r.Hits[i] = leaf.Neighbour{ID: ids.next(), Similarity: m.Similarities[i]}
		}
	}
	return r, nil
}

func packMembers(m *api.Members) *pb.Members {
	return &pb.Members{Ok: int64(m.OK), Total: int64(m.Total), FailedAddresses: m.FailedAddresses}
}

func unpackMembers(m *pb.Members) api.Members {
	return api.Members{OK: int(m.GetOk()), Total: int(m.GetTotal()), FailedAddresses: m.GetFailedAddresses()}
}

func packInferred(list []api.InferredField) []*pb.InferredField {
	var out []*pb.InferredField
	for _, f := range list {
		out = append(out, &pb.InferredField{Name: f.Name, Type: f.Type, From: f.From})
	}
	return out
}

func unpackInferred(list []*pb.InferredField) []api.InferredField {
	var out []api.InferredField
	for _, f := range list {
		out = append(out, api.InferredField{Name: f.GetName(), Type: f.GetType(), From: f.GetFrom()})
	}
	return out
}

func packIndexReply(r *leaf.IndexReply) *pb.IndexReply {
	return &pb.IndexReply{Meta: packMeta(&r.Meta), Ok: r.OK, Id: []byte(r.ID), Members: packMembers(&r.Members), Inferred: packInferred(r.Inferred), Fresh: r.Fresh, Behind: uint64(r.Behind)}
}

func unpackIndexReply(m *pb.IndexReply) (*leaf.IndexReply, error) {
	meta, err := unpackMeta(m.Meta)
	return &leaf.IndexReply{Meta: meta, WriteReply: api.WriteReply{
		OK: m.Ok, ID: string(m.Id), Members: unpackMembers(m.Members), Inferred: unpackInferred(m.Inferred),
	}, Fresh: m.Fresh, Behind: leaf.Mark(m.Behind)}, err
}

func packBulkReply(r *leaf.BulkReply) *pb.BulkReply {
	m := &pb.BulkReply{
		Meta: packMeta(&r.Meta), Ok: r.OK, Indexed: r.Indexed, Failed: r.Failed, Duplicates: r.Duplicates, DuplicatesAtLeast: r.DuplicatesAtLeast,
		Shards: int64(r.Shards), Members: packMembers(&r.Members), TookMicros: r.TookMicros, ErrorsOmitted: r.ErrorsOmitted, Inferred: packInferred(r.Inferred),
		TakenBefore: r.Repeated,
	}
	for _, e := range r.Errors {
		m.Errors = append(m.Errors, &pb.DocFailure{Line: int64(e.Line), Id: []byte(e.ID), Code: e.Code, Reason: e.Reason})
	}
	return m
}

func unpackBulkReply(m *pb.BulkReply) (*leaf.BulkReply, error) {
	meta, err := unpackMeta(m.Meta)
	r := &leaf.BulkReply{Meta: meta, Repeated: m.TakenBefore, BulkReply: api.BulkReply{
		OK: m.Ok, Indexed: m.Indexed, Failed: m.Failed, Duplicates: m.Duplicates, DuplicatesAtLeast: m.DuplicatesAtLeast, Shards: int(m.Shards),
		Members: unpackMembers(m.Members), TookMicros: m.TookMicros, ErrorsOmitted: m.ErrorsOmitted, Inferred: unpackInferred(m.Inferred),
	}}
	for _, e := range m.Errors {
		r.Errors = append(r.Errors, api.DocFailure{Line: int(e.GetLine()), ID: string(e.GetId()), Code: e.GetCode(), Reason: e.GetReason()})
	}
	return r, err
}
