// Package loader reads collections of documents from files and sends them to a server in bounded batches.
//
// It streams: memory holds the batches under way and nothing else. Documents of one id are sent in the order in which they were
// read, so the last one wins as if they had been sent one by one; with one batch at a time this holds for all of them. Positions of acknowledged documents are kept in a state file on
// demand; since a document replaces the one of its id, sending some of them again after a crash changes nothing.
//
// Formats: NDJSON (one object for each line), CSV and TSV with a header line, and text or Markdown, one document for each file,
// alone or in a folder. A name that ends in .gz or .zst is decompressed on the way.
package loader

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// MaxRecord bounds the bytes of one document of the input. Longer ones are rejected without being held.
const MaxRecord = 16 << 20

// Format is how documents are written in a file.
type Format string

// The formats. Folder is a folder of Text and Markdown files.
const (
	NDJSON   Format = "ndjson"
	CSV      Format = "csv"
	TSV      Format = "tsv"
	Text     Format = "text"
	Markdown Format = "markdown"
	Folder   Format = "folder"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

var byExtension = map[string]Format{
	".ndjson": NDJSON, ".jsonl": NDJSON, ".json": NDJSON,
	".csv": CSV, ".tsv": TSV, ".tab": TSV,
	".txt": Text, ".text": Text,
	".md": Markdown, ".markdown": Markdown,
}

// Input is one file, folder or stream to read.
type Input struct {
	Path    string
	Format  Format
	Size    int64     // bytes on disk; 0 for a folder or a stream
	ModTime time.Time // zero for a folder or a stream
	Stream  bool      // a pipe, a terminal or standard input: it can be read once, and nobody knows when it has changed
}

// Find looks at each path and tells how it is to be read. force, if not empty, is the format of every file; without it a file's
// name decides, and standard input is NDJSON. Nothing is read yet.
func Find(paths []string, force Format) ([]Input, error) {
	var out []Input
	seen := map[string]bool{}
	for _, path := range paths {
		if seen[path] {
			return nil, fmt.Errorf("%s is named twice", path)
		}
		seen[path] = true
		if path == Stdin {
			in := Input{Path: path, Format: NDJSON, Stream: true}
			if force != "" {
				in.Format = force
			}
			out = append(out, in)
			continue
		}
		st, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("look at input: %w", err)
		}
		if st.IsDir() {
			out = append(out, Input{Path: path, Format: Folder})
			continue
		}
		in := Input{Path: path, Format: force, Size: st.Size(), ModTime: st.ModTime()}
		if in.Format == "" {
			ext := strings.ToLower(filepath.Ext(plainName(path)))
			f, ok := byExtension[ext]
			if !ok {
				return nil, fmt.Errorf("%s: cannot tell the format from the name (known: .ndjson .jsonl .json .csv .tsv .txt .md, each also with .gz or .zst): say it with --format", path)
			}
			in.Format = f
		}
		if !st.Mode().IsRegular() {
			in.Size, in.ModTime, in.Stream = 0, time.Time{}, true
		}
		out = append(out, in)
	}
	return out, nil
}

// plainName is the name without the ending of a compressed file.
func plainName(path string) string {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".gz", ".zst":
		return path[:len(path)-len(ext)]
	}
	return path
}

