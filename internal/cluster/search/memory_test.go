package search

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
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
		room := x.room(cancel)
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
		if err := x.room(func(error) {}).Hits(t.Context(), 5*arriveStep); err == nil {
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
		err := c.x.room(cancel).States(ctx, c.bytes)
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
