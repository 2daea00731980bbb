package wal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/weft-search/weft/internal/vfs"
)

// Log is an open log. Safe for concurrent use.
//
// Writers put their records into the group that is being filled. One of them takes the turn, writes and syncs the group, and answers all its
// writers at once; meanwhile the next group fills. Nothing waits on purpose for more company: an fsync in flight is the wait. A writer that
// may leave before its answer never takes the turn: the log's goroutine does instead. That a writer works itself saves it from
// being woken twice, of which each costs about as much as the write itself.
type Log struct {
	fsys vfs.FS
	dir  string
	o    Options
	torn *Tail

	turn chan struct{} // holds one token while somebody owns the files
	work chan struct{} // holds one token when the goroutine is to look for a group that waits
	reqs chan request  // work for the goroutine other than groups
	quit chan struct{} // closed by Close
	done chan struct{} // closed when the goroutine has ended

	mu struct {
		sync.Mutex
		fill    *group // nil when nobody waits
		spare   []byte // a buffer to fill
		nextSeq uint64 // number of the next record appended
		lastSeq uint64 // number of the last record committed; lastSeq < nextSeq
		err     error  // a *FailedError once the log has failed
		closed  bool
		files   []logFile // ascending; the last one is being written; never empty
		stats   Stats
	}
	trim sync.Mutex // one TrimBefore at a time; taken before mu

	// Owned by who has the turn.
	f        vfs.File
	size     int64 // of what is written in the current file; after a failed write that could not be cut back there may be more
	room     int64 // length of the current file: from size on it has zeros; never below size
	full     bool  // there is no space for room ahead of what is written
	durable  int64 // headerSize <= durable <= size
	marked   bool  // a mark covers the last record
	note     *note // of the acknowledged end; nil with SyncNone and where it cannot be written
	closeErr error
}

type logFile struct {
	first uint64
	size  int64
}

// group is a run of records that share a write and a sync.
type group struct {
	buf     []byte // records with length and payload set
	first   uint64
	records int
	taken   chan struct{} // closed when the committer took it
	done    chan struct{} // closed when err is final
	err     error
}

type request struct {
	fn  func() error
	res chan error // buffered
}

// maxSpare is the largest buffer, in bytes, that is kept for the next group.
const maxSpare = 4 << 20

// Open recovers the log in dir, or begins one. It cuts a torn tail and makes all that is left durable before it returns. On a full disk
// an existing log opens too, but may refuse records as after a write that ran out of space (see Err).
// Errors: *CorruptError, ErrNewerFormat, or the file system's.
func Open(fsys vfs.FS, dir string, o Options) (*Log, error) {
	o.ensureDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("open log %s: %w", dir, err)
	}
	if err := vfs.MkdirAll(fsys, dir); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	files, temps, err := list(fsys, dir)
	if err != nil {
		return nil, err
	}
	for _, p := range temps {
		if err := fsys.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open log %s: remove left-over: %w", dir, err)
		}
	}
	l := &Log{
		fsys: fsys, dir: dir, o: o,
		turn: make(chan struct{}, 1), work: make(chan struct{}, 1), reqs: make(chan request), quit: make(chan struct{}), done: make(chan struct{}),
	}
	l.mu.files = files
	if len(files) == 0 {
		if err := checkAck(fsys, dir, l.name(o.FirstSeq), o.FirstSeq-1, 0); err != nil {
			return nil, err
		}
		if l.f, err = l.begin(o.FirstSeq); err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		l.mu.files = []logFile{{first: o.FirstSeq, size: headerSize}}
		l.mu.lastSeq = o.FirstSeq - 1
		l.begun()
	} else if err := l.recoverTail(); err != nil {
		return nil, err
	}
	l.mu.nextSeq = l.mu.lastSeq + 1
	if o.Sync == SyncAlways {
		l.note = openNote(fsys, dir, l.mu.lastSeq)
	}
	go l.run()
	return l, nil
}

