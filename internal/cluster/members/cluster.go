package members

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs"
)

// Options are what a Cluster is made of. Dial and one of Source and Initial are required.
type Options struct {
	// Dial makes the connection to a member. It does not wait for the member.
	Dial func(addr string) (leaf.Member, error)
	// Source is where the map is agreed on. nil: the members themselves keep it, and Initial says who they are.
	Source shardmap.Source
	// Initial is the map to begin with where there is none yet. Without a Source its groups are also the word on who the members
	// are: where the map that they keep names others, a map with these groups and the next epoch takes its place. But a map that others
	// keep in a Source is theirs: it is gone by as it is.
	Initial *shardmap.Map
	// Every is how often the map is looked at, and members that were not reached are given it. Default: 2 s.
	Every time.Duration
	// CallTimeout bounds one call about the map. Default: 2 s.
	CallTimeout time.Duration
	// Dir is the folder in which it is kept which data folder was at the address of each member, so that another one is noticed over a
	// restart, too. Empty: it is kept in memory.
	Dir string
	FS  vfs.FS       // of Dir; nil: the operating system's
	Log *slog.Logger // nil: nothing is logged
}

// ErrNotReady is matched by errors of a cluster that does not know its map yet.
var ErrNotReady = errors.New("the shard map is not known yet")

// errOvertaken says that others change the map faster than it can be put in force here.
var errOvertaken = errors.New("others keep changing it")

// Cluster keeps the state of a cluster up to date. It is safe for concurrent use. Close must be called.
type Cluster struct {
	o     Options
	state atomic.Pointer[State]

	ctx    context.Context // of the loop
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{} // asks the loop for a look now

	change chan struct{} // holds a token while a map is read or put in force; a lock that a context can give up waiting for
	// Under change:
	version  shardmap.Version // of the map in the source
	kept     *shardmap.Map    // that the members kept when this coordinator began; nil: none was
	reported error            // the last failure that was logged
	warned   bool             // it was a warning

	began time.Time

	suspects atomic.Pointer[map[string]bool]
	second   atomic.Pointer[map[string]twin] // second names of members, see twins.go
	seen     instances

	mu      sync.Mutex
	members map[string]*Member
	gone    map[string]time.Time // when members left the map whose connections are not closed yet
	parted  map[string]*parted   // those of them that stood in it, until they know
	stand   *standing
	drawn   map[string]string // ids of members that tell no data folder, by address
	bare    *State            // what is in force, with twins as if they were members; nil while the map is not known
	twins   []twin            // of bare
}

// Open returns a cluster that learns its map in the background; Ready tells when it knows it.
func Open(o Options) (*Cluster, error) {
	if o.Dial == nil || o.Source == nil && o.Initial == nil {
		return nil, errors.New("a cluster needs a way to dial, and a source of its map or its members")
	}
	if o.Initial != nil {
		if err := o.Initial.Validate(); err != nil {
			return nil, fmt.Errorf("check the shards: %w", err)
		}
	}
	if o.Every <= 0 {
		o.Every = 2 * time.Second
	}
	if o.CallTimeout <= 0 {
		o.CallTimeout = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = obs.Discard()
	}
	c := &Cluster{
		o: o, done: make(chan struct{}), wake: make(chan struct{}, 1), change: make(chan struct{}, 1), members: map[string]*Member{},
		gone: map[string]time.Time{}, parted: map[string]*parted{}, drawn: map[string]string{}, began: time.Now(),
	}
	var err error
	if c.stand, err = newStanding(o.Dir, o.FS); err != nil {
		return nil, err
	}
	if len(c.stand.known) > 0 {
		c.standLocked()
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	return c, nil
}

// Close ends the loop and closes the connections.
func (c *Cluster) Close() error {
	c.cancel()
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for addr, m := range c.members {
		if err := m.Leaf.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close connection to %s: %w", addr, err))
		}
	}
	clear(c.members)
	return errors.Join(errs...)
}

// State returns what is in force; nil while the map is not known.
func (c *Cluster) State() *State { return c.state.Load() }

// Ready waits until the map is known.
func (c *Cluster) Ready(ctx context.Context) error {
	for c.State() == nil {
		c.look()
		t := time.NewTimer(20 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w: %w", ErrNotReady, context.Cause(ctx))
		case <-c.ctx.Done():
			t.Stop()
			return leaf.ErrClosed
		}
	}
	return nil
}

