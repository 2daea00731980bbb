package node

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/wal"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs"
)

// problem is the one table from errors of the engine and the node to problem documents. Details are made here, never taken from
// an error that could hold a path. An error that is not in the table is internal.
func (n *Node) problem(ctx context.Context, err error) *api.Problem {
	prob, err := front.FirstProblem(ctx, err)
	if prob != nil {
		return prob
	}
	if p := bound.EngineProblem(err); p != nil {
		return p
	}
	if p := api.SchemaProblem(err); p != nil {
		return p
	}
	if e, ok := errors.AsType[*shard.InvalidError](err); ok {
		return &api.Problem{Code: api.InvalidDocument, Field: api.Clip(e.Field), Detail: api.ClipDetail(e.Reason)}
	}
	if e, ok := errors.AsType[*shard.OverloadError](err); ok {
		return &api.Problem{
			Code: api.MemtableFull, Limit: e.Max, HasLimit: true, RetryAfterMS: front.RetryMS(e.RetryAfter),
			Detail: "memory for new documents is full until some of it is written out",
		}
	}
	if e, ok := errors.AsType[*memoryError](err); ok {
		return &api.Problem{
			Code: api.MemtableFull, Limit: e.limit, HasLimit: true, RetryAfterMS: front.RetryMS(e.retry),
			Detail: "memory for new documents of all indexes is full until some of it is written out",
		}
	}
	if e, ok := errors.AsType[*unavailableError](err); ok {
		if e.opening {
			return &api.Problem{Code: api.NotReady, Field: indexParam, RetryAfterMS: 1000, Detail: "the index is still being opened"}
		}
		return &api.Problem{Code: api.IndexUnavailable, Field: indexParam, Detail: "the index cannot be opened: " + failureReason(e.cause)} // logged when it happened
	}
	if e, ok := errors.AsType[*DataDirError](err); ok && !isDiskFull(err) {
		p := &api.Problem{Code: api.ReadOnly, Detail: "the catalog of indexes could not be written; nothing was changed", Cause: e}
		if errors.Is(err, vfs.ErrUncertain) {
			p.Code, p.Detail = api.WriteUncertain, "the catalog of indexes could not be made durable; whether the change outlives a restart is not known"
		}
		return p
	}
	if e, ok := errors.AsType[*shard.ReadOnlyError](err); ok && e.Uncertain {
		return &api.Problem{Code: api.WriteUncertain, Cause: err, Detail: "the log failed under the write: it is not visible, and whether the disk kept it is not known before a restart reads it; from now on " + readOnlyReason(err)}
	}
	switch {
	case isDiskFull(err):
		undone := "nothing of this was written"
		if e, ok := errors.AsType[*undoneError](err); ok {
			undone = e.undone
		}
		return &api.Problem{Code: api.DiskFull, RetryAfterMS: 5000, Detail: readOnlyReason(err) + "; " + undone, Cause: err}
	case errors.Is(err, shard.ErrReadOnly), errors.Is(err, wal.ErrFailed), errors.Is(err, shard.ErrFenced):
		return &api.Problem{Code: api.ReadOnly, Detail: readOnlyReason(err), Cause: err}
	case errors.Is(err, shard.ErrExists):
		return api.NewProblem(api.InvalidDocument, "the document exists already").On("id")
	case errors.Is(err, errNoIndex):
		if e, ok := errors.AsType[*noIndexError](err); ok {
			return api.NewProblem(api.IndexNotFound, fmt.Sprintf("there is no index %q; the first write to it, or PUT /indexes/{name}, makes it", api.Clip(e.name))).On(indexParam)
		}
		return api.NewProblem(api.IndexNotFound, "there is no such index; the first write to it, or PUT /indexes/{name}, makes it").On(indexParam)
	case errors.Is(err, errOnCommit):
		return api.NewProblem(api.CommitNeeded, "writes to the index show when they are committed; it is written to over HTTP or Summa, and is no shard of a cluster").On(indexParam)
	case errors.Is(err, errDropped):
		return api.NewProblem(api.IndexDeleted, "the index was deleted while the call was under way").On(indexParam)
	case errors.Is(err, errIndexFull):
		limit := int64(n.cfg.Limits.Indexes)
		return &api.Problem{
			Code: api.IndexLimit, Field: indexParam, Limit: limit, HasLimit: true, RetryAfterMS: 60_000,
			Detail: fmt.Sprintf("the node holds %d indexes, which is all it may; delete one first", limit),
		}
	case errors.Is(err, front.ErrClosing), errors.Is(err, shard.ErrClosed):
		return front.ShuttingDown()
	case errors.Is(err, shard.ErrTooLarge):
		return &api.Problem{Code: api.DocumentTooLarge, Detail: "the document is larger than the memory that an index may take for new ones", Cause: err}
	case isDamage(err), errors.Is(err, shard.ErrMissingObject):
		return &api.Problem{Code: api.IndexUnavailable, Field: indexParam, Detail: "a file of the index is damaged; weft doctor on the data folder tells which", Cause: err}
	}
	return front.LastProblem(err)
}

