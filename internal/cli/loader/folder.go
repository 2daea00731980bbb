package loader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// folder reads the text and Markdown files below a folder in the order of their paths, one document each: id is the path
// relative to the folder with slashes, title the first heading, body the text. Hidden folders and links are passed over.
type folder struct {
	root  string
	o     readerOptions
	pull  func() (found, error, bool)
	stop  func()
	files int64
	doc   []byte
	after string
}

type found struct {
	rel    string
	format Format
}

func openFolder(root string, o readerOptions) (reader, error) {
	root, err := filepath.EvalSymlinks(root) // links below it are passed over, the folder itself was named
	if err != nil {
		return nil, fmt.Errorf("open input: %w", err)
	}
	f := &folder{root: root, o: o, after: o.from.After, files: o.from.Line}
	f.pull, f.stop = iter.Pull2(f.walk)
	return f, nil
}

// walk yields every text file below the root.
func (f *folder) walk(yield func(found, error) bool) {
	stopped := errors.New("the reader is closed")
	err := filepath.WalkDir(f.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read folder: %w", err)
		}
		if d.IsDir() {
			if path != f.root && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		format, ok := isText(d)
		if !ok {
			return nil
		}
		rel, err := filepath.Rel(f.root, path)
		if err != nil {
			return fmt.Errorf("name of %s in the folder: %w", path, err)
		}
		rel = filepath.ToSlash(rel)
		done, err := f.isDone(rel, d)
		if err != nil {
			return err
		}
		if !done && !yield(found{rel, format}, nil) {
			return stopped
		}
		return nil
	})
	if err != nil && !errors.Is(err, stopped) {
		yield(found{}, err)
	}
}

// timeSlack is how far behind the clock the time of a change may be, on the coarsest of file systems in use.
const timeSlack = 2 * time.Second

// isDone tells whether an earlier load has taken the file as it is now.
func (f *folder) isDone(rel string, d fs.DirEntry) (bool, error) {
	if f.o.from.After == "" || comparePaths(rel, f.o.from.After) > 0 {
		return false, nil
	}
	st, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", rel, err)
	}
	return st.ModTime().Before(f.o.since.Add(-timeSlack)), nil
}

// comparePaths orders paths as a walk of the folder meets them: name by name.
func comparePaths(a, b string) int {
	for {
		x, restA, moreA := strings.Cut(a, "/")
		y, restB, moreB := strings.Cut(b, "/")
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
		if !moreA || !moreB {
			return len(restA) - len(restB)
		}
		a, b = restA, restB
	}
}

func (f *folder) next(r *record) error {
	file, err, ok := f.pull()
	if !ok {
		return io.EOF
	}
	if err != nil {
		return err
	}
	f.files++
	if f.after == "" || comparePaths(file.rel, f.after) > 0 {
		f.after = file.rel
	}
	*r = record{id: file.rel, line: 1, position: position{Line: f.files, After: f.after}}
	return readTextFile(r, &f.doc, filepath.Join(f.root, filepath.FromSlash(file.rel)), file.format, f.o)
}

func (f *folder) close() error {
	f.stop()
	return nil
}

// single reads one text file as one document.
type single struct {
	in   Input
	o    readerOptions
	done bool
	doc  []byte
}

func openSingle(in Input, o readerOptions) (reader, error) {
	return &single{in: in, o: o, done: o.from.Offset > 0}, nil
}

func (s *single) next(r *record) error {
	if s.done {
		return io.EOF
	}
	s.done = true
	*r = record{id: filepath.Base(s.in.Path), line: 1, position: position{Offset: 1, Line: 1}}
	if s.in.Path == Stdin {
		r.id = "stdin"
	}
	return readTextFile(r, &s.doc, s.in.Path, s.in.Format, s.o)
}

func (s *single) close() error { return nil }

