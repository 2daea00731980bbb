package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
	"github.com/weft-search/weft/internal/wire/protoweight"
)

// allBack checks that nothing is charged and nobody waits.
func allBack(t testing.TB, s *Server) {
	t.Helper()
	if !s.memory.TryAcquire(s.o.Memory) {
		t.Error("memory did not come back")
		return
	}
	s.memory.Release(s.o.Memory)
	if n, w := s.lobby.waits(), s.working.Load(); n != 0 || w != 0 {
		t.Errorf("%d things wait and %d calls are worked on", n, w)
	}
}

// free is how much of the memory is not charged.
func free(s *Server) int64 {
	low, high := int64(0), s.o.Memory
	for low < high {
		mid := (low + high + 1) / 2
		if s.memory.TryAcquire(mid) {
			s.memory.Release(mid)
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// Replies that nobody takes are charged until gRPC lets go of them, keep nobody else out, and end with their calls and then their
// connection.
func TestRepliesThatNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 20 << 20
		r := start(t, &fake{info: func(_ context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
			if req.Index == "small" {
				return &leaf.InfoReply{Version: strings.Repeat("x", 2000)}, nil
			}
			return &leaf.InfoReply{Version: strings.Repeat("x", size)}, nil
		}}, ServerOptions{Memory: 64 << 20}, Options{})
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		p := rawDial(t, r, 1000)
		for range 10 {
			p.call("Info", &pb.InfoRequest{})
			synctest.Wait()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if got := int64(after.HeapAlloc) - int64(before.HeapAlloc); got > r.server.o.Memory {
			t.Errorf("the heap grew by %d MiB", got>>20)
		}
		// The memory holds 3.
		if c := r.server.Counters(); c.Running != 3 || c.Refused != 7 {
			t.Errorf("%+v", c)
		}
		for range 20 {
			p.call("Info", &pb.InfoRequest{Index: "small"})
		}
		now := time.Now()
		if _, err := r.Info(t.Context(), &leaf.InfoRequest{Index: "small"}); err != nil || time.Since(now) != 0 {
			t.Errorf("%v after %v", err, time.Since(now))
		}
		timer := time.NewTimer(59 * time.Second)
		<-timer.C
		if c := r.server.Counters(); c.Running != 23 || c.Stalled != 0 {
			t.Errorf("%+v", c)
		}
		timer.Reset(2 * time.Second)
		<-timer.C
		if c := r.server.Counters(); c.Running != 0 || c.Stalled != 23 {
			t.Errorf("%+v", c)
		}
		if n := free(r.server); n > r.server.o.Memory-3*(size-freeReply) {
			t.Errorf("%d bytes are free while gRPC has the replies", n)
		}
		<-p.gone
		if d := time.Since(begin); d < 2*time.Minute || d > 2*time.Minute+time.Second {
			t.Errorf("the connection was closed after %v", d)
		}
		synctest.Wait()
		allBack(t, r.server)
		p.close()
		if _, err := r.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A connection that takes nothing at all is closed, however much its peer has to say.
func TestConnectionsThatTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{info: func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
			return &leaf.InfoReply{Version: strings.Repeat("x", 1<<20)}, nil
		}}, ServerOptions{}, Options{})
		begin := time.Now()
		p := deafDial(t, r, 1<<30)
		for range 10 {
			p.frame(8, 0, 0, []byte{0, 16, 0, 0})
			p.call("Info", &pb.InfoRequest{})
		}
		// It answers pings, or is taken to.
		tick := time.NewTicker(20*time.Second + time.Millisecond)
		defer tick.Stop()
		for range 4 {
			if time.Since(begin) < time.Minute {
				p.frame(6, 1, 0, make([]byte, 8))
			}
			<-tick.C
		}
		if c := r.server.Counters(); c.Running != 0 {
			t.Errorf("%+v", c)
		}
		allBack(t, r.server)
		go p.read()
		<-p.gone
		p.close()
	})
}

