package members

import (
	"testing"
	"time"

	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

func TestRefreshSeesWhatAnotherHasJustChanged(t *testing.T) {
	for _, stored := range []bool{false, true} {
		f := &fleet{}
		o := Options{Dial: f.dial, Initial: groups(t, 2), Every: time.Hour}
		if stored {
			o.Source = shardmap.NewStoreSource(store.NewMemory(nil))
		}
		one, two := open(t, o), open(t, o)
		ready(t, one)
		was := ready(t, two).Epoch()
		if _, err := one.Change(t.Context(), func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddGroup("g2a:1") }); err != nil {
			t.Fatal(err)
		}
		s, err := two.Refresh(t.Context())
		if err != nil || s.Epoch() != was+1 || len(s.Groups) != 3 || two.State() != s {
			t.Errorf("stored %t: %+v, %v", stored, s, err)
		}
	}
}
