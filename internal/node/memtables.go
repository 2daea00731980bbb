package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/shard"
)

// memtables watches the memory that the memtables of all indexes take together: each index bounds its own, but there may be
// many. Above the limit the largest is written out early; above the limit and a quarter, writes are refused.
type memtables struct {
	node *Node
	mu   struct {
		sync.Mutex
		looked   time.Time
		used     int64
		flushing bool
	}
}

// lookEvery is how old the sum may be. Between two looks writes may go over the limit by what they bring in that time.
const lookEvery = 20 * time.Millisecond

// memoryError refuses a write for want of memory for memtables.
type memoryError struct {
	used, limit int64
	retry       time.Duration
}

func (e *memoryError) Error() string {
	return fmt.Sprintf("memtables of all indexes take %d bytes of %d", e.used, e.limit)
}

// admit refuses when the memtables together are too large.
func (m *memtables) admit() error {
	limit := m.node.cfg.Engine.AllMemtableBytes
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.mu.looked) >= lookEvery {
		m.mu.looked = now
		var largest *index
		var most int64
		m.mu.used = 0
		for _, i := range m.node.catalog.list() {
			if eng := i.engineIfOpen(); eng != nil {
				bytes := eng.Stats().MemtableBytes
				m.mu.used += bytes
				if bytes > most {
					largest, most = i, bytes
				}
			}
		}
		if m.mu.used > limit && !m.mu.flushing && largest != nil {
			m.mu.flushing = true
			m.node.wg.Go(func() { m.flush(largest) })
		}
	}
	if m.mu.used > limit+limit/4 {
		return &memoryError{m.mu.used, limit, 200 * time.Millisecond}
	}
	return nil
}

func (m *memtables) flush(i *index) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.mu.flushing, m.mu.looked = false, time.Time{}
	}()
	l, err := m.node.catalog.use(i.ctx, i.entry.Name)
	if err != nil {
		return // dropped meanwhile, and its memory with it
	}
	defer l.release()
	if err := l.eng.Flush(l.ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, shard.ErrClosed) {
		m.node.log.Warn("flush for memory", "index", i.entry.Name, "error", err)
	}
}

// engineIfOpen returns the engine of an open index, nil otherwise.
func (i *index) engineIfOpen() engine {
	select {
	case <-i.opened:
		return i.eng
	default:
		return nil
	}
}
