package front

import (
	"sync"
	"time"

	"github.com/weft-search/weft/internal/api"
)

// sparseEvery is how often a failure is logged that every call meets.
const sparseEvery = time.Minute

// ofOthers tells whether a code says that not this process has failed, but those that it asks.
func ofOthers(code api.Code) bool { return code == api.GroupUnavailable || code == api.NotReady }

// sparse lets one line of each code through in sparseEvery, and counts what was left out. The zero value is ready.
type sparse struct {
	mu sync.Mutex
	of map[api.Code]*sparseLine
}

type sparseLine struct {
	last    time.Time
	dropped uint64 // since last
}

// allow tells whether a line may be written now, and how many with the code were left out since the last one.
func (s *sparse) allow(code api.Code) (dropped uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, line := time.Now(), s.of[code]
	if line != nil && now.Sub(line.last) < sparseEvery {
		line.dropped++
		return 0, false
	}
	if s.of == nil {
		s.of = map[api.Code]*sparseLine{}
	}
	s.of[code] = &sparseLine{last: now}
	if line != nil {
		dropped = line.dropped
	}
	return dropped, true
}
