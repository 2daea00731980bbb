package front

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// TCP asks silent peers after the time of the binding; without one it is that of package net.
func TestKeepAliveIsThatOfTheBinding(t *testing.T) {
	for want, b := range map[int]Binding{15: {}, 60: {KeepAlive: time.Minute}} {
		s := newServer(t, Config{})
		var lis net.Listener
		b.Protocol, b.Addr = "p", "127.0.0.1:0"
		b.Server = func(l net.Listener) *Listening {
			lis = l
			return &Listening{Listener: l}
		}
		if err := s.Listen(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		peer, err := net.Dial("tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		got, asked := 0, error(nil)
		err = raw.Control(func(fd uintptr) {
			got, asked = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
		})
		if err := errors.Join(err, asked); err != nil || got != want {
			t.Errorf("asked after %d s, want %d: %v", got, want, err)
		}
		if err := errors.Join(peer.Close(), conn.Close(), lis.Close()); err != nil {
			t.Error(err)
		}
	}
}
