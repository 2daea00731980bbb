package loader

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Type is how the cells of a CSV column are written into a document.
type Type string

// The column types. AsText is the one of a column that nothing is said about: numbers are never guessed, since one cell that
// looks like one would fix the type of the field for all that follow.
const (
	AsText    Type = "text"
	AsInteger Type = "integer"
	AsNumber  Type = "number"
	AsBoolean Type = "boolean"
	AsDate    Type = "date" // RFC 3339; the index infers the type from the form
	Skipped   Type = "skip" // the column is left out
)

// ParseType reads a column type.
func ParseType(s string) (Type, error) {
	switch t := Type(s); t {
	case AsText, AsInteger, AsNumber, AsBoolean, AsDate, Skipped:
		return t, nil
	}
	return "", fmt.Errorf("column type %q is not one of text, integer, number, boolean, date, skip", s)
}

// Columns reads the header lines of the tables among the inputs and returns the columns that all of them have. A stream is left
// alone, and counts as having none.
func Columns(inputs []Input) (map[string]bool, error) {
	seen, tables := map[string]int{}, 0
	for _, in := range inputs {
		if in.Format != CSV && in.Format != TSV {
			continue
		}
		tables++
		if in.Stream {
			continue
		}
		head, err := in.columns()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in.Path, err)
		}
		for _, name := range head {
			seen[name]++
		}
	}
	out := map[string]bool{}
	for name, n := range seen {
		if n == tables {
			out[name] = true
		}
	}
	return out, nil
}

