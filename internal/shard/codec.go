package shard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment"
)

// A log record is a version byte, a kind byte and a body. Integers are varints unless said otherwise; a string is its length
// and its bytes.
//
//	batch:  commit timestamp, number of operations, operations
//	  delete:  1, key
//	  put:     0, key, source length+1 (0: no source), source, number of fields, fields
//	    field: id, mask of the kinds of values (1 text, 2 numbers, 4 bytes), for each kind its count and values
//	           (a number is eight bytes, little-endian)
//	schema: generation, the whole schema as JSON
const (
	recordVersion = 1

	recordBatch  = 1
	recordSchema = 2
)

const (
	maskText = 1 << iota
	maskNums
	maskBytes
)

var errRecord = errors.New("log record is damaged")

// appendHeader starts a record.
func appendHeader(b []byte, kind byte) []byte { return append(b, recordVersion, kind) }

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendDelete and appendPut encode one operation of a batch.
func appendDelete(b []byte, key string) []byte { return appendString(append(b, 1), key) }

func appendPut(b []byte, d *schema.Document) []byte {
	b = appendString(append(b, 0), d.Key)
	if d.Source == nil {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, uint64(len(d.Source))+1)
		b = append(b, d.Source...)
	}
	b = binary.AppendUvarint(b, uint64(len(d.Fields)))
	for i := range d.Fields {
		v := &d.Fields[i]
		b = binary.AppendUvarint(b, uint64(v.Field))
		mask := byte(0)
		if len(v.Text) > 0 {
			mask |= maskText
		}
		if len(v.Nums) > 0 {
			mask |= maskNums
		}
		if len(v.Bytes) > 0 {
			mask |= maskBytes
		}
		b = append(b, mask)
		if len(v.Text) > 0 {
			b = binary.AppendUvarint(b, uint64(len(v.Text)))
			for _, s := range v.Text {
				b = appendString(b, s)
			}
		}
		if len(v.Nums) > 0 {
			b = binary.AppendUvarint(b, uint64(len(v.Nums)))
			for _, n := range v.Nums {
				b = binary.LittleEndian.AppendUint64(b, n)
			}
		}
		if len(v.Bytes) > 0 {
			b = binary.AppendUvarint(b, uint64(len(v.Bytes)))
			for _, x := range v.Bytes {
				b = binary.AppendUvarint(b, uint64(len(x)))
				b = append(b, x...)
			}
		}
	}
	return b
}

// appendSchema encodes a schema record.
func appendSchema(b []byte, generation uint64, text string) []byte {
	b = binary.AppendUvarint(appendHeader(b, recordSchema), generation)
	return appendString(b, text)
}

// record is a decoded log record. Its strings and bytes belong to it.
type record struct {
	kind       byte
	commitTS   uint64
	ops        []Op
	generation uint64
	schemaText string
}

// dec reads a record; after the first error everything it returns is empty.
type dec struct {
	s   string
	at  int
	err error
}

func (d *dec) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: byte %d: %s", errRecord, d.at, what)
	}
}

func (d *dec) byte() byte {
	if d.err != nil || d.at >= len(d.s) {
		d.fail("ends early")
		return 0
	}
	d.at++
	return d.s[d.at-1]
}

func (d *dec) uvarint() uint64 {
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		c := d.byte()
		if d.err != nil {
			return 0
		}
		if shift == 63 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	d.fail("integer is too long")
	return 0
}

