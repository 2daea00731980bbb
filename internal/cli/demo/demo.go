// Package demo makes a collection out of Go source: every package, function, type, method, field, constant and variable that is
// exported becomes one document with its comment.
//
// Functions are safe for concurrent use; what they yield belongs to the caller.
package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Schema is the schema of the documents, in SDL, for an index of that name. A search without a field looks in name, words and doc.
func Schema(index string) string { return "index " + index + schemaBody }

const schemaBody = ` {
    default_fields: [name, words, doc]
    field id: text<raw> [indexed, stored, fast, primary]
    field package: text<raw> [indexed, stored, fast]
    field kind: text<raw> [indexed, stored, fast]
    field name: text<unicode_word> [indexed<positions>, stored]
    field words: text<simple> [indexed<positions>, stored]
    field signature: text<unicode_word> [indexed<positions>, stored]
    field synopsis: text<en_stem> [stored]
    field doc: text<en_stem> [indexed<positions>, stored]
}
`

// Doc is one symbol of a package, or the package itself.
type Doc struct {
	ID        string `json:"id"`      // import path, then .Symbol or .Type.Member
	Package   string `json:"package"` // import path
	Kind      string `json:"kind"`    // package, func, type, method, field, const or var
	Name      string `json:"name"`
	Words     string `json:"words"` // the words that the name is put together of
	Signature string `json:"signature,omitempty"`
	Synopsis  string `json:"synopsis,omitempty"`
	Doc       string `json:"doc,omitempty"`
}

// ErrNoGoRoot says that no source of the standard library was found.
var ErrNoGoRoot = errors.New("no Go installation with the source of the standard library was found")

// FindGoRoot finds the installation of Go: $GOROOT, what the go command says, or the usual folders. The error is ErrNoGoRoot.
func FindGoRoot(ctx context.Context) (string, error) {
	tried := []string{os.Getenv("GOROOT")}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output(); err == nil {
		tried = append(tried, strings.TrimSpace(string(out)))
	}
	tried = append(tried, build.Default.GOROOT, "/usr/local/go", "/usr/lib/go", "/usr/share/go", "/opt/homebrew/opt/go/libexec", "/usr/lib/golang", `C:\Program Files\Go`)
	for _, root := range tried {
		if root == "" {
			continue
		}
		if st, err := os.Stat(filepath.Join(root, "src", "fmt", "print.go")); err == nil && st.Mode().IsRegular() {
			return root, nil
		}
	}
	return "", ErrNoGoRoot
}

// HasGo tells whether there is a Go file anywhere below dir.
func HasGo(dir string) (bool, error) {
	found := errors.New("found")
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != dir && passOver(d.Name()):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(p, ".go"):
			return found
		}
		return nil
	})
	if err != nil && !errors.Is(err, found) {
		return false, fmt.Errorf("look for Go files: %w", err)
	}
	return err != nil, nil
}

// passOver names folders that hold no package for others to use.
func passOver(name string) bool {
	return name == "testdata" || name == "vendor" || name == "internal" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// Source is a tree of Go packages.
type Source struct {
	Dir    string // the folder of the tree
	Prefix string // what import paths begin with; empty for the standard library
	// Skip names folders below Dir, with slashes, that are left out.
	Skip []string
}

// StandardLibrary is the tree of an installation's standard library, without commands.
func StandardLibrary(goroot string) Source {
	return Source{Dir: filepath.Join(goroot, "src"), Skip: []string{"cmd"}}
}

// Tree is the tree in a folder; its import paths begin with the module's path if there is a go.mod. A folder that is an
// installation of Go is its standard library.
func Tree(dir string) Source {
	for _, root := range []string{dir, filepath.Dir(filepath.Clean(dir))} {
		if _, err := os.Stat(filepath.Join(root, "src", "fmt", "print.go")); err == nil && (root == dir || filepath.Base(filepath.Clean(dir)) == "src") {
			return StandardLibrary(root)
		}
	}
	return Source{Dir: dir, Prefix: modulePath(filepath.Join(dir, "go.mod"))}
}

// modulePath reads the module line of a go.mod; empty if there is none.
func modulePath(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) == 2 && f[0] == "module" {
			return strings.Trim(f[1], `"`)
		}
	}
	return ""
}

