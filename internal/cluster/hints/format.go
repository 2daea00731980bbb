package hints

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// FormatVersion is the version of segment files that this code writes and the newest that it reads. FORMAT.md describes version 1.
//
//	1  first
const FormatVersion = 1

const (
	minReader = 1 // oldest reader that understands what this code writes

	magic      = "WEFTHNT\n"
	headerSize = 32
	recordSize = 16 // without the payload

	segmentSuffix = ".hints"
	markSuffix    = ".full"
	asideSuffix   = ".refused"

	// maxPayload is the largest payload of a record in bytes; a longer one is damage. A record has at least one id, and fits.
	maxPayload = 64 << 10
	// segmentBytes is the size at which a new file is begun. A file is longer by less than a record.
	segmentBytes = 1 << 20
	// maxSegment is the longest file that is looked into.
	maxSegment = 16 << 20
	// maxName is the longest name of a member in a file name, which has to fit into 255 bytes with all that stands around it.
	maxName = 200
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// escape returns an address as part of a file name: letters, digits, - and _ and dots that are not the first stand for themselves, every other byte is
// %XX.
func escape(addr string) string {
	var b strings.Builder
	for i := range len(addr) {
		c := addr[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescape is the inverse of escape.
func unescape(name string) (addr string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false
		}
		c, err := strconv.ParseUint(name[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	addr = b.String()
	return addr, addr != "" && escape(addr) == name
}

// segmentName returns the name of the file of a member whose first record has this number.
func segmentName(name string, first uint64) string {
	return fmt.Sprintf("%s~%020d%s", name, first, segmentSuffix)
}

// parseName tells which member a file of entries or a mark of an overflow is of, and the number of its first record; 0: it is the mark.
// ok is false for files that are neither.
func parseName(file string) (addr string, first uint64, ok bool) {
	if name, found := strings.CutSuffix(file, markSuffix); found {
		addr, ok = unescape(name)
		return addr, 0, ok
	}
	name, found := strings.CutSuffix(file, segmentSuffix)
	name, digits, tilde := strings.Cut(name, "~")
	if !found || !tilde || len(digits) != 20 {
		return "", 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || first == 0 {
		return "", 0, false
	}
	addr, ok = unescape(name)
	return addr, first, ok
}

func appendHeader(dst []byte, first uint64) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, FormatVersion)
	dst = binary.LittleEndian.AppendUint32(dst, minReader)
	dst = binary.LittleEndian.AppendUint64(dst, first)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// checkHeader tells what is wrong with a header; first is the number in the file's name. An empty reason means good.
func checkHeader(h []byte, first uint64) (reason string, newer bool) {
	switch {
	case len(h) < headerSize:
		return "header cut short", false
	case string(h[:8]) != magic:
		return "not a file of hints", false
	case crc32.Checksum(h[:28], castagnoli) != binary.LittleEndian.Uint32(h[28:]):
		return "header checksum does not match", false
	case binary.LittleEndian.Uint32(h[12:]) > FormatVersion:
		return fmt.Sprintf("format %d needs a reader of format %d, this one has %d",
			binary.LittleEndian.Uint32(h[8:]), binary.LittleEndian.Uint32(h[12:]), FormatVersion), true
	case binary.LittleEndian.Uint64(h[16:]) != first:
		return fmt.Sprintf("file begins with record %d, its name says %d", binary.LittleEndian.Uint64(h[16:]), first), false
	}
	return "", false
}

// record is a decoded record. The ids view the input.
type record struct {
	seq   uint64
	size  int64 // in the file
	mark  bool  // the file was closed in order
	at    int64 // when the record was made, in Unix milliseconds
	index string
	ids   [][]byte
}

// appendRecord appends a record that is not sealed yet, with as many of the ids as it takes, at least one, and returns how many.
func appendRecord(dst []byte, seq uint64, at int64, index string, ids []string) ([]byte, int) {
	start := len(dst)
	room := maxPayload - 8 - 2*binary.MaxVarintLen32 - len(index)
	n := 0
	for n < len(ids) && (n == 0 || room >= len(ids[n])+binary.MaxVarintLen32) {
		room -= len(ids[n]) + binary.MaxVarintLen32
		n++
	}
	dst = append(dst, make([]byte, 8)...)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(at))
	dst = binary.AppendUvarint(dst, uint64(len(index)))
	dst = append(dst, index...)
	dst = binary.AppendUvarint(dst, uint64(n))
	for _, id := range ids[:n] {
		dst = binary.AppendUvarint(dst, uint64(len(id)))
		dst = append(dst, id...)
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-recordSize))
	return dst, n
}

// appendMark appends a sealed mark for the offset off; last is the number of the record before it.
func appendMark(dst []byte, off int64, last uint64) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, 8)...)
	dst = binary.LittleEndian.AppendUint64(dst, last)
	seal(dst[start:], off)
	return dst
}

