package search

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// fixedState is a source of one state.
type fixedState struct{ state *members.State }

func (f fixedState) State() *members.State { return f.state }

func (f fixedState) Stale(context.Context, *members.State) (*members.State, error) {
	return nil, errors.New("there is no newer map")
}

// readerOver reads from three groups of one script each, whose hits have sources of so many bytes.
func readerOver(t *testing.T, size int) *read.Reader {
	t.Helper()
	m, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"0"}}, {Members: []string{"1"}}, {Members: []string{"2"}}})
	if err != nil {
		t.Fatal(err)
	}
	source := append(append([]byte(`{"s":"`), bytes.Repeat([]byte("x"), size)...), `"}`...)
	state, err := members.NewState(m, nil, func(addr string) (leaf.Member, error) {
		s := newScript(t)
		s.search = func(r *leaf.SearchRequest) (*leaf.SearchReply, error) {
			reply := &leaf.SearchReply{Docs: 100, Total: 1, TotalRelation: "eq"}
			if r.Limit > 0 {
				reply.Hits = []leaf.Hit{{ID: "d" + addr, Score: 1}}
			}
			if r.Show != nil {
				reply.Shown = []leaf.Shown{{Source: source}}
			}
			return reply, nil
		}
		s.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
			reply := &leaf.FetchReply{}
			for range r.IDs {
				reply.Docs = append(reply.Docs, leaf.Shown{Source: source})
			}
			return reply, nil
		}
		return s, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := read.New(fixedState{state}, read.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// readOnly is a member whose searches and sources come from a reader.
type readOnly struct {
	*script
	r *read.Reader
}

func (m readOnly) Search(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return m.r.Search(ctx, req)
}

func (m readOnly) Fetch(ctx context.Context, req *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return m.r.Fetch(ctx, req)
}

// What all shards send is charged as it arrives, and not only what of it comes to stand on the page.
func TestRepliesOfAllShardsAreChargedAsTheyArrive(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name, body string
		limit      int64
		enough     bool
	}{
		// One hit of 2 MiB is charged 3 MiB on the page; of three shards 5 MiB arrive beyond the first.
		{"room for the page alone", `"q":"x","limit":1`, 4 * mib, false},
		{"room for all that arrives", `"q":"x","limit":1`, 6 * mib, true},
		{"sources apart", `"q":"x","limit":3,"offset":0,"highlight":"t"`, 4 * mib, false},
		{"no sources", `"q":"x","limit":3,"fields":[]`, mib, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := admit.New(front.GateMemory, c.limit, 0, 0)
			s := newScript(t).searcher(Options{Memory: gate})
			s.member = readOnly{newScript(t), readerOver(t, 2*mib)}
			reply, prob := ask(t, s, c.body)
			switch {
			case c.enough && prob != nil:
				t.Errorf("%+v", prob)
			case !c.enough && (prob == nil || prob.Code != api.RequestMemoryFull):
				t.Errorf("%+v, %v", reply, prob)
			}
			if used := gate.Used(); used != 0 {
				t.Errorf("%d bytes stay charged", used)
			}
		})
	}
}

// However many searches run at once, what has arrived for them is never more than the gate gives out, but for the first step of each.
func TestWhatArrivesForConcurrentSearchesIsBounded(t *testing.T) {
	gate := admit.New(front.GateMemory, 8*arriveStep, 0, 0)
	s := newScript(t).searcher(Options{Memory: gate})
	var wait sync.WaitGroup
	executions := make([]*execution, 4)
	taken := make([]int64, len(executions))
	var mu sync.Mutex
	for i := range executions {
		x := &execution{s: s}
		executions[i] = x
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		room := s.room(&x.memory, cancel)
		for range 3 {
			wait.Go(func() {
				for range 4 {
					if err := room.Hits(ctx, arriveStep); err != nil {
						if context.Cause(ctx) == nil {
							t.Error("a search that was refused goes on")
						}
						return
					}
					mu.Lock()
					taken[i]++
					mu.Unlock()
				}
			})
		}
	}
	wait.Wait()
	sum := int64(0)
	for _, n := range taken {
		sum += n
	}
	if most := int64(8 + len(executions)); sum > most || sum < 8 {
		t.Errorf("%d steps were let in of a gate of 8, %v", sum, taken)
	}
	for _, x := range executions {
		x.memory.release()
		if err := s.room(&x.memory, func(error) {}).Hits(t.Context(), 5*arriveStep); err == nil {
			t.Error("a reply was charged to a search that is over")
		}
	}
	if gate.Used() != 0 {
		t.Errorf("%d bytes stay charged", gate.Used())
	}
}

