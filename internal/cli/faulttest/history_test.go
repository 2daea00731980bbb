package faulttest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// outcome is what the one who wrote was told.
type outcome uint8

const (
	// unknown: the write may be in at any time from its start on, or never. So is one that some members did not take.
	unknown outcome = iota
	// acked: every member had it at some moment between start and end.
	acked
	// refused: it had no effect and never will.
	refused
)

func (o outcome) String() string { return [...]string{"unknown", "acknowledged", "refused"}[o] }

// forever is the end of what has none.
const forever = math.MaxInt64

// write is one write of one document. Times are nanoseconds since the history began.
type write struct {
	id, value  string // no value: it is deleted
	start, end int64
	outcome    outcome
	by         string
	told       string // the answers, for those who look into a finding
}

func (w *write) String() string {
	end := "…"
	if w.end != forever {
		end = time.Duration(w.end).String()
	}
	return fmt.Sprintf("%q by %s, %v to %s, %v%s", w.value, w.by, time.Duration(w.start), end, w.outcome, w.told)
}

// sight is one document as it was read.
type sight struct {
	id, value  string
	start, end int64
	by         string
}

// history is what was written and read.
type history struct {
	began  time.Time
	mu     sync.Mutex
	writes map[string][]*write
	sights []sight
	told   map[outcome]int
}

func newHistory() *history {
	return &history{began: time.Now(), writes: map[string][]*write{}, told: map[outcome]int{}}
}

// now is the time of the history, by the monotonic clock.
func (h *history) now() int64 { return int64(time.Since(h.began)) }

// begin records that a write starts. As long as end was not called its outcome is not known.
func (h *history) begin(by, id, value string) *write {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &write{id: id, value: value, start: h.now(), end: forever, by: by}
	h.writes[id] = append(h.writes[id], w)
	return w
}

func (h *history) end(w *write, o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.outcome = o
	if o == acked {
		w.end = h.now()
	}
	h.told[o]++
}

// tell notes an answer to a write.
func (h *history) tell(w *write, answer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.told += "; " + answer
}

// sure are the documents of which the outcome of every write is known.
func (h *history) sure() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]bool{}
	for id, writes := range h.writes {
		if !slices.ContainsFunc(writes, func(w *write) bool { return w.outcome == unknown }) {
			out[id] = true
		}
	}
	return out
}

// see records a read that started at start and has ended now.
func (h *history) see(by, id, value string, start int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sights = append(h.sights, sight{id, value, start, h.now(), by})
}

// judge says what is wrong with a document that was seen, empty if nothing is: there has to be a write of the value that began before the
// end of the read, and no acknowledged write that began after that one and ended before the read.
func judge(writes []*write, s sight) string {
	floor := int64(-1) // latest start of those that were in before the read
	var over *write
	for _, w := range writes {
		if w.outcome == acked && w.end < s.start && w.start > floor {
			floor, over = w.start, w
		}
	}
	known, denied, late := s.value == "", false, false
	for _, w := range writes {
		if w.value != s.value {
			continue
		}
		known = true
		switch {
		case w.outcome == refused:
			denied = true
		case w.start <= s.end && w.end >= floor:
			return ""
		case w.start <= s.end:
			late = true
		}
	}
	if s.value == "" && over == nil {
		return "" // it was never there
	}
	switch {
	case !known:
		return "nobody wrote it"
	case late:
		return fmt.Sprintf("it was over before the acknowledged write %v", over)
	case denied:
		return "its write was refused"
	case over != nil:
		return fmt.Sprintf("it is gone, in spite of the acknowledged write %v", over)
	}
	return "its write has not begun"
}

// check judges all reads and forgets them. It returns what is wrong, at most some of it.
func (h *history) check() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var wrong []string
	for _, s := range h.sights {
		if why := judge(h.writes[s.id], s); why != "" {
			wrong = append(wrong, fmt.Sprintf("%s read %s as %q, %v to %v: %s%s", s.by, s.id, s.value, time.Duration(s.start), time.Duration(s.end), why, around(h.writes[s.id], s)))
		}
	}
	h.sights = nil
	return clip(wrong)
}

// stands says what is wrong with what members have of a document now, by member; empty if nothing is. No value: it is not there.
func (h *history) stands(id string, at map[string]string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	var wrong []string
	for by, value := range at {
		s := sight{id, value, now, now, by}
		if why := judge(h.writes[id], s); why != "" {
			wrong = append(wrong, fmt.Sprintf("%s has %s as %q: %s%s", by, id, value, why, around(h.writes[id], s)))
		}
	}
	return wrong
}

// ids are those of all documents that were written.
func (h *history) ids() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.writes))
}