// packages lists the folders of the tree that hold Go files, relative to it, in order.
func (s Source) packages() ([]string, error) {
	var out []string
	err := filepath.WalkDir(s.Dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(s.Dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && (passOver(d.Name()) || slices.Contains(s.Skip, rel)) {
				return fs.SkipDir
			}
			return nil
		}
		dir := path.Dir(rel)
		if strings.HasSuffix(rel, ".go") && !strings.HasSuffix(rel, "_test.go") && (len(out) == 0 || out[len(out)-1] != dir) {
			out = append(out, dir)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Collect reads every package of the tree, several at once, and calls emit with the documents of each in the order of their
// paths. A file that cannot be parsed ends it with an error that names the place.
func (s Source) Collect(ctx context.Context, emit func(pkg string, docs []Doc) error) error {
	dirs, err := s.packages()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		docs []Doc
		err  error
	}
	type job struct {
		pkg string
		out chan result
	}
	workers := max(runtime.GOMAXPROCS(0), 1)
	jobs := make(chan job)
	// order holds the jobs as they were given out, and bounds how far reading runs ahead of emit.
	order := make(chan job, 4*workers)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range workers {
		wg.Go(func() {
			for j := range jobs {
				docs, err := s.read(j.pkg)
				j.out <- result{docs, err}
			}
		})
	}
	wg.Go(func() {
		defer close(order)
		defer close(jobs)
		for _, dir := range dirs {
			j := job{dir, make(chan result, 1)}
			select {
			case order <- j:
			case <-ctx.Done():
				return
			}
			select {
			case jobs <- j:
			case <-ctx.Done():
				return
			}
		}
	})
	for j := range order {
		select {
		case r := <-j.out:
			if r.err != nil {
				return r.err
			}
			if len(r.docs) == 0 {
				continue
			}
			if err := emit(r.docs[0].Package, r.docs); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return ctx.Err()
}

// read makes the documents of one package.
func (s Source) read(rel string) ([]Doc, error) {
	dir := filepath.Join(s.Dir, filepath.FromSlash(rel))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read package %s: %w", rel, err)
	}
	bc := build.Default
	bc.CgoEnabled = true // both sides of a cgo choice declare the same things; one has to be taken
	fset := token.NewFileSet()
	packages := map[string][]*ast.File{}
	name := "" // of the package with the most files: a stray program beside it is left out
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		match, err := bc.MatchFile(dir, e.Name())
		if err != nil {
			return nil, fmt.Errorf("read package %s: %w", rel, err)
		}
		if !match {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(dir, e.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse package %s: %w", rel, err)
		}
		packages[f.Name.Name] = append(packages[f.Name.Name], f)
		if len(packages[f.Name.Name]) > len(packages[name]) {
			name = f.Name.Name
		}
	}
	if name == "" {
		return nil, nil
	}
	files := packages[name]
	importPath := rel
	switch {
	case rel == ".":
		importPath = s.Prefix
		if importPath == "" {
			importPath = name
		}
	case s.Prefix != "":
		importPath = s.Prefix + "/" + rel
	}
	mode := doc.Mode(0)
	if importPath == "builtin" {
		mode = doc.AllDecls // its names are lower-case and stand for the language's own
	}
	p, err := doc.NewFromFiles(fset, files, importPath, mode)
	if err != nil {
		return nil, fmt.Errorf("read comments of package %s: %w", rel, err)
	}
	c := &collector{fset: fset, pkg: p, path: importPath}
	c.add("package", "", name, "package "+name, p.Doc)
	c.values("const", p.Consts)
	c.values("var", p.Vars)
	c.funcs("func", "", p.Funcs)
	for _, t := range p.Types {
		c.typ(t)
	}
	return c.docs, nil
}

// collector gathers the documents of one package.
type collector struct {
	fset *token.FileSet
	pkg  *doc.Package
	path string
	docs []Doc
}

func (c *collector) add(kind, symbol, name, signature, comment string) {
	id := c.path
	if symbol != "" {
		id += "." + symbol
	}
	c.docs = append(c.docs, Doc{
		ID: id, Package: c.path, Kind: kind, Name: name, Words: splitName(name), Signature: signature,
		Synopsis: c.pkg.Synopsis(comment), Doc: strings.TrimSpace(comment),
	})
}

func (c *collector) typ(t *doc.Type) {
	decl := *t.Decl
	decl.Doc = nil
	c.add("type", t.Name, t.Name, c.print(&decl), t.Doc)
	c.values("const", t.Consts)
	c.values("var", t.Vars)
	c.funcs("func", "", t.Funcs)
	c.funcs("method", t.Name+".", t.Methods)
	for _, spec := range t.Decl.Specs {
		ts, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		switch u := ts.Type.(type) {
		case *ast.StructType:
			c.members("field", t.Name, u.Fields)
		case *ast.InterfaceType:
			c.members("method", t.Name, u.Methods)
		}
	}
}

// members adds the named fields of a struct or the methods of an interface.
func (c *collector) members(kind, typ string, list *ast.FieldList) {
	for _, f := range list.List {
		for _, n := range f.Names {
			if !n.IsExported() {
				continue
			}
			sig := n.Name + " " + c.print(f.Type)
			if _, isFunc := f.Type.(*ast.FuncType); isFunc && kind == "method" {
				sig = n.Name + strings.TrimPrefix(c.print(f.Type), "func")
			}
			c.add(kind, typ+"."+n.Name, typ+"."+n.Name, sig, f.Doc.Text()+f.Comment.Text())
		}
	}
}

func (c *collector) funcs(kind, receiver string, list []*doc.Func) {
	for _, f := range list {
		decl := *f.Decl
		decl.Doc, decl.Body = nil, nil
		c.add(kind, receiver+f.Name, receiver+f.Name, c.print(&decl), f.Doc)
	}
}

// values adds each name of the declarations; one without a comment of its own has that of its group.
func (c *collector) values(kind string, list []*doc.Value) {
	for _, v := range list {
		for _, spec := range v.Decl.Specs {
			vs, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			comment := vs.Doc.Text() + vs.Comment.Text()
			if comment == "" {
				comment = v.Doc
			}
			plain := *vs
			plain.Doc, plain.Comment = nil, nil
			sig := kind + " " + c.print(&plain)
			for _, n := range vs.Names {
				if n.Name != "_" && (n.IsExported() || c.path == "builtin") {
					c.add(kind, n.Name, n.Name, sig, comment)
				}
			}
		}
	}
}

// maxSignature is the longest signature in bytes; a longer declaration is cut at the end of a line.
const maxSignature = 2000

func (c *collector) print(node any) string {
	var b strings.Builder
	cfg := printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8}
	if err := cfg.Fprint(&b, c.fset, node); err != nil {
		// The node was parsed, so it prints; a symbol without a signature is still worth finding.
		return ""
	}
	s := b.String()
	if len(s) > maxSignature {
		cut := strings.LastIndexByte(s[:maxSignature], '\n')
		if cut < 0 {
			cut = strings.LastIndexByte(s[:maxSignature], ' ')
		}
		s = strings.ToValidUTF8(s[:max(cut, 0)], "") + "\n…"
	}
	return s
}

// splitName takes a name apart: ServeHTTPError is Serve HTTP Error.
func splitName(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if r == '.' || r == '_' {
			b.WriteByte(' ')
			continue
		}
		if i > 0 && unicode.IsUpper(r) {
			before := runes[i-1]
			ends := i+1 < len(runes) && unicode.IsLower(runes[i+1]) && unicode.IsUpper(before)
			if unicode.IsLower(before) || unicode.IsDigit(before) || ends {
				b.WriteByte(' ')
			}
		}
		b.WriteRune(r)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
