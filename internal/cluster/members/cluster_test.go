package members

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is a set of members by address that keep maps, as nodes do.
type fleet struct {
	mu      sync.Mutex
	members map[string]*keeper
}

// keeper keeps a map. Its other calls are not made here.
type keeper struct {
	leaf.Member
	mu    sync.Mutex
	down  bool
	node  string
	drawn string // id that it answers pings with
	epoch uint64
	b     []byte
	ended int // times that a connection to it was closed
}

func (f *fleet) at(addr string) *keeper {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members == nil {
		f.members = map[string]*keeper{}
	}
	if f.members[addr] == nil {
		f.members[addr] = &keeper{}
	}
	return f.members[addr]
}

func (f *fleet) dial(addr string) (leaf.Member, error) { return f.at(addr), nil }

func (k *keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended++
	return nil
}

func (k *keeper) closed() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

func (k *keeper) setDown(down bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = down
}

func (k *keeper) has() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.epoch
}

func (k *keeper) Place(_ context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		return nil, &leaf.TransportError{Cause: errors.New("down")}
	}
	if req.Epoch < k.epoch || req.Epoch == k.epoch && !bytes.Equal(req.Map, k.b) {
		return nil, api.NewProblem(api.StaleMap, "a newer map is here")
	}
	k.epoch, k.b = req.Epoch, req.Map
	return &leaf.PlaceReply{Node: k.node, Epoch: k.epoch, Map: k.b}, nil
}

func (k *keeper) Ping(context.Context) (*leaf.PingReply, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		return nil, &leaf.TransportError{Cause: errors.New("down")}
	}
	return &leaf.PingReply{Node: k.drawn}, nil
}

// is makes it another node.
func (k *keeper) is(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.node = node
}

func (k *keeper) Placed(context.Context) (*leaf.PlaceReply, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		return nil, &leaf.TransportError{Cause: errors.New("down")}
	}
	return &leaf.PlaceReply{Node: k.node, Epoch: k.epoch, Map: k.b}, nil
}

// groups makes a map of groups of two members: g0a|g0b, g1a|g1b, and so on.
func groups(t *testing.T, n int) *shardmap.Map {
	t.Helper()
	var list []shardmap.Group
	for i := range n {
		list = append(list, shardmap.Group{Members: []string{fmt.Sprintf("g%da:1", i), fmt.Sprintf("g%db:1", i)}})
	}
	m, err := shardmap.New(placement.Ring, 0, list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func open(t *testing.T, o Options) *Cluster {
	t.Helper()
	if o.Every == 0 {
		o.Every = 5 * time.Millisecond
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func ready(t *testing.T, c *Cluster) *State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return c.State()
}

// until looks until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not in time", what)
		}
	}
}

func TestTheFirstMapIsGivenToEveryMember(t *testing.T) {
	f := &fleet{}
	s := ready(t, open(t, Options{Dial: f.dial, Initial: groups(t, 3)}))
	if s.Epoch() != 1 || len(s.Groups) != 3 || s.Moving() {
		t.Fatalf("epoch %d, %d groups", s.Epoch(), len(s.Groups))
	}
	for _, addr := range []string{"g0a:1", "g0b:1", "g1a:1", "g1b:1", "g2a:1", "g2b:1"} {
		if f.at(addr).has() != 1 {
			t.Errorf("%s has epoch %d", addr, f.at(addr).has())
		}
	}
}

