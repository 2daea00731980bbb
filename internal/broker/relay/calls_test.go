package relay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
	"github.com/weft-search/weft/internal/wire/h2"
)

// TestStatusPasses has code, text, details, headers and trailers of a node.
func TestStatusPasses(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "not näw: 100 %").WithDetails(durationpb.New(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	details, err := proto.Marshal(st.Proto())
	if err != nil {
		t.Fatal(err)
	}
	// Another order of the same fields, which an encoder would not make.
	details = append(append([]byte{}, details[2:]...), details[:2]...)
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		h.Set("X-Head", "head")
		h.Set("X-Raw-Bin", encodeBinary("\x00\xff"))
		h.Set("Connection", "close")
		h.Set("Date", "now")
		h.Set("Server", "node")
		if r.Header.Get("Grpc-Encoding") == "gzip" {
			h.Set("Trailer", "grpc-status, x-tail")
			w.Write(grpcmsg.Header(false, 1))
			w.Write([]byte("r"))
		} else {
			h.Set("Trailer", "grpc-status, grpc-message, grpc-status-details-bin, x-tail")
			w.WriteHeader(200)
			h.Set("grpc-message", "not n%C3%A4w: 100 %25")
			h.Set("grpc-status-details-bin", encodeBinary(string(details)))
		}
		h.Set("X-Tail", "tail")
		if r.Header.Get("Grpc-Encoding") == "gzip" {
			h.Set("grpc-status", "0")
		} else {
			h.Set("grpc-status", "9")
		}
	})
	b := serving(t, at, grpcraw.Options{})
	client := dial(t, b.addr)
	for _, encoding := range []string{"", "gzip"} {
		r, data, err := ask(t, client, &grpcraw.Call{Encoding: encoding, Message: framed(encoding != "", compress(t, encoding, named("x", nil)))})
		if r == nil {
			t.Fatal(err)
		}
		if want := (metadata.MD{"x-head": {"head"}, "x-raw-bin": {"\x00\xff"}}); !reflect.DeepEqual(r.Head.Meta, want) {
			t.Errorf("headers %v", r.Head.Meta)
		}
		if want := (metadata.MD{"x-tail": {"tail"}}); !reflect.DeepEqual(r.End.Meta, want) {
			t.Errorf("trailers %v", r.End.Meta)
		}
		if encoding == "gzip" {
			if err != nil || string(data) != "r" {
				t.Errorf("%q, %v", data, err)
			}
			continue
		}
		want(t, err, codes.FailedPrecondition, "not näw: 100 %")
		if r.End.Details != string(details) {
			t.Errorf("details %x, want %x", r.End.Details, details)
		}
		if o := <-b.done; o.Code != codes.FailedPrecondition || o.Transport {
			t.Errorf("outcome %v", o)
		}
	}
}

func TestEveryCodePasses(t *testing.T) {
	var next codes.Code
	at := node(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, next, fmt.Sprintf("node says %d", next)) })
	client := dial(t, serving(t, at, grpcraw.Options{}).addr)
	for next = 1; next <= 16; next++ {
		_, _, err := ask(t, client, &grpcraw.Call{})
		want(t, err, next, fmt.Sprintf("node says %d", next))
	}
}

// TestOnlyTheDeadlineGoesOn looks at the headers of a node's request.
func TestOnlyTheDeadlineGoesOn(t *testing.T) {
	var got http.Header
	var mu sync.Mutex
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = r.Header
		mu.Unlock()
		answer(w, "", nil)
	})
	b := serving(t, at, grpcraw.Options{})
	client := dial(t, b.addr)
	for _, c := range []struct {
		timeout time.Duration
		want    string
	}{{0, ""}, {time.Minute, "59950m"}, {30 * time.Second, "29950m"}, {5 * time.Second, "4950m"}} {
		if _, _, err := ask(t, client, &grpcraw.Call{Timeout: c.timeout, Accept: "gzip"}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if got := got.Get("Grpc-Timeout"); got != c.want {
			t.Errorf("%v went on as %q, want %q", c.timeout, got, c.want)
		}
		for name := range got {
			switch name {
			case "Content-Type", "Te", "User-Agent", "Grpc-Timeout", "Grpc-Accept-Encoding":
			default:
				t.Errorf("%s went on", name)
			}
		}
		mu.Unlock()
	}
	c := &Call{deadline: 55 * time.Millisecond}
	if got := c.Timeout(); got != 10*time.Millisecond {
		t.Errorf("of 55 ms a node gets %v", got)
	}
}

