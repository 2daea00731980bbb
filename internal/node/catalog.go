package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/vfs"
)

// engine is what the node needs of a shard: the seam at which tests make it fail.
type engine interface {
	Schema() *schema.Schema
	AddFields(ctx context.Context, fields []schema.Field) error
	AlterVectors(ctx context.Context, f *schema.Field) (pending bool, err error)
	Apply(ctx context.Context, ops []shard.Op) ([]shard.OpResult, error)
	Disturb(ctx context.Context, keys []string, mark uint64) (last bool, err error)
	Snapshot() *shard.Snapshot
	Flush(ctx context.Context) error
	Commit(ctx context.Context) error
	Merge(ctx context.Context, maxSegments int) error
	Rebuild(ctx context.Context) error
	Version() (version, commitTS uint64)
	Stats() shard.Stats
	Close(ctx context.Context) error
}

// catalogEntry is an index in catalog.json.
type catalogEntry struct {
	Name string `json:"name"`
	Dir  string `json:"dir"` // below indexes/; a new one for each index, so that a name used again meets nothing old
	// Schema is what the index is created with, in JSON. Once there, the index has its own.
	Schema  jsontext.Value `json:"schema"`
	Created time.Time      `json:"created"`
	// Visibility says when writes show: "commit", or, left out, at once. With it the catalog is of format 2.
	Visibility string `json:"visibility,omitzero"`
	// Deleting says that the index is gone and its folder is to be removed.
	Deleting bool `json:"deleting,omitzero"`
}

// onCommit tells whether writes show only when they are committed.
func (e *catalogEntry) onCommit() bool { return e.Visibility == api.OnCommit }

// checkAnyName returns what is wrong with a name that neither HTTP nor Summa lets an index have. Over HTTP one may have two dots in a row.
func checkAnyName(name string) error {
	if p := api.CheckIndexName(name); p == nil {
		return nil
	}
	return summa.CheckIndexName(name)
}

// longestCollection is the longest name that a store takes.
const longestCollection = 64

// collection is what the index is called in its store, whose names are short. It has the store to itself.
func (e *catalogEntry) collection() string {
	if len(e.Name) > longestCollection {
		return e.Dir
	}
	return e.Name
}

type catalogContent struct {
	Indexes []catalogEntry `json:"indexes"`
}

// index is one index of the node.
//
//	opening ──▶ open ──▶ dropped
//	        └─▶ failed ─▶ dropped
type index struct {
	entry  catalogEntry
	ctx    context.Context // ends when the index is dropped or the node gives up its work
	cancel context.CancelCauseFunc

	opened chan struct{} // closed when opening is over; eng and err are set before
	eng    engine
	err    error

	keys      loadKeys // of bulk loads
	fences    fences
	instance  uint64 // drawn for each opening; see leaf.Snapshot
	analyzers atomic.Pointer[analyzerSet]

	made bool // by this process

	users sync.WaitGroup // calls that use eng; added to under catalog.mu only, while the index is in byName
}

// catalog holds the indexes of a node. Lock order: change before mu.
type catalog struct {
	node *Node

	// change is held while catalog.json is rewritten: one creation or deletion at a time.
	change sync.Mutex

	found    []*index // the indexes of catalog.json at start, for openAll alone
	unlisted []string // folders below indexes/ that no entry had at start, ascending; not changed afterwards

	// disturbed is when documents were deleted last, or were to be, of an index that is not there or went with it.
	disturbed atomic.Pointer[time.Time]

	fenced fenceRoom // of all indexes

	mu struct {
		sync.Mutex
		byName map[string]*index
		doomed []catalogEntry // deleted, folder not removed yet; changed under change too
	}
}

var (
	errDropped   = errors.New("the index was deleted")
	errNoIndex   = errors.New("no such index")
	errIndexFull = errors.New("too many indexes")
	errOnCommit  = errors.New("writes to the index show when they are committed, which the shard protocols know nothing of")
)

