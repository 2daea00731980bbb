package coordinator

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// standIn is a member that keeps maps. Every other call is told of, waits until it is let go, and fails.
type standIn struct {
	mu    sync.Mutex
	reply leaf.PlaceReply

	called chan string   // where not nil: told of each call
	ends   chan struct{} // where not nil: calls end when it is closed, or with their context
	values []leaf.FieldValues
	ids    []string // where not nil: what it holds, told in place of the failure
}

// errStandIn is what its calls fail with: a refusal that is not tried again.
var errStandIn = api.NewProblem(api.InvalidParameter, "it is no member")

func answerOf[R any](ctx context.Context, s *standIn, call string) (*R, error) {
	if err := s.wait(ctx, call); err != nil {
		return nil, err
	}
	return nil, errStandIn
}

func (s *standIn) wait(ctx context.Context, call string) error {
	if s.called != nil {
		select {
		case s.called <- call:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if s.ends != nil {
		select {
		case <-s.ends:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *standIn) Ping(context.Context) (*leaf.PingReply, error) { return &leaf.PingReply{}, nil }

func (s *standIn) Place(_ context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = leaf.PlaceReply{Node: "node", Epoch: req.Epoch, Map: req.Map}
	out := s.reply
	return &out, nil
}

func (s *standIn) Placed(context.Context) (*leaf.PlaceReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.reply
	out.Node = "node"
	return &out, nil
}

func (s *standIn) Info(ctx context.Context, _ *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return answerOf[leaf.InfoReply](ctx, s, "Info")
}

func (s *standIn) Docs(ctx context.Context, _ *leaf.DocsRequest) (*leaf.DocsReply, error) {
	if s.ids != nil {
		return &leaf.DocsReply{Docs: uint64(len(s.ids))}, s.wait(ctx, "Docs")
	}
	return answerOf[leaf.DocsReply](ctx, s, "Docs")
}

func (s *standIn) Search(ctx context.Context, _ *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return answerOf[leaf.SearchReply](ctx, s, "Search")
}

func (s *standIn) Stats(ctx context.Context, _ *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return answerOf[leaf.StatsReply](ctx, s, "Stats")
}

func (s *standIn) Aggregate(ctx context.Context, _ *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	if s.values != nil {
		return &leaf.AggregateReply{Docs: 10, Matched: 10, Values: s.values}, nil
	}
	return answerOf[leaf.AggregateReply](ctx, s, "Aggregate")
}

func (s *standIn) KNN(ctx context.Context, _ *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return answerOf[leaf.KNNReply](ctx, s, "KNN")
}

func (s *standIn) IDs(ctx context.Context, _ *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	if s.ids != nil {
		return &leaf.IDsReply{}, errors.Join(s.wait(ctx, "IDs"), page(s.ids))
	}
	return answerOf[leaf.IDsReply](ctx, s, "IDs")
}

func (s *standIn) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	if s.ids != nil {
		return &leaf.ExportReply{}, errors.Join(s.wait(ctx, "Export"), each(leaf.ExportedDoc{ID: req.IDs[0], Source: []byte("{}")}))
	}
	return answerOf[leaf.ExportReply](ctx, s, "Export")
}

func (s *standIn) Has(ctx context.Context, _ *leaf.HasRequest) (*leaf.HasReply, error) {
	return answerOf[leaf.HasReply](ctx, s, "Has")
}

func (s *standIn) DeleteMany(ctx context.Context, _ *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return answerOf[leaf.DeleteReply](ctx, s, "DeleteMany")
}

func (s *standIn) Index(ctx context.Context, _ *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return answerOf[leaf.IndexReply](ctx, s, "Index")
}

func (s *standIn) Bulk(ctx context.Context, _ *leaf.BulkRequest, _ io.Reader) (*leaf.BulkReply, error) {
	return answerOf[leaf.BulkReply](ctx, s, "Bulk")
}

func (s *standIn) Fetch(ctx context.Context, _ *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return answerOf[leaf.FetchReply](ctx, s, "Fetch")
}

func (s *standIn) Indexes(ctx context.Context, _ *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return answerOf[leaf.IndexesReply](ctx, s, "Indexes")
}

func (s *standIn) PutIndex(ctx context.Context, _ *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return answerOf[leaf.PutIndexReply](ctx, s, "PutIndex")
}

func (s *standIn) DropIndex(ctx context.Context, _ *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return answerOf[leaf.DropIndexReply](ctx, s, "DropIndex")
}

func (s *standIn) Sums(ctx context.Context, _ *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return answerOf[leaf.SumsReply](ctx, s, "Sums")
}

func (s *standIn) Digest(ctx context.Context, _ *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return answerOf[leaf.DigestReply](ctx, s, "Digest")
}

func (s *standIn) Sync(ctx context.Context, _ *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return answerOf[leaf.SyncReply](ctx, s, "Sync")
}

func (s *standIn) Close() error { return nil }

// over starts a coordinator over one member that knows the map when it returns. It is closed with end.
func over(t *testing.T, s *standIn, l Limits) (c *Coordinator, end func()) {
	t.Helper()
	m, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"member"}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err = New(Config{Shards: m, SlowSearch: -1, RepairEvery: -1, Limits: l, Dial: func(string) (leaf.Member, error) { return s, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// leafMethods are the calls of a leaf that go by an epoch, and whether they write.
var leafMethods = []struct {
	name   string
	writes bool
	call   func(ctx context.Context, l leaf.Member, epoch uint64) error
}{
	{"docs", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Docs(ctx, &leaf.DocsRequest{View: leaf.View{Epoch: epoch}})
		return err
	}},
	{"search", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Search(ctx, &leaf.SearchRequest{View: leaf.View{Epoch: epoch}, Limit: 1})
		return err
	}},
	{"stats", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Stats(ctx, &leaf.StatsRequest{View: leaf.View{Epoch: epoch}})
		return err
	}},
	{"agg", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Aggregate(ctx, &leaf.AggregateRequest{View: leaf.View{Epoch: epoch}})
		return err
	}},
	{"knn", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.KNN(ctx, &leaf.KNNRequest{View: leaf.View{Epoch: epoch}})
		return err
	}},
	{"ids", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.IDs(ctx, &leaf.IDsRequest{View: leaf.View{Epoch: epoch}}, func([]string) error { return nil })
		return err
	}},
	{"export", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Export(ctx, &leaf.ExportRequest{View: leaf.View{Epoch: epoch}, IDs: []string{"a"}}, func(leaf.ExportedDoc) error { return nil })
		return err
	}},
	{"has", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Has(ctx, &leaf.HasRequest{View: leaf.View{Epoch: epoch}, IDs: []string{"a"}})
		return err
	}},
	{"fetch", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Fetch(ctx, &leaf.FetchRequest{View: leaf.View{Epoch: epoch}, IDs: []string{"a"}})
		return err
	}},
	{"sums", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Sums(ctx, &leaf.SumsRequest{View: leaf.View{Epoch: epoch}, IDs: []string{"a"}})
		return err
	}},
	{"digest", false, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Digest(ctx, &leaf.DigestRequest{View: leaf.View{Epoch: epoch}})
		return err
	}},
	{"put_index", true, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.PutIndex(ctx, &leaf.PutIndexRequest{Index: "x", Epoch: epoch})
		return err
	}},
	{"drop_index", true, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.DropIndex(ctx, &leaf.DropIndexRequest{Index: "x", Epoch: epoch})
		return err
	}},
	{"delete_many", true, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.DeleteMany(ctx, &leaf.DeleteRequest{View: leaf.View{Epoch: epoch}, IDs: []string{"a"}})
		return err
	}},
	{"index", true, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Index(ctx, &leaf.IndexRequest{View: leaf.View{Epoch: epoch}, Body: []byte(`{"id":"a"}`)})
		return err
	}},
	{"bulk", true, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Bulk(ctx, &leaf.BulkRequest{View: leaf.View{Epoch: epoch}}, strings.NewReader(`{"id":"a"}`+"\n"))
		return err
	}},
	{"sync", true, func(ctx context.Context, l leaf.Member, epoch uint64) error {
		_, err := l.Sync(ctx, &leaf.SyncRequest{View: leaf.View{Epoch: epoch}, Items: []leaf.SyncItem{{ID: "a", Body: []byte(`{"id":"a"}`)}}})
		return err
	}},
}