// look asks the loop to look at the map now.
func (c *Cluster) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run looks at the map from time to time.
func (c *Cluster) run() {
	defer close(c.done)
	t := time.NewTicker(c.o.Every)
	defer t.Stop()
	for {
		if err := c.refresh(c.ctx); err != nil && c.ctx.Err() == nil {
			c.report(err)
		}
		if c.State() != nil {
			all := c.remind(c.ctx)
			c.tell(c.ctx, all)
		}
		c.retire(time.Now())
		select {
		case <-c.ctx.Done():
			return
		case <-t.C:
		case <-c.wake:
		}
	}
}

// retireAfter is how long after a member has left the map the connection to it is closed: calls that go by an older state have ended by
// then.
const retireAfter = 15 * time.Minute

// retire closes connections to members that left the map long ago.
func (c *Cluster) retire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, since := range c.gone {
		if now.Sub(since) < retireAfter {
			continue
		}
		delete(c.gone, addr)
		delete(c.parted, addr)
		if m := c.members[addr]; m != nil {
			delete(c.members, addr)
			if err := m.Leaf.Close(); err != nil {
				c.o.Log.Warn("close the connection to a member that left", "member", addr, "error", err)
			}
		}
	}
}

// lock takes change.
func (c *Cluster) lock(ctx context.Context) error {
	select {
	case c.change <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Cluster) unlock() { <-c.change }

// startTime is how long members may take to start before it is worth a warning.
const startTime = 10 * time.Second

// report logs a failure once for as long as it stays the same. Members that are started together with the coordinator do not answer at first:
// that is told once, and is a warning only where it lasts.
func (c *Cluster) report(err error) {
	if c.lock(c.ctx) != nil {
		return // it ends
	}
	defer c.unlock()
	starting := errors.Is(err, ErrNotReady) && time.Since(c.began) < startTime
	switch {
	case starting && c.reported == nil:
		c.o.Log.Info("members are waited for", "error", err)
	case starting && errors.Is(c.reported, ErrNotReady):
	case c.reported == nil || !c.warned || c.reported.Error() != err.Error():
		c.o.Log.Warn("read the shard map", "error", err)
		c.warned = true
	}
	c.reported = err
}

// Stale is called with the state by which a member refused a call as out of date. It reads the map anew and returns a newer state, or
// says why there is none.
func (c *Cluster) Stale(ctx context.Context, seen *State) (*State, error) {
	if s := c.State(); s != nil && (seen == nil || s.Epoch() > seen.Epoch()) {
		return s, nil
	}
	if err := c.refresh(ctx); err != nil {
		return nil, fmt.Errorf("read the shard map anew: %w", err)
	}
	s := c.State()
	if s == nil || seen != nil && s.Epoch() <= seen.Epoch() {
		return nil, api.NewProblem(api.StaleMap, "a member knows a shard map that this coordinator cannot find")
	}
	return s, nil
}

// Refresh reads the map where it is agreed on, and returns the state that is in force then: no older than what others had changed before.
func (c *Cluster) Refresh(ctx context.Context) (*State, error) {
	if err := c.refresh(ctx); err != nil {
		return nil, fmt.Errorf("read the shard map anew: %w", err)
	}
	return c.State(), nil
}

// unheard says why a member has not answered, in a few words.
func unheard(addr string, err error) string {
	why, _ := leaf.Silent(err)
	if why == "" {
		return fmt.Sprintf("%s: %v", addr, err)
	}
	_, refused := errors.AsType[syscall.Errno](err)
	_, unknown := errors.AsType[*net.DNSError](err)
	if refused || unknown {
		return addr + ": " + why
	}
	return addr + ": " + why + " (if it is started, that is another of its ports: the address is that of --shard-port, or grpc:// and that of --grpc)"
}

// refresh reads the map where it is kept, and puts it in force if it is newer.
func (c *Cluster) refresh(ctx context.Context) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	m, err := c.readLocked(ctx)
	if err != nil {
		return err
	}
	if s := c.State(); s != nil && m.Epoch <= s.Epoch() {
		c.reported = nil
		return nil
	}
	err = c.putInForceLocked(ctx, m)
	if IsStale(err) && c.State() == nil && m.Stored && c.o.Source != nil {
		// Somebody without the source began at the same time, and gave the members its own first map.
		if kept, aerr := c.askLocked(ctx); aerr == nil && !kept.Stored && kept.Epoch == m.Epoch {
			sctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
			defer cancel()
			m = taken(kept)
			if c.version, err = c.o.Source.Swap(sctx, c.version, m); err != nil {
				return fmt.Errorf("take the shard map over from the members: %w", err)
			}
			err = c.putInForceLocked(ctx, m)
		}
	}
	if err != nil {
		return err
	}
	c.reported = nil
	return nil
}

