package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// doubtfulStore often does not know what became of a write.
type doubtfulStore struct {
	store.Store
	mu sync.Mutex
	n  int
}

func (s *doubtfulStore) Put(ctx context.Context, key string, r io.Reader, size int64, c store.Condition) (string, error) {
	s.mu.Lock()
	s.n++
	n := s.n
	s.mu.Unlock()
	if n%5 == 0 {
		return "", store.ErrUncertain // and it was not made
	}
	tag, err := s.Store.Put(ctx, key, r, size, c)
	if err == nil && n%3 == 0 {
		return "", store.ErrUncertain
	}
	return tag, err
}

// Of many who change the ledger at once, and do not always hear what became of it, each makes its change once.
func TestLedgerUnderRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{&doubtfulStore{Store: store.NewMemory(nil)}}
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() {
				for i := range 10 {
					id := fmt.Sprint(k, "-", i)
					_, err := l.update(t.Context(), func(b *book) error {
						if b.find(id) == nil {
							b.Jobs = append(b.Jobs, &record{ID: id, State: Running})
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		b, _, err := l.read(t.Context())
		if err != nil || len(b.Jobs) != 40 {
			t.Fatalf("%d jobs, %v", len(b.Jobs), err)
		}
	})
}

func TestLedger(t *testing.T) {
	ctx := t.Context()
	s := store.NewMemory(nil)
	l := &ledger{s}
	b, err := l.update(ctx, func(b *book) error {
		for i := range 2 * maxEnded {
			state := Done
			if i%maxEnded == 0 {
				state = Paused
			}
			b.Jobs = append(b.Jobs, &record{ID: fmt.Sprint(i), State: state})
		}
		return nil
	})
	if err != nil || len(b.Jobs) != maxEnded || b.find("0") == nil || b.find("1") != nil || b.find(fmt.Sprint(2*maxEnded-1)) == nil {
		t.Errorf("%d jobs are kept, %v", len(b.Jobs), err)
	}
	if a := b.active(); a == nil || a.ID != "0" {
		t.Errorf("active: %+v", a)
	}
	again, _, err := l.read(ctx)
	if err != nil || again.Rev != 1 || len(again.Jobs) != maxEnded {
		t.Errorf("%+v, %v", again, err)
	}
	own := errors.New("no")
	if _, err := l.update(ctx, func(*book) error { return own }); !errors.Is(err, own) {
		t.Errorf("%v", err)
	}
	if b, err := l.update(ctx, func(*book) error { return errAsItIs }); err != nil || b.Rev != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	put := func(text string) {
		if _, err := s.Put(ctx, ledgerKey, strings.NewReader(text), int64(len(text)), store.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put(`{"format":2,"rev":1,"lease":null,"jobs":[]}`)
	if _, _, err := l.read(ctx); !errors.Is(err, errLedgerFormat) {
		t.Errorf("a newer format: %v", err)
	}
	put(`{"format":1,`)
	if _, err := l.update(ctx, func(*book) error { return nil }); err == nil {
		t.Error("damage is overwritten")
	}
}

// The ledger of one coordinator is in its folder, which is locked; a job goes on after a restart, and is listed with those before.
func TestJobsInAFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 300)
		f.at(addr(1, 1)).setDown(true)
		o := Options{Dir: "data/jobs", FS: memfs.New(nil), Patience: 10 * time.Second}
		one := f.coordinator(o)
		first, err := one.Repair(t.Context(), false)
		if err != nil || first.OK {
			t.Fatalf("%+v, %v", first, err)
		}
		if _, err := New(one.cluster, o); err == nil {
			t.Error("two have the folder")
		}
		id, err := one.StartRebalance(t.Context(), 3, 2)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		one.shut(t)
		if _, err := one.Jobs(t.Context()); !errors.Is(err, leaf.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if _, err := one.StartRepair(t.Context(), false); !errors.Is(err, leaf.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		f.at(addr(1, 1)).setDown(false)
		two := f.coordinator(o)
		defer two.shut(t)
		if rec, err := two.await(t.Context(), id); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		f.same("default", byID)
		list, err := two.Jobs(t.Context())
		if err != nil || len(list) != 2 || list[0].ID != id || list[0].Kind != Rebalance || list[1].Kind != Repair || list[1].State != Failed || !strings.Contains(list[1].Error, addr(1, 1)) {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// Who waits for a job leaves with its own time, and the job goes on.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pairs(t, 300)
		f.at(addr(2, 0)).setDown(true)
		co := f.coordinator(Options{})
		defer co.shut(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if reply, err := co.Rebalance(ctx, 3, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%+v, %v", reply, err)
		}
		f.at(addr(2, 0)).setDown(false)
		<-time.After(time.Minute)
		f.same("default", byID)
	})
}

// kept starts a coordinator whose map the members keep.
func (f *fleet) kept(first *shardmap.Map) *coordinator {
	f.t.Helper()
	c := &coordinator{}
	cl, err := members.Open(members.Options{
		Dial:    func(addr string) (leaf.Member, error) { return &connection{m: f.at(addr)}, nil },
		Initial: first, Every: time.Second, Log: obs.Discard(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	c.cluster = cl
	if c.Runner, err = New(cl, Options{}); err != nil {
		f.t.Fatal(err)
	}
	if err := cl.Ready(context.Background()); err != nil {
		f.t.Fatal(err)
	}
	c.Start()
	return c
}

// Two coordinators without a store have ledgers of their own. The one that is asked takes a move over from the other, which sees that; one
// that was there before lets it be, and one that comes and finds it there takes it over after a while.
func TestMoveIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{1, 2, 1}
		two, err := shardmap.New(placement.Ring, 16, groups(sizes[:2]...))
		if err != nil {
			t.Fatal(err)
		}
		docs, byID := corpus(200)
		f.load("default", two.Visible(), sizes, docs...)
		f.kept(two).shut(t)
		three, err := shardmap.New(placement.Ring, 16, groups(sizes...))
		if err != nil {
			t.Fatal(err)
		}
		one, other := f.kept(three), f.kept(three)
		defer one.shut(t)
		defer other.shut(t)
		f.now = func() *shardmap.Map { return one.cluster.State().Map }
		if m := f.current(); m.Placed != 2 || len(m.Groups) != 3 {
			t.Fatalf("%+v", m)
		}
		dest := f.at(addr(2, 0))
		stuck := true
		var mu sync.Mutex
		dest.setFates(func(_ context.Context, call string) fate {
			mu.Lock()
			defer mu.Unlock()
			if stuck && call == "Sync" {
				return gone
			}
			return fine
		})
		began, err := one.StartRebalance(t.Context(), 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Minute)
		if list, err := other.Jobs(t.Context()); err != nil || len(list) != 0 {
			t.Fatalf("it has taken over: %+v, %v", list, err)
		}
		third := f.kept(three)
		defer third.shut(t)
		<-time.After(2 * time.Minute)
		taken, err := third.Jobs(t.Context())
		if err != nil || len(taken) != 1 || taken[0].State != Running {
			t.Fatalf("it has not taken over: %+v, %v", taken, err)
		}
		if j, err := one.Job(t.Context(), began); err != nil || j.State != Failed {
			t.Errorf("%+v, %v", j, err)
		}
		asked, err := other.StartRebalance(t.Context(), 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.StartRebalance(t.Context(), 2, 3)
		wantProblem(t, err, api.JobConflict)
		<-time.After(time.Minute)
		if j, err := third.Job(t.Context(), taken[0].ID); err != nil || j.State != Failed {
			t.Errorf("%+v, %v", j, err)
		}
		mu.Lock()
		stuck = false
		mu.Unlock()
		if rec, err := other.await(t.Context(), asked); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		<-time.After(time.Minute)
		f.same("default", byID)
		if m := f.current(); m.Placed != 3 {
			t.Errorf("placed over %d groups", m.Placed)
		}
	})
}
