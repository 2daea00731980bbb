package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/vfs"
)

// Cluster gives the state of the cluster and changes its map. A *members.Cluster is one.
type Cluster interface {
	// State is the state of the moment; nil while there is none.
	State() *members.State
	// Change gives fn the map that is agreed on, which is in force then, and puts the one that fn makes of it in its place and in
	// force. An error of fn is returned and changes nothing.
	Change(ctx context.Context, fn func(m *shardmap.Map) (*shardmap.Map, error)) (*members.State, error)
}

// Options of a Runner. The zero value keeps jobs in memory and does nothing that nobody asked for.
type Options struct {
	// Store is where the coordinators of a cluster keep their jobs together. Nil: they are in Dir. The Runner does not own it.
	Store store.Store
	// Dir is the folder for the jobs of one coordinator alone, which is locked while the Runner is open. Empty: they are in memory.
	Dir string
	FS  vfs.FS // of Dir; nil: the operating system's

	// Hints are what members have missed; nil: nothing is kept. The Runner does not own it.
	Hints *hints.Queue
	// DocsPerSec and BytesPerSec bound what is copied and deleted. Zero: no limit.
	DocsPerSec, BytesPerSec int
	// RepairEvery is about how often the members of groups are compared in the background. Zero or below: never.
	RepairEvery time.Duration
	// Patience is how long a caller waits for a job that waits for members. Default: 15 s.
	Patience time.Duration
	Log      *slog.Logger // nil: nothing is logged
	Metrics  *obs.Metrics // nil: nothing is published
}

// tuning is how much is done at once, and how often it is looked at things. Tests have smaller ones.
type tuning struct {
	batch int // documents that are compared and copied at once
	list  int // ids of a list in memory
	page  int // checksums of a page

	leafDocs int // documents of a leaf, where members are compared
	looks    int // ranges of hashes that are listed of one index for one comparison

	look  time.Duration // how often the ledger is looked at
	beat  time.Duration // how often who does a job says that it lives, and writes down how far it is
	lease time.Duration // without a beat, others take over
	// adopt is how long after the start a move is gone on with that was there then and whose job is not known, where others may have ledgers
	// of their own. Who has one with the job goes on at once.
	adopt time.Duration
}

func defaultTuning(alone bool) tuning {
	t := tuning{
		batch: 500, list: 50_000, page: 2000, leafDocs: 100, looks: 64,
		look: 4 * time.Second, beat: 2 * time.Second, lease: 15 * time.Second, adopt: time.Minute,
	}
	if alone {
		t.look = time.Second // it costs nothing
	}
	return t
}

const (
	lastWordTime  = 2 * time.Second // of Close, to give the lease back
	leastBackoff  = 100 * time.Millisecond
	mostBackoff   = 10 * time.Second
	awayBackoff   = time.Second // at most, where a move waits for members: asking whether they are back costs them a ping
	awaitEvery    = time.Second
	defPatience   = 15 * time.Second
	storeCallTime = 10 * time.Second
)

// Causes of the end of a job's context.
var (
	errLeaseLost = errors.New("another coordinator does the job by now")
	errPaused    = errors.New("the job was paused")
	errAsked     = errors.New("the job was asked to end")
	errCancelled = errors.New("the job was cancelled")
	errYield     = errors.New("a job is waiting")
)

// failure ends a job for good.
type failure struct{ reason string }

func (f *failure) Error() string { return f.reason }

// counters count what was compared and put right, by jobs and without them.
type counters struct{ compared, differing, listed, copied, removed, held, replayed, refused atomic.Uint64 }

// Runner does the jobs of a cluster. It is safe for concurrent use.
type Runner struct {
	c      Cluster
	o      Options
	log    *slog.Logger
	id     string // of this Runner, in leases
	ledger ledger
	tune   tuning
	alone  bool          // nobody else writes the ledger
	folder *store.Folder // nil: there is none
	pace   *pacer
	count  counters

	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	loops   sync.WaitGroup
	wake    chan struct{} // asks the loop to look at the ledger
	once    sync.Once
	onceEnd sync.Once
	endErr  error

	behind behindCache
	aside  asideClock
	others witnesses
	made   madeIndexes

	mu      sync.Mutex
	current *running                // the job under way; nil: none
	rest    context.CancelCauseFunc // ends a comparison in the background; nil: none is under way
	changed chan struct{}           // closed and replaced when something has become of a job
}