// Reject is a document that did not go in, and why.
type Reject struct {
	File   string `json:"file"`
	Line   int64  `json:"line"` // where the document begins, from 1
	ID     string `json:"id"`   // empty when it is not known
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// position is how far a file has been read: what a reader needs to go on behind a record.
type position struct {
	Offset int64  // bytes behind the record, decompressed
	Line   int64  // lines before Offset
	After  string // folders: the last path read, relative to the folder
}

// record is one document of the input. Its bytes are the reader's until the next call.
type record struct {
	doc      []byte // a JSON object in one line; nil when the input was no document
	id       string // empty when it is not known
	line     int64
	code     string // why there is no document
	reason   string
	position position // behind this record
}

// reader reads the documents of one input. It is not safe for concurrent use.
type reader interface {
	// next reads the next document into r, or returns io.EOF. Input that is no document is a record with a code; any other error ends
	// the input.
	next(r *record) error
	close() error
}

// readerOptions is what the readers need to know besides the input.
type readerOptions struct {
	ctx     context.Context // ends waits for a stream; nil = never
	idField string
	types   map[string]Type
	stdin   io.Reader
	read    *atomic.Int64 // bytes taken from disk
	from    position
	since   time.Time // folders: files changed after it are read even before from.After; zero = none are
}

func (in Input) open(o readerOptions) (reader, error) {
	switch in.Format {
	case Folder:
		return openFolder(in.Path, o)
	case Text, Markdown:
		return openSingle(in, o)
	}
	src, err := openStream(in.Path, o)
	if err != nil {
		return nil, err
	}
	var r reader
	switch in.Format {
	case NDJSON:
		r, err = newNDJSON(src, o)
	case CSV, TSV:
		return openCSV(src, in.comma(), in.Path, o)
	default:
		err = fmt.Errorf("unknown format %q", in.Format)
	}
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return r, nil
}

func openCSV(src *stream, comma rune, path string, o readerOptions) (reader, error) {
	c, err := newCSV(src, comma, o, func() (*stream, error) { return openStream(path, o) })
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return c, nil
}

// stream is a decompressed file.
type stream struct {
	io.Reader
	seek    *os.File // the file itself when it is not compressed
	read    *atomic.Int64
	closers []func() error // in the order to call
}

// Close closes the file; closing it again does nothing.
func (s *stream) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c())
	}
	s.closers = nil
	return errors.Join(errs...)
}

func openStream(path string, o readerOptions) (*stream, error) {
	s := &stream{read: o.read}
	ctx := o.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	if path == Stdin {
		s.Reader = &patientReader{ctx: ctx, r: o.stdin}
	} else {
		f, regular, err := openFile(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("open input: %w", err)
		}
		s.Reader = f
		if !regular {
			s.Reader = &patientReader{ctx: ctx, r: f}
		}
		s.closers = append(s.closers, f.Close)
		if regular && plainName(path) == path {
			s.seek = f
		}
	}
	if o.read != nil {
		s.Reader = &countingReader{r: s.Reader, n: o.read}
	}
	switch {
	case path == Stdin:
	case strings.EqualFold(filepath.Ext(path), ".gz"):
		z, err := gzip.NewReader(s.Reader)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read gzip header of %s: %w", path, err), s.Close())
		}
		s.Reader = cutShort{z} // its Close says the same once more, and has nothing to close
	case strings.EqualFold(filepath.Ext(path), ".zst"):
		z, err := zstd.NewReader(s.Reader, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read zstd header of %s: %w", path, err), s.Close())
		}
		s.Reader = cutShort{z}
		s.closers = append([]func() error{func() error { z.Close(); return nil }}, s.closers...)
	}
	return s, nil
}

func openFile(ctx context.Context, path string) (f *os.File, regular bool, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	if st.Mode().IsRegular() {
		f, err = os.Open(path)
		return f, true, err
	}
	f, err = openPatiently(ctx, path)
	return f, false, err
}

// cutShort names what the readers of compressed files say when there is less than there should be.
type cutShort struct{ r io.Reader }

func (c cutShort) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the compressed data ends too early: %w", err)
	}
	return n, err
}

// skip passes over the first n bytes; nothing may have been read yet.
func (s *stream) skip(n int64) error {
	if n == 0 {
		return nil
	}
	if s.seek != nil {
		if _, err := s.seek.Seek(n, io.SeekStart); err != nil {
			return err
		}
		if s.read != nil {
			s.read.Add(n)
		}
		return nil
	}
	got, err := io.CopyN(io.Discard, s.Reader, n)
	if err == io.EOF {
		return fmt.Errorf("input ends after %d bytes, the state says that %d were read", got, n)
	}
	return err
}

// passMark passes over a byte order mark at the front and returns its length. Nothing may have been read yet, and nothing can be skipped afterwards.
func (s *stream) passMark() (int64, error) {
	br := bufio.NewReader(s.Reader)
	s.Reader = br
	front, err := br.Peek(len(utf8BOM))
	if err != nil && err != io.EOF {
		return 0, err
	}
	if !bytes.Equal(front, utf8BOM) {
		return 0, nil
	}
	n, err := br.Discard(len(utf8BOM))
	return int64(n), err
}

type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// isText tells whether a file of a folder is a document.
func isText(d fs.DirEntry) (Format, bool) {
	if !d.Type().IsRegular() {
		return "", false
	}
	f, ok := byExtension[strings.ToLower(filepath.Ext(plainName(d.Name())))]
	return f, ok && (f == Text || f == Markdown)
}
