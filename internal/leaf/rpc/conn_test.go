package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/weft-search/weft/internal/leaf"
)

// lossy is a connection that can lose everything, in both directions, without ending.
type lossy struct {
	net.Conn
	mu   sync.Mutex
	lost bool
}

func (l *lossy) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
}

func (l *lossy) gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *lossy) Write(b []byte) (int, error) {
	if l.gone() {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

func (l *lossy) Read(b []byte) (int, error) {
	for {
		n, err := l.Conn.Read(b)
		if err != nil || !l.gone() {
			return n, err
		}
	}
}

// Both sides notice that the other is not there any more, although nothing says so.
func TestDeadPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		began, ended := make(chan struct{}), make(chan time.Duration, 1)
		r := start(t, &fake{index: func(ctx context.Context, _ *leaf.IndexRequest) (*leaf.IndexReply, error) {
			close(began)
			<-ctx.Done()
			ended <- time.Since(begin)
			return nil, context.Cause(ctx)
		}}, ServerOptions{}, Options{})
		var conn *lossy
		c, err := Dial("node:1", Options{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			inner, err := r.listen.DialContext(ctx)
			conn = &lossy{Conn: inner}
			return conn, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			<-began
			conn.lose()
		}()
		_, err = c.Index(t.Context(), &leaf.IndexRequest{})
		if e := transport(t, err); !e.MaybeApplied || !e.Crashed {
			t.Errorf("%+v", e)
		}
		if d := time.Since(begin); d > 21*time.Second {
			t.Errorf("the client noticed after %v", d)
		}
		if d := <-ended; d > 41*time.Second {
			t.Errorf("the server noticed after %v", d)
		}
	})
}

func TestTLS(t *testing.T) {
	h := httptest.NewUnstartedServer(nil)
	h.StartTLS()
	defer h.Close()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, _ := NewServer(&fake{}, ServerOptions{TLS: &tls.Config{Certificates: h.TLS.Certificates}}).GRPC()
	served := make(chan error, 1)
	go func() { served <- g.Serve(listen) }()
	defer func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	pool := x509.NewCertPool()
	pool.AddCert(h.Certificate())
	for name, o := range map[string]Options{"trusted": {TLS: &tls.Config{RootCAs: pool}}, "not trusted": {TLS: &tls.Config{}}, "plain": {}} {
		c, err := Dial(listen.Addr().String(), o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ping(t.Context()); (err == nil) != (name == "trusted") {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A server that is told to end lets calls under way finish.
func TestGracefulStop(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, _ := NewServer(&fake{index: func(context.Context, *leaf.IndexRequest) (*leaf.IndexReply, error) {
		close(began)
		<-finish
		return &leaf.IndexReply{}, nil
	}}, ServerOptions{}).GRPC()
	served := make(chan error, 1)
	go func() { served <- g.Serve(listen) }()
	c, err := Dial(listen.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		_, err := c.Index(context.Background(), &leaf.IndexRequest{})
		done <- err
	}()
	select {
	case <-began:
	case err := <-done:
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		g.GracefulStop()
		close(stopped)
	}()
	c.conn.WaitForStateChange(t.Context(), connectivity.Ready) // the client has been told
	close(finish)
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-stopped
	if err := <-served; err != nil {
		t.Error(err)
	}
	_, err = c.Index(t.Context(), &leaf.IndexRequest{})
	if e := transport(t, err); e.MaybeApplied {
		t.Errorf("%+v", e)
	}
}
