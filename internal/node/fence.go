package node

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
)

// fences of one index tell a Sync whether somebody has looked at a document since the checksums were read that it expects: see
// leaf.SumsRequest.Fence. They live in memory, and those of an earlier process are no fences any more: a Sync that names one of them changes
// nothing, and its caller looks again.
type fences struct {
	room    *fenceRoom // nil: it has only its own bound
	mu      sync.Mutex
	counted atomic.Int64 // documents that the room counts for it; changed under mu

	run  uint32            // upper half of every fence, drawn for each table; never 0
	last uint32            // lower half of the latest one
	of   map[uint64]uint32 // the latest of each document, by a hash of its id: two with the same cost a needless look
	busy map[uint64]int    // documents that a Sync is at, with how many
	// synced are the documents that a Sync changed last, by the same hash; few tells writers without mu that there are none. Until unknown
	// any document may be one: of the process before, or of a table that was full.
	synced  map[uint64]uint64 // with a number that is higher for a later change
	changes uint64            // the last of these numbers
	few     atomic.Int64
	unknown time.Time
	idle    chan struct{} // closed when a Sync ends; nil while nobody waits for that
}

// mostFences bounds the documents that a table has fences for: 2 MiB of them. A full one is begun anew, which costs those a round who read checksums
// from the one before.
const mostFences = 1 << 16

// make makes a fence for some documents. It returns once no Sync is at one of them that may be of before.
func (f *fences) make(ctx context.Context, ids []string) (uint64, error) {
	f.room.use(f, len(ids))
	f.mu.Lock()
	if f.run == 0 || f.last == math.MaxUint32 || len(f.of)+len(ids) > mostFences {
		f.renew(len(ids))
	}
	f.last++
	fence := uint64(f.run)<<32 | uint64(f.last)
	for _, id := range ids {
		f.of[xxh3.HashString(id)] = f.last
	}
	f.count()
	for {
		if !f.anyBusy(ids) {
			f.mu.Unlock()
			return fence, nil
		}
		if f.idle == nil {
			f.idle = make(chan struct{})
		}
		idle := f.idle
		f.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		f.mu.Lock()
	}
}

// draw returns the number of another table.
func (f *fences) draw() uint32 {
	for {
		if n := rand.Uint32(); n != 0 && n != f.run {
			return n
		}
	}
}

func (f *fences) anyBusy(ids []string) bool {
	if len(f.busy) == 0 {
		return false
	}
	for _, id := range ids {
		if f.busy[xxh3.HashString(id)] > 0 {
			return true
		}
	}
	return false
}

// begin lets a Sync that names a fence change documents: those that no later fence was made for. Until end a fence for one of them waits.
func (f *fences) begin(ids []string, fence uint64) (may []bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	may = make([]bool, len(ids))
	if f.busy == nil {
		f.busy = map[uint64]int{}
	}
	for i, id := range ids {
		h := xxh3.HashString(id)
		if fence != 0 && (f.run == 0 || uint32(fence>>32) != f.run || f.of[h] > uint32(fence)) {
			continue
		}
		may[i] = true
		f.busy[h]++
	}
	return may
}

// mostSynced bounds the documents that are known to have been changed by a Sync last: 2 MiB of them.
const mostSynced = 1 << 16

// unknownFor is for how long every document may have been changed by a Sync, when it is not known which were: longer than a write and
// the comparison that follows it are under way, which is minutes for a part of a load that waits for room.
const unknownFor = 10 * time.Minute

// opened begins a table for an index that was there before.
func (f *fences) opened() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unknown = time.Now().Add(unknownFor)
}

// changed notes that a Sync changed documents. It is called before end.
func (f *fences) changed(ids []string) {
	f.room.use(f, len(ids))
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.synced)+len(ids) > mostSynced {
		f.forgetSynced()
	}
	if f.synced == nil {
		f.synced = map[uint64]uint64{}
	}
	f.changes++
	for _, id := range ids {
		f.synced[xxh3.HashString(id)] = f.changes
	}
	f.few.Store(int64(len(f.synced)))
	f.count()
}

// write notes that documents are about to be written by something else than a Sync. done is called with the places of those that were not
// written: what a Sync put there stands there still. A document counts as changed by a Sync until then, and also if one changes it meanwhile,
// whichever came first: that costs whoever writes it a look.
func (f *fences) write(n int, id func(i int) string) (done func(not func(i int) bool)) {
	if f.few.Load() == 0 {
		return func(func(i int) bool) {}
	}
	type mark struct {
		i    int
		hash uint64
		at   uint64
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var marks []mark
	for i := range n {
		h := xxh3.HashString(id(i))
		if at, ok := f.synced[h]; ok {
			marks = append(marks, mark{i, h, at})
		}
	}
	if len(marks) == 0 {
		return func(func(i int) bool) {}
	}
	return func(not func(i int) bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, m := range marks {
			if !not(m.i) && f.synced[m.hash] == m.at {
				delete(f.synced, m.hash)
			}
		}
		f.few.Store(int64(len(f.synced)))
		f.count()
	}
}

// among returns the places of documents that may have been changed by a Sync last.
func (f *fences) among(ids []string) []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := time.Now().Before(f.unknown)
	if !all && len(f.synced) == 0 {
		return nil
	}
	var out []int
	for i, id := range ids {
		if _, ok := f.synced[xxh3.HashString(id)]; all || ok {
			out = append(out, i)
		}
	}
	return out
}

// end ends what begin allowed.
func (f *fences) end(ids []string, may []bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, id := range ids {
		if !may[i] {
			continue
		}
		h := xxh3.HashString(id)
		if f.busy[h]--; f.busy[h] == 0 {
			delete(f.busy, h)
		}
	}
	if f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}