// A caller that gives up a call whose reply gRPC has gets neither its memory nor its connection stuck, and one that takes replies
// slowly is not cut off.
func TestRepliesThatAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{info: func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
			return &leaf.InfoReply{Version: strings.Repeat("x", 1<<20)}, nil
		}}, ServerOptions{}, Options{})
		p := rawDial(t, r, 1000)
		defer p.close()
		for range 5 {
			id := p.call("Info", &pb.InfoRequest{})
			synctest.Wait()
			if free(r.server) == r.server.o.Memory {
				t.Error("a reply is not charged")
			}
			p.reset(id)
			synctest.Wait()
			allBack(t, r.server)
		}
		// The deadline of a caller that does not tell of it.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method{name: "Info"}.path()); err != nil {
			t.Fatal(err)
		} else if err := s.SendMsg(&envelope{message: &pb.InfoRequest{}}); err != nil {
			t.Fatal(err)
		}
		timer := time.NewTimer(2 * time.Second)
		<-timer.C
		allBack(t, r.server)
		timer.Reset(5 * time.Minute)
		select {
		case <-p.gone:
			t.Error("the connection was closed")
		case <-timer.C:
		}
		// Pieces that keep coming.
		id := p.call("Info", &pb.InfoRequest{})
		for range 9 {
			timer.Reset(50 * time.Second)
			<-timer.C
			for _, s := range []uint32{0, id} {
				p.frame(8, 0, s, []byte{0, 4, 0, 0})
			}
		}
		synctest.Wait()
		allBack(t, r.server)
	})
}

// Calls without a message cost next to nothing, and take places only from calls of those who keep many waiting.
func TestSilentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{}, ServerOptions{Memory: 256 << 20, MaxMessage: 16 << 20, Calls: 200}, Options{})
		var few []*rawPeer
		for range 16 {
			p := rawDial(t, r, 1<<16)
			defer p.close()
			p.open("Search")
			few = append(few, p)
		}
		synctest.Wait()
		flood := rawDial(t, r, 1<<16)
		defer flood.close()
		for range 500 {
			flood.open("Search")
			synctest.Wait()
		}
		if n := r.server.lobby.waits(); n != 200 {
			t.Errorf("%d calls wait", n)
		}
		if n := free(r.server); n != r.server.o.Memory {
			t.Errorf("%d bytes are charged", r.server.o.Memory-n)
		}
		begin := time.Now()
		for range 100 {
			if _, err := r.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Search(t.Context(), &leaf.SearchRequest{Query: &query.All{}}); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("answered after %v", d)
		}
		// Those with one call each are still there, and may go on.
		for _, p := range few {
			if p.next != 3 {
				t.Fatal(p.next)
			}
			p.begin(1, 0, nil)
		}
		synctest.Wait()
		if n := r.server.lobby.waits(); n > 200-16 {
			t.Errorf("%d calls wait", n)
		}
		timer := time.NewTimer(11 * time.Second)
		<-timer.C
		if c := r.server.Counters(); c.Running != 0 || c.Stalled+c.Refused != 500 {
			t.Errorf("%+v", c)
		}
		allBack(t, r.server)
	})
}

// A caller that keeps too many waiting loses its connection when replies are what it does not take, and a load that loses its place for
// others is not said to be refused.
func TestCallsThatLeaveForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int32
		r := start(t, &fake{
			info: func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
				return &leaf.InfoReply{Version: "long enough"}, nil
			},
			bulk: func(ctx context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
				loads.Add(1)
				_, err := io.Copy(io.Discard, body)
				return nil, fmt.Errorf("the load breaks off: %w", err)
			},
		}, ServerOptions{Calls: 4}, Options{})
		greedy := rawDial(t, r, 0)
		defer greedy.close()
		for range 4 {
			greedy.call("Info", &pb.InfoRequest{})
			synctest.Wait()
		}
		if c := r.server.Counters(); c.Running != 4 {
			t.Errorf("%+v", c)
		}
		if _, err := r.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		<-greedy.gone
		synctest.Wait()
		allBack(t, r.server)

		begin := time.Now()
		s := rawCall(t, r, "Bulk", grpc.StreamDesc{ClientStreams: true})
		for range 2 {
			if err := s.SendMsg(&envelope{message: &pb.BulkRequest{Data: []byte("{}\n")}}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for range 4 {
			rawCall(t, r, "Search", grpc.StreamDesc{ClientStreams: true})
			synctest.Wait()
		}
		err := s.RecvMsg(&envelope{message: &pb.BulkReply{}})
		if p := trailedProblem(s.Trailer()); p == nil || p.Code != api.BodyTimeout || time.Since(begin) != 0 || loads.Load() != 1 {
			t.Errorf("%v, %+v after %v", err, p, time.Since(begin))
		}
		first := rawCall(t, r, "Search", grpc.StreamDesc{ClientStreams: true})
		synctest.Wait()
		for range 4 {
			rawCall(t, r, "Search", grpc.StreamDesc{ClientStreams: true})
			synctest.Wait()
		}
		err = first.RecvMsg(&envelope{message: &pb.SearchReply{}})
		if p := trailedProblem(first.Trailer()); p == nil || p.Code != api.TooManySearches || leaf.ClassOf(p) != leaf.Here {
			t.Errorf("%v, %+v", err, p)
		}
	})
}

