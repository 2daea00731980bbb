package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/store"
)

// ledgerKey is where a store has the ledger.
const ledgerKey = "topology/jobs.json"

const (
	ledgerFormat  = 1
	maxLedger     = 1 << 20 // bytes
	maxEnded      = 64      // jobs that have ended and are remembered
	swapAttempts  = 32      // of a change of the ledger that others are changing, too
	mostSwapPause = 50 * time.Millisecond
)

// errLedgerFormat says that the ledger was written by a newer version.
var errLedgerFormat = errors.New("the ledger of jobs was written by a newer version")

// book is the content of the ledger: all jobs, and who does them. It is one object, so that whoever begins a job, ends one or takes it over
// does so by one compare and swap.
type book struct {
	Format int       `json:"format"`
	Rev    uint64    `json:"rev"` // grows with every change
	Lease  *lease    `json:"lease"`
	Jobs   []*record `json:"jobs"` // the oldest first
	// Compared is when members were last compared in the background, in Unix milliseconds.
	Compared int64 `json:"compared,omitempty"`
}

// lease says who does the jobs. It holds for as long as its beat keeps changing: clocks of two machines are never compared.
type lease struct {
	Owner string `json:"owner"`
	Beat  uint64 `json:"beat"`
}

// stage is how far a rebalance is, as far as the shard map does not say it.
type stage string

const (
	// stageSweep: documents that stand on groups that do not own them are put in order; no move has begun.
	stageSweep stage = "sweep"
	// stageMove: from just before the move begins.
	stageMove stage = "move"
)

// record is a job in the ledger.
type record struct {
	ID      string `json:"id"`
	Kind    Kind   `json:"kind"`
	State   State  `json:"state"`
	Started int64  `json:"started"` // Unix milliseconds
	// Cancel says that the job is to be given up. State is what callers asked for until the job ends; both are never changed by who
	// does the job, but for its end.
	Cancel bool `json:"cancel,omitempty"`
	// Force says that a repair takes each primary for right, also one that may have lost its documents. It never changes.
	Force bool `json:"force,omitempty"`

	progress
}

// progress is what whoever does a job has come to. The ledger may be some batches behind.
type progress struct {
	Error string   `json:"error,omitempty"`
	Away  []string `json:"away,omitempty"` // members that are waited for; replaced as a whole. It holds while Error is not empty
	Done  uint64   `json:"done"`
	Total uint64   `json:"total"`

	From     int    `json:"from,omitempty"`
	To       int    `json:"to,omitempty"`
	Stage    stage  `json:"stage,omitempty"`
	Adopts   string `json:"adopts,omitempty"` // the job that began the move
	Cursor   cursor `json:"cursor"`
	Moved    uint64 `json:"moved,omitempty"`
	Deferred uint64 `json:"deferred,omitempty"`
	Missing  uint64 `json:"missing_at_source,omitempty"`
	// Refused is why the move was given up: documents that a shard does not take. Empty: it was not.
	Refused string `json:"refused,omitempty"`

	Groups []GroupRepair `json:"groups,omitempty"` // of a repair: those that are through
	Failed bool          `json:"failed,omitempty"` // of a repair: something could not be looked at or put right
	Why    string        `json:"why,omitempty"`    // of that, or of Deferred
}

// cursor is a place in the documents of the cluster: everything before it is done. It holds for one phase.
type cursor struct {
	Phase  string `json:"phase,omitempty"`
	Index  string `json:"index,omitempty"`
	Group  int    `json:"group,omitempty"`
	Member int    `json:"member,omitempty"` // place in its group
	After  string `json:"after,omitempty"`  // id
	Ended  bool   `json:"ended,omitempty"`  // there is nothing behind it
}

func (r *record) ended() bool { return r.State != Running && r.State != Paused }

// job is the record as callers see it.
func (r *record) job() Job {
	out := Job{
		ID: r.ID, Kind: r.Kind, State: r.State, Done: r.Done, Total: r.Total, Moved: r.Moved, Started: time.UnixMilli(r.Started).UTC(), Error: r.Error,
		FailedAddresses: []string{}, Cancelling: r.Cancel && r.State == Running,
	}
	if r.State == Cancelled {
		out.Moved = 0 // the copies are deleted
	}
	for i := range r.Groups {
		out.Copied += r.Groups[i].Copied
		out.Removed += r.Groups[i].Removed
		out.FailedAddresses = append(out.FailedAddresses, r.Groups[i].Failed...)
	}
	if r.Error != "" {
		for _, addr := range r.Away {
			if !slices.Contains(out.FailedAddresses, addr) {
				out.FailedAddresses = append(out.FailedAddresses, addr)
			}
		}
	}
	return out
}

