package agg

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"

	"github.com/axiomhq/hyperloglog"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/weft-search/weft/internal/schema"
)

// FormatVersion is the version of the wire form that is written, and the only one that is read. FORMAT.md sets it out.
//
//	1  first version
const FormatVersion = 1

// ErrCorrupt is wrapped by the errors of Decode and DecodePartials about bytes that are no state of the aggregations in question.
var ErrCorrupt = errors.New("damaged aggregation state")

// Tags of a part on the wire.
const (
	tagNone = iota
	tagGroup
	tagStats
	tagExact
	tagSketch
)

// maxText is the longest value of a text column in bytes.
const maxText = 1<<16 - 1

// AppendBinary appends the wire form.
func (s *State) AppendBinary(b []byte) []byte {
	b = append(b, FormatVersion)
	b = binary.AppendUvarint(b, uint64(len(s.parts)))
	var one []byte
	for i, n := range s.plan.nodes {
		one = appendState(one[:0], n, s.parts[i])
		b = binary.AppendUvarint(b, uint64(len(one)))
		b = append(b, one...)
	}
	return b
}

// AppendPartials appends the wire form as a JSON object: {"name": "base64 of the state of that aggregation", …}.
func (s *State) AppendPartials(b []byte) []byte {
	b = append(b, '{')
	var one []byte
	for i, n := range s.plan.nodes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, n.spec.Name)
		b = append(b, ':', '"')
		one = appendState(one[:0], n, s.parts[i])
		b = base64.StdEncoding.AppendEncode(b, one)
		b = append(b, '"')
	}
	return append(b, '}')
}

func appendState(b []byte, n *node, p part) []byte {
	b = append(b, FormatVersion)
	b = binary.LittleEndian.AppendUint64(b, fingerprint(n.spec))
	b = append(b, byte(n.typ))
	for _, sub := range n.subs {
		b = append(b, byte(sub.typ))
	}
	return appendPart(b, n, p)
}

func appendPart(b []byte, n *node, p part) []byte {
	switch p := p.(type) {
	case *group:
		b = append(b, tagGroup)
		b = binary.AppendUvarint(b, uint64(len(p.counts)))
		var keys keyWriter
		for i, c := range p.counts {
			if p.text {
				b = keys.text(b, p.strs[i])
			} else {
				b = keys.num(b, p.nums[i])
			}
			b = binary.AppendUvarint(b, c-1)
			for k, sub := range n.subs {
				b = appendPart(b, sub, p.subs[i][k])
			}
		}
		return b
	case *stats:
		b = append(b, tagStats)
		b = binary.AppendUvarint(b, p.count)
		b = binary.AppendUvarint(b, p.min)
		b = binary.AppendUvarint(b, p.max-p.min)
		if p.sum == nil {
			b = binary.AppendUvarint(b, p.hi)
			return binary.LittleEndian.AppendUint64(b, p.lo)
		}
		neg, shift, mag := p.sum.magnitude()
		sign := byte(0)
		if neg {
			sign = 1
		}
		b = append(b, sign)
		b = binary.AppendUvarint(b, uint64(shift))
		b = binary.AppendUvarint(b, uint64(len(mag)))
		return append(b, mag...)
	case *distinct:
		if p.sketch != nil {
			return appendSketch(append(b, tagSketch), p.sketch)
		}
		b = append(b, tagExact)
		b = binary.AppendUvarint(b, uint64(len(p.nums)+len(p.strs)))
		var keys keyWriter
		for _, v := range p.nums {
			b = keys.num(b, v)
		}
		for _, s := range p.strs {
			b = keys.text(b, s)
		}
		return b
	}
	return append(b, tagNone)
}

// keyWriter writes ascending keys: a number as the distance from the one before, a text as the length of what it shares with the
// one before, the length of the rest, and the rest.
type keyWriter struct {
	num0 uint64
	str0 string
}

func (k *keyWriter) num(b []byte, v uint64) []byte {
	b = binary.AppendUvarint(b, v-k.num0)
	k.num0 = v
	return b
}

