package shardmap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/store"
)

// Version names what a Source holds. The zero Version is that there is no map.
type Version struct {
	Epoch uint64 // of the map
	Tag   string // of the source; opaque
}

// Source keeps the map that coordinators agree on. It is safe for concurrent use.
type Source interface {
	// Load returns the map and its version; ErrNotFound if there is none yet.
	Load(ctx context.Context) (*Map, Version, error)
	// Swap puts next in the place of the version that Load or Swap returned before; the zero Version makes the first map. next has a
	// higher epoch. When it returns nil the map is durable.
	//
	// Errors: ErrConflict, another version is there, nothing changed. ErrUncertain, Load tells which of both is there, once it can.
	Swap(ctx context.Context, old Version, next *Map) (Version, error)
}

// Key is where a StoreSource keeps the map.
const Key = "topology/shard_map.json"

// StoreSource keeps the map as one object of a store.
type StoreSource struct {
	s store.Store
}

// NewStoreSource returns a source over s.
func NewStoreSource(s store.Store) *StoreSource { return &StoreSource{s: s} }

// Load implements Source.
func (s *StoreSource) Load(ctx context.Context) (*Map, Version, error) {
	m, v, _, err := s.load(ctx)
	return m, v, err
}

func (s *StoreSource) load(ctx context.Context) (*Map, Version, []byte, error) {
	b, in, err := store.ReadAll(ctx, s.s, Key, MaxBytes)
	if errors.Is(err, store.ErrNotFound) {
		return nil, Version{}, nil, fmt.Errorf("load %s: %w", Key, ErrNotFound)
	}
	if err != nil {
		return nil, Version{}, nil, fmt.Errorf("load shard map: %w", err)
	}
	m, err := Decode(b)
	if err != nil {
		return nil, Version{}, nil, fmt.Errorf("load %s: %w", Key, err)
	}
	return m, Version{Epoch: m.Epoch, Tag: in.ETag}, b, nil
}

// Swap implements Source.
func (s *StoreSource) Swap(ctx context.Context, old Version, next *Map) (Version, error) {
	b, err := next.Encode()
	if err != nil {
		return Version{}, err
	}
	cond := store.Absent
	if old != (Version{}) {
		if next.Epoch <= old.Epoch {
			return Version{}, fmt.Errorf("swap: %w", invalid("epoch %d after epoch %d", next.Epoch, old.Epoch))
		}
		cond = store.Condition{IfMatch: old.Tag}
	}
	tag, err := s.s.Put(ctx, Key, bytes.NewReader(b), int64(len(b)), cond)
	switch {
	case err == nil:
		return Version{Epoch: next.Epoch, Tag: tag}, nil
	case errors.Is(err, store.ErrPrecondition):
		return Version{}, fmt.Errorf("swap shard map of epoch %d: %w", next.Epoch, ErrConflict)
	case errors.Is(err, store.ErrUncertain):
		return s.readBack(ctx, next, b, err)
	}
	return Version{}, fmt.Errorf("swap shard map of epoch %d: %w", next.Epoch, err)
}

// readBack finds out what became of a write whose outcome is not known.
func (s *StoreSource) readBack(ctx context.Context, next *Map, written []byte, cause error) (Version, error) {
	m, v, b, err := s.load(ctx)
	switch {
	case err == nil && bytes.Equal(b, written):
		return v, nil
	case err == nil && m.Epoch == next.Epoch:
		return Version{}, fmt.Errorf("swap shard map of epoch %d: %w", next.Epoch, ErrConflict)
	case err != nil && !errors.Is(err, ErrNotFound):
		cause = errors.Join(cause, err)
	}
	// An older map, or none: the write may still be on its way. A newer one: perhaps it follows ours.
	return Version{}, fmt.Errorf("swap shard map of epoch %d: %w: %w", next.Epoch, ErrUncertain, cause)
}

// Watch looks at the store about every so often, ten percent more or less so that coordinators do not look all at once, and calls
// fn with the map when it is not the one of the call before, the first time at once; or with the error when a look fails, where no map is an
// ErrNotFound. fn is called by one goroutine, which ends with the context or by stop; stop waits for it and may be called more than once, but not by fn.
func (s *StoreSource) Watch(ctx context.Context, every time.Duration, fn func(m *Map, v Version, err error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		var seen Version
		for {
			if in, err := s.s.Stat(ctx, Key); err != nil || in.ETag == "" || in.ETag != seen.Tag {
				m, v, err := s.Load(ctx)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					fn(nil, Version{}, err)
				case v != seen:
					seen = v
					fn(m, v, nil)
				}
			}
			t := time.NewTimer(every - every/10 + rand.N(every/5+1))
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
