package node

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/shard/wal"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs"
)

// secret stands for what no caller may see: a path, or the text of an error of the program.
const secret = "/srv/secret/path"

func TestErrorsBecomeProblems(t *testing.T) {
	n := &Node{cfg: Config{}.ensureDefaults()}
	full := &os.PathError{Op: "write", Path: secret, Err: syscall.ENOSPC}
	tests := []struct {
		err    error
		code   api.Code
		status int
	}{
		{&admit.Refusal{Gate: front.GateSearches, RetryAfter: time.Second}, api.TooManySearches, 429},
		{&admit.Refusal{Gate: front.GateWrites, RetryAfter: time.Second}, api.TooManyWrites, 429},
		{&admit.Refusal{Gate: front.GateBulks, RetryAfter: time.Second}, api.TooManyBulks, 429},
		{&admit.Refusal{Gate: front.GateMemory, RetryAfter: time.Second}, api.RequestMemoryFull, 429},
		{&admit.Refusal{Gate: front.GateAnalyses, RetryAfter: time.Second}, api.RequestMemoryFull, 429},
		{&query.SyntaxError{Position: 3, Expected: "a word", Found: "end"}, api.InvalidQuery, 400},
		{&query.LimitError{What: "depth", Limit: 32, Got: 33, Position: 5}, api.QueryLimit, 400},
		{&exec.QueryError{Code: "unknown_field", Field: "x", Reason: "the index has no such field"}, api.UnknownField, 400},
		{&exec.QueryError{Code: "field_not_searchable", Field: "x"}, api.FieldNotSearchable, 400},
		{&exec.QueryError{Code: "field_not_fast", Field: "x"}, api.FieldNotFast, 400},
		{&exec.QueryError{Code: "no_positions", Field: "x"}, api.NoPositions, 400},
		{&exec.QueryError{Code: "invalid_bound", Field: "x"}, api.InvalidBound, 400},
		{&exec.QueryError{Code: "too_many_tokens", Field: "x"}, api.TooManyTokens, 400},
		{&exec.QueryError{Code: "prefix_too_broad", Field: "x"}, api.PrefixTooBroad, 400},
		{&exec.QueryError{Code: "a code of tomorrow", Field: "x"}, api.InvalidQuery, 400},
		{&schema.ParseError{Line: 2, Col: 3, Msg: "what"}, api.InvalidSchema, 400},
		{&schema.FieldError{Field: "x", Msg: "what"}, api.InvalidSchema, 400},
		{&schema.ConflictError{Field: "x", Have: "text", Want: "i64"}, api.SchemaConflict, 409},
		{&shard.InvalidError{Key: "k", Field: "x", Reason: "what"}, api.InvalidDocument, 400},
		{&shard.OverloadError{Limit: "memtable_bytes", RetryAfter: time.Second}, api.MemtableFull, 429},
		{&memoryError{used: 2, limit: 1, retry: time.Second}, api.MemtableFull, 429},
		{&unavailableError{name: "x", opening: true}, api.NotReady, 503},
		{&unavailableError{name: "x", cause: errors.New(secret)}, api.IndexUnavailable, 503},
		{full, api.DiskFull, 507},
		{&shard.ReadOnlyError{Cause: full}, api.DiskFull, 507},
		{&shard.ReadOnlyError{Cause: fmt.Errorf("log: %w", wal.ErrNoSpace)}, api.DiskFull, 507},
		{&DataDirError{Path: secret, Reason: ErrDirFull, Cause: syscall.ENOSPC}, api.DiskFull, 507},
		{&DataDirError{Path: secret, Reason: ErrDirUnusable, Cause: syscall.EIO}, api.ReadOnly, 503},
		{&DataDirError{Path: secret, Reason: ErrDirUnusable, Cause: vfs.ErrUncertain}, api.WriteUncertain, 500},
		{&shard.ReadOnlyError{Cause: errors.New(secret), Uncertain: true}, api.WriteUncertain, 500},
		{&shard.ReadOnlyError{Cause: errors.New(secret)}, api.ReadOnly, 503},
		{wal.ErrFailed, api.ReadOnly, 503},
		{shard.ErrFenced, api.ReadOnly, 503},
		{shard.ErrExists, api.InvalidDocument, 400},
		{errOnCommit, api.CommitNeeded, 409},
		{shard.ErrClosed, api.ShuttingDown, 503},
		{shard.ErrMissingObject, api.IndexUnavailable, 503},
		{segment.ErrCorrupt, api.IndexUnavailable, 503},
		{wal.ErrCorrupt, api.IndexUnavailable, 503},
		{store.ErrCorrupt, api.IndexUnavailable, 503},
		{shard.ErrDamaged, api.IndexUnavailable, 503},
		{shard.ErrTooLarge, api.DocumentTooLarge, 413},
		{errNoIndex, api.IndexNotFound, 404},
		{errDropped, api.IndexDeleted, 409},
		{errIndexFull, api.IndexLimit, 429},
		{front.ErrClosing, api.ShuttingDown, 503},
		{front.ErrTimeout, api.Timeout, 504},
		{context.DeadlineExceeded, api.Timeout, 504},
		{context.Canceled, api.CallerGone, 499},
		{api.NewProblem(api.InvalidID, "an own problem"), api.InvalidID, 400},
		{errors.New(secret), api.Internal, 500},
	}
	seen := map[api.Code]bool{}
	for _, tt := range tests {
		// Wrapping must not hide what an error is, and its text must not show.
		p := n.problem(context.Background(), fmt.Errorf("open %s: %w", secret, tt.err))
		if p.Code != tt.code || p.HTTPStatus() != tt.status {
			t.Errorf("%T %v: got %s (%d), want %s (%d)", tt.err, tt.err, p.Code, p.HTTPStatus(), tt.code, tt.status)
		}
		if text := string(p.AppendJSON(nil)); strings.Contains(text, "secret") {
			t.Errorf("%v shows what callers may not see: %s", tt.err, text)
		}
		if p.HTTPStatus() == 429 && p.RetryAfterMS == 0 {
			t.Errorf("%v: a refusal without retry_after_ms", tt.err)
		}
		seen[p.Code] = true
	}
	// The rest of the table is made where it is detected, and seen in the tests of the calls.
	elsewhere := []api.Code{
		api.InvalidJSON, api.InvalidUTF8, api.ScoreOverflow, api.UnknownParameter, api.InvalidParameter, api.MissingParameter,
		api.RepeatedParameter, api.InvalidField, api.ReplyTooLarge, api.InvalidIndexName, api.NothingApplied, api.InvalidBody, api.NotFound,
		api.DocumentNotFound, api.MethodNotAllowed, api.BodyTimeout, api.BodyTooLarge, api.DocumentTooLarge, api.URITooLong, api.HeadersTooLarge, api.UnsupportedMediaType,
		api.UnsupportedEncoding, api.Incomplete, api.FieldNotSortable, api.InvalidCursor, api.CursorMismatch,
		api.StaleMap, api.LoadUnderWay, api.LoadMoved,
		api.GroupUnavailable, api.JobNotFound, api.JobConflict, // of coordinators
	}
	for _, code := range []api.Code{api.Code(knn.CodeNotVector), api.Code(knn.CodeVector)} {
		if p := n.problem(context.Background(), &exec.QueryError{Code: string(code)}); p.Code != code {
			t.Errorf("%s of a vector search becomes %s", code, p.Code)
		}
		seen[code] = true
	}
	for _, code := range []agg.Code{agg.CodeInvalid, agg.CodeLimit, agg.CodeUnknownField, agg.CodeFieldType, agg.CodeNoColumn, agg.CodeMismatch} {
		if p := n.problem(context.Background(), &agg.SpecError{Code: code, Position: -1}); string(p.Code) != string(code) {
			t.Errorf("%s of an aggregation becomes %s", code, p.Code)
		}
		seen[api.Code(code)] = true
	}
	for _, code := range []string{
		jsondoc.CodeInvalidJSON, jsondoc.CodeInvalidUTF8, jsondoc.CodeDuplicateMember, jsondoc.CodeMissingID, jsondoc.CodeInvalidID, jsondoc.CodeUnknownField,
		jsondoc.CodeTypeConflict, jsondoc.CodeNumberOutOfRange, jsondoc.CodeValueTooLong, jsondoc.CodeTooManyValues, jsondoc.CodeTooManyFields,
		jsondoc.CodeInvalidFieldName, jsondoc.CodeTooDeep, jsondoc.CodeDocumentTooLarge,
	} {
		if p := api.DocProblem(&jsondoc.DocError{Code: code}); string(p.Code) != code {
			t.Errorf("code %s of a document becomes %s", code, p.Code)
		}
		seen[api.Code(code)] = true
	}
	for code := range api.Codes {
		if !seen[code] && !slices.Contains(elsewhere, code) {
			t.Errorf("%s has no row in this test", code)
		}
	}
}