// recoverTail reads the last file, cuts a torn tail, and writes and syncs again what was perhaps never synced.
func (l *Log) recoverTail() error {
	last := &l.mu.files[len(l.mu.files)-1]
	name := l.name(last.first)
	b, t, torn, err := scanLast(l.fsys, name, last.first)
	if err != nil {
		return err
	}
	if err := checkAck(l.fsys, l.dir, name, t.lastSeq, t.end); err != nil {
		return err
	}
	if t.end == 0 { // begun and never used
		if l.f, err = l.begin(last.first); err != nil {
			return fmt.Errorf("open log: %w", err)
		}
		last.size = headerSize
		l.mu.lastSeq = t.lastSeq
		l.begun()
		return nil
	}
	if err := l.rewrite(name, b[:t.end], t.suspect, t.end < int64(len(b))); err != nil {
		return fmt.Errorf("open log: make %s durable: %w", name, err)
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return fmt.Errorf("open log: sync folder: %w", err)
	}
	if l.f, err = l.fsys.OpenRW(name); err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	last.size = t.end
	l.mu.lastSeq, l.size, l.room, l.durable, l.marked = t.lastSeq, t.end, t.end, t.end, t.mark
	l.torn = torn
	if !l.marked {
		switch err := l.mark(); {
		case errors.Is(err, ErrNoSpace):
			l.mu.err = err // the disk is full: what is there can still be read
		case err != nil:
			return errors.Join(fmt.Errorf("open log: %w", err), l.f.Close())
		}
	}
	if torn != nil && l.o.Events.TailCut != nil {
		l.o.Events.TailCut(*torn)
	}
	return nil
}

// rewrite writes b[from:] once more over itself and syncs. After a failed fsync the system may take pages for clean that never reached the disk;
// written again they are dirty again.
func (l *Log) rewrite(name string, b []byte, from int64, cut bool) (err error) {
	f, err := l.fsys.OpenRW(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if cut {
		if err := f.Truncate(int64(len(b))); err != nil {
			return err
		}
	}
	if from < int64(len(b)) {
		if _, err := f.WriteAt(b[from:], from); err != nil {
			return err
		}
	}
	return f.Sync()
}

func (l *Log) name(first uint64) string { return path.Join(l.dir, fileName(first)) }

// errLeft marks a failed begin that could not undo itself.
var errLeft = errors.New("half-begun file left behind")

// begin creates the file whose first record will be first and makes header and name durable. On failure it removes the file again, for
// good: were it to come back after a crash, it would overlap the records that went on in the old file.
func (l *Log) begin(first uint64) (vfs.File, error) {
	name := l.name(first)
	f, err := l.fsys.Create(name)
	if err != nil {
		return nil, fmt.Errorf("begin log file %s: %w", name, err)
	}
	_, err = f.Write(appendHeader(nil, first))
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = l.fsys.SyncDir(l.dir)
	}
	if err == nil {
		// Opened anew: records are written in place where there is room for them.
		if f, err = l.fsys.OpenRW(name); err == nil {
			return f, nil
		}
	}
	err = fmt.Errorf("begin log file %s: %w", name, err)
	undo := l.fsys.Remove(name)
	if undo == nil {
		undo = l.fsys.SyncDir(l.dir)
	}
	if undo != nil {
		err = errors.Join(err, errLeft, undo)
	}
	return nil, err
}

// Append adds one record and returns its number once it is durable (with SyncNone: written). The payload is copied; it must not be empty nor
// longer than MaxRecord. Append waits while Options.MaxPending bytes are ahead of it.
//
// Errors: ErrRecord and ErrClosed, nothing was appended; ErrFailed; ErrUnknown when ctx ended while the record was on its way: the
// number is returned too, and the record stays in the log if it gets there.
func (l *Log) Append(ctx context.Context, payload []byte) (uint64, error) {
	one := [1][]byte{payload}
	return l.AppendBatch(ctx, one[:])
}