// load reads catalog.json. Nothing is opened.
func (c *catalog) load() error {
	c.mu.byName = make(map[string]*index)
	var content catalogContent
	if err := c.node.dir.readCatalog(&content); err != nil {
		return err
	}
	for _, e := range content.Indexes {
		bad := checkAnyName(e.Name) != nil || e.Visibility != "" && !e.onCommit() || len(e.Dir) != 36 || strings.ContainsAny(e.Dir, "/\\.")
		_, twice := c.mu.byName[e.Name]
		if bad || twice && !e.Deleting { // a name that was used again stands beside those that are being removed
			return damaged(c.node.dir.file(catalogFile), fmt.Sprintf("entry %q is not one of an index", api.Clip(e.Name)))
		}
		if e.Deleting {
			c.mu.doomed = append(c.mu.doomed, e)
			continue
		}
		i := c.newIndex(e)
		c.mu.byName[e.Name] = i
		c.found = append(c.found, i)
	}
	folders, err := c.node.dir.folders()
	if err != nil {
		return err
	}
	for _, f := range folders {
		if !slices.ContainsFunc(content.Indexes, func(e catalogEntry) bool { return e.Dir == f }) {
			c.unlisted = append(c.unlisted, f)
			c.node.log.Warn("folder of an index that is not in the catalog; it is left alone", "folder", path.Join(indexesDir, f))
		}
	}
	return nil
}

func (c *catalog) newIndex(e catalogEntry) *index {
	n, began := c.node, time.Now()
	i := &index{entry: e, opened: make(chan struct{}), instance: rand.Uint64(), keys: loadKeys{
		fs: n.dir.fs, path: path.Join(n.indexDir(e), loadKeysFile), log: n.log,
		now: time.Now, up: func() time.Duration { return time.Since(began) },
	}}
	i.ctx, i.cancel = context.WithCancelCause(c.node.ctx)
	i.fences.room = &c.fenced
	return i
}

// openAll opens every index that was there at start, a bounded number at once, and removes what was left of deleted ones. An index
// that a call makes meanwhile is opened by the call. It returns when all is done.
func (c *catalog) openAll(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(c.node.cfg.Engine.OpenAtOnce)
	for _, i := range c.found {
		g.Go(func() error {
			c.open(ctx, i)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		c.node.log.Error("open indexes", "error", err)
	}
	c.found = nil // it would keep what is deleted later
	c.change.Lock()
	defer c.change.Unlock()
	c.mu.Lock()
	doomed := slices.Clone(c.mu.doomed)
	c.mu.Unlock()
	for _, e := range doomed {
		if err := c.sweep(e); err != nil {
			c.node.log.Error("remove deleted index", "index", e.Name, "error", err)
		}
	}
}

// open opens one index and tells those that wait for it.
func (c *catalog) open(ctx context.Context, i *index) {
	defer close(i.opened)
	n := c.node
	sch, err := schema.ParseJSON(string(i.entry.Schema), text.Check)
	if err != nil {
		i.err = fmt.Errorf("read schema of index %q in the catalog: %w", i.entry.Name, err)
	} else {
		cfg := n.shardConfig(i.entry, sch)
		cfg.Disturbed = !i.made || c.disturbedLately()
		if !i.made {
			i.fences.opened()
		}
		i.eng, i.err = n.openEngine(ctx, cfg)
	}
	if i.err != nil && ctx.Err() != nil && errors.Is(i.err, ctx.Err()) {
		i.eng = nil
		n.log.Info("index not opened: the node stops, or the index is deleted", "index", i.entry.Name)
		return
	}
	if i.err != nil {
		i.eng = nil
		n.log.Error("open index", "index", i.entry.Name, "error", i.err)
		return
	}
	n.log.Info("index open", "index", i.entry.Name, "docs", i.eng.Stats().Docs)
}

// disturb notes that documents were deleted, or were to be, of an index that is not there. An index that is made behind that is not one of
// which nothing was ever deleted; see shard.OpResult.Fresh.
func (c *catalog) disturb() {
	now := time.Now()
	c.disturbed.Store(&now)
}

// disturbedLately tells whether that was while writes of then may still be under way.
func (c *catalog) disturbedLately() bool {
	at := c.disturbed.Load()
	return at != nil && time.Since(*at) < shard.Undisturbed
}

// list returns the indexes by name.
func (c *catalog) list() []*index {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*index, 0, len(c.mu.byName))
	for _, i := range c.mu.byName {
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b *index) int { return strings.Compare(a.entry.Name, b.entry.Name) })
	return out
}

// lease is the use of an open index by one call. It must be released once.
type lease struct{ *index }

func (l lease) release() { l.users.Done() }

// state names what the index holds now.
func (l lease) state() leaf.Snapshot {
	version, ts := l.eng.Version()
	return leaf.Snapshot{Instance: l.instance, Version: version, CommitTS: ts}
}

// noIndexError is an errNoIndex with the name that was asked for.
type noIndexError struct{ name string }

func (e *noIndexError) Error() string        { return fmt.Sprintf("index %q: %v", e.name, errNoIndex) }
func (e *noIndexError) Is(target error) bool { return target == errNoIndex }

