// Package workload makes the documents and queries of the engine comparison, and answers the queries by brute force.
package workload

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/weft-search/weft/bench/internal/peer"
)

// Plain puts spaces for the characters on which the engines' notions of a letter differ: everything beyond ASCII that is
// neither letter nor decimal digit, after NFC. A capital I with a dot becomes I, because its lower case differs.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < 0x80:
			return r
		case r == '\u0130':
			return 'I'
		case unicode.IsLetter(r) || unicode.Is(unicode.Nd, r):
			return r
		}
		return ' '
	}, norm.NFC.String(text))
}

// Packages reads the debian-packages data set: title and long description of each package.
func Packages(dir string) ([]peer.Doc, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl.gz"))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("reading packages: no *.jsonl.gz in %s: %w", dir, fs.ErrNotExist)
	}
	slices.Sort(files)
	var docs []peer.Doc
	for _, f := range files {
		if docs, err = appendPackages(docs, f); err != nil {
			return nil, fmt.Errorf("reading %s: %w", f, err)
		}
	}
	return docs, nil
}

func appendPackages(docs []peer.Doc, file string) (_ []peer.Doc, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var d struct {
			ID    string `json:"_id"`
			Title string `json:"title"`
			Text  string `json:"text"`
		}
		if err := json.Unmarshal(sc.Bytes(), &d); err != nil {
			return nil, err
		}
		docs = append(docs, peer.Doc{ID: d.ID, Body: Plain(d.Title + "\n" + d.Text)})
	}
	return docs, sc.Err()
}

// GoDocs reads the comments of the Go standard library in goroot: a document for each commented declaration. It is what
// there is to compare on where no data set is.
func GoDocs(goroot string) ([]peer.Doc, error) {
	root := filepath.Join(goroot, "src")
	var docs []peer.Doc
	seen := map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		add := func(name, doc string) {
			if doc == "" {
				return
			}
			id := filepath.ToSlash(rel) + "." + name
			// files for other systems declare the same names
			if seen[id]++; seen[id] > 1 {
				id = fmt.Sprintf("%s#%d", id, seen[id])
			}
			docs = append(docs, peer.Doc{ID: id, Body: Plain(name + "\n" + doc)})
		}
		add("package", file.Doc.Text())
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				add(decl.Name.Name, decl.Doc.Text())
			case *ast.GenDecl:
				add(decl.Tok.String(), decl.Doc.Text())
				for _, s := range decl.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						add(s.Name.Name, s.Doc.Text()+s.Comment.Text())
					case *ast.ValueSpec:
						add(s.Names[0].Name, s.Doc.Text()+s.Comment.Text())
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading comments of the standard library: %w", err)
	}
	return docs, nil
}

// Game reads the query lines of the search benchmark game. Lines of a shape that the comparison does not have are left out.
func Game(file string) ([]peer.Query, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("opening the game's queries: %w", err)
	}
	dec := json.NewDecoder(f)
	var out []peer.Query
	for dec.More() {
		var line struct {
			Query string   `json:"query"`
			Tags  []string `json:"tags"`
		}
		if err := dec.Decode(&line); err != nil {
			return nil, errors.Join(fmt.Errorf("reading the game's queries: %w", err), f.Close())
		}
		if q, ok := gameQuery(line.Query, line.Tags); ok {
			out = append(out, q)
		}
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("closing the game's queries: %w", err)
	}
	return out, nil
}

func gameQuery(text string, tags []string) (peer.Query, bool) {
	if len(tags) == 0 {
		return peer.Query{}, false
	}
	words := Tokens(Plain(text))
	unique := func(ws []string) (out []string) {
		for _, w := range ws {
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
		return out
	}
	q := peer.Query{Words: words}
	switch tags[0] {
	case "term":
		q.Class, q.Op = "game-term", "term"
	case "phrase":
		q.Class, q.Op = "game-phrase", "phrase"
	case "union":
		q.Class, q.Op, q.Words = "game-or", "or", unique(words)
	case "intersection":
		q.Class, q.Op, q.Words = "game-and", "and", unique(words)
	case "negated", "intersection_union":
		q.Class, q.Op, q.Words = "game-must-may", "bool", nil
		if tags[0] == "negated" {
			q.Class = "game-not"
		}
		for _, part := range strings.Fields(text) {
			w := Tokens(Plain(part))
			if len(w) != 1 {
				return peer.Query{}, false
			}
			if part[0] == '+' || part[0] == '-' {
				w[0] = part[:1] + w[0]
			}
			q.Words = append(q.Words, w[0])
		}
	default:
		return peer.Query{}, false
	}
	switch {
	case len(q.Words) == 0:
		return q, false
	case len(q.Words) == 1 && q.Op != "bool":
		q.Op = "term"
	case q.Op == "term":
		return q, false // a term of several words is none
	}
	return q, true
}