// AppendBatch adds records with consecutive numbers in one group and returns the first number. Errors as for Append; for all or for none,
// but at a crash before the answer a prefix of the batch may survive.
func (l *Log) AppendBatch(ctx context.Context, payloads [][]byte) (uint64, error) {
	var total int64
	for i, p := range payloads {
		if len(p) == 0 {
			return 0, fmt.Errorf("%w: record %d of %d is empty", ErrRecord, i+1, len(payloads))
		}
		if len(p) > MaxRecord {
			return 0, fmt.Errorf("%w: record of %d bytes is above the limit of %d", ErrRecord, len(p), MaxRecord)
		}
		total += recordSize + int64(len(p))
	}
	if len(payloads) == 0 {
		return 0, fmt.Errorf("%w: empty batch", ErrRecord)
	}
	if total > l.o.MaxPending {
		return 0, fmt.Errorf("%w: batch of %d bytes is above the limit of %d", ErrRecord, total, l.o.MaxPending)
	}
	g, seq, err := l.enqueue(ctx, payloads, total)
	if err != nil {
		return 0, err
	}
	if ctx.Done() == nil {
		l.lead(g)
		return seq, g.err
	}
	l.kick()
	select {
	case <-g.done:
		return seq, g.err
	default:
	}
	select {
	case <-g.done:
		return seq, g.err
	case <-ctx.Done():
		return seq, fmt.Errorf("%w: record %d: %w", ErrUnknown, seq, context.Cause(ctx))
	}
}

// lead returns when the group is committed, by whoever has the turn.
func (l *Log) lead(g *group) {
	select {
	case <-g.done:
		return
	case l.turn <- struct{}{}:
	}
	select {
	case <-g.done: // by who had the turn before
	default:
		l.commit()
	}
	<-l.turn
}

// kick has the goroutine commit what waits.
func (l *Log) kick() {
	select {
	case l.work <- struct{}{}:
	default: // it will look
	}
}

// enqueue puts the records into the group being filled.
func (l *Log) enqueue(ctx context.Context, payloads [][]byte, total int64) (*group, uint64, error) {
	for {
		if ctx.Err() != nil {
			return nil, 0, fmt.Errorf("append to log: %w", context.Cause(ctx))
		}
		l.mu.Lock()
		if l.mu.closed {
			l.mu.Unlock()
			return nil, 0, ErrClosed
		}
		if l.mu.err != nil {
			err := l.mu.err
			l.mu.Unlock()
			return nil, 0, err
		}
		g := l.mu.fill
		if g == nil {
			g = &group{buf: l.mu.spare[:0], first: l.mu.nextSeq, taken: make(chan struct{}), done: make(chan struct{})}
			l.mu.spare, l.mu.fill = nil, g
		}
		if int64(len(g.buf))+total > l.o.MaxPending && len(g.buf) > 0 {
			l.mu.Unlock()
			select {
			case <-g.taken:
			case <-ctx.Done():
			}
			continue
		}
		seq := l.mu.nextSeq
		l.mu.nextSeq += uint64(len(payloads))
		g.records += len(payloads)
		for _, p := range payloads {
			var h [recordSize]byte
			binary.LittleEndian.PutUint32(h[:], uint32(len(p)))
			g.buf = append(append(g.buf, h[:]...), p...)
		}
		l.mu.Unlock()
		return g, seq, nil
	}
}

// run commits for those who may leave, and does all that is not a commit.
func (l *Log) run() {
	defer close(l.done)
	for {
		select {
		case <-l.work:
			l.turn <- struct{}{}
			l.commit()
			<-l.turn
			runtime.Gosched() // the writers just answered are about to append again: let them, so that they share the next group
		case r := <-l.reqs:
			l.turn <- struct{}{}
			r.res <- r.fn()
			<-l.turn
		case <-l.quit:
			l.turn <- struct{}{}
			l.commit()
			l.closeErr = l.finish()
			<-l.turn
			return
		}
	}
}

// commit takes the group that waits, if any, and answers its writers. It needs the turn.
func (l *Log) commit() {
	l.mu.Lock()
	g := l.mu.fill
	l.mu.fill = nil
	l.mu.Unlock()
	if g == nil {
		return
	}
	close(g.taken)
	info, err := l.write(g)
	if err != nil {
		g.err = l.fail(err)
		close(g.done)
		return
	}
	l.mu.Lock()
	l.mu.lastSeq = g.first + uint64(g.records) - 1
	l.mu.files[len(l.mu.files)-1].size = l.size
	st := &l.mu.stats
	st.Records += uint64(g.records)
	st.Bytes += uint64(len(g.buf))
	st.Groups++
	if l.o.Sync == SyncAlways {
		st.Syncs++
		st.SyncTime += info.Sync
	}
	acknowledged := l.mu.lastSeq
	if cap(g.buf) <= maxSpare {
		l.mu.spare = g.buf
	}
	l.mu.Unlock()
	if !l.note.write(acknowledged) {
		l.note = nil
	}
	close(g.done)
	if l.o.Events.Committed != nil {
		l.o.Events.Committed(info)
	}
	if l.idle() {
		if err := l.mark(); err != nil {
			l.fail(err)
		}
	}
}

