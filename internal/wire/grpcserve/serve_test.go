package grpcserve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
	"github.com/weft-search/weft/internal/wire/h2"
)

// TestWindowsOfTheClient are kept to the byte, however small they are and whenever they change.
func TestWindowsOfTheClient(t *testing.T) {
	sv := start(t, Options{})
	const n = 1000
	want := message(string(noise(n)))
	p := sv.dial(t).hello(h2.SettingWindow, 3)
	p.ask(1, "/t/long", strconv.Itoa(n))
	var got []byte
	granted := 3
	for len(got) < len(want) {
		f, ok := p.next(h2.Data)
		if !ok {
			t.Fatalf("the connection ended after %d bytes", len(got))
		}
		if got = append(got, f.b...); len(got) > granted {
			t.Fatalf("%d bytes in windows of %d", len(got), granted)
		}
		if len(got) == granted {
			switch {
			case granted == 9:
				// All windows grow by 7.
				p.frame(h2.Settings, 0, 0, append([]byte{0, h2.SettingWindow}, word(10)...))
				granted += 7
			case granted == 16:
				// And shrink by 10, so that this one is below nothing before it grows again.
				p.frame(h2.Settings, 0, 0, append([]byte{0, h2.SettingWindow}, word(0)...))
				p.frame(h2.Window, 0, 1, word(11))
				granted++
			default:
				p.frame(h2.Window, 0, 1, word(3))
				granted += 3
			}
		}
	}
	if a := p.answer(1); a.tail["grpc-status"] != "0" || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %+v", len(got), a)
	}
	// Of two windows in one frame the last counts, also where the one before would be too much.
	p = sv.dial(t).hello()
	p.ask(1, "/t/hang", "")
	p.frame(h2.Window, 0, 1, word(1<<30))
	two := append([]byte{0, h2.SettingWindow}, word(h2.MaxWindow)...)
	p.frame(h2.Settings, 0, 0, append(two, append([]byte{0, h2.SettingWindow}, word(100)...)...))
	p.good(3)
	// The window of the connection is for all.
	p = sv.dial(t).hello(h2.SettingWindow, h2.MaxWindow)
	p.ask(1, "/t/long", "100000")
	p.ask(3, "/t/long", "100000")
	sum := map[uint32]int{}
	for sum[1]+sum[3] < h2.DefaultWindow {
		f, ok := p.next(h2.Data)
		if !ok {
			t.Fatal("the connection ended")
		}
		sum[f.id] += len(f.b)
	}
	p.frame(h2.Ping, 0, 0, make([]byte, 8))
	for {
		f, ok := p.read()
		if !ok || f.kind == h2.Data {
			t.Fatalf("beyond the window: %+v", f)
		}
		if f.kind == h2.Ping {
			break
		}
	}
	p.frame(h2.Window, 0, 0, word(1<<20))
	for ends := 0; ends < 2; {
		f, ok := p.read()
		if !ok {
			t.Fatal("the connection ended")
		}
		if f.kind == h2.Data {
			sum[f.id] += len(f.b)
		}
		if f.kind == h2.Headers && f.flags&h2.EndStream != 0 {
			ends++
		}
	}
	if sum[1] != 100_005 || sum[3] != 100_005 {
		t.Errorf("%v bytes", sum)
	}
}

// TestFramesOfTheClient are as long as it takes them.
func TestFramesOfTheClient(t *testing.T) {
	sv := start(t, Options{})
	for _, c := range []struct{ setting, most int }{{0, h2.MaxFrame}, {20_000, 20_000}, {1 << 20, longFrame}} {
		var settings []uint32
		if c.setting > 0 {
			settings = []uint32{h2.SettingFrame, uint32(c.setting)}
		}
		p := sv.dial(t).hello(append(settings, h2.SettingWindow, h2.MaxWindow)...)
		p.frame(h2.Window, 0, 0, word(1<<30))
		p.ask(1, "/t/long", "3000000")
		longest, n := 0, 0
		for n < 3_000_005 {
			f, ok := p.next(h2.Data)
			if !ok {
				t.Fatal("the connection ended")
			}
			n += len(f.b)
			longest = max(longest, len(f.b))
		}
		if longest > c.most || longest < c.most/2 {
			t.Errorf("frames of %d bytes, want up to %d", longest, c.most)
		}
	}
}