// readTextFile makes r the document of a text file, in *buf.
func readTextFile(r *record, buf *[]byte, path string, format Format, o readerOptions) error {
	src, err := openStream(path, o)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(src, MaxRecord+1))
	if cerr := src.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	textDocument(r, buf, text, path, format)
	return nil
}

// textDocument makes r the document of a text, in *buf, or says why it is none.
func textDocument(r *record, buf *[]byte, text []byte, path string, format Format) {
	if len(text) > MaxRecord {
		r.code, r.reason = "document_too_large", fmt.Sprintf("the file is longer than %d bytes", MaxRecord)
		return
	}
	text = bytes.TrimPrefix(text, utf8BOM)
	if !utf8.Valid(text) {
		r.code, r.reason = "invalid_utf8", fmt.Sprintf("the text is not UTF-8 at byte %d", invalidAt(text))
		return
	}
	title, body := splitTitle(string(text), format)
	if title == "" {
		name := filepath.Base(plainName(path))
		title = strings.TrimSuffix(name, filepath.Ext(name))
	}
	b := append((*buf)[:0], '{')
	for i, m := range []struct{ name, value string }{{"id", r.id}, {"title", title}, {"body", body}} {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), m.name...), '"', ':')
		var err error
		if b, err = jsontext.AppendQuote(b, m.value); err != nil {
			r.code, r.reason = "invalid_utf8", fmt.Sprintf("the %s is not UTF-8", m.name)
			return
		}
	}
	*buf = append(b, '}')
	r.doc = *buf
}

func invalidAt(b []byte) int {
	at := 0
	for {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// splitTitle finds the title of a text: of Markdown the first heading (or the title of the front matter), of plain text a short
// first line. The body is the text without front matter.
func splitTitle(text string, format Format) (title, body string) {
	if format == Markdown {
		title, body = frontMatter(text)
		if title == "" {
			title = heading(body)
		}
		return title, body
	}
	const longest = 120
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(line) <= longest {
			title = line
		}
		break
	}
	return title, text
}

// frontMatter takes a block between two lines of --- off the front of a Markdown text and returns the title it gives, if any.
func frontMatter(text string) (title, body string) {
	at, first := 0, true
	for whole := range strings.Lines(text) {
		at += len(whole)
		line := strings.TrimSpace(whole)
		switch {
		case first && line != "---":
			return "", text
		case first:
			first = false
		case line == "---":
			return title, text[at:]
		default:
			// One that is indented is of something else, as of the author.
			if value, ok := strings.CutPrefix(whole, "title:"); ok {
				title = unquoted(strings.TrimSpace(value))
			}
		}
	}
	return "", text // the block does not end: it is text
}

// unquoted takes the pair of quotes off that a value of front matter may stand in. Quotes of which there is no pair are of the value.
func unquoted(value string) string {
	if n := len(value); n >= 2 && value[0] == value[n-1] && (value[0] == '"' || value[0] == '\'') {
		return strings.TrimSpace(value[1 : n-1])
	}
	return value
}

// heading returns the text of the first heading: # Title, or a line that is underlined with = or -.
func heading(text string) string {
	previous, fenced := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if strings.HasPrefix(line, "```") || strings.HasPrefix(line, "~~~") {
			fenced, previous = !fenced, ""
			continue
		}
		if fenced {
			continue
		}
		if level := len(line) - len(strings.TrimLeft(line, "#")); level >= 1 && level <= 6 && strings.HasPrefix(line[level:], " ") {
			title := strings.TrimSpace(line[level:])
			// Number signs close a heading only where they stand apart from its last word: "# C#" is about C#.
			if open := strings.TrimRight(title, "#"); open == "" || strings.HasSuffix(open, " ") || strings.HasSuffix(open, "\t") {
				title = strings.TrimSpace(open)
			}
			return title
		}
		if previous != "" && len(line) >= 2 && (strings.Trim(line, "=") == "" || strings.Trim(line, "-") == "") {
			return previous
		}
		previous = strings.TrimSpace(line)
	}
	return ""
}
