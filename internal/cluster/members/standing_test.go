package members

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// wipe puts an empty data folder at the address of a member.
func (k *keeper) wipe(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.node, k.epoch, k.b = node, 0, nil
}

// restore puts an older state of its own folder there.
func (k *keeper) restore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.epoch, k.b = 0, nil
}

func (f *fleet) nodes(addrs ...string) {
	for _, addr := range addrs {
		f.at(addr).wipe("node of " + addr)
	}
}

func TestAMemberWithAnotherDiskIsSuspect(t *testing.T) {
	for _, c := range []struct {
		name    string
		happens func(k *keeper)
		suspect bool
	}{
		{"nothing", func(*keeper) {}, false},
		{"it was away", func(k *keeper) { k.setDown(true); k.setDown(false) }, false},
		{"another folder", func(k *keeper) { k.wipe("another") }, true},
		{"an older state of its folder", func(k *keeper) { k.restore() }, true},
		{"a coordinator that was started again", func(k *keeper) { k.wipe("") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fleet{}
			f.nodes("g0a:1", "g0b:1", "g1a:1", "g1b:1")
			cl := open(t, Options{Dial: f.dial, Initial: groups(t, 2)})
			ready(t, cl)
			k := f.at("g1b:1")
			// The member is known by its node before anything happens.
			cl.remind(t.Context())
			c.happens(k)
			until(t, "it has the map again", func() bool { return k.has() >= 1 })
			if c.suspect {
				until(t, "it is suspect", func() bool { return cl.Suspect("g1b:1") })
				if !slices.Equal(cl.Suspects(), []string{"g1b:1"}) {
					t.Errorf("suspects: %v", cl.Suspects())
				}
			}
			cl.remind(t.Context())
			if cl.Suspect("g1b:1") != c.suspect || cl.Suspect("g1a:1") {
				t.Errorf("suspects: %v", cl.Suspects())
			}
			cl.Trust("g1b:1")
			cl.Trust("nobody:1")
			cl.remind(t.Context())
			if len(cl.Suspects()) > 0 {
				t.Errorf("after it was compared: %v", cl.Suspects())
			}
		})
	}
}

// Members that are new in a group that was there before are suspect; those of a new group, and of a new cluster, are not.
func TestNewMembersAreSuspect(t *testing.T) {
	f := &fleet{}
	f.nodes("g0a:1", "g0b:1", "g1a:1", "g1b:1")
	o := Options{Dial: f.dial, Initial: groups(t, 2), Source: shardmap.NewStoreSource(store.NewMemory(nil))}
	a, b := open(t, o), open(t, o)
	ready(t, a)
	ready(t, b)
	if len(a.Suspects())+len(b.Suspects()) > 0 {
		t.Fatalf("in a new cluster: %v %v", a.Suspects(), b.Suspects())
	}
	change := func(fn func(m *shardmap.Map) (*shardmap.Map, error)) {
		t.Helper()
		s, err := a.Change(t.Context(), fn)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the other has the map", func() bool { return b.State().Epoch() >= s.Epoch() })
	}
	change(func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddGroup("g2a:1", "g2b:1") })
	if len(a.Suspects())+len(b.Suspects()) > 0 {
		t.Errorf("in a new group: %v %v", a.Suspects(), b.Suspects())
	}
	change(func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddMember(1, "g1c:1") })
	for _, c := range []*Cluster{a, b} {
		if !slices.Equal(c.Suspects(), []string{"g1c:1"}) {
			t.Errorf("a new member: %v", c.Suspects())
		}
	}
	a.Trust("g1c:1")
	if a.Suspect("g1c:1") {
		t.Error("a member that was compared is suspect")
	}
	until(t, "the other is told that it was compared", func() bool { return !b.Suspect("g1c:1") })
	// A primary that has lost its documents is taken out and in again.
	change(func(m *shardmap.Map) (*shardmap.Map, error) { return m.RemoveMember("g0a:1") })
	if a.Suspect("g0b:1") {
		t.Error("the other member of the group is suspect")
	}
	change(func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddMember(0, "g0a:1") })
	if !a.Suspect("g0a:1") {
		t.Error("a member that is back is not suspect")
	}
}

// With the members as keepers of the map, one that a coordinator is started with and that the map did not have is new.
func TestAMemberMoreInTheShardsIsSuspect(t *testing.T) {
	f := &fleet{}
	ready(t, open(t, Options{Dial: f.dial, Initial: groups(t, 2)}))
	more := groups(t, 2)
	more.Groups[1].Members = append(more.Groups[1].Members, "g1c:1")
	c := open(t, Options{Dial: f.dial, Initial: more})
	ready(t, c)
	if !slices.Equal(c.Suspects(), []string{"g1c:1"}) {
		t.Errorf("suspects: %v", c.Suspects())
	}
}

