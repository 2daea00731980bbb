package jobs

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/cluster/write"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
)

// ofWriter marks the calls of writers.
type ofWriter struct{}

// trial is a cluster that is written to and read from while its documents are moved, members fail, and coordinators are killed.
type trial struct {
	*fleet
	seed uint64

	mu      sync.Mutex
	rng     *rand.Rand
	calm    bool // nothing fails any more
	quiet   bool // writers are to end
	kills   int  // coordinators to be killed yet
	killIn  int  // calls of jobs until the next
	live    []*actor
	known   map[string]*fact // by id
	reads   int
	retries int
	acked   int
	unsure  int
}

// actor is a coordinator with a writer.
type actor struct {
	*coordinator
	w *write.Writer
}

// fact is what is known of a document. Only its writer begins something with it.
type fact struct {
	begun  int    // writes that were begun
	source string // of the last that was acknowledged; empty: deleted
	sure   bool   // no write has failed
	idle   bool   // no write is under way
}

func (tr *trial) rand(n int) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.rng.IntN(n)
}

// hook makes a model slow and faulty.
func (tr *trial) hook(m *model, faults int) {
	m.later = func() { <-time.After(time.Duration(tr.rand(5000)) * time.Millisecond) }
	m.setBefore(func(ctx context.Context, call string) {
		<-time.After(time.Duration(tr.rand(3000)) * time.Microsecond)
	})
	var deaf time.Time // until then it is given no map
	drawn := uint64(0) // the epoch of the map for which that was drawn
	m.setFates(func(ctx context.Context, call string) fate {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		writer := ctx.Value(ofWriter{}) != nil
		if tr.calm {
			return fine
		}
		if !writer && call != "Placed" { // which is asked for all the time
			if tr.killIn--; tr.killIn <= 0 && tr.kills > 0 {
				for _, a := range tr.live {
					a.Runner.mu.Lock()
					working := a.Runner.current != nil
					a.Runner.mu.Unlock()
					if working {
						a.kill()
						tr.kills--
						tr.killIn = 1 + tr.rng.IntN(120)
					}
				}
			}
		}
		if call == "Place" && faults > 0 {
			// Somebody may go by an older map there for a while.
			if e := tr.current().Epoch; e != drawn {
				if drawn, deaf = e, (time.Time{}); tr.rng.IntN(4) == 0 {
					deaf = time.Now().Add(time.Duration(tr.rng.IntN(1500)) * time.Millisecond)
				}
			}
			if time.Now().Before(deaf) {
				return gone
			}
		}
		if faults == 0 || tr.rng.IntN(faults) > 0 {
			return fine
		}
		switch n := tr.rng.IntN(4); {
		case n == 0:
			return gone
		case writer:
			return fine // what writers leave behind at members is not what is looked at here
		case n == 1 && call != "Placed":
			return lost
		case n == 2 && call == "Sync":
			return late
		}
		return gone
	})
}

// actor is one that lives.
func (tr *trial) actor() *actor {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.live[tr.rng.IntN(len(tr.live))]
}

func (tr *trial) start() *actor {
	a := &actor{coordinator: tr.coordinator(Options{})}
	var err error
	if a.w, err = write.New(a.cluster, write.Options{}); err != nil {
		tr.t.Fatal(err)
	}
	return a
}

func (a *actor) end(t testing.TB) {
	if err := a.w.Close(); err != nil {
		t.Error(err)
	}
	a.shut(t)
}

// tend replaces coordinators that were killed.
func (tr *trial) tend(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(50 * time.Millisecond):
		}
		tr.mu.Lock()
		live := slices.Clone(tr.live)
		tr.mu.Unlock()
		for i, a := range live {
			if !a.isDead() {
				continue
			}
			next := tr.start()
			tr.mu.Lock()
			tr.live[i] = next
			tr.mu.Unlock()
			a.end(tr.t)
		}
	}
}

