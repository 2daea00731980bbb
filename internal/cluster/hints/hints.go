package hints

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/vfs"
)

// The kinds of error that callers tell apart with errors.Is.
var (
	// ErrEntry: a member, index or id that is empty or too long; nothing was stored.
	ErrEntry = errors.New("bad hint")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("hints closed")
	// ErrNewerFormat: a file needs a newer reader.
	ErrNewerFormat = errors.New("hints written by a newer version")
	// ErrCorrupt marks every *CorruptError.
	ErrCorrupt = errors.New("hints corrupt")
	// ErrFull and ErrExpired are why a member overflows, see Options.
	ErrFull    = errors.New("too many hints")
	ErrExpired = errors.New("hints too old")
)

// CorruptError is an ErrCorrupt with its place.
type CorruptError struct {
	File   string // path
	Offset int64  // of the first byte that does not make sense
	Reason string
}

// Error names file, offset and reason.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s at offset %d: %s", ErrCorrupt, e.File, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// TailError tells of a torn tail that Open cut: what was left of a write that a crash cut off. No Add that returned was part of it.
type TailError struct {
	File   string // path
	Offset int64  // the file was cut to this length
	Bytes  int64  // how much was cut
	Reason string
}

// Error says what was cut.
func (e *TailError) Error() string {
	return fmt.Sprintf("%s: cut %d bytes at offset %d: %s", e.File, e.Bytes, e.Offset, e.Reason)
}

// Options tune a queue. The zero value is the default.
type Options struct {
	MaxBytes int64         // of files for one member; beyond, it overflows. Default: 64 MiB
	MaxAge   time.Duration // of a member's oldest entry; beyond, it overflows. Default: 24 hours
	Now      func() time.Time
	// Report, unless nil, is told when a member overflows, with the cause, and when Open cuts a torn tail (*TailError). It must not
	// call the queue.
	Report func(member string, err error)
}

const (
	defaultMaxBytes = 64 << 20
	defaultMaxAge   = 24 * time.Hour
)

// Entry is a document that a member missed.
type Entry struct{ Index, ID string }

// Queue keeps the entries of all members in one folder.
type Queue struct {
	fsys vfs.FS
	dir  string
	o    Options
	id   string

	clock  clock
	rivals atomic.Pointer[func(member string, e Entry) uint64]

	mu struct {
		sync.Mutex
		members map[string]*member // one that was ever used stays
		closed  bool
	}
}

// MemberPending is what waits for a member.
type MemberPending struct {
	Member string
	Count  int       // entries
	Oldest time.Time // when the oldest entry was made; zero without entries
	// Refused is how many documents are aside, see SetAside.
	Refused int
	// Overflowed: entries were dropped, and the member has to be compared. Comparing: that was begun by this process, and the entries are
	// those since then.
	Overflowed, Comparing bool
}

// Short tells whether there is more to be given to the member than what it refuses.
func (p *MemberPending) Short() bool { return p.Count > 0 || p.Overflowed }

// Batch is some entries of a member, the oldest. It is for Done.
type Batch struct {
	Member  string
	Entries []Entry // no two the same

	start, end place    // no two records of a member have the same place while the queue is open
	n          int      // entries with repetitions
	hashes     []uint64 // of all of these
}

// Comparison is a comparison under way. It is for Compared.
type Comparison struct {
	Member string
	gen    uint64
}

// idName is the file that names the queue.
const idName = "queue.id"

// ID names the queue, by 26 letters and digits. It stays the same as long as the folder does, once it could be written there.
func (q *Queue) ID() string { return q.id }

// name reads the name of the queue, or gives it one.
func (q *Queue) name() error {
	p := path.Join(q.dir, idName)
	b, err := vfs.ReadFile(q.fsys, p)
	if err == nil && validID(string(b)) {
		q.id = string(b)
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	q.id = strings.ToLower(rand.Text())
	if err := vfs.WriteFile(q.fsys, p, []byte(q.id)); err != nil {
		// It is not worth refusing to start for: it has another name after the next start.
		q.o.Report("", fmt.Errorf("name the folder of missed writes: %w", err))
	}
	return nil
}

func validID(id string) bool {
	return len(id) == 26 && !strings.ContainsFunc(id, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '2' || r > '7') })
}

