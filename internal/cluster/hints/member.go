package hints

import (
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/vfs"
)

// freshBytes bounds what is remembered of the entries of a member to know a repeated one, in bytes of memory, about.
const freshBytes = 4 << 20

// readChunk is how much of a file is read at once: more than the longest record.
const readChunk = 2 * (recordSize + maxPayload)

// member is the queue of one member: files with entries, oldest first, and perhaps a mark that it has overflowed.
//
// io is held while files are touched, also over a sync, and mu for moments; io comes first. Fields that are written with both held may
// be read with either.
type member struct {
	q    *Queue
	addr string
	name string // in file names

	// While it is recovered: it has a file of documents that are aside, of so many bytes.
	refuses   bool
	asideSize int64

	io     sync.Mutex
	active vfs.File // of the last segment while it is written; under io
	closed bool     // under io

	mu sync.Mutex
	// Written with both:
	segments  []*segment
	at        place  // of the next entry; in the first segment
	count     int    // entries from there on
	oldest    int64  // time of the next entry, Unix milliseconds, if count > 0
	size      int64  // bytes of the segments
	marked    bool   // the mark is durable
	cause     error  // the member is to overflow, but the mark could not be written yet
	comparing bool   // marked, and entries are kept none the less
	gen       uint64 // grows with what makes a comparison void
	aside     []Refused
	asideSet  map[Entry]uint64 // the same, with the stamps of Waiting.Last; 0: not known
	// Under mu:
	seq    uint64             // number of the last record
	fill   *group             // what is to be written next; nil: nothing
	flight int64              // bytes that are being written
	fresh  map[Entry]struct{} // entries that wait, or are being written, and were not given out by Next; not all
	weight int                // bytes of fresh, about
	waits  waits              // of what is on the disk
	added  uint64             // calls that added something
}

// segment is a file.
type segment struct {
	path  string
	first uint64 // number of the first record
	last  uint64
	size  int64
	end   int64 // of the records
}

// place is where an entry stands: the segment by its first record, the offset of the record there, and the entries of it to pass over.
type place struct {
	first uint64
	off   int64
	skip  int
}

// group is what several Adds write together. Fields but done, full and err are under mu until commit takes it, those are under io.
type group struct {
	buf     []byte
	records []pendingRecord
	noted   []noted
	over    error // why the member overflows by it

	done bool
	full bool
	err  error
}

type pendingRecord struct {
	seq     uint64
	size    int
	entries int
	at      int64
}

// run is some documents of an Add in a row that were missed at one time, in Unix milliseconds.
type run struct {
	at  int64
	ids []string
}

func newMember(q *Queue, addr string) *member {
	return &member{q: q, addr: addr, name: escape(addr), fresh: map[Entry]struct{}{}}
}

func (m *member) markPath() string { return path.Join(m.q.dir, m.name+markSuffix) }

// recover reads the files that were found. Nobody else has the member yet.
func (m *member) recover() error {
	var unread *CorruptError
	if m.refuses {
		var err error
		if unread, err = m.recoverAside(); err != nil {
			return err
		}
	}
	if err := m.recoverEntries(); err != nil || unread == nil {
		return err
	}
	if err := m.overflow(unread); err != nil {
		return err
	}
	return errors.Join(m.q.remove(m.asidePath()), m.q.fsys.SyncDir(m.q.dir))
}

func (m *member) recoverEntries() error {
	if m.marked {
		// Entries beside a mark were dropped, or kept for a comparison that ended with its process.
		return m.dropAll()
	}
	files := m.segments
	m.segments = nil
	for i, s := range files {
		last := i == len(files)-1
		cause, err := m.recoverSegment(s, last)
		if err != nil {
			return err
		}
		if cause != nil {
			m.segments = files
			return m.overflow(cause)
		}
	}
	m.at = m.head()
	if m.expired() {
		return m.overflow(ErrExpired)
	}
	return nil
}

