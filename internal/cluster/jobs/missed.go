package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/store"
)

// What a member has missed is kept by the coordinator that saw it (package hints), and may have been acknowledged: with 207, since others have
// it. Whoever compares that member with the others has to know, or takes its state for a later one. So coordinators with a store tell each
// other for which members they keep something, in one object that is changed by compare and swap:
//
//	{"format":1,"rev":7,"coordinators":[{"id":"k3xq…","beat":4,"members":["a:1","b:1"],"refuse":["b:1"],"docs":{"a:1":"AQAB…"},"last":1796062188656290},{"id":"p7ad…","beat":1,"members":[],"all":true}]}
//
// where ids are those of the folders in which it is kept (hints.Queue.ID), which outlive a process, members are sorted, and all stands for more members than are listed. Those in refuse, where it is there, lack only documents that they refuse: nothing else is to
// come to them. docs are the documents that members wait for, where they are told (told.go), and last a stamp that is not below any of these. Who does not know
// docs passes them over, and leaves them out when it writes: the members may wait for any document then, until their own coordinator writes again.
// A coordinator is in it while it keeps something, the one that
// was written last at the end. It counts its beat up when that changes, and now and then without: clocks of two machines are never
// compared to tell who is gone. One whose beat stays the same for long is, and is not heeded any more.

// missedKey is where a store has it.
const missedKey = "topology/missed.json"

const (
	missedFormat       = 1
	maxMissedBook      = 1 << 20 // bytes
	maxMissedWriters   = 64      // coordinators in it; beyond, the one that was written first is left out
	maxMissedMembers   = 64      // of one coordinator; beyond, it is all
	maxMissedRefuse    = 16      // of these, that lack only what they refuse; others seem to lack more
	missedSwapAttempts = 8

	missedTick   = 250 * time.Millisecond // between two looks at what is kept here
	missedSettle = 5 * time.Second        // for which it is told yet that a member has missed something that it was given: nobody who listens overhears it
	missedRenew  = time.Minute            // between two beats without news
	missedAlive  = 30 * time.Second       // the same while it is not told which documents a member waits for
	missedHeed   = 30 * time.Second       // between two looks at what others keep
	missedListen = 2 * time.Second        // while there is a job, or anybody keeps anything
	missedFor    = 5 * time.Minute        // without a beat, a coordinator is gone
	missedUntold = 90 * time.Second       // the same for what it keeps for a member without telling which documents: all others of the group wait with it
	missedGap    = 2 * missedHeed         // of the time between two looks, what counts as one without a beat: whoever could not look has not heard either
	// missedWait is how long after a write was acknowledged others can be expected to know who has missed it.
	missedWait = time.Second
	// missedLately is for how long after a member was given what it has missed another one is taken for right first.
	missedLately     = time.Minute
	missedRemembered = 24 * time.Hour
	// mostElsewhere is how long a job waits for others to give members what they have missed.
	mostElsewhere = 10 * time.Minute
)

// errMissedFormat says that the object was written by a newer version.
var errMissedFormat = errors.New("what members have missed was written down by a newer version")

// errElsewhere says that there is no member whose documents could be taken yet.
var errElsewhere = errors.New("all of its members have missed writes that another coordinator keeps for them")

// errBehind says that the reference of a comparison has missed writes.
var errBehind = errors.New("it has missed writes that are kept for it")

// missedBook is the content of the object.
type missedBook struct {
	Format       int         `json:"format"`
	Rev          uint64      `json:"rev"`
	Coordinators []*missedBy `json:"coordinators"`
}

// missedBy is what one coordinator tells.
type missedBy struct {
	ID      string   `json:"id"`
	Beat    uint64   `json:"beat"`
	Members []string `json:"members"`
	All     bool     `json:"all,omitzero"`
	Refuse  []string `json:"refuse,omitempty"` // those of Members that lack only what they refuse
	// Docs are the documents that Members wait for, see told.go; of those that are not in it they may be any.
	Docs map[string][]byte `json:"docs,omitempty"`
	Last uint64            `json:"last,omitzero"`
}