// find returns the job with the id; nil if there is none.
func (b *book) find(id string) *record {
	for _, r := range b.Jobs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// active is the job that has not ended; nil if there is none. There is never more than one.
func (b *book) active() *record {
	for _, r := range b.Jobs {
		if !r.ended() {
			return r
		}
	}
	return nil
}

// moved tells whether a rebalance of the book has moved documents so.
func (b *book) moved(from, to int) bool {
	return slices.ContainsFunc(b.Jobs, func(r *record) bool { return r.Kind == Rebalance && r.State == Done && r.From == from && r.To == to })
}

// trim forgets the oldest jobs that have ended.
func (b *book) trim() {
	for over := len(b.Jobs) - maxEnded; over > 0; over-- {
		i := slices.IndexFunc(b.Jobs, (*record).ended)
		if i < 0 {
			return
		}
		b.Jobs = slices.Delete(b.Jobs, i, i+1)
	}
}

// ledger keeps the book in a store.
type ledger struct{ s store.Store }

// read returns the book and its tag, empty where there is none yet.
func (l *ledger) read(ctx context.Context) (*book, string, error) {
	raw, in, err := store.ReadAll(ctx, l.s, ledgerKey, maxLedger)
	if errors.Is(err, store.ErrNotFound) {
		return &book{Format: ledgerFormat}, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the ledger of jobs: %w", err)
	}
	b := &book{}
	if err := json.Unmarshal(raw, b); err != nil {
		return nil, "", fmt.Errorf("read the ledger of jobs: %w", err)
	}
	if b.Format > ledgerFormat {
		return nil, "", fmt.Errorf("%w: format %d, this one reads up to %d", errLedgerFormat, b.Format, ledgerFormat)
	}
	return b, in.ETag, nil
}

// errAsItIs ends an update that has nothing to change.
var errAsItIs = errors.New("nothing to change")

// update changes the book by fn, which is called again where another coordinator was first. An error of fn is returned as it is and
// leaves the book; errAsItIs does so too and is none. The book that is returned is the one in the store.
func (l *ledger) update(ctx context.Context, fn func(b *book) error) (*book, error) {
	var last error
	for try := range swapAttempts {
		if try > 0 {
			if err := pause(ctx, rand.N(min(mostSwapPause, time.Millisecond<<min(try, 10)))); err != nil {
				return nil, err
			}
		}
		b, tag, err := l.read(ctx)
		if err != nil {
			return nil, err
		}
		if err := fn(b); errors.Is(err, errAsItIs) {
			return b, nil
		} else if err != nil {
			return nil, err
		}
		b.trim()
		b.Rev++
		raw, err := json.Marshal(b, json.Deterministic(true))
		if err != nil {
			return nil, fmt.Errorf("write the ledger of jobs: %w", err)
		}
		if len(raw) > maxLedger {
			return nil, fmt.Errorf("write the ledger of jobs: %d bytes, the limit is %d", len(raw), maxLedger)
		}
		cond := store.Absent
		if tag != "" {
			cond = store.Condition{IfMatch: tag}
		}
		_, err = l.s.Put(ctx, ledgerKey, bytes.NewReader(raw), int64(len(raw)), cond)
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, store.ErrUncertain):
			if there, _, rerr := store.ReadAll(ctx, l.s, ledgerKey, maxLedger); rerr == nil && bytes.Equal(there, raw) {
				return b, nil
			}
		case !errors.Is(err, store.ErrPrecondition):
			return nil, fmt.Errorf("write the ledger of jobs: %w", err)
		}
		last = err
	}
	return nil, fmt.Errorf("write the ledger of jobs: others keep changing it: %w", last)
}

// pause waits, or returns what ended the context.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// backoff is the wait before a try, the first of which is 1: it doubles from least to most, and is drawn from the upper half so that two do not
// try in step.
func backoff(try int, least, most time.Duration) time.Duration {
	d := min(most, least<<min(try-1, 20))
	return cmp.Or(d/2, 1) + rand.N(cmp.Or(d/2, 1))
}
