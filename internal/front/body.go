package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
)

// Wants checks the content type and encoding of a body; allowed[0] is assumed where none is given. It returns the type.
func (c *Call) Wants(allowed ...string) (string, *api.Problem) {
	if enc := c.r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return "", api.NewProblem(api.UnsupportedEncoding, "send the body without a content encoding").On("Content-Encoding")
	}
	given := c.r.Header.Get("Content-Type")
	if given == "" {
		return allowed[0], nil
	}
	kind, args, err := mime.ParseMediaType(given)
	if err != nil || !slices.Contains(allowed, kind) {
		return "", wrongType(given, kind, allowed)
	}
	if set := args["charset"]; set != "" && !strings.EqualFold(set, "utf-8") {
		return "", api.NewProblem(api.UnsupportedMediaType, "the charset is "+strconv.Quote(api.Clip(set))+"; send utf-8").On("Content-Type")
	}
	return kind, nil
}

// wrongType is the refusal of a content type. Most often it is what a client adds that was not told.
func wrongType(given, kind string, allowed []string) *api.Problem {
	why := "the content type is " + strconv.Quote(api.Clip(given))
	if kind == "application/x-www-form-urlencoded" {
		why += ", which curl adds by itself"
	}
	return api.NewProblem(api.UnsupportedMediaType, why+"; send "+strings.Join(allowed, " or ")+" (curl: -H 'Content-Type: "+allowed[0]+"')").On("Content-Type")
}

// FirstCharge is the memory that a body is charged before its first byte. The rest is charged when this much has come: a caller
// that announces a long body and sends nothing keeps nobody else out.
const FirstCharge = 1 << 20

// Charges are the places of one body. A nil one holds nothing.
type Charges []*admit.Place

// Release gives them back.
func (c Charges) Release() {
	for _, p := range c {
		p.Release()
	}
}

// Body reads the whole body, at most limit bytes, into memory that it holds until the returned charges are released. Those of a
// problem hold nothing.
func (c *Call) Body(limit int64) ([]byte, Charges, *api.Problem) {
	tooLarge := func() *api.Problem {
		return api.NewProblem(api.BodyTooLarge, fmt.Sprintf("the body is longer than %d bytes", limit)).Within(limit)
	}
	length := c.r.ContentLength
	if length > limit {
		return nil, nil, tooLarge()
	}
	charge := length
	if charge < 0 {
		charge = limit // the length is not known before the end
	}
	if charge == 0 {
		return nil, nil, nil
	}
	place, err := c.s.memory.Enter(c.ctx, min(charge, FirstCharge))
	if err != nil {
		return nil, nil, c.s.Problem(c.ctx, err)
	}
	held := Charges{place}
	src, stop := c.Timed(c.ctx)
	defer stop()
	b, err := readSome(src, make([]byte, 0, min(charge, FirstCharge)), length)
	if err == nil && charge > FirstCharge && int64(len(b)) == FirstCharge {
		// More may come. What waits here holds little, and is refused when no room comes free.
		if place, err = c.s.memory.Enter(c.ctx, charge-FirstCharge); err != nil {
			held.Release()
			return nil, nil, c.s.Problem(c.ctx, err)
		}
		held = append(held, place)
		b, err = readSome(src, append(make([]byte, 0, charge), b...), length)
	}
	if err == nil && length < 0 && int64(len(b)) == limit {
		var more [1]byte
		var k int
		if k, err = io.ReadFull(src, more[:]); k > 0 {
			held.Release()
			return nil, nil, tooLarge()
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		held.Release()
		return nil, nil, c.s.BodyProblem(c.ctx, err)
	}
	c.read = c.read || int64(len(b)) == length
	return b, held, nil
}

// readSome appends what comes to b until its capacity is used, length bytes are there, or, for a length below 0, the stream ends.
func readSome(src io.Reader, b []byte, length int64) ([]byte, error) {
	for len(b) < cap(b) && int64(len(b)) != length {
		k, err := src.Read(b[len(b):cap(b)])
		b = b[:len(b)+k]
		if errors.Is(err, io.EOF) && int64(len(b)) != length {
			if length >= 0 {
				return b, io.ErrUnexpectedEOF
			}
			return b, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return b, err
		}
	}
	return b, nil
}

// leastRate is how many bytes of a body have to come for each second that was waited for them, when that was longer than the configured stall.
// Else few callers, who send a byte now and then, could hold all places of bulk loads for as long as they like.
const leastRate = 1 << 10

// errSlowBody is how a body ends that comes more slowly.
var errSlowBody = fmt.Errorf("less than %d bytes of the body come in a second: %w", leastRate, os.ErrDeadlineExceeded)

// Timed returns the request's body as a reader on which no single read waits longer than the configured stall, and all of them together
// only while leastRate is kept, and which fails at once when ctx ends. stop must be called when reading is over, before the reply; calling it again does nothing.
func (c *Call) Timed(ctx context.Context) (src io.Reader, stop func()) {
	t := &timedReader{call: c, ctx: ctx, stall: c.s.cfg.Limits.BodyStall}
	unhook := context.AfterFunc(ctx, t.interrupt)
	c.writeBy(time.Now().Add(t.stall)) // the first read may ask the caller to go on, and an earlier reply has left its deadline
	return t, func() {
		unhook()
		t.end()
	}
}

// timedReader is a body with a deadline that moves.
//
// At the end of a body net/http begins to read on by itself, to learn whether the caller hangs up. A deadline that this reading
// meets ends the context of the connection, and with it every later call on it: from the end on there must be none.
type timedReader struct {
	call  *Call
	ctx   context.Context
	stall time.Duration
	next  time.Time // when the deadline is to be moved again

	came   int64         // bytes
	waited time.Duration // for them; the time that the reader takes is none of the sender's

	mu   sync.Mutex
	over bool // no deadline is set any more; under mu
}

// past is a deadline that ends a read at once, whatever the calendar says: with one before 1970 the beginning of 1970 is still to come.
var past = time.Time{}.Add(1)

// interrupt makes a read under way fail, and all that follow.
func (t *timedReader) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.call.cut.Store(true) // the read may meet the end of the body all the same
	if err := t.call.conn.SetReadDeadline(past); err != nil && !errors.Is(err, http.ErrNotSupported) {
		t.call.s.log.Debug("interrupt body", "error", err)
	}
}

