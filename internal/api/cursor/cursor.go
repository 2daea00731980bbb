// Package cursor is the place in a ranking at which the next page begins, as an opaque text for callers.
//
// A cursor names the search it belongs to by a digest, the sort values and the id of the last hit that was given out, and, where
// scores take part in the order, the statistics that the first page was scored with: pages are cut from one ranking while
// documents come and go. Reading a cursor trusts nothing: it is bounded by the length of the text, and every number is checked.
//
// Layout, before base64 (URL alphabet, no padding); numbers are unsigned varints in their shortest form:
//
//	version   1 byte, 1
//	digest    16 bytes
//	values    count, then for each: 0 (none) | 1 number | 2 length bytes | 3 score (4 bytes, little-endian float32)
//	id        length bytes
//	stats     0, or 1 and: documents; count of fields, for each by name ascending: length name, 0 or 1 tokens documents;
//	          count of terms, for each by field and text ascending: field number, bytes shared with the term before,
//	          length of the rest, rest, frequency
//	checksum  8 bytes, little-endian XXH3-64 of all before
//
// Everything is safe for concurrent use.
package cursor

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/score"
)

// Bounds of what a cursor may hold.
const (
	MaxText   = 1 << 19 // characters of the text
	MaxValues = 8       // sort values
	maxID     = 512     // bytes of the id
	maxDocs   = 1 << 48 // documents of an index
	maxTokens = 1<<16 - 1
	maxTerms  = 4 << 20 // bytes of the names of all terms; in the text they stand without what they share
)

const version = 1

// ErrDamaged says that a text is no cursor, or not the whole of one.
var ErrDamaged = errors.New("not a cursor")

// Kind says what a sort value is.
type Kind uint8

// Kinds.
const (
	None   Kind = iota // the document has no value
	Number             // in the order-preserving encoding of package schema
	Text
	Score
)

// Value is one sort value of the last hit.
type Value struct {
	Kind  Kind
	Num   uint64
	Text  string
	Score float32
}

// Cursor is the place behind one hit.
type Cursor struct {
	Digest Digest
	Values []Value
	ID     string
	Stats  *score.Stats // nil: the order does not depend on them
}

// Digest tells searches apart.
type Digest [16]byte

