package loader

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/client"
)

// Config says what to load and how.
type Config struct {
	Inputs  []Input
	IDField string          // the member or column that holds the id; empty = "id"
	Types   map[string]Type // CSV columns that are not text
	Stdin   io.Reader

	// Send delivers an NDJSON body, as client.Client.Bulk does. It is called from Concurrency goroutines at once.
	Send func(ctx context.Context, body []byte) (client.BulkResult, error)

	BatchDocs   int // documents of a batch at most; 0 = 1000
	BatchBytes  int // bytes of a batch at most, save for a single longer document; 0 = 1 MiB
	Concurrency int // batches under way at most; 0 = 1. Only with 1 are documents of different ids applied in order
	// RetryFor is how long one batch is offered again after refusals, full disks and broken connections; 0 = DefaultRetryFor,
	// below 0 = not at all.
	RetryFor time.Duration
	// MaxRejects ends the load after so many rejects; 0 = never.
	MaxRejects int64

	// StatePath names the state file; empty = none. URL and Index are kept in it: a state of another server or index is refused.
	StatePath  string
	URL, Index string
	// Fresh says that the index holds nothing, so that whatever the state file has of it is void.
	Fresh bool

	// Rejects receives one JSON object for each document that did not go in; may be nil.
	Rejects io.Writer
	// OnReject is told of each reject as well; Note of everything a person should know. Both may be nil and are called one at a time.
	OnReject func(Reject)
	Note     func(string)
	// Stats is kept up to date while the load runs; may be nil.
	Stats *Stats
}

// Stats counts while a load runs. Every field may be read at any time.
type Stats struct {
	Read      atomic.Int64 // input documents met, rejects too
	Indexed   atomic.Int64 // documents acknowledged
	Rejected  atomic.Int64
	Retries   atomic.Int64 // batches offered again
	DiskBytes atomic.Int64 // bytes of input read as they lie on disk
	SentBytes atomic.Int64 // bytes of acknowledged batches
}

// Lengths of waits between offers of one batch.
const (
	firstWait = 100 * time.Millisecond
	longest   = 10 * time.Second
)

// DefaultRetryFor is how long a batch is offered again if nothing else is said.
const DefaultRetryFor = 2 * time.Minute

// idleFlush is how long a document waits for others to fill its batch.
const idleFlush = time.Second

// stateEvery is the least time between two writes of the state file.
const stateEvery = time.Second

// ErrTooManyRejects ends a load that reached Config.MaxRejects.
var ErrTooManyRejects = errors.New("too many documents were rejected")

type load struct {
	cfg    Config
	st     *state
	cancel context.CancelCauseFunc
	seed   maphash.Seed

	// build guards the batches being filled. Where both locks are held, build is taken first.
	build struct {
		sync.Mutex
		batches []*batch
		since   []time.Time // when the first document of each came
	}
	mu struct {
		sync.Mutex
		progress
		saved  time.Time
		dirty  bool
		missed map[string]bool // what was said of members that missed documents
	}
	queues []chan *batch
}

// batch is one body of documents of one queue.
type batch struct {
	body []byte
	docs []docRef
}

type docRef struct {
	seq   uint64
	file  string
	line  int64
	id    string
	start int // in the body
}

// Run loads everything and returns when all of it is acknowledged or rejected, or the load cannot go on. What was acknowledged is in
// the state file then, also after an error. Rejects alone are no error.
func Run(ctx context.Context, cfg Config) error {
	if cfg.BatchDocs <= 0 {
		cfg.BatchDocs = 1000
	}
	if cfg.BatchBytes <= 0 {
		cfg.BatchBytes = 1 << 20
	}
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = 1
	}
	if cfg.RetryFor == 0 {
		cfg.RetryFor = DefaultRetryFor
	}
	if cfg.Stats == nil {
		cfg.Stats = &Stats{}
	}
	if cfg.Note == nil {
		cfg.Note = func(string) {}
	}
	l := &load{cfg: cfg, st: &state{Version: stateVersion}, seed: maphash.MakeSeed()}
	if cfg.StatePath != "" {
		var err error
		if l.st, err = readState(cfg.StatePath); err != nil {
			return err
		}
		if l.st.URL == "" {
			l.st.URL, l.st.Index = cfg.URL, cfg.Index
		}
		if l.st.URL != cfg.URL || l.st.Index != cfg.Index {
			return fmt.Errorf("state file %s belongs to a load into index %q of %s", cfg.StatePath, l.st.Index, l.st.URL)
		}
		if cfg.Fresh && len(l.st.Files) > 0 {
			l.note("the index is empty: %s is void, starting over", cfg.StatePath)
			l.st.Files = nil
		}
	}
	return l.run(ctx)
}