// A reply that tells of a write is sent when there is no memory left.
func TestRepliesToWritesAreSentInAnyCase(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	r := start(t, &fake{
		index: func(context.Context, *leaf.IndexRequest) (*leaf.IndexReply, error) {
			return &leaf.IndexReply{WriteReply: api.WriteReply{ID: long}}, nil
		},
		info: func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
			return &leaf.InfoReply{Version: long}, nil
		},
	}, ServerOptions{}, Options{})
	if !r.server.memory.TryAcquire(r.server.o.Memory) {
		t.Fatal("the memory is not free")
	}
	if reply, err := r.Index(t.Context(), &leaf.IndexRequest{Body: []byte("{}")}); err != nil || reply.ID != long {
		t.Error(err)
	}
	if _, err := r.Info(t.Context(), &leaf.InfoRequest{}); code(err) != api.RequestMemoryFull {
		t.Error(err)
	}
	r.server.memory.Release(r.server.o.Memory)
	allBack(t, r.server)
}

// What is charged for a message is what has come of it, and not what it says about its length.
func TestMessagesAreChargedAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{}, ServerOptions{Memory: 256 << 20, MaxMessage: 16 << 20}, Options{})
		p := rawDial(t, r, 1<<16)
		defer p.close()
		for range 100 {
			p.begin(p.open("Index"), 16<<20, make([]byte, 100))
		}
		synctest.Wait()
		if n := free(r.server); n != r.server.o.Memory {
			t.Errorf("%d bytes are charged for 100 messages of 100 bytes", r.server.o.Memory-n)
		}
		for i := range uint32(100) {
			for range 4 {
				p.frame(0, 0, 2*i+1, make([]byte, 15<<10))
			}
		}
		synctest.Wait()
		if n := r.server.o.Memory - free(r.server); n < 100*30<<10 || n > 100*128<<10 {
			t.Errorf("%d bytes are charged for 100 messages of 60 KiB", n)
		}
		begin := time.Now()
		if _, err := r.Index(t.Context(), &leaf.IndexRequest{Body: make([]byte, 16<<20)}); err != nil || time.Since(begin) != 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		timer := time.NewTimer(11 * time.Second)
		<-timer.C
		if c := r.server.Counters(); c.Running != 0 || c.Stalled != 100 {
			t.Errorf("%+v", c)
		}
		allBack(t, r.server)
	})
}

func TestMessagesThatBreakOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{}, ServerOptions{}, Options{})
		p := rawDial(t, r, 1<<16)
		defer p.close()
		p.frame(0, 1, p.open("Ping"), nil)
		p.frame(0, 1, p.open("Ping"), []byte{0, 0})
		p.frame(0, 1, p.open("Ping"), []byte{0, 0, 0, 0, 9, 1})
		p.frame(0, 1, p.open("Ping"), []byte{1, 0, 0, 0, 1, 1})
		p.frame(0, 1, p.open("Ping"), []byte{0, 0, 0, 0, 1, 1})
		p.frame(0, 1, p.open("Ping"), []byte{0, 255, 255, 255, 255, 1})
		p.frame(0, 0, p.open("Bulk"), []byte{0, 0, 0, 0, 0, 0, 0})
		synctest.Wait()
		if c := r.server.Counters(); c.Calls != 7 || c.Running != 1 || c.Panics != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// A load that comes by the byte loses its place, and one with pauses between its pieces does not.