// count reads the number of things that take at least size bytes each, and checks it against what is left.
func (d *dec) count(size int) int {
	n := d.uvarint()
	if d.err == nil && n > uint64((len(d.s)-d.at)/size) {
		d.fail("count is beyond the record")
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

// some is count for what is there only if there is at least one.
func (d *dec) some(size int) int {
	n := d.count(size)
	if n == 0 {
		d.fail("count is zero")
	}
	return n
}

func (d *dec) take(n int) string {
	if d.err != nil || n > len(d.s)-d.at {
		d.fail("ends early")
		return ""
	}
	d.at += n
	return d.s[d.at-n : d.at]
}

func (d *dec) string() string { return d.take(d.count(1)) }

// decodeRecord decodes a record. A version above ours is a *FormatError; damage wraps errRecord.
func decodeRecord(b []byte) (*record, error) {
	d := &dec{s: string(b)}
	if v := d.byte(); d.err == nil && v > recordVersion {
		return nil, &FormatError{What: "log record", Have: uint64(v), Max: recordVersion}
	} else if d.err == nil && v == 0 {
		d.fail("version is 0")
	}
	r := &record{kind: d.byte()}
	switch {
	case d.err != nil:
	case r.kind == recordBatch:
		r.commitTS = d.uvarint()
		n := d.count(2)
		r.ops = make([]Op, 0, min(n, 4096))
		for range n {
			r.ops = append(r.ops, d.op())
			if d.err != nil {
				break
			}
		}
	case r.kind == recordSchema:
		r.generation = d.uvarint()
		r.schemaText = d.string()
	default:
		d.fail(fmt.Sprintf("kind %d is unknown", r.kind))
	}
	if d.err == nil && d.at != len(d.s) {
		d.fail("bytes are left over")
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

func (d *dec) op() Op {
	switch k := d.byte(); {
	case d.err != nil:
		return Op{}
	case k == 1:
		return Op{Delete: true, Key: d.string()}
	case k != 0:
		d.fail(fmt.Sprintf("operation %d is unknown", k))
		return Op{}
	}
	doc := &schema.Document{Key: d.string()}
	if n := d.uvarint(); n > 0 {
		if n-1 > uint64(len(d.s)-d.at) {
			d.fail("source is beyond the record")
			return Op{}
		}
		doc.Source = []byte(d.take(int(n - 1)))
	}
	n := d.count(2)
	if n > 0 {
		doc.Fields = make([]schema.Values, 0, min(n, 256))
	}
	for range n {
		doc.Fields = append(doc.Fields, d.values())
		if d.err != nil {
			return Op{}
		}
	}
	return Op{Doc: doc, Key: doc.Key}
}

func (d *dec) values() schema.Values {
	var v schema.Values
	id := d.uvarint()
	if id > 1<<20 {
		d.fail("field id is too large")
	}
	v.Field = int(id)
	mask := d.byte()
	if mask&^(maskText|maskNums|maskBytes) != 0 {
		d.fail(fmt.Sprintf("kinds of values %#x", mask))
	}
	if mask&maskText != 0 {
		n := d.some(1)
		v.Text = make([]string, n)
		for i := range v.Text {
			v.Text[i] = d.string()
		}
	}
	if mask&maskNums != 0 {
		n := d.some(8)
		v.Nums = make([]uint64, n)
		for i := range v.Nums {
			if b := d.take(8); len(b) == 8 {
				v.Nums[i] = binary.LittleEndian.Uint64([]byte(b))
			}
		}
	}
	if mask&maskBytes != 0 {
		n := d.some(1)
		v.Bytes = make([][]byte, n)
		for i := range v.Bytes {
			v.Bytes[i] = []byte(d.string())
		}
	}
	return v
}

// validate returns what makes the document unfit for the schema, or nil. A document of the log was fit once: of its vectors only the
// shape is checked, so that a rule that came later does not make a log unreadable.
func validate(sch *schema.Schema, d *schema.Document, logged bool) *InvalidError {
	if reason := badKey(d.Key); reason != "" {
		return &InvalidError{Key: shorten(d.Key), Reason: reason}
	}
	last := -1
	for i := range d.Fields {
		v := &d.Fields[i]
		if v.Field < 0 || v.Field >= len(sch.Fields) {
			return &InvalidError{Key: d.Key, Reason: fmt.Sprintf("field id %d is not in the schema", v.Field)}
		}
		f := &sch.Fields[v.Field]
		reason := ""
		switch {
		case v.Field <= last:
			reason = "fields are not in ascending order"
		case len(v.Text)+len(v.Nums)+len(v.Bytes) == 0:
			reason = "has no value"
		default:
			text, nums := false, false
			switch f.Type {
			case schema.Text:
				text = true
			case schema.U64, schema.I64, schema.F64, schema.Date:
				nums = true
			}
			if len(v.Text) > 0 != text || len(v.Nums) > 0 != nums || len(v.Bytes) > 0 != (!text && !nums) {
				reason = "values are of another type"
			}
			fault := f.VectorFault
			if logged {
				fault = f.VectorShapeFault
			}
			if !logged && f.Chunked && f.Indexed && len(v.Text) > segment.MaxChunks {
				reason = fmt.Sprintf("has %d passages, at most %d are allowed", len(v.Text), segment.MaxChunks)
			}
			for _, b := range v.Bytes {
				if reason == "" {
					reason = fault(b)
				}
			}
		}
		if reason != "" {
			return &InvalidError{Key: d.Key, Field: f.Name, Reason: reason}
		}
		last = v.Field
	}
	return nil
}

func badKey(key string) string {
	switch {
	case key == "":
		return "key is empty"
	case len(key) > MaxKeyBytes:
		return fmt.Sprintf("key has %d bytes, at most %d are allowed", len(key), MaxKeyBytes)
	}
	return ""
}

// shorten cuts an over-long key for a message.
func shorten(key string) string {
	if len(key) > 64 {
		return key[:64] + "…"
	}
	return key
}