func (l *load) run(ctx context.Context) error {
	ctx, l.cancel = context.WithCancelCause(ctx)
	defer l.cancel(nil)

	l.build.batches = make([]*batch, l.cfg.Concurrency)
	l.build.since = make([]time.Time, l.cfg.Concurrency)
	var senders, flusher sync.WaitGroup
	for i := range l.cfg.Concurrency {
		q := make(chan *batch, 1)
		l.queues = append(l.queues, q)
		l.build.batches[i] = &batch{}
		senders.Go(func() {
			for b := range q {
				if ctx.Err() != nil {
					continue // drain, so that nobody waits for room
				}
				if err := l.deliver(ctx, b); err != nil {
					l.cancel(err)
				}
			}
		})
	}
	stop := make(chan struct{})
	flusher.Go(func() {
		tick := time.NewTicker(idleFlush / 2)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.flush(ctx, idleFlush)
			case <-stop:
				return
			}
		}
	})

	err := l.readAll(ctx)
	close(stop)
	flusher.Wait()
	// What was read before an error of the input is whole and goes in; after the end of ctx nothing does.
	l.flush(ctx, 0)
	for _, q := range l.queues {
		close(q)
	}
	senders.Wait()
	if cause := context.Cause(ctx); cause != nil {
		// A reader that was interrupted says only that; the cause says why.
		err = cause
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(err, l.saveLocked(true))
}

// readAll reads every input and hands the documents to the queues.
func (l *load) readAll(ctx context.Context) error {
	for _, in := range l.cfg.Inputs {
		if err := l.readOne(ctx, in); err != nil {
			return fmt.Errorf("%s: %w", in.Path, err)
		}
	}
	return nil
}

func (l *load) readOne(ctx context.Context, in Input) (err error) {
	file := &fileState{}
	if !in.Stream && l.cfg.StatePath != "" {
		l.mu.Lock()
		var why string
		file, why, err = l.st.entry(in, l.cfg.IDField, time.Now())
		l.mu.Unlock()
		if err != nil {
			return err
		}
		switch {
		case why != "":
			l.note("%s: starting over: %s", in.Path, why)
		case file.Done && in.Format != Folder:
			l.cfg.Stats.DiskBytes.Add(in.Size)
			l.note("%s: already loaded", in.Path)
			return nil
		case file.Line > 0:
			l.note("%s: going on behind %s", in.Path, file.where())
		}
	}
	o := readerOptions{
		ctx: ctx, idField: l.cfg.IDField, types: l.cfg.Types, stdin: l.cfg.Stdin, read: &l.cfg.Stats.DiskBytes,
		from: file.position(), since: file.Started,
	}
	if in.Format == Folder {
		l.mu.Lock()
		file.Started, file.Done = time.Now().UTC(), false
		l.mu.Unlock()
	}
	r, err := in.open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	met := in.Format != Folder || file.Line > 0
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var rec record
		err := r.next(&rec)
		if err == io.EOF {
			if !met {
				l.note("%s: no text or Markdown file is in this folder; files of other formats are loaded by their own names", in.Path)
			}
			l.mu.Lock()
			seq := l.mu.add(openDoc{file: file, end: true})
			err := l.settleLocked([]uint64{seq})
			l.mu.Unlock()
			return err
		}
		if err != nil {
			return err
		}
		l.cfg.Stats.Read.Add(1)
		met = true
		if err := l.take(ctx, in, file, &rec); err != nil {
			return err
		}
	}
}

func (l *load) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg.Note(fmt.Sprintf(format, args...))
}

// where says in words how far a file has been read.
func (f *fileState) where() string {
	if f.After != "" {
		return filepath.ToSlash(f.After)
	}
	return fmt.Sprintf("line %d", f.Line)
}

