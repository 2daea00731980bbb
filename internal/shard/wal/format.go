package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// Format versions of log files. FORMAT.md describes version 1.
//
//	1  first
const (
	// FormatVersion is the version that this code writes and the newest that it reads.
	FormatVersion = 1

	minReader = 1 // oldest reader that understands what this code writes
)

const (
	magic      = "WEFTLOG\n"
	headerSize = 32
	recordSize = 20 // without the payload
	suffix     = ".log"

	// MaxRecord is the largest payload of one record in bytes. A length above it is damage; nothing is allocated for it.
	MaxRecord = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fileName returns the name of the file whose first record is first.
func fileName(first uint64) string { return fmt.Sprintf("%020d%s", first, suffix) }

// parseName is the inverse of fileName.
func parseName(name string) (first uint64, ok bool) {
	digits, found := strings.CutSuffix(name, suffix)
	if !found || len(digits) != 20 {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, err == nil && first > 0 && fileName(first) == name
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
		return "not a log file", false
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

// sealRecord fills in the header of the record at b[0:recordSize+n], whose length is set and whose payload is in place.
func sealRecord(b []byte, off int64, seq uint64, back uint32) {
	binary.LittleEndian.PutUint64(b[8:], seq)
	binary.LittleEndian.PutUint32(b[16:], back)
	binary.LittleEndian.PutUint32(b[4:], recordCRC(b, off))
}

// recordCRC computes the checksum of the record that is b, at offset off of its file.
func recordCRC(b []byte, off int64) uint32 {
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(off))
	crc := crc32.Update(0, castagnoli, b[:4])
	crc = crc32.Update(crc, castagnoli, b[8:recordSize])
	crc = crc32.Update(crc, castagnoli, at[:])
	return crc32.Update(crc, castagnoli, b[recordSize:])
}

// record is a decoded record; the payload views the input.
type record struct {
	off     int64
	seq     uint64
	back    uint32
	payload []byte // empty: a mark
}

func (r record) end() int64 { return r.off + recordSize + int64(len(r.payload)) }

// durable is the offset up to which the file was durable when r was written.
func (r record) durable() int64 { return r.off - int64(r.back) }

// decodeRecord reads the record at b[off:]; b is the file from its start. A non-empty reason says why there is no whole record.
func decodeRecord(b []byte, off int64) (r record, reason string) {
	rest := b[off:]
	if len(rest) < recordSize {
		return r, "record header cut short"
	}
	n := binary.LittleEndian.Uint32(rest)
	if n > MaxRecord {
		return r, fmt.Sprintf("record length %d is above the limit of %d", n, MaxRecord)
	}
	if int(n) > len(rest)-recordSize {
		return r, fmt.Sprintf("record of %d bytes cut short", n)
	}
	rest = rest[:recordSize+int(n)]
	if recordCRC(rest, off) != binary.LittleEndian.Uint32(rest[4:]) {
		return r, "record checksum does not match"
	}
	r = record{off: off, seq: binary.LittleEndian.Uint64(rest[8:]), back: binary.LittleEndian.Uint32(rest[16:]), payload: rest[recordSize:]}
	if r.durable() < headerSize {
		return r, "record says that less than the header is durable"
	}
	return r, ""
}