// end takes the deadline away, for good.
func (t *timedReader) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	if err := t.call.conn.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		t.call.s.log.Debug("clear read deadline", "error", err)
	}
}

func (t *timedReader) Read(b []byte) (int, error) {
	now := time.Now()
	if now.After(t.next) && !t.call.read {
		// Moved once for a while of reading, not for every read: a read waits at least stall, at most an eighth longer.
		t.next = now.Add(t.stall / 8)
		if err := t.call.conn.SetReadDeadline(t.next.Add(t.stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return 0, err
		}
	}
	if err := context.Cause(t.ctx); err != nil {
		return 0, err
	}
	n, err := t.call.r.Body.Read(b)
	t.came, t.waited = t.came+int64(n), t.waited+time.Since(now)
	if err == nil && t.waited > t.stall && t.came < int64(t.waited.Seconds()*leastRate) {
		t.call.stalled = true
		return n, errSlowBody
	}
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		t.call.read = true
		t.end()
		return n, err
	}
	t.call.stalled = errors.Is(err, os.ErrDeadlineExceeded)
	// The server cancels the request's context when a read fails, so that a plain cancellation says no more than err does. Any
	// other cause is why the read was interrupted.
	if cause := context.Cause(t.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return n, cause
	}
	return n, err
}

// BodyProblem says why a body could not be read to its end.
func (s *Server) BodyProblem(ctx context.Context, err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		again := *p
		return &again
	}
	switch {
	case errors.Is(err, errSlowBody):
		return &api.Problem{Code: api.BodyTimeout, Detail: fmt.Sprintf("less than %d bytes of the body came in a second, for longer than %v", leastRate, s.cfg.Limits.BodyStall), Cause: err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &api.Problem{Code: api.BodyTimeout, Detail: fmt.Sprintf("no byte of the body came for %v", s.cfg.Limits.BodyStall), Cause: err}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &api.Problem{Code: api.InvalidBody, Detail: "the body ended before the length that was announced", Cause: err}
	case context.Cause(ctx) != nil:
		return s.Problem(ctx, context.Cause(ctx))
	}
	return &api.Problem{Code: api.InvalidBody, Detail: "the body could not be read to its end", Cause: err}
}
