package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// A small run prints every way, and the exact scan finds what brute force finds.
func TestRun(t *testing.T) {
	var out, progress bytes.Buffer
	err := run([]string{"-n", "5000", "-dim", "32", "-clusters", "50", "-queries", "20", "-rounds", "1", "-pass", "1ns", "-peer-n", "300", "-peer-efs", "20"}, &out, &progress)
	if err != nil {
		t.Fatal(err, progress.String())
	}
	for _, want := range []string{"| weft | exact scan |", "| weft | graph |", "| coder/hnsw |", "| 1 % | masked |", "| 50 % | unmasked |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if (strings.Contains(line, "| exact scan |") || strings.Contains(line, "| exact over")) && !strings.HasSuffix(line, "| 1.0000 |\n") {
			t.Errorf("an exact scan that is not exact: %s", line)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-n", "0"}, {"-k", "0"}, {"-efs", "x"}, {"-peer-efs", "-1"}, {"-element", "f64", "-n", "10", "-clusters", "1", "-k", "1"}, {"-clusters", "0"}} {
		if err := run(args, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

// The same seed makes the same vectors; a cluster's vectors are nearer to each other than to others.
func TestGenerate(t *testing.T) {
	a, b := generate(3, 200, 16, 4, 5, 0.1), generate(3, 200, 16, 4, 5, 0.1)
	for i := range a.vectors {
		if !slices.Equal(a.vectors[i], b.vectors[i]) {
			t.Fatalf("vector %d differs", i)
		}
	}
	truth := a.truth(nil, 10)
	for i, docs := range truth {
		for _, doc := range docs {
			var dot float64
			for j, x := range a.vectors[doc] {
				dot += float64(x) * float64(a.queries[i][j])
			}
			if dot < 0.9 {
				t.Errorf("query %d: document %d has %v", i, doc, dot)
			}
		}
	}
}
