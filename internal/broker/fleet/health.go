package fleet

import (
	"time"

	"github.com/weft-search/weft/internal/broker/route"
)

// health is what polls have shown of a node ("Topology and health": one success, a failure, a failing poll after the grace, two successes
// in a row).
type health struct {
	state    route.Health
	since    time.Time // when it became suspect, or, suspect, ready
	failures uint64    // polls in a row that failed
	answers  int       // polls in a row that did not, while it is evicted
}

// observe takes the outcome of a poll at a moment.
func (h *health) observe(ok bool, now time.Time, grace time.Duration) {
	if !ok {
		h.failures++
		h.answers = 0
		switch {
		case h.state == route.Healthy:
			h.state, h.since = route.Suspect, now
		case h.state == route.Suspect && now.Sub(h.since) >= grace:
			h.state = route.Evicted
		}
		return
	}
	h.failures = 0
	if h.state == route.Evicted {
		if h.answers++; h.answers < 2 {
			return
		}
	}
	h.state, h.answers = route.Healthy, 0
}