func TestBulkThatTrickles(t *testing.T) {
	for _, c := range []struct {
		name         string
		every        time.Duration
		bytes, times int
		cut          time.Duration // 0: not
	}{
		{"a byte in 50 s", 50 * time.Second, 1, 100, 100 * time.Second},
		{"a byte a second", time.Second, 1, 1000, 61 * time.Second},
		{"1 KiB a second", time.Second, 1 << 10, 300, 0},
		{"64 KiB a minute", 59 * time.Second, 64 << 10, 10, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				r := start(t, &fake{bulk: func(_ context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
					_, err := io.Copy(io.Discard, body)
					ended <- err
					return &leaf.BulkReply{}, err
				}}, ServerOptions{}, Options{})
				begin := time.Now()
				_, err := r.Bulk(t.Context(), &leaf.BulkRequest{}, &dripping{c.every, make([]byte, c.bytes), c.times})
				if c.cut == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if e := <-ended; code(e) != api.BodyTimeout || code(err) != api.BodyTimeout {
					t.Errorf("the node saw %v, the caller %v", e, err)
				}
				if d := time.Since(begin); d < c.cut || d > c.cut+2*c.every {
					t.Errorf("cut off after %v", d)
				}
				allBack(t, r.server)
			})
		})
	}
}

// dripping is a body that gives some bytes from time to time.
type dripping struct {
	every time.Duration
	bytes []byte
	times int
}

func (d *dripping) Read(b []byte) (int, error) {
	if d.times == 0 {
		return 0, io.EOF
	}
	d.times--
	timer := time.NewTimer(d.every)
	<-timer.C
	return copy(b, d.bytes), nil
}