// TestRequestsAreLetCome as they are read, and no more than that.
func TestRequestsAreLetCome(t *testing.T) {
	sv := start(t, Options{})
	p := sv.dial(t).hello()
	p.open(1, "/t/hang")
	s := <-sv.came
	p.frame(h2.Data, 0, 1, make([]byte, h2.MaxFrame))
	// Nobody reads: nothing more is let come, but something is known to have come.
	p.frame(h2.Ping, 0, 0, make([]byte, 8))
	for {
		f, ok := p.read()
		if !ok {
			t.Fatal("the connection ended")
		}
		if f.kind == h2.Window && f.id == 1 {
			t.Errorf("%d more bytes are let come", f.b)
		}
		if f.kind == h2.Ping {
			break
		}
	}
	// What the reader needs is.
	var wg sync.WaitGroup
	wg.Go(func() {
		b, err := s.Read(100_000)
		if err != nil || b.Len() != 100_000 {
			t.Errorf("%d bytes, %v", b.Len(), err)
		}
		b.Free()
	})
	f, ok := p.next(h2.Window)
	for ok && f.id != 1 {
		f, ok = p.next(h2.Window)
	}
	if want := uint32(100_000 - h2.DefaultWindow); !ok || !bytes.Equal(f.b, word(want)) {
		t.Errorf("%d bytes are let come, want %d", f.b, want)
	}
	for left := 100_000 - h2.MaxFrame; left > 0; left -= h2.MaxFrame {
		p.frame(h2.Data, 0, 1, make([]byte, min(left, h2.MaxFrame)))
	}
	wg.Wait()
	// And what is asked for ahead.
	s.Ahead(1 << 20)
	if f, ok = p.next(h2.Window); !ok || f.id != 1 || !bytes.Equal(f.b, word(1<<20)) {
		t.Errorf("%+v", f)
	}
	p.frame(h2.Reset, 0, 1, word(h2.CodeCancel))
	<-sv.left
	if _, err := s.Read(1); !errors.Is(err, context.Canceled) {
		t.Errorf("reading a call that is gone: %v", err)
	}
	if err := s.Write(sv.pool.pieces([]byte("x"), 1), false); !errors.Is(err, context.Canceled) {
		t.Errorf("writing a call that is gone: %v", err)
	}
}

// TestRequestsInAnyFrames are what was sent, however it is cut, padded, and read.
func TestRequestsInAnyFrames(t *testing.T) {
	sv := start(t, Options{})
	for seed := range uint64(20) {
		q, r := rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 8))
		p := sv.dial(t).hello()
		want := noise(FirstWindow * 3)
		p.open(1, "/t/hang")
		s := <-sv.came
		var wg sync.WaitGroup
		wg.Go(func() {
			window := FirstWindow
			for left := want; len(left) > 0; {
				for window == 0 {
					f, ok := p.next(h2.Window)
					if !ok {
						return
					}
					if f.id == 1 {
						window += int(binary.BigEndian.Uint32(f.b))
					}
				}
				n := min(len(left), window, 1+q.IntN(1<<q.IntN(15)))
				flags, b := byte(0), left[:n]
				if pad := q.IntN(256); q.IntN(3) == 0 && n+pad+1 <= min(h2.MaxFrame, window) {
					flags = h2.Padded
					b = append(append([]byte{byte(pad)}, b...), make([]byte, pad)...)
				}
				if left = left[n:]; len(left) == 0 {
					flags |= h2.EndStream
				}
				p.frame(h2.Data, flags, 1, b)
				window -= len(b)
			}
		})
		var got []byte
		for len(got) < len(want) {
			n := min(len(want)-len(got), 1+r.IntN(1<<r.IntN(17)))
			b, err := s.Read(n)
			if err != nil || b.Len() != n {
				t.Fatalf("seed %d: %d of %d bytes, %v", seed, b.Len(), n, err)
			}
			got = append(got, b.Materialize()...)
			b.Free()
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("seed %d: other bytes than were sent", seed)
		}
		if _, err := s.Read(1); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("seed %d: after the end: %v", seed, err)
		}
		wg.Wait()
		p.Close()
		<-sv.left
	}
}