func (k *keyWriter) text(b []byte, s string) []byte {
	n := 0
	for n < len(s) && n < len(k.str0) && s[n] == k.str0[n] {
		n++
	}
	k.str0 = s
	b = binary.AppendUvarint(b, uint64(n))
	b = binary.AppendUvarint(b, uint64(len(s)-n))
	return append(b, s[n:]...)
}

// sketchHeader stands before the registers in the form that the library reads: version 2, precision, no bias, dense, their number.
var sketchHeader = []byte{2, sketchPrecision, 0, 0, 0, 0, 1 << sketchPrecision >> 8, 0}

// appendSketch appends the registers.
func appendSketch(b []byte, s *hyperloglog.Sketch) []byte {
	at := len(b)
	b, err := s.AppendBinary(b)
	if err != nil {
		panic(fmt.Sprintf("agg: a sketch of precision %d has no wire form: %v", sketchPrecision, err))
	}
	return append(b[:at], b[at+len(sketchHeader):]...)
}

// Decode reads the wire form of a state of these aggregations. The state can be merged with others and finished, not collected
// into. Errors wrap ErrCorrupt, or are a *SpecError if the state is larger than o allows.
func Decode(specs []Spec, o Options, b []byte) (*State, error) {
	d := decoder{b: b}
	if v := d.byte(); d.err == nil && v != FormatVersion {
		return nil, fmt.Errorf("%w: its version is %d, and only %d is known", ErrCorrupt, v, FormatVersion)
	}
	if n := d.uvarint(); d.err == nil && n != uint64(len(specs)) {
		return nil, fmt.Errorf("%w: it has %d aggregations instead of %d", ErrCorrupt, n, len(specs))
	}
	pieces := make([][]byte, len(specs))
	for i := range pieces {
		pieces[i] = d.bytes(d.uvarint())
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return decodePieces(specs, o, pieces)
}

// DecodePartials is Decode for what AppendPartials wrote.
func DecodePartials(specs []Spec, o Options, src []byte) (*State, error) {
	bad := func(reason string) error { return fmt.Errorf("%w: %s", ErrCorrupt, reason) }
	places := make(map[string]int, len(specs))
	for i := range specs {
		places[specs[i].Name] = i
	}
	dec := jsontext.NewDecoder(bytes.NewReader(src))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, bad("it is not a JSON object")
	}
	pieces := make([][]byte, len(specs))
	found := 0
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, bad(err.Error())
		}
		i, ok := places[name.String()]
		if !ok {
			return nil, bad(fmt.Sprintf("it has an aggregation %q that was not asked for", clip(name.String())))
		}
		text, err := dec.ReadToken()
		if err != nil || text.Kind() != '"' {
			return nil, bad(fmt.Sprintf("the state of aggregation %q is not a string", specs[i].Name))
		}
		if pieces[i], err = base64.StdEncoding.DecodeString(text.String()); err != nil {
			return nil, bad(err.Error())
		}
		found++
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, bad(err.Error())
	}
	if len(bytes.TrimSpace(src[dec.InputOffset():])) > 0 {
		return nil, bad("something stands behind the object")
	}
	if found != len(specs) {
		return nil, bad(fmt.Sprintf("it has %d aggregations instead of %d", found, len(specs)))
	}
	return decodePieces(specs, o, pieces)
}