// New returns a Runner. Close must be called.
func New(c Cluster, o Options) (*Runner, error) {
	if c == nil {
		return nil, errors.New("jobs: there is no cluster")
	}
	if o.Log == nil {
		o.Log = obs.Discard()
	}
	if o.Patience <= 0 {
		o.Patience = defPatience
	}
	r := &Runner{
		c: c, o: o, log: o.Log, id: strings.ToLower(rand.Text()), pace: newPacer(o.DocsPerSec, o.BytesPerSec),
		wake: make(chan struct{}, 1), changed: make(chan struct{}), alone: o.Store == nil,
		tune: defaultTuning(o.Store == nil),
	}
	r.others.heir = o.Hints != nil
	switch {
	case o.Store != nil:
		r.ledger.s = o.Store
	case o.Dir != "":
		f, err := store.OpenFolder(o.Dir, store.FolderOptions{FS: o.FS})
		if err != nil {
			return nil, fmt.Errorf("open the folder of jobs: %w", err)
		}
		r.folder, r.ledger.s = f, f
	default:
		r.ledger.s = store.NewMemory(nil)
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	if o.Hints != nil {
		o.Hints.Rivals(func(member string, e hints.Entry) uint64 { return r.others.latest(member, hints.Hash(e)) })
	}
	r.publish()
	return r, nil
}

func (r *Runner) publish() {
	m := r.o.Metrics
	if m == nil {
		return
	}
	for _, c := range []struct {
		name, help string
		n          *atomic.Uint64
	}{
		{"weft_cluster_repair_ranges_total", "Ranges of documents that were compared between members.", &r.count.compared},
		{"weft_cluster_repair_differing_total", "Ranges that differed.", &r.count.differing},
		{"weft_cluster_repair_listed_total", "Checksums of single documents that were read because something in their range differed, of each member.", &r.count.listed},
		{"weft_cluster_repair_copied_total", "Documents that were put at a member by a job, a comparison or a replay.", &r.count.copied},
		{"weft_cluster_repair_removed_total", "Documents that were deleted at a member likewise.", &r.count.removed},
		{"weft_cluster_repair_held_total", "Comparisons in the background that changed nothing because a primary looks as if it had lost its documents.", &r.count.held},
		{"weft_cluster_hints_replayed_total", "Documents that members had missed and that were looked at again.", &r.count.replayed},
		{"weft_cluster_hints_refused_total", "Documents that were put aside because a member that had missed them refuses them.", &r.count.refused},
	} {
		m.CounterFunc(c.name, c.help, func() float64 { return float64(c.n.Load()) })
	}
}

// Start begins to do what there is to do, also what was left by others.
func (r *Runner) Start() {
	r.once.Do(func() {
		r.loops.Go(r.run)
		if r.o.Hints != nil {
			r.loops.Go(r.replayLoop)
		}
		if r.o.Store != nil {
			r.loops.Go(r.tellLoop)
		}
	})
}

// Close leaves a job that runs so that it can be gone on with, and waits for what is under way.
func (r *Runner) Close() error {
	r.onceEnd.Do(func() {
		r.cancel(leaf.ErrClosed)
		r.once.Do(func() {}) // no Start any more
		r.loops.Wait()
		if r.folder != nil {
			r.endErr = r.folder.Close()
		}
	})
	return r.endErr
}

// nudge asks the loop to look at the ledger now, and tells who waits that something has changed.
func (r *Runner) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// lookout is what the loop has seen.
type lookout struct {
	seen  lease
	since time.Time

	next   time.Time // when members are to be compared in the background
	began  time.Time // when the map was first seen
	orphan string    // the job of the move that it had then, if it was not known
}

// free tells whether the lease may be taken.
func (r *Runner) free(l *lookout, of *lease) bool {
	if of == nil || r.alone || of.Owner == r.id {
		return true
	}
	if *of != l.seen {
		l.seen, l.since = *of, time.Now()
		return false
	}
	return time.Since(l.since) >= r.tune.lease
}

// run does jobs until Close.
func (r *Runner) run() {
	l := lookout{next: time.Now().Add(r.untilRepair())}
	failing := ""
	for {
		again, err := r.look(r.ctx, &l)
		switch {
		case r.ctx.Err() != nil:
			return
		case err == nil:
			failing = ""
		case err.Error() != failing:
			failing = err.Error()
			r.log.Warn("look for jobs", "error", err)
		}
		if again {
			continue
		}
		t := time.NewTimer(r.tune.look)
		select {
		case <-t.C:
		case <-r.wake:
		case <-r.ctx.Done():
		}
		t.Stop()
	}
}

// look does the job that is to be done, if there is one and nobody else does it. again says that there may be more.
func (r *Runner) look(ctx context.Context, l *lookout) (again bool, err error) {
	st := r.c.State()
	if st == nil {
		return false, nil
	}
	tctx, cancel := context.WithTimeout(ctx, storeCallTime)
	defer cancel()
	b, _, err := r.ledger.read(tctx)
	if err != nil || !r.free(l, b.Lease) {
		return false, err
	}
	active := b.active()
	move := st.Map.Move
	unknown := active == nil && move != nil && b.find(move.Job) == nil && !r.foreign(st.Map)
	if l.began.IsZero() {
		l.began = time.Now()
		if unknown {
			l.orphan = move.Job
		}
	}
	switch {
	case unknown && (!r.alone || move.Job == l.orphan && time.Since(l.began) >= r.tune.adopt):
		l.orphan = ""
		r.log.Warn("a move whose job is not known goes on", "job", move.Job)
		if _, err := r.add(ctx, r.adopted(st.Map)); err != nil && !hasCode(err, api.JobConflict) {
			return false, err
		}
		return true, nil
	case active != nil && active.State == Running:
		rec, err := r.seize(tctx, b.Lease)
		if errors.Is(err, errLeaseLost) || err == nil && rec == nil {
			return false, nil
		} else if err != nil {
			return false, err
		}
		r.perform(ctx, rec)
		return true, nil
	case active == nil && move == nil && r.o.RepairEvery > 0 && !time.Now().Before(l.next):
		l.next = time.Now().Add(r.untilRepair())
		if ago := time.Since(time.UnixMilli(b.Compared)); ago >= 0 && ago < r.o.RepairEvery*4/5 && len(r.work(st).suspects()) == 0 {
			l.next = time.Now().Add(r.untilRepair() - ago) // another one has done so, and whom to trust is all that each has to see for itself
			return false, nil
		}
		if _, err := r.seize(tctx, b.Lease); errors.Is(err, errLeaseLost) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		r.inBackground(ctx)
		return true, nil
	}
	return false, nil
}

// foreign tells whether a map is kept in a store that this Runner does not have: who has it moves documents.
func (r *Runner) foreign(m *shardmap.Map) bool { return r.o.Store == nil && m.Stored }

// adopted is the job of a move that a map knows and the ledger does not. Where others may have ledgers of their own, and the job in one of
// them, it has another id, so that they see that it was taken over.
func (r *Runner) adopted(m *shardmap.Map) *record {
	rec := newRecord(Rebalance)
	if rec.Adopts = m.Move.Job; !r.alone {
		rec.ID = m.Move.Job
	}
	rec.From, rec.To, rec.Stage = m.Placed, m.Move.To, stageMove
	rec.Cancel = m.Move.To == m.Placed
	return rec
}

func newRecord(kind Kind) *record {
	return &record{ID: string(kind) + "-" + strings.ToLower(rand.Text()[:16]), Kind: kind, State: Running, Started: time.Now().UnixMilli()}
}

// seize takes the lease, if it still is the one that was seen, and returns the job that is to be done; nil if there is none.
func (r *Runner) seize(ctx context.Context, was *lease) (*record, error) {
	var rec *record
	taken := false
	_, err := r.ledger.update(ctx, func(b *book) error {
		rec, taken = nil, false
		same := b.Lease == nil && was == nil || b.Lease != nil && was != nil && *b.Lease == *was
		if !same && (b.Lease == nil || b.Lease.Owner != r.id) {
			return errAsItIs
		}
		taken = true
		next := lease{Owner: r.id, Beat: 1}
		if b.Lease != nil {
			next.Beat = b.Lease.Beat + 1
		}
		b.Lease = &next
		if a := b.active(); a != nil && a.State == Running {
			one := *a
			rec = &one
		}
		return nil
	})
	if err == nil && !taken {
		err = errLeaseLost
	}
	return rec, err
}

// add puts a job into the ledger.
func (r *Runner) add(ctx context.Context, rec *record) (string, error) {
	if err := r.ctx.Err(); err != nil {
		return "", context.Cause(r.ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, storeCallTime)
	defer cancel()
	tried := false
	_, err := r.ledger.update(ctx, func(b *book) error {
		if known := b.find(rec.ID); tried && known != nil {
			return errAsItIs // the write before, of which nothing was heard, was made
		}
		tried = true
		if a := b.active(); a != nil {
			return api.NewProblem(api.JobConflict, fmt.Sprintf("the job %s is %s; one job is done at a time: wait for it, or end it with POST /_jobs/%s?action=cancel (weft topology cancel)", a.ID, a.State, a.ID))
		}
		b.Jobs = slices.DeleteFunc(b.Jobs, func(old *record) bool { return old.ID == rec.ID })
		b.Jobs = append(b.Jobs, rec)
		return nil
	})
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	if r.rest != nil {
		r.rest(errYield)
	}
	r.mu.Unlock()
	r.nudge()
	return rec.ID, nil
}

// running is a job under way. Its progress is what the ledger is given now and then.
type running struct {
	r    *Runner
	id   string
	kind Kind
	// force says that a repair takes primaries for right that may have lost their documents.
	force bool

	// Of the goroutine of the job:
	fenced uint64 // under the map of this epoch no write of anybody else, and none that nothing was heard of, is under way
	fresh  bool   // nothing has been done for the job yet
	// elsewhereSince is since when it waits for others to give members what they have missed.
	elsewhereSince time.Time
	unsound        int // comparisons of all groups in vain

	mu     sync.Mutex
	p      progress
	cancel bool                    // it is to be given up
	stop   context.CancelCauseFunc // ends the step under way; nil: none
	end    context.CancelCauseFunc // ends the job
}

// note changes the progress.
func (j *running) note(fn func(p *progress)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fn(&j.p)
}

// snapshot is the progress as it is.
func (j *running) snapshot() progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.p
	p.Groups = slices.Clone(p.Groups)
	return p
}

// waits says what the job waits for, and for whom; nil: for nothing.
func (j *running) waits(ctx context.Context, err error) {
	if err == nil {
		j.note(func(p *progress) { p.Error, p.Away = "", nil })
		return
	}
	j.note(func(p *progress) { p.Error = "waiting: " + api.ClipDetail(err.Error()) })
	away := j.r.away(ctx, err)
	j.note(func(p *progress) { p.Away = away })
}

// asked tells whether the job is to be given up.
func (j *running) asked() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cancel
}