// recoverSegment reads one file. cause is why the member has to overflow.
func (m *member) recoverSegment(s *segment, last bool) (cause *CorruptError, err error) {
	corrupt := func(off int64, reason string) (*CorruptError, error) {
		return &CorruptError{File: s.path, Offset: off, Reason: reason}, nil
	}
	if s.size > maxSegment {
		return corrupt(0, fmt.Sprintf("%d bytes, the limit is %d", s.size, maxSegment))
	}
	b, err := vfs.ReadFile(m.q.fsys, s.path)
	if err != nil {
		return nil, err
	}
	if m.seq != 0 && s.first != m.seq+1 {
		return corrupt(0, fmt.Sprintf("begins with record %d, the file before it ends with %d", s.first, m.seq))
	}
	reason, newer := checkHeader(b, s.first)
	switch {
	case newer:
		return nil, fmt.Errorf("%w: %s: %s", ErrNewerFormat, s.path, reason)
	case reason != "" && last && len(b) <= headerSize: // begun and never used
		return nil, m.q.remove(s.path)
	case reason != "":
		return corrupt(0, reason)
	}
	r := scanFile(b, s.first, func(r record) {
		found := make([]noted, 0, len(r.ids))
		for _, id := range r.ids {
			e := Entry{Index: r.index, ID: string(id)}
			m.note(e)
			found = append(found, noted{Hash(e), stampOf(r.at), r.at, true})
		}
		m.waits.note(found)
	})
	switch {
	case r.reason != "" && (r.corrupt || !last):
		return corrupt(r.end, r.reason)
	case r.reason != "":
		m.q.o.Report(m.addr, &TailError{File: s.path, Offset: r.end, Bytes: int64(len(b)) - r.end, Reason: r.reason})
	}
	if r.entries == 0 {
		if !last {
			return corrupt(r.end, "no entries, but another file follows")
		}
		return nil, m.q.remove(s.path)
	}
	if last && !r.closed {
		// What can be read need not be on the disk, and a torn tail must not come before what is written later.
		b = appendMark(b[:r.end:r.end], r.end, r.last)
		if err := vfs.WriteFile(m.q.fsys, s.path, b); err != nil {
			return nil, err
		}
	}
	s.size, s.end, s.last = int64(len(b)), r.end, r.last
	if m.count == 0 {
		m.oldest = r.oldest
	}
	m.segments = append(m.segments, s)
	m.seq = r.last
	m.count += r.entries
	m.size += s.size
	return nil, nil
}

// head is the place of the first entry of the first segment.
func (m *member) head() place {
	if len(m.segments) == 0 {
		return place{}
	}
	return place{first: m.segments[0].first, off: headerSize}
}

// note remembers an entry, if that is cheap; false means that it was there already.
func (m *member) note(e Entry) bool {
	if _, ok := m.fresh[e]; ok {
		return false
	}
	if w := len(e.Index) + len(e.ID) + 64; m.weight+w <= freshBytes {
		m.fresh[e] = struct{}{}
		m.weight += w
	}
	return true
}

func (m *member) unnote(e Entry) {
	if _, ok := m.fresh[e]; ok {
		delete(m.fresh, e)
		m.weight -= len(e.Index) + len(e.ID) + 64
	}
}

func (m *member) unnoteAll() {
	clear(m.fresh)
	m.weight = 0
}

// expired tells whether the oldest entry is too old.
func (m *member) expired() bool {
	return m.count > 0 && m.q.o.Now().Sub(time.UnixMilli(m.oldest)) > m.q.o.MaxAge
}

// join puts entries into the group that is written next, and returns it; nil when the member has overflowed. A repeated entry joins, too:
// the one that stands for it may be on its way. last is as in noted. Those in anew are stored in any case.
func (m *member) join(index string, ids []string, last uint64, anew map[string]bool) *group {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last > Unacknowledged {
		m.added++
	}
	if m.marked && !m.comparing {
		return nil
	}
	if m.fill == nil {
		m.fill = &group{}
	}
	g := m.fill
	if g.over != nil {
		return g
	}
	if m.expired() {
		g.over = ErrExpired
		return g
	}
	now := m.q.o.Now().UnixMilli()
	var runs []run
	for _, id := range ids {
		e := Entry{Index: index, ID: id}
		hash := Hash(e)
		at := now
		if was := m.waits.of[hash].last; last <= Unacknowledged && was > Unacknowledged {
			at = int64(was / 1000) // after a start it is what is known of when it was missed
		}
		stored := m.note(e) || anew[id]
		g.noted = append(g.noted, noted{hash, last, at, stored})
		if !stored {
			continue
		}
		if n := len(runs); n == 0 || runs[n-1].at != at {
			runs = append(runs, run{at: at})
		}
		runs[len(runs)-1].ids = append(runs[len(runs)-1].ids, id)
	}
	for _, of := range runs {
		for left := of.ids; len(left) > 0; {
			before := len(g.buf)
			var n int
			g.buf, n = appendRecord(g.buf, m.seq+1, of.at, index, left)
			if m.size+m.flight+int64(len(g.buf))+headerSize > m.q.o.MaxBytes {
				g.over = ErrFull
				g.buf, g.records = nil, nil
				return g
			}
			m.seq++
			g.records = append(g.records, pendingRecord{seq: m.seq, size: len(g.buf) - before, entries: n, at: of.at})
			left = left[n:]
		}
	}
	return g
}