// around lists the writes of a document that matter to a read.
func around(writes []*write, s sight) string {
	var b strings.Builder
	from := max(0, slices.IndexFunc(writes, func(w *write) bool { return w.value == s.value })-2)
	for i, w := range writes {
		if w.start > s.end || i < from && w.outcome == acked && w.end < s.start-int64(time.Second) {
			continue
		}
		fmt.Fprintf(&b, "\n\t\t%v", w)
	}
	return b.String()
}

func clip(wrong []string) []string {
	const most = 8
	if len(wrong) > most {
		return append(wrong[:most:most], fmt.Sprintf("and %d more", len(wrong)-most))
	}
	return wrong
}

// settle judges what is there in the end, and makes it the beginning of what follows: writes whose outcome is not known may not come
// back any more.
func (h *history) settle(docs map[string]string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	var wrong []string
	for id, writes := range h.writes {
		s := sight{id: id, value: docs[id], start: now, end: now}
		if why := judge(writes, s); why != "" {
			wrong = append(wrong, fmt.Sprintf("%s is %q in the end: %s%s", id, s.value, why, around(writes, s)))
		}
		h.writes[id] = []*write{{id: id, value: docs[id], start: now, end: now, outcome: acked, by: "what was there"}}
	}
	for id := range docs {
		if h.writes[id] == nil {
			wrong = append(wrong, fmt.Sprintf("%s is there, and nobody wrote it", id))
		}
	}
	slices.Sort(wrong)
	return clip(wrong)
}

// A judge that lets everything pass would make the rest worthless.
func TestJudge(t *testing.T) {
	w := func(value string, start, end int64, o outcome) *write {
		return &write{id: "x", value: value, start: start, end: end, outcome: o}
	}
	a := w("a", 10, 20, acked)
	gone := w("", 30, 40, acked)
	for _, c := range []struct {
		name   string
		writes []*write
		value  string
		at, to int64
		ok     bool
	}{
		{"never written", nil, "", 5, 6, true},
		{"of nobody", nil, "z", 5, 6, false},
		{"the last", []*write{a}, "a", 30, 31, true},
		{"lost", []*write{a}, "", 30, 31, false},
		{"not in yet", []*write{a}, "", 15, 16, true},
		{"just in", []*write{a}, "a", 15, 16, true},
		{"before it began", []*write{a}, "a", 5, 6, false},
		{"overwritten", []*write{a, w("b", 21, 25, acked)}, "a", 30, 31, false},
		{"overwritten meanwhile", []*write{a, w("b", 21, 25, acked)}, "a", 24, 31, true},
		{"concurrent", []*write{a, w("b", 15, 25, acked)}, "a", 30, 31, true},
		{"unknown before it", []*write{w("u", 1, forever, unknown), a}, "u", 30, 31, true},
		{"unknown after it", []*write{a, w("u", 25, forever, unknown)}, "u", 30, 31, true},
		{"unknown and never in", []*write{a, w("u", 25, forever, unknown)}, "a", 30, 31, true},
		{"refused", []*write{a, w("r", 25, forever, refused)}, "r", 30, 31, false},
		{"refused, as it should be", []*write{a, w("r", 25, forever, refused)}, "a", 30, 31, true},
		{"deleted", []*write{a, gone}, "", 50, 51, true},
		{"come back", []*write{a, gone}, "a", 50, 51, false},
		{"deleted and written again", []*write{a, gone, w("b", 41, 45, acked)}, "", 50, 51, false},
		{"deletion that may come", []*write{a, w("", 12, forever, unknown)}, "", 50, 51, true},
		{"two acknowledged, the older one", []*write{a, w("b", 30, 40, acked), w("c", 50, 60, acked)}, "b", 70, 71, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if why := judge(c.writes, sight{id: "x", value: c.value, start: c.at, end: c.to}); (why == "") != c.ok {
				t.Errorf("judged %q", why)
			}
		})
	}
}

func TestHistoryTellsOfWhatIsLost(t *testing.T) {
	h := newHistory()
	h.end(h.begin("w", "a", "1"), acked)
	h.end(h.begin("w", "b", "2"), acked)
	h.end(h.begin("w", "c", "3"), refused)
	h.begin("w", "d", "4")
	start := h.now()
	h.see("r", "a", "", start)
	h.see("r", "b", "2", start)
	if got := h.check(); len(got) != 1 || !strings.Contains(got[0], "read a") {
		t.Errorf("reads: %q", got)
	}
	got := h.settle(map[string]string{"a": "1", "c": "3", "d": "4", "e": "5"})
	if len(got) != 3 || !strings.Contains(got[0], "b is \"\"") || !strings.Contains(got[1], "c is \"3\"") || !strings.Contains(got[2], "e is there") {
		t.Errorf("in the end: %q", got)
	}
	h.see("r", "d", "", h.now())
	if got := h.check(); len(got) != 1 {
		t.Errorf("what settled is not what holds: %q", got)
	}
}