// taken is a map that the members kept, for a source to keep from then on. Those without the source see by its epoch that it is another one.
func taken(m *shardmap.Map) *shardmap.Map {
	next := m.Clone()
	next.Epoch, next.Stored = m.Epoch+1, true
	return next
}

// readLocked returns the map that is agreed on, making the first one. It needs change.
func (c *Cluster) readLocked(ctx context.Context) (*shardmap.Map, error) {
	if c.o.Source == nil {
		return c.askLocked(ctx)
	}
	m, v, err := c.load(ctx)
	if errors.Is(err, shardmap.ErrNotFound) && (c.o.Initial != nil || c.State() != nil) {
		// Where the source was lost, or is new to the cluster, the members keep the map.
		if m, err = c.askLocked(ctx); err != nil {
			return nil, err
		}
		if !m.Stored {
			m = taken(m)
		}
		sctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
		defer cancel()
		if v, err = c.o.Source.Swap(sctx, shardmap.Version{}, m); errors.Is(err, shardmap.ErrConflict) {
			m, v, err = c.load(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("load the shard map: %w", err)
	}
	c.version = v
	return m, nil
}

// load reads the map in the source.
func (c *Cluster) load(ctx context.Context) (*shardmap.Map, shardmap.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	return c.o.Source.Load(ctx)
}

// askLocked asks the members for the map that they keep. The highest epoch counts; of two maps with one epoch that of the earlier
// group, which gets another epoch then. Where nobody keeps one, one member of every group has to say so: those that are not there may have one.
func (c *Cluster) askLocked(ctx context.Context) (*shardmap.Map, error) {
	var groups []shardmap.Group
	if s := c.State(); s != nil {
		groups = s.Map.Groups
	} else {
		groups = c.o.Initial.Groups
	}
	type answer struct {
		reply *leaf.PlaceReply
		err   error
	}
	answers := make([][]answer, len(groups))
	var g errgroup.Group
	for i, group := range groups {
		answers[i] = make([]answer, len(group.Members))
		for k, addr := range group.Members {
			g.Go(func() error {
				a := &answers[i][k]
				m, err := c.member(addr)
				if err != nil {
					a.err = err
					return nil
				}
				a.reply, a.err = c.placed(ctx, m)
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	var best *shardmap.Map
	var bytesOf []byte // of best
	clash := false     // some keep another one with its epoch
	silent := []string{}
	for i := range answers {
		heard := false
		var why []string
		for k, a := range answers[i] {
			addr := groups[i].Members[k]
			switch {
			case unsupported(a.err):
				heard = true // it keeps no map
			case a.err != nil:
				why = append(why, unheard(addr, a.err))
			default:
				heard = true
				if a.reply.Epoch == 0 || best != nil && a.reply.Epoch <= best.Epoch {
					clash = clash || best != nil && a.reply.Epoch == best.Epoch && !bytes.Equal(a.reply.Map, bytesOf)
					continue
				}
				m, err := shardmap.Decode(a.reply.Map)
				if err != nil {
					return nil, fmt.Errorf("read the shard map that %s keeps: %w", addr, err)
				}
				best, bytesOf, clash = m, a.reply.Map, false
			}
		}
		if !heard {
			silent = append(silent, why...)
		}
	}
	if clash && c.o.Source == nil && !best.Stored && best.Epoch < shardmap.MaxEpoch {
		// Two coordinators changed it at once and neither reached all: members would refuse each other's for good. The one that counts is made
		// the next.
		best = best.Clone()
		best.Epoch++
	}
	if s := c.State(); s != nil {
		if best == nil || best.Epoch < s.Epoch() {
			best = s.Map
		}
		return best, nil
	}
	if best == nil {
		if len(silent) > 0 {
			return nil, fmt.Errorf("%w: no member keeps one, and of a group nobody answers, who may keep one: %s", ErrNotReady, strings.Join(silent, "; "))
		}
		if err := c.twinsOf(groups); err != nil {
			return nil, startError(err)
		}
		first := *c.o.Initial
		first.Epoch, first.Stored = max(first.Epoch, 1), c.o.Source != nil
		first.Nodes = c.named(first.Groups)
		return &first, nil
	}
	c.knew(best)
	c.kept = best
	if best.Stored {
		return best, nil // those who keep it say who the members are
	}
	if err := c.twinsOf(groups); err != nil {
		return nil, startError(err)
	}
	return regroup(best, c.o.Initial)
}

// startError says what to do about shards of which two are one node.
func startError(err error) error {
	return fmt.Errorf("--shards names one node twice, and it would be taken for two: start with each node once (%w)", err)
}

// unsupported tells whether a member does not know a call: it is a leaf that keeps no map.
func unsupported(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == api.MethodNotAllowed
}

// regroup gives the map that members keep the groups that the coordinator was started with.
func regroup(kept, want *shardmap.Map) (*shardmap.Map, error) {
	if kept.Rule != want.Rule || kept.Visible().VNodes != want.Visible().VNodes {
		return nil, fmt.Errorf("the documents are placed by the rule %s with %d virtual nodes, not by %s with %d: start with that rule",
			kept.Rule, kept.Visible().VNodes, want.Rule, want.Visible().VNodes)
	}
	if slices.EqualFunc(kept.Groups, want.Groups, func(a, b shardmap.Group) bool { return slices.Equal(a.Members, b.Members) }) {
		return kept, nil
	}
	need := kept.Placed
	if kept.Move != nil {
		need = max(need, kept.Move.To)
	}
	if len(want.Groups) < need {
		return nil, fmt.Errorf("the documents are placed over %d groups, and --shards names %d: start with all of them, in their order (last they were %s); fewer will do once a coordinator with all has moved the documents together (weft topology rebalance --to %d)",
			need, len(want.Groups), api.ClipDetail(listed(kept.Groups)), len(want.Groups))
	}
	if err := sameShares(kept, want, need); err != nil {
		return nil, err
	}
	next, err := kept.Regroup(want.Groups)
	if err != nil {
		return nil, fmt.Errorf("the documents are placed over %d groups, and the shards that were given do not fit: %w", kept.Placed, err)
	}
	return next, nil
}

// sameShares refuses groups that would give members the documents of others: the first so many groups hold documents, and each has to have one
// of those that held them, and none that holds those of another group. Else the comparison of members would delete what the group does not
// own by its first member, and answers would be whole without what is nowhere read.
func sameShares(kept, want *shardmap.Map, placed int) error {
	was := map[string]int{}
	for g := range kept.Groups[:min(placed, len(kept.Groups))] {
		for _, addr := range kept.Groups[g].Members {
			was[addr] = g
		}
	}
	last := api.ClipDetail(listed(kept.Groups))
	for g := range want.Groups {
		stays := false
		for _, addr := range want.Groups[g].Members {
			at, had := was[addr]
			if had && at != g {
				return fmt.Errorf("--shards puts %s into group %d, and it holds the documents of group %d: start with the groups in their order (last they were %s); a member changes its group when it has left the other one and its data folder is empty", addr, g, at, last)
			}
			stays = stays || had
		}
		if g < placed && g < len(kept.Groups) && !stays {
			return fmt.Errorf("--shards leaves group %d none of the members that hold its documents: start with one of them in it (last they were %s); the others are filled from it", g, last)
		}
	}
	return nil
}

// listed writes groups as --shards has them.
func listed(groups []shardmap.Group) string {
	out := make([]string, len(groups))
	for i, g := range groups {
		out[i] = strings.Join(g.Members, "|")
	}
	return strings.Join(out, ",")
}

// member returns the connection to an address.
func (c *Cluster) member(addr string) (*Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[addr]; m != nil {
		return m, nil
	}
	if c.ctx.Err() != nil {
		return nil, leaf.ErrClosed
	}
	l, err := c.o.Dial(addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	m := &Member{Addr: addr, Leaf: l}
	c.members[addr] = m
	return m, nil
}

// hasTaken tells whether a member has the map of an epoch, or a newer one.
func (c *Cluster) hasTaken(addr string, epoch uint64) bool { return c.taken(addr) >= epoch }

// putInForceLocked gives a map to the members and then goes by it. It needs change.
func (c *Cluster) putInForceLocked(ctx context.Context, m *shardmap.Map) error {
	s, err := newState(m, c.member)
	if err != nil {
		return err
	}
	if err := c.give(ctx, s); err != nil {
		return err
	}
	// Before anything is written by it: whoever goes by an older map must not find an older state at a member that has left.
	c.dismiss(ctx, s, c.leaving(c.before(), s))
	// Before it is read from: those who are new there may lack documents.
	c.enlist(m)
	if c.State() == nil {
		c.differs(m)
	}
	c.mu.Lock()
	c.goLocked(s)
	c.mu.Unlock()
	c.part(s)
	c.o.Log.Info("shard map in force", "epoch", m.Epoch, "groups", len(m.Groups), "placed", m.Placed, "moving", m.Move != nil)
	return nil
}

// part notes which members have left with a state that is in force now.
func (c *Cluster) part(s *State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := map[string]bool{}
	for _, g := range s.Groups {
		for _, m := range g.Members {
			in[m.Addr] = true
			delete(c.gone, m.Addr)
		}
	}
	for addr := range c.members {
		if _, known := c.gone[addr]; !in[addr] && !known {
			c.gone[addr] = time.Now()
		}
	}
}

// give gives the map to every member that does not have it: to those of the first group one after the other, in their order, because
// of two coordinators that change the map at the same time one has to be the first; then to all others at once. An error means that
// a member has another map. One that cannot be reached is none.
func (c *Cluster) give(ctx context.Context, s *State) error {
	b, err := s.Map.Encode()
	if err != nil {
		return fmt.Errorf("write shard map: %w", err)
	}
	for _, m := range s.Groups[0].Members {
		if err := c.giveTo(ctx, m, s.Epoch(), b); err != nil {
			return err
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, group := range s.Groups[1:] {
		for _, m := range group.Members {
			g.Go(func() error { return c.giveTo(gctx, m, s.Epoch(), b) })
		}
	}
	return g.Wait()
}

// giveTo gives the map to one member. A member that cannot be reached, or keeps no maps, is no error.
func (c *Cluster) giveTo(ctx context.Context, m *Member, epoch uint64, b []byte) error {
	if c.hasTaken(m.Addr, epoch) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	before := c.taken(m.Addr)
	reply, err := m.Leaf.Place(ctx, &leaf.PlaceRequest{Epoch: epoch, Map: b})
	switch {
	case err == nil:
		c.heard(m.Addr, reply, before)
		if reply.Node == "" {
			c.drew(ctx, m)
		}
		return nil
	case unsupported(err):
		c.drew(ctx, m)
		c.heard(m.Addr, &leaf.PlaceReply{Epoch: epoch}, before) // it keeps no map, and never refuses a call for one
		return nil
	case IsStale(err):
		return fmt.Errorf("give %s the shard map of epoch %d: %w", m.Addr, epoch, err)
	}
	return nil
}

// IsStale tells whether a member refused a call because it knows a newer map.
func IsStale(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == api.StaleMap
}

// remind gives the map in force to members that were not reached when it came, or were replaced since. all says that every member has answered.
func (c *Cluster) remind(ctx context.Context) (all bool) {
	s := c.State()
	b, err := s.Map.Encode()
	if err != nil {
		c.report(err)
		return false
	}
	var silent atomic.Bool
	var g errgroup.Group
	for _, group := range s.Map.Groups {
		for _, addr := range group.Members {
			g.Go(func() error {
				m, err := c.member(addr) // what stands for a twin in the state knows nothing
				if err != nil {
					return err
				}
				r, err := c.placed(ctx, m)
				switch {
				case unsupported(err):
					return nil
				case err != nil:
					silent.Store(true)
					return nil // it is asked again
				case r.Epoch > s.Epoch():
					c.look()
					return nil
				case r.Epoch == s.Epoch() && bytes.Equal(r.Map, b):
					return nil
				}
				return c.giveTo(ctx, m, s.Epoch(), b)
			})
		}
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		c.report(err)
	}
	c.dismiss(ctx, s, c.untold())
	return !silent.Load()
}

// changeAttempts bounds how often a change is made anew because another coordinator was first.
const changeAttempts = 8

// Change makes the next map with fn, which gets the one that is agreed on and returns another with the next epoch, or an error to leave
// things as they are. fn is called again when another coordinator was first. When Change returns, the new map is agreed on, and it or
// one that another coordinator has made of it since is in force here. Without a Source a map that others keep in one is not changed: the
// error is a shardmap.ErrRefused.
func (c *Cluster) Change(ctx context.Context, fn func(m *shardmap.Map) (*shardmap.Map, error)) (*State, error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	var err error
	for range changeAttempts {
		var s *State
		if s, err = c.changeLocked(ctx, fn); err == nil {
			return s, nil
		}
		if !errors.Is(err, shardmap.ErrConflict) && !IsStale(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("change the shard map: others keep changing it: %w", err)
}

func (c *Cluster) changeLocked(ctx context.Context, fn func(m *shardmap.Map) (*shardmap.Map, error)) (*State, error) {
	now, err := c.readLocked(ctx)
	if err != nil {
		return nil, err
	}
	if s := c.State(); s == nil || now.Epoch > s.Epoch() {
		if err := c.putInForceLocked(ctx, now); err != nil {
			return nil, err
		}
	}
	next, err := fn(now)
	if err != nil {
		return nil, err
	}
	if next.Epoch != now.Epoch+1 {
		return nil, fmt.Errorf("change the shard map: epoch %d follows %d", next.Epoch, now.Epoch)
	}
	if c.o.Source == nil && now.Stored {
		return nil, fmt.Errorf("%w: it is kept in a store that this coordinator does not have", shardmap.ErrRefused)
	}
	// A map with an address that nobody can call would be in everybody's way.
	if _, err := newState(next, c.member); err != nil {
		return nil, fmt.Errorf("change the shard map: %w: %w", shardmap.ErrInvalid, err)
	}
	if c.o.Source != nil {
		tctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
		defer cancel()
		v, err := c.o.Source.Swap(tctx, c.version, next)
		if err != nil {
			return nil, fmt.Errorf("change the shard map: %w", err)
		}
		c.version = v
	}
	err = c.putInForceLocked(ctx, next)
	if !IsStale(err) || c.o.Source == nil && !c.hasTaken(next.Groups[0].Members[0], next.Epoch) {
		return c.State(), err
	}
	// The change is made: what refuses it is a map that another coordinator has made of it since.
	for range changeAttempts {
		now, rerr := c.readLocked(ctx)
		if rerr != nil {
			return nil, fmt.Errorf("the shard map is changed, and not in force here: %w", rerr)
		}
		if now.Epoch > next.Epoch {
			if err = c.putInForceLocked(ctx, now); !IsStale(err) {
				return c.State(), err
			}
		}
	}
	return nil, fmt.Errorf("the shard map is changed, and not in force here because %w", errOvertaken)
}

// Keeper says who keeps the map: "store" or "members".
func (c *Cluster) Keeper() string {
	if c.o.Source == nil {
		return "members"
	}
	return "store"
}

// Answer is what a member says about the map that it keeps. Reply is nil where it keeps none.
type Answer struct {
	Addr  string
	Reply *leaf.PlaceReply
	Err   error
}

// Ask asks every member of a state for the map that it keeps, and returns their answers by group, in the order of the map.
func (c *Cluster) Ask(ctx context.Context, s *State) [][]Answer {
	out := make([][]Answer, len(s.Groups))
	var wg sync.WaitGroup
	for i, group := range s.Groups {
		out[i] = make([]Answer, len(group.Members))
		for k, m := range group.Members {
			out[i][k].Addr = m.Addr
			wg.Go(func() {
				a := &out[i][k]
				m, err := c.member(m.Addr)
				if err != nil {
					a.Err = err
					return
				}
				if a.Reply, a.Err = c.placed(ctx, m); unsupported(a.Err) {
					a.Err = nil
				}
			})
		}
	}
	wg.Wait()
	return out
}