func (l *Log) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.fill == nil
}

// write puts a group on the disk. On error nothing of it counts, and the current file was cut back if possible.
func (l *Log) write(g *group) (Group, error) {
	if l.size+int64(len(g.buf)) > l.o.FileBytes {
		if err := l.rotate(g.first); err != nil {
			return Group{}, err
		}
	}
	off, seq := l.size, g.first
	for b := g.buf; len(b) > 0; seq++ {
		n := recordSize + int64(binary.LittleEndian.Uint32(b))
		sealRecord(b[:n], off, seq, uint32(off-l.durable))
		b, off = b[n:], off+n
	}
	start := time.Now()
	if err := l.reserve(int64(len(g.buf))); err != nil {
		return Group{}, err
	}
	if err := l.put(g.buf); err != nil {
		return Group{}, err
	}
	l.marked = false
	info := Group{Records: g.records, Bytes: int64(len(g.buf)), Write: time.Since(start)}
	if l.o.Sync == SyncAlways {
		start = time.Now()
		if err := l.sync(); err != nil {
			return Group{}, err
		}
		info.Sync = time.Since(start)
	}
	return info, nil
}

// Room ahead of what is written. A sync of bytes that lie where the file had some already is a write of these; where they make it longer, the file
// system notes the new length in a journal as well, which takes as long again.
const (
	mostRoom   = 64 << 10 // bytes
	mostInRoom = 32 << 10 // a longer group gains nothing by it
)

// reserve makes room for n bytes and for some more of their kind, in proportion to what is in the file already: never more than half of a file is
// room. It makes none where that would not save a sync anything or there is no space for it.
func (l *Log) reserve(n int64) error {
	if l.o.Sync != SyncAlways || n > mostInRoom || l.size+n <= l.room || l.full {
		return nil
	}
	end := l.size + n + min(mostRoom, l.size-headerSize)
	end = min(end&^(pageSize-1), l.o.FileBytes)
	if end <= l.size+n {
		return nil
	}
	if _, err := l.f.WriteAt(make([]byte, end-l.room), l.room); err != nil {
		failed := l.failure("reserve", err)
		if cut := l.cut(l.size); cut != nil {
			failed.NoSpace = false
			failed.Err = errors.Join(err, cut)
			return failed
		}
		if !failed.NoSpace {
			return failed
		}
		l.full = true // the records may fit all the same
		return nil
	}
	l.room = end
	return nil
}

// pageSize is what room is made in, in bytes: a part of a page costs as much as the whole.
const pageSize = 4 << 10

// begun notes that the current file has a header and nothing else.
func (l *Log) begun() {
	l.size, l.room, l.durable, l.marked, l.full = headerSize, headerSize, headerSize, true, false
}

// put writes bytes behind those that are in the current file, or cuts the file back to what it was.
func (l *Log) put(b []byte) error {
	_, err := l.f.WriteAt(b, l.size)
	if err == nil {
		l.size += int64(len(b))
		l.room = max(l.room, l.size)
		return nil
	}
	failed := l.failure("write", err)
	if cut := l.cut(l.size); cut != nil {
		failed.NoSpace = false
		failed.Err = errors.Join(err, cut)
	}
	return failed
}

// cut shortens the current file to size and makes sure of it.
func (l *Log) cut(size int64) error {
	if err := l.f.Truncate(size); err != nil {
		return fmt.Errorf("cut back: %w", err)
	}
	got, err := l.f.Size()
	if err != nil {
		return fmt.Errorf("cut back: %w", err)
	}
	if got != size {
		return fmt.Errorf("cut back: file has %d bytes, not %d", got, size)
	}
	l.room = size
	return nil
}