// TestTheCoordinatorAboveIsToldThatItsMapIsTakenBehindTheWritesOfOlderOnes gives a map to a coordinator that stands as a shard while each of
// its calls is under way: of the calls that write it waits for the end, of the others it does not, and no call of the older map begins any more.
func TestTheCoordinatorAboveIsToldThatItsMapIsTakenBehindTheWritesOfOlderOnes(t *testing.T) {
	for _, m := range leafMethods {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &standIn{called: make(chan string), ends: make(chan struct{})}
				c, end := over(t, s, Limits{})
				defer end()
				l := c.Leaf()
				place := func(epoch uint64) error {
					_, err := l.Place(t.Context(), &leaf.PlaceRequest{Epoch: epoch, Map: []byte{byte(epoch)}})
					return err
				}
				if err := place(1); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- m.call(t.Context(), l, 1) }()
				<-s.called // it is with the member
				placed := make(chan error, 1)
				go func() { placed <- place(2) }()
				synctest.Wait()
				select {
				case err := <-placed:
					if err != nil || m.writes {
						t.Errorf("the map was taken while the call was under way: %v", err)
					}
					placed <- err
				default:
					if !m.writes {
						t.Error("the map waits for a call that does not write")
					}
				}
				if err := m.call(t.Context(), l, 1); !isStale(err) {
					t.Errorf("another call of the older map: %v", err)
				}
				// Later calls of the member end as well.
				go func() {
					for range s.called {
					}
				}()
				close(s.ends)
				if err := <-ended; err == nil || isStale(err) {
					t.Errorf("the call ended with %v", err)
				}
				if err := <-placed; err != nil {
					t.Errorf("the map: %v", err)
				}
				close(s.called)
				if r, err := l.Placed(t.Context()); err != nil || r.Epoch != 2 {
					t.Errorf("placed: %v %v", r, err)
				}
			})
		})
	}
}