// take puts a record into a batch, and sends the batch if that fills it.
func (l *load) take(ctx context.Context, in Input, file *fileState, rec *record) error {
	l.mu.Lock()
	seq := l.mu.add(openDoc{file: file, pos: rec.position})
	open := len(l.mu.open)
	if rec.doc == nil {
		err := l.rejectLocked(Reject{File: recordFile(in, rec), Line: rec.line, ID: rec.id, Code: rec.code, Reason: rec.reason})
		if err == nil {
			err = l.settleLocked([]uint64{seq})
		}
		l.mu.Unlock()
		return err
	}
	l.mu.Unlock()

	l.build.Lock()
	defer l.build.Unlock()
	// One queue for each id keeps the order of its documents.
	q := 0
	if len(l.queues) > 1 && rec.id != "" {
		q = int(maphash.String(l.seed, rec.id) % uint64(len(l.queues)))
	}
	b := l.build.batches[q]
	if len(b.docs) > 0 && len(b.body)+len(rec.doc)+1 > l.cfg.BatchBytes {
		l.sendLocked(ctx, q)
		b = l.build.batches[q]
	}
	if len(b.docs) == 0 {
		l.build.since[q] = time.Now()
	}
	b.docs = append(b.docs, docRef{seq: seq, file: recordFile(in, rec), line: rec.line, id: rec.id, start: len(b.body)})
	b.body = append(append(b.body, rec.doc...), '\n')
	if len(b.docs) >= l.cfg.BatchDocs || len(b.body) >= l.cfg.BatchBytes {
		l.sendLocked(ctx, q)
	}
	if open > 8*l.cfg.BatchDocs*len(l.queues) {
		// One document that waits for its batch to fill holds up the state of all behind it.
		for q := range l.build.batches {
			l.sendLocked(ctx, q)
		}
	}
	return nil
}

// recordFile names the file that a record is from.
func recordFile(in Input, rec *record) string {
	if in.Format == Folder {
		return filepath.ToSlash(filepath.Join(in.Path, filepath.FromSlash(rec.id)))
	}
	return in.Path
}

// flush sends the batches whose first document came at least age ago.
func (l *load) flush(ctx context.Context, age time.Duration) {
	l.build.Lock()
	defer l.build.Unlock()
	for q := range l.build.batches {
		if age == 0 || time.Since(l.build.since[q]) >= age {
			l.sendLocked(ctx, q)
		}
	}
}

// sendLocked puts the batch of a queue on its way and begins a new one. It waits for room in the queue; build is locked.
func (l *load) sendLocked(ctx context.Context, q int) {
	b := l.build.batches[q]
	if len(b.docs) == 0 {
		return
	}
	l.build.batches[q] = &batch{body: make([]byte, 0, len(b.body)+len(b.body)/8), docs: make([]docRef, 0, len(b.docs))}
	select {
	case l.queues[q] <- b:
	case <-ctx.Done():
	}
}

// ofGroup has the codes of documents that no member of their group has confirmed, for a reason that is not theirs.
var ofGroup = map[string]bool{
	"group_unavailable": true, "write_uncertain": true, "stale_map": true, "index_unavailable": true, "index_deleted": true, "not_ready": true, "read_only": true,
	"disk_full": true, "timeout": true, "shutting_down": true, "internal": true, "load_under_way": true, "too_many_writes": true, "too_many_bulks": true,
	"request_memory_full": true, "memtable_full": true,
}

// deliver sends a batch until it is acknowledged, and settles its documents.
func (l *load) deliver(ctx context.Context, b *batch) error {
	res, err := l.offer(ctx, b)
	var p *client.Problem
	if errors.As(err, &p) && p.Status == http.StatusRequestEntityTooLarge {
		return l.deliverSmaller(ctx, b, p)
	}
	if err != nil {
		return err
	}
	l.cfg.Stats.SentBytes.Add(int64(len(b.body)))
	l.cfg.Stats.Indexed.Add(int64(len(b.docs) - len(res.Errors)))
	l.mu.Lock()
	defer l.mu.Unlock()
	// Of one address it is not said whether others of its group have what it missed; documents that a whole group missed are among the errors.
	note := " missed documents that the others of its group have: it gets them when it is back, or by a repair"
	if slices.ContainsFunc(res.Errors, func(e client.DocError) bool { return ofGroup[e.Code] }) {
		note = " missed documents: those that others of its group have it gets when it is back, or by a repair; those that its whole group missed are rejected, to be sent again"
	}
	for _, addr := range res.FailedAddresses {
		if !l.mu.missed[addr+note] {
			if l.mu.missed == nil {
				l.mu.missed = map[string]bool{}
			}
			l.mu.missed[addr+note] = true
			l.cfg.Note(addr + note)
		}
	}
	for _, e := range res.Errors {
		if e.Line < 1 || e.Line > len(b.docs) {
			return fmt.Errorf("the server rejects line %d of a batch of %d", e.Line, len(b.docs))
		}
		d := b.docs[e.Line-1]
		id := e.ID
		if id == "" {
			id = d.id
		}
		if err := l.rejectLocked(Reject{File: d.file, Line: d.line, ID: id, Code: e.Code, Reason: e.Reason}); err != nil {
			return err
		}
	}
	if res.Failed != len(res.Errors) {
		return fmt.Errorf("the server says that %d documents failed and names %d", res.Failed, len(res.Errors))
	}
	return l.settleBatchLocked(b)
}