// TestTimes has those of the contract: what is no time is none.
func TestTimes(t *testing.T) {
	sv := start(t, Options{})
	p := sv.dial(t).hello()
	id := uint32(1)
	for header, want := range map[string]string{
		"": "0s false", "90S": "1m30s true", "5000m": "5s true", "99999999H": "2562047h47m16.854775807s true",
		"x": "0s false", "-1S": "0s false", "1s": "0s false", "123456789m": "0s false", "1.5S": "0s false", "S": "0s false",
	} {
		p.ask(id, "/t/time", "", "grpc-timeout", header)
		if a := p.answer(id); a.tail["grpc-message"] != want {
			t.Errorf("%q: %v, want %q", header, a.tail, want)
		}
		id += 2
	}
	for _, header := range []string{"0S", "1n", "20m"} {
		p.ask(id, "/t/hang", "", "grpc-timeout", header)
		if a := p.answer(id); a.tail["grpc-status"] != "4" {
			t.Errorf("%q: %v", header, a.tail)
		}
		id += 2
	}
}

// TestStatusGoesOut in one block where there is nothing else, and within what the client takes.
func TestStatusGoesOut(t *testing.T) {
	sv := start(t, Options{})
	p := sv.dial(t).hello()
	p.ask(1, "/t/fail", "")
	a := p.answer(1)
	if a.head != nil || a.tail[":status"] != "200" || a.tail["content-type"] != "application/grpc" || a.tail["grpc-message"] != "not n%C3%A4w: 100 %25" || a.tail["x-tail"] != "t" {
		t.Errorf("%+v", a)
	}
	p.open(3, "/t/echo", "content-type", "application/grpc+proto")
	p.frame(h2.Data, h2.EndStream, 3, message(""))
	if a := p.answer(3); a.head["content-type"] != "application/grpc+proto" || a.head["x-raw-bin"] != "AP8" || string(a.data) != string(message("")) {
		t.Errorf("%+v", a)
	}
	// The rest of a request is of no use to anybody.
	p.open(5, "/t/fail")
	if a := p.answer(5); a.tail["grpc-status"] != "9" {
		t.Errorf("%+v", a)
	}
	if f, ok := p.read(); !ok || f.kind != h2.Reset || f.id != 5 || !bytes.Equal(f.b, word(h2.CodeNone)) {
		t.Errorf("%+v", f)
	}
	// Who compresses in a way that is not taken is told which are.
	for i, encoding := range []string{"br", "gzip", "identity"} {
		id := uint32(11 + 2*i)
		p.open(id, "/grpc.health.v1.Health/Check", "grpc-encoding", encoding)
		p.frame(h2.Data, h2.EndStream, id, append(grpcmsg.Header(true, 3), "xyz"...))
		a := p.answer(id)
		if code, accepts := a.tail["grpc-status"], a.tail["grpc-accept-encoding"]; encoding == "br" && (code != "12" || accepts != "zstd,gzip,identity") || encoding != "br" && accepts != "" {
			t.Errorf("%s: %+v", encoding, a)
		}
	}
	p.ask(17, "/t/utf8", "")
	if a := p.answer(17); a.tail["grpc-message"] != "a%EF%BF%BDb" {
		t.Errorf("%+v", a)
	}
	p = sv.dial(t).hello(h2.SettingHeaderList, 150)
	p.ask(1, "/t/fail", "")
	for {
		f, ok := p.read()
		if !ok {
			t.Fatal("the connection ended")
		}
		if f.kind == h2.Reset {
			break
		}
	}
}