// TestWhatIsReadBehindAMapFromAboveIsNotTold: documents may be deleted as soon as a later map is taken, and a call of the older one that has not
// read by then would answer as if they were not there.
func TestWhatIsReadBehindAMapFromAboveIsNotTold(t *testing.T) {
	told := 0
	for name, call := range map[string]func(l leaf.Member) error{
		"docs": func(l leaf.Member) error {
			_, err := l.Docs(context.Background(), &leaf.DocsRequest{View: leaf.View{Epoch: 1}})
			if err == nil {
				told++
			}
			return err
		},
		"ids": func(l leaf.Member) error {
			_, err := l.IDs(context.Background(), &leaf.IDsRequest{View: leaf.View{Epoch: 1}}, func([]string) error {
				told++
				return nil
			})
			return err
		},
		"export": func(l leaf.Member) error {
			_, err := l.Export(context.Background(), &leaf.ExportRequest{View: leaf.View{Epoch: 1}, IDs: []string{"a"}}, func(leaf.ExportedDoc) error {
				told++
				return nil
			})
			return err
		},
	} {
		for _, later := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				told = 0
				s := &standIn{called: make(chan string), ends: make(chan struct{}), ids: []string{"a"}}
				c, end := over(t, s, Limits{})
				defer end()
				l := c.Leaf()
				place := func(epoch uint64) {
					t.Helper()
					if _, err := l.Place(t.Context(), &leaf.PlaceRequest{Epoch: epoch, Map: []byte{byte(epoch)}}); err != nil {
						t.Fatal(err)
					}
				}
				place(1)
				ended := make(chan error, 1)
				go func() { ended <- call(l) }()
				<-s.called // it is with the member
				if later {
					place(2)
				}
				close(s.ends)
				err := <-ended
				if later && (!isStale(err) || told > 0) || !later && (err != nil || told != 1) {
					t.Errorf("%s, with a later map %t: told %d, %v", name, later, told, err)
				}
			})
		}
	}
}

// TestValuesForTheCoordinatorAboveAreCharged: what a coordinator that stands as a shard has of its own shards is charged as it arrives, and
// refused with the code of all memory of requests.
func TestValuesForTheCoordinatorAboveAreCharged(t *testing.T) {
	const (
		room = 32 << 20 // the least that a coordinator has
		most = room + 1<<20 - 16
	)
	for _, tt := range []struct {
		name   string
		length int // of the only text
		code   api.Code
	}{
		{"as much as there is", most, ""},
		{"a byte more", most + 1, api.RequestMemoryFull},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &standIn{values: []leaf.FieldValues{{Field: "n", Type: schema.Text, Texts: []string{strings.Repeat("x", tt.length)}}}}
			c, end := over(t, s, Limits{RequestBytes: room})
			defer end()
			reply, err := c.Leaf().Aggregate(t.Context(), &leaf.AggregateRequest{Values: []string{"n"}})
			p, _ := errors.AsType[*api.Problem](err)
			switch {
			case tt.code == "" && (err != nil || len(reply.Values[0].Texts) != 1):
				t.Errorf("%v", err)
			case tt.code != "" && (p == nil || p.Code != tt.code || p.RetryAfterMS == 0):
				t.Errorf("%v, want %s", err, tt.code)
			}
			if used := c.front.Memory().Used(); used != 0 {
				t.Errorf("%d bytes stay charged", used)
			}
		})
	}
}
