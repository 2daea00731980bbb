package jobs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-search/weft/internal/cluster/hints"
)

// Coordinators tell each other also which documents members wait for, in `docs` of what each tells (missedBy.Docs): by member, a list of 64-bit
// hashes (hints.Hash) with the stamps of when the member last missed something of the document (hints.Waiting.Last). In base64, where a varint
// is unsigned LEB128:
//
//	1 byte    version, 1
//	1 byte    1: there are more documents, with hashes above the last one; 0: these are all
//	varint    how many there are, n
//	varint    base, the lowest of the stamps, but of those that are 1; 0 where there are none
//	n times   varint: how far the hash is above the one before, or above 0
//	          varint: 0: the stamp is 1, no write of it that the member missed was confirmed; else its distance from base plus 1
//
// A member without such a list, or with one of another version, may wait for any document, and so it may for those that were cut off. A list is
// told once nothing was added for a moment, and taken back as soon as something is, but for what nobody has confirmed; where that goes on it is told every half
// minute. So the object is seldom written while writes are missed, and what waits for a list gets one.

const (
	waitsVersion  = 1
	maxMissedDocs = 4096 // documents that one coordinator tells of, of all members together

	missedCalm   = 2 * time.Second  // for which nothing is to be added before a list is told
	missedUneasy = 30 * time.Second // between two lists, where they are taken back again and again
	missedAgain  = 2 * time.Second  // between two lists of which the second has less
)

// errWaitsVersion says that a list is of another version.
var errWaitsVersion = errors.New("a list of another version")

// waitsFor are the documents that a member waits for, as far as a coordinator has told.
type waitsFor struct {
	list []hints.Kept // by hash
	cut  bool         // there may be more above the last one
}

func (w *waitsFor) encode() []byte {
	b := []byte{waitsVersion, 0}
	if w.cut {
		b[1] = 1
	}
	base := uint64(0)
	for _, k := range w.list {
		if k.Last > hints.Unacknowledged && (base == 0 || k.Last < base) {
			base = k.Last
		}
	}
	b = binary.AppendUvarint(b, uint64(len(w.list)))
	b = binary.AppendUvarint(b, base)
	last := uint64(0)
	for _, k := range w.list {
		b = binary.AppendUvarint(b, k.Hash-last)
		last = k.Hash
		if k.Last <= hints.Unacknowledged {
			b = binary.AppendUvarint(b, 0)
		} else {
			b = binary.AppendUvarint(b, k.Last-base+1)
		}
	}
	return b
}

func decodeWaits(b []byte) (*waitsFor, error) {
	if len(b) < 2 || b[0] != waitsVersion || b[1] > 1 {
		return nil, errWaitsVersion
	}
	w := &waitsFor{cut: b[1] == 1}
	b = b[2:]
	bad := false
	take := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			bad, b = true, nil
			return 0
		}
		b = b[n:]
		return v
	}
	n, base := take(), take()
	if bad || n > uint64(len(b)/2) {
		return nil, fmt.Errorf("%w: it ends early", errWaitsVersion)
	}
	w.list = make([]hints.Kept, 0, n)
	hash := uint64(0)
	for i := range n {
		d, at := take(), take()
		next := hash + d
		last := uint64(hints.Unacknowledged)
		if at > 0 {
			last = base + at - 1
		}
		if bad || next < hash || i > 0 && d == 0 || at > 0 && (last < base || last <= hints.Unacknowledged) {
			return nil, fmt.Errorf("%w: document %d", errWaitsVersion, i)
		}
		hash = next
		w.list = append(w.list, hints.Kept{Hash: hash, Last: last})
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errWaitsVersion, len(b))
	}
	return w, nil
}

// waiting is what the list says of a document; nil: there is none.
func (w *waitsFor) waiting(hash uint64) hints.Waiting {
	if w == nil {
		return hints.Waiting{Wait: hints.May}
	}
	at, found := slices.BinarySearchFunc(w.list, hash, func(k hints.Kept, h uint64) int {
		switch {
		case k.Hash < h:
			return -1
		case k.Hash > h:
			return 1
		}
		return 0
	})
	switch {
	case found:
		return hints.Waiting{Wait: hints.Does, Last: w.list[at].Last}
	case at == len(w.list) && w.cut:
		return hints.Waiting{Wait: hints.May}
	}
	return hints.Waiting{}
}

// telling is what is told of one member.
type telling struct {
	added, edits uint64        // as they were at the last look
	since        time.Time     // when something was added last, as far as it was seen
	told         time.Time     // when a list was told last after there was none
	wait         time.Duration // between that and the next such time
	list         []byte        // nil: none is told
	at           time.Time     // when the list was made
}

// lists are the lists that are to be told now, by member. Just after a start nothing was added lately: what is there is told at once.
func (r *Runner) lists(of map[string]*telling, kept []string, now time.Time, started bool) map[string][]byte {
	for addr := range of {
		if !slices.Contains(kept, addr) {
			delete(of, addr)
		}
	}
	out := map[string][]byte{}
	for _, addr := range kept {
		added, edits := r.o.Hints.Pulse(addr)
		t := of[addr]
		if t == nil {
			t = &telling{added: added, since: now, wait: missedCalm}
			if started && added == 0 {
				t.since = now.Add(-missedCalm)
			}
			of[addr] = t
		}
		switch {
		case added != t.added:
			t.added, t.since = added, now
			if t.list == nil {
				break
			}
			if t.wait = min(2*t.wait, missedUneasy); now.Sub(t.told) >= missedUneasy {
				t.wait = missedCalm
			}
			t.list = nil
		case now.Sub(t.since) < missedCalm, t.list == nil && now.Sub(t.told) < t.wait:
		case t.list == nil, edits != t.edits && now.Sub(t.at) >= missedAgain:
			if t.list == nil {
				t.told = now
			}
			t.list, t.edits, t.at = nil, edits, now
			if list, cut, ok := r.o.Hints.Kept(addr, maxMissedDocs/len(kept)); ok {
				t.list = (&waitsFor{list, cut}).encode()
			}
		}
		if t.list != nil {
			out[addr] = t.list
		}
	}
	return out
}
