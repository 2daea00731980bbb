package segment

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// describeTerms and describeDocs bound what Describe prints of a field and of the documents.
const (
	describeTerms = 12
	describeDocs  = 12
	describeBytes = 16 // bytes of a line of hexadecimal
)

// Describe prints an annotated dump: the frame of the file byte by byte, and of each section its structure and first entries.
// It does not stop at damage in a section but says so there. The error is that of w.
func Describe(w io.Writer, r *Reader) error {
	d := &describer{w: bufio.NewWriter(w), r: r}
	d.frame()
	for i := range r.sections {
		d.section(&r.sections[i])
	}
	d.footer()
	return d.w.Flush()
}

type describer struct {
	w *bufio.Writer
	r *Reader
}

// f prints one line; bufio keeps the first error for Flush.
func (d *describer) f(indent int, format string, args ...any) {
	fmt.Fprintln(d.w, strings.TrimRight(strings.Repeat("  ", indent)+fmt.Sprintf(format, args...), " "))
}

// hex prints bytes with a remark, starting at an offset of the file.
func (d *describer) hex(off int64, b []byte, remark string) {
	for first := true; len(b) > 0; first = false {
		n := min(len(b), describeBytes)
		if !first {
			remark = ""
		}
		d.f(0, "%08x  %-*s %s", off, 3*describeBytes, fmt.Sprintf("% x", b[:n]), remark)
		off += int64(n)
		b = b[n:]
	}
}

func (d *describer) frame() {
	r := d.r
	d.f(0, "segment: %d documents, %d bytes, %d sections, format %d, readable from format %d, writer %d",
		r.docs, len(r.data), len(r.sections), r.version.format, r.version.minReader, r.version.writer)
	for _, m := range r.fields {
		var parts []string
		for _, p := range []struct {
			is   bool
			name string
		}{{m.Inverted, "inverted"}, {m.Positions, "positions"}, {m.Numbers, "numbers"}, {m.Strings, "strings"}, {m.Presence, "presence"}, {m.Vectors, "vectors"}, {m.Sparse, "sparse"}} {
			if p.is {
				parts = append(parts, p.name)
			}
		}
		d.f(0, "field %d %q: %s", m.ID, m.Name, strings.Join(parts, " "))
		if m.Inverted {
			d.f(1, "%d terms, %d postings, %d occurrences, %d tokens in %d documents", m.Terms, m.Postings, m.Occurrences, m.SumLen, m.DocsWithLen)
		}
	}
	d.hex(0, r.data[:len(magicHead)], "magic")
}

func (d *describer) section(s *section) {
	state := "checksum holds"
	if s.verify() != nil {
		state = "CHECKSUM DOES NOT MATCH"
	}
	d.f(0, "")
	d.f(0, "section %s at %d, %d bytes, xxh3 %016x, %s", s.name(), s.off, len(s.data), s.sum, state)
	parts := d.r.parts(int(s.field))
	switch s.tag {
	case tagKeys:
		d.table(d.r.keys)
	case tagCommit:
		d.column(d.r.commit)
	case tagTerms:
		if parts.inv != nil {
			d.table(parts.inv.terms)
		}
	case tagPostings:
		if parts.inv != nil {
			d.lists(parts.inv)
		}
	case tagLengths:
		if parts.inv != nil {
			lens := parts.inv.lens
			d.f(1, "%v%s", lens[:min(len(lens), describeDocs)], more(len(lens), describeDocs))
		}
	case tagNumbers:
		if parts.num != nil {
			d.column(parts.num)
		}
	case tagStrings:
		if parts.str != nil {
			d.table(parts.str.dict)
		}
	case tagOrdinals:
		if parts.str != nil {
			d.column(parts.str.ords)
		}
	case tagPresence:
		if parts.set != nil {
			d.presence(parts.set)
		}
	case tagVectors:
		if parts.vec != nil {
			d.vectors(parts.vec)
		}
	case tagSparse:
		if parts.spr != nil {
			d.sparse(parts.spr)
		}
	case tagSources:
		if d.r.sources != nil {
			d.sources(d.r.sources)
		}
	case tagFields:
		d.f(1, "%d fields", len(d.r.fields))
	default:
		d.f(1, "kind %d is not known to this version", uint16(s.tag))
	}
	if len(s.data) <= 512 {
		d.hex(s.off, s.data, "")
	}
}

func more(n, shown int) string {
	if n <= shown {
		return ""
	}
	return fmt.Sprintf(" and %d more", n-shown)
}

