package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func writeFile(t *testing.T, dim, n, q int, floats []float32) string {
	t.Helper()
	var b []byte
	for _, x := range []int{dim, n, q} {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	for _, x := range floats {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	path := filepath.Join(t.TempDir(), "set")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The graph finds each vector when it is asked for it, and a pass tells a time.
func TestRun(t *testing.T) {
	const dim, n = 16, 500
	rng := rand.New(rand.NewPCG(1, 1))
	floats := make([]float32, dim*n)
	for i := range floats {
		floats[i] = float32(rng.NormFloat64())
	}
	path := writeFile(t, dim, n, n, slices.Concat(floats, floats))
	for _, rq := range []bool{false, true} {
		t.Run(fmt.Sprintf("rq=%v", rq), func(t *testing.T) { testRun(t, rq, path, n) })
	}
}

func testRun(t *testing.T, rq bool, path string, n int) {
	var out bytes.Buffer
	in := strings.NewReader(`{"ef":64,"k":3}` + "\n" + `{"ef":64,"k":3,"least":0.001}` + "\n")
	if err := run([]string{fmt.Sprintf("-rq=%v", rq), path}, in, &out, &out); err != nil {
		t.Fatal(err)
	}
	var g greeting
	var hits, pass answer
	for d, v := json.NewDecoder(&out), []any{&g, &hits, &pass}; len(v) > 0; v = v[1:] {
		if err := d.Decode(v[0]); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(g.Engine, "weaviate ") || g.Built <= 0 || pass.Seconds <= 0 || pass.Hits != nil {
		t.Errorf("greeting %+v, pass %+v", g, pass)
	}
	same := 0
	for i, h := range hits.Hits {
		if len(h) == 3 && h[0] == uint64(i) {
			same++
		}
	}
	if same < n*99/100 {
		t.Errorf("%d of %d vectors find themselves", same, n)
	}
}

func TestBadInput(t *testing.T) {
	good := writeFile(t, 1, 1, 1, []float32{1, 1})
	for _, c := range []struct {
		args []string
		in   string
	}{
		{nil, ""},
		{[]string{"-m", "1", good}, ""},
		{[]string{filepath.Join(t.TempDir(), "absent")}, ""},
		{[]string{writeFile(t, 2, 1, 1, []float32{1, 1, 1})}, ""},
		{[]string{writeFile(t, 1<<31, 1<<31, 1<<31, nil)}, ""},
		{[]string{good}, "{\n"},
		{[]string{good}, `{"ef":0,"k":1}`},
		{[]string{good}, `{"ef":1,"k":1,"least":1e9}`},
	} {
		if err := run(c.args, strings.NewReader(c.in), &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%v with %q is taken", c.args, c.in)
		}
	}
}
