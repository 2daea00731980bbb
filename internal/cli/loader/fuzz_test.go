package loader

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// opener opens a reader over a text, from a place in it.
type opener func(from position) (reader, error)

func streamOf(text []byte) *stream { return &stream{Reader: bytes.NewReader(text)} }

// readRecords reads to the end. What a record holds is copied, with the place of its text for the document.
func readRecords(t *testing.T, open opener, from position) (out []record, err error) {
	t.Helper()
	r, err := open(from)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := r.close(); cerr != nil {
			t.Fatal(cerr)
		}
	}()
	last := from
	for {
		var rec record
		switch err := r.next(&rec); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return out, err
		}
		rec.doc = bytes.Clone(rec.doc)
		if (rec.doc == nil) != (rec.code != "") || (rec.code == "") != (rec.reason == "") {
			t.Fatalf("a record is a document or says why not: %+v", rec)
		}
		if rec.position.Offset <= last.Offset || rec.position.Line <= last.Line || rec.line <= last.Line || rec.line > rec.position.Line {
			t.Fatalf("record %+v behind %+v", rec, last)
		}
		last = rec.position
		out = append(out, rec)
	}
}

// checkResume goes on behind every record, which has to give the ones that followed it.
func checkResume(t *testing.T, open opener, all []record, allErr error) {
	t.Helper()
	for i := range all[:min(len(all), 8)] {
		rest, err := readRecords(t, open, all[i].position)
		if fmt.Sprint(err) != fmt.Sprint(allErr) {
			t.Fatalf("behind record %d: %v, at first %v", i, err, allErr)
		}
		if d := cmp.Diff(all[i+1:], rest, cmp.AllowUnexported(record{}), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("behind record %d: %s", i, d)
		}
	}
}

func FuzzNDJSON(f *testing.F) {
	for _, s := range []string{
		"", "\n\n", "\ufeff{\"id\":\"a\"}\r\n{\"id\":\"b\"}", "{\"_id\":1}\n{\"_id\":\"x\",\"id\":2}\n{", "[1]\n", "{\"id\":\"\x00\xff\"}\n\x00\n", "  \t\n{}\n\n\n{\"_id\":[{}]}\n",
		"{\"_id\" : -1e5 , \"a\":\"}\"}\n", "\r\r\n{\"\\u005fid\":\"\\u0061\"}\r",
	} {
		f.Add([]byte(s), "_id")
		f.Add([]byte(s), "")
	}
	f.Fuzz(func(t *testing.T, text []byte, idField string) {
		open := func(from position) (reader, error) {
			return newNDJSON(streamOf(text), readerOptions{idField: idField, from: from})
		}
		all, err := readRecords(t, open, position{})
		if err != nil && !strings.Contains(err.Error(), "JSON array") {
			t.Fatal(err)
		}
		lines := bytes.Split(text, []byte("\n"))
		for _, r := range all {
			if bytes.ContainsAny(r.doc, "\n") {
				t.Fatalf("%q is more than a line", r.doc)
			}
			line := lines[r.line-1]
			if jsontext.Value(line).IsValid() && r.doc != nil && !jsontext.Value(r.doc).IsValid() {
				t.Fatalf("%q became %q", line, r.doc)
			}
			if r.doc != nil && idField != "" && idField != "id" && jsontext.Value(line).IsValid() {
				var doc map[string]jsontext.Value
				if err := json.Unmarshal(r.doc, &doc); err != nil || doc["id"] == nil || doc[idField] != nil {
					t.Fatalf("%q became %q", line, r.doc)
				}
			}
		}
		checkResume(t, open, all, err)
	})
}

func FuzzCSV(f *testing.F) {
	for _, s := range []string{
		"", "id", "id,a\n1,2\n", "\ufeffid,a\r\n\"1\",\"x\ny\"\r\n\r\n2\n\"3\",\"", "id,a\n1,\"b\"c\n2,d\n", "id,n\n\x00,7\n\xff,8\n,\n", "id\n\"\"\"\"\n\n \n", "id,a\n1,\"x\r\ny\"\n2,\"\n\n\"\n3,z",
		"a\tid\n1\t2\n", "\ufeff\"id\",\"a\"\r\n\"1\",\"\ufeff\"\r\n2,3\r\n", "id,a\n\"1\"\"\",2\n1,\"2\"\"\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, tabs bool) {
		comma := ','
		if tabs {
			comma = '\t'
		}
		open := func(from position) (reader, error) {
			c, err := newCSV(streamOf(text), comma, readerOptions{from: from}, func() (*stream, error) { return streamOf(text), nil })
			if err != nil {
				return nil, err
			}
			return c, nil
		}
		all, err := readRecords(t, open, position{})
		for _, r := range all {
			if r.doc == nil {
				continue
			}
			var doc map[string]string
			if err := json.Unmarshal(r.doc, &doc); err != nil || doc["id"] != r.id {
				t.Fatalf("%q, id %q: %v", r.doc, r.id, err)
			}
		}
		if all != nil {
			checkResume(t, open, all, err)
		}
	})
}

func FuzzMarkdown(f *testing.F) {
	for _, s := range []string{
		"", "# Title", "---\ntitle: 'x'\n---\nbody", "---\n---", "---\ntitle: x", "a\n===\n", "```\n# no\n```\n# yes #", "\x00\n--\n", "#\n##\n####### x\n", "\r\n# a\r\n", "title\n\n---\n", "---\r\ntitle:\r\n---\r\n", "---\ntitle: ' '\n---\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []Format{Markdown, Text} {
			title, body := splitTitle(text, format)
			if !strings.HasSuffix(text, body) || (format == Text && body != text) {
				t.Fatalf("%s: the body %q is not of the text", format, body)
			}
			if !strings.Contains(text, title) || strings.ContainsAny(title, "\n") || strings.TrimSpace(title) != title {
				t.Fatalf("%s: title %q", format, title)
			}
			if utf8.ValidString(text) && !utf8.ValidString(title) {
				t.Fatalf("%s: title %q is not UTF-8", format, title)
			}
		}
		var r record
		var buf []byte
		textDocument(&r, &buf, []byte(text), "x.md", Markdown)
		if (r.doc == nil) == utf8.ValidString(text) || (r.doc == nil) != (r.code == "invalid_utf8") {
			t.Fatalf("%+v", r)
		}
		if r.doc == nil {
			return
		}
		var doc struct{ ID, Title, Body string }
		if err := json.Unmarshal(r.doc, &doc, json.MatchCaseInsensitiveNames(true)); err != nil || !strings.HasSuffix(text, doc.Body) || doc.Title == "" {
			t.Fatalf("%q: %+v, %v", r.doc, doc, err)
		}
	})
}
