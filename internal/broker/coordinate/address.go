package coordinate

import "cmp"

// address is where a document lies. Segment ids are numbers of up to 32 hexadecimal digits (DocAddress in summa-wire.md); equal numbers are
// one segment.
type address struct {
	hi, lo uint64
	doc    uint32
}

// compare orders by segment, then document.
func (a address) compare(b address) int {
	return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo), cmp.Compare(a.doc, b.doc))
}

// segment reads a segment id.
func segment(s []byte) (hi, lo uint64, ok bool) {
	if len(s) == 0 || len(s) > 32 {
		return 0, 0, false
	}
	for _, c := range s {
		var d byte
		switch {
		case c >= '0' && c <= '9':
			d = c - '0'
		case c >= 'a' && c <= 'f':
			d = c - 'a' + 10
		case c >= 'A' && c <= 'F':
			d = c - 'A' + 10
		default:
			return 0, 0, false
		}
		hi, lo = hi<<4|lo>>60, lo<<4|uint64(d)
	}
	return hi, lo, true
}
