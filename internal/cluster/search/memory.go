package search

import (
	"context"
	"errors"
	"sync"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
)

// memory is what a search is charged.
type memory struct {
	mu       sync.Mutex // replies arrive side by side
	released bool

	arrived struct {
		places []*admit.Place
		bytes  int64 // of hits and sources of all shards, until those of the page are charged
		kept   int64 // of neighbours and values of all shards, to the end
		wire   int64 // of replies that are on their way
	}
	states int64 // bytes of the states of all shards

	held             []*admit.Place
	sources, answers front.ReplyMemory // of shown documents, and of facets and aggregations as they are rendered

	charged int64 // of the gate of aggregations
	beyond  bool  // the place beyond it is held
}

// release gives all of it back.
func (m *memory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released = true
	m.chosenLocked()
	for _, p := range m.held {
		p.Release()
	}
	m.sources.Release()
	m.answers.Release()
}

// errReleased is told to replies that arrive when the search is over.
var errReleased = errors.New("the search is over")

// arriveStep is in which steps the gate is charged for what arrives. The first belongs to the place of the search.
const arriveStep = 1 << 20

// charged returns a context in which replies of shards are charged while and as they arrive: all of them are in memory before the page is made
// of them. What finds no room ends the context, by cancel, with a *admit.Refusal.
func (s *Searcher) charged(ctx context.Context, m *memory, cancel context.CancelCauseFunc) context.Context {
	return read.WithRoom(leaf.WithArrival(ctx, s.arrival(m, cancel)), s.room(m, cancel))
}

// Charged is for calls of Options.Member that are no search: until release is called, replies of shards are charged like those of one. Where
// there is no room, the context ends, and what is called with it fails, with a *admit.Refusal.
func (s *Searcher) Charged(ctx context.Context) (charged context.Context, release func()) {
	m := &memory{}
	ctx, cancel := context.WithCancelCause(ctx)
	return s.charged(ctx, m, cancel), func() {
		cancel(nil)
		m.release()
	}
}

// arrival charges for replies that are on their way.
func (s *Searcher) arrival(m *memory, cancel context.CancelCauseFunc) leaf.Arrival {
	return func(bytes int64) (func(), error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.released {
			return nil, errReleased
		}
		m.arrived.wire += bytes
		if err := s.arriveLocked(m); err != nil {
			m.arrived.wire -= bytes
			cancel(err)
			return nil, err
		}
		return func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !m.released {
				m.arrived.wire -= bytes
				m.shrinkLocked()
			}
		}, nil
	}
}

// room charges for replies that have arrived.
func (s *Searcher) room(m *memory, cancel context.CancelCauseFunc) *read.Room {
	charge := func(grow func() error) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.released {
			return errReleased
		}
		err := grow()
		if err != nil {
			cancel(err)
		}
		return err
	}
	return &read.Room{
		Hits: func(_ context.Context, bytes int64) error {
			return charge(func() error {
				m.arrived.bytes += bytes
				return s.arriveLocked(m)
			})
		},
		Kept: func(_ context.Context, bytes int64) error {
			return charge(func() error {
				m.arrived.kept += bytes
				return s.arriveLocked(m)
			})
		},
		States: func(ctx context.Context, bytes int64) error {
			return charge(func() error {
				m.states += bytes
				return s.aggRoomLocked(ctx, m, m.states)
			})
		},
	}
}

// chosen gives back what was charged for hits and sources as they arrived: the page is chosen from them, or they are asked for anew.
func (m *memory) chosen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.chosenLocked()
}

func (m *memory) chosenLocked() {
	m.arrived.bytes = 0
	if m.released {
		m.arrived.kept, m.arrived.wire = 0, 0
	}
	m.shrinkLocked()
}

// shrinkLocked gives back what is charged beyond what is there.
func (m *memory) shrinkLocked() {
	there := m.arrived.bytes + m.arrived.kept + m.arrived.wire
	for last := len(m.arrived.places) - 1; last >= 0 && int64(last+1)*arriveStep >= there; last-- {
		m.arrived.places[last].Release()
		m.arrived.places = m.arrived.places[:last]
	}
}

// arriveLocked charges what has arrived.
func (s *Searcher) arriveLocked(m *memory) error {
	for s.o.Memory != nil && int64(len(m.arrived.places)+1)*arriveStep < m.arrived.bytes+m.arrived.kept+m.arrived.wire {
		p, err := s.o.Memory.TryEnter(arriveStep)
		if err != nil {
			return err
		}
		m.arrived.places = append(m.arrived.places, p)
	}
	return nil
}

// shows charges what is shown of documents, in bytes of all of them.
func (s *Searcher) shows(m *memory, bytes int64) error {
	if s.o.Memory == nil {
		return nil
	}
	return m.sources.Grow(s.o.Memory, bytes)
}

// aggStep is the memory that facets and aggregations are charged at once. The first step belongs to the place of the search, so that
// those of few values and buckets never wait.
const aggStep = 1 << 20

// aggRoom charges the facets and aggregations of a search for bytes in all. Searches that find no room go beyond it one at a time, so
// that none waits for memory that is held by another that waits.
func (s *Searcher) aggRoom(ctx context.Context, m *memory, bytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.aggRoomLocked(ctx, m, bytes)
}

func (s *Searcher) aggRoomLocked(ctx context.Context, m *memory, bytes int64) error {
	if bytes <= m.charged+aggStep || m.beyond {
		return nil
	}
	more := (bytes - m.charged - 1) / aggStep * aggStep
	p, err := s.o.Aggregations.TryEnter(more)
	if err == nil {
		m.held = append(m.held, p)
		m.charged += more
		return nil
	}
	if p, err = s.o.AggBeyond.Enter(ctx, 1); err != nil {
		if r, ok := errors.AsType[*admit.Refusal](err); ok {
			r.Limit = s.o.Aggregations.Limit()
		}
		return err
	}
	m.held = append(m.held, p)
	m.beyond = true
	return nil
}
