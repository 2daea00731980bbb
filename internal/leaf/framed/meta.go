package framed

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// maxTimings and maxNotes bound what a reply says about itself.
const (
	maxTimings = 64
	maxNotes   = 1_000
)

// appendMeta appends the members that every reply about an index has besides its answer.
func appendMeta(b []byte, m *leaf.Meta) []byte {
	if m.Snapshot != (leaf.Snapshot{}) {
		b = append(b, `,"snapshot":{"instance":"`...)
		b = strconv.AppendUint(b, m.Snapshot.Instance, 10)
		b = append(b, `","version":"`...)
		b = strconv.AppendUint(b, m.Snapshot.Version, 10)
		b = append(b, `","commit_ts":"`...)
		b = strconv.AppendUint(b, m.Snapshot.CommitTS, 10)
		b = append(b, `"}`...)
	}
	if len(m.Timings) > 0 {
		b = append(b, `,"timings":{`...)
		for i, t := range m.Timings {
			if i > 0 {
				b = append(b, ',')
			}
			b = api.AppendString(b, t.Stage+"_ms")
			b = append(b, ':')
			b = api.AppendMillis(b, max(0, t.Micros))
		}
		b = append(b, '}')
	}
	if len(m.Approximate) > 0 {
		b = append(b, `,"approximate":`...)
		b = api.AppendStrings(b, m.Approximate)
	}
	if m.Below != nil {
		b = append(b, `,"below":{"shards":`...)
		b = m.Below.Shards.AppendJSON(b)
		b = append(b, `,"docs_covered":`...)
		b = strconv.AppendUint(b, m.Below.DocsCovered, 10)
		b = append(b, `,"docs_total":`...)
		b = strconv.AppendUint(b, m.Below.DocsTotal, 10)
		if m.Below.Unsized {
			b = append(b, `,"unsized":true`...)
		}
		b = append(b, '}')
	}
	return b
}

// addTimings adds stages to a list in which each stands once.
func addTimings(list, more []api.Timing) []api.Timing {
next:
	for _, t := range more {
		for i := range list {
			if list[i].Stage == t.Stage {
				list[i].Micros += t.Micros
				continue next
			}
		}
		list = append(list, t)
	}
	return list
}

// addMeta makes one Meta of those of several replies to parts of one call: the last snapshot, the sum of the times, everything that was
// approximate, and every shard below with the worst that became of it.
func addMeta(m *leaf.Meta, more *leaf.Meta) {
	if more.Snapshot != (leaf.Snapshot{}) {
		m.Snapshot = more.Snapshot
	}
	m.Timings = addTimings(m.Timings, more.Timings)
	for _, a := range more.Approximate {
		m.Approximate = addString(m.Approximate, a)
	}
	m.Below = addBelow(m.Below, more.Below)
}

// addBelow makes one accounting of those of two parts of one call. A shard that failed one of them has failed the call.
func addBelow(a, b *leaf.Below) *leaf.Below {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	failed := func(o api.ShardOutcome) bool { return o.Outcome != api.Answered && o.Outcome != api.Skipped }
	out := &leaf.Below{DocsCovered: min(a.DocsCovered, b.DocsCovered), DocsTotal: max(a.DocsTotal, b.DocsTotal), Unsized: a.Unsized || b.Unsized}
	at := make(map[int]int, len(a.Shards.Outcomes))
	list := slices.Clone(a.Shards.Outcomes)
	for i, o := range list {
		at[o.Shard] = i
	}
	for _, o := range b.Shards.Outcomes {
		i, ok := at[o.Shard]
		if !ok {
			list = append(list, o)
			continue
		}
		o.Micros += list[i].Micros
		if failed(list[i]) {
			list[i].Micros = o.Micros
		} else {
			list[i] = o
		}
	}
	for _, o := range list {
		out.Shards.Count(o)
	}
	return out
}

func addString(list []string, s string) []string {
	for _, have := range list {
		if have == s {
			return list
		}
	}
	return append(list, s)
}

// meta reads a member that appendMeta wrote, if name is one.
func (s *scanner) meta(name []byte, m *leaf.Meta) bool {
	switch string(name) {
	case snapshotMember:
		s.object(func(name []byte) {
			switch string(name) {
			case "instance":
				m.Snapshot.Instance = s.decimal()
			case "version":
				m.Snapshot.Version = s.decimal()
			case "commit_ts":
				m.Snapshot.CommitTS = s.decimal()
			default:
				s.value()
			}
		})
	case "timings":
		s.expect('{')
		for first := true; s.next(&first, '}'); {
			stage := strings.TrimSuffix(string(s.name()), "_ms")
			if len(m.Timings) == maxTimings {
				s.fail("there are too many timings")
				return true
			}
			m.Timings = append(m.Timings, api.Timing{Stage: stage, Micros: s.micros()})
		}
	case "approximate":
		m.Approximate = s.strings(maxNotes)
	case "below":
		m.Below = s.below()
	default:
		return false
	}
	return true
}

// below reads the accounting of what stands below a coordinator.
func (s *scanner) below() *leaf.Below {
	out := &leaf.Below{}
	s.object(func(name []byte) {
		switch string(name) {
		case "shards":
			s.shards(&out.Shards)
		case "docs_covered":
			out.DocsCovered = s.u64()
		case "docs_total":
			out.DocsTotal = s.u64()
		case "unsized":
			out.Unsized = s.bool()
		default:
			s.value()
		}
	})
	return out
}

// shards reads an accounting. Its numbers are those of its outcomes, and nothing is made of others.
func (s *scanner) shards(out *api.Shards) {
	total, ok, failed := 0, 0, 0
	s.object(func(name []byte) {
		switch string(name) {
		case "total":
			total = s.count()
		case "ok":
			ok = s.count()
		case "failed":
			failed = s.count()
		case "failed_addresses":
			out.FailedAddresses = s.strings(maxAddresses)
		case "outcomes":
			s.expect('[')
			for first := true; s.next(&first, ']'); {
				if len(out.Outcomes) == maxAddresses {
					s.fail("there are too many shards")
					return
				}
				out.Outcomes = append(out.Outcomes, s.outcome())
			}
		default:
			s.value()
		}
	})
	for _, o := range out.Outcomes {
		if out.Total++; o.Outcome == api.Answered || o.Outcome == api.Skipped {
			out.OK++
		} else {
			out.Failed++
		}
	}
	if total != out.Total || ok != out.OK || failed != out.Failed {
		s.fail("the numbers of shards are not those of their outcomes")
	}
}

func (s *scanner) outcome() (o api.ShardOutcome) {
	s.object(func(name []byte) {
		switch string(name) {
		case "shard":
			o.Shard = s.count()
		case "address":
			o.Address = s.str()
		case "outcome":
			o.Outcome = api.Outcome(s.str())
		case "took_ms":
			o.Micros = s.micros()
		default:
			s.value()
		}
	})
	return o
}