// sync makes the current file durable.
func (l *Log) sync() error {
	err := l.f.Sync()
	if err == nil {
		l.durable = l.size
		return nil
	}
	failed := l.failure("sync", err)
	failed.NoSpace = false // the state of the file is not known, whatever the reason
	// Nobody gets an answer for what is past the durable end. Taking it away makes it unlikely to come back when the log is opened
	// again; it is no more than that, so a failure here changes nothing.
	if cut := l.cut(l.durable); cut != nil {
		failed.Err = errors.Join(err, cut)
	}
	return failed
}

// mark writes that all before it is durable. It is not synced. With SyncNone there is nothing to say.
func (l *Log) mark() error {
	if l.durable != l.size {
		return nil
	}
	l.mu.Lock()
	last := l.mu.lastSeq
	l.mu.Unlock()
	var b [recordSize]byte
	sealRecord(b[:], l.size, last, 0)
	if err := l.put(b[:]); err != nil {
		return err
	}
	l.marked = true
	l.mu.Lock()
	l.mu.files[len(l.mu.files)-1].size = l.size
	l.mu.Unlock()
	return nil
}

// rotate begins the file whose first record is first. It does nothing when the current file has no records.
func (l *Log) rotate(first uint64) error {
	l.mu.Lock()
	current := l.mu.files[len(l.mu.files)-1].first
	l.mu.Unlock()
	if current == first {
		return nil
	}
	// Only the last file may have room, or a torn tail, even if all that is torn is a mark.
	roomy := l.room != l.size
	if roomy {
		if err := l.cut(l.size); err != nil {
			return l.failure("rotate", err)
		}
	}
	if roomy || l.durable != l.size {
		if err := l.sync(); err != nil {
			return err
		}
	}
	f, err := l.begin(first)
	if err != nil {
		failed := l.failure("rotate", err)
		failed.File = l.name(first)
		failed.NoSpace = failed.NoSpace && !errors.Is(err, errLeft)
		return failed
	}
	old := l.f
	l.f = f
	l.begun()
	l.mu.Lock()
	l.mu.files = append(l.mu.files, logFile{first: first, size: headerSize})
	l.mu.stats.Rotations++
	l.mu.Unlock()
	if l.o.Events.Rotated != nil {
		l.o.Events.Rotated(l.name(first))
	}
	if err := old.Close(); err != nil {
		return l.failure("close", err)
	}
	return nil
}

func (l *Log) failure(op string, err error) *FailedError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &FailedError{
		Op: op, File: l.name(l.mu.files[len(l.mu.files)-1].first), Err: err,
		NoSpace: errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT),
	}
}

// fail stops the log: the group being filled, and all that would follow, get the error, which is also returned.
func (l *Log) fail(err error) error {
	l.mu.Lock()
	l.mu.err = err
	g := l.mu.fill
	l.mu.fill = nil
	l.mu.nextSeq = l.mu.lastSeq + 1
	l.mu.Unlock()
	if g != nil {
		g.err = err
		close(g.taken)
		close(g.done)
	}
	if l.o.Events.Failed != nil {
		l.o.Events.Failed(err)
	}
	return err
}

// do has the goroutine run fn.
func (l *Log) do(ctx context.Context, fn func() error) error {
	r := request{fn: fn, res: make(chan error, 1)}
	select {
	case l.reqs <- r:
	case <-l.done:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return <-r.res
}

// usable runs fn unless the log has failed, and makes its error the log's.
func (l *Log) usable(fn func() error) func() error {
	return func() error {
		if err := l.Err(); err != nil {
			return err
		}
		if err := fn(); err != nil {
			return l.fail(err)
		}
		return nil
	}
}

// Sync makes all records of which Append has returned durable. With SyncAlways they are already.
func (l *Log) Sync(ctx context.Context) error {
	return l.do(ctx, l.usable(func() error {
		if l.durable == l.size {
			return nil
		}
		return l.sync()
	}))
}

// Rotate begins a new file if the current one has records, so that TrimBefore can remove it later.
func (l *Log) Rotate(ctx context.Context) error {
	return l.do(ctx, l.usable(func() error { return l.rotate(l.LastSeq() + 1) }))
}

// Probe tries to make a log usable again that ran out of space: it writes and removes Options.ProbeBytes, then writes and syncs a mark.
// It returns nil when the log takes records, and else the reason why not. It is cheap to call when nothing is wrong.
func (l *Log) Probe(ctx context.Context) error {
	return l.do(ctx, func() error {
		err := l.Err()
		if err == nil || !errors.Is(err, ErrNoSpace) {
			return err
		}
		if err := l.tryRoom(); err != nil {
			return errors.Join(l.Err(), err)
		}
		if err := l.mark(); err != nil {
			return l.fail(err)
		}
		if err := l.sync(); err != nil {
			return l.fail(err)
		}
		l.mu.Lock()
		l.mu.err = nil
		l.mu.Unlock()
		if l.o.Events.Recovered != nil {
			l.o.Events.Recovered()
		}
		return nil
	})
}

func (l *Log) tryRoom() error {
	name := path.Join(l.dir, "probe"+vfs.TempSuffix)
	f, err := l.fsys.Create(name)
	if err != nil {
		return fmt.Errorf("probe %s: %w", name, err)
	}
	_, err = f.Write(make([]byte, l.o.ProbeBytes))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close(), l.fsys.Remove(name)); err != nil {
		return fmt.Errorf("probe %s: %w", name, err)
	}
	return nil
}

