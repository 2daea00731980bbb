package node

import (
	"sync"
	"sync/atomic"
	"time"
)

// mostFencedDocs bounds the documents that all tables of fences of a node know of together: 64 MiB of them. Beyond that the table that was used
// least recently is emptied, as one that is full for itself is: those who read checksums from it look again.
const mostFencedDocs = 1 << 20

// fenceRoom is what the tables of fences of a node share. Lock order: mu before fences.mu, which nobody holds who calls it.
type fenceRoom struct {
	most   int64 // documents; 0: mostFencedDocs
	docs   atomic.Int64
	mu     sync.Mutex
	clock  uint64
	tables map[*fences]uint64 // by when they were used last
}

// use makes room for n more documents in a table.
func (r *fenceRoom) use(f *fences, n int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tables == nil {
		r.tables = map[*fences]uint64{}
	}
	r.clock++
	r.tables[f] = r.clock
	most := r.most
	if most == 0 {
		most = mostFencedDocs
	}
	for r.docs.Load()+int64(n) > most {
		var oldest *fences
		for t, at := range r.tables {
			if t != f && t.counted.Load() > 0 && (oldest == nil || at < r.tables[oldest]) {
				oldest = t
			}
		}
		if oldest == nil {
			f.empty() // the rest is its own
			return
		}
		oldest.empty()
	}
}

// leave takes a table out, with its index.
func (r *fenceRoom) leave(f *fences) {
	if r == nil {
		return
	}
	r.mu.Lock()
	delete(r.tables, f)
	r.mu.Unlock()
	f.empty()
}

// empty begins the table anew: fences of before count no more, and every document may have been changed by a Sync last.
func (f *fences) empty() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew(0)
	if len(f.synced) > 0 {
		f.forgetSynced()
	}
	f.count()
}

// renew begins the table of fences anew.
func (f *fences) renew(size int) {
	f.run, f.last, f.of = f.draw(), 0, make(map[uint64]uint32, size)
}

// forgetSynced notes that it is not known any more what a Sync changed last.
func (f *fences) forgetSynced() {
	f.unknown = time.Now().Add(unknownFor)
	f.synced = nil
	f.few.Store(0)
}

// count tells the room what the table knows of.
func (f *fences) count() {
	if f.room == nil {
		return
	}
	n := int64(len(f.of) + len(f.synced))
	f.room.docs.Add(n - f.counted.Swap(n))
}
