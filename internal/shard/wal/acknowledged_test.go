package wal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestCutOffAcknowledgedRecordsAreDamage cuts a log at every byte: where a record is lost that Append had acknowledged, neither Open
// nor Verify may take it for a write that a crash cut off.
func TestCutOffAcknowledgedRecordsAreDamage(t *testing.T) {
	build := func() (*memfs.FS, []byte, string) {
		fsys := memfs.New(nil)
		l, err := Open(fsys, "log", Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, err := l.Append(t.Context(), fmt.Appendf(nil, "record %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		name := "log/" + fileName(1)
		b, err := vfs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		return fsys, b, name
	}
	_, whole, _ := build()
	for cut := headerSize + 1; cut < len(whole); cut++ {
		fsys, b, name := build()
		if cut >= len(b) { // the log marks its durable end when it finds the time, so that no two have the same length
			continue
		}
		if err := vfs.WriteFile(fsys, name, b[:cut]); err != nil {
			t.Fatal(err)
		}
		rep, verr := Verify(fsys, "log")
		l, oerr := Open(fsys, "log", Options{})
		if oerr == nil {
			if l.LastSeq() != 3 {
				t.Errorf("cut at %d of %d: opened with %d of 3 acknowledged records", cut, len(whole), l.LastSeq())
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(oerr, ErrCorrupt) {
			t.Errorf("cut at %d: %v", cut, oerr)
		}
		if (verr == nil) != (oerr == nil) {
			t.Errorf("cut at %d: Verify says %+v %v, Open %v", cut, rep, verr, oerr)
		}
	}
	fsys, _, name := build()
	if err := fsys.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(fsys, "log"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("verify without the file: %v", err)
	}
	if _, err := Open(fsys, "log", Options{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("open without the file: %v", err)
	}
}

// TestDamagedAcknowledgedEndSaysNothing: the note is a help; a log opens whatever became of it.
func TestDamagedAcknowledgedEndSaysNothing(t *testing.T) {
	good := appendAck(nil, 7)
	if got := fmt.Sprintf("%x", good); got != "5745465441434b0a01000000070000000000000030422240" { // version 1, for ever
		t.Fatalf("encoded as %s", got)
	}
	if decodeAck(good) != 7 || len(good) != ackSize {
		t.Fatalf("%x gives %d", good, decodeAck(good))
	}
	for i := range good {
		for bit := range 8 {
			b := append([]byte(nil), good...)
			b[i] ^= 1 << bit
			if got := decodeAck(b); got != 0 {
				t.Errorf("bit %d of byte %d flipped: %d", bit, i, got)
			}
		}
		if got := decodeAck(good[:i]); got != 0 {
			t.Errorf("cut to %d: %d", i, got)
		}
	}
}
