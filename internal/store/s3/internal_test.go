package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/weft-search/weft/internal/store"
)

// What the end of a context makes of a write, in an attempt or before the next.
func TestTryAndTheEndOfItsContext(t *testing.T) {
	why := errors.New("no longer wanted")
	lost := errors.New("connection lost")
	for _, tc := range []struct {
		name      string
		sent      bool
		answer    error         // of each attempt
		at        time.Duration // when the context ends; 0: in the first attempt
		precond   bool
		uncertain bool
	}{
		{"refused, in the attempt", true, minio.ErrorResponse{StatusCode: 409}, 0, false, false},
		{"lost, in the attempt", true, lost, 0, false, true},
		{"not sent, in the attempt", false, lost, 0, false, false},
		{"settled, in the attempt", true, minio.ErrorResponse{StatusCode: 412}, 0, true, false},
		{"refused, before the next", true, minio.ErrorResponse{StatusCode: 409}, time.Millisecond, false, false},
		{"lost, before the next", true, lost, time.Millisecond, false, true},
		{"not sent, before the next", false, lost, time.Millisecond, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Store{o: Options{Attempts: 4, Timeout: time.Minute}}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				start, attempts := time.Now(), 0
				err := s.try(ctx, "put", "k", true, func(err error, _ bool) error {
					if code, _ := status(err); code == 412 {
						return store.ErrPrecondition
					}
					return nil
				}, func(a *attempt) error {
					attempts++
					a.sent.Store(tc.sent)
					if tc.at == 0 {
						cancel(why)
					} else {
						time.AfterFunc(tc.at, func() { cancel(why) })
					}
					return tc.answer
				})
				if errors.Is(err, store.ErrPrecondition) != tc.precond || errors.Is(err, why) == tc.precond || errors.Is(err, store.ErrUncertain) != tc.uncertain {
					t.Errorf("error %v", err)
				}
				if attempts != 1 || time.Since(start) != tc.at {
					t.Errorf("%d attempts in %v", attempts, time.Since(start))
				}
			})
		})
	}
}

// The waits between attempts grow and have a limit.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n, most := range map[int]time.Duration{1: firstWait, 2: 2 * firstWait, 4: 8 * firstWait, 20: maxWait, 1000: maxWait} {
			start := time.Now()
			wait(t.Context(), n)
			if d := time.Since(start); d < most/2 || d > most {
				t.Errorf("wait %d took %v, at most %v", n, d, most)
			}
		}
	})
}

func TestRangeAnswer(t *testing.T) {
	for _, tc := range []struct {
		header      string
		off, n, got int64
		whole       int64 // 0: not to be taken
	}{
		{"bytes 3-6/10", 3, 4, 4, 10},
		{"bytes 8-9/10", 8, 100, 2, 10},
		{"bytes 0-0/1", 0, 1, 1, 1},
		{"", 3, 4, 10, 0},               // the whole object
		{"bytes 3-6/*", 3, 4, 4, 0},     // of unknown length
		{"bytes 2-5/10", 3, 4, 4, 0},    // others
		{"bytes 3-5/10", 3, 4, 3, 0},    // fewer
		{"bytes 3-7/10", 3, 4, 5, 0},    // more
		{"bytes 3-6/10", 3, 4, 5, 0},    // a length that is not that of the range
		{"bytes 8-11/10", 8, 4, 4, 0},   // behind the end
		{"items 3-6/10", 3, 4, 4, 0},    // not bytes
		{"bytes 6-3/10", 6, 4, -2, 0},   // backwards
		{"bytes 3-6/10/9", 3, 4, 4, 0},  // no number
		{"bytes -3-6/10", -3, 4, 10, 0}, // negative
	} {
		whole, err := rangeAnswer(tc.header, tc.off, tc.n, tc.got)
		if (err == nil) != (tc.whole > 0) || whole != tc.whole {
			t.Errorf("%q for %d bytes at %d with %d bytes: %d, %v", tc.header, tc.n, tc.off, tc.got, whole, err)
		}
	}
}

func FuzzRangeAnswer(f *testing.F) {
	f.Add("bytes 3-6/10", int64(3), int64(4), int64(4))
	f.Add("bytes 0-9223372036854775807/9223372036854775807", int64(0), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, header string, off, n, got int64) {
		if off < 0 || n <= 0 || got < 0 {
			return
		}
		whole, err := rangeAnswer(header, off, n, got)
		if err != nil {
			return
		}
		if off >= whole || got != min(n, whole-off) {
			t.Fatalf("%q taken for %d bytes at %d, with %d bytes of %d", header, n, off, got, whole)
		}
	})
}

// A spool gives back what was written, again and again, and leaves no file behind.
func TestSpool(t *testing.T) {
	for _, size := range []int{0, 1, inMemory, inMemory + 1, 3*inMemory + 5} {
		dir := t.TempDir()
		p := newSpool(dir)
		want := strings.Repeat("0123456789abcde\n", size/16+1)[:size]
		for i := 0; i < size; i += 70_001 {
			if _, err := io.WriteString(p, want[i:min(size, i+70_001)]); err != nil {
				t.Fatal(err)
			}
		}
		if inFile := p.f != nil; inFile != (size > inMemory) || inFile && len(p.buf) > 0 {
			t.Errorf("%d bytes: in a file: %v, in memory: %d", size, inFile, len(p.buf))
		}
		for range 2 {
			b, err := io.ReadAll(p.reader())
			if err != nil || string(b) != want || p.size != int64(size) {
				t.Fatalf("%d bytes: read %d, %v", size, len(b), err)
			}
		}
		if err := p.release(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Write([]byte("x")); err == nil {
			t.Error("written to after it was given back")
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
}

func TestSpoolHasALimit(t *testing.T) {
	p := newSpool(t.TempDir())
	p.size = maxObject - 1
	if _, err := p.Write([]byte("ab")); err == nil {
		t.Error("more than one request may carry was taken")
	}
	if _, err := p.Write([]byte("a")); err == nil {
		t.Error("a spool that has failed goes on")
	}
	if err := p.release(); err != nil {
		t.Fatal(err)
	}
}

// Whatever text is in an error, the credentials are not.
func TestRedact(t *testing.T) {
	s := &Store{o: Options{AccessKey: "AKIAWHO", SecretKey: "hush/hush", SessionToken: "for-a-while"}}
	got := s.redact("AKIAWHO signed with hush/hush and for-a-while: " + strings.Repeat("ü", maxText))
	if !strings.HasPrefix(got, "*** signed with *** and ***: ü") || len(got) > maxText+len("…") || !strings.HasSuffix(got, "ü…") {
		t.Errorf("%q", got)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if text := fmt.Sprintf(format, s.o); strings.Contains(text, "hush") || strings.Contains(text, "while") || strings.Contains(text, "WHO") || strings.Contains(text, "68757368") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}