// witness is what another coordinator was last heard to tell, and for how long nothing else was heard of it.
type witness struct {
	missedBy
	quiet time.Duration
	heir  bool                 // this coordinator keeps something itself, and can take over what it leaves
	docs  map[string]*waitsFor // those of Docs that can be read
	taken map[string]bool      // members of which what it leaves was taken over here
	spent bool                 // all that it leaves was
}

func (w *witness) gone() bool { return w.quiet >= missedFor }

// names tells whether something was kept for a member.
func (w *witness) names(addr string) bool { return w.All || slices.Contains(w.Members, addr) }

// has tells whether something is kept for a member, as far as that is heeded.
func (w *witness) has(addr string) bool { return w.names(addr) && !w.leaves(addr) }

// leaves tells whether what it kept for a member is left to others.
func (w *witness) leaves(addr string) bool {
	return w.names(addr) && (w.gone() || w.heir && w.docs[addr] == nil && w.quiet >= missedUntold)
}

// witnesses are the other coordinators that keep something for members.
type witnesses struct {
	heir bool // see witness
	mu   sync.Mutex
	of   map[string]*witness
	at   time.Time            // when the last look began
	last map[string]time.Time // by member: when it was last heard that something is kept for it
	all  time.Time            // when that was last heard of all
	news uint64               // looks that have told something new
}

// keeps tells whether there is more for a member than what it refuses.
func (w *witness) keeps(addr string) bool { return w.has(addr) && !slices.Contains(w.Refuse, addr) }

// heard takes what a look at the object has seen that began at a moment, unless one that began later was taken: that knows more.
func (ws *witnesses) heard(began time.Time, b *missedBook, own string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if began.Before(ws.at) {
		return
	}
	step := time.Duration(0)
	if !ws.at.IsZero() {
		step = min(began.Sub(ws.at), missedGap)
	}
	next := map[string]*witness{}
	for _, by := range b.Coordinators {
		if by.ID == own {
			continue
		}
		w := ws.of[by.ID]
		if w == nil || w.Beat != by.Beat {
			ws.news++
			w = &witness{missedBy: *by, heir: ws.heir, docs: map[string]*waitsFor{}}
			for addr, list := range by.Docs {
				if d, err := decodeWaits(list); err == nil {
					w.docs[addr] = d
				}
			}
		} else {
			w.quiet += step
		}
		next[by.ID] = w
	}
	ws.of, ws.at = next, began
	if ws.last == nil {
		ws.last = map[string]time.Time{}
	}
	for _, w := range next {
		if w.gone() {
			continue
		}
		if w.All {
			ws.all = ws.at
		}
		for _, addr := range w.Members {
			ws.last[addr] = ws.at
		}
	}
	maps.DeleteFunc(ws.last, func(_ string, at time.Time) bool { return time.Since(at) >= missedRemembered })
}

// kept tells whether it was heard since a moment that something is kept for a member.
func (ws *witnesses) kept(addr string, since time.Time) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	at, ok := ws.last[addr]
	return ok && !at.Before(since) || !ws.all.IsZero() && !ws.all.Before(since)
}

// heardSince tells whether the last look began at a moment or later.
func (ws *witnesses) heardSince(at time.Time) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return !ws.at.Before(at)
}

// heardNews counts what others have told.
func (ws *witnesses) heardNews() uint64 {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.news
}

// age is how long ago the last look began.
func (ws *witnesses) age() time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return time.Since(ws.at)
}

// keeps tells whether any of them keeps something for a member that is to be given to it yet.
func (ws *witnesses) keeps(addr string) bool {
	return ws.any(func(w *witness) bool { return w.keeps(addr) })
}

// refused tells whether any of them has put documents aside that a member refuses.
func (ws *witnesses) refused(addr string) bool {
	return ws.any(func(w *witness) bool { return slices.Contains(w.Refuse, addr) })
}

