package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"

	"github.com/weft-search/weft/internal/vfs"
)

// AcknowledgedName is the file beside the log files that holds the number of the last record that was durable. The log itself
// cannot tell a record that was being written at a crash from one that was acknowledged and cut off later by something else.
// The number is written after the sync that it tells of and is not synced itself, so whatever of it reaches the disk is true: a log
// that ends before it lost records. That it is absent, damaged or behind says nothing.
const AcknowledgedName = "acknowledged"

const (
	ackMagic = "WEFTACK\n"
	ackSize  = 24
)

// note is the open file of the number.
type note struct{ f vfs.File }

func appendAck(dst []byte, seq uint64) []byte {
	at := len(dst)
	dst = append(dst, ackMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, FormatVersion)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// readAck returns the number, 0 if there is none to be had.
func readAck(fsys vfs.FS, dir string) (uint64, error) {
	b, err := vfs.ReadFile(fsys, path.Join(dir, AcknowledgedName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the acknowledged end of the log: %w", err)
	}
	return decodeAck(b), nil
}

func decodeAck(b []byte) uint64 {
	if len(b) != ackSize || string(b[:8]) != ackMagic || binary.LittleEndian.Uint32(b[8:]) != FormatVersion ||
		binary.LittleEndian.Uint32(b[20:]) != crc32.Checksum(b[:20], castagnoli) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[12:])
}

// checkAck compares the end of the log with what was acknowledged.
func checkAck(fsys vfs.FS, dir, last string, lastSeq uint64, end int64) error {
	ack, err := readAck(fsys, dir)
	if err != nil || ack <= lastSeq {
		return err
	}
	return &CorruptError{File: last, Offset: end, Reason: fmt.Sprintf("the log ends with record %d, but records up to %d were acknowledged", lastSeq, ack)}
}

// openNote readies the file for writing. It is a help, not a part of the log: where it cannot be had, the log works without.
func openNote(fsys vfs.FS, dir string, seq uint64) *note {
	name := path.Join(dir, AcknowledgedName)
	f, err := fsys.OpenRW(name)
	if errors.Is(err, fs.ErrNotExist) {
		if vfs.WriteFile(fsys, name, appendAck(nil, seq)) != nil {
			return nil
		}
		f, err = fsys.OpenRW(name)
	}
	if err != nil {
		return nil
	}
	n := &note{f}
	if !n.write(seq) {
		return nil
	}
	return n
}

// write tells that records up to seq are durable. It reports whether the note is of further use.
func (n *note) write(seq uint64) bool {
	if n == nil {
		return false
	}
	var b [ackSize]byte
	if _, err := n.f.WriteAt(appendAck(b[:0], seq), 0); err != nil {
		n.close()
		return false
	}
	return true
}

func (n *note) close() {
	if n != nil {
		// Nothing is lost with it: what it holds was written or was not.
		if err := n.f.Close(); err != nil {
			return
		}
	}
}