// The states of all shards are charged together as they arrive; the search that finds no room goes beyond it alone.
func TestStatesOfAllShardsAreChargedAsTheyArrive(t *testing.T) {
	rooms, beyond := admit.New(front.GateAggs, 4*aggStep, 0, 0), admit.New(front.GateAggs, 1, 0, 0)
	s := newScript(t).searcher(Options{Aggregations: rooms, AggBeyond: beyond})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	first, second := &execution{s: s}, &execution{s: s}
	for i, c := range []struct {
		x             *execution
		bytes         int64
		rooms, beyond int64
		refused       bool
	}{
		{first, aggStep, 0, 0, false}, // that of its place
		{first, 2 * aggStep, 2 * aggStep, 0, false},
		{second, 4 * aggStep, 2 * aggStep, 1, false},
		{second, 9 * aggStep, 2 * aggStep, 1, false},
		{first, 9 * aggStep, 2 * aggStep, 1, true},
	} {
		err := s.room(&c.x.memory, cancel).States(ctx, c.bytes)
		if (err != nil) != c.refused || (context.Cause(ctx) != nil) != c.refused || rooms.Used() != c.rooms || beyond.Used() != c.beyond {
			t.Errorf("%d: %v, %d bytes and %d beyond", i, err, rooms.Used(), beyond.Used())
		}
	}
	first.memory.release()
	second.memory.release()
	if rooms.Used() != 0 || beyond.Used() != 0 {
		t.Errorf("%d bytes and %d beyond stay charged", rooms.Used(), beyond.Used())
	}
}

