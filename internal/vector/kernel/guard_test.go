//go:build linux

package kernel

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// Arguments that end at the end of the mapped memory are read without touching the page behind them, and such that
// start at its beginning without touching the page before it.
func TestReadsNoMore(t *testing.T) {
	page := unix.Getpagesize()
	const pages = 2
	mem, err := unix.Mmap(-1, 0, (pages+2)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("mapping pages: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Errorf("unmapping: %v", err)
		}
	})
	for _, guard := range [][]byte{mem[:page], mem[(pages+1)*page:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatalf("closing a page: %v", err)
		}
	}
	rng := rand.New(rand.NewPCG(8, 8))
	for n := range 300 {
		q := floats(rng, n)
		qb := make([]byte, n)
		// place gives size bytes at the start of the open pages, then at their end.
		place := func(size int, f func(b []byte)) {
			for _, at := range []int{page, (pages+1)*page - size} {
				f(mem[at : at+size : at+size])
			}
		}
		place(4*n, func(b []byte) { sinkF = DotF32(q, b) + L2F32(q, b) })
		place(2*n, func(b []byte) { sinkF = DotF16(q, b) + L2F16(q, b) })
		place(2*n, func(b []byte) { EncodeF16(b, q); DecodeF16(make([]float32, n), b) })
		place(n, func(b []byte) { sinkF = DotU8(q, b, 1, 2) + L2U8(q, b, 1, 2) })
		place(n, func(b []byte) { sinkN = Hamming(b, qb) + Hamming(qb, b) })
		place(n, func(b []byte) { sinkI = DotI8(Int8s(qb), Int8s(b)) + DotI8(Int8s(b), Int8s(qb)) })
		place(5*n, func(b []byte) { DotI8List(Int8s(qb), Int8s(b), n, []uint32{4, 4, 4, 4, 0}, make([]int32, 5)) })
	}
}
