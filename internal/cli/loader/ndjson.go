package loader

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

var utf8BOM = []byte("\xef\xbb\xbf")

// ndjson reads one JSON object for each line. Lines that are blank are passed over. What stands in a line is checked by the
// server; only the id is looked at here.
type ndjson struct {
	src     *stream
	br      *bufio.Reader
	idField string
	pos     position
	line    []byte
	doc     []byte
}

func newNDJSON(src *stream, o readerOptions) (reader, error) {
	n := &ndjson{src: src, idField: o.idField, pos: o.from}
	if err := src.skip(o.from.Offset); err != nil {
		return nil, fmt.Errorf("go to the place where the last load ended: %w", err)
	}
	n.br = bufio.NewReaderSize(src, 64<<10)
	return n, nil
}

func (n *ndjson) close() error { return n.src.Close() }

// readLine reads the next line without its end into n.line; long is true if it was longer than MaxRecord and was dropped.
func (n *ndjson) readLine() (long bool, err error) {
	n.line = n.line[:0]
	for {
		part, err := n.br.ReadSlice('\n')
		n.pos.Offset += int64(len(part))
		if len(n.line)+len(part) > MaxRecord {
			long = true
			n.line = n.line[:0]
		}
		if !long {
			n.line = append(n.line, part...)
		}
		switch {
		case err == nil || (err == io.EOF && (len(n.line) > 0 || long)):
			n.pos.Line++
			n.line = bytes.TrimRight(n.line, "\r\n")
			return long, nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return false, err
		}
	}
}

func (n *ndjson) next(r *record) error {
	for {
		long, err := n.readLine()
		if err != nil {
			return err
		}
		*r = record{line: n.pos.Line, position: n.pos}
		if long {
			r.code, r.reason = "document_too_large", fmt.Sprintf("the line is longer than %d bytes", MaxRecord)
			return nil
		}
		line := n.line
		if n.pos.Line == 1 {
			line = bytes.TrimPrefix(line, utf8BOM)
			if t := bytes.TrimLeft(line, " \t"); len(t) > 0 && t[0] == '[' {
				return errors.New("line 1: the file is a JSON array, not one object for each line; `jq -c '.[]'` turns one into the other")
			}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		n.document(r, line)
		return nil
	}
}

// document makes the record of one line, with the member that holds the id renamed if asked for.
func (n *ndjson) document(r *record, line []byte) {
	r.doc = line
	if n.idField == "" || n.idField == "id" {
		if m, ok := findMember(line, "id"); ok {
			r.id = unquote(line[m.value:m.end])
		}
		return
	}
	m, ok := findMember(line, n.idField)
	if !ok {
		r.doc, r.code, r.reason = nil, "missing_id", fmt.Sprintf("the document has no member %q", n.idField)
		return
	}
	if _, both := findMember(line, "id"); both {
		r.doc, r.code, r.reason = nil, "id_conflict", fmt.Sprintf("the document has a member %q besides %q, which was to become the id", "id", n.idField)
		return
	}
	value := line[m.value:m.end]
	n.doc = append(n.doc[:0], line[:m.name]...)
	n.doc = append(n.doc, `"id":`...)
	if isNumber(value) {
		// Keys are text: the number is taken as it is written.
		n.doc = append(n.doc, '"')
		n.doc = append(n.doc, value...)
		n.doc = append(n.doc, '"')
		r.id = string(value)
	} else {
		n.doc = append(n.doc, value...)
		r.id = unquote(value)
	}
	r.doc = append(n.doc, line[m.end:]...)
	n.doc = r.doc
}

func isNumber(v []byte) bool {
	return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') && jsontext.Value(v).IsValid()
}

// unquote is the text of a JSON string, or empty if v is none.
func unquote(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	if bytes.IndexByte(v, '\\') < 0 {
		if !utf8.Valid(v) {
			return ""
		}
		return string(v[1 : len(v)-1])
	}
	out, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return ""
	}
	return string(out)
}

// member is where a member of an object stands: line[name:value] holds the name and the colon, line[value:end] the value.
type member struct{ name, value, end int }

// findMember finds the first member of that name at the top level of an object. It checks no more of the JSON than it needs to
// find its way, so it may find one in text that is not JSON; the server refuses that text whole.
func findMember(line []byte, name string) (member, bool) {
	i := skipSpace(line, 0)
	if i >= len(line) || line[i] != '{' {
		return member{}, false
	}
	i = skipSpace(line, i+1)
	for i < len(line) && line[i] == '"' {
		m := member{name: i}
		i = skipString(line, i)
		found := unquote(line[m.name:i]) == name
		i = skipSpace(line, i)
		if i >= len(line) || line[i] != ':' {
			return member{}, false
		}
		m.value = skipSpace(line, i+1)
		m.end = skipValue(line, m.value)
		if m.end <= m.value {
			return member{}, false
		}
		if found {
			return m, true
		}
		i = skipSpace(line, m.end)
		if i >= len(line) || line[i] != ',' {
			return member{}, false
		}
		i = skipSpace(line, i+1)
	}
	return member{}, false
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipString returns the place behind the string that begins at i, or len(b) if it does not end.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// skipValue returns the place behind the value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}