// deliverSmaller sends a batch that is too large for the server in two parts, or rejects the document that is too large alone.
func (l *load) deliverSmaller(ctx context.Context, b *batch, p *client.Problem) error {
	if len(b.docs) > 1 {
		half := len(b.docs) / 2
		at := b.docs[half].start
		left := &batch{body: b.body[:at], docs: b.docs[:half]}
		right := &batch{body: b.body[at:], docs: b.docs[half:]}
		for i := range right.docs {
			right.docs[i].start -= at
		}
		if err := l.deliver(ctx, left); err != nil {
			return err
		}
		return l.deliver(ctx, right)
	}
	d := b.docs[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	code := p.Code
	if code == "" {
		code = "document_too_large"
	}
	if err := l.rejectLocked(Reject{File: d.file, Line: d.line, ID: d.id, Code: code, Reason: p.Error()}); err != nil {
		return err
	}
	return l.settleBatchLocked(b)
}

// offer sends a batch again and again while the server refuses it or cannot be reached. Sending one twice is harmless: its documents
// replace themselves.
func (l *load) offer(ctx context.Context, b *batch) (res client.BulkResult, err error) {
	err = Retry(ctx, l.cfg.RetryFor, func(err error) bool {
		if l.cfg.Stats.Retries.Add(1) == 1 {
			l.note("waiting for the server: %v", err)
		}
		return true
	}, func() error {
		res, err = l.cfg.Send(ctx, b.body)
		return err
	})
	return res, err
}

// Retry calls f until it does well or fails for good, or until a further wait would pass the limit. What is worth another try is a
// *client.TransportError and a *client.Problem that is Retryable; waits grow and are never shorter than the server asks for. again
// is told of each such failure before the wait and may say that it is for good. A limit of zero or less calls f once.
func Retry(ctx context.Context, limit time.Duration, again func(error) bool, f func() error) error {
	began := time.Now()
	wait := firstWait
	for {
		err := f()
		if err == nil || ctx.Err() != nil || limit <= 0 {
			return err
		}
		pause := wait/2 + rand.N(wait/2+1)
		var p *client.Problem
		var lost *client.TransportError
		switch {
		case errors.As(err, &p):
			asked, ok := p.Retryable()
			if !ok {
				return err
			}
			pause = max(pause, asked)
		case !errors.As(err, &lost):
			return err
		}
		if took := time.Since(began); took+pause > limit {
			return fmt.Errorf("gave up after %v: %w", took.Round(time.Millisecond), err)
		}
		if !again(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		wait = min(2*wait, longest)
	}
}

func (l *load) rejectLocked(r Reject) error {
	n := l.cfg.Stats.Rejected.Add(1)
	if l.cfg.Rejects != nil {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode reject: %w", err)
		}
		if _, err := l.cfg.Rejects.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("write rejects: %w", err)
		}
	}
	if l.cfg.OnReject != nil {
		l.cfg.OnReject(r)
	}
	if l.cfg.MaxRejects > 0 && n >= l.cfg.MaxRejects {
		return fmt.Errorf("%w: %d", ErrTooManyRejects, n)
	}
	return nil
}

func (l *load) settleBatchLocked(b *batch) error {
	for _, d := range b.docs {
		l.mu.settle(d.seq)
	}
	return l.settleLocked(nil)
}

// settleLocked marks documents as dealt with and writes the state file if it is time.
func (l *load) settleLocked(seqs []uint64) error {
	for _, s := range seqs {
		l.mu.settle(s)
	}
	l.mu.dirty = l.mu.advance() || l.mu.dirty
	return l.saveLocked(false)
}

func (l *load) saveLocked(now bool) error {
	if l.cfg.StatePath == "" || !l.mu.dirty || (!now && time.Since(l.mu.saved) < stateEvery) {
		return nil
	}
	if err := l.st.write(l.cfg.StatePath); err != nil {
		return err
	}
	l.mu.dirty, l.mu.saved = false, time.Now()
	return nil
}