func (d *describer) table(t *table) {
	d.f(1, "%d strings in %d blocks, %d bytes; all begin with %q", t.n, len(t.prefix), len(t.blocks), clip(t.common))
	var c tableCursor
	c.start(t, 0, 0)
	for n := 0; n < describeTerms && (c.i < c.n || c.loadBlock()) && c.step(); n++ {
		if c.i == 1 {
			d.f(1, "block %d at %d, prefix %016x", c.b, t.off[c.b], t.prefix[c.b])
		}
		d.f(2, "%q", clip(c.cur))
	}
	if c.bad {
		d.f(1, "DAMAGED")
	}
}

func (d *describer) lists(f *invField) {
	var tc termCursor
	tc.seek(f, nil)
	var docs, freqs [BlockSize]uint32
	var pos []uint32
	for n := 0; n < describeTerms && tc.next(); n++ {
		var p Postings
		if !tc.postings(&p) {
			break
		}
		kind := [...]string{listOne: "in the dictionary", listShort: "short", listBlocks: "in blocks"}[p.kind]
		where := ""
		if p.df > 1 || !tc.m.inline {
			where = fmt.Sprintf(" at %d, %d bytes", tc.m.from, tc.m.to-tc.m.from)
		}
		d.f(1, "%q: %d postings %s%s, impacts %v", clip(tc.term()), p.DocFreq(), kind, where, p.Impacts(-1, nil))
		for b := range p.Blocks() {
			if b == 2 {
				d.f(2, "and %d blocks more", p.Blocks()-b)
				break
			}
			k := p.DocsFreqs(b, &docs, &freqs)
			if p.kind == listBlocks {
				e := p.entry(b)
				d.f(2, "block %d: last document %d, documents at %d in %d bits, frequencies in %d bits, positions at %d+%d, impacts %v",
					b, p.LastDoc(b), le.Uint32(e), e[9], e[10], le.Uint32(e[4:]), e[8], p.Impacts(b, nil))
			}
			for i := range min(k, describeDocs) {
				pos = p.Positions(b, i, &freqs, pos[:0])
				d.f(2, "document %d ×%d %v%s", docs[i], freqs[i], pos[:min(len(pos), describeDocs)], more(len(pos), describeDocs))
			}
		}
		if p.Err() != nil {
			d.f(2, "DAMAGED: %v", p.Err())
		}
	}
	if tc.c.bad {
		d.f(1, "DAMAGED")
	}
}

func (d *describer) column(c *NumColumn) {
	d.f(1, "%d values in %d blocks, dense %v", c.values, c.blocks, c.dense)
	modes := [...]string{colEmpty: "empty", colOne: "one each", colAtMost: "at most one each", colMany: "any number each"}
	for b := range min(c.blocks, 4) {
		e := c.entry(b)
		d.f(1, "block %d: %d values, %s, %d to %d in %d bits at %d", b, e.count, modes[e.mode], e.lo, e.hi, e.width, e.off)
	}
	for doc := range min(c.docs, describeDocs) {
		d.f(2, "document %d %v", doc, c.Values(doc, nil))
	}
}

func (d *describer) presence(p *Presence) {
	d.f(1, "%d documents", p.count)
	doc, ok := p.NextSet(0)
	for n := 0; ok && n < describeDocs; n++ {
		d.f(2, "document %d", doc)
		doc, ok = p.NextSet(doc + 1)
	}
}

func (d *describer) sources(r *sourceReader) {
	for b := range min(r.blocks, 4) {
		off, end, raw, first, n := r.entry(b)
		d.f(1, "block %d at %d: %d bytes of %d, %d documents from %d", b, off, int64(end-off), raw, n, first)
	}
}

func (d *describer) footer() {
	r := d.r
	at := len(r.data) - trailerSize
	table := int(le.Uint64(r.data[at:]))
	d.f(0, "")
	for i := range r.sections {
		off := table + i*tableEntrySize
		d.hex(int64(off), r.data[off:off+tableEntrySize], "section "+r.sections[i].name())
	}
	for _, part := range []struct {
		n    int
		name string
	}{
		{8, "place of the section table"},
		{4, "sections"},
		{4, "documents"},
		{2, "format"},
		{2, "least reader"},
		{4, "writer"},
		{8, "zero"},
		{8, "xxh3 of the section table and the trailer up to here"},
		{8, "magic"},
	} {
		d.hex(int64(at), r.data[at:at+part.n], part.name)
		at += part.n
	}
}