func (in Input) columns() (head []string, err error) {
	src, err := openStream(in.Path, readerOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	c := &csvReader{src: src}
	if _, err := src.passMark(); err != nil {
		return nil, fmt.Errorf("read header line: %w", err)
	}
	c.newReader(in.comma())
	if head, err = c.cr.Read(); err == io.EOF {
		return nil, nil // told when the table is read
	}
	if err != nil {
		return nil, fmt.Errorf("read header line: %w", c.explain(err))
	}
	return slices.Clone(head), nil
}

// comma is what stands between the cells.
func (in Input) comma() rune {
	if in.Format == TSV {
		return '\t'
	}
	return ','
}

// csvReader reads a table with a header line. An empty cell is a value that is absent.
type csvReader struct {
	src     *stream
	limit   *recordLimit
	cr      *csv.Reader
	names   [][]byte // member names as JSON strings
	columns []string
	types   []Type
	id      int
	pos     position
	base    position // what comes before the first byte that cr reads
	doc     []byte
}

// errRecordTooLong ends a table whose record does not end.
var errRecordTooLong = errors.New("record is too long")

// recordLimit fails when more is read for one record than a record may have: a quote that is never closed would otherwise pull the
// whole file into memory.
type recordLimit struct {
	r    io.Reader
	left int
}

func (l *recordLimit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errRecordTooLong
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// newCSV reads the table in src. To go on in the middle it opens the file once more, since the header line stands at the front.
func newCSV(src *stream, comma rune, o readerOptions, reopen func() (*stream, error)) (*csvReader, error) {
	c := &csvReader{src: src}
	mark, err := src.passMark()
	if err != nil {
		return nil, fmt.Errorf("read header line: %w", err)
	}
	c.base.Offset = mark
	c.newReader(comma)
	head, err := c.cr.Read()
	if err == io.EOF {
		return nil, errors.New("the file has no header line")
	}
	if err != nil {
		return nil, fmt.Errorf("read header line: %w", c.explain(err))
	}
	line := c.endLine(head)
	if err := c.header(head, o); err != nil {
		return nil, err
	}
	if o.from.Offset == 0 {
		c.advance(line)
		return c, nil
	}
	if err := src.Close(); err != nil {
		return nil, fmt.Errorf("close after the header line: %w", err)
	}
	if c.src, err = reopen(); err != nil {
		return nil, err
	}
	if err := c.src.skip(o.from.Offset); err != nil {
		return nil, errors.Join(fmt.Errorf("go to the place where the last load ended: %w", err), c.src.Close())
	}
	c.base, c.pos = o.from, o.from
	c.newReader(comma)
	return c, nil
}

func (c *csvReader) newReader(comma rune) {
	c.limit = &recordLimit{r: c.src, left: MaxRecord}
	c.cr = csv.NewReader(c.limit)
	c.cr.Comma = comma
	c.cr.ReuseRecord = true
	c.cr.FieldsPerRecord = -1
}

func (c *csvReader) header(head []string, o readerOptions) error {
	idName := o.idField
	if idName == "" {
		idName = "id"
	}
	c.id = -1
	for i, name := range head {
		switch {
		case name == "":
			return fmt.Errorf("header line: column %d has no name", i+1)
		case !utf8.ValidString(name):
			return fmt.Errorf("header line: the name of column %d is not UTF-8", i+1)
		case strings.Contains(name, "\r"):
			return fmt.Errorf("header line: the name of column %d holds a carriage return; lines have to end in LF or CR LF", i+1)
		case slices.Contains(head[:i], name):
			return fmt.Errorf("header line: two columns are named %q", name)
		}
		t := o.types[name]
		if t == "" {
			t = AsText
		}
		if name == idName {
			c.id, t, name = i, AsText, "id"
		} else if name == "id" {
			return fmt.Errorf("header line: there is a column %q besides %q, which was to become the id", "id", idName)
		}
		quoted, err := jsontext.AppendQuote(nil, name)
		if err != nil {
			return fmt.Errorf("header line: column %d: %w", i+1, err)
		}
		c.names = append(c.names, quoted)
		c.columns = append(c.columns, name)
		c.types = append(c.types, t)
	}
	if c.id < 0 {
		return fmt.Errorf("header line: no column %q; name the one that holds the id with --id-field (there are: %s)", idName, strings.Join(head, ", "))
	}
	for name := range o.types {
		if !slices.Contains(head, name) {
			return fmt.Errorf("header line: no column %q, whose type was given (there are: %s)", name, strings.Join(head, ", "))
		}
	}
	return nil
}

// explain says where a record is that does not end, and leaves other errors alone.
func (c *csvReader) explain(err error) error {
	if errors.Is(err, errRecordTooLong) {
		return fmt.Errorf("line %d: %w: over %d bytes; is a quote not closed?", c.pos.Line+1, errRecordTooLong, MaxRecord)
	}
	return err
}

func (c *csvReader) close() error { return c.src.Close() }

func (c *csvReader) next(r *record) error {
	c.limit.left = MaxRecord
	cells, err := c.cr.Read()
	var bad *csv.ParseError
	switch {
	case errors.As(err, &bad):
		// The reader has passed the line and goes on behind it.
		*r = record{
			line: c.base.Line + int64(bad.StartLine), code: "bad_csv",
			reason: fmt.Sprintf("line %d, column %d: %v", c.base.Line+int64(bad.Line), bad.Column, bad.Err),
		}
		c.advance(int64(bad.Line))
	case err != nil:
		return c.explain(err)
	default:
		line, _ := c.cr.FieldPos(0)
		*r = record{line: c.base.Line + int64(line)}
		c.advance(c.endLine(cells))
		c.document(r, cells)
	}
	r.position = c.pos
	return nil
}

// endLine is the line of the current reader in which the record just read ends.
func (c *csvReader) endLine(cells []string) int64 {
	last := len(cells) - 1
	line, _ := c.cr.FieldPos(last)
	return int64(line) + int64(strings.Count(cells[last], "\n"))
}

// advance sets the place behind the record that ends in the given line of the current reader.
func (c *csvReader) advance(line int64) {
	c.pos = position{Offset: c.base.Offset + c.cr.InputOffset(), Line: c.base.Line + line}
}

func (c *csvReader) document(r *record, cells []string) {
	if c.id < len(cells) {
		r.id = cells[c.id]
	}
	if len(cells) != len(c.names) {
		r.code, r.reason = "bad_csv", fmt.Sprintf("the record has %s, the header line has %d", cellCount(len(cells)), len(c.names))
		return
	}
	b := append(c.doc[:0], '{')
	for i, cell := range cells {
		if c.types[i] == Skipped || (cell == "" && i != c.id) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, c.names[i]...)
		b = append(b, ':')
		var err error
		if b, err = appendCell(b, cell, c.types[i]); err != nil {
			r.code, r.reason = "bad_value", fmt.Sprintf("column %q: %v", c.columns[i], err)
			return
		}
	}
	c.doc = append(b, '}')
	r.doc = c.doc
}

func cellCount(n int) string {
	if n == 1 {
		return "1 cell"
	}
	return fmt.Sprintf("%d cells", n)
}

// appendCell writes a cell as a JSON value of the type.
func appendCell(b []byte, cell string, t Type) ([]byte, error) {
	trimmed := strings.TrimSpace(cell)
	switch t {
	case AsInteger:
		if v, err := strconv.ParseInt(trimmed, 10, 64); err == nil {
			return strconv.AppendInt(b, v, 10), nil
		}
		v, err := strconv.ParseUint(trimmed, 10, 64)
		if err != nil {
			return b, fmt.Errorf("%q is not a 64-bit integer", clip(cell))
		}
		return strconv.AppendUint(b, v, 10), nil
	case AsNumber:
		v, err := strconv.ParseFloat(trimmed, 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return b, fmt.Errorf("%q is not a finite number", clip(cell))
		}
		return strconv.AppendFloat(b, v, 'g', -1, 64), nil
	case AsBoolean:
		switch strings.ToLower(trimmed) {
		case "true", "t", "yes", "y", "1":
			return append(b, "true"...), nil
		case "false", "f", "no", "n", "0":
			return append(b, "false"...), nil
		}
		return b, fmt.Errorf("%q is not true or false", clip(cell))
	case AsDate:
		v, err := time.Parse(time.RFC3339, trimmed)
		if err != nil {
			if v, err = time.Parse(time.DateOnly, trimmed); err != nil {
				return b, fmt.Errorf("%q is not a date (RFC 3339 or YYYY-MM-DD)", clip(cell))
			}
		}
		return append(v.UTC().AppendFormat(append(b, '"'), time.RFC3339Nano), '"'), nil
	}
	out, err := jsontext.AppendQuote(b, cell)
	if err != nil {
		return b, errors.New("the text is not UTF-8")
	}
	return out, nil
}

// clip shortens a value for an error.
func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:most]), nil)) + "…"
}
