package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/bench/internal/peer"
)

// The whole comparison on a small collection, as in a fresh clone: weft and the bleve of this module.
func TestAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	dir := t.TempDir()
	var docs []peer.Doc
	for i := range 600 {
		var b strings.Builder
		for range 5 + rnd.IntN(40) {
			fmt.Fprintf(&b, "word%d ", int(300*rnd.Float64()*rnd.Float64()))
		}
		docs = append(docs, peer.Doc{ID: fmt.Sprint(i), Body: b.String()})
	}
	in := filepath.Join(dir, "docs.ndjson")
	if err := peer.WriteDocs(in, docs); err != nil {
		t.Fatal(err)
	}
	absent := filepath.Join(dir, "absent")
	args := []string{"-out", filepath.Join(dir, "out"), "-peers", absent, "-data", absent, "-docs", in, "-pass-ms", "0", "-rounds", "1"}
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), args, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	page, err := os.ReadFile(filepath.Join(dir, "out", "RESULTS-weft.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, stdout.Bytes()) {
		t.Error("what is printed is not what is written")
	}
	for _, want := range []string{"# weft beside bleve", "No folder of peers", "queries, in both counting modes of weft, bleve", "; 0 differ", " 0 wrong", "| indexing, times bleve's speed |"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not in\n%s", want, stdout.String())
		}
	}
	// a second run takes the indexes of the first
	stderr.Reset()
	if err := run(t.Context(), append(args, "-reuse", "-engines", "weft"), &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if strings.Contains(stderr.String(), "indexes") || !strings.Contains(stderr.String(), "weft searches") {
		t.Errorf("the second run: %s", stderr.String())
	}
}

func TestRefusesArguments(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-rounds", "0"}, {"-engines", "none"}, {"-no-such-flag"}} {
		args = append([]string{"-out", t.TempDir(), "-peers", "absent"}, args...)
		if err := run(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
