package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/admit"
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

// analysis is the memory in which a long document is taken apart. A nil one holds nothing.
type analysis struct {
	node  *Node
	place *admit.Place
}

// enterAnalysis waits for the memory to take a document, or a chunk of them, apart and to insert it; short ones need not wait.
// A document that takes more than there is in all is taken apart when no other is.
func (n *Node) enterAnalysis(ctx context.Context, bytes int) (*analysis, error) {
	if bytes <= longDocument {
		return nil, nil
	}
	place, err := n.analyses.Enter(ctx, min(analysisFactor*int64(bytes), n.analyses.Limit()))
	if err != nil {
		return nil, err
	}
	return &analysis{n, place}, nil
}

// leave gives the memory back. The document is in a memtable by now, or gone: the next is to know how large those are.
func (a *analysis) leave() {
	if a == nil {
		return
	}
	defer a.place.Release()
	m := &a.node.memtables
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.looked = time.Time{}
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
