package shardmap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func first(t *testing.T) *Map {
	t.Helper()
	m, err := New(placement.Ring, 0, []Group{{[]string{"a:1"}}, {[]string{"b:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSwap(t *testing.T) {
	folder, err := store.OpenFolder("store", store.FolderOptions{FS: memfs.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, st := range map[string]store.Store{"memory": store.NewMemory(nil), "folder": folder} {
		ctx := t.Context()
		s := NewStoreSource(st)
		if m, v, err := s.Load(ctx); !errors.Is(err, ErrNotFound) || m != nil || v != (Version{}) {
			t.Errorf("%s: nothing loads as %+v, %+v, %v", name, m, v, err)
		}
		m1 := first(t)
		v1, err := s.Swap(ctx, Version{}, m1)
		if err != nil || v1.Epoch != 1 || v1.Tag == "" {
			t.Fatalf("%s: %+v, %v", name, v1, err)
		}
		if _, err := s.Swap(ctx, Version{}, m1); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: a second first map: %v", name, err)
		}
		m2, err := m1.AddGroup("c:1")
		if err != nil {
			t.Fatal(err)
		}
		v2, err := s.Swap(ctx, v1, m2)
		if err != nil || v2.Epoch != 2 {
			t.Fatalf("%s: %+v, %v", name, v2, err)
		}
		if _, err := s.Swap(ctx, v1, m2); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: a swap of what was there before: %v", name, err)
		}
		if _, err := s.Swap(ctx, v2, m2); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: a map that stays on its epoch: %v", name, err)
		}
		if _, err := s.Swap(ctx, v2, &Map{Epoch: 3}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: a map that is none: %v", name, err)
		}
		m, v, err := s.Load(ctx)
		if err != nil || v != v2 || len(m.Groups) != 3 {
			t.Errorf("%s: %+v, %+v, %v", name, m, v, err)
		}
		if _, err := st.Put(ctx, Key, strings.NewReader("{}"), 2, store.Condition{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Load(ctx); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: damaged: %v", name, err)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, _, err := s.Load(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: with an ended context: %v", name, err)
		}
	}
}

// unsure is a store whose writes end without an answer, before or after they took place.
type unsure struct {
	*store.Memory
	plan func(key string) (before, after func()) // nil functions: the write is as it should be
}

func (u *unsure) Put(ctx context.Context, key string, r io.Reader, size int64, c store.Condition) (string, error) {
	before, after := u.plan(key)
	if before != nil {
		before()
		return "", fmt.Errorf("put %s: %w", key, store.ErrUncertain)
	}
	tag, err := u.Memory.Put(ctx, key, r, size, c)
	if err == nil && after != nil {
		after()
		return "", fmt.Errorf("put %s: %w", key, store.ErrUncertain)
	}
	return tag, err
}

func TestUncertainSwapsAreReadBack(t *testing.T) {
	for _, c := range []struct {
		name    string
		applied bool  // the write took place
		other   int   // afterwards another coordinator makes so many changes
		drop    bool  // afterwards the map is not to be read
		want    error // nil: done
	}{
		{name: "it took place", applied: true},
		{name: "it did not", want: ErrUncertain},
		{name: "another was first", other: 1, want: ErrConflict},
		{name: "perhaps another follows it", other: 2, want: ErrUncertain},
		{name: "another follows it", applied: true, other: 1, want: ErrUncertain},
		{name: "it cannot be read", applied: true, drop: true, want: ErrUncertain},
	} {
		ctx := t.Context()
		mem := store.NewMemory(nil)
		quiet := NewStoreSource(mem)
		m := first(t)
		v, err := quiet.Swap(ctx, Version{}, m)
		if err != nil {
			t.Fatal(err)
		}
		others := func() {
			for i := range c.other {
				m, v, err := quiet.Load(ctx)
				if err != nil {
					t.Fatal(err)
				}
				next, err := m.AddMember(0, fmt.Sprintf("other:%d", i))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := quiet.Swap(ctx, v, next); err != nil {
					t.Fatal(err)
				}
			}
			if c.drop {
				if err := mem.Delete(ctx, Key); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := NewStoreSource(&unsure{Memory: mem, plan: func(string) (func(), func()) {
			if c.applied {
				return nil, others
			}
			return others, nil
		}})
		next, err := m.AddGroup("c:1")
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Swap(ctx, v, next)
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
			continue
		}
		if c.want != nil {
			continue
		}
		if _, v, err := s.Load(ctx); err != nil || v != got {
			t.Errorf("%s: version %+v, but %+v is there (%v)", c.name, got, v, err)
		}
	}
}

// TestSwapSurvivesPowerCuts: what Swap acknowledged is there after a power cut at any moment.
func TestSwapSurvivesPowerCuts(t *testing.T) {
	for seed := range uint64(20) {
		fsys := memfs.New(nil)
		folder, err := store.OpenFolder("store", store.FolderOptions{FS: fsys})
		if err != nil {
			t.Fatal(err)
		}
		s := NewStoreSource(folder)
		m := first(t)
		v, err := s.Swap(t.Context(), Version{}, m)
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(seed % 4) {
			if m, err = m.AddGroup(fmt.Sprintf("g%d:1", i)); err != nil {
				t.Fatal(err)
			}
			if v, err = s.Swap(t.Context(), v, m); err != nil {
				t.Fatal(err)
			}
		}
		after, err := store.OpenFolder("store", store.FolderOptions{FS: fsys.CrashClone(rand.New(rand.NewPCG(seed, 1)))})
		if err != nil {
			t.Fatal(err)
		}
		if got, gotV, err := NewStoreSource(after).Load(t.Context()); err != nil || gotV != v || got.Epoch != m.Epoch {
			t.Errorf("seed %d: %+v, %+v, %v; want epoch %d", seed, got, gotV, err, m.Epoch)
		}
		if err := errors.Join(folder.Close(), after.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestRacingActors lets several actors change one map at random. No change that was acknowledged is lost, epochs grow by one,
// and every map that there ever was is valid.
func TestRacingActors(t *testing.T) {
	for seed := range uint64(12) {
		mem := store.NewMemory(nil)
		var n atomic.Uint64
		st := &unsure{Memory: mem, plan: func(string) (func(), func()) {
			switch r := rand.New(rand.NewPCG(seed, n.Add(1))).IntN(12); r {
			case 0:
				return func() {}, nil
			case 1, 2:
				return nil, func() {}
			}
			return nil, nil
		}}
		if _, err := NewStoreSource(mem).Swap(t.Context(), Version{}, first(t)); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		was := map[uint64]string{} // by epoch: which change made it, as far as it is known
		var wg sync.WaitGroup
		for a := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(1000+a)))
				s := NewStoreSource(st)
				added := 0
				for range 60 {
					m, v, err := s.Load(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					name, next, err := randomChange(r, m, func() string { added++; return fmt.Sprintf("actor%d:%d", a, added) })
					if err != nil {
						if !errors.Is(err, ErrRefused) && !errors.Is(err, ErrInvalid) {
							t.Errorf("%s: %v", name, err)
						}
						continue
					}
					got, err := s.Swap(t.Context(), v, next)
					switch {
					case err == nil:
						b, err := next.Encode()
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						// Whoever was unsure and finds the very map that another made, as where both gave up one move, has what it wanted.
						if other, ok := was[got.Epoch]; ok && other != string(b) {
							t.Errorf("seed %d: epoch %d is both %s and %s of actor %d", seed, got.Epoch, other, name, a)
						}
						if got.Epoch != v.Epoch+1 {
							t.Errorf("seed %d: epoch %d after %d", seed, got.Epoch, v.Epoch)
						}
						was[got.Epoch] = string(b)
						mu.Unlock()
					case errors.Is(err, ErrConflict), errors.Is(err, ErrUncertain):
					default:
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		// A reader sees epochs grow, and in each epoch the map that was acknowledged with it.
		ctx, cancel := context.WithCancel(t.Context())
		seen := map[uint64]string{}
		wg2 := sync.WaitGroup{}
		wg2.Go(func() {
			last := uint64(0)
			for ctx.Err() == nil {
				m, _, err := NewStoreSource(mem).Load(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if m.Epoch < last {
					t.Errorf("seed %d: epoch %d after %d", seed, m.Epoch, last)
				}
				last = m.Epoch
				b, err := m.Encode()
				if err != nil {
					t.Error(err)
				}
				if old, ok := seen[m.Epoch]; ok && old != string(b) {
					t.Errorf("seed %d: two maps of epoch %d", seed, m.Epoch)
				}
				seen[m.Epoch] = string(b)
			}
		})
		wg.Wait()
		cancel()
		wg2.Wait()
		for epoch, b := range was {
			if got, ok := seen[epoch]; ok && got != b {
				t.Errorf("seed %d: epoch %d was acknowledged as %s and read as %s", seed, epoch, b, got)
			}
		}
		m, v, err := NewStoreSource(mem).Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(was) == 0 || v.Epoch < slices.Max(slices.Collect(maps.Keys(was))) {
			t.Errorf("seed %d: %d changes were acknowledged, the map is of epoch %d", seed, len(was), v.Epoch)
		}
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// randomChange tries one of the changes, fitting or not.
func randomChange(r *rand.Rand, m *Map, addr func() string) (name string, next *Map, err error) {
	var members []string
	for _, g := range m.Groups {
		members = append(members, g.Members...)
	}
	switch r.IntN(8) {
	case 0:
		name = "AddGroup"
		next, err = m.AddGroup(addr())
	case 1:
		name = "AddMember"
		next, err = m.AddMember(r.IntN(len(m.Groups)+1), addr())
	case 2:
		name = "RemoveMember"
		next, err = m.RemoveMember(members[r.IntN(len(members))])
	case 3:
		name = "RemoveGroup"
		next, err = m.RemoveGroup()
	case 4:
		name = "BeginMove"
		next, err = m.BeginMove(1+r.IntN(len(m.Groups)), "job "+addr())
	case 5:
		name = "Cutover"
		next, err = m.Cutover()
	case 6:
		name = "AbortMove"
		next, err = m.AbortMove()
	default:
		name = "EndMove"
		next, err = m.EndMove()
	}
	return name, next, err
}

// TestMovesLoseNoDocument walks through random changes with a model of documents on groups. A writer writes by Writes, a job copies
// and cleans, and readers look by Visible: they must see every document on exactly its owner at every step.
func TestMovesLoseNoDocument(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, rule := range []placement.Rule{placement.Ring, placement.Modulo, placement.Rendezvous} {
		m, err := New(rule, 16, []Group{{[]string{"a:1"}}, {[]string{"b:1"}}})
		if err != nil {
			t.Fatal(err)
		}
		docs := map[string]map[int]bool{} // by id: the groups that hold it
		added := 0
		hold := func(spec placement.Spec, id string) {
			p, err := placement.New(spec)
			if err != nil {
				t.Fatal(err)
			}
			if docs[id] == nil {
				docs[id] = map[int]bool{}
			}
			docs[id][p.Shard(id)] = true
		}
		for step := range 600 {
			for range 3 { // the writer
				id := fmt.Sprintf("doc/%d", r.IntN(300))
				for _, spec := range m.Writes() {
					hold(spec, id)
				}
			}
			name, next, err := randomChange(r, m, func() string { added++; return fmt.Sprintf("x%d:1", added) })
			if err != nil || len(next.Groups) > 12 {
				continue
			}
			switch name {
			case "Cutover": // the job has copied
				for id := range docs {
					hold(m.Writes()[1], id)
				}
			case "EndMove": // the job has cleaned
				p, err := placement.New(m.Visible())
				if err != nil {
					t.Fatal(err)
				}
				for id := range docs {
					for g := range docs[id] {
						if g != p.Shard(id) {
							delete(docs[id], g)
						}
					}
				}
			}
			m = next
			p, err := placement.New(m.Visible())
			if err != nil {
				t.Fatal(err)
			}
			for id, groups := range docs {
				if !groups[p.Shard(id)] {
					t.Fatalf("%s, step %d, after %s: %s is on %v, readers look at %d", rule, step, name, id, groups, p.Shard(id))
				}
				for g := range groups {
					if g >= len(m.Groups) {
						t.Fatalf("%s, step %d, after %s: %s was on group %d, which is removed", rule, step, name, id, g)
					}
				}
				if m.Move == nil && len(groups) != 1 {
					t.Fatalf("%s, step %d, after %s: %s is on %v outside a move", rule, step, name, id, groups)
				}
			}
		}
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory(nil)
		s := NewStoreSource(st)
		type event struct {
			at    time.Duration
			epoch uint64
			err   error
		}
		var events []event
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stop := s.Watch(ctx, time.Second, func(m *Map, v Version, err error) {
			e := event{at: time.Since(start), err: err}
			if m != nil {
				e.epoch = m.Epoch
				if v.Epoch != m.Epoch {
					t.Errorf("version %+v of epoch %d", v, m.Epoch)
				}
			}
			events = append(events, e)
		})
		synctest.Wait()
		if len(events) != 1 || !errors.Is(events[0].err, ErrNotFound) || events[0].at != 0 {
			t.Fatalf("at first: %+v", events)
		}
		m := first(t)
		v, err := s.Swap(ctx, Version{}, m)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		if len(events) != 2 || events[1].epoch != 1 || events[1].at < 900*time.Millisecond || events[1].at > 1100*time.Millisecond {
			t.Fatalf("after the first map: %+v", events)
		}
		if m, err = m.AddGroup("c:1"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Swap(ctx, v, m); err != nil {
			t.Fatal(err)
		}
		<-time.After(1100 * time.Millisecond)
		synctest.Wait()
		if len(events) != 3 || events[2].epoch != 2 {
			t.Fatalf("after the second: %+v", events)
		}
		stop()
		stop()
		if err := st.Delete(t.Context(), Key); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		if len(events) != 3 {
			t.Errorf("after the end: %+v", events)
		}
		// The end of the context ends it, too, and stop still waits.
		n := 0
		stop = s.Watch(ctx, time.Second, func(*Map, Version, error) { n++ })
		synctest.Wait()
		cancel()
		stop()
		if n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}