// client is a client of grpc-go.
func (sv *server) client(t *testing.T) *grpc.ClientConn {
	c, err := grpc.NewClient(sv.at, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// raw is a codec that leaves bytes alone.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (raw) Name() string { return "proto" }

// TestClientOfGRPC has grpc-go, with replies and requests of all lengths, errors, ends by either side and streams.
func TestClientOfGRPC(t *testing.T) {
	sv := start(t, Options{})
	c := sv.client(t)
	for _, n := range []int{0, 1, 1000, h2.MaxFrame - 5, h2.MaxFrame, 100_000, 3 << 20} {
		in := noise(n)
		var out []byte
		var head, tail metadata.MD
		if err := c.Invoke(t.Context(), "/t/echo", &in, &out, grpc.Header(&head), grpc.Trailer(&tail)); err != nil || !bytes.Equal(in, out) {
			t.Errorf("%d bytes: %d, %v", n, len(out), err)
		}
		if !slices.Equal(head["x-raw-bin"], []string{"\x00\xff"}) || !slices.Equal(tail["x-tail"], []string{"t"}) {
			t.Errorf("%v, %v", head, tail)
		}
	}
	in, out := []byte{}, []byte{}
	if err := c.Invoke(t.Context(), "/t/fail", &in, &out); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "not näw: 100 %" {
		t.Error(err)
	}
	for path, text := range map[string]string{"/t/none": "unknown service t", "/grpc.health.v1.Health/None": "unknown method None for service grpc.health.v1.Health"} {
		if err := c.Invoke(t.Context(), path, &in, &out); status.Code(err) != codes.Unimplemented || status.Convert(err).Message() != text {
			t.Errorf("%s: %v", path, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Invoke(ctx, "/t/hang", &in, &out); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
	<-sv.came
	cancel()
	<-sv.left
	wg.Wait()
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Invoke(ctx, "/t/hang", &in, &out); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	st, err := c.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, "/t/count")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		m := noise(i)
		if err := st.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
	}
	st.CloseSend()
	if err := st.RecvMsg(&out); err != nil || string(out) != "1000" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestServices are served as a grpc.Server does: health, reflection.
func TestServices(t *testing.T) {
	sv := start(t, Options{})
	c, err := grpc.NewClient(sv.at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := healthpb.NewHealthClient(c)
	if r, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "t"}); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "u"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: strings.Repeat("u", 2000)}); status.Code(err) != codes.OutOfRange {
		t.Error(err)
	}
	for _, encoding := range []string{grpcmsg.Gzip, grpcmsg.Zstd} {
		if r, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "t"}, grpc.UseCompressor(encoding)); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%s: %v, %v", encoding, r, err)
		}
	}
	w, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := w.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	info, err := reflectionpb.NewServerReflectionClient(c).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := info.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
			t.Fatal(err)
		}
		r, err := info.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range r.GetListServicesResponse().GetService() {
			names = append(names, s.GetName())
		}
		if !slices.Contains(names, "grpc.health.v1.Health") || !slices.Contains(names, "grpc.reflection.v1.ServerReflection") {
			t.Errorf("services %v", names)
		}
	}
	// A server that ends waits for calls, not for these.
	if err := sv.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := info.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the end of a stream: %v", err)
	}
	if _, err := w.Recv(); err == nil {
		t.Error("a watch goes on")
	}
}

// TestClientOfHTTP2 is that of net/http, which is strict about what it gets.
func TestClientOfHTTP2(t *testing.T) {
	sv := start(t, Options{})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	for _, n := range []int{0, 10, 100_000, 3 << 20} {
		body := message(string(noise(n)))
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+sv.at+"/t/echo", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		r, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || !bytes.Equal(b, body) || r.Trailer.Get("Grpc-Status") != "0" || r.Header.Get("X-Head") != "h" {
			t.Errorf("%d bytes: %d, %v, %v", n, len(b), r.Trailer, err)
		}
	}
	r, err := c.Get("http://" + sv.at + "/")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("a page: %s", r.Status)
	}
}