// Open opens the queue in dir, which is made if absent, with its parents.
func Open(dir string, fsys vfs.FS, o Options) (*Queue, error) {
	if o.MaxBytes < 0 || o.MaxAge < 0 {
		return nil, fmt.Errorf("open hints %s: negative bounds", dir)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.MaxAge == 0 {
		o.MaxAge = defaultMaxAge
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Report == nil {
		o.Report = func(string, error) {}
	}
	q := &Queue{fsys: fsys, dir: dir, o: o}
	q.clock.now = o.Now
	q.mu.members = map[string]*member{}
	if err := errors.Join(q.recover(), q.name()); err != nil {
		return nil, fmt.Errorf("open hints: %w", err)
	}
	return q, nil
}

// recover finds what earlier processes left.
func (q *Queue) recover() error {
	if err := vfs.MkdirAll(q.fsys, q.dir); err != nil {
		return err
	}
	infos, err := q.fsys.ReadDir(q.dir)
	if err != nil {
		return err
	}
	for _, in := range infos { // by name, so the files of a member come in the order of their records
		p := path.Join(q.dir, in.Name)
		if in.Dir {
			continue
		}
		if vfs.IsTemp(in.Name) {
			if err := q.fsys.Remove(p); err != nil {
				return err
			}
			continue
		}
		name, aside := strings.CutSuffix(in.Name, asideSuffix)
		addr, first, ok := parseName(in.Name)
		if aside {
			addr, ok = unescape(name)
		}
		if !ok {
			continue
		}
		m := q.mu.members[addr]
		if m == nil {
			m = newMember(q, addr)
			q.mu.members[addr] = m
		}
		switch {
		case aside:
			m.refuses, m.asideSize = true, in.Size
		case first == 0:
			m.marked = true
		default:
			m.segments = append(m.segments, &segment{path: p, first: first, size: in.Size})
		}
	}
	// What is seen need not be on the disk: the process before may have ended before it synced the names.
	for _, d := range []string{q.dir, path.Dir(q.dir)} {
		if err := q.fsys.SyncDir(d); err != nil {
			return err
		}
	}
	for _, m := range q.mu.members {
		if err := m.recover(); err != nil {
			return err
		}
	}
	return nil
}

// member returns the state of a member; with make also of one that was never heard of, else nil for that.
func (q *Queue) member(addr string, make bool) (*member, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed {
		return nil, ErrClosed
	}
	m := q.mu.members[addr]
	if m == nil && make {
		if addr == "" || len(escape(addr)) > maxName {
			return nil, fmt.Errorf("%w: member %.300q: empty or too long", ErrEntry, addr)
		}
		m = newMember(q, addr)
		q.mu.members[addr] = m
	}
	return m, nil
}

// Add stores that the member missed writes of these documents, which another has. full says that the member has overflowed, so that they were
// dropped.
func (q *Queue) Add(member, index string, ids []string) (full bool, err error) {
	return q.add(member, index, ids, q.clock.next())
}

// AddUnacknowledged is Add of writes that nobody has confirmed, neither this member nor another: it may have missed them, and so may all others.
// It does not make the member one that has missed more than others, see Waiting.Last.
func (q *Queue) AddUnacknowledged(member, index string, ids []string) (full bool, err error) {
	return q.add(member, index, ids, Unacknowledged)
}

// Requeue is Add of what was given out by Next, before it is Done: it comes again behind everything else. It was not missed anew.
func (q *Queue) Requeue(member, index string, ids []string) (full bool, err error) {
	return q.add(member, index, ids, 0)
}

func (q *Queue) add(member, index string, ids []string, last uint64) (full bool, err error) {
	if index == "" || len(index) > api.MaxIndexName {
		return false, fmt.Errorf("%w: index %.300q: empty or too long", ErrEntry, index)
	}
	for _, id := range ids {
		if id == "" || len(id) > api.MaxID {
			return false, fmt.Errorf("%w: id %.600q: empty or too long", ErrEntry, id)
		}
	}
	m, err := q.member(member, true)
	if err != nil {
		return false, fmt.Errorf("keep hints for %s: %w", member, err)
	}
	var anew map[string]bool
	if last > Unacknowledged {
		anew = q.contested(m, index, ids)
	}
	g := m.join(index, ids, last, anew)
	if g == nil {
		return true, nil
	}
	m.io.Lock()
	defer m.io.Unlock()
	if !g.done {
		m.commit(g)
	}
	if g.err != nil {
		return g.full, fmt.Errorf("keep hints for %s: %w", member, g.err)
	}
	return g.full, nil
}

// Pending lists the members that miss something, by name.
func (q *Queue) Pending() []MemberPending {
	q.mu.Lock()
	members := make([]*member, 0, len(q.mu.members))
	for _, m := range q.mu.members {
		members = append(members, m)
	}
	q.mu.Unlock()
	var out []MemberPending
	for _, m := range members {
		if p := m.pending(); p.Count > 0 || p.Overflowed || p.Refused > 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b MemberPending) int { return strings.Compare(a.Member, b.Member) })
	return out
}

// Next returns the oldest entries of a member, at most limit, and none when there are none. Until Done is called with them, Next returns
// the same again. When they turn out to be damaged the error is a *CorruptError, and the member has overflowed.
func (q *Queue) Next(member string, limit int) (Batch, error) {
	m, err := q.member(member, false)
	if err != nil || m == nil {
		return Batch{Member: member}, err
	}
	m.io.Lock()
	defer m.io.Unlock()
	b, err := m.next(limit)
	if err != nil {
		return Batch{Member: member}, fmt.Errorf("read hints for %s: %w", member, err)
	}
	return b, nil
}

// Done drops the entries of a batch, which were replayed. A batch that is not the last one of Next for its member is passed over: what
// it held was dropped already. After an error the entries are dropped,
// but may be there again after a restart, or the member then has overflowed.
func (q *Queue) Done(b Batch) error {
	m, err := q.member(b.Member, false)
	if err != nil || m == nil {
		return err
	}
	m.io.Lock()
	defer m.io.Unlock()
	if err := m.drop(b); err != nil {
		return fmt.Errorf("drop hints for %s: %w", b.Member, err)
	}
	return nil
}

// Compare says that a comparison of all documents of the member begins. Its entries are dropped, and what it misses from now on is kept,
// even after an overflow. Until Compared the member counts as overflowed, also after a restart.
func (q *Queue) Compare(member string) (Comparison, error) {
	m, err := q.member(member, true)
	if err != nil {
		return Comparison{}, err
	}
	m.io.Lock()
	defer m.io.Unlock()
	gen, err := m.compare()
	if err != nil {
		return Comparison{}, fmt.Errorf("begin to compare %s: %w", member, err)
	}
	return Comparison{Member: member, gen: gen}, nil
}

// Compared says that a comparison found nothing more that the member lacks. It returns false when the member has overflowed since, or
// another comparison was begun: then it has to be compared again. With an error it is not known whether that is so after a crash.
func (q *Queue) Compared(c Comparison) (bool, error) {
	m, err := q.member(c.Member, false)
	if err != nil || m == nil {
		return false, err
	}
	m.io.Lock()
	defer m.io.Unlock()
	ok, err := m.compared(c.gen)
	if err != nil {
		return ok, fmt.Errorf("end the comparison of %s: %w", c.Member, err)
	}
	return ok, nil
}

// Forget drops all that is known of a member, which left the cluster.
func (q *Queue) Forget(member string) error {
	m, err := q.member(member, false)
	if err != nil || m == nil {
		return err
	}
	m.io.Lock()
	defer m.io.Unlock()
	if err := m.forget(); err != nil {
		return fmt.Errorf("forget hints for %s: %w", member, err)
	}
	return nil
}

// Close waits for what is under way and closes the files. All calls from then on return ErrClosed, but Pending, which still answers.
func (q *Queue) Close() error {
	q.mu.Lock()
	if q.mu.closed {
		q.mu.Unlock()
		return nil
	}
	q.mu.closed = true
	members := make([]*member, 0, len(q.mu.members))
	for _, m := range q.mu.members {
		members = append(members, m)
	}
	q.mu.Unlock()
	var errs []error
	for _, m := range members {
		if err := m.close(); err != nil {
			errs = append(errs, fmt.Errorf("close hints for %s: %w", m.addr, err))
		}
	}
	return errors.Join(errs...)
}

// remove removes a file that may be gone already.
func (q *Queue) remove(p string) error {
	if err := q.fsys.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
