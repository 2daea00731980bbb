package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/weft-search/weft/internal/store"
)

// errStill ends an attempt in which nothing has moved for Options.Timeout.
var errStill = errors.New("the connection stood still")

// attempt is one request and its answer.
type attempt struct {
	ctx    context.Context // the request's; ends also when the attempt stands still
	cancel context.CancelCauseFunc
	still  *time.Timer
	limit  time.Duration
	// sent says that the head of the request was written: before that nobody can have acted on it.
	sent atomic.Bool
	// kept says that the answer is still being read and ends the attempt itself.
	kept bool
}

func (s *Store) begin(ctx context.Context) *attempt {
	a := &attempt{limit: s.o.Timeout}
	ctx, a.cancel = context.WithCancelCause(ctx)
	a.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { a.sent.Store(true) }})
	a.still = time.AfterFunc(a.limit, func() { a.cancel(fmt.Errorf("%w for %v", errStill, a.limit)) })
	return a
}

// moved says that there was progress.
func (a *attempt) moved() { a.still.Reset(a.limit) }

// rest stops the clock until something moves: the caller is busy with something else.
func (a *attempt) rest() { a.still.Stop() }

func (a *attempt) end() {
	a.still.Stop()
	a.cancel(nil)
}

// outcome is what became of a request that did not succeed.
type outcome uint8

const (
	failed  outcome = iota // refused, and would be again
	refused                // refused, or not sent; may do when sent again
	unknown                // perhaps done
)

// brokenAnswer is an answer that says too little or contradicts itself.
type brokenAnswer string

func (b brokenAnswer) Error() string { return string(b) }

// outcome judges the error of an attempt.
func (a *attempt) outcome(err error) outcome {
	var broken brokenAnswer
	if errors.As(err, &broken) {
		return failed
	}
	var r minio.ErrorResponse
	if !errors.As(err, &r) {
		if a.sent.Load() {
			return unknown
		}
		return refused
	}
	switch {
	case r.StatusCode == http.StatusNotImplemented:
		return failed
	case r.StatusCode >= 500 || r.StatusCode == 499: // 499: a proxy that gave up on its server
		return unknown
	case r.StatusCode < 300 && a.sent.Load(): // done, it seems, and the answer makes no sense
		return unknown
	case r.StatusCode == http.StatusTooManyRequests, r.StatusCode == http.StatusRequestTimeout, r.StatusCode == http.StatusConflict, r.Code == "RequestTimeout":
		return refused
	}
	return failed
}

// status returns the HTTP status of an error, 0 without one, and whether it is about the bucket as a whole.
func status(err error) (code int, bucket bool) {
	var r minio.ErrorResponse
	if !errors.As(err, &r) {
		return 0, false
	}
	return r.StatusCode, r.Code == minio.NoSuchBucket
}

// The wait before the second attempt; each further one doubles it up to the limit. The client adds up to 200 ms after a server's failure.
const (
	firstWait = 25 * time.Millisecond
	maxWait   = time.Second
)

// wait waits before attempt n, from 1, a half up to the whole of its time.
func wait(ctx context.Context, n int) {
	d := min(firstWait<<min(n-1, 10), maxWait)
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// try makes attempts until one succeeds, fails for good, or there were enough. A write that perhaps took place in one of them, while none
// is known to have succeeded, is an ErrUncertain: what a later attempt is told may be the work of the one before.
// An error of do is that of the client; what verdict makes of it, if not nil, is returned in its place, when nothing was unknown before.
func (s *Store) try(ctx context.Context, what, key string, write bool, verdict func(err error, last bool) error, do func(a *attempt) error) error {
	doubt := false
	var err error
	for n := range s.o.Attempts {
		if n > 0 {
			wait(ctx, n)
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
			break
		}
		a := s.begin(ctx)
		derr := do(a)
		if derr == nil {
			if !a.kept {
				a.end()
			}
			return nil
		}
		o := a.outcome(derr)
		doubt = doubt || write && o == unknown
		err = s.describe(ctx, a, derr)
		a.end()
		last := o == failed || n == s.o.Attempts-1
		if !doubt {
			if v := verdict(derr, last); v != nil {
				err = v
				break
			}
		}
		if last || ctx.Err() != nil {
			break
		}
	}
	if doubt {
		return fmt.Errorf("%s %s: %w: %w", what, key, store.ErrUncertain, err)
	}
	return fmt.Errorf("%s %s: %w", what, key, err)
}

// maxText is how much of a server's text goes into an error.
const maxText = 300

// describe makes an error of ours of one of the client: with the status, without secrets, and with the cause where the context ended it.
func (s *Store) describe(ctx context.Context, a *attempt, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if cause := context.Cause(a.ctx); cause != nil {
		return cause
	}
	var r minio.ErrorResponse
	if !errors.As(err, &r) {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("the answer ends early: %w", io.ErrUnexpectedEOF)
		}
		return errors.New(s.redact(err.Error()))
	}
	return errors.New(s.redact(fmt.Sprintf("status %d %s: %s", r.StatusCode, r.Code, r.Error())))
}

// redact takes the credentials out of a text that others have made, and shortens it.
func (s *Store) redact(text string) string {
	for _, secret := range []Secret{s.o.SecretKey, s.o.SessionToken, s.o.AccessKey} {
		if secret != "" {
			text = strings.ReplaceAll(text, string(secret), secret.String())
		}
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
