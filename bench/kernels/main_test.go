package main

import (
	"bytes"
	"strings"
	"testing"
)

// Every kernel gives the right sum, and a short run prints a table for each dimension.
func TestRun(t *testing.T) {
	var out, complaints bytes.Buffer
	if err := run([]string{"-dims", "64,128", "-large", "1", "-rounds", "1", "-pass", "1ns"}, &out, &complaints); err != nil {
		t.Fatal(err, complaints.String())
	}
	if n := strings.Count(out.String(), "| weft |"); n != 2 {
		t.Errorf("%d tables, want 2:\n%s", n, out.String())
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-dims", "100"}, {"-dims", ""}, {"-large", "0"}, {"-rounds", "0"}, {"-small", "1"}, {"-pass", "0"}} {
		if err := run(args, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
