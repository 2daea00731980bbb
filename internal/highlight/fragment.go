package highlight

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A window is a run of hits that fits a fragment: hits[from:to].
type window struct {
	from, to int
	score    int
}

// span is a piece of a value that is marked.
type span struct{ start, end int }

// fragments chooses and writes the fragments of a field. hits are in order of place, not empty.
func (h *Highlighter) fragments(values []string, hits []hit) []Fragment {
	chosen := h.choose(hits)
	slices.SortFunc(chosen, func(a, b window) int { return a.from - b.from })
	out := make([]Fragment, 0, len(chosen))
	scores := make([]int, 0, len(chosen))
	var marks []span
	for i, w := range chosen {
		value := int(hits[w.from].value)
		v := values[value]
		lo, hi := 0, len(v)
		if i > 0 && out[i-1].Value == value {
			lo = out[i-1].End
		}
		if i+1 < len(chosen) && int(hits[chosen[i+1].from].value) == value {
			hi = int(hits[chosen[i+1].from].start)
		}
		core := span{int(hits[w.from].start), 0}
		for _, x := range hits[w.from:w.to] {
			core.end = max(core.end, int(x.end))
		}
		core.start = max(core.start, lo) // a token may begin inside the one before
		if i == 0 || value != out[i-1].Value {
			marks = merged(hits, value)
		}
		piece := widen(v, core, lo, max(hi, core.end), h.opts.Bytes, marks)
		out = append(out, Fragment{Text: h.write(v, piece, marks), Value: value, Start: piece.start, End: piece.end})
		scores = append(scores, w.score)
	}
	if !h.opts.InOrder {
		order := make([]int, len(out))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return scores[b] - scores[a] })
		sorted := make([]Fragment, len(out))
		for i, k := range order {
			sorted[i] = out[k]
		}
		out = sorted
	}
	return out
}

// choose returns the best windows, which do not overlap, in no order.
func (h *Highlighter) choose(hits []hit) []window {
	fits := func(a, b *hit) bool { return a.value == b.value && int(b.end-a.start) <= h.opts.Bytes }
	counts := map[int32]int{}
	all := make([]window, 0, len(hits))
	to, distinct := 0, 0
	for from := range hits {
		for to < len(hits) && (to <= from || fits(&hits[from], &hits[to])) {
			if counts[hits[to].term]++; counts[hits[to].term] == 1 {
				distinct++
			}
			to++
		}
		all = append(all, window{from, to, worth(distinct, to-from)})
		if counts[hits[from].term]--; counts[hits[from].term] == 0 {
			distinct--
		}
	}
	slices.SortStableFunc(all, func(a, b window) int { return b.score - a.score })
	used := make([]bool, len(hits))
	var out []window
	for _, w := range all {
		if len(out) == h.opts.Fragments {
			return out
		}
		if used[w.from] || used[w.to-1] || overlaps(hits, w, out) {
			continue
		}
		out = append(out, h.use(used, w))
	}
	// What is left lies between the windows taken, in pieces that begin before one of them.
	for from := 0; from < len(hits) && len(out) < h.opts.Fragments; from++ {
		if used[from] {
			continue
		}
		w := window{from: from, to: from + 1}
		seen := map[int32]bool{hits[from].term: true}
		for w.to < len(hits) && !used[w.to] && fits(&hits[from], &hits[w.to]) {
			seen[hits[w.to].term] = true
			w.to++
		}
		w.score = worth(len(seen), w.to-w.from)
		if !overlaps(hits, w, out) {
			out = append(out, w)
		}
		h.use(used, w)
	}
	return out
}

// worth makes one number of how many different terms a window has and how many in all.
func worth(distinct, all int) int { return distinct<<8 + min(all, 1<<8-1) }

func (h *Highlighter) use(used []bool, w window) window {
	for i := w.from; i < w.to; i++ {
		used[i] = true
	}
	return w
}

// overlaps reports whether the text of w overlaps that of a window that was taken.
func overlaps(hits []hit, w window, taken []window) bool {
	start, end := reach(hits, w)
	for _, t := range taken {
		s, e := reach(hits, t)
		if hits[t.from].value == hits[w.from].value && start < e && s < end {
			return true
		}
	}
	return false
}

func reach(hits []hit, w window) (start, end uint32) {
	start = hits[w.from].start
	for _, x := range hits[w.from:w.to] {
		end = max(end, x.end)
	}
	return start, end
}