// hanging is a node that answers nothing, and tells who came and left.
func hanging(t *testing.T) (at string, came, left chan string) {
	came, left = make(chan string, 100), make(chan string, 100)
	return node(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		came <- r.URL.Path
		<-r.Context().Done()
		left <- r.URL.Path
	}), came, left
}

func TestDeadlines(t *testing.T) {
	at, came, left := hanging(t)
	b := serving(t, at, grpcraw.Options{})
	client := dial(t, b.addr)
	s, err := client.Start(t.Context(), &grpcraw.Call{Method: search, Timeout: 10 * time.Second, Message: framed(false, named("x", nil))})
	if err != nil {
		t.Fatal(err)
	}
	<-came // the first call only makes the connections
	s.Close()
	<-left
	<-b.done
	began := time.Now()
	_, _, err = ask(t, client, &grpcraw.Call{Timeout: time.Second})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a node that does not answer: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	<-left
	if o := <-b.done; o.Code != codes.DeadlineExceeded || o.Transport {
		t.Errorf("outcome %v", o)
	}
}

// TestTimeoutOfTheReference is a node that says in its own way that the time is over.
func TestTimeoutOfTheReference(t *testing.T) {
	at := node(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, codes.Canceled, "Timeout expired") })
	client := dial(t, serving(t, at, grpcraw.Options{}).addr)
	_, _, err := ask(t, client, &grpcraw.Call{Timeout: time.Minute})
	want(t, err, codes.DeadlineExceeded, "Timeout expired")
	_, _, err = ask(t, client, &grpcraw.Call{})
	want(t, err, codes.Canceled, "Timeout expired")
}

// TestLeavingEndsTheCallAtTheNode has clients that go before an answer, by a word and without one.
func TestLeavingEndsTheCallAtTheNode(t *testing.T) {
	at, came, left := hanging(t)
	b := serving(t, at, grpcraw.Options{})
	client := dial(t, b.addr)
	s, err := client.Start(t.Context(), &grpcraw.Call{Method: search, Message: framed(false, named("x", nil))})
	if err != nil {
		t.Fatal(err)
	}
	<-came
	s.Close()
	<-left
	if o := <-b.done; o.Code != codes.Canceled {
		t.Errorf("outcome %v", o)
	}
	other := grpcraw.NewNode(b.addr, grpcraw.Options{})
	s, err = other.Start(t.Context(), &grpcraw.Call{Method: search, Message: framed(false, named("x", nil))})
	if err != nil {
		t.Fatal(err)
	}
	<-came
	other.Close()
	<-left
	s.Close()
	<-b.done
	soon(t, "the calls end", func() bool { _, calls := b.node.Counts(); return calls == 0 })
}

