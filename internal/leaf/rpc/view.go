package rpc

import (
	"fmt"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
)

// placementRules are the rules by their numbers on the wire.
var placementRules = [...]placement.Rule{
	pb.PlacementRule_PLACEMENT_RING:       placement.Ring,
	pb.PlacementRule_PLACEMENT_MODULO:     placement.Modulo,
	pb.PlacementRule_PLACEMENT_RENDEZVOUS: placement.Rendezvous,
}

// packView returns nil for the zero View, so that a call without one costs nothing for it.
func packView(v *leaf.View) (*pb.View, error) {
	n := len(v.Owned)
	if v.Epoch == 0 && n == 0 && !v.Lenient {
		return nil, nil
	}
	m := &pb.View{Epoch: v.Epoch, Lenient: v.Lenient}
	if n == 0 {
		return m, nil
	}
	if err := atMost("owned", n, leaf.MaxShares); err != nil {
		return nil, err
	}
	numbers := make([]uint32, 3*n)
	o := &pb.Shares{Rules: make([]byte, n), Shards: numbers[:n:n], Vnodes: numbers[n : 2*n : 2*n], Ordinals: numbers[2*n:]}
	for i := range v.Owned {
		s := &v.Owned[i]
		if err := checkShare(s); err != nil {
			return nil, err
		}
		for number, rule := range placementRules {
			if rule == s.Rule {
				o.Rules[i] = byte(number)
			}
		}
		o.Shards[i], o.Vnodes[i], o.Ordinals[i] = uint32(s.Shards), uint32(s.VNodes), uint32(s.Ordinal)
	}
	m.Owned = o
	return m, nil
}

// unpackView returns the zero View for nil.
func unpackView(m *pb.View) (leaf.View, error) {
	if m == nil {
		return leaf.View{}, nil
	}
	v := leaf.View{Epoch: m.Epoch, Lenient: m.Lenient}
	o := m.Owned
	n := len(o.GetRules())
	if err := atMost("owned", max(n, len(o.GetShards()), len(o.GetVnodes()), len(o.GetOrdinals())), leaf.MaxShares); err != nil {
		return leaf.View{}, err
	}
	if len(o.GetShards()) != n || len(o.GetVnodes()) != n || len(o.GetOrdinals()) != n {
		return leaf.View{}, refuse(malformed("owned", "there are %d rules, %d numbers of shards, %d of virtual nodes and %d shards",
			n, len(o.GetShards()), len(o.GetVnodes()), len(o.GetOrdinals())))
	}
	if n == 0 {
		return v, nil
	}
	v.Owned = make([]placement.Share, n)
	for i := range v.Owned {
		s := &v.Owned[i]
		if number := int(o.Rules[i]); number < len(placementRules) {
			s.Rule = placementRules[number] // none for 0, which is refused below
		}
		s.Shards, s.VNodes, s.Ordinal = int(o.Shards[i]), int(o.Vnodes[i]), int(o.Ordinals[i])
		if err := checkShare(s); err != nil {
			return leaf.View{}, err
		}
	}
	return v, nil
}

// checkShare refuses a share that no placement has.
func checkShare(s *placement.Share) error {
	err := s.Validate()
	if err == nil && (s.Ordinal < 0 || s.Ordinal >= s.Shards) {
		err = fmt.Errorf("shard %d is not among %d", s.Ordinal, s.Shards)
	}
	if err == nil {
		return nil
	}
	p := api.NewProblem(api.InvalidParameter, api.ClipDetail("owned: "+err.Error())).On("owned")
	p.Cause = err
	return p
}

// outcomes are the outcomes by their numbers on the wire.
var outcomes = [...]api.Outcome{
	pb.ShardOutcome_OUTCOME_NONE:        api.Failed,
	pb.ShardOutcome_OUTCOME_ANSWERED:    api.Answered,
	pb.ShardOutcome_OUTCOME_SKIPPED:     api.Skipped,
	pb.ShardOutcome_OUTCOME_TIMED_OUT:   api.TimedOut,
	pb.ShardOutcome_OUTCOME_REFUSED:     api.Refused,
	pb.ShardOutcome_OUTCOME_UNAVAILABLE: api.Unavailable,
	pb.ShardOutcome_OUTCOME_FAILED:      api.Failed,
}

func outcomeNumber(o api.Outcome) byte {
	for number := pb.ShardOutcome_OUTCOME_ANSWERED; number < pb.ShardOutcome_OUTCOME_FAILED; number++ {
		if outcomes[number] == o {
			return byte(number)
		}
	}
	return byte(pb.ShardOutcome_OUTCOME_FAILED)
}

// packBelow returns nil for nil. Of the accounting only the outcomes travel, because the rest is counted from them.
func packBelow(b *leaf.Below) *pb.Below {
	if b == nil {
		return nil
	}
	m := &pb.Below{DocsCovered: b.DocsCovered, DocsTotal: b.DocsTotal, Unsized: b.Unsized}
	n := len(b.Shards.Outcomes)
	if n == 0 {
		return m
	}
	m.Shards, m.Outcomes, m.Micros = make([]uint32, n), make([]byte, n), make([]int64, n)
	m.Addresses = &pb.Texts{Lengths: make([]uint32, 0, n)}
	for i := range b.Shards.Outcomes {
		o := &b.Shards.Outcomes[i]
		m.Shards[i], m.Outcomes[i], m.Micros[i] = uint32(min(max(o.Shard, 0), maxCount)), outcomeNumber(o.Outcome), o.Micros
		appendText(m.Addresses, o.Address)
	}
	return m
}

// maxShards bounds the shards that a reply accounts for.
const maxShards = 10_000

// unpackBelow returns nil for nil.
func unpackBelow(m *pb.Below) (*leaf.Below, error) {
	if m == nil {
		return nil, nil
	}
	n := len(m.Outcomes)
	if len(m.Shards) != n || len(m.Micros) != n || len(m.Addresses.GetLengths()) != n {
		return nil, malformed("below", "there are %d outcomes, %d shards, %d addresses and %d times",
			n, len(m.Shards), len(m.Addresses.GetLengths()), len(m.Micros))
	}
	if err := fits("below", n, maxShards); err != nil {
		return nil, err
	}
	addresses, err := openTexts("below", m.Addresses)
	if err != nil {
		return nil, err
	}
	b := &leaf.Below{DocsCovered: m.DocsCovered, DocsTotal: m.DocsTotal, Unsized: m.Unsized}
	if n == 0 {
		return b, nil
	}
	b.Shards.Outcomes = make([]api.ShardOutcome, 0, n)
	for i, number := range m.Outcomes {
		if m.Shards[i] > maxCount {
			return nil, malformed("below", "there is no shard %d", m.Shards[i])
		}
		o := api.Failed
		if int(number) < len(outcomes) {
			o = outcomes[number]
		}
		b.Shards.Count(api.ShardOutcome{Shard: int(m.Shards[i]), Address: addresses.next(), Outcome: o, Micros: m.Micros[i]})
	}
	return b, nil
}
