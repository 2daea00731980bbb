package brokertest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames makes one call with a grpc-timeout as it is given, and returns the status and its text.
func frames(t *testing.T, addr, path, timeout string, message []byte) (code, text string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-timeout", timeout},
	} {
		if h[1] != "" {
			if err := e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err = io.WriteString(conn, http2.ClientPreface)
	err = errors.Join(err, f.WriteSettings(),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}), f.WriteData(1, true, message))
	if err != nil {
		t.Fatal(err)
	}
	d := hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("%q: %v", timeout, err)
		}
		h, ok := frame.(*http2.HeadersFrame)
		if !ok {
			continue
		}
		fields, err := d.DecodeFull(h.HeaderBlockFragment())
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range fields {
			switch field.Name {
			case "grpc-status":
				code = field.Value
			case "grpc-message":
				text = field.Value
			}
		}
		if h.StreamEnded() {
			return code, text
		}
	}
}

// TestAMalformedTimeIsNoDeadline sends times that no library sends.
func TestAMalformedTimeIsNoDeadline(t *testing.T) {
	times := make(chan string, 10)
	node := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		times <- r.Header.Get("Grpc-Timeout")
		w.Write(prefix(false, 0))
		w.Header().Set("Grpc-Status", "0")
	})
	b, _ := plainBroker(t, node)
	for _, given := range []string{"", "5", "x", "5x", "123456789S", "-1S", "1.5S", "S"} {
		code, text := frames(t, b.Listening["summa"], searchPath, given, question().Materialize())
		if code != "0" {
			t.Errorf("%q: status %q, %q", given, code, text)
			continue
		}
		if got := <-times; got != "" {
			t.Errorf("of %q the node got %q", given, got)
		}
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}
