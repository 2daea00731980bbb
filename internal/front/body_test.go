package front

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// TestInterruptedBodyClosesTheConnection: after an interruption net/http may hold the connection for broken, so that it is not
// kept; once the reading is over nothing interrupts it.
func TestInterruptedBodyClosesTheConnection(t *testing.T) {
	s := newServer(t, Config{})
	for _, late := range []bool{false, true} {
		rec := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		rw := &replyWriter{ResponseWriter: rec}
		c := &Call{s: s, w: rw, r: httptest.NewRequest("POST", "/index", strings.NewReader("x")), ctx: t.Context(), conn: http.NewResponseController(rw)}
		ctx, cancel := context.WithCancel(t.Context())
		src, stop := c.Timed(ctx)
		tr := src.(*timedReader)
		if late {
			if _, err := io.ReadAll(src); err != nil {
				t.Fatal(err)
			}
		}
		tr.interrupt()
		cancel()
		stop()
		if got := rec.last; !got.IsZero() {
			t.Errorf("late %v: the deadline %v is left behind", late, got)
		}
		c.reply(200, TypeJSON, []byte("{}"))
		want := ""
		if !late {
			want = "close"
		}
		if got := rec.Header().Get("Connection"); got != want {
			t.Errorf("late %v: Connection %q, want %q", late, got, want)
		}
		if rec.past == late {
			t.Errorf("late %v: the body was interrupted %v", late, rec.past)
		}
	}
}

// deadlines remembers the read deadlines that were set.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
	past bool // one was in the past
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.last = at
	d.past = d.past || !at.IsZero() && at.Before(time.Unix(2, 0))
	return nil
}

func (d *deadlines) SetWriteDeadline(time.Time) error { return nil }

// A server whose calendar is before 1970 waited for its clients to send something before it answered them.
func TestADeadlineInThePastIsSoForEveryCalendar(t *testing.T) {
	if past.IsZero() || !past.Before(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("it is %v", past)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(past); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read gives %d, %v", n, err)
	}
	if err := errors.Join(c.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}