// write writes documents of its own until it is to end.
func (tr *trial) write(k int) {
	ctx := context.WithValue(context.Background(), ofWriter{}, true)
	for n := 1; ; n++ {
		tr.mu.Lock()
		quiet := tr.quiet
		tr.mu.Unlock()
		if quiet {
			return
		}
		<-time.After(time.Duration(tr.rand(20)) * time.Millisecond)
		id := fmt.Sprintf("pkg/%d", 1+4*tr.rand(60)+k)
		tr.mu.Lock()
		f := tr.known[id]
		if f == nil {
			f = &fact{sure: true, idle: true}
			tr.known[id] = f
		}
		if !f.sure {
			tr.mu.Unlock()
			continue
		}
		f.begun++
		f.idle = false
		remove := tr.rng.IntN(4) == 0
		tr.mu.Unlock()
		source, ok := "", false
		a := tr.actor()
		if remove {
			reply, err := a.w.Delete(ctx, "default", id)
			ok = err == nil && reply.OK
		} else {
			source = doc(id, n)
			reply, err := a.w.Index(ctx, &leaf.IndexRequest{Index: "default", Body: []byte(source)})
			ok = err == nil && reply.OK
		}
		tr.mu.Lock()
		f.idle = true
		if f.sure = ok; ok {
			f.source = source
			tr.acked++
		} else {
			tr.unsure++
		}
		tr.mu.Unlock()
	}
}

// read reads everything by the state of a coordinator, and compares it with what was acknowledged before and not touched since. With lags it
// goes by a state that it had for as long as any member answers.
func (tr *trial) read(done <-chan struct{}, lags bool) {
	ctx := context.WithValue(context.Background(), ofWriter{}, true)
	var st *members.State
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(1+tr.rand(30)) * time.Millisecond):
		}
		a := tr.actor()
		tr.mu.Lock()
		before := make(map[string]fact, len(tr.known))
		for id, f := range tr.known {
			if f.sure && f.idle {
				before[id] = *f
			}
		}
		tr.mu.Unlock()
		if st == nil || !lags || tr.rand(100) == 0 {
			st = a.cluster.State()
		}
		seen, answered, whole := tr.look(ctx, st)
		if !whole && !lags {
			if _, err := a.cluster.Stale(ctx, st); err != nil && !a.isDead() && !members.IsStale(err) {
				tr.t.Logf("seed %d: %v", tr.seed, err)
			}
		}
		tr.mu.Lock()
		if whole {
			tr.reads++
		} else {
			tr.retries++
		}
		for id, f := range before {
			if !answered[st.Owner(id).Ordinal] {
				continue
			}
			if now := tr.known[id]; !now.sure || !now.idle || now.begun != f.begun {
				continue
			}
			var want []leaf.Sum
			if f.source != "" {
				want = []leaf.Sum{sumOf(f.source)}
			}
			if !slices.Equal(seen[id], want) {
				tr.t.Errorf("seed %d: a reader sees %s %d times, want %d (%q)", tr.seed, id, len(seen[id]), len(want), f.source)
			}
		}
		tr.mu.Unlock()
		if len(answered) == 0 {
			st = nil
		}
	}
}

// look reads all groups by one state, and tells which have answered. Each answer has to be right for itself: who asks for one document asks one
// group.
func (tr *trial) look(ctx context.Context, st *members.State) (seen map[string][]leaf.Sum, answered map[int]bool, whole bool) {
	seen, answered, whole = make(map[string][]leaf.Sum, 300), map[int]bool{}, true
	for _, g := range st.Groups {
		v, visible := st.View(g.Ordinal)
		if !visible {
			continue
		}
		m := g.Members[tr.rand(len(g.Members))]
		reply, err := m.Leaf.Sums(ctx, &leaf.SumsRequest{Index: "default", View: v, Range: &leaf.HashRange{To: 1<<32 - 1}, Limit: leaf.MaxIDs})
		if err != nil {
			whole = false
			continue
		}
		answered[g.Ordinal] = true
		for i, id := range reply.IDs {
			seen[id] = append(seen[id], reply.Sums[i])
		}
	}
	return seen, answered, whole
}

