package front

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
)

func TestIDSet(t *testing.T) {
	s := NewIDSet(5000)
	for round := range 2 {
		for i := range 5000 {
			if seen := s.Add(strconv.Itoa(i)); seen != (round == 1) {
				t.Fatalf("round %d: id %d seen: %v", round, i, seen)
			}
		}
	}
	if s.Forgot() {
		t.Fatal("forgot before it was full")
	}
	first, second := s.Add("new"), s.Add("new")
	if first || second || !s.Forgot() {
		t.Fatal("a full set remembers")
	}
	if !s.Add("17") {
		t.Fatal("a full set forgot what it had")
	}
}

func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\n\nbb\r\n  c"), 3)
	f.Add([]byte("\xEF\xBB\xBF{}\n"+strings.Repeat("x", 100)), 10)
	f.Fuzz(func(t *testing.T, in []byte, most int) {
		most = 1 + most&0xff
		l := &LineReader{r: bufio.NewReaderSize(strings.NewReader(string(in)), 16), most: most}
		lines := strings.Split(strings.TrimPrefix(string(in), "\xEF\xBB\xBF"), "\n")
		last := 0
		for {
			got, err := l.Next(func() error { return nil })
			if errors.Is(err, io.EOF) {
				return
			}
			if got.Number <= last || got.Number > len(lines) {
				t.Fatalf("line %d after %d of %d", got.Number, last, len(lines))
			}
			last = got.Number
			want := strings.TrimSpace(lines[last-1])
			if errors.Is(err, ErrLineTooLong) {
				if len(lines[last-1]) <= most-4 { // the byte order mark and the line end count
					t.Fatalf("line %d of %d bytes is too long for %d", last, len(lines[last-1]), most)
				}
				continue
			}
			if err != nil || string(got.Bytes) != want {
				t.Fatalf("line %d: %q, %v; want %q", last, got.Bytes, err, want)
			}
		}
	})
}
