package frame

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// selfSigned makes a certificate for the loopback and the pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// Everything that looks below a connection works through TLS as well.
func TestOverTLS(t *testing.T) {
	cert, trust := selfSigned(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	w := newWatched()
	s := &Server{Handler: w.handle, Refuse: refuse, Limits: Limits{MaxFrame: 1 << 20, DrainTime: 20 * time.Millisecond}}
	start(t, s, l)
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: trust}}
	newClient := func() *Client {
		return startClient(t, &Client{Addr: addr, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}})
	}
	c := newClient()
	for _, q := range []string{"a", "", strings.Repeat("b", 1<<19), "c"} {
		ask(t, c, q)
	}
	// A request that is watched leaves the connection usable.
	waited := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), []byte("wait"), Options{})
		waited <- err
	}()
	within(t, "the request", w.begun)
	for s.Stats().Watched == 0 {
		yield()
	}
	w.goOn <- struct{}{}
	if err := within(t, "the reply", waited); err != nil {
		t.Fatal(err)
	}
	ask(t, c, "d")
	if n := c.Stats(); n.Dials != 1 || n.Reuses != 5 {
		t.Errorf("%+v", n)
	}
	// A cancellation reaches the handler.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := c.Do(ctx, []byte("wait"), Options{})
		waited <- err
	}()
	within(t, "the request", w.begun)
	cancel()
	if err := within(t, "the cancellation", w.ended); !errors.Is(err, ErrPeerGone) {
		t.Errorf("cause %v", err)
	}
	if err := within(t, "the return", waited); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// A refusal arrives though the body was not read.
	got, err := c.Do(t.Context(), make([]byte, 1<<20+1), Options{})
	if err != nil || string(got) != "too long" {
		t.Errorf("%q, %v", got, err)
	}
	// A connection that the server has closed is noticed.
	c = newClient()
	ask(t, c, "e")
	for ; s.Stats().Open > 0; yield() {
		for conn := range serverConns(s) {
			conn.endIdle()
		}
	}
	ask(t, c, "f") // not safe to repeat
	if n := c.Stats(); n.Stale != 1 || n.Retries != 0 {
		t.Errorf("%+v", n)
	}
}