// TestEveryCodeOfTheEngineIsInTheTable reads the codes out of the engine's source.
func TestEveryCodeOfTheEngineIsInTheTable(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "shard", "exec", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			kv, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Code" {
				text, err := strconv.Unquote(kv.Value.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatalf("%s: a code that is not a literal: %v", name, err)
				}
				codes[text] = true
			}
			return true
		})
	}
	if len(codes) < 5 {
		t.Fatalf("found only %v", codes)
	}
	for code := range codes {
		if _, ok := api.Codes[bound.EngineCode(code)]; !ok || bound.EngineCode(code) == api.InvalidQuery {
			t.Errorf("%s is not in the table of codes", code)
		}
	}
}

func TestReadOnlyReasonsSayWhatEndsThem(t *testing.T) {
	n := &Node{cfg: Config{}.ensureDefaults()}
	full := &wal.FailedError{Op: "write", File: secret, Err: syscall.ENOSPC, NoSpace: true}
	failed := &wal.FailedError{Op: "sync", File: secret, Err: syscall.EIO}
	const restart = "restart"
	for name, tt := range map[string]struct {
		err     error
		want    string
		restart bool
	}{
		"full disk":       {full, "by themselves", false},
		"failing fsync":   {failed, "after the restart", true},
		"unknown commit":  {store.ErrUncertain, "after the restart", true},
		"other owner":     {shard.ErrFenced, "took the index over", false},
		"failing flushes": {&os.PathError{Op: "write", Path: secret, Err: syscall.EIO}, "keeps trying", false},
	} {
		p := n.problem(context.Background(), &shard.ReadOnlyError{Cause: fmt.Errorf("write the log: %w", tt.err)})
		if !strings.Contains(p.Detail, tt.want) || strings.Contains(p.Detail, restart) != tt.restart || strings.Contains(p.Detail, secret) {
			t.Errorf("%s: %q", name, p.Detail)
		}
	}
}

