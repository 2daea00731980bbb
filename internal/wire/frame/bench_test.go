package frame

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
)

// same answers with as many bytes as the request has.
func same(_ context.Context, request, reply []byte) Reply {
	return Reply{Body: append(reply, request...)}
}

// BenchmarkRoundTrip is a request and its reply over the loopback; the allocations are those of both sides.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{100, 10_000, 1 << 20} {
		b.Run(fmt.Sprintf("%d", size), func(b *testing.B) {
			c := startClient(b, &Client{Addr: startTCP(b, &Server{Handler: same})})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			q, buf := make([]byte, size), make([]byte, size)
			b.SetBytes(int64(2 * size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Do(ctx, q, Options{Safe: true, Buf: buf}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRoundTripParallel(b *testing.B) {
	c := startClient(b, &Client{Addr: startTCP(b, &Server{Handler: same})})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		q, buf := make([]byte, 100), make([]byte, 100)
		for pb.Next() {
			if _, err := c.Do(ctx, q, Options{Safe: true, Buf: buf}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkLoopback is the bare round trip that BenchmarkRoundTrip is to be compared with: 104 bytes there and back, nothing else.
func BenchmarkLoopback(b *testing.B) {
	l := echoBytes(b)
	c := dialTCP(b, l)
	out, in := make([]byte, 104), make([]byte, 104)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(out); err != nil {
			b.Fatal(err)
		}
		for got := 0; got < len(in); {
			n, err := c.Read(in[got:])
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
}

func BenchmarkRead(b *testing.B) {
	in := Append(nil, make([]byte, 1000))
	var r bytes.Reader
	buf := make([]byte, 1000)
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(in)
		if _, err := Read(&r, 0, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAllocationsOfARoundTrip(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c := startClient(t, &Client{Addr: startTCP(t, &Server{Handler: same})})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	q, buf := make([]byte, 1000), make([]byte, 1000)
	do := func() {
		if _, err := c.Do(ctx, q, Options{Buf: buf}); err != nil {
			t.Error(err)
		}
	}
	for range 20 {
		do()
	}
	runtime.GC()
	if n := testing.AllocsPerRun(500, do); n > 2 {
		t.Errorf("%v allocations on both sides", n)
	}
}
