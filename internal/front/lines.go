package front

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/zeebo/xxh3"
)

// BulkTypes are the content types of a bulk load; each holds one JSON object on a line.
var BulkTypes = []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", TypeJSON}

// LongLine is the length in bytes of a line from which LineReader asks for its memory.
const LongLine = 1 << 20

// ErrLineTooLong is a line over the limit. It was read to its end.
var ErrLineTooLong = errors.New("line is too long")

// Line is one line of a stream, without its end.
type Line struct {
	Number int // from 1
	Bytes  []byte
}

// LineReader cuts a stream into lines of bounded length. Lines of white space only are passed over. A byte order mark at the
// start of the stream is, too.
type LineReader struct {
	r      *bufio.Reader
	most   int
	number int
	buf    []byte
}

// NewLineReader returns a reader of lines of at most so many bytes.
func NewLineReader(r io.Reader, most int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, 256<<10), most: most}
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

// Next returns the next line; its bytes die at the next call. charge is called before a line takes more than LongLine bytes; its
// error is returned when the line has been read to its end. A last line without an end counts only if the stream ended well. With an
// error, io.EOF at the end of the stream, the number is that of the line that it is about.
func (l *LineReader) Next(charge func() error) (Line, error) {
	for {
		l.number++
		b, err := l.read(charge)
		if l.number == 1 {
			b = bytes.TrimPrefix(b, byteOrderMark)
		}
		b = bytes.TrimSpace(b)
		at := Line{l.number, b}
		switch {
		case errors.Is(err, io.EOF) && len(b) > 0:
			return at, nil // the next call finds the end again
		case err != nil:
			return at, err
		case len(b) > 0:
			return at, nil
		}
	}
}

func (l *LineReader) read(charge func() error) ([]byte, error) {
	b, err := l.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return b, err
	}
	if cap(l.buf) > LongLine {
		l.buf = nil
	}
	l.buf = append(l.buf[:0], b...)
	var refused error
	for {
		b, err = l.r.ReadSlice('\n')
		switch {
		case refused != nil:
		case len(l.buf)+len(b) > l.most:
			refused, l.buf = ErrLineTooLong, l.buf[:0]
		default:
			if len(l.buf)+len(b) > LongLine {
				if refused = charge(); refused != nil {
					l.buf = l.buf[:0]
					break
				}
			}
			l.buf = append(l.buf, b...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if refused != nil && (err == nil || errors.Is(err, io.EOF)) {
			return nil, refused
		}
		return l.buf, err
	}
}

// IDSet remembers ids by a 64-bit hash, up to a number: 8 to 16 bytes for each. Two ids with one hash would be counted as a
// duplicate, which among eight million ids happens once in half a million loads.
type IDSet struct {
	table  []uint64 // open addressing; 0 is free
	n      int
	most   int
	forgot bool
}

// NewIDSet returns a set of at most so many ids.
func NewIDSet(most int) *IDSet { return &IDSet{most: most} }

// Forgot tells whether ids came after the set was full, which it does not remember.
func (s *IDSet) Forgot() bool { return s.forgot }

// Add remembers id and tells whether it was there.
func (s *IDSet) Add(id string) bool {
	h := xxh3.HashString(id)
	if h == 0 {
		h = 1
	}
	if len(s.table) > 0 {
		mask := uint64(len(s.table) - 1)
		for i := h & mask; s.table[i] != 0; i = (i + 1) & mask {
			if s.table[i] == h {
				return true
			}
		}
	}
	if s.n >= s.most {
		s.forgot = true
		return false
	}
	if s.n*2 >= len(s.table) {
		s.grow()
	}
	s.insert(h)
	s.n++
	return false
}

func (s *IDSet) insert(h uint64) {
	mask := uint64(len(s.table) - 1)
	i := h & mask
	for s.table[i] != 0 {
		i = (i + 1) & mask
	}
	s.table[i] = h
}

func (s *IDSet) grow() {
	old := s.table
	s.table = make([]uint64, max(1024, 2*len(old)))
	for _, h := range old {
		if h != 0 {
			s.insert(h)
		}
	}
}