// use returns the named index once it is open. Errors: errNoIndex, *unavailableError, or the cause of ctx.
func (c *catalog) use(ctx context.Context, name string) (lease, error) {
	c.mu.Lock()
	i := c.mu.byName[name]
	if i == nil {
		c.mu.Unlock()
		return lease{}, &noIndexError{name}
	}
	if i.entry.onCommit() && ofShardWrite(ctx) {
		c.mu.Unlock()
		return lease{}, errOnCommit
	}
	i.users.Add(1)
	c.mu.Unlock()
	if err := c.waitOpen(ctx, i); err != nil {
		i.users.Done()
		return lease{}, err
	}
	return lease{i}, nil
}

// unavailableError is an index that exists and cannot be used.
type unavailableError struct {
	name    string
	opening bool // it may come yet
	cause   error
}

func (e *unavailableError) Error() string {
	if e.opening {
		return fmt.Sprintf("index %q is still being opened", e.name)
	}
	return fmt.Sprintf("index %q cannot be opened: %v", e.name, e.cause)
}

func (e *unavailableError) Unwrap() error { return e.cause }

func (c *catalog) waitOpen(ctx context.Context, i *index) error {
	select {
	case <-i.opened:
	default:
		wait := time.NewTimer(c.node.cfg.Limits.QueueWait)
		defer wait.Stop()
		select {
		case <-i.opened:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wait.C:
			return &unavailableError{name: i.entry.Name, opening: true}
		}
	}
	if i.err != nil {
		return &unavailableError{name: i.entry.Name, cause: i.err}
	}
	return nil
}

// create makes the index if it is not there yet, and returns it in use. made tells whether this call made it. visibility is that of a new
// index; one that is there keeps its own.
func (c *catalog) create(ctx context.Context, name string, sch *schema.Schema, visibility string) (l lease, made bool, err error) {
	for {
		l, err := c.use(ctx, name)
		if err == nil || !errors.Is(err, errNoIndex) {
			return l, false, err
		}
		i, err := c.announce(name, sch, visibility)
		if err != nil {
			return lease{}, false, err
		}
		if i == nil {
			continue // somebody else was first
		}
		// Opening outlives the call that began it: others may wait for the same index by now.
		c.open(i.ctx, i)
		if i.err != nil {
			cause := i.err
			i.users.Done()
			return lease{}, false, errors.Join(cause, c.withdraw(i))
		}
		return lease{i}, true, nil
	}
}

// announce writes the new index into the catalog before anything of it exists, so that whatever a crash leaves is named there.
// It returns nil if the name is taken; else the index has one user.
func (c *catalog) announce(name string, sch *schema.Schema, visibility string) (*index, error) {
	body, err := sch.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	c.change.Lock()
	defer c.change.Unlock()
	c.mu.Lock()
	taken, count := c.mu.byName[name] != nil, len(c.mu.byName)
	c.mu.Unlock()
	if taken {
		return nil, nil
	}
	if count >= c.node.cfg.Limits.Indexes {
		return nil, errIndexFull
	}
	i := c.newIndex(catalogEntry{Name: name, Dir: newUUID(), Schema: body, Visibility: visibility, Created: time.Now().UTC().Truncate(time.Second)})
	i.made = true
	if err := c.write(func(byName map[string]catalogEntry) { byName[name] = i.entry }, nil); err != nil {
		i.cancel(err)
		return nil, err
	}
	i.users.Add(1)
	c.mu.Lock()
	c.mu.byName[name] = i
	c.mu.Unlock()
	return i, nil
}

// withdraw takes back an index that could not be created.
func (c *catalog) withdraw(i *index) error {
	if err := c.drop(context.WithoutCancel(i.ctx), i); err != nil && !errors.Is(err, errNoIndex) {
		return fmt.Errorf("take back index %q: %w", i.entry.Name, err)
	}
	return nil
}

