package cache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/serve"
)

// A Loader may be a leaf, and what it says of itself decides, whatever is in its errors.
func TestErrorsHaveOutcomes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want serve.Outcome
	}{
		{&RefusedError{Limit: 1}, serve.Refused},
		{&TimeoutError{Limit: time.Second, Err: context.DeadlineExceeded}, serve.TimedOut},
		{&TimeoutError{Limit: time.Second, Err: &RefusedError{}}, serve.TimedOut},
		{ErrClosed, serve.Unavailable},
		{fmt.Errorf("%w: %w", ErrClosed, context.Canceled), serve.Unavailable},
		{&PanicError{Value: context.Canceled}, serve.Failed},
		{errors.New("no such field"), serve.Failed},
	} {
		if got := serve.OutcomeOf(fmt.Errorf("shard 7: %w", c.err)); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
