package front

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
)

// brokenConns is a listener whose connections fail when they are closed.
type brokenConns struct {
	net.Listener
	accepted int
}

type brokenConn struct{ net.Conn }

func (brokenConn) Close() error { return errors.New("cannot close") }

func (l *brokenConns) Accept() (net.Conn, error) {
	if l.accepted++; l.accepted > 3 {
		return nil, net.ErrClosed
	}
	return brokenConn{}, nil
}

// A connection beyond the bound that cannot even be closed does not end the server.
func TestConnectionsBeyondTheBoundThatFailToClose(t *testing.T) {
	inner := &brokenConns{}
	l := NewConns(inner, 1, 0, slog.New(slog.DiscardHandler))
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || inner.accepted != 4 {
		t.Errorf("%v after %d connections", err, inner.accepted)
	}
}

// A connection that is asking a question when the node begins to end is answered.
func TestTheEndLeavesConnectionsInUse(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewConns(inner, 0, 2, slog.New(slog.DiscardHandler))
	defer l.Close()
	pair := func(hello string) (client, server net.Conn) {
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(client, hello); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, make([]byte, len(hello))); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	silent, silentServer := pair("h")
	asking, askingServer := pair("hi")
	defer silent.Close()
	defer asking.Close()
	defer askingServer.Close()
	l.EndSilent()
	if _, err := silentServer.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("on a connection that was closed: %v", err)
	}
	if _, err := askingServer.Write([]byte("x")); err != nil {
		t.Errorf("on a connection in use: %v", err)
	}
	if err := askingServer.(*countedConn).CloseWrite(); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(asking); err != nil || string(b) != "x" {
		t.Errorf("read %q, %v", b, err)
	}
	late, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	if _, err := io.Copy(io.Discard, late); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that came late ended with %v", err)
	}
	l.EndAll()
	if _, err := askingServer.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}