// Replay calls fn for each record with a number of at least from that is in the log when it is called, in order; 0 means the first there is. The
// payload dies when fn returns. An error of fn ends it and is returned as it is. Other errors: *CorruptError, also for a
// missing file and when the log ends before from-1; ErrTrimmed; ErrNewerFormat.
func (l *Log) Replay(from uint64, fn func(seq uint64, payload []byte) error) error {
	l.mu.Lock()
	files, limit := append([]logFile(nil), l.mu.files...), l.mu.lastSeq
	l.mu.Unlock()
	return replay(l.fsys, l.dir, files, from, limit, fn)
}

// TrimBefore removes the files all of whose records have numbers below seq, oldest first, but never the current file. It works on a failed
// log too: it may make room.
func (l *Log) TrimBefore(seq uint64) error {
	l.trim.Lock()
	defer l.trim.Unlock()
	for {
		l.mu.Lock()
		files, closed := l.mu.files, l.mu.closed
		if closed {
			l.mu.Unlock()
			return ErrClosed
		}
		if len(files) < 2 || files[1].first > seq {
			l.mu.Unlock()
			return nil
		}
		name := l.name(files[0].first)
		l.mu.Unlock()
		if err := l.fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("trim log: %w", err)
		}
		// Each name on its own: a crash must not leave a gap.
		if err := l.fsys.SyncDir(l.dir); err != nil {
			return fmt.Errorf("trim log: %w", err)
		}
		l.mu.Lock()
		l.mu.files = append([]logFile(nil), l.mu.files[1:]...)
		l.mu.Unlock()
		if l.o.Events.Trimmed != nil {
			l.o.Events.Trimmed(name)
		}
	}
}

// Err is nil while the log takes records, else a *FailedError.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

// FirstSeq is the number of the oldest record kept, or of the next one when there is none.
func (l *Log) FirstSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.files[0].first
}

// LastSeq is the number of the last committed record, FirstSeq()-1 when there is none.
func (l *Log) LastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.lastSeq
}

// Recovery tells what Open cut off; nil when the tail was whole.
func (l *Log) Recovery() *Tail { return l.torn }

// Size is the length of all files in bytes.
func (l *Log) Size() int64 { return l.Stats().Size }

// Stats returns the counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.mu.stats
	st.Files, st.FirstSeq, st.LastSeq = len(l.mu.files), l.mu.files[0].first, l.mu.lastSeq
	for _, f := range l.mu.files {
		st.Size += f.size
	}
	return st
}

// Close commits what waits and releases the files. Appends that come later get ErrClosed. A second Close returns what the first did.
func (l *Log) Close() error {
	l.mu.Lock()
	first := !l.mu.closed
	l.mu.closed = true
	l.mu.Unlock()
	if first {
		close(l.quit)
	}
	<-l.done
	return l.closeErr
}

// finish leaves the current file durable and marked.
func (l *Log) finish() error {
	var err error
	if l.Err() == nil {
		if l.durable != l.size && l.o.Sync == SyncNone {
			err = l.sync()
		}
		if err == nil && !l.marked {
			err = l.mark()
		}
		if err == nil && l.room != l.size {
			err = l.cut(l.size)
		}
	}
	l.note.close()
	return errors.Join(err, l.f.Close())
}