// commit writes a group and says what became of it. io is held.
func (m *member) commit(g *group) {
	g.done = true
	m.mu.Lock()
	m.fill = nil
	m.flight = int64(len(g.buf))
	over := g.over
	if m.cause != nil {
		over = m.cause
	}
	full := m.marked && !m.comparing
	if full {
		m.unnoteAll() // of this group nothing is stored
	}
	m.mu.Unlock()
	switch {
	case m.closed:
		g.err = ErrClosed
	case full:
		g.full = true
	case over != nil:
		g.full, g.err = true, m.overflow(over)
	case len(g.buf) > 0:
		if err := m.write(g); err != nil {
			g.full, g.err = true, m.overflow(err)
		}
	}
	m.mu.Lock()
	m.flight = 0
	if !g.full && g.err == nil {
		m.waits.note(g.noted)
	}
	m.mu.Unlock()
}

// write appends a group to the files and syncs it. After an error nothing is known of what the last file holds. io is held.
func (m *member) write(g *group) error {
	made := false
	b, records := g.buf, g.records
	for len(records) > 0 {
		if m.active != nil && m.lastSegment().size >= segmentBytes {
			if err := m.endSegment(); err != nil {
				return err
			}
		}
		if m.active == nil {
			if err := m.beginSegment(records[0].seq); err != nil {
				return err
			}
			made = true
		}
		s := m.lastSegment()
		n, size, entries := 0, 0, 0
		for n < len(records) && (n == 0 || s.size+int64(size) < segmentBytes) {
			r := records[n]
			seal(b[size:size+r.size], s.size+int64(size))
			size += r.size
			entries += r.entries
			n++
		}
		if _, err := m.active.Write(b[:size]); err != nil {
			return err
		}
		m.mu.Lock()
		if m.count == 0 {
			m.oldest = records[0].at
		}
		m.count += entries
		m.size += int64(size)
		m.flight -= int64(size)
		s.size += int64(size)
		s.end, s.last = s.size, records[n-1].seq
		m.mu.Unlock()
		b, records = b[size:], records[n:]
	}
	if err := m.active.Sync(); err != nil {
		return err
	}
	if made {
		return m.q.fsys.SyncDir(m.q.dir)
	}
	return nil
}

func (m *member) lastSegment() *segment { return m.segments[len(m.segments)-1] }

func (m *member) beginSegment(first uint64) error {
	s := &segment{path: path.Join(m.q.dir, segmentName(m.name, first)), first: first, last: first - 1, size: headerSize, end: headerSize}
	f, err := m.q.fsys.Create(s.path)
	if err != nil {
		return err
	}
	m.active = f
	m.mu.Lock()
	m.segments = append(m.segments, s)
	m.size += headerSize
	if len(m.segments) == 1 {
		m.at = m.head()
	}
	m.mu.Unlock()
	_, err = f.Write(appendHeader(nil, first))
	return err
}

// endSegment closes the file that is written, so that the next record begins another.
func (m *member) endSegment() error {
	f := m.active
	m.active = nil
	return errors.Join(f.Sync(), f.Close())
}