func TestCauseOfTheContextExplains(t *testing.T) {
	n := &Node{cfg: Config{}.ensureDefaults()}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errDropped)
	if p := n.problem(ctx, fmt.Errorf("search: %w", context.Canceled)); p.Code != api.IndexDeleted {
		t.Errorf("got %s", p.Code)
	}
}

func TestFailureReasons(t *testing.T) {
	const unclear = "the log of the server tells why"
	for _, err := range []error{
		shard.ErrNewerFormat, segment.ErrNewerFormat, wal.ErrNewerFormat, store.ErrNewerFormat, segment.ErrCorrupt, wal.ErrCorrupt, wal.ErrTrimmed,
		store.ErrCorrupt, shard.ErrDamaged, shard.ErrMissingObject,
	} {
		if got := failureReason(fmt.Errorf("open %s: %w", secret, err)); !strings.Contains(got, "weft doctor") || strings.Contains(got, secret) {
			t.Errorf("%v: %q", err, got)
		}
	}
	for _, err := range []error{vfs.ErrLocked, syscall.ENOSPC, syscall.EACCES, syscall.EROFS} {
		if got := failureReason(fmt.Errorf("open %s: %w", secret, err)); got == unclear || strings.Contains(got, secret) {
			t.Errorf("%v: %q", err, got)
		}
	}
	if got := failureReason(errors.New(secret)); got != unclear {
		t.Errorf("another error: %q", got)
	}
}
