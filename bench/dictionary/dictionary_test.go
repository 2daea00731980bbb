// Package dictionary measures the term dictionary of a segment (front-coded blocks) beside a finite-state transducer, on the words of
// real documents: the reason why the format has blocks.
//
//	go test -bench . ./dictionary
package dictionary

import (
	"bytes"
	"go/scanner"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blevesearch/vellum"

	"github.com/weft-search/weft/internal/segment"
)

// words are the distinct words of the Go standard library's comments and names, lower-cased, in order.
func words(tb testing.TB) [][]byte {
	tb.Helper()
	seen := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(runtime.GOROOT(), "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var s scanner.Scanner
		s.Init(token.NewFileSet().AddFile(path, -1, len(src)), src, nil, scanner.ScanComments)
		for {
			_, tok, lit := s.Scan()
			if tok == token.EOF {
				return nil
			}
			if tok != token.COMMENT && tok != token.IDENT {
				continue
			}
			for _, w := range strings.FieldsFunc(strings.ToLower(lit), func(r rune) bool { return r < '0' || (r > '9' && r < 'a') || r > 'z' }) {
				seen[w] = true
			}
		}
	})
	if err != nil {
		tb.Skipf("no sources of the standard library: %v", err)
	}
	out := make([][]byte, 0, len(seen))
	for w := range seen {
		out = append(out, []byte(w))
	}
	slices.SortFunc(out, bytes.Compare)
	return out
}

func buildBlocks(tb testing.TB, terms [][]byte) []byte {
	var buf bytes.Buffer
	w := segment.NewWriter(&buf, segment.WriterOptions{NoSources: true})
	w.Begin(1, []segment.FieldMeta{{ID: 0, Name: "f"}})
	w.Key([]byte("k"), 1)
	w.BeginField(0, false, []uint16{uint16(min(len(terms), 65535))})
	for _, t := range terms {
		w.StartTerm(t)
		w.Add([]uint32{0}, []uint32{1}, nil)
		w.EndTerm()
	}
	w.EndField()
	if _, err := w.Finish(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func buildFST(tb testing.TB, terms [][]byte) []byte {
	var buf bytes.Buffer
	b, err := vellum.New(&buf, nil)
	if err != nil {
		tb.Fatal(err)
	}
	for i, t := range terms {
		if err := b.Insert(t, uint64(i)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func BenchmarkBuild(b *testing.B) {
	terms := words(b)
	for name, build := range map[string]func(testing.TB, [][]byte) []byte{"blocks": buildBlocks, "fst": buildFST} {
		b.Run(name, func(b *testing.B) {
			var size int
			for b.Loop() {
				size = len(build(b, terms))
			}
			b.ReportMetric(float64(size)/float64(len(terms)), "bytes/term")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(terms)), "ns/term")
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	terms := words(b)
	ask := slices.Clone(terms)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(ask), func(i, j int) { ask[i], ask[j] = ask[j], ask[i] })
	r, err := segment.FromBytes("words", buildBlocks(b, terms))
	if err != nil {
		b.Fatal(err)
	}
	fst, err := vellum.Load(buildFST(b, terms))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("blocks", func(b *testing.B) {
		i := 0
		for b.Loop() {
			if _, ok := r.Postings(0, ask[i%len(ask)]); !ok {
				b.Fatal("lost")
			}
			i++
		}
	})
	b.Run("fst", func(b *testing.B) {
		i := 0
		for b.Loop() {
			if _, ok, err := fst.Get(ask[i%len(ask)]); !ok || err != nil {
				b.Fatal("lost")
			}
			i++
		}
	})
}