// nearestOver reads from three groups of one member each, whose only neighbours have ids of so many bytes.
func nearestOver(t *testing.T, lengths ...int) *read.Reader {
	t.Helper()
	at := map[string]string{}
	var groups []shardmap.Group
	for i, n := range lengths {
		addr := strconv.Itoa(i)
		at[addr] = addr + strings.Repeat("x", n-1)
		groups = append(groups, shardmap.Group{Members: []string{addr}})
	}
	m, err := shardmap.New(placement.Ring, 0, groups)
	if err != nil {
		t.Fatal(err)
	}
	state, err := members.NewState(m, nil, func(addr string) (leaf.Member, error) {
		s := newScript(t)
		s.knn = func(*leaf.KNNRequest) (*leaf.KNNReply, error) {
			return &leaf.KNNReply{Docs: 100, Hits: []leaf.Neighbour{{ID: at[addr], Similarity: 1}}}, nil
		}
		s.aggregate = func(*leaf.AggregateRequest) (*leaf.AggregateReply, error) {
			return &leaf.AggregateReply{Docs: 100, Matched: 1, Values: []leaf.FieldValues{{Field: "t", Type: schema.Text, Texts: []string{at[addr]}}}}, nil
		}
		return s, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := read.New(fixedState{state}, read.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// nearest is a member whose neighbours and values come from a reader.
type nearest struct {
	*script
	r *read.Reader
}

func (m nearest) KNN(ctx context.Context, req *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return m.r.KNN(ctx, req)
}

func (m nearest) Aggregate(ctx context.Context, req *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return m.r.Aggregate(ctx, req)
}

// What a neighbour and a text are charged besides their letters.
const (
	neighbourHead = 24
	textHead      = 16
)

// lengthsOf are those of three ids that are charged so many bytes together, with their heads.
func lengthsOf(bytes, head int) []int {
	bytes -= 3 * head
	return []int{bytes / 2, bytes / 4, bytes - bytes/2 - bytes/4}
}

// Neighbours are charged with what a gate has and what belongs to the place of the search, to the byte; the last one that it has no room for
// ends the search.
func TestNeighboursOfAllShardsAreChargedAsTheyArrive(t *testing.T) {
	for _, c := range []struct {
		name   string
		bytes  int
		enough bool
	}{
		{"all of it", 3 * arriveStep, true},
		{"a byte more", 3*arriveStep + 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := admit.New(front.GateMemory, 2*arriveStep, 0, 0)
			s := newScript(t).searcher(Options{Memory: gate})
			s.member = nearest{newScript(t), nearestOver(t, lengthsOf(c.bytes, neighbourHead)...)}
			reply, prob := ask(t, s, `"knn":"v:1,2","knn_k":10,"limit":0,"fields":[]`)
			switch {
			case c.enough && (prob != nil || reply.Total != 3):
				t.Errorf("%+v, %+v", reply, prob)
			case !c.enough && (prob == nil || prob.Code != api.RequestMemoryFull || prob.HTTPStatus() != 429 || prob.RetryAfterMS == 0):
				t.Errorf("%v, %+v", reply != nil, prob)
			}
			if used := gate.Used(); used != 0 {
				t.Errorf("%d bytes stay charged", used)
			}
		})
	}
}

// Values one by one come to a coordinator that is a shard of another. They are charged like neighbours.
func TestValuesOfAllShardsAreChargedAsTheyArrive(t *testing.T) {
	for _, c := range []struct {
		name   string
		bytes  int
		enough bool
	}{
		{"all of it", 3 * arriveStep, true},
		{"a byte more", 3*arriveStep + 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := admit.New(front.GateMemory, 2*arriveStep, 0, 0)
			s := newScript(t).searcher(Options{Memory: gate})
			r := nearestOver(t, lengthsOf(c.bytes, textHead)...)
			ctx, release := s.Charged(t.Context())
			reply, err := r.Aggregate(ctx, &leaf.AggregateRequest{Index: "i", Values: []string{"t"}})
			switch {
			case c.enough && (err != nil || len(reply.Values[0].Texts) != 3 || gate.Used() != 2*arriveStep):
				t.Errorf("%v, %d charged", err, gate.Used())
			case !c.enough && !errors.Is(err, admit.ErrRefused):
				t.Errorf("%v", err)
			}
			release()
			if used := gate.Used(); used != 0 {
				t.Errorf("%d bytes stay charged", used)
			}
		})
	}
}

// Neighbours stay charged while the ranking by words beside them is made again; its hits do not.
func TestNeighboursStayChargedWhileHitsAreAskedForAgain(t *testing.T) {
	gate := admit.New(front.GateMemory, 8*arriveStep, 0, 0)
	s := newScript(t).searcher(Options{Memory: gate})
	x := &execution{s: s}
	room := s.room(&x.memory, func(error) {})
	for _, c := range []struct {
		grow func(ctx context.Context, bytes int64) error
		used int64
	}{
		{room.Hits, 0}, // that of its place
		{room.Hits, arriveStep},
		{room.Kept, 2 * arriveStep},
		{room.Kept, 3 * arriveStep},
	} {
		if err := c.grow(t.Context(), arriveStep); err != nil || gate.Used() != c.used {
			t.Fatalf("%v, %d charged, want %d", err, gate.Used(), c.used)
		}
	}
	x.memory.chosen()
	if gate.Used() != arriveStep {
		t.Errorf("%d charged for two steps of neighbours", gate.Used())
	}
	x.memory.release()
	if gate.Used() != 0 {
		t.Errorf("%d bytes stay charged", gate.Used())
	}
}

// A reply is charged while it is on its way, and given back when it was taken apart; there is room for it again then.
func TestRepliesAreChargedOnTheirWay(t *testing.T) {
	gate := admit.New(front.GateMemory, 2*arriveStep, 0, 0)
	s := newScript(t).searcher(Options{Memory: gate})
	ctx, release := s.Charged(t.Context())
	take := leaf.ArrivalOf(ctx)
	var give []func()
	for i := range 3 {
		done, err := take(arriveStep)
		if err != nil || gate.Used() != int64(i)*arriveStep {
			t.Fatalf("%d: %v, %d charged", i, err, gate.Used())
		}
		give = append(give, done)
	}
	give[0]()
	if done, err := take(arriveStep); err != nil || gate.Used() != 2*arriveStep {
		t.Errorf("after one was taken apart: %v, %d charged", err, gate.Used())
	} else {
		give[0] = done
	}
	if _, err := take(1); !errors.Is(err, admit.ErrRefused) || !errors.Is(context.Cause(ctx), admit.ErrRefused) {
		t.Errorf("one byte more: %v, %v", err, context.Cause(ctx))
	}
	release()
	for _, done := range give { // those of calls that end later
		done()
	}
	if gate.Used() != 0 {
		t.Errorf("%d bytes stay charged", gate.Used())
	}
	if _, err := take(1); err == nil {
		t.Error("a reply is charged to a call that is over")
	}
}
