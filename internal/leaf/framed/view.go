package framed

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
)

// Members of requests that say how a call looks at an index.
const (
	epochMember   = "epoch"
	ownedMember   = "owned"
	lenientMember = "lenient"
)

// viewed are the members of an operation with those of a view.
func viewed(members ...string) []string {
	return append(members, epochMember, ownedMember, lenientMember)
}

// plainEpoch is the highest epoch that travels as a number, which every library of JSON holds exactly; a higher one is a string.
const plainEpoch = 1 << 53

// maxRule is how long the name of a rule may be, as it is written, that is looked at.
const maxRule = 64

// view writes the members of a view that say something.
func (w *writer) view(v *leaf.View) {
	w.epoch(v.Epoch)
	w.owned(v.Owned)
	w.yes(lenientMember, v.Lenient)
}

// epoch writes an epoch, nothing for 0.
func (w *writer) epoch(n uint64) {
	if n == 0 {
		return
	}
	w.name(epochMember)
	w.b = appendEpoch(w.b, n)
}

// appendEpoch appends an epoch: a number, or a string with a number above plainEpoch.
func appendEpoch(b []byte, n uint64) []byte {
	if n <= plainEpoch {
		return strconv.AppendUint(b, n, 10)
	}
	b = append(b, '"')
	b = strconv.AppendUint(b, n, 10)
	return append(b, '"')
}

// parseEpoch reads an epoch.
func parseEpoch(raw []byte) (uint64, bool) {
	if n := len(raw); n > 1 && raw[0] == '"' {
		return parseU64(raw[1 : n-1])
	}
	n, ok := parseU64(raw)
	return n, ok && n <= plainEpoch
}

func (w *writer) owned(list []placement.Share) {
	if len(list) == 0 {
		return
	}
	if len(list) > leaf.MaxShares {
		w.fail(tooMany(ownedMember, len(list), leaf.MaxShares))
		return
	}
	w.name(ownedMember)
	w.b = append(w.b, '[')
	for i, s := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = append(w.b, `{"rule":`...)
		w.quote(ownedMember, string(s.Rule))
		w.b = append(w.b, `,"shards":`...)
		w.b = strconv.AppendInt(w.b, int64(s.Shards), 10)
		if s.VNodes != 0 {
			w.b = append(w.b, `,"vnodes":`...)
			w.b = strconv.AppendInt(w.b, int64(s.VNodes), 10)
		}
		w.b = append(w.b, `,"shard":`...)
		w.b = strconv.AppendInt(w.b, int64(s.Ordinal), 10)
		w.b = append(w.b, '}')
	}
	w.b = append(w.b, ']')
}

// view reads the members of a view. Which shares there can be is for the leaf to say.
func (m *message) view(v *leaf.View) {
	v.Epoch = m.epoch()
	v.Lenient = m.yes(lenientMember)
	m.list(ownedMember, "shares", leaf.MaxShares, func(s *scanner) {
		const want = `each is an object {"rule","shards","vnodes","shard"}`
		var share placement.Share
		var hasRule, hasShards, hasShard bool
		unknown := ""
		s.object(func(name []byte) {
			switch string(name) {
			case "rule":
				raw, _ := s.token()
				if hasRule = true; len(raw) <= maxRule {
					share.Rule = placement.Rule(unquote(raw))
				} else {
					s.fail("a rule has a longer name than any")
				}
			case "shards":
				share.Shards, hasShards = s.whole(), true
			case "vnodes":
				share.VNodes = s.whole()
			case "shard":
				share.Ordinal, hasShard = s.whole(), true
			default:
				if unknown == "" {
					unknown = api.Clip(string(name))
				}
				s.value()
			}
		})
		switch {
		case s.over != nil:
			m.failed(s.over)
		case s.err != nil:
			m.fail(ownedMember, want)
		case unknown != "":
			m.failed(unknownInside(ownedMember, unknown))
		case !hasRule || !hasShards || !hasShard:
			m.fail(ownedMember, want)
		}
		v.Owned = append(v.Owned, share)
	})
}

// epoch reads the member epoch; 0 if it is not there.
func (m *message) epoch() uint64 {
	raw := m.get(epochMember)
	if raw == nil {
		return 0
	}
	n, ok := parseEpoch(raw)
	if !ok {
		m.fail(epochMember, fmt.Sprintf("it is a whole number from 0, in a string if it is above %d", plainEpoch))
	}
	return n
}

// unknownInside is the problem of a member that the object of another does not have.
func unknownInside(name, unknown string) *api.Problem {
	return &api.Problem{Code: api.UnknownParameter, Field: name, Detail: name + ": there is no member " + strconv.Quote(api.Clip(unknown))}
}

// whole reads a whole number.
func (s *scanner) whole() int {
	raw := s.number()
	if s.err != nil {
		return 0
	}
	n, ok := parseU64(bytes.TrimPrefix(raw, []byte{'-'}))
	if !ok || n > mostWhole {
		s.fail("expected a whole number")
		return 0
	}
	if raw[0] == '-' {
		return -int(n)
	}
	return int(n)
}