// A write whose caller gave up may have been applied, and says so.
func TestCancelledWritesMayHaveBeenApplied(t *testing.T) {
	arrived := make(chan struct{})
	hang := func(ctx context.Context) error {
		arrived <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	r := start(t, &fake{
		index:  func(ctx context.Context, _ *leaf.IndexRequest) (*leaf.IndexReply, error) { return nil, hang(ctx) },
		search: func(ctx context.Context, _ *leaf.SearchRequest) (*leaf.SearchReply, error) { return nil, hang(ctx) },
	}, ServerOptions{}, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := r.Index(ctx, &leaf.IndexRequest{})
	if e := transport(t, err); !e.MaybeApplied || e.Crashed || !errors.Is(err, context.Canceled) || leaf.RetryWrite(err) || leaf.OutcomeOf(err) != serve.TimedOut {
		t.Errorf("%+v", e)
	}
	if _, err := r.Index(ctx, &leaf.IndexRequest{}); err != context.Canceled {
		t.Errorf("a write that was never sent: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := r.Search(ctx, &leaf.SearchRequest{}); err != context.Canceled {
		t.Errorf("a search: %v", err)
	}
}

// allocated is how many bytes a function allocates.
func allocated(f func()) int64 {
	runtime.GC()
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return int64(b.TotalAlloc - a.TotalAlloc)
}

// Lists that are too long are refused before anything is made of them.
func TestListsAreCountedBeforeTheyAreUnpacked(t *testing.T) {
	const n = 4 << 20
	texts := &pb.Texts{Lengths: make([]uint32, n)}
	terms := &pb.TermList{Fields: texts, Field: make([]uint32, n), Texts: texts}
	counts := make([]uint64, n)
	names := &pb.Texts{Lengths: make([]uint32, leaf.MaxStatsFields+1)}
	values := &pb.Query{Node: &pb.Query_Terms_{Terms: &pb.Query_Terms{Field: "f", Values: texts}}}
	half := &pb.Query{Node: &pb.Query_Terms_{Terms: &pb.Query_Terms{Field: "f", Values: &pb.Texts{Lengths: make([]uint32, defaultValues/2+1)}}}}
	long := &pb.Query{Node: &pb.Query_Terms_{Terms: &pb.Query_Terms{Field: "f", Values: &pb.Texts{Data: make([]byte, 5<<20), Lengths: []uint32{5 << 20}}}}}
	for name, unpack := range map[string]func() error{
		"values": func() error { _, err := unpackSearch(&pb.SearchRequest{Query: values}, query.Limits{}); return err },
		"values of several nodes": func() error {
			both := &pb.Query{Node: &pb.Query_Bool_{Bool: &pb.Query_Bool{Must: []*pb.Query{half, half}}}}
			_, err := unpackSearch(&pb.SearchRequest{Query: both}, query.Limits{})
			return err
		},
		"bytes of values": func() error { _, err := unpackSearch(&pb.SearchRequest{Query: long}, query.Limits{}); return err },
		"filter": func() error {
			_, err := unpackAggregate(&pb.AggregateRequest{Filters: []*pb.Query{values}}, query.Limits{})
			return err
		},
		"statistics": func() error {
			_, err := unpackSearch(&pb.SearchRequest{Stats: &pb.TermStats{Terms: terms, Df: counts}}, query.Limits{})
			return err
		},
		"frequencies": func() error {
			_, err := unpackSearch(&pb.SearchRequest{Stats: &pb.TermStats{Df: counts}}, query.Limits{})
			return err
		},
		"fields of statistics": func() error {
			_, err := unpackAggregate(&pb.AggregateRequest{Stats: &pb.TermStats{
				Fields: names, SumLen: make([]uint64, len(names.Lengths)), FieldDocs: make([]uint64, len(names.Lengths)),
			}}, query.Limits{})
			return err
		},
		"names of fields": func() error {
			_, err := unpackStatsRequest(&pb.StatsRequest{Terms: &pb.TermList{Fields: texts}}, query.Limits{})
			return err
		},
		"terms": func() error { _, err := unpackStatsRequest(&pb.StatsRequest{Terms: terms}, query.Limits{}); return err },
		"ids":   func() error { _, err := unpackExport(&pb.ExportRequest{Ids: texts}); return err },
	} {
		var err error
		// half of the values of two nodes is unpacked before the limit is reached.
		if d := allocated(func() { err = unpack() }); d > 2<<20 {
			t.Errorf("%s: %d bytes were allocated before %v", name, d, err)
		}
		if p, ok := errors.AsType[*api.Problem](err); !ok || !p.HasLimit {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, unpack := range map[string]func() error{
		"hits":         func() error { _, err := unpackSearchReply(&pb.SearchReply{Ids: texts}, 0, 10); return err },
		"neighbours":   func() error { _, err := unpackKNNReply(&pb.KNNReply{Ids: texts}, 10); return err },
		"missing":      func() error { _, err := unpackMissing(texts, 10); return err },
		"field values": func() error { return valuesOf(texts) },
	} {
		var err error
		if d := allocated(func() { err = unpack() }); d > 1<<20 || err == nil {
			t.Errorf("%s: %d bytes were allocated before %v", name, d, err)
		}
	}
}

func valuesOf(texts *pb.Texts) error {
	_, err := unpackAggregateReply(&pb.AggregateReply{Values: []*pb.FieldValues{{Field: "f", Texts: texts}}}, &leaf.AggregateRequest{Values: []string{"f"}}, Options{}.Agg)
	return err
}

// What protoweight says of a message is no less than what decoding it takes at any time (in all, with lists that have grown, at most twice that), and a message of countless parts is refused before that.
func TestMessagesAreWeighed(t *testing.T) {
	const n = 1 << 18
	numbers := make([]uint32, n)
	big := make([]uint64, n)
	for name, m := range map[string]proto.Message{
		"zero lengths":    &pb.HasRequest{Ids: &pb.Texts{Lengths: numbers}},
		"statistics":      &pb.SearchRequest{Stats: &pb.TermStats{SumLen: big, FieldDocs: big, Df: big}},
		"empty filters":   &pb.SearchRequest{Filters: repeat(n/4, func() *pb.Query { return &pb.Query{} })},
		"filters of all":  &pb.SearchRequest{Filters: repeat(n/4, func() *pb.Query { return &pb.Query{Node: &pb.Query_All_{All: &pb.Query_All{}}} })},
		"sort keys":       &pb.SearchRequest{Sort: repeat(n/4, func() *pb.SortKey { return &pb.SortKey{} })},
		"sort values":     &pb.SearchRequest{After: &pb.After{Values: repeat(n/4, func() *pb.SortValue { return &pb.SortValue{} })}},
		"empty names":     &pb.SearchRequest{DefaultFields: &pb.Fields{Names: make([]string, n/2)}},
		"documents":       &pb.SyncRequest{Ids: &pb.Texts{Lengths: numbers}, Bodies: &pb.Texts{Lengths: numbers}},
		"shares":          &pb.FetchRequest{View: &pb.View{Owned: &pb.Shares{Shards: numbers, Vnodes: numbers, Ordinals: numbers}}},
		"shown fields":    &pb.SearchRequest{Show: &pb.Show{Fields: &pb.Fields{Names: make([]string, n/2)}, Highlight: &pb.Highlight{Fields: make([]string, n/2)}}},
		"vector":          &pb.KNNRequest{Vector: &pb.KNNRequest_Dense{Dense: &pb.DenseVector{Values: make([]float32, n)}}},
		"a long document": &pb.IndexRequest{Body: make([]byte, 4*n)},
		"nothing":         &pb.PingRequest{},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		weight := protoweight.Of(b, m.ProtoReflect().Descriptor(), maxNesting, 1<<40)
		back := m.ProtoReflect().New().Interface()
		took := allocated(func() { err = decodeOptions.Unmarshal(b, back) })
		if err != nil || took > int64(len(b))+2*weight+4<<10 {
			t.Errorf("%s: decoding %d bytes took %d, the weight is %d: %v", name, len(b), took, weight, err)
		}
		if name == "a long document" && weight > 1<<10 {
			t.Errorf("a document weighs %d", weight)
		}
	}
	r := start(t, &fake{}, ServerOptions{}, Options{})
	b, err := proto.Marshal(&pb.SearchRequest{Query: &pb.Query{Node: &pb.Query_Terms_{Terms: &pb.Query_Terms{Field: "f", Values: &pb.Texts{Lengths: make([]uint32, 15<<20)}}}}})
	if err != nil {
		t.Fatal(err)
	}
	var search pb.SearchRequest
	if err := decodeOptions.Unmarshal(b, &search); err != nil {
		t.Fatal(err)
	}
	var reply pb.SearchReply
	took := allocated(func() {
		err = r.Client.unary(t.Context(), method{name: "Search"}, &search, &reply)
	})
	// Both sides have the message in pieces and whole.
	if code(err) != api.BodyTooLarge || took > 100<<20 {
		t.Errorf("%d MiB were allocated before %v", took>>20, err)
	}
}

func repeat[T any](n int, make func() T) []T {
	var list []T
	for range n {
		list = append(list, make())
	}
	return list
}

// Tied requests: when one of two queued calls begins, the other leaves the queue on its machine without having run.
func TestTiedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type node struct {
			*rig
			gate    chan struct{} // gives places
			waiting atomic.Int32
			ran     atomic.Int32
			left    atomic.Pointer[time.Time]
		}
		var nodes [2]*node
		for i := range nodes {
			n := &node{gate: make(chan struct{})}
			n.rig = start(t, &fake{search: func(ctx context.Context, _ *leaf.SearchRequest) (*leaf.SearchReply, error) {
				n.waiting.Add(1)
				select {
				case <-n.gate:
					n.waiting.Add(-1)
				case <-ctx.Done():
					n.waiting.Add(-1)
					now := time.Now()
					n.left.Store(&now)
					return nil, context.Cause(ctx)
				}
				serve.Begun(ctx)
				n.ran.Add(1)
				timer := time.NewTimer(time.Second)
				<-timer.C
				return &leaf.SearchReply{Docs: uint64(i)}, nil
			}}, ServerOptions{}, Options{})
			nodes[i] = n
		}
		for round, first := range []int{1, 0} {
			var report hedge.Report
			done := make(chan error, 1)
			go func() {
				r, err := hedge.Hedge(t.Context(), 2, hedge.Options{Tied: true, Report: &report}, func(ctx context.Context, i int) (*leaf.SearchReply, error) {
					return nodes[i].Search(ctx, &leaf.SearchRequest{})
				})
				if err == nil && r.Docs != uint64(first) {
					err = fmt.Errorf("node %d answered", r.Docs)
				}
				done <- err
			}()
			synctest.Wait()
			if a, b := nodes[0].waiting.Load(), nodes[1].waiting.Load(); a != 1 || b != 1 {
				t.Fatalf("%d and %d calls wait", a, b)
			}
			now := time.Now()
			nodes[first].gate <- struct{}{}
			synctest.Wait()
			other := nodes[1-first]
			if n := other.waiting.Load(); n != 0 {
				t.Errorf("%d calls wait still", n)
			}
			if at := other.left.Load(); at == nil || !at.Equal(now) {
				t.Errorf("the call left at %v", at)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if a, b := nodes[1].ran.Load(), nodes[0].ran.Load(); a != 1 || b != int32(round) {
				t.Errorf("the nodes ran %d and %d calls", b, a)
			}
		}
		for _, n := range nodes {
			if c := n.server.Counters(); c.Running != 0 {
				t.Errorf("%+v", c)
			}
			allBack(t, n.server)
		}
	})
}

// Those who watch the health of the server or ask for its description and take nothing of it are cut off too.
func TestOtherServicesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{}, ServerOptions{}, Options{})
		p := rawDial(t, r, 0)
		id := p.openAt("/grpc.health.v1.Health/Watch")
		p.frame(0, 1, id, []byte{0, 0, 0, 0, 0})
		synctest.Wait()
		timer := time.NewTimer(time.Second)
		<-timer.C
		p.frame(3, 0, id, []byte{0, 0, 0, 8})
		synctest.Wait()
		allBack(t, r.server)
		if n := r.server.others.Load(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
		p.close()
	})
}