func TestCaps(t *testing.T) {
	var next []byte
	encoding := ""
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		answer(w, encoding, next)
	})
	limits := Limits{SearchDecode: 1000, IndexDecode: 2000, SearchEncode: 3000, IndexEncode: 4000, BackendDecode: 3500, BackendEncode: 1500}
	client := dial(t, serving(t, at, grpcraw.Options{}, func(c *Config) { c.Limits = limits }).addr)
	request := func(n int) mem.BufferSlice { return framed(false, named("x", padded(n-3-4))) }
	for _, c := range []struct {
		method         string
		request, reply int
		code           codes.Code
		text           string
	}{
		{search, 1000, 3000, codes.OK, ""},
		{search, 1001, 0, codes.OutOfRange, "Error, decoded message length too large: found 1001 bytes, the limit is: 1000 bytes"},
		{search, 100, 3001, codes.OutOfRange, "Error, encoded message length too large: found 3001 bytes, the limit is: 3000 bytes"},
		{search, 100, 3501, codes.ResourceExhausted, "Error, decoded message length too large: found 3501 bytes, the limit is: 3500 bytes"},
		{"/summa.IndexService/Commit", 1500, 3500, codes.OK, ""},
		{"/summa.IndexService/Commit", 1501, 0, codes.OutOfRange, "Error, encoded message length too large: found 1501 bytes, the limit is: 1500 bytes"},
		{"/summa.IndexService/Commit", 2001, 0, codes.OutOfRange, "Error, decoded message length too large: found 2001 bytes, the limit is: 2000 bytes"},
	} {
		next = make([]byte, c.reply)
		_, data, err := ask(t, client, &grpcraw.Call{Method: c.method, Message: request(c.request)})
		want(t, err, c.code, c.text)
		if err == nil && len(data) != c.reply {
			t.Errorf("%d bytes came back", len(data))
		}
	}
	// Compressed replies: by their length when they go on, by what is inside when they are taken apart.
	encoding, next = "gzip", make([]byte, 3501)
	_, _, err := ask(t, client, &grpcraw.Call{Accept: "gzip"})
	want(t, err, codes.ResourceExhausted, "Error, decoded message length too large: found 3501 bytes, the limit is: 3500 bytes")
	next = compress(t, "gzip", make([]byte, 3001))
	_, _, err = ask(t, client, &grpcraw.Call{})
	want(t, err, codes.ResourceExhausted, "Error decompressing: size limit, of `3000` bytes, exceeded while decompressing compressed message")
	next = compress(t, "gzip", make([]byte, 3000))
	if _, data, err := ask(t, client, &grpcraw.Call{}); err != nil || len(data) != 3000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestRefusals(t *testing.T) {
	at := node(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, "", nil) })
	open, panics := true, 0
	b := serving(t, at, grpcraw.Options{}, func(c *Config) {
		enter, route := c.Enter, c.Route
		c.Enter = func() bool { return open && enter() }
		c.Panicked = func() { panics++ }
		c.Route = func(c *Call) (Target, error) {
			if c.Index() == "panic" {
				panic("asked for")
			}
			return route(c)
		}
	})
	client := dial(t, b.addr)
	for _, c := range []struct {
		call grpcraw.Call
		code codes.Code
		text string
	}{
		{grpcraw.Call{Message: framed(false, named("absent", nil))}, codes.NotFound, "index 'absent' is not present on any healthy backend"},
		{grpcraw.Call{Message: framed(false, []byte{7})}, codes.Internal, "failed to decode Protobuf message"},
		{grpcraw.Call{Message: framed(true, []byte{7}), Encoding: "zstd"}, codes.Internal, "Error decompressing: the message is damaged"},
		{grpcraw.Call{Message: framed(false, named("panic", nil))}, codes.Internal, "Internal error"},
		{grpcraw.Call{Method: "/summa.SearchService/Other"}, codes.Unimplemented, "unknown method Other for service summa.SearchService"},
	} {
		_, _, err := ask(t, client, &c.call)
		want(t, err, c.code, c.text)
	}
	if panics != 1 {
		t.Errorf("%d panics were told", panics)
	}
	open = false
	_, _, err := ask(t, client, &grpcraw.Call{})
	want(t, err, codes.Unavailable, "Summa broker is shutting down")
}