func decodePieces(specs []Spec, o Options, pieces [][]byte) (*State, error) {
	p := &Plan{opts: o.withDefaults()}
	decs := make([]decoder, len(pieces))
	var types []schema.Type
	for i, b := range pieces {
		d := &decs[i]
		d.b = b
		if v := d.byte(); d.err == nil && v != FormatVersion {
			return nil, fmt.Errorf("%w: the version of aggregation %q is %d, and only %d is known", ErrCorrupt, specs[i].Name, v, FormatVersion)
		}
		if f := d.bytes(8); d.err == nil && binary.LittleEndian.Uint64(f) != fingerprint(&specs[i]) {
			return nil, fmt.Errorf("%w: it is one of another aggregation than %q", ErrCorrupt, specs[i].Name)
		}
		for range 1 + len(specs[i].Aggs) {
			types = append(types, schema.Type(d.byte()))
		}
		if d.err != nil {
			return nil, d.err
		}
	}
	// build visits an aggregation before those in its buckets, which is the order of types, where a filter has one as well.
	at := make(map[*Spec]schema.Type, len(types))
	k := 0
	for i := range specs {
		at[&specs[i]] = types[k]
		k++
		for j := range specs[i].Aggs {
			at[&specs[i].Aggs[j]] = types[k]
			k++
		}
	}
	err := p.build(specs, func(n *node) error {
		if t := at[n.spec]; t != 0 {
			if err := n.setType(t); err != nil {
				return fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := p.NewState()
	m := newMeter(context.Background())
	budget := p.opts.StateBytes
	for i, n := range p.nodes {
		d := &decs[i]
		d.budget = budget
		part := d.part(n)
		if d.over {
			return nil, n.tooLarge()
		}
		if err := d.end(); err != nil {
			return nil, fmt.Errorf("aggregation %q: %w", n.path, err)
		}
		if err := s.add(m, i, part); err != nil {
			return nil, err
		}
		budget = d.budget
	}
	return s, nil
}

// decoder reads with an error that sticks.
type decoder struct {
	b      []byte
	err    error
	budget int  // reckoned bytes that may still be made
	over   bool // the budget is used up; err is set too
}

func (d *decoder) fail(reason string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrCorrupt, reason)
		d.b = nil
	}
}

func (d *decoder) end() error {
	if len(d.b) > 0 {
		d.fail("bytes are left over")
	}
	return d.err
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("it ends too early")
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail("a number is damaged")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// spend takes from the budget.
func (d *decoder) spend(n int) {
	if d.budget -= n; d.budget < 0 && d.err == nil {
		d.over = true
		d.fail("it is too large")
	}
}

// count reads a number of keys, each of which takes at least least bytes.
func (d *decoder) count(least int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/least) {
		d.fail("it has more keys than bytes")
		return 0
	}
	if n == 0 {
		d.fail("it has no keys")
	}
	d.spend(int(n) * keyBytes)
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) part(n *node) part {
	kind := n.spec.Kind
	tag := d.byte()
	if tag != tagNone && n.typ == 0 && kind != Filter {
		d.fail("there are values of a field without a type")
	}
	var p part
	switch {
	case d.err != nil, tag == tagNone:
	case tag == tagGroup && kind != Stats && kind != Cardinality:
		p = d.group(n)
	case tag == tagStats && kind == Stats:
		p = d.stats(n)
	case (tag == tagExact || tag == tagSketch) && kind == Cardinality:
		p = d.distinct(n, tag)
	default:
		d.fail(fmt.Sprintf("%s has a part with tag %d", kind, tag))
	}
	if d.err != nil {
		return nil
	}
	return p
}

func (d *decoder) group(n *node) part {
	text := n.isText()
	least := 2 + len(n.subs)
	if text {
		least++
	}
	size := d.count(least)
	g := &group{text: text, counts: make([]uint64, size)}
	if text {
		g.strs = make([]string, size)
	} else {
		g.nums = make([]uint64, size)
	}
	if len(n.subs) > 0 {
		g.subs = make([][]part, size)
	}
	keys := keyReader{d: d}
	total := uint64(0)
	for i := range g.counts {
		if text {
			g.strs[i] = keys.text(i == 0)
		} else {
			g.nums[i] = keys.num(i == 0)
			n.checkKey(d, g.nums[i])
		}
		c := d.uvarint()
		if total += c + 1; c >= maxCount || total > maxCount {
			d.fail("its counts are too large")
		}
		g.counts[i] = c + 1
		if d.spend(slotBytes * len(n.subs)); len(n.subs) > 0 && d.err == nil {
			g.subs[i] = make([]part, len(n.subs))
			for k, sub := range n.subs {
				g.subs[i][k] = d.part(sub)
			}
		}
		if d.err != nil {
			return nil
		}
	}
	if size > 0 && !text {
		if err := n.checkSpan(g.nums[0], g.nums[size-1]); err != nil {
			d.fail(err.Error())
		}
	}
	return g
}

// checkKey refuses keys that the kind cannot have.
func (n *node) checkKey(d *decoder, v uint64) {
	ok := true
	switch n.spec.Kind {
	case Terms, Percentiles, Cardinality:
		ok = valid(n.typ, v)
	case Range:
		ok = v < uint64(len(n.ranges))
	case Filter:
		ok = v == 0
	}
	if !ok {
		d.fail("it has a key that cannot be")
	}
}

type keyReader struct {
	d    *decoder
	num0 uint64
	str0 string
}

func (k *keyReader) num(first bool) uint64 {
	v := k.d.uvarint()
	if k.num0+v <= k.num0 && !first {
		k.d.fail("its keys do not ascend")
	}
	k.num0 += v
	return k.num0
}

func (k *keyReader) text(first bool) string {
	d := k.d
	shared := d.uvarint()
	rest := d.bytes(d.uvarint())
	if d.err != nil {
		return ""
	}
	if shared > uint64(len(k.str0)) || int(shared)+len(rest) > maxText {
		d.fail("a text is too long")
		return ""
	}
	d.spend(textBytes + int(shared) + len(rest))
	if d.err != nil {
		return ""
	}
	s := k.str0[:shared] + string(rest)
	if !first && s <= k.str0 {
		d.fail("its keys do not ascend")
	}
	if !utf8.ValidString(s) {
		d.fail("a text is not UTF-8")
	}
	k.str0 = s
	return s
}

func (d *decoder) stats(n *node) part {
	d.spend(statsBytes)
	s := &stats{count: d.uvarint(), min: d.uvarint()}
	s.max = s.min + d.uvarint()
	if d.err == nil && (s.count == 0 || s.count > maxCount || s.max < s.min || !valid(n.typ, s.min) || !valid(n.typ, s.max)) {
		d.fail("its figures cannot be")
	}
	if n.typ != schema.F64 {
		s.hi = d.uvarint()
		if lo := d.bytes(8); d.err == nil {
			s.lo = binary.LittleEndian.Uint64(lo)
		}
		leastHi, leastLo := bits.Mul64(s.count, s.min)
		mostHi, mostLo := bits.Mul64(s.count, s.max)
		if d.err == nil && (less128(s.hi, s.lo, leastHi, leastLo) || less128(mostHi, mostLo, s.hi, s.lo)) {
			d.fail("its sum cannot be")
		}
		return s
	}
	sign := d.byte()
	shift := d.uvarint()
	size := d.uvarint()
	if d.err == nil && (sign > 1 || shift > sumMaxBytes || size > sumMaxBytes || shift+size > sumMaxBytes) {
		d.fail("its sum cannot be")
	}
	mag := d.bytes(size)
	if d.err == nil && (size == 0 && (sign != 0 || shift != 0) || size > 0 && (mag[0] == 0 || mag[size-1] == 0)) {
		d.fail("its sum is not in its only form")
	}
	if d.err != nil {
		return nil
	}
	s.sum = &exactSum{}
	s.sum.setMagnitude(sign == 1, int(shift), mag)
	return s
}

func less128(ahi, alo, bhi, blo uint64) bool { return ahi < bhi || ahi == bhi && alo < blo }

func (d *decoder) distinct(n *node, tag byte) part {
	values, limit := n.exact()
	if tag == tagSketch {
		d.spend(limit)
		regs := d.bytes(1 << sketchPrecision)
		if d.err != nil {
			return nil
		}
		s := newSketch()
		if err := s.UnmarshalBinary(append(bytes.Clone(sketchHeader), regs...)); err != nil {
			d.fail(err.Error())
		}
		return &distinct{sketch: s}
	}
	text := n.isText()
	least := 1
	if text {
		least = 2
	}
	size := d.count(least)
	if size > values {
		d.fail("it has too many values to be exact")
		return nil
	}
	p := &distinct{}
	keys := keyReader{d: d}
	for i := range size {
		if text {
			p.strs = append(p.strs, keys.text(i == 0))
		} else {
			v := keys.num(i == 0)
			n.checkKey(d, v)
			p.nums = append(p.nums, v)
		}
		if d.err != nil {
			return nil
		}
	}
	if p.reckon(); p.size > limit {
		d.fail("its values are too long to be exact")
	}
	return p
}
