package coordinate

import (
	"context"
	"errors"
	"math/bits"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/score"
)

// Reply is what one node answered to Plan.Request.
type Reply struct {
	Part           int
	Shard, Backend string // stamped on its trace
	Message        []byte // a SearchResponse
}

// MostHeld is what a search may take besides the transfer allowance, in bytes.
const MostHeld = 256 << 20

// Limits bound an answer.
type Limits struct {
	Transfer int                     // bytes of all replies together, and of the answer
	Hold     func(bytes int64) error // charges memory until the call ends; nil: nothing is charged
	// Blame is told whose evidence was refused where it is one node's, also where the refusal names none; nil: nobody is told.
	Blame func(part int, err error)
}

// What is held of replies, in bytes, as it is charged.
const (
	docBytes     = 192 // a hit, or a document that is only nominated
	passageBytes = 208 // a place in the list of a branch, while branches are fused and afterwards
	listBytes    = 128 // a list that is passed on, besides its bytes
	chargeStep   = 1 << 20
)

// budget is what a search may hold.
type budget struct {
	used, told, most int64
	hold             func(int64) error
}

// take charges bytes that are going to be held.
func (b *budget) take(n int) error {
	if b.used += int64(n); b.used > b.most {
		return status.Errorf(codes.ResourceExhausted, "coordinator search takes more than %d bytes of memory", b.most)
	}
	if b.used <= b.told || b.hold == nil {
		return nil
	}
	more := min(max(b.used-b.told, chargeStep), b.most-b.told)
	b.told += more
	return b.hold(more)
}

func contract(text string) error { return status.Error(codes.FailedPrecondition, text) }

// What is wrong with evidence ("When the broker coordinates").
var (
	errIncomplete   = contract("backend did not return the complete requested candidate contract; complete the Summa rollout")
	errMethods      = contract("shards returned incompatible ranking methods; complete the Summa rollout")
	errSeeding      = contract("backend did not acknowledge document passage seeding; complete the Summa rollout")
	errNoTrace      = contract("backend omitted requested trace; complete the Summa rollout")
	errTraces       = contract("backend must return exactly one local trace")
	errTwice        = contract("duplicate candidate address across shards")
	errNoAddress    = contract("candidate lacks an address")
	errSegment      = contract("candidate has an invalid segment address")
	errNoCells      = contract("shard omitted L1 candidate features")
	errCells        = contract("shard feature keys/scopes do not match the query")
	errRows         = contract("Query error: L1 document combiner needs more passage rows than were exported")
	errDisagree     = contract("shard and broker formula inference disagree")
	errNoBranch     = contract("shard omitted a nomination branch")
	errBranch       = contract("invalid exported branch identity")
	errTwiceThere   = contract("duplicate candidate address within a branch")
	errNotHydrated  = contract("branch candidate lacks a valid hydrated union entry")
	errNoVotes      = contract("backend omitted RRF nomination lists; complete the Summa rollout")
	errVoteBranch   = contract("invalid RRF nomination branch identity")
	errVotesTwice   = contract("duplicate RRF nomination address")
	errVoteScore    = contract("non-finite RRF nomination score")
	errVotesUnion   = contract("RRF L1 requires the complete nominated document union")
	errDeadline     = status.Error(codes.DeadlineExceeded, "coordinator search deadline expired")
	errMatrix       = status.Error(codes.ResourceExhausted, "coordinator feature matrix exceeds 2 million values")
	errManyPassages = status.Errorf(codes.ResourceExhausted, "shards nominated more than %d passages", score.MaxFusedHits)
)

// faults are the texts that the lists of branches are refused with: those of lists that are ranked, or that only vote.
type faults struct{ omitted, branch, twice, score, union error }

var (
	nominations = faults{errNoBranch, errBranch, errTwiceThere, errNotHydrated, errNotHydrated}
	votings     = faults{errNoVotes, errVoteBranch, errVotesTwice, errVoteScore, nil}
)

// doc is a document that a node told of.
type doc struct {
	at    address
	part  int32   // position of the reply
	score float32 // that the hit has
	hit   []byte  // its SearchHit; nil: it is only nominated
	in    uint16  // a bit for each branch that nominated it
	cells bool    // the hit has candidate scores
}