// TestNodesThatTakeNoCompression get a plain request, and the next one at once.
func TestNodesThatTakeNoCompression(t *testing.T) {
	var asked []string
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Header.Get("Grpc-Encoding"))
		if e := r.Header.Get("Grpc-Encoding"); e != "" {
			w.Header().Set("Grpc-Accept-Encoding", "identity,gzip")
			refuse(w, codes.Unimplemented, "Content is compressed with `"+e+"` which isn't supported")
			return
		}
		answer(w, "", b[5:])
	})
	client := dial(t, serving(t, at, grpcraw.Options{}).addr)
	plain := named("x", padded(500))
	for range 2 {
		_, data, err := ask(t, client, &grpcraw.Call{Encoding: "zstd", Message: framed(true, compress(t, "zstd", plain))})
		if err != nil || !bytes.Equal(data, plain) {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	}
	if got := strings.Join(asked, ","); got != "zstd,," {
		t.Errorf("the node was asked with %q", got)
	}
	// One that it says it takes is its own affair.
	_, _, err := ask(t, client, &grpcraw.Call{Encoding: "gzip", Message: framed(true, compress(t, "gzip", plain))})
	want(t, err, codes.Unimplemented, "Content is compressed with `gzip` which isn't supported")
}

// TestStrangeReplies are not of unary calls.
func TestStrangeReplies(t *testing.T) {
	var next func(w http.ResponseWriter)
	at := node(t, func(w http.ResponseWriter, _ *http.Request) { next(w) })
	client := dial(t, serving(t, at, grpcraw.Options{}).addr)
	for name, c := range map[string]struct {
		serve func(w http.ResponseWriter)
		code  codes.Code
		text  string
	}{
		"none": {func(w http.ResponseWriter) {
			ok(w)
			w.WriteHeader(200)
			w.Header().Set("grpc-status", "0")
		}, codes.Internal, "Missing response message."},
		"cut": {func(w http.ResponseWriter) {
			ok(w)
			w.Write(grpcmsg.Header(false, 10))
			w.Header().Set("grpc-status", "0")
		}, codes.Internal, "Missing response message."},
		"two": {func(w http.ResponseWriter) {
			ok(w)
			w.Write(append(grpcmsg.Header(false, 1), 'x'))
			w.Write(append(grpcmsg.Header(false, 1), 'x'))
			w.Header().Set("grpc-status", "0")
		}, codes.Internal, "the node answered with more than one message"},
		"flag": {func(w http.ResponseWriter) {
			ok(w)
			w.Write([]byte{2, 0, 0, 0, 0})
			w.Header().Set("grpc-status", "0")
		}, codes.Internal, "protocol error: received message with invalid compression flag: 2 (valid flags are 0 and 1)"},
		"damaged": {func(w http.ResponseWriter) { answer(w, "zstd", []byte("nonsense")) }, codes.Internal, "Error decompressing: the message is damaged"},
		"unknown": {func(w http.ResponseWriter) { answer(w, "br", []byte("nonsense")) }, codes.Unimplemented, "Content is compressed with `br` which isn't supported"},
		"no status": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Write(append(grpcmsg.Header(false, 1), 'x'))
		}, codes.Internal, "the node ended the call without a status"},
		"HTTP": {func(w http.ResponseWriter) { w.WriteHeader(503) }, codes.Unavailable, "the node answered with an HTTP status that is not 200"},
		"page": {func(w http.ResponseWriter) { w.Write([]byte("<html>")) }, codes.Unknown, "the node's answer is not one of gRPC"},
		"code": {func(w http.ResponseWriter) {
			ok(w)
			w.Header().Set("grpc-status", "x")
		}, codes.Internal, "the node ended the call with a status that is not a number"},
	} {
		next = c.serve
		_, data, err := ask(t, client, &grpcraw.Call{})
		if st := status.Convert(err); st.Code() != c.code || st.Message() != c.text {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// TestNodesThatVanish are not there, or go within a reply.
func TestNodesThatVanish(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lis.Close()
	b := serving(t, lis.Addr().String(), grpcraw.Options{})
	client := dial(t, b.addr)
	for range 3 {
		_, _, err := ask(t, client, &grpcraw.Call{})
		want(t, err, codes.Unavailable, "the node cannot be reached")
		if o := <-b.done; o.Code != codes.Unavailable || !o.Transport {
			t.Errorf("outcome %v", o)
		}
	}
	for _, sent := range []int{0, 10, 100_000} {
		at := node(t, func(w http.ResponseWriter, r *http.Request) {
			if sent > 0 {
				ok(w)
				w.Write(grpcmsg.Header(false, 1<<20))
				w.Write(make([]byte, sent))
				w.(http.Flusher).Flush()
			}
			panic(http.ErrAbortHandler)
		})
		b := serving(t, at, grpcraw.Options{})
		_, _, err := ask(t, dial(t, b.addr), &grpcraw.Call{})
		if err == nil {
			t.Errorf("after %d bytes: no error", sent)
		}
		if o := <-b.done; o.Code == codes.OK {
			t.Errorf("after %d bytes: outcome %v", sent, o)
		}
	}
}

// TestNodesThatTrickle send a reply in the smallest pieces, also the five bytes in front of it.
func TestNodesThatTrickle(t *testing.T) {
	message := response(t, 3000)
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		encoding := r.Header.Get("Grpc-Accept-Encoding")
		ok(w)
		if encoding != "" {
			w.Header().Set("Grpc-Encoding", encoding)
		}
		for _, b := range append(grpcmsg.Header(encoding != "", len(message)), message...) {
			w.Write([]byte{b})
			w.(http.Flusher).Flush()
		}
		w.Header().Set("grpc-status", "0")
	})
	client := dial(t, serving(t, at, grpcraw.Options{}).addr)
	for _, accept := range []string{"", "zstd"} {
		if _, data, err := ask(t, client, &grpcraw.Call{Accept: accept}); err != nil || !bytes.Equal(data, message) {
			t.Errorf("%q: %d bytes, %v", accept, len(data), err)
		}
	}
}