// overflow marks the member, then drops its entries. An error means that the mark is not durable; the next call of any kind tries again.
// io is held.
func (m *member) overflow(cause error) error {
	m.mu.Lock()
	m.cause = cause
	m.comparing = false
	m.gen++
	marked := m.marked
	m.mu.Unlock()
	if !marked {
		if err := m.writeMark(cause); err != nil {
			return fmt.Errorf("mark that hints were lost (%w): %w", cause, err)
		}
	}
	m.mu.Lock()
	m.marked, m.cause = true, nil
	m.mu.Unlock()
	m.q.o.Report(m.addr, cause)
	// What cannot be removed now is removed by the next Open, which finds the mark; or, once the member was compared, found not to
	// fit what follows.
	if err := m.dropAll(); err != nil {
		m.q.o.Report(m.addr, fmt.Errorf("remove hints: %w", err))
	}
	return nil
}

// writeMark makes the mark. It is for people: that the file is there is all that counts.
func (m *member) writeMark(cause error) error {
	return vfs.WriteFile(m.q.fsys, m.markPath(), fmt.Appendf(nil, "%s to be compared since %s: %v\n",
		m.addr, m.q.o.Now().UTC().Format(time.RFC3339), cause))
}

// dropAll drops all entries with their files. io is held.
func (m *member) dropAll() error {
	m.mu.Lock()
	files := m.segments
	m.segments, m.count, m.size, m.at = nil, 0, 0, place{}
	m.unnoteAll()
	m.waits.done(nil, true)
	m.mu.Unlock()
	var errs []error
	if m.active != nil {
		errs = append(errs, m.active.Close())
		m.active = nil
	}
	for _, s := range files {
		errs = append(errs, m.q.remove(s.path))
	}
	return errors.Join(errs...)
}

func (m *member) pending() MemberPending {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := MemberPending{Member: m.addr, Count: m.count, Refused: len(m.aside), Overflowed: m.marked || m.cause != nil, Comparing: m.comparing}
	if m.count > 0 {
		p.Oldest = time.UnixMilli(m.oldest)
	}
	return p
}

// next collects the next entries. io is held.
func (m *member) next(limit int) (Batch, error) {
	if m.closed {
		return Batch{}, ErrClosed
	}
	if m.cause != nil {
		return Batch{Member: m.addr}, m.overflow(m.cause)
	}
	if m.expired() {
		return Batch{Member: m.addr}, m.overflow(ErrExpired)
	}
	b := Batch{Member: m.addr, start: m.at, end: m.at}
	seen := map[Entry]bool{}
	for i := 0; i < len(m.segments) && len(b.Entries) < limit; i++ {
		s := m.segments[i]
		if i > 0 {
			b.end = place{first: s.first, off: headerSize}
		}
		err := m.read(s, b.end.off, func(r record) bool {
			for b.end.skip < len(r.ids) && len(b.Entries) < limit {
				e := Entry{Index: r.index, ID: string(r.ids[b.end.skip])}
				b.end.skip++
				b.n++
				b.hashes = append(b.hashes, Hash(e))
				if !seen[e] {
					seen[e] = true
					b.Entries = append(b.Entries, e)
				}
			}
			if b.end.skip == len(r.ids) {
				b.end.off, b.end.skip = b.end.off+r.size, 0
			}
			return len(b.Entries) < limit
		})
		var bad *CorruptError
		if errors.As(err, &bad) {
			return Batch{}, errors.Join(bad, m.overflow(bad))
		}
		if err != nil {
			return Batch{}, err
		}
	}
	m.mu.Lock()
	for e := range seen {
		m.unnote(e) // when it is missed again from now on, the replay may have seen an older document
	}
	m.mu.Unlock()
	return b, nil
}

// read gives the records of a segment from an offset on to fn, until it returns false or the segment ends.
func (m *member) read(s *segment, off int64, fn func(record) bool) (err error) {
	if off >= s.end {
		return nil
	}
	f, err := m.q.fsys.Open(s.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, min(readChunk, s.end-off))
	for off < s.end {
		chunk := buf[:min(int64(len(buf)), s.end-off)]
		if n, err := f.ReadAt(chunk, off); n < len(chunk) {
			return fmt.Errorf("read %s at offset %d: %w", s.path, off, err)
		}
		from := off
		for off < s.end {
			r, reason := decodeRecord(chunk[off-from:], off)
			if reason != "" && off > from && s.end-from > int64(len(chunk)) {
				break // the rest may be in the next chunk
			}
			if reason == "" && r.mark {
				reason = "the end of the file stands before it"
			}
			if reason != "" {
				return &CorruptError{File: s.path, Offset: off, Reason: reason}
			}
			if !fn(r) {
				return nil
			}
			off += r.size
		}
	}
	return nil
}