// crash takes members away for a while.
func (tr *trial) crash(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(tr.rand(4000)) * time.Millisecond):
		}
		all := tr.all()
		m := all[tr.rand(len(all))]
		m.setDown(true)
		<-time.After(time.Duration(tr.rand(1500)) * time.Millisecond)
		m.setDown(false)
	}
}

// run moves documents from one number of groups to another and back.
func (tr *trial) run(rule placement.Rule, from, to int, faults, kills, crashes int) {
	tr.tune = &tuning{batch: 5, list: 23, page: 7, leafDocs: 3, looks: 4, look: 300 * time.Millisecond, beat: 200 * time.Millisecond, lease: time.Second, adopt: time.Minute}
	sizes := make([]int, max(from, to))
	for i := range sizes {
		sizes[i] = 1 + tr.rand(2)
	}
	tr.begin(rule, from, sizes...)
	docs, byID := corpus(240)
	tr.load("default", tr.current().Visible(), sizes, docs...)
	for id, d := range byID {
		tr.known[id] = &fact{source: d, sure: true, idle: true}
	}
	for _, m := range tr.all() {
		tr.hook(m, faults)
	}
	tr.live = []*actor{tr.start(), tr.start()}
	done := make(chan struct{})
	var others, writers sync.WaitGroup
	others.Go(func() { tr.tend(done) })
	for _, lags := range []bool{false, false, true} {
		others.Go(func() { tr.read(done, lags) })
	}
	for range crashes {
		others.Go(func() { tr.crash(done) })
	}
	for k := range 4 {
		writers.Go(func() { tr.write(k) })
	}
	for round, want := range []int{to, from} {
		tr.mu.Lock()
		tr.calm, tr.kills, tr.killIn = false, kills, 1+tr.rng.IntN(60)
		tr.mu.Unlock()
		tr.move(want)
		if round == 1 {
			tr.mu.Lock()
			tr.quiet = true
			tr.mu.Unlock()
			writers.Wait()
		}
	}
	close(done)
	others.Wait()
	for _, a := range tr.live {
		a.end(tr.t)
	}
	<-time.After(time.Minute) // what is late has come
	tr.check()
}

// move asks for a rebalance until it is done.
func (tr *trial) move(to int) {
	ctx := context.Background()
	began := time.Now()
	id := ""
	for {
		if time.Since(began) > 2*time.Minute {
			tr.mu.Lock()
			tr.calm = true // whatever fails now and then, it comes to an end
			tr.mu.Unlock()
		}
		if time.Since(began) > time.Hour {
			b, _, err := (&ledger{tr.store}).read(ctx)
			if err != nil {
				tr.t.Fatal(err)
			}
			tr.t.Fatalf("seed %d: the move to %d groups does not end: %+v, %+v", tr.seed, to, b.find(id), tr.current().Move)
		}
		<-time.After(200 * time.Millisecond)
		m := tr.current()
		if id == "" {
			if got, err := tr.actor().StartRebalance(ctx, m.Placed, to); err == nil {
				id = got
			}
			continue
		}
		b, _, err := (&ledger{tr.store}).read(ctx)
		if err != nil {
			tr.t.Fatal(err)
		}
		switch rec := b.find(id); {
		case rec == nil:
			id = "" // it was killed before it wrote anything
		case rec.State == Done:
			if m := tr.current(); m.Placed != to || m.Move != nil {
				tr.t.Fatalf("seed %d: the job is done, and the map %+v", tr.seed, m)
			}
			return
		case rec.ended():
			tr.t.Fatalf("seed %d: %+v", tr.seed, rec)
		}
	}
}