// What is known of members outlives a restart where there is a folder for it.
func TestStandingOutlivesARestart(t *testing.T) {
	f := &fleet{}
	f.nodes("g0a:1", "g0b:1")
	disk := memfs.New(nil)
	o := Options{Dial: f.dial, Initial: groups(t, 1), Dir: "broker", FS: disk, Every: time.Hour}
	begin := func() *Cluster {
		t.Helper()
		c, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		ready(t, c)
		c.remind(t.Context())
		return c
	}
	end := func(c *Cluster) {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	end(begin())
	f.at("g0b:1").wipe("another")
	for range 2 {
		c := begin()
		if !slices.Equal(c.Suspects(), []string{"g0b:1"}) {
			t.Errorf("suspects: %v", c.Suspects())
		}
		end(c)
	}
	c := begin()
	c.Trust("g0b:1")
	end(c)
	c = begin()
	if len(c.Suspects()) > 0 {
		t.Errorf("suspects: %v", c.Suspects())
	}
	end(c)
	for _, bad := range []string{"{", `{"format":2,"members":{}}`} {
		w, err := disk.Create("broker/members.json")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(bad)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(o); err == nil {
			t.Errorf("opened with %s", bad)
		}
	}
}

// An answer from an instance that is not known is taken only after the member has said who it is.
func TestVouch(t *testing.T) {
	f := &fleet{}
	f.nodes("g0a:1", "g0b:1")
	c := open(t, Options{Dial: f.dial, Initial: groups(t, 1), Every: time.Hour})
	m := ready(t, c).Groups[0].Members[1]
	k := f.at(m.Addr)
	vouched := func(instance uint64) error { return c.Vouch(t.Context(), m, "books", instance) }
	for range 2 {
		if err := vouched(1); err != nil {
			t.Fatal(err)
		}
	}
	// It was started again: another instance, the same member.
	if err := vouched(2); err != nil {
		t.Fatal(err)
	}
	k.setDown(true)
	if err := vouched(2); err != nil {
		t.Errorf("a known instance: %v", err)
	}
	if err := vouched(3); !leaf.RetryRead(err) {
		t.Errorf("of a member that is away: %v", err)
	}
	k.setDown(false)
	k.wipe("another")
	if err := vouched(4); !errors.Is(err, errUnvouched) || !leaf.RetryRead(err) || !c.Suspect(m.Addr) {
		t.Errorf("of another member: %v, suspect %v", err, c.Suspect(m.Addr))
	}
	// From then on readers know. One that had chosen it before does not take its answer either, of whatever instance.
	for _, instance := range []uint64{0, 1, 4} {
		if err := vouched(instance); !errors.Is(err, errUnvouched) {
			t.Errorf("of a member that is suspect already: %v", err)
		}
	}
	c.Trust(m.Addr)
	if err := vouched(4); err != nil {
		t.Error(err)
	}
	if err := c.Vouch(t.Context(), m, "films", 9); err != nil {
		t.Error(err)
	}
	// Of an index that it says it does not have it is asked who it is each time.
	if err := vouched(0); err != nil {
		t.Error(err)
	}
	k.wipe("a third")
	if err := vouched(0); !errors.Is(err, errUnvouched) {
		t.Errorf("of another member: %v", err)
	}
}

// Connections to members that left are closed when no call can use them any more.
func TestConnectionsOfMembersThatLeft(t *testing.T) {
	f := &fleet{}
	c := open(t, Options{Dial: f.dial, Initial: groups(t, 2), Source: shardmap.NewStoreSource(store.NewMemory(nil))})
	ready(t, c)
	if _, err := c.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.RemoveMember("g0b:1") }); err != nil {
		t.Fatal(err)
	}
	c.retire(time.Now())
	if f.at("g0b:1").closed() != 0 {
		t.Error("closed at once")
	}
	c.retire(time.Now().Add(2 * retireAfter))
	c.retire(time.Now().Add(2 * retireAfter))
	if f.at("g0b:1").closed() != 1 || f.at("g0a:1").closed() != 0 {
		t.Errorf("closed %d and %d times", f.at("g0b:1").closed(), f.at("g0a:1").closed())
	}
}

