package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// told is a cluster whose map others keep.
type told struct{ st *members.State }

func (c told) State() *members.State { return c.st }

func (c told) Change(context.Context, func(*shardmap.Map) (*shardmap.Map, error)) (*members.State, error) {
	return nil, shardmap.ErrRefused
}

// A move of a map that is kept in a store is for those who have the store: who has not neither begins one nor goes on with one.
func TestMovesOfAStoredMapAreForThoseWithTheStore(t *testing.T) {
	for _, stored := range []bool{false, true} {
		m, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"a:1"}}, {Members: []string{"b:1"}}})
		if err != nil {
			t.Fatal(err)
		}
		m.Placed, m.Stored = 1, stored
		begun, err := m.BeginMove(2, "of-somebody")
		if err != nil {
			t.Fatal(err)
		}
		state := func(m *shardmap.Map) *members.State {
			st, err := members.NewState(m, nil, func(string) (leaf.Member, error) { return nil, nil })
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		for _, have := range []bool{false, true} {
			o := Options{}
			if have {
				o.Store = store.NewMemory(nil)
			}
			foreign := stored && !have
			r, err := New(told{state(m)}, o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.StartRebalance(t.Context(), 1, 2); hasCode(err, api.JobConflict) != foreign {
				t.Errorf("stored %t, with the store %t: a move is begun: %v", stored, have, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if have {
				o.Store = store.NewMemory(nil)
			}
			if r, err = New(told{state(begun)}, o); err != nil {
				t.Fatal(err)
			}
			l := lookout{began: time.Now().Add(-time.Hour), orphan: "of-somebody"}
			if again, err := r.look(t.Context(), &l); err != nil || again == foreign {
				t.Errorf("stored %t, with the store %t: a move of somebody is gone on with: %t, %v", stored, have, again, err)
			}
			if err := r.Close(); err != nil && !errors.Is(err, leaf.ErrClosed) {
				t.Error(err)
			}
		}
	}
}
