package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain makes this program another engine, one that scans, where the environment says so.
func TestMain(m *testing.M) {
	switch os.Getenv("WEFT_TEST_PEER") {
	case "":
		os.Exit(m.Run())
	case "dies":
		os.Exit(3)
	}
	if err := scanningPeer(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func scanningPeer(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	d := data{dim: int(word(0))}
	for i := range int(word(1)) + int(word(2)) {
		row := make([]float32, d.dim)
		for j := range row {
			row[j] = math.Float32frombits(word(3 + i*d.dim + j))
		}
		if i < int(word(1)) {
			d.vectors = append(d.vectors, row)
		} else {
			d.queries = append(d.queries, row)
		}
	}
	fmt.Println(`{"Engine":"scanner","Built":1.5}`)
	for in := json.NewDecoder(os.Stdin); ; {
		var r struct {
			K     int
			Least float64
		}
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a := map[string]any{"Seconds": 0.25}
		if r.Least == 0 {
			a["Hits"] = d.truth(nil, r.K)
		}
		if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
			return err
		}
	}
}

// A small run prints every way, and the exact scan finds what brute force finds; a module that cannot be built is left out with
// the reason.
func TestRun(t *testing.T) {
	var out, progress bytes.Buffer
	err := run([]string{"-n", "5000", "-dim", "32", "-clusters", "50", "-queries", "20", "-rounds", "1", "-pass", "1ns", "-peer", t.TempDir()}, &out, &progress)
	if err != nil {
		t.Fatal(err, progress.String())
	}
	for _, want := range []string{
		"| weft | f32 | exact scan |", "| weft | f32 | graph | default |", "| weft | f32 | graph | 64 |", "| weft | f16 | graph |", "| weft | int8 | exact scan |",
		"| 1 % | masked |", "| 10 % | as planned: ", "| 50 % | unmasked |", "The other engine was left out: go build in ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	exact := 0
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "| f32 | exact scan |") || strings.Contains(line, "| exact over") {
			if exact++; !strings.Contains(line, "| 1.0000 |") {
				t.Errorf("an exact scan that is not exact: %s", line)
			}
		}
	}
	if exact != 4 {
		t.Errorf("%d exact scans in\n%s", exact, out.String())
	}
}

// The other program gets the vectors as they are, and its answers come back.
func TestPeer(t *testing.T) {
	t.Setenv("WEFT_TEST_PEER", "scans")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := generate(1, 300, 8, 10, 7, 0.5)
	file := filepath.Join(t.TempDir(), "set")
	if err := d.writeSet(file); err != nil {
		t.Fatal(err)
	}
	p, err := startPeer(self, file, false, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	o := options{n: 300, queries: 7, k: 10, rounds: 3, pass: time.Nanosecond, peerEfs: []int{20, 30}}
	ways := p.ways(o, d.truth(nil, o.k))
	for _, w := range ways {
		found, err := w.find()
		if err != nil {
			t.Fatal(err)
		}
		if w.recall = recall(w.truth, found); w.recall != 1 {
			t.Errorf("%d candidates: recall %v", w.ef, w.recall)
		}
	}
	if err := measure(o, ways); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	report(&out, result{o: o, ways: ways, peers: []*peer{p}})
	for _, want := range []string{"scanner: graph built in 1.5 s of processor time.", "| scanner | f32 | graph | 30 | 1.0000 | 4 | 1.0 |", "| 0.99 | none | | 20 | 4 | |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	t.Setenv("WEFT_TEST_PEER", "dies")
	if _, err := startPeer(self, file, false, t.Output()); err == nil {
		t.Error("a program that ends at once is taken")
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-n", "0"}, {"-k", "0"}, {"-efs", "x"}, {"-peer-efs", "0"}, {"-pass", "1h"}, {"-clusters", "0"}} {
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