// TestClientsThatDoNotRead are ended, and what they asked for is let go.
func TestClientsThatDoNotRead(t *testing.T) {
	at := node(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, "", make([]byte, 32<<20)) })
	cuts := make(chan struct{}, 10)
	b := serving(t, at, grpcraw.Options{}, func(c *Config) {
		c.Limits.Stall = 300 * time.Millisecond
		c.Cut = func() { cuts <- struct{}{} }
	})
	client := dial(t, b.addr)
	var held []*grpcraw.Stream
	for range 10 {
		s, err := client.Start(t.Context(), &grpcraw.Call{Method: search, Message: framed(false, named("x", nil))})
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
	}
	<-cuts
	soon(t, "the calls end", func() bool { _, calls := b.node.Counts(); return calls == 0 })
	for _, s := range held {
		s.Close()
	}
	if most := b.most.Load(); most > 10*2*replyWindow {
		t.Errorf("%d bytes were held", most)
	}
}

// TestClientsThatVanishWithinARequest leave no memory behind.
func TestClientsThatVanishWithinARequest(t *testing.T) {
	at := node(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, "", nil) })
	b := serving(t, at, grpcraw.Options{})
	f := greet(t, b.addr)
	f.open(1, "/summa.IndexService/Commit")
	half := framed(false, named("x", padded(8<<20))).Materialize()[:4<<20]
	window := h2.DefaultWindow
	for len(half) > 0 {
		for window == 0 {
			kind, _, id, word, _, err := f.next()
			if err != nil {
				t.Fatal(err)
			}
			if kind == h2.Window && id == 1 {
				window += int(word)
			}
		}
		n := min(len(half), window, h2.MaxFrame)
		if _, err := f.Write(append(h2.AppendFrame(nil, h2.Data, 0, 1, n), half[:n]...)); err != nil {
			t.Fatal(err)
		}
		half, window = half[n:], window-n
	}
	// It waits for the rest.
	soon(t, "it is charged", func() bool { return b.charged.Load() > 1<<20 })
	f.Close()
	soon(t, "it is given back", func() bool { return b.charged.Load() == 0 })
}