// evidence is what all replies say together.
type evidence struct {
	p       *Plan
	replies []Reply
	fault   func(part int, err error) error
	blame   func(part int, err error)
	budget  budget

	docs []doc // hits in the order of replies, then what is only nominated
	hits int
	of   map[address]uint32 // positions in docs

	branches []score.Branch[uint32] // of positions in docs
	passages int
	lists    map[uint32][][]byte // by branch, the candidates of each node, where they are passed on

	method  string
	total   uint64
	took    uint64
	timings [6]uint64 // by field
	cut     bool
	seeded  bool
	missing uint32
	traces  [][]byte // of each reply, its ShardSearchTrace; nil: it has none
}

// head is what one reply says besides hits and lists.
type head struct {
	method string
	cut    bool
	seeded bool
	hits   int
	traces int
	trace  []byte
}

// read makes evidence of replies. Faults of one node are told by fault.
func (p *Plan) read(ctx context.Context, replies []Reply, l Limits, fault func(part int, err error) error) (*evidence, error) {
	e := &evidence{p: p, replies: replies, fault: fault, blame: l.Blame, budget: budget{most: int64(l.Transfer) + MostHeld, hold: l.Hold}, seeded: len(replies) > 0}
	sum := 0
	for i := range replies {
		sum += len(replies[i].Message)
	}
	if sum > l.Transfer {
		return nil, tooLarge("combined coordinator", l.Transfer)
	}
	e.budget.used, e.budget.told = int64(sum), int64(sum) // who received them has charged them
	heads := make([]head, len(replies))
	hits := 0
	for i := range replies {
		h, err := e.head(replies[i].Message)
		if err != nil {
			return nil, fault(replies[i].Part, err)
		}
		heads[i] = h
		hits += h.hits
	}
	for i := range heads {
		switch h := &heads[i]; {
		case !p.tracing:
			continue
		case h.traces == 0:
			return nil, fault(replies[i].Part, e.faultOf(errNoTrace, i))
		case h.traces > 1:
			return nil, fault(replies[i].Part, e.faultOf(errTraces, i))
		}
	}
	for i := range heads {
		h := &heads[i]
		switch {
		case p.expected != "" && (h.cut || h.method != p.expected):
			return nil, e.faultOf(errIncomplete, i)
		case h.method != heads[0].method:
			return nil, e.faultOf(errMethods, i)
		case p.seed && !h.seeded:
			return nil, e.faultOf(errSeeding, i)
		}
		e.cut, e.seeded, e.method = e.cut || h.cut, e.seeded && h.seeded, h.method
		e.traces = append(e.traces, h.trace)
	}
	if err := e.budget.take(docBytes * hits); err != nil {
		return nil, err
	}
	e.docs, e.of = make([]doc, 0, hits), make(map[address]uint32, hits)
	for i := range replies {
		if err := e.readHits(i, replies[i].Message); err != nil {
			return nil, e.faultOf(err, i)
		}
	}
	e.hits = len(e.docs)
	if err := alive(ctx); err != nil {
		return nil, err
	}
	how := &votings
	switch {
	case p.way == byFusion:
		how = &nominations
	case p.way == byRRFFormula:
		f := votings
		f.union = errVotesUnion
		how = &f
	case !p.votes:
		how = nil
	}
	if how != nil {
		e.branches = make([]score.Branch[uint32], len(p.fusion.GetQueries()))
	} else {
		e.lists = map[uint32][][]byte{}
	}
	for i := range replies {
		if err := e.readLists(i, replies[i].Message, heads[i].hits, how); err != nil {
			return nil, e.faultOf(err, i)
		}
		if err := alive(ctx); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// faultOf tells whose message cannot be read; what is wrong with evidence is told as it is, and whose it is to who wants to know.
func (e *evidence) faultOf(err error, reply int) error {
	part := e.replies[reply].Part
	if err == errWire {
		return e.fault(part, err)
	}
	if e.blame != nil && status.Code(err) == codes.FailedPrecondition {
		e.blame(part, err)
	}
	return err
}

func tooLarge(what string, most int) error {
	return status.Errorf(codes.ResourceExhausted, "%s response size exceeds %d bytes", what, most)
}

// alive tells that the time of a search is over, or its caller gone.
func alive(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return errDeadline
	default:
		return status.FromContextError(err).Err()
	}
}

// head reads what a reply says besides hits and lists, and adds it to the sums.
func (e *evidence) head(message []byte) (h head, err error) {
	var total, took uint64
	var missing uint32
	var timings [6]uint64
	err = each(message, func(f *field) error {
		switch {
		case f.is(1, protowire.BytesType):
			h.hits++
		case f.is(2, protowire.VarintType):
			total = f.n
		case f.is(3, protowire.VarintType):
			took = f.n
		case f.is(4, protowire.BytesType):
			return each(f.val, func(f *field) error {
				if f.typ == protowire.VarintType && f.num < protowire.Number(len(timings)) {
					timings[f.num] = f.n
				}
				return nil
			})
		case f.is(5, protowire.VarintType):
			h.cut = f.n != 0
		case f.is(6, protowire.BytesType):
			h.method = string(f.val)
		case f.is(8, protowire.BytesType):
			return each(f.val, func(f *field) error {
				if !f.is(1, protowire.BytesType) {
					return nil
				}
				h.traces++
				h.trace = f.val
				return each(f.val, func(*field) error { return nil })
			})
		case f.is(9, protowire.VarintType):
			h.seeded = f.n != 0
		case f.is(10, protowire.VarintType):
			missing = uint32(f.n)
		}
		return nil
	})
	e.total, e.took, e.missing = add(e.total, total), max(e.took, took), add32(e.missing, missing)
	for k, v := range timings {
		e.timings[k] = max(e.timings[k], v)
	}
	return h, err
}

// readHits takes the hits of a reply.
func (e *evidence) readHits(reply int, message []byte) error {
	c := cursor{rest: message}
	for f := (field{}); c.next(&f); {
		if !f.is(1, protowire.BytesType) {
			continue
		}
		if err := e.readHit(reply, f.val); err != nil {
			return err
		}
	}
	return c.err()
}

func (e *evidence) readHit(reply int, message []byte) error {
	d := doc{part: int32(reply), hit: message}
	if d.hit == nil {
		d.hit = []byte{}
	}
	var at addressing
	c := cursor{rest: message}
	for f := (field{}); c.next(&f); {
		switch {
		case f.is(1, protowire.BytesType):
			if err := at.read(f.val); err != nil {
				return err
			}
		case f.is(2, protowire.Fixed32Type):
			d.score = f.float()
		case f.is(5, protowire.BytesType):
			d.cells = true
		}
	}
	if c.bad {
		return errWire
	}
	var err error
	if d.at, err = at.address(); err != nil {
		return err
	}
	if e.p.way == byScore && !finite(d.score) {
		return errIncomplete
	}
	if e.p.expected == methodExport && !d.cells {
		return errNoCells // what is left out would look as if there was nothing
	}
	if _, twice := e.of[d.at]; twice {
		return errTwice
	}
	e.of[d.at] = uint32(len(e.docs))
	e.docs = append(e.docs, d)
	return nil
}

// addressing is a DocAddress on its way.
type addressing struct {
	some    bool
	segment []byte
	doc     uint32
}

func (a *addressing) read(b []byte) error {
	a.some = true
	c := cursor{rest: b}
	for f := (field{}); c.next(&f); {
		switch {
		case f.is(1, protowire.BytesType):
			a.segment = f.val
		case f.is(2, protowire.VarintType):
			a.doc = uint32(f.n)
		}
	}
	return c.err()
}

func (a *addressing) address() (address, error) {
	if !a.some {
		return address{}, errNoAddress
	}
	hi, lo, ok := segment(a.segment)
	if !ok {
		return address{}, errSegment
	}
	return address{hi, lo, a.doc}, nil
}

// readLists takes what the branches of a reply with so many hits nominated; without how they are only kept.
func (e *evidence) readLists(reply int, message []byte, hits int, how *faults) error {
	got := uint(0) // a bit for each branch
	c := cursor{rest: message}
	for f := (field{}); c.next(&f); {
		if !f.is(7, protowire.BytesType) {
			continue
		}
		branch, n, err := listOf(f.val)
		if err != nil {
			return err
		}
		if how == nil {
			if e.p.expected == methodCandidates {
				if branch >= uint32(len(e.p.fusion.GetQueries())) || got>>branch&1 == 1 {
					return errBranch
				}
				got |= 1 << branch
			}
			e.lists[branch] = append(e.lists[branch], f.val)
			if err := e.budget.take(listBytes + len(f.val)); err != nil {
				return err
			}
			continue
		}
		qs := e.p.fusion.GetQueries()
		if branch >= uint32(len(qs)) || qs[branch].GetScoreOnly() || got>>branch&1 == 1 {
			return how.branch
		}
		got |= 1 << branch
		if err := e.budget.take(passageBytes * n); err != nil {
			return err
		}
		e.branches[branch].Hits = slices.Grow(e.branches[branch].Hits, n)
		list := cursor{rest: f.val}
		for f := (field{}); list.next(&f); {
			if !f.is(2, protowire.BytesType) {
				continue
			}
			if err := e.candidate(int32(reply), int(branch), f.val, how); err != nil {
				return err
			}
		}
	}
	if c.bad {
		return errWire
	}
	switch {
	case how != nil && bits.OnesCount(got) < e.p.nominating:
		return how.omitted
	case how == nil && e.p.expected == methodCandidates && bits.OnesCount(got) < e.p.nominating && (got > 0 || hits > 0):
		return errNoBranch // as where such an export is merged by score
	}
	return nil
}

// listOf is the branch of a FusionCandidateList, and how many candidates it has.
func listOf(message []byte) (branch uint32, n int, err error) {
	c := cursor{rest: message}
	for f := (field{}); c.next(&f); {
		switch {
		case f.is(1, protowire.VarintType):
			branch = uint32(f.n)
		case f.is(2, protowire.BytesType):
			n++
		}
	}
	return branch, n, c.err()
}

// candidate takes what one branch of a reply nominated: its passages, or the document.
func (e *evidence) candidate(reply int32, branch int, message []byte, how *faults) error {
	var at addressing
	var own float32
	rows := 0
	c := cursor{rest: message}
	for f := (field{}); c.next(&f); {
		switch {
		case f.is(1, protowire.BytesType):
			if err := at.read(f.val); err != nil {
				return err
			}
		case f.is(2, protowire.Fixed32Type):
			own = f.float()
		case f.is(3, protowire.BytesType):
			rows++
		}
	}
	if c.bad {
		return errWire
	}
	a, err := at.address()
	if err != nil {
		return err
	}
	n, known := e.of[a]
	switch {
	case how.union != nil && (!known || e.docs[n].part != reply):
		return how.union
	case !known:
		if err := e.budget.take(docBytes); err != nil {
			return err
		}
		n = uint32(len(e.docs))
		e.of[a] = n
		e.docs = append(e.docs, doc{at: a, part: reply})
	}
	if e.docs[n].in>>branch&1 == 1 {
		return how.twice
	}
	e.docs[n].in |= 1 << branch
	if !finite(own) {
		return how.score
	}
	b := &e.branches[branch]
	if e.passages += max(rows, 1); e.passages > score.MaxFusedHits {
		return errManyPassages
	}
	wholly := e.wholly(branch)
	if rows == 0 || wholly {
		b.Hits = append(b.Hits, score.Hit[uint32]{Doc: n, Score: own})
	} else if err := e.budget.take(passageBytes * rows); err != nil {
		return err
	}
	if rows == 0 {
		return nil
	}
	c = cursor{rest: message}
	for f := (field{}); c.next(&f); {
		if !f.is(3, protowire.BytesType) {
			continue
		}
		h := score.Hit[uint32]{Doc: n}
		r := cursor{rest: f.val}
		for f := (field{}); r.next(&f); {
			switch {
			case f.is(1, protowire.VarintType):
				h.Ordinal = uint32(f.n)
			case f.is(2, protowire.Fixed32Type):
				h.Score = f.float()
			}
		}
		switch {
		case r.bad:
			return errWire
		case !finite(h.Score):
			return how.score
		case !wholly:
			b.Hits = append(b.Hits, h)
		}
	}
	return nil
}

// wholly tells whether the votes of a branch are for whole documents ("Diagnostics and control").
func (e *evidence) wholly(branch int) bool {
	return e.p.scored && e.p.fusion.GetQueries()[branch].GetScope() == summapb.ScoreScope_SCORE_SCOPE_DOCUMENT
}
