package relay

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

const documents = "/summa.IndexService/IndexDocuments"

// TestWhoIsSilentTheLongestGivesItsPlaceUp has the rule by itself: not before the silence, not while the broker is at work or the client sends.
func TestWhoIsSilentTheLongestGivesItsPlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(3, 10*time.Second)
		ended := map[string]error{}
		enter := func(name string) *place {
			one, err := p.enter(func(cause error) { ended[name] = cause })
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return one
		}
		pass := func(d time.Duration) { <-time.After(d) }
		first := enter("first")
		pass(time.Second)
		working := enter("working")
		working.works()
		pass(time.Second)
		enter("third")
		pass(7 * time.Second)
		if _, err := p.enter(nil); err != errCalls || len(ended) > 0 {
			t.Fatalf("before anybody was silent for long: %v, %v", err, ended)
		}
		pass(time.Second)
		enter("fourth")
		if len(ended) != 1 || ended["first"] != errSilent {
			t.Fatalf("%v", ended)
		}
		first.leave() // gives nothing that it has not
		if len(p.held) != 3 {
			t.Errorf("%d places are held", len(p.held))
		}
		pass(2 * time.Second)
		fifth := enter("fifth")
		if len(ended) != 2 || ended["third"] != errSilent {
			t.Fatalf("%v", ended)
		}
		fifth.came.Store(20 * worthOfTime) // who sends fast enough is not silent
		pass(15 * time.Second)
		sixth := enter("sixth")
		if len(ended) != 3 || ended["fourth"] != errSilent {
			t.Fatalf("%v", ended)
		}
		sixth.waited(time.Minute) // for the broker
		pass(14 * time.Second)
		if _, err := p.enter(nil); err != errCalls {
			t.Fatalf("%v, %v", err, ended)
		}
		pass(2 * time.Second)
		enter("seventh")
		if len(ended) != 4 || ended["fifth"] != errSilent {
			t.Fatalf("%v", ended)
		}
	})
}

// quiet begins calls on one connection that say nothing.
func quiet(t *testing.T, conn *grpc.ClientConn, method string, n int) []grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	out := make([]grpc.ClientStream, n)
	for i := range out {
		var err error
		if out[i], err = conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func connect(t *testing.T, at string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestSilentStreamsKeepNobodyOut has as many streams as there are places, and as many calls without a message on one connection as that runs at
// once, and says nothing on them. Searches are answered all the while; another stream is refused at first, and takes the place of a silent one
// once that has been silent for long, which is told so.
func TestSilentStreamsKeepNobodyOut(t *testing.T) {
	at := node(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, "", []byte("yes")) })
	const streams = 8
	b := serving(t, at, grpcraw.Options{}, func(c *Config) {
		c.Limits.Streams, c.Limits.Calls, c.Limits.Silence, c.Limits.Stall = streams, 4, 500*time.Millisecond, time.Hour
		c.Stream = func(c *Call) error {
			for {
				switch err := c.Next(); err {
				case nil:
				case io.EOF:
					return c.Reply(&summapb.IndexDocumentsResponse{IndexedCount: 1})
				default:
					return err
				}
			}
		}
	})
	client := dial(t, b.addr)
	one := func(method string) error {
		_, _, err := ask(t, client, &grpcraw.Call{Method: method})
		return err
	}
	began := time.Now()
	silent := quiet(t, connect(t, b.addr), documents, streams)
	soon(t, "all places are taken", func() bool {
		b.server.streams.mu.Lock()
		defer b.server.streams.mu.Unlock()
		return len(b.server.streams.held) == streams
	})
	for range 20 {
		if err := one(search); err != nil {
			t.Fatalf("a search beside silent streams: %v", err)
		}
	}
	refused := one(documents)
	if early := time.Since(began) < 500*time.Millisecond; early {
		want(t, refused, codes.ResourceExhausted, "too many calls are under way; retry later")
	}
	soon(t, "a stream that speaks finds a place", func() bool { return one(documents) == nil })
	// The one that was silent the longest is told; the others are as they were.
	told := make(chan error, streams)
	for _, st := range silent {
		go func() { told <- st.RecvMsg(&summapb.IndexDocumentsResponse{}) }()
	}
	st := status.Convert(errSilent)
	want(t, <-told, st.Code(), st.Message())
	if ended := len(told) + 1; ended == streams {
		t.Errorf("%d of the silent streams lost their place", ended)
	}

	// Calls of one message that does not come.
	quiet(t, connect(t, b.addr), search, 4)
	soon(t, "a call is answered beside those whose message does not come", func() bool { return one(search) == nil })
}

// TestSilentStreamsLeaveTheirConnectionUsable has more silent streams on a connection than calls run there at once.
func TestSilentStreamsLeaveTheirConnectionUsable(t *testing.T) {
	at := node(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, "", nil) })
	b := serving(t, at, grpcraw.Options{}, func(c *Config) {
		c.Stream = func(c *Call) error { return c.Next() }
	})
	conn := connect(t, b.addr)
	quiet(t, conn, documents, grpcmsg.PerConn+10)
	quiet(t, conn, search, 20)
	for range 10 {
		if err := conn.Invoke(t.Context(), search, &summapb.SearchRequest{IndexName: "x"}, &summapb.SearchResponse{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSilentStreamsGiveTheirMemoryUp has streams hold all the memory and then say nothing. A call that needs some gets it once one of them has been
// silent for long.
func TestSilentStreamsGiveTheirMemoryUp(t *testing.T) {
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		answer(w, "", nil)
	})
	gate := admit.New("test", 4<<20, 100, 20*time.Millisecond)
	holding := make(chan struct{}, 4)
	b := serving(t, at, grpcraw.Options{}, func(c *Config) {
		c.Limits.Silence = 300 * time.Millisecond
		c.Charge = func(ctx context.Context, _, more int64) (int64, func(), error) {
			place, err := gate.Enter(ctx, more)
			if err != nil {
				return 0, nil, status.Error(codes.ResourceExhausted, "no memory")
			}
			return more, place.Release, nil
		}
		c.Stream = func(c *Call) error {
			if err := c.Need(1<<20 + grpcmsg.FreeBytes); err != nil {
				return err
			}
			holding <- struct{}{}
			return c.Next()
		}
	})
	silent := quiet(t, connect(t, b.addr), documents, 4)
	for range silent {
		<-holding
	}
	client := dial(t, b.addr)
	soon(t, "a call finds memory", func() bool {
		_, _, err := ask(t, client, &grpcraw.Call{Message: framed(false, named("x", padded(512<<10)))})
		return err == nil
	})
	ended := 0
	for _, st := range silent {
		if err := st.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := st.RecvMsg(&summapb.IndexDocumentsResponse{}); status.Code(err) == codes.ResourceExhausted {
			ended++
		}
	}
	if ended == 0 || ended == len(silent) {
		t.Errorf("%d streams were ended", ended)
	}
	soon(t, "all memory is given back", func() bool { return gate.Used() == 0 })
}
