package placement

import "math"

// Plan counts what would move between numbers of shards, under each rule. Ids are added one after the other and not kept.
// One owner at a time.
type Plan struct {
	from, to int
	ids      uint64
	rules    [3]rulePlan
}

type rulePlan struct {
	from, to      *Placement
	moved         uint64
	before, after []uint64
}

// planned are the rules that a Plan compares, in the order of its report.
var planned = [3]Rule{Ring, Modulo, Rendezvous}

// NewPlan prepares a plan from the shards of one spec to another number of them. Rings have the spec's virtual nodes, if it has any.
func NewPlan(from Spec, to int) (*Plan, error) {
	if err := from.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{from: from.Shards, to: to}
	for i, rule := range planned {
		r := rulePlan{before: make([]uint64, from.Shards)}
		var err error
		if r.from, err = New(Spec{Rule: rule, Shards: from.Shards, VNodes: from.VNodes}); err != nil {
			return nil, err
		}
		if r.to, err = New(Spec{Rule: rule, Shards: to, VNodes: from.VNodes}); err != nil {
			return nil, err
		}
		r.after = make([]uint64, to)
		p.rules[i] = r
	}
	return p, nil
}

// Add counts a document.
func (p *Plan) Add(id string) { p.AddHash(Hash(id)) }

// AddHash counts a document by the Hash of its id.
func (p *Plan) AddHash(h uint32) {
	p.ids++
	for i := range p.rules {
		r := &p.rules[i]
		was, is := r.from.ShardOfHash(h), r.to.ShardOfHash(h)
		r.before[was]++
		r.after[is]++
		if was != is {
			r.moved++
		}
	}
}

// Report is what a plan found.
type Report struct {
	IDs        uint64   `json:"ids"`
	FromShards int      `json:"from_shards"`
	ToShards   int      `json:"to_shards"`
	Ring       Movement `json:"ring"`
	Modulo     Movement `json:"modulo"`
	Rendezvous Movement `json:"rendezvous"`
}

// Movement is what a rule moves.
type Movement struct {
	Moved    uint64   `json:"moved"`     // documents
	MovedPct float64  `json:"moved_pct"` // of all, in percent, rounded to one decimal
	Before   []uint64 `json:"before"`    // documents of each shard, by ordinal
	After    []uint64 `json:"after"`
}

// Report says what was found so far.
func (p *Plan) Report() Report {
	var m [len(planned)]Movement
	for i, r := range p.rules {
		m[i] = Movement{Moved: r.moved, Before: append([]uint64(nil), r.before...), After: append([]uint64(nil), r.after...)}
		if p.ids > 0 {
			m[i].MovedPct = math.Round(1000*float64(r.moved)/float64(p.ids)) / 10
		}
	}
	return Report{IDs: p.ids, FromShards: p.from, ToShards: p.to, Ring: m[0], Modulo: m[1], Rendezvous: m[2]}
}
