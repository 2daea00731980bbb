package peer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Doc is one document.
type Doc struct {
	ID   string `json:"id"`
	Body string `json:"body"`
}

// Query is one query. Words of a bool query carry + (has to match), - (must not match) or nothing.
type Query struct {
	ID    string
	Class string
	Op    string // term, and, or, phrase, prefix or bool
	Words []string
	Count uint64 // exact number of matches, as the maker of the queries counted
}

// String gives the query for people.
func (q Query) String() string { return q.Op + " " + strings.Join(q.Words, " ") }

// Clauses splits the words of a term, and, or or bool query by what they demand.
func (q Query) Clauses() (must, should, not []string) {
	for _, w := range q.Words {
		switch {
		case q.Op == "bool" && w[0] == '+':
			must = append(must, w[1:])
		case q.Op == "bool" && w[0] == '-':
			not = append(not, w[1:])
		case q.Op == "and":
			must = append(must, w)
		default:
			should = append(should, w)
		}
	}
	return must, should, not
}

const maxLine = 1 << 24

// ReadDocs reads documents, one JSON object a line.
func ReadDocs(path string) ([]Doc, error) {
	var docs []Doc
	err := eachLine(path, func(line []byte) error {
		var d Doc
		if err := json.Unmarshal(line, &d); err != nil {
			return err
		}
		docs = append(docs, d)
		return nil
	})
	return docs, err
}

// ReadQueries reads queries, a line each: number, class, op, words with spaces between, count; tabs between.
func ReadQueries(path string) ([]Query, error) {
	var out []Query
	err := eachLine(path, func(line []byte) error {
		f := strings.Split(string(line), "\t")
		if len(f) != 5 {
			return fmt.Errorf("%d parts where 5 belong", len(f))
		}
		n, err := strconv.ParseUint(f[4], 10, 64)
		if err != nil {
			return fmt.Errorf("reading the count: %w", err)
		}
		q := Query{ID: f[0], Class: f[1], Op: f[2], Words: strings.Fields(f[3]), Count: n}
		if len(q.Words) == 0 {
			return errors.New("no words")
		}
		switch q.Op {
		case "term", "prefix":
			if len(q.Words) != 1 {
				return fmt.Errorf("%d words for %s", len(q.Words), q.Op)
			}
		case "and", "or", "phrase":
		case "bool":
			for _, w := range q.Words {
				if w == "+" || w == "-" {
					return errors.New("a sign without a word")
				}
			}
		default:
			return fmt.Errorf("unknown op %q", q.Op)
		}
		out = append(out, q)
		return nil
	})
	return out, err
}

func eachLine(path string, fn func(line []byte) error) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening input: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxLine)
	n := 0
	for sc.Scan() {
		n++
		if err := fn(sc.Bytes()); err != nil {
			return fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("%s: after line %d: %w", path, n, err)
	}
	return nil
}

// WriteDocs writes what ReadDocs reads.
func WriteDocs(path string, docs []Doc) error {
	return writeLines(path, func(w *bufio.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for i := range docs {
			if err := enc.Encode(&docs[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteQueries writes what ReadQueries reads.
func WriteQueries(path string, queries []Query) error {
	return writeLines(path, func(w *bufio.Writer) error {
		for _, q := range queries {
			if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n", q.ID, q.Class, q.Op, strings.Join(q.Words, " "), q.Count); err != nil {
				return err
			}
		}
		return nil
	})
}

func writeLines(path string, fill func(w *bufio.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating output: %w", err)
	}
	w := bufio.NewWriter(f)
	if err := errors.Join(fill(w), w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
