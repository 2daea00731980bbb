//go:build linux

package bitpack

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A block that ends at the end of the mapped memory is read without touching the page behind it, and one that starts
// at its beginning without touching the page before it.
func TestReadsNoMore(t *testing.T) {
	page := unix.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("mapping three pages: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Errorf("unmapping: %v", err)
		}
	})
	for _, guard := range [][]byte{mem[:page], mem[2*page:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatalf("closing a page: %v", err)
		}
	}
	for width := uint8(0); width <= MaxWidth; width++ {
		v := blocks(width)[8]
		packed := Pack(nil, &v, width)
		for _, at := range []int{page, 2*page - len(packed)} {
			src := mem[at : at+len(packed) : at+len(packed)]
			copy(src, packed)
			checkBlock(t, &v, src, width)
		}
	}
}
