package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Protocol is what a listener speaks.
type Protocol string

// HTTP is the name of HTTP in "listening …".
const HTTP Protocol = "http"

// Binding is an address to listen on, and what is to serve it.
type Binding struct {
	Protocol Protocol
	Addr     string // host:port; port 0 picks a free one; empty: the protocol is not served
	// KeepAlive is the silence after which TCP asks a peer whether it is there; 0: that of package net.
	KeepAlive time.Duration
	// Server makes the server of the listener, which accepts nothing before its Serve is called.
	Server func(lis net.Listener) *Listening
}

// Listening is one listener and what serves it.
type Listening struct {
	Listener net.Listener
	Serve    func() error // returns when the server ends; nil or an error of Closed marks an end in good order
	Closed   error
	// Ready and Leaving, where not nil, tell the peers that calls are taken, and that they will not be for long, for good.
	Ready, Leaving func()
	// Shutdown stops accepting and waits for calls until ctx ends; Close cuts off what is left. Either may be called after the other.
	Shutdown func(ctx context.Context) error
	Close    func() error

	protocol Protocol
}

// Listener is where a server listens, and for what.
type Listener struct {
	Protocol Protocol
	Addr     string // host:port
}

// Listen binds every address that is not empty and makes its server. Nothing is accepted yet. After an error nothing is bound.
func (s *Server) Listen(ctx context.Context, bindings ...Binding) (err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, l := range s.list {
			err = errors.Join(err, l.Listener.Close())
		}
		s.list = nil
	}()
	for _, b := range bindings {
		if b.Addr == "" {
			continue
		}
		lc := net.ListenConfig{KeepAlive: b.KeepAlive}
		lis, err := lc.Listen(ctx, "tcp", b.Addr)
		if err != nil {
			return fmt.Errorf("listen for %s on %s: %w", b.Protocol, b.Addr, err)
		}
		l := b.Server(lis)
		l.protocol = b.Protocol
		s.list = append(s.list, l)
	}
	return nil
}

// HTTP is the binding of the server's own calls.
func (s *Server) HTTP(addr string) Binding {
	return Binding{Protocol: HTTP, Addr: addr, Server: s.httpServer}
}

func (s *Server) httpServer(lis net.Listener) *Listening {
	l := s.cfg.Limits
	srv := &http.Server{
		Handler: s.handler,
		// The handler refuses what is over the limits, in words; this is where reading ends.
		MaxHeaderBytes: 2 * (l.HeaderBytes + l.URLBytes),
		// Bodies have a deadline that moves while bytes come and replies get theirs when they are ready, so that a long bulk
		// load is not cut and a silent peer is.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       l.IdleTime,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	conns := NewConns(lis, 0, 1, s.log)
	return &Listening{
		Listener: conns, Serve: func() error { return srv.Serve(conns) }, Closed: http.ErrServerClosed,
		Shutdown: func(ctx context.Context) error {
			conns.EndSilent()
			return srv.Shutdown(ctx)
		},
		Close: srv.Close,
	}
}

// Serve accepts calls on every listener and returns at once.
func (s *Server) Serve() {
	for _, l := range s.list {
		s.wg.Go(func() {
			err := l.Serve()
			s.end.Do(func() {
				if err != nil && !errors.Is(err, l.Closed) {
					s.err = fmt.Errorf("serve %s on %s: %w", l.protocol, l.Listener.Addr(), err)
				}
				close(s.done)
			})
		})
	}
}

// Ready tells the peers of the protocols that can be told that calls are taken.
func (s *Server) Ready() {
	for _, l := range s.list {
		if l.Ready != nil {
			l.Ready()
		}
	}
}

func (s *Server) leaving() {
	for _, l := range s.list {
		if l.Leaving != nil {
			l.Leaving()
		}
	}
}

// Shutdown tells those who ask, goes on for Config.LameDuck, stops accepting calls, waits for those under way until ctx ends, then calls
// interrupt, which has to end the contexts of what the role does for calls with ErrClosing, and closes what is left of the connections.
// When calls had to be cut off the error has a *DrainError in it.
func (s *Server) Shutdown(ctx context.Context, interrupt func()) error {
	var errs []error
	s.lameDuck(ctx)
	s.drain.begin()
	s.leaving()
	late := s.shutdown(ctx)
	if err := s.drain.wait(ctx); err != nil {
		late = err
	}
	if late != nil {
		errs = append(errs, &DrainError{Calls: s.drain.UnderWay(), Cause: late})
	}
	interrupt()
	if late != nil {
		s.lastWords(ctx)
	}
	for _, l := range s.list {
		if err := l.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", l.protocol, err))
		}
	}
	return errors.Join(errs...)
}

// Wait returns when every call has ended, and every listener. It is called after Shutdown, and what was interrupted ends soon.
func (s *Server) Wait() {
	<-s.drain.idle
	s.wg.Wait()
}

// shutdown stops accepting calls, and waits for those under way until ctx ends.
func (s *Server) shutdown(ctx context.Context) error {
	errs := make([]error, len(s.list))
	var wg sync.WaitGroup
	for i, l := range s.list {
		wg.Go(func() { errs[i] = l.Shutdown(ctx) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lastWords lets calls that were just interrupted send their answers: a bulk load can tell what is in.
func (s *Server) lastWords(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.shutdown(ctx); err != nil {
		s.log.Debug("connections were busy to the end", "error", err)
	}
}

// lameDuck waits while callers learn that the server is about to close.
func (s *Server) lameDuck(ctx context.Context) {
	if s.cfg.LameDuck <= 0 {
		return
	}
	s.drain.announce()
	s.leaving()
	wait := time.NewTimer(s.cfg.LameDuck)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// Listeners are those that are bound, in the order of the bindings.
func (s *Server) Listeners() []Listener {
	out := make([]Listener, len(s.list))
	for i, l := range s.list {
		out[i] = Listener{l.protocol, l.Listener.Addr().String()}
	}
	return out
}

// Addr is the address that the server listens on for a protocol, empty if it does not.
func (s *Server) Addr(p Protocol) string {
	for _, l := range s.list {
		if l.protocol == p {
			return l.Listener.Addr().String()
		}
	}
	return ""
}

// Connections counts the connections of a protocol whose listener is a *Conns, and those of them that are in use; 0 of any other.
func (s *Server) Connections(p Protocol) (open, inUse int) {
	for _, l := range s.list {
		if conns, ok := l.Listener.(*Conns); ok && l.protocol == p {
			return conns.Count()
		}
	}
	return 0, 0
}

// Done is closed when a listener has ended, by Shutdown or by a failure that Err tells. It is never closed on a server without one.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is why a listener ended by itself; nil before Done is closed and after Shutdown.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}
