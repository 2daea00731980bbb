package sparse

import (
	"bytes"
	"fmt"
	"math"
)

// Verify checks all bytes of a section: that each record is one that Encode makes, and that the lists are those of the records. It costs
// what Write does. In memory it checks the records. The error is a *CorruptError.
func (x *Index) Verify() error { return x.verify(standard) }

func (x *Index) verify(lim limits) error {
	nonzeros := uint64(0)
	for i := range x.n {
		rec := x.Record(i)
		if why := fault(rec); why != "" {
			return damaged("records", fmt.Sprintf("record %d: %s", i, why))
		}
		v, _ := parse(rec)
		nonzeros += uint64(v.n)
		switch {
		case v.kind != x.p.Weights:
			return damaged("records", fmt.Sprintf("record %d has other weights than the field", i))
		case x.p.U16 && v.wide:
			return damaged("records", fmt.Sprintf("record %d has a dimension above %d", i, math.MaxUint16))
		}
	}
	if x.raw == nil {
		return nil
	}
	if nonzeros != x.nonzeros {
		return damaged("trailer", fmt.Sprintf("it counts %d weights, there are %d", x.nonzeros, nonzeros))
	}
	cut := cutter{limits: lim}
	for i := range x.n {
		v, _ := parse(x.Record(i))
		cut.add(i, x.Doc(i), v.n)
	}
	spans := cut.finish()
	if len(spans) != len(x.blocks) {
		return damaged("blocks", fmt.Sprintf("there are %d, the vectors make %d", len(x.blocks), len(spans)))
	}
	w := blockWriter{limits: lim}
	at := align8(len(x.records))
	for i, s := range spans {
		b := &x.blocks[i]
		if b.first != s.first || b.n != s.n || b.listed != lim.listed(s) {
			return damaged("blocks", fmt.Sprintf("block %d is cut in a wrong place", i))
		}
		if !b.listed {
			continue
		}
		want, _, err := w.lists(s.n, func(i int) []byte { return x.Record(s.first + i) }, func() error { return nil })
		if err != nil {
			return damaged("lists", err.Error())
		}
		if at+len(want) > len(x.raw) || !bytes.Equal(want, x.raw[at:at+len(want)]) {
			return damaged("lists", fmt.Sprintf("those of block %d are not those of its records", i))
		}
		at += len(want)
	}
	return nil
}