// seal fills in the checksum of the record that is b, at the offset off of its file.
func seal(b []byte, off int64) { binary.LittleEndian.PutUint32(b[4:], recordCRC(b, off)) }

func recordCRC(b []byte, off int64) uint32 {
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(off))
	crc := crc32.Update(0, castagnoli, b[:4])
	crc = crc32.Update(crc, castagnoli, b[8:recordSize])
	crc = crc32.Update(crc, castagnoli, at[:])
	return crc32.Update(crc, castagnoli, b[recordSize:])
}

// decodeRecord reads the record that b begins with, which stands at the offset off of its file. A non-empty reason says why there is no
// whole record.
func decodeRecord(b []byte, off int64) (r record, reason string) {
	if len(b) < recordSize {
		return r, "record header cut short"
	}
	n := int(min(binary.LittleEndian.Uint32(b), maxPayload+1))
	if n > maxPayload {
		return r, fmt.Sprintf("record length %d is above the limit of %d", binary.LittleEndian.Uint32(b), maxPayload)
	}
	if len(b) < recordSize+n {
		return r, "record cut short"
	}
	b = b[:recordSize+n]
	if binary.LittleEndian.Uint32(b[4:]) != recordCRC(b, off) {
		return r, "record checksum does not match"
	}
	r = record{seq: binary.LittleEndian.Uint64(b[8:]), size: int64(len(b)), mark: n == 0}
	if r.mark {
		return r, ""
	}
	if !r.decodePayload(b[recordSize:]) {
		return record{}, "record content does not make sense"
	}
	return r, ""
}

func (r *record) decodePayload(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	r.at = int64(binary.LittleEndian.Uint64(b))
	b = b[8:]
	index, b, ok := cutBytes(b)
	if !ok {
		return false
	}
	r.index = string(index)
	n, w := binary.Uvarint(b)
	if w <= 0 || n == 0 || n > uint64(len(b)-w) { // an id takes a byte at least
		return false
	}
	b = b[w:]
	r.ids = make([][]byte, n)
	for i := range r.ids {
		if r.ids[i], b, ok = cutBytes(b); !ok {
			return false
		}
	}
	return len(b) == 0
}

// cutBytes cuts bytes with their length before them.
func cutBytes(b []byte) (s, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, false
	}
	b = b[w:]
	return b[:n], b[n:], true
}

// scan is what a file holds.
type scan struct {
	end     int64  // offset after the last whole record with entries
	last    uint64 // its number; the one before the file's first if there is none
	entries int
	oldest  int64  // time of the first record
	closed  bool   // the file was closed in order
	reason  string // why the bytes at end are no record; empty where there are none
	corrupt bool   // they are not what a crash can leave
}

// scanFile reads the records of b, a whole file with a good header, and gives those with entries to fn.
func scanFile(b []byte, first uint64, fn func(record)) scan {
	s := scan{end: headerSize, last: first - 1}
	for s.end < int64(len(b)) {
		r, reason := decodeRecord(b[s.end:], s.end)
		switch {
		case reason != "":
			s.reason = reason
			if why := wholeBeyond(b, s); why != "" {
				s.reason, s.corrupt = reason+", but "+why, true
			}
			return s
		case r.mark && r.seq == s.last:
			s.closed = true
			if s.end+r.size != int64(len(b)) {
				s.reason, s.corrupt = "bytes after the end of a file that was closed in order", true
			}
			return s
		case r.mark || r.seq != s.last+1:
			s.reason, s.corrupt = fmt.Sprintf("record %d after record %d", r.seq, s.last), true
			return s
		}
		if s.entries == 0 {
			s.oldest = r.at
		}
		s.end += r.size
		s.last = r.seq
		s.entries += len(r.ids)
		fn(r)
	}
	return s
}

// wholeBeyond looks for a whole record after the damage at s.end: a crash damages the last write only, and while that may have had
// several records, it is not worth telling both apart. It returns why the damage is corruption, or nothing when it may be a torn tail.
func wholeBeyond(b []byte, s scan) string {
	// Made-up ids could look like very many headers of long records. Checking is given up, on the safe side, before it takes long.
	budget := 16*int64(len(b)) + 1<<20
	for off := s.end + 1; off+recordSize <= int64(len(b)); off++ {
		n := int64(binary.LittleEndian.Uint32(b[off:]))
		seq := binary.LittleEndian.Uint64(b[off+8:])
		if n > maxPayload || n > int64(len(b))-off-recordSize || seq < s.last || seq-s.last > uint64(len(b))/recordSize {
			continue
		}
		if budget -= n + recordSize; budget < 0 {
			return "too many possible records follow to tell a torn tail"
		}
		if r, reason := decodeRecord(b[off:], off); reason == "" {
			return fmt.Sprintf("a whole record (%d) follows at offset %d", r.seq, off)
		}
	}
	return ""
}
