package leaf

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/serve/replica"
)

func TestWhatAnErrorAllows(t *testing.T) {
	problem := func(code api.Code) error { return fmt.Errorf("search: %w", api.NewProblem(code, "")) }
	for _, c := range []struct {
		name        string
		err         error
		class       Class
		read, write bool
		verdict     replica.Verdict
	}{
		{"a bad request", problem(api.InvalidQuery), Never, false, false, replica.Fine},
		{"no such index", problem(api.IndexNotFound), Never, false, false, replica.Fine},
		{"too many searches", problem(api.TooManySearches), Here, true, true, replica.Busy},
		{"full memtables", problem(api.MemtableFull), Here, true, true, replica.Busy},
		{"a node that closes", problem(api.ShuttingDown), Elsewhere, true, true, replica.Faulty},
		{"an index that cannot be opened", problem(api.IndexUnavailable), Elsewhere, true, true, replica.Faulty},
		{"an index that takes no writes", problem(api.ReadOnly), Elsewhere, true, true, replica.Faulty},
		{"a write that met a failing disk", problem(api.WriteUncertain), Elsewhere, true, false, replica.Faulty},
		{"a node that fails", problem(api.Internal), Elsewhere, true, false, replica.Faulty},
		{"a deadline of the node", problem(api.Timeout), Elsewhere, true, false, replica.Faulty},
		{"a full disk", problem(api.DiskFull), Elsewhere, true, false, replica.Faulty},
		{"no connection", &TransportError{Cause: errors.New("refused")}, Elsewhere, true, true, replica.Faulty},
		{"a lost reply", &TransportError{Cause: errors.New("reset"), MaybeApplied: true}, Elsewhere, true, false, replica.Faulty},
		{"a caller that left", &TransportError{Cause: context.Canceled}, Never, false, false, replica.Fine},
		{"a caller that left at once", context.Canceled, Never, false, false, replica.Fine},
		{"another error", errors.New("what"), Elsewhere, true, false, replica.Faulty},
	} {
		if got := ClassOf(c.err); got != c.class {
			t.Errorf("%s: class %d, want %d", c.name, got, c.class)
		}
		if got := RetryRead(c.err); got != c.read {
			t.Errorf("%s: a read may be tried elsewhere: %t", c.name, got)
		}
		if got := RetryWrite(c.err); got != c.write {
			t.Errorf("%s: a write may be tried elsewhere: %t", c.name, got)
		}
		if got := Judge(c.err); got != c.verdict {
			t.Errorf("%s: verdict %d, want %d", c.name, got, c.verdict)
		}
	}
}