// TestDraining lets calls end that were begun before the client knew, and takes no more.
func TestDraining(t *testing.T) {
	sv := start(t, Options{Farewell: 20 * time.Second})
	p, idle := sv.dial(t).hello(), sv.dial(t).hello()
	p.ask(1, "/t/hang", "")
	s := <-sv.came
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := sv.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
	f, ok := p.next(h2.GoAway)
	if !ok || !bytes.Equal(f.b, append(word(h2.MaxStreamID), word(0)...)) {
		t.Fatalf("%+v", f)
	}
	ping, ok := p.next(h2.Ping)
	if !ok {
		t.Fatal("the connection ended")
	}
	// On its way when the client heard of it.
	p.good(3)
	p.frame(h2.Ping, h2.Ack, 0, ping.b)
	if f, ok = p.next(h2.GoAway); !ok || !bytes.Equal(f.b, append(word(3), word(0)...)) {
		t.Fatalf("%+v", f)
	}
	p.ask(5, "/t/hang", "")
	s.Cancel(nil)
	for f.kind != h2.Headers || f.flags&h2.EndStream == 0 {
		if f, ok = p.read(); !ok || f.id == 5 {
			t.Fatalf("%+v", f)
		}
	}
	if _, ok := p.read(); ok {
		t.Error("the connection goes on")
	}
	if ping, ok = idle.next(h2.Ping); ok {
		idle.frame(h2.Ping, h2.Ack, 0, ping.b)
		idle.away()
	}
	p.Close()
	idle.Close()
	wg.Wait()
	if nc, err := net.Dial("tcp", sv.at); err == nil {
		nc.Close()
		t.Error("connections are taken")
	}
	if n := len(sv.came); n != 0 {
		t.Errorf("%d calls were begun too late", n)
	}
}

// TestDrainingLosesNoCall has clients of grpc-go that call all the time: a call that was begun is answered, and who is not answered was not begun.
func TestDrainingLosesNoCall(t *testing.T) {
	sv := start(t, Options{})
	var answered atomic.Int64
	var wg sync.WaitGroup
	begun := make(chan struct{}, 10_000)
	for range 4 {
		c := sv.client(t)
		for range 4 {
			wg.Go(func() {
				for {
					in, out := noise(100), []byte(nil)
					if err := c.Invoke(t.Context(), "/t/note", &in, &out); err != nil {
						if status.Code(err) != codes.Unavailable {
							t.Error(err)
						}
						return
					}
					answered.Add(1)
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
	}
	for range 500 {
		<-begun
	}
	if err := sv.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if n := sv.noted.Load(); n != answered.Load() {
		t.Errorf("%d calls were served, and %d answered", n, answered.Load())
	}
}

// TestDrainingEnds with its context, and does not wait for clients that do not answer.
func TestDrainingEnds(t *testing.T) {
	sv := start(t, Options{Farewell: 50 * time.Millisecond})
	silent := sv.dial(t).hello()
	if err := sv.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	silent.away()
	sv = start(t, Options{})
	p := sv.dial(t).hello()
	p.ask(1, "/t/hang", "")
	<-sv.came
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := sv.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	sv.Close()
	if err := <-sv.left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestManyAtOnce has clients that ask for anything and leave at any time; every reply is whole, and nothing stays.
func TestManyAtOnce(t *testing.T) {
	sv := start(t, Options{})
	all := noise(1 << 20)
	var wg sync.WaitGroup
	for k := range 4 {
		n := grpcraw.NewNode(sv.at, grpcraw.Options{Conns: 2})
		t.Cleanup(n.Close)
		for i := range 8 {
			r := rand.New(rand.NewPCG(uint64(k), uint64(i)))
			wg.Go(func() {
				for range 40 {
					size := r.IntN(1 << r.IntN(20))
					ctx, cancel := context.WithCancel(t.Context())
					if r.IntN(4) == 0 {
						time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, cancel)
					}
					path, ask := "/t/echo", all[:size]
					if r.IntN(2) == 0 {
						path, ask = "/t/long", []byte(strconv.Itoa(size))
					}
					reply, err := n.Do(ctx, &grpcraw.Call{Method: path, Message: mem.BufferSlice{mem.SliceBuffer(message(string(ask)))}}, 2<<20, nil)
					if err == nil {
						err = reply.End.Err()
						if got := reply.Data.Materialize(); err == nil && !bytes.Equal(got, all[:size]) {
							err = fmt.Errorf("%s: %d of %d bytes came, or others", path, len(got), size)
						}
						reply.Data.Free()
					}
					if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					cancel()
				}
			})
		}
	}
	wg.Wait()
	soon(t, "all is given back", func() bool { return sv.pool.out.Load() == 0 && sv.Handlers() == 0 })
}