// ask gives the job up: what is under way ends, and what has to be undone is undone.
func (j *running) ask() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.cancel {
		j.cancel = true
		if j.stop != nil {
			j.stop(errAsked)
		}
	}
}

// step is a context for a part of the job that ends when the job is asked to end.
func (j *running) step(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stop = cancel
	return ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.stop = nil
		cancel(nil)
	}
}

// save writes the progress down and hears what callers want. An error ends the job, or says that the ledger could not be reached.
func (j *running) save(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeCallTime)
	defer cancel()
	var state State
	var asked bool
	_, err := j.r.ledger.update(ctx, func(b *book) error {
		rec := b.find(j.id)
		if b.Lease == nil || b.Lease.Owner != j.r.id || rec == nil || rec.ended() {
			return errLeaseLost
		}
		b.Lease.Beat++
		rec.progress = j.snapshot()
		state, asked = rec.State, rec.Cancel
		return nil
	})
	if err != nil {
		return err
	}
	j.r.nudge()
	switch {
	case state == Paused:
		return errPaused
	case asked && j.kind == Repair:
		return errCancelled
	case asked:
		j.ask()
	}
	return nil
}

// perform does a job.
func (r *Runner) perform(ctx context.Context, rec *record) {
	ctx, end := context.WithCancelCause(ctx)
	j := &running{r: r, id: rec.ID, kind: rec.Kind, p: rec.progress, cancel: rec.Cancel, force: rec.Force, end: end, fresh: rec.Kind == Rebalance && rec.Stage == ""}
	r.mu.Lock()
	r.current = j
	r.mu.Unlock()
	r.log.Info("job begins", "job", j.id, "kind", j.kind)
	var beats sync.WaitGroup
	beats.Go(func() { r.beat(ctx, j.save, end) })
	var err error
	if rec.Kind == Repair {
		err = j.repair(ctx)
	} else {
		err = j.rebalance(ctx)
	}
	end(nil)
	beats.Wait()
	r.mu.Lock()
	r.current = nil
	r.mu.Unlock()
	r.leave(j, err)
}

