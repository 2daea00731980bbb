package framed

import (
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

// addMeta makes one Meta of those of several replies to parts of one call: the last snapshot, the sum of the times, and everything
// that was approximate.
func addMeta(m *leaf.Meta, more *leaf.Meta) {
	if more.Snapshot != (leaf.Snapshot{}) {
		m.Snapshot = more.Snapshot
	}
	m.Timings = addTimings(m.Timings, more.Timings)
	for _, a := range more.Approximate {
		m.Approximate = addString(m.Approximate, a)
	}
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
	default:
		return false
	}
	return true
}