// some tells whether any of them keeps anything.
func (ws *witnesses) some() bool { return ws.any(func(*witness) bool { return true }) }

// any tells whether there is one that is not gone and of which fn holds.
func (ws *witnesses) any(fn func(w *witness) bool) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.of {
		if !w.gone() && fn(w) {
			return true
		}
	}
	return false
}

func decodeMissed(raw []byte) (*missedBook, error) {
	b := &missedBook{}
	if err := json.Unmarshal(raw, b); err != nil {
		return nil, err
	}
	if b.Format > missedFormat {
		return nil, fmt.Errorf("%w: format %d, this one reads up to %d", errMissedFormat, b.Format, missedFormat)
	}
	return b, nil
}

// encode leaves out what is told of documents, the longest first, where the object would be too long for who reads it.
func (b *missedBook) encode() ([]byte, error) {
	for {
		raw, err := json.Marshal(b, json.Deterministic(true))
		if err != nil || len(raw) <= maxMissedBook {
			return raw, err
		}
		var most *missedBy
		longest := 0
		for i, by := range b.Coordinators {
			n := 0
			for _, list := range by.Docs {
				n += len(list)
			}
			if n > longest {
				longest, most = n, b.Coordinators[i]
			}
		}
		if most == nil {
			return raw, nil
		}
		short := *most // what was heard is somebody else's, too
		short.Docs = nil
		b.Coordinators[slices.Index(b.Coordinators, most)] = &short
	}
}

// put makes what one coordinator keeps part of the book; nothing if it keeps nothing. drop tells who is to be left out.
func (b *missedBook) put(by *missedBy, drop func(id string) bool) {
	b.Coordinators = slices.DeleteFunc(b.Coordinators, func(o *missedBy) bool { return o.ID == by.ID || drop(o.ID) })
	if len(by.Members) > 0 || by.All {
		b.Coordinators = append(b.Coordinators, by)
	}
	if over := len(b.Coordinators) - maxMissedWriters; over > 0 {
		b.Coordinators = slices.Delete(b.Coordinators, 0, over)
	}
	b.Rev++
}

// readMissed returns the object and its tag, empty where there is none yet.
func readMissed(ctx context.Context, s store.Store) (*missedBook, string, error) {
	raw, in, err := store.ReadAll(ctx, s, missedKey, maxMissedBook)
	if errors.Is(err, store.ErrNotFound) {
		return &missedBook{Format: missedFormat}, "", nil
	}
	var b *missedBook
	if err == nil {
		b, err = decodeMissed(raw)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read what members have missed: %w", err)
	}
	return b, in.ETag, nil
}

// heed reads for which members others keep something.
func (r *Runner) heed(ctx context.Context) error {
	if r.o.Store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeCallTime)
	defer cancel()
	began := time.Now()
	b, _, err := readMissed(ctx, r.o.Store)
	if err != nil {
		return err
	}
	r.heard(began, b)
	return nil
}

// heard takes what a look at the object has seen that began at a moment.
func (r *Runner) heard(began time.Time, b *missedBook) {
	r.others.heard(began, b, r.witnessID())
	if r.o.Hints == nil {
		return
	}
	for _, by := range b.Coordinators {
		r.o.Hints.Heard(by.Last)
	}
}

// witnessID is the id under which this coordinator tells what it keeps. Who keeps nothing needs none.
func (r *Runner) witnessID() string {
	if r.o.Hints == nil {
		return ""
	}
	return r.o.Hints.ID()
}

// missedBy returns an errBehind if a member has missed writes that were acknowledged at a moment or before. It waits until others can be
// expected to have told of them.
func (r *Runner) missedBy(ctx context.Context, addr string, at time.Time) error {
	if err := r.listen(ctx, at); err != nil {
		return err
	}
	if r.awaits(addr) || r.others.keeps(addr) || r.left(addr) || r.others.refused(addr) {
		return errBehind
	}
	return nil
}

