package read

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve/replica"
)

// A member that hangs, as one whose process is stopped, does not make a call wait that another member can answer: not the first one of a
// coordinator, of which nothing is known, and not where calls are so few that their share of hedges is used up.
func TestAStoppedMemberIsNotWaitedForInAQuietCluster(t *testing.T) {
	for name, call := range calls {
		if name == "IDs" || name == "Export" {
			continue
		}
		for _, order := range []replica.Order{replica.Preferred, replica.Adaptive} {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, numbered(60), 3, 2)
				r := c.reader(Options{Order: order})
				c.groups[1][0].fail(hangs)
				for i := range 60 {
					began := time.Now()
					m, err := call(t.Context(), r)
					if err != nil {
						t.Fatalf("%s: call %d: %v", name, i, err)
					}
					most := firstDelay
					if i > 8 {
						most = 3 * time.Second // the budget may be empty
					}
					if took := time.Since(began); took > most {
						t.Errorf("%s: call %d took %v", name, i, took)
					}
					if got := addresses(m.Below); m.Below.Shards.OK != 3 {
						t.Errorf("%s: %s", name, got)
					}
				}
			})
		}
	}
}

// A member that answers nothing, not even pings, ends its call as one that cannot be reached, and is asked again later.
func TestAGroupThatHangsIsAHoleBeforeTheTimeIsOver(t *testing.T) {
	for name, call := range calls {
		if name == "IDs" || name == "Export" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, numbered(60), 3, 2)
			r := c.reader(Options{})
			for _, f := range c.groups[2] {
				f.fail(hangs)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			began := time.Now()
			m, err := call(ctx, r)
			if took := time.Since(began); took < DefaultHung || took > 2*DefaultHung+time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
			switch {
			case slices.Contains(whole, name):
				if !hasCode(err, api.GroupUnavailable) {
					t.Errorf("%s: %v", name, err)
				}
			case err != nil:
				t.Fatalf("%s: %v", name, err)
			case m.Below.Shards.OK != 2 || m.Below.Shards.Failed != 1:
				t.Errorf("%s: %s", name, addresses(m.Below))
			}
			// It is known then, and the next call does not wait as long.
			began = time.Now()
			if m, err = call(ctx, r); time.Since(began) > time.Second || err == nil && m.Below.Shards.OK != 2 {
				t.Errorf("%s: the next took %v: %v, %v", name, time.Since(began), m, err)
			}
			// Nor do those right behind that at all.
			for range 3 {
				began = time.Now()
				if m, err = call(ctx, r); time.Since(began) > 0 || err == nil && m.Below.Shards.OK != 2 {
					t.Errorf("%s: one more took %v: %v, %v", name, time.Since(began), m, err)
				}
			}
			for _, f := range c.groups[2] {
				f.fail(nil)
			}
			<-time.After(DefaultHung / 8)
			if m, err = call(ctx, r); err != nil || m.Below.Shards.OK != 3 {
				t.Errorf("%s: soon after they are back: %v, %v", name, m, err)
			}
			<-time.After(time.Minute)
			if m, err = call(ctx, r); err != nil || m.Below.Shards.OK != 3 {
				t.Errorf("%s: once they are back: %v, %v", name, m, err)
			}
		})
	}
}

// A member that takes long and answers pings has the time that there is, and one that answers a ping late is not given up.
func TestAMemberThatAnswersPingsHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, numbered(60), 2, 1)
		r := c.reader(Options{})
		n := 0
		c.groups[1][0].fail(func(ctx context.Context, call string) error {
			if call != "Ping" {
				<-time.After(25 * time.Second)
				return nil
			}
			if n++; n%2 == 0 {
				return nil
			}
			return hangs(ctx, call)
		})
		began := time.Now()
		m, err := calls["Search"](t.Context(), r)
		if took := time.Since(began); err != nil || took != 25*time.Second || m.Below.Shards.OK != 2 {
			t.Errorf("%v after %v", err, took)
		}
		if n < 4 {
			t.Errorf("%d pings", n)
		}
		// A refusal is an answer.
		c.groups[1][0].fail(func(_ context.Context, call string) error {
			if call != "Ping" {
				<-time.After(20 * time.Second)
				return nil
			}
			return &api.Problem{Code: api.TooManySearches, Detail: "too many calls"}
		})
		if m, err := calls["Search"](t.Context(), r); err != nil || m.Below.Shards.OK != 2 {
			t.Errorf("%v", err)
		}
		c.groups[1][0].fail(func(_ context.Context, call string) error {
			if call != "Ping" {
				<-time.After(20 * time.Second)
				return nil
			}
			return &leaf.TransportError{Address: "g1m0", Call: call, Cause: errors.New("connection refused")}
		})
		if m, err := calls["Search"](t.Context(), r); err != nil || m.Below.Shards.OK != 1 {
			t.Errorf("%v", err)
		}
	})
}
