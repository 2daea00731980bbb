package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(s.URL+"/", Options{HTTP: s.Client(), MaxReply: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewRefusesBadAddresses(t *testing.T) {
	for _, base := range []string{"ftp://x", "http://", "http://a b", "http://x?y=1", "unix:///x"} {
		if _, err := New(base, Options{}); err == nil {
			t.Errorf("New(%q) gave no error", base)
		}
	}
	c, err := New("localhost:7700", Options{})
	if err != nil || c.URL() != "http://localhost:7700" {
		t.Errorf("address without a scheme: %v, %v", c, err)
	}
}

func TestBulkSendsAndReads(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Method != "POST" || r.URL.String() != "/index/bulk?index=a+b" || string(body) != "{}\n" {
			t.Errorf("got %s %s with %q", r.Method, r.URL, body)
		}
		w.WriteHeader(http.StatusMultiStatus)
		if _, err := io.WriteString(w, `{"ok":false,"indexed":0,"failed":1,"errors":[{"line":1,"id":"","code":"empty_id","reason":"no id"}],"later_member":1}`); err != nil {
			t.Error(err)
		}
	})
	got, err := c.Bulk(context.Background(), "a b", []byte("{}\n"))
	if err != nil || got.OK || got.Failed != 1 || len(got.Errors) != 1 || got.Errors[0].Code != "empty_id" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestBulkOfNothingButRejectsIsNoError(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		if _, err := io.WriteString(w, `{"code":"nothing_applied","detail":"no document was applied","failed":1,"errors":[{"line":1,"code":"invalid_id","reason":"empty"}]}`); err != nil {
			t.Error(err)
		}
	})
	got, err := c.Bulk(context.Background(), "", []byte("{}\n"))
	if err != nil || got.Failed != 1 || len(got.Errors) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestProblems(t *testing.T) {
	for _, tc := range []struct {
		name, ctype, body, after string
		status                   int
		text                     string
		refused                  bool
		wait                     time.Duration
	}{
		{"problem", "application/problem+json", `{"status":400,"detail":"bad query","code":"bad_query","position":3}`, "", 400, "bad query (bad_query, status 400)", false, 0},
		{"refusal", "application/problem+json; charset=utf-8", `{"detail":"full","code":"overloaded","retry_after_ms":250}`, "", 429, "full (overloaded, status 429)", true, 250 * time.Millisecond},
		{"header", "text/plain", "busy", "2", 503, "server answered 503: busy", true, 2 * time.Second},
		{"broken", "application/problem+json", `{"code":`, "", 500, `server answered 500: {"code":`, false, 0},
		{"empty", "", "", "", 502, "server answered 502: Bad Gateway", false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.ctype)
				if tc.after != "" {
					w.Header().Set("Retry-After", tc.after)
				}
				w.WriteHeader(tc.status)
				if _, err := io.WriteString(w, tc.body); err != nil {
					t.Error(err)
				}
			})
			_, err := c.Get(context.Background(), "", "x")
			var p *Problem
			if !errors.As(err, &p) || p.Error() != tc.text || p.Status != tc.status {
				t.Fatalf("got %v", err)
			}
			if wait, ok := p.Refused(); ok != tc.refused || wait != tc.wait {
				t.Errorf("refused = %v after %v", ok, wait)
			}
			if IsNotFound(err) {
				t.Error("taken for 404")
			}
		})
	}
}

func TestFullDiskMayBeTriedAgain(t *testing.T) {
	p := &Problem{Status: http.StatusInsufficientStorage, RetryAfterMS: 5000}
	if wait, ok := p.Retryable(); !ok || wait != 5*time.Second {
		t.Errorf("507: %v after %v", ok, wait)
	}
	if _, ok := p.Refused(); ok {
		t.Error("507 is taken for a refusal before any effect")
	}
	if _, ok := (&Problem{Status: 400}).Retryable(); ok {
		t.Error("400 is to be tried again")
	}
	if wait, ok := (&Problem{Status: 429, RetryAfterMS: -1}).Retryable(); !ok || wait != 0 {
		t.Errorf("429: %v after %v", ok, wait)
	}
}

func TestTransportErrorsAreToldApart(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	addr := s.URL
	s.Close()
	gone, err := New(addr, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var lost *TransportError
	if _, err := gone.Get(t.Context(), "", "x"); !errors.As(err, &lost) || !strings.HasPrefix(err.Error(), "call GET "+addr+"/doc: dial tcp") {
		t.Errorf("nobody listens: %v", err)
	}
	cut := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		if _, err := io.WriteString(w, "{"); err != nil {
			t.Error(err)
		}
	})
	if _, err := cut.Get(t.Context(), "", "x"); !errors.As(err, &lost) {
		t.Errorf("the reply was cut: %v", err)
	}
	strange := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.WriteString(w, "hello"); err != nil {
			t.Error(err)
		}
	})
	if _, err := strange.Get(t.Context(), "", "x"); err == nil || errors.As(err, &lost) {
		t.Errorf("the reply is no JSON: %v", err)
	}
}

func TestReplyIsBounded(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.WriteString(w, strings.Repeat("x", 4<<10)); err != nil {
			t.Error(err)
		}
	})
	if _, err := c.Search(context.Background(), Search{Q: "x"}); !errors.Is(err, ErrReplyTooLarge) {
		t.Errorf("got %v", err)
	}
}