// listen waits until others can be expected to have told who has missed what was acknowledged at a moment or before, and hears it.
func (r *Runner) listen(ctx context.Context, at time.Time) error {
	told := at.Add(missedWait)
	if r.o.Store == nil || r.others.heardSince(told) {
		return nil
	}
	if err := pause(ctx, time.Until(told)); err != nil {
		return err
	}
	return r.heed(ctx)
}

// awaits tells whether something is kept here for a member that is to be given to it yet, as of now.
func (r *Runner) awaits(addr string) bool {
	if r.o.Hints == nil {
		return false
	}
	return slices.ContainsFunc(r.o.Hints.Pending(), func(p hints.MemberPending) bool { return p.Member == addr && p.Short() })
}

// tell writes down for which members something is kept here, of which of them that is only what they refuse, and which documents it is.
func (r *Runner) tell(ctx context.Context, kept, refuse []string, docs map[string][]byte, beat uint64) error {
	ctx, cancel := context.WithTimeout(ctx, storeCallTime)
	defer cancel()
	by := &missedBy{ID: r.witnessID(), Beat: beat, Members: kept, Refuse: refuse, Docs: docs}
	if r.o.Hints != nil {
		by.Last = r.o.Hints.Stamp()
	}
	if len(kept) > maxMissedMembers {
		by.Members, by.Refuse, by.Docs, by.All = []string{}, nil, nil, true
	}
	for range missedSwapAttempts {
		began := time.Now()
		b, tag, err := readMissed(ctx, r.o.Store)
		if err != nil {
			return err
		}
		r.heard(began, b)
		if len(kept) == 0 && !slices.ContainsFunc(b.Coordinators, func(o *missedBy) bool { return o.ID == by.ID }) {
			return nil
		}
		b.put(by, r.others.spent)
		raw, err := b.encode()
		if err != nil {
			return fmt.Errorf("write what members have missed: %w", err)
		}
		cond := store.Absent
		if tag != "" {
			cond = store.Condition{IfMatch: tag}
		}
		_, err = r.o.Store.Put(ctx, missedKey, bytes.NewReader(raw), int64(len(raw)), cond)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, store.ErrPrecondition):
			return fmt.Errorf("write what members have missed: %w", err)
		}
		if err := pause(ctx, rand.N(mostSwapPause)); err != nil {
			return err
		}
	}
	return errors.New("write what members have missed: others keep changing it")
}

