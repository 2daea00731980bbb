package hints

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/weft-search/weft/internal/vfs"
)

// MaxAside is how many documents of a member can be put aside.
const MaxAside = 1000

// ErrRefused is why a member overflows of which more documents were to be put aside.
var ErrRefused = errors.New("too many documents that it refuses")

// Refused is a document that was put aside.
type Refused struct {
	Entry
	Since time.Time // when the member missed it, or, where that is not known, was seen to lack it; to the millisecond, in UTC
}

// SetAside stores that the member does not take these documents, for a reason that will stay, until TakeBack: others have them in a state that
// it lacks. They stand beside the entries and stay over restarts, an overflow and a comparison. Those that are aside already stay as they are, but
// where they were missed again behind another member, which has to be known after a start.
// full says that they are too many: nothing was stored, and the member has overflowed.
func (q *Queue) SetAside(member string, entries []Entry) (full bool, err error) {
	m, err := q.member(member, true)
	if err != nil {
		return false, fmt.Errorf("put documents of %s aside: %w", member, err)
	}
	m.io.Lock()
	defer m.io.Unlock()
	if m.closed {
		return false, ErrClosed
	}
	next := slices.Clone(m.aside)
	known := make(map[Entry]int, len(next)+len(entries))
	for i, r := range next {
		known[r.Entry] = i
	}
	now := time.UnixMilli(q.o.Now().UnixMilli()).UTC()
	again := false
	for _, e := range entries {
		since := now
		m.mu.Lock()
		if last := m.waits.of[Hash(e)].last; last > Unacknowledged {
			since = time.UnixMilli(int64(last / 1000)).UTC()
		}
		m.mu.Unlock()
		at, ok := known[e]
		switch {
		case !ok:
			known[e] = len(next)
			next = append(next, Refused{Entry: e, Since: since})
		case since.After(next[at].Since) && q.rival(m, e) > stampOf(next[at].Since.UnixMilli()):
			next[at].Since = since
			again = true
		}
	}
	switch {
	case len(next) == len(m.aside) && !again:
		m.holdAside(next) // it may have been missed anew
		return false, nil
	case len(next) > MaxAside:
		return true, m.overflow(ErrRefused)
	}
	return false, m.putAside(next)
}

// TakeBack ends that documents are aside: the member has them, or they are nowhere any more. After an error they are aside still.
func (q *Queue) TakeBack(member string, entries []Entry) error {
	m, err := q.member(member, false)
	if err != nil || m == nil {
		return err
	}
	m.io.Lock()
	defer m.io.Unlock()
	if m.closed {
		return ErrClosed
	}
	gone := make(map[Entry]bool, len(entries))
	for _, e := range entries {
		gone[e] = true
	}
	next := slices.DeleteFunc(slices.Clone(m.aside), func(r Refused) bool { return gone[r.Entry] })
	if len(next) == len(m.aside) {
		return nil
	}
	return m.putAside(next)
}

// Aside lists the documents of a member that are aside, the oldest first.
func (q *Queue) Aside(member string) []Refused {
	m := q.known(member)
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.aside)
}

// IsAside tells whether a document of a member is aside.
func (q *Queue) IsAside(member string, e Entry) bool {
	m := q.known(member)
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.asideSet[e]
	return ok
}

// known is the state of a member, also after Close; nil for one that was never heard of.
func (q *Queue) known(addr string) *member {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.members[addr]
}

func (m *member) asidePath() string { return path.Join(m.q.dir, m.name+asideSuffix) }

// putAside replaces the documents that are aside. io is held.
func (m *member) putAside(next []Refused) error {
	if len(next) == 0 {
		if err := errors.Join(m.q.remove(m.asidePath()), m.q.fsys.SyncDir(m.q.dir)); err != nil {
			return fmt.Errorf("take back documents of %s: %w", m.addr, err)
		}
	} else if err := vfs.WriteFile(m.q.fsys, m.asidePath(), encodeAside(next)); err != nil {
		return fmt.Errorf("put documents of %s aside: %w", m.addr, err)
	}
	m.holdAside(next)
	return nil
}

// holdAside keeps in memory what is on the disk.
func (m *member) holdAside(next []Refused) {
	set := make(map[Entry]uint64, len(next))
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range next {
		// They are put aside before they leave the queue. After a start the time is what is known.
		last := max(m.asideSet[r.Entry], m.waits.of[Hash(r.Entry)].last)
		if last == 0 {
			last = stampOf(r.Since.UnixMilli())
		}
		set[r.Entry] = last
	}
	m.aside, m.asideSet = next, set
	m.waits.edits++
}

// encodeAside is a file of documents that are aside: one of entries that was closed in order, with a record for those that follow each other and
// have the index and the time in common.
func encodeAside(list []Refused) []byte {
	b := appendHeader(nil, 1)
	seq := uint64(0)
	for len(list) > 0 {
		first := list[0]
		var ids []string
		for _, r := range list {
			if r.Index != first.Index || !r.Since.Equal(first.Since) {
				break
			}
			ids = append(ids, r.ID)
		}
		seq++
		from := len(b)
		var n int
		b, n = appendRecord(b, seq, first.Since.UnixMilli(), first.Index, ids)
		seal(b[from:], int64(from))
		list = list[n:]
	}
	return appendMark(b, int64(len(b)), seq)
}

// decodeAside reads such a file. A non-empty reason says why it cannot be read.
func decodeAside(b []byte) (list []Refused, reason string, newer bool) {
	if reason, newer := checkHeader(b, 1); reason != "" {
		return nil, reason, newer
	}
	s := scanFile(b, 1, func(r record) {
		for _, id := range r.ids {
			list = append(list, Refused{Entry: Entry{Index: r.index, ID: string(id)}, Since: time.UnixMilli(r.at).UTC()})
		}
	})
	if s.reason == "" && !s.closed {
		s.reason = "it has no end"
	}
	return list, s.reason, false
}

// recoverAside reads the documents that are aside. cause is why the member has to overflow: nobody knows which they are.
func (m *member) recoverAside() (cause *CorruptError, err error) {
	if m.asideSize > maxSegment {
		return &CorruptError{File: m.asidePath(), Reason: fmt.Sprintf("%d bytes, the limit is %d", m.asideSize, maxSegment)}, nil
	}
	b, err := vfs.ReadFile(m.q.fsys, m.asidePath())
	if err != nil {
		return nil, err
	}
	list, reason, newer := decodeAside(b)
	switch {
	case newer:
		return nil, fmt.Errorf("%w: %s: %s", ErrNewerFormat, m.asidePath(), reason)
	case reason != "":
		return &CorruptError{File: m.asidePath(), Reason: reason}, nil
	}
	m.holdAside(list)
	return nil, nil
}