// FuzzWeigh: whatever can be decoded has no more parts than it was weighed for.
func FuzzWeigh(f *testing.F) {
	for _, m := range []proto.Message{
		&pb.SearchRequest{Query: &pb.Query{Node: &pb.Query_Terms_{Terms: &pb.Query_Terms{Field: "f", Values: packTexts([]string{"a", "bc"})}}}},
		&pb.SearchRequest{Filters: []*pb.Query{{}, {}}, Sort: []*pb.SortKey{{}}, Stats: &pb.TermStats{Df: []uint64{1, 1 << 40}}},
		&pb.SearchRequest{DefaultFields: &pb.Fields{Names: []string{"a", ""}}, After: &pb.After{Values: []*pb.SortValue{{Number: 1}}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []proto.Message{&pb.SearchRequest{}, &pb.FetchRequest{}, &pb.SyncRequest{}} {
			d := m.ProtoReflect().Descriptor()
			weight := protoweight.Of(b, d, maxNesting, 1<<40)
			if decodeOptions.Unmarshal(b, m) != nil {
				continue
			}
			if most := parts(m.ProtoReflect()); weight < most {
				t.Errorf("%s weighs %d, and has parts for %d", d.Name(), weight, most)
			}
			if few := protoweight.Of(b, d, maxNesting, weight-1); few < weight-1 {
				t.Errorf("weighing %s stopped at %d, below %d", d.Name(), few, weight-1)
			}
		}
	})
}

// parts is the weight of what a message has become.
func parts(m protoreflect.Message) int64 {
	sum := int64(protoweight.Message)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				sum += parts(v.List().Get(i).Message())
			}
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			sum += protoweight.Text * int64(v.List().Len())
		case f.IsList():
			sum += protoweight.Number * int64(v.List().Len())
		case f.Message() != nil:
			sum += parts(v.Message())
		}
		return true
	})
	return sum
}
