package hints

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
)

// maxWaits is how many documents of a member are known one by one. Beyond, it may wait for any until its entries have been given out.
const maxWaits = 1 << 16

// Unacknowledged is the stamp of what a member may have missed and nobody has confirmed.
const Unacknowledged = 1

// maxStamp bounds what is heard: a clock that is wrong by so much is not followed. It leaves room to count on.
const maxStamp = 1 << 62

// Hash stands for a document where its id would be too long.
func Hash(e Entry) uint64 {
	var buf [256]byte
	b := append(buf[:0], e.Index...)
	b = append(b, 0)
	return xxh3.Hash(append(b, e.ID...))
}

// Wait says whether a member waits for a document.
type Wait uint8

const (
	// Not: it does not.
	Not Wait = iota
	// Does: it does.
	Does
	// May: which documents it waits for is not known, one by one.
	May
)

// Waiting is what is known here of a member and a document.
type Waiting struct {
	Wait Wait
	// Last is the stamp of the last write of the document that the member missed, as far as it is known. Of two stamps the lower one is that of the
	// earlier miss, see Queue.Heard. Unacknowledged: no write that it missed was confirmed. After a start it is the time at which it was stored
	// last: one that waits already is stored again only if another member has missed it in between.
	Last uint64
}

// Kept is a document that a member waits for, as it is told to others.
type Kept struct {
	Hash uint64
	Last uint64 // as in Waiting
}

// waits are the documents that a member waits for, by their hashes. It is under mu of the member.
type waits struct {
	of    map[uint64]waitsFor
	lossy bool   // there are more
	edits uint64 // changes
}

// waitsFor is one of them.
type waitsFor struct {
	n    int // records that are not done
	last uint64
	disk uint64 // what last would be after a start
}

// noted is what an Add says of a document: that it has written a record, or that the record which is there stands for it.
type noted struct {
	hash   uint64
	last   uint64 // 0: as it was
	at     int64  // of the record, in Unix milliseconds
	stored bool
}

// stampOf is the stamp of a time on the disk, in Unix milliseconds.
func stampOf(at int64) uint64 { return uint64(max(at, 1)) * 1000 }

// note takes what an Add has made durable.
func (w *waits) note(list []noted) {
	if len(list) == 0 {
		return
	}
	if w.of == nil {
		w.of = map[uint64]waitsFor{}
	}
	for _, x := range list {
		f, ok := w.of[x.hash]
		switch {
		case !ok && !x.stored:
			continue
		case !ok && len(w.of) >= maxWaits:
			w.lossy = true
			continue
		case !ok:
			f.last = max(x.last, Unacknowledged)
		case x.last > Unacknowledged:
			f.last = max(f.last, x.last)
		}
		if x.stored {
			f.n++
			f.disk = max(f.disk, stampOf(x.at))
		}
		w.of[x.hash] = f
	}
	w.edits++
}

// done takes back records that are done. none says that there are no others.
func (w *waits) done(hashes []uint64, none bool) {
	w.edits++
	if none {
		clear(w.of)
		w.lossy = false
		return
	}
	for _, h := range hashes {
		if f, ok := w.of[h]; ok {
			if f.n--; f.n <= 0 {
				delete(w.of, h)
			} else {
				w.of[h] = f
			}
		}
	}
}

// clock gives stamps: microseconds of the calendar, but always above those before, and above all that were heard.
type clock struct {
	now  func() time.Time
	last atomic.Uint64
}

func (c *clock) next() uint64 {
	now := uint64(max(c.now().UnixMicro(), Unacknowledged+1))
	for {
		last := c.last.Load()
		at := max(now, last+1)
		if c.last.CompareAndSwap(last, at) {
			return at
		}
	}
}

func (c *clock) heard(stamp uint64) {
	for last := c.last.Load(); stamp > last && stamp < maxStamp; last = c.last.Load() {
		if c.last.CompareAndSwap(last, stamp) {
			return
		}
	}
}