// Of two coordinators that changed the map at once, and neither of which reached all members, the one whose map counts makes it the next: each
// member refuses another map of the epoch that it has.
func TestTwoMapsOfOneEpochBecomeOne(t *testing.T) {
	f := &fleet{}
	f.nodes("g0a:1", "g0b:1", "g1a:1", "g1b:1")
	c := open(t, Options{Dial: f.dial, Initial: groups(t, 2)})
	m := ready(t, c).Map
	for i, addr := range []string{"g0a:1", "g0b:1", "g1a:1", "g1b:1"} {
		next, err := m.WithNodes(map[string]string{"g0b:1": "node of g0b:1", "g1b:1": []string{"one", "another"}[i%2]})
		if err != nil {
			t.Fatal(err)
		}
		b, err := next.Encode()
		if err != nil {
			t.Fatal(err)
		}
		k := f.at(addr)
		k.mu.Lock()
		k.epoch, k.b = next.Epoch, b
		k.mu.Unlock()
	}
	until(t, "all have one map", func() bool {
		s := c.State()
		b, err := s.Map.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range []string{"g0a:1", "g0b:1", "g1a:1", "g1b:1"} {
			k := f.at(addr)
			k.mu.Lock()
			same := s.Epoch() > m.Epoch+1 && string(k.b) == string(b)
			k.mu.Unlock()
			if !same {
				return false
			}
		}
		return true
	})
}

// The map has the data folders of the members, from its first one on where all have told theirs, so that a coordinator that has never seen
// a member knows that its disk is another one.
func TestAReplacedDiskIsKnownToCoordinatorsThatStartLater(t *testing.T) {
	for _, stored := range []bool{false, true} {
		for _, late := range []bool{false, true} { // one member tells its folder after the first map
			t.Run(fmt.Sprintf("store %v, late %v", stored, late), func(t *testing.T) {
				f := &fleet{}
				f.nodes("g0a:1", "g0b:1", "g1a:1", "g1b:1")
				o := Options{Dial: f.dial, Initial: groups(t, 2)}
				if stored {
					o.Source = shardmap.NewStoreSource(store.NewMemory(nil))
				}
				f.at("g1b:1").setDown(late)
				first := open(t, o)
				ready(t, first)
				f.at("g1b:1").setDown(false)
				until(t, "the map has the folders", func() bool { return len(first.State().Map.Nodes) == 4 })
				if !late && first.State().Epoch() != 1 {
					t.Errorf("the first map has epoch %d", first.State().Epoch())
				}
				until(t, "all have it", func() bool { return f.at("g0a:1").has() == f.at("g1b:1").has() })
				if err := first.Close(); err != nil {
					t.Fatal(err)
				}
				f.at("g1b:1").wipe("another")
				for range 2 { // the second finds that it has a map again
					c := open(t, o)
					ready(t, c)
					c.remind(t.Context())
					if !slices.Equal(c.Suspects(), []string{"g1b:1"}) || c.Why("g1b:1") != whyFolder {
						t.Errorf("suspects: %v, %q", c.Suspects(), c.Why("g1b:1"))
					}
				}
				c, other := open(t, o), open(t, o)
				ready(t, c)
				ready(t, other)
				c.remind(t.Context())
				other.remind(t.Context())
				c.Trust("g1b:1")
				until(t, "the other is told that it was compared", func() bool { return !other.Suspect("g1b:1") })
				again := open(t, o)
				ready(t, again)
				again.remind(t.Context())
				if len(again.Suspects()) > 0 {
					t.Errorf("after it was compared: %v", again.Suspects())
				}
			})
		}
	}
}

// A coordinator that starts later knows of a member that has come into its group and was not filled yet, and of one whose folder is in an
// older state.
func TestWhatOneSuspectsAllDo(t *testing.T) {
	f := &fleet{}
	f.nodes("g0a:1", "g0b:1", "g0c:1")
	o := Options{Dial: f.dial, Initial: groups(t, 1), Source: shardmap.NewStoreSource(store.NewMemory(nil))}
	a := open(t, o)
	ready(t, a)
	if _, err := a.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddMember(0, "g0c:1") }); err != nil {
		t.Fatal(err)
	}
	f.at("g0b:1").restore()
	until(t, "it is told", func() bool { return a.State().Map.Nodes["g0b:1"] == shardmap.NoNode })
	b := open(t, o)
	ready(t, b)
	b.remind(t.Context())
	if !slices.Equal(b.Suspects(), []string{"g0b:1", "g0c:1"}) {
		t.Errorf("suspects: %v", b.Suspects())
	}
	b.Trust("g0b:1")
	b.Trust("g0c:1")
	until(t, "all trust them", func() bool { return len(a.Suspects())+len(b.Suspects()) == 0 })
}

