package highlight

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weft-search/weft/internal/text"
)

// hit is a token of a document that some leaf looks for.
type hit struct {
	value      int32
	term       int32 // number of the token or prefix in its field; -1 for a whole value
	pos        uint32
	start, end uint32
}

// match is what was found in one field of a document.
type match struct {
	field     *field
	values    []string
	hits      []hit // by value, then position
	byTerm    [][]int32
	truncated bool
}

// maxSteps bounds the work on the phrases of one field of a document.
const maxSteps = 1 << 22

// match looks for the field's terms in its values and sets the states of the field's leaves.
func (h *Highlighter) match(f *field, values []string) match {
	m := match{field: f, values: values}
	h.hits = h.hits[:0]
	left := h.opts.ScanBytes
	for i, v := range values {
		if left <= 0 || len(h.hits) == MaxMarks {
			m.truncated = true
			break
		}
		cut := len(v) > left
		if cut {
			v = v[:boundary(v, left)]
			m.truncated = true
		}
		left -= len(v)
		if len(f.terms) > 0 || len(f.prefixes) > 0 {
			h.tokens(f, &m, i, v, cut)
		}
	}
	m.hits = slices.Clone(h.hits)
	n := len(f.terms) + len(f.prefixes)
	m.byTerm = make([][]int32, n)
	for i := range m.hits {
		t := m.hits[i].term
		m.byTerm[t] = append(m.byTerm[t], int32(i))
	}
	steps := maxSteps
	for _, l := range f.leaves {
		h.leaves[l].look(&m, &steps)
	}
	return m
}

// boundary returns the largest i ≤ n at which a character of v begins.
func boundary(v string, n int) int {
	for n > 0 && n < len(v) && !utf8.RuneStart(v[n]) {
		n--
	}
	return n
}

// tokens appends the hits of a value to h.hits.
func (h *Highlighter) tokens(f *field, m *match, value int, v string, cut bool) {
	toks := f.analyzer.Index(&h.scratch, v)
	for i := range toks {
		t := &toks[i]
		if cut && int(t.End) == len(v) || int(t.End) > len(v) || t.Start >= t.End {
			continue // perhaps half a word, or a token without text of its own
		}
		var start, end uint32
		add := func(term int32) bool {
			if len(h.hits) == MaxMarks {
				m.truncated = true
				return false
			}
			if end == 0 {
				start, end = core(v, t)
			}
			h.hits = append(h.hits, hit{int32(value), term, t.Pos, start, end})
			return true
		}
		if n, ok := f.terms[string(t.Text)]; ok && !add(n) {
			return
		}
		for j, p := range f.prefixes {
			if len(t.Text) >= len(p) && string(t.Text[:len(p)]) == p && !add(int32(len(f.terms)+j)) {
				return
			}
		}
	}
}

// core returns the piece of v that a token stands for without the punctuation at its ends that the tokenizer left out of the token.
func core(v string, t *text.Token) (start, end uint32) {
	start, end = t.Start, t.End
	for start < end {
		r, n := utf8.DecodeRuneInString(v[start:end])
		if first, _ := utf8.DecodeRune(t.Text); !punctuation(r) || r == first {
			break
		}
		start += uint32(n)
	}
	for start < end {
		r, n := utf8.DecodeLastRuneInString(v[start:end])
		if last, _ := utf8.DecodeLastRune(t.Text); !punctuation(r) || r == last {
			break
		}
		end -= uint32(n)
	}
	if start == end {
		return t.Start, t.End // a token of symbols that were normalised
	}
	return start, end
}

func punctuation(r rune) bool { return unicode.IsPunct(r) || unicode.IsSymbol(r) || unicode.IsSpace(r) }

// look sets the leaf's state and marks.
func (l *leaf) look(m *match, steps *int) {
	l.marks = l.marks[:0]
	found := false
	switch l.kind {
	case anyTerm, prefix:
		found = slices.ContainsFunc(l.terms, func(t int32) bool { return len(m.byTerm[t]) > 0 })
	case allTerms:
		found = !slices.ContainsFunc(l.terms, func(t int32) bool { return len(m.byTerm[t]) == 0 })
	case phrase:
		l.phrase(m, steps)
		found = len(l.marks) > 0
	case wholeValue:
		for i, v := range m.values {
			if _, ok := l.values[v]; ok && len(v) > 0 && len(m.hits) < 2*MaxMarks {
				l.marks = append(l.marks, int32(len(m.hits)))
				m.hits = append(m.hits, hit{value: int32(i), term: -1, end: uint32(len(v))})
			}
		}
		found = len(l.marks) > 0
	}
	switch {
	case found:
		l.state = yes
	case m.truncated:
		l.state = maybe
	default:
		l.state = no
	}
}

// phrase marks the hits of every place where the phrase stands: from a place of the first token each later one stands within ±slop of its
// own; of several such the nearest is marked.
func (l *leaf) phrase(m *match, steps *int) {
	for _, t := range l.terms {
		if len(m.byTerm[t]) == 0 {
			return
		}
	}
	var here []int32
starts:
	for _, first := range m.byTerm[l.terms[0]] {
		start := &m.hits[first]
		here = append(here[:0], first)
		for j := 1; j < len(l.terms); j++ {
			list := m.byTerm[l.terms[j]]
			if *steps -= 16; *steps < 0 {
				m.truncated = true
				return
			}
			want := int64(start.pos) + int64(l.offs[j])
			slop := int64(l.slop)
			at, _ := slices.BinarySearchFunc(list, want, func(i int32, want int64) int {
				return cmp.Or(cmp.Compare(m.hits[i].value, start.value), cmp.Compare(int64(m.hits[i].pos), want))
			})
			best := int32(-1)
			near := slop + 1
			for _, k := range [2]int{at - 1, at} {
				if k < 0 || k >= len(list) || m.hits[list[k]].value != start.value {
					continue
				}
				if d := max(int64(m.hits[list[k]].pos)-want, want-int64(m.hits[list[k]].pos)); d < near {
					best, near = list[k], d
				}
			}
			if best < 0 {
				continue starts
			}
			here = append(here, best)
		}
		l.marks = append(l.marks, here...)
	}
}

// active returns the hits that are to be marked, by place.
func (h *Highlighter) active(m *match) []hit {
	terms := make([]bool, len(m.byTerm))
	hits := make([]bool, len(m.hits))
	any := false
	for _, i := range m.field.leaves {
		l := &h.leaves[i]
		if !l.on {
			continue
		}
		any = true
		switch l.kind {
		case anyTerm, allTerms, prefix:
			for _, t := range l.terms {
				terms[t] = true
			}
		case phrase, wholeValue:
			for _, k := range l.marks {
				hits[k] = true
			}
		}
	}
	if !any {
		return nil
	}
	out := m.hits[:0]
	for i, x := range m.hits {
		if hits[i] || x.term >= 0 && terms[x.term] {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b hit) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.term, b.term))
	})
	return out
}

// escape appends s, escaped for HTML.
func escape(b *strings.Builder, s string) {
	from := 0
	for i := 0; i < len(s); i++ {
		var e string
		switch s[i] {
		case '&':
			e = "&amp;"
		case '<':
			e = "&lt;"
		case '>':
			e = "&gt;"
		case '"':
			e = "&#34;"
		case '\'':
			e = "&#39;"
		default:
			continue
		}
		b.WriteString(s[from:i])
		b.WriteString(e)
		from = i + 1
	}
	b.WriteString(s[from:])
}