// Encode returns the text of a cursor. ok is false when it is too large to be one.
func (c *Cursor) Encode() (text string, ok bool) {
	if c.Stats != nil {
		terms := 0
		for t := range c.Stats.DF {
			terms += len(t.Text)
		}
		if terms > maxTerms {
			return "", false
		}
	}
	b := append(make([]byte, 0, 128), version)
	b = append(b, c.Digest[:]...)
	b = binary.AppendUvarint(b, uint64(len(c.Values)))
	for _, v := range c.Values {
		b = append(b, byte(v.Kind))
		switch v.Kind {
		case Number:
			b = binary.AppendUvarint(b, v.Num)
		case Text:
			b = appendString(b, v.Text)
		case Score:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v.Score))
		}
	}
	b = appendString(b, c.ID)
	b = appendStats(b, c.Stats)
	b = binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
	if base64.RawURLEncoding.EncodedLen(len(b)) > MaxText {
		return "", false
	}
	return base64.RawURLEncoding.EncodeToString(b), true
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendStats(b []byte, s *score.Stats) []byte {
	if s == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(append(b, 1), s.Docs)
	fields := make([]string, 0, len(s.Fields))
	for name := range s.Fields {
		fields = append(fields, name)
	}
	// A term may be of a field of which no document has a length.
	terms := make([]score.Term, 0, len(s.DF))
	for t := range s.DF {
		terms = append(terms, t)
		if _, ok := s.Fields[t.Field]; !ok {
			fields = append(fields, t.Field)
		}
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	b = binary.AppendUvarint(b, uint64(len(fields)))
	number := make(map[string]int, len(fields))
	for i, name := range fields {
		number[name] = i
		b = appendString(b, name)
		f, ok := s.Fields[name]
		if !ok {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(append(b, 1), f.SumLen)
		b = binary.AppendUvarint(b, f.Docs)
	}
	slices.SortFunc(terms, func(x, y score.Term) int { return cmp.Or(cmp.Compare(x.Field, y.Field), cmp.Compare(x.Text, y.Text)) })
	b = binary.AppendUvarint(b, uint64(len(terms)))
	before := ""
	for _, t := range terms {
		same := 0
		for same < len(before) && same < len(t.Text) && before[same] == t.Text[same] {
			same++
		}
		b = binary.AppendUvarint(b, uint64(number[t.Field]))
		b = binary.AppendUvarint(b, uint64(same))
		b = appendString(b, t.Text[same:])
		b = binary.AppendUvarint(b, s.DF[t])
		before = t.Text
	}
	return b
}

// Decode reads the text of a cursor. The error is ErrDamaged.
func Decode(text string) (*Cursor, error) {
	if len(text) > MaxText {
		return nil, ErrDamaged
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 8 {
		return nil, ErrDamaged
	}
	body, sum := b[:len(b)-8], binary.LittleEndian.Uint64(b[len(b)-8:])
	if xxh3.Hash(body) != sum {
		return nil, ErrDamaged
	}
	return decode(body)
}

// decode reads what stands before the checksum.
func decode(b []byte) (*Cursor, error) {
	d := &decoder{b: b}
	c := &Cursor{}
	if d.byte() != version {
		return nil, ErrDamaged
	}
	copy(c.Digest[:], d.take(len(c.Digest)))
	n := d.count(MaxValues)
	for range n {
		v := Value{Kind: Kind(d.byte())}
		switch v.Kind {
		case None:
		case Number:
			v.Num = d.uvarint(math.MaxUint64)
		case Text:
			v.Text = d.string(len(b))
		case Score:
			if raw := d.take(4); len(raw) == 4 {
				v.Score = math.Float32frombits(binary.LittleEndian.Uint32(raw))
			}
			d.require(!math.IsNaN(float64(v.Score)) && !math.IsInf(float64(v.Score), 0))
		default:
			d.bad = true
		}
		c.Values = append(c.Values, v)
	}
	c.ID = d.string(maxID)
	c.Stats = d.stats()
	d.require(len(d.b) == 0)
	if d.bad {
		return nil, ErrDamaged
	}
	return c, nil
}

// decoder reads from the front. After the first fault it is bad and everything it reads is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) require(ok bool) {
	if !ok {
		d.bad = true
	}
}

func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// uvarint reads a number of at most most, written as short as can be.
func (d *decoder) uvarint(most uint64) uint64 {
	if d.bad {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > most || n > 1 && d.b[n-1] == 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads how many things follow, of which each has at least one byte.
func (d *decoder) count(most int) int { return int(d.uvarint(uint64(min(most, len(d.b))))) }

func (d *decoder) string(most int) string { return string(d.take(d.count(most))) }

func (d *decoder) stats() *score.Stats {
	switch d.byte() {
	case 0:
		return nil
	case 1:
	default:
		d.bad = true
		return nil
	}
	s := &score.Stats{Docs: d.uvarint(maxDocs), Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
	var fields []string
	for range d.count(len(d.b)) {
		name := d.string(len(d.b))
		d.require(len(fields) == 0 || fields[len(fields)-1] < name)
		fields = append(fields, name)
		switch d.byte() {
		case 0:
		case 1:
			s.Fields[name] = score.FieldStats{SumLen: d.uvarint(s.Docs * maxTokens), Docs: d.uvarint(s.Docs)}
		default:
			d.bad = true
		}
		if d.bad {
			return nil
		}
	}
	last, field, room := "", -1, maxTerms
	for range d.count(len(d.b)) {
		f := int(d.uvarint(uint64(max(len(fields)-1, 0))))
		same := int(d.uvarint(uint64(min(len(last), room))))
		text := last[:same] + d.string(room-same)
		room -= len(text)
		df := d.uvarint(s.Docs)
		d.require(f < len(fields) && (f > field || f == field && text > last))
		if d.bad {
			return nil
		}
		s.DF[score.Term{Field: fields[f], Text: text}] = df
		last, field = text, f
	}
	return s
}
