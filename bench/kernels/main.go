// Command kernels measures dot products beside those of other Go packages and beside the bandwidth of memory, and prints
// tables of Markdown. Run it in the folder of the bench module:
//
//	go run ./kernels
//
// A buffer is filled with vectors; a pass takes the dot product of one query with all of them in order, which is an exact
// scan. The small buffer stays in the second-level cache, the large one is many times the last-level cache. All kernels run
// in one process on one thread; passes of all kernels alternate, and the median of the rounds counts, in time of the
// thread. The limit is the fastest reading of the same bytes in the same rounds: by a loop that does nothing else, or by
// one of the kernels.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/viterin/vek/vek32"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/weft-search/weft/bench/internal/clock"
	"github.com/weft-search/weft/internal/vector/kernel"
)

// contender is a dot product in the comparison.
type contender struct {
	name string
	// width is the number of bytes of a component of a stored vector.
	width int
	// scan returns the sum of the dot products of q with every vector of the buffer.
	scan func(q []float32, codes []int8, buf []byte) float64
	// weft's own are held against those that read as many bytes.
	own bool
}

// floats is a contender that takes float32 vectors.
func floats(name string, dot func(a, b []float32) float32) contender {
	return contender{name: name, width: 4, scan: func(q []float32, _ []int8, buf []byte) float64 {
		v := unsafe.Slice((*float32)(unsafe.Pointer(&buf[0])), len(buf)/4)
		var s float64
		for ; len(v) >= len(q); v = v[len(q):] {
			s += float64(dot(q, v[:len(q):len(q)]))
		}
		return s
	}}
}

// records is a contender that reads stored bytes.
func records(name string, width int, dot func(q []float32, rec []byte) float32) contender {
	return contender{name: name, width: width, own: true, scan: func(q []float32, _ []int8, buf []byte) float64 {
		var s float64
		for size := width * len(q); len(buf) >= size; buf = buf[size:] {
			s += float64(dot(q, buf[:size:size]))
		}
		return s
	}}
}

func plainDot(a, b []float32) float32 {
	b = b[:len(a)]
	var s float32
	for i, x := range a {
		s += x * b[i]
	}
	return s
}

func contenders() []contender {
	c := []contender{
		records("weft", 4, kernel.DotF32),
		floats("vek32", vek32.Dot),
		floats("gonum", func(a, b []float32) float32 {
			return blas32.Dot(blas32.Vector{N: len(a), Inc: 1, Data: a}, blas32.Vector{N: len(b), Inc: 1, Data: b})
		}),
	}
	return append(c,
		floats("a loop in Go", plainDot),
		records("weft f16", 2, kernel.DotF16),
		records("weft int8 as floats", 1, func(q []float32, rec []byte) float32 { return kernel.DotU8(q, rec, -1, 1.0/128) }),
		contender{name: "weft codes", width: 1, own: true, scan: func(_ []float32, q []int8, buf []byte) float64 {
			var s float64
			for ; len(buf) >= len(q); buf = buf[len(q):] {
				s += float64(kernel.DotI8(q, kernel.Int8s(buf[:len(q)])))
			}
			return s
		}},
	)
}

// readGo reads words, in four chains.
func readGo(b []byte) uint64 {
	v := unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/8)
	var s0, s1, s2, s3 uint64
	for ; len(v) >= 8; v = v[8:] {
		w := (*[8]uint64)(v)
		s0 += w[0] ^ w[4]
		s1 += w[1] ^ w[5]
		s2 += w[2] ^ w[6]
		s3 += w[3] ^ w[7]
	}
	return s0 + s1 + s2 + s3
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	fl := flag.NewFlagSet("kernels", flag.ContinueOnError)
	fl.SetOutput(stderr)
	dims := fl.String("dims", "128,768,1024", "`lengths` of the vectors")
	small := fl.Int("small", 128, "size of the small buffer in `KB`")
	large := fl.Int("large", 256, "size of the large buffer in `MB`")
	rounds := fl.Int("rounds", 9, "`number` of rounds")
	pass := fl.Duration("pass", 10*time.Millisecond, "least `time` of a pass")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if *small < 64 || *large < 1 || *large > 1<<14 || *rounds < 1 || *pass <= 0 {
		return fmt.Errorf("-small is 64 KB or more, -large 1 to 16384 MB, -rounds and -pass over 0")
	}
	runtime.LockOSThread()
	buf, other := make([]byte, max(*large<<20, *small<<10)), make([]byte, max(*large<<20, *small<<10))
	fmt.Fprintf(stdout, "%s, %s/%s; %d rounds, medians, one thread.\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, *rounds)
	for _, d := range strings.Split(*dims, ",") {
		dim, err := strconv.Atoi(d)
		if err != nil || dim < 32 || dim > 1<<14 || dim%32 != 0 {
			return fmt.Errorf("-dims: %q is no multiple of 32 up to 16384", d)
		}
		if err := agree(dim); err != nil {
			return err
		}
		var places [2]measured
		for i, n := range []int{*small << 10, *large << 20} {
			if places[i], err = measure(dim, buf[:n], other[:n], *rounds, *pass); err != nil {
				return err
			}
		}
		table(stdout, dim, places, []string{fmt.Sprintf("%d KB", *small), fmt.Sprintf("%d MB", *large)})
	}
	return nil
}

// random fills buf with float32 of about unit length for the dimension.
func random(buf []byte, dim int) {
	rng := rand.New(rand.NewPCG(1, uint64(dim)))
	v := unsafe.Slice((*float32)(unsafe.Pointer(&buf[0])), len(buf)/4)
	scale := 2 / math.Sqrt(float64(dim))
	for i := range v {
		v[i] = float32((rng.Float64() - 0.5) * scale)
	}
}