// drop moves the place behind a batch and removes the files that are left behind. io is held.
func (m *member) drop(b Batch) error {
	if m.closed {
		return ErrClosed
	}
	if b.start != m.at || b.n == 0 {
		return nil
	}
	// After an error the entries may be there again when the queue is opened anew, or there is a gap and the member overflows.
	m.mu.Lock()
	m.at = b.end
	m.count -= b.n
	m.waits.done(b.hashes, m.count == 0)
	m.mu.Unlock()
	// One after the other and each for good: what a crash leaves has no gap, and a gap is damage.
	var errs []error
	for len(m.segments) > 0 {
		s := m.segments[0]
		if s.first == m.at.first && m.at.off < s.end {
			break
		}
		if len(m.segments) == 1 && m.active != nil {
			f := m.active
			m.active = nil
			if err := f.Close(); err != nil {
				m.q.o.Report(m.addr, fmt.Errorf("close %s: %w", s.path, err)) // it goes
			}
		}
		m.mu.Lock()
		m.segments = m.segments[1:]
		m.size -= s.size
		if s.first == m.at.first {
			m.at = m.head()
		}
		m.mu.Unlock()
		errs = append(errs, m.q.remove(s.path), m.q.fsys.SyncDir(m.q.dir))
	}
	if m.count > 0 {
		errs = append(errs, m.read(m.segments[0], m.at.off, func(r record) bool {
			m.mu.Lock()
			m.oldest = r.at
			m.mu.Unlock()
			return false
		}))
	}
	return errors.Join(errs...)
}

// compare begins a comparison. io is held.
func (m *member) compare() (gen uint64, err error) {
	if m.closed {
		return 0, ErrClosed
	}
	if !m.marked {
		if err := m.writeMark(errors.New("a comparison was begun")); err != nil {
			return 0, err
		}
	}
	m.mu.Lock()
	m.gen++
	m.marked, m.cause = true, nil
	m.mu.Unlock()
	err = m.dropAll()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.comparing = err == nil
	return m.gen, err
}

// compared ends the overflow, if it is still the one of that comparison. io is held.
func (m *member) compared(gen uint64) (bool, error) {
	if m.closed {
		return false, ErrClosed
	}
	if !m.comparing || m.gen != gen {
		return false, nil
	}
	if err := m.q.remove(m.markPath()); err != nil {
		return false, err
	}
	m.mu.Lock()
	m.marked, m.comparing = false, false
	m.waits.edits++
	m.mu.Unlock()
	return true, m.q.fsys.SyncDir(m.q.dir) // a mark that comes back at a crash costs a comparison
}

// forget drops everything. io is held.
func (m *member) forget() error {
	if m.closed {
		return ErrClosed
	}
	m.mu.Lock()
	m.gen++
	m.mu.Unlock()
	if err := m.dropAll(); err != nil {
		return err
	}
	if err := errors.Join(m.q.remove(m.asidePath()), m.q.remove(m.markPath())); err != nil {
		return err
	}
	if err := m.q.fsys.SyncDir(m.q.dir); err != nil {
		return err
	}
	m.holdAside(nil)
	m.mu.Lock()
	m.marked, m.comparing, m.cause = false, false, nil
	m.waits.edits++
	m.mu.Unlock()
	return nil
}

// close ends the file that is written with a mark, which tells later damage from a torn tail.
func (m *member) close() error {
	m.io.Lock()
	defer m.io.Unlock()
	m.closed = true
	if m.active == nil {
		return nil
	}
	f := m.active
	m.active = nil
	if m.cause != nil { // what the file ends with is not known
		return f.Close()
	}
	s := m.lastSegment()
	_, err := f.Write(appendMark(nil, s.end, s.last))
	return errors.Join(err, f.Sync(), f.Close()) // with half a mark, the file could not be followed by another
}