// TestLongRequestsDoNotBlockEachOther has more of them at once than there is memory for: each that has begun ends.
func TestLongRequestsDoNotBlockEachOther(t *testing.T) {
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		answer(w, "", nil)
	})
	gate := admit.New("test", 12<<20, 100, 20*time.Millisecond)
	b := serving(t, at, grpcraw.Options{}, func(c *Config) {
		c.Charge = func(ctx context.Context, _, more int64) (int64, func(), error) {
			place, err := gate.Enter(ctx, more)
			if err != nil {
				return 0, nil, status.Error(codes.ResourceExhausted, "no memory")
			}
			return more, place.Release, nil
		}
	})
	message := framed(false, named("x", padded(5<<20)))
	var wg sync.WaitGroup
	var good atomic.Int32
	for range 8 {
		client := dial(t, b.addr)
		wg.Go(func() {
			r, err := client.Do(t.Context(), &grpcraw.Call{Method: "/summa.IndexService/BatchIndexDocuments", Message: message}, 1<<20, nil)
			switch {
			case err != nil:
				t.Error(err)
			case r.End.Code == codes.OK:
				good.Add(1)
				r.Data.Free()
			case r.End.Message != "no memory": // before it had any
				t.Errorf("%v", r.End)
			}
		})
	}
	wg.Wait()
	if good.Load() < 2 {
		t.Errorf("%d of 8 went through", good.Load())
	}
	if n := gate.Used(); n != 0 {
		t.Errorf("%d bytes stayed charged", n)
	}
}

// TestServiceAnswers has calls that the service decodes and answers itself, unary and streamed.
func TestServiceAnswers(t *testing.T) {
	b := serving(t, "127.0.0.1:1", grpcraw.Options{}, func(c *Config) {
		c.Route = func(*Call) (Target, error) {
			return Target{Serve: func(c *Call) error {
				var m summapb.SearchRequest
				if err := c.Decode(&m); err != nil {
					return err
				}
				return c.Reply(&summapb.SearchResponse{TotalHits: uint64(m.GetLimit()), RankingMethod: m.GetIndexName()})
			}}, nil
		}
		c.Stream = func(c *Call) error {
			n := 0
			for {
				var m summapb.IndexDocumentRequest
				if err := c.Next(); err == io.EOF {
					return c.Reply(&summapb.IndexDocumentsResponse{IndexedCount: uint32(n)})
				} else if err != nil {
					return err
				}
				if err := c.Decode(&m); err != nil {
					return err
				}
				if m.GetIndexName() != c.Index() {
					return status.Errorf(codes.Internal, "%q and %q", m.GetIndexName(), c.Index())
				}
				n++
			}
		}
	})
	client := dial(t, b.addr)
	for _, encoding := range []string{"", "gzip", "zstd"} {
		var reply summapb.SearchResponse
		request, err := proto.Marshal(&summapb.SearchRequest{IndexName: strings.Repeat("x", 100), Limit: 7})
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Do(t.Context(), &grpcraw.Call{
			Method: search, Encoding: encoding, Accept: encoding, Message: framed(encoding != "", compress(t, encoding, request)),
		}, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Head.Encoding != encoding {
			t.Errorf("the reply is %q", r.Head.Encoding)
		}
		plain, err := r.Message(1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(plain, &reply); err != nil || reply.GetTotalHits() != 7 || len(reply.GetRankingMethod()) != 100 {
			t.Errorf("%v, %v", &reply, err)
		}
	}
	var sum summapb.IndexDocumentsResponse
	var documents mem.BufferSlice
	for i := range 100 {
		b, err := proto.Marshal(&summapb.IndexDocumentRequest{IndexName: fmt.Sprint("i", i%3)})
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, framed(false, b)...)
	}
	r, err := client.Do(t.Context(), &grpcraw.Call{Method: "/summa.IndexService/IndexDocuments", Message: documents}, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.End.Err(); err != nil {
		t.Fatal(err)
	}
	plain, err := r.Message(1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(plain, &sum); err != nil || sum.GetIndexedCount() != 100 {
		t.Errorf("%v, %v", &sum, err)
	}
}