// What a member has is taken for right where nobody in its group has more for certain, and by all coordinators, those without a memory too.
func TestAcceptIsForGroupsThatAreLost(t *testing.T) {
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("store %v", stored), func(t *testing.T) {
			f := &fleet{}
			f.nodes("g0a:1", "g0b:1", "g1a:1", "g1b:1")
			o := Options{Dial: f.dial, Initial: groups(t, 2)}
			if stored {
				o.Source = shardmap.NewStoreSource(store.NewMemory(nil))
			}
			a, b := open(t, o), open(t, o)
			ready(t, a)
			ready(t, b)
			f.at("g1b:1").wipe("another b")
			until(t, "it is suspect", func() bool { return a.Suspect("g1b:1") && b.Suspect("g1b:1") })
			if _, err := a.Accept(t.Context(), "g1b:1", false); !errors.Is(err, shardmap.ErrRefused) || !a.Suspect("g1b:1") {
				t.Errorf("with another member that is not: %v", err)
			}
			if _, err := a.Accept(t.Context(), "nobody:1", false); !errors.Is(err, shardmap.ErrRefused) {
				t.Errorf("nobody: %v", err)
			}
			if _, err := a.Accept(t.Context(), "g1a:1", false); err != nil {
				t.Errorf("one that is not suspect: %v", err)
			}
			f.at("g1a:1").wipe("another a")
			until(t, "all are suspect", func() bool { return a.Suspect("g1a:1") && b.Suspect("g1a:1") })
			f.at("g1a:1").setDown(true)
			if _, err := a.Accept(t.Context(), "g1a:1", false); !errors.Is(err, shardmap.ErrRefused) {
				t.Errorf("one that is away: %v", err)
			}
			f.at("g1a:1").setDown(false)
			s, err := a.Accept(t.Context(), "g1a:1", false)
			if err != nil || s.Map.Nodes["g1a:1"] != "another a" {
				t.Fatalf("%+v, %v", s.Map, err)
			}
			until(t, "both go by it", func() bool { return !a.Suspect("g1a:1") && !b.Suspect("g1a:1") })
			if !a.Suspect("g1b:1") || !b.Suspect("g1b:1") {
				t.Error("the other member is taken for right as well")
			}
			// Its disk is lost again.
			f.at("g1a:1").wipe("a third")
			until(t, "it is suspect again", func() bool { return a.Suspect("g1a:1") && b.Suspect("g1a:1") })
		})
	}
}

// A member whose disk was lost is taken for right beside one that holds the documents only where that one does not answer and somebody says so. It
// is suspect from then on, to all coordinators, and stays so when it is back.
func TestAcceptGivesUpWhoDoesNotAnswer(t *testing.T) {
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("store %v", stored), func(t *testing.T) {
			f := &fleet{}
			f.nodes("g0a:1", "g0b:1", "g0c:1")
			o := Options{Dial: f.dial, Initial: groups(t, 1)}
			o.Initial.Groups[0].Members = []string{"g0a:1", "g0b:1", "g0c:1"}
			if stored {
				o.Source = shardmap.NewStoreSource(store.NewMemory(nil))
			}
			a, b := open(t, o), open(t, o)
			ready(t, a)
			ready(t, b)
			f.at("g0a:1").wipe("another a")
			f.at("g0b:1").wipe("another b")
			until(t, "they are suspect", func() bool {
				return a.Suspect("g0a:1") && b.Suspect("g0a:1") && a.Suspect("g0b:1") && b.Suspect("g0b:1")
			})
			if _, err := a.Accept(t.Context(), "g0a:1", true); !errors.Is(err, shardmap.ErrRefused) || !strings.Contains(err.Error(), "and answers") {
				t.Errorf("beside one that answers: %v", err)
			}
			f.at("g0c:1").setDown(true)
			if _, err := a.Accept(t.Context(), "g0a:1", false); !errors.Is(err, shardmap.ErrRefused) || !strings.Contains(err.Error(), "accept --force") {
				t.Errorf("without force: %v", err)
			}
			s, err := a.Accept(t.Context(), "g0a:1", true)
			if err != nil {
				t.Fatal(err)
			}
			if n := s.Map.Nodes; n["g0a:1"] != "another a" || n["g0c:1"] != shardmap.NoNode {
				t.Errorf("the map has %v", n)
			}
			if a.Suspect("g0a:1") || !a.Suspect("g0b:1") || !a.Suspect("g0c:1") || a.Why("g0c:1") != whyGivenUp {
				t.Errorf("suspects: %v (%s)", a.Suspects(), a.Why("g0c:1"))
			}
			f.at("g0c:1").setDown(false)
			c := open(t, o) // one that knows nothing from before
			ready(t, c)
			for _, of := range []*Cluster{a, b, c} {
				until(t, "all go by it", func() bool { return slices.Equal(of.Suspects(), []string{"g0b:1", "g0c:1"}) })
				of.remind(t.Context())
				if !slices.Equal(of.Suspects(), []string{"g0b:1", "g0c:1"}) {
					t.Errorf("suspects: %v", of.Suspects())
				}
			}
			a.Trust("g0c:1")
			if stored {
				until(t, "it is found equal", func() bool { return !b.Suspect("g0c:1") && !c.Suspect("g0c:1") })
			}
		})
	}
}
