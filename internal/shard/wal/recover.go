package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"

	"github.com/weft-search/weft/internal/invariant"
	"github.com/weft-search/weft/internal/vfs"
)

// tailScan is the outcome of reading a file's records.
type tailScan struct {
	end     int64  // offset after the last whole record
	lastSeq uint64 // number of the last record, first-1 if there is none
	suspect int64  // what lies from here to end was perhaps never synced
	mark    bool   // the last record is a mark
	reason  string // why the bytes at end are no record; empty at the end of the file
}

// scan reads the records of b, a whole file with a good header, and gives each to fn (which may be nil). It stops at limit when
// the record of that number was read. A record that is whole but out of order is corruption at once.
func scan(name string, b []byte, first, limit uint64, fn func(record) error) (tailScan, error) {
	t := tailScan{end: headerSize, lastSeq: first - 1}
	for t.end < int64(len(b)) && t.lastSeq < limit {
		r, reason := decodeRecord(b, t.end)
		if reason != "" {
			t.reason = reason
			return t, nil
		}
		want := t.lastSeq + 1
		if len(r.payload) == 0 {
			want = t.lastSeq
		}
		if r.seq != want {
			return t, &CorruptError{File: name, Offset: t.end, Reason: fmt.Sprintf("record %d where %d belongs", r.seq, want)}
		}
		t.end, t.lastSeq, t.suspect, t.mark = r.end(), r.seq, r.durable(), len(r.payload) == 0
		if fn != nil && !t.mark {
			if err := fn(r); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

// durableBeyond looks for a whole record after the damage at t.end that says the damaged place was durable when it was written.
// It returns why the damage is corruption, or nothing when it may be a torn tail.
func durableBeyond(b []byte, t tailScan) string {
	// A made-up payload could hold very many headers of long records. Checking is given up, on the safe side, before it takes long.
	budget := 16*int64(len(b)) + 1<<20
	for off := t.end + 1; off+recordSize <= int64(len(b)); off++ {
		n := int64(binary.LittleEndian.Uint32(b[off:]))
		seq := binary.LittleEndian.Uint64(b[off+8:])
		back := int64(binary.LittleEndian.Uint32(b[off+16:]))
		room := int64(len(b)) - off - recordSize
		if n > room || off-back <= t.end || seq < t.lastSeq || seq-t.lastSeq > uint64(len(b))/recordSize {
			continue
		}
		if budget -= n; budget < 0 {
			return "too many possible records follow to tell a torn tail"
		}
		if r, reason := decodeRecord(b, off); reason == "" {
			return fmt.Sprintf("a whole record (%d) follows at offset %d", r.seq, r.off)
		}
	}
	return ""
}

// readLog reads one file and checks its header. fresh means that it was begun and never used: its header may be bad.
func readLog(fsys vfs.FS, name string, first uint64) (b []byte, fresh bool, err error) {
	b, err = vfs.ReadFile(fsys, name)
	if err != nil {
		return nil, false, fmt.Errorf("read log file %s: %w", name, err)
	}
	if int64(len(b)) > math.MaxUint32 {
		return nil, false, &CorruptError{File: name, Offset: math.MaxUint32, Reason: "file longer than any log file"}
	}
	reason, newer := checkHeader(b, first)
	switch {
	case newer:
		return nil, false, fmt.Errorf("%w: %s: %s", ErrNewerFormat, name, reason)
	case reason != "" && len(b) <= headerSize:
		return b, true, nil
	case reason != "":
		return nil, false, &CorruptError{File: name, Reason: reason}
	}
	return b, false, nil
}

// list returns the first numbers of the files in dir, ascending, with their sizes, and the names of half-made files.
func list(fsys vfs.FS, dir string) (files []logFile, temps []string, err error) {
	infos, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("list log %s: %w", dir, err)
	}
	for _, in := range infos {
		p := path.Join(dir, in.Name)
		switch {
		case in.Dir:
		case vfs.IsTemp(in.Name):
			temps = append(temps, p)
		case path.Ext(in.Name) == suffix:
			first, ok := parseName(in.Name)
			if !ok {
				return nil, nil, &CorruptError{File: p, Reason: "not the name of a log file"}
			}
			files = append(files, logFile{first: first, size: in.Size})
		}
	}
	return files, temps, nil
}

// scanLast reads the last file and decides what its tail is. torn is nil when all bytes are whole records, and zeros behind them: the room for
// more.
func scanLast(fsys vfs.FS, name string, first uint64) (b []byte, t tailScan, torn *Tail, err error) {
	b, fresh, err := readLog(fsys, name, first)
	if err != nil {
		return nil, t, nil, err
	}
	if fresh {
		return nil, tailScan{end: 0, lastSeq: first - 1}, nil, nil
	}
	t, err = scan(name, b, first, math.MaxUint64, nil)
	if err != nil || t.reason == "" {
		return b, t, nil, err
	}
	if !slices.ContainsFunc(b[t.end:], func(c byte) bool { return c != 0 }) {
		t.reason = ""
		return b, t, nil, nil
	}
	if why := durableBeyond(b, t); why != "" {
		return nil, t, nil, &CorruptError{File: name, Offset: t.end, Reason: t.reason + ", but " + why}
	}
	return b, t, &Tail{File: name, Offset: t.end, Bytes: int64(len(b)) - t.end, Reason: t.reason}, nil
}

// replay gives the records from..limit of the files to fn.
func replay(fsys vfs.FS, dir string, files []logFile, from, limit uint64, fn func(seq uint64, payload []byte) error) error {
	if len(files) == 0 {
		return nil
	}
	if from == 0 {
		from = files[0].first
	}
	if from < files[0].first {
		return fmt.Errorf("%w: replay from %d, the log %s begins with %d", ErrTrimmed, from, dir, files[0].first)
	}
	if from > limit+1 {
		return &CorruptError{
			File:   path.Join(dir, fileName(files[len(files)-1].first)),
			Reason: fmt.Sprintf("the log ends with record %d, but records up to %d were written", limit, from-1),
		}
	}
	start := 0
	for start+1 < len(files) && files[start+1].first <= from {
		start++
	}
	next := files[start].first
	for i, f := range files[start:] {
		name := path.Join(dir, fileName(f.first))
		if f.first != next {
			return &CorruptError{File: name, Reason: fmt.Sprintf("records %d to %d are missing before this file", next, f.first-1)}
		}
		last := start+i == len(files)-1
		if last && limit < f.first {
			return nil // nothing in it yet
		}
		b, fresh, err := readLog(fsys, name, f.first)
		if err != nil {
			return err
		}
		if fresh {
			return &CorruptError{File: name, Reason: "header damaged"}
		}
		stop := uint64(math.MaxUint64)
		if last {
			stop = limit // what follows may be being written now
		}
		t, err := scan(name, b, f.first, stop, func(r record) error {
			if r.seq < from {
				return nil
			}
			err := fn(r.seq, r.payload)
			if invariant.Enabled {
				invariant.Mangle(r.payload)
			}
			return err
		})
		if err != nil {
			return err
		}
		if t.reason == "" && last && t.lastSeq < limit {
			t.reason = fmt.Sprintf("file ends before record %d", limit)
		}
		if t.reason != "" {
			return &CorruptError{File: name, Offset: t.end, Reason: t.reason}
		}
		next = t.lastSeq + 1
	}
	return nil
}

// Report is what Verify found.
type Report struct {
	Files    int
	Size     int64 // bytes
	FirstSeq uint64
	LastSeq  uint64
	Torn     *Tail // what Open would cut; nil when the tail is whole
}

// Verify reads every record of the log in dir and changes nothing. A missing folder is an empty log.
// Errors are those of Open and Replay.
func Verify(fsys vfs.FS, dir string) (Report, error) {
	files, _, err := list(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, nil
	}
	if err != nil {
		return Report{}, err
	}
	if len(files) == 0 {
		return Report{}, checkAck(fsys, dir, dir, 0, 0)
	}
	rep := Report{Files: len(files), FirstSeq: files[0].first}
	for _, f := range files {
		rep.Size += f.size
	}
	last := files[len(files)-1]
	_, t, torn, err := scanLast(fsys, path.Join(dir, fileName(last.first)), last.first)
	if err != nil {
		return rep, err
	}
	rep.LastSeq, rep.Torn = t.lastSeq, torn
	if err := checkAck(fsys, dir, path.Join(dir, fileName(last.first)), t.lastSeq, t.end); err != nil {
		return rep, err
	}
	return rep, replay(fsys, dir, files, 0, t.lastSeq, func(uint64, []byte) error { return nil })
}