// kept are the members for which something is kept here, sorted.
func (r *Runner) kept() []string {
	if r.o.Hints == nil {
		return nil
	}
	set := map[string]bool{}
	for _, p := range r.o.Hints.Pending() {
		set[p.Member] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// refusing are those of kept that lack only what they refuse, at most maxMissedRefuse.
func (r *Runner) refusing(kept []string) []string {
	if r.o.Hints == nil {
		return nil
	}
	var out []string
	for _, p := range r.o.Hints.Pending() {
		if len(out) < maxMissedRefuse && !p.Short() && slices.Contains(kept, p.Member) {
			out = append(out, p.Member)
		}
	}
	return out
}

// tellLoop tells others for which members something is kept here, and hears for which they do.
func (r *Runner) tellLoop() {
	var told, refused []string
	var listed map[string][]byte
	lists := map[string]*telling{}
	var wrote, tried, asked time.Time
	// Beats go on from nowhere that a process before may have been at, or nobody would hear the first.
	beat := rand.Uint64N(1 << 32)
	fresh := r.o.Hints != nil // what a process before told may not be so any more
	t := time.NewTicker(missedTick)
	defer t.Stop()
	failing, stuck := "", ""
	report := func(err error) bool {
		switch {
		case err == nil:
			failing = ""
		case r.ctx.Err() == nil && err.Error() != failing:
			failing = err.Error()
			r.log.Warn("tell others what members have missed", "error", err)
		}
		return err == nil
	}
	for {
		select {
		case <-t.C:
		case <-r.ctx.Done():
			return
		}
		now := time.Now()
		switch err := r.inherit(); {
		case err == nil:
			stuck = ""
		case r.ctx.Err() == nil && err.Error() != stuck:
			stuck = err.Error()
			r.log.Warn("take over what a coordinator that is gone kept for members", "error", err)
		}
		kept := r.behind.caught(r.kept(), now.Add(-missedSettle))
		refuse := slices.DeleteFunc(r.refusing(kept), func(addr string) bool { return r.behind.caughtUp(addr, now.Add(-missedSettle)) })
		var docs map[string][]byte
		if len(kept) > 0 {
			docs = r.lists(lists, kept, now, fresh)
		}
		renew := missedRenew
		if len(docs) < len(kept) || len(kept) > maxMissedMembers {
			renew = missedAlive
		}
		news := fresh || !slices.Equal(kept, told) || !slices.Equal(refuse, refused) || !maps.EqualFunc(docs, listed, bytes.Equal) || len(kept) > 0 && now.Sub(wrote) >= renew
		if news && (failing == "" || now.Sub(tried) >= missedSettle) {
			tried = now
			beat++
			if report(r.tell(r.ctx, kept, refuse, docs, beat)) {
				told, refused, listed, wrote, fresh = kept, refuse, docs, now, false
			}
		}
		every := missedHeed
		if r.working() || len(kept) > 0 || r.others.some() {
			every = missedListen
		}
		if r.others.age() >= every && now.Sub(asked) >= missedListen {
			asked = now
			report(r.heed(r.ctx))
		}
	}
}

// working tells whether a job is done here.
func (r *Runner) working() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current != nil
}

// Doubts that there may be of a member.
const (
	none     = iota
	lately   // it had missed something a moment ago
	refuses  // it lacks documents that it refuses, and nothing else as far as it is known
	ofOthers // another coordinator keeps something for it
	own      // something is kept for it here, or was by who is gone
	empty    // it may have lost its documents
)

// doubts says how little a member can be taken at its word.
func (r *Runner) doubts(addr string) int {
	switch {
	case r.suspect(addr):
		return empty
	case r.lacks(addr):
		return own
	case r.others.keeps(addr):
		return ofOthers
	case r.Behind(addr), r.others.refused(addr):
		return refuses
	case r.missedSince(addr, time.Now().Add(-missedLately)):
		return lately
	}
	return none
}

// missedSince tells whether it was known at any time since a moment that a member has missed something.
func (r *Runner) missedSince(addr string, since time.Time) bool {
	return slices.Contains(r.kept(), addr) || r.behind.caughtUp(addr, since) || r.others.kept(addr, since)
}

// mostTrusted is the first of the members that there is the least doubt of.
func (r *Runner) mostTrusted(ms []*members.Member) *members.Member {
	best := ms[0]
	least := r.doubts(best.Addr)
	for _, m := range ms[1:] {
		if d := r.doubts(m.Addr); d < least {
			best, least = m, d
		}
	}
	return best
}

// elsewhere returns an errElsewhere while some of groups have no member whose documents can be taken before another coordinator has given them
// what they have missed. It does not do so for ever.
func (j *running) elsewhere(groups []*members.Group) error {
	for _, g := range groups {
		if j.r.doubts(j.r.mostTrusted(g.Members).Addr) != ofOthers {
			continue
		}
		if j.elsewhereSince.IsZero() {
			j.elsewhereSince = time.Now()
		}
		if time.Since(j.elsewhereSince) >= mostElsewhere {
			j.r.log.Warn("a job goes on though members lack writes that another coordinator keeps for them", "job", j.id, "group", g.Ordinal)
			return nil
		}
		return fmt.Errorf("group %d: %w", g.Ordinal, errElsewhere)
	}
	j.elsewhereSince = time.Time{}
	return nil
}