// remove deletes the named index: out of the catalog first, then, when no call uses it any more, closed and removed from disk.
// Calls that use it end with errDropped.
func (c *catalog) remove(ctx context.Context, name string) error {
	c.disturb()
	c.mu.Lock()
	i := c.mu.byName[name]
	c.mu.Unlock()
	if i == nil {
		return &noIndexError{name}
	}
	select {
	case <-i.opened: // opening cannot be interrupted half way
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return c.drop(ctx, i)
}

func (c *catalog) drop(ctx context.Context, i *index) error {
	c.change.Lock()
	defer c.change.Unlock()
	c.mu.Lock()
	there := c.mu.byName[i.entry.Name] == i
	c.mu.Unlock()
	if !there {
		return &noIndexError{i.entry.Name}
	}
	dead := i.entry
	dead.Deleting = true
	err := c.write(func(byName map[string]catalogEntry) { delete(byName, dead.Name) }, &dead)
	if err != nil && !errors.Is(err, vfs.ErrUncertain) {
		return err
	}
	// When the outcome is not known the index goes all the same: kept, it would take writes that a restart might throw away. Its
	// folder stays until a later change of the catalog, or a restart, has settled the matter.
	c.mu.Lock()
	delete(c.mu.byName, dead.Name)
	c.mu.doomed = append(c.mu.doomed, dead)
	c.mu.Unlock()

	// From here on the index is gone whatever happens; what is left is cleaning up, which a restart would finish.
	i.cancel(errDropped)
	i.users.Wait()
	c.fenced.leave(&i.fences)
	if i.eng != nil {
		closing, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancel() // an ended context: there is no point in a last flush
		if err := i.eng.Close(closing); err != nil && !errors.Is(err, context.Canceled) {
			c.node.log.Warn("close deleted index", "index", dead.Name, "error", err)
		}
	}
	if err != nil {
		return err
	}
	if err := c.sweep(dead); err != nil {
		c.node.log.Error("remove deleted index", "index", dead.Name, "error", err)
	}
	return nil
}

// sweep removes the folder of a deleted index and then its entry. The caller holds change.
func (c *catalog) sweep(dead catalogEntry) error {
	if err := c.node.dir.removeTree(c.node.indexDir(dead)); err != nil {
		return err
	}
	c.mu.Lock()
	c.mu.doomed = slices.DeleteFunc(c.mu.doomed, func(e catalogEntry) bool { return e.Dir == dead.Dir })
	c.mu.Unlock()
	return c.write(func(map[string]catalogEntry) {}, nil)
}

// write replaces catalog.json by what is in memory after change, and one more doomed entry. The caller holds change.
func (c *catalog) write(change func(byName map[string]catalogEntry), doomed *catalogEntry) error {
	c.mu.Lock()
	byName := make(map[string]catalogEntry, len(c.mu.byName)+1)
	for name, i := range c.mu.byName {
		byName[name] = i.entry
	}
	content := catalogContent{Indexes: slices.Clone(c.mu.doomed)}
	c.mu.Unlock()
	change(byName)
	for _, e := range byName {
		content.Indexes = append(content.Indexes, e)
	}
	if doomed != nil {
		content.Indexes = append(content.Indexes, *doomed)
	}
	slices.SortFunc(content.Indexes, func(a, b catalogEntry) int {
		return strings.Compare(a.Name+"\x00"+a.Dir, b.Name+"\x00"+b.Dir)
	})
	format := 1
	if slices.ContainsFunc(content.Indexes, func(e catalogEntry) bool { return e.onCommit() }) {
		format = 2 // a program that does not know of it would show what is not committed
	}
	return c.node.dir.writeSealed(catalogFile, format, content)
}

// commitTime is how long a node that ends takes at least for what is staged: its time may have gone to calls that did not end.
const commitTime = time.Minute

// closeAll closes every open index, with a last flush, or commit of what is staged. No call uses them any more. The end of ctx leaves out
// the flushes that did not begin, which the log stands in for. What is staged is committed all the same, because callers of Summa were told
// so; that has the time of ctx and commitTime besides.
func (c *catalog) closeAll(ctx context.Context) error {
	commits, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	late := time.AfterFunc(commitTime, cancel)
	late.Stop()
	defer late.Stop()
	unhook := context.AfterFunc(ctx, func() { late.Reset(commitTime) })
	defer unhook()
	var g errgroup.Group
	g.SetLimit(max(1, c.node.cfg.Engine.OpenAtOnce))
	var (
		mu   sync.Mutex
		errs []error
	)
	for _, i := range c.list() {
		g.Go(func() error {
			select {
			case <-i.opened:
			default:
				return nil // never opened: the node was closed before Start
			}
			if i.eng == nil {
				return nil
			}
			i.users.Wait()
			ctx := ctx
			if i.entry.onCommit() {
				ctx = commits
			}
			err := i.eng.Close(ctx)
			if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				// Only the last flush is missing, and the caller knows that the time is over.
				c.node.log.Info("index closed without its last flush; the next start reads the log", "index", i.entry.Name, "staged", i.entry.onCommit(), "error", err)
				return nil
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("close index %q: %w", i.entry.Name, err))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
