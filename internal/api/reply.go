package api

import "strconv"

// Outcome is how a shard's part of a search ended.
type Outcome string

// Outcomes. A shard has exactly one; only Answered and Skipped count as ok.
const (
	Answered    Outcome = "answered"
	Skipped     Outcome = "skipped"
	TimedOut    Outcome = "timed_out"
	Refused     Outcome = "refused"
	Unavailable Outcome = "unavailable"
	Failed      Outcome = "failed"
)

// ShardOutcome is what became of one shard.
type ShardOutcome struct {
	Shard   int
	Address string
	Outcome Outcome
	Micros  int64
}

// Shards is the accounting of a search: Total = OK + Failed, always.
type Shards struct {
	Total, OK, Failed int
	FailedAddresses   []string
	Outcomes          []ShardOutcome
}

// Count adds an outcome.
func (s *Shards) Count(o ShardOutcome) {
	s.Total++
	if o.Outcome == Answered || o.Outcome == Skipped {
		s.OK++
	} else {
		s.Failed++
		s.FailedAddresses = append(s.FailedAddresses, o.Address)
	}
	s.Outcomes = append(s.Outcomes, o)
}

// AppendJSON appends the object.
func (s *Shards) AppendJSON(b []byte) []byte {
	b = append(b, `{"total":`...)
	b = strconv.AppendInt(b, int64(s.Total), 10)
	b = append(b, `,"ok":`...)
	b = strconv.AppendInt(b, int64(s.OK), 10)
	b = append(b, `,"failed":`...)
	b = strconv.AppendInt(b, int64(s.Failed), 10)
	b = append(b, `,"failed_addresses":`...)
	b = AppendStrings(b, s.FailedAddresses)
	b = append(b, `,"outcomes":[`...)
	for i, o := range s.Outcomes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"shard":`...)
		b = strconv.AppendInt(b, int64(o.Shard), 10)
		b = append(b, `,"address":`...)
		b = AppendString(b, o.Address)
		b = append(b, `,"outcome":`...)
		b = AppendString(b, string(o.Outcome))
		b = append(b, `,"took_ms":`...)
		b = AppendMillis(b, o.Micros)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// Coverage says how much of the index an answer speaks of.
type Coverage struct {
	Shards      float64 // share of the shards that are ok
	DocsCovered uint64
	DocsTotal   uint64
	AtLeast     bool // DocsTotal is a lower bound: the size of a shard that is missing is not known
	Complete    bool
}

// Docs is the share of the documents that are covered; 1 for an empty index. Where DocsTotal is a lower bound it is no more than the share
// of the shards.
func (c Coverage) Docs() float64 {
	if c.DocsTotal == 0 {
		if c.Complete {
			return 1
		}
		return 0
	}
	share := float64(c.DocsCovered) / float64(c.DocsTotal)
	if c.AtLeast {
		share = min(share, c.Shards)
	}
	return share
}

// AppendJSON appends the object.
func (c Coverage) AppendJSON(b []byte) []byte {
	b = append(b, `{"shards":`...)
	b = strconv.AppendFloat(b, c.Shards, 'g', -1, 64)
	b = append(b, `,"docs_covered":`...)
	b = strconv.AppendUint(b, c.DocsCovered, 10)
	b = append(b, `,"docs_total":`...)
	b = strconv.AppendUint(b, c.DocsTotal, 10)
	b = append(b, `,"complete":`...)
	b = strconv.AppendBool(b, c.Complete)
	return append(b, '}')
}

// Timing is one stage of a call.
type Timing struct {
	Stage  string
	Micros int64
}

// SearchReply is the answer to a search.
type SearchReply struct {
	Total    uint64
	Relation string // "eq", "gte", or "none" when no total was asked for
	Hits     []byte // rendered JSON objects, separated by commas
	Facets   []byte // a rendered JSON object, nil when none were asked for
	Aggs     []byte // likewise
	Next     string // cursor of the next page; empty on the last
	// Approximate names what was estimated.
	Approximate []string
	Shards      Shards // of the search itself
	// AggFailedAddresses are shards that were lost while facets and aggregations were made: those speak of the others only.
	AggFailedAddresses []string
	Lost               []PhaseLoss // of the other phases, those that lost a shard
	Coverage           Coverage
	DFS                bool
	Notes              []string
	Timings            []Timing // they add up to took_ms
	Slowest            int      // the shard that took longest
	Explain            []byte   // a rendered JSON object, nil when not asked for
	Profile            []byte   // likewise
}

// PhaseLoss says which shards did not take part in a phase of a search besides the search itself.
type PhaseLoss struct {
	Phase  string // name of the stage
	Shards Shards
}

// AppendLost appends the members agg_failed_addresses and phases of a reply or of a problem document, each behind a comma, where there is
// something to be said.
func (r *SearchReply) AppendLost(b []byte) []byte {
	if len(r.AggFailedAddresses) > 0 {
		b = append(b, `,"agg_failed_addresses":`...)
		b = AppendStrings(b, r.AggFailedAddresses)
	}
	if len(r.Lost) == 0 {
		return b
	}
	b = append(b, `,"phases":{`...)
	for i := range r.Lost {
		l := &r.Lost[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, l.Phase)
		b = append(b, `:{"ok":`...)
		b = strconv.AppendInt(b, int64(l.Shards.OK), 10)
		b = append(b, `,"failed":`...)
		b = strconv.AppendInt(b, int64(l.Shards.Failed), 10)
		b = append(b, `,"failed_addresses":`...)
		b = AppendStrings(b, l.Shards.FailedAddresses)
		b = append(b, '}')
	}
	return append(b, '}')
}

// RelationNone is the total_relation of an answer whose caller wanted no total.
const RelationNone = "none"

// AppendJSON appends the reply. took_ms is the sum of the timings.
func (r *SearchReply) AppendJSON(b []byte) []byte {
	b = append(b, `{"total":`...)
	if r.Relation == RelationNone {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendUint(b, r.Total, 10)
	}
	b = append(b, `,"total_relation":`...)
	b = AppendString(b, r.Relation)
	var took int64
	for _, t := range r.Timings {
		took += t.Micros
	}
	b = append(b, `,"took_ms":`...)
	b = AppendMillis(b, took)
	b = append(b, `,"hits":[`...)
	b = append(b, r.Hits...)
	b = append(b, ']')
	b = appendRaw(b, "facets", r.Facets)
	b = appendRaw(b, "aggs", r.Aggs)
	if r.Next != "" {
		b = append(b, `,"next":`...)
		b = AppendString(b, r.Next)
	}
	if len(r.Approximate) > 0 {
		b = append(b, `,"approximate":`...)
		b = AppendStrings(b, r.Approximate)
	}
	b = append(b, `,"shards":`...)
	b = r.Shards.AppendJSON(b)
	b = r.AppendLost(b)
	b = append(b, `,"coverage":`...)
	b = r.Coverage.AppendJSON(b)
	b = append(b, `,"dfs":`...)
	b = strconv.AppendBool(b, r.DFS)
	if len(r.Notes) > 0 {
		b = append(b, `,"notes":`...)
		b = AppendStrings(b, r.Notes)
	}
	b = append(b, `,"timings":{`...)
	for _, t := range r.Timings {
		b = AppendString(b, t.Stage+"_ms")
		b = append(b, ':')
		b = AppendMillis(b, t.Micros)
		b = append(b, ',')
	}
	b = append(b, `"slowest_shard":`...)
	b = strconv.AppendInt(b, int64(r.Slowest), 10)
	b = append(b, '}')
	b = appendRaw(b, "explain", r.Explain)
	b = appendRaw(b, "profile", r.Profile)
	return append(b, '}')
}

// Hit is one document of an answer. The rendered parts are raw JSON; nil leaves a part out.
type Hit struct {
	ID          string
	Score       float32
	Sort        []byte // array
	LexicalRank uint32 // from 1; 0: none
	VectorRank  uint32
	Source      []byte // object
	Highlight   []byte // object
	Explain     []byte // object
}

// AppendJSON appends the hit.
func (h *Hit) AppendJSON(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = AppendString(b, h.ID)
	b = append(b, `,"score":`...)
	b = AppendScore(b, h.Score)
	b = appendRaw(b, "sort", h.Sort)
	if h.LexicalRank > 0 {
		b = append(b, `,"lexical_rank":`...)
		b = strconv.AppendUint(b, uint64(h.LexicalRank), 10)
	}
	if h.VectorRank > 0 {
		b = append(b, `,"vector_rank":`...)
		b = strconv.AppendUint(b, uint64(h.VectorRank), 10)
	}
	b = appendRaw(b, "source", h.Source)
	b = appendRaw(b, "highlight", h.Highlight)
	b = appendRaw(b, "explain", h.Explain)
	return append(b, '}')
}

// appendRaw appends a member, if there is one, behind others.
func appendRaw(b []byte, name string, value []byte) []byte {
	if value == nil {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return append(b, value...)
}

// RecallReply is the answer to a measurement of recall.
type RecallReply struct {
	Recall      float64
	K, Samples  int
	Approximate bool
}

// AppendJSON appends the reply.
func (r *RecallReply) AppendJSON(b []byte) []byte {
	b = append(b, `{"recall":`...)
	b = strconv.AppendFloat(b, r.Recall, 'g', -1, 64)
	b = append(b, `,"k":`...)
	b = strconv.AppendInt(b, int64(r.K), 10)
	b = append(b, `,"samples":`...)
	b = strconv.AppendInt(b, int64(r.Samples), 10)
	b = append(b, `,"approximate":`...)
	b = strconv.AppendBool(b, r.Approximate)
	return append(b, '}')
}

// Members is who applied a write.
type Members struct {
	OK, Total       int
	FailedAddresses []string
}

func (m Members) append(b []byte) []byte {
	b = append(b, `,"members_ok":`...)
	b = strconv.AppendInt(b, int64(m.OK), 10)
	b = append(b, `,"members":`...)
	b = strconv.AppendInt(b, int64(m.Total), 10)
	b = append(b, `,"failed_addresses":`...)
	return AppendStrings(b, m.FailedAddresses)
}

// InferredField is a field that a document added to a dynamic index.
type InferredField struct {
	Name string
	Type string // the type it has from now on, as in SDL
	From string // what was seen: string, integer, number, boolean, date
}

func appendInferred(b []byte, list []InferredField) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(b, `,"inferred":[`...)
	for i, f := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"field":`...)
		b = AppendString(b, f.Name)
		b = append(b, `,"type":`...)
		b = AppendString(b, f.Type)
		b = append(b, `,"from":`...)
		b = AppendString(b, f.From)
		b = append(b, '}')
	}
	return append(b, ']')
}

// WriteReply is the answer to a write of one document.
type WriteReply struct {
	OK       bool
	ID       string
	Members  Members
	Inferred []InferredField
	Staged   bool // it shows when the index is committed
}

// AppendJSON appends the reply.
func (r *WriteReply) AppendJSON(b []byte) []byte {
	b = append(b, `{"ok":`...)
	b = strconv.AppendBool(b, r.OK)
	b = append(b, `,"id":`...)
	b = AppendString(b, r.ID)
	b = r.Members.append(b)
	b = appendInferred(b, r.Inferred)
	b = appendStaged(b, r.Staged)
	return append(b, '}')
}

// appendStaged says of a write that it shows when the index is committed.
func appendStaged(b []byte, staged bool) []byte {
	if staged {
		b = append(b, `,"staged":true`...)
	}
	return b
}

// CommitReply is the answer to a commit.
type CommitReply struct {
	Index      string
	Visibility string // OnCommit or AtOnce: then there was nothing to do
	Docs       uint64 // live documents that show now
}

// AppendJSON appends the reply.
func (r *CommitReply) AppendJSON(b []byte) []byte {
	b = append(b, `{"ok":true,"index":`...)
	b = AppendString(b, r.Index)
	b = append(b, `,"visibility":`...)
	b = AppendString(b, r.Visibility)
	b = append(b, `,"docs":`...)
	b = strconv.AppendUint(b, r.Docs, 10)
	return append(b, '}')
}

// DeleteReply is the answer to the deletion of a document.
type DeleteReply struct {
	OK      bool
	Deleted int // 0 or 1
	Members Members
	Staged  bool // it shows when the index is committed
}

// AppendJSON appends the reply.
func (r *DeleteReply) AppendJSON(b []byte) []byte {
	b = append(b, `{"ok":`...)
	b = strconv.AppendBool(b, r.OK)
	b = append(b, `,"deleted":`...)
	b = strconv.AppendInt(b, int64(r.Deleted), 10)
	b = r.Members.append(b)
	b = appendStaged(b, r.Staged)
	return append(b, '}')
}

// DocFailure is a document of a bulk that was not applied.
type DocFailure struct {
	Line   int    // of the body, from 1
	ID     string // empty when it cannot be read
	Code   string
	Reason string
}

// BulkReply is the answer to a bulk load.
type BulkReply struct {
	OK         bool
	Indexed    uint64
	Failed     uint64
	Duplicates uint64
	// DuplicatesAtLeast says that the bulk had more ids than are remembered, so that Duplicates is a lower bound.
	DuplicatesAtLeast bool
	Shards            int
	Members           Members
	TookMicros        int64
	Errors            []DocFailure
	ErrorsOmitted     uint64 // failures over the number that is listed
	Inferred          []InferredField
	Staged            bool // what was applied shows when the index is committed
}

// AppendMembers appends the members of the reply without braces, for the reply itself and for a problem document.
func (r *BulkReply) AppendMembers(b []byte) []byte {
	b = append(b, `"ok":`...)
	b = strconv.AppendBool(b, r.OK)
	b = append(b, `,"indexed":`...)
	b = strconv.AppendUint(b, r.Indexed, 10)
	b = append(b, `,"failed":`...)
	b = strconv.AppendUint(b, r.Failed, 10)
	b = append(b, `,"duplicates":`...)
	b = strconv.AppendUint(b, r.Duplicates, 10)
	if r.DuplicatesAtLeast {
		b = append(b, `,"duplicates_relation":"gte"`...)
	}
	b = append(b, `,"shards":`...)
	b = strconv.AppendInt(b, int64(r.Shards), 10)
	b = r.Members.append(b)
	b = append(b, `,"took_ms":`...)
	b = AppendMillis(b, r.TookMicros)
	b = append(b, `,"errors":[`...)
	for i, e := range r.Errors {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"line":`...)
		b = strconv.AppendInt(b, int64(e.Line), 10)
		b = append(b, `,"id":`...)
		b = AppendString(b, e.ID)
		b = append(b, `,"code":`...)
		b = AppendString(b, e.Code)
		b = append(b, `,"reason":`...)
		b = AppendString(b, e.Reason)
		b = append(b, '}')
	}
	b = append(b, ']')
	if r.ErrorsOmitted > 0 {
		b = append(b, `,"errors_omitted":`...)
		b = strconv.AppendUint(b, r.ErrorsOmitted, 10)
	}
	return appendStaged(appendInferred(b, r.Inferred), r.Staged)
}

// AppendJSON appends the reply. For repeated see AppendRepeated.
func (r *BulkReply) AppendJSON(b []byte, repeated bool) []byte {
	b = append(b, '{')
	b = AppendRepeated(r.AppendMembers(b), repeated)
	return append(b, '}')
}

// AppendRepeated appends to the members of the reply to a bulk load, if so, that it was taken before, by its key, and that this is what came
// of it then.
func AppendRepeated(b []byte, repeated bool) []byte {
	if repeated {
		b = append(b, `,"repeated":true`...)
	}
	return b
}

// IndexInfo describes an index.
type IndexInfo struct {
	Name     string
	Docs     uint64
	Segments int
	Bytes    int64
	Schema   string // SDL
	Dynamic  bool
	State    string // open, opening, unavailable
	Reason   string // why it is unavailable
	// Visibility is OnCommit where writes show when they are committed; empty: at once. The shard protocols do not carry it.
	Visibility string
	Staged     uint64 // records of the log that wait for a commit
}

// OnCommit is the visibility of an index whose writes show when they are committed, and AtOnce of any other.
const (
	OnCommit = "commit"
	AtOnce   = "at_once"
)

// AppendJSON appends the object.
func (i *IndexInfo) AppendJSON(b []byte) []byte {
	b = append(b, `{"name":`...)
	b = AppendString(b, i.Name)
	b = append(b, `,"docs":`...)
	b = strconv.AppendUint(b, i.Docs, 10)
	b = append(b, `,"segments":`...)
	b = strconv.AppendInt(b, int64(i.Segments), 10)
	b = append(b, `,"bytes":`...)
	b = strconv.AppendInt(b, i.Bytes, 10)
	b = append(b, `,"schema":`...)
	b = AppendString(b, i.Schema)
	b = append(b, `,"dynamic":`...)
	b = strconv.AppendBool(b, i.Dynamic)
	b = append(b, `,"state":`...)
	b = AppendString(b, i.State)
	if i.Reason != "" {
		b = append(b, `,"reason":`...)
		b = AppendString(b, i.Reason)
	}
	if i.Visibility != "" {
		b = append(b, `,"visibility":`...)
		b = AppendString(b, i.Visibility)
		b = append(b, `,"staged":`...)
		b = strconv.AppendUint(b, i.Staged, 10)
	}
	return append(b, '}')
}