// beat calls save now and then until the context ends. Where that tells the end, or fails for so long that others take over, it ends the
// context.
func (r *Runner) beat(ctx context.Context, save func(context.Context) error, end context.CancelCauseFunc) {
	t := time.NewTicker(r.tune.beat)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		switch err := save(ctx); {
		case err == nil:
			last = time.Now()
		case errors.Is(err, errLeaseLost), errors.Is(err, errPaused), errors.Is(err, errCancelled), errors.Is(err, errYield):
			end(err)
			return
		case ctx.Err() != nil:
			return
		case !r.alone && time.Since(last) >= r.tune.lease:
			end(fmt.Errorf("%w: the ledger could not be written: %w", errLeaseLost, err))
			return
		}
	}
}

// leave writes down what became of a job and gives the lease back.
func (r *Runner) leave(j *running, err error) {
	var state State
	text := ""
	failed, isFailure := errors.AsType[*failure](err)
	switch {
	case err == nil:
		state = Done
	case errors.Is(err, errCancelled):
		state = Cancelled
	case isFailure:
		state, text = Failed, failed.reason
	}
	if state == "" {
		r.log.Info("job is left", "job", j.id, "cause", err)
	} else {
		r.log.Info("job has ended", "job", j.id, "state", state, "error", text)
	}
	if errors.Is(err, errLeaseLost) {
		return
	}
	word := func(ctx context.Context) error {
		_, err := r.ledger.update(ctx, func(b *book) error {
			rec := b.find(j.id)
			if b.Lease == nil || b.Lease.Owner != r.id || rec == nil {
				return errAsItIs
			}
			b.Lease = nil
			if rec.ended() {
				return nil
			}
			rec.progress = j.snapshot()
			if state != "" {
				rec.State, rec.Error, rec.Away = state, text, nil
			}
			if state == Done {
				rec.Done = rec.Total
			}
			return nil
		})
		return err
	}
	r.lastWord(word)
	r.nudge()
}