// Heard takes a stamp of another queue: what is missed from now on has later ones. So a stamp is below another one if that was given by who
// had heard of the first, and where neither had heard of the other, if the calendars say so.
func (q *Queue) Heard(stamp uint64) { q.clock.heard(stamp) }

// Stamp is one that is not below any that was given.
func (q *Queue) Stamp() uint64 { return q.clock.last.Load() }

// Rivals lets fn tell the latest stamp of a document that others keep for another member than the one named; 0: they keep it for none. It is asked
// where a document is missed again that waits already, and must not call the queue.
func (q *Queue) Rivals(fn func(member string, e Entry) uint64) { q.rivals.Store(&fn) }

// contested are those of some documents that wait already and that another member has missed since they were stored: what is stored has to tell after a
// start which member missed its document last.
func (q *Queue) contested(m *member, index string, ids []string) map[string]bool {
	var list []Entry
	var disk []uint64
	m.mu.Lock()
	for _, id := range ids {
		e := Entry{index, id}
		if _, fresh := m.fresh[e]; !fresh {
			continue
		}
		if f, ok := m.waits.of[Hash(e)]; ok {
			list, disk = append(list, e), append(disk, f.disk)
		}
	}
	m.mu.Unlock()
	var out map[string]bool
	for i, e := range list {
		if q.rival(m, e) > disk[i] {
			if out == nil {
				out = map[string]bool{}
			}
			out[e.ID] = true
		}
	}
	return out
}

// rival is the latest stamp of a document that is kept for another member, 0 for none. mu of no member is held.
func (q *Queue) rival(m *member, e Entry) (last uint64) {
	q.mu.Lock()
	others := make([]*member, 0, len(q.mu.members))
	for _, o := range q.mu.members {
		if o != m {
			others = append(others, o)
		}
	}
	q.mu.Unlock()
	for _, o := range others {
		o.mu.Lock()
		last = max(last, o.waits.of[Hash(e)].last, o.asideSet[e])
		o.mu.Unlock()
	}
	if fn := q.rivals.Load(); fn != nil {
		last = max(last, (*fn)(m.addr, e))
	}
	return last
}

// Waiting tells whether a member waits for a document, also for one that is aside.
func (q *Queue) Waiting(member string, e Entry) Waiting {
	m := q.known(member)
	if m == nil {
		return Waiting{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, waits := m.waits.of[Hash(e)]
	last, aside := m.asideSet[e]
	out := Waiting{Last: max(f.last, last)}
	switch {
	case m.marked || m.cause != nil, m.waits.lossy && !waits:
		out.Wait = May
	case waits || aside:
		out.Wait = Does
	}
	return out
}

// Kept lists the documents that a member waits for in the order of their hashes, at most so many. cut says that there are more, above the last.
// ok is false where they are not known one by one.
func (q *Queue) Kept(member string, most int) (list []Kept, cut, ok bool) {
	m := q.known(member)
	if m == nil {
		return nil, false, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marked || m.cause != nil || m.waits.lossy {
		return nil, false, false
	}
	if most <= 0 {
		return nil, len(m.waits.of)+len(m.asideSet) > 0, true
	}
	all := make(map[uint64]uint64, len(m.waits.of)+len(m.asideSet))
	for h, f := range m.waits.of {
		all[h] = f.last
	}
	for e, last := range m.asideSet {
		h := Hash(e)
		all[h] = max(all[h], last)
	}
	for _, h := range slices.Sorted(maps.Keys(all)) {
		if len(list) == most {
			return list, true, true
		}
		list = append(list, Kept{h, all[h]})
	}
	return list, false, true
}

// Pulse counts how often anything was added for a member that somebody has confirmed, and how often what Kept gives has changed or may have.
func (q *Queue) Pulse(member string) (added, edits uint64) {
	m := q.known(member)
	if m == nil {
		return 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.added, m.waits.edits + m.gen
}
