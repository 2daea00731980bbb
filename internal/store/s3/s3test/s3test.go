// Package s3test runs an S3 server in the process of a test.
package s3test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/weft-search/weft/internal/store/s3"
)

// The credentials of every test. The server takes any.
const (
	AccessKey = "AKIATESTACCESSKEY"
	SecretKey = "test/secret+key"
)

// Bucket is the one that the server has.
const Bucket = "weft-test"

// New starts a server with an empty bucket, which ends with the test, and returns its address, host:port.
func New(t testing.TB) (addr string) {
	t.Helper()
	return Serve(t, Handler(t))
}

// Handler is the server without its listener, for a test to stand before.
func Handler(t testing.TB) http.Handler {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(Bucket); err != nil {
		t.Fatal(err)
	}
	return gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
}

// Serve serves a handler until the test ends, and returns its address, host:port.
func Serve(t testing.TB, h http.Handler) (addr string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // handlers that break off their answers
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// Options are those of a store at an address. A test may change them before it opens the store.
func Options(addr string) s3.Options {
	return s3.Options{
		Bucket: Bucket, Prefix: "some/prefix", Endpoint: addr, Insecure: true, Region: "us-east-1",
		AccessKey: AccessKey, SecretKey: SecretKey, Timeout: 20 * time.Second,
	}
}

// Open opens a store and closes it with the test.
func Open(t testing.TB, o s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
