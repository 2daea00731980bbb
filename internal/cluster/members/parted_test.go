package members

import (
	"testing"
	"time"

	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// keeps is the node and the epoch of the map at a member.
func (k *keeper) keeps() (node string, epoch uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node, k.epoch
}

// A member that leaves is told, so that whoever goes by an older map does not read from it any more; at once, or when it answers again. It is
// told once.
func TestAMemberThatLeavesIsTold(t *testing.T) {
	leave := func(m *shardmap.Map) (*shardmap.Map, error) { return m.RemoveMember("g0b:1") }
	grow := func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddGroup("g2a:1") }
	back := func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddMember(0, "g0b:1") }
	for _, c := range []struct {
		name  string
		away  func(k *keeper) // before it leaves
		there func(k *keeper) // after that
		at    uint64          // epoch that it has as soon as it has left
		then  uint64          // and later
	}{
		{"it answers", func(*keeper) {}, func(*keeper) {}, 2, 2},
		{"it is away", func(k *keeper) { k.setDown(true) }, func(k *keeper) { k.setDown(false) }, 1, 2},
		{"another folder is at its address by then", func(k *keeper) { k.setDown(true) }, func(k *keeper) { k.wipe("another"); k.setDown(false) }, 1, 0},
		{"it has a map of others by then", func(k *keeper) { k.setDown(true) }, func(k *keeper) {
			k.mu.Lock()
			k.epoch, k.b = 77, nil
			k.mu.Unlock()
			k.setDown(false)
		}, 1, 77},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fleet{}
			f.nodes("g0a:1", "g0b:1", "g1a:1", "g1b:1")
			cl := open(t, Options{Dial: f.dial, Initial: groups(t, 2), Source: shardmap.NewStoreSource(store.NewMemory(nil)), Every: time.Hour})
			ready(t, cl)
			cl.remind(t.Context())
			change := func(fn func(m *shardmap.Map) (*shardmap.Map, error)) {
				t.Helper()
				if _, err := cl.Change(t.Context(), fn); err != nil {
					t.Fatal(err)
				}
			}
			k := f.at("g0b:1")
			c.away(k)
			change(leave)
			if _, epoch := k.keeps(); epoch != c.at {
				t.Errorf("it left with the map of epoch %d, want %d", epoch, c.at)
			}
			c.there(k)
			cl.remind(t.Context())
			if _, epoch := k.keeps(); epoch != c.then {
				t.Errorf("it has the map of epoch %d later, want %d", epoch, c.then)
			}
			change(grow)
			cl.remind(t.Context())
			if _, epoch := k.keeps(); epoch != c.then {
				t.Errorf("it was told again, and has the map of epoch %d", epoch)
			}
			if c.then == 2 {
				change(back)
				if _, epoch := k.keeps(); epoch != 4 {
					t.Errorf("it is back, and has the map of epoch %d", epoch)
				}
			}
		})
	}
}

// It is told for as long as calls may be under way that go by an older map.
func TestAMemberThatLeftIsForgotten(t *testing.T) {
	f := &fleet{}
	cl := open(t, Options{Dial: f.dial, Initial: groups(t, 2), Source: shardmap.NewStoreSource(store.NewMemory(nil)), Every: time.Hour})
	ready(t, cl)
	k := f.at("g1b:1")
	k.setDown(true)
	if _, err := cl.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.RemoveMember("g1b:1") }); err != nil {
		t.Fatal(err)
	}
	k.setDown(false)
	cl.retire(time.Now().Add(2 * retireAfter))
	cl.remind(t.Context())
	if k.has() != 1 || k.closed() != 1 {
		t.Errorf("epoch %d, closed %d times", k.has(), k.closed())
	}
}

// Where the members keep the map, a coordinator that is started without one tells it.
func TestAMemberLessInTheShardsIsTold(t *testing.T) {
	f := &fleet{}
	ready(t, open(t, Options{Dial: f.dial, Initial: groups(t, 2), Every: time.Hour}))
	less := groups(t, 2)
	less.Groups[1].Members = less.Groups[1].Members[:1]
	ready(t, open(t, Options{Dial: f.dial, Initial: less, Every: time.Hour}))
	if f.at("g1b:1").has() != 2 {
		t.Errorf("it has the map of epoch %d", f.at("g1b:1").has())
	}
}

// Who never stood in the map has nothing to do with it.
func TestOnlyMembersThatLeftAreTold(t *testing.T) {
	f := &fleet{}
	src := shardmap.NewStoreSource(store.NewMemory(nil))
	ready(t, open(t, Options{Dial: f.dial, Initial: groups(t, 2), Source: src, Every: time.Hour}))
	other := open(t, Options{Dial: f.dial, Initial: groups(t, 3), Every: time.Hour}) // it goes by the map in the store
	if s := ready(t, other); len(s.Groups) != 2 {
		t.Fatalf("%d groups", len(s.Groups))
	}
	other.remind(t.Context())
	if f.at("g2a:1").has() != 0 || f.at("g2b:1").has() != 0 {
		t.Error("strangers were given the map")
	}
}
