package search

import (
	"context"
	"errors"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/front"
)

// memory is what a search is charged.
type memory struct {
	held             []*admit.Place
	sources, answers front.ReplyMemory // of shown documents, and of facets and aggregations as they are rendered

	charged int64 // of the gate of aggregations
	beyond  bool  // the place beyond it is held
}

// release gives all of it back.
func (m *memory) release() {
	for _, p := range m.held {
		p.Release()
	}
	m.sources.Release()
	m.answers.Release()
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
