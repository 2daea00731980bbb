package fleet

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/broker/route"
)

// model says from all that was observed what the health is, by the sentences of the contract: it goes back to the last moment at which
// something was certain.
func model(polls []outcomeAt, found time.Time, grace time.Duration) route.Health {
	evicted := -1 // the poll that evicted last and was not made up for
	healthy := -1
	since := found
	for i, p := range polls {
		good := p.ok && (evicted < 0 || i > evicted+1 && polls[i-1].ok)
		switch {
		case good:
			healthy, evicted = i, -1
		case p.ok || evicted >= 0:
		case healthy >= 0:
			healthy, since = -1, p.at
		case p.at.Sub(since) >= grace:
			evicted = i
		}
	}
	switch {
	case evicted >= 0:
		return route.Evicted
	case healthy >= 0:
		return route.Healthy
	}
	return route.Suspect
}

type outcomeAt struct {
	ok bool
	at time.Time
}

func TestHealthIsWhatTheContractSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const grace = time.Minute
		now := time.Unix(0, 0)
		h := health{since: now}
		var polls []outcomeAt
		var failures uint64
		for range rapid.IntRange(1, 40).Draw(t, "polls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 25).Draw(t, "seconds")) * time.Second)
			ok := rapid.Bool().Draw(t, "ok")
			polls = append(polls, outcomeAt{ok, now})
			h.observe(ok, now, grace)
			if failures++; ok {
				failures = 0
			}
			if want := model(polls, time.Unix(0, 0), grace); h.state != want || h.failures != failures {
				t.Fatalf("%s after %d failures, not %s after %d: %+v", h.state, h.failures, want, failures, polls)
			}
		}
	})
}

func TestHealthStepByStep(t *testing.T) {
	start := time.Unix(0, 0)
	h := health{since: start}
	for i, c := range []struct {
		second int
		ok     bool
		want   route.Health
	}{
		{0, false, route.Suspect},
		{59, false, route.Suspect},
		{60, false, route.Evicted}, // found 60 s ago and never answered
		{65, true, route.Evicted},
		{70, false, route.Evicted}, // not in a row
		{75, true, route.Evicted},
		{80, true, route.Healthy},
		{95, false, route.Suspect}, // the grace begins
		{100, true, route.Healthy}, // and is forgotten
		{115, false, route.Suspect},
		{154, false, route.Suspect},
		{174, false, route.Suspect},
		{400, true, route.Healthy}, // the grace is long over, but no poll failed after it
		{415, false, route.Suspect},
		{475, false, route.Evicted},
	} {
		h.observe(c.ok, start.Add(time.Duration(c.second)*time.Second), time.Minute)
		if h.state != c.want {
			t.Errorf("step %d at %d s: %s, not %s", i, c.second, h.state, c.want)
		}
	}
}