// halves fills buf with half floats of the same size.
func halves(buf []byte, dim int) {
	rng := rand.New(rand.NewPCG(3, uint64(dim)))
	scale := 2 / math.Sqrt(float64(dim))
	var v [512]float32
	for ; len(buf) > 0; buf = buf[min(len(buf), 2*len(v)):] {
		for i := range v {
			v[i] = float32((rng.Float64() - 0.5) * scale)
		}
		kernel.EncodeF16(buf, v[:min(len(v), len(buf)/2)])
	}
}

func query(dim int) ([]float32, []int8) {
	rng := rand.New(rand.NewPCG(2, uint64(dim)))
	q, c := make([]float32, dim), make([]int8, dim)
	for i := range q {
		q[i] = float32(rng.NormFloat64() / math.Sqrt(float64(dim)))
		c[i] = int8(rng.Uint32())
	}
	return q, c
}

// agree holds the float kernels against a sum in float64.
func agree(dim int) error {
	buf := make([]byte, 4*dim*16)
	random(buf, dim)
	q, codes := query(dim)
	v := unsafe.Slice((*float32)(unsafe.Pointer(&buf[0])), len(buf)/4)
	var want float64
	for i, x := range v {
		want += float64(x) * float64(q[i%dim])
	}
	for _, c := range contenders() {
		if c.width != 4 {
			continue
		}
		if got := c.scan(q, codes, buf); math.Abs(got-want) > 1e-4 {
			return fmt.Errorf("%s, %d dimensions: the sum is %v, not %v", c.name, dim, got, want)
		}
	}
	return nil
}

// measured are the times of a vector in nanoseconds, medians, by contender and, for the limit, of a byte.
type measured struct {
	vector  map[string]float64
	limit   float64 // of a byte
	reader  string
	perByte map[string]float64
}

func measure(dim int, buf, other []byte, rounds int, least time.Duration) (measured, error) {
	random(buf, dim)
	halves(other, dim)
	q, codes := query(dim)
	var sink float64
	loops := map[string]func(){}
	bytes := map[string]int{}
	for _, c := range contenders() {
		// As many bytes as whole vectors of float32 take, for all.
		n := len(buf) / (4 * dim) * (4 * dim)
		in := buf[:n]
		if c.width < 4 {
			in = other[:n]
		}
		loops[c.name] = func() { sink += c.scan(q, codes, in) }
		bytes[c.name] = n
	}
	reads := readers()
	for name, r := range reads {
		loops["reading by "+name] = func() { sink += float64(r(buf) & 1) }
		bytes["reading by "+name] = len(buf) &^ 127
	}
	names := make([]string, 0, len(loops))
	for name := range loops {
		names = append(names, name)
	}
	slices.Sort(names)
	times := map[string][]float64{}
	for round := range rounds + 1 {
		for i := range names {
			name := names[(i+round)%len(names)]
			start, passes := clock.Thread(), 0
			for passes == 0 || clock.Thread()-start < least {
				loops[name]()
				passes++
			}
			if round == 0 {
				continue // warms up
			}
			times[name] = append(times[name], float64(clock.Thread()-start)/float64(passes)/float64(bytes[name]))
		}
	}
	if math.IsNaN(sink) {
		return measured{}, fmt.Errorf("%d dimensions: the sums are not numbers", dim)
	}
	m := measured{vector: map[string]float64{}, perByte: map[string]float64{}, limit: math.Inf(1)}
	for name, t := range times {
		m.perByte[name] = median(t)
		if m.perByte[name] < m.limit {
			m.limit, m.reader = m.perByte[name], name
		}
	}
	for _, c := range contenders() {
		m.vector[c.name] = m.perByte[c.name] * float64(c.width*dim)
	}
	return m, nil
}

func median(v []float64) float64 {
	slices.SortFunc(v, cmp.Compare[float64])
	return v[len(v)/2]
}

// table writes the figures of one dimension, a row for each contender.
func table(w io.Writer, dim int, at [2]measured, sizes []string) {
	fmt.Fprintf(w, "\n### %d dimensions\n\n", dim)
	fmt.Fprintf(w, "| kernel | bytes | %s: ns | GB/s | of the limit | %s: ns | GB/s | of the limit |\n|---|--:|--:|--:|--:|--:|--:|--:|\n", sizes[0], sizes[1])
	best := [2]float64{math.Inf(1), math.Inf(1)}
	for _, c := range contenders() {
		fmt.Fprintf(w, "| %s | %d |", c.name, c.width*dim)
		for i, m := range at {
			t, size := m.vector[c.name], float64(c.width*dim)
			fmt.Fprintf(w, " %.1f | %.1f | %.2f |", t, size/t, m.limit*size/t)
			if !c.own && c.width == 4 {
				best[i] = min(best[i], t)
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "| the limit: %s; %s | %d |", at[0].reader, at[1].reader, 4*dim)
	for _, m := range at {
		size := float64(4 * dim)
		fmt.Fprintf(w, " %.1f | %.1f | 1.00 |", m.limit*size, 1/m.limit)
	}
	fmt.Fprint(w, "\n\n")
	for i, m := range at {
		limit := m.limit * float64(4*dim)
		ratio := m.vector["weft"] / max(limit, best[i])
		verdict := "met"
		if ratio > 1.5 {
			verdict = "not met"
		}
		fmt.Fprintf(w, "%s: weft takes %.2f times the slower of the limit and the best other kernel (aim 1.5: %s), %.2f times the best other kernel.\n",
			sizes[i], ratio, verdict, m.vector["weft"]/best[i])
	}
}
