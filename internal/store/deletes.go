package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/segment/bitset"
)

// DeleteSet is the set of dead documents of one segment.
type DeleteSet struct {
	Segment    string // id (uuid)
	Generation uint64 // grows with each set of the segment
	Docs       uint32 // documents of the segment; every member of Dead is below
	Dead       bitset.Set
}

// DeletesVersion is the version of delete sets that this code writes and the newest that it reads.
//
//	1  first
const DeletesVersion = 1

// Layout of a delete set, see FORMAT.md.
const (
	deletesMagic  = "WEFTDEL\n"
	deletesHeader = 80
	deletesFooter = 8

	deletesDense  = 0 // one bit for each document
	deletesSparse = 1 // distances as varints
)

// EncodeDeletes returns the file of a delete set, in the smaller of two encodings. Dead must have the capacity of Docs.
func EncodeDeletes(d DeleteSet) []byte {
	count := d.Dead.Count()
	dense := (int(d.Docs) + 63) / 64 * 8
	b := make([]byte, deletesHeader, deletesHeader+dense+deletesFooter)
	if count < dense { // a distance takes at least a byte
		prev := int64(-1)
		for w, word := range d.Dead {
			for ; word != 0 && len(b) <= deletesHeader+dense; word &= word - 1 {
				doc := int64(w*64 + bits.TrailingZeros64(word))
				b = binary.AppendUvarint(b, uint64(doc-prev-1))
				prev = doc
			}
		}
	}
	kind := uint32(deletesSparse)
	if size := len(b) - deletesHeader; size >= dense || count >= dense {
		kind, b = deletesDense, b[:deletesHeader]
		for _, word := range d.Dead {
			b = binary.LittleEndian.AppendUint64(b, word)
		}
	}
	copy(b, deletesMagic)
	binary.LittleEndian.PutUint32(b[8:], DeletesVersion)
	binary.LittleEndian.PutUint32(b[12:], kind)
	copy(b[16:52], d.Segment)
	binary.LittleEndian.PutUint64(b[56:], d.Generation)
	binary.LittleEndian.PutUint32(b[64:], d.Docs)
	binary.LittleEndian.PutUint32(b[68:], uint32(count))
	binary.LittleEndian.PutUint64(b[72:], uint64(len(b)-deletesHeader))
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

// DecodeDeletes reads a delete set; name is for errors, which are *CorruptError or ErrNewerFormat. It allocates one bit for each document that
// the header claims, so at most 512 MiB; Catalog.LoadDeletes knows the segment and is stricter.
func DecodeDeletes(name string, b []byte) (DeleteSet, error) {
	return decodeDeletes(name, b, math.MaxUint32)
}

// decodeDeletes is DecodeDeletes for a segment of at most maxDocs documents.
func decodeDeletes(name string, b []byte, maxDocs uint32) (DeleteSet, error) {
	bad := func(at int, format string, args ...any) (DeleteSet, error) {
		return DeleteSet{}, &CorruptError{Object: name, Place: fmt.Sprintf("offset %d", at), Reason: fmt.Sprintf(format, args...)}
	}
	if len(b) < deletesHeader+deletesFooter {
		return bad(len(b), "cut short")
	}
	if string(b[:8]) != deletesMagic {
		return bad(0, "not a delete set")
	}
	body := b[:len(b)-deletesFooter]
	if xxh3.Hash(body) != binary.LittleEndian.Uint64(b[len(body):]) {
		return bad(len(body), "checksum does not match")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > DeletesVersion {
		return DeleteSet{}, fmt.Errorf("%w: %s has format %d, this reader knows up to %d", ErrNewerFormat, name, v, DeletesVersion)
	} else if v == 0 {
		return bad(8, "format 0")
	}
	d := DeleteSet{
		Segment:    string(b[16:52]),
		Generation: binary.LittleEndian.Uint64(b[56:]),
		Docs:       binary.LittleEndian.Uint32(b[64:]),
	}
	count := binary.LittleEndian.Uint32(b[68:])
	payload := body[deletesHeader:]
	if uint64(len(payload)) != binary.LittleEndian.Uint64(b[72:]) {
		return bad(72, "payload of %d bytes, %d are there", binary.LittleEndian.Uint64(b[72:]), len(payload))
	}
	if !validID(d.Segment) || binary.LittleEndian.Uint32(b[52:]) != 0 {
		return bad(16, "no segment id")
	}
	if d.Docs > maxDocs {
		return bad(64, "%d documents, the segment has %d", d.Docs, maxDocs)
	}
	if count > d.Docs {
		return bad(68, "%d of %d documents", count, d.Docs)
	}
	words := int((uint64(d.Docs) + 63) / 64)
	switch kind := binary.LittleEndian.Uint32(b[12:]); kind {
	case deletesDense:
		if len(payload) != words*8 {
			return bad(deletesHeader, "%d bytes for %d documents", len(payload), d.Docs)
		}
		d.Dead = make(bitset.Set, words)
		for i := range d.Dead {
			d.Dead[i] = binary.LittleEndian.Uint64(payload[i*8:])
		}
		if r := d.Docs % 64; r != 0 && d.Dead[words-1]>>r != 0 {
			return bad(deletesHeader+words*8-8, "a member at or above %d", d.Docs)
		}
		if n := d.Dead.Count(); n != int(count) {
			return bad(68, "%d members are announced, %d are there", count, n)
		}
	case deletesSparse:
		if uint64(count) > uint64(len(payload)) {
			return bad(68, "%d members in %d bytes", count, len(payload))
		}
		d.Dead = make(bitset.Set, words)
		at, doc := 0, int64(-1)
		for range count {
			gap, n := binary.Uvarint(payload[at:])
			if n <= 0 || gap >= uint64(d.Docs) || doc+1+int64(gap) >= int64(d.Docs) {
				return bad(deletesHeader+at, "not a distance to a member below %d", d.Docs)
			}
			doc += 1 + int64(gap)
			d.Dead.Add(uint32(doc))
			at += n
		}
		if at != len(payload) {
			return bad(deletesHeader+at, "%d bytes too many", len(payload)-at)
		}
	default:
		return bad(12, "unknown encoding %d", kind)
	}
	return d, nil
}