// A group of which nobody answers may keep a map: without one, nothing is begun. With one member of it, it is.
func TestNoMapIsMadeWhileAGroupIsSilent(t *testing.T) {
	f := &fleet{}
	f.at("g1a:1").setDown(true)
	f.at("g1b:1").setDown(true)
	c := open(t, Options{Dial: f.dial, Initial: groups(t, 2)})
	if err := c.refresh(t.Context()); !errors.Is(err, ErrNotReady) {
		t.Fatalf("got %v", err)
	}
	if c.State() != nil || f.at("g0a:1").has() != 0 {
		t.Fatal("a map was made")
	}
	if err := c.refresh(t.Context()); !strings.Contains(err.Error(), "g1a:1: ") || !strings.Contains(err.Error(), "g1b:1: ") || strings.Contains(err.Error(), "g0a:1") {
		t.Errorf("%v: the members that do not answer are named, and why", err)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&leaf.TransportError{Address: "a:1", Call: "Placed", Cause: fmt.Errorf("dial tcp a:1: connect: %w", syscall.ECONNREFUSED)}, "a:1: connection refused"},
		{&leaf.TransportError{Address: "a:1", Call: "Placed", Cause: &net.DNSError{Err: "no such host", Name: "a", IsNotFound: true}}, "a:1: there is no host of this name"},
		{&leaf.TransportError{Address: "a:1", Call: "Placed", Cause: io.ErrUnexpectedEOF}, "a:1: the connection was closed (if it is started, that is another of its ports: the address is that of --shard-port, or grpc:// and that of --grpc)"},
		{api.NewProblem(api.TooManySearches, "it is busy"), "a:1: too_many_searches: it is busy"},
	} {
		if got := unheard("a:1", c.err); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	f.at("g1b:1").setDown(false)
	ready(t, c)
	if f.at("g1b:1").has() != 1 || f.at("g0a:1").has() != 1 {
		t.Error("the map was not given")
	}
	f.at("g1a:1").setDown(false)
	until(t, "the member that was down is given the map", func() bool { return f.at("g1a:1").has() == 1 })
}

// A coordinator that is started with another group goes on with the documents where they are.
func TestMoreGroupsThanBeforeDoNotMoveDocuments(t *testing.T) {
	f := &fleet{}
	first := open(t, Options{Dial: f.dial, Initial: groups(t, 3)})
	ready(t, first)
	s := ready(t, open(t, Options{Dial: f.dial, Initial: groups(t, 4)}))
	if s.Epoch() != 2 || len(s.Groups) != 4 || s.Map.Placed != 3 || s.Visible().Spec().Shards != 3 {
		t.Fatalf("epoch %d, %d groups, placed %d", s.Epoch(), len(s.Groups), s.Map.Placed)
	}
	if _, visible := s.View(3); visible {
		t.Error("the new group is read")
	}
	// The other coordinator learns of it.
	until(t, "the first coordinator has the map", func() bool { return first.State().Epoch() == 2 })

	// One with too few is not started.
	few := open(t, Options{Dial: f.dial, Initial: groups(t, 2)})
	err := few.refresh(t.Context())
	if err == nil || few.State() != nil {
		t.Errorf("a coordinator with 2 of 3 groups has started: %v", err)
	} else if want := "placed over 3 groups, and --shards names 2: start with all of them, in their order (last they were " + listed(groups(t, 4).Groups) + ")"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	other := groups(t, 4)
	other.Rule = placement.Modulo
	wrong := open(t, Options{Dial: f.dial, Initial: other})
	if err := wrong.refresh(t.Context()); err == nil || wrong.State() != nil {
		t.Errorf("a coordinator with another rule has started: %v", err)
	}
}

