package members

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// own gives the members of groups nodes of their own.
func own(f *fleet, m *shardmap.Map) {
	for _, g := range m.Groups {
		for _, addr := range g.Members {
			f.at(addr).is("node of " + addr)
		}
	}
}

func TestShardsThatNameOneNodeTwiceAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		second string
		source bool
		kept   bool // the members keep a map of before
		tree   bool // they are coordinators, which have no data folder
	}{
		{"in two groups", "g1a:1", false, false, false},
		{"in one group", "g0b:1", false, false, false},
		{"with a store", "g1b:1", true, false, false},
		{"after a start of an earlier version", "g1a:1", false, true, false},
		{"with a new store after that", "g1a:1", true, true, false},
		{"coordinators", "g1a:1", false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fleet{}
			m := groups(t, 2)
			if !c.tree {
				own(f, m)
			}
			if c.kept {
				if err := open(t, Options{Dial: f.dial, Initial: m}).Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if c.tree {
				f.at("g0a:1").drawn, f.at(c.second).drawn = "X", "X"
			} else {
				f.at("g0a:1").is("X")
				f.at(c.second).is("X")
			}
			o := Options{Dial: f.dial, Initial: m, Every: time.Hour}
			if c.source {
				o.Source = shardmap.NewStoreSource(store.NewMemory(nil))
			}
			cl := open(t, o)
			err := cl.refresh(t.Context())
			if !errors.Is(err, ErrTwins) || !strings.Contains(err.Error(), "g0a:1 and "+c.second) || cl.State() != nil {
				t.Fatalf("%v", err)
			}
			// It goes on as soon as each is one.
			f.at(c.second).is("Y")
			f.at(c.second).mu.Lock()
			f.at(c.second).drawn = "Y"
			f.at(c.second).mu.Unlock()
			if err := cl.refresh(t.Context()); err != nil || cl.State() == nil {
				t.Fatalf("with two nodes: %v", err)
			}
		})
	}
}

func TestAMemberThatTurnsOutToBeAnotherIsLeftAlone(t *testing.T) {
	f := &fleet{}
	m := groups(t, 2)
	own(f, m)
	f.at("g1b:1").setDown(true)
	log := &logBook{}
	c := open(t, Options{Dial: f.dial, Source: shardmap.NewStoreSource(store.NewMemory(nil)), Initial: m, Every: time.Hour, Log: log.log()})
	ready(t, c)
	if err := c.Distinct(t.Context()); err != nil {
		t.Fatalf("while it is away: %v", err)
	}
	f.at("g1b:1").is("node of g0a:1")
	f.at("g1b:1").setDown(false)
	err := c.Alone(t.Context(), "g1b:1")
	if !errors.Is(err, ErrTwins) || !strings.Contains(err.Error(), "g0a:1 and g1b:1 are the node node of g0a:1") {
		t.Fatalf("%v", err)
	}
	if !c.Suspect("g1b:1") || c.Suspect("g0a:1") || !slices.Equal(c.Suspects(), []string{"g1b:1"}) {
		t.Errorf("suspect: %v", c.Suspects())
	}
	if why := c.Why("g1b:1"); !strings.Contains(why, "it is g0a:1 under another name") {
		t.Errorf("why: %q", why)
	}
	if lines := log.with("two members of the shard map are one node", "g1b:1", "g0a:1"); len(lines) != 1 {
		t.Errorf("logged: %q", lines)
	}
	second := c.State().Groups[1].Members[1]
	_, err = second.Leaf.DeleteMany(t.Context(), &leaf.DeleteRequest{})
	if why, silent := leaf.Silent(err); !silent || !strings.HasPrefix(why, "it is g0a:1 under another name") || !leaf.RetryWrite(err) {
		t.Errorf("a write of it: %v", err)
	}
	c.Trust("g1b:1")
	if !c.Suspect("g1b:1") {
		t.Error("a comparison with itself makes it a member")
	}
	if _, err := c.Accept(t.Context(), "g1b:1", false); !errors.Is(err, shardmap.ErrRefused) || !strings.Contains(err.Error(), "under another name") {
		t.Errorf("accept: %v", err)
	}
	// A later change of the map keeps it out.
	s, err := c.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddGroup("g2a:1") })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Groups[1].Members[1].Leaf.Ping(t.Context()); err == nil {
		t.Error("it is asked after a change of the map")
	}
	// A node of its own at the address is a member.
	f.at("g1b:1").is("Y")
	if err := c.Distinct(t.Context()); err != nil {
		t.Errorf("with a node of its own: %v", err)
	}
	if _, err := c.State().Groups[1].Members[1].Leaf.Ping(t.Context()); err != nil {
		t.Errorf("a node of its own is not asked: %v", err)
	}
}

func TestASecondNameCanLeaveTheMap(t *testing.T) {
	f := &fleet{}
	m := groups(t, 1)
	own(f, m)
	c := open(t, Options{Dial: f.dial, Source: shardmap.NewStoreSource(store.NewMemory(nil)), Initial: m, Every: time.Hour})
	ready(t, c)
	f.at("again:1").setDown(true)
	if err := c.Names(t.Context(), []string{"again:1"}); err != nil {
		t.Errorf("of one that does not answer nothing is known: %v", err)
	}
	if _, err := c.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddMember(0, "again:1") }); err != nil {
		t.Fatal(err)
	}
	f.at("again:1").is("node of g0b:1")
	f.at("again:1").setDown(false)
	if err := c.Distinct(t.Context()); !errors.Is(err, ErrTwins) {
		t.Fatalf("%v", err)
	}
	if _, err := c.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.RemoveMember("again:1") }); err != nil {
		t.Fatal(err)
	}
	if err := c.Distinct(t.Context()); err != nil || len(c.Suspects()) > 0 {
		t.Errorf("after it has left: %v, %v", err, c.Suspects())
	}
	if _, err := c.State().Groups[0].Members[1].Leaf.Placed(t.Context()); err != nil {
		t.Errorf("the first name: %v", err)
	}
}
