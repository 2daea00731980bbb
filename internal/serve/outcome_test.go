package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// crashError is an error of a call that may have brought its leaf down.
type crashError struct{ crashed bool }

func (e *crashError) Error() string { return "connection lost" }
func (e *crashError) Crash() bool   { return e.crashed }

func TestOutcomeOf(t *testing.T) {
	plain := errors.New("plain")
	caused, cancel := context.WithCancelCause(t.Context())
	cancel(outcomeError(Refused))
	timed, stop := context.WithDeadlineCause(t.Context(), time.Unix(0, 0), plain)
	defer stop()
	for name, c := range map[string]struct {
		err  error
		want Outcome
	}{
		"none":                         {nil, Answered},
		"plain":                        {plain, Failed},
		"deadline":                     {context.DeadlineExceeded, TimedOut},
		"canceled":                     {context.Canceled, TimedOut},
		"deadline of a connection":     {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, TimedOut},
		"wrapped deadline":             {fmt.Errorf("a: %w", fmt.Errorf("b: %w", context.DeadlineExceeded)), TimedOut},
		"says so":                      {outcomeError(Unavailable), Unavailable},
		"skipped by the leaf":          {outcomeError(Skipped), Skipped},
		"wrapped, says so":             {fmt.Errorf("a: %w", outcomeError(Refused)), Refused},
		"joined":                       {errors.Join(plain, outcomeError(Refused)), Refused},
		"joined, the first decides":    {errors.Join(outcomeError(Unavailable), outcomeError(Refused)), Unavailable},
		"joined, method over deadline": {errors.Join(context.DeadlineExceeded, outcomeError(Refused)), Refused},
		"joined with a deadline":       {errors.Join(plain, context.DeadlineExceeded), TimedOut},
		"the outer decides":            {fmt.Errorf("%w: %w", outcomeError(Unavailable), context.DeadlineExceeded), Unavailable},
		"an error never answered":      {outcomeError(Answered), Failed},
		"no outcome":                   {outcomeError(0), Failed},
		"out of range":                 {outcomeError(200), Failed},
		"cause with an outcome":        {context.Cause(caused), Refused},
		"cause without one":            {context.Cause(timed), Failed},
		"panic":                        {&PanicError{Value: context.DeadlineExceeded}, Failed},
		"not started":                  {&notStarted{plain}, TimedOut},
		"suspect after a crash":        {&SuspectError{Err: &crashError{true}}, Failed},
		"suspect without a verdict":    {&SuspectError{Err: fmt.Errorf("%w: %w", errNoVerdict, outcomeError(Unavailable))}, Unavailable},
		"insufficient":                 {&InsufficientError{Tally: TallyOf(Refused, 2).Plus(TallyOf(Failed, 1))}, Refused},
		"insufficient without a shard": {&InsufficientError{}, Unavailable},
	} {
		if got := OutcomeOf(c.err); got != c.want {
			t.Errorf("%s: %v is %v, want %v", name, c.err, got, c.want)
		}
	}
	// Given the context of the call, its cause is the end of its time, whatever it is.
	if got := outcomeIn(timed, fmt.Errorf("at host: %w", plain)); got != TimedOut {
		t.Errorf("the cause of the context is %v", got)
	}
	if got := outcomeIn(t.Context(), plain); got != Failed {
		t.Errorf("of a context that lives: %v", got)
	}
	if got := outcomeIn(timed, &PanicError{Value: plain}); got != Failed {
		t.Errorf("a panic at the end of the time is %v", got)
	}
}

func TestOutcomeNames(t *testing.T) {
	want := map[Outcome]string{
		0: "unknown", Answered: "answered", Skipped: "skipped", TimedOut: "timed_out", Refused: "refused",
		Unavailable: "unavailable", Failed: "failed", numOutcomes: "unknown", 255: "unknown",
	}
	for o, s := range want {
		if o.String() != s {
			t.Errorf("%d is %q, want %q", o, o, s)
		}
		if o.Covered() != (o == Answered || o == Skipped) {
			t.Errorf("%v covered: %v", o, o.Covered())
		}
	}
}

func TestCrashed(t *testing.T) {
	yes, no, plain := &crashError{true}, &crashError{false}, errors.New("plain")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{plain, false},
		{no, false},
		{yes, true},
		{&PanicError{Value: 1}, true},
		{fmt.Errorf("a: %w", yes), true},
		{errors.Join(plain, no, fmt.Errorf("b: %w", yes)), true},
		{errors.Join(plain, no), false},
		{&SuspectError{Err: yes}, true},
		{&SuspectError{Err: no}, false},
		{&InsufficientError{Errs: []error{nil, plain, yes}}, true},
		{&InsufficientError{Errs: []error{nil, plain}}, false},
	} {
		if got := Crashed(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	for want, err := range map[string]error{
		"list 3 is not sorted at position 7":                  &UnsortedError{3, 7},
		"the call was not started: context deadline exceeded": &notStarted{context.DeadlineExceeded},
		"the call panicked: boom":                             &PanicError{Value: "boom"},
		"the call ended its goroutine":                        &PanicError{},
		"too few shards answered: 1 of 3 covered: 1 answered, 2 refused": &InsufficientError{
			Tally: TallyOf(Answered, 1).Plus(TallyOf(Refused, 2)),
		},
		"queries of class 00000000000000ff are suspect of crashing leaves: connection lost": &SuspectError{255, &crashError{true}},
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

func TestTally(t *testing.T) {
	all := Tally{}
	for o := range numOutcomes {
		all = all.Plus(TallyOf(o, int(o)+1))
	}
	if all.Total() != 28 || all.Covered() != 5 || all.Missing() != 23 || all.Complete() || all.Count(0) != 1 || all.Count(Failed) != 7 {
		t.Fatal(all)
	}
	if all.Count(200) != 0 || TallyOf(200, 3).Count(0) != 3 {
		t.Fatal("an outcome out of range")
	}
	if got := (Tally{}); got.Fraction() != 1 || !got.Complete() || got.String() != "0 of 0 covered" {
		t.Fatal(got)
	}
	if got := all.String(); got != "5 of 28 covered: 2 answered, 3 skipped, 4 timed_out, 5 refused, 6 unavailable, 7 failed, 1 unknown" {
		t.Fatal(got)
	}
	if got := all.lost(Refused); got.Covered() != 0 || got.Total() != all.Total() || got.Count(Refused) != 10 {
		t.Fatal(got)
	}
}