// lastWord changes the ledger at the end of some work: again and again, and once more after Close.
func (r *Runner) lastWord(word func(context.Context) error) {
	for try := 1; r.ctx.Err() == nil; try++ {
		ctx, cancel := context.WithTimeout(r.ctx, storeCallTime)
		err := word(ctx)
		cancel()
		if err == nil {
			return
		}
		if try == 1 {
			r.log.Warn("write down what became of a job", "error", err)
		}
		if pause(r.ctx, backoff(try, leastBackoff, mostBackoff)) != nil {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lastWordTime)
	defer cancel()
	if err := word(ctx); err != nil {
		r.log.Warn("write down what became of a job", "error", err)
	}
}

// Jobs lists the jobs that are known, the latest first.
func (r *Runner) Jobs(ctx context.Context) ([]Job, error) {
	b, err := r.book(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Job, 0, len(b.Jobs))
	for _, rec := range slices.Backward(b.Jobs) {
		out = append(out, r.shown(rec))
	}
	return out, nil
}

// Job returns one job; api.JobNotFound if there is none with the id.
func (r *Runner) Job(ctx context.Context, id string) (Job, error) {
	rec, err := r.record(ctx, id)
	if err != nil {
		return Job{}, err
	}
	return r.shown(rec), nil
}

// shown is a job with what is known here and not in the ledger yet.
func (r *Runner) shown(rec *record) Job {
	r.mu.Lock()
	j := r.current
	r.mu.Unlock()
	if j != nil && j.id == rec.ID && !rec.ended() {
		live := *rec
		live.progress = j.snapshot()
		rec = &live
	}
	return rec.job()
}

func (r *Runner) book(ctx context.Context) (*book, error) {
	if r.ctx.Err() != nil {
		return nil, context.Cause(r.ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, storeCallTime)
	defer cancel()
	b, _, err := r.ledger.read(ctx)
	return b, err
}

func (r *Runner) record(ctx context.Context, id string) (*record, error) {
	b, err := r.book(ctx)
	if err != nil {
		return nil, err
	}
	if rec := b.find(id); rec != nil {
		return rec, nil
	}
	return nil, noJob(id)
}

func noJob(id string) *api.Problem {
	return api.NewProblem(api.JobNotFound, fmt.Sprintf("there is no job %q", api.Clip(id)))
}

// Actions on a job.
const (
	actionPause  = "pause"
	actionResume = "resume"
	actionCancel = "cancel"
)

// Act pauses, resumes or cancels a job. Cancelling a rebalance takes a while: copies that were made are deleted. After its cutover it
// cannot be cancelled. What does not fit the job is api.JobConflict.
func (r *Runner) Act(ctx context.Context, id, action string) (Job, error) {
	if action != actionPause && action != actionResume && action != actionCancel {
		return Job{}, api.NewProblem(api.InvalidParameter, "action: it is pause, resume or cancel").On("action")
	}
	if r.ctx.Err() != nil {
		return Job{}, context.Cause(r.ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, storeCallTime)
	defer cancel()
	b, err := r.ledger.update(ctx, func(b *book) error {
		rec := b.find(id)
		switch {
		case rec == nil:
			return noJob(id)
		case rec.ended():
			return api.NewProblem(api.JobConflict, fmt.Sprintf("the job has ended: it is %s", rec.State))
		case action == actionPause:
			rec.State = Paused
		case action == actionResume:
			rec.State = Running
		case rec.Kind == Repair:
			rec.State = Cancelled
		default:
			if s := r.c.State(); s != nil && s.Map.Move != nil && s.Map.Move.Job == id && s.Map.CutOver() {
				return api.NewProblem(api.JobConflict, "the documents are moved, and only what they left behind is to be deleted yet: that can be paused, and not cancelled")
			}
			rec.State, rec.Cancel = Running, true
		}
		return nil
	})
	if err != nil {
		return Job{}, err
	}
	rec := b.find(id)
	r.mu.Lock()
	j := r.current
	r.mu.Unlock()
	if j != nil && j.id == id {
		switch {
		case rec.State == Paused:
			j.end(errPaused)
		case rec.State == Cancelled:
			j.end(errCancelled)
		case rec.Cancel:
			j.ask()
		}
	}
	r.nudge()
	return r.shown(rec), nil
}

// StartRebalance begins to move documents from a placement over from groups to one over to groups, and returns the job. Where they are
// placed so already, documents that stand on groups that do not own them are put in order; a second run finds none, whatever it says that they were
// placed over: as many groups as there are, or as an earlier rebalance moved them from. A move that nobody does is gone on with.
func (r *Runner) StartRebalance(ctx context.Context, from, to int) (string, error) {
	st := r.c.State()
	if st == nil {
		return "", members.ErrNotReady
	}
	if err := r.startable(ctx); err != nil {
		return "", err
	}
	m := st.Map
	switch {
	case r.foreign(m):
		return "", api.NewProblem(api.JobConflict, "the shard map is kept in a store: a coordinator that has it moves documents")
	case to < 1 || to > len(m.Groups):
		return "", api.NewProblem(api.InvalidParameter, fmt.Sprintf("to: there are %d groups", len(m.Groups))).On("to")
	case m.Move != nil && m.Move.To == to:
		return r.add(ctx, r.adopted(m))
	case m.Move != nil:
		return "", api.NewProblem(api.JobConflict, fmt.Sprintf("the job %s moves documents to %d groups", m.Move.Job, m.Move.To))
	case m.Placed != to && m.Placed != from:
		return "", api.NewProblem(api.InvalidParameter, fmt.Sprintf("from: documents are placed over %d groups", m.Placed)).On("from")
	case from > len(m.Groups): // who asks again for what shrank the cluster finds it done, also once the groups are gone
		b, err := r.book(ctx)
		if err != nil {
			return "", err
		}
		if !b.moved(from, to) {
			return "", api.NewProblem(api.InvalidParameter, fmt.Sprintf("from: there are %d groups, and documents are placed over %d", len(m.Groups), m.Placed)).On("from")
		}
	}
	rec := newRecord(Rebalance)
	rec.From, rec.To = m.Placed, to
	return r.add(ctx, rec)
}

// Rebalance is StartRebalance, and waits until the job has ended, was paused, or has waited for members for Options.Patience. In the last
// case, and where it failed, the reply is not OK; the job goes on, if it has not ended.
func (r *Runner) Rebalance(ctx context.Context, from, to int) (*RebalanceReply, error) {
	id, err := r.StartRebalance(ctx, from, to)
	if err != nil {
		return nil, err
	}
	rec, err := r.await(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &RebalanceReply{
		OK: rec.State == Done && rec.Deferred == 0, Moved: rec.Moved, Deferred: rec.Deferred, MissingAtSource: rec.Missing, Job: id,
		FailedAddresses: []string{},
	}
	if !out.OK {
		job := r.shown(rec)
		out.Error, out.FailedAddresses = job.Error, job.FailedAddresses
	}
	if !rec.ended() {
		out.Deferred += r.unmoved(ctx, rec)
	}
	return out, nil
}

// StartRepair begins to make the members of each group equal to its first, and returns the job. A first member that may have lost its documents is
// given those of another first, and where all may have, the group fails; with force the first is right whatever it has.
func (r *Runner) StartRepair(ctx context.Context, force bool) (string, error) {
	if r.c.State() == nil {
		return "", members.ErrNotReady
	}
	if err := r.startable(ctx); err != nil {
		return "", err
	}
	rec := newRecord(Repair)
	rec.Force = force
	return r.add(ctx, rec)
}

// Repair is StartRepair, and waits until the job has ended or was paused.
func (r *Runner) Repair(ctx context.Context, force bool) (*RepairReply, error) {
	id, err := r.StartRepair(ctx, force)
	if err != nil {
		return nil, err
	}
	rec, err := r.await(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &RepairReply{OK: rec.State == Done && !rec.Failed, Deferred: rec.Deferred, FailedAddresses: []string{}, Groups: rec.Groups}
	if out.Groups == nil {
		out.Groups = []GroupRepair{}
	}
	if !out.OK {
		out.Error = r.shown(rec).Error
	}
	for i := range out.Groups {
		out.Copied += out.Groups[i].Copied
		out.Removed += out.Groups[i].Removed
		out.FailedAddresses = append(out.FailedAddresses, out.Groups[i].Failed...)
	}
	return out, nil
}

// await waits for a job.
func (r *Runner) await(ctx context.Context, id string) (*record, error) {
	var waiting time.Time // since when it has waited for members
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		rec, err := r.record(ctx, id)
		if err != nil {
			return nil, err
		}
		switch {
		case rec.ended(), rec.State == Paused:
			return rec, nil
		case r.shown(rec).Error == "":
			waiting = time.Time{}
		case waiting.IsZero():
			waiting = time.Now()
		case time.Since(waiting) >= r.o.Patience:
			return rec, nil
		}
		t := time.NewTimer(awaitEvery)
		select {
		case <-changed:
		case <-t.C:
		case <-r.ctx.Done():
			t.Stop()
			return nil, context.Cause(r.ctx)
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
		t.Stop()
	}
}
