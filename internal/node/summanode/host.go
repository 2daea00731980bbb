package summanode

import (
	"context"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/summa"
)

// Host is the node below the services. All methods are safe for concurrent use.
type Host interface {
	// Enter counts a call in; false says that the node is closing.
	Enter() bool
	Leave()
	// Use returns the named index for a call, which has to release it. Errors are for Refusal.
	Use(ctx context.Context, name string) (*Index, error)
	// Create makes an index; made is false if there is one already, which stays as it is.
	Create(ctx context.Context, name string, s *schema.Schema, onCommit bool) (made bool, err error)
	// Delete removes an index; one that is not there is no error.
	Delete(ctx context.Context, name string) error
	// Names lists the indexes, ascending.
	Names() []string
	// Write applies operations of so many bytes. It waits for room for a bounded time.
	Write(ctx context.Context, i *Index, ops []shard.Op, bytes int) ([]shard.OpResult, error)
	// Full tells whether an error of Write is want of room that will pass.
	Full(err error) bool
	// Refusal is what the caller is told of an error of the node.
	Refusal(ctx context.Context, err error) *summa.Error
	// Charge waits for more memory, for a bounded time, for a call that has some. What is given is less where the call would have more than
	// there is in all: then it has it to itself. release gives it back.
	Charge(ctx context.Context, have, more int64) (given int64, release func(), err error)
	// MemoryLimit is what Charge gives out in all.
	MemoryLimit() int64
	// Samples emits the state of every open index.
	Samples(emit func(obs.IndexSample))
	// Counted counts documents.
	Counted(indexed, rejected, deleted int)
}

// Engine is what the services need of a shard.
type Engine interface {
	Schema() *schema.Schema
	Snapshot() *shard.Snapshot
	Commit(ctx context.Context) error
	Merge(ctx context.Context, maxSegments int) error
	// AlterVectors gives a vector field other options of how its vectors are found; pending says that there are segments with others yet, which
	// Rebuild makes anew.
	AlterVectors(ctx context.Context, f *schema.Field) (pending bool, err error)
	Rebuild(ctx context.Context) error
	Stats() shard.Stats
}

// Index is an index in use by one call.
type Index struct {
	Name   string
	Engine Engine
	// Context ends when the index is deleted, with the cause.
	Context context.Context
	// OnCommit says that writes show when they are committed; else they do at once, and a commit has nothing to do.
	OnCommit bool
	// Analyzers are those of a schema of the index.
	Analyzers func(s *schema.Schema) (exec.Analyzers, error)
	Release   func()
}

// View is a snapshot of an index to search. The order of leaves is that of their names, by which equal scores stand.
type View struct {
	Schema    *schema.Schema
	Analyzers exec.Analyzers
	Leaves    []exec.Leaf
	Segments  []string // the name of each leaf, 32 hexadecimal digits, ascending
	// Charge is to be told of what a reply takes in memory before it is made. Its error ends the search.
	Charge func(bytes int) error
}

// Searcher answers searches over a view. The requests have passed the checks of summa.Limits; errors that the caller caused are
// *summa.Error.
type Searcher interface {
	Search(ctx context.Context, v *View, req *summapb.SearchRequest, w summa.Window, l summa.Limits) (*summapb.SearchResponse, error)
	TextStats(ctx context.Context, v *View, q *summapb.Query, l summa.Limits) (*summapb.TextStats, error)
}