// A coordinator that is started with members in other groups than they were in is not started: what the comparison of members found then would be
// deleted, and answers would be whole without it.
func TestMembersThatChangeTheirGroupsAreRefused(t *testing.T) {
	of := func(list ...string) *shardmap.Map {
		t.Helper()
		var gs []shardmap.Group
		for _, g := range list {
			gs = append(gs, shardmap.Group{Members: strings.Split(g, "|")})
		}
		m, err := shardmap.New(placement.Ring, 0, gs)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	kept := of("a:1|b:1", "c:1|d:1")
	for _, c := range []struct {
		groups []string
		want   string // empty: it is taken
	}{
		{[]string{"a:1|b:1", "c:1|d:1"}, ""},
		{[]string{"b:1|a:1", "c:1|d:1"}, ""},
		{[]string{"b:1", "d:1|e:1"}, ""},
		{[]string{"a:1|b:1", "c:1|d:1", "e:1|f:1"}, ""},
		{[]string{"a:1|c:1", "b:1|d:1"}, "--shards puts c:1 into group 0, and it holds the documents of group 1: "},
		{[]string{"c:1|d:1", "a:1|b:1"}, "--shards puts c:1 into group 0, and it holds the documents of group 1: "},
		{[]string{"a:1|b:1", "c:1", "d:1"}, "--shards puts d:1 into group 2, and it holds the documents of group 1: "},
		{[]string{"a:1|b:1", "e:1|f:1"}, "--shards leaves group 1 none of the members that hold its documents: "},
	} {
		next, err := regroup(kept, of(c.groups...))
		switch {
		case c.want == "":
			if err != nil || len(next.Groups) != len(c.groups) {
				t.Errorf("%v: %v", c.groups, err)
			}
		case err == nil || !strings.HasPrefix(err.Error(), c.want) || !strings.Contains(err.Error(), "last they were a:1|b:1,c:1|d:1"):
			t.Errorf("%v: %v", c.groups, err)
		}
	}
}

// Coordinators that change the map at the same time do it one after the other, with the members as the keepers and with a store.
func TestChangesFollowEachOther(t *testing.T) {
	for _, kept := range []string{"members", "store"} {
		t.Run(kept, func(t *testing.T) {
			f := &fleet{}
			o := Options{Dial: f.dial, Initial: groups(t, 2)}
			if kept == "store" {
				o.Source = shardmap.NewStoreSource(store.NewMemory(nil))
			}
			const coordinators, changes = 4, 5
			// Two coordinators that make the same map of a map have both made it.
			toggle := func(m *shardmap.Map) (*shardmap.Map, error) {
				switch {
				case m.Move == nil:
					return m.BeginMove(1, "j")
				case m.Move.Phase == shardmap.Preparing:
					return m.AbortMove()
				}
				return m.EndMove()
			}
			all := make([]*Cluster, coordinators)
			for i := range all {
				all[i] = open(t, o)
				if ready(t, all[i]); all[i].Keeper() != kept {
					t.Fatalf("kept by %s", all[i].Keeper())
				}
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			made := map[uint64]bool{}
			for _, c := range all {
				wg.Go(func() {
					for range changes {
						s, err := c.Change(t.Context(), toggle)
						switch {
						case err == nil:
							mu.Lock()
							made[s.Epoch()] = true
							mu.Unlock()
						case !errors.Is(err, shardmap.ErrConflict) && !IsStale(err):
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if len(made) == 0 {
				t.Fatal("nobody has changed anything")
			}
			last := f.maps(t)[0].Epoch
			if most := uint64(1 + coordinators*changes); last < 2 || last > most {
				t.Errorf("epoch %d after at most %d changes", last, most-1)
			}
			if !made[last] {
				t.Errorf("nobody has made epoch %d", last)
			}
			for _, c := range all {
				until(t, "all go by the last map", func() bool { return c.State().Epoch() == last })
			}
			for _, k := range []string{"g0a:1", "g0b:1", "g1a:1", "g1b:1"} {
				until(t, "all keep the last map", func() bool { return f.at(k).has() == last })
			}
		})
	}
}

// Of the maps that members keep the highest epoch counts, whoever keeps it. Of two with one epoch it is that of the earlier group, which gets the
// next epoch, so that the members that keep the other one take it.
func TestTheHighestEpochThatMembersKeepCounts(t *testing.T) {
	f := &fleet{}
	c := open(t, Options{Dial: f.dial, Initial: groups(t, 3), Every: time.Hour})
	ready(t, c)
	keep := func(addr string, epoch uint64, groups int) {
		t.Helper()
		m := c.State().Map.Clone()
		m.Epoch = epoch
		m.Groups, m.Placed = m.Groups[:groups], groups
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		k := f.at(addr)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.epoch, k.b = epoch, b
	}
	for i, kept := range []struct {
		addr   string
		epoch  uint64
		groups int
		want   uint64 // the epoch that counts from then on
		of     int    // groups of its map
	}{
		{"g1a:1", 4, 3, 4, 3},
		{"g0b:1", 2, 2, 4, 3},
		{"g2b:1", 3, 2, 4, 3},
		{"g2a:1", 6, 2, 6, 2},
		{"g0a:1", 5, 3, 6, 2},
		{"g1b:1", 6, 3, 7, 3}, // of an earlier group
	} {
		keep(kept.addr, kept.epoch, kept.groups)
		if err := c.lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		m, err := c.askLocked(t.Context())
		c.unlock()
		if err != nil || m.Epoch != kept.want || len(m.Groups) != kept.of {
			t.Fatalf("%d: %+v, %v", i, m, err)
		}
	}
}

// maps are those that the members keep, the one of the highest epoch first.
func (f *fleet) maps(t *testing.T) []*shardmap.Map {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*shardmap.Map
	for _, k := range f.members {
		k.mu.Lock()
		epoch, b := k.epoch, k.b
		k.mu.Unlock()
		if epoch == 0 {
			continue
		}
		m, err := shardmap.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *shardmap.Map) int { return int(b.Epoch) - int(a.Epoch) })
	return out
}

// A call that a member refused as out of date gets a newer state, or the news that there is none.
func TestStaleReadsTheMapAnew(t *testing.T) {
	f := &fleet{}
	o := Options{Dial: f.dial, Initial: groups(t, 2), Every: time.Hour}
	a, b := open(t, o), open(t, o)
	old := ready(t, a)
	ready(t, b)
	if _, err := b.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddGroup("g2a:1") }); err != nil {
		t.Fatal(err)
	}
	if a.State() != old {
		t.Fatal("the map is known already")
	}
	s, err := a.Stale(t.Context(), old)
	if err != nil || s.Epoch() != old.Epoch()+1 || len(s.Groups) != 3 {
		t.Fatalf("%v %v", s, err)
	}
	if _, err := a.Stale(t.Context(), s); !IsStale(err) {
		t.Errorf("with nothing newer: %v", err)
	}
}

// While documents are moved, readers see each on one shard, and writers write to both.
func TestStatesOfAMove(t *testing.T) {
	f := &fleet{}
	c := open(t, Options{Dial: f.dial, Initial: groups(t, 3)})
	ready(t, c)
	for _, step := range []struct {
		name    string
		change  func(m *shardmap.Map) (*shardmap.Map, error)
		visible int
		double  bool
	}{
		{"add", func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddGroup("g3a:1") }, 3, false},
		{"preparing", func(m *shardmap.Map) (*shardmap.Map, error) { return m.BeginMove(4, "j") }, 3, false},
		{"copying", func(m *shardmap.Map) (*shardmap.Map, error) { return m.BeginCopying() }, 3, true},
		{"switching", func(m *shardmap.Map) (*shardmap.Map, error) { return m.Cutover() }, 4, true},
		{"cleaning", func(m *shardmap.Map) (*shardmap.Map, error) { return m.BeginCleaning() }, 4, false},
		{"end", func(m *shardmap.Map) (*shardmap.Map, error) { return m.EndMove() }, 4, false},
	} {
		s, err := c.Change(t.Context(), step.change)
		if err != nil {
			t.Fatal(step.name, err)
		}
		if s.Visible().Spec().Shards != step.visible {
			t.Errorf("%s: %d shards are visible", step.name, s.Visible().Spec().Shards)
		}
		doubles := 0
		for i := range 1000 {
			id := fmt.Sprintf("pkg/%d", i)
			w := s.Writers(id)
			if len(w) > 1 {
				doubles++
			}
			if !slices.Contains(w, s.Owner(id)) {
				t.Fatalf("%s: %s is not written where it is read", step.name, id)
			}
		}
		if (doubles > 0) != step.double {
			t.Errorf("%s: %d of 1000 ids are written twice", step.name, doubles)
		}
		for g := range s.Groups {
			v, visible := s.View(g)
			if visible != (g < step.visible) || v.Epoch != s.Epoch() || (len(v.Owned) > 0) != (visible && s.Moving()) {
				t.Errorf("%s: group %d is seen as %+v, %v", step.name, g, v, visible)
			}
		}
	}
}

// Where the store of the map is lost, or new to the cluster, the map that the members keep is put there.
func TestALostStoreGetsTheMapOfTheMembers(t *testing.T) {
	f := &fleet{}
	first := open(t, Options{Dial: f.dial, Initial: groups(t, 2)})
	ready(t, first)
	if _, err := first.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddGroup("g2a:1") }); err != nil {
		t.Fatal(err)
	}
	st := store.NewMemory(nil)
	c := open(t, Options{Dial: f.dial, Initial: func() *shardmap.Map {
		m := groups(t, 2)
		m.Groups = append(m.Groups, shardmap.Group{Members: []string{"g2a:1"}})
		m.Placed = 2
		return m
	}(), Source: shardmap.NewStoreSource(st)})
	if s := ready(t, c); s.Epoch() != 3 || len(s.Groups) != 3 { // the map in the store is another one than that of the members
		t.Fatalf("epoch %d, %d groups", s.Epoch(), len(s.Groups))
	}
	if err := st.Delete(t.Context(), shardmap.Key); err != nil {
		t.Fatal(err)
	}
	if _, _, err := shardmap.NewStoreSource(st).Load(t.Context()); err != nil && !errors.Is(err, shardmap.ErrNotFound) {
		t.Fatal(err)
	}
	until(t, "the map is in the store again", func() bool {
		m, _, err := shardmap.NewStoreSource(st).Load(t.Context())
		return err == nil && m.Epoch == 3 && len(m.Groups) == 3
	})
}

// Who has no store goes by the map that others keep in one, whoever it was started with, and does not change it.
func TestAStoredMapIsChangedByThoseWithTheStore(t *testing.T) {
	f := &fleet{}
	st := store.NewMemory(nil)
	with := open(t, Options{Dial: f.dial, Initial: groups(t, 3), Source: shardmap.NewStoreSource(st)})
	if s := ready(t, with); s.Epoch() != 1 || !s.Map.Stored {
		t.Fatalf("%+v", s.Map)
	}
	without := open(t, Options{Dial: f.dial, Initial: groups(t, 2)})
	if s := ready(t, without); s.Epoch() != 1 || len(s.Groups) != 3 {
		t.Fatalf("%+v", s.Map)
	}
	grow := func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddGroup("g3a:1") }
	if _, err := without.Change(t.Context(), grow); !errors.Is(err, shardmap.ErrRefused) {
		t.Errorf("changed by who has no store: %v", err)
	}
	if _, err := with.Change(t.Context(), grow); err != nil {
		t.Fatal(err)
	}
	until(t, "the change is in force where there is no store", func() bool { return without.State().Epoch() == 2 && len(without.State().Groups) == 4 })
}

// Of two first maps, of which one is in a store, that one comes to hold everywhere, whoever begins.
func TestAStoreTakesOverFromMembers(t *testing.T) {
	for range 20 {
		f := &fleet{}
		st := store.NewMemory(nil)
		without := open(t, Options{Dial: f.dial, Initial: groups(t, 2)})
		with := open(t, Options{Dial: f.dial, Initial: groups(t, 2), Source: shardmap.NewStoreSource(st)})
		ready(t, with)
		ready(t, without)
		until(t, "the map of the store is in force", func() bool {
			return with.State().Map.Stored && without.State().Map.Stored && with.State().Epoch() == without.State().Epoch()
		})
	}
}