// undoneError is of a task that writes no documents, and failed.
type undoneError struct {
	undone string // what is so, after "…; "
	cause  error
}

func (e *undoneError) Error() string { return e.cause.Error() }
func (e *undoneError) Unwrap() error { return e.cause }

// tasks is an engine that tells of its failures what is so then.
type tasks struct{ engine }

// Commit implements engine.
func (t tasks) Commit(ctx context.Context) error {
	if err := t.engine.Commit(ctx); err != nil {
		return &undoneError{"nothing more shows than before, and what is staged stays so until the next commit", err}
	}
	return nil
}

// Merge implements engine.
func (t tasks) Merge(ctx context.Context, maxSegments int) error {
	if err := t.engine.Merge(ctx, maxSegments); err != nil {
		return &undoneError{"what shows is as it was, in more segments than were asked for", err}
	}
	return nil
}

// AlterVectors implements engine.
func (t tasks) AlterVectors(ctx context.Context, f *schema.Field) (pending bool, err error) {
	if pending, err = t.engine.AlterVectors(ctx, f); err != nil {
		err = &undoneError{"the field has the options that it had", err}
	}
	return pending, err
}

// Rebuild implements engine.
func (t tasks) Rebuild(ctx context.Context) error {
	if err := t.engine.Rebuild(ctx); err != nil {
		return &undoneError{"what shows is as it was, and some of it has not the graphs that were asked for", err}
	}
	return nil
}

// isDamage tells whether an error says that bytes on the disk are not what was written.
func isDamage(err error) bool {
	for _, e := range []error{segment.ErrCorrupt, segment.ErrDuplicateKey, wal.ErrCorrupt, wal.ErrTrimmed, store.ErrCorrupt, shard.ErrDamaged} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// isNewer tells whether an error says that a later version wrote something.
func isNewer(err error) bool {
	for _, e := range []error{shard.ErrNewerFormat, segment.ErrNewerFormat, wal.ErrNewerFormat, store.ErrNewerFormat} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// isDiskFull tells whether want of space is behind an error.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, wal.ErrNoSpace)
}

// readOnlyReason says in public words why an index takes no writes, and what ends that.
func readOnlyReason(err error) string {
	switch {
	case isDiskFull(err):
		return "the disk is full; searches go on, and writes do by themselves when there is room again"
	case errors.Is(err, shard.ErrFenced):
		return "another process took the index over; searches here go on, writes do not"
	case errors.Is(err, wal.ErrFailed), errors.Is(err, store.ErrUncertain):
		return "a write to the disk failed, and what the disk holds is not known before a restart reads it; searches go on, writes do after the restart"
	}
	return "documents in memory cannot be written out to the disk and leave no room for more; the server keeps trying, searches go on, and the log of the server tells why"
}

// failureReason says in public words why an index did not open. The log has the whole error.
func failureReason(err error) string {
	switch {
	case isNewer(err):
		return "a file of it was written by a later version of weft; weft doctor on the data folder tells which"
	case errors.Is(err, vfs.ErrLocked):
		return "another process uses it"
	case isDamage(err):
		return "a file of it is damaged; weft doctor on the data folder tells which"
	case errors.Is(err, shard.ErrMissingObject):
		return "a file of it is missing; weft doctor on the data folder tells which"
	case isDiskFull(err):
		return "the disk is full"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EPERM):
		return "its folder cannot be read or written"
	}
	return "the log of the server tells why"
}