// check compares every member with what was acknowledged.
func (tr *trial) check() {
	m := tr.current()
	for g, group := range m.Groups {
		for _, addr := range group.Members {
			have := tr.at(addr).docs("default")
			for id := range have {
				if g != shardOf(m.Visible(), id) {
					tr.t.Errorf("seed %d: %s has %s, which belongs to group %d", tr.seed, addr, id, shardOf(m.Visible(), id))
				}
			}
			for id, f := range tr.known {
				if f.sure && g == shardOf(m.Visible(), id) && have[id] != f.source {
					tr.t.Errorf("seed %d: %s has %q for %s, want %q", tr.seed, addr, have[id], id, f.source)
				}
			}
		}
	}
}

// Documents are moved while they are written and read, members fail and come back, replies get lost, calls come late, and whoever does the
// job is killed again and again. At the end every document that was acknowledged is at its owner, and nowhere else; and every reader has
// seen every document that it had to see exactly once at all times.
func TestMoveUnderFire(t *testing.T) {
	seeds := 40
	if testing.Short() || raced {
		seeds = 4
	}
	var reads, acked, unsure, retries int
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(uint64(seed), 11))
		rule := rules[seed%len(rules)]
		from, to := 1+rng.IntN(4), 1+rng.IntN(4)
		if from == to {
			to++
		}
		faults, kills, crashes := 0, 0, 0
		switch seed % 4 {
		case 1:
			kills = 6
		case 2:
			faults, kills = 60, 4
		case 3:
			faults, kills, crashes = 100, 4, 1
		}
		t.Run(fmt.Sprintf("%d %s %d to %d", seed, rule, from, to), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &trial{fleet: newFleet(t), seed: uint64(seed), rng: rng, known: map[string]*fact{}}
				tr.run(rule, from, to, faults, kills, crashes)
				reads, acked, unsure, retries = reads+tr.reads, acked+tr.acked, unsure+tr.unsure, retries+tr.retries
				if tr.reads < 20 || tr.acked < 100 {
					t.Errorf("%d reads, %d writes", tr.reads, tr.acked)
				}
			})
		})
	}
	t.Logf("%d reads (%d repeated), %d writes acknowledged, %d not", reads, retries, acked, unsure)
}

// repairs repairs members again and again while documents are written and members lose some.
func (tr *trial) repairs() {
	tr.tune = &tuning{batch: 5, list: 23, page: 7, leafDocs: 3, looks: 4, look: 300 * time.Millisecond, beat: 200 * time.Millisecond, lease: time.Second, adopt: time.Minute}
	sizes := []int{2, 3}
	tr.begin(placement.Ring, 2, sizes...)
	docs, byID := corpus(240)
	tr.load("default", tr.current().Visible(), sizes, docs...)
	for id, d := range byID {
		tr.known[id] = &fact{source: d, sure: true, idle: true}
	}
	for _, m := range tr.all() {
		tr.hook(m, 0)
	}
	tr.live = []*actor{tr.start()}
	var writers sync.WaitGroup
	for k := range 4 {
		writers.Go(func() { tr.write(k) })
	}
	for range 8 {
		m := tr.at(addr(1, 1+tr.rand(2)))
		ids := slices.Sorted(maps.Keys(m.docs("default")))
		for range 10 {
			m.remove("default", ids[tr.rand(len(ids))])
		}
		m.put("default", doc(fmt.Sprint("ghost", tr.rand(100)), 1))
		reply, err := tr.live[0].Repair(context.Background(), false)
		if err != nil || len(reply.FailedAddresses) > 0 {
			tr.t.Fatalf("%+v, %v", reply, err)
		}
	}
	tr.mu.Lock()
	tr.quiet = true
	tr.mu.Unlock()
	writers.Wait()
	reply, err := tr.live[0].Repair(context.Background(), false)
	if err != nil || !reply.OK {
		tr.t.Fatalf("%+v, %v", reply, err)
	}
	tr.live[0].end(tr.t)
	want := map[string]string{}
	for id, f := range tr.known {
		if !f.sure {
			tr.t.Errorf("a write of %s has failed", id)
		}
		if f.source != "" {
			want[id] = f.source
		}
	}
	tr.same("default", want)
}