// merged returns the marked pieces of a value: hits that overlap or touch are one.
func merged(hits []hit, value int) []span {
	from, _ := slices.BinarySearchFunc(hits, int32(value), func(x hit, v int32) int { return cmp.Compare(x.value, v) })
	var out []span
	for _, x := range hits[from:] {
		if int(x.value) != value {
			break
		}
		s := span{int(x.start), int(x.end)}
		if n := len(out); n > 0 && s.start <= out[n-1].end {
			out[n-1].end = max(out[n-1].end, s.end)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// widen returns the piece of v to show around core: at most size bytes between lo and hi, cut between words and outside marks.
func widen(v string, core span, lo, hi, size int, marks []span) span {
	room := size - (core.end - core.start)
	if room <= 0 {
		return span{core.start, max(boundary(v, core.start+size), core.start)}
	}
	p := core
	before := min(core.start-lo, max(room/2, room-(hi-core.end)))
	if a := core.start - before; a < core.start {
		p.start = begin(v, a, core.start)
	}
	if b := min(hi, core.end+room-(core.start-p.start)); b > core.end {
		p.end = end(v, core.end, b)
	}
	// A mark that would be cut stays outside.
	for _, m := range marks {
		if m.start < p.start && p.start < m.end && m.end <= core.start {
			p.start = m.end
		}
		if m.start < p.end && p.end < m.end && m.start >= core.end {
			p.end = m.start
		}
	}
	for p.start < core.start {
		r, n := utf8.DecodeRuneInString(v[p.start:])
		if !unicode.IsSpace(r) {
			break
		}
		p.start += n
	}
	for p.end > core.end {
		r, n := utf8.DecodeLastRuneInString(v[:p.end])
		if !unicode.IsSpace(r) {
			break
		}
		p.end -= n
	}
	return p
}

// snap is how far a cut is moved to fall between words.
const snap = 64

// begin returns where to begin in v[a:to]: at the first sentence that begins there, else between words.
func begin(v string, a, to int) int {
	sentence, gap := -1, -1
	for i := a; i <= to; i++ {
		if !isBoundary(v, i) {
			continue
		}
		if gap < 0 && i-a <= snap && between(v, i) {
			gap = i
		}
		if sentence < 0 && sentenceStart(v, i) {
			sentence = i
		}
	}
	switch {
	case a == 0:
		return 0
	case sentence >= 0:
		return sentence
	case gap >= 0:
		return gap
	}
	return next(v, a, to)
}

// end returns where to end in v[from:b]: between words if such a place is near.
func end(v string, from, b int) int {
	for i := b; i >= from && b-i <= snap; i-- {
		if isBoundary(v, i) && between(v, i) {
			return i
		}
	}
	for b > from && !isBoundary(v, b) {
		b--
	}
	return b
}

// next returns the first place from a on, at most to, where a character begins that can stand alone.
func next(v string, a, to int) int {
	for a < to && !isBoundary(v, a) {
		a++
	}
	return a
}

// isBoundary reports whether v can be cut at i: not inside a character, before one that belongs to the one before it, or after a joiner.
func isBoundary(v string, i int) bool {
	if i <= 0 || i >= len(v) {
		return true
	}
	if !utf8.RuneStart(v[i]) {
		return false
	}
	if v[i] < utf8.RuneSelf && v[i-1] < utf8.RuneSelf {
		return v[i] != '\n' || v[i-1] != '\r'
	}
	r, _ := utf8.DecodeRuneInString(v[i:])
	l, _ := utf8.DecodeLastRuneInString(v[:i])
	const joiner = '\u200d'
	switch {
	case unicode.Is(unicode.M, r), r == joiner, l == joiner, r >= 0x1f3fb && r <= 0x1f3ff: // marks, variation selectors, skin tones
		return false
	case r >= 0x1f1e6 && r <= 0x1f1ff && l >= 0x1f1e6 && l <= 0x1f1ff: // flags; of a row of them none is cut
		return false
	}
	return true
}

// between reports whether i, a boundary, is not inside a word.
func between(v string, i int) bool {
	if i <= 0 || i >= len(v) {
		return true
	}
	r, _ := utf8.DecodeRuneInString(v[i:])
	l, _ := utf8.DecodeLastRuneInString(v[:i])
	return !wordish(l) || !wordish(r) || spaceless(l) || spaceless(r)
}

func wordish(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.M, r) || r == '_' || r == '\'' || r == '’'
}

// spaceless reports scripts whose words have no spaces between them.
func spaceless(r rune) bool {
	return r >= 0xe00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// sentenceStart reports whether a sentence seems to begin at i: after a line break, or after a full stop or the like and a space.
func sentenceStart(v string, i int) bool {
	if i == 0 {
		return true
	}
	l, n := utf8.DecodeLastRuneInString(v[:i])
	switch l {
	case '\n', '\u2028', '\u2029', '。', '！', '？':
		return true
	case ' ', '\t', '\u00a0':
	default:
		return false
	}
	if r, _ := utf8.DecodeRuneInString(v[i:]); unicode.IsSpace(r) {
		return false
	}
	before, _ := utf8.DecodeLastRuneInString(v[:i-n])
	return strings.ContainsRune(".!?…", before)
}

// write returns a piece of v with its marks.
func (h *Highlighter) write(v string, p span, marks []span) string {
	var b strings.Builder
	b.Grow(p.end - p.start + 32)
	put := func(s string) {
		if h.opts.Raw {
			b.WriteString(s)
		} else {
			escape(&b, s)
		}
	}
	at := p.start
	for _, m := range marks {
		m.start, m.end = max(m.start, p.start), min(m.end, p.end)
		if m.start >= m.end {
			continue
		}
		put(v[at:m.start])
		b.WriteString(h.opts.Pre)
		put(v[m.start:m.end])
		b.WriteString(h.opts.Post)
		at = m.end
	}
	put(v[at:p.end])
	return b.String()
}
